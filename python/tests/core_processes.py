"""Signals, forks, kills, several processes, and disks that fail."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fhrd

CHILD = """
import signal, sys, time, numpy as np, fhrd
# A program that is started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
repo = fhrd.open(sys.argv[1], create=True)
run, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
is_begun = False
def begun(progress):
    global is_begun
    if progress["bytes_read"] > 0 and not is_begun:
        is_begun = True
        print("begun", flush=True)
for step in range(count):
    array = np.random.default_rng(step).normal(size=size)
    print("saving", step, flush=True)
    try:
        saved = repo.save({"a": array}, run=run, step=step, progress=begun)
        print("saved", step, saved.id, flush=True)
    except KeyboardInterrupt:
        print("interrupted", step, flush=True)
        saved = repo.save({"a": np.zeros(10)}, run=run, step=1000)
        print("saved", 1000, saved.id, flush=True)
        break
"""


# The same in the background. It goes on with its work until it is stopped.
TRAINING = """
import signal, sys, time, numpy as np, fhrd
signal.signal(signal.SIGINT, signal.default_int_handler)
repo = fhrd.open(sys.argv[1], create=True)
run, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for step in range(count):
    handle = repo.save_async({"a": np.random.default_rng(step).normal(size=size)}, run=run, step=step)
    handle.add_done_callback(lambda handle, step=step: print("saved", step, handle.result().id, flush=True))
print("training", flush=True)
# A signal just before a sleep does not end it.
for _ in range(3000):
    time.sleep(0.1)
"""


def start(location: str, run: str, count: int, size: int, program: str = CHILD) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", program, location, run, str(count), str(size)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(child: subprocess.Popen[str], word: str) -> str:
    """What the child prints up to a line that begins with a word."""
    assert child.stdout is not None
    output = ""
    while not output.splitlines()[-1:] or not output.splitlines()[-1].startswith(word):
        line = child.stdout.readline()
        assert line, child.communicate()[1]
        output += line
    return output


def reported(output: str) -> dict[int, str]:
    words = [line.split() for line in output.splitlines() if line.startswith("saved")]
    return {int(step): snapshot for _, step, snapshot in words}


def assert_loads(repo: fhrd.Repository, run: str, steps: dict[int, str], size: int) -> None:
    for step, snapshot in steps.items():
        array = repo.load(snapshot=snapshot)["a"]
        if step < 1000:
            assert np.array_equal(array, np.random.default_rng(step).normal(size=size)), (run, step)
    assert repo.check(read_data=True).defect_count == 0


def test_ctrl_c_stops_a_save_and_the_repository_goes_on(tmp_path: pathlib.Path) -> None:
    location = str(tmp_path / "repo")
    child = start(location, "a", 100, 20_000_000)
    read_until(child, "begun")
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert "interrupted 0" in output and list(reported(output)) == [1000], output
    with fhrd.open(location) as repo:
        assert_loads(repo, "a", reported(output), 20_000_000)
        assert repo.steps("a").column("step") == [1000]


def test_ctrl_c_of_a_training_ends_its_saves(tmp_path: pathlib.Path) -> None:
    location, size = str(tmp_path / "repo"), 300_000
    child = start(location, "a", 3, size, TRAINING)
    first = read_until(child, "training")
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=300)
    assert child.returncode != 0 and "KeyboardInterrupt" in errors, errors
    steps = reported(first + output)
    assert list(steps) == [0, 1, 2], first + output
    with fhrd.open(location) as repo:
        assert_loads(repo, "a", steps, size)


@pytest.mark.parametrize("delay", [0.1, 0.5])
def test_nothing_reported_by_a_handle_is_lost_by_a_kill(tmp_path: pathlib.Path, delay: float) -> None:
    location, size = str(tmp_path / "repo"), 500_000
    child = start(location, "a", 100, size, TRAINING)
    first = read_until(child, "saved")
    time.sleep(delay)
    child.kill()
    steps = reported(first + child.communicate()[0])
    assert 0 in steps, first
    with fhrd.open(location) as repo:
        assert_loads(repo, "a", steps, size)


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.7])
def test_nothing_reported_is_lost_by_a_kill(tmp_path: pathlib.Path, delay: float) -> None:
    location, size = str(tmp_path / "repo"), 500_000
    child = start(location, "a", 1000, size)
    assert child.stdout is not None
    first = [child.stdout.readline() for _ in range(3)]
    time.sleep(delay)
    child.kill()
    output = "".join(first) + child.communicate()[0]
    steps = reported(output)
    assert 0 in steps
    with fhrd.open(location) as repo:
        assert_loads(repo, "a", steps, size)
        # Whoever goes on finds what was stored, and nothing is in the way.
        repo.save({"a": np.random.default_rng(0).normal(size=size)}, run="a", step=2000)
        assert repo.check().defect_count == 0


def test_two_processes_save_to_one_repository(tmp_path: pathlib.Path) -> None:
    location, size = str(tmp_path / "repo"), 200_000
    children = {run: start(location, run, 8, size) for run in ("a", "b")}
    outputs = {run: child.communicate(timeout=120) for run, child in children.items()}
    with fhrd.open(location) as repo:
        for run, (output, errors) in outputs.items():
            steps = reported(output)
            assert len(steps) == 8, errors
            assert repo.steps(run).column("snapshot") == [steps[step] for step in range(8)]
            assert_loads(repo, run, steps, size)


def test_a_forked_process_gets_a_clear_error_and_opens_again(repo: fhrd.Repository) -> None:
    repo.save({"a": np.arange(4)}, run="a", step=1)
    handle = repo.save_async({"a": np.random.default_rng(0).normal(size=6_000_000)}, run="a", step=2)
    loaded = repo.load(run="a", step=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: repo.runs(), lambda: repo.save({"a": np.zeros(3)}), lambda: repo.flush(),
                         lambda: repo.save_async({"a": np.zeros(3)}), lambda: loaded["a"],
                         lambda: handle.result() if not handle.done() else repo.runs()):
                try:
                    call()
                except fhrd.FhrdError as error:
                    assert "forked" in str(error)
                else:
                    os._exit(2)
            repo.close()
            with fhrd.open(repo.location) as again:
                assert list(again.load(run="a", step=1)["a"]) == [0, 1, 2, 3]
                again.save({"a": np.ones(3)}, run="child", step=1)
                again.save_async({"a": np.ones(3)}, run="child", step=2).result(60)
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    assert handle.result().id and list(loaded["a"]) == [0, 1, 2, 3]
    assert repo.steps("child").column("step") == [1, 2]


def test_a_repository_that_vanishes_is_an_error(tmp_path: pathlib.Path) -> None:
    repo = fhrd.open(tmp_path / "repo", create=True)
    repo.save({"a": np.arange(200_000)}, run="a", step=1)
    shutil.rmtree(tmp_path / "repo")
    with pytest.raises(fhrd.FhrdError):
        repo.save({"a": np.arange(200_001)}, run="a", step=2)
    with pytest.raises(fhrd.FhrdError):
        repo.load(run="a")
    handle = repo.save_async({"a": np.arange(10)}, run="a", step=3)
    assert isinstance(handle.exception(), fhrd.FhrdError)
    repo.close()


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file system of 8 MB. It needs the rights to mount one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(directory)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"NOT CHECKED: a full disk, because this user may not mount one: {mounted.stderr!r}")
    return directory


def test_a_full_disk_is_an_error_and_nothing_reported_is_lost(small_disk: pathlib.Path) -> None:
    try:
        with fhrd.open(small_disk / "repo", create=True) as repo:
            array = np.random.default_rng(0).normal(size=100_000)
            repo.save({"a": array}, run="a", step=1)
            with pytest.raises(fhrd.StorageFullError):
                repo.save({"a": np.random.default_rng(1).normal(size=4_000_000)}, run="a", step=2)
            failed = repo.save_async({"a": np.random.default_rng(2).normal(size=4_000_000)}, run="a", step=3)
            assert isinstance(failed.exception(), fhrd.StorageFullError)
            assert np.array_equal(repo.load(run="a")["a"], array)
            assert repo.steps("a").column("step") == [1]
            repo.prune(grace_seconds=0)
            repo.save({"a": array + 1}, run="a", step=4)
            assert repo.check(read_data=True).defect_count == 0
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=True)
