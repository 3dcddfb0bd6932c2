"""Any bytes give a tree or one of our errors, within the budget, and the same whatever the block size."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError, Status
from pparse.errors import EngineError
from tests import sweep

WAYS = (
    {"options": {"kernel": "stdlib"}},
    {"options": {"kernel": "numpy"}},
    {"options": {"kernel": "stdlib"}, "block_size": 1},
    {"options": {"kernel": "numpy"}, "block_size": 5},
)
NO_ERROR = {"duplicate-key", "byte-order-mark", "not-finite"}

TOKENS = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '"',
        "\\",
        " ",
        "\n",
        "1",
        "-",
        "0.5",
        "1e9",
        "true",
        "nul",
        '"a"',
        '"a":',
        "\\u00",
        "\\ud83d",
        "\\ude00",
        "é",
        "\x00",
        "#2",
        "NaN",
        "\ufeff",
        '{"k":',
        "[[",
        "]]",
        "1e999",
    ]
)
SOUP = st.lists(TOKENS, max_size=40).map(lambda tokens: "".join(tokens).encode())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=15,
)


@st.composite
def nearly_json(draw) -> bytes:
    """Draw a document with a few bytes changed, taken out or put in, and perhaps cut."""
    text = bytearray(json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=2) | TOKENS.map(str.encode))
    return bytes(text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text)


def look(text: bytes, way) -> tuple[list, list]:
    """Return all that the nodes say, and the findings."""
    with pparse.open(text, format="json", **way) as extraction:
        found, stack = [], [extraction.root]
        while stack:
            node = stack.pop()
            kids, value = [], None
            if node.shape == "scalar":
                try:
                    value = repr(node.load())
                except EngineError:
                    raise
                except PparseError as error:
                    value = (type(error).__name__, error.reason, error.offset)
            else:
                kids = list(node.children())
            assert node.start <= len(text)
            assert node.end is None or node.start <= node.end <= len(text)
            if node.shape == "scalar" and node.status is Status.COMPLETE:
                assert value[0] != "("  # what is whole has a value
            found.append((node.path, node.key, node.kind, node.start, node.end, node.status, value))
            assert extraction.node(node.path) is node
            stack.extend(reversed(kids))
        budget = extraction.session.budget
        assert budget.peak <= budget.limit
        return found, sorted(map(str, extraction.findings))


def verdict(text: bytes, way) -> bool:
    """Say whether a check finds nothing wrong; it and `to_python` must agree."""
    codes = {finding.code for finding in pparse.open(text, format="json", **way).check()}
    try:
        pparse.open(text, format="json", **way).root.to_python()
    except EngineError:
        raise
    except PparseError:
        assert codes - NO_ERROR, text
    else:
        assert codes <= NO_ERROR | {"trailing-data"}, text
    return codes <= NO_ERROR


def is_json(text: bytes) -> bool:
    """Say what the standard library says, made strict but for NaN and infinities."""

    def refuse(word):
        raise ValueError(word)

    def number(word):
        return float(word) if abs(float(word)) != float("inf") else refuse(word)

    try:
        value = json.loads(text.decode().removeprefix("\ufeff"), parse_float=number)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


def survives(text: bytes) -> None:
    expected = look(text, WAYS[0])
    for way in WAYS[1:]:
        assert look(text, way) == expected, way
    assert verdict(text, WAYS[0]) == is_json(text)
    assert verdict(text, WAYS[3]) == is_json(text)


@settings(max_examples=sweep.examples(100))
@given(text=st.binary(max_size=60))
@example(text=b"\xef\xbb")
@example(text=b"\xef\xbb\xbf\xef\xbb\xbf[]")
@example(text=b"\x00")
def test_any_bytes(text):
    survives(text)


@settings(max_examples=sweep.examples(150))
@given(text=SOUP)
@example(text=b'{"a":1,2}')
@example(text=b'["a\\"]')
@example(text=b'{"":[}')
def test_any_soup_of_tokens(text):
    survives(text)


@settings(max_examples=sweep.examples(150))
@given(text=nearly_json())
def test_anything_that_is_nearly_json(text):
    survives(text)
