"""FlexBuffers: every type in every width, keys by halving, what is cut, out of order or shared; in TFLite's options."""

from __future__ import annotations

import pytest

import pparse
from pparse import LimitError, Status
from pparse.parsers.flatbuffers.flex import FlexVector
from tests.flatbuffers_files import Builder, Flex, Raw
from tests.rows import rows

WRITTEN = {
    "null": None,
    "on": True,
    "numbers": [1, -2, 300, -70_000, 1 << 40, (1 << 64) - 1, 2.5, 0.1],
    "text": "é" * 150,
    "": "",
    "bytes": b"\0\1" * 200,
    "empty": [{}, [], b""],
    "maps": {"x": {"deep": [[[1]]]}},
    "key": Raw(4, "", b"word"),
    "indirect": [Raw(6, "h", -300), Raw(7, "Q", 1 << 63), Raw(8, "d", 0.1), Raw(8, "e", 1.5)],
    "typed": [Raw(11, "i", 1, -2), Raw(12, "B", 1, 255), Raw(13, "f", 1.5), Raw(13, "e", 0.5), Raw(11, "b")],
    "flags": [Raw(36, "B", 1, 0), Raw(36, "H", 0, 256)],
    "keys": [Raw(14, "", b"a", b"bc"), Raw(15, "", b"d"), Raw(14, "")],
    "tuples": [Raw(16, "b", -1, 2), Raw(21, "d", 0.1, 0.2, 0.3), Raw(23, "H", 1, 2, 3, 65_535)],
}
READ = WRITTEN | {
    "key": "word",
    "indirect": [-300, 1 << 63, 0.1, 1.5],
    "typed": [[1, -2], [1, 255], [1.5], [0.5], []],
    "flags": [[True, False], [False, True]],
    "keys": [["a", "bc"], ["d"], []],
    "tuples": [[-1, 2], [0.1, 0.2, 0.3], [1, 2, 3, 65_535]],
}


def opened(content: bytes, **how: object) -> pparse.Extraction:
    return pparse.open(content, format="flexbuffers", **how)


@rows("least", [0, 1, 2, 3])
def test_every_type_is_read_in_every_width(least):
    content = Flex(WRITTEN, least).content
    with opened(content) as document:
        assert document.root.to_python() == READ
        assert document.root.open().read() == content
        assert not list(document.check())
        assert document.status is Status.COMPLETE
        assert document.node("typed[1]").kind == "array"
        assert [node.kind for node in document.node("indirect").children()] == ["int16", "uint64", "float64", "float16"]


def test_a_float_is_as_wide_as_its_place():
    with opened(Flex([Raw(3, "e", 1.5), Raw(3, "e", -2.0)], 1).content) as document:
        assert [(node.kind, node.value) for node in document.root.children()] == [("float16", 1.5), ("float16", -2.0)]


@rows("value", [None, -7, 1.25, "text", b"bytes", "t" * 300, [], {}, [[]]])
def test_a_root_may_be_any_value(value):
    with opened(Flex(value).content) as document:
        assert document.status is Status.COMPLETE
        assert document.root.to_python() == value
        document.root.unload()
        assert document.root.to_python() == value


def test_a_key_is_found_by_few_reads():
    content = Flex({f"key{number:07}": number for number in range(200_000)}).content
    with opened(content) as document:
        assert document.node("key0123456").value == 123_456
        assert document.session.stats.bytes < 1 << 20
        assert document.root.find("key") is None
        assert document.root.find("key0000007", 2) is None
        assert document.node("key0000003").path == "key0000003"


def test_keys_out_of_order_are_found_all_the_same():
    names = [f"k{number:03}" for number in range(100)]
    content = Flex(dict.fromkeys(names, 7)).content.replace(b"k050\0", b"a050\0").replace(b"k061\0", b"k060\0")
    with opened(content) as document:
        assert document.status is Status.DAMAGED
        assert "out of order" in document.root.finding.reason
        root = document.root
        assert [root.find(name).ordinal for name in ("a050", "k099", "k000")] == [50, 99, 0]
        assert [root.find("k060", number).ordinal for number in (1, 2)] == [60, 61]
        assert root.child(61).path == "k060#2"
        assert root.find("k050") is None


def test_which_of_many_equal_keys_one_is_takes_no_pass_over_the_others(monkeypatch):
    names = [f"k{number:05}" for number in range(2_000)]
    content = Flex(dict.fromkeys(names, 7)).content
    for name in names:
        content = content.replace(name.encode(), b"k00000")
    with opened(content) as document:
        root = document.root
        assert root.child(1_000).path == "k00000#1001"  # its keys are compared once
        asked: list[int] = []
        inner = FlexVector.key
        monkeypatch.setattr(FlexVector, "key", lambda self, number: asked.append(number) or inner(self, number))
        assert root.child(1_001).path == "k00000#1002"
        assert root.find("k00000", 2_000).ordinal == 1_999
        assert len(asked) < 500


def test_a_cut_file_gives_maps_and_texts_under_no_name_of_theirs():
    inner = {"kernel": [1, 2], "name": "dense"}
    content = Flex({"layers": [inner, "a text of its own", {"bias": 1.5}], "other": "longer than that" * 20}).content
    with opened(content[:-4]) as document:
        assert document.status is Status.TRUNCATED
        found = [node.to_python() for node in document.root.children()]
        assert found == [inner, "a text of its own", {"bias": 1.5}, "longer than that" * 20]
        assert all(node.key == f"@{node.start}" for node in document.root.children())


def test_what_is_shared_is_gone_through_once():
    flex = Flex(None)
    item = flex.put([1, 2])
    for _ in range(60):  # 2^60 paths
        item = (10, *flex.vector([item, item]))
    log = flex.places([item])
    content = bytes(flex.out) + bytes((item[0] << 2 | item[1], 1 << log))
    with opened(content) as document:
        assert document.status is Status.COMPLETE
        assert sum(1 for _ in document.walk()) < 100_000
        with pytest.raises(LimitError, match="share"):
            document.root.to_python()


@rows(
    "change, words",
    [
        ((-6, 200), "elements"),
        ((-4, 0xFC), "no type 63"),
        ((-1, 3), "the last byte is 3"),
        ((0, 0xFF), "zero"),
    ],
    ids=["count", "type", "width", "key"],
)
def test_what_cannot_be_is_named(change, words):
    content = bytearray(Flex({"a": 5}).content)
    if change[0] == 0:
        content[0:2] = b"\xff\xff"
    else:
        content[change[0]] = change[1]
    with opened(bytes(content)) as document:
        found = " ".join(str(finding) for finding in document.check())
        assert document.status is not Status.COMPLETE
        assert words in found, found


def test_a_text_ends_with_a_zero():
    with opened(Flex(["text", 1]).content.replace(b"text\0", b"text!")) as document:
        assert [document.status, document.root.child(0).status] == [Status.DAMAGED] * 2
        assert "no zero ends the text" in document.root.finding.reason


def with_options(options: bytes) -> bytes:
    build = Builder()
    operator = build.table(index=(0, "I", 0), custom=(5, "@", build.vector(options, len(options))))
    graph = build.table(operators=(3, "@", build.references([operator])))
    root = build.table(version=(0, "I", 3), graphs=(2, "@", build.references([graph])))
    return build.finish(root, b"TFL3")


def test_custom_options_of_tflite_are_read():
    options = {"num_classes": 90, "scales": Raw(13, "f", 0.5, 2.0), "names": ["a", "b"]}
    raw = Flex(options).content
    with pparse.open(with_options(raw)) as document:
        node = document.node("subgraphs[0].operators[0].custom_options")
        assert node.to_python() == options | {"scales": [0.5, 2.0]}
        assert document.node("subgraphs[0].operators[0].custom_options.scales[1]").value == 2.0
        assert node.open().read() == raw


@rows(
    "raw",
    [b"\1\4\1", b"\1\x28\x10\2\x28\1", bytes(24), bytes(32) + Flex({"a": 1}).content, Flex({"ab": [1]}).content[:-1]],
)
def test_options_that_are_something_else_stay_bytes(raw):
    with pparse.open(with_options(raw)) as document:
        node = document.node("subgraphs[0].operators[0].custom_options")
        assert (node.kind, node.load()) == ("bytes", raw)
