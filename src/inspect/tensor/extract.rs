//! Finds one tensor of a snapshot and writes it to a file.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::file::{self, FileFormat, TensorSource};
use super::search::{TensorOwner, TensorSearch};
use crate::error::{Error, Result};
use crate::format::ListedArray;
use crate::inspect::model_summaries::ModelSummaries;
use crate::inspect::models::is_model;
use crate::repo::Repository;
use crate::repo::read::Reader;
use crate::repo::snapshot::{NamedSnapshot, explain_loss};

/// Longest file name made of a tensor's name, without the extension.
const NAME_BYTES_MAX: usize = 200;

/// The tensor to write, and the file to write it to.
#[derive(Debug, Clone)]
pub struct TensorRequest<'a> {
    /// Exact name of the tensor.
    pub tensor: &'a str,
    /// Search only this file of the snapshot, or the files below this directory.
    pub path: Option<&'a Path>,
    /// File to write. Its extension selects the format.
    pub output: &'a Path,
}

/// The tensor that was written.
#[derive(Debug, Clone, Serialize)]
pub struct TensorReport {
    /// Name of the tensor.
    pub tensor: String,
    /// Path of its model in the snapshot.
    pub path: String,
    /// Format of the model.
    pub format: &'static str,
    /// Type of the values in the model.
    pub dtype: String,
    /// Sizes of the dimensions.
    pub shape: Vec<u64>,
    /// Bytes of the values.
    pub bytes: u64,
    /// File written.
    pub output: String,
    /// Type of the values in that file.
    pub written_as: String,
    /// How to interpret the values, where their type is not enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<&'static str>,
    /// Distinct chunks of the model that were read.
    pub chunks_read: u64,
    /// Distinct chunks of the model.
    pub chunks: u64,
}

/// Writes one tensor of `snapshot` into a file.
///
/// # Errors
/// Fails with [`Error::Usage`] if no file or several files have the tensor, or if the format of the output cannot hold
/// it. Fails with [`Error::AlreadyExists`] if the output exists, and if the tensor cannot be read or written.
pub fn tensor(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    request: &TensorRequest<'_>,
    stop: &AtomicBool,
) -> Result<TensorReport> {
    let format = FileFormat::of(request.output)?;
    file::check_free(request.output)?;
    let reader = Reader::open(repository)?;
    let summaries = ModelSummaries::load(repository.store.as_ref())?;
    let mut search = TensorSearch::new(reader, snapshot, request, stop);
    let run = || {
        search.search_models(&|node| is_model(&summaries, node))?;
        if search.has_none() {
            search.search_unknown(&|node| !is_model(&summaries, node))?;
        }
        write(&search.owner()?, request.output, format, stop)
    };
    run().map_err(|error| explain_loss(repository.store.as_ref(), [&snapshot.id], error))
}

fn write(owner: &TensorOwner, output: &Path, format: FileFormat, stop: &AtomicBool) -> Result<TensorReport> {
    let array = match &owner.listed {
        ListedArray::Array(array) => array,
        ListedArray::Unreadable { name, reason } => {
            let path = owner.path.display();
            return Err(Error::Usage(format!("cannot read the tensor `{name}` of {path}: {reason}")));
        }
    };
    let header = file::header(format, array)?;
    let chunks = owner.file.chunks()?;
    let source = TensorSource { file: &owner.file, path: &owner.path, mode: owner.mode, array };
    file::write(output, &header, &source, stop)?;
    Ok(TensorReport {
        tensor: array.name.clone(),
        path: owner.path.to_string_lossy().into_owned(),
        format: owner.format,
        dtype: array.value_type.name.to_string(),
        shape: array.shape.clone(),
        bytes: array.len,
        output: output.display().to_string(),
        written_as: header.written_as,
        remark: array.value_type.remark,
        chunks_read: owner.file.chunks_read(),
        chunks,
    })
}

/// The default output for a tensor: a file in the current directory, for any name of the tensor.
pub fn default_output(tensor: &str) -> PathBuf {
    let is_unsafe = |c: char| c == '/' || c == '\\' || c.is_control();
    let mut stem: String = tensor.chars().map(|c| if is_unsafe(c) { '_' } else { c }).collect();
    let mut end = stem.len().min(NAME_BYTES_MAX);
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    stem.truncate(end);
    PathBuf::from(format!("{}.safetensors", if stem.is_empty() { "tensor" } else { &stem }))
}

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
