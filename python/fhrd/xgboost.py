# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""XGBoost boosters, a key for each tree.

>>> import fhrd.xgboost, numpy, xgboost
>>> repo, x, y = fhrd.open("checkpoints", create=True), numpy.arange(200.0).reshape(100, 2), numpy.arange(100) % 2
>>> booster = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), num_boost_round=10)
>>> saved = fhrd.xgboost.save(repo, booster, run="boost", step=10)
>>> fhrd.xgboost.load(repo, run="boost").num_boosted_rounds()
10

A tree never changes once it is added, so a checkpoint of a longer training stores only its new trees. The model is
XGBoost's own JSON, taken apart: `tree.000000` and so on are the trees, `booster` is the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import xgboost

from fhrd.arguments import metric_name, whole_number
from fhrd.arrays_of_text import text_array, text_of
from fhrd.runs import check_order, check_store

if TYPE_CHECKING:
    from fhrd import Keep, SavedCheckpoint, SaveHandle
    from fhrd.arguments import IfExists, Progress
    from fhrd.runs import Store

__all__ = ["FhrdTrainingCheckpoint", "load", "save", "save_async"]

#: Where a model's trees are, by the kind of booster.
_TREES = {
    "gbtree": ("learner", "gradient_booster", "model"),
    "dart": ("learner", "gradient_booster", "gbtree", "model"),
}


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
    """Saves a `Booster`, or an estimator such as `XGBClassifier`. It is durable on return.

    The other arguments are those of `fhrd.Repository.save`.
    """
    check_order(repo, booster, "fhrd.xgboost.save")
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
    check_order(repo, booster, "fhrd.xgboost.save_async")
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
    into: Any = None,
) -> Any:
    """Loads a `Booster`, or the estimator `into`, such as `XGBClassifier()`, which is returned."""
    check_store(repo, "fhrd.xgboost.load")
    model = into if into is not None else xgboost.Booster()
    stored = repo.load(run=run, step=step, snapshot=snapshot, name=name)
    model.load_model(bytearray(decode(stored.read_all())))
    return model


def encode(booster: Any) -> dict[str, numpy.ndarray[Any, Any]]:
    """The arrays of a booster."""
    if not isinstance(booster, xgboost.Booster):
        booster = booster.get_booster()
    model = json.loads(bytes(booster.save_raw("json")))
    holder = _holder(model)
    trees: list[Any] = []
    if holder is not None:
        trees, holder["trees"] = holder["trees"], []
    arrays = {f"tree.{number:06}": text_array(_compact(tree)) for number, tree in enumerate(trees)}
    arrays["booster"] = text_array(_compact(model))
    return arrays


def decode(arrays: Mapping[str, Any]) -> bytes:
    """The model of `encode` in XGBoost's JSON."""
    model = json.loads(text_of(arrays["booster"]))
    holder = _holder(model)
    if holder is not None:
        count = sum(name.startswith("tree.") for name in arrays)
        holder["trees"] = [json.loads(text_of(arrays[f"tree.{number:06}"])) for number in range(count)]
    return _compact(model).encode()


def _holder(model: Any) -> Any:
    """The object that holds the trees. None for boosters without trees."""
    kind = model["learner"]["gradient_booster"].get("name")
    if kind not in _TREES:
        return None
    for key in _TREES[kind]:
        model = model[key]
    return model


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class FhrdTrainingCheckpoint(xgboost.callback.TrainingCallback):  # type: ignore[misc, unused-ignore]
    """A callback that saves the booster every `interval` rounds."""

    def __init__(
        self,
        repo: Store,
        run: str | None = None,
        *,
        interval: int = 10,
        name: str = "booster.safetensors",
        if_exists: IfExists | None = None,
    ) -> None:
        """A callback for the run `run`. The step is the number of rounds, and the metrics are those of evaluation.

        Args:
            if_exists: as of `fhrd.Repository.save`.
        """
        super().__init__()
        self._repo, self._run, self._name = repo, run, name
        self._interval = whole_number(interval, "interval", least=1)
        self._if_exists: IfExists | None = if_exists

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Saves after the rounds `interval`, 2 * `interval` and so on. The training goes on."""
        rounds = model.num_boosted_rounds()
        if rounds % self._interval == 0:
            metrics: dict[str, float] = {}
            for data, by_name in (evals_log or {}).items():
                for metric, values in by_name.items():
                    last = values[-1]
                    metrics[metric_name(f"{data}-{metric}")] = float(last[0] if isinstance(last, tuple) else last)
            save(
                self._repo,
                model,
                run=self._run,
                step=rounds,
                metrics=metrics,
                name=self._name,
                if_exists=self._if_exists,
            )
        return False
