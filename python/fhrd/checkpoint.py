"""Stored checkpoints and their arrays, read lazily."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _engine as native  # pyright: ignore[reportPrivateUsage]
from . import arguments, arrays
from ._engine import SnapshotRow, StoredBytes
from .arguments import PathLike
from .errors import ArgumentTypeError, DamagedError, NoArrayError, NotFoundError, ReadOnlyError, StorageError
from .table import html_table

if TYPE_CHECKING:
    from .repository import Repository
    from .runs import Store

#: Longest header of a safetensors file that is read, bytes.
_HEADER_BYTES_MAX = 100_000_000
#: Bytes that are read at once, unless one array has more.
_GROUP_BYTES = 256 << 20
#: Memory that small arrays of one read share, bytes: the system gives large pieces faster, in larger pages.
_BLOCK_BYTES = 32 << 20
#: Each array begins at a multiple of it, bytes.
_ALIGNMENT = 64
#: How often a checkpoint is looked for while others replace it.
_TRIES = 8
#: Files that an error names, at most.
_SHOWN_MAX = 8
#: File beside the arrays with the parameters of a run and its commit.
RUN_FILE = "fhrd-run.json"


@dataclass(frozen=True)
class GitCommit:
    """A commit of git."""

    #: Its hash in hexadecimal.
    commit: str
    #: Whether files differed from it.
    is_dirty: bool


@dataclass(frozen=True)
class FileInfo:
    """A file of a checkpoint."""

    #: Path from the root of the snapshot.
    path: str
    #: Bytes.
    size: int


@dataclass(frozen=True)
class ArrayInfo:
    """What the header of a file says about an array."""

    #: Type, as safetensors calls it. `U8` for types that safetensors lacks.
    dtype: str
    shape: tuple[int, ...]
    #: Offset of the first byte in the file.
    offset: int
    #: Bytes.
    nbytes: int
    #: True type as JSON, for types that safetensors lacks.
    true_type: str | None


class LoadedArrays(Mapping[str, Any]):
    """The arrays of a stored safetensors file. Each one is read when it is asked for, and not kept.

    `len`, iteration and `in` read the header only.
    """

    def __init__(
        self,
        stored: StoredBytes,
        *,
        label: str,
        names: Iterable[str] | None = None,
        device: Any = None,
        framework: str = "numpy",
    ) -> None:
        self._stored = stored
        self._label = label
        self._device = device
        self._framework = arguments.framework(framework, device)
        self._origin: tuple[Checkpoint, str] | None = None
        self._infos, self.metadata = _read_header(stored, label)
        if names is not None:
            wanted = arguments.names(names, "names")
            self._infos = {name: self.info(name) for name in wanted}

    def __len__(self) -> int:
        return len(self._infos)

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def info(self, name: str) -> ArrayInfo:
        """Type, shape and offset of an array, without reading it.

        Raises:
            NoArrayError: (a KeyError) if there is none of this name.
        """
        info = self._infos.get(name)
        if info is None:
            raise NoArrayError(f"{self._label} has no array `{name}`")
        return info

    def __getitem__(self, name: str) -> Any:
        info = self.info(name)
        return self._made(name, self.read_bytes(name), info.shape, info.true_type)

    def _made(self, name: str, data: arrays.Bytes, shape: Sequence[int], true_type: str | None) -> Any:
        try:
            return arrays.from_bytes(
                data, self._infos[name].dtype, shape, true_type, self._framework, self._device
            )
        except DamagedError as error:
            raise DamagedError(f"array `{name}` of {self._label}: {error}") from None

    def read_all(self) -> dict[str, Any]:
        """All arrays, read on all processors: faster than one after another. Small ones share memory, up to 32 MiB of it,
        which is free again when none of them is left."""
        made: dict[str, Any] = {}
        group: list[str] = []
        nbytes = 0
        # Arrays for another device leave the memory group by group.
        for name in sorted(self._infos, key=lambda name: self._infos[name].offset):
            group.append(name)
            nbytes += self._infos[name].nbytes
            if nbytes >= _GROUP_BYTES:
                self._read_group(group, made)
                nbytes = 0
        self._read_group(group, made)
        return {name: made[name] for name in self._infos}

    def _read_group(self, group: list[str], made: dict[str, Any]) -> None:
        """Reads the arrays of `group`, and empties it."""
        spaces = _spaces([self._infos[name].nbytes for name in group])
        self._stored.read_into([(self._infos[name].offset, data) for name, data in zip(group, spaces)])
        for name, data in zip(group, spaces):
            made[name] = self._made(name, data, self._infos[name].shape, self._infos[name].true_type)
        group.clear()

    def rows(self, name: str, start: int = 0, stop: int | None = None) -> Any:
        """The rows `start` to `stop` of an array, as a slice with these bounds: what is before and after them is not
        read, if safetensors has the type of the array."""
        info = self.info(name)
        count = info.shape[0] if info.shape else 0
        try:
            first, last, _ = slice(start, stop).indices(count)
        except TypeError:
            raise ArgumentTypeError(f"rows: expected whole numbers, found {start!r} and {stop!r}") from None
        if info.true_type is not None or not count or info.nbytes % count:
            return self[name][start:stop]
        last = max(first, last)
        row = info.nbytes // count
        data = np.empty((last - first) * row, np.uint8)
        self._stored.read_into([(info.offset + first * row, data)])
        return self._made(name, data, (last - first, *info.shape[1:]), None)

    def __repr__(self) -> str:
        return f"<LoadedArrays {self._label}, {len(self)} arrays>"

    def _repr_html_(self) -> str:
        rows = [
            {"name": name, "dtype": info.dtype, "shape": list(info.shape), "bytes": info.nbytes}
            for name, info in self._infos.items()
        ]
        return html_table(repr(self), ["name", "dtype", "shape", "bytes"], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is None:
            raise TypeError("these arrays are of no checkpoint, so they cannot be pickled")
        return _arrays_again, (*self._origin, list(self), self._device, self._framework)

    def read_bytes(self, name: str) -> arrays.Bytes:
        """The stored bytes of an array."""
        info = self.info(name)
        data = np.empty(info.nbytes, np.uint8)
        self._stored.read_into([(info.offset, data)])
        return data


def _spaces(sizes: Sequence[int]) -> list[arrays.Bytes]:
    """Memory for arrays of these sizes. Those that follow one another share a block, if it can hold them."""
    spaces: list[arrays.Bytes] = []
    at = 0
    while at < len(sizes):
        starts, end = [0], sizes[at]
        for size in sizes[at + 1 :]:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            if start + size > _BLOCK_BYTES:
                break
            starts.append(start)
            end = start + size
        block = np.empty(end, np.uint8)
        spaces += [block[start : start + size] for start, size in zip(starts, sizes[at : at + len(starts)])]
        at += len(starts)
    return spaces


def _read_header(stored: StoredBytes, label: str) -> tuple[dict[str, ArrayInfo], dict[str, str]]:
    def damaged(reason: str) -> DamagedError:
        return DamagedError(f"{label} is not a safetensors file: {reason}")

    size = len(stored)
    if size < 8:
        raise damaged(f"it has {size} bytes")
    length = int.from_bytes(stored.read_bytes(0, 8), "little")
    if length > min(_HEADER_BYTES_MAX, size - 8):
        raise damaged(f"its header would have {length} bytes")
    try:
        header: Any = json.loads(stored.read_bytes(8, length))
        metadata: dict[str, str] = dict(header.pop("__metadata__", None) or {})
        infos: dict[str, ArrayInfo] = {}
        items = sorted(header.items(), key=lambda item: (item[1]["data_offsets"][0], item[0]))
        for name, fields in items:
            start, end = (int(offset) for offset in fields["data_offsets"])
            if not 0 <= start <= end <= size - 8 - length:
                raise damaged(f"array `{name}` lies outside of it")
            shape = tuple(int(size) for size in fields["shape"])
            true_type = metadata.get(arrays.DTYPE_KEY + name)
            infos[name] = ArrayInfo(str(fields["dtype"]), shape, 8 + length + start, end - start, true_type)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(f"its header does not parse: {error!r}") from None
    return infos, {key: value for key, value in metadata.items() if not key.startswith(arrays.DTYPE_KEY)}


_Read = TypeVar("_Read")


def of_checkpoint(
    store: Store,
    read: Callable[[Checkpoint], _Read],
    *,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
) -> _Read:
    """What `read` gives of a checkpoint, which is looked for as for `Repository.checkpoint`: again, if somebody has
    replaced it meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        found = store.checkpoint(run=run, step=step, snapshot=snapshot)
        try:
            return read(found)
        except NotFoundError:
            if tries_left == 0 or found.is_there():
                raise
    raise AssertionError


class Checkpoint:
    """A snapshot of a repository. It need not be a step of a run."""

    def __init__(self, repository: Repository, row: SnapshotRow) -> None:
        self._repository = repository
        self._row = row

    @property
    def id(self) -> str:
        """Id of the snapshot, 64 hex digits."""
        return self._row.id

    def is_there(self) -> bool:
        """Whether nobody has forgotten the snapshot, or replaced it."""
        return any(row.id == self.id for row in self._repository.snapshots())

    @property
    def run(self) -> str | None:
        """Name of the run."""
        return self._row.run

    @property
    def step(self) -> int | None:
        """Number of the step."""
        return self._row.step

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name."""
        return dict(self._row.metrics)

    @property
    def tags(self) -> list[str]:
        """Labels."""
        return list(self._row.tags)

    @property
    def parameters(self) -> dict[str, Any]:
        """What `Repository.run` got as parameters. Empty if this was saved without any."""
        parameters: dict[str, Any] = self._run_record().get("parameters", {})
        return parameters

    @property
    def git(self) -> GitCommit | None:
        """The commit that `Repository.run` found. `None` if this was saved without one."""
        found: dict[str, Any] | None = self._run_record().get("git")
        return None if found is None else GitCommit(str(found["commit"]), bool(found["is_dirty"]))

    def _run_record(self) -> dict[str, Any]:
        """What a run has stored beside its arrays."""
        if RUN_FILE not in {file.path for file in self.files()}:
            return {}
        try:
            record: dict[str, Any] = json.loads(self.read_file(RUN_FILE))
            return dict(record)
        except (ValueError, TypeError) as error:
            raise DamagedError(f"`{RUN_FILE}` of snapshot {self.id[:8]} does not parse: {error}") from None

    @property
    def time(self) -> datetime:
        """Start of the save, in UTC."""
        return datetime.fromtimestamp(self._row.time_ns / 1e9, timezone.utc)

    def files(self) -> list[FileInfo]:
        """All files, in the order of their paths."""
        rows = self._repository._use().entries(self.id, None, True)  # pyright: ignore[reportPrivateUsage]
        return [FileInfo(row.path, row.size) for row in rows if row.kind == "file"]

    def open_file(self, path: PathLike) -> StoredBytes:
        """A file for reads at any offset: `len(file)`, `file.read_bytes(offset, length)`.

        Raises:
            NotFoundError: (a LookupError) if there is no such file.
        """
        wanted = arguments.path(path, "path")
        return self._repository._use().open_file(self.id, wanted)  # pyright: ignore[reportPrivateUsage]

    def read_file(self, path: PathLike, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, from `offset` on; to its end, or at most `length`.

        Raises:
            NotFoundError: (a LookupError) if there is no such file.
            ArgumentError: (a ValueError, and for wrong types a TypeError) if a number is below 0.
        """
        offset = arguments.whole_number(offset, "offset")
        length = None if length is None else arguments.whole_number(length, "length")
        stored = self.open_file(path)
        rest = max(len(stored) - offset, 0)
        wanted = rest if length is None else min(length, rest)
        return stored.read_bytes(min(offset, len(stored)), wanted)

    @contextmanager
    def directory(self, *, lazy: bool | None = None) -> Generator[Path, None, None]:
        """The files of the checkpoint in a local directory, for code that takes paths, until the end of the block.

        ```python
        with repo.checkpoint(run="tune").directory() as path:
            model = AutoModel.from_pretrained(path)
        ```

        Args:
            lazy: `True` mounts the checkpoint by FUSE, so that only what is read is fetched; `False` restores all files
                into a temporary directory. By default it is mounted where the system allows it, or else restored.
                Tensors that map a file can be used after the block, too.

        Raises:
            StorageError: (an OSError) if it can be neither mounted nor restored.
            DamagedError: (an OSError) if a file cannot be restored.
        """
        parent = Path(tempfile.mkdtemp(prefix="fhrd-"))
        mounted = None
        try:
            path = parent / "ids" / self.id[:8]
            if lazy is not False:
                engine = self._repository._use()  # pyright: ignore[reportPrivateUsage]
                try:
                    mounted = native.mount_snapshot(engine, self.id, parent)
                except (ReadOnlyError, StorageError):
                    if lazy:
                        raise
            if mounted is None:
                path = parent
                self._repository.restore(self.id, parent)
            yield path
        finally:
            if mounted is None:
                shutil.rmtree(parent, ignore_errors=True)
            else:
                mounted.detach()
                os.rmdir(parent)

    def arrays(
        self,
        name: str = "model.safetensors",
        *,
        names: Iterable[str] | None = None,
        device: Any = None,
        framework: str = "numpy",
    ) -> LoadedArrays:
        """The arrays of a safetensors file, read lazily. `name` is the path of the file; see `Repository.load`.

        Raises:
            ArgumentError: (a ValueError) if there is no such framework.
            NotFoundError: (a LookupError) if there is no such file or array.
        """
        arguments.framework(framework, device)
        label = f"`{name}` of snapshot {self.id[:8]}"
        try:
            stored = self.open_file(name)
        except NotFoundError as error:
            there = [file.path for file in self.files() if file.path.endswith(".safetensors")]
            shown = ", ".join(f"`{path}`" for path in there[:_SHOWN_MAX]) + (", ..." if there[_SHOWN_MAX:] else "")
            raise NotFoundError(f"{error}: give `name`: " + (shown or "it has no safetensors file")) from None
        loaded = LoadedArrays(stored, label=label, names=names, device=device, framework=framework)
        loaded._origin = (self, name)  # pyright: ignore[reportPrivateUsage]
        return loaded

    def __repr__(self) -> str:
        step = f" {self.run}@{self.step}" if self.run is not None else ""
        return f"<Checkpoint {self.id[:8]}{step}>"

    def _repr_html_(self) -> str:
        rows = [{"file": file.path, "bytes": file.size} for file in self.files()]
        return html_table(f"{self!r} {self.metrics or ''}", ["file", "bytes"], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _checkpoint_again, (self._repository, self.id)


def _checkpoint_again(repository: Repository, snapshot: str) -> Checkpoint:
    return repository.checkpoint(snapshot=snapshot)


def _arrays_again(
    checkpoint: Checkpoint, name: str, names: list[str], device: Any, framework: str
) -> LoadedArrays:
    return checkpoint.arrays(name, names=names, device=device, framework=framework)
