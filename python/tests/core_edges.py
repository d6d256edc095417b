"""Edges of the interface: what is repeated, misspelt, pickled, shown, or has a short form."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fhrd


def arrays(value: float) -> dict[str, Any]:
    return {"a": np.full((40, 3), value, np.float32)}


def value_of(repo: fhrd.Repository, step: int) -> float:
    return float(repo.load(run="r", step=step)["a"][0, 0])


# Encryption


def test_a_repository_says_whether_it_is_encrypted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fhrd.open(tmp_path / "plain", create=True) as plain:
        assert not plain.is_encrypted and "not encrypted" in repr(plain)
    with fhrd.open(tmp_path / "sealed", create=True, password="secret") as sealed:
        assert sealed.is_encrypted and ", encrypted" in repr(sealed) and "not" not in repr(sealed)
    monkeypatch.setenv("FHRD_PASSWORD", "secret")
    with fhrd.open(tmp_path / "from the environment", create=True) as sealed:
        assert sealed.is_encrypted
        sealed.save(arrays(1), run="r", step=1)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "from the environment").rglob("*") if path.is_file())
    assert b"model.safetensors" not in stored
    with fhrd.open(tmp_path / "open", create=True, options={"unencrypted": "true"}) as plain:
        assert not plain.is_encrypted


# A step that exists


def test_a_step_that_exists_is_an_error_unless_said_otherwise(repo: fhrd.Repository) -> None:
    first = repo.save(arrays(1), run="r", step=1)
    with pytest.raises(FileExistsError, match="if_exists"):
        repo.save(arrays(2), run="r", step=1)
    with pytest.raises(fhrd.StepExistsError):
        repo.save_async(arrays(2), run="r", step=1).result()
    assert [one.id for one in repo.snapshots()] == [first.id]
    left = repo.save(arrays(2), run="r", step=1, if_exists="keep")
    assert (left.id, left.existed, left.stored_bytes) == (first.id, True, 0) and value_of(repo, 1) == 1
    replaced = repo.save(arrays(3), run="r", step=1, if_exists="replace")
    assert replaced.deleted == (first.id,) and not replaced.existed and value_of(repo, 1) == 3
    assert [one.id for one in repo.snapshots()] == [replaced.id]
    repo.save(arrays(4), run="r", step=1, if_exists="add")
    assert len(repo.snapshots()) == 2 and value_of(repo, 1) == 4
    # The same number of another run, and what is no step.
    repo.save(arrays(5), run="other", step=1)
    repo.save(arrays(5))
    repo.save(arrays(5))
    assert repo.check(read_data=True).is_sound


def test_a_step_is_replaced_only_when_the_new_one_is_durable(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    first = repo.save(arrays(1), run="r", step=1)
    with pytest.raises(fhrd.FhrdError):
        repo.save(arrays(2), run="r", step=1, if_exists="replace", files=[tmp_path / "missing"])
    with pytest.raises(fhrd.FhrdError):
        repo.save_async(arrays(2), run="r", step=1, if_exists="replace", files=[tmp_path / "missing"]).result()

    class Stop(Exception):
        pass

    def stop(counters: dict[str, int]) -> None:
        raise Stop

    big = {"a": np.random.default_rng(1).normal(size=20_000_000)}
    with pytest.raises(Stop):
        repo.save(big, run="r", step=1, if_exists="replace", progress=stop)
    assert [one.id for one in repo.snapshots()] == [first.id] and value_of(repo, 1) == 1
    # All that was there before goes, and nothing else.
    second = repo.save(arrays(2), run="r", step=1, if_exists="add")
    repo.save(arrays(9), run="r", step=2)
    done = repo.save_async(arrays(3), run="r", step=1, if_exists="replace").result()
    assert set(done.deleted) == {first.id, second.id} and repo.all_steps("r") == [1, 2] and value_of(repo, 1) == 3


def test_two_asynchronous_saves_of_one_step_do_not_both_count(repo: fhrd.Repository) -> None:
    handles = [repo.save_async(arrays(value), run="r", step=1) for value in (1, 2)]
    assert handles[0].exception() is None and isinstance(handles[1].exception(), fhrd.StepExistsError)
    kept = [repo.save_async(arrays(value), run="r", step=2, if_exists="keep") for value in (3, 4)]
    assert kept[0].result().id == kept[1].result().id and value_of(repo, 2) == 3


def test_a_backup_of_a_step_that_exists_is_an_error(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("one")
    first = repo.backup([tmp_path / "file"], run="r", step=1)
    with pytest.raises(fhrd.StepExistsError):
        repo.backup([tmp_path / "file"], run="r", step=1)
    assert repo.backup([tmp_path / "file"], run="r", step=1, if_exists="keep").id == first.id
    (tmp_path / "file").write_text("two")
    second = repo.backup([tmp_path / "file"], run="r", step=1, if_exists="replace")
    assert [one.id for one in repo.snapshots()] == [second.id]


# Names, paths and short forms


def test_the_home_directory_is_meant_by_a_tilde(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    with fhrd.open("~/repo", create=True) as repo:
        repo.save(arrays(1), run="r", step=1)
        repo.restore("latest", "~/restored")
    assert (tmp_path / "home/repo").is_dir() and (tmp_path / "home/restored/model.safetensors").is_file()
    assert not (tmp_path / "~").exists()
    fhrd.open(pathlib.Path("~/repo")).close()
    # A name in the middle of a path is a name.
    fhrd.open(tmp_path / "~" / "x", create=True).close()
    assert (tmp_path / "~" / "x").is_dir()


def test_a_run_that_is_misspelt_is_an_error(repo: fhrd.Repository) -> None:
    for step in range(3):
        repo.save(arrays(step), run="tune", step=step)
    for keep in (fhrd.Keep(last=1), fhrd.Keep()):
        with pytest.raises(LookupError, match="no run `typo`"):
            repo.forget(keep=keep, run="typo")
    assert len(repo.forget(keep=fhrd.Keep(last=1), run="tune")) == 2


def test_one_tag_is_one_tag(repo: fhrd.Repository) -> None:
    saved = repo.save(arrays(1), run="r", step=1, tags="abc")
    assert repo.checkpoint(snapshot=saved.id).tags == ["abc"]
    repo.save(arrays(1), run="r", step=2)
    assert repo.forget(keep=fhrd.Keep(last=1, tags=""), dry_run=True) == [saved.id]
    assert repo.forget(keep=fhrd.Keep(last=1, tags="abc"), dry_run=True) == []


def test_frameworks_have_the_names_of_safetensors(repo: fhrd.Repository) -> None:
    repo.save(arrays(1), run="r", step=1)
    assert repo.load(run="r", framework="np")["a"].shape == (40, 3)
    torch = pytest.importorskip("torch", reason="NOT CHECKED: torch is not installed")
    assert isinstance(repo.load(run="r", framework="pt")["a"], torch.Tensor)


def test_an_error_names_the_files_that_are_there(repo: fhrd.Repository) -> None:
    repo.save(arrays(1), run="r", step=1, name="work/model.safetensors")
    with pytest.raises(fhrd.NotFoundError, match="`work/model.safetensors`"):
        repo.load(run="r")


# Pickles

WORKER = """
import pickle, sys
repo, checkpoint, arrays = pickle.load(sys.stdin.buffer)
print(repo.runs(), checkpoint.step, float(arrays["a"][0, 0]), list(arrays), repo.is_encrypted)
"""


def test_a_repository_its_checkpoints_and_arrays_are_pickled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with fhrd.open("repo", create=True, password="secret", staged_bytes_max=1 << 20) as repo:
        repo.save({**arrays(7), "b": np.zeros(2)}, run="r", step=3)
        both = (repo, repo.checkpoint(run="r"), repo.load(run="r", names=["a"]))
        data = pickle.dumps(both)
        done = subprocess.run(
            [sys.executable, "-c", WORKER], input=data, capture_output=True, check=True, cwd="/", env={**os.environ}
        )
        assert done.stdout.decode() == "['r'] 3 7.0 ['a'] True\n"
        again: fhrd.Repository = pickle.loads(data)[0]
        assert again.id == repo.id and again is not repo
        again.save(arrays(8), run="r", step=4)
        again.close()
        assert repo.all_steps("r") == [3, 4]


def test_a_pickle_has_no_password_of_the_environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FHRD_PASSWORD", "only-in-the-environment")
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        assert b"only-in-the" not in pickle.dumps(repo)


# What is shown, and types of results


def test_results_have_types(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    repo.save(arrays(1), run="r", step=1, files={"x": b"1"})
    restored = repo.restore("run:r@1", tmp_path / "target")
    assert isinstance(restored, fhrd.RestoreReport)
    assert (restored.files, restored.problems, restored.snapshot) == (2, 0, repo.checkpoint(run="r").id)
    pruned = repo.prune(grace_seconds=0, dry_run=True)
    assert isinstance(pruned, fhrd.PruneReport) and pruned.dry_run and not pruned.withdrawn
    checked = repo.check(read_data=True)
    assert isinstance(checked, fhrd.CheckReport) and checked.is_sound and checked.defects == ()
    assert checked.bytes_read > 0


def test_entries_that_cannot_be_written_are_warned_of(
    repo: fhrd.Repository, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine:
        """As on a disk that refuses two names."""

        def restore(self, *arguments: Any) -> str:
            return json.dumps({**{field.name: 0 for field in dataclasses.fields(fhrd.RestoreReport)}, **seen})

    seen = {"damaged": 0, "problems": 2}
    monkeypatch.setattr(type(repo), "_use", lambda self: Engine())
    with pytest.warns(RuntimeWarning, match="2 entries could not be written"):
        assert repo.restore("0123", tmp_path / "target").problems == 2
    monkeypatch.undo()


def test_tables_show_short_ids_and_notebooks_a_table(repo: fhrd.Repository) -> None:
    saved = repo.save(arrays(1), run="<r>", step=1, metrics={"loss": 0.5})
    steps = repo.steps("<r>")
    assert saved.id[:8] in repr(steps) and saved.id not in repr(steps) and steps[0]["snapshot"] == saved.id
    for shown in (steps, repo, repo.checkpoint(), repo.load(run="<r>"), repo.run("<r>", git=False)):
        text = shown._repr_html_()
        assert "<table>" in text and "<r>" not in text
    assert saved.id[:8] in steps._repr_html_() and "0.5" in steps._repr_html_()
    assert "1 arrays" in repr(repo.load(run="<r>"))
    handle = repo.save_async(arrays(2), run="<r>", step=2)
    handle.result()
    assert repr(handle) == "<SaveHandle <r>@2, done>"


def test_arrays_that_are_read_at_once_share_a_bounded_memory() -> None:
    from fhrd.checkpoint import _ALIGNMENT, _BLOCK_BYTES, _spaces

    for sizes in ([], [0], [5, 0, 70], [1 << 20] * 40, [40 << 20, 1, 40 << 20], [_BLOCK_BYTES, 1]):
        spaces = _spaces(sizes)
        assert [space.size for space in spaces] == sizes
        for at, space in enumerate(spaces):
            space[:] = at % 251
        assert all((space == at % 251).all() for at, space in enumerate(spaces))
        blocks = {id(space.base): space.base for space in spaces if space.base is not None}
        assert all(block.nbytes <= max(_BLOCK_BYTES, *sizes) for block in blocks.values())
        assert all(space.ctypes.data % _ALIGNMENT == space.base.ctypes.data % _ALIGNMENT for space in spaces)
