"""What operations return."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from ._engine import SnapshotRow

_Report = TypeVar("_Report")


@dataclass(frozen=True)
class SavedCheckpoint:
    """What a save has stored."""

    #: Id of the snapshot, 64 hex digits.
    id: str
    #: Bytes of all files.
    total_bytes: int
    #: Bytes that the repository did not have.
    added_bytes: int
    #: Bytes that it has grown by, compressed.
    stored_bytes: int
    #: Arrays of 64 KiB and more of which the repository had every byte. Smaller ones are not counted.
    unchanged_arrays: int
    #: Seconds from start to commit.
    seconds: float
    #: Ids of the snapshots that `keep` and `if_exists="replace"` deleted.
    deleted: tuple[str, ...] = ()
    #: Whether the run had the step, and `if_exists="keep"` left it as it is. Then nothing was stored.
    existed: bool = False


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot."""

    id: str
    time: datetime
    host: str
    user: str
    paths: tuple[str, ...]
    tags: tuple[str, ...]
    run: str | None
    step: int | None
    metrics: Mapping[str, float]
    #: Counters of the backup, such as `bytes` and `bytes_stored`.
    statistics: Mapping[str, int]
    #: Whether its time is later than now by more than five minutes, so that a clock is or was wrong.
    is_future: bool = False


@dataclass(frozen=True)
class TensorChange:
    """A tensor that differs between two checkpoints."""

    name: str
    #: `added`, `removed`, `changed`, or `reshaped` if the type or the shape is another one.
    kind: str
    dtype: str
    shape: tuple[int, ...]
    #: Mean number of differing bits of a value, for `changed`.
    bit_distance: float | None


@dataclass(frozen=True)
class RestoreReport:
    """What a restore has written. Sizes are bytes."""

    #: Id of the snapshot.
    snapshot: str
    #: The directory.
    target: str
    #: Regular files that were written whole.
    files: int
    directories: int
    #: Links and special files.
    others: int
    #: Entries that were the same before.
    unchanged: int
    #: Entries that differ, and stay.
    left_alone: int
    #: Content that was written.
    bytes: int
    #: Content that the target had.
    bytes_reused: int
    #: Metadata that the target refused.
    warnings: int
    #: Entries that could not be written.
    problems: int
    seconds: float


@dataclass(frozen=True)
class PruneReport:
    """What a prune has given back. Sizes are bytes."""

    snapshots: int
    #: Size of all containers before.
    bytes: int
    #: What snapshots need of it, estimated.
    bytes_needed: int
    containers_deleted: int
    bytes_deleted: int
    #: Written in place of what was deleted.
    bytes_written: int
    #: What nobody needs, but which is younger than the grace period.
    bytes_young: int
    #: What nobody needs, but which a lock of the store keeps.
    bytes_locked: int
    #: Whether it gave up because other prunes or backups were in the way. Run it again then.
    withdrawn: bool
    dry_run: bool


@dataclass(frozen=True)
class CheckReport:
    """What a check has found."""

    snapshots: int
    containers: int
    chunks: int
    #: Bytes of all containers.
    bytes_stored: int
    #: Bytes of those that were read whole.
    bytes_read: int
    #: Number of defects: 0 for a sound repository.
    defect_count: int
    #: The first 1000 of them.
    defects: tuple[str, ...]
    #: Number of parts that only a newer version can read. They are no defects.
    newer_count: int
    #: Damage that costs nothing, the first 1000.
    notes: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there is no defect."""
        return self.defect_count == 0


@dataclass(frozen=True)
class CopiedSnapshot:
    """A snapshot that was copied from another repository. Sizes are bytes."""

    #: Id in the other repository.
    original: str
    #: Id here. `None` after a dry run.
    copy: str | None
    #: Whether it was copied before. Then nothing of it is counted.
    existed: bool
    #: Entries that the copy lacks, because they could not be read.
    problems: int
    bytes: int
    bytes_new: int
    bytes_stored: int


@dataclass(frozen=True)
class FamilyModel:
    """A model, and the one that it was stored against."""

    name: str
    path: str
    #: Id of the snapshot that has it. `None` for a base that is in none of the snapshots.
    snapshot: str | None
    #: Index of its parent in the list. `None` for a root.
    parent: int | None
    #: Number of models above it.
    depth: int
    dtype: str | None
    #: Number of values.
    parameters: int | None
    bytes: int | None
    stored_bytes: int | None


@dataclass(frozen=True)
class RepositoryStatistics:
    """Sizes of a repository, bytes."""

    snapshots: int
    containers: int
    chunks: int
    #: Content of all snapshots, as each counts it.
    snapshot_bytes: int
    #: Content of all chunks.
    raw_bytes: int
    #: What the store has, by kind of blob; `total` is the sum.
    stored_bytes: Mapping[str, int]
    #: `raw_bytes` for each stored byte.
    ratio: float


@dataclass(frozen=True)
class PublishedName:
    """A directory of a snapshot that has a name, such as `me/llama@production`."""

    name: str
    #: `model` or `dataset`.
    kind: str
    revision: str
    #: What clients of the Hub know it by, 40 hex digits.
    commit: str
    #: Id of the snapshot that holds the name.
    snapshot: str
    time: datetime
    files: int
    bytes: int


def read(kind: type[_Report], report: Mapping[str, Any]) -> _Report:
    """The fields of a report that `kind` has."""
    values = {one.name: report[one.name] for one in fields(kind)}  # type: ignore[arg-type]  # pyright: ignore
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}  # pyright: ignore
    return kind(**{**values, **lists})


def warn_of_damaged(damaged: Sequence[str]) -> None:
    """Warns of snapshots that a listing lacks, because they cannot be read."""
    if damaged:
        message = f"{len(damaged)} snapshots cannot be read, so something may be missing: {damaged[0]}"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def later_ns(time: datetime) -> int:
    """A time after `time`, which `utc` has rounded. Nanoseconds since 1970."""
    since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return since // timedelta(microseconds=1) * 1000 + 2000


def utc(time_ns: int) -> datetime:
    """A time in UTC. Nanoseconds since 1970."""
    return datetime.fromtimestamp(time_ns / 1e9, timezone.utc)


def saved(report: Mapping[str, Any]) -> SavedCheckpoint:
    """What a save reports."""
    return SavedCheckpoint(
        id=report["snapshot"],
        total_bytes=report["bytes"],
        added_bytes=report["bytes_new"],
        stored_bytes=report["bytes_stored"],
        unchanged_arrays=report["tensors"] - report["tensors_new"],
        seconds=report["seconds"],
    )


def existing(row: SnapshotRow) -> SavedCheckpoint:
    """A step that was there before."""
    return SavedCheckpoint(row.id, row.statistics.get("bytes", 0), 0, 0, 0, 0.0, existed=True)


def info(row: SnapshotRow) -> SnapshotInfo:
    """A snapshot of a listing."""
    return SnapshotInfo(
        id=row.id,
        time=utc(row.time_ns),
        host=row.host,
        user=row.user,
        paths=tuple(row.paths),
        tags=tuple(row.tags),
        run=row.run,
        step=row.step,
        metrics=row.metrics,
        statistics=row.statistics,
        is_future=row.is_future,
    )


def published(row: Mapping[str, Any]) -> PublishedName:
    """A published name of a listing."""
    return read(PublishedName, {**row, "time": utc(row["time_ns"])})
