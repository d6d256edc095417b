"""fhrd: deduplicated, compressed checkpoints from inside Python.

>>> import fhrd, numpy
>>> repo = fhrd.open("checkpoints", create=True)
>>> saved = repo.save({"weight": numpy.ones(3)}, run="first", step=10, metrics={"val_loss": 0.5})
>>> repo.load(run="first", step="best:val_loss:min")["weight"]
array([1., 1., 1.])
"""

from __future__ import annotations

# What `typing` has under this name. Its import takes longer than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import arguments as arguments
    from . import arrays as arrays
    from . import checkpoint as checkpoint
    from . import errors as errors
    from . import repository as repository
    from . import runs as runs
    from . import staging as staging
    from . import table as table
    from ._public import *
    from ._public import __version__

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ArrayInfo",
    "CheckReport",
    "Checkpoint",
    "ClosedError",
    "CopiedSnapshot",
    "DamagedError",
    "FamilyModel",
    "FhrdError",
    "FileInfo",
    "GitCommit",
    "InterruptedError",
    "Keep",
    "LoadedArrays",
    "LockedError",
    "NoArrayError",
    "NotDoneError",
    "NotFoundError",
    "NotTrustedError",
    "PruneReport",
    "PublishedName",
    "ReadOnlyError",
    "Repository",
    "RepositoryNotFoundError",
    "RepositoryStatistics",
    "RestoreReport",
    "Run",
    "SafeFile",
    "SafeSlice",
    "SaveHandle",
    "SavedCheckpoint",
    "SnapshotInfo",
    "StepExistsError",
    "StorageError",
    "StorageFullError",
    "Table",
    "TensorChange",
    "TensorDiff",
    "UnreachableError",
    "UnsupportedError",
    "open",
    "safe_open",
]


# Modules that need no import of their own.
_MODULES = ("arrays", "checkpoint", "errors", "repository", "runs", "staging", "table")


def __getattr__(name: str) -> object:
    """Imports what the package offers when it is used first: the command `fhrd` needs neither it nor NumPy."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in __all__ and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = import_module("._public", __name__)
    globals().update({each: getattr(public, each) for each in (*__all__, "__version__")})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "__version__"})
