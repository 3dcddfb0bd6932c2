"""Messages to split: graphs, saved models, and the test messages of TensorFlow's own splitter."""

from __future__ import annotations

import random

from pparse.protos import message_class

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL, BFLOAT16, HALF = 1, 2, 3, 7, 9, 10, 14, 19


def graph_def():
    return message_class("tensorflow.GraphDef")()


def const(node, name: str, content: bytes | None = None, *, dtype: int = FLOAT, shape: tuple = (), **values) -> None:
    """Make a node a constant: of these bytes (float32, unless said), or of values in the field of their type."""
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = dtype
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype
    if content is not None:
        tensor.tensor_content = content
        shape = shape or (len(content) // 4,)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    for field, value in values.items():
        getattr(tensor, field).extend(value)


def large_node(node, name: str, size: int, chooser: random.Random) -> None:
    """Make a node that is large without being a constant."""
    node.name, node.op = name, "NoOp"
    node.attr["_text"].s = chooser.randbytes(size)


def small_node(node, name: str, chooser: random.Random) -> None:
    node.name, node.op = name, "Identity"
    node.input.append(f"in{chooser.randrange(1000)}")
    node.attr["T"].type = chooser.choice((FLOAT, INT32))
    if chooser.random() < 0.2:
        node.attr["_shapes"].list.shape.add().dim.add(size=-1)
    if chooser.random() < 0.1:
        node.experimental_debug_info.original_node_names.append(name)


def function(library, name: str, nodes: int, large: tuple = (), constants: tuple = ()) -> None:
    """Add a function of so many small nodes, and nodes and constants of these sizes."""
    chooser = random.Random(name)
    made = library.function.add()
    made.signature.name = name
    made.signature.input_arg.add(name="x", type=FLOAT)
    made.ret["y"] = "n0:output:0"
    made.attr["_construction_context"].s = b"kEagerRuntime"
    made.arg_attr[0].attr["_user"].s = b"x"
    for number in range(nodes):
        small_node(made.node_def.add(), f"n{number}", chooser)
    for number, size in enumerate(large):
        large_node(made.node_def.add(), f"large{number}", size, chooser)
    for number, size in enumerate(constants):
        const(made.node_def.add(), f"const{number}", chooser.randbytes(size))


# -- graphs ----------------------------------------------------------------------------------------------------------


def constants():
    """Constants on either side of the limits, between small nodes."""
    chooser = random.Random(1)
    made = graph_def()
    made.versions.producer = 1882
    for number, size in enumerate((52, 48, 1000, 52, 4000, 20_000, 400, 600)):
        const(made.node.add(), f"c{number}", chooser.randbytes(size))
        small_node(made.node.add(), f"n{number}", chooser)
    return made


def typed_constants():
    """Constants whose values stand in the field of their type: all of them, or one for all."""
    made = graph_def()
    many = range(-300, 300)
    const(made.node.add(), "splat", shape=(40, 50), float_val=[1.5])
    const(made.node.add(), "floats", shape=(600,), float_val=[value / 8 for value in many])
    const(made.node.add(), "doubles", dtype=DOUBLE, shape=(2, 300), double_val=[value / 7 for value in many])
    const(made.node.add(), "ints", dtype=INT32, shape=(600,), int_val=many)
    const(made.node.add(), "longs", dtype=INT64, shape=(600,), int64_val=[value << 33 for value in many])
    const(made.node.add(), "bools", dtype=BOOL, shape=(600,), bool_val=[value % 3 == 0 for value in many])
    const(made.node.add(), "halves", dtype=HALF, shape=(600,), half_val=[value + 15_000 for value in many])
    const(made.node.add(), "bfloats", dtype=BFLOAT16, shape=(1000,), half_val=[16_256])
    const(made.node.add(), "tail", dtype=INT32, shape=(1000,), int_val=[1, 2, 3])
    return made


def large_nodes():
    """Nodes of which each is large, first, last and in between."""
    chooser = random.Random(2)
    made = graph_def()
    for number, size in enumerate((900, 10, 700, 800, 10, 10, 950)):
        large_node(made.node.add(), f"n{number}", size, chooser)
    return made


def many_nodes():
    chooser = random.Random(3)
    made = graph_def()
    made.versions.min_consumer = 12
    for number in range(700):
        small_node(made.node.add(), f"node{number}", chooser)
    return made


def functions():
    """A library that outweighs the graph: large functions, and functions of many, large and constant nodes."""
    chooser = random.Random(4)
    made = graph_def()
    for number in range(30):
        small_node(made.node.add(), f"node{number}", chooser)
    for number in range(20):
        function(made.library, f"small{number}", 2)
    function(made.library, "many", 200)
    function(made.library, "large", 3, large=(700, 800, 20))
    function(made.library, "constant", 3, constants=(5000, 10, 2000))
    function(made.library, "all", 100, large=(600,), constants=(3000, 900))
    made.library.gradient.add(function_name="many", gradient_func="large")
    return made


def everything():
    """Nodes, constants and functions, none of which outweighs the others."""
    made = functions()
    for part in (constants(), large_nodes(), many_nodes()):
        made.node.extend(part.node)
    made.versions.producer = 1882
    made.debug_info.files.append("model.py")
    return made


def empty_library():
    """Nodes that fill slices to the brim, and a library that is there but holds nothing."""
    made = graph_def()
    made.library.SetInParent()
    for number in range(60):
        node = made.node.add(name=f"n{number:03}", op="NoOp")
        node.attr["_text"].s = bytes(70)
    return made


GRAPHS = {
    make.__name__: make
    for make in (constants, typed_constants, large_nodes, many_nodes, functions, everything, empty_library)
}


def saved_model(graph=everything, others: int = 1):
    """A SavedModel around that graph, with signatures, an object graph and more meta graphs."""
    made = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    for number in range(1 + others):
        part = made.meta_graphs.add()
        part.meta_info_def.tags.append(f"tag{number}")
        part.meta_info_def.tensorflow_version = "2.21.0"
        part.meta_info_def.function_aliases["f"] = "many"
        part.graph_def.CopyFrom(graph() if number == 0 else many_nodes_few())
        signature = part.signature_def["serving_default"]
        signature.inputs["x"].name = "x:0"
        signature.outputs["y"].name = "y:0"
        part.object_graph_def.nodes.add().user_object.identifier = "root"
        part.saver_def.max_to_keep = 5
    return made


def many_nodes_few():
    chooser = random.Random(5)
    made = graph_def()
    for number in range(5):
        small_node(made.node.add(), f"node{number}", chooser)
    return made


# -- other messages --------------------------------------------------------------------------------------------------


def repeated_string():
    chooser = random.Random(6)
    made = message_class("tensorflow.proto_splitter_testdata.RepeatedRepeatedString")(filler_field=7)
    for number in range(12):
        made.rs.add(strings=["x" * chooser.randrange(60) for _ in range(number % 5)])
    return made


def many_fields(depth: int = 3):
    """Messages in messages, in lists and in maps, with scalars of all sizes and maps of scalars."""
    chooser = random.Random(depth)
    made = message_class("tensorflow.proto_splitter_testdata.ManyFields")()
    made.string_field = "s" * (30 * depth)
    made.repeated_string_field.extend("r" * chooser.randrange(40) for _ in range(4))
    made.map_field_uint32.update(dict.fromkeys((0, 3000000000), "u" * 20))
    made.map_field_int64.update(dict.fromkeys((-1, 1 << 40), "i" * 9))
    if depth:
        made.field_one.CopyFrom(many_fields(depth - 1))
        for _ in range(3):
            made.repeated_field.add().CopyFrom(many_fields(depth - 1))
        made.nested_map_bool[True].CopyFrom(many_fields(depth - 1))
        made.nested_map_bool[False].string_field = "no"
    return made


def string_tree():
    """A tree of 121 nodes."""
    made = message_class("tensorflow.proto_splitter_testdata.StringNode")(val="root")
    todo = [(made, 4)]
    while todo:
        node, depth = todo.pop()
        for number in range(3 if depth else 0):
            child = node.child_nodes.add(val=f"{node.val}-{number}")
            todo.append((child, depth - 1))
    return made


def object_graph():
    """The part of a SavedModel that TensorFlow's splitters leave alone."""
    made = message_class("tensorflow.SavedModel")()
    graph = made.meta_graphs.add().object_graph_def
    for number in range(80):
        node = graph.nodes.add()
        node.user_object.identifier = f"_generic_user_object_{number}"
        node.children.add(node_id=number + 1, local_name=f"layer{number}")
        graph.concrete_functions[f"__inference_{number}"].bound_inputs.append(number)
    return made


def signatures():
    """A map of messages, each with maps."""
    made = message_class("tensorflow.MetaGraphDef")()
    for number in range(12):
        signature = made.signature_def[f"signature{number}"]
        for name in "abc":
            signature.inputs[name].name = f"{name}:{number}"
            signature.inputs[name].tensor_shape.dim.add(size=number)
        signature.defaults["a"].tensor_content = bytes(100)
    return made


SIZED = {
    make.__name__: make
    for make in (repeated_string, many_fields, string_tree, object_graph, signatures, saved_model, constants)
}
