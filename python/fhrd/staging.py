"""Asynchronous saves: one writer thread for each repository, and handles for what it writes."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import arguments
from .errors import ClosedError, FhrdError, NotDoneError

if TYPE_CHECKING:
    from .reports import SavedCheckpoint


class SaveHandle:
    """An asynchronous save.

    It is done when the snapshot is durable and reported, or when the save has failed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._result: SavedCheckpoint | None = None
        self._error: BaseException | None = None
        self._is_seen = False
        self._callbacks: list[Callable[[SaveHandle], Any]] = []

    def __repr__(self) -> str:
        state = "not done" if not self.done() else "failed" if self._error is not None else "done"
        return f"<SaveHandle {self._name}, {state}>"

    def done(self) -> bool:
        """Whether the save is complete or has failed."""
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> SavedCheckpoint:
        """Waits for the save and returns what it stored.

        Args:
            timeout: seconds, `None` for any time.

        Raises:
            NotDoneError: (a TimeoutError) if the save is not done in time. It goes on.
            FhrdError: the error of the save.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the save and returns its error, or `None`. A handle that was asked is not raised at `close`.

        Raises:
            NotDoneError: (a TimeoutError) if the save is not done in time. It goes on.
        """
        if self._process != os.getpid() and not self.done():
            raise FhrdError(f"the save of {self._name} goes on in the process that this one was forked from")
        if not self._done.wait(arguments.wait(timeout, "timeout")):
            raise NotDoneError(f"the save of {self._name} is not done after {timeout} seconds")
        self._is_seen = True
        return self._error

    def add_done_callback(self, function: Callable[[SaveHandle], Any]) -> None:
        """Calls `function` with this handle once it is done, on the writer thread; at once if it is done already.

        Saves wait for `function`, so it must not wait for one: it calls neither `save_async` nor `flush` nor `close`.
        """
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(function)
                return
        self._call(function)

    def _call(self, function: Callable[[SaveHandle], Any]) -> None:
        try:
            function(self)
        except BaseException as error:
            # Also what ends a thread: later saves need this one.
            print(f"fhrd: a callback of the save of {self._name} raised {error!r}", file=sys.stderr)

    def _finish(self, result: SavedCheckpoint | None, error: BaseException | None) -> None:
        with self._lock:
            self._result, self._error = result, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for function in callbacks:
            self._call(function)

    @property
    def _is_unseen(self) -> bool:
        return not self._is_seen

    @property
    def _unseen_error(self) -> BaseException | None:
        return self._error if self._done.is_set() and not self._is_seen else None


def _forget_frames(error: BaseException) -> None:
    """Frees what the frames of an error hold, such as copies of arrays: the error may stay for long."""
    chain: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is not None and all(one is not known for known in chain):
            chain.append(one)
            traceback.clear_frames(one.__traceback__)
            rest += [one.__cause__, one.__context__]


@dataclass
class _Job:
    handle: SaveHandle
    nbytes: int
    work: Callable[[], SavedCheckpoint]


class Writer:
    """Runs saves one after another on one thread. The bytes that wait are bounded."""

    def __init__(self, staged_bytes_max: int) -> None:
        self._staged_bytes_max = staged_bytes_max
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._staged_bytes = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._failed: list[SaveHandle] = []
        self._process = os.getpid()
        _writers.add(self)
        _watch_exit()

    def reserve(self, nbytes: int) -> None:
        """Waits until `nbytes` may be staged. One save may always be, however large it is."""
        with self._changed:
            while self._staged_bytes and self._staged_bytes + nbytes > self._staged_bytes_max:
                self._check_open()
                self._changed.wait()
            self._check_open()
            self._staged_bytes += nbytes

    def release(self, nbytes: int) -> None:
        """Gives back what `reserve` reserved."""
        with self._changed:
            self._staged_bytes -= nbytes
            self._changed.notify_all()

    def submit(self, handle: SaveHandle, nbytes: int, work: Callable[[], SavedCheckpoint]) -> None:
        """Runs `work` after everything before it, and then gives back the reserved bytes."""
        with self._changed:
            self._check_open()
            if self._thread is None:
                # Not joined by the interpreter before the exit handler below has waited.
                thread = threading.Thread(target=self._run, name="fhrd writer", daemon=True)
                thread.start()
                self._thread = thread
            self._jobs.append(_Job(handle, nbytes, work))
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the repository is closed")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if self._is_closed:
                        return
                    self._changed.wait()
                job = self._jobs[0]
            result: SavedCheckpoint | None = None
            failure: BaseException | None = None
            try:
                result = job.work()
            except BaseException as error:
                failure = error
            handle, nbytes = job.handle, job.nbytes
            # Frees the staged bytes before anybody hears that the save is done.
            del job
            if failure is not None:
                _forget_frames(failure)
                with self._changed:
                    self._failed = [one for one in self._failed if one._is_unseen]  # pyright: ignore[reportPrivateUsage]
                    self._failed.append(handle)
            handle._finish(result, failure)  # pyright: ignore[reportPrivateUsage]
            del handle, result, failure
            # Only now: who waits for an end of all saves looks at the errors next.
            with self._changed:
                self._jobs.popleft()
            self.release(nbytes)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all saves are done, and raises the first error that nobody looked at."""
        if threading.current_thread() is self._thread:
            raise FhrdError("a callback of a save waits for all saves, of which it is part")
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._jobs or self._staged_bytes:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise NotDoneError(f"{len(self._jobs)} saves are not done after {timeout} seconds")
                self._changed.wait(left)
            failed, self._failed = self._failed, []
        errors = [error for handle in failed if (error := handle._unseen_error) is not None]  # pyright: ignore
        if errors:
            if len(errors) > 1:
                errors[0].args = (f"{errors[0]} (and {len(errors) - 1} more saves failed)",)
            raise errors[0]

    def close(self) -> None:
        """As `flush`, and ends the thread."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._is_closed = True
                thread, self._thread = self._thread, None
                self._changed.notify_all()
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    @property
    def is_of_this_process(self) -> bool:
        return self._process == os.getpid()


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


#: The process of `multiprocessing` whose end is watched.
_watched: int | None = None


def _watch_exit() -> None:
    """Lets a process that `multiprocessing` forked wait for its saves: it calls no exit handlers of the interpreter."""
    global _watched
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched == os.getpid():
        return
    from multiprocessing.util import Finalize

    _watched = os.getpid()
    Finalize(None, _close_all, exitpriority=0)


@atexit.register
def _close_all() -> None:
    """Waits for the saves of repositories that nobody closed. Their errors are printed: it is too late to raise."""
    for writer in list(_writers):
        if not writer.is_of_this_process:
            continue
        try:
            writer.close()
        except BaseException as error:
            print(f"fhrd: an asynchronous save failed: {error}", file=sys.stderr)
