"""The name of a constant that is searched for, and the bytes that a NodeDef with that name must contain.

A label is the name of the node, or that name with ``.attr`` or ``.attr[3]`` appended. So for a known label, the name of
the node is one of a few texts, and is in the NodeDef as it is, after its length.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# For up to this many dots in a name, each possible name of the node is searched for.
_MOST_DOTS: Final = 8


class Sought:
    """The ``name`` of a tensor that is searched for."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def letters(self, prefix: str) -> tuple[bytes, ...]:
        """Return byte strings, one of which is in every NodeDef that may have the name after ``prefix``; () if unknown.

        A missing or unreadable name of a node cannot be searched for: its label begins with ``.`` or ``[``.
        """
        name = self.name[len(prefix) :]
        if not name or name[0] in ".[":
            return ()
        try:
            text = name.encode()
        except UnicodeEncodeError:
            return ()
        texts = [text[:at] for at in range(len(text)) if text[at] == 0x2E]
        texts.append(text)
        if len(texts) > _MOST_DOTS:
            return (texts[0],)  # all others begin with it
        # The length in one byte, or the last byte of a longer varint with the same value.
        return tuple(
            head + text for text in texts for head in ((bytes((len(text),)), b"\0") if len(text) < 0x80 else (b"",))
        )
