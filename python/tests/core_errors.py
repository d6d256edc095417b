"""Errors: each is fhrd's own and the one of Python that callers expect, and impossible arguments raise at the call."""

from __future__ import annotations

import builtins
import errno
import pathlib
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fhrd

CLASSES: list[tuple[str, type[BaseException]]] = [
    ("ArgumentError", ValueError),
    ("ArgumentTypeError", TypeError),
    ("ArgumentTypeError", ValueError),
    ("ClosedError", ValueError),
    ("DamagedError", OSError),
    ("InterruptedError", builtins.InterruptedError),
    ("LockedError", PermissionError),
    ("NoArrayError", KeyError),
    ("NotDoneError", TimeoutError),
    ("NotFoundError", LookupError),
    ("NotTrustedError", ValueError),
    ("ReadOnlyError", PermissionError),
    ("RepositoryNotFoundError", FileNotFoundError),
    ("StepExistsError", FileExistsError),
    ("StorageError", OSError),
    ("StorageFullError", OSError),
    ("UnreachableError", ConnectionError),
    ("UnsupportedError", NotImplementedError),
]


@pytest.mark.parametrize(("name", "builtin"), CLASSES)
def test_each_error_is_also_one_of_python(name: str, builtin: type[BaseException]) -> None:
    kind = getattr(fhrd, name)
    assert issubclass(kind, fhrd.FhrdError) and issubclass(kind, builtin) and name in fhrd.__all__
    assert kind.__doc__ and str(kind("what is wrong")) == "what is wrong"


def test_every_error_of_the_package_has_a_test_and_a_line_in_the_list() -> None:
    found = {name for name in fhrd.__all__ if name.endswith("Error")}
    assert found == {name for name, _ in CLASSES} | {"FhrdError"}


def test_errors_of_the_engine_are_caught_as_those_of_python(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    repo.save({"a": np.zeros(3)}, run="a", step=1)
    with pytest.raises(FileNotFoundError):
        fhrd.open(tmp_path / "none")
    with pytest.raises(LookupError, match="no snapshot matches"):
        repo.load(run="b")
    with pytest.raises(LookupError):
        repo.checkpoint(run="a").read_file("none")
    with pytest.raises(ValueError, match="no option"):
        fhrd.open(tmp_path / "none", options={"x": "y"})
    fhrd.open(tmp_path / "sealed", create=True, password="x").close()
    with pytest.raises(PermissionError):
        fhrd.open(tmp_path / "sealed", password="y")
    with pytest.raises(OSError, match="missing") as missing:
        repo.save({}, files=[tmp_path / "missing"])
    assert isinstance(missing.value, fhrd.StorageError)
    assert fhrd.StorageFullError("full").errno == errno.ENOSPC
    with pytest.raises(TimeoutError) as late:
        repo.save_async({"a": np.random.default_rng(0).normal(size=5_000_000)}).result(timeout=0)
    assert isinstance(late.value, fhrd.NotDoneError)
    repo.close()
    with pytest.raises(ValueError, match="closed"):
        repo.runs()


def deep(levels: int) -> dict[str, Any]:
    """A dictionary in a dictionary, and so on."""
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"a": made}
    return made


ARRAYS = {"a": np.zeros(3)}
TYPES: list[tuple[str, Callable[[fhrd.Repository], Any]]] = [
    ("step float", lambda repo: repo.save(ARRAYS, run="r", step=4.0)),  # type: ignore[arg-type]
    ("step bool", lambda repo: repo.save(ARRAYS, run="r", step=True)),
    ("step text", lambda repo: repo.save(ARRAYS, run="r", step="4")),  # type: ignore[arg-type]
    ("step bool of a load", lambda repo: repo.load(run="r", step=True)),
    ("step float of a load", lambda repo: repo.load(run="r", step=1.0)),  # type: ignore[arg-type]
    ("run", lambda repo: repo.save(ARRAYS, run=7, step=1)),  # type: ignore[arg-type]
    ("metric text", lambda repo: repo.save(ARRAYS, run="r", step=1, metrics={"l": "x"})),  # type: ignore[dict-item]
    ("metric number as text", lambda repo: repo.save(ARRAYS, run="r", step=1, metrics={"l": "1"})),  # type: ignore[dict-item]
    ("metric list", lambda repo: repo.save(ARRAYS, run="r", step=1, metrics=[1.0])),  # type: ignore[arg-type]
    ("tags", lambda repo: repo.save(ARRAYS, tags=[1])),  # type: ignore[list-item]
    ("tags number", lambda repo: repo.save(ARRAYS, tags=1)),  # type: ignore[arg-type]
    ("nested", lambda repo: repo.save({"a": {"b": np.zeros(3)}})),
    ("no mapping", lambda repo: repo.save(np.zeros(3))),  # type: ignore[arg-type]
    ("async", lambda repo: repo.save_async(ARRAYS, run="r", step=4.0)),  # type: ignore[arg-type]
    ("async no mapping", lambda repo: repo.save_async(object())),  # type: ignore[arg-type]
    ("files text", lambda repo: repo.save(ARRAYS, files="config.json")),
    ("files number", lambda repo: repo.save(ARRAYS, files={"a": 1})),  # type: ignore[dict-item]
    ("paths text", lambda repo: repo.backup("/data")),
    ("include text", lambda repo: repo.restore("latest", "/nowhere", include="a")),
    ("ids text", lambda repo: repo.forget("abc")),
    ("keep last", lambda repo: fhrd.Keep(last=1.5)),  # type: ignore[arg-type]
    ("keep last bool", lambda repo: fhrd.Keep(last=True)),
    ("keep best", lambda repo: fhrd.Keep(best={"l": "min"})),  # type: ignore[dict-item]
    ("keep best count", lambda repo: fhrd.Keep(best={"l": ("min", "3")})),  # type: ignore[dict-item]
    ("timeout", lambda repo: fhrd.open(repo.location, timeout="3")),  # type: ignore[arg-type]
    ("parameters", lambda repo: repo.run("r", parameters={"a": object()})),
    ("name", lambda repo: repo.save(ARRAYS, name=3)),  # type: ignore[arg-type]
    ("name, async", lambda repo: repo.save_async(ARRAYS, name=3)),  # type: ignore[arg-type]
    ("name of a load", lambda repo: repo.load(run="r", name=3)),  # type: ignore[arg-type]
    ("metadata", lambda repo: repo.save(ARRAYS, metadata=None)),  # type: ignore[arg-type]
    ("metadata number", lambda repo: repo.save(ARRAYS, metadata={"epoch": 3})),  # type: ignore[dict-item]
    ("files", lambda repo: repo.save(ARRAYS, files=None)),  # type: ignore[arg-type]
    ("files list of numbers", lambda repo: repo.save(ARRAYS, files=[1])),  # type: ignore[list-item]
    ("files by number", lambda repo: repo.save(ARRAYS, files={1: b"x"})),  # type: ignore[dict-item]
    ("keep", lambda repo: repo.save(ARRAYS, run="r", step=2, keep=3)),  # type: ignore[arg-type]
    ("keep, async", lambda repo: repo.save_async(ARRAYS, run="r", step=2, keep=3)),  # type: ignore[arg-type]
    ("keep of a run", lambda repo: repo.run("r", keep=3)),  # type: ignore[arg-type]
    ("keep of forget", lambda repo: repo.forget(keep=3)),  # type: ignore[arg-type]
    ("progress", lambda repo: repo.save(ARRAYS, run="r", step=2, progress=3)),  # type: ignore[arg-type]
    ("progress, async", lambda repo: repo.save_async(ARRAYS, run="r", step=2, progress=3)),  # type: ignore[arg-type]
    ("progress of check", lambda repo: repo.check(progress=3)),  # type: ignore[arg-type]
    ("target", lambda repo: repo.restore("latest", 3)),  # type: ignore[arg-type]
    ("snapshot of restore", lambda repo: repo.restore(3, "/nowhere")),  # type: ignore[arg-type]
    ("snapshot of lineage", lambda repo: repo.lineage(3)),  # type: ignore[arg-type]
    ("ids", lambda repo: repo.forget(3)),  # type: ignore[arg-type]
    ("ids numbers", lambda repo: repo.forget([3])),  # type: ignore[list-item]
    ("paths", lambda repo: repo.backup([3])),  # type: ignore[list-item]
    ("paths number", lambda repo: repo.backup(3)),  # type: ignore[arg-type]
    ("grace text", lambda repo: repo.prune(grace_seconds="x")),  # type: ignore[arg-type]
    ("timeout of flush", lambda repo: repo.flush(timeout="x")),  # type: ignore[arg-type]
    ("file of a checkpoint", lambda repo: repo.checkpoint().read_file(3)),  # type: ignore[arg-type]
    ("file in bytes", lambda repo: repo.checkpoint().read_file(b"a")),  # type: ignore[arg-type]
    ("rows", lambda repo: repo.load(run="r").rows("b", 1, "x")),  # type: ignore[arg-type]
    ("names text", lambda repo: repo.load(run="r", names="b")),
    ("names number", lambda repo: repo.load(run="r", names=[1])),  # type: ignore[list-item]
    ("dry run of forget", lambda repo: repo.forget(["latest"], dry_run="no")),  # type: ignore[arg-type]
    ("dry run of prune", lambda repo: repo.prune(dry_run="no")),  # type: ignore[arg-type]
    ("read data", lambda repo: repo.check(read_data=None)),  # type: ignore[arg-type]
    ("keep tags", lambda repo: fhrd.Keep(tags=3)),  # type: ignore[arg-type]
    ("parameters too deep", lambda repo: repo.run("r", parameters=deep(100_000))),
    ("a path as repository", lambda repo: fhrd.safe_open(repo.location, run="r")),  # type: ignore[arg-type]
    ("published name", lambda repo: repo.publish("latest", 3)),  # type: ignore[arg-type]
    ("path", lambda repo: fhrd.open(3)),  # type: ignore[arg-type]
    ("path in bytes", lambda repo: fhrd.open(b"/nowhere")),  # type: ignore[arg-type]
    ("password", lambda repo: fhrd.open(repo.location, password=3)),  # type: ignore[arg-type]
    ("options", lambda repo: fhrd.open(repo.location, options=["x"])),  # type: ignore[arg-type]
    ("options number", lambda repo: fhrd.open(repo.location, options={"config": 3})),  # type: ignore[dict-item]
    ("create", lambda repo: fhrd.open(repo.location, create="yes")),  # type: ignore[arg-type]
    ("masked array", lambda repo: repo.save({"a": np.ma.masked_array([1, 2], [True, False])})),
]
#: Half of a character: UTF-8 has no bytes for it.
HALF = "\ud800"
VALUES: list[tuple[str, Callable[[fhrd.Repository], Any]]] = [
    ("step", lambda repo: repo.save(ARRAYS, run="r", step=-1)),
    ("step too large", lambda repo: repo.save(ARRAYS, run="r", step=1 << 64)),
    ("run without a step", lambda repo: repo.save(ARRAYS, run="r")),
    ("run without a step, async", lambda repo: repo.save_async(ARRAYS, run="r")),
    ("run with @", lambda repo: repo.save_async(ARRAYS, run="r@1", step=1)),
    ("metric without a run", lambda repo: repo.save_async(ARRAYS, metrics={"l": 1.0})),
    ("if_exists", lambda repo: repo.save(ARRAYS, run="r", step=1, if_exists="overwrite")),  # type: ignore[arg-type]
    ("framework", lambda repo: repo.load(run="r", framework="jax")),
    ("device", lambda repo: repo.load(run="r", device="cpu")),
    ("keep last", lambda repo: fhrd.Keep(last=-1)),
    ("keep every", lambda repo: fhrd.Keep(every=-2)),
    ("keep best mode", lambda repo: fhrd.Keep(best={"l": ("least", 1)})),
    ("keep best count", lambda repo: fhrd.Keep(best={"l": ("min", 0)})),
    ("grace", lambda repo: repo.prune(grace_seconds=-1)),
    ("timeout", lambda repo: fhrd.open(repo.location, timeout=0)),
    ("timeout of flush", lambda repo: repo.flush(timeout=float("nan"))),
    ("two files of one name", lambda repo: repo.save({}, files=["/a/config.json", "/b/config.json"])),
    ("forget", lambda repo: repo.forget(run="r")),
    ("repair", lambda repo: repo.repair("everything")),
    ("metric too large", lambda repo: repo.save(ARRAYS, run="r", step=2, metrics={"l": 10**400})),
    ("if_exists of a run", lambda repo: repo.run("r", if_exists="overwrite")),  # type: ignore[arg-type]
    ("metadata that the package writes", lambda repo: repo.save(ARRAYS, metadata={"fhrd.dtype.a": "x"})),
    ("half a character: array", lambda repo: repo.save({HALF: np.zeros(3)})),
    ("half a character: metadata", lambda repo: repo.save(ARRAYS, metadata={"a": HALF})),
    ("half a character: run", lambda repo: repo.save(ARRAYS, run=HALF, step=2)),
    ("half a character: tag", lambda repo: repo.save(ARRAYS, tags=[HALF])),
    ("half a character: metric", lambda repo: repo.save(ARRAYS, run="r", step=2, metrics={HALF: 1.0})),
    ("half a character: name", lambda repo: repo.save(ARRAYS, name=HALF)),
    ("half a character: file", lambda repo: repo.save({}, files={HALF: b"x"})),
    ("half a character: source", lambda repo: repo.save({}, files={"a": HALF})),
    ("half a character: step of a load", lambda repo: repo.load(run="r", step=HALF)),
    ("half a character: snapshot", lambda repo: repo.load(snapshot=HALF)),
    ("half a character: password", lambda repo: fhrd.open(repo.location, password=HALF)),
    ("half a character: option", lambda repo: fhrd.open(repo.location, options={"config": HALF})),
    ("half a character: path", lambda repo: fhrd.open("/" + HALF)),
]


@pytest.mark.parametrize("call", [call for _, call in TYPES], ids=[name for name, _ in TYPES])
def test_a_wrong_type_raises_at_the_call(repo: fhrd.Repository, call: Callable[[fhrd.Repository], Any]) -> None:
    repo.save({"b": np.zeros(3)}, run="r", step=1)
    with pytest.raises(TypeError) as raised:
        call(repo)
    assert isinstance(raised.value, fhrd.ArgumentError) and len(repo.snapshots()) == 1


@pytest.mark.parametrize("call", [call for _, call in VALUES], ids=[name for name, _ in VALUES])
def test_a_wrong_value_raises_at_the_call(repo: fhrd.Repository, call: Callable[[fhrd.Repository], Any]) -> None:
    repo.save({"b": np.zeros(3)}, run="r", step=1)
    with pytest.raises(ValueError) as raised:
        call(repo)
    assert isinstance(raised.value, fhrd.ArgumentError) and not isinstance(raised.value, TypeError)
    assert len(repo.snapshots()) == 1


def test_an_array_that_is_not_there_is_an_error_of_the_package_and_a_key_error(repo: fhrd.Repository) -> None:
    repo.save(ARRAYS, run="r", step=1)
    loaded = repo.load(run="r")
    for call in (lambda: loaded["b"], lambda: loaded.info("b"), lambda: loaded.rows("b"), lambda: loaded.read_bytes("b"),
                 lambda: repo.load(run="r", names=["b"])):  # fmt: skip
        with pytest.raises(KeyError) as raised:
            call()
        assert isinstance(raised.value, fhrd.NotFoundError) and str(raised.value).endswith("has no array `b`")
    assert loaded.get("b", 7) == 7 and "b" not in loaded


def test_what_cannot_say_its_size_is_named_by_an_asynchronous_save(repo: fhrd.Repository) -> None:
    class NoSize:
        @property
        def nbytes(self) -> int:
            raise RuntimeError("as sparse tensors of torch do")

    with pytest.raises(fhrd.ArgumentTypeError, match="array `a`"):
        repo.save_async({"a": NoSize()})
    class NoArray:
        def __array__(self, *arguments: Any, **options: Any) -> Any:
            raise RuntimeError("as deleted arrays of JAX do")

    for save in (repo.save, repo.save_async):
        with pytest.raises(fhrd.ArgumentError, match="array `b`: .*as deleted arrays"):
            save({"a": np.zeros(2), "b": NoArray()})
    with pytest.raises(fhrd.ArgumentTypeError, match="timeout"):
        repo.save_async(ARRAYS).result(timeout="3")  # type: ignore[arg-type]


def test_a_nested_dictionary_is_told_what_takes_it(repo: fhrd.Repository) -> None:
    with pytest.raises(TypeError, match=r"array `model`: expected an array, found dict: fhrd\.torch\.save"):
        repo.save({"model": {"weight": np.zeros(3)}})
    with pytest.raises(TypeError, match=r"fhrd\.torch\.save"):
        repo.save([np.zeros(3)])  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(repo: fhrd.Repository) -> None:
    saved = repo.save(ARRAYS, run="r", step=np.int64(3), metrics={"l": np.float32(0.5)})  # type: ignore[arg-type]
    assert repo.load(run="r", step=np.uint8(3))["a"].shape == (3,)  # type: ignore[arg-type]
    assert repo.checkpoint(snapshot=saved.id).metrics == {"l": 0.5}


@pytest.mark.usefixtures("_credentials")
def test_a_store_that_does_not_answer_is_an_error_of_its_own_within_the_timeout() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"endpoint": f"http://127.0.0.1:{port}", "unencrypted": "true"}
    begin = time.monotonic()
    with pytest.raises(fhrd.UnreachableError, match="check the network"):
        fhrd.open("s3://bucket/prefix", options=options, timeout=0.5)
    assert time.monotonic() - begin < 5


@pytest.mark.usefixtures("_credentials")
def test_a_server_that_says_nothing_is_left_after_the_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "unencrypted": "true"}
        begin = time.monotonic()
        with pytest.raises(ConnectionError) as raised:
            fhrd.open("s3://bucket/prefix", options=options, timeout=1)
        assert isinstance(raised.value, fhrd.UnreachableError) and time.monotonic() - begin < 20


def test_metrics_of_torch_with_a_gradient_are_numbers(repo: fhrd.Repository, recwarn: pytest.WarningsRecorder) -> None:
    torch = pytest.importorskip("torch", reason="NOT CHECKED: torch is not installed")
    loss = torch.tensor(0.5, requires_grad=True)
    assert repo.checkpoint(snapshot=repo.save(ARRAYS, run="r", step=1, metrics={"l": loss}).id).metrics == {"l": 0.5}
    assert [str(one.message) for one in recwarn] == []
    with pytest.raises(TypeError):
        repo.save(ARRAYS, run="r", step=torch.tensor(True))
    with pytest.raises(fhrd.ArgumentError, match="device"):
        repo.load(run="r", framework="torch", device="nonsense")
