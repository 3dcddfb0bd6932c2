"""Text that can be shown: nothing in it changes what else is on the screen."""

from __future__ import annotations

from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence
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


def escaped(text: str) -> str:
    """Return ``text`` as `safe` does, but so that `unescaped` returns just this text, whatever it has in it."""
    if "\\" in text:
        import re

        text = re.sub(f"(?={_ESCAPE}).", r"\\x5c", text)
    return safe(text)


def unescaped(text: str) -> str:
    """Return the name that `safe`, or a terminal without Unicode, shows as ``text``."""
    if "\\" not in text:
        return text
    import re

    def character(match: re.Match[str]) -> str:
        code = int(match[match.lastindex or 0], 16)
        return chr(code) if code < 0x110000 else match[0]

    return re.sub(_ESCAPE, character, text)


def in_xml(text: str) -> str:
    """Return text for an XML document; what could mislead, or is not allowed in XML, is escaped."""
    text = "".join(char if char not in "\ufffe\uffff" else f"\\u{ord(char):04x}" for char in safe(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def shorten(text: str, width: int = 400) -> str:
    """Return ``text`` with the middle left out if it is very long (a path through a thousand lists)."""
    return text if len(text) <= width else f"{text[: width // 2]} … {text[-width // 2 :]}"


# A colour, or a character.
_PIECE: Final = r"\x1b\[[0-9]*m|."


def few(names: Iterable[str], most: int = 6, count: int | None = None) -> str:
    """Return the first of ``names``, each shortened, for a line that people read, and how many more there are.

    ``count``: how many there are in all; None: nobody knows, and ``…`` says that there are more.
    """
    found = [safe(shorten(name, 160)) for name in islice(names, most + 1)]
    shown = found[:most]
    left = len(found) - len(shown) if count is None else count - len(shown)
    more = " …" if count is None else f" and {left:,} more"
    return (", ".join(shown) or "none") + (more if left else "")


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


# A word of a text with the spaces in front of it; a command in quotation marks is copied whole, so it is one.
_WORD: Final = r" *(?:'pparse [^']*'|[^ ])+"


def folded(text: str, columns: int, indent: int) -> str:
    """Return ``text`` in lines of at most so many ``columns`` of a terminal, those behind the first one ``indent``-ed.

    A word that is wider than a line, such as a path, stays where it is, and whole: the terminal breaks it.
    """
    if columns_of(text) <= columns:
        return text
    import re

    line, lines = "", []
    for word in re.findall(_WORD, text):
        if line.strip() and columns_of(line + word) > columns and columns_of(word) <= columns - indent:
            lines.append(line)
            line, word = " " * indent, word.lstrip(" ")
        line += word
    return "\n".join([*lines, line])


# What parts the words of a name.
_BETWEEN: Final = "([^0-9A-Za-z]+)"


def told_apart(names: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return each of ``names``, given with the columns that it has, as it is shown in these: cut in the middle.

    Where that would make two of them look alike, the words stay in which they differ (layers of a model), or else what
    stands around the place where they begin to differ.
    """
    shown = {(name, columns): fitted(name, columns) for name, columns in names}
    for turn in range(4):
        alike: dict[str, list[tuple[str, int]]] = {}
        for key, cut in shown.items():
            alike.setdefault(cut, []).append(key)
        groups = [keys for keys in alike.values() if len({name for name, _ in keys}) > 1]
        if not groups:
            break
        for keys in groups:
            shown |= (_by_words(keys) if not turn else None) or _by_place(keys)
    return shown


def _by_words(keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str] | None:
    """Return names that have as many words each with those that differ; None if they have not, or there is no room."""
    import re

    words = [re.split(_BETWEEN, name) for name, _ in keys]
    count = len(words[0])
    if any(len(own) != count for own in words):
        return None
    kept = [len(set(column)) > 1 for column in zip(*words, strict=True)]
    widths = [max(map(columns_of, column)) for column in zip(*words, strict=True)]
    room = min(columns for _, columns in keys)

    def taken() -> int:
        marks = sum(not stays and (not at or kept[at - 1]) for at, stays in enumerate(kept))
        return marks + sum(width for width, stays in zip(widths, kept, strict=True) if stays)

    if taken() > room:
        return None
    for at in sorted(range(count), key=lambda at: min(at, count - at)):  # from both ends
        if not kept[at]:
            kept[at] = True
            kept[at] = taken() <= room
    found = {}
    for key, own in zip(keys, words, strict=True):
        shown = (word if stays else "\0" for word, stays in zip(own, kept, strict=True))
        found[key] = re.sub("\0+", "…", "".join(shown))
    return found


def _by_place(keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return names with what stands around the place where they begin to differ."""
    low, high = min(keys)[0], max(keys)[0]
    first = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    found = {}
    for name, columns in keys:
        tail = columns // 3
        end = max(first + 1, min(first + tail // 2, len(name) - 1))
        rest = fitted(name[end:], tail, head=0)
        found[name, columns] = fitted(name[:end], columns - columns_of(rest)) + rest
    return found


def shape_words(shape: Sequence[int | str]) -> str:
    """Return a shape for display: ``4096×1024``, ``scalar``."""
    return "×".join(map(str, shape)) if shape else "scalar"


# -- Tables for notebooks, as HTML without a script: everything escaped, nothing without a bound -----------------------

# The most characters of one cell.
_CELL: Final = 200
_TABLE: Final = "font-family:monospace;white-space:pre-wrap"
_TEXT: Final = "text-align:left"


def cell(value: object) -> str:
    """Return ``value`` as the text of an element: short, visible, escaped."""
    from html import escape

    return escape(shorten(safe(str(value)), _CELL))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table with ``caption`` above and ``note`` below it. All arguments are plain text."""

    def line(kind: str, values: Iterable[object]) -> str:
        cells = (f'<{kind} style="{_TEXT}">{cell(value)}</{kind}>' for value in values)
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{line('th', heads)}</thead>" if heads else ""
    body = "".join(line("td", row) for row in rows)
    below = f"<div>{cell(note)}</div>" if note else ""
    # "mathjax_ignore": a notebook would typeset what stands between dollar signs.
    return (
        f'<div class="mathjax_ignore tex2jax_ignore"><div>{cell(caption)}</div><table style="{_TABLE}">{head}'
        f"<tbody>{body}</tbody></table>{below}</div>"
    )
