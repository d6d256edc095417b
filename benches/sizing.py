#!/usr/bin/env python3
"""Measures the tables of docs/SIZING.md: peak memory and user time of each verb, by `--memory`, and of many writers.

    benches/sizing.py [--memory SIZE...] [--writers N...] [--rounds N] [--work DIR] target/release/fhrd DIRECTORY

Takes the files of DIRECTORY, not those below it. For each SIZE, a new repository takes a first backup of all files,
the same again with `--force`, a restore and a `check --read-data`. Then a snapshot of the first half of the files is
made, the two of all files are forgotten, and `prune --grace 0` frees what only they need. For each N, N processes
back up the files at the same time, each its share, into one new repository with the default memory, and a restore of
the first share is compared.

Prints tables: peak memory of a process in MB (of the writers the largest), user seconds in brackets, and MB stored, all
medians of the rounds, which take the sizes in turn. What the kernel takes is not in it: it depends on what the machine
still writes. Needs nothing but Python 3.9. Works in --work (sizing-work), which must not exist, and removes it.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median


def start(program, repository, *arguments):
    command = [program, arguments[0], "--repo", str(repository), "--quiet", *map(str, arguments[1:])]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def end(child):
    """Peak memory in MB and user seconds of a process that must succeed."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"sizing.py: {child.args} ended with {child.returncode}")
    return usage.ru_maxrss * 1024 / 1e6, usage.ru_utime


def run(program, repository, *arguments):
    return end(start(program, repository, *arguments))


def stored(repository):
    """Bytes of all files of the repository, MB."""
    return sum(path.stat().st_size for path in repository.rglob("*") if path.is_file()) / 1e6


def compare(files, restored):
    """Ends the script unless every file came back."""
    for file in files:
        if not filecmp.cmp(file, restored / file.relative_to("/"), shallow=False):
            sys.exit(f"sizing.py: {file} differs")


def by_memory(program, files, size, work):
    repository, target = work / "repository", work / "restored"
    limit = ["--memory", size]
    run(program, repository, "init")
    first = run(program, repository, "backup", *limit, *files)
    size_of_all = stored(repository)
    again = run(program, repository, "backup", *limit, "--force", *files)
    restore = run(program, repository, "restore", *limit, "latest", "--target", target)
    compare(files, target)
    check = run(program, repository, "check", *limit, "--read-data")
    run(program, repository, "backup", *limit, "--tag", "half", *files[: len(files) // 2])
    run(program, repository, "forget", "--keep-tag", "half", "--allow-empty-group")
    prune = run(program, repository, "prune", *limit, "--grace", "0")
    run(program, repository, "check")
    return [*first, *again, *restore, *check, *prune, size_of_all, stored(repository)]


def by_writers(program, files, count, work):
    repository, target = work / "repository", work / "restored"
    run(program, repository, "init")
    begun = time.monotonic()
    writers = [start(program, repository, "backup", "--tag", f"share{at}", *files[at::count]) for at in range(count)]
    taken = [end(writer) for writer in writers]
    seconds = time.monotonic() - begun
    run(program, repository, "restore", "latest", "--tag", "share0", "--target", target)
    compare(files[::count], target)
    return [max(one[0] for one in taken), sum(one[1] for one in taken), seconds, stored(repository)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", nargs="*", default=["128MiB", "256MiB", "1GiB", "8GiB"], metavar="SIZE")
    parser.add_argument("--writers", nargs="*", type=int, default=[1, 2, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("sizing-work"), metavar="DIR")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    arguments = parser.parse_args()
    program = os.path.realpath(arguments.program)
    files = sorted(path for path in arguments.directory.resolve().iterdir() if path.is_file())
    if len(files) < max([2, *arguments.writers]):
        parser.error(f"{arguments.directory} has {len(files)} files, fewer than writers")
    os.environ["XDG_CACHE_HOME"] = str(arguments.work.resolve() / "cache")
    print(f"{sum(file.stat().st_size for file in files) / 1e9:.2f} GB in {len(files)} files")
    print("| memory | first backup | again | restore | check | prune | stored, MB | after prune, MB |")
    for size, numbers in medians(by_memory, program, files, arguments.memory, arguments):
        pairs = [f"{most:.0f} ({user:.1f})" for most, user in zip(numbers[:10:2], numbers[1:10:2])]
        print("| " + " | ".join([size, *pairs, *(f"{number:.1f}" for number in numbers[10:])]) + " |")
    print("| writers | most memory | user s of all | seconds | stored, MB |")
    for count, numbers in medians(by_writers, program, files, arguments.writers, arguments):
        print(f"| {count} | {numbers[0]:.0f} | " + " | ".join(f"{number:.1f}" for number in numbers[1:]) + " |")


def medians(measure, program, files, values, arguments):
    """Each value, and the medians of what is measured with it, each time in a work directory of its own."""
    results = defaultdict(list)
    for _ in range(arguments.rounds):
        for value in values:
            arguments.work.mkdir(parents=True)
            results[value].append(measure(program, files, value, arguments.work.resolve()))
            shutil.rmtree(arguments.work)
    for value in values:
        yield value, [median(column) for column in zip(*results[value])]


if __name__ == "__main__":
    main()
