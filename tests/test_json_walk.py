"""The streaming walk over JSON: it sees what the tree shows, and finds every fault at its place."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse import UNLOADED_VALUE, Limits, Severity, Status
from pparse.errors import CancelledError, LimitError, PparseError
from pparse.parsers.json.text import StrictDecoder
from tests import sweep
from tests.rows import rows

BLOCK = 256 << 10  # what the walk reads at a time

TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=12)
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.integers(240, 270).map(lambda size: "\n" * (size // 2) + "x" * (size % 7)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=25,
)


def read(source, **more):
    return pparse.open(source, format="json", **more)


def dump(value, **more) -> bytes:
    return json.dumps(value, ensure_ascii=False, **more).encode()


def nodes_of(root):
    """Yield ``(depth, node)``, depth first."""
    stack = [(0, root)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        if node.shape != "scalar":
            stack.extend((depth + 1, kid) for kid in reversed(list(node.children())))


def faults(extraction, **more) -> list[tuple[str, str, int]]:
    return [(finding.code, finding.path, finding.offset) for finding in extraction.check(**more)]


# -- as the tree -----------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(80))
@given(document=DOCUMENTS, indent=st.sampled_from([None, 3]))
def test_visits_are_the_nodes_of_the_tree(document, indent):
    text = b" " + dump(document, indent=indent) + b"\n"
    visits = [
        (visit.depth, visit.path, visit.key, visit.ordinal, visit.kind, visit.shape, visit.start, visit.value)
        for visit in read(text).walk()
    ]
    expected = [
        (
            depth,
            node.path,
            node.key,
            node.ordinal,
            node.kind,
            node.shape,
            node.start,
            node.value if node.shape == "scalar" else UNLOADED_VALUE,
        )
        for depth, node in nodes_of(read(text).root)
    ]
    assert visits == expected
    ends = [visit.end for visit in read(text).walk() if visit.shape == "scalar"]
    assert ends == [node.end for _, node in nodes_of(read(text).root) if node.shape == "scalar"]
    assert list(read(text).check()) == []


def test_a_walk_can_start_anywhere():
    extraction = read(dump({"a": [1, {"b": [2, 3]}], "c": 4}))
    parser = extraction.parse().parser
    node = extraction.node("a[1]")
    visits = list(parser.walk(node))
    assert [visit.depth for visit in visits] == [0, 1, 2, 2]
    assert [visit.kind for visit in visits] == ["object", "array", "number", "number"]
    paths = [visit.path for visit in parser.walk(node)]
    assert paths == ["a[1]", "a[1].b", "a[1].b[0]", "a[1].b[1]"]
    assert [visit.value for visit in parser.walk(extraction.node("c"))] == [4]


def test_without_detail_what_is_whole_is_passed_over():
    text = dump({"a": [[1, 2], {"b": 3}], "c": 4})
    visits = list(read(text).walk(detail=False))
    assert len(visits) < 5
    assert visits[0].depth == 0


def test_a_cut_document_is_walked_to_its_end():
    extraction = read(b'{"a": [1, 2], "b": {"c": "x", "d": 12')
    visits = [(visit.path, visit.status) for visit in extraction.walk()]
    assert visits[1:] == [
        ("a", Status.COMPLETE),
        ("a[0]", Status.COMPLETE),
        ("a[1]", Status.COMPLETE),
        ("b", Status.COMPLETE),
        ("b.c", Status.COMPLETE),
        ("b.d", Status.TRUNCATED),
    ]
    assert ("truncated", "b.d", 37) in faults(extraction)


def test_a_lone_scalar():
    for text, value in ((b" 12 ", 12), (b'"x"', "x"), (b"null", None)):
        (visit,) = read(text).walk()
        assert (visit.value, visit.depth, visit.status) == (value, 0, Status.COMPLETE)
        assert list(read(text).check()) == []
    assert [code for code, *_ in faults(read(b'"%s' % (b"x" * 70_000)))] == ["truncated"]
    assert [code for code, *_ in faults(read(b'"%s\x01"' % (b"x" * 70_000)))] == ["malformed"]


# -- faults, each at its place ---------------------------------------------------------------------------------------

FAULTS = [
    (b"[1, 2", [("truncated", "", 5), ("truncated", "[1]", 5)]),
    (b'{"a": "x', [("truncated", "", 8), ("truncated", "a", 8)]),
    (b'{"a": 1, "b', [("truncated", "", 11), ("truncated", "a", 11)]),
    (b"[1, 2 ", [("truncated", "", 6), ("truncated", "[1]", 6)]),
    (b"[1,]", [("malformed", "", 2), ("malformed", "[1]", 3)]),
    # Behind what may have been any number of elements, the numbers of the others are not sure.
    (b"[1,,2]", [("unsure-number", "", 3), ("malformed", "[1]", 3)]),
    (b"[1 2, 3]", [("unsure-number", "", 3), ("malformed", "[0]", 3)]),
    (b"[nope, 3]", [("unsure-number", "", 1), ("malformed", "[0]", 1)]),
    (b"[-, 3]", [("unsure-number", "", 1), ("malformed", "[0]", 1)]),
    (b"[1e999, 3]", [("unsupported", "[0]", 1)]),
    (b"[0, %s, 3]" % (b"1" * 4301), [("limit", "[1]", 4)]),
    (b'{"a": {"b": [1, tru, 2]}}', [("unsure-number", "", 15), ("malformed", "a.b[1]", 16)]),
    # Nothing is cut: the very byte, the array that it is not of, and the element in front of it, which may be cut.
    (b'{"a": {"b": [1, 2}}', [("malformed", "", 17), ("malformed", "a.b", 16), ("malformed", "a.b[1]", 15)]),
    (b'{"a": {"b": [1, 2}}}', [("malformed", "a.b[1]", 17)]),
    (b'{"a" 1, "b": tru}', [("malformed", "a", 5), ("malformed", "b", 13)]),
    (b"{1: 2}", [("malformed", "", 1)]),
    (b'{"a": }', [("malformed", "a", 6)]),
    (b'["ab\x01cd", "]"]', [("unsure-number", "", 1), ("malformed", "[0]", 4)]),
    (b'["a\\qb"]', [("malformed", "[0]", 3)]),
    (b'["a\xffb"]', [("malformed", "[0]", 3)]),
    (b'["ab\\ud800"]', [("malformed", "[0]", 4)]),
    (b'{"\\ud800": 1, "b": x}', [("malformed", "", 2), ("malformed", "b", 19)]),
    (
        b'[[1 2], {"k": [tru, 5, nul]}, "\x02"]',
        [
            ("unsure-number", "", 4),
            ("malformed", "[0][0]", 4),
            ("malformed", "[1].k[0]", 15),
            ("malformed", "[1].k[2]", 23),
            ("malformed", "[2]", 31),
        ],
    ),
    (b"[1] 2", [("trailing-data", "", 4)]),
    (b"\xef\xbb\xbf[tru]", [("byte-order-mark", "", 0), ("malformed", "[0]", 4)]),
    (b'{"a": 1, "b": {"c": 1, "c": 2}}', [("duplicate-key", "b.c#2", 23)]),
]


@rows(("text", "expected"), FAULTS)
def test_faults_are_found_where_they_are(text, expected):
    assert faults(read(text)) == expected
    # The same faults behind what a block boundary cuts.
    if not text.startswith((b"{", b"\xef")) and expected[0][1]:
        padding = b"[%s]" % b",".join([b'"%s"' % (b"p" * 1000)] * 300)
        moved = [(code, f"[1]{path}", offset + len(padding) + 2) for code, path, offset in expected]
        assert faults(read(b"[" + padding + b"," + text + b"]")) == moved


@rows(("text", "expected"), FAULTS)
def test_a_walk_in_detail_finds_the_same(text, expected):
    extraction = read(text)
    for visit in extraction.walk():
        assert visit.path is not None
    found = [(finding.code, finding.path, finding.offset) for finding in extraction.findings]
    assert found == expected


def test_a_fault_does_not_hide_the_next_one():
    """Each row is broken in its own way; what comes behind a fault is read as it should be."""
    rows = [b"1", b"tru", b'"\\x"', b'{"a" 1}', b'{"a": [1, ]}', b'"\x00, [1"', b"2", b'{"k": "v"}', b"[1 2]", b'"ok"']
    text = b"[" + b", ".join(rows) + b"]"
    found = [path for code, path, _ in faults(read(text)) if code == "malformed"]
    assert found == ["[1]", "[2]", "[3].a", "[4].a[1]", "[5]", "[8][0]"]
    kids = [kid for kid in read(text).root.children() if kid.kind != "invalid" and kid.shape == "scalar"]
    assert [(kid.load(), kid.status) for kid in kids] == [
        (1, Status.COMPLETE),
        (2, Status.DAMAGED),
        ("ok", Status.DAMAGED),  # which elements they are is not sure
    ]


def test_duplicate_keys_are_warnings_with_their_path():
    extraction = read(b'[{"a": 1, "b": {"x": 1, "x": 2}, "a": 3}]')
    found = list(extraction.check())
    assert [(finding.path, finding.severity) for finding in found] == [
        ("[0].b.x#2", Severity.WARNING),
        ("[0].a#2", Severity.WARNING),
    ]
    assert all("occurs more than once" in finding.reason for finding in found)


@pytest.mark.parametrize("count", [5_000, 101_000])
def test_duplicates_among_many_keys_are_counted(count):
    keys = [*range(count), 7, count - 1]
    text = b"{" + b",".join(b'"k%d":[]' % key for key in keys) + b"}"
    (finding,) = read(text).check()
    assert (finding.code, finding.reason) == ("duplicate-key", "2 keys of this object occur more than once")


def test_faults_beyond_the_limit_are_counted():
    depth = 300
    text = b"[" * depth + b",".join([b"1 1"] * 5000) + b"]" * depth
    found = list(read(text, limits=Limits(findings=100)).check())
    assert len(found) == 101
    assert found[0].code == "unsure-number"
    assert found[1].path == "[0]" * depth
    assert (found[-1].code, found[-1].severity) == ("findings-omitted", Severity.ERROR)  # some of those are errors
    assert found[-1].reason.startswith("4901 more")


def test_a_check_that_is_repeated_says_the_same():
    extraction = read(b'{"a": [tru], "a": 1, "b": 1e999}')
    first = faults(extraction)
    assert len(first) == 3
    assert faults(extraction) == first
    for _, node in nodes_of(extraction.root):
        node.unload()
    assert set(faults(extraction)) == set(first)


# -- deep ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opener", "closer", "depth", "detail"),
    sweep.part(
        [
            (b"[", b"]", 10**6, True),
            (b"[", b"]", 10**5, False),
            (b'{"a":', b"}", 10**5, True),
            (b'{"a":', b"}", 10**5, False),
            (b'[1,{"k":', b"},2]", 10**5, True),
            (b'[1,{"k":', b"},2]", 10**5, False),
        ]
    ),
)
def test_a_walk_of_levels_far_beyond_the_limit_ends(opener, closer, depth, detail):
    depth = depth if sweep.full else depth // 4  # more than a block all the same
    text = opener * depth + b"null" + closer * depth
    extraction = read(text)
    visits = sum(1 for _ in extraction.walk(detail=detail))
    assert visits >= 1000
    assert [(finding.code, finding.severity) for finding in extraction.findings] == [("limit", Severity.WARNING)]
    assert "Limits(depth" in extraction.findings[0].reason
    assert extraction.session.stats.bytes < 3 * len(text) + 4 * BLOCK
    assert extraction.session.budget.peak < 16 << 20
    assert extraction.session.budget.used < 1 << 20


@pytest.mark.parametrize("depth", [999, 1000, 1001])
def test_a_walk_goes_as_deep_as_nodes_do(depth):
    text = b"[" * depth + b"]" * depth
    extraction = read(text)
    assert [visit.depth for visit in extraction.walk()] == list(range(min(depth, 1001)))
    assert len(extraction.findings) == (1 if depth > 1000 else 0)
    node = extraction.root
    while len(node):
        node = node[0]
        if node.depth == 1000:
            break
    assert node.depth == min(depth - 1, 1000)


def test_faults_below_the_depth_limit_are_found_too():
    text = b"[" * 50 + b"tru" + b"]" * 50
    codes = [code for code, *_ in faults(read(text, limits=Limits(depth=10)))]
    assert codes == ["limit", "malformed"]
    assert "truncated" in [code for code, *_ in faults(read(b"[" * 10**5))]


SIZE = 200_000
HOSTILE = {
    "openers": b"[" * SIZE,
    "pairs": b"[" + b"[]" * SIZE + b"]",
    "quotes": b'["' + b'"' * SIZE,
    "backslashes": b'["' + b"\\" * SIZE,
    "stray backslashes": b"[" + b"\\" * SIZE + b"]",
    "half-open": b"[[]," * (SIZE // 4),
    "words": b"[" + b"x " * SIZE,
    "one word": b"[" + b"7" * SIZE + b"]",
    "one key": b'{"' + b"k" * 2 * SIZE,
    "colons": b"{" + b":" * SIZE + b"}",
    "closers": b"[" + b"}" * SIZE,
    "blank": b"[" + b" " * SIZE + b"x",
    "deep items": b"[" + b'{"a":[[[[[[[[1]]]]]]]]},' * (SIZE // 30) + b"1]",
    "broken items": b"[" + b'{"a":[[[1,2,tru]]]},' * (SIZE // 30) + b"1]",
}


@rows("name", sweep.part(HOSTILE, 0.3))
def test_hostile_text_is_read_a_few_times_at_most(name):
    text = HOSTILE[name]
    extraction = read(text)
    found = list(extraction.check())
    assert bool(found) == (name != "deep items")
    assert extraction.session.stats.bytes <= 4 * len(text) + 8 * BLOCK
    assert extraction.session.budget.peak <= extraction.session.budget.limit


# -- long strings over block borders ---------------------------------------------------------------------------------

GOOD = {
    "surrogate pair": b"\\ud83d\\ude00",
    "pairs": b"\\uD83D\\uDE00\\ud83d\\ude00\\ud83d\\ude00",
    "escapes": b'\\n\\"\\\\\\/\\u00e9\\t',
    "escaped backslashes": b"\\\\\\\\\\\\ud83d\\\\",
    "four bytes": "😀😀".encode(),
    "three bytes": "€".encode(),
    "two bytes": "éé".encode(),
    "mixed": "é\\ud83d\\ude00€\\\\😀".encode(),
}
BAD = {
    "lone high": (b"\\ud83dx", 0),
    "lone low": (b"x\\ude00", 1),
    "high high": (b"\\ud83d\\ud83d\\ude00", 0),
    "half pair, then an escape": (b"\\ud83d\\n", 0),
    "unknown escape": (b"\\x", 0),
    "short escape": (b"\\u12g4", 0),
    "control": (b"\x01", 0),
    "not UTF-8": (b"\xff", 0),
    "cut UTF-8": (b"x\xe2\x82x", 1),
    "cut UTF-8, then an escape": (b"\xf0\x9f\\n", 0),
    "surrogate in UTF-8": (b"\xed\xa0\xbd", 0),
}


def around_the_border(piece: bytes):
    """Yield texts in which ``piece`` stands at every place around the border of two blocks, and its offset there."""
    for place in sweep.some(range(BLOCK - len(piece) - 14, BLOCK + 4), 3):
        head = b'["'
        offset = len(head) + place
        yield head + b"s" * place + piece + b',]["'.replace(b'"', b"") + b"t" * 40 + b'", 5, tru]', offset


@pytest.mark.parametrize("name", GOOD)
def test_good_strings_at_every_alignment(name):
    for text, offset in around_the_border(GOOD[name]):
        assert faults(read(text)) == [("malformed", "[2]", len(text) - 4)], offset - BLOCK


@rows("name", BAD)
def test_bad_strings_at_every_alignment(name):
    piece, at = BAD[name]
    for text, offset in around_the_border(piece):
        found = faults(read(text))
        assert [fault for fault in found if fault[0] == "malformed"] == [
            ("malformed", "[0]", offset + at),
            ("malformed", "[2]", len(text) - 4),
        ], offset - BLOCK
        # Strings with these may have been several, run together: how many elements there were is not known.
        doubted = name in ("unknown escape", "short escape", "control")
        assert [fault for fault in found if fault[0] != "malformed"] == [("unsure-number", "", 1)] * doubted


def test_a_long_string_that_is_cut_anywhere_at_its_end():
    whole = b'["' + b"x" * BLOCK + b'\\ud83d\\ude00\xf0\x9f\x98\x80\\n\\\\"'
    for size in sweep.some(range(len(whole) - 24, len(whole)), 2):
        codes = {code for code, *_ in faults(read(whole[:size]))}
        assert codes == {"truncated"}, size
    assert {code for code, *_ in faults(read(whole))} == {"truncated"}  # of the list


@pytest.mark.parametrize("step", [1000, 65_536, BLOCK - 1])
def test_strings_and_keys_over_many_borders(step):
    value = {f"key {number} é": ['\\"😀\n' * (step // 10), number] for number in range(3_000_000 // step // 3 + 2)}
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert faults(read(text)) == []
        numbers = [visit.value for visit in read(text).walk() if visit.kind == "number"]
        assert numbers == list(range(len(value)))


def test_a_key_longer_than_a_block():
    key = "k" * (BLOCK + 1000)
    assert faults(read(dump({key: 1, "b": [1]}))) == []
    assert [visit.key for visit in read(dump({key: 1, "b": 2})).walk()][1:] == [key, "b"]
    found = faults(read(dump({key: 1, "b": [1]}), limits=Limits(name_bytes=BLOCK)))
    assert [code for code, *_ in found] == ["limit"]


# -- memory ----------------------------------------------------------------------------------------------------------


def test_long_keys_are_not_kept():
    text = dump({f"{number}" + "k" * 100_000: number for number in range(150)})
    extraction = read(text, budget="2MiB", options={"kernel": "stdlib"})
    tracemalloc.start()
    try:
        assert list(extraction.check()) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(text) > 15e6
    assert peak < 4 << 20


def test_keys_of_open_objects_are_charged():
    level = b"{" + b",".join(b'"k%d":0' % number for number in range(3000)) + b',"in":'
    text = level * 8 + b"1" + b"}" * 8
    with pytest.raises(LimitError, match="budget="):
        list(read(text, budget="1MiB").check())
    extraction = read(text, budget="4MiB")
    assert list(extraction.check()) == []
    extraction.root.unload()
    assert extraction.session.budget.used == 0


def test_a_walk_may_be_given_up():
    extraction = read(dump([[number] for number in range(1000)]))
    walk = extraction.walk()
    assert next(walk).depth == 0
    assert next(walk).depth == 1
    assert extraction.session.budget.used >= 2 * BLOCK
    walk.close()
    del walk
    extraction.root.unload()
    assert extraction.session.budget.used == 0


def test_cancelling_a_walk():
    asked = 0

    def cancel():
        nonlocal asked
        asked += 1
        return asked == 500

    with pytest.raises(CancelledError):
        list(read(dump([[number] for number in range(1000)]), cancel=cancel).walk())


def test_the_errors_of_a_walk_are_ours():
    """Whatever a walk finds, `to_python` finds too, and the other way round."""
    for text, expected in FAULTS:
        worst = [code for code, *_ in expected if code not in ("duplicate-key", "byte-order-mark", "trailing-data")]
        try:
            read(text).root.to_python()
        except PparseError:
            assert worst, text
        else:
            assert not worst, text


@rows("indent", [None, 2])
def test_the_text_of_a_large_value_is_what_dumps_makes_of_it(indent, monkeypatch):
    from pparse.parsers.json import parser, walk

    monkeypatch.setattr(parser, "_REWRITTEN_FROM", 100)
    monkeypatch.setattr(walk, "_LEAF", 64)  # larger ones are gone through
    value = {
        "long": 'é"\\ \n' * 40_000,
        "numbers": [1, -2.5, 1e300, 0.1, *range(500), None, True, *("a, b", "é") * 40, float("nan")],
        "deep": [[[[{}], []], {"k": {"n": [[]] * 3}}]] * 20,
        "": {},
        "é": [],
    }
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        with pparse.open(text.encode()) as document:
            for ensure_ascii in (True, False):
                made = document.result.parser.json_text(document.root, indent, ensure_ascii=ensure_ascii)
                assert "".join(made) == json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def test_a_large_value_that_is_not_whole_or_repeats_a_key_is_not_rewritten(monkeypatch):
    from pparse.parsers.json import parser

    monkeypatch.setattr(parser, "_REWRITTEN_FROM", 100)
    row = b"[" + b"1, " * 200 + b"2]"
    for text, error in (
        (row.replace(b"2]", b"2x]"), pparse.MalformedError),
        (b'{"a": %s, "b": 1e999}' % row, pparse.UnsupportedError),
        (b'{"a": %s, "a": 1}' % row, None),
        (b'{"a": [{"b": 1, "b": 2}], "c": %s}' % row, None),
    ):
        with pparse.open(b"[0]\n%s\n" % text, format="json-lines") as document:
            ask = document.result.parser.json_text
            if error is None:
                assert ask(document.node("[1]"), None, ensure_ascii=True) is None
                assert len(document.node("[1]").to_python()) == 2
            else:
                with pytest.raises(error):
                    ask(document.node("[1]"), None, ensure_ascii=True)


def test_scalars_before_what_is_none_are_looked_through_once(monkeypatch):
    from pparse.parsers.json import walk

    searched, search = [], walk._NOT_SCALAR
    monkeypatch.setattr(walk, "_NOT_SCALAR", lambda *place: searched.append(place[2] - place[1]) or search(*place))
    value = ([7] * 3_000 + [{}] + ["a"] * 3_000 + ["\\"]) * 2
    text = dump(value)
    with read(text) as document:
        assert document.root.to_python() == value
    assert sum(searched) < 8 * len(text)


def test_small_members_are_checked_many_at_a_time(monkeypatch):
    calls = []
    skim, decode = StrictDecoder.skim, StrictDecoder.decode
    monkeypatch.setattr(StrictDecoder, "skim", lambda self, text: calls.append(text) or skim(self, text))
    monkeypatch.setattr(StrictDecoder, "decode", lambda self, text, at: calls.append(text) or decode(self, text, at))
    for value in ({f"k{number}": number for number in range(9000)}, [{"a": [1, "x"]}] * 9000):
        assert list(read(dump({"rows": value})).check()) == []
    assert len(calls) < 50
    keys = [f'"{key}": [1, {{"b": 2.5}}]' for key in ("first", *range(3000), "first", *range(3000, 4000))]
    (finding,) = read(f"{{{', '.join(keys)}}}".encode()).check()
    assert (finding.code, finding.path) == ("duplicate-key", "first#2")


@rows(
    ("text", "end"),
    [
        (b'[{"id": 1}, {"id": 2}, {"id": [{"a": 1}, {"b": 2}]}, {"no": 3}]', 21),  # before the last with this first key
        (b'[1, {"a": "b, 2"}, 3, {"a": 1}]', 20),
        (b'["a", "b", "c, d"]', 9),
        (b'{"a": {"b": 1}, "c": {"d": 2}, "e": {}}', 29),
        (b"[[1,2],[3,[4]],[5]]", 14),
        (b"[1,  2]", 0),
        (b"[1,", 0),
        (b"[1, {", 0),
    ],
)
def test_where_members_end_is_told_by_the_text_around_the_first_comma(text, end):
    from pparse.parsers.json import walk

    brackets, at = 0, 1
    while brackets or text[at : at + 1] != b",":
        brackets += (text[at] in b"[{") - (text[at] in b"]}")
        at += 1
    assert walk._likely_end(text, at) == end


def test_where_a_wrong_guess_ends_is_decoded_twice_at_most(monkeypatch):
    seen, skim = [], StrictDecoder.skim
    monkeypatch.setattr(StrictDecoder, "skim", lambda self, text: seen.append(len(text)) or skim(self, text))
    value = [{"a": [[[[[number]]]]], "b": [{"a": 1}, {"a": 2}]} for number in range(9000)]  # no pattern holds a member
    text = dump(value)
    assert list(read(text).check()) == []
    assert sum(seen) < 4 * len(text)


@rows(
    ("text", "code"),
    [
        (b'[{"a": 1}, {"a": 2}]', None),
        (b"[1, 2, 3] 4", "trailing-data"),
        (b"[1, NaN, 3]", "not-finite"),
        (b'[1, {"a": 1, "b": 2, "a": 3}, 4]', "duplicate-key"),
        (b"[1, [[[[[[[[2]]]]]]]], 4]", "limit"),
        (b"[1, 2, 3", "truncated"),
        (b"[1, , 3]", "malformed"),
        (b'["a", "\\ud800", "b"]', "malformed"),
        (b"[1, 1e999, 2]", "unsupported"),
    ],
)
def test_a_check_makes_an_index_of_what_is_not_sound_and_tells_of_it(text, code):
    limits = Limits().replace(entries=7, depth=6, leaf_depth=2)
    with read(text, limits=limits) as document, read(text, limits=limits) as other:
        list(other.walk(detail=False))
        assert [finding.to_dict() for finding in document.check()] == [each.to_dict() for each in other.findings]
        assert code in [finding.code for finding in document.findings] or code is None
        assert (document.root.index is None) == (code is None)
        assert document.root.status is other.root.status
        assert len(document.root) == len(other.root)
    with read(b"[1, 2, 3, 4, 5, 6, 7, 8, 9]", limits=limits) as document, pytest.raises(LimitError, match="entries=7"):
        list(document.check())
