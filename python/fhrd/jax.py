# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""Pytrees of JAX and Flax: nested dictionaries, lists and tuples of arrays, on the CPU.

>>> import fhrd.jax, numpy
>>> repo, params = fhrd.open("checkpoints", create=True), {"dense": {"kernel": numpy.ones((2, 3))}}
>>> saved = fhrd.jax.save(repo, params, run="tune", step=300)
>>> fhrd.jax.load(repo, params, run="tune")["dense"]["kernel"].shape  # into the shape of what is there
(2, 3)

Arrays are stored under their paths in the tree, such as `params/Dense_0/kernel`. With a template, `load` returns a tree
of its kind, with arrays of JAX where it has some. Without one, it returns nested dictionaries of NumPy arrays, and needs
no JAX.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from fhrd.errors import ArgumentError, ArgumentTypeError, NotFoundError
from fhrd.runs import check_order, check_store

if TYPE_CHECKING:
    from fhrd import Keep, SavedCheckpoint, SaveHandle
    from fhrd.arguments import Files, IfExists, Progress
    from fhrd.runs import Store

__all__ = ["load", "save", "save_async"]

#: Deepest nesting.
_DEPTH_MAX = 200


def save(
    repo: Store,
    tree: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    files: Files = (),
    metadata: Mapping[str, str] | None = None,
    name: str = "model.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
) -> SavedCheckpoint:
    """Saves the arrays of a pytree. It is durable on return.

    Args:
        repo: a repository, or a run of one.
        tree: nested dictionaries, lists and tuples of arrays and numbers; with JAX, any pytree.

    The other arguments are those of `fhrd.Repository.save`.

    Raises:
        ArgumentTypeError: (a TypeError) if a leaf is no array and no number.
        ArgumentError: (a ValueError) if two leaves have one path.
    """
    check_order(repo, tree, "fhrd.jax.save")
    return repo.save(
        flatten(tree),
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=files,
        metadata=metadata or {},
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def save_async(
    repo: Store,
    tree: Any,
    *,
    run: str | None = None,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    tags: Sequence[str] = (),
    files: Files = (),
    metadata: Mapping[str, str] | None = None,
    name: str = "model.safetensors",
    keep: Keep | None = None,
    if_exists: IfExists | None = None,
    progress: Progress | None = None,
) -> SaveHandle:
    """As `save`, but returns when the arrays are copied. See `fhrd.Repository.save_async`."""
    check_order(repo, tree, "fhrd.jax.save_async")
    return repo.save_async(
        flatten(tree),
        run=run,
        step=step,
        metrics=metrics or {},
        tags=tags,
        files=files,
        metadata=metadata or {},
        name=name,
        keep=keep,
        if_exists=if_exists,
        progress=progress,
    )


def load(
    repo: Store,
    template: Any = None,
    *,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
    name: str = "model.safetensors",
) -> Any:
    """Loads a pytree.

    Args:
        repo: a repository, or a run of one.
        template: a tree of the same kind. Its leaves may be arrays, or shapes such as `jax.ShapeDtypeStruct`. By default
            nested dictionaries of NumPy arrays are returned; lists and tuples are dictionaries with numbers for keys
            then.
        run: name of the run.
        step: number of the step, `"latest"` (the default), or `"best:METRIC:min"` or `"best:METRIC:max"`.
        snapshot: id of a snapshot, instead of `run` and `step`.
        name: path of the file in the snapshot.

    Raises:
        NotFoundError: (a LookupError) if there is no such checkpoint, or it lacks an array of the template.
        ArgumentError: (a ValueError) if an array has another shape or type than in the template, or the template lacks
            one; without a template, if the names of arrays make no nested dictionaries.
    """
    check_store(repo, "fhrd.jax.load")
    stored = repo.load(run=run, step=step, snapshot=snapshot, name=name)
    if template is None:
        return _nested(stored.read_all())
    leaves = dict(_leaves(template, ""))
    missing = [path for path in leaves if path not in stored]
    if missing:
        raise NotFoundError(f"the checkpoint has no array `{missing[0]}`, which the template has")
    more = [path for path in stored if path not in leaves]
    if more:
        raise ArgumentError(f"the template has no leaf `{more[0]}`, which the checkpoint has")
    arrays = stored.read_all()
    loaded = {path: _like(path, arrays[path], leaf) for path, leaf in leaves.items()}
    return _rebuilt(template, "", loaded)


def flatten(tree: Any) -> dict[str, Any]:
    """The arrays of a pytree by their paths."""
    found: dict[str, Any] = {}
    for path, leaf in _leaves(tree, ""):
        if path in found:
            raise ArgumentError(f"two leaves have the path `{path}`")
        if isinstance(leaf, (str, bytes)) or not (hasattr(leaf, "shape") or isinstance(leaf, (bool, int, float, complex))):
            raise ArgumentTypeError(f"`{path}`: expected an array or a number, found {type(leaf).__qualname__}")
        found[path] = leaf if hasattr(leaf, "shape") else numpy.asarray(leaf)
    return found


def _tree_util(tree: Any) -> Any:
    """`jax.tree_util`, if the tree has a node of a type that only JAX knows. Else `None`."""
    import sys

    known: Any = sys.modules.get("jax")
    if known is None or type(tree) in (dict, list, tuple) or tree is None:
        return None
    util: Any = importlib.import_module("jax.tree_util")
    return None if util.all_leaves([tree]) else util


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """The named children of a node. `None` for a leaf."""
    if tree is None:
        return []
    if isinstance(tree, Mapping):
        named: Mapping[Any, Any] = tree
        for key in named:
            if not isinstance(key, (str, int)) or "/" in str(key):
                raise ArgumentError(f"keys of a tree are texts without `/`, or numbers: found {key!r}")
        if _tree_util(tree) is None:
            return [(str(key), named[key]) for key in named]
    elif isinstance(tree, (list, tuple)):
        items: Sequence[Any] = tree
        names: Sequence[str] = getattr(items, "_fields", None) or [str(at) for at in range(len(items))]
        return list(zip(names, items, strict=True))
    util = _tree_util(tree)
    if util is None:
        return None
    # JAX has the children of some mappings in another order.
    # One level of a node that is registered with JAX, such as a dataclass of Flax.
    pairs = util.tree_flatten_with_path(tree, is_leaf=lambda one: one is not tree)[0]
    if isinstance(tree, Mapping) and any(isinstance(path[0], util.FlattenedIndexKey) for path, _ in pairs):
        # It was registered without the names of its children.
        left: list[tuple[str, Any]] = [(str(key), child) for key, child in tree.items()]
        return [(left.pop(next(at for at, one in enumerate(left) if one[1] is child))[0], child) for _, child in pairs]
    return [("/".join(_key_text(util, key) for key in path), child) for path, child in pairs]


def _key_text(util: Any, key: Any) -> str:
    """A key of JAX as text: the key of a mapping, the index in a sequence or the name of a field."""
    # Older versions of JAX write them for people only, as `['w']`.
    if isinstance(key, (util.DictKey, util.FlattenedIndexKey)):
        return str(key.key)
    if isinstance(key, util.SequenceKey):
        return str(key.idx)
    return str(key.name if isinstance(key, util.GetAttrKey) else key)


def _leaves(tree: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > _DEPTH_MAX:
        raise ArgumentError(f"expected a tree of at most {_DEPTH_MAX} levels: does it contain itself?")
    children = _children(tree)
    if children is None:
        yield path or "value", tree
        return
    for key, child in children:
        yield from _leaves(child, f"{path}/{key}" if path else key, depth + 1)


def _rebuilt(template: Any, path: str, loaded: Mapping[str, Any]) -> Any:
    """A tree like the template with other leaves."""
    children = _children(template)
    if children is None:
        return loaded[path or "value"]
    made = [_rebuilt(child, f"{path}/{key}" if path else key, loaded) for key, child in children]
    if template is None:
        return None
    if type(template) in (dict, list, tuple):
        return dict(zip(template, made, strict=True)) if isinstance(template, dict) else type(template)(made)
    if isinstance(template, tuple):
        # A named tuple.
        return type(template)(*made)
    util = _tree_util(template)
    if util is None:
        made_kind: Any = type(template)
        return made_kind(zip(template, made, strict=True)) if isinstance(template, Mapping) else made_kind(made)
    structure = util.tree_structure(template, is_leaf=lambda one: one is not template)
    return util.tree_unflatten(structure, made)


#: The kinds of dtypes that become numbers of Python. `V` are types that NumPy does not know, such as BF16.
_SCALAR_KINDS: dict[type[Any], str] = {bool: "b", int: "iu", float: "fViu", complex: "c"}


def _like(path: str, array: Any, leaf: Any) -> Any:
    """A loaded array as the template has it."""
    if not hasattr(leaf, "shape"):
        if tuple(array.shape) or array.dtype.kind not in _SCALAR_KINDS.get(type(leaf), array.dtype.kind):
            raise ArgumentError(
                f"`{path}`: the template has a number of type {type(leaf).__qualname__}, the checkpoint {array.dtype} of "
                f"{list(array.shape)}"
            )
        return type(leaf)(array[()])
    if tuple(array.shape) != tuple(leaf.shape) or str(array.dtype) != str(leaf.dtype):
        raise ArgumentError(
            f"`{path}`: the template has {leaf.dtype} of {list(leaf.shape)}, the checkpoint {array.dtype} of "
            f"{list(array.shape)}"
        )
    if type(leaf).__module__.partition(".")[0] in ("jax", "jaxlib"):
        made = importlib.import_module("jax.numpy").asarray(array)
        if str(made.dtype) != str(array.dtype):
            raise ArgumentError(
                f"`{path}`: JAX makes {made.dtype} of {array.dtype}, unless `jax_enable_x64` is on: load into NumPy arrays"
            )
        return made
    return array


def _nested(arrays: Mapping[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in arrays:
        *above, last = path.split("/")
        node = root
        for key in above:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or last in node:
            raise ArgumentError(f"`{path}`: arrays have names that are also those of dictionaries: `repo.load` has them by name")
        node[last] = arrays[path]
    return root
