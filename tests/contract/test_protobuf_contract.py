from __future__ import annotations

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.parsers.tensorflow import GraphDefParser, MetaGraphParser, SavedModelParser
from pparse.protos import message_class
from tests.protobuf_referee import FDP, World, descriptor_pb2, entry_type, tagged
from tests.sparse_contract import SparseContract


def world() -> World:
    file = descriptor_pb2.FileDescriptorProto(name="c.proto", package="c", syntax="proto3")
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    file.enum_type[0].value.add(name="ONE", number=1)
    message = file.message_type.add(name="C")
    for number, kind in enumerate((FDP.TYPE_INT32, FDP.TYPE_STRING, FDP.TYPE_BYTES, FDP.TYPE_DOUBLE, FDP.TYPE_ENUM), 1):
        for offset, label in ((0, FDP.LABEL_OPTIONAL), (10, FDP.LABEL_REPEATED)):
            field = message.field.add(name=f"f{number + offset}", number=number + offset, type=kind, label=label)
            if kind == FDP.TYPE_ENUM:
                field.type_name = ".c.E"
    message.nested_type.add().CopyFrom(entry_type("MapEntry", FDP.TYPE_INT32, FDP(type=FDP.TYPE_STRING)))
    for name, number, kind, label in (
        ("one", 21, ".c.C", FDP.LABEL_OPTIONAL),
        ("many", 22, ".c.C", FDP.LABEL_REPEATED),
        ("map", 23, ".c.C.MapEntry", FDP.LABEL_REPEATED),
    ):
        message.field.add(name=name, number=number, type=FDP.TYPE_MESSAGE, type_name=kind, label=label)
    return World(file)


WORLD = world()
C = WORLD.cls("c.C")


def mixed() -> bytes:
    message = C(f1=-1, f2="text", f3=b"\xff\0", f4=0.5, f5=1, f11=[1, 300], f12=["a", "é"], f14=[1.5], f15=[0, 1])
    message.one.one.f1 = 7
    message.many.add(f2="x")
    message.many.add(f11=[5])
    message.map[3] = "three"
    message.map[-3] = ""
    return message.SerializeToString()


class MessageContract(SparseContract):
    """A message may end behind any field, and its concatenation with another is one, too."""

    referee: type[Message]

    def is_whole(self, name: str, prefix: bytes) -> bool:
        try:
            self.referee.FromString(prefix)
        except DecodeError:
            return False
        return True


class TestProtobuf(MessageContract):
    parser = ProtobufParser
    referee = C
    options = {"descriptor": WORLD.descriptor, "message": "c.C"}
    changes = (0x00, 0x01, 0x08, 0x7F, 0x80, 0xFF)
    samples = {
        "mixed": mixed(),
        "long": C(f2="y" * 300, f12=["z" * 200, "w" * 60]).SerializeToString(),
    }

    def large(self) -> bytes:
        return C(f2="head", f3=bytes(8 << 20), f12=["tail"]).SerializeToString()

    def nested(self, depth: int) -> bytes:
        message = b"\x08\x01"
        for _ in range(depth):
            message = tagged(21, 2, message)
        return message


class TestProtobufWithUnknownGroup(MessageContract):
    parser = ProtobufParser
    referee = C
    options = TestProtobuf.options
    changes = (0x00, 0x9C, 0xFF)
    samples = {
        "group": C(f1=1, f2="a text of several words").SerializeToString() + tagged(99, 3, tagged(1, 0, b"\x05"))
    }


class TestProtobufWithoutSchema(MessageContract):
    parser = ProtobufParser
    referee = Empty
    options = {"types": "5=message,5.2=text"}
    samples = {
        "numbers": tagged(1, 0, b"\x96\x01")
        + tagged(2, 5, b"abcd")
        + tagged(3, 1, bytes(8))
        + tagged(4, 3, tagged(1, 0, b"\x05"))
        + tagged(5, 2, tagged(1, 0, b"\x07") + tagged(2, 2, b"some words"))
        + tagged(6, 2, b"more words than one")
        + tagged(7, 2, b"\xff\xfe\xfd\0"),
    }


def graph():
    made = message_class("tensorflow.GraphDef")()
    made.versions.producer = 1205
    for name in ("x", "y"):
        node = made.node.add(name=name, op="Const", input=["^a"])
        node.attr["dtype"].type = 1
        node.attr["value"].tensor.dtype = 1
        node.attr["value"].tensor.tensor_shape.dim.add(size=2)
        node.attr["value"].tensor.float_val.extend([1.0, 2.0])
    return made


class TestGraphDef(MessageContract):
    parser = GraphDefParser
    referee = message_class("tensorflow.GraphDef")
    changes = (0x00, 0x7F, 0x80)
    samples = {"graph": graph().SerializeToString()}


class TestSavedModel(MessageContract):
    parser = SavedModelParser
    referee = message_class("tensorflow.SavedModel")
    changes = (0x00, 0xFF)
    samples = {
        "model": message_class("tensorflow.SavedModel")(
            saved_model_schema_version=1, meta_graphs=[{"graph_def": graph()}]
        ).SerializeToString()
    }


class TestMetaGraph(MessageContract):
    parser = MetaGraphParser
    referee = message_class("tensorflow.MetaGraphDef")
    changes = (0x00, 0xFF)
    samples = {
        "graph": message_class("tensorflow.MetaGraphDef")(
            meta_info_def={"tags": ["serve"], "tensorflow_version": "2.21.0"}, graph_def=graph()
        ).SerializeToString()
    }
