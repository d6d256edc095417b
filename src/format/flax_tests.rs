//! Small msgpack files of Flax, and others.

use super::samples_tests::{found, listed, model, rows_of};
use super::*;

fn text(text: &str) -> Vec<u8> {
    [&[0xa0 | text.len() as u8][..], text.as_bytes()].concat()
}

/// An array: sizes, name of the type, values.
fn array(shape: &[u8], kind: &str, values: &[u8]) -> Vec<u8> {
    let sizes = [&[0x90 | shape.len() as u8][..], shape].concat();
    let content = [&[0x93][..], &sizes, &text(kind), &[0xc4, values.len() as u8], values].concat();
    [&[0xc7, content.len() as u8, 1][..], &content].concat()
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let content = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
    std::iter::once(0x80 | entries.len() as u8).chain(content).collect()
}

pub(super) fn flax_sample() -> Vec<u8> {
    let layer = map(&[("kernel", array(&[2, 3], "float32", &[1; 24])), ("bias", array(&[3], "bfloat16", &[2; 6]))]);
    let list = [&[0x92][..], &array(&[], "uint8", &[3]), &array(&[1], "complex64", &[4; 8])].concat();
    let odd = array(&[1], "object", &[5; 8]);
    let scalar = [&[0xd6, 3][..], &[0; 4]].concat();
    let number = [&[0xcb][..], &[0; 8]].concat();
    let entries = [("params", layer), ("list", list), ("odd", odd), ("scalar", scalar), ("number", number)];
    map(&[entries.as_slice(), &[("none", vec![0xc0]), ("negative", vec![0xe0]), ("words", text("words"))]].concat())
}

#[test]
fn flax_arrays_are_called_by_their_keys() {
    let bytes = flax_sample();
    let model = model(&bytes);
    let rows = rows_of(&model, &bytes);
    assert_eq!((model.format, rows.len()), ("flax", 4));
    assert_eq!(rows[0], ("params.kernel".into(), "F32", vec![2, 3], vec![1; 24]));
    assert_eq!(rows[1], ("params.bias".into(), "BF16", vec![3], vec![2; 6]));
    assert_eq!(rows[2], ("list.0".into(), "I8", vec![], vec![3]));
    assert_eq!(rows[3], ("list.1".into(), "F32", vec![1, 2], vec![4; 8]));
    let listed = listed(&bytes);
    assert_eq!(listed[2], ("list.0".into(), "U8".into()));
    assert_eq!(listed[4], ("odd".into(), "the type object is unknown".into()));
}

#[test]
fn msgpack_that_is_not_of_flax_is_opaque() {
    let good = flax_sample();
    for bytes in [
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        map(&[("a", vec![7])]),
        // Values of another length, another type of extension, an unused first byte.
        map(&[("a", array(&[2], "float32", &[0; 4]))]),
        map(&[("a", vec![0xd4, 2, 0])]),
        // An extension that is shorter than its array.
        map(&[("a", [&[0xc7, 18, 1][..], &array(&[2], "float32", &[0; 8])[3..]].concat()), ("bcdefg", vec![0])]),
        map(&[("a", vec![0xc1])]),
        map(&[("a", vec![0xd4, 1, 0])]),
    ] {
        assert_eq!(found(&bytes), Recognition::Opaque, "{bytes:?}");
    }
}

#[test]
fn nesting_and_counts_of_msgpack_are_bounded() {
    let nested = |depth: usize| map(&[("a", [vec![0x91; depth], array(&[1], "int8", &[1])].concat())]);
    assert_eq!(model(&nested(62)).tensors.len(), 1);
    assert_eq!(found(&nested(63)), Recognition::Opaque);
    // A map of 2³² entries ends with the file.
    let long = [&[0xdf, 0xff, 0xff, 0xff, 0xff][..], &[0xa0; 100]].concat();
    assert_eq!(found(&long), Recognition::Opaque);
    let many = [&[0x81, 0xa1, b'a', 0xdd, 0, 0x50, 0, 0][..], &vec![0; 0x50_0000]].concat();
    assert_eq!(found(&many), Recognition::Opaque);
}
