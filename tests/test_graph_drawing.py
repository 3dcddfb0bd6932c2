"""Graphs as drawings: which boxes there are, and a picture in which nothing covers anything else."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

import pparse
from pparse.display.text import in_xml
from pparse.errors import LimitError
from pparse.graphs import drawing
from pparse.graphs import layout as layering
from pparse.graphs.drawing import Collapsed, prefixes, without_numbers
from pparse.graphs.layout import GraphLayout, find_layers
from tests import sweep
from tests.test_graphs import Graph, Lines, document  # noqa: F401 -- a fixture
from tests.test_tensorflow_graph import SMALL, GraphDef, graph_def, graph_of, model

SVG = "{http://www.w3.org/2000/svg}"


def layers(count, parts=("attention", "mlp")):
    """Return a graph of layers with scopes in them."""
    message = GraphDef()
    message.node.add(name="x", op="Placeholder")
    last = "x"
    for layer in range(count):
        for part in parts:
            for number in range(3):
                name = f"model/layer_{layer}/{part}/op{number}"
                message.node.add(name=name, op=("MatMul", "Add", "Relu")[number], input=[last])
                last = name
    message.node.add(name="logits", op="Softmax", input=[last, "x", "^x"])
    return message


def boxes(collapsed):
    return {box.name: (box.kind, box.count) for box in collapsed.boxes}


def edges(collapsed):
    names = [box.name for box in collapsed.boxes]
    return {(names[source], names[target]): tuple(count) for (source, target), count in collapsed.edges.items()}


# -- boxes -----------------------------------------------------------------------------------------------------------


def test_scopes_of_names():
    assert list(prefixes("a/b/c", 9)) == ["a", "a/b", "a/b/c"]
    assert list(prefixes("/model/layers.0/mlp", 9)) == [
        "/model",
        "/model/layers",
        "/model/layers.0",
        "/model/layers.0/mlp",
    ]
    assert list(prefixes("a/b/c", 2)) == ["a", "a/b"]
    assert list(prefixes("a/b/c", 1)) == ["a"]
    assert list(prefixes("", 3)) == [""]
    assert list(prefixes("a//", 3)) == ["a", "a//"]
    assert without_numbers("conv12_block3") == "conv#_block#"


def test_scopes_are_boxes_with_counts_and_so_are_edges():
    found = Collapsed(graph_of(layers(2)), 2)
    assert boxes(found) == {
        "x": ("input", 1),
        "model/layer_0": ("nodes", 6),
        "model/layer_1": ("nodes", 6),
        "logits": ("output", 1),
    }
    names = [(box.name, box.kind) for box in found.boxes]
    assert names == [
        ("x", "input"),
        ("model/layer_0", "nodes"),
        ("model/layer_1", "nodes"),
        ("logits", "nodes"),
        ("logits", "output"),
    ]
    assert {(names[a][0], names[b][0]): tuple(n) for (a, b), n in found.edges.items()} == {
        ("x", "model/layer_0"): (1, 0),
        ("model/layer_0", "model/layer_1"): (1, 0),
        ("model/layer_1", "logits"): (1, 0),
        ("x", "logits"): (1, 1),
        ("logits", "logits"): (1, 0),
    }
    assert found.boxes[1].operations == {"MatMul": 2, "Add": 2, "Relu": 2}


def test_names_are_cut_as_deep_as_the_number_of_boxes_allows():
    assert Collapsed(graph_of(layers(2))).depth == 4
    assert Collapsed(graph_of(layers(40))).depth == 3  # 240 nodes, 80 parts
    assert Collapsed(graph_of(layers(150))).depth == 2
    assert Collapsed(graph_of(layers(300))).depth == 1
    assert len(Collapsed(graph_of(layers(300)), 2).boxes) == 300 + 3
    assert Collapsed(graph_of(graph_def(**SMALL))).depth == 1


def test_more_boxes_than_can_be_drawn_are_refused():
    with pytest.raises(LimitError, match="a smaller depth"):
        Collapsed(graph_of(layers(1_100)), 2)


def test_first_scopes_that_differ_in_numbers_are_one_if_there_are_too_many():
    message = GraphDef()
    for number in range(300):
        for word in "abcdefghi":
            inputs = [f"{word}{number - 1}/v"] if number else []
            message.node.add(name=f"{word}{number}/v", op="A", input=inputs)
    found = Collapsed(graph_of(message))
    assert not found.numbered
    assert boxes(found)["a#"] == ("nodes", 300)


def test_names_without_scopes_are_grouped_by_their_order():
    message = GraphDef()
    for number in range(1_000):
        message.node.add(name=f"n{number}", op="A", input=[f"n{number - 1}"] if number else [])
    found = Collapsed(graph_of(message))
    assert found.depth == 0
    assert boxes(found)["n0 …"] == ("nodes", 5)
    assert len(found.boxes) == 201
    assert edges(found)["n0 …", "n5 …"] == (1, 0)


def test_boxes_with_the_same_neighbours_are_one():
    nodes = {f"var{number}": "VarHandleOp" for number in range(8)}
    found = Collapsed(graph_of(graph_def(**nodes, call="Call " + " ".join(nodes), alone="A")))
    assert [(box.name, box.count, box.others) for box in found.boxes if box.kind == "nodes"] == [
        ("var0", 8, 7),
        ("call", 1, 0),
        ("alone", 1, 0),
    ]
    assert edges(found)["var0", "call"] == (8, 0)


def test_an_input_that_leads_everywhere_and_a_node_that_waits_for_all_are_told():
    nodes = {f"n{number}": f"A{number} x n{number - 1}" for number in range(1, 20)}
    found = Collapsed(
        graph_of(graph_def(x="Placeholder", n0="A x", **nodes, done="NoOp " + " ".join(f"^{n}" for n in nodes)))
    )
    notes = {box.name: box.note for box in found.boxes if box.note}
    assert notes == {"x": "to 20 boxes", "done": "after 19 boxes"}
    assert not any(source == "x" for source, _ in edges(found))


def test_inputs_outputs_and_constants_of_values_with_names(document):  # noqa: F811
    text = "in x\nconst w\na/b: A x w -> y\na/c: B y -> z\nout z"
    graph = Graph(Lines(text, document))
    assert boxes(Collapsed(graph, 1)) == {"x": ("input", 1), "a": ("nodes", 2), "z": ("output", 1)}
    shown = Collapsed(graph, 1, constants=True)
    assert boxes(shown)["w"] == ("constant", 1)
    assert edges(shown) == {("x", "a"): (1, 0), ("w", "a"): (1, 0), ("a", "z"): (1, 0)}
    assert boxes(Collapsed(graph.subgraph("y"), 1)) == {"x": ("input", 1), "a": ("nodes", 1), "y": ("output", 1)}
    many = "\n".join(
        [*(f"in i{n}" for n in range(30)), "a: A " + " ".join(f"i{n}" for n in range(30)) + " -> y", "out y"]
    )
    assert boxes(Collapsed(Graph(Lines(many, document))))["30 inputs"] == ("input", 30)


def test_results_of_functions_and_of_signatures_are_outputs():
    graph = graph_of(model(), "tensorflow.SavedModel", meta_graph=1)
    assert ("z:0", "output") in [(box.name, box.kind) for box in Collapsed(graph).boxes]
    body = Collapsed(graph.bodies["f"])
    assert edges(body)["pair", "out"] == (1, 0)
    assert edges(body)["a", "neg"] == (1, 0)


# -- layers and order ------------------------------------------------------------------------------------------------


def random_edges(seed):
    """Return edges between 60 boxes, numbered at random, without a circle."""
    chooser = random.Random(seed)
    numbers = chooser.sample(range(60), 60)
    return [tuple(numbers[place] for place in sorted(chooser.sample(range(low, low + 9), 2))) for low in range(52)] * 2


def crossings(count, edges):
    """Count the pairs of edges that cross, by comparing each stretch between two layers with each other."""
    layout = GraphLayout([80.0] * count, edges)
    at = {number: place for row in layout.rows for place, number in enumerate(row)}
    links = [
        link for edge, route in zip(edges, layout.routes, strict=True) for link in pairwise([edge[0], *route, edge[1]])
    ]
    return sum(
        layout.layers[a] == layout.layers[c] and (at[a] - at[c]) * (at[b] - at[d]) < 0
        for (a, b), (c, d) in combinations(links, 2)
    )


@pytest.mark.parametrize("rounds", [0, 24])
@pytest.mark.parametrize("seed", range(3))
def test_edges_go_down_and_what_nothing_leads_to_stands_right_above_its_first_reader(monkeypatch, seed, rounds):
    monkeypatch.setattr(layering, "_ROUNDS", rounds)
    edges = random_edges(seed)
    found = find_layers(60, edges + [(box, box) for box in range(60)])
    assert set(found) == set(range(max(found) + 1))
    assert all(found[source] < found[target] for source, target in edges)
    for box in {source for source, _ in edges} - {target for _, target in edges}:
        assert found[box] == min(found[target] for source, target in edges if source == box) - 1


def test_boxes_move_together_where_that_makes_an_edge_shorter():
    assert find_layers(8, [(0, 1), (1, 7), *pairwise(range(2, 8))]) == [3, 4, 0, 1, 2, 3, 4, 5]
    chooser = random.Random(1)
    tree = [tuple(chooser.sample((box, chooser.randrange(box)), 2)) for box in range(1, 60)]
    found = find_layers(60, tree)
    assert all(found[target] == found[source] + 1 for source, target in tree)


def test_few_edges_of_circles_go_up():
    ring = [(box, (box + 7) % 3_000) for box in range(3_000)]
    back = [(box * 5 % 8, other * 5 % 8) for box in range(8) for other in range(box + 1, 8)] + [(7 * 5 % 8, 0)]
    for count, edges in ((3_000, ring), (8, back), (2, [(0, 1), (1, 0)])):
        found = find_layers(count, edges)
        assert sum(found[source] > found[target] for source, target in edges) == 1
        assert sorted(found) == list(range(count))


def test_what_can_be_drawn_without_a_crossing_is(monkeypatch):
    chooser = random.Random(1)
    numbers = chooser.sample(range(49), 49)
    rows = [numbers[place * 7 : place * 7 + 7] for place in range(7)]
    grid = [pair for lines in (rows, zip(*rows, strict=True)) for line in lines for pair in pairwise(line)]
    wedge = [
        (high[place + side], low[place])
        for number, (high, low) in enumerate(pairwise(rows))
        for place in range(6 - number)
        for side in (0, 1)
    ]
    tree = [(numbers[(box - 1) // 3], numbers[box]) for box in range(1, 49)]
    for edges in (grid, wedge, tree):
        chooser.shuffle(edges)
        assert crossings(49, edges) == 0
    monkeypatch.setattr(layering, "_SWEEPS", 0)
    assert crossings(49, tree) == 0


def test_crossings_are_counted():
    links = [tuple(pair) for pair in random.Random(1).sample([(a, b) for a in range(9) for b in range(9, 18)], 40)]
    below = [[low for high, low in links if high == number] for number in range(18)]
    found = layering._crossings([[*range(9)], [*range(9, 18)]], below, [*range(9)] * 2)
    assert found == sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(links, 2))


@pytest.mark.parametrize("seed", range(3))
def test_sweeps_lessen_crossings_and_the_best_is_kept(monkeypatch, seed):
    counts = []
    for most in range(8):
        monkeypatch.setattr(layering, "_SWEEPS", most)
        counts.append(crossings(60, random_edges(seed)))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


def test_a_drawing_is_the_same_in_every_process(tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(random_scopes(0).SerializeToString())
    command = [sys.executable, "-m", "pparse", "graph", path, "--svg"]
    first, second = (
        subprocess.run(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    )
    assert first == second != b""


# -- the picture -----------------------------------------------------------------------------------------------------


def picture(part, **options):
    """Return the root of a drawing, its boxes as ``(left, top, right, bottom)``, and the texts in them."""
    root = ElementTree.fromstring("".join(part.to_svg(**options)))
    places = []
    for rect in root.iterfind(f"{SVG}g/{SVG}rect"):
        x, y, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        places.append((x, y, x + width, y + height))
    texts = [[text.text for text in group.iterfind(f"{SVG}text")] for group in root.iterfind(f"{SVG}g")]
    return root, places, texts


def test_a_scope_with_most_of_a_graph_is_opened_or_cut_into_stretches():
    names = [f"enc/layer{n // 90}/p{n // 30 % 3}/op{n}" for n in range(450)]
    uneven = graph_def(**{name: f"A {last}" for name, last in zip(names, ["", *names], strict=False)})
    for number in range(230):
        uneven.node.add(name=f"emb/v{number}", op="B", input=[names[number]])
    found = Collapsed(graph_of(uneven))
    assert found.depth == 1
    assert found.opened == {"enc", *(f"enc/layer{number}" for number in range(5))}
    assert {"enc/layer0/p1", "enc/layer4/p2"} <= {box.name for box in found.boxes}
    flat = graph_def(**{f"model/op{n}_x": f"A model/op{n - 1}_x" if n else "A" for n in range(670)})
    flat.node.add(name="end", op="B", input=["model/op669_x"])
    found = Collapsed(graph_of(flat))
    assert len(found.boxes) == 98
    assert found.boxes[1].name == "model/op7_x …"
    assert "neighbours in a large scope are one box" in "".join(graph_of(flat).to_svg())


def test_what_a_signature_runs_is_drawn_apart_from_what_the_model_holds(run):
    ran = run("graph", "docs/samples/saved-model", "--signature", "serving_default")
    assert "function    __inference_serve_36" in ran.lines
    assert "inputs      x float32[?,4], w string[?]" in ran.lines
    assert "captured    dense/kernel, dense/bias, hash_table, Const" in ran.lines
    graph = pparse.view("docs/samples/saved-model").graph
    called = graph.called_by("serving_default")
    _, _, texts = picture(called.graph, captured=called.captured)
    assert {("x", "input float32[?,4]"), ("dense/kernel", "constant")} <= {tuple(found) for found in texts}
    drawn = run("graph", "docs/samples/saved-model", "--svg")  # the only one is drawn anyway
    assert drawn.out.splitlines()[2] == "<title>saved-model: __inference_serve_36</title>"
    whole = run("graph", "docs/samples/saved-model", "--svg", "--all")
    assert "<title>StatefulPartitionedCall" in whole.out
    ran = run("graph", "docs/samples/saved-model", "--signature", "serving")
    assert (ran.code, "serving_default" in ran.err) == (2, True)
    several = pparse.view("docs/samples/chunked-model").graph  # calls two functions, one behind the other
    assert several.called_by("serving_default").graph is several


def test_the_branches_of_a_node_hang_below_it():
    graph = pparse.view("docs/samples/tiny.onnx").graph
    drawn = Collapsed(graph)
    number = {box.name: place for place, box in enumerate(drawn.boxes)}
    for branch in ("then_branch", "else_branch"):
        assert drawn.edges[number["/If"], number[f"/If.{branch}"]] == [0, 1]


def test_long_names_stay_apart_when_they_are_cut():
    ends = [f"encoder/{part}/and_a_long_way_to_the_end_of_it" for part in ("the_query", "the_key")]
    _, _, texts = picture(graph_of(graph_def(**dict.fromkeys(ends, "A"))), depth=9)
    assert [text[0] for text in texts[:2]] == [
        "encoder/the_quer…_to_the_end_of_it",
        "encoder/the_key/…_to_the_end_of_it",
    ]


def random_scopes(seed):
    chooser = random.Random(seed)
    message = GraphDef()
    names = [f"s{chooser.randrange(12)}/t{chooser.randrange(4)}/n{number}" for number in range(300)]
    for number, name in enumerate(names):
        back = names[max(0, number - 40) : number + 2]
        inputs = (
            [chooser.choice(("", "^")) + chooser.choice(back) for _ in range(chooser.randrange(3))] if number else []
        )
        message.node.add(name=name, op="A", input=inputs)
    return message


@pytest.mark.parametrize(("depth", "seed"), sweep.part(itertools.product([None, 1, 2], range(3))))
def test_no_box_covers_another_and_all_are_in_the_picture(seed, depth):
    root, places, texts = picture(graph_of(random_scopes(seed)), depth=depth)
    assert len(places) == len(texts) > 10
    for number, (left, top, right, bottom) in enumerate(places):
        assert left >= 0
        assert top >= 50  # below the title
        assert right <= float(root.get("width"))
        assert bottom <= float(root.get("height"))
        for other in places[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_parts_that_no_edge_joins_stand_side_by_side_and_in_rows():
    nodes = {}
    for number in range(30):
        nodes |= {f"from_{number}": "A", f"to_{number}": f"B from_{number}"}
    root, places, _ = picture(graph_of(graph_def(**nodes)))
    assert len(places) == 60 + 1  # and one for 30 outputs
    assert float(root.get("width")) < 1_600
    assert len({(left, top) for left, top, _, _ in places}) == len(places)
    for number, (left, top, right, bottom) in enumerate(places):
        assert all(
            right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top for other in places[:number]
        )


def test_counts_on_edges_do_not_cover_each_other():
    root, _, _ = picture(graph_of(random_scopes(1)), depth=1)
    found = [
        (float(rect.get("x")), float(rect.get("y")), float(rect.get("width")))
        for rect in root
        if rect.get("class") == "back"
    ]
    assert len(found) > 10
    for number, (x, y, width) in enumerate(found):
        for other, high, wide in found[:number]:
            assert x + width <= other + 4 or other + wide <= x + 4 or abs(y - high) >= 10


def test_edges_go_from_top_to_bottom_where_nothing_goes_round():
    _, places, texts = picture(graph_of(layers(3)), depth=2)
    tops = {tuple(text): place[1] for text, place in zip(texts, places, strict=True)}
    order = [tops["x", "input"], *(top for (name, _), top in tops.items() if "layer" in name)]
    assert order == sorted(set(order))
    assert max(tops.values()) == tops["logits", "output"]


def test_text_fits_into_its_box():
    message = graph_def(**{"a" * 100: "B" * 100, "名" * 60: "C"})
    _, places, texts = picture(graph_of(message))
    assert "…" in texts[0][0]
    for (left, _, right, _), (name, what) in zip(places, texts, strict=True):
        wide = sum(2 if ord(char) > 0x2E80 else 1 for char in name)
        assert 7.2 * wide <= right - left
        assert 6 * len(what) <= right - left


def test_hostile_names_are_text():
    name = 'x"/><script>alert(1)</script>&\x00\x1b\u202e\ud800\uffff]]>'
    assert in_xml("\x00<&\ud800\uffff") == "\\x00&lt;&amp;\\ud800\\uffff"
    text = "".join(graph_of(graph_def(**{name.replace("\ud800", ""): "A&B"})).to_svg(title=name))
    root = ElementTree.fromstring(text)
    text.encode()
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg",
        "title",
        "style",
        "defs",
        "marker",
        "path",
        "rect",
        "text",
        "g",
    }
    assert "<script" not in text
    assert "http" not in text.replace(SVG[1:-1], "")


def test_an_empty_graph_is_a_title():
    root, places, _ = picture(graph_of(GraphDef(version=1)), title="nothing")
    assert places == []
    assert root.find(f"{SVG}text").text == "nothing"


def test_long_edges_beyond_the_limit_are_drawn_straight(monkeypatch):
    from pparse.graphs import layout

    graph = graph_of(layers(20))
    edges_drawn = len(Collapsed(graph, 2).edges)
    for most in (6_000, 0):
        monkeypatch.setattr(layout, "_POINTS", most)
        root, _, _ = picture(graph, depth=2)
        paths = [path.get("d") for path in root.iterfind(f"{SVG}path")]
        assert len(paths) == edges_drawn
        assert max(path.count("C") for path in paths) == (21 if most else 1)


def test_svg_on_the_command_line(run, tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(layers(4).SerializeToString())
    ran = run("graph", path, "--svg", "--depth", 2)
    assert (ran.code, ran.err) == (0, "")
    root = ElementTree.fromstring(ran.out.encode())
    texts = [text.text for text in root.iterfind(f"{SVG}text")]
    assert texts[:2] == ["graph.pb", "graph: 26 nodes, 7 boxes; names are cut behind 2 scopes"]
    target = tmp_path / "graph.svg"
    assert run("graph", path, "--svg", "--depth", 2, "-o", target).out == ""
    assert target.read_text(encoding="utf-8") == ran.out
    assert run("graph", path, "--svg", "--dot").code == 2
    assert "layer_2" not in run("graph", path, "--svg", "--outputs", "model/layer_1/mlp/op2").out


def test_memory_of_a_drawing_is_given_back():
    graph = graph_of(layers(30))
    _ = graph.index
    before = graph.extraction.session.budget.used
    Collapsed(graph)
    assert graph.extraction.session.budget.used == before
    assert drawing.BOXES == 200
