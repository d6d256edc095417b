"""torch.distributed.checkpoint: sharded checkpoints of several processes, and what the repository makes of their files."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import threading
from collections import UserDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy
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


def test_a_replacement_that_fails_at_any_write_leaves_the_step_as_it_was(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fhrd.distributed.save(state(1), location, run="tune", step=4)
    fhrd.distributed.save(state(2), location, run="tune", step=5, metrics={"loss": 0.5})
    with fhrd.open(location) as repo:
        old = repo.checkpoint(run="tune").id
    left = [0]
    for kind in ("_save_after", "forget"):
        original = getattr(fhrd.Repository, kind)

        def failing(self: Any, *args: Any, original: Any = original, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(28, "No space left on device")
            return original(self, *args, **kwargs)

        monkeypatch.setattr(fhrd.Repository, kind, failing)
    failures = 0
    while True:
        left[0] = failures + 1
        try:
            fhrd.distributed.save(state(3), location, run="tune", step=5, if_exists="replace")
            break
        except BaseException as error:  # As DCP's is.
            assert "No space left" in str(error)
            failures += 1
        left[0] = 0
        loaded = state(fill=0)
        # Until the new step is one snapshot, the old one is loaded.
        with fhrd.open(location) as repo:
            ended = [one.id for one in repo.snapshots() if one.step == 5]
            is_new = ended != [old]
            # Parts of a save are no steps, for whoever asks.
            assert is_new or repo.forget(keep=fhrd.Keep(last=2), run="tune") == []
            assert repo.run("tune", git=False).latest_step() == 5
        for step in (5, "latest"):
            fhrd.distributed.load(loaded, location, run="tune", step=step)
            assert_equal(loaded, state(3) if is_new else state(2))
        with pytest.raises(FileExistsError):
            fhrd.distributed.save(state(4), location, run="tune", step=5)
    # A part, the step, and the step and the part that are forgotten.
    assert failures >= 4
    left[0] = 0
    with fhrd.open(location) as repo:
        assert len(repo.snapshots()) == 2
        assert sorted(file.path for file in repo.checkpoint(run="tune").files()) == [".metadata", "__0_0.distcp"]


def test_a_first_save_that_fails_may_be_repeated(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(fhrd.distributed._Parts, "assemble", failing)
        with pytest.raises(BaseException, match="No space left"):
            fhrd.distributed.save(state(1), location, run="tune", step=5)
    with pytest.raises(fhrd.NotFoundError, match="has no step 5"):
        fhrd.distributed.load(state(fill=0), location, run="tune", step=5)
    fhrd.distributed.save(state(2), location, run="tune", step=5, metrics={"loss": 1})
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune", step="best:loss:min")
    assert_equal(loaded, state(2))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_part_is_lost_without_an_error(location: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    fhrd.distributed.save(state(1), location, run="tune", step=5)
    original, calls, lock = fhrd.Repository._save_after, [0], threading.Lock()
    for failing_call in range(1, threads + 2):
        calls[0] = 0

        def failing(self: Any, *args: Any, failing_call: int = failing_call, **kwargs: Any) -> Any:
            with lock:
                calls[0] += 1
                is_failing = calls[0] == failing_call
            if is_failing:
                raise OSError(28, "No space left on device")
            return original(self, *args, **kwargs)

        monkeypatch.setattr(fhrd.Repository, "_save_after", failing)
        with pytest.raises(BaseException, match="No space left"):
            fhrd.distributed.save(state(2), location, run="tune", step=5, if_exists="replace", thread_count=threads)
        loaded = state(fill=0)
        fhrd.distributed.load(loaded, location, run="tune")
        assert_equal(loaded, state(1))
    monkeypatch.setattr(fhrd.Repository, "_save_after", original)
    # A part that somebody has deleted is an error, too.
    assemble = fhrd.distributed._Parts.assemble

    def without_parts(self: Any, parts: Any, metrics: Any) -> None:
        self.fs.repo.forget(list(parts.values()))
        assemble(self, parts, metrics)

    with monkeypatch.context() as patched:
        patched.setattr(fhrd.distributed._Parts, "assemble", without_parts)
        with pytest.raises(BaseException, match="is not in the repository"):
            fhrd.distributed.save(state(2), location, run="tune", step=5, if_exists="replace")
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(1))
    fhrd.distributed.save(state(3), location, run="tune", step=5, if_exists="replace")
    with fhrd.open(location) as repo:
        # Nothing of the saves that failed is left.
        assert len(repo.snapshots()) == 1
        assert sorted(file.path for file in repo.checkpoint(run="tune").files()) == [".metadata", "__0_0.distcp"]
    pickle.loads(pickle.dumps(fhrd.distributed.FhrdWriter(location, "tune", 6)))
    pickle.loads(pickle.dumps(fhrd.distributed.FhrdReader(location, "tune", 5)))


def test_a_file_beside_a_step_leaves_it_whole(location: Path) -> None:
    for step in (4, 5):
        fhrd.distributed.save(state(step), location, run="tune", step=step)
    FhrdFileSystem(location).pipe_file("tune@5/notes.txt", b"notes")
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(5))
    with pytest.raises(FileExistsError):
        fhrd.distributed.save(state(6), location, run="tune", step=5)


def test_a_writer_is_used_for_the_step_that_dcp_names(location: Path) -> None:
    writer = fhrd.distributed.FhrdWriter(location, "tune", 2)
    dcp.save(state(2), storage_writer=writer, **ALONE)
    dcp.save(state(3), checkpoint_id=join_url(location, "tune@3"), storage_writer=writer, **ALONE)
    for step in (2, 3):
        loaded = state(fill=0)
        fhrd.distributed.load(loaded, location, run="tune", step=step)
        assert_equal(loaded, state(step))
    for other in (join_url(location, "file"), join_url("elsewhere", "tune@4"), "/tmp/tune@4"):
        with pytest.raises(BaseException, match="checkpoint_id"):
            dcp.save(state(4), checkpoint_id=other, storage_writer=writer, **ALONE)
    with pytest.raises(BaseException, match="the run has the step"):
        writer = fhrd.distributed.FhrdWriter(location, "tune", 3, overwrite=False)
        dcp.save(state(4), storage_writer=writer, **ALONE)
    fhrd.distributed.load(loaded, location, run="tune", step=3)
    assert_equal(loaded, state(3))


def test_a_load_reads_one_save_whatever_is_saved_meanwhile(location: Path) -> None:
    fhrd.distributed.save(state(1), location, run="tune", step=1, metrics={"loss": 2})
    for step in ("best:loss:min", "latest", 1):
        loaded, reader = state(fill=0), fhrd.distributed.FhrdReader(location, "tune", step)
        read_metadata = reader.read_metadata

        def read_and_save(*args: Any, read_metadata: Any = read_metadata, **kwargs: Any) -> Any:
            found = read_metadata(*args, **kwargs)
            fhrd.distributed.save(state(2), location, run="tune", step=2, metrics={"loss": 1}, if_exists="replace")
            return found

        reader.read_metadata = read_and_save  # type: ignore[method-assign]
        dcp.load(loaded, storage_reader=reader, **ALONE)
        assert_equal(loaded, state(1))
        with fhrd.open(location) as repo:
            repo.forget([repo.checkpoint(run="tune", step=2).id])


def test_what_is_not_there_is_said_as_elsewhere(location: Path) -> None:
    fhrd.distributed.save(state(1), location, run="tune", step=1)
    for run, step in (("none", "latest"), ("none", 1), ("tune", 2), ("tune", "best:loss:min")):
        with pytest.raises(fhrd.NotFoundError):
            fhrd.distributed.load(state(), location, run=run, step=step)


def test_the_name_of_a_run_may_have_a_slash(location: Path) -> None:
    fhrd.distributed.save(state(1), location, run="a/b", step=1)
    loaded = state(fill=0)
    for step in ("latest", 1):
        fhrd.distributed.load(loaded, location, run="a/b", step=step)
        assert_equal(loaded, state(1))


def test_rules_keep_a_sharded_step_and_the_files_beside_it(location: Path) -> None:
    with fhrd.open(location) as repo:
        for step in (1, 2):
            fhrd.distributed.save(state(step), location, run="tune", step=step)
            FhrdFileSystem(location).pipe_file(f"tune@{step}/notes.txt", b"notes")
            dcp.save(state(step), storage_writer=FsspecWriter(join_url(location, f"torch@{step}"), sync_files=False), **ALONE)
        repo.forget(keep=fhrd.Keep(last=1))
        assert len(repo.snapshots()) == 4 and repo.all_steps("tune") == repo.all_steps("torch") == [2]
        assert len(repo.checkpoint(run="tune").files()) == 2
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune")
    assert_equal(loaded, state(2))
    dcp.load(loaded, storage_reader=FsspecReader(join_url(location, "torch@2")), **ALONE)
    assert FhrdFileSystem(location).cat_file("tune@2/notes.txt") == b"notes"


def test_files_beside_a_step_stay(location: Path) -> None:
    files = FhrdFileSystem(location)
    files.pipe_file("tune@1/config.json", b"config")
    fhrd.distributed.save(state(1), location, run="tune", step=1)
    files.pipe_file("tune@1/notes.txt", b"notes")
    fhrd.distributed.save(state(2), location, run="tune", step=1, if_exists="replace")
    assert files.cat_file("tune@1/config.json") == b"config" and files.cat_file("tune@1/notes.txt") == b"notes"
    with fhrd.open(location) as repo:
        assert len(repo.snapshots()) == 1 and len(repo.checkpoint(run="tune").files()) == 4


def test_what_others_add_to_a_step_during_a_save_stays(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assemble = fhrd.distributed._Parts.assemble
    with fhrd.open(location) as repo:
        repo.save({}, files={"old.json": b"old"}, run="tune", step=1)

        def late(self: Any, parts: Any, metrics: Any) -> None:
            repo.save({}, files={"config.json": b"config"}, run="tune", step=1, if_exists="add")
            assemble(self, parts, metrics)

        monkeypatch.setattr(fhrd.distributed._Parts, "assemble", late)
        fhrd.distributed.save(state(1), location, run="tune", step=1, if_exists="replace")
        stored = [file.path for one in repo.snapshots() for file in repo.checkpoint(snapshot=one.id).files()]
    assert sorted(stored) == [".metadata", "__0_0.distcp", "config.json"]
    loaded = state(fill=0)
    fhrd.distributed.load(loaded, location, run="tune", step=1)
    assert_equal(loaded, state(1))


class Counter:
    """A stateful object, as DCP knows it."""

    def __init__(self) -> None:
        self.value = torch.zeros(1000)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "list": [self.value]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Pair(NamedTuple):
    one: Any
    other: Any


def test_later_steps_do_not_reach_what_is_saved_in_the_background(location: Path) -> None:
    if not hasattr(dcp, "async_save"):
        return
    model, counter, tensor, array = torch.nn.Linear(3, 2), Counter(), torch.zeros(1000), numpy.zeros(1000)
    weight = model.weight.detach().clone()
    values = {
        "model": model, "counter": counter, "pair": Pair(tensor, [tensor]), "map": UserDict(a=tensor), "array": array,
    }  # fmt: skip
    copies = fhrd.distributed._copied({key: fhrd.distributed._state_of(one) for key, one in values.items()})
    future = fhrd.distributed.save_async(values, location, run="tune", step=1)
    with torch.no_grad():
        model.weight.fill_(1)
        counter.value.fill_(1)
        tensor.fill_(1)
    array.fill(1)
    getattr(future, "upload_completion", future).result()
    loaded: dict[str, Any] = {"model": torch.nn.Linear(3, 2).state_dict(), "counter": Counter().state_dict()}
    loaded["pair"] = Pair(torch.ones(1000), [torch.ones(1000)])
    fhrd.distributed.load(loaded, location, run="tune", step=1)
    for found in (loaded, copies):
        assert torch.equal(found["model"]["weight"], weight)
        assert not found["counter"]["value"].any() and not found["counter"]["list"][0].any()
        assert not found["pair"][0].any() and not found["pair"][1][0].any()
    assert not copies["map"]["a"].any() and not copies["array"].any() and type(copies["pair"]) is Pair


def test_an_option_that_does_not_exist_is_an_error(location: Path) -> None:
    with pytest.raises(TypeError, match="there is no option `metric`"):
        fhrd.distributed.save(state(), location, run="tune", step=1, metric={"loss": 1})
    with pytest.raises(TypeError, match="there is no option `thread_count`"):
        fhrd.distributed.load(state(), location, run="tune", step=1, thread_count=2)
    fhrd.distributed.save(state(), location, run="tune", step=1, thread_count=2, password=None)


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
import os, sys, torch, torch.distributed as dist
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
if torch.__version__.startswith("2.5."):
    # It can wait for ever when it destroys a group.
    os._exit(0)
dist.destroy_process_group()
"""


def run_ranks(tmp_path: Path, location: Path, action: str, world: int, worker: str = WORKER) -> None:
    meeting = tmp_path / f"meeting-{action}-{world}"
    here = str(Path(__file__).parent)
    # A rank that waits for ever says where.
    worker = f"import faulthandler\nfaulthandler.dump_traceback_later(200, exit=True)\n{worker}"
    ranks = [
        subprocess.Popen([sys.executable, "-c", worker, action, location, str(rank), str(world), here, meeting])
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


OTHERS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
import fhrd, fhrd.distributed
sys.path.insert(0, sys.argv[5])
from test_distributed import assert_equal, state
action, location, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[6], rank=rank, world_size=int(sys.argv[4]))
found = state(fill=0)
# As if a save had ended before the second rank looked.
fhrd.distributed._found_step = lambda files, run, step: rank + 1
if action == "load":
    fhrd.distributed.load(found, location, run="tune")
    assert_equal(found, state(1))
elif action == "reader":
    try:
        dcp.load(found, storage_reader=fhrd.distributed.FhrdReader(location, "tune"))
    except BaseException as error:
        assert "different checkpoints" in str(error), error
    else:
        raise AssertionError("a mixture was loaded")
else:
    opened = fhrd.open(location)
    for wrong, its_error in ((location + "-missing", fhrd.RepositoryNotFoundError), (opened, TypeError)):
        where, expected = (wrong, its_error) if rank == 1 else (location, fhrd.FhrdError)
        for call in (fhrd.distributed.save, fhrd.distributed.load):
            try:
                call(state(), where, run="tune", step=5)
            except expected as error:
                assert ("rank 1: " in str(error)) == (rank == 0), error
            else:
                raise AssertionError("it went on")
if torch.__version__.startswith("2.5."):
    # It can wait for ever when it destroys a group.
    os._exit(0)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("action", ["load", "reader", "fail"])
def test_ranks_that_find_different_things_do_not_mix_them(location: Path, tmp_path: Path, action: str) -> None:
    for step in (1, 2):
        fhrd.distributed.save(state(step), location, run="tune", step=step)
    run_ranks(tmp_path, location, action, 2, OTHERS)
