//! Tests of reading traces: both formats in all versions, truncated traces, and garbage.

use std::io::Cursor;
use std::path::Path;

use fhrd::error::{Error, Result};
use proptest::prelude::*;

use super::item::{TraceChunk, TraceItem, recognise};

fn read(bytes: &[u8]) -> Result<Vec<TraceItem>> {
    recognise(Path::new("x.trace"), Cursor::new(bytes.to_vec()))?.collect()
}

fn refusal(bytes: &[u8]) -> String {
    let error = read(bytes).expect_err("must fail");
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
    error.to_string()
}

fn start(name: &[u8]) -> TraceItem {
    TraceItem::FileStart { name: name.into() }
}

fn chunk(first: u8, bytes: u32) -> TraceItem {
    TraceItem::Chunk(TraceChunk { fingerprint: std::array::from_fn(|at| first.wrapping_add(at as u8)), bytes })
}

const NAME: &str = "0102030405060708090A0B0C0D0E0F1011121314";

fn text() -> String {
    let lower = NAME.to_lowercase();
    format!("file start 3\na\nb\n{NAME} 4096\n{lower} 1\nfile end\nfile start 0\n\nfile end\nstream end")
}

fn text_items() -> Vec<TraceItem> {
    let file_end = TraceItem::FileEnd;
    vec![start(b"a\nb"), chunk(1, 4096), chunk(1, 1), file_end.clone(), start(b""), file_end, TraceItem::StreamEnd]
}

#[test]
fn text_is_read_with_or_without_a_last_line_break() {
    assert_eq!(read(text().as_bytes()).unwrap(), text_items());
    assert_eq!(read(format!("{}\n", text()).as_bytes()).unwrap(), text_items());
    assert_eq!(read(b"stream end").unwrap(), [TraceItem::StreamEnd]);
}

#[test]
fn errors_name_the_file_the_line_and_what_was_expected() {
    let file = |lines: &str| refusal(format!("file start 1\nx\n{lines}").as_bytes());
    for (message, parts) in [
        (refusal(b"hello"), &["x.trace", "Destor", "`hello`"][..]),
        (refusal(b""), &["Destor"]),
        (file("zz 1\n"), &["x.trace", "line 3", "hexadecimal", "`zz 1`"]),
        (file(&format!("{NAME} 0\n")), &["line 3", "from 1 to 2^30"]),
        (file(&format!("{NAME} 1073741825\n")), &["line 3", "1073741825"]),
        (file(&format!("{NAME} 99999999999999999999999\n")), &["line 3"]),
        (file(&format!("{NAME} 12")), &["line 3", "and the end"]),
        (file(&format!("{NAME} +12\n")), &["line 3"]),
        (file(&format!("{NAME} 7\n{}\n", "y".repeat(1000))), &["line 4", "more than 80 bytes"]),
        (file("file end\nstream end\nmore"), &["line 4", "the end", "more bytes"]),
        (refusal(b"file start 70000\n"), &["line 1", "65536", "70000"]),
        (refusal(b"file start 3\nabcd\n"), &["line 2", "a line break after 3 bytes", "`d`"]),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}: {parts:?}");
    }
}

/// A hash file of two files. With `is_fixed`, chunks have 4096 bytes and the last one 100. Otherwise each chunk has its
/// own length.
fn hash_file(version: u32, is_fixed: bool, hash_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let u32s = |out: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    let u64s = |out: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    u32s(&mut out, &[0xDEAD_DEAD, version]);
    u64s(&mut out, &[2]);
    out.extend([b'/'; 4096]);
    u64s(&mut out, &[2]);
    u32s(&mut out, &[if is_fixed { 1 } else { 2 }, 4096]);
    out.extend([0; 40]);
    u32s(&mut out, &[0, 8 * hash_bytes as u32]);
    if version >= 3 {
        out.extend([1; 4096 + 16]);
    }
    if version >= 5 {
        u64s(&mut out, &[4196]);
    }
    for (name, permissions, sizes) in [("some/file", 0o100_644, &[4096u64, 100][..]), ("link", 0o120_777, &[])] {
        let (bytes, chunks) = (sizes.iter().sum::<u64>(), sizes.len() as u64);
        match version {
            1 => {
                let mut path = name.as_bytes().to_vec();
                path.resize(4096, 0);
                out.extend(path);
                u64s(&mut out, &[bytes, chunks]);
            }
            2 | 3 => {
                u64s(&mut out, &[bytes, chunks]);
                u32s(&mut out, &[name.len() as u32]);
                out.extend(name.as_bytes());
            }
            _ => {
                u64s(&mut out, if version >= 5 { &[9, 8][..] } else { &[9][..] });
                let at = out.len() - if version >= 5 { 16 } else { 8 };
                out[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
                u32s(&mut out, &[1000, 1000]);
                u64s(&mut out, &[permissions, 1, 2, 3, 1, 5, 6, chunks]);
                u32s(&mut out, &[name.len() as u32, 6]);
                out.extend(name.as_bytes());
                if permissions == 0o120_777 {
                    out.extend(b"target");
                }
            }
        }
        for (number, size) in sizes.iter().enumerate() {
            match (is_fixed, version) {
                (true, _) => {}
                (false, 7) => u32s(&mut out, &[*size as u32]),
                (false, _) => u64s(&mut out, &[*size]),
            }
            out.extend((0..hash_bytes as u8).map(|at| at + 1 + number as u8));
            out.extend((version >= 6).then_some(0x5a));
        }
    }
    out
}

#[test]
fn hash_files_of_all_versions_are_read() {
    let padded = |first: u8, bytes, hash_bytes: usize| {
        let at = |at: usize| if at < hash_bytes { first + at as u8 } else { 0 };
        TraceItem::Chunk(TraceChunk { fingerprint: std::array::from_fn(at), bytes })
    };
    for version in 1..=7 {
        for is_fixed in [true, false] {
            for hash_bytes in [6, 20, 32] {
                let bytes = hash_file(version, is_fixed, hash_bytes);
                if !is_fixed && version < 3 {
                    assert!(refusal(&bytes).contains("version 3 or later"));
                    continue;
                }
                let end = TraceItem::FileEnd;
                let chunks = [padded(1, 4096, hash_bytes), padded(2, 100, hash_bytes)];
                let [one, two] = chunks;
                let expected = [start(b"some/file"), one, two, end.clone(), start(b"link"), end, TraceItem::StreamEnd];
                assert_eq!(read(&bytes).unwrap(), expected, "{version} {is_fixed} {hash_bytes}");
            }
        }
    }
}

#[test]
fn a_trace_truncated_at_any_byte_is_refused() {
    let text = text();
    for len in 0..text.len() {
        refusal(&text.as_bytes()[..len]);
    }
    for (version, is_fixed) in [(1, true), (2, true), (3, false), (4, true), (5, false), (6, true), (7, false)] {
        let bytes = hash_file(version, is_fixed, 6);
        for len in 0..bytes.len() {
            refusal(&bytes[..len]);
        }
        refusal(&[&bytes[..], b"x"].concat());
    }
}

#[test]
fn numbers_of_hash_files_are_bounded() {
    let with = |offset: usize, value: &[u8], bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[offset..offset + value.len()].copy_from_slice(value);
        refusal(&bytes)
    };
    let (three, one) = (hash_file(3, false, 6), hash_file(1, true, 6));
    assert!(with(4, &[8], &three).contains("version from 1 to 7"));
    assert!(with(4120, &[3], &three).contains("chunking 1 (fixed) or 2"));
    assert!(with(4172, &44u32.to_le_bytes(), &three).contains("48 to 256 bits"));
    assert!(with(4172, &264u32.to_le_bytes(), &three).contains("48 to 256 bits"));
    assert!(with(4124, &0u32.to_le_bytes(), &one).contains("chunks of 1 to"));
    let header = 4176 + 4096 + 16;
    assert!(with(header + 16, &u32::MAX.to_le_bytes(), &three).contains("a name of at most"));
    assert!(with(header + 29, &u64::MAX.to_le_bytes(), &three).contains("a chunk of 1 to"));
    // More chunks than the file has bytes.
    assert!(with(4176 + 4096, &4096u64.to_le_bytes(), &one).contains("a chunk of 1 to"));
}

/// First bytes of traces.
const HEADS: &[&[u8]] = &[b"", b"file start ", b"file start 1\nx\n", b"stream end", b"\xad\xde\xad\xde"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn garbage_is_refused_or_read_to_its_end(
        head in prop::sample::select(HEADS),
        bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"file end stream\n 0AF".to_vec())],
            0..300,
        ),
    ) {
        let whole = [head, &bytes].concat();
        let Ok(trace) = recognise(Path::new("x"), Cursor::new(whole.clone())) else { return Ok(()) };
        let items: Vec<_> = trace.collect();
        prop_assert!(items.len() <= whole.len() + 1);
        prop_assert!(matches!(items.last(), Some(Err(_) | Ok(TraceItem::StreamEnd))));
    }

    #[test]
    fn changed_hash_files_are_refused_or_read_to_their_end(
        version in 1u32..=7,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        at_end in any::<bool>(),
    ) {
        let mut bytes = hash_file(version, version % 2 == 1, 6);
        let from = if at_end { bytes.len() - 200 } else { 0 };
        let len = bytes.len() - from;
        for (at, value) in changes {
            bytes[from + at.index(len)] = value;
        }
        if let Ok(trace) = recognise(Path::new("x"), Cursor::new(bytes)) {
            let last = trace.take(1 << 20).last();
            prop_assert!(matches!(last, Some(Err(_) | Ok(TraceItem::StreamEnd))));
        }
    }
}
