//! Searches the files of a snapshot for a tensor by its name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::extract::TensorRequest;
use super::similar_names::SimilarNames;
use crate::error::{Error, Result};
use crate::format::{ArrayListing, HEAD_BYTES, ListedArray, list_arrays, may_be_model};
use crate::inspect::dump::dumped_mode;
use crate::inspect::list::{Visit, walk_finding};
use crate::read_at::unwrapped;
use crate::repo::read::{Reader, StoredFile};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind};

/// Files below this size have no tensors.
const FILE_BYTES_MIN: u64 = 16;
/// Maximum number of files that an error lists.
const LISTED_MAX: usize = 10;

/// A search for a tensor.
pub(super) struct TensorSearch<'a> {
    reader: Reader,
    snapshot: &'a NamedSnapshot,
    request: &'a TensorRequest<'a>,
    stop: &'a AtomicBool,
    /// Names of other tensors, for the error.
    names: SimilarNames,
    /// Number of model files.
    files: u64,
    /// Files that have the tensor.
    paths: Vec<PathBuf>,
    /// The file that has the tensor, if it is the only one.
    owner: Option<TensorOwner>,
    /// Why some files were not searched.
    reasons: Vec<String>,
}

/// A model that has the tensor.
pub(super) struct TensorOwner {
    pub path: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
    pub file: StoredFile,
    /// Name of the file format.
    pub format: &'static str,
    /// The tensor.
    pub listed: ListedArray,
}

/// A file to search.
struct SearchedFile {
    path: PathBuf,
    mode: u32,
    content: Option<ContentReference>,
    size: u64,
}

impl<'a> TensorSearch<'a> {
    pub(super) fn new(
        reader: Reader,
        snapshot: &'a NamedSnapshot,
        request: &'a TensorRequest<'a>,
        stop: &'a AtomicBool,
    ) -> Self {
        TensorSearch {
            reader,
            snapshot,
            request,
            stop,
            names: SimilarNames::new(request.tensor),
            files: 0,
            paths: Vec::new(),
            owner: None,
            reasons: Vec::new(),
        }
    }

    /// Whether no file with the tensor has been found.
    pub(super) fn has_none(&self) -> bool {
        self.paths.is_empty()
    }

    /// Searches the files that are `wanted`, which are models.
    pub(super) fn search_models(&mut self, wanted: &dyn Fn(&Node) -> bool) -> Result<()> {
        for file in self.files(wanted)? {
            self.check_stop()?;
            self.search(file)?;
        }
        Ok(())
    }

    /// Searches the files that are `wanted` and begin like a model.
    pub(super) fn search_unknown(&mut self, wanted: &dyn Fn(&Node) -> bool) -> Result<()> {
        for file in self.files(wanted)? {
            self.check_stop()?;
            let content = file.content.map(|content| self.reader.content(content));
            let head = content.map_or(Ok(Vec::new()), |content| content.head(HEAD_BYTES))?;
            if may_be_model(&head) {
                self.search(file)?;
            }
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The requested files of the snapshot that are `wanted`.
    fn files(&self, wanted: &dyn Fn(&Node) -> bool) -> Result<Vec<SearchedFile>> {
        let mut files = Vec::new();
        walk_finding(&mut self.reader.chunks(), self.snapshot, self.request.path, &mut |path, node| {
            self.check_stop()?;
            if node.kind == NodeKind::File && node.size >= FILE_BYTES_MIN && wanted(node) {
                let (path, mode) = (path.to_path_buf(), dumped_mode(node));
                files.push(SearchedFile { path, mode, content: node.content, size: node.size });
                return Ok(Visit::Found);
            }
            Ok(Visit::Other)
        })?;
        Ok(files)
    }

    fn search(&mut self, SearchedFile { path, mode, content, size }: SearchedFile) -> Result<()> {
        let file = self.reader.file(content, size)?.counting_chunks();
        let mut found = None;
        let names_before = self.names.clone();
        let listing = list_arrays(&file, file.len(), &mut |listed| {
            if listed.name() == self.request.tensor {
                found = Some(listed);
            } else {
                self.names.add(listed.name());
            }
        });
        match listing.map_err(|error| unwrapped(error, &path))? {
            ArrayListing::Opaque => self.names = names_before,
            ArrayListing::Defective { format, reason } => {
                self.names = names_before;
                self.add_reason(format!("{} is a defective {format}: {reason}", path.display()));
            }
            ArrayListing::Arrays { format } => {
                self.files += 1;
                if let Some(listed) = found {
                    self.paths.push(path.clone());
                    // If several files have the tensor, the error lists only their paths.
                    let owner = TensorOwner { path, mode, file, format, listed };
                    self.owner = (self.paths.len() == 1).then_some(owner);
                }
            }
        }
        Ok(())
    }

    fn add_reason(&mut self, reason: String) {
        if self.reasons.len() < LISTED_MAX {
            self.reasons.push(reason);
        }
    }

    /// The only file that has the tensor.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] if no file or several files have the tensor.
    pub(super) fn owner(self) -> Result<TensorOwner> {
        match self.paths.len() {
            0 => Err(self.none()),
            1 => self.owner.ok_or_else(|| Error::internal("the file with the tensor is lost")),
            _ => Err(self.several()),
        }
    }

    fn none(&self) -> Error {
        let found = match self.files {
            0 => ": no model file was found".to_string(),
            1 => format!(" in 1 model file{}", self.names.hint()),
            files => format!(" in {files} model files{}", self.names.hint()),
        };
        let reasons: String = self.reasons.iter().map(|reason| format!("; {reason}")).collect();
        Error::Usage(format!("no tensor `{}`{found}{reasons}", self.request.tensor))
    }

    fn several(&self) -> Error {
        let paths: Vec<String> = self.paths.iter().take(LISTED_MAX).map(|path| path.display().to_string()).collect();
        let more = if self.paths.len() > LISTED_MAX { ", ..." } else { "" };
        Error::Usage(format!(
            "{} files have a tensor `{}`: {}{more}; choose one with --path",
            self.paths.len(),
            self.request.tensor,
            paths.join(", "),
        ))
    }
}
