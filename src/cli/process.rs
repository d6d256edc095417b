//! Process settings: the signal handler, the limit of open files, the CPU features, and the allocator.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::exit::Exit;
use crate::error::{Error, Result};
use crate::kernel::cpu_features::{self, CpuFeatures, UnknownCpuFeatures};

/// Wanted limit of open files.
const OPEN_FILES: u64 = 4096;

/// Set when the user asks to stop.
static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether the user has asked to stop, for who waits for input before the work begins.
pub fn stop() -> &'static AtomicBool {
    &STOP
}

/// The flag that SIGINT, SIGHUP and SIGTERM set. The second signal ends the process at once.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = STOP.clone();
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

/// Bytes of a file with a time zone, at most.
const ZONE_BYTES_MAX: u64 = 1 << 20;
/// A time zone that nobody knows.
const UNKNOWN_ZONE: &str = "unknown";

/// Whether something is at `path` that is no file with a time zone: a reader could wait for it, or never come to its
/// end.
fn is_no_zone(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() > ZONE_BYTES_MAX)
}

/// The file that a time zone names. The name must not be empty.
fn zone_file(name: &[u8]) -> PathBuf {
    let directory = std::env::var_os("TZDIR").map_or_else(|| "/usr/share/zoneinfo".into(), PathBuf::from);
    // An absolute path replaces the directory.
    directory.join(OsStr::from_bytes(name))
}

/// Sees to it that local times can be told: a time zone that is no file of a usual size counts as unknown. Must be
/// called before other threads run.
#[expect(unsafe_code, reason = "the environment belongs to the process")]
fn check_time_zone() {
    let zone = std::env::var_os("TZ");
    let name = zone.as_ref().map(|zone| zone.as_bytes().strip_prefix(b":").unwrap_or(zone.as_bytes()));
    let replaced = match name {
        Some(name) if !name.is_empty() && is_no_zone(&zone_file(name)) => UNKNOWN_ZONE,
        None if is_no_zone(Path::new("/etc/localtime")) => "UTC",
        _ => return,
    };
    // SAFETY: no other thread runs.
    unsafe { std::env::set_var("TZ", replaced) };
}

/// Whether the standard output was closed when the process started. The runtime opens /dev/null in its place.
static IS_OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks at the standard output before the runtime does.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the runtime offers no look before it starts")]
mod before_runtime {
    pub extern "C" fn look() {
        // SAFETY: asks for the flags of a descriptor, which may be closed.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        super::IS_OUTPUT_CLOSED.store(flags == -1, super::Ordering::Relaxed);
    }

    // SAFETY: the section holds functions of this type, which are called one after another before `main`.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;
}

/// Whether nothing can be written to the standard output, because it was closed.
pub fn is_output_closed() -> bool {
    IS_OUTPUT_CLOSED.load(Ordering::Relaxed)
}

/// Makes the process of a host what the runtime makes of a program: a standard stream that is closed becomes /dev/null,
/// so that no file of a repository gets its number and with it what is printed; a pipe without a reader is an error and
/// not the end; and SIGINT ends the process until [`stop_flag`] is called, unless the host got it ignored.
#[expect(unsafe_code, reason = "signals belong to the process")]
pub fn adopt() {
    #[cfg(target_os = "linux")]
    before_runtime::look();
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty());
    while let Ok(opened) = null() {
        if opened.as_raw_fd() > libc::STDERR_FILENO {
            break;
        }
        // It stays open as long as the process runs.
        let _ = opened.into_raw_fd();
    }
    // SAFETY: changes what signals do, to what needs no function of this program.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        if libc::signal(libc::SIGINT, libc::SIG_DFL) == libc::SIG_IGN {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
        }
    }
}

/// What must be done before other threads run.
pub fn start() {
    check_time_zone();
    keep_freed_memory();
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
fn keep_freed_memory() {
    // SAFETY: three documented parameters and values in their range, set before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, REUSED_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, REUSED_FREE_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

/// Other allocators keep their settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_freed_memory() {}
