"""What tests of damaged streams share: damage, and a referee who holds what is read against the truth."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field

import numpy as np

from pparse.compressed.resumed import ResumedData
from pparse.data.base import BytesData
from pparse.limits import MIB, MemoryBudget
from tests import deflate_oracle

# A known stretch that long says where in the truth it is.
ANCHOR = 24

INVERTED = b"\1" + bytes(255)


def resumed(stream: bytes, codec: str = "gzip", *, budget: int = 64 * MIB, source=None, **more) -> ResumedData:
    """Return ``stream`` as a `ResumedData`; members one after the other are one."""
    data = BytesData(stream) if source is None else source
    end = len(stream) if data.size is None else data.size
    more.setdefault("concatenated", True)
    return ResumedData(data.range(0, end), codec, budget=MemoryBudget(budget), **more)


# -- damage: all give (stream, first damaged byte, first sound byte behind it in the whole stream) --------------------


def flip(stream: bytes, at: int, mask: int = 0x55) -> tuple[bytes, int, int]:
    return stream[:at] + bytes([stream[at] ^ mask]) + stream[at + 1 :], at, at + 1


def zeros(stream: bytes, at: int, count: int = 512) -> tuple[bytes, int, int]:
    count = min(count, len(stream) - at)
    return stream[:at] + bytes(count) + stream[at + count :], at, at + count


def noise(stream: bytes, at: int, count: int = 512, seed: int = 1) -> tuple[bytes, int, int]:
    count = min(count, len(stream) - at)
    return stream[:at] + random.Random(seed).randbytes(count) + stream[at + count :], at, at + count


def missing(stream: bytes, at: int, count: int = 100) -> tuple[bytes, int, int]:
    return stream[:at] + stream[at + count :], at, min(at + count, len(stream))


DAMAGES = {"flip": flip, "zeros": zeros, "noise": noise, "missing": missing}


# -- what is read ----------------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    """What lies between two gaps of unknown length: bytes at ``start``, and by byte whether they are known."""

    start: int
    content: bytearray = field(default_factory=bytearray)
    known: bytearray = field(default_factory=bytearray)
    there: bytearray = field(default_factory=bytearray)  # known, or in doubt

    def add(self, content: bytes, unknown: list[tuple[int, int]]) -> None:
        at = self.start + len(self.content)
        self.content += content
        self.known += b"\1" * len(content)
        for first, count in unknown:
            assert at <= first
            assert first + count <= at + len(content)
            self.known[first - self.start : first - self.start + count] = bytes(count)

    def runs(self) -> list[tuple[int, int]]:
        """Known stretches, longest first."""
        found, at = [], 0
        while (start := self.known.find(1, at)) >= 0:
            at = self.known.find(0, start)
            at = len(self.known) if at < 0 else at
            found.append((start, at))
        return sorted(found, key=lambda run: run[0] - run[1])


def read_all(data: ResumedData) -> list[Stretch]:
    """Read everything; bytes in doubt count as unknown."""
    data.verify()
    stretches = [Stretch(0)]
    breaks = [gap for gap in data.gaps if not gap.exact and gap.length is not None]
    offset = 0
    while True:
        if breaks and breaks[0].offset == offset:
            offset += breaks.pop(0).length
            stretches.append(Stretch(offset))
            continue
        chunk, unknown = data.read_known(offset, min(1 << 20, breaks[0].offset - offset if breaks else 1 << 20))
        if not chunk:
            break
        stretches[-1].add(chunk, unknown)
        offset += len(chunk)
    for stretch in stretches:
        stretch.there += stretch.known
    for suspect in data.suspect_ranges:
        for stretch in stretches:
            first = max(suspect.start - stretch.start, 0)
            last = min(suspect.end - stretch.start, len(stretch.known))
            if first < last:
                stretch.known[first:last] = bytes(last - first)
    return stretches


def wrong_at(stretch: Stretch, truth: bytes, place: int) -> int | None:
    """Where in ``stretch`` a known byte differs from the truth, if it begins at ``place`` there; None: nowhere."""
    for first, last in stretch.runs():
        at = place + first
        if at < 0 or stretch.content[first:last] != truth[at : at + last - first]:
            return next(
                n
                for n in range(first, last)
                if place + n < 0 or stretch.content[n : n + 1] != truth[place + n : place + n + 1]
            )
    return None


def hold_against(truth: bytes, data: ResumedData, blocks: list[tuple[int, int]] = ()) -> bytearray:
    """Assert that no known byte is wrong and that exact places are exact.

    Return, by byte of the truth, what came out right, in doubt or not; what is in doubt may be displaced as a whole
    block of ``blocks`` (first, last in the truth).
    """
    covered = bytearray(len(truth))
    stretches = read_all(data)
    for number, stretch in enumerate(stretches):
        place = 0
        if number and stretch.runs():
            place = locate(stretch, truth)
            assert place is not None, f"what is known behind {stretch.start} is nowhere in the truth: {data.gaps[:3]}"
        elif number:  # all of it is in doubt, and may be right
            place = locate(Stretch(stretch.start, stretch.content, stretch.there), truth) or 0
        wrong = wrong_at(stretch, truth, place)
        assert wrong is None, (
            f"byte {stretch.start + wrong} is wrong: gaps {data.gaps[:3]}, doubts {data.suspect_ranges}"
        )
        mark_right(stretch, truth, place, 0, len(truth), covered)
        content = bytes(stretch.content)
        for first, last in blocks if stretch.there != stretch.known else ():
            if sum(covered[first:last]) < last - first:
                for probe in range(first, max(first + 1, last - 2 * ANCHOR), max(2 * ANCHOR, (last - first) // 8)):
                    found = content.find(truth[probe : min(last, probe + 2 * ANCHOR)])
                    if found >= 0:
                        mark_right(stretch, truth, probe - found, first, last, covered)
    return covered


def mark_right(stretch: Stretch, truth: bytes, place: int, first: int, last: int, covered: bytearray) -> None:
    """Mark the bytes ``[first, last)`` of the truth that ``stretch``, which begins at ``place`` there, has right."""
    first, last = max(first, place), min(last, place + len(stretch.content))
    if first < last:
        content = np.frombuffer(stretch.content, np.uint8, last - first, first - place)
        right = content == np.frombuffer(truth, np.uint8, last - first, first)
        right &= np.frombuffer(stretch.there, bool, last - first, first - place)
        np.frombuffer(covered, bool, last - first, first)[right] = True


def both(one: bytes, other: bytes) -> int:
    """Return how many bytes are marked in both."""
    return int(np.count_nonzero(np.frombuffer(one, bool) & np.frombuffer(other, bool)))


def locate(stretch: Stretch, truth: bytes) -> int | None:
    """Where in the truth a stretch is."""
    if wrong_at(stretch, truth, stretch.start) is None:
        return stretch.start
    runs = stretch.runs()
    if not runs:
        return None
    first, last = runs[0]
    anchor = bytes(stretch.content[first : min(last, first + 4096)])
    at = truth.find(anchor)
    best = None
    while at >= 0:
        if wrong_at(stretch, truth, at - first) is None:
            return at - first
        best = at - first if best is None and len(anchor) >= ANCHOR else best
        at = truth.find(anchor, at + 1)
    return best


# -- what could be had -----------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A member of a file, as the slow inflater sees it. ``at``: of its blocks in the file, in bytes."""

    at: int
    end: int
    out: int
    known: deflate_oracle.Inflated


@dataclass
class Sample:
    """A stream with the truth about it."""

    stream: bytes
    truth: bytes
    members: list[Member]
    codec: str = "gzip"

    def derivable(self, damages: list[tuple[int, int]]) -> bytearray:
        """By byte of the truth whether it follows from what is left when source bytes ``[first, last)`` are lost.

        Behind damage only whole blocks count (and what they do not copy out of the lost window); before it, all
        blocks that end before it.
        """
        marks = bytearray(len(self.truth))
        for member in self.members:
            blocks = member.known.blocks
            window: int | None = 0
            start: int | None = None  # the block where decoding was entered
            for number, block in enumerate(blocks):
                last = number + 1 == len(blocks)
                bit = 8 * member.at + block.bit
                end_bit = 8 * member.at + (member.known.end if last else blocks[number + 1].bit)
                out_end = len(member.known.out) if last else blocks[number + 1].out
                hit = any(8 * a < end_bit and bit < 8 * b for a, b in damages)
                if hit:
                    start, window = None, None
                    continue
                if window is None:
                    start, window = block.out, 1
                first, final = member.out + block.out, member.out + out_end
                if start is None:
                    marks[first:final] = b"\1" * (final - first)
                else:
                    unknown = self._unknown(member, start)
                    marks[first:final] = unknown[block.out - start : out_end - start].translate(INVERTED)
        return marks

    def blocks(self) -> list[tuple[int, int]]:
        """What each block holds, as stretches of the truth."""
        starts = [member.out + block.out for member in self.members for block in member.known.blocks]
        return list(zip(starts, [*starts[1:], len(self.truth)], strict=True))

    def block_headers(self) -> list[int]:
        """The bytes of the stream where blocks begin."""
        return [member.at + block.bit // 8 for member in self.members for block in member.known.blocks]

    def _unknown(self, member: Member, start: int) -> bytearray:
        cache = member.known.__dict__.setdefault("_cache", {})
        if start not in cache:
            cache[start] = member.known.unknown_after(start)
        return cache[start]


def wrap(raw: bytes, content: bytes, codec: str) -> tuple[bytes, int]:
    """Return a raw stream as gzip, zlib or deflate, and the length of the header."""
    if codec == "gzip":
        trailer = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
        return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + raw + trailer, 10
    if codec == "zlib":
        return b"\x78\x9c" + raw + struct.pack(">I", zlib.adler32(content)), 2
    return raw, 0


def sample_of(parts: list[tuple[bytes, bytes]], codec: str = "gzip") -> Sample:
    """Return a sample of members ``(content, raw deflate stream)``."""
    stream, truth, members = b"", b"", []
    for content, raw in parts:
        piece, head = wrap(raw, content, codec)
        known = deflate_oracle.inflate(raw)
        assert bytes(known.out) == content
        members.append(Member(len(stream) + head, len(stream) + len(piece), len(truth), known))
        stream += piece
        truth += content
    if codec == "gzip":
        assert gzip.decompress(stream) == truth
    return Sample(stream, truth, members, codec)
