//! Reads any bytes as a shard that a client uploads, and shards that are built of any records. What is read is never
//! larger than what was sent.

#![no_main]

use fhrd::keep::upload::xet::{ShardFile, ShardReader, ShardXorb};
use libfuzzer_sys::fuzz_target;

const HEAD: [u8; 48] = [
    72, 70, 82, 101, 112, 111, 77, 101, 116, 97, 68, 97, 116, 97, 0, 85, 105, 103, 69, 106, 123, 129, 87, 131, 165,
    189, 217, 92, 205, 209, 74, 169, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn read(bytes: &[u8]) -> Option<(Vec<ShardFile>, Vec<ShardXorb>)> {
    let mut reader = ShardReader::new(bytes, bytes.len() as u64).ok()?;
    let (mut files, mut xorbs, mut records) = (Vec::new(), Vec::new(), 3);
    while let Some(file) = reader.next_file().ok()? {
        records += 2 + 2 * file.terms.len();
        files.push(file);
    }
    while let Some(xorb) = reader.next_xorb().ok()? {
        records += 1 + xorb.chunks.len();
        xorbs.push(xorb);
    }
    reader.finish().ok()?;
    assert_eq!(records * 48, bytes.len());
    Some((files, xorbs))
}

fn record(hash: u8, numbers: [u32; 4]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    [hash; 32].into_iter().chain(numbers).collect()
}

fuzz_target!(|input: (&[u8], Vec<Vec<(u32, u32)>>, Vec<Vec<u32>>)| {
    let (bytes, files, xorbs) = input;
    read(bytes);
    read(&[HEAD.as_slice(), bytes].concat());
    let mut shard = HEAD.to_vec();
    let files: Vec<_> = files.into_iter().filter(|terms| !terms.is_empty()).collect();
    for terms in &files {
        shard.extend(record(1, [3 << 30, terms.len() as u32, 0, 0]));
        terms.iter().for_each(|(first, end)| shard.extend(record(2, [0, 5, *first, *end])));
        (0..=terms.len()).for_each(|_| shard.extend(record(3, [0; 4])));
    }
    shard.extend(record(0xff, [0; 4]));
    let xorbs: Vec<_> = xorbs.into_iter().filter(|chunks| !chunks.is_empty()).collect();
    for chunks in &xorbs {
        shard.extend(record(4, [0, chunks.len() as u32, 0, 0]));
        chunks.iter().for_each(|len| shard.extend(record(5, [0, *len, 0, 0])));
    }
    shard.extend(record(0xff, [0; 4]));
    let (read_files, read_xorbs) = read(&shard).expect("what was built is valid");
    let chunks_of = |file: &ShardFile| file.terms.iter().map(|term| term.chunks).collect::<Vec<_>>();
    assert!(read_files.iter().map(chunks_of).eq(files));
    let lens_of = |xorb: &ShardXorb| xorb.chunks.iter().map(|(_, len)| *len).collect::<Vec<_>>();
    assert!(read_xorbs.iter().map(lens_of).eq(xorbs));
    read(&[shard.as_slice(), bytes].concat());
});
