"""What may go wrong, as one tree.

::

    PparseError                     the root: everything this package raises on purpose
    ├── SourceError       OSError      the source cannot be opened or read
    ├── EndOfDataError    EOFError     the source ends before the bytes asked for
    ├── EndOfRangeError   EOFError     a range ends before the bytes asked for
    ├── GapError                       the bytes asked for lie in a gap of the source
    ├── MalformedError    ValueError   the bytes contradict their format
    ├── FormatError       ValueError   no parser recognises the data, or no such parser
    │   └── NothingThereError          … since there is nothing: no byte, or zeros only
    ├── OptionError       ValueError   an option of a format has a value that means nothing
    ├── SplitError        ValueError   a message cannot be split into chunks within the limit
    ├── UnsupportedError               understood, but not readable here (names the missing package, if any)
    ├── LimitError                     a limit of ours says no (names the option that lifts it)
    ├── DataChangedError               the source changed while it was open
    ├── ClosedError       ValueError   the document was closed
    ├── PathError         LookupError  a path, key or tensor name leads nowhere
    ├── CancelledError                 the caller's ``cancel`` said stop
    ├── EngineError                    a parser broke the rules of the engine: a bug, never bad input
    └── TensorError
        ├── TruncatedTensorError       begins inside the file, ends beyond it
        ├── MissingTensorError         lies wholly beyond the file, or its file is not there
        └── DamagedTensorError         is there, but a check fails

`pparse.riegeli.errors` adds a branch with the names of the Riegeli bindings: RiegeliError and its kinds.

The numbers live on the exception, not only in its words.
"""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Fault(enum.Enum):
    """What kind of contradiction an error is: what code may go by, where words are for people."""

    TRAILING = enum.auto()  # bytes follow where the stream ends
    CHECKSUM = enum.auto()  # what came out of a stream has not the checksum at its end
    LENGTH = enum.auto()  # … not the length at its end
    SIZE = enum.auto()  # more came out than was declared before
    SHORT = enum.auto()  # the stream ends before all that was declared came out
    OVERRUN = enum.auto()  # the stream goes on where its container ends it
    TOO_FAR = enum.auto()  # a copy reaches back before the beginning
    FRAME = enum.auto()  # a frame, or its header, has not the checksum it should
    BLOCK = enum.auto()  # a block cannot be decoded
    BLOCK_SIZE = enum.auto()  # a block is larger than its frame allows
    UNREADABLE = enum.auto()  # a chunk that a message needs cannot be read


# What the trailer of a stream says against what came out of it.
TRAILER_FAULTS = frozenset({Fault.CHECKSUM, Fault.LENGTH})


class PparseError(Exception):
    """Root of all errors of pparse.

    Attributes (each ``None`` when unknown): ``offset`` in the data, ``wanted`` and ``got`` (bytes or counts),
    ``path`` of the node, ``source`` (name of the data), ``state`` of the parser, ``fault``: what kind it is. What lifts
    a limit of ours is ``option``, which is empty where none does.
    """

    option = ""

    def __init__(
        self,
        reason: str,
        *,
        offset: int | None = None,
        wanted: int | str | None = None,
        got: int | str | None = None,
        path: str | None = None,
        source: str | None = None,
        state: str | None = None,
        fault: Fault | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.wanted = wanted
        self.got = got
        self.path = path
        self.source = source
        self.state = state
        self.fault = fault

    def __str__(self) -> str:
        offset = f"@0x{self.offset:x}" if self.offset is not None else ""
        place = f"{self.path} {offset}".rstrip() if self.path else offset
        where = " ".join(f"{part}:" for part in (self.source, place) if part)
        numbers = ", ".join(
            f"{word} {value}" for word, value in (("wanted", self.wanted), ("got", self.got)) if value is not None
        )
        return " ".join(part for part in (where, self.reason, f"({numbers})" if numbers else "") if part)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, dict(self.__dict__)))


def _rebuild(cls: type[PparseError], reason: str, state: dict[str, object]) -> PparseError:
    error = cls.__new__(cls)
    Exception.__init__(error, reason)
    for name, value in state.items():
        setattr(error, name, value)
    return error


class SourceError(PparseError, OSError):
    """The source cannot be opened or read (``errno`` as the system gave it)."""

    def __init__(self, reason: str, *, errno: int | None = None, source: str | None = None, offset: int | None = None):
        PparseError.__init__(self, reason, source=source, offset=offset)
        self.errno = errno

    def __reduce__(self) -> tuple[object, ...]:
        # OSError keeps errno outside of __dict__.
        return (_rebuild, (type(self), self.reason, {**self.__dict__, "errno": self.errno}))


class EndOfDataError(PparseError, EOFError):
    """The source ends before the bytes asked for."""


class EndOfRangeError(PparseError, EOFError):
    """A range ends before the bytes asked for, though its source may go on."""


class GapError(PparseError):
    """The bytes asked for lie in a gap; ``length`` is None where the gap's extent is unknown."""

    def __init__(self, offset: int, length: int | None, *, source: str | None = None) -> None:
        extent = "of unknown length" if length is None else f"of {length} bytes"
        super().__init__(f"in a gap {extent}", offset=offset, source=source)
        self.length = length


class MalformedError(PparseError, ValueError):
    """The bytes contradict their format."""


class FormatError(PparseError, ValueError):
    """No parser recognises the data, or there is no parser of that name; ``option`` would have it read all the same."""

    def __init__(self, reason: str, *, source: str | None = None, option: str = "", **known: Any) -> None:
        super().__init__(reason, source=source, **known)
        self.option = option


class NothingThereError(FormatError):
    """No parser recognises the data, for there are none: no byte, or zeros only, as of a download that never began."""


class OptionError(PparseError, ValueError):
    """An option of a format has a value that means nothing."""


class SplitError(PparseError, ValueError):
    """A message cannot be split: a part of it, at ``path``, of ``wanted`` bytes, is above ``got``, the limit."""


class UnsupportedError(PparseError):
    """Understood, but not readable here; ``package`` names what to install, if that is it."""

    def __init__(self, reason: str, *, package: str | None = None, path: str | None = None, offset: int | None = None):
        hint = f"; install it with: pip install {package}" if package else ""
        super().__init__(reason + hint, path=path, offset=offset)
        self.package = package


class LimitError(PparseError):
    """One of our limits says no; ``option`` is the command-line option that lifts it, empty where none does.

    ``told``: the reason names it already.
    """

    def __init__(
        self,
        reason: str,
        *,
        option: str,
        wanted: int | str | None = None,
        got: int | str | None = None,
        path: str | None = None,
        offset: int | None = None,
        told: bool = False,
    ) -> None:
        advice = f"; lift it with {option}" if option and not told else ""
        super().__init__(reason + advice, wanted=wanted, got=got, path=path, offset=offset)
        self.option = option


class DataChangedError(PparseError):
    """The source changed while it was open: what was read before no longer holds."""


class ClosedError(PparseError, ValueError):
    """The document, or its source, was closed."""


class PathError(PparseError, LookupError):
    """A path, key or tensor name leads nowhere; ``suggestions`` holds near misses."""

    def __init__(self, reason: str, *, path: str | None = None, suggestions: tuple[str, ...] = ()) -> None:
        hint = f"; did you mean {', '.join(map(repr, suggestions))}?" if suggestions else ""
        super().__init__(reason + hint, path=path)
        self.suggestions = suggestions


class CancelledError(PparseError):
    """The caller's ``cancel`` callable returned true."""


class EngineError(PparseError):
    """A parser broke a rule of the engine (stood still, jumped back undeclared): a bug in the parser."""


# What says nothing of the data: whoever judges data by errors passes these on.
PASSING: tuple[type[PparseError], ...] = (SourceError, ClosedError, DataChangedError, CancelledError)


class TensorError(PparseError):
    """A tensor cannot be handed out; ``name`` says which."""

    def __init__(
        self,
        reason: str,
        *,
        name: str,
        offset: int | None = None,
        wanted: int | None = None,
        got: int | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(reason, path=name, offset=offset, wanted=wanted, got=got, source=source)
        self.name = name


class TruncatedTensorError(TensorError):
    """The tensor begins inside the file and ends beyond it; ``got`` of ``wanted`` bytes are there."""


class MissingTensorError(TensorError):
    """The tensor lies wholly beyond the file, or its file is not there."""


class DamagedTensorError(TensorError):
    """The tensor is there, but a check of it fails."""
