//! Files that contradict themselves, are truncated, or are not models.

use std::cell::Cell;
use std::io;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::coreml_tests::coreml_sample;
use super::flax_tests::flax_sample;
use super::hdf5_tests::{NEW_HDF5, OLD_HDF5};
use super::legacy_torch_tests::legacy_torch_sample;
use super::onnx_tests::onnx_sample;
use super::samples_tests::*;
use super::tflite_tests::TFLITE;
use super::*;
use crate::read_at::ReadAt;

/// Why the bytes are defective.
pub(super) fn reason(bytes: &[u8]) -> String {
    match found(bytes) {
        Recognition::Defective { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// A long file of zeros that starts with `head` and counts the bytes read.
struct LongFile {
    head: Vec<u8>,
    read: Cell<u64>,
}

impl ReadAt for LongFile {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        self.read.set(self.read.get() + space.len() as u64);
        space.fill(0);
        self.head.read_at(offset, space)?;
        Ok(space.len())
    }
}

pub(super) fn reason_of_long(head: Vec<u8>, len: u64, read_max: u64) -> String {
    let long = LongFile { head, read: Cell::new(0) };
    let recognition = recognise(&long, len).unwrap();
    assert!(long.read.get() <= read_max, "{} bytes read", long.read.get());
    match recognition {
        Recognition::Defective { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn false_safetensors_headers_are_defective() {
    let sample = safetensors_sample();
    let with_len = |len: u64| [&len.to_le_bytes()[..], &sample[8..]].concat();
    assert!(reason(&with_len(1000)).contains("found one of 1000"));
    assert!(reason_of_long(with_len(100 << 20), 1 << 40, 1 << 10).contains("found 104857600"));
    assert_eq!(found(&with_len(u64::MAX)), Recognition::Opaque);
    let of = |header: &str| reason(&safetensors_of(header, &[0; 32]));
    let one = |shape: &str, range: &str| format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":{range}}}}}"#);
    assert!(of(&one("[2]", "[0,9]")).contains("found 9"));
    assert!(of(&one("[2]", "[8,0]")).contains("8 to 0"));
    assert!(of(&one("[10]", "[0,40]")).contains("within"));
    assert!(of(&one("[4294967296,4294967296,4]", "[0,8]")).contains("found 8"));
    assert!(of(&one("[2]", "[18446744073709551607,18446744073709551615]")).contains("range"));
    assert!(of(&one("[-1]", "[0,4]")).contains("expected"));
    assert!(
        of(&one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]")).contains("length 33")
    );
    assert!(of(r#"{"w":7}"#).contains("found"));
    assert!(of(r#"{"w""#).contains("found"));
    let two = |first: &str, second: &str| {
        format!(
            r#"{{"{first}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},
            "{second}":{{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}}}"#
        )
    };
    assert!(of(&two("a", "b")).contains("after"));
    assert!(of(&two("a", "a")).contains("found two"));
}

#[test]
fn false_gguf_headers_are_defective() {
    let of = |tensors: &[(&str, &[u64], u32, &[u8])]| reason(&gguf_of(3, 32, tensors));
    assert!(of(&[("a", &[9], 0, &[0; 32])]).contains("within"));
    assert!(of(&[("a", &[33], 8, &[0; 68])]).contains("whole blocks of Q8_0"));
    assert!(of(&[("a", &[u64::MAX, 2], 0, &[0; 4])]).contains("whole blocks"));
    assert!(of(&[("a", &[1 << 62], 0, &[0; 4])]).contains("whole blocks"));
    assert!(of(&[("a", &[16], 0, &[0; 32]), ("b", &[8], 0, &[0; 32])]).contains("after"));
    assert!(of(&[("a", &[1], 0, &[0; 4]), ("a", &[1], 0, &[0; 4])]).contains("found two"));
    assert!(of(&[("a", &[1; 33], 0, &[0; 4])]).contains("33"));
    assert!(reason(&gguf_of(3, 24, &[("a", &[1], 0, &[0; 4])])).contains("found 24"));
    let mut bytes = gguf_sample();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(reason(&bytes).contains("at most 1000000 tensors"));
    let mut bytes = gguf_sample();
    bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(reason(&bytes).contains("expected"));
    let huge = [b"GGUF\x03\0\0\0", &[1u64, u64::MAX].map(u64::to_le_bytes).concat()[..]].concat();
    assert!(reason_of_long(huge, 1 << 40, 1 << 20).contains("at most 65536 values"));
    let list = [8u32.to_le_bytes().to_vec(), (1u64 << 50).to_le_bytes().to_vec()].concat();
    let long_list =
        [&b"GGUF\x03\0\0\0"[..], &[1u64, 1, 0].map(u64::to_le_bytes).concat(), &[9, 0, 0, 0], &list].concat();
    assert!(reason_of_long(long_list, 1 << 40, 1 << 20).contains("expected a list within"));
    let long_key = [&b"GGUF\x03\0\0\0"[..], &[1u64, 1, 1 << 30].map(u64::to_le_bytes).concat()].concat();
    assert!(reason_of_long(long_key, 1 << 40, 1 << 20).contains("a key of at most 65535"));
    let mut shifted = gguf_of(3, 32, &[("a", &[1], 0, &[0; 4])]);
    let at = shifted.len() - 4 - 32;
    let field = shifted[..at + 32].windows(8).rposition(|window| window == [0; 8]).unwrap();
    shifted[field] = 4;
    assert!(reason(&shifted).contains("multiple of 32"));
}

#[test]
fn false_arrays_and_archives_are_defective() {
    assert!(reason(&npy_of("'<f4'", false, "(7,)", &[0; 27])).contains("found 27"));
    assert!(reason(&npy_of("'<f4'", false, "(4294967296, 4294967296)", &[0; 27])).contains("found 27"));
    assert!(reason(&npy_of("'<f4'", false, "(x,)", b"")).contains("shape"));
    let short = npy_of("'<f4'", false, "(7,)", &[0; 27]);
    assert!(reason(&zip_of(&[("a.npy", &short, 0)], false)).contains("member \"a.npy\""));
    let good = npy_of("'|u1'", false, "(3,)", &[0; 3]);
    assert!(reason(&zip_of(&[("a.npy", &good, 0), ("a.npy", &good, 0)], true)).contains("found two"));
    let archive = zip_of(&[("a.npy", &good, 0)], false);
    assert!(reason(&archive[..archive.len() - 1]).contains("directory"));
    let mut moved = archive.clone();
    moved[0] = b'Q';
    assert_eq!(found(&moved), Recognition::Opaque);
    let mut renamed = archive.clone();
    renamed[30] = b'b';
    assert!(reason(&renamed).contains("header of member"));
    let text = zip_of(&[("a.txt", b"text", 0)], false);
    assert_eq!(found(&text[..text.len() - 5]), Recognition::Opaque);
    let short_storage = zip_of(&[("m/data.pkl", &torch_pickle(), 0), ("m/data/0", &[0; 11], 0)], false);
    assert!(reason(&short_storage).contains("expected 6 values of 2 bytes in storage 0, found 11"));
}

#[test]
fn false_chains_of_archives_are_defective() {
    let (chain, single) = (distcp_sample(), torch_sample());
    // A single byte is missing before the last archive: all offsets in it are the same, the one before it is not found.
    let last = chain.windows(4).rposition(|bytes| bytes == b"PK\x03\x04").unwrap();
    let last = chain[..last].windows(22).rposition(|bytes| bytes.starts_with(b"PK\x05\x06")).unwrap() + 22;
    let cut = [&chain[..last - 1], &chain[last..]].concat();
    assert!(!matches!(found(&cut), Recognition::Model(_)));
    // Bytes before an archive that are none.
    let three = [&b"PK\x03\x04 and more"[..], &chain].concat();
    assert!(reason(&three).contains("the end of an archive at byte 13"), "{}", reason(&three));
    // An archive without tensors in the middle is no reason, one that is not torch's is.
    let foreign = zip_of(&[("a.txt", b"x", 0)], true);
    let foreign = [&foreign[..foreign.len() - 5], &[0, 0]].concat();
    assert!(reason(&[&chain[..], &foreign].concat()).contains("archive 3 at byte"));
    // A defect within one archive names it.
    let mut renamed = chain.clone();
    renamed[last + 30] = b'b';
    assert!(reason(&renamed).starts_with("archive 2 at byte"), "{}", reason(&renamed));
    // An archive with a comment ends the chain.
    assert!(!matches!(found(&[&chain[..], &single].concat()), Recognition::Model(_)));
}

#[test]
fn a_long_chain_of_empty_archives_is_bounded() {
    let empty = [&b"PK\x05\x06"[..], &[0; 18]].concat();
    let chain = [b"PK\x03\x04".to_vec(), empty.repeat(1_000_001)].concat();
    assert!(reason(&chain).contains("at most 1000000 archives"));
}

#[test]
fn an_archive_over_four_gibibytes_is_read_by_its_zip64_fields() {
    struct Sparse(Vec<u8>, u64, Vec<u8>);
    impl ReadAt for Sparse {
        fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
            space.fill(0);
            match offset.checked_sub(self.1) {
                Some(offset) => self.2.read_at(offset, space),
                None => {
                    let until = usize::try_from(self.1 - offset).unwrap_or(usize::MAX).min(space.len());
                    self.0.read_at(offset, &mut space[..until])?;
                    Ok(until)
                }
            }
        }
    }
    let len = 5u64 << 30;
    let head = npy_of("'|u1'", false, &format!("({len},)"), b"");
    let small = zip_of(&[("a.npy", &head, 0)], true);
    let data = small.windows(6).position(|window| window == b"\x93NUMPY").unwrap() + head.len();
    let mut tail = small[data..].to_vec();
    let widen = |tail: &mut [u8], from: u64, to: u64| {
        let at = tail.windows(8).position(|window| window == from.to_le_bytes()).unwrap();
        tail[at..at + 8].copy_from_slice(&to.to_le_bytes());
    };
    widen(&mut tail, head.len() as u64, head.len() as u64 + len);
    widen(&mut tail, head.len() as u64, head.len() as u64 + len);
    widen(&mut tail, data as u64, data as u64 + len);
    let directory = tail.windows(4).position(|window| window == b"PK\x06\x06").unwrap() as u64;
    widen(&mut tail, data as u64 + directory, data as u64 + directory + len);
    let all = data as u64 + len + tail.len() as u64;
    let source = Sparse(small[..data].to_vec(), data as u64 + len, tail);
    let Recognition::Model(model) = recognise(&source, all).unwrap() else { panic!("no model") };
    assert_eq!((model.format, model.tensors[0].offset, model.tensors[0].len), ("npz", data as u64, len));
}

#[test]
fn errors_of_the_source_are_returned() {
    struct Broken;
    impl ReadAt for Broken {
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }
    assert!(recognise(&Broken, 100).is_err());
}

#[test]
fn content_that_is_not_a_model_is_opaque() {
    for bytes in [&b""[..], b"PK", b"GGUF", b"{\"a\": {\"b\"", b"GGUF\x09\0\0\0\0\0\0\0", &[0; 4096]] {
        assert_eq!(found(bytes), Recognition::Opaque, "{bytes:?}");
    }
}

static SAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let array = npy_of("'<f4'", false, "(2, 3)", &[1; 24]);
    let npz = zip_of(&[("one.npy", &array, 0), ("two.npy", &array, 0)], true);
    vec![
        safetensors_sample(),
        gguf_sample(),
        array,
        npz,
        torch_sample(),
        tar_sample(),
        distcp_sample(),
        onnx_sample(),
        legacy_torch_sample(),
        OLD_HDF5.to_vec(),
        NEW_HDF5.to_vec(),
        TFLITE.to_vec(),
        flax_sample(),
        coreml_sample(),
    ]
});

fn check_promises(bytes: &[u8]) {
    if let Recognition::Model(model) = found(bytes) {
        promises(&model, bytes.len() as u64);
        assert!(may_be_model(&bytes[..bytes.len().min(HEAD_BYTES)]));
    }
}

#[test]
fn no_truncation_of_a_small_file_breaks_a_promise() {
    for sample in SAMPLES.iter().filter(|sample| sample.len() < 5000) {
        (0..sample.len()).for_each(|len| check_promises(&sample[..len]));
        // A source that ends before the given length.
        for len in (0..sample.len()).step_by(7) {
            if let Recognition::Model(model) = recognise(&&sample[..len], sample.len() as u64).unwrap() {
                promises(&model, sample.len() as u64);
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_break_no_promise(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0usize..12) {
        let heads: [&[u8]; 12] = [
            b"",
            b"GGUF\x03\0\0\0",
            b"\x93NUMPY\x01\0\x40\0{",
            b"PK\x03\x04",
            b"\x20\0\0\0\0\0\0\0{\"a",
            b"GGUF\x01\0\0\0",
            b"\x08\x08\x42\0\x3a",
            b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
            b"\x89HDF\r\n\x1a\n",
            b"\x10\0\0\0TFL3",
            b"\x81\xa1w",
            b"\x02\0\0\0\x02\0\0\0",
        ];
        check_promises(&[heads[kind], &bytes].concat());
        let _ = super::pickle::PickleTree::read(&bytes);
        let _ = (card::base_models(&bytes), card::config_base_model(&bytes));
    }

    #[test]
    fn changed_files_break_no_promise(
        which in 0..SAMPLES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        is_cut in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = SAMPLES[which].clone();
        for (at, value) in changes {
            // Most bytes with a meaning are at the two ends.
            let at = at.index(bytes.len());
            let near = if at % 3 == 0 { at % 700 } else { at };
            let near = near.min(bytes.len() - 1);
            bytes[near] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check_promises(&bytes);
    }

    #[test]
    fn changed_pickles_break_no_promise(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut pickle = torch_pickle();
        for (at, value) in changes {
            let at = at.index(pickle.len());
            pickle[at] = value;
        }
        check_promises(&zip_of(&[("m/data.pkl", &pickle, 0), ("m/data/0", &[0; 12], 0)], false));
    }
}
