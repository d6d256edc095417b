"""Nested objects as named arrays and a description of the rest.

`flatten` walks an object of dictionaries, lists, tuples and plain values. Leaves that a *store* function accepts
(tensors, arrays) become named arrays; everything else becomes a description in JSON, from which `unflatten`
builds the object again. Nothing is pickled, and nothing in the description is ever run.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, cast

from .errors import ArgumentError, ArgumentTypeError, DamagedError, NotTrustedError

__all__ = ["DescriptionError", "flatten", "unflatten"]

#: Deepest nesting.
_DEPTH_MAX = 200

#: Gives the description of a leaf that it stores, or None for a value that it does not know.
Store = Callable[[Any, str], "dict[str, Any] | None"]
#: Builds a leaf from its description.
Build = Callable[[str, "dict[str, Any]"], Any]


class DescriptionError(DamagedError, ValueError):
    """A stored description that contradicts itself, or was written by a newer version."""


def flatten(value: Any, store: Store, finish: Callable[[], None] = lambda: None) -> bytes:
    """Describes `value` as JSON. `store` is called for each leaf that is no plain value, with its path, and
    `finish` after the last one; until then the descriptions that `store` gave may be changed.

    Dictionaries may have keys of any plain type and keep their order. An object that occurs twice in the value is
    described once, so it is one object again when built.

    Raises:
        ArgumentTypeError: (a TypeError) a value that can be neither described nor stored, with its path.
    """
    described = _Flattener(store).describe(value, "", 0)
    finish()
    return json.dumps(described, separators=(",", ":")).encode()


class _Flattener:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: Numbers of containers by identity. The containers are held, so that no identity is used twice.
        self._known: dict[int, tuple[int, Any]] = {}
        #: Numbers of the containers that are described now and that are built when all that is in them is.
        self._unfinished: set[int] = set()

    def describe(self, value: Any, path: str, depth: int) -> Any:
        try:
            plain = _plain(value)
        except ValueError as error:
            # Python turns no number of this length into a text, nor a text into one.
            raise ArgumentError(f"{path or 'the value'}: {error}") from None
        if plain is not None:
            return plain[0]
        if depth > _DEPTH_MAX:
            raise ArgumentTypeError(f"{path or 'the value'}: expected at most {_DEPTH_MAX} levels of containers")
        known = self._known.get(id(value))
        if known is not None:
            if known[0] in self._unfinished:
                raise ArgumentError(f"{path}: a {_type_of(value).__name__} that contains itself cannot be built again")
            return {"same": known[0]}
        stored = self._store(value, path)
        if stored is not None:
            return self._remember(value, stored)
        kind = _type_of(value)
        if kind in (list, set, frozenset, tuple):
            number = self._number(value)
            items: Any = sorted(value, key=repr) if kind in (set, frozenset) else value
            if kind is not list:
                self._unfinished.add(number)
            inner = [self.describe(item, _join(path, index), depth + 1) for index, item in enumerate(items)]
            self._unfinished.discard(number)
            return {kind.__name__: inner, "number": number}
        if kind in (dict, OrderedDict, Counter) or (kind is defaultdict and value.default_factory in _FACTORIES.values()):
            number = self._number(value)
            pairs = [
                [self.describe(key, path, depth + 1), self.describe(item, _join(path, key), depth + 1)]
                for key, item in value.items()
            ]
            described: dict[str, Any] = {kind.__name__: pairs, "number": number}
            if kind is defaultdict:
                described["factory"] = next(name for name, one in _FACTORIES.items() if one is value.default_factory)
            if kind is OrderedDict and value.__dict__:
                # The versions of modules in a state dictionary of torch.
                described["attributes"] = self.describe(dict(value.__dict__), path, depth + 1)
            return described
        raise ArgumentTypeError(
            f"{path or 'the value'}: a {kind.__module__}.{kind.__qualname__} is neither an array nor a plain value. "
            "Leave it out, turn it into one, or allow pickle"
        )

    def _number(self, value: Any) -> int:
        number = len(self._known)
        self._known[id(value)] = (number, value)
        return number

    def _remember(self, value: Any, described: dict[str, Any]) -> dict[str, Any]:
        described["number"] = self._number(value)
        return described


_FACTORIES: dict[str, Any] = {"none": None, "dict": dict, "list": list, "int": int, "float": float, "set": set}


#: Types of containers by their names in a description.
_CONTAINERS: dict[str, Any] = {
    "tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict, "OrderedDict": OrderedDict,
    "defaultdict": defaultdict, "Counter": Counter,
}  # fmt: skip


def _type_of(value: Any) -> Any:
    return type(value)  # pyright: ignore[reportUnknownVariableType]


def _plain(value: Any) -> tuple[Any] | None:
    """The description of a value without parts."""
    kind = _type_of(value)
    if value is None or kind in (bool, str):
        return (value,)
    if kind is int:
        return (value if abs(value) < 2**53 else {"int": str(value)},)
    if kind is float:
        return (value if math.isfinite(value) else {"float": value.hex()},)
    if kind is complex:
        return ({"complex": [value.real.hex(), value.imag.hex()]},)
    if kind in (bytes, bytearray):
        return ({kind.__name__: base64.b64encode(value).decode()},)
    if kind in (range, slice):
        return ({kind.__name__: [value.start, value.stop, value.step]},)
    if value is Ellipsis:
        return ({"ellipsis": 1},)
    return None


def _join(path: str, step: Hashable) -> str:
    return f"{path}.{step}" if path else str(step)


def unflatten(description: bytes, build: Build) -> Any:
    """Builds the object that `flatten` described. `build` makes the leaves that were stored.

    Raises:
        DescriptionError: the description contradicts itself.
    """
    try:
        described = json.loads(description)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"the description of the object is not JSON: {error}") from error
    try:
        return _Builder(build).value(described, 0)
    except (DescriptionError, NotTrustedError):
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RuntimeError) as error:
        raise DescriptionError(f"the description of the object contradicts itself: {error!r}") from error


class _Builder:
    def __init__(self, build: Build) -> None:
        self._build = build
        self._known: dict[int, Any] = {}

    def value(self, described: Any, depth: int) -> Any:
        if described is None or isinstance(described, (bool, int, float, str)):
            return described
        if depth > _DEPTH_MAX or not isinstance(described, dict):
            raise DescriptionError(f"expected a description of a value, found {str(described)[:80]!r}")
        fields = cast("dict[str, Any]", described)
        number: Any = fields.get("number")
        kind = next(iter(fields), "")
        content: Any = fields[kind]
        match kind:
            case "same":
                return self._known[content]
            case "int":
                return int(content)
            case "float":
                return float.fromhex(content)
            case "complex":
                return complex(float.fromhex(content[0]), float.fromhex(content[1]))
            case "bytes":
                return base64.b64decode(content)
            case "bytearray":
                return bytearray(base64.b64decode(content))
            case "range":
                return range(*content)
            case "slice":
                return slice(*content)
            case "ellipsis":
                return ...
            case "list":
                items: list[Any] = []
                self._known[number] = items
                items.extend(self.value(item, depth + 1) for item in content)
                return items
            case "tuple" | "set" | "frozenset":
                made: Any = _CONTAINERS[kind](
                    self.value(item, depth + 1) for item in content
                )
            case "dict" | "OrderedDict" | "defaultdict" | "Counter":
                made = _CONTAINERS[kind](*([_FACTORIES[fields["factory"]]] if kind == "defaultdict" else []))
                self._known[number] = made
                for key, item in content:
                    made[self.value(key, depth + 1)] = self.value(item, depth + 1)
                if kind == "OrderedDict":
                    attributes: Any = self.value(fields.get("attributes", {"dict": []}), depth + 1)
                    made.__dict__.update(attributes)
            case _:
                made = self._build(kind, fields)
        self._known[number] = made
        return made
