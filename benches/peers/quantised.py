"""Sets of quantised weights: after their source, dequantised to floats again, and of a fine-tune.

GGUF types are written by the package gguf, those of K by ggml's own functions in the package ctransformers. Rows
are cut to 256 values there, since those of the model are no multiple of it.
"""

import ctypes
import functools
import importlib.util
import os
import tempfile

import numpy as np

from sets import Set
from weights import E4M3, NF4, bf16, brains, e4m3, e4m3_values, entropy, file, wide


def grouped(values, group):
    """Rows, or groups of `group` values, and the greatest magnitude of each."""
    groups = values.reshape(-1, group) if group else values
    return groups, np.abs(groups).max(1, keepdims=True)


def scales_of(greatest, most):
    return np.where(greatest > 0, greatest / np.float32(most), np.float32(1)).astype(np.float32)


def integers(bits, group):
    most = 2 ** (bits - 1) - 1

    def quantise(values):
        groups, greatest = grouped(values, group)
        scales = scales_of(greatest, most)
        codes = np.clip(np.round(groups / scales), -most, most)
        return codes.astype(np.int8), scales, codes.astype(np.float32) * scales

    return quantise


def normal_float(values):
    groups, greatest = grouped(values, 64)
    scales = scales_of(greatest, 1)
    middle = (NF4[1:] + NF4[:-1]) / 2
    codes = np.searchsorted(middle, groups / scales)
    return codes.astype(np.int8), scales, NF4[codes] * scales


def eight(group):
    """E4M3 with a scale for each row, or for a tensor."""

    def quantise(values):
        groups, greatest = grouped(values, None)
        scales = scales_of(greatest if group else greatest.max().reshape(1, 1), 448)
        codes = e4m3(groups / scales)
        return codes, scales, e4m3_values()[codes] * scales

    return quantise


def with_feedback(values):
    """INT4 in groups of 128, where part of each column's error goes to the next column, much as GPTQ does."""
    groups, greatest = grouped(values, 128)
    scales = scales_of(greatest, 7)
    rest, codes = groups.copy(), np.empty(groups.shape, np.int8)
    for column in range(128):
        codes[:, column] = np.clip(np.round(rest[:, column] / scales[:, 0]), -7, 7)
        if column < 127:
            error = rest[:, column] - codes[:, column] * scales[:, 0]
            rest[:, column + 1] += np.float32(0.3) * error
    return codes, scales, codes.astype(np.float32) * scales


def packed(codes, shape):
    codes = codes.reshape(shape).astype(np.int16)
    codes = (codes + 8 if codes.min() < 0 else codes).astype(np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4


def stored_codes(quantised, model, is_small):
    """Tensors of a file: codes and scales."""
    tensors = {}
    for name, (codes, scales, _) in quantised.items():
        shape = model[name].shape
        plain = codes.view(E4M3) if codes.dtype == np.uint8 else codes.view(np.uint8)
        tensors[name] = packed(codes, shape) if is_small else plain.reshape(shape)
        tensors[f"{name}_scale"] = scales
    return tensors


def codes_of(quantised):
    return np.concatenate([one[0].ravel() for one in quantised.values()])


def scale_difference(later, own):
    """Entropy of FP32 scales less those of the base, at most the scales."""
    from weights import difference

    return sum(min(difference(later[name][1], own[name][1]), own[name][1].nbytes) for name in own)


def fine_tune_limit(later, own):
    return entropy(codes_of(later), codes_of(own)) + scale_difference(later, own)


def dequantised_sets(base, _):
    kinds = {"INT4 g128": integers(4, 128), "NF4 g64": normal_float, "INT8 rows": integers(8, None),
             "FP8 rows": eight(True)}
    for name, quantise in kinds.items():
        own = {tensor: quantise(values) for tensor, values in base.items()}
        limit = entropy(codes_of(own)) + sum(one[1].nbytes for one in own.values())
        for label, rounding in [("BF16", bf16), ("FP32", np.float32)]:
            values = {tensor: rounding(one[2]).reshape(base[tensor].shape) for tensor, one in own.items()}
            yield Set(8, f"{name}, dequantised to {label}", [], [("set", file(values))], limit)


def code_sets(base, tune):
    """Codes after their source, where scales are all that is new, and codes of a fine-tune after those of the base."""
    kinds = {"FP8 per tensor": eight(False), "FP8 rows": eight(True), "INT8 rows": integers(8, None),
             "GPTQ-like g128": with_feedback, "NF4 g64": normal_float}
    source = [("base", file(brains(base)))]
    rounded = {name: wide(values) for name, values in brains(base).items()}
    for name, quantise in kinds.items():
        is_small = "g" in name.split()[-1]
        own = {tensor: quantise(values) for tensor, values in base.items()}
        later = {tensor: quantise(values) for tensor, values in tune.items()}
        files = [file(stored_codes(one, base, is_small)) for one in (own, later)]
        yield Set(9, f"{name} of a fine-tune", [("base", files[0])], [("set", files[1])], fine_tune_limit(later, own))
        if name != "GPTQ-like g128":
            exact = {tensor: quantise(values) for tensor, values in rounded.items()}
            limit = sum(one[1].nbytes for one in exact.values()) if name != "FP8 per tensor" else 0
            added = [("set", file(stored_codes(exact, base, is_small)))]
            yield Set(4, f"{name}, after its BF16", source, added, limit)


class InitParams(ctypes.Structure):
    """What ggml_init takes."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


@functools.cache
def library():
    package = importlib.util.find_spec("ctransformers").submodule_search_locations[0]
    loaded = ctypes.CDLL(os.path.join(package, "lib/basic/libctransformers.so"))
    # The first context fills the tables of half floats, which the quantisers read.
    loaded.ggml_init.restype = ctypes.c_void_p
    loaded.ggml_init(InitParams(1 << 20, None, False))
    return loaded


def ggml(values, kind):
    """Rows of FP32 as blocks."""
    from gguf import GGML_QUANT_SIZES, quants

    values = np.ascontiguousarray(values, np.float32)
    if not kind.name.endswith("K"):
        return quants.quantize(values, kind)
    length, size = GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    out, counts = np.zeros((rows, columns // length * size), np.uint8), np.zeros(16, np.int64)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    quantise = getattr(library(), f"ggml_quantize_{kind.name.lower()[:-1]}K")
    # All values as one row: of more rows these functions of that package write only the first one.
    quantise(pointer(values), pointer(out), ctypes.c_int(values.size), ctypes.c_int(values.size), pointer(counts))
    return out


# Names of a layer's tensors, as llama.cpp's converter writes them.
GGUF_NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "up": "ffn_up", "down": "ffn_down"}


def gguf_name(name):
    if name == "embed":
        return "token_embd.weight"
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{GGUF_NAMES.get(part, part)}.weight"


def gguf(tensors):
    """The file of tensors as bytes: arrays of floats, or pairs of quantised rows and their type."""
    from gguf import GGMLQuantizationType, GGUFWriter

    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model.gguf")
        writer = GGUFWriter(path, "bert")
        for name, content in tensors.items():
            if isinstance(content, tuple):
                writer.add_tensor(gguf_name(name), content[0], raw_dtype=content[1])
            elif content.dtype == np.uint16:
                raw = np.ascontiguousarray(content).view(np.uint8)
                writer.add_tensor(gguf_name(name), raw, raw_dtype=GGMLQuantizationType.BF16)
            else:
                writer.add_tensor(gguf_name(name), content)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with open(path, "rb") as made:
            return {"model.gguf": made.read()}


# Bytes of a block that are scales.
SCALES = {"Q8_0": slice(0, 2), "Q4_0": slice(0, 2), "Q4_1": slice(0, 4), "Q5_0": slice(0, 2), "Q5_1": slice(0, 4),
          "Q2_K": [*range(16), 80, 81, 82, 83], "Q3_K": slice(96, 110), "Q4_K": slice(0, 16), "Q5_K": slice(0, 16),
          "Q6_K": slice(192, 210)}


def blocks_of(quantised):
    """All blocks, one a row."""
    from gguf import GGML_QUANT_SIZES

    return np.concatenate([rows.reshape(-1, GGML_QUANT_SIZES[kind][1]) for rows, kind in quantised.values()])


def scale_bytes(blocks, kind, base=None):
    """Entropy of each byte of the scales, given that of the base's."""
    columns = [blocks[:, SCALES[kind]]] + ([] if base is None else [base[:, SCALES[kind]]])
    return sum(entropy(*bytes_of) for bytes_of in zip(*(one.T for one in columns)))


def codes_given(blocks, kind, base):
    """Entropy of bytes of the codes given those of the base: by halves of a byte where codes have four bits."""
    rest = [np.delete(one, SCALES[kind], axis=1) for one in (blocks, base)]
    if kind == "Q8_0":
        return entropy(*rest)
    return entropy(rest[0] & 15, rest[1] & 15) + entropy(rest[0] >> 4, rest[1] >> 4)


def gguf_sets(base, tune):
    from gguf import GGMLQuantizationType

    cut = lambda model: {name: values.reshape(-1, 256) for name, values in model.items()}
    brain = {name: bf16(values) for name, values in cut(base).items()}
    source = [("base", gguf(brain))]
    make = lambda model, kind: {name: (ggml(values, kind), kind) for name, values in model.items()}
    for name in SCALES:
        kind = GGMLQuantizationType[name]
        own = make({tensor: wide(values) for tensor, values in brain.items()}, kind)
        limit = scale_bytes(blocks_of(own), name) if name.endswith("K") else 0
        yield Set(4, f"{name}, after its BF16", source, [("set", gguf(own))], limit)
        if name in ["Q8_0", "Q4_0", "Q4_K"]:
            own, later = (make(cut(model), kind) for model in (base, tune))
            blocks, changed = blocks_of(own), blocks_of(later)
            limit = codes_given(changed, name, blocks) + scale_bytes(changed, name, blocks)
            yield Set(9, f"{name} of a fine-tune", [("base", gguf(own))], [("set", gguf(later))], limit)


def of_matrices(make):
    only = lambda model: {name: values for name, values in model.items() if values.ndim == 2}
    return lambda base, tune: make(only(base), only(tune))


# Functions of a base and a fine-tune, and the groups of their sets.
SETS = [(of_matrices(gguf_sets), {4, 9}), (of_matrices(code_sets), {4, 9}), (of_matrices(dequantised_sets), {8})]
