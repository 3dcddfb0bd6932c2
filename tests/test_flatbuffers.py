"""FlatBuffers: schemas, tables that lead to each other, what is cut, torn or hostile; TFLite's tensors and graph."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import EndOfDataError, LimitError, MalformedError, Status, UnsupportedError
from pparse.parsers.flatbuffers.parser import FlatBuffersParser
from pparse.parsers.flatbuffers.reader import Reader
from pparse.parsers.flatbuffers.schema import Schema
from tests.flatbuffers_files import Builder, Flex, tflite
from tests.rows import rows

DATA = Path(__file__).parent / "data" / "flatbuffers"
WEIGHTS = np.arange(12, dtype="<f4").reshape(3, 4)


def small(**how: object) -> bytes:
    tensors = [("x", "f4", (1, 4), None), ("w", "f4", (3, 4), WEIGHTS.tobytes()), ("y", "f4", (1, 3), None)]
    return tflite(tensors, [(0, [0, 1, -1], [2])], codes=[9], inputs=[0], outputs=[2], **how)


def test_a_schema_counts_slots_of_unions_and_places_of_structs():
    schema = Schema(
        "root A ABCD\nunion U A text:string\nstruct S a:int8 b:int64 c:[int16:3]\n"
        "table A u:U many:[U] s:S far:[uint8]^^\n big:string^ e:E=2\nenum E int16 X Y=5 Z"
    )
    slots = [(field.name, field.place, field.type.name) for field in schema.root_type.fields]
    assert slots[:3] == [("u_type", 0, "enum<U>"), ("u", 1, "U"), ("many_type", 2, "[enum<U>]")]
    assert [(field.name, field.type.wide, field.default) for field in schema.root_type.fields[4:]] == [
        ("s", 0, 0),
        ("far", 2, 0),
        ("big", 1, 0),
        ("e", 0, 2),
    ]
    struct = schema.type("S")
    assert [(field.name, field.place) for field in struct.fields] == [("a", 0), ("b", 8), ("c", 16)]
    assert (struct.size, struct.align, schema.type("E").names) == (24, 8, {0: "X", 5: "Y", 6: "Z"})
    assert schema.member(schema.type("U"), 2).name == "text"


@rows(
    "text",
    ["root A\ntable A b:B", "root A\ntable A s:S\nstruct S s:S"],
    ids=["missing", "endless"],
)
def test_a_schema_without_a_type_says_so(text):
    with pytest.raises(MalformedError):
        list(Schema(text).root_type.fields)


def test_real_models_read_as_their_interpreter_does():
    with pparse.view(DATA / "int8.tflite") as model:
        assert model.status is Status.COMPLETE
        assert [(t.name, t.dtype.name, t.shape) for t in model.values()][3] == (
            "sequential_1/dense_1/MatMul1",
            "int8",
            (10, 1152),
        )
        assert [node.op for node in model.graph.nodes.values()] == [
            *("CONV_2D", "DEPTHWISE_CONV_2D", "SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE"),
            *("FULLY_CONNECTED", "SOFTMAX", "DEQUANTIZE"),
        ]
        assert list(model.signatures) == ["serving_default"]
        assert model.signatures["serving_default"].inputs["keras_tensor"].shape == (-1, 16, 16, 3)
        # Of each output channel of a convolution, one scale.
        told = model.quantisation(model["sequential_1/conv2d_1/convolution"])
        assert told.told["axis"] == 0
        assert told.parts[0].shape == (8,)
        codes = model["sequential_1/conv2d_1/convolution"].numpy().astype(np.float32)
        scales = told.parts[0].numpy().reshape(8, 1, 1, 1)
        assert np.array_equal(told.tensor().numpy(), codes * scales)
        node = model.extraction.node("subgraphs[0].operators[0].builtin_options")
        assert (node.kind, node.find("padding").value) == ("Conv2DOptions", "VALID")


@rows("how", [{}, {"share": False}, {"far": True}], ids=["inline", "apart", "behind"])
def test_bytes_are_found_in_each_home(how):
    with pparse.view(small(**how)) as model:
        assert list(model) == ["w"]
        assert np.array_equal(model["w"].numpy(), WEIGHTS)
        assert model.extent().missing_bytes == 0


def beside(*names: str) -> bytes:
    """Return a model whose tensors of two floats lie one behind the other in ``weights.bin``, from byte 3 on."""
    build = Builder()
    buffers = [
        build.table(id=(0, "I", number), group=(1, "I", 0), at=(2, "Q", 8 * number - 5), size=(3, "Q", 8))
        for number in range(1, len(names) + 1)
    ]
    group, shape = build.table(name=(0, "@", build.text("weights.bin"))), build.numbers("i", 2)
    tensors = [
        build.table(
            shape=(0, "@", shape), name=(3, "@", build.text(name)), type=(1, "b", 0), external=(10, "I", number)
        )
        for number, name in enumerate(names, 1)
    ]
    graph = build.table(tensors=(0, "@", build.references(tensors)))
    parts = {2: [graph], 8: [group], 9: buffers}
    lists = {f"slot{slot}": (slot, "@", build.references(places)) for slot, places in parts.items()}
    return build.finish(build.table(version=(0, "I", 3), **lists), b"TFL3")


def test_bytes_are_found_in_a_file_beside_the_model(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(beside("w"))
    with pparse.view(path) as model:
        assert model["w"].status is Status.MISSING
        assert [name for name, _ in model.files_missing()] == ["weights.bin"]
    (tmp_path / "weights.bin").write_bytes(b"..." + struct.pack("<2f", 1, 2))
    with pparse.view(path) as model:
        assert model["w"].numpy().tolist() == [1, 2]


def test_tensors_beside_the_model_are_not_looked_for_one_by_one(tmp_path, monkeypatch):
    path, looked_at, table = tmp_path / "m.tflite", [], Reader.table
    path.write_bytes(beside(*(f"t{number}" for number in range(200))))
    (tmp_path / "weights.bin").write_bytes(bytes(1603))
    monkeypatch.setattr(Reader, "table", lambda self, at: looked_at.append(at) or table(self, at))
    with pparse.view(path) as model:
        assert all(tensor.is_complete for tensor in model.tensors())
    assert len(looked_at) < 30 * 200


@rows("apart", [0, 4], ids=["the same", "overlapping"])
def test_vectors_that_share_references_are_gone_through_once(apart, monkeypatch):
    # Of so many words each is a count, and an offset that leads to another one.
    count, read, take = 2000, [], Reader.take
    build = Builder()
    words = build.vector(struct.pack("<I", count) * 2 * count, count)
    tables = [build.table(b=(0, "@", words)) for _ in range(count)]
    content = bytearray(build.finish(build.table(a=(0, "@", build.references(tables)))))

    class Sharing(FlatBuffersParser):
        name = "sharing"

        @property
        def schema(self):
            return Schema("root R\ntable R a:[A]\ntable A b:[R]")

    with pparse.open(bytes(content), parsers=[Sharing], format="sharing") as document:
        for number, node in enumerate(document.node("a").children()):
            at = node.start + document.parse().parser.reader.table(node.start)[1][0]
            (offset,) = struct.unpack_from("<I", content, at)
            struct.pack_into("<I", content, at, offset + apart * number)
    monkeypatch.setattr(Reader, "take", lambda self, at, size: read.append(size) or take(self, at, size))
    with pparse.open(bytes(content), parsers=[Sharing], format="sharing") as document:
        assert document.status is Status.DAMAGED
    assert sum(read) < 4 * len(content)


def test_subgraphs_of_one_name_are_told_apart():
    build = Builder()
    graphs = [build.table(name=(4, "@", build.text("main"))) for _ in range(3)]
    with pparse.view(build.finish(build.table(graphs=(2, "@", build.references(graphs))), b"TFL3")) as model:
        assert list(model.graph.bodies) == ["main", "main;2"]


def test_subgraphs_that_share_their_tensors_cost_no_more_than_the_file_has():
    build = Builder()
    tensor = build.table(shape=(0, "@", build.numbers("i", 1)), name=(3, "@", build.text("t")))
    operator, count = build.table(), 3000
    code = build.table(custom=(1, "@", build.text("DISPATCH_OP")), code=(3, "i", 32))
    graph = build.table(
        tensors=(0, "@", build.references([tensor] * count)), operators=(3, "@", build.references([operator] * count))
    )
    parts = {"codes": (1, "@", build.references([code])), "graphs": (2, "@", build.references([graph] * count))}
    with pparse.view(build.finish(build.table(version=(0, "I", 3), **parts), b"TFL3")) as model:
        assert [tensor.status for tensor in model.values()] == [Status.DAMAGED]
        assert "vectors share them" in str(model["subgraph_3"].finding)
        assert model.status is Status.DAMAGED


def test_strings_and_packed_codes():
    texts = struct.pack("<4i", 2, 16, 18, 19) + b"ab\xff"
    tensors = [("s", "S", (2,), texts), ("q", "i4x", (3,), b"\x21\x0f"), ("q", "i1", (1,), b"\5")]
    with pparse.view(tflite(tensors, quantised={1: ([0.5], [1], 0)})) as model:
        assert list(model) == ["s", "q", "q#2"]
        assert list(model["s"].strings()) == [b"ab", b"\xff"]
        assert model["q"].numpy().tolist() == [1, 2, -1]
        assert model.quantisation(model["q"]).tensor().numpy().tolist() == [0, 0.5, -1]
        assert model.quantisation(model["q#2"]) is None


def test_bytes_that_came_in_or_went_make_what_they_touch_damaged():
    tensors = [(f"t{number}", "f4", (16,), struct.pack("<16f", *range(number, number + 16))) for number in range(6)]
    content = tflite(tensors)
    with pparse.view(content) as model:
        places = {name: (t.spans[0].offset, t.numpy().tolist()) for name, t in model.items()}
    first = min(at for at, _ in places.values())
    for at in range(first, len(content), 24):
        for torn in (content[:at] + content[at + 8 :], content[:at] + bytes(range(1, 9)) + content[at:]):
            with pparse.view(torn) as model:
                for name, tensor in model.items():
                    # What lost bytes near its end looks as if that was cut off.
                    if tensor.is_complete and model.status is not Status.TRUNCATED:
                        assert tensor.numpy().tolist() == places[name][1], (at, name)
                assert model.status is not Status.COMPLETE, at


def test_a_cut_model_gives_what_its_tables_lead_to():
    content = tflite([("a", "f4", (64,), bytes(256)), ("b", "f4", (64,), bytes(range(256)))], far=True)
    with pparse.view(content[:-300]) as model:
        assert {name: tensor.status for name, tensor in model.items()} == {"a": Status.TRUNCATED, "b": Status.MISSING}
        assert model.extent().missing_bytes == 300
    with pparse.view(content[:100]) as model:
        assert model.status is Status.TRUNCATED


def test_tables_that_share_their_parts_are_gone_through_once():
    build = Builder()
    place = build.table(number=(0, "I", 1))
    schema = "root A\ntable A a:A b:A\n"
    for _ in range(400):  # 2^400 paths
        place = build.table(a=(0, "@", place), b=(1, "@", place))

    class Doubled(FlatBuffersParser):
        name = "doubled"

        @property
        def schema(self):
            return Schema(schema)

    with pparse.open(build.finish(place), parsers=[Doubled], format="doubled") as document:
        assert document.parse().parser.survey.tables == 401
        assert document.status is Status.DAMAGED  # the last one has a number where a table should be
        assert sum(1 for _ in document.walk()) < 100_000
        assert any(finding.code == "limit" for finding in document.findings)


def test_offsets_that_lead_nowhere_are_named():
    content = bytearray(small())
    with pparse.open(bytes(content)) as document:
        at = document.node("subgraphs[0].tensors").start
    content[at : at + 4] = bytes(4)
    with pparse.open(bytes(content)) as document:
        found = [str(finding) for finding in document.check()]
        assert any("subgraphs[0].tensors[0]" in line and "leads nowhere" in line for line in found), found
        assert document.node("subgraphs[0].tensors[1].name").value == "w"
    content[at : at + 4] = b"\xfc\xff\xff\xff"
    with pparse.open(bytes(content)) as document:
        assert document.node("subgraphs[0].tensors[0]").status is Status.MISSING


@rows("count", [1 << 31, (1 << 32) - 1], ids=["2 billion", "4 billion"])
def test_counts_beyond_the_file_cost_nothing(count):
    content = bytearray(small())
    with pparse.open(bytes(content)) as document:
        at = document.node("subgraphs[0].tensors").start - 4
    content[at : at + 4] = struct.pack("<I", count)
    with pparse.open(bytes(content), budget="2MiB") as document:
        tensors = document.node("subgraphs[0].tensors")
        assert tensors.status is Status.TRUNCATED
        assert len(tensors) < len(content)
        list(document.check())
        assert document.status is Status.DAMAGED


def test_a_budget_bounds_the_survey():
    tensors = [(f"t{number}", "f4", (1,), b"abcd") for number in range(6000)]
    content = tflite(tensors)
    with pparse.view(content, budget="1MiB") as model, pytest.raises(LimitError):
        len(model)
    with pparse.view(content, budget="4MiB") as model:
        assert len(model) == 6000


def sparse(shape: tuple[int, ...], order: list[int], blocked: list[int], levels: list[object], raw: bytes) -> bytes:
    """Return a model with a sparse tensor ``s`` of int8: a level is a size, or its lists of segments and indices."""
    build = Builder()

    def level(told: object) -> int:
        if isinstance(told, int):
            return build.table(size=(1, "i", told))
        lists = (build.vector(np.array(each, "<i4").tobytes(), len(each)) for each in told)
        segments, indices = (build.table(v=(0, "@", each)) for each in lists)
        return build.table(
            format=(0, "b", 1),
            kind=(2, "B", 1),
            segments=(3, "@", segments),
            other=(4, "B", 1),
            indices=(5, "@", indices),
        )

    made = [level(told) for told in levels]
    dims, name = build.numbers("i", *shape), build.text("s")
    orders, blocks = build.numbers("i", *order), build.numbers("i", *blocked)
    sparsity = build.table(order=(0, "@", orders), map=(1, "@", blocks), levels=(2, "@", build.references(made)))
    tensor = build.table(
        shape=(0, "@", dims), type=(1, "b", 9), buffer=(2, "I", 1), name=(3, "@", name), sparsity=(6, "@", sparsity)
    )
    graph = build.table(tensors=(0, "@", build.references([tensor])))
    buffers = build.references([build.table(), build.table(data=(0, "@", build.vector(raw, len(raw))))])
    graphs = build.references([graph])
    return build.finish(build.table(version=(0, "I", 3), graphs=(2, "@", graphs), buffers=(4, "@", buffers)), b"TFL3")


def test_a_sparse_tensor_has_its_zeros(tmp_path):
    # Blocks of 2x2 of a matrix of 4x4: of two rows of blocks, the first has both, the second the last.
    raw = bytes((1, 0, 0, 4, 2, 3, 0, 0, 5, 0, 0, 6))
    content = sparse((4, 4), [0, 1, 2, 3], [0, 1], [2, ([0, 2, 3], [0, 1, 1]), 2, 2], raw)
    with pparse.view(content) as model:
        wanted = [[1, 0, 2, 3], [0, 4, 0, 0], [0, 0, 5, 0], [0, 0, 0, 6]]
        assert model["s"].numpy().tolist() == wanted
        assert model["s"][1:3, :2].tolist() == [[0, 4], [0, 0]]
        assert [part.tolist() for part in model["s"].blocks("32B")] == [
            [1, 0, 2, 3, 0, 4, 0, 0],
            [0, 0, 5, 0, 0, 0, 0, 6],
        ]
        assert (model["s"].nbytes, model["s"].stored_nbytes) == (16, 12)
    path = tmp_path / "sparse.tflite"
    path.write_bytes(content)
    with pparse.view(path) as model:
        handle = pickle.dumps(model["s"])
    assert pickle.loads(handle).numpy().tolist() == wanted


def test_a_sparse_tensor_may_have_any_number_of_places():
    count = 70_000
    with pparse.view(sparse((1, 2 * count), [0, 1], [], [1, ([0, count], range(1, 2 * count, 2))], b"a" * count)) as m:
        assert m["s"].numpy()[0].tolist() == [0, ord("a")] * count


@rows(
    "levels",
    [
        [3, ([0, 2, 1, 3], [0, 1, 1])],
        [3, ([0, 1, 2, 3], [0, -1, 1])],
        [3, ([0, 1, 2, 3], [0, 4, 1])],
        [3, ([0, 900, 900, 3], [0, 1, 1])],
        [3, ([-1, 0, 1, 3], [0, 1, 1])],
        [([0, 0], []), 1 << 30],
    ],
    ids=["backwards", "negative", "outside", "nowhere", "before", "endless"],
)
def test_places_that_cannot_be_are_an_error(levels):
    with pparse.view(sparse((3, 4), [0, 1], [], levels, b"abc")) as model, pytest.raises(MalformedError):
        model["s"].numpy()


@rows(
    "file,name,first,ops",
    [
        ("small.ort", "w", 0.54881352, ["Flatten", "MatMul", "FusedConv"]),
        ("small.mnn", "c.weight", 0.54881352, ["Input", "ConvertTensor", "Convolution"]),
        ("small.pte", "forward.2", 2, ["dim_order_ops::_to_dim_order_copy.out", "aten::add.out"]),
        ("external.pte", "c.weight", 2, ["dim_order_ops::_to_dim_order_copy.out", "aten::add.out"]),
        ("external.ptd", "c.weight", 2, None),
        ("small.cbm", "LeafWeights", 27, None),
    ],
)
def test_files_of_other_libraries(file, name, first, ops):
    with pparse.view(DATA / file) as model:
        assert model.status is Status.COMPLETE
        assert not [finding for finding in model.check() if finding.severity is pparse.Severity.ERROR]
        assert model[name].numpy().ravel()[0] == np.float32(first)
        if ops is None:
            return
        nodes = list(model.graph.nodes.values())
        assert [node.op for node in nodes][: len(ops)] == ops
        assert model.graph.inputs
        assert model.graph.outputs


@rows(
    "file,part,found",
    [
        ("small.ort", 0.6, ["Flatten", "unreadable", "unreadable"]),
        ("small.pte", 0.6, EndOfDataError),
        ("int8.tflite", 0.6, EndOfDataError),
        ("external.ptd", 1, UnsupportedError),
    ],
)
def test_a_cut_model_has_a_graph_or_says_why_it_has_none(file, part, found):
    content = (DATA / file).read_bytes()
    with pparse.view(content[: int(len(content) * part)]) as model:
        if isinstance(found, list):
            assert [node.op for node in model.graph.nodes.values()] == found
            return
        assert model.graph is None
        with pytest.raises(found, match="graph"):
            model.graph_of()


def test_an_instruction_without_an_operator_is_called_by_its_number():
    content = bytearray((DATA / "small.pte").read_bytes())
    with pparse.open(bytes(content)) as document:
        at = document.node("execution_plan[0].chains[0].instructions[2].instr_args.op_index").start
    content[at : at + 4] = struct.pack("<i", -1000)
    with pparse.view(bytes(content)) as model:
        assert [node.op for node in model.graph.nodes.values()][2] == "operator -1000"


def test_a_program_looks_for_its_tensors_beside_it(tmp_path):
    path = tmp_path / "m.pte"
    path.write_bytes((DATA / "external.pte").read_bytes())
    with pparse.view(path) as model:
        assert model["a.bias"].status is Status.MISSING
    (tmp_path / "any.ptd").write_bytes((DATA / "external.ptd").read_bytes())
    with pparse.view(path) as model:
        assert model["a.bias"].numpy().tolist() == [1, 1.125, 1.25, 1.375]


def test_a_real_model_that_is_cut_gives_its_buffers():
    content = (DATA / "int8.tflite").read_bytes()
    with pparse.view(content) as model:
        whole = {tensor.spans[0].offset: bytes(tensor.numpy(raw=True).tobytes()) for tensor in model.values()}
    with pparse.view(content[: len(content) * 6 // 10]) as model:
        found = {tensor.spans[0].offset: tensor for tensor in model.values()}
        assert model.status is Status.DAMAGED
        assert {tensor.status for tensor in model.values()} == {Status.DAMAGED, Status.TRUNCATED}
        there = {offset: raw for offset, raw in whole.items() if offset + len(raw) < len(content) * 6 // 10}
        assert len(there) == 3
        for offset, raw in there.items():
            assert found[offset].stored_nbytes == len(raw)
            assert found[offset].finding.code == "nameless"


def dispatched(offset: int, size: int, *, old: bool = False) -> bytes:
    """Return a model with a program for an NPU at an offset."""
    build = Builder()
    options = Flex({"bytecode_offset": offset, "bytecode_size": size, "name": "n"}, 3).content
    told = b"<npu_byte_code>" + b"".join(str(number).encode().ljust(11, b"\0") for number in (offset, size))
    code = build.table(custom=(1, "@", build.text("DISPATCH_OP")), code=(3, "i", 32))
    operator = build.table() if old else build.table(options=(5, "@", build.vector(options, len(options))))
    graph = build.table(operators=(3, "@", build.references([operator])))
    entry = build.table(name=(0, "@", build.text("NPU_BYTE_CODE")), buffer=(1, "I", 1))
    buffers = [build.table(), build.table(data=(0, "@", build.vector(told if old else b"", old * len(told))))]
    parts = {1: [code], 2: [graph], 4: buffers, 6: [entry]}
    lists = {f"slot{slot}": (slot, "@", build.references(places)) for slot, places in parts.items()}
    return build.finish(build.table(version=(0, "I", 3), **lists), b"TFL3")


@rows("old", [False, True])
def test_a_program_for_an_npu_behind_a_model_belongs_to_it(old):
    end = len(dispatched(1, 1000, old=old))
    content = dispatched(end, 1000, old=old) + bytes(range(250)) * 4
    with pparse.view(content) as model:
        assert model.status is Status.COMPLETE
    with pparse.view(content[:-100]) as model:
        assert model.status is Status.TRUNCATED
        assert model.extent().missing_bytes == 100
    with pparse.view(content + b"abcd") as model:
        assert model.status is Status.DAMAGED


def test_trees_have_all_their_fields_and_texts_of_any_length_are_looked_at():
    content = bytearray((DATA / "small.cbm").read_bytes())
    with pparse.view(bytes(content)) as model:
        assert model["MultiBias"].numpy().tolist() == [0]
        assert len(model.extraction.node("ObliviousTrees.RepackedBins")) == 15
        text = model.extraction.node("InfoMap[4].Value")
        assert text.end - text.start > 1000
    content[text.start + 700] = 0xE5
    with pparse.view(bytes(content)) as model:
        assert model.status is Status.DAMAGED


def test_a_mark_that_changed_is_damage():
    for file, at in (("int8.tflite", 5), ("small.ort", 7), ("small.pte", 4), ("external.ptd", 6), ("small.cbm", 0)):
        content = bytearray((DATA / file).read_bytes())
        content[at] ^= 0x20
        # Those of ExecuTorch are told by their header, too.
        end = file.rpartition(".")[2]
        with pparse.view(bytes(content), format={"cbm": "catboost", "pte": None, "ptd": None}.get(end, end)) as model:
            assert all(tensor.is_complete for tensor in model.values()), file
            assert model.status is Status.DAMAGED, file
            assert all(finding.code == "malformed" for finding in model.check()), file


def test_numbers_that_no_model_has_are_told(tmp_path, run):
    for file, at, name, code, status in (
        ("small.mnn", 4488, "c.weight", "bad-entry", Status.DAMAGED),  # the height of the kernel
        ("small.mnn", 4516, "c.weight", "bad-entry", Status.DAMAGED),  # the number of outputs
        ("small.pte", 3344, "forward.0", "unsupported", Status.UNSUPPORTED),  # the type of elements
    ):
        content = bytearray((DATA / file).read_bytes())
        content[at : at + 4] = b"\xff" * 4
        with pparse.view(bytes(content)) as model:  # a network of MNN is told by its operators
            tensor = model[name]
            assert (tensor.status, tensor.finding.code, model.status) == (status, code, status)
            assert [(finding.path, finding.code) for finding in model.check()] == [(name, code)]
            assert sum(not tensor.is_complete for tensor in model.values()) == 1
    with pparse.open((DATA / "monster.bin").read_bytes()) as document:
        assert document.format == "flatbuffers"
    (tmp_path / "x.mnn").write_bytes(bytes(4) + (DATA / "small.mnn").read_bytes()[4:])
    assert run("recover", tmp_path / "x.mnn", "-o", tmp_path / "out").code == 3  # no format, which is no bug


def test_files_behind_a_model_are_found(tmp_path, run):
    path = tmp_path / "m.tflite"
    path.write_bytes(small())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    with pparse.view(path) as model:
        assert model.status is Status.COMPLETE
        assert model["w"].is_complete
        assert ("files", "labels.txt in a zip behind the model; pparse extract -f zip writes them") in list(
            model.parser.details()
        )
    with pparse.open(f"{path}::labels.txt") as file:
        assert file.reader.read() == b"cat\ndog\n"
    assert run("scan", path).code == 0
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../labels.txt", "cat")
    assert run("scan", path).code == 5


class Kinds(FlatBuffersParser):
    """A made-up format with what TFLite has not."""

    name = "kinds"
    viewer = None

    @property
    def schema(self):
        return Schema(
            "root A\nunion U B C\ntable B n:int32\ntable C s:string\nstruct S a:int8 b:float32\nflags F uint8 X Y\n"
            "table A many:[U] one:U inner:[uint8]<B> points:[S] far:[uint8]^^ f:F names:[string] t:bool=true"
        )


def test_unions_structs_nested_buffers_and_wide_offsets():
    build = Builder()
    numbered, named = build.table(n=(0, "i", -5)), build.table(s=(0, "@", build.text("ü")))
    inside = Builder()
    inner = inside.finish(inside.table(n=(0, "i", 7)))
    fields = {
        "kinds": (0, "@", build.vector(b"\2\1", 2)),
        "many": (1, "@", build.references([named, numbered])),
        "kind": (2, "B", 2),
        "one": (3, "@", named),
        "inner": (4, "@", build.vector(inner, len(inner), 16)),
        "points": (5, "@", build.vector(struct.pack("<bxxxfbxxxf", 1, 0.5, 2, 1.5), 2)),
        "far": (6, "Q", 0),
        "f": (7, "B", 3),
        "names": (8, "@", build.references([build.text("a"), build.text("")])),
    }
    content = bytearray(build.finish(build.table(**fields)))
    with pparse.open(bytes(content), parsers=[Kinds], format="kinds") as document:
        at = document.parse().parser.reader
        root = at.target(0)
        place = root + at.table(root)[1][6]
    content[place : place + 8] = struct.pack("<Q", len(content) - place)
    content += struct.pack("<Q3s", 3, b"abc")
    with pparse.open(bytes(content), parsers=[Kinds], format="kinds") as document:
        assert document.root.to_python() == {
            "many_type": ["C", "B"],
            "many": [{"s": "ü"}, {"n": -5}],
            "one_type": "C",
            "one": {"s": "ü"},
            "inner": {"n": 7},
            "points": [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}],
            "far": b"abc",
            "f": 3,
            "names": ["a", ""],
        }
        assert document.status is Status.COMPLETE
        assert not list(document.check())


def test_values_of_unions_have_types_of_their_own():
    for kinds in (b"", b"\2"):  # none at all, and one for two values
        build = Builder()
        values = build.references([build.table(s=(0, "@", build.text(text))) for text in ("a", "b")])
        types = {"kinds": (0, "@", build.vector(kinds, len(kinds)))} if kinds else {}
        content = build.finish(build.table(**types, many=(1, "@", values)))
        with pparse.open(content, parsers=[Kinds], format="kinds") as document:
            many = document.node("many")
            assert (many.status, len(many), document.status) == (Status.DAMAGED, 0, Status.DAMAGED)
            assert f"{len(kinds)} types for 2 values of U" in many.finding.reason
            assert [finding.code for finding in document.check() if finding.path in (None, "")][:1] == ["malformed"]


def test_a_size_before_the_buffer_is_passed_over():
    content = small()
    with pparse.view(struct.pack("<I", len(content)) + content) as model:
        assert np.array_equal(model["w"].numpy(), WEIGHTS)
        assert model.status is Status.COMPLETE
    with pparse.view(struct.pack("<I", len(content)) + content[:-20]) as model:
        assert model.status is Status.TRUNCATED


def test_a_vector_that_many_tables_share_is_gone_through_once():
    build = Builder()
    texts = build.references([build.text("a")] * 2000)
    tables = [build.table(names=(0, "@", texts)) for _ in range(2000)]
    content = build.finish(build.table(many=(0, "@", build.references(tables))))

    class Shared(Kinds):
        name = "shared"

        @property
        def schema(self):
            return Schema("root A\ntable A many:[B]\ntable B names:[string]")

    with pparse.open(content, parsers=[Shared], format="shared") as document:
        reader, taken = document.parse().parser.reader, []
        original = type(reader).take
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(reader), "take", lambda self, at, count: taken.append(at) or original(self, at, count))
            assert document.status is Status.COMPLETE
        assert len(taken) < 40_000


@rows("number, status, kind", [(0, Status.DAMAGED, "OpParameter"), (200, Status.UNSUPPORTED, "OpParameter")])
def test_a_value_of_a_newer_type_is_not_called_damaged(number, status, kind):
    with pparse.open(DATA / "small.mnn") as document:
        place = document.root.at("oplists[0].main_type").start
    content = bytearray((DATA / "small.mnn").read_bytes())
    content[place] = number
    with pparse.open(bytes(content), format="mnn") as document:
        found = document.root.at("oplists[0].main")
        assert (document.status, found.status, found.kind) == (status, status, kind)
        with document.view() as model:
            assert model["c.weight"].status is Status.COMPLETE
    # What is cut, too, is told as cut.
    with pparse.open(bytes(content[:-100]), format="mnn") as document:
        assert document.status is (Status.TRUNCATED if number else Status.DAMAGED)
