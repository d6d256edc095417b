//! Steps of a training in which few weights change: stored as gaps and differences, in chains that read fast.

use std::path::Path;

use crate::compatibility::copy_directory;
use crate::independent;
use crate::input::write;
use crate::program::{Place, number};
use crate::trees::{Random, assert_same, describe};
use crate::weights::{Tensor, bfloat16, float32, safetensors, tuned, weights};

/// Values of a model, and steps behind the first one.
const VALUES: usize = 160_000;
const STEPS: usize = 10;

/// A model whose elements change by one bit step, one in `every` in each step of the training.
struct Training {
    bytes: Vec<u8>,
    width: usize,
    random: Random,
    every: u64,
}

impl Training {
    fn new(width: usize, every: u64) -> Self {
        let values = weights(3, VALUES);
        let bytes = if width == 2 { bfloat16(&values) } else { float32(&values) };
        Training { bytes, width, random: Random(every), every }
    }

    fn step(&mut self) {
        for at in 0..VALUES {
            if self.random.below(self.every) == 0 {
                let direction = if self.random.below(2) == 0 { 1i32 } else { -1 };
                let at = at * self.width;
                let low = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
                self.bytes[at..at + 2].copy_from_slice(&low.wrapping_add(direction as u16).to_le_bytes());
            }
        }
    }

    fn save(&self, source: &Path) {
        let dtype = if self.width == 2 { "BF16" } else { "F32" };
        let tensor = Tensor::new("layers.0.weight", dtype, &[400, 400], self.bytes.clone());
        write(source.join("model.safetensors"), &safetensors(&[tensor]));
    }
}

fn assert_restores(place: &Place, source: &Path, what: &str) {
    let target = tempfile::tempdir().unwrap();
    place.run(&["restore", "latest", "--target", target.path().join("restored").to_str().unwrap()]);
    let restored = target.path().join("restored").join(source.strip_prefix("/").unwrap());
    assert_same(&describe(source), &describe(&restored), what);
    independent::assert_restores_latest(place, source);
}

#[test]
fn steps_of_few_changes_cost_little_more_than_their_entropy_and_come_back() {
    for (width, every) in [(2, 100), (2, 1000), (4, 50), (2, 10)] {
        let what = format!("{width} bytes, one in {every}");
        let place = Place::with_repository();
        place.run(&["upgrade"]);
        let (source, mut training) = (place.path("model"), Training::new(width, every));
        training.save(&source);
        place.run(&["backup", source.to_str().unwrap()]);
        let mut stored = 0;
        for _ in 0..STEPS {
            training.step();
            training.save(&source);
            stored += number(&place.run(&["backup", source.to_str().unwrap()]), "bytes_stored");
            assert_restores(&place, &source, &what);
        }
        // Each change takes a direction and where it is. One step in four is a delta to an older one.
        let share = 1.0 / every as f64;
        let entropy = -share * share.log2() - (1.0 - share) * (1.0 - share).log2() + share;
        let bytes = (VALUES * STEPS) as f64 * entropy / 8.0;
        assert!((stored as f64) < bytes * 1.8 + STEPS as f64 * 3000.0, "{what}: {stored} of {bytes}");
        assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    }
}

#[test]
fn a_repository_of_an_earlier_version_has_sparse_steps_after_an_upgrade_only() {
    let place = Place::new();
    copy_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository"), &place.repository());
    let (source, mut training) = (place.path("model"), Training::new(2, 100));
    for is_upgraded in [false, true] {
        if is_upgraded {
            place.run(&["upgrade"]);
        }
        for _ in 0..3 {
            training.save(&source);
            place.run(&["backup", source.to_str().unwrap()]);
            assert_restores(&place, &source, if is_upgraded { "upgraded" } else { "earlier" });
            training.step();
        }
    }
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
}

/// Values of a model of which each block is a tensor's.
const MODEL: usize = 1 << 19;

/// Stores one model after another in which all values have changed, and returns what each takes.
fn stored_of(models: impl Iterator<Item = Vec<f32>>) -> Vec<u64> {
    let place = Place::with_repository();
    let source = place.path("run");
    let all = models.map(|values| {
        write(
            source.join("model.safetensors"),
            &safetensors(&[Tensor::new("w", "BF16", &[512, 1024], bfloat16(&values))]),
        );
        number(&place.run(&["backup", source.to_str().unwrap()]), "bytes_stored")
    });
    let all = all.collect();
    assert_restores(&place, &source, "the last model");
    all
}

#[test]
fn a_run_that_leaves_its_first_step_begins_a_new_chain() {
    let mut values = weights(5, MODEL);
    let steps = stored_of((0..18).map(|step| {
        values = tuned(&values, step, 5e-4);
        values.clone()
    }));
    // Deltas to the first step get longer and longer, until some are stored alone. Later ones build on those.
    let (before, after) = (steps[8], *steps[10..].iter().min().unwrap());
    assert!(steps[1..8].is_sorted() && after * 100 < before * 85, "{steps:?}");
    assert!(steps[10..].iter().filter(|step| **step * 10 > steps[0] * 8).count() <= 2, "{steps:?}");
}

#[test]
fn a_model_of_a_far_one_is_no_new_chain_while_it_is_the_only_one() {
    let base = weights(5, MODEL);
    let far = tuned(&base, 1, 2e-3);
    let near = tuned(&far, 2, 5e-4);
    let stored = stored_of([base, far, near].into_iter());
    assert!(stored[2] * 10 < stored[0] * 8, "{stored:?}");
}
