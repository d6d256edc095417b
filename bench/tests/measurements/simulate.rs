//! Traces read back, and simulations of them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fhrd::chunk::chunker;
use fhrd::config::{ChunkerKind, Config};
use fhrd::inspect::trace::{CHUNKER_SEED, TraceOutput, trace};
use fhrd::metrics::Progress;
use fhrd_bench::trace::{TraceChunk, TraceItem, open};
use serde_json::Value;

use super::fixture::{Home, code, json, stderr};

/// Random bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; len];
    reader.fill(&mut bytes);
    bytes
}

/// The parameters of small chunks.
fn config(chunker: ChunkerKind) -> Config {
    let text = format!(
        "[repository]\nchunker = \"{chunker}\"\nchunk_bytes_min = \"2 KiB\"\nchunk_bytes_avg = \"8 KiB\"\n\
        chunk_bytes_max = \"32 KiB\"\n"
    );
    Config::parse(&text, "small chunks").unwrap()
}

/// Writes the trace of a file or directory, as `fhrd trace` does.
fn write_trace(source: &Path, config: &Config, target: &Path) {
    let mut file = std::fs::File::create(target).unwrap();
    let output = TraceOutput { out: &mut file, name: target, identity: None };
    let report = trace(&[source], &config.repository, output, &Progress::default(), &AtomicBool::new(false)).unwrap();
    assert_eq!(report.problems, 0);
}

/// The chunks of `bytes` as the chunker splits the whole content.
fn chunks_of(config: &Config, bytes: &[u8]) -> Vec<TraceItem> {
    let chunker = chunker(&config.repository, CHUNKER_SEED);
    let (mut rest, mut chunks) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunker.cut(rest, &mut Vec::new()));
        let fingerprint = *blake3::hash(chunk).as_bytes().first_chunk().unwrap();
        chunks.push(TraceItem::Chunk(TraceChunk { fingerprint, bytes: chunk.len() as u32 }));
        rest = after;
    }
    chunks
}

#[test]
fn a_trace_read_back_has_the_chunks_of_every_chunker() {
    let home = Home::new();
    let files = [("tree/a\nb", noise(1, 5 << 20)), ("tree/empty", Vec::new()), ("tree/sub/c", noise(2, 100_000))];
    files.iter().for_each(|(name, bytes)| home.write(name, bytes));
    for chunker in ChunkerKind::ALL {
        let (config, output) = (config(*chunker), home.path(&format!("{chunker}.trace")));
        write_trace(&home.path("tree"), &config, &output);
        let mut expected = Vec::new();
        for (name, bytes) in &files {
            let path = home.path(name);
            let name = path.strip_prefix("/").unwrap().as_os_str().as_encoded_bytes().to_vec();
            expected.push(TraceItem::FileStart { name });
            expected.extend(chunks_of(&config, bytes));
            expected.push(TraceItem::FileEnd);
        }
        expected.push(TraceItem::StreamEnd);
        let items: Vec<TraceItem> = open(&output).unwrap().map(Result::unwrap).collect();
        assert!(items == expected, "{chunker}");
    }
}

/// Traces of three backups of 1.5 MB in the directory `traces`. A scattered tenth of each later one is new.
fn plant_traces(home: &Home) {
    std::fs::create_dir(home.path("traces")).unwrap();
    let (config, mut bytes) = (config(ChunkerKind::FastCdc), noise(3, 1_500_000));
    for version in 0..3u64 {
        home.write("source/file", &bytes);
        write_trace(&home.path("source/file"), &config, &home.path(&format!("traces/{version}.trace")));
        for range in 0..5 {
            let at = (range * 300_000 + version * 50_000) as usize;
            bytes[at..at + 30_000].copy_from_slice(&noise(10 * version + range + 100, 30_000));
        }
    }
}

fn of<'a>(jobs: &'a [Value], index: &str, rewrite: &str) -> Vec<&'a Value> {
    jobs.iter().filter(|job| job["index"] == index && job["rewrite"] == rewrite).collect()
}

#[test]
fn simulations_of_traces_report_every_job_and_restore() {
    let home = Home::new();
    plant_traces(&home);
    let plan = format!(
        "kind = \"trace\"\nstreams = [\"{}\"]\ncontainer_bytes = \"256 KiB\"\nsample_rate = 16\n\
        restore = \"each\"\ncache_containers = [2, 3]\n[capping]\nlevel = 1\nsegment_bytes = \"1 MiB\"\n",
        home.path("traces").display()
    );
    home.write("plan.toml", plan.as_bytes());
    let document = json(&home.run(&["bench", "plan.toml", "--json"]));
    let jobs = document["lines"].as_array().unwrap();
    assert_eq!(jobs.len(), 2 * 5 * 3);
    for job in jobs {
        assert_eq!(job["bytes"], 1_500_000);
        let restores = job["restores"].as_array().unwrap();
        assert_eq!(restores.len(), 6);
        let read = |cache: &str, containers: u64| {
            let is_it = |restore: &&Value| restore["cache"] == cache && restore["cache_containers"] == containers;
            restores.iter().find(is_it).and_then(|restore| restore["containers_read"].as_u64()).unwrap()
        };
        let containers = job["containers"].as_u64().unwrap();
        for size in [2, 3] {
            assert!(containers <= read("belady", size) && read("belady", size) <= read("lru", size), "{job}");
            assert!(read("forward-assembly", size) >= containers, "{job}");
        }
    }
    let none = of(jobs, "exact", "none");
    assert!(none.iter().all(|job| job["missed_chunks"] == 0 && job["rewritten_bytes"] == 0));
    let stored: Vec<u64> = none.iter().map(|job| job["stored_bytes"].as_u64().unwrap()).collect();
    assert!(stored[0] == 1_500_000 && (150_000..450_000).contains(&(stored[2] - stored[1])), "{stored:?}");
    let capped = of(jobs, "exact", "capping");
    assert!(capped[2]["rewritten_bytes"].as_u64() > Some(0), "{}", capped[2]);
    assert!(of(jobs, "sampled", "none")[0]["index_bytes"].as_u64() < none[0]["index_bytes"].as_u64());

    let table = home.run(&["bench", "plan.toml"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(text.lines().count(), 10 * (1 + 3 + 1 + 18), "{text}");
    home.write("traces/1.trace", b"file start 1\nx\nnonsense\n");
    let failed = home.run(&["bench", "plan.toml"]);
    assert_eq!(code(&failed), 1);
    assert!(stderr(&failed).contains("1.trace in line 3"), "{}", stderr(&failed));
}
