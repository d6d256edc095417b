"""Repositories: save, load, list and forget."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Union

import numpy as np

from . import _engine as native  # pyright: ignore[reportPrivateUsage]
from . import arrays as conversion
from ._engine import ArgumentError, FhrdError, NotFoundError, SnapshotRow
from .checkpoint import Checkpoint, LoadedArrays
from .staging import SaveHandle, Writer
from .table import Table
from .versions import RunVersions, Versioned

PathLike = Union[str, "os.PathLike[str]"]
Progress = Callable[[dict[str, int]], Any]
Files = Union[Sequence[PathLike], Mapping[str, "PathLike | bytes"]]

#: Bytes that asynchronous saves may stage at once, unless `fhrd.open` is told otherwise.
STAGED_BYTES_MAX = 4 << 30


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
    #: Ids of the snapshots that `keep` deleted.
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """Which steps of a run stay. A step stays if any rule keeps it. Without rules, all stay.

    Snapshots whose time is from the future stay, and count for no rule.

    Args:
        last: the last steps.
        best: the best steps by a metric: `{"val_loss": ("min", 3)}`. If no step has a number for it, all stay.
        every: steps whose number is a multiple of this.
        tags: steps with any of these tags; `"a,b"` stands for both tags.
    """

    last: int = 0
    best: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, "tuple[str, int]"])
    every: int = 0
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        for metric, (mode, _) in self.best.items():
            _check_mode(mode, metric)
        _split_tags(self.tags)

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not (self.last > 0 or self.best or self.every > 0 or self.tags)

    def kept(self, rows: Sequence[SnapshotRow]) -> set[str]:
        """Ids of the rows that stay. `rows` are steps of one run, by ascending step."""
        if self.is_empty:
            return {row.id for row in rows}
        stays = {row.id for row in rows[len(rows) - self.last :]} if self.last > 0 else set[str]()
        for metric, (mode, count) in self.best.items():
            ranked = _ranked(rows, metric, mode)
            if not ranked:
                return {row.id for row in rows}
            stays.update(row.id for row in ranked[: max(count, 0)])
        for row in rows:
            if self.every > 0 and (row.step or 0) % self.every == 0:
                stays.add(row.id)
            if self._has_tag(row):
                stays.add(row.id)
        return stays

    def _has_tag(self, row: SnapshotRow) -> bool:
        lists = [self.tags] if isinstance(self.tags, str) else self.tags
        return any(one in row.tags or set(_split_tags(one)) <= set(row.tags) for one in lists)


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


def _split_tags(tags: Sequence[str] | str) -> list[str]:
    """The tags of a list as on the command line: a comma separates tags, and none is empty."""
    given = ([tags] if tags else []) if isinstance(tags, str) else tags
    split = [tag.strip() for one in given for tag in one.split(",")]
    if "" in split:
        raise ArgumentError(f"expected tags that are not empty, found {tags!r}")
    return list(dict.fromkeys(split))


def _check_mode(mode: str, metric: str) -> None:
    if mode not in ("min", "max"):
        raise ArgumentError(f"best value of `{metric}`: expected min or max, found `{mode}`")


def _ranked(rows: Sequence[SnapshotRow], metric: str, mode: str) -> list[SnapshotRow]:
    """The rows with a number for a metric, the best first; of equal ones the first."""
    _check_mode(mode, metric)
    sign = 1.0 if mode == "min" else -1.0
    with_number = [row for row in rows if row.metrics.get(metric, float("nan")) == row.metrics.get(metric)]
    return sorted(with_number, key=lambda row: sign * row.metrics[metric])


class Repository:
    """An open repository. `fhrd.open` returns it.

    It is a context manager, and its methods may be called from several threads. After a fork the new process opens the
    repository again: there, each method raises `FhrdError`.
    """

    def __init__(self, engine: native.Engine, location: str, staged_bytes_max: int) -> None:
        self._native = engine
        self.location = location
        self._writer = Writer(staged_bytes_max)
        self._is_closed = False
        #: Of the last save of each run, if it trusted versions.
        self._versions: dict[str, RunVersions] = {}

    # Life

    def _use(self) -> native.Engine:
        if not self._native.is_usable:
            raise FhrdError(
                "this repository was opened before this process was forked: call fhrd.open again in the new process"
            )
        if self._is_closed:
            raise FhrdError("the repository is closed")
        return self._native

    @property
    def id(self) -> str:
        """Id of the repository, 32 hex digits."""
        return self._native.id

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception as second:
            # The first exception is the one that counts.
            if hasattr(error, "add_note"):
                error.add_note(f"fhrd: an asynchronous save failed, too: {second}")  # pyright: ignore

    def flush(self, timeout: float | None = None) -> None:
        """Waits for the asynchronous saves, and raises the first error that nobody looked at.

        Raises:
            TimeoutError: if they are not done after `timeout` seconds. They go on.
        """
        self._use()
        self._writer.flush(timeout)

    def close(self) -> None:
        """As `flush`. The repository cannot be used afterwards. In a forked process it does nothing."""
        if self._is_closed or not self._native.is_usable:
            return
        try:
            self._writer.close()
        finally:
            self._is_closed = True

    def __repr__(self) -> str:
        return f"<Repository {self.location}>"

    # Save

    def save(
        self,
        arrays: Mapping[str, Any],
        *,
        run: str | None = None,
        step: int | None = None,
        metrics: Mapping[str, float] = {},
        tags: Sequence[str] = (),
        files: Files = (),
        metadata: Mapping[str, str] = {},
        name: str = "model.safetensors",
        keep: Keep | None = None,
        progress: Progress | None = None,
        trust_versions: bool = False,
    ) -> SavedCheckpoint:
        """Stores arrays as one safetensors file in a new snapshot, and returns when it is durable.

        The bytes are read straight from the memory of contiguous arrays on the CPU. Do not write to them meanwhile: a
        save that notices it fails. `save_async` copies them first.

        Args:
            arrays: NumPy arrays, torch tensors, objects with the buffer protocol or `__dlpack__`, by name. It may be
                empty if there are `files`.
            run: name of the run. With `step`, the snapshot is a step of it.
            step: number of the step, 0 or more.
            metrics: numbers by name, such as `{"val_loss": 0.5}`.
            tags: labels of the snapshot; a comma separates labels.
            files: files to store beside the arrays: paths, or a mapping from path in the snapshot to a path or bytes.
            metadata: texts for the header of the safetensors file.
            name: path of the safetensors file in the snapshot.
            keep: which steps of the run stay. The others are deleted after this one is durable; `prune` then gives
                back their space. If no step would stay, or several snapshots are from the future, none is deleted.
            progress: called now and then with counters, on the calling thread. What it raises stops the save.
            trust_versions: do not hash torch tensors whose storage, address, shape, strides, type and `_version` are
                those of the last save of the run by this object, if that one had this argument, too. *A change that
                does not raise `_version` is not saved then, and nothing tells of it*: steps of optimizers with
                `fused=True`, writes through `.data`, NumPy views, DLPack, or the kernels of other libraries.

        Raises:
            ArgumentError: for arrays, names or metrics that cannot be stored, or if `trust_versions` has no run.
            StorageFullError: if the disk of the repository is full.
            FhrdError: if the save fails in another way. Then there is no snapshot, and nothing else is lost.
        """
        self._use()
        versions = self._begin(run, name) if trust_versions else None
        if versions is None:
            self._distrust(run)
        stored = self._files(arrays, files, metadata, name, is_staged=False, versions=versions)
        saved = self._save(stored, run, step, metrics, tags, progress)
        if versions is not None:
            versions.complete()
        return self._retain(saved, keep, run)

    def _distrust(self, run: str | None) -> None:
        if run is not None:
            self._versions.pop(run, None)

    def _begin(self, run: str | None, name: str) -> RunVersions:
        """Takes what the last save of a run has left. If this one fails, the next one trusts nothing."""
        if run is None:
            raise ArgumentError("`trust_versions` compares with the last save of a run: name the run")
        versions = RunVersions(name, self._versions.pop(run, None))
        self._versions[run] = versions
        return versions

    def save_async(
        self,
        arrays: Mapping[str, Any],
        *,
        run: str | None = None,
        step: int | None = None,
        metrics: Mapping[str, float] = {},
        tags: Sequence[str] = (),
        files: Files = (),
        metadata: Mapping[str, str] = {},
        name: str = "model.safetensors",
        keep: Keep | None = None,
        progress: Progress | None = None,
    ) -> SaveHandle:
        """As `save`, but returns as soon as the bytes are copied.

        One thread writes the saves in their order. Copies are bounded by `staged_bytes_max` of `fhrd.open`: a call
        that would exceed it waits for the saves before. Files on disk are read later and must not change.

        An error of the save is in the handle. If nobody asks the handle, `flush` and `close` raise it, and an
        interpreter that exits prints it. Impossible arguments raise `ArgumentError` at once.
        """
        self._use()
        self._distrust(run)
        nbytes = sum(_nbytes(array) for array in arrays.values())
        if isinstance(files, Mapping):
            nbytes += sum(len(file) for file in files.values() if isinstance(file, bytes))
        self._writer.reserve(nbytes)
        try:
            stored = self._files(arrays, files, metadata, name, is_staged=True)
            values = (run, step, dict(metrics), tuple(_split_tags(tags)), progress)
            handle = SaveHandle(f"{run}@{step}" if run is not None else name)
            box = [stored]
            del stored
            self._writer.submit(handle, nbytes, lambda: self._retain(self._save(box.pop(), *values), keep, run))
        except BaseException:
            self._writer.release(nbytes)
            raise
        return handle

    def _files(
        self,
        given: Mapping[str, Any],
        files: Files,
        metadata: Mapping[str, str],
        name: str,
        *,
        is_staged: bool,
        versions: RunVersions | None = None,
    ) -> native.Files:
        stored = native.Files()
        if given:
            header = {str(key): str(value) for key, value in metadata.items()}
            items: list[tuple[str, str, Sequence[int], conversion.Bytes, native.ArrayHashes | None]] = []
            for key, array in given.items():
                # Before the bytes are read: a change meanwhile raises the version.
                hashes = versions.hashes(key, array) if versions is not None else None
                try:
                    found = conversion.array_bytes(array.array if isinstance(array, Versioned) else array)
                except ArgumentError as error:
                    raise ArgumentError(f"array `{key}`: {error}") from None
                if found.true_type is not None:
                    header[conversion.DTYPE_KEY + key] = found.true_type
                items.append((key, found.dtype, found.shape, found.data, hashes))
            stored.add_arrays(name, items, header, is_staged)
        if isinstance(files, Mapping):
            for path, source in files.items():
                if isinstance(source, bytes):
                    stored.add_bytes(path, source)
                else:
                    stored.add_path(path, os.fspath(source))
        else:
            for source in files:
                path = os.fspath(source)
                stored.add_path(os.path.basename(path), path)
        return stored

    def _save(
        self,
        files: native.Files,
        run: str | None,
        step: int | None,
        metrics: Mapping[str, float],
        tags: Sequence[str],
        progress: Progress | None,
    ) -> SavedCheckpoint:
        numbers = {str(key): float(value) for key, value in metrics.items()}
        text = self._use().save(
            files, run=run, step=step, metrics=numbers, tags=_split_tags(tags), time_ns=None, report=progress
        )
        return _saved(json.loads(text))

    def _retain(self, saved: SavedCheckpoint, keep: Keep | None, run: str | None) -> SavedCheckpoint:
        if keep is None or run is None:
            return saved
        try:
            return replace(saved, deleted=tuple(self.forget(keep=keep, run=run)))
        except _NothingDeleted as reason:
            import warnings

            warnings.warn(str(reason), RuntimeWarning, stacklevel=3)
            return saved

    # Load

    def load(
        self,
        *,
        run: str | None = None,
        step: int | str | None = None,
        snapshot: str | None = None,
        name: str = "model.safetensors",
        names: Iterable[str] | None = None,
        device: Any = None,
        framework: str = "numpy",
    ) -> LoadedArrays:
        """The arrays of a checkpoint, as a mapping that reads each one when it is asked for.

        Args:
            run: name of the run.
            step: number of the step, `"latest"` (the default), or `"best:METRIC:min"` or `"best:METRIC:max"`.
            snapshot: id of a snapshot or a unique beginning of it, instead of `run` and `step`.
            name: path of a safetensors file in the snapshot.
            names: the arrays to have; all by default.
            device: device for torch tensors, such as `"cuda:0"`.
            framework: `"numpy"` or `"torch"`.

        Raises:
            NotFoundError: if there is no such run, step, snapshot, file or array.
            DamagedError: if stored bytes are not those that were written.
        """
        found = self.checkpoint(run=run, step=step, snapshot=snapshot)
        return found.arrays(name, names=names, device=device, framework=framework)

    def checkpoint(
        self, *, run: str | None = None, step: int | str | None = None, snapshot: str | None = None
    ) -> Checkpoint:
        """A checkpoint by run and step, or by the id of its snapshot; the latest snapshot of all by default."""
        if snapshot is not None and (run is not None or step is not None):
            raise ArgumentError("give `snapshot`, or `run` and `step`, not both")
        if run is None and step is not None:
            raise ArgumentError("a step needs the name of its run")
        if run is None:
            wanted = "latest" if snapshot is None else snapshot
        else:
            wanted = f"run:{run}@{'latest' if step is None else step}"
        return Checkpoint(self, self._use().find_snapshot(wanted))

    # Lists

    def snapshots(self) -> list[SnapshotInfo]:
        """All readable snapshots, oldest first."""
        return [_info(row) for row in self._rows()]

    def _rows(self) -> list[SnapshotRow]:
        return self._use().snapshots()[0]

    def _runs(self) -> dict[str, list[SnapshotRow]]:
        """The steps of each run, by ascending step. Of several snapshots of one step the last one counts, and one from
        the future only if there is no other."""
        found: dict[str, dict[int, SnapshotRow]] = {}
        for row in sorted(self._rows(), key=lambda row: not row.is_future):
            if row.run is not None and row.step is not None:
                found.setdefault(row.run, {})[row.step] = row
        return {run: [steps[step] for step in sorted(steps)] for run, steps in sorted(found.items())}

    def _steps(self, run: str) -> list[SnapshotRow]:
        steps = self._runs().get(run)
        if steps is None:
            raise NotFoundError(f"there is no run `{run}`")
        return steps

    def runs(self) -> list[str]:
        """Names of the runs."""
        return list(self._runs())

    def steps(self, run: str) -> Table:
        """The steps of a run by ascending number: step, snapshot, time, bytes, stored_bytes, and each metric.

        Raises:
            NotFoundError: if there is no such run.
        """
        rows = self._steps(run)
        metrics = sorted({metric for row in rows for metric in row.metrics})
        columns = ["step", "snapshot", "time", "bytes", "stored_bytes", *metrics]
        return Table(columns, [_step(row) for row in rows])

    def best(self, run: str, metric: str, mode: str = "min") -> Checkpoint:
        """The step with the best number for a metric, the first of equal ones.

        Raises:
            NotFoundError: if there is no such run, or no step has a number for the metric.
        """
        ranked = _ranked(self._steps(run), metric, mode)
        if not ranked:
            raise NotFoundError(f"no step of the run `{run}` has a number for `{metric}`")
        return Checkpoint(self, ranked[0])

    def diff(self, a: Checkpoint | str, b: Checkpoint | str, *, name: str = "model.safetensors") -> list[TensorChange]:
        """The arrays that differ between two checkpoints, given as such or by id."""
        first, second = (
            one if isinstance(one, Checkpoint) else self.checkpoint(snapshot=one) for one in (a, b)
        )
        old, new = first.arrays(name), second.arrays(name)
        changes: list[TensorChange] = []
        for key in sorted({*old, *new}):
            info = new.info(key) if key in new else old.info(key)
            kind, distance = "added" if key not in old else "removed", None
            if key in old and key in new:
                one, other = old.info(key), new.info(key)
                if (one.dtype, one.shape, one.true_type) != (other.dtype, other.shape, other.true_type):
                    kind = "reshaped"
                else:
                    bits = _differing_bits(old.read_bytes(key), new.read_bytes(key))
                    if bits == 0:
                        continue
                    values = int(np.prod(info.shape, dtype=np.int64))
                    kind, distance = "changed", bits / max(values, 1)
            changes.append(TensorChange(key, kind, info.dtype, info.shape, distance))
        return changes

    # Files and care

    def backup(
        self,
        paths: Sequence[PathLike],
        *,
        tags: Sequence[str] = (),
        run: str | None = None,
        step: int | None = None,
        metrics: Mapping[str, float] = {},
        progress: Progress | None = None,
    ) -> SavedCheckpoint:
        """Stores files and directories as `fhrd backup` does. Entries that cannot be read are left out, and warned of.

        Raises:
            ArgumentError: if none of the paths exists.
        """
        numbers = {str(key): float(value) for key, value in metrics.items()}
        given = [os.fspath(path) for path in paths]
        text = self._use().backup(given, run=run, step=step, metrics=numbers, tags=_split_tags(tags), report=progress)
        report = json.loads(text)
        if report["problems"]:
            import warnings

            warnings.warn(f"{report['problems']} entries could not be read", RuntimeWarning, stacklevel=2)
        return _saved(report)

    def restore(
        self,
        snapshot: Checkpoint | str,
        target: PathLike,
        *,
        include: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Writes the files of a snapshot into a directory. Existing files are left alone. Returns a report.

        Args:
            snapshot: a checkpoint, an id, or a name of the command line such as `run:first@latest`.
            target: the directory. It is created if it is missing.
            include: patterns as of `fhrd restore --include`; everything by default.

        Raises:
            DamagedError: if some content could not be restored; what is good is there.
        """
        wanted = snapshot.id if isinstance(snapshot, Checkpoint) else snapshot
        report: dict[str, Any] = json.loads(
            self._use().restore(wanted, os.fspath(target), list(include), progress)
        )
        if report["damaged"]:
            raise native.DamagedError(f"{report['damaged']} files could not be restored whole")
        return report

    def forget(
        self,
        ids: Sequence[str] = (),
        *,
        keep: Keep | None = None,
        run: str | None = None,
        dry_run: bool = False,
        allow_empty_group: bool = False,
        trust_clock: bool = False,
    ) -> list[str]:
        """Deletes snapshots: those of `ids`, or the steps of runs that `keep` does not keep. `prune` frees the space.

        Args:
            ids: ids of snapshots or unique beginnings of them.
            keep: which steps stay.
            run: the run that `keep` is about; each run for itself by default.
            dry_run: delete nothing.
            allow_empty_group: let `keep` delete all steps of a run.
            trust_clock: let `keep` delete although several snapshots are from the future. These stay.

        Returns:
            Ids of the deleted snapshots.

        Raises:
            ArgumentError: if `keep` would keep no step of a run, or if several snapshots of the repository are from the
                future, so that the clock of this machine may be wrong. Then nothing is deleted.
        """
        if keep is None:
            deleted = [self._use().find_snapshot(one).id for one in ids]
        elif ids:
            raise ArgumentError("give `ids` or `keep`, not both")
        else:
            deleted = [] if keep.is_empty else self._not_kept(keep, run, allow_empty_group, trust_clock)
        if deleted and not dry_run:
            self._use().forget(deleted)
        return deleted

    def _not_kept(self, keep: Keep, run: str | None, allow_empty_group: bool, trust_clock: bool) -> list[str]:
        """The steps that rules do not keep, and snapshots of steps that were saved again later."""
        rows = self._rows()
        if sum(row.is_future for row in rows) > 1 and not trust_clock:
            raise _NothingDeleted("several snapshots are from the future: is the clock of this machine right?")
        runs: dict[str, dict[int, SnapshotRow]] = {}
        shadowed: list[str] = []
        for row in rows:
            if row.run is None or row.step is None or row.is_future or (run is not None and row.run != run):
                continue
            steps = runs.setdefault(row.run, {})
            before = steps.get(row.step)
            if before is not None and not keep._has_tag(before):  # pyright: ignore[reportPrivateUsage]
                shadowed.append(before.id)
            steps[row.step] = row
        deleted: list[str] = []
        for name, steps in sorted(runs.items()):
            ordered = [steps[step] for step in sorted(steps)]
            stays = keep.kept(ordered)
            if not stays and not allow_empty_group:
                raise _NothingDeleted(f"the rules keep no step of the run `{name}`: give `allow_empty_group`")
            deleted += [row.id for row in ordered if row.id not in stays]
        return deleted + shadowed

    def prune(self, *, dry_run: bool = False, grace_seconds: float = 86400.0) -> dict[str, Any]:
        """Gives back the space of what no snapshot needs. Returns a report.

        What is younger than `grace_seconds` stays, because another program may be about to use it.
        """
        report: dict[str, Any] = json.loads(self._use().prune(dry_run, grace_seconds))
        return report

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> dict[str, Any]:
        """Verifies the repository. `report["defect_count"]` is 0 for a sound one. With `read_data`, reads every byte."""
        report: dict[str, Any] = json.loads(self._use().check(read_data, progress))
        return report


class _NothingDeleted(ArgumentError):
    """Rules that would delete too much."""


def _nbytes(array: Any) -> int:
    size = getattr(array, "nbytes", None)
    if isinstance(size, int):
        return size
    try:
        return memoryview(array).nbytes
    except TypeError:
        return 0


def _differing_bits(one: conversion.Bytes, other: conversion.Bytes) -> int:
    total = 0
    for start in range(0, one.size, 1 << 20):
        xor = np.bitwise_xor(one[start : start + (1 << 20)], other[start : start + (1 << 20)])
        if xor.any():
            total += int(np.unpackbits(xor).sum(dtype=np.int64))
    return total


def _saved(report: Mapping[str, Any]) -> SavedCheckpoint:
    return SavedCheckpoint(
        id=report["snapshot"],
        total_bytes=report["bytes"],
        added_bytes=report["bytes_new"],
        stored_bytes=report["bytes_stored"],
        unchanged_arrays=report["tensors"] - report["tensors_new"],
        seconds=report["seconds"],
    )


def _time(row: SnapshotRow) -> datetime:
    return datetime.fromtimestamp(row.time_ns / 1e9, timezone.utc)


def _info(row: SnapshotRow) -> SnapshotInfo:
    return SnapshotInfo(
        id=row.id,
        time=_time(row),
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


def _step(row: SnapshotRow) -> dict[str, Any]:
    statistics = row.statistics
    return {
        "step": row.step,
        "snapshot": row.id,
        "time": _time(row),
        "bytes": statistics.get("bytes", 0),
        "stored_bytes": statistics.get("bytes_stored", 0),
        **row.metrics,
    }
