from __future__ import annotations

import random
import struct

import pytest

from pparse.compressed.resync import Failure
from pparse.data.base import BytesData
from pparse.errors import MalformedError
from pparse.limits import KIB, MIB, MemoryBudget
from pparse.testing.fakes import GappyData
from tests import sweep, zstd
from tests.resync_damage import Salvage, flip, found_behind, hole, text

TRUTH = text(800 * KIB)
STEP = 100_000
SKIPPABLE = b"\x53\x2a\x4d\x18" + struct.pack("<I", 20) + b"\x28\xb5\x2f\xfd" + bytes(16)


def frame(part, sized=True):
    return zstd.compress(part, checksum=True, content_size=sized)


def frames(sized, between=b""):
    data, blocks = b"", []
    for out in range(0, len(TRUTH), STEP):
        part = frame(TRUTH[out : out + STEP], sized)
        blocks.append((len(data), len(data) + len(part), out, len(TRUTH[out : out + STEP])))
        data += part + between
    return data, blocks


SIZED, SIZED_BLOCKS = frames(True)
UNSIZED, UNSIZED_BLOCKS = frames(False)
SKIPPED, SKIPPED_BLOCKS = frames(True, SKIPPABLE)


def seekable(data, blocks, checksums=False):
    """Return the seekable form: the table of the frames behind them."""
    table = b"".join(
        struct.pack("<II", end - start, size) + (b"\1\2\3\4" if checksums else b"") for start, end, _, size in blocks
    )
    table += struct.pack("<IBI", len(blocks), 0x80 * checksums, 0x8F92EAB1)
    return data + b"\x5e\x2a\x4d\x18" + struct.pack("<I", len(table)) + table


ALL = {
    "sized": (SIZED, SIZED_BLOCKS),
    "unsized": (UNSIZED, UNSIZED_BLOCKS),
    "skipped": (SKIPPED, SKIPPED_BLOCKS),
    "table": (seekable(UNSIZED, UNSIZED_BLOCKS), UNSIZED_BLOCKS),
    "table with checksums": (seekable(SIZED, SIZED_BLOCKS, True), SIZED_BLOCKS),
}


def behind_the_first(data, budget):
    """Return the one piece that all frames but the first are."""
    failure = Failure(9, 0, 0, MalformedError("damaged"))
    (piece,) = found_behind(BytesData(data).range(0, len(data)), failure, "zstd", budget)
    return piece.data


@pytest.mark.parametrize("kind", ALL)
def test_a_hole_costs_the_frames_it_touches(kind):
    data, blocks = ALL[kind]
    for at in sweep.part(range(100, len(data) - 600, 7_919)):
        found = Salvage("zstd", hole(data, at, seed=at), budget=1 << 40)
        if "needs" in str(found.failure and found.failure.error):
            continue  # a window above 2 GiB, or a dictionary: that is what it says
        found.check(TRUTH, blocks, at, at + 512)
        if kind.startswith("table"):
            assert all(piece.position is not None for piece in found.pieces)


@pytest.mark.parametrize("kind", ALL)
def test_any_byte_of_a_header_may_be_wrong(kind):
    data, blocks = ALL[kind]
    first = blocks[2][0]
    for at in sweep.part([*range(16), *range(first - 10, first + 16), *range(len(data) - 30, len(data))], 0.4):
        found = Salvage("zstd", flip(data, at), budget=1 << 40)
        found.check(TRUTH, blocks, at, at + 1)


def test_positions_are_exact_where_frames_say_what_they_hold():
    at = SIZED_BLOCKS[2][0] + 20_000
    (piece,) = Salvage("zstd", flip(SIZED, at, 0xFF)).pieces
    assert piece.position in (3 * STEP, None)
    table = ALL["table"][0]
    (piece,) = Salvage("zstd", hole(table, UNSIZED_BLOCKS[2][0])).pieces
    assert (piece.position, piece.data.size) == (3 * STEP, len(TRUTH) - 3 * STEP)
    large = text(1 << 20)
    data = frame(large) + SIZED
    (piece,) = Salvage("zstd", hole(data, 9_000)).pieces
    assert piece.position == len(large)
    assert piece.data.pread(0, MIB) == TRUTH


def test_a_size_in_a_damaged_header_is_not_believed():
    first = frame(TRUTH[:70_000])
    size = first.index(struct.pack("<I", 70_000), 0, 12)
    found = Salvage("zstd", flip(first, size, 1) + SIZED)
    assert all(piece.position in (None, 70_000) for piece in found.pieces)
    assert found.pieces[0].data.pread(0, MIB) == TRUTH


def test_a_checksum_that_contradicts_costs_nothing_but_trust():
    found = Salvage("zstd", flip(flip(SIZED, SIZED_BLOCKS[2][1] - 1), SIZED_BLOCKS[5][1] - 1))
    assert found.failure.suspect_from == 2 * STEP
    assert [(piece.position, piece.joins) for piece in found.pieces] == [(3 * STEP, True), (6 * STEP, True)]
    (suspect,) = found.pieces[0].data.suspect_ranges
    assert (suspect.start, suspect.end) == (2 * STEP, 3 * STEP)


def test_several_holes_end_pieces():
    data = seekable(SIZED, SIZED_BLOCKS)
    for number in (1, 2, 5):
        data = hole(data, SIZED_BLOCKS[number][0] + 20_000)
    found = Salvage("zstd", data)
    found.check(TRUTH, [block for number, block in enumerate(SIZED_BLOCKS) if number not in (1, 2, 5)], 0, 0)
    assert {piece.position for piece in found.pieces} >= {3 * STEP, 6 * STEP}
    assert found.pieces[-1].error is None


def test_a_frame_that_is_stored_inside_is_in_doubt():
    noise = random.Random(2).randbytes
    inner = frame(text(3_000, seed=4))
    data = frame(noise(50_000) + inner + noise(150_000)) + SIZED
    assert inner in data
    found = Salvage("zstd", b"\0" + data[1:])
    assert found.pieces[0].data.suspect_ranges
    assert found.pieces[-1].data.pread(0, MIB) == TRUTH
    assert found.pieces[-1].data.suspect_ranges == ()


def test_a_gap_of_the_source():
    at = SIZED_BLOCKS[2][0] + 999
    found = Salvage("zstd", SIZED, source=GappyData(SIZED, [(at, 3000)]))
    found.check(TRUTH, SIZED_BLOCKS, at, at + 3000)
    assert found.failure.suspect_from is None


@pytest.mark.parametrize("kind", ALL)
def test_cut_streams_give_the_blocks_before_the_cut(kind):
    data, blocks = ALL[kind]
    for cut in range(0, len(data), 7_001):
        found = Salvage("zstd", data[:cut])
        found.check(TRUTH, [block for block in blocks if block[1] <= cut], cut, len(data))


@pytest.mark.parametrize("kind", ALL)
def test_reading_at_random_equals_the_truth(kind):
    data, _ = ALL[kind]
    budget = MemoryBudget(8 * MIB)
    truth, blocks = TRUTH[STEP:], behind_the_first(data, budget)
    assert (blocks.size, len(blocks)) == (len(truth), 8)
    source = random.Random(2)
    for _ in range(200):
        at, count = source.randrange(len(truth)), source.choice([1, 100, 5_000, 150_000])
        assert blocks.pread(at, count) == truth[at : at + count]
    assert budget.peak <= 8 * MIB
    blocks.close()
    assert budget.used == 0


def test_a_long_index_is_thinned_out(monkeypatch):
    most = (16 if sweep.full else 4) * KIB
    monkeypatch.setattr("pparse.compressed.resync.blocks._MOST", most)
    count = most + 3_600
    parts = [b"%06d" % number for number in range(count)]
    # A frame of six bytes holds them as they are: what is in front of them is the same in each.
    head = zstd.compress(parts[0], 1).removesuffix(parts[0])
    assert zstd.compress(parts[-1], 1) == head + parts[-1]
    data = b"".join(head + part for part in parts)
    budget = MemoryBudget(4 * MIB)
    blocks = behind_the_first(data, budget)
    assert len(blocks) <= most
    assert budget.used <= 35 * most + 20 * KIB
    for number in (1, 2, count - 1, most // 2, most - 1, 7):
        assert blocks.pread(6 * (number - 1), 12) == b"".join(parts[number : number + 2])


def test_a_lying_table_is_no_table():
    table = ALL["table"][0]
    for at in range(len(table) - 9 - 8 * 9 - 8, len(table)):
        found = Salvage("zstd", hole(flip(table, at), 5_000))
        assert found.pieces[0].data.pread(0, 99) == TRUTH[STEP : STEP + 99]
    lying = seekable(UNSIZED, [(0, 1 << 31, 0, (1 << 32) - 1)] * 3)
    assert Salvage("zstd", hole(lying, 5_000)).pieces[0].data.pread(0, 99) == TRUTH[STEP : STEP + 99]


def test_many_magics_take_no_time():
    noise = (b"\x28\xb5\x2f\xfd\0\x58" + bytes(3) * 20) * 5_000
    found = Salvage("zstd", hole(SIZED, 0)[:39_000] + noise + SIZED)
    assert any(TRUTH[:STEP] in chunk for piece in found.pieces for _, chunk in found.contents(piece))


def test_a_declared_size_is_not_allocated():
    head = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60)
    data = hole(SIZED, 100) + head + b"\1\0\0" + head + b"\3\0\0\7" + SIZED
    found = Salvage("zstd", data, budget=8 * MIB)
    assert any(TRUTH[:STEP] in chunk for piece in found.pieces for _, chunk in found.contents(piece))
