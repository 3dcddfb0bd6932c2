"""Deep documents: time and memory go with the depth, and what a limit says can be done."""

from __future__ import annotations

import json
import tracemalloc

import pytest

import pparse
from pparse import Limits
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.tree.parser import Parser
from tests import sweep
from tests.rows import rows


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def nested(depth: int, inner: bytes = b"\x08\x01") -> bytes:
    """Return a message in a message, ``depth`` times, around ``inner``."""
    heads, length = [], len(inner)
    for _ in range(depth):
        head = b"\x0a" + varint(length)
        heads.append(head)
        length += len(head)
    return b"".join(reversed(heads)) + inner


TWIGS = b"".join(varint((number + 2) << 3) + b"\x01" for number in range(50)) + nested(1) + nested(2)
BUSHY = nested(300, TWIGS)
DEEP = {
    "protobuf": nested(200, TWIGS),
    "json": b'{"a":[1,' * 80 + b'{"k k":[],"a":1,"b":[[2],[3,{"":4}]]},[[[5]]],6' + b"]}" * 80,
    "damaged json": b'{"a":[1,' * 80 + b'{"k k":[],"a":tru,"b":[[2],[3,{"":4}]]},[[[5]]],6' + b"]}" * 80,
}


def form(name: str) -> str:
    return name.split()[-1]


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_visits_of_a_deep_walk_have_the_paths_of_their_nodes_during_it_and_afterwards(name):
    with pparse.open(DEEP[name], format=form(name)) as document:
        visits = [(visit, visit.path) for visit in document.walk()]
        assert len(visits) > 200
        for visit, path in visits:
            assert visit.path == path
            node = document.node(path)
            if visit.kind != "invalid":
                assert (node.start, node.kind, node.path) == (visit.start, visit.kind, path)
        # Asked for the first time when all is over.
        assert [visit.path for visit in list(document.walk())] == [path for _, path in visits]


@pytest.mark.parametrize("depth", ["all", "1000"])
@pytest.mark.parametrize("output", ["-q", "--jsonl"])
def test_a_tree_takes_one_step_for_the_path_of_each_node(run, tmp_path, monkeypatch, depth, output):
    path = tmp_path / "deep.pb"
    path.write_bytes(BUSHY)
    steps = 0

    def counting(self, *which):
        nonlocal steps
        steps += 1
        return Parser.step_to(self, *which)

    monkeypatch.setattr(ProtobufParser, "step_to", counting)
    ran = run("tree", path, "-f", "protobuf", "-d", depth, "-n", "0", output)
    lines = ran.out.splitlines()
    assert len(lines) > 350
    assert steps <= 2 * len(lines)


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"[", b'{"key":'])
def test_the_memory_of_a_walk_goes_with_the_depth_not_with_its_square(text):
    def peak(depth: int) -> int:
        content = text * depth + b"1" + {b"[": b"]"}.get(text, b"}") * depth
        tracemalloc.start()
        try:
            with pparse.open(content, format="json", limits=Limits(depth=10_000)) as document:
                for visit in document.walk():
                    assert visit.path is not None
                assert not list(document.findings)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)
    assert peak(2000) - peak(500) < 2 << 20


def test_trails_of_unknown_fields_do_not_grow_with_the_depth():
    with pparse.open(nested(700), format="protobuf", options={"types": "1.1=message"}) as document:
        node, longest = document.root, 0
        while node is not None and node.shape != "scalar":
            longest = max(longest, len(node.note.trail))
            node = next(node.children(), None)
        assert node is not None
        assert node.depth == 701
        assert longest == 3


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_limit_names_a_step_that_is_allowed():
    assert Limits().option("depth", 1001) == "--limit depth=4000"
    assert Limits(depth=4000).option("depth", 4001) == "--limit depth=10000"
    assert Limits(depth=10_000).option("depth", 10_001) == ""
    assert Limits(inflated_bytes=20).option("inflated_bytes", 21) == "--limit inflated_bytes=40"
    assert Limits(inflated_bytes=20).option("inflated_bytes", 100) == "--limit inflated_bytes=100"
    with pytest.raises(ValueError, match="depth must be at most 10000"):
        Limits(depth=10_001)


def test_where_nothing_lifts_a_limit_nothing_is_advised():
    with pytest.raises(pparse.LimitError) as caught:
        Limits(depth=10_000).check("depth", 10_001, "the depth")
    assert caught.value.option == ""
    assert "lift" not in str(caught.value)


def test_the_warning_about_depth_names_a_number():
    with pparse.open(b"[" * 60 + b"]" * 60, format="json", limits=Limits(depth=20)) as document:
        (finding,) = document.check()
    assert finding.reason.endswith("lift it with limits=Limits(depth=80)")


# -- JSON of deep values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", sweep.part([(), ("--json",)]))
@pytest.mark.parametrize("name", ["deep.json", "deep.pb"])
def test_get_writes_values_deeper_than_python_recurses(run, tmp_path, name, shown):
    depth = 1500  # Python itself recurses 1,000 deep
    path = tmp_path / name
    path.write_bytes(nested(depth) if name == "deep.pb" else b"[" * depth + b"1" + b"]" * depth)
    ran = run("get", path, "-f", "protobuf" if name == "deep.pb" else "json", "", *shown, "--limit", "depth=10000")
    assert (ran.code, ran.err) == (0, "")
    opened = depth + 1 + len(shown) if name == "deep.pb" else depth
    assert ran.out.count("{" if name == "deep.pb" else "[") == opened


VALUES = [
    [],
    {},
    [[]],
    [{}],
    {"a": []},
    {"a": [1, 2.5, None, {"b": "é", "c": True}], "d": {}},
    5,
    "x",
    [b"ab", {1: 2}, {None: 3}, {True: (1, 2)}],
]


@rows("indent", [None, 2])
@rows("value", VALUES)
def test_the_writer_without_recursion_writes_as_the_standard_one(value, indent):
    from pparse.cli.get_json import _pieces

    for ascii_only in (True, False):
        expected = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=bytes.hex)
        assert "".join(_pieces(value, bytes.hex, indent, ascii_only)) == expected


# -- callbacks that ask meanwhile --------------------------------------------------------------------------------------


@pytest.mark.parametrize("callback", ["cancel", "progress"])
@pytest.mark.parametrize("ask", [lambda document: list(document.check()), lambda document: len(document.root)])
def test_a_callback_that_asks_for_what_is_being_read_is_refused(callback, ask):
    text = json.dumps({f"a{number}": [number] for number in range(20_000)}).encode()
    calls = 0

    def asking(*_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 3:
            ask(document)
        return False

    document = pparse.open(text, format="json", **{callback: asking})
    try:
        with pytest.raises(pparse.PparseError, match="is being read"):
            len(document.root)
    finally:
        document.close()


def test_after_a_callback_was_refused_the_document_reads_as_before():
    text = json.dumps({f"a{number}": [number] for number in range(20_000)}).encode()
    calls = 0

    def asking() -> bool:
        nonlocal calls
        calls += 1
        if calls == 3:
            with pytest.raises(pparse.PparseError, match="is being read"):
                len(document.root)
        return False

    with pparse.open(text, format="json", cancel=asking) as document:
        assert len(document.root) == 20_000
        assert document.get("a19999[0]") == 19_999
        assert calls > 3
