//! Exceptions: one class for each way in which a caller can react.

use fhrd::Error;
use fhrd::error::ErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    fhrd,
    FhrdError,
    PyException,
    "Something failed. Stored data is intact unless a subclass says otherwise."
);
create_exception!(fhrd, RepositoryNotFoundError, FhrdError, "There is no repository at the given place.");
create_exception!(fhrd, LockedError, FhrdError, "The repository is encrypted, and the password is missing or wrong.");
create_exception!(fhrd, DamagedError, FhrdError, "Stored data differs from what was written, or is missing.");
create_exception!(fhrd, ReadOnlyError, FhrdError, "The repository or its credentials allow no writing.");
create_exception!(fhrd, NotFoundError, FhrdError, "No snapshot, run, step, file or array has this name.");
create_exception!(
    fhrd,
    StorageFullError,
    FhrdError,
    "The disk of the repository is full. Nothing that was reported is lost."
);
create_exception!(fhrd, UnsupportedError, FhrdError, "A newer fhrd wrote the data. It is intact.");
create_exception!(fhrd, ArgumentError, FhrdError, "An argument is impossible. Nothing was changed.");
create_exception!(fhrd, InterruptedError, FhrdError, "The operation was stopped before it was complete.");

/// Adds the classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("FhrdError", py.get_type::<FhrdError>())?;
    module.add("RepositoryNotFoundError", py.get_type::<RepositoryNotFoundError>())?;
    module.add("LockedError", py.get_type::<LockedError>())?;
    module.add("DamagedError", py.get_type::<DamagedError>())?;
    module.add("ReadOnlyError", py.get_type::<ReadOnlyError>())?;
    module.add("NotFoundError", py.get_type::<NotFoundError>())?;
    module.add("StorageFullError", py.get_type::<StorageFullError>())?;
    module.add("UnsupportedError", py.get_type::<UnsupportedError>())?;
    module.add("ArgumentError", py.get_type::<ArgumentError>())?;
    module.add("InterruptedError", py.get_type::<InterruptedError>())
}

/// The exception of an error of the engine.
pub fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::NoSuchSnapshot { .. } | Error::NoSuchPath { .. } => return NotFoundError::new_err(text),
        Error::Usage(_) | Error::Config { .. } | Error::ConfigConflict { .. } => return ArgumentError::new_err(text),
        error if error.is_full_disk() => return StorageFullError::new_err(text),
        _ => {}
    }
    match error.kind() {
        ErrorKind::NoRepository => RepositoryNotFoundError::new_err(text),
        ErrorKind::Damaged | ErrorKind::NotFound => DamagedError::new_err(text),
        ErrorKind::Interrupted => InterruptedError::new_err(text),
        ErrorKind::Locked => LockedError::new_err(text),
        ErrorKind::ReadOnly => ReadOnlyError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::Failed | ErrorKind::Internal => FhrdError::new_err(text),
    }
}
