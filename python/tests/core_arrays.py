"""Round trips of all types of arrays."""

from __future__ import annotations

import pathlib
from typing import Any

import hypothesis
import hypothesis.extra.numpy as extra
import hypothesis.strategies as strategies
import ml_dtypes
import numpy as np
import pytest

import fhrd

SETTINGS = hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
NUMPY_TYPES = [
    *(np.dtype(kind).newbyteorder(order) for kind in "hHiIqQefdgFDG" for order in "<>"),
    *(np.dtype(kind) for kind in ("?", "b", "B", "S7", "<U3", ">U3", "<M8[ns]", ">M8[s]", "<m8[D]", "V5")),
    np.dtype([("a", "<f4"), ("b", ">i2", (2, 3)), ("c", "S3")]),
    *(
        np.dtype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
        if hasattr(ml_dtypes, name)
    ),
    np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    np.dtype([("a", "<i2"), ("b", ml_dtypes.bfloat16, (2,)), ("c", [("d", ml_dtypes.float8_e5m2)])]),
]


#: Gaps between fields, and fields that share bytes. NumPy copies no gaps, so these are for arrays in one piece.
TYPES_WITH_GAPS = [
    np.dtype([("a", "<i1"), ("b", "<i8"), ("c", [("d", "<i1"), ("e", "<f4")], (2,))], align=True),
    np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [4, 6], "itemsize": 16}),
]


def make(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape)) * dtype.itemsize
    data = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    if dtype == np.bool_:
        data &= 1
    if dtype.kind == "U":
        data = np.frombuffer("".join(chr(65 + value % 26) for value in data[:: 4]).encode("utf-32-le"), np.uint8)
        return data.view(dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    return data.view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def assert_same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


@pytest.mark.parametrize("dtype", [*NUMPY_TYPES, *TYPES_WITH_GAPS], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (3, 4, 5)], ids=str)
def test_every_numpy_type_comes_back(repo: fhrd.Repository, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    array = make(dtype, shape, 1)
    loaded = repo.load(snapshot=repo.save({"a": array}).id)["a"]
    assert_same(array, loaded)
    assert loaded.flags.writeable, "the caller owns what it loads"


@SETTINGS
@hypothesis.given(data=strategies.data())
def test_any_layout_of_memory_comes_back(repo: fhrd.Repository, data: strategies.DataObject) -> None:
    dtype = data.draw(strategies.sampled_from(NUMPY_TYPES))
    shape = data.draw(extra.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=6))
    array = make(dtype, shape, data.draw(strategies.integers(0, 1000)))
    if data.draw(strategies.booleans()):
        array = array.transpose()
    if data.draw(strategies.booleans()):
        array = array[:: data.draw(strategies.sampled_from([1, 2, -1, -3]))]
    if data.draw(strategies.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    names = [data.draw(strategies.text(min_size=1, max_size=12)), "other"]
    saved = repo.save({name: array for name in names})
    loaded = repo.load(snapshot=saved.id)
    assert set(loaded) == set(names)
    for name in names:
        assert_same(np.array(array), loaded[name])


def test_objects_with_a_buffer_and_dlpack_are_arrays(repo: fhrd.Repository) -> None:
    import array

    class Wrapped:
        def __init__(self, inner: np.ndarray[Any, Any]) -> None:
            self.inner = inner

        def __dlpack__(self, **options: Any) -> Any:
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.inner.__dlpack_device__()

    values = {
        "bytes": b"abc",
        "bytearray": bytearray(b"abcd"),
        "memoryview": memoryview(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "array": array.array("d", [1.5, 2.5]),
        "dlpack": Wrapped(np.arange(5, dtype=np.float32)),
        "scalar": np.float64(2.5),
        "number": 7,
    }
    loaded = repo.load(snapshot=repo.save(values).id)
    assert bytes(loaded["bytes"]) == b"abc" and bytes(loaded["bytearray"]) == b"abcd"
    assert_same(loaded["memoryview"], np.arange(6, dtype=np.int16).reshape(2, 3))
    assert_same(loaded["array"], np.array([1.5, 2.5]))
    assert_same(loaded["dlpack"], np.arange(5, dtype=np.float32))
    assert loaded["scalar"] == 2.5 and loaded["scalar"].shape == () and loaded["number"] == 7


def test_what_has_no_bytes_is_refused_by_name(repo: fhrd.Repository) -> None:
    for value in (np.array([object()]), "text", None, object(), np.ma.masked_array([1, 2], [True, False])):
        with pytest.raises(fhrd.ArgumentError, match="array `bad`"):
            repo.save({"good": np.zeros(3), "bad": value})
    assert repo.snapshots() == []


def test_converters_take_arrays_of_other_libraries(repo: fhrd.Repository) -> None:
    from fhrd.arrays import register_converter, to_numpy_bytes

    class Foreign:
        pass

    register_converter(f"{Foreign.__module__}.{Foreign.__qualname__}", lambda _: np.arange(3, dtype=np.int32))
    dtype, shape, data = to_numpy_bytes(Foreign())
    assert (dtype, shape, bytes(data)) == ("I32", (3,), np.arange(3, dtype=np.int32).tobytes())
    assert list(repo.load(snapshot=repo.save({"a": Foreign()}).id)["a"]) == [0, 1, 2]


def test_the_bytes_of_a_contiguous_array_are_not_copied() -> None:
    from fhrd.arrays import to_numpy_bytes

    array = np.zeros((64, 64), np.float32)
    data = np.asarray(to_numpy_bytes(array)[2])
    assert np.shares_memory(array, data)


def test_equal_arrays_give_the_file_of_the_safetensors_library(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    import safetensors.numpy

    generator = np.random.default_rng(0)
    arrays = {
        "b": generator.normal(size=(40, 50)).astype(np.float32),
        "a": generator.integers(0, 9, (7,), np.int64),
        "é \"quoted\"": generator.normal(size=()).astype(np.float16),
        "flags": np.array([True, False, True]),
        "empty": np.zeros((0, 4), np.float64),
        "c": (generator.normal(size=3) + 1j).astype(np.complex64),
        "big": generator.integers(0, 255, (300_000,), np.uint8),
    }
    for metadata in ({}, {"format": "pt"}):
        path = tmp_path / "model.safetensors"
        safetensors.numpy.save_file(arrays, path, metadata or None)
        saved = repo.save(dict(reversed(arrays.items())), metadata=metadata)
        assert repo.checkpoint(snapshot=saved.id).read_file("model.safetensors") == path.read_bytes()


FALSE_TYPES = [
    "x", "[]", "{}", '{"numpy":"<f8","shape":[3]}', '{"numpy":"<f8","shape":[-1]}', '{"numpy":"|O","shape":[1]}',
    '{"numpy":"nonsense","shape":[1]}', '{"numpy":["a"],"shape":[1]}', '{"numpy":{"names":1},"shape":[1]}',
    '{"numpy":"<f8","shape":"x"}',
]  # fmt: skip


@pytest.mark.parametrize("described", FALSE_TYPES)
def test_a_false_type_is_damage(described: str) -> None:
    from fhrd.arrays import from_bytes

    with pytest.raises(fhrd.FhrdError):
        from_bytes(np.zeros(8, np.uint8), "U8", (8,), described, "numpy", None)


def test_a_false_shape_is_damage(repo: fhrd.Repository) -> None:
    header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,0]}}'
    stored = len(header).to_bytes(8, "little") + header
    loaded = repo.load(snapshot=repo.save({}, files={"model.safetensors": stored}).id)
    with pytest.raises(fhrd.DamagedError, match="a"):
        loaded["a"]
    with pytest.raises(fhrd.DamagedError, match="a"):
        loaded.rows("a", 0, 1)


def test_a_type_that_an_old_ml_dtypes_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from fhrd.arrays import described_dtype, numpy_dtype

    monkeypatch.delattr(ml_dtypes, "float8_e5m2")
    for made in (lambda: numpy_dtype("F8_E5M2"), lambda: described_dtype("float8_e5m2")):
        with pytest.raises(fhrd.UnsupportedError, match="this version of ml_dtypes"):
            made()
