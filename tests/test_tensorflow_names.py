"""A name among many constants: only NodeDefs that may have it are looked at, and none is missed."""

from __future__ import annotations

import pytest

import pparse
from pparse.cli import main
from pparse.kernels.varint import encode_varint
from pparse.protos import message_class
from pparse.viewers.tensor_proto import viewer as tensorflow
from pparse.viewers.tensorflow import constants as tensorflow_constants
from pparse.viewers.tensorflow.constants import letters_of
from tests.rows import rows

GRAPH = message_class("tensorflow.GraphDef")


def const(nodes, name: str) -> None:
    tensor = nodes.add(name=name, op="Const").attr["value"].tensor
    tensor.dtype = 1
    tensor.float_val.append(len(name))


def graph_of(names: list[str]) -> bytes:
    graph = GRAPH()
    for name in names:
        const(graph.node, name)
    return graph.SerializeToString()


def many(count: int, *more: str) -> bytes:
    return graph_of([*(f"layer_{number}/kernel" for number in range(count)), *more])


def looked_at(monkeypatch) -> list[int]:
    """Return a list that grows by each NodeDef that is looked at for its constants."""
    seen: list[int] = []
    real = tensorflow_constants.Constants._places_of

    def counted(self, scope, ordinal, *rest):
        seen.append(ordinal)
        return real(self, scope, ordinal, *rest)

    monkeypatch.setattr(tensorflow_constants.Constants, "_places_of", counted)
    return seen


@pytest.mark.parametrize("path", ["node[1500].name", "node[3].attr.value.tensor.dtype", "node[7].name[0:2]"])
def test_a_path_of_a_node_costs_no_search_by_name(path, tmp_path, monkeypatch, capsys):
    file = tmp_path / "graph.pb"
    file.write_bytes(many(2_000))
    seen = looked_at(monkeypatch)
    assert main(["get", str(file), path]) == 0
    assert capsys.readouterr().out
    assert not seen


@pytest.mark.parametrize("count", [2_000, 8_000])
def test_a_name_is_looked_for_only_near_where_its_letters_stand(count, monkeypatch):
    seen = looked_at(monkeypatch)
    with pparse.view(many(count, "the one"), format="graph-def") as model:
        assert model["the one"].numpy() == 7
        assert model.find("another one") is None
    assert len(seen) <= 64


def test_a_tensor_comes_before_a_node_of_the_same_path(tmp_path, capsys, monkeypatch):
    file = tmp_path / "graph.pb"
    file.write_bytes(many(100, "node[3].name", "node[300].name", "versions.producer", "node"))
    for name in ("node[300].name", "versions.producer"):
        assert main(["get", str(file), name]) == 0
        assert capsys.readouterr().out.startswith(f"{name}  float32")
    assert main(["get", str(file), "-p", "node", "-o", str(tmp_path / "x.npz")]) == 0
    assert (tmp_path / "x.npz").exists()
    assert main(["get", str(file), "node"]) == 0  # a field of the message
    assert capsys.readouterr().out.startswith('[\n  {\n    "name": "layer_0/kernel"')
    # TensorFlow takes no node of such a name: where it is a path to something, no tensor is looked for.
    seen = looked_at(monkeypatch)
    for number in (3, 4):
        assert main(["get", str(file), f"node[{number}].name"]) == 0
        assert capsys.readouterr().out == f"layer_{number}/kernel\n"
    assert not seen


def test_every_label_is_found_as_it_is_when_all_are_looked_at():
    graph = GRAPH()
    for number in range(200):
        const(graph.node, f"c{number}")
    for name in ("a.b", "a.b.c", "", "x" * 200, "ä", "dotted." * 12):
        const(graph.node, name)
        graph.node.add(name=name, op="Op").attr["key.k"].list.tensor.add(dtype=1)
    function = graph.library.function.add()
    function.signature.name = "f.g"
    const(function.node_def, "inner.c")
    content = graph.SerializeToString()
    with pparse.view(content, format="graph-def") as model:
        names = list(model)
    for name in names:
        with pparse.view(content, format="graph-def") as model:
            found = model.find(name)
            assert found is not None
            assert found.name == name
            assert model.find(name + "?") is None


def test_a_name_is_found_whatever_the_varint_of_its_length():
    tensor = message_class("tensorflow.TensorProto")(dtype=1).SerializeToString()
    attr = b"\x0a\x05value\x12" + bytes((len(tensor) + 2,)) + b"\x42" + bytes((len(tensor),)) + tensor
    rest = b"\x12\x05Const\x2a" + bytes((len(attr),)) + attr
    for length in (b"\x03", b"\x83\x00", b"\x83\x80\x00"):
        node = b"\x0a" + length + b"abc" + rest
        content = many(500) + b"\x0a" + bytes((len(node),)) + node
        with pparse.view(content, format="graph-def") as model:
            assert model.find("abc") is not None


@rows("pad", [b"\x80", b"\x00", b"\x80\x80"])
def test_a_tensor_is_found_whatever_the_varint_of_its_tag(pad):
    """The library reads a tag, or a length, in more bytes than it needs."""
    longer = pad if pad[-1:] == b"\0" else pad + b"\0"
    tensor = b"\xc2" + longer + b"\x04\x08\x01\x12\0"
    for value in (tensor, b"\x0a" + bytes((len(tensor),)) + tensor):
        pair = b"\x0a\x05value\x12" + bytes((len(value),)) + value
        for op in (b"\x12\x85" + longer + b"Const", b"\x12\x01A"):
            node = b"\x0a\x01n" + op + b"\x2a" + bytes((len(pair),)) + pair
            raw = b"\x0a" + bytes((len(node),)) + node
            (said,) = GRAPH.FromString(raw).node
            assert said.attr["value"].WhichOneof("value") == ("tensor" if value is tensor else "list")
            name = "n" + ".value" * (said.op == "A") + "[0]" * (value is not tensor)
            with pparse.view(raw, format="graph-def") as model:
                assert name in list(model)
    lacks = b"\x0a\x01n" + b"\x92" + longer + b"\x05Const"
    for node in (lacks, b"\x0a\x01n\x12\x85" + longer + b"Const"):
        with pparse.view(b"\x0a" + bytes((len(node),)) + node, format="graph-def") as model:
            assert [str(each.status) for each in model.tensors()] == ["damaged"]


def test_a_word_that_stands_everywhere_is_looked_up_in_a_table_in_the_end(monkeypatch):
    monkeypatch.setattr(tensorflow_constants, "_MOST_LOOKED", 1_000)
    content = graph_of(["same"] * 1_500)
    with pparse.view(content, format="graph-def") as model:
        assert model.find("same.a") is None
        seen = looked_at(monkeypatch)
        for number in range(20):
            assert model.find(f"same.{number}") is None
        assert len(seen) == 1_500  # once, for the table


def test_the_letters_of_a_name_are_those_of_the_node():
    assert letters_of("") == letters_of(".a") == letters_of("[3].a") == ()
    assert letters_of("@f/abc", "@f/") == (b"\x03abc", b"\0abc")
    assert letters_of("a.b") == (b"\1a", b"\0a", b"\3a.b", b"\0a.b")
    assert letters_of("x" * 200) == (b"x" * 200,)
    assert letters_of("\udc80") == ()


def test_a_name_that_leads_nowhere_is_compared_with_the_first_nodes_only(monkeypatch):
    monkeypatch.setattr(tensorflow, "_NEAR", 100)
    graph = GRAPH()
    const(graph.node, "first/kernel")
    for number in range(3_000):
        graph.node.add(name=f"layer_{number}/op", op="Add")
    const(graph.node, "zzz/bias")
    with pparse.open(graph.SerializeToString(), format="graph-def") as doc:
        viewer = doc.view()
        seen = looked_at(monkeypatch)
        assert viewer.suggest("first/kernal") == ("first/kernel",)
        assert viewer.suggest("zzz/bia") == ()
    assert len(seen) <= 2 * 100


def test_long_names_are_not_held_for_their_numbers():
    names = [f"{'n' * 300}{number}" for number in range(10)]
    with pparse.open(graph_of([*names, names[0]]), format="graph-def") as doc:
        assert list(doc.view()) == [*names, f"{names[0]}#2"]


@rows("begin", [b"", b"\x0a\x05train", b"\x0a\x05train\x10\xe8\x07"], ids=repr)
@rows("size", [600, 3_000_000])
def test_statistics_of_features_are_no_graph(tmp_path, begin, size) -> None:
    """Lists of messages with a name, a number and messages, where nodes of a graph have two names and texts."""

    def field(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2,)) + encode_varint(len(content)) + content

    feature = field(3, field(1, b"feature") + b"\x10\x01\x3a" + field(1, b"\x08\x64\x21" + bytes(8))[1:])
    (tmp_path / "a.pb").write_bytes(field(1, begin + feature * (size // len(feature))))
    with pparse.open(tmp_path / "a.pb") as document:
        assert document.format == "protobuf"
    (tmp_path / "a.pb").write_bytes(field(1, (begin[:7] or b"\x0a\x01n") + field(2, b"Const") + field(3, b"in" * size)))
    with pparse.open(tmp_path / "a.pb") as document:
        assert document.format == "graph-def"
