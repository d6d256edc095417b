#!/usr/bin/env python3
"""The time to save a model in memory with the Python package: TensorCAS's two tables of latency.

    datasets/latency_rows.py [--small]

Prints a line of JSON for each scenario, for configs/bench/tensorcas-latency.toml, with the milliseconds of each save.
Repositories are written to a temporary directory, or below FHRD_BENCH_WORK. Needs fhrd and NumPy. The rows of trees need
scikit-learn and XGBoost, too; without them these rows are not printed. `--small` takes seconds.

1. *trees*: ten more trees are added to a boosted model, and it is saved. Every array is hashed in every save.
2. *rounds*: the same with XGBoost, and with the length of the document that is left without its trees.
3. *network*: the 122 arrays of a ResNet-18. All change between two saves, or the head, or the head and a convolution.
"""

import json
import os
import sys
import tempfile
import time

import fhrd
import numpy as np

SAVES = 9
STAGES = (64, 128, 256, 512)


def row(name, rounds, **more):
    print(json.dumps({"set": name, "save_rounds": rounds, **more}), flush=True)


def timed(save):
    begin = time.perf_counter()
    save()
    return 1000 * (time.perf_counter() - begin)


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 8))
    return x, (x[:, 0] * x[:, 1] + 0.1 * random.normal(size=400) > 0).astype(int)


def trees(place, counts, saves):
    import fhrd.sklearn
    import sklearn.ensemble

    x, y = data()
    model = sklearn.ensemble.GradientBoostingClassifier(warm_start=True, random_state=0, max_depth=2)
    for count in counts:
        with fhrd.open(os.path.join(place, f"trees-{count}"), create=True) as repo:
            rounds, new = [], []
            # The first save stores all trees, so it does not count.
            for number in range(saves + 1):
                model.set_params(n_estimators=count - 10 * (saves - number))
                model.fit(x, y)
                step = {"run": "boost", "step": number, "method": "pickle"}
                kept = []
                rounds.append(timed(lambda step=step, kept=kept: kept.append(fhrd.sklearn.save(repo, model, **step))))
                new.append(kept[0].added_bytes)
            row("trees", rounds[1:], parameters={"trees": count}, added=max(new[1:]))


def booster_rounds(place, counts, saves):
    import fhrd.xgboost
    import xgboost

    x, y = data()
    matrix = xgboost.DMatrix(x, y)
    booster = None
    for count in counts:
        with fhrd.open(os.path.join(place, f"rounds-{count}"), create=True) as repo:
            rounds = []
            for number in range(saves + 1):
                have = booster.num_boosted_rounds() if booster is not None else 0
                wanted = count - 10 * (saves - number)
                booster = xgboost.train({"max_depth": 2}, matrix, num_boost_round=wanted - have, xgb_model=booster)
                rounds.append(timed(lambda number=number: fhrd.xgboost.save(repo, booster, run="boost", step=number)))
            arrays = repo.load(run="boost", step="latest", name="booster.safetensors")
            row("rounds", rounds[1:], parameters={"rounds": count}, skeleton_bytes=len(arrays["booster"].tobytes()))


def network(width):
    """The shapes of a ResNet-18's state, by name."""
    shapes = {"conv1.weight": (width, 3, 7, 7)}

    def norm(name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    norm("bn1", width)
    inputs = width
    for stage, factor in enumerate(STAGES):
        outputs = factor * width // STAGES[0]
        for block in range(2):
            name = f"layer{stage + 1}.{block}"
            shapes[f"{name}.conv1.weight"] = (outputs, inputs, 3, 3)
            norm(f"{name}.bn1", outputs)
            shapes[f"{name}.conv2.weight"] = (outputs, outputs, 3, 3)
            norm(f"{name}.bn2", outputs)
            if inputs != outputs:
                shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                norm(f"{name}.downsample.1", outputs)
            inputs = outputs
    shapes["fc.weight"], shapes["fc.bias"] = (10, inputs), (10,)
    return shapes


def networks(place, width, saves):
    random = np.random.default_rng(1)
    shapes = network(width)
    head, convolution = ["fc.weight", "fc.bias"], "layer4.1.conv2.weight"
    scenarios = {
        "full fine-tune": list(shapes),
        "frozen backbone": head,
        "head and one convolution": [*head, convolution],
    }

    def drawn(name):
        return np.asarray(random.normal(0, 0.05, shapes[name]), dtype=np.float32)

    for scenario, changed in scenarios.items():
        arrays = {name: drawn(name) for name in shapes}
        with fhrd.open(os.path.join(place, scenario.replace(" ", "-")), create=True) as repo:
            rounds, new = [], []
            for number in range(saves + 1):
                arrays.update({name: drawn(name) for name in changed})
                kept = []
                save = {"run": "resnet", "step": number}
                rounds.append(timed(lambda save=save, kept=kept: kept.append(repo.save(arrays, **save))))
                new.append(kept[0].added_bytes)
            row("network", rounds[1:], scenario=scenario, arrays=len(arrays), added=max(new[1:]))


def main():
    small = "--small" in sys.argv[1:]
    width, counts, saves = (8, (60, 120), 3) if small else (64, (500, 1000, 5000), SAVES)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FHRD_BENCH_WORK")) as place:
        networks(place, width, saves)
        for part, numbers in ((trees, counts), (booster_rounds, (counts[0], counts[-1]))):
            try:
                part(place, numbers, saves)
            except ModuleNotFoundError as error:
                print(f"{part.__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
