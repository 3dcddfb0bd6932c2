"""Errors of the Riegeli reader and writer, named and numbered as in the reference's Python bindings (absl codes).

All are `pparse.errors.PparseError`; an invalid file is also a `pparse.errors.MalformedError` (and so a ValueError).
"""

from __future__ import annotations

from pparse.errors import MalformedError, PparseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class RiegeliError(PparseError):
    """Root of the errors of this package; ``code`` is the absl status code."""

    code: ClassVar[int] = 2


class CancelledError(RiegeliError):
    """The operation was cancelled."""

    code = 1


class UnknownError(RiegeliError):
    """An error of no known kind."""

    code = 2


class InvalidArgumentError(RiegeliError, MalformedError):
    """The file is invalid, or an argument is."""

    code = 3


class HashMismatch(InvalidArgumentError):
    """The hash of a chunk's data contradicts them: none of the records in it can be trusted (ours)."""


class DeadlineExceeded(RiegeliError):
    """It took too long."""

    code = 4


class NotFound(RiegeliError):
    """Something is not there."""

    code = 5


class AlreadyExists(RiegeliError):
    """Something is there already."""

    code = 6


class PermissionDenied(RiegeliError):
    """Not allowed."""

    code = 7


class ResourceExhausted(RiegeliError):
    """A resource ran out."""

    code = 8


class FailedPrecondition(RiegeliError):
    """The object is in no state for this (closed, for instance)."""

    code = 9


class Aborted(RiegeliError):
    """The operation was aborted."""

    code = 10


class OutOfRange(RiegeliError):
    """Beyond a valid range."""

    code = 11


class Unimplemented(RiegeliError):
    """Valid, perhaps, but of a kind that is not known: a chunk type or compression of a later version."""

    code = 12


class Internal(RiegeliError):
    """An inner rule was broken."""

    code = 13


class Unavailable(RiegeliError):
    """Not available now."""

    code = 14


class DataLoss(RiegeliError):
    """Data were lost."""

    code = 15


class Unauthenticated(RiegeliError):
    """No valid credentials."""

    code = 16
