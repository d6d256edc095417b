//! What the process asks of the system before it works: signals that stop it, room for open files, an allocator that
//! keeps what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::exit::Exit;

/// Open files wanted.
const OPEN_FILES: u64 = 4096;

/// The flag that Ctrl-C, a hang-up or a request to terminate sets; the second one ends the process at once.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let set = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tracing::warn!("stopping; once more to stop at once");
    });
    if let Err(error) = set {
        tracing::warn!("an interruption will end the process at once: {error}");
    }
    stop
}

/// Raises the soft limit of open files to 4096, or as far as the hard limit allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        tracing::debug!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Blocks smaller than this come from memory that the allocator keeps, bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BLOCK_BYTES: i32 = 8 << 20;
/// Free memory at an arena's end that is not given back, bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_FREE_BYTES: i32 = 64 << 20;

/// Has the C library's allocator keep freed memory: frames and batches come and go at the same sizes, and mapping each
/// of them anew took a third of the system time of a backup.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a setting of the C library that no crate wraps")]
pub fn keep_freed_memory() {
    // SAFETY: two documented parameters and values in their range, set before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
    }
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}
