"""URLs of files in repositories: `fhrd://REPOSITORY!/path`."""

from __future__ import annotations

import os

from fhrd.errors import ArgumentError

__all__ = ["join_url", "split_name", "split_url"]


def split_url(url: str) -> tuple[str | None, str]:
    """Splits `fhrd://REPOSITORY!/path` into repository (None without `!`) and path without slashes at its ends."""
    rest = url.removeprefix("fhrd://")
    repo, mark, path = rest.partition("!")
    if not mark:
        return None, rest.strip("/")
    return repo, path.strip("/")


def split_name(name: str) -> tuple[str | None, str]:
    """As `split_url` for a name without `fhrd://`, which may have a `!` within."""
    at = name.find("!/") if "!/" in name else len(name) - 1 if name.endswith("!") else -1
    return (None, name) if at < 0 else (name[:at], name[at + 1 :])


def join_url(repo: str | os.PathLike[str], path: str = "") -> str:
    """The URL of `path` in a repository. The inverse of `split_url`."""
    location = os.fspath(repo)
    if "!" in location:
        raise ArgumentError(f"the repository {location!r} has a `!` in its name, which separates repository and path in a URL")
    return f"fhrd://{location}!/{path.strip('/')}"
