"""Round trips of torch tensors, compared with `torch.equal` and by bytes."""

from __future__ import annotations

import importlib
from typing import Any

import hypothesis
import hypothesis.strategies as strategies
import numpy as np
import pytest

import fhrd

torch = pytest.importorskip("torch", reason="NOT CHECKED: torch is not installed")

NAMES = [
    *("float64", "float32", "float16", "bfloat16", "complex32", "complex64", "complex128", "bool"),
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
]
DTYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]
SETTINGS = hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)


def make(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> Any:
    count = int(np.prod(shape)) * dtype.itemsize
    data = np.random.default_rng(seed).integers(0, 2 if dtype == torch.bool else 256, count, np.uint8)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(data).view(dtype).reshape(shape)


def raw(tensor: Any) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same(one: Any, other: Any) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert raw(one) == raw(other)
    if one.dtype in (torch.float32, torch.int64) and not (one != one).any():
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (6,), (3, 4, 6)], ids=str)
def test_every_torch_type_comes_back(repo: fhrd.Repository, dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = make(dtype, shape)
    saved = repo.save({"a": tensor})
    assert_same(tensor, repo.load(snapshot=saved.id, framework="torch")["a"])


@SETTINGS
@hypothesis.given(data=strategies.data())
def test_any_layout_comes_back(repo: fhrd.Repository, data: strategies.DataObject) -> None:
    dtype = data.draw(strategies.sampled_from(DTYPES))
    shape = tuple(data.draw(strategies.lists(strategies.integers(0, 5), min_size=2, max_size=4)))
    tensor = make(dtype, shape, data.draw(strategies.integers(0, 99)))
    if data.draw(strategies.booleans()):
        tensor = tensor.transpose(0, 1)
    if data.draw(strategies.booleans()):
        tensor = tensor[1:]
    if data.draw(strategies.booleans()):
        tensor = tensor.unsqueeze(0).expand(2, *tensor.shape)
    expected = tensor.clone()
    loaded = repo.load(snapshot=repo.save({"a": tensor}).id, framework="torch")["a"]
    assert_same(expected, loaded)


def test_gradients_conjugates_and_parameters_are_values(repo: fhrd.Repository) -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    conjugate = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj()
    negative = torch.tensor([1 + 2j], dtype=torch.complex64).conj().imag
    loaded = repo.load(snapshot=repo.save({"p": parameter, "c": conjugate, "n": negative}).id, framework="torch")
    assert torch.equal(loaded["p"], parameter.detach()) and not loaded["p"].requires_grad
    assert torch.equal(loaded["c"], conjugate.resolve_conj()) and torch.equal(loaded["n"], negative.resolve_neg())


def test_tensors_that_have_no_bytes_are_refused(repo: fhrd.Repository) -> None:
    for tensor in (
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.nn.parameter.UninitializedParameter(),
        torch._subclasses.FakeTensorMode().from_tensor(torch.ones(3)),
    ):
        with pytest.raises(fhrd.ArgumentError, match="array `a`"):
            repo.save({"a": tensor})


def test_a_tensor_whose_memory_was_freed_is_refused(repo: fhrd.Repository) -> None:
    freed = torch.ones(1000)
    tensors = (freed, freed[10:], freed[::2], torch.nn.Parameter(freed))
    freed.untyped_storage().resize_(100)
    for tensor in tensors:
        with pytest.raises(ValueError, match="was it freed"):
            repo.save({"a": tensor})
        with pytest.raises(ValueError, match="b.0: the tensor needs"):
            importlib.import_module("fhrd.torch").save(repo, {"b": [tensor]})
    repo.save({"a": freed[:25], "none": freed[30:30]}, run="r", step=1)
    assert repo.load(run="r", framework="torch")["a"].tolist() == [1] * 25


def test_types_that_torch_lacks_are_of_numpy(repo: fhrd.Repository) -> None:
    for array in (np.array(["text"]), np.zeros(2, [("x", "<i4")]), np.ones(2, np.longdouble)):
        saved = repo.save({"a": array})
        with pytest.raises(fhrd.UnsupportedError, match="numpy"):
            repo.load(snapshot=saved.id, framework="torch")["a"]
        assert (repo.load(snapshot=saved.id)["a"] == array).all()


def test_changes_behind_the_back_of_torch_are_saved(repo: fhrd.Repository) -> None:
    tensor = torch.zeros(100_000)
    repo.save({"a": tensor}, run="a", step=0)
    tensor.data[5] = 1
    tensor.numpy()[6] = 2
    torch.from_dlpack(tensor)[7] = 3
    saved = repo.save({"a": tensor}, run="a", step=1)
    assert saved.added_bytes >= 400_000
    loaded = repo.load(run="a", framework="torch")["a"]
    assert torch.equal(loaded, tensor) and loaded[5:8].tolist() == [1, 2, 3]


def test_torch_and_numpy_store_the_same_bytes(repo: fhrd.Repository) -> None:
    array = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    repo.save({"a": array}, run="a", step=0)
    assert repo.save({"a": torch.from_numpy(array)}, run="a", step=1).added_bytes < 5_000


def test_bfloat16_loads_as_torch_and_as_numpy_with_ml_dtypes(repo: fhrd.Repository) -> None:
    tensor = torch.randn(200_000).to(torch.bfloat16)
    saved = repo.save({"a": tensor}, run="b", step=0)
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(fhrd.UnsupportedError, match="ml_dtypes"):
            repo.load(snapshot=saved.id)["a"]
    else:
        loaded = repo.load(snapshot=saved.id)["a"]
        assert loaded.dtype.name == "bfloat16" and loaded.tobytes() == raw(tensor)
    assert repo.load(snapshot=saved.id, framework="torch", device="cpu")["a"].device.type == "cpu"


def test_the_file_is_that_of_safetensors_torch(repo: fhrd.Repository, tmp_path: Any) -> None:
    import safetensors.torch

    tensors = {
        "w": torch.randn(300, 300).to(torch.bfloat16),
        "b": torch.randn(7),
        "h": torch.randn(4).to(torch.float8_e4m3fn),
        "i": torch.arange(5),
    }
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    saved = repo.save(tensors, metadata={"format": "pt"})
    assert repo.checkpoint(snapshot=saved.id).read_file("model.safetensors") == path.read_bytes()


class Rows(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A data set whose workers find the repository of the parent unusable, and open it again."""

    def __init__(self, repo: fhrd.Repository) -> None:
        self.repo = repo

    def __len__(self) -> int:
        return 12

    def __getitem__(self, at: int) -> tuple[int, bool, int]:
        try:
            self.repo.load(run="a", step=0)
            is_refused = False
        except fhrd.FhrdError:
            is_refused = True
        with fhrd.open(self.repo.location) as again:
            return at, is_refused, int(again.load(run="a", step=0)["a"][at])


def test_workers_of_a_data_loader_run_beside_a_save(repo: fhrd.Repository) -> None:
    repo.save({"a": torch.arange(12)}, run="a", step=0)
    for epoch in range(2):
        handle = repo.save_async({"a": torch.randn(4_000_000)}, run="a", step=epoch + 1)
        loader = torch.utils.data.DataLoader(Rows(repo), num_workers=2, timeout=120, multiprocessing_context="fork")
        rows = [tuple(int(value) for value in row) for row in loader]
        assert rows == [(at, 1, at) for at in range(12)]
        assert handle.result(120).id
    assert repo.steps("a").column("step") == [0, 1, 2]


def test_memory_of_numpy_that_tensors_share_comes_back(repo: fhrd.Repository) -> None:
    array = np.arange(30.0)
    value = [torch.from_numpy(array[:5])[::2], torch.from_numpy(array)[::3]]
    fhrd.torch.save(repo, value, run="tune", step=1)
    for found, expected in zip(fhrd.torch.load(repo, run="tune"), value, strict=True):
        assert torch.equal(found, expected)


def test_complex_numbers_of_torch_are_those_of_numpy(repo: fhrd.Repository) -> None:
    repo.save({"a": torch.tensor([1 + 2j], dtype=torch.complex128)}, run="tune", step=1)
    assert repo.load(run="tune")["a"].tolist() == [1 + 2j]


def test_a_single_element_may_have_any_stride(repo: fhrd.Repository) -> None:
    value = torch.ones(4, 4, dtype=torch.complex64)[:1, 1]
    fhrd.torch.save(repo, {"a": value}, run="tune", step=1)
    assert torch.equal(fhrd.torch.load(repo, run="tune")["a"], value)
