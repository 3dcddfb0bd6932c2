"""Any bytes give a tree or one of our errors, within the budget, and the same whatever the block size."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError
from pparse.errors import EngineError
from pparse.testing.contract import tree_of
from tests import sweep
from tests.msgpack_samples import EVERYTHING, FLAX, NUMPY, array, encode, ext, pairs

TOKENS = st.sampled_from(
    [
        *(bytes((code,)) for code in (0x00, 0x7F, 0x80, 0x81, 0x90, 0x92, 0xA0, 0xA1, 0xC0, 0xC1, 0xC3, 0xE0)),
        *(bytes((code, 0, 2)) for code in (0xC5, 0xC8, 0xDA, 0xDC, 0xDE)),
        *(bytes((code, 3)) for code in (0xC4, 0xC7, 0xD9, 0xCC, 0xD0)),
        *(bytes((code, 0xFF, 0xFF, 0xFF, 0xFF)) for code in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF, 0xCE)),
        b"\xcb@\t!\xfbTD-\x18",
        b"\xa1k",
        b"\xa2\xc3(",
        ext(-1, b"1234"),
        ext(-1, b"\xff" * 8),
        ext(5, bytes(300)),
        array("float32", [2], bytes(8)),
        array("bfloat16", [1 << 40, 1 << 40], b""),
        encode({"__msgpack_chunked_array__": True, "shape": {"0": 3}, "chunks": {"0": array("int8", [3], b"abc")}}),
        encode({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": bytes(4)}),
        pairs(([1], 2), (1.5, 3)),
        encode(["x" * 300] * 20),
    ]
)
SOUP = st.lists(TOKENS, max_size=30).map(b"".join)


def spoilt(content: bytes, places: list[tuple[int, int]], cut: int) -> bytes:
    changed = bytearray(content)
    for at, value in places:
        changed[at % len(content)] = value
    return bytes(changed[: len(content) - cut % len(content)])


SPOILT = st.builds(
    spoilt,
    st.sampled_from([EVERYTHING, FLAX, NUMPY]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4),
    st.integers(0, 400),
)


@settings(max_examples=sweep.examples(120))
@given(SOUP | SPOILT | st.binary(max_size=80), st.sampled_from(["msgpack", "flax"]))
@example(b"\xdf\xff\xff\xff\xff" * 30, "msgpack")
@example(encode(array("float32", [1], bytes(4))) + b"\x07", "flax")
@example(encode(array("float32", [2], bytes(8))) + b"\xde\x00\x02", "flax")  # an empty map that is cut
@example(b"\x00\x92\xdf\xff\xff\xff\xff\xd7" + b"\xff" * 9 + b"\x00", "msgpack")  # a key that is no time
def test_any_bytes_give_a_tree(content: bytes, format: str) -> None:
    trees = []
    for block_size in (0, 1, 7):
        with pparse.open(content, format=format, budget="2MiB", block_size=block_size) as document:
            try:
                list(document.check())
                trees.append(tree_of(document, 3000))
                for tensor in document.view().values() if format == "flax" else ():
                    try:
                        tensor.numpy()
                    except PparseError:
                        pass
            except EngineError:
                raise
            except PparseError as error:
                trees.append([type(error).__name__])
            assert document.session.budget.peak <= document.session.budget.limit
    assert trees[0] == trees[1] == trees[2]
