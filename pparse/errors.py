"""What may go wrong: the tree of exceptions.

::

    PparseError                        the root: everything this package raises on purpose
    ├── SourceError          OSError      the source cannot be opened or read
    ├── DataChangedError                  the source changed while it was open
    ├── ClosedError          ValueError   the document was closed
    ├── CancelledError                    the caller's ``cancel`` asked to stop
    └── DataError                         those above say nothing about the data; all others are of this kind
        ├── LimitError                    one of our limits was exceeded (names the option that lifts it)
        └── FaultError                    something is wrong with the data, or with what was asked of them
            ├── EndOfDataError   EOFError     the source ends before the bytes asked for
            ├── EndOfRangeError  EOFError     a range ends before the bytes asked for
            ├── GapError                      the bytes asked for lie in a gap of the source
            ├── MalformedError   ValueError   the bytes contradict their format
            ├── FormatError      ValueError   no parser recognises the data, or no such parser
            │   └── NothingThereError         … because there is nothing: no bytes, or only zeros
            ├── OptionError      ValueError   an option of a format has an invalid value
            ├── SplitError       ValueError   a message cannot be split into chunks below the limit
            ├── UnsupportedError              recognised, but cannot be read (names the missing package, if any)
            ├── WorkerDiedError               a process that did a part of the work died
            ├── PathError        LookupError  a path, key or tensor name leads nowhere
            │   └── MissingNameError KeyError … in a mapping by names: of tensors, nodes, signatures
            ├── NotWholeError                 not everything that was to be converted is whole; nothing was written
            ├── EngineError                   a parser broke the rules of the engine: a bug, never bad input
            └── TensorError
                ├── TruncatedTensorError      begins inside the file, ends beyond it
                ├── MissingTensorError        lies wholly beyond the file, or its file is missing
                └── DamagedTensorError        is there, but a check fails

`pparse.riegeli.errors` adds a branch named as in the Riegeli bindings: RiegeliError and its subclasses.

The numbers are attributes of the exception, not only part of its message.
"""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_to_commands = False


def speak_of_commands(*, yes: bool) -> bool:
    """Set whether messages advise options of commands, as those of ``pparse`` do, or Python; return what was set."""
    global _to_commands
    before, _to_commands = _to_commands, yes
    return before


def told(command: str, python: str) -> str:
    """Return the advice for whom reads a message: who runs a command, or calls the library."""
    return command if _to_commands else python


def spoken(option: str) -> str:
    """Return an option of commands as whom reads a message gives it: ``--limit depth=9`` is ``limits=Limits(depth=9)``.

    Functions call their keywords as commands call their options. Any other text stays as it is.
    """
    name, _, value = option.partition(" ")
    if _to_commands or not name.startswith("-"):
        return option
    if name == "--limit":
        return f"limits=Limits({value})"
    if name == "-O":
        key, _, meant = value.partition("=")
        return f'options={{"{key}": "{meant}"}}'
    word = "format" if name == "-f" else name.lstrip("-").replace("-", "_")
    if not value:
        return "a larger budget" if word == "budget" else f"{word}=True"
    return f"{word}={value}" if value.isdigit() or value.isupper() else f'{word}="{value}"'


class Fault(enum.Enum):
    """What an error contradicts. Code branches on this; the words are for people.

    The values appear in the JSON of findings, and stay the same between versions.
    """

    TRAILING = "trailing"  # bytes follow the end of the stream
    CHECKSUM = "checksum"  # the output of a stream does not match the checksum at its end
    LENGTH = "length"  # … or the length at its end
    SIZE = "size"  # a stream yields more than it declared
    SHORT = "short"  # a stream yields less than it declared
    OVERRUN = "overrun"  # a stream continues beyond the end that its container gives
    TOO_FAR = "too-far"  # a copy refers to bytes before the beginning
    FRAME = "frame"  # a frame or its header does not match its checksum
    BLOCK = "block"  # a block cannot be decoded
    BLOCK_SIZE = "block-size"  # a block is larger than its frame allows
    UNREADABLE = "unreadable"  # a chunk that a message needs cannot be read


# What the trailer of a stream says against what came out of it.
TRAILER_FAULTS = frozenset({Fault.CHECKSUM, Fault.LENGTH})


class PparseError(Exception):
    """Root of all errors of pparse. An attribute is None where unknown."""

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
        """What is wrong, in words."""
        self.offset = offset
        """Where, as an offset in the data."""
        self.wanted = wanted
        """Bytes or counts that were needed."""
        self.got = got
        """Bytes or counts found instead."""
        self.path = path
        """Path of the node, or name of the tensor."""
        self.source = source
        """Name of the data."""
        self.state = state
        """State of the parser."""
        self.fault = fault
        """What kind of contradiction it is."""

    def __str__(self) -> str:
        offset = f"@0x{self.offset:x}" if self.offset is not None else ""
        place = f"{self.path} {offset}".rstrip() if self.path else offset
        where = " ".join(f"{part}:" for part in (self.source, place) if part)
        return " ".join(part for part in (where, self.reason, counts(self.wanted, self.got)) if part)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, dict(self.__dict__)))


def counts(wanted: int | str | None, got: int | str | None) -> str:
    """Return what was needed, and what was found instead, as messages have it behind the reason; empty if unknown."""
    known = [f"{word} {value}" for word, value in (("wanted", wanted), ("got", got)) if value is not None]
    return f"({', '.join(known)})" if known else ""


def _rebuild(cls: type[PparseError], reason: str, state: dict[str, object]) -> PparseError:
    error = cls.__new__(cls)
    Exception.__init__(error, reason)
    for name, value in state.items():
        setattr(error, name, value)
    return error


class DataError(PparseError):
    """Base of the errors that say something about the data, or about what was asked of them.

    The others (`SourceError`, `ClosedError`, `DataChangedError`, `CancelledError`) do not: code that judges data by
    errors catches these, and lets the others propagate.
    """


class FaultError(DataError):
    """Base of the errors that a limit of ours does not explain: who is to go on in spite of them catches these."""


class SourceError(PparseError, OSError):
    """The source cannot be opened or read."""

    def __init__(self, reason: str, *, errno: int | None = None, source: str | None = None, offset: int | None = None):
        PparseError.__init__(self, reason, source=source, offset=offset)
        self.errno = errno
        """Error number of the system."""

    def __reduce__(self) -> tuple[object, ...]:
        # OSError keeps errno outside __dict__.
        return (_rebuild, (type(self), self.reason, {**self.__dict__, "errno": self.errno}))


def system_error(error: Exception, doing: str, source: str | None) -> SourceError:
    """Return what to raise where ``error``, most often of the system, is why something ``doing`` tells failed."""
    reason = getattr(error, "strerror", None) or error
    return SourceError(f"{doing}: {reason}", errno=getattr(error, "errno", None), source=source)


class refused:  # noqa: N801 -- a verb, for `with`; contextlib takes half a millisecond of each start
    """Raise what `system_error` makes of it where the system refuses something in the block."""

    def __init__(self, doing: str, source: str | None) -> None:
        self._known = doing, source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, SourceError):
            raise system_error(error, *self._known) from error


class EndOfDataError(FaultError, EOFError):
    """The source ends before the bytes asked for."""


class EndOfRangeError(FaultError, EOFError):
    """A range ends before the bytes asked for, even if its source goes on."""


class GapError(FaultError):
    """The bytes asked for lie in a gap of the source."""

    def __init__(self, offset: int, length: int | None, *, source: str | None = None) -> None:
        extent = "of unknown length" if length is None else f"of {length} bytes"
        super().__init__(f"in a gap {extent}", offset=offset, source=source)
        self.length = length
        """Bytes from ``offset`` to the end of the gap; None: unknown."""


class MalformedError(FaultError, ValueError):
    """The bytes contradict their format."""


class FormatError(FaultError, ValueError):
    """No parser recognises the data, or there is no parser of that name."""

    def __init__(self, reason: str, *, source: str | None = None, option: str = "", **known: Any) -> None:
        super().__init__(reason, source=source, **known)
        self.option = option
        """Option with which the data would be read anyway; empty: none."""


class NothingThereError(FormatError):
    """No parser recognises the data because there is none: no bytes, or only zeros of a download that never began."""


class OptionError(FaultError, ValueError):
    """An option of a format has an invalid value."""


class SplitError(FaultError, ValueError):
    """A message cannot be split: the part at ``path``, of ``wanted`` bytes, exceeds the limit of ``got`` bytes."""


class UnsupportedError(FaultError):
    """The data is recognised, but cannot be read here."""

    def __init__(self, reason: str, *, package: str | None = None, **known: Any) -> None:
        hint = f"; install it with: pip install {package}" if package else ""
        super().__init__(reason + hint, **known)
        self.package = package
        """What to install to read it, if that helps."""


class LimitError(DataError):
    """One of our limits was exceeded. ``told``: the reason already names the option."""

    def __init__(self, reason: str, *, option: str, told: bool = False, **known: Any) -> None:
        advice = f"; lift it with {spoken(option)}" if option and not told else ""
        super().__init__(reason + advice, **known)
        self.option = option
        """Command-line option that lifts the limit; empty: none does."""


class DataChangedError(PparseError):
    """The source changed while it was open: what was read earlier is no longer valid."""


class ClosedError(PparseError, ValueError):
    """The document, or its source, was closed."""


class PathError(FaultError, LookupError):
    """A path, key or tensor name leads nowhere."""

    def __init__(self, reason: str, *, path: str | None = None, suggestions: tuple[str, ...] = ()) -> None:
        hint = f"; did you mean {', '.join(map(repr, suggestions))}?" if suggestions else ""
        super().__init__(reason + hint, path=path)
        self.suggestions = suggestions
        """Names that look similar."""


class MissingNameError(PathError, KeyError):
    """A model has no tensor, or its graph no node, function or signature, of that name."""


class CancelledError(PparseError):
    """The caller's ``cancel`` callable returned true."""


class WorkerDiedError(FaultError):
    """A process that did a part of the work died."""

    def __init__(self, reason: str, *, was_killed: bool = False, **known: Any) -> None:
        super().__init__(reason, **known)
        self.was_killed = was_killed
        """Whether somebody else ended it: a person, or a system that is short of memory."""


class NotWholeError(FaultError):
    """Not everything that was to be converted is whole, and nothing was written."""

    def __init__(self, reason: str, *, source: str | None = None, lost: tuple[tuple[str, str, str], ...] = ()) -> None:
        super().__init__(reason, source=source)
        self.lost = lost
        """The tensors that are not whole: name, status and reason of each."""


class EngineError(FaultError):
    """A parser broke a rule of the engine (stood still, jumped back undeclared): a bug in the parser."""


# These say nothing about the data: code that judges data by errors lets them propagate.
PASSING: tuple[type[PparseError], ...] = (SourceError, ClosedError, DataChangedError, CancelledError)


class TensorError(FaultError):
    """A tensor cannot be read."""

    def __init__(self, reason: str, *, name: str, **known: Any) -> None:
        super().__init__(reason, path=name, **known)
        self.name = name
        """Name of the tensor."""


class TruncatedTensorError(TensorError):
    """The tensor begins inside the file and ends beyond it; ``got`` of its ``wanted`` bytes exist."""


class MissingTensorError(TensorError):
    """The tensor lies wholly beyond the file, or its file is missing."""


class DamagedTensorError(TensorError):
    """The tensor exists, but fails a check."""
