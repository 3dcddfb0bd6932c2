"""Viewers that are added to formats which are built in."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import pytest

import pparse
from pparse import Registry
from pparse.document.appearance import is_text
from pparse.errors import FormatError, OptionError
from pparse.parsers.json.parser import JsonParser
from pparse.parsers.safetensors.parser import SafetensorsParser
from pparse.viewers.safetensors.viewer import SafetensorsViewer

MODEL = b"\x40\0\0\0\0\0\0\0" + b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'.ljust(64) + b"ab"


class Anything:
    """A viewer of a document that the test knows by its type."""

    def __init__(self, extraction):
        self.extraction = extraction


class OnlyLists(Anything):
    """One that says which documents it is for."""

    @staticmethod
    def applies(parser):
        return parser.result.root.kind == "array"


def test_a_viewer_can_be_added_to_a_format_without_one():
    registry = Registry()
    registry.add(JsonParser, OnlyLists)
    with pparse.open(b"[1]", registry=registry) as document:
        assert isinstance(document.view(), OnlyLists)
        assert document.root[0].value == 1
    with pparse.open(b'{"a":1}', registry=registry) as document:
        assert document.root["a"].value == 1
        assert not isinstance(pparse.document.registry.viewer_for(document), OnlyLists)
    assert registry.names().count("json") == 1


def test_one_that_was_added_comes_before_the_built_in_one():
    registry = Registry()
    registry.add(SafetensorsParser, Anything)
    with pparse.open(MODEL, registry=registry) as document:
        assert isinstance(document.view(), Anything)
    with pparse.open(MODEL) as document:
        assert isinstance(document.view(), SafetensorsViewer)


def test_an_installed_viewer_serves_a_format_without_one():
    registry = Registry(plugins=False)
    registry._plugin_viewers = {"json": Anything, "safetensors": Anything}
    with pparse.open(b"[1]", registry=registry) as document:
        assert isinstance(document.view(), Anything)
    with pparse.open(MODEL, registry=registry) as document:
        assert isinstance(document.view(), SafetensorsViewer)


class Tuned(JsonParser):
    """A parser of somebody else, with an option of its own."""

    name = "tuned"
    options: ClassVar[dict[str, str]] = {"pitch": "how high"}


def test_an_installed_parser_goes_by_its_own_name_and_not_by_that_of_its_entry_point(monkeypatch):
    class Entry:
        name = "entry"

        def load(self):
            return Tuned

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry()] if "parsers" in group else [])
    registry = Registry()
    assert registry.plugin_parsers() == {"tuned": Tuned}
    with pparse.open(b"[1]", format="tuned", registry=registry) as document:
        assert isinstance(document.parse().parser, Tuned)


@pytest.mark.parametrize("call", [pparse.view, pparse.open])
def test_an_option_that_no_format_has_is_refused_by_name(call):
    with pytest.raises(OptionError, match=r"^bogus: no format has this option; there are: .*kernel.*verify") as caught:
        call(MODEL, options={"kernel": "stdlib", "bogus": 1})
    assert "pitch" not in str(caught.value)
    with pytest.raises(OptionError, match="bogus"):  # before anything is opened
        call("no such file", options={"bogus": 1})
    with call(MODEL, options={"kernel": "stdlib", "verify": "headers"}):
        pass


@pytest.mark.parametrize("name", ["some.tar", "some.safetensors", "some.riegeli"])
def test_text_under_the_name_of_a_format_is_refused_wherever_its_beginning_ends(tmp_path, name):
    """The first 512 bytes are looked at, which may end in a character; a byte of no character is not of a text."""
    path = tmp_path / name
    for before in range(4):
        path.write_text("a" * before + "\U0001f600" * 300, encoding="utf-8")
        with pparse.open(path) as document, pytest.raises(FormatError, match="no parser recognises this text"):
            document.parse()
    for before in (100, 507, 508):
        path.write_bytes(b"a" * before + b"\xff" + b"abc" * 200)
        with pparse.open(path) as document:
            assert document.format == name.partition(".")[2]


def test_options_of_added_parsers_count():
    registry = Registry()
    registry.add(Tuned)
    with pparse.open(MODEL, registry=registry, options={"pitch": 1}):
        pass
    with pparse.open(MODEL, parsers=[Tuned], options={"pitch": 1}):
        pass
    with pytest.raises(OptionError, match=r"bogus: .*pitch"):
        pparse.open(MODEL, registry=registry, options={"bogus": 1})


def test_options_of_installed_parsers_count(monkeypatch):
    monkeypatch.setattr(Registry, "_load", lambda self, group: iter([("tuned", Tuned)] if "parser" in group else []))
    with pparse.open(MODEL, registry=Registry(), options={"pitch": 1}):
        pass


def test_parsers_are_not_imported_for_an_option_of_the_format_that_is_named_nor_pickles_for_a_zip():
    code = (
        "import pparse, sys; pparse.open(b'[1]', format='json', options={'kernel': 'stdlib'}); "
        "told = lambda: print(*(name for name in sys.modules if name.startswith('pparse.parsers.'))); told(); "
        "import io, zipfile; out = io.BytesIO(); z = zipfile.ZipFile(out, 'w'); z.writestr('a.txt', 'a'); z.close(); "
        "print(pparse.open(out.getvalue()).format, end=' '); told()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = ran.stdout.splitlines()
    assert "pparse.parsers.json.parser" in first
    assert "pparse.parsers.zip.parser" not in first
    # Whether an archive is a checkpoint is seen by its names.
    assert second.startswith("zip ")
    assert "pparse.parsers.zip.parser" in second
    assert "pickle" not in second


@pytest.mark.parametrize(("end", "text"), [(b"\xff", False), (b"\xe2\x82", True), (b"\xe2\x82\xac", True)])
def test_text_may_be_cut_inside_of_a_character_but_holds_none_that_begins_with_no_character(end, text):
    start = b"words in a row, and more of them, and some more after these ones"[: 64 - len(end)] + end
    assert is_text(start) is text
    with pytest.raises(FormatError) as caught:
        pparse.open(start + b"\x99" * 9).parse()
    assert ("this text" in caught.value.reason) is text
