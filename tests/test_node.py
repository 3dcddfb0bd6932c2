"""Nodes: what they hold, what they let go, and where they are; on JSON and on a toy format."""

from __future__ import annotations

import gc
import json
import os
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse import UNLOADED_VALUE, Entry, Limits, Parser, Status
from pparse.errors import ClosedError, LimitError, MalformedError, PathError
from pparse.tree.context import DONE
from pparse.tree.entry import MAP
from pparse.tree.parser import Confidence
from tests import sweep

if TYPE_CHECKING:
    from pparse.tree.node import Node


def read(source, **more):
    return pparse.open(source, format="json", **more)


def dump(value) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def all_nodes(root) -> list[Node]:
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        found.append(node)
        if node.shape != "scalar":
            stack.extend(reversed(list(node.children())))
    return found


class Halves(Parser):
    """A toy: one value, the first and the last third of the data, and one that is the middle."""

    name = "halves"
    description = "toy"
    shapes = {"halves": MAP}

    @classmethod
    def match(cls, excerpt):
        return Confidence.NO

    def begin(self, ctx):
        return 0, self.expect_all, 1

    def expect_all(self, ctx, block, base):
        data, third = ctx.data, ctx.data.size // 3
        parts = (data.range(0, third), data.range(2 * third, 3 * third))
        ctx.emit(Entry("outer", "bytes", 0, None, parts=parts))
        ctx.emit(Entry("inner", "bytes", third, 2 * third))
        return data.size, DONE, 0


# -- values ----------------------------------------------------------------------------------------------------------


def test_the_placeholder_refuses_to_pass_for_a_value():
    for misuse in (bool, len, iter, list):
        with pytest.raises(TypeError, match="not loaded"):
            misuse(UNLOADED_VALUE)
    with pytest.raises(TypeError, match="not loaded"):
        assert not UNLOADED_VALUE
    with pytest.raises(TypeError):
        _ = 1 in UNLOADED_VALUE
    assert repr(UNLOADED_VALUE) == "UNLOADED_VALUE"
    assert pparse.UNLOADED_VALUE is UNLOADED_VALUE


def test_value_is_a_peek():
    extraction = read(dump({"a": [1, 2], "long": "x" * 1000, "s": "y"}))
    root = extraction.root
    nodes = {kid.key: kid for kid in root.children()}
    stats = extraction.session.stats
    before = stats.reads
    for node in (root, *nodes.values()):
        assert node.value is not None
        assert (node.kind, node.shape, node.depth) != ("", "", -1)
        assert repr(node).startswith("<Node ")
        assert node.loaded is (node.key == "s" or node is root)
    assert stats.reads == before
    assert root.value == {"a": [1, 2], "long": "x" * 1000, "s": "y"}
    assert nodes["a"].loaded
    assert nodes["long"].load() == "x" * 1000
    fresh = read(b"[[1]]").root
    assert fresh.value is UNLOADED_VALUE
    assert fresh.load()[0] == [1]
    kid = fresh[0]
    assert kid.value is UNLOADED_VALUE or kid.loaded


def test_scalars_up_to_256_bytes_are_born_loaded():
    root = read(dump(["x" * 254, "x" * 255])).root
    assert root[0].value == "x" * 254
    assert root[1].value is UNLOADED_VALUE
    assert root[1].load() == "x" * 255


def test_load_unload_load():
    extraction = read(dump({"a": {"b": [1, "x" * 300, {"c": None}]}, "d": 1}))
    root = extraction.root
    expected = root.to_python()
    for node in all_nodes(root):
        first = node.load()
        node.unload()
        assert node.value is UNLOADED_VALUE
        assert not node.loaded
        node.unload()
        assert node.load() == first
        assert node.status is Status.COMPLETE
    assert root.to_python() == expected


def test_a_scalar_born_loaded_is_read_again_from_the_file():
    extraction = read(b'[1, "two"]')
    node = extraction.root[1]
    node.unload()
    before = extraction.session.stats.reads
    assert node.load() == "two"
    assert extraction.session.stats.reads == before + 1
    assert node.load() == "two"
    assert extraction.session.stats.reads == before + 1


# -- identity and life -----------------------------------------------------------------------------------------------


def test_asking_again_gives_the_object_that_somebody_holds():
    root = read(dump({"a": {"b": [1, 2]}, "c": 3})).root
    held = root["a"]["b"]
    leaf = held[1]
    assert root["a"]["b"] is held
    assert root.at("a.b[1]") is leaf
    assert next(iter(root.children()))["b"] is held
    assert root.child(0).child(0) is held
    root.unload()
    held.unload()
    assert root.at("a.b[1]") is leaf
    assert held[1] is leaf
    assert leaf.parent is held
    assert held.parent is root["a"]


def test_hold_a_leaf_and_its_ancestors_live_and_nothing_else():
    extraction = read(dump({"a": {"b": [1, [2, 3]], "x": {}}, "c": [4] * 100}))
    leaf = extraction.node("a.b[1][0]")
    line = {id(leaf)}
    node = leaf
    while node.parent is not None:
        node = node.parent
        line.add(id(node))
    refs = [weakref.ref(node) for node in all_nodes(extraction.root)]
    del node
    gc.collect()
    alive = [ref() for ref in refs if ref() is not None]
    assert len(refs) == 109
    assert {id(node) for node in alive} == line
    assert len(alive) == 5
    del alive, leaf
    gc.collect()
    assert [ref() for ref in refs if ref() is not None] == [extraction.root]


def test_nodes_are_freed_without_the_collector():
    gc.disable()
    try:
        extraction = read(dump([[number] for number in range(2000)]))
        refs = [weakref.ref(kid) for kid in extraction.root.children() if len(kid)]
        assert sum(ref() is not None for ref in refs) <= 1
        assert len(extraction.root._kids) <= 128  # the table of living children is purged as it grows
    finally:
        gc.enable()


def test_the_table_of_children_keeps_those_alive():
    root = read(dump(list(range(1000)))).root
    held = {number: root[number] for number in range(0, 1000, 3)}
    for number in range(1000):
        assert root[number].value == number
    assert all(root[number] is node for number, node in held.items())


def test_a_node_is_small():
    extraction = read(b" " * 10_000 + dump([1, [2] * 10]))
    for node in all_nodes(extraction.root):
        assert not hasattr(node, "__dict__")
        assert sys.getsizeof(node) + sys.getsizeof(node.start) + sys.getsizeof(node.end) <= 200


# -- where it is -----------------------------------------------------------------------------------------------------

NASTY_KEYS = [
    "",
    ".",
    "..",
    "a.b",
    "a[0]",
    "[",
    "]",
    "#2",
    "a#2",
    "a",
    "5",
    "-1",
    "true",
    "null",
    '"',
    "\\",
    '\\"',
    "é",
    "日本",
    "\ud83d\ude00",
    "\n",
    "\u0000",
    " ",
    "[#7]",
    'b"x"',
    "a::b",
    "/",
    "x-y",
    "_",
    "9" * 40,
    "'",
    "[true]",
    "\u2028",
]


@pytest.mark.parametrize("padding", [0, 100])
def test_the_path_of_any_node_leads_back_to_it(padding):
    members = [json.dumps(key) + ":" + json.dumps([{key: 1}]) for key in NASTY_KEYS * 2]
    members += ['"a":{"b":{"":[[],[1,{"a":0,"a":1,"a#2":2}]]}}', "5", '"\\ud800":1', '"z" 5']
    padded = [f'"p{number}":0' for number in range(padding)]
    extraction = read(("{" + ",".join(padded + members) + "}").encode())
    nodes = all_nodes(extraction.root)
    assert len(nodes) > 200
    paths = {node.path: node for node in nodes}
    assert len(paths) == len(nodes)
    for path, node in paths.items():
        assert extraction.node(path) is node, path
        assert extraction.root.at(node.steps) is node
        assert node.parent is None or node.parent.at(node.steps[-1:]) is node
    assert extraction.node("").path == ""
    assert paths['["5"]'].key == "5"
    assert paths["a#3.b"].key == "b"


def test_paths_of_lists_and_of_keys_that_look_like_numbers():
    extraction = read(b'{"3": [0, [7]], "x": {"5": 6}}')
    assert extraction.get("3[1][0]") == 7
    assert extraction.get("[3][1][0]") == 7
    assert extraction.get("x.5") == 6
    assert extraction.get("x[5]") == 6
    with pytest.raises(PathError):
        extraction.node("x.6")
    with pytest.raises(PathError):
        extraction.node('["3"]["1"]')
    with pytest.raises(PathError):
        extraction.node("[")


def test_spans_range_and_parts():
    text = b' {"a" : [1, "bc"] } '
    root = read(text).root
    assert root.spans == ((1, 19),)  # up to the end of the data while nobody looked for the end
    root.load()
    assert root.spans == ((1, 18),)
    node = root["a"]
    assert (node.start, node.end, node.spans) == (8, 17, ((8, 9),))
    assert node.range.read() == b'[1, "bc"]'
    assert node.parts == (node.range,)
    assert node[1].range.read() == b'"bc"'
    assert node.open().read() == b'[1, "bc"]'
    assert node.extraction is root.extraction


def test_a_value_in_several_parts():
    content = b"aaabbbccc"
    with pparse.open(content, format="halves", parsers=[Halves]) as extraction:
        outer, inner = extraction.root["outer"], extraction.root["inner"]
        assert outer.spans == ((0, 3), (6, 3))
        assert len(outer.parts) == 2
        with pytest.raises(ValueError, match="2 stretches"):
            _ = outer.range
        assert outer.value is UNLOADED_VALUE
        assert outer.load() == b"aaaccc"
        assert outer.open().read() == b"aaaccc"
        assert (inner.load(), inner.range.read()) == (b"bbb", b"bbb")
        assert extraction.root.to_python() == {"outer": b"aaaccc", "inner": b"bbb"}
        outer.unload()
        assert outer.load() == b"aaaccc"
    with pytest.raises(LimitError, match="scalar_bytes"):
        pparse.open(content, format="halves", parsers=[Halves], limits=Limits(scalar_bytes=5)).get("outer")


# -- what is wrong ---------------------------------------------------------------------------------------------------


def test_status_and_findings_of_nodes():
    extraction = read(b'{"good": [1], "bad": {"x": [1, tru], "y": 2}, "list": [1}, "cut": [5, "a')
    root = extraction.root
    assert root.known_status is None
    assert root.status is Status.TRUNCATED
    assert (root.finding.code, root.finding.wanted) == ("truncated", None)  # that a byte more is needed says nothing
    assert [kid.status for kid in root.children()] == [
        Status.COMPLETE,
        Status.COMPLETE,
        Status.DAMAGED,
        Status.TRUNCATED,
    ]
    assert root["good"].findings == []
    assert root["list"].finding.reason == "the array does not end with ]"
    assert root["list"].load() == [1]
    node = root.at("bad.x[1]")
    assert (node.kind, node.status, node.value) == ("invalid", Status.DAMAGED, UNLOADED_VALUE)
    assert [finding.path for finding in root["bad"].findings] == ["bad.x[1]"]
    assert root.at("bad.y").findings == []
    assert {finding.path for finding in root.findings} >= {"", "bad.x[1]", "list"}
    with pytest.raises(MalformedError) as caught:
        node.load()
    assert (caught.value.path, caught.value.offset) == ("bad.x[1]", 31)
    assert extraction.data.pread(31, 3) == b"tru"
    assert "damaged" in repr(node)


def test_findings_do_not_mix_up_names_that_begin_alike():
    extraction = read(b'{"a": [1, x], "ab": 1, "a#2": [y]}')
    for node in all_nodes(extraction.root):
        assert node is not None
    assert [finding.path for finding in extraction.node("a").findings] == ["a[1]"]
    assert extraction.node("ab").findings == []


def test_a_closed_document_says_so():
    extraction = read(dump({"a": [1, 2], "long": "x" * 300}))
    root, node, long = extraction.root, extraction.node("a"), extraction.node("long")
    view = node.load()
    children = root.children()
    next(children)
    kept = node[0]
    extraction.close()
    attempts = [
        root.load,
        node.load,
        long.load,
        root.to_python,
        long.open,
        lambda: root["a"],
        lambda: root["zz"],
        lambda: len(root),
        lambda: list(root),
        lambda: list(root.children()),
        lambda: list(root.keys()),
        lambda: root.child(0),
        lambda: node[0],
        lambda: node[1],
        lambda: view[0],
        lambda: list(view),
        lambda: extraction.node("a"),
        lambda: extraction.get("a"),
        lambda: list(extraction.walk()),
        lambda: list(extraction.check()),
        lambda: extraction.data.pread(0, 1),
        lambda: "a" in root,
    ]
    for attempt in attempts:
        with pytest.raises(ClosedError):
            attempt()
    node.unload()
    with pytest.raises(ClosedError):
        node.load()
    assert kept.value == 1  # what is in memory stays
    for held in (root, node, long, kept):
        assert repr(held).startswith("<Node ")
    extraction.close()


def test_a_document_is_closed_by_with(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[1, 2]")
    with read(path) as extraction:
        root = extraction.root
        assert len(root) == 2
    with pytest.raises(ClosedError):
        root.load()


# -- retention -------------------------------------------------------------------------------------------------------


def refs_of(root, keys):
    return {key: weakref.ref(root[key]) for key in keys}


def alive(refs) -> str:
    gc.collect()
    return "".join(key for key, ref in refs.items() if ref() is not None)


FOUR = dump({"a": 1, "b": [2], "c": {"x": 3}, "d": "four"})


def test_by_default_nothing_is_kept():
    root = read(FOUR).root
    assert alive(refs_of(root, "abcd")) == ""


@pytest.mark.parametrize("retain", [float("inf"), "inf", "all"])
def test_what_is_retained_lives_until_it_is_unloaded(retain):
    extraction = read(FOUR, retain=retain)
    refs = refs_of(extraction.root, "abcd")
    assert alive(refs) == "abcd"
    assert len(extraction.parse().retention) == 4
    node = refs["b"]()
    assert extraction.root["b"] is node
    node.unload()  # what is unloaded is no longer kept
    del node
    assert alive(refs) == "acd"
    extraction.close()
    assert alive(refs) == ""


def test_the_least_recently_used_go_first():
    extraction = read(dump({key: number for number, key in enumerate("abcdefgh")}), retain=1500)  # three nodes
    root = extraction.root
    refs = refs_of(root, "abc")
    assert alive(refs) == "abc"
    refs |= refs_of(root, "d")
    assert alive(refs) == "bcd"
    assert root["b"].value == 1  # used again
    refs |= refs_of(root, "e")
    assert alive(refs) == "bde"
    root["d"].load()
    refs |= refs_of(root, "f")
    assert alive(refs) == "def"
    assert extraction.parse().retention.held <= 1500


@pytest.mark.parametrize("loads", [1, 2])
def test_a_container_that_is_loaded_again_counts_as_used(loads):
    """The one who holds it asks the node itself, not its parent for it."""
    extraction = read(b'{"a": [1], "b": [2], "c": [3], "d": [4]}', retain=1250)  # three nodes, one of them loaded
    root = extraction.root
    held = root["a"]
    if loads == 2:
        held.load()
    refs = {"a": weakref.ref(held)} | refs_of(root, "bc")
    held.load()
    del held
    assert alive(refs) == "abc"
    refs |= refs_of(root, "d")
    assert alive(refs) == "acd"


def test_a_node_that_somebody_holds_is_never_unloaded():
    root = read(dump(["x" * 300] * 50), retain=1500).root
    held = root[0]
    held.load()
    for node in root.children():
        node.load()
    assert held.value == "x" * 300
    assert root[0] is held


def test_a_node_above_the_limit_is_not_kept():
    extraction = read(dump({"a": "x" * 2000, "b": 1}), retain="1KiB")
    refs = refs_of(extraction.root, "ab")
    assert alive(refs) == "ab"
    assert extraction.root["a"].load() == "x" * 2000
    assert alive(refs) == "b"


def test_who_retained_nodes_and_is_gone_is_not_remembered():
    session = read(b"[1,2]", retain="inf").session
    assert not [None for _ in range(100) if session.new_retention() is None]
    assert len(session._retentions) <= 1


def test_as_much_is_kept_as_the_limit_says_to_the_byte():
    extraction = read(b"[1,2]", retain="inf")
    assert extraction.root[0].value == 1
    cost = extraction.parse().retention.held
    for retain, kept in ((cost - 1, ""), (cost, "1"), (2 * cost - 1, "1"), (2 * cost, "01")):
        extraction = read(b"[1,2]", retain=retain)
        refs = {str(at): weakref.ref(extraction.root[at]) for at in (0, 1)}
        assert alive(refs) == kept, retain


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        ({"include": ["a"]}, ["a"]),
        ({"include": ["t.*"]}, ["t.x", "t.y"]),
        ({"exclude": ["t.*"]}, ["a", "t"]),
        ({"include": ["t*"], "exclude": ["t.y"]}, ["t", "t.x"]),
        ({"include": ["zz"]}, []),
    ],
)
def test_patterns_say_what_is_kept(patterns, kept):
    extraction = read(b'{"a": 1, "t": {"x": 2, "y": 3}}', retain="inf", **patterns)
    refs = {path: weakref.ref(extraction.node(path)) for path in ("a", "t.x", "t.y", "t")}
    gc.collect()
    living = {path for path, ref in refs.items() if ref() is not None}
    ancestors = {"t"} if any(path.startswith("t.") for path in kept) else set()
    assert living == set(kept) | ancestors


def test_retention_that_makes_no_sense():
    for wrong in (-1, "-1", "lots"):
        with pytest.raises(ValueError, match=r"negative|not a size"):
            read(b"[]", retain=wrong).root.load()


@pytest.mark.parametrize("retain", ["inf", 10**6, 10**5])
def test_retention_gives_way_to_the_budget(retain):
    extraction = read(dump([[number] for number in range(4_000)]), retain=retain, budget="1MiB")
    assert sum(node[0].value for node in extraction.root.children()) == sum(range(4_000))
    budget = extraction.session.budget
    assert budget.peak <= budget.limit
    assert 0 < extraction.parse().retention.held <= budget.limit
    assert extraction.root[3_999][0].value == 3_999


# -- budget ----------------------------------------------------------------------------------------------------------


def indexed_rows(extraction: pparse.Extraction) -> str:
    return "".join("abc"[row.ordinal] for row in extraction.root.children() if row.loaded)


@pytest.mark.parametrize(
    ("use", "left"),
    [
        (lambda row: None, "bc"),
        (lambda row: row.load(), "ac"),
        (lambda row: row[40_000], "ac"),
        (lambda row: next(row.children()), "ac"),
    ],
)
def test_the_index_that_was_not_used_for_longest_goes_first(use, left):
    """An index that is read again is used, not only one that is made."""
    row = b"[" + b",".join([b"1"] * 50_000) + b"]"
    extraction = read(b"[%s,%s,%s]" % (row, row, row), budget="2MiB")
    rows = list(extraction.root.children())  # 400 KB for the index of each
    for node in rows:
        node.load()
    assert indexed_rows(extraction) == "abc"
    use(rows[0])
    budget = extraction.session.budget
    with budget.charge(budget.limit - budget.used + 1, "something else"):
        assert indexed_rows(extraction) == left


@pytest.mark.parametrize("kernel", sweep.part(["stdlib", "numpy"]))
def test_indexes_that_were_evicted_are_made_again(kernel):
    rows, wide = 30, 6000
    text = b"[" + b",".join(b"[%s]" % b",".join(b"%d" % (row % 10) for _ in range(wide)) for row in range(rows)) + b"]"
    extraction = read(text, budget="1MiB", options={"kernel": kernel})
    nodes = list(extraction.root.children())
    held = [node[wide - 1] for node in nodes]
    for node in nodes:
        assert len(node) == wide
    evicted = [node for node in nodes if node.index is None]
    assert len(evicted) > rows // 4
    assert any(node.loaded for node in nodes)
    for row, node in enumerate(nodes):
        assert node.load()[wide // 2] == row % 10
        assert node[wide - 1] is held[row]
        assert sum(1 for _ in node.children()) == wide
        assert node.status is Status.COMPLETE
    budget = extraction.session.budget
    assert budget.peak <= budget.limit
    assert budget.used <= budget.limit
    assert list(extraction.check()) == []
    del nodes, node, held, evicted
    extraction.root.unload()
    gc.collect()
    assert budget.used == 0


def test_the_index_of_a_container_may_go_while_it_is_iterated():
    text = dump({f"k{number}": list(range(3000)) for number in range(60)})
    extraction = read(text, budget="1MiB")
    rows = list(extraction.root.children())
    iterators = [row.children() for row in rows]
    for position in range(0, 3000, 500):
        for iterator in iterators:
            for _ in range(499):
                next(iterator)
            assert next(iterator).value == position + 499
    assert extraction.session.budget.peak <= 1 << 20


# -- plain Python ----------------------------------------------------------------------------------------------------


def test_to_python_of_what_is_too_large():
    root = read(dump({"a": "x" * 1000, "b": 1})).root
    with pytest.raises(LimitError, match="max_bytes") as caught:
        root.to_python(max_bytes=500)
    assert (caught.value.wanted, caught.value.got) == (len(dump({"a": "x" * 1000, "b": 1})), 500)
    assert root["b"].to_python(max_bytes=500) == 1
    assert root.to_python(max_bytes=None) == {"a": "x" * 1000, "b": 1}


def test_to_python_does_not_recurse():
    depth = 900
    text = b'{"k":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)
    root = read(text).root
    frames = len(__import__("inspect").stack())
    previous = sys.getrecursionlimit()
    sys.setrecursionlimit(frames + 60)
    try:
        value = root.to_python()
        walked = sum(1 for _ in root.extraction.walk())
    finally:
        sys.setrecursionlimit(previous)
    assert walked == depth + 1
    for _ in range(depth // 2):
        (value,) = value["k"]
    assert value == 1


def test_to_python_of_what_is_not_whole():
    with pytest.raises(pparse.EndOfDataError):
        read(b'{"a": [1, 2').root.to_python()
    with pytest.raises(MalformedError):
        read(b'{"a": [1, x]}').root.to_python()
    assert read(b'{"a": [1, x], "b": [2]}').root["b"].to_python() == [2]


# -- one file, two parsers -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_two_parsers_share_one_descriptor(tmp_path):
    path = tmp_path / "both.json"
    path.write_bytes(b'[1, "xy" ]  ')
    with pparse.open(path, parsers=[Halves]) as extraction:
        as_json = extraction.parse("json")
        as_toy = extraction.parse(Halves)
        assert extraction.parse("halves") is as_toy
        assert set(extraction.results) == {"json", "halves"}
        assert as_json.root is not as_toy.root
        assert as_json.root.to_python() == [1, "xy"]
        assert as_toy.root["inner"].load() == b'"xy"'
        assert as_json.root.result is as_json
        assert as_toy.root["inner"].extraction is extraction
        opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        assert opened.count(os.path.realpath(path)) == 1
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert os.path.realpath(path) not in opened


def test_entries_and_nodes_show_what_they_are():
    root = read(b'{"a": [1, 2], "s": "' + b"x" * 100 + b'"}').root
    assert repr(root) == "<Node (root) object: unloaded>"
    root.load()
    assert repr(root) == "<Node (root) object: 2 children>"
    assert repr(root["a"]).startswith("<Node a array: ")
    assert repr(root["s"]).endswith("...>")
    assert len(repr(root["s"])) < 100
    assert repr(Entry("k", "int", 1, 5, 7)) == "Entry('k', 'int', 1, 5, 7, complete)"
    assert "NodeMap" in repr(root.load())
    assert "NodeList" in repr(root["a"].load())
    assert root._ipython_key_completions_() == ["a", "s"]
    assert root["a"]._ipython_key_completions_() == []
