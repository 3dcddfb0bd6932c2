"""`Remark`: what stands in a model's metadata for a value that is too long to be shown there, or cannot be read."""

from __future__ import annotations


class Remark(str):
    """A text about a value, not the value: it is shown, and never written as if the source said it."""

    __slots__ = ()
