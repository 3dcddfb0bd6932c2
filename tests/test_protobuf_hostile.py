"""Messages and chunked protos made to mislead, to swell, or to stall: each of these did once."""

from __future__ import annotations

import io

import pytest

import pparse
from pparse import Status
from pparse.data.base import BytesData, IoStats
from pparse.data.files import FileData
from pparse.errors import CancelledError, LimitError
from pparse.kernels.varint import encode_varint
from pparse.parsers.protobuf.check import Checker
from pparse.protos import message_class, schema
from pparse.riegeli import RecordWriter
from tests import sweep
from tests.rows import rows

MANY = "tensorflow.proto_splitter_testdata.ManyFields"
TREE = "tensorflow.proto_splitter_testdata.StringNode"


def length(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)


def opened(data, message: str = MANY, format: str = "protobuf", **options):
    return pparse.open(data, format=format, options={"message": message}, **options)


def chunked(chunks, tree: bytes, *, options: str = "uncompressed", before: bytes = b"") -> bytes:
    """Return a .cpb of ``(bytes, type)`` chunks whose ChunkedMessage is ``tree``, serialized by hand."""
    out = io.BytesIO()
    metadata = before
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        for content, kind in chunks:
            writer.write_record(content)
            info = number_field(1, kind) + number_field(2, len(content)) + number_field(3, writer.last_pos.numeric)
            metadata += length(2, info)
        writer.write_record(metadata + length(3, tree))
    return out.getvalue()


def steps(*tag) -> bytes:
    """Return the field_tag of a chunked field: numbers are fields, ``[n]`` an index, text a key."""
    out = b""
    for step in tag:
        if isinstance(step, list):
            out += length(1, number_field(3, step[0]))
        elif isinstance(step, str):
            out += length(1, length(2, length(1, step.encode())))
        else:
            out += length(1, number_field(1, step))
    return out


def chunked_field(tag: bytes, chunk: int | None, below: bytes = b"") -> bytes:
    own = number_field(1, chunk) if chunk is not None else b""
    return length(2, tag + length(3, own + below))


# -- values ----------------------------------------------------------------------------------------------------------


def test_the_last_whole_scalar_of_very_many():
    """Above 100,000 occurrences offsets are checkpoints; one cut at the end must not bring back an old value."""
    raw = b"".join(number_field(1, at & 127) for at in range(100_100)) + b"\x88"
    with opened(raw, "tensorflow.VersionDef") as doc:
        assert doc.get("producer") == 100_099 & 127
        assert doc.status is Status.TRUNCATED


def test_a_oneof_message_in_too_many_parts():
    raw = length(2, b"s") + length(8, length(4, b"x")) + length(8, b"") * 100_100
    with opened(raw, "tensorflow.AttrValue") as doc:
        (node,) = doc.root.children()
        assert node.status is Status.UNSUPPORTED
    with opened(length(2, b"s") + length(8, length(4, b"x")) + length(8, b"") * 10, "tensorflow.AttrValue") as doc:
        assert doc.get("tensor.tensor_content") == b"x"


def test_a_tag_cut_at_the_end_hides_nothing():
    """Read on into nothing, the first byte of a long tag is the tag of another field."""
    with opened(length(1, b"good") + b"\x8a", "tensorflow.NodeDef") as doc:
        assert doc.get("name") == "good"
        assert [kid.key for kid in doc.root.children()] == ["name"]
        assert doc.status is Status.TRUNCATED


@pytest.mark.parametrize(
    ("bad", "before", "behind"),
    [(b"\xff" * 10 + b"\1", 20_000, 20_000), (b"\x80", 40_000, 0)],
    ids=["one too long", "the last one cut"],
)
def test_a_bad_number_among_more_packed_ones_than_a_block_has_is_found(bad, before, behind, monkeypatch):
    monkeypatch.setattr("pparse.parsers.protobuf.check._BLOCK", 4 << 10)
    values = b"\1" * before + bad + b"\1" * behind
    with opened(length(7, values.replace(bad, b"\1")), "tensorflow.TensorProto") as doc:
        assert list(doc.check()) == []
    with opened(length(7, values), "tensorflow.TensorProto") as doc:
        assert {finding.path.partition("[")[0] for finding in doc.check()} == {"int_val"}


def test_an_overlay_entry_does_not_heal_a_damaged_pair():
    pair = length(1, b"k") + encode_varint(2 << 3 | 2) + encode_varint(4) + number_field(1, 5)
    base = length(5, pair)
    tree = number_field(1, 0) + chunked_field(steps(5, "k"), 1)
    with opened(chunked([(base, 1), (number_field(3, 7), 1)], tree), "tensorflow.NodeDef", "cpb") as doc:
        (kid,) = doc.node("attr").children()
        assert kid.status is Status.DAMAGED
        assert list(doc.check())


def test_damage_below_an_overlay_entry_is_found():
    """Bytes of the base that a later value replaces are damaged: what is shown is whole, and `check` says it."""
    bad = length(5, length(1, b"k") + encode_varint(2 << 3 | 2) + encode_varint(90))
    good = length(5, length(1, b"k") + length(2, number_field(3, 1)))
    tree = number_field(1, 0) + chunked_field(steps(1), 1)
    with opened(chunked([(bad + good, 1), (b"name", 2)], tree), "tensorflow.NodeDef", "cpb") as doc:
        assert doc.get("name") == "name"
        assert [finding.code for finding in doc.check()] == ["malformed"]


# -- one bad chunked field -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        chunked_field(steps(3, [0]), 0),  # an index of a text
        chunked_field(steps(4, [0], 1), 0),  # below a text
        length(2, b"\x0a\x7f"),  # a tag that is longer than its field
        chunked_field(steps(1), 1, length(2, b"\x0a\x7f")),
        chunked_field(steps(*[1] * 300), 1),
        chunked_field(steps(1), 99),
    ],
)
def test_one_bad_chunked_field(bad):
    """It costs its place; all else is there, and `check` names it."""
    base = length(3, b"text") + length(4, b"one")
    data = chunked([(base, 1), (length(3, b"below"), 1)], number_field(1, 0) + bad)
    with opened(data, format="cpb") as doc:
        list(doc.root.children())
        assert doc.get("string_field") == "text" if bad != chunked_field(steps(3, [0]), 0) else True
        assert list(doc.check())


def test_metadata_that_end_before_the_message():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        writer.write_record(length(3, b"text"))
        writer.write_record(length(2, number_field(1, 1) + number_field(2, 6) + number_field(3, 64)))
    with opened(out.getvalue(), format="cpb") as doc:
        assert doc.root.kind == "chunk[]"
        assert doc.status is Status.DAMAGED


# -- damage around the metadata --------------------------------------------------------------------------------------


@pytest.fixture
def two_blocks():
    """A file of two blocks of 64 KiB: a small base and a large chunk."""
    tree = number_field(1, 0) + chunked_field(steps(3), 1)
    chunks = [(length(4, b"one"), 1), (b"x" * 100_000, 2)]
    out = io.BytesIO()
    metadata = b""
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        for content, kind in chunks:
            writer.write_record(content)
            info = number_field(1, kind) + number_field(2, len(content)) + number_field(3, writer.last_pos.numeric)
            metadata += length(2, info)
            writer.flush()
        writer.write_record(metadata + length(3, tree))
    return bytearray(out.getvalue())


@pytest.mark.parametrize("how", ["zeros behind", "a block header", "the first block header"])
def test_metadata_are_found_all_the_same(two_blocks, how):
    if how == "zeros behind":
        two_blocks += bytes(500)
    elif how == "a block header":
        two_blocks[65536:65544] = bytes(8)
    else:
        two_blocks[10:14] = b"abcd"
    with opened(bytes(two_blocks), format="cpb") as doc:
        assert doc.get("string_field") == "x" * 100_000
        assert doc.get("repeated_string_field[0]") == "one"
        assert "could still be read" in next(iter(doc.check())).reason


def test_a_large_chunk_is_hashed_by_check(tmp_path):
    tree = number_field(1, 0) + chunked_field(steps(3), 1)
    data = bytearray(chunked([(b"", 1), (b"y" * (6 << 20), 2)], tree))
    data[3_000_000] ^= 1
    with opened(bytes(data), format="cpb") as doc:
        found = list(doc.check())
        assert any("hash" in finding.reason for finding in found)


def test_the_record_at_the_cut_is_listed(two_blocks):
    with opened(bytes(two_blocks[:80_000]), format="cpb") as doc:
        kids = list(doc.root.children())
        assert [kid.status for kid in kids[:1]] != [Status.TRUNCATED]
        assert kids[-1].status is Status.TRUNCATED
        assert kids[-1].finding.got < 100_000


# -- cost ------------------------------------------------------------------------------------------------------------


def test_bytes_are_not_checked_again_for_each_level(monkeypatch):
    """One damaged text, deep down: what is before it was seen to be sound."""
    message = message_class(TREE)(val="x" * 50)
    for _ in range(60):
        message = message_class(TREE)(val="y" * 50, child_nodes=[message])
    raw = message.SerializeToString().replace(b"x" * 50, b"\xff" * 50)
    scans = []
    walk = Checker._walk
    monkeypatch.setattr(Checker, "_walk", lambda self, part, *how: scans.append(len(part)) or walk(self, part, *how))
    with opened(raw, TREE) as doc:
        assert len(list(doc.check())) == 1
    assert sum(scans) < 3 * len(raw)


def test_large_keys_and_too_many_keys_are_refused():
    large = length(5, length(1, b"k" * (2 << 20)) + length(2, b""))
    with opened(large, "tensorflow.NodeDef") as doc, pytest.raises(LimitError, match="name_bytes"):
        list(doc.node("attr").children())
    pairs = b"".join(length(5, length(1, b"%d" % at) + length(2, number_field(3, at))) for at in range(60_000))
    with opened(pairs, "tensorflow.NodeDef", budget="8MiB") as doc, pytest.raises(LimitError, match="budget="):
        list(doc.node("attr").children())


def test_a_number_in_the_metadata_is_no_gigabyte():
    consumers = length(1, length(3, bytes(8 << 20)))
    data = chunked([(b"", 1)], number_field(1, 0), options="brotli:1", before=consumers)
    with opened(data, format="cpb") as doc:
        assert doc.root.kind == "chunk[]"
        assert "too large" in doc.root.finding.reason if doc.root.load() is not None and doc.root.finding else True


def test_opening_a_riegeli_file_does_not_scan_its_last_record(tmp_path):
    path = tmp_path / "records"
    with RecordWriter(str(path), options="uncompressed") as writer:
        writer.write_record(number_field(1, 1) * 2_000_000)
    stats = IoStats()
    with FileData(path, stats=stats) as data, pparse.open(data) as doc:
        assert doc.format == "riegeli"
        assert stats.bytes < 1_000_000


def test_cancelled_is_no_damage():
    calls = []

    def cancel() -> bool:
        calls.append(1)
        return len(calls) > 3

    tree = number_field(1, 0) + chunked_field(steps(3), 1)
    data = chunked([(length(4, b"one") * 50_000, 1), (b"y" * 1000, 2)], tree)
    with opened(data, format="cpb", cancel=cancel) as doc, pytest.raises(CancelledError):
        list(doc.check())


def test_types_are_decimal():
    with pytest.raises(pparse.PparseError, match="items like"):
        pparse.open(b"\x08\x01", format="protobuf", options={"types": "²=message"}).root.load()


@pytest.mark.parametrize(
    ("behind", "what"),
    [(b"\x4c", "an end of a group of the same number"), (b"\x0a\x03\x0a\x01n", "another node"), (b"", "nothing")],
)
def test_a_group_that_does_not_end_in_its_message_is_found_in_that_message(behind, what):
    """What follows the message is none of it: the fault is where the group begins, not where it seems to end."""
    graph = b"\x0a\x04\x0a\x01aK" + behind  # the first node has a name, and begins the group 9
    with pparse.open(graph, format="protobuf", options={"message": "tensorflow.GraphDef"}) as document:
        found = list(document.check())
    assert any(finding.path.startswith("node[0]") for finding in found), what
    assert not any("but no field that is shown is" in finding.reason for finding in found)


def test_messages_that_come_again_are_checked_as_the_first(monkeypatch) -> None:
    attr = length(1, b"T") + length(2, b"\x30\x01")
    names = [f"n{number}".encode() for number in range(4)]
    nodes = [
        length(1, name) + length(2, b"Add") + length(5, attr) + length(5, attr[:4] + b"\x02\x28\x01") for name in names
    ]
    graph = b"".join(length(1, one) for one in nodes)
    type = schema().message("tensorflow.GraphDef")

    def said(content: bytes) -> tuple[bool, int]:
        checker = Checker(lambda: None)
        return checker.sound(BytesData(content).range(0, len(content)), type), checker.stopped

    assert said(graph)[0]
    for at in sweep.some(range(len(graph)), 3):
        for byte in (0x0B, 0x13, 0x2B, 0xFF, graph[at] ^ 1, graph[at] ^ 0x20):  # groups, too
            damaged = graph[:at] + bytes((byte,)) + graph[at + 1 :]
            found = said(damaged)
            with monkeypatch.context() as alone:
                alone.setattr("pparse.parsers.protobuf.check._SMALL", -1)
                sound, stopped = said(damaged)
                assert found == (sound, stopped if not sound else found[1]), damaged
    checker = Checker(lambda: None)
    bad = graph.replace(b"\x30\x01", b"\x35\x01")
    for content in (bad, bad, graph, bad):  # what is not sound is not kept
        assert checker.sound(BytesData(content).range(0, len(content)), type) is (content is graph)


def node_by_node(content: bytes, limits: pparse.Limits | None = None) -> list[str]:
    with pparse.open(content, format="protobuf", limits=limits) as document:
        return [*map(str, document.check()), str(document.status)]


def test_small_messages_of_unknown_type_are_not_guessed(monkeypatch) -> None:
    def no_guess(*_: object) -> None:
        raise AssertionError("a small message was looked into")

    monkeypatch.setattr("pparse.kernels.wire_guess.guess", no_guess)
    assert node_by_node(length(1, length(1, b"n") + length(2, length(1, b"T") * 3)) * 300) == ["complete"]


BROKEN = number_field(1, 1) * 5_000 + b"\x0f"  # a guess goes by its first fields


@rows(
    "content, limits, told",
    [
        (length(1, BROKEN) * 2, {}, "no wire type 7"),
        (length(1, b"\x0a\x02hi" * 3) * 2 + b"\x0a\x05\x0a\x02hi", {}, "truncated [1][2]"),
        (b"\x0b\x0a\x01a\x0c" * 2 + b"\x0b\x0a\x01a", {}, "truncated"),
        (length(1, length(1, length(1, b"\x08\x01" * 2) * 2) * 2) * 2, {"depth": 5}, "limit depth=5"),
        (length(1, length(1, length(1, b"\x08\x01"))) * 2, {"depth": 3}, "limit depth=3"),
        (length(1, b"".join(number_field(number, 1) for number in range(1, 6))) * 2, {"entries": 4}, "limit entries=4"),
    ],
)
def test_what_is_wrong_in_messages_of_unknown_type_is_found(monkeypatch, content, limits, told) -> None:
    found = node_by_node(content, pparse.Limits(**limits))
    assert told in " ".join(found)
    with monkeypatch.context() as alone:
        alone.setattr("pparse.parsers.protobuf.parser.TreeCheck._is_small", lambda *_: False)
        assert node_by_node(content, pparse.Limits(**limits)) == found
