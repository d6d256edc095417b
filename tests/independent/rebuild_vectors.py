"""Rebuilds the frozen vectors of transform 1 with opened.py, which has none of fhrd's code.

Usage: rebuild_vectors.py src/opened/vectors_tests.rs

The package blake3 is needed. Exit code 1 says that a vector is not rebuilt.
"""

import re
import sys
from pathlib import Path

from blake3 import blake3

import opened

U64 = (1 << 64) - 1
GZIP_HEAD = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0"


class Random:
    """The numbers of the vectors that look random."""

    def __init__(self, seed: int) -> None:
        self.state = seed | 1

    def below(self, end: int) -> int:
        state = self.state
        state ^= state << 13 & U64
        state ^= state >> 7
        state ^= state << 17 & U64
        self.state = state
        return (state >> 11) % end


def text(seed: int, size: int) -> bytes:
    """Text with words that come again."""
    random = Random(seed)
    terms = [bytes(97 + random.below(26) for _ in range(random.below(9) + 2)) for _ in range(200)]
    made = bytearray()
    while len(made) < size:
        kind = random.below(40)
        if kind == 0 and len(made) > 300:
            begin = random.below(len(made) - 200)
            made += made[begin : begin + 150]
        else:
            made += terms[random.below(200) * random.below(200) // 200]
            made += b"\n" if kind == 1 else b" "
    return bytes(made[:size])


def vectors(source: str) -> list[tuple[str, bytes, bytes, str]]:
    """Name, plain content, corrections and hash of each vector."""
    written, odd = source.split("const ODD")
    body, found = text(77, 90_000), []
    for entry in re.findall(r'\(\s*((?:"[^"]*",?\s*){5})\)', written):
        name, head, tail, corrections, digest = re.findall(r'"([^"]*)"', entry)
        found.append((name, bytes.fromhex(head) + body + bytes.fromhex(tail), bytes.fromhex(corrections), digest))
    for number, (corrections, digest) in enumerate(re.findall(r'\(\s*"([0-9a-f]+)",\s*"([0-9a-f]+)",?\s*\)', odd)):
        image = text(90 + number, 30_000)
        parts = b"....\x78\x9c", image, bytes(4), GZIP_HEAD, image[:8000], bytes(range(1, 9)), b"...."
        found.append((f"odd {number}", b"".join(parts), bytes.fromhex(corrections), digest))
    return found


def main() -> int:
    failed = 0
    frozen = vectors(Path(sys.argv[1]).read_text())
    for name, plain, corrections, digest in frozen:
        if blake3(opened.rebuild(plain, corrections)).hexdigest()[:32] != digest:
            print(f"{name}: another stream")
            failed += 1
    print(f"{len(frozen)} vectors, {failed} not rebuilt")
    return int(failed > 0 or not frozen)


if __name__ == "__main__":
    sys.exit(main())
