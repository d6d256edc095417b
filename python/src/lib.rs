//! The native module `fhrd._engine`: the engine in the process of Python.
//!
//! - [`repository`] opens repositories and has one method for each operation.
//! - [`source`] describes what a save stores, and takes arrays by the buffer protocol without a copy.
//! - [`layout`] lays out arrays as a safetensors file.
//! - [`reader`] reads files of snapshots at any offset.
//! - [`call`] runs the engine without the GIL, and reacts to signals meanwhile.
//! - [`errors`] maps the engine's errors to exceptions.
//! - [`care`] has what keeps a repository in order: tags, copies, repairs, statistics, families, published names.
//! - [`mounted`] mounts a snapshot.
//! - [`command`] is the command `fhrd`.

use pyo3::prelude::*;

mod call;
mod care;
mod command;
mod errors;
mod layout;
mod mounted;
mod reader;
mod repository;
mod rows;
mod source;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Errors are raised in threads of the engine, too.
    module.py().import("fhrd.errors")?;
    module.add_class::<repository::Engine>()?;
    module.add_class::<source::Files>()?;
    module.add_class::<reader::StoredBytes>()?;
    module.add_class::<mounted::MountedSnapshot>()?;
    module.add_class::<rows::SnapshotRow>()?;
    module.add_class::<rows::EntryRow>()?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    module.add_function(wrap_pyfunction!(mounted::mount_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(care::tag_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(care::copy_snapshots, module)?)?;
    module.add_function(wrap_pyfunction!(care::repair, module)?)?;
    module.add_function(wrap_pyfunction!(care::statistics, module)?)?;
    module.add_function(wrap_pyfunction!(care::families, module)?)?;
    module.add_function(wrap_pyfunction!(care::publish, module)?)?;
    module.add_function(wrap_pyfunction!(care::unpublish, module)?)?;
    module.add_function(wrap_pyfunction!(care::published_names, module)?)?;
    // As installers write it: a candidate of Rust's 1.0.0-rc.1 is Python's 1.0.0rc1.
    module.add("__version__", env!("CARGO_PKG_VERSION").replace("-rc.", "rc"))
}
