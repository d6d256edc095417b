//! The schemes of the literature, each a file in `configs`: what they back up comes back, and each stores what it
//! stands for. A file there that is no bench is a scheme.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fhrd::codec::{CODECS, Codec, Planes};
use fhrd::config::{CompressCodec, Config, FloatCodec, ModelDelta};
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::{Operation, blob_name};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::Reading;

use crate::input::{TestRepository, edit, files, init_with_key, write};
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::{Tensor, float32, model, safetensors, tuned, weights};

/// Weights of the model's two tensors; their words have two bytes.
const EMBEDDING: usize = 1 << 18;
const LAYER: usize = 1 << 17;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs")
}

/// Names of all schemes.
fn schemes() -> Vec<String> {
    let name = |file: String| file.strip_suffix(".toml").map(str::to_string);
    let is_scheme = |name: &String| {
        let text = fs::read_to_string(directory().join(format!("{name}.toml"))).unwrap();
        !text.parse::<toml::Table>().unwrap().contains_key("kind")
    };
    files(&directory()).into_iter().filter_map(name).filter(is_scheme).collect()
}

/// What is in the data containers of a repository.
#[derive(Debug, Default)]
struct Seen {
    codecs: BTreeSet<u8>,
    copies: usize,
    deltas: usize,
    /// Lengths of chunks.
    lengths: BTreeSet<u32>,
    /// Whether all groups are compressed, for each frame of byte groups.
    all_groups: BTreeSet<bool>,
}

fn look(repository: &Repository) -> Seen {
    let mut seen = Seen::default();
    for id in &ContainerListing::take(&repository.store).unwrap().containers {
        let name = blob_name(id);
        let is_data = repository.store.get_range(&name, 10, 1, Reading::Once).unwrap()[0] == 0;
        let directory = read_container_index(repository.store.as_ref(), id).unwrap();
        if !is_data {
            continue;
        }
        for frame in &directory.frames {
            seen.codecs.insert(frame.codec);
            if frame.codec == Planes.id() {
                let head = repository.store.get_range(&name, frame.offset + 32, 2, Reading::Once).unwrap();
                seen.all_groups.insert(head[1].count_ones() == u32::from(head[0]));
            }
        }
        for entry in &directory.entries {
            seen.lengths.insert(entry.raw_len);
            for operation in directory.operations(entry) {
                seen.deltas += usize::from(matches!(operation, Operation::Delta { .. }));
                seen.copies += usize::from(matches!(operation, Operation::Copy { .. } | Operation::LiteralCopy { .. }));
            }
        }
    }
    seen
}

/// Two versions of a text, floats of no known format, noise, a model and its fine-tune; the later ones in the second
/// part.
fn write_part(source: &Path, part: usize) {
    let text = Random(1).text(400_000);
    let (embedding, layer) = (weights(2, EMBEDDING), weights(3, LAYER));
    if part == 0 {
        write(source.join("text/first"), &text);
        write(source.join("floats.bin"), &float32(&weights(4, 100_000)));
        write(source.join("noise"), &Random(5).bytes(200_000));
        write(source.join("base/model.safetensors"), &model(&embedding, &layer));
    } else {
        write(source.join("text/second"), &edit(&mut Random(6), &text, 9));
        write(source.join("tune/model.safetensors"), &model(&embedding, &tuned(&layer, 7, 0.0001)));
    }
}

/// Bytes stored and what they are, after both parts; what is restored is what was backed up.
fn stored_by(scheme: &str) -> (u64, Seen) {
    let (place, file) = (Place::new(), directory().join(format!("{scheme}.toml")));
    // With keys of their own, chunks end elsewhere, and the same content takes up to 6 % more or less.
    init_with_key(fhrd::store::create(place.repository()).unwrap(), &Config::load(&file).unwrap().repository);
    let (source, target, file) = (place.path("source"), place.path("restored"), file.to_str().unwrap());
    let mut bytes = 0;
    for part in 0..2 {
        write_part(&source, part);
        bytes += number(&place.run(&["backup", source.to_str().unwrap(), "--config", file]), "bytes_stored");
    }
    place.run(&["restore", "latest", "--target", target.to_str().unwrap(), "--config", file]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), scheme);
    (bytes, look(&Repository::open_at(place.repository()).unwrap()))
}

/// What sets a scheme apart.
fn assert_scheme(scheme: &str, seen: &Seen) {
    let case = format!("{scheme}: {seen:?}");
    let of = |ids: &[u8]| ids.iter().copied().collect::<BTreeSet<u8>>();
    let codecs = match scheme {
        "base" | "burst" | "odess" | "tensorcas" => of(&[0, 1]),
        name if name.starts_with("fhrd") => of(&[0, 1, 2]),
        "default" | "zipllm" => of(&[0, 1, 3]),
        name if name.starts_with("zipnn") => of(&[0, 1, 3]),
        "xet" => of(&[0, 4, 5]),
        _ => return,
    };
    assert_eq!(seen.codecs, codecs, "{case}");
    // Parts of chunks of different lengths have different lengths, so FHRD-2 may find nothing.
    if !scheme.starts_with("fhrd-2") {
        let copies = scheme.starts_with("fhrd") || ["burst", "odess", "default"].contains(&scheme);
        assert_eq!(seen.copies > 0, copies, "{case}");
    }
    assert_eq!(seen.deltas > 0, ["zipllm", "default"].contains(&scheme), "{case}");
    if codecs.contains(&Planes.id()) {
        assert_eq!(seen.all_groups, BTreeSet::from([scheme == "fhrd-1"]), "{case}");
    }
    // Tensors that are chunks.
    let whole = ["zipllm", "tensorcas"].contains(&scheme);
    assert_eq!(seen.lengths.contains(&(2 * EMBEDDING as u32)), whole || scheme == "default", "{case}");
    let longest = if scheme == "xet" { 128 << 10 } else { 2 * EMBEDDING as u32 };
    assert!(*seen.lengths.last().unwrap() <= longest, "{case}");
}

#[test]
fn every_scheme_restores_what_it_stored_and_stores_what_it_stands_for() {
    let names = schemes();
    assert!(names.len() >= 11 && names.iter().any(|name| name == "default"), "{names:?}");
    let mut bytes = std::collections::BTreeMap::new();
    for name in &names {
        let (stored, seen) = stored_by(name);
        assert_scheme(name, &seen);
        bytes.insert(name.as_str(), stored);
    }
    for (more, less) in [
        ("base", "burst"),
        ("base", "odess"),
        ("base", "fhrd"),
        ("fhrd-no-diff", "fhrd"),
        ("fhrd-2-10-parts", "fhrd"),
        ("base", "zipnn"),
        ("xet", "base"),
        ("tensorcas", "zipnn"),
        ("zipnn", "zipnn-found"),
        ("zipnn-everything", "zipnn-found"),
        ("zipnn", "zipllm"),
        ("zipllm", "default"),
    ] {
        assert!(bytes[more] > bytes[less], "{more}, {less}: {bytes:?}");
    }
}

/// Restores the last snapshot and compares it with `source`.
fn assert_restores(repository: &Repository, config: &Config, source: &Path) {
    let named = snapshot::list(repository.store.as_ref()).unwrap().0.pop().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("restored");
    let report = restore(repository, config, &named, &target, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((report.problems, report.damaged), (0, 0));
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), "restored");
}

#[test]
fn what_any_codec_stored_is_read_whatever_the_configuration_says() {
    let place = TestRepository::new();
    let source = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for codec in FloatCodec::ALL.iter().copied() {
        for compress in CompressCodec::ALL.iter().copied() {
            cases.extend([true, false].map(|formats| (codec, compress, formats)));
        }
    }
    for (number, (codec, compress, formats)) in cases.into_iter().enumerate() {
        let mut config = TestRepository::config();
        config.model.codec = codec;
        config.model.detect_formats = formats;
        config.model.delta = ModelDelta::None;
        config.compress.codec = compress;
        let (seed, directory) = (100 * number as u64, source.path().join(number.to_string()));
        write(directory.join("floats"), &float32(&weights(seed, 40_000)));
        write(directory.join("text"), &Random(seed).text(80_000));
        write(directory.join("noise"), &Random(seed).bytes(80_000));
        let tensor = |name, dtype, bytes: Vec<u8>| Tensor::new(name, dtype, &[bytes.len() as u64 / 4], bytes);
        let words = float32(&weights(seed + 1, 50_000));
        write(directory.join("model.safetensors"), &safetensors(&[tensor("w", "F32", words)]));
        let report = place.backup(source.path(), &config);
        assert_eq!(report.problems, 0, "{codec}, {compress}, {formats}");
    }
    let repository = place.open();
    let seen = look(&repository);
    assert_eq!(seen.codecs, CODECS.iter().map(|codec| codec.id()).collect(), "every codec has stored something");
    assert_restores(&repository, &Config::default(), source.path());
    let report = check(&repository, &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defect_count, 0, "{report:?}");
}
