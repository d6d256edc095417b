#!/usr/bin/env python3
"""Compares fhrd's float codecs with zipnn: one thread, the same bytes, rounds in turn, CPU time, in memory.

    cargo build --release --example float_blocks
    zipnn_blocks.py [--rounds 15] [--block-kib 512] [--bytes-max N] [--named TEXT] [--against BASE] FILE...

Each FILE is a .safetensors file. Its tensors of at least 64 KiB are measured that have the type of most bytes (BF16,
FP16 or FP32) and TEXT in their name, concatenated, up to N bytes (default 24 MiB). In each round, and for each FILE in
turn, zipnn compresses them at once, fhrd encodes them in blocks, zipnn decompresses, fhrd decodes. With --against, fhrd
encodes deltas to the tensors of the same names in BASE, and zipnn is skipped.

To be fair, only calls are timed, in the CPU time of the process that makes them. fhrd writes into buffers that it
keeps. zipnn's calls return new objects, so its process runs with an allocator that keeps freed memory. Its pages are
mapped after the first round, which is not counted. zipnn changes its input in place, so it gets a copy in each round,
made before the time starts. Results are compared with the input.

FLOAT_BLOCKS selects another program than target/release/examples/float_blocks. zipnn (0.5 was used) must be importable.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TYPES = {"BF16": ("bfloat16", "bf16"), "F16": ("float16", "fp16"), "F32": ("float32", "fp32")}
TENSOR_BYTES_MIN = 64 << 10
# The allocator keeps every block that it takes from the system.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_TOP_PAD_": "0"}


def tensors(path):
    """The type of most bytes of a safetensors file, and the bytes of its large tensors by name."""
    content = memoryview(Path(path).read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8:start]))
    header.pop("__metadata__", None)
    large, taken = {}, {}
    for name, tensor in sorted(header.items()):
        begin, end = tensor["data_offsets"]
        if end - begin >= TENSOR_BYTES_MIN and tensor["dtype"] in TYPES:
            large[name] = tensor["dtype"], content[start + begin : start + end]
            taken[tensor["dtype"]] = taken.get(tensor["dtype"], 0) + end - begin
    if not taken:
        sys.exit(f"{path}: no large tensors of floats")
    dtype = max(taken, key=taken.get)
    return dtype, {name: part for name, (own, part) in large.items() if own == dtype}


class Fhrd:
    """The process of float_blocks, one for each FILE."""

    def __init__(self, program, dtype, block_bytes, *contents):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with tempfile.TemporaryDirectory() as directory:
            paths = [Path(directory, str(number)) for number in range(len(contents))]
            for path, content in zip(paths, contents):
                path.write_bytes(content)
            self.send("load", TYPES[dtype][1], block_bytes, *paths)

    def send(self, *command):
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def encode(self):
        seconds, length = self.send("encode")
        return float(seconds), int(length)

    def decode(self):
        seconds, is_same = self.send("decode")
        return float(seconds), is_same == "1"


class Zipnn:
    """zipnn in this process."""

    def __init__(self, dtype, raw):
        import zipnn

        self.raw = raw
        self.codec = zipnn.ZipNN(input_format="byte", bytearray_dtype=TYPES[dtype][0], threads=1)

    def encode(self):
        content = bytearray(self.raw)
        start = time.process_time()
        self.encoded = self.codec.compress(content)
        return time.process_time() - start, len(self.encoded)

    def decode(self):
        start = time.process_time()
        decoded = self.codec.decompress(self.encoded)
        return time.process_time() - start, decoded == self.raw


class Case:
    """One FILE, with every tool and its times."""

    def __init__(self, path, options):
        dtype, parts = tensors(path)
        parts = {name: part for name, part in parts.items() if options.named in name}
        contents = [parts.values()]
        if options.against:
            base = tensors(options.against)[1]
            names = [name for name, part in parts.items() if len(base.get(name, b"")) == len(part)]
            contents = [[parts[name] for name in names], [base[name] for name in names]]
        contents = [b"".join(parts)[: options.bytes_max] for parts in contents]
        self.name, self.raw_bytes = f"{Path(path).parent.name}/{Path(path).name}", len(contents[0])
        if not self.raw_bytes:
            sys.exit(f"{path}: no such tensors")
        self.tools = {"fhrd": Fhrd(options.program, dtype, options.block_kib << 10, *contents)}
        if not options.against:
            self.tools = {"zipnn": Zipnn(dtype, contents[0]), **self.tools}
        self.times = {(tool, step): [] for tool in self.tools for step in ("encode", "decode")}
        self.bytes = {}

    def run(self):
        for step in ("encode", "decode"):
            for name, tool in self.tools.items():
                seconds, result = getattr(tool, step)()
                self.times[name, step].append(seconds)
                if step == "encode":
                    self.bytes[name] = result
                elif not result:
                    sys.exit(f"{self.name}: {name} decoded other bytes")

    def show(self):
        print(f"\n{self.name}: {self.raw_bytes} bytes, {len(self.times['fhrd', 'encode']) - 1} rounds")
        print(f"{'':8}{'ratio':>8}{'encode MB/s (least, median)':>32}{'decode MB/s (least, median)':>32}")
        for tool in self.tools:
            cells = []
            for step in ("encode", "decode"):
                times = self.times[tool, step][1:]
                least, median = (self.raw_bytes / seconds / 1e6 for seconds in (max(times), statistics.median(times)))
                cells.append(f"{least:20.0f} {median:11.0f}")
            print(f"{tool:8}{self.raw_bytes / self.bytes[tool]:8.4f}{''.join(cells)}")
        if "zipnn" in self.tools:
            cells = []
            for step in ("encode", "decode"):
                pairs = zip(self.times["zipnn", step][1:], self.times["fhrd", step][1:])
                quotients = [other / own for other, own in pairs]
                cells.append(f"{min(quotients):20.2f} {statistics.median(quotients):11.2f}")
            print(f"{'quotient':8}{self.bytes['zipnn'] / self.bytes['fhrd']:8.4f}{''.join(cells)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block-kib", type=int, default=512)
    parser.add_argument("--bytes-max", type=int, default=24 << 20)
    parser.add_argument("--named", default="")
    parser.add_argument("--against", metavar="BASE")
    options = parser.parse_args()
    options.program = os.environ.get("FLOAT_BLOCKS", ROOT / "target/release/examples/float_blocks")
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    warnings.simplefilter("ignore")
    cases = [Case(path, options) for path in options.files]
    for _ in range(options.rounds + 1):
        for case in cases:
            case.run()
    for case in cases:
        case.show()


if __name__ == "__main__":
    main()
