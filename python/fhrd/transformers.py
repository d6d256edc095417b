# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""Hugging Face Trainer: every checkpoint that the trainer writes is also saved to a repository.

>>> import fhrd.transformers
>>> repo = fhrd.open("checkpoints", create=True)
>>> callback = fhrd.transformers.FhrdCallback(repo, run="tune")  # Trainer(..., callbacks=[callback])
>>> path = fhrd.transformers.restore_latest(repo, "tune", "out")  # train(resume_from_checkpoint=path)
>>> path is None  # the run has no checkpoint yet
True

The trainer writes `out/checkpoint-300`; the callback stores its files as step 300 of the run, with the last values of
all metrics. Weights, optimizer and all else that makes a resumed training the same are among them.
"""

from __future__ import annotations

import filecmp
import logging
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from fhrd.arguments import choice, files_below, metric_name
from fhrd.arguments import name as run_name
from fhrd.errors import ArgumentError, UnsupportedError
from fhrd.repository import IF_EXISTS
from fhrd.rules import Keep

if TYPE_CHECKING:
    import os

    from fhrd import Repository
    from fhrd.arguments import IfExists

__all__ = ["FhrdCallback", "restore_latest"]

_log = logging.getLogger("fhrd")


class FhrdCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Saves each checkpoint of the trainer. It is durable when the trainer goes on.

    If several processes train together, each of them needs the callback: they wait for one another.
    """

    def __init__(
        self,
        repo: Repository,
        run: str,
        *,
        keep: Keep | None = None,
        delete_local: bool = False,
        raise_errors: bool = False,
        if_exists: IfExists = "replace",
    ) -> None:
        """A callback for the run `run`.

        Args:
            keep: which steps of the run stay, when a newer one is durable.
            delete_local: deletes the trainer's directory when the checkpoint is durable. It is an error together with
                `load_best_model_at_end`, which reads that directory.
            raise_errors: stops the training if a checkpoint cannot be saved. By default that is logged as an error,
                the training goes on, and the local directory stays.
            if_exists: as of `fhrd.Repository.save`. A training that goes on from an older checkpoint comes to the
                same steps again, so the default is `"replace"`.
        """
        self._repo, self._run, self._keep = repo, run_name(run, "run"), Keep.checked(keep)
        choice(if_exists, "if_exists", IF_EXISTS)
        self._delete_local, self._raise_errors = delete_local, raise_errors
        self._if_exists: IfExists = if_exists

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer before the first step.

        Raises:
            ArgumentError: (a ValueError) `delete_local` together with `load_best_model_at_end`.
        """
        if self._delete_local and getattr(args, "load_best_model_at_end", False):
            raise ArgumentError("`delete_local` deletes what `load_best_model_at_end` reads: switch one of them off")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer on all ranks when each has written its part of a checkpoint."""
        _wait_for_all_ranks()
        if not state.is_world_process_zero:
            return
        directory = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        try:
            if getattr(state, "trial_params", None):
                raise UnsupportedError("in a search of hyperparameters, checkpoints are in directories of their trials")
            files = {path.relative_to(directory).as_posix(): path for path in files_below(directory)}
            if not files:
                raise FileNotFoundError(f"{directory}: the trainer wrote no files")
            self._repo.save(
                {},
                run=self._run,
                step=state.global_step,
                metrics=_last_metrics(state),
                files=files,
                keep=self._keep,
                if_exists=self._if_exists,
            )
        except Exception:
            if self._raise_errors:
                raise
            _log.exception("checkpoint %s is not saved to the repository; the training goes on", directory)
            return
        if self._delete_local:
            shutil.rmtree(directory, ignore_errors=True)


def _wait_for_all_ranks() -> None:
    """The trainer calls the first rank when that has written its own files; others may still write theirs."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def _last_metrics(state: Any) -> dict[str, float]:
    """The last finite value of each metric that the trainer has logged."""
    metrics: dict[str, float] = {}
    for entry in state.log_history:
        for name, value in entry.items():
            if isinstance(value, (int, float)) and math.isfinite(value) and name != "step":
                metrics[metric_name(name)] = float(value)
    return metrics


def restore_latest(repo: Repository, run: str, output_dir: str | os.PathLike[str], step: int | str = "latest") -> str | None:
    """Restores a checkpoint to `output_dir/checkpoint-STEP` and returns that path, for `resume_from_checkpoint`.

    Args:
        step: a number, `"latest"` or `"best:METRIC:min"` (or `max`).

    Returns:
        None if the run has no checkpoint yet.

    Raises:
        ArgumentError: (a ValueError) if that directory has other files of these names, such as half-written ones. They
            stay as they are.
    """
    repo = getattr(repo, "repository", repo)
    if run not in repo.runs():
        return None
    found = repo.checkpoint(run=run, step=step)
    target = Path(output_dir) / f"checkpoint-{found.step}"
    target.mkdir(parents=True, exist_ok=True)
    # Files that a trainer wrote there have other times than those that were stored.
    differing = _differing(repo, found.id, target) if repo.restore(found.id, target).left_alone else 0
    if differing:
        raise ArgumentError(
            f"output_dir: {differing} files in {target} are not those of the checkpoint: move that directory away"
        )
    return str(target)


def _differing(repo: Repository, snapshot: str, target: Path) -> int:
    """How many files of a snapshot differ from those in `target`."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fhrd-") as directory:
        stored = Path(directory)
        repo.restore(snapshot, stored)
        names = (path.relative_to(stored) for path in stored.rglob("*") if path.is_file())
        return sum(not filecmp.cmp(stored / name, target / name, shallow=False) for name in names)
