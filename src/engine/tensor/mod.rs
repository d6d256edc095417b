//! Tensor: one tensor of a snapshot's models into a file of its own, without restoring the model.
//!
//! 1. The models of the snapshot are looked through: those that the catalogue knows first; where none of them has the
//!    tensor, every file that begins like a model.
//! 2. The one model that has a tensor of that name gives its bytes; of its chunks only those are read that recognising
//!    it and the tensor itself need, each checked against its fingerprint.
//! 3. The bytes are written behind a header of their own ([`file`]) under a temporary name, and renamed.

pub mod file;
mod label;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::content::{SharedReader, StoredFile, head, unwrapped};
use super::known::Catalogue;
use super::list::walk;
use super::models::is_model;
use crate::error::{Error, Result};
use crate::format::{HEAD_BYTES, Recognised, Recognition, Tensor, may_be_model, recognise};
use crate::index::Listing;
use crate::reader::ChunkReader;
use crate::recipe::Reference;
use crate::repo::Repository;
use crate::snapshot::Named;
use crate::tree::{Kind, Node};
use file::FileFormat;

/// Decoded frames kept, bytes.
const CACHE_BYTES: usize = 64 << 20;
/// Smaller files hold no tensors.
const FILE_BYTES_MIN: u64 = 16;
/// Names that are offered where there is none as asked for.
const SIMILAR_MAX: usize = 5;
/// Files named where several have the tensor.
const NAMED_MAX: usize = 10;

/// What to take out, and where to.
#[derive(Debug, Clone)]
pub struct TensorRequest<'a> {
    /// Name of the tensor, exactly.
    pub tensor: &'a str,
    /// Only this file of the snapshot, or the files below this folder.
    pub path: Option<&'a Path>,
    /// File to write; its extension says how.
    pub output: &'a Path,
}

/// What was written.
#[derive(Debug, Clone, Serialize)]
pub struct TensorReport {
    /// Name of the tensor.
    pub tensor: String,
    /// The model it is from.
    pub path: String,
    /// Format of that.
    pub format: &'static str,
    /// Type of the values.
    pub dtype: String,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// File written.
    pub output: String,
    /// Type it was written as.
    pub written_as: String,
    /// Chunks of the model that were read.
    pub chunks_read: u64,
    /// Chunks of the model.
    pub chunks: u64,
}

/// Writes one tensor of `snapshot`.
///
/// # Errors
/// [`Error::Usage`] where no file has the tensor, several have it, or it cannot be written in the format asked for;
/// [`Error::AlreadyExists`] where there is anything in place of the output; those of reading and writing.
pub fn tensor(
    repository: &Repository,
    snapshot: &Named,
    request: &TensorRequest<'_>,
    stop: &AtomicBool,
) -> Result<TensorReport> {
    let format = FileFormat::of(request.output)?;
    file::check_free(request.output)?;
    let listing = Arc::new(Listing::take(&repository.store)?);
    let reader = Rc::new(RefCell::new(ChunkReader::new(repository, listing, CACHE_BYTES)));
    let catalogue = Catalogue::load(repository.store.as_ref())?;
    let mut search = Search { reader, snapshot, request, stop, others: Vec::new(), models: 0 };
    let mut found = search.run(&|node| is_model(&catalogue, node), false)?;
    if found.is_empty() {
        found = search.run(&|node| !is_model(&catalogue, node), true)?;
    }
    match found.as_slice() {
        [model] => model.write(request.output, format, stop),
        [] => Err(search.none()),
        several => Err(search.several(several)),
    }
}

/// A look for a tensor.
struct Search<'a> {
    reader: SharedReader,
    snapshot: &'a Named,
    request: &'a TensorRequest<'a>,
    stop: &'a AtomicBool,
    /// The names most like it, with how like they are.
    others: Vec<(usize, String)>,
    /// Models looked into.
    models: u64,
}

/// A model that has the tensor.
struct Owner {
    path: PathBuf,
    file: StoredFile,
    model: Recognised,
    tensor: Tensor,
}

impl Search<'_> {
    /// The models that have the tensor, of the files that are `wanted`; those not known by their beginnings.
    fn run(&mut self, wanted: &dyn Fn(&Node) -> bool, by_beginning: bool) -> Result<Vec<Owner>> {
        let mut files = Vec::new();
        let (snapshot, stop, reader) = (self.snapshot, self.stop, self.reader.clone());
        walk(&mut reader.borrow_mut(), snapshot, self.request.path, &mut |path, node| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if node.kind == Kind::File && node.size >= FILE_BYTES_MIN && wanted(node) {
                files.push((path.to_path_buf(), node.content, node.size));
            }
            Ok(true)
        })?;
        let mut found = Vec::new();
        for (path, content, size) in files {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if by_beginning && !may_be_model(&head(&mut reader.borrow_mut(), content, HEAD_BYTES)?, size) {
                continue;
            }
            found.extend(self.look(path, content, size)?);
        }
        Ok(found)
    }

    fn look(&mut self, path: PathBuf, content: Option<Reference>, size: u64) -> Result<Option<Owner>> {
        let file = StoredFile::open(self.reader.clone(), content, size)?;
        let recognition = recognise(&file, file.len()).map_err(|error| unwrapped(error, &path))?;
        let Recognition::Model(model) = recognition else { return Ok(None) };
        self.models += 1;
        let tensor = model.tensors.iter().find(|tensor| tensor.name == self.request.tensor).cloned();
        let Some(tensor) = tensor else {
            model.tensors.iter().for_each(|tensor| self.remember(&tensor.name));
            return Ok(None);
        };
        Ok(Some(Owner { path, file, model, tensor }))
    }

    /// Keeps a name that is like the one wanted, if it is among the most like ones.
    fn remember(&mut self, name: &str) {
        let likeness = likeness(self.request.tensor, name);
        if likeness == 0 || self.others.iter().any(|other| other.1 == name) {
            return;
        }
        let at = self.others.partition_point(|other| other.0 >= likeness);
        if at < SIMILAR_MAX {
            self.others.insert(at, (likeness, name.to_string()));
            self.others.truncate(SIMILAR_MAX);
        }
    }

    fn none(&self) -> Error {
        let names: Vec<String> = self.others.iter().map(|other| format!("`{}`", other.1)).collect();
        let similar = match (self.models, names.is_empty()) {
            (0, _) => ": there is no model there".to_string(),
            (_, true) => format!(" in {} models", self.models),
            (_, false) => format!("; similar names: {}", names.join(", ")),
        };
        Error::Usage(format!("no tensor `{}`{similar}", self.request.tensor))
    }

    fn several(&self, owners: &[Owner]) -> Error {
        let paths: Vec<String> = owners.iter().take(NAMED_MAX).map(|owner| owner.path.display().to_string()).collect();
        let more = if owners.len() > NAMED_MAX { ", ..." } else { "" };
        Error::Usage(format!(
            "{} files have a tensor `{}`: {}{more}; name one with --path",
            owners.len(),
            self.request.tensor,
            paths.join(", "),
        ))
    }
}

impl Owner {
    fn write(&self, output: &Path, format: FileFormat, stop: &AtomicBool) -> Result<TensorReport> {
        let label = label::label(&self.file, self.model.format, &self.tensor).map_err(|e| unwrapped(e, &self.path))?;
        let header = file::header(format, &self.tensor, label)?;
        file::write(output, &header.bytes, &self.file, &self.tensor, &self.path, stop)?;
        Ok(TensorReport {
            tensor: self.tensor.name.clone(),
            path: self.path.to_string_lossy().into_owned(),
            format: self.model.format,
            dtype: label.unwrap_or(self.tensor.dtype.name()).to_string(),
            shape: self.tensor.shape.clone(),
            bytes: self.tensor.len,
            output: output.display().to_string(),
            written_as: header.written_as.to_string(),
            chunks_read: self.file.chunks_read(),
            chunks: self.file.chunks(),
        })
    }
}

/// How like two names are: bytes that they have in common at either end, and more where one is in the other.
fn likeness(wanted: &str, name: &str) -> usize {
    let common = |one: &mut dyn Iterator<Item = (u8, u8)>| one.take_while(|(one, other)| one == other).count();
    let front = common(&mut wanted.bytes().zip(name.bytes()));
    let back = common(&mut wanted.bytes().rev().zip(name.bytes().rev()));
    let is_part = !wanted.is_empty() && (name.contains(wanted) || wanted.contains(name));
    let least = if is_part { wanted.len().min(name.len()) } else { 0 };
    (front + back).min(wanted.len().max(name.len())).max(least)
}

/// The file a tensor goes to where none is named: in the current folder, whatever the tensor is called.
pub fn default_output(tensor: &str) -> PathBuf {
    let plain: String = tensor.chars().map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c }).collect();
    let mut end = plain.len().min(NAME_BYTES_MAX);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    let short = plain.get(..end).unwrap_or_default();
    PathBuf::from(format!("{}.safetensors", if short.is_empty() { "tensor" } else { short }))
}

/// Longest name made of a tensor's name, without the extension.
const NAME_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_in_the_folder() {
        for name in ["../../x", "/etc/passwd", "a/b", "", "..", ".", "\0", "a\nb", &"x".repeat(5000), &"ä".repeat(999)]
        {
            let output = default_output(name);
            assert_eq!(output.components().count(), 1, "{name}");
            let file = output.file_name().map(|file| file.as_encoded_bytes().to_vec()).unwrap_or_default();
            assert!(file.ends_with(b".safetensors") && file.len() < 255 && !file.contains(&0), "{name}");
        }
        assert_eq!(default_output("../../x"), Path::new(".._.._x.safetensors"));
    }

    #[test]
    fn similar_names_are_more_alike() {
        let wanted = "layer.1.attention.weight";
        assert!(likeness(wanted, "layer.11.attention.weight") > likeness(wanted, "layer.1.attention.bias"));
        assert!(likeness("attention", "layer.1.attention.weight") > likeness("attention", "embeddings"));
        assert_eq!(likeness("x", "y"), 0);
    }
}
