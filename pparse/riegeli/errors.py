"""Errors of the Riegeli reader and writer, with the names and codes of the reference's Python bindings (absl status).

All are subclasses of `pparse.errors.PparseError`. Where `pparse.errors` has an error of the same meaning, that is a
base class too: an invalid file is a `pparse.errors.MalformedError` (and so a ValueError).
"""

from __future__ import annotations

from pparse import errors
from pparse.errors import FaultError, MalformedError, PparseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class RiegeliError(PparseError):
    """Base class of the errors of this package; ``code`` is the absl status code."""

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
    """The hash of a chunk's data does not match them: no record in it can be trusted. Not in the reference."""


class BoundsError(InvalidArgumentError, OverflowError):
    """A number is negative or too large for its field. Not in the reference."""


class DeadlineExceededError(RiegeliError):
    """The operation took too long."""

    code = 4


class NotFoundError(RiegeliError):
    """Something was not found."""

    code = 5


class AlreadyExistsError(RiegeliError):
    """Something exists already."""

    code = 6


class PermissionDeniedError(RiegeliError):
    """Not allowed."""

    code = 7


class ResourceExhaustedError(RiegeliError, FaultError):
    """A resource is exhausted: memory, or a limit on it."""

    code = 8


class FailedPreconditionError(RiegeliError):
    """The object is in the wrong state for the call, closed for instance."""

    code = 9


class ClosedRecordsError(FailedPreconditionError, errors.ClosedError):
    """The reader or writer was closed. Not in the reference."""


class AbortedError(RiegeliError):
    """The operation was aborted."""

    code = 10


class OutOfRangeError(RiegeliError):
    """A value is outside of its valid range."""

    code = 11


class UnimplementedError(RiegeliError, FaultError):
    """Possibly valid, but not supported: a later chunk type or compression, or a source that cannot seek."""

    code = 12


class InternalError(RiegeliError, FaultError):
    """An internal invariant was broken."""

    code = 13


class UnavailableError(RiegeliError):
    """A service is not available now."""

    code = 14


class DataLossError(RiegeliError):
    """Data were lost or corrupted."""

    code = 15


class UnauthenticatedError(RiegeliError):
    """The request has no valid credentials."""

    code = 16
