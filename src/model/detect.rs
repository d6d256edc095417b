//! Detection: recognises model files as they are read, and collects their tensors, a few values of each tensor, and
//! what the cards beside them say of their family.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::codec::{ElementRows, ElementType};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::filesystem::{FileRange, SourceFile};
use crate::format::{self, Recognised, Recognition, Tensor, card};
use crate::model::evidence::{EvidenceKind, signs};
use crate::model::own::parameters;
use crate::model::{ModelRecord, TensorRecord, sample, sampled};
use crate::read_at::ReadAt;
use crate::types::Fingerprint;
use crate::wire::open_regular;

/// Files below this size are not models.
pub const MODEL_BYTES_MIN: u64 = 64 << 10;
/// Tensors below this size are not cut into blocks: they share content-defined chunks.
const TENSOR_BYTES_MIN: u64 = 64 << 10;
/// Values of a quantised tensor that is cut into blocks, at least: as many as a 16-bit tensor of [`TENSOR_BYTES_MIN`]
/// has, so that all quantisations of a tensor are blocks if the tensor itself is.
const QUANTISED_VALUES_MIN: u64 = TENSOR_BYTES_MIN / 2;
/// Bytes read of a card or a configuration, at most.
pub const CARD_BYTES_MAX: u64 = 64 << 10;
/// Names of the files that name the base of a model beside them: its card and its configurations.
pub const CARD: &str = "README.md";
/// Configurations.
pub const CONFIGURATIONS: [&str; 2] = [CONFIGURATION, "adapter_config.json"];
/// The configuration with the architecture.
const CONFIGURATION: &str = "config.json";
/// The file of the tokenizer. Its start is evidence of the family.
pub const TOKENIZER: &str = "tokenizer.json";
/// Blocks of a model, at most: a larger model is cut like any other file.
const BLOCKS_MAX: u64 = 1 << 17;
/// Snapshots of a hub's cache whose cards are read, at most: the first by name.
const SNAPSHOTS_MAX: usize = 4;
/// Snapshots of a hub's cache that are listed, at most: of one with more, no cards are read.
const SNAPSHOTS_LISTED_MAX: usize = 4096;

/// A model file that is about to be read.
#[derive(Debug)]
pub struct ModelFile {
    /// Its record, without the fingerprints of its blocks.
    pub record: ModelRecord,
    /// Fingerprint of the file's content in the parent snapshot.
    pub previous_version: Option<Fingerprint>,
}

/// A block of a tensor: the part of a model file that a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorBlock {
    /// Index of the tensor in the model.
    pub tensor: usize,
    /// Offset in the tensor.
    pub offset: u64,
    /// Its elements, as the codecs see them.
    pub element_type: ElementType,
    /// Rows of the tensor in it.
    pub rows: ElementRows,
    /// Bytes of an element, also of integers; 1 if elements have no width.
    pub width: usize,
    /// The element type is unknown.
    pub is_opaque: bool,
}

/// Whether to report a file that claims a model format but does not follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefectReporting {
    /// Log a warning.
    Warn,
    /// Log nothing: the file will be examined again.
    Silent,
}

/// Recognises `source` as a model file; `None` if it is not one.
///
/// # Errors
/// Errors of reading the file.
pub fn model_file(
    source: &SourceFile,
    config: &ModelConfig,
    previous_version: Option<Fingerprint>,
    reporting: DefectReporting,
) -> Result<Option<Arc<ModelFile>>> {
    if !config.detect_formats || source.size() < MODEL_BYTES_MIN {
        return Ok(None);
    }
    let content = ModelContent {
        bytes: source.file(),
        len: source.size(),
        path: source.path(),
        has_holes: &|| source.ranges(1).any(|range| matches!(range, FileRange::Hole { .. })),
        names: &|| names(source.path(), &read),
    };
    model_content(&content, config, previous_version, reporting)
}

/// The content of a file that may be a model.
pub struct ModelContent<'a> {
    /// Its bytes.
    pub bytes: &'a dyn ReadAt,
    /// Their number.
    pub len: u64,
    /// Path of the file.
    pub path: &'a Path,
    /// Whether the file has holes.
    pub has_holes: &'a dyn Fn() -> bool,
    /// Names from the path and from the cards beside the file.
    pub names: &'a dyn Fn() -> ModelNames,
}

/// Whether a file may be a model, as far as its length, the first bytes and the configuration tell.
pub fn may_be_model(config: &ModelConfig, len: u64, head: &[u8]) -> bool {
    config.detect_formats && len >= MODEL_BYTES_MIN && format::may_be_model(head)
}

/// Recognises a content as a model; `None` if it is not one.
///
/// # Errors
/// Errors of reading it.
pub fn model_content(
    content: &ModelContent<'_>,
    config: &ModelConfig,
    previous_version: Option<Fingerprint>,
    reporting: DefectReporting,
) -> Result<Option<Arc<ModelFile>>> {
    let failed = |error| Error::io("read", content.path, error);
    let mut head = [0; format::HEAD_BYTES];
    let mut filled = 0;
    while let Some(space) = head.get_mut(filled..).filter(|space| !space.is_empty()) {
        match content.bytes.read_at(filled as u64, space).map_err(failed)? {
            0 => break,
            read => filled += read,
        }
    }
    if !may_be_model(config, content.len, head.get(..filled).unwrap_or_default()) {
        return Ok(None);
    }
    let found = match format::recognise(content.bytes, content.len).map_err(failed)? {
        Recognition::Opaque => return Ok(None),
        Recognition::Defective { format, reason } => {
            if reporting == DefectReporting::Warn {
                tracing::warn!("{}: stored as it is, not as {format}: {reason}", content.path.display());
            }
            return Ok(None);
        }
        Recognition::Model(found) => found,
    };
    if (content.has_holes)() {
        return Ok(None);
    }
    let record = record(content, &found, config.block_bytes.0).map_err(failed)?;
    Ok(record.map(|record| Arc::new(ModelFile { record, previous_version })))
}

/// Whether a tensor is cut into blocks.
fn is_cut(tensor: &&Tensor) -> bool {
    let quantised = tensor.dtype.block().map_or(0, |(values, bytes)| (tensor.len / bytes).saturating_mul(values));
    tensor.len >= TENSOR_BYTES_MIN || quantised >= QUANTISED_VALUES_MIN
}

fn record(content: &ModelContent<'_>, found: &Recognised, block_bytes: u64) -> std::io::Result<Option<ModelRecord>> {
    let count = found.tensors.iter().filter(is_cut).count();
    let blocks: u64 = found.tensors.iter().filter(is_cut).map(|tensor| tensor.len.div_ceil(block_bytes)).sum();
    if blocks > BLOCKS_MAX {
        return Ok(None);
    }
    let ModelNames { names, bases, evidence } = (content.names)();
    // An adapter may have small tensors only. It is listed, and stored like any other file.
    if count == 0 && (bases.is_empty() || found.tensors.is_empty()) {
        return Ok(None);
    }
    let samples: Vec<_> = found.tensors.iter().filter(is_cut).flat_map(|tensor| sampled(tensor, count)).collect();
    content.bytes.will_read(&samples)?;
    let mut tensors = Vec::with_capacity(count);
    for tensor in found.tensors.iter().filter(is_cut) {
        tensors.push(TensorRecord::of(tensor, sample(content.bytes, tensor, count)?));
    }
    Ok(Some(ModelRecord {
        id: Fingerprint([0; 32]),
        format: found.format.into(),
        path: content.path.as_os_str().as_encoded_bytes().to_vec(),
        names,
        bases,
        bytes: content.len,
        parameters: parameters(content.bytes, &found.tensors, &tensors)?,
        block_bytes,
        tensors,
        base: None,
        content: None,
        evidence: (!evidence.is_empty()).then_some(evidence),
    }))
}

/// The names of a model and of the bases that its card gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ModelNames {
    /// Name of its directory and file, or its name on a hub.
    pub names: Vec<String>,
    /// Bases named in its card and configuration, each by its full name and by the last part of it.
    pub bases: Vec<String>,
    /// Evidence of its family.
    pub evidence: Vec<u64>,
}

/// Collects the names of the model file at `path` from its directories and from the cards beside it, which `read`
/// returns.
pub fn names(path: &Path, read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> ModelNames {
    let mut found = ModelNames::default();
    let Some(directory) = path.parent() else { return found };
    let name_of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut cards = vec![directory.to_path_buf()];
    let hub = directory.ancestors().take(3).find_map(|above| card::hub_name(&name_of(above)?));
    match hub {
        Some(name) => {
            // In a hub's cache the card is in a directory of snapshots that link to the content.
            let snapshots = directory.parent().map(|above| above.join("snapshots"));
            let mut first = BTreeSet::new();
            let listed = snapshots.and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten();
            for (number, entry) in listed.enumerate() {
                if number == SNAPSHOTS_LISTED_MAX {
                    first.clear();
                    break;
                }
                first.extend(entry.map(|entry| entry.path()));
                if first.len() > SNAPSHOTS_MAX {
                    first.pop_last();
                }
            }
            cards.extend(first);
            found.names.extend(with_last_part(name));
        }
        None => found.names.extend(name_of(directory)),
    }
    found.names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    for directory in cards {
        let text = read(&directory.join(CARD)).unwrap_or_default();
        let mut bases = card::base_models(&text);
        found.evidence.extend(signs(EvidenceKind::Tag, card::tags(&text)));
        found.evidence.extend(signs(EvidenceKind::Dataset, card::datasets(&text)));
        for name in CONFIGURATIONS {
            let Some(text) = read(&directory.join(name)) else { continue };
            bases.extend(card::config_base_model(&text));
            let architecture = card::config_architecture(&text).filter(|_| name == CONFIGURATION);
            found.evidence.extend(signs(EvidenceKind::Architecture, architecture));
        }
        let tokenizer = read(&directory.join(TOKENIZER)).map(|text| blake3::hash(&text).to_hex().to_string());
        found.evidence.extend(signs(EvidenceKind::Tokenizer, tokenizer));
        found.bases.extend(bases.into_iter().flat_map(with_last_part));
    }
    found.evidence.sort_unstable();
    found.evidence.dedup();
    // A model that names itself as its base has none.
    found.bases.retain(|base| !found.names.contains(base));
    found.bases.dedup();
    found
}

fn with_last_part(name: String) -> Vec<String> {
    match name.rsplit_once('/') {
        Some((_, last)) if !last.is_empty() => vec![last.to_string(), name],
        _ => vec![name],
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    // A directory or a pipe of that name is not a card.
    let file = open_regular(path).ok()?;
    let mut text = Vec::new();
    file.take(CARD_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_directories_and_cards() {
        let directory = tempfile::tempdir().unwrap();
        let model = directory.path().join("my-tune");
        std::fs::create_dir(&model).unwrap();
        std::fs::write(model.join("README.md"), "---\nbase_model: org/base\n---\n# x\n").unwrap();
        let found = names(&model.join("model.safetensors"), &read);
        assert_eq!(found.names, ["my-tune", "model"]);
        assert_eq!(found.bases, ["base", "org/base"]);
    }

    #[test]
    fn names_in_the_cache_of_a_hub_come_from_its_directory_and_its_snapshots() {
        let directory = tempfile::tempdir().unwrap();
        let model = directory.path().join("models--org--tune");
        let snapshot = model.join("snapshots/abc");
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir(model.join("blobs")).unwrap();
        std::fs::write(snapshot.join("README.md"), "---\nbase_model: org/base\n---\n").unwrap();
        let found = names(&model.join("blobs/0123"), &read);
        assert_eq!(found.names, ["tune", "org/tune", "0123"]);
        assert_eq!(found.bases, ["base", "org/base"]);
        // A cache with very many snapshots is not listed to its end for each model.
        for number in 0..SNAPSHOTS_LISTED_MAX {
            std::fs::create_dir(model.join(format!("snapshots/b{number}"))).unwrap();
        }
        assert!(names(&model.join("blobs/0123"), &read).bases.is_empty());
    }

    #[test]
    fn a_file_without_cards_has_no_bases() {
        assert_eq!(names(Path::new("/nowhere/at/all.gguf"), &read).bases, Vec::<String>::new());
    }
}
