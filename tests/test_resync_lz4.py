from __future__ import annotations

import gzip
import random
import struct

import cramjam
import pytest

import pparse
from pparse.codecs.lz4 import _Xxh32
from pparse.kernels.lz4 import short_xxh32
from pparse.limits import KIB, MIB
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.resync_damage import Salvage, flip, hole, text

TRUTH = text(800 * KIB)
FULL = 64 * KIB


def xxh32(data):
    check = _Xxh32(cramjam.lz4)
    check.update(data)
    return check.digest()


def frame(truth, *, step=FULL, sized=False, block_checksums=False, checksum=True, stored=()):
    """Return a frame of independent blocks of ``step`` bytes, and (start, end, out, size) of them."""
    flags = bytes([0x60 | 0x10 * block_checksums | 8 * sized | 4 * checksum, 0x40])
    flags += struct.pack("<Q", len(truth)) if sized else b""
    data = b"\x04\x22\x4d\x18" + flags + bytes([short_xxh32(flags) >> 8 & 0xFF])
    blocks = []
    for number, out in enumerate(range(0, len(truth), step)):
        part = truth[out : out + step]
        packed, mark = bytes(cramjam.lz4.compress_block(part, store_size=False)), 0
        if number in stored:
            packed, mark = part, 1 << 31
        block = struct.pack("<I", len(packed) | mark) + packed + (xxh32(packed) if block_checksums else b"")
        blocks.append((len(data), len(data) + len(block), out, len(part)))
        data += block
    return data + bytes(4) + (xxh32(truth) if checksum else b""), blocks


def joined(*made):
    """Return frames one after the other, and their blocks."""
    data, blocks, out = b"", [], 0
    for part, found in made:
        blocks += [(start + len(data), end + len(data), at + out, size) for start, end, at, size in found]
        data += part
        out += sum(size for *_, size in found)
    return data, blocks


def linked(truth):
    stream = cramjam.lz4.Compressor()
    stream.compress(truth)
    data = bytes(stream.finish())
    return data, [(0, len(data), 0, len(truth))]


PARTS = [TRUTH[at : at + 200_000] for at in range(0, len(TRUTH), 200_000)]
ALL = {
    "plain": frame(TRUTH),
    "sized": frame(TRUTH, sized=True, stored=(2, 5)),
    "checked": frame(TRUTH, block_checksums=True, checksum=False, stored=(3,)),
    "uneven": frame(TRUTH, step=50_000, sized=True, block_checksums=True),
    "frames": joined(*(frame(part, sized=number % 2 == 0) for number, part in enumerate(PARTS))),
    "linked": joined(*map(linked, PARTS)),
}
CERTAIN = ["checked", "uneven"]  # every damage shows


@pytest.mark.parametrize("kind", ALL)
def test_the_samples_are_sound(kind):
    found = Salvage("lz4", ALL[kind][0])
    assert (found.head, found.failure) == (TRUTH, None)


@pytest.mark.parametrize("kind", ALL)
def test_a_hole_costs_the_blocks_it_touches(kind):
    data, blocks = ALL[kind]
    for at in sweep.part(range(100, len(data) - 600, 14_983)):
        found = Salvage("lz4", hole(data, at, seed=at))
        if found.failure is not None and (found.failure.why_suspect or "").startswith("the checksum"):
            continue  # it decodes; all of its frame is in doubt
        found.check(TRUTH, blocks, at, at + 512)


@pytest.mark.parametrize("kind", CERTAIN)
def test_any_byte_of_a_header_may_be_wrong(kind):
    data, blocks = ALL[kind]
    first = blocks[2][0]
    places = [*range(24), *range(first - 6, first + 10), *range(len(data) - 12, len(data))]
    for at in sweep.part(places):
        found = Salvage("lz4", flip(data, at))
        if at < len(data) - 8:  # else what can be had depends on who counts
            found.check(TRUTH, blocks, at, at + 1)


@pytest.mark.parametrize("kind", CERTAIN)
def test_a_damaged_header_of_a_frame_costs_nothing(kind):
    data, _ = ALL[kind]
    for at in range(6):
        found = Salvage("lz4", flip(data, at))
        if found.failure is not None and found.failure.out == 0:
            assert found.pieces[0].position == 0
            assert found.pieces[0].data.pread(0, MIB) == TRUTH


def test_positions_are_exact_where_all_blocks_must_be_full():
    data, blocks = frame(TRUTH, sized=True, block_checksums=True)
    found = Salvage("lz4", hole(hole(data, blocks[3][0] + 99), blocks[7][0] + 99))
    assert [piece.position for piece in found.pieces] == [4 * FULL, 8 * FULL]
    data, blocks = ALL["uneven"]
    found = Salvage("lz4", hole(data, blocks[3][0] + 99))
    assert [piece.position for piece in found.pieces] == [None]
    assert found.pieces[0].data.pread(0, MIB) == TRUTH[200_000:]


def test_the_next_frame_has_its_place_if_the_damaged_one_says_its_size():
    data, blocks = joined(frame(PARTS[0], sized=True, block_checksums=True), frame(PARTS[1]))
    found = Salvage("lz4", hole(data, blocks[2][0] + 99))
    assert found.pieces[-1].position is not None
    assert found.pieces[-1].data.pread(0, MIB)[-1000:] == PARTS[1][-1000:]
    end = found.pieces[-1].position + found.pieces[-1].data.size
    assert end == 400_000


def test_damaged_lengths_are_got_over():
    data, blocks = ALL["checked"]
    for number in (0, 4, 9):
        for byte in range(4):
            for mask in (1, 16, 64):  # the highest bit says "stored", and no checksum covers it
                at = blocks[number][0] + byte
                Salvage("lz4", flip(data, at, mask)).check(TRUTH, blocks, at, at + 1)


def test_what_a_damaged_block_gave_is_in_doubt():
    data, blocks = ALL["sized"]
    found = Salvage("lz4", hole(data, blocks[3][0] + 20_000))
    assert found.failure.out > 3 * FULL
    assert found.failure.suspect_from == 3 * FULL
    found = Salvage("lz4", flip(data, len(data) - 1))
    assert found.failure.suspect_from == 0


def test_a_frame_that_is_stored_inside_is_in_doubt():
    noise = random.Random(2).randbytes
    inner, _ = frame(text(30_000, seed=4))
    outer, _ = frame(noise(10_000) + inner + noise(20_000), stored=(0,))
    assert inner in outer
    data = outer[:4] + b"\xff" + outer[5:9] + b"\x7f" + outer[10:] + ALL["plain"][0]
    found = Salvage("lz4", data)
    assert found.pieces[0].data.suspect_ranges
    assert found.pieces[-1].data.pread(0, MIB) == TRUTH
    assert found.pieces[-1].data.suspect_ranges == ()


def test_a_gap_of_the_source():
    data, blocks = ALL["checked"]
    at = blocks[4][0] + 999
    found = Salvage("lz4", data, source=GappyData(data, [(at, 3000)]))
    found.check(TRUTH, blocks, at, at + 3000)
    assert found.failure.suspect_from is None


@pytest.mark.parametrize("kind", ALL)
def test_cut_streams_give_the_blocks_before_the_cut(kind):
    data, blocks = ALL[kind]
    for cut in sweep.part(range(0, len(data), 14_001)):
        found = Salvage("lz4", data[:cut])
        found.check(TRUTH, [block for block in blocks if block[1] <= cut], cut, len(data))
        found = Salvage("lz4", hole(data[:cut], blocks[0][0] + 60)) if cut > 300_000 and kind in CERTAIN else found
        assert found.head == b"" or found.pieces or len(found.head) or cut < 100


def test_a_cut_behind_damage():
    data, blocks = ALL["checked"]
    cut = blocks[8][0] + 1000
    found = Salvage("lz4", hole(data[:cut], blocks[2][0] + 60))
    found.check(TRUTH, blocks[:8], blocks[2][0], blocks[3][0])


def test_pieces_are_read_at_random():
    data, blocks = ALL["checked"]
    budget = 8 * MIB
    found = Salvage("lz4", hole(data, blocks[0][0] + 60), budget=budget)
    (piece,) = found.pieces
    source = random.Random(2)
    for _ in range(100):
        at, count = source.randrange(piece.data.size), source.choice([1, 100, 5_000, 150_000])
        assert piece.data.pread(at, count) == TRUTH[FULL + at : FULL + at + count]
    assert found.budget.peak <= budget


def test_many_headers_take_no_time():
    head, _ = frame(b"")
    data, blocks = ALL["checked"]
    found = Salvage("lz4", hole(data, blocks[2][0], 60_000) + (head[:7] + bytes(1) * 3) * 5_000 + data)
    assert any(TRUTH in chunk for piece in found.pieces for _, chunk in found.contents(piece))


def test_absurd_sizes_take_no_memory():
    flags = bytes([0x68, 0x70]) + struct.pack("<Q", 1 << 63)
    head = b"\x04\x22\x4d\x18" + flags + bytes([short_xxh32(flags) >> 8 & 0xFF])
    Salvage("lz4", head + b"\xff\xff\xff\x7f" + bytes(100) + head + bytes(4), budget=32 * MIB)


@pytest.mark.parametrize("stored", [(), (3,)], ids=["packed", "stored"])
def test_bytes_that_went_out_of_the_last_block_put_all_of_it_in_doubt(stored):
    """The file seems to be cut, but for the end mark and the checksum at its end."""
    truth = TRUTH[: 4 * FULL]
    data, blocks = frame(truth, stored=stored)
    at = blocks[-1][0] + 2_000
    with pparse.open(data[:at] + data[at + 16 :], format="lz4") as doc:
        errors = [finding.reason for finding in doc.check()]
        assert any("what looks like the lz4 frame's end" in reason for reason in errors)
        content = doc.result.parser.content
        assert content.why_suspect(3 * FULL, 3 * FULL + 1)
        assert not content.why_suspect(0, 2 * FULL)
        assert content.pread(0, 2 * FULL) == truth[: 2 * FULL]
    with pparse.open(data[:-40], format="lz4") as doc:  # cut
        assert [str(doc.status), doc.result.parser.content.why_suspect(0, 3 * FULL + 100)] == ["truncated", None]


def test_only_what_a_frame_contradicts_is_in_doubt_in_the_gzip_stream_in_it():
    """The inner checksum says that something is wrong, and that of the frame where."""
    inner = gzip.compress(TRUTH)
    step = len(inner) // 10
    made = [frame(inner[at : at + step], sized=True, stored=(0,)) for at in range(0, len(inner), step)]
    data, blocks = joined(*made)
    with pparse.open(flip(data, blocks[4][0] + 1000)) as document:
        content = document.parse().parser.inner().data
        content.resolve()
        found, unknown = content.read_known(0, len(TRUTH))
        doubtful = [(suspect.start, min(suspect.end, len(TRUTH))) for suspect in content.suspect_ranges]
    known = bytearray(b"\1" * len(TRUTH))
    for start, end in (*doubtful, *((at, at + count) for at, count in unknown)):
        known[start:end] = bytes(end - start)
    assert all(mine == true for mine, true, sure in zip(found, TRUTH, known, strict=True) if sure)
    assert all(known[: len(TRUTH) * 3 // 10])
    assert sum(known[len(TRUTH) // 2 :]) > len(TRUTH) // 10
