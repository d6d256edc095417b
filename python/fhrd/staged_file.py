# pyright: basic, reportMissingImports=false
"""A file that is written through fsspec: it is staged until it is stored as a snapshot."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from fsspec.transaction import Transaction

if TYPE_CHECKING:
    from fhrd.filesystem import FhrdFileSystem

__all__ = ["StagedFile", "StagedTransaction", "TextFile"]

#: First bytes of a written file that are kept in memory.
_MEMORY_BYTES = 8 << 20


class StagedFile(io.RawIOBase):
    """A file that is being written. Its bytes are staged until `commit`."""

    def __init__(
        self, fs: FhrdFileSystem, path: str, autocommit: bool, directory: str | os.PathLike[str] | None
    ) -> None:
        super().__init__()
        self.fs, self.path, self.autocommit, self.mode = fs, path, autocommit, "wb"
        self._directory = directory
        self._bytes: BinaryIO = io.BytesIO()
        self._file: Path | None = None
        self.is_discarded = False
        self._process = os.getpid()

    @property
    def name(self) -> str:
        return self.path

    def writable(self) -> bool:
        return not self.closed

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return not self.closed

    def write(self, data: Any) -> int:
        self._check_open()
        view = memoryview(data)
        view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        try:
            if self._file is None and self._bytes.tell() + view.nbytes > _MEMORY_BYTES:
                self._spill()
            return self._bytes.write(view)
        except BaseException:
            # Who closes it nevertheless must not store what is there.
            self.is_discarded = True
            raise

    def _spill(self) -> None:
        """Moves the bytes to a temporary file."""
        number, name = tempfile.mkstemp(prefix="fhrd-", dir=self._directory)
        position = self._bytes.tell()
        file = os.fdopen(number, "w+b")
        self._bytes.seek(0)
        shutil.copyfileobj(self._bytes, file, 4 << 20)
        file.seek(position)
        self._bytes, self._file = file, Path(name)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check_open()
        self._bytes.seek(offset, whence)
        return self._bytes.tell()

    def tell(self) -> int:
        self._check_open()
        return self._bytes.tell()

    def truncate(self, size: int | None = None) -> int:
        self._check_open()
        size = self.tell() if size is None else size
        position, length = self.tell(), self._bytes.seek(0, io.SEEK_END)
        self._bytes.seek(position)
        if self._file is None and size > max(length, _MEMORY_BYTES):
            self._spill()
        if self._file is None and size > length:
            # Memory does not grow by itself.
            self._bytes.seek(length)
            self._bytes.write(bytes(size - length))
            self._bytes.seek(position)
        self._bytes.truncate(size)
        return size

    def flush(self) -> None:
        """Does nothing: what is written becomes durable at close."""

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")

    def content(self) -> bytes | Path:
        """The bytes, or the path of the temporary file that holds them."""
        if self._file is not None:
            self._bytes.flush()
            return self._file
        self._bytes.seek(0)
        return self._bytes.read()

    def _delete(self) -> None:
        self._bytes.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._process != os.getpid():
            # It is of the process that this one was forked from. What that has not written yet is not for this one to write.
            getattr(self._bytes, "raw", self._bytes).close()
        elif self.is_discarded:
            self._delete()
        elif self.autocommit:
            self.commit()
        # Else the transaction commits or discards it.

    def commit(self) -> None:
        """Stores the file. It is durable on return."""
        try:
            self.fs._commit([self])
        finally:
            self._delete()

    def discard(self) -> None:
        """Forgets what was written."""
        self.is_discarded = True
        self._delete()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.is_discarded = self.is_discarded or kind is not None
        self.close()

    def __del__(self) -> None:
        # A file that nobody closed is not stored.
        self.is_discarded = True
        super().__del__()


class CompressedFile(io.BufferedIOBase):
    """A staged file that is written through a compressor. Closing ends both."""

    def __init__(self, staged: StagedFile, compressor: Any) -> None:
        super().__init__()
        self._staged, self._compressor = staged, compressor

    def writable(self) -> bool:
        return not self.closed

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._compressor.write(view)
        return view.nbytes

    def flush(self) -> None:
        """Does nothing: what is written becomes durable at close."""

    def discard(self) -> None:
        """Nothing is stored at close."""
        self._staged.is_discarded = True

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._compressor.close()
        except BaseException:
            self.discard()
            raise
        finally:
            self._staged.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # A file that nobody closed is not stored.
        if not self.closed:
            self.discard()
        super().__del__()


class TextFile(io.TextIOWrapper):
    """A file that is written as text. Nothing is stored if an exception leaves its block."""

    def _discard(self) -> None:
        file = cast("StagedFile | CompressedFile", self.buffer)
        if isinstance(file, StagedFile):
            file.is_discarded = True
        else:
            file.discard()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._discard()
        super().__exit__(kind, error, trace)

    def __del__(self) -> None:
        # A file that nobody closed is not stored.
        if not self.closed:
            self._discard()
        super().__del__()


class StagedTransaction(Transaction):  # type: ignore[misc, unused-ignore]
    """Stores all files of a transaction at its end."""

    fs: Any

    def complete(self, commit: bool = True) -> None:
        fs = self.fs
        files: list[Any] = list(self.files)
        self.files.clear()
        try:
            for file in files if commit else ():
                if not file.closed:
                    warnings.warn(f"{file.path}: the file is not closed, so it is not stored", RuntimeWarning, stacklevel=3)
                    file.is_discarded = True
            if commit and files:
                fs._commit(files)
            moved = set(fs._moved) - {file.path for file in files if not file.is_discarded}
            if commit and moved:
                fs._remove(moved)
        finally:
            fs._moved = []
            for file in files:
                file.discard()
            fs._intrans = False
            fs._transaction = None
