//! Small weight files of Core ML, and false ones.

use super::hostile_tests::{reason, reason_of_long};
use super::samples_tests::{listed, model, rows_of};

fn header(count: u32) -> Vec<u8> {
    [&count.to_le_bytes()[..], &2u32.to_le_bytes(), &[0; 56]].concat()
}

/// Metadata at byte `at` of values that follow.
fn metadata(kind: u32, len: u64, at: u64) -> Vec<u8> {
    let offsets = [len, at + 64, 0, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
    [&0xdead_beef_u32.to_le_bytes()[..], &kind.to_le_bytes(), &offsets].concat()[..64].to_vec()
}

fn file(blobs: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = header(blobs.len() as u32);
    for (kind, bytes) in blobs {
        out.resize(out.len().next_multiple_of(64), 0);
        out.extend([metadata(*kind, bytes.len() as u64, out.len() as u64), bytes.clone()].concat());
    }
    out
}

pub(super) fn coreml_sample() -> Vec<u8> {
    file(&[(1, vec![1; 66]), (2, vec![2; 8]), (8, vec![3; 5]), (3, vec![4; 3]), (5, vec![])])
}

#[test]
fn blobs_of_core_ml_are_called_by_their_places() {
    let bytes = coreml_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("coreml", 4));
    assert_eq!(rows[0], ("64".into(), "F16", vec![33], vec![1; 66]));
    assert_eq!(rows[1], ("256".into(), "F32", vec![2], vec![2; 8]));
    assert_eq!(rows[2], ("384".into(), "other", vec![5], vec![3; 5]));
    assert_eq!(rows[3], ("512".into(), "I8", vec![3], vec![4; 3]));
    let listed: Vec<String> = listed(&bytes).into_iter().map(|row| row.1).collect();
    assert_eq!(listed, ["F16", "F32", "other", "U8", "BF16"]);
}

#[test]
fn false_weight_files_of_core_ml_are_defective() {
    let good = coreml_sample();
    let with = |at: usize, byte: u8| [&good[..at], &[byte], &good[at + 1..]].concat();
    assert!(reason(&with(0, 6)).contains("expected"));
    assert!(reason(&with(257, 0)).contains("expected the metadata of a blob at byte 256"));
    assert!(reason(&with(80, 64)).contains("found 0xdeadbeef and values at byte 64"));
    assert!(reason(&with(80, 129)).contains("values at byte 129"));
    assert!(reason(&with(79, 0xff)).contains("found the end"));
    assert!(reason(&file(&[(2, vec![0; 7])])).contains("expected the bytes of F32 [1]"));
    let many = [header(u32::MAX), metadata(1, 0, 64)].concat();
    assert!(reason_of_long(many, 1 << 40, 1 << 20).contains("at most 262144 blobs"));
}
