"""What the package offers, which `fhrd` imports when it is used first."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _engine
from ._engine import (
    ArgumentError,
    DamagedError,
    FhrdError,
    InterruptedError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    RepositoryNotFoundError,
    StorageFullError,
    UnsupportedError,
)
from .checkpoint import ArrayInfo, Checkpoint, FileInfo, LoadedArrays
from .repository import (
    STAGED_BYTES_MAX,
    Keep,
    Repository,
    SavedCheckpoint,
    SnapshotInfo,
    TensorChange,
)
from .staging import SaveHandle
from .table import Table

__version__ = _engine.__version__

__all__ = [
    "ArgumentError",
    "ArrayInfo",
    "Checkpoint",
    "DamagedError",
    "FhrdError",
    "FileInfo",
    "InterruptedError",
    "Keep",
    "LoadedArrays",
    "LockedError",
    "NotFoundError",
    "ReadOnlyError",
    "Repository",
    "RepositoryNotFoundError",
    "SaveHandle",
    "SavedCheckpoint",
    "SnapshotInfo",
    "StorageFullError",
    "Table",
    "TensorChange",
    "UnsupportedError",
    "open",
]


def open(
    path_or_url: str | os.PathLike[str],
    *,
    password: str | None = None,
    create: bool = False,
    options: Mapping[str, str] | None = None,
    staged_bytes_max: int = STAGED_BYTES_MAX,
) -> Repository:
    """Opens a repository.

    Args:
        path_or_url: a directory, or the URL of a remote store as the command line takes it.
        password: password of an encrypted repository; by default that of FHRD_PASSWORD. With `create`, a new
            repository is encrypted if a password or the option `key_file` is given.
        create: create the repository if there is none.
        options: `config` (a TOML file with the settings of the engine), `key_file`, `endpoint` and `ssh_command`, as
            the options of the command line. `unencrypted`: `true` lets `create` make a remote repository that is not
            encrypted, and uses a repository that is not although a password is given.
        staged_bytes_max: bytes of memory that asynchronous saves may stage at once. A single save may exceed it.

    Raises:
        RepositoryNotFoundError: if there is none, and `create` is false.
        LockedError: if the password is missing or wrong, or given for a repository that is not encrypted.
    """
    location = os.fspath(path_or_url)
    engine = _engine.Engine.open(location, password, create, dict(options or {}))
    return Repository(engine, location, staged_bytes_max)
