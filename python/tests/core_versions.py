"""Every change of a tensor is saved, however it was made: whatever torch counts, the bytes are looked at."""

from __future__ import annotations

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
        self.repo, self.step, self.options = repo, 0, options

    def save(self, tensor: Any, **options: Any) -> bool:
        """Whether the repository has the values of the tensor afterwards."""
        self.step += 1
        self.repo.save({"a": tensor}, run="a", **{"step": self.step, **self.options, **options})
        return torch.equal(self.repo.load(run="a", framework="torch")["a"], tensor.detach().cpu())


@pytest.fixture
def run(repo: fhrd.Repository) -> Run:
    return Run(repo)


def behind_the_back(tensor: Any) -> None:
    """A change that does not raise `_version`, the count of changes that torch has."""
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


def trained(repo: fhrd.Repository, name: str, **options: bool) -> bool:
    """Whether the repository has the weights after each step of a training."""
    model = torch.nn.Linear(300, 300)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
    is_saved = True
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 300)).square().mean().backward()
        optimizer.step()
        repo.save(model.state_dict(), run=name, step=step)
        loaded = repo.load(run=name, framework="torch")
        is_saved &= all(torch.equal(loaded[key], value) for key, value in model.state_dict().items())
    return is_saved


@pytest.mark.parametrize("is_foreach", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adafactor"])
def test_every_step_of_an_optimizer_is_saved(repo: fhrd.Repository, name: str, is_foreach: bool) -> None:
    assert trained(repo, name, foreach=is_foreach)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_every_step_of_a_fused_optimizer_is_saved(repo: fhrd.Repository, name: str) -> None:
    assert trained(repo, name, fused=True)


def test_a_write_through_data_is_saved(run: Run) -> None:
    tensor = torch.zeros(COUNT)
    assert run.save(tensor)
    behind_the_back(tensor)
    assert run.save(tensor)


@pytest.mark.parametrize("write", ["numpy", "dlpack"])
def test_writes_of_numpy_and_dlpack_are_saved(run: Run, write: str) -> None:
    tensor = torch.zeros(COUNT)
    assert run.save(tensor)
    view: Any = tensor.numpy() if write == "numpy" else torch.from_dlpack(tensor)
    view[5] = 1
    assert run.save(tensor)


def test_nobody_can_say_that_a_tensor_did_not_change(repo: fhrd.Repository) -> None:
    import fhrd.torch

    for save in (repo.save, lambda state, **options: fhrd.torch.save(repo, state, **options)):
        with pytest.raises(TypeError, match="trust_versions"):
            save({"a": torch.zeros(3)}, run="a", step=1, trust_versions=True)


def test_memory_that_numpy_uses_again_is_saved(run: Run) -> None:
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
