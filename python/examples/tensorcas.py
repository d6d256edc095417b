"""The scenario of TensorCAS from end to end: a model, trees, a sweep over a frozen backbone, the best step, and the space.

    python tensorcas.py [--small] [--trees-only] [DIRECTORY]

1. A ResNet-18 is trained with a frozen backbone, and each epoch is a step.
2. A sweep of eight learning rates, and one of four seeds, begin with the same backbone: it is stored once.
3. A training stops and goes on from what was stored.
4. Ensembles of trees grow with `warm_start`: the trees that they had are not stored again.
5. The best step of the sweep is loaded. Rules keep it, and the space of the other steps is given back.
6. Saves are timed: full fine-tune, frozen backbone, and a head with one convolution, as with LoRA.

It prints the figures of the article "TensorCAS: Content Addressable Storage for ML Checkpoints" beside its own. The article's
backbone has pretrained weights; here it has random ones of the same shapes. The article's times are from another machine.
It needs torch; and scikit-learn, skops and XGBoost for the trees. `--small` takes seconds.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import fhrd

MB = 1e6


@dataclass(frozen=True)
class Size:
    """How much of the scenario is run."""

    width: int
    epochs: int
    rates: int
    seeds: int
    trees: tuple[int, ...]
    saves: int


FULL = Size(width=64, epochs=10, rates=8, seeds=4, trees=(500, 1000, 5000), saves=11)
SMALL = Size(width=8, epochs=2, rates=2, seeds=2, trees=(20, 60), saves=2)


def show(what: str, paper: str, ours: str) -> None:
    print(f"{what:<52}{paper:>34}{ours:>34}", flush=True)


def stored(repo: fhrd.Repository) -> int:
    return repo.statistics().stored_bytes["total"]


def resnet18(width: int, classes: int = 10) -> Any:
    """A ResNet-18 for small images: 122 tensors, 11 million weights with a width of 64."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            changes = stride != 1 or before != after
            shortcut = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)] if changes else []
            self.downsample = nn.Sequential(*shortcut)

        def forward(self, x: Any) -> Any:
            inner = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            return (inner + self.downsample(x)).relu()

    layers: list[Any] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for at in range(4):
        after = width << at
        layers += [Block(before, after, 1 if at == 0 else 2), Block(after, after, 1)]
        before = after
    backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.ModuleDict({"backbone": backbone, "fc": nn.Linear(before, classes)})


class Networks:
    """The scenarios with a network, in one repository."""

    def __init__(self, place: Path, size: Size) -> None:
        import torch

        self.size, self.torch = size, cast(Any, torch)
        self.place = place
        self.torch.manual_seed(0)
        self.base = resnet18(size.width)
        self.base.eval()
        images = self.torch.randn(256, 3, 32, 32)
        self.labels = self.torch.randint(0, 10, (256,))
        with self.torch.no_grad():
            # The backbone is frozen and does not change, so its features are computed once.
            self.features = self.base["backbone"](images)
        self.state = {name: tensor.clone() for name, tensor in self.base.state_dict().items()}

    def bytes_of_state(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state.values())

    def train(self, repo: fhrd.Repository, run: str, rate: float, seed: int, first: int = 0, epochs: int = 0) -> float:
        """Trains the head, saves each epoch, and returns the last loss."""
        import fhrd.torch

        torch, loss = self.torch, None
        torch.manual_seed(seed)
        head = torch.nn.Linear(self.features.shape[1], 10)
        if first:
            state = fhrd.torch.load(repo, run=run)
            head.load_state_dict({"weight": state["fc.weight"], "bias": state["fc.bias"]})
        optimizer = torch.optim.SGD(head.parameters(), lr=rate)
        for epoch in range(first, first + (epochs or self.size.epochs)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(self.features), self.labels)
            loss.backward()
            optimizer.step()
            state = {**self.state, "fc.weight": head.weight.detach(), "fc.bias": head.bias.detach()}
            fhrd.torch.save(repo, state, run=run, step=epoch, metrics={"val_loss": loss.item()})
        return float("nan") if loss is None else loss.item()

    def storage(self) -> None:
        size, plain = self.size, self.bytes_of_state()
        print(f"ResNet-18: {len(self.state)} tensors, {plain / MB:.1f} MB")
        with fhrd.open(self.place / "one", create=True) as repo:
            self.train(repo, "tune", 0.1, 0, epochs=2 * size.epochs)
            saves = 2 * size.epochs
            show(f"one run of {saves} steps", "854.5 MB -> 39.5 MB", f"{saves * plain / MB:.1f} MB -> {stored(repo) / MB:.1f} MB")
        with fhrd.open(self.place / "resumed", create=True) as repo:
            self.train(repo, "tune", 0.1, 0, epochs=1)
            self.train(repo, "tune", 0.1, 0, first=1, epochs=1)
            show("a training that goes on, 2 steps", "85.5 MB -> 39.6 MB", f"{2 * plain / MB:.1f} MB -> {stored(repo) / MB:.1f} MB")
        with fhrd.open(self.place / "seeds", create=True) as repo:
            for seed in range(size.seeds):
                self.train(repo, f"seed-{seed}", 0.1, seed)
            saves = size.seeds * size.epochs
            show(f"{size.seeds} seeds x {size.epochs} steps", "1.7 GB -> 39.7 MB", f"{saves * plain / MB:.1f} MB -> {stored(repo) / MB:.1f} MB")
        with fhrd.open(self.place / "sweep", create=True) as repo:
            for at in range(size.rates):
                self.train(repo, f"rate-{at}", 0.5 / 2**at, 0)
            saves = size.rates * size.epochs
            show(f"{size.rates} learning rates x {size.epochs} steps", "3.3 GB -> 39.7 MB", f"{saves * plain / MB:.1f} MB -> {stored(repo) / MB:.1f} MB")
            self.best(repo)

    def best(self, repo: fhrd.Repository) -> None:
        """The best step of all runs is loaded, and what is left after the others are deleted."""
        import fhrd.torch

        before = stored(repo)
        found = min((repo.best(run, "val_loss") for run in repo.runs()), key=lambda one: one.metrics["val_loss"])
        state = fhrd.torch.load(repo, run=found.run, step=found.step)
        model = resnet18(self.size.width)
        model.load_state_dict(state)
        assert all(self.torch.equal(state[name], self.state[name]) for name in state if not name.startswith("fc."))
        for run in repo.runs():
            if run != found.run:
                repo.forget([row["snapshot"] for row in repo.steps(run)])
        repo.forget(keep=fhrd.Keep(best={"val_loss": ("min", 1)}), run=found.run)
        repo.prune(grace_seconds=0)
        assert repo.check(read_data=True).defect_count == 0
        assert [(run, repo.all_steps(run)) for run in repo.runs()] == [(found.run, [found.step])]
        show("best step kept, all others deleted", "not said", f"{before / MB:.1f} MB -> {stored(repo) / MB:.1f} MB")

    def latency(self) -> None:
        torch = self.torch
        convolution = next(name for name in self.state if name.endswith("conv2.weight"))
        changing: dict[str, tuple[str, Callable[[str], bool]]] = {
            "full fine-tune": ("36.0 ms", lambda name: True),
            "frozen backbone": ("14.0 ms", lambda name: name.startswith("fc.")),
            "head and one convolution": ("14.9 ms", lambda name: name.startswith("fc.") or name == convolution),
        }
        with fhrd.open(self.place / "latency", create=True) as repo:
            for what, (paper, changes) in changing.items():
                state, taken = {name: tensor.clone() for name, tensor in self.state.items()}, []
                for step in range(self.size.saves):
                    for name, tensor in state.items():
                        if changes(name) and tensor.is_floating_point():
                            tensor += 1e-3 * torch.randn(tensor.shape)
                    begin = time.perf_counter()
                    fhrd.torch.save(repo, state, run=what, step=step)
                    taken.append(time.perf_counter() - begin)
                show(f"save, {what}, median", paper, f"{statistics.median(taken[1:]) * 1000:.1f} ms")


def trees(place: Path, size: Size) -> None:
    """Ensembles that grow: sizes, and times of a save of a few trees more."""
    import sklearn.ensemble
    import xgboost

    import fhrd.sklearn
    import fhrd.xgboost

    random = np.random.default_rng(0)
    x = random.normal(size=(400, 8))
    y = (x[:, 0] * x[:, 1] + 0.1 * random.normal(size=400) > 0).astype(int)
    papers = {500: "63.5 ms", 1000: "70.5 ms", 5000: "70.2 ms"}
    # The methods of scikit-learn have no types.
    model = cast(Any, sklearn.ensemble.GradientBoostingClassifier(warm_start=True, random_state=0, max_depth=2))
    with fhrd.open(place / "trees", create=True) as repo:
        plain = 0
        for count in size.trees:
            taken, pickled = [], []
            for more in range(3):
                model.set_params(n_estimators=count + 10 * more)
                model.fit(x, y)
                begin = time.perf_counter()
                # Stored with skops, so that loading needs no trust.
                saved = fhrd.sklearn.save(repo, model, run="boost", step=count + 10 * more, method="skops")
                taken.append(time.perf_counter() - begin)
                plain += saved.total_bytes
                begin = time.perf_counter()
                (place / "plain").write_bytes(pickle.dumps(model))
                pickled.append(time.perf_counter() - begin)
            ours = f"{statistics.median(taken) * 1000:.1f} ms, pickle {statistics.median(pickled) * 1000:.1f} ms"
            show(f"save of 10 more trees to {count} (scikit-learn)", papers.get(count, "not said"), ours)
        show("all these steps, scikit-learn", "not said", f"{plain / MB:.2f} MB -> {stored(repo) / MB:.2f} MB")
        loaded = fhrd.sklearn.load(repo, run="boost")
        assert np.array_equal(loaded.predict(x), model.predict(x))
    papers = {500: "50.4 ms", 5000: "208.7 ms"}
    with fhrd.open(place / "rounds", create=True) as repo:
        data, booster, plain = xgboost.DMatrix(x, y), None, 0
        for count in size.trees:
            have = booster.num_boosted_rounds() if booster is not None else 0
            booster = xgboost.train({"max_depth": 2}, data, num_boost_round=count - have, xgb_model=booster)
            plain += fhrd.xgboost.save(repo, booster, run="boost", step=count).total_bytes
            booster = xgboost.train({"max_depth": 2}, data, num_boost_round=10, xgb_model=booster)
            begin = time.perf_counter()
            saved = fhrd.xgboost.save(repo, booster, run="boost", step=count + 10)
            seconds = time.perf_counter() - begin
            plain += saved.total_bytes
            show(f"save of 10 more rounds to {count} (XGBoost)", papers.get(count, "not said"), f"{seconds * 1000:.1f} ms")
        show("all these steps, XGBoost", "not said", f"{plain / MB:.2f} MB -> {stored(repo) / MB:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--small", action="store_true", help="a small network and few steps")
    parser.add_argument("--trees-only", action="store_true", help="without torch")
    arguments = parser.parse_args()
    size = SMALL if arguments.small else FULL
    with tempfile.TemporaryDirectory() as scratch:
        place: Path = arguments.directory or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        show("", "the article", "fhrd")
        if not arguments.trees_only:
            networks = Networks(place, size)
            networks.storage()
            networks.latency()
        trees(place, size)


if __name__ == "__main__":
    main()
