# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""PyTorch: nested objects of tensors, as `torch.save` takes them.

>>> import fhrd.torch, torch
>>> repo, model = fhrd.open("checkpoints", create=True), torch.nn.Linear(4, 2)
>>> saved = fhrd.torch.save(repo, {"model": model.state_dict()}, run="tune", step=300)
>>> state = fhrd.torch.load(repo, run="tune")  # the latest step
>>> model.load_state_dict(state["model"])
<All keys matched successfully>

What `load` gives equals what `torch.load` gives after `torch.save`: values bit for bit, types (also BF16 and
FP8), shapes, strides, `requires_grad`, parameters, and which tensors share memory. Tensors are stored in one safetensors
file, under their paths in the object (`model.layer.weight`); all else is described in JSON beside it.

Nothing is pickled unless `allow_pickle` is given, and nothing is unpickled unless `trusted` is.
"""

from __future__ import annotations

import base64
import io
import math
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy
import torch

from fhrd.arguments import Files, named_files, text
from fhrd.arrays import check_storage, describe_dtype, described_dtype
from fhrd.checkpoint import of_checkpoint
from fhrd.containers import DescriptionError, flatten, unflatten
from fhrd.errors import ArgumentError, ArgumentTypeError, NotTrustedError
from fhrd.runs import check_order, check_store

if TYPE_CHECKING:
    from fhrd import Checkpoint, Keep, SavedCheckpoint, SaveHandle
    from fhrd.arguments import IfExists, Progress
    from fhrd.runs import Store

__all__ = ["load", "random_state", "save", "save_async", "set_random_state"]

#: Added to the name of the safetensors file for the name of the description.
DESCRIPTION = ".tree.json"

#: Types of NumPy arrays that are stored as they are. Others are stored as bytes.
_PLAIN_TYPES = {"|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"}

#: Types of tensors that are stored as they are. Others are stored as bytes.
_STORED_TYPES = {
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
} | {
    getattr(torch, name)
    for name in ("uint64", "uint32", "uint16", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}  # fmt: skip


def save(
    repo: Store,
    value: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    files: Files = (),
    metadata: Mapping[str, str] | None = None,
    name: str = "model.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
    allow_pickle: bool = False,
) -> SavedCheckpoint:
    """Saves an object of tensors, containers and plain values. It is durable on return.

    The other arguments are those of `fhrd.Repository.save`.

    Args:
        value: tensors and NumPy arrays in dictionaries, lists, tuples and sets, with plain values: a state
            dictionary, or several in a dictionary.
        allow_pickle: pickles other objects. Loading them then needs `trusted`.

    Raises:
        ArgumentTypeError: (a TypeError) an object that is neither, with its path; if `allow_pickle`, one that cannot
            be pickled.
    """
    check_order(repo, value, "fhrd.torch.save")
    arrays, described = encode(value, allow_pickle=allow_pickle)
    return repo.save(
        arrays,
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=_with_description(files, name, described),
        metadata={"format": "pt", **(metadata or {})},
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def save_async(
    repo: Store,
    value: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    files: Files = (),
    metadata: Mapping[str, str] | None = None,
    name: str = "model.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
    allow_pickle: bool = False,
) -> SaveHandle:
    """As `save`, but returns when the tensors are copied. See `fhrd.Repository.save_async`."""
    check_order(repo, value, "fhrd.torch.save_async")
    arrays, described = encode(value, allow_pickle=allow_pickle)
    return repo.save_async(
        arrays,
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=_with_description(files, name, described),
        metadata={"format": "pt", **(metadata or {})},
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def _with_description(files: Files, name: str, described: bytes) -> Mapping[str, Any]:
    named, own = named_files(files), text(name, "name") + DESCRIPTION
    if own in named:
        raise ArgumentError(f"files: `{own}` is what the package stores")
    return {**named, own: described}


def load(
    repo: Store,
    *,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
    name: str = "model.safetensors",
    device: Any = None,
    trusted: bool = False,
) -> Any:
    """Loads what `save` saved, or a dictionary of the tensors of any other stored file.

    Args:
        step: a number, `"latest"` (default) or `"best:METRIC:min"` (or `max`).
        device: where the tensors go. Default: the CPU, wherever they were.
        trusted: unpickles objects that were saved with `allow_pickle`. *Unpickling runs code from the repository:
            only for repositories that nobody else can write to.*

    Raises:
        NotTrustedError: (a ValueError) pickled objects, and `trusted` was not given.
    """
    check_store(repo, "fhrd.torch.load")

    def read(found: Checkpoint) -> Any:
        paths = {file.path for file in found.files()}
        arrays: dict[str, Any] = {}
        if name in paths or name + DESCRIPTION not in paths:
            arrays = repo.load(snapshot=found.id, name=name, framework="torch", device=device).read_all()
        if name + DESCRIPTION not in paths:
            return arrays
        return decode(arrays, found.read_file(name + DESCRIPTION), trusted=trusted)

    return of_checkpoint(repo, read, run=run, step=step, snapshot=snapshot)


def random_state() -> dict[str, Any]:
    """The states of the random numbers of Python, NumPy and torch (all devices), for `save`."""
    kind, keys, position, has_gauss, gauss = numpy.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, keys, int(position), int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = list(torch.cuda.get_rng_state_all())
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restores what `random_state` gave, so that training goes on with the same numbers."""
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([one.cpu() for one in state["cuda"]])


def encode(value: Any, *, allow_pickle: bool = False) -> tuple[dict[str, Any], bytes]:
    """Named arrays of an object, and the description of the rest."""
    encoder = _Encoder(allow_pickle)
    described = flatten(value, encoder.store, encoder.finish)
    return encoder.arrays, described


def decode(arrays: Mapping[str, Any], described: bytes, *, trusted: bool = False) -> Any:
    """The object of `encode`. `arrays` are tensors."""
    return unflatten(described, _Decoder(arrays, trusted).build)


class _Encoder:
    def __init__(self, allow_pickle: bool) -> None:
        self.arrays: dict[str, Any] = {}
        self._allow_pickle = allow_pickle
        #: Tensors with their descriptions, by the memory that holds them.
        self._by_storage: dict[tuple[str, int], list[tuple[torch.Tensor, dict[str, Any]]]] = {}

    def store(self, value: Any, path: str) -> dict[str, Any] | None:
        if isinstance(value, torch.Tensor):
            described = self._tensor(value, path)
            if described is not None:
                return described
            if type(value).__name__ == "DTensor" and not self._allow_pickle:
                raise ArgumentTypeError(f"{path}: a sharded tensor: fhrd.distributed saves it, or call `.full_tensor()`")
        elif isinstance(value, numpy.ndarray) and not value.dtype.hasobject and type(value) is numpy.ndarray:
            return self._array(value, path, "array")
        elif isinstance(value, numpy.generic) and not value.dtype.hasobject:
            return self._array(numpy.asarray(value), path, "scalar")
        elif isinstance(value, torch.Size):
            return {"size": list(cast("Any", value))}
        elif isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        elif isinstance(value, torch.device):
            return {"device": str(value)}
        is_container = isinstance(value, (dict, list, tuple, set, frozenset)) and type(value).__module__ in (
            "builtins",
            "collections",
        )
        if is_container or not self._allow_pickle:
            return None
        try:
            return {"pickle": base64.b64encode(pickle.dumps(value)).decode()}
        except Exception as error:
            raise ArgumentTypeError(f"{path}: a {type(value).__qualname__} cannot be pickled: {error}") from error

    def _add(self, path: str, array: Any) -> str:
        """Adds an array under its path, or a name like it."""
        name, number = path or "value", 1
        while name in self.arrays or name == "__metadata__":
            number += 1
            name = f"{path or 'value'}~{number}"
        self.arrays[name] = array
        return name

    def _array(self, array: numpy.ndarray[Any, Any], path: str, kind: str) -> dict[str, Any]:
        described: dict[str, Any] = {kind: None, "dtype": describe_dtype(array.dtype), "shape": list(array.shape)}
        if array.dtype.str not in _PLAIN_TYPES:
            # Its type is in the description only.
            array = numpy.frombuffer(array.tobytes(), numpy.uint8)
        described[kind] = self._add(path, array)
        return described

    def _tensor(self, tensor: torch.Tensor, path: str) -> dict[str, Any] | None:
        if tensor.is_meta:
            raise ArgumentTypeError(f"{path}: the tensor is on the device `meta` and has no values")
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_quantized or tensor.is_nested:
            return None
        if tensor.is_sparse or tensor.layout is torch.sparse_csr:
            return self._sparse(tensor, path)
        if tensor.layout is not torch.strided:
            return None
        try:
            check_storage(tensor)
        except ArgumentError as error:
            raise type(error)(f"{path}: {error}") from None
        described: dict[str, Any] = {"tensor": self._add(path, None)}
        if isinstance(tensor, torch.nn.Parameter):
            described["parameter"] = True
        if tensor.requires_grad:
            described["requires_grad"] = True
        plain = tensor.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage()
        key = (str(plain.device), storage.data_ptr() or id(plain))
        self._by_storage.setdefault(key, []).append((plain, described))
        return described

    def _sparse(self, tensor: torch.Tensor, path: str) -> dict[str, Any]:
        plain = tensor.detach()
        if tensor.is_sparse:
            coalesced = tensor.is_coalesced()
            parts = {"indices": plain._indices(), "values": plain._values()}
            described: dict[str, Any] = {"sparse_coo": list(tensor.shape), "coalesced": coalesced}
        else:
            parts = {"crow": plain.crow_indices(), "col": plain.col_indices(), "values": plain.values()}
            described = {"sparse_csr": list(tensor.shape)}
        if isinstance(tensor, torch.nn.Parameter):
            described["parameter"] = True
        if tensor.requires_grad:
            described["requires_grad"] = True
        described["parts"] = {part: self._add(f"{path}.{part}", values.cpu()) for part, values in parts.items()}
        return described

    def finish(self) -> None:
        """Gives each tensor its values. Of tensors that share memory, one holds all of it, and the others are views."""
        for tensors in self._by_storage.values():
            ranges = [_byte_range(tensor) for tensor, _ in tensors]
            start, end = min(low for low, _ in ranges), max(high for _, high in ranges)
            if len(tensors) == 1 and not _overlaps(tensors[0][0]):
                tensor, described = tensors[0]
                if not tensor.is_contiguous():
                    described["stride"] = list(tensor.stride())
                self._put(described, tensor.cpu().contiguous())
                continue
            whole = (at for at, (tensor, _) in enumerate(tensors) if tensor.is_contiguous() and ranges[at] == (start, end))
            owner = next(whole, None)
            if owner is None:
                # No tensor has all of the memory: it is stored as bytes.
                memory = torch.empty(0, dtype=torch.uint8, device=tensors[0][0].device)
                # Storages that NumPy gave may begin at one address and differ in length.
                storage = max((tensor.untyped_storage() for tensor, _ in tensors), key=lambda one: one.nbytes())
                memory.set_(storage, start, (end - start,), (1,))
                name = self._add(tensors[0][1]["tensor"] + "~memory", memory.cpu())
            else:
                name = tensors[owner][1]["tensor"]
                self._put(tensors[owner][1], tensors[owner][0].cpu())
            for at, (tensor, described) in enumerate(tensors):
                if at == owner:
                    continue
                del self.arrays[described["tensor"]]
                described["tensor"] = name
                described["view"] = {
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "offset": ranges[at][0] - start,
                    "size": list(tensor.shape),
                    "stride": list(tensor.stride()),
                }


    def _put(self, described: dict[str, Any], tensor: torch.Tensor) -> None:
        """Gives a tensor its values."""
        if tensor.dtype not in _STORED_TYPES:
            # Its type and shape are in the description only.
            described["dtype"] = str(tensor.dtype).removeprefix("torch.")
            described["shape"] = list(tensor.shape)
            flat = tensor.view(-1)
            # A single element may have any stride.
            flat = flat.as_strided(flat.shape, (1,))
            tensor = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)
        self.arrays[described["tensor"]] = tensor


class _Decoder:
    def __init__(self, arrays: Mapping[str, Any], trusted: bool) -> None:
        self._arrays = arrays
        self._trusted = trusted
        #: Tensors by name. Views share their memory.
        self._loaded: dict[str, torch.Tensor] = {}

    def build(self, kind: str, described: dict[str, Any]) -> Any:
        makers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "tensor": self._tensor,
            "array": self._array,
            "scalar": lambda one: self._array(one)[()],
            "size": lambda one: torch.Size(one["size"]),
            "dtype": lambda one: _torch_dtype(one["dtype"]),
            "device": lambda one: torch.device(one["device"]),
            "sparse_coo": self._sparse_coo,
            "sparse_csr": self._sparse_csr,
            "pickle": self._unpickled,
        }
        if kind not in makers:
            raise DescriptionError(f"unknown kind of value {kind!r}: perhaps a newer version wrote it")
        return makers[kind](described)

    def _stored(self, name: str) -> torch.Tensor:
        if name not in self._loaded:
            if name not in self._arrays:
                raise DescriptionError(f"the tensor {name!r} of the description is not stored")
            self._loaded[name] = self._arrays[name]
        return self._loaded[name]

    def _tensor(self, described: dict[str, Any]) -> torch.Tensor:
        tensor = self._stored(described["tensor"])
        if "dtype" in described:
            shape = [int(one) for one in described["shape"]]
            flat = tensor.view(_torch_dtype(described["dtype"])) if tensor.numel() else _empty(described["dtype"])
            tensor = flat.view(shape)
        if "view" in described:
            tensor = _view(tensor, described["view"])
        elif "stride" in described:
            stride = [int(one) for one in described["stride"]]
            reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True) if size)
            # A tensor with gaps takes more memory than its values. A false stride must not take all of it.
            if min(stride, default=0) < 0 or reach > 64 * tensor.numel() + (1 << 20):
                raise DescriptionError(f"the strides {stride} do not fit a tensor of {list(tensor.shape)}")
            strided = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
            tensor = strided.copy_(tensor)
        # Another description may name the same memory.
        return _as_described(tensor.detach(), described)

    def _array(self, described: dict[str, Any]) -> Any:
        tensor = self._stored(described["array"] if "array" in described else described["scalar"]).cpu()
        dtype = _numpy_dtype(described["dtype"])
        raw = tensor.contiguous().view(-1).view(torch.uint8).numpy() if tensor.numel() else numpy.empty(0, numpy.uint8)
        shape = tuple(int(one) for one in described["shape"])
        if raw.nbytes != dtype.itemsize * math.prod(shape):
            raise DescriptionError(f"expected {shape} values of type {dtype}, found {raw.nbytes} bytes")
        return raw.view(dtype).reshape(shape) if raw.nbytes else numpy.empty(shape, dtype)

    def _sparse_coo(self, described: dict[str, Any]) -> torch.Tensor:
        parts = {part: self._stored(name) for part, name in described["parts"].items()}
        size = [int(one) for one in described["sparse_coo"]]
        made = torch.sparse_coo_tensor(parts["indices"], parts["values"], size, check_invariants=True)
        made = made._coalesced_(True) if described.get("coalesced") else made
        return _as_described(made, described)

    def _sparse_csr(self, described: dict[str, Any]) -> torch.Tensor:
        parts = {part: self._stored(name) for part, name in described["parts"].items()}
        size = [int(one) for one in described["sparse_csr"]]
        made = torch.sparse_csr_tensor(parts["crow"], parts["col"], parts["values"], size, check_invariants=True)
        return _as_described(made, described)

    def _unpickled(self, described: dict[str, Any]) -> Any:
        if not self._trusted:
            raise NotTrustedError(
                "the checkpoint holds pickled objects. Unpickling runs code from the repository: if nobody else can "
                "write to it, load with trusted=True"
            )
        return pickle.load(io.BytesIO(base64.b64decode(described["pickle"])))


def _as_described(tensor: torch.Tensor, described: Mapping[str, Any]) -> torch.Tensor:
    """A tensor as the parameter that it was, or with a gradient."""
    requires_grad = bool(described.get("requires_grad"))
    if described.get("parameter"):
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def _empty(dtype: str) -> torch.Tensor:
    return torch.empty(0, dtype=_torch_dtype(dtype))


def _byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte in its memory, and the byte after its last one."""
    start = int(tensor.storage_offset()) * tensor.element_size()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (int(last) + 1) * tensor.element_size()


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements of the tensor are one place in memory, as far as strides tell."""
    steps = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            return bool(tensor.numel())
        reach += (size - 1) * stride
    return False


def _view(memory: torch.Tensor, view: Mapping[str, Any]) -> torch.Tensor:
    dtype = _torch_dtype(view["dtype"])
    size, stride, offset = [int(one) for one in view["size"]], [int(one) for one in view["stride"]], int(view["offset"])
    offset += int(memory.storage_offset()) * memory.element_size()
    last = sum((count - 1) * step for count, step in zip(size, stride, strict=True)) if 0 not in size else -1
    storage = memory.untyped_storage()
    fits = min([offset, *size, *stride]) >= 0 and offset + (last + 1) * dtype.itemsize <= storage.nbytes()
    if not fits or offset % dtype.itemsize:
        raise DescriptionError(f"the view {dict(view)} does not fit {storage.nbytes()} bytes")
    return torch.empty(0, dtype=dtype, device=memory.device).set_(storage, offset // dtype.itemsize, size, stride)


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise DescriptionError(f"unknown type torch.{name}: perhaps a newer version wrote it")
    return dtype


def _numpy_dtype(described: Any) -> numpy.dtype[Any]:
    dtype = described_dtype(described)
    if dtype.hasobject:
        raise DescriptionError(f"the type {described!r} holds objects")
    return dtype
