"""What the package offers, which `fhrd` imports when it is used first."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _engine, arguments
from .checkpoint import ArrayInfo as ArrayInfo
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import FileInfo as FileInfo
from .checkpoint import GitCommit as GitCommit
from .checkpoint import LoadedArrays as LoadedArrays
from .comparison import TensorDiff as TensorDiff
from .errors import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    ClosedError as ClosedError,
    DamagedError as DamagedError,
    FhrdError as FhrdError,
    InterruptedError as InterruptedError,
    LockedError as LockedError,
    NoArrayError as NoArrayError,
    NotDoneError as NotDoneError,
    NotFoundError as NotFoundError,
    NotTrustedError as NotTrustedError,
    ReadOnlyError as ReadOnlyError,
    RepositoryNotFoundError as RepositoryNotFoundError,
    StepExistsError as StepExistsError,
    StorageError as StorageError,
    StorageFullError as StorageFullError,
    UnreachableError as UnreachableError,
    UnsupportedError as UnsupportedError,
)
from .reports import (
    CheckReport as CheckReport,
    CopiedSnapshot as CopiedSnapshot,
    FamilyModel as FamilyModel,
    PruneReport as PruneReport,
    PublishedName as PublishedName,
    RepositoryStatistics as RepositoryStatistics,
    RestoreReport as RestoreReport,
    SavedCheckpoint as SavedCheckpoint,
    SnapshotInfo as SnapshotInfo,
    TensorChange as TensorChange,
)
from .repository import STAGED_BYTES_MAX
from .repository import Repository as Repository
from .rules import Keep as Keep
from .runs import Run as Run
from .safe import SafeFile as SafeFile
from .safe import SafeSlice as SafeSlice
from .safe import safe_open as safe_open
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
    timeout: float | None = None,
) -> Repository:
    """Opens a repository.

    Args:
        path_or_url: a directory, in which `~` is the home directory, or the URL of a remote store as the command line
            takes it.
        password: password of an encrypted repository; by default that of FHRD_PASSWORD. With `create`, a new
            repository is encrypted if a password, FHRD_PASSWORD or the option `key_file` is given.
        create: create the repository if there is none.
        options: `config` (a TOML file with the settings of the engine), `memory` (such as `1 GiB`; 256 MiB by default),
            `key_file`, `endpoint` and `ssh_command`, as the options of the command line. `unencrypted`: `true` lets
            `create` make a repository that is not encrypted, and uses a repository that is not although a password is
            given.
        staged_bytes_max: bytes of memory that asynchronous saves may stage at once. A single save may exceed it.
        timeout: seconds for which a request to a remote store that fails is tried again. A try that hangs may take as
            long again, and a save sends several requests. By default up to 5 minutes.

    Raises:
        RepositoryNotFoundError: (a FileNotFoundError) if there is none, and `create` is false.
        LockedError: (a PermissionError) if the password is missing or wrong, or given for a repository that is not
            encrypted.
        UnreachableError: (a ConnectionError) if a remote store does not answer.
        ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible.
    """
    location = arguments.location(path_or_url)
    arguments.whole_number(staged_bytes_max, "staged_bytes_max")
    seconds = None if timeout is None else arguments.seconds(timeout, "timeout")
    given = arguments.texts(options or {}, "options")
    if password is not None:
        try:
            arguments.text(password, "password")
        except ArgumentError as error:
            # The message must not have the password.
            raise type(error)("password: expected a text without halves of characters") from None
    arguments.flags(create=create)
    if not location:
        raise ArgumentError("path_or_url: expected a path or a URL, found an empty text")
    # The process may change its working directory.
    absolute = arguments.absolute(location)
    engine = _engine.Engine.open(absolute, password, create, given, seconds)
    opened_with = {"path_or_url": absolute, "password": password, "options": given, "timeout": timeout}
    return Repository(engine, location, staged_bytes_max, opened_with)
