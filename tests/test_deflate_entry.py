"""Deflate entered in the middle: what comes out is right, and what is not known is said exactly."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.codecs.base import CHECKPOINT
from pparse.codecs.deflate_entry import WINDOW, DeflateEntry, EntryDecompressor
from pparse.errors import EndOfDataError, LimitError, MalformedError
from pparse.limits import MemoryBudget
from tests import sweep
from tests.deflate_samples import STREAMS, BitString, content, deflate, sample
from tests.rows import rows


def run(entry: DeflateEntry, data: bytes, step: int = 1 << 20, limit: int = 1 << 16) -> bytes:
    out = []
    for at in range(0, len(data), step):
        out.append(entry.feed(data[at : at + step], limit))
        while not entry.hungry and not entry.eof:
            out.append(entry.feed(b"", limit))
        if entry.eof:
            break
    return b"".join(out)


def at_block(stream: bytes, bit: int, **window) -> tuple[DeflateEntry, bytes]:
    return DeflateEntry(bit & 7, **window), stream[bit >> 3 :]


def marks(stretches: list[tuple[int, int]], size: int) -> bytearray:
    """By byte whether it is unknown; the stretches ascend, are whole, and do not overlap."""
    found = bytearray(size)
    for (start, length), (after, _) in pairwise([*stretches, (size + 1, 0)]):
        assert length > 0
        assert start + length <= after
        found[start : start + length] = b"\1" * length
    assert len(found) == size
    return found


def zeroed(truth: bytes, unknown: bytearray) -> bytes:
    known = np.frombuffer(unknown, np.uint8) == 0
    return (np.frombuffer(truth, np.uint8) * known).tobytes()


def some(blocks: list, count: int = 12) -> list:
    return blocks[:: max(len(blocks) // count, 1)]


@rows("name", sweep.part(STREAMS, 0.25))
def test_every_block_can_be_entered(name):
    truth, stream, known = sample(name)
    for block in sweep.some(known.blocks, 6, keep=some(known.blocks, 6)):
        entry, data = at_block(stream, block.bit)
        out = run(entry, data)
        assert entry.eof
        assert len(out) == len(truth) - block.out
        unknown = marks(entry.take_unknown(), len(out))
        assert unknown == known.unknown_after(block.out)
        assert out == zeroed(truth[block.out :], unknown)


def test_all_phases_occur():
    for kind in (0, 1, 2):
        bits = {block.bit & 7 for name in STREAMS for block in sample(name)[2].blocks if block.kind == kind}
        assert bits == set(range(8))


@pytest.mark.parametrize("phase", range(8))
def test_a_block_is_entered_at_each_bit_of_a_byte(phase):
    """The same block in each place of a byte, after bits that must not matter."""
    stream = deflate(content("text"))
    value = int.from_bytes(stream, "little") << phase
    for junk in (0, (1 << phase) - 1):
        data = (value | junk).to_bytes(len(stream) + 1, "little")
        for step in (1, 1 << 20):
            entry = DeflateEntry(phase, unknown=0)
            assert run(entry, data + b"more", step) == content("text")
            assert (entry.take_unknown(), entry.resolved) == ([], True)


@pytest.mark.parametrize("name", ["text-6-3", "mixed-6-3", "sync"])
def test_a_known_window_leaves_nothing_unknown(name):
    truth, stream, known = sample(name)
    for block in some(known.blocks):
        entry, data = at_block(stream, block.bit, window=truth[: block.out][-WINDOW:], unknown=0)
        assert entry.resolved
        assert run(entry, data) == truth[block.out :]
        # More than the window does no harm, and no window is longer than that.
        entry, data = at_block(stream, block.bit, window=truth[: block.out])
        assert run(entry, data) == truth[block.out :]
        assert not entry.take_unknown()


def needs(known, start: int, missing: bytes) -> bytearray:
    """By byte from ``start`` on whether it depends on a byte before ``start`` that is marked in ``missing``."""
    found = bytearray(missing)
    found += bytes(len(known.out) - start)
    for at, length, distance in known.copies:
        if at >= start:
            for place in range(at, at + length):
                found[place] = found[place - distance]
    return found[start:]


@pytest.mark.parametrize("seed", range(6))
def test_windows_known_in_part(seed):
    rng = random.Random(seed)
    truth, stream, known = sample(["text-6-3", "mixed-6-3", "floats-6-3"][seed % 3])
    block = rng.choice([block for block in known.blocks if block.out > 20_000])
    kept = rng.choice([1, 500, 20_000, min(block.out, WINDOW + 500)])
    window = truth[block.out - kept : block.out]
    holes = [(rng.randrange(kept), rng.choice([0, 1, 3, 300, 40_000])) for _ in range(rng.randrange(30))]
    missing = bytearray(b"\1") * (block.out - kept) + bytes(kept)
    for start, length in holes:
        start += block.out - kept
        missing[start : min(start + length, block.out)] = b"\1" * (min(start + length, block.out) - start)
    entry, data = at_block(stream, block.bit, window=window, holes=holes)
    out = run(entry, data, 5000, 7000)
    unknown = marks(entry.take_unknown(), len(out))
    assert unknown == needs(known, block.out, missing)
    assert out == zeroed(truth[block.out :], unknown)


def test_holes_hide_what_is_in_them():
    truth, stream, known = sample("text-6-3")
    block = known.blocks[len(known.blocks) // 2]
    window = bytearray(truth[block.out - WINDOW : block.out])
    window[5000:9000] = b"?" * 4000
    entry, data = at_block(stream, block.bit, window=bytes(window), holes=[(5000, 4000)])
    out = run(entry, data)
    unknown = marks(entry.take_unknown(), len(out))
    assert 0 < sum(unknown) < len(out)
    assert out == zeroed(truth[block.out :], unknown)


def test_a_stream_does_not_reach_before_its_beginning():
    """With a window known to be short, a distance beyond it is damage; one that is not is none."""
    truth, stream, known = sample("text-6-3")
    block = known.blocks[3]
    assert 1000 < block.out < WINDOW
    entry, data = at_block(stream, block.bit, window=truth[: block.out], unknown=0)
    assert run(entry, data) == truth[block.out :]
    entry, data = at_block(stream, block.bit, window=truth[500 : block.out], unknown=500)
    assert len(run(entry, data)) == len(truth) - block.out
    assert entry.take_unknown()
    for window, unknown in ((b"", 0), (truth[block.out - 100 : block.out], 0), (b"", 100)):
        entry, data = at_block(stream, block.bit, window=window, unknown=unknown, holes=[(50, WINDOW)])
        with pytest.raises(zlib.error, match="too far back"):
            run(entry, data)


def far_copy() -> list[int]:
    """The bits of a fixed block that copies three bytes from as far away as can be, and not final."""
    bits = BitString()
    bits.number(0, 1)
    bits.number(1, 2)
    bits.code("0000001" + "11101")  # length 3, the last distance code
    bits.number((1 << 13) - 1, 13)
    bits.code("0000000")
    return bits.bits


def stored_block(data: bytes) -> list[int]:
    bits = BitString()
    for value in b"".join(((len(data).to_bytes(2, "little")), (len(data) ^ 0xFFFF).to_bytes(2, "little"), data)):
        bits.number(value, 8)
    return bits.bits


@pytest.mark.parametrize("more", [0, 1])
def test_one_decoder_is_enough_in_the_end(more):
    """32 KiB behind the last unknown byte, and not a byte before: copies may come from as far away as that."""
    known, noise = (random.Random(seed).randbytes(WINDOW - 1) for seed in (3, 4))
    bits = BitString()
    bits.bits = far_copy()
    bits.bits += [0] * (3 + -(len(bits.bits) + 3) % 8)
    bits.bits += stored_block(noise[: WINDOW - 3 + more])
    start = len(bits.bits) // 8
    bits.bits += far_copy()
    entry = DeflateEntry(0, known)
    data = bits.data()
    out = entry.feed(data[:start], 1 << 20)
    assert out == b"\0" + known[:2] + noise[: WINDOW - 3 + more]
    assert entry.take_unknown() == [(0, 1)]
    assert entry.resolved == bool(more)
    out = entry.feed(data[start:], 1 << 20)
    assert entry.take_unknown() == ([] if more else [(WINDOW, 1)])
    assert out == (known[:2] + noise[:1] if more else b"\0" + known[:2])


def test_the_contract_of_a_core():
    truth, stream, known = sample("text-6-8")
    block = known.blocks[1]
    entry, data = at_block(stream, block.bit)
    assert (entry.hungry, entry.eof, entry.unused, entry.feed(b"", 10)) == (True, False, b"", b"")
    assert len(entry.feed(data + b"behind", 1000)) == 1000
    assert not entry.hungry
    assert len(entry.feed(b"", 500)) == 500
    twin = entry.copy()
    before = entry.take_unknown()
    assert before
    assert twin.take_unknown() == []
    rest = run(entry, b"!", limit=300)
    assert entry.eof
    assert entry.unused == b"behind!"
    assert rest == run(twin, b"!", limit=1 << 17)
    assert entry.total_out == twin.total_out == len(truth) - block.out
    after = twin.take_unknown()
    assert marks(after, entry.total_out) == marks(entry.take_unknown(), entry.total_out)
    assert marks(before + after, entry.total_out) == known.unknown_after(block.out)
    assert entry.take_unknown() == []


def test_long_stretches_are_whole():
    """Stretches across the pieces that are compared are one."""
    writer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=b"x" * 300)
    data = writer.compress(b"x" * 70_000) + writer.flush()
    entry = DeflateEntry(0)
    assert run(entry, data, limit=50_000) == bytes(70_000)
    assert entry.take_unknown() == [(0, 70_000)]
    assert not entry.resolved
    entry = DeflateEntry(0)
    entry.feed(data, 50_000)
    assert entry.take_unknown() == [(0, 50_000)]
    entry.feed(b"", 50_000)
    assert entry.take_unknown() == [(50_000, 20_000)]
    decoder = EntryDecompressor(0)
    assert sum(len(decoder.decompress(piece, 1 << 17)) for piece in (data, b"")) == 70_000
    assert decoder.take_unknown() == [(0, 70_000)]


@pytest.mark.parametrize(
    "wrong", [{"phase": 8}, {"phase": -1}, {"unknown": -1}, {"holes": [(-1, 3)]}, {"holes": [(1, -3)]}]
)
def test_arguments_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=r"negative|no bit|a hole of"):
        DeflateEntry(**{"phase": 0, "window": bytes(10)} | wrong)
    with pytest.raises(ValueError, match=r"negative|no bit|a hole of"):
        EntryDecompressor(**{"phase": 0, "window": bytes(10)} | wrong)


@given(st.binary(max_size=400), st.integers(0, 7), st.binary(max_size=40), st.integers(0, 1 << 16), st.integers(1, 300))
@settings(max_examples=sweep.examples(200))
def test_any_bytes_raise_nothing_but_zlib_error_and_decode_alike_in_any_steps(data, phase, window, unknown, step):
    """Damage is zlib.error and nothing else; however it is fed, the same comes out."""
    found = []
    for size in (step, 1 << 20):
        entry = DeflateEntry(phase, window, unknown)
        out = b""
        try:
            for at in range(0, len(data), size):
                out += entry.feed(data[at : at + size], 1 << 20)
        except zlib.error:
            continue
        found.append((out, bytes(marks(entry.take_unknown(), len(out))), entry.eof, entry.hungry))
    assert len(set(found)) <= 1


# -- as a decompressor ---------------------------------------------------------------------------------------------


def drain(stream, data: bytes, step: int = 3000, room: int = 5000) -> tuple[bytes, list[tuple[int, int]]]:
    """Return what comes out with single calls, and the stretches: those of each call within what it returned."""
    out, stretches = b"", []
    fed = 0
    while not stream.eof:
        piece = b""
        if stream.needs_input:
            piece = data[fed : fed + step]
            fed += len(piece)
            if not piece:
                stream.finish()
        before = len(out)
        out += stream.decompress(piece, room)
        for start, length in stream.take_unknown():
            assert before <= start < start + length <= len(out)
            if stretches and sum(stretches[-1]) == start:
                start, length = stretches[-1][0], stretches[-1][1] + length
                stretches.pop()
            stretches.append((start, length))
    return out, stretches


@pytest.mark.parametrize("name", ["text-6-3", "mixed-9-8", "full", "flushed fixed"])
@pytest.mark.parametrize("room", [777, 1 << 20])
def test_a_stream_that_is_entered_knows_what_it_consumed_and_what_is_unknown(name, room):
    truth, stream, known = sample(name)
    for block in some(known.blocks, 4):
        bit = block.bit
        decoder = EntryDecompressor(bit & 7)
        assert decoder.codec == "deflate"
        out, stretches = drain(decoder, stream[bit >> 3 :] + b"rest", room=room)
        unknown = marks(stretches, len(out))
        assert unknown == known.unknown_after(block.out)
        assert out == zeroed(truth[block.out :], unknown)
        assert decoder.consumed == (known.end + 7) // 8 - (bit >> 3)
        assert decoder.unused_data == b"rest"[: len(decoder.unused_data)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("room", [777, 1 << 20])
def test_damage_gives_all_that_precedes_it_once(again, room):
    """The second decoder, which goes the way again, does not report its stretches a second time."""
    truth, stream, known = sample("text-6-3")
    start, bad = known.blocks[2], known.blocks[-3]
    assert bad.out - start.out > 70_000
    data = bytearray(stream[start.bit >> 3 :])
    at = (bad.bit >> 3) - (start.bit >> 3)
    data[at + 1 : at + 300] = b"\xff" * 299
    data = bytes(data)
    decoder = EntryDecompressor(
        start.bit & 7, reread=(lambda offset, length: data[offset : offset + length]) if again else None
    )
    out, stretches = b"", []
    decoder.decompress(data, 0)
    while len(out) < bad.out - start.out:
        out += decoder.decompress(b"", room)
        stretches += decoder.take_unknown()
    with pytest.raises(MalformedError, match="damaged"):
        drain(decoder, b"")
    good = bad.out - start.out
    unknown = marks(stretches, len(out))[:good]
    assert unknown == known.unknown_after(start.out)[:good]
    assert out[:good] == zeroed(truth[start.out : bad.out], unknown)
    assert decoder.take_unknown() == []


def long_sample() -> tuple[bytes, bytes, int, int]:
    """A long stream of which some is unknown for long: the text, the stream, a block's bit and its output offset."""
    truth = content("text", 1_500_000)
    data = deflate(truth, every=200_000, flush=zlib.Z_SYNC_FLUSH)
    at = data.index(b"\0\0\xff\xff") + 4
    return truth[200_000:], data, 8 * at, 200_000


def test_checkpoints_go_on_where_they_stand():
    truth, data, bit, _ = long_sample()
    data = data[bit >> 3 :]
    whole, expected = drain(EntryDecompressor(0), data, step=20_000, room=60_000)
    unknown = marks(expected, len(whole))
    assert sum(unknown) > 50_000
    assert whole == zeroed(truth, unknown)

    decoder = EntryDecompressor(0)
    assert decoder.copy() is None
    copies, out, fed = [], 0, 0
    while not decoder.eof:
        piece = data[fed : fed + 20_000] if decoder.needs_input else b""
        fed += len(piece)
        out += len(decoder.decompress(piece, 60_000))
        copy = decoder.copy()
        if copy is not None and (not copies or copies[-1].total_out != copy.total_out):
            copies.append(copy)
    assert len(copies) > 3
    assert marks(decoder.take_unknown(), out) == unknown
    for copy in copies:
        start = copy.total_out
        parts, marked = [], bytearray(len(whole))
        at = copy.consumed
        while not copy.eof:
            piece = data[at : at + 30_000] if copy.needs_input else b""
            at += len(piece)
            parts.append(copy.decompress(piece, 1 << 17))
            for place, length in copy.take_unknown():
                marked[place : place + length] = b"\1" * length
        assert b"".join(parts) == whole[start:]
        assert marked[start:] == unknown[start:]
        assert not any(marked[:start])


def test_memory_is_charged():
    budget = MemoryBudget(1 << 20)
    truth, stream, known = sample("text-6-3")
    block = known.blocks[4]
    decoder = EntryDecompressor(block.bit & 7, budget=budget)
    decoder.decompress(stream[block.bit >> 3 :], 10)
    assert decoder.window == budget.used >= 4 * CHECKPOINT + 2 * WINDOW
    while not decoder.eof:
        decoder.decompress(b"", 10_000)
    assert budget.used == 0
    sure = EntryDecompressor(block.bit & 7, truth[: block.out], 0, budget=budget, reread=lambda offset, length: b"")
    sure.decompress(stream[block.bit >> 3 :], 10)
    assert 2 * CHECKPOINT + 2 * 65536 <= budget.used < 4 * CHECKPOINT + 2 * 65536
    sure.close()
    assert budget.used == 0
    with budget.charge(900_000, "the test"):
        poor = EntryDecompressor(block.bit & 7, budget=budget)
        with pytest.raises(LimitError):
            poor.decompress(stream[block.bit >> 3 :], 10)
    assert len(poor.decompress(b"", 10)) == 10


def test_sizes_and_ends():
    truth, stream, known = sample("text-6-3")
    block = known.blocks[4]
    data = stream[block.bit >> 3 :]
    size = len(truth) - block.out
    assert len(drain(EntryDecompressor(block.bit & 7, size=size), data)[0]) == size
    small = EntryDecompressor(block.bit & 7, size=1000)
    assert len(small.decompress(data, 5000)) == 1000
    assert marks(small.take_unknown(), 1000) == known.unknown_after(block.out)[:1000]
    with pytest.raises(MalformedError, match="more bytes than its size"):
        small.decompress(b"", 10)
    cut = EntryDecompressor(block.bit & 7)
    cut.decompress(data[:-10], 1 << 20)
    cut.finish()
    with pytest.raises(EndOfDataError):
        cut.decompress(b"", 10)
    assert cut.take_unknown()
