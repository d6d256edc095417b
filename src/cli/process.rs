//! Process settings: the signal handler, the limit of open files, the CPU features, and the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::exit::Exit;
use crate::error::{Error, Result};
use crate::kernel::cpu_features::{self, CpuFeatures, UnknownCpuFeatures};

/// Wanted limit of open files.
const OPEN_FILES: u64 = 4096;

/// The flag that SIGINT, SIGHUP and SIGTERM set. The second signal ends the process at once.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let set = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tracing::warn!("stopping; press Ctrl-C again to stop at once");
    });
    if let Err(error) = set {
        tracing::warn!("cannot handle signals, so an interruption ends the process at once: {error}");
    }
    stop
}

/// Fails if the environment variable that limits the CPU features holds an unknown name.
///
/// # Errors
/// [`Error::Config`] with the known names.
pub fn check_cpu_features() -> Result<()> {
    CpuFeatures::limit().map(|_| ()).map_err(|UnknownCpuFeatures(value)| Error::Config {
        origin: cpu_features::VARIABLE.into(),
        message: format!(
            "expected names out of {}, such as `avx512,-gfni`, found `{}`",
            CpuFeatures::names().collect::<Vec<_>>().join(", "),
            value.display()
        ),
    })
}

/// Raises the soft limit of open files to 4096, or as far as the hard limit allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        tracing::debug!("cannot raise the limit of open files above {:?}: {error}", limit.current);
    }
}

/// Keeps the memory of this process out of core dumps, because a key is in it from now on. No other process of the user
/// can read it either. Programs that it starts are not affected.
pub fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    let forbidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    #[cfg(not(target_os = "linux"))]
    let forbidden = setrlimit(Resource::Core, Rlimit { current: Some(0), ..getrlimit(Resource::Core) });
    if let Err(error) = forbidden {
        tracing::debug!("cannot forbid core dumps: {error}");
    }
}

/// The allocator reuses freed blocks smaller than this, bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const REUSED_BLOCK_BYTES: i32 = 8 << 20;
/// Free memory at the end of an arena that the allocator does not return to the system, bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const REUSED_FREE_BYTES: i32 = 64 << 20;

/// Arenas of the allocator. Each one more keeps freed memory that the others cannot use.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS_MAX: i32 = 2;

/// Makes the C library's allocator reuse freed memory. Frames and batches come and go at the same sizes, and mapping
/// each of them again took a third of the system time of a backup.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a setting of the C library that no crate wraps")]
pub fn keep_freed_memory() {
    // SAFETY: three documented parameters and values in their range, set before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, REUSED_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, REUSED_FREE_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

/// Other allocators keep their settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}
