//! Speed of every chunker at the default lengths: `cargo bench --bench chunkers`.

mod data;

use data::generated;
use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::config::{ChunkerKind, Config, RepositoryConfig};

const BYTES: usize = 4 << 20;

fn main() {
    divan::main();
}

#[divan::bench(args = ChunkerKind::ALL.iter().copied(), consts = [0, 1])]
fn cut<const NOISE: usize>(bencher: Bencher<'_, '_>, chunker: ChunkerKind) {
    let bytes = generated(["text", "noise"][NOISE], BYTES);
    let config = RepositoryConfig { chunker, ..Config::default().repository };
    let (chunker, chunk_bytes_max) = (fhrd::chunk::chunker(&config, 7), config.chunk_bytes_max.0 as usize);
    let mut anchors = Vec::new();
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| {
        let (mut rest, mut chunks) = (bytes.as_slice(), 0);
        while !rest.is_empty() {
            anchors.clear();
            let len = chunker.cut(&rest[..rest.len().min(chunk_bytes_max)], &mut anchors);
            rest = &rest[len..];
            chunks += 1;
        }
        chunks
    });
}
