//! Reads any lines as a commit that a client uploads. What is accepted names files inside its name only, and no path is
//! a file and a directory.

#![no_main]

use std::fs::File;
use std::path::{Component, Path};
use std::sync::Arc;

use fhrd::keep::upload::{CommitContent, CommitFiles, CommitLines, INLINE_MAX};
use libfuzzer_sys::fuzz_target;

/// Lines of every kind, with a path and a text that need not be JSON.
fn built(kind: u8, path: &str, text: &str) -> String {
    let value = match kind % 6 {
        0 => format!(r#"{{"key":"header","value":{{"summary":"{text}","parentCommit":"{path}"}}}}"#),
        1 => format!(r#"{{"key":"file","value":{{"path":"{path}","content":"aGk=","encoding":"{text}"}}}}"#),
        2 => format!(r#"{{"key":"file","value":{{"path":"{path}","content":"{text}"}}}}"#),
        3 => format!(r#"{{"key":"lfsFile","value":{{"path":"{path}","oid":"{:064x}","size":{text}}}}}"#, text.len()),
        4 => format!(r#"{{"key":"deletedFile","value":{{"path":"{path}"}}}}"#),
        _ => format!(r#"{{"key":"deletedFolder","value":{{"path":"{path}"}}}}"#),
    };
    format!("{value}\n")
}

fn check(bytes: &[u8]) {
    let (mut lines, mut inline_len) = (CommitLines::default(), 0);
    for line in bytes.split(|byte| *byte == b'\n') {
        match lines.add(line) {
            Ok(inline) => {
                assert!(inline.len() as u64 <= INLINE_MAX);
                inline_len += inline.len() as u64;
            }
            Err(_) => return,
        }
    }
    let nothing = File::open("/dev/null").expect("a file");
    let (Ok(commit), mut files) = (lines.finish(Arc::new(nothing)), CommitFiles::new()) else { return };
    if commit.apply(&mut files).is_err() {
        return;
    }
    assert!(!files.is_empty());
    for (path, content) in &files {
        let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let names = path.split('/').collect::<Vec<_>>();
        let is_name = |name: &&str| !name.is_empty() && *name != "." && !name.contains('\0');
        assert!(is_plain && names.iter().all(is_name), "{path}");
        assert!(!names[0].eq_ignore_ascii_case(".git"), "{path}");
        assert!((1..names.len()).all(|len| !files.contains_key(&names[..len].join("/"))), "{path}");
        if let CommitContent::Inline(start, len) = content {
            assert!(start + len <= inline_len, "{path}");
        }
    }
}

fuzz_target!(|input: (&[u8], Vec<(u8, String, String)>)| {
    let (bytes, parts) = input;
    check(bytes);
    let header = built(0, "", "");
    let rest: String = parts.iter().map(|(kind, path, text)| built(*kind, path, text)).collect();
    check(format!("{header}{rest}").as_bytes());
});
