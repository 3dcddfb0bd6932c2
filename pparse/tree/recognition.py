"""How a format is recognised: the `Signature` of a class, the `Excerpt` it sees, the `Confidence` it answers with.

The registry reads the first and last bytes of a document once, into an `Excerpt`, and asks each parser whose signature
or extension fits: first ``match``, which sees the excerpt and nothing else; then ``probe``, which may read anywhere.
"""

from __future__ import annotations

import enum

from pparse.data.base import Access
from pparse.errors import PASSING, GapError, PparseError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final, Protocol

    from pparse.data.reader import Range

    class Recognising(Protocol):
        """A parser's class, as far as recognising goes."""

        def match(self, excerpt: Excerpt) -> Confidence:
            """Judge by the excerpt."""

        def probe(self, excerpt: Excerpt, reader: Range) -> Confidence:
            """Judge by reading."""


# What is read at once at the front: enough for most formats.
_FIRST: Final = 4 << 10
# The longest excerpts: at the back, a zip's end record with the longest comment.
MAX_HEAD: Final = 64 << 10
MAX_TAIL: Final = (64 << 10) + 22

# Marks of downloads that are not finished, behind the name that the file will have.
UNFINISHED_SUFFIXES: Final = (".part", ".crdownload", ".incomplete", ".download", ".tmp")


# How a name ends if the file is one of several, and what stands for all such endings.
_NUMBERED: Final = lazy_pattern(r"-\d{5}-of-\d{5}")
_FIRST_OF_ONE: Final = "-00000-of-00001"


def bare_name(name: str) -> str:
    """Return the file name in lower case, without the marks of an unfinished download.

    The numbers behind an extension (``.data-00003-of-00010``) are those of the first of one.
    """
    name = name.lower()
    for suffix in UNFINISHED_SUFFIXES:
        name = name.removesuffix(suffix)
    tail = name[-len(_FIRST_OF_ONE) :]
    return name[: -len(tail)] + _FIRST_OF_ONE if tail[6:10] == "-of-" and _NUMBERED.fullmatch(tail) else name


class Confidence(enum.IntEnum):
    """How sure a parser is that data is of its format."""

    NO = 0
    EXTENSION = 1  # only the file name says so
    POSSIBLE = 2  # nothing contradicts it
    LIKELY = 3  # the structure fits
    CERTAIN = 4  # a magic number, or structure too specific to be chance


class Signature:
    """Bytes at a fixed offset that make it worth asking a parser, and how sure they make it by themselves."""

    __slots__ = ("at", "magic", "strength")

    def __init__(self, magic: bytes, at: int = 0, strength: Confidence = Confidence.CERTAIN) -> None:
        self.magic = magic
        """The bytes …"""
        self.at = at
        """… at this offset of the document."""
        self.strength = strength
        """What `Parser.match` answers for them, if the parser does not look further."""

    def __repr__(self) -> str:
        return f"Signature({self.magic!r}, {self.at}, {self.strength.name})"


def signatures(*magics: bytes, at: int = 0, strength: Confidence = Confidence.POSSIBLE) -> tuple[Signature, ...]:
    """Return a signature for each of ``magics``; by default none that is enough by itself."""
    return tuple(Signature(magic, at, strength) for magic in magics)


class Excerpt:
    """The first and last bytes of a document, read once for all parsers, and its name and size."""

    __slots__ = ("_asked", "_head", "_reader", "_tail", "bare_name", "name", "size")

    def __init__(self, reader: Range, name: str, size: int | None) -> None:
        self._reader = reader
        self._head = b""
        self._asked = 0  # the most bytes that were read for: there may be fewer
        self._tail: bytes | None = None
        self.name = name
        """Name of the document; a member of an archive is not called as its data are."""
        self.bare_name = bare_name(name)
        """The name in lower case, without the marks of an unfinished download."""
        self.size = size
        """Size of the document in bytes; None while unknown."""

    def head(self, count: int) -> bytes:
        """Return the first ``count`` bytes (at most 64 KiB), or as many as there are; empty if they are lost."""
        count = min(count, MAX_HEAD)
        if count > self._asked:
            wanted = max(count, _FIRST)
            try:
                self._head = self._reader.peek(wanted)
            except GapError:
                pass
            self._asked = wanted
        return self._head[:count]

    def tail(self, count: int) -> bytes:
        """Return the last ``count`` bytes (at most 64 KiB and 22).

        Empty if they are lost, or all of a stream would have to be decoded for them.
        """
        size = self.size
        if size is None or self._reader.data.access is not Access.FREE:
            return b""
        count = min(count, MAX_TAIL, size)
        if self._tail is None or count > len(self._tail):
            try:
                self._tail = self._reader.data.pread(self._reader.start + size - count, count)
            except GapError:
                return b""
        return self._tail[len(self._tail) - count :] if count else b""

    def ends_with(self, suffixes: Iterable[str]) -> bool:
        """Say whether the name ends with one of ``suffixes``, which are in lower case."""
        return self.bare_name.endswith(tuple(suffixes))

    def matches(self, marks: Iterable[Signature]) -> Confidence:
        """Return the strength of the strongest signature that the document begins with."""
        best = Confidence.NO
        for mark in marks:
            if mark.strength > best and self.head(mark.at + len(mark.magic))[mark.at :] == mark.magic:
                best = mark.strength
        return best


def confidence_of(parser: Recognising, excerpt: Excerpt, reader: Range) -> Confidence:
    """Ask ``parser`` to judge by the excerpt, and if that says no, by reading. Errors of the data mean no."""
    found = Confidence.NO
    for read in (False, True):
        try:
            found = parser.probe(excerpt, reader) if read else parser.match(excerpt)
        except PASSING:
            raise  # the error says nothing about the format
        except PparseError:
            continue
        if found:
            break
    return found
