"""Load one tensor of a large checkpoint without the rest, and see which tensors two steps differ in."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import fhrd


def main(directory: Path) -> None:
    random = np.random.default_rng(1)
    arrays = {f"layer.{number}": random.normal(size=(500, 500)).astype(np.float32) for number in range(20)}
    with fhrd.open(directory / "repo", create=True) as repo:
        repo.save(arrays, run="r", step=1)
        arrays["layer.7"] = arrays["layer.7"] + np.float32(1e-4)
        repo.save(arrays, run="r", step=2)
        # Only the header of the file has been read; one tensor is read now.
        loaded = repo.load(run="r", step=2)
        assert len(loaded) == 20 and np.array_equal(loaded["layer.7"], arrays["layer.7"])
        changes = repo.diff(repo.checkpoint(run="r", step=1), repo.checkpoint(run="r", step=2))
        for change in changes:
            print(f"{change.name}: {change.kind}, {change.bit_distance:.2f} bits of each value differ")
        assert [change.name for change in changes] == ["layer.7"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
