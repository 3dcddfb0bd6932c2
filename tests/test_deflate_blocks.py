"""The search for blocks of deflate: every one that zlib wrote, and nothing else."""

from __future__ import annotations

import random
import zlib
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.kernels import deflate_blocks
from pparse.kernels.deflate_blocks import BlockStart, find_blocks, find_dynamic, find_stored, prefix_for
from tests import deflate_oracle, sweep
from tests.deflate_samples import STREAMS, BitString, content, deflate, sample
from tests.rows import rows


def every(find, data):
    return list(find(data, 0, 8 * len(data)))


def enter(data: bytes, bit: int) -> bytes:
    """What zlib makes of ``data`` from ``bit`` on, with anything before it; raises zlib.error."""
    before, low = prefix_for(bit & 7)
    first = data[bit >> 3] >> (bit & 7) << (bit & 7) | low
    return zlib.decompressobj(-15, zdict=bytes(32768)).decompress(before + bytes([first]) + data[(bit >> 3) + 1 :])


@rows("name", sweep.sample(list(STREAMS), 8))
def test_every_dynamic_block_is_found_and_nothing_else(name):
    _, stream, known = sample(name)
    assert every(find_dynamic, stream) == [block.bit for block in known.blocks if block.kind == 2]


@rows("name", sweep.part(STREAMS))
def test_every_stored_block_is_found_and_nothing_else(name):
    _, stream, known = sample(name)
    true = [block for block in known.blocks if block.kind == 0 and not (block.final and block.size == 0)]
    found = every(find_stored, stream)
    assert [(block.kind, block.final) for block in found] == [
        ("stored" if block.size else "flush", block.final) for block in true
    ]
    # A final one is given where it is; of others, zeros may stand before the three bits.
    assert [block.bit for block in found] == [block.bit if block.final else 8 * block.length_at - 3 for block in true]


def test_the_samples_have_all_that_is_searched():
    blocks = [block for name in STREAMS for block in sample(name)[2].blocks]
    assert {(block.kind, block.final) for block in blocks} == {(kind, final) for kind in range(3) for final in (0, 1)}
    assert {block.bit & 7 for block in blocks if block.kind == 2} == set(range(8))
    assert any(block.kind == 0 and block.size == 0 for block in blocks)
    assert any(block.kind == 0 and block.bit < 8 * block.length_at - 8 for block in blocks)


@pytest.mark.parametrize("name", ["mixed-6-3", "full"])
def test_both_kinds_ascend(name):
    _, stream, _ = sample(name)
    found = every(find_blocks, stream)
    assert [block.bit for block in found] == sorted(block.bit for block in found)
    dynamic = [block for block in found if block.kind == "dynamic"]
    assert [block.bit for block in dynamic] == every(find_dynamic, stream)
    assert [block for block in found if block.kind != "dynamic"] == every(find_stored, stream)
    assert len(dynamic) not in (0, len(found))


def test_final_blocks_say_so():
    stream = sample("text-6-8")[1]
    assert [block.final for block in every(find_blocks, stream)][-2:] == [False, True]


@pytest.mark.parametrize("name", ["mixed-6-3", "flushed noise"])
def test_ranges_share_out_what_there_is(name):
    _, stream, _ = sample(name)
    found = every(find_blocks, stream)
    for block in found:
        assert list(find_blocks(stream, block.bit, block.bit + 1)) == [block]
        assert block not in find_blocks(stream, block.bit + 1, block.bit + 20)
        assert block not in find_blocks(stream, block.bit - 20, block.bit)
    assert [b for at in range(0, 8 * len(stream), 9973) for b in find_blocks(stream, at, at + 9973)] == found
    assert list(find_blocks(stream, -100, 8 * len(stream) + 100)) == found


@pytest.mark.parametrize("size", [1, 1000])
def test_slices_do_not_show(monkeypatch, size):
    _, stream, _ = sample("mixed-6-3")
    stream = stream[:20_000] if size > 1 else stream[:3000]
    found = every(find_blocks, stream)
    monkeypatch.setattr(deflate_blocks, "_SLICE", size)
    monkeypatch.setattr(deflate_blocks, "_STORED_SLICE", size)
    assert every(find_blocks, stream) == found


def test_blocks_behind_junk_and_before_damage():
    rng = random.Random(5)
    _, stream, known = sample("text-6-3")
    middle = known.blocks[len(known.blocks) // 2]
    start = middle.bit // 8
    data = rng.randbytes(5000) + stream[start : start + 8000] + rng.randbytes(5000)
    true = [
        block.bit + 8 * (5000 - start)
        for block in known.blocks
        if middle.bit <= block.bit < 8 * (start + 8000 - deflate_blocks.HEAD)
    ]
    assert len(true) > 1
    found = every(find_dynamic, data)
    assert found[: len(true)] == true
    assert all(bit < 8 * 13_000 for bit in found)


def test_nothing_in_noise():
    noise = random.Random(1).randbytes(4 << 20)
    assert [block for block in every(find_blocks, noise) if block.sure] == []


def test_a_search_goes_no_further_than_it_is_asked(monkeypatch):
    asked = []
    real = deflate_blocks._full_precodes
    monkeypatch.setattr(deflate_blocks, "_full_precodes", lambda *args: asked.append(args) or real(*args))
    stream = deflate(content("text", 1_000_000), memory=4)
    assert len(list(islice(find_blocks(stream, 0, 8 * len(stream)), 2))) == 2
    assert len(asked) == 1


def head(lengths: list[int], literals: int, precode: dict[int, str], count: int = 19) -> BitString:
    """A final dynamic block's head; ``lengths`` are written one by one with ``precode``."""
    bits = BitString()
    for value, width in [(1, 1), (2, 2), (literals - 257, 5), (len(lengths) - literals - 1, 5), (count - 4, 4)]:
        bits.number(value, width)
    for symbol in deflate_oracle.ORDER[:count]:
        bits.number(len(precode.get(symbol, "")), 3)
    for length in lengths:
        bits.code(precode[length])
    return bits


EIGHT = {0: "000", 1: "001", 2: "010", 3: "011", 4: "100", 8: "101", 9: "110", 15: "111"}
# Lengths of literals and distances, how many literals, and whether zlib makes anything of them.
HEADS = [
    ([8] * 254 + [9, 9, 8, 0, 0] + [1, 1], 259, True),
    ([8] * 254 + [9, 9, 8] + [1], 257, True),  # a single distance
    ([8] * 254 + [9, 9, 8] + [0], 257, True),  # none
    ([8] * 254 + [9, 9, 8] + [2], 257, False),  # a single one that is too long
    ([8] * 254 + [9, 9, 8] + [1, 2], 257, False),  # incomplete
    ([8] * 254 + [9, 9, 8] + [1, 1, 1], 257, False),  # too many
    ([8] * 257 + [1, 1], 257, False),
    ([8] * 255 + [9, 8] + [1, 1], 257, False),
    ([8] * 256 + [0] + [1, 1], 257, False),  # no end of the block
    ([0] * 256 + [1] + [0], 257, True),  # nothing but the end
    ([0] * 256 + [2] + [0], 257, False),
    ([8] * 254 + [9, 9, 8] + [0] * 29 + [1, 1, 0], 286, True),
    ([8] * 254 + [9, 9, 8] + [0] * 30 + [1, 1, 0], 287, False),  # symbols there are not
    ([8] * 254 + [9, 9, 8] + [1, 2, 3, 4] + [15] * 3 + [0] * 24, 257, False),
]


@rows(("lengths", "literals", "good"), HEADS)
@rows("phase", range(8))
def test_heads_that_zlib_takes(lengths, literals, good, phase):
    bits = BitString()
    bits.number(0, phase)
    bits.bits += head(lengths, literals, EIGHT).bits
    end = "0" if max(lengths[:257]) == 1 else deflate_code(lengths[:literals], 256)
    bits.code(end)
    data = bits.data() + b"\xff\xff"
    assert list(find_dynamic(data, phase, phase + 1)) == ([phase] if good else [])
    if good:
        assert enter(data, phase) == b""
    else:
        with pytest.raises(zlib.error):
            enter(data + bytes(300), phase)


def deflate_code(lengths: list[int], symbol: int) -> str:
    codes = {value: key for key, value in deflate_oracle.make_code(lengths).items()}
    length, value = codes.get(symbol, (0, 0))
    return f"{value:0{length}b}" if length else ""


@pytest.mark.parametrize(
    ("count", "precode"),
    [
        (19, EIGHT),
        (19, {0: "00", 1: "01", 15: "10", 8: "110", 9: "111"}),
        (18, {0: "00", 1: "01", 8: "10", 9: "11"}),
        (19, {0: "0", 8: "10", 1: "110", 9: "1110", 16: "11110", 17: "111110", 18: "1111110", 15: "1111111"}),
    ],
)
def test_all_lengths_of_the_precode_count(count, precode):
    bits = head([8] * 254 + [9, 9, 8] + [1, 1], 257, precode, count)
    bits.code(deflate_code([8] * 254 + [9, 9, 8], 256))
    assert list(find_dynamic(bits.data() + bytes(4), 0, 1)) == [0]


def test_a_head_as_long_as_can_be_is_found_if_all_of_it_is_there():
    precode = {0: "0", 1: "10", 9: "110", 2: "1110", 3: "11110", 4: "111110", 7: "1111110", 8: "1111111"}
    lengths = [8] * 254 + [9, 9, 8] + [0] * 29
    bits = BitString()
    bits.number(0, 7)
    bits.bits += head(lengths + [1, 1], 286, precode).bits
    bits.code(deflate_code(lengths, 256))
    data = b"\0" + bits.data() + bytes(1000)
    assert list(find_dynamic(data, 0, 40)) == [15]
    assert list(find_dynamic(data[: 1 + len(bits.bits) // 8], 0, 40)) == []
    assert deflate_blocks.HEAD > (17 + 57 + 7 * 318) // 8


def test_a_head_that_is_cut_is_not_found():
    _, stream, known = sample("text-6-3")
    block = known.blocks[1]
    sizes = [
        size for size in range(1, 200) if list(find_dynamic(stream[: block.bit // 8 + size], block.bit, block.bit + 1))
    ]
    assert sizes[0] > 30
    assert sizes == list(range(sizes[0], 200))
    assert enter(stream[: block.bit // 8 + sizes[0]], block.bit) != b""


def stored(data: bytes, final: int, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    return bytes([final]) + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data


NOISE = random.Random(3).randbytes(50)


@rows(
    ("after", "final", "good"),
    [
        (b"", 1, True),
        (bytes(8), 1, True),
        (bytes(4), 1, True),
        (bytes(5), 1, False),
        (bytes(30), 1, False),
        (b"PK\1\2" + bytes(30), 1, True),
        (bytes(8) + b"\x1f\x8b\x08" + bytes(30), 1, True),
        (stored(b"abc", 1), 0, True),
        (b"\0\1\2\3\4", 0, False),
        (b"\4" + bytes(700), 0, False),
        (b"\6" + bytes(700), 0, False),
        (b"\3\0" + bytes(8), 0, True),
        (b"\3\0" + bytes(30), 0, True),
        (b"\x08" + stored(b"abcdef", 0)[1:], 0, False),
        (deflate(content("text", 20_000)), 0, True),
        (deflate(content("text", 20_000))[:9], 0, True),
        (deflate(b"The quick brown fox jumps over the lazy dog.") + bytes(8), 0, True),
        (b"\x02\xff" + b"\xff" * 300, 0, False),
    ],
)
def test_witnesses_of_stored_blocks(after, final, good):
    data = b"\x55" + stored(NOISE, final) + after
    expected = [BlockStart(8 if final else 13, "stored", bool(final))] if good else []
    assert list(find_stored(data, 0, 40)) == expected


def test_stored_blocks_at_the_end_of_the_buffer():
    """What is cut has no witness; what ends there may be final, if a bit before may be the one that says so."""
    for size in (49, 50, 65535):
        assert list(find_stored(b"\x55" + stored(NOISE[:49], 0, size), 0, 40)) == [
            BlockStart(13 if size > 49 else 6, "stored", size == 49, sure=size == 49)
        ]
    assert list(find_stored(b"\0" + stored(NOISE, 0), 0, 40)) == [BlockStart(13, "stored", False, sure=False)]


@pytest.mark.parametrize("gap", range(8))
def test_final_stored_blocks_stand_where_they_stand(gap):
    """The header bits of a final block, with 0 to 7 bits of padding, at the end of some other bits."""
    bits = BitString()
    bits.number(0b01, 16 - 3 - gap)
    bits.number(1, 3)
    bits.number(0, gap)
    data = bits.data() + stored(NOISE, 1)[1:] + bytes(8)
    assert list(find_stored(data, 0, 40)) == [BlockStart(16 - 3 - gap, "stored", True)]
    assert enter(data, 16 - 3 - gap) == NOISE


def test_flushes_and_what_they_need():
    assert list(find_stored(b"\x1f\0\0\xff\xff", 0, 40)) == [BlockStart(5, "flush", False)]
    assert list(find_stored(b"\x1f\0\0\xff\xff" + b"\3\0", 0, 40)) == [BlockStart(5, "flush", False)]
    assert list(find_stored(b"\x1f\0\0\xff\xff" + b"\7\0", 0, 40)) == []
    assert list(find_stored(b"\x80\0\0\xff\xff", 0, 40)) == []
    assert list(find_stored(b"\0\0\xff\xff", 0, 40)) == []  # its header bits are not there
    assert list(find_stored(b"\0\0\0\xff\xff", 0, 40)) == [BlockStart(5, "flush", False)]


@given(st.binary(max_size=300), st.integers(-50, 2500), st.integers(-50, 2500))
@settings(max_examples=sweep.examples(300))
def test_any_bytes_will_do(data, first, last):
    found = list(find_blocks(data, first, last))
    bits = [block.bit for block in found]
    assert bits == sorted(bits)
    assert all(max(first, 0) <= bit < min(last, 8 * len(data)) for bit in bits)
    for block in found:
        if block.kind == "dynamic":
            assert data[block.bit >> 3 :][:2] != b""


@given(st.integers(0, 7), st.lists(st.sampled_from([0, 0, 1, 8, 9, 15, 4]), min_size=258, max_size=316), st.data())
@settings(max_examples=sweep.examples(200))
def test_as_zlib_decides(phase, lengths, data):
    """Any head: found if and only if zlib decodes something."""
    literals = data.draw(st.integers(257, min(len(lengths) - 1, 288)))
    if data.draw(st.booleans()):
        lengths = [8] * 254 + [9, 9, 8] + [0] * (literals - 257) + lengths[:30]
    lengths = lengths[: literals + 32]
    bits = BitString()
    bits.number(0, phase)
    bits.bits += head(lengths, literals, EIGHT).bits
    stream = bits.data() + bytes(8)
    try:
        out = bool(enter(stream, phase))
    except zlib.error:
        out = False
    assert bool(list(find_dynamic(stream, phase, phase + 1))) == out


def test_low_entropy_is_no_trap():
    for data in (bytes(50_000), b"\xff" * 50_000, b"\x55" * 20_000, b"\x92\x24\x49" * 5000):
        assert every(find_dynamic, data) == []


@pytest.mark.parametrize("phase", sweep.part(range(8)))
def test_a_stream_behind_the_prefix_of_its_phase_decodes_as_it_stands(phase):
    before, low = prefix_for(phase)
    assert low < 1 << phase
    known = BitString()
    known.bits = [byte >> at & 1 for byte in before for at in range(8)] + [low >> at & 1 for at in range(phase)]
    start = len(known.bits)
    assert start % 8 == phase
    for bit in [byte >> at & 1 for byte in deflate(content("text")) for at in range(8)]:
        known.bits.append(bit)
    found = deflate_oracle.inflate(known.data())
    assert bytes(found.out) == content("text")
    assert all(not block.final and block.out == 0 for block in found.blocks if block.bit < start)
    assert start in {block.bit for block in found.blocks}
    assert zlib.decompressobj(-15).decompress(known.data()) == content("text")


@pytest.mark.parametrize("phase", [-1, 8])
def test_phases_there_are_not(phase):
    with pytest.raises(ValueError, match="has no bit"):
        prefix_for(phase)
