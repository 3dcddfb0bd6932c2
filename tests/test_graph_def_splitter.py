"""Splitters of TensorFlow's graphs and saved models."""

from __future__ import annotations

import pytest

from pparse.errors import SplitError
from pparse.proto_splitter import (
    ConstantNodeDefSplitter,
    FunctionDefSplitter,
    GraphDefSplitter,
    LargeMessageSplitter,
    Merger,
    RepeatedMessageSplitter,
    SavedModelSplitter,
    set_max_size,
)
from pparse.proto_splitter.graph_def import raw_content
from pparse.proto_splitter.sizes import message_size
from pparse.protos import message_class
from tests.rows import rows
from tests.splitter_samples import (
    add_constant,
    check_merged,
    copy_of,
    make_graph_def_with_constant_nodes,
    plain,
    split,
    tags_of,
)

GraphDef = message_class("tensorflow.GraphDef")
NodeDef = message_class("tensorflow.NodeDef")
FunctionDef = message_class("tensorflow.FunctionDef")
SavedModel = message_class("tensorflow.SavedModel")
TensorProto = message_class("tensorflow.TensorProto")
CONTENT = "5.'value'.8.4"


def split_graph(limit, nodes=(), **functions):
    """Split a graph of such nodes, check that it comes back, and return the original, the chunks and the tags."""
    graph = make_graph_def_with_constant_nodes(nodes, **functions)
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=limit))
    assert chunks[0] is graph
    check_merged(chunks, tree, expected)
    return expected, chunks, tags_of(tree)


def content(node):
    return node.attr["value"].tensor.tensor_content


# -- graphs: the cases of TensorFlow's tests -------------------------------------------------------------------------


def test_a_small_graph_is_left_whole():
    expected, chunks, tags = split_graph(500, [50, 100, 50, 50, 100])
    assert (len(chunks), tags) == (1, [])
    assert chunks[0] == expected


def test_values_of_large_constants():
    graph, chunks, tags = split_graph(500, [50, 50, 1000, 50, 1000])
    assert tags == [(f"1.#2.{CONTENT}", 1), (f"1.#4.{CONTENT}", 2)]
    assert chunks[1:] == [content(graph.node[2]), content(graph.node[4])]
    left = chunks[0].node[2].attr["value"].tensor
    assert left.dtype == 1
    assert left.tensor_shape == graph.node[2].attr["value"].tensor.tensor_shape
    assert not left.tensor_content
    assert chunks[0].node[0] == graph.node[0]


def test_lots_of_nodes():
    _, chunks, tags = split_graph(500, [95] * 15)
    assert tags == [("", 1), ("", 2)]
    assert [len(chunk.node) for chunk in chunks] == [5, 5, 5]
    assert [chunk.node[0].name for chunk in chunks] == ["Const_0", "Const_5", "Const_10"]
    # TensorFlow's Python splitter leaves five nodes there too, which are 485 bytes; tags and lengths count here.
    _, chunks, _ = split_graph(480, [95] * 15)
    assert [len(chunk.node) for chunk in chunks] == [4, 4, 4, 3]


def test_large_nodes_become_chunks_and_leave_empty_ones():
    graph, chunks, tags = split_graph(200, [50, 95, 95, 95, 50, 95])
    assert tags == [("1.#1", 1), ("1.#2", 2), ("1.#3", 3), ("1.#5", 4)]
    assert chunks[1:] == [graph.node[index] for index in (1, 2, 3, 5)]
    assert [message_size(node) for node in chunks[0].node] == [message_size(graph.node[0]), 0, 0, 0, 51, 0]


def test_a_function_is_split():
    _, chunks, tags = split_graph(200, fn=[50] * 5)
    assert tags == [("2.1.#0", 1)]
    assert isinstance(chunks[1], FunctionDef)
    assert [len(chunks[0].library.function[0].node_def), len(chunks[1].node_def)] == [3, 2]
    assert not chunks[1].HasField("signature")


def test_constants_in_a_function():
    graph, chunks, tags = split_graph(200, fn=[500, 500, 50, 500])
    assert tags == [(f"2.1.#0.3.#{index}.{CONTENT}", at) for index, at in ((0, 1), (1, 2), (3, 3))]
    nodes = graph.library.function[0].node_def
    assert chunks[1:] == [content(nodes[index]) for index in (0, 1, 3)]


def test_nodes_and_functions():
    graph, chunks, tags = split_graph(200, [50] * 6, fn1=[50] * 3, fn2=[50], fn3=[50], fn4=[50])
    assert len(chunks) == 4
    assert sorted(tags) == [("", 3), ("2", 1), ("2.1.#0", 2)]
    assert [type(chunk).DESCRIPTOR.name for chunk in chunks] == [
        "GraphDef",
        "FunctionDefLibrary",
        "FunctionDef",
        "GraphDef",
    ]
    assert chunks[2] == graph.library.function[0]
    assert message_size(chunks[1].function[0]) == 0


# -- graphs: more ----------------------------------------------------------------------------------------------------


@rows("limit", [70, 90, 120, 150, 200, 300, 500, 800, 1500, 3000])
def test_whatever_the_limit_chunks_are_within_it_and_all_come_back(limit):
    """A graph of all kinds: each chunk is within the limit, and all come back."""
    sizes = [60, 100, 400, 90, 90, 900, 60, 60, 60] * 3
    graph = make_graph_def_with_constant_nodes(sizes, f=[60] * 9, g=[300, 60, 400], h=[100] * 20, i=[60])
    graph.versions.producer = 1987
    for number in range(5):
        graph.library.gradient.add(function_name=f"f{number}", gradient_func="g" * 20)
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=limit))
    check_merged(chunks, tree, expected)


@rows("limit", range(196, 212))
def test_limits_around_the_size_of_a_graph(limit):
    expected, chunks, _ = split_graph(limit, [50, 50, 50, 50])
    size = message_size(expected)
    assert size == 53 * 4
    assert len(chunks) == (1 if limit >= size else 2)


def test_a_library_above_the_limit_is_sliced():
    expected, chunks, tags = split_graph(300, [60] * 10, **{f"f{number}": [60] for number in range(20)})
    assert {tag for tag, _ in tags} == {"", "2"}
    assert sum(len(chunk.function) for chunk in chunks if "Library" in type(chunk).DESCRIPTOR.name) == 20
    assert len(chunks) <= -(-message_size(expected) // 300) + 2


def test_what_else_a_graph_has():
    """Versions and debug info are split by size."""
    graph = make_graph_def_with_constant_nodes([60] * 5)
    graph.debug_info.files.extend("f" * 30 for _ in range(40))
    graph.library.gradient.add(function_name="f", gradient_func="g" * 30)
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=300))
    check_merged(chunks, tree, expected)
    assert ("5", 1) in tags_of(tree) or any(tag == "5" for tag, _ in tags_of(tree))


def test_a_node_that_is_no_constant():
    """TensorFlow refuses it; here it is split by size."""
    graph = GraphDef()
    node = graph.node.add(name="op", op="Custom", input=["a", "b"], device="/cpu:0")
    node.attr["blob"].s = b"x" * 1000
    node.attr["n"].i = 3
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=300))
    assert tags_of(tree) == [("1.#0.5.'blob'.2", 1)]
    check_merged(chunks, tree, expected)


def test_an_attribute_with_many_tensors():
    """Elements below a map key: a tree of its own if there are many chunks, since TensorFlow keeps no order there."""
    graph = GraphDef()
    for number in range(3):
        node = graph.node.add(name=f"op{number}", op="Custom")
        for each in range(40):
            node.attr["values"].list.tensor.add(dtype=1).tensor_content = bytes([number, each]) * 20
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=300))
    check_merged(chunks, tree, expected)
    nested = [entry for entry in tree.chunked_fields if entry.message.chunked_fields]
    assert len(nested) == 3
    for entry in nested:
        assert [index.WhichOneof("kind") for index in entry.field_tag] == ["field", "index", "field", "map_key"]
        for below in entry.message.chunked_fields:
            assert "map_key" not in [index.WhichOneof("kind") for index in below.field_tag]


def test_what_cannot_be_split_is_named():
    graph = make_graph_def_with_constant_nodes([60, 60])
    graph.node[1].input.append("x" * 400)
    with pytest.raises(SplitError, match=r"node\[1\]\.input\[0\]") as caught:
        GraphDefSplitter(graph, max_size=300).split()
    assert (caught.value.wanted, caught.value.got) == (403, 300)
    text = str(caught.value)
    assert "name 'Const_1', op 'Const', inputs [" in text
    assert "sizes of attributes: value" in text


def test_other_messages_are_refused():
    with pytest.raises(TypeError, match=r"for tensorflow\.GraphDef, not for tensorflow\.SavedModel"):
        GraphDefSplitter(SavedModel())
    with pytest.raises(TypeError, match=r"for tensorflow\.SavedModel, not for tensorflow\.GraphDef"):
        SavedModelSplitter(GraphDef())
    with pytest.raises(TypeError, match="not for str"):
        GraphDefSplitter("graph")


def test_the_limit_of_the_process():
    graph = make_graph_def_with_constant_nodes([50, 50, 1000, 50, 1000])
    with set_max_size(500):
        assert len(GraphDefSplitter(copy_of(graph)).split()[0]) == 3
        assert len(GraphDefSplitter(copy_of(graph), max_size=5000).split()[0]) == 1
    assert len(GraphDefSplitter(graph).split()[0]) == 1


def test_a_copy_is_split():
    graph = make_graph_def_with_constant_nodes([50, 50, 1000], f=[500, 1000])
    before = plain(graph)
    chunks, _ = GraphDefSplitter(graph, max_size=200, copy=True).split()
    assert len(chunks) > 3
    assert plain(graph) == before


# -- constants -------------------------------------------------------------------------------------------------------


def constant(dtype, shape, **values):
    node = NodeDef(name="c", op="Const")
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype
    for size in shape:
        tensor.tensor_shape.dim.add().size = size
    for name, value in values.items():
        if name == "tensor_content":
            tensor.tensor_content = value
        else:
            getattr(tensor, name).extend(value)
    return node


@rows(
    ("dtype", "values", "kind"),
    [
        (1, {"float_val": [number / 2 for number in range(100)]}, "f4"),
        (2, {"double_val": [number / 3 for number in range(100)]}, "f8"),
        (3, {"int_val": range(-50, 50)}, "i4"),
        (4, {"int_val": range(100, 200)}, "u1"),
        (5, {"int_val": range(-50, 50)}, "i2"),
        (6, {"int_val": range(-50, 50)}, "i1"),
        (9, {"int64_val": range(1 << 40, (1 << 40) + 100)}, "i8"),
        (10, {"bool_val": [True, False] * 50}, "?"),
        (17, {"int_val": range(65000, 65100)}, "u2"),
        (22, {"uint32_val": range((1 << 32) - 100, 1 << 32)}, "u4"),
        (23, {"uint64_val": range((1 << 64) - 100, 1 << 64)}, "u8"),
    ],
)
def test_typed_values_become_bytes(dtype, values, kind):
    import numpy as np

    node = constant(dtype, [20, 5], **values)
    with_rest = copy_of(node)
    chunks, tree = split(ConstantNodeDefSplitter(node, max_size=60))
    assert tags_of(tree) == [(CONTENT, 1)]
    assert chunks[1] == np.array(list(*values.values()), kind).tobytes()
    tensor = chunks[0].attr["value"].tensor
    assert {field.name for field, _ in tensor.ListFields()} == {"dtype", "tensor_shape"}
    assert tensor.tensor_shape == with_rest.attr["value"].tensor.tensor_shape


def test_halves_and_complex_numbers():
    import numpy as np

    halves = np.arange(8, dtype="f2")
    tensor = constant(19, [8], half_val=halves.view("u2").tolist()).attr["value"].tensor
    assert raw_content(tensor, 1000) == halves.tobytes()
    numbers = np.array([1 + 2j, 3 - 4j], "c8")
    tensor = constant(8, [2], scomplex_val=numbers.view("f4").tolist()).attr["value"].tensor
    assert raw_content(tensor, 1000) == numbers.tobytes()


def test_the_last_value_repeats():
    import numpy as np

    tensor = constant(1, [6], float_val=[1, 2]).attr["value"].tensor
    assert raw_content(tensor, 24) == np.array([1, 2, 2, 2, 2, 2], "f4").tobytes()
    assert raw_content(tensor, 23) is None
    pairs = constant(8, [3], scomplex_val=[1, 2]).attr["value"].tensor
    assert raw_content(pairs, 1000) == np.array([1 + 2j] * 3, "c8").tobytes()
    # A splat is small, and stays as it is, however large the tensor.
    node = constant(1, [1 << 40], float_val=[1])
    assert len(split(ConstantNodeDefSplitter(node, max_size=60))[0]) == 1


@pytest.mark.parametrize(
    "node",
    [
        constant(7, [100], string_val=[b"text"] * 100),
        constant(7, [100], string_val=[b""] * 99 + [b"x" * 250]),
        constant(1, [3], float_val=[1.0] * 100),  # more values than elements
        constant(1, [-1], float_val=[1.0] * 100),
        constant(1, [1 << 40], float_val=[1.0] * 100),
        constant(77, [100], int_val=[1] * 300),
        constant(8, [100], scomplex_val=[1.0] * 99),  # half a number
    ],
)
def test_constants_that_are_left_as_they_are(node):
    """Text, and what contradicts itself: the attribute, or a part of it, becomes a chunk; nothing is converted."""
    graph = GraphDef(node=[node] * 20)
    expected = copy_of(graph)
    chunks, tree = split(GraphDefSplitter(graph, max_size=280))
    assert len(chunks) > 2
    check_merged(chunks, tree, expected)


def test_a_text_constant_is_a_message():
    node = constant(7, [100], string_val=[b"text"] * 100)
    value = copy_of(node.attr["value"])
    node.device = "d" * 100
    chunks, tree = split(ConstantNodeDefSplitter(node, max_size=650))
    assert tags_of(tree) == [("5.'value'", 1)]
    assert chunks[1] == value


def test_a_constant_with_other_large_attributes():
    node = constant(1, [100], tensor_content=b"abcd" * 100)
    node.attr["_other"].s = b"x" * 500
    expected = copy_of(node)
    chunks, tree = split(ConstantNodeDefSplitter(node, max_size=300))
    assert tags_of(tree) == [(CONTENT, 1), ("5.'_other'.2", 2)]
    check_merged(chunks, tree, expected)


# -- the parts by themselves -----------------------------------------------------------------------------------------


def test_function_by_itself():
    graph = make_graph_def_with_constant_nodes([], f=[50] * 7)
    function = graph.library.function[0]
    expected = copy_of(function)
    chunks, tree = split(FunctionDefSplitter(function, max_size=200))
    assert tags_of(tree) == [("", 1), ("", 2)]
    check_merged(chunks, tree, expected)


def test_large_message_by_itself():
    node = add_constant(GraphDef().node, "n", 100)
    expected, size = copy_of(node), message_size(node)
    splitter = LargeMessageSplitter(node, max_size=3 * size - 1)
    assert splitter.build_chunks() == size
    assert splitter.split()[0][1] == expected
    node = add_constant(GraphDef().node, "n", 100)
    assert LargeMessageSplitter(node, max_size=3 * size).build_chunks() == 0


def test_repeated_messages_by_themselves():
    graph = make_graph_def_with_constant_nodes([95] * 6, f=[60] * 6, g=[60])
    expected = copy_of(graph)
    chunks, tree = split(RepeatedMessageSplitter(graph, ["library", "function"], [LargeMessageSplitter], max_size=900))
    assert tags_of(tree) == [("2.1.#0", 1)]
    check_merged(chunks, tree, expected)
    chunks, tree = split(RepeatedMessageSplitter(copy_of(expected), "node", [], max_size=900))
    assert tags_of(tree) == [("", 1)]
    check_merged(chunks, tree, expected)
    for fields in ("versions", ["library"], ["node", 0, "attr"], ["node", 0, "name"], []):
        with pytest.raises(ValueError, match="not a repeated message field"):
            RepeatedMessageSplitter(copy_of(expected), fields)


# -- saved models ----------------------------------------------------------------------------------------------------


def saved_model(*graphs):
    model = SavedModel(saved_model_schema_version=1)
    for number, graph in enumerate(graphs):
        meta = model.meta_graphs.add()
        meta.meta_info_def.tags.append(f"tag{number}")
        meta.graph_def.CopyFrom(graph)
    return model


def split_model(limit, model):
    expected = copy_of(model)
    chunks, tree = split(SavedModelSplitter(model, max_size=limit))
    check_merged(chunks, tree, expected)
    return chunks, tags_of(tree)


def test_constants_of_functions_of_a_saved_model_are_chunks_of_their_own():
    graph = make_graph_def_with_constant_nodes(
        [100, 100, 1000, 100, 1000, 500, 100, 100, 100],
        fn1=[100, 100, 100],
        fn2=[100, 500],
        fn3=[100],
        fn4=[100, 100],
    )
    chunks, tags = split_model(500, saved_model(graph))
    assert len(chunks) >= 4
    assert (f"2.#0.2.1.#2.{CONTENT}", chunks.index(content(graph.node[2]))) in tags


def test_one_constant_in_a_saved_model():
    """150 x 150 numbers of 8 bytes, 80,000 bytes to a chunk."""
    graph = GraphDef(node=[constant(2, [150, 150], tensor_content=bytes(180_000))])
    chunks, tags = split_model(80_000, saved_model(graph))
    assert tags == [(f"2.#0.2.1.#0.{CONTENT}", 1)]
    assert chunks[1] == bytes(180_000)


def test_saved_model_files(tmp_path):
    graph = GraphDef(node=[constant(2, [150, 150], tensor_content=bytes(180_000))])
    path = SavedModelSplitter(saved_model(graph), max_size=80_000).write(tmp_path / "saved_model")
    assert path.endswith("saved_model.cpb")
    merged = SavedModel()
    Merger.read(tmp_path / "saved_model", merged)
    assert merged == saved_model(graph)
    path = SavedModelSplitter(saved_model(graph), max_size=1 << 31).write(tmp_path / "saved_model")
    assert path.endswith("saved_model.pb")
    assert not (tmp_path / "saved_model.cpb").exists()


def test_all_meta_graphs_are_split():
    graphs = [make_graph_def_with_constant_nodes([60, size, 60]) for size in (1000, 900, 850)]
    _, tags = split_model(800, saved_model(*graphs))
    assert [tag for tag, _ in tags] == [f"2.#{index}.2.1.#1.{CONTENT}" for index in (0, 1, 2)]


def test_a_graph_beside_much_else_is_moved_out():
    model = saved_model(make_graph_def_with_constant_nodes([60, 60, 60, 60]))
    model.meta_graphs[0].meta_info_def.tensorflow_version = "x" * 100
    chunks, tags = split_model(300, model)
    assert tags == [("2.#0.2", 1)]
    assert not chunks[0].meta_graphs[0].HasField("graph_def")


def test_other_fields_of_meta_graphs():
    model = saved_model(make_graph_def_with_constant_nodes([60, 60]), GraphDef())
    meta = model.meta_graphs[0]
    for number in range(30):
        meta.signature_def[f"s{number}"].method_name = "m" * 20
        meta.object_graph_def.nodes.add().children.add(node_id=number, local_name="child")
        meta.collection_def["texts"].bytes_list.value.append(b"b" * 20)
    meta.collection_def["few"].int64_list.value.extend([1, 2, 3])
    for limit in (200, 300, 400, 700, 1000, 2000):
        chunks, tags = split_model(limit, copy_of(model))
        assert len(chunks) >= message_size(model) // limit
    whole = [tag for tag, _ in tags if tag in ("2.#0.7", "2.#0.5", "2.#0.2")]
    assert whole


def test_many_meta_graphs():
    _, tags = split_model(300, saved_model(*[make_graph_def_with_constant_nodes([60])] * 30))
    assert "" in [tag for tag, _ in tags]


@pytest.mark.parametrize("limit", [150, 333, 500, 1000, 2500])
def test_saved_models_of_all_kinds(limit):
    graphs = [
        make_graph_def_with_constant_nodes([60, 100, 700] * 3, f=[60] * 9, g=[300, 60]),
        make_graph_def_with_constant_nodes([60] * 30, f=[60]),
        make_graph_def_with_constant_nodes([], **{f"f{number}": [60, 70] for number in range(9)}),
    ]
    split_model(limit, saved_model(*graphs))
