"""The server of MLflow, with a repository as its store of artifacts: written to by clients, and by the server for them."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import fhrd

if importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("mlflow.server") is None:
    pytest.skip("NOT CHECKED: mlflow with its server is not installed", allow_module_level=True)
for module in ("flask", "sqlalchemy", "sklearn"):
    pytest.importorskip(module, reason=f"NOT CHECKED: the server of MLflow needs {module}, not installed here")

import mlflow
from mlflow.tracking import MlflowClient

#: Seconds that the server may take to start.
START = 120


@contextmanager
def served(directory: pathlib.Path, *options: str) -> Iterator[str]:
    """A server of MLflow with the artifacts that `options` say. Its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{directory}/mlflow.db", *options,
    ]  # fmt: skip
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, start_new_session=True)
    try:
        until = time.monotonic() + START
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise AssertionError((directory / "log").read_text()) from None
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        # The group of the server's own workers.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(START)


@pytest.mark.parametrize("writer", ["client", "server"])
def test_runs_models_and_artifacts(writer: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import sklearn.linear_model

    repo = tmp_path / "repo"
    fhrd.open(repo, create=True).close()
    root = f"fhrd://{repo}!/mlflow"
    by_server = ["--serve-artifacts", "--artifacts-destination", root]
    by_client = ["--no-serve-artifacts", "--default-artifact-root", root]
    monkeypatch.chdir(tmp_path)
    with served(tmp_path, *(by_server if writer == "server" else by_client)) as url:
        mlflow.set_tracking_uri(url)
        client = MlflowClient(url)
        mlflow.set_experiment("rows")
        x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
        model: Any = sklearn.linear_model.LogisticRegression().fit(x, y)
        with mlflow.start_run() as run:
            mlflow.log_params({"rows": 20})
            mlflow.log_metric("score", float(model.score(x, y)))
            mlflow.log_text("warm start", "notes/readme.txt")
            # The third version has named it anew.
            named = "name" if "name" in inspect.signature(mlflow.sklearn.log_model).parameters else "artifact_path"
            mlflow.sklearn.log_model(
                model, **{named: "model"}, registered_model_name="logistic", pip_requirements=[]
            )
        found = client.get_run(run.info.run_id)
        assert found.data.params == {"rows": "20"} and found.data.metrics["score"] > 0
        assert [one.path for one in client.list_artifacts(run.info.run_id, "notes")] == ["notes/readme.txt"]
        assert mlflow.artifacts.load_text(f"{found.info.artifact_uri}/notes/readme.txt") == "warm start"
        client.set_registered_model_alias("logistic", "production", "1")
        loaded = mlflow.sklearn.load_model("models:/logistic@production")
        assert np.array_equal(loaded.predict(x), model.predict(x))
    with fhrd.open(repo) as opened:
        assert opened.check(read_data=True).defect_count == 0
        stored = [file.path for snapshot in opened.snapshots() for file in opened.checkpoint(snapshot=snapshot.id).files()]
    assert any(path.endswith("readme.txt") for path in stored) and any("MLmodel" in path for path in stored), stored
