"""Base64 texts as data: random access, both alphabets, escapes, and characters that are none."""

from __future__ import annotations

import base64
import random

import pytest

from pparse.data.base import BytesData
from pparse.data.base64_data import Base64Data, UnescapedText
from pparse.errors import GapError
from tests import sweep
from tests.rows import rows

URL = bytes.maketrans(b"+/", b"-_")
FORMS = {
    "plain": lambda text: text,
    "for URLs": lambda text: text.translate(URL),
    "without padding": lambda text: text.rstrip(b"="),
}


def decoded(text: bytes) -> Base64Data:
    return Base64Data(BytesData(b"<<" + text + b">>").range(2, 2 + len(text)), "text")


def unescaped(text: bytes) -> UnescapedText:
    return UnescapedText(BytesData(b'"' + text + b'"').range(1, 1 + len(text)), "text")


def escaped(text: bytes, choose: random.Random) -> bytes:
    return b"".join(
        b"\\u%04x" % byte if not choose.randrange(4) else b"\\/" if byte == 0x2F else bytes((byte,)) for byte in text
    )


@rows("form", FORMS)
@rows("size", [0, 1, 2, 3, 4, 5, 57, 1000, 300_000])
def test_any_stretch_of_a_text_is_decoded(form, size):
    raw = random.Random(size).randbytes(size)
    data = decoded(FORMS[form](base64.b64encode(raw)))
    assert data.size == size
    assert data.pread(0, size + 9) == raw
    choose = random.Random(size)
    for _ in range(30):
        start, length = choose.randrange(size + 1), choose.randrange(size + 2)
        assert data.pread(start, length) == raw[start : start + length]


@pytest.mark.parametrize("size", [3, 1000, 80_000])
def test_a_text_with_escapes_is_read_like_any_other(size):
    raw = random.Random(size).randbytes(size)
    text = base64.b64encode(raw)
    plain = unescaped(escaped(text, random.Random(1)))
    assert plain.pread(0, plain.size) == text
    data = Base64Data(plain.range(0, plain.size), "text")
    choose = random.Random(size)
    for _ in range(30 if size < 10_000 or sweep.full else 10):
        start, length = choose.randrange(size + 1), choose.randrange(size + 2)
        assert data.pread(start, length) == raw[start : start + length]


def test_escaped_line_breaks_are_left_out_and_other_letters_are_none():
    assert unescaped(b"QU\\r\\nJD\\t").pread(0, 9) == b"QUJD"
    assert unescaped(b"Q\\u00e9\\b\\\\x").pread(0, 9) == b"Q\0\b\\x"
    assert unescaped(b"QUJD\\u00").pread(0, 9) == b"QUJD"  # an escape that is cut


@pytest.mark.parametrize("at", [0, 5, 399])
def test_a_wrong_character_loses_its_group_alone_and_is_told_once(at):
    raw = random.Random(at).randbytes(300)
    text = bytearray(base64.b64encode(raw))
    text[at] = 0x20
    data = decoded(bytes(text))
    told: list[int] = []
    data.on_bad = told.append
    lost = at // 4 * 3
    for _ in range(2):
        content, unknown = data.read_known(0, 300)
        assert unknown == [(lost, 3)]
        assert content[:lost] + content[lost + 3 :] == raw[:lost] + raw[lost + 3 :]
    assert told == [2 + at]
    with pytest.raises(GapError):
        data.pread(lost, 3)
    assert data.pread(lost + 3, 3) == raw[lost + 3 : lost + 6]


def test_a_lone_last_character_is_odd_and_padding_in_the_middle_is_lost():
    assert decoded(b"QUJDQ").odd
    assert not decoded(b"QUJDQQ").odd
    assert decoded(b"QU==QUJD").read_known(0, 6)[1] == [(0, 3)]


def test_very_many_wrong_characters_are_few_gaps():
    text = bytearray(base64.b64encode(bytes(3_000_000)))
    text[::400] = b"!" * len(text[::400])
    data = decoded(bytes(text))
    _, unknown = data.read_known(0, 3_000_000)
    assert len(data.gaps) < 100
    groups = {3 * (at // 4) for at in range(0, len(text), 400)}
    assert all(any(start <= at < start + count for start, count in unknown) for at in groups)
