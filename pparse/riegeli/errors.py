"""Errors of the Riegeli reader and writer, named and numbered as in the reference's Python bindings (absl codes).

All are `pparse.errors.PparseError`. Where the package has an error of the same meaning, it is that one too: an invalid
file is a `pparse.errors.MalformedError` (and so a ValueError), what was cancelled a `pparse.errors.CancelledError`.
"""

from __future__ import annotations

from pparse import errors
from pparse.errors import MalformedError, PparseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class RiegeliError(PparseError):
    """Root of the errors of this package; ``code`` is the absl status code."""

    code: ClassVar[int] = 2


class CancelledError(RiegeliError, errors.CancelledError):
    """The operation was cancelled."""

    code = 1


class UnknownError(RiegeliError):
    """An error of no known kind."""

    code = 2


class InvalidArgumentError(RiegeliError, MalformedError):
    """The file is invalid, or an argument is."""

    code = 3


class HashMismatchError(InvalidArgumentError):
    """The hash of a chunk's data contradicts them: none of the records in it can be trusted (ours)."""


class BoundsError(InvalidArgumentError, OverflowError):
    """A number is negative, or larger than its place can hold (ours)."""


class DeadlineExceededError(RiegeliError):
    """It took too long."""

    code = 4


class NotFoundError(RiegeliError):
    """Something is not there."""

    code = 5


class AlreadyExistsError(RiegeliError):
    """Something is there already."""

    code = 6


class PermissionDeniedError(RiegeliError):
    """Not allowed."""

    code = 7


class ResourceExhaustedError(RiegeliError):
    """A resource ran out."""

    code = 8


class FailedPreconditionError(RiegeliError):
    """The object is in no state for this (closed, for instance)."""

    code = 9


class ClosedRecordsError(FailedPreconditionError, errors.ClosedError):
    """The reader or writer was closed (ours)."""


class AbortedError(RiegeliError):
    """The operation was aborted."""

    code = 10


class OutOfRangeError(RiegeliError):
    """Beyond a valid range."""

    code = 11


class UnimplementedError(RiegeliError):
    """Valid, perhaps, but of a kind that is not known: a chunk type or compression of a later version."""

    code = 12


class InternalError(RiegeliError):
    """An inner rule was broken."""

    code = 13


class UnavailableError(RiegeliError):
    """Not available now."""

    code = 14


class DataLossError(RiegeliError):
    """Data were lost."""

    code = 15


class UnauthenticatedError(RiegeliError):
    """No valid credentials."""

    code = 16
