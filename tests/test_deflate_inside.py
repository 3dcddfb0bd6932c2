"""Behind a gap inside a deflate block: what does not depend on the gap is there, and nothing else is called known."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import pytest

from pparse.data.spliced import SplicedData
from pparse.findings import Status
from pparse.testing.fakes import GappyData
from tests import deflate_oracle, sweep
from tests.deflate_samples import content, deflate
from tests.rows import rows
from tests.stream_referee import hold_against, resumed

HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def packed(truth: bytes, level: int = 6, memory: int = 8, **how) -> bytes:
    return HEAD + deflate(truth, level, memory, **how) + struct.pack("<II", zlib.crc32(truth), len(truth))


def with_gaps(stream: bytes, *gaps: tuple[int, int], codec: str = "gzip", **more):
    data = resumed(stream, codec, source=GappyData(stream, gaps), concatenated=codec == "gzip", **more)
    data.verify()
    return data


def lost(data) -> int:
    return sum(gap.length for gap in data.gaps)


def depending(raw: bytes, size: int, first: int, last: int) -> int:
    """Bytes of the output that follow from source bytes ``[first, last)`` only, all else being known."""
    known = deflate_oracle.inflate(raw)
    before = zlib.decompressobj(-15).decompress(raw[:first])
    behind = zlib.decompressobj(-15).decompress(raw[: last + 8])
    marks = bytearray(size)
    marks[len(before) : len(behind)] = b"\1" * (len(behind) - len(before))
    for at, length, distance in known.copies:
        for place in range(at, at + length):
            marks[place] |= marks[place - distance]
    return sum(marks)


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_gap_in_a_block_costs_what_it_held_and_copies_of_that(level, part):
    truth = content("text", 120_000)
    stream = packed(truth, level)
    at = int(len(stream) * part)
    data = with_gaps(stream, (at, 512))
    hold_against(truth, data)
    assert all(gap.exact for gap in data.gaps)
    assert lost(data) <= 2.2 * depending(stream[10:-8], len(truth), at - 10, at + 502) + 700


@pytest.mark.parametrize("count", [1, 512, 4000])
def test_a_gap_in_a_member_of_known_size_costs_what_it_held_and_copies_of_that(count):
    truth = content("text", 120_000)
    raw = deflate(truth)
    at = len(raw) // 2
    data = with_gaps(raw, (at, count), codec="deflate", size=len(truth))
    hold_against(truth, data)
    assert lost(data) <= 2.2 * depending(raw, len(truth), at, at + count) + 700


def test_a_gap_in_the_only_block_of_a_stream_costs_what_it_held():
    truth = content("text", 20_000)
    stream = packed(truth)
    data = with_gaps(stream, (len(stream) // 2, 64))
    hold_against(truth, data)
    assert 0 < lost(data) < 1_000


def test_of_a_stored_block_only_the_gap_is_lost():
    truth = content("noise", 60_000)
    stream = packed(truth, 0)
    data = with_gaps(stream, (5_000, 300), (5_600, 7))
    hold_against(truth, data)
    assert [(gap.offset, gap.length, gap.exact) for gap in data.gaps] == [(4_985, 300, True), (5_585, 7, True)]


def test_behind_stored_blocks_that_hold_compressed_data_only_the_gap_is_lost():
    inner = packed(content("text", 100_000))
    stream = packed(inner)
    data = with_gaps(stream, (len(stream) // 2, 512))
    hold_against(inner, data)
    assert [(gap.length, gap.exact) for gap in data.gaps] == [(512, True)]


def test_a_stored_block_that_seems_to_begin_among_stored_bytes_is_none():
    noise = bytearray(content("noise", 50_000))
    noise[3_000:3_005] = b"\x00" + struct.pack("<HH", 20_000, 20_000 ^ 0xFFFF)
    data = with_gaps(packed(bytes(noise), 0), (6_000, 100))
    hold_against(bytes(noise), data)
    assert lost(data) == 100


def test_a_stretch_of_zeros_costs_what_it_held_and_copies_of_that():
    truth = content("text", 120_000)
    stream = packed(truth)
    at = len(stream) // 2
    data = resumed(stream[:at] + bytes(512) + stream[at + 512 :])
    hold_against(truth, data)
    assert lost(data) <= 2.2 * depending(stream[10:-8], len(truth), at - 12, at + 504) + 700


def test_a_gap_in_the_last_block_of_a_member_leaves_the_members_behind_it():
    first, second = content("text", 30_000), content("mixed", 20_000)
    one = packed(first)
    data = with_gaps(one + packed(second), (len(one) - 3_000, 40))
    hold_against(first + second, data)
    assert data.read_known(len(first), len(second)) == (second, [])
    assert 0 < lost(data) < 3_000


def test_two_gaps_in_one_block_leave_what_is_behind_the_second():
    truth = content("text", 120_000)
    stream = packed(truth)
    at = len(stream) // 2
    data = with_gaps(stream, (at, 40), (at + 300, 40))
    hold_against(truth, data)
    assert lost(data) < 30_000


@pytest.mark.parametrize("kind", ["floats", "text", "mixed"])
def test_a_gap_from_one_block_into_the_next_is_not_taken_for_one_inside_a_block(kind):
    truth = content(kind, 100_000)
    stream = packed(truth, 6, 6)
    blocks = deflate_oracle.inflate(stream[10:-8]).blocks
    for block in blocks[1:-1:2]:
        begin = 10 + block.bit // 8
        for before, count in ((30, 150), (300, 420)):
            hold_against(truth, with_gaps(stream, (begin - before, count)))


def test_a_gap_from_one_member_into_the_next_is_not_taken_for_one_inside_a_block():
    parts = [content("floats", 40_000)[at : at + 4_000] for at in range(0, 40_000, 4_000)]
    members = [packed(part) for part in parts]
    stream = b"".join(members)
    for number in range(1, 10):
        border = sum(map(len, members[:number]))
        hold_against(b"".join(parts), with_gaps(stream, (border - 50, 200)))


def test_noise_behind_the_gap_is_not_decoded_as_if_it_were_sound():
    truth = content("text", 120_000)
    stream = packed(truth)
    at = len(stream) // 2
    damaged = stream[:at] + bytes(512) + random.Random(1).randbytes(2_000) + stream[at + 2_512 :]
    data = with_gaps(damaged, (at, 512))
    content_now, unknown = data.read_known(0, len(truth))
    known = bytearray(b"\1" * len(truth))
    for start, count in unknown:
        known[start : start + count] = bytes(count)
    wrong = sum(a != b and sure for a, b, sure in zip(content_now, truth, known, strict=True))
    assert sum(known) > len(truth) * 0.6
    assert wrong < 1_500  # of some 6,000 bytes that the noise stands for


def test_where_the_place_is_not_known_no_place_is_claimed():
    truth = content("text", 120_000)
    stream = zlib.compress(truth)
    data = with_gaps(stream, (len(stream) // 2, 512), codec="zlib")
    hold_against(truth, data)
    assert any(not gap.exact for gap in data.gaps)


@rows("seed", sweep.part(range(12)))
def test_nothing_known_is_wrong_wherever_the_gap_is(seed):
    rng = random.Random(seed)
    for _ in range(6 if sweep.full else 3):
        kind = rng.choice(["text", "text", "mixed", "floats"])
        start = rng.randrange(30_000)
        truth = content(kind, 100_000)[start : start + rng.choice([2_000, 20_000, 60_000])]
        raw = deflate(truth, rng.randint(1, 9), rng.choice([1, 4, 8, 8, 9]))
        count = min(rng.choice([1, 20, 512, 4_096]), len(raw) // 2)
        at = rng.randrange(len(raw) - count)
        if rng.random() < 0.5:
            hold_against(truth, with_gaps(raw, (at, count), codec="deflate", size=len(truth)))
        else:
            stream = HEAD + raw + struct.pack("<II", zlib.crc32(truth), len(truth))
            hold_against(truth, with_gaps(stream, (at + 10, count)))


def test_reads_anywhere_give_the_same_within_a_small_budget():
    truth = content("text", 300_000)
    stream = packed(truth)
    source = GappyData(stream, [(len(stream) // 2, 200)])
    data = resumed(stream, source=source, budget=8 << 20)
    data.verify()
    whole, unknown = data.read_known(0, len(truth))
    assert len(unknown) > 10
    rng = random.Random(2)
    for _ in range(40):
        at = rng.randrange(len(truth))
        assert data.read_known(at, 3_000)[0] == whole[at : at + 3_000]
    assert data._env.budget.peak <= 8 << 20


def test_a_gap_is_passed_when_gzip_itself_wrote_the_stream():
    truth = content("mixed", 100_000)
    stream = gzip.compress(truth, mtime=0)
    data = with_gaps(stream, (len(stream) // 3, 100))
    hold_against(truth, data)
    assert lost(data) < 3_000


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("budget", [1, 4, 64])
def test_what_more_memory_might_give_is_not_called_lost(budget, last):
    """Of the block with the gap; of the last one there is no block behind it, either."""
    truth = content("text", 600_000)
    stream = packed(truth, 6, 9)
    at = len(stream) - 40_000 if last else len(stream) // 2
    data = with_gaps(stream, (at, 512), budget=budget << 20)
    hold_against(truth, data)
    lost_at = data.gaps[0].offset
    if budget == 64:
        assert data.passed_over(0, len(truth)) is None
        assert data.range_status(lost_at - 10, lost_at + 10).status is Status.DAMAGED
        return
    found = data.range_status(lost_at - 10, lost_at + 10)
    assert (found.status, found.there) == (Status.UNSUPPORTED, 10)
    assert 'budget="64MiB"' in (found.reason or "")
    part = SplicedData([data.range(0, lost_at + 10)])
    assert part.range_status(lost_at, lost_at + 10).status is Status.UNSUPPORTED
    assert data.range_status(0, lost_at).status is Status.COMPLETE
