"""JSON through the node API: as `json.loads` where that is strict, and never wrong where it is not."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse import UNLOADED_VALUE, Limits, Severity, Status
from pparse.document.registry import excerpt_of
from pparse.errors import (
    CancelledError,
    EndOfDataError,
    LimitError,
    MalformedError,
    PathError,
    PparseError,
    SourceError,
    UnsupportedError,
)
from pparse.testing import FailingData, GappyData, UnknownSizeData
from pparse.tree.node import NodeList, NodeMap
from tests import sweep
from tests.rows import rows

WAYS = [{"options": {"kernel": kernel}, "block_size": size} for kernel in ("stdlib", "numpy") for size in (0, 1, 7)]
KERNELS = pytest.mark.parametrize("kernel", ["stdlib", "numpy"])
WARNINGS_ONLY = {"duplicate-key", "byte-order-mark"}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=20)
    | st.integers(200, 320).map(lambda size: "é" * size)
)
KEYS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)

NASTY = (
    b'{"a": 1, "b": [1, 2.5, [], {"c": "x\\u00e9\\n", "c": null}, "\\ud83d\\ude00"], "": {}, "t" : true,\n'
    b' "s": "\\\\\\"", "long": "' + b"y" * 300 + b'", "\xc3\xa9": -0.0, "n": [ 12 , 3e2 ,false ] , "a": 2 }'
)


def read(source, **more):
    return pparse.open(source, format="json", **more)


def dump(value, **more) -> bytes:
    return json.dumps(value, ensure_ascii=False, **more).encode()


def by_nodes(node):
    """Make plain Python of a node by looking at each node below it."""
    if node.shape == "map":
        return {key: by_nodes(node[key]) for key in node.keys()}  # noqa: SIM118 -- what is tested
    if node.shape == "list":
        return [by_nodes(node[number]) for number in range(len(node))]
    return node.load()


def tree(extraction):
    """Return all that nodes say, depth first."""
    found, stack = [], [extraction.root]
    while stack:
        node = stack.pop()
        kids, value = [], None
        if node.shape == "scalar":
            try:
                value = repr(node.load())
            except SourceError:
                raise
            except PparseError as error:
                value = type(error).__name__
        else:
            kids = list(node.children())
        finding = node.finding and (node.finding.code, node.finding.offset, node.finding.reason)
        found.append((node.path, node.key, node.kind, node.start, node.end, node.status, value, finding))
        stack.extend(reversed(kids))
    return found


def errors_of(extraction) -> set[str]:
    return {finding.code for finding in extraction.check()} - WARNINGS_ONLY


def strict_loads(text: bytes):
    """`json.loads`, made as strict as RFC 8259; raises ValueError."""

    def refuse(word):
        raise ValueError(word)

    def number(word):
        return float(word) if float(word) not in (float("inf"), float("-inf")) else refuse(word)

    value = json.loads(text.decode(), parse_constant=refuse, parse_float=number)
    json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    return value


# -- equal to json.loads ---------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(70))
@given(document=DOCUMENTS, indent=st.sampled_from([None, 2]), way=st.sampled_from(WAYS))
def test_any_document_is_as_json_loads_it(document, indent, way):
    text = dump(document, indent=indent)
    expected = json.loads(text)
    extraction = read(text, **way)
    assert repr(by_nodes(extraction.root)) == repr(expected)
    assert repr(extraction.root.to_python()) == repr(expected)
    assert extraction.root.load() == expected
    assert expected == extraction.root.load()
    assert list(extraction.check()) == []
    slow = read(text, **way, limits=Limits(leaf_bytes=1, leaf_depth=1))
    assert repr(slow.root.to_python()) == repr(expected)  # node by node


@settings(max_examples=sweep.examples(15))
@given(document=DOCUMENTS)
def test_every_way_of_reading_gives_the_same_tree(document):
    text = dump([document, document])
    expected = tree(read(text))
    assert [tree(read(text, **way)) for way in WAYS] == [expected] * len(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_a_list_has_length_items_slices_and_iteration(way):
    root = read(b'[10, "b", [1, 2], {"k": [3]}, null]', **way).root
    assert (len(root), root.kind, root.shape, root.depth) == (5, "array", "list", 0)
    assert [node.load() for node in root] == [10, "b", [1, 2], {"k": [3]}, None]
    assert (root[0].value, root[-1].load(), root[-5].value) == (10, None, 10)
    assert [node.load() for node in root[1:3]] == ["b", [1, 2]]
    assert [node.ordinal for node in root[::-2]] == [4, 2, 0]
    assert root[9:] == []
    for wrong in (5, -6, 10**18):
        with pytest.raises(IndexError, match="5 children"):
            root[wrong]
    with pytest.raises(TypeError, match="indexed by numbers"):
        root["0"]
    with pytest.raises(TypeError, match="no keys"):
        list(root.keys())
    assert "b" not in root
    assert bool(read(b"[]").root) is True
    assert len(read(b"[]").root) == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_map_has_its_keys_in_order_and_looks_them_up_as_text(way):
    root = read(b'{"a": 1, "b" : {"c": [true]}, "": "empty", "1": 2}', **way).root
    assert (len(root), root.kind, root.shape) == (4, "object", "map")
    assert list(root) == list(root.keys()) == ["a", "b", "", "1"]
    assert root["b"]["c"][0].load() is True
    assert root[""].load() == "empty"
    assert "a" in root
    assert "z" not in root
    assert 1 not in root  # "1" is text
    assert root.find("z") is None
    with pytest.raises(KeyError, match="has no key 'z'"):
        root["z"]
    with pytest.raises(TypeError, match="cannot be sliced"):
        root[0:1]
    with pytest.raises(TypeError, match="no children"):
        root["a"]["b"]
    with pytest.raises(TypeError, match="no children"):
        root["a"].child(0)


def test_views_of_containers():
    text = b'{"a": [1, [2, {"x": null}]], "b": {}, "c": "s", "a": 0}'
    root = read(text).root
    view = root.load()
    assert isinstance(view, NodeMap)
    assert isinstance(view["a"], NodeList)
    assert view == {"a": [1, [2, {"x": None}]], "b": {}, "c": "s"}  # of a key that occurs twice, the first
    assert view != {"a": [1, [2, {"x": 0}]], "b": {}, "c": "s"}
    assert view != {"a": [1, [2, {"x": None}]], "b": {}}
    assert view != 1
    assert view == read(text).root.load()
    assert view is not root.load()
    assert view == root.load()
    assert list(view) == list(view.keys()) == ["a", "b", "c"]
    assert len(view) == 3
    assert list(view.values())[2] == "s"
    assert dict(view.items())["b"] == {}
    assert view.get("zz", 5) == 5
    assert view.get("zz") is None
    assert view.get("c") == "s"
    assert "c" in view
    numbers = view["a"]
    assert numbers == [1, [2, {"x": None}]]
    assert numbers == (1, [2, {"x": None}])
    assert numbers != [1]
    assert numbers[1][1]["x"] is None
    assert numbers[-1][0] == 2
    assert numbers[:1] == [1]
    assert next(iter(numbers)) == 1
    for unhashable in (view, numbers):
        with pytest.raises(TypeError):
            hash(unhashable)


def test_get_and_node_by_path():
    extraction = read(NASTY)
    assert extraction.get("b[3].c") == "x\u00e9\n"
    assert extraction.get("b[3].c#2") is None
    assert extraction.get("a#2") == 2
    assert extraction.get('[""]') == {}
    assert extraction.get("[#0]") == 1
    assert extraction.get().node is extraction.root
    for wrong in ("b[9]", "zz", "a#3", "b.c", "a.x", "a[#0]", "a[0]", "[#99]", "b[true]", 'b["0"]'):
        with pytest.raises(PathError):
            extraction.node(wrong)


def test_a_near_miss_is_suggested():
    root = read(b'{"weight": 1, "bias": {"running_mean": 0}}').root
    with pytest.raises(PathError, match="did you mean 'weight'") as caught:
        root["weigth"]
    assert caught.value.suggestions == ("weight",)
    with pytest.raises(PathError) as caught:
        root.at("bias.running_meen")
    assert caught.value.suggestions == ("running_mean",)
    with pytest.raises(PathError) as caught:
        root["xyz"]
    assert caught.value.suggestions == ()


# -- strictness ------------------------------------------------------------------------------------------------------

ACCEPTED = [
    b"[]",
    b"{}",
    b" [ ] ",
    b"\t\r\n{ }\n",
    b"0",
    b"-0",
    b'""',
    b"null",
    b" true",
    b"1E+2",
    b"[-0.0]",
    b'"\x7f"',
    b'["\\u0000"]',
    b'["\\ud83d\\ude00"]',
    b'["\\\\ud800"]',
    b'{"":{"":[]}}',
    b"[1.7976931348623157e308]",
    b"[5e-400]",
    b"[%s]" % (b"9" * 4300),
    b'["\xf0\x9f\x98\x80"]',
    b'["\xed\x9f\xbf"]',
    b'{"\\u0061":1}',
    b'["\\/"]',
]

REFUSED = {  # text: code of the finding
    b"": "truncated",
    b" \n": "truncated",
    b"[": "truncated",
    b'{"a"': "truncated",
    b'{"a":': "truncated",
    b"[1": "truncated",
    b'["a': "truncated",
    b"[tru": "truncated",
    b'"abc': "truncated",
    b"nul": "truncated",
    b"-": "truncated",
    b"1.": "truncated",
    b"2e+": "truncated",
    b'"\\': "truncated",
    b'"' + b"x" * 70_000: "truncated",
    b"[1,]": "malformed",
    b'{"a":1,}': "malformed",
    b"[1,,2]": "malformed",
    b"[,1]": "malformed",
    b"[,]": "malformed",
    b'{"a" 1}': "malformed",
    b'{"a"}': "malformed",
    b'{"a":}': "malformed",
    b"{1:2}": "malformed",
    b"{,}": "malformed",
    b"{a:1}": "malformed",
    b"[1 2]": "malformed",
    b"[1}": "malformed",
    b'{"a":1]': "malformed",
    b"[[1}]": "malformed",
    b"['a']": "malformed",
    b"[01]": "malformed",
    b"[+1]": "malformed",
    b"[.5]": "malformed",
    b"[1.]": "malformed",
    b"[0x1]": "malformed",
    b"[-]": "malformed",
    b"[tru]": "malformed",
    b"[True]": "malformed",
    b"[nulll]": "malformed",
    b'["\n"]': "malformed",
    b'["\x00"]': "malformed",
    b'["\x1f"]': "malformed",
    b'{"\t":1}': "malformed",
    b'["\\x"]': "malformed",
    b'["\\u12g4"]': "malformed",
    b'["\xff"]': "malformed",
    b'["\xc3"]': "malformed",
    b'["\xc0\xaf"]': "malformed",
    b'{"\xff":1}': "malformed",
    b"[\xff]": "malformed",
    b"x": "malformed",
    b"]": "malformed",
    b"--": "malformed",
    b"[1//2]": "malformed",
    b"\xa0[]": "malformed",
    b"[\x0c]": "malformed",
    b"[1]2": "trailing-data",
    b"[] []": "trailing-data",
    b"{}\x00": "trailing-data",
    b'{"a":1}\n{"a":2}\n': "trailing-data",
    b"[]]": "trailing-data",
    b"1 2": "malformed",
    b"null,": "malformed",
    b"[%s]" % (b"9" * 4301): "limit",
    b"[-%s]" % (b"9" * 5000): "limit",
    b"9" * 4301: "limit",
}

LET_PASS = {  # by json.loads, but not by us
    b"[1e999]": "unsupported",
    b"[-1e999]": "unsupported",
    b"1e999": "unsupported",
    b'["\\ud800"]': "malformed",
    b'["\\udc00"]': "malformed",
    b'["\\ude00\\ud83d"]': "malformed",
    b'["\\ud83d\\u0041"]': "malformed",
    b'{"\\ud800":1}': "malformed",
    b'"\\ud800"': "malformed",
    b'["\\\\\\ud800"]': "malformed",
    b'["\xed\xa0\x80"]': "malformed",
    "[1]".encode("utf-16-le"): "malformed",
    "[1]".encode("utf-16-be"): "malformed",
    "[1]".encode("utf-16"): "malformed",
    "[1]".encode("utf-32-le"): "malformed",
    "[1]".encode("utf-32"): "malformed",
}


@rows("text", ACCEPTED)
@KERNELS
def test_what_is_json(text, kernel):
    extraction = read(text, options={"kernel": kernel})
    assert extraction.status is Status.COMPLETE
    assert repr(extraction.root.to_python()) == repr(json.loads(text))
    assert list(extraction.check()) == []
    assert len(extraction.findings) == 0


@rows(("text", "code"), [*REFUSED.items(), *LET_PASS.items()])
@KERNELS
def test_what_is_not_json(text, code, kernel):
    if text in LET_PASS:
        json.loads(text)  # otherwise the row stands in the wrong table
    else:
        with pytest.raises(ValueError):  # noqa: PT011 -- one of several
            json.loads(text)
    extraction = read(text, options={"kernel": kernel})
    assert code in errors_of(extraction)
    if code != "trailing-data":
        with pytest.raises(PparseError):
            read(text, options={"kernel": kernel}).root.to_python()
        statuses = {node[5] for node in tree(extraction)}
        assert statuses - {Status.COMPLETE}
    again = read(text, options={"kernel": kernel})
    tree(again)
    assert all(finding.offset is not None and 0 <= finding.offset <= len(text) for finding in again.findings)


@rows("text", [b"NaN", b"[NaN]", b"[0, Infinity, 1]", b"[-Infinity]", b'{"a": {"b": [-Infinity]}, "c": NaN}'])
@KERNELS
def test_numbers_that_are_none_are_read_with_a_warning(text, kernel):
    extraction = read(text, options={"kernel": kernel})
    assert repr(extraction.root.to_python()) == repr(json.loads(text))
    (finding,) = extraction.check()
    assert (finding.code, finding.severity) == ("not-finite", Severity.WARNING)
    assert {node[5] for node in tree(extraction)} == {Status.COMPLETE}
    with read(text[:-2] + b"x", options={"kernel": kernel}) as damaged:
        assert damaged.status is not Status.COMPLETE


@pytest.mark.parametrize(
    ("text", "path", "error", "status"),
    [
        (b"[1, None, 2]", "[1]", MalformedError, Status.DAMAGED),
        (b"[1, 1e999, 2]", "[1]", UnsupportedError, Status.UNSUPPORTED),
        (b"[1, %s, 2]" % (b"7" * 5000), "[1]", LimitError, Status.UNSUPPORTED),
        (b'[1, "\\ud800", 2]', "[1]", MalformedError, Status.DAMAGED),
        (b"[1,, 2]", "[1]", MalformedError, Status.DAMAGED),
        (b'[1, "\xff", 2]', "[1]", MalformedError, Status.DAMAGED),
        (b"[1, x, 2]", "[1]", MalformedError, Status.DAMAGED),
        (b'[1, "%s\x01", 2]' % (b"x" * 300), "[1]", MalformedError, Status.DAMAGED),
        (b'{"a": 1, "b" 5, "c": 2}', "[#1]", MalformedError, Status.DAMAGED),
    ],
)
def test_neighbours_of_what_is_damaged_stay_whole(text, path, error, status):
    extraction = read(text)
    root = extraction.root
    assert (root.child(0).load(), root.child(2).load()) == (1, 2)
    node = extraction.node(path)
    for _ in range(2):  # the second time, the status is known
        with pytest.raises(error):
            node.load()
        assert node.status is status
    assert node.finding.offset is not None
    # A text that does not parse is damaged, with all that is whole in it; what is beyond our means is no fault of it.
    assert extraction.status is (Status.DAMAGED if status is Status.DAMAGED else Status.COMPLETE)


def test_a_limit_names_the_option_that_lifts_it_once():
    extraction = read(b"[%s]" % (b"1" * 5000))
    with pytest.raises(LimitError) as caught:
        extraction.get("[0]")
    assert str(caught.value).count("Limits(number_bytes") == 1
    assert str(caught.value).count("lift it with") == 1
    previous = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert read(b"[%s]" % (b"1" * 5000), limits=Limits(number_bytes=5000)).get("[0]") == int("1" * 5000)
        with pytest.raises(LimitError, match="number_bytes"):
            read(b"[%s]" % (b"1" * 5001), limits=Limits(number_bytes=5000)).get("[0]")
    finally:
        sys.set_int_max_str_digits(previous)


@rows("leaf_bytes", [1, 1 << 18])
@rows(
    ("text", "expected"),
    [
        (b'{"a":1,"a":2,"a":3}', {"a": 1, "a#2": 2, "a#3": 3}),
        (b'{"a":1,"a":2,"a#2":3}', {"a": 1, "a#3": 2, "a#2": 3}),
        (b'{"a#2":3,"a":1,"a":2}', {"a#2": 3, "a": 1, "a#3": 2}),
        (b'[{"a":{"b":1,"b":2}}]', [{"a": {"b": 1, "b#2": 2}}]),
        (b'{"a":1,"\\u0061":2}', {"a": 1, "a#2": 2}),
    ],
)
def test_duplicate_keys_are_numbered_and_warned_of(text, expected, leaf_bytes):
    extraction = read(text, limits=Limits(leaf_bytes=leaf_bytes))
    assert extraction.root.to_python() == expected
    found = list(extraction.check())
    assert {finding.code for finding in found} == {"duplicate-key"}
    assert all(finding.severity is Severity.WARNING for finding in found)
    assert extraction.status is Status.COMPLETE


def test_many_duplicates_take_linear_time():
    """Thousands of one key: each name must not be searched for from ``#2`` on."""
    count = 20_000
    for limits in (Limits(leaf_bytes=1 << 20), Limits(leaf_bytes=1)):
        found = read(b"{" + b'"a":1,' * count + b'"b":1}', limits=limits).root.to_python()
        assert len(found) == count + 1
        assert found[f"a#{count}"] == 1


def test_byte_order_mark_is_a_warning():
    extraction = read(b'\xef\xbb\xbf {"a": 1}')
    assert extraction.root.to_python() == {"a": 1}
    assert [(finding.code, finding.severity) for finding in extraction.check()] == [
        ("byte-order-mark", Severity.WARNING)
    ]
    assert read(b"\xef\xbb\xbf").status is Status.TRUNCATED


def test_one_zero_byte_does_not_make_it_utf16():
    extraction = read(b'{"\x00a": 1, "b": 2}')
    assert extraction.get("b") == 2
    assert extraction.status is Status.DAMAGED
    assert extraction.root.child(0).status is Status.DAMAGED


@pytest.mark.parametrize("kind", [b'"%s"', b"[%s]"])
def test_text_behind_a_child_is_not_swallowed(kind):
    """A child that looks whole at both ends, but is two values: found out when it is loaded."""
    inner = kind % (b"1," * 200 + b"1")
    extraction = read(b"[%s %s, 7]" % (inner, inner))
    node = extraction.node("[0]")
    if node.shape == "scalar":
        with pytest.raises(MalformedError):
            node.load()
    else:
        assert len(node) == 201
    assert node.status is Status.DAMAGED
    assert extraction.get("[1]") == 7


# -- cut and changed -------------------------------------------------------------------------------------------------

SAMPLES = [
    NASTY,
    b'[ [], {}, "", -0, [[[[[[[[[[1]]]]]]]]]], {"k": {"k": {"k": false}}}, "\\"\\\\", 1e3 , true ]\n',
    b'\xef\xbb\xbf{"a":[{"b":[1,2,3],"c":"\xe2\x82\xac"},null],"z":1}  ',
]


def whole_pieces(extraction):
    """Return what is delivered whole: scalars and empty containers, by path."""
    found, stack = {}, [extraction.root]
    while stack:
        node = stack.pop()
        kids = list(node.children()) if node.shape != "scalar" else []
        stack.extend(kids)
        if node.status is Status.COMPLETE and not kids:
            found[node.path] = (repr(node.load()) if node.shape == "scalar" else node.kind, node.end)
    return found


@pytest.mark.parametrize("text", SAMPLES)
@KERNELS
def test_every_prefix_gives_the_pieces_that_are_whole_in_it(text, kernel):
    everything = whole_pieces(read(text))
    most = 0
    for size in sweep.some(range(len(text)), 2, ends=16):
        cut = read(text[:size], options={"kernel": kernel})
        found = whole_pieces(cut)
        for path, piece in found.items():
            assert piece == everything[path], (size, path)
        for path, (value, end) in everything.items():
            sure = end <= size if value[0] in "'\"oa" else end < size  # a number or word may go on
            assert not sure or path in found, (size, path)
        assert len(found) >= most, size
        most = len(found)
        if size < len(text.rstrip()):
            assert cut.status is Status.TRUNCATED, size
            assert "truncated" in errors_of(cut), size
            with pytest.raises(EndOfDataError):
                cut.root.to_python()


@pytest.mark.parametrize("text", [b"-12.5e+3", b"true", b'"a\\u00e9"'])
def test_prefixes_of_a_lone_scalar(text):
    for size in range(len(text)):
        cut = read(text[:size])
        try:
            expected = strict_loads(text[:size])
        except ValueError:
            assert cut.status is Status.TRUNCATED, size
            with pytest.raises(EndOfDataError):
                cut.get()
        else:
            assert cut.get() == expected


def test_every_change_of_a_byte():
    text = b'{"a":[{"b":"\\u00e9"},-2e1],"\xc3\xa9":null} '
    for at in range(len(text)):
        for value in {*sweep.some(range(at % 3, 256, 3), 8), *b'"\\[]{},: 1-\n\x00\xff'}:
            changed = text[:at] + bytes([value]) + text[at + 1 :]
            try:
                expected = strict_loads(changed)
            except (ValueError, RecursionError):
                expected = None
            extraction = read(changed)
            assert (expected is None) == bool(errors_of(extraction)), changed
            broken = {node[5] for node in tree(extraction)} - {Status.COMPLETE}
            if expected is not None:
                assert not broken
                assert not errors_of(extraction)


def test_a_cut_number_is_not_guessed():
    assert read(b"[1, 12").root.child(1).status is Status.TRUNCATED
    node = read(b"[1, 12 ").root.child(1)  # its end was seen
    assert (node.value, node.status) == (12, Status.COMPLETE)
    assert read(b"[1, tru").root.child(1).status is Status.TRUNCATED
    assert read(b"[1, tru ").root.child(1).status is Status.DAMAGED
    assert read(b"[1, true").root.child(1).load() is True
    assert len(read(b"[1, ").root) == 1
    cut = read(b'{"a": 1, "b": ').root
    assert [(kid.key, kid.kind, kid.status) for kid in cut.children()] == [
        ("a", "number", Status.COMPLETE),
        ("b", "unknown", Status.TRUNCATED),
    ]
    assert len(read(b'{"a": 1, "b').root) == 1


# -- whitespace, long keys, long values ------------------------------------------------------------------------------


@rows("blanks", [0, 300, 500, 5_000, 70_000])
@rows("size", [1, 200, 300, 5_000, 300_000])
def test_whitespace_of_any_length_around_values_of_any_length(blanks, size):
    blank, value = b" " * blanks, "v" * size
    text = b'[%s"%s"%s,%s7%s]' % (blank, value.encode(), blank, blank, blank)
    root = read(text).root
    assert [kid.load() for kid in root.children()] == [value, 7]
    assert root[0].start == 1 + blanks
    assert root[0].end == 1 + blanks + size + 2
    text = b'{%s"k"%s:%s"%s"%s,"l":%s[]}' % (blank, blank, blank, value.encode(), blank, blank)
    root = read(text).root
    assert root.load() == {"k": value, "l": []}
    assert root["k"].range.read() == b'"%s"' % value.encode()
    for cut in (len(text) - 1, len(text) - 2, text.index(b'"l"')):
        assert read(text[:cut]).root["k"].load() == value
    assert list(read(text).check()) == []


@pytest.mark.parametrize("size", [300, 5_000, 270_000, 900_000])
def test_keys_of_any_length(size):
    key = "k" * size
    text = dump({"a": 1, key: 2, "b": 3, **{f"x{number}": 0 for number in range(100)}})
    for way in ({}, {"block_size": 1000}):
        extraction = read(text, **way)
        root = extraction.root
        assert root[key].load() == 2
        assert root["b"].load() == 3
        assert root[key].load() == 2  # by the table of keys
        assert [kid.key for kid in root.children()][:3] == ["a", key, "b"]
        assert extraction.node(root[key].path) is root.find(key) or root[key].ordinal == 1
        assert list(extraction.check()) == []


def test_a_key_above_the_limit_is_refused_by_name():
    text = b'{"a": 1, "%s": 2, "b": 3}' % (b"k" * 400_000)
    extraction = read(text, limits=Limits(name_bytes=100_000))
    root = extraction.root
    assert (root["a"].load(), root["b"].load()) == (1, 3)
    node = root.child(1)
    assert node.status is Status.UNSUPPORTED
    with pytest.raises(LimitError, match=r"Limits\(name_bytes"):
        node.load()


@pytest.mark.parametrize(
    ("size", "kernel"), sweep.part(itertools.product([70_000, 300_000, 1_200_000], ["stdlib", "numpy"]))
)
def test_long_strings_are_left_in_the_file(size, kernel):
    value = 'aé\n"😀' * (size // 5)
    text = dump({"before": 1, "long": value, "after": [value]})
    extraction = read(text, options={"kernel": kernel})
    node = extraction.node("long")
    assert node.value is UNLOADED_VALUE
    assert not node.loaded
    assert (node.status, node.kind) == (Status.COMPLETE, "string")
    raw = json.dumps(value, ensure_ascii=False).encode()
    assert node.open().read() == raw
    assert node.load() == value
    assert node.value == value
    node.unload()
    assert node.value is UNLOADED_VALUE
    assert node.load() == value
    assert extraction.get("after[0]") == value
    assert read(text).root.to_python() == {"before": 1, "long": value, "after": [value]}
    with pytest.raises(LimitError, match=r"Limits\(scalar_bytes"):
        read(text, limits=Limits(scalar_bytes=1000)).get("long")
    assert read(raw).root.load() == value  # the whole document
    assert read(raw).status is Status.COMPLETE
    with pytest.raises(EndOfDataError):
        read(raw[:-1]).root.load()
    assert read(raw[:-1]).status is Status.TRUNCATED
    assert read(raw + b"1").status is Status.DAMAGED


def test_listing_long_children_reads_only_their_ends():
    text = dump(["x" * 500_000, ["y" * 500_000], {"z": "z" * 500_000}] * 2)
    extraction = read(text)
    assert len(extraction.root) == 6
    before = extraction.session.stats.bytes
    assert [kid.kind for kid in extraction.root.children()] == ["string", "array", "object"] * 2
    assert extraction.session.stats.bytes - before < 20_000


# -- depth -----------------------------------------------------------------------------------------------------------


@KERNELS
@pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_million_levels_are_scanned_flat(kernel, opener, closer):
    depth = 10**6
    text = opener * depth + b"1" + closer * depth
    extraction = read(text, options={"kernel": kernel}, limits=Limits(depth=5))
    root = extraction.root
    assert len(root) == 1
    assert extraction.status is Status.COMPLETE
    assert root.end == len(text)
    node = root
    for level in range(4):
        node = node.child(0)
        assert node.depth == level + 1
        assert node.range.size == len(text) - (level + 1) * (len(opener) + 1)
    refused = node.child(0)
    with pytest.raises(LimitError, match=r"Limits\(depth"):
        refused.child(0)
    with pytest.raises(LimitError, match=r"Limits\(depth"):
        refused.load()
    with pytest.raises(LimitError):
        root.to_python()


def test_the_default_depth():
    depth = 999
    text = b"[" * depth + b"7" + b"]" * depth
    node = read(text).root
    while node.shape != "scalar":
        node = node[0]
    assert (node.load(), node.depth) == (7, depth)
    value = read(text).root.to_python()
    for _ in range(depth):
        (value,) = value
    assert value == 7


# -- wide ------------------------------------------------------------------------------------------------------------

WIDE = 120_000  # above DENSE_LIMIT


@pytest.fixture(scope="module")
def wide() -> bytes:
    return b"{" + b",".join(b'"key%d": %d' % (number, number) for number in range(WIDE)) + b"}"


@KERNELS
def test_a_wide_map(wide, kernel):
    extraction = read(wide, options={"kernel": kernel})
    root = extraction.root
    assert len(root) == WIDE
    assert root.index.memory <= WIDE
    for ordinal in (0, 63, 64, 99_999, 100_000, 112_345, WIDE - 1):
        assert (root.child(ordinal).key, root.child(ordinal).value) == (f"key{ordinal}", ordinal)
    with pytest.raises(IndexError):
        root.child(WIDE)
    assert root.index.table is None
    assert root.index.memory <= WIDE
    assert root["key110000"].value == 110_000
    assert root["key100001"].value == 100_001  # the second look-up makes the table
    assert root.index.table is not None
    assert root.index.memory <= 13 * WIDE
    before = extraction.session.stats.bytes
    for number in (5, 77_777, WIDE - 1, 100_000):
        assert root[f"key{number}"].value == number
    assert root.find(f"key{WIDE}") is None
    assert extraction.session.stats.bytes - before < 5 * 40_000
    assert root.child(115_000).path == "key115000"


def test_all_children_of_a_wide_list(wide):
    text = wide[: wide.index(b',"key60000"')].replace(b"{", b"[").replace(b'": ', b'", ') + b"]"
    root = read(text).root
    assert [kid.value for kid in root.children()][1::2] == list(range(60_000))
    assert root.index.memory <= 120_000
    assert [kid.value for kid in root[113_455:113_458]] == [56_727, "key56728", 56_728]


def test_the_first_look_up_stops_early(wide):
    extraction = read(wide)
    assert extraction.root["key100"].value == 100
    assert extraction.session.stats.bytes < 64 << 10
    assert not extraction.root.index.complete
    assert extraction.root.value is UNLOADED_VALUE
    extraction = read(wide)
    assert next(iter(extraction.root.children())).key == "key0"
    assert extraction.session.stats.bytes < 64 << 10
    extraction = read(wide)
    assert extraction.root.child(1000).value == 1000
    assert extraction.session.stats.bytes < 128 << 10


@pytest.mark.parametrize("way", [*WAYS, {"options": {"kernel": "stdlib"}, "block_size": 100}])
def test_find_by_occurrence(way):
    members = [b'"k": %d' % number if number % 3 == 0 else b'"x%d": 0' % number for number in range(130)]
    text = b"{" + b" , ".join(members) + b"}"
    expected = [number for number in range(130) if number % 3 == 0]
    for warm in (False, True):
        for occurrence in (1, 2, 30, len(expected)):
            root = read(text, **way).root
            if warm:
                root.load()
                root.find("zz")
            assert root.find("k", occurrence).ordinal == expected[occurrence - 1]
            assert root.find("k", occurrence).ordinal == expected[occurrence - 1]
        root = read(text, **way).root
        assert root.find("k", len(expected) + 1) is None
        assert root.find("k", len(expected) + 1) is None
        assert root["k"].load() == 0


@rows("text", [b"{2}", b'{"a":1,2}', b'{"a":1,"k"}', b'{"a":1,"\\ud800":2}', b'{"a":1, [}'])
@rows("block_size", [0, 1])
def test_looking_for_a_key_past_a_child_without_one(text, block_size):
    expected = tree(read(text))
    extraction = read(text, block_size=block_size)
    assert extraction.root.find("zz") is None
    assert tree(extraction) == expected
    fresh, loaded = read(text, block_size=block_size).root, read(text).root
    loaded.load()
    without = [kid.ordinal for kid in loaded.children() if kid.key is None]
    first, second = fresh.find(None), loaded.find(None)
    assert [kid.ordinal for kid in (first, second) if kid is not None] == without[:1] * 2


# -- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
import sys
import pparse
with pparse.open(sys.argv[1], format="json", options={"kernel": sys.argv[2]}) as document:
    if sys.argv[2] == "numpy":
        import numpy
    count = sum(1 for child in document.root.children() if child.status is pparse.Status.COMPLETE)
    assert count == int(sys.argv[3]), count
    list(document.check())
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="VmHWM is read from /proc")
@KERNELS
def test_ten_times_the_file_takes_the_same_memory(tmp_path, kernel):
    record = dump({"id": 1, "text": "x" * 1500, "more": [{"a": [1, 2, 3]}, "s" * 400]})
    peaks = []
    for count in (500, 5_000):
        path = tmp_path / f"{count}.json"
        with path.open("wb") as file:
            file.write(b"[" + record)
            for _ in range(count - 1):
                file.write(b"," + record)
            file.write(b"]")
        command = [sys.executable, "-c", MEASURE, path, kernel, str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    assert path.stat().st_size > 9e6
    assert abs(peaks[1] - peaks[0]) <= 2048, peaks


# -- sources that misbehave ------------------------------------------------------------------------------------------


def everything(extraction):
    """Look at a document in every way there is."""
    root = extraction.root
    found = [root.find("long") is not None, tree(extraction), [str(finding) for finding in extraction.check()]]
    root.unload()
    found += [extraction.root["last"].load(), list(root.keys()), repr(root.to_python())]
    return found


def big_document() -> bytes:
    members = {f"m{number}": number if number % 10 else [number, {"x": "y" * 30}] for number in range(70)}
    return dump({**members, "long": "é" * 2_500, "deep": [[[[[{"k": []}]]]]], "last": 5})


@pytest.mark.parametrize("way", [{}, {"options": {"kernel": "stdlib"}, "limits": Limits(leaf_bytes=100)}])
def test_a_read_that_fails_leaves_nothing_wrong_behind(way):
    text = big_document()
    expected = everything(read(text, **way))
    for number in sweep.faults(10_000, 18):
        data = FailingData(text, number)
        extraction = read(data, **way)
        try:
            everything(extraction)
        except SourceError:
            data.fail_at = 0
            assert everything(extraction) == expected, number
        else:
            assert data.reads < number  # it ran through without meeting the fault
            break
    assert number > 50


@pytest.mark.parametrize("text", [NASTY, b'{"a":1,"b":', b'{"a":1,"b":2,}', b'{"a":1,3', b'{"a":1,3}', b"[1,2] x"])
def test_a_read_that_fails_in_damaged_text(text):
    expected = (tree(read(text)), [str(finding) for finding in read(text).check()])
    for number in sweep.faults(1000, 9):
        data = FailingData(text, number)
        extraction = read(data, block_size=3)
        try:
            extraction.root.shape == "map" and extraction.root.find("zz")
            tree(extraction)
            list(extraction.check())
        except SourceError:
            data.fail_at = 0
            assert tree(extraction) == expected[0], number
        else:
            break
    assert number > 5


def test_cancelling_and_going_on():
    text = dump([{"a": number} for number in range(5000)])
    asked = 0

    def cancel():
        nonlocal asked
        asked += 1
        return asked == 2

    extraction = read(text, cancel=cancel)
    with pytest.raises(CancelledError):
        len(extraction.root)
    assert extraction.root.to_python() == [{"a": number} for number in range(5000)]


def test_a_limit_on_children_does_not_give_a_wrong_tree_later():
    extraction = read(dump(list(range(5000))), limits=Limits(entries=3000), block_size=100)
    for _ in range(2):
        with pytest.raises(LimitError, match=r"Limits\(entries"):
            len(extraction.root)
    assert [extraction.root.child(number).value for number in (0, 1, 2900)] == [0, 1, 2900]


@rows("length", [5, None])
@rows("way", WAYS)
def test_a_gap_damages_what_it_touches_and_no_value_before_it(way, length):
    text = b'{"a": [1, 2], "b": {"c": "x", "d": [10, 20, 30]}, "e": 5}'
    at = text.index(b"20")
    extraction = read(GappyData(text, [(at, length)]), **way)
    root = extraction.root
    assert root["a"].load() == [1, 2]
    assert root.status is Status.DAMAGED
    assert root.finding.offset == at
    assert root["b"].status is (Status.DAMAGED if length else Status.TRUNCATED)
    assert root["b"]["c"].load() == "x"
    assert root["b"]["d"][0].load() == 10
    assert len(root) == (3 if length else 2)
    if length:  # reading goes on behind it
        assert root["e"].load() == 5
    assert {"malformed", "truncated"} >= errors_of(extraction) != set()
    with pytest.raises(MalformedError, match="gap"):
        root.to_python()


def test_a_gap_that_begins_exactly_at_a_child_ends_the_object_there():
    text = b'{"a": 1,"b": 2, "c": 3}'
    extraction = read(GappyData(text, [(text.index(b'"b"'), None)]))
    assert [kid.key for kid in extraction.root.children()] == ["a"]
    assert extraction.status is Status.DAMAGED


def test_a_gap_after_the_document():
    extraction = read(GappyData(b"[1, 2] \n  ", [(8, 1)]))
    assert extraction.root.to_python() == [1, 2]
    assert errors_of(extraction) == {"trailing-data"}


def test_a_source_of_unknown_size():
    text = big_document()
    assert tree(read(UnknownSizeData(text))) == tree(read(text))
    assert list(read(UnknownSizeData(text)).check()) == []
    assert read(UnknownSizeData(text[:-1])).status is Status.TRUNCATED


@pytest.mark.parametrize("way", WAYS)
def test_text_embedded_in_other_data_ends_with_its_extraction(way):
    """What follows belongs to something else, even where the text is cut."""
    outer = pparse.open(b'xx{"a": 1, "b": [2, 3]}, "c": 4}', format="json", **way)
    whole = outer.child("whole", outer.data, 2, 23, "json")
    assert whole.root.to_python() == {"a": 1, "b": [2, 3]}
    assert list(whole.check()) == []
    cut = outer.child("cut", outer.data, 2, 22, "json")
    assert cut.status is Status.TRUNCATED
    assert list(cut.root.keys()) == ["a", "b"]
    assert cut.root["b"].status is Status.COMPLETE
    assert cut.root.end == 22


# -- the parser itself -----------------------------------------------------------------------------------------------


def test_members_of_an_object_decoded_in_batches():
    members = {f"k{number}": {"v": [number, "x" * (number % 50)]} for number in range(3000)}
    text = dump(members)
    extraction = read(text)
    parser = extraction.parse().parser
    assert [(key, value) for _, key, value, entry in parser.each_member(extraction.root)] == list(members.items())
    assert [number for number, *_ in parser.each_member(extraction.root, 2900)] == list(range(2900, 3000))
    broken = text.replace(b'"k1500": {', b'"k1500": {x', 1)
    found = {key: (value, entry) for _, key, value, entry in parser_of(broken)}
    assert len(found) == 3000
    assert found["k1499"][0] == members["k1499"]
    assert found["k1500"][0] is UNLOADED_VALUE
    assert found["k1500"][1].status is Status.DAMAGED
    cut = {key: (value, entry) for _, key, value, entry in parser_of(text[: text.index(b'"k2000"') + 20])}
    assert cut["k1999"][0] == members["k1999"]
    assert cut["k2000"][1].status is Status.TRUNCATED


def test_a_small_object_is_decoded_without_an_index_wherever_it_stands():
    members = {f"k{number}": number for number in range(1000)}
    small = dump(members)
    for before in (0, 3, Limits().leaf_bytes + 1):
        outer = read(b"[%s]" % (b" " * before) + small)
        extraction = outer.child("small", outer.data, 2 + before, 2 + before + len(small), "json")
        found = list(extraction.parse().parser.each_member(extraction.root))
        assert [(key, value) for _, key, value, _ in found] == list(members.items())
        assert extraction.root.index is None


def parser_of(text):
    extraction = read(text)
    return extraction.parse().parser.each_member(extraction.root)


def test_a_failing_read_is_not_taken_for_damage_by_members():
    text = b'{"a": x, "b": [%s]}' % (b"1," * 2000 + b"1")
    expected = [(key, value) for _, key, value, _ in parser_of(text)]
    assert expected[1] == ("b", [1] * 2001)
    failures = 0
    for number in range(1, 200):
        data = FailingData(text, number)
        extraction = read(data, limits=Limits(leaf_bytes=1000))
        try:
            found = list(extraction.parse().parser.each_member(extraction.root))
        except SourceError:
            failures += 1
            continue
        assert [(key, value) for _, key, value, _ in found] == expected
        if data.reads < number:
            break
    assert failures == number - 1


def test_the_kernel_is_an_option():
    with pytest.raises(ValueError, match="kernel must be"):
        read(b"[]", options={"kernel": "fortran"}).root  # noqa: B018
    for kernel in ("auto", "stdlib", "numpy"):
        assert read(b"[1]", options={"kernel": kernel}).root.to_python() == [1]


@pytest.mark.parametrize("text", [b"[1]", b'{"a":1}', b" \n[", b"\xef\xbb\xbf{}", b'"x"', b"12", b"null", b"{"])
def test_it_is_recognised_without_its_name(text):
    assert pparse.open(text).format == "json"


@pytest.mark.parametrize("text", [b"", b"hello", b"{x", b"\x80\x02}", b"<html>", b"12 apples", b"[object Object]"])
def test_other_things_are_not_taken_for_json(text):
    try:
        extraction = pparse.open(text)
        assert extraction.format != "json" or extraction.parse().parser.match(excerpt_of(extraction)) < 3
    except pparse.FormatError:
        pass


def test_the_table_of_keys_holds_twelve_bytes_a_child(wide):
    root = read(wide).root
    table = root.result.key_table(root)
    assert table.memory == 12 * WIDE
    assert list(table.candidates("key7")) == [7]
    assert array("q").itemsize == 8


def test_a_number_that_python_itself_does_not_convert_is_told_so():
    text = b"[%s]" % (b"1" * 5000)
    with pytest.raises(LimitError) as caught:
        read(text, limits=Limits(number_bytes=9000)).get("[0]")
    assert "more than 4300 digits, which Python does not convert" in caught.value.reason
    assert caught.value.option == "PYTHONINTMAXSTRDIGITS=0 in the environment"
