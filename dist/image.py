"""Writes an image for containers (OCI image layout, in a tar archive) that has only static programs.

    python3 dist/image.py OUT.tar SECONDS VERSION LICENCE NOTICES TARGET=PROGRAM...

LICENCE and NOTICES are files that go beside the program. SECONDS since 1970 is the time of everything in it. The same input gives the same bytes. No daemon is needed:
`skopeo copy oci-archive:OUT.tar docker-daemon:fhrd:VERSION`, or `podman load -i OUT.tar`.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

PLATFORMS = {"x86_64": "amd64", "aarch64": "arm64"}


def tar(entries: list[tuple[str, bytes | None, int]], seconds: int) -> bytes:
    """A tar archive of (name, content, mode), owned by root; without content it is a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content, mode in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = mode, seconds
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Layout:
    """The blobs of an image layout."""

    def __init__(self, papers: dict[str, bytes]) -> None:
        self.blobs: dict[str, bytes] = {}
        self.papers = papers

    def add(self, media_type: str, content: bytes) -> dict[str, object]:
        """Adds a blob. Returns its descriptor."""
        self.blobs[digest(content)] = content
        return {"mediaType": media_type, "digest": digest(content), "size": len(content)}

    def add_json(self, media_type: str, document: object) -> dict[str, object]:
        return self.add(media_type, json.dumps(document, sort_keys=True, separators=(",", ":")).encode())

    def add_image(self, architecture: str, program: bytes, created: str, seconds: int, version: str) -> dict[str, object]:
        # The default repository and the caches go below the home of the user, which is a volume.
        layer = tar(
            [
                ("data/", None, 0o755),
                ("tmp/", None, 0o1777),
                ("usr/", None, 0o755),
                ("usr/bin/", None, 0o755),
                ("usr/bin/fhrd", program, 0o755),
                ("usr/share/", None, 0o755),
                ("usr/share/doc/", None, 0o755),
                ("usr/share/doc/fhrd/", None, 0o755),
                *((f"usr/share/doc/fhrd/{name}", text, 0o644) for name, text in sorted(self.papers.items())),
            ],
            seconds,
        )
        packed = gzip.compress(layer, 9, mtime=0)
        labels = {"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "MIT OR Apache-2.0"}
        config = self.add_json(
            "application/vnd.oci.image.config.v1+json",
            {
                "created": created,
                "architecture": architecture,
                "os": "linux",
                "config": {
                    "Entrypoint": ["/usr/bin/fhrd"],
                    "Env": ["PATH=/usr/bin", "HOME=/data"],
                    "Volumes": {"/data": {}},
                    "Labels": labels,
                },
                "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
                "history": [{"created": created, "created_by": "dist/image.py"}],
            },
        )
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [self.add("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
        }
        descriptor = self.add_json("application/vnd.oci.image.manifest.v1+json", manifest)
        return descriptor | {"platform": {"architecture": architecture, "os": "linux"}}


def main() -> None:
    out, seconds, version = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    created = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layout = Layout({"LICENSE": Path(sys.argv[4]).read_bytes(), "NOTICES": Path(sys.argv[5]).read_bytes()})
    manifests = []
    for argument in sys.argv[6:]:
        target, program = argument.split("=", 1)
        architecture = PLATFORMS[target.split("-", 1)[0]]
        manifests.append(layout.add_image(architecture, Path(program).read_bytes(), created, seconds, version))
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    nested = layout.add_json("application/vnd.oci.image.index.v1+json", index)
    # podman and skopeo take the name from the first, containerd from the second.
    nested["annotations"] = {
        "org.opencontainers.image.ref.name": f"fhrd:{version}",
        "io.containerd.image.name": f"docker.io/library/fhrd:{version}",
    }
    top = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [nested]}
    files: list[tuple[str, bytes | None, int]] = [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644),
        ("index.json", json.dumps(top, sort_keys=True, separators=(",", ":")).encode(), 0o644),
        ("blobs/", None, 0o755),
        ("blobs/sha256/", None, 0o755),
    ]
    files += [(f"blobs/{name.replace(':', '/')}", content, 0o644) for name, content in sorted(layout.blobs.items())]
    out.write_bytes(tar(files, seconds))


if __name__ == "__main__":
    main()
