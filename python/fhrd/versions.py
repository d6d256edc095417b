"""What the fsspec file system shows: versions of files, and the areas that they are in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["WHOLE", "Area", "Version"]

_SNAPSHOT = "snapshot:"
#: Tag of a snapshot of this file system that has all files of a step, and not only some that belong to it.
WHOLE = "sharded"


@dataclass(frozen=True)
class Version:
    """One version of a file."""

    size: int
    snapshot: str
    #: Path within the snapshot.
    inner: str
    time: datetime
    #: Whether this file system wrote the snapshot.
    is_own: bool
    #: Whether it is from the future, and so counts as older than all that is not.
    is_future: bool = False


@dataclass(frozen=True)
class Area:
    """The first name of a path: a run and step, a snapshot, or neither."""

    name: str
    run: str | None = None
    step: int | None = None
    snapshot: str | None = None

    @staticmethod
    def of(name: str) -> Area:
        if name.startswith(_SNAPSHOT):
            return Area(name, snapshot=name.removeprefix(_SNAPSHOT))
        run, mark, step = name.rpartition("@")
        if mark and run and step.isascii() and step.isdigit():
            return Area(name, run=run, step=int(step))
        return Area(name)

    def inner(self, path: str) -> str:
        """Path of a file within its snapshots."""
        return path if self.run is None else path.partition("/")[2]
