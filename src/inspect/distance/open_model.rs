//! A model open for reading: a file on disk, or a file of a snapshot.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{FORMATS, Recognised, Recognition, Tensor, recognise};
use crate::inspect::dtype_names::DtypeNames;
use crate::read_at::{ReadAt, unwrapped};
use crate::repo::Repository;
use crate::repo::read::Reader;
use crate::repo::snapshot::{NamedSnapshot, explain_loss};
use crate::repo::tree::{NodeKind, find_entry};

/// A model open for reading.
pub struct OpenModel {
    /// Name to show: the path as the user gave it.
    pub label: String,
    /// Its format and tensors.
    pub model: Recognised,
    dtype_names: DtypeNames,
    source: Box<dyn ReadAt>,
}

/// Opens models of snapshots. All share one reader.
pub struct SnapshotModels {
    reader: Reader,
}

impl SnapshotModels {
    /// Opens models of `repository`.
    ///
    /// # Errors
    /// Fails if the repository cannot be listed.
    pub fn new(repository: &Repository) -> Result<Self> {
        Ok(SnapshotModels { reader: Reader::open(repository)? })
    }

    /// Opens the model at `path` of a snapshot; `label` names it in reports and errors.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchPath`], with [`Error::Usage`] if the path is not a model file, or if it cannot be
    /// read.
    pub fn open(&self, snapshot: &NamedSnapshot, path: &Path, label: &str) -> Result<OpenModel> {
        let (_, node) = self.reader.lend(|reader| find_entry(reader, snapshot, path))?;
        let file = node.filter(|node| node.kind == NodeKind::File);
        let Some(node) = file else { return Err(no_model(label, "something that is not a regular file".into())) };
        let opened = self.reader.file(node.content, node.size).and_then(|file| {
            let len = file.len();
            OpenModel::of(label, Box::new(file), len)
        });
        opened.map_err(|error| explain_loss(self.reader.store(), [&snapshot.id], error))
    }
}

impl OpenModel {
    /// Opens a model file on disk.
    ///
    /// # Errors
    /// Fails with [`Error::Usage`] if the path is not a model file, or if it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let label = path.display().to_string();
        let metadata = path.metadata().map_err(|error| Error::io("read", path, error))?;
        if !metadata.is_file() {
            return Err(no_model(&label, "something that is not a regular file".into()));
        }
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        Self::of(&label, Box::new(file), metadata.len())
    }

    fn of(label: &str, source: Box<dyn ReadAt>, len: u64) -> Result<Self> {
        let failed = |error| unwrapped(error, Path::new(label));
        match recognise(&*source, len).map_err(failed)? {
            Recognition::Model(model) => {
                let dtype_names = DtypeNames::read(&*source, len).map_err(failed)?;
                Ok(OpenModel { label: label.into(), model, dtype_names, source })
            }
            Recognition::Opaque => Err(no_model(label, "another format".into())),
            Recognition::Defective { format, reason } => {
                Err(no_model(label, format!("a defective {format}: {reason}")))
            }
        }
    }

    /// Name of the type of one of its tensors, as the file gives it.
    pub fn dtype_name(&self, tensor: &Tensor) -> Cow<'static, str> {
        self.dtype_names.of(tensor)
    }

    /// The bytes of the file.
    pub fn source(&self) -> &dyn ReadAt {
        &*self.source
    }
}

fn no_model(label: &str, found: String) -> Error {
    let formats: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
    Error::Usage(format!("{label} is not a model: expected a file of tensors ({}), found {found}", formats.join(", ")))
}
