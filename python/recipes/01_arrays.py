"""Save NumPy arrays as steps of a run, and load them again."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import fhrd


def main(directory: Path) -> None:
    with fhrd.open(directory / "repo", create=True) as repo:
        weights = np.zeros((256, 256), np.float32)
        for step in range(3):
            weights[step] = step + 1
            saved = repo.save(
                {"layer.weight": weights, "layer.bias": np.arange(256.0)},
                run="first",
                step=step,
                metrics={"loss": 1.0 / (step + 1)},
            )
            print(f"step {step}: {saved.total_bytes:,} bytes, the repository grew by {saved.stored_bytes:,}")
        loaded = repo.load(run="first")
        assert set(loaded) == {"layer.weight", "layer.bias"}
        assert np.array_equal(loaded["layer.weight"], weights)
        assert repo.load(run="first", step=0)["layer.weight"].sum() == 256
        for row in repo.steps("first"):
            print(row)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
