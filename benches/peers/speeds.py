#!/usr/bin/env python3
"""Speeds of derivations: CPU time of a backup and a restore of a file that is computed from a stored one.

    benches/peers/speeds.py --models corpus/models target/release/fhrd

The base is stored first. A row has MB (10^6 bytes) of the file, what the repository grows by, and MB of the file for
each second of CPU time: of the backup, less that of one in which nothing has changed, and of the restore, the medians of
three in new repositories. All of the program counts: start, chunks, fingerprints, the base that is read and decoded. Every restored file is
compared. Needs numpy, torch, gguf and ctransformers. The sets are those of models.py, of 3 layers and 8,192 rows.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import quantised
import weights

ROUNDS = 3


def run(words, home):
    """CPU seconds of a command, which must succeed."""
    environment = {**os.environ, "XDG_CACHE_HOME": f"{home}/cache", "XDG_STATE_HOME": f"{home}/state"}
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(words)}: status {status}")
    return usage.ru_utime + usage.ru_stime


def bytes_of(directory):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(directory) for name in names)


def write(directory, files):
    os.makedirs(directory)
    for name, content in files.items():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(content)


def measured(program, name, base, files):
    """Bytes that one repository grows by, and CPU seconds of the backup and the restore."""
    with tempfile.TemporaryDirectory() as home:
        repository, source, target = (os.path.join(home, part) for part in ("repository", "source", "target"))
        call = lambda *words: run([program, "--repo", repository, *words], home)
        call("init")
        write(f"{source}/base", base)
        call("backup", source)
        write(f"{source}/set", files)
        before = bytes_of(repository)
        backup = call("backup", f"{source}/set")
        stored = bytes_of(repository) - before
        restore = call("restore", "latest", "--target", target)
        backup -= call("backup", f"{source}/set")
        for file, content in files.items():
            with open(f"{target}{source}/set/{file}", "rb") as back:
                if back.read() != content:
                    sys.exit(f"{name}: {file} has come back with other bytes")
        return stored, backup, restore


def measure(program, name, base, files):
    raw = sum(map(len, files.values()))
    stored, *seconds = map(statistics.median, zip(*(measured(program, name, base, files) for _ in range(ROUNDS))))
    backup, restore = (raw / 1e6 / max(one, 1e-9) for one in seconds)
    print(f"| {name} | {raw / 1e6:.1f} | {stored / 1e6:.3f} | {backup:.0f} | {restore:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True, help="directory of the models")
    parser.add_argument("program", help="fhrd")
    arguments = parser.parse_args()
    matrices = lambda name: {
        tensor: values
        for tensor, values in weights.read_model(os.path.join(arguments.models, name), 3, 8192).items()
        if values.ndim == 2
    }
    base, tune = matrices("minilm-base-fp32"), matrices("minilm-ft-A2-fp32")
    print("| set | MB | stored | backup, MB/s | restore, MB/s |\n|---|---|---|---|---|")
    program = os.path.abspath(arguments.program)
    measure(program, "BF16 alone", {}, weights.file(weights.brains(base)))
    for make in (quantised.code_sets, quantised.gguf_sets):
        for one in make(base, tune):
            named = lambda parts: {f"{part}-{name}": content for part, files in parts for name, content in files.items()}
            measure(program, one.name, named(one.stored), named(one.added))


if __name__ == "__main__":
    main()
