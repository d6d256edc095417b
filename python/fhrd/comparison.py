"""What differs between two checkpoints: tensor by tensor, and layer by layer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import arrays as conversion
from .checkpoint import LoadedArrays
from .reports import TensorChange
from .table import Rows, Table, html_table

#: Bytes that are compared at once.
_STEP_BYTES = 1 << 20
#: The part of a name that numbers a layer: `3`, or `Dense_3`.
_NUMBER = re.compile(r"(\w+_)?\d+")


class TensorDiff(Rows[TensorChange]):
    """The tensors that differ, as a list. A notebook shows the layers."""

    def __init__(self, changes: list[TensorChange], layers: Table) -> None:
        super().__init__(changes)
        #: For each layer with tensors in both checkpoints: `layer`, `tensors`, those that are `changed`, and the
        #: `bit_distance`, which is the mean number of differing bits of a value, unchanged tensors included.
        self.layers = layers

    def _repr_html_(self) -> str:
        return html_table(f"{len(self)} tensors differ", self.layers.columns, self.layers)


def compare(old: LoadedArrays, new: LoadedArrays) -> TensorDiff:
    """What differs between two files of arrays."""
    changes: list[TensorChange] = []
    layers: dict[str, list[int]] = {}
    for name in sorted({*old, *new}):
        info = new.info(name) if name in new else old.info(name)
        kind, distance = "added" if name not in old else "removed", None
        if name in old and name in new:
            one, other = old.info(name), new.info(name)
            if (one.dtype, one.shape, one.true_type) != (other.dtype, other.shape, other.true_type):
                kind = "reshaped"
            else:
                bits = _differing_bits(old.read_bytes(name), new.read_bytes(name))
                values = int(np.prod(info.shape, dtype=np.int64))
                sums = layers.setdefault(layer_of(name), [0, 0, 0, 0])
                for at, more in enumerate((1, int(bits > 0), bits, values)):
                    sums[at] += more
                if bits == 0:
                    continue
                kind, distance = "changed", bits / max(values, 1)
        changes.append(TensorChange(name, kind, info.dtype, info.shape, distance))
    rows: list[dict[str, Any]] = [
        {"layer": layer, "tensors": tensors, "changed": changed, "bit_distance": bits / max(values, 1)}
        for layer, (tensors, changed, bits, values) in layers.items()
    ]
    return TensorDiff(changes, Table(["layer", "tensors", "changed", "bit_distance"], rows))


def layer_of(name: str) -> str:
    """The layer of a tensor: its name up to the first number, such as `model.layers.3`, or else without its last part."""
    parts = re.split(r"([./])", name)
    for at in range(0, len(parts), 2):
        if _NUMBER.fullmatch(parts[at]):
            return "".join(parts[: at + 1])
    return "".join(parts[:-2]) or name


def _differing_bits(one: conversion.Bytes, other: conversion.Bytes) -> int:
    total = 0
    for start in range(0, one.size, _STEP_BYTES):
        xor = np.bitwise_xor(one[start : start + _STEP_BYTES], other[start : start + _STEP_BYTES])
        if xor.any():
            total += int(np.unpackbits(xor).sum(dtype=np.int64))
    return total
