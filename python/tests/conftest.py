"""What all tests share."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

import fhrd


@pytest.fixture(autouse=True)
def _homes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, so that no test depends on the caches of another."""
    home = tmp_path_factory.mktemp("home")
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.delenv("FHRD_PASSWORD", raising=False)


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some credentials, for a server that does not look at them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")


@pytest.fixture
def repo(tmp_path: pathlib.Path) -> Iterator[fhrd.Repository]:
    """An empty repository."""
    with fhrd.open(tmp_path / "repo", create=True) as opened:
        yield opened


@pytest.fixture
def program() -> str:
    """The command line program. Without it the tests that need it fail, unless FHRD_TEST_PROGRAM is `none`."""
    path = os.environ.get("FHRD_TEST_PROGRAM")
    if path == "none":
        pytest.skip("FHRD_TEST_PROGRAM is none: the command line is not tested")
    if path is None:
        root = pathlib.Path(__file__).resolve().parents[2]
        found = [root / "target" / kind / "fhrd" for kind in ("release", "debug")]
        path = next((str(one) for one in found if one.exists()), None)
    assert path is not None, "set FHRD_TEST_PROGRAM to the program fhrd"
    return path
