"""A store that answers, and then does not."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
import time
import urllib.parse

import numpy as np
import pytest

import fhrd

ARRAYS = {"a": np.arange(300_000, dtype=np.float32)}


class _Bucket(http.server.BaseHTTPRequestHandler):
    """As much of S3 as a repository needs, in memory. Each request has a connection of its own, so none outlives the server."""

    objects: dict[str, bytes]

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _etag(self, body: bytes) -> dict[str, str]:
        return {"ETag": f'"{hashlib.md5(body).hexdigest()}"', "Last_Modified": "Mon, 30 Nov 2026 10:00:00 GMT"}

    def do_PUT(self) -> None:
        key = urllib.parse.unquote(self.path.split("?")[0])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("If-None-Match") == "*" and key in self.objects:
            return self._answer(412)
        self.objects[key] = body
        self._answer(200, **self._etag(body))

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if "list-type" in query:
            start = f"/bucket/{query.get('prefix', '')}"
            keys = sorted(key for key in self.objects if key.startswith(start))
            rows = "".join(
                f"<Contents><Key>{key.removeprefix('/bucket/')}</Key><Size>{len(self.objects[key])}</Size>"
                f"<LastModified>2026-11-30T10:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
                for key in keys
            )
            text = f"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{len(keys)}</KeyCount>{rows}</ListBucketResult>"
            return self._answer(200, text.encode())
        body = self.objects.get(urllib.parse.unquote(url.path))
        if body is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, body, **self._etag(body))
        first, last = wanted.removeprefix("bytes=").split("-")
        begin, end = (int(first), int(last or len(body) - 1)) if first else (len(body) - int(last), len(body) - 1)
        end = min(end, len(body) - 1)
        part = body[begin : end + 1]
        self._answer(206, part, Content_Range=f"bytes {begin}-{end}/{len(body)}", **self._etag(body))

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self.objects.pop(urllib.parse.unquote(self.path.split("?")[0]), None)
        self._answer(204)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("_credentials")
def test_a_store_that_goes_away_ends_saves_and_loads_within_the_timeout() -> None:
    handler = type("Handler", (_Bucket,), {"objects": {}})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}", "unencrypted": "true"}
    repo = fhrd.open("s3://bucket/prefix", options=options, timeout=1, create=True)
    repo.save(ARRAYS, run="r", step=1)
    loaded = repo.load(run="r")
    assert all((loaded[name] == value).all() for name, value in ARRAYS.items())
    server.shutdown()
    server.server_close()
    calls = {
        "save": lambda: repo.save({**ARRAYS, "b": np.arange(1000)}, run="r", step=2),
        "save_async": lambda: repo.save_async({**ARRAYS, "c": np.arange(999)}, run="r", step=3).result(),
        "load": lambda: fhrd.open("s3://bucket/prefix", options=options, timeout=1).load(run="r"),
        "runs": lambda: repo.runs(),
    }
    for name, call in calls.items():
        begin = time.monotonic()
        with pytest.raises(fhrd.UnreachableError):
            call()
        assert time.monotonic() - begin < 20, name
    with contextlib.suppress(fhrd.UnreachableError):
        repo.close()
