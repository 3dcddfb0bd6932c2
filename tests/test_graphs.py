"""The room for graphs, by a format of its own whose values have names: no file, one line a node."""

from __future__ import annotations

import json

import pytest

import pparse
from pparse.errors import LimitError, PathError, UnsupportedError
from pparse.graphs import graph as graphs
from pparse.graphs import index as graph_index
from pparse.graphs.graph import Edge, Graph
from pparse.graphs.source import GraphSource, Value

MAIN = """
in x
in seed
const w
const b
conv: Conv x w b -> y
: Split y -> left right
sure: If seed -> z | left w
drop: Dropout z - - -> out -
idle: Identity right -> unused
out out
out right
"""
BRANCH = """
add: Add left inner -> sum
const inner
twice: Mul sum w -> z
out z
"""


class Lines(GraphSource):
    """``name: Op input … -> output … | captured …`` is a node; ``in``, ``const`` and ``out`` declare values.

    ``-`` stands for what is omitted.
    """

    names_values = True
    where = "domain"
    format = "lines"

    def __init__(self, text, extraction, name="", outer=None, bodies=None):
        super().__init__(extraction, name)
        self.kind = "body" if name else "graph"
        self._outer = outer
        self._bodies = bodies or {}
        self._values = {"in": [], "const": [], "out": []}
        self._rows = []
        self.read = 0
        for line in filter(None, text.splitlines()):
            word, _, rest = line.partition(" ")
            if word in self._values:
                self._values[word].append(rest)
                continue
            head, _, captured = rest.partition(" | ")
            op_inputs, _, made = head.partition(" -> ")
            op, *inputs = op_inputs.split()
            outputs = ["" if name == "-" else name for name in made.split()]
            inputs = ["" if name == "-" else name for name in inputs]
            label = word.rstrip(":") or outputs[0]
            self._rows.append((len(self._rows), label, op, inputs, "", captured.split(), outputs))

    def __len__(self):
        return len(self._rows)

    def rows(self):
        return iter(self._rows)

    def row(self, ordinal):
        self.read += 1
        return self._rows[ordinal]

    def node(self, ordinal):
        return self.extraction.root[ordinal]

    def path_of(self, ordinal):
        return "" if ordinal is None else f"[{ordinal}]"

    def inputs(self):
        return self._values["in"]

    def constants(self):
        return iter(self._values["const"])

    def results(self):
        return {name: name for name in self._values["out"]}

    def value(self, name, ordinal):
        return Value(name, "float32", (None, "n", 3)) if name == "x" else None

    def producer(self, text):
        return text or None

    @property
    def outer(self):
        return self._outer

    def bodies(self):
        return {name: Lines(text, self.extraction, name, self) for name, text in self._bodies.items()}

    def write_part(self, marks, outputs, write):
        if marks is None:
            return super().write_part(marks, outputs, write)
        write(f"{list(marks)} {list(outputs)}".encode())
        return len(marks)


@pytest.fixture
def document():
    with pparse.open(b"[0, 1, 2, 3, 4, 5]", format="json") as found:
        yield found


@pytest.fixture
def graph(document):
    return Graph(Lines(MAIN, document, bodies={"sure.then": BRANCH}))


def made(document, text, **options):
    return Graph(Lines(text, document), **options)


def told(graph):
    return [(finding.code, finding.path, finding.reason) for finding in graph.check()]


def test_inputs_outputs_constants_and_nodes_are_kept_apart(graph):
    assert list(graph.nodes) == ["conv", "left", "sure", "drop", "idle"]
    assert list(graph.inputs) == ["x", "seed"]
    assert len(graph.inputs) == 2
    assert list(graph.outputs) == ["out", "right"]
    assert list(graph.constants()) == ["w", "b"]
    assert graph.index.total == 5 + 2 + 2
    assert graph.index.edge_count == 9  # two of them captured
    assert graph.index.control_count == 0
    assert graph.operations == {"Conv": 1, "Dropout": 1, "Identity": 1, "If": 1, "Split": 1}
    assert told(graph) == []
    node = graph.nodes["left"]
    assert (node.op, node.inputs, node.outputs, node.ordinal) == ("Split", ["y"], ["left", "right"], 1)
    assert "right" not in graph.nodes  # a value
    assert "conv" in graph.nodes
    assert repr(graph) == "<Graph: graph of 5 nodes>"
    assert (repr(graph.inputs), repr(graph.outputs)) == ("<2 of 7 nodes: x, seed>", "<outputs: out, right>")


def test_reprs_name_a_few_of_the_model(samples):
    with pparse.view(f"{samples}/saved-model") as model:
        assert repr(model.signatures) == "<signatures: __saved_model_init_op, serving_default>"
        inputs, many = model.graph.inputs, model.graph.unconsumed
        assert repr(inputs).startswith("<4 of 25 nodes: asset_path_initializer, serving_default_w, ")
        assert repr(many).endswith("words/Read/ReadVariableOp …>")
        assert list(many._first_names()) == list(many)
    assert repr(inputs) == "<4 of 25 nodes: closed>"


def test_edges_lead_from_the_node_that_makes_a_value(graph):
    assert list(graph.edges) == [
        Edge("x", None, "conv", 0, False),
        Edge("w", None, "conv", 1, False),
        Edge("b", None, "conv", 2, False),
        Edge("conv", 0, "left", 0, False),
        Edge("seed", None, "sure", 0, False),
        Edge("left", 0, "sure", None, False),  # captured by its bodies
        Edge("w", None, "sure", None, False),
        Edge("sure", 0, "drop", 0, False),
        Edge("left", 1, "idle", 0, False),
    ]


def test_labels_of_nodes_far_before_are_read_again(document, monkeypatch):
    monkeypatch.setattr(graphs, "_MOST", 3)
    lines = [f"n{number}: A -> v{number}" for number in range(50)]
    graph = made(document, "\n".join([*lines, "all: Sum v0 v49 v7 v7 -> s"]))
    assert [edge.source for edge in graph.edges] == ["n0", "n49", "n7", "n7"]
    assert graph.source.read == 2  # n0 and n7: the last one was at hand, and the second n7
    assert document.session.budget.used > 0


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_a_subgraph_needs_captured_values_and_constants(graph, monkeypatch, many):
    monkeypatch.setattr(graph_index, "_MANY_EDGES", many)
    part = graph.subgraph(["out"])
    assert [node.name for node in part.nodes] == ["conv", "left", "sure", "drop"]  # left and w: captured by the If
    assert part.arguments == ["x", "seed"]
    assert list(part.constants()) == ["w", "b"]
    assert (len(part), part.node_count) == (6, 4)
    assert list(graph.subgraph("y")) == ["x", "conv"]
    assert list(graph.subgraph("right")) == ["x", "conv", "left"]
    assert list(graph.subgraph("idle")) == ["x", "conv", "left", "idle"]  # the label of a node
    assert [edge.source for edge in graph.subgraph("right").edges] == ["x", "w", "b", "conv"]
    constant = graph.subgraph("w")
    assert (list(constant), list(constant.constants()), len(constant), bool(constant)) == ([], ["w"], 0, False)
    assert "right" in graph.subgraph("right")
    assert "idle" not in graph.subgraph("right")
    with pytest.raises(PathError, match="unused"):
        graph.subgraph("unuse")


def test_a_value_counts_before_the_label_of_a_node(document):
    graph = made(document, "in a\nb: A a -> c\nc: B a -> b\nboth: C b c -> d")
    assert list(graph.subgraph("b")) == ["a", "c"]
    assert list(graph.subgraph("both")) == ["a", "b", "c", "both"]
    assert [edge.source for edge in graph.edges][2:] == ["c", "b"]


def test_a_body_finds_captured_values_in_the_graph_around_it(graph, document):
    body = graph.bodies["sure.then"]
    assert list(graph.bodies) == ["sure.then"]
    assert [found.name for found in graph.bodies.values()] == ["sure.then"]
    assert list(graph.functions) == []
    assert body.kind == "body"
    assert told(body) == []
    assert list(body.edges)[:2] == [Edge("left", None, "add", 0, False), Edge("inner", None, "add", 1, False)]
    assert list(body.subgraph("z")) == ["add", "twice"]
    assert body.outer is graph
    assert graph.outer is None
    alone = Lines(BRANCH, document, "b", Lines("const w", document))
    assert told(Graph(alone)) == [("missing-input", "[0]", "'add' consumes 'left', which does not exist")]
    with pytest.raises(KeyError, match=r"sure\.then"):
        graph.bodies["sure.the"]


def test_omitted_inputs_are_no_edges_and_keep_their_number(document):
    graph = made(document, "in x\nclip: Clip x - x -> y -")
    assert [(edge.source, edge.input) for edge in graph.edges] == [("x", 0), ("x", 2)]
    assert graph.index.edge_count == 2
    assert told(graph) == []


def test_what_does_not_exist_is_told(document):
    graph = made(document, "a: A gone -> x\nout x\nout nowhere")
    assert told(graph) == [
        ("missing-input", "[0]", "'a' consumes 'gone', which does not exist"),
        ("missing-input", "", "the result 'nowhere' is 'nowhere', which does not exist"),
    ]
    assert next(iter(graph.edges)) == Edge("gone", None, "a", 0, False)


def test_a_value_that_is_made_twice_is_told_once_for_each_that_comes_later(document):
    graph = made(document, "in x\nconst w\na: A -> v v2\nb: B -> v x\nc: C -> w w2 w2\nd: D v -> e")
    assert told(graph) == [
        ("duplicate-name", "[1]", "'b' makes 'v', which exists already"),
        ("duplicate-name", "[2]", "'c' makes 'w2', which exists already"),
        ("duplicate-name", "", "a node makes the input 'x'"),
        ("duplicate-name", "", "the constant 'w' is also something else"),
    ]
    assert [edge.source for edge in graph.edges] == ["b"]


def test_nodes_of_one_label_are_two(document):
    graph = made(document, "n: A -> v\nn: B v -> w")
    assert told(graph) == []
    assert (graph.nodes["n"].op, graph.nodes["n#2"].op) == ("A", "B")
    assert "n#3" not in graph.nodes


def test_cycles_are_told(document):
    (found,) = told(made(document, "a: A c -> b\nb: B b -> c\nd: D b -> e"))
    assert found[:2] == ("cycle", "[0]")
    assert set(found[2].split("'")[1::2]) == {"a", "b"}


def test_inputs_and_constants_count_as_nodes_for_the_limit(document):
    text = "in x\nconst w\nn: A x w -> y"
    assert made(document, text, max_nodes=3).index.total == 3
    for most in (2, 1):
        with pytest.raises(LimitError, match="max_nodes="):
            _ = made(document, text, max_nodes=most).index
    assert len(list(made(document, text, max_nodes=1).rows())) == 1


def test_memory_of_values_is_charged_and_given_back(document):
    lines = [f"n{number}: A v{number - 1}a -> v{number}a v{number}b" for number in range(1, 3_000)]
    graph = made(document, "\n".join(["in v0a", *lines]))
    before = document.session.budget.used
    assert len(graph.findings) == 0
    assert 6_000 * 16 < document.session.budget.used - before < 6_000 * 40
    assert sum(1 for _ in graph.edges) == 2_999
    assert len(graph.subgraph("v2999b")) == 3_000
    del graph
    assert document.session.budget.used == before


def test_types_of_values(graph):
    assert str(graph.value("x")) == "x float32[?,n,3]"
    assert graph.value("x").to_dict() == {"name": "x", "dtype": "float32", "shape": [None, "n", 3]}
    assert graph.value("seed") is None
    assert str(Value("a", "int8", None)) == "a int8[…]"
    assert str(Value("a", "int8", ())) == "a int8[]"
    assert str(Value("a", "", None)) == "a"


def test_dot_tells_values_from_nodes_of_the_same_name(graph):
    lines = list(graph.to_dot())
    assert '  "value x" [shape=ellipse, label="x"];\n' in lines
    assert '  "node left" [label="left\\nSplit"];\n' in lines
    assert '  "value x" -> "node conv";\n' in lines
    assert '  "node left" -> "node idle" [taillabel="1"];\n' in lines
    assert '  "node drop" -> "result 0";\n' in lines
    assert not any('"value w"' in line for line in lines)
    shown = list(graph.to_dot(constants=True))
    assert '  "value w" [shape=note, label="w"];\n' in shown
    assert '  "value w" -> "node conv" [headlabel="1"];\n' in shown


def test_json_names_outputs(graph):
    found = json.loads("".join(graph.to_json()))
    assert found["nodes"][1] == {
        "name": "left",
        "op": "Split",
        "inputs": ["y"],
        "domain": "",
        "outputs": ["left", "right"],
    }
    assert len(found["edges"]) == 9
    assert found["edges"][0]["output"] is None


def test_a_part_is_written_by_the_format(graph):
    pieces = []
    assert graph.subgraph("y").write(pieces.append) == 9
    assert pieces == [b"[1, 0, 0, 0, 0, 1, 0, 1, 1] ['y']"]
    with pytest.raises(UnsupportedError, match="lines"):
        graph.write(pieces.append)
