from __future__ import annotations

from google.protobuf.message import DecodeError

from pparse.parsers.onnx.parser import OnnxDataParser, OnnxParser
from pparse.protos import message_class
from tests import onnx_files as wire
from tests.onnx_models import INT64, MODEL, branching, initializer, model, node, typed
from tests.sparse_contract import SparseContract


def small() -> bytes:
    found = model()
    graph = found.graph
    found.metadata_props.add(key="who", value="ünit")
    typed(graph.input, "x", "batch", 3)
    typed(graph.output, "y", "batch", 3)
    initializer(graph, "w", [1.0, 2.0, 3.0])
    graph.initializer.add(name="shape", data_type=INT64, dims=[2], int64_data=[-1, 300])
    graph.initializer.add(name="words", data_type=8, dims=[2], string_data=[b"a", b"\xff"])
    sparse = graph.sparse_initializer.add(dims=[9])
    sparse.values.CopyFrom(graph.initializer[0])
    sparse.values.name = "s"
    sparse.indices.data_type, sparse.indices.int64_data[:], sparse.indices.dims[:] = INT64, [1, 2, 3], [3]
    node(graph, "Add", ["x", "w"], ["y"], "add")
    found.functions.add(name="f", domain="d", input=["a"], output=["b"]).node.add(op_type="Neg")
    return found.SerializeToString()


class OnnxContract(SparseContract):
    parser = OnnxParser

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            MODEL.FromString(prefix)
        except DecodeError:
            return False
        return True


class TestOnnx(OnnxContract):
    changes = (0x00, 0x08, 0x7F, 0x80, 0xFF)
    samples = {"bodies": branching().SerializeToString()}

    def large(self) -> bytes:
        return wire.model_of(
            *(wire.tensor(f"t{number}", [1 << 18], wire.FLOAT, raw=bytes(1 << 20)) for number in range(9))
        )

    def nested(self, depth: int) -> bytes:
        inner = wire.graph()
        for _ in range(depth):
            inner = wire.graph(nodes=[wire.node("If", "n", ["y"], [wire.graph_attribute("then_branch", inner)])])
        return wire.model(inner)


class TestOnnxWithAllKindsOfTensors(OnnxContract):
    changes = (0x01, 0x0A, 0x22)
    samples = {"small": small()}


TENSOR = message_class("onnx.TensorProto")


class TestOnnxData(SparseContract):
    parser = OnnxDataParser
    changes = (0x00, 0x0A, 0x80)
    samples = {"tensor": TENSOR(dims=[2, 1], data_type=1, raw_data=b"\0\0\x80?\0\0\0@", name="w").SerializeToString()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            TENSOR.FromString(prefix)
        except DecodeError:
            return False
        return True
