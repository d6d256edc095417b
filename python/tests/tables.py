"""Writes the two tables of docs/MEASUREMENTS.md with saves and loads beside the formats that people use.

    python tests/tables.py [--megabytes 48] [--steps 50] [--turns 5] [--s3] [DIRECTORY]

Five trainings are made: in `full`, weights and moments of the optimizer change; in `frozen`, a head; with `LoRA`, adapters;
with `RL`, 3 % or 1 % of the BF16 weights move by the last bit. The first, the tenth and the last step are saved by fhrd into a
run, and are loaded from it at the end. All kinds of files take turns, so a busy machine slows all of them. Beside the time by
the clock is that of the processors. What is not installed is said and left out. `--s3` measures a server of moto on this
machine, which it starts, instead of a local disk.
"""

from __future__ import annotations

import argparse
import io
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from speed import kinds

import fhrd
import fhrd.torch

#: Bytes of a tensor.
TENSOR_BYTES = 1 << 20
BUCKET = "steps"

Save = Callable[[Any], Any]
Load = Callable[[], Any]


class Training:
    """The state of a training, step by step."""

    def __init__(self, kind: str, megabytes: int) -> None:
        self.kind = kind
        self._random = torch.Generator().manual_seed(0)
        count = max((megabytes << 20) // TENSOR_BYTES, 8)
        low = kind.startswith("RL")
        shape = (TENSOR_BYTES // (2048 if low else 4096), 1024)
        trained = {"full": count // 3, "frozen": count // 12, "LoRA": max(count // 48, 1)}.get(kind, count)
        weights = count if low else count - 2 * trained
        self.state: dict[str, Any] = {}
        for at in range(weights):
            weight = torch.randn(shape, generator=self._random) * 0.02
            self.state[f"model.{at:03}"] = weight.to(torch.bfloat16) if low else weight
        # What trains has two moments.
        self._trained = [f"model.{at:03}" for at in range(weights - trained, weights)]
        if not low:
            for name in self._trained:
                self.state[f"first.{name}"] = torch.zeros(shape)
                self.state[f"second.{name}"] = torch.zeros(shape)

    def step(self) -> None:
        """One more step."""
        for name in self._trained:
            weight = self.state[name]
            if self.kind.startswith("RL"):
                share = 1 - int(self.kind.removeprefix("RL ").removesuffix(" %")) / 100
                moves = torch.rand(weight.shape, generator=self._random) < share
                bits = weight.view(torch.int16)
                up = torch.randint(0, 2, weight.shape, generator=self._random, dtype=torch.int16) * 2 - 1
                self.state[name] = torch.where(moves, bits + up, bits).view(torch.bfloat16)
                continue
            gradient = torch.randn(weight.shape, generator=self._random) * 1e-3
            first, second = self.state[f"first.{name}"], self.state[f"second.{name}"]
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.999).add_(gradient * gradient, alpha=0.001)
            weight -= 1e-4 * first / (second.sqrt() + 1e-8)


KINDS = ("full", "frozen", "LoRA", "RL 97 %", "RL 99 %")


def distributed(place: pathlib.Path, state: dict[str, Any]) -> tuple[Save, Load]:
    import torch.distributed.checkpoint as dcp

    target = place / "dcp"

    def save(value: Any) -> None:
        shutil.rmtree(target, ignore_errors=True)
        dcp.save(dict(value), checkpoint_id=str(target), no_dist=True)

    def load() -> Any:
        empty = {name: torch.empty_like(tensor) for name, tensor in state.items()}
        dcp.load(empty, checkpoint_id=str(target), no_dist=True)
        return empty

    return save, load


def orbax(place: pathlib.Path, state: dict[str, Any]) -> tuple[Save, Load]:
    import jax
    import ml_dtypes
    import orbax.checkpoint

    target, checkpointer = place / "orbax", orbax.checkpoint.StandardCheckpointer()

    def arrays(value: Any) -> dict[str, Any]:
        bf16 = torch.bfloat16
        return {
            name: one.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if one.dtype == bf16 else one.numpy()
            for name, one in value.items()
        }

    def save(value: Any) -> None:
        checkpointer.save(target, arrays(value), force=True)
        checkpointer.wait_until_finished()

    shapes = {name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in arrays(state).items()}
    return save, lambda: checkpointer.restore(target, shapes)


def others(place: pathlib.Path, state: dict[str, Any]) -> dict[str, tuple[Save, Load]]:
    """The other kinds of files."""
    found = dict(kinds(place))
    for name, make in (("torch.distributed.checkpoint", distributed), ("orbax", orbax)):
        try:
            found[name] = make(place, state)
        except ImportError as error:
            print(f"NOT MEASURED: {name}: {error}")
    return found


def in_s3(url: str, state: dict[str, Any]) -> dict[str, tuple[Save, Load]]:
    """`torch.save` into memory, and a put; a get, and `torch.load`."""
    import boto3

    client = boto3.client("s3", endpoint_url=url)

    def save(value: Any) -> None:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        client.put_object(Bucket=BUCKET, Key="step.pt", Body=buffer.getvalue())

    def load() -> Any:
        return torch.load(io.BytesIO(client.get_object(Bucket=BUCKET, Key="step.pt")["Body"].read()))

    return {"torch.save and boto3": (save, load)}


@contextmanager
def moto() -> Iterator[str]:
    """A server of moto, with a bucket. Its URL."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ[name] = "test"
    os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(300):
                try:
                    urllib.request.urlopen(url, timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            boto3.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
            yield url
        finally:
            server.terminate()


Taken = dict[str, list[tuple[float, float]]]


def take(taken: Taken, name: str, work: Callable[[], Any]) -> Any:
    clock, processors = time.perf_counter(), time.process_time()
    result = work()
    taken.setdefault(name, []).append((time.perf_counter() - clock, time.process_time() - processors))
    return result


def shown(taken: Taken, name: str) -> str:
    if name not in taken:
        return "-"
    clock, processors = (statistics.median(one[at] for one in taken[name]) * 1000 for at in (0, 1))
    return f"{clock:.0f} ({processors:.0f})"


def measure(
    kind: str, arguments: argparse.Namespace, place: pathlib.Path, location: str, options: dict[str, str], url: str | None
) -> tuple[Taken, Taken, str]:
    """Times of saves and of loads of one training, and what is stored of it."""
    training, saves, loads = Training(kind, arguments.megabytes), Taken(), Taken()
    rest = in_s3(url, training.state) if url else others(place, training.state)
    last = arguments.steps - 1
    steps = sorted({0, min(9, last), last})
    with fhrd.open(location, create=True, options=options) as repo:
        for step in range(arguments.steps):
            training.step()
            # The neighbours of a step count as that step: saved twice, it would be found.
            near = [one for one in steps if one == step or (one and abs(one - step) == 1)]
            if not near:
                fhrd.torch.save(repo, training.state, run="r", step=step)
                continue
            take(saves, f"fhrd, step {near[0]}", lambda: fhrd.torch.save(repo, training.state, run="r", step=step))
            for name, (save, _) in rest.items():
                take(saves, name, lambda: save(training.state))
        stored = sum(repo.steps("r").column("stored_bytes"))
    total = sum(tensor.nbytes for tensor in training.state.values())
    for _ in range(arguments.turns):
        for step in steps:
            with fhrd.open(location, options=options) as repo:
                loaded = take(loads, f"fhrd, step {step}", lambda: fhrd.torch.load(repo, run="r", step=step))
            if step == last:
                assert all(torch.equal(loaded[name], tensor) for name, tensor in training.state.items())
        for name, (_, load) in rest.items():
            take(loads, name, load)
    plain = total * arguments.steps
    return saves, loads, f"{total / 1e6:.0f} MB x {arguments.steps}, stored {stored / plain:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--megabytes", type=int, default=48)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--s3", action="store_true")
    arguments = parser.parse_args()
    rows: list[tuple[str, Taken, Taken, str]] = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        for kind in KINDS:
            place = pathlib.Path(scratch) / kind.replace(" ", "")
            place.mkdir()
            if arguments.s3:
                with moto() as url:
                    options = {"endpoint": url, "unencrypted": "true"}
                    rows.append((kind, *measure(kind, arguments, place, f"s3://{BUCKET}/repo", options, url)))
            else:
                rows.append((kind, *measure(kind, arguments, place, str(place / "repo"), {}, None)))
            shutil.rmtree(place)
            print(f"{kind}: measured", file=sys.stderr, flush=True)
    for title, at in (("save", 1), ("load", 2)):
        names = list(dict.fromkeys(name for row in rows for name in row[at]))  # type: ignore[attr-defined]
        print(f"\n| {title}, ms by the clock (of the processors) | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
        for row in rows:
            print(f"| {row[0]} ({row[3]}) | {' | '.join(shown(row[at], name) for name in names)} |")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
