//! Arrays that are no weights cost no more than their bytes in a raw file, and steps of a training no more than they
//! change.

use std::path::Path;

use crate::input::{edit, write};
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::*;

/// An npy file of one dimension.
fn npy(descr: &str, width: usize, bytes: &[u8]) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({},), }}", bytes.len() / width).into_bytes();
    header.resize((header.len() + 11).next_multiple_of(64) - 11, b' ');
    header.push(b'\n');
    [b"\x93NUMPY\x01\0".as_slice(), &(header.len() as u16).to_le_bytes(), &header, bytes].concat()
}

/// Backs up `source` and restores it. Bytes of data that it took, without records and indexes.
fn stored(place: &Place, source: &Path) -> u64 {
    let before = containers(place);
    place.run(&["backup", source.to_str().unwrap()]);
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("restored");
    place.run(&["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(source), &describe(&target.join(source.strip_prefix("/").unwrap())), "restored");
    containers(place) - before
}

/// Bytes of all containers.
fn containers(place: &Place) -> u64 {
    let directory = place.repository().join("containers");
    if !directory.exists() {
        return 0;
    }
    crate::input::files(&directory).iter().map(|name| std::fs::metadata(directory.join(name)).unwrap().len()).sum()
}

/// What a file with these bytes takes in a new repository.
fn stored_alone(name: &str, bytes: &[u8]) -> u64 {
    let place = Place::with_repository();
    write(place.path("source").join(name), bytes);
    stored(&place, &place.path("source"))
}

#[test]
fn arrays_that_are_no_weights_cost_no_more_than_in_a_raw_file() {
    let mut random = Random(7);
    let text = random.text(1_200_000);
    let words: Vec<u16> = (0..4000).map(|_| random.below(50_000) as u16).collect();
    let mut tokens = Vec::new();
    while tokens.len() < 1_200_000 {
        let phrase = random.below(3000) as usize;
        words[phrase..phrase + 1 + random.below(12) as usize].iter().for_each(|id| tokens.extend(id.to_le_bytes()));
    }
    let pixels: Vec<u8> = (0..300_000u32)
        .flat_map(|at| (((at / 7 % 90 + random.below(3) as u32) as f32) / 255.0).to_le_bytes())
        .collect();
    let prices: Vec<u8> =
        (0..150_000u64).flat_map(|at| ((10_000 + at / 400 + random.below(40)) as f64 / 100.0).to_le_bytes()).collect();
    for (name, descr, width, bytes) in [
        ("text", "|u1", 1, text),
        ("tokens", "<u2", 2, tokens),
        ("pixels", "<f4", 4, pixels),
        ("prices", "<f8", 8, prices),
    ] {
        let (raw, array) = (stored_alone("a.raw", &bytes), stored_alone("a.npy", &npy(descr, width, &bytes)));
        // The record of the array and the chunk of its header.
        assert!(array * 1000 <= raw * 1005 + 2_000_000, "{name}: {array} bytes, {raw} raw");
    }
    // Weights keep their planes.
    let weights = stored_alone("w.npy", &npy("<f4", 4, &float32(&weights(3, 1 << 18))));
    assert!(weights * 100 < (4 << 18) * 88, "{weights}");
}

#[test]
fn a_later_version_of_a_plain_array_copies_what_moved_and_keeps_what_stayed() {
    let place = Place::with_repository();
    let source = place.path("source");
    let mut random = Random(9);
    let text = random.text(1_500_000);
    write(source.join("a.npy"), &npy("|u1", 1, &text));
    let first = stored(&place, &source);
    // Insertions and deletions move all that follows.
    let moved = edit(&mut random, &text, 20);
    write(source.join("a.npy"), &npy("|u1", 1, &moved));
    let second = stored(&place, &source);
    assert!(second * 12 < first, "{second} of {first}");
    // A byte in thirty is another one: a delta.
    let mut changed = moved.clone();
    changed.iter_mut().step_by(30).for_each(|byte| *byte ^= 1);
    write(source.join("a.npy"), &npy("|u1", 1, &changed));
    let third = stored(&place, &source);
    assert!(third * 5 < first, "{third} of {first}");
    // All of them at once, among them copies of a delta.
    let all = Place::with_repository();
    let source = all.path("source");
    let again = edit(&mut random, &changed, 20);
    for (name, bytes) in [("a", &text), ("b", &moved), ("c", &changed), ("d", &again)] {
        write(source.join(format!("{name}.npy")), &npy("|u1", 1, bytes));
    }
    stored(&all, &source);
    let check = all.run(&["check", "--read-data"]);
    assert_eq!(number(&check, "defect_count"), 0, "{check}");
}

/// One value in fifty moves to the next one.
fn step(values: &[u8], random: &mut Random) -> Vec<u8> {
    let mut values = values.to_vec();
    for value in values.chunks_exact_mut(2) {
        if random.below(50) == 0 {
            let next =
                u16::from_le_bytes([value[0], value[1]]).wrapping_add(if random.below(2) == 0 { 1 } else { 65_535 });
            value.copy_from_slice(&next.to_le_bytes());
        }
    }
    values
}

#[test]
fn the_steps_of_a_training_cost_what_they_change() {
    let place = Place::with_repository();
    let source = place.path("source");
    let mut random = Random(11);
    let mut values = bfloat16(&weights(12, 1 << 18));
    let mut sizes = Vec::new();
    for _ in 0..20 {
        let tensor = Tensor::new("w", "BF16", &[values.len() as u64 / 1024, 512], values.clone());
        write(source.join("model.safetensors"), &safetensors(&[tensor]));
        sizes.push(stored(&place, &source));
        values = step(&values, &mut random);
    }
    // Of 262,144 values 2 % differ, which are 5 kB for where and half a kB for how. Steps far from their base cost more.
    let (steps, last): (u64, u64) = (sizes[1..].iter().sum(), sizes[10..].iter().sum());
    assert!(steps / 19 < 14_000, "{sizes:?}");
    assert!(last / 10 < steps / 19 * 13 / 10, "the cost of a step does not grow: {sizes:?}");
}
