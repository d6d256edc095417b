"""`trust_versions`: what is seen, what is missed, and what is never trusted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fhrd

torch = pytest.importorskip("torch", reason="NOT CHECKED: torch is not installed")

#: More than two blocks.
COUNT = 700_000


class Run:
    """Saves one tensor again and again."""

    def __init__(self, repo: fhrd.Repository, **options: Any) -> None:
        self.repo, self.step, self.options = repo, 0, {"trust_versions": True, **options}

    def save(self, tensor: Any, **options: Any) -> bool:
        """Whether the repository has the values of the tensor afterwards."""
        self.step += 1
        self.repo.save({"a": tensor}, run="a", **{"step": self.step, **self.options, **options})
        return torch.equal(self.repo.load(run="a", framework="torch")["a"], tensor.detach().cpu())


@pytest.fixture
def run(repo: fhrd.Repository) -> Run:
    return Run(repo)


def behind_the_back(tensor: Any) -> None:
    """A change that does not raise the version."""
    before = tensor._version
    tensor.data[COUNT // 2] += 1
    assert tensor._version == before


IN_PLACE: list[tuple[str, Callable[[Any], Any]]] = [
    ("add_", lambda tensor: tensor.add_(1)),
    ("item", lambda tensor: tensor.__setitem__(3, 9.0)),
    ("view", lambda tensor: tensor.view(-1, 100)[7].mul_(2)),
    ("alias", lambda tensor: tensor.detach().zero_()),
    ("copy_", lambda tensor: tensor.copy_(torch.ones_like(tensor))),
    ("out", lambda tensor: torch.exp(torch.ones_like(tensor), out=tensor)),
    ("foreach", lambda tensor: torch._foreach_add_([tensor], 1.0)),
    ("fill", lambda tensor: torch.nn.init.normal_(tensor)),
    ("index_put_", lambda tensor: tensor.index_put_((torch.tensor([5]),), torch.tensor([7.0]))),
]


@pytest.mark.parametrize("change", [change for _, change in IN_PLACE], ids=[name for name, _ in IN_PLACE])
def test_a_change_in_place_is_saved(run: Run, change: Callable[[Any], Any]) -> None:
    tensor = torch.randn(COUNT)
    assert run.save(tensor) and run.save(tensor)
    with torch.no_grad():
        change(tensor)
    assert run.save(tensor)


def test_a_change_in_inference_mode_is_saved(run: Run) -> None:
    tensor = torch.randn(COUNT)
    assert run.save(tensor)
    with torch.inference_mode():
        tensor.add_(1)
    assert run.save(tensor)


def trained(repo: fhrd.Repository, name: str, is_trusted: bool, **options: bool) -> bool:
    """Whether the repository has the weights after each step of a training."""
    model = torch.nn.Linear(300, 300)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
    is_saved = True
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 300)).square().mean().backward()
        optimizer.step()
        repo.save(model.state_dict(), run=f"{name} {is_trusted}", step=step, trust_versions=is_trusted)
        loaded = repo.load(run=f"{name} {is_trusted}", framework="torch")
        is_saved &= all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())
    return is_saved


@pytest.mark.parametrize("is_foreach", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adafactor"])
def test_every_step_of_an_optimizer_is_saved(repo: fhrd.Repository, name: str, is_foreach: bool) -> None:
    assert trained(repo, name, True, foreach=is_foreach)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_steps_of_fused_optimizers_are_seen_without_trust(repo: fhrd.Repository, name: str) -> None:
    # Torch 2.15 does not raise the versions there. A torch that does is no worse.
    trained(repo, name, True, fused=True)
    assert trained(repo, name, False, fused=True)


def test_a_write_through_data_is_missed_and_seen_without_trust(run: Run) -> None:
    tensor = torch.zeros(COUNT)
    assert run.save(tensor)
    behind_the_back(tensor)
    assert not run.save(tensor), "this is the danger that the documentation names"
    assert run.save(tensor, trust_versions=False)


@pytest.mark.parametrize("write", ["numpy", "dlpack"])
def test_writes_of_numpy_and_dlpack_are_missed_and_seen_without_trust(run: Run, write: str) -> None:
    tensor = torch.zeros(COUNT)
    assert run.save(tensor)
    view: Any = tensor.numpy() if write == "numpy" else torch.from_dlpack(tensor)
    view[5] = 1
    assert not run.save(tensor)
    assert run.save(tensor, trust_versions=False)


def test_only_the_last_save_of_the_same_run_and_file_is_trusted(repo: fhrd.Repository, run: Run) -> None:
    for between in (
        lambda tensor: repo.save({"a": tensor}, run="a", step=99),
        lambda tensor: repo.save_async({"a": tensor}, run="a", step=99).result(),
        lambda tensor: repo.save({"a": tensor}, run="a", step=99, name="b.safetensors", trust_versions=True),
        lambda tensor: pytest.raises(fhrd.ArgumentError, repo.save, {"a": tensor}, run="a", trust_versions=True),
    ):
        repo.forget(keep=fhrd.Keep(last=0, tags=["none"]), allow_empty_group=True)
        tensor = torch.zeros(COUNT)
        assert run.save(tensor, step=1)
        behind_the_back(tensor)
        between(tensor)
        assert run.save(tensor, step=100)
    # Another object of the same repository knows nothing of this one.
    behind_the_back(tensor)
    with fhrd.open(repo.location) as other:
        assert Run(other).save(tensor, step=101)


def test_memory_that_is_used_again_is_never_trusted(run: Run) -> None:
    reused = 0
    for value in range(12):
        tensor = torch.full((COUNT,), float(value))
        address, version = tensor.data_ptr(), tensor._version
        assert run.save(tensor)
        del tensor
        gc.collect()
        tensor = torch.full((COUNT,), float(value) + 0.5)
        reused += (tensor.data_ptr(), tensor._version) == (address, version)
        assert run.save(tensor), "a new tensor at the address of a freed one"
    if reused == 0:
        pytest.skip("NOT CHECKED: the allocator never gave the same address again")


def test_an_array_that_numpy_frees_is_never_trusted(run: Run) -> None:
    array = np.zeros(COUNT, np.float32)
    for value in range(3):
        # Each has its own storage and its own version at the same address.
        tensor = torch.from_numpy(array)
        array[:] = value
        assert run.save(tensor)
        del tensor


def test_other_memory_shapes_types_and_conjugates_are_saved(run: Run) -> None:
    tensor = torch.randn(COUNT)
    assert run.save(tensor)
    for other in (tensor[1:], tensor[: COUNT - 1], tensor.view(2, -1), tensor.view(torch.int32), tensor.clone()):
        assert run.save(other)
    square = torch.randn(900, 900, dtype=torch.complex64)
    for other in (square, square.T, square.conj(), square.imag, square.conj().imag):
        assert run.save(other)
    parameter = torch.nn.Parameter(tensor)
    assert run.save(parameter)
    parameter.data = torch.randn(COUNT)
    assert run.save(parameter)


def test_tensors_without_a_version_and_shared_memory_are_hashed(run: Run) -> None:
    with torch.inference_mode():
        tensor = torch.zeros(COUNT)
        assert run.save(tensor)
        tensor.add_(1)
        assert run.save(tensor)
    shared = torch.zeros(COUNT).share_memory_()
    assert run.save(shared)
    behind_the_back(shared)
    assert run.save(shared)
    for array in (np.zeros(COUNT), np.ones(COUNT)):
        run.repo.save({"a": array}, run="n", step=int(array[0]), trust_versions=True)
        assert np.array_equal(run.repo.load(run="n")["a"], array)


def test_what_the_repository_has_lost_is_stored_again(repo: fhrd.Repository, run: Run) -> None:
    tensor = torch.randn(COUNT)
    assert run.save(tensor)
    behind_the_back(tensor)
    repo.forget(keep=fhrd.Keep(tags=["none"]), allow_empty_group=True)
    repo.prune(grace_seconds=0)
    assert run.save(tensor), "blocks that are not stored are hashed"
    assert repo.check(read_data=True)["defect_count"] == 0


def test_a_run_is_needed(repo: fhrd.Repository) -> None:
    with pytest.raises(fhrd.ArgumentError, match="name the run"):
        repo.save({"a": torch.zeros(3)}, trust_versions=True)


def test_nested_objects_are_compared_by_all_tensors_of_a_memory(repo: fhrd.Repository) -> None:
    import fhrd.torch

    memory = torch.zeros(COUNT)
    base, other = torch.zeros(COUNT), torch.zeros(COUNT)
    state = {
        # No tensor has all of the memory.
        "parts": [memory[:400_000], memory[300_000:]],
        # Two version counters of one memory.
        "whole": base, "half": base.data[:1000],
        "alone": other,
        "sparse": torch.sparse_coo_tensor(torch.arange(COUNT)[None], torch.zeros(COUNT), check_invariants=True),
        "array": np.zeros(COUNT),
        "complex": torch.zeros(COUNT, dtype=torch.complex128),
    }

    def assert_saved(step: int) -> None:
        fhrd.torch.save(repo, state, run="t", step=step, trust_versions=True)
        loaded = fhrd.torch.load(repo, run="t")
        for name in ("whole", "half", "alone", "complex"):
            assert torch.equal(loaded[name], state[name]), name
        assert all(torch.equal(one, two) for one, two in zip(loaded["parts"], state["parts"], strict=True))
        assert torch.equal(loaded["sparse"].to_dense(), state["sparse"].to_dense())
        assert np.array_equal(loaded["array"], state["array"])

    for step in range(3):
        assert_saved(step)
        state["parts"][1][5] += 1
        state["half"][7] += 1
        state["sparse"]._values()[9] += 1
        state["array"][3] += 1
        state["complex"][2] += 1
    other.data[3] += 1
    fhrd.torch.save(repo, state, run="t", step=9, trust_versions=True)
    assert fhrd.torch.load(repo, run="t")["alone"][3] == 0, "this one was trusted"
    fhrd.torch.save(repo, state, run="t", step=10)
    assert fhrd.torch.load(repo, run="t")["alone"][3] == 1
