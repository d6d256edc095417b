//! A TensorFlow Lite file that `flatbuffers` wrote (`tests/fixtures/formats/make.py`), and false ones.

use super::hostile_tests::{reason, reason_of_long};
use super::samples_tests::{found, listed, model, promises, rows_of};
use super::*;

pub(super) const TFLITE: &[u8] = include_bytes!("../../tests/fixtures/formats/small.tflite");

#[test]
fn tensors_of_tflite_have_the_values_of_their_buffers() {
    let model = model(TFLITE);
    let mut rows = rows_of(&model, TFLITE);
    rows.sort();
    assert_eq!((model.format, rows.len()), ("tflite", 3));
    assert_eq!(rows[0], ("behind".into(), "I8", vec![2], b"ab".to_vec()));
    let values = [0f32, 1.0, 2.0, 3.0, 4.0, 5.0].map(f32::to_le_bytes).concat();
    assert_eq!(rows[1], ("dense/kernel".into(), "F32", vec![2, 3], values));
    assert_eq!(rows[2], ("sparse".into(), "other", vec![9, 9], vec![0, 1, 2, 3]));
    let names: Vec<String> = listed(TFLITE).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["dense/kernel", "sparse", "behind"]);
}

/// A copy in which the text at its only place is other bytes.
fn with(found: &[u8], put: &[u8]) -> Vec<u8> {
    let at = TFLITE.windows(found.len()).position(|bytes| bytes == found).unwrap();
    [&TFLITE[..at], put, &TFLITE[at + put.len()..]].concat()
}

#[test]
fn false_tflite_files_are_defective() {
    assert!(reason(&TFLITE[..TFLITE.len() - 1]).contains("expected buffer 3 within"));
    assert!(reason(&TFLITE[..TFLITE.len() - 40]).contains("found"));
    // The shape of `dense/kernel`.
    let shape = [2u32, 2, 3].map(u32::to_le_bytes).concat();
    assert!(reason(&with(&shape, &[2, 0, 0, 0, 3])).contains("expected the bytes of F32 [3, 3]"));
    assert!(reason(&with(&shape, &[33])).contains("at most 32 dimensions"));
    let name = [&12u32.to_le_bytes()[..], b"dense/kernel"].concat();
    assert!(reason(&with(&name, &[0xff, 0xff])).contains("a name of at most 1024"));
    assert!(reason_of_long(b"\xff\xff\xff\xffTFL3".to_vec(), 1 << 20, 1 << 20).contains("found the end"));
}

#[test]
fn changed_tflite_files_break_no_promise() {
    for at in 8..TFLITE.len() {
        for value in [0, 1, 4, 0x7f, 0xff] {
            let changed = [&TFLITE[..at], &[value], &TFLITE[at + 1..]].concat();
            if let Recognition::Model(model) = found(&changed) {
                promises(&model, changed.len() as u64);
            }
        }
    }
}
