"""Predictors for opened.py: which tokens the compressors of deflate choose.

It was written from docs/TRANSFORM-DEFLATE.md and shares no code with fhrd. A token is its length and distance, (1, 0)
for a literal.
"""

from __future__ import annotations

from opened_codes import BY_ZLIB, MATCH_MAX

ZLIB, ZLIB_NG, GO, MINIZ, LITERALS, RUNS = range(6)
LOOKAHEAD_MAX = 1024
LITERAL = (1, 0)


class View:
    """The plain bytes of a member that predictors may see."""

    def __init__(self) -> None:
        self.data = bytearray()

    def end(self) -> int:
        return len(self.data)

    def match_length(self, candidate: int, position: int) -> int:
        """How many bytes at both are equal, at most 258."""
        data = self.data
        most = min(MATCH_MAX, len(data) - position)
        if data[candidate : candidate + most] == data[position : position + most]:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if data[candidate + low : candidate + middle] == data[position + low : position + middle]:
                low = middle
            else:
                high = middle
        return low


class Chains:
    """Positions by the hash of the bytes there: the latest of each hash, and the one before each."""

    def __init__(self, view: View, family: int, level: int, hash_bits: int) -> None:
        self.view = view
        self.latest: dict[int, int] = {}
        self.before: list[int] = []
        self.none = -1 if family == GO else 0
        self.bytes = 3
        if family == ZLIB or family == MINIZ or (family == ZLIB_NG and level == 9):
            bits = hash_bits if family == ZLIB else 15
            shift, mask = (bits + 2) // 3, (1 << bits) - 1
            self.hash = lambda at, d=view.data: (d[at] << 2 * shift ^ d[at + 1] << shift ^ d[at + 2]) & mask
        elif family == ZLIB_NG:
            self.bytes = 4
            self.hash = lambda at, d=view.data: (
                (int.from_bytes(d[at : at + 4], "little") * 2654435761 & 0xFFFFFFFF) >> 16
            )
        else:
            self.bytes = 4
            self.hash = lambda at, d=view.data: (int.from_bytes(d[at : at + 4], "big") * 0x1E35A7BD & 0xFFFFFFFF) >> 15

    def next(self) -> int:
        """The first position that is neither inserted nor left out."""
        return len(self.before)

    def insert_until(self, end: int) -> bool:
        """Inserts all positions before `end` that have enough bytes; whether none is left."""
        last = min(end, self.view.end() - self.bytes + 1)
        for at in range(len(self.before), last):
            value = self.hash(at)
            self.before.append(self.latest.get(value, self.none))
            self.latest[value] = at
        return len(self.before) >= end

    def leave_out_until(self, position: int) -> None:
        lacking = position - len(self.before)
        if lacking > 0:
            self.before += [self.none] * lacking

    def latest_like(self, position: int) -> int:
        """The latest position with the hash of the bytes at `position`."""
        if position + self.bytes > self.view.end():
            return self.none
        return self.latest.get(self.hash(position), self.none)


class Rules:
    """The numbers that steer a search."""

    ZLIB_ROWS = {
        1: (4, 4, 8, 4), 2: (4, 5, 16, 8), 3: (4, 6, 32, 32), 4: (4, 4, 16, 16), 5: (8, 16, 32, 32),
        6: (8, 16, 128, 128), 7: (8, 32, 128, 256), 8: (32, 128, 258, 1024), 9: (32, 258, 258, 4096),
    }  # fmt: skip
    ZLIB_NG_ROWS = ZLIB_ROWS | {1: (0, 0, 258, 1), 2: (4, 4, 8, 4), 3: (4, 6, 16, 6), 4: (4, 12, 32, 24)}
    PROBES = {1: 1, 2: 6, 3: 32, 4: 16, 5: 32, 6: 128, 7: 256, 8: 512, 9: 768}

    def __init__(self, settings: Settings) -> None:
        family, level = settings.family, settings.level
        self.family, self.level, self.far = family, level, (1 << settings.window) - 262
        self.probes = self.PROBES[level]
        rows = self.ZLIB_NG_ROWS if family == ZLIB_NG else self.ZLIB_ROWS
        self.good, self.lazy, self.nice, self.chain = rows[level]
        if family == MINIZ and level > 3:
            self.lazy = 128
        self.least = 4 if family == GO or (family == ZLIB_NG and level < 7) else 3
        self.too_far = {ZLIB: 4096 if level >= 4 else 1 << 30, GO: 4096, MINIZ: 8191}.get(family, 1 << 30)
        first_filtered = {ZLIB: 4, ZLIB_NG: 7, MINIZ: 1}.get(family, 10)
        self.filtered = settings.filtered and level >= first_filtered
        self.is_greedy = level <= (2 if family == ZLIB_NG else 3)


def window_start(position: int) -> int:
    """Where the window of 64 KiB begins that holds this position."""
    return 0 if position < 65275 else ((position - 65275) // 32768 + 1) * 32768


def search(view: View, chains: Chains, rules: Rules, at: int, before: int = 2) -> tuple[int, int] | None:
    """The match at `at` that the compressor finds, which is longer than the one of length `before`."""
    if before >= min(MATCH_MAX, view.end() - at):
        return None
    if rules.family == GO:
        return search_go(view, chains, rules, at)
    if rules.family == MINIZ:
        length, distance = search_miniz(view, chains, rules, at, before)
        if distance == at % 32768:
            return None
    elif rules.family == ZLIB_NG and rules.level == 9:
        length, distance = search_deep(view, chains, rules, at, before)
    else:
        length, distance = search_chain(view, chains, rules, at, before)
    if not distance or length < rules.least or (length == rules.least and distance > rules.too_far):
        return None
    if rules.filtered and length <= 5:
        return None
    return length, distance


def candidates(rules: Rules, before: int) -> int:
    """How many candidates a search looks at."""
    return max(1, rules.chain // 4) if before >= rules.good else rules.chain


def search_chain(view: View, chains: Chains, rules: Rules, at: int, before: int) -> tuple[int, int]:
    """zlib, and zlib-ng up to level 8."""
    data, all_bytes = view.data, min(MATCH_MAX, view.end() - at)
    can_give_up = rules.family == ZLIB_NG and rules.level <= 4
    left, best, distance = candidates(rules, before), before, 0
    candidate = chains.before[at]
    if at - candidate > rules.far:
        return best, 0
    ends_with = data[at + best]
    while candidate > 0 and left:
        if data[candidate + best] == ends_with:
            length = view.match_length(candidate, at)
            if length > best:
                best, distance = length, at - candidate
                if best >= rules.nice or best >= all_bytes:
                    break
                ends_with = data[at + best]
            elif can_give_up and length >= 8 and best >= 8:
                if data[candidate + best - 7 : candidate + best + 1] == data[at + best - 7 : at + best + 1]:
                    break
        left -= 1
        candidate = chains.before[candidate]
        if at - candidate >= rules.far:
            break
    return best, distance


def search_deep(view: View, chains: Chains, rules: Rules, at: int, before: int) -> tuple[int, int]:
    """zlib-ng 9."""
    all_bytes = min(MATCH_MAX, view.end() - at)
    left, best, distance = candidates(rules, before), before, 0
    offset, base = 0, max(0, at - rules.far)
    candidate = chains.before[at]
    if candidate <= 0 or at - candidate > rules.far:
        return best, 0
    limit = base
    if before >= 3:
        for k in range(1, before - 1):
            latest = chains.latest_like(at + k)
            if latest < candidate:
                candidate, offset = latest, k
        limit = base + offset
        if candidate <= limit:
            return best, 0
    while candidate < at:
        length = view.match_length(candidate - offset, at)
        if length > best:
            start = candidate - offset
            best, distance = length, at - start
            if length >= all_bytes or length >= rules.nice:
                break
            if length > 3 and start + length < at:
                candidate, offset = start, 0
                for k in range(length - 2):
                    earlier = chains.before[start + k]
                    if earlier < candidate:
                        if earlier <= base + k:
                            return best, distance
                        candidate, offset = earlier, k
                latest = chains.latest_like(at + length - 4)
                if latest < candidate:
                    if latest <= base + length - 4:
                        return best, distance
                    candidate, offset = latest, length - 4
                limit = base + offset
                continue
        left -= 1
        if not left:
            break
        candidate = chains.before[candidate]
        if candidate <= limit:
            break
    return best, distance


def search_go(view: View, chains: Chains, rules: Rules, at: int) -> tuple[int, int] | None:
    """Go 2 to 9."""
    data, all_bytes = view.data, min(MATCH_MAX, view.end() - at)
    start, best, distance = window_start(at), 3, 0
    candidate = chains.before[at]
    for _ in range(rules.chain):
        if candidate < start or at - candidate > 32768 or best >= all_bytes:
            break
        if data[candidate + best] == data[at + best]:
            length = view.match_length(candidate, at)
            if length > best and (length > 4 or at - candidate <= 4096):
                best, distance = length, at - candidate
                if best >= rules.nice or best >= all_bytes:
                    break
        if at - candidate == 32768:
            break
        candidate = chains.before[candidate]
    return (best, distance) if distance else None


def search_miniz(view: View, chains: Chains, rules: Rules, at: int, before: int) -> tuple[int, int]:
    """miniz."""
    data, all_bytes = view.data, min(MATCH_MAX, view.end() - at)
    most_back = min(at, 32768 - all_bytes)
    probes = rules.probes // 4 if before >= 32 else rules.probes
    left, best, distance, candidate = 1 + (probes + 2) // 3, before, 0, at
    while True:
        left -= 1
        if not left:
            return best, distance
        for _ in range(3):
            candidate = chains.before[candidate]
            if candidate % 65536 == 0 or at - candidate > most_back:
                return best, distance
            if data[candidate + best - 1 : candidate + best + 1] == data[at + best - 1 : at + best + 1]:
                length = view.match_length(candidate, at)
                if length > best:
                    best, distance = length, at - candidate
                    if best >= all_bytes:
                        return best, distance
                break


class Literals:
    """Family 4: literals only."""

    def __init__(self, view: View) -> None:
        self.view = view

    def predict(self, at: int) -> tuple[int, int]:
        """The token that is expected at this position."""
        return LITERAL

    def advance(self, at: int, token: tuple[int, int]) -> None:
        """Takes note of the true token at the position that was predicted."""

    def stored(self, length: int, end: int) -> None:
        """Takes note of a stored block of `length` bytes that ends there."""


class Runs(Literals):
    """Family 5: runs of the same byte."""

    def predict(self, at: int) -> tuple[int, int]:
        length = self.view.match_length(at - 1, at) if at else 0
        return (length, 1) if length >= 3 else LITERAL


class Lazy(Literals):
    """Takes a match unless the next position has a longer one."""

    def __init__(self, view: View, settings: Settings) -> None:
        super().__init__(view)
        self.rules = Rules(settings)
        self.chains = Chains(view, settings.family, settings.level, settings.hash_bits)
        self.weighed: tuple[int, tuple[int, int] | None] | None = None

    def search(self, at: int, before: int = 2) -> tuple[int, int] | None:
        """Inserts a position and searches there."""
        if not self.chains.insert_until(at + 1):
            return None
        return search(self.view, self.chains, self.rules, at, before)

    def predict(self, at: int) -> tuple[int, int]:
        if self.weighed and self.weighed[0] == at:
            match = self.weighed[1]
        else:
            match = self.search(at)
        self.weighed = None
        if match is None:
            return LITERAL
        longer = self.search(at + 1, match[0]) if match[0] < self.rules.lazy else None
        self.weighed = at + 1, None
        if longer and longer[0] > match[0]:
            self.weighed = at + 1, longer
            return LITERAL
        return match

    def advance(self, at: int, token: tuple[int, int]) -> None:
        self.chains.insert_until(at + token[0])
        if token[1]:
            self.weighed = None

    def stored(self, length: int, end: int) -> None:
        if length:
            self.chains.insert_until(end)
        self.weighed = None


class Greedy(Lazy):
    """Takes each match at once."""

    def predict(self, at: int) -> tuple[int, int]:
        return self.search(at) or LITERAL

    def advance(self, at: int, token: tuple[int, int]) -> None:
        rules, end = self.rules, at + token[0]
        if token[1] and token[0] > rules.lazy and rules.family != MINIZ:
            if (rules.family, rules.level) == (ZLIB_NG, 2):
                self.chains.leave_out_until(end - 1)
                self.chains.insert_until(end)
            self.chains.leave_out_until(end)
        self.chains.insert_until(end)


class Medium(Lazy):
    """zlib-ng 3 to 6: a match may begin sooner than it was found."""

    def __init__(self, view: View, settings: Settings) -> None:
        super().__init__(view, settings)
        # The step that follows: position, length and source.
        self.following: tuple[int, int, int] | None = None
        self.predicted = LITERAL

    def step(self, at: int) -> tuple[int, int, int]:
        """A step at this position: its position, length and source."""
        self.chains.leave_out_until(at)
        length, distance = self.search(at) or LITERAL
        return at, length, at - distance

    def insert(self, at: int, length: int) -> None:
        if length > 16 * self.rules.lazy:
            self.chains.leave_out_until(at + length - 1)
        self.chains.insert_until(at + length)

    def predict(self, at: int) -> tuple[int, int]:
        left = self.view.end() - at
        current = self.following
        if current is None or current[0] != at:
            current = self.step(at)
        self.following = None
        while True:
            length = current[1]
            if length > 1 and left > length + 4:
                self.insert(at, length)
            if self.rules.level >= 5 and left > 262 and at + length - window_start(at) < 65274:
                self.following = self.step(at + length)
                if length > 1 and self.following[1] > 1:
                    current, self.following = self.sooner(current, self.following, window_start(at))
            if current[1] or self.following is None:
                break
            current, self.following = self.following, None
        self.predicted = (current[1], at - current[2]) if current[1] >= 4 else LITERAL
        return self.predicted

    def sooner(self, current: tuple, following: tuple, start: int) -> tuple[tuple, tuple]:
        """The two steps after the second was begun as soon as it can be."""
        data, (at, c, source), (q, n, r) = self.view.data, current, following
        first, limit = q, max(start, q - self.rules.far)
        if c - 1 > r - start or data[r - (c - 1)] != data[q - (c - 1)]:
            return current, following
        while c >= 1 and n < 256 and q > limit and r > start + 1 and data[r - 1] == data[q - 1]:
            q, r, n, c = q - 1, r - 1, n + 1, c - 1
        if q != first and c <= 1:
            return (at, c, source), (q, n, r)
        return current, following

    def advance(self, at: int, token: tuple[int, int]) -> None:
        if token != self.predicted:
            self.following = None
        if self.following is None and token[0] <= 16 * self.rules.lazy:
            self.chains.insert_until(at + token[0])

    def stored(self, length: int, end: int) -> None:
        super().stored(length, end)
        self.following = None


class GoFast(Literals):
    """Go 1."""

    BLOCK = 65535

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.table: dict[int, int] = {}
        self.end, self.probe, self.after_match, self.skip = 0, -1, False, 32
        self.predicted = LITERAL

    def put(self, at: int) -> int | None:
        """Puts a position into the table; the entry before, or -1. None without four bytes."""
        if at + 4 > self.view.end():
            return None
        value = (int.from_bytes(self.view.data[at : at + 4], "little") * 0x1E35A7BD & 0xFFFFFFFF) >> 18
        before = self.table.get(value, -1)
        self.table[value] = at
        return before

    def block_end(self, at: int) -> int:
        """Where the block ends, as far as it is known at this position."""
        return min(self.end, self.view.end()) if self.view.end() - at < LOOKAHEAD_MAX else self.end

    def find(self, at: int) -> tuple[int, int]:
        if at >= self.end:
            self.end, self.probe, self.after_match, self.skip = at + self.BLOCK, at, False, 32
        end = self.block_end(at)
        if at != self.probe or end - (self.end - self.BLOCK) < 128:
            return LITERAL
        if self.after_match:
            if self.put(at - 1) is None:
                return LITERAL
            self.probe, self.after_match, self.skip = at + 1, False, 32
        else:
            step = self.skip // 32
            self.skip += step
            self.probe = at + step
            if self.probe > end - 15:
                self.probe = -1
                return LITERAL
        before = self.put(at)
        if before is None or before < 0 or at - before > 32768:
            return LITERAL
        length = min(self.view.match_length(before, at), end - at)
        return (length, at - before) if length >= 4 else LITERAL

    def predict(self, at: int) -> tuple[int, int]:
        self.predicted = self.find(at)
        return self.predicted

    def advance(self, at: int, token: tuple[int, int]) -> None:
        end = at + token[0]
        if token != self.predicted:
            self.probe, self.after_match, self.skip = end, token[1] > 0, 32
        elif token[1]:
            self.probe, self.after_match = (end, True) if end < self.block_end(at) - 15 else (-1, False)

    def stored(self, length: int, end: int) -> None:
        self.end = end


class Settings:
    """Which compressor is predicted."""

    def __init__(self) -> None:
        self.family, self.level, self.hash_bits, self.filtered = ZLIB, 6, 15, 0
        self.window, self.builder, self.block_tokens = 15, BY_ZLIB, 16383

    def predictor(self, view: View) -> Literals:
        if self.family == LITERALS:
            return Literals(view)
        if self.family == RUNS:
            return Runs(view)
        if self.family == GO and self.level == 1:
            return GoFast(view)
        if self.family == ZLIB_NG and 3 <= self.level <= 6:
            return Medium(view, self)
        return Greedy(view, self) if Rules(self).is_greedy else Lazy(view, self)
