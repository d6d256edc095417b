"""Keep the best three steps and the last one; give back the space of the others."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import fhrd


def main(directory: Path) -> None:
    random = np.random.default_rng(1)
    keep = fhrd.Keep(last=1, best={"val_loss": ("min", 3)})
    with fhrd.open(directory / "repo", create=True) as repo:
        for step in range(12):
            # A step goes only when the one that replaces it is durable.
            repo.save(
                {"w": random.normal(size=(200, 500)).astype(np.float32)},
                run="tune",
                step=step,
                metrics={"val_loss": abs(step - 5.2)},
                keep=keep,
            )
        steps = [row["step"] for row in repo.steps("tune")]
        print("steps:", steps)
        assert steps == [4, 5, 6, 11]
        best = repo.best("tune", "val_loss", "min")
        assert best.step == 5 and repo.load(run="tune", step="best:val_loss:min")["w"].shape == (200, 500)

        def size() -> int:
            return sum(file.stat().st_size for file in (directory / "repo").rglob("*") if file.is_file())

        before = size()
        # Nobody else writes to this repository: what is young may go, too.
        repo.prune(grace_seconds=0)
        print(f"before pruning {before:,} bytes, after it {size():,}")
        assert size() < before


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
