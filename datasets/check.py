#!/usr/bin/env python3
"""Compares a corpus with the manifests: lists which files are intact, differ or are missing.

    datasets/check.py CORPUS [--sizes] [NAME...]
    datasets/check.py --pin CORPUS NAME...

Reads datasets/manifests/*.toml, or only the manifests NAME (`code`, `models`). Each entry of `files` has a `path`. It
has `bytes` and `sha256` if every build gives the same. A path with `*` stands for at least `count` files. Paths are
relative to CORPUS, or to the checkout if the manifest has `root = "checkout"`. --sizes skips the checksums.

--pin writes the files of the manifests NAME again: each that is there with its size and checksum, those of a path with
`*` one by one. `fhrd bench` refuses a page of data with other checksums.

Exits with code 1 if a file differs, and with 0 if files are only missing, because few experiments need them all. Needs
Python 3.11 or newer, nothing else.
"""

import argparse
import hashlib
import sys
import tomllib
from pathlib import Path

DATASETS = Path(__file__).resolve().parent
READ_BYTES = 1 << 20


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def fault(path, entry, with_sums):
    """What is wrong with a file that exists, or None."""
    found = path.stat().st_size
    if found != entry.get("bytes", found):
        return f"has {found} bytes instead of {entry['bytes']}"
    if with_sums and "sha256" in entry and sum_of(path) != entry["sha256"]:
        return "has another checksum"
    return None


def check(root, entry, with_sums):
    """The number of intact files of an entry, the missing ones, and the differing ones."""
    if "*" in entry["path"]:
        found = sum(path.is_file() for path in root.glob(entry["path"]))
        wanted = entry.get("count", 1)
        return found, [] if found >= wanted else [f"{entry['path']}: {found} of {wanted} files"], []
    path = root / entry["path"]
    if not path.is_file():
        return 0, [entry["path"]], []
    wrong = fault(path, entry, with_sums)
    return (0, [], [f"{entry['path']} {wrong}"]) if wrong else (1, [], [])


def pinned(root, entry):
    """The lines of an entry with the size and checksum of each file that is there."""
    paths = sorted(path for path in root.glob(entry["path"]) if path.is_file())
    if not paths:
        values = (f"{key} = {value}" if key in ("bytes", "count") else f'{key} = "{value}"' for key, value in entry.items())
        return [f"    {{ {', '.join(values)} }},\n"]
    line = '    {{ path = "{}", bytes = {}, sha256 = "{}" }},\n'
    return [line.format(path.relative_to(root), path.stat().st_size, sum_of(path)) for path in paths]


def pin(root, path):
    """Writes the `files` of a manifest, its last key, again."""
    text = path.read_text()
    start = text.index("files = [\n")
    entries = tomllib.loads(text)["files"]
    lines = sorted({line for entry in entries for line in pinned(root, entry)})
    path.write_text(text[:start] + "files = [\n" + "".join(lines) + "]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("--sizes", action="store_true", help="do not compare checksums")
    parser.add_argument("--pin", action="store_true", help="write sizes and checksums into the manifests")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    manifests = {path.stem: path for path in sorted((DATASETS / "manifests").glob("*.toml"))}
    if unknown := set(arguments.names) - set(manifests):
        parser.error(f"no manifest {', '.join(sorted(unknown))}; there are {', '.join(manifests)}")
    if arguments.pin:
        for name in arguments.names or parser.error("--pin needs names of manifests"):
            pin(arguments.corpus, manifests[name])
        return 0
    is_wrong = False
    for name in arguments.names or manifests:
        manifest = tomllib.loads(manifests[name].read_text())
        root = DATASETS.parent if manifest.get("root") == "checkout" else arguments.corpus
        results = [check(root, entry, not arguments.sizes) for entry in manifest.get("files", [])]
        intact = sum(result[0] for result in results)
        missing, differing = ([line for result in results for line in result[kind]] for kind in (1, 2))
        print(f"{name}: {intact} intact, {len(missing)} missing, {len(differing)} differ", flush=True)
        for line in missing:
            print(f"  missing: {line}")
        for line in differing:
            print(f"  differs: {line}")
        if missing and "build" in manifest:
            print("  build: " + manifest["build"].strip().split("\n")[0])
        is_wrong |= bool(differing)
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
