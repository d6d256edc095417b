//! What reading a tensor costs, and how well families are told apart.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::format::{Dtype, Tensor};
use fhrd::inspect::models::models;
use fhrd::inspect::tensor::{TensorRequest, tensor};
use fhrd::kernel::elements::bf16;
use fhrd::model::{Sketched, compare, sample};
use fhrd::repo::Repository;
use fhrd::repo::snapshot::find;
use fhrd::store::CountingStore;

use crate::input::{TestRepository, write};
use crate::normal::Normal;
use crate::weights::{self, bfloat16, safetensors};

/// ZipLLM's bound between models of one family and others.
const THRESHOLD: f64 = 4.0;

#[test]
fn a_tensor_is_read_without_the_rest_of_its_model() {
    let (repository, source) = (TestRepository::with_known_key(), tempfile::tempdir().unwrap());
    let mut normal = Normal::new(5);
    let layers: Vec<Vec<f32>> = (0..8).map(|_| normal.weights(1 << 19, 0.03)).collect();
    let names: Vec<String> = (0..8).map(|number| format!("layer.{number}")).collect();
    let parts = names.iter().zip(&layers);
    let parts = parts.map(|(name, layer)| weights::Tensor::new(name, "BF16", &[512, 1024], bfloat16(layer)));
    write(source.path().join("model.safetensors"), &safetensors(&parts.collect::<Vec<_>>()));
    repository.backup(source.path(), &TestRepository::config());
    let opened = repository.open();
    let store = Arc::new(CountingStore::new(opened.store.clone()));
    let counted = Repository { store: store.clone(), ..opened };
    let snapshot = find(counted.store.as_ref(), "latest").unwrap();
    let output = source.path().join("out.safetensors");
    let request = TensorRequest { tensor: "layer.6", path: None, output: &output };
    let before = store.counts().bytes_read;
    let report = tensor(&counted, &snapshot, &request, &AtomicBool::new(false)).unwrap();
    let read = store.counts().bytes_read - before;
    assert_eq!(report.bytes, 1 << 20);
    // Two of sixteen blocks, the header, and the repository's own structures.
    assert!(report.chunks_read <= 4 && report.chunks >= 16, "{report:?}");
    assert!(read > 600_000 && read < 2_500_000, "{read} bytes read for a tensor of 1 MiB");
    assert!(std::fs::read(&output).unwrap().ends_with(&bfloat16(&layers[6])));

    // Listing models reads no frame of data at all.
    let before = store.counts().bytes_read;
    let found = models(&counted, std::slice::from_ref(&snapshot), &AtomicBool::new(false)).unwrap();
    let read = store.counts().bytes_read - before;
    assert!(found.models.len() == 1 && read < 300_000, "{read} bytes read for a list");
}

/// Mean differing bits of BF16 values `w` and `w'`, from the definition.
fn expected_distance(normal: &mut Normal, sigma: f64, moved: impl Fn(&mut Normal, f64) -> f64) -> f64 {
    const COUNT: u32 = 100_000;
    let bits = |value: f64| bf16((value as f32).to_bits());
    let mut differing = 0;
    for _ in 0..COUNT {
        let weight = normal.next() * sigma;
        let other = moved(normal, weight);
        differing += (bits(weight) ^ bits(other)).count_ones();
    }
    f64::from(differing) / f64::from(COUNT)
}

/// ZipLLM (section 4.2, appendix): a simulation of the bit distance over deviations of weights and of updates.
///
/// The expected values were computed apart from this program (numpy, 2 million values each).
#[test]
fn the_bound_between_families_is_where_the_simulation_has_it() {
    const DELTAS: [f64; 8] = [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02];
    const EXPECTED: [(f64, [f64; 8]); 5] = [
        (0.015, [0.0, 3.020, 3.510, 4.000, 4.663, 5.189, 5.444, 5.567]),
        (0.02, [0.0, 2.812, 3.307, 3.796, 4.453, 4.973, 5.235, 5.363]),
        (0.03, [0.0, 2.526, 3.017, 3.505, 4.155, 4.655, 4.919, 5.058]),
        (0.04, [0.0, 2.317, 2.808, 3.299, 3.940, 4.428, 4.689, 4.841]),
        (0.05, [0.0, 2.157, 2.648, 3.136, 3.779, 4.263, 4.524, 4.681]),
    ];
    let mut normal = Normal::new(20);
    for (sigma, expected) in EXPECTED {
        let mut last = -1.0;
        for (delta, expected) in DELTAS.into_iter().zip(expected) {
            let distance = expected_distance(&mut normal, sigma, |normal, weight| weight + normal.next() * delta);
            assert!((distance - expected).abs() < 0.04, "{sigma} {delta}: {distance} instead of {expected}");
            assert!(distance > last, "{sigma} {delta}: {distance} after {last}");
            // Fine-tuning moves weights by a small part of their size; what moves them further looks like a stranger.
            assert!(distance < THRESHOLD || delta > 0.12 * sigma, "{sigma} {delta}: {distance}");
            last = distance;
        }
        for other in [0.015, 0.02, 0.03, 0.04, 0.05] {
            let distance = expected_distance(&mut normal, sigma, |normal, _| normal.next() * other);
            assert!(distance > 5.3 && distance < 6.0, "{sigma} against {other}: {distance}");
        }
    }
}

/// A model as its sketches show it.
struct Sketches(Vec<Vec<u8>>);

const LAYERS: usize = 6;
const LAYER_VALUES: usize = 16 << 10;

fn sketches(model: &[Vec<f32>]) -> Sketches {
    let of = |layer: &Vec<f32>| {
        let bytes = bfloat16(layer);
        let len = bytes.len() as u64;
        let tensor =
            Tensor { name: "w".into(), dtype: Dtype::Bfloat16, shape: vec![LAYER_VALUES as u64], offset: 0, len };
        sample(&bytes, &tensor, LAYERS).unwrap()
    };
    Sketches(model.iter().map(of).collect())
}

/// The distance of two models as the backup sees it: from a few values of each tensor.
fn sketched_distance(one: &Sketches, other: &Sketches) -> f64 {
    let view = |sketch| Sketched { dtype: Dtype::Bfloat16, len: 2 * LAYER_VALUES as u64, sketch };
    let pairs = one.0.iter().zip(&other.0);
    let distances = pairs.map(|(one, other)| compare(view(one), view(other), false).unwrap().bit_distance);
    distances.sum::<f64>() / LAYERS as f64
}

#[test]
fn sketches_tell_families_apart() {
    const FAMILIES: usize = 3;
    const TUNES: usize = 4;
    let mut normal = Normal::new(30);
    let mut models: Vec<(usize, Sketches)> = Vec::new();
    for family in 0..FAMILIES {
        let base: Vec<Vec<f32>> =
            (0..LAYERS).map(|layer| normal.weights(LAYER_VALUES, 0.015 + 0.006 * layer as f64)).collect();
        for tune in 0..TUNES {
            let moved = 0.0003 * (1 + tune) as f64;
            let tuned: Vec<Vec<f32>> = base.iter().map(|layer| normal.tuned(layer, moved)).collect();
            models.push((family, sketches(&tuned)));
        }
    }
    // Of all pairs: taken for one family or not, and one family or not.
    let mut table = [[0u32; 2]; 2];
    for (at, (family, one)) in models.iter().enumerate() {
        for (other_family, other) in models.iter().skip(at + 1) {
            let is_near = sketched_distance(one, other) < THRESHOLD;
            table[usize::from(is_near)][usize::from(family == other_family)] += 1;
        }
    }
    println!("{:>16}  {:>8}  {:>8}", "", "one", "two");
    println!("{:>16}  {:>8}  {:>8}", "taken for one", table[1][1], table[1][0]);
    println!("{:>16}  {:>8}  {:>8}", "taken for two", table[0][1], table[0][0]);
    let (right, all) = (table[1][1] + table[0][0], table.iter().flatten().sum::<u32>());
    println!("accuracy {:.1} %", 100.0 * f64::from(right) / f64::from(all));
    assert_eq!(all, 66);
    assert!(f64::from(right) >= 0.93 * f64::from(all), "{table:?}");
}
