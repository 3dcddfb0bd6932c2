"""Asks a parser as the registry does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pparse.tree.parser import Confidence, Excerpt, confidence_of

if TYPE_CHECKING:
    from pparse.data.base import Range
    from pparse.tree.parser import Parser


def confidence(parser: type[Parser], reader: Range, name: str = "") -> Confidence:
    """Return how sure ``parser`` is of the bytes of ``reader``, of a document called ``name``."""
    return confidence_of(parser, Excerpt(reader, name, reader.size), reader)
