# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""An fsspec file system on a repository: `fhrd://REPOSITORY!/path`.

Everything that opens files through fsspec (pandas, datasets, `torch.distributed.checkpoint`, Lightning, MLflow, ...)
reads from and writes to a repository:

>>> import fhrd, fsspec
>>> fhrd.open("checkpoints", create=True).close()
>>> with fsspec.open("fhrd://checkpoints!/tables/losses.csv", "w") as file:
...     size = file.write("step,loss")
>>> fsspec.open("fhrd://checkpoints!/tables/losses.csv", "r").open().read()
'step,loss'

**Names.** The part before `!` is the repository, as `fhrd.open` takes it. Without `!`, it is the storage
option `repo`, else the environment variable `FHRD_REPO`. The first name after it says where the file is:

- `tune@300/model.pt`: the file `model.pt` of step 300 of the run `tune`. `tune@latest` and `tune@best:METRIC:min` (or
  `max`) can be read.
- `snapshot:ID/path`: a file of any snapshot, by its id, the start of its id, or `latest`. Only for reading.
- `tables/frame.parquet`: any other name is a file that was written through this file system, without a run.

**Writing.** A file is staged: in memory up to 8 MiB, then in a temporary file. `close` stores it as a snapshot. *The
file is durable, and seen by others, when close has returned without an error*, and not before. If an exception leaves
the `with` block of a file that `fs.open` gave, nothing is stored. Those of `fsspec.open`, which pandas uses, do not tell
that their block has failed: what was written until then is stored. Within `with fs.transaction:` all files become durable
together at the end of the block, as one snapshot for each run and step.

**Replacing and deleting.** A directory shows the latest version of each file of all its snapshots, so several processes
may write into one directory without locks. A file that is written again replaces the old version, also if the clocks of
the two writers differ by minutes: a snapshot of which no file is seen any more is forgotten, once the new version is
durable. `rm` forgets snapshots; a snapshot that has other files, too, is stored again without the removed ones first.
Space is given back by `repo.prune()`.

Directories exist as long as they hold a file. Those made by `makedirs` exist only in this object.
"""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import tempfile
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

from fsspec import register_implementation
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem, _Cached, make_instance

import fhrd
from fhrd.arguments import absolute, files_below
from fhrd.arguments import location as location_of
from fhrd.errors import ArgumentError
from fhrd.staged_file import CompressedFile, StagedFile, StagedTransaction, TextFile
from fhrd.urls import join_url, split_name, split_url
from fhrd.versions import WHOLE, Area, Version

if TYPE_CHECKING:
    from fhrd import Checkpoint, Repository

__all__ = ["FhrdFileSystem", "join_url", "split_url"]

#: Tag of the snapshots that this file system writes. It replaces and deletes files of these only.
TAG = "fsspec"
#: File lists of snapshots that are kept in memory. Snapshots never change.
_LISTS_MAX = 4096
#: Listings that are tried while other processes replace snapshots.
_LISTINGS_MAX = 8


class _Cache(_Cached):  # type: ignore[misc, unused-ignore]
    """The cache of file systems, which tells them apart by what their arguments show. Two repositories show the same."""

    @property
    def surroundings(cls) -> tuple[str | None, str]:
        """What else decides which repository is meant."""
        try:
            return os.environ.get("FHRD_REPO"), os.getcwd()
        except FileNotFoundError:
            # Somebody has deleted it.
            return os.environ.get("FHRD_REPO"), ""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if isinstance(args[0] if args else kwargs.get("repo"), fhrd.Repository):
            kwargs["skip_instance_cache"] = True
        return super().__call__(*args, **kwargs)


class FhrdFileSystem(AbstractFileSystem, metaclass=_Cache):  # type: ignore[misc, unused-ignore]
    """See the module. `repo` is a location or an open `fhrd.Repository`."""

    protocol: ClassVar[str | tuple[str, ...]] = "fhrd"
    root_marker = ""
    cachable = True
    _extra_tokenize_attributes = ("surroundings",)
    transaction_type = StagedTransaction

    def __init__(
        self,
        repo: str | os.PathLike[str] | Repository | None = None,
        password: str | None = None,
        create: bool = False,
        options: Mapping[str, str] | None = None,
        staging_directory: str | os.PathLike[str] | None = None,
        **storage_options: Any,
    ) -> None:
        """A file system on the repository `repo`.

        Args:
            repo: location, or an open repository. Default: the environment variable `FHRD_REPO`.
            password: of an encrypted repository.
            create: makes the repository if there is none.
            options: configuration, as `fhrd.open` takes it.
            staging_directory: of files that are being written. Default: the directory of temporary files.
        """
        super().__init__(**storage_options)
        location = os.environ.get("FHRD_REPO") if repo is None else repo
        if not location:
            raise ArgumentError(
                "no repository: use fhrd://REPOSITORY!/path, the option `repo`, or the environment variable FHRD_REPO"
            )
        if isinstance(location, (str, os.PathLike)):
            self.location = location_of(location)
            # The process may change its working directory.
            self._absolute: str = absolute(self.location)
            self._opened: Repository | None = None
        else:
            self.location = str(location.location)
            self._absolute = str(location._opened_with["path_or_url"])
            self._opened = location
        self._how: dict[str, Any] = {"password": password, "create": create, "options": options}
        self._staging_directory = staging_directory
        self._lock = threading.RLock()
        self._lists: dict[str, list[tuple[str, int]]] = {}
        self._made: set[str] = set()
        #: What was moved in a transaction: the old names go when the new ones are durable.
        self._moved: list[str] = []

    @property
    def repo(self) -> Repository:
        """The repository, opened at its first use."""
        with self._lock:
            if self._opened is None:
                self._opened = fhrd.open(self._absolute, **self._how)
            return self._opened

    def __reduce__(self) -> Any:
        if isinstance(self.storage_args[0] if self.storage_args else self.storage_options.get("repo"), fhrd.Repository):
            return super().__reduce__()
        options = {key: value for key, value in self.storage_options.items() if key != "repo"}
        return make_instance, (type(self), (self._absolute, *self.storage_args[1:]), options)

    @property
    def fsid(self) -> str:
        """Identity of the file system."""
        return f"fhrd_{self.location}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """A path without `fhrd://`. One that names a repository still does, so that its name says where it is."""
        if isinstance(path, (list, tuple)):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        if text.startswith("fhrd:/"):
            repo, inner = split_url("fhrd://" + text.removeprefix("fhrd:").removeprefix("//"))
        else:
            repo, inner = split_name(text)
        inner = inner.strip("/")
        inner = posixpath.normpath(inner) if inner else ""
        return inner if repo is None else f"{repo}!/{inner}".rstrip("/")

    def _inner(self, path: Any) -> str:
        """A path within the repository."""
        text = str(self._strip_protocol(path))
        repo, inner = split_name(text)
        if repo is None:
            return inner
        if self._is_own(repo):
            return inner.strip("/")
        if repo.startswith(("/", "~")) or "://" in repo:
            raise ArgumentError(f"{text}: this file system is of the repository {self.location}")
        # A name with such a character.
        return text

    def _is_own(self, repo: str) -> bool:
        """Whether this is the location of the repository."""
        given, own = absolute(location_of(repo)), self._absolute
        is_local = "://" not in given and "://" not in own
        return given == own or (is_local and os.path.realpath(given) == os.path.realpath(own))

    def _prefix(self, path: Any) -> str:
        """What comes before a path within the repository, as it is given: `REPOSITORY!/`, or nothing."""
        prefix = str(self._strip_protocol(path)).removesuffix(self._inner(path))
        return prefix if not prefix or prefix.endswith("/") else prefix + "/"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        repo = split_url(os.fspath(path))[0] if str(path).startswith("fhrd://") else None
        return {} if repo is None else {"repo": repo}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return join_url(self.location, self._inner(name))

    # --- What is stored -------------------------------------------------------------------------------------------

    def _files(self, snapshot: str) -> list[tuple[str, int]]:
        """Paths and sizes of the files of a snapshot."""
        files = self._lists.get(snapshot)
        if files is None:
            found = self.repo.checkpoint(snapshot=snapshot).files()
            files = [(file.path, file.size) for file in found]
            with self._lock:
                while len(self._lists) >= _LISTS_MAX:
                    self._lists.pop(next(iter(self._lists)))
                self._lists[snapshot] = files
        return files

    def _resolved(self, name: str) -> Area:
        """The area with this name. `RUN@latest` and `RUN@best:...` become a run and step."""
        area = Area.of(name)
        run, mark, which = name.rpartition("@")
        if area.run is None and area.snapshot is None and mark and run:
            step: Any = which
            if which == "latest" or which.startswith("best:"):
                try:
                    found = self.repo.checkpoint(run=run, step=step)
                except fhrd.NotFoundError as error:
                    raise FileNotFoundError(f"{name}: {error}") from error
                return Area(name, run=run, step=found.step)
        return area

    def _view(self, area: Area) -> dict[str, Version]:
        """The latest version of each file below the area, by its path from the root."""
        view: dict[str, Version] = {}
        for version, inner in self._versions(area):
            view[self._path(area, inner)] = version
        return view

    def _versions(self, area: Area) -> list[tuple[Version, str]]:
        """All versions of all files of the area, the oldest first."""
        for attempt in range(_LISTINGS_MAX):
            try:
                return list(self._listed_versions(area))
            except fhrd.NotFoundError:
                # Another process has just replaced or removed a snapshot: the next listing shows what it did.
                if attempt + 1 == _LISTINGS_MAX:
                    raise
        return []

    def _listed_versions(self, area: Area) -> Iterator[tuple[Version, str]]:
        if area.snapshot is not None:
            try:
                snapshots: list[Any] = [self.repo.checkpoint(snapshot=area.snapshot)]
            except fhrd.NotFoundError as error:
                raise FileNotFoundError(f"{area.name}: {error}") from error
        else:
            snapshots = [one for one in self.repo.snapshots() if one.run == area.run and one.step == area.step]
            # What is from the future would hide what is written now.
            snapshots.sort(key=lambda one: not one.is_future)
        for one in snapshots:
            is_own, is_future = TAG in one.tags, area.snapshot is None and one.is_future
            if area.run is None and area.snapshot is None and not is_own:
                continue
            for inner, size in self._files(one.id):
                if area.run is None and area.snapshot is None and inner.partition("/")[0] != area.name:
                    continue
                yield Version(size, one.id, inner, one.time, is_own, is_future), inner

    def _areas(self) -> set[str]:
        """Names in the root."""
        for attempt in range(_LISTINGS_MAX):
            try:
                return self._listed_areas()
            except fhrd.NotFoundError:
                if attempt + 1 == _LISTINGS_MAX:
                    raise
        return set()

    def _listed_areas(self) -> set[str]:
        names: set[str] = set()
        for one in self.repo.snapshots():
            if one.run is not None and one.step is not None:
                names.add(f"{one.run}@{one.step}")
            elif TAG in one.tags:
                names.update(inner.partition("/")[0] for inner, _ in self._files(one.id))
        return names

    # --- Reading --------------------------------------------------------------------------------------------------

    def _entry(self, path: str, version: Version) -> dict[str, Any]:
        return {
            "name": path,
            "size": version.size,
            "type": "file",
            "created": version.time,
            "mtime": version.time,
            "snapshot": version.snapshot,
        }

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The entries of a directory, or the file itself."""
        prefix, path = self._prefix(path), self._inner(path)
        entries: dict[str, dict[str, Any]] = {}

        def directory(name: str) -> None:
            entries.setdefault(name, {"name": name, "size": 0, "type": "directory"})

        def inside(name: str) -> str | None:
            """The entry of the directory that leads to `name`."""
            if path and not name.startswith(path + "/"):
                return None
            start = len(path) + 1 if path else 0
            return name[:start] + name[start:].partition("/")[0]

        if path:
            view = self._view(self._resolved(path.partition("/")[0]))
            if path in view:
                entries[path] = self._entry(path, view[path])
            for name, version in view.items():
                child = inside(name)
                if child == name:
                    entries[name] = self._entry(name, version)
                elif child is not None:
                    directory(child)
        else:
            for name in self._areas():
                view = {} if "@" in name else self._view(Area.of(name))
                if name in view:
                    entries[name] = self._entry(name, view[name])
                else:
                    directory(name)
        with self._lock:
            made = set(self._made)
        for name in made:
            child = inside(name)
            if child is not None:
                directory(child)
        if not entries and path and path not in made:
            raise FileNotFoundError(f"{self.unstrip_protocol(path)}: no such file or directory")
        found = sorted(entries.values(), key=lambda entry: str(entry["name"]))
        for entry in found:
            entry["name"] = prefix + entry["name"]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, type, size in bytes, time and snapshot of a file or directory."""
        prefix, path = self._prefix(path), self._inner(path)
        if not path:
            return {"name": prefix.rstrip("/"), "size": 0, "type": "directory"}
        view = self._view(self._resolved(path.partition("/")[0]))
        if path in view:
            return self._entry(prefix + path, view[path])
        with self._lock:
            is_made = any(name == path or name.startswith(path + "/") for name in self._made)
        if is_made or any(name.startswith(path + "/") for name in view):
            return {"name": prefix + path, "size": 0, "type": "directory"}
        raise FileNotFoundError(f"{self.unstrip_protocol(path)}: no such file or directory")

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file or directory. Errors of the repository are raised, not taken for an answer."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def created(self, path: str) -> datetime:
        """When the file was stored."""
        return cast(datetime, self.info(path)["created"])

    def modified(self, path: str) -> datetime:
        """When the file was stored."""
        return self.created(path)

    def ukey(self, path: str) -> str:
        """Changes whenever the file does."""
        entry = self.info(path)
        return f"{entry.get('snapshot')}:{entry['name']}:{entry['size']}"

    def checksum(self, path: str) -> str:
        """As `ukey`."""
        return self.ukey(path)

    def _version(self, path: str) -> Version:
        version = self._view(self._resolved(path.partition("/")[0])).get(path)
        if version is None:
            if self.exists(path):
                raise IsADirectoryError(self.unstrip_protocol(path))
            raise FileNotFoundError(f"{self.unstrip_protocol(path)}: no such file")
        return version

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes `start..end` of a file. Negative numbers count from its end."""
        version = self._version(self._inner(path))
        first, last = _range(version.size, start, end)
        return self._read(version, first, last - first)

    def _read(self, version: Version, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        return self.repo.checkpoint(snapshot=version.snapshot).read_file(version.inner, offset, length)

    # --- Writing --------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        """As any file system of fsspec opens a file."""
        compression = kwargs.pop("compression", None)
        file: Any
        if compression is not None and "r" not in mode:
            file = self.open(path, mode.replace("t", "").replace("b", "") + "b", *args, **_binary(kwargs))
            file = CompressedFile(file, compr[get_compression(path, compression)](file, mode="wb"))
        else:
            file = super().open(path, mode, *args, compression=compression, **kwargs)
            if type(file) is not io.TextIOWrapper or not isinstance(file.buffer, StagedFile):
                return file
            file = file.detach()
        if "b" in mode:
            return file
        return TextFile(file, **{key: kwargs[key] for key in ("encoding", "errors", "newline") if key in kwargs})

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        path = self._inner(path)
        if mode == "rb":
            version = self._version(path)
            return _StoredFile(self, path, version, block_size or "default", cache_options)
        if mode not in ("wb", "ab", "xb"):
            raise ArgumentError(f"mode {mode!r}: expected rb, wb, ab or xb. Stored files cannot be changed in place")
        self._check_writable(path)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(self.unstrip_protocol(path))
        file = StagedFile(self, path, autocommit, self._staging_directory)
        if mode == "ab" and self.exists(path):
            with self._open(path, "rb") as stored:
                shutil.copyfileobj(stored, file, 4 << 20)
        return file

    def _check_writable(self, path: str) -> None:
        name, _, inner = path.partition("/")
        area = Area.of(name)
        if area.snapshot is not None or name.endswith("@latest") or "@best:" in name:
            raise PermissionError(f"{self.unstrip_protocol(path)}: this name is for reading. Write to RUN@STEP")
        above = path.split("/")
        for name in ("/".join(above[:end]) for end in range(2, len(above))):
            run = Area.of(name).run
            if run is not None and run in self.repo.runs():
                raise ArgumentError(f"{name}: the run {run!r} has a `/` in its name, so paths cannot name its steps")
        if not path or (area.run is not None and not inner):
            raise IsADirectoryError(self.unstrip_protocol(path))

    def _commit(self, files: Sequence[StagedFile]) -> None:
        """Stores files: a snapshot for each run and step. Then forgets the snapshots of which nothing is seen."""
        areas: dict[tuple[str | None, int | None], dict[str, StagedFile]] = {}
        for file in files:
            if file.is_discarded:
                continue
            area = Area.of(file.path.partition("/")[0])
            areas.setdefault((area.run, area.step), {})[file.path] = file
        for (run, step), by_path in areas.items():
            content = {Area.of(path.partition("/")[0]).inner(path): file.content() for path, file in by_path.items()}
            self._save(content, run, step, {path.partition("/")[0] for path in by_path})

    def _save(self, content: Mapping[str, Any], run: str | None, step: int | None, names: Iterable[str]) -> None:
        """Stores files of the areas `names`, and then forgets what was there before and is not seen any more."""
        before = [one for name in names for one in self._versions(Area.of(name))]
        after = max((version.time for version, _ in before if not version.is_future), default=None)
        self.repo._save_after(content, run=run, step=step, tags=[TAG], after=after)
        self._forget_replaced(before, set(content), run, step)

    def _forget_replaced(
        self, before: Sequence[tuple[Version, str]], written: set[str], run: str | None, step: int | None
    ) -> None:
        """Forgets our snapshots of which no file is seen, now that `written` are written again. Only those that were seen
        before count: what another process writes meanwhile may be newer than both.

        Of a snapshot from the future that has other files, these are stored again: once that future has come, what it has
        of `written` would be seen."""
        seen = {inner: version for version, inner in before}

        def is_replaced(version: Version, inner: str) -> bool:
            # Clocks of others may order them otherwise, so the time must agree with what is seen here.
            newest = seen.get(inner)
            is_older = newest is not None and newest.snapshot != version.snapshot and newest.time >= version.time
            return inner in written or is_older

        own = {version.snapshot: version for version, _ in before if version.is_own}
        for snapshot, version in own.items():
            try:
                rest = [(inner, size) for inner, size in self._files(snapshot) if not is_replaced(version, inner)]
                has_written = any(inner in written for inner, _ in self._files(snapshot))
                if rest and not (version.is_future and has_written):
                    continue
                if rest:
                    self._store_files({inner: replace(version, size=size, inner=inner) for inner, size in rest}, run, step)
            except fhrd.NotFoundError:
                # Another process has forgotten it.
                continue
            self._forget([snapshot])

    @staticmethod
    def _path(area: Area, inner: str) -> str:
        """Path of a file of an area from the root."""
        return inner if area.run is None and area.snapshot is None else f"{area.name}/{inner}"

    def _forget(self, snapshots: Iterable[str]) -> None:
        for snapshot in sorted(snapshots):
            try:
                self.repo.forget([snapshot])
            except fhrd.NotFoundError:
                # Another process has forgotten it.
                continue

    def consolidate(self, name: str, metrics: Mapping[str, float] | None = None) -> None:
        """Stores the files of `RUN@STEP` that this file system wrote as one snapshot, and forgets the others.

        Several processes may each have stored some of the files. Afterwards `fhrd restore` and `repo.checkpoint`
        give all of them at once. Call it in one process, when all others have closed their files.

        Args:
            metrics: of the checkpoint.
        """
        area = Area.of(self._inner(name))
        if area.run is None:
            raise ArgumentError(f"{name!r}: expected RUN@STEP")
        versions = self._versions(area)
        seen = {self._path(area, inner): version for version, inner in versions}
        view = {path: version for path, version in seen.items() if version.is_own}
        old = {version.snapshot for version, _ in versions if version.is_own}
        if len(old) > 1 or metrics:
            known, tags = self._known_of(old)
            self._store_again(area, view, {**known, **(metrics or {})}, {*tags, WHOLE})
            self._forget(old)

    def _known_of(self, ids: Container[str]) -> tuple[dict[str, float], set[str]]:
        """The metrics and tags of these snapshots."""
        found = [one for one in self.repo.snapshots() if one.id in ids]
        metrics = {metric: value for one in found for metric, value in one.metrics.items()}
        return metrics, {tag for one in found for tag in one.tags}

    def _store_again(
        self, area: Area, view: Mapping[str, Version], metrics: dict[str, float], tags: Iterable[str] = ()
    ) -> None:
        self._store_files({area.inner(path): version for path, version in view.items()}, area.run, area.step, metrics, tags)

    def _store_files(
        self,
        content: Mapping[str, Version],
        run: str | None,
        step: int | None,
        metrics: Mapping[str, float] = {},
        tags: Iterable[str] = (),
        small: Mapping[str, bytes] = {},
    ) -> None:
        """Stores what is stored, and small files with it, as a further snapshot, just after the last of it: it hides
        nothing newer."""
        after = max((version.time for version in content.values()), default=None)
        with tempfile.TemporaryDirectory(prefix="fhrd-", dir=self._staging_directory) as directory:
            files: dict[str, Any] = dict(small)
            for number, (inner, version) in enumerate(content.items()):
                copy = Path(directory) / str(number)
                with copy.open("wb") as out:
                    self._copy(version, out)
                files[inner] = copy
            self.repo._save_after(
                files, run=run, step=step, tags=sorted({TAG, *tags}), metrics=metrics, after=after, at_once=True
            )

    def _copy(self, version: Version, out: BinaryIO) -> None:
        checkpoint = self.repo.checkpoint(snapshot=version.snapshot)
        for offset in range(0, version.size, 16 << 20):
            out.write(checkpoint.read_file(version.inner, offset, min(16 << 20, version.size - offset)))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory in this object."""
        path = self._inner(path)
        if self.exists(path):
            raise FileExistsError(self.unstrip_protocol(path))
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it in this object. Others see it once it holds a file."""
        path = self._inner(path)
        if not path:
            return
        try:
            entry = self.info(path)
        except FileNotFoundError:
            with self._lock:
                self._made.add(path)
            return
        if not exist_ok or entry["type"] == "file":
            raise FileExistsError(self.unstrip_protocol(path))

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        path = self._inner(path)
        if any(name != path for name in self.find(path)):
            raise OSError(39, "the directory is not empty", self.unstrip_protocol(path))
        with self._lock:
            self._made = {name for name in self._made if name != path and not name.startswith(path + "/")}

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, with `recursive` also directories. See the module for what that forgets."""
        given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        files: set[str] = set()
        for one in given:
            one = self._inner(one)
            entry = self.info(one)
            if entry["type"] == "file":
                files.add(one)
            elif not recursive:
                raise IsADirectoryError(self.unstrip_protocol(one))
            else:
                files.update(self.find(one, maxdepth=maxdepth))
                with self._lock:
                    self._made = {name for name in self._made if name != one and not name.startswith(one + "/")}
        self._remove(files)

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.rm(path)

    def _rm(self, path: str) -> None:
        self.rm(path)

    def _remove(self, files: Iterable[str]) -> None:
        areas: dict[str, set[str]] = {}
        for path in files:
            areas.setdefault(path.partition("/")[0], set()).add(path)
        for name, removed in areas.items():
            self._check_writable(next(iter(removed)))
            area = Area.of(name)
            versions = self._versions(area)
            view = {self._path(area, inner): version for version, inner in versions}
            touched: dict[str, bool] = {}
            for version, inner in versions:
                if self._path(area, inner) in removed:
                    touched[version.snapshot] = version.is_own
            rest = {path: version for path, version in view.items() if path not in removed}
            self._store_rest(area, touched, self._kept(area, touched, rest))

    def _kept(self, area: Area, touched: Mapping[str, bool], view: Mapping[str, Version]) -> dict[str, Version]:
        """What is seen of the snapshots `touched`, if `view` is what is seen of the area."""
        kept = {path: version for path, version in view.items() if version.snapshot in touched}
        # A snapshot without a run may hold files of several directories.
        for snapshot in touched if area.run is None else ():
            for inner, _ in self._files(snapshot):
                other = inner.partition("/")[0]
                seen = self._view(Area.of(other)).get(inner) if other != area.name else None
                if seen is not None and seen.snapshot == snapshot:
                    kept[inner] = seen
        return kept

    def _store_rest(self, area: Area, touched: Mapping[str, bool], kept: Mapping[str, Version]) -> None:
        """Stores what stays of the snapshots `touched`, and forgets them. They are ours, or nothing of them stays."""
        if kept and not all(touched.values()):
            raise PermissionError(
                f"{self.unstrip_protocol(area.name)}: it holds other files of a snapshot that this file system did not "
                "write. Remove the whole directory, or use repo.forget"
            )
        if kept:
            # What is known of them stays known.
            self._store_again(area, kept, *self._known_of(touched))
        self._forget(touched)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file. Its content is stored once."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self._check_unwritten(self._inner(path1))
        with self._open(path1, "rb") as stored, self.open(path2, "wb") as file:
            shutil.copyfileobj(stored, file, 4 << 20)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Renames a file, with `recursive` also a directory. The new name is durable before the old one goes."""
        path1, path2 = self._inner(path1), self._inner(path2)
        if path1 == path2:
            return
        self._check_unwritten(path1)
        if self.info(path1)["type"] == "file":
            self.cp_file(path1, path2)
            self._remove_moved([path1])
            return
        # Directories that hold others are renamed, too.
        files = self.find(path1, maxdepth=maxdepth)
        with self._gathered():
            for name in files:
                self.cp_file(name, path2 + name[len(path1) :])
        self.makedirs(path2, exist_ok=True)
        with self._lock:
            self._made.discard(path1)
        if files:
            self._remove_moved(list(files))

    def _check_unwritten(self, path: str) -> None:
        """What a transaction writes is seen at its end, so it cannot be copied or moved before."""
        for file in self.transaction.files if self._intrans else ():
            if file.path == path or file.path.startswith(path + "/"):
                raise ArgumentError(f"{file.path}: this transaction writes it, so it cannot be copied or moved before its end")

    def _remove_moved(self, files: list[str]) -> None:
        if self._intrans:
            self._moved += files
        else:
            self._remove(files)

    def rename(self, path1: str, path2: str, **kwargs: Any) -> None:
        """As `mv`, also for directories."""
        self.mv(path1, path2, recursive=True, **kwargs)

    def put_file(self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any) -> None:
        """Stores a local file."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as local, self.open(rpath, "xb" if mode == "create" else "wb") as file:
            shutil.copyfileobj(local, file, 4 << 20)

    def put_directory(self, local: str | os.PathLike[str], path: str) -> None:
        """Stores all files below the directory `local` as one snapshot below `path`, without staging them."""
        path = self._inner(path)
        root = Path(local)
        if not path:
            # Each entry of the directory may be another run and step.
            with self._gathered():
                for file in files_below(root):
                    self.put_file(os.fspath(file), file.relative_to(root).as_posix())
            return
        area = Area.of(path.partition("/")[0])
        files = {
            area.inner(f"{path}/{file.relative_to(root).as_posix()}"): file
            for file in files_below(root)
        }
        if not files:
            return
        self._check_writable(f"{path}/file")
        self._save(files, area.run, area.step, [area.name])

    @contextmanager
    def _gathered(self) -> Iterator[None]:
        """Stores the files that are written within as one snapshot."""
        if self._intrans:
            yield
            return
        with self.transaction:
            yield

    def invalidate_cache(self, path: str | None = None) -> None:
        """Does nothing: every call looks at the repository."""


def _binary(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a text file that its bytes have, too."""
    return {key: value for key, value in options.items() if key not in ("encoding", "errors", "newline")}


def _range(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    first = 0 if start is None else start + size if start < 0 else start
    last = size if end is None else end + size if end < 0 else end
    return max(0, min(first, size)), max(0, min(last, size))


class _StoredFile(AbstractBufferedFile):  # type: ignore[misc, unused-ignore]
    """A stored file that is read."""

    def __init__(
        self, fs: FhrdFileSystem, path: str, version: Version, block_size: Any, cache_options: dict[str, Any] | None
    ) -> None:
        self._stored = version
        super().__init__(
            fs, path, "rb", block_size, cache_type="readahead", cache_options=cache_options, size=version.size
        )
        self.details = fs._entry(path, version)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return cast(FhrdFileSystem, self.fs)._read(self._stored, start, end - start)


# For programs that run from the sources: an installed package also has an entry point.
register_implementation("fhrd", FhrdFileSystem, clobber=True)
