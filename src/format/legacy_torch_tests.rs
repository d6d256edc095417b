//! Small files of `torch.save` from before the zip format, and false ones.

use super::hostile_tests::{reason, reason_of_long};
use super::samples_tests::{found, listed, model, rows_of, torch_pickle};
use super::*;

const HEAD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
const MACHINE: &[u8] = b"\x80\x02}q\x00(X\x0d\0\0\0little_endian\x88u.";

/// A list of keys.
fn keys(keys: &[&str]) -> Vec<u8> {
    let texts = keys.iter().flat_map(|key| [b"X", &(key.len() as u32).to_le_bytes()[..], key.as_bytes()].concat());
    [&b"\x80\x02]("[..], &texts.collect::<Vec<u8>>(), b"e."].concat()
}

/// A storage: the number of its values, and its bytes.
fn storage(count: u64, bytes: &[u8]) -> Vec<u8> {
    [&count.to_le_bytes()[..], bytes].concat()
}

fn file(keys: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    [HEAD, MACHINE, &torch_pickle(), keys, &storages.concat()].concat()
}

pub(super) fn legacy_torch_sample() -> Vec<u8> {
    file(&keys(&["1", "0"]), &[storage(4, &[8; 32]), storage(6, &[9; 12])])
}

#[test]
fn storages_of_legacy_torch_follow_the_pickles() {
    let bytes = legacy_torch_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("torch-legacy", 2));
    assert_eq!(rows[0], ("model.part".into(), "I64", vec![4], vec![8; 32]));
    assert_eq!(rows[1], ("model.w".into(), "BF16", vec![3, 2], vec![9; 12]));
    let listed = listed(&bytes);
    let names: Vec<(&str, &str)> = listed.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
    assert_eq!(names, [("model.w", "BF16"), ("model.tied", "BF16"), ("model.part", "I64")]);
}

#[test]
fn false_legacy_torch_files_are_defective() {
    let good = legacy_torch_sample();
    assert!(reason(&good[..good.len() - 1]).contains("expected 12 bytes"));
    let one = |key: &str, count: u64| file(&keys(&[key]), &[storage(count, &[0; 12])]);
    assert!(reason(&one("0", 5)).contains("expected 6 values of 2 bytes in storage 0, found 10 bytes"));
    assert!(reason(&one("7", 6)).contains("expected a storage 7 of a known class"));
    assert!(reason(&one("0", u64::MAX)).contains("expected 18446744073709551615 bytes"));
    assert!(reason(&file(b"\x80\x02K\x07.", &[])).contains("expected a list of the storages' keys"));
    assert!(reason(&file(b"\x80\x02]K\x07a.", &[])).contains("expected the key of storage 0"));
    // The numbers of the storages are read, and not their values.
    let far = file(&keys(&["0"]), &[storage(1 << 38, b"")]);
    assert!(reason_of_long(far, 1 << 40, 17 << 20).contains("expected 6 values of 2 bytes in storage 0"));
}

#[test]
fn pickles_that_are_not_read_are_opaque() {
    for pickles in [&b""[..], b"\x80\x02", b"cos\nsystem\n(S'x'\ntR."] {
        assert_eq!(found(&[HEAD, MACHINE, pickles].concat()), Recognition::Opaque);
    }
    let mut other_version = legacy_torch_sample();
    other_version[HEAD.len() - 3] = 0xea;
    assert_eq!(found(&other_version), Recognition::Opaque);
    assert_eq!(found(&file(&keys(&[]), &[])), Recognition::Opaque);
}
