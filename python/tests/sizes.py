"""Writes a table of sizes: the steps of a run in plain files, in zstd, in fhrd, and by the scheme of `tensorcas.toml`.

    python tests/sizes.py /path/to/models/minilm-runA-step*-bf16

Each argument is a step: a directory with `model.safetensors`, or such a file. It needs the program zstd.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import safetensors

import fhrd


def read(path: pathlib.Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The arrays of a file: dtype, shape and bytes by name."""
    found = safetensors.deserialize(path.read_bytes())
    return {name: (info["dtype"], tuple(info["shape"]), bytes(info["data"])) for name, info in found}


def as_array(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    from fhrd.arrays import numpy_dtype

    return np.frombuffer(data, np.uint8).view(numpy_dtype(dtype)).reshape(shape)


def stored(directory: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="+", type=pathlib.Path)
    parser.add_argument("--tensorcas", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "configs/tensorcas.toml")
    arguments = parser.parse_args()
    files = [path / "model.safetensors" if path.is_dir() else path for path in arguments.steps]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, options in (("fhrd", {}), ("tensorcas.toml", {"config": str(arguments.tensorcas)})):
            place = pathlib.Path(scratch) / name
            start, plain = time.monotonic(), 0
            with fhrd.open(place, create=True, options=options) as repo:
                for step, file in enumerate(files):
                    arrays = {key: as_array(*value) for key, value in read(file).items()}
                    plain += repo.save(arrays, run="a", step=step).total_bytes
            rows.append((name, stored(place), time.monotonic() - start))
        compressed = 0
        start = time.monotonic()
        for file in files:
            done = subprocess.run(["zstd", "-3", "-c", "-q", str(file)], check=True, capture_output=True)
            compressed += len(done.stdout)
    rows = [("plain safetensors", plain, 0.0), ("zstd -3 of each file", compressed, time.monotonic() - start), *rows]
    print(f"{len(files)} steps\n")
    print("| stored as | MB | of plain | s |\n|---|---|---|---|")
    for name, size, seconds in rows:
        print(f"| {name} | {size / 1e6:.1f} | {size / plain:.3f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
