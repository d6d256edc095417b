"""The fsspec file system: what users of fsspec expect of any, and what is stored."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy
import pytest

import fhrd

fsspec = pytest.importorskip("fsspec")

from fhrd.filesystem import FhrdFileSystem, join_url, split_url  # noqa: E402
from fhrd.versions import Area  # noqa: E402


@pytest.fixture
def location(tmp_path: Path) -> Path:
    location = tmp_path / "repo"
    fhrd.open(location, create=True).close()
    return location


@pytest.fixture
def fs(location: Path) -> FhrdFileSystem:
    return FhrdFileSystem(location, skip_instance_cache=True)


def put(fs: FhrdFileSystem, path: str, content: bytes = b"content") -> None:
    with fs.open(path, "wb") as file:
        file.write(content)


def snapshots(location: Path) -> list[Any]:
    with fhrd.open(location) as repo:
        return list(repo.snapshots())


def test_urls() -> None:
    assert split_url("fhrd:///data/repo!/tune@3/model.pt") == ("/data/repo", "tune@3/model.pt")
    assert split_url("fhrd://s3://bucket/prefix!/a/b/") == ("s3://bucket/prefix", "a/b")
    assert split_url("fhrd://tune@3/model.pt") == (None, "tune@3/model.pt")
    assert split_url(join_url("/data/repo", "/a")) == ("/data/repo", "a")
    assert split_url(join_url("repo")) == ("repo", "")
    with pytest.raises(ValueError, match="!"):
        join_url("/data/what!")
    strip = FhrdFileSystem._strip_protocol
    assert strip("fhrd:///data/repo!/a/../b/") == "/data/repo!/b" == strip("/data/repo!/b")
    assert strip("fhrd://s3://bucket/x!/a") == "s3://bucket/x!/a" and strip("fhrd:///data/repo!") == "/data/repo!"
    assert strip(["fhrd://x!/a", "/b/c/", "a/what!.txt"]) == ["x!/a", "b/c", "a/what!.txt"]


def test_fsspec_finds_the_file_system_by_its_entry_point(location: Path) -> None:
    with fsspec.open(join_url(location, "a/b.txt"), "w") as file:
        file.write("text")
    fs, path = fsspec.core.url_to_fs(join_url(location, "a/b.txt"))
    assert (type(fs), path) == (FhrdFileSystem, f"{location}!/a/b.txt")
    assert fs.unstrip_protocol(path) == join_url(location, "a/b.txt")
    assert fs.cat_file(path) == b"text"
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file(path) == b"text"


def test_the_repository_may_come_from_the_environment(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FHRD_REPO", str(location))
    fs = FhrdFileSystem(skip_instance_cache=True)
    put(fs, "fhrd://a/b")
    assert fs.cat_file("a/b") == b"content"
    monkeypatch.delenv("FHRD_REPO")
    with pytest.raises(ValueError, match="no repository"):
        FhrdFileSystem(skip_instance_cache=True)


def test_a_file_is_durable_when_it_is_closed_and_not_before(fs: FhrdFileSystem, location: Path) -> None:
    file = fs.open("dir/file", "wb")
    file.write(b"one")
    file.flush()
    assert not fs.exists("dir/file") and snapshots(location) == []
    file.close()
    assert FhrdFileSystem(location, skip_instance_cache=True).cat_file("dir/file") == b"one"
    file.close()
    assert len(snapshots(location)) == 1


def test_an_exception_stores_nothing(fs: FhrdFileSystem, location: Path) -> None:
    with pytest.raises(RuntimeError), fs.open("dir/file", "wb") as file:
        file.write(b"part")
        raise RuntimeError
    assert not fs.exists("dir/file") and snapshots(location) == []
    dropped = fs.open("dir/other", "wb")
    dropped.write(b"part")
    del dropped
    assert snapshots(location) == []


def test_large_files_are_staged_on_disk_and_removed(fs: FhrdFileSystem, location: Path, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    fs = FhrdFileSystem(location, staging_directory=staging, skip_instance_cache=True)
    content = os.urandom(1 << 20) * 20
    with fs.open("big", "wb") as file:
        for at in range(0, len(content), 3 << 20):
            file.write(content[at : at + (3 << 20)])
        assert len(list(staging.iterdir())) == 1
        file.seek(5)
        file.write(b"changed")
    assert list(staging.iterdir()) == []
    expected = content[:5] + b"changed" + content[12:]
    assert fs.size("big") == len(content) and fs.cat_file("big") == expected
    assert fs.cat_file("big", 1 << 20, (1 << 20) + 9) == expected[1 << 20 : (1 << 20) + 9]
    assert fs.cat_file("big", -7) == expected[-7:]
    with fs.open("big", "rb") as stored:
        stored.seek(9_999_999)
        assert stored.read(77) == expected[9_999_999:10_000_076]
    with pytest.raises(RuntimeError), fs.open("other", "wb") as file:
        file.write(content)
        raise RuntimeError
    assert list(staging.iterdir()) == []


def test_directories_are_listed(fs: FhrdFileSystem) -> None:
    for path in ["a/one", "a/b/two", "a/b/c/three", "root", "run@3/model"]:
        put(fs, path)
    assert fs.ls("", detail=False) == ["a", "root", "run@3"]
    assert fs.ls("a", detail=False) == ["a/b", "a/one"]
    assert [entry["type"] for entry in fs.ls("a", detail=True)] == ["directory", "file"]
    assert fs.ls("a/one", detail=False) == ["a/one"]
    assert fs.info("a/b/c")["type"] == "directory" and fs.info("a/one")["size"] == 7
    assert fs.info("")["type"] == "directory"
    assert fs.find("a") == ["a/b/c/three", "a/b/two", "a/one"]
    assert fs.find("") == ["a/b/c/three", "a/b/two", "a/one", "root", "run@3/model"]
    assert fs.glob("a/**/t*") == ["a/b/c/three", "a/b/two"]
    assert fs.isdir("a/b") and fs.isfile("a/one") and not fs.exists("a/on")
    assert [(one[0], one[2]) for one in fs.walk("a/b")] == [("a/b", ["two"]), ("a/b/c", ["three"])]
    for missing in ["a/x", "nothing", "run@4", "run@4/model"]:
        with pytest.raises(FileNotFoundError):
            fs.info(missing)
        with pytest.raises(FileNotFoundError):
            fs.ls(missing)
    with pytest.raises(FileNotFoundError):
        fs.open("a/x", "rb")
    with pytest.raises(IsADirectoryError):
        fs.open("a/b", "rb")


def test_a_file_that_is_written_again_replaces_the_old_one(fs: FhrdFileSystem, location: Path) -> None:
    for number in range(5):
        put(fs, "a/last", b"version %d" % number)
    assert fs.cat_file("a/last") == b"version 4"
    assert len(snapshots(location)) == 1
    with fs.transaction:
        put(fs, "a/one", b"1")
        put(fs, "a/two", b"2")
    put(fs, "a/one", b"new")
    # The snapshot of both stays, for `two`.
    assert len(snapshots(location)) == 3
    assert (fs.cat_file("a/one"), fs.cat_file("a/two")) == (b"new", b"2")
    put(fs, "a/two", b"new")
    assert len(snapshots(location)) == 3
    with fs.open("a/two", "ab") as file:
        file.write(b" and more")
    assert fs.cat_file("a/two") == b"new and more"
    with pytest.raises(FileExistsError):
        fs.open("a/two", "xb")


def test_a_version_of_a_clock_that_was_ahead_is_replaced(fs: FhrdFileSystem, location: Path) -> None:
    for name, run, step in [("plain", None, None), ("tune@5", "tune", 5)]:
        for ahead in (1, 60, 290, 3600):
            with fhrd.open(location) as repo:
                after = datetime.now(timezone.utc) + timedelta(seconds=ahead)
                files = {path if run else f"{name}/{path}": b"old" for path in ("a", "b")}
                repo._save_after(files, run=run, step=step, tags=["fsspec"], after=after)
            fs.pipe_file(f"{name}/a", b"new")
            assert fs.cat_file(f"{name}/a") == b"new" and fs.cat_file(f"{name}/b") == b"old"
            fs.pipe_file(f"{name}/c", b"moved")
            fs.mv(f"{name}/c", f"{name}/a")
            assert fs.cat_file(f"{name}/a") == b"moved" and not fs.exists(f"{name}/c")
            # Nothing that is seen one day has the old file.
            own = [one for one in fs.repo.snapshots() if one.run == run]
            with_a = [one for one in own if any(path.endswith("a") for path, _ in fs._files(one.id))]
            latest = max(with_a, key=lambda one: one.time)
            assert fs.repo.checkpoint(snapshot=latest.id).read_file("a" if run else f"{name}/a") == b"moved"
            fs.rm(name, recursive=True)
    assert fs.repo.snapshots() == []


def test_writers_with_wrong_clocks_forget_only_what_they_replace(fs: FhrdFileSystem, location: Path) -> None:
    fs.mkdir("tune@5")
    with fs.transaction:
        fs.pipe_file("tune@5/f", b"old f")
        fs.pipe_file("tune@5/g", b"old g")
    # An hour ahead, another machine replaces f, and writes f and h at once.
    ahead = datetime.now(timezone.utc) + timedelta(hours=1)
    for files in ({"f": b"new f"}, {"f": b"newer f", "h": b"h"}):
        with fhrd.open(location) as repo:
            repo._save_after(files, run="tune", step=5, tags=["fsspec"], after=ahead)
    fs.pipe_file("tune@5/i", b"i")
    stored = [(one.time, {path for path, _ in fs._files(one.id)}) for one in fs.repo.snapshots()]
    assert sorted(sorted(paths) for _, paths in stored) == [["f"], ["f", "g"], ["f", "h"], ["i"]]
    # Two that write one file at once forget neither version.
    before = fs._versions(Area.of("tune@6"))
    fs.pipe_file("tune@6/a", b"one")
    fs._forget_replaced(before, {"a"}, "tune", 6)
    assert fs.cat_file("tune@6/a") == b"one"


@pytest.mark.parametrize("mode", ["wb", "wt"])
def test_compressed_files_are_stored_when_they_are_closed(fs: FhrdFileSystem, mode: str) -> None:
    content: Any = b"line\n" * 100_000 if mode == "wb" else "line\n" * 100_000
    with fs.open("a.gz", mode, compression="infer") as file:
        file.write(content)
    assert fs.size("a.gz") < 10_000
    with fs.open("a.gz", mode.replace("w", "r"), compression="gzip") as file:
        assert file.read() == content
    with pytest.raises(KeyError), fs.open("b.gz", mode, compression="gzip") as file:
        file.write(content)
        raise KeyError
    assert not fs.exists("b.gz")
    with fs.transaction, fs.open("c.gz", mode, compression="gzip") as file:
        file.write(content)
    assert fs.cat_file("c.gz")[:2] == b"\x1f\x8b"


def test_text_that_ends_with_an_exception_is_not_stored(fs: FhrdFileSystem) -> None:
    with pytest.raises(KeyError), fs.open("a.txt", "w") as file:
        file.write("half")
        raise KeyError
    assert not fs.exists("a.txt")
    with fs.open("a.txt", "w", encoding="utf-16", newline="\r\n") as file:
        file.write("whole\n")
    assert fs.cat_file("a.txt").decode("utf-16") == "whole\r\n"
    with fs.open("a.txt", "r", encoding="utf-16") as file:
        assert file.read() == "whole\n"


def test_a_file_that_cannot_be_staged_replaces_nothing(
    fs: FhrdFileSystem, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe_file("a.txt", b"good")

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", failing)
    for mode, compression in (("wt", None), ("wb", None), ("wt", "gzip")):
        file = fs.open("a.txt", mode, compression=compression)
        text = "".join(map(chr, range(32, 127))) * 200_000
        try:
            with pytest.raises(OSError, match="No space left"):
                file.write(text if mode == "wt" else os.urandom(9 << 20))
                file.flush()
                if compression:
                    file.buffer._staged.write(os.urandom(9 << 20))
        finally:
            with suppress(OSError, ValueError):
                file.close()
        assert fs.cat_file("a.txt") == b"good"
    file = fs.open("a.txt", "w")
    file.write("half")
    del file
    gc.collect()
    assert fs.cat_file("a.txt") == b"good"


def test_removing_hides_nothing_that_is_written_meanwhile(fs: FhrdFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with fs.transaction:
        fs.pipe_file("data/tmp", b"tmp")
        fs.pipe_file("data/x", b"old")
    copy = fs._copy

    def slow(*args: Any) -> None:
        monkeypatch.setattr(fs, "_copy", copy)
        fs.pipe_file("data/x", b"new")
        copy(*args)

    monkeypatch.setattr(fs, "_copy", slow)
    fs.rm("data/tmp")
    assert fs.cat_file("data/x") == b"new" and not fs.exists("data/tmp")


def test_a_file_that_is_open_at_the_end_of_a_transaction_is_not_stored(fs: FhrdFileSystem) -> None:
    with pytest.warns(RuntimeWarning, match="half: the file is not closed"), fs.transaction:
        fs.pipe_file("whole", b"whole")
        file = fs.open("half", "wb")
        file.write(b"half")
    assert fs.exists("whole") and not fs.exists("half")


def test_a_transaction_is_one_snapshot_or_nothing(fs: FhrdFileSystem, location: Path) -> None:
    with fs.transaction:
        put(fs, "run@7/a", b"a")
        put(fs, "run@7/b", b"b")
        assert not fs.exists("run@7/a")
    assert [(one.run, one.step) for one in snapshots(location)] == [("run", 7)]
    assert fs.find("run@7") == ["run@7/a", "run@7/b"]
    with pytest.raises(RuntimeError), fs.transaction:
        put(fs, "run@8/a")
        raise RuntimeError
    assert not fs.exists("run@8") and len(snapshots(location)) == 1
    # After it, files are stored at once again.
    put(fs, "run@8/a")
    assert fs.exists("run@8/a")


def test_removing_forgets_and_keeps_other_files(fs: FhrdFileSystem, location: Path) -> None:
    with fs.transaction:
        for path in ["a/one", "a/two", "b/three"]:
            put(fs, path, path.encode())
    put(fs, "a/two", b"second version")
    fs.rm("a/one")
    assert fs.find("") == ["a/two", "b/three"]
    assert fs.cat_file("a/two") == b"second version" and fs.cat_file("b/three") == b"b/three"
    # The first version of `two` does not come back.
    fs.rm_file("a/two")
    assert fs.find("") == ["b/three"]
    fs.rm("b", recursive=True)
    assert fs.find("") == [] and snapshots(location) == []
    put(fs, "a/b/c")
    with pytest.raises(IsADirectoryError):
        fs.rm("a/b")
    with pytest.raises(FileNotFoundError):
        fs.rm("a/nothing")


def test_renaming(fs: FhrdFileSystem) -> None:
    put(fs, "run@1/.metadata.tmp", b"old")
    fs.rename("run@1/.metadata.tmp", "run@1/.metadata")
    assert fs.find("run@1") == ["run@1/.metadata"] and fs.cat_file("run@1/.metadata") == b"old"
    put(fs, "a/x/one", b"1")
    put(fs, "a/x/y/two", b"2")
    fs.mv("a/x", "b/z", recursive=True)
    assert fs.find("a") == [] if fs.exists("a") else True
    assert fs.find("b") == ["b/z/one", "b/z/y/two"] and fs.cat_file("b/z/y/two") == b"2"
    put(fs, "c", b"target")
    fs.mv("b/z/one", "c")
    assert fs.cat_file("c") == b"1"
    fs.copy("c", "d/e")
    assert fs.cat_file("d/e") == b"1" and fs.cat_file("c") == b"1"
    with pytest.raises(FileNotFoundError):
        fs.mv("nothing", "else")


def test_directories_can_be_made(fs: FhrdFileSystem, location: Path) -> None:
    fs.makedirs("a/b/c", exist_ok=True)
    assert fs.isdir("a/b/c") and fs.isdir("a/b") and fs.ls("a/b/c") == []
    assert fs.ls("a", detail=False) == ["a/b"]
    with pytest.raises(FileExistsError):
        fs.makedirs("a/b/c")
    with pytest.raises(FileExistsError):
        fs.mkdir("a/b")
    assert snapshots(location) == []
    put(fs, "a/b/c/file")
    with pytest.raises(FileExistsError):
        fs.makedirs("a/b/c/file", exist_ok=True)
    with pytest.raises(OSError):
        fs.rmdir("a/b")
    fs.rm("a", recursive=True)
    assert not fs.exists("a")


def test_checkpoints_of_the_api_can_be_read(fs: FhrdFileSystem, location: Path) -> None:
    import numpy

    with fhrd.open(location) as repo:
        for step, loss in [(10, 3.0), (20, 1.0), (30, 2.0)]:
            saved = repo.save({"w": numpy.full(4, step)}, run="tune", step=step, metrics={"loss": loss}, files={"note.txt": b"%d" % step})
    assert fs.ls("", detail=False) == ["tune@10", "tune@20", "tune@30"]
    assert sorted(fs.find("tune@20")) == ["tune@20/model.safetensors", "tune@20/note.txt"]
    assert fs.cat_file("tune@latest/note.txt") == b"30"
    assert fs.cat_file("tune@best:loss:min/note.txt") == b"20"
    assert fs.cat_file(f"snapshot:{saved.id[:12]}/note.txt") == b"30"
    assert fs.cat_file("snapshot:latest/note.txt") == b"30"
    assert fs.exists("tune@latest") and not fs.exists("other@latest") and not fs.exists("snapshot:0123456789abcdef")
    for path in ["tune@latest/x", "tune@best:loss:min/x", "snapshot:latest/x"]:
        with pytest.raises(PermissionError):
            fs.open(path, "wb")
    with pytest.raises(IsADirectoryError):
        fs.open("tune@10", "wb")
    # One file of a snapshot that the file system did not write stays; the whole checkpoint may go.
    with pytest.raises(PermissionError):
        fs.rm("tune@10/note.txt")
    fs.rm("tune@10", recursive=True)
    assert not fs.exists("tune@10") and fs.exists("tune@20/note.txt")


def test_several_writers_fill_one_directory(location: Path) -> None:
    def write(number: int) -> None:
        put(FhrdFileSystem(location, skip_instance_cache=True), f"run@1/part{number}", b"%d" % number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fs = FhrdFileSystem(location, skip_instance_cache=True)
    assert fs.find("run@1") == [f"run@1/part{number}" for number in range(6)]
    fs.consolidate("run@1", {"loss": 0.5})
    found = snapshots(location)
    assert len(found) == 1 and found[0].metrics == {"loss": 0.5}
    assert [fs.cat_file(f"run@1/part{number}") for number in range(6)] == [b"%d" % number for number in range(6)]
    with pytest.raises(ValueError, match="RUN@STEP"):
        fs.consolidate("a")


def test_writers_may_replace_what_others_replace(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (FhrdFileSystem(location, skip_instance_cache=True) for _ in range(2))
    put(one, "a/file", b"first")
    forget = fhrd.Repository.forget
    with monkeypatch.context() as patch:
        # Both see the old snapshot, and both forget it.
        def twice(self: Any, ids: Any = (), **options: Any) -> Any:
            forget(self, ids, **options)
            return forget(self, ids, **options)

        patch.setattr(fhrd.Repository, "forget", twice)
        put(other, "a/file", b"second")
    assert one.cat_file("a/file") == b"second"
    # A snapshot vanishes between the listing and the look at its files.
    put(one, "a/second")
    listed = other.repo.snapshots
    with monkeypatch.context() as patch:

        def stale() -> Any:
            found = listed()
            patch.undo()
            one.rm("a/second")
            return found

        patch.setattr(other.repo, "snapshots", stale)
        other._lists.clear()
        assert other.find("a") == ["a/file"]


def test_directories_are_copied_in_and_out(fs: FhrdFileSystem, tmp_path: Path, location: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_bytes(b"a")
    (source / "sub/b").write_bytes(b"b")
    fs.put_directory(source, "run@5/in")
    assert len(snapshots(location)) == 1
    fs.get("run@5/in", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/sub/b").read_bytes() == b"b"
    fs.put(str(source), "plain", recursive=True)
    assert fs.find("plain") == ["plain/a", "plain/sub/b"]


def test_what_is_known_of_a_step_stays_when_a_file_of_it_goes(fs: FhrdFileSystem, location: Path) -> None:
    with fs.transaction:
        for name in ("a", "b"):
            fs.pipe_file(f"tune@3/{name}", name.encode())
    fs.consolidate("tune@3", {"loss": 0.5})
    with fhrd.open(location) as repo:
        repo.tag("run:tune@3", add="shown")
        fs.rm("tune@3/a")
        found = repo.checkpoint(run="tune", step="best:loss:min")
        assert [file.path for file in found.files()] == ["b"] and "shown" in found.tags
        assert repo.forget(keep=fhrd.Keep(tags="shown"), run="tune") == []


def test_each_repository_has_a_file_system_of_its_own(location: Path) -> None:
    for _ in range(2):
        with fhrd.open(location) as repo:
            fs = FhrdFileSystem(repo)
            fs.pipe_file("a/b", b"c")
            assert fs.cat_file("a/b") == b"c" and FhrdFileSystem(repo=repo).ls("a", detail=False) == ["a/b"]
    assert FhrdFileSystem(str(location)) is FhrdFileSystem(str(location))


def test_pandas_reads_and_writes(location: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": range(1000), "y": [str(one) for one in range(1000)]})
    frame.to_csv(join_url(location, "t/frame.csv"), index=False)
    assert pandas.read_csv(join_url(location, "t/frame.csv"), dtype={"y": str}).equals(frame)
    pytest.importorskip("pyarrow")
    frame.to_parquet(join_url(location, "t/frame.parquet"))
    assert pandas.read_parquet(join_url(location, "t/frame.parquet")).equals(frame)


def test_datasets_read_and_write(location: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"x": list(range(100))})
    made.save_to_disk(join_url(location, "d"))
    assert datasets.load_from_disk(join_url(location, "d"))["x"][:] == list(range(100))


def test_names_of_a_url_say_where_the_repository_is(location: Path, tmp_path: Path) -> None:
    """As `datasets.load_dataset` uses them: it finds files, and opens each by its name after `fhrd://`."""
    fs, path = fsspec.core.url_to_fs(join_url(location, "tables/*.bin"))
    put(fs, join_url(location, "tables/a.bin"), b"one")
    put(fs, f"{location}!/tables/b.bin", b"two")
    put(fs, "tables/c!.bin", b"three")
    found = fs.glob(path, detail=True)
    assert list(found) == [f"{location}!/tables/{name}" for name in ("a.bin", "b.bin", "c!.bin")]
    for name, content in zip(found, (b"one", b"two", b"three"), strict=True):
        with fsspec.open(f"fhrd://{name}") as file:
            assert file.read() == content
        assert fs.info(name)["name"] == name and fs.cat_file(name) == content
    assert fs.find(f"{location}!") == list(found) and fs.ls(f"{location}!", detail=False) == [f"{location}!/tables"]
    assert fs.isdir(f"{location}!") and fs.info(f"{location}!/tables")["type"] == "directory"
    # Without a repository in it, a name is as short as it was given.
    assert fs.glob("tables/[ab].bin") == ["tables/a.bin", "tables/b.bin"]
    fs.mv(f"{location}!/tables/a.bin", join_url(location, "tables/d.bin"))
    fs.rm(f"{location}!/tables/b.bin")
    assert fs.ls("tables", detail=False) == ["tables/c!.bin", "tables/d.bin"]
    with pytest.raises(ValueError, match="this file system is of"):
        fs.cat_file(join_url(tmp_path / "other", "tables/d.bin"))


def test_datasets_reads_a_url_without_options(location: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": [1, 2, 3]}).to_parquet(join_url(location, "tables/frame.parquet"))
    for files in ("tables/frame.parquet", "tables/*.parquet"):
        loaded = datasets.load_dataset(
            "parquet", data_files=join_url(location, files), cache_dir=str(tmp_path / files[-9:].strip("*."))
        )
        assert loaded["train"]["a"][:] == [1, 2, 3]


def test_the_home_directory_is_meant_by_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    fhrd.open("~/own", create=True).close()
    with fsspec.open("fhrd://~/own!/a/b", "wb") as file:
        file.write(b"x")
    assert FhrdFileSystem("~/own", skip_instance_cache=True).cat_file("a/b") == b"x"
    assert not (tmp_path / "~").exists()


def test_rules_keep_or_delete_all_files_of_a_step(location: Path) -> None:
    with fhrd.open(location) as repo:
        fs = FhrdFileSystem(repo)
        for step in (1, 2, 3):
            repo.save({"w": numpy.full(9, step)}, run="tune", step=step, metrics={"loss": step})
            fs.pipe_file(f"tune@{step}/notes.txt", b"notes")
            fs.pipe_file(f"other@{step}/a", b"a")
            fs.pipe_file(f"other@{step}/b", b"b")
        # A file beside a step hides neither its arrays nor its metrics.
        assert repo.best("tune", "loss").step == 1 and repo.load(run="tune", step=2)["w"][0] == 2
        assert repo.forget(keep=fhrd.Keep(last=9)) == []
        assert len(repo.forget(keep=fhrd.Keep(best={"loss": ("min", 1)}), run="tune")) == 4
        assert repo.all_steps("tune") == [1] and fs.find("tune@1") == ["tune@1/model.safetensors", "tune@1/notes.txt"]
        repo.forget(keep=fhrd.Keep(last=1), run="other")
        assert repo.all_steps("other") == [3] and fs.find("other@3") == ["other@3/a", "other@3/b"]


def test_a_relative_location_is_that_of_the_directory_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fhrd.open(tmp_path / name / "repo", create=True).close()
    monkeypatch.chdir(tmp_path / "one")
    repo, fs = fhrd.open("repo"), fsspec.filesystem("fhrd", repo="repo")
    monkeypatch.chdir(tmp_path / "two")
    repo, fs = pickle.loads(pickle.dumps((repo, fs)))
    repo.save({"w": numpy.ones(3)}, run="tune", step=1)
    fs.pipe_file("a", b"one")
    fsspec.filesystem("fhrd", repo="repo").pipe_file("a", b"two")
    monkeypatch.setenv("FHRD_REPO", str(tmp_path / "one/repo"))
    assert fsspec.filesystem("fhrd").cat_file("a") == b"one"
    monkeypatch.setenv("FHRD_REPO", str(tmp_path / "two/repo"))
    assert fsspec.filesystem("fhrd").cat_file("a") == b"two"
    for name, steps in (("one", [1]), ("two", [])):
        with fhrd.open(tmp_path / name / "repo") as found:
            assert found.all_steps("tune") == steps and found.check(read_data=True).is_sound


def test_copies_and_moves_wait_for_the_end_of_a_transaction(fs: FhrdFileSystem, location: Path, tmp_path: Path) -> None:
    fs.pipe({"d/a": b"a", "d/b": b"b", "c": b"c"})
    (tmp_path / "local").write_bytes(b"local")
    with pytest.raises(ZeroDivisionError), fs.transaction:
        fs.put_file(tmp_path / "local", "new")
        fs.cp_file("c", "copied")
        fs.mv("c", "moved")
        fs.mv("d", "e", recursive=True)
        raise ZeroDivisionError
    assert fs.find("") == ["c", "d/a", "d/b"]
    with fs.transaction:
        fs.mv("c", "moved")
        fs.mv("d", "e", recursive=True)
        fs.cp_file("d/a", "copied")
    assert fs.find("") == ["copied", "e/a", "e/b", "moved"] and fs.cat_file("moved") == b"c"
    with fs.transaction:
        # As a log rotates, and as two files change places.
        fs.mv("e/a", "e/b")
        fs.mv("moved", "e/a")
    assert fs.cat_file("e/b") == b"a" and fs.cat_file("e/a") == b"c" and fs.find("") == ["copied", "e/a", "e/b"]
    for call in (fs.mv, fs.cp_file):
        with pytest.raises(ValueError, match="this transaction writes it"), fs.transaction:
            fs.pipe_file("copied", b"newer")
            call("copied", "elsewhere")
    assert fs.cat_file("copied") == b"a" and not fs.exists("elsewhere")
    fs.mv("e", "f", recursive=True)
    # All files of a directory are one snapshot. The other one is of `copied`.
    assert len(fs.repo.snapshots()) == 2 and fs.find("f") == ["f/a", "f/b"]


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_forked_process_takes_nothing_of_an_open_file(fs: FhrdFileSystem, is_closed: bool) -> None:
    file = fs.open("large", "wb")
    file.write(bytes(9 << 20))
    # The last bytes are in a buffer that both processes have.
    file.write(b"1" * 1000)
    child = os.fork()
    if child == 0:
        if is_closed:
            file.close()
        del file
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    file.write(b"2" * 1000)
    file.close()
    assert fs.cat_file("large", 9 << 20) == b"1" * 1000 + b"2" * 1000
    assert fs.info("large")["size"] == (9 << 20) + 2000


@pytest.mark.parametrize("size", [5, 100, 9 << 20])
def test_a_file_is_cut_or_grows(fs: FhrdFileSystem, size: int) -> None:
    with fs.open("a", "wb") as file:
        file.write(b"0123456789")
        assert file.truncate(size) == size and file.tell() == 10
    assert fs.cat_file("a") == b"0123456789"[:size] + bytes(max(0, size - 10))


def test_a_directory_is_stored_in_the_root(fs: FhrdFileSystem, tmp_path: Path) -> None:
    (tmp_path / "source/sub").mkdir(parents=True)
    (tmp_path / "source/x").write_bytes(b"x")
    (tmp_path / "source/sub/y").write_bytes(b"y")
    fs.put_directory(tmp_path / "source", "")
    assert fs.cat_file("x") == b"x" and fs.cat_file("sub/y") == b"y" and len(fs.repo.snapshots()) == 1
    # Links are followed, but not in circles.
    (tmp_path / "source/link").symlink_to("sub")
    (tmp_path / "source/sub/above").symlink_to("..")
    fs.put_directory(tmp_path / "source", "copy")
    assert fs.find("copy") == ["copy/link/y", "copy/sub/y", "copy/x"]


def test_a_location_means_what_the_engine_takes_it_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real/deep")
    fhrd.open(f"file:{tmp_path}/real/repo", create=True).close()
    monkeypatch.chdir(tmp_path)
    for location in ("link/../repo", "real/repo", "./real//repo/"):
        with fhrd.open(location) as repo:
            assert repo.all_steps("tune") == []
    with pytest.raises(ValueError, match="empty"):
        fhrd.open("")
    (tmp_path / "a!b").mkdir()
    monkeypatch.chdir(tmp_path / "a!b")
    fhrd.open("q", create=True).close()
    with fsspec.open("fhrd://q!/t/x", "wb") as file:
        file.write(b"x")
    assert fsspec.open("fhrd://q!/t/x").open().read() == b"x"
    assert not fsspec.filesystem("fhrd", repo="q").exists("missing")
    # A working directory that somebody has deleted matters to relative locations only.
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    fhrd.open(tmp_path / "real/repo").close()


def test_a_consolidated_step_stays_what_it_was(location: Path) -> None:
    fs = FhrdFileSystem(location)
    fs.pipe_file("t@5/a", b"a")
    fs.pipe_file("t@5/b", b"b")
    fs.consolidate("t@5", {"loss": 0.5})
    fs.pipe_file("t@5/notes.txt", b"notes")
    fs.consolidate("t@5")
    fs.pipe_file("t@5/more.txt", b"more")
    found = fs.repo.checkpoint(run="t")
    assert sorted(file.path for file in found.files()) == ["a", "b", "notes.txt"] and found.metrics == {"loss": 0.5}


def test_a_file_that_comes_before_the_arrays_makes_no_step(location: Path) -> None:
    with fhrd.open(location) as repo:
        fs = FhrdFileSystem(repo)
        fs.pipe_file("y@5/log.txt", b"log")
        run = repo.run("y")
        assert run.should_save(5)
        repo.save({"w": numpy.ones(1)}, run="y", step=5)
        assert not run.should_save(5) and repo.load(run="y", step=5)["w"][0] == 1
        with pytest.raises(fhrd.StepExistsError):
            repo.save({"w": numpy.ones(1)}, run="y", step=5)
        repo.save({"w": numpy.zeros(1)}, run="y", step=5, if_exists="replace")
        assert fs.cat_file("y@5/log.txt") == b"log" and len(repo.snapshots()) == 2
        # A step that was just saved stays with the files beside it, whatever the rules say of its number.
        fs.pipe_file("y@2/log.txt", b"log")
        saved = repo.save({"w": numpy.ones(1)}, run="y", step=2, keep=fhrd.Keep(last=1))
        assert saved.deleted == () and fs.exists("y@2/log.txt") and repo.all_steps("y") == [2, 5]
        repo.forget(keep=fhrd.Keep(last=1), run="y")
        assert not fs.exists("y@2/log.txt") and repo.all_steps("y") == [5]
        repo.save({"w": numpy.ones(1)}, run="exp/a", step=1)
        with pytest.raises(ValueError, match="paths cannot name its steps"):
            fs.pipe_file("exp/a@300/x.bin", b"x")
        fs.pipe_file("exp/b@300/x.bin", b"x")
