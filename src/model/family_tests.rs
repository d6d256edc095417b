//! Tests: candidates and bases of new models.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::error::Result;
use crate::format::{Dtype, Tensor};
use crate::types::Fingerprint;

const VALUES: usize = 4096;

/// BF16 weights: random signs, exponents around 2^-6, random mantissas.
fn weights(seed: u64) -> Vec<u16> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let value = |random: u64| (random as u16 & 0x80ff) | ((119 + (random >> 20 & 3) as u16) << 7);
    (0..VALUES).map(|_| value(next() >> 11)).collect()
}

/// The same weights with one unit added to every `nth` value.
fn tuned(weights: &[u16], nth: usize) -> Vec<u16> {
    weights.iter().enumerate().map(|(at, value)| value + u16::from(at % nth == 0)).collect()
}

fn id(number: u16) -> Fingerprint {
    let mut id = [0; 32];
    id[..2].copy_from_slice(&number.to_le_bytes());
    Fingerprint(id)
}

fn record(number: u16, tensors: &[Vec<u16>]) -> ModelRecord {
    let of = |(at, values): (usize, &Vec<u16>)| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (name, shape, len) = (format!("layer.{at}"), vec![64, 64], bytes.len() as u64);
        let tensor = Tensor { name: name.clone(), dtype: Dtype::Bfloat16, shape: shape.clone(), offset: 0, len };
        let sketch = sample(&bytes, &tensor, tensors.len()).unwrap();
        TensorRecord { name, dtype: Dtype::Bfloat16.code(), shape, offset: 0, len, sketch, blocks: Vec::new() }
    };
    ModelRecord {
        id: id(number),
        content: Some(id(number)),
        format: "safetensors".into(),
        path: Vec::new(),
        names: vec![format!("model-{number}")],
        bases: Vec::new(),
        evidence: None,
        bytes: 0,
        parameters: 0,
        block_bytes: 1,
        tensors: tensors.iter().enumerate().map(of).collect(),
        base: None,
    }
}

/// Stored records and a counter of reads.
struct Stored {
    records: HashMap<Fingerprint, Arc<ModelRecord>>,
    families: Families,
    reads: Cell<usize>,
}

impl Stored {
    /// Stores `records`, the oldest first.
    fn of(records: Vec<ModelRecord>) -> Self {
        let entries = records.iter().map(|record| CatalogueEntry::new(record, record.id)).collect();
        let records = records.into_iter().map(|record| (record.id, Arc::new(record))).collect();
        Stored { records, families: Families::new(entries, false, 32 << 20), reads: Cell::new(0) }
    }

    fn candidates(&mut self, new: &ModelRecord, previous_version: Option<Fingerprint>) -> Vec<Arc<ModelRecord>> {
        let (records, reads) = (&self.records, &self.reads);
        let mut load = |fingerprint: &Fingerprint| -> Result<Option<Arc<ModelRecord>>> {
            reads.set(reads.get() + 1);
            Ok(records.get(fingerprint).cloned())
        };
        self.families.candidates(new, previous_version, &mut load).unwrap()
    }
}

fn model(seed: u64) -> Vec<Vec<u16>> {
    (0..4).map(|layer| weights(4 * seed + layer)).collect()
}

fn tune(model: &[Vec<u16>], nth: usize) -> Vec<Vec<u16>> {
    model.iter().map(|tensor| tuned(tensor, nth)).collect()
}

#[test]
fn the_base_is_found_among_many_models_and_each_record_is_read_once() {
    let mut stored = Stored::of((0..300).map(|number| record(number, &model(number.into()))).collect());
    for of in [0u16, 150, 299] {
        let new = record(1000, &tune(&model(of.into()), 3));
        let candidates = stored.candidates(&new, None);
        assert!(candidates.len() <= 16, "{}", candidates.len());
        let choice = choose(&new, &candidates, false);
        assert_eq!(choice.base.map(|base| base.id), Some(id(of)));
        assert!(
            choice.tensors.iter().flatten().all(|base| base.model.as_ref().is_some_and(|model| model.id == id(of)))
                && choice.tensors.len() == 4
        );
    }
    assert!(stored.reads.get() <= 300 + 3 * 16, "{} reads", stored.reads.get());
}

#[test]
fn many_relatives_of_one_model_do_not_hide_the_base_of_other_tensors() {
    let (one, other) = (model(1), model(2));
    // Two layers of one model, which has 40 fine-tunes, and two layers of another.
    let new: Vec<Vec<u16>> = one.iter().take(2).chain(other.iter().skip(2)).map(|tensor| tuned(tensor, 5)).collect();
    let mut records = vec![record(0, &other)];
    records.extend((1..41).map(|number| record(number, &tune(&one, number.into()))));
    let mut stored = Stored::of(records);
    let new = record(1000, &new);
    let choice = choose(&new, &stored.candidates(&new, None), false);
    let bases: Vec<Option<Fingerprint>> =
        choice.tensors.iter().map(|base| base.as_ref().and_then(|base| Some(base.model.as_ref()?.id))).collect();
    assert_eq!(bases[2..], [Some(id(0)), Some(id(0))]);
    assert!(bases[..2].iter().all(|base| base.is_some_and(|base| base != id(0))), "{bases:?}");
}

#[test]
fn the_previous_version_and_named_models_are_candidates_at_any_distance() {
    let near = model(1);
    let mut records = vec![record(0, &model(5)), record(1, &model(6))];
    records.extend((2..60).map(|number| record(number, &tune(&near, number.into()))));
    let mut stored = Stored::of(records);
    let new = ModelRecord { bases: vec!["model-1".into()], ..record(1000, &tune(&near, 7)) };
    let ids: Vec<Fingerprint> = stored.candidates(&new, Some(id(0))).iter().map(|record| record.id).collect();
    assert!(ids.contains(&id(0)) && ids.contains(&id(1)) && ids.contains(&id(7)), "{ids:?}");
}

/// A card names a base that is not there, and models of one architecture are many.
#[test]
fn a_sibling_is_the_surrogate_of_a_base_that_is_missing() {
    let far = model(5);
    let named = |number, bases: &str| ModelRecord { bases: vec![bases.into()], ..record(number, &far) };
    let others = (2..60).map(|number| record(number, &tune(&model(1), number.into())));
    let ids_with = |first: Vec<ModelRecord>, new: &ModelRecord| -> Vec<Fingerprint> {
        let mut stored = Stored::of(first.into_iter().chain(others.clone()).collect());
        stored.candidates(new, None).iter().map(|record| record.id).collect()
    };
    let new = ModelRecord { bases: vec!["Gone".into()], ..record(1000, &tune(&model(1), 7)) };
    assert!(ids_with(vec![named(0, "gone"), named(1, "other")], &new).contains(&id(0)));
    assert!(!ids_with(vec![named(0, "gone"), named(1, "other")], &new).contains(&id(1)));
    let there = ModelRecord { names: vec!["gone".into()], ..record(61, &model(6)) };
    assert!(!ids_with(vec![named(0, "gone"), there], &new).contains(&id(0)), "the base is there");
    let of_family = |number, signs: &[u64]| ModelRecord { evidence: Some(signs.to_vec()), ..record(number, &far) };
    let tokenizer = 3 << 62 | 1;
    let new = ModelRecord { evidence: Some(vec![5, 6, tokenizer]), ..new };
    let first = vec![of_family(0, &[5]), of_family(1, &[5, 6]), of_family(61, &[tokenizer])];
    let ids = ids_with(first, &new);
    assert!(ids.contains(&id(61)) && ids.contains(&id(1)) && !ids.contains(&id(0)), "{ids:?}");
}

#[test]
fn an_unreadable_record_does_not_hide_another() {
    let mut stored = Stored::of((0..40).map(|number| record(number, &model(number.into()))).collect());
    (20..40).for_each(|number| drop(stored.records.remove(&id(number))));
    let new = record(1000, &tune(&model(3), 3));
    let choice = choose(&new, &stored.candidates(&new, None), false);
    assert_eq!(choice.base.map(|base| base.id), Some(id(3)));
}

#[test]
fn models_that_are_candidates_stay_in_memory() {
    let mut families = Families::new(Vec::new(), false, 32 << 20);
    let mut none = |_: &Fingerprint| -> Result<Option<Arc<ModelRecord>>> { Ok(None) };
    // Each record needs 1 MiB, so 32 fit in memory.
    let large = |number: u16, tensors: &[Vec<u16>]| {
        let mut record = record(number, tensors);
        record.tensors[0].blocks = vec![0; 1 << 20];
        record
    };
    let base = model(1);
    families.add(Arc::new(large(0, &base)));
    for number in 1..100 {
        let new = large(number, &if number % 10 == 0 { tune(&base, 3) } else { model(1000 + u64::from(number)) });
        let candidates = families.candidates(&new, None, &mut none).unwrap();
        if number % 10 == 0 {
            assert!(candidates.iter().any(|record| record.id == id(0)), "{number}");
        }
        families.add(Arc::new(new));
    }
}

#[test]
fn the_base_is_the_nearest_model_and_its_distance_counts_all_tensors() {
    // Three tensors are copies of those of a distant relative; the fourth is nearest to another model.
    let base = model(1);
    let near = tune(&base, 2);
    let mut new = tune(&near, 8);
    let mut relative = model(9);
    let far = vec![new[0].clone(), new[1].clone(), new[2].clone(), relative.remove(3)];
    new[3] = tuned(&near[3], 8);
    let (near, far) = (Arc::new(record(1, &near)), Arc::new(record(2, &far)));
    let new = record(1000, &new);
    for candidates in [[near.clone(), far.clone()], [far.clone(), near.clone()]] {
        let choice = choose(&new, &candidates, false);
        let ids: Vec<Option<Fingerprint>> =
            choice.tensors.iter().map(|base| base.as_ref().and_then(|base| Some(base.model.as_ref()?.id))).collect();
        assert_eq!(ids, [Some(id(2)), Some(id(2)), Some(id(2)), Some(id(1))]);
        let shown = choice.base.unwrap();
        let whole = compare_models(&new, &TensorLookup::of(&near)).unwrap();
        assert_eq!((shown.id, shown.bytes), (id(1), 2 * VALUES as u64));
        assert!(shown.bit_distance == whole.bit_distance && shown.bit_distance > 0.1, "{shown:?} {whole:?}");
    }
}
