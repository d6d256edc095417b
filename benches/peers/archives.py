#!/usr/bin/env python3
"""Compares backups that open compressed files with such that do not.

For each directory, and each value of `--open`: one backup into a new repository, and a restore that is compared with
the source. Prints bytes of the repository, and CPU and elapsed seconds of backup and restore. With `--rounds` the
values take turns, and the medians are printed. The cache of the system is warm: each directory is read once before.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHOICES = ("never", "auto", "always")


def run(words: list[str], home: Path) -> tuple[float, float]:
    """CPU and elapsed seconds of a command, which must succeed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
    begin = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(words)}: status {status}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin


def bytes_of(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def measure(program: str, source: Path, choice: str) -> list[float]:
    """Bytes of the repository, then CPU and elapsed seconds of a backup and of a restore."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        repository, back = home / "repository", home / "back"
        base = [program, "--quiet", "--repo", str(repository)]
        run([*base, "init"], home)
        backup = run([*base, "backup", str(source), "--open", choice], home)
        stored = bytes_of(repository)
        restore = run([*base, "restore", "latest", "--target", str(back)], home)
        same = subprocess.run(["diff", "-rq", "--no-dereference", source, str(back) + str(source)], check=False)
        if same.returncode:
            sys.exit(f"{source}: what was restored differs")
        shutil.rmtree(back)
        return [stored, *backup, *restore]


def main() -> None:
    """Prints a line for each directory and value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/fhrd")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--choices", default=",".join(CHOICES), help="values of --open, with commas")
    parser.add_argument("directories", nargs="+", type=Path)
    arguments = parser.parse_args()
    choices = arguments.choices.split(",")
    print("| files | MB | `--open` | stored MB | backup CPU s | elapsed | restore CPU s | elapsed | restored MB/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for directory in arguments.directories:
        source = directory.resolve()
        for path in source.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.read_bytes()
        results: dict[str, list[list[float]]] = {choice: [] for choice in choices}
        for _ in range(arguments.rounds):
            for choice in choices:
                results[choice].append(measure(arguments.program, source, choice))
        size = bytes_of(source)
        for choice, rounds in results.items():
            stored, *seconds = (statistics.median(values) for values in zip(*rounds))
            figures = " | ".join(f"{second:.2f}" for second in seconds)
            speed = size / 1e6 / seconds[3]
            print(f"| {directory.name} | {size / 1e6:.1f} | {choice} | {stored / 1e6:.2f} | {figures} | {speed:.0f} |")


if __name__ == "__main__":
    main()
