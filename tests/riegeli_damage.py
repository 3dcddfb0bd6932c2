"""Damage done to Riegeli files on purpose, and what must come back from them.

An `Edit` replaces some bytes by others. What survives follows from the edits alone: a chunk of the sound file is
untouched where its header and data stand in the damaged one in one piece (`surviving`).
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from typing import NamedTuple

from pparse.kernels.highway import NATIVE, hash64
from pparse.riegeli import RecordReader, RecordWriter, SkippedRegion
from pparse.riegeli.chunks import FILE_SIGNATURE, ChunkHeader
from tests.riegeli_fixtures import BLOCK, Chunk, chunk_table


class Edit(NamedTuple):
    """The ``lost`` bytes at ``at`` are replaced by ``new``."""

    at: int
    lost: int
    new: bytes

    def __repr__(self) -> str:
        return f"Edit({self.at}, -{self.lost}, +{len(self.new)} {self.new[:8].hex()})"


def flip(data: bytes, at: int, mask: int) -> Edit:
    return Edit(at, 1, bytes((data[at] ^ mask,)))


def apply(data: bytes, *edits: Edit) -> bytes:
    """Return ``data`` with the edits made; they are in order, and given in offsets of the sound file."""
    out, pos = bytearray(), 0
    for edit in edits:
        out += data[pos : edit.at] + edit.new
        pos = edit.at + edit.lost
    return bytes(out + data[pos:])


def pieces(size: int, *edits: Edit) -> list[tuple[int, int, int]]:
    """Return ``(begin, end, begin in the damaged file)`` of each stretch that was left alone."""
    found, pos, now = [], 0, 0
    for edit in [*edits, Edit(size, 0, b"")]:
        if edit.at > pos:
            found.append((pos, edit.at, now))
        now += edit.at - pos + len(edit.new)
        pos = edit.at + edit.lost
    return found


def surviving(chunks: list[Chunk], size: int, *edits: Edit) -> dict[int, int]:
    """Return where each untouched chunk begins now, by where it began."""
    return {
        chunk.begin: now + chunk.begin - begin
        for begin, end, now in pieces(size, *edits)
        for chunk in chunks
        if begin <= chunk.begin and chunk.data_end <= end
    }


class Sound(NamedTuple):
    """A sound file: its bytes, chunks, and ``(begin of its chunk, index, record)`` of each record."""

    data: bytes
    chunks: list[Chunk]
    records: list[tuple[int, int, bytes]]

    def chunk_of(self, offset: int) -> Chunk:
        return next(chunk for chunk in self.chunks if chunk.begin <= offset < chunk.end)

    def after(self, *edits: Edit) -> list[tuple[int, int, bytes]]:
        """Return the records that must come back, where they are now."""
        begins = surviving(self.chunks, len(self.data), *edits)
        return [(begins[begin], index, record) for begin, index, record in self.records if begin in begins]


def written(options: str, contents: list[bytes]) -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        writer.write_records(contents)
    return out.getvalue()


def sound(data: bytes) -> Sound:
    return Sound(data, chunk_table(data), read(data).records)


def made(options: str, seed: object, count: int, sizes: tuple[int, ...]) -> Sound:
    """A file of records of those sizes, each of which begins with its number."""
    chooser = random.Random(repr(seed))
    return sound(written(options, [b"%04d" % n + chooser.randbytes(chooser.choice(sizes)) for n in range(count)]))


def forged(*chunks: tuple[str, bytes, int, int]) -> bytes:
    """A file of one block, whose chunks have right hashes: each is (type, data, number of records, their size)."""
    out = bytearray(FILE_SIGNATURE)
    for kind, data, count, decoded in chunks:
        begin = len(out)
        out += ChunkHeader(ord(kind), len(data), hash64(data), count, decoded).pack() + data
        out += bytes(max(0, begin + count - len(out)))
    assert len(out) < BLOCK
    return bytes(out)


class Salvaged(NamedTuple):
    """What came out of a damaged file."""

    records: list[tuple[int, int, bytes]]
    regions: list[SkippedRegion]
    healed: list[SkippedRegion]

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [(region.begin, region.end) for region in self.regions]


def read(data: bytes, **options) -> Salvaged:
    """Read a file from one end to the other, with positions."""
    regions: list[SkippedRegion] = []
    if options.pop("salvaging", False):
        options["recovery"] = regions.append
    found = []
    with RecordReader(data, **options) as reader:
        while (record := reader.read_record()) is not None:
            found.append((reader.last_pos.chunk_begin, reader.last_pos.record_index, record))
    return Salvaged(found, regions, reader.healed)


def salvaged(data: bytes, **options) -> Salvaged:
    return read(data, salvaging=True, **options)


def check_order(found: Salvaged, size: int) -> None:
    """Regions are in order, not empty, within the file, and do not overlap; positions of records rise."""
    reached = 0
    for begin, end in found.spans:
        assert reached <= begin < end <= size, found.spans
        reached = end
    positions = [record[:2] for record in found.records]
    assert positions == sorted(set(positions))


def check_in_place(file: Sound, damaged: bytes, edits: list[Edit]) -> Salvaged:
    """What must hold where damage moved nothing: all untouched chunks come back, and regions tell of the others."""
    found = salvaged(damaged)
    check_order(found, len(damaged))
    true = set(file.records)
    assert all(record in true for record in found.records), "a wrong record"
    delivered = set(found.records)
    assert all(record in delivered for record in file.after(*edits)), "a record of an untouched chunk is lost"
    begins = {begin for begin, _, _ in found.records}
    for chunk in file.chunks:
        if not chunk.num_records:
            continue
        if chunk.begin in begins:
            records = sum(begin == chunk.begin for begin, _, _ in found.records)
            assert records == chunk.num_records, f"{chunk} is not delivered as a whole"
            assert not any(begin < chunk.data_end and end > chunk.begin for begin, end in found.spans), chunk
        else:
            end = min(chunk.end, len(damaged))
            told = sum(max(0, min(last, end) - max(first, chunk.begin)) for first, last in found.spans)
            assert told == end - chunk.begin, f"regions do not cover {chunk}"
    return found


class Endless(BaseException):
    """It would never end, or too late. (No Exception: nothing may catch it.)"""


@contextlib.contextmanager
def bounded(most: int):
    """Stop what makes more than ``most`` calls, of functions written in C too; a function gives how many were made.

    This bounds the work without a clock. Hashing in pure Python takes many calls, so more are granted then.
    """
    calls = 0
    most *= 1 if NATIVE else 30

    def count(frame, event, argument) -> None:
        nonlocal calls
        calls += 1
        if calls > most:
            sys.setprofile(None)
            raise Endless(f"more than {most} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before)


def places(file: Sound, chooser: random.Random, count: int) -> list[int]:
    """Choose offsets anywhere, near the beginnings of chunks, and in block headers."""
    found = []
    for _ in range(count):
        block = BLOCK * chooser.randrange(len(file.data) // BLOCK + 1)
        at = chooser.choice(
            (
                chooser.randrange(len(file.data)),
                chooser.choice(file.chunks).begin + chooser.randrange(-3, 45),
                block + chooser.randrange(-30, 40),
            )
        )
        found.append(min(max(at, 0), len(file.data) - 1))
    return found
