# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""MLflow: an artifact store in a repository.

>>> import fhrd, mlflow.store.artifact.artifact_repository_registry as registry, pathlib
>>> fhrd.open("checkpoints", create=True).close()
>>> artifacts = registry.get_artifact_repository(f"fhrd://{pathlib.Path.cwd()}/checkpoints!/mlflow")
>>> pathlib.Path("notes.txt").write_text("a run"), artifacts.log_artifact("notes.txt")
(5, None)
>>> [artifact.path for artifact in artifacts.list_artifacts()]
['notes.txt']

Give an experiment the artifact location `fhrd:///data/repo!/mlflow`, or start the server with
`--default-artifact-root fhrd:///data/repo!/mlflow`. MLflow finds this class by its entry point. Artifacts are files of
`fhrd.filesystem`; those that are logged together are one snapshot.
"""

from __future__ import annotations

import posixpath
import shutil
from typing import Any, cast

import fsspec
from mlflow.entities import FileInfo
from mlflow.store.artifact.artifact_repo import ArtifactRepository, verify_artifact_path

__all__ = ["FhrdArtifactRepository"]


class FhrdArtifactRepository(ArtifactRepository):  # type: ignore[misc, unused-ignore]
    """The artifacts below one URI. What is logged is durable when the call has returned."""

    def __init__(self, artifact_uri: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(artifact_uri, *args, **kwargs)
        # MLflow drops the empty name of a machine: `fhrd:///data` becomes `fhrd:/data`.
        rest = artifact_uri.removeprefix("fhrd:")
        self._files, self._root = fsspec.core.url_to_fs(f"fhrd:{rest}" if rest.startswith("//") else f"fhrd://{rest}")

    def _path(self, artifact_path: str | None, name: str = "") -> str:
        if artifact_path:
            cast("Any", verify_artifact_path)(artifact_path)
        return posixpath.join(self._root, *(part for part in (artifact_path, name) if part))

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Stores a local file below `artifact_path`."""
        self._files.put_file(local_file, self._path(artifact_path, posixpath.basename(local_file)))

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Stores all files of a local directory below `artifact_path`, as one snapshot."""
        self._files.put_directory(local_dir, self._path(artifact_path))

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """The entries of a directory. Empty for a file, and if there is none."""
        directory = self._path(path)
        try:
            entries = self._files.ls(directory, detail=True)
        except FileNotFoundError:
            return []
        found = []
        for entry in entries:
            if entry["name"] == directory:
                return []
            name = posixpath.relpath(entry["name"], self._root)
            is_directory = entry["type"] == "directory"
            found.append(FileInfo(name, is_directory, None if is_directory else entry["size"]))
        return found

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        with self._files.open(self._path(remote_file_path), "rb") as stored, open(local_path, "wb") as local:
            shutil.copyfileobj(stored, local, 4 << 20)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Removes a file or a directory with all that is in it."""
        path = self._path(artifact_path)
        if self._files.exists(path):
            self._files.rm(path, recursive=True)
