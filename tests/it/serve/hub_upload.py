"""Uploads directories to `fhrd serve --writable` with the real client of the Hub, and gets them back byte for byte.

hub_upload.py ENDPOINT BASE TUNED REPOSITORY: two directories with a model each, which become up/base and up/tuned.
Works with huggingface_hub 0.36, 1.x and 2.x, and by Xet unless HF_HUB_DISABLE_XET says no.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

endpoint, *directories, repository = sys.argv[1:]
home = tempfile.mkdtemp()
os.environ |= {"HF_ENDPOINT": endpoint, "HF_HOME": home, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

import huggingface_hub  # noqa: E402
from huggingface_hub import CommitOperationDelete, HfApi, snapshot_download  # noqa: E402
from huggingface_hub.constants import HF_HUB_DISABLE_XET  # noqa: E402
from huggingface_hub.errors import HfHubHTTPError  # noqa: E402

api = HfApi()
base, tuned = map(Path, directories)


def files(directory):
    """The files below a directory by their paths."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found if ".cache" not in path.parts}


def downloaded(name, **options):
    return files(Path(snapshot_download(name, local_dir=tempfile.mkdtemp(), **options)))


def base_twice():
    api.create_repo("up/base", exist_ok=True)
    first = api.upload_folder(folder_path=base, repo_id="up/base", commit_message="first")
    assert len(first.oid) == 40, first
    assert downloaded("up/base") == files(base)
    api.create_repo("up/base", exist_ok=True)
    api.upload_folder(folder_path=base, repo_id="up/base", commit_message="again")
    assert api.model_info("up/base").sha == first.oid, "the same files are the same commit"
    assert downloaded("up/base") == files(base)


def stored():
    return sum(path.stat().st_size for path in Path(repository).rglob("*") if path.is_file())


def fine_tune():
    before = stored()
    api.create_repo("up/tuned", exist_ok=True)
    api.upload_folder(folder_path=tuned, repo_id="up/tuned")
    part = (stored() - before) / (tuned / "model.safetensors").stat().st_size
    print(f"the fine-tune took {part:.3f} of its bytes")
    # By Xet, its chunks are there a second time until a prune.
    assert part < 0.5 or not HF_HUB_DISABLE_XET, f"a fine-tune is no delta: {part}"
    assert downloaded("up/tuned") == files(tuned)


def changes():
    before = api.model_info("up/base").sha
    change = api.upload_file(path_or_fileobj=b"# new\n", path_in_repo="README.md", repo_id="up/base")
    gone = [CommitOperationDelete("config.json"), CommitOperationDelete("below/", is_folder=True)]
    api.create_commit("up/base", gone, commit_message="delete", parent_commit=change.oid)
    kept = {path: content for path, content in files(base).items() if path != "config.json" and "/" not in path}
    assert downloaded("up/base") == kept | {"README.md": b"# new\n"}
    assert downloaded("up/base", revision=before) == files(base), "a commit never changes"
    try:
        api.create_commit("up/base", gone, commit_message="late", parent_commit=before)
    except HfHubHTTPError as error:
        assert error.response.status_code == 412, error
    else:
        raise AssertionError("a commit was built on an old one")


def command_and_dataset():
    program = shutil.which("hf", path=str(Path(sys.executable).parent)) or shutil.which("huggingface-cli", path=str(Path(sys.executable).parent))
    small = Path(tempfile.mkdtemp())
    for number in range(50):
        (small / f"{number}.txt").write_text(f"file {number}")
    command = [program, "upload", "up/data", str(small), ".", "--repo-type", "dataset"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    assert downloaded("up/data", repo_type="dataset") == files(small)


print(huggingface_hub.__version__)
for step in [base_twice, fine_tune, changes, command_and_dataset]:
    step()
    print(step.__name__, flush=True)
