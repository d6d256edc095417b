# pyright: basic, reportMissingImports=false, reportPrivateImportUsage=false
# The packages that this adapts have no types, or few.
"""`torch.distributed.checkpoint` (DCP): sharded checkpoints of FSDP, tensor parallel and pipeline parallel training.

>>> import fhrd.distributed, torch
>>> fhrd.open("checkpoints", create=True).close()
>>> state = torch.nn.Linear(4, 2).state_dict()
>>> metadata = fhrd.distributed.save(state, "checkpoints", run="tune", step=300)  # on all ranks
>>> fhrd.distributed.load(state, "checkpoints", run="tune", step=300)  # into the tensors, on all ranks

Each rank stores its own files, so no rank holds the whole model. When all have finished, the coordinator makes one
checkpoint of them, which `fhrd restore run:tune@300` writes as the directory that DCP itself would have written. The
number of ranks may differ between saving and loading.

Any other code of DCP can use the file system instead: `FsspecWriter("fhrd:///data/repo!/tune@300")`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch.distributed
import torch.distributed.checkpoint

try:
    from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
except ImportError:
    # Before torch 2.15.
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from fhrd.arguments import choice, name, whole_number
from fhrd.errors import ArgumentTypeError, StepExistsError, UnsupportedError
from fhrd.filesystem import TAG, FhrdFileSystem, join_url

__all__ = ["FhrdReader", "FhrdWriter", "load", "save", "save_async"]

#: The first version of torch whose asynchronous saves are known to copy the tensors of the CPU.
_COPIES = (2, 15)
#: The file that DCP writes last.
_METADATA = ".metadata"
#: It exports its functions without saying so.
_dcp: Any = torch.distributed.checkpoint


def _url(repo: str | os.PathLike[str], run: str, step: int | str) -> str:
    return join_url(repo, f"{run}@{step}")


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
        """A writer for one step.

        Args:
            metrics: of the checkpoint.
            options: those of `FsspecWriter`, such as `thread_count`, and storage options of
                `fhrd.filesystem.FhrdFileSystem`.
        """
        self._metrics = dict(metrics or {})
        self._name = f"{run}@{step}"
        super().__init__(_url(repo, run, step), sync_files=False, **options)

    def finish(self, metadata: Any, results: Any) -> None:
        """Writes the metadata and makes the checkpoint. DCP calls it on the coordinator, after all ranks have written."""
        super().finish(metadata, results)
        _files(self).consolidate(self._name, self._metrics)


class FhrdReader(FsspecReader):  # type: ignore[misc, unused-ignore]
    """A storage reader of DCP."""

    def __init__(self, repo: str | os.PathLike[str], run: str, step: int | str = "latest", **options: Any) -> None:
        """A reader for one step: a number, `latest` or `best:METRIC:min` (or `max`). Of a save that did not end, DCP has
        no metadata, so it is not the latest one."""
        super().__init__(_url(repo, run, step), **options)
        if step == "latest":
            files = _files(self)
            has_metadata = (one for one in reversed(files.repo.all_steps(run)) if files.exists(f"{run}@{one}/{_METADATA}"))
            whole = (one for one in has_metadata if _is_whole(files, run, one))
            last = next(whole, None)
            if last is not None:
                self.path = _url(repo, run, last)


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
        if_exists: what to do if the run has the step: `"error"` raises; `"replace"` writes its files again, one after
            another. If that fails midway, the step has files of both, and only `snapshot:ID` is whole.

    Raises:
        ArgumentTypeError: (a TypeError) if the repository comes before the state, or is not a path or URL.
        StepExistsError: (a FileExistsError) if the run has the step.
    """
    _check(state_dict, repo, "save")
    writer = _writer(repo, run, step, metrics, if_exists, options)
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
    _check(state_dict, repo, "save_async")
    saves = getattr(_dcp, "async_save", None)
    if saves is None:
        raise UnsupportedError("torch.distributed.checkpoint has asynchronous saves from torch 2.3 on")
    writer = _writer(repo, run, step, metrics, if_exists, options)
    # Torch 2.5 does not copy tensors of the CPU: later steps would change what is stored.
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    state = state_dict if version >= _COPIES else _copied(state_dict)
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
    _check(state_dict, repo, "load")
    reader = FhrdReader(repo, run, step, **options)
    _dcp.load(state_dict, storage_reader=reader, process_group=process_group, **_alone(_dcp.load))


def _copied(value: Any) -> Any:
    """The value with copies of all tensors of the CPU in it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.device.type == "cpu" else value
    if isinstance(value, dict):
        entries: dict[Any, Any] = value
        return {key: _copied(one) for key, one in entries.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(one) for one in cast("list[Any]", value))
    return value


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
    files = _files(writer)
    if if_exists == "error" and _is_whole(files, run, step):
        raise StepExistsError(f'the run `{run}` has step {step}: if_exists="replace" stores it again')
    return writer


def _is_whole(files: FhrdFileSystem, run: str, step: int) -> bool:
    """Whether the last save of a step has ended. Until then, what a rank has written is the newest snapshot of it, and
    the metadata, if there is any, is of the save before."""
    there = [one for one in files.repo.snapshots() if (one.run, one.step) == (run, step)]
    if not there:
        return False
    last = max(there, key=lambda one: one.time)
    return TAG not in last.tags or any(file.path == _METADATA for file in files.repo.checkpoint(snapshot=last.id).files())


def _files(storage: Any) -> FhrdFileSystem:
    """The file system of a reader or a writer."""
    return cast(FhrdFileSystem, storage.fs.fs)


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
