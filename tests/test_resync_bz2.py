from __future__ import annotations

import bz2
import random

import pytest

from pparse.errors import LimitError
from pparse.limits import KIB, MIB, Limits, MemoryBudget
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.resync_damage import Salvage, blocks_from_start, flip, hole, text
from tests.rows import rows

TRUTH = text(800 * KIB)
PACKED = bz2.compress(TRUTH, 1)
JOINED = bz2.compress(TRUTH[: 250 * KIB], 1) + bz2.compress(TRUTH[250 * KIB :], 2)
MARK = f"{0x314159265359:048b}"
END = f"{0x177245385090:048b}"


def bits_of(data):
    return f"{int.from_bytes(data):0{8 * len(data)}b}"


def packed_bits(bits):
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8)


def blocks_of(data):
    """Return (first byte, end, out, size) of each block, by cutting it out and decoding it with the real thing."""
    bits, found, out = bits_of(data), [], 0
    at = bits.find(MARK)
    while at >= 0:
        end = min(place for place in (bits.find(MARK, at + 1), bits.find(END, at + 1)) if place > 0)
        alone = b"BZh9" + packed_bits(bits[at:end] + END + bits[at + 48 : at + 80])
        size = len(bz2.decompress(alone))
        found.append((at // 8, -(-end // 8), out, size))
        out += size
        at = bits.find(MARK, end)
    return found


BLOCKS = blocks_of(PACKED)
JOINED_BLOCKS = blocks_of(JOINED)


def test_the_referee_knows_the_blocks():
    assert len(BLOCKS) > 7
    assert sum(size for *_, size in BLOCKS) == len(TRUTH)


@rows("at", sweep.some(range(100, len(PACKED) - 100, 9_973), 5, ends=1))
def test_a_hole_costs_the_blocks_it_touches(at):
    Salvage("bz2", hole(PACKED, at, seed=at)).check(TRUTH, BLOCKS, at, at + 512)


@rows("at", sweep.some([*range(34), *(BLOCKS[2][0] + byte for byte in range(24))], 6, keep=range(4)))
def test_any_byte_of_a_header_may_be_wrong(at):
    salvage = Salvage("bz2", flip(PACKED, at))
    salvage.check(TRUTH, BLOCKS, at, at + 1)


def test_a_damaged_stream_header_costs_nothing():
    for at in range(4):
        found = Salvage("bz2", flip(PACKED, at, 0x40))
        assert (found.pieces[0].position, found.pieces[0].data.size) == (0, len(TRUTH))


def test_a_damaged_border_between_streams_costs_nothing():
    border = JOINED.index(b"BZh2")
    for at in sweep.sample(range(border - 10, border + 4), 6):
        found = Salvage("bz2", flip(JOINED, at))
        found.check(TRUTH, JOINED_BLOCKS, at, at + 1)
        if found.failure is not None:  # the bits that fill up the last byte mean nothing
            (piece,) = found.pieces
            assert piece.position == 250 * KIB
            assert piece.data.pread(0, MIB) == TRUTH[250 * KIB :]


def test_several_holes_end_pieces_of_known_sizes():
    data, places = PACKED, [BLOCKS[1][0] + 99, BLOCKS[2][0] + 999, BLOCKS[5][0] + 9_999]
    for at in places:
        data = hole(data, at)
    found = Salvage("bz2", data)
    assert len(found.pieces) == 2
    sizes = [sum(size for *_, size in BLOCKS[3:5]), sum(size for *_, size in BLOCKS[6:])]
    assert [piece.data.size for piece in found.pieces] == sizes
    assert all(piece.position is None for piece in found.pieces)
    assert found.pieces[1].data.pread(0, MIB) == TRUTH[-sizes[1] :]


def test_what_a_block_with_a_wrong_crc_gave_is_in_doubt():
    first = BLOCKS[3]
    salvage = Salvage("bz2", flip(PACKED, first[0] + 9))  # in its CRC, whatever the bit where it begins
    assert salvage.failure.out > first[2]
    assert salvage.failure.suspect_from == first[2]


def test_a_false_mark_is_no_block():
    noise = bytearray(random.Random(5).randbytes(2000))
    for at, shift in ((100, 0), (300, 3), (500, 7), (700, 1), (703, 2)):
        noise[at : at + 7] = (0x314159265359 << (8 - shift)).to_bytes(7)
    at = BLOCKS[2][0] + 50
    data = PACKED[:at] + bytes(noise) + PACKED[at + len(noise) :]
    Salvage("bz2", data).check(TRUTH, BLOCKS, at, at + len(noise))


def test_bytes_missing_or_added_are_no_obstacle():
    at = BLOCKS[2][0] + 50
    for data in (PACKED[:at] + PACKED[at + 777 :], PACKED[:at] + bytes(333) + PACKED[at:]):
        found = Salvage("bz2", data)
        assert found.pieces[-1].data.pread(0, MIB) == TRUTH[BLOCKS[3][2] :]


def test_many_marks_take_no_time():
    at = BLOCKS[2][0] + 50
    marks = (0x314159265359).to_bytes(6) * sweep.scaled(20_000, 10)
    data = PACKED[:at] + marks + PACKED[at:]
    assert Salvage("bz2", data).pieces[-1].data.pread(0, MIB) == TRUTH[BLOCKS[3][2] :]


def test_a_gap_of_the_source():
    at = BLOCKS[2][0] + 999
    source = GappyData(PACKED, [(at, 3000)])
    salvage = Salvage("bz2", PACKED, source=source)
    salvage.check(TRUTH, BLOCKS, at, at + 3000)
    assert salvage.failure.suspect_from is None


@rows("cut", range(0, len(PACKED), 24_001))
def test_cut_streams_have_nothing_behind(cut):
    found = Salvage("bz2", PACKED[:cut])
    assert found.pieces == [] or cut == 0
    assert found.head == TRUTH[: len(found.head)]


def test_reading_at_random_equals_the_truth():
    for data in (PACKED, JOINED):
        budget = MemoryBudget(8 * MIB)
        blocks = blocks_from_start("bz2", data, budget)
        assert blocks.size == len(TRUTH)
        source = random.Random(2)
        for _ in range(sweep.scaled(200)):
            at, count = source.randrange(len(TRUTH)), source.choice([1, 100, 5_000, 150_000])
            assert blocks.pread(at, count) == TRUTH[at : at + count]
        for at in range(len(TRUTH) - 20_000, 0, -20_000):
            assert blocks.pread(at, 20_000) == TRUTH[at : at + 20_000]
        assert budget.peak <= 8 * MIB
        blocks.close()
        assert budget.used == 0


def test_blocks_that_unfold_are_not_held():
    truth = bytes(30 * MIB) + b"end"
    budget = MemoryBudget(8 * MIB)
    blocks = blocks_from_start("bz2", bz2.compress(truth), budget)
    for at in (30 * MIB, 3, 29 * MIB, 1):
        assert blocks.pread(at, 9) == truth[at : at + 9]
    assert budget.peak <= 8 * MIB


def test_the_limit_holds():
    with pytest.raises(LimitError, match="inflated_bytes"):
        blocks_from_start("bz2", PACKED, limits=Limits(inflated_bytes=100_000))


def test_a_budget_too_small_is_said():
    with pytest.raises(LimitError, match="budget="):
        blocks_from_start("bz2", bz2.compress(TRUTH, 9), MemoryBudget(2 * MIB))
