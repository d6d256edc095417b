# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""scikit-learn estimators: the arrays apart, the rest by skops or pickle.

>>> import fhrd.sklearn, sklearn.ensemble
>>> repo, x, y = fhrd.open("checkpoints", create=True), [[0.0], [1.0], [2.0]], [0, 1, 1]
>>> forest = sklearn.ensemble.RandomForestClassifier(n_estimators=10, random_state=0).fit(x, y)
>>> saved = fhrd.sklearn.save(repo, forest, run="forest", step=10)
>>> fhrd.sklearn.load(repo, run="forest").predict(x)
array([0, 1, 1])

Arrays are stored one by one, under names that stay the same while an estimator grows: with `warm_start`, the trees that
an ensemble already had are not stored again. The rest of the estimator is stored

* with `skops` if that is installed. Loading builds only types that skops trusts, classes of scikit-learn itself, and
  those in `trusted`. Trees are checked: no node of one leads out of it.
* else as a pickle. *Loading a pickle runs code from the repository.* So it is loaded only with `trusted=True`, which is
  right only if nobody else can write to the repository.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy

from fhrd.arguments import choice
from fhrd.arguments import names as checked_names
from fhrd.arrays import describe_dtype, described_dtype
from fhrd.checkpoint import of_checkpoint
from fhrd.errors import DamagedError, NotFoundError, NotTrustedError
from fhrd.runs import check_order, check_store
from fhrd.sklearn_trust import check_trees, is_owned

if TYPE_CHECKING:
    from fhrd import Checkpoint, Keep, SavedCheckpoint, SaveHandle
    from fhrd.arguments import IfExists, Progress
    from fhrd.runs import Store

__all__ = ["load", "save", "save_async"]

_NAME = "estimator.safetensors"
_SKOPS = ".skops.json"
_PICKLE = ".pickle"
#: Arrays of these kinds are stored apart.
_KINDS = "biufc"
#: Types in a schema of skops that have parts.
_NODES = frozenset((dict, list, tuple))


def save(
    repo: Store,
    estimator: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    name: str = _NAME,
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
    method: Literal["skops", "pickle"] | None = None,
) -> SavedCheckpoint:
    """Saves an estimator. It is durable on return.

    The other arguments are those of `fhrd.Repository.save`.

    Args:
        method: `"skops"` or `"pickle"`. Default: skops if it is installed.
    """
    check_order(repo, estimator, "fhrd.sklearn.save")
    arrays, files = _encode(estimator, name, method)
    return repo.save(
        arrays,
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=files,
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def save_async(
    repo: Store,
    estimator: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    name: str = _NAME,
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
    method: Literal["skops", "pickle"] | None = None,
) -> SaveHandle:
    """As `save`, but returns when the arrays are copied. See `fhrd.Repository.save_async`."""
    check_order(repo, estimator, "fhrd.sklearn.save_async")
    arrays, files = _encode(estimator, name, method)
    return repo.save_async(
        arrays,
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=files,
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def _encode(estimator: Any, name: str, method: str | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The arrays of an estimator, and the file with the rest of it."""
    if method is None:
        method = "skops" if _has_skops() else "pickle"
    choice(method, "method", ("skops", "pickle"))
    arrays, rest = _with_skops(estimator) if method == "skops" else _with_pickle(estimator)
    return arrays, {name + (_SKOPS if method == "skops" else _PICKLE): rest}


def load(
    repo: Store,
    *,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
    name: str = _NAME,
    trusted: bool | Sequence[str] = False,
) -> Any:
    """Loads an estimator.

    Args:
        trusted: names of further types that skops may build, as the error names them. `True` loads anything, also a
            pickle: only for repositories that nobody else can write to.

    Raises:
        NotTrustedError: (a ValueError) the estimator is pickled, and `trusted` is not `True`; or it has types that
            are neither trusted by skops nor of scikit-learn, and that `trusted` does not name.
        NotFoundError: (a LookupError) there is no such step, or it has no estimator.
        DamagedError: (an OSError) a tree is none: its nodes lead out of it; or the description does not parse.
    """
    check_store(repo, "fhrd.sklearn.load")
    if not isinstance(trusted, bool):
        trusted = checked_names(trusted, "trusted")

    def read(found: Checkpoint) -> Any:
        return _loaded(repo, found, name, trusted)

    return of_checkpoint(repo, read, run=run, step=step, snapshot=snapshot)


def _loaded(repo: Store, found: Checkpoint, name: str, trusted: bool | Sequence[str]) -> Any:
    paths = {file.path for file in found.files()}
    # One read: an ensemble has thousands of small arrays.
    arrays: Mapping[str, Any] = repo.load(snapshot=found.id, name=name).read_all() if name in paths else {}
    if name + _SKOPS in paths:
        return _from_skops(arrays, found.read_file(name + _SKOPS), trusted)
    if name + _PICKLE not in paths:
        raise NotFoundError(f"snapshot {found.id[:8]} has no estimator `{name}`")
    if trusted is not True:
        raise NotTrustedError(
            f"{name}: the estimator is pickled. Loading it runs code from the repository: if nobody else can write to "
            "it, load with trusted=True. Estimators of scikit-learn that were saved with skops installed need no trust"
        )
    return _Unpickler(io.BytesIO(found.read_file(name + _PICKLE)), arrays).load()


def _has_skops() -> bool:
    try:
        import skops.io  # noqa: F401
    except ImportError:
        return False
    return True


class _Files:
    """What skops writes into its archive: files by name. The archive itself is not needed."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def namelist(self) -> Mapping[str, bytes]:
        """The names, of which skops asks whether one is there."""
        return self.files

    def writestr(self, name: str, content: Any) -> None:
        """Adds a file."""
        self.files[name] = bytes(content)


def _described_by_skops(estimator: Any) -> tuple[Any, dict[str, bytes], dict[int, Any]]:
    """The schema that skops makes of an estimator, its files, and the arrays by the numbers that name their files.

    `skops.io.dumps` writes the schema as indented JSON, which takes Python ten times as long as all else that is done here.
    """
    import skops
    import skops.io

    try:
        from skops.io._utils import SaveContext, get_state

        members = _Files()
        context = SaveContext(zip_file=cast(Any, members))
        schema = get_state(estimator, context)
        schema["protocol"], schema["_skops_version"] = context.protocol, skops.__version__
        return schema, members.files, dict(context.memo)
    except (AttributeError, ImportError, TypeError):
        # Another version of skops, inside.
        archive = zipfile.ZipFile(io.BytesIO(skops.io.dumps(estimator)))
        files = {name: archive.read(name) for name in archive.namelist() if name != "schema.json"}
        return json.loads(archive.read("schema.json")), files, {}


def _with_skops(estimator: Any) -> tuple[dict[str, Any], bytes]:
    """The arrays of skops' archive, and its description with names that do not depend on memory addresses."""
    schema, members, known = _described_by_skops(estimator)
    names = _Names()
    arrays: dict[str, Any] = {}
    other: dict[str, str] = {}
    numbers: dict[int, int] = {}

    def stored(member: str) -> Any:
        """The array of a file, or `None` if it is another kind of file."""
        stem, _, kind = member.rpartition(".")
        if kind != "npy":
            return None
        array = known.get(int(stem)) if stem.isdecimal() else None
        if type(array) is numpy.ndarray:
            return array
        return numpy.load(io.BytesIO(members[member]), allow_pickle=False)

    def visit(node: Any) -> None:
        # It is called for each part of each tree.
        if type(node) is dict:
            if node.get("__class__") == "Tree" and str(node.get("__module__")).endswith("_tree"):
                names.begin_tree(_members(node))
            number = node.get("__id__")
            if type(number) is int:
                node["__id__"] = numbers.setdefault(number, len(numbers))
            member = node.get("file")
            if type(member) is str and member in members:
                array = stored(member)
                node["file"] = name = names.next()
                if array is not None and array.dtype.kind in _KINDS and array.flags.c_contiguous:
                    arrays[name] = array
                else:
                    arrays[name] = numpy.frombuffer(members[member], numpy.uint8)
                    other[name] = member.rpartition(".")[2]
            children: Iterable[Any] = node.values()
        else:
            children = node
        for child in children:
            if type(child) in _NODES:
                visit(child)

    visit(schema)
    rest = {"schema": schema, "other": other, "types": {name: array.dtype.str for name, array in arrays.items()}}
    return arrays, json.dumps(rest, separators=(",", ":")).encode()


def _from_skops(arrays: Mapping[str, Any], described: bytes, trusted: bool | Sequence[str]) -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError("the estimator was saved with skops, which is not installed: pip install skops") from error
    try:
        rest = json.loads(described)
        rest = {"schema": dict(rest["schema"]), "other": {str(key): str(kind) for key, kind in rest["other"].items()}}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise DamagedError(f"the description of the estimator does not parse: {error!r}") from None
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in arrays:
            array = numpy.asarray(arrays[name])
            if name in rest["other"]:
                archive.writestr(f"{name}.{rest['other'][name]}", array.tobytes())
            else:
                member = io.BytesIO()
                numpy.save(member, array, allow_pickle=False)
                archive.writestr(name + ".npy", member.getvalue())

        def visit(node: Any) -> None:
            if isinstance(node, dict):
                if node.get("file") in arrays:
                    node["file"] = f"{node['file']}.{rest['other'].get(node['file'], 'npy')}"
                for child in node.values():
                    visit(child)
            elif isinstance(node, list):
                for child in node:
                    visit(child)

        visit(rest["schema"])
        archive.writestr("schema.json", json.dumps(rest["schema"]))
    content = packed.getvalue()
    # What skops does not trust by itself.
    doubtful: list[str] = skops.io.get_untrusted_types(data=content)
    if trusted is not True:
        named = set(trusted or ())
        refused = [one for one in doubtful if one not in named and not is_owned(one)]
        if refused:
            raise NotTrustedError(
                f"the estimator has types that are neither trusted by skops nor of scikit-learn: {', '.join(refused)}. "
                f"If they are yours and do no harm, load with trusted={refused!r}"
            )
    loaded = skops.io.loads(content, trusted=doubtful)
    check_trees(loaded)
    return loaded


class _Names:
    """Names of arrays in the order of visiting. Those of a tree begin with its number."""

    def __init__(self) -> None:
        self._trees, self._others, self._in_tree, self._left = 0, 0, 0, 0

    def begin_tree(self, arrays: int) -> None:
        """The next `arrays` names are those of a tree."""
        self._trees += 1
        self._in_tree, self._left = 0, arrays

    def next(self) -> str:
        if self._left == 0:
            self._others += 1
            return f"estimator.{self._others - 1}"
        self._left -= 1
        self._in_tree += 1
        return f"tree.{self._trees - 1:06}.{self._in_tree - 1}"


def _members(node: Any) -> int:
    """Number of files below a node of skops."""
    if isinstance(node, dict):
        return isinstance(node.get("file"), str) + sum(_members(child) for child in node.values())
    return sum(_members(child) for child in node) if isinstance(node, (list, tuple)) else 0


class _Pickler(pickle.Pickler):
    """Pickles all but arrays."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, protocol=5)
        self.arrays: dict[str, Any] = {}
        self._known: dict[int, tuple[str, Any]] = {}
        self._names = _Names()

    def persistent_id(self, obj: Any) -> Any:
        if type(obj).__name__ == "Tree" and type(obj).__module__ == "sklearn.tree._tree":
            _, arguments, state = obj.__reduce__()
            self._names.begin_tree(sum(type(one) is numpy.ndarray for one in [*arguments, *state.values()]))
            return None
        if type(obj) is not numpy.ndarray or obj.dtype.hasobject or not obj.dtype.isnative:
            return None
        known = self._known.get(id(obj))
        if known is None:
            # The array is held, so that no other one gets its identity.
            known = (self._names.next(), obj)
            self._known[id(obj)] = known
            raw = obj if obj.dtype.kind in _KINDS else numpy.frombuffer(obj.tobytes(order="A"), numpy.uint8)
            is_columns = obj.flags.f_contiguous and not obj.flags.c_contiguous
            self.arrays[known[0]] = raw.T if is_columns and raw is obj else raw
        is_columns = obj.flags.f_contiguous and not obj.flags.c_contiguous
        return (known[0], describe_dtype(obj.dtype), obj.shape, "F" if is_columns else "C", bool(obj.flags.writeable))


def _dtype(described: Any) -> Any:
    """The type of an array. Earlier versions described fields for `numpy.dtype`."""
    is_earlier = isinstance(described, dict) and not {"align", "base"} & set(described)
    return numpy.dtype(cast("Any", described)) if is_earlier else described_dtype(described)


def _with_pickle(estimator: Any) -> tuple[dict[str, Any], bytes]:
    out = io.BytesIO()
    pickler = _Pickler(out)
    pickler.dump(estimator)
    return pickler.arrays, out.getvalue()


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, arrays: Mapping[str, Any]) -> None:
        super().__init__(source)
        self._arrays = arrays
        self._made: dict[str, numpy.ndarray[Any, Any]] = {}

    def persistent_load(self, pid: Any) -> Any:
        name, dtype, shape, order, is_writable = pid
        if name not in self._made:
            raw = numpy.ascontiguousarray(self._arrays[name]).reshape(-1).view(numpy.uint8)
            made = numpy.frombuffer(bytearray(raw), _dtype(dtype)).reshape(shape, order=order)
            made.flags.writeable = is_writable
            self._made[name] = made
        return self._made[name]


