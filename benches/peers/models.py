#!/usr/bin/env python3
"""Stored bytes of slices of a model, of slices of a fine-tune of it, and of copies of it in other float formats.

Each set is a repository of its own: first a base model (safetensors), then the set. The table has the bytes that the
second backup adds, in MB (10^6), for each program, and the bytes of the set's files. Every snapshot is restored and
compared. With --zstd it also has what `zstd -19 --long=27` adds for the set behind the same files.

Sets whose names begin with "file" are a repository of their own. Those of a checkpoint are the weights, both moments of
Adam and a copy of the weights.

    benches/peers/models.py [--layers 4] [--width 384] [--work /tmp] OLD/fhrd NEW/fhrd
    benches/peers/models.py --base corpus/models/minilm-base-bf16 --tune corpus/models/minilm-runA-step0060-bf16 \\
        --layers 2 --zstd OLD/fhrd NEW/fhrd

Without directories of a base and a fine-tune, weights are random walks from a normal distribution, so that neighbouring
steps differ as steps of a training do. Of models in directories, the first layers and 4,000 rows of the embedding are
taken. Needs numpy.
"""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile

import numpy as np


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Model:
    """Tensors by name, float32, before rounding."""

    def __init__(self, tensors):
        self.tensors = tensors

    def tuned(self, seed, size=4e-4, steps=4):
        random = np.random.default_rng(seed)
        walk = lambda values: values + sum(
            random.standard_normal(values.shape, np.float32) * np.float32(size / steps**0.5) for _ in range(steps)
        )
        return Model({name: walk(values) for name, values in self.tensors.items()})


def base_model(layers, width):
    random = np.random.default_rng(1)
    draw = lambda *shape: random.standard_normal(shape, np.float32) * np.float32(0.04)
    tensors = {"embed": draw(4000, width)}
    for layer in range(layers):
        for name in ["q", "k", "v", "o"]:
            tensors[f"layer.{layer}.{name}"] = draw(width, width)
        tensors[f"layer.{layer}.up"] = draw(4 * width, width)
        tensors[f"layer.{layer}.down"] = draw(width, 4 * width)
        tensors[f"layer.{layer}.bias"] = draw(width)
    return Model(tensors)


# Tensors of a layer as models of sentence-transformers call them.
NAMES = {
    "attention.self.query.weight": "q",
    "attention.self.key.weight": "k",
    "attention.self.value.weight": "v",
    "attention.output.dense.weight": "o",
    "intermediate.dense.weight": "up",
    "output.dense.weight": "down",
}


def read_model(directory, layers):
    """The bits of the first layers of a model in BF16 or FP32, and 4,000 rows of its embedding."""
    content = open(os.path.join(directory, "model.safetensors"), "rb").read()
    end = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:end]).items():
        if entry.get("dtype") not in ["BF16", "F32"]:
            continue
        start, stop = entry["data_offsets"]
        kind = {"BF16": np.uint16, "F32": np.float32}[entry["dtype"]]
        values = np.frombuffer(content[end + start : end + stop], kind).reshape(entry["shape"])
        layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", name)
        if name == "embeddings.word_embeddings.weight":
            tensors["embed"] = values[:4000]
        elif layer and int(layer[1]) < layers:
            tensors[f"layer.{layer[1]}.{NAMES.get(layer[2], layer[2])}"] = values
    return tensors


DTYPES = {"uint8": "U8", "uint16": "BF16", "float16": "F16", "float32": "F32"}


def safetensors(path, tensors):
    header, offset, parts = {}, 0, []
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values)
        dtype = raw.dtype.names[0] if raw.dtype.names else DTYPES[raw.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(raw.shape), "data_offsets": [offset, offset + raw.nbytes]}
        offset += raw.nbytes
        parts.append(raw.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


def layers_of(tensors, name):
    return [values for key, values in tensors.items() if key.endswith("." + name)]


def flat(tensors):
    return {"flat_param": np.concatenate([values.ravel() for values in tensors.values()])}


def row_shards(tensors):
    return [
        {name: values[: len(values) // 2] for name, values in tensors.items()},
        {name: values[len(values) // 2 :] for name, values in tensors.items()},
    ]


def column_shards(tensors):
    wide = {name: values for name, values in tensors.items() if values.ndim > 1}
    half = lambda values: values.shape[1] // 2
    return [
        {name: values[:, : half(values)] for name, values in wide.items()},
        {name: values[:, half(values) :] for name, values in wide.items()},
    ]


def stacked(tensors):
    return {name: np.stack(layers_of(tensors, name)) for name in ["up", "down"]}


def fused(tensors):
    parts = zip(*(layers_of(tensors, name) for name in "qkv"))
    return {f"layer.{number}.qkv": np.concatenate(qkv) for number, qkv in enumerate(parts)}


def pruned_rows(tensors):
    random = np.random.default_rng(3)
    kept = lambda values: values[np.sort(random.permutation(len(values))[: len(values) * 91 // 100])]
    return {name: kept(values) if name.endswith("up") else values for name, values in tensors.items()}


def rows_in_front(tensors):
    embed = tensors["embed"]
    new = np.random.default_rng(4).standard_normal((4, embed.shape[1]), np.float32) * np.float32(0.04)
    new = new if embed.dtype == np.float32 else bf16(new)
    return {**tensors, "embed": np.concatenate([new, embed])}


def transposed(tensors):
    return {name: values.T for name, values in tensors.items() if values.ndim > 1 and name != "embed"}


def other_width(tensors):
    """BF16 as FP32, and FP32 as BF16."""
    widened = lambda values: (values.astype(np.uint32) << 16).view(np.float32)
    cast = lambda values: bf16(values) if values.dtype == np.float32 else widened(values)
    return {name: cast(values) for name, values in tensors.items()}


def wide(values):
    """Values in FP32. Those of 16 bits are BF16."""
    return values if values.dtype == np.float32 else (values.astype(np.uint32) << 16).view(np.float32)


def halves(tensors):
    return {name: wide(values).astype(np.float16) for name, values in tensors.items()}


def brains(tensors):
    return {name: bf16(wide(values)) for name, values in tensors.items()}


def eights(tensors):
    """E4M3, as a cast without a scale gives it: to the nearest, ties to even."""
    size = np.array([(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:127])
    middle = (size[1:] + size[:-1]) / 2

    def cast(values):
        values = wide(values)
        magnitude = np.abs(values).astype(np.float64)
        code = np.searchsorted(middle, magnitude, "left")
        is_tie = (code < 126) & (magnitude == middle[np.minimum(code, 125)]) & (code % 2 == 1)
        return ((code + is_tie) | np.signbit(values) << 7).astype(np.uint8).view([("F8_E4M3", "u1")])

    return {name: cast(values) for name, values in tensors.items()}


def prefixed(prefix, tensors):
    return {f"{prefix}.{name}": values for name, values in tensors.items()}


def all_formats(tensors):
    single = {name: wide(values) for name, values in tensors.items()}
    return {**prefixed("fp32", single), **prefixed("bf16", brains(tensors)), **prefixed("fp16", halves(tensors))}


def checkpoint(tensors):
    """Weights in FP32, moments of their size as Adam has them after some steps, and the weights in BF16."""
    random = np.random.default_rng(9)
    single = {name: wide(values) for name, values in tensors.items()}
    moment = lambda values: random.standard_normal(values.shape, np.float32) * np.float32(1e-4)
    first = {name: moment(values) for name, values in single.items()}
    second = {name: np.square(moment(values)) for name, values in single.items()}
    moments = {**prefixed("exp_avg", first), **prefixed("exp_avg_sq", second)}
    return {**prefixed("model", single), **moments, **prefixed("bf16", brains(tensors))}


# Repositories of their own: the copies, and what they should cost.
FILES = {
    "file of FP32": lambda tensors: prefixed("fp32", {name: wide(values) for name, values in tensors.items()}),
    "file of FP32, BF16, FP16": all_formats,
    "file of BF16, FP16, FP32": lambda tensors: dict(reversed(all_formats(tensors).items())),
    "file of w, m, v": lambda tensors: {k: v for k, v in checkpoint(tensors).items() if not k.startswith("bf16")},
    "file of w, m, v, BF16": checkpoint,
}

SETS = {
    "copy in BF16": lambda tensors: [brains(tensors)],
    "copy in FP16": lambda tensors: [halves(tensors)],
    "copy in E4M3": lambda tensors: [eights(tensors)],
    "flat buffer": lambda tensors: [flat(tensors)],
    "row shards": row_shards,
    "column shards": column_shards,
    "stacked experts": lambda tensors: [stacked(tensors)],
    "fused QKV": lambda tensors: [fused(tensors)],
    "rows removed": lambda tensors: [pruned_rows(tensors)],
    "rows in front": lambda tensors: [rows_in_front(tensors)],
    "flat, other width": lambda tensors: [flat(other_width(tensors))],
    "transposed": lambda tensors: [transposed(tensors)],
    "same tensors": lambda tensors: [tensors],
}


def soup(share, make):
    """Part of the way from one model to the other, in FP32, and in the format that `make` gives."""
    step = lambda one, other: one + (other - one) * np.float32(share)
    return lambda one, other: make({name: step(wide(one[name]), wide(other[name])) for name in one})


# Made of a model and its fine-tune, which are stored.
SOUPS = {
    "average": soup(0.5, brains),
    "0.3 of the way": soup(0.3, brains),
    "beyond, 1.4": soup(1.4, brains),
}


def write_set(directory, shards, is_opaque):
    for number, tensors in enumerate(shards):
        path = os.path.join(directory, f"part-{number}", "model.safetensors")
        safetensors(path, tensors)
        if is_opaque:
            # A format that no program here reads: the tensors one after another.
            os.rename(path, path.replace("model.safetensors", "weights.bin"))
            with open(path.replace("model.safetensors", "weights.bin"), "r+b") as file:
                file.write(b"\xff" * 8)


def size(directory):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(directory) for name in names)


def files(directory):
    found = {}
    for top, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(top, name)
            found[os.path.relpath(path, directory)] = open(path, "rb").read()
    return found


def added(program, work, base, extra):
    """Bytes that a backup of `extra` adds to a repository with the directories `base`."""
    repository, restored = os.path.join(work, "repository"), os.path.join(work, "restored")
    environment = {**os.environ, "FHRD_REPO": repository}
    run = lambda *words: subprocess.run([program, *words], check=True, env=environment, stdout=subprocess.DEVNULL)
    for directory in [repository, restored]:
        shutil.rmtree(directory, ignore_errors=True)
    run("init")
    for directory in base:
        run("backup", directory)
    before = size(repository)
    run("backup", extra)
    run("restore", "latest", "--target", restored)
    if files(os.path.join(restored, extra.lstrip("/"))) != files(extra):
        raise SystemExit(f"{program}: restored other bytes of {extra}")
    return size(repository) - before


def zstd_bytes(directories):
    """What zstd makes of all files of these directories, one after another."""
    command = ["zstd", "-19", "--long=27", "-q", "-c"]
    content = b"".join(files(directory)[name] for directory in directories for name in sorted(files(directory)))
    return len(subprocess.run(command, check=True, input=content, stdout=subprocess.PIPE).stdout)


zstd_of_stored = functools.cache(zstd_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--work", default=None)
    parser.add_argument("--only", default=None, help="sets whose names contain this")
    parser.add_argument("--base", help="directory of a model in BF16 or FP32, in place of random weights")
    parser.add_argument("--tune", help="directory of a fine-tune of it, of the same type")
    parser.add_argument("--zstd", action="store_true")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    if arguments.base:
        base, tune = (read_model(directory, arguments.layers) for directory in [arguments.base, arguments.tune])
    else:
        model = base_model(arguments.layers, arguments.width)
        rounded = lambda model: {name: bf16(values) for name, values in model.tensors.items()}
        base, tune = rounded(model), rounded(model.tuned(2))
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        directories = {name: os.path.join(work, name) for name in ["base", "tune", "set"]}
        safetensors(os.path.join(directories["base"], "model.safetensors"), base)
        safetensors(os.path.join(directories["tune"], "model.safetensors"), tune)
        columns = [f"{name[-12:]:>12}" for name in arguments.programs + ["zstd"] * arguments.zstd]
        print(f"{'set':40} {'MB':>8}  " + "  ".join(columns))
        rows = [("fine-tune", None, ["base"])]
        rows += [(name, ([make(base)], False), []) for name, make in FILES.items()]
        for name, make in SETS.items():
            rows += [
                (name, (make(base), False), ["base"]),
                (f"{name} of fine-tune", (make(tune), False), ["base"]),
                (f"{name} of stored fine-tune", (make(tune), False), ["base", "tune"]),
                (f"{name}, opaque", (make(base), True), ["base"]),
                (f"{name} of fine-tune, opaque", (make(tune), True), ["base"]),
            ]
        rows += [(f"soup, {name}", ([make(base, tune)], False), ["base", "tune"]) for name, make in SOUPS.items()]
        single = [soup(share, dict)(base, tune) for share in [0.1234567, 0.7654321]]
        for name, tensors in zip(["base32", "tune32"], single):
            directories[name] = os.path.join(work, name)
            safetensors(os.path.join(directories[name], "model.safetensors"), tensors)
        for name, share in [("average", 0.5), ("0.3 of the way", 0.3)]:
            rows.append((f"soup, {name}, FP32", ([soup(share, dict)(*single)], False), ["base32", "tune32"]))
        for name, content, stored in rows:
            if arguments.only and arguments.only not in name:
                continue
            extra = directories["tune"] if content is None else directories["set"]
            if content is not None:
                shutil.rmtree(extra, ignore_errors=True)
                write_set(extra, *content)
            stored = tuple(directories[one] for one in stored)
            figures = [added(program, work, stored, extra) for program in arguments.programs]
            if arguments.zstd:
                figures.append(zstd_bytes((*stored, extra)) - zstd_of_stored(stored))
            columns = [f"{one / 1e6:12.3f}" for one in figures]
            print(f"{name:40} {size(extra) / 1e6:8.2f}  " + "  ".join(columns), flush=True)


if __name__ == "__main__":
    main()
