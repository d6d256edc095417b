//! Panics of redb, which a damaged file can cause. They are caught and count as damage, so nobody needs their text.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::path::{Component, Path};
use std::sync::Once;

thread_local! {
    /// Whether this thread catches panics of redb.
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Puts the hook that prints no panic of redb in a thread that catches it, and leaves all others to the former hook.
static HOOK: Once = Once::new();

/// Does `work`. `None` if it panics; the text is printed unless redb panicked.
pub(super) fn catch_quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    HOOK.call_once(|| {
        let former = take_hook();
        set_hook(Box::new(move |info| {
            if !is_quiet(info) {
                former(info);
            }
        }));
    });
    let before = IS_CATCHING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CATCHING.set(before);
    done.ok()
}

fn is_quiet(info: &PanicHookInfo<'_>) -> bool {
    // While a thread ends, it catches nothing.
    let is_catching = IS_CATCHING.try_with(Cell::get).unwrap_or_default();
    is_catching && info.location().is_some_and(|location| is_of_redb(Path::new(location.file())))
}

/// Whether a source file is one of redb: its crate is in `redb-VERSION`, or in `redb` where crates are vendored.
fn is_of_redb(file: &Path) -> bool {
    file.components().any(|part| match part {
        Component::Normal(name) => name == "redb" || name.as_encoded_bytes().starts_with(b"redb-"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tests of this program print if they run alone.
    fn printed_by(test: &str) -> String {
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        let output = command.args(["--exact", "--nocapture", "--test-threads=1", test]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
        text
    }

    #[test]
    fn catches_a_panic_of_this_crate() {
        assert_eq!(catch_quietly(|| 7), Some(7));
        let caught: Option<()> = catch_quietly(|| panic!("of this crate"));
        assert_eq!(caught, None);
    }

    #[test]
    fn a_panic_of_redb_is_not_printed_and_one_of_this_crate_is() {
        let damaged = "repo::index::database::chunk_database::tests::a_damaged_file_is_filled_again_or_done_without";
        let text = printed_by(damaged);
        assert!(!text.contains("panicked at"), "{text}");
        let own = "repo::index::database::quiet_panic::tests::catches_a_panic_of_this_crate";
        assert!(printed_by(own).contains("of this crate"));
        assert!(is_of_redb(Path::new("/registry/src/index.crates.io-1/redb-4.6.0/src/tree.rs")));
        assert!(!is_of_redb(Path::new("src/repo/index/database/redb_notes.rs")));
    }
}
