"""Chunked protos read lazily: against files that TensorFlow merged, and against our eager `Merger`."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError, Status
from pparse.data.base import IoStats
from pparse.data.files import FileData
from pparse.errors import LimitError, MalformedError, OptionError, UnsupportedError
from pparse.parsers.protobuf.lists import ListIndex
from pparse.parsers.protobuf.write import measure, operations
from pparse.parsers.protobuf.write import write as write_message
from pparse.proto_splitter import Merger
from pparse.protos import message_class
from pparse.riegeli import RecordReader, RecordWriter
from pparse.testing.contract import tree_of
from tests import sweep
from tests.interop.tensorflow.chunked import (
    ALL,
    NUMBER,
    At,
    Key,
    RandomCase,
    Raw,
    add,
    all_class,
    descriptors,
    tree,
    write,
)
from tests.protobuf_referee import all_nodes, plain, plain_of
from tests.riegeli_fixtures import CHUNK_HEADER, chunk_table
from tests.rows import rows

FILES = Path(__file__).parent / "data" / "tf"
FIXTURES = {path.parent.name: path for path in sorted(FILES.glob("*/*.cpb"))}
OPTIONS = {"message": ALL, "descriptor": descriptors()}
MANY_FIELDS = "tensorflow.proto_splitter_testdata.ManyFields"
Metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")


def expected(name: str):
    """What TensorFlow's Merger made of a fixture."""
    path = FIXTURES[name]
    about = json.loads((path.parent / "expected.json").read_text())
    raw = gzip.decompress((path.parent / "expected.pb.gz").read_bytes())
    return about["message_type"], message_class(about["message_type"]).FromString(raw)


def opened(data, **more):
    options = {**OPTIONS, **more.pop("options", {})}
    return pparse.open(data, format="cpb", options=options, **more)


def merged(data: bytes) -> dict:
    message = all_class()()
    Merger.read_chunked_from_string(data, message)
    return plain(message)


def body(**values):
    return all_class()(**values)


def agree(data: bytes) -> dict:
    """The tree is what the Merger makes of the file, and nothing is wrong with it; return it."""
    wanted = merged(data)
    for block_size in (0, 1):
        with opened(data, block_size=block_size) as doc:
            assert plain_of(doc.root) == wanted
            assert list(doc.check()) == []
            assert doc.status is Status.COMPLETE
            for node in all_nodes(doc.root):
                assert doc.node(node.path) is node
    return wanted


def refused(data: bytes, path: str, reason: str, **more) -> None:
    """The Merger refuses the file; the tree has what is wrong at ``path``, and everything else."""
    with pytest.raises(PparseError):
        merged(data)
    with opened(data, **more) as doc:
        tree_of(doc)
        said = list(doc.check())
        assert any(reason in finding.reason for finding in said), said
        node = doc.node(path)
        assert node.status is Status.DAMAGED, (node, said)


# -- files that TensorFlow merged ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_have_the_tree_of_the_merged_message(name):
    kind, message = expected(name)
    wanted = plain(message)
    for block_size in sweep.values((0, 1, 7), list(FIXTURES).index(name)):
        with pparse.open(FIXTURES[name], options={"message": kind}, block_size=block_size) as doc:
            assert doc.format == "cpb"
            assert doc.root.kind == kind
            assert plain_of(doc.root) == wanted
            assert list(doc.check()) == []
            before = tree_of(doc)
            for node in all_nodes(doc.root):
                assert doc.node(node.path) is node
                node.unload()
            doc.root.unload()
            assert tree_of(doc) == before


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_in_random_order(name):
    """Each node by its path, in a tree of its own, with the hashes checked or not."""
    kind, _ = expected(name)
    with pparse.open(FIXTURES[name], options={"message": kind}) as doc:
        leaves = [(node.path, node.load()) for node in all_nodes(doc.root) if node.shape == "scalar"]
    chooser = random.Random(name)
    for verify in sweep.values(("headers", "touched", "all"), list(FIXTURES).index(name)):
        chooser.shuffle(leaves)
        with pparse.open(FIXTURES[name], options={"message": kind, "verify": verify}) as doc:
            for path, value in leaves[: 200 if sweep.full else 100]:
                assert doc.get(path) == value
                if chooser.random() < 0.2:
                    doc.root.unload()
    for path, value in leaves[:10]:
        with pparse.open(FIXTURES[name], options={"message": kind}) as doc:
            assert doc.get(path) == value


def test_the_type_of_a_saved_model_is_found():
    with pparse.open(FIXTURES["const_chunked"]) as doc:
        assert (doc.format, doc.root.kind) == ("cpb", "tensorflow.SavedModel")
        info = dict(doc.result.parser.details())
        assert info["chunks"].startswith("5 (1 message, 4 bytes), 72,")
    with pparse.open(FIXTURES["const_chunked"].read_bytes()) as doc:  # without a name
        assert (doc.format, doc.root.kind) == ("cpb", "tensorflow.SavedModel")
    with pparse.open(FIXTURES["tree_df"].read_bytes()) as doc:  # of a type that nobody knows
        assert doc.format == "cpb"
        assert list(doc.check()) == []
    with pparse.open(FIXTURES["const_chunked"], format="riegeli") as doc:
        assert doc.format == "riegeli"


def test_chunks_of_fixtures_by_hash():
    import hashlib

    for name, path in FIXTURES.items():
        about = json.loads((path.parent / "expected.json").read_text())
        with pparse.open(path, options={"message": about["message_type"]}) as doc:
            chunks = doc.result.parser.chunks
            for number, chunk in enumerate(about["chunks"]):
                assert hashlib.sha256(chunks.open(number).read()).hexdigest() == chunk["sha256"], (name, number)


# -- anything, against the Merger ------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(100), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 40))
def test_random_files_have_the_tree_of_the_merged_message_or_findings(seed):
    case = RandomCase(seed)
    data = case.data()
    message = all_class()()
    problem = None
    try:
        Merger.read_chunked_from_string(data, message)
    except PparseError as error:
        problem = str(error)
    if problem is not None:
        with opened(data) as doc:
            leaves = tree_of(doc)
            said = list(doc.check())
        # What is wrong below a member of a oneof that another member clears, or in an entry of a map that a later one
        # replaces, nobody sees; an unknown field is shown.
        hidden = "left" in problem or re.search(r"by_\w+\[[^]]*\]\.", problem)
        assert said or hidden or "number 999" in problem, problem
        assert not said or any(leaf.status is not Status.COMPLETE for leaf in leaves)
        return
    wanted = plain(message)
    with opened(data) as doc:
        assert plain_of(doc.root) == wanted
        assert list(doc.check()) == []
        nodes = all_nodes(doc.root)
        paths = [(node.path, node.kind, repr(node.load()) if node.shape == "scalar" else "") for node in nodes]
        for (path, _, _), node in zip(paths, nodes, strict=True):
            assert doc.node(path) is node
        before = tree_of(doc)
        doc.root.unload()
        assert tree_of(doc) == before
    chooser = random.Random(seed)
    with opened(data) as doc:
        for path, kind, value in chooser.sample(paths, min(15, len(paths))):
            found = doc.node(path)
            assert (found.kind, repr(found.load()) if found.shape == "scalar" else "") == (kind, value)


# -- the rules, one by one -------------------------------------------------------------------------------------------


def test_parts_without_a_tag_come_first():
    """In the order of their chunks, and before what has a tag, wherever they are listed."""
    data = write(
        [
            body(int32=1, many_int32=[1]),
            body(int32=2),
            body(many_int32=[2], string="a"),
            body(many_int32=[3], string="b"),
        ],
        tree(0, ((NUMBER["one"],), tree(1)), ((), tree(3)), ((), tree(2))),
    )
    assert agree(data) == {"int32": 1, "one": {"int32": 2}, "many_int32": [1, 2, 3], "string": "b"}


def test_parents_before_children_and_elements_by_index():
    tag = NUMBER["many"]
    data = write(
        [
            body(many=[body(), body()]),
            body(int32=1, string="child"),
            body(int32=2, bool=True, string="parent"),
            body(int32=3),
            body(int64=4),
        ],
        tree(
            0,
            ((tag, At(1), NUMBER["one"]), tree(1)),
            ((tag, At(1)), tree(2)),
            ((tag, At(0)), tree(3)),
            ((tag, At(2)), tree(4)),
        ),
    )
    wanted = agree(data)
    assert wanted["many"][1] == {"int32": 2, "bool": True, "string": "parent", "one": {"int32": 1, "string": "child"}}
    assert wanted["many"][0] == {"int32": 3}
    assert wanted["many"][2] == {"int64": 4}  # one more than there are


def test_nested_trees_and_flat_ones():
    inner = tree(2, ((NUMBER["one"],), tree(3)), ((), tree(4)), ((NUMBER["many"], At(0), NUMBER["string"]), tree(5)))
    data = write(
        [body(), body(int32=1), body(int32=2, many=[body()]), body(int32=3), body(int64=4), b"text"],
        tree(0, ((NUMBER["one"],), tree(1)), ((NUMBER["one"], NUMBER["one"]), inner)),
    )
    assert agree(data) == {
        "one": {"int32": 1, "one": {"int32": 2, "int64": 4, "one": {"int32": 3}, "many": [{"string": "text"}]}}
    }


def test_a_node_without_a_chunk_of_its_own():
    """Its fields are done all the same, from chunk 0 (an index that is not written is 0)."""
    data = write([body(int32=1), body(int32=2)], tree(None, ((NUMBER["one"],), tree(1))))
    assert agree(data) == {"one": {"int32": 2}}
    below = tree(None, ((NUMBER["one"],), tree(1)))
    data = write([body(int32=1), body(int32=2)], tree(None, ((NUMBER["one"],), below)))
    assert agree(data)["one"]["one"] == {"int32": 2}


def test_a_field_without_a_chunk_index_takes_no_chunk():
    """Not even chunk 0, which the number that is not written would be."""
    one, many = NUMBER["one"], NUMBER["many"]
    data = write([body(int32=1), body(int32=2)], tree(None, ((one,), tree(1)), ((one,), tree(None))))
    assert agree(data) == {"one": {"int32": 2}}
    data = write([body(int32=1, many=[body()]), body()], tree(0, ((many, At(0)), tree(None)), ((one,), tree(1))))
    assert agree(data) == {"int32": 1, "many": [{}], "one": {}}


def test_a_field_without_a_tag_and_a_chunk_index_takes_chunk_0():
    data = write([body(int32=1, many_int32=[1]), body(int32=2)], tree(1, ((), tree(None))))
    assert agree(data) == {"int32": 1, "many_int32": [1]}


def test_a_scalar_without_a_chunk_index_takes_chunk_0():
    tag = NUMBER["string"]
    for message in (tree(None), tree(None, ((tag,), tree(1)))):
        data = write([b"first", b"second"], tree(None, ((tag,), message)))
        assert agree(data) == {"string": "first"}
    data = write([b"first", b"second"], tree(None, ((tag,), tree(1)), ((tag,), tree(None))))
    assert agree(data) == {"string": "second"}
    data = write([b"5", body(many_int32=[1, 2])], tree(1, ((NUMBER["many_int32"], At(1)), tree(None))))
    assert agree(data) == {"many_int32": [1, 5]}


def test_a_scalar_whose_number_is_said_again_is_that_scalar():
    tag = NUMBER["string"]
    data = write([body(), b"first", b"second"], tree(0, ((tag, tag, tag), tree(1)), ((tag,), tree(2))))
    assert agree(data) == {"string": "first"}  # a longer tag comes later
    data = write([body(), b"first"], tree(0, ((NUMBER["one"], tag, tag), tree(1))))
    assert agree(data) == {"one": {"string": "first"}}
    again = (NUMBER["many_int32"], At(0), NUMBER["many_int32"])
    refused(write([body(many_int32=[1]), b"5"], tree(0, (again, tree(1)))), "many_int32[0]", "belong to fields below")


def test_what_a_key_is_wrapped_in_does_not_matter():
    many, by_int32, by_bool = NUMBER["many"], NUMBER["by_int32"], NUMBER["by_bool"]
    data = write(
        [body(many=[body(), body()]), body(int32=1), body(int32=2), body(int32=3)],
        tree(0, ((many, Key(i32=1)), tree(1)), ((many, Key(s="2")), tree(2)), ((many, At(0)), tree(3))),
    )
    assert agree(data) == {"many": [{"int32": 3}, {"int32": 1}, {"int32": 2}]}
    data = write(
        [body(), body(int32=1), body(int32=2), body(int32=3), body(int64=4)],
        tree(
            0,
            ((by_int32, At(5)), tree(1)),
            ((by_int32, Key(i32=5)), tree(4)),
            ((by_bool, Key(s="true")), tree(2)),
            ((by_bool, At(0)), tree(3)),
        ),
    )
    assert agree(data) == {
        "by_int32": {(int, 5): {"int32": 1, "int64": 4}},
        "by_bool": {(bool, True): {"int32": 2}, (bool, False): {"int32": 3}},
    }


def test_a_field_without_a_chunk_index_comes_first():
    """Fields that end at one path go by their chunks' indices; one that is not written counts as 0."""
    one = NUMBER["one"]
    data = write(
        [body(), body(one=body(int32=5)), body(int32=7, string="below")],
        tree(0, ((one,), tree(1)), ((one,), tree(None, ((one,), tree(2))))),
    )
    assert agree(data) == {"one": {"one": {"int32": 5, "string": "below"}}}


def test_an_empty_tag_does_not_look_below():
    data = write([body(int32=1), body(int64=2), body()], tree(0, ((), tree(1, ((NUMBER["one"],), tree(2))))))
    assert agree(data) == {"int32": 1, "int64": 2}


@rows(
    ("kind", "key", "value"),
    [
        ("string", Key(s="a"), "a"),
        ("string", Key(s=""), ""),
        ("string", Key(s="日"), "日"),
        ("bool", Key(boolean=True), True),
        ("bool", Key(boolean=False), False),
        ("uint32", Key(ui32=0), 0),
        ("uint32", Key(ui32=3_000_000_000), 3_000_000_000),
        ("uint64", Key(ui64=1 << 63), 1 << 63),
        ("int32", Key(i32=-1), -1),
        ("int64", Key(i64=(1 << 40) + 3), (1 << 40) + 3),
        ("int64", Key(i64=-5), -5),
    ],
)
def test_chunks_of_map_entries_are_merged_with_those_that_are_there(kind, key, value):
    """Of an entry that is there, and of one that is not; merged, not replaced."""
    name = f"by_{kind}"
    base = body()
    getattr(base, name)[value].int32 = 5
    for first, wanted in ((base, {"int32": 5, "string": "x", "bool": True}), (body(), {"string": "x", "bool": True})):
        data = write(
            [first, body(string="x"), body(bool=True)],
            tree(0, ((NUMBER[name], key), tree(1)), ((NUMBER[name], key), tree(2))),
        )
        assert agree(data)[name] == {(type(value), value): wanted}
        with opened(data) as doc:
            assert doc.root[name][value]["string"].load() == "x"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("by_int32", Key(s="12"), 12),
        ("by_string", Key(i32=12), "12"),
        ("by_int64", Key(ui32=3), 3),
        ("by_uint32", Key(i64=3), 3),
        ("by_int32", Key(s="-12"), -12),
        ("by_uint64", Key(i32=0), 0),
    ],
)
def test_key_kinds_are_interchangeable(name, key, value):
    data = write([body(), body(int32=1)], tree(0, ((NUMBER[name], key), tree(1))))
    assert agree(data)[name] == {(type(value), value): {"int32": 1}}


@rows(
    ("name", "key"),
    [
        ("by_int32", Key(s="twelve")),
        ("by_int32", Key(ui32=1 << 31)),
        ("by_uint32", Key(i32=-1)),
        ("by_int32", Key(i64=1 << 40)),
        ("by_int64", Key(ui64=1 << 63)),
        ("by_bool", Key(s="perhaps")),
        ("by_int32", Key(s="")),
        ("by_int32", Key(s=" 1")),
        ("by_int32", Key(s="1.0")),
    ],
)
def test_keys_that_mean_nothing(name, key):
    data = write([body(int64=5), body(int32=1)], tree(0, ((NUMBER[name], key), tree(1))))
    with pytest.raises(PparseError):
        merged(data)
    with opened(data) as doc:
        assert list(doc.check())
        assert doc.get("int64") == 5


def test_keys_stay_in_order():
    keys = ["b", "a", "c", "a"]
    data = write(
        [body(), *(body(many_int32=[number]) for number in range(4))],
        tree(0, *(((NUMBER["by_string"], Key(s=key)), tree(number + 1)) for number, key in enumerate(keys))),
    )
    assert agree(data)["by_string"][str, "a"] == {"many_int32": [1, 3]}
    with opened(data) as doc:
        assert list(doc.root["by_string"].keys()) == ["b", "a", "c"]


@rows(
    ("name", "text", "value"),
    [
        ("int32", b"-12", -12),
        ("int64", b"-9223372036854775808", -(1 << 63)),
        ("uint64", b"18446744073709551615", (1 << 64) - 1),
        ("fixed32", b"0", 0),
        ("sint32", b"7", 7),
        ("double", b"0.1", 0.1),
        ("double", b"nan", float("nan")),
        ("float", b"1e-05", 9.999999747378752e-06),
        ("bool", b"true", True),
        ("bool", b"false", False),
        ("string", "é".encode(), "é"),
        ("string", b"", ""),
        ("bytes", b"\xff\0", b"\xff\0"),
        ("enum", b"GREEN", "GREEN"),
    ],
)
def test_scalars_are_replaced(name, text, value):
    base = body(string="old", bytes=b"old", int32=1, bool=True, enum=1, double=7.0)
    data = write([base, text], tree(0, ((NUMBER[name],), tree(1))))
    agree(data)
    with opened(data) as doc:
        assert repr(doc.get(name)) == repr(value)
        node = doc.node(name)
        node.unload()
        assert repr(node.load()) == repr(value)
        assert doc.node(name).open().read() == text


@pytest.mark.parametrize("name", ["bytes", "string"])
def test_the_same_scalar_twice(name):
    """The last chunk counts; nothing is joined."""
    data = write([body(), b"one", b"two"], tree(0, ((NUMBER[name],), tree(2)), ((NUMBER[name],), tree(1))))
    assert agree(data)[name] in ("two", b"two")


@rows(
    ("name", "text"),
    [
        ("int32", b"12xyz"),
        ("int32", b""),
        ("int32", b"2147483648"),
        ("uint32", b"-1"),
        ("int32", b"\1\0\0\0"),
        ("bool", b"1"),
        ("bool", b"True"),
        ("enum", b"1"),
        ("enum", b"VIOLET"),
        ("double", b"one"),
        ("float", b"1e39"),
        ("string", b"\xff"),
    ],
)
def test_text_that_is_no_value(name, text):
    data = write([body(int64=5), text], tree(0, ((NUMBER[name],), tree(1))))
    with pytest.raises(PparseError):
        merged(data)
    with opened(data) as doc:
        with pytest.raises(MalformedError):
            doc.get(name)
        assert doc.get("int64") == 5
        (finding,) = doc.check()
        assert finding.path == name


def test_text_that_is_no_value_is_not_complete():
    data = write([body(int64=5), b"12xyz"], tree(0, ((NUMBER["int32"],), tree(1))))
    with opened(data) as doc:
        assert doc.node("int32").status is Status.DAMAGED


def test_elements_and_values_that_are_scalars():
    """Beyond what TensorFlow can do, and what its own guides describe."""
    data = write(
        [
            body(many_string=["a", "b"], many_int32=[1, 2, 3], named_double={"k": 1.0}),
            b"B",
            b"c",
            b"-5",
            b"0.25",
            b"RED",
            b"x",
        ],
        tree(
            0,
            ((NUMBER["many_string"], At(1)), tree(1)),
            ((NUMBER["many_string"], At(2)), tree(2)),
            ((NUMBER["many_int32"], At(0)), tree(3)),
            ((NUMBER["named_double"], Key(s="n")), tree(4)),
            ((NUMBER["named_enum"], Key(s="e")), tree(5)),
            ((NUMBER["named_bytes"], Key(s="")), tree(6)),
        ),
    )
    wanted = agree(data)
    assert wanted["many_string"] == ["a", "B", "c"]
    assert wanted["many_int32"] == [-5, 2, 3]
    assert wanted["named_double"] == {(str, "k"): "1.0", (str, "n"): "0.25"}
    assert wanted["named_enum"] == {(str, "e"): "RED"}
    assert wanted["named_bytes"] == {(str, ""): b"x"}
    out = bytearray()
    with opened(data) as doc:
        assert write_message(operations(doc.root), measure(operations(doc.root)), out.extend) == len(out)
    assert plain(all_class().FromString(bytes(out))) == wanted


def test_indices_across_slices():
    """An index counts over all slices of the list."""
    data = write(
        [
            body(many=[body(int32=7)]),
            body(many=[body(int32=1), body(int32=2)]),
            body(many=[body()]),
            body(int32=3),
            body(bool=True),
        ],
        tree(0, ((), tree(1)), ((), tree(2)), ((NUMBER["many"], At(3)), tree(3)), ((NUMBER["many"], At(1)), tree(4))),
    )
    assert agree(data)["many"] == [{"int32": 7}, {"int32": 1, "bool": True}, {"int32": 2}, {"int32": 3}]


def test_an_overlay_entry_at_two_levels_of_one_list():
    """What is appended to a list by an inner tree can be addressed there, and not before."""
    inner = tree(1, ((NUMBER["many"], At(0)), tree(2)), ((NUMBER["many"], At(1)), tree(3)))
    data = write(
        [body(one=body(many=[body(int32=1)])), body(), body(int64=2), body(int64=3), body(string="s")],
        tree(0, ((NUMBER["one"],), inner), ((NUMBER["one"], NUMBER["many"], At(1)), tree(4))),
    )
    assert agree(data)["one"]["many"] == [{"int32": 1, "int64": 2}, {"int64": 3, "string": "s"}]


@rows(
    ("tag", "chunk", "path", "reason"),
    [
        ((NUMBER["many"], At(3)), 1, "many", "element 3"),
        ((NUMBER["many"],), 1, "many", "to the repeated field as a whole"),
        ((NUMBER["by_string"],), 1, "by_string[#0]", "to a map as a whole"),
        ((NUMBER["one"], At(0)), 1, "one", "neither repeated nor a map"),
        ((NUMBER["int32"], NUMBER["one"]), 1, "int32", "below"),
        ((NUMBER["one"],), 9, "one", "no chunk 9"),
        ((NUMBER["one"],), 2, "one", "declared as bytes"),
        ((NUMBER["string"],), 1, "string", "declared as a message"),
        ((), 9, "", "no chunk 9"),
        ((), 2, "", "declared as bytes"),
        ((At(0),), 1, "", "begins with an index"),
        ((Key(s="a"),), 1, "", "begins with an index"),
        ((None,), 1, "", "an empty step"),
        ((NUMBER["many"], At(0), At(0)), 1, "", "two indices"),
    ],
)
def test_tags_that_lead_nowhere(tag, chunk, path, reason):
    data = write(
        [body(int64=5, many=[body()]), body(int32=1), b"7", b"true"],
        tree(0, (tag, tree(chunk)), ((NUMBER["bool"],), tree(3))),
    )
    refused(data, path, reason)
    with opened(data) as doc:
        assert doc.get("int64") == 5
        assert doc.get("bool") is True
        assert doc.node("many[0]").kind == ALL


def test_a_field_that_nobody_knows():
    """The Merger refuses it; a tree can show it under its number."""
    data = write([body(int64=5), body(int32=1)], tree(0, ((999,), tree(1))))
    with pytest.raises(MalformedError):
        merged(data)
    with opened(data) as doc:
        assert doc.get("int64") == 5
        assert doc.node("[999]").kind == "message"


@rows("unknown", [b"\x78\x05", b"\x7d\x05\0\0\0", b"\x79" + bytes(8), b"\x7a\x02ab", b"\x7b\x78\x05\x7c"])
def test_fields_of_a_chunked_field_that_nobody_knows_say_nothing(unknown):
    message = tree(0, ((NUMBER["one"],), tree(1)), ((NUMBER["left"],), tree(2)))
    for field in message.chunked_fields:
        field.MergeFromString(unknown)
        assert unknown in field.SerializeToString()
    data = write([body(int64=5), body(int32=1), body(bool=True)], message)
    assert agree(data) == {"int64": 5, "one": {"int32": 1}, "left": {"bool": True}}


def test_a_file_without_base():
    data = write([b"7"], tree(None, ((NUMBER["int32"],), tree(0))))
    assert agree(data) == {"int32": 7}
    assert agree(write([], tree())) == {}
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False) as writer:
        writer.write_record(b"")
    assert agree(out.getvalue()) == {}  # metadata that say nothing


# -- metadata that are not true --------------------------------------------------------------------------------------


def rewritten(data: bytes, change) -> bytes:
    """The file with its metadata changed; positions of the chunks stay."""
    with RecordReader(data) as reader:
        records = list(reader)
    metadata = Metadata.FromString(records[-1])
    change(metadata)
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        for record in records[:-1]:
            writer.write_record(record)
        writer.write_record(metadata.SerializeToString())
    return out.getvalue()


CHUNKS = [body(int64=5), body(int32=1), b"text", body(int32=9)]
PLAIN = write(
    CHUNKS, tree(0, ((NUMBER["one"],), tree(1)), ((NUMBER["string"],), tree(2)), ((NUMBER["left"],), tree(3)))
)


@rows(
    ("change", "path"),
    [
        (lambda m: setattr(m.chunks[1], "size", 1), "one"),
        (lambda m: setattr(m.chunks[1], "size", 1 << 63), "one"),
        (lambda m: setattr(m.chunks[2], "size", 3), "string"),
        (lambda m: setattr(m.chunks[1], "offset", m.chunks[2].offset), "one"),
        (lambda m: setattr(m.chunks[1], "offset", 1 << 40), "one"),
        (lambda m: setattr(m.chunks[1], "offset", (1 << 64) - 1), "one"),
        (lambda m: setattr(m.chunks[1], "offset", 0), "one"),
        (lambda m: setattr(m.chunks[1], "offset", 70), "one"),
        (lambda m: setattr(m.chunks[1], "type", 2), "one"),
        (lambda m: setattr(m.chunks[2], "type", 1), "string"),
        (lambda m: setattr(m.message.chunked_fields[0].message, "chunk_index", (1 << 64) - 1), "one"),
        (lambda m: setattr(m.chunks[0], "size", 1), ""),
    ],
)
def test_chunks_that_are_not_what_is_said(change, path):
    refused(rewritten(PLAIN, change), path, "chunk")


def test_a_chunk_whose_kind_is_not_said():
    data = rewritten(PLAIN, lambda m: [setattr(chunk, "type", 0) for chunk in m.chunks])
    agree(data)


def test_a_chunk_that_is_no_message():
    data = write([body(int64=5), Raw(b"\x07\xff")], tree(0, ((NUMBER["one"],), tree(1))))
    refused(data, "one", "")
    with opened(data) as doc:
        assert doc.get("int64") == 5


@pytest.mark.parametrize(("join", "bad"), [(1, []), (999, []), (0, [0]), (0, [3, 0])])
def test_files_for_newer_mergers_are_refused_unless_asked_for(join, bad):
    data = write(CHUNKS, tree(0), version=(1, join), bad=bad)
    with pytest.raises(UnsupportedError, match="join version"):
        merged(data)
    with pytest.raises(UnsupportedError, match="join version"):
        opened(data)
    with opened(data, options={"versions": "any"}) as doc:
        assert doc.get("int64") == 5


def test_versions_that_are_for_us():
    for splitter, join, bad in ((0, 0, []), (77, 0, [1, 2]), (1, -1, [])):
        agree(write(CHUNKS, tree(0), version=(splitter, join), bad=bad))


def test_an_option_with_an_unknown_value_is_refused():
    with pytest.raises(OptionError, match="verify"):
        opened(PLAIN, options={"verify": "some"})


# -- metadata that are lost ------------------------------------------------------------------------------------------


def test_a_cut_file_lists_its_chunks():
    path = FIXTURES["const_chunked"]
    raw = path.read_bytes()
    with RecordReader(raw) as reader:
        records = list(reader)
    out = io.BytesIO()
    begins = []
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        for record in records:
            begins.append(writer.pos.numeric)
            writer.write_record(record)
            writer.flush()
    whole = out.getvalue()
    for cut, left in ((len(whole) - 1, 5), (begins[5] + 1, 5), (begins[5], 4), (begins[4] + 41, 4), (begins[1] + 9, 1)):
        data = whole[:cut]
        with pparse.open(data, format="cpb") as doc:
            # A file that ends right behind a chunk may be whole, and lack its metadata for another reason.
            assert doc.status in (Status.TRUNCATED, *(() if cut != begins[5] else (Status.DAMAGED,))), cut
            kids = list(doc.root.children())
            assert kids[0].kind == "tensorflow.SavedModel"
            if cut != begins[5]:  # there a chunk is the last record, and says nothing of the others
                if len(kids) > left:  # the record that is cut
                    assert kids.pop().status is Status.TRUNCATED
                assert len(kids) == left
                assert all(kid.kind == "bytes" for kid in kids[1:])
                assert [kid.load() for kid in kids[1:]] == records[1:left]
                assert kids[0]["saved_model_schema_version"].load() == 1
            said = list(doc.check())
            assert said
            assert "metadata" in said[0].reason


def test_a_riegeli_file_without_chunk_metadata_is_no_cpb():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False) as writer:
        writer.write_records([b"\xff" * 30, b"words that are no metadata"])
    with pparse.open(out.getvalue()) as doc:
        assert doc.format == "riegeli"
    with pparse.open(out.getvalue(), format="cpb") as doc:
        assert [kid.load() for kid in doc.root.children()] == [b"\xff" * 30, b"words that are no metadata"]
        assert doc.status is not Status.COMPLETE
        assert list(doc.check())
    with pparse.open(b"", format="cpb") as doc:
        assert list(doc.root.children()) == []
        assert doc.status is not Status.COMPLETE
    with pparse.open(b"no riegeli at all" * 10, format="cpb") as doc:
        assert list(doc.root.children()) == []
        assert list(doc.check())


def test_the_chunks_of_a_file_without_metadata_are_counted_with_those_whose_hashes_agree():
    chunks = [b"\xff" * 30, b"a" * 500, b"b" * 500, b"words that are no metadata"]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed,chunk_size:1") as writer:
        writer.write_records(chunks)
    whole = out.getvalue()
    at = whole.index(chunks[1])
    for data, agree_too in ((whole, 4), (whole[:at] + b"c" + whole[at + 1 :], 3)):
        with pparse.open(data, format="cpb") as doc:
            assert list(doc.check())
            assert doc.parse().parser.checksums() == (4, agree_too, "chunk")


def separate(chunks: list, message) -> bytes:
    """As `write`, each record in a Riegeli chunk of its own."""
    return write(chunks, message, options="uncompressed,chunk_size:1")


def test_a_lost_chunk():
    """It damages what it belongs to, and nothing else."""
    big = b"x" * 5000
    data = bytearray(
        separate(
            [body(int64=5), body(int32=1), big, body(bool=True)],
            tree(0, ((NUMBER["one"],), tree(1)), ((NUMBER["string"],), tree(2)), ((NUMBER["left"],), tree(3))),
        )
    )
    at = data.index(big)
    data[at + 100] ^= 1
    with opened(bytes(data)) as doc:
        assert doc.get("one.int32") == 1
        assert doc.get("left.bool") is True
        with pytest.raises(MalformedError):
            doc.get("string")
        said = list(doc.check())
        assert said
        assert any("string" in finding.path for finding in said)
        assert doc.parse().parser.checksums() == (4, 3, "chunk")
    with opened(bytes(data), options={"verify": "headers"}) as doc:
        assert len(doc.get("string")) == 5000
    sound = bytes(data[:at]) + big + bytes(data[at + 5000 :])
    for damaged, lost, there in ((body(int64=5), "int64", "one"), (body(int32=1), "one", "int64")):
        raw = damaged.SerializeToString()
        at = sound.index(raw, 64)
        bad = sound[:at] + bytes([raw[0] ^ 0xFF]) + sound[at + 1 :]
        with opened(bad) as doc:
            assert doc.root.find(there) is not None
            assert doc.get("left.bool") is True
            node = doc.root.find(lost)
            assert node is None or node.status is Status.DAMAGED
            assert list(doc.check())


def test_a_saved_model_whose_first_chunk_is_lost_is_known_by_its_name(tmp_path):
    model = b"\x08\x01"  # saved_model_schema_version
    graph = message_class("tensorflow.GraphDef")()
    graph.node.add(name="one")
    data = separate([Raw(model), graph], tree(0, ((2, At(0), 2), tree(1))))
    at = chunk_table(data)[1].begin + CHUNK_HEADER
    path = tmp_path / "saved_model.cpb"
    path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    with pparse.open(path) as doc:
        assert doc.root.kind == "tensorflow.SavedModel"
        assert doc.get("meta_graphs[0].graph_def.node[0].name") == "one"
        assert doc.status is Status.DAMAGED


# -- what it costs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A base, twenty messages and twenty values of 400 kB, each in a Riegeli chunk of its own."""
    path = tmp_path_factory.mktemp("cpb") / "large.cpb"
    parts = [body(int32=number, bytes=bytes([number]) * 400_000) for number in range(20)]
    values = [bytes([100 + number]) * 400_000 for number in range(20)]
    fields = [((NUMBER["many"], At(number)), tree(1 + number)) for number in range(20)]
    fields += [((NUMBER["named_bytes"], Key(s=f"k{number}")), tree(21 + number)) for number in range(20)]
    path.write_bytes(write([body(int64=5), *parts, *values], tree(0, *fields), options="uncompressed,chunk_size:100k"))
    return path


def test_opening_reads_the_end_only(large):
    stats = IoStats()
    with FileData(large, stats=stats) as data, opened(data, options={"verify": "headers"}) as doc:
        assert data.size > 16_000_000
        assert doc.get("int64") == 5
        first = stats.bytes
        assert first < 300_000
        assert doc.get("many[7].int32") == 7
        assert stats.bytes - first < 150_000
        second = stats.bytes
        node = doc.node('named_bytes["k3"]')
        view = node.open()
        view.seek(123_456)
        assert view.read(5) == bytes([103]) * 5
        assert stats.bytes - second < 300_000
        third = stats.bytes
        assert node.load() == bytes([103]) * 400_000
        assert stats.bytes - third < 600_000


def test_a_field_reads_its_parts_only(large):
    stats = IoStats()
    with FileData(large, stats=stats) as data, opened(data) as doc:  # each chunk that is touched is checked as a whole
        doc.get("many[7].int32")
        assert stats.bytes < 1_500_000


def test_many_chunked_fields_within_the_budget():
    """Tens of thousands of them, in one list and in one map."""
    count = 100_000 if sweep.full else 20_000
    half = count // 2
    message = tree(0)
    chunks: list = [body(int64=5, many=[body() for _ in range(10)])]
    chunks += [body(int32=1 + number) for number in range(100)]
    for number in range(half):
        add(message, (NUMBER["many"], At(number)), tree(1 + number % 100))
    for number in range(half):
        add(message, (NUMBER["many"], At(half - 1 - number), NUMBER["one"]), tree(1 + number % 100))
    data = write(chunks, message, options="zstd:1")
    with opened(data, budget="16MiB" if sweep.full else "4MiB") as doc:
        node = doc.root["many"]
        assert len(node) == half
        chooser = random.Random(1)
        for number in [0, 1, 9, 10, half - 1, *(chooser.randrange(half) for _ in range(30))]:
            element = node[number]
            assert element["int32"].load() == 1 + number % 100
            assert element["one"]["int32"].load() == 1 + (half - 1 - number) % 100
        assert isinstance(node.index_to(None).note, ListIndex)
        assert doc.session.budget.peak <= doc.session.budget.limit


MEMORY = """
import sys
import pparse
from pparse.parsers.cpb import parser as cpb  # noqa: F401

def peak(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1])

with pparse.open(sys.argv[1], format="cpb", options={"message": sys.argv[2], "descriptor": sys.argv[3]}) as doc:
    doc.get("int64")
    before = peak("VmRSS")
    assert doc.get("many[7].int32") == 7
    assert len(doc.get('named_bytes["k3"]')) == 400_000
print(peak("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_large_file_is_read_within_a_few_mebibytes(large, tmp_path):
    (tmp_path / "set.binpb").write_bytes(descriptors())
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(large), ALL, str(tmp_path / "set.binpb")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 12 << 10  # of 16 MB


def test_a_scalar_beyond_the_limit(large):
    with opened(large, limits=pparse.Limits(scalar_bytes=1000)) as doc:
        with pytest.raises(LimitError, match="scalar_bytes"):
            doc.get('named_bytes["k3"]')
        assert len(doc.node('named_bytes["k3"]').open().read()) == 400_000


def test_a_chunk_beyond_the_budget_is_told_where_it_stands():
    chunks = [body(int64=5), body(bytes=b"x" * 600_000)]
    data = write(chunks, tree(0, ((NUMBER["one"],), tree(1))), options="transpose,snappy,chunk_size:1")
    at = [chunk.begin for chunk in chunk_table(data) if chunk.num_records][1]
    with opened(data, budget="1MiB") as doc:
        assert doc.get("int64") == 5
        found = list(doc.check())
        assert {finding.code for finding in found} == {"limit"}
        assert at in [finding.offset for finding in found]
    with opened(data, budget="8MiB") as doc:
        assert list(doc.check()) == []


def test_each_kind_of_riegeli_file():
    for options in (
        "uncompressed",
        "brotli:1",
        "zstd:1",
        "snappy",
        "transpose,zstd:1",
        "transpose,uncompressed,chunk_size:1",
        "uncompressed,chunk_size:10",
    ):
        data = write(CHUNKS, tree(0, ((NUMBER["one"],), tree(1)), ((NUMBER["string"],), tree(2))), options=options)
        assert agree(data) == {"int64": 5, "one": {"int32": 1}, "string": "text"}


def test_in_the_folder_of_a_saved_model_the_cpb_is_taken_before_the_pb(tmp_path):
    """A SavedModel folder: its .cpb is taken before the .pb."""
    kind, message = expected("const_chunked")
    (tmp_path / "saved_model.pb").write_bytes(message_class(kind)(saved_model_schema_version=7).SerializeToString())
    with pparse.open(tmp_path) as doc:
        assert doc.format == "saved-model-folder"
        assert doc.get("saved_model_schema_version") == 7
    (tmp_path / "saved_model.cpb").write_bytes(FIXTURES["const_chunked"].read_bytes())
    with pparse.open(tmp_path) as doc:
        assert doc.format == "saved-model-folder"
        assert plain_of(doc.root) == plain(message)


def test_what_is_left_of_nested_trees_is_merged(tmp_path):
    """A lost message takes nothing along that is below it, and a lost value only itself."""
    big = 10**8
    one, text = NUMBER["one"], NUMBER["string"]
    chunks = [*(body(int32=big + number) for number in range(3)), b"text of a field", body(int64=big)]
    inner = tree(2, ((text,), tree(3)), ((one,), tree(4)))
    data = write(chunks, tree(0, ((one,), tree(1, ((one,), inner)))), options="uncompressed,chunk_size:1")
    said, last = {"string": "text of a field"}, {"one": {"int64": big}}
    deep = {"int32": big + 2, **said, **last}
    assert agree(data) == {"int32": big, "one": {"int32": big + 1, "one": deep}}
    raws = [chunk if isinstance(chunk, bytes) else chunk.SerializeToString() for chunk in chunks]
    for number, wanted in (
        (1, {"one": {"one": deep}}),
        (2, {"one": {"int32": big + 1, "one": {**said, **last}}}),
        (3, {"one": {"int32": big + 1, "one": {"int32": big + 2, **last}}}),
        (4, {"one": {"int32": big + 1, "one": {"int32": big + 2, **said, "one": {}}}}),
    ):
        at = data.index(raws[number])
        (tmp_path / "it.cpb").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        out = tmp_path / f"{number}"
        pparse.recover(tmp_path / "it.cpb", out, format="cpb", options=OPTIONS)
        assert plain(all_class().FromString((out / "it.pb").read_bytes())) == {"int32": big, **wanted}
        with pparse.open(out / "it.cpb", format="cpb", options=OPTIONS) as document:
            assert list(document.check()) == []
