"""What the package offers, which `fhrd` imports when it is used first."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _engine
from ._engine import (
    ArgumentError as ArgumentError,
    DamagedError as DamagedError,
    FhrdError as FhrdError,
    InterruptedError as InterruptedError,
    LockedError as LockedError,
    NotFoundError as NotFoundError,
    ReadOnlyError as ReadOnlyError,
    RepositoryNotFoundError as RepositoryNotFoundError,
    StorageFullError as StorageFullError,
    UnsupportedError as UnsupportedError,
)
from .checkpoint import ArrayInfo as ArrayInfo
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import FileInfo as FileInfo
from .checkpoint import LoadedArrays as LoadedArrays
from .repository import (
    STAGED_BYTES_MAX,
    Keep as Keep,
    Repository as Repository,
    SavedCheckpoint as SavedCheckpoint,
    SnapshotInfo as SnapshotInfo,
    TensorChange as TensorChange,
)
from .staging import SaveHandle as SaveHandle
from .table import Table as Table

__version__ = _engine.__version__


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
