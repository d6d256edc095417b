# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""LightGBM boosters, a key for each tree.

>>> import fhrd.lightgbm, lightgbm, numpy
>>> repo = fhrd.open("checkpoints", create=True)
>>> data = lightgbm.Dataset(numpy.arange(200.0).reshape(100, 2), numpy.arange(100.0))
>>> saving = fhrd.lightgbm.checkpoint(repo, "boost", interval=5)
>>> booster = lightgbm.train({"verbose": -1}, data, num_boost_round=10, callbacks=[saving])
>>> fhrd.lightgbm.load(repo, run="boost", step=5).num_trees()
5

A tree never changes once it is added, so a checkpoint of a longer training stores only its new trees. The model is
LightGBM's own text, cut at its trees: `tree.000000` and so on are the trees, `head` and `tail` are the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy

from fhrd.arguments import metric_name, whole_number
from fhrd.arrays_of_text import text_array, text_of
from fhrd.errors import UnsupportedError
from fhrd.runs import check_order, check_store

if TYPE_CHECKING:
    from fhrd import Keep, SavedCheckpoint, SaveHandle
    from fhrd.arguments import IfExists, Progress
    from fhrd.runs import Store

__all__ = ["checkpoint", "load", "save", "save_async"]

#: The array with the round of the best result. Boosters without one have none.
_BEST = "best_iteration"


def save(
    repo: Store,
    booster: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    name: str = "booster.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
) -> SavedCheckpoint:
    """Saves a `Booster`, or an estimator such as `LGBMClassifier`. It is durable on return.

    The other arguments are those of `fhrd.Repository.save`.
    """
    check_order(repo, booster, "fhrd.lightgbm.save")
    return repo.save(
        encode(booster),
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def save_async(
    repo: Store,
    booster: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    name: str = "booster.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
) -> SaveHandle:
    """As `save`, but returns when the trees are copied. See `fhrd.Repository.save_async`."""
    check_order(repo, booster, "fhrd.lightgbm.save_async")
    return repo.save_async(
        encode(booster),
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def load(
    repo: Store,
    *,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
    name: str = "booster.safetensors",
) -> Any:
    """Loads a `Booster`."""
    check_store(repo, "fhrd.lightgbm.load")
    stored = repo.load(run=run, step=step, snapshot=snapshot, name=name)
    arrays = stored.read_all()
    booster = lightgbm.Booster(model_str=decode(arrays))
    if _BEST in arrays:
        booster.best_iteration = int(arrays[_BEST])
    return booster


def encode(booster: Any) -> dict[str, numpy.ndarray[Any, Any]]:
    """The arrays of a booster."""
    if not isinstance(booster, lightgbm.Booster):
        booster = booster.booster_
    text: str = booster.model_to_string(num_iteration=-1)
    starts = [found.start() for found in re.finditer(r"^Tree=\d+$", text, re.MULTILINE)]
    tail = text.find("end of trees", starts[-1] if starts else 0)
    if tail < 0:
        raise UnsupportedError("the text of the booster has no `end of trees`: a version of LightGBM that is not known")
    bounds = [*starts, tail]
    arrays = {
        f"tree.{number:06}": text_array(text[bounds[number] : bounds[number + 1]]) for number in range(len(starts))
    }
    if booster.best_iteration > 0:
        # Predictions use the trees up to here.
        arrays[_BEST] = numpy.asarray(booster.best_iteration, numpy.int64)
    return {"head": text_array(text[: bounds[0]]), **arrays, "tail": text_array(text[tail:])}


def decode(arrays: Mapping[str, Any]) -> str:
    """The text of a booster from the arrays of `encode`."""
    count = sum(name.startswith("tree.") for name in arrays)
    names = ["head", *(f"tree.{number:06}" for number in range(count)), "tail"]
    return "".join(text_of(arrays[name]) for name in names)


def checkpoint(
    repo: Store,
    run: str | None = None,
    *,
    interval: int = 10,
    name: str = "booster.safetensors",
    if_exists: IfExists | None = None,
) -> Callable[[Any], None]:
    """A callback for `lightgbm.train` that saves the booster every `interval` rounds.

    The step is the number of rounds, and the metrics are those of evaluation.

    Args:
        if_exists: as of `fhrd.Repository.save`.
    """
    whole_number(interval, "interval", least=1)

    def after_iteration(environment: Any) -> None:
        rounds = environment.model.current_iteration()
        if rounds % interval == 0:
            results = environment.evaluation_result_list or []
            metrics = {metric_name(f"{result[0]}-{result[1]}"): float(result[2]) for result in results}
            model = environment.model
            save(repo, model, run=run, step=rounds, metrics=metrics, name=name, if_exists=if_exists)

    return after_iteration
