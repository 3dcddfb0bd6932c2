"""What salvage reads of files that make it look in vain: as much as the file grows, and no faster.

Bytes are counted, at one size and at four times that. Without one of the caps in `pparse.riegeli.salvage`, four times
the size is ten to thirty times the work.
"""

from __future__ import annotations

import pytest

from pparse.compressed.env import DecodeEnv
from pparse.kernels.highway import hash64
from pparse.limits import MemoryBudget
from pparse.riegeli import RecordReader
from pparse.riegeli.chunks import BLOCK_HEADER_SIZE, CHUNK_HEADER_SIZE, FILE_SIGNATURE, ChunkHeader, Layout
from pparse.riegeli.lookup import RecordLookup
from pparse.riegeli.verdicts import SightedPlaces
from pparse.testing.fakes import FakeData, GappyData
from tests import sweep
from tests.riegeli_damage import sound, written
from tests.riegeli_fixtures import BLOCK


def bytes_read(data: bytes) -> int:
    """Read a damaged file from one end to the other, and return how many bytes that took."""
    source = FakeData(data)
    with RecordReader(source, recovery=lambda region: None) as reader:
        while reader.read_record() is not None:
            pass
    return sum(min(length, len(data) - offset) for offset, length in source.asked if offset < len(data))


def behind_a_damaged_chunk(size: int, make: object) -> bytes:
    """Return a file that begins with a chunk whose header is destroyed; ``make(at)`` gives what follows at ``at``."""
    data = bytearray(FILE_SIGNATURE + b"\xff" * CHUNK_HEADER_SIZE)
    while len(data) < size - 100:
        to_block = -len(data) % BLOCK
        if to_block < 64:  # nothing is to be cut in two by a block header; there is none that is sound
            data += bytes(to_block + BLOCK_HEADER_SIZE)
        data += make(len(data))  # type: ignore[operator]
    return bytes(data.ljust(size, b"\xee"))


def headers_that_claim_everything(size: int) -> bytes:
    """Chunk headers with right hashes, whose data go on to the end of the file and do not agree."""

    def header(at: int) -> bytes:
        claimed = Layout().distance(at, size) - CHUNK_HEADER_SIZE
        return ChunkHeader(0x72, claimed, 12_345, 1, claimed).pack()

    return behind_a_damaged_chunk(size, header)


def chunks_that_lead_nowhere(size: int) -> bytes:
    """Small whole chunks, one after the other; from each of them it is a long way to where they break off."""
    data = b"\0\1\5hello"
    return behind_a_damaged_chunk(size, lambda at: ChunkHeader(0x72, len(data), hash64(data), 1, 5).pack() + data)


def lists_of_sizes_without_end(size: int) -> bytes:
    """Damaged chunks whose data begin with a list of sizes that is half as long as the file."""
    data = bytearray(written("uncompressed,chunk_size:1", [bytes(4000)] * (size // 4050)))
    length = size // 2
    varint = bytes((length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14 & 0x7F | 0x80, length >> 21))
    for chunk in sound(bytes(data)).chunks[1::2]:
        data[chunk.begin + 9] ^= 0x55
        at = chunk.begin + CHUNK_HEADER_SIZE
        data[at : at + 6] = b"\0" + varint + b"\1"
    return bytes(data)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (headers_that_claim_everything, 96_000),
        (chunks_that_lead_nowhere, sweep.scaled(24_000, 2)),
        (lists_of_sizes_without_end, 1_000_000),
    ],
)
def test_four_times_the_file_is_about_four_times_the_bytes_read(make, size):
    once, four_times = bytes_read(make(size)), bytes_read(make(4 * size))
    assert four_times < 5.5 * once


def test_damage_in_many_chunks_is_looked_around_once():
    """Behind each chunk whose hash contradicts, a grid that moved is looked for: where none was, not again."""
    data = bytearray(written("uncompressed,chunk_size:500", [bytes([number % 251]) * 200 for number in range(3000)]))
    for at in range(700, len(data), 2000):
        data[at] ^= 1
    assert bytes_read(bytes(data)) < 8 * len(data)


def bytes_to_go_back(blocks: int) -> int:
    """Return what it takes to find the last record of a file, behind which each of so many blocks begins with a gap."""
    head = written("uncompressed", [b"one", b"two"])
    size = blocks * BLOCK
    source = GappyData(head + b"\xee" * (size - len(head)), [(at, 100) for at in range(BLOCK, size, BLOCK)])
    with RecordReader(source, recovery=lambda region: None) as reader:
        reader.seek_numeric(size)
        assert reader.seek_back()
        assert reader.read_record() == b"two"
    return sum(min(length, size - offset) for offset, length in source.asked)


def test_who_goes_back_over_damage_looks_at_each_block_once():
    """At every block, what stands behind it was seen from the one behind."""
    assert bytes_to_go_back(64) < 5 * bytes_to_go_back(16)


@pytest.mark.parametrize("salvage", [True, False])
def test_damage_at_the_end_hides_no_chunk_from_who_goes_back(salvage):
    """Behind the last block header there is no other: that is remembered, and is true from there on only."""
    content = written("uncompressed,chunk_size:1000", [bytes([number]) * 900 for number in range(200)])
    chunks = sound(content).chunks
    assert len(content) > 2 * BLOCK
    damaged = bytearray(content)
    for chunk in (chunks[3], chunks[90], chunks[-1]):
        damaged[chunk.begin + 30] ^= 0xFF
    regions: list[tuple[int, int]] = []
    with RecordReader(
        bytes(damaged), recovery=lambda region: regions.append((region.begin, region.end)), salvage=salvage
    ) as reader:
        first, told = list(reader), regions[:]
        assert {record[0] for record in first} >= {0, 72, 150}
        assert len(told) == 3
        for _ in range(2):
            regions.clear()
            reader.seek_numeric(0)
            assert (list(reader), regions) == (first, told)


def test_readers_of_a_lookup_know_what_the_others_saw():
    """Each goes its own way through the same damage: only the first one searches it."""
    damaged = bytearray(written("uncompressed,chunk_size:1000", [bytes([number]) * 900 for number in range(200)]))
    damaged[70_000:170_000] = b"\xee" * 100_000
    source = FakeData(bytes(damaged))
    lookup = RecordLookup(source.range(0, source.size), DecodeEnv(MemoryBudget("16MiB")))
    last = lookup.last_found()
    first = sum(length for _, length in source.asked)
    for _ in range(20):
        assert lookup.last_found() == last
    assert sum(length for _, length in source.asked) < 6 * first


def test_a_header_behind_a_gap_is_found():
    """What could not be read hides nothing that follows it in the same stretch."""
    content = written("uncompressed,chunk_size:1000", [bytes([number]) * 900 for number in range(60)])
    starts = [chunk.begin for chunk in sound(content).chunks]
    gap = starts[3] + 10
    with RecordReader(GappyData(content, [(gap, 60)]), recovery=lambda region: None) as reader:
        found = list(reader)
    assert found == [bytes([number]) * 900 for number in range(60) if number != 2]


def test_places_are_looked_for_once_whatever_the_order():
    there, asked = {5, 40, 41, 77, 300}, []

    def look(at: int, until: int) -> tuple[int, list[int] | None]:
        asked.extend(range(at, until))
        return until, sorted(place for place in there if at <= place < until)

    places = SightedPlaces()
    for start, stop in ((60, 80), (30, 41), (10, 70), (0, 100), (250, 301), (41, 260), (0, 400)):
        assert list(places.find(start, stop, look)) == sorted(place for place in there if start <= place < stop)
    assert sorted(asked) == list(range(400))


def test_a_gap_ends_no_search_and_the_end_does():
    def look(at: int, until: int) -> tuple[int, list[int] | None]:
        if 10 <= at < 20:
            return 20, None
        if at >= 50:
            return at, None
        until = min(until, 10 if at < 10 else 50)
        return until, [place for place in (7, 30) if at <= place < until]

    places = SightedPlaces()
    for _ in range(2):
        assert list(places.find(0, 100, look)) == [7, 30]
