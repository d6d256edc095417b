//! The steps of training runs: paths that differ in the numbers of their steps only.
//!
//! In a name such as `checkpoint-500`, `iter_0000500` or `epoch=3-loss=0.25.ckpt`, all numbers from that of the step on
//! are replaced. Others stay, so that `mp_rank_00` of each step is with its likes, and models of two sizes are apart.
//! The result follows from the path alone: a step that comes later changes nothing for those that are there.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a step is called. A number comes behind it.
const STEP_TERMS: [&[u8]; 6] = [b"step", b"checkpoint", b"ckpt", b"iter", b"iteration", b"epoch"];
/// The one of these that also ends other words, as in `writer2`, so no letter may be before it.
const WHOLE_TERM: &[u8] = b"iter";
/// What stands for a number.
const NUMBER: u8 = b'#';

/// A path, or a name, without the numbers of its steps.
pub(super) fn of_all_steps(path: &Path) -> Cow<'_, Path> {
    let names = || path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    if names().all(|name| first_number(name).is_none()) {
        return Cow::Borrowed(path);
    }
    let names: Vec<Cow<'_, [u8]>> = names().map(name_of_all_steps).collect();
    Cow::Owned(PathBuf::from(OsString::from_vec(names.join(&b'/'))))
}

/// Like [`of_all_steps`], for the name of a file.
pub(super) fn file_name_of_all_steps(path: &Path) -> String {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(&name_of_all_steps(name)).into_owned()
}

fn name_of_all_steps(name: &[u8]) -> Cow<'_, [u8]> {
    let Some((before, numbers)) = first_number(name).and_then(|at| name.split_at_checked(at)) else {
        return Cow::Borrowed(name);
    };
    let mut plain = before.to_vec();
    let mut is_number = false;
    for byte in numbers {
        match byte.is_ascii_digit() {
            true if is_number => {}
            true => plain.push(NUMBER),
            false => plain.push(*byte),
        }
        is_number = byte.is_ascii_digit();
    }
    Cow::Owned(plain)
}

/// Where the number of a step begins in a name. Between its word and the number is neither a letter nor a digit.
fn first_number(name: &[u8]) -> Option<usize> {
    // The last letter, and whether it ends a word for a step: each byte is looked at once.
    let mut says_step = false;
    for (at, byte) in name.iter().enumerate() {
        match byte {
            b'0'..=b'9' if says_step => return Some(at),
            b'0'..=b'9' => {}
            byte if byte.is_ascii_punctuation() || *byte == b' ' => {}
            _ => says_step = name.get(..=at).is_some_and(ends_with_step),
        }
    }
    None
}

/// Whether a word for a step is at the end, in any case, perhaps of more than one.
fn ends_with_step(text: &[u8]) -> bool {
    let ends = |text: &[u8], step: &[u8]| {
        let Some((before, end)) = text.len().checked_sub(step.len()).and_then(|at| text.split_at_checked(at)) else {
            return false;
        };
        end.eq_ignore_ascii_case(step) && (step != WHOLE_TERM || !before.last().is_some_and(u8::is_ascii_alphabetic))
    };
    let singular = text.strip_suffix(b"s").or_else(|| text.strip_suffix(b"S"));
    STEP_TERMS.iter().any(|step| ends(text, step) || singular.is_some_and(|text| ends(text, step)))
}
