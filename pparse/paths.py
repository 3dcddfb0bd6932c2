"""Paths: how users name an extraction, a node or a slice of a tensor.

``outer.tar.gz::inner.zip::weights.pt`` names an extraction, outermost first; a part that contains ``::`` is quoted
(``outer::"a::b"``). Within an extraction, a node path has these steps::

    .name        a field or text key           .5          a field number
    [3]          list index or int key         ["3"]       a text key (JSON string)
    [b"k\\x00"]   a bytes key (Python literal)   [true]      a bool key
    [#7]         the seventh child counted from 0: always valid, for any key
    name#2       the second of several with the same key

A path that is written and parsed again leads to the same node.
"""

from __future__ import annotations

import re

from pparse.errors import LimitError, PathError
from pparse.lazy import ByValue, lazy_pattern
from pparse.limits import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Final, TypeAlias

    Step: TypeAlias = "KeyStep | OrdinalStep"

MAX_STEPS: Final = MAX_DEPTH

_PLAIN: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_\-]*+")
_NAME: Final = lazy_pattern(r"[^.\[\]#\"]++")
_OCCURRENCE: Final = lazy_pattern(r"#([1-9]\d{0,17})(?=[.\[]|\Z)")
_INTEGER: Final = lazy_pattern(r"-?[0-9]{1,4300}")  # Python parses no longer ones
_JSON_STRING: Final = lazy_pattern(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BYTES: Final = lazy_pattern(r'b"((?:[^"\\]|\\[\\"]|\\x[0-9a-fA-F]{2})*+)"')
_ESCAPE: Final = lazy_pattern(rb'\\(?:x([0-9a-fA-F]{2})|(["\\]))')
_SLICE: Final = lazy_pattern(r"\[[\s\d:,.+\-]*\]\Z")
_ROWS: Final = lazy_pattern(r"\[\s*(?:\*|(-?\d{1,18})?\s*:\s*(-?\d{1,18})?\s*(?::\s*(-?\d{1,18})?)?)\s*\]")
_QUOTED: Final = lazy_pattern(r'\[\s*b?"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_RANGE: Final = lazy_pattern(r"\\\{([0-9]{1,18})\\\.\\\.([0-9]{1,18})\\\}")  # as `fnmatch.translate` leaves it


class KeyStep(ByValue, by=("key", "occurrence")):
    """One step by key."""

    __slots__ = ("key", "occurrence")

    def __init__(self, key: str | bytes | int | bool | None, occurrence: int = 1) -> None:
        self.key = key
        """Key of the child."""
        self.occurrence = occurrence
        """Which child with this key, counted from 1."""

    def readings(self) -> Iterator[tuple[str | bytes | int | bool | None, int]]:
        """Yield the meanings of the step, best first: ``.5`` and ``[3]`` are numbers, or the same as text."""
        yield self.key, self.occurrence
        if isinstance(self.key, int) and not isinstance(self.key, bool):
            yield str(self.key), self.occurrence

    def __eq__(self, other: object) -> bool:
        return type(self.key) is type(getattr(other, "key", None)) and super().__eq__(other)

    __hash__ = ByValue.__hash__


class OrdinalStep(ByValue, by=("ordinal",)):
    """One step by position among the children."""

    __slots__ = ("key", "ordinal")

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        """Number of the child, from 0."""
        self.key = None
        """Always None."""


def format_path(steps: Iterable[KeyStep | OrdinalStep]) -> str:
    """Return ``steps`` as a path; empty text for no steps."""
    pieces: list[str] = []
    for step in steps:
        if isinstance(step, OrdinalStep):
            pieces.append(f"[#{step.ordinal}]")
            continue
        key = step.key
        if isinstance(key, bool):
            pieces.append("[true]" if key else "[false]")
        elif isinstance(key, int):
            pieces.append(f"[{key}]")
        elif isinstance(key, bytes):
            pieces.append(f"[{quote_bytes(key)}]")
        elif isinstance(key, str) and _PLAIN.fullmatch(key):
            pieces.append(f".{key}" if pieces else key)
        else:
            import json

            pieces.append(f"[{json.dumps(key)}]")
        if step.occurrence > 1:
            pieces.append(f"#{step.occurrence}")
    return "".join(pieces)


def join_step(prefix: str, step: KeyStep | OrdinalStep | None) -> str:
    """Return the path one ``step`` below ``prefix``; None stands for no step."""
    if step is None:
        return prefix
    piece = format_path((step,))
    return piece if not prefix else f"{prefix}{piece}" if piece[0] == "[" else f"{prefix}.{piece}"


def quote_bytes(key: bytes) -> str:
    """Return a bytes key as paths have it between their brackets."""
    text = "".join(
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in key
    )
    return f'b"{text}"'


def parse_path(text: str) -> list[KeyStep | OrdinalStep]:
    """Return the steps of a path. Raises `PathError` naming the column of the first mistake."""
    steps: list[KeyStep | OrdinalStep] = []
    pos = 0
    while pos < len(text):
        if len(steps) >= MAX_STEPS:
            raise LimitError("the path has too many steps", option="a shorter path", wanted=MAX_STEPS + 1)
        if text[pos] == "[":
            step, pos = _parse_bracket(text, pos)
        else:
            if text[pos] == ".":
                pos += 1
            elif steps:
                raise PathError(f"expected '.' or '[' at column {pos + 1}", path=text)
            match = _NAME.match(text, pos)
            if match is None:
                raise PathError(f"expected a name at column {pos + 1}", path=text)
            name = match[0]
            step = KeyStep(int(name) if steps and name.isascii() and name.isdigit() and len(name) < 20 else name)
            pos = match.end()
        if pos < len(text) and text[pos] == "#":
            occurrence = _OCCURRENCE.match(text, pos)
            if occurrence is None or not isinstance(step, KeyStep):
                raise PathError(f"expected '#' and a number from 1 at column {pos + 1}", path=text)
            step = KeyStep(step.key, int(occurrence[1]))
            pos = occurrence.end()
        steps.append(step)
    return steps


def _parse_bracket(text: str, pos: int) -> tuple[KeyStep | OrdinalStep, int]:
    start = pos + 1
    step: KeyStep | OrdinalStep
    if (match := _JSON_STRING.match(text, start)) is not None:
        import json

        try:
            step = KeyStep(json.loads(match[0], strict=False))
        except ValueError as error:
            raise PathError(f"not a JSON string at column {start + 1}", path=text) from error
        end = match.end()
    elif (match := _BYTES.match(text, start)) is not None:
        step = KeyStep(_unquote_bytes(match[1]))
        end = match.end()
    else:
        end = text.find("]", start)
        word = text[start : end if end >= 0 else len(text)].strip()
        if word in ("true", "false"):
            step = KeyStep(word == "true")
        elif word.startswith("#") and word[1:].isdigit() and word.isascii() and len(word) < 20:
            step = OrdinalStep(int(word[1:]))
        elif _INTEGER.fullmatch(word):
            step = KeyStep(int(word))
        else:
            raise PathError(
                f'expected [3], ["key"], [b"key"], [true] or [#7] at column {start}, found [{word[:40]}]', path=text
            )
    if end < 0 or text[end : end + 1] != "]":
        raise PathError(f"the bracket opened at column {start} is not closed", path=text)
    return step, end + 1


def _unquote_bytes(text: str) -> bytes:
    return _ESCAPE.sub(lambda found: found[2] or bytes.fromhex(found[1].decode()), text.encode())


def split_extraction(text: str) -> list[str]:
    """Split ``outer::inner::leaf`` into its parts; all but the first may be quoted as JSON strings."""
    import json

    parts: list[str] = []
    pos = 0
    while True:
        match = _JSON_STRING.match(text, pos) if parts else None
        if match is not None and (match.end() == len(text) or text.startswith("::", match.end())):
            try:
                parts.append(json.loads(match[0]))
            except ValueError as error:
                raise PathError(f"not a quoted name at column {pos + 1}", path=text) from error
            end = match.end()
        else:
            end = text.find("::", pos)
            end = len(text) if end < 0 else end
            parts.append(text[pos:end])
        if end >= len(text):
            return parts
        pos = end + 2


def join_extraction(parts: Iterable[str]) -> str:
    """Join extraction names into one path; the inverse of `split_extraction`.

    The first part is a file name and is never quoted: an existing file of that literal name takes precedence.
    """
    out: list[str] = []
    for part in parts:
        if out and ("::" in part or part.startswith('"') or part.endswith(":") or not part):
            from json import dumps

            part = dumps(part)
        out.append(part)
    return "::".join(out)


def split_slice(text: str) -> tuple[str, tuple[int | slice | object, ...]] | None:
    """Split ``name[0:3, ..., 5]`` into the name and a numpy index; None if the text does not end with a slice."""
    match = _SLICE.search(text)
    if match is None or match.start() == 0:
        return None
    items: list[int | slice | object] = []
    for word in match[0][1:-1].split(","):
        word = word.strip()
        if word == "...":
            items.append(...)
        elif _INTEGER.fullmatch(word):
            items.append(int(word))
        else:
            bounds = [bound.strip() for bound in word.split(":")]
            if not 2 <= len(bounds) <= 3 or not all(b == "" or _INTEGER.fullmatch(b) for b in bounds):
                return None
            items.append(slice(*(int(bound) if bound else None for bound in bounds)))
    return text[: match.start()], tuple(items)


def split_rows(text: str) -> tuple[str, slice, str] | None:
    """Split ``path[5:10].rest`` at its first slice of a list: path, slice, rest; None if it has none.

    ``[*]`` stands for all elements, as ``[:]`` does.
    """
    pos = text.find("[")
    while pos >= 0:
        match = _ROWS.match(text, pos)
        if match is not None:
            start, stop, step = (None if number is None else int(number) for number in match.groups())
            return text[:pos], slice(start, stop, step), text[match.end() :]
        quoted = _QUOTED.match(text, pos)
        pos = text.find("[", pos + 1 if quoted is None else quoted.end())
    return None


def glob(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a name matches ``pattern``: ``*``, ``?``, ``[…]`` and ``{0..5}``, or the name as it is.

    ``{0..5}`` are the whole numbers from 0 to 5, as ``ls --group`` writes them. A folder of an archive stands for
    everything in it.
    """
    from fnmatch import translate

    ranges: dict[str, range] = {}

    def number(found: re.Match[str]) -> str:
        word = f"n{len(ranges)}"
        ranges[word] = range(int(found[1]), int(found[2]) + 1)
        return rf"(?<![0-9])(?P<{word}>[0-9]{{1,18}})(?![0-9])"

    search = re.compile(_RANGE.sub(number, translate(pattern))).match

    def match(name: str) -> re.Match[str] | None:
        found = search(name)
        return found if found is None or all(int(found[word]) in ranges[word] for word in ranges) else None

    # An exact name may contain brackets and stars.
    below = pattern.rstrip("/") + "/"
    return lambda name: name == pattern or match(name) is not None or name.startswith((below, f"./{below}"))
