//! What a save stores: files whose bytes are arrays, bytes objects or files on disk.
//!
//! Arrays come as one-dimensional NumPy arrays of bytes, of which the address is taken. `PyBuffer` is not in the stable
//! interface of Python 3.10. Each address is used only while the array is referenced.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use fhrd::backup::{MemoryContent, MemoryFile};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::errors::ArgumentError;
use crate::layout::{self, ArraySpec};

/// The memory of a NumPy array.
struct Memory {
    address: usize,
    len: usize,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: NumPy gave the address of `len` bytes, which live as long as the array, and `_owner` is the array.
        // Python code may write to them while they are read. They are only hashed and copied then, byte by byte, and
        // the engine fails the save if a copy does not have the hash.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

/// Address and length of a contiguous one-dimensional NumPy array of bytes.
///
/// # Errors
/// [`ArgumentError`] if it is something else, or may not be written to and `is_target`.
pub fn address(array: &Bound<'_, PyAny>, is_target: bool) -> PyResult<(usize, usize)> {
    let interface = array.getattr("__array_interface__")?;
    let interface = interface.cast::<PyDict>()?;
    let item = |key: &str| {
        interface.get_item(key)?.ok_or_else(|| ArgumentError::new_err(format!("an array interface has no `{key}`")))
    };
    let (address, is_read_only): (usize, bool) = item("data")?.extract()?;
    let kind: String = item("typestr")?.extract()?;
    let shape: Vec<usize> = item("shape")?.extract()?;
    let is_contiguous = interface.get_item("strides")?.is_none_or(|strides| strides.is_none());
    match shape.as_slice() {
        [len] if kind == "|u1" && is_contiguous && !(is_target && is_read_only) => Ok((address, *len)),
        _ => Err(ArgumentError::new_err("expected a contiguous one-dimensional array of bytes")),
    }
}

/// An array of a file: name, dtype, shape and bytes.
type GivenArray = (String, String, Vec<usize>, Py<PyAny>);

/// The files of a save, in the order in which they were added.
#[pyclass(module = "fhrd._engine")]
#[derive(Default)]
pub struct Files {
    files: Vec<MemoryFile>,
    /// Bytes in memory.
    bytes: u64,
}

impl Files {
    /// The files for the engine.
    pub fn files(&self) -> Vec<MemoryFile> {
        self.files.clone()
    }

    fn push(&mut self, path: String, content: MemoryContent) {
        self.bytes += match &content {
            MemoryContent::Parts(parts) | MemoryContent::Borrowed(parts) => {
                parts.iter().map(|part| part.len() as u64).sum()
            }
            MemoryContent::Disk(_) | MemoryContent::Range { .. } | MemoryContent::Stored(_) => 0,
        };
        self.files.push(MemoryFile { path: path.into(), content });
    }
}

#[pymethods]
impl Files {
    #[new]
    fn new() -> Self {
        Files::default()
    }

    /// Adds a safetensors file of arrays. With `is_staged` the bytes are copied now.
    fn add_arrays(
        &mut self,
        py: Python<'_>,
        path: String,
        arrays: Vec<GivenArray>,
        metadata: BTreeMap<String, String>,
        is_staged: bool,
    ) -> PyResult<()> {
        let mut specs = Vec::with_capacity(arrays.len());
        for (name, dtype, shape, array) in arrays {
            let kind = layout::dtype(&dtype);
            let kind = kind.ok_or_else(|| ArgumentError::new_err(format!("safetensors has no type `{dtype}`")))?;
            let (address, len) = address(array.bind(py), false)?;
            let spec = ArraySpec { name, dtype: kind, shape, len };
            let bytes = Bytes::from_owner(Memory { address, len, _owner: array });
            specs.push((spec, bytes));
        }
        let head = layout::lay_out(&mut specs, &metadata).map_err(ArgumentError::new_err)?;
        let mut parts = vec![Bytes::from(head)];
        parts.extend(specs.into_iter().map(|(_, part)| part).filter(|part| !part.is_empty()));
        let content = match is_staged {
            true => MemoryContent::Parts(vec![py.detach(|| Bytes::from(parts.concat()))]),
            false => MemoryContent::Borrowed(parts),
        };
        self.push(path, content);
        Ok(())
    }

    /// Adds a file with these bytes.
    fn add_bytes(&mut self, path: String, content: PyBackedBytes) {
        self.push(path, MemoryContent::Parts(vec![Bytes::from_owner(content)]));
    }

    /// Adds a file on disk, which is read when it is stored.
    fn add_path(&mut self, path: String, source: PathBuf) {
        self.push(path, MemoryContent::Disk(source));
    }

    /// Bytes in memory.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }
}
