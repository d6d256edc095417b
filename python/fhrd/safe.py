"""Files of checkpoints with the interface of `safetensors.safe_open`.

>>> import fhrd, numpy
>>> repo = fhrd.open("checkpoints", create=True)
>>> saved = repo.save({"weight": numpy.arange(6).reshape(3, 2)}, run="tune", step=300)
>>> with fhrd.safe_open(repo, run="tune", framework="np") as file:
...     file.get_slice("weight")[1:2]
array([[2, 3]])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from . import arguments
from .checkpoint import LoadedArrays
from .runs import Store, check_store


class SafeSlice:
    """An array of which parts are read. `SafeFile.get_slice` returns it."""

    def __init__(self, arrays: LoadedArrays, name: str) -> None:
        self._arrays = arrays
        self._name = name

    def get_shape(self) -> list[int]:
        """The shape."""
        return list(self._arrays.info(self._name).shape)

    def get_dtype(self) -> str:
        """The type, as safetensors calls it."""
        return self._arrays.info(self._name).dtype

    def __getitem__(self, index: Any) -> Any:
        whole: Any = index
        parts: list[Any] = [*whole] if isinstance(index, tuple) else [whole]
        first: Any = parts[0] if parts else None
        part = cast("slice[Any, Any, Any]", first) if isinstance(first, slice) else None  # type: ignore[redundant-cast, unused-ignore]
        if part is not None and part.step in (None, 1):
            rows = self._arrays.rows(self._name, part.start or 0, part.stop)
            return rows[(slice(None), *parts[1:])] if parts[1:] else rows
        return self._arrays[self._name][index]


class SafeFile:
    """A stored safetensors file. `fhrd.safe_open` returns it. It is a context manager."""

    def __init__(self, arrays: LoadedArrays) -> None:
        self._arrays = arrays

    def __enter__(self) -> SafeFile:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is to be closed: the repository stays open."""

    def keys(self) -> Iterable[str]:
        """The names of the arrays, in their order."""
        return sorted(self._arrays)

    def offset_keys(self) -> list[str]:
        """The names of the arrays in the order of their bytes."""
        return sorted(self._arrays, key=lambda name: self._arrays.info(name).offset)

    def metadata(self) -> dict[str, str]:
        """Texts of the header of the file."""
        return dict(self._arrays.metadata)

    def get_tensor(self, name: str) -> Any:
        """Reads an array.

        Raises:
            KeyError: if there is none of this name.
        """
        return self._arrays[name]

    def get_tensors(self) -> dict[str, Any]:
        """Reads all arrays, on all processors."""
        return self._arrays.read_all()

    def get_slice(self, name: str) -> SafeSlice:
        """An array of which parts are read: `file.get_slice("weight")[10:20]` reads ten rows.

        Raises:
            KeyError: if there is none of this name.
        """
        self._arrays.info(name)
        return SafeSlice(self._arrays, name)

    def __repr__(self) -> str:
        return f"<SafeFile {self._arrays!r}>"


def safe_open(
    repo: Store,
    name: str = "model.safetensors",
    *,
    framework: str = "numpy",
    device: Any = None,
    run: str | None = None,
    step: int | str | None = None,
    snapshot: str | None = None,
) -> SafeFile:
    """Opens a stored safetensors file as `safetensors.safe_open` opens one on disk.

    Args:
        repo: a repository, or a run of one.
        name: path of the file in the snapshot.
        framework: `"numpy"` or `"torch"`; also `"np"` and `"pt"`.
        device: device for torch tensors. `"cpu"` is also of NumPy arrays.
        run: name of the run.
        step: as of `Repository.load`.
        snapshot: id of a snapshot, instead of `run` and `step`.

    Raises:
        ArgumentError: (a ValueError, and for wrong types a TypeError) if an argument is impossible.
        NotFoundError: (a LookupError) if there is no such run, step, snapshot or file.
    """
    check_store(repo, "fhrd.safe_open")
    chosen = arguments.framework(framework)
    arrays = repo.load(
        run=run,
        step=step,
        snapshot=snapshot,
        name=name,
        framework=chosen,
        device=None if chosen == "numpy" and device == "cpu" else device,
    )
    return SafeFile(arrays)
