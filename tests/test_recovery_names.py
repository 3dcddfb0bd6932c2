"""Names made safe: whatever is stored, what comes out is a path below the folder, and shows what it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.recovery.names import (
    MAX_COMPONENT,
    MAX_DEPTH,
    MAX_PATH,
    changed,
    fold,
    names_root,
    numbered,
    plain,
    printable,
    safe_name,
)
from tests import sweep
from tests.rows import rows

HOSTILE = {
    "../../etc/passwd": "etc/passwd",
    "..\\..\\evil.txt": "evil.txt",
    "a/../../b": "a/b",
    "/abs": "abs",
    "//server/share/x": "server/share/x",
    "\\\\server\\share": "server/share",
    "C:\\x": "x",
    "c:/x/y": "x/y",
    "C:": "unnamed",
    "C:x": "C_x",
    "C:\\D:\\x": "x",
    "\\\\?\\C:\\x": "x",
    "\\\\.\\NUL": "_NUL",
    "CON": "_CON",
    "con.txt": "_con.txt",
    "a/Com1.tar.gz": "a/_Com1.tar.gz",
    "LPT³": "_LPT³",
    "NUL .x": "_NUL .x",
    "NUL:x": "_NUL:x",
    "COM10": "COM10",
    "console": "console",
    "a\u202etxt.exe": "a_txt.exe",
    "a\u200b\u2066b\ufeff": "a__b_",
    "a\x00b\x1b[31m\x7f\x85": "a_b_[31m__",
    "caf\udce9": "caf%E9",
    "half\ud83d": "half%uD83D",
    "": "unnamed",
    ".": "unnamed",
    "..": "unnamed",
    "../..": "unnamed",
    "./": "unnamed",
    "///": "unnamed",
    "...": "___",
    ".. /x": "___/x",
    "a. /b. .": "a__/b___",
    "a/b/": "a/b",
    "./a//b": "a/b",
    ".bashrc": ".bashrc",
    " a": " a",
    "grüße/日本.txt": "grüße/日本.txt",
}
FLAVOURS = pytest.mark.parametrize("windows", [False, True])
CHARACTERS = st.one_of(
    st.sampled_from(list("./\\:~ aAC?*\x00\n\x7f\x85\u202e\u200b\udce9\ud800é\u0301\U0001f600")),
    st.characters(exclude_categories=()),
)
PIECES = st.one_of(
    st.text(CHARACTERS, max_size=12),
    st.sampled_from(["..", ".", "CON", "nul.", "C:", "aux.c", "COM¹ .", "x" * 254 + "é.txt", "é" * 300, "." * 300]),
)
NAMES = st.lists(PIECES, max_size=30).flatmap(
    lambda pieces: st.sampled_from(["/", "\\", "", "//", "/../"]).map(lambda between: between.join(pieces))
)


def assert_safe(parts: tuple[str, ...], windows: bool = False) -> None:
    assert parts
    assert len(parts) <= MAX_DEPTH
    assert len("/".join(parts).encode()) <= MAX_PATH  # encodes: nothing undecodable is left
    for part in parts:
        assert part not in ("", ".", "..")
        assert not set(part) & set("/\\\0" + ('<>:"|?*' if windows else ""))
        assert len(part.encode()) <= MAX_COMPONENT
        assert part[-1] not in ". "
        assert part.split(".")[0].rstrip().upper() not in ("CON", "PRN", "AUX", "NUL", "COM1", "COM¹", "LPT9")
        bad = [
            c for c in part if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in "\u200b\u202e\u2066\ufeff"
        ]
        assert not bad
    assert not (len(parts[0]) > 1 and parts[0][0].isascii() and parts[0][0].isalpha() and parts[0][1] == ":")


@rows(("name", "expected"), HOSTILE.items(), ids=map(ascii, HOSTILE))
def test_hostile_names_are_harmless(name, expected):
    parts = safe_name(name, windows=False)
    assert "/".join(parts) == expected
    assert_safe(parts)
    assert_safe(safe_name(name, windows=True), windows=True)


@settings(max_examples=sweep.examples(400))
@given(NAMES, st.booleans(), st.sampled_from([1, 2, 5, MAX_DEPTH]))
def test_no_name_leaves_the_folder_and_safe_names_stay(name, windows, depth):
    parts = safe_name(name, windows=windows, depth=depth)
    assert_safe(parts, windows)
    assert len(parts) <= depth
    assert safe_name("/".join(parts), windows=windows, depth=depth) == parts
    assert not changed("/".join(parts), parts)


@settings(max_examples=sweep.examples(200))
@given(st.binary(max_size=300))
def test_any_bytes_are_a_name(raw):
    for text in (raw.decode("utf-8", "replace"), raw.decode("utf-8", "surrogateescape"), raw.decode("cp437")):
        assert_safe(safe_name(text, raw))


@FLAVOURS
@pytest.mark.parametrize("unit", ["a", "a/", "../", "\\", ".", " ", "\u202e", "\udcff", "é", "C:/", "\U0001f600/"])
def test_names_of_megabytes_cost_nothing_much_and_are_cut(unit, windows):
    parts = safe_name(unit * (2_000_000 // len(unit)), windows=windows)
    assert_safe(parts, windows)
    assert safe_name("/".join(parts), windows=windows) == parts


def test_long_names_keep_their_suffix_and_whole_characters():
    assert safe_name("a" * 300 + ".safetensors") == ("a" * 243 + ".safetensors",)
    (part,) = safe_name("é" * 200 + ".txt")
    assert part == "é" * 125 + ".txt"  # 254 bytes: half an é is none
    assert safe_name("a." + "b" * 300) == ("a." + "b" * 253,)  # that is no suffix
    assert safe_name("." + "b" * 300) == ("." + "b" * 254,)


def test_long_paths_keep_the_file_and_the_first_folders():
    deep = safe_name("/".join(f"d{level}" for level in range(500)) + "/file.txt")
    assert deep == (*(f"d{level}" for level in range(MAX_DEPTH - 1)), "file.txt")
    assert safe_name("a/b/c", depth=2) == ("a", "c")
    assert safe_name("a/C:x", depth=1, windows=False) == ("C_x",)
    long = safe_name("/".join(f"{level:0250}" for level in range(50)) + "/file.txt")
    assert long[0] == f"{0:0250}"
    assert long[-1] == "file.txt"
    assert MAX_PATH - 251 < len("/".join(long)) <= MAX_PATH


def test_what_windows_forbids_is_left_elsewhere():
    assert safe_name('12:30/a<b>"c|d?e*f', windows=False) == ("12:30", 'a<b>"c|d?e*f')
    assert safe_name('12:30/a<b>"c|d?e*f', windows=True) == ("12_30", "a_b__c_d_e_f")
    assert safe_name("file.txt:hidden", windows=True) == ("file.txt_hidden",)
    assert safe_name("NUL:", windows=True) == ("NUL_",)


def test_bytes_are_asked_where_decoding_lost_something():
    assert safe_name("caf\ufffd", b"caf\xe9") == ("caf%E9",)
    assert safe_name("a\ufffdb", "a\ufffdb".encode()) == ("a\ufffdb",)  # it was stored so
    assert safe_name("café", b"caf\x82") == ("café",)  # another code page, decoded well
    assert safe_name("caf\ufffd") == ("caf\ufffd",)
    assert safe_name("\ufffd", b"/../\xff") == ("%FF",)


@rows(
    ("name", "parts", "expected"),
    [
        ("a/b", ("a", "b"), False),
        ("./a//b/", ("a", "b"), False),
        ("a/b", ("a", "b~2"), True),
        ("/a", ("a",), True),
        ("a\\b", ("a", "b"), True),
        ("a/../b", ("a", "b"), True),
        ("", ("unnamed",), True),
        ("./" * 100_000 + "a", ("a",), True),
    ],
)
def test_whether_a_name_was_changed(name, parts, expected):
    assert changed(name, parts) is expected


def test_the_names_of_the_folder_itself():
    assert all(names_root(name) for name in ("", ".", "./", "/", "..", "../", "\\", ".//."))
    assert not any(names_root(name) for name in ("a", "./a", "...", "/a", " "))


def test_numbers_go_before_the_suffix_of_a_file_and_behind_a_folder():
    assert numbered("a.txt", 2) == "a~2.txt"
    assert numbered("a", 3) == "a~3"
    assert numbered(".bashrc", 2) == ".bashrc~2"
    assert numbered("v1.0", 2, folder=True) == "v1.0~2"
    long = numbered("é" * 125 + ".txt", 1234)
    assert long.endswith("é~1234.txt")
    assert len(long.encode()) <= MAX_COMPONENT


@given(NAMES, st.integers(2, 10**9), st.booleans())
def test_a_number_keeps_a_name_safe(name, number, folder):
    assert_safe(("x", numbered(safe_name(name)[-1], number, folder=folder)))
    assert_safe((plain(safe_name(name)[-1]),), windows=True)
    assert len(plain(safe_name(name)[-1])) <= 100
    assert plain(safe_name(name)[-1]).isascii()


def test_what_file_systems_take_for_one_name():
    for one, other in (
        ("Readme.TXT", "README.txt"),
        ("é", "e\u0301"),
        ("É", "é"),
        ("Σ", "ς"),
        ("STRASSE", "straße"),
        ("\u1e9b\u0323", "\u017f\u0323\u0307"),
    ):
        assert fold(one) == fold(other), (one, other)
    assert fold("a") != fold("b")
    assert fold("é") != fold("e")


def test_text_for_people_cannot_mislead():
    assert printable("a\\b é") == "a\\b é"
    assert printable("a\x1b[2J\u202e\udcff\n") == "a\\x1b[2J\\u202e\\udcff\\n"


def test_the_longest_suffix_and_the_longest_path():
    assert numbered("a." + "x" * 31, 2) == "a~2." + "x" * 31
    assert numbered("a." + "x" * 32, 2) == "a." + "x" * 32 + "~2"
    assert safe_name("/".join(["a" * 255] * 16)) == ("a" * 255,) * 16  # 4,095 bytes
    assert safe_name("b/" + "/".join(["a" * 255] * 16)) == ("b", *("a" * 255,) * 15)
    assert safe_name("a/b/c", depth=3) == ("a", "b", "c")
