"""What differs between two graphs: nodes are paired by what they say, by where they are, and by their names."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pparse
from pparse.document.registry import viewer_for
from pparse.errors import LimitError, MalformedError
from pparse.graphs.graph import Graph
from pparse.graphs.source import Edge, GraphSource
from pparse.measuring.difference import diff
from pparse.measuring.graph_difference import graph_difference
from tests.onnx_models import branching
from tests.rows import rows

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
TINY = ROOT / "docs" / "samples" / "tiny.onnx"


class Attribute:
    def __init__(self, value: object) -> None:
        self.value = value

    def to_python(self, most: int) -> object:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Lines(GraphSource):
    """A graph of lines ``name operation input … key=value …``; ``values``: each node makes values of its own names."""

    def __init__(self, host: object, text: str, values: bool = False, is_cut: bool = False) -> None:
        super().__init__(host)
        self.lines = [line.split() for line in text.split(";") if line.strip()]
        self.names_values, self.is_cut = values, is_cut
        self.placeholders = ("Get",)

    @property
    def is_whole(self) -> bool:
        return not self.is_cut

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self):
        return map(self.row, range(len(self.lines)))

    def row(self, ordinal: int):
        name, op, *words = self.lines[ordinal]
        inputs = [word for word in words if "=" not in word]
        return ordinal, name, op, inputs, "", (), [name, f"{name}b"] if self.names_values else None

    def node(self, ordinal: int):
        return self.extraction.root

    def attributes(self, ordinal: int):
        pairs = (word.split("=") for word in self.lines[ordinal][2:] if "=" in word)
        return {key: Attribute(MalformedError("bad") if value == "bad" else value) for key, value in pairs}

    def producer(self, text: str) -> str:
        return text if self.names_values else text.partition(":")[0]

    def edge(self, text: str, target: str, port: int) -> Edge:
        return Edge(self.producer(text), 0, target, port, False)

    def inputs(self):
        return ["x"] if self.names_values else []

    def constants(self):
        made = {row[1] for row in self.rows()} | {f"{row[1]}b" for row in self.rows()} | {"x"}
        used = (text for row in self.rows() for text in row[3])
        return iter(dict.fromkeys(text for text in used if self.names_values and text not in made))

    def results(self):
        return {"end": self.lines[-1][0]} if self.names_values and self.lines else {}


def compared(old: str, new: str, tensors: str = "", **how: bool) -> list[str]:
    """Return what differs between two graphs, a word for each node."""
    with pparse.view(TINY) as host:
        sides = []
        for number, text in enumerate((old, new)):
            source = Lines(host.extraction, text, how.get("values", False), is_cut=bool(number and how.get("is_cut")))
            sides.append(SimpleNamespace(graph=Graph(source), find=lambda name: name in tensors.split() or None))
        found = graph_difference(*sides)
        assert found is not None
    words = []
    for one in found.nodes:
        if not one.name:
            continue  # the inputs of the graph are nodes here
        name = one.name + (f">{one.new_name}" if one.new_name else "")
        words.append(" ".join([one.verdict, name, *(f"{told.what}:{told.old}>{told.new}" for told in one.details)]))
    same = len([line for line in old.split(";") if line.strip()]) - sum(w.split()[0] != "added" for w in words)
    assert how.get("is_cut") or found.equal == same
    json.dumps(found.to_dict())
    return words


CHAIN = "a Get; b Mul a k=1; c Add b a; d Relu c"


@rows(
    "old, new, wanted, how",
    [
        (CHAIN, CHAIN, [], {}),
        (CHAIN, "a Get; c Add b a; b Mul a:0 k=1; d Relu c", [], {}),  # in another order, and a default spelled out
        (CHAIN, CHAIN.replace("k=1", "k=2"), ["changed b k:1>2"], {}),
        (CHAIN, CHAIN.replace("k=1", ""), ["changed b k:1>None"], {}),
        (CHAIN, CHAIN.replace("Relu", "Elu"), ["changed d operation:Relu>Elu"], {}),
        (CHAIN, CHAIN.replace("c Add b a", "c Add a b"), ["changed c input 0:b>a input 1:a>b"], {}),
        (CHAIN, CHAIN.replace("c Add b a", "c Add b a:1"), ["changed c input 1:a>a:1"], {}),
        (CHAIN, CHAIN.replace("c Add b a", "c Add b"), ["changed c input 1:a>None"], {}),
        (CHAIN, "a Get; b Mul a k=1; c Add b a; x Tanh c; d Relu x", ["changed d input 0:c>x", "added x"], {}),
        (CHAIN, "a Get; c Add a a; d Relu c", ["removed b", "changed c input 0:b>a"], {}),
        (CHAIN, CHAIN.replace("b", "q"), ["renamed b>q"], {}),
        (
            CHAIN,
            "e Get; f Mul e k=1; g Add f e; h Relu g",
            [f"renamed {a}>{b}" for a, b in ("ae", "bf", "cg", "dh")],
            {},
        ),
        (CHAIN, "", [f"removed {name}" for name in "abcd"], {}),
        (CHAIN, "a Get; b Mul a k=1", ["is cut"], {"is_cut": True}),
        (CHAIN, CHAIN.replace("k=1", "k=3"), [], {"tensors": "b"}),  # told by its values
        (CHAIN.replace("1", "bad"), CHAIN.replace("1", "bad"), [], {}),
        # Numbers in names move on behind what was added: what is the same goes by where it is.
        (
            "t1 Mul x; t2 Relu t1; t3 Mul t2; end Relu t3",
            "t1 Mul x; t2 Tanh t1; t3 Relu t2; t4 Mul t3; end Relu t4",
            ["changed t2>t3 input 0:t1>t2", "renamed t3>t4", "added t2"],
            {"values": True},
        ),
        ("t1 Mul x w; end Add t1 w", "t1 Mul x v; end Add t1 v", [], {"values": True}),  # one name of a tensor
        (
            "t1 Mul w v; end Add t1 w",
            "t1 Mul v w; end Add t1 w",
            ["changed t1 input 0:w>v input 1:v>w"],
            {"values": True},
        ),
        ("t1 Mul w; end Add t1 u", "t1 Mul v; end Add t1 v", ["changed end input 1:u>v"], {"values": True}),
        ("t1 Split x; end Relu t1", "t1 Split x; end Relu t1b", ["changed end input 0:t1>t1b"], {"values": True}),
        # A loop, and nodes that are all alike
        ("a Next b; b Add a", "a Next b; b Add a k=1", ["changed b k:None>1"], {}),
        ("a Get; a Get; a Get", "a Get; a Get", ["removed a"], {}),
    ],
)
def test_what_differs(old: str, new: str, wanted: list[str], how: dict) -> None:
    assert compared(old, new, **how) == (wanted if wanted != ["is cut"] else [])


def graphs() -> list[Path]:
    kinds = ("coreml/*.mlmodel", "flatbuffers/*.[moptr]*", "onnx/*.onnx", "paddle/*.pdmodel", "pytorch/script/*")
    return [path for kind in kinds for path in sorted(DATA.glob(kind))] + [TINY, ROOT / "docs/samples/saved-model"]


def test_a_graph_is_its_own_and_one_byte_is_told_in_every_format() -> None:
    formats = set()
    for path in graphs():
        with pparse.open(path) as document:
            if viewer_for(document) is None:
                continue
        with pparse.view(path) as old, pparse.view(path) as new:
            if old.graph is None:
                continue
            found = graph_difference(old, new)
            assert found is not None
            assert found.is_same, path
            assert found.equal == old.graph.node_count + sum(body.node_count for body in old.graph.bodies.values())
            formats.add(old.graph.source.format)
    assert len(formats) >= 7, formats
    content = (DATA / "flatbuffers" / "int8.tflite").read_bytes()
    with pparse.view(content) as model:
        at = next(kid.start for kid in model.graph.source.attributes(0).values() if kid.key == "stride_w")
    changed = content[:at] + struct.pack("<i", 7) + content[at + 4 :]
    ((one,), (two,)) = (diff(content, changed).graph.nodes, [diff(content, content).graph.counts])
    assert [(told.what, told.new) for told in one.details] == [("stride_w", 7)]
    assert two == {}


def test_branches_and_ends_are_compared() -> None:
    old, new = branching(), branching()
    body = new.graph.node[next(n for n, node in enumerate(new.graph.node) if node.op_type == "If")].attribute[0].g
    body.node[0].op_type = "Tanh"
    new.graph.input[0].name += "2"
    found = diff(old.SerializeToString(), new.SerializeToString()).graph
    assert found is not None
    assert {one.body for one in found.nodes if one.verdict == "changed"} >= {""}
    assert any(told.what.startswith("input ") for told in found.nodes[0].details)
    assert any(told.new == "Tanh" for one in found.nodes for told in one.details)
    del new.graph.node[next(n for n, node in enumerate(new.graph.node) if node.op_type == "If")]
    bodies = {"if_1.then_branch", "if_1.else_branch", "if_1.else_branch/loop.body"}
    for first, second, verdict in ((old, new, "removed"), (new, old, "added")):
        told = diff(first.SerializeToString(), second.SerializeToString()).graph
        assert {one.name for one in told.nodes if one.verdict == verdict and one.operation == "body"} == bodies


def test_graphs_that_cannot_be_compared(monkeypatch) -> None:
    assert diff(TINY, TINY, graph=False).to_dict()["graph"] is None
    with pparse.view(TINY) as model:
        none = SimpleNamespace(graph=None, format=model.format)
        found = graph_difference(model, none)
        assert found is not None
        assert not found.is_same
        assert "only the first model" in found.reason
        assert graph_difference(none, none) is None
        none.format = "other"
        assert graph_difference(none, model) is None
        monkeypatch.setattr(
            model.graph.source, "rows", lambda: (_ for _ in ()).throw(LimitError("too many", option="x"))
        )
        assert not diff(model, model).is_identical


def test_large_graphs_take_linear_time() -> None:
    def steps(count: int) -> int:
        old = ";".join(f"n{number} Op{number % 3} n{number - 1} k=1" for number in range(1, count))
        new = ";".join(f"m{number} Op{number % 3} m{number - 1} k={number % 97}" for number in range(1, count))
        done = 0

        def count_calls(frame: object, event: str, arg: object) -> None:
            nonlocal done
            done += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            compared(old, new)
        except AssertionError:
            pass
        finally:
            sys.setprofile(None)
        return done

    assert steps(4_000) < 2.5 * steps(2_000)


def test_graphs_on_the_command_line(run, tmp_path) -> None:
    paths = [tmp_path / f"{name}.onnx" for name in "ab"]
    old, new = branching(), branching()
    new.graph.node[-1].op_type = "Softmax"
    for path, model in zip(paths, (old, new), strict=True):
        path.write_bytes(model.SerializeToString())
    found = run("diff", *paths)
    assert found.code == 1
    assert found.lines[0].split() == ["NODE", "WHAT", "OPERATION", "HOW"]
    assert "Softmax" in found.lines[1]
    assert "graph: 1 changed" in found.lines[-1]
    assert run("diff", *paths, "--no-graph").code == 0
    assert run("diff", *paths, "*").code in (0, 2)
    told = run("diff", *paths, "--json").json
    assert told["identical"] is False
    assert told["graph"]["counts"] == {"changed": 1}
    assert run("diff", paths[0], paths[0]).code == 0


@pytest.mark.parametrize("count", [40])
def test_many_differences_are_cut(run, tmp_path, count) -> None:
    from tests.onnx_files import graph, model, node

    paths = [tmp_path / f"{name}.onnx" for name in "ab"]
    for path, op in zip(paths, ("Relu", "Tanh"), strict=True):
        path.write_bytes(model(graph(nodes=[node(op, f"n{number}", [f"v{number}"]) for number in range(count)])))
    found = run("diff", *paths)
    assert found.lines[-2] == "… and 10 other nodes"
    assert len(run("diff", *paths, "--long").lines) == count + 2


@rows("path", [TINY, DATA / "onnx/functions.onnx", DATA / "flatbuffers/small.ort", DATA / "pytorch/script/no_debug.pt"])
def test_of_a_cut_file_nothing_is_told_that_may_be_the_cut(path: Path) -> None:
    content = path.read_bytes()
    told = 0
    with pparse.view(path) as old:
        for end in range(len(content) // 2, len(content), len(content) // 40):
            with pparse.view(content[:end], format=old.format) as new:
                found = graph_difference(old, new)
            assert found is None or not found.counts, end
            told += found is not None and bool(found.reason)
    assert told
