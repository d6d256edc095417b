#!/usr/bin/env python3
"""Stores very many chunks, then checks and prunes them: memory and time of each step.

    python3 benches/many_chunks.py target/release/fhrd DIRECTORY 100000000

Chunks are rows of 512 bytes that differ by a counter, so that a chunk takes about 114 bytes of disk with its entry and
its record in the index. Three backups store 30, 30 and 40 % of them, a fourth some of them again. Then the first snapshot
is forgotten. The script needs NumPy. It removes nothing.
"""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np

CONFIG = """
[repository]
chunker = "fixed"
chunk_bytes_min = "512 B"
chunk_bytes_avg = "512 B"
chunk_bytes_max = "1 KiB"
[identify]
enabled = false
[subdedup]
strategy = "none"
[compress]
level = 1
text_levels = 0
frame_chunks = 2048
[model]
detect_formats = false
"""
ROWS_AT_ONCE = 1 << 14


def write_rows(out, first, count):
    """Writes rows `first` to `first + count`."""
    rows = np.zeros((ROWS_AT_ONCE, 64), dtype=np.uint64)
    rows[:, 1:] = np.frombuffer(b"one row of a table that is long!" * 16, dtype=np.uint64)[:63]
    with out:
        for at in range(first, first + count, ROWS_AT_ONCE):
            number = min(ROWS_AT_ONCE, first + count - at)
            rows[:number, 0] = np.arange(at, at + number, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            out.write(rows[:number].tobytes())


def step(name, command, rows=None):
    """Runs a command, with rows as its input, and prints what it took."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE if rows else None, stdout=subprocess.PIPE)
    if rows:
        threading.Thread(target=write_rows, args=(child.stdin, *rows), daemon=True).start()
    said = child.stdout.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"{name}: exit {child.returncode}, {seconds:.0f} s of CPU, {usage.ru_maxrss >> 10} MiB at most", flush=True)
    return said


def main():
    program, directory, chunks = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    directory.mkdir(parents=True)
    config, repository = directory / "fixed.toml", directory / "repository"
    config.write_text(CONFIG)
    os.environ["XDG_CACHE_HOME"] = str(directory / "cache")

    def fhrd(*words):
        return [program, "--config", str(config), "--repo", str(repository), *words]

    step("init", fhrd("init"))
    parts = [(0, 3), (3, 3), (6, 4), (2, 1)]
    for number, (first, count) in enumerate(parts):
        rows = (chunks * first // 10, chunks * count // 10)
        step(f"backup of {rows[1]} chunks", fhrd("backup", "--stdin", "--stdin-filename", f"part{number}"), rows)
    step("check", fhrd("check"))
    step("forget", fhrd("forget", "latest~3"))
    step("prune", fhrd("prune", "--grace", "0s"))
    step("check", fhrd("check"))


if __name__ == "__main__":
    main()
