# pyright: basic, reportMissingImports=false, reportPrivateImportUsage=false
# The packages that this adapts have no types, or few.
"""`torch.distributed.checkpoint` (DCP): sharded checkpoints of FSDP, tensor parallel and pipeline parallel training.

>>> import fhrd.distributed, torch
>>> fhrd.open("checkpoints", create=True).close()
>>> state = torch.nn.Linear(4, 2).state_dict()
>>> metadata = fhrd.distributed.save(state, "checkpoints", run="tune", step=300)  # on all ranks
>>> fhrd.distributed.load(state, "checkpoints", run="tune", step=300)  # into the tensors, on all ranks

Each rank stores its own files, so no rank holds the whole model: as snapshots without a run that have the tag
`sharded-part`. When all have finished, the coordinator makes one checkpoint of them, and forgets the parts.
`fhrd restore run:tune@300` writes it as the directory that DCP itself would have written. The number of ranks may differ
between saving and loading. Parts of a save that has failed stay until the step is saved again; `repo.snapshots()` lists
them.

Any other code of DCP can use the file system instead: `FsspecWriter("fhrd:///data/repo!/tune@300")`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar, cast

import torch.distributed
import torch.distributed.checkpoint
from torch.distributed.checkpoint.filesystem import FileSystemBase
from torch.distributed.checkpoint.storage import WriteResult

try:
    from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
except ImportError:
    # Before torch 2.15.
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from fhrd.arguments import choice, name, whole_number
from fhrd.errors import (
    ArgumentError,
    ArgumentTypeError,
    FhrdError,
    NotFoundError,
    StepExistsError,
    UnsupportedError,
)
from fhrd.filesystem import TAG, FhrdFileSystem, join_url, split_url
from fhrd.reports import SnapshotInfo
from fhrd.staged_file import StagedFile
from fhrd.versions import WHOLE, Area, Version

__all__ = ["FhrdReader", "FhrdWriter", "load", "save", "save_async"]

#: The first version of torch whose asynchronous saves are known to copy what is on the CPU.
_COPIES = (2, 15)
#: Tag of the parts of a save. When it has ended, they are forgotten.
PART = "sharded-part"
#: The file that DCP writes last.
_METADATA = ".metadata"
#: It exports its functions without saying so.
_dcp: Any = torch.distributed.checkpoint

_Made = TypeVar("_Made", "FhrdReader", "FhrdWriter")


def _url(repo: str | os.PathLike[str], run: str, step: int | str) -> str:
    return join_url(repo, f"{run}@{step}")


@dataclass(frozen=True)
class _PartResult(WriteResult):  # type: ignore[misc, unused-ignore]
    """What a rank tells the coordinator of an entry that it has written: also the snapshot of its part."""

    snapshot: str = ""


class _Part(StagedFile):
    """A file of a rank that is being written. The id of its snapshot goes into `snapshots`."""

    snapshots: dict[str, str]


class _Stored(FileSystemBase):  # type: ignore[misc, unused-ignore]
    """What a reader reads. That of torch 2.5 would open files without the options."""

    def __init__(self, files: FhrdFileSystem) -> None:
        self.fs = files

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with self.fs.open(os.fspath(path), mode) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return os.path.join(path, suffix)

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return path

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return self.fs.exists(os.fspath(path))

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return self.fs.ls(os.fspath(path), detail=False)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        raise PermissionError(f"{path}: it is for reading")

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        raise PermissionError(f"{path}: it is for reading")

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        raise PermissionError(f"{path}: it is for reading")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


class _Parts(_Stored):
    """What a writer writes. The files of a rank are parts: snapshots without a run, so that nobody takes them for a step.
    The coordinator makes the step of them. Its small files, such as the metadata, are in memory until then."""

    def __init__(self, files: FhrdFileSystem, run: str, step: int) -> None:
        super().__init__(files)
        self._run, self._step = run, step
        self._staging_directory = files._staging_directory
        #: A tag of the parts of all saves of the step.
        self._step_tag = "sharded-of-" + hashlib.sha256(f"{run}@{step}".encode()).hexdigest()[:32]
        self.small: dict[str, io.BytesIO] = {}
        #: Snapshots of the step that others than the file system have written before this save.
        self._replaced: set[str] = set()
        self.begin()

    def note_replaced(self) -> None:
        """Notes which snapshots this save replaces. What others add to the step meanwhile stays."""
        there = self.fs.repo.snapshots()
        self._replaced = {one.id for one in there if (one.run, one.step) == (self._run, self._step) and TAG not in one.tags}

    def begin(self) -> None:
        """Begins a save. Threads of one that has failed may still write: what they give is not of this one."""
        self.errors: list[BaseException] = []
        #: The snapshots of the parts by their names.
        self.snapshots: dict[str, str] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        name = posixpath.basename(os.fspath(path))
        if mode != "wb":
            raise PermissionError(f"{path}: it is for writing")
        if _METADATA in name:
            self.small[name] = io.BytesIO()
            yield self.small[name]
            return
        errors = self.errors
        try:
            with _Part(cast(Any, self), name, True, self._staging_directory) as stream:
                stream.snapshots = self.snapshots
                yield stream
        except BaseException as error:
            # Torch loses what fails on its other threads.
            errors.append(error)
            raise

    def _commit(self, files: Sequence[_Part]) -> None:
        """Stores a part. A staged file calls it when it is closed."""
        for file in files:
            content = {file.path: file.content()}
            saved = self.fs.repo._save_after(content, run=None, step=None, tags=[PART, self._step_tag])
            file.snapshots[file.path] = saved.id

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return posixpath.basename(os.fspath(path)) in self.small

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Does nothing: there are no directories without files."""

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        old, new = (posixpath.basename(os.fspath(one)) for one in (path, new_path))
        self.small[new] = self.small.pop(old)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Forgets a small file. A part that failed is not stored."""
        self.small.pop(posixpath.basename(os.fspath(path)), None)

    def is_whole(self) -> bool:
        """Whether the run has the step."""
        return _is_whole(self.fs, self._run, self._step)

    def assemble(self, parts: Mapping[str, str], metrics: Mapping[str, float]) -> None:
        """Makes the step of these parts: names of files, and their snapshots. Then forgets what the run has of the step,
        and all its parts. Files of the file system that are not DCP's stay in the step.

        Raises:
            FhrdError: a part is missing. Then nothing is forgotten.
        """
        repo = self.fs.repo
        # Before the versions: what is stored meanwhile is not forgotten.
        snapshots = repo.snapshots()
        before = [one for one in snapshots if (one.run, one.step) == (self._run, self._step)]
        seen = {inner: version for version, inner in self.fs._versions(Area.of(f"{self._run}@{self._step}"))}
        # The step is new, whatever the clocks of what it is made of say.
        time = max([datetime.now(timezone.utc), *(one.time for one in before if not one.is_future)])
        beside = {inner: one for inner, one in seen.items() if one.is_own and not _is_of_dcp(inner)}
        files = {inner: replace(one, time=time) for inner, one in beside.items()}
        for name, snapshot in parts.items():
            try:
                found = next(one for one in repo.checkpoint(snapshot=snapshot).files() if one.path == name)
            except (NotFoundError, StopIteration):
                message = f"{self._run}@{self._step}: the part {name} of this save is not in the repository"
                raise FhrdError(message) from None
            files[name] = Version(found.size, snapshot, name, time, True)
        small = {name: one.getvalue() for name, one in self.small.items()}
        self.fs._store_files(files, self._run, self._step, metrics, [WHOLE], small=small)
        old = {one.id for one in before if TAG in one.tags or one.id in self._replaced}
        leftovers = {one.id for one in snapshots if self._step_tag in one.tags}
        self.fs._forget(old | leftovers | set(parts.values()))


class FhrdWriter(FsspecWriter):  # type: ignore[misc, unused-ignore]
    """A storage writer of DCP that makes one checkpoint of the files of all ranks."""

    def __init__(
        self,
        repo: str | os.PathLike[str],
        run: str,
        step: int,
        metrics: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        """A writer for one step. What it has written counts when all of it is there: until then, it replaces nothing.

        Args:
            metrics: of the checkpoint.
            options: those of `FsspecWriter`, such as `thread_count`, and storage options of
                `fhrd.filesystem.FhrdFileSystem`.
        """
        url = _url(repo, run, step)
        of_torch, of_files = _split_options(options, FsspecWriter)
        super().__init__(url, sync_files=False, **of_torch)
        self._metrics = dict(metrics or {})
        self._repo, self._options = split_url(url)[0], of_files
        self._begin(run, step)

    def _begin(self, run: str, step: int) -> None:
        self._parts = _Parts(FhrdFileSystem(self._repo, **self._options), run, step)
        self.fs = cast(Any, self._parts)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """DCP calls it before each save, with the step if its caller gave one.

        Raises:
            ArgumentError: (a ValueError) `checkpoint_id` is no step of a run in this repository.
        """
        repo, path = split_url(os.fspath(checkpoint_id or self.path))
        area = Area.of(path)
        if area.run is None or area.step is None or repo != self._repo:
            raise ArgumentError(f"checkpoint_id: expected fhrd://{self._repo}!/RUN@STEP, found {checkpoint_id}")
        self._begin(area.run, area.step)
        super().reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """DCP calls it first.

        Raises:
            UnsupportedError: (a NotImplementedError) without collectives no rank knows all parts.
        """
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError("a sharded save needs the collectives of its group")
        if is_coordinator:
            self._parts.note_replaced()
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: Any) -> Any:
        """DCP calls it on each rank, before anything is written.

        Raises:
            StepExistsError: (a FileExistsError) if the run has the step and the option `overwrite` is false.
        """
        if not self.overwrite and self._parts.is_whole():
            raise StepExistsError(f"{self.path}: the run has the step")
        return super().prepare_local_plan(plan)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Writes the files of a rank.

        Raises:
            FhrdError: not all of them were written.
        """
        self._parts.begin()
        errors, snapshots = self._parts.errors, self._parts.snapshots
        written = super().write_data(plan, planner).wait()
        if errors:
            raise errors[0]
        if len(written) != len(plan.items):
            raise FhrdError(f"{len(written)} of {len(plan.items)} parts of the state were written")
        results: Any = torch.futures.Future()
        results.set_result([_PartResult(**vars(one), snapshot=snapshots[one.storage_data.relative_path]) for one in written])
        return results

    def finish(self, metadata: Any, results: Any) -> None:
        """Writes the metadata and makes the checkpoint. DCP calls it on the coordinator, after all ranks have written."""
        super().finish(metadata, results)
        parts = {one.storage_data.relative_path: one.snapshot for rank in results for one in rank}
        self._parts.assemble(parts, self._metrics)


class FhrdReader(FsspecReader):  # type: ignore[misc, unused-ignore]
    """A storage reader of DCP."""

    def __init__(self, repo: str | os.PathLike[str], run: str, step: int | str = "latest", **options: Any) -> None:
        """A reader for one step: a number, `latest` or `best:METRIC:min` (or `max`). A save that did not end is not seen:
        if it was to replace a step, that step is as it was.

        Raises:
            NotFoundError: (a LookupError) if there is no such run or step.
        """
        url = _url(repo, run, step)
        of_torch, of_files = _split_options(options, FsspecReader)
        super().__init__(url, **of_torch)
        files = FhrdFileSystem(split_url(url)[0], **of_files)
        self.fs = cast(Any, _Stored(files))
        number = _found_step(files, run, step)
        # Once for all files: a save that ends meanwhile must not mix with this step.
        self.path = _url(repo, run, number)
        snapshot = _last_of_dcp(files, run, number)
        if snapshot is None:
            raise NotFoundError(f"the run `{run}` has no step {number}")
        if _has_all(files, snapshot):
            self.path = join_url(repo, f"snapshot:{snapshot.id}")

    def prepare_local_plan(self, plan: Any) -> Any:
        """DCP calls it on each rank."""
        return replace(super().prepare_local_plan(plan), storage_data=split_url(os.fspath(self.path))[1])

    def prepare_global_plan(self, plans: list[Any]) -> Any:
        """DCP calls it on the coordinator with the plans of all ranks.

        Raises:
            FhrdError: the step has changed while the ranks made their readers, so that they would read different ones.
        """
        paths = sorted({str(one.storage_data) for one in plans})
        if len(paths) > 1:
            raise FhrdError(f"the ranks would read different checkpoints: {', '.join(paths)}. Load again")
        return super().prepare_global_plan(plans)


def _found_step(files: FhrdFileSystem, run: str, step: int | str) -> int:
    """The number of a step that is named as for `load`."""
    if isinstance(step, int):
        return step
    if step == "latest":
        # Names of runs may have a `/`, which paths would take for another directory.
        def has_metadata(number: int) -> bool:
            return any(inner == _METADATA for _, inner in files._versions(Area.of(f"{run}@{number}")))

        steps = reversed(files.repo.all_steps(run))
        found = next((one for one in steps if has_metadata(one) and _is_whole(files, run, one)), None)
    else:
        found = files.repo.checkpoint(run=run, step=step).step
    if found is None:
        raise NotFoundError(f"the run `{run}` has no step that was saved by torch.distributed.checkpoint")
    return found


def save(
    state_dict: dict[str, Any],
    repo: str | os.PathLike[str],
    *,
    run: str,
    step: int,
    metrics: Mapping[str, float] | None = None,
    if_exists: Literal["error", "replace"] = "error",
    process_group: Any = None,
    **options: Any,
) -> None:
    """Saves a sharded state dictionary. Every rank of the group calls it; without a group, the only process.

    On return on the coordinator, the checkpoint is durable.

    Args:
        if_exists: what to do if the run has the step: `"error"` raises; `"replace"` stores this one, and then deletes
            the one before. If that fails midway, `load` finds the one before.
        options: those of `FhrdWriter`.

    Raises:
        ArgumentTypeError: (a TypeError) if the repository comes before the state, or is not a path or URL, and for
            options that do not exist.
        StepExistsError: (a FileExistsError) if the run has the step.
    """
    def writer_of_rank() -> FhrdWriter:
        _check(state_dict, repo, "save")
        return _writer(repo, run, step, metrics, if_exists, options)

    writer = _on_all_ranks(writer_of_rank, process_group)
    _dcp.save(state_dict, storage_writer=writer, process_group=process_group, **_alone(_dcp.save))


def save_async(
    state_dict: dict[str, Any],
    repo: str | os.PathLike[str],
    *,
    run: str,
    step: int,
    metrics: Mapping[str, float] | None = None,
    if_exists: Literal["error", "replace"] = "error",
    process_group: Any = None,
    **options: Any,
) -> Any:
    """As `save`, but returns when the tensors are copied. It is `async_save` of DCP: the group needs a backend for the CPU,
    and one such save must end before the next one begins.

    Returns:
        A future. When its `result()` returns on the coordinator, the checkpoint is durable.

    Raises:
        ArgumentTypeError: (a TypeError) if the repository comes before the state, or is not a path or URL.
        StepExistsError: (a FileExistsError) if the run has the step. See `if_exists` of `save`.
        UnsupportedError: (a NotImplementedError) if this torch has no asynchronous saves.
    """
    saves = getattr(_dcp, "async_save", None)
    if saves is None:
        raise UnsupportedError("torch.distributed.checkpoint has asynchronous saves from torch 2.3 on")

    def writer_of_rank() -> FhrdWriter:
        _check(state_dict, repo, "save_async")
        return _writer(repo, run, step, metrics, if_exists, options)

    writer = _on_all_ranks(writer_of_rank, process_group)
    # Torch 2.5 does not copy what is on the CPU: later steps would change what is stored.
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    state = state_dict if version >= _COPIES else _copied({key: _state_of(one) for key, one in state_dict.items()})
    return saves(state, storage_writer=writer, process_group=process_group, **_alone(saves))


def load(
    state_dict: dict[str, Any],
    repo: str | os.PathLike[str],
    *,
    run: str,
    step: int | str = "latest",
    process_group: Any = None,
    **options: Any,
) -> None:
    """Loads into the tensors of `state_dict`. Every rank of the group calls it.

    DCP unpickles `.metadata`, and, if its reader is told so, values that are no tensors: load only from repositories
    that nobody else can write to.
    """
    def reader_of_rank() -> FhrdReader:
        _check(state_dict, repo, "load")
        return FhrdReader(repo, run, step, **options)

    reader = _on_all_ranks(reader_of_rank, process_group)
    _dcp.load(state_dict, storage_reader=reader, process_group=process_group, **_alone(_dcp.load))


def _on_all_ranks(make: Callable[[], _Made], group: Any) -> _Made:
    """What `make` gives on this rank, for the checkpoint that the first rank of the group has found: others may find
    another one, if a save ends meanwhile. If it fails on one rank, all of them raise, and none waits for it.

    Raises:
        FhrdError: it failed on another rank.
    """
    if not _is_distributed() or torch.distributed.get_rank(group) < 0:
        # DCP says that a rank is not of the group.
        return make()
    made: _Made | None = None
    error: Exception | None = None
    mine: tuple[str | None, str | None]
    try:
        made = make()
        mine = (split_url(os.fspath(made.path))[1], None)
    except Exception as raised:
        error = raised
        mine = (None, f"{type(error).__name__}: {error}")
    found: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(found, mine, group=group)
    if error is not None:
        raise error
    for rank, (_, message) in enumerate(found):
        if message is not None:
            raise FhrdError(f"rank {rank}: {message}")
    assert made is not None
    # Each rank may have its own way to the repository.
    made.path = join_url(split_url(os.fspath(made.path))[0] or "", found[0][0])
    return made


def _state_of(value: Any) -> Any:
    """What DCP stores of an entry of the state: of models, optimizers and the like, their states."""
    return value.state_dict() if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else value


def _copied(value: Any) -> Any:
    """The value with copies of all that is not on a device. DCP looks for tensors in mappings, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.device.type == "cpu" else value
    if isinstance(value, Mapping):
        entries: Mapping[Any, Any] = value
        return {key: _copied(one) for key, one in entries.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        made, fields = cast("tuple[Any, tuple[Any, ...]]", (type(value), value))
        return made(*(_copied(one) for one in fields))
    if isinstance(value, (list, tuple)):
        copies = [_copied(one) for one in cast("list[Any]", value)]
        return tuple(copies) if isinstance(value, tuple) else copies
    try:
        return copy.deepcopy(value)
    except Exception:
        # Such as locks and handles, which DCP cannot store either.
        return value


def _split_options(options: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options for a class of torch, and those for the file system.

    Raises:
        ArgumentTypeError: (a TypeError) if neither has one.
    """
    of_torch = set(inspect.signature(kind.__init__).parameters) - {"self", "path", "kwargs", "sync_files"}
    of_files = set(inspect.signature(FhrdFileSystem.__init__).parameters) - {"self", "repo", "storage_options"}
    of_files |= {"skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"}
    unknown = sorted(set(options) - of_torch - of_files)
    if unknown:
        raise ArgumentTypeError(f"there is no option `{unknown[0]}`")
    parts = [{key: value for key, value in options.items() if key in names} for names in (of_torch, of_files - of_torch)]
    return parts[0], parts[1]


def _alone(function: Any) -> dict[str, bool]:
    """What tells a function of DCP that there is no group. Some versions of torch see it for themselves."""
    return {"no_dist": True} if not _is_distributed() and "no_dist" in inspect.signature(function).parameters else {}


def _writer(
    repo: str | os.PathLike[str],
    run: str,
    step: int,
    metrics: Mapping[str, float] | None,
    if_exists: str,
    options: dict[str, Any],
) -> FhrdWriter:
    """A writer for a step that the run may have. All ranks look before any of them writes."""
    choice(if_exists, "if_exists", ("error", "replace"))
    writer = FhrdWriter(repo, name(run, "run"), whole_number(step, "step"), metrics, **options)
    if if_exists == "error" and writer._parts.is_whole():
        raise StepExistsError(f'the run `{run}` has step {step}: if_exists="replace" stores it again')
    return writer


def _last_of_dcp(files: FhrdFileSystem, run: str, step: int) -> SnapshotInfo | None:
    """The newest snapshot of a step that has any of DCP's files, or that others than the file system have written."""
    there = [one for one in files.repo.snapshots() if (one.run, one.step) == (run, step)]
    # As the file system orders them.
    for one in sorted(there, key=lambda one: (not one.is_future, one.time), reverse=True):
        if TAG not in one.tags or any(_is_of_dcp(name) for name, _ in files._files(one.id)):
            return one
    return None


def _has_all(files: FhrdFileSystem, snapshot: SnapshotInfo) -> bool:
    """Whether a snapshot has metadata and data: a whole step, not a file of one that the writer of torch has stored."""
    names = [name for name, _ in files._files(snapshot.id)]
    return _METADATA in names and any(name.endswith(".distcp") for name in names)


def _is_whole(files: FhrdFileSystem, run: str, step: int) -> bool:
    """Whether a save of a step has ended. The writer of torch stores files of a step one by one, through the file system:
    then the metadata must be in the newest snapshot that has any of DCP's files."""
    last = _last_of_dcp(files, run, step)
    return last is not None and (TAG not in last.tags or _METADATA in [name for name, _ in files._files(last.id)])


def _is_of_dcp(name: str) -> bool:
    """Whether DCP writes a file of this name."""
    return name.endswith((_METADATA, ".distcp")) or _METADATA in posixpath.basename(name)


def _check(state_dict: object, repo: object, function: str) -> None:
    if not isinstance(state_dict, Mapping):
        raise ArgumentTypeError(
            f"the state comes first: fhrd.distributed.{function}(state, repo), found {type(state_dict).__qualname__}"
        )
    if not isinstance(repo, (str, os.PathLike)):
        raise ArgumentTypeError(
            "repo: expected the path or the URL of a repository, which each rank opens by itself, found "
            f"{type(repo).__qualname__}"
        )


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())
