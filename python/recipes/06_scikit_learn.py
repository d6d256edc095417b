"""Save a growing scikit-learn ensemble: the trees that it had before are not stored again."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier

import fhrd
import fhrd.sklearn


def main(directory: Path) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(500, 10))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    # The methods of scikit-learn have no types.
    model = cast(Any, GradientBoostingClassifier(warm_start=True, random_state=1))
    with fhrd.open(directory / "repo", create=True) as repo:
        for trees in (50, 100, 150):
            model.set_params(n_estimators=trees)
            model.fit(x, y)
            saved = fhrd.sklearn.save(repo, model, run="boost", step=trees, metrics={"score": model.score(x, y)})
            print(f"{trees} trees: {saved.total_bytes:,} bytes, the repository grew by {saved.stored_bytes:,}")
        # Stored with skops, so that no code of the repository runs.
        loaded = fhrd.sklearn.load(repo, run="boost", step=100)
        assert loaded.n_estimators == 100
        assert np.array_equal(fhrd.sklearn.load(repo, run="boost").predict(x), model.predict(x))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
