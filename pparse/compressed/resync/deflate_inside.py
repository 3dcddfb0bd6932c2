"""Behind a gap inside a deflate block: going on in that very block.

The head of the block stands before the gap, so its codes are known. They fall into step by themselves: whichever bit
behind the gap one begins at, after some tokens all ways are one. From where all ways that lead to the block's end have
met, the tokens are certain. If it is also known where in the output the next block belongs, so is where these belong,
and what they copy from: from there on next to nothing is unknown.

That the gap holds no end of a block, and what follows belongs to another with other codes, must be shown: those may be
so similar that the wrong ones lead to the right end. A block that says it is the last of its stream leaves no
why_suspect, if no other stream may begin in the gap. Else two things tell.

1. *Numbers.* zlib, and many others, end a block when it has a certain number of tokens. Where the blocks around have
   the same number, the tokens of this one must add up to it.
2. *Copies.* A compressor copies as far as bytes are equal; tokens of which chance made copies stop short now and then.

Where neither does, the block's end is left alone. A *stored* block has its length in its head, and needs none of this.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import namedtuple
from math import sqrt

from pparse.codecs.deflate_entry import WINDOW, stretches
from pparse.compressed.resync.deflate_source import EnteredAt, TailBytes, join_edges, output_before
from pparse.errors import LimitError, spoken
from pparse.kernels import deflate_tokens
from pparse.kernels.deflate_blocks import find_blocks
from pparse.kernels.deflate_tokens import FIXED, LONGEST, STORED, read_head, walk
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.compressed.resync.deflate_source import Chain
    from pparse.data.base import Data
    from pparse.kernels.deflate_tokens import Codes, CutShort, DeflateHead, Tokens
    from pparse.limits import Charge

# Compressed bytes of a block, before the gap and behind it, that are looked at; a part of a small budget.
_MOST: Final = 512 * KIB
_OF_BUDGET: Final = 128
# What is held while that is done, for each of those bytes: itself, its bits, and its tokens.
_HELD: Final = 24
# What is kept of a block is no more than this part of the budget.
_KEPT: Final = 32
# Tokens that are gone through for one stream, but for a share of its length.
_TOKENS: Final = 4 << 20
# Where a block's head is looked for: so far before the gap, nearest first.
_NEAR: Final = (32 * KIB, 128 * KIB, _MOST)
# Tokens that must agree with what came out for a block to be in step. Stored bytes always do, wherever a header seems
# to stand among them; that there is another header where a block ends proves as much as so many tokens.
_PROOF: Final = 32
_HEADER: Final = 16
# Neighbours whose tokens are counted, on either side, and where those before are looked for.
_NEIGHBOURS: Final = 2
_NEARBY: Final = 128 * KIB
# Copies that chance would have cut short; so many must be expected for their absence to prove anything.
_EXPECTED: Final = 16
# Tokens of a block: the fewest that a buffer of zlib holds, and those that it holds unless something else is asked for.
_FEWEST: Final = 127
_DEFAULT: Final = 16_383
# By how much the output for a bit may differ between parts of a block, and how much may come on top of that.
_VARIES: Final = 8
_VARIES_BY: Final = 600
# Stretches of a window that are not known, kept apart.
_HOLES: Final = 512


class Before:
    """What precedes a gap at byte ``at``: ``out`` bytes, the last of which are ``window``, known where ``known`` is 1.

    ``block`` is the block that the gap is in, and ``tokens`` what of it stands before the gap; None where that cannot
    be told.
    """

    __slots__ = ("at", "block", "charge", "known", "last", "out", "place", "start", "tokens", "window")

    def __init__(
        self, at: int, out: int, place: int | None, window: bytearray, known: bytearray, charge: Charge
    ) -> None:
        self.at, self.out = at, out
        self.place = place  # of the whole output, if that is known
        self.window, self.known = window, known
        self.charge = charge  # dropped with this
        self.start = 0  # the bit where the block begins
        self.last = 8 * at  # the bit where the last token before the gap ends
        self.block: DeflateHead | None = None  # its ``at`` is a bit of the source, as these are
        self.tokens: Tokens | None = None


class Resumed(namedtuple("Resumed", "bit entry tail")):
    """How decoding goes on: with ``tail``, and behind it at bit ``bit`` with what ``entry`` knows."""

    __slots__ = ()


class Inside:
    """Goes on inside blocks of one stream, as long as its work stays in proportion."""

    def __init__(self, data: Data, end: int, length: int, env: DecodeEnv) -> None:
        self._data, self._end = data, end
        self._budget = env.budget
        self._poll = env.poll
        self._left = _TOKENS + length // 4
        self.most = min(_MOST, env.budget.limit // _OF_BUDGET)

    def may_go_on(self) -> bool:
        """Say whether there may be more work."""
        return self._left > 0

    @property
    def wanting(self) -> str | None:
        """What to tell of blocks in which it could not go on: with more memory it perhaps can. None: it cannot."""
        enough = _MOST * _OF_BUDGET
        if self._budget.limit >= enough:
            return None
        more = spoken(f"--budget {enough >> 20}MiB")
        return f"decoding the rest of a damaged block needs more memory; lift it with {more}"

    # -- before the gap ----------------------------------------------------------------------------------------------

    def before(self, chain: Chain, at: int) -> Before | None:
        """Return what ``chain`` says of what precedes the gap at ``at``; None if it did not come so far.

        Raises `LimitError`, also if the budget is too small for anything.
        """
        came = output_before(chain, self._data, at)
        if came is None:
            return None
        out, window, known = came
        if self._budget.limit // _KEPT < 2 * WINDOW + 128 * _HOLES:
            raise LimitError("nothing could be kept of a deflate block", option="--budget")
        charge = self._budget.charge(_HELD * self.most, "going on inside a deflate block")
        before = Before(at, out, None if chain.place is None else chain.place + out, window, known, charge)
        low = max(chain.bit // 8, at - self.most)
        buffer = self._read(low, at)
        if len(buffer) < at - low or not self.may_go_on():
            return before
        stop = 8 * len(buffer)
        for bit in self._heads_before(buffer, chain.bit - 8 * low):
            self._poll()
            if not self.may_go_on():
                break
            passed = self._pass(buffer, bit, stop)
            if passed is None or not (passed.is_in_step(before) or bit == chain.bit - 8 * low):
                continue
            start, before.block, before.tokens = passed.blocks[-1]
            before.start = start + 8 * low
            before.block.at += 8 * low
            if before.tokens is not None:
                before.last = before.tokens.at + 8 * low
            break
        return before

    def _heads_before(self, buffer: bytes, first: int) -> Iterator[int]:
        """Yield bits where a block may begin, the last ones first, down to ``first``, which is one."""
        end = len(buffer)
        for near in _NEAR:
            start = max(0, len(buffer) - near)
            yield from reversed([block.bit for block in find_blocks(buffer, max(8 * start, first), 8 * end)])
            end = start
            if not start:
                break
        if first >= 0:
            yield first

    def _pass(self, buffer: bytes, bit: int, stop: int) -> _Passed | None:
        """Go through blocks from ``bit`` to the gap at ``stop``; None if that is not possible, or the gap is not inside
        a block."""
        passed = _Passed()
        while bit < stop and (head := read_head(buffer, bit)) is not None:
            tokens = None if head.codes is None else self.walk(buffer, head.at, stop, head.codes)
            passed.add(bit, head, tokens, min(head.size, (stop - head.at) // 8))
            if tokens is None:
                bit = head.at + 8 * head.size
                if bit > stop:
                    return passed
            elif tokens.failed or not self.may_go_on():
                return None
            elif not tokens.ended:
                return passed if tokens.at + LONGEST > stop else None
            else:
                bit = tokens.at
            if head.final:
                return None
        return None

    def walk(self, buffer: bytes, bit: int, stop: int, codes: Codes, passed: bytearray | None = None) -> Tokens:
        """Go from token to token; see `pparse.kernels.deflate_tokens.walk`. What it costs is counted."""
        self._poll()
        tokens = walk(buffer, bit, stop, codes, most=self.most if self.may_go_on() else 0, passed=passed)
        self._left -= len(tokens.tokens) + 16
        return tokens

    # -- a stored block ----------------------------------------------------------------------------------------------

    def in_stored(self, before: Before) -> Resumed | None:
        """Go on in a stored block; None if the gap is in none, or reaches beyond it. Raises `LimitError`."""
        block = before.block
        if block is None or block.kind != STORED:
            return None
        end = block.at // 8 + block.size
        gaps = list(self._data.gaps_in(before.at, end))
        if not all(gap.exact and gap.end is not None and gap.end <= end for gap in gaps):
            return None
        if not gaps or (first := gaps[0].end) is None or gaps[0].offset != before.at or end > self._end:
            return None
        charge = self._charge(2 * (end - before.at))
        content, unknown = self._data.read_known(before.at, end - before.at)
        if len(content) < end - before.at:
            return None
        known = bytearray(b"\1" * len(content))
        for start, count in unknown:
            known[start - before.at : start - before.at + count] = bytes(count)
        entry = _entry(before.window[-WINDOW:] + content, before.known[-WINDOW:] + known)
        skip = first - before.at
        return Resumed(8 * end, entry, TailBytes(first, content[skip:], _edges(known[skip:]), charge))

    # -- a block of Huffman codes ------------------------------------------------------------------------------------

    def in_codes(self, before: Before, goal: Goal) -> Resumed | None:
        """Go on in the block, to ``goal``. Raises `LimitError`."""
        at = self._last_gap(before.at, goal.bit // 8)
        if before.place is None or at is None:
            return None
        if before.block is not None and before.block.codes is not None and goal.bit // 8 - at <= self.most:
            buffer = self._read(at, min(self._end, goal.bit // 8 + 16))
            with self._budget.charge(_HELD * self.most, "going on inside a deflate block"):
                resumed = self._tail(before, Ways(self, before.block, before.block.codes, at, buffer, goal))
            if resumed is not None:
                return resumed
        if goal.place is None or not 0 <= goal.place - before.place < WINDOW:
            return None
        return Resumed(goal.bit, _entry(*_lost(before, goal.place - before.place)), None)

    def _last_gap(self, at: int, end: int) -> int | None:
        """Return where the last gap before ``end`` ends."""
        found = None
        for gap in self._data.gaps_in(at, end):
            if gap.end is None or gap.end > end:
                return None
            found = gap.end
            self._poll()
        return found

    def _tail(self, before: Before, ways: Ways) -> Resumed | None:
        """Evaluate the tokens that are certain; None if there are none."""
        if not ways.find():
            return None
        done = self._evaluate(before, ways)
        if done is None:
            return None
        copies = deflate_tokens.cut_short(ways.own(), *done, WINDOW)
        if copies.front:  # damage goes on behind the gap
            done = self._evaluate(before, ways) if ways.leave_out(copies.front) else None
            if done is not None:
                copies = deflate_tokens.cut_short(ways.own(), *done, WINDOW)
        if done is None or not self._is_same_block(before, ways, copies):
            return None
        window, known = done
        content = bytes(window[WINDOW:])
        tail = TailBytes(ways.first // 8, content, _edges(known[WINDOW:]), self._charge(len(content)))
        return Resumed(ways.reached, _entry(window, known), tail)

    def _evaluate(self, before: Before, ways: Ways) -> tuple[bytearray, bytearray] | None:
        """Return what the tokens put out, and what is known of it, behind the 32 KiB before them."""
        tokens = ways.certain()
        size = deflate_tokens.output_size(tokens)
        room = ways.room(before, size)
        if size > self.most or room is None:
            return None
        window, known = _lost(before, room)
        return (window, known) if deflate_tokens.evaluate(tokens, window, known) else None

    # -- is it the same block? ---------------------------------------------------------------------------------------

    def _is_same_block(self, before: Before, ways: Ways, copies: CutShort) -> bool:
        """Say whether the gap is inside one block; see the head of the file."""
        if before.tokens is None or (copies.expected >= _EXPECTED and 4 * copies.happened > copies.expected):
            return False
        if copies.expected >= _EXPECTED or (ways.is_final and ways.goal.alone):
            return True
        whole = self._usual_number(before, ways)
        if whole is None:
            return False
        own, front = ways.own(), before.tokens
        mean, spread = _pace(front if len(front.bits) >= len(own) else ways.main)
        wanted = (ways.first - before.last) / mean
        slack = 16 + wanted / 4 + 6 * spread / mean * sqrt(wanted)
        count = len(front.bits) + len(own)
        if ways.is_final:  # it may have fewer: but then it must not come near that number
            return count + wanted + slack < whole
        missing = whole - count
        return slack <= whole / 4 and abs(missing - wanted) <= slack and missing >= 0

    def _usual_number(self, before: Before, ways: Ways) -> int | None:
        """Return how many tokens a block of this stream has, if its neighbours agree on that, or it has none."""
        counts = self._counts_before(before.start)
        if ways.goal.last is None:
            counts += self._counts_behind(ways.reached)
        if not counts:
            return None if ways.is_final else _DEFAULT
        number = counts[0]
        is_zlib = number >= _FEWEST and not (number + 1) & number  # one less than its buffer of 2^7 to 2^15 holds
        agreed = len(set(counts)) == 1 and number >= _FEWEST and (is_zlib or len(counts) > 1)
        return number if agreed else None

    def _counts_before(self, bit: int) -> list[int]:
        low = max(0, bit // 8 - min(_NEARBY, self.most))
        buffer = self._read(low, bit // 8 + 1)
        counts: list[int] = []
        goal = bit - 8 * low
        for block in reversed(list(find_blocks(buffer, 0, goal)) if len(buffer) == bit // 8 + 1 - low else []):
            head = read_head(buffer, block.bit)
            if head is None or head.codes is None:
                continue
            tokens = self.walk(buffer, head.at, goal, head.codes)
            if tokens.ended and tokens.at == goal:
                counts.append(len(tokens.bits))
                goal = block.bit
            if len(counts) == _NEIGHBOURS or not self.may_go_on():
                break
        return counts

    def _counts_behind(self, bit: int) -> list[int]:
        counts: list[int] = []
        at = bit // 8
        buffer = self._read(at, min(self._end, at + min(_NEARBY, self.most)))
        bit -= 8 * at
        while len(counts) < _NEIGHBOURS and self.may_go_on():
            head = read_head(buffer, bit)
            if head is None or head.codes is None or head.final:
                break
            tokens = self.walk(buffer, head.at, 8 * len(buffer), head.codes)
            if not tokens.ended:
                break
            counts.append(len(tokens.bits))
            bit = tokens.at
        return counts

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _read(self, start: int, end: int) -> bytes:
        """Return what is known from ``start`` on, up to a gap or ``end``."""
        return self._data.known(start, end - start) if start < end else b""

    def _charge(self, size: int) -> Charge:
        """Charge a tail of ``size`` bytes, and the window that comes with it; they stay, so they must be small."""
        size += 2 * WINDOW + 128 * _HOLES
        if size > self._budget.limit // _KEPT:
            raise LimitError("the end of a deflate block takes too much memory", wanted=size, option="--budget")
        return self._budget.charge(size, "the end of a deflate block")


class _Passed:
    """Blocks from some bit to a gap: where the last two begin, their heads and tokens, and how much they put out."""

    __slots__ = ("_proof", "_sizes", "blocks")

    def __init__(self) -> None:
        self.blocks: list[tuple[int, DeflateHead, Tokens | None]] = []
        self._sizes: list[int] = []
        self._proof = 0

    def add(self, bit: int, head: DeflateHead, tokens: Tokens | None, size: int) -> None:
        """Add a block; ``size``: how much a stored one puts out."""
        if self.blocks and head.kind != FIXED:
            self._proof += _HEADER
        self.blocks = [*self.blocks[-1:], (bit, head, tokens)]
        self._sizes = [*self._sizes[-1:], size if tokens is None else deflate_tokens.output_size(tokens.tokens)]

    def is_in_step(self, before: Before) -> bool:
        """Say whether what they put out is what came out."""
        window, known, proof = before.window, before.known, self._proof
        for (_, _, tokens), size in zip(reversed(self.blocks), reversed(self._sizes), strict=True):
            if tokens is not None:
                agreeing = deflate_tokens.agrees(tokens.tokens, window, known, 16 * _PROOF)
                if agreeing is None:
                    return False
                proof += agreeing
            if size >= len(window):
                break
            window, known = window[: len(window) - size], known[: len(known) - size]
        return proof >= _PROOF


class Goal(namedtuple("Goal", "bit place last alone", defaults=(None, False))):
    """Where the ways through a block must lead to.

    That is the block at ``bit``, with byte ``place`` of the whole output. Or it is the end of the stream, which is not
    behind ``bit``: ``last`` is asked of the byte that may be behind it how long the output is then, and says None if
    the stream cannot end there; ``alone`` says that there is no other stream before that byte.
    """

    __slots__ = ()


class Ways:
    """All ways from the bits behind a gap to a goal, by the codes of the block ``head``.

    ``buffer`` holds the source from byte ``at`` on.
    """

    def __init__(self, inside: Inside, head: DeflateHead, codes: Codes, at: int, buffer: bytes, goal: Goal) -> None:
        self._inside, self._head, self._codes, self._at = inside, head, codes, at
        self._goal = goal.bit - 8 * at
        self._buffer, self.goal = buffer, goal
        self.place = goal.place
        self.is_final = False  # the block is the last one
        self.reached = goal.bit
        self.main = deflate_tokens.Tokens()
        self._first = 0
        self._more = array("I")  # tokens of blocks between the block and the goal

    @property
    def first(self) -> int:
        """The bit of the source from which on tokens are certain."""
        return 8 * self._at + self._first

    def room(self, before: Before, size: int) -> int | None:
        """Return how much output the gap has, ``size`` bytes coming behind it; None if that is out of proportion."""
        if self.place is None or before.place is None or before.tokens is None:
            return None
        room, lost = self.place - size - before.place, self.first - before.last
        rates = [_rate(before.tokens), _rate(self.main)]
        low, high = min(rates) / _VARIES, max(rates) * _VARIES
        return room if max(0, lost * low - _VARIES_BY) <= room <= min(258 * lost, lost * high + _VARIES_BY) else None

    def leave_out(self, count: int) -> bool:
        """Take the next ``count`` certain tokens for uncertain; False if there are no more."""
        bits = self.main.bits[len(self.main.bits) - len(self.own()) + count :]
        self._first = bits[0] if bits else self.main.at
        return bool(bits)

    def find(self) -> bool:
        """Say whether there is a way to the goal, and tokens on it that are on all such ways."""
        stop = min(self._goal, 8 * len(self._buffer))
        passed = bytearray(stop + 8)
        found = False
        for start in range(min(LONGEST, stop)):
            tokens = self._inside.walk(self._buffer, start, stop, self._codes, passed)
            mark = 1
            if tokens.ended:
                if found:
                    if tokens.at == self.main.at:  # they meet no earlier than at the end of the block
                        return False
                elif self._leads_on(tokens.at):
                    self.main, self._first = tokens, start
                    found, mark = True, 2
            elif passed[tokens.at] == 2 and not tokens.failed:
                self._first = max(self._first, tokens.at)
            for bit in tokens.bits:
                passed[bit] = mark
        return found and self._first < self.main.at

    def _leads_on(self, bit: int) -> bool:
        """Say whether the blocks that follow the end of this one, at ``bit``, lead to the goal."""
        head, self._more = self._head, array("I")
        self.is_final = head.final
        while self._inside.may_go_on() and len(self._more) < self._inside.most:
            if head.final:
                return self._ends(bit)
            if bit == self._goal and self.goal.last is None:
                return True
            found = read_head(self._buffer, bit)
            if found is None:
                return False
            if found.codes is None:
                goal = read_head(self._buffer, self._goal) if self.goal.last is None else None
                if goal is not None and goal.codes is None and goal.at == found.at:  # it may begin at several bits
                    return True
                self._more.extend(self._buffer[found.at // 8 : found.at // 8 + found.size])
                bit = found.at + 8 * found.size
            else:
                tokens = self._inside.walk(self._buffer, found.at, 8 * len(self._buffer), found.codes)
                if not tokens.ended:
                    return False
                self._more.extend(tokens.tokens)
                bit = tokens.at
            if bit > self._goal:
                return False
            head = found
        return False

    def _ends(self, bit: int) -> bool:
        """Say whether the stream can end at ``bit``."""
        if self.goal.last is None or (bit & 7 and self._buffer[bit >> 3] >> (bit & 7)):
            return False  # the last byte is filled up with zeros
        end = self._at + (bit + 7) // 8
        self.place, self.reached = self.goal.last(end), 8 * end
        return self.place is not None

    def own(self) -> array[int]:
        """Return the certain tokens of the block itself."""
        return self.main.tokens[bisect_left(self.main.bits, self._first) :]

    def certain(self) -> array[int]:
        """Return all certain tokens, to the goal."""
        return self.own() + self._more


def _rate(tokens: Tokens) -> float:
    """Return how much output a bit makes."""
    if not tokens.bits:
        return 1.0
    return deflate_tokens.output_size(tokens.tokens) / (tokens.at - tokens.bits[0])


def _pace(tokens: Tokens) -> tuple[float, float]:
    """Return how many bits a token takes: the mean, and by how much it varies."""
    bits = tokens.bits[-4096:]
    widths = [after - bit for bit, after in zip(bits, [*bits[1:], tokens.at], strict=True)] or [8]
    mean = sum(widths) / len(widths)
    return mean, sqrt(sum((width - mean) ** 2 for width in widths) / len(widths))


def _lost(before: Before, count: int) -> tuple[bytearray, bytearray]:
    """Return the 32 KiB that end ``count`` unknown bytes behind what precedes the gap, and what is known of them."""
    front, behind = bytes(max(0, WINDOW - len(before.window))), bytes(min(count, WINDOW))
    window, known = (front + part[-WINDOW:] + behind for part in (before.window, before.known))
    return bytearray(window[-WINDOW:]), bytearray(known[-WINDOW:])


def _edges(known: bytes | bytearray) -> array[int]:
    """Return where each unknown stretch begins and ends."""
    edges = array("q")
    at = known.find(0)
    while at >= 0:
        end = known.find(1, at)
        end = len(known) if end < 0 else end
        edges.extend((at, end))
        at = known.find(0, end)
    return edges


def _entry(window: bytes | bytearray, known: bytes | bytearray) -> EnteredAt:
    """Return what the last 32 KiB say, stretches that are close to each other joined if there are too many."""
    window, edges, apart = bytes(window[-WINDOW:]), _edges(known[-WINDOW:]), 16
    while len(edges) > 2 * _HOLES:
        edges, apart = join_edges(edges, apart), 2 * apart
    return EnteredAt(window, WINDOW, tuple(stretches(edges)))
