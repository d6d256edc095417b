"""Codes of deflate for opened.py: symbols, bits, builders of codes, and headers of blocks.

It was written from docs/TRANSFORM-DEFLATE.md and shares no code with fhrd.
"""

BY_ZLIB, BY_GO, BY_MINIZ = range(3)
MATCH_MAX = 258
END_OF_BLOCK = 256
CODE_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
CODE_LENGTH_EXTRA = {16: 2, 17: 3, 18: 7}


def steps(first: int, extra_bits: list[int]) -> list[tuple[int, int]]:
    """The base and the count of extra bits of each symbol."""
    rows = []
    for bits in extra_bits:
        rows.append((first, bits))
        first += 1 << bits
    return rows


LENGTHS = steps(3, [0] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4)[:28] + [(258, 0)]
DISTANCES = steps(1, [0, 0] + [bits for bits in range(14) for _ in (0, 1)])
SYMBOL_OF_LENGTH = [0] * (MATCH_MAX + 1)
for _symbol, (_base, _bits) in enumerate(LENGTHS):
    for _length in range(_base, min(_base + (1 << _bits), MATCH_MAX + 1)):
        SYMBOL_OF_LENGTH[_length] = _symbol
SYMBOL_OF_DISTANCE = [0] * 32769
for _symbol, (_base, _bits) in enumerate(DISTANCES):
    SYMBOL_OF_DISTANCE[_base : _base + (1 << _bits)] = [_symbol] * (1 << _bits)

FIXED_LITERALS = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8
FIXED_DISTANCES = [5] * 30


class BitWriter:
    """Writes the bits of a member, the lowest of each byte first."""

    def __init__(self) -> None:
        self.bytes, self.value, self.count = bytearray(), 0, 0

    def put(self, value: int, count: int) -> None:
        self.value |= value << self.count
        self.count += count
        whole = self.count >> 3
        if whole >= 8:
            self.bytes += (self.value & (1 << whole * 8) - 1).to_bytes(whole, "little")
            self.value >>= whole * 8
            self.count &= 7

    def pad(self, seven_bits: int) -> None:
        """Fills the last byte."""
        lacking = -self.count & 7
        self.put(seven_bits & (1 << lacking) - 1, lacking)

    def take(self) -> bytes:
        """The whole bytes so far."""
        whole = self.count >> 3
        self.bytes += (self.value & (1 << whole * 8) - 1).to_bytes(whole, "little")
        self.value >>= whole * 8
        self.count &= 7
        taken, self.bytes = bytes(self.bytes), bytearray()
        return taken


def codes_of(lengths: list[int]) -> list[tuple[int, int]]:
    """The codes of these lengths as deflate gives them: bits to write and their count."""
    counts = [0] * 17
    for length in lengths:
        counts[length] += length > 0
    code, next_code = 0, [0] * 17
    for length in range(1, 16):
        code = code + counts[length - 1] << 1
        next_code[length] = code
    codes = []
    for length in lengths:
        if length == 0:
            codes.append((0, 0))
            continue
        code = next_code[length] & (1 << length) - 1
        next_code[length] += 1
        codes.append((int(format(code, f"0{length}b")[::-1], 2), length))
    return codes


# Builders: lengths of codes from counts.


def build_zlib(counts: list[int], limit: int) -> list[int]:
    """Builder 0."""
    weight = dict((symbol, count) for symbol, count in enumerate(counts) if count)
    greatest = max(weight, default=-1)
    heap = list(weight)
    while len(heap) < 2:
        if greatest < 2:
            greatest += 1
            symbol = greatest
        else:
            symbol = 0
        weight[symbol] = 1
        heap.append(symbol)
    depth = dict.fromkeys(heap, 0)
    parent: dict[int, int] = {}

    def key(node: int) -> tuple[int, int]:
        return weight[node], depth[node]

    def sift(at: int) -> None:
        node = heap[at]
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and key(heap[child + 1]) <= key(heap[child]):
                child += 1
            if key(node) <= key(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = node

    for at in reversed(range(len(heap) // 2)):
        sift(at)
    taken, new = [], len(counts) + 2
    while len(heap) > 1:
        least, heap[0] = heap[0], heap[-1]
        heap.pop()
        sift(0)
        second = heap[0]
        taken += [least, second]
        weight[new] = weight[least] + weight[second]
        depth[new] = max(depth[least], depth[second]) + 1
        parent[least] = parent[second] = new
        heap[0] = new
        sift(0)
        new += 1
    length = {heap[0]: 0}
    with_length, overflow = [0] * (limit + 2), 0
    for node in reversed(taken):
        bits = length[parent[node]] + 1
        if bits > limit:
            bits = limit
            overflow += 1
        length[node] = bits
        with_length[bits] += node < len(counts)
    if not overflow:
        return [length.get(symbol, 0) for symbol in range(len(counts))]
    while overflow > 0:
        bits = limit - 1
        while with_length[bits] == 0:
            bits -= 1
        with_length[bits] -= 1
        with_length[bits + 1] += 2
        with_length[limit] -= 1
        overflow -= 2
    lengths = [0] * len(counts)
    symbols = iter(node for node in taken if node < len(counts))
    for bits in range(limit, 0, -1):
        for _ in range(with_length[bits]):
            lengths[next(symbols)] = bits
    return lengths


def by_count(counts: list[int]) -> list[int]:
    """The symbols with a count, by count, then by number."""
    return [symbol for _, symbol in sorted((count, symbol) for symbol, count in enumerate(counts) if count)]


def give_lengths(order: list[int], with_length: list[int], symbols: int) -> list[int]:
    """Lengths from how many symbols have each; the shortest go to the last symbols of the order."""
    lengths, at = [0] * symbols, len(order)
    for bits, count in enumerate(with_length):
        for _ in range(count):
            at -= 1
            lengths[order[at]] = bits
    return lengths


def build_go(counts: list[int], limit: int) -> list[int]:
    """Builder 1."""
    order = by_count(counts)
    if len(order) <= 2:
        return [int(count > 0) for count in counts]
    levels = min(limit, len(order) - 1)
    symbols = [(counts[symbol], 1) for symbol in order]
    rows = [symbols]
    for _ in range(levels - 1):
        before = rows[-1]
        pairs = [(before[at][0] + before[at + 1][0], 0) for at in range(0, len(before) - 1, 2)]
        rows.append(sorted(pairs + symbols))  # a pair has 0 and comes first
    take, symbols_taken = 2 * len(order) - 2, []
    for row in reversed(rows):
        taken = sum(is_symbol for _, is_symbol in row[:take])
        symbols_taken.append(taken)
        take = 2 * (min(take, len(row)) - taken)
    symbols_taken.append(0)
    with_length = [0] + [symbols_taken[at] - symbols_taken[at + 1] for at in range(levels)]
    return give_lengths(order, with_length, len(counts))


def build_miniz(counts: list[int], limit: int) -> list[int]:
    """Builder 2."""
    order = by_count(counts)
    if len(order) <= 1:
        return [int(count > 0) for count in counts]
    weights = [counts[symbol] for symbol in order]
    parents = [0] * (2 * len(order) - 1)
    leaf, inner = 0, len(order)
    for new in range(len(order), 2 * len(order) - 1):
        total = 0
        for _ in (0, 1):
            if leaf < len(order) and (inner == new or weights[leaf] <= weights[inner]):
                node = leaf
                leaf += 1
            else:
                node = inner
                inner += 1
            total += weights[node]
            parents[node] = new
        weights.append(total)
    depth = [0] * len(parents)
    with_length = [0] * (limit + 2)
    for node in reversed(range(len(parents) - 1)):
        depth[node] = depth[parents[node]] + 1
        if node < len(order):
            with_length[min(depth[node], limit)] += 1
    total = sum(count << limit - bits for bits, count in enumerate(with_length[: limit + 1]))
    while total > 1 << limit:
        with_length[limit] -= 1
        bits = limit - 1
        while with_length[bits] == 0:
            bits -= 1
        with_length[bits] -= 1
        with_length[bits + 1] += 2
        total -= 1
    return give_lengths(order, with_length, len(counts))


BUILDERS = {BY_ZLIB: build_zlib, BY_GO: build_go, BY_MINIZ: build_miniz}


def without_end(lengths: list[int], least: int) -> list[int]:
    """The lengths without the zeros at the end, but `least` at least."""
    end = len(lengths)
    while end > least and lengths[end - 1] == 0:
        end -= 1
    return lengths[:end]


class Header:
    """The header of a dynamic block: the code of code lengths, how many of them are written, and symbols."""

    def __init__(self, written: int, lengths: list[int], symbols: list[tuple[int, int]]) -> None:
        self.written, self.lengths, self.symbols = written, lengths, symbols

    def size(self) -> int:
        """How many bits it takes."""
        return 14 + 3 * self.written + sum(self.lengths[s] + CODE_LENGTH_EXTRA.get(s, 0) for s, _ in self.symbols)

    def stands_for(self, literals: int, distances: int) -> tuple[list[int], list[int]]:
        """The lengths of literals and distances that the symbols stand for; none if they do not fit."""
        lengths: list[int] = []
        for symbol, extra in self.symbols:
            if symbol < 16:
                lengths.append(symbol)
            elif symbol == 16 and not lengths:
                return [], []
            else:
                lengths += [lengths[-1] if symbol == 16 else 0] * (extra + (11 if symbol == 18 else 3))
        if len(lengths) != literals + distances:
            return [], []
        return lengths[:literals], lengths[literals:]


def symbols_of_runs(lengths: list[int]) -> list[tuple[int, int]]:
    """The symbols for code lengths, each with the value of its extra bits."""
    symbols, at = [], 0
    while at < len(lengths):
        length, begin = lengths[at], at
        while at < len(lengths) and lengths[at] == length:
            at += 1
        left = at - begin
        if length == 0:
            while left >= 11:
                count = min(left, 138)
                symbols.append((18, count - 11))
                left -= count
            if left >= 3:
                symbols.append((17, left - 3))
                left = 0
        else:
            symbols.append((length, 0))
            left -= 1
            while left >= 3:
                count = min(left, 6)
                symbols.append((16, count - 3))
                left -= count
        symbols += [(length, 0)] * left
    return symbols


def predicted_header(builder: int, literals: list[int], distances: list[int]) -> Header:
    """The header that the builder's program writes for these lengths."""
    if builder == BY_ZLIB:
        symbols = symbols_of_runs(literals) + symbols_of_runs(distances)
    else:
        symbols = symbols_of_runs(literals + distances)
    counts = [0] * 19
    for symbol, _ in symbols:
        counts[symbol] += 1
    lengths = BUILDERS[builder](counts, 7)
    written = len(without_end([lengths[symbol] for symbol in CODE_LENGTH_ORDER], 4))
    return Header(written, lengths, symbols)
