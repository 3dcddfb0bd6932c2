from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pparse.errors import LimitError, PathError
from pparse.paths import (
    MAX_STEPS,
    KeyStep,
    OrdinalStep,
    format_path,
    glob,
    join_extraction,
    parse_path,
    split_extraction,
    split_slice,
)
from tests import sweep
from tests.rows import rows

LONG = sweep.scaled(1_000_000)

odd_text = st.text(st.sampled_from(list("ab.[]#\"'\\ \n\r\t\0:5-_/é😀\u2028")), max_size=12)
keys = (
    st.text(max_size=20)
    | odd_text
    | st.sampled_from(["", "#2", "a#2", "true", "5", "-5", 'b"x"', "[3]", "...", "a.b", "a::b", "x]", '"'])
    | st.integers(-(10**40), 10**40)
    | st.integers(-3, 300)
    | st.booleans()
    | st.binary(max_size=12)
)
steps = st.builds(KeyStep, keys, st.integers(1, 3) | st.integers(1, 10**18 - 1)) | st.builds(
    OrdinalStep, st.integers(0, 10**18 - 1)
)


@settings(max_examples=sweep.examples(360))
@given(st.lists(steps, max_size=6))
def test_format_and_parse_round_trip(path):
    text = format_path(path)
    again = parse_path(text)
    assert again == path
    assert [type(step) for step in again] == [type(step) for step in path]
    assert format_path(again) == text


@settings(max_examples=sweep.examples(400))
@given(st.text(st.sampled_from(list('ab.[]#"\\x125-true :é\n')), max_size=24) | st.text(max_size=24))
@example('a["')
@example('a[b"\\x4"]')
@example('["\\ud83d\\ude00"]')
def test_any_text_is_a_path_or_a_path_error(text):
    try:
        path = parse_path(text)
    except PathError as error:
        caught = error
    else:
        assert parse_path(format_path(path)) == path
        return
    assert caught.path == text
    assert "column" in caught.reason


@rows(
    ("text", "path"),
    [
        ("", []),
        ("a", [KeyStep("a")]),
        (".a", [KeyStep("a")]),
        ("a.b", [KeyStep("a"), KeyStep("b")]),
        ("a.5", [KeyStep("a"), KeyStep(5)]),
        ("a[3]", [KeyStep("a"), KeyStep(3)]),
        ("a[-3]", [KeyStep("a"), KeyStep(-3)]),
        ("a[ 3 ]", [KeyStep("a"), KeyStep(3)]),
        ('a["3"]', [KeyStep("a"), KeyStep("3")]),
        ('[""]', [KeyStep("")]),
        ('["a\\u00e9\\n"]', [KeyStep("aé\n")]),
        ('["a\nb"]', [KeyStep("a\nb")]),
        ('[b"k\\x00\\"\\\\"]', [KeyStep(b'k\0"\\')]),
        ('[b"é"]', [KeyStep("é".encode())]),
        ('[b""]', [KeyStep(b"")]),
        ("a[true]", [KeyStep("a"), KeyStep(True)]),
        ("a[false]", [KeyStep("a"), KeyStep(False)]),
        ("a.true", [KeyStep("a"), KeyStep("true")]),
        ("[#7]", [OrdinalStep(7)]),
        ("a[#0].b", [KeyStep("a"), OrdinalStep(0), KeyStep("b")]),
        ("name#2", [KeyStep("name", 2)]),
        ("a#2.b#3[4]#5", [KeyStep("a", 2), KeyStep("b", 3), KeyStep(4, 5)]),
        ('["x"]#2', [KeyStep("x", 2)]),
        ("layer-0_x", [KeyStep("layer-0_x")]),
        ("encoder/w:0", [KeyStep("encoder/w:0")]),
        ("größe.b c", [KeyStep("größe"), KeyStep("b c")]),
        (
            'graph.node[3].attr["value"].tensor',
            [KeyStep("graph"), KeyStep("node"), KeyStep(3), KeyStep("attr"), KeyStep("value"), KeyStep("tensor")],
        ),
    ],
)
def test_a_path_is_parsed_into_its_steps(text, path):
    assert parse_path(text) == path


@rows(
    ("path", "text"),
    [
        ([], ""),
        ([KeyStep("a"), KeyStep("b")], "a.b"),
        ([KeyStep(5), KeyStep("b")], "[5].b"),
        ([KeyStep("a"), KeyStep(-1)], "a[-1]"),
        ([KeyStep("a"), KeyStep("5")], 'a["5"]'),
        ([KeyStep("a.b")], '["a.b"]'),
        ([KeyStep("")], '[""]'),
        ([KeyStep("é\n")], '["\\u00e9\\n"]'),
        ([KeyStep(b"k\x00\"\\'\x7f")], '[b"k\\x00\\"\\\\\'\\x7f"]'),
        ([KeyStep(b" ~")], '[b" ~"]'),
        ([KeyStep(True), KeyStep(False)], "[true][false]"),
        ([KeyStep("a", 2), OrdinalStep(7)], "a#2[#7]"),
        ([KeyStep(1, 1)], "[1]"),
    ],
)
def test_steps_are_written_as_the_path_that_parses_to_them(path, text):
    assert format_path(path) == text


@rows(
    ("text", "column", "words"),
    [
        (".", 2, "expected a name"),
        ("a.", 3, "expected a name"),
        ("a..b", 3, "expected a name"),
        ("#2", 1, "expected a name"),
        ('"a"', 1, "expected a name"),
        ("a]b", 2, "expected '.' or '['"),
        ('a"b', 2, "expected '.' or '['"),
        ("[3]x", 4, "expected '.' or '['"),
        ("a#", 2, "a number from 1"),
        ("a#0", 2, "a number from 1"),
        ("a#x", 2, "a number from 1"),
        ("a#2b", 2, "a number from 1"),
        ("a#2#3", 2, "a number from 1"),
        ("[#7]#2", 5, "a number from 1"),
        ("a#1000000000000000000", 2, "a number from 1"),
        ("a[", 2, "expected [3]"),
        ("a[]", 2, "expected [3]"),
        ("a[x]", 2, "found [x]"),
        ("a['x']", 2, "found ['x']"),
        ("a[1.5]", 2, "found [1.5]"),
        ("a[+1]", 2, "found [+1]"),
        ("a[#-1]", 2, "found [#-1]"),
        ("a[# 1]", 2, "found [# 1]"),
        ("a[#" + "1" * 19 + "]", 2, "expected [3]"),
        ("a[True]", 2, "found [True]"),
        ('a["x', 2, "expected [3]"),
        ('a["x"', 2, "not closed"),
        ('a["x"y]', 2, "not closed"),
        ('a["x" ]', 2, "not closed"),
        ("a[3", 2, "not closed"),
        ('a[b"x"', 2, "not closed"),
        ('a[b"\\q"]', 2, "expected [3]"),
        ('a["\\q"]', 3, "not a JSON string"),
        ('a["\\u12"]', 3, "not a JSON string"),
    ],
)
def test_errors_say_where(text, column, words):
    with pytest.raises(PathError) as caught:
        parse_path(text)
    assert caught.value.path == text
    assert f"column {column}" in caught.value.reason
    assert words in caught.value.reason


def test_error_quotes_no_more_than_it_must():
    with pytest.raises(PathError) as caught:
        parse_path("a[" + "x" * 10_000 + "]")
    assert len(caught.value.reason) < 200


def test_integers_of_any_length_that_python_writes():
    for digits in (31, 4299):
        path = [KeyStep(10**digits - 1), KeyStep(-(10**digits - 1))]
        assert parse_path(format_path(path)) == path
    with pytest.raises(PathError):
        parse_path("[" + "1" * 4301 + "]")


def test_too_many_steps():
    assert len(parse_path(".a" * MAX_STEPS)) == MAX_STEPS
    with pytest.raises(LimitError) as caught:
        parse_path(".a" * (MAX_STEPS + 1))
    assert caught.value.wanted == MAX_STEPS + 1
    with pytest.raises(LimitError):
        parse_path("[1]" * LONG)


def test_steps_are_values():
    assert KeyStep(1) != KeyStep(True)
    assert KeyStep(0) != KeyStep(False)
    assert KeyStep("a") != KeyStep(b"a")
    assert KeyStep("1") != KeyStep(1)
    assert KeyStep("a") != KeyStep("a", 2)
    assert KeyStep("a") != "a"
    assert OrdinalStep(1) != KeyStep(1)
    assert hash(KeyStep("a", 2)) == hash(KeyStep("a", 2))
    assert hash(OrdinalStep(3)) == hash(OrdinalStep(3))
    assert OrdinalStep(3) == OrdinalStep(3)
    assert OrdinalStep(3) != OrdinalStep(4)
    assert OrdinalStep(3).key is None
    assert repr(KeyStep("a", 2)) == "KeyStep('a', 2)"
    assert repr(OrdinalStep(3)) == "OrdinalStep(3)"


def test_a_number_is_looked_up_as_key_and_as_text():
    assert list(KeyStep(5).readings()) == [(5, 1), ("5", 1)]
    assert list(KeyStep(5, 2).readings()) == [(5, 2), ("5", 2)]
    assert list(KeyStep("5").readings()) == [("5", 1)]
    assert list(KeyStep(True).readings()) == [(True, 1)]
    assert list(KeyStep(b"5").readings()) == [(b"5", 1)]


# -- extractions -----------------------------------------------------------------------------------------------------

first_parts = st.text(max_size=12).filter(lambda part: "::" not in part and not part.endswith(":"))


@settings(max_examples=sweep.examples(400))
@given(first_parts, st.lists(st.text(max_size=12) | st.text(st.sampled_from(':"\\a'), max_size=6), max_size=4))
@example("a", [":", "b:", ":c", "::", '"', '"x"', ""])
def test_extraction_round_trip(first, rest):
    parts = [first, *rest]
    text = join_extraction(parts)
    assert split_extraction(text) == parts


@rows(
    ("text", "parts"),
    [
        ("", [""]),
        ("model.pt", ["model.pt"]),
        ("outer.tar.gz::inner.zip::weights.pt", ["outer.tar.gz", "inner.zip", "weights.pt"]),
        ('outer::"a::b"', ["outer", "a::b"]),
        ('outer::"a::b"::c', ["outer", "a::b", "c"]),
        ('outer::"a\\"b"::c', ["outer", 'a"b', "c"]),
        ('outer::"a" b::c', ["outer", '"a" b', "c"]),
        ('outer::"a', ["outer", '"a']),
        ('"a::b"::c', ['"a', 'b"', "c"]),
        ("a::", ["a", ""]),
        ("::a", ["", "a"]),
        ("a:b:::c", ["a:b", ":c"]),
        ('a::""', ["a", ""]),
    ],
)
def test_a_target_is_split_at_its_double_colons(text, parts):
    assert split_extraction(text) == parts


def test_join_quotes_only_where_needed():
    assert join_extraction(["a", "b", "c d"]) == "a::b::c d"
    assert join_extraction(["a", "b::c"]) == 'a::"b::c"'
    assert join_extraction(["a", 'b"c']) == 'a::b"c'
    assert join_extraction(["a", '"c']) == 'a::"\\"c"'
    assert join_extraction([]) == ""


def test_bad_quoted_name():
    with pytest.raises(PathError, match="column 4"):
        split_extraction('a::"\\q"')


@settings(max_examples=sweep.examples(300))
@given(st.text(st.sampled_from(':"\\ab'), max_size=16))
def test_any_text_splits_or_is_a_path_error(text):
    try:
        parts = split_extraction(text)
    except PathError:
        return
    assert parts
    if not parts[0].endswith(":"):
        assert split_extraction(join_extraction(parts)) == parts


# -- slices ----------------------------------------------------------------------------------------------------------


@rows(
    ("text", "name", "index"),
    [
        ("w[3]", "w", (3,)),
        ("w[-3]", "w", (-3,)),
        ("w[:]", "w", (slice(None),)),
        ("w[0:3]", "w", (slice(0, 3),)),
        ("w[ 0 : 3 ]", "w", (slice(0, 3),)),
        ("w[::-2]", "w", (slice(None, None, -2),)),
        ("w[1:,:-1,2]", "w", (slice(1, None), slice(None, -1), 2)),
        ("w[0:3, ..., 5]", "w", (slice(0, 3), ..., 5)),
        ("w[...]", "w", (...,)),
        ("a.b[2][3]", "a.b[2]", (3,)),
        ("odd [1:2", None, None),
        ("w", None, None),
        ("", None, None),
        ("[3]", None, None),
        ("w[]", None, None),
        ("w[ ]", None, None),
        ("w[3]x", None, None),
        ("w[3] ", None, None),
        ("w[1:2:3:4]", None, None),
        ("w[1.5]", None, None),
        ("w[+1]", None, None),
        ("w[1,]", None, None),
        ("w[,1]", None, None),
        ("w[1 2]", None, None),
        ("w[..]", None, None),
        ("w[--1]", None, None),
        ('w["a"]', None, None),
        ("w[#3]", None, None),
        ("w[3]\n", None, None),
    ],
)
def test_a_slice_is_split_from_the_name_before_it(text, name, index):
    assert split_slice(text) == (None if name is None else (name, index))


@settings(max_examples=sweep.examples(200))
@given(
    st.text(min_size=1, max_size=10),
    st.lists(
        st.integers(-99, 99) | st.just(...) | st.builds(slice, *[st.none() | st.integers(-99, 99)] * 3),
        min_size=1,
        max_size=4,
    ),
)
def test_slices_round_trip(name, items):
    words = []
    for item in items:
        if isinstance(item, slice):
            words.append(":".join("" if bound is None else str(bound) for bound in (item.start, item.stop, item.step)))
        else:
            words.append("..." if item is ... else str(item))
    assert split_slice(f"{name}[{','.join(words)}]") == (name, tuple(items))


# -- time ------------------------------------------------------------------------------------------------------------

LONG_TEXTS = {
    "name": "a" * LONG,
    "dots": "." * LONG,
    "brackets": "[" * LONG,
    "open and close": "[]" * (LONG // 2),
    "quotes": '"' * LONG,
    "open string": '["' + "a" * LONG,
    "string": '["' + "a" * LONG + '"]',
    "backslashes": '["' + "\\" * LONG + '"]',
    "open backslashes": '["' + "\\" * LONG,
    "bytes": '[b"' + "\\x00" * (LONG // 4) + '"]',
    "open bytes": '[b"' + "\\x00" * (LONG // 4),
    "digits": "[" + "1" * LONG + "]",
    "name of digits": "a." + "1" * LONG,
    "hashes": "a" + "#1" * (LONG // 2),
    "occurrence": "a#" + "1" * LONG,
    "ordinal": "[#" + "1" * LONG + "]",
    "steps": "a." * (LONG // 2),
    "spaces": "[" + " " * LONG,
    "colons": ":" * LONG,
    "quoted parts": '::"a' * (LONG // 4),
    "quoted pairs": '::"a"' * (LONG // 5),
    "slice": "w[" + "1:" * (LONG // 2) + "]",
    "commas": "w[" + "1," * (LONG // 2) + "]",
    "open slices": "w[1," * (LONG // 4),
    "dashes": "w[" + "-" * LONG,
}


@rows("name", LONG_TEXTS)
def test_long_texts_take_linear_time(name):
    text = LONG_TEXTS[name]
    start = time.process_time()
    for read in (parse_path, split_extraction, split_slice):
        try:
            read(text)
        except (PathError, LimitError):
            pass
    assert time.process_time() - start < (4 if sweep.full else 2)  # what is quadratic takes minutes


def test_long_keys_are_written_in_linear_time():
    start = time.process_time()
    for key in ("a" * LONG, "\n" * LONG, bytes(LONG), b"a" * LONG):
        path = [KeyStep("x"), KeyStep(key), KeyStep("y")]
        assert parse_path(format_path(path)) == path
    assert time.process_time() - start < (4 if sweep.full else 2)


@rows(
    "pattern, matching, others",
    [
        ("h.{0..11}.w", ["h.0.w", "h.07.w", "h.11.w"], ["h.12.w", "h.x.w", "h..w", "h.1.w.x", f"h.{'1' * 30}.w"]),
        ("*{2..3}", ["a2", "b.3", "2"], ["a12", "a4", "23", ""]),
        ("{0..1}.{5..6}?", ["0.5x", "1.6y"], ["0.7x", "2.5x"]),
        ("a{3..1}", ["a{3..1}"], ["a1", "a2", "a3"]),
        ("a{x..y}", ["a{x..y}"], ["ax"]),
        ("d/{0..1}", ["d/0", "d/{0..1}", "d/{0..1}/x"], ["d/2"]),
    ],
)
def test_ranges_of_numbers_are_patterns(pattern, matching, others):
    fits = glob(pattern)
    assert [name for name in (*matching, *others) if fits(name)] == matching
