//! A snapshot that is mounted by this process: other code finds its files, and their bytes are read as it reads them.

use std::path::PathBuf;
use std::sync::Arc;

use fhrd::mount::{MountOptions, MountedFiles, SnapshotFiles, mount};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::call::Call;
use crate::repository::Engine;

/// A mounted snapshot. Its threads need no lock of the interpreter.
#[pyclass(frozen, module = "fhrd._engine")]
pub struct MountedSnapshot {
    mounted: Mutex<Option<MountedFiles>>,
    directory: PathBuf,
    process: u32,
}

/// Mounts a snapshot at an empty directory. It is in `ids` there.
#[pyfunction]
pub fn mount_snapshot(engine: &Bound<'_, Engine>, snapshot: &str, directory: PathBuf) -> PyResult<MountedSnapshot> {
    let (py, engine) = (engine.py(), engine.get());
    let mounted = engine.run(py, None, |_, _| {
        let files = SnapshotFiles::new(&engine.repository, vec![engine.find(snapshot)?])?;
        mount(Arc::new(files), &directory, MountOptions::default())
    })?;
    Ok(MountedSnapshot { mounted: Mutex::new(Some(mounted)), directory, process: std::process::id() })
}

#[pymethods]
impl MountedSnapshot {
    /// Takes it away. Files that are open or mapped can be read on. In a forked process it does nothing.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        match self.mounted.lock().take() {
            Some(mounted) => Call::default().run(py, |_| mounted.detach(&self.directory)),
            None => Ok(()),
        }
    }
}

impl Drop for MountedSnapshot {
    fn drop(&mut self) {
        // It is the parent's.
        if self.process != std::process::id() {
            std::mem::forget(self.mounted.get_mut().take());
        }
    }
}
