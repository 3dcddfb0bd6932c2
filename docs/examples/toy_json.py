"""Toy recipes: JSON objects whose first key says so."""

from __future__ import annotations

import re

from pparse import Confidence
from pparse.parsers.json import JsonParser


class RecipeParser(JsonParser):
    """JSON, read as JSON; only its name, and so its viewer, are its own."""

    name = "toy-recipe"
    description = "toy recipe (JSON)"
    extensions = (".recipe.json",)
    refines = ("json",)

    @classmethod
    def match(cls, excerpt):
        found = re.match(rb'\s*+\{\s*+"toy-recipe"\s*+:', excerpt.head(256))
        return Confidence.CERTAIN if found else Confidence.NO
