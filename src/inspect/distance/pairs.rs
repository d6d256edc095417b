//! Pairs each tensor of one model with a tensor of another.
//!
//! 1. Tensors with the same name are a pair.
//! 2. Every other tensor is paired by shape. Among the free tensors of its shape, the neighbours of its rank compete,
//!    and the nearest by sketch wins, because formats name tensors differently.
//! 3. A tensor is left out if it has no counterpart, or if the shapes or types of its pair do not match.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use super::compare::LeftOut;
use super::open_model::OpenModel;
use crate::error::Result;
use crate::format::{Dtype, Tensor};
use crate::model::{Sketched, compare, sample};
use crate::read_at::unwrapped;

/// Tensors of the same shape that are tried on either side of a rank.
const NEIGHBOURS: usize = 4;

/// The pairs to compare.
#[derive(Debug, Default)]
pub struct Pairing<'a> {
    /// Sorted by offset in the first model.
    pub pairs: Vec<(&'a Tensor, &'a Tensor)>,
    /// Tensors without a pair to compare.
    pub left_out: Vec<LeftOut>,
}

/// Pairs the tensors of two models.
///
/// # Errors
/// Fails if a sketch cannot be read.
pub fn pair<'a>(first: &'a OpenModel, second: &'a OpenModel) -> Result<Pairing<'a>> {
    let (ones, others) = (&first.model.tensors, &second.model.tensors);
    let names: HashMap<&str, usize> = others.iter().enumerate().map(|(at, other)| (&*other.name, at)).collect();
    let mut found: Vec<Option<usize>> = ones.iter().map(|one| names.get(one.name.as_str()).copied()).collect();
    let mut is_taken = vec![false; others.len()];
    found.iter().flatten().for_each(|at| mark(&mut is_taken, *at));
    let mut shapes: HashMap<Vec<u64>, Vec<usize>> = HashMap::new();
    for (at, other) in others.iter().enumerate().filter(|(at, _)| !is_taken.get(*at).copied().unwrap_or(true)) {
        shapes.entry(shape_of(other)).or_default().push(at);
    }
    let mut ranks: HashMap<Vec<u64>, usize> = HashMap::new();
    for (one, found) in ones.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        let shape = shape_of(one);
        let same_shape = shapes.get(&shape);
        let rank = ranks.entry(shape).or_default();
        let (from, to) = (rank.saturating_sub(NEIGHBOURS), *rank + NEIGHBOURS + 1);
        let near = same_shape.into_iter().flatten().take(to).skip(from).copied();
        let free: Vec<usize> = near.filter(|at| is_taken.get(*at) == Some(&false)).collect();
        *rank += 1;
        *found = nearest(first, one, second, &free)?;
        found.iter().for_each(|at| mark(&mut is_taken, *at));
    }
    let mut pairing = Pairing::default();
    let mut leave_out = |tensor: &Tensor, is_second, reason| {
        pairing.left_out.push(LeftOut { tensor: tensor.name.clone(), is_second, reason });
    };
    let mut pairs = Vec::new();
    for (one, found) in ones.iter().zip(&found) {
        match found.and_then(|at| others.get(at)) {
            None => leave_out(one, false, "no counterpart".into()),
            Some(other) => match obstacle(one, other, [first.dtype_name(one), second.dtype_name(other)]) {
                Some(reason) => leave_out(one, false, reason),
                None => pairs.push((one, other)),
            },
        }
    }
    for (other, _) in others.iter().zip(&is_taken).filter(|(_, is_taken)| !**is_taken) {
        leave_out(other, true, "no counterpart".into());
    }
    pairing.pairs = pairs;
    Ok(pairing)
}

fn mark(is_taken: &mut [bool], at: usize) {
    if let Some(is_taken) = is_taken.get_mut(at) {
        *is_taken = true;
    }
}

/// The candidate that is nearest by sketch. A single candidate is not read.
fn nearest(first: &OpenModel, one: &Tensor, second: &OpenModel, candidates: &[usize]) -> Result<Option<usize>> {
    if candidates.len() < 2 {
        return Ok(candidates.first().copied());
    }
    let read = |side: &OpenModel, tensor: &Tensor| {
        sample(side.source(), tensor, 1).map_err(|error| unwrapped(error, Path::new(&side.label)))
    };
    let own = read(first, one)?;
    let own = Sketched { dtype: one.dtype, len: one.len, sketch: &own };
    let mut best: Option<(usize, f64)> = None;
    for at in candidates {
        let Some(other) = second.model.tensors.get(*at) else { continue };
        let sketch = read(second, other)?;
        let compared = compare(own, Sketched { dtype: other.dtype, len: other.len, sketch: &sketch }, false);
        if let Some(compared) = compared
            && best.is_none_or(|best| compared.delta_bits < best.1)
        {
            best = Some((*at, compared.delta_bits));
        }
    }
    Ok(best.map(|best| best.0).or(candidates.first().copied()))
}

/// The dimensions other than 1.
fn shape_of(tensor: &Tensor) -> Vec<u64> {
    tensor.shape.iter().copied().filter(|dimension| *dimension != 1).collect()
}

/// Why two tensors cannot be compared value by value.
fn obstacle(one: &Tensor, other: &Tensor, labels: [Cow<'_, str>; 2]) -> Option<String> {
    if shape_of(one) != shape_of(other) {
        return Some(format!("other shape: {:?} against {:?}", one.shape, other.shape));
    }
    let types = || labels.join(" against ");
    let is_cast = match (one.dtype, other.dtype) {
        (same, other) if same == other => false,
        (Dtype::Float32, Dtype::Bfloat16 | Dtype::Float16) | (Dtype::Bfloat16 | Dtype::Float16, Dtype::Float32) => true,
        _ => return Some(format!("other type: {}", types())),
    };
    let values = |tensor: &Tensor| tensor.len / tensor.dtype.width().unwrap_or(1) as u64;
    let is_whole = |tensor: &Tensor| tensor.len.is_multiple_of(tensor.dtype.width().unwrap_or(1) as u64);
    if values(one) != values(other) || is_cast && !(is_whole(one) && is_whole(other)) {
        return Some(format!("other length: {} against {} bytes of {}", one.len, other.len, types()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64], len: u64) -> Tensor {
        Tensor { name: name.into(), dtype, shape: shape.into(), offset: 0, len }
    }

    #[test]
    fn a_mismatch_of_shape_type_or_length_is_reported() {
        let base = tensor("w", Dtype::Float32, &[4, 1], 16);
        let of = |dtype: Dtype, shape: &[u64], len| {
            obstacle(&base, &tensor("w", dtype, shape, len), ["F32".into(), dtype.name().into()])
        };
        assert_eq!(of(Dtype::Float32, &[4], 16), None);
        assert_eq!(of(Dtype::Bfloat16, &[4], 8), None);
        assert_eq!(of(Dtype::Float32, &[5], 20).as_deref(), Some("other shape: [4, 1] against [5]"));
        assert_eq!(of(Dtype::Quantised(8), &[4], 16).as_deref(), Some("other type: F32 against Q8_0"));
        assert!(of(Dtype::Float32, &[4], 15).is_some_and(|reason| reason.starts_with("other length")));
    }
}
