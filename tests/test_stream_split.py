"""Splitting from the file: what becomes a chunk, that nothing is lost, what is refused, and in how much memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import EndOfDataError, MalformedError, OptionError, SourceError, SplitError
from pparse.proto_splitter import Merger, set_max_size
from pparse.proto_splitter.stream_merge import merge_to_file
from pparse.proto_splitter.stream_split import split_document, split_file
from pparse.protos import message_class
from pparse.riegeli import RecordReader
from tests import sweep
from tests.protobuf_referee import FDP, Chooser, World, entry_type, fill, plain, random_schema, tagged, twisted, varint
from tests.splitter_samples import make_graph_def_with_constant_nodes, tags_of

TEST = "tensorflow.proto_splitter_testdata."
MANY = TEST + "ManyFields"
LISTS = TEST + "RepeatedRepeatedString"
GRAPH = "tensorflow.GraphDef"
Many = message_class(MANY)
Lists = message_class(LISTS)
GraphDef = message_class(GRAPH)
Metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")
MESSAGE, BYTES = 1, 2
MIB = 1 << 20


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """A fresh folder, for each example of a property too."""
    return lambda: tmp_path_factory.mktemp("split")


def split(folder, raw: bytes, message: str | None, limit: int, descriptor=None, options: str | None = None):
    """Split bytes in a folder; check what holds for every result."""
    source = folder / "source.bin"
    source.write_bytes(raw)
    report = split_file(
        source, str(folder / "out"), message=message, descriptor=descriptor, max_size=limit, writer_options=options
    )
    assert report.message_size == len(raw)
    assert report.size == os.path.getsize(report.path)
    assert report.chunked == (len(raw) > limit)
    assert sorted(os.listdir(folder)) == sorted(["source.bin", os.path.basename(report.path)])
    if report.chunked:
        check_chunks(report)
    else:
        assert (folder / "out.pb").read_bytes() == raw
    return report


def check_chunks(report):
    """Types, sizes and positions in the metadata are those of the records; no message chunk is above the limit."""
    with RecordReader(report.path) as reader:
        found = [(record, reader.last_pos.numeric) for record in reader]
    metadata = Metadata.FromString(found.pop()[0])
    assert [(info.size, info.offset) for info in metadata.chunks] == [(len(record), at) for record, at in found]
    assert all(info.size <= report.limit for info in metadata.chunks if info.type == MESSAGE)
    assert {info.type for info in metadata.chunks} <= {MESSAGE, BYTES}
    assert report.chunks == len(found)
    assert report.fields == len(found) - 1
    assert report.largest == max(len(record) for record, _ in found)
    return metadata, [record for record, _ in found]


def check_merges(folder, report, raw: bytes, kind: type, message: str, descriptor=None) -> bytes:
    """Both mergers give the message back; return what the streaming one wrote."""
    wanted = plain(kind.FromString(raw))
    merged = kind()
    Merger.read(str(folder / "out"), merged)
    assert plain(merged) == wanted
    merge_to_file(report.path, str(folder / "back.pb"), message=message, descriptor=descriptor)
    back = (folder / "back.pb").read_bytes()
    assert plain(kind.FromString(back)) == wanted
    return back


# -- nothing is lost -------------------------------------------------------------------------------------------------


def many_fields(depth: int):
    text = st.text(max_size=40)
    leaf = {
        "string_field": text,
        "repeated_string_field": st.lists(text, max_size=3),
        "map_field_uint32": st.dictionaries(st.integers(0, (1 << 32) - 1), text, max_size=3),
        "map_field_int64": st.dictionaries(st.integers(-(1 << 63), (1 << 63) - 1), text, max_size=3),
    }
    if depth:
        below = many_fields(depth - 1)
        leaf |= {
            "field_one": below,
            "repeated_field": st.lists(below, max_size=3),
            "nested_map_bool": st.dictionaries(st.booleans(), below, max_size=2),
        }
    return st.builds(Many, **leaf)


@settings(max_examples=sweep.examples(60))
@given(st.data())
def test_messages_of_many_fields_are_split_and_merged_again(work, data):
    message = data.draw(many_fields(2))
    folder, raw = work(), message.SerializeToString()
    limit = data.draw(st.integers(20, max(21, len(raw) + 2)))
    try:
        report = split(folder, raw, MANY, limit, options=data.draw(st.sampled_from(["", "uncompressed", "zstd"])))
    except SplitError:
        assert os.listdir(folder) == ["source.bin"]
        return
    if report.chunked:
        check_merges(folder, report, raw, Many, MANY)


@pytest.mark.parametrize("seed", range(120))
def test_messages_of_any_schema_are_split_and_merged_again(work, seed):
    """proto2 and proto3, groups, oneofs, maps, extensions, packed or not; serialized in odd ways, with noise."""
    choose = Chooser.seeded(("stream", seed))
    world = random_schema(choose, choose.of(["proto2", "proto3"]))
    kind = world.cls("p.M0")
    message = kind()
    fill(choose, message, 4)
    raw = message.SerializeToString()
    if choose.chance(2):
        raw = twisted(choose, kind.DESCRIPTOR, raw, shuffle=choose.chance(2))
    folder = work()
    limit = max(2, choose.of([12, 30, 60, 100, 300, len(raw) // 2, len(raw) - 1]))
    try:
        report = split(folder, raw, "p.M0", limit, world.descriptor)
    except SplitError:
        assert os.listdir(folder) == ["source.bin"]
        return
    except OptionError:  # nothing but noise
        assert not kind.FromString(raw).ListFields()
        return
    if report.chunked:
        check_merges(folder, report, raw, kind, "p.M0", world.descriptor)


@pytest.mark.parametrize("limit", [40, 100, 333, 1000])
def test_the_same_bytes_again(work, limit):
    """Where the chunks are for fields that come last anyway, nothing is put into another order."""
    folder = work()
    message = Lists(
        filler_field=7, rs=[{"strings": ["x" * (7 * at % 31) for at in range(count)]} for count in (1, 40, 0, 3, 60, 2)]
    )
    raw = message.SerializeToString()
    report = split(folder, raw, LISTS, limit)
    assert report.chunks > 2
    assert check_merges(folder, report, raw, Lists, LISTS) == raw
    folder = work()
    graph = make_graph_def_with_constant_nodes([50, 900, 120, 3000, 70])
    raw = graph.SerializeToString(deterministic=True)
    report = split(folder, raw, GRAPH, limit)
    assert check_merges(folder, report, raw, GraphDef, GRAPH) == raw


def test_what_becomes_a_chunk(work):
    """Large bytes by themselves; what is left of a large message in slices; an empty element keeps a place."""
    graph = make_graph_def_with_constant_nodes([100, 2000, 100], fn=[100] * 12)
    folder = work()
    report = split(folder, graph.SerializeToString(), GRAPH, 900)
    metadata, chunks = check_chunks(report)
    content = graph.node[1].attr["value"].tensor.tensor_content
    assert chunks.count(content) == 1
    assert metadata.chunks[chunks.index(content)].type == BYTES
    assert metadata.message.chunk_index == 0
    # The library is one function of 1,200 bytes: two slices of it.
    assert tags_of(metadata.message) == [("2.1.#0", 2), ("2.1.#0", 3), ("1.#1.5.'value'.8.4", 1)]
    first = GraphDef.FromString(chunks[0])
    assert [node.name for node in first.node] == [node.name for node in graph.node]
    assert [function.ByteSize() for function in first.library.function] == [0]
    assert report.type == GRAPH
    assert "4 chunks" in repr(report)


def test_options_of_the_writer(work):
    graph = make_graph_def_with_constant_nodes([5000, 5000])
    sizes = {}
    for options in ("uncompressed", "transpose,zstd", None):
        folder = work()
        report = split(folder, graph.SerializeToString(), GRAPH, 4000, options=options)
        check_merges(folder, report, graph.SerializeToString(), GraphDef, GRAPH)
        sizes[options] = report.size
    assert sizes["uncompressed"] > 2 * sizes[None]
    with pytest.raises(MalformedError, match="unknown option lzma"):
        split(work(), graph.SerializeToString(), GRAPH, 4000, options="lzma")


def test_the_limit_of_the_process(work):
    graph = make_graph_def_with_constant_nodes([5000]).SerializeToString()
    with set_max_size(4000):
        report = split_whole(work(), graph)
    assert (report.chunked, report.limit) == (True, 4000)
    assert not split_whole(work(), graph).chunked
    assert split_whole(work(), graph, max_size="2GiB").limit == (1 << 31) - 1


def split_whole(folder, raw: bytes, **more):
    (folder / "it.bin").write_bytes(raw)
    return split_file(folder / "it.bin", str(folder / "deep" / "er" / "out"), message=GRAPH, **more)


# -- what must not be moved ------------------------------------------------------------------------------------------


def world() -> World:
    """``w.W``, proto2: packed numbers, a group, a oneof, maps of messages and in them, an extension."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto2")
    message = file.message_type.add(name="W")

    def add(name, number, kind, label=FDP.LABEL_OPTIONAL, **more):
        return message.field.add(name=name, number=number, type=kind, label=label, **more)

    add("text", 1, FDP.TYPE_STRING)
    add("below", 2, FDP.TYPE_MESSAGE, type_name=".w.W")
    add("numbers", 3, FDP.TYPE_INT64, FDP.LABEL_REPEATED).options.packed = True
    add("doubles", 4, FDP.TYPE_DOUBLE, FDP.LABEL_REPEATED).options.packed = True
    nested = message.nested_type.add(name="Gr")
    nested.field.add(name="s", number=1, type=FDP.TYPE_STRING, label=FDP.LABEL_OPTIONAL)
    add("gr", 5, FDP.TYPE_GROUP, type_name=".w.W.Gr")
    message.oneof_decl.add(name="either")
    add("one", 6, FDP.TYPE_MESSAGE, type_name=".w.W", oneof_index=0)
    add("other", 7, FDP.TYPE_BYTES, oneof_index=0)
    for name, number, key in (("by_text", 8, FDP.TYPE_STRING), ("by_long", 9, FDP.TYPE_INT64)):
        field = add(name, number, FDP.TYPE_MESSAGE, type_name=".w.W")
        message.nested_type.add().CopyFrom(entry_type(f"E{number}", key, field))
        field.label, field.type_name = FDP.LABEL_REPEATED, f".w.W.E{number}"
    add("list", 10, FDP.TYPE_BYTES, FDP.LABEL_REPEATED)
    message.extension_range.add(start=100, end=200)
    file.extension.add(name="ext", number=100, extendee=".w.W", type=FDP.TYPE_BYTES, label=FDP.LABEL_OPTIONAL)
    return World(file)


WORLD = world()
W = WORLD.cls("w.W")


def text(count: int) -> bytes:
    return tagged(1, 2, b"x" * count)


def pair(number: int, key: bytes, value: bytes) -> bytes:
    return tagged(number, 2, tagged(1, 2, key) + tagged(2, 2, value))


# Bytes, the limit, and how many chunks.
CASES = {
    "packed varints": (tagged(3, 2, b"".join(varint(at * at * at) for at in range(400))), 100, 15),
    "packed doubles": (tagged(4, 2, bytes(range(200)) * 8), 100, 17),
    "packed doubles, little room": (tagged(4, 2, bytes(range(160))), 10, 20),
    "a singular message twice": (tagged(2, 2, text(40)) + tagged(2, 2, text(30)), 60, 2),
    "a text twice": (text(50) + text(45), 60, 2),
    "a oneof, the last wins": (tagged(7, 2, b"y" * 50) + tagged(6, 2, text(40)), 70, 2),
    "a oneof, one member": (tagged(6, 2, text(60)) + tagged(10, 2, b"z"), 60, 2),
    "a key twice, both large": (
        pair(8, b"k", text(60) + tagged(10, 2, b"a")) + pair(8, b"k", tagged(7, 2, b"b" * 60)),
        100,
        2,
    ),
    "a key twice, the last small": (pair(8, b"k", text(60)) + pair(8, b"k", b""), 72, 1 + 1),
    "a key twice, the first small": (pair(8, b"k", tagged(10, 2, b"a")) + pair(8, b"k", text(60)), 72, 2),
    "large values of two keys": (pair(8, b"k", text(60)) + pair(8, b"l", text(60)), 60, 3),
    "maps in maps": (pair(8, b"k", pair(8, b"l", text(60) + pair(8, b"m", text(70)))), 60, 3),
    "keys of 64 bits": (
        tagged(9, 2, varint(8) + varint(1 << 40) + tagged(2, 2, text(30)))
        + tagged(9, 2, varint(8) + varint(5) + tagged(2, 2, text(30))),
        45,
        3,
    ),
    "unknown fields": (text(1) + tagged(30, 2, b"u" * 40) + tagged(31, 0, varint(7)) + tagged(30, 2, b"v" * 40), 60, 2),
    "a group": (tagged(5, 3, tagged(1, 2, b"g" * 50)) + text(50), 60, 2),
    "an extension": (tagged(100, 2, b"e" * 50) + text(20), 60, 2),
    "large bytes of a large message": (tagged(2, 2, text(30) + tagged(7, 2, b"b" * 500)), 120, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_corner_cases_are_split_into_the_chunks_they_should(work, name):
    raw, limit, chunks = CASES[name]
    folder = work()
    report = split(folder, raw, "w.W", limit, WORLD.descriptor, "uncompressed")
    assert report.chunks == chunks
    check_merges(folder, report, raw, W, "w.W", WORLD.descriptor)


TOO_LARGE = {
    "an element of a list of bytes": (tagged(10, 2, b"y" * 90), "list at 0", 92),
    "an unknown field": (text(1) + tagged(30, 2, b"y" * 90), "field 30 ", 93),
    "a group": (tagged(5, 3, text(90)), "gr at 0", 94),
    "an extension": (tagged(100, 2, b"e" * 90), r"\[w.ext\] at 0", 93),
    "a text that comes twice": (text(5) + text(90), "text at 7", 92),
    "in a message": (tagged(2, 2, text(50) + tagged(10, 2, b"y" * 90)), "list at ", 92),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_cannot_be_cut(work, name):
    raw, words, size = TOO_LARGE[name]
    folder = work()
    with pytest.raises(SplitError, match=words) as caught:
        split(folder, raw, "w.W", 80, WORLD.descriptor)
    assert (caught.value.wanted, caught.value.got) == (size, 80)
    assert os.listdir(folder) == ["source.bin"]


def test_messages_deeper_than_100_are_refused(work):
    raw = text(200)
    for _ in range(90):
        raw = tagged(2, 2, raw)
    folder = work()
    report = split(folder, raw, "w.W", 150, WORLD.descriptor)
    check_merges(folder, report, raw, W, "w.W", WORLD.descriptor)
    for _ in range(2000):
        raw = tagged(2, 2, raw)
    with pytest.raises(SplitError, match="deeper than 100"):
        split(work(), raw, "w.W", 150, WORLD.descriptor)


# -- bad input -------------------------------------------------------------------------------------------------------


def test_every_prefix_is_refused_or_split_and_leaves_nothing_behind(work):
    message = Many(string_field="s" * 20, repeated_string_field=["t" * 20] * 2)
    message.field_one.string_field = "u" * 40
    raw = message.SerializeToString()
    for limit in (30, 1000):
        refused = 0
        for length in range(1, len(raw)):
            folder = work()
            try:
                report = split(folder, raw[:length], MANY, limit)
            except (MalformedError, EndOfDataError):
                refused += 1
                assert os.listdir(folder) == ["source.bin"]
            else:  # cut between two fields: nobody can tell
                Many.FromString(raw[:length])
                if report.chunked:
                    check_merges(folder, report, raw[:length], Many, MANY)
        assert refused > 0.9 * len(raw)


def test_damage_is_told_with_its_offset(work):
    raw = bytearray(Many(string_field="s" * 20, repeated_string_field=["t" * 50]).SerializeToString())
    raw[22] = 0x0F  # where the second field begins: no wire type
    folder = work()
    with pytest.raises(MalformedError, match=r"@0x16"):
        split(folder, bytes(raw), MANY, 30)
    assert os.listdir(folder) == ["source.bin"]


def test_what_is_no_plain_message(tmp_path):
    path = tmp_path / "x"
    path.write_text('{"a": 1}')
    with pytest.raises(OptionError, match="not a protocol buffer message, but json"):
        split_file(path, str(tmp_path / "out"))
    path.write_bytes(Many(string_field="x" * 100).SerializeToString())
    with pytest.raises(
        OptionError, match=r"no\.Such: there is no message with this name.* options=.\"descriptor\": \"FILE\""
    ):
        split_file(path, str(tmp_path / "out"), message="no.Such")
    with pytest.raises(ValueError, match="at least one byte"):
        split_file(path, str(tmp_path / "out"), message=MANY, max_size=0)
    report = split_file(path, str(tmp_path / "out"), message=MANY, max_size=50)
    with pparse.open(report.path) as document, pytest.raises(OptionError, match="in chunks already"):
        split_document(document, str(tmp_path / "again"), limit=20)
    with pparse.open(path, format="protobuf") as document, pytest.raises(OptionError, match="is not known"):
        split_document(document, str(tmp_path / "again"), limit=20)
    assert sorted(os.listdir(tmp_path)) == ["out.cpb", "x"]


def test_the_source_is_never_removed(tmp_path):
    raw = Many(string_field="x" * 100).SerializeToString()
    source = tmp_path / "it.pb"
    source.write_bytes(raw)
    report = split_file(source, str(tmp_path / "it"), message=MANY, max_size=50)
    assert (report.chunked, report.removed, source.read_bytes()) == (True, "", raw)
    with pytest.raises(OptionError, match="within the limit"):
        split_file(source, str(tmp_path / "it"), message=MANY)
    assert sorted(os.listdir(tmp_path)) == ["it.cpb", "it.pb"]
    other = tmp_path / "other.bin"
    other.write_bytes(raw)
    report = split_file(other, str(tmp_path / "it"), message=MANY, max_size=50)
    assert report.removed == str(source)
    report = split_file(other, str(tmp_path / "it"), message=MANY)
    assert report.removed == str(tmp_path / "it.cpb")
    assert sorted(os.listdir(tmp_path)) == ["it.pb", "other.bin"]


def test_the_source_is_never_replaced(tmp_path):
    """A message under the name of one in chunks; by a link, too."""
    raw = Many(string_field="x" * 100).SerializeToString()
    source, link = tmp_path / "it.cpb", tmp_path / "link.cpb"
    source.write_bytes(raw)
    os.link(source, link)
    for prefix in ("it", "link"):
        with pytest.raises(OptionError, match=r"\.cpb is the file being split; name another output"):
            split_file(source, str(tmp_path / prefix), message=MANY, max_size=50)
    assert (source.read_bytes(), link.read_bytes()) == (raw, raw)
    report = split_file(source, str(tmp_path / "it"), message=MANY)
    assert (report.removed, source.read_bytes(), (tmp_path / "it.pb").read_bytes()) == ("", raw, raw)


def test_a_type_that_is_not_the_one(tmp_path):
    """Of which no field is there: all would be unknown."""
    source = tmp_path / "graph.pb"
    source.write_bytes(make_graph_def_with_constant_nodes([100] * 3).SerializeToString())
    for limit in (50, 5000):
        with pytest.raises(OptionError, match=r"SavedModel has none of the fields of .*graph.pb; check --type"):
            split_file(source, str(tmp_path / "out"), message="tensorflow.SavedModel", max_size=limit)
    assert os.listdir(tmp_path) == ["graph.pb"]
    source.write_bytes(b"")
    assert split_file(source, str(tmp_path / "out"), message="tensorflow.SavedModel").size == 0


def test_text_that_is_no_utf8(work):
    """proto2 lets it pass in a string field: as a chunk of its own no merger would."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto2")
    message = file.message_type.add(name="T")
    message.field.add(name="text", number=1, type=FDP.TYPE_STRING, label=FDP.LABEL_OPTIONAL)
    message.field.add(name="bytes", number=2, type=FDP.TYPE_BYTES, label=FDP.LABEL_OPTIONAL)
    world = World(file)
    bad = b"\xc3\xa9" * 30 + b"\xff"
    raw = tagged(1, 2, bad) + tagged(2, 2, b"\xff" * 90)
    folder = work()
    report = split(folder, raw, "t.T", 100, world.descriptor)
    assert [info.type for info in check_chunks(report)[0].chunks] == [MESSAGE, BYTES]
    assert check_merges(folder, report, raw, world.cls("t.T"), "t.T", world.descriptor) == raw
    with pytest.raises(SplitError, match="the field text at 0 takes 63 B and cannot be cut"):
        split(work(), raw, "t.T", 50, world.descriptor)


def test_where_nothing_can_be_written(tmp_path):
    source = tmp_path / "it.bin"
    source.write_bytes(Many(string_field="x" * 100).SerializeToString())
    for limit in (50, 500):
        with pytest.raises(SourceError, match="cannot create"):
            split_file(source, str(source / "out"), message=MANY, max_size=limit)
    (tmp_path / "out.cpb").mkdir()
    with pytest.raises(SourceError, match="cannot write"):
        split_file(source, str(tmp_path / "out"), message=MANY, max_size=50)
    assert sorted(os.listdir(tmp_path)) == ["it.bin", "out.cpb"]


def test_progress_and_cancelling(tmp_path):
    source = tmp_path / "it.bin"
    source.write_bytes(make_graph_def_with_constant_nodes([5000] * 3).SerializeToString())
    told = []
    report = split_file(
        source, str(tmp_path / "out"), message=GRAPH, max_size=4000, progress=lambda *words: told.append(words)
    )
    told = [row for row in told if row[2] == "splitting"]
    assert len(told) == report.chunks
    assert told[-1][0] == told[-1][1]
    options = {"message": GRAPH}
    with pparse.open(source, format="protobuf", options=options, cancel=lambda: True) as document:
        for limit in (4000, 1 << 20):
            with pytest.raises(pparse.CancelledError):
                split_document(document, str(tmp_path / "no"), limit=limit)
    assert sorted(os.listdir(tmp_path)) == ["it.bin", "out.cpb"]


# -- memory ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
import brotli, numpy
import pparse.parsers.cpb.parser, pparse.parsers.tensorflow, pparse.riegeli.writer
from pparse.codecs.base import ZSTD, package
from pparse.proto_splitter.stream_merge import merge_to_file
from pparse.proto_splitter.stream_split import split_file

package(ZSTD)

def memory(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

before = memory("VmRSS")
source, prefix, limit, options, budget = sys.argv[1:]
more = {"message": "tensorflow.GraphDef", "budget": budget}
report = split_file(source, prefix, max_size=int(limit), writer_options=options, **more)
merge_to_file(report.path, prefix + ".back", **more)
print(json.dumps({"grown": memory("VmHWM") - before, "chunks": report.chunks}))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
@pytest.mark.parametrize(("part", "options", "chunks"), [(0.005, "uncompressed", 4), (5, "", 0), (0.75, "zstd:1", 3)])
def test_a_message_larger_than_the_budget_is_split_within_it(tmp_path, part, options, chunks):
    """A message three times as large as the budget, most of it in holes of the file, within the budget."""
    source = tmp_path / "big.pb"
    budget = (64 if sweep.full else 16) * MIB
    sizes = (budget * 3 // 2, budget, budget // 2)
    limit = int(part * sum(sizes))
    with open(source, "wb") as file:
        for size in sizes:
            tensor = varint(4 << 3 | 2) + varint(size)
            value = varint(8 << 3 | 2) + varint(len(tensor) + size) + tensor
            attr = tagged(1, 2, b"value") + varint(2 << 3 | 2) + varint(len(value) + size) + value
            node = tagged(1, 2, b"c%d" % size) + tagged(2, 2, b"Const") + varint(5 << 3 | 2) + varint(len(attr) + size)
            file.write(varint(1 << 3 | 2) + varint(len(node + attr) + size) + node + attr)
            file.truncate(file.tell() + size)
            file.seek(0, os.SEEK_END)
    if not chunks:  # whole: it is copied, and there is nothing to merge
        report = split_file(source, str(tmp_path / "out"), message=GRAPH, max_size=limit)
        assert (report.size, report.chunked) == (os.path.getsize(source), False)
        return
    words = [sys.executable, "-c", textwrap.dedent(SCRIPT), source, tmp_path / "out", str(limit), options, str(budget)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["chunks"] == chunks
    assert found["grown"] < budget + 8 * MIB
    with open(source, "rb") as first, open(tmp_path / "out.back", "rb") as second:
        while block := first.read(1 << 20):
            assert second.read(1 << 20) == block
        assert not second.read(1)
