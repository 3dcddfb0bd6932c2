"""Graphs of Core ML: layers, operations and bodies are those that coremltools reads."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

import pparse
from tests.coreml_files import model, network, program, write_package
from tests.rows import rows

DATA = Path(__file__).resolve().parent / "data" / "coreml"
GRAPHS = json.loads((DATA / "graphs.json").read_text(encoding="utf-8"))


@rows("name", list(GRAPHS))
def test_graphs_are_those_of_coremltools(name):
    """All of them, node by node; inputs of a program are a map, without order."""
    with pparse.view(DATA / f"{name}.mlmodel") as found:
        main = found.graph
        graphs = {"": main, **main.bodies}
        assert set(graphs) == set(GRAPHS[name])
        for key, wanted in GRAPHS[name].items():
            rows_of = list(graphs[key].rows())
            told = [
                [row[1], row[2], list(row[3]), list(row[6])[: len(node[3])]]
                for row, node in zip(rows_of, wanted, strict=True)
            ]
            if name in ("blocks", "functions"):
                told = [[label, op, sorted(inputs), outputs] for label, op, inputs, outputs in told]
            assert (told, len(rows_of)) == (wanted, len(wanted))
            assert [graphs[key].source.row(row[0]) for row in rows_of] == rows_of
            assert not list(graphs[key].check())
            for value in graphs[key].constants():
                assert value in found


def test_what_bodies_take_and_make():
    with pparse.view(DATA / "flow.mlmodel") as found:
        edges = [(edge.source, edge.target) for edge in found.graph.edges if edge.target in ("while_loop_0", "out")]
        made = {row[1]: row[6] for row in found.graph.rows()}
    assert ("b", "while_loop_0") in edges
    assert made["cond_0"] == ["cond_0"]  # `copy` layers in both of its networks fill it
    assert made["while_loop_0"] == []  # what it changes, layers before it made
    with pparse.view(DATA / "blocks.mlmodel") as found:
        graph = found.graph
        assert {edge.source for edge in graph.edges if edge.target == "cond_0"} == {"squeeze_0", "b"}
        assert graph.subgraph(["cond_0"]).arguments == ["a", "b"]
        assert str(graph.value("cond_0")) == "cond_0 float32[1]"
        concat = next(node for node in graph.nodes.values() if node.op == "concat")
        assert set(concat.attr) == {"axis", "interleave", "values", "name"}


def test_functions_and_parts(run):
    said = run("graph", DATA / "functions.mlmodel").out
    assert "functions   main" in said
    assert "constants   2" in said
    with pparse.view(DATA / "functions.mlmodel") as found:
        graph = found.graph
        assert list(graph.constants()) == ["second/codes_cast_fp16.data", "second/codes_cast_fp16.scale"]
        assert graph.bodies["main"].kind == "function"
        assert [str(graph.value(name)) for name in sorted(graph.constants())] == [
            "second/codes_cast_fp16.data int8[3,4]",
            "second/codes_cast_fp16.scale float16[3,1]",
        ]
    with pparse.view(DATA / "pipeline.mlmodel") as found:
        assert list(found.graph.bodies["models[1]"].outputs) == ["p"]
        assert str(found.graph.value("i")) == "i float64[4]"


def test_other_kinds_have_no_graph(run, tmp_path):
    made = model()
    made.glmRegressor.offset.append(1.0)
    (tmp_path / "m.mlmodel").write_bytes(made.SerializeToString())
    said = run("graph", tmp_path / "m.mlmodel")
    assert "a model of the kind glmRegressor has no graph" in said.err
    assert run("info", tmp_path / "m.mlmodel").code == 0
    outer = model()
    outer.pipeline.models.add().CopyFrom(made)
    outer.pipeline.models.add().mlProgram.SetInParent()
    with pparse.view(outer.SerializeToString(), format="coreml") as found:
        assert [row[1:3] for row in found.graph.rows()] == [("models[0]", "glmRegressor"), ("models[1]", "mlProgram")]
        assert not found.graph.bodies
    folder = write_package(tmp_path / "m.mlpackage", *program({"a": (23, (2,), "ints", [1, 2])}))
    assert "nodes       1" in run("graph", folder).out
    with pparse.view(folder) as found, pytest.raises(pparse.PathError, match="one main graph"):
        found.graph_of(1)


def test_graphs_of_models_that_are_cut():
    """What is whole comes out, of any part of the file."""
    for name in ("flow", "blocks", "pipeline"):
        content = (DATA / f"{name}.mlmodel").read_bytes()
        with pparse.view(content, format="coreml") as found:
            whole = [row[1:4] for row in found.graph.rows()]
        most = 0
        for end in range(0, len(content), 7):
            with pparse.view(content[:end], format="coreml") as found:
                there = []
                with suppress(pparse.PparseError):
                    there.extend(row[1:4] for row in found.graph_of().rows())
                assert there[:-1] == whole[: max(0, len(there) - 1)]
                most = max(most, len(there))
        assert most == len(whole)


def test_networks_in_networks_end():
    """As deep as a message may be, each is read once."""
    inner = network({"fc": {"shape": (1, 1), "floatValue": [7.0]}}).neuralNetwork
    for _ in range(40):
        outer = network({}).neuralNetwork
        for _ in range(2):
            layer = outer.layers.add(name="loop", output=["y"])
            layer.loop.bodyNetwork.CopyFrom(
                inner if not outer.layers[0].loop.bodyNetwork.layers else network({}).neuralNetwork
            )
        inner = outer
    made = model(4)
    made.neuralNetwork.CopyFrom(inner)
    with pparse.view(made.SerializeToString(), format="coreml") as found:
        assert len(list(found.graph.rows())) == 2
        assert 30 < len(found.graph.bodies) < 80
