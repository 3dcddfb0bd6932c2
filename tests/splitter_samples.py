"""Messages for the tests of the splitters: graphs with nodes of given sizes, and what they must keep."""

from __future__ import annotations

from pparse.proto_splitter.sizes import message_size
from pparse.protos import message_class

GRAPH = "tensorflow.GraphDef"
FLOAT = 1


def make_graph_def_with_constant_nodes(node_sizes, **function_node_sizes):
    """Make a graph of constants: nodes of about these sizes (at most 5 bytes off), and functions of such nodes."""
    graph = message_class(GRAPH)()
    count = 0
    lists = [(graph.node, node_sizes)]
    for name, sizes in function_node_sizes.items():
        function = graph.library.function.add()
        function.signature.name = name
        lists.append((function.node_def, sizes))
    for nodes, sizes in lists:
        for size in sizes:
            add_constant(nodes, f"Const_{count}", size)
            count += 1
    return graph


def add_constant(nodes, name, size):
    node = nodes.add(name=name, op="Const")
    tensor = node.attr["value"].tensor
    tensor.dtype = FLOAT
    dim = tensor.tensor_shape.dim.add()
    for count in range(max((size - 60) // 4, 1), size):
        content = b"".join(((number * 7919 + len(name)) % 251).to_bytes(4, "big") for number in range(count))
        dim.size, tensor.tensor_content = count, content
        if node.ByteSize() > size - 3:
            break
    assert abs(node.ByteSize() - size) <= 5
    return node


def split(splitter):
    """Split, and check what holds for any splitter: no message above the limit, and indices that are there."""
    chunks, tree = splitter.split()
    for chunk in chunks:
        assert isinstance(chunk, bytes) or message_size(chunk) <= splitter.max_size
    used = [entry.message.chunk_index for entry in entries_of(tree)]
    if tree.HasField("chunk_index"):
        used.append(tree.chunk_index)
    assert sorted(used) == list(range(len(chunks)))
    return chunks, tree


def entries_of(tree):
    """All entries, those of trees in the tree too."""
    todo, found = [tree], []
    for node in todo:
        found += [entry for entry in node.chunked_fields if entry.message.HasField("chunk_index")]
        todo += [entry.message for entry in node.chunked_fields]
    return found


def tags_of(tree):
    """The tag and the chunk index of each entry, as text: ``("1.#2.'value'", 3)``."""
    return [(".".join(map(step, entry.field_tag)), entry.message.chunk_index) for entry in tree.chunked_fields]


def step(index):
    kind = index.WhichOneof("kind")
    if kind == "field":
        return str(index.field)
    if kind == "index":
        return f"#{index.index}"
    return repr(getattr(index.map_key, index.map_key.WhichOneof("type")))


def copy_of(message):
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def plain(message):
    return message.SerializeToString(deterministic=True)


def check_merged(chunks, tree, expected):
    """Put the chunks together, and compare."""
    from pparse.proto_splitter import Merger

    merged = type(expected)()
    Merger.merge(chunks, tree, merged)
    assert plain(merged) == plain(expected)
