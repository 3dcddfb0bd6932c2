"""Tokens of deflate blocks: the same as a slow inflater finds, whatever the writer."""

from __future__ import annotations

import random
import zlib

from pparse.kernels.deflate_tokens import (
    LONGEST,
    STORED,
    agrees,
    cut_short,
    evaluate,
    output_size,
    read_head,
    walk,
)
from tests import sweep
from tests.deflate_samples import STREAMS, content, deflate, sample
from tests.rows import rows


def blocks_of(raw):
    """Yield each block's bit, head and tokens; None for the tokens of a stored one."""
    bit, final = 0, False
    while not final:
        head = read_head(raw, bit)
        assert head is not None
        tokens = None if head.kind == STORED else walk(raw, head.at, 8 * len(raw), head.codes)
        yield bit, head, tokens
        bit, final = head.at + 8 * head.size if tokens is None else tokens.at, head.final


@rows("name", sweep.part(STREAMS))
def test_blocks_and_their_output_are_those_that_a_slow_inflater_finds(name):
    truth, raw, known = sample(name)
    window, mask, found = bytearray(), bytearray(), []
    for bit, head, tokens in blocks_of(raw):
        found.append((bit, head.kind, head.final, len(window)))
        if tokens is None:
            window += raw[head.at // 8 : head.at // 8 + head.size]
            mask += b"\1" * head.size
            continue
        assert tokens.ended
        before = len(window)
        assert evaluate(tokens.tokens, window, mask)
        assert len(window) - before == output_size(tokens.tokens)
        assert agrees(tokens.tokens, window, mask, 1 << 30) is not None
    assert bytes(window) == truth
    assert found == [(block.bit, block.kind, block.final, block.out) for block in known.blocks]


def test_a_walk_ends_at_its_stop_wherever_that_is():
    raw = deflate(content("text", 5_000))
    head = read_head(raw, 0)
    whole = walk(raw, head.at, 8 * len(raw), head.codes)
    ends = {*whole.bits, whole.at, whole.at - head.codes.end_bits}
    for stop in sweep.some(range(head.at, 8 * len(raw), 7), 1.3):
        part = walk(raw, head.at, stop, head.codes)
        assert part.at in ends
        assert part.at <= stop < part.at + LONGEST
        assert part.tokens == whole.tokens[: len(part.tokens)]


def test_a_walk_ends_where_another_one_was():
    raw = deflate(content("text", 5_000))
    head = read_head(raw, 0)
    passed = bytearray(8 * len(raw) + 8)
    whole = walk(raw, head.at, 8 * len(raw), head.codes)
    for bit in whole.bits:
        passed[bit] = 1
    start = whole.bits[100] + 1
    other = walk(raw, start, 8 * len(raw), head.codes, passed=passed)
    assert not other.ended
    assert passed[other.at] == 1
    assert walk(raw, head.at, 8 * len(raw), head.codes, most=7).tokens == whole.tokens[:7]


def test_a_head_that_is_cut_or_wrong_is_none():
    raw = deflate(content("text", 5_000))
    at = read_head(raw, 0).at
    assert all(read_head(raw[:count], 0) is None for count in range((at + 7) // 8))
    assert read_head(b"", 0) is None
    assert read_head(b"\x07" + bytes(100), 0) is None  # type 3
    assert read_head(b"\x00\x05\x00\x05\x00hello", 0) is None  # the complement is not one
    assert read_head(b"\x05" + b"\xff" * 100, 0) is None  # more codes than there is room for
    rng = random.Random(1)
    for _ in range(3_000):  # whatever it says, it comes back
        head = read_head(bytes([5 | rng.randrange(256) & 0xF8]) + rng.randbytes(300), 0)
        assert head is None or head.at > 17


def test_unknown_bytes_stay_unknown_by_however_many_copies():
    window, known = bytearray(b"ab\0cd"), bytearray([1, 1, 0, 1, 1])
    assert evaluate([3 << 16 | 5, ord("x"), 7 << 16 | 2], window, known)
    assert bytes(window[5:]) == b"ab\0x" + b"\0x\0x\0x\0"
    assert list(known[5:]) == [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert not evaluate([3 << 16 | 100], window, known)


def test_tokens_that_say_something_else_do_not_agree():
    window, known = b"abcabcX", b"\1" * 7
    assert agrees([ord("a"), ord("b"), ord("c"), 3 << 16 | 3, ord("X")], window, known, 100) == 5
    assert agrees([ord("a"), ord("b"), ord("c"), 3 << 16 | 2, ord("X")], window, known, 100) is None
    assert agrees([ord("Y")], window, known, 100) is None
    assert agrees([ord("Y")], window, bytes(7), 100) == 0


def test_copies_of_a_compressor_are_as_long_as_can_be_and_those_of_chance_are_not():
    truth = content("text", 100_000)
    raw = deflate(truth)
    first, second = [(head, tokens) for _, head, tokens in blocks_of(raw)][:2]
    window, known = bytearray(), bytearray()
    evaluate(first[1].tokens, window, known)
    at = len(window)
    evaluate(second[1].tokens, window, known)
    right = cut_short(second[1].tokens, window, known, at)
    assert right.expected > 50
    assert right.happened < right.expected / 20
    assert right.front == 0
    wrong = walk(zlib.compress(truth[:50_000], 1), 300, 100_000, first[0].codes)
    window, known = bytearray(truth[:40_000]), bytearray(b"\1" * 40_000)
    assert evaluate(wrong.tokens, window, known)
    chance = cut_short(wrong.tokens, window, known, 40_000)
    assert chance.happened > chance.expected / 2 > 6
    assert chance.front > 0
