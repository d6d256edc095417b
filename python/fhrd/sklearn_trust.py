# pyright: basic, reportMissingImports=false
# The packages that this adapts have no types, or few.
"""Which types of scikit-learn are built without being named, and whether the trees that were built are trees.

A type is scikit-learn's own if it is a class that one of its modules in Python defines. Of its classes in machine code,
only trees and losses are. Losses are numbers. Trees are checked, because scikit-learn follows their nodes without looking
whether they are in the tree.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy

from fhrd.errors import DamagedError

__all__ = ["check_trees", "is_owned"]

#: Parts of names of modules that are not of estimators.
_OTHER_PARTS = {"conftest", "datasets", "externals", "tests"}
_TREE = ("sklearn.tree._tree", "Tree")
_LOSSES = "sklearn._loss._loss"
#: Attributes of an estimator whose trees see the features that it sees.
_BELOW = ("tree_", "estimators_", "_predictors")


def is_owned(name: str) -> bool:
    """Whether a type is scikit-learn's own, by its full name. Nothing else is imported."""
    module_name, _, type_name = name.rpartition(".")
    parts = module_name.split(".")
    if parts[0] != "sklearn" or _OTHER_PARTS.intersection(parts):
        return False
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return False
    found = getattr(module, type_name, None)
    if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module_name, type_name):
        return False
    is_python = str(getattr(module, "__file__", "")).endswith(".py")
    is_loss = module_name == _LOSSES and type_name.startswith("Cy")
    return is_python or is_loss or (module_name, type_name) == _TREE


def check_trees(estimator: Any) -> None:
    """Looks at every tree below an estimator.

    Raises:
        DamagedError: (an OSError) a node has a child or a feature that is not there.
    """
    #: Values, and the number of features of the estimator above.
    stack: list[tuple[Any, int | None]] = [(estimator, None)]
    seen: dict[tuple[int, int | None], Any] = {}
    while stack:
        value, features = stack.pop()
        if (id(value), features) in seen:
            continue
        # The value is held, so that no other one gets its identity.
        seen[id(value), features] = value
        if isinstance(value, dict):
            stack += [(child, features) for child in value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            stack += [(child, features) for child in value]
        elif isinstance(value, numpy.ndarray):
            stack += [(child, features) for child in value.ravel()] if value.dtype.hasobject else []
        elif (type(value).__module__, type(value).__name__) == _TREE:
            limit = value.n_features if features is None else min(features, value.n_features)
            inner = value.children_left != -1
            _check_nodes(value.children_left, value.children_right, value.feature, inner, limit)
        elif type(value).__name__ == "TreePredictor":
            _check_predictor(value, features)
        elif hasattr(value, "__dict__"):
            own = vars(value).get("n_features_in_")
            own = features if not isinstance(own, int) else own if features is None else min(own, features)
            stack += [(child, own if name in _BELOW else None) for name, child in vars(value).items()]


def _check_predictor(predictor: Any, features: int | None) -> None:
    """A tree of gradient boosting by histograms."""
    nodes = predictor.nodes
    inner = nodes["is_leaf"] == 0
    limit = numpy.iinfo(numpy.int64).max if features is None else features
    _check_nodes(nodes["left"], nodes["right"], nodes["feature_idx"], inner, limit)
    categories = nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)]
    for sets in (predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets):
        if len(categories) and (sets.ndim != 2 or sets.shape[1] != 8 or categories.max() >= len(sets)):
            raise DamagedError("a node of a tree has categories that are not there")


def _check_nodes(left: Any, right: Any, feature: Any, inner: Any, features: int) -> None:
    """Children come after their parents, so that no walk is endless."""
    numbers = numpy.arange(len(left))[inner]
    for children in (left, right):
        own = numpy.asarray(children)[inner].astype(numpy.int64)
        if len(own) and (own.max() >= len(left) or (own <= numbers).any()):
            raise DamagedError("a node of a tree has a child that is not there")
    own = numpy.asarray(feature)[inner].astype(numpy.int64)
    if len(own) and (own.min() < 0 or own.max() >= features):
        raise DamagedError("a node of a tree asks for a feature that is not there")
