#!/usr/bin/env python3
"""Times of restores of steps of a training, as multiples of that of the same step alone.

    benches/peers/steps.py corpus/models/minilm-base-bf16/model.safetensors fhrd --share 0.01 --steps 40

In each step, a share of the elements of a BF16 model goes one bit step up or down at random. Each restore of a step is
followed by one of a repository that has this step alone; medians of seven such pairs. Needs numpy.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

import numpy as np

ROUNDS = 7


def run(program, repository, *words):
    found = subprocess.run([program, "--repo", repository, *words], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{program} {' '.join(words)}: {found.stderr}")
    return found.stdout


def size(directory):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(directory) for name in names)


def timed(program, repository, snapshot, target):
    """Wall and CPU seconds of a restore."""
    shutil.rmtree(target, ignore_errors=True)
    before, start = cpu_seconds(), time.monotonic()
    run(program, repository, "restore", snapshot, "--target", target)
    return time.monotonic() - start, cpu_seconds() - before


def cpu_seconds():
    """Of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("program")
    options.add_argument("--share", type=float, default=0.01)
    options.add_argument("--steps", type=int, default=40)
    options = options.parse_args()
    with open(options.model, "rb") as file:
        content = file.read()
    head = 8 + struct.unpack("<Q", content[:8])[0]
    values = np.frombuffer(content[head:], np.uint16).copy()
    random = np.random.default_rng(1)
    chosen = [step for step in (1, 10, 20, 30, 40) if step <= options.steps]
    with tempfile.TemporaryDirectory() as work:
        run_of_steps = os.path.join(work, "run")
        run(options.program, run_of_steps, "init")
        source, added = os.path.join(work, "source"), []
        os.mkdir(source)
        for step in range(1, options.steps + 1):
            changed = random.random(values.size) < options.share
            values[changed] += random.choice(np.array([1, 65535], np.uint16), changed.sum())
            with open(os.path.join(source, "model.safetensors"), "wb") as file:
                file.write(content[:head] + values.tobytes())
            before = size(run_of_steps)
            run(options.program, run_of_steps, "backup", source, "--tag", f"step-{step}")
            added.append(size(run_of_steps) - before)
            if step in chosen:
                alone = os.path.join(work, f"alone-{step}")
                run(options.program, alone, "init")
                run(options.program, alone, "backup", source)
        print(f"steps after the first: {sum(added[1:]) / 1e6:.2f} MB")
        found = json.loads(run(options.program, run_of_steps, "snapshots", "--json"))
        found = found["snapshots"] if isinstance(found, dict) else found
        snapshots = {snapshot["tags"][0]: snapshot["id"] for snapshot in found}
        for step in chosen:
            target, pairs = os.path.join(work, "target"), []
            for _ in range(ROUNDS):
                alone = timed(options.program, os.path.join(work, f"alone-{step}"), "latest", target)
                own = timed(options.program, run_of_steps, snapshots[f"step-{step}"], target)
                pairs.append([one / other for one, other in zip(own, alone)])
            wall, cpu = (statistics.median(pair[which] for pair in pairs) for which in (0, 1))
            print(f"step {step}: wall {wall:.2f}, CPU {cpu:.2f} of the step alone")


if __name__ == "__main__":
    main()
