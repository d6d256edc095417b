"""Save XGBoost and LightGBM boosters while they grow, and go on with a saved one."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import lightgbm
import numpy as np
import xgboost

import fhrd
import fhrd.lightgbm
import fhrd.xgboost


def main(directory: Path) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(500, 10))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with fhrd.open(directory / "repo", create=True) as repo:
        matrix = xgboost.DMatrix(x, y)
        saving = fhrd.xgboost.FhrdTrainingCheckpoint(repo, "xgb", interval=10)
        whole = xgboost.train({"nthread": 1}, matrix, 40, callbacks=[saving])
        resumed = xgboost.train({"nthread": 1}, matrix, 20, xgb_model=fhrd.xgboost.load(repo, run="xgb", step=20))
        assert np.array_equal(whole.predict(matrix), resumed.predict(matrix))

        data = lightgbm.Dataset(x, y)
        # Its types have gaps.
        booster = cast(Any, lightgbm).train(
            {"verbose": -1, "num_threads": 1}, data, 40, callbacks=[fhrd.lightgbm.checkpoint(repo, "lgb")]
        )
        assert np.array_equal(fhrd.lightgbm.load(repo, run="lgb").predict(x), booster.predict(x))
        for run in repo.runs():
            print(run, [(row["step"], row["stored_bytes"]) for row in repo.steps(run)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
