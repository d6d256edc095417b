//! Reads any bytes as a xorb that a client uploads, and xorbs that are built of any chunks. What is read has the hashes
//! and the bounds of a xorb, and what was built comes back.

#![no_main]

use std::io::Write;

use fhrd::keep::upload::xet::{CHUNK_BYTES_MAX, CHUNKS_MAX, HashTree, XetHash, XorbReader};
use libfuzzer_sys::fuzz_target;
use lz4_flex::frame::FrameEncoder;

/// The chunks of a xorb, if it is valid.
fn read(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut reader, mut tree, mut chunks) = (XorbReader::new(bytes), HashTree::default(), Vec::new());
    while let Some(chunk) = reader.next_chunk().ok()? {
        assert!((1..=CHUNK_BYTES_MAX).contains(&chunk.bytes.len()));
        assert_eq!(chunk.hash, XetHash::of_chunk(&chunk.bytes));
        tree.add(chunk.hash, chunk.bytes.len() as u64);
        chunks.push(chunk.bytes);
    }
    assert!(chunks.len() <= CHUNKS_MAX);
    assert_eq!(reader.hash(), tree.root());
    Some(chunks)
}

fn sent(scheme: u8, bytes: &[u8]) -> Vec<u8> {
    let compressed = |bytes: &[u8]| {
        let mut encoder = FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    };
    let grouped: Vec<u8> = (0..4).flat_map(|place| bytes.iter().skip(place).step_by(4)).copied().collect();
    let body = match scheme {
        0 => bytes.to_vec(),
        1 => compressed(bytes),
        _ => compressed(&grouped),
    };
    let [sent, len] = [body.len(), bytes.len()].map(|len| (len as u32).to_le_bytes());
    let header = [0, sent[0], sent[1], sent[2], scheme, len[0], len[1], len[2]];
    [header.as_slice(), &body].concat()
}

fuzz_target!(|input: (&[u8], Vec<(u8, Vec<u8>)>)| {
    let (bytes, chunks) = input;
    read(bytes);
    let chunks: Vec<(u8, Vec<u8>)> = chunks.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let built: Vec<u8> = chunks.iter().flat_map(|(scheme, bytes)| sent(scheme % 3, bytes)).collect();
    let read_back = read(&built).expect("what was built is valid");
    assert!(read_back.iter().eq(chunks.iter().map(|(_, bytes)| bytes)));
    read(&[built.as_slice(), bytes].concat());
    // A chunk whose frame is any bytes.
    let mut forged = sent(1, &[7; 50]);
    forged.truncate(8);
    forged[1] = bytes.len() as u8;
    forged[2] = (bytes.len() >> 8) as u8;
    read(&[forged.as_slice(), bytes].concat());
});
