"""Tools to test a parser: `ParserContract`, and sources that misbehave on purpose."""

from __future__ import annotations

from pparse.testing.contract import ParserContract, TreeLeaf, tree_of
from pparse.testing.fakes import FailingData, FakeData, GappyData, ShortData, UnknownSizeData

__all__ = [
    "FailingData",
    "FakeData",
    "GappyData",
    "ParserContract",
    "ShortData",
    "TreeLeaf",
    "UnknownSizeData",
    "tree_of",
]
