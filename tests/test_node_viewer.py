from __future__ import annotations

import pytest

import pparse
from pparse import NodeViewer, Tensor
from pparse.tensors import DTYPES, Span


class Words(NodeViewer):
    def tensor_of(self, node, name):
        span = Span(self.extraction.data, node.start, node.end - node.start, self.extraction.path)
        return Tensor(name, DTYPES["uint8"], (span.length,), (span,), owner=self)


def test_the_root_may_be_the_table():
    with pparse.open(b'{"a": 12, "b": {"c": 3}}') as document:
        view = Words(document)
        assert [(tensor.name, tensor.shape) for tensor in view.tensors()] == [("a", (2,)), ("b", (8,))]
        assert view.tensor_at(document.node("a")).shape == (2,)
        assert view.tensor_at(document.node("b.c")) is None
        assert view.tensor_at(document.root) is None


def test_another_table_is_not_looked_for_at_a_child_of_the_root():
    class Below(Words):
        table = property(lambda self: pytest.fail("it read on"))

    with pparse.open(b'{"a": 12, "b": {"c": 3}}') as document:
        assert Below(document).tensor_at(document.node("a")) is None
