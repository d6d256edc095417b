"""torch.distributed.checkpoint: sharded checkpoints of several processes, and what the repository makes of their files."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fhrd

pytest.importorskip("fsspec")
torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

import torch.distributed.checkpoint as dcp  # noqa: E402

import fhrd.distributed  # noqa: E402
from fhrd.distributed import FsspecReader, FsspecWriter  # noqa: E402
from fhrd.filesystem import FhrdFileSystem, join_url  # noqa: E402

# Some versions see for themselves that there is no group.
ALONE: dict[str, Any] = {"no_dist": True} if "no_dist" in inspect.signature(dcp.save).parameters else {}


def state(seed: int = 1, fill: float | None = None) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Any] = {
        f"layer.{at}": torch.randn(257, 301, generator=generator).to(dtype)
        for at, dtype in enumerate([torch.float32, torch.bfloat16, torch.float64, torch.float16])
    }
    made["scalar"] = torch.tensor(3.5)
    made["step"] = 7
    made["names"] = ["a", "b"]
    if fill is not None:
        made = {name: torch.full_like(value, fill) if isinstance(value, torch.Tensor) else None for name, value in made.items()}
    return made


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value, name


@pytest.fixture
def location(tmp_path: Path) -> Path:
    location = tmp_path / "repo"
    fhrd.open(location, create=True).close()
    return location


def test_one_process(location: Path, tmp_path: Path) -> None:
    expected = state()
    fhrd.distributed.save(dict(expected), location, run="tune", step=300, metrics={"loss": 0.5})
    with fhrd.open(location) as repo:
        found = repo.snapshots()
        assert len(found) == 1 and (found[0].run, found[0].step, found[0].metrics) == ("tune", 300, {"loss": 0.5})
        paths = sorted(file.path for file in repo.checkpoint(run="tune").files())
        assert paths == [".metadata", "__0_0.distcp"]
        # The restored directory is one that DCP itself reads.
        repo.restore(found[0].id, tmp_path / "restored")
    plain = state(fill=0)
    dcp.load(plain, storage_reader=dcp.FileSystemReader(tmp_path / "restored"), **ALONE)
    assert_equal(plain, expected)
    for step in [300, "latest", "best:loss:min"]:
        loaded = state(fill=0)
        fhrd.distributed.load(loaded, location, run="tune", step=step)
        assert_equal(loaded, expected)


def test_a_save_in_the_background(location: Path) -> None:
    if not hasattr(dcp, "async_save"):
        with pytest.raises(NotImplementedError):
            fhrd.distributed.save_async(state(), location, run="tune", step=1)
        return
    expected, values = state(), state()
    future = fhrd.distributed.save_async(values, location, run="tune", step=1, metrics={"loss": 0.5})
    # What trains on does not reach what is saved.
    values["layer.0"].zero_()
    getattr(future, "upload_completion", future).result()
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune", step="best:loss:min")
    assert_equal(loaded, expected)


def test_a_step_that_exists_is_an_error_and_half_of_one_is_none(location: Path) -> None:
    fhrd.distributed.save(state(1), location, run="tune", step=1)
    with pytest.raises(FileExistsError, match="if_exists"):
        fhrd.distributed.save(state(2), location, run="tune", step=1)
    fhrd.distributed.save(state(3), location, run="tune", step=1, if_exists="replace")
    with fhrd.open(location) as repo:
        assert len(repo.snapshots()) == 1
        repo.save({"a": torch.ones(2)}, run="tune", step=2)
    with pytest.raises(fhrd.StepExistsError):
        fhrd.distributed.save(state(4), location, run="tune", step=2)
    with pytest.raises(ValueError, match="if_exists"):
        fhrd.distributed.save(state(4), location, run="tune", step=3, if_exists="keep")  # type: ignore[arg-type]
    # As if a rank had been killed.
    FhrdFileSystem(location).pipe_file("tune@5/__0_0.distcp", b"half")
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(3))
    fhrd.distributed.save(state(5), location, run="tune", step=5)
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(5))
    # The same, while it replaces a step: the metadata of the step before is still seen.
    FhrdFileSystem(location).pipe_file("tune@5/__0_0.distcp", b"half")
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(3))
    fhrd.distributed.save(state(6), location, run="tune", step=5)
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(6))


def test_the_order_of_arguments_and_an_open_repository_are_explained(location: Path) -> None:
    for call in (fhrd.distributed.save, fhrd.distributed.save_async, fhrd.distributed.load):
        with pytest.raises(TypeError, match="the state comes first"):
            call(location, state(), run="tune", step=1)  # type: ignore[arg-type]
        with fhrd.open(location) as repo, pytest.raises(TypeError, match="each rank opens by itself, found Repository"):
            call(state(), repo, run="tune", step=1)  # type: ignore[arg-type]


def test_the_writer_of_torch_through_the_file_system(location: Path) -> None:
    expected = state()
    for _ in range(2):
        # The second time it replaces what is there.
        dcp.save(dict(expected), storage_writer=FsspecWriter(join_url(location, "run@1"), sync_files=False), **ALONE)
    loaded = state(fill=0)
    dcp.load(loaded, storage_reader=FsspecReader(join_url(location, "run@1")), **ALONE)
    assert_equal(loaded, expected)
    assert FhrdFileSystem(location).find("run@1") == ["run@1/.metadata", "run@1/__0_0.distcp"]


WORKER = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import fhrd.distributed
sys.path.insert(0, sys.argv[5])
from test_distributed import state
action, location, rank, world = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", init_method="file://" + sys.argv[6], rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
def sharded(values):
    return {name: distribute_tensor(one, mesh, [Shard(0)]) if getattr(one, "ndim", 0) == 2 else one
            for name, one in values.items()}
if action == "save":
    fhrd.distributed.save(sharded(state()), location, run="tune", step=world)
else:
    found = sharded(state(fill=0))
    fhrd.distributed.load(found, location, run="tune", step=int(action))
    for name, expected in state().items():
        value = found[name]
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        assert torch.equal(value, expected) if isinstance(expected, torch.Tensor) else value == expected, name
dist.destroy_process_group()
"""


def run_ranks(tmp_path: Path, location: Path, action: str, world: int) -> None:
    meeting = tmp_path / f"meeting-{action}-{world}"
    here = str(Path(__file__).parent)
    ranks = [
        subprocess.Popen([sys.executable, "-c", WORKER, action, location, str(rank), str(world), here, meeting])
        for rank in range(world)
    ]
    assert [rank.wait(300) for rank in ranks] == [0] * world


def test_several_ranks_and_another_number_of_them(location: Path, tmp_path: Path) -> None:
    run_ranks(tmp_path, location, "save", 2)
    with fhrd.open(location) as repo:
        assert len(repo.snapshots()) == 1
        paths = sorted(file.path for file in repo.checkpoint(run="tune").files())
        assert paths == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    run_ranks(tmp_path, location, "2", 3)
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune", step=2)
    assert_equal(loaded, state())
