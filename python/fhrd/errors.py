"""Exceptions. Each is a `FhrdError`, and also the exception of Python that callers expect for its cause."""

from __future__ import annotations

import builtins
import errno as _errno

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ClosedError",
    "DamagedError",
    "FhrdError",
    "InterruptedError",
    "LockedError",
    "NoArrayError",
    "NotDoneError",
    "NotFoundError",
    "NotTrustedError",
    "ReadOnlyError",
    "RepositoryNotFoundError",
    "StepExistsError",
    "StorageError",
    "StorageFullError",
    "UnreachableError",
    "UnsupportedError",
]


class FhrdError(Exception):
    """Something failed. Stored data is intact unless a subclass says otherwise."""


class ArgumentError(FhrdError, ValueError):
    """An argument is impossible. Nothing was changed."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type that is not taken. Nothing was changed."""


class ClosedError(FhrdError, ValueError):
    """The repository is closed."""


class RepositoryNotFoundError(FhrdError, FileNotFoundError):
    """There is no repository at the given path or URL."""


class LockedError(FhrdError, PermissionError):
    """The repository is encrypted, and the password is missing or wrong; or it is not, and a password is given."""


class NotFoundError(FhrdError, LookupError):
    """No snapshot, run, step, file or array has this name."""


class NoArrayError(NotFoundError, KeyError):
    """The file has no array of this name."""

    # A KeyError would show the text in quotes.
    __str__ = Exception.__str__


class NotTrustedError(FhrdError, ValueError):
    """What is stored runs code when it is loaded, or may do so. It is loaded only if the caller trusts the repository."""


class StepExistsError(FhrdError, FileExistsError):
    """The run has this step. `if_exists` says what to do then. Nothing was changed."""


class DamagedError(FhrdError, OSError):
    """Stored data differs from what was written, or is missing."""


class StorageError(FhrdError, OSError):
    """A file or a store cannot be read or written. Nothing that was reported is lost."""


class StorageFullError(StorageError):
    """The disk of the repository is full. Nothing that was reported is lost."""

    errno: int | None = _errno.ENOSPC


class UnreachableError(StorageError, ConnectionError):
    """A remote store does not answer. The same may succeed later. Nothing that was reported is lost."""


class ReadOnlyError(FhrdError, PermissionError):
    """The repository, its credentials or the directory of a restore allow no writing."""


class UnsupportedError(FhrdError, NotImplementedError):
    """A newer fhrd wrote the data, which is intact; or NumPy or torch has no such type."""


class NotDoneError(FhrdError, TimeoutError):
    """An asynchronous save is not done in time. It goes on."""


class InterruptedError(FhrdError, builtins.InterruptedError):
    """The operation was stopped before it was complete."""
