"""`Merger`: chunks put together, from files that TensorFlow's own Merger took, and from odd ones made here.

Where TensorFlow 2.21 does otherwise, a comment says what.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from functools import partial
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.errors import LimitError, MalformedError, PparseError, SourceError, UnsupportedError
from pparse.limits import Limits
from pparse.proto_splitter import merger
from pparse.proto_splitter.merger import Merger
from pparse.protos import message_class
from pparse.riegeli import RecordReader, RecordWriter
from tests import sweep
from tests.rows import rows
from tests.work_counter import instructions

DATA = Path(__file__).resolve().parent / "data" / "tf"
FIXTURES = sorted(path.parent.name for path in DATA.glob("*/*.cpb"))
TEST = "tensorflow.proto_splitter_testdata."
Metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")
Tree = message_class("tensorflow.proto_splitter.ChunkedMessage")
Many = message_class(TEST + "ManyFields")
StringNode = message_class(TEST + "StringNode")
Repeated = message_class(TEST + "RepeatedString")
GraphDef = message_class("tensorflow.GraphDef")
MESSAGE, BYTES = 1, 2


# -- building --------------------------------------------------------------------------------------------------------


class At(int):
    """An index in a tag."""


class Key(tuple):
    """A map key in a tag: ``Key(("s", "x"))``, the name of its kind and the value."""


def key(**kind: object) -> Key:
    return Key(*kind.items())


def entry(tag: tuple = (), chunk: int | None = None, below: tuple = ()) -> tuple:
    return tag, chunk, below


def fill(tree: object, chunk: int | None, entries: tuple) -> object:
    tree.SetInParent()
    if chunk is not None:
        tree.chunk_index = chunk
    for tag, index, below in entries:
        field = tree.chunked_fields.add()
        for step in tag:
            item = field.field_tag.add()
            if isinstance(step, At):
                item.index = step
            elif isinstance(step, Key):
                setattr(item.map_key, *step)
                item.map_key.SetInParent()
            elif step is not None:
                item.field = step
        fill(field.message, index, below)
    return tree


def tree_of(*entries: tuple, root: int | None = None) -> object:
    return fill(Tree(), root, entries)


def write(
    chunks: list, *entries: tuple, root: int | None = None, options: str = "uncompressed", change=None, last=None
) -> bytes:
    """Return a .cpb of these chunks (messages, or bytes for values); ``change(metadata)`` may spoil the metadata."""
    metadata = Metadata()
    metadata.version.splitter_version = 1
    records = [chunk if isinstance(chunk, bytes) else chunk.SerializeToString() for chunk in chunks]
    # Where a record is, is known once it was written: a first time without the metadata.
    positions = positions_in(records_file(records, options))
    for chunk, record, position in zip(chunks, records, positions, strict=True):
        metadata.chunks.add(type=BYTES if isinstance(chunk, bytes) else MESSAGE, size=len(record), offset=position)
    fill(metadata.message, root, entries)
    if change is not None:
        change(metadata)
    return records_file([*records, metadata.SerializeToString() if last is None else last], options)


def records_file(records: list[bytes], options: str) -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        for record in records:
            writer.write_record(record)
    return out.getvalue()


def positions_in(data: bytes) -> list[int]:
    found = []
    with RecordReader(data) as reader:
        while reader.read_record() is not None:
            found.append(reader.last_pos.numeric)
    return found


def merged(chunks: list, *entries: tuple, root: int | None = None, kind: type = Many, seed: object = None) -> object:
    """Return what chunks make, and see that a file of them, and the chunks as they are, make the same."""
    results = []
    for way in (
        lambda message: Merger.read_chunked_from_string(write(chunks, *entries, root=root), message),
        lambda message: Merger.merge(chunks, tree_of(*entries, root=root), message),
    ):
        message = kind()
        if seed is not None:
            message.CopyFrom(seed)
        way(message)
        results.append(message)
    assert results[0] == results[1]
    return results[0]


def refused(chunks: list, *entries: tuple, match: str, root: int | None = None, kind: type = Many) -> MalformedError:
    """Return the error that chunks give, read and merged."""
    with pytest.raises(MalformedError, match=match):
        Merger.merge(chunks, tree_of(*entries, root=root), kind())
    with pytest.raises(MalformedError, match=match) as caught:
        Merger.read_chunked_from_string(write(chunks, *entries, root=root), kind())
    return caught.value


def text(name: str) -> object:
    return Many(string_field=name)


# -- the files that TensorFlow took ----------------------------------------------------------------------------------


def fixture(name: str) -> tuple[Path, dict, bytes]:
    about = json.loads((DATA / name / "expected.json").read_text())
    return DATA / name / about["file"], about, gzip.decompress((DATA / name / "expected.pb.gz").read_bytes())


def same(found: object, expected: bytes) -> None:
    wanted = type(found).FromString(expected)
    assert found == wanted
    assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
    assert found.ByteSize() == len(expected)


@pytest.mark.parametrize("folder", FIXTURES)
def test_files_merge_as_in_tensorflow(folder: str) -> None:
    path, about, expected = fixture(folder)
    kind = message_class(about["message_type"])
    prefix = path.with_suffix("")
    for name in (prefix, str(prefix), path):
        message = kind()
        Merger.read(name, message)
        same(message, expected)
    message = kind()
    Merger.read_chunked_from_string(path.read_bytes(), message)
    same(message, expected)


@pytest.mark.parametrize("name", FIXTURES)
def test_their_chunks_and_metadata_merge_too(name: str) -> None:
    path, about, expected = fixture(name)
    kind = message_class(about["message_type"])
    with RecordReader(path) as reader:
        records = list(reader)
    metadata = Metadata.FromString(records[-1])
    assert json_format.MessageToDict(metadata, preserving_proto_field_name=True) == about["chunk_metadata"]
    for tree in (metadata.message, metadata.message.SerializeToString()):
        message = kind()
        Merger.merge(records[:-1], tree, message)
        same(message, expected)
    for source in (metadata, records[-1]):
        message = kind()
        Merger.read_partial(path.with_suffix(""), source, message)
        same(message, expected)


def test_the_work_for_chunks_grows_with_their_count() -> None:
    """Each in a Riegeli chunk of its own, used from the last to the first."""
    work = []
    for count in (50, 100, 200):
        out = io.BytesIO()
        metadata = Metadata()
        metadata.version.splitter_version = 1
        with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
            for number in range(count):
                record = Many(repeated_string_field=[f"{number}"]).SerializeToString()
                writer.write_record(record)
                metadata.chunks.add(type=MESSAGE, size=len(record), offset=writer.last_pos.numeric)
                writer.flush()
            infos = list(metadata.chunks)[::-1]
            del metadata.chunks[:]
            metadata.chunks.extend(infos)
            fill(metadata.message, 0, tuple(entry((), index) for index in range(1, count)))
            writer.write_record(metadata.SerializeToString())
        message = Many()
        call = partial(Merger.read_chunked_from_string, out.getvalue(), message)
        work.append(instructions(call, merger))
        assert message.repeated_string_field == [f"{number}" for number in range(count)][::-1]
    assert work[2] - work[1] < 2.5 * (work[1] - work[0])


def test_there_are_fixtures() -> None:
    assert {"const_chunked", "many_field", "nodes_split_cc", "tree_df"} <= set(FIXTURES)


# -- TensorFlow's own tests ------------------------------------------------------------------------------------------


def string_tree() -> tuple[object, list[tuple[tuple[int, ...], str]]]:
    """Return a tree of strings, and its nodes in depth-first order with the way to each."""
    shape = {(): "0", (0,): "010", (0, 0): "0110", (0, 1): "0111", (1,): "020", (1, 0): "0210", (1, 0, 0): "02110"}
    root = StringNode()
    for way, val in shape.items():
        node = root
        for index in way:
            node = node.child_nodes[index] if index < len(node.child_nodes) else node.child_nodes.add()
        node.val = val
    return root, list(shape.items())


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("breadth_first", [True, False])
def test_trees_depth_and_breadth_first(nested: bool, breadth_first: bool) -> None:
    expected, nodes = string_tree()
    order = sorted(nodes, key=lambda node: len(node[0])) if breadth_first else nodes
    place = {way: index for index, (way, _) in enumerate(order)}
    chunks = [StringNode(val=val) for _, val in order]

    def below(way: tuple[int, ...]) -> tuple:
        children = [other for other in place if len(other) == len(way) + 1 and other[: len(way)] == way]
        return tuple(entry((2, At(child[-1])), place[child], below(child)) for child in children)

    if nested:
        entries = below(())
    else:
        entries = tuple(
            entry(tuple(step for index in way for step in (2, At(index))), place[way]) for way, _ in order if way
        )
    assert merged(chunks, *entries, root=place[()], kind=StringNode) == expected


def test_read_partial_of_the_root_chunk_only(tmp_path: Path) -> None:
    root = Many(map_field_int64={-1345: "map_value_-1345"})
    data = write([root, text("x"), text("y")], entry((1,), 1), entry((7, key(boolean=True)), 2), root=0)
    (tmp_path / "many-field.cpb").write_bytes(data)
    with RecordReader(data) as reader:
        *_, record = reader
    metadata = Metadata.FromString(record)
    del metadata.message.chunked_fields[:]
    message = Many()
    Merger.read_partial(tmp_path / "many-field", metadata, message)
    assert message == root
    # Chunks that are not named are not looked at: their place may be damaged.
    metadata.chunks[1].offset = 3
    message = Many()
    Merger.read_partial(str(tmp_path / "many-field.cpb"), metadata, message)
    assert message == root


def test_an_unknown_field_number() -> None:
    error = refused([text("a")], entry((1, 15), 0), match=r"no field with number 15 in .*ManyFields")
    assert error.path == "field_one"


def test_whole_files_and_chunked_ones_beside(tmp_path: Path) -> None:
    (tmp_path / "model.pb").write_bytes(Many(string_field="whole", repeated_string_field=["b"]).SerializeToString())
    # TensorFlow clears the message for a .pb, and for a .cpb only does not.
    message = Many(string_field="old", repeated_string_field=["a"])
    Merger.read(tmp_path / "model", message)
    assert message == Many(string_field="whole", repeated_string_field=["a", "b"])
    with pytest.raises(SourceError, match="cannot be read in part"):
        Merger.read_partial(tmp_path / "model", Metadata(), message)
    with pytest.raises(SourceError, match="cannot be read in part"):
        Merger.read_partial(tmp_path / "model.pb", Metadata(), message)
    (tmp_path / "model.cpb").write_bytes(write([text("chunked")], root=0))
    for prefix, wanted in {"model": "chunked", "model.cpb": "chunked", "model.pb": "whole"}.items():
        message = Many()
        Merger.read(tmp_path / prefix, message)
        assert message.string_field == wanted
        assert Merger.can_read(tmp_path / prefix)
    (tmp_path / "bad.pb").write_bytes(b"\x0a\xff")
    with pytest.raises(MalformedError, match=r"not a tensorflow.*ManyFields") as caught:
        Merger.read(tmp_path / "bad", Many())
    assert caught.value.source == str(tmp_path / "bad.pb")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    for name in (prefix, prefix + ".pb", prefix + ".cpb"):
        assert not Merger.can_read(name)
        with pytest.raises(SourceError) as caught:
            Merger.read(name, Many())
        assert f"neither {prefix}.cpb nor {prefix}.pb exists" in str(caught.value)
        assert "several" not in str(caught.value)
    with pytest.raises(SourceError, match="neither"):
        Merger.read_partial(prefix, Metadata(), Many())
    for number in range(5):
        (tmp_path / f"model.{number}.cpb").write_bytes(b"")
    with pytest.raises(SourceError, match=r"model\.\d\.cpb, .* …, but the format does not allow .*several \.cpb"):
        Merger.read(prefix, Many())
    assert not Merger.can_read("a\0b")
    with pytest.raises(SourceError):
        Merger.read("a\0b", Many())
    (tmp_path / "folder.cpb").mkdir()
    with pytest.raises(SourceError):
        Merger.read(tmp_path / "folder", Many())


# -- what goes where -------------------------------------------------------------------------------------------------


def test_messages_are_merged_as_they_are() -> None:
    seed = Many(string_field="old", repeated_string_field=["a"], field_one=Many(repeated_string_field=["x"]))
    found = merged(
        [Many(string_field="new", repeated_string_field=["b"]), Many(repeated_string_field=["y"])],
        entry((1,), 1),
        root=0,
        seed=seed,
    )
    assert found == Many(
        string_field="new", repeated_string_field=["a", "b"], field_one=Many(repeated_string_field=["x", "y"])
    )


def test_empty_tags_come_first_in_the_order_of_their_chunks() -> None:
    chunks = [Many(repeated_string_field=[name]) for name in "cab"]
    whole = [Many(repeated_field=[text("p0"), text("p1")]), text("e1"), text("e2")]
    found = merged(
        chunks + whole,
        entry((2, At(1)), 5),
        entry((2, At(0)), 4),
        entry((), 2),
        entry((), 0),
        entry((), 1),
        entry((), 3),
    )
    assert list(found.repeated_string_field) == ["c", "a", "b"]
    assert [item.string_field for item in found.repeated_field] == ["e1", "e2"]


def test_parents_before_children_fields_by_number_elements_by_index() -> None:
    # [1] replaces what [1, 3] had, if it came later: it does not. Elements 0, 2, 10 are not in the order of text.
    chunks = [text("child"), text("parent"), *(text(str(n)) for n in range(11))]
    elements = [entry((2, At(n)), n + 2) for n in (10, 2, 0, 1, 9, 3, 4, 8, 5, 6, 7)]
    found = merged(chunks, entry((1, 1), 0), *elements, entry((1,), 1))
    assert found.field_one == Many(string_field="parent", field_one=text("child"))
    assert [item.string_field for item in found.repeated_field] == [str(n) for n in range(11)]


def test_equal_tags_go_by_chunk_and_the_last_value_wins() -> None:
    # Bytes are replaced, not appended to.
    assert merged([b"zero", b"one", b"two"], entry((3,), 2), entry((3,), 0), entry((3,), 1)).string_field == "two"


def test_values_of_a_map_go_key_by_key() -> None:
    # TensorFlow has no order among map keys: not even a parent before its child.
    chunks = [text("false"), text("true"), text("child"), text("false again")]
    false, true = key(boolean=False), key(boolean=True)
    found = merged(chunks, entry((7, false), 3), entry((7, true, 1), 2), entry((7, false), 0), entry((7, true), 1))
    assert found.nested_map_bool[False].string_field == "false again"
    assert found.nested_map_bool[True] == Many(string_field="true", field_one=text("child"))


def test_more_than_sixteen_keys_keep_parents_before_children() -> None:
    # TensorFlow's sort is unstable from there on.
    table = message_class("tensorflow.NodeDef")
    value = message_class("tensorflow.AttrValue")
    entries, chunks = [], []
    for number in range(20):
        name = key(s=f"k{number}")
        entries += [entry((5, name, 2), 2 * number), entry((5, name), 2 * number + 1)]
        chunks += [b"child %d" % number, value(s=b"parent")]
    found = merged(chunks, *entries, kind=table)
    assert {name: item.s for name, item in found.attr.items()} == {f"k{n}": b"child %d" % n for n in range(20)}


def test_merge_can_take_the_listed_order() -> None:
    # As TensorFlow's Merge(), which sorts nothing.
    chunks = [b"one", b"two"]
    tree = tree_of(entry((3,), 1), entry((3,), 0))
    for listed, wanted in ((False, "two"), (True, "one")):
        message = Many()
        Merger.merge(chunks, tree, message, in_listed_order=listed)
        assert message.string_field == wanted


def test_messages_on_the_way_are_made() -> None:
    found = merged([b"v"], entry((1, 2, At(0), 7, key(boolean=True), 1, 3), 0))
    assert found.field_one.repeated_field[0].nested_map_bool[True].field_one.string_field == "v"
    assert merged([], entry((1,))).HasField("field_one")
    assert merged([Many()], entry((2, At(0)), 0)) == Many(repeated_field=[Many()])
    assert True in merged([Many()], entry((7, key(boolean=True)), 0)).nested_map_bool


def test_existing_elements_and_values_are_merged_into() -> None:
    seed = Many(repeated_field=[Many(repeated_string_field=["a"])])
    seed.nested_map_bool[True].repeated_string_field.append("m")
    more = Many(repeated_string_field=["b"])
    found = merged([more], entry((2, At(0)), 0), entry((7, key(boolean=True)), 0), seed=seed)
    assert list(found.repeated_field[0].repeated_string_field) == ["a", "b"]
    assert list(found.nested_map_bool[True].repeated_string_field) == ["m", "b"]


def test_slices_of_maps_replace_whole_values() -> None:
    first, second = Many(), Many()
    first.nested_map_bool[True].CopyFrom(Many(string_field="a", repeated_string_field=["x"]))
    second.nested_map_bool[True].CopyFrom(Many(repeated_string_field=["y"]))
    found = merged([first, second], entry((), 0), entry((), 1))
    assert found.nested_map_bool[True] == Many(repeated_string_field=["y"])


def test_an_element_may_be_the_next_but_not_beyond() -> None:
    seed = Many(repeated_field=[text("a")])
    assert len(merged([text("b")], entry((2, At(1)), 0), seed=seed).repeated_field) == 2
    # TensorFlow ends the process.
    error = refused([text("b")], entry((1,)), entry((1, 2, At(1)), 0), match="beyond the end of the list")
    assert (error.path, error.wanted, error.got) == ("field_one.repeated_field[1]", 1, 0)
    error = refused([b"b"], entry((4, At(2**64 - 1)), 0), match="beyond")
    assert (error.path, error.wanted) == (f"repeated_string_field[{2**64 - 1}]", 2**64 - 1)


def test_elements_of_repeated_scalars() -> None:
    # TensorFlow ends the process, though its own splitter of repeated strings writes this.
    chunks = [b"a", b"b", b"c"]
    entries = [entry((1, At(index)), index) for index in range(3)]
    assert merged(chunks, *entries, kind=Repeated) == Repeated(strings=["a", "b", "c"])
    seed = Repeated(strings=["x", "y", "z", "w"])
    assert merged(chunks, *entries, kind=Repeated, seed=seed) == Repeated(strings=["a", "b", "c", "w"])


def test_scalar_values_of_maps() -> None:
    # TensorFlow ends the process, though its guide has an example of it.
    found = merged(
        [b"three", b"minus", b"new"],
        entry((5, key(ui32=3)), 0),
        entry((6, key(i64=-5)), 1),
        entry((6, key(i64=7)), 2),
        seed=Many(map_field_int64={7: "old", 8: "kept"}),
    )
    assert found == Many(map_field_uint32={3: "three"}, map_field_int64={-5: "minus", 7: "new", 8: "kept"})


@pytest.mark.parametrize("number", [2**40 + 3, -(2**63), 2**63 - 1, 2**31, -(2**31) - 1])
def test_keys_are_not_cut_to_32_bits(number: int) -> None:
    # TensorFlow makes 3 of 2**40 + 3.
    found = merged([b"x"], entry((6, key(i64=number)), 0))
    assert dict(found.map_field_int64) == {number: "x"}


def test_what_a_key_is_wrapped_in_does_not_matter() -> None:
    for step in (key(ui32=12), key(i64=12), key(s="12"), key(ui64=12), key(i32=12), At(12)):
        assert dict(merged([b"x"], entry((5, step), 0)).map_field_uint32) == {12: "x"}
    for step in (key(boolean=True), key(s="true"), key(i32=5), At(1)):
        assert True in merged([text("x")], entry((7, step), 0)).nested_map_bool
    for step in (key(i32=0), key(s="0"), At(0)):
        assert merged([text("x")], entry((2, step), 0)).repeated_field[0] == text("x")
    node = message_class("tensorflow.NodeDef")
    assert "12" in merged([], entry((5, key(i64=12))), kind=node).attr
    seed = Many(map_field_uint32={12: "old"})
    assert dict(merged([b"x"], entry((5, key(s="12")), 0), seed=seed).map_field_uint32) == {12: "x"}


@rows(
    ("tag", "path"),
    [
        ((5, key(ui64=2**32)), None),
        ((5, key(i32=-1)), None),
        ((5, key(s="x")), None),
        ((5, key(s="1.0")), None),
        ((5, key(boolean=True)), None),
        ((1, 6, key(ui64=2**63)), "field_one"),
        ((7, key(s="1")), None),
        ((7, key(s="")), None),
        ((2, key(boolean=False)), None),
        ((2, key(i32=-1)), None),
        ((2, key(s="a")), None),
    ],
)
def test_keys_that_a_field_cannot_have(tag: tuple, path: str | None) -> None:
    error = refused([b"x"], entry(tag, 0), match="invalid for")
    assert error.path == path


def test_a_text_key_is_not_made_of_a_bool() -> None:
    refused([b"x"], entry((5, key(boolean=True)), 0), match="invalid for", kind=message_class("tensorflow.NodeDef"))


# -- scalars of all kinds --------------------------------------------------------------------------------------------


def everything() -> tuple[type, dict[str, tuple[bytes, object]]]:
    """Return a message class with a singular, a repeated and a mapped field of each kind, and a value of each."""
    values: dict[str, tuple[bytes, object]] = {
        "DOUBLE": (b"1e-05", 1e-05),
        "FLOAT": (b"0.5", 0.5),
        "INT64": (b"-9223372036854775808", -(2**63)),
        "UINT64": (b"18446744073709551615", 2**64 - 1),
        "INT32": (b"-7", -7),
        "FIXED64": (b"7", 7),
        "FIXED32": (b"4294967295", 2**32 - 1),
        "BOOL": (b"true", True),
        "STRING": ("grün".encode(), "grün"),
        "BYTES": (b"\xff\0", b"\xff\0"),
        "UINT32": (b"8", 8),
        "ENUM": (b"TWO", 2),
        "SFIXED32": (b"-1", -1),
        "SFIXED64": (b"-2", -2),
        "SINT32": (b"-3", -3),
        "SINT64": (b"-4", -4),
    }
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="t", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.value.add(name="ZERO", number=0)
    enum.value.add(name="TWO", number=2)
    message = file.message_type.add(name="All")
    for position, kind in enumerate(values):
        type_ = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        name = kind.lower()
        more = {"type_name": ".t.E"} if kind == "ENUM" else {}
        message.field.add(name=name, number=1 + position, label=1, type=type_, **more)
        message.field.add(name=f"r_{name}", number=101 + position, label=3, type=type_, **more)
        nested = message.nested_type.add(name=f"M{name.capitalize()}Entry")
        nested.options.map_entry = True
        nested.field.add(name="key", number=1, label=1, type=9)
        nested.field.add(name="value", number=2, label=1, type=type_, **more)
        message.field.add(
            name=f"m_{name}", number=201 + position, label=3, type=11, type_name=f".t.All.M{name.capitalize()}Entry"
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.All")), values


ALL, VALUES = everything()


@rows("kind", VALUES)
def test_scalars_of_each_kind(kind: str) -> None:
    chunk, value = VALUES[kind]
    name = kind.lower()
    number = ALL.DESCRIPTOR.fields_by_name[name].number
    entries = [entry((number,), 0), entry((number + 100, At(0)), 0), entry((number + 200, key(s="k")), 0)]
    found = merged([chunk], *entries, kind=ALL)
    assert getattr(found, name) == value
    assert list(getattr(found, f"r_{name}")) == [value]
    assert dict(getattr(found, f"m_{name}")) == {"k": value}


@rows("kind", sorted(VALUES.keys() - {"BYTES"}))
def test_bytes_that_are_no_value(kind: str) -> None:
    # Numbers in binary end TensorFlow's process; text that is not UTF-8 goes into its message.
    name = kind.lower()
    number = ALL.DESCRIPTOR.fields_by_name[name].number
    for tag, path in (
        ((number,), name),
        ((number + 100, At(0)), f"r_{name}[0]"),
        ((number + 200, key(s="k")), f"m_{name}.k"),
    ):
        error = refused([b"\xff\0\0\0"], entry(tag, 0), kind=ALL, match="not a value of type|not UTF-8")
        assert (error.path, error.offset) == (path, 64)


def test_a_message_as_a_value() -> None:
    # Given as a message, its serialization is the value.
    message = ALL()
    number = ALL.DESCRIPTOR.fields_by_name["bytes"].number
    Merger.merge([text("x")], tree_of(entry((number,), 0)), message)
    assert message.bytes == text("x").SerializeToString()


# -- tags that lead nowhere ------------------------------------------------------------------------------------------


@rows(
    ("tag", "reason", "path"),
    [
        ((15,), "no field with number 15", None),
        ((0,), "no field with number 0", None),
        ((1, None), "an empty step in a field tag", "field_one"),
        ((At(0),), "an index without a field before it", None),
        ((key(s="a"),), "a map key without a field before it", None),
        ((1, At(0)), "an index without a field before it", "field_one"),
        ((2, At(0), At(1)), "an index without a field before it", "repeated_field[0]"),
        ((7, Key(("boolean", True)), key(s="a")), "a map key without a field before it", "nested_map_bool[true]"),
        ((2,), "repeated_field, which is repeated, without an index", None),
        ((2, 1), "repeated_field, which is repeated, without an index", None),
        ((4,), "repeated_string_field, which is repeated, without an index", None),
        ((7,), "nested_map_bool, which is a map, without a key", None),
        ((5,), "map_field_uint32, which is a map, without a key", None),
        ((3, 1), "field 1 below string_field, which is not a message", "string_field"),
        ((4, At(0), 4), "field 4 below repeated_string_field", "repeated_string_field[0]"),
        ((5, key(ui32=1), 5), "field 5 below map_field_uint32", "map_field_uint32[1]"),
        ((3, At(0)), "an index without a field before it", "string_field"),
    ],
)
def test_tags_that_lead_nowhere(tag: tuple, reason: str, path: str | None) -> None:
    # TensorFlow: a FailedPrecondition for some, the end of the process for most.
    assert refused([b"x"], entry(tag, 0), match=reason).path == path


def test_a_map_key_that_says_nothing() -> None:
    tree = tree_of(entry((7,), 0))
    tree.chunked_fields[0].field_tag.add().map_key.SetInParent()
    with pytest.raises(MalformedError, match="empty map key"):
        Merger.merge([text("x")], tree, Many())


def test_errors_below_name_the_whole_way() -> None:
    error = refused([b"x"], entry((1,), None, (entry((7, key(boolean=True)), None, (entry((99,), 0),)),)), match="99")
    assert error.path == "field_one.nested_map_bool[true]"


def test_a_scalar_named_twice_is_itself() -> None:
    assert merged([b"x"], entry((3, 3), 0)) == text("x")
    # As of other tags, the longer comes later.
    assert merged([b"x", b"y"], entry((3, 3), 0), entry((3,), 1)) == text("x")
    refused([b"x"], entry((3, 3, At(0)), 0), match="index")
    refused([b"x"], entry((4, At(0), 4), 0), match="below")


# -- entries and their chunks ----------------------------------------------------------------------------------------


def test_a_chunk_that_is_needed_and_not_named_is_the_first() -> None:
    # An index that is not written is 0, as TensorFlow has it.
    assert merged([b"zero", b"one"], entry((3,))).string_field == "zero"
    assert merged([text("zero"), b"one"], entry(())).string_field == "zero"
    refused([], entry((3,)), match="there is no chunk 0")


def test_entries_without_a_chunk_of_their_own() -> None:
    found = merged([b"not a message", b"x"], entry((1,), None, (entry((3,), 1),)))
    assert found == Many(field_one=text("x"))
    assert merged([], entry((1,), None, (entry((1,)),))) == Many(field_one=Many(field_one=Many()))


def test_entries_below_no_tag_or_a_scalar_are_passed_over() -> None:
    # As in TensorFlow.
    assert merged([text("x"), b"y"], entry((), 0, (entry((3,), 1),))) == text("x")
    assert merged([b"x", b"y"], entry((3,), 0, (entry((3,), 1),))) == text("x")
    assert merged([b"x", b"y"], entry((3,), None, (entry((3,), 1),))) == text("x")
    assert merged([text("x"), b"y"], entry((), None, (entry((3,), 1),))) == text("x")


@pytest.mark.parametrize("index", [2, 2**64 - 1])
def test_a_chunk_that_is_not_there(index: int) -> None:
    for entries, root in (((entry((1,), index),), None), ((entry((), index),), 0), ((), index)):
        error = refused([text("a"), text("b")], *entries, root=root, match=f"there is no chunk {index}")
        assert (error.wanted, error.got) == (index + 1, 2)
    assert refused([text("a")], entry((1,), 5), match="no chunk").path == "field_one"


def test_a_chunk_that_does_not_parse() -> None:
    # TensorFlow keeps silent about it where there is no tag.
    def spoil(metadata: object) -> None:
        for info in metadata.chunks:
            info.type = MESSAGE

    for tag, path in (((), None), ((1,), "field_one"), ((2, At(0)), "repeated_field[0]")):
        with pytest.raises(MalformedError, match=r"chunk 0 is not a .*ManyFields") as caught:
            Merger.merge([b"\x0a\xff"], tree_of(entry(tag, 0)), Many())
        assert caught.value.path == path
        with pytest.raises(MalformedError, match=r"chunk 0 is not a .*ManyFields") as caught:
            Merger.read_chunked_from_string(write([b"\x0a\xff"], entry(tag, 0), change=spoil), Many())
        assert (caught.value.path, caught.value.offset) == (path, 64)


def test_chunks_given_as_bytes_of_all_kinds() -> None:
    chunk = text("x").SerializeToString()
    for given_chunk in (chunk, bytearray(chunk), memoryview(chunk), text("x")):
        message = Many()
        Merger.merge([given_chunk], tree_of(entry((1,), 0)), message)
        assert message == Many(field_one=text("x"))


def test_arguments_of_another_kind() -> None:
    tree = tree_of(root=0)
    for wrong in (None, Many, b"", "text"):
        with pytest.raises(TypeError, match="protobuf message"):
            Merger.merge([], tree, wrong)
    with pytest.raises(TypeError, match="expected a ChunkedMessage"):
        Merger.merge([], Metadata(), Many())
    with pytest.raises(TypeError, match="expected a ChunkMetadata"):
        Merger.read_partial("nowhere", tree, Many())
    with pytest.raises(TypeError, match="neither a protobuf message nor bytes"):
        Merger.merge(["text"], tree, Many())
    with pytest.raises(MalformedError, match="not a ChunkedMessage"):
        Merger.merge([], b"\xff", Many())


# -- files that contradict themselves --------------------------------------------------------------------------------


def spoiled(change, match: str, kind: type[PparseError] = MalformedError, **more: object) -> PparseError:
    data = write([text("a"), b"value", text("c")], entry((3,), 1), entry((1,), 2), root=0, change=change, **more)
    with pytest.raises(kind, match=match) as caught:
        Merger.read_chunked_from_string(data, Many())
    return caught.value


def changing(index: int, **values: int):
    def change(metadata: object) -> None:
        for name, value in values.items():
            setattr(metadata.chunks[index], name, value)

    return change


def test_what_is_spoiled_is_sound_before() -> None:
    assert merged([text("a"), b"value", text("c")], entry((3,), 1), entry((1,), 2), root=0) == Many(
        string_field="value", field_one=text("c")
    )


@pytest.mark.parametrize(
    ("index", "kind", "wanted", "got"),
    [
        (0, BYTES, "MESSAGE", "BYTES"),
        (1, MESSAGE, "BYTES", "MESSAGE"),
        (2, 7, "MESSAGE", "7"),
    ],
)
def test_the_type_of_a_chunk_is_checked(index: int, kind: int, wanted: str, got: str) -> None:
    # TensorFlow looks at neither type nor size.
    error = spoiled(changing(index, type=kind), "wrong type for its field")
    assert (error.wanted, error.got) == (wanted, got)
    assert error.offset == 64 + index


@pytest.mark.parametrize("size", [0, 4, 6, 2**63])
def test_the_size_of_a_chunk_is_checked(size: int) -> None:
    error = spoiled(changing(1, size=size), "not as long as the metadata say")
    assert (error.wanted, error.got, error.path, error.offset) == (size, 5, "string_field", 65)


@rows("options", ["uncompressed", "chunk_size:1", "brotli", "transpose"])
@rows("offset", [0, 1, 63, 68, 69, 70, 100, 200, 2**63, 2**64 - 1])
def test_a_position_without_a_record(options: str, offset: int) -> None:
    # TensorFlow reads the next record there is.
    error = spoiled(changing(2, offset=offset), "no record begins|not as long as|exceeds the file", options=options)
    assert error.path == "field_one"
    assert error.offset is not None


def test_the_position_of_another_record() -> None:
    spoiled(changing(1, offset=64), "not as long as the metadata say")


def test_files_for_newer_mergers_are_refused() -> None:
    # TensorFlow does not look at them.
    def version(**values: object):
        def change(metadata: object) -> None:
            metadata.version.Clear()
            for name, value in values.items():
                if name == "bad_consumers":
                    metadata.version.bad_consumers.extend(value)
                else:
                    setattr(metadata.version, name, value)

        return change

    spoiled(version(join_version=999), "need a reader with join version 999", UnsupportedError)
    error = spoiled(version(bad_consumers=[0, 1]), "needs join version 2 or later", UnsupportedError)
    assert error.source is not None
    for fine in (version(), version(splitter_version=77), version(bad_consumers=[1, 2])):
        Merger.read_chunked_from_string(write([text("a")], root=0, change=fine), Many())
    with pytest.raises(UnsupportedError):
        Merger.read_partial(DATA / "tree_df" / "split-tree", Metadata(version={"join_version": 1}), StringNode())


def test_an_empty_last_record_is_metadata_that_say_nothing() -> None:
    for chunks in ([], [text("a")]):
        message = text("kept")
        Merger.read_chunked_from_string(write(chunks, last=b""), message)
        assert message == text("kept")


@pytest.mark.parametrize(
    "last",
    [
        b"\xff",
        b"text",
        text("a").SerializeToString(),
        GraphDef(node=[{}]).SerializeToString(),
        GraphDef(node=[{"name": "n"}]).SerializeToString(),
        b"\x12\x00",
        b"\x1a\x00",
    ],
)
def test_a_last_record_that_is_no_metadata(last: bytes) -> None:
    # Most messages parse as ChunkMetadata: a file that lost its end must not look like one that says nothing.
    with pytest.raises(MalformedError, match=r"the chunk metadata at its end|not chunk metadata"):
        Merger.read_chunked_from_string(write([text("a")], last=last), Many())


@pytest.mark.parametrize("data", [b"", b"x", b"not a Riegeli file at all", bytes(100_000), write([])[:64]])
def test_files_that_are_no_chunked_protos(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match=r"the chunk metadata at its end|not chunk metadata"):
        Merger.read_chunked_from_string(data, Many())
    (tmp_path / "m.cpb").write_bytes(data)
    with pytest.raises(MalformedError) as caught:
        Merger.read(tmp_path / "m", Many())
    assert caught.value.source == str(tmp_path / "m.cpb")


def small(options: str) -> tuple[bytes, object]:
    chunks = [Many(string_field="a", repeated_field=[Many()]), b"value", text("ccc"), text("d"), b"12345"]
    entries = entry((3,), 1), entry((2, At(0)), 2), entry((7, key(boolean=True)), 3), entry((6, key(i64=5)), 4)
    return write(chunks, *entries, root=0, options=options), merged(chunks, *entries, root=0)


@pytest.mark.parametrize("options", ["uncompressed", "uncompressed,chunk_size:1", "brotli", "zstd,transpose"])
def test_every_prefix_is_right_or_an_error(options: str) -> None:
    data, whole = small(options)
    right = 0
    for end in sweep.some(range(len(data)), 3, ends=24):
        message = Many()
        with contextlib.suppress(PparseError):
            Merger.read_chunked_from_string(data[:end], message)
            assert message == whole, end
            right += 1
    assert not right


@pytest.mark.parametrize("verify", ["all", "touched"])
@pytest.mark.parametrize("options", ["uncompressed", "uncompressed,chunk_size:1", "brotli", "zstd,transpose"])
def test_every_changed_byte_is_harmless_or_an_error(options: str, verify: str) -> None:
    data, whole = small(options)
    for position in sweep.some(range(len(data)), 4, ends=24):
        for change in sweep.values((0x01, 0x80, 0xFF), position):
            bad = bytearray(data)
            bad[position] ^= change
            message = Many()
            with contextlib.suppress(PparseError):
                Merger.read_chunked_from_string(bytes(bad), message, verify=verify)
                assert message == whole, position


@given(st.data())
def test_any_metadata_give_a_message_or_our_error(data: st.DataObject) -> None:
    raw = bytearray(small("uncompressed")[0])
    with RecordReader(bytes(raw)) as reader:
        record = bytearray(list(reader)[-1])
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    chunks = [Many(string_field="a", repeated_field=[Many()]), b"value", text("ccc"), text("d"), b"12345"]
    with contextlib.suppress(PparseError):
        Merger.read_chunked_from_string(write(chunks, last=bytes(record)), Many())


# -- limits, memory, order of reading --------------------------------------------------------------------------------


def test_depth_is_bounded() -> None:
    tag = (1,) * 30
    for entries in ((entry(tag),), (entry(tag[:20], None, (entry(tag[:10]),)),), (entry((*tag, 3), 0),)):
        depth = 31 if len(entries[0][0]) == 31 else 30
        Merger.merge([b"x"], tree_of(*entries), Many(), limits=Limits(depth=depth))
        with pytest.raises(LimitError, match="depth") as caught:
            Merger.merge([b"x"], tree_of(*entries), Many(), limits=Limits(depth=depth - 1))
        assert caught.value.option.startswith("--limit depth=")
    with pytest.raises(LimitError, match="depth"):
        Merger.merge([b"x"], tree_of(entry((1,) * 100_000)), Many())


def test_deep_trees_need_no_deep_stack() -> None:
    tree = Tree()
    node = tree
    for _ in range(3000):
        field = node.chunked_fields.add()
        field.field_tag.add().field = 1
        node = field.message
    message = Many()
    Merger.merge([], tree, message, limits=Limits(depth=3000))
    depth = 0
    while message.HasField("field_one"):
        message = message.field_one
        depth += 1
    assert depth == 3000
    with pytest.raises(LimitError):
        Merger.merge([], tree, Many())


@pytest.mark.parametrize("options", ["uncompressed", "brotli,chunk_size:3000", "zstd,transpose,chunk_size:3000"])
def test_many_chunks_in_any_order(options: str) -> None:
    count = 300
    order = sorted(range(count), key=lambda number: number * 7919 % 307)
    chunks = [b"%d" % number * (number % 40) for number in order]
    place = {number: index for index, number in enumerate(order)}
    entries = [entry((4, At(number)), place[number]) for number in range(count)]
    message = Many()
    Merger.read_chunked_from_string(write(chunks, *entries, options=options), message, budget="1MiB")
    assert list(message.repeated_string_field) == [str(number) * (number % 40) for number in range(count)]


def test_each_riegeli_chunk_is_decoded_once_however_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    import pparse.riegeli.reader

    decoded = []
    decode = pparse.riegeli.reader.decode_simple
    monkeypatch.setattr(pparse.riegeli.reader, "decode_simple", lambda *args: decoded.append(1) or decode(*args))
    chunks = [b"%d" % number * 20 for number in range(1000)]
    entries = [entry((4, At(number)), number * 7 % 1000) for number in range(1000)]
    data = write(chunks, *entries, options="brotli,chunk_size:5000")
    with RecordReader(data) as reader:
        riegeli_chunks = len({reader.last_pos.chunk_begin for _ in reader})
    decoded.clear()
    Merger.read_chunked_from_string(data, Many())
    assert riegeli_chunks > 10
    assert len(decoded) <= riegeli_chunks + 3  # and the metadata's, to find them


def test_a_chunk_may_be_used_more_than_once() -> None:
    found = merged([text("x"), b"y"], *(entry((2, At(n)), 0) for n in range(3)), entry((3,), 1), entry((1, 3), 1))
    assert found == Many(repeated_field=[text("x")] * 3, string_field="y", field_one=text("y"))


def test_damage_is_told_of_the_chunk_that_has_it() -> None:
    chunks = [text("a"), b"v" * 1000, b"w" * 1000]
    data = bytearray(write(chunks, entry((3,), 1), entry((1, 3), 2), root=0, options="uncompressed,chunk_size:1"))
    data[data.index(b"w" * 1000) + 500] ^= 1
    message = Many()
    with pytest.raises(MalformedError, match="hash") as caught:
        Merger.read_chunked_from_string(bytes(data), message)
    assert caught.value.path == "field_one.string_field"
    Merger.read_chunked_from_string(bytes(data), message, verify="headers")
    assert message.field_one.string_field != "w" * 1000


def test_large_chunks_are_verified_whatever_the_budget(tmp_path: Path) -> None:
    content = bytes(range(256)) * (8 << 10)  # 2 MiB, above a quarter of the budget
    graph = message_class("tensorflow.TensorProto")
    data = bytearray(write([content], entry((4,), 0)))
    (tmp_path / "t.cpb").write_bytes(data)
    message = graph()
    Merger.read(tmp_path / "t", message, budget="1MiB")
    assert message.tensor_content == content
    data[len(data) // 2] ^= 1
    (tmp_path / "t.cpb").write_bytes(data)
    with pytest.raises(MalformedError):
        Merger.read(tmp_path / "t", graph(), budget="1MiB")


# -- any message, split in any way -----------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def many(children: st.SearchStrategy) -> st.SearchStrategy:
    return st.fixed_dictionaries(
        {},
        optional={
            "field_one": children,
            "repeated_field": st.lists(children, max_size=3),
            "string_field": words,
            "repeated_string_field": st.lists(words, max_size=3),
            "map_field_uint32": st.dictionaries(st.integers(0, 2**32 - 1), words, max_size=2),
            "map_field_int64": st.dictionaries(st.integers(-(2**63), 2**63 - 1), words, max_size=2),
            "nested_map_bool": st.dictionaries(st.booleans(), children, max_size=2),
        },
    ).map(make)


def make(values: dict) -> object:
    message = Many()
    for name, value in values.items():
        if name == "nested_map_bool":
            for word, item in value.items():
                message.nested_map_bool[word].CopyFrom(item)
        elif name == "field_one":
            message.field_one.CopyFrom(value)
        elif name == "string_field":
            message.string_field = value
        elif name.startswith("map"):
            getattr(message, name).update(value)
        else:
            getattr(message, name).extend(value)
    return message


class Splitting:
    """Takes a message apart at random: children out of their parents, into chunks of their own."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.chunks: list = []

    def add(self, chunk: object) -> int:
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    def split(self, message: object, entries: list, tag: tuple) -> None:
        """Append the entries of what goes out of ``message``, whose place is ``tag`` below the node of entries."""
        draw = self.draw
        if message.HasField("field_one"):
            self.child(message.field_one, entries, (*tag, 1), lambda: message.ClearField("field_one"))
        for index, item in enumerate(message.repeated_field):
            self.child(item, entries, (*tag, 2, At(index)), item.Clear)  # a placeholder stays
        for word in list(message.nested_map_bool):
            item = message.nested_map_bool[word]
            self.child(item, entries, (*tag, 7, key(boolean=word)), lambda word=word: message.nested_map_bool.pop(word))
        if message.string_field and draw(st.booleans()):
            entries.append(entry((*tag, 3), self.add(message.string_field.encode())))
            message.ClearField("string_field")
        strings = message.repeated_string_field
        kept = draw(st.integers(0, len(strings)))
        for index in range(kept, len(strings)):
            entries.append(entry((*tag, 4, At(index)), self.add(strings[index].encode())))
        del strings[kept:]
        for number, name, word in ((5, "map_field_uint32", "ui32"), (6, "map_field_int64", "i64")):
            values = getattr(message, name)
            for item in list(values):
                if draw(st.booleans()):
                    entries.append(entry((*tag, number, key(**{word: item})), self.add(values.pop(item).encode())))

    def child(self, item: object, entries: list, tag: tuple, clear) -> None:
        how = self.draw(st.sampled_from(["stay", "out", "nested"]))
        if how == "stay":
            self.split(item, entries, tag)
            return
        copy = Many()
        copy.CopyFrom(item)
        clear()
        below: list = []
        self.split(copy, below if how == "nested" else entries, () if how == "nested" else tag)
        entries.append(entry(tag, self.add(copy), tuple(below)))


@settings(max_examples=sweep.examples(150))
@given(st.recursive(st.builds(Many), many, max_leaves=6), st.data())
def test_any_message_split_in_any_way_comes_back(message: object, data: st.DataObject) -> None:
    whole = Many()
    whole.CopyFrom(message)
    splitting = Splitting(data.draw)
    entries: list = []
    splitting.split(message, entries, ())
    slices = data.draw(st.integers(0, len(message.repeated_field)))
    if slices < len(message.repeated_field):  # a slice of the elements, to be merged first
        entries.append(entry((), splitting.add(Many(repeated_field=message.repeated_field[slices:]))))
        del message.repeated_field[slices:]
    root = splitting.add(message)
    # Whatever the order of the entries; the keys of a map are not compared, so those stay as they are listed.
    entries = data.draw(st.permutations(entries))
    options = data.draw(st.sampled_from(["uncompressed", "brotli", "uncompressed,chunk_size:1", "transpose"]))
    found = Many()
    Merger.read_chunked_from_string(write(splitting.chunks, *entries, root=root, options=options), found)
    assert found == whole
    found = Many()
    Merger.merge(splitting.chunks, tree_of(*entries, root=root), found)
    assert found == whole
