"""Rebuilds streams that fhrd stored by transform 1, without fhrd.

It was written from docs/TRANSFORM-DEFLATE.md and shares no code with fhrd. With Python 3.10 or later it needs nothing
else but opened_codes.py and opened_predictors.py beside it. `rebuild` makes the stream from the plain content and the
corrections:

    python3 opened.py PLAIN CORRECTIONS STREAM

It says what the bytes were, not whether they are right: compare the hash of the stream with the one that is recorded.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from opened_codes import (
    BUILDERS,
    BY_MINIZ,
    CODE_LENGTH_EXTRA,
    CODE_LENGTH_ORDER,
    DISTANCES,
    END_OF_BLOCK,
    FIXED_DISTANCES,
    FIXED_LITERALS,
    LENGTHS,
    SYMBOL_OF_DISTANCE,
    SYMBOL_OF_LENGTH,
    BitWriter,
    Header,
    codes_of,
    predicted_header,
    without_end,
)
from opened_predictors import LITERAL, LOOKAHEAD_MAX, RUNS, Settings, View

STREAM_MAX = 1 << 31
MEMBER_MAX, TOKENS_MAX, CHUNKS_MAX, STORED_MAX = 1 << 30, 1 << 20, 65536, 65535
REST, PASS, MEMBER, CHUNKS = range(4)
RATES = (1, 2, 3, 4, 4, 5)


def expect(condition: object, what: str) -> None:
    """Fails with `what` unless the condition holds."""
    if not condition:
        raise ValueError(what)


# The range coder and what is read with it.


class Probabilities:
    """A row of adaptive probabilities. Each knows how probable a zero is, and how often it was used."""

    def __init__(self, count: int) -> None:
        self.zero = [32768] * count
        self.used = [0] * count


class Number:
    """The probabilities of a number: a tree for its bit length, and its second bit for each length."""

    def __init__(self) -> None:
        self.lengths = Probabilities(64)
        self.seconds = Probabilities(64)


class Decoder:
    """Reads bits, trees and numbers from the corrections."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.range, self.code = 0xFFFFFFFF, 0
        for _ in range(4):
            self.code = self.code << 8 | self.next_byte()

    def next_byte(self) -> int:
        at = self.at
        self.at += 1
        if at < len(self.data):
            return self.data[at]
        expect(at < len(self.data) + 8, "the corrections end too soon")
        return 0

    def refill(self) -> None:
        while self.range < 1 << 24:
            self.range <<= 8
            self.code = self.code << 8 | self.next_byte()

    def bit(self, row: Probabilities, index: int = 0) -> int:
        """A bit with the probability at `index` of the row, which learns from it."""
        zero, used = row.zero[index], row.used[index]
        bound = (self.range >> 12) * (zero >> 4)
        rate = RATES[used]
        if used < 5:
            row.used[index] = used + 1
        if self.code < bound:
            self.range = bound
            row.zero[index] = zero + (65535 - zero >> rate)
            bit = 0
        else:
            self.code -= bound
            self.range -= bound
            row.zero[index] = zero - (zero >> rate)
            bit = 1
        self.refill()
        return bit

    def raw(self, count: int) -> int:
        """A value of `count` bits without probabilities."""
        value = 0
        for _ in range(count):
            self.range >>= 1
            bit = self.code >= self.range
            if bit:
                self.code -= self.range
            value = value << 1 | bit
            self.refill()
        return value

    def tree(self, row: Probabilities, bits: int) -> int:
        """A value of `bits` bits; the bits before it choose the probability of each."""
        node = 1
        for _ in range(bits):
            node = node << 1 | self.bit(row, node)
        return node - (1 << bits)

    def number(self, number: Number) -> int:
        """A number of any size up to 63 bits."""
        length = self.tree(number.lengths, 6)
        if length < 2:
            return length
        value = 2 | self.bit(number.seconds, length)
        return value << length - 2 | self.raw(length - 2)


class Names:
    """All that the corrections have probabilities for. They live as long as the corrections."""

    def __init__(self) -> None:
        self.directive = Probabilities(4)
        self.copied = Number()
        self.chunks, self.chunks_equal, self.chunk_length = Number(), Probabilities(1), Number()
        self.settings_same = Probabilities(1)
        self.plain_length, self.lookahead_full, self.lookahead = Number(), Probabilities(1), Number()
        self.blocks, self.cut, self.padding = Number(), Probabilities(1), Probabilities(1)
        self.stored, self.last, self.stored_length = Probabilities(2), Probabilities(2), Number()
        self.full, self.tokens = Probabilities(1), Number()
        self.misses, self.run = Probabilities(2), (Number(), Number())
        self.is_copy, self.same_length, self.same_distance = Probabilities(2), Probabilities(1), Probabilities(1)
        self.length, self.distance = Probabilities(256), Probabilities(32)
        self.fixed, self.lengths_same, self.symbols_same = Probabilities(2), Probabilities(1), Probabilities(1)
        self.code_length = [Probabilities(16) for _ in range(16)]
        self.symbol = Probabilities(32)


# Members.


def read_settings(decoder: Decoder) -> Settings:
    """The settings of a member that has others than the member before."""
    new = Settings()
    new.family, new.level, new.hash_bits, new.filtered = (decoder.raw(bits) for bits in (3, 4, 5, 1))
    new.window, new.builder = decoder.raw(4), decoder.raw(2)
    new.block_tokens = decoder.raw(16)
    new.block_tokens |= decoder.raw(5) << 16
    expect(new.family <= RUNS and 1 <= new.level <= 9 and 8 <= new.hash_bits <= 16, "settings out of range")
    expect(9 <= new.window <= 15 and new.builder <= BY_MINIZ and new.block_tokens, "settings out of range")
    return new


class Stream:
    """The bytes that are rebuilt, in chunks if there are any."""

    def __init__(self, limit: int) -> None:
        self.bytes, self.limit = bytearray(), limit
        self.lengths: list[int] = []
        self.left, self.sum = 0, 0

    def begin_chunks(self, lengths: list[int]) -> None:
        expect(not self.lengths and not self.left, "chunks begin before the last are full")
        self.lengths = lengths[::-1]

    def put(self, data: bytes) -> None:
        expect(len(self.bytes) + len(data) <= self.limit, "the stream is longer than allowed")
        at = 0
        while at < len(data):
            if not self.left and not self.lengths:
                self.bytes += data[at:]
                return
            if not self.left:
                self.left = self.lengths.pop()
                self.bytes += self.left.to_bytes(4, "big") + b"IDAT"
                self.sum = zlib.crc32(b"IDAT")
            part = data[at : at + self.left]
            self.bytes += part
            self.sum = zlib.crc32(part, self.sum)
            self.left -= len(part)
            at += len(part)
            if not self.left:
                self.bytes += self.sum.to_bytes(4, "big")


class Rebuilder:
    """Rebuilds one stream."""

    def __init__(self, plain: bytes, corrections: bytes, limit: int) -> None:
        self.plain, self.at = plain, 0
        self.decoder, self.names = Decoder(corrections), Names()
        self.stream, self.settings = Stream(limit), Settings()

    def take(self, count: int) -> bytes:
        """The next bytes of the plain content."""
        expect(count <= len(self.plain) - self.at, "the plain content ends too soon")
        self.at += count
        return self.plain[self.at - count : self.at]

    def run(self) -> bytes:
        decoder, names = self.decoder, self.names
        while (directive := decoder.tree(names.directive, 2)) != REST:
            if directive == PASS:
                count = decoder.number(names.copied)
                expect(count, "an empty pass")
                self.stream.put(self.take(count))
            elif directive == MEMBER:
                self.member()
            else:
                self.stream.begin_chunks(self.chunk_lengths())
        self.stream.put(self.plain[self.at :])
        return bytes(self.stream.bytes)

    def chunk_lengths(self) -> list[int]:
        decoder, names = self.decoder, self.names
        count = decoder.number(names.chunks)
        expect(1 <= count <= CHUNKS_MAX, "too many chunks")
        is_equal = decoder.bit(names.chunks_equal)
        lengths = [decoder.number(names.chunk_length)]
        if is_equal:
            lengths *= max(1, count - 1)
        while len(lengths) < count:
            lengths.append(decoder.number(names.chunk_length))
        return [max(1, length & 0xFFFFFFFF) for length in lengths]

    def padding(self) -> int:
        return self.decoder.raw(7) if self.decoder.bit(self.names.padding) else 0

    def member(self) -> None:
        if not self.decoder.bit(self.names.settings_same):
            self.settings = read_settings(self.decoder)
        member = Member(self)
        while True:
            is_done = member.section()
            if is_done:
                member.writer.pad(self.padding())
            self.stream.put(member.writer.take())
            if is_done or self.decoder.bit(self.names.cut):
                expect(member.view.end() == member.end, "a member ends before its lookahead")
                return


class Member:
    """A member while it is rebuilt."""

    def __init__(self, owner: Rebuilder) -> None:
        self.owner, self.decoder, self.names, self.settings = owner, owner.decoder, owner.names, owner.settings
        self.view, self.writer = View(), BitWriter()
        self.predictor = self.settings.predictor(self.view)
        self.at = self.end = 0

    def section(self) -> bool:
        """Rebuilds a section; whether its last block is the last of the member."""
        decoder, names, owner = self.decoder, self.names, self.owner
        length = decoder.number(names.plain_length)
        expect(self.end + length <= MEMBER_MAX, "a member is too long")
        lookahead = LOOKAHEAD_MAX if decoder.bit(names.lookahead_full) else decoder.number(names.lookahead)
        expect(lookahead <= LOOKAHEAD_MAX, "the lookahead is too long")
        blocks = decoder.number(names.blocks) + 1
        expect(length + lookahead <= len(owner.plain) - owner.at, "the plain content ends too soon")
        seen = self.view.end() - self.end
        owner.at += length
        self.end += length
        expect(seen <= length + lookahead, "a section is shorter than the lookahead before it")
        self.view.data += owner.plain[owner.at - length + seen : owner.at + lookahead]
        is_last = False
        for left in reversed(range(blocks)):
            expect(not is_last, "a block follows the last one")
            is_last = self.block(left == 0)
            owner.stream.put(self.writer.take())
        expect(self.at == self.end, "the blocks do not fill the section")
        return is_last

    def block(self, ends_section: bool) -> bool:
        """Rebuilds a block; whether it is the last of the member."""
        decoder, names, writer = self.decoder, self.names, self.writer
        is_stored = decoder.bit(names.stored, ends_section)
        is_last = decoder.bit(names.last, ends_section)
        writer.put(is_last, 1)
        if is_stored:
            length = self.end - self.at if ends_section else decoder.number(names.stored_length)
            expect(length <= STORED_MAX and self.at + length <= self.end, "a stored block is too long")
            writer.put(0, 2)
            writer.pad(self.padding())
            writer.put(length, 16)
            writer.put(length ^ 0xFFFF, 16)
            self.owner.stream.put(writer.take() + self.view.data[self.at : self.at + length])
            self.at += length
            self.predictor.stored(length, self.at)
            return bool(is_last)
        count = None
        if not ends_section:
            count = self.settings.block_tokens if decoder.bit(names.full) else decoder.number(names.tokens)
            expect(count <= TOKENS_MAX, "a block has too many tokens")
        begin = self.at
        self.write_codes(begin, self.tokens(count))
        return bool(is_last)

    def padding(self) -> int:
        return self.owner.padding()

    def tokens(self, count: int | None) -> list[tuple[int, int]]:
        """The tokens of a block, `count` of them or as many as fill the section."""
        decoder, names, tokens = self.decoder, self.names, []
        missed = 0
        while True:
            has_miss = decoder.bit(names.misses, missed)
            run = decoder.number(names.run[missed]) if has_miss else TOKENS_MAX
            while True:
                if len(tokens) == count or (count is None and self.at == self.end):
                    return tokens
                expect(len(tokens) < TOKENS_MAX and self.at < self.end, "the tokens of a block do not fit its bytes")
                token = self.predictor.predict(self.at)
                if run == 0:
                    break
                self.accept(token, tokens)
                run -= 1
            self.accept(self.differing(token), tokens)
            missed = 1

    def accept(self, token: tuple[int, int], tokens: list[tuple[int, int]]) -> None:
        expect(self.at + token[0] <= self.end, "a token is not of its section")
        self.predictor.advance(self.at, token)
        self.at += token[0]
        tokens.append(token)

    def differing(self, expected: tuple[int, int]) -> tuple[int, int]:
        """A token that is not the expected one."""
        decoder, names = self.decoder, self.names
        expects_match = expected[1] > 0
        if not decoder.bit(names.is_copy, expects_match):
            return LITERAL
        is_same_length = expects_match and decoder.bit(names.same_length)
        length = expected[0] if is_same_length else 3 + decoder.tree(names.length, 8)
        if expects_match and not is_same_length and decoder.bit(names.same_distance):
            return length, expected[1]
        base, extra = DISTANCES[min(decoder.tree(names.distance, 5), 29)]
        return length, base + decoder.raw(extra)

    def write_codes(self, begin: int, tokens: list[tuple[int, int]]) -> None:
        """Writes the rest of a block: its kind, its codes and its tokens."""
        decoder, names, writer, data = self.decoder, self.names, self.writer, self.view.data
        literals, distances = [0] * 286, [0] * 30
        at = begin
        for length, distance in tokens:
            if distance:
                literals[257 + SYMBOL_OF_LENGTH[length]] += 1
                distances[SYMBOL_OF_DISTANCE[distance]] += 1
            else:
                literals[data[at]] += 1
            at += length
        literals[END_OF_BLOCK] = 1
        builder = self.settings.builder
        literal_lengths = without_end(BUILDERS[builder](literals, 15), 257)
        distance_lengths = without_end(BUILDERS[builder](distances, 15), 1)
        header = predicted_header(builder, literal_lengths, distance_lengths)

        def size(of_literals: list[int], of_distances: list[int]) -> int:
            return sum(map(int.__mul__, literals, of_literals)) + sum(map(int.__mul__, distances, of_distances))

        fixed_size = 3 + size(FIXED_LITERALS, FIXED_DISTANCES)
        dynamic_size = 3 + header.size() + size(literal_lengths, distance_lengths)
        if decoder.bit(names.fixed, (fixed_size + 7) // 8 <= (dynamic_size + 7) // 8):
            writer.put(1, 2)
            literal_lengths, distance_lengths = FIXED_LITERALS, FIXED_DISTANCES
        else:
            if not decoder.bit(names.lengths_same):
                counts = decoder.raw(5) + 257, decoder.raw(5) + 1
                literal_lengths, distance_lengths = (
                    [
                        decoder.tree(names.code_length[predicted[at] if at < len(predicted) else 0], 4)
                        for at in range(count)
                    ]
                    for predicted, count in zip((literal_lengths, distance_lengths), counts, strict=True)
                )
                header = None
            if not decoder.bit(names.symbols_same):
                header = self.read_header(len(literal_lengths) + len(distance_lengths))
            elif header is None:
                header = predicted_header(builder, literal_lengths, distance_lengths)
            writer.put(2, 2)
            self.write_header(header, len(literal_lengths), len(distance_lengths))
            literal_lengths, distance_lengths = header.stands_for(len(literal_lengths), len(distance_lengths))
        self.write_tokens(begin, tokens, codes_of(literal_lengths), codes_of(distance_lengths))

    def read_header(self, lengths: int) -> Header:
        decoder, names = self.decoder, self.names
        written = decoder.raw(4) + 4
        code = [decoder.raw(3) for _ in range(19)]
        symbols, left = [], lengths
        while left > 0:
            symbol = min(decoder.tree(names.symbol, 5), 18)
            extra = decoder.raw(CODE_LENGTH_EXTRA.get(symbol, 0))
            symbols.append((symbol, extra))
            left -= 1 if symbol < 16 else extra + (11 if symbol == 18 else 3)
        return Header(written, code, symbols)

    def write_header(self, header: Header, literals: int, distances: int) -> None:
        writer = self.writer
        writer.put(literals - 257, 5)
        writer.put(distances - 1, 5)
        writer.put(header.written - 4, 4)
        for symbol in CODE_LENGTH_ORDER[: header.written]:
            writer.put(header.lengths[symbol], 3)
        codes = codes_of(header.lengths)
        for symbol, extra in header.symbols:
            writer.put(*codes[symbol])
            writer.put(extra, CODE_LENGTH_EXTRA.get(symbol, 0))

    def write_tokens(self, begin: int, tokens: list[tuple[int, int]], literals: list, distances: list) -> None:
        writer, data, at = self.writer, self.view.data, begin

        def code(codes: list, symbol: int) -> None:
            if symbol < len(codes):
                writer.put(*codes[symbol])

        for length, distance in tokens:
            if distance:
                symbol = SYMBOL_OF_LENGTH[length]
                code(literals, 257 + symbol)
                writer.put(length - LENGTHS[symbol][0], LENGTHS[symbol][1])
                symbol = SYMBOL_OF_DISTANCE[distance]
                code(distances, symbol)
                writer.put(distance - DISTANCES[symbol][0], DISTANCES[symbol][1])
            else:
                code(literals, data[at])
            at += length
        code(literals, END_OF_BLOCK)


def rebuild(plain: bytes, corrections: bytes, limit: int = STREAM_MAX) -> bytes:
    """The stream of which these are the plain content and the corrections, at most about `limit` bytes.

    What no stream of fhrd has, and a longer stream, are a ValueError.
    """
    return Rebuilder(plain, corrections, limit).run()


def main() -> int:
    if len(sys.argv) != 4:
        print("usage: opened.py PLAIN CORRECTIONS STREAM", file=sys.stderr)
        return 2
    plain, corrections, stream = map(Path, sys.argv[1:])
    try:
        stream.write_bytes(rebuild(plain.read_bytes(), corrections.read_bytes()))
    except (OSError, ValueError) as error:
        print(f"opened.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
