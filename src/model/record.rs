//! Records: the description of a model file that the repository stores.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::relation::Relation;
use super::scaled::{name_of_floats, unpacked_shape};
use super::sketch::Sketched;
use crate::config::CHUNK_BYTES_LIMIT;
use crate::error::{Error, Result};
use crate::format::{Dtype, Tensor};
use crate::repo::MetadataBase;
use crate::types::Fingerprint;

/// Bytes of a record, at most. A model whose record would be larger has none.
pub const RECORD_BYTES_MAX: usize = 8 << 20;
/// First bytes of a stored record: type and version.
const PREFIX: [u8; 2] = [b'M', 1];
/// Ways to take a tensor as a matrix, at most.
const ROWS_MAX: usize = 8;
/// Hashes in each half of a model's keys, at most.
const KEYS_MAX: usize = 16;

/// A tensor large enough to be cut into blocks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TensorRecord {
    /// Name of the tensor in the file.
    #[n(0)]
    pub name: String,
    /// [`Dtype::code`].
    #[n(1)]
    pub dtype: u16,
    /// Its dimensions.
    #[n(2)]
    pub shape: Vec<u64>,
    /// Offset in the file.
    #[n(3)]
    pub offset: u64,
    /// Bytes of the tensor.
    #[n(4)]
    pub len: u64,
    /// A few of its values ([`sample`](super::sample)).
    #[cbor(n(5), with = "minicbor::bytes")]
    pub sketch: Vec<u8>,
    /// Fingerprints of its blocks, 32 bytes each, one after another.
    #[cbor(n(6), with = "minicbor::bytes")]
    pub blocks: Vec<u8>,
}

/// The model that another one descends from: the nearest of the models that hold bases of its tensors.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct BaseModel {
    /// Id of the model.
    #[n(0)]
    pub id: Fingerprint,
    /// Mean number of differing bits of a value of the two models, estimated from the sketches. Wider floats are
    /// rounded to BF16.
    #[n(1)]
    pub bit_distance: f64,
    /// Bytes of the tensors that have a base in it.
    #[n(2)]
    pub bytes: u64,
    /// Whether most of one model is the cast of the other.
    #[n(3)]
    pub is_cast: bool,
    /// [`Relation::number`]. Older writers did not note it.
    #[n(4)]
    pub relation: Option<u8>,
}

/// The record of a model file.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct ModelRecord {
    /// Id of the model: BLAKE3 over the fingerprints of the file's chunks in order.
    #[n(0)]
    pub id: Fingerprint,
    /// Format of the file.
    #[n(1)]
    pub format: String,
    /// Path of the file when it was stored first, as bytes.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// Names by which cards may refer to it: its directory, its file, its repository on a hub.
    #[n(3)]
    pub names: Vec<String>,
    /// Names of the bases in its card.
    #[n(4)]
    pub bases: Vec<String>,
    /// Bytes of the file.
    #[n(5)]
    pub bytes: u64,
    /// Number of values of all tensors, without copies of others and the state of optimizers.
    #[n(6)]
    pub parameters: u64,
    /// Bytes of a block.
    #[n(7)]
    pub block_bytes: u64,
    /// Tensors that are cut into blocks, ascending by offset.
    #[n(8)]
    pub tensors: Vec<TensorRecord>,
    /// The model that it descends from.
    #[n(9)]
    pub base: Option<BaseModel>,
    /// Fingerprint of the file's content (its only chunk or its root recipe), set after the file is saved.
    #[n(10)]
    pub content: Option<Fingerprint>,
    /// Evidence of its family ([`super::evidence`]). Older writers did not note it.
    #[n(11)]
    pub evidence: Option<Vec<u64>>,
}

/// A model all of whose chunks have been noted.
#[derive(Debug)]
pub struct FinishedModel {
    /// Its record.
    pub record: Arc<ModelRecord>,
    /// The stored record of its base, or the one that this copies ranges of.
    pub like: Option<MetadataBase>,
}

/// Fingerprint `index` of a list as in [`TensorRecord::blocks`].
pub(super) fn block_of(fingerprints: &[u8], index: u64) -> Option<Fingerprint> {
    let start = usize::try_from(index).ok()?.checked_mul(32)?;
    let bytes = fingerprints.get(start..start.checked_add(32)?)?;
    bytes.try_into().ok().map(Fingerprint)
}

impl BaseModel {
    /// How the model relates to this base. Older records, and those of newer versions, tell casts from deltas only.
    pub fn relation(&self) -> Relation {
        let noted = self.relation.and_then(Relation::of_number);
        noted.unwrap_or(if self.is_cast { Relation::Cast } else { Relation::Near })
    }
}

impl TensorRecord {
    /// The record of a tensor without its blocks.
    pub(super) fn of(tensor: &Tensor, sketch: Vec<u8>) -> Self {
        let Tensor { name, dtype, shape, offset, len } = tensor.clone();
        TensorRecord { name, dtype: dtype.code(), shape, offset, len, sketch, blocks: Vec::new() }
    }

    /// Type of its values.
    pub fn dtype(&self) -> Dtype {
        Dtype::from_code(self.dtype).unwrap_or(Dtype::Other)
    }

    /// The tensor as its sketch shows it.
    pub fn sketched(&self) -> Sketched<'_> {
        Sketched { dtype: self.dtype(), len: self.len, sketch: &self.sketch }
    }

    /// Fingerprint of block `index`.
    pub fn block(&self, index: u64) -> Option<Fingerprint> {
        block_of(&self.blocks, index)
    }

    /// Bytes of a row, for each way to take it as a matrix; at most `ROWS_MAX`, the longest first.
    pub fn row_bytes(&self) -> Vec<u64> {
        let mut rows = Vec::new();
        let mut row = self.len;
        for dimension in self.shape.iter().filter(|dimension| **dimension > 1).take(ROWS_MAX) {
            if !row.is_multiple_of(*dimension) {
                break;
            }
            row /= dimension;
            rows.push(row);
        }
        rows
    }

    /// Hash of its name and of its dimensions except the first, which grows with a vocabulary.
    pub(super) fn named_key(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes());
        for dimension in self.shape.iter().skip(1) {
            hasher.update(&dimension.to_le_bytes());
        }
        Fingerprint(*hasher.finalize().as_bytes()).prefix()
    }

    /// Its dimensions above 1, in ascending order.
    pub fn unordered_shape(&self) -> Vec<u64> {
        sorted_dimensions(&self.shape)
    }

    /// Hash of its dimensions in any order: other formats reverse them and use other names.
    pub(super) fn shape_key(&self) -> u64 {
        let shape = self.unordered_shape();
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"shape");
        for dimension in shape {
            hasher.update(&dimension.to_le_bytes());
        }
        Fingerprint(*hasher.finalize().as_bytes()).prefix()
    }
}

/// The dimensions above 1 of a shape, in ascending order.
pub(super) fn sorted_dimensions(shape: &[u64]) -> Vec<u64> {
    let mut shape: Vec<u64> = shape.iter().copied().filter(|dimension| *dimension > 1).collect();
    shape.sort_unstable();
    shape
}

impl ModelRecord {
    /// The hashes by which models are found that this one may be near to: its own, and those that it would have if its
    /// packed codes were floats.
    pub fn wanted_keys(&self) -> Vec<u64> {
        let mut keys = self.keys();
        let unpacked = |tensor: &TensorRecord| {
            let name = name_of_floats(&tensor.name).unwrap_or_else(|| tensor.name.clone());
            Some(TensorRecord {
                name,
                shape: unpacked_shape(tensor)?,
                blocks: Vec::new(),
                sketch: Vec::new(),
                ..*tensor
            })
        };
        let tensors: Vec<TensorRecord> = self.tensors.iter().filter_map(unpacked).collect();
        if !tensors.is_empty() {
            keys.extend(keys_of(&tensors));
        }
        keys
    }

    /// The smallest hashes of its tensors' names and shapes. Models of one architecture share them.
    pub fn keys(&self) -> Vec<u64> {
        keys_of(&self.tensors)
    }

    /// Bytes of tensors by the code of their type.
    pub fn dtypes(&self) -> Vec<(u16, u64)> {
        let mut totals: Vec<(u16, u64)> = Vec::new();
        for tensor in &self.tensors {
            match totals.iter_mut().find(|total| total.0 == tensor.dtype) {
                Some(total) => total.1 = total.1.saturating_add(tensor.len),
                None => totals.push((tensor.dtype, tensor.len)),
            }
        }
        totals
    }

    /// The type with most bytes, and their number.
    pub fn main_dtype(&self) -> (Dtype, u64) {
        let most = self.dtypes().into_iter().max_by_key(|total| total.1);
        most.map_or((Dtype::Other, 0), |(code, bytes)| (Dtype::from_code(code).unwrap_or(Dtype::Other), bytes))
    }

    /// Bytes of memory, approximately.
    pub fn memory_bytes(&self) -> usize {
        let of = |tensor: &TensorRecord| {
            size_of::<TensorRecord>()
                + tensor.name.len()
                + tensor.shape.len() * 8
                + tensor.sketch.len()
                + tensor.blocks.len()
        };
        size_of::<ModelRecord>() + self.path.len() + self.tensors.iter().map(of).sum::<usize>()
    }

    /// Encodes the record; `None` if it would be too long.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn encode(&self) -> Result<Option<Vec<u8>>> {
        let mut bytes = PREFIX.to_vec();
        minicbor::encode(self, &mut bytes)
            .map_err(|error| Error::internal(format!("cannot encode a model's record: {error}")))?;
        Ok((bytes.len() <= RECORD_BYTES_MAX).then_some(bytes))
    }

    /// Decodes the record that is stored as chunk `fingerprint`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Unsupported`] for one of a newer version.
    pub fn decode(fingerprint: &Fingerprint, bytes: &[u8]) -> Result<ModelRecord> {
        let corrupt = |got: String| Error::corrupt(format!("model record {fingerprint}"), 0, "a model's record", got);
        let Some(map) = bytes.strip_prefix(&PREFIX) else {
            if let ([kind, _], Some([found, version])) = (PREFIX, bytes.first_chunk())
                && kind == *found
            {
                let unknown = format!("version {version} of records");
                return Err(Error::unsupported(format!("model record {fingerprint}"), unknown));
            }
            return Err(corrupt(format!("{:?}", bytes.get(..2))));
        };
        let record: ModelRecord = minicbor::decode(map).map_err(|error| corrupt(error.to_string()))?;
        if !(1..=CHUNK_BYTES_LIMIT).contains(&record.block_bytes) {
            return Err(corrupt(format!("blocks of {} bytes", record.block_bytes)));
        }
        Ok(record)
    }
}

/// The smallest hashes of names and shapes.
fn keys_of(tensors: &[TensorRecord]) -> Vec<u64> {
    let smallest = |mut keys: Vec<u64>| {
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(KEYS_MAX);
        keys
    };
    let mut keys = smallest(tensors.iter().map(TensorRecord::named_key).collect());
    keys.extend(smallest(tensors.iter().map(TensorRecord::shape_key).collect()));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tensor_has_rows_for_each_dimension() {
        let rows = |len: u64, shape: &[u64]| TensorRecord { len, ..tensor("w", shape) }.row_bytes();
        assert_eq!(rows(2 * 3 * 5 * 7, &[3, 1, 5, 7]), [70, 14, 2]);
        assert_eq!(rows(34, &[2, 32]), [17], "quantised blocks");
        assert_eq!((rows(10, &[]), rows(0, &[7]), rows(10, &[0, 4])), (vec![], vec![0], vec![]));
        assert_eq!(rows(1 << 12, &[2; 12]).len(), ROWS_MAX);
    }

    fn tensor(name: &str, shape: &[u64]) -> TensorRecord {
        let (sketch, blocks) = (vec![1, 2], [[3; 32], [4; 32]].concat());
        TensorRecord { name: name.into(), dtype: 1, shape: shape.into(), offset: 0, len: 9, sketch, blocks }
    }

    fn record(tensors: Vec<TensorRecord>) -> ModelRecord {
        ModelRecord {
            id: Fingerprint([7; 32]),
            content: None,
            format: "gguf".into(),
            path: b"a/b".to_vec(),
            names: vec!["x".into()],
            bases: Vec::new(),
            evidence: Some(vec![5]),
            bytes: 100,
            parameters: 3,
            block_bytes: 10,
            tensors,
            base: Some(BaseModel {
                id: Fingerprint([8; 32]),
                bit_distance: 1.5,
                bytes: 3,
                is_cast: false,
                relation: Some(1),
            }),
        }
    }

    #[test]
    fn a_decoded_record_equals_the_original() {
        let record = record(vec![tensor("w", &[2, 3])]);
        let bytes = record.encode().unwrap().unwrap();
        assert_eq!(ModelRecord::decode(&Fingerprint([0; 32]), &bytes).unwrap(), record);
        assert_eq!(record.tensors[0].block(1), Some(Fingerprint([4; 32])));
        assert_eq!(record.tensors[0].block(2), None);
        assert_eq!(record.tensors[0].block(u64::MAX), None);
    }

    #[test]
    fn a_record_without_a_valid_block_length_is_damaged() {
        for block_bytes in [0, CHUNK_BYTES_LIMIT + 1, u64::MAX] {
            let bytes = ModelRecord { block_bytes, ..record(Vec::new()) }.encode().unwrap().unwrap();
            assert!(matches!(ModelRecord::decode(&Fingerprint([0; 32]), &bytes), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn keys_survive_growth_and_other_formats() {
        let keys = |tensors: &[TensorRecord]| record(tensors.to_vec()).keys();
        let common = |a: &[u64], b: &[u64]| a.iter().filter(|key| b.contains(key)).count();
        let base = keys(&[tensor("embed", &[1000, 64]), tensor("w", &[64, 64])]);
        let grown = keys(&[tensor("embed", &[1002, 64]), tensor("w", &[64, 64])]);
        let rotated = keys(&[tensor("token_embd", &[64, 1000]), tensor("attn", &[64, 64])]);
        assert_eq!(common(&base, &base), 4);
        assert_eq!(common(&base, &grown), 3);
        assert_eq!(common(&base, &rotated), 2);
    }

    proptest! {
        #[test]
        fn hostile_records_are_errors(bytes: Vec<u8>) {
            let _ = ModelRecord::decode(&Fingerprint([0; 32]), &[&PREFIX, bytes.as_slice()].concat());
        }
    }
}
