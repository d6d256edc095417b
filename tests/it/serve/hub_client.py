"""Downloads what `fhrd serve` serves with the real client of the Hub, and compares every byte.

hub_client.py ENDPOINT MODEL DATASET MANY BIG: directories that are published as me/model, me/dataset, me/many and me/big.
Works with huggingface_hub 0.36, 1.x and 2.x.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

endpoint, *directories = sys.argv[1:]
home = tempfile.mkdtemp()
os.environ |= {"HF_ENDPOINT": endpoint, "HF_HOME": home, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

import huggingface_hub  # noqa: E402
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download  # noqa: E402
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError  # noqa: E402

api = HfApi()
model, dataset, many, big = map(Path, directories)


def files(directory):
    """The files below a directory by their paths. Links to files count as files."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found if ".cache" not in path.parts}


def fails(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def names_and_commits():
    info = api.model_info("me/model")
    assert len(info.sha) == 40 and info.last_modified is not None, info
    assert {sibling.rfilename for sibling in info.siblings} == set(files(model)), info.siblings
    assert api.model_info("me/model", revision=info.sha).sha == info.sha
    assert set(api.list_repo_files("me/model")) == set(files(model))
    assert [branch.name for branch in api.list_repo_refs("me/model").branches] == ["main", "v1"]
    assert {found.id for found in api.list_models(search="me/")} == {"me/model", "me/many", "me/big"}
    assert [found.id for found in api.list_datasets(author="me")] == ["me/dataset"]
    assert api.repo_exists("me/model") and not api.repo_exists("me/none")
    assert api.file_exists("me/model", "config.json") and not api.file_exists("me/model", "none")


def whole_model():
    path = Path(hf_hub_download("me/model", "config.json"))
    assert path.read_bytes() == (model / "config.json").read_bytes()
    assert files(Path(snapshot_download("me/model"))) == files(model)
    assert files(Path(snapshot_download("me/model", revision="v1"))) == files(model)
    target = tempfile.mkdtemp()
    assert files(Path(snapshot_download("me/model", local_dir=target))) == files(model)


def hashes():
    for entry in api.list_repo_tree("me/model", recursive=True):
        if not hasattr(entry, "blob_id"):
            continue
        content = (model / entry.path).read_bytes()
        if entry.lfs is None:
            assert entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), entry
        else:
            sha256 = hashlib.sha256(content).hexdigest()
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
            assert (entry.lfs.sha256, entry.lfs.size, entry.lfs.pointer_size) == (sha256, len(content), len(pointer))
            assert entry.blob_id == hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), entry
    paths = ["config.json", "below", "none"]
    found = {entry.path for entry in api.get_paths_info("me/model", paths)}
    assert found == {"config.json", "below"}, found


def file_system():
    system = HfFileSystem()
    assert {entry["name"] for entry in system.ls("me/model")} >= {"me/model/config.json", "me/model/below"}
    content = (model / "model.safetensors").read_bytes()
    with system.open("me/model/model.safetensors", "rb") as file:
        file.seek(1000)
        assert file.read(100) == content[1000:1100]
        file.seek(-10, 2)
        assert file.read() == content[-10:]
    with system.open("me/model/model.safetensors", "rb", block_size=0) as file:
        assert file.read(100) == content[:100]
    assert sorted(path.removeprefix("me/model/") for path in system.find("me/model")) == sorted(files(model))


def absent_things():
    fails(EntryNotFoundError, lambda: hf_hub_download("me/model", "none.txt"))
    fails(RevisionNotFoundError, lambda: hf_hub_download("me/model", "config.json", revision="none"))
    fails(RepositoryNotFoundError, lambda: hf_hub_download("me/none", "config.json"))
    fails(RepositoryNotFoundError, lambda: api.model_info("me/dataset"))
    fails(RevisionNotFoundError, lambda: api.model_info("me/model", revision="none"))


def whole_dataset():
    assert files(Path(snapshot_download("me/dataset", repo_type="dataset"))) == files(dataset)
    assert set(api.list_repo_files("me/dataset", repo_type="dataset")) == set(files(dataset))


def many_files():
    assert files(Path(snapshot_download("me/many"))) == files(many)


def big_file():
    size = (big / "big.bin").stat().st_size
    with HfFileSystem().open("me/big/big.bin", "rb") as file:
        assert file.read(4) == b"head"
        file.seek(size - 4)
        assert file.read() == b"tail"
        file.seek(size // 2)
        assert file.read(1000) == bytes(1000)


print(huggingface_hub.__version__)
for step in [names_and_commits, whole_model, hashes, file_system, absent_things, whole_dataset, many_files, big_file]:
    step()
    print(step.__name__, flush=True)
