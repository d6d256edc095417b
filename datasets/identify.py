#!/usr/bin/env python3
"""Build the classes that score the chunk classifier and that a backup corpus lacks, from files of any Debian machine.

usage: identify.py DIRECTORY [ROOT...]

Writes one directory per class into DIRECTORY, each of at most about 48 MB: text, elf, media, pixels, audio, archive,
sqlite, integer, double. Real files come from the ROOTs (default: /usr/share /usr/lib /usr/bin and Python's own
directories). Needs only Python's standard library, and uses ImageMagick's `convert` for photographs if it is installed.
Deterministic for the same machine and ROOTs.
"""

import array
import bz2
import colorsys
import gzip
import lzma
import math
import os
import random
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import wave
import zipfile
import zlib
from pathlib import Path

LIMIT = 48 << 20
MEDIA = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".ogg", ".mp3", ".opus", ".flac", ".mp4", ".woff2", ".pdf"}
TEXT = {".py", ".c", ".h", ".rs", ".txt", ".md", ".rst", ".html", ".json", ".xml", ".js", ".css", ".pl", ".pm", ".svg"}


def walk(roots):
    """Every regular file under the roots once, in a fixed order."""
    for root in roots:
        for directory, directories, names in os.walk(root):
            directories.sort()
            for name in sorted(names):
                path = Path(directory, name)
                if path.is_file() and not path.is_symlink():
                    yield path


def pick(paths, limit=LIMIT, smallest=1 << 14):
    """A shuffled selection of the paths of at most `limit` bytes together."""
    paths = sorted(paths)
    random.Random(1).shuffle(paths)
    total = 0
    for path in paths:
        size = path.stat().st_size
        if smallest <= size <= limit // 3 and total + size <= limit:
            total += size
            yield path


def new_directory(out, name):
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def copy(out, name, paths, **how):
    directory = new_directory(out, name)
    for index, path in enumerate(pick(paths, **how)):
        shutil.copyfile(path, directory / f"{index:04}{path.suffix}")
    return directory


def head_of(path):
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError:
        return b""


def photograph(width, height, seed):
    """RGB bytes of smooth shapes under sensor noise, which resemble a raw camera frame to a compressor."""
    rng = random.Random(seed)
    waves = [(rng.uniform(2, 40) / width, rng.uniform(2, 40) / height, rng.uniform(0, 6), rng.uniform(0.1, 0.5)) for _ in range(5)]
    rows = []
    for y in range(height):
        row = bytearray()
        for x in range(width):
            level = sum(a * math.sin(fx * x + fy * y + p) for fx, fy, p, a in waves)
            red, green, blue = colorsys.hsv_to_rgb((level * 0.2 + y / height) % 1, 0.5, min(1, max(0, 0.5 + level * 0.3)))
            for channel in (red, green, blue):
                row.append(min(255, max(0, int(channel * 255 + rng.gauss(0, 2.5)))))
        rows.append(bytes(row))
    return rows


def png(width, height, rows):
    """A PNG file of RGB rows, each filtered with "sub"."""
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    filtered = b"".join(b"\1" + row[:3] + bytes((row[i] - row[i - 3]) & 255 for i in range(3, len(row))) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(filtered, 6)) + part(b"IEND", b"")


def media_and_pixels(out, files):
    directory = copy(out, "media", [path for path in files if path.suffix.lower() in MEDIA], smallest=1 << 13)
    pixels = new_directory(out, "pixels")
    for seed in range(3):
        rows = photograph(800, 600, seed)
        ppm = pixels / f"photo{seed}.ppm"
        ppm.write_bytes(b"P6\n800 600\n255\n" + b"".join(rows))
        (pixels / f"photo{seed}.rgba").write_bytes(b"".join(row[i:i + 3] + b"\xff" for row in rows for i in range(0, len(row), 3)))
        (directory / f"photo{seed}.png").write_bytes(png(800, 600, rows))
        for quality in (70, 92) if shutil.which("convert") else ():
            command = ["convert", ppm, "-quality", str(quality), directory / f"photo{seed}-{quality}.jpg"]
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def audio(out):
    """16-bit stereo sound: a few drifting tones with harmonics, an envelope and noise."""
    directory = new_directory(out, "audio")
    for seed in range(3):
        rng = random.Random(seed)
        samples = array.array("h")
        tones = [(rng.uniform(80, 1200), rng.uniform(500, 4000)) for _ in range(4)]
        for i in range(44100 * 6):
            t = i / 44100
            envelope = 0.3 + 0.7 * abs(math.sin(t * 0.7 + seed))
            value = envelope * sum(a * (math.sin(6.283 * f * t) + 0.3 * math.sin(12.566 * f * t)) for f, a in tones)
            for gain in (1.0, 0.8):
                samples.append(max(-32768, min(32767, int(value * gain + rng.gauss(0, 30)))))
        with wave.open(str(directory / f"tones{seed}.wav"), "wb") as file:
            file.setparams((2, 2, 44100, 0, "NONE", ""))
            file.writeframes(samples.tobytes())


def archive(out, files):
    """.gz .bz2 .xz and .zip of real files, and archives that the machine already has."""
    directory = copy(out, "archive", [path for path in files if path.suffix in (".gz", ".xz", ".zst", ".whl", ".jar", ".zip")], limit=LIMIT // 3)
    for index, path in enumerate(pick(files, limit=LIMIT, smallest=1 << 17)):
        data = path.read_bytes()
        kind = index % 4
        if kind == 0:
            (directory / f"made{index}.gz").write_bytes(gzip.compress(data, 6, mtime=0))
        elif kind == 1:
            (directory / f"made{index}.xz").write_bytes(lzma.compress(data, preset=2))
        elif kind == 2:
            (directory / f"made{index}.bz2").write_bytes(bz2.compress(data))
        else:
            with zipfile.ZipFile(directory / f"made{index}.zip", "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr(zipfile.ZipInfo("member"), data)


def sqlite(out, texts, files):
    """A database of real text with a full index, and one of numbers (file sizes and times)."""
    directory = new_directory(out, "sqlite")
    base = sqlite3.connect(directory / "text.db")
    base.execute("create table line (id integer primary key, path text, number integer, length integer, body text)")
    base.execute("create index by_body on line (length, path)")
    for path in pick(texts, limit=LIMIT // 2, smallest=1 << 10):
        lines = path.read_text("utf-8", "replace").split("\n")
        rows = [(str(path), number, len(line), line) for number, line in enumerate(lines)]
        base.executemany("insert into line (path, number, length, body) values (?, ?, ?, ?)", rows)
    base.commit()
    base.close()
    base = sqlite3.connect(directory / "stat.db")
    base.execute("create table stat (size integer, mtime real, inode integer, mode integer, ratio real)")
    for path in files:
        stat = path.stat()
        base.execute("insert into stat values (?, ?, ?, ?, ?)", (stat.st_size, stat.st_mtime, stat.st_ino, stat.st_mode, stat.st_size / 4096))
    base.execute("create index by_size on stat (size, mtime)")
    base.commit()
    base.close()


def token_ids(texts):
    """Ranks of words by falling frequency, in text order, like a tokenised data set."""
    words = []
    for path in pick(texts, limit=LIMIT // 3, smallest=1 << 10):
        words += re.findall(r"\w+|[^\w\s]", path.read_text("utf-8", "replace"))
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    ranks = {word: rank for rank, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word)))}
    return [ranks[word] for word in words]


def numbers(out, texts, files):
    integer, double = new_directory(out, "integer"), new_directory(out, "double")
    rng = random.Random(7)
    tokens = token_ids(texts)
    sizes = [path.stat().st_size for path in files]
    times = sorted(path.stat().st_mtime_ns for path in files)
    unique = sorted(rng.sample(range(1 << 31), 400_000))
    counter, counters = 0, []
    for _ in range(400_000):
        counter += rng.choice((0, 0, 0, 1, 1, 2, 17))
        counters.append(counter)
    walk_of, position = [], 0
    for _ in range(400_000):
        position = max(-32000, min(32000, position + int(rng.gauss(0, 40))))
        walk_of.append(position)
    columns = {
        "tokens.u16": ("H", [token & 0xFFFF for token in tokens]), "tokens.i32": ("i", tokens), "tokens.i64": ("q", tokens),
        "sizes.i64": ("q", sizes), "sizes.u32": ("I", [size & 0xFFFFFFFF for size in sizes]), "times.i64": ("q", times),
        "sorted.i32": ("i", unique), "sorted.i64": ("q", [id * 4096 for id in unique]), "counters.i32": ("i", counters),
        "deltas.i32": ("i", [b - a for a, b in zip(unique, unique[1:])]), "walk.i16": ("h", walk_of), "walk.i32": ("i", walk_of),
        "random.i32": ("i", [rng.randrange(1 << 20) for _ in range(400_000)]),
        "hash.u64": ("Q", [rng.randrange(1 << 64) for _ in range(200_000)]),
    }
    for name, (kind, values) in columns.items():
        (integer / name).write_bytes(array.array(kind, values[:2_000_000]).tobytes())
    doubles = {
        "prices.f64": [rng.randrange(100, 100_000) / 100 for _ in range(400_000)],
        "times.f64": [time / 1e9 for time in times], "ratio.f64": [size / 4096 for size in sizes],
        "walk.f64": [value * 0.01 for value in walk_of], "log.f64": [math.log1p(size) for size in sizes],
        "gauss.f64": [rng.gauss(20, 3) for _ in range(400_000)],
    }
    for name, values in doubles.items():
        (double / name).write_bytes(array.array("d", values).tobytes())
        (double / name.replace("f64", "f32")).write_bytes(array.array("f", values).tobytes())


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    roots = sys.argv[2:] or ["/usr/share", "/usr/lib", "/usr/bin", *sorted({sys.prefix, sys.base_prefix} - {"/usr"})]
    files = [path for path in walk(roots) if os.access(path, os.R_OK)]
    texts = [path for path in files if path.suffix in TEXT]
    copy(out, "text", texts)
    copy(out, "elf", [path for path in files if path.stat().st_size > 1 << 15 and head_of(path) == b"\x7fELF"], limit=2 * LIMIT)
    media_and_pixels(out, files)
    audio(out)
    archive(out, files)
    sqlite(out, texts, files)
    numbers(out, texts, files)
    for directory in sorted(out.iterdir()):
        paths = list(directory.iterdir())
        print(f"{directory.name:10} {len(paths):5} files {sum(path.stat().st_size for path in paths) / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
