"""Bounds of memory and of reads. `speed.py` measures times."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys

import numpy as np

import fhrd

MEMORY = """
import pathlib, sys, numpy as np, fhrd

def status(name):
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) * 1024

array = np.random.default_rng(0).normal(size=25_000_000)
with fhrd.open(sys.argv[1], create=True) as repo:
    repo.save({"a": array[:100_000]}, run="warm", step=0)
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    repo.save_async({"a": array}, run="a", step=1).result()
    print((status("VmHWM") - before) / array.nbytes)
"""


def test_an_asynchronous_save_needs_at_most_twice_the_staged_bytes(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "repo")], check=True, capture_output=True, text=True
    )
    assert 0.9 < float(done.stdout) < 2.0, done.stdout


def resident() -> int:
    gc.collect()
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def test_many_saves_leave_memory_flat(repo: fhrd.Repository) -> None:
    arrays = {"a": np.zeros(50_000, np.float32), "b": np.zeros(50_000, np.float32)}
    memory: list[int] = []
    for step in range(120):
        arrays["a"][step] = step
        if step % 2:
            repo.save(arrays, run="a", step=step)
        else:
            repo.save_async(arrays, run="a", step=step).result()
        if step in (39, 119):
            memory.append(resident())
    assert memory[1] - memory[0] < 40_000_000, memory


def test_a_load_reads_no_more_when_there_are_many_steps(tmp_path: pathlib.Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {f"a{at}": generator.normal(size=50_000) for at in range(20)}
    read: list[int] = []
    for count in (1, 60):
        location = tmp_path / f"repo{count}"
        with fhrd.open(location, create=True) as repo:
            for step in range(count):
                arrays["a0"][0] = step
                repo.save(arrays, run="a", step=step)
        with fhrd.open(location) as repo:
            checkpoint = repo.checkpoint(run="a", step=count - 1)
            before = repo._native.bytes_read
            assert all(np.array_equal(array, arrays[name]) for name, array in checkpoint.arrays().items())
            read.append(repo._native.bytes_read - before)
    assert read[1] < 1.2 * read[0], read
