"""Use a repository as a file system: tables of pandas, and sharded checkpoints of torch.distributed.checkpoint."""

import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import fsspec
import pandas
import torch

import fhrd
import fhrd.distributed
from fhrd.filesystem import join_url


def main(directory: Path) -> None:
    repo = directory / "repo"
    fhrd.open(repo, create=True).close()

    # Parts of pandas and fsspec have no types.
    table = cast(Any, pandas.DataFrame({"step": [1, 2, 3], "loss": [0.5, 0.4, 0.3]}))
    # fhrd:///…/repo!/tables/losses.csv
    table.to_csv(join_url(repo, "tables/losses.csv"), index=False)
    assert pandas.read_csv(join_url(repo, "tables/losses.csv")).equals(table)

    # All ranks of a distributed training make these calls; here there is one.
    weights = {"layer": torch.arange(1000.0), "bias": torch.ones(10)}
    fhrd.distributed.save(dict(weights), repo, run="sharded", step=7, metrics={"loss": 0.3})
    found = {"layer": torch.zeros(1000), "bias": torch.zeros(10)}
    fhrd.distributed.load(found, repo, run="sharded", step="latest")
    assert all(torch.equal(found[name], weights[name]) for name in weights)

    files = cast(Any, fsspec).filesystem("fhrd", repo=repo)
    print(files.find(""))
    with files.transaction:
        # Both files appear together, or neither does.
        files.pipe("notes/one.txt", b"1")
        files.pipe("notes/two.txt", b"2")
    assert files.glob("notes/*") == ["notes/one.txt", "notes/two.txt"]
    files.rm("notes", recursive=True)
    assert not files.exists("notes/one.txt")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))
