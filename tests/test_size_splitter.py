"""`SizeSplitter` and the sizes by parts, for messages of any type."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.errors import SplitError
from pparse.proto_splitter import RepeatedMessageSplitter, SizeSplitter
from pparse.proto_splitter import size as size_module
from pparse.proto_splitter import sizes as measure
from pparse.proto_splitter import split as split_module
from pparse.proto_splitter.size import cut
from pparse.proto_splitter.sizes import message_size
from pparse.protobuf.schema import TYPE_GROUP
from pparse.protos import message_class
from tests import sweep
from tests.rows import rows
from tests.splitter_samples import check_merged, copy_of, entries_of, plain, split, tags_of
from tests.work_counter import instructions

TEST = "tensorflow.proto_splitter_testdata."
ManyFields = message_class(TEST + "ManyFields")
StringNode = message_class(TEST + "StringNode")
RepeatedRepeatedString = message_class(TEST + "RepeatedRepeatedString")

SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
KEYS = ("int32", "int64", "uint32", "uint64", "sint32", "fixed64", "bool", "string")


def make_class():
    """Make a proto2 message with every kind of field: scalars, lists packed and not, maps, groups, extensions."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="every.proto", package="every", syntax="proto2")
    every = file.message_type.add(name="Every")
    number = 0

    def field(name, kind, label=1, type_name=None, packed=None):
        nonlocal number
        number += 1 if number != 14 else 1000  # tags of one, two and three bytes
        made = every.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            made.type_name = type_name
        if packed is not None:
            made.options.packed = packed

    for name, kind in SCALARS.items():
        field(f"f_{name}", kind)
        field(f"r_{name}", kind, 3)
        if kind not in (9, 12):
            field(f"p_{name}", kind, 3, packed=True)
    field("sub", 11, type_name=".every.Every")
    field("subs", 11, 3, ".every.Every")
    field("group", 10, type_name=".every.Every.Group")
    field("groups", 10, 3, ".every.Every.Group")
    group = every.nested_type.add(name="Group")
    group.field.add(name="text", number=1, type=9, label=1)
    every.enum_type.add(name="Color").value.add(name="RED", number=0)
    every.enum_type[0].value.add(name="NEGATIVE", number=-1)
    field("f_enum", 14, type_name=".every.Every.Color")
    field("r_enum", 14, 3, ".every.Every.Color", packed=True)
    for name in KEYS:
        for value in ("Text", "Every"):
            entry = every.nested_type.add(name=f"M{name.title()}{value}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=SCALARS[name], label=1)
            made = entry.field.add(name="value", number=2, type=9 if value == "Text" else 11, label=1)
            if value == "Every":
                made.type_name = ".every.Every"
            field(f"m_{name}_{value.lower()}", 11, 3, f".every.Every.{entry.name}")
    every.extension_range.add(start=20_000, end=30_000)
    file.extension.add(name="ext_text", number=20_001, type=9, label=1, extendee=".every.Every")
    file.extension.add(
        name="ext_subs", number=20_002, type=11, label=3, extendee=".every.Every", type_name=".every.Every"
    )
    file.extension.add(
        name="ext_sub", number=20_003, type=11, label=1, extendee=".every.Every", type_name=".every.Every"
    )
    required = file.message_type.add(name="Required")
    required.field.add(name="name", number=1, type=9, label=2)
    required.field.add(name="list", number=2, type=11, label=3, type_name=".every.Required")
    required.field.add(name="texts", number=3, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    every_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("every.Every"))
    required_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("every.Required"))
    extensions = [pool.FindExtensionByName(f"every.{name}") for name in ("ext_text", "ext_subs", "ext_sub")]
    return every_class, required_class, extensions


Every, Required, EXTENSIONS = make_class()
FIELDS = list(Every.DESCRIPTOR.fields)

RANGES = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(1 << 63), (1 << 63) - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, (1 << 32) - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, (1 << 64) - 1)),
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES = {
    **{name: st.integers(*bounds) | st.integers(max(bounds[0], -3), 300) for name, bounds in RANGES.items()},
    "bool": st.booleans(),
    "string": TEXT,
    "bytes": st.binary(max_size=60),
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
}


@st.composite
def messages(draw, depth=3):
    """A message of any fields, some of them with many elements."""
    message = Every()
    for field in draw(st.lists(st.sampled_from(FIELDS), max_size=5, unique=True)):
        kind, _, name = field.name.partition("_")
        if kind not in ("sub", "subs") and not name.endswith("_every"):
            draw_values(draw, message, field.name)
        elif depth:
            below = [draw(messages(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
            put_messages(draw, message, field.name, below)
    if draw(st.integers(0, 4)) == 0:
        message.Extensions[EXTENSIONS[0]] = draw(TEXT)
        if depth:
            message.Extensions[EXTENSIONS[1]].add().CopyFrom(draw(messages(depth - 1)))
            message.Extensions[EXTENSIONS[2]].CopyFrom(draw(messages(depth - 1)))
    if draw(st.integers(0, 4)) == 0:  # what is unknown: a varint, 64 bits, bytes, a group with a varint, 32 bits
        message.MergeFromString(
            bytes.fromhex("c0bb0196 01c1bb01 0102030405060708 c2bb0103616263 c3bb010801c4bb01 c5bb0101020304")
        )
    return message


def put_messages(draw, message, field, below):
    """Set a field of messages: one, a list of them, or the values of a map."""
    kind, _, name = field.partition("_")
    if kind == "sub":
        message.sub.CopyFrom(below[0])
    elif kind == "subs":
        for each in below * draw(st.sampled_from([1, 1, 9])):
            message.subs.add().CopyFrom(each)
    else:
        mapped = getattr(message, field)
        for each in below:
            mapped[draw(VALUES[name.removesuffix("_every")])].CopyFrom(each)


def draw_values(draw, message, field):
    """Set a field of anything else: a group, texts by key, a value, or a list of them."""
    kind, _, name = field.partition("_")
    if kind == "group":
        message.group.text = draw(TEXT)
    elif kind == "groups":
        for text in draw(st.lists(TEXT, max_size=5)):
            message.groups.add(text=text)
    elif kind == "m":
        keys = draw(st.lists(VALUES[name.removesuffix("_text")], max_size=6))
        getattr(message, field).update({key: draw(TEXT) for key in keys})
    elif kind == "f":
        value = draw(st.sampled_from([0, -1]) if name == "enum" else VALUES[name])
        times = draw(st.sampled_from([1, 1, 7])) if name in ("string", "bytes") else 1
        setattr(message, field, value * times if name in ("string", "bytes") else value)
    else:
        listed = draw(st.lists(st.sampled_from([0, -1]) if name == "enum" else VALUES[name], max_size=8))
        getattr(message, field).extend(listed * draw(st.sampled_from([1, 1, 20])))


# -- sizes -----------------------------------------------------------------------------------------------------------


@given(messages())
@settings(max_examples=sweep.examples(150))
def test_sizes_are_those_of_protobuf(message):
    assert message_size(message) == len(message.SerializeToString())
    total = measure.unknown_size(message)
    for field, value in message.ListFields():
        total += measure.field_size(field, value)
    assert total == message.ByteSize()


@given(messages(depth=1))
@settings(max_examples=sweep.examples(30))
def test_sizes_of_long_lists(message):
    """They are measured in another way."""
    many = Every(subs=[message] * (measure.FEW + 1))
    many.Extensions[EXTENSIONS[1]].extend([message] * 2)
    assert message_size(many) == many.ByteSize()
    by_parts = measure.message_sizes(many.subs, lambda _: True)
    assert by_parts == measure.message_sizes(many.subs) == [message.ByteSize()] * (measure.FEW + 1)


@rows("value", [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 63) - 1, (1 << 64) - 1])
def test_the_size_of_a_varint_is_that_of_its_bytes(value):
    from pparse.kernels.varint import encode_varint

    assert measure.varint_size(value) == len(encode_varint(value))


def test_a_message_too_deep_for_protobuf():
    message = StringNode(val="top")
    node = message
    for _ in range(1100):  # Python itself recurses 1,000 deep
        node = node.child_nodes.add(val="x")
    assert message_size(message) > 1100 * 5
    with pytest.raises(SplitError, match="nested in 100 others"):
        SizeSplitter(message, max_size=1000).split()


# -- any message -----------------------------------------------------------------------------------------------------


@given(messages(), st.integers(20, 600))
@settings(max_examples=sweep.examples(240))
def test_any_message_and_limit(message, limit):
    """All chunks are within the limit, or something is said to be too large; merged, they are the message."""
    expected = copy_of(message)
    splitter = SizeSplitter(message, max_size=limit)
    try:
        chunks, tree = split(splitter)
    except SplitError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.path
        assert refused.wanted > limit
        return
    if message_size(expected) <= limit:
        assert len(chunks) == 1
    check_merged(chunks, tree, expected)
    check_rules(tree, Every.DESCRIPTOR)


def check_rules(tree, descriptor):
    """What TensorFlow's Merger can read: see the table in the module."""
    todo = [(tree, descriptor)]
    for node, above in todo:
        for entry in node.chunked_fields:
            message, at, tag = above, 0, list(entry.field_tag)
            while at < len(tag):
                field = message.fields_by_number[tag[at].field]
                assert field.type != TYPE_GROUP, "no tag names a group"
                at += 1
                message = field.message_type
                if message is not None and message.GetOptions().map_entry:
                    message = message.fields_by_number[2].message_type
                    assert message is not None, "a scalar in a map has no tag"
                    key = tag[at].map_key
                    kind = key.WhichOneof("type")
                    assert kind not in ("i64", "ui64") or 0 <= getattr(key, kind) < 1 << 31
                    at += 1
                elif field.is_repeated:
                    assert message is not None, "a repeated scalar has no index"
                    assert tag[at].WhichOneof("kind") == "index"
                    at += 1
            if entry.message.chunked_fields:
                assert tag[-1].WhichOneof("kind") == "map_key"
                todo.append((entry.message, message))


def test_large_values_go_first_and_alone():
    message = ManyFields(string_field="s" * 50, field_one=ManyFields(string_field="x" * 1000))
    message.repeated_field.add(string_field="y" * 400)
    message.nested_map_bool[True].string_field = "é" * 300
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=200))
    assert tags_of(tree) == [("1.3", 1), ("7.True.3", 2), ("2.#0.3", 3)]
    assert chunks[1:] == [b"x" * 1000, "é".encode() * 300, b"y" * 400]
    check_merged(chunks, tree, expected)


def test_no_more_than_needed():
    message = ManyFields(string_field="x" * 90, field_one=ManyFields(string_field="y" * 80))
    chunks, tree = split(SizeSplitter(message, max_size=150))
    assert tags_of(tree) == [("3", 1)]
    assert chunks[0].field_one.string_field == "y" * 80


def test_messages_are_moved_whole():
    message = ManyFields(string_field="x")
    message.field_one.repeated_string_field.extend(["y" * 10] * 10)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=124))
    assert tags_of(tree) == [("1", 1)]
    assert chunks[1] == expected.field_one
    assert not chunks[0].HasField("field_one")
    check_merged(chunks, tree, expected)


def test_slices_of_scalars_and_maps():
    message = ManyFields(repeated_string_field=["text"] * 40)
    message.map_field_uint32.update(dict.fromkeys(range(40), "v" * 10))
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=200))
    assert {tag for tag, _ in tags_of(tree)} == {""}
    assert len(chunks) <= -(-message_size(expected) // 200) + 2
    check_merged(chunks, tree, expected)


def test_entries_of_maps():
    """By key where a tag can say it so that TensorFlow finds it: not by a fixed key, nor one above 31 bits."""
    message = Every()
    for key in (3, (1 << 40) + 3):
        for name in ("m_int64_every", "m_uint64_every", "m_fixed64_every"):
            getattr(message, name)[key].r_string.extend(["x" * 10] * 10)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=150))
    numbers = {name: Every.DESCRIPTOR.fields_by_name[name].number for name in ("m_int64_every", "m_uint64_every")}
    named = [tag for tag, _ in tags_of(tree) if tag]
    assert sorted(named) == sorted(f"{number}.3" for number in numbers.values())
    check_merged(chunks, tree, expected)


def test_groups_are_in_slices():
    """TensorFlow's Merger looks for a field of the group's own name, and finds none, or another."""
    message = Every(f_string="s" * 90)
    message.group.text = "g" * 120
    message.m_bool_every[True].group.text = "k" * 120
    message.m_bool_every[True].f_string = "x" * 90
    for letter in "abc":
        message.groups.add(text=letter * 150)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=200))
    assert len(chunks) > 4
    check_rules(tree, Every.DESCRIPTOR)
    check_merged(chunks, tree, expected)
    message = Every()
    message.group.text = "g" * 300
    with pytest.raises(SplitError, match="could not be split off is group"):
        SizeSplitter(message, max_size=200).split()
    message = Every()
    message.groups.add(text="g" * 300)
    with pytest.raises(SplitError, match=r"groups\[0\]"):
        SizeSplitter(message, max_size=200).split()


def test_a_list_of_groups():
    message = Every()
    for letter in "abcdef":
        message.groups.add(text=letter * 50)
    expected = copy_of(message)
    splitter = RepeatedMessageSplitter(message, "groups", max_size=120)
    chunks, tree = split(splitter)
    check_rules(tree, Every.DESCRIPTOR)
    check_merged(chunks, tree, expected)


def test_lists_below_a_key_are_a_tree():
    message = ManyFields()
    for key in (True, False):
        message.nested_map_bool[key].repeated_string_field.extend(f"{key} {number}" * 3 for number in range(100))
        for number in range(30):
            message.nested_map_bool[key].repeated_field.add(string_field=f"{number}" * 40)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=150))
    assert [len(tag.split(".")) for tag, _ in tags_of(tree)] == [2, 2]
    assert len(entries_of(tree)) == len(chunks) - 1
    check_merged(chunks, tree, expected)
    check_rules(tree, ManyFields.DESCRIPTOR)


def test_parts_of_entries_of_values_come_after_the_values():
    """An entry that is merged replaces what is there: order matters below a key, so there is a tree in the tree."""
    message = ManyFields()
    value = message.nested_map_bool[True]
    value.nested_map_bool[False].string_field = "x" * 300
    value.nested_map_bool[False].field_one.string_field = "y" * 60
    value.string_field = "z" * 60
    message.string_field = "w" * 66
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=200))
    check_merged(chunks, tree, expected)
    [entry] = [entry for entry in tree.chunked_fields if entry.message.chunked_fields]
    assert chunks[entry.message.chunk_index].string_field == "z" * 60
    assert [step.field for step in entry.message.chunked_fields[0].field_tag][::2] == [7, 3]


def test_the_work_for_keys_grows_with_their_count():
    """Values below keys, each with parts that need their order."""
    work = []
    for count in (40, 80, 160):
        message = ManyFields()
        for number in range(count):
            value = message.nested_map_bool[True].repeated_field.add().nested_map_bool[False]
            value.repeated_field.add(string_field=f"{number}" * 90)
            value.repeated_string_field.extend(["z" * 30] * 10)
        splitter = SizeSplitter(message, max_size=200)
        work.append(instructions(splitter.split, split_module, size_module))
        assert len(splitter.split()[0]) > 2 * count
    assert work[2] - work[1] < 2.5 * (work[1] - work[0])


def test_required_fields_stay():
    message = Required(name="n" * 50, texts=["t" * 20] * 20)
    for number in range(5):
        message.list.add(name=f"{number}" * 80)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=200))
    assert chunks[0].IsInitialized()
    assert all(element.name for chunk in chunks for element in chunk.list)
    check_merged(chunks, tree, expected)
    with pytest.raises(SplitError, match="required fields are missing: name"):
        SizeSplitter(Required(), max_size=200).split()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (ManyFields(repeated_string_field=["a", "b" * 300]), r"repeated_string_field\[1\]"),
        (ManyFields(map_field_int64={5: "x" * 300}), r"map_field_int64\[5\]"),
        (Required(name="n" * 300), "largest part that could not be split off is name"),
        (Every(f_int32=5).FromString(b"\xc2\xbb\x01\xac\x02" + b"u" * 300), "is its unknown fields, 305"),
    ],
)
def test_what_cannot_be_split_is_named(message, words):
    with pytest.raises(SplitError, match=words) as caught:
        SizeSplitter(message, max_size=200).split()
    assert caught.value.wanted > caught.value.got == 200


def test_room_and_what_is_kept():
    message = ManyFields(string_field="x" * 100, repeated_string_field=["y" * 10] * 20)
    gone = SizeSplitter(message, room=120, keep=["repeated_string_field"], max_size=1000).build_chunks()
    assert gone == 102
    assert len(message.repeated_string_field) == 20
    size = message_size(message)
    assert SizeSplitter(message, room=size, max_size=1000).build_chunks() == 0
    assert SizeSplitter(message, room=0, max_size=1000).build_chunks() == size
    assert not message.ListFields()


def test_a_chain_of_messages():
    message = StringNode(val="x" * 100)
    node = message
    for number in range(60):
        node = node.child_nodes.add(val=f"{number}" * 30)
    expected = copy_of(message)
    chunks, tree = split(SizeSplitter(message, max_size=300))
    assert plain(expected)
    check_merged(chunks, tree, expected)


def test_what_is_split_into_a_file_is_merged_again(tmp_path):
    from pparse.proto_splitter import Merger

    message = RepeatedRepeatedString(filler_field=3)
    for number in range(50):
        message.rs.add(strings=[f"{number}"] * 10)
    expected = copy_of(message)
    SizeSplitter(message, max_size="1KiB").write(tmp_path / "m", "transpose")
    merged = RepeatedRepeatedString()
    Merger.read(tmp_path / "m", merged)
    assert merged == expected


@given(st.lists(st.integers(1, 10), max_size=30), st.integers(-5, 40), st.integers(10, 30))
def test_cuts_leave_slices_within_the_limit(sizes, first, limit):
    cuts = cut(sizes, first, limit)
    assert cuts[-1] == len(sizes)
    assert cuts == sorted(cuts)
    assert sum(sizes[: cuts[0]]) <= max(first, 0)
    for start, end in pairwise(cuts):
        assert 0 < sum(sizes[start:end]) <= limit
