"""What tests of resynchronising share: streams, damage, and a referee who knows what is untouched."""

from __future__ import annotations

import functools
import random

from pparse.compressed.env import DecodeEnv
from pparse.compressed.inflated import InflatedData
from pparse.compressed.resync import Failure, module_of
from pparse.data.base import BytesData, Data
from pparse.errors import GapError, MalformedError
from pparse.limits import MIB, MemoryBudget


@functools.lru_cache(8)
def text(size, seed=1):
    """Text that compresses by a factor of about 3."""
    source = random.Random(seed)
    words = [bytes(source.choices(b"abcdefghijklmnop", k=source.randint(2, 9))) for _ in range(3000)]
    return b" ".join(source.choices(words, k=size // 4 + 1))[:size]


def hole(data, at, count=512, seed=1):
    """Return ``data`` with noise at ``at``."""
    count = min(count, len(data) - at)
    return data[:at] + random.Random(seed).randbytes(count) + data[at + count :]


def flip(data, at, mask=4):
    """Return ``data`` with a byte changed."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def found_behind(source, failure, codec, budget, limits=None):
    """Return the pieces behind ``failure``."""
    return list(module_of(codec).pieces(source, failure, DecodeEnv(budget, limits), codec=codec, size=None))


def blocks_from_start(codec, data, budget=None, limits=None):
    """Return the one piece that all blocks of ``data`` are, as if nothing was decoded yet."""
    source = data if isinstance(data, Data) else BytesData(data)
    failure = Failure(0, 0, 0, MalformedError("not decoded yet"))
    (piece,) = found_behind(source.range(0, source.size), failure, codec, budget or MemoryBudget(64 * MIB), limits)
    assert piece.position == 0
    return piece.data


class Salvage:
    """What comes out of a damaged stream: the ``head`` before the failure, the ``pieces`` behind it."""

    def __init__(self, codec, data, budget=64 * MIB, source=None):
        self.budget = MemoryBudget(budget)
        self.source = (BytesData(data) if source is None else source).range(0, len(data))
        first = InflatedData(self.source, codec, budget=self.budget, concatenated=True)
        first.verify()
        self.head = first.pread(0, first.produced) if first.produced else b""
        self.failure = None
        self.pieces = []
        if first.error is not None:
            at = len(data) if first.error.offset is None else first.error.offset
            self.failure = Failure(at, first.produced, first.member_start, first.error, first.member_out)
            self.pieces = found_behind(self.source, self.failure, codec, self.budget)
        self.end = len(self.head)
        if self.failure is not None and self.failure.suspect_from is not None:
            self.end = self.failure.suspect_from

    def contents(self, piece):
        """Return the stretches of a piece that are there and not in doubt: (offset, bytes)."""
        data, found, at = piece.data, [], 0
        while at < data.size:
            try:
                chunk = data.pread(at, data.size - at)
            except GapError as gap:
                at += gap.length
                continue
            stretch, start = chunk, at
            for suspect in data.suspect_ranges:
                if suspect.start < at + len(chunk) and at < suspect.end:
                    stretch, start = chunk[: max(0, suspect.start - at)], at
            found.append((start, stretch))
            at += len(chunk)
        return found

    def check(self, truth, blocks, first, last):
        """Hold it against ``truth``: ``blocks`` (start, end, out, size) outside ``[first, last)`` must be there."""
        assert self.head[: self.end] == truth[: self.end]
        for piece in self.pieces:
            assert piece.at <= piece.end
            if piece.position is not None:
                for start, chunk in self.contents(piece):
                    out = piece.position + start
                    assert truth[out : out + len(chunk)] == chunk
        for one, other in zip(self.pieces, self.pieces[1:], strict=False):
            assert one.end <= other.at
            if other.joins and one.position is not None and other.position is not None:
                assert other.position == one.position + one.data.size
        everything = [chunk for piece in self.pieces for _, chunk in self.contents(piece)]
        for start, end, out, size in blocks:
            if end <= first or start >= last:
                content = truth[out : out + size]
                there = out + size <= self.end or any(content in chunk for chunk in everything)
                assert there, f"the block [{start}, {end}) is lost: {self.failure}, {self.pieces}"
