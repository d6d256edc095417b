"""Trust in the version counters of torch: which tensors have not changed since the last save of their run.

A tensor counts as unchanged if its storage is the same object, and its address, shape, strides, type and `_version` are
equal. Its bytes are not looked at. Storages are known by weak references: memory that was freed and is used again has
another storage, also at the same address.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._engine import ArrayHashes


@dataclass(frozen=True)
class Versioned:
    """An array for a save, and the tensors that have all of its bytes. It changes only if one of them changes."""

    array: Any
    #: Without any, the array is never trusted.
    tensors: Sequence[Any]


class _Seen:
    """A tensor as it was once. It keeps neither the tensor nor its memory."""

    def __init__(self, tensor: Any) -> None:
        # It has no types. While the weak reference lives, no other storage has its `cdata`.
        reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
        self._storage: Any = reductions.StorageWeakRef(tensor.untyped_storage())
        self._state: tuple[Any, ...] = (
            tensor._version,
            tensor.data_ptr(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
            tensor.is_conj(),
            tensor.is_neg(),
        )

    def is_same(self, later: _Seen) -> bool:
        return (
            not self._storage.expired()
            and self._storage.cdata == later._storage.cdata
            and self._state == later._state
        )


def _seen(tensors: Sequence[Any]) -> list[_Seen]:
    """The tensors as they are. Empty if the versions of one of them say nothing."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return []
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            return []
        # Inference tensors have no version. Other processes write to shared memory.
        if tensor.is_meta or tensor.is_inference() or (tensor.device.type == "cpu" and tensor.is_shared()):
            return []
    return [_Seen(tensor) for tensor in tensors]


class RunVersions:
    """The tensors of a save, for the next save of the same run."""

    def __init__(self, name: str, before: RunVersions | None) -> None:
        """`name` is the path of the file of arrays. `before` is of the last save of the run, if it left one."""
        self._name = name
        self._before = before._complete if before is not None and before._name == name else {}
        self._now: dict[str, tuple[list[_Seen], ArrayHashes]] = {}
        self._complete: dict[str, tuple[list[_Seen], ArrayHashes]] = {}

    def hashes(self, key: str, array: Any) -> ArrayHashes | None:
        """Where the save keeps the hashes of an array: those of the last save if the array is unchanged."""
        seen = _seen(array.tensors if isinstance(array, Versioned) else [array])
        if not seen:
            return None
        before = self._before.get(key)
        is_same = before is not None and len(before[0]) == len(seen) and all(
            one.is_same(later) for one, later in zip(before[0], seen, strict=True)
        )
        hashes = before[1] if before is not None and is_same else ArrayHashes()
        self._now[key] = (seen, hashes)
        return hashes

    def complete(self) -> None:
        """The save is durable: the next one may rely on it."""
        self._complete, self._now, self._before = self._now, {}, {}
