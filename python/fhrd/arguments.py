"""Checks of arguments. They raise at the call, before anything is done."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, cast

from .errors import ArgumentError, ArgumentTypeError

PathLike = Union[str, "os.PathLike[str]"]
Files = Union[Sequence[PathLike], Mapping[str, Union[PathLike, bytes]]]
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
    # A tensor of torch that is true has an index.
    if not isinstance(value, bool) and "bool" not in str(getattr(value, "dtype", "")):
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


def number(value: object, what: str) -> float:
    """`value` as a number, also one of NumPy.

    Raises:
        ArgumentTypeError: if it is none.
        ArgumentError: if it is not a number in the sense of IEEE 754.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{what}: expected a number, found {value!r}")
    found = float(cast("Any", value))
    if math.isnan(found):
        raise ArgumentError(f"{what}: expected a number, found {value!r}")
    return found


def wait(value: object, what: str) -> float | None:
    """`value` as the seconds that a thread waits; None, also for infinity, for as long as it takes.

    Raises:
        ArgumentTypeError: if it is no number.
        ArgumentError: if it is not a number in the sense of IEEE 754.
    """
    if value is None:
        return None
    found = number(value, what)
    # Threads cannot wait for more than about 290 years.
    return None if found > 1e9 else found


def flags(**values: object) -> None:
    """Looks at switches by their names: `"no"` would be true.

    Raises:
        ArgumentTypeError: if one is neither `True` nor `False`.
    """
    for what, value in values.items():
        if not isinstance(value, bool):
            raise ArgumentTypeError(f"{what}: expected True or False, found {value!r}")


def text(value: object, what: str) -> str:
    """`value` if it is a text that UTF-8 can say.

    Raises:
        ArgumentTypeError: if it is no text.
        ArgumentError: if it has half of a character.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{what}: expected a text, found {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what}: expected a text without halves of characters, found {value!r}") from None
    return value


def texts(values: object, what: str) -> dict[str, str]:
    """Texts by name.

    Raises:
        ArgumentTypeError: if it is no mapping of texts to texts.
        ArgumentError: if one has half of a character.
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"{what}: expected a dictionary of texts, found {values!r}")
    given: Mapping[Any, Any] = values  # pyright: ignore[reportUnknownVariableType]
    return {text(key, what): text(value, f"{what}: `{key}`") for key, value in given.items()}


def path(value: object, what: str) -> str:
    """A path.

    Raises:
        ArgumentTypeError: if it is none.
        ArgumentError: if no file can be called so.
    """
    try:
        given: Any = os.fspath(cast("Any", value))  # pyright: ignore[reportUnknownVariableType]
        if isinstance(given, str):
            os.fsencode(given)
            return given
    except TypeError:
        pass
    except UnicodeEncodeError:
        raise ArgumentError(f"{what}: expected a path, found {value!r}") from None
    raise ArgumentTypeError(f"{what}: expected a path as a text or a PathLike, found {value!r}")


def paths(values: object, what: str) -> list[str]:
    """Paths of a list. `~` is the home directory.

    Raises:
        ArgumentTypeError: if it is no list of paths.
        ArgumentError: if no file can be called so.
    """
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{what}: expected a list of paths, found {values!r}")
    return [location(one, what) for one in cast("Iterable[object]", values)]


def names(values: object, what: str) -> list[str]:
    """Texts of a list.

    Raises:
        ArgumentTypeError: if it is no list of texts.
        ArgumentError: if one has half of a character.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{what}: expected a list of texts, found {values!r}")
    return [text(one, what) for one in cast("Iterable[object]", values)]


def progress(value: Progress | None) -> Progress | None:
    """`value` if it can be called, or is `None`.

    Raises:
        ArgumentTypeError: if it cannot.
    """
    if value is not None and not callable(value):  # pyright: ignore[reportUnnecessaryComparison]
        raise ArgumentTypeError(f"progress: expected a function, found {value!r}")
    return value


def name(value: object, what: str) -> str:
    """`value` if it is a text that may name a run or a metric.

    Raises:
        ArgumentTypeError: if it is no text.
        ArgumentError: if it is empty, or has a character that means something else.
    """
    other = "=" if what.startswith("metric") else "@"
    value = text(value, what)
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
            # A loss of torch warns unless it is detached.
            detached = value.detach() if hasattr(value, "detach") else value
            number = None if isinstance(value, (str, bytes)) else float(detached)
        except (TypeError, ValueError, RuntimeError):
            number = None
        except OverflowError:
            raise ArgumentError(f"metrics: `{key}`: the number is too large") from None
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
    for tag in split:
        text(tag, "tags")
    return list(dict.fromkeys(split))


def framework(given: object, device: Any = None) -> str:
    """`numpy` or `torch`, also as safetensors calls them: `np` and `pt`.

    Raises:
        ArgumentError: if it is another one, if torch knows no such device, or if NumPy arrays should go to a device.
    """
    found = _FRAMEWORKS.get(given) if isinstance(given, str) else None
    if found is None:
        raise ArgumentError(f'framework: expected "numpy" or "torch", found {given!r}')
    if device is not None and found != "torch":
        raise ArgumentError("only torch tensors have a device")
    if device is not None:
        import torch  # pyright: ignore[reportMissingImports]

        try:
            torch.device(device)  # pyright: ignore
        except (RuntimeError, TypeError) as error:
            raise ArgumentError(f"device: {error}") from None
    return found


def metric_name(given: str) -> str:
    """A name of a metric for what a library calls so."""
    return given.replace(":", "_").replace("=", "_")


def files_below(directory: Path, above: frozenset[str] = frozenset()) -> list[Path]:
    """All files below a directory in the order of their paths, also through links, but not in circles."""
    real = os.path.realpath(directory)
    if real in above:
        return []
    found: list[Path] = []
    for entry in sorted(directory.iterdir()):
        if entry.is_dir():
            found += files_below(entry, above | {real})
        elif entry.is_file():
            found.append(entry)
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
    elif isinstance(files, (str, bytes, os.PathLike)) or not isinstance(files, Iterable):  # pyright: ignore
        raise ArgumentTypeError(f"files: expected a list of paths or a dictionary, found {files!r}")
    else:
        for file in files:
            last = os.path.basename(path(file, "files"))
            if last in named:
                raise ArgumentError(f"files: two of them are called {last!r}: give a dictionary with their paths")
            named[last] = file
    for key, source in named.items():
        text(key, "files")
        if not isinstance(source, (str, bytes, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(f"files: `{key}`: expected a path or bytes, found {type(source).__qualname__}")
        if not isinstance(source, bytes):
            path(source, f"files: `{key}`")
    return named


def location(path_or_url: object, what: str = "path") -> str:
    """A path or URL, with the home directory in place of `~`.

    Raises:
        ArgumentTypeError: if it is neither.
        ArgumentError: if no file can be called so.
    """
    given = path(path_or_url, what)
    return os.path.expanduser(given) if given.startswith("~") else given


def absolute(location: str) -> str:
    """A location that another working directory does not change. What is a URL is what the engine takes for one."""
    if not location or os.path.isabs(location) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|(?i:file):/", location):
        return location
    return os.path.join(os.getcwd(), location)
