"""What a field of an unknown schema holds: known cases, real descriptors, random data, bounds of work."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from pparse.kernels import wire_guess
from pparse.kernels.varint import encode_varint, read_varint
from pparse.kernels.wire_guess import guess
from tests.rows import rows


def field(number: int, payload: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(payload)) + payload


def attr(key: str, value: bytes) -> bytes:
    return field(5, field(1, key.encode()) + field(2, value))


FLOATS = struct.pack("<64f", *(0.37 * index - 9 for index in range(64)))
INTS = struct.pack("<25i", *(index * 7 % 95 for index in range(25)))
TENSOR = b"\x08\x01" + field(2, field(2, b"\x08\x40")) + field(4, FLOATS)
NODE = field(1, b"weights/read") + field(2, b"Const") + attr("dtype", b"\x30\x01") + attr("value", field(8, TENSOR))

CERTAIN = [
    ("message", b"\n\x03abc"),
    ("message", b"\x12\x02\x08\x19"),
    ("message", b"\x08\x01"),
    ("message", b"0\x03"),
    ("message", b"\x08" + b"\xff" * 9 + b"\x01"),
    ("message", b"\n\x01T\x12\x020\x01"),
    ("message", b"\x0b\x08\x01\x0c"),
    ("message", b"\x0b\x13\x08\x05\x14\x0c"),
    ("message", b"\x0d" + FLOATS[:4] + b"\x11" + FLOATS[:8]),
    ("message", TENSOR),
    ("message", NODE),
    ("message", field(1, NODE) * 30),
    ("message", b"\n\x00" * 2000),
    ("text", b"abc"),
    ("text", b"y"),
    ("text", b"axes"),
    ("text", b"sum:0"),
    ("text", b"n58"),
    ("text", b"keep_dims"),
    ("text", b"\nUse another op instead.\n"),
    ("text", b"/usr/lib/libexample.so.1"),
    ("text", b"assets\\vocabulary.txt"),
    ("text", b'{"a": [1, 2.5, null]}'),
    ("text", b'{\n\t"dtype": "float32",\r\n\t"shape": []\n}\n'),
    ("text", "h\u00e9llo".encode()),
    ("text", "\u4e16\u754c\U0001f600".encode()),
    ("bytes", FLOATS),
    ("bytes", INTS),
    ("bytes", bytes(64)),
    ("bytes", b"\x00\x00\x00?"),
    ("bytes", b"\x93NUMPY\x01\x00"),
    ("bytes", b"\x01\x02\x03"),  # a packed list
    ("bytes", b"\x03\x01\x04\x01\x05\x09\x02\x06"),
    ("bytes", b"\x00\x01"),  # no field has the number 0
    ("bytes", b"\x0b\x08\x01\x14"),  # a group closed by another's number
    ("bytes", b"\x0b\x08\x01"),  # a group not closed
    ("bytes", b"\x08\x01\x0c"),  # a group not opened
    ("bytes", b"\x08\x01\x0e\x02"),  # wire type 6
    ("bytes", b"\x08\x01\x8a\x00\x02\x08\x01"),  # a tag longer than needed
    ("bytes", b"\x12\x03\x08\x19"),  # a payload that ends outside
    ("bytes", b"\xfa\xff\xff\xff\x1f\x02\x08\x01"),  # a number above 2^29 - 1
    ("bytes", b"\x08\x01\x10" + b"\x80" * 10 + b"\x01"),  # a varint of eleven bytes
    ("bytes", b"\xc3\x28 and more that is not UTF-8"),
]


@rows(("kind", "data"), CERTAIN)
def test_what_is_certain_is_guessed_with_confidence(kind, data):
    found, confidence = guess(data)
    assert found == kind
    assert 0.9 <= confidence < 1


AMBIGUOUS = [
    b"(2",  # 5: 50
    b"%33s?",  # 4: 0.95 as a float
    b"0\t",  # 6: 9
    b"ZUgithub.com/" + b"x" * 74,  # 11: the rest
    b"*NOTE*: do not" + b"." * 66,  # 5: the rest
    b"\n\nabcdefghij",
]


@pytest.mark.parametrize("data", AMBIGUOUS)
def test_text_that_is_a_message_too_is_never_certain(data):
    kind, confidence = guess(data)
    assert kind in ("message", "text")
    assert 0.5 <= confidence < 0.9


def test_nothing_says_nothing():
    for complete in (True, False):
        assert guess(b"", complete) == ("bytes", 0.3)


@pytest.mark.parametrize("data", [NODE * 3, field(1, NODE) * 4, TENSOR, b"\x0b" + NODE + b"\x0c"])
def test_a_message_may_be_cut_anywhere(data):
    for end in range(20, len(data) + 1):
        assert guess(data[:end], False)[0] == "message", end


def test_a_cut_message_is_none_if_it_should_be_whole():
    # Cut inside the last value: the lengths around it lead outside.
    assert guess(NODE[:-3])[0] == "bytes"
    assert guess(NODE[:-3], False)[0] == "message"


def test_a_group_may_be_open_where_data_is_cut():
    data = b"\x0b" + NODE
    assert guess(data)[0] == "bytes"
    assert guess(data, False)[0] == "message"


def test_payloads_are_looked_into(monkeypatch):
    # The first bytes of four messages, one in the other, each the last field of the one around it.
    data = b"\x12\xf4\x8e\x06\x12\xf0\x8e\x06\n\xec\x8e\x06\n\xe8"
    kind, confidence = guess(data, False)
    assert kind == "message"
    assert confidence >= 0.99
    monkeypatch.setattr(wire_guess, "MAX_DEPTH", 0)
    assert guess(data, False)[1] < 0.9


def test_small_negative_numbers_are_likelier_than_huge_ones():
    small = wire_guess._message_bits(b"\x08" + b"\xf6" + b"\xff" * 8 + b"\x01", True)
    huge = wire_guess._message_bits(b"\x08" + b"\x96\xa5\xc3\xf1\x8b\xd2\x99\xaa\xc7\x01", True)
    assert small < 40 < huge


def test_text_may_be_cut_within_a_character():
    data = "Gr\u00f6\u00dfe \u4e16\u754c".encode()
    for end in range(5, len(data) + 1):
        assert guess(data[:end], False)[0] == "text"
    assert guess(data[:-1]) == ("bytes", pytest.approx(0.999, abs=0.001))
    assert guess(data[:3] + b"\xff" + data[4:], False)[0] == "bytes"


def test_control_characters_and_private_ones_speak_against_text():
    letters = "\u00e9\u00e8\u00ea"
    plain = guess(letters.encode())
    assert plain[0] == "text"
    for odd in ("\x80", "\x9f", "\ue000", "\uffff", "\U0010fffd", "\x01", "\x7f"):
        assert guess((odd * 3).encode())[0] == "bytes", ascii(odd)


def labelled(data: bytes, message) -> list[tuple[str, bytes]]:
    """All length-delimited fields in ``data`` at any depth, with what the schema says of them."""
    found = []
    todo = [(data, message)]
    while todo:
        data, message = todo.pop()
        pos = 0
        while pos < len(data):
            tag, pos = read_varint(data, pos, len(data))
            value, after = (
                read_varint(data, pos, len(data)) if tag & 7 in (0, 2) else (0, pos + (8 if tag & 7 == 1 else 4))
            )
            if tag & 7 == 2:
                payload = data[after : after + value]
                after += value
                known = message.fields_by_number[tag >> 3]
                if known.message_type:
                    todo.append((payload, known.message_type))
                found.append(("message" if known.message_type else "text" if known.type == 9 else "bytes", payload))
            pos = after
    return found


def test_all_fields_of_a_real_descriptor():
    fields = labelled(descriptor_pb2.DESCRIPTOR.serialized_pb, descriptor_pb2.FileDescriptorProto.DESCRIPTOR)
    fields = [(kind, data) for kind, data in fields if data]
    assert len(fields) > 1000
    guesses = [(kind, *guess(data)) for kind, data in fields]
    wrong = [each for each in guesses if each[0] != each[1]]
    assert not wrong
    assert sum(confidence >= 0.9 for _, _, confidence in guesses) > 0.95 * len(guesses)


def rate(samples: list[bytes], kind: str) -> tuple[float, float]:
    """How many guesses are right, of all and of those that claim a confidence of at least 0.9."""
    guesses = [guess(data) for data in samples]
    sure = [found == kind for found, confidence in guesses if confidence >= 0.9]
    assert len(sure) > 0.9 * len(guesses)
    return sum(found == kind for found, _ in guesses) / len(guesses), sum(sure) / len(sure)


def test_random_bytes_are_taken_for_bytes():
    source = random.Random(11)
    right, sure = rate([source.randbytes(source.randint(4, 64)) for _ in range(2000)], "bytes")
    assert right >= 0.98
    assert sure >= 0.99
    cut = [guess(source.randbytes(200), False) for _ in range(500)]
    assert sum(kind == "bytes" for kind, _ in cut) >= 480


def test_random_names_and_lines():
    source = random.Random(12)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.-"
    names = ["".join(source.choices(letters, k=source.randint(1, 12))).encode() for _ in range(2000)]
    lines = [bytes(source.choices(range(32, 127), k=source.randint(1, 60))) for _ in range(2000)]
    for samples in (names, lines):
        right, sure = rate(samples, "text")
        assert right >= 0.995
        assert sure >= 0.995


messages = st.recursive(
    st.lists(st.tuples(st.integers(1, 15), st.integers(0, 300)), min_size=3, max_size=6).map(
        lambda fields: b"".join(encode_varint(number << 3) + encode_varint(value) for number, value in sorted(fields))
    ),
    lambda inner: st.lists(st.tuples(st.integers(1, 15), inner), min_size=1, max_size=4).map(
        lambda fields: b"".join(field(number, payload) for number, payload in sorted(fields))
    ),
    max_leaves=8,
)


@given(messages)
def test_a_message_is_not_taken_for_something_else_with_confidence(data):
    kind, confidence = guess(data)
    # A few small values may be letters by chance.
    assert kind == "message" or confidence < 0.9


@given(
    st.one_of(
        st.binary(max_size=200), st.lists(st.sampled_from(b"\x00\x08\x0a\x0b\x0c\x12\x80\xff"), max_size=60).map(bytes)
    )
)
def test_any_bytes_give_an_answer(data):
    for complete in (True, False):
        kind, confidence = guess(data, complete)
        assert kind in ("message", "text", "bytes")
        assert 0 <= confidence < 1


class Counting(bytes):
    """Bytes that count how often one of them is asked for."""

    asked = 0

    def __getitem__(self, key):
        if isinstance(key, slice):
            return Counting(super().__getitem__(key))
        Counting.asked += 1
        return super().__getitem__(key)


def nested(data: bytes, depth: int) -> bytes:
    for _ in range(depth):
        data = field(1, data)
    return data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x08\x00" * 200_000, "message"),
        (b"\n\x00" * 200_000, "message"),
        (b"\n\x02\x08\x01" * 100_000, "message"),
        (nested(b"\n\x01\x02" * 30_000, 3000), "message"),
        (b"\x0b" * 200_000, "bytes"),
        (bytes(200_000), "bytes"),
        (b"word " * 80_000, "text"),
    ],
)
def test_work_is_bounded(data, kind):
    Counting.asked = 0
    assert guess(Counting(data))[0] == kind
    # Tag and value of each field, and the last byte of each looked at once more.
    assert Counting.asked <= 8 * wire_guess.MAX_FIELDS + 100


def test_only_the_first_bytes_count():
    head = field(1, b"w" * 300) * (wire_guess.MAX_LOOK // 303)
    rest = bytes(wire_guess.MAX_LOOK - len(head))
    assert guess(head)[0] == "message"
    assert guess(head + rest)[0] == "bytes"
    pad = field(1, b"w" * (len(rest) - 2))
    assert len(head + pad) == wire_guess.MAX_LOOK
    assert guess(head + pad + b"\x00" * 1000)[0] == "message"


def test_confidence_grows_with_evidence():
    growing = [guess(b"\x08\x05\x10\x07\x18\x50"[:end])[1] for end in (2, 4, 6)]
    assert all(left <= right for left, right in pairwise(growing))
    assert guess(b"xy")[1] < guess(b"xyzxyz")[1]
