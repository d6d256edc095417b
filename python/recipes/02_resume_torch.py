"""Save all that a training needs, and go on from the latest step as if nothing had happened."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import torch

import fhrd
import fhrd.torch


def train(repo: fhrd.Repository, steps: int) -> dict[str, Any]:
    """Trains up to `steps`, from the latest saved step on."""
    cast(Any, torch).manual_seed(1)  # It has no types.
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    optimizer = cast(Any, torch.optim.AdamW(model.parameters(), lr=0.01))
    first = 0
    if "tune" in repo.runs():
        state = fhrd.torch.load(repo, run="tune")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        fhrd.torch.set_random_state(state["random"])
        first = state["step"]
    for step in range(first + 1, steps + 1):
        batch = torch.randn(8, 16)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": fhrd.torch.random_state(),
            "step": step,
        }
        fhrd.torch.save(repo, state, run="tune", step=step, metrics={"loss": loss.item()})
    return dict(model.state_dict())


def main(directory: Path) -> None:
    with fhrd.open(directory / "whole", create=True) as repo:
        whole = train(repo, 6)
    with fhrd.open(directory / "resumed", create=True) as repo:
        train(repo, 3)
    # Another process, perhaps on another machine.
    with fhrd.open(directory / "resumed") as repo:
        resumed = train(repo, 6)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    print("the resumed training has the same weights, bit for bit")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
