//! The native module `fhrd._engine`: the engine in the process of Python.
//!
//! - [`repository`] opens repositories and has one method for each operation.
//! - [`source`] describes what a save stores, and takes arrays by the buffer protocol without a copy.
//! - [`layout`] lays out arrays as a safetensors file.
//! - [`reader`] reads files of snapshots at any offset.
//! - [`call`] runs the engine without the GIL, and reacts to signals meanwhile.
//! - [`errors`] maps the engine's errors to exceptions.
//! - [`command`] is the command `fhrd`.

use pyo3::prelude::*;

mod call;
mod command;
mod errors;
mod layout;
mod reader;
mod repository;
mod rows;
mod source;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::add(module)?;
    module.add_class::<repository::Engine>()?;
    module.add_class::<source::Files>()?;
    module.add_class::<source::ArrayHashes>()?;
    module.add_class::<reader::StoredBytes>()?;
    module.add_class::<rows::SnapshotRow>()?;
    module.add_class::<rows::EntryRow>()?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
