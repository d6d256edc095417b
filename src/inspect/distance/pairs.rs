//! Pairs each tensor of one model with a tensor of another.
//!
//! 1. Tensors with the same name are a pair.
//! 2. Every other tensor is paired by shape. Among the free tensors of its shape, the neighbours of its rank compete,
//!    and the nearest by sketch wins, because formats name tensors differently.
//! 3. If a pair differs in its number of rows, the common rows are compared, at the beginning or at the end, where they
//!    are nearer. A vocabulary has grown at one of them.
//! 4. A tensor is left out if it has no counterpart, or if the shapes or types of its pair do not match.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use super::compare::LeftOut;
use super::open_model::OpenModel;
use crate::error::Result;
use crate::format::Tensor;
use crate::model::{Sketched, TensorComparer, compare_any, follows_from, sample};
use crate::read_at::unwrapped;

/// Tensors of the same shape that are tried on either side of a rank.
const NEIGHBOURS: usize = 4;

/// Two tensors of which values are compared.
#[derive(Debug, Clone, Copy)]
pub struct TensorPair<'a> {
    /// Tensor of the first model.
    pub one: &'a Tensor,
    /// Tensor of the second model.
    pub other: &'a Tensor,
    /// Values before the first compared one, of both.
    pub skipped: [u64; 2],
    /// Values to compare, of the first model; bytes of types without a fixed width.
    pub values: u64,
}

/// The pairs to compare.
#[derive(Debug, Default)]
pub struct Pairing<'a> {
    /// Sorted by offset in the first model.
    pub pairs: Vec<TensorPair<'a>>,
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
            Some(other) => match fitted([first, second], one, other)? {
                Ok(pair) => pairs.push(pair),
                Err(reason) => leave_out(one, false, reason),
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
    let own = sketch(first, one)?;
    let own = Sketched { dtype: one.dtype, len: one.len, sketch: &own };
    let mut best: Option<(usize, f64)> = None;
    for at in candidates {
        let Some(other) = second.model.tensors.get(*at) else { continue };
        let sketch = sketch(second, other)?;
        let compared = compare_any(own, Sketched { dtype: other.dtype, len: other.len, sketch: &sketch }, true);
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

fn sketch(side: &OpenModel, tensor: &Tensor) -> Result<Vec<u8>> {
    sample(side.source(), tensor, 1).map_err(|error| unwrapped(error, Path::new(&side.label)))
}

/// The values of two tensors that are compared, or why none are.
fn fitted<'a>(
    sides: [&OpenModel; 2],
    one: &'a Tensor,
    other: &'a Tensor,
) -> Result<std::result::Result<TensorPair<'a>, String>> {
    let labels = [sides[0].dtype_name(one), sides[1].dtype_name(other)];
    let whole = TensorPair { one, other, skipped: [0; 2], values: one.len / width(one) };
    let rows = match obstacle(one, other, labels) {
        None => return Ok(Ok(whole)),
        Some(Obstacle::Other(reason)) => return Ok(Err(reason)),
        Some(Obstacle::Rows(values, reason)) => (values, reason),
    };
    let (values, reason) = rows;
    let (own, others) = (one.len / width(one), other.len / width(other));
    let (mut best, mut least) = (Err(reason), f64::INFINITY);
    for skipped in [[0; 2], [own - values, others - values]] {
        let part = |tensor: &Tensor, skipped: u64| Tensor {
            offset: tensor.offset + skipped * width(tensor),
            len: values * width(tensor),
            ..tensor.clone()
        };
        let parts = [part(one, skipped[0]), part(other, skipped[1])];
        let sketches = [sketch(sides[0], &parts[0])?, sketch(sides[1], &parts[1])?];
        let view = |at: usize| Sketched { dtype: parts[at].dtype, len: parts[at].len, sketch: &sketches[at] };
        let Some(found) = compare_any(view(0), view(1), true) else { continue };
        if found.is_near() && found.delta_bits < least {
            (best, least) = (Ok(TensorPair { skipped, values, ..whole }), found.delta_bits);
        }
    }
    Ok(best)
}

/// Bytes of a value; 1 for types without a fixed width.
fn width(tensor: &Tensor) -> u64 {
    tensor.dtype.width().unwrap_or(1) as u64
}

/// Why two tensors cannot be compared value by value.
#[derive(Debug, PartialEq)]
enum Obstacle {
    /// They have so many values in common rows, and the reason if these are not alike.
    Rows(u64, String),
    /// The reason.
    Other(String),
}

fn obstacle(one: &Tensor, other: &Tensor, labels: [Cow<'_, str>; 2]) -> Option<Obstacle> {
    let types = || labels.join(" against ");
    let is_unknown = |label: &str| label.starts_with("F8_") && !matches!(label, "F8_E4M3" | "F8_E5M2");
    let is_quantised = follows_from(one.dtype, other.dtype).is_some() || follows_from(other.dtype, one.dtype).is_some();
    let is_cast = one.dtype != other.dtype;
    let is_known = !is_cast
        || is_quantised
        || TensorComparer::new(one.dtype, other.dtype, true).is_some() && !labels.iter().any(|label| is_unknown(label));
    let (own, others) = (shape_of(one), shape_of(other));
    let values = |tensor: &Tensor| tensor.len / width(tensor);
    let is_whole = |tensor: &Tensor| tensor.len.is_multiple_of(width(tensor));
    if own != others {
        let reason = format!("other shape: {:?} against {:?}", one.shape, other.shape);
        let row = |shape: &[u64]| shape.iter().skip(1).product::<u64>();
        let is_grown = own.len() > 1 && own.len() == others.len() && own.get(1..) == others.get(1..);
        let common = row(&own).saturating_mul(own.first().min(others.first()).copied().unwrap_or(0));
        let fits = is_known && !is_quantised && common > 0 && values(one).min(values(other)) == common;
        return Some(if is_grown && fits { Obstacle::Rows(common, reason) } else { Obstacle::Other(reason) });
    }
    if !is_known {
        return Some(Obstacle::Other(format!("other type: {}", types())));
    }
    let is_equal = match follows_from(one.dtype, other.dtype).or_else(|| follows_from(other.dtype, one.dtype)) {
        Some(block) => {
            let (blocks, floats) = if one.dtype.is_float() { (other, one) } else { (one, other) };
            blocks.len / block.bytes() as u64 * block.values() as u64 == values(floats)
        }
        None => values(one) == values(other) && (!is_cast || is_whole(one) && is_whole(other)),
    };
    let reason = || format!("other length: {} against {} bytes of {}", one.len, other.len, types());
    (!is_equal).then(|| Obstacle::Other(reason()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Dtype;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64], len: u64) -> Tensor {
        Tensor { name: name.into(), dtype, shape: shape.into(), offset: 0, len }
    }

    #[test]
    fn a_mismatch_of_shape_type_or_length_is_reported() {
        let base = tensor("w", Dtype::Float32, &[4, 1], 16);
        let of = |dtype: Dtype, shape: &[u64], len| match obstacle(
            &base,
            &tensor("w", dtype, shape, len),
            ["F32".into(), dtype.name().into()],
        ) {
            Some(Obstacle::Rows(_, reason) | Obstacle::Other(reason)) => Some(reason),
            None => None,
        };
        assert_eq!(of(Dtype::Float32, &[4], 16), None);
        assert_eq!(of(Dtype::Bfloat16, &[4], 8), None);
        assert_eq!(of(Dtype::Float32, &[5], 20).as_deref(), Some("other shape: [4, 1] against [5]"));
        assert_eq!(of(Dtype::Int8, &[4], 4).as_deref(), Some("other type: F32 against I8"));
        assert_eq!(of(Dtype::Float64, &[4], 32).as_deref(), Some("other type: F32 against F64"));
        assert!(of(Dtype::Float32, &[4], 15).is_some_and(|reason| reason.starts_with("other length")));
    }

    #[test]
    fn rows_and_quantised_blocks_fit_by_their_values() {
        let names = || ["F32".into(), "F32".into()];
        let of = |one: &[u64], other: &[u64]| {
            let float = |shape: &[u64]| tensor("w", Dtype::Float32, shape, 4 * shape.iter().product::<u64>());
            match obstacle(&float(one), &float(other), names()) {
                Some(Obstacle::Rows(values, _)) => Some(values),
                _ => None,
            }
        };
        assert_eq!((of(&[8, 4], &[10, 4]), of(&[10, 4], &[8, 4])), (Some(32), Some(32)));
        assert_eq!((of(&[8, 4], &[10, 3]), of(&[8], &[10]), of(&[0, 4], &[8, 4])), (None, None, None));
        let (floats, blocks) =
            (tensor("w", Dtype::Bfloat16, &[2, 64], 256), tensor("w", Dtype::Quantised(8), &[2, 64], 136));
        assert_eq!(obstacle(&floats, &blocks, names()), None);
        assert_eq!(obstacle(&blocks, &floats, names()), None);
        let short = tensor("w", Dtype::Quantised(8), &[2, 64], 102);
        assert!(matches!(obstacle(&short, &floats, names()), Some(Obstacle::Other(_))));
    }
}
