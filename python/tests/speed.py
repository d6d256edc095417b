"""Measures what docs/MEASUREMENTS.md says about the Python package. Prints one line for each figure.

    python tests/speed.py [directory for repositories]            # saves, memory, and single arrays
    python tests/speed.py training [directory] [steps] [megabytes]  # a run in which everything trains, beside others
    python tests/speed.py weights model.safetensors [directory]     # a load of real weights, beside others
    python tests/speed.py trees [directory]                         # estimators of scikit-learn, beside pickle

The second and the third one need torch, and take safetensors and zstandard if they are installed. The last one needs
scikit-learn and skops. All kinds of files take turns, so
that a busy machine slows all of them; beside the time is the time of the processors, which it slows less.
"""

from __future__ import annotations

import io
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fhrd

#: Bytes of a layer of the run in which everything trains.
LAYER_BYTES = 1 << 21
#: Turns of each kind of file.
TURNS = 7


def resident() -> int:
    """Bytes of memory of this process."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def peak() -> int:
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def reset_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def model(megabytes: int, seed: int) -> dict[str, np.ndarray]:
    """Weights as a network has them, a layer every 3 MB."""
    generator = np.random.default_rng(seed)
    count = megabytes // 3
    return {f"layer{at:03}": (generator.normal(size=750_000) * 0.02).astype(np.float32) for at in range(count)}


def timed(function, *arguments, **options) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - start


class Times:
    """Seconds of what takes turns: by the clock, and of the processors."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[float, float]]] = {}

    def take(self, name: str, function: Callable[[], Any]) -> Any:
        """Calls `function` and notes its seconds."""
        clock, processors = time.perf_counter(), time.process_time()
        result = function()
        taken = (time.perf_counter() - clock, time.process_time() - processors)
        self._taken.setdefault(name, []).append(taken)
        return result

    def median(self, name: str) -> float:
        """Seconds by the clock."""
        return statistics.median(clock for clock, _ in self._taken[name])

    def show(self, what: str, reference: str) -> None:
        """Prints medians, and how often they are those of `reference`."""
        medians = {
            name: [statistics.median(one[at] for one in taken) for at in (0, 1)] for name, taken in self._taken.items()
        }
        for name, (clock, processors) in medians.items():
            ratios = " and ".join(
                f"{mine / max(other, 1e-9):.1f}" for mine, other in zip((clock, processors), medians[reference], strict=True)
            )
            print(
                f"{what}, {name}: {clock * 1000:.0f} ms, processors {processors * 1000:.0f} ms; {ratios} times {reference}"
            )


def trained(steps: int, megabytes: int) -> Iterator[dict[str, Any]]:
    """The BF16 weights of a network after each step. Every weight moves a little, most of them by less than BF16 shows."""
    import torch

    generator = torch.Generator().manual_seed(0)
    count = max((megabytes << 20) // LAYER_BYTES, 1)
    shape = (LAYER_BYTES // 4096, 2048)
    weights = [torch.randn(shape, generator=generator) * 0.02 for _ in range(count)]
    for step in range(steps):
        rate = 2e-4 * (1 - step / (2 * steps))
        for weight in weights:
            weight += rate * torch.randn(shape, generator=generator)
        yield {f"layer{at:03}.weight": weight.to(torch.bfloat16) for at, weight in enumerate(weights)}


def write(path: pathlib.Path, data: bytes, *, is_durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def kinds(place: pathlib.Path) -> dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]]:
    """How others save a state and load it."""
    import torch

    def durable(state: Any) -> None:
        torch.save(state, place / "durable.pt")
        with (place / "durable.pt").open("rb+") as file:
            os.fsync(file.fileno())

    found: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
        "torch": (lambda state: torch.save(state, place / "plain.pt"), lambda: torch.load(place / "plain.pt")),
        "torch with fsync": (durable, lambda: torch.load(place / "durable.pt")),
    }
    try:
        import zstandard

        def packed(state: Any) -> None:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            write(place / "packed", zstandard.ZstdCompressor(level=3).compress(buffer.getvalue()), is_durable=True)

        def unpacked() -> Any:
            return torch.load(io.BytesIO(zstandard.ZstdDecompressor().decompress((place / "packed").read_bytes())))

        found["torch with zstd and fsync"] = (packed, unpacked)
    except ImportError:
        print("NOT MEASURED: zstandard is not installed")
    try:
        import safetensors.torch

        file = place / "model.safetensors"
        # It maps the file; the copies read it.
        found["safetensors"] = (
            lambda state: safetensors.torch.save_file(state, file),
            lambda: {name: tensor.clone() for name, tensor in safetensors.torch.load_file(file).items()},
        )
    except ImportError:
        print("NOT MEASURED: safetensors is not installed")
    return found


def training(directory: str | None, steps: int, megabytes: int) -> None:
    """A run in which everything trains: saves of its last steps, and loads of the first, the tenth and the last one."""
    import torch

    import fhrd.torch

    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        place, saves = pathlib.Path(scratch), Times()
        others = kinds(place)
        state: dict[str, Any] = {}
        with fhrd.open(place / "repo", create=True) as repo:
            for step, state in enumerate(trained(steps, megabytes)):
                if step < steps - TURNS:
                    fhrd.torch.save(repo, state, run="r", step=step)
                    continue
                saves.take("fhrd", lambda: fhrd.torch.save(repo, state, run="r", step=step))
                for name, (save, _) in others.items():
                    saves.take(name, lambda: save(state))
            stored = repo.steps("r").column("stored_bytes")
        total = sum(tensor.nbytes for tensor in state.values())
        print(f"{steps} steps of {total / 1e6:.0f} MB: {sum(stored) / 1e6:.0f} MB stored, the last {stored[-1] / 1e6:.1f} MB")
        saves.show("save", "torch with fsync")
        loads = Times()
        last = steps - 1
        for _ in range(TURNS):
            for step in sorted({0, min(9, last), last}):
                with fhrd.open(place / "repo") as repo:
                    before = repo._native.bytes_read
                    name = f"fhrd, step {step}"
                    loaded = loads.take(name, lambda: fhrd.torch.load(repo, run="r", step=step))
                    read = repo._native.bytes_read - before
                if step == last:
                    assert all(torch.equal(loaded[name], state[name]) for name in state)
            for name, (_, load) in others.items():
                loads.take(name, load)
        print(f"load of the last step: {read / 1e6:.0f} MB read for {total / 1e6:.0f} MB")
        loads.show("load", "torch")


def weights(file: str, directory: str | None) -> None:
    """Loads of the weights in a safetensors file, and their speed."""
    import safetensors.torch
    import torch

    import fhrd.torch

    state = safetensors.torch.load_file(file)
    total, loads = sum(tensor.nbytes for tensor in state.values()), Times()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        place = pathlib.Path(scratch)
        others = kinds(place)
        for save, _ in others.values():
            save(state)
        with fhrd.open(place / "repo", create=True) as repo:
            fhrd.torch.save(repo, state, run="r", step=0)
        for _ in range(TURNS):
            with fhrd.open(place / "repo") as repo:
                loaded = loads.take("fhrd", lambda: fhrd.torch.load(repo, run="r"))
            assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
            for name, (_, load) in others.items():
                loads.take(name, load)
    seconds = loads.median("fhrd")
    print(f"{total / 1e6:.0f} MB at {total / seconds / 1e9:.2f} GB/s")
    loads.show("load", "torch with zstd and fsync")


def trees(directory: str | None) -> None:
    """Saves and loads of ensembles that have grown by a few trees, beside a pickle that is synced to disk."""
    import pickle

    import sklearn.ensemble

    import fhrd.sklearn

    random = np.random.default_rng(0)
    x = random.normal(size=(2000, 20))
    y = (x[:, 0] * x[:, 1] + 0.1 * random.normal(size=2000) > 0).astype(int)
    makers: dict[str, Any] = {
        "random forest of 100 trees": lambda: sklearn.ensemble.RandomForestClassifier(100, warm_start=True),
        "random forest of 500 trees": lambda: sklearn.ensemble.RandomForestClassifier(500, warm_start=True),
        "gradient boosting of 500 trees": lambda: sklearn.ensemble.GradientBoostingClassifier(n_estimators=500, warm_start=True),
    }
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        place = pathlib.Path(scratch)
        for what, make in makers.items():
            saves, loads, model = Times(), Times(), make().fit(x, y)
            with fhrd.open(place / what, create=True) as repo:
                for turn in range(TURNS):
                    model.set_params(n_estimators=model.n_estimators + 2).fit(x, y)
                    saves.take("pickle with fsync", lambda: write(place / "pickle", pickle.dumps(model), is_durable=True))
                    saves.take("fhrd", lambda: fhrd.sklearn.save(repo, model, run="skops", step=turn))
                    saves.take("fhrd, by pickle", lambda: fhrd.sklearn.save(repo, model, run="p", step=turn, method="pickle"))
                for _ in range(TURNS):
                    loads.take("pickle", lambda: pickle.loads((place / "pickle").read_bytes()))
                    loads.take("fhrd", lambda: fhrd.sklearn.load(repo, run="skops"))
                    loads.take("fhrd, by pickle", lambda: fhrd.sklearn.load(repo, run="p", trusted=True))
            print(f"{what}: {(place / 'pickle').stat().st_size / 1e6:.2f} MB")
            saves.show("save", "pickle with fsync")
            loads.show("load", "pickle")


def main() -> None:
    if sys.argv[1:2] == ["weights"]:
        weights(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
        return
    if sys.argv[1:2] == ["trees"]:
        trees(sys.argv[2] if len(sys.argv) > 2 else None)
        return
    if sys.argv[1:2] == ["training"]:
        directory, steps, megabytes = [*sys.argv[2:], *["", "50", "80"][len(sys.argv) - 2 :]]
        training(directory or None, max(int(steps), TURNS), int(megabytes))
        return
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        place = pathlib.Path(scratch)
        arrays = model(90, 0)
        total = sum(array.nbytes for array in arrays.values())
        with fhrd.open(place / "a", create=True) as repo:
            first = timed(repo.save, arrays, run="a", step=0)
            print(f"first save of {total / 1e6:.0f} MB: {first * 1000:.0f} ms, {total / first / 1e6:.0f} MB/s")
            same = [timed(repo.save, arrays, run="a", step=step) for step in range(1, 21)]
            print(f"nothing changed, median of 20: {statistics.median(same) * 1000:.1f} ms, best {min(same) * 1000:.1f}")
            changed = []
            for step in range(3):
                for array in arrays.values():
                    array *= np.float32(1.0 + 0.001 * (step + 1))
                changed.append(timed(repo.save, arrays, run="a", step=100 + step))
            best = total / min(changed) / 1e6
            print(f"everything changed: {total / statistics.median(changed) / 1e6:.0f} MB/s, best {best:.0f}")
            copies = []
            for _ in range(5):
                start = time.perf_counter()
                copy = {name: array.copy() for name, array in arrays.items()}
                copies.append(time.perf_counter() - start)
                del copy
            staged = []
            for step in range(5):
                staged.append(timed(repo.save_async, arrays, run="b", step=step))
                repo.flush()
            print(f"save_async returns: {min(staged) * 1000:.1f} ms; a copy: {min(copies) * 1000:.1f} ms")
            before = resident()
            reset_peak()
            for array in arrays.values():
                array += np.float32(0.001)
            repo.save_async(arrays, run="b", step=100).result()
            print(f"memory of save_async: peak {(peak() - before) / total:.2f} times the staged bytes")
        with fhrd.open(place / "many", create=True) as repo:
            small = {f"a{at}": np.zeros(1000, np.float32) for at in range(20)}
            times, memory = [], []
            for step in range(1000):
                small["a0"][step] = step
                times.append(timed(repo.save, small, run="m", step=step))
                if step in (99, 999):
                    memory.append(resident())
            print(f"1000 saves: memory {memory[0] / 1e6:.0f} MB after 100, {memory[1] / 1e6:.0f} MB after 1000")
            early, late = statistics.median(times[50:150]), statistics.median(times[900:])
            print(f"1000 saves: {early * 1000:.1f} ms at 100 steps, {late * 1000:.1f} ms at 1000")
        for count in (1, 200):
            with fhrd.open(place / f"load{count}", create=True) as repo:
                for step in range(count):
                    arrays["layer000"][:] = step
                    repo.save(arrays, run="l", step=step)
            with fhrd.open(place / f"load{count}") as repo:
                times = [timed(lambda: dict(repo.load(run="l", step=0))) for _ in range(7)]
                print(f"load of {total / 1e6:.0f} MB, {count} steps: {statistics.median(times) * 1000:.0f} ms")
        large = {f"a{at}": np.random.default_rng(at).integers(0, 255, 1 << 20, np.uint8) for at in range(1000)}
        with fhrd.open(place / "large", create=True) as repo:
            repo.save(large, run="a", step=1)
        with fhrd.open(place / "large") as repo:
            before = repo._native.bytes_read
            seconds = timed(lambda: repo.load(run="a")["a777"])
            read = repo._native.bytes_read - before
            print(f"1 MB of 1 GB: {read / 1e6:.2f} MB read in {seconds * 1000:.0f} ms")


if __name__ == "__main__":
    main()
