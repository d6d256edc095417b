#!/usr/bin/env python3
"""What DVC and git-lfs store of checkpoints, by the real programs: TensorCAS's baseline, and another that keeps files whole.

    datasets/blob_rows.py dvc|git-lfs [--small]

Prints a line of JSON for each number of checkpoints, for configs/bench/tensorcas-blobs.toml. Files are written to a temporary
directory, or below FHRD_BENCH_WORK. Needs git, and the program.

A checkpoint has the bytes of a ResNet-18 with ten classes in FP32: a backbone that is the same in each, and a head that
differs. Its values are drawn from a seed, so nothing in it compresses. `--small` has few and short checkpoints.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

BACKBONE_VALUES, HEAD_VALUES = 11_186_112, 5_130
#: Programs by name: commands that prepare a repository, and one that stores a file; and where its objects are.
PROGRAMS = {
    "dvc": (
        [["dvc", "init", "--quiet"], ["dvc", "config", "core.analytics", "false"]],
        ["dvc", "add", "--quiet"],
        os.path.join(".dvc", "cache", "files"),
    ),
    "git-lfs": (
        [["git", "lfs", "install", "--local"], ["git", "lfs", "track", "*.bin"]],
        ["git", "add"],
        os.path.join(".git", "lfs", "objects"),
    ),
}


def bytes_below(directory):
    paths = (os.path.join(where, name) for where, _, names in os.walk(directory) for name in names)
    return sum(os.path.getsize(path) for path in paths)


def main():
    program, small = sys.argv[1], "--small" in sys.argv[2:]
    prepare, add, objects = PROGRAMS[program]
    numbers = [2, 5] if small else [2, 20, 40, 80]
    source = random.Random(1)
    backbone = source.randbytes(4 * (BACKBONE_VALUES // (100 if small else 1)))
    with tempfile.TemporaryDirectory(dir=os.environ.get("FHRD_BENCH_WORK")) as directory:
        quiet = {"cwd": directory, "check": True, "stdout": subprocess.DEVNULL}
        for command in [["git", "init", "--quiet"], *prepare]:
            subprocess.run(command, **quiet)
        whole = 0
        for number in range(1, numbers[-1] + 1):
            name = f"checkpoint-{number:03}.bin"
            path = os.path.join(directory, name)
            with open(path, "wb") as file:
                file.write(backbone)
                file.write(source.randbytes(4 * HEAD_VALUES))
            whole += os.path.getsize(path)
            subprocess.run([*add, name], **quiet)
            os.remove(path)
            if number in numbers:
                stored = bytes_below(os.path.join(directory, objects))
                line = {"set": f"{number} checkpoints", "bytes": whole, "stored": stored, "mib": stored / 2**20}
                print(json.dumps({**line, "stored_share": stored / whole}), flush=True)


if __name__ == "__main__":
    main()
