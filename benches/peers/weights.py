"""Weights of models in NumPy: reading, rounding and casts, safetensors files, and entropies of what they hold.

A model is a dictionary from names to arrays, float32 unless a function says otherwise. BF16 is uint16 here, and FP8 a
type with one field whose name is that of safetensors.
"""

import json
import os
import re

import numpy as np

# The numbers of NormalFloat with four bits.
NF4 = np.array(
    [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
     0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0], np.float32)
DTYPES = {"uint8": "U8", "uint16": "BF16", "float16": "F16", "float32": "F32", "int32": "I32"}
E4M3 = [("F8_E4M3", "u1")]


def bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(values):
    """Values in FP32. Those of 16 bits are BF16."""
    return values if values.dtype == np.float32 else (values.astype(np.uint32) << 16).view(np.float32)


def e4m3(values):
    """Codes of E4M3, as a cast without a scale gives them: to the nearest, ties to even."""
    size = [(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:127]
    size = np.array(size)
    middle = (size[1:] + size[:-1]) / 2
    magnitude = np.abs(values).astype(np.float64)
    code = np.searchsorted(middle, magnitude, "left")
    is_tie = (code < 126) & (magnitude == middle[np.minimum(code, 125)]) & (code % 2 == 1)
    return ((code + is_tie) | np.signbit(values) << 7).astype(np.uint8)


def e4m3_values():
    magnitudes = [(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)]
    magnitudes[127] = 0.0
    return np.array(magnitudes + [-one for one in magnitudes], np.float32)


def brains(tensors):
    return {name: bf16(wide(values)) for name, values in tensors.items()}


def halves(tensors):
    return {name: wide(values).astype(np.float16) for name, values in tensors.items()}


def eights(tensors):
    return {name: e4m3(wide(values)).view(E4M3) for name, values in tensors.items()}


# Tensors of a layer as models of sentence-transformers call them.
NAMES = {
    "attention.self.query.weight": "q",
    "attention.self.key.weight": "k",
    "attention.self.value.weight": "v",
    "attention.output.dense.weight": "o",
    "intermediate.dense.weight": "up",
    "output.dense.weight": "down",
}


def tensors_of(content):
    """Name, type in the file, shape and bytes of each tensor of a safetensors file."""
    end = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:end]).items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            yield name, entry["dtype"], entry["shape"], content[end + start : end + stop]


def read_model(directory, layers=None, rows=None):
    """The first layers of a model in FP32, and the first rows of its embedding; all of it without these numbers."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        content = file.read()
    tensors = {}
    for name, dtype, shape, raw in tensors_of(content):
        if dtype != "F32":
            continue
        values = np.frombuffer(raw, np.float32).reshape(shape)
        layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", name)
        if name == "embeddings.word_embeddings.weight":
            tensors["embed"] = values[:rows]
        elif layer and (layers is None or int(layer[1]) < layers):
            tensors[f"layer.{layer[1]}.{NAMES.get(layer[2], layer[2])}"] = values
    return tensors


def safetensors(tensors):
    """The bytes of a file."""
    header, offset, parts = {}, 0, []
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values)
        dtype = raw.dtype.names[0] if raw.dtype.names else DTYPES[raw.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(raw.shape), "data_offsets": [offset, offset + raw.nbytes]}
        offset += raw.nbytes
        parts.append(raw.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def file(tensors):
    """The files of a directory with one model."""
    return {"model.safetensors": safetensors(tensors)}


def entropy(symbols, context=None):
    """Bytes that symbols need by their order-0 entropy, or by that given a context of the same length."""
    symbols = symbols.ravel().astype(np.int64)
    symbols -= symbols.min(initial=0)
    if context is None:
        return total_bits(symbols) / 8
    context = context.ravel().astype(np.int64)
    context -= context.min(initial=0)
    return (total_bits(context * (symbols.max(initial=0) + 1) + symbols) - total_bits(context)) / 8


def total_bits(symbols):
    counts = np.bincount(symbols) if symbols.max(initial=0) < 1 << 24 else np.unique(symbols, return_counts=True)[1]
    counts = counts[counts > 0].astype(np.float64)
    return float(len(symbols) * np.log2(max(len(symbols), 1)) - (counts * np.log2(counts)).sum())


def planes(values):
    """Bytes of floats by the entropy of their exponents, and of the other bits by bytes."""
    if values.dtype == np.float32:
        bits = values.ravel().view(np.uint32)
        parts = [bits >> 23 & 255, (bits >> 16 & 127) | bits >> 31 << 7, bits >> 8 & 255, bits & 255]
    elif values.dtype == np.float16:
        bits = values.ravel().view(np.uint16)
        parts = [bits >> 10 & 31, (bits >> 3 & 127) | bits >> 15 << 7, bits & 7]
    elif values.dtype == np.uint16:
        parts = [values.ravel() >> 7 & 255, (values.ravel() & 127) | values.ravel() >> 15 << 7]
    else:
        parts = [values.ravel().view(np.uint8)]
    return sum(entropy(part) for part in parts)


def difference(values, base):
    """Bytes of floats by the entropy of their bits less those of the same values of a base."""
    size = values.dtype.itemsize
    signed = {1: np.int8, 2: np.int16, 4: np.int32}[size]
    raw = [np.ascontiguousarray(one).view(f"u{size}").astype(np.int64) for one in (values, base)]
    step = (raw[0] - raw[1]).astype(signed).ravel()
    if size < 4:
        return entropy(step)
    # Of 32 bits only the length of the difference is a symbol. The bits below its first one are taken as they are.
    length = np.ceil(np.log2(np.abs(step.astype(np.float64)) + 1)).astype(np.int64)
    return entropy(length * 2 + (step < 0)) + float(np.maximum(length - 1, 0).sum()) / 8


def of_all(measure, *models):
    """The sum of a measure over the tensors of a model, or of one model and another one."""
    return sum(measure(*(model[name] for model in models)) for name in models[0])
