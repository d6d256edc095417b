//! Exceptions: one class for each way in which a caller can react. The package has them in `fhrd.errors`.

use std::io::ErrorKind as ErrorKindOfFile;

use fhrd::Error;
use fhrd::error::ErrorKind;
use pyo3::import_exception;
use pyo3::prelude::*;

import_exception!(fhrd.errors, ArgumentError);
import_exception!(fhrd.errors, DamagedError);
import_exception!(fhrd.errors, FhrdError);
import_exception!(fhrd.errors, InterruptedError);
import_exception!(fhrd.errors, LockedError);
import_exception!(fhrd.errors, NotFoundError);
import_exception!(fhrd.errors, ReadOnlyError);
import_exception!(fhrd.errors, RepositoryNotFoundError);
import_exception!(fhrd.errors, StorageError);
import_exception!(fhrd.errors, StorageFullError);
import_exception!(fhrd.errors, UnreachableError);
import_exception!(fhrd.errors, UnsupportedError);

/// What writes.
const WRITING: [&str; 5] = ["create", "create directory", "delete", "rename", "write"];

fn allows_no_writing(kind: ErrorKindOfFile) -> bool {
    matches!(kind, ErrorKindOfFile::PermissionDenied | ErrorKindOfFile::ReadOnlyFilesystem)
}

/// The exception of an error of the engine.
pub fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::NoSuchSnapshot { .. } | Error::NoSuchPath { .. } => return NotFoundError::new_err(text),
        Error::Usage(_) | Error::Config { .. } | Error::ConfigConflict { .. } => return ArgumentError::new_err(text),
        Error::Unwritable { .. } => return ReadOnlyError::new_err(text),
        error if error.is_full_disk() => return StorageFullError::new_err(text),
        error if error.is_unreachable() => return UnreachableError::new_err(text),
        Error::Io { action, source, .. } if WRITING.contains(action) && allows_no_writing(source.kind()) => {
            return ReadOnlyError::new_err(text);
        }
        _ => {}
    }
    match error.kind() {
        ErrorKind::NoRepository => RepositoryNotFoundError::new_err(text),
        ErrorKind::Damaged | ErrorKind::NotFound => DamagedError::new_err(text),
        ErrorKind::Interrupted => InterruptedError::new_err(text),
        ErrorKind::Locked => LockedError::new_err(text),
        ErrorKind::ReadOnly => ReadOnlyError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::Cold => StorageError::new_err(text),
        ErrorKind::Failed if matches!(error, Error::Io { .. } | Error::Remote { .. }) => StorageError::new_err(text),
        ErrorKind::Unreachable | ErrorKind::Failed | ErrorKind::Internal => FhrdError::new_err(text),
    }
}
