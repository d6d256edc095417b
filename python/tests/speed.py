"""Measures what docs/MEASUREMENTS.md says about the Python package. Prints one line for each figure.

    python tests/speed.py [directory for repositories]
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

import fhrd


def resident() -> int:
    """Bytes of memory of this process."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def peak() -> int:
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def reset_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def model(megabytes: int, seed: int) -> dict[str, np.ndarray]:
    """Weights as a network has them, a layer every 3 MB."""
    generator = np.random.default_rng(seed)
    count = megabytes // 3
    return {f"layer{at:03}": (generator.normal(size=750_000) * 0.02).astype(np.float32) for at in range(count)}


def timed(function, *arguments, **options) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - start


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        place = pathlib.Path(scratch)
        arrays = model(90, 0)
        total = sum(array.nbytes for array in arrays.values())
        with fhrd.open(place / "a", create=True) as repo:
            first = timed(repo.save, arrays, run="a", step=0)
            print(f"first save of {total / 1e6:.0f} MB: {first * 1000:.0f} ms, {total / first / 1e6:.0f} MB/s")
            same = [timed(repo.save, arrays, run="a", step=step) for step in range(1, 21)]
            print(f"nothing changed, median of 20: {statistics.median(same) * 1000:.1f} ms, best {min(same) * 1000:.1f}")
            changed = []
            for step in range(3):
                for array in arrays.values():
                    array *= np.float32(1.0 + 0.001 * (step + 1))
                changed.append(timed(repo.save, arrays, run="a", step=100 + step))
            best = total / min(changed) / 1e6
            print(f"everything changed: {total / statistics.median(changed) / 1e6:.0f} MB/s, best {best:.0f}")
            copies = []
            for _ in range(5):
                start = time.perf_counter()
                copy = {name: array.copy() for name, array in arrays.items()}
                copies.append(time.perf_counter() - start)
                del copy
            staged = []
            for step in range(5):
                staged.append(timed(repo.save_async, arrays, run="b", step=step))
                repo.flush()
            print(f"save_async returns: {min(staged) * 1000:.1f} ms; a copy: {min(copies) * 1000:.1f} ms")
            before = resident()
            reset_peak()
            for array in arrays.values():
                array += np.float32(0.001)
            repo.save_async(arrays, run="b", step=100).result()
            print(f"memory of save_async: peak {(peak() - before) / total:.2f} times the staged bytes")
        with fhrd.open(place / "many", create=True) as repo:
            small = {f"a{at}": np.zeros(1000, np.float32) for at in range(20)}
            times, memory = [], []
            for step in range(1000):
                small["a0"][step] = step
                times.append(timed(repo.save, small, run="m", step=step))
                if step in (99, 999):
                    memory.append(resident())
            print(f"1000 saves: memory {memory[0] / 1e6:.0f} MB after 100, {memory[1] / 1e6:.0f} MB after 1000")
            early, late = statistics.median(times[50:150]), statistics.median(times[900:])
            print(f"1000 saves: {early * 1000:.1f} ms at 100 steps, {late * 1000:.1f} ms at 1000")
        for count in (1, 200):
            with fhrd.open(place / f"load{count}", create=True) as repo:
                for step in range(count):
                    arrays["layer000"][:] = step
                    repo.save(arrays, run="l", step=step)
            with fhrd.open(place / f"load{count}") as repo:
                times = [timed(lambda: dict(repo.load(run="l", step=0))) for _ in range(7)]
                print(f"load of {total / 1e6:.0f} MB, {count} steps: {statistics.median(times) * 1000:.0f} ms")
        large = {f"a{at}": np.random.default_rng(at).integers(0, 255, 1 << 20, np.uint8) for at in range(1000)}
        with fhrd.open(place / "large", create=True) as repo:
            repo.save(large, run="a", step=1)
        with fhrd.open(place / "large") as repo:
            before = repo._native.bytes_read
            seconds = timed(lambda: repo.load(run="a")["a777"])
            read = repo._native.bytes_read - before
            print(f"1 MB of 1 GB: {read / 1e6:.2f} MB read in {seconds * 1000:.0f} ms")


if __name__ == "__main__":
    main()
