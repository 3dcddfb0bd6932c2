from __future__ import annotations

import lzma
import random
import shutil
import struct
import subprocess
import zlib

import pytest

from pparse.compressed.resync import Failure, module_of
from pparse.compressed.resync.blocks import Look
from pparse.compressed.resync.xz import layout_from_the_end, stream_end, stream_header, take_vli
from pparse.data.base import BytesData
from pparse.errors import LimitError, MalformedError
from pparse.limits import KIB, MIB, MemoryBudget
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.resync_damage import Salvage, blocks_from_start, flip, found_behind, hole, text

TRUTH = text(400 * KIB)
STEP = 50_000


def vli(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def crc(data):
    return data + struct.pack("<I", zlib.crc32(data))


def many_blocks(truth, step, check, sizes):
    """Return one stream of blocks of ``step`` bytes, and (start, end, out, size) of them; made by hand."""
    number, width = {"none": (0, 0), "crc32": (1, 4), "crc64": (4, 8)}[check]
    data = b"\xfd7zXZ\0" + crc(bytes([0, number]))
    blocks, records = [], b""
    kind = {"none": lzma.CHECK_NONE, "crc32": lzma.CHECK_CRC32, "crc64": lzma.CHECK_CRC64}[check]
    for out in range(0, len(truth), step):
        part = truth[out : out + step]
        whole = lzma.compress(part, check=kind, preset=1)
        length = (whole[12] + 1) * 4
        index = 4 * (struct.unpack_from("<I", whole, len(whole) - 8)[0] + 1)
        body = whole[12 : len(whole) - 12 - index]  # with its header
        unpadded, _ = take_vli(whole, len(whole) - 12 - index + 2)
        if sizes:
            packed = unpadded - length - width
            head = bytes([0, 0xC0]) + vli(packed) + vli(len(part)) + whole[14 : 12 + length - 4].rstrip(b"\0")
            head += bytes(-len(head) % 4)
            head = crc(bytes([len(head) // 4]) + head[1:])
            body, unpadded = head + body[length:], unpadded - length + len(head)
        blocks.append((len(data), len(data) + len(body), out, len(part)))
        records += vli(unpadded) + vli(len(part))
        data += body
    index = b"\0" + vli(len(blocks)) + records
    index = crc(index + bytes(-len(index) % 4))
    foot = struct.pack("<I", len(index) // 4 - 1) + bytes([0, number])
    return data + index + struct.pack("<I", zlib.crc32(foot)) + foot + b"YZ", blocks


SIZED, SIZED_BLOCKS = many_blocks(TRUTH, STEP, "crc64", sizes=True)
PLAIN, PLAIN_BLOCKS = many_blocks(TRUTH, STEP, "crc32", sizes=False)


def streams():
    data, blocks = b"", []
    for number, out in enumerate(range(0, len(TRUTH), STEP)):
        part = lzma.compress(TRUTH[out : out + STEP], preset=1, check=[lzma.CHECK_SHA256, lzma.CHECK_CRC64][number % 2])
        blocks.append((len(data), len(data) + len(part), out, len(TRUTH[out : out + STEP])))
        data += part + bytes(4 * (number % 3))
    return data, blocks


STREAMS, STREAM_BLOCKS = streams()
ALL = {"sized": (SIZED, SIZED_BLOCKS), "plain": (PLAIN, PLAIN_BLOCKS), "streams": (STREAMS, STREAM_BLOCKS)}


@pytest.mark.parametrize("kind", ALL)
def test_the_samples_are_sound(kind):
    data, blocks = ALL[kind]
    assert kind == "streams" or lzma.decompress(data) == TRUTH  # Python does not know of padding
    assert len(blocks) == 9


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("cut", [0, 30])
def test_a_hole_costs_the_blocks_it_touches(kind, cut):
    data, blocks = ALL[kind]
    data = data[: len(data) - cut]
    for at in sweep.some(range(100, len(data) - 600, 14_983), 5, ends=1):
        found = Salvage("xz", hole(data, at, seed=at))
        found.check(TRUTH, [block for block in blocks if block[1] <= len(data)], at, at + 512)
        if not cut or kind == "sized":
            assert all(piece.position is not None for piece in found.pieces)


@pytest.mark.parametrize("kind", ALL)
def test_any_byte_of_a_header_may_be_wrong(kind):
    data, blocks = ALL[kind]
    places = [*range(40), *range(blocks[2][0] - 20, blocks[2][0] + 40), *range(len(data) - 40, len(data))]
    for at in sweep.some(places, 30, keep=range(0, 12, 4)):
        Salvage("xz", flip(data, at)).check(TRUTH, blocks, at, at + 1)


def test_without_index_and_without_sizes_a_block_is_found_by_its_header():
    data = PLAIN[:-60]
    for at in (PLAIN_BLOCKS[2][0] + 3, PLAIN_BLOCKS[2][0] + 14):  # its header, the head of its first chunk
        found = Salvage("xz", hole(data, at, 40))
        found.check(TRUTH, PLAIN_BLOCKS[:8], at, at + 40)
        assert found.pieces[0].at == PLAIN_BLOCKS[3][0]
        assert found.pieces[0].position is None


def test_a_length_of_a_chunk_proves_nothing():
    """The output that a damaged chunk claims is not a position."""
    chunk = PLAIN_BLOCKS[2][0] + 12
    assert PLAIN[chunk] >= 0xE0
    found = Salvage("xz", flip(PLAIN[:-60], chunk + 1, 3))
    found.check(TRUTH, PLAIN_BLOCKS[:8], chunk + 1, chunk + 2)
    assert found.pieces


def test_several_holes_end_pieces():
    data = SIZED
    for number in (1, 2, 5):
        data = hole(data, SIZED_BLOCKS[number][0] + 10_000)
    found = Salvage("xz", data)
    assert [piece.position for piece in found.pieces] == [2 * STEP, 3 * STEP, 6 * STEP]
    assert [piece.error is None for piece in found.pieces] == [False, False, True]
    assert found.pieces[0].data.gaps[-1].offset < STEP
    assert found.pieces[0].data.suspect_ranges[0].start == 0


def test_a_check_that_contradicts_costs_nothing_but_trust():
    at = SIZED_BLOCKS[3][1] - 3
    found = Salvage("xz", flip(SIZED, at))
    assert found.failure.suspect_from == 3 * STEP
    assert [(piece.position, piece.joins) for piece in found.pieces] == [(4 * STEP, True)]
    data = flip(flip(SIZED, at), SIZED_BLOCKS[6][1] - 3)
    found = Salvage("xz", data)
    assert [(piece.position, piece.joins) for piece in found.pieces] == [(4 * STEP, True), (7 * STEP, True)]
    (suspect,) = found.pieces[0].data.suspect_ranges
    assert (suspect.start, suspect.end) == (2 * STEP, 3 * STEP)
    assert found.pieces[0].data.gaps == ()


def test_damage_before_the_failure_is_found():
    """A chunk that reaches over its block's end must not cost the next block."""
    head = SIZED_BLOCKS[4][0]
    at = head + 4 * (SIZED[head] + 1)
    assert SIZED[at] >= 0xE0
    for byte in range(at, at + 6):
        for mask in sweep.values((1, 2, 4, 8, 16, 32, 64, 128), byte, 1):
            Salvage("xz", flip(SIZED, byte, mask)).check(TRUTH, SIZED_BLOCKS, byte, byte + 1)


def test_a_failure_in_the_next_block_does_not_cost_it():
    """A decoder may be led over the end of a damaged block, and fail only then."""
    data = hole(SIZED, SIZED_BLOCKS[3][1] - 600)
    source = BytesData(data).range(0, len(data))
    failure = Failure(SIZED_BLOCKS[4][0] + 2_000, 4 * STEP + 77, 0, MalformedError("late"))
    (piece,) = found_behind(source, failure, "xz", MemoryBudget(64 * MIB))
    assert piece.position == 4 * STEP
    assert piece.data.pread(0, MIB) == TRUTH[4 * STEP :]
    assert failure.suspect_from is not None
    assert failure.suspect_from < 4 * STEP


def test_an_xz_file_that_is_stored_inside_is_no_piece():
    noise = random.Random(2).randbytes
    inner = lzma.compress(noise(5_000) + b"inner" * 100)
    data = lzma.compress(noise(150_000) + inner + noise(100_000))
    assert data.count(inner) == 1
    start = 24  # the length of the first chunk
    found = Salvage("xz", hole(data, start, 8)[:-40])
    for piece in found.pieces:
        for _, chunk in found.contents(piece):
            assert b"innerinner" not in chunk


def test_a_gap_of_the_source():
    at = SIZED_BLOCKS[2][0] + 999
    found = Salvage("xz", SIZED, source=GappyData(SIZED, [(at, 3000)]))
    found.check(TRUTH, SIZED_BLOCKS, at, at + 3000)
    assert found.failure.suspect_from is None
    assert found.pieces[0].position == 3 * STEP


@pytest.mark.parametrize("kind", ALL)
def test_cut_streams_give_the_blocks_before_the_cut(kind):
    data, blocks = ALL[kind]
    for cut in sweep.some(range(0, len(data), 9_973), 2):
        found = Salvage("xz", data[:cut])
        found.check(TRUTH, [block for block in blocks if block[1] <= cut], cut, len(data))


@pytest.mark.parametrize("kind", ALL)
def test_reading_at_random_equals_the_truth(kind):
    data, _ = ALL[kind]
    budget = MemoryBudget(8 * MIB)
    blocks = blocks_from_start("xz", data, budget)
    assert (blocks.size, len(blocks)) == (len(TRUTH), 9)
    source = random.Random(2)
    for _ in range(200 if sweep.full else 70):
        at, count = source.randrange(len(TRUTH)), source.choice([1, 100, 5_000, 150_000])
        assert blocks.pread(at, count) == TRUTH[at : at + count]
    assert budget.peak <= 8 * MIB
    blocks.close()
    assert budget.used == 0


def test_reading_backwards_decodes_a_block_at_most_twice():
    data = BytesData(SIZED)
    blocks = blocks_from_start("xz", data)
    before = data.stats.bytes
    for at in range(len(TRUTH) - 1_000, 0, -1_000):
        assert blocks.pread(at, 1_000) == TRUTH[at : at + 1_000]
    assert data.stats.bytes - before < 3 * len(SIZED)


def test_a_dictionary_of_4_gib_is_not_made():
    at = PLAIN_BLOCKS[2][0]
    head = bytearray(PLAIN[at : at + 12])
    assert head[2:4] == b"\x21\1"
    head[4] = 40
    head[8:] = struct.pack("<I", zlib.crc32(head[:8]))
    data = PLAIN[:at] + bytes(head) + PLAIN[at + 12 :]
    found = Salvage("xz", hole(data, 5000), budget=16 * MIB)  # the size is known: a small one does
    found.check(TRUTH, PLAIN_BLOCKS, 5000, 5512)


def test_absurd_numbers_take_no_memory():
    for unpadded, size in ((1 << 62, 5), (5, 1 << 62), ((1 << 63) - 1, (1 << 63) - 1), (40, 1 << 61)):
        data = stream_header(1) + random.Random(1).randbytes(40) + stream_end(1, unpadded, size)
        Salvage("xz", data, budget=2 * MIB)
        Salvage("xz", SIZED + data)
    many = b"\0" + vli(1 << 60) + bytes(100)
    foot = struct.pack("<I", 25) + b"\0\1"
    data = stream_header(1) + crc(many[:100]) + struct.pack("<I", zlib.crc32(foot)) + foot + b"YZ"
    Salvage("xz", data, budget=2 * MIB)
    assert layout_from_the_end(Look(BytesData(data).range(0, len(data))), MemoryBudget(2 * MIB)).start == len(data)


def test_an_index_above_the_budget_is_said():
    record = vli(9) + vli(1)
    count = 200_000
    records = b"\0" + vli(count) + record * count
    records = crc(records + bytes(-len(records) % 4))
    foot = struct.pack("<I", len(records) // 4 - 1) + b"\0\1"
    data = stream_header(1) + bytes(12 * count) + records + struct.pack("<I", zlib.crc32(foot)) + foot + b"YZ"
    with pytest.raises(LimitError, match="budget="):
        blocks_from_start("xz", data, MemoryBudget(2 * MIB))


def test_noise_full_of_names_of_the_filter():
    noise = b"\x21\1" * 50_000
    at = SIZED_BLOCKS[2][0]
    data = (SIZED[:at] + noise + SIZED[at + 100 :])[:-60]
    found = Salvage("xz", data)
    contents = [chunk for piece in found.pieces for _, chunk in found.contents(piece)]
    assert any(TRUTH[3 * STEP : 4 * STEP] in chunk for chunk in contents)


@pytest.mark.skipif(shutil.which("xz") is None, reason="no xz here")
@pytest.mark.parametrize(
    "options",
    sweep.part([("-T2",), ("-T1",), ("-T2", "--delta=dist=2", "--lzma2=preset=1"), ("-T2", "--x86", "--lzma2")]),
)
def test_files_of_xz_itself(options):
    command = ["xz", "-c", f"--block-size={STEP}", *options]
    data = subprocess.run(command, input=TRUTH, stdout=subprocess.PIPE, check=True).stdout
    assert blocks_from_start("xz", data).pread(0, MIB) == TRUTH
    for at in sweep.some(range(1000, len(data) - 1000, 20_009), 2):
        found = Salvage("xz", hole(data, at))
        assert found.pieces or at > len(data) - 22_500
        found.check(TRUTH, [], at, at + 512)
        lost = sum(gap.length for piece in found.pieces for gap in piece.data.gaps)
        assert lost + (found.pieces[0].position - found.end if found.pieces else 0) <= 2 * STEP


def test_nothing_for_codecs_without_entries():
    assert module_of("brotli") is module_of("snappy") is module_of("lzma") is None
    assert module_of("xz").__name__ == "pparse.compressed.resync.xz"
