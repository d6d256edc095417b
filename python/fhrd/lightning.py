# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""Lightning: a `CheckpointIO` that saves to a repository.

>>> import fhrd.lightning, lightning
>>> repo = fhrd.open("checkpoints", create=True)
>>> plugin = fhrd.lightning.FhrdCheckpointIO(repo, run="tune")
>>> trainer = lightning.Trainer(plugins=[plugin], logger=False, accelerator="cpu")
>>> plugin.names()  # after trainer.fit(model): the names that fit(model, ckpt_path=...) takes
[]

Lightning's checkpoint `epoch=1-step=20.ckpt` becomes step 20 of the run, with its tensors in a safetensors file of that
name. `ModelCheckpoint` decides as ever which ones stay. Directories in the path do not matter, so a training resumes on
any machine. So names must differ: `ModelCheckpoint` looks for a file of the same name on the local disk only, and here a
checkpoint replaces the one of its name. Have the epoch and the step in `filename`, and no `/`, and give two of them
different names. A resumed training takes `ckpt_path="last.ckpt"`; Lightning looks for `"last"` on the local disk.

Without the plug-in, `ModelCheckpoint(dirpath="fhrd:///data/repo!/tune")` stores Lightning's own files.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from fhrd.arguments import metric_name
from fhrd.arguments import name as run_name
from fhrd.errors import ArgumentError, NotFoundError
from fhrd.torch import load, save

try:
    from lightning.pytorch.plugins.io import CheckpointIO
except ImportError:
    from pytorch_lightning.plugins.io import CheckpointIO  # type: ignore[assignment, unused-ignore]

if TYPE_CHECKING:
    from fhrd import Repository

__all__ = ["FhrdCheckpointIO"]

#: Start of the tag with the name that Lightning gave a checkpoint.
_TAG = "lightning:"
#: The same, if the name cannot be a tag as it is: a comma separates tags.
_QUOTED = "lightning-quoted:"


class FhrdCheckpointIO(CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Saves Lightning's checkpoints as steps of a run. A checkpoint is durable when the training goes on."""

    def __init__(self, repo: Repository, run: str, *, trusted: bool = False) -> None:
        """A plug-in for the run `run`.

        Args:
            trusted: loads objects in a checkpoint that had to be pickled, such as hyperparameters of your own types.
                *Unpickling runs code from the repository: only for repositories that nobody else can write to.*
        """
        self._repo, self._run, self._trusted = repo, run_name(run, "run"), trusted
        #: The directory from which each name was saved.
        self._directories: dict[str, str] = {}
        # A run of a repository has no list of all snapshots.
        self._repository: Repository = getattr(repo, "repository", repo)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Saves a checkpoint. One that was saved under the same name before is replaced.

        Raises:
            ArgumentError: (a ValueError) if this training has saved that one to another directory.
        """
        name, directory = _name(path), posixpath.dirname(str(path).rstrip("/"))
        if self._directories.setdefault(name, directory) != directory:
            raise ArgumentError(
                f"{path}: the directory {self._directories[name]!r} has a checkpoint of this name, too: give each "
                "ModelCheckpoint a `filename` of its own, without `/`"
            )
        old = self._snapshots(name)
        metrics = {
            metric_name(str(key)): float(value)
            for key, value in _monitored(checkpoint).items()
        }
        save(
            self._repo,
            checkpoint,
            run=self._run,
            step=int(checkpoint.get("global_step", 0)),
            metrics=metrics,
            tags=[_tag(name)],
            name=name + ".safetensors",
            # Several checkpoints of Lightning may be of one step.
            if_exists="add",
            allow_pickle=True,
        )
        self._forget(old)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Loads a checkpoint by its name."""
        name = _name(path)
        found = self._snapshots(name)
        if not found:
            raise FileNotFoundError(f"{path}: the run {self._run!r} has no checkpoint of this name")
        is_trusted = self._trusted and not weights_only
        device = None if callable(map_location) or isinstance(map_location, dict) else map_location
        loaded: dict[str, Any] = load(
            self._repository, snapshot=found[-1], name=name + ".safetensors", device=device, trusted=is_trusted
        )
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        """Forgets a checkpoint. `repo.prune()` gives back its space."""
        self._directories.pop(_name(path), None)
        self._forget(self._snapshots(_name(path)))

    def _forget(self, snapshots: list[str]) -> None:
        for snapshot in snapshots:
            try:
                self._repository.forget([snapshot])
            except NotFoundError:
                # Rules of the run have deleted it.
                continue

    def names(self) -> list[str]:
        """The names of all checkpoints, the latest last."""
        mine = (one for one in self._repository.snapshots() if one.run == self._run)
        tags = [tag for one in mine for tag in one.tags]
        return [
            unquote(tag.removeprefix(_QUOTED)) if tag.startswith(_QUOTED) else tag.removeprefix(_TAG)
            for tag in tags
            if tag.startswith((_TAG, _QUOTED))
        ]

    def _snapshots(self, name: str) -> list[str]:
        tags = {_TAG + name, _tag(name)}
        found = [one for one in self._repository.snapshots() if one.run == self._run and not tags.isdisjoint(one.tags)]
        # One from the future is the last only if there is no other.
        return [one.id for one in sorted(found, key=lambda one: not one.is_future)]


def _tag(name: str) -> str:
    return _TAG + name if "," not in name and name == name.strip() else _QUOTED + quote(name, safe="")


def _name(path: Any) -> str:
    return posixpath.basename(str(path).rstrip("/"))


def _monitored(checkpoint: dict[str, Any]) -> dict[str, float]:
    """The metrics by which `ModelCheckpoint` chooses."""
    found: dict[str, float] = {}
    for state in (checkpoint.get("callbacks") or {}).values():
        if isinstance(state, dict) and state.get("monitor") and state.get("current_score") is not None:
            found[state["monitor"]] = float(state["current_score"])
    return found
