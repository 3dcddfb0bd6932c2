"""Graphs as TensorFlow sees them: edges after an import, the parts that extract_sub_graph keeps."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import pparse
from pparse import proto_splitter
from pparse.proto_splitter import GraphDefSplitter
from pparse.protos import message_class
from pparse.viewers.tensorflow.graph import tensorflow_graph
from tests.interop.tensorflow.build import UnavailableError, tensorflow_python

SCRIPT = Path(__file__).resolve().parent / "tensorflow" / "graphs.py"
GraphDef = message_class("tensorflow.GraphDef")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder with what TensorFlow made, and what it says of it."""
    try:
        python = tensorflow_python()
    except UnavailableError as error:
        if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("graphs")
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run([python, "-P", SCRIPT, folder], capture_output=True, text=True, env=quiet)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return folder, json.loads((folder / "facts.json").read_text())


def described(graph):
    """Return ``{name: [op, [[source, output], ...], [control sources]]}``."""
    found = {name: [node.op, [], []] for name, node in graph.nodes.items()}
    for edge in graph.edges:
        if edge.control:
            found[edge.target][2].append(edge.source)
        else:
            assert edge.input == len(found[edge.target][1])
            found[edge.target][1].append([edge.source, edge.output])
    for node in found.values():
        node[2].sort()
    return found


def test_edges_are_those_that_tensorflow_sees(made):
    folder, facts = made
    with pparse.open(folder / "loops.pb", format="graph-def") as document:
        graph = tensorflow_graph(document)
        assert described(graph) == facts["loops"]
        assert len(graph.check()) == 0
        assert sorted(graph.inputs) == ["flag", "x"]
    with pparse.open(folder / "model" / "saved_model.pb") as document:
        assert described(tensorflow_graph(document)) == facts["main"]


def test_bodies_of_functions(made):
    folder, facts = made
    with pparse.open(folder / "model" / "saved_model.pb") as document:
        graph = tensorflow_graph(document)
        assert set(graph.functions) == set(facts["functions"])
        for name, function in graph.functions.items():
            theirs = facts["functions"][name]
            ours = described(function)
            assert {node for node in theirs if theirs[node][0] == "Placeholder"} >= set(function.arguments)
            assert set(theirs) - set(function.arguments) == set(ours)
            for node, (op, inputs, control) in ours.items():
                assert op == theirs[node][0]
                assert [source for source, _ in inputs] == [source for source, _ in theirs[node][1]]
                assert control == theirs[node][2]
            assert len(function.check()) == 0


@pytest.mark.parametrize("chunked", [False, True])
def test_a_part_of_a_graph_is_what_tensorflow_extracts(made, tmp_path, chunked):
    folder, facts = made
    path = str(folder / "loops.pb")
    if chunked:
        before = proto_splitter.max_size()
        proto_splitter.set_max_size(2_000)
        try:
            message = GraphDef.FromString((folder / "loops.pb").read_bytes())
            path = GraphDefSplitter(message).write(str(tmp_path / "loops"))
        finally:
            proto_splitter.set_max_size(before)
    options = {"message": "tensorflow.GraphDef"}
    with pparse.open(path, format="cpb" if chunked else "protobuf", options=options) as document:
        graph = tensorflow_graph(document)
        kept = set()
        for number, names in enumerate(facts["outputs"]):
            theirs = GraphDef.FromString((folder / f"part{number}.pb").read_bytes())
            part = graph.subgraph(names)
            assert list(part) == [node.name for node in theirs.node]
            part.save(str(tmp_path / "part.pb"))
            assert GraphDef.FromString((tmp_path / "part.pb").read_bytes()) == theirs
            kept.add(len(part))
        assert len(kept) > 2
