//! Recognises any bytes as a model file of each format, and lists their arrays. Tensors are sorted, disjoint, within
//! the file, not empty and of unique names, and listed arrays end within the file.

#![no_main]

use std::collections::HashSet;

use fhrd::format::{ArrayListing, HEAD_BYTES, ListedArray, Recognition, list_arrays, may_be_model, recognise};
use libfuzzer_sys::fuzz_target;

/// The first bytes of files of the formats.
const HEADS: [&[u8]; 14] = [
    b"",
    b"\x20\0\0\0\0\0\0\0{\"a",
    b"GGUF\x03\0\0\0",
    b"\x93NUMPY\x01\0\x40\0{",
    b"PK\x03\x04",
    b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0",
    b"\x89HDF\r\n\x1a\n\x02\x08\x08\0",
    b"\x10\0\0\0TFL3",
    b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.",
    COREML,
    b"\x08\x08\x42\0\x3a\x80\x01\x2a\x40",
    b"\x08\x08\x42\0\x3a",
    b"\x81\xa1w\xc7\x20\x01\x93",
    b"\x81\xa1w",
];

/// A weight file of Core ML: two blobs, version 2, and the start of the first blob's metadata.
const COREML: &[u8] = &{
    let mut head = [0; 68];
    (head[0], head[4]) = (2, 2);
    (head[64], head[65], head[66], head[67]) = (0xef, 0xbe, 0xad, 0xde);
    head
};

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, rest) = input;
    let bytes = [HEADS[usize::from(kind) % HEADS.len()], rest].concat();
    let len = bytes.len() as u64;
    if let Recognition::Model(model) = recognise(&bytes, len).expect("bytes in memory can be read") {
        assert!(may_be_model(&bytes[..bytes.len().min(HEAD_BYTES)]));
        let (mut end, mut names) = (0, HashSet::new());
        for tensor in &model.tensors {
            assert!(tensor.len > 0 && tensor.offset >= end && names.insert(&tensor.name), "{tensor:?}");
            end = tensor.offset + tensor.len;
        }
        assert!(end <= len);
    }
    let mut end = 0;
    let listing = list_arrays(&bytes, len, &mut |array| {
        if let ListedArray::Array(array) = array
            && array.strides.is_none()
        {
            end = end.max(array.offset + array.len);
        }
    });
    let listing = listing.expect("bytes in memory can be read");
    assert!(end <= len || !matches!(listing, ArrayListing::Arrays { .. }));
});
