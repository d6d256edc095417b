"""Asynchronous saves."""

from __future__ import annotations

import gc
import multiprocessing
import pathlib
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import fhrd


def test_what_was_staged_is_saved_although_the_array_changes(repo: fhrd.Repository) -> None:
    array = np.zeros(8_000_000, np.float32)
    handles = []
    for step in range(5):
        array[:] = step
        handles.append(repo.save_async({"a": array}, run="a", step=step, metrics={"m": step}))
    repo.flush()
    assert all(handle.done() for handle in handles)
    for step, handle in enumerate(handles):
        assert handle.exception() is None
        loaded = repo.load(snapshot=handle.result().id)["a"]
        assert loaded[0] == step and (loaded == step).all()
    assert repo.steps("a").column("step") == [0, 1, 2, 3, 4]


def test_errors_are_in_the_handle_and_raised_at_close_if_nobody_looked(tmp_path: pathlib.Path) -> None:
    repo = fhrd.open(tmp_path / "repo", create=True)
    seen = repo.save_async({}, files=[tmp_path / "missing"])
    error = seen.exception()
    assert isinstance(error, fhrd.FhrdError)
    with pytest.raises(fhrd.FhrdError, match="missing"):
        seen.result()
    repo.flush()
    repo.save_async({}, files=[tmp_path / "unseen"])
    good = repo.save_async({"a": np.zeros(3)}, run="a", step=1)
    with pytest.raises(fhrd.FhrdError, match="unseen"):
        repo.flush()
    assert len(good.result().id) == 64, "one failure does not stop the next save"
    repo.save_async({}, files=[tmp_path / "last"])
    with pytest.raises(fhrd.FhrdError, match="last"):
        repo.close()
    with pytest.raises(fhrd.FhrdError, match="closed"):
        repo.save_async({"a": np.zeros(3)})


def test_the_error_of_a_save_without_bytes_is_raised_at_close(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, is_late = fhrd.SaveHandle._finish, threading.Event()

    def late(*args: Any) -> None:
        is_late.set()
        time.sleep(0.3)
        finish(*args)

    monkeypatch.setattr(fhrd.SaveHandle, "_finish", late)
    repo = fhrd.open(tmp_path / "repo", create=True)
    repo.save_async({}, files={"x": tmp_path / "missing"})
    is_late.wait(60)
    with pytest.raises(fhrd.FhrdError):
        repo.close()


def test_a_callback_that_ends_its_thread_or_waits_for_it_stops_no_later_save(
    tmp_path: pathlib.Path,
) -> None:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        for callback in (lambda handle: sys.exit(3), lambda handle: repo.flush()):
            # It takes long enough for the callback to run on the thread.
            handle = repo.save_async({"a": np.random.default_rng(0).normal(size=2_000_000)})
            handle.add_done_callback(callback)
            handle.result(60)
            repo.save_async({"a": np.zeros(3)}).result(60)
            repo.flush(60)


def test_a_thread_that_cannot_start_stops_no_later_save(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with fhrd.open(tmp_path / "repo", create=True) as repo:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", failing)
            with pytest.raises(RuntimeError):
                repo.save_async({"a": np.ones(3)})
        repo.save_async({"a": np.ones(3)}).result(60)


def test_impossible_arguments_raise_at_once_and_free_their_memory(tmp_path: pathlib.Path) -> None:
    with fhrd.open(tmp_path / "repo", create=True, staged_bytes_max=1000) as repo:
        for _ in range(3):
            with pytest.raises(fhrd.ArgumentError):
                repo.save_async({"a": np.zeros(1000), "b": object()})
        repo.save_async({"a": np.zeros(1000)}, run="a", step=1).result()


def test_callbacks_run_when_the_save_is_done(repo: fhrd.Repository) -> None:
    calls: list[fhrd.SaveHandle] = []
    called = threading.Event()

    def call(handle: fhrd.SaveHandle) -> None:
        calls.append(handle)
        called.set()
        raise ValueError("a callback that fails stops nothing")

    handle = repo.save_async({"a": np.zeros(10)})
    handle.add_done_callback(call)
    assert called.wait(30) and calls == [handle] and handle.done()
    handle.add_done_callback(calls.append)
    assert calls == [handle, handle]
    repo.save_async({"a": np.ones(10)}).result()


def test_a_timeout_leaves_the_save_running(repo: fhrd.Repository) -> None:
    handle = repo.save_async({"a": np.random.default_rng(0).normal(size=10_000_000)})
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    with pytest.raises(TimeoutError):
        repo.flush(timeout=0)
    assert handle.result().total_bytes > 80_000_000


def test_staged_bytes_are_bounded(tmp_path: pathlib.Path) -> None:
    with fhrd.open(tmp_path / "repo", create=True, staged_bytes_max=20 << 20) as repo:
        arrays = [np.random.default_rng(at).integers(0, 255, 16 << 20, np.uint8) for at in range(3)]
        handles = []
        for array in arrays:
            handles.append(repo.save_async({"a": array}))
            pending = sum(not handle.done() for handle in handles)
            assert pending <= 1, "the second set waits until the first one is written"
        assert all(handle.result() for handle in handles)


def test_retention_runs_after_the_save_is_durable(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    keep = fhrd.Keep(last=1)
    for step in range(3):
        repo.save_async({"a": np.full(5, step)}, run="a", step=step, keep=keep)
    with pytest.raises(fhrd.FhrdError):
        repo.save_async({}, files=[tmp_path / "missing"], run="a", step=3, keep=keep).result()
    repo.flush()
    assert repo.steps("a").column("step") == [2], "a save that failed deletes nothing"


def test_the_result_is_durable_when_it_is_reported(repo: fhrd.Repository) -> None:
    handle = repo.save_async({"a": np.arange(5)}, run="a", step=1)
    saved = handle.result()
    with fhrd.open(repo.location) as other:
        assert other.checkpoint(run="a").id == saved.id


EXIT = """
import sys, numpy as np, fhrd
repo = fhrd.open(sys.argv[1])
repo.save_async({"a": np.random.default_rng(0).normal(size=3_000_000)}, run="exit", step=1)
repo.save_async({}, files=["/missing/file"])
"""


def test_a_program_that_ends_waits_and_reports(repo: fhrd.Repository) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, repo.location], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "an asynchronous save failed" in done.stderr and "/missing/file" in done.stderr
    assert repo.load(run="exit")["a"].shape == (3_000_000,)


def save_and_end(location: str, step: int) -> None:
    fhrd.open(location).save_async({"a": np.random.default_rng(step).normal(size=2_000_000)}, run="child", step=step)


def test_a_process_of_multiprocessing_that_ends_waits_for_its_saves(repo: fhrd.Repository) -> None:
    context = multiprocessing.get_context("fork")
    for step in range(2):
        child = context.Process(target=save_and_end, args=(repo.location, step))
        child.start()
        child.join(120)
        assert child.exitcode == 0
    with context.Pool(1) as pool:
        pool.apply(save_and_end, (repo.location, 2))
        pool.close()
        pool.join()
    assert repo.all_steps("child") == [0, 1, 2]


def test_several_threads_use_one_repository(repo: fhrd.Repository) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for step in range(4):
                array = np.full(100_000, step, np.int32)
                repo.save({"a": array}, run=name, step=step)
                assert (repo.load(run=name, step=step)["a"] == step).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"run{at}",)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and len(repo.snapshots()) == 12


def test_other_threads_run_while_a_save_runs(repo: fhrd.Repository) -> None:
    ticks = 0
    is_done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not is_done.wait(0.001):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    repo.save({"a": np.random.default_rng(0).normal(size=8_000_000)})
    is_done.set()
    ticker.join()
    assert ticks >= 5, "the lock of the interpreter is free while the engine works"


def test_saves_that_failed_free_their_copies(repo: fhrd.Repository) -> None:
    freed: list[weakref.ref[Any]] = []
    handles = []
    for step in range(3):
        array = np.zeros(1000)
        stored = repo._files

        def files(*args: Any, stored: Any = stored, **options: Any) -> Any:
            made = stored(*args, **options)
            marker = threading.Event()
            freed.append(weakref.ref(marker))
            return _Holder(made, marker)

        repo._files = files  # type: ignore[method-assign]
        handles.append(repo.save_async({"a": array}, run="a", step=step))
        repo._files = stored  # type: ignore[method-assign]
    errors = [handle.exception(60) for handle in handles]
    assert all(isinstance(error, TypeError) for error in errors)
    with pytest.raises(TypeError):
        raise errors[0] or AssertionError
    gc.collect()
    assert len(freed) == 3 and all(one() is None for one in freed)
    repo.flush()


class _Holder:
    """What the engine does not take, with something that lives as long."""

    def __init__(self, *held: Any) -> None:
        self.held = held
