# pyright: basic, reportMissingImports=false
# Ray has types, but its decorated functions have none that a checker follows.
"""Backups, checks and copies on a cluster of Ray: many tasks, each with a share of the work.

>>> import pathlib, fhrd, fhrd.ray
>>> fhrd.open("repository", create=True).close()
>>> pathlib.Path("models/first").mkdir(parents=True)
>>> _ = pathlib.Path("models/first/weights.bin").write_bytes(bytes(1000))
>>> result = fhrd.ray.backup("models", "repository", shards=2)
>>> len(result.snapshots), result.errors
(2, [])

Sources and repository can be buckets, as in `backup(["s3://checkpoints/llama"], "s3://backups/cluster", shards=64)`.

A bucket is listed once, by the driver, and split by bytes: families of models stay together, and the largest one goes to
the share with the fewest bytes. Each task runs the command `fhrd` with as many threads as it has CPUs, and stores a
snapshot of its own. A task that dies is repeated. If a node is cut off, a task may run twice at once. The driver ends the
one whose result it does not need. It forgets what that has stored, unless the share could not read a file, or the attempts
could not be counted. A node that stays cut off may store its snapshot after the job has ended. That one is as whole: the
group has the one that began later.

Passwords and credentials come from the environment of the nodes, as `FHRD_PASSWORD_FILE` and `AWS_ACCESS_KEY_ID`. None of
them is in an argument, a task or a log. Paths are those of the nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fhrd.arguments import absolute, choice, whole_number
from fhrd.arguments import location as location_of
from fhrd.errors import ArgumentTypeError

__all__ = ["ShareErrors", "ShareProgress", "ShareTable", "backup", "check", "copy"]

#: Shares for each task that can run at once: with more, one that takes long delays the end less.
_SHARES_OF_TASK = 4
#: The exit code of a backup in which some files could not be read.
_INCOMPLETE = 3
#: Seconds between two looks at the tasks.
_LOOK = 0.5
#: Seconds between two signs of life of a task. One that has given none for three times as long counts as dead.
_SIGN = 1.0
#: Seconds that the driver waits for tasks that are not needed any more.
_LAST_TASKS = 30.0
#: Bytes of messages that a row has, at most.
_ERROR_BYTES = 2000
#: Boards that a job tries to begin.
_BOARDS = 3
#: Seconds until a board that does not answer counts as one that begins slowly. A node refuses at once.
_BOARD_WAIT = 5.0
#: Of `prctl` on Linux.
_PR_SET_PDEATHSIG = 1
#: What is done if a share has failed.
_ON_ERROR = ("raise", "report")
_BUCKETS = ("s3://", "gs://", "az://")


@dataclass
class ShareProgress:
    """What the tasks have done so far."""

    #: Shares that have ended, and all of them.
    shares_done: int
    shares: int
    #: Bytes that the tasks have read or skipped, and all of them, as far as they are known.
    bytes_done: int
    bytes: int


class ShareTable:
    """The results of all shares, a row each."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], group: str | None = None) -> None:
        #: The rows: share, source, snapshot, node, bytes_read, bytes_new, bytes_stored, seconds, attempts, problems, error.
        #: Attempts are 0 if nobody could count them.
        self.rows: list[dict[str, Any]] = [dict(row) for row in rows]
        #: The name of the job, by which `fhrd snapshots --group` finds its snapshots.
        self.group = group
        #: What `fhrd snapshots --group` says after a backup, such as that a file could not be read.
        self.warning: str | None = None

    @property
    def snapshots(self) -> list[str]:
        """The ids of the snapshots, one of each share of a backup."""
        return [row["snapshot"] for row in self.rows if row.get("snapshot")]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The rows of shares that have failed."""
        return [row for row in self.rows if row["error"]]

    def to_pandas(self) -> Any:
        """The rows as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(self.rows)

    def to_arrow(self) -> Any:
        """The rows as a table of Arrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"ShareTable({len(self.rows)} shares, {len(self.errors)} failed, group={self.group!r})"


class ShareErrors(RuntimeError):
    """Some shares have failed. `result` has the table of all."""

    def __init__(self, message: str, result: ShareTable) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class _Share:
    """What one task does."""

    share: str
    source: str
    words: list[str]
    bytes: int
    #: The list of objects, in the object store of Ray.
    objects: Any = None


@dataclass
class _Job:
    """What all tasks of a job have in common."""

    program: list[str] | None
    ray_remote_args: dict[str, Any]
    concurrency: int | None
    progress: Callable[[ShareProgress], None] | None
    timeout: float | None
    shares: list[_Share] = field(default_factory=list)


def backup(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    repository: str | os.PathLike[str],
    *,
    shards: int | None = None,
    group: str | None = None,
    host: str = "ray",
    options: Sequence[str] = (),
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    progress: Callable[[ShareProgress], None] | None = None,
    timeout: float | None = None,
    program: Sequence[str] | None = None,
) -> ShareTable:
    """Backs up buckets or directories that all nodes see, each as `shards` snapshots of one group.

    Args:
        sources: URLs of buckets, or paths.
        repository: Location of the repository, which exists.
        shards: Shares of each source. By default four for each task that can run at once.
        group: Name of the job. By default a new one.
        host: Name of the machine that the snapshots record. It is the same for all, so that rules keep them together.
        options: More options of `fhrd backup`, such as `["--exclude", "*.tmp"]`.
        concurrency: Tasks that run at once, at most.
        ray_remote_args: Options of the tasks, such as `{"num_cpus": 4}`. A task has as many threads as CPUs.
        on_error: `"raise"` raises `ShareErrors` if a share has failed, `"report"` returns all the same.
        progress: Called about twice a second, and at the end.
        timeout: Seconds after which shares that have not ended count as failed.
        program: The command that tasks run, if it is not the one of this package.

    Returns:
        A table with a row for each share.
    """
    choice(on_error, "on_error", _ON_ERROR)
    names = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    group = group or time.strftime("ray-%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(4)
    job = _job(program, ray_remote_args, concurrency, progress, timeout)
    location, count = _location(repository), shards or _default_shards(job)
    # What has this name already, as of a job that is run again, stays.
    earlier = _of_group(job, location, group)
    for name in names:
        source = _location(name)
        words = ["backup", source, "--repo", location, "--host", host, *options]
        with tempfile.TemporaryDirectory(prefix="fhrd-ray-") as directory:
            is_bucket = source.lower().startswith(_BUCKETS)
            lists = ["--write-share-lists", directory] if is_bucket else []
            split = _run(job, [*words, "--shard", f"1/{count}", "--dry-run", *lists])
            for at, tally in enumerate(split["shares"], start=1):
                own = [*words, "--shard", tally["share"], "--group", group]
                objects = ray.put((Path(directory) / str(at)).read_bytes()) if is_bucket else None
                job.shares.append(_Share(tally["share"], source, own, tally["bytes"], objects))
    table = ShareTable(_run_all(job), group)
    try:
        repeated = _repeated(table)
        if earlier is not None and repeated:
            _forget_others(job, location, table, earlier, repeated)
        # The tasks have said so; the repository has to say it, too.
        words = ["snapshots", "--repo", location, "--group", group]
        table.warning = _ended_with(job, words)[1].decode(errors="replace")[-_ERROR_BYTES:] or None
    except RuntimeError as error:
        # The rows are what happened. Nobody knows more.
        table.warning = str(error)
    return _ended(table, on_error)


def check(
    repository: str | os.PathLike[str],
    *,
    shards: int | None = None,
    options: Sequence[str] = (),
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    progress: Callable[[ShareProgress], None] | None = None,
    timeout: float | None = None,
    program: Sequence[str] | None = None,
) -> ShareTable:
    """Reads and verifies all data of a repository, each container in one task. See `backup` for the arguments."""
    choice(on_error, "on_error", _ON_ERROR)
    job = _job(program, ray_remote_args, concurrency, progress, timeout)
    words = ["check", "--read-data", "--repo", _location(repository), *options]
    _split(job, words, shards)
    return _ended(ShareTable(_run_all(job)), on_error)


def copy(
    source: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    *,
    shards: int | None = None,
    options: Sequence[str] = (),
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    progress: Callable[[ShareProgress], None] | None = None,
    timeout: float | None = None,
    program: Sequence[str] | None = None,
) -> ShareTable:
    """Copies the snapshots of the repository `source` into another one. Those of one host with the same paths are copied
    by one task. See `backup` for the arguments."""
    choice(on_error, "on_error", _ON_ERROR)
    job = _job(program, ray_remote_args, concurrency, progress, timeout)
    words = ["copy", "--from-repo", _location(source), "--repo", _location(repository), *options]
    _split(job, words, shards)
    return _ended(ShareTable(_run_all(job)), on_error)


def _job(
    program: Sequence[str] | None,
    ray_remote_args: Mapping[str, Any] | None,
    concurrency: int | None,
    progress: Callable[[ShareProgress], None] | None,
    timeout: float | None,
) -> _Job:
    if isinstance(program, str):
        raise ArgumentTypeError(f"program: expected a list of words, found {program!r}")
    if concurrency is not None:
        whole_number(concurrency, "concurrency", least=1)
    if not ray.is_initialized():
        ray.init()
    arguments = {"num_cpus": 1, "max_retries": 3, "scheduling_strategy": "SPREAD", **(ray_remote_args or {})}
    return _Job(list(program) if program else None, arguments, concurrency, progress, timeout)


def _location(location: str | os.PathLike[str]) -> str:
    text = os.fspath(location)
    return absolute(location_of(text))


def _default_shards(job: _Job) -> int:
    cluster: Any = ray
    cpus = float(cluster.cluster_resources().get("CPU", 1))
    tasks = max(1, int(cpus / max(float(job.ray_remote_args["num_cpus"]), 0.01)))
    return min(4096, _SHARES_OF_TASK * min(tasks, job.concurrency or tasks))


def _split(job: _Job, words: list[str], shards: int | None) -> None:
    count = shards or _default_shards(job)
    split = _run(job, [*words, "--shard", f"1/{count}", "--dry-run"])
    # A check also looks at what is not split, so each share has something to do.
    for tally in split["shares"]:
        job.shares.append(_Share(tally["share"], "", [*words, "--shard", tally["share"]], tally["bytes"]))


def _command(program: list[str] | None) -> list[str]:
    # A package of that name in the working directory must not be taken for this one.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return program or [sys.executable, *safe, "-m", "fhrd"]


def _run(job: _Job, words: list[str]) -> Any:
    """Runs the command in the driver."""
    return json.loads(_ended_with(job, words)[0])


def _ended_with(job: _Job, words: list[str]) -> tuple[bytes, bytes]:
    """Runs the command in the driver. Returns its output and what it said. A group that is not whole is no failure."""
    done = subprocess.run([*_command(job.program), *words, "--json"], capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode not in ((0, _INCOMPLETE) if words[0] == "snapshots" else (0,)):
        message = done.stderr.decode(errors="replace")[-_ERROR_BYTES:]
        raise RuntimeError(f"fhrd {words[0]} ended with {done.returncode}: {message}")
    return done.stdout, done.stderr


class _Board:
    """Where tasks say how far they are, and hear whether they are needed. It is an actor beside the driver."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._signs: dict[tuple[int, int], float] = {}
        self._settled: set[int] = set()
        # A board that has died knows nothing of what was before.
        self._is_first = False
        with contextlib.suppress(Exception):
            self._is_first = ray.get_runtime_context().was_current_actor_reconstructed is False

    def started(self, at: int) -> int:
        """Notes another attempt of a share, and returns how many there are."""
        attempt = self._starts[at] = self._starts.get(at, 0) + 1
        self._signs[at, attempt] = time.monotonic()
        return attempt

    def sign(self, at: int, attempt: int) -> bool:
        """Notes that an attempt is alive. Returns whether the driver has the result of another one."""
        self._signs[at, attempt] = time.monotonic()
        return at in self._settled

    def ended(self, at: int, attempt: int) -> None:
        """Notes that an attempt stores nothing more."""
        self._signs.pop((at, attempt), None)

    def settle(self, at: int) -> None:
        """Notes that the driver has a result, or does not want one any more."""
        self._settled.add(at)

    def starts(self) -> dict[int, int]:
        """How often each share began. Nothing if that is not known."""
        return self._starts if self._is_first else {}

    def alive(self) -> int:
        """How many attempts may still store something."""
        now = time.monotonic()
        return sum(now - sign < 3 * _SIGN for sign in self._signs.values())

    def report(self, at: int, done: int) -> None:
        """Notes the bytes that a task has done."""
        self._done[at] = done

    def read(self) -> dict[int, int]:
        """The bytes of all tasks."""
        return self._done


def _task(at: int, words: list[str], program: list[str] | None, objects: bytes | None, board: Any) -> dict[str, Any]:
    """Runs the command for one share. It returns failures of the command, because Ray repeats what raises."""
    context: Any = ray.get_runtime_context()
    cpus = max(1, int(context.get_assigned_resources().get("CPU", 1)))
    started, attempt = time.monotonic(), 0
    try:
        attempt = ray.get(board.started.remote(at), timeout=10)
    except ray.exceptions.ActorDiedError:
        # The job has ended.
        raise
    except Exception:
        # Nobody counts. The work is what matters.
        pass
    signs = _Signs(board, at, attempt)
    with tempfile.TemporaryDirectory(prefix="fhrd-ray-") as directory:
        command = [*_command(program), *words, "--json", "--progress", "--threads", str(min(cpus, 256))]
        if objects is not None:
            path = Path(directory) / "objects"
            path.write_bytes(objects)
            command += ["--share-list", str(path)]
        try:
            code, report, said = _watched(command, lambda done: board.report.remote(at, done), signs.is_over)
        finally:
            board.ended.remote(at, attempt)
    return {
        "code": code,
        "report": report,
        "said": said,
        "node": context.get_node_id(),
        "seconds": time.monotonic() - started,
        "attempts": attempt,
    }


class _Signs:
    """Says to the board, once a second, that a task is alive. It waits for no answer."""

    def __init__(self, board: Any, at: int, attempt: int) -> None:
        self._board, self._at, self._attempt = board, at, attempt
        self._asked: Any = None
        self._next = 0.0

    def is_over(self) -> bool:
        """Whether nobody needs the result: another attempt of the same share has one, or the job has ended."""
        if self._asked is not None:
            answered, _ = ray.wait([self._asked], timeout=0)
            if not answered:
                return False
            self._asked = None
            try:
                return bool(ray.get(answered[0]))
            except ray.exceptions.ActorDiedError:
                # The job has ended: nobody wants the result.
                return True
            except Exception:
                return False
        if time.monotonic() >= self._next:
            self._asked = self._board.sign.remote(self._at, self._attempt)
            self._next = time.monotonic() + _SIGN
        return False


def _dies_with_parent() -> Callable[[], None] | None:
    """Makes a child end when the worker that started it is killed: another one repeats its work."""
    if sys.platform != "linux":
        return None
    control, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        control(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # It is dead already.
            os._exit(1)

    return bind


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a command: it stores nothing more then."""
    child.terminate()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _watched(
    command: list[str], report: Callable[[int], Any], is_over: Callable[[], bool]
) -> tuple[int, Any, str]:
    """Runs a command, which ends if the task is cancelled, or is over. Returns its exit code, its document and what it
    said."""
    said: list[str] = []
    output: list[bytes] = []

    def listen(child: subprocess.Popen[bytes]) -> None:
        assert child.stderr is not None
        for line in child.stderr:
            try:
                found = json.loads(line)["progress"]
                report(int(found.get("bytes_done", 0)))
            except (ValueError, KeyError, TypeError):
                said.append(line.decode(errors="replace"))
                del said[:-40]

    def take(child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        output.append(child.stdout.read())

    started: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_dies_with_parent(),
        )
        started.append(child)
        threads += [threading.Thread(target=work, args=(child,), daemon=True) for work in (listen, take)]
        for thread in threads:
            thread.start()
        # Ray interrupts this loop, and not a wait without an end.
        while child.poll() is None:
            if is_over():
                _end(child)
            time.sleep(0.1)
    except BaseException:
        for child in started:
            _end(child)
        raise
    for thread in threads:
        thread.join()
    text = b"".join(output)
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return child.returncode, document, "".join(said)[-_ERROR_BYTES:]


def _run_all(job: _Job) -> list[dict[str, Any]]:
    """Runs all shares, those with the most bytes first. Returns their rows in the order of the shares."""
    board = _begin_board()
    task: Any = ray.remote(_task)
    waiting = sorted(range(len(job.shares)), key=lambda at: -job.shares[at].bytes)
    running: dict[Any, int] = {}
    rows: dict[int, dict[str, Any]] = {}
    end = None if job.timeout is None else time.monotonic() + job.timeout
    try:
        while waiting or running:
            while waiting and (job.concurrency is None or len(running) < job.concurrency):
                at = waiting.pop(0)
                share = job.shares[at]
                arguments = {**job.ray_remote_args, "name": f"fhrd {share.words[0]} {share.share}"}
                running[task.options(**arguments).remote(at, share.words, job.program, share.objects, board)] = at
            ended, _ = ray.wait(list(running), timeout=_LOOK)
            for reference in ended:
                at = running.pop(reference)
                rows[at] = _row(job.shares[at], reference)
                # Ray may run it a second time, if it takes the node for dead.
                board.settle.remote(at)
            _tell(job, board, rows)
            if end is not None and time.monotonic() > end:
                rows.update({at: _failed_row(job.shares[at], "it has not ended in time") for at in running.values()})
                rows.update({at: _failed_row(job.shares[at], "it has not begun in time") for at in waiting})
                break
        _tell(job, board, rows)
        _cancel(board, running)
        starts = _starts(board)
    finally:
        _cancel(board, running)
        with contextlib.suppress(Exception):
            ray.kill(board)
    for at, row in rows.items():
        # A task that could not say that it began is not counted, so nobody knows.
        row["attempts"] = starts.get(at, 0) if row["attempts"] else 0
    return [rows[at] for at in range(len(job.shares))]


def _begin_board() -> Any:
    """Starts the board on the node of the driver: the job ends with that one anyway."""
    node = ray.get_runtime_context().get_node_id()
    for attempt in range(_BOARDS):
        # As a mere wish, Ray takes another node now and then. A node that has just come does not know the driver's yet,
        # and may refuse.
        beside = NodeAffinitySchedulingStrategy(node_id=node, soft=attempt + 1 == _BOARDS)
        # It starts again if it dies, and does not if the job ends.
        board: Any = ray.remote(_Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=beside).remote()
        try:
            ray.get(board.read.remote(), timeout=_BOARD_WAIT)
        except ray.exceptions.GetTimeoutError:
            break
        except ray.exceptions.RayError:
            time.sleep(0.5)
        else:
            break
    return board


def _cancel(board: Any, running: dict[Any, int]) -> None:
    """Cancels the tasks of a job that ends early. A task that is cancelled ends its command."""
    while running:
        reference, at = running.popitem()
        with contextlib.suppress(Exception):
            board.settle.remote(at)
            ray.cancel(reference)


def _starts(board: Any) -> dict[int, int]:
    """How often each share began, once all tasks that can be heard have ended. Nothing if the board does not answer."""
    end = time.monotonic() + _LAST_TASKS
    try:
        while ray.get(board.alive.remote(), timeout=10) and time.monotonic() < end:
            time.sleep(0.1)
        found: dict[int, int] = ray.get(board.starts.remote(), timeout=10)
        return found
    except Exception:
        return {}


def _tell(job: _Job, board: Any, rows: dict[int, dict[str, Any]]) -> None:
    if job.progress is None:
        return
    try:
        done = ray.get(board.read.remote(), timeout=5)
    except Exception:
        done = {}
    total = sum(job.shares[at].bytes for at in rows)
    total += sum(min(done.get(at, 0), share.bytes) for at, share in enumerate(job.shares) if at not in rows)
    job.progress(ShareProgress(len(rows), len(job.shares), total, sum(share.bytes for share in job.shares)))


def _row(share: _Share, reference: Any) -> dict[str, Any]:
    try:
        done = ray.get(reference)
    except Exception as error:
        return _failed_row(share, f"{type(error).__name__}: {error}"[:_ERROR_BYTES])
    report = done["report"]
    found = report if isinstance(report, dict) else {}
    copied = found.get("snapshots") if isinstance(found.get("snapshots"), list) else None

    def count(name: str) -> int:
        if copied is not None:
            return sum(int(one.get(name) or 0) for one in copied)
        return int(found.get(name) or 0)

    is_backup = share.words[0] == "backup"
    is_done = report is not None and done["code"] in ((0, _INCOMPLETE) if is_backup else (0,))
    row = _failed_row(share, None if is_done else f"exit code {done['code']}: {done['said']}")
    row.update(
        snapshot=found.get("snapshot") if is_done else None,
        node=done["node"],
        bytes_read=count("bytes_read"),
        bytes_new=count("bytes_new"),
        bytes_stored=0 if share.words[0] == "check" else count("bytes_stored"),
        seconds=done["seconds"],
        attempts=done["attempts"],
        problems=count("defect_count") if share.words[0] == "check" else count("problems"),
    )
    return row


def _failed_row(share: _Share, error: str | None) -> dict[str, Any]:
    return {
        "share": share.share,
        "source": share.source,
        "snapshot": None,
        "node": None,
        "bytes_read": 0,
        "bytes_new": 0,
        "bytes_stored": 0,
        "seconds": 0.0,
        "attempts": 0,
        "problems": 0,
        "error": error,
    }


def _of_group(job: _Job, location: str, group: str) -> set[str] | None:
    """The ids of all snapshots of a job. `None` if they cannot be listed: then nobody may forget one."""
    try:
        found = _run(job, ["snapshots", "--repo", location])
    except RuntimeError:
        # The tasks say what is wrong with the repository, each in its row.
        return None
    return {one["id"] for one in found if one.get("group") == group}


def _repeated(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The shares of which another attempt may have stored a snapshot that nobody needs. If a file could not be read, the
    other attempt may have it, and if nobody counted, nobody knows of another."""
    return {(row["source"], row["share"]) for row in rows if row["attempts"] > 1 and not row["problems"]}


def _forget_others(
    job: _Job, location: str, table: ShareTable, earlier: set[str], repeated: set[tuple[str, str]]
) -> None:
    """Forgets what tasks of this job have stored beside the snapshots that they returned, of shares that began more than
    once."""
    returned = {row["snapshot"] for row in table if row["snapshot"] and (row["source"], row["share"]) in repeated}
    found = _run(job, ["snapshots", "--repo", location])
    shares = {(tuple(one["paths"]), one.get("share")) for one in found if one["id"] in returned}
    others = [
        one["id"]
        for one in found
        if one.get("group") == table.group
        and one["id"] not in {*table.snapshots, *earlier}
        and (tuple(one["paths"]), one.get("share")) in shares
    ]
    if others:
        _run(job, ["forget", "--repo", location, *others])


def _ended(table: ShareTable, on_error: str) -> ShareTable:
    if table.errors and on_error == "raise":
        first = table.errors[0]
        count = f"{len(table.errors)} of {len(table)} shares have failed"
        raise ShareErrors(f"{count}; share {first['share']}: {first['error']}", table)
    return table
