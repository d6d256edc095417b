"""Bytes of files as other programs compress them: zstd, xz, and packages for weights or typed data where installed.

Each function has the files of some directories, one after another, and those of directories that are stored before. It
gives bytes, or None where the program cannot have the files or is missing. What compresses single files has them one by
one; z4ai and bigsmall also have each stored file as a base, and the least counts. The packages are zipnn, z4ai,
bigsmall and openzl of PyPI.
"""

import contextlib
import io
import lzma
import os
import subprocess
import tempfile

import numpy as np

from weights import tensors_of


def in_all(directories):
    return [content for files in directories for _, content in sorted(files.items())]


def is_safetensors(content):
    length = int.from_bytes(content[:8], "little")
    return 0 < length <= len(content) - 8 and content[8:9] == b"{"


def zstd(level, content, base=b""):
    words = ["zstd", f"-{level}", "-q", "-c"] + (["--long=27"] if level > 3 else [])
    with tempfile.TemporaryDirectory() as work:
        if base:
            path = os.path.join(work, "base")
            with open(path, "wb") as file:
                file.write(base)
            words.append(f"--patch-from={path}")
        path = os.path.join(work, "content")
        with open(path, "wb") as file:
            file.write(content)
        return len(subprocess.run([*words, path], check=True, capture_output=True).stdout)


def zstd_3(added, _):
    return sum(zstd(3, content) for content in in_all(added))


def zstd_19(added, stored):
    return zstd(19, b"".join(in_all(added)), b"".join(in_all(stored)))


def xz(added, _):
    return sum(len(lzma.compress(content, preset=6)) for content in in_all(added))


def zipnn(added, _):
    """The least of its three types of floats; zipnn fails on float32 whose last block is shorter than a value."""
    from zipnn import ZipNN

    def least(content):
        kinds = ["bfloat16", "float16"] + ["float32"] * (len(content) % 4 == 0)
        # zipnn changes the bytes of its input in place.
        return min(len(ZipNN(input_format="byte", bytearray_dtype=kind, threads=1).compress(bytearray(content)))
                   for kind in kinds)

    return sum(least(content) for content in in_all(added))


def with_bases(added, stored, alone, delta):
    """The sum over files of the least of `alone` and `delta` against files of the two directories before."""
    directories, total = [*stored, *added], 0
    for number, files in enumerate(added, len(stored)):
        bases = [one for one in in_all(directories[:number][-2:]) if is_safetensors(one)]
        for content in in_all([files]):
            sizes = [alone(content)]
            if is_safetensors(content):
                sizes += [delta(content, base) for base in bases]
            if None in sizes:
                return None
            total += min(sizes)
    return total


def z4ai(added, stored):
    from z4ai import compress, model_delta
    from z4ai.safetensors import compress_bytes

    def alone(content):
        if is_safetensors(content):
            return len(compress_bytes(content))
        return min(len(compress(content, dtype=dtype)) for dtype in [None, "bf16", "fp16", "fp32"])

    return with_bases(added, stored, alone, lambda content, base: len(model_delta.compress(content, base)))


def bigsmall(added, stored):
    """It takes safetensors only."""
    import bigsmall as package

    def run(make, *contents):
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()):
            paths = [os.path.join(work, f"{number}.safetensors") for number in range(len(contents))]
            for path, content in zip(paths, contents):
                with open(path, "wb") as file:
                    file.write(content)
            make(*paths, os.path.join(work, "out.bs"), workers=1, progress=False)
            return os.path.getsize(os.path.join(work, "out.bs"))

    alone = lambda content: run(package.compress, content) if is_safetensors(content) else None
    return with_bases(added, stored, alone, lambda content, base: run(package.compress_delta, content, base))


class OpenZL:
    """Graphs by the type of a tensor, as OpenZL has nodes for them: exponents apart, and its generic backend."""

    def __init__(self):
        from openzl import ext

        self.ext = ext

    def run(self, content, width, node=None):
        compressor, ext = self.ext.Compressor(), self.ext
        graph = ext.graphs.Compress()(compressor)
        if node is not None:
            graph = node(compressor, graph, graph)
        if width > 1:
            graph = ext.nodes.ConvertSerialToNumLE(width)(compressor, graph)
        compressor.select_starting_graph(graph)
        context = ext.CCtx()
        context.ref_compressor(compressor)
        context.set_parameter(ext.CParam.FormatVersion, ext.MAX_FORMAT_VERSION)
        return len(context.compress([ext.Input(ext.Type.Serial, np.frombuffer(content, np.uint8))]))

    def least(self, content, dtype):
        nodes = self.ext.nodes
        floats = {"BF16": nodes.BFloat16Deconstruct, "F16": nodes.Float16Deconstruct, "F32": nodes.Float32Deconstruct}
        widths = {"BF16": 2, "F16": 2, "U16": 2, "F32": 4, "I32": 4, "F64": 8}
        width = widths.get(dtype, 1)
        sizes = [self.run(content, width)]
        if dtype in floats:
            sizes.append(self.run(content, width, floats[dtype]()))
        return min(sizes)


def openzl(added, _):
    tool, total = OpenZL(), 0
    for content in in_all(added):
        if is_safetensors(content):
            end = 8 + int.from_bytes(content[:8], "little")
            total += tool.run(content[:end], 1)
            total += sum(tool.least(raw, dtype) for _, dtype, _, raw in tensors_of(content) if raw)
        elif content[:6] == b"\x93NUMPY":
            kinds = {"<u2": "U16", "<f4": "F32", "<f8": "F64", "<f2": "F16", "|u1": "U8"}
            found = next(kind for name, kind in kinds.items() if name.encode() in content[:128])
            total += tool.run(content[:128], 1) + tool.least(content[128:], found)
        else:
            total += min(tool.run(content, width) for width in [1, 2, 4] if len(content) % width == 0)
    return total


RIVALS = {
    "zstd -3": zstd_3,
    "zstd -19": zstd_19,
    "xz": xz,
    "zipnn": zipnn,
    "z4ai": z4ai,
    "bigsmall": bigsmall,
    "OpenZL": openzl,
}
