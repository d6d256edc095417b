#!/usr/bin/env python3
"""Reads of a model file through `fhrd mount`, beside reads of the plain file.

A model of about 100 MB (BF16, normal weights, safetensors) and a fine-tune of it are stored in a repository. Each round
mounts it again and times the first reads, then the second ones. The plain file and the containers are dropped from the
page cache before a first read. Programs alternate. The table has medians in seconds, and in brackets MB (10^6) for each
second; `cpu` is the CPU time of the mount in the first reads.

    benches/mount_models.py [--rounds 5] [--work /tmp] [--mb 100] FHRD [OTHER/FHRD ...]

*first* is one reader of the whole file in steps of 1 MiB, *fine-tune* the same of the fine-tune, *mapped* a sequential
copy out of a mapping, *random* 400 pieces of 64 KiB from a mapping, *readers* so many processes that each read the whole
file. Needs numpy and /dev/fuse.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

import numpy as np

PIECE = 64 << 10
PIECES = 400
STEP = 1 << 20


def write_model(path, megabytes, moved=0.0):
    """Layers of 4096 x 1024 values, 8.4 MB each, whose values a training has moved by so much."""
    shape, source = (4096, 1024), np.random.default_rng(1)
    layer_bytes = 2 * shape[0] * shape[1]
    layers = max(1, round(megabytes * 1e6 / layer_bytes))
    offsets = lambda layer: [layer * layer_bytes, (layer + 1) * layer_bytes]
    tensor = lambda layer: {"dtype": "BF16", "shape": shape, "data_offsets": offsets(layer)}
    names = {f"layers.{layer}.weight": tensor(layer) for layer in range(layers)}
    header = json.dumps(names).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for layer in range(layers):
            values = source.standard_normal(shape, np.float32) * np.float32(0.02)
            training = np.random.default_rng(layer + 2)
            values += training.standard_normal(shape, np.float32) * np.float32(moved)
            bits = values.view(np.uint32)
            file.write((bits >> 16).astype(np.uint16).tobytes())


def drop(path):
    """Drops a file, or all files below a directory, from the page cache."""
    paths = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names] or [path]
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_whole(path):
    space = bytearray(STEP)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(space):
            pass


def read_mapped(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for at in range(0, len(mapped), STEP):
            mapped[at : at + STEP]


def read_random(path):
    offsets = random.Random(7)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for _ in range(PIECES):
            at = offsets.randrange(len(mapped) - PIECE)
            mapped[at : at + PIECE]


def readers(count):
    def read(path):
        children = []
        for _ in range(count):
            child = os.fork()
            if child == 0:
                read_whole(path)
                os._exit(0)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)

    return read


CASES = {
    "first": (read_whole, 1),
    "fine-tune": (read_whole, 1),
    "mapped": (read_mapped, 1),
    "random": (read_random, None),
    "2 readers": (readers(2), 2),
    "4 readers": (readers(4), 4),
}


def timed(read, path):
    started = time.perf_counter()
    read(path)
    return time.perf_counter() - started


class Mount:
    def __init__(self, program, repository, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        command = [program, "--repo", repository, "mount", directory, "--json"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "mounted" in self.server.stdout.readline()

    def cpu_seconds(self):
        with open(f"/proc/{self.server.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        subprocess.run(["umount", self.directory], check=True)
        assert self.server.wait() == 0


def measure(arguments, work):
    base, tuned = (os.path.join(work, "models", name, "model.safetensors") for name in ("base", "tuned"))
    repository = os.path.join(work, "repository")
    command = [arguments.programs[0], "--repo", repository]
    fhrd = lambda *words: subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
    fhrd("init")
    for path, moved in ((base, 0.0), (tuned, 4e-4)):
        os.makedirs(os.path.dirname(path))
        write_model(path, arguments.mb, moved)
        fhrd("backup", os.path.join(work, "models"))
        stored = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(repository) for name in names)
        print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, all stored in {stored / 1e6:.1f} MB")
    size = os.path.getsize(base)
    seconds = {}
    note = lambda *key_and_value: seconds.setdefault(key_and_value[:-1], []).append(key_and_value[-1])
    for _ in range(arguments.rounds):
        for case, (read, _) in CASES.items():
            model = tuned if case == "fine-tune" else base
            drop(model)
            note("plain", case, "cold", timed(read, model))
            note("plain", case, "warm", timed(read, model))
            for number, program in enumerate(arguments.programs):
                drop(repository)
                mount = Mount(program, repository, os.path.join(work, "mounted"))
                mounted = os.path.join(mount.directory, "latest", model.lstrip("/"))
                os.stat(mounted)
                before = mount.cpu_seconds()
                note(number, case, "cold", timed(read, mounted))
                note(number, case, "cpu", mount.cpu_seconds() - before)
                note(number, case, "warm", timed(read, mounted))
                mount.close()
    return size, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/tmp")
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("programs", nargs="+", metavar="FHRD")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(dir=arguments.work)
    try:
        size, seconds = measure(arguments, work)
    finally:
        shutil.rmtree(work)
    whose = ["plain", *range(len(arguments.programs))]
    names = {"plain": "plain file", **dict(enumerate(arguments.programs))}
    for case, (_, times) in CASES.items():
        read = PIECES * PIECE if times is None else times * size
        for who in whose:
            columns = [
                f"{kind} {statistics.median(found):.3f} ({read / 1e6 / statistics.median(found):.0f})"
                for kind in ("cold", "warm", "cpu")
                if (found := seconds.get((who, case, kind)))
            ]
            print(f"{case:10} {'; '.join(columns):60} {names[who]}")


if __name__ == "__main__":
    main()
