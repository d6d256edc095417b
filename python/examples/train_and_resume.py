"""Train a small model, save every step, kill the training, resume it bit for bit, keep the best three, show the space.

    python train_and_resume.py [DIRECTORY]

1. A process trains and saves each of 50 steps: weights, state of the optimizer, random numbers. It is killed with
   `kill -9` while it works.
2. A second process goes on from the latest step and ends. Its weights are compared with those of a training that was
   never interrupted.
3. Only the best three steps and the last one stay, and the space of the others is given back.

It prints what 50 checkpoints take as plain safetensors files, as files compressed with zstd, and in the repository before
and after. It needs torch, safetensors and zstandard, and takes about a minute on two cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import zstandard
from safetensors.torch import save as safetensors_bytes

import fhrd
import fhrd.torch

RUN = "tune"
STEPS = 50
KILLED_AFTER = 20


def parts() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor]:
    """Model, optimizer and data. The first layers are frozen, as in a fine-tune."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(2000, 128),
        torch.nn.Linear(128, 256),
        torch.nn.GELU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(256, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 10),
    )
    for layer in (model[0], model[1]):
        layer.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    data = torch.randint(0, 2000, (512, 16), generator=torch.Generator().manual_seed(1))
    return model, torch.optim.AdamW(trained, lr=1e-4), data


def train(repo: fhrd.Repository | None) -> dict[str, torch.Tensor]:
    """Trains to the last step, from the latest step in the repository on. Returns the weights."""
    model, optimizer, data = parts()
    first = 0
    if repo is not None and RUN in repo.runs():
        state = fhrd.torch.load(repo, run=RUN)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        fhrd.torch.set_random_state(state["random"])
        first = state["step"]
        print(f"resumed from step {first}", flush=True)
    for step in range(first + 1, STEPS + 1):
        rows = data[torch.randint(0, len(data), (32,))]
        loss = torch.nn.functional.cross_entropy(model(rows).mean(1), rows[:, 0] % 10)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if repo is not None:
            state = checkpoint(model, optimizer, step)
            fhrd.torch.save(repo, state, run=RUN, step=step, metrics={"loss": loss.item()})
            # What is printed is durable.
            print(f"saved step {step}", flush=True)
    return dict(model.state_dict())


def checkpoint(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": fhrd.torch.random_state(),
        "step": step,
    }


def run_and_kill(repo: Path) -> None:
    """Runs the training in a process of its own and kills it after some steps."""
    command = [sys.executable, "-W", "ignore", __file__, str(repo.parent), "--train"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        for line in training.stdout:
            if line.startswith(f"saved step {KILLED_AFTER}"):
                os.kill(training.pid, signal.SIGKILL)
    print(f"killed the training with signal {-training.returncode} after step {KILLED_AFTER}")


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def other_sizes(repo: fhrd.Repository) -> tuple[int, int]:
    """Bytes of all steps as plain safetensors files, and as such files compressed with zstd."""
    plain = packed = 0
    for row in repo.steps(RUN):
        tensors = dict(repo.load(run=RUN, step=row["step"], framework="torch"))
        file = safetensors_bytes(tensors)
        plain += len(file)
        packed += len(zstandard.ZstdCompressor(level=3).compress(file))
    return plain, packed


def main(directory: Path) -> None:
    location = directory / "repo"
    fhrd.open(location, create=True).close()
    run_and_kill(location)
    with fhrd.open(location) as repo:
        resumed = train(repo)
        whole = train(None)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        print("the resumed training has the weights of an uninterrupted one, bit for bit\n")

        plain, packed = other_sizes(repo)
        before = size(location)
        keep = fhrd.Keep(last=1, best={"loss": ("min", 3)})
        repo.forget(keep=keep, run=RUN)
        # Nobody else writes to this repository: what is young may go, too.
        repo.prune(grace_seconds=0)
        kept = [row["step"] for row in repo.steps(RUN)]
        assert repo.check(read_data=True).defect_count == 0
        for label, count in [
            ("50 plain safetensors files", plain),
            ("the same, each compressed with zstd -3", packed),
            ("repository with all 50 steps", before),
            ("repository with the best 3 and the last, pruned", size(location)),
        ]:
            print(f"{label:<50}{count:>15,} bytes")
        print(f"steps that stay: {kept}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(sys.argv[1] if sys.argv[1:] else scratch)
        if "--train" in sys.argv:
            with fhrd.open(place / "repo") as opened:
                train(opened)
        else:
            place.mkdir(parents=True, exist_ok=True)
            main(place)
