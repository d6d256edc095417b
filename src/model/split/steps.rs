//! The steps of training runs: paths that differ in the numbers of their steps only.
//!
//! In a name such as `checkpoint-500`, `iter_0000500` or `epoch=3-loss=0.25.ckpt`, all numbers from that of the step on
//! are replaced. Others stay, so that `mp_rank_00` of each step is with its likes, and models of two sizes are apart.
//! So do the numbers of parts, as in `step_500-rank_3.pt` and `checkpoint-00001-of-00030.bin`. What is measured has its
//! number before that of the step, as in `loss=0.25-step=1000`: so those with a decimal point behind `=` are replaced,
//! too. A number is a whole name in a directory that is called by what it has, as in `checkpoints/1000`. The result
//! follows from the path alone: a step that comes later changes no path of those that are there.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a step is called. A number comes behind it.
const STEP_TERMS: [&[u8]; 7] = [b"step", b"checkpoint", b"ckpt", b"iter", b"iteration", b"epoch", b"ba"];
/// Terms that also end other words, as in `writer2` and `mamba2`: no letter may be before them.
const WHOLE_TERMS: [&[u8]; 8] = [b"iter", b"ba", b"mp", b"tp", b"pp", b"dp", b"ep", b"cp"];
/// What DeepSpeed puts before the name of its steps.
const GLOBAL: &[u8] = b"global_";
/// What stands for a number.
const NUMBER: u8 = b'#';

/// What comes between the number of a part and that of all parts, and the digits that both have at least where no step
/// is before them.
const OF: &[u8] = b"-of-";
const PART_DIGITS: usize = 5;
/// Bytes before a number that are looked at.
const TERM_MAX: usize = 32;
/// What the number of a part of one step comes behind: also the dimensions of parallel training.
const PART_TERMS: [&[u8]; 9] = [b"rank", b"shard", b"part", b"mp", b"tp", b"pp", b"dp", b"ep", b"cp"];

/// A path without the numbers of its steps.
pub(super) fn of_all_steps(path: &Path) -> Cow<'_, Path> {
    let names = || path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let above = || std::iter::once(&b""[..]).chain(names());
    if above().zip(names()).all(|(above, name)| !is_step_of(above, name) && first_number(name).is_none()) {
        return Cow::Borrowed(path);
    }
    let plain = |(above, name)| if is_step_of(above, name) { vec![NUMBER] } else { without_numbers(name) };
    let names: Vec<Vec<u8>> = above().zip(names()).map(plain).collect();
    Cow::Owned(PathBuf::from(OsString::from_vec(names.join(&b'/'))))
}

/// Whether a path without numbers is that of steps, whose name says nothing else: `checkpoint-#`, not `tune-step-#`.
pub(super) fn is_of_steps(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let Some(rest) = name.strip_suffix(&[NUMBER]) else { return false };
    let len = rest.iter().rposition(|byte| !is_between(*byte)).map_or(0, |last| last + 1);
    let term = rest.get(..len).unwrap_or_default();
    term.is_empty() || is_term(term.strip_prefix(GLOBAL).unwrap_or(term))
}

/// Whether a name is what steps are called, perhaps of more than one.
fn is_term(name: &[u8]) -> bool {
    let is_one = |name: &[u8]| STEP_TERMS.iter().any(|term| name.eq_ignore_ascii_case(term));
    is_one(name) || is_one(name.strip_suffix(b"s").unwrap_or(name))
}

/// Whether a name is the number of a step in the directory `above`.
fn is_step_of(above: &[u8], name: &[u8]) -> bool {
    let is_number = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    is_number && above.last().is_some_and(u8::is_ascii_alphabetic) && ends_with(above, &STEP_TERMS)
}

/// Whether a name says nothing of which run it is: a step, what steps are called, a number, or a relative path.
pub(super) fn is_general(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.contains(&NUMBER)
        || bytes.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'~'))
        || is_term(bytes)
}

/// A name without the number of its step.
pub(super) fn name_of_all_steps(name: &str) -> Cow<'_, str> {
    match first_number(name.as_bytes()) {
        Some(_) => Cow::Owned(String::from_utf8_lossy(&without_numbers(name.as_bytes())).into_owned()),
        None => Cow::Borrowed(name),
    }
}

fn without_numbers(name: &[u8]) -> Vec<u8> {
    let (before, _) = name.split_at(first_number(name).unwrap_or(name.len()));
    let is_step = before.len() < name.len();
    let (before, mut rest) = name.split_at(first_measure(before).filter(|_| is_step).unwrap_or(before.len()));
    let mut plain = before.to_vec();
    while let Some(first) = rest.first() {
        let is_digit = first.is_ascii_digit();
        let len = rest.iter().position(|byte| byte.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (run, after) = rest.split_at(len);
        let is_sure = len >= PART_DIGITS || plain.contains(&NUMBER);
        let is_behind = || plain.strip_suffix(OF).is_some_and(|part| part.last().is_some_and(u8::is_ascii_digit));
        let is_of_parts = is_sure && (after.starts_with(OF) || is_behind());
        let is_part = || is_of_parts || ends_with(&plain, &PART_TERMS);
        if is_digit && !is_part() {
            plain.push(NUMBER);
        } else {
            plain.extend_from_slice(run);
        }
        rest = after;
    }
    plain
}

/// Where the first number with a decimal point behind `=` begins.
fn first_measure(name: &[u8]) -> Option<usize> {
    let is_measure = |text: &[u8]| {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && text.get(digits) == Some(&b'.') && text.get(digits + 1).is_some_and(u8::is_ascii_digit)
    };
    let behind = name.iter().enumerate().filter(|(_, byte)| **byte == b'=').map(|(at, _)| at + 1);
    behind.into_iter().find(|at| name.get(*at..).is_some_and(is_measure))
}

/// Where the number of a step begins in a name. Between what a step is called and the number is neither a letter nor a
/// digit.
fn first_number(name: &[u8]) -> Option<usize> {
    // The last letter, and whether it ends what a step is called: each byte is looked at once.
    let mut says_step = false;
    for (at, byte) in name.iter().enumerate() {
        match byte {
            b'0'..=b'9' if says_step => return Some(at),
            b'0'..=b'9' => {}
            byte if is_between(*byte) => {}
            _ => says_step = name.get(..=at).is_some_and(|name| ends_with(name, &STEP_TERMS)),
        }
    }
    None
}

fn is_between(byte: u8) -> bool {
    byte.is_ascii_punctuation() || byte == b' '
}

/// Whether one of these terms is at the end but for punctuation, in any case, perhaps of more than one.
fn ends_with(text: &[u8], terms: &[&[u8]]) -> bool {
    let text = text.get(text.len().saturating_sub(TERM_MAX)..).unwrap_or_default();
    let len = text.iter().rposition(|byte| !is_between(*byte)).map_or(0, |last| last + 1);
    let text = text.get(..len).unwrap_or_default();
    let ends = |text: &[u8], term: &[u8]| {
        let Some((before, end)) = text.len().checked_sub(term.len()).and_then(|at| text.split_at_checked(at)) else {
            return false;
        };
        end.eq_ignore_ascii_case(term)
            && (!WHOLE_TERMS.contains(&term) || !before.last().is_some_and(u8::is_ascii_alphabetic))
    };
    let singular = text.strip_suffix(b"s").or_else(|| text.strip_suffix(b"S"));
    terms.iter().any(|term| ends(text, term) || singular.is_some_and(|text| ends(text, term)))
}
