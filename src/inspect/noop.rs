//! No-op rates: which tensors of a checkpoint are byte-identical to those of the step before.
//!
//! 1. The model files of each step are found and their tensors listed. A file with the same content as in the step
//!    before is not read.
//! 2. A tensor that consists of whole chunks is compared by their fingerprints, if both steps split it alike. Any other
//!    is read and hashed.
//! 3. The rate counts tensors that both steps have under the same path and name. New tensors, such as the trees that a
//!    boosted model adds, do not lower it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::list::{Visit, walk_finding};
use crate::error::{Error, Result};
use crate::format::{HEAD_BYTES, Recognition, Tensor, may_be_model, recognise};
use crate::read_at::unwrapped;
use crate::repo::Repository;
use crate::repo::read::{Reader, StoredFile};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::NodeKind;

/// Tensors of one step that are compared.
const TENSORS_MAX: usize = 1 << 20;
/// Files of one step that are examined.
const FILES_MAX: usize = 1 << 16;

/// Result of comparing a step with the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct NoopCount {
    /// Tensors of the step.
    pub tensors: u64,
    /// Tensors that the step before has as well.
    pub compared: u64,
    /// Tensors whose bytes are the same in both.
    pub identical: u64,
}

impl NoopCount {
    /// Identical tensors per compared one. `None` if none was compared.
    pub fn rate(&self) -> Option<f64> {
        (self.compared > 0).then(|| self.identical as f64 / self.compared as f64)
    }
}

/// In how many steps a tensor stayed the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TensorNoops {
    /// Steps in which it equals that of the step before.
    pub identical: u64,
    /// Steps in which it differs.
    pub changed: u64,
}

/// A tensor: path of its file, and its name.
pub type TensorKey = (Vec<u8>, String);

/// Compares the steps of one run, one after another.
pub struct NoopSteps<'a> {
    reader: Reader,
    stop: &'a AtomicBool,
    previous: Option<StepTensors>,
    /// By tensor, over all steps so far.
    pub tensors: BTreeMap<TensorKey, TensorNoops>,
}

/// Tensors of a step.
type StepTensors = BTreeMap<TensorKey, StoredTensor>;

/// A tensor in a stored file.
#[derive(Clone)]
struct StoredTensor {
    content: ContentReference,
    offset: u64,
    len: u64,
    /// Hash of the lengths of its chunks, and of their fingerprints. `None` unless it consists of whole chunks.
    chunks: Option<(blake3::Hash, blake3::Hash)>,
}

impl<'a> NoopSteps<'a> {
    /// A comparison of snapshots of `repository`.
    ///
    /// # Errors
    /// Fails if the repository cannot be listed.
    pub fn new(repository: &Repository, stop: &'a AtomicBool) -> Result<Self> {
        Ok(NoopSteps { reader: Reader::open(repository)?, stop, previous: None, tensors: BTreeMap::new() })
    }

    /// Compares `snapshot` with the one of the previous call. The first has nothing to compare with.
    ///
    /// # Errors
    /// Errors of reading, and [`Error::Interrupted`] once the flag of [`Self::new`] is set. After an error the next
    /// step has nothing to compare with.
    pub fn next(&mut self, snapshot: &NamedSnapshot) -> Result<NoopCount> {
        let previous = self.previous.take();
        let tensors = self.step(snapshot, previous.as_ref())?;
        let mut count = NoopCount { tensors: tensors.len() as u64, ..NoopCount::default() };
        for (key, tensor) in &tensors {
            let Some(before) = previous.as_ref().and_then(|previous| previous.get(key)) else { continue };
            let is_identical = self.is_identical(before, tensor)?;
            count.compared += 1;
            count.identical += u64::from(is_identical);
            let noops = self.tensors.entry(key.clone()).or_default();
            noops.identical += u64::from(is_identical);
            noops.changed += u64::from(!is_identical);
        }
        self.previous = Some(tensors);
        Ok(count)
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The tensors of a snapshot.
    fn step(&mut self, snapshot: &NamedSnapshot, previous: Option<&StepTensors>) -> Result<StepTensors> {
        let mut files = Vec::new();
        walk_finding(&mut self.reader.chunks(), snapshot, None, &mut |path, node| {
            if node.kind == NodeKind::File
                && let Some(content) = node.content
                && files.len() < FILES_MAX
            {
                files.push((path.to_path_buf(), content, node.size));
                return Ok(Visit::Found);
            }
            Ok(if files.len() < FILES_MAX { Visit::Other } else { Visit::Skip })
        })?;
        let mut tensors = StepTensors::new();
        for (path, content, size) in files {
            self.check_stop()?;
            let bytes = path.as_os_str().as_encoded_bytes().to_vec();
            let of_file = (bytes.clone(), String::new())..;
            let known = previous.into_iter().flat_map(|previous| previous.range(of_file.clone()));
            let known: StepTensors = known
                .take_while(|((path, _), _)| *path == bytes)
                .filter(|(_, tensor)| tensor.content == content)
                .map(|(key, tensor)| (key.clone(), tensor.clone()))
                .collect();
            if known.is_empty() {
                self.file(&path, content, size, &mut tensors)?;
            } else {
                tensors.extend(known);
            }
        }
        Ok(tensors)
    }

    /// Adds the tensors of a file, if it is a model.
    fn file(&self, path: &Path, content: ContentReference, size: u64, tensors: &mut StepTensors) -> Result<()> {
        if !may_be_model(&self.reader.content(content).head(HEAD_BYTES)?) {
            return Ok(());
        }
        let file = self.reader.file(Some(content), size)?;
        let Recognition::Model(model) = recognise(&file, size).map_err(|error| unwrapped(error, path))? else {
            return Ok(());
        };
        for tensor in &model.tensors {
            if tensors.len() == TENSORS_MAX {
                tracing::warn!("only {TENSORS_MAX} tensors are compared, the others of {} are not", path.display());
                break;
            }
            let key = (path.as_os_str().as_encoded_bytes().to_vec(), tensor.name.clone());
            let chunks = tensor_chunks(&file, tensor)?;
            let Tensor { offset, len, .. } = *tensor;
            tensors.insert(key, StoredTensor { content, offset, len, chunks });
        }
        Ok(())
    }

    fn is_identical(&mut self, before: &StoredTensor, after: &StoredTensor) -> Result<bool> {
        self.check_stop()?;
        let is_same_range = before.content == after.content && before.offset == after.offset;
        if before.len != after.len || is_same_range {
            return Ok(before.len == after.len);
        }
        match (&before.chunks, &after.chunks) {
            (Some(before), Some(after)) if before.0 == after.0 => Ok(before.1 == after.1),
            _ => Ok(self.hash(before)? == self.hash(after)?),
        }
    }

    fn hash(&mut self, tensor: &StoredTensor) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let (range, stop) = ((tensor.offset, tensor.offset.saturating_add(tensor.len)), self.stop);
        self.reader.content(tensor.content).copy(range, &mut |bytes| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(hasher.finalize())
    }
}

/// Hashes of the lengths and of the fingerprints of a tensor's chunks. `None` unless it consists of whole chunks.
fn tensor_chunks(file: &StoredFile, tensor: &Tensor) -> Result<Option<(blake3::Hash, blake3::Hash)>> {
    let (mut lengths, mut fingerprints) = (blake3::Hasher::new(), blake3::Hasher::new());
    let (mut offset, end) = (tensor.offset, tensor.offset.saturating_add(tensor.len));
    while offset < end {
        let found = file.locate(offset)?;
        let Some(range) = found.filter(|range| range.start == offset && range.end() <= end) else {
            return Ok(None);
        };
        let Some(fingerprint) = range.chunk else { return Ok(None) };
        lengths.update(&range.len.to_le_bytes());
        fingerprints.update(&fingerprint.0);
        offset = range.end();
    }
    Ok(Some((lengths.finalize(), fingerprints.finalize())))
}
