"""Viewers that are added to formats which are built in."""

from __future__ import annotations

import pparse
from pparse import Registry
from pparse.parsers.json import JsonParser
from pparse.parsers.safetensors import SafetensorsParser
from pparse.viewers.safetensors import SafetensorsViewer

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
        assert not isinstance(pparse.registry.viewer_for(document), OnlyLists)
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
