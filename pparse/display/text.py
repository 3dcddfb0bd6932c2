"""Text that can be shown: nothing in it changes what else is on the screen."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from typing import Final

_ESCAPE: Final = r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))"


class _Visible(dict[int, str | int]):
    """Maps code points to what is shown, computed on demand.

    Control characters (C0, DEL, C1), line breaks, direction marks and characters without width could make a name look
    different on a terminal; surrogates cannot be written at all.
    """

    def __missing__(self, code: int) -> str | int:
        if code < 0x20 or 0x7F <= code < 0xA0:
            return f"\\x{code:02x}"
        hidden = (
            code == 0x061C
            or 0x200B <= code < 0x2010
            or 0x2028 <= code < 0x202F
            or 0x2060 <= code < 0x2070
            or code == 0xFEFF
            or 0xD800 <= code < 0xE000
        )
        return f"\\u{code:04x}" if hidden else code


_VISIBLE: Final = _Visible()


def safe(text: str) -> str:
    """Return ``text`` with everything escaped that could mislead on a terminal."""
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


def unescaped(text: str) -> str:
    """Return the name that `safe`, or a terminal without Unicode, shows as ``text``."""
    if "\\" not in text:
        return text
    import re

    def character(match: re.Match[str]) -> str:
        code = int(match[match.lastindex or 0], 16)
        return chr(code) if code < 0x110000 else match[0]

    return re.sub(_ESCAPE, character, text)


def shorten(text: str, width: int = 400) -> str:
    """Return ``text`` with the middle left out if it is very long (a path through a thousand lists)."""
    return text if len(text) <= width else f"{text[: width // 2]} … {text[-width // 2 :]}"


# A colour, or a character.
_PIECE: Final = r"\x1b\[[0-9]*m|."


def columns_of(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes, as wcwidth counts them: colours and combining marks none,
    wide characters (CJK, emoji) two."""
    return len(text) if text.isascii() and "\x1b" not in text else sum(columns for _, columns in _pieces(text))


def _pieces(text: str) -> list[tuple[str, int]]:
    """Return the characters and colours of ``text``, with the columns that each takes."""
    import re
    from unicodedata import category, east_asian_width

    return [
        (
            piece,
            0
            if len(piece) > 1 or category(piece) in ("Mn", "Me") or "\u1160" <= piece < "\u1200"
            else 2
            if east_asian_width(piece) in "WF"
            else 1,
        )
        for piece in re.findall(_PIECE, text, re.DOTALL)
    ]


def fitted(text: str, columns: int, *, head: float = 0.5) -> str:
    """Return ``text`` in at most so many ``columns`` of a terminal, ``…`` where something was left out.

    ``head`` is the part of the columns that what stands before the mark gets: 1 leaves out the end, 0.5 the middle.
    Colours stay, and a mark stays with the character that it combines with.
    """
    if columns_of(text) <= columns:
        return text
    pieces = _pieces(text)
    room = max(columns - 1, 0)
    first, rest = 0, int(room * head)
    while pieces[first][1] <= rest:
        rest -= pieces[first][1]
        first += 1
    last, rest = len(pieces), room - int(room * head) + rest
    while pieces[last - 1][1] <= rest:
        last -= 1
        rest -= pieces[last][1]
    while last < len(pieces) and not pieces[last][1]:
        last += 1
    colors = "".join(piece for piece, _ in pieces[first:last] if len(piece) > 1)
    return "".join([*(piece for piece, _ in pieces[:first]), "…", colors, *(piece for piece, _ in pieces[last:])])


def shape_words(shape: Sequence[int | str]) -> str:
    """Return a shape for display: ``4096×1024``, ``scalar``."""
    return "×".join(map(str, shape)) if shape else "scalar"
