"""Let the training go on while a step is written. Errors come back by the handle, never into the training loop."""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fhrd


def main(directory: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(1000, 1000)).astype(np.float32)
    handles: list[fhrd.SaveHandle] = []
    with fhrd.open(directory / "repo", create=True) as repo:
        for step in range(5):
            start = time.perf_counter()
            handles.append(repo.save_async({"w": weights}, run="r", step=step))
            print(f"step {step}: back in the loop after {1000 * (time.perf_counter() - start):.1f} ms")
            # The saved values are those of the call, whatever happens to the array now.
            weights += 1
        # Leaving the block waits for all saves and raises what nobody has looked at.
    assert all(handle.done() for handle in handles)
    print("snapshots:", [handle.result().id[:8] for handle in handles])
    with fhrd.open(directory / "repo") as repo:
        first, last = repo.load(run="r", step=0)["w"], repo.load(run="r", step=4)["w"]
        assert abs(float((last - first).mean()) - 4) < 1e-3


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
