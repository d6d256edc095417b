#!/usr/bin/env python3
"""Compresses the files of a set with zipnn, one by one, and restores them. peers.py runs it.

    zipnn_files.py version
    zipnn_files.py init REPOSITORY
    zipnn_files.py backup REPOSITORY PATH...
    zipnn_files.py restore REPOSITORY SNAPSHOT TARGET

A .safetensors file of mostly BF16, FP16 or FP32 is given to zipnn as a whole, as bytes of that type, with one thread:
`NAME.zipnn`. zipnn fails on float32 input whose last block is shorter than a value, so a file whose length is not a
multiple of four is treated as another file. zlib compresses every other file at level 6: `NAME.zlib`. Directories and
links are kept, modes and times are not, and nothing is synced. The n-th PATH is snapshot n, from 0. Its files are
restored below TARGET at their absolute paths.

The last line printed is {"wall_s", "cpu_s"}: the time after all imports.
"""

import json
import os
import sys
import time
import warnings
import zlib
from pathlib import Path

TYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
VALUE_BYTES = 4
HEADER_BYTES_MAX = 100_000_000


def main_type(content):
    """The type of most bytes of a safetensors file, or None if zipnn does not support it."""
    length = int.from_bytes(content[:8], "little")
    if len(content) % VALUE_BYTES or not 0 < length <= min(HEADER_BYTES_MAX, len(content) - 8):
        return None
    taken = {}
    for name, tensor in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            taken[tensor["dtype"]] = taken.get(tensor["dtype"], 0) + end - begin
    return TYPES.get(max(taken, key=taken.get)) if taken else None


def compressed(path, zipnn):
    """The compressed file, and the ending of its name."""
    # zipnn changes the bytes of its input in place, so it gets a buffer that is not used again.
    content = bytearray(path.read_bytes())
    dtype = main_type(content) if path.suffix == ".safetensors" else None
    if dtype is None:
        return zlib.compress(content, 6), ".zlib"
    return zipnn.ZipNN(input_format="byte", bytearray_dtype=dtype, threads=1).compress(content), ".zipnn"


def copy(source, target, change):
    """Copies a tree: links unchanged, each file as `change` writes it."""
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for inner in sorted(source.iterdir()):
            copy(inner, target / inner.name, change)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        change(source, target)


def back_up(zipnn, repository, *paths):
    def store(source, target):
        content, ending = compressed(source, zipnn)
        target.with_name(target.name + ending).write_bytes(content)

    for snapshot, path in enumerate(map(Path, paths)):
        copy(path, Path(repository).joinpath(str(snapshot), *path.parts[1:]), store)


def restore(zipnn, repository, snapshot, target):
    def decompress(source, target):
        content, target = source.read_bytes(), target.with_suffix("")
        if source.suffix == ".zlib":
            content = zlib.decompress(content)
        else:
            content = zipnn.ZipNN(input_format="byte", threads=1).decompress(content)
        target.write_bytes(content)

    copy(Path(repository, snapshot), Path(target), decompress)


def main(arguments):
    if arguments[:1] == ["init"]:
        Path(arguments[1]).mkdir(parents=True)
        print(json.dumps({"wall_s": 0, "cpu_s": 0}))
        return
    if arguments[:1] not in (["version"], ["backup"], ["restore"]):
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    import zipnn

    if arguments[0] == "version":
        from importlib.metadata import version

        print("zipnn", version("zipnn"))
        return
    run = back_up if arguments[0] == "backup" else restore
    wall, cpu = time.perf_counter(), time.process_time()
    run(zipnn, *arguments[1:])
    print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1:])
