"""A zoo of ONNX models, and what onnx itself finds in each: every type in every storage form, every place of tensors.

Each function of ``ZOO`` writes ``model.onnx`` (and what belongs beside it) into a folder; `contents` names the tensors
of such a model and decodes them with `onnx.numpy_helper`.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

from tests import onnx_files as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

TYPES = {number: name for name, number in TensorProto.DataType.items() if number}
# Bits of an element where they are fewer than those of its byte in memory.
LOW_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (0,), (3, 5), (2, 0, 3), (2, 3, 3), (1, 2, 1, 3))

ZOO: dict[str, Callable[[Path], None]] = {}


# -- what onnx finds ---------------------------------------------------------------------------------------------------


def contents(model: ModelProto, folder: Path) -> dict[str, Any]:
    """Return the type, shape and elements of every tensor by name: an array, or for strings a list of bytes."""
    found: dict[str, Any] = {}
    for name, tensor in named(model):
        number, key = 1, name
        while key in found:
            number += 1
            key = f"{name}#{number}"
        found[key] = (TYPES[tensor.data_type], tuple(tensor.dims), decoded(tensor, folder))
    return found


def decoded(tensor: TensorProto, folder: Path) -> Any:
    """Return the elements as onnx decodes them; strings as they are stored."""
    if tensor.data_type == TensorProto.STRING:
        return list(tensor.string_data)
    return numpy_helper.to_array(tensor, str(folder))


def bits(array: np.ndarray, stored: str) -> bytes:
    """Return the bits of an array, without those of a byte that its type has no use for."""
    if stored in LOW_BITS:
        return (np.ascontiguousarray(array).view(np.uint8) & ((1 << LOW_BITS[stored]) - 1)).tobytes()
    return np.ascontiguousarray(array).tobytes()


def named(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield every tensor of a model, with the name that its place gives it."""
    yield from of_graph(model.graph, "")
    for function in model.functions:
        domain = f"{function.domain}." if function.domain else ""
        overload = f":{function.overload}" if function.overload else ""
        yield from of_nodes(function.node, f"@{domain}{function.name}{overload}/")
    for number, info in enumerate(model.training_info):
        yield from of_graph(info.initialization, f"training[{number}].initialization/")
        yield from of_graph(info.algorithm, f"training[{number}].algorithm/")


def of_graph(graph: onnx.GraphProto, prefix: str) -> Iterator[tuple[str, TensorProto]]:
    for tensor in graph.initializer:
        yield prefix + tensor.name, tensor
    for sparse in graph.sparse_initializer:
        yield from of_sparse(prefix + sparse.values.name, sparse)
    yield from of_nodes(graph.node, prefix)


def of_sparse(name: str, sparse: SparseTensorProto) -> Iterator[tuple[str, TensorProto]]:
    yield f"{name}.values", sparse.values
    yield f"{name}.indices", sparse.indices


def of_nodes(nodes: Any, prefix: str) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        label = prefix + (node.name or next((output for output in node.output if output), ""))
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        for attribute in node.attribute:
            place = f"{label}.{attribute.name}"
            if is_constant and attribute.name in ("value", "sparse_value"):
                place = prefix + node.output[0]
            yield from of_attribute(place, f"{label}.{attribute.name}", attribute)


def of_attribute(place: str, inner: str, attribute: AttributeProto) -> Iterator[tuple[str, TensorProto]]:
    if attribute.HasField("t"):
        yield place, attribute.t
    for number, tensor in enumerate(attribute.tensors):
        yield f"{place}[{number}]", tensor
    if attribute.HasField("sparse_tensor"):
        yield from of_sparse(place, attribute.sparse_tensor)
    for number, sparse in enumerate(attribute.sparse_tensors):
        yield from of_sparse(f"{place}[{number}]", sparse)
    if attribute.HasField("g"):
        yield from of_graph(attribute.g, f"{inner}/")
    for number, graph in enumerate(attribute.graphs):
        yield from of_graph(graph, f"{inner}[{number}]/")


# -- elements of every type --------------------------------------------------------------------------------------------


def some_codes(stored: str, count: int, seed: int) -> np.ndarray:
    """Return random bits as onnx decodes them: any bits, also those of numbers that are none."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(stored)))
    chance = np.random.default_rng([seed, *stored.encode()])
    codes = chance.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    if stored == "BOOL":
        codes &= 1
    if stored in LOW_BITS:
        codes &= (1 << LOW_BITS[stored]) - 1
    return codes.view(dtype)


def packed_bytes(array: np.ndarray, stored: str) -> bytes:
    """Return the elements as raw_data has them."""
    width = LOW_BITS.get(stored)
    if width is None:
        return array.tobytes()
    word = sum(int(code) << (width * number) for number, code in enumerate(array.reshape(-1).view(np.uint8)))
    return word.to_bytes(-(-array.size * width // 8), "little")


def typed_items(array: np.ndarray, stored: str) -> tuple[int, list[int | bytes]]:
    """Return the number of the field that lists elements of this type, and its items as encoded."""
    flat = array.reshape(-1)
    if stored in ("FLOAT", "COMPLEX64"):
        return wire.FLOATS, [item.tobytes() for item in flat.view("<u4")]
    if stored in ("DOUBLE", "COMPLEX128"):
        return wire.DOUBLES, [item.tobytes() for item in flat.view("<u8")]
    if stored == "INT64":
        return wire.INT64S, flat.tolist()
    if stored in ("UINT32", "UINT64"):
        return wire.UINT64S, flat.tolist()
    if stored in LOW_BITS and LOW_BITS[stored] < 6:
        return wire.INT32S, list(packed_bytes(array, stored))
    if array.dtype.kind in "iu":
        return wire.INT32S, flat.tolist()
    return wire.INT32S, flat.view(f"u{array.itemsize}").tolist()


def calm(array: np.ndarray, stored: str) -> np.ndarray:
    """Make signalling NaNs quiet: onnx itself changes those in float_data, as it makes Python numbers of them."""
    if stored in ("FLOAT", "COMPLEX64"):
        words = array.view("<u4")
        words[(words & 0x7F80_0000) == 0x7F80_0000] |= 0x0040_0000
    return array


def word_list(count: int) -> list[bytes]:
    return [("", "a", "naïve", "漢字", "x" * 300, "\0")[number % 6].encode() for number in range(count)]


def each_type(how: str, shapes: Iterable[int] = range(len(SHAPES))) -> Iterator[bytes]:
    """Yield a tensor of every type and of these of the shapes, stored as ``how`` says."""
    for number, stored in TYPES.items():
        for index in shapes:
            shape = SHAPES[index]
            name = f"{stored}.{index}"
            array = some_codes(stored, int(np.prod(shape, dtype=int)), index) if stored != "STRING" else np.empty(0)
            if stored == "STRING":
                if how != "raw":
                    items = word_list(int(np.prod(shape, dtype=int)))
                    yield wire.tensor(name, shape, number, wire.typed(wire.STRINGS, items))
            elif how == "raw":
                yield wire.tensor(name, shape, number, raw=packed_bytes(array, stored), packed=bool(index % 2))
            else:
                field, listed = typed_items(calm(array, stored), stored)
                yield wire.tensor(name, shape, number, wire.typed(field, listed, how))


def zoo(make: Callable[[Path], None]) -> Callable[[Path], None]:
    ZOO[make.__name__] = make
    return make


def put(folder: Path, content: bytes | ModelProto) -> None:
    data = content if isinstance(content, bytes) else content.SerializeToString(deterministic=True)
    (folder / "model.onnx").write_bytes(data)


@zoo
def types_raw(folder: Path) -> None:
    put(folder, wire.model_of(*each_type("raw")))


@zoo
def types_packed(folder: Path) -> None:
    put(folder, wire.model_of(*each_type("packed")))


@zoo
def types_unpacked(folder: Path) -> None:
    put(folder, wire.model_of(*each_type("unpacked")))


@zoo
def types_mixed(folder: Path) -> None:
    put(folder, wire.model_of(*each_type("mixed")))


@zoo
def types_external(folder: Path) -> None:
    """All in one file at offsets; the last one of it without a length; each also as a file of its own."""
    out, data = [], bytearray(b"not a tensor's")
    (folder / "sub").mkdir()
    for number, stored in TYPES.items():
        if stored == "STRING":
            continue
        for index, shape in enumerate(SHAPES):
            array = some_codes(stored, int(np.prod(shape, dtype=int)), index)
            content = packed_bytes(array, stored)
            name = f"{stored}.{index}"
            place = wire.external(location="weights.bin", offset=len(data), length=len(content))
            out.append(wire.tensor(name, shape, number, place))
            data += content + bytes(-len(content) % 4)
            if index in (2, 3, 4):
                (folder / "sub" / f"{name}.bin").write_bytes(content)
                whole = wire.external(location=f"sub/{name}.bin")
                out.append(wire.tensor(f"{name}.whole", shape, number, whole))
                counted = wire.external(length=len(content), location=f"sub/{name}.bin")
                out.append(wire.tensor(f"{name}.counted", shape, number, counted))
    content = data + b"rest"
    rest = wire.external(location="weights.bin", offset=len(data), checksum=sha1(content).hexdigest())
    out.append(wire.tensor("rest", [4], wire.UINT8, rest))
    (folder / "weights.bin").write_bytes(content)
    put(folder, wire.model_of(*out))


@zoo
def numbers(folder: Path) -> None:
    """Numbers at the ends of their types, of which most are negative or more than Python's floats hold."""
    model = ModelProto(ir_version=10)
    for stored, info in ((name, np.iinfo(name.lower())) for name in ("INT8", "INT16", "INT32", "INT64")):
        add(model, stored, [info.min, -1, 0, 1, info.max])
    for stored, info in ((name, np.iinfo(name.lower())) for name in ("UINT8", "UINT16", "UINT32", "UINT64")):
        add(model, stored, [0, info.max, info.max // 2, info.max // 2 + 1])
    add(model, "FLOAT", [0.0, -0.0, 1e-45, 3.4028235e38, float("inf"), float("-inf"), float("nan")])
    add(model, "DOUBLE", [0.0, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("nan")])
    put(folder, model)


def add(model: ModelProto, stored: str, values: list[Any], **how: Any) -> None:
    number = TensorProto.DataType.Value(stored)
    model.graph.initializer.append(helper.make_tensor(f"{stored}.values", number, [len(values)], values, **how))


# -- where tensors are -------------------------------------------------------------------------------------------------


def array_of(name: str, *shape: int, dtype: str = "float32") -> TensorProto:
    """Return a tensor of numbers that no other name has."""
    count = int(np.prod(shape, dtype=int))
    chance = np.random.default_rng(list(name.encode()) or [0])
    return numpy_helper.from_array(chance.integers(-100, 100, count).astype(dtype).reshape(shape), name)


def sparse_of(name: str, dims: tuple[int, ...], linear: bool) -> SparseTensorProto:
    rows = np.arange(3, dtype="i8") if linear else np.array([[0, 1], [1, 0], [1, 2]], "i8")
    return helper.make_sparse_tensor(array_of(name, 3), numpy_helper.from_array(rows, f"{name}_indices"), dims)


def graph_of(name: str, initializers: list[TensorProto], nodes: list[onnx.NodeProto] | None = None) -> onnx.GraphProto:
    return helper.make_graph(nodes or [], name, [], [], initializers)


@zoo
def attributes(folder: Path) -> None:
    """Tensors of constants, of other nodes, in lists, without names of nodes, and the same name again."""
    nodes = [
        helper.make_node("Constant", [], ["c0"], value=array_of("inner name", 2, 2)),
        helper.make_node("Constant", [], ["c1"], name="has_a_name", value=array_of("", 3)),
        helper.make_node("Constant", [], ["c2"], domain="ai.onnx", value=array_of("c2", 1)),
        helper.make_node("Constant", [], ["c3"], domain="other", value=array_of("c3", 1)),
        helper.make_node("Constant", [], ["c4"], value_float=1.5),
        helper.make_node("Constant", [], ["c5"], name="s", sparse_value=sparse_of("five", (2, 3), False)),
        helper.make_node("Constant", [], ["c6"], value=helper.make_tensor("t", TensorProto.STRING, [2], [b"a", b"b"])),
        helper.make_node("ConstantOfShape", ["c0"], ["o0"], name="fill", value=array_of("v", 1)),
        helper.make_node("ConstantOfShape", ["c0"], ["o1"], value=array_of("v", 1)),
        helper.make_node(
            "Many", ["c0"], ["", "o2", "o3"], domain="x", one=array_of("one", 2), sp=sparse_of("q", (5,), True)
        ),
        helper.make_node("Lists", ["c0"], ["o4"], name="lists", domain="x"),
        helper.make_node("ConstantOfShape", ["c0"], ["o5"], name="fill", value=array_of("again", 2)),
    ]
    lists = nodes[10].attribute.add(name="all", type=AttributeProto.TENSORS)
    lists.tensors.extend(array_of(f"all{number}", number) for number in range(4))
    lists = nodes[10].attribute.add(name="few", type=AttributeProto.SPARSE_TENSORS)
    lists.sparse_tensors.extend(sparse_of(f"few{number}", (2, 3), bool(number)) for number in range(2))
    put(folder, helper.make_model(graph_of("attributes", [array_of("first", 3)], nodes)))


@zoo
def sparse_initializers(folder: Path) -> None:
    graph = graph_of("sparse", [array_of("dense", 2, 3)])
    graph.sparse_initializer.extend([sparse_of("linear", (6,), True), sparse_of("pairs", (2, 3), False)])
    put(folder, helper.make_model(graph))


@zoo
def bodies(folder: Path) -> None:
    """If in Scan in Loop, and lists of graphs."""
    then = graph_of("then", [array_of("w", 2), array_of("deep", 1)])
    otherwise = graph_of("else", [array_of("w", 3)], [helper.make_node("Constant", [], ["k"], value=array_of("k", 2))])
    branch = helper.make_node("If", ["c"], ["r"], name="if", then_branch=then, else_branch=otherwise)
    scan = helper.make_node(
        "Scan", ["r"], ["s"], body=graph_of("scan", [array_of("w", 4)], [branch]), num_scan_inputs=1
    )
    loop = helper.make_node("Loop", ["n"], ["l"], name="loop", body=graph_of("loop", [array_of("w", 5)], [scan]))
    several = helper.make_node("Cases", ["n"], ["m"], name="cases", domain="x")
    cases = several.attribute.add(name="of", type=AttributeProto.GRAPHS)
    cases.graphs.extend(graph_of(f"case{number}", [array_of(f"v{number}", number + 1)]) for number in range(3))
    nodes = [loop, several, helper.make_node("If", ["c"], ["", "r2"], then_branch=then, else_branch=otherwise)]
    put(folder, helper.make_model(graph_of("main", [array_of("w", 6)], nodes)))


@zoo
def functions(folder: Path) -> None:
    opsets = [helper.make_opsetid("", 21)]
    body = graph_of("body", [array_of("w", 2)], [helper.make_node("Constant", [], ["k"], value=array_of("k", 2))])
    made = []
    for domain, name, overload in (("", "Plain", ""), ("my.ops", "F", ""), ("my.ops", "F", "two"), ("", "Plain", "x")):
        nodes = [
            helper.make_node("Constant", [], ["c"], value=array_of(f"{domain}{name}{overload}", 3)),
            helper.make_node("If", ["x"], ["y"], name="if", then_branch=body, else_branch=body),
        ]
        made.append(helper.make_function(domain, name, ["x"], ["y"], nodes, opsets, overload=overload))
    call = helper.make_node("F", ["x"], ["y"], domain="my.ops", overload="two")
    put(folder, helper.make_model(graph_of("main", [array_of("c", 1)], [call]), functions=made))


@zoo
def training(folder: Path) -> None:
    model = helper.make_model(graph_of("main", [array_of("w", 2)]))
    for number in range(2):
        nodes = [helper.make_node("Constant", [], ["rate"], value=array_of(f"rate{number}", 1))]
        first, second = graph_of("init", [array_of(f"start{number}", 2)]), graph_of("step", [array_of("w", 3)], nodes)
        model.training_info.append(helper.make_training_info(second, [], first, []))
    put(folder, model)


@zoo
def repeated_names(folder: Path) -> None:
    put(folder, wire.model_of(wire.floats("a", 1), wire.floats("a", 2), wire.floats("b", 3), wire.floats("a", 4)))


@zoo
def strange_names(folder: Path) -> None:
    names = ["a.b[0]/c", "with space", "漢字", "#2", "x" * 3000, "'quoted\"", "a\tb", "model.layers.0.weight"]
    put(folder, wire.model_of(*(wire.floats(name, number) for number, name in enumerate(names))))


@zoo
def order_of_fields(folder: Path) -> None:
    """The name behind the data, dims in two pieces, the type last, the graph before the version."""
    pieces = [
        wire.block(wire.RAW, bytes(range(24))),
        wire.count(wire.DIMS, 2),
        wire.block(wire.NAME, "behind"),
        wire.block(wire.DIMS, wire.varint(3)),
        wire.count(wire.TYPE, wire.FLOAT),
    ]
    listed = [
        wire.typed(wire.FLOATS, [bytes(4), b"\0\0\x80?"]),
        wire.block(wire.NAME, "listed"),
        wire.typed(wire.FLOATS, [b"\0\0\0@"], "unpacked"),
        wire.count(wire.TYPE, wire.FLOAT),
        wire.count(wire.DIMS, 3),
    ]
    graph = wire.graph([b"".join(pieces), b"".join(reversed(pieces[1:])) + pieces[0], b"".join(listed)])
    put(folder, wire.block(wire.MODEL_GRAPH, graph) + wire.count(1, 10) + wire.block(8, wire.count(2, 21)))


@zoo
def last_one_wins(folder: Path) -> None:
    """Singular fields that come twice: of the name, type and data the last one holds."""
    first = wire.count(wire.TYPE, wire.INT64) + wire.block(wire.NAME, "old") + wire.block(wire.RAW, b"12345678" * 3)
    put(folder, wire.model_of(first + wire.tensor("new", [2], wire.FLOAT, raw=b"abcdefgh"), wire.floats("other", 1)))


@zoo
def split_messages(folder: Path) -> None:
    """The graph in three pieces, a tensor of an attribute and a sparse tensor in two: protobuf merges them."""
    whole = array_of("t", 4)
    parts = [TensorProto(data_type=1, dims=[2], name="t"), TensorProto(dims=[2], raw_data=whole.raw_data)]
    attribute = wire.block(1, "value") + b"".join(wire.block(5, part.SerializeToString()) for part in parts)
    nodes = [wire.node("Constant", "", ["c"], [attribute]), wire.node("ConstantOfShape", "fill", ["o"], [attribute])]
    sparse = sparse_of("sp", (6,), True)
    halves = [SparseTensorProto(values=sparse.values), SparseTensorProto(indices=sparse.indices, dims=[6])]
    values = [wire.block(1, TensorProto(name="sp", dims=[1], data_type=1).SerializeToString())]
    values.append(wire.block(1, TensorProto(raw_data=b"abcd").SerializeToString()))
    both = [wire.block(15, b"".join(half.SerializeToString() for half in halves))]
    both.append(wire.block(15, b"".join(values) + halves[1].SerializeToString().replace(b"sp_", b"sq_")))
    pieces = [
        wire.graph([wire.floats("a", 1, 2)], nodes[:1]),
        b"".join(both),
        wire.graph([wire.floats("b", 3)], nodes[1:]),
    ]
    body = b"".join(wire.block(wire.MODEL_GRAPH, piece) + wire.block(2, f"maker {n}") for n, piece in enumerate(pieces))
    put(folder, wire.count(1, 10) + body)


@zoo
def split_bodies(folder: Path) -> None:
    """A body and a training step that come in two pieces."""
    halves = [wire.graph([wire.floats(name, number)]) for number, name in enumerate(("a", "b"))]
    attribute = wire.block(1, "body") + b"".join(wire.block(6, half) for half in halves)
    step = b"".join(wire.block(2, half) for half in halves)
    graph = wire.graph([], [wire.node("Loop", "loop", ["o"], [attribute])])
    put(folder, wire.model(graph, wire.block(wire.MODEL_TRAINING, step)))


@zoo
def raw_wins(folder: Path) -> None:
    listed = wire.typed(wire.FLOATS, [b"abcd", b"efgh"])
    put(folder, wire.model_of(wire.tensor("both", [2], wire.FLOAT, listed, raw=b"ABCDEFGH")))


@zoo
def half_precision(folder: Path) -> None:
    weights = [array_of(f"{kind}.w", 5, 3, dtype=kind) for kind in ("float16", "float64")]
    weights.append(helper.make_tensor("bf", TensorProto.BFLOAT16, [3], [1.5, -2.0, 3.0]))
    put(folder, helper.make_model(graph_of("half", weights)))


@zoo
def quantised(folder: Path) -> None:
    """Weights with their scales and zero points, of 8 and 4 bits, by channel and by block."""
    chance = np.random.default_rng(9)
    fours = chance.integers(-8, 8, (5, 4)).astype(helper.tensor_dtype_to_np_dtype(TensorProto.INT4))
    initializers = [
        numpy_helper.from_array(chance.integers(-128, 128, (8, 4)).astype("i1"), "w8"),
        numpy_helper.from_array(chance.random(4).astype("f4"), "w8_scale"),
        numpy_helper.from_array(np.zeros(4, "i1"), "w8_zero"),
        numpy_helper.from_array(fours, "w4"),
        numpy_helper.from_array(chance.random((1, 4)).astype("f2"), "w4_scale"),
        numpy_helper.from_array(np.array(7, "u1"), "x_zero"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "w8_scale", "w8_zero"], ["dq8"], axis=1),
        helper.make_node("DequantizeLinear", ["w4", "w4_scale"], ["dq4"], axis=0, block_size=5),
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"]),
    ]
    put(folder, helper.make_model(graph_of("quantised", initializers, nodes)))


@zoo
def saved_beside(folder: Path) -> None:
    """As onnx itself saves a model with the data beside it."""
    weights = [array_of(f"layer{number}.weight", 40, 10 + number) for number in range(4)] + [array_of("bias", 3)]
    weights.append(helper.make_tensor("listed", TensorProto.FLOAT, [2], [1.0, 2.0]))
    nodes = [helper.make_node("Constant", [], ["c"], value=array_of("c", 30, 30))]
    model = helper.make_model(graph_of("main", weights, nodes))
    onnx.save_model(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=100,
        convert_attribute=True,
    )


@zoo
def described(folder: Path) -> None:
    model = helper.make_model(
        graph_of("described", [array_of("w", 2)]), producer_name="the zoo", producer_version="7.5", doc_string="all"
    )
    helper.set_model_props(model, {"author": "somebody", "licence": "none"})
    model.graph.initializer[0].doc_string = "weights"
    model.graph.initializer[0].metadata_props.add(key="k", value="v")
    put(folder, model)


@zoo
def nothing(folder: Path) -> None:
    put(folder, helper.make_model(graph_of("empty", [])))
