"""Saving, loading, listing and forgetting, and the same from the command line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fhrd

Arrays = dict[str, "np.ndarray[Any, Any]"]


def model(seed: int = 0, layers: int = 3) -> Arrays:
    generator = np.random.default_rng(seed)
    return {f"layer{at}.weight": generator.normal(size=(300, 300)).astype(np.float32) for at in range(layers)}


def assert_equal(one: Any, other: Any) -> None:
    assert set(one) == set(other)
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def test_a_step_is_saved_listed_and_loaded(repo: fhrd.Repository) -> None:
    for step, loss in ((10, 0.9), (20, 0.3), (30, 0.5)):
        saved = repo.save(model(step), run="a", step=step, metrics={"loss": loss}, tags=["x"], metadata={"k": "v"})
        assert len(saved.id) == 64 and saved.added_bytes >= 3 * 360_000 and saved.stored_bytes > 0
    repo.save(model(5), run="b", step=0)
    repo.save({"x": np.zeros(3)})
    assert repo.runs() == ["a", "b"]
    steps = repo.steps("a")
    assert steps.column("step") == [10, 20, 30] and steps.column("loss") == [0.9, 0.3, 0.5]
    assert "loss" in repr(steps) and len(steps[1:]) == 2
    assert_equal(repo.load(run="a"), model(30))
    assert_equal(repo.load(run="a", step="latest"), model(30))
    assert_equal(repo.load(run="a", step=10), model(10))
    assert_equal(repo.load(run="a", step="best:loss:min"), model(20))
    best = repo.best("a", "loss", "max")
    assert (best.run, best.step, best.metrics, best.tags) == ("a", 10, {"loss": 0.9}, ["x"])
    assert best.arrays().metadata == {"k": "v"}
    assert [file.path for file in best.files()] == ["model.safetensors"]
    assert abs(best.time.timestamp() - repo.snapshots()[0].time.timestamp()) < 1e-6
    assert len(repo.snapshots()) == 5


def test_one_array_is_loaded_without_the_others(tmp_path: pathlib.Path) -> None:
    arrays = {f"a{at}": np.random.default_rng(at).integers(0, 255, 1 << 20, np.uint8) for at in range(64)}
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        repo.save(arrays, run="a", step=1)
    with fhrd.open(tmp_path / "repo") as repo:
        before = repo._native.bytes_read
        loaded = repo.load(run="a", names=["a3", "a60"])
        assert list(loaded) == ["a3", "a60"] and "a4" not in loaded and len(loaded) == 2
        assert np.array_equal(loaded["a60"], arrays["a60"])
        assert repo._native.bytes_read - before < 5_000_000
        with pytest.raises(KeyError):
            loaded["a4"]
        with pytest.raises(fhrd.NotFoundError):
            repo.load(run="a", names=["none"])


def test_what_is_equal_is_stored_once(repo: fhrd.Repository) -> None:
    arrays = model()
    first = repo.save(arrays, run="a", step=1)
    again = repo.save(arrays, run="a", step=2)
    assert again.stored_bytes < 5_000 < first.stored_bytes and again.added_bytes < 5_000
    assert (first.unchanged_arrays, again.unchanged_arrays) == (0, 3)
    # In place, through a view, in a re-used buffer, under another name and in another order.
    arrays["layer1.weight"][7, 7] += 1
    changed = repo.save(arrays, run="a", step=3)
    assert 300_000 < changed.added_bytes < 400_000 and changed.unchanged_arrays == 2
    view = arrays["layer2.weight"].view(np.uint32)
    view[0, 0] ^= 1
    assert 300_000 < repo.save(arrays, run="a", step=4).added_bytes < 400_000
    renamed = {f"other.{name}": array for name, array in reversed(arrays.items())}
    assert repo.save(renamed, run="b", step=1).added_bytes < 5_000
    assert_equal(repo.load(run="a", step=1), model())
    assert_equal(repo.load(run="a", step=4), arrays)


def test_arrays_that_share_memory_are_each_saved(repo: fhrd.Repository) -> None:
    base = np.arange(200_000, dtype=np.float32)
    arrays = {"whole": base, "half": base[100_000:], "turned": base[::-1], "same": base}
    assert_equal(repo.load(snapshot=repo.save(arrays).id), arrays)


def test_files_are_stored_beside_the_arrays(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    saved = repo.save(model(), files=[path])
    assert [file.path for file in repo.checkpoint(snapshot=saved.id).files()] == ["config.json", "model.safetensors"]
    big = os.urandom(3 << 20)
    saved = repo.save({}, files={"a/b/x.bin": big, "a/c": path, "a.txt": b"", "README.md": b"# m"})
    checkpoint = repo.checkpoint(snapshot=saved.id)
    assert [file.path for file in checkpoint.files()] == ["README.md", "a/b/x.bin", "a/c", "a.txt"]
    assert checkpoint.read_file("a/b/x.bin") == big and checkpoint.read_file("a/c") == b"{}"
    assert checkpoint.read_file("a/b/x.bin", 1_000_000, 10) == big[1_000_000:1_000_010]
    assert checkpoint.read_file("a/b/x.bin", 4 << 20) == b"" and checkpoint.read_file("a.txt") == b""
    with pytest.raises(fhrd.NotFoundError):
        checkpoint.read_file("nothing")
    for wrong in ("", "/a", "a//b", "../a", "a/./b", "a\0"):
        with pytest.raises(fhrd.ArgumentError):
            repo.save({}, files={wrong: b"x"})
    with pytest.raises(fhrd.ArgumentError, match="cannot both be files"):
        repo.save({}, files={"a": b"x", "a/b": b"y"})
    with pytest.raises(fhrd.FhrdError, match="missing"):
        repo.save({}, files=[tmp_path / "missing"])


def test_impossible_arguments_are_refused(repo: fhrd.Repository) -> None:
    arrays = {"a": np.zeros(2)}
    for arguments in ({"run": "a"}, {"step": 1}, {"metrics": {"m": 1.0}}, {"run": "a@b", "step": 1}):
        with pytest.raises(fhrd.ArgumentError):
            repo.save(arrays, **arguments)
    with pytest.raises(fhrd.ArgumentError):
        repo.save({})
    with pytest.raises(fhrd.ArgumentError):
        repo.save({"__metadata__": np.zeros(2)})
    with pytest.raises(fhrd.ArgumentError):
        repo.load(run="a", snapshot="b")
    for missing in ({"run": "none"}, {"snapshot": "0123456789"}):
        with pytest.raises(fhrd.NotFoundError):
            repo.load(**missing)
    with pytest.raises(fhrd.NotFoundError):
        repo.steps("none")


def test_rules_keep_the_last_and_the_best_steps(repo: fhrd.Repository) -> None:
    for step in range(10):
        repo.save({"a": np.full(4, step)}, run="a", step=step, metrics={"loss": abs(step - 3.2)})
    repo.save({"a": np.zeros(4)}, run="other", step=1)
    keep = fhrd.Keep(last=1, best={"loss": ("min", 3)}, every=5)
    planned = repo.forget(keep=keep, run="a", dry_run=True)
    assert len(planned) == 4 and repo.steps("a").column("step") == list(range(10))
    assert repo.forget(keep=keep, run="a") == planned
    assert repo.steps("a").column("step") == [0, 2, 3, 4, 5, 9]
    saved = repo.save({"a": np.zeros(4)}, run="a", step=10, keep=fhrd.Keep(last=2))
    assert repo.steps("a").column("step") == [9, 10] and len(saved.deleted) == 5
    assert repo.runs() == ["a", "other"]
    again = repo.save({"a": np.ones(4)}, run="a", step=10, keep=fhrd.Keep(last=2), if_exists="add")
    assert len(again.deleted) == 1 and len(repo.snapshots()) == 3, "a step that was saved again is kept once"
    assert repo.forget([repo.checkpoint(run="other").id[:10]]) and repo.runs() == ["a"]
    assert repo.forget(keep=fhrd.Keep()) == []


def test_rules_that_would_delete_all_steps_of_a_run_are_refused(repo: fhrd.Repository) -> None:
    for step in (1, 2):
        repo.save({"a": np.zeros(4)}, run="a", step=step, metrics={"loss": 1.0}, tags="x,y")
    for keep in (fhrd.Keep(tags=["none"]), fhrd.Keep(tags=["x,none"]), fhrd.Keep(every=100)):
        with pytest.raises(fhrd.ArgumentError, match="allow_empty_group"):
            repo.forget(keep=keep)
    repo.save({}, files={"a": b"a"}, run="again", step=1)
    repo.save({}, files={"a": b"b"}, run="again", step=1, if_exists="add")
    assert repo.forget(keep=fhrd.Keep(best={"lsos": ("min", 1)})) == [], "a run without the metric stays whole"
    repo.forget([one.id for one in repo.snapshots() if one.run == "again"])
    assert repo.forget(keep=fhrd.Keep(tags=["none", "y,x"])) == []
    with pytest.warns(RuntimeWarning, match="keep no step"):
        saved = repo.save({"a": np.zeros(4)}, run="a", step=3, keep=fhrd.Keep(every=100))
    assert saved.deleted == () and repo.steps("a").column("step") == [1, 2, 3]
    assert len(repo.forget(keep=fhrd.Keep(tags=["none"]), allow_empty_group=True)) == 3


def test_rules_remember_what_can_be_read_only_once(repo: fhrd.Repository) -> None:
    for step in range(3):
        repo.save({"a": np.full(2, step)}, run="r", step=step, tags=["shown"] if step == 0 else [], metrics={"l": step})
    best = {"l": ("min", 2)}
    keep = fhrd.Keep(last=1, tags=(tag for tag in ["shown"]), best=best)  # type: ignore[arg-type]
    best.clear()
    for _ in range(2):
        assert repo.forget(keep=keep, run="r", dry_run=True) == []


def test_a_save_is_no_failure_because_its_rules_are(repo: fhrd.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise fhrd.UnreachableError("the store does not answer")

    monkeypatch.setattr(type(repo), "forget", refuse)
    with pytest.warns(RuntimeWarning, match="the step is saved, but.*does not answer"):
        saved = repo.save({"a": np.zeros(2)}, run="r", step=1, keep=fhrd.Keep(last=1))
    assert repo.checkpoint(run="r", step=1).id == saved.id
    assert repo.save_async({"a": np.zeros(2)}, run="r", step=2, keep=fhrd.Keep(last=1)).exception() is None


@pytest.mark.parametrize("is_cut", [False, True])
def test_snapshots_that_cannot_be_read_are_warned_of(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        for step in range(3):
            repo.save({"a": np.full(2, step)}, run="r", step=step)
        last = tmp_path / "repo/snapshots" / repo.checkpoint(run="r").id
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "another home"))
    content = last.read_bytes()
    last.chmod(0o600)
    last.write_bytes(content[:20] if is_cut else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with fhrd.open(tmp_path / "repo") as repo:
        calls: list[Callable[[], Any]] = [
            repo.snapshots, repo.runs, lambda: repo.latest_step("r"), lambda: repo.all_steps("r"), repo.checkpoint,
            lambda: repo.load(run="r"), lambda: repo.best("r", "l") if repo.steps("r")[0].get("l") else None,
            lambda: repo.restore("run:r@latest", tmp_path / "restored"), lambda: repo.run("r").should_save(2),
            lambda: repo.forget(["run:r@latest"], dry_run=True), lambda: repo.tag("run:r@1", add="x"),
            lambda: repo.forget(keep=fhrd.Keep(last=1), dry_run=True), repo._repr_html_,
            lambda: repo.save({"a": np.zeros(2)}, run="r", step=2),
        ]  # fmt: skip
        for call in calls:
            with pytest.warns(RuntimeWarning, match="1 snapshots cannot be read, so something may be missing"):
                call()
        assert repo.all_steps("r") == [0, 1, 2]


def test_tags_are_lists_as_on_the_command_line(repo: fhrd.Repository) -> None:
    repo.save({"a": np.zeros(4)}, run="a", step=1, tags=["x, y", "y", "z"])
    repo.save({"a": np.zeros(4)}, run="a", step=2, tags="x,y")
    assert [one.tags for one in repo.snapshots()] == [("x", "y", "z"), ("x", "y")]
    for tags in (["a,"], [""], ",", ["a", " "]):
        for refused in (lambda: repo.save({"a": np.zeros(4)}, tags=tags), lambda: fhrd.Keep(tags=tags)):
            with pytest.raises(fhrd.ArgumentError, match="not empty"):
                refused()


def test_snapshots_from_the_future_stay_and_count_for_no_rule(repo: fhrd.Repository, program: str) -> None:
    def future(step: int, year: int) -> None:
        options = ["--repo", repo.location, "--run", "a", "--step", str(step), "--time", f"{year}-01-01"]
        subprocess.run([program, "backup", __file__, *options], check=True, capture_output=True)

    future(2, 2099)
    for step in (1, 2, 3):
        repo.save({"a": np.full(4, step)}, run="a", step=step, if_exists="add")
    assert_equal(repo.load(run="a", step=2), {"a": np.full(4, 2)})
    assert repo.checkpoint().step == 3, "latest is the last of the present"
    planned = repo.forget(keep=fhrd.Keep(last=1))
    assert len(planned) == 2 and repo.steps("a").column("step") == [2, 3]
    future(9, 2098)
    with pytest.raises(fhrd.ArgumentError, match="clock"):
        repo.forget(keep=fhrd.Keep(last=1))
    assert repo.forget(keep=fhrd.Keep(last=1), trust_clock=True) == []
    assert repo.steps("a").column("step") == [2, 3, 9]


def test_a_prune_gives_back_the_space(repo: fhrd.Repository) -> None:
    for step in range(4):
        repo.save(model(step), run="a", step=step)
    repo.forget(keep=fhrd.Keep(last=1))
    report = repo.prune(grace_seconds=0)
    assert report.bytes_deleted - report.bytes_written > 2_000_000
    assert repo.check(read_data=True).defect_count == 0
    assert_equal(repo.load(run="a"), model(3))


def test_a_diff_names_what_changed(repo: fhrd.Repository) -> None:
    arrays = model()
    first = repo.save(arrays, run="a", step=1)
    changed = {name: array.copy() for name, array in arrays.items()}
    changed["layer1.weight"].view(np.uint32)[:] ^= 5
    changed["new"] = np.zeros(3)
    changed["layer2.weight"] = changed["layer2.weight"].astype(np.float64)
    del changed["layer0.weight"]
    repo.save(changed, run="a", step=2)
    found = {change.name: (change.kind, change.bit_distance) for change in repo.diff(first.id, repo.checkpoint(run="a"))}
    assert found == {
        "layer0.weight": ("removed", None),
        "layer1.weight": ("changed", 2.0),
        "layer2.weight": ("reshaped", None),
        "new": ("added", None),
    }
    assert repo.diff(first.id, first.id) == []


def test_progress_is_reported_and_may_stop_a_save(repo: fhrd.Repository) -> None:
    seen: list[dict[str, int]] = []
    repo.save(model(), progress=seen.append)
    assert seen[-1]["bytes_read"] > 1_000_000

    class Enough(Exception):
        pass

    def stop(counters: dict[str, int]) -> None:
        raise Enough

    with pytest.raises(Enough):
        repo.save({"a": np.random.default_rng(1).normal(size=20_000_000)}, progress=stop)
    assert repo.check().defect_count == 0


def test_memory_that_is_written_to_meanwhile_is_noticed_or_stored_whole(repo: fhrd.Repository) -> None:
    array = np.random.default_rng(0).integers(0, 255, 64 << 20, np.uint8)
    is_done = threading.Event()

    def write() -> None:
        while not is_done.is_set():
            array[:: 4096] += 1

    writer = threading.Thread(target=write)
    writer.start()
    failures = 0
    try:
        for step in range(3):
            try:
                repo.save({"a": array}, run="a", step=step)
            except fhrd.FhrdError as error:
                assert "changed while it was stored" in str(error)
                failures += 1
    finally:
        is_done.set()
        writer.join()
    assert failures > 0, "the test did not write at the right time"
    assert repo.check(read_data=True).defect_count == 0
    repo.save({"a": array}, run="a", step=9)
    assert np.array_equal(repo.load(run="a", step=9)["a"], array)


def test_closed_repositories_and_locked_ones(tmp_path: pathlib.Path) -> None:
    with pytest.raises(fhrd.RepositoryNotFoundError):
        fhrd.open(tmp_path / "none")
    with pytest.raises(fhrd.ArgumentError, match="no option"):
        fhrd.open(tmp_path / "none", options={"x": "y"})
    repo = fhrd.open(tmp_path / "sealed", create=True, password="secret")
    repo.save({"a": np.arange(3)}, run="a", step=1)
    repo.close()
    repo.close()
    with pytest.raises(fhrd.FhrdError, match="closed"):
        repo.runs()
    for password in (None, "wrong"):
        with pytest.raises(fhrd.LockedError):
            fhrd.open(tmp_path / "sealed", password=password)
    with fhrd.open(tmp_path / "sealed", password="secret") as opened:
        assert list(opened.load(run="a")["a"]) == [0, 1, 2]


def test_damage_is_an_error_of_its_own(tmp_path: pathlib.Path) -> None:
    with fhrd.open(tmp_path / "repo", create=True) as repo:
        repo.save(model(), run="a", step=1)
        containers = [path for path in (tmp_path / "repo" / "containers").rglob("*") if path.is_file()]
        largest = max(containers, key=lambda path: path.stat().st_size)
        os.chmod(largest, 0o600)
        content = bytearray(largest.read_bytes())
        content[200_000] ^= 1
        largest.write_bytes(content)
    with fhrd.open(tmp_path / "repo") as repo:
        with pytest.raises(fhrd.DamagedError):
            dict(repo.load(run="a"))
        assert repo.check(read_data=True).defect_count > 0
        # Storing it again heals it.
        repo.save(model(), run="a", step=2)
        assert_equal(repo.load(run="a", step=1), model())


def test_the_command_line_reads_what_python_saves(repo: fhrd.Repository, program: str, tmp_path: pathlib.Path) -> None:
    import safetensors.numpy

    arrays = model()
    saved = repo.save(arrays, run="a", step=7, metrics={"loss": 0.5}, files={"notes/x.txt": b"hello"})

    def fhrd_json(*arguments: str) -> Any:
        done = subprocess.run(
            [program, *arguments, "--repo", repo.location, "--json"], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)

    steps = fhrd_json("steps", "a")
    assert (steps[0]["step"], steps[0]["snapshot"], steps[0]["metrics"]) == (7, saved.id, {"loss": 0.5})
    target = tmp_path / "restored"
    fhrd_json("restore", "run:a@7", "--target", str(target))
    assert_equal(safetensors.numpy.load_file(target / "model.safetensors"), arrays)
    assert (target / "notes" / "x.txt").read_bytes() == b"hello"
    # The other way round: what Python has saved is known, and what the program stores is loaded.
    stored = fhrd_json("backup", str(target), "--run", "a", "--step", "8", "--force")
    assert stored["bytes_new"] < 5_000
    path = next(file.path for file in repo.checkpoint(run="a", step=8).files() if file.path.endswith("model.safetensors"))
    assert_equal(repo.load(run="a", step=8, name=path), arrays)
    assert fhrd_json("check", "--read-data")["defect_count"] == 0


def test_backup_and_restore_of_paths(repo: fhrd.Repository, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_bytes(b"x" * 1000)
    (source / "other").write_bytes(b"y")
    saved = repo.backup([source], run="files", step=1, tags=["t"])
    info = repo.snapshots()[0]
    assert (info.id, info.run, info.tags, info.statistics["files"]) == (saved.id, "files", ("t",), 2)
    report = repo.restore("run:files@1", tmp_path / "target", include=["below"])
    assert report.files == 1
    restored = [path for path in (tmp_path / "target").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in restored] == [b"x" * 1000]
    with pytest.raises(fhrd.ArgumentError):
        repo.backup([tmp_path / "missing"])


@pytest.mark.parametrize("remote", [False, True])
def test_a_password_and_a_repository_without_encryption_do_not_go_together(
    remote: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if remote and not SFTP_SERVER.exists():
        pytest.skip(f"{SFTP_SERVER} is not installed")
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
    ssh.chmod(0o755)
    location, options = str(tmp_path / "plain"), {"ssh_command": str(ssh)} if remote else {}
    fhrd.open(location, create=True).close()
    if remote:
        location = f"sftp://host{location}"
    allowed = {**options, "unencrypted": "true"}
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(32))
    for create in (False, True):
        with pytest.raises(fhrd.LockedError, match="unencrypted"):
            fhrd.open(location, password="secret", create=create, options=options)
        with pytest.raises(fhrd.LockedError, match="unencrypted"):
            fhrd.open(location, create=create, options={**options, "key_file": str(key_file)})
    fhrd.open(location, password="secret", options=allowed).close()
    monkeypatch.setenv("FHRD_PASSWORD", "secret")
    with pytest.raises(fhrd.LockedError, match="unencrypted"):
        fhrd.open(location, options=options)
    fhrd.open(location, options=allowed).close()
    monkeypatch.setenv("FHRD_PASSWORD", "")
    fhrd.open(location, options=options).close()


def test_a_new_repository_is_encrypted_if_the_environment_has_a_password(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FHRD_PASSWORD", "secret")
    fhrd.open(tmp_path / "sealed", create=True).close()
    fhrd.open(tmp_path / "plain", create=True, options={"unencrypted": "true"}).close()
    monkeypatch.delenv("FHRD_PASSWORD")
    with pytest.raises(fhrd.LockedError):
        fhrd.open(tmp_path / "sealed")
    fhrd.open(tmp_path / "plain").close()


def test_an_exchanged_repository_is_noticed(tmp_path: pathlib.Path) -> None:
    fhrd.open(tmp_path / "repo", create=True, password="secret").close()
    (tmp_path / "repo").rename(tmp_path / "kept")
    fhrd.open(tmp_path / "fake", create=True).close()
    (tmp_path / "fake").rename(tmp_path / "repo")
    for password in (None, "secret"):
        with pytest.raises(fhrd.LockedError):
            fhrd.open(tmp_path / "repo", password=password)
    (tmp_path / "repo").rename(tmp_path / "fake")
    # What is gone is not followed by a plain one.
    with pytest.raises(fhrd.LockedError):
        fhrd.open(tmp_path / "repo", create=True)


SFTP_SERVER = pathlib.Path("/usr/lib/openssh/sftp-server")


@pytest.mark.skipif(not SFTP_SERVER.exists(), reason=f"{SFTP_SERVER} is not installed")
def test_a_remote_repository_is_encrypted_unless_said_otherwise(tmp_path: pathlib.Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
    ssh.chmod(0o755)
    url, options = f"sftp://host{tmp_path}", {"ssh_command": str(ssh)}
    with pytest.raises(fhrd.ArgumentError, match="unencrypted"):
        fhrd.open(f"{url}/plain", create=True, options=options)
    assert not (tmp_path / "plain").exists()
    with pytest.raises(fhrd.ArgumentError, match="expected true or false"):
        fhrd.open(f"{url}/plain", create=True, options={**options, "unencrypted": "yes"})
    for name, password, more in (("plain", None, {"unencrypted": "true"}), ("sealed", "secret", {})):
        with fhrd.open(f"{url}/{name}", create=True, password=password, options={**options, **more}) as repo:
            repo.save(model(), run="a", step=1)
        with fhrd.open(f"{url}/{name}", password=password, options=options) as repo:
            assert_equal(repo.load(run="a"), model())
    with pytest.raises(fhrd.LockedError):
        fhrd.open(f"{url}/sealed", password="wrong", options=options)


@pytest.mark.parametrize("last", range(1, 8))
def test_rules_keep_the_last_steps_of_runs_of_any_length(repo: fhrd.Repository, last: int) -> None:
    for step in range(6):
        repo.save({"a": np.zeros(3)}, run="a", step=step, keep=fhrd.Keep(last=last))
        assert repo.all_steps("a") == list(range(6))[max(0, step + 1 - last) : step + 1]


def test_a_step_that_is_replaced_all_the_time_can_be_loaded(repo: fhrd.Repository) -> None:
    repo.save({"a": np.zeros(3)}, run="a", step=1)
    find = repo.checkpoint

    def replaced_meanwhile(**which: Any) -> Any:
        found = find(**which)
        if which.get("snapshot") is None and tries.pop():
            repo.save({"a": np.ones(3)}, run="a", step=1, if_exists="replace")
        return found

    tries = [False, True, True]
    repo.checkpoint = replaced_meanwhile  # type: ignore[method-assign]
    assert repo.load(run="a")["a"].all() and not tries
    # One that has no such file does not count as replaced.
    tries.append(False)
    with pytest.raises(fhrd.NotFoundError, match="other"):
        repo.load(run="a", name="other.safetensors")


def test_metrics_with_names_of_columns_have_columns_of_their_own(repo: fhrd.Repository) -> None:
    repo.save({"a": np.zeros(3)}, run="a", step=7, metrics={"step": 99.0, "time": 1.5, "loss": 0.5})
    table = repo.steps("a")
    assert table[0]["step"] == 7 and table[0]["metric:step"] == 99.0 and table[0]["metric:time"] == 1.5
    assert len(set(table.columns)) == len(table.columns) and repo.best("a", "step").step == 7
