"""The name of a constant that is looked for, and the bytes without which a NodeDef cannot have it.

A label is the name of the node, or that with ``.attr`` or ``.attr[3]`` behind it. So if a label is known, the name of
the node is one of a few texts, and stands in the NodeDef as it is, behind its length.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Dots in a name, up to which each of the names is looked for that a node may have.
_MOST_DOTS: Final = 8


class Sought:
    """The ``name`` of a tensor that is looked for."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def letters(self, prefix: str) -> tuple[bytes, ...]:
        """Return bytes, some of which stand in every NodeDef that may have the name, behind ``prefix``; () if none do.

        A name that is not there, or cannot be read, stands nowhere: its label begins with ``.`` or ``[``.
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
            return (texts[0],)  # the others begin with it
        # The length in one byte, or the last of a longer varint that says the same.
        return tuple(
            head + text for text in texts for head in ((bytes((len(text),)), b"\0") if len(text) < 0x80 else (b"",))
        )
