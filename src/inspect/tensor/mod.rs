//! Tensor: one tensor of a snapshot's models into a file of its own, without restoring the model.
//!
//! 1. The models of the snapshot are looked through: those that the catalogue knows first; where none of them has the
//!    tensor, every file that begins like a model.
//! 2. The one model that has a tensor of that name gives its values; of its chunks only those are read that the list of
//!    its tensors and the tensor itself need, each checked against its fingerprint. The list is not kept.
//! 3. The values are written behind a header of their own ([`file`]) under a temporary name, and renamed.

pub mod file;
mod gather;
mod similar_names;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use self::similar_names::SimilarNames;
use super::list::walk;
use super::model_summaries::ModelSummaries;
use super::models::is_model;
use crate::error::{Error, Result};
use crate::format::array::list;
use crate::format::{Array, HEAD_BYTES, Listed, Listing as Found, may_be_model, unread};
use crate::repo::Repository;
use crate::repo::index::Listing;
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::stored_file::{SharedReader, StoredFile, head, unwrapped};
use crate::repo::tree::{Node, NodeKind};
use file::FileFormat;

/// Decoded frames kept, bytes.
const CACHE_BYTES: usize = 32 << 20;
/// Smaller files hold no tensors.
const FILE_BYTES_MIN: u64 = 16;
/// Files named where several have the tensor.
const NAMED_MAX: usize = 10;

/// What to take out, and where to.
#[derive(Debug, Clone)]
pub struct TensorRequest<'a> {
    /// Name of the tensor, exactly.
    pub tensor: &'a str,
    /// Only this file of the snapshot, or the files below this directory.
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
    /// What the values alone do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<&'static str>,
    /// Different chunks of the model that were read.
    pub chunks_read: u64,
    /// Different chunks of the model.
    pub chunks: u64,
}

/// Writes one tensor of `snapshot`.
///
/// # Errors
/// [`Error::Usage`] where no file has the tensor, several have it, or it cannot be written in the format asked for;
/// [`Error::AlreadyExists`] where there is anything in place of the output; those of reading and writing.
pub fn tensor(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    request: &TensorRequest<'_>,
    stop: &AtomicBool,
) -> Result<TensorReport> {
    let format = FileFormat::of(request.output)?;
    file::check_free(request.output)?;
    let listing = Arc::new(Listing::take(&repository.store)?);
    let reader = Rc::new(RefCell::new(ChunkReader::new(repository, listing, CACHE_BYTES)));
    let catalogue = ModelSummaries::load(repository.store.as_ref())?;
    let mut search = Search {
        reader,
        snapshot,
        request,
        stop,
        names: SimilarNames::new(request.tensor),
        files: 0,
        paths: Vec::new(),
        owner: None,
        reasons: Vec::new(),
    };
    search.run(&|node| is_model(&catalogue, node), false)?;
    if search.paths.is_empty() {
        search.run(&|node| !is_model(&catalogue, node), true)?;
    }
    match (search.paths.len(), &search.owner) {
        (0 | 1, Some(owner)) => owner.write(request.output, format, stop),
        (0 | 1, None) => Err(search.none()),
        _ => Err(search.several()),
    }
}

/// A look for a tensor.
struct Search<'a> {
    reader: SharedReader,
    snapshot: &'a NamedSnapshot,
    request: &'a TensorRequest<'a>,
    stop: &'a AtomicBool,
    /// The names of the tensors that are not wanted.
    names: SimilarNames,
    /// Files with tensors.
    files: u64,
    /// Files that have the tensor.
    paths: Vec<PathBuf>,
    /// The only one of them.
    owner: Option<Owner>,
    /// Why files that may have it were not looked into.
    reasons: Vec<String>,
}

/// A model that has the tensor.
struct Owner {
    path: PathBuf,
    file: StoredFile,
    format: &'static str,
    listed: Listed,
}

impl Search<'_> {
    /// Looks for the tensor in the files that are `wanted`; those not known are told by their beginnings.
    fn run(&mut self, wanted: &dyn Fn(&Node) -> bool, by_beginning: bool) -> Result<()> {
        let mut files = Vec::new();
        let (snapshot, stop, reader) = (self.snapshot, self.stop, self.reader.clone());
        walk(&mut reader.borrow_mut(), snapshot, self.request.path, &mut |path, node| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if node.kind == NodeKind::File && node.size >= FILE_BYTES_MIN && wanted(node) {
                files.push((path.to_path_buf(), node.content, node.size));
            }
            Ok(true)
        })?;
        for (path, content, size) in files {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if by_beginning {
                let head = head(&mut reader.borrow_mut(), content, HEAD_BYTES)?;
                if let Some(what) = unread(&head) {
                    self.reason(format!("{} is {what}", path.display()));
                }
                if !may_be_model(&head, size) {
                    continue;
                }
            }
            self.look(path, content, size)?;
        }
        Ok(())
    }

    fn look(&mut self, path: PathBuf, content: Option<ContentReference>, size: u64) -> Result<()> {
        let file = StoredFile::open(self.reader.clone(), content, size)?;
        let mut found = None;
        let before = self.names.clone();
        let listing = list(&file, file.len(), &mut |listed| {
            if listed.name() == self.request.tensor {
                found = Some(listed);
            } else {
                self.names.note(listed.name());
            }
        });
        match listing.map_err(|error| unwrapped(error, &path))? {
            Found::Opaque => self.names = before,
            Found::Defective { format, reason } => {
                self.names = before;
                self.reason(format!("{} is a defective {format}: {reason}", path.display()));
            }
            Found::Arrays { format } => {
                self.files += 1;
                if let Some(listed) = found {
                    self.paths.push(path.clone());
                    // Of several only the paths matter.
                    let owner = Owner { path, file, format, listed };
                    self.owner = (self.paths.len() == 1).then_some(owner);
                }
            }
        }
        Ok(())
    }

    fn reason(&mut self, reason: String) {
        if self.reasons.len() < NAMED_MAX {
            self.reasons.push(reason);
        }
    }

    fn none(&self) -> Error {
        let found = match self.files {
            0 => ": there is no model there".to_string(),
            1 => format!(" in 1 file of tensors{}", self.names.hint()),
            files => format!(" in {files} files of tensors{}", self.names.hint()),
        };
        let reasons: String = self.reasons.iter().map(|reason| format!("; {reason}")).collect();
        Error::Usage(format!("no tensor `{}`{found}{reasons}", self.request.tensor))
    }

    fn several(&self) -> Error {
        let paths: Vec<String> = self.paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        let more = if self.paths.len() > NAMED_MAX { ", ..." } else { "" };
        Error::Usage(format!(
            "{} files have a tensor `{}`: {}{more}; name one with --path",
            self.paths.len(),
            self.request.tensor,
            paths.join(", "),
        ))
    }
}

impl Owner {
    fn write(&self, output: &Path, format: FileFormat, stop: &AtomicBool) -> Result<TensorReport> {
        let array: &Array = match &self.listed {
            Listed::Array(array) => array,
            Listed::Hidden { name, reason } => {
                let path = self.path.display();
                return Err(Error::Usage(format!("cannot read the tensor `{name}` of {path}: {reason}")));
            }
        };
        let header = file::header(format, array)?;
        file::write(output, &header, &self.file, array, &self.path, stop)?;
        Ok(TensorReport {
            tensor: array.name.clone(),
            path: self.path.to_string_lossy().into_owned(),
            format: self.format,
            dtype: array.value.name.to_string(),
            shape: array.shape.clone(),
            bytes: array.len,
            output: output.display().to_string(),
            written_as: header.written_as,
            remark: array.value.remark,
            chunks_read: self.file.chunks_read(),
            chunks: self.file.chunks(),
        })
    }
}

/// The file a tensor goes to where none is named: in the current directory, whatever the tensor is called.
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
    fn hostile_names_stay_in_the_directory() {
        for name in ["../../x", "/etc/passwd", "a/b", "", "..", ".", "\0", "a\nb", &"x".repeat(5000), &"ä".repeat(999)]
        {
            let output = default_output(name);
            assert_eq!(output.components().count(), 1, "{name}");
            let file = output.file_name().map(|file| file.as_encoded_bytes().to_vec()).unwrap_or_default();
            assert!(file.ends_with(b".safetensors") && file.len() < 255 && !file.contains(&0), "{name}");
        }
        assert_eq!(default_output("../../x"), Path::new(".._.._x.safetensors"));
    }
}
