//! What a client sends that uploads by Xet: xorbs and shards, built by hand.

use aws_lc_rs::digest::{SHA256, digest};
use fhrd::keep::upload::xet::{HashTree, XetHash};

use super::fixture::{Reply, Server};
use super::uploader::send;

/// The token that a server gave for a name, and the path where it counts.
pub struct XetPlace {
    pub path: String,
    pub token: String,
}

/// Chunks that are sent together.
pub struct SentXorb {
    pub hash: XetHash,
    pub chunks: Vec<Vec<u8>>,
}

/// A file of a shard: ranges of chunks of xorbs.
pub struct SentFile<'a>(pub Vec<(&'a SentXorb, std::ops::Range<usize>)>);

impl XetPlace {
    pub fn of(server: &Server, name: &str, token: &str) -> Self {
        let reply = send(server, "GET", &format!("/api/models/{name}/xet-write-token/main"), token, b"");
        assert_eq!(reply.status, 200, "{reply:?}");
        let document = reply.json();
        let text = |key: &str| document[key].as_str().unwrap().to_string();
        let url = text("casUrl");
        assert_eq!((reply.header("x-xet-cas-url"), reply.header("x-xet-access-token")), (&*url, &*text("accessToken")));
        assert_eq!(reply.header("x-xet-token-expiration"), document["exp"].to_string());
        XetPlace { path: url.strip_prefix("http://localhost").unwrap().into(), token: text("accessToken") }
    }

    pub fn xorb(&self, server: &Server, xorb: &SentXorb) -> Reply {
        self.bytes_of_xorb(server, &xorb.hash, &xorb.bytes())
    }

    pub fn bytes_of_xorb(&self, server: &Server, hash: &XetHash, bytes: &[u8]) -> Reply {
        send(server, "POST", &format!("{}/v1/xorbs/default/{}", self.path, hash.digits()), &self.token, bytes)
    }

    pub fn shard(&self, server: &Server, bytes: &[u8]) -> Reply {
        send(server, "POST", &format!("{}/v1/shards", self.path), &self.token, bytes)
    }
}

impl SentXorb {
    /// Chunks of 1 to 60 kB.
    pub fn of(bytes: &[u8]) -> Self {
        let (mut chunks, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(1 + (chunks.len() * 7919) % 60_000));
            chunks.push(chunk.to_vec());
            rest = behind;
        }
        SentXorb { hash: root(&chunks), chunks }
    }

    /// As it is sent, without compression.
    pub fn bytes(&self) -> Vec<u8> {
        let chunk = |bytes: &Vec<u8>| {
            let len = (bytes.len() as u32).to_le_bytes();
            [&[0, len[0], len[1], len[2], 0, len[0], len[1], len[2]], bytes.as_slice()].concat()
        };
        self.chunks.iter().flat_map(chunk).collect()
    }
}

fn root(chunks: &[Vec<u8>]) -> XetHash {
    let mut tree = HashTree::default();
    chunks.iter().for_each(|chunk| tree.add(XetHash::of_chunk(chunk), chunk.len() as u64));
    tree.root().unwrap()
}

impl SentFile<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(xorb, range)| xorb.chunks[range.clone()].concat()).collect()
    }
}

pub fn record(hash: [u8; 32], numbers: [u32; 4]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    hash.into_iter().chain(numbers).collect()
}

/// The records of a shard: head, files, end, xorbs, end.
pub fn shard(files: &[SentFile<'_>], xorbs: &[&SentXorb]) -> Vec<Vec<u8>> {
    let tag = [
        72, 70, 82, 101, 112, 111, 77, 101, 116, 97, 68, 97, 116, 97, 0, 85, 105, 103, 69, 106, 123, 129, 87, 131, 165,
        189, 217, 92, 205, 209, 74, 169,
    ];
    let end = || record([0xff; 32], [0; 4]);
    let mut records = vec![record(tag, [2, 0, 0, 0])];
    for file in files {
        let chunks = file.0.iter().flat_map(|(xorb, range)| xorb.chunks[range.clone()].iter().cloned());
        let hash = XetHash::of_file(root(&chunks.collect::<Vec<_>>()));
        records.push(record(hash.0, [3 << 30, file.0.len() as u32, 0, 0]));
        for (xorb, range) in &file.0 {
            let len: usize = xorb.chunks[range.clone()].iter().map(Vec::len).sum();
            records.push(record(xorb.hash.0, [0, len as u32, range.start as u32, range.end as u32]));
        }
        for (xorb, range) in &file.0 {
            let hashes: Vec<XetHash> =
                xorb.chunks[range.clone()].iter().map(|chunk| XetHash::of_chunk(chunk)).collect();
            records.push(record(XetHash::of_term(hashes.iter()).0, [0; 4]));
        }
        let mut sha256: [u8; 32] = digest(&SHA256, &file.bytes()).as_ref().try_into().unwrap();
        sha256.chunks_exact_mut(8).for_each(<[u8]>::reverse);
        records.push(record(sha256, [0; 4]));
    }
    records.push(end());
    for xorb in xorbs {
        let len: usize = xorb.chunks.iter().map(Vec::len).sum();
        records.push(record(xorb.hash.0, [0, xorb.chunks.len() as u32, len as u32, xorb.bytes().len() as u32]));
        let mut offset = 0;
        for chunk in &xorb.chunks {
            records.push(record(XetHash::of_chunk(chunk).0, [offset, chunk.len() as u32, 0, 0]));
            offset += chunk.len() as u32;
        }
    }
    records.push(end());
    records
}
