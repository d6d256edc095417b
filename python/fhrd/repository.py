"""Repositories: save, load, list and forget."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _engine as native  # pyright: ignore[reportPrivateUsage]
from . import arguments, reports
from . import arrays as conversion
from ._engine import SnapshotRow
from .arguments import Files, IfExists, PathLike, Progress
from .care import Care
from .checkpoint import Checkpoint, LoadedArrays, of_checkpoint
from .comparison import TensorDiff, compare
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    DamagedError,
    FhrdError,
    NotFoundError,
    StepExistsError,
)
from .reports import RestoreReport, SavedCheckpoint, SnapshotInfo
from .rules import Keep, is_part, rank, ranked, steps_of
from .staging import SaveHandle, Writer
from .table import Rows, Table, html_table

if TYPE_CHECKING:
    from .runs import Run

#: Bytes that asynchronous saves may stage at once, unless `fhrd.open` is told otherwise.
STAGED_BYTES_MAX = 4 << 30
#: What the table of steps has of each step besides metrics.
_COLUMNS = ("step", "snapshot", "time", "bytes", "stored_bytes")
#: What a save may do if the run has its step.
IF_EXISTS = ("error", "replace", "keep", "add")


@dataclass(frozen=True)
class _Labels:
    """What a save gives a snapshot, checked."""

    run: str | None
    step: int | None
    metrics: dict[str, float]
    tags: list[str]
    if_exists: str
    #: Nanoseconds since 1970; the time of the save if None.
    time_ns: int | None = None

    @staticmethod
    def of(
        run: str | None, step: int | None, metrics: Mapping[str, float], tags: Iterable[str], if_exists: str | None
    ) -> _Labels:
        numbers = arguments.numbers(metrics)
        if run is not None:
            arguments.name(run, "run")
        if step is not None:
            step = arguments.whole_number(step, "step")
        if (run is None) != (step is None) or (numbers and run is None):
            raise ArgumentError("`run` and `step` go together, and metrics need both")
        chosen = "error" if if_exists is None else if_exists
        arguments.choice(chosen, "if_exists", IF_EXISTS)
        return _Labels(run, step, numbers, arguments.split_tags(tags), chosen)


class Repository(Care):
    """An open repository. `fhrd.open` returns it.

    It is a context manager, and its methods may be called from several threads. After a fork the new process opens the
    repository again: there, each method raises `FhrdError`. It can be pickled: whoever unpickles it opens it again. *The
    pickle has the password that `fhrd.open` was given*, but not one of the environment.
    """

    def __init__(
        self, engine: native.Engine, location: str, staged_bytes_max: int, opened_with: Mapping[str, Any] | None = None
    ) -> None:
        self._native = engine
        self.location = location
        self._writer = Writer(staged_bytes_max)
        self._is_closed = False
        #: The arguments of `fhrd.open`.
        self._opened_with = {"path_or_url": location, "staged_bytes_max": staged_bytes_max, **(opened_with or {})}

    # Life

    def _use(self) -> native.Engine:
        if not self._native.is_usable:
            raise FhrdError(
                "this repository was opened before this process was forked: call fhrd.open again in the new process"
            )
        if self._is_closed:
            raise ClosedError("the repository is closed")
        return self._native

    @property
    def id(self) -> str:
        """Id of the repository, 32 hex digits."""
        return self._native.id

    @property
    def is_encrypted(self) -> bool:
        """Whether all that is stored is encrypted."""
        return self._native.is_encrypted

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._opened_with["path_or_url"], self._opened_with)

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
            NotDoneError: (a TimeoutError) if they are not done after `timeout` seconds. They go on.
        """
        self._use()
        self._writer.flush(arguments.wait(timeout, "timeout"))

    def close(self) -> None:
        """As `flush`. The repository cannot be used afterwards. In a forked process it does nothing."""
        if self._is_closed or not self._native.is_usable:
            return
        try:
            self._writer.close()
        finally:
            self._is_closed = True

    def __repr__(self) -> str:
        return f"<Repository {self.location}, {'encrypted' if self.is_encrypted else 'not encrypted'}>"

    def _repr_html_(self) -> str:
        runs = [
            {
                "run": run,
                "steps": len(rows),
                "last": rows[-1].step,
                "time": reports.utc(rows[-1].time_ns),
                "bytes": sum(row.statistics.get("bytes", 0) for row in rows),
                "stored_bytes": sum(row.statistics.get("bytes_stored", 0) for row in rows),
            }
            for run, rows in self._runs().items()
        ]
        return html_table(repr(self), ["run", "steps", "last", "time", "bytes", "stored_bytes"], runs)

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
        if_exists: IfExists | None = None,
        progress: Progress | None = None,
    ) -> SavedCheckpoint:
        """Stores arrays as one safetensors file in a new snapshot, and returns when it is durable.

        The bytes are read straight from the memory of contiguous arrays on the CPU. Do not write to them meanwhile: a
        save that notices it fails. `save_async` copies them first.

        Args:
            arrays: NumPy arrays, torch tensors, objects with the buffer protocol or `__dlpack__`, by name. It may be
                empty if there are `files`. `fhrd.torch.save` and `fhrd.jax.save` take nested objects.
            run: name of the run. With `step`, the snapshot is a step of it.
            step: number of the step, 0 or more.
            metrics: numbers by name, such as `{"val_loss": 0.5}`.
            tags: labels of the snapshot; a comma separates labels.
            files: files to store beside the arrays: paths, or a mapping from path in the snapshot to a path or bytes.
            metadata: texts for the header of the safetensors file.
            name: path of the safetensors file in the snapshot.
            keep: which steps of the run stay. The others are deleted after this one is durable; `prune` then gives
                back their space. If no step would stay, or several snapshots are from the future, none is deleted.
            if_exists: what to do if the run has the step: `"error"` (the default) raises; `"replace"` stores this one,
                and then deletes those before; `"keep"` stores nothing; `"add"` stores a further snapshot of the step,
                of which the last counts. If two programs save one step at the same moment, both may be stored.
            progress: called now and then with counters, on the calling thread. What it raises stops the save.

        Raises:
            ArgumentTypeError: (a TypeError) for arguments of a wrong type, and for objects that are no arrays.
            ArgumentError: (a ValueError) for arrays, names or numbers that cannot be stored.
            StepExistsError: (a FileExistsError) if the run has the step.
            StorageFullError: (an OSError) if the disk of the repository is full.
            UnreachableError: (a ConnectionError) if a remote store does not answer.
            FhrdError: if the save fails in another way. Then there is no snapshot, and nothing else is lost.
        """
        self._use()
        keep, progress = Keep.checked(keep), arguments.progress(progress)
        labels = _Labels.of(run, step, metrics, tags, if_exists)
        before = self._before(labels)
        if before and labels.if_exists == "keep":
            return reports.existing(before[-1])
        stored = self._files(arrays, files, metadata, name, is_staged=False)
        return self._retain(self._save(stored, labels, progress), keep, labels, before)

    def _save_after(
        self,
        files: Files,
        *,
        run: str | None,
        step: int | None,
        tags: Sequence[str],
        metrics: Mapping[str, float] = {},
        after: datetime | None = None,
        at_once: bool = False,
    ) -> SavedCheckpoint:
        """Stores files as a further snapshot, of a later time than `after`: another machine's clock may be ahead. With
        `at_once`, it has the next possible time after it."""
        self._use()
        labels = _Labels.of(run, step, metrics, tags, "add")
        if after is not None and (at_once or after >= datetime.now(timezone.utc)):
            labels = replace(labels, time_ns=reports.later_ns(after))
        return self._save(self._files({}, files, {}, "model.safetensors", is_staged=False), labels, None)

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
        if_exists: IfExists | None = None,
        progress: Progress | None = None,
    ) -> SaveHandle:
        """As `save`, but returns as soon as the bytes are copied.

        One thread writes the saves in their order. Copies are bounded by `staged_bytes_max` of `fhrd.open`: a call
        that would exceed it waits for the saves before. Files on disk are read later and must not change.

        An error of the save is in the handle, also that the run has the step. If nobody asks the handle, `flush` and
        `close` raise it, and an interpreter that exits prints it.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) at once for impossible arguments.
        """
        self._use()
        keep, progress = Keep.checked(keep), arguments.progress(progress)
        labels = _Labels.of(run, step, metrics, tags, if_exists)
        named = arguments.named_files(files)
        nbytes = sum(_nbytes(array) for array in _mapping(arrays).values())
        nbytes += sum(len(file) for file in named.values() if isinstance(file, bytes))
        self._writer.reserve(nbytes)
        try:
            stored = self._files(arrays, named, metadata, name, is_staged=True)
            handle = SaveHandle(f"{run}@{step}" if run is not None else name)
            box = [stored]
            del stored
            self._writer.submit(handle, nbytes, lambda: self._save_staged(box.pop(), labels, keep, progress))
        except BaseException:
            self._writer.release(nbytes)
            raise
        return handle

    def _save_staged(
        self, stored: native.Files, labels: _Labels, keep: Keep | None, progress: Progress | None
    ) -> SavedCheckpoint:
        before = self._before(labels)
        if before and labels.if_exists == "keep":
            return reports.existing(before[-1])
        return self._retain(self._save(stored, labels, progress), keep, labels, before)

    def _before(self, labels: _Labels) -> list[SnapshotRow]:
        """The snapshots that the run has of this step, the one that counts last. Without a need for them, none."""
        if labels.run is None or labels.if_exists == "add":
            return []
        # Files beside the arrays of a step are no step, and stay.
        here = (labels.run, labels.step)
        before = [row for row in self._rows() if (row.run, row.step) == here and not is_part(row.tags)]
        if before and labels.if_exists == "error":
            raise StepExistsError(
                f'the run `{labels.run}` has step {labels.step}: if_exists="replace" stores it again, and '
                'if_exists="keep" leaves it as it is'
            )
        return sorted(before, key=rank)

    def _files(
        self, given: Mapping[str, Any], files: Files, metadata: Mapping[str, str], name: str, *, is_staged: bool
    ) -> native.Files:
        stored = native.Files()
        arguments.text(name, "name")
        header = arguments.texts(metadata, "metadata")
        reserved = [key for key in header if key.startswith(conversion.DTYPE_KEY)]
        if reserved:
            raise ArgumentError(f"metadata: `{reserved[0]}` is what the package writes")
        if _mapping(given):
            items: list[tuple[str, str, Sequence[int], conversion.Bytes]] = []
            for key, array in given.items():
                arguments.text(key, "arrays: a name")
                try:
                    found = conversion.array_bytes(array)
                except ArgumentError as error:
                    raise type(error)(f"array `{key}`: {error}") from None
                if found.true_type is not None:
                    header[conversion.DTYPE_KEY + key] = found.true_type
                items.append((key, found.dtype, found.shape, found.data))
            stored.add_arrays(name, items, header, is_staged)
        for path, source in arguments.named_files(files).items():
            if isinstance(source, bytes):
                stored.add_bytes(path, source)
            else:
                stored.add_path(path, os.fspath(source))
        return stored

    def _save(self, files: native.Files, labels: _Labels, progress: Progress | None) -> SavedCheckpoint:
        text = self._use().save(
            files,
            run=labels.run,
            step=labels.step,
            metrics=labels.metrics,
            tags=labels.tags,
            time_ns=labels.time_ns,
            report=progress,
        )
        return reports.saved(json.loads(text))

    def _retain(
        self, saved: SavedCheckpoint, keep: Keep | None, labels: _Labels, before: Sequence[SnapshotRow]
    ) -> SavedCheckpoint:
        """Deletes what a save replaces, and what the rules do not keep. The save is durable."""
        deleted: list[str] = []
        old = [row.id for row in before if row.id != saved.id]
        try:
            if old:
                self._use().forget(old)
                deleted += old
        except FhrdError as error:
            warnings.warn(
                f"the step is saved, but the one before it is not deleted: {error}", RuntimeWarning, stacklevel=3
            )
        if keep is not None and labels.run is not None:
            try:
                # Not what was just saved: a training that goes on from an earlier step has lower numbers than the last.
                rest = self.forget(keep=keep, run=labels.run, dry_run=True)
                if saved.id in rest:
                    here = [row for row in self._rows() if (row.run, row.step) == (labels.run, labels.step)]
                    stays = {saved.id, *(row.id for row in here if is_part(row.tags))}
                    rest = [one for one in rest if one not in stays]
                deleted += self.forget(rest)
            except _NothingDeleted as reason:
                warnings.warn(str(reason), RuntimeWarning, stacklevel=3)
            except FhrdError as error:
                warnings.warn(
                    f"the step is saved, but steps that the rules do not keep are not deleted: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )
        return replace(saved, deleted=tuple(deleted))

    def run(
        self,
        name: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        git: bool = True,
        save_interval: int = 1,
        keep: Keep | None = None,
        if_exists: IfExists | None = None,
    ) -> Run:
        """A store that is bound to a run: `repo.run("tune").save(arrays, step=300)`.

        Args:
            name: name of the run. It need not exist.
            parameters: what every step is stored with, such as `{"lr": 1e-3}`: what JSON can say. See
                `Checkpoint.parameters`.
            git: store the commit of the working directory, too, if it is one of git. See `Checkpoint.git`.
            save_interval: `should_save` is true for multiples of it.
            keep: which steps stay, for every save.
            if_exists: what to do if a step exists, for every save.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible.
        """
        from .runs import Run

        return Run(self, name, parameters, git, save_interval, keep, if_exists)

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
            framework: `"numpy"` or `"torch"`; also `"np"` and `"pt"`, as safetensors calls them.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible.
            NotFoundError: (a LookupError) if there is no such run, step, snapshot, file or array.
            DamagedError: (an OSError) if stored bytes are not those that were written.
        """
        arguments.framework(framework, device)

        def arrays(found: Checkpoint) -> LoadedArrays:
            return found.arrays(name, names=names, device=device, framework=framework)

        return of_checkpoint(self, arrays, run=run, step=step, snapshot=snapshot)

    def checkpoint(
        self, *, run: str | None = None, step: int | str | None = None, snapshot: str | None = None
    ) -> Checkpoint:
        """A checkpoint by run and step, or by the id of its snapshot; the latest snapshot of all by default.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible.
            NotFoundError: (a LookupError) if there is no such run, step or snapshot.
        """
        if snapshot is not None and (run is not None or step is not None):
            raise ArgumentError("give `snapshot`, or `run` and `step`, not both")
        if run is None and step is not None:
            raise ArgumentError("a step needs the name of its run")
        if run is None:
            wanted = self._name_of("latest" if snapshot is None else snapshot)
            return Checkpoint(self, self._use().find_snapshot(wanted))
        which = "latest" if step is None else step
        which = arguments.text(which, "step") if isinstance(which, str) else arguments.whole_number(which, "step")
        return Checkpoint(self, self._row_of_step(arguments.name(run, "run"), which))

    def _row_of_step(self, run: str, which: int | str) -> SnapshotRow:
        steps = self._runs().get(run, [])
        found = steps[-1:] if which == "latest" else [row for row in steps if row.step == which]
        # The best ones, and what is wrong with a name.
        return found[0] if found else self._use().find_snapshot(f"run:{run}@{which}")

    # Lists

    def snapshots(self) -> list[SnapshotInfo]:
        """All readable snapshots, oldest first. Warns of those that cannot be read, as all that looks for steps does."""
        return Rows(reports.info(row) for row in self._rows())

    def _rows(self) -> list[SnapshotRow]:
        rows, damaged = self._use().snapshots()
        reports.warn_of_damaged(damaged)
        return rows

    def _runs(self) -> dict[str, list[SnapshotRow]]:
        """The steps of each run, by ascending step. Of several snapshots of one step the last one counts, one from the
        future only if there is no other, and so one that has only some of its files."""
        found = steps_of(self._rows())
        return {run: [steps[step].row for step in sorted(steps)] for run, steps in sorted(found.items())}

    def _steps(self, run: str) -> list[SnapshotRow]:
        steps = self._runs().get(arguments.name(run, "run"))
        if steps is None:
            raise _no_run(run)
        return steps

    def runs(self) -> list[str]:
        """Names of the runs."""
        return list(self._runs())

    def all_steps(self, run: str) -> list[int]:
        """The numbers of the steps of a run, ascending. Empty if there is no such run."""
        return [row.step for row in self._runs().get(arguments.name(run, "run"), []) if row.step is not None]

    def saved_steps(self, run: str) -> list[int]:
        """As `all_steps`, but without those of which there are only files that were written through `fhrd.filesystem`."""
        rows = self._runs().get(arguments.name(run, "run"), [])
        return [row.step for row in rows if row.step is not None and not is_part(row.tags)]

    def latest_step(self, run: str) -> int | None:
        """The highest number of a step of a run. `None` if there is no such run."""
        return max(self.all_steps(run), default=None)

    def steps(self, run: str) -> Table:
        """The steps of a run by ascending number: step, snapshot, time, bytes, stored_bytes, and each metric. One that has
        the name of another column is `metric:NAME`.

        Raises:
            NotFoundError: (a LookupError) if there is no such run.
        """
        rows = self._steps(run)
        columns = [*_COLUMNS, *sorted({_column(metric) for row in rows for metric in row.metrics})]
        return Table(columns, [_step(row) for row in rows])

    def best(self, run: str, metric: str, mode: str = "min") -> Checkpoint:
        """The step with the best number for a metric, the first of equal ones.

        Raises:
            NotFoundError: (a LookupError) if there is no such run, or no step has a number for the metric.
        """
        best = ranked(self._steps(run), metric, mode)
        if not best:
            raise NotFoundError(f"no step of the run `{run}` has a number for `{metric}`")
        return Checkpoint(self, best[0])

    def diff(self, a: Checkpoint | str, b: Checkpoint | str, *, name: str = "model.safetensors") -> TensorDiff:
        """The arrays that differ between two checkpoints, given as such or by id; `.layers` has the bit distance of each
        layer."""
        first, second = (
            one if isinstance(one, Checkpoint) else self.checkpoint(snapshot=one) for one in (a, b)
        )
        return compare(first.arrays(name), second.arrays(name))

    # Files and rules

    def backup(
        self,
        paths: Sequence[PathLike],
        *,
        tags: Sequence[str] = (),
        run: str | None = None,
        step: int | None = None,
        metrics: Mapping[str, float] = {},
        if_exists: IfExists | None = None,
        progress: Progress | None = None,
    ) -> SavedCheckpoint:
        """Stores files and directories as `fhrd backup` does. Entries that cannot be read are left out, and warned of.

        Raises:
            ArgumentError: (a ValueError) if none of the paths exists, or an argument is impossible.
            StepExistsError: (a FileExistsError) if the run has the step. See `if_exists` of `save`.
        """
        given, progress = arguments.paths(paths, "paths"), arguments.progress(progress)
        labels = _Labels.of(run, step, metrics, tags, if_exists)
        engine, before = self._use(), self._before(labels)
        if before and labels.if_exists == "keep":
            return reports.existing(before[-1])
        text = engine.backup(
            given, run=labels.run, step=labels.step, metrics=labels.metrics, tags=labels.tags, report=progress
        )
        report = json.loads(text)
        if report["problems"]:
            warnings.warn(f"{report['problems']} entries could not be read", RuntimeWarning, stacklevel=2)
        return self._retain(reports.saved(report), None, labels, before)

    def restore(
        self,
        snapshot: Checkpoint | str,
        target: PathLike,
        *,
        include: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Writes the files of a snapshot into a directory. Existing files are left alone. Warns of entries that could
        not be written.

        Args:
            snapshot: a checkpoint, an id, or a name of the command line such as `run:first@latest`.
            target: the directory. It is created if it is missing.
            include: patterns as of `fhrd restore --include`; everything by default.
            progress: called now and then with counters.

        Raises:
            NotFoundError: (a LookupError) if there is no such snapshot.
            DamagedError: (an OSError) if some content could not be restored; what is good is there.
        """
        patterns, progress = arguments.names(include, "include"), arguments.progress(progress)
        wanted, directory = self._name_of(snapshot), arguments.location(target, "target")
        report = json.loads(self._use().restore(wanted, directory, patterns, progress))
        if report["damaged"]:
            raise DamagedError(f"{report['damaged']} files could not be restored whole")
        if report["problems"]:
            warnings.warn(f"{report['problems']} entries could not be written", RuntimeWarning, stacklevel=2)
        return reports.read(RestoreReport, report)

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
            NotFoundError: (a LookupError) if there is no such snapshot or run. Then nothing is deleted.
            ArgumentError: (a ValueError) if `keep` would keep no step of a run, or if several snapshots of the
                repository are from the future, so that the clock of this machine may be wrong. Then nothing is deleted.
        """
        given, keep = arguments.names(ids, "ids"), Keep.checked(keep)
        arguments.flags(dry_run=dry_run, allow_empty_group=allow_empty_group, trust_clock=trust_clock)
        if keep is None:
            if run is not None:
                raise ArgumentError("a run needs the rules of `keep`")
            deleted = [self._use().find_snapshot(self._name_of(one)).id for one in given]
        elif given:
            raise ArgumentError("give `ids` or `keep`, not both")
        else:
            deleted = self._not_kept(keep, run, allow_empty_group, trust_clock)
        if deleted and not dry_run:
            self._use().forget(deleted)
        return deleted

    def _not_kept(self, keep: Keep, run: str | None, allow_empty_group: bool, trust_clock: bool) -> list[str]:
        """The steps that rules do not keep, and snapshots of steps that were saved again later."""
        rows = self._rows()
        if run is not None and not any(row.run == run for row in rows):
            raise _no_run(run)
        if keep.is_empty:
            return []
        if sum(row.is_future for row in rows) > 1 and not trust_clock:
            raise _NothingDeleted("several snapshots are from the future: is the clock of this machine right?")
        deleted: list[str] = []
        for name, steps in sorted(steps_of(row for row in rows if not row.is_future).items()):
            if run is not None and name != run:
                continue
            ordered = [steps[step] for step in sorted(steps)]
            if keep.is_unranked([step.row for step in ordered]):
                # Nobody knows which ones are best.
                continue
            by_rules = keep.kept([step.row for step in ordered])
            stays = [step for step in ordered if step.row.id in by_rules or any(map(keep.has_tag, step.parts))]
            if not stays and not allow_empty_group:
                raise _NothingDeleted(f"the rules keep no step of the run `{name}`: give `allow_empty_group`")
            for step in ordered:
                deleted += [row.id for row in step.replaced if not keep.has_tag(row)]
                if step not in stays:
                    deleted += [row.id for row in (step.row, *step.parts)]
        return deleted


class _NothingDeleted(ArgumentError):
    """Rules that would delete too much."""


def _reopen(location: str, opened_with: dict[str, Any]) -> Repository:
    from ._public import open as open_repository

    options: dict[str, Any] = {**opened_with, "path_or_url": location}
    return open_repository(**options)


def _no_run(run: str) -> NotFoundError:
    return NotFoundError(f"there is no run `{run}`")


def _mapping(arrays: object) -> Mapping[Any, Any]:
    if not isinstance(arrays, Mapping):
        raise ArgumentTypeError(
            f"arrays: expected a dictionary of arrays by name, found {type(arrays).__qualname__}: fhrd.torch.save and "
            "fhrd.jax.save take other objects"
        )
    return arrays  # pyright: ignore[reportUnknownVariableType]


def _nbytes(array: Any) -> int:
    try:
        size = getattr(array, "nbytes", None)
        return size if isinstance(size, int) else memoryview(array).nbytes
    except Exception:
        # What is wrong with it is said when its bytes are taken.
        return 0


def _column(metric: str) -> str:
    return f"metric:{metric}" if metric in _COLUMNS else metric


def _step(row: SnapshotRow) -> dict[str, Any]:
    statistics = row.statistics
    return {
        "step": row.step,
        "snapshot": row.id,
        "time": reports.utc(row.time_ns),
        "bytes": statistics.get("bytes", 0),
        "stored_bytes": statistics.get("bytes_stored", 0),
        **{_column(metric): value for metric, value in row.metrics.items()},
    }
