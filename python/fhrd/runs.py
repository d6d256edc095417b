"""A store that is bound to a run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import arguments
from .arguments import Files, IfExists, Progress
from .checkpoint import RUN_FILE, Checkpoint, GitCommit, LoadedArrays, of_checkpoint
from .errors import ArgumentError, ArgumentTypeError
from .reports import SavedCheckpoint
from .repository import IF_EXISTS, Repository
from .rules import Keep
from .staging import SaveHandle
from .table import Table, html_table

#: Seconds that git may take.
_GIT_SECONDS = 10
#: It writes nothing, and starts no other program.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")


class Run:
    """A store that is bound to a run. `Repository.run` returns it.

    It is taken wherever an adapter takes a repository: `fhrd.torch.save(repo.run("tune"), state, step=300)`.
    """

    def __init__(
        self,
        repository: Repository,
        name: str,
        parameters: Mapping[str, Any] | None,
        git: bool,
        save_interval: int,
        keep: Keep | None,
        if_exists: IfExists | None,
    ) -> None:
        self.repository = repository
        self.name = arguments.name(name, "run")
        self.save_interval = arguments.whole_number(save_interval, "save_interval", least=1)
        self.keep = Keep.checked(keep)
        if if_exists is not None:
            arguments.choice(if_exists, "if_exists", IF_EXISTS)
        self.if_exists: IfExists | None = if_exists
        if parameters is not None and not isinstance(parameters, Mapping):  # pyright: ignore
            raise ArgumentTypeError(f"parameters: expected a dictionary, found {parameters!r}")
        try:
            self.parameters: dict[str, Any] = json.loads(json.dumps(dict(parameters or {})))
        except (RecursionError, TypeError, ValueError) as error:
            raise ArgumentTypeError(f"parameters: expected what JSON can say: {error}") from None
        #: The commit of the working directory, if it is one of git.
        self.git: GitCommit | None = _commit() if git else None

    def __repr__(self) -> str:
        return f"<Run {self.name} of {self.repository.location}>"

    def _repr_html_(self) -> str:
        steps = self.repository.steps(self.name) if self.all_steps() else Table(["step"], [])
        return html_table(repr(self), steps.columns, steps)

    def should_save(self, step: int) -> bool:
        """Whether a step is to be saved: it is a multiple of `save_interval`, and the run does not have it.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if it is no number of a step.
        """
        number = arguments.whole_number(step, "step")
        return number % self.save_interval == 0 and number not in self.repository.saved_steps(self.name)

    def all_steps(self) -> list[int]:
        """The numbers of the steps, ascending."""
        return self.repository.all_steps(self.name)

    def latest_step(self) -> int | None:
        """The highest number of a step. `None` if there is none yet."""
        return self.repository.latest_step(self.name)

    def steps(self) -> Table:
        """As `Repository.steps`."""
        return self.repository.steps(self.name)

    def best(self, metric: str, mode: str = "min") -> Checkpoint:
        """As `Repository.best`."""
        return self.repository.best(self.name, metric, mode)

    def forget(self, keep: Keep, *, dry_run: bool = False) -> list[str]:
        """As `Repository.forget` with rules."""
        return self.repository.forget(keep=keep, run=self.name, dry_run=dry_run)

    def save(
        self,
        arrays: Mapping[str, Any],
        *,
        step: int | None = None,
        run: str | None = None,
        metrics: Mapping[str, float] = {},
        tags: Sequence[str] = (),
        files: Files = (),
        metadata: Mapping[str, str] = {},
        name: str = "model.safetensors",
        keep: Keep | None = None,
        if_exists: IfExists | None = None,
        progress: Progress | None = None,
    ) -> SavedCheckpoint:
        """As `Repository.save`, as a step of this run. `keep` and `if_exists` are those of the run unless given.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible, there is no
                step, or `run` is another run.
        """
        return self.repository.save(
            arrays,
            run=self._own(run),
            step=_step(step),
            metrics=metrics,
            tags=tags,
            files=self._files(files),
            metadata=metadata,
            name=name,
            keep=keep or self.keep,
            if_exists=if_exists or self.if_exists,
            progress=progress,
        )

    def save_async(
        self,
        arrays: Mapping[str, Any],
        *,
        step: int | None = None,
        run: str | None = None,
        metrics: Mapping[str, float] = {},
        tags: Sequence[str] = (),
        files: Files = (),
        metadata: Mapping[str, str] = {},
        name: str = "model.safetensors",
        keep: Keep | None = None,
        if_exists: IfExists | None = None,
        progress: Progress | None = None,
    ) -> SaveHandle:
        """As `Repository.save_async`, as a step of this run. `keep` and `if_exists` are those of the run unless given.

        Raises:
            ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible, there is no
                step, or `run` is another run.
        """
        return self.repository.save_async(
            arrays,
            run=self._own(run),
            step=_step(step),
            metrics=metrics,
            tags=tags,
            files=self._files(files),
            metadata=metadata,
            name=name,
            keep=keep or self.keep,
            if_exists=if_exists or self.if_exists,
            progress=progress,
        )

    def load(
        self,
        *,
        step: int | str | None = None,
        run: str | None = None,
        snapshot: str | None = None,
        name: str = "model.safetensors",
        names: Iterable[str] | None = None,
        device: Any = None,
        framework: str = "numpy",
    ) -> LoadedArrays:
        """As `Repository.load`, of a step of this run."""

        def arrays(found: Checkpoint) -> LoadedArrays:
            return found.arrays(name, names=names, device=device, framework=framework)

        return of_checkpoint(self, arrays, run=run, step=step, snapshot=snapshot)

    def checkpoint(
        self, *, step: int | str | None = None, run: str | None = None, snapshot: str | None = None
    ) -> Checkpoint:
        """As `Repository.checkpoint`, of a step of this run."""
        if snapshot is not None and step is None:
            return self.repository.checkpoint(snapshot=snapshot)
        return self.repository.checkpoint(run=self._own(run), step=step, snapshot=snapshot)

    def _own(self, run: str | None) -> str:
        if run is not None and run != self.name:
            raise ArgumentError(f"this is the run `{self.name}`, not `{run}`")
        return self.name

    def _files(self, files: Files) -> Files:
        """The files of a save, and what every step of the run has."""
        record: dict[str, Any] = {}
        if self.parameters:
            record["parameters"] = self.parameters
        if self.git is not None:
            record["git"] = {"commit": self.git.commit, "is_dirty": self.git.is_dirty}
        if not record:
            return files
        named = arguments.named_files(files)
        if RUN_FILE in named:
            raise ArgumentError(f"files: `{RUN_FILE}` is what the run stores")
        return {**named, RUN_FILE: json.dumps(record, sort_keys=True, indent=1).encode()}


#: What adapters save to and load from.
Store = Union[Repository, Run]


def check_store(repo: object, function: str) -> None:
    """Raises ArgumentTypeError if what is loaded from is no repository, such as a path."""
    if not hasattr(repo, "checkpoint"):
        raise ArgumentTypeError(
            f"{function}: expected a repository or a run of one, found {type(repo).__qualname__}: fhrd.open opens a path"
        )


def check_order(repo: object, value: object, function: str) -> None:
    """Raises ArgumentTypeError if what is saved comes before the repository, as `torch.save` has it."""
    if isinstance(value, (Repository, Run)) or not hasattr(repo, "save"):
        raise ArgumentTypeError(
            f"the repository comes first: {function}(repo, value), found {function}({type(repo).__qualname__}, "
            f"{type(value).__qualname__})"
        )


def _step(step: int | None) -> int:
    if step is None:
        raise ArgumentError("a save of a run needs a step")
    return step


def _commit() -> GitCommit | None:
    """The commit of the working directory. `None` without git, and without a commit."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run([*_GIT, *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "--verify", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no") if commit else None
    return GitCommit(commit, changed != "") if commit else None
