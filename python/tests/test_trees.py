"""Estimators and boosters: what is loaded predicts the same, and trees that were there before are not stored again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import fhrd


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Any]:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        yield repo


@pytest.fixture
def data() -> tuple[Any, Any]:
    random = numpy.random.default_rng(1)
    x = random.normal(size=(400, 8))
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)


def common(first: dict[str, Any], second: dict[str, Any]) -> int:
    """Number of arrays with the same name and content."""
    return sum(name in second and numpy.array_equal(array, second[name]) for name, array in first.items())


@pytest.mark.parametrize("method", ["skops", "pickle"])
@pytest.mark.parametrize(
    "kind", ["GradientBoostingClassifier", "RandomForestClassifier", "SGDClassifier", "Pipeline", "KMeans", "MLPClassifier"]
)
def test_estimators(repo: Any, data: tuple[Any, Any], method: Any, kind: str) -> None:
    pytest.importorskip("sklearn")
    if method == "skops":
        pytest.importorskip("skops")
    import sklearn.cluster
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neural_network
    import sklearn.pipeline
    import sklearn.preprocessing

    import fhrd.sklearn

    makers: dict[str, Any] = {
        "GradientBoostingClassifier": lambda: sklearn.ensemble.GradientBoostingClassifier(n_estimators=7),
        "RandomForestClassifier": lambda: sklearn.ensemble.RandomForestClassifier(n_estimators=7),
        "SGDClassifier": sklearn.linear_model.SGDClassifier,
        "Pipeline": lambda: sklearn.pipeline.make_pipeline(
            sklearn.preprocessing.StandardScaler(), sklearn.linear_model.LogisticRegression()
        ),
        "KMeans": lambda: sklearn.cluster.KMeans(3, n_init=1),
        "MLPClassifier": lambda: sklearn.neural_network.MLPClassifier((8,), max_iter=5),
    }
    x, y = data
    model = makers[kind]().fit(x, y)
    fhrd.sklearn.save(repo, model, run=kind, step=1, method=method)
    loaded = fhrd.sklearn.load(repo, run=kind, trusted=method == "pickle")
    assert numpy.array_equal(loaded.predict(x), model.predict(x))
    # What is loaded is a full estimator: it can be fitted and saved again.
    loaded.fit(x, y)
    fhrd.sklearn.save(repo, loaded, run=kind, step=2, method=method)


def test_a_pickle_is_not_loaded_without_trust(repo: Any, data: tuple[Any, Any], tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    import sklearn.linear_model

    import fhrd.sklearn

    class Mark:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "executed"), "w"))

    model = sklearn.linear_model.LinearRegression().fit(*data)
    model.extra = Mark()
    fhrd.sklearn.save(repo, model, run="r", step=1, method="pickle")
    for trusted in [False, ["sklearn.linear_model.LinearRegression"]]:
        with pytest.raises(ValueError, match="trusted=True"):
            fhrd.sklearn.load(repo, run="r", trusted=trusted)
    assert not (tmp_path / "executed").exists()
    fhrd.sklearn.load(repo, run="r", trusted=True)
    assert (tmp_path / "executed").exists()


def test_skops_builds_only_types_that_are_trusted(repo: Any) -> None:
    pytest.importorskip("skops")
    from sklearn.preprocessing import FunctionTransformer

    import fhrd.sklearn

    fhrd.sklearn.save(repo, FunctionTransformer(numpy.savetxt), run="r", step=1, method="skops")
    with pytest.raises(fhrd.NotTrustedError, match="savetxt") as raised:
        fhrd.sklearn.load(repo, run="r")
    assert isinstance(raised.value, ValueError)
    with pytest.raises(fhrd.NotTrustedError, match="savetxt"):
        fhrd.sklearn.load(repo, run="r", trusted=["numpy.load"])
    named = str(raised.value).partition("scikit-learn: ")[2].partition(". If")[0].split(", ")
    assert fhrd.sklearn.load(repo, run="r", trusted=named).func is numpy.savetxt


def test_a_name_of_a_type_is_no_list_of_names(repo: Any, data: tuple[Any, Any]) -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    import fhrd.sklearn

    fhrd.sklearn.save(repo, sklearn.LogisticRegression().fit(*data), run="r", step=1)
    with pytest.raises(TypeError, match="trusted: expected a list"):
        fhrd.sklearn.load(repo, run="r", trusted="my.Type")
    with pytest.raises(TypeError, match="expected a repository"):
        fhrd.sklearn.load("checkpoints", run="r")  # type: ignore[arg-type]
    repo.save({"a": numpy.ones(2)}, run="other", step=1)
    with pytest.raises(LookupError, match="no estimator"):
        fhrd.sklearn.load(repo, run="other")
    for described in (b"[", b"{}", b'{"schema":1,"other":{}}'):
        saved = repo.save({}, files={"estimator.safetensors.skops.json": described})
        pytest.importorskip("skops")
        with pytest.raises(fhrd.DamagedError, match="does not parse"):
            fhrd.sklearn.load(repo, snapshot=saved.id)


def test_only_classes_of_scikit_learn_itself_are_its_own() -> None:
    pytest.importorskip("sklearn")
    from fhrd.sklearn_trust import is_owned

    assert is_owned("sklearn.tree._tree.Tree") and is_owned("sklearn._loss.loss.HalfBinomialLoss")
    assert is_owned("sklearn.tree._classes.DecisionTreeRegressor")
    for name in (
        "sklearn.utils.check_array", "sklearn.datasets._base.load_iris", "sklearn.tree._classes.BaseEstimator",
        "sklearn.externals.joblib.Parallel", "sklearn.neighbors._kd_tree.KDTree", "sklearn.tree._classes.np",
        "sklearn.conftest.x", "sklearn_evil.tree.Tree", "os.system", "builtins.eval", "sklearn", "", "sklearn.none.A",
    ):  # fmt: skip
        assert not is_owned(name), name


@pytest.mark.parametrize("kind", ["forest", "boosting", "histograms"])
def test_trees_whose_nodes_lead_out_of_them_are_not_loaded(repo: Any, data: tuple[Any, Any], kind: str) -> None:
    pytest.importorskip("skops")
    import sklearn.ensemble

    import fhrd.sklearn
    from fhrd.sklearn_trust import check_trees

    makers: dict[str, Any] = {
        "forest": lambda: sklearn.ensemble.RandomForestClassifier(n_estimators=3),
        "boosting": lambda: sklearn.ensemble.GradientBoostingClassifier(n_estimators=3),
        "histograms": lambda: sklearn.ensemble.HistGradientBoostingClassifier(max_iter=3),
    }

    def nodes(model: Any) -> Any:
        if kind == "histograms":
            return model._predictors[1][0].nodes
        tree = (model.estimators_[1] if kind == "forest" else model.estimators_[1][0]).tree_
        return tree.__getstate__()["nodes"]

    left = "left" if kind == "histograms" else "left_child"
    feature = "feature_idx" if kind == "histograms" else "feature"
    for field, value in ((left, 10_000), (left, 0), (feature, 8), (feature, 1 << 20)):
        model = makers[kind]().fit(*data)
        check_trees(model)
        nodes(model)[field][0] = value
        fhrd.sklearn.save(repo, model, run="r", step=1, method="skops", if_exists="replace")
        with pytest.raises(fhrd.DamagedError, match="a node of a tree"):
            fhrd.sklearn.load(repo, run="r")
    # An ensemble that says it has fewer features than its trees ask for.
    model = makers[kind]().fit(*data)
    model.n_features_in_ = 1
    with pytest.raises(fhrd.DamagedError, match="a feature"):
        check_trees(model)


def test_estimators_are_saved_in_the_background_with_progress(repo: Any, data: tuple[Any, Any]) -> None:
    pytest.importorskip("sklearn")
    import sklearn.linear_model

    import fhrd.sklearn

    model, seen = sklearn.linear_model.LogisticRegression().fit(*data), []
    fhrd.sklearn.save(repo, model, run="r", step=1, progress=seen.append)
    assert fhrd.sklearn.save_async(repo, model, run="r", step=2).result().id and seen
    assert fhrd.sklearn.save(repo.run("r", git=False), model, step=3).id
    with pytest.raises(fhrd.StepExistsError):
        fhrd.sklearn.save(repo, model, run="r", step=3)
    assert numpy.array_equal(fhrd.sklearn.load(repo, run="r", trusted=True).coef_, model.coef_)
    check_saves(repo, fhrd.sklearn, model)


def check_saves(repo: Any, adapter: Any, model: Any) -> None:
    """What every adapter's `save` takes, and what it says about the order of arguments."""
    seen: list[dict[str, int]] = []
    first = adapter.save(repo, model, run="edge", step=1, progress=seen.append, tags="abc", metrics={"l": 1.0})
    assert seen and repo.checkpoint(run="edge").tags == ["abc"] and repo.checkpoint(run="edge").metrics == {"l": 1.0}
    seen.clear()
    handle = adapter.save_async(repo, model, run="edge", step=2, progress=seen.append, keep=fhrd.Keep(last=1))
    assert handle.result(60).deleted == (first.id,) and seen and repo.all_steps("edge") == [2]
    with pytest.raises(fhrd.StepExistsError):
        adapter.save(repo, model, run="edge", step=2)
    assert adapter.save(repo, model, run="edge", step=2, if_exists="keep").existed
    assert adapter.save(repo.run("edge", git=False), model, step=3).id and repo.all_steps("edge") == [2, 3]
    for save in (adapter.save, adapter.save_async):
        with pytest.raises(TypeError, match=r"the repository comes first: fhrd\.\w+\.\w+\(repo, value\)"):
            save(model, repo)


@pytest.mark.parametrize("method", ["skops", "pickle"])
def test_a_grown_ensemble_shares_its_trees(data: tuple[Any, Any], method: str) -> None:
    pytest.importorskip("sklearn")
    from sklearn.ensemble import GradientBoostingClassifier

    import fhrd.sklearn

    if method == "skops":
        pytest.importorskip("skops")
    encode = fhrd.sklearn._with_skops if method == "skops" else fhrd.sklearn._with_pickle
    model = GradientBoostingClassifier(n_estimators=20, warm_start=True, random_state=1).fit(*data)
    before, rest = encode(model)
    # Two encodings of one estimator are the same bytes.
    again, rest_again = encode(model)
    assert list(before) == list(again) and common(before, again) == len(before) and rest == rest_again
    model.set_params(n_estimators=30).fit(*data)
    after, _ = encode(model)
    trees = [name for name in before if name.startswith("tree.")]
    assert len({name[:11] for name in trees}) == 20 and len({name[:11] for name in after if name[:5] == "tree."}) == 30
    assert sum(numpy.array_equal(before[name], after[name]) for name in trees) >= len(trees) - 4


def test_arrays_keep_order_type_and_identity() -> None:
    pytest.importorskip("sklearn")
    import io

    import fhrd.sklearn

    shared = numpy.arange(6.0)
    dates = numpy.array(["2026-01-01", "NaT"], "M8[D]")
    records = numpy.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", "<f8")])
    nested = numpy.ones(4, [("a", "<i2", (3,)), ("b", [("c", "<f4"), ("d", "<i8", (2, 2))])])
    value = {
        "fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        "one": shared, "two": shared, "dates": dates, "records": records, "nested": nested,
        "big": numpy.arange(3, dtype=">f4"),
        "empty": numpy.empty((0, 3)), "scalar": numpy.array(3.5), "text": numpy.array(["a", "bcd"]),
        "frozen": numpy.frombuffer(b"12345678"), "objects": numpy.array([{}, None], object),
        "strided": numpy.arange(20).reshape(4, 5)[:, ::2],
    }  # fmt: skip
    arrays, rest = fhrd.sklearn._with_pickle(value)
    loaded = fhrd.sklearn._Unpickler(io.BytesIO(rest), arrays).load()
    for name, expected in value.items():
        found = loaded[name]
        assert found.dtype == expected.dtype and found.shape == expected.shape, name
        assert found.tobytes() == expected.tobytes() or name == "objects", name
    assert loaded["one"] is loaded["two"] and not loaded["frozen"].flags.writeable and loaded["one"].flags.writeable
    assert loaded["fortran"].flags.f_contiguous
    assert pickle.dumps(loaded["records"]) == pickle.dumps(records)


@pytest.mark.parametrize("kind", ["gbtree", "dart", "gblinear"])
def test_xgboost(repo: Any, data: tuple[Any, Any], kind: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    import fhrd.xgboost

    matrix = xgboost.DMatrix(data[0], data[1], feature_names=[f"f{one}" for one in range(8)])
    options = {"booster": kind, "objective": "binary:logistic", "nthread": 1}
    booster = xgboost.train(options, matrix, 10)
    saved = fhrd.xgboost.save(repo, booster, run=kind, step=10)
    assert saved.id
    loaded = fhrd.xgboost.load(repo, run=kind)
    assert numpy.array_equal(loaded.predict(matrix), booster.predict(matrix))
    assert bytes(loaded.save_raw("json")) == bytes(booster.save_raw("json"))
    more = xgboost.train(options, matrix, 5, xgb_model=loaded)
    same = xgboost.train(options, matrix, 5, xgb_model=booster)
    assert bytes(more.save_raw("ubj")) == bytes(same.save_raw("ubj"))
    check_saves(repo, fhrd.xgboost, booster)
    if kind == "gbtree":
        before, after = fhrd.xgboost.encode(booster), fhrd.xgboost.encode(more)
        assert len(before) == 11 and len(after) == 16 and common(before, after) == 10


def test_xgboost_estimators_and_callback(repo: Any, data: tuple[Any, Any]) -> None:
    xgboost = pytest.importorskip("xgboost")
    import fhrd.xgboost

    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(*data)
    fhrd.xgboost.save(repo, model, run="estimator", step=5)
    loaded = fhrd.xgboost.load(repo, run="estimator", into=xgboost.XGBClassifier())
    assert numpy.array_equal(loaded.predict(data[0]), model.predict(data[0]))
    matrix = xgboost.DMatrix(*data[:1], label=data[1])
    callback = fhrd.xgboost.FhrdTrainingCheckpoint(repo, "train", interval=4)
    options = {"objective": "binary:logistic", "nthread": 1}
    booster = xgboost.train(options, matrix, 10, evals=[(matrix, "train")], callbacks=[callback], verbose_eval=False)
    assert repo.checkpoint(run="train", step=4).step == 4 and repo.checkpoint(run="train").step == 8
    assert list(repo.checkpoint(run="train").metrics) == ["train-logloss"]
    resumed = xgboost.train(options, matrix, 2, xgb_model=fhrd.xgboost.load(repo, run="train"))
    assert numpy.array_equal(resumed.predict(matrix), booster.predict(matrix))


def test_lightgbm(repo: Any, data: tuple[Any, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    import fhrd.lightgbm

    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "deterministic": True, "seed": 1}
    train = lightgbm.Dataset(*data, free_raw_data=False)
    callback = fhrd.lightgbm.checkpoint(repo, "train", interval=4)
    with pytest.raises(ValueError, match="interval"):
        fhrd.lightgbm.checkpoint(repo, "train", interval=0)
    booster = lightgbm.train(options, train, 10, valid_sets=[train], valid_names=["data"], callbacks=[callback])
    assert repo.checkpoint(run="train").step == 8
    assert list(repo.checkpoint(run="train").metrics) == ["data-binary_logloss"]
    fhrd.lightgbm.save(repo, booster, run="r", step=10)
    loaded = fhrd.lightgbm.load(repo, run="r")
    assert numpy.array_equal(loaded.predict(data[0]), booster.predict(data[0]))
    assert fhrd.lightgbm.decode(fhrd.lightgbm.encode(loaded)) == loaded.model_to_string(num_iteration=-1)
    early, late = fhrd.lightgbm.encode(fhrd.lightgbm.load(repo, run="train", step=4)), fhrd.lightgbm.encode(booster)
    assert sum(numpy.array_equal(early[f"tree.{one:06}"], late[f"tree.{one:06}"]) for one in range(4)) == 4
    check_saves(repo, fhrd.lightgbm, booster)
    # Predictions use the trees up to the best round.
    labels = numpy.random.default_rng(1).integers(0, 2, len(data[1]))
    other = lightgbm.Dataset(data[0], labels, reference=train)
    stopping = lightgbm.early_stopping(3, verbose=False)
    stopped = lightgbm.train(options, train, 20, valid_sets=[other], callbacks=[stopping], keep_training_booster=True)
    assert 0 < stopped.best_iteration < stopped.num_trees()
    fhrd.lightgbm.save(repo, stopped, run="stopped", step=1)
    found = fhrd.lightgbm.load(repo, run="stopped")
    assert found.best_iteration == stopped.best_iteration and found.num_trees() == stopped.num_trees()
    assert numpy.array_equal(found.predict(data[0]), stopped.predict(data[0]))
    estimator = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(*data)
    fhrd.lightgbm.save(repo, estimator, run="estimator", step=3)
    assert fhrd.lightgbm.load(repo, run="estimator").num_trees() == 3
