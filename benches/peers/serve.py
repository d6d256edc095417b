#!/usr/bin/env python3
"""Measures `fhrd serve` on loopback beside `fhrd restore` and `fhrd backup` of the same models: one table.

    benches/peers/serve.py [--rounds N] [--work DIR] [--hf HF] MODEL FHRD

MODEL is a directory with a model.safetensors in F32. Five fine-tunes of it are made: a Gaussian step in every tensor,
0.0002 wide, rounded to BF16 as the base is, then all of them as BF16. 64 small models are the base with other layers
left out. Downloads are by curl into files, or into nothing where many run at once; restores write files, too. Each
round starts new processes; caches of the kernel are warm. Figures are medians of the rounds.

Uploads are by `hf upload` (huggingface_hub, --hf, without Xet) into a repository with the same key as that of the
backups. What is compared is the bytes of all blobs. The same upload by Xet (hf_xet) goes through a proxy that adds up
the distinct xorbs: a server of Xet's storage has these, and no others. Needs numpy, curl; works in --work (serve-work),
which must not exist, and removes it. With --only uploads, nothing is served to be timed.
"""

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import numpy

CLIENTS, READERS, TUNES = 16, 64, 5
STEP = 0.0002


def tensors_of(path):
    """Names, shapes and values of a file in F32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        if entry["dtype"] == "F32":
            yield name, entry["shape"], numpy.frombuffer(data[8 + length + start : 8 + length + end], "<f4")


def write_model(directory, tensors, others):
    """Writes tensors as BF16, beside the small files of the model."""
    directory.mkdir(parents=True)
    header, parts, at = {}, [], 0
    for name, shape, values in tensors:
        bits = values.astype("<f4").view("<u4")
        half = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(half)]}
        at += len(half)
        parts.append(half)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    for other in others:
        shutil.copy(other, directory / other.name)


def tuned(tensors, random):
    """Tensors after a step of training."""
    for name, shape, values in tensors:
        yield name, shape, values + random.normal(0, STEP, values.shape).astype("f4")


def make(model, work):
    """The base and its fine-tunes, and small models."""
    base = list(tensors_of(model / "model.safetensors"))
    others = [path for path in model.iterdir() if path.is_file() and path.name != "model.safetensors"]
    write_model(work / "models/base", base, others)
    for number in range(TUNES):
        random = numpy.random.default_rng(number)
        write_model(work / f"models/tune{number}", tuned(base, random), others)
    for number in range(READERS):
        random = numpy.random.default_rng(100 + number)
        some = [(name, shape, values) for name, shape, values in base if values.size < 600_000]
        write_model(work / f"small/{number}", tuned(some, random), others)


class Place:
    """A repository with caches of its own."""

    def __init__(self, fhrd, work, name, like=None):
        self.fhrd, self.work, self.repository = fhrd, work, work / name
        self.environment = os.environ | {"FHRD_REPO": str(self.repository)}
        self.environment |= {f"XDG_{kind}_HOME": str(work / f"{name}-{kind}") for kind in ["CACHE", "DATA"]}
        if like is None:
            self.run("init")
        else:
            # The same key makes the same chunks.
            shutil.copytree(like, self.repository)

    def run(self, *words):
        subprocess.run([self.fhrd, *words], check=True, env=self.environment, cwd=self.work, stdout=subprocess.DEVNULL)

    def stored(self):
        return sum(path.stat().st_size for path in self.repository.rglob("*") if path.is_file())


class Server:
    def __init__(self, place, *words):
        command = [place.fhrd, "serve", "--json", "--listen", "127.0.0.1:0", *words]
        self.process = subprocess.Popen(command, env=place.environment, stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self.process.stdout.readline())["listening"]
        self.url = f"http://{self.address}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def memory(self):
        """The most memory that it had, MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024 / 1e6


def fetch(server, name, file, target):
    command = ["curl", "-sS", "--fail", "-o", str(target), f"{server.url}/{name}/resolve/main/{file}"]
    subprocess.run(command, check=True)


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def one_client(server, work, names):
    target = work / "fetched"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    return timed(lambda: [fetch(server, name, "model.safetensors", target / name.replace("/", "-")) for name in names])


def many_clients(server, names, clients, file="model.safetensors"):
    def one(at):
        for turn in range(len(names)):
            fetch(server, names[(at + turn) % len(names)], file, "/dev/null")

    with ThreadPoolExecutor(clients) as pool:
        return timed(lambda: list(pool.map(one, range(clients))))


def first_byte(server, name):
    """Milliseconds from a request to the first byte of a model that was read before."""
    host, port = server.address.split(":")
    times = []
    for _ in range(51):
        with socket.create_connection((host, int(port))) as stream:
            request = f"GET /{name}/resolve/main/model.safetensors HTTP/1.1\r\nHost: {server.address}\r\n"
            started = time.perf_counter()
            stream.sendall(f"{request}Connection: close\r\n\r\n".encode())
            received = b""
            while b"\r\n\r\n" not in received or received.endswith(b"\r\n\r\n"):
                received += stream.recv(4096)
            times.append((time.perf_counter() - started) * 1000)
    return median(times)


def downloads(place, work, rounds):
    names = ["bench/base"] + [f"bench/tune{number}" for number in range(TUNES)]
    place.run("backup", "models")
    for name in names:
        place.run("publish", f"latest:models/{name.removeprefix('bench/')}", name)
    size = sum((work / "models" / name.removeprefix("bench/") / "model.safetensors").stat().st_size for name in names)
    found = {key: [] for key in ["restore", "one", "many", "first"]}
    for _ in range(rounds):
        target = work / "restored"
        shutil.rmtree(target, ignore_errors=True)
        found["restore"].append(size / timed(lambda: place.run("restore", "latest", "--target", str(target))) / 1e6)
        for name in names:
            own = target / "models" / name.removeprefix("bench/") / "model.safetensors"
            assert own.stat().st_size > 0
        with Server(place) as server:
            found["one"].append(size / one_client(server, work, names) / 1e6)
            for name in names:
                own = work / "models" / name.removeprefix("bench/") / "model.safetensors"
                assert (work / "fetched" / name.replace("/", "-")).read_bytes() == own.read_bytes(), name
            found["first"].append(first_byte(server, names[0]))
        with Server(place) as server:
            found["many"].append(CLIENTS * size / many_clients(server, names, CLIENTS) / 1e6)
    return size, {key: median(values) for key, values in found.items()}


def memory(place):
    """The most memory of a server from which 64 clients read different models at once, MB."""
    place.run("backup", "small")
    names = [f"small/m{number}" for number in range(READERS)]
    for number, name in enumerate(names):
        place.run("publish", f"latest:small/{number}", name)
    with Server(place) as server:
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda name: fetch(server, name, "model.safetensors", "/dev/null"), names))
        return server.memory()


class XorbCounter(ThreadingHTTPServer):
    """A proxy in front of a server, which adds up the xorbs that a client of Xet sends."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Forward)
        self.target, self.xorbs = None, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def forward(self):
        body = self.body()
        target = HTTPConnection(self.server.target)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
        target.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
        answer = target.getresponse()
        content = answer.read()
        if self.command == "POST" and "/xorbs/" in self.path and answer.status == 200:
            self.server.xorbs[self.path] = len(body)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ["transfer-encoding", "content-length", "connection"]:
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        target.close()

    do_GET = do_HEAD = do_POST = do_PUT = forward

    def log_message(self, *_):
        pass


def upload(hf, work, url, is_xet, directories):
    home = work / f"hf-{is_xet}"
    environment = os.environ | {"HF_HOME": str(home), "HF_TOKEN": "hf_" + "0" * 37, "HF_ENDPOINT": url}
    environment |= {"HF_HUB_DISABLE_XET": "0" if is_xet else "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    for name in directories:
        command = [hf, "upload", f"bench/{name}", str(work / "models" / name)]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def uploads(fhrd, hf, work, empty):
    """Bytes that `hf upload` and `fhrd backup` of the same directories store, and their seconds; bytes of Xet's xorbs."""
    directories = ["base"] + [f"tune{number}" for number in range(TUNES)]
    backups = Place(fhrd, work, "backups", empty)
    backup_s = timed(lambda: [backups.run("backup", f"models/{name}") for name in directories])
    uploaded = Place(fhrd, work, "uploads", empty)
    with Server(uploaded, "--writable") as server:
        upload_s = timed(lambda: upload(hf, work, server.url, False, directories))
        fetch(server, "bench/tune0", "model.safetensors", work / "again")
    assert (work / "again").read_bytes() == (work / "models/tune0/model.safetensors").read_bytes()
    counter = XorbCounter()
    with Server(Place(fhrd, work, "xet", empty), "--writable", "--public-url", counter.url) as server:
        counter.target = server.address
        upload(hf, work, counter.url, True, directories)
        fetch(server, "bench/tune0", "model.safetensors", work / "again")
    assert (work / "again").read_bytes() == (work / "models/tune0/model.safetensors").read_bytes()
    counter.shutdown()
    assert counter.xorbs, "the client did not send by Xet"
    return backups.stored(), uploaded.stored(), backup_s, upload_s, sum(counter.xorbs.values())


def served(fhrd, work, rounds, empty):
    """What serving takes, as lines of a table."""
    size, speeds = downloads(Place(fhrd, work, "served", empty), work, rounds)
    most = memory(Place(fhrd, work, "many", empty))
    one, many, restore = speeds["one"], speeds["many"], speeds["restore"]
    return [
        f"| `fhrd restore`, {size / 1e6:.0f} MB | {restore:.0f} MB/s |",
        f"| one client | {one:.0f} MB/s, {one / restore:.2f} of it |",
        f"| {CLIENTS} clients together | {many:.0f} MB/s, {many / restore:.2f} of it |",
        f"| first byte of a model that was read before | {speeds['first']:.1f} ms |",
        f"| most memory with {READERS} clients, each with a model of its own | {most:.0f} MB |",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("fhrd")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("serve-work"))
    parser.add_argument("--hf", default="hf")
    parser.add_argument("--only", choices=["uploads"])
    options = parser.parse_args()
    work, fhrd = options.work.absolute(), os.path.abspath(options.fhrd)
    work.mkdir()
    try:
        make(options.model, work)
        empty = Place(fhrd, work, "empty").repository
        lines = [] if options.only else served(fhrd, work, options.rounds, empty)
        backed, uploaded, backup_s, upload_s, xorbs = uploads(fhrd, options.hf, work, empty)
    finally:
        shutil.rmtree(work)
    lines.append(f"| base and {TUNES} fine-tunes by `fhrd backup` | {backed / 1e6:.1f} MB, {backup_s:.1f} s |")
    lines.append(f"| the same by `hf upload` | {uploaded / 1e6:.1f} MB, {uploaded / backed:.3f} of it, {upload_s:.1f} s |")
    lines.append(f"| xorbs that `hf upload` sends by Xet | {xorbs / 1e6:.1f} MB; the row above is {uploaded / xorbs:.2f} of it |")
    print("| measure | value |\n|---|---|", *lines, sep="\n")


main()
