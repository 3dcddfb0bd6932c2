"""Both JSON kernels against a reference that goes byte by byte."""

from __future__ import annotations

import json
import random
from array import array

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pparse.kernels import json_fold, json_numpy
from pparse.kernels.json_fold import Carry, depth_at_most
from tests import sweep

KERNELS = pytest.mark.parametrize("kernel", [json_fold.scan, json_numpy.scan], ids=["fold", "numpy"])
BLOCK_SIZES = (1, 2, 3, 7, 16, 64, 4096, 0)  # 0: the whole text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=25,
)
NASTY = st.text(alphabet='"\\[]{},: a1', max_size=120).map(str.encode)


def slow_scan(text: bytes, pos: int = 0) -> tuple[int, list[int], tuple[int, int, int]]:
    """Return what a kernel must find from ``pos`` on: the closer, the offsets behind commas, and the carry."""
    depth, in_string, escaped = 1, 0, 0
    found = []
    for at in range(pos, len(text)):
        byte = text[at : at + 1]
        if escaped:
            escaped = 0
            if byte in b'"\\':
                continue
        if byte == b"\\":
            escaped = 1
        elif byte == b'"':
            in_string ^= 1
        elif not in_string:
            if byte in b"[{":
                depth += 1
            elif byte in b"]}":
                depth -= 1
                if not depth:
                    return at, found, (0, 0, 0)
            elif byte == b"," and depth == 1:
                found.append(at + 1)
    return -1, found, (depth, in_string, escaped)


def fast_scan(kernel, text: bytes, size: int, pos: int = 0) -> tuple[int, list[int], tuple[int, int, int]]:
    """Run ``kernel`` over ``text`` in blocks of ``size``; the first block begins ``pos`` bytes before the scan."""
    carry, found = Carry(), array("q")
    base, closed = 0, -1
    size = size or max(1, len(text))
    while base < len(text) and closed < 0:
        end = max(base + size, pos)
        block = text[base:end]
        at = kernel(block, pos if base == 0 else 0, carry, base, found)
        closed = -1 if at < 0 else base + at
        base = end
    return closed, list(found), (carry.depth, carry.in_string, carry.escaped)


def max_depth(text: bytes) -> int:
    depth = most = in_string = escaped = 0
    for byte in text.decode("latin-1"):
        if escaped:
            escaped = 0
            if byte in '"\\':
                continue
        if byte == "\\":
            escaped = 1
        elif byte == '"':
            in_string ^= 1
        elif not in_string and byte in "[{":
            depth += 1
            most = max(most, depth)
        elif not in_string and byte in "]}":
            depth -= 1
    return most


# -- against the reference -------------------------------------------------------------------------------------------


@KERNELS
@settings(max_examples=sweep.examples(70))
@given(text=NASTY)
@example(text=b'"\\",')
@example(text=b'\\\\"\\\\\\",]')
@example(text=b'\\",",],')
@example(text=b"[[[[[[[[[[],]],]]]]]]],],]")
@example(text=b"")
def test_text_of_nothing_but_structure(kernel, text):
    expected = slow_scan(text)
    for size in BLOCK_SIZES:
        assert fast_scan(kernel, text, size) == expected, size


@KERNELS
@settings(max_examples=sweep.examples(50))
@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_genuine_json_is_scanned_as_the_slow_reference_does(kernel, value, indent, ascii_only):
    text = json.dumps([value, value], indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    expected = slow_scan(text, 1)
    assert expected[0] == len(text) - 1  # the reference itself knows where the list ends
    for size in BLOCK_SIZES:
        assert fast_scan(kernel, text, size, 1) == expected, size


@KERNELS
@settings(max_examples=sweep.examples(60))
@given(text=NASTY, pos=st.integers(0, 20))
def test_a_scan_that_begins_inside_a_block(kernel, text, pos):
    pos = min(pos, len(text))
    assert fast_scan(kernel, text, 0, pos) == slow_scan(text, pos)


@KERNELS
@pytest.mark.parametrize("weights", [(8, 8, 8, 8, 30), (1, 1, 12, 10, 60), (2, 30, 6, 5, 40), (0, 1, 40, 38, 20)])
def test_long_random_text(kernel, weights):
    """Long enough for every step of folding, and for its way back."""
    rng = random.Random(str(weights))
    pieces = rng.choices(['"', "\\", "[", "]", ", ab"], weights, k=12_000)
    text = "".join(pieces).encode()
    text = text.replace(b"]", b"}", 50)
    start = 0
    for _ in range(12):  # each scan goes on behind where the last one closed
        expected = slow_scan(text[start:])
        for size in (7, 1000, 0) if len(expected[1]) < 500 else (1000,):
            assert fast_scan(kernel, text[start:], size) == expected, (start, size)
        if expected[0] < 0:
            break
        start += expected[0] + 1


@pytest.mark.parametrize("depth", [1, 2, 7, 8, 9, 25, 200, 5000])
@KERNELS
def test_children_of_any_depth(kernel, depth):
    child = b"[" * depth + b'"],["' + b"]" * depth
    text = b",".join([child] * 5) + b"]"
    expected = [(len(child) + 1) * number for number in range(1, 5)]
    for size in (64, 300, 0):
        assert fast_scan(kernel, text, size) == (len(text) - 1, expected, (0, 0, 0))


@KERNELS
def test_offsets_are_those_of_the_data(kernel):
    found = array("q")
    assert kernel(b"xx1,2,3]", 2, Carry(), 1 << 40, found) == 7
    assert list(found) == [(1 << 40) + 4, (1 << 40) + 6]


@KERNELS
def test_what_follows_the_closer_is_not_looked_at(kernel):
    found, carry = array("q"), Carry()
    assert kernel(b'1]"\\,,[', 0, carry, 0, found) == 1
    assert (list(found), carry.depth, carry.in_string, carry.escaped) == ([], 0, 0, 0)


# -- hostile input: it must end, and soon ----------------------------------------------------------------------------

PATHOLOGICAL = {
    "openers": (b"[" * 10**6, (-1, 0, (10**6 + 1, 0, 0))),
    "pairs": (b"[]" * 10**6, (-1, 0, (1, 0, 0))),
    "objects": (b'{"a":' * 10**5, (-1, 0, (10**5 + 1, 0, 0))),
    "quotes": (b'"' * 10**6, (-1, 0, (1, 0, 0))),
    "odd quotes": (b'"' * (10**6 + 1), (-1, 0, (1, 1, 0))),
    "backslashes": (b"\\" * 10**6, (-1, 0, (1, 0, 0))),
    "odd backslashes": (b"\\" * (10**6 + 1), (-1, 0, (1, 0, 1))),
    "backslashes in a string": (b'"' + b"\\" * (10**6 + 1), (-1, 0, (1, 1, 1))),
    "escaped quotes": (b'"' + b'\\"' * 10**6, (-1, 0, (1, 1, 0))),
    "half-open": (b"[[]," * 10**5, (-1, 0, (10**5 + 1, 0, 0))),
    "commas": (b"," * 10**6, (-1, 10**6, (1, 0, 0))),
    "one long word": (b"a" * 10**6, (-1, 0, (1, 0, 0))),
    "up and down": ((b"[" * 30 + b"]" * 30 + b",") * 10**4 + b"]", (610_000, 10**4, (0, 0, 0))),
    "up and down, nested": (b"[" + (b"[" * 30 + b"]" * 30 + b",") * 10**4 + b"]]", (610_002, 0, (0, 0, 0))),
    "deep items": (b'{"a":[[[[[[[[[1]]]]]]]]]},' * 10**4 + b"]", (260_000, 10**4, (0, 0, 0))),
}


@KERNELS
@pytest.mark.parametrize("name", sweep.part(PATHOLOGICAL))
def test_pathological_text_is_scanned(kernel, name):
    text, expected = PATHOLOGICAL[name]
    for size in sweep.values((256 << 10, 0), list(PATHOLOGICAL).index(name), 1):
        closed, found, carry = fast_scan(kernel, text, size)
        assert (closed, len(found), carry) == expected


@pytest.mark.parametrize("name", sweep.part(PATHOLOGICAL))
def test_folding_does_no_more_work_than_a_multiple_of_the_input(name, monkeypatch):
    """Counted, not timed: a piece that does not fold must not be folded again for every few bytes of it."""
    work = 0
    fold, walk = json_fold._fold, json_fold._walk

    def counting_fold(piece, in_string, escaped):
        nonlocal work
        work += len(piece)
        return fold(piece, in_string, escaped)

    def counting_walk(block, pos, end, carry):
        nonlocal work
        reached = walk(block, pos, end, carry)
        work += reached - pos
        return reached

    monkeypatch.setattr(json_fold, "_fold", counting_fold)
    monkeypatch.setattr(json_fold, "_walk", counting_walk)
    text, _ = PATHOLOGICAL[name]
    fast_scan(json_fold.scan, text, 256 << 10)
    assert work <= 12 * len(text)


# -- depth -----------------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(200))
@given(text=NASTY, levels=st.integers(0, 6))
@example(text=b"[[[]", levels=2)
@example(text=b'[["]]"', levels=1)
@example(text=b"[[[]]][]", levels=2)
def test_depth_at_most_never_says_yes_wrongly(text, levels):
    if depth_at_most(text, levels):
        assert max_depth(text) <= levels


@settings(max_examples=sweep.examples(50))
@given(value=VALUES)
def test_depth_of_genuine_json_is_exact(value):
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    depth = max_depth(text)
    assert [depth_at_most(text, levels) for levels in range(depth + 3)] == [False] * depth + [True] * 3


@pytest.mark.parametrize("depth", [1, 50, 200, 3000])
def test_depth_of_deep_text(depth):
    text = b"[" * depth + b'"[[["' + b"]" * depth
    assert not depth_at_most(text, depth - 1)
    assert depth_at_most(text, depth)
