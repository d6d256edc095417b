"""Where MLflow finds the artifact store. It imports nothing of MLflow, which asks for it while MLflow itself is imported."""

from __future__ import annotations

from typing import Any


def artifact_repository(artifact_uri: str, *args: Any, **kwargs: Any) -> Any:
    """The `fhrd.mlflow.FhrdArtifactRepository` of a URI."""
    from fhrd.mlflow import FhrdArtifactRepository

    return FhrdArtifactRepository(artifact_uri, *args, **kwargs)
