"""PyTorch objects: what is loaded is what `torch.load` gives after `torch.save`."""

from __future__ import annotations

import io
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import fhrd

torch = pytest.importorskip("torch")

import fhrd.torch  # noqa: E402
from fhrd.containers import DescriptionError  # noqa: E402


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Any]:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        yield repo


def reference(value: Any) -> Any:
    """What torch itself makes of a value."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def assert_same(found: Any, expected: Any, path: str = "value") -> None:
    assert type(found) is type(expected), (path, type(found), type(expected))
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape, found.layout) == (expected.dtype, expected.shape, expected.layout), path
        assert found.requires_grad == expected.requires_grad and found.device == expected.device, path
        if expected.layout is not torch.strided:
            assert torch.equal(found.to_dense(), expected.to_dense()), path
            return
        assert found.stride() == expected.stride(), (path, found.stride(), expected.stride())
        both = [one.detach().resolve_conj().resolve_neg().contiguous().view(-1) for one in (found, expected)]
        if expected.numel():
            assert both[0].view(torch.uint8).numpy().tobytes() == both[1].view(torch.uint8).numpy().tobytes(), path
    elif isinstance(expected, numpy.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape, path
        assert found.tobytes() == expected.tobytes(), path
    elif isinstance(expected, dict):
        assert list(found) == list(expected), path
        assert [type(key) for key in found] == [type(key) for key in expected], path
        for key in expected:
            assert_same(found[key], expected[key], f"{path}.{key}")
        assert getattr(found, "__dict__", None) == getattr(expected, "__dict__", None), path
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), path
        for at, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{path}.{at}")
    else:
        assert found == expected or (found != found and expected != expected), path


def round_trip(repo: Any, value: Any, **options: Any) -> Any:
    fhrd.torch.save(repo, value, run="r", step=1, **options)
    return fhrd.torch.load(repo, run="r", step=1, trusted=bool(options.get("allow_pickle")))


def model() -> Any:
    torch.manual_seed(3)
    layers = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 8, bias=False)
    )
    layers[3].weight = torch.nn.Parameter(torch.randn(8, 16))
    return layers


def test_a_training_state_is_equal_and_goes_on_bit_for_bit(repo: Any) -> None:
    def step(network: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        network(torch.randn(32, 8)).pow(2).mean().backward()
        optimizer.step()

    for name, options in [("AdamW", {"lr": 0.01, "amsgrad": True}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adafactor", {})]:
        network = model()
        optimizer = getattr(torch.optim, name)(network.parameters(), **options)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for _ in range(3):
            step(network, optimizer)
            schedule.step()
        state = {
            "model": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": fhrd.torch.random_state(),
            "epoch": 3,
        }
        assert_same(round_trip(repo, state, if_exists="replace"), reference(state))
        fhrd.torch.save(repo, state, run=name, step=3)
        step(network, optimizer)
        restored = model()
        second = getattr(torch.optim, name)(restored.parameters(), **options)
        loaded = fhrd.torch.load(repo, run=name)
        restored.load_state_dict(loaded["model"])
        second.load_state_dict(loaded["optimizer"])
        fhrd.torch.set_random_state(loaded["random"])
        step(restored, second)
        assert_same(restored.state_dict(), network.state_dict())
        assert_same(second.state_dict(), optimizer.state_dict())


def all_dtypes() -> list[Any]:
    found = {one for one in vars(torch).values() if isinstance(one, torch.dtype)}
    return sorted((one for one in found if not str(one).startswith(("torch.q", "torch.bits"))), key=str)


@pytest.mark.parametrize("dtype", all_dtypes(), ids=str)
def test_every_type_of_torch(repo: Any, dtype: Any) -> None:
    if dtype.itemsize == 1 and str(dtype)[6:] in {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)}:
        pytest.skip("types of less than a byte have no kernels in torch")
    raw = torch.arange(16 * 6, dtype=torch.uint8)
    if dtype is torch.bool:
        raw = raw % 2
    count = raw.numel() // dtype.itemsize
    values = raw[: count * dtype.itemsize].view(dtype)
    state = {
        "all": values.clone(),
        "matrix": values[:4].clone().reshape(2, 2),
        "scalar": values[0].clone(),
        "empty": torch.empty((0, 3), dtype=dtype),
        "strided": values.clone()[::2],
        "parameter": torch.nn.Parameter(values.clone(), requires_grad=False),
    }
    try:
        expected = reference(state)
    except KeyError:
        pytest.skip("this torch cannot save its own type")
    assert_same(round_trip(repo, state), expected)


def test_shapes_and_strides(repo: Any) -> None:
    base = torch.arange(120.0)
    state = {
        "transposed": base.clone().reshape(4, 30).t(),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "gaps": base.clone().reshape(10, 12)[:, 3:7],
        "expanded": torch.ones(1, 5).expand(7, 5),
        "overlapping": base.clone().as_strided((8, 8), (3, 1)),
        "scalar": torch.tensor(2.5),
        "one": torch.ones(1, 1, 1),
        "empty": torch.empty(3, 0, 2),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "imaginary": torch.randn(3, dtype=torch.complex64).conj().imag,
        "reversed": base.flip(0),
        "gradient": torch.randn(3, requires_grad=True),
        "not a number": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
    }
    expected = reference(state)
    expected["imaginary"] = expected["imaginary"].resolve_neg()
    found = round_trip(repo, state)
    found["imaginary"], expected["imaginary"] = found["imaginary"].contiguous(), expected["imaginary"].contiguous()
    assert_same(found, expected)


def shares(one: Any, other: Any) -> bool:
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def test_tensors_that_share_memory_share_it_after_loading(repo: Any) -> None:
    whole = torch.arange(100, dtype=torch.float32)
    state = {
        "embedding": whole,
        "tied": whole,
        "view": whole.view(10, 10),
        "part": whole[20:40],
        "column": whole.view(10, 10)[:, 3],
        "bits": whole.view(torch.int32)[5:9],
        "halves": list(torch.arange(10.0)[1:9].split(4)),
        "alone": whole.clone(),
    }
    found = round_trip(repo, state)
    # torch.save refuses two types for one memory.
    assert torch.equal(found["bits"], state["bits"]) and found["bits"].dtype is torch.int32
    assert_same({**found, "bits": None}, reference({**state, "bits": None}))
    for name in ["view", "part", "column", "bits"]:
        assert shares(found[name], found["embedding"]), name
    assert found["tied"] is found["embedding"] and not shares(found["alone"], found["embedding"])
    assert shares(found["halves"][0], found["halves"][1])
    found["embedding"][25] = -1
    assert found["part"][5] == -1 and found["view"][2, 5] == -1
    # The shared values are stored once.
    size = next(one.size for one in repo.checkpoint(run="r").files() if one.path == "model.safetensors")
    assert size < 100 * 4 * 2 + 8 * 4 + 2000


def test_changes_in_place_are_saved(repo: Any) -> None:
    state = {"w": torch.zeros(1000), "view": torch.zeros(10)}
    alias = state["w"].numpy()
    for step in range(1, 6):
        if step % 2:
            state["w"].data[step] = step
        else:
            alias[step] = step
        fhrd.torch.save(repo, state, run="r", step=step)
        assert torch.equal(fhrd.torch.load(repo, run="r", step=step)["w"], state["w"])
    assert [fhrd.torch.load(repo, run="r", step=step)["w"].sum().item() for step in (1, 5)] == [1.0, 15.0]


def test_containers_and_plain_values(repo: Any) -> None:
    shared = [1, 2]
    ordered = OrderedDict([("b", 1), ("a", 2)])
    ordered._metadata = OrderedDict([("", {"version": 2})])  # type: ignore[attr-defined]
    state = {
        1: "one", "1": "text", 2.5: None, (1, "x"): b"bytes", None: bytearray(b"array"),
        "numbers": [0, -1, 2**100, -(2**63), 1.5, -0.0, 1e300, 3 + 4j],
        "tuple": (1, (2, ()), []), "set": {1, 2}, "frozen": frozenset("ab"), "range": range(3, 9, 2),
        "ordered": ordered, "counts": defaultdict(int, {"x": 1}), "shared": [shared, shared],
        "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu"), "slice": slice(1, None, 2),
        "unicode": "\u00e4\u2603\U0001f600\x00", "dots": {"a.b": torch.ones(1), "a": {"b": torch.zeros(2)}},
        "numpy": numpy.arange(6).reshape(2, 3), "numpy scalar": numpy.float32(2.5), "": {"": torch.ones(2)},
        "big endian": numpy.arange(3, dtype=">i4"), "date": numpy.array(["2026-01-01"], "M8[D]"),
        "records": numpy.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", "<f8", (1,))]),
        "long": numpy.longdouble("1.25"), "text array": numpy.array(["ab", "c"]), "__metadata__": torch.ones(3),
        "void": numpy.void(b"abc"), "voids": numpy.array([b"abc"], "V3"),
        "gaps": numpy.zeros(2, numpy.dtype([("a", "i1"), ("b", "i8")], align=True)),
    }  # fmt: skip
    found = round_trip(repo, state)
    # torch.load turns the bytes of arrays into the order of the machine; here they stay.
    expected = {**reference(state), "big endian": state["big endian"]}
    assert_same(found, expected)
    assert found["shared"][0] is found["shared"][1]
    assert [numpy.signbit(one) for one in found["numbers"][4:6]] == [False, True]


def test_the_state_of_each_schedule_of_torch(repo: Any) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1, 0.9)
    kinds = torch.optim.lr_scheduler
    schedules = [
        kinds.MultiStepLR(optimizer, [3, 5, 5]), kinds.OneCycleLR(optimizer, 0.1, total_steps=9),
        kinds.CosineAnnealingWarmRestarts(optimizer, 3), kinds.ReduceLROnPlateau(optimizer), kinds.CyclicLR(optimizer, 0.1, 1),
        kinds.SequentialLR(optimizer, [kinds.LinearLR(optimizer), kinds.MultiStepLR(optimizer, [2])], [2]),
        kinds.LambdaLR(optimizer, lambda step: 1.0),
    ]  # fmt: skip
    for step, schedule in enumerate(schedules):
        state = schedule.state_dict()
        fhrd.torch.save(repo, state, run="r", step=step)
        loaded = fhrd.torch.load(repo, run="r", step=step)
        assert loaded == state and [type(one) for one in loaded.values()] == [type(one) for one in state.values()]
        schedule.load_state_dict(loaded)


def test_sparse_tensors(repo: Any) -> None:
    coordinates = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    state = {
        "coo": coordinates.coalesce(),
        "raw": coordinates,
        "csr": torch.eye(4).to_sparse_csr(),
        "parameter": torch.nn.Parameter(torch.eye(3).to_sparse()),
    }
    found = round_trip(repo, state)
    assert_same(found, reference(state))
    assert found["coo"].is_coalesced() and not found["raw"].is_coalesced()


class Mark:
    """Runs code when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def test_nothing_is_pickled_or_unpickled_without_consent(repo: Any, tmp_path: Path) -> None:
    state = {"w": torch.ones(2), "inner": [Mark(str(tmp_path / "executed"))]}
    with pytest.raises(TypeError, match=r"inner\.0: a .*Mark"):
        fhrd.torch.save(repo, state, run="r", step=1)
    assert repo.runs() == []
    fhrd.torch.save(repo, state, run="r", step=1, allow_pickle=True)
    with pytest.raises(ValueError, match="trusted=True"):
        fhrd.torch.load(repo, run="r")
    assert not (tmp_path / "executed").exists()
    fhrd.torch.load(repo, run="r", trusted=True)
    assert (tmp_path / "executed").exists()
    with pytest.raises(TypeError, match="meta"):
        fhrd.torch.save(repo, {"w": torch.ones(2, device="meta")}, run="r", step=2)
    with pytest.raises(TypeError, match="cannot be pickled"):
        fhrd.torch.save(repo, {"f": lambda: 1}, run="r", step=2, allow_pickle=True)


@pytest.mark.parametrize(
    "described",
    [
        b"[]", b"{", b'{"tensor":"w","stride":[1000000000000],"number":0}', b'{"same":5}', b'{"new kind":1,"number":0}',
        b'{"tensor":"nothing","number":0}', b'{"dtype":"load","number":0}', b'{"dict":[[1]],"number":0}', b'{"int":"x"}',
        b'{"tensor":"w","view":{"dtype":"float32","offset":4,"size":[4],"stride":[1]},"number":0}',
        b'{"tensor":"w","view":{"dtype":"float32","offset":-4,"size":[1],"stride":[1]},"number":0}',
        b'{"tensor":"w","view":{"dtype":"float32","offset":1,"size":[1],"stride":[1]},"number":0}',
        b'{"array":"w","dtype":"|O","shape":[2],"number":0}', b'{"array":"w","dtype":"<f8","shape":[9],"number":0}',
        b'{"list":' * 300 + b"[]", b'{"tensor":"w","view":{"dtype":"float32"},"number":0}',
    ],
)  # fmt: skip
def test_false_descriptions_are_errors(described: bytes) -> None:
    with pytest.raises(DescriptionError):
        fhrd.torch.decode({"w": torch.ones(4)}, described)


def test_files_of_other_programs_are_dictionaries(repo: Any) -> None:
    repo.save({"a": numpy.arange(3), "b": numpy.ones((2, 2), numpy.float32)}, run="plain", step=1)
    found = fhrd.torch.load(repo, run="plain")
    assert_same(found, {"a": torch.arange(3), "b": torch.ones(2, 2)})


def test_saving_in_the_background(repo: Any) -> None:
    state = {"w": torch.zeros(1000)}
    handles = []
    for step in range(5):
        state["w"] += 1
        handles.append(fhrd.torch.save_async(repo, state, run="r", step=step))
    for step, handle in enumerate(handles):
        handle.result(60)
        assert fhrd.torch.load(repo, run="r", step=step)["w"][0] == step + 1


def test_a_save_shows_progress_and_knows_the_order_of_torch(repo: Any) -> None:
    seen: list[dict[str, int]] = []
    state = {"model": {"weight": torch.arange(6.0)}}
    fhrd.torch.save(repo, state, run="r", step=1, progress=seen.append)
    assert seen
    with pytest.raises(TypeError, match=r"the repository comes first: fhrd\.torch\.save\(repo, value\)"):
        fhrd.torch.save(state, repo)
    with pytest.raises(fhrd.StepExistsError):
        fhrd.torch.save(repo, state, run="r", step=1)
    run = repo.run("r", git=False, if_exists="replace")
    fhrd.torch.save(run, {"model": {"weight": torch.ones(6)}}, step=1)
    fhrd.torch.save_async(run, state, step=2).result()
    assert torch.equal(fhrd.torch.load(run, step=1)["model"]["weight"], torch.ones(6)) and run.all_steps() == [1, 2]
    with pytest.raises(TypeError, match="neither an array nor a plain value"):
        fhrd.torch.save(repo, torch.nn.Linear(2, 2))


def test_what_could_not_be_loaded_is_not_saved(repo: Any) -> None:
    inner: list[Any] = []
    within = (inner,)
    inner.append(within)
    for value, reason in [
        (within, "contains itself"),
        ({"deep": [within]}, "deep.0"),
        ({"n": 10**5000}, "n: .*digits"),
        ({"nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}, "nested"),
        ({"\ud800": torch.ones(2)}, "halves of characters"),
        ({"a": {"\ud800": 1.5}, "w": torch.ones(2)}, None),
    ]:
        if reason is None:
            assert_same(round_trip(repo, value), value)
            continue
        with pytest.raises(fhrd.ArgumentError, match=reason):
            fhrd.torch.save(repo, value)
    assert len(repo.snapshots()) == 1
    with pytest.raises(fhrd.ArgumentError, match=r"model\.safetensors\.tree\.json"):
        fhrd.torch.save(repo, {"w": torch.ones(2)}, files={"model.safetensors.tree.json": b"mine"})
    with pytest.raises(fhrd.ArgumentError, match=r"model\.safetensors\.tree\.json"):
        fhrd.torch.save_async(repo, {"w": torch.ones(2)}, files={"model.safetensors.tree.json": b"mine"})
    # Lists and dictionaries may contain themselves.
    inner.clear()
    inner.append(inner)
    assert (found := round_trip(repo, {"a": inner}, if_exists="replace"))["a"][0] is found["a"]
