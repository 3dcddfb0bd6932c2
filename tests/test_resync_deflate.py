"""Behind damage of gzip, zlib and raw deflate: nothing known is wrong, exact places are exact, and little is lost."""

from __future__ import annotations

import gzip
import itertools
import random
import zlib
from array import array
from functools import cache
from itertools import pairwise

import pytest

import pparse
from pparse.codecs import deflate_entry
from pparse.codecs.deflate_entry import DeflateEntry
from pparse.compressed.inflated import InflatedData
from pparse.compressed.resumed import ResumedData
from pparse.compressed.resync import Failure, deflate_source
from pparse.compressed.resync.deflate_source import EnteredData, TailBytes
from pparse.data.base import BytesData
from pparse.errors import EndOfDataError, LimitError, MalformedError
from pparse.kernels import deflate_blocks
from pparse.limits import MIB, Limits, MemoryBudget
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.deflate_samples import STREAMS, content, deflate, sample
from tests.resync_damage import found_behind
from tests.rows import rows
from tests.stream_referee import (
    DAMAGES,
    Member,
    Sample,
    both,
    flip,
    hold_against,
    missing,
    noise,
    read_all,
    resumed,
    sample_of,
    wrap,
    zeros,
)

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


@cache
def built(kind: str, level: int, memory: int, codec: str = "gzip", size: int = 200_000) -> Sample:
    truth = content(kind, size)
    return sample_of([(truth, deflate(truth, level, memory))], codec)


@cache
def from_sample(name: str, codec: str = "gzip") -> Sample:
    truth, raw, known = sample(name)
    stream, head = wrap(raw, truth, codec)
    return Sample(stream, truth, [Member(head, len(stream), 0, known)], codec)


def read(stream: bytes, known: Sample, **more):
    if known.codec == "deflate":
        more.setdefault("size", len(known.truth))
    return resumed(stream, known.codec, concatenated=known.codec == "gzip", **more)


def recall(known: Sample, cut: bytes, hits: list[tuple[int, int]]) -> tuple[int, int]:
    """Bytes that came out of those that can be derived, and those."""
    came = hold_against(known.truth, read(cut, known), known.blocks())
    wanted = known.derivable(hits)
    return both(wanted, came), sum(wanted)


def sound(known: Sample, cut: bytes) -> None:
    hold_against(known.truth, read(cut, known))


def body(known: Sample, part: float) -> int:
    first = known.members[0].at
    return first + int(part * (len(known.stream) - first - 9))


# -- without damage --------------------------------------------------------------------------------------------------


@rows("codec", ["gzip", "zlib", "deflate"])
@rows("name", ["text-6-8", "mixed-1-3", "noise-9-8", "stored", "fixed", "full"])
def test_what_is_whole_is_served_whole(name, codec):
    known = from_sample(name, codec)
    data = read(known.stream, known)
    data.verify()
    assert (data.error, data.gaps, data.suspect_ranges, data.problems) == (None, (), (), [])
    assert data.size == len(known.truth)
    assert data.read_known(0, 1 << 20) == (known.truth, [])


# -- one damage in gzip: a checksum covers everything ------------------------------------------------------------------


@rows("damage", DAMAGES)
@rows("name", sweep.sample(list(STREAMS), 3))
def test_no_known_byte_is_wrong(name, damage):
    known = from_sample(name)
    parts = sweep.values((0.05, 0.35, 0.62, 0.9), list(STREAMS).index(name) + list(DAMAGES).index(damage), 1)
    for part in parts:
        sound(known, DAMAGES[damage](known.stream, body(known, part))[0])


@pytest.mark.parametrize("name", ["text-6-3", "mixed-6-8", "flushed noise"])
def test_no_known_byte_is_wrong_wherever_a_byte_is_changed(name):
    known = from_sample(name)
    rng = random.Random(name)
    hits = [(rng.randrange(0, len(known.stream)), rng.randrange(1, 256)) for _ in range(60)]
    for at, mask in sweep.some(hits, 6):
        sound(known, flip(known.stream, at, mask)[0])


@rows("count, kind", sweep.sample(list(itertools.product([1, 3, 100, 5000], ["text", "mixed", "floats"])), 3))
def test_bytes_are_missing_or_were_put_in(kind, count):
    known = built(kind, 6, 3)
    at = body(known, 0.4)
    sound(known, missing(known.stream, at, count)[0])
    sound(known, known.stream[:at] + random.Random(1).randbytes(count) + known.stream[at:])


@rows("level", sweep.values((1, 6, 9), 0, 1))
@rows("kind", sweep.part(["text", "mixed", "floats", "noise"]))
def test_holes_of_64_kib(kind, level):
    known = built(kind, level, 8, "gzip", 500_000 if kind == "text" else 300_000)
    for part in sweep.values((0.0, 0.3), level, 1):
        cut, first, last = zeros(known.stream, body(known, part), 65536)
        came, wanted = recall(known, cut, [(first, last)])
        assert came >= 0.9 * wanted


def test_the_size_in_the_trailer_places_what_comes_last():
    known = built("mixed", 6, 3)
    header = known.block_headers()[12]
    for damage, count in ((noise, 512), (missing, 300)):
        cut, first, last = damage(known.stream, header, count)
        data = read(cut, known)
        came = hold_against(known.truth, data)
        assert data.size == len(known.truth)
        assert data.error is None
        assert all(gap.exact for gap in data.gaps)
        lost = [gap for gap in data.gaps if gap.length >= 100]
        assert lost
        assert sum(came) > 0.8 * len(known.truth)
        assert data.problems[0].at <= last
        assert data.problems[0].end >= first


def test_without_a_size_the_place_is_an_estimate_and_said_to_be_one():
    known = built("mixed", 6, 3, "zlib")
    cut, _, _ = noise(known.stream, known.block_headers()[12])
    data = read(cut, known)
    hold_against(known.truth, data)
    unsure = [gap for gap in data.gaps if not gap.exact]
    assert len(unsure) == 1
    assert unsure[0].length > 0
    # What is unknown behind it depends on lost bytes; how many those are is known.
    assert all(gap.exact for gap in data.gaps if gap != unsure[0])


def test_raw_deflate_of_known_size_is_placed_from_its_end():
    known = built("mixed", 6, 3, "deflate")
    cut, _, _ = noise(known.stream, known.block_headers()[12])
    data = read(cut, known)
    hold_against(known.truth, data)
    assert all(gap.exact for gap in data.gaps)
    assert data.size == len(known.truth)


def test_a_trailer_that_lies_places_nothing():
    known = built("mixed", 6, 3)
    cut, _, _ = noise(known.stream, known.block_headers()[12])
    for size in (0, 5, 1 << 31, 0xFFFFFFFF):
        lying = cut[:-4] + size.to_bytes(4, "little")
        data = read(lying, known)
        hold_against(known.truth, data)
        assert any(not gap.exact for gap in data.gaps)


def test_a_checksum_that_contradicts_puts_all_in_doubt_and_a_wrong_length_nothing():
    known = from_sample("mixed-6-8")
    for at in (-8, -5):
        cut, _, _ = flip(known.stream, len(known.stream) + at)
        data = read(cut, known)
        assert data.read_known(0, 1 << 20) == (known.truth, [])
        assert data.why_suspect(0, 1) is not None
        assert data.why_suspect(len(known.truth) - 1, len(known.truth)) is not None
        assert data.size == len(known.truth)
        assert isinstance(data.error, MalformedError)
        assert data.gaps == ()
    for level in (0, 6):
        member = gzip.compress(known.truth, level)
        wrong = flip(member, len(member) - 2)[0]
        for packed, wanted, proved in (
            (wrong, 1, 1),
            (wrong + bytes(100), 1, 1),
            (wrong + member, 2, 1),
            (member + wrong + member + wrong, 4, 2),
        ):
            data = resumed(packed, "gzip", concatenated=True)
            assert data.read_known(0, 1 << 22) == (known.truth * wanted, [])
            assert (data.size, data.suspect_ranges, data.error) == (wanted * len(known.truth), (), None)
            assert data.is_proved(0, proved * len(known.truth))
            assert data.problems
            with pparse.open(packed) as document:
                document.check()
                assert document.status is pparse.Status.DAMAGED
        for lost in range(4, 40, 5):  # with bytes that follow, nobody knows that they held nothing
            data = resumed(wrong[:-4] + member[lost:], "gzip", concatenated=True)
            data.verify()
            assert data.is_proved(0, len(known.truth)), lost
            assert data.size is None or data.gaps or data.read_known(0, 1 << 22) == (known.truth * 2, []), lost
        for size in range(1, 9):  # cut in the trailer
            data = resumed(wrong[:-size], "gzip", concatenated=True)
            data.verify()
            assert isinstance(data.error, EndOfDataError), size
            assert not data.is_proved(0, 1), size


def test_runs_in_what_an_encoder_only_stored_are_no_damage():
    """Level 0 stores zeros as they are; a byte that is wrong elsewhere must not hide them."""
    truth = b"name" + bytes(96) + bytes(range(256)) * 100
    packed = bytearray(gzip.compress(truth, 0, mtime=0))
    packed[12_000] ^= 0x55
    data = resumed(bytes(packed), "gzip", concatenated=True)
    assert data.gaps == ()
    assert data.read_known(0, 5_000) == (truth[:5_000], [])
    assert data.why_suspect(0, 1) is not None


def test_a_download_for_which_room_was_made_is_cut_wherever_it_stopped():
    """A few last bytes and zeros are always some size: they are not taken for that of a stream that ended before."""
    rng = random.Random(2)
    packed = gzip.compress("".join(f"{number} {rng.getrandbits(32):08x}\n" for number in range(4_000)).encode(), 6)
    for cut in range(len(packed) // 2, len(packed) - 8, len(packed) // 50):
        data = resumed(packed[:cut] + bytes(len(packed) - cut), "gzip", concatenated=True)
        data.verify()
        assert isinstance(data.error, EndOfDataError), cut


def test_doubt_ends_where_damage_cannot_reach():
    """Blocks before the damage were decoded well, and blocks behind it are right: neither is in doubt."""
    known = built("noise", 6, 3)
    headers = known.block_headers()
    cut, _, _ = noise(known.stream, headers[30], 300)
    data = read(cut, known)
    hold_against(known.truth, data)
    before, after = known.blocks()[20][0], known.blocks()[40][0]
    assert data.why_suspect(0, before) is None
    assert data.why_suspect(after, len(known.truth)) is None


# -- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3))
def test_damaged_magic_bytes(at):
    known = from_sample("text-6-8")
    data = read(flip(known.stream, at, 0xFF)[0], known)
    assert data.read_known(0, 1 << 20) == (known.truth, [])
    assert data.size == len(known.truth)


def test_a_header_that_is_lost():
    known = built("mixed", 6, 3)
    for count in (10, 100):
        cut, first, last = noise(known.stream, 0, count)
        came, wanted = recall(known, cut, [(first, last)])
        assert came >= 0.95 * wanted > 0
    cut, first, last = missing(known.stream, 0, 4000)
    came, wanted = recall(known, cut, [(first, last)])
    assert came >= 0.95 * wanted > 0


# -- members ---------------------------------------------------------------------------------------------------------


CONTENTS = [content("text", 50_000), content("noise", 30_000), content("floats", 40_000)]
MEMBERS = [gzip.compress(part) for part in CONTENTS]
WHOLE = b"".join(CONTENTS)


def joined(*members: bytes):
    data = resumed(b"".join(members))
    data.verify()
    return data


@pytest.mark.parametrize("number", range(3))
def test_members_with_a_damaged_header(number):
    for at in range(4):
        members = list(MEMBERS)
        members[number] = flip(members[number], at)[0]
        data = joined(*members)
        assert data.read_known(0, 1 << 20) == (WHOLE, [])
        assert data.gaps == ()
        assert data.size == len(WHOLE)
        assert data.problems
    # Nothing is left of a member but its end, which has the size that such a member would have: it is lost, and
    # the stream not whole without it. Other bytes behind the members are no part of the stream.
    before, last = MEMBERS[:2], gzip.compress(content("text", 20_000))
    assert joined(*before, bytes(40) + last[40:-4] + bytes(4)).is_suspect is False
    assert joined(*before, noise(last, 0, len(last) - 4)[0]).is_suspect is True
    assert joined(*before, noise(last, 0, len(last) - 4)[0]).gaps[0].offset == 80_000


@pytest.mark.parametrize("number", range(3))
def test_members_with_a_damaged_checksum(number):
    members = list(MEMBERS)
    members[number] = flip(members[number], len(members[number]) - 6)[0]
    data = joined(*members)
    assert data.read_known(0, 1 << 20) == (WHOLE, [])
    start = sum(map(len, CONTENTS[:number]))
    end = start + len(CONTENTS[number])
    for first, last in ((start, start + 1), (end - 1, end)):
        assert data.why_suspect(first, last) is not None
    assert start == 0 or data.why_suspect(0, start) is None
    assert end == len(WHOLE) or data.why_suspect(end, len(WHOLE)) is None


@pytest.mark.parametrize("number", range(3))
def test_members_with_a_damaged_body(number):
    members = list(MEMBERS)
    members[number] = noise(members[number], 12, 400)[0]
    data = joined(*members)
    came = hold_against(WHOLE, data)
    start = sum(map(len, CONTENTS[:number]))
    end = start + len(CONTENTS[number])
    assert all(came[:start])
    assert all(came[end:])
    if all(gap.exact for gap in data.gaps):  # placed by the size in the trailer
        assert data.size == len(WHOLE)
        assert data.read_known(end, 1 << 20) == (WHOLE[end:], [])
    else:
        assert number == 0  # all of its blocks are damaged


@rows("between", [0, 10, 2000])
@rows("size", [100, 3000, 60_000])
def test_damage_across_the_border_of_members_moves_nothing(size, between):
    """The last piece of a member has its size, and may not be what is left of the one before."""
    parts = [content("text", size), content("mixed", between), content("text", 250_000)]
    members = [gzip.compress(part) for part in parts if part]
    truth, whole = b"".join(parts), b"".join(members)
    last = len(whole) - len(members[-1])
    places = [(len(members[0]) - 6, last - len(members[0]) + 30), *((last - before, 20) for before in range(4, 20, 3))]
    for damage, (at, length) in itertools.product((zeros, noise, missing), places):
        data = joined(damage(whole, at, length)[0])
        hold_against(truth, data)
        assert data.size >= 150_000  # in doubt or not, it is there


@rows("before, length", [(20, 20), (5, 2), (5, 5), (8, 8), (30, 26)])
def test_what_follows_a_member_of_a_length_that_is_not_sure_is_in_doubt(before, length):
    parts = [content("text", 70_000), content("text", 18), content("mixed", 60_000), content("text", 9_000)]
    members = [gzip.compress(part) for part in parts]
    truth, whole = b"".join(parts), b"".join(members)
    for number in range(3):
        border = len(b"".join(members[: number + 1]))
        for damage in (zeros, noise):
            hold_against(truth, joined(damage(whole, border - before, length)[0]))


@pytest.mark.parametrize("number", [0, 1])
def test_members_that_are_cut_before_others(number):
    members = list(MEMBERS)
    members[number] = members[number][:10_000]
    data = joined(*members)
    came = hold_against(WHOLE, data)
    start = sum(map(len, CONTENTS[:number]))
    end = start + len(CONTENTS[number])
    assert all(came[:start])
    assert all(came[end:])
    assert sum(came[start : start + 4000]) > 3000
    assert any(start <= gap.offset for gap in data.gaps)


def test_small_members_behind_a_damaged_one():
    parts = [b"line %d of a log that is quite short\n" % number for number in range(600)]
    members = [gzip.compress(part) for part in parts]
    truth = b"".join(parts)
    members[300] = flip(members[300], 11)[0]
    data = joined(*members)
    came = hold_against(truth, data)
    assert sum(came) >= len(truth) - 100


def test_an_empty_member_and_zeros_in_between():
    data = joined(
        gzip.compress(b""), bytes(700), MEMBERS[0], bytes(513), noise(MEMBERS[1], 11, 40)[0], bytes(99), MEMBERS[2]
    )
    came = hold_against(WHOLE, data)
    assert all(came[:50_000])
    assert all(came[80_000:])


def test_a_hole_in_a_bgzf_file_costs_the_block_it_hit():
    from struct import pack

    truth = content("mixed", 400_000)
    blocks = []
    for start in range(0, len(truth), 60_000):
        part = truth[start : start + 60_000]
        raw = deflate(part)
        extra = b"BC\2\0" + pack("<H", len(raw) + 25)
        trailer = pack("<II", zlib.crc32(part), len(part))
        blocks.append(b"\x1f\x8b\x08\4\0\0\0\0\0\xff" + pack("<H", 6) + extra + raw + trailer)
    end = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
    whole = b"".join([*blocks, end])
    assert gzip.decompress(whole) == truth
    cut, _, _ = noise(whole, len(blocks[0]) + 3000, 512)
    data = joined(cut)
    came = hold_against(truth, data)
    assert all(came[:60_000])
    assert all(came[120_000:])
    assert data.read_known(120_000, 1 << 20) == (truth[120_000:], [])
    assert data.error is None


# -- what may be wrong without showing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "text-6-3",
        *("text-1-8", "mixed-6-8", "flushed noise", "stored"),
    ],
)
def test_a_checksum_of_zlib_that_contradicts_puts_all_in_doubt(name):
    known = from_sample(name, "zlib")
    rng = random.Random(name)
    end = len(known.stream)
    hits = [(rng.randrange(2, end), 1 << rng.randrange(8), rng.randrange(2, end * 3 // 4)) for _ in range(20)]
    for changed, mask, lost in sweep.some(hits, 5):
        sound(known, flip(known.stream, changed, mask)[0])
        sound(known, missing(known.stream, lost, 60)[0])


@pytest.mark.parametrize("name", ["text-1-8", "floats-1-8"])
def test_a_size_that_contradicts_puts_all_in_doubt(name):
    known = from_sample(name, "deflate")
    rng = random.Random(name)
    found = 0
    for at in sorted(rng.sample(range(len(known.stream) - 3000), 30)):
        cut, _, _ = noise(known.stream, at, 300)
        data = read(cut, known)
        data.verify()
        if data.error is not None and "more bytes than" in data.error.reason:
            found += 1
            hold_against(known.truth, data)
    assert found


@rows("codec", ["gzip", "zlib"])
@rows("part", [0.05, 0.2, 0.5, 0.8, 0.99])
def test_the_rest_was_never_written(part, codec):
    """A download into a file that was given its size before."""
    known = from_sample("text-6-8", codec)
    cut, _, _ = zeros(known.stream, body(known, part), 1 << 20)
    sound(known, cut)
    cut += bytes(300_000)
    sound(known, cut)


def test_ten_megabytes_of_zeros_behind_half_a_stream_are_not_text():
    known = built("text", 9, 8)
    half = known.stream[: body(known, 0.5)]
    data = read(half + bytes(10 * MIB), known)
    data.verify()
    assert sum(map(len, (stretch.content for stretch in read_all(data)))) < 100 * MIB


def test_the_end_of_the_last_block_is_missed():
    truth = content("text", 3000)
    known = sample_of([(truth, deflate(truth))])
    for at in sweep.some(range(10, len(known.stream) - 8), 16, ends=8):
        sound(known, flip(known.stream, at)[0])


def test_a_damaged_header_and_a_damaged_body():
    known = from_sample("text-6-8")
    cut, _, _ = flip(known.stream, 9000, 0x10)
    sound(known, flip(cut, 0, 0xFF)[0])


@pytest.mark.parametrize(
    ("kind", "level", "damage", "at", "count"),
    [("noise", 1, missing, 184_399, 64), ("floats", 9, noise, 152_290, 512)],
)
def test_false_candidates_near_the_end(kind, level, damage, at, count):
    known = built(kind, level, 8)
    cut, first, last = damage(known.stream, at, count)
    came, wanted = recall(known, cut, [(first, last)])
    assert came >= 0.95 * wanted


def test_nested_streams_do_not_lead_astray():
    """Compressed files that are stored in the compressed file: their blocks are not those of the outer stream."""
    rng = random.Random(7)
    parts = []
    for number in range(30):
        part = content("text", 90_000)[number * 1500 :][: 20_000 + 1000 * number]
        parts += [b"PK\3\4" + rng.randbytes(30), deflate(part, 9, 4), content("text", 3000)]
    truth = b"".join(parts)
    for level in (1, 6):
        known = sample_of([(truth, deflate(truth, level))])
        for part in sweep.values((0.1, 0.4, 0.7), level, 1):
            cut, first, last = noise(known.stream, body(known, part), 700)
            came, wanted = recall(known, cut, [(first, last)])
            assert came >= 0.95 * wanted


# -- how much comes out ----------------------------------------------------------------------------------------------


CORPUS = [
    (kind, level, memory, codec)
    for kind in ("text", "mixed", "floats", "noise")
    for level, memory in ((1, 8), (6, 3), (6, 8), (9, 8))
    for codec in ("gzip", "zlib", "deflate")
]


def corpus_recall(count: int, seed: int) -> float:
    came = wanted = 0
    # Five steps over three codecs and four levels: each of them is met.
    for kind, level, memory, codec in CORPUS if sweep.full else CORPUS[::5]:
        rng = random.Random(f"{kind} {level} {memory} {codec} {seed}")
        known = built(kind, level, memory, codec)
        headers = [at for at in known.block_headers() if at < len(known.stream) - 3000]
        cut, hits = known.stream, []
        for at in sorted(rng.sample(headers, min(count, len(headers))), reverse=True):
            name = rng.choice(["zeros", "noise", "missing"])
            cut, first, last = DAMAGES[name](cut, at, rng.choice([64, 512]))
            hits.append((first, last))
        one, all_of_it = recall(known, cut, hits)
        came, wanted = came + one, wanted + all_of_it
    return came / wanted


def test_almost_all_comes_out_behind_one_damage():
    assert corpus_recall(1, 1) >= 0.95


@pytest.mark.parametrize("count", sweep.part([2, 3]))
def test_almost_all_comes_out_behind_several_damages(count):
    assert corpus_recall(count, count) >= 0.95


def test_short_known_stretches_are_kept_apart():
    known = built("text", 1, 3)
    cut, first, last = missing(known.stream, known.block_headers()[3], 100)
    came, wanted = recall(known, cut, [(first, last)])
    assert came >= 0.95 * wanted


# -- sources that have gaps themselves -------------------------------------------------------------------------------


def test_a_source_with_gaps():
    known = built("mixed", 6, 3)
    for at, length in ((5000, 300), (60_000, 1), (60_000, 30_000)):
        source = GappyData(known.stream, [(at, length)])
        data = resumed(known.stream, source=source)
        came = hold_against(known.truth, data, known.blocks())
        wanted = known.derivable([(at, at + length)])
        got = both(wanted, came)
        assert got >= 0.95 * sum(wanted)
        # Where bytes are missing is known: nothing before that is in doubt, only what was put together behind it.
        assert all(suspect.start >= data.gaps[0].offset for suspect in data.suspect_ranges)
        assert data.size == len(known.truth)


def test_a_source_that_is_a_gap_from_somewhere_on():
    known = built("mixed", 6, 3)
    source = GappyData(known.stream, [(60_000, None)])
    data = resumed(known.stream, source=source)
    hold_against(known.truth, data)
    assert data.gaps[-1].length is None
    whole = sum(1 for first, last in known.blocks() if last <= data.gaps[-1].offset)
    assert known.block_headers()[whole] >= 50_000


def test_a_header_in_a_gap():
    known = built("mixed", 6, 3)
    source = GappyData(known.stream, [(0, 100)])
    data = resumed(known.stream, source=source)
    came = hold_against(known.truth, data, known.blocks())
    wanted = known.derivable([(0, 100)])
    assert both(wanted, came) >= 0.95 * sum(wanted)


# -- work and memory -------------------------------------------------------------------------------------------------


def plausible() -> bytes:
    """A dynamic header with a few codes behind it."""
    return deflate(content("text", 3000))[:80]


@cache
def hostile() -> dict[str, bytes]:
    rng = random.Random(5)
    size = 400_000
    head = plausible()
    text = content("text", size)
    return {
        "flush marks": HEADER + b"\x07" + b"\0\0\0\xff\xff" * (size // 5),
        "marks": HEADER + b"\0\0\xff\xff" * (size // 4),
        "headers": HEADER + b"\x07" + head * (size // 80),
        "headers and noise": HEADER + b"\x07" + b"".join(head + rng.randbytes(120) for _ in range(size // 200)),
        "zeros": HEADER + bytes(10 * MIB),
        "zeros behind damage": HEADER + b"\x07" + bytes(10 * MIB),
        "ones": HEADER + b"\x07" + b"\xff" * size,
        "noise": HEADER + b"\x07" + rng.randbytes(size),
        "members": HEADER + b"\x07" + gzip.compress(b"hello world, " * 3) * (size // 40),
        "bad members": (HEADER + b"\x07\x07\x07\x07") * (size // 14),
        "gzip headers": HEADER * (size // 10),
        "streams that are cut": HEADER
        + b"\x07"
        + b"".join(deflate(text[start : start + 3000])[:-5] for start in range(0, size, 3000)),
        "nested": HEADER + b"\x07" + deflate(b"".join(gzip.compress(text[:60_000]) for _ in range(20)), 0),
        "stored chain": HEADER + b"\x07" + b"".join(b"\0\xff\0\0\xff" + rng.randbytes(255) for _ in range(1500)),
    }


HOSTILE = list(hostile())


class Work:
    def __init__(self) -> None:
        self.fed = self.out = self.searched = 0


@pytest.fixture
def work(monkeypatch) -> Work:
    """Counts what entered decoders take and give, and what is searched for blocks."""
    done = Work()
    feed, find = DeflateEntry.feed, deflate_blocks.find_blocks

    def counted(self, data: bytes, limit: int) -> bytes:
        out = feed(self, data, limit)
        done.fed += len(data)
        done.out += len(out)
        return out

    def searched(buffer: bytes, first: int, last: int):
        done.searched += (last - first) // 8
        return find(buffer, first, last)

    monkeypatch.setattr(deflate_entry.DeflateEntry, "feed", counted)
    monkeypatch.setattr(deflate_source, "find_blocks", searched)
    return done


@pytest.mark.parametrize("name", sweep.part(HOSTILE))
def test_hostile_streams_cost_linear_work(name, work):
    stream = hostile()[name]
    source = BytesData(stream)
    resumed(stream, source=source).verify()
    assert source.stats.bytes <= 400 * len(stream) + MIB
    assert work.fed <= 8 * len(stream) + 80 * MIB
    assert work.fed <= 200 * len(stream) + MIB
    assert work.out <= 50 * len(stream) + 64 * MIB
    assert work.searched <= 8 * len(stream) + MIB


def test_what_was_decoded_once_is_gone_on_from(work):
    """Where the decoder was in step before damage, and what is read behind it, begins at saved states."""
    stream = bytearray(gzip.compress(content("text", 4 * MIB), 6))
    middle = len(stream) // 2
    stream[middle : middle + 60_000] = random.Random(1).randbytes(60_000)
    data = resumed(bytes(stream))
    data.verify()
    assert 1 * MIB < work.out < 3 * MIB  # what was tried behind the damage; not what precedes it, once more
    tried = work.out
    assert len(data.read_known(data.size - 9, 9)[0]) == 9
    assert work.out - tried < 1.5 * MIB


def test_thousands_of_members_whose_checksum_contradicts():
    part = b"hello world, hello\n"
    member = gzip.compress(part)
    count = sweep.scaled(3000)
    data = resumed((member[:-8] + b"01234567") * count)
    data.verify()
    assert data.read_known(0, 1 << 20)[0] == part * count
    assert data.why_suspect(0, 1) is not None


def test_the_limit_of_what_comes_out_holds_behind_damage():
    truth = bytes(3_000_000) + content("mixed", 100_000) + bytes(20_000_000)
    stream = gzip.compress(truth)
    cut, _, _ = noise(stream, len(gzip.compress(bytes(3_000_000))) + 2000, 600)
    with pytest.raises(LimitError, match="inflated_bytes"):
        resumed(cut, limits=Limits(inflated_bytes=10 * MIB)).verify()


def test_the_poll_can_stop_the_search():
    class Stop(Exception):
        pass

    def poll() -> None:
        raise Stop

    known = built("mixed", 6, 3)
    cut, _, _ = noise(known.stream, known.block_headers()[5])
    with pytest.raises(Stop):
        read(cut, known, poll=poll).verify()


@pytest.mark.parametrize("budget", [1 * MIB, 4 * MIB])
def test_little_memory_is_enough(budget):
    known = built("mixed", 6, 8, "gzip", 500_000)
    cut, _, _ = noise(known.stream, known.block_headers()[4])
    wanted = read(cut, known)
    wanted.verify()
    data = read(cut, known, budget=budget)
    assert data.read_known(0, 1 << 22) == wanted.read_known(0, 1 << 22)
    assert data.gaps == wanted.gaps


# -- the function itself ---------------------------------------------------------------------------------------------


def pieces_of(stream: bytes, codec: str = "gzip"):
    source = BytesData(stream).range(0, len(stream))
    head = InflatedData(source, codec, budget=MemoryBudget(64 * MIB), concatenated=codec == "gzip")
    head.verify()
    assert head.error is not None
    failure = Failure(head.error.offset, head.produced, head.member_start, head.error, head.member_out)
    return failure, found_behind(source, failure, codec, MemoryBudget(64 * MIB))


@pytest.mark.parametrize("codec", ["gzip", "zlib", "deflate"])
def test_pieces_ascend_and_do_not_overlap(codec):
    known = built("noise", 6, 3, codec)
    headers = known.block_headers()
    cut = known.stream
    for at in (headers[10], headers[45]):
        cut, _, _ = noise(cut, at, 300)
    failure, pieces = pieces_of(cut, codec)
    assert pieces
    assert failure.suspect_from is not None
    assert failure.start <= failure.at
    for piece in pieces:
        assert piece.at < piece.end <= len(cut)
        assert piece.data.size is not None
        assert piece.data.size > 0
    for one, other in pairwise(pieces):
        assert one.end <= other.at
        assert one.error is not None


def test_the_last_piece_says_how_the_stream_ends():
    known = built("mixed", 6, 3)
    cut, _, _ = noise(known.stream, known.block_headers()[8])
    _, pieces = pieces_of(cut)
    assert pieces[-1].error is None
    _, pieces = pieces_of(cut[:-5000])
    assert isinstance(pieces[-1].error, EndOfDataError)


@pytest.mark.parametrize("count", [400, 1600])
def test_each_of_many_small_members_that_are_damaged_costs_little(monkeypatch, count):
    searched, real = 0, deflate_blocks._full_precodes

    def counted(chunk, length):
        nonlocal searched
        searched += length
        return real(chunk, length)

    monkeypatch.setattr(deflate_blocks, "_full_precodes", counted)
    member = gzip.compress(b"hello" * 10, mtime=0)
    stream = bytearray(member * count)
    for at in range(0, len(stream), 7 * len(member)):
        stream[at + 12 : at + 14] = b"\xff\xff"
    source = BytesData(bytes(stream))
    data = ResumedData(source.range(0, len(stream)), "gzip", budget=MemoryBudget(64 * MIB), concatenated=True)
    data.verify()
    known, unknown = data.read_known(0, len(stream) * 10)
    whole = count - len(range(0, count, 7))
    assert len(known) - sum(length for _, length in unknown) >= 50 * whole
    assert searched < 8 * len(stream)
    assert source.stats.bytes < 80 * len(stream)


def test_joined_gaps_read_as_zeros() -> None:
    """Few gaps may be kept, so bytes between two are lost with them: no way of reading gives those."""
    tail = TailBytes(0, b"abcdefgh", array("q", [1, 4]), None)
    data = EnteredData(None, "x", 0, array("q"), tail)
    assert data.read_known(0, 8) == (b"a\0\0\0efgh", [(1, 3)])
    assert data.read_known(2, 3) == (b"\0\0e", [(2, 2)])
