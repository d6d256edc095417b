#!/usr/bin/env python3
"""Stored bytes of weights that were quantised: dequantised to floats again, and as codes of a fine-tune.

The weights are the first layers of a model in FP32 (safetensors). A dequantised set is a repository of its own. Codes
of a fine-tune, a Gaussian step from the model, are added to a repository with the codes of the model. The table has MB
(10^6 bytes) of the set's file, of `zstd -19 --long=27` (behind the codes of the model), of each program, and the limit:
the order-0 entropy of the codes, given those of the model for a fine-tune, and the scales as they are. Every snapshot
is restored and compared.

    benches/peers/quantised.py --base MODEL [--layers 6] [--work /tmp] OLD/fhrd NEW/fhrd

Needs numpy.
"""

import argparse
import os
import shutil
import tempfile

import numpy as np

from models import Model, added, bf16, read_model, safetensors, size, zstd_bytes, zstd_of_stored

# The numbers of NormalFloat with four bits.
NF4 = np.array(
    [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
     0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0], np.float32)


def grouped(values, group):
    """Rows, or groups of `group` values, and the greatest magnitude of each."""
    groups = values.reshape(-1, group) if group else values
    return groups, np.abs(groups).max(1, keepdims=True)


def integers(bits, group):
    most = 2 ** (bits - 1) - 1

    def quantise(values):
        groups, greatest = grouped(values, group)
        scales = np.where(greatest > 0, greatest / np.float32(most), np.float32(1)).astype(np.float32)
        codes = np.clip(np.round(groups / scales), -most, most)
        return codes.astype(np.int8), scales, codes.astype(np.float32) * scales

    return quantise


def normal_float(group):
    def quantise(values):
        groups, greatest = grouped(values, group)
        scales = np.where(greatest > 0, greatest, np.float32(1)).astype(np.float32)
        codes = np.abs(groups[..., None] / scales[..., None] - NF4).argmin(-1)
        return codes.astype(np.int8), scales, NF4[codes] * scales

    return quantise


def entropy_bytes(symbols, given=None):
    """The order-0 entropy, or that given symbols of the same length."""
    count = lambda values: np.unique(values, return_counts=True)[1]
    bits = lambda counts: float(len(symbols) * np.log2(len(symbols)) - (counts * np.log2(counts)).sum())
    symbols = symbols.astype(np.int64)
    if given is None:
        return bits(count(symbols)) / 8
    return (bits(count(symbols + 1000 * given.astype(np.int64))) - bits(count(given))) / 8


QUANTISERS = {"INT4 g128": integers(4, 128), "NF4 g64": normal_float(64), "INT8 rows": integers(8, None)}


def sets(base, tune):
    """Name, tensors of the set, tensors that are stored before or None, and the limit in bytes."""
    for name, quantise in QUANTISERS.items():
        own = {tensor: quantise(values) for tensor, values in base.items()}
        later = {tensor: quantise(values) for tensor, values in tune.items()}
        codes, later_codes = (np.concatenate([one[0].ravel() for one in of.values()]) for of in (own, later))
        scales = sum(one[1].nbytes for one in own.values())
        for label, rounding in [("BF16", bf16), ("FP32", np.float32)]:
            values = {tensor: rounding(one[2]).reshape(base[tensor].shape) for tensor, one in own.items()}
            yield f"{name} as {label}", values, None, entropy_bytes(codes) + scales
        first = np.int8(8 if "4" in name else 0)
        packed = [
            {tensor: one[0].reshape(base[tensor].shape) + first for tensor, one in of.items()} for of in (own, later)
        ]
        if "4" in name:
            packed = [{t: (v[:, ::2] & 15 | v[:, 1::2] << 4).view(np.uint8) for t, v in of.items()} for of in packed]
        else:
            packed = [{t: v.view(np.uint8) for t, v in of.items()} for of in packed]
        yield f"{name}, codes of a fine-tune", packed[1], packed[0], entropy_bytes(later_codes, codes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="directory of a model in FP32")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--work", default=None)
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    model = read_model(arguments.base, arguments.layers)
    base = {name: values for name, values in model.items() if values.ndim == 2 and values.size % 128 == 0}
    tune = Model(base).tuned(2).tensors
    columns = "  ".join(f"{name[-12:]:>12}" for name in ["zstd", *arguments.programs, "limit"])
    print(f"{'set':32} {'MB':>8}  {columns}")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        before, extra = os.path.join(work, "before"), os.path.join(work, "set")
        for name, tensors, stored, limit in sets(base, tune):
            for directory in [before, extra]:
                shutil.rmtree(directory, ignore_errors=True)
            safetensors(os.path.join(extra, "model.safetensors"), tensors)
            if stored is not None:
                safetensors(os.path.join(before, "model.safetensors"), stored)
            directories = [] if stored is None else [before]
            zstd_of_stored.cache_clear()
            zstd = zstd_bytes((*directories, extra)) - (zstd_of_stored((before,)) if stored else 0)
            figures = [zstd, *(added(program, work, directories, extra) for program in arguments.programs), limit]
            columns = "  ".join(f"{one / 1e6:12.3f}" for one in figures)
            print(f"{name:32} {size(extra) / 1e6:8.2f}  {columns}", flush=True)


if __name__ == "__main__":
    main()
