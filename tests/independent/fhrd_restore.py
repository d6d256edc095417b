#!/usr/bin/env python3
"""Restores snapshots of an fhrd repository of format 1 without fhrd.

It was written from docs/FORMAT.md and shares no code with fhrd. Keep this file beside your backups: with Python 3.10 or
later and the packages named below it needs nothing else. It only reads the repository, which must be a directory: copy
a bucket to a disk first.

    python3 fhrd_restore.py snapshots REPOSITORY
    python3 fhrd_restore.py ls REPOSITORY latest
    python3 fhrd_restore.py restore REPOSITORY latest TARGET --path home/me/thesis

Packages: blake3, and zstandard for Python before 3.14; for encrypted repositories also cryptography and argon2-cffi
(recent versions of cryptography alone will do).

TARGET must be empty or not exist. Nothing is written outside it. A file of which parts are lost is written as
NAME.damaged, with zeros in place of the lost bytes, and is named on standard error with what was expected. Sockets are
left out, as programs make them.

Exit codes: 0 all is restored, 1 something is not, 2 invalid command line.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import errno
import fcntl
import functools
import getpass
import io
import math
import os
import re
import resource
import stat
import struct
import sys
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

try:
    from compression import zstd as standard_zstd
except ImportError:
    standard_zstd = None
    import zstandard

MIB = 1 << 20
CHUNK_MAX, FRAME_MAX, STORED_MAX, INDEX_MAX = 16 * MIB, 64 * MIB, 128 * MIB, 128 * MIB
ENTRIES_MAX, BASES_MAX, OPERATIONS_MAX, FEATURES_MAX = 1 << 18, 1 << 20, 1 << 21, 1 << 22
ENVELOPE_MAX, NODE_MAX, BASE_CONTENT_MAX, ASSEMBLED_MAX = 64 * MIB, 8 * MIB, 32 * MIB, 512 * MIB
NESTED_MAX, RECIPES_MAX, REFERENCES_MAX, STEPS_MAX = 64, 16, 1 << 16, 1 << 26
LINKS_MAX = 1 << 20
ADD, COPY, LITERAL_COPY, DELTA = range(4)
FILE, DIRECTORY, SYMLINK, PIPE, SOCKET, CHARACTER, BLOCK = range(7)
KINDS = "-dlpscb"


class Lost(Exception):
    """Something cannot be read: it is damaged, missing, or of a newer version of the format."""


class Damaged(Lost):
    """Bytes are not what their checksum, their fingerprint or the format says."""


class Newer(Lost):
    """A newer version of the format wrote it."""


class Refused(Exception):
    """The program cannot do what was asked."""


def expect(condition: object, what: str) -> None:
    if not condition:
        raise Damaged(what)


def known(condition: object, what: str) -> None:
    if not condition:
        raise Newer(f"{what}: written by a newer version of fhrd")


@contextlib.contextmanager
def within(what: str):
    """Says in which thing something was lost. Data that no check has foreseen is damage, too."""
    try:
        yield
    except Lost as error:
        raise type(error)(f"{what}: {error}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise Damaged(f"{what}: {type(error).__name__}: {error}") from None


def sum16(*parts: bytes) -> bytes:
    """BLAKE3-128 of the parts one after another."""
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest(length=16)


def derive(context: str, material: bytes) -> bytes:
    return blake3(material, derive_key_context=context).digest()


def show(name: bytes) -> str:
    """A name or path for people: bytes that are no UTF-8 and control characters are escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# Integers and CBOR. The decoder is strict: definite lengths, no tags, no bytes left over.


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        expect(at < len(data) and shift < 70, f"no whole varint at byte {at}")
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            expect(value < 1 << 64, f"a varint of more than 64 bits ends at byte {at}")
            return value, at


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    short = data[at : at + count]
    if len(short) == count and (count == 0 or max(short) < 0x80):
        return list(short), at + count
    values = []
    for _ in range(count):
        value, at = varint(data, at)
        values.append(value)
    return values, at


def cbor_item(data: bytes, at: int, depth: int = 0) -> tuple[object, int]:
    expect(at < len(data) and depth < 32, f"no whole CBOR item at byte {at}")
    major, low = data[at] >> 5, data[at] & 31
    at += 1
    value = low
    if low >= 24:
        expect(low < 28, f"CBOR of an unsupported form before byte {at}")
        size = 1 << (low - 24)
        expect(at + size <= len(data), f"CBOR ends at byte {at}")
        value = int.from_bytes(data[at : at + size], "big")
        at += size
    if major == 0:
        return value, at
    if major == 1:
        return -1 - value, at
    if major in (2, 3):
        expect(value <= len(data) - at, f"a CBOR string of {value} bytes at byte {at} has fewer")
        content = bytes(data[at : at + value])
        try:
            return (content if major == 2 else content.decode()), at + value
        except UnicodeDecodeError:
            raise Damaged(f"CBOR text at byte {at} is not UTF-8") from None
    if major == 4:
        items = []
        for _ in range(value):
            item, at = cbor_item(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == 5:
        entries: dict = {}
        for _ in range(value):
            key, at = cbor_item(data, at, depth + 1)
            expect(type(key) in (int, str, bytes) and key not in entries, f"a CBOR key before byte {at}")
            entries[key], at = cbor_item(data, at, depth + 1)
        return entries, at
    expect(major == 7, f"a CBOR tag before byte {at}")
    if low in (20, 21, 22):
        return {20: False, 21: True, 22: None}[low], at
    forms = {25: ">e", 26: ">f", 27: ">d"}
    expect(low in forms, f"CBOR of an unsupported form before byte {at}")
    return struct.unpack(forms[low], value.to_bytes(1 << (low - 24), "big"))[0], at


def cbor(data: bytes, what: str) -> object:
    with within(what):
        value, at = cbor_item(data, 0)
        expect(at == len(data), f"{len(data) - at} bytes follow the CBOR")
    return value


def cbor_encode(value: object) -> bytes:
    """The shortest encoding, keys in the order of the map."""

    def head(major: int, number: int) -> bytes:
        if number < 24:
            return bytes([major << 5 | number])
        size = next(size for size in (0, 1, 2, 3) if number < 1 << (8 << size))
        return bytes([major << 5 | 24 + size]) + number.to_bytes(1 << size, "big")

    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor_encode, value))
    if isinstance(value, dict):
        return head(5, len(value)) + b"".join(cbor_encode(k) + cbor_encode(v) for k, v in value.items())
    return b"\xfb" + struct.pack(">d", value)


def fields(value: object, what: str, required: dict[int, type], optional: dict[int, type]) -> dict:
    """A CBOR map with integer keys, of which those given have the given types."""
    expect(isinstance(value, dict), f"{what}: expected a map")
    for key, kind in {**required, **optional}.items():
        if key not in value:
            expect(key not in required, f"{what}: key {key} is missing")
            continue
        right = type(value[key]) is kind
        expect(right, f"{what}: key {key} is {type(value[key]).__name__}, expected {kind.__name__}")
    return value


def list_of(value: list, kind: type, what: str) -> list:
    expect(all(type(item) is kind for item in value), f"{what}: expected {kind.__name__} in the list")
    return value


# Compression.


def zstd_decode(data: bytes, length: int) -> bytes:
    """One zstd frame that decodes to exactly `length` bytes. Never decodes more than one byte more."""
    try:
        if standard_zstd:
            decoder = standard_zstd.ZstdDecompressor()
            content = decoder.decompress(data, max_length=length + 1)
        else:
            limit = zstandard.ZstdDecompressor(max_window_size=1 << 27)
            with limit.stream_reader(io.BytesIO(data), read_across_frames=False) as reader:
                pieces, missing = [], length + 1
                while missing and (piece := reader.read(missing)):
                    pieces.append(piece)
                    missing -= len(piece)
                content = b"".join(pieces)
    except Exception as error:  # Both packages have errors of their own.
        raise Damaged(f"zstd: {error}") from None
    expect(len(content) == length, f"zstd: {len(content)} bytes or more, expected {length}")
    return content


def lz4_decode(data: bytes, length: int) -> bytes:
    """One LZ4 block that decodes to exactly `length` bytes."""
    out, at, end = bytearray(), 0, len(data)

    def extended(count: int, at: int) -> tuple[int, int]:
        while True:
            expect(at < end, "lz4: the block ends in a length")
            byte = data[at]
            count, at = count + byte, at + 1
            if byte < 255:
                return count, at

    while True:
        expect(at < end, "lz4: the block ends without literals")
        token = data[at]
        at += 1
        literals = token >> 4
        if literals == 15:
            literals, at = extended(literals, at)
        expect(literals <= end - at and literals <= length - len(out), "lz4: literals beyond the end")
        out += data[at : at + literals]
        at += literals
        if at == end:
            break
        expect(at + 2 <= end, "lz4: the block ends in an offset")
        distance = data[at] | data[at + 1] << 8
        at += 2
        count = token & 15
        if count == 15:
            count, at = extended(count, at)
        count += 4
        expect(0 < distance <= len(out) and count <= length - len(out), "lz4: a match beyond an end")
        start = len(out) - distance
        if distance >= count:
            out += out[start : start + count]
        else:
            out += (out[start:] * (count // distance + 1))[:count]
    expect(len(out) == length, f"lz4: {len(out)} bytes, expected {length}")
    return bytes(out)


# Codecs of frames (section 5.2), and entropy coding (section 16).


class Bits:
    """Numbers of some bits each, the lowest bit first, from the lowest bit of each byte on."""

    def __init__(self, data: bytes, at: int, bytes_max: int):
        taken = data[at : at + bytes_max]
        self.value, self.end, self.at = int.from_bytes(taken, "little"), 8 * len(taken), 0
        self.start = at

    def take(self, count: int) -> int:
        self.at += count
        expect(self.at <= self.end, "a table of codes ends too early")
        return self.value >> (self.at - count) & ((1 << count) - 1)

    def gamma(self) -> int:
        """An Elias gamma code: as many zeros as bits follow the leading one of the number, that one, these bits."""
        zeros = 0
        while not self.take(1):
            zeros += 1
            expect(zeros <= 7, "a run of more than 255 symbols")
        return 1 << zeros | self.take(zeros)

    def bytes_end(self) -> int:
        expect(self.value >> self.at & ((1 << (-self.at % 8)) - 1) == 0, "bits after a table of codes")
        return self.start + (self.at + 7) // 8


def frequency_table(data: bytes, at: int, bits: int) -> tuple[tuple, int]:
    """The slots of a table, as symbols, frequencies and places within the symbol, and where the table ends."""
    reader, slots, symbol, length = Bits(data, at, 1024), 1 << bits, 0, bits // 2
    symbols, frequencies, places = bytearray(), [], []
    while len(symbols) < slots:
        if not reader.take(1):
            pass
        elif not reader.take(1):
            length += -1 if reader.take(1) else 1
        else:
            number = reader.take(4)
            if number == 0:
                symbol += reader.gamma()
                continue
            length = number
        expect(1 <= length <= bits + 1 and symbol < 256, "a frequency of no symbol")
        frequency = 1 << (length - 1) | reader.take(length - 1)
        expect(len(symbols) + frequency <= slots, "frequencies of more than all slots")
        symbols += bytes([symbol]) * frequency
        frequencies += [frequency] * frequency
        places += range(frequency)
        symbol += 1
    return (bytes(symbols), frequencies, places), reader.bytes_end()


def rans_decode(data: bytes, count: int, bits: int, tables: list[tuple], contexts: bytes | None = None) -> bytes:
    """`count` symbols. Without contexts, all have the first table."""
    expect(len(data) >= 128 and len(data) % 2 == 0, "an encoding without its states")
    states = list(struct.unpack_from("<32I", data))
    words, word = array("H"), 0
    words.frombytes(data[128:])
    if sys.byteorder == "big":
        words.byteswap()
    out, mask = bytearray(count), (1 << bits) - 1
    symbols, frequencies, places = tables[0]
    try:
        for i in range(count):
            if contexts is not None:
                symbols, frequencies, places = tables[contexts[i]]
            state = states[i & 31]
            slot = state & mask
            out[i] = symbols[slot]
            state = frequencies[slot] * (state >> bits) + places[slot]
            if state < 32768:
                state = state << 16 | words[word]
                word += 1
            states[i & 31] = state
    except IndexError:
        raise Damaged("an encoding ends too early") from None
    expect(word == len(words) and all(state == 32768 for state in states), "an encoding does not end as it must")
    return bytes(out)


def prefix_code(data: bytes, at: int) -> tuple[tuple, int]:
    """For each number of 11 bits, the symbol that it begins with and the length of its code."""
    reader, symbol, total = Bits(data, at, 1024), 0, 0
    lengths = []
    while total < 2048:
        length = reader.take(4)
        if length == 0:
            symbol += reader.gamma()
            continue
        expect(length <= 11 and symbol < 256, "a prefix code of no symbol")
        lengths.append((length, symbol))
        total += 2048 >> length
        symbol += 1
    expect(total == 2048, "prefix codes that do not fill their space")
    symbols, sizes = bytearray(2048), bytearray(2048)
    code = previous = 0
    for length, symbol in sorted(lengths):
        code <<= length - previous
        reverse = int(f"{code:0{length}b}"[::-1], 2)
        for number in range(reverse, 2048, 1 << length):
            symbols[number], sizes[number] = symbol, length
        code, previous = code + 1, length
    return (symbols, sizes), reader.bytes_end()


def prefix_decode(data: bytes, count: int, code: tuple) -> bytes:
    expect(len(data) >= 12, "a prefix encoding without lengths")
    ends = list(struct.unpack_from("<3I", data))
    quarter = (count + 3) // 4
    symbols, sizes = code
    out, at = bytearray(), 12
    for part in range(4):
        end = at + ends[part] if part < 3 else len(data)
        expect(end <= len(data), "a stream of prefix codes beyond the end")
        missing = min(quarter, count - len(out))
        held = bits = 0
        while missing > 0:
            if bits < 11:
                taken = data[at : min(at + 8, end)]
                held |= int.from_bytes(taken, "little") << bits
                bits, at = bits + 8 * len(taken), at + len(taken)
            size = sizes[held & 2047]
            if size > bits:
                raise Damaged("a stream of prefix codes ends too early")
            out.append(symbols[held & 2047])
            held, bits, missing = held >> size, bits - size, missing - 1
        expect(at == end and bits < 8 and held == 0, "bytes after a stream of prefix codes")
    return bytes(out)


def low_bits(data: bytes, width: int, count: int) -> bytes:
    """`count` numbers of `width` bits (at most 4), a byte each."""
    if width == 0:
        return bytes(count)
    out, mask = bytearray(), (1 << width) - 1
    for at in range(0, len(data), width):  # 8 numbers
        held = int.from_bytes(data[at : at + width], "little")
        out += bytes(held >> shift & mask for shift in range(0, 8 * width, width))
    return bytes(out[:count])


def as_int(data: bytes) -> int:
    return int.from_bytes(data, "little")


def repeated(byte: int, count: int) -> int:
    return as_int(bytes([byte]) * count)


def plane_decode(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    """One plane of `count` bytes of the codec `floats`, and where it ends."""
    expect(at < len(data), "a plane is missing")
    mode, at = data[at], at + 1
    known(mode <= 4, f"mode {mode} of a plane")
    if mode == 0:
        expect(at + count <= len(data), "a stored plane ends too early")
        return data[at : at + count], at + count
    if mode == 1:
        expect(at < len(data), "a constant plane without its value")
        return data[at : at + 1] * count, at + 1
    expect(at + 4 <= len(data), "a plane without its length")
    length = as_int(data[at : at + 4])
    body = data[at + 4 : at + 4 + length]
    expect(len(body) == length, "a plane ends too early")
    at += 4 + length
    if mode == 2:
        table, start = frequency_table(body, 0, 12)
        return rans_decode(body[start:], count, 12, [table]), at
    if mode == 3:
        return zstd_decode(body, count), at
    expect(body and body[0] <= 4, "a prefix-coded plane with more than 4 low bits")
    width = body[0]
    end = 1 + (width * count + 7) // 8
    low = low_bits(body[1:end], width, count)
    expect(len(low) == count, "the low bits of a plane end too early")
    code, start = prefix_code(body, end)
    high = prefix_decode(body[start:], count, code)
    if width == 0:
        return high, at
    expect(max(high, default=0) < 256 >> width, "a prefix-coded byte of more than 8 bits")
    return (as_int(high) << width | as_int(low)).to_bytes(count, "little"), at


def spread(left: bytes, mask: bytes, out: bytes) -> bytes:
    """The bytes of `left`, and between them those of `out` where the mask is set."""
    others = iter(left)
    return bytes(own if mask[i >> 3] >> (i & 7) & 1 else next(others) for i, own in enumerate(out))


def rotated_back(planes: list[bytes], count: int) -> list[bytes]:
    """The planes of elements that were rotated left by one bit, as those of the elements."""
    numbers, low, ones = [as_int(plane) for plane in planes], repeated(0x7F, count), repeated(1, count)
    pairs = zip(numbers, numbers[1:] + numbers[:1])
    return [(own >> 1 & low | (above & ones) << 7).to_bytes(count, "little") for own, above in pairs]


def rotated_elements(data: bytes, at: int, width: int, count: int) -> tuple[bytes, int]:
    """Elements of a plane for every byte, rotated, and where the last plane ends."""
    planes, out = [], bytearray(width * count)
    for _ in range(width):
        plane, at = plane_decode(data, at, count)
        planes.append(plane)
    for g, plane in enumerate(rotated_back(planes, count)):
        out[g::width] = plane
    return bytes(out), at


NORMAL_FLOAT = "bf800000 bf3239b1 bf066b30 beca32a0 be91a24d be3d353f bdba7871 00000000 " \
    "3da2faff 3e24cae3 3e7c04dd 3ead033a 3ee1a4b8 3f1007ab 3f3913b3 3f800000"


def code_numbers(book: int) -> list[float]:
    """The numbers of the 256 codes of a codebook."""
    if book in (1, 4):
        return [-0.0 if code == 0 and book == 4 else code - 128.0 for code in range(256)]
    if book == 2:
        return [struct.unpack(">f", bytes.fromhex(bits))[0] for bits in NORMAL_FLOAT.split()] + [0.0] * 240
    numbers = []
    for code in range(128):
        exponent, fraction = code >> 3, code & 7
        numbers.append(fraction / 512 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10))
    numbers[127] = math.nan
    return numbers + [-number for number in numbers]


def rounded_bytes(product: float, kind: int) -> bytes:
    """A product of FP32 numbers as FP32, then as an element of the kind."""
    bits = 0x7FC00000 if math.isnan(product) else int.from_bytes(singles([product]).tobytes(), sys.byteorder)
    if kind == 3:
        return bits.to_bytes(4, "little")
    return (to_bfloat16(bits) if kind == 1 else to_fp16(bits)).to_bytes(2, "little")


def coded_decode(data: bytes, length: int) -> bytes:
    """Floats that are codes times scales, or numbers of values in a palette."""
    kind, book, at = data[0] & 3, data[0] >> 2 & 31, 1
    known(kind != 0 and book <= 4, f"coded elements of the kind {data[0]}")
    width = 4 if kind == 3 else 2
    count = length // width
    if book == 0:
        expect(len(data) > 1, "a palette without its size")
        size = data[1] + 1
        values, at = data[2 : 2 + size * width], 2 + size * width
        numbers, at = plane_decode(data, at, count)
        expect(max(numbers, default=0) < size and len(values) == size * width, "a number beyond the palette")
        out = b"".join(values[n * width : (n + 1) * width] for n in numbers)
    else:
        group, at = varint(data, at)
        first, at = varint(data, at)
        expect(8 <= group <= 65536 and first < group, f"groups of {group} elements, the first of {first}")
        ends = sorted({min(end, count) for end in range(first or group, count + group, group)}) if count else []
        mask, at = plane_decode(data, at, (len(ends) + 7) // 8)
        expect(as_int(mask) >> len(ends) == 0, "a mask of groups that are not there")
        sizes = [end - start for start, end in zip([0] + ends, ends)]
        other = [mask[i >> 3] >> (i & 7) & 1 for i in range(len(sizes))]
        coded = sum(size for size, is_other in zip(sizes, other) if not is_other)
        scales, at = rotated_elements(data, at, 4, other.count(0))
        codes, at = plane_decode(data, at, coded)
        others, at = rotated_elements(data, at, width, count - coded)
        numbers, made = code_numbers(book), {}
        scale_of, code_at, other_at, parts = iter(struct.unpack(f"<{other.count(0)}f", scales)), 0, 0, []
        for size, is_other in zip(sizes, other):
            if is_other:
                parts.append(others[other_at : other_at + size * width])
                other_at += size * width
                continue
            scale = next(scale_of)
            for code in codes[code_at : code_at + size]:
                if (code, scale) not in made or scale == 0:
                    made[code, scale] = rounded_bytes(numbers[code] * scale, kind)
                parts.append(made[code, scale])
            code_at += size
        out = b"".join(parts)
    expect(len(data) - at == length - len(out), f"floats end with {len(data) - at} bytes")
    return out + data[at:]


def floats_decode(data: bytes, length: int) -> bytes:
    expect(data, "floats without a first byte")
    if data[0] & 128:
        return coded_decode(data, length)
    width, rotated, head, masked = 1 << (data[0] & 3), data[0] & 4, data[0] >> 3 & 7, data[0] & 64
    expect(head < width and head <= length and not ((rotated or masked) and width == 1), f"layout {data[0]} of floats")
    out = bytearray(length)
    out[:head] = data[1 : 1 + head]
    every, at = (length - head) // width, 1 + head
    count, mask = every, b""
    if masked:
        mask, at = plane_decode(data, at, (every + 7) // 8)
        expect(as_int(mask) >> every == 0, "a mask of elements that are not there")
        count -= as_int(mask).bit_count()
    planes = []
    for _ in range(width):
        plane, at = plane_decode(data, at, count)
        planes.append(plane)
    if rotated:
        planes = rotated_back(planes, count)
    end = head + every * width
    for g, plane in enumerate(planes):
        out[head + g : end : width] = spread(plane, mask, bytes(every)) if masked else plane
    expect(len(data) - at == length - end, f"floats end with {len(data) - at} bytes, expected {length - end}")
    out[end:] = data[at:]
    return bytes(out)


def planes_decode(data: bytes, length: int) -> bytes:
    expect(len(data) >= 2, "planes without a head")
    width, mask = data[0], data[1]
    expect(width in (1, 2, 4, 8) and mask < 1 << width, f"planes of width {width} with the mask {mask}")
    compressed = [g for g in range(width) if mask >> g & 1]
    at = 2 + 4 * len(compressed)
    expect(at <= len(data), "planes without their lengths")
    lengths = dict(zip(compressed, struct.unpack_from(f"<{len(compressed)}I", data, 2)))
    count, out = length // width, bytearray(length)
    for g in range(width):
        stored = lengths.get(g, count)
        group = data[at : at + stored]
        expect(len(group) == stored, "a group of planes ends too early")
        out[g : width * count : width] = zstd_decode(group, count) if g in lengths else group
        at += stored
    expect(len(data) - at == length - width * count, "planes do not end where they must")
    out[width * count :] = data[at:]
    return bytes(out)


def bg4_decode(data: bytes, length: int) -> bytes:
    groups, count = lz4_decode(data, length), length // 4
    out = bytearray(groups)
    for g in range(4):
        out[g : 4 * count : 4] = groups[g * count : (g + 1) * count]
    return bytes(out)


@functools.lru_cache(maxsize=1)
def spread_bits() -> list[bytes]:
    """For each byte, its bits, a byte each."""
    return [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]


def bit_planes_decode(data: bytes, length: int) -> bytes:
    expect(data, "bit planes without a width")
    width = data[0]
    known(width in (1, 2, 4, 8), f"bit planes of {width} bytes")
    planes, size, spread = lz4_decode(data[1:], length), length // (8 * width), spread_bits()
    out = bytearray(planes)
    for b in range(width):
        value = 0
        for i in range(8):
            plane = planes[(8 * b + i) * size : (8 * b + i + 1) * size]
            value |= as_int(b"".join(spread[byte] for byte in plane)) << i
        out[b : 8 * width * size : width] = value.to_bytes(8 * size, "little")
    return bytes(out)


def frame_decode(codec: int, data: bytes, length: int) -> bytes:
    decoders = [None, zstd_decode, planes_decode, floats_decode, lz4_decode, bg4_decode, bit_planes_decode]
    known(codec < len(decoders), f"codec {codec}")
    if codec == 0:
        expect(len(data) == length, f"a raw frame of {len(data)} bytes, expected {length}")
        return data
    return decoders[codec](data, length)


# Deltas (section 16): elements as numbers.

ELEMENTS = {1: ("H", 16, 7), 2: ("H", 16, 10), 3: ("I", 32, 23)}  # type code, bits, bits of the fraction
CHUNK_TYPES = {1: 1, 2: 2, 3: 3, 7: 1, 8: 2, 9: 3, 10: 3}


def single(x: float) -> float:
    """Rounded to FP32. A sum or product of two FP32 numbers is exact enough in FP64."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def blend(base: bytes, kind: int, weight: float) -> bytes:
    """The blend of the two halves of the base, element by element."""
    format, arithmetic = kind & 15, kind >> 4
    known(1 <= format <= 3 and arithmetic <= 8, f"blend {kind} of a delta")
    half = len(base) // 2
    first, second = (between_formats(part, format | 3 << 4) if format < 3 else part for part in (base[:half], base[half : 2 * half]))
    other, weight = single(1.0 - weight), single(weight)

    def narrow(x: float) -> int:
        bits = 0x7FC00000 if x != x else struct.unpack("<I", struct.pack("<f", x))[0]
        return to_bfloat16(bits) if format == 1 else to_fp16(bits) if format == 2 else bits

    def rounded(x: float) -> float:
        if x != x or format == 3:
            return x
        bits = narrow(x) << 16 if format == 1 else fp16_table()[narrow(x)]
        return struct.unpack("<f", struct.pack("<I", bits))[0]

    def element(a: float, b: float) -> float:
        if arithmetic == 0:
            return single(single(a * other) + single(b * weight))
        if arithmetic == 1:
            return single(a + single(single(b - a) * weight))
        if arithmetic == 2:
            return single(b - single(single(b - a) * other))
        if arithmetic == 3:
            return single(rounded(single(a * other)) + rounded(single(b * weight)))
        if arithmetic == 4:
            return single(a + rounded(single(rounded(single(b - a)) * weight)))
        if arithmetic == 5:
            return single(rounded(single(a * rounded(other))) + rounded(single(b * rounded(weight))))
        if arithmetic == 6:
            return single(b * weight + single(a * other))
        if arithmetic == 7:
            return single(single(b - a) * weight + a)
        return single(single(a - b) * single(1.0 - weight) + b)

    pairs = zip(numbers(first, "f"), numbers(second, "f"))
    return number_bytes(array("I" if format == 3 else "H", (narrow(element(a, b)) for a, b in pairs)))


def numbers(data: bytes, code: str) -> array:
    values = array(code)
    values.frombytes(data[: len(data) // values.itemsize * values.itemsize])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def number_bytes(values: array) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def to_bfloat16(x: int) -> int:
    """FP32 to BF16, to the nearest, ties to even. What is not a number stays so."""
    if x & 0x7FFFFFFF > 0x7F800000:
        return x >> 16 | 0x40
    return (x + 0x7FFF + (x >> 16 & 1)) >> 16


def to_fp16(x: int) -> int:
    """FP32 to FP16, to the nearest, ties to even. What is not a number stays so."""
    sign, exponent, fraction = x >> 16 & 0x8000, x >> 23 & 255, x & 0x7FFFFF
    if exponent == 255 and fraction:
        return sign | 0x7E00 | fraction >> 13
    if exponent >= 143:
        return sign | 0x7C00
    if exponent < 102:
        return sign
    if exponent < 113:  # subnormal, or rounded to the smallest normal number
        value, shift = fraction | 0x800000, 126 - exponent
    else:
        value, shift = (exponent - 112) << 23 | fraction, 13
    half = value >> shift
    rest, tie = value & ((1 << shift) - 1), 1 << (shift - 1)
    return sign | half + (rest > tie or (rest == tie and half & 1))


def from_fp16(x: int) -> int:
    """FP16 to FP32, exactly."""
    sign, exponent, fraction = (x & 0x8000) << 16, x >> 10 & 31, x & 0x3FF
    if exponent == 31:
        return sign | 0x7F800000 | fraction << 13
    if exponent:
        return sign | (exponent + 112) << 23 | fraction << 13
    if not fraction:
        return sign
    length = fraction.bit_length()
    return sign | (length + 102) << 23 | (fraction << (24 - length) & 0x7FFFFF)


@functools.lru_cache(maxsize=1)
def fp16_table() -> array:
    return array("I", map(from_fp16, range(1 << 16)))


def convert(base: bytes, derivation: int, conversion: int) -> bytes:
    """The whole elements of the base, in the type of the chunk."""
    known(conversion == 0 or (conversion == 1 and derivation == 7), f"conversion {conversion} of a delta")
    if derivation == 9:
        return number_bytes(array("I", (x << 16 for x in numbers(base, "H"))))
    if derivation == 10:
        table = fp16_table()
        return number_bytes(array("I", (table[x] for x in numbers(base, "H"))))
    if conversion == 1:
        return number_bytes(array("H", (x >> 16 for x in numbers(base, "I"))))
    return number_bytes(array("H", map(to_bfloat16 if derivation == 7 else to_fp16, numbers(base, "I"))))


FORMATS = {1: "H", 2: "H", 3: "I", 4: "B", 5: "B"}  # BF16, FP16, FP32, E4M3, E5M2
SMALL = {4: (3, 7, 0x7E), 5: (2, 15, 0x7B)}  # bits of the fraction, bias, greatest finite number


def from_fp8(x: int, kind: int) -> int:
    """FP8 to FP32, exactly."""
    bits, bias, greatest = SMALL[kind]
    sign, size = (x & 0x80) << 24, x & 0x7F
    exponent, fraction = size >> bits, size & ((1 << bits) - 1)
    if size > greatest:
        return sign | 0x7F800000 | fraction << (23 - bits)
    if not exponent:
        if not fraction:
            return sign
        length = fraction.bit_length()
        exponent, fraction = length - bits, fraction << (bits + 1 - length) & ((1 << bits) - 1)
    return sign | (exponent - bias + 127) << 23 | fraction << (23 - bits)


def to_fp8(x: int, kind: int) -> int:
    """FP32 to FP8, to the nearest, ties to even. E4M3 has no infinity."""
    bits, bias, greatest = SMALL[kind]
    sign, size = x >> 24 & 0x80, x & 0x7FFFFFFF
    if size > 0x7F800000:
        return sign | 0x7F
    exponent = max((size >> 23) - 127 + bias, 1)
    value = size & 0x7FFFFF | (0x800000 if size >> 23 else 0)
    shift = 23 - bits + exponent - max(size >> 23, 1) + 127 - bias
    small = value >> shift
    rest, tie = value & ((1 << shift) - 1), 1 << (shift - 1)
    small += rest > tie or (rest == tie and small & 1)
    small += (exponent - 1) << bits
    return sign | (small if small <= greatest else 0x7F if kind == 4 else 0x7C)


def between_formats(base: bytes, formats: int) -> bytes:
    """The whole elements of the base in another format, by way of FP32."""
    source, target = formats & 15, formats >> 4
    known(source in FORMATS and target in FORMATS and source != target, f"formats {formats} of a delta")
    values = numbers(base, FORMATS[source])
    if source == 1:
        values = array("I", (x << 16 for x in values))
    elif source == 2:
        values = array("I", map(fp16_table().__getitem__, values))
    elif source > 3:
        values = array("I", map([from_fp8(x, source) for x in range(256)].__getitem__, values))
    if target > 3:
        return bytes(to_fp8(x, target) for x in values)
    return number_bytes(values) if target == 3 else convert(number_bytes(values), 6 + target, 0)


def context_decode(data: bytes, base: bytes, kind: int) -> bytes:
    code, bits, fraction_bits = ELEMENTS[kind]
    values = numbers(base, code)
    expect(len(data) >= 3, "a context delta without a head")
    exponent, flags, at = data[0], data[1] | data[2] << 8, 3
    expect(flags & 1, "a context delta whose first context has no table")
    tables: list[tuple] = []
    for context in range(16):
        if flags >> context & 1:
            table, at = frequency_table(data, at, 10)
            tables.append(table)
        else:
            tables.append(tables[-1])
    expect(at + 4 <= len(data), "a context delta without its length")
    length = as_int(data[at : at + 4])
    at += 4
    expect(at + length <= len(data), "a context delta ends too early")
    mask = (1 << (bits - 1 - fraction_bits)) - 1
    context_of = bytes(min(max(exponent - of_base, 0), 15) for of_base in range(mask + 1))
    contexts = bytes([context_of[value >> fraction_bits & mask] for value in values])
    tokens = rans_decode(data[at : at + length], len(values), 10, tables, contexts)
    at += length
    held = held_bits = 0
    sign, others, every = 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << bits) - 1
    for i, token in enumerate(tokens):
        if token >= 16:
            kept = (token >> 2) - 2
            if kept > bits - 3:
                raise Damaged(f"token {token} of a delta")
            while held_bits < kept:
                taken = data[at : at + 8]
                expect(taken, "the kept bits of a delta end too early")
                held |= as_int(taken) << held_bits
                held_bits, at = held_bits + 8 * len(taken), at + len(taken)
            token = (4 | token & 3) << kept | held & ((1 << kept) - 1)
            held, held_bits = held >> kept, held_bits - kept
        value = values[i]
        if value & sign:
            value ^= others
        value = value + ((token >> 1) ^ -(token & 1)) & every
        values[i] = value ^ others if value & sign else value
    expect(at == len(data) and held_bits < 8 and held == 0, "bytes after the kept bits of a delta")
    return number_bytes(values)


def masked_decode(data: bytes, base: bytes, kind: int) -> bytes:
    size = 64 * (ELEMENTS[kind][1] // 8)
    groups = (len(base) + size - 1) // size
    mask, at = plane_decode(data, 0, (groups + 7) // 8)
    expect(as_int(mask) >> groups == 0, "a mask of groups that are not there")
    changed = [g for g in range(groups) if mask[g >> 3] >> (g & 7) & 1]
    parts = context_decode(data[at:], b"".join(base[g * size : (g + 1) * size] for g in changed), kind)
    out, at = bytearray(base), 0
    for g in changed:
        count = len(base[g * size : (g + 1) * size])
        out[g * size : g * size + count] = parts[at : at + count]
        at += count
    return bytes(out)


def sparse_numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """A plane of tokens and the bits that they leave out, as numbers, and where these end."""
    tokens, at = plane_decode(data, at, count)
    found, held, held_bits = [], 0, 0
    for token in tokens:
        expect(token < 36, f"token {token} of a gap")
        extra = (token - 4) // 2 + 1 if token >= 4 else 0
        while held_bits < extra:
            expect(at < len(data), "the gaps of a delta end too early")
            held, held_bits, at = held | data[at] << held_bits, held_bits + 8, at + 1
        high = (2 + token % 2) << extra if extra else token
        found.append(high + (held & ((1 << extra) - 1)))
        held, held_bits = held >> extra, held_bits - extra
    return found, at


def sparse_decode(data: bytes, base: bytes, kind: int) -> bytes:
    """Mode 9: gaps between changed elements, and these elements."""
    code, bits, _ = ELEMENTS[kind]
    values = numbers(base, code)
    count, at = varint(data, 0)
    expect(count <= len(values), f"{count} changed elements of {len(values)}")
    gaps, at = sparse_numbers(data, at, count)
    positions, position = [], -1
    for gap in gaps:
        position += 1 + gap
        expect(position < len(values), f"a change of element {position} of {len(values)}")
        positions.append(position)
    expect(at < len(data), "a sparse delta ends too early")
    how, at = data[at], at + 1
    known(how < 3, f"changed elements of kind {how}")
    if how == 0:
        own = number_bytes(array(code, (values[position] for position in positions)))
        changed = list(numbers(context_decode(data[at:], own, kind), code))
    else:
        steps, at = sparse_numbers(data, at, count) if how == 2 else plane_decode(data, at, count)
        expect(at == len(data), "bytes after a sparse delta")
        mask, sign = (1 << bits) - 1, 1 << (bits - 1)
        flip = [sign - 1 if how == 2 and values[position] & sign else 0 for position in positions]
        signed = [-(d // 2 + 1) if d % 2 else d // 2 + 1 for d in steps]
        stepped = [(values[position] ^ inverted) + d & mask for position, inverted, d in zip(positions, flip, signed)]
        changed = [value ^ (sign - 1) if how == 2 and value & sign else value for value in stepped]
    for position, value in zip(positions, changed):
        values[position] = value
    return number_bytes(values)


def pruned_decode(data: bytes, base: bytes, length: int, derivation: int) -> bytes:
    """Mode 7: a mask of elements that became zero, then a payload of the others and the rest of the chunk."""
    code, bits, _ = ELEMENTS[CHUNK_TYPES[derivation]]
    expect(data, "a pruned chunk without its mask")
    flags, at, threshold = data[0], 1, 0
    known(flags < 8 and flags & 3 < 3, f"mask {flags} of a pruned chunk")
    if flags & 3 == 1:
        threshold, at = varint(data, 1)
        expect(threshold < 1 << 32, "a threshold of more than 32 bits")
    common = min(length, len(base)) // (bits // 8) * (bits // 8)
    values = numbers(base[:common], code)
    mask, at = plane_decode(data, at, (len(values) + 7) // 8)
    expect(as_int(mask) >> len(values) == 0, "a mask of elements that are not there")
    marked = [mask[i >> 3] >> (i & 7) & 1 for i in range(len(values))]
    low = (1 << (bits - 1)) - 1
    if flags & 3 == 1:
        marked = [bit ^ (value & low < threshold) for bit, value in zip(marked, values)]
    if flags & 3 == 2:
        for start in range(0, len(values), 4):
            four = [(value & low, -j) for j, value in enumerate(values[start : start + 4])]
            four += [(0, -j) for j in range(len(four), 4)]
            for _, j in sorted(four)[:2]:
                if start - j < len(values):
                    marked[start - j] ^= 1
    left = [i for i, bit in enumerate(marked) if not bit]
    rest = length - common
    data, kept = data[at:], array(code, (values[i] for i in left))
    expect(not data or data[0] != 7, "a pruned chunk in a pruned chunk")
    own = payload_decode(derivation, data, number_bytes(kept), len(left) * bits // 8 + rest)
    for i, value in enumerate(values):
        values[i] = value & ~low if flags & 4 else 0
    for i, value in zip(left, numbers(own[: len(own) - rest], code)):
        values[i] = value
    return number_bytes(values) + own[len(own) - rest :]


def elements_decode(mode: int, data: bytes, base: bytes, length: int, kind: int) -> bytes:
    """Modes 3, 4 and 9: the elements that chunk and base have, then the rest of the chunk."""
    width = ELEMENTS[kind][1] // 8
    common = min(length, len(base)) // width * width
    rest = length - common
    if rest < width:
        own, after = data[: len(data) - rest], data[len(data) - rest :]
        expect(len(after) == rest, "a delta ends too early")
    else:
        size, at = varint(data, 0)
        expect(size <= len(data) - at, "a delta ends too early")
        own, after = data[at : at + size], floats_decode(data[at + size :], rest)
    decode = {3: context_decode, 4: masked_decode, 9: sparse_decode}[mode]
    return decode(own, base[:common], kind) + after


# Quantised blocks (section 16): values of a block, its bytes, its FP16 numbers, its integers of scales and of least
# values, and the parts of its codes as (first byte, end, bits, bytes of a part, lowest bit of a code).

QUANTISED = {
    2: (32, 18, 1, [], [(2, 18, 4, 16, 0)]),
    3: (32, 20, 2, [], [(4, 20, 4, 16, 0)]),
    6: (32, 22, 1, [], [(6, 22, 4, 16, 0), (2, 6, 1, 1, 4)]),
    7: (32, 24, 2, [], [(8, 24, 4, 16, 0), (4, 8, 1, 1, 4)]),
    8: (32, 34, 1, [], [(2, 34, 8, 32, 0)]),
    10: (256, 84, 2, [16, 16], [(16, 80, 2, 32, 0)]),
    11: (256, 110, 1, [16], [(32, 96, 2, 32, 0), (0, 32, 1, 32, 2)]),
    12: (256, 144, 2, [8, 8], [(16, 144, 4, 32, 0)]),
    13: (256, 176, 2, [8, 8], [(48, 176, 4, 32, 0), (16, 48, 1, 32, 4)]),
    14: (256, 210, 1, [16], [(0, 128, 4, 64, 0), (128, 192, 2, 32, 4)]),
}
FLOAT_MAX = 3.4028234663852886e38


def singles(values: Iterable[float]) -> array:
    """The values rounded to FP32."""
    return array("f", values)


def half_at(block: bytearray, at: int) -> float:
    return struct.unpack("<f", from_fp16(block[at] | block[at + 1] << 8).to_bytes(4, "little"))[0]


def put_half(block: bytearray, at: int, value: float) -> None:
    bits = 0x7E00 if value != value else to_fp16(as_int(struct.pack("<f", value)))
    block[at : at + 2] = bits.to_bytes(2, "little")


def small_codes(kind: int, source: int, values: array, block: bytearray) -> list[int]:
    """The codes of a block of 32 values. Scales are computed first, unless they are given."""
    if kind in (3, 7):
        steps = 15 if kind == 3 else 31
        if source == 0:
            d, least = half_at(block, 0), half_at(block, 2)
        else:
            least, greatest = FLOAT_MAX, -FLOAT_MAX
            for x in values:
                least = x if x < least else least
                greatest = x if x > greatest else greatest
            d = singles([singles([greatest - least])[0] / steps])[0]
            put_half(block, 0, d)
            put_half(block, 2, least)
        values, middle = singles(x - least for x in values), 0.5
    else:
        steps, divisor, middle = {2: (15, -8, 8.5), 6: (31, -16, 16.5), 8: (0, 127, 0.0)}[kind]
        if source == 0:
            d = half_at(block, 0)
        else:
            extreme = 0.0
            for x in values:
                extreme = x if abs(x) > abs(extreme) else extreme
            d = singles([(abs(extreme) if kind == 8 else extreme) / divisor])[0]
            put_half(block, 0, d)
    inverse = singles([1 / d])[0] if d != 0 else 0.0
    if kind == 8:
        products = [x if abs(x) < 128 else 0.0 for x in singles(x * inverse for x in values)]
        return [int(abs(x) + 0.5) * (-1 if x < 0 else 1) & 255 for x in products]
    products = [x * inverse for x in values]
    sums = singles(x + middle for x in (products if source == 2 else singles(products)))
    return [min(int(x), steps) if 0 <= x < 256 else 0 for x in sums]


def large_codes(kind: int, values: array, block: bytearray) -> list[int]:
    """The codes of a block of 256 values, given its scales."""
    low, high, size = {10: (0, 3, 16), 11: (-4, 3, 16), 12: (0, 15, 32), 13: (0, 31, 32), 14: (-32, 31, 16)}[kind]
    if kind == 10:
        d, m = half_at(block, 80), half_at(block, 82)
        scales = [(d * (x & 15), m * (x >> 4)) for x in block[:16]]
    elif kind == 11:
        d, s = half_at(block, 108), block[96:108]
        lows = [s[j] & 15 if j < 8 else s[j - 8] >> 4 for j in range(16)]
        scales = [(d * ((lows[j] | (s[8 + j % 4] >> 2 * (j // 4) & 3) << 4) - 32), 0.0) for j in range(16)]
    elif kind == 14:
        d = half_at(block, 208)
        scales = [(d * (x - (x >> 7 << 8)), 0.0) for x in block[192:208]]
    else:
        d, m, s = half_at(block, 0), half_at(block, 2), block[4:16]
        pairs = [(s[j] & 63, s[j + 4] & 63) for j in range(4)]
        pairs += [(s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4) for j in range(4, 8)]
        scales = [(d * one, m * other) for one, other in pairs]
    codes = []
    for number, (scale, least) in enumerate(scales):
        part = values[number * size : (number + 1) * size]
        if scale == 0:
            codes += [0] * size
            continue
        quotients = singles(x / scale for x in singles(x + least for x in part))
        codes += [round(min(x, high)) - low if x > low else 0 for x in quotients]
    return codes


def sub_block_scales(kind: int, values: array) -> list[array]:
    """What the values of each sub-block suggest for its scale and its least value."""
    size, steps = {10: (16, 3), 11: (16, -4), 12: (32, 15), 13: (32, 31), 14: (16, -32)}[kind]
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    spans = [(min([0.0, *(x for x in part if x < 0)]), max([0.0, *(x for x in part if x > 0)])) for part in parts]
    if steps < 0:
        return [singles((b if b > -a else a) / steps for a, b in spans)]
    return [singles(x / steps for x in singles(b - a for a, b in spans)), singles(0.0 - a for a, _ in spans)]


def put_scales(kind: int, values: array, block: bytearray, halves: list[bytes], integers: list[bytes]) -> None:
    """The scales of a block from their differences."""
    top, low, high = {10: (15, 0, 15), 11: (-32, -32, 31), 14: (-128, -128, 127)}.get(kind, (63, 0, 63))
    if kind < 10:
        small_codes(kind, 1, values, block)
    else:
        suggested = sub_block_scales(kind, values)
    numbers = []
    for i, difference in enumerate(halves):
        at = (80, 82)[i] if kind == 10 else {11: 108, 14: 208}.get(kind, 2 * i)
        if kind >= 10:
            extreme = 0.0
            for x in suggested[i]:
                extreme = x if abs(x) > abs(extreme) else extreme
            put_half(block, at, singles([extreme / top])[0])
        bits = as_int(block[at : at + 2]) + unzigzag(as_int(difference)) & 0xFFFF
        block[at : at + 2] = bits.to_bytes(2, "little")
        numbers.append(half_at(block, at))
    sums = []
    for i, differences in enumerate(integers):
        if numbers[i] == 0:
            guesses = [0] * len(differences)
        else:
            quotients = singles(x / numbers[i] for x in suggested[i])
            guesses = [round(min(x, high)) if x > low else low for x in quotients]
            guesses = [x + 32 if kind == 11 else x for x in guesses]
        sums.append([x + y & {10: 15, 14: 255}.get(kind, 63) for x, y in zip(guesses, differences)])
    if kind == 10:
        block[:16] = bytes(x | y << 4 for x, y in zip(*sums))
    elif kind == 11:
        s = sums[0]
        block[96:104] = bytes(s[j] & 15 | (s[j + 8] & 15) << 4 for j in range(8))
        block[104:108] = bytes(sum((s[j + 4 * k] >> 4) << 2 * k for k in range(4)) for j in range(4))
    elif kind == 14:
        block[192:208] = bytes(sums[0])
    elif kind in (12, 13):
        s, m = sums
        block[4:8] = bytes(s[j] | s[j + 4] >> 4 << 6 for j in range(4))
        block[8:12] = bytes(m[j] | m[j + 4] >> 4 << 6 for j in range(4))
        block[12:16] = bytes(s[j] & 15 | (m[j] & 15) << 4 for j in range(4, 8))


def float_values(base: bytes, origin: int, rounding: int) -> array:
    """The whole elements of the base as FP32, rounded to another type first if this says so."""
    base = base[: len(base) // (4 if origin == 3 else 2) * (4 if origin == 3 else 2)]
    for kind_of_float, narrows in ((origin, False), (rounding, True)):
        if kind_of_float in (1, 2):
            base = convert(base, 6 + kind_of_float, 0) if narrows else base
            base = convert(base, 8 + kind_of_float, 0)
    values = array("f")
    values.frombytes(base)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def quotient_code(code: int, quotient: float, numbers_of: list[float]) -> int:
    """The code of a value that was divided by its scale; `numbers_of` are those of NormalFloat."""
    low, high = {1: (-448.0, 448.0), 2: (-57344.0, 57344.0), 3: (-128.0, 127.0), 4: (-8.0, 7.0), 5: (-1.0, 1.0)}[code]
    bounded = 0.0 if quotient != quotient else min(max(quotient, low), high)
    if code == 5:
        return sum(bounded > single((a + b) / 2) for a, b in zip(numbers_of, numbers_of[1:16]))
    return to_fp8(bits_of(bounded), code + 3) if code < 3 else round(bounded) & 255 if code == 3 else round(bounded) + 8


def bits_of(x: float) -> int:
    return as_int(struct.pack("<f", x))


def scaled(data: bytes, base: bytes, length: int) -> tuple[bytes, bytes]:
    """The bytes of codes that follow from the base by scales, and the payload."""
    expect(len(data) >= 6, "codes without a head")
    kind, origin, rounding, division, scale = data[0], data[1] & 3, data[1] >> 2 & 3, data[1] >> 4 & 3, data[1] >> 6
    code, per_byte = kind & 15, 2 if kind & 15 > 3 else 1
    fits = kind < 64 and 0 < code < 6 and (kind < 32 or code in (3, 4)) and (not kind & 16 or per_byte == 2)
    known(fits and origin and rounding < 3 and scale < 3, f"codes {kind} made in the way {data[1]}")
    divisor, at, sizes = struct.unpack("<f", data[2:6])[0], 6, []
    expect(0 < divisor < math.inf, "a divisor that is not above 0")
    for _ in range(4):
        size, at = varint(data, at)
        sizes.append(size)
    columns, rows, width, first = sizes
    is_valid = columns and rows and width and first < columns * rows <= 1 << 40
    expect(is_valid and max(columns, rows, width) <= 1 << 40, "a grid of no or too large tiles")
    values = float_values(base, origin, rounding)[: length * per_byte]
    of_row = -(-columns // width)
    count = ((first + len(values) - 1) // (columns * rows) + 1) * of_row if values else 0
    expect(count <= len(values), "more scales than values")
    tiles = [(p // columns // rows) * of_row + p % columns // width for p in range(first, first + len(values))]
    scales = [0.0] * count
    for tile, value in zip(tiles, values):
        scales[tile] = max(scales[tile], abs(value) if value == value else 0.0)
    narrow = (lambda x: x, to_bfloat16, to_fp16)[scale]
    planes = []
    for _ in range(2 if scale else 4):
        plane, at = plane_decode(data, at, count)
        planes.append(plane)
    for tile, low in enumerate(zip(*planes)):
        bits = narrow(bits_of(single(scales[tile] / divisor))) + (as_int(bytes(low)) >> 1 ^ -(low[0] & 1))
        bits &= 0xFFFF if scale else 0xFFFFFFFF
        bits = (bits, bits << 16, from_fp16(bits & 0xFFFF))[scale]
        found = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
        scales[tile] = found if found and math.isfinite(found) else 1.0
    table, codes, mask = code_numbers(2), [], (128 if code == 3 else 8) if kind & 32 else 0
    for tile, value in zip(tiles, values):
        quotient = value * single(1 / scales[tile]) if division == 3 else value / scales[tile]
        quotient = single(quotient)
        if division in (1, 2) and quotient == quotient:
            bits = (to_bfloat16, to_fp16)[division - 1](bits_of(quotient))
            bits = bits << 16 if division == 1 else from_fp16(bits)
            quotient = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
        codes.append(quotient_code(code, quotient, table) ^ mask)
    if per_byte == 1:
        return bytes(codes), data[at:]
    shifts = (4, 0) if kind & 16 else (0, 4)
    return bytes(sum(c << s for c, s in zip(codes[i : i + 2], shifts)) for i in range(0, len(codes), 2)), data[at:]


def quantised(data: bytes, base: bytes, length: int) -> tuple[bytes, bytes, bytes, bytes]:
    """The bytes before the whole blocks, the blocks that follow from the base, the bytes after them, the payload."""
    expect(len(data) >= 2, "quantised blocks without a head")
    kind, origin, rounding, source = data[0], data[1] & 3, data[1] >> 2 & 3, data[1] >> 4
    sources = (0,) if kind >= 10 else (0, 1, 2) if kind in (2, 6) else (0, 1)
    is_known = kind in QUANTISED and origin and rounding < 3 and source in sources
    known(is_known, f"quantised blocks of type {kind} made in the way {data[1]}")
    count, size, halves, integers, parts = QUANTISED[kind]
    head, at = varint(data, 2)
    expect(head < size and head <= length, f"{head} bytes before a quantised block")
    blocks = min((length - head) // size, len(base) // (4 if origin == 3 else 2) // count)
    end = at + length - blocks * size
    expect(end <= len(data), "quantised blocks end too early")
    before, after, at = data[at : at + head], data[at + head : end], end
    made = bytearray(blocks * size)
    planes = []
    for width in [*[1] * (2 * halves), *integers] if source == 0 else []:
        plane, at = plane_decode(data, at, blocks * width)
        planes.append([plane[width * i : width * (i + 1)] for i in range(blocks)])
    values = float_values(base[: blocks * count * (4 if origin == 3 else 2)], origin, rounding)
    for number in range(blocks):
        block, own = made[number * size : (number + 1) * size], values[number * count : (number + 1) * count]
        if source == 0:
            rows = [plane[number] for plane in planes]
            pairs = [rows[2 * i] + rows[2 * i + 1] for i in range(halves)]
            put_scales(kind, own, block, pairs, rows[2 * halves :])
        codes = large_codes(kind, own, block) if kind >= 10 else small_codes(kind, source, own, block)
        for start, stop, bits, width, lowest in parts:
            for i in range(start, stop):
                first = (i - start) // width * width * (8 // bits) + (i - start) % width
                taken = codes[first : first + width * (8 // bits) : width]
                block[i] = sum((code >> lowest & (1 << bits) - 1) << bits * j for j, code in enumerate(taken))
        made[number * size : (number + 1) * size] = block
    return before, bytes(made), after, data[at:]


def classes_decode(data: bytes, base: bytes, length: int) -> bytes:
    """Mode 8: differences of bytes or nibbles by the classes of those of the base."""
    expect(data, "classes without the type of their blocks")
    kind, at = data[0], 1
    known(kind == 0 or kind in QUANTISED, f"quantised blocks of type {kind}")
    before = after = b""
    made, wanted, codes = bytearray(length), bytearray(base[:length].ljust(length, b"\0")), range(length)
    if kind:
        _, size, halves, _, parts = QUANTISED[kind]
        head, at = varint(data, at)
        expect(head < size and head <= length, f"{head} bytes before a whole block")
        blocks = max(0, min(length, len(base)) - head) // size
        rest = length - head - blocks * size
        before, after, at = data[at : at + head], data[at + head : at + head + rest], at + head + rest
        expect(len(before) + len(after) == head + rest, "classes end in the bytes outside of blocks")
        made, wanted = bytearray(blocks * size), base[head : head + blocks * size]
        in_codes = {i for start, stop, *_ in parts for i in range(start, stop)}
        numbers_at = {10: [80, 82], 11: [108], 14: [208]}.get(kind, [0, 2][:halves])
        others = [i for i in range(size) if i not in in_codes and i not in numbers_at and i - 1 not in numbers_at]
        for i in numbers_at:
            low, at = plane_decode(data, at, blocks)
            high, at = plane_decode(data, at, blocks)
            for number, (one, other) in enumerate(zip(low, high)):
                coded, first = one | other << 8, number * size + i
                value = as_int(wanted[first : first + 2]) + ((coded >> 1) ^ -(coded & 1)) & 0xFFFF
                made[first : first + 2] = value.to_bytes(2, "little")
        plane, at = plane_decode(data, at, blocks * len(others))
        for i, difference in zip((n * size + i for n in range(blocks) for i in others), plane):
            made[i] = wanted[i] + difference & 255
        codes = [n * size + i for n in range(blocks) for i in range(size) if i in in_codes]
    expect(at < len(data), "classes without their kind")
    nibbles, at = data[at], at + 1
    known(nibbles <= 1, f"classes of the kind {nibbles}")
    values = 16 if nibbles else 256
    mask, at = as_int(data[at : at + values // 8]), at + values // 8
    expect(mask & 1 and mask.bit_count() <= 16, "classes that do not begin with 0, or too many")
    class_of = [(mask & (2 << value) - 1).bit_count() - 1 for value in range(values)]
    tables = []
    for _ in range(mask.bit_count()):
        table, at = frequency_table(data, at, 10)
        tables.append(table)
    own = [wanted[i] for i in codes]
    if nibbles:
        contexts = bytes(class_of[b & 15] for b in own) + bytes(class_of[b >> 4] for b in own)
        found = rans_decode(data[at:], len(contexts), 10, tables, contexts)
        pairs = zip(own, found[: len(own)], found[len(own) :])
        joined = [b + low & 15 | ((b >> 4) + high & 15) << 4 for b, low, high in pairs]
    else:
        found = rans_decode(data[at:], len(own), 10, tables, bytes(class_of[b] for b in own))
        joined = [b + difference & 255 for b, difference in zip(own, found)]
    for i, code in zip(codes, joined):
        made[i] = code
    return before + bytes(made) + after


LISTED = (7, 8, 9, 11, 12)  # fields of nodes that have a column; the first three are times
STEPS = ("left out", "same", "new", "renewed", "changed")


def column_numbers(data: bytes):
    """The numbers of a column. Takes the base's number and the time of the node."""
    at, left, difference, equal, old, number = 1, 0, 0, 0, 0, 0
    known(not data or data[0] <= 3, "the suggestion of a column")
    asked = yield 0
    while asked is not None:
        base, time = asked
        if data:
            if left == 0:
                group, at = varint(data, at)
                left, equal = group // 2 + 1, group % 2
                if equal:
                    difference, at = varint(data, at)
            if not equal:
                difference, at = varint(data, at)
            left -= 1
            suggested = (base, number, number + base - old, time)[data[0]]
            number, old = suggested + (difference >> 1 ^ -(difference & 1)) & (1 << 64) - 1, base
        else:
            number = base
        asked = yield number
    expect(left == 0 and at == max(len(data), 1), "numbers of a column are left")
    yield 0


def node_fields(node: bytes) -> dict[int, bytes]:
    """The fields of a node by their keys, each as CBOR."""
    count, at = node[0] & 31, 1
    if count == 24:
        count, at = node[1], 2
    fields = {}
    for _ in range(count):
        key, start = cbor_item(node, at)
        _, at = cbor_item(node, start)
        fields[key] = node[start:at]
    expect(at == len(node), "bytes after the fields of a node")
    return fields


def listing_decode(data: bytes, base: bytes, length: int) -> bytes:
    parts, at = [], 0
    for _ in range(1 + len(LISTED)):
        size, at = varint(data, at)
        expect(size <= len(data) - at, "a listing delta ends too early")
        parts.append(data[at : at + size])
        at += size
    columns = [column_numbers(part) for part in parts[1:]]
    for column in columns:
        next(column)
    out, base_at, step_at = bytearray(), 0, 0

    def record(source: bytes, at: int) -> tuple[bytes, int, int]:
        size, start = varint(source, at)
        expect(size <= len(source) - start, "a node of a listing delta ends too early")
        return source[start : start + size], start, start + size

    while step_at < len(parts[0]):
        step, step_at = varint(parts[0], step_at)
        known(step % 8 < len(STEPS), f"step {step % 8} of a listing delta")
        kind = STEPS[step % 8]
        for _ in range(step // 8 + 1):
            if kind == "new":
                start = at
                _, _, at = record(data, at)
                out += data[start:at]
            else:
                start = base_at
                node, _, base_at = record(base, base_at)
                if kind == "same":
                    out += base[start:base_at]
                elif kind != "left out":
                    fields = node_fields(node)
                    time = 0
                    for column, key in zip(columns, LISTED):
                        if key not in fields:
                            continue
                        value, _ = cbor_item(fields[key], 0)
                        is_time = isinstance(value, list)
                        number = value[0] * 10**9 + value[1] if is_time else value
                        number = column.send((number & (1 << 64) - 1, time))
                        if key == 7:
                            time = number
                        if is_time:
                            seconds, nanoseconds = divmod(number - (number >> 63 << 64), 10**9)
                            fields[key] = cbor_encode([seconds, nanoseconds])
                        else:
                            fields[key] = cbor_encode(number)
                    if kind == "changed":
                        count, at = varint(data, at)
                        for _ in range(count):
                            key, at = varint(data, at)
                            fields[key], _, at = record(data, at)
                    kept = sorted((key, value) for key, value in fields.items() if value)
                    map_head = bytes([0xA0 + len(kept)] if len(kept) < 24 else [0xB8, len(kept)])
                    made = map_head + b"".join(cbor_encode(key) + value for key, value in kept)
                    size = len(made)
                    while size >= 0x80:
                        out.append(size & 0x7F | 0x80)
                        size >>= 7
                    out.append(size)
                    out += made
            expect(len(out) <= length, "a listing delta makes too many bytes")
    for column in columns:
        column.send(None)
    expect(at == len(data) and len(out) == length, "a listing delta of another length")
    return bytes(out)


def delta_decode(data: bytes, base: bytes, length: int) -> bytes:
    """A chunk of `length` bytes from the literal bytes of its entry and its base content."""
    expect(data, "a delta without a first byte")
    derivation, phase, at = data[0] & 15, data[0] >> 4, 1
    if derivation == 15:
        derivation, at = varint(data, 1)
    known(1 <= derivation <= 14 and phase <= 7, f"derivation {derivation} with phase {phase}")
    head = data[at : at + phase]
    expect(len(head) == phase <= length, "a delta ends in its first bytes")
    data, base, length = data[at + phase :], base[phase:], length - phase
    if derivation == 11:
        before, base, after, data = quantised(data, base, length)
        return head + before + payload_decode(5, data, base, len(base)) + after
    if derivation == 12:
        expect(data, "a delta without its formats")
        kind = data[0] >> 4
        return head + payload_decode(kind if kind < 4 else 5, data[1:], between_formats(base, data[0]), length)
    if derivation == 13:
        expect(len(data) >= 9, "a delta without its blend")
        base = blend(base, data[0], struct.unpack("<d", data[1:9])[0])
        return head + payload_decode(data[0] & 15, data[9:], base, length)
    if derivation == 14:
        base, data = scaled(data, base, length)
        return head + payload_decode(5, data, base, length)
    if derivation >= 7:
        expect(data, "a delta without its conversion")
        base, data = convert(base, derivation, data[0]), data[1:]
    return head + payload_decode(derivation, data, base, length)


def payload_decode(derivation: int, data: bytes, base: bytes, length: int) -> bytes:
    """A payload in any mode, with the converted base."""
    expect(data, "a delta without its mode")
    mode, data = data[0], data[1:]
    known(mode <= 10, f"mode {mode} of a delta")
    if mode == 0:
        expect(not data and length <= len(base), "a delta without changes that is no part of its base")
        return base[:length]
    if mode in (3, 4, 9):
        expect(derivation in CHUNK_TYPES, f"mode {mode} of a delta with derivation {derivation}")
        return elements_decode(mode, data, base, length, CHUNK_TYPES[derivation])
    if mode in (8, 10):
        known(derivation in (5, 6), f"mode {mode} of a delta with derivation {derivation}")
        return classes_decode(data, base, length) if mode == 8 else listing_decode(data, base, length)
    if mode == 7:
        known(derivation in CHUNK_TYPES, f"mode {mode} of a delta with derivation {derivation}")
        return pruned_decode(data, base, length, derivation)
    content = zstd_decode(data, length) if mode == 2 else floats_decode(data, length)
    if mode == 1:
        return content
    base = base[:length].ljust(length, b"\0")
    if mode in (2, 5):
        return (as_int(content) ^ as_int(base)).to_bytes(length, "little")
    low, a, b = repeated(0x7F, length), as_int(content), as_int(base)  # bytewise sums, without carries
    return ((a & low) + (b & low) ^ (a ^ b) & ~low).to_bytes(length, "little")


# The store: blobs below a directory, sealed or not (sections 2, 3, 18).


class Blob:
    """Bytes of a stored file."""

    def __init__(self, path: str):
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Lost(f"{path} is missing") from None
        except OSError as error:
            raise Lost(f"{path}: {error.strerror}") from None
        self.size = os.fstat(self.descriptor).st_size

    def __enter__(self) -> Blob:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def stored(self, offset: int, length: int) -> bytes:
        pieces = []
        try:
            while length and (piece := os.pread(self.descriptor, min(length, 64 * MIB), offset)):
                pieces.append(piece)
                offset, length = offset + len(piece), length - len(piece)
        except OSError as error:
            raise Lost(f"{self.path}: cannot read at byte {offset}: {error.strerror}") from None
        expect(length == 0, f"{self.path}: ends at byte {offset}, expected {length} more bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read(self, offset: int, length: int) -> bytes:
        return self.stored(offset, length)

    def hash(self) -> str:
        """BLAKE3 of the stored bytes."""
        hasher = blake3()
        size = os.fstat(self.descriptor).st_size
        for offset in range(0, size, 4 * MIB):
            hasher.update(self.stored(offset, min(4 * MIB, size - offset)))
        return hasher.hexdigest()


HEADER_BYTES, SEALED_BYTES, TAG_BYTES = 64, 16384, 16


def cipher_of(number: int, key: bytes) -> object:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    known(number in (1, 2), f"cipher {number}")
    return AESGCM(key) if number == 1 else ChaCha20Poly1305(key)


class Sealed(Blob):
    """A blob of an encrypted repository, decrypted."""

    def __init__(self, path: str, directory: str, masters: dict[int, list[bytes]]):
        super().__init__(path)
        try:
            self.open(directory, masters)
        except BaseException:
            os.close(self.descriptor)
            raise

    def open(self, directory: str, masters: dict[int, list[bytes]]) -> None:
        self.header = self.stored(0, HEADER_BYTES)
        stored, self.size, self.ciphers = self.size, *open_seal(self.header, directory, masters, self.path)
        blocks = max(1, -(-self.size // SEALED_BYTES))
        wanted = HEADER_BYTES + self.size + TAG_BYTES * blocks
        expect(stored == wanted, f"{self.path}: {stored} bytes, expected {wanted}")

    def block(self, number: int) -> bytes:
        length = min(SEALED_BYTES, self.size - number * SEALED_BYTES)
        stored = self.stored(HEADER_BYTES + number * (SEALED_BYTES + TAG_BYTES), length + TAG_BYTES)
        for cipher in self.ciphers:
            try:
                content = decrypt(cipher, number, stored, self.header)
                self.ciphers = [cipher]
                return content
            except Damaged:
                continue
        raise Damaged(f"{self.path}: the tag of block {number} is wrong")

    def read(self, offset: int, length: int) -> bytes:
        expect(offset + length <= self.size, f"{self.path}: ends at byte {self.size}, expected {offset + length}")
        first = offset // SEALED_BYTES
        blocks = [self.block(number) for number in range(first, -(-(offset + length) // SEALED_BYTES))]
        return b"".join(blocks)[offset - first * SEALED_BYTES :][:length]


def open_seal(header: bytes, directory: str, masters: dict[int, list[bytes]], what: str) -> tuple[int, list]:
    """The length of a sealed blob, and its cipher with each master key of its generation."""
    magic, version, cipher, zero, generation, length = struct.unpack_from("<8sHBBIQ", header)
    expect(magic == b"FHRDSEAL", f"{what}: begins with {magic!r}, expected FHRDSEAL")
    expect(blake3(header[:56]).digest()[:8] == header[56:64], f"{what}: the checksum of the header is wrong")
    known(version == 1 and zero == 0, f"{what}: version {version}")
    if generation not in masters:
        raise Lost(f"{what}: needs the master key of generation {generation}, which this secret does not open")
    material = header[24:56] + directory.encode()
    keys = [derive("fhrd 2026-11 sealed blob", master + material) for master in masters[generation]]
    return length, [cipher_of(cipher, key) for key in keys]


def open_envelope(blob: bytes, kind: bytes, what: str) -> bytes:
    """The payload of an envelope."""
    expect(len(blob) >= 66 and blake3(blob[:-32]).digest() == blob[-32:], f"{what}: the checksum is wrong")
    magic, version, required, _, length = struct.unpack_from("<8sHQQQ", blob)
    expect(magic == kind, f"{what}: begins with {magic!r}, expected {kind!r}")
    known(version == 1 and required == 0, f"{what}: version {version} with feature bits {required:#x}")
    expect(len(blob) == 66 + length, f"{what}: {len(blob)} bytes, expected {66 + length}")
    return blob[34:-32]


def open_slot(slot: dict, password: bytes | None, key_file: bytes | None) -> dict | None:
    """The keyring of a key slot, if one of the secrets opens it."""
    if slot[0] == 1 and password is not None:
        memory, passes, lanes = list_of(slot.get(4, []), int, "costs of a key slot")
        expect(memory <= 1 << 20 and passes <= 16 and lanes <= 16, "the costs of a key slot are beyond their limits")
        key = argon2id(password, slot[3], memory, passes, lanes)
    elif slot[0] == 2 and key_file is not None:
        key = derive("fhrd 2026-11 key file", blake3(key_file).digest() + slot[3])
    else:
        return None
    if slot[6] != derive("fhrd 2026-11 key slot commitment", key + slot[3]):
        return None
    cipher = cipher_of(slot[5], derive("fhrd 2026-11 key slot", key + slot[3]))
    associated = cbor_encode({**slot, 7: b""})
    return cbor(decrypt(cipher, 0, slot[7], associated), "the keyring")


def decrypt(cipher: object, nonce: int, data: bytes, associated: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce.to_bytes(12, "little"), data, associated)
    except InvalidTag:
        raise Damaged("the tag is wrong") from None


def argon2id(password: bytes, salt: bytes, memory: int, passes: int, lanes: int) -> bytes:
    try:
        from argon2.low_level import Type, hash_secret_raw
    except ImportError:
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        return Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory).derive(password)
    return hash_secret_raw(password, salt, passes, memory, lanes, 32, Type.ID, 0x13)


class Store:
    """The blobs of a repository, its identity and its keys."""

    def __init__(self, root: str):
        self.root = root
        self.masters: dict[int, list[bytes]] | None = None
        problems = []
        for name in ("config", "config-copy"):
            try:
                with Blob(os.path.join(root, name)) as blob:
                    expect(blob.size <= MIB, f"{blob.path}: more than 1 MiB")
                    payload = open_envelope(blob.stored(0, blob.size), b"FHRDCONF", blob.path)
                required = {0: bytes, 2: str, 3: dict, 4: dict}
                self.config = fields(cbor(payload, name), name, required, {1: bytes, 5: dict})
                break
            except Lost as error:
                problems.append(str(error))
        else:
            raise Refused("no repository: " + "; ".join(problems))
        self.config_payload = payload
        self.is_encrypted = 1 not in self.config
        self.key = self.config.get(1, b"")
        if not self.is_encrypted and len(self.key) != 32:
            raise Refused(f"{name}: a key of {len(self.key)} bytes, expected 32")

    def unlock(self, password: bytes | None, key_file: bytes | None) -> None:
        """Opens all key slots that the secrets open, and merges their keyrings."""
        commitment = fields(self.config.get(5), "config key 5", {1: bytes}, {})[1]
        masters: dict[int, set[bytes]] = {}
        problems = []
        for name in self.names("keys", "[0-9a-f]{64}"):
            try:
                keyring = self.open_slot(name, password, key_file)
            except Lost as error:
                problems.append(str(error))
                continue
            if keyring is None:
                continue
            first = min(keyring[2], key=lambda master: master[0])[1]
            fits = commitment == derive("fhrd 2026-11 keyring commitment", first + keyring[0])
            if not fits or keyring[1] != blake3(self.config_payload).digest():
                problems.append(f"keys/{name}: belongs to another repository")
                continue
            self.key = keyring[0]
            for master in keyring[2] + keyring.get(3, []):
                masters.setdefault(master[0], set()).add(master[1])
        if not masters:
            raise Refused("; ".join(["no key slot opens with this secret", *problems]))
        for problem in problems:
            print(f"note: {problem}", file=sys.stderr)
        self.masters = {generation: sorted(keys) for generation, keys in masters.items()}

    def open_slot(self, name: str, password: bytes | None, key_file: bytes | None) -> dict | None:
        """The keyring of the slot `name`, from its copy if it is damaged."""
        problems = []
        for directory in ("keys", "key-copies"):
            path = os.path.join(self.root, directory, name)
            try:
                with Blob(path) as blob:
                    expect(blob.size <= MIB, f"{path}: more than 1 MiB")
                    content = blob.stored(0, blob.size)
                expect(blake3(content).hexdigest() == name, f"{path}: its BLAKE3 is not its name")
            except Lost as error:
                problems.append(str(error))
                continue
            payload = cbor(open_envelope(content, b"FHRDKEYS", path), path)
            slot = fields(payload, path, {0: int}, {3: bytes, 4: list, 5: int, 6: bytes, 7: bytes})
            known(slot[0] in (1, 2), f"{path}: kind {slot[0]}")
            slot = fields(slot, path, {3: bytes, 5: int, 6: bytes, 7: bytes}, {})
            with within(path):
                keyring = open_slot(slot, password, key_file)
            if keyring is not None:
                self.check_keyring(keyring, path)
            return keyring
        raise Damaged("; ".join(problems))

    def check_keyring(self, keyring: dict, path: str) -> None:
        fields(keyring, path, {0: bytes, 1: bytes, 2: list}, {3: list})
        expect(keyring[2] and len(keyring[2] + keyring.get(3, [])) <= 4096, f"{path}: no usable number of keys")
        for master in keyring[2] + keyring.get(3, []):
            fields(master, path, {0: int, 1: bytes}, {})

    def names(self, directory: str, pattern: str) -> list[str]:
        """The names in a directory of the repository, sorted."""
        try:
            found = os.listdir(os.path.join(self.root, directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            print(f"note: {directory}: {error.strerror}", file=sys.stderr)
            return []
        return sorted(name for name in found if re.fullmatch(pattern, name))

    def blob(self, name: str) -> Blob:
        path = os.path.join(self.root, name)
        if not self.is_encrypted:
            return Blob(path)
        return Sealed(path, name.split("/")[0], self.masters or {})

    def unseal(self, content: bytes, directory: str, what: str) -> bytes:
        """The blob in stored bytes that are in memory."""
        if not self.is_encrypted:
            return content
        expect(len(content) >= HEADER_BYTES, f"{what}: {len(content)} bytes are no sealed blob")
        length, ciphers = open_seal(content[:HEADER_BYTES], directory, self.masters or {}, what)
        for cipher in ciphers:
            try:
                opened = b""
                for number, at in enumerate(range(HEADER_BYTES, len(content), SEALED_BYTES + TAG_BYTES)):
                    piece = content[at : at + SEALED_BYTES + TAG_BYTES]
                    opened += decrypt(cipher, number, piece, content[:HEADER_BYTES])
            except Damaged:
                continue
            expect(len(opened) == length, f"{what}: {len(opened)} bytes, expected {length}")
            return opened
        raise Damaged(f"{what}: a tag is wrong")

    def containers(self) -> list[str]:
        found = []
        for directory in self.names("containers", "[0-9a-f]{2}"):
            found += self.names(f"containers/{directory}", directory + "[0-9a-f]{62}")
        return found


# Containers and their indexes (sections 5 and 6).


def section(data: bytes, at: int, length_max: int) -> tuple[bytes, int]:
    parts, at = varint(data, at)
    expect(parts <= 4096, f"{parts} parts of a section")
    out = bytearray()
    for _ in range(parts):
        expect(at < len(data), "a container index ends in a section")
        codec = data[at]
        length, at = varint(data, at + 1)
        stored, at = varint(data, at)
        known(codec <= 1, f"codec {codec} of a container index")
        expect(length <= 262144 and stored <= 524288 and len(out) + length <= length_max, "a section is too long")
        part = data[at : at + stored]
        expect(len(part) == stored and (codec or stored == length), "a part of a section ends too early")
        out += zstd_decode(part, length) if codec else part
        at += stored
    return bytes(out), at


class Container:
    """The index of a container."""

    def __init__(self, store: Store, name: str):
        self.name = name
        with store.blob(f"containers/{name[:2]}/{name}") as blob:
            expect(blob.size >= 128, f"{blob.path}: {blob.size} bytes are no container")
            footer = blob.read(blob.size - 64, 64)
            header = blob.read(0, 64)
            right = footer[56:] == b"FHRDFOOT" and blake3(footer[:48]).digest()[:8] == footer[48:56]
            expect(right, f"{blob.path}: the checksum of the footer is wrong")
            expect(sum16(header[:48]) == header[48:], f"{blob.path}: the checksum of the header is wrong")
            magic, version, kind, required, _, generation = struct.unpack_from("<8sHHQQI", header)
            expect(magic == b"FHRDCONT", f"{blob.path}: begins with {magic!r}, expected FHRDCONT")
            is_known = version == 1 and kind <= 1 and required == 0 and generation == 0
            known(is_known, f"{blob.path}: version {version}, kind {kind}, bits {required:#x}, key {generation}")
            offset, length, entries, frames, checksum, padding = struct.unpack_from("<QQII16sQ", footer)
            expect(length <= INDEX_MAX and entries <= ENTRIES_MAX and frames <= ENTRIES_MAX, f"{blob.path}: too much")
            expect(64 <= offset and offset + length + 64 == blob.size, f"{blob.path}: no place for the index")
            index = blob.read(offset, length)
        with within(blob.path):
            expect(sum16(index) == checksum, "the checksum of the container index is wrong")
            self.parse(index, entries, frames, offset - padding)

    def parse(self, data: bytes, entries: int, frames: int, frames_end: int) -> None:
        limits = (21 * frames, 10 + 40 * BASES_MAX, 32 * entries, 70 * entries, min(448 * entries, 7 * FEATURES_MAX))
        sections, at = [], 0
        for limit in (*limits, 10 + 13 * OPERATIONS_MAX):
            content, at = section(data, at, limit)
            sections.append(content)
        expect(at == len(data), "bytes after the sections of the container index")
        self.parse_frames(sections[0], frames, frames_end)
        count, at = varint(sections[1], 0)
        expect(count <= BASES_MAX and len(sections[1]) == at + 40 * count, f"{count} bases do not fit their section")
        self.bases, self.base_count = sections[1][at:], count
        expect(len(sections[2]) == 32 * entries, f"{entries} fingerprints do not fit their section")
        self.fingerprints, self.count = sections[2], entries
        features = self.parse_entries(sections[3], entries)
        expect(len(sections[4]) == 7 * features, f"{features} features do not fit their section")
        self.parse_operations(sections[5])
        self.checked = bytearray(entries)
        kept = (self.codecs, self.raw, self.stored, self.offsets, self.lengths, self.literals, self.entry_frames)
        kept += (self.literal_offsets, self.first_operation, self.kinds, self.op_lengths, self.op_bases)
        self.memory = len(self.bases) + len(self.fingerprints) + sum(8 * len(column) for column in kept) + 4096

    def parse_frames(self, data: bytes, count: int, end: int) -> None:
        self.codecs, self.raw, self.stored = bytearray(), array("I"), array("I")
        self.offsets, offset, at = array("Q"), 64, 0
        for _ in range(count):
            expect(at < len(data), "the list of frames ends too early")
            self.codecs.append(data[at])
            raw, at = varint(data, at + 1)
            stored, at = varint(data, at)
            expect(raw <= FRAME_MAX and stored <= STORED_MAX, f"a frame of {raw} bytes, stored as {stored}")
            self.raw.append(raw)
            self.stored.append(stored)
            self.offsets.append(offset)
            offset += 32 + stored
        expect(at == len(data) and offset == end, f"the frames end at byte {offset}, expected {end}")

    def parse_entries(self, data: bytes, count: int) -> int:
        columns, at = [], 0
        for _ in range(7):
            column, at = varints(data, at, count)
            columns.append(column)
        expect(at == len(data), "bytes after the list of entries")
        lengths, copied, frame_steps, offset_steps, depths, operations, features = columns
        self.lengths, self.literals = array("I"), array("I")
        self.entry_frames, self.literal_offsets, self.first_operation = array("q"), array("q"), array("I", [0])
        frame = end = 0
        for i in range(count):
            literal = lengths[i] - copied[i]
            step = unzigzag(frame_steps[i])
            offset = unzigzag(offset_steps[i]) + (0 if step else end)
            frame += step
            expect(lengths[i] <= CHUNK_MAX and literal >= 0, f"entry {i}: {lengths[i]} bytes, {literal} literal")
            expect(1 <= depths[i] <= NESTED_MAX and features[i] <= 64, f"entry {i}: depth or features")
            if literal:
                expect(0 <= frame < len(self.raw), f"entry {i}: no frame {frame}")
                expect(0 <= offset and offset + literal <= self.raw[frame], f"entry {i}: beyond its frame")
            expect(abs(frame) < 1 << 62 and abs(offset) < 1 << 62, f"entry {i}: no frame {frame}")
            end = offset + literal
            self.lengths.append(lengths[i])
            self.literals.append(literal)
            self.entry_frames.append(frame)
            self.literal_offsets.append(offset)
            total = self.first_operation[-1] + operations[i]
            expect(total <= OPERATIONS_MAX, "too many operations")
            self.first_operation.append(total)
        return sum(features)

    def parse_operations(self, data: bytes) -> None:
        count, at = varint(data, 0)
        expect(count == self.first_operation[-1], f"{count} operations, expected {self.first_operation[-1]}")
        self.kinds = data[at : at + count]
        expect(len(self.kinds) == count, "the list of operations ends too early")
        lengths, at = varints(data, at + count, count)
        expect(all(1 <= length <= CHUNK_MAX for length in lengths), "the length of an operation")
        with_base = [i for i in range(count) if 1 <= self.kinds[i] <= 127]
        base_steps, at = varints(data, at, len(with_base))
        offset_steps, at = varints(data, at, len(with_base))
        expect(at == len(data), "bytes after the list of operations")
        self.op_lengths = array("I", lengths)
        self.op_bases, self.op_offsets = array("i", bytes(4 * count)), array("I", bytes(4 * count))
        base = end = 0
        for i, base_step, offset_step in zip(with_base, base_steps, offset_steps):
            base, offset = base + unzigzag(base_step), end + unzigzag(offset_step)
            end = offset + lengths[i]
            expect(0 <= base < self.base_count, f"operation {i}: no base {base}")
            expect(0 <= offset and end <= CHUNK_MAX, f"operation {i}: beyond any base")
            self.op_bases[i], self.op_offsets[i] = base, offset

    def fingerprint(self, entry: int) -> bytes:
        return self.fingerprints[32 * entry : 32 * entry + 32]

    def operations(self, entry: int) -> range:
        return range(self.first_operation[entry], self.first_operation[entry + 1])

    def base(self, operation: int) -> tuple[bytes, int]:
        """Fingerprint and operations digest."""
        at = 40 * self.op_bases[operation]
        return self.bases[at : at + 32], as_int(self.bases[at + 32 : at + 40])

    def digest(self, entry: int) -> int:
        """The operations digest of an entry."""
        operations = self.operations(entry)
        if not operations:
            return 0
        hasher = blake3()
        for i in operations:
            hasher.update(struct.pack("<BI", self.kinds[i], self.op_lengths[i]))
            if 1 <= self.kinds[i] <= 127:
                at = 40 * self.op_bases[i]
                hasher.update(self.bases[at : at + 40] + struct.pack("<I", self.op_offsets[i]))
        return as_int(hasher.digest(length=8)) or 1

    def is_delta(self, entry: int) -> bool:
        operations = self.operations(entry)
        return bool(operations) and self.kinds[operations[0]] == DELTA

    def check(self, entry: int) -> None:
        """Whether the operations of an entry are known, and make it."""
        if self.checked[entry]:
            return
        kinds = [self.kinds[i] for i in self.operations(entry)]
        lengths = [self.op_lengths[i] for i in self.operations(entry)]
        for kind in kinds:
            known(kind <= DELTA, f"kind {kind} of an operation")
        if not kinds:
            expect(self.lengths[entry] == self.literals[entry], "an entry without operations is not whole")
        elif DELTA in kinds:
            expect(all(kind == DELTA for kind in kinds), "an entry is a delta only in part")
            expect(sum(lengths) <= BASE_CONTENT_MAX, "a delta with too much base content")
        else:
            added = sum(length for kind, length in zip(kinds, lengths) if kind == ADD)
            right = sum(lengths) == self.lengths[entry] and added == self.literals[entry]
            expect(right, "operations do not add up to their entry")
        self.checked[entry] = 1


# Index segments (section 7).

RECORDS, RECORD_BYTES, PAGE_BYTES = 102, 40, 4096
SHORT_PAGE = 1  # reader-required: the last page has no zeros


class Segment:
    """A segment that has been verified. Its records are read when they are needed."""

    def __init__(self, store: Store, name: str, cache: Cache):
        self.store, self.name, self.cache = store, f"index/{name}", cache
        with store.blob(self.name) as blob:
            expect(blob.hash() == name, f"{blob.path}: its BLAKE3 is not its name")
            header = blob.read(0, 80)
            expect(sum16(header[:64]) == header[64:], f"{blob.path}: the checksum of the header is wrong")
            magic, version, _, containers, replaced, generation, self.records, required = struct.unpack_from(
                "<8sHHIIIQQ", header
            )
            expect(magic == b"FHRDSEGM", f"{blob.path}: begins with {magic!r}, expected FHRDSEGM")
            is_known = version == 1 and required & ~SHORT_PAGE == 0 and generation == 0
            known(is_known, f"{blob.path}: version {version}, bits {required:#x}, key {generation}")
            expect(containers <= 1 << 24 and replaced <= 1 << 24 and self.records <= 1 << 48, f"{blob.path}: too much")
            self.pages_at = 80 + 32 * (containers + replaced) + 16
            self.pages = -(-self.records // RECORDS)
            short = self.records * RECORD_BYTES + self.pages * 16
            self.size = self.pages_at + (short if required & SHORT_PAGE else PAGE_BYTES * self.pages)
            expect(blob.size == self.size, f"{blob.path}: {blob.size} bytes, expected {self.size}")
            tables = blob.read(80, self.pages_at - 80)
            expect(sum16(tables[:-16]) == tables[-16:], f"{blob.path}: the checksum of the tables is wrong")
            expect(self.records >= containers, f"{blob.path}: fewer records than containers")
        ids = [tables[at : at + 32] for at in range(0, len(tables) - 16, 32)]
        self.containers, self.replaced = ids[:containers], {replaced.hex() for replaced in ids[containers:]}

    def page(self, number: int) -> bytes:
        key = (self.name, number)
        if (content := self.cache.get(key)) is None:
            with self.store.blob(self.name) as blob:
                at = self.pages_at + PAGE_BYTES * number
                content = blob.read(at, min(PAGE_BYTES, self.size - at))
            expect(sum16(content[:-16]) == content[-16:], f"{self.name}: the checksum of page {number} is wrong")
            self.cache.put(key, content, PAGE_BYTES)
        return content

    def find(self, fingerprint: bytes) -> list[tuple[str, int]]:
        """The containers and positions of the entries of a chunk."""
        low, high = 0, self.pages
        while low < high:  # the first page whose first record is not smaller
            middle = (low + high) // 2
            if self.page(middle)[:32] < fingerprint:
                low = middle + 1
            else:
                high = middle
        found = []
        for number in range(max(low - 1, 0), self.pages):
            page = self.page(number)
            for at in range(0, min(RECORDS, self.records - number * RECORDS) * RECORD_BYTES, RECORD_BYTES):
                record = page[at : at + 32]
                if record == fingerprint:
                    container, entry = struct.unpack_from("<II", page, at + 32)
                    expect(container < len(self.containers), f"{self.name}: no container {container}")
                    found.append((self.containers[container].hex(), entry))
                elif record > fingerprint:
                    return found
        return found


class Cache:
    """Values by key. The least recently used ones go when all together are too large."""

    def __init__(self, bytes_max: int):
        self.bytes_max, self.bytes = bytes_max, 0
        self.values: OrderedDict = OrderedDict()

    def get(self, key: object) -> object | None:
        if key not in self.values:
            return None
        self.values.move_to_end(key)
        return self.values[key][0]

    def put(self, key: object, value: object, size: int) -> None:
        size += 200  # of the map itself
        while self.values and self.bytes + size > self.bytes_max:
            self.bytes -= self.values.popitem(last=False)[1][1]
        if size <= self.bytes_max and key not in self.values:
            self.values[key] = (value, size)
            self.bytes += size


class Budget:
    """What the read of one chunk may cost."""

    def __init__(self) -> None:
        self.steps, self.assembled = STEPS_MAX, ASSEMBLED_MAX

    def step(self) -> None:
        self.steps -= 1
        expect(self.steps >= 0, f"more than {STEPS_MAX} steps to read one chunk")

    def assemble(self, size: int) -> None:
        self.assembled -= size
        expect(self.assembled >= 0, f"more than {ASSEMBLED_MAX} bytes to assemble for one delta")


class Chunks:
    """Reads chunks by their fingerprints."""

    def __init__(self, store: Store, cache_bytes: int):
        self.store = store
        self.content = Cache(cache_bytes // 2)  # frames, and chunks that were rebuilt from deltas
        self.indexes = Cache(cache_bytes // 4)
        self.pages = Cache(cache_bytes // 4)
        self.open_segments()
        # Of each container that no segment lists: the beginnings of its fingerprints, sorted, and their entries.
        self.unlisted: dict[str, tuple[array, array]] = {}
        self.unreadable: dict[str, str] = {}
        self.are_all_taken = False
        listed = {container for segment in self.segments for container in segment.containers}
        self.take_unlisted(name for name in self.store.containers() if bytes.fromhex(name) not in listed)

    def open_segments(self) -> None:
        segments = {}
        for name in self.store.names("index", "[0-9a-f]{64}"):
            try:
                segments[name] = Segment(self.store, name, self.pages)
            except Lost as error:
                print(f"note: {error}; the containers are read instead", file=sys.stderr)
        replaced = {name for segment in segments.values() for name in segment.replaced}
        self.segments = [segment for name, segment in segments.items() if name not in replaced]

    def take_unlisted(self, names: Iterable[str]) -> None:
        """Reads the indexes of containers, so that their chunks are found without a segment."""
        for name in names:
            try:
                index = self.index(name)
            except Lost as error:
                self.unreadable[name] = str(error)
                print(f"note: {error}", file=sys.stderr)
                continue
            begin = struct.unpack(">" + "Q24x" * index.count, index.fingerprints)
            order = sorted(range(index.count), key=begin.__getitem__)
            self.unlisted[name] = array("Q", (begin[i] for i in order)), array("I", order)

    def take_all(self) -> bool:
        """A segment may lack what it should have: reads the index of every container, once."""
        if self.are_all_taken:
            return False
        self.are_all_taken = True
        self.take_unlisted(name for name in self.store.containers() if name not in {**self.unlisted, **self.unreadable})
        return True

    def index(self, name: str) -> Container:
        if (index := self.indexes.get(name)) is None:
            index = Container(self.store, name)
            self.indexes.put(name, index, index.memory)
        return index

    def entries(self, fingerprint: bytes) -> tuple[list[tuple[str, int, int]], list[str]]:
        """The entries of a chunk as containers, positions and operations digests, and why others cannot be read."""
        if (known_entries := self.pages.get(fingerprint)) is not None:
            return known_entries, []
        found, problems = {}, []
        for segment in self.segments:
            try:
                found.update(dict.fromkeys(segment.find(fingerprint)))
            except Lost as error:
                problems.append(str(error))
        begin = as_int(fingerprint[7::-1])
        for name, (begins, order) in self.unlisted.items():
            at = bisect.bisect_left(begins, begin)
            while at < len(begins) and begins[at] == begin:
                found[name, order[at]] = None
                at += 1
        entries = []
        for name, number in found:
            try:
                index = self.index(name)
            except Lost as error:
                problems.append(str(error))
                continue
            if number < index.count and index.fingerprint(number) == fingerprint:
                entries.append((name, number, index.digest(number)))
            elif name not in self.unlisted:
                problems.append(f"containers/{name}: entry {number} is not the chunk that a segment says")
        if not entries and self.take_all():
            return self.entries(fingerprint)
        if not problems:
            self.pages.put(fingerprint, entries, 300 * len(entries))
        return entries, problems

    def frame(self, index: Container, number: int) -> bytes:
        key = (index.name, "frame", number)
        if (content := self.content.get(key)) is not None:
            return content
        offset, stored, raw = index.offsets[number], index.stored[number], index.raw[number]
        with self.store.blob(f"containers/{index.name[:2]}/{index.name}") as blob:
            data = blob.read(offset, 32 + stored)
        what = f"containers/{index.name}: frame at byte {offset}"
        got, wanted = sum16(data[:16], data[32:]), data[16:32]
        expect(got == wanted, f"{what}: the checksum is {got.hex()}, expected {wanted.hex()}")
        head = (data[0], data[1:4], *struct.unpack_from("<III", data, 4))
        wanted = (index.codecs[number], bytes(3), raw, stored, 0)
        expect(head == wanted, f"{what}: the header is {head}, expected {wanted}")
        with within(what):
            content = frame_decode(data[0], data[32:], raw)
        self.content.put(key, content, raw)
        return content

    def literals(self, index: Container, entry: int, start: int, end: int) -> bytes:
        expect(0 <= start <= end <= index.literals[entry], "a range beyond the literal bytes of an entry")
        if start == end:
            return b""
        offset = index.literal_offsets[entry]
        return self.frame(index, index.entry_frames[entry])[offset + start : offset + end]

    def from_base(self, index: Container, operation: int, start: int, end: int, budget: Budget, nested: int) -> bytes:
        """Content of a base, or its literal bytes for a literal copy."""
        fingerprint, digest = index.base(operation)
        kind = index.kinds[operation]
        entries, problems = self.entries(fingerprint)
        right = [entry for entry in entries if entry[2] == digest]
        others = [entry for entry in entries if entry[2] != digest and kind != LITERAL_COPY]
        for name, entry, _ in right + others:
            budget.step()
            try:
                base = self.index(name)
                expect(kind == DELTA or not base.is_delta(entry), "a copy of a delta")
                if kind == LITERAL_COPY:
                    base.check(entry)
                    return self.literals(base, entry, start, end)
                out: list[bytes] = []
                self.range(base, entry, start, end, out, budget, nested + 1)
                return b"".join(out)
            except Lost as error:
                problems.append(str(error))
        if not entries:
            problems.insert(0, "no container has an entry of it")
        elif not right:
            problems.insert(0, f"no entry has the operations digest {digest:#018x}")
        raise Lost(f"base {fingerprint.hex()}: {'; '.join(dict.fromkeys(problems))}")

    def range(self, index: Container, entry: int, start: int, end: int, out: list, budget: Budget, nested: int) -> None:
        """Puts a range of the content of an entry into `out`."""
        expect(nested <= NESTED_MAX, f"more than {NESTED_MAX} nested copies")
        expect(end <= index.lengths[entry], "a range beyond the end of an entry")
        index.check(entry)
        operations = index.operations(entry)
        if not operations:
            out.append(self.literals(index, entry, start, end))
            return
        if index.is_delta(entry):
            out.append(self.delta(index, entry, budget, nested)[start:end])
            return
        at = literal = 0
        for i in operations:
            budget.step()
            length = index.op_lengths[i]
            first, last = max(start - at, 0), min(end - at, length)
            if first < last:
                if index.kinds[i] == ADD:
                    out.append(self.literals(index, entry, literal + first, literal + last))
                else:
                    offset = index.op_offsets[i]
                    out.append(self.from_base(index, i, offset + first, offset + last, budget, nested))
            at += length
            literal += length if index.kinds[i] == ADD else 0

    def delta(self, index: Container, entry: int, budget: Budget, nested: int) -> bytes:
        """The whole chunk of an entry that is a delta."""
        key = (index.name, "delta", entry)
        if (content := self.content.get(key)) is not None:
            return content
        literals = self.literals(index, entry, 0, index.literals[entry])
        length = index.lengths[entry]
        content = literals
        if len(literals) != length:
            base = []
            for i in index.operations(entry):
                budget.assemble(index.op_lengths[i])
                start = index.op_offsets[i]
                base.append(self.from_base(index, i, start, start + index.op_lengths[i], budget, nested))
            budget.assemble(length)
            with within(f"containers/{index.name}: entry {entry}"):
                content = delta_decode(literals, b"".join(base), length)
        self.verify(content, index.fingerprint(entry), f"containers/{index.name}: entry {entry}")
        self.content.put(key, content, length)
        return content

    def verify(self, content: bytes, fingerprint: bytes, what: str) -> None:
        got = blake3(content, key=self.store.key).digest()
        expect(got == fingerprint, f"{what}: the fingerprint is {got.hex()}, expected {fingerprint.hex()}")

    def read(self, fingerprint: bytes, length: int | None = None) -> bytes:
        """The bytes of a chunk, from the first of its entries that gives them."""
        entries, problems = self.entries(fingerprint)
        for name, entry, _ in entries:
            what = f"containers/{name}: entry {entry}"
            try:
                index = self.index(name)
                expect(length in (None, index.lengths[entry]), f"{what}: {index.lengths[entry]} bytes, not {length}")
                out: list[bytes] = []
                self.range(index, entry, 0, index.lengths[entry], out, Budget(), 1)
                content = b"".join(out)
                self.verify(content, fingerprint, what)
                return content
            except Lost as error:
                problems.append(str(error))
        if not entries:
            problems += ["no readable container has it", *self.unreadable.values()]
        raise Lost(f"chunk {fingerprint.hex()}: {'; '.join(dict.fromkeys(problems))}")


# Content, listings and snapshots (sections 9 to 11 and 19).


def reference_length(reference: object) -> int:
    """The bytes of content that a reference stands for, of an unknown variant, too."""
    right = isinstance(reference, list) and len(reference) >= 2 and type(reference[0]) is int
    expect(right and type(reference[-1]) is int and reference[-1] >= 1, "a reference of an unknown form")
    variant, length = reference[0], reference[-1]
    forms = {0: [int, bytes, int], 1: [int, int, bytes, int], 2: [int, int]}
    if variant in forms:
        expect([type(item) for item in reference] == forms[variant], f"a reference of variant {variant}")
        expect(variant == 2 or len(reference[-2]) == 32, "a fingerprint that has not 32 bytes")
        expect(variant != 0 or length <= CHUNK_MAX, f"a chunk of {length} bytes")
        expect(variant != 1 or 1 <= reference[1] <= 255, f"a recipe of level {reference[1]}")
    return length


def pieces(chunks: Chunks, reference: object, offset: int = 0, nested: int = 0):
    """The content of a reference as (offset, length, fingerprint). The fingerprint is None for a hole, and the error
    for a range that is lost."""
    length = reference_length(reference)
    if reference[0] == 0:
        yield offset, length, reference[1]
    elif reference[0] == 2:
        yield offset, length, None
    elif reference[0] != 1:
        yield offset, length, Newer(f"variant {reference[0]} of a reference: written by a newer version of fhrd")
    else:
        try:
            expect(nested < RECIPES_MAX, f"more than {RECIPES_MAX} nested recipes")
            inner = recipe(chunks, reference)
        except Lost as error:
            yield offset, length, error
            return
        for one in inner:
            yield from pieces(chunks, one, offset, nested + 1)
            offset += one[-1]


def recipe(chunks: Chunks, reference: list) -> list:
    _, level, fingerprint, length = reference
    data, what = chunks.read(fingerprint), f"recipe {fingerprint.hex()}"
    expect(data[:1] == b"R" and len(data) >= 2, f"{what}: begins with {data[:2]!r}, expected R")
    known(data[1] == 1, f"{what}: version {data[1]}")
    inner = cbor(data[2:], what)
    with within(what):
        expect(isinstance(inner, list) and 1 <= len(inner) <= REFERENCES_MAX, "expected a list of references")
        total = sum(map(reference_length, inner))
        expect(total == length, f"{total} bytes of content, expected {length}")
        for one in inner:
            right = one[0] != 1 if level == 1 else one[0] not in (0, 2)
            expect(right and (one[0] != 1 or one[1] == level - 1), "a reference of another level")
    return inner


class Node:
    """The metadata of an entry."""

    def __init__(self, data: bytes, is_root: bool = False):
        self.fields = data if is_root else cbor(data, "a node")
        expect(isinstance(self.fields, dict), "a node: expected a map")
        get = self.fields.get
        self.name = get(0, b"")
        bad = type(self.name) is not bytes or self.name in (b"", b".", b"..") or b"/" in self.name or b"\0" in self.name
        if bad and not is_root:
            raise Damaged(f"a node with the name {self.name!r}")

    def check(self) -> None:
        """Refuses what is not as the format says. Only the name is known before."""
        with within("a node"):
            self.parse()

    def parse(self) -> None:
        get = self.fields.get
        newer = [key for key in self.fields if type(key) is int and key >= 128]
        known(not newer, f"keys {newer}")
        numbers = {key: int for key in (3, 4, 10, 11, 12)}
        others = {5: str, 6: str, 8: list, 9: list, 13: list, 14: bytes, 15: list, 16: list, 17: bool, 18: list}
        fields(self.fields, "its map", {1: int, 2: int, 7: list}, {**numbers, **others, 19: bool, 20: dict, 21: bool})
        self.kind, self.mode, self.content = get(1), get(2), get(18)
        known(self.kind <= BLOCK, f"kind {self.kind}")
        expect(0 <= self.mode <= 0o7777, f"mode {self.mode:#o}")
        self.owner, self.group, self.size = get(3, 0), get(4, 0), get(10, 0)
        self.changed, self.accessed = timestamp(get(7)), timestamp(get(8, get(7)))
        self.target, self.device, self.links = get(14), get(15), get(13)
        expect((self.target is not None) == (self.kind == SYMLINK), "a target of a link where none belongs, or none")
        expect(self.target is None or (self.target and b"\0" not in self.target), "a link with an unusable target")
        expect((self.device is not None) == (self.kind in (CHARACTER, BLOCK)), "a device number where none belongs")
        for pair in (self.device, self.links):
            expect(pair is None or [type(x) for x in pair] == [int, int], "a pair of numbers")
        expect(self.links is None or self.kind != DIRECTORY, "a directory with several names")
        self.attributes = [tuple(list_of(pair, bytes, "an attribute")) for pair in list_of(get(16, []), list, "node")]
        names = [pair[0] for pair in self.attributes if len(pair) == 2]
        right = len(names) == len(self.attributes) and names == sorted(set(names))
        expect(right and all(name and b"\0" not in name for name in names), "extended attributes out of order")
        self.more = get(20, {})
        self.is_sparse, self.is_partial = get(17, False), get(21, False)
        if self.kind == FILE:
            length = 0 if self.content is None else reference_length(self.content)
            expect(length == self.size, f"{length} bytes of content, expected {self.size}")

    def short_holes(self) -> list[tuple[int, int]] | None:
        """Where zeros may become holes; None: anywhere."""
        if "holes" not in self.more:
            return None
        found, at, end = [], 0, 0
        data = self.more["holes"]
        while at < len(data):
            distance, at = varint(data, at)
            length, at = varint(data, at)
            found.append((end + distance, end + distance + length))
            end += distance + length
        return found

    def flags(self, name: str, is_known: bool) -> int | None:
        """File flags, or the project; None: not known."""
        value = self.more.get(name)
        if value is None:
            return 0 if is_known else None
        try:
            number, at = varint(value, 0)
        except Lost:
            return None
        return number if at == len(value) and number < 1 << 32 else None

    def identity(self) -> bytes:
        """The same for all names of one file."""
        same = {k: v for k, v in self.fields.items() if k not in (0, 8, 9, 11, 12, 17, 19)}
        same[20] = {k: v for k, v in self.more.items() if k != "holes"}
        return sum16(cbor_encode({key: same[key] for key in sorted(same, key=repr)}))


def timestamp(value: list) -> int:
    right = [type(x) for x in value] == [int, int] and 0 <= value[1] < 10**9
    expect(right and -(1 << 63) <= value[0] < 1 << 63, "a time")
    return value[0] * 10**9 + value[1]


def listing(chunks: Chunks, reference: object | None):
    """The nodes of a directory, and in their place the errors of what is lost."""
    previous = b""
    for _, length, what in pieces(chunks, reference) if reference is not None else ():
        try:
            if isinstance(what, Lost):
                raise what
            expect(what is not None, "a hole in a listing")
            data, at = chunks.read(what, length), 0
            while at < len(data):
                size, at = varint(data, at)
                expect(size <= NODE_MAX and size <= len(data) - at, "a node ends beyond its chunk")
                at += size
                try:
                    node = Node(data[at - size : at])
                    expect(node.name > previous, f"the name {show(node.name)} is not in order")
                except Lost as error:
                    yield error
                    continue
                previous = node.name
                yield node
        except Lost as error:
            yield type(error)(f"entries after {show(previous) or 'the beginning'}: {error}")


class Snapshot:
    def __init__(self, name: str, blob: bytes):
        payload = cbor(open_envelope(blob, b"FHRDSNAP", "its envelope"), "its payload")
        expect(isinstance(payload, dict), "expected a map")
        newer = [key for key in payload if type(key) is int and key >= 128]
        known(not newer, f"keys {newer}")
        required = {0: int, 1: str, 2: str, 3: list, 6: list, 7: str, 8: dict, 9: dict}
        value = fields(payload, "its map", required, {4: list, 5: bytes, 10: dict, 11: bytes})
        self.name, self.time, self.host, self.root = name, value[0], value[1], value.get(4)
        self.paths, self.tags = list_of(value[3], bytes, "paths"), list_of(value[6], str, "tags")
        self.root_node, self.has_flags = value.get(10), "file-flags" in value[9]
        self.intent = value.get(11, b"").hex()
        if self.root is not None:
            known(self.root[:1] in ([0], [1]), "the reference of its root")
            reference_length(self.root)


def read_snapshots(store: Store) -> tuple[list[Snapshot], dict[str, str]]:
    """All snapshots, oldest first, and those that cannot be read."""
    snapshots, problems = [], {}
    for name in store.names("snapshots", "[0-9a-f]{64}"):
        try:
            with store.blob(f"snapshots/{name}") as blob:
                expect(blob.size <= ENVELOPE_MAX, f"{blob.path}: more than 64 MiB")
                expect(blob.hash() == name, f"{blob.path}: its BLAKE3 is not its name")
                content = blob.read(0, blob.size)
            with within(f"snapshots/{name}"):
                snapshots.append(Snapshot(name, content))
        except Lost as error:
            problems[name] = str(error)
    if problems:
        for name, content in copies(store, set(problems)):
            snapshots.append(Snapshot(name, content))
            del problems[name]
    return sorted(snapshots, key=lambda snapshot: (snapshot.time, snapshot.name)), problems


def copies(store: Store, wanted: set[str]):
    """Copies of snapshots in bundles."""
    for name in store.names("bundles", "[0-9a-f]{64}"):
        try:
            with store.blob(f"bundles/{name}") as blob:
                expect(blob.size <= ENVELOPE_MAX, f"{blob.path}: more than 64 MiB")
                payload = open_envelope(blob.read(0, blob.size), b"FHRDBNDL", blob.path)
            for copy in list_of(fields(cbor(payload, name), name, {0: list}, {})[0], bytes, name):
                identity = blake3(copy).hexdigest()
                if identity in wanted:
                    wanted.discard(identity)
                    yield identity, store.unseal(copy, "snapshots", f"snapshots/{identity} in a bundle")
        except Lost as error:
            print(f"note: {error}", file=sys.stderr)


def is_unfinished(store: Store, snapshot: Snapshot) -> bool:
    """Whether the backup of a snapshot has not reported it, or has withdrawn it (section 13)."""
    path = os.path.join(store.root, "intents", snapshot.intent)
    if not snapshot.intent:
        return False
    return os.path.exists(path + ".withdrawn") or (os.path.exists(path) and not os.path.exists(path + ".released"))


# Writing. Every entry is made below a descriptor of its directory, and nothing that exists is replaced or followed.

LONG = struct.calcsize("l")
GET_FLAGS, SET_FLAGS = 0x80006601 | LONG << 16, 0x40006602 | LONG << 16
GET_PROJECT, SET_PROJECT = 0x801C581F, 0x401C5820
STORED_FLAGS, LOCKS = 0x2081C4FF, 0x30
ACL = b"system.posix_acl_access"
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ZEROS = bytes(65536)


def change_flags(descriptor: int, mask: int, bits: int) -> None:
    now = as_int(fcntl.ioctl(descriptor, GET_FLAGS, bytes(LONG))[:4].ljust(4, b"\0"))
    wanted = now & ~mask | bits & mask
    if wanted != now:
        fcntl.ioctl(descriptor, SET_FLAGS, wanted.to_bytes(LONG, "little"))


def change_project(descriptor: int, project: int) -> None:
    now = fcntl.ioctl(descriptor, GET_PROJECT, bytes(28))
    if struct.unpack_from("=I", now, 12)[0] != project:
        fcntl.ioctl(descriptor, SET_PROJECT, now[:12] + struct.pack("=I", project) + now[16:])


class Level:
    """A directory whose entries are being written."""

    def __init__(self, path: bytes, descriptor: int, nodes: object, node: Node | None):
        self.path, self.descriptor, self.nodes, self.node = path, descriptor, nodes, node
        self.damaged: list[tuple[bytes, bytes]] = []


class Restore:
    """Writes a tree below a directory."""

    def __init__(self, chunks: Chunks, snapshot: Snapshot, target: str):
        self.chunks, self.snapshot = chunks, snapshot
        self.problems = self.files = self.bytes = self.others = self.notes = 0
        self.links: dict[bytes, bytes] = {}
        self.locked: list[tuple[bytes, int]] = []
        self.is_root = os.geteuid() == 0
        os.makedirs(target, exist_ok=True)
        if os.listdir(target):
            raise Refused(f"{target} is not empty")
        self.root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))

    def problem(self, path: bytes, what: object) -> None:
        self.problems += 1
        print(f"not restored: {show(path) or '/'}: {what}", file=sys.stderr)

    def note(self, path: bytes, what: object) -> None:
        self.notes += 1
        print(f"note: {show(path) or '/'}: {what}", file=sys.stderr)

    def run(self, wanted: list[bytes]) -> None:
        """Restores the paths, or everything. Directories on the way get their metadata."""
        wanted = [path for path in wanted if not any(path.startswith(other + b"/") for other in wanted if other)]
        self.wanted = [path.split(b"/") for path in wanted if path]
        self.is_found: set[bytes] = set()
        root = Node(self.snapshot.root_node, True) if self.snapshot.root_node else None
        stack = [Level(b"", self.root, listing(self.chunks, self.snapshot.root), root)]
        while stack:
            level = stack[-1]
            node = next(level.nodes, None)
            if node is None:
                stack.pop()
                self.finish(level)
            elif isinstance(node, Lost):
                self.problem(level.path, node)
            elif (inner := self.entry(level, node)) is not None:
                stack.append(inner)
        for path in self.wanted:
            if (whole := b"/".join(path)) not in self.is_found:
                self.problem(whole, "the snapshot has no such entry")
        for path, bits in reversed(self.locked):
            self.lock(path, bits)

    def is_wanted(self, path: bytes) -> tuple[bool, bool]:
        """Whether an entry is to be restored, and whether it is, or is above, a wanted path."""
        if not self.wanted:
            return True, True
        names = path.split(b"/")
        for one in self.wanted:
            if names[: len(one)] == one:
                self.is_found.add(b"/".join(one))
                return True, True
        return False, any(one[: len(names)] == names for one in self.wanted)

    def entry(self, level: Level, node: Node) -> Level | None:
        """Writes an entry. Returns the level below a directory."""
        path = level.path + b"/" + node.name if level.path else node.name
        is_inside, is_on_the_way = self.is_wanted(path)
        if not is_on_the_way:
            return None
        try:
            node.check()
            if not is_inside and node.kind != DIRECTORY:
                return None
            if node.kind == SOCKET:
                self.note(path, "a socket, which the program that listens on it makes")
                return None
            if node.kind == DIRECTORY:
                os.mkdir(node.name, 0o700, dir_fd=level.descriptor)
                descriptor = os.open(node.name, OPEN_DIRECTORY, dir_fd=level.descriptor)
                self.others += 1
                return Level(path, descriptor, listing(self.chunks, node.content), node)
            if not self.link(level, node, path):
                is_whole = self.file(level, node, path) if node.kind == FILE else self.special(level, node, path)
                if is_whole and node.links is not None:
                    if len(self.links) < LINKS_MAX:
                        self.links[node.identity()] = path
                    else:
                        self.note(path, "too many files with several names: other names become files of their own")
        except (Lost, OSError) as error:
            self.problem(path, error)
        return None

    def parent(self, path: bytes) -> int:
        """A descriptor of the directory that holds a path."""
        descriptor = os.dup(self.root)
        for name in path.split(b"/")[:-1]:
            inner = os.open(name, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        return descriptor

    def link(self, level: Level, node: Node, path: bytes) -> bool:
        """Makes the entry another name of a file that is there. False: it must be written."""
        if node.links is None or (first := self.links.get(node.identity())) is None:
            return False
        parent = self.parent(first)
        try:
            name = first.split(b"/")[-1]
            os.link(name, node.name, src_dir_fd=parent, dst_dir_fd=level.descriptor, follow_symlinks=False)
            self.others += 1
            return True
        except OSError as error:
            self.note(path, f"cannot be linked to {show(first)} ({error.strerror}), so it becomes a copy")
            return False
        finally:
            os.close(parent)

    def temporary(self, level: Level) -> tuple[bytes, int]:
        name = b".fhrd-restore-" + os.urandom(8).hex().encode()
        return name, os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=level.descriptor)

    def file(self, level: Level, node: Node, path: bytes) -> bool:
        """Writes a file under another name, which it loses when it is whole. Returns whether it is."""
        name, descriptor = self.temporary(level)
        try:
            problems = self.problems
            self.write(descriptor, node, path)
            self.metadata(descriptor, node, path)
            if problems != self.problems and self.lost:
                level.damaged.append((name, node.name))
                return False
            os.link(name, node.name, src_dir_fd=level.descriptor, dst_dir_fd=level.descriptor)
            os.unlink(name, dir_fd=level.descriptor)
            self.files, self.bytes = self.files + 1, self.bytes + node.size
            return True
        except BaseException:
            os.unlink(name, dir_fd=level.descriptor)
            raise
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, node: Node, path: bytes) -> None:
        self.lost = False
        holes = node.short_holes() if node.is_sparse else []
        for offset, length, what in pieces(self.chunks, node.content) if node.content is not None else ():
            if what is None:
                continue
            try:
                if isinstance(what, Lost):
                    raise what
                content = self.chunks.read(what, length)
            except Lost as error:
                self.lost = True
                self.problem(path, f"bytes {offset} to {offset + length}: {error}")
                continue
            for at, part in stored_parts(content, offset, holes):
                part = memoryview(part)
                while part:
                    count = os.pwrite(descriptor, part, at)
                    part, at = part[count:], at + count
        os.ftruncate(descriptor, node.size)

    def special(self, level: Level, node: Node, path: bytes) -> bool:
        kinds = {PIPE: stat.S_IFIFO, CHARACTER: stat.S_IFCHR, BLOCK: stat.S_IFBLK}
        if node.kind == SYMLINK:
            os.symlink(node.target, node.name, dir_fd=level.descriptor)
        else:
            device = os.makedev(*node.device) if node.device else 0
            os.mknod(node.name, kinds[node.kind] | 0o600, device, dir_fd=level.descriptor)
        self.others += 1
        descriptor = os.open(node.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=level.descriptor)
        try:
            if stat.S_IFMT(os.fstat(descriptor).st_mode) != kinds.get(node.kind, stat.S_IFLNK):
                raise OSError(errno.EEXIST, "another entry has taken its place")
            self.metadata(descriptor, node, path, f"/proc/self/fd/{level.descriptor}/".encode() + node.name)
        finally:
            os.close(descriptor)
        return True

    def finish(self, level: Level) -> None:
        """Names what is left of damaged files, and gives a directory its metadata."""
        for name, wanted in level.damaged:
            for number in range(1000):
                damaged = wanted + b".damaged" + (b".%d" % number if number else b"")
                try:
                    os.link(name, damaged, src_dir_fd=level.descriptor, dst_dir_fd=level.descriptor)
                    break
                except FileExistsError:
                    continue
            os.unlink(name, dir_fd=level.descriptor)
        try:
            if level.node is not None:
                level.node.check()
                self.metadata(level.descriptor, level.node, level.path)
        except Lost as error:
            self.problem(level.path, error)
        if level.descriptor != self.root:
            os.close(level.descriptor)

    def attempt(self, path: bytes, what: str, call, *values, **options) -> bool:
        try:
            call(*values, **options)
            return True
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOTTY):
                self.note(path, f"cannot set {what}: {error.strerror}")
            else:
                self.problem(path, f"cannot set {what}: {error.strerror}")
            return False

    def metadata(self, descriptor: int, node: Node, path: bytes, named: bytes | None = None) -> None:
        """Owner, attributes, mode, flags, times, in an order in which none undoes another. `named` is a path of an
        entry that cannot be opened."""
        entry = named if named else descriptor
        follow = {"follow_symlinks": False} if named else {}
        mode = self.own(entry, follow, node, path)
        for name, value in node.attributes:
            is_reserved = name.startswith((b"security.", b"trusted.")) and not self.is_root
            what = f"the extended attribute {show(name)}"
            if not is_reserved and not self.attempt(path, what, os.setxattr, entry, name, value, **follow):
                mode &= ~0o077 if name == ACL else ~0
        self.drop_acls(entry, follow, node)
        if node.kind != SYMLINK:
            place = f"/proc/self/fd/{descriptor}" if named else descriptor
            self.attempt(path, "the mode", os.chmod, place, mode)
        if not named:
            self.flags(descriptor, node, path)
        self.attempt(path, "the times", os.utime, entry, ns=(node.accessed, node.changed), **follow)

    def own(self, entry: object, follow: dict, node: Node, path: bytes) -> int:
        """Sets owner and group. Returns the mode, without bits that would give the rights of another one."""
        owner = node.owner if 0 <= node.owner < 0xFFFFFFFF else -1
        group = node.group if 0 <= node.group < 0xFFFFFFFF else -1
        try:
            os.chown(entry, owner, group, **follow)
            return node.mode
        except OSError as error:
            if self.is_root:
                self.problem(path, f"cannot set the owner: {error.strerror}")
        is_own = not self.is_root and owner == os.geteuid()
        try:
            os.chown(entry, -1, group, **follow)
            return node.mode if is_own else node.mode & ~0o4000
        except OSError:
            return node.mode & ~(0o2000 if is_own else 0o6000)

    def drop_acls(self, entry: object, follow: dict, node: Node) -> None:
        """Removes ACLs that the entry has from its directory."""
        for name in (ACL, b"system.posix_acl_default"):
            if node.kind != SYMLINK and all(name != stored for stored, _ in node.attributes):
                try:
                    os.removexattr(entry, name, **follow)
                except OSError:
                    pass  # it has none

    def flags(self, descriptor: int, node: Node, path: bytes) -> None:
        bits, project = (node.flags(name, self.snapshot.has_flags) for name in ("flags", "project"))
        if bits is not None:
            try:
                change_flags(descriptor, STORED_FLAGS & ~LOCKS, bits)
            except OSError as error:
                if bits & ~LOCKS:
                    self.note(path, f"cannot set the file flags {bits:#x}: {error.strerror}")
            if bits & LOCKS:
                self.locked.append((path, bits & LOCKS))
        if project:
            self.attempt(path, f"the project {project}", change_project, descriptor, project)

    def lock(self, path: bytes, bits: int) -> None:
        """Makes an entry immutable or append-only, when nothing more is written."""
        try:
            parent = self.parent(path) if path else os.dup(self.root)
            name = path.split(b"/")[-1] or b"."
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            finally:
                os.close(parent)
            try:
                self.attempt(path, f"the file flags {bits:#x}", change_flags, descriptor, LOCKS, bits)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.problem(path, f"cannot set the file flags {bits:#x}: {error.strerror}")


def stored_parts(content: bytes, offset: int, holes: list[tuple[int, int]] | None):
    """The parts of the content at `offset` that are no holes. Without a list of holes, any zeros may be one."""
    if holes is None:
        holes = [(offset, offset + len(content))]
    at, end = offset, offset + len(content)
    first_hole = max(bisect.bisect_left(holes, (offset + 1,)) - 1, 0)
    for start, stop in holes[first_hole:]:
        if start >= end:
            break
        for block in range(max(start, at) // 4096 * 4096, min(stop, end), 4096):
            first, last = max(block, start, at), min(block + 4096, stop, end)
            if first < last and content[first - offset : last - offset] == ZEROS[: last - first]:
                if at < first:
                    yield at, content[at - offset : first - offset]
                at = last
    if at < end:
        yield at, content[at - offset :]


# The command line.


def choose(snapshots: list[Snapshot], problems: dict[str, str], store: Store, wanted: str) -> Snapshot:
    if wanted == "latest":
        if problems:
            raise Refused("a snapshot that cannot be read may be the latest one: give the id of another")
        soon = time.time_ns() + 300 * 10**9
        reported = [one for one in snapshots if one.time <= soon and not is_unfinished(store, one)]
        if not reported:
            raise Refused("there is no snapshot")
        return reported[-1]
    found = [snapshot for snapshot in snapshots if snapshot.name.startswith(wanted)]
    if not found and any(name.startswith(wanted) for name in problems):
        raise Refused(f"the snapshot {wanted} cannot be read")
    if len(found) != 1:
        raise Refused(f"{len(found)} snapshots begin with {wanted!r}")
    return found[0]


def print_snapshots(store: Store, snapshots: list[Snapshot]) -> None:
    for one in snapshots:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.time // 10**9))
        paths = " ".join(show(path) for path in one.paths)
        tags = f" [{', '.join(show(tag.encode()) for tag in one.tags)}]" if one.tags else ""
        state = " (its backup has not finished)" if is_unfinished(store, one) else ""
        print(f"{one.name} {when} UTC {show(one.host.encode())}: {paths}{tags}{state}")


def print_entries(chunks: Chunks, snapshot: Snapshot) -> int:
    problems, stack = 0, [(b"", listing(chunks, snapshot.root))]
    while stack:
        path, nodes = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            continue
        try:
            if isinstance(node, Lost):
                raise node
            inner = path + b"/" + node.name if path else node.name
            node.check()
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(node.changed // 10**9))
            target = f" -> {show(node.target)}" if node.kind == SYMLINK else ""
            print(f"{KINDS[node.kind]} {node.mode:04o} {node.size:>12} {when} {show(inner)}{target}")
            if node.kind == DIRECTORY:
                stack.append((inner, listing(chunks, node.content)))
        except Lost as error:
            problems += 1
            print(f"not readable: {show(path)}: {error}", file=sys.stderr)
    return problems


def secrets(options: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    """Password and key file. A password is one line; a recovery key is a password."""
    if options.key_file:
        return None, Path(options.key_file).read_bytes()
    if options.password_file:
        first = Path(options.password_file).read_bytes().split(b"\n")[0]
        return first[:-1] if first.endswith(b"\r") else first, None
    if (password := os.environb.get(b"FHRD_PASSWORD")) is not None:
        return password, None
    return getpass.getpass("password or recovery key: ").encode(), None


def arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb_help = {"snapshots": "list snapshots", "ls": "list entries", "restore": "write a snapshot to disk"}
    for verb, what in verb_help.items():
        command = verbs.add_parser(verb, help=what)
        command.add_argument("repository")
        if verb != "snapshots":
            command.add_argument("snapshot", help="id, unique prefix of one, or latest")
        if verb == "restore":
            command.add_argument("target", help="directory to write into: empty, or not there yet")
            command.add_argument("--path", action="append", default=[], help="only this entry, and all below it")
        command.add_argument("--password-file", help="file whose first line is the password or the recovery key")
        command.add_argument("--key-file", help="key file in place of a password")
        command.add_argument("--cache-mib", type=int, default=512, help="memory for what was read [default: 512]")
    return parser.parse_args()


def run(options: argparse.Namespace) -> int:
    store = Store(options.repository)
    if store.is_encrypted:
        store.unlock(*secrets(options))
    snapshots, problems = read_snapshots(store)
    for problem in problems.values():
        print(f"not readable: {problem}", file=sys.stderr)
    if options.verb == "snapshots":
        print_snapshots(store, snapshots)
        return 1 if problems else 0
    snapshot = choose(snapshots, problems, store, options.snapshot)
    chunks = Chunks(store, options.cache_mib * MIB)
    if options.verb == "ls":
        return 1 if print_entries(chunks, snapshot) else 0
    restore = Restore(chunks, snapshot, options.target)
    restore.run([os.fsencode(path).strip(b"/") for path in options.path])
    print(f"{restore.files} files with {restore.bytes} bytes and {restore.others} other entries are restored")
    if restore.problems:
        print(f"{restore.problems} problems: see above", file=sys.stderr)
    return 1 if restore.problems else 0


def main() -> int:
    sys.setrecursionlimit(10000)
    try:
        return run(arguments())
    except (Refused, Lost, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"error: {error}: install blake3, zstandard, cryptography and argon2-cffi", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
