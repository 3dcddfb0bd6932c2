"""Large messages are checked by the library protobuf, and nothing else changes."""

from __future__ import annotations

import pytest

from pparse.data.base import BytesData
from pparse.kernels.varint import encode_varint
from pparse.limits import MemoryBudget
from pparse.parsers.protobuf import check
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.library import Library
from pparse.protobuf.schema import Schema
from pparse.protos import message_class, schema
from tests.rows import rows


@pytest.fixture(scope="module", autouse=True)
def _small_is_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_LARGE", 100 << 10)
        yield


def graph(nodes: int = 5_000) -> bytes:
    made = message_class("tensorflow.GraphDef")()
    for number in range(nodes):
        node = made.node.add(name=f"layer/op_{number}", op="MatMul", input=["a", "b"])
        node.attr["T"].type = 1
    made.library.function.add().signature.name = "one"
    made.library.function[0].node_def.extend(made.node)
    return made.SerializeToString()


def onnx(nodes: int = 5_000) -> bytes:
    made = message_class("onnx.ModelProto")(ir_version=8)
    for number in range(nodes):
        made.graph.node.add(name=f"node number {number}", input=["a"], output=["b"])
    return made.SerializeToString()


GRAPH, ONNX = graph(), onnx()


def walked(content: bytes, name: str, budget: MemoryBudget | None = None) -> tuple[bool, int]:
    checker = Checker(lambda: None, budget)
    sound = checker.sound(BytesData(content).range(0, len(content)), schema().message(name))
    return sound, 0 if sound else checker.stopped


@rows("content, name", [(GRAPH, "tensorflow.GraphDef"), (ONNX, "onnx.ModelProto")])
def test_nearly_all_of_a_sound_message_is_parsed_by_the_library(content: bytes, name: str) -> None:
    done = []

    class Counted(Library):
        def parsed(self, type, block, at, stop):
            after = super().parsed(type, block, at, stop)
            done.append(after[0] - at)
            return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pparse.parsers.protobuf.library.Library", Counted)
        assert walked(content, name, MemoryBudget()) == (True, 0)
    assert sum(done) > 0.9 * len(content)


@rows(
    "old, new",
    [
        (b"op_3000", b"op_\xff000"),  # no UTF-8
        (b"\x12\x06MatMul", b"\x12\x7fMatMul"),  # beyond its message
        (b"\x12\x06MatMul", b"\x0e\x06MatMul"),  # no wire type
        (b"\x12\x06MatMul", b"\x13\x06MatMul"),  # a group without an end
        (b"\x12\x06MatMul", b"\x08" + b"\x80" * 10),  # a varint that is too long
        (b"\x12\x06MatMul", b"\x92\0\x05MatMu"),  # a tag that is longer than it must be
        (b"\x12\x06MatMul", b"\x02\x06MatMul"),  # field 0
        (b"\x12\x06MatMul", b"\xa3\x06\xa4\x06\xa0\x06\0\0"),  # fields that nobody knows
    ],
)
def test_faults_are_found_where_the_walk_finds_them(old: bytes, new: bytes) -> None:
    for after in (0, len(GRAPH) // 4, len(GRAPH) * 3 // 4):
        at = GRAPH.index(old[:3], after) if old.startswith(b"op") else GRAPH.index(old, after)
        content = GRAPH[:at] + new + GRAPH[at + len(old) :]
        found = walked(content, "tensorflow.GraphDef", MemoryBudget())
        assert found == walked(content, "tensorflow.GraphDef")


def wrapped(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + encode_varint(len(content)) + content


def test_cuts_open_groups_and_deep_nesting_are_told_as_by_the_walk() -> None:
    value = b""
    for _ in range(60):  # AttrValue.func.attr.value: each goes three levels down, the library a hundred in all
        value = wrapped(10, wrapped(2, wrapped(1, b"k") + wrapped(2, value)))
    deep = wrapped(1, wrapped(5, wrapped(2, value)))
    for content, sound in [(GRAPH[:-7], False), (b"\x0b" + GRAPH, False), (deep + GRAPH, True)]:
        found = walked(content, "tensorflow.GraphDef", MemoryBudget())
        assert found == walked(content, "tensorflow.GraphDef")
        assert found[0] is sound


def test_text_of_proto2_is_utf_8_too() -> None:
    content = ONNX.replace(b"node number 3000", b"node n\xffmber 3000")
    found = walked(content, "onnx.ModelProto", MemoryBudget())
    assert found == walked(content, "onnx.ModelProto")
    assert not found[0]


def test_without_memory_for_it_messages_are_walked_over() -> None:
    assert walked(GRAPH, "tensorflow.GraphDef", MemoryBudget("1MiB")) == (True, 0)


@rows("kind", [10, 18 + 1])
def test_types_that_the_library_cannot_have_are_walked_over(kind: int) -> None:
    field = b"\x0a\x01f\x18\x01\x20\x01\x28" + bytes((kind,)) + b"\x32\x02.m"
    message = b"\x0a\x01m\x12" + bytes((len(field),)) + field
    types = Schema.from_descriptors([b"\x0a\x01f\x22" + bytes((len(message),)) + message])
    found = Library(types.message("m"), MemoryBudget()).parsed(types.message("m"), b"\x10\0" * 4_500, 0, 8_000)
    assert found == (0, 8_000)
