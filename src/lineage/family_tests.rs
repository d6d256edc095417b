//! Which stored models a new one is compared with, and what it is stored against.

use std::sync::Arc;

use super::*;
use crate::format::{Dtype, Tensor};
use crate::types::Fingerprint;

const VALUES: usize = 4096;

/// BF16 weights: signs, exponents around 2^-6, and seven bits that are as good as random.
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

/// The same with every `nth` value one step further.
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
        bytes: 0,
        parameters: 0,
        block_bytes: 1,
        tensors: tensors.iter().enumerate().map(of).collect(),
        base: None,
    }
}

fn model(seed: u64) -> Vec<Vec<u16>> {
    (0..4).map(|layer| weights(4 * seed + layer)).collect()
}

fn tune(model: &[Vec<u16>], nth: usize) -> Vec<Vec<u16>> {
    model.iter().map(|tensor| tuned(tensor, nth)).collect()
}

#[test]
fn the_base_shown_is_the_nearest_model_at_the_distance_of_the_whole() {
    // Most of the bytes are those of a distant relative, the rest is nearest to another.
    let base = model(1);
    let near = tune(&base, 2);
    let mut new = tune(&near, 8);
    let mut relative = model(9);
    let far = vec![new[0].clone(), new[1].clone(), new[2].clone(), relative.remove(3)];
    new[3] = tuned(&near[3], 8);
    let (near, far) = (Arc::new(record(1, &near)), Arc::new(record(2, &far)));
    let new = record(1000, &new);
    for candidates in [[near.clone(), far.clone()], [far.clone(), near.clone()]] {
        let choice = choose(&new, &candidates);
        let ids: Vec<Option<Fingerprint>> =
            choice.tensors.iter().map(|base| base.as_ref().map(|base| base.model.id)).collect();
        assert_eq!(ids, [Some(id(2)), Some(id(2)), Some(id(2)), Some(id(1))]);
        let shown = choice.base.unwrap();
        let whole = likeness(&new, &Places::of(&near)).unwrap();
        assert_eq!((shown.id, shown.bytes), (id(1), 2 * VALUES as u64));
        assert!(shown.bit_distance == whole.bit_distance && shown.bit_distance > 0.1, "{shown:?} {whole:?}");
    }
}
