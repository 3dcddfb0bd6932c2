"""The splitter that others are made of: chunks, the tree, files; field tags; the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pparse import errors, proto_splitter
from pparse.errors import PathError, SourceError, SplitError
from pparse.proto_splitter import (
    ComposableSplitter,
    FieldNotFoundError,
    GraphDefSplitter,
    Merger,
    Splitter,
    debug_set_max_size,
    format_bytes,
    get_field,
    get_field_tag,
    max_size,
    set_max_size,
)
from pparse.proto_splitter import split as split_module
from pparse.protos import message_class
from pparse.riegeli import RecordReader
from tests.rows import rows
from tests.splitter_samples import (
    check_merged,
    copy_of,
    make_graph_def_with_constant_nodes,
    plain,
    split,
    step,
    tags_of,
)

TEST = "tensorflow.proto_splitter_testdata."
RepeatedString = message_class(TEST + "RepeatedString")
RepeatedRepeatedString = message_class(TEST + "RepeatedRepeatedString")
ManyFields = message_class(TEST + "ManyFields")
Metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")


class StringsSplitter(ComposableSplitter):
    """Every string is a chunk."""

    def build_chunks(self):
        for index, text in enumerate(self.proto.strings):
            self.add_chunk(text.encode(), ["strings", index])
        del self.proto.strings[:]


class NothingSplitter(ComposableSplitter):
    def build_chunks(self):
        pass


def records_of(path):
    with RecordReader(str(path)) as reader:
        return list(reader)


# -- chunks and tree -------------------------------------------------------------------------------------------------


def test_nothing_to_split():
    message = RepeatedString()
    chunks, tree = split(StringsSplitter(message))
    assert [chunk is message for chunk in chunks] == [True]
    assert tree.chunk_index == 0
    assert tree.HasField("chunk_index")
    assert not tree.chunked_fields


def test_without_the_message_as_a_chunk():
    splitter = StringsSplitter(RepeatedString(strings=["a", "b", "c"]), proto_as_initial_chunk=False)
    chunks, tree = split(splitter)
    assert chunks == [b"a", b"b", b"c"]
    assert not tree.HasField("chunk_index")
    assert tags_of(tree) == [("1.#0", 0), ("1.#1", 1), ("1.#2", 2)]


def test_split_is_done_once():
    splitter = StringsSplitter(RepeatedString(strings=["a"]))
    chunks, tree = splitter.split()
    again = splitter.split()
    assert again[0] is chunks
    assert again[1] is tree
    splitter.add_chunk(b"late", ["strings", 1], index=1)
    assert splitter.split()[0] is chunks
    assert (len(chunks), tags_of(splitter.split()[1])) == (3, [("1.#0", 2), ("1.#1", 1)])


def test_children_put_their_chunks_into_the_root():
    root = NothingSplitter(RepeatedString(strings=["a"]), proto_as_initial_chunk=True)
    message = RepeatedRepeatedString(rs=[RepeatedString(strings=list("abc")), RepeatedString(strings=list("de"))])

    class Root(ComposableSplitter):
        def build_chunks(self):
            self.add_chunk("", [])
            for index, element in enumerate(self.proto.rs):
                child = StringsSplitter(element, parent_splitter=self, fields_in_parent=("rs", index))
                children.append(child)
                child.build_chunks()

    children: list[ComposableSplitter] = []
    splitter = Root(message)
    chunks, tree = splitter.split()
    assert chunks[1:] == [b"", b"a", b"b", b"c", b"d", b"e"]
    assert tags_of(tree)[0] == ("", 1)
    assert tags_of(tree)[1:] == [
        ("2.#0.1.#0", 2),
        ("2.#0.1.#1", 3),
        ("2.#0.1.#2", 4),
        ("2.#1.1.#0", 5),
        ("2.#1.1.#1", 6),
    ]
    with pytest.raises(ValueError, match="`split` method should not be called directly"):
        children[0].split()
    with pytest.raises(ValueError, match="`write` method should not be called directly"):
        children[0].write("x")
    assert children[0].parent_splitter is splitter
    assert root.parent_splitter is None


def test_chunks_are_numbered_as_they_end_up():
    """Inserted chunks move others, the message's own too; entries keep the order they were added in."""

    class Inserting(ComposableSplitter):
        def build_chunks(self):
            self.add_chunk(b"a", ["strings", 0])
            self.add_chunk(b"b", ["strings", 1], index=1)
            self.add_chunk(b"c", ["strings", 2], index=0)
            self.add_chunk(b"d", ["strings", 3])

    chunks, tree = split(Inserting(RepeatedString()))
    assert chunks[0] == b"c"
    assert chunks[2:] == [b"b", b"a", b"d"]
    assert tree.chunk_index == 1
    assert tags_of(tree) == [("1.#0", 3), ("1.#1", 2), ("1.#2", 0), ("1.#3", 4)]


def test_kinds_of_chunks():
    splitter = NothingSplitter(RepeatedString(), proto_as_initial_chunk=False)
    for chunk in ("é", bytearray(b"b"), memoryview(b"c"), b"d"):
        splitter.add_chunk(chunk, ["strings", 0])
    assert splitter.split()[0] == ["é".encode(), b"b", b"c", b"d"]
    with pytest.raises(TypeError, match="not int"):
        splitter.add_chunk(3, ["strings", 0])
    with pytest.raises(FieldNotFoundError):
        splitter.add_chunk(b"", ["nothing"])
    assert len(splitter.split()[0]) == 4


def test_a_splitter_writes_version_one():
    version = NothingSplitter(RepeatedString()).version_def
    assert version.DESCRIPTOR.full_name == "tensorflow.proto_splitter.VersionDef"
    assert (version.splitter_version, version.join_version, list(version.bad_consumers)) == (1, 0, [])


def test_a_version_of_another_pool(tmp_path):
    """TensorFlow's own class has the same name, but is another one."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="v.proto", package="tensorflow.proto_splitter", syntax="proto3")
    message = file.message_type.add(name="VersionDef")
    for number, name in enumerate(("splitter_version", "join_version"), 1):
        message.field.add(name=name, number=number, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    foreign = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.proto_splitter.VersionDef"))

    class Versioned(StringsSplitter):
        version_def = property(lambda splitter: foreign(splitter_version=7))

    path = Versioned(RepeatedString(strings=["a", "b"])).write(tmp_path / "it")
    last = list(RecordReader(path))[-1]
    assert message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last).version.splitter_version == 7


def test_a_splitter_is_abstract():
    with pytest.raises(TypeError):
        Splitter()
    with pytest.raises(TypeError):
        ComposableSplitter(RepeatedString())


def test_a_copy_leaves_the_message_alone():
    message = RepeatedString(strings=["a", "b"])
    chunks, _ = split(StringsSplitter(message, copy=True))
    assert (len(chunks), list(message.strings)) == (3, ["a", "b"])
    split(StringsSplitter(message))
    assert not message.strings
    with pytest.raises(ValueError, match="copy="):
        StringsSplitter(message, copy=True, parent_splitter=NothingSplitter(message))


def test_a_chunk_above_the_limit_is_refused_by_name():
    message = ManyFields(string_field="x" * 20, repeated_field=[ManyFields(string_field="y" * 200)])
    with pytest.raises(
        SplitError, match=r"ManyFields: .* 228 bytes .* max_size 200.* repeated_field\[0\], 206"
    ) as caught:
        NothingSplitter(message, max_size=200).split()
    assert (caught.value.wanted, caught.value.got) == (message.ByteSize(), 200)

    class Whole(ComposableSplitter):
        def build_chunks(self):
            self.add_chunk(copy_of(self.proto.repeated_field[0]), ["repeated_field", 0])
            del self.proto.repeated_field[:]

    splitter = Whole(copy_of(message), max_size=100)
    with pytest.raises(SplitError, match=r"repeated_field\[0\]: .*string_field, 203 bytes"):
        splitter.split()
    with pytest.raises(SplitError, match="earlier split failed"):
        splitter.split()
    # Chunks of bytes have no limit.
    StringsSplitter(RepeatedString(strings=["x" * 1000]), max_size=100).split()


def test_a_failed_subclass_is_not_half_done():
    class Failing(ComposableSplitter):
        def build_chunks(self):
            self.add_chunk(b"a", ["strings", 0])
            raise RuntimeError("no")

    splitter = Failing(RepeatedString())
    with pytest.raises(RuntimeError):
        splitter.split()
    with pytest.raises(SplitError):
        splitter.split()


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [None, "uncompressed", "zstd:3,chunk_size:20", "transpose"])
def test_write_makes_folders_and_ends_the_file_with_its_metadata(tmp_path, options):
    texts = ["x" * 5, "yz" * 5, "abc" * 5]
    splitter = StringsSplitter(RepeatedString(strings=texts), proto_as_initial_chunk=False)
    path = splitter.write(tmp_path / "made" / "up" / "strings", options)
    assert path == str(tmp_path / "made" / "up" / "strings.cpb")
    records = records_of(path)
    assert records[:3] == [text.encode() for text in texts]
    assert len(records) == 4
    metadata = Metadata.FromString(records[3])
    assert metadata.version == splitter.version_def
    assert [(chunk.type, chunk.size) for chunk in metadata.chunks] == [(2, 5), (2, 10), (2, 15)]
    assert not metadata.message.HasField("chunk_index")
    assert [entry.message.chunk_index for entry in metadata.message.chunked_fields] == [0, 1, 2]
    with RecordReader(path) as reader:
        for chunk, text in zip(metadata.chunks, texts, strict=True):
            reader.seek_numeric(chunk.offset)
            assert reader.read_record() == text.encode()


def test_positions_in_a_small_file(tmp_path):
    """All records are in the first chunk of the file, at 64."""
    path = StringsSplitter(RepeatedString(strings=["a", "b"])).write(tmp_path / "small")
    metadata = Metadata.FromString(records_of(path)[-1])
    assert [(chunk.type, chunk.size, chunk.offset) for chunk in metadata.chunks] == [(1, 0, 64), (2, 1, 65), (2, 1, 66)]
    assert metadata.message.chunk_index == 0


@pytest.mark.parametrize("options", [None, "uncompressed"])
def test_a_message_left_whole_is_a_pb(tmp_path, options):
    message = ManyFields(string_field="x", map_field_int64={5: "five", 3: "three"})
    path = NothingSplitter(message).write(str(tmp_path / "whole"), options)
    assert path == str(tmp_path / "whole.pb")
    with open(path, "rb") as file:
        assert file.read() == plain(message)
    assert os.listdir(tmp_path) == ["whole.pb"]


def test_the_file_of_the_other_suffix_goes(tmp_path):
    """A reader prefers .cpb: a stale one would win."""
    StringsSplitter(RepeatedString(strings=["old"])).write(tmp_path / "m")
    NothingSplitter(RepeatedString(strings=["new"])).write(tmp_path / "m")
    assert os.listdir(tmp_path) == ["m.pb"]
    merged = RepeatedString()
    Merger.read(tmp_path / "m", merged)
    assert list(merged.strings) == ["new"]
    StringsSplitter(RepeatedString(strings=["newest"])).write(tmp_path / "m")
    assert os.listdir(tmp_path) == ["m.cpb"]


def test_nothing_is_lost_when_writing_fails(tmp_path, monkeypatch):
    (tmp_path / "m.pb").write_bytes(b"precious")
    (tmp_path / "m.cpb").write_bytes(b"as well")
    with pytest.raises(SplitError):
        NothingSplitter(RepeatedString(strings=["x" * 100]), max_size=50).write(tmp_path / "m")
    with pytest.raises(ValueError, match="valid options"):
        StringsSplitter(RepeatedString(strings=["a"])).write(tmp_path / "m", "nonsense")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(SourceError, match="No space"):
        StringsSplitter(RepeatedString(strings=["a"])).write(tmp_path / "m")
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == ["m.cpb", "m.pb"]
    assert (tmp_path / "m.pb").read_bytes() == b"precious"
    assert (tmp_path / "m.cpb").read_bytes() == b"as well"
    with pytest.raises(SourceError, match="cannot create the folder"):
        NothingSplitter(RepeatedString()).write(tmp_path / "m.pb" / "below")


def test_the_same_message_gives_the_same_bytes(tmp_path):
    def write(name, numbers):
        message = ManyFields()
        for number in numbers:
            message.map_field_int64[number] = "v"
        splitter = NothingSplitter(message)
        splitter.add_chunk(copy_of(message), [])
        return Path(splitter.write(tmp_path / name)).read_bytes()

    assert write("a", range(30)) == write("b", range(29, -1, -1))


def test_chunks_without_initial_message_merge(tmp_path):
    message = RepeatedString(strings=["x" * 5, "y"])
    expected = copy_of(message)
    splitter = StringsSplitter(message)
    check_merged(*splitter.split(), expected)
    splitter.write(tmp_path / "m")
    merged = RepeatedString()
    Merger.read(tmp_path / "m", merged)
    assert merged == expected


# -- the limit -------------------------------------------------------------------------------------------------------


def test_the_limit_is_set_for_a_while_or_for_one_splitter():
    assert max_size() == 1 << 30
    with set_max_size("2KiB") as size:
        assert (size, max_size()) == (2048, 2048)
        with debug_set_max_size(5):
            assert max_size() == 5
            root = NothingSplitter(RepeatedString())
            assert root.max_size == 5
            assert NothingSplitter(RepeatedString(), max_size="1KiB").max_size == 1024
            assert NothingSplitter(RepeatedString(), parent_splitter=root).max_size == 5
        assert root.max_size == 2048
        parent = NothingSplitter(RepeatedString(), max_size=7)
        child = NothingSplitter(RepeatedString(), parent_splitter=parent, fields_in_parent=[])
        assert child.max_size == 7
        with pytest.raises(ZeroDivisionError), set_max_size(3):
            raise ZeroDivisionError
        assert max_size() == 2048
    assert max_size() == 1 << 30
    for wrong in (0, -1, "x"):
        with pytest.raises(ValueError, match=r"size|at least"):
            set_max_size(wrong)
    assert max_size() == 1 << 30


def test_the_limit_stays_when_only_called():
    before = split_module._current
    try:
        set_max_size(77)
        assert max_size() == 77
        set_max_size(1 << 40)
        assert max_size() == (1 << 31) - 1  # no message can be larger
    finally:
        set_max_size(before)


# -- field tags ------------------------------------------------------------------------------------------------------


def steps(fields, kind=ManyFields):
    return ".".join(step(index) for index in get_field_tag(kind, fields))


@rows(
    ("fields", "tag"),
    [
        ([], ""),
        (["field_one"], "1"),
        (["field_one", "repeated_field", 15, "map_field_uint32", 10], "1.2.#15.5.10"),
        (("field_one", "repeated_field", 15), "1.2.#15"),
        (["nested_map_bool", False], "7.False"),
        ([2, 55, 7, True, 3], "2.#55.7.True.3"),
        (["repeated_field"], "2"),
        (["map_field_int64"], "6"),
        (["repeated_string_field", 3], "4.#3"),
    ],
)
def test_field_tags_are_those_of_the_path(fields, tag):
    assert steps(fields) == tag
    assert steps(fields, ManyFields()) == tag


def test_kinds_of_keys():
    def kind(field, key):
        return get_field_tag(ManyFields, [field, key])[1].map_key.WhichOneof("type")

    assert kind("map_field_uint32", 10) == "ui32"
    assert kind("map_field_int64", 10) == "i64"
    assert kind("nested_map_bool", False) == "boolean"
    node = message_class("tensorflow.NodeDef")
    assert get_field_tag(node, ["attr", "value"])[1].map_key.WhichOneof("type") == "s"


@rows(
    ("fields", "kind", "words"),
    [
        (["field_x"], FieldNotFoundError, "Unable to find field 'field_x'"),
        (["field_one", 99], FieldNotFoundError, "Unable to find field number 99"),
        (["string_field", "deeper"], ValueError, "Unable to find fields .*deeper.* in proto"),
        (["map_field_uint32", 3, "deeper"], ValueError, "Unable to find fields"),
        (["repeated_field", -1], ValueError, "negative"),
        (["repeated_field", "one"], TypeError, "is an int"),
        (["repeated_field", True], TypeError, "is an int"),
        (["nested_map_bool", 1], TypeError, "is bool"),
        (["map_field_uint32", True], TypeError, "is int"),
        ([True], TypeError, "name or number"),
        ([1.5], TypeError, "name or number"),
    ],
)
def test_tags_that_lead_nowhere(fields, kind, words):
    for function in (get_field_tag, get_field):
        with pytest.raises(kind, match=words):
            function(ManyFields(), fields)


def test_the_error_of_a_missing_field():
    assert issubclass(FieldNotFoundError, PathError)
    assert issubclass(FieldNotFoundError, KeyError)
    with pytest.raises(FieldNotFoundError, match="did you mean 'string_field'") as caught:
        get_field_tag(ManyFields, ["string_fild"])
    assert str(caught.value).startswith("Unable")  # a KeyError would show the repr


def test_keys_that_no_tag_can_hold():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="keys.proto", package="keys", syntax="proto3")
    message = file.message_type.add(name="Keys")
    entry = message.nested_type.add(name="FixedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=7, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    message.field.add(name="fixed", number=1, type=11, label=3, type_name=".keys.Keys.FixedEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    keys = message_factory.GetMessageClass(pool.FindMessageTypeByName("keys.Keys"))
    assert len(get_field_tag(keys, ["fixed"])) == 1
    with pytest.raises(FieldNotFoundError, match="no field tag can hold"):
        get_field_tag(keys, ["fixed", 3])


def test_get_field_follows_names_numbers_indexes_and_keys():
    message = ManyFields(string_field="s", repeated_field=[ManyFields(map_field_uint32={10: "ten"})])
    assert get_field(message, []) == (message, None)
    assert get_field(message, ["string_field"])[0] == "s"
    assert get_field(message, [3])[1].name == "string_field"
    value, field = get_field(message, ["repeated_field", 0, "map_field_uint32", 10])
    assert (value, field.name) == ("ten", "map_field_uint32")
    for fields in (["repeated_field", 1], ["nested_map_bool", True], ["nested_map_bool", True, "string_field"]):
        value, field = get_field(message, fields)
        assert value is None
        assert field.full_name.startswith(TEST)
    assert not message.nested_map_bool  # looking makes nothing
    assert not message.HasField("field_one")
    assert get_field(message, ["field_one", "string_field"])[0] == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (53432, "52.18KiB"),
        (5.977e7, "57MiB"),
        (16493342281, "15.36GiB"),
        (1 << 50, "1048576GiB"),
        (100, "100B"),
    ],
)
def test_bytes_are_shown_in_units(count, text):
    assert format_bytes(count) == text


# -- the face --------------------------------------------------------------------------------------------------------


def test_public_names_are_documented_and_no_others_exist():
    assert sorted(proto_splitter._WHERE) == proto_splitter.__all__ == dir(proto_splitter)
    for name in proto_splitter.__all__:
        assert getattr(proto_splitter, name).__doc__
    assert proto_splitter.SplitError is errors.SplitError
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = proto_splitter.nothing


def test_protobuf_is_imported_when_used():
    script = """
import sys, pparse.proto_splitter as splitter
splitter.GraphDefSplitter, splitter.SizeSplitter, splitter.SavedModelSplitter, splitter.max_size()
print([name for name in ("google.protobuf", "numpy") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_graph_through_a_file(tmp_path):
    graph = make_graph_def_with_constant_nodes([50, 50, 1000, 50, 1000])
    expected = copy_of(graph)
    path = GraphDefSplitter(graph, max_size=500).write(tmp_path / "graph")
    merged = type(graph)()
    Merger.read(path.removesuffix(".cpb"), merged)
    assert merged == expected
