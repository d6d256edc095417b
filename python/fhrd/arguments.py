"""Checks of arguments. They raise at the call, before anything is done."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union

from .errors import ArgumentError, ArgumentTypeError

PathLike = Union[str, "os.PathLike[str]"]
Files = Union[Sequence[PathLike], Mapping[str, "PathLike | bytes"]]
#: Gets counters now and then.
Progress = Callable[[dict[str, int]], Any]
#: What a save does if the run has its step: see `Repository.save`.
IfExists = Literal["error", "replace", "keep", "add"]

#: Largest number of a step.
_STEP_MAX = (1 << 64) - 1
_FRAMEWORKS = {"numpy": "numpy", "np": "numpy", "torch": "torch", "pt": "torch"}


def whole_number(value: object, what: str, least: int = 0, most: int = _STEP_MAX) -> int:
    """`value` as an integer, also one of NumPy.

    Raises:
        ArgumentTypeError: if it is none. `True` is none.
        ArgumentError: if it is below `least` or above `most`.
    """
    number = None
    if not isinstance(value, bool):
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except TypeError:
            pass
    if number is None:
        raise ArgumentTypeError(f"{what}: expected a whole number, found {value!r}")
    if not least <= number <= most:
        raise ArgumentError(f"{what}: expected a whole number from {least} to {most}, found {number}")
    return number


def seconds(value: object, what: str) -> float:
    """`value` as a time.

    Raises:
        ArgumentTypeError: if it is no number.
        ArgumentError: if it is not above 0, or endless.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"{what}: expected a number of seconds, found {value!r}")
    if not 0 < value < 1e9:
        raise ArgumentError(f"{what}: expected a number of seconds above 0, found {value!r}")
    return float(value)


def name(value: object, what: str) -> str:
    """`value` if it is a text that may name a run or a metric.

    Raises:
        ArgumentTypeError: if it is no text.
        ArgumentError: if it is empty, or has a character that means something else.
    """
    other = "=" if what.startswith("metric") else "@"
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{what}: expected a text, found {value!r}")
    if not 0 < len(value.encode()) < 256 or ":" in value or other in value or any(ord(one) < 32 for one in value):
        raise ArgumentError(
            f"{what}: expected a name of 1 to 255 bytes without `:`, `{other}` and control characters, found {value!r}"
        )
    return value


def numbers(metrics: object) -> dict[str, float]:
    """Metrics as numbers by name.

    Raises:
        ArgumentTypeError: if it is no mapping of names to numbers.
    """
    if not isinstance(metrics, Mapping):
        raise ArgumentTypeError(f"metrics: expected a dictionary of numbers by name, found {metrics!r}")
    found: dict[str, float] = {}
    given: Mapping[Any, Any] = metrics  # pyright: ignore[reportUnknownVariableType]
    for key, value in given.items():
        try:
            number = None if isinstance(value, (str, bytes)) else float(value)
        except (TypeError, ValueError, RuntimeError):
            number = None
        if number is None:
            raise ArgumentTypeError(f"metrics: `{key}`: expected a number, found {value!r}")
        found[name(key, "metrics")] = number
    return found


def split_tags(tags: Iterable[str] | str) -> list[str]:
    """The tags of a list as on the command line: a comma separates tags, and none is empty.

    Raises:
        ArgumentTypeError: if it is neither a text nor a list of texts.
        ArgumentError: if a tag is empty.
    """
    try:
        given: list[Any] = ([tags] if tags else []) if isinstance(tags, str) else list(tags)
    except TypeError:
        given = [None]
    if not all(isinstance(one, str) for one in given):
        raise ArgumentTypeError(f"tags: expected texts, found {tags!r}")
    split = [tag.strip() for one in given for tag in one.split(",")]
    if "" in split:
        raise ArgumentError(f"expected tags that are not empty, found {tags!r}")
    return list(dict.fromkeys(split))


def framework(given: object, device: object = None) -> str:
    """`numpy` or `torch`, also as safetensors calls them: `np` and `pt`.

    Raises:
        ArgumentError: if it is another one, or if NumPy arrays should go to a device.
    """
    found = _FRAMEWORKS.get(given) if isinstance(given, str) else None
    if found is None:
        raise ArgumentError(f'framework: expected "numpy" or "torch", found {given!r}')
    if device is not None and found != "torch":
        raise ArgumentError("only torch tensors have a device")
    return found


def choice(value: object, what: str, choices: Sequence[str]) -> str:
    """`value` if it is one of `choices`.

    Raises:
        ArgumentError: if it is not.
    """
    if value not in choices:
        raise ArgumentError(f"{what}: expected {' or '.join(map(repr, choices))}, found {value!r}")
    return str(value)


def named_files(files: Files) -> dict[str, PathLike | bytes]:
    """Files by their paths in the snapshot: those of a list are in its root.

    Raises:
        ArgumentTypeError: if one is neither a path nor bytes.
        ArgumentError: if two have one name.
    """
    named: dict[str, PathLike | bytes] = {}
    if isinstance(files, Mapping):
        named.update(files)
    elif isinstance(files, (str, bytes, os.PathLike)):
        raise ArgumentTypeError(f"files: expected a list of paths or a dictionary, found {files!r}")
    else:
        for file in files:
            path: str = os.path.basename(os.fspath(file))
            if path in named:
                raise ArgumentError(f"files: two of them are called {path!r}: give a dictionary with their paths")
            named[path] = file
    for path, source in named.items():
        if not isinstance(source, (str, bytes, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(f"files: `{path}`: expected a path or bytes, found {type(source).__qualname__}")
    return named


def location(path_or_url: PathLike) -> str:
    """A path or URL, with the home directory in place of `~`."""
    given = os.fspath(path_or_url)
    return os.path.expanduser(given) if given.startswith("~") else given
