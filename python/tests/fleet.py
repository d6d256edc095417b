"""Backups on a cluster of Ray, from and to buckets, with workers and nodes that die. `.ci/run --all fleet` runs this.

Ray and moto have to be there. FHRD_TEST_PROGRAM is the program that tasks run, if it is not the command of the package.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy
import pytest
import ray
from ray.cluster_utils import Cluster

import fhrd.ray

PROGRAM = [os.environ["FHRD_TEST_PROGRAM"]] if "FHRD_TEST_PROGRAM" in os.environ else None
COMMAND = PROGRAM or [sys.executable, "-P", "-m", "fhrd"]
PASSWORD = "a secret that nobody may see"
SHARDS = 16
FAMILIES = 12
#: Directories of each family: a base and what descends from it.
MEMBERS = 5
#: Values of a file, and of one of the large family, which has four of them in each directory.
VALUES = 100_000
LARGE_VALUES = 412_000
FILES_OF_LARGE = 4


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def safetensors(values: Any) -> bytes:
    """A file with one BF16 tensor."""
    bits = (values.astype(numpy.float32).view(numpy.uint32) >> 16).astype("<u2").tobytes()
    header = {"weight": {"dtype": "BF16", "shape": [len(values) // 100, 100], "data_offsets": [0, len(bits)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bits


def models() -> dict[str, bytes]:
    """60 directories of models in 12 families, of which the first has about 60 % of the bytes."""
    files: dict[str, bytes] = {}
    for family in range(FAMILIES):
        generator = numpy.random.default_rng(family)
        names = ["model.safetensors"]
        if family == 0:
            names = [f"model-{at:05}-of-{FILES_OF_LARGE:05}.safetensors" for at in range(1, FILES_OF_LARGE + 1)]
        bases = [generator.normal(0, 0.03, LARGE_VALUES if family == 0 else VALUES) for _ in names]
        for member in range(MEMBERS):
            # The base is the last by name, so its place in the order of names does not help.
            directory = f"org/z-base-{family}" if member == 0 else f"org/tune-{family}-{member}"
            for name, base in zip(names, bases):
                values = base if member == 0 else base + generator.normal(0, 0.0002, len(base))
                files[f"{directory}/{name}"] = safetensors(values)
            if member > 0:
                files[f"{directory}/README.md"] = f"---\nbase_model: org/z-base-{family}\n---\n".encode()
    total = sum(map(len, files.values()))
    large = sum(len(content) for name, content in files.items() if "-0/" in name or "-0-" in name)
    assert 0.55 < large / total < 0.65 and len({os.path.dirname(name) for name in files}) == 60
    return files


FILES = models()


class Fleet:
    """A server of buckets, and the environment of all commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port = free_port()
        moto = Path(sys.executable).with_name("moto_server")
        self.server = subprocess.Popen([moto, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.endpoint = f"http://127.0.0.1:{port}"
        os.environ.update(
            AWS_ACCESS_KEY_ID="an id",
            AWS_SECRET_ACCESS_KEY="a key that nobody may see",
            AWS_REGION="us-east-1",
            FHRD_ENDPOINT=self.endpoint,
            FHRD_SOURCE_ENDPOINT=self.endpoint,
            FHRD_FROM_ENDPOINT=self.endpoint,
            FHRD_PASSWORD=PASSWORD,
            FHRD_FROM_PASSWORD=PASSWORD,
            HOME=str(directory),
            XDG_CACHE_HOME=str(directory / "cache"),
            RAY_AUTH_MODE="disabled",
            RAY_USAGE_STATS_ENABLED="0",
        )
        os.environ.pop("AWS_PROFILE", None)
        self.s3 = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")
        for _ in range(100):
            try:
                self.s3.create_bucket(Bucket="source")
                break
            except Exception:
                time.sleep(0.2)
        self.s3.create_bucket(Bucket="repository")
        for name, content in FILES.items():
            self.s3.put_object(Bucket="source", Key=f"data/{name}", Body=content)

    def run(self, *words: str, code: int = 0) -> Any:
        done = subprocess.run([*COMMAND, *words, "--json"], capture_output=True)
        assert done.returncode == code, done.stderr.decode()
        return json.loads(done.stdout)

    def init(self, name: str) -> str:
        location = f"s3://repository/{name}"
        self.run("init", "--repo", location)
        return location

    def stored(self, name: str) -> int:
        """Bytes of the containers of a repository."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="repository", Prefix=f"{name}/containers/")
        return sum(found["Size"] for page in pages for found in page.get("Contents", []))

    def check_restored(self, location: str, group: str) -> None:
        """Restores a group and compares every byte."""
        target = Path(tempfile.mkdtemp(dir=self.directory))
        for snapshot in self.run("snapshots", "--repo", location, "--group", group):
            self.run("restore", snapshot["id"], "--repo", location, "--target", str(target))
        found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert found.keys() == FILES.keys()
        assert found == FILES
        shutil.rmtree(target)


@pytest.fixture(autouse=True)
def _homes() -> None:
    """All tests share one environment, which the nodes get, too."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.server.kill()
    fleet.server.wait()


@pytest.fixture
def cluster(fleet: Fleet) -> Iterator[Cluster]:
    # The paths of sockets must be short.
    directory = tempfile.mkdtemp(prefix="r", dir="/tmp")
    os.environ["RAY_TMPDIR"] = directory
    arguments = {"include_dashboard": False, "object_store_memory": 80 << 20, "num_cpus": 1}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    logs = [path for path in Path(directory).rglob("*") if path.is_file()]
    for secret in (PASSWORD, os.environ["AWS_SECRET_ACCESS_KEY"]):
        # The environment of the nodes is their own.
        assert not [path for path in logs if secret.encode() in path.read_bytes()], "a secret is in a log"
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def one(fleet: Fleet) -> int:
    """Bytes that one process stores."""
    location = fleet.init("one")
    fleet.run("backup", "s3://source/data", "--repo", location)
    return fleet.stored("one")


def show(title: str, result: fhrd.ray.ShareTable) -> None:
    print(f"\n{title}: share, seconds, attempts, bytes stored")
    for row in result:
        print(f"  {row['share']:>6} {row['seconds']:6.1f} {row['attempts']} {row['bytes_stored']:>10}")


def busy_workers() -> list[int]:
    """Workers of Ray whose command for a share runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"--share-list" in path.read_bytes():
                fields = path.with_name("stat").read_text().rsplit(")", 1)[1].split()
                found.append(int(fields[1]))
        except OSError:
            pass
    return found


def test_a_job_stores_as_much_as_one_process_and_an_unchanged_one_nothing(
    fleet: Fleet, cluster: Cluster, one: int
) -> None:
    location = fleet.init("ray")
    seen: list[fhrd.ray.ShareProgress] = []
    started = time.monotonic()
    result = fhrd.ray.backup(
        "s3://source/data", location, shards=SHARDS, group="first", progress=seen.append, program=PROGRAM
    )
    print(f"\n{time.monotonic() - started:.1f} s")
    show("first job", result)
    assert len(result.snapshots) == SHARDS and not result.errors
    assert len({row["node"] for row in result}) > 1
    assert seen[-1].shares_done == SHARDS and seen[-1].bytes_done == seen[-1].bytes > 0
    stored = fleet.stored("ray")
    print(f"stored {stored}, by one process {one}: {stored / one:.4f}")
    assert stored <= 1.03 * one
    fleet.check_restored(location, "first")
    again = fhrd.ray.backup("s3://source/data", location, shards=SHARDS, group="second", program=PROGRAM)
    assert sum(row["bytes_read"] for row in again) == 0
    fleet.check_restored(location, "second")
    checked = fhrd.ray.check(location, shards=4, program=PROGRAM)
    assert sum(row["problems"] for row in checked) == 0 and sum(row["bytes_read"] for row in checked) >= stored * 0.9
    copy = fleet.init("copy")
    copied = fhrd.ray.copy(location, copy, shards=4, program=PROGRAM)
    assert not copied.errors
    fleet.check_restored(copy, "first")


def test_workers_raylets_and_nodes_die_and_nothing_is_lost(fleet: Fleet, cluster: Cluster, one: int) -> None:
    location = fleet.init("killed")
    events: list[str] = []
    started = time.monotonic()
    own = ray.get_runtime_context().get_node_id()

    def kill() -> None:
        while not busy_workers():
            time.sleep(0.01)
        os.kill(busy_workers()[0], signal.SIGKILL)
        events.append("worker")
        # What counts the attempts is on the driver's node.
        nodes = [node for node in cluster.list_all_nodes() if node != cluster.head_node and node.node_id != own]
        raylet = nodes[0].all_processes["raylet"][0].process
        os.kill(raylet.pid, signal.SIGKILL)
        events.append("raylet")
        time.sleep(1)
        cluster.remove_node(nodes[1], allow_graceful=False)
        events.append("node")

    killer = threading.Thread(target=kill)
    killer.start()
    result = fhrd.ray.backup("s3://source/data", location, shards=SHARDS, group="job", program=PROGRAM)
    print(f"\n{time.monotonic() - started:.1f} s")
    killer.join()
    show("killed", result)
    assert events == ["worker", "raylet", "node"]
    assert max(row["attempts"] for row in result) > 1, "nothing was repeated"
    assert len(result.snapshots) == SHARDS
    listed = fleet.run("snapshots", "--repo", location, "--group", "job")
    assert sorted(named["id"] for named in listed) == sorted(result.snapshots)
    fleet.check_restored(location, "job")
    stored = fleet.stored("killed")
    print(f"stored {stored}, by one process {one}: {stored / one:.4f}")
    # What tasks stored twice at the same time is there until a prune.
    fleet.run("prune", "--repo", location, "--grace", "0s")
    stored = fleet.stored("killed")
    print(f"after a prune {stored}: {stored / one:.4f}")
    assert stored <= 1.03 * one
    fleet.check_restored(location, "job")


def test_a_share_that_ran_twice_leaves_one_snapshot(fleet: Fleet, cluster: Cluster) -> None:
    location = fleet.init("twice")
    words = ["backup", "s3://source/data", "--repo", location, "--host", "ray", "--shard", "2/4", "--group", "job"]
    before = fleet.run(*words)["snapshot"]
    twins: list[str] = []

    def twin(progress: fhrd.ray.ShareProgress) -> None:
        if not twins:
            twins.append(fleet.run(*words)["snapshot"])

    # The URL has another spelling than the one that snapshots record.
    result = fhrd.ray.backup(
        "s3://source/data/", location, shards=4, group="job", progress=twin, program=PROGRAM
    )
    ids = {named["id"] for named in fleet.run("snapshots", "--repo", location)}
    # Nothing began twice, so all that others have stored stays.
    assert twins and ids == {*result.snapshots, before, twins[0]}
    assert result.warning is None
    job = fhrd.ray._job(PROGRAM, None, None, None, None)
    fhrd.ray._forget_others(job, location, result, {before}, {("s3://source/data/", "2/4")})
    ids = {named["id"] for named in fleet.run("snapshots", "--repo", location)}
    assert ids == {*result.snapshots, before}, "what was there before the job stays"
    assert fhrd.ray._of_group(job, "s3://repository/nothing", "job") is None


def test_a_twin_that_begins_before_the_result_is_forgotten(
    fleet: Fleet, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = fleet.init("twin")
    twins: list[Any] = []
    tell = fhrd.ray._tell

    def tell_and_begin(job: Any, board: Any, rows: Any) -> None:
        tell(job, board, rows)
        # As Ray does if it takes a node for dead. Each of them has begun before the results of all are there.
        if not twins and len(rows) < len(job.shares):
            at = next(at for at in range(len(job.shares)) if at not in rows)
            share, task = job.shares[at], ray.remote(fhrd.ray._task)
            twins.append(task.options(num_cpus=0).remote(at, share.words, job.program, share.objects, board))
            end = time.monotonic() + 120
            while ray.get(board.starts.remote()).get(at, 0) < 2:
                assert time.monotonic() < end, "the twin has not begun"
                time.sleep(0.05)

    monkeypatch.setattr(fhrd.ray, "_tell", tell_and_begin)
    result = fhrd.ray.backup("s3://source/data", location, shards=4, group="job", program=PROGRAM)
    try:
        ray.get(twins[0], timeout=60)
    except ray.exceptions.RayError as error:
        print(error)
    ids = {named["id"] for named in fleet.run("snapshots", "--repo", location)}
    assert ids == set(result.snapshots) and len(ids) == 4


def test_only_whole_shares_that_began_twice_have_twins_forgotten() -> None:
    row = {"source": "s3://source", "problems": 0}
    rows = [{**row, "share": str(attempts), "attempts": attempts} for attempts in range(4)]
    rows.append({**row, "share": "damaged", "attempts": 2, "problems": 1})
    assert fhrd.ray._repeated(rows) == {("s3://source", "2"), ("s3://source", "3")}


def test_a_task_that_begins_after_the_job_ends_at_once(fleet: Fleet, cluster: Cluster) -> None:
    location = fleet.init("after")
    board: Any = ray.remote(fhrd.ray._Board).options(num_cpus=0, max_restarts=-1).remote()
    assert ray.get(board.started.remote(0)) == 1 and ray.get(board.starts.remote()) == {0: 1}
    ray.kill(board, no_restart=False)
    end = time.monotonic() + 120
    while True:
        # It answers for a moment more, then not at all, and knows nothing once it has started again.
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):
            if ray.get(board.starts.remote()) == {}:
                break
        assert time.monotonic() < end
        time.sleep(0.1)
    ray.kill(board)
    with pytest.raises(ray.exceptions.ActorDiedError):
        while time.monotonic() < end:
            ray.get(board.starts.remote(), timeout=60)
    words = ["backup", "s3://source/data", "--repo", location, "--host", "ray", "--shard", "1/4", "--group", "job"]
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ray.remote(fhrd.ray._task).options(num_cpus=1).remote(0, words, PROGRAM, None, board), timeout=120)
    assert fleet.run("snapshots", "--repo", location) == []


def test_a_file_that_cannot_be_read_is_a_warning(fleet: Fleet, cluster: Cluster) -> None:
    location = fleet.init("odd")
    # No URL can have this key.
    fleet.s3.put_object(Bucket="source", Key="odd/x/../y", Body=b"odd")
    fleet.s3.put_object(Bucket="source", Key="odd/whole", Body=b"whole")
    result = fhrd.ray.backup("s3://source/odd", location, shards=2, program=PROGRAM)
    assert sum(row["problems"] for row in result) == 1 and not result.errors
    assert result.warning is not None and "could not" in result.warning, result.warning


def test_what_fails_is_in_the_table(fleet: Fleet, cluster: Cluster) -> None:
    with pytest.raises(fhrd.ray.ShareErrors) as failed:
        fhrd.ray.backup("s3://source/data", "s3://repository/nothing", shards=2, program=PROGRAM)
    assert len(failed.value.result.errors) == 2 and "nothing" in str(failed.value)
    location = fleet.init("late")
    late = fhrd.ray.backup("s3://source/data", location, shards=2, timeout=0.1, on_error="report", program=PROGRAM)
    assert late.errors and "in time" in late.errors[0]["error"]
    time.sleep(2)
    assert not busy_workers(), "a task that was cancelled runs on"
    denied = f"s3://source/{'x' * 10}"
    with pytest.raises(RuntimeError, match="no objects"):
        fhrd.ray.backup(denied, location, shards=2, program=PROGRAM)


def test_processes_with_shares_store_as_much_as_one_and_scattered_ones_more(fleet: Fleet, one: int) -> None:
    location = fleet.init("shares")
    words = ["backup", "s3://source/data", "--repo", location, "--group", "job", "--json"]
    children = [subprocess.Popen([*COMMAND, *words, "--shard", f"{at}/8"], stdout=subprocess.PIPE) for at in range(1, 9)]
    reports = [json.loads(child.communicate()[0]) for child in children]
    assert all(child.returncode == 0 for child in children)
    stored = fleet.stored("shares")
    print(f"\neight processes: {stored}, one: {one}: {stored / one:.4f}")
    print("seconds by share:", *(f"{report['seconds']:.1f}" for report in reports))
    assert stored <= 1.03 * one
    fleet.check_restored(location, "job")
    # The same files at random.
    source = fleet.directory / "scattered"
    names = sorted(FILES)
    random.Random(1).shuffle(names)
    location = fleet.init("scattered")
    running = []
    for at in range(8):
        for name in names[at::8]:
            path = source / str(at) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(FILES[name])
        command = [*COMMAND, "backup", str(source / str(at)), "--repo", location]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    assert all(child.wait() == 0 for child in running)
    scattered = fleet.stored("scattered")
    print(f"scattered at random: {scattered / one:.4f}")
    assert scattered > 1.2 * one
