"""Arrays as bytes, and bytes as arrays.

`to_numpy_bytes` gives the bytes of any array without a copy if they are contiguous. A type that safetensors has is
stored as that type. Any other type is stored as bytes, and its true type and shape stand in the metadata of the file
under `fhrd.dtype.NAME`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ArgumentError, ArgumentTypeError, DamagedError, UnsupportedError

Bytes = npt.NDArray[np.uint8]

#: Key of the true type of an array in the metadata of a file, before the name of the array.
DTYPE_KEY = "fhrd.dtype."

_NUMPY_TO_SAFETENSORS: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    # Types of ml_dtypes.
    "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_SAFETENSORS_TO_NUMPY: Mapping[str, str] = {value: key for key, value in _NUMPY_TO_SAFETENSORS.items()}
_ML_DTYPES = frozenset(name for name in _NUMPY_TO_SAFETENSORS if "float8" in name or name == "bfloat16")
_TORCH_TO_SAFETENSORS: Mapping[str, str] = _NUMPY_TO_SAFETENSORS

Converter = Callable[[Any], Any]
_converters: dict[str, Converter] = {}


class ArrayBytes(tuple[str, tuple[int, ...], Bytes, "str | None"]):
    """An array for a file: dtype of safetensors, shape, bytes, and the true type as JSON unless safetensors has it."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        return self[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self[1]

    @property
    def data(self) -> Bytes:
        return self[2]

    @property
    def true_type(self) -> str | None:
        return self[3]


def register_converter(type_name: str, function: Converter) -> None:
    """Takes arrays of another library: `function` gets the array and returns a NumPy array or a torch tensor.

    `type_name` is the full name of the array's class, such as `"jaxlib._jax.ArrayImpl"`. Classes derived from it count,
    too.
    """
    _converters[type_name] = function


def to_numpy_bytes(array: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """The dtype as safetensors calls it, the shape, and the bytes of an array.

    The bytes are the memory of the array itself if it is contiguous and on the CPU, else a copy.

    Raises:
        ArgumentTypeError: (a TypeError) if it is no array.
        ArgumentError: (a ValueError) if it is an array of Python objects.
    """
    found = array_bytes(array)
    data: Any = found.data
    return found.dtype, found.shape, memoryview(data)


def array_bytes(array: Any) -> ArrayBytes:
    """As `to_numpy_bytes`, for a file of arrays."""
    for base in type(array).__mro__:
        function = _converters.get(f"{base.__module__}.{base.__qualname__}")
        if function is not None:
            array = function(array)
            break
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_bytes(array, torch)
    return _numpy_bytes(_as_numpy(array))


def _as_numpy(array: Any) -> npt.NDArray[Any]:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError("expected an array without a mask: save `.data` and `.mask`")
    if isinstance(array, np.ndarray):
        return array  # pyright: ignore[reportUnknownVariableType]
    if isinstance(array, (np.generic, int, float, complex, bool)):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        try:
            return np.from_dlpack(array)
        except (RuntimeError, TypeError, ValueError, BufferError):
            pass
    if hasattr(array, "__array_interface__") or hasattr(array, "__array__"):
        try:
            return np.asarray(array)
        except MemoryError:
            raise
        except Exception as error:
            # Such as deleted arrays of JAX, and those that only trace a program.
            raise ArgumentError(f"a {type(array).__qualname__} gives no bytes: {error}") from error
    try:
        view = memoryview(array)
    except TypeError:
        nested = isinstance(array, (dict, list, tuple))
        advice = ": fhrd.torch.save and fhrd.jax.save take nested objects" if nested else ""
        raise ArgumentTypeError(f"expected an array, found {type(array).__qualname__}{advice}") from None
    return np.asarray(view)


def _flat(array: npt.NDArray[Any]) -> Bytes:
    """The bytes of an array, in C order."""
    contiguous = np.ascontiguousarray(array).reshape(-1)
    if contiguous.size == 0:
        return np.empty(0, np.uint8)
    try:
        return contiguous.view(np.uint8)
    except (TypeError, ValueError):
        return np.frombuffer(contiguous.tobytes(), np.uint8)


def _numpy_bytes(array: npt.NDArray[Any]) -> ArrayBytes:
    dtype = array.dtype
    if dtype.hasobject:
        raise ArgumentError("an array of Python objects has no bytes to store")
    name = _NUMPY_TO_SAFETENSORS.get(dtype.name)
    data = _flat(array)
    if name is not None and dtype.isnative and dtype.fields is None:
        return ArrayBytes((name, array.shape, data, None))
    true_type = json.dumps({"numpy": describe_dtype(dtype), "shape": list(array.shape)})
    return ArrayBytes(("U8", (data.size,), data, true_type))


#: `isbuiltin` of a type that another package has registered.
_OF_OTHERS = 2


def describe_dtype(dtype: np.dtype[Any]) -> Any:
    """A dtype as JSON can say it: a text, a list of fields, or what `numpy.dtype` takes if bytes lie between fields."""
    if dtype.subdtype is not None:
        return {"base": describe_dtype(dtype.subdtype[0]), "shape": list(dtype.subdtype[1])}
    if dtype.names is None or dtype.fields is None:
        # Types of ml_dtypes have names only.
        return dtype.name if dtype.isbuiltin == _OF_OTHERS else dtype.str
    if not _has_gaps(dtype) and not _has_other(dtype):
        return dtype.descr
    known: Any = dtype.fields
    fields = [known[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [describe_dtype(field[0]) for field in fields],
        "offsets": [int(field[1]) for field in fields],
        "itemsize": dtype.itemsize,
        "align": dtype.isalignedstruct,
    }


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether a list of fields would be another type: bytes belong to no field, or to several."""
    base = dtype.base
    if base.names is None or base.fields is None:
        return False
    end = 0
    known: Any = base.fields
    for field in (known[name] for name in base.names):
        if field[1] != end or _has_gaps(field[0]):
            return True
        end += field[0].itemsize
    return end != base.itemsize


def _has_other(dtype: np.dtype[Any]) -> bool:
    """Whether a field is of a type of ml_dtypes, which a list of fields would not name."""
    base = dtype.base
    if base.names is None or base.fields is None:
        return base.isbuiltin == _OF_OTHERS
    known: Any = base.fields
    return any(_has_other(known[name][0]) for name in base.names)


def described_dtype(described: Any) -> np.dtype[Any]:
    """The dtype of `describe_dtype`. What it raises for others is of many kinds."""
    if isinstance(described, dict):
        given: dict[str, Any] = described  # pyright: ignore[reportUnknownVariableType]
        if "base" in given:
            return np.dtype((described_dtype(given["base"]), tuple(given["shape"])))
        return np.dtype(
            {
                "names": given["names"],
                "formats": [described_dtype(one) for one in given["formats"]],
                "offsets": given["offsets"],
                "itemsize": given["itemsize"],
            },
            align=bool(given["align"]),
        )
    return _listed_dtype(described)


def check_storage(tensor: Any) -> None:
    """Refuses a strided torch tensor whose storage ends before its last element: its bytes would be those of others.

    Raises:
        ArgumentError: so it is.
    """
    if not tensor.numel():
        return
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed, there = (last + 1) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if needed > there:
        raise ArgumentError(f"the tensor needs {needed} bytes, and its storage has {there}: was it freed?")


def _torch_bytes(tensor: Any, torch: Any) -> ArrayBytes:
    if tensor.layout != torch.strided:
        raise ArgumentError(f"a tensor of layout {tensor.layout} is not stored: call `.to_dense()` first")
    if tensor.device.type == "meta":
        raise ArgumentError("a tensor of the device `meta` has no bytes")
    if tensor.is_quantized:
        raise ArgumentError("a quantized tensor is not stored: save `int_repr()`, the scales and the zero points")
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        shape = tuple(int(size) for size in tensor.shape)
        check_storage(tensor)
        flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if flat.numel() == 1:
            # It counts as contiguous whatever its stride, but a view as bytes needs a stride of 1.
            flat = flat.as_strided((1,), (1,))
        data: Bytes = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
    except (RuntimeError, ValueError) as error:
        # Nested tensors, parameters without a shape yet, and those that only trace a program.
        raise ArgumentError(f"torch gives no bytes of this {type(tensor).__qualname__}: {error}") from None
    known = _TORCH_TO_SAFETENSORS.get(name)
    if known is not None:
        return ArrayBytes((known, shape, data, None))
    return ArrayBytes(("U8", (data.size,), data, json.dumps({"torch": name, "shape": list(shape)})))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for a dtype of safetensors.

    Raises:
        UnsupportedError: if NumPy has none, or if it needs the package `ml_dtypes`, which is not installed.
    """
    known = _SAFETENSORS_TO_NUMPY.get(name)
    if known is None:
        raise UnsupportedError(f"NumPy has no type for {name}; framework=\"torch\" may have one")
    if known not in _ML_DTYPES:
        return np.dtype(known)
    try:
        import ml_dtypes  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError:
        message = f"NumPy needs the package ml_dtypes for {name}: install it, or load with framework=\"torch\""
        raise UnsupportedError(message) from None
    return _ml_dtype(ml_dtypes, known)


def _ml_dtype(ml_dtypes: Any, name: str) -> np.dtype[Any]:
    found: Any = getattr(ml_dtypes, name, None)
    if found is None:
        raise UnsupportedError(f"this version of ml_dtypes has no type {name}: install a newer one")
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype


def _listed_dtype(described: Any) -> np.dtype[Any]:
    def tuples(value: Any) -> Any:
        return [_field(item) for item in value] if isinstance(value, list) else value  # pyright: ignore

    def _field(item: list[Any]) -> tuple[Any, ...]:
        name: Any = tuple(item[0]) if isinstance(item[0], list) else item[0]  # pyright: ignore
        return (name, tuples(item[1]), *(tuple(shape) for shape in item[2:]))

    if isinstance(described, str) and not described.startswith(("<", ">", "|", "=")):
        try:
            import ml_dtypes  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
        except ImportError:
            raise UnsupportedError(f"NumPy needs the package ml_dtypes for {described}: install it") from None

        return _ml_dtype(ml_dtypes, described)
    dtype: np.dtype[Any] = np.dtype(tuples(described))
    return dtype


def from_bytes(
    data: Bytes,
    dtype: str,
    shape: Sequence[int],
    true_type: str | None,
    framework: str,
    device: Any,
) -> Any:
    """The array that `data` holds, which is the array's memory from now on.

    Raises:
        DamagedError: if the bytes are not those of its type and shape, or the type contradicts itself.
        UnsupportedError: if NumPy or torch has no such type.
    """
    if true_type is not None:
        kind, true_shape = _true_type(true_type)
        if "torch" in kind and framework == "torch":
            return _to_torch(data, str(kind["torch"]), true_shape, device)
        if kind.get("torch") == "complex128":
            return _shaped(data, np.dtype(np.complex128), true_shape)
        if "torch" in kind:
            raise UnsupportedError(f"NumPy has no type for torch.{kind['torch']}: load with framework=\"torch\"")
        try:
            true_dtype = described_dtype(kind["numpy"])
        except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise DamagedError(f"the stored type {true_type[:200]!r} is none: {error!r}") from None
        array = _shaped(data, true_dtype, true_shape)
        return _numpy_to_torch(array, device) if framework == "torch" else array
    if framework == "torch":
        name = _SAFETENSORS_TO_NUMPY.get(dtype)
        if name is None:
            raise UnsupportedError(f"there is no torch type for {dtype} here")
        return _to_torch(data, name, shape, device)
    return _shaped(data, numpy_dtype(dtype), shape)


def _true_type(text: str) -> tuple[dict[str, Any], list[int]]:
    """What the metadata says about the type and shape of an array."""
    try:
        kind: dict[str, Any] = dict(json.loads(text))
        if "torch" in kind or "numpy" in kind:
            return kind, [int(size) for size in kind["shape"]]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        pass
    raise DamagedError(f"the stored type {text[:200]!r} is none")


def _numpy_to_torch(array: npt.NDArray[Any], device: Any) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    try:
        native: Any = array.astype(array.dtype.newbyteorder("="))
        return torch.from_numpy(native).to(device)  # pyright: ignore
    except TypeError:
        raise UnsupportedError(f'torch has no type for {array.dtype}: load with framework="numpy"') from None


def _check_size(data: Bytes, itemsize: int, shape: Sequence[int], dtype: object) -> None:
    """A false shape must not take memory, nor give fewer values."""
    if any(size < 0 for size in shape) or data.size != itemsize * math.prod(shape):
        raise DamagedError(f"expected the bytes of {list(shape)} values of type {dtype}, found {data.size} bytes")


def _shaped(data: Bytes, dtype: np.dtype[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    if dtype.hasobject:
        raise DamagedError(f"the stored type {dtype} holds objects")
    _check_size(data, dtype.itemsize, shape, dtype)
    if data.size == 0 or dtype.itemsize == 0:
        return np.empty(tuple(shape), dtype)
    return data.view(dtype).reshape(tuple(shape))


def _to_torch(data: Bytes, name: str, shape: Sequence[int], device: Any) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    dtype: Any = getattr(torch, name, None)  # pyright: ignore
    if dtype is None:
        raise UnsupportedError(f"this version of torch has no type torch.{name}")
    if not isinstance(dtype, torch.dtype):  # pyright: ignore
        raise DamagedError(f"torch.{name} is no type")
    _check_size(data, int(dtype.itemsize), shape, name)
    if data.size == 0:
        tensor: Any = torch.empty(tuple(shape), dtype=dtype)  # pyright: ignore
    else:
        tensor = torch.from_numpy(data).view(dtype).reshape(tuple(shape))  # pyright: ignore
    return tensor if device is None else tensor.to(device)  # pyright: ignore
