"""Deep documents: time and memory go with the depth, and what a limit says can be done."""

from __future__ import annotations

import tracemalloc

import pytest

import pparse
from pparse import Limits
from pparse.parser import Parser
from pparse.parsers.protobuf import ProtobufParser


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


BUSHY = nested(300, b"".join(varint((number + 2) << 3) + b"\x01" for number in range(50)) + nested(1) + nested(2))
DEEP = {
    "protobuf": BUSHY,
    "json": b'{"a":[1,' * 200 + b'{"k k":[],"a":1,"b":[[2],[3,{"":4}]]},[[[5]]],6' + b"]}" * 200,
    "damaged json": b'{"a":[1,' * 200 + b'{"k k":[],"a":tru,"b":[[2],[3,{"":4}]]},[[[5]]],6' + b"]}" * 200,
}


def form(name: str) -> str:
    return name.split()[-1]


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_visits_of_a_deep_walk_have_the_paths_of_their_nodes_during_it_and_afterwards(name):
    with pparse.open(DEEP[name], format=form(name)) as document:
        visits = [(visit, visit.path) for visit in document.walk()]
        assert len(visits) > 300
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
    assert peak(4000) - peak(1000) < 4 << 20
