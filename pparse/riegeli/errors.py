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

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        super().__init_subclass__()
        cls.code = cls.code if code is None else code


class CancelledError(RiegeliError, errors.CancelledError, code=1):
    """The operation was cancelled."""


class UnknownError(RiegeliError, code=2):
    """An error of no known kind."""


class InvalidArgumentError(RiegeliError, MalformedError, code=3):
    """The file is invalid, or an argument is."""


class HashMismatchError(InvalidArgumentError):
    """The hash of a chunk's data does not match them: no record in it can be trusted. Not in the reference."""


class BoundsError(InvalidArgumentError, OverflowError):
    """A number is negative or too large for its field. Not in the reference."""


class DeadlineExceededError(RiegeliError, code=4):
    """The operation took too long."""


class NotFoundError(RiegeliError, code=5):
    """Something was not found."""


class AlreadyExistsError(RiegeliError, code=6):
    """Something exists already."""


class PermissionDeniedError(RiegeliError, code=7):
    """Not allowed."""


class ResourceExhaustedError(RiegeliError, FaultError, code=8):
    """A resource is exhausted: memory, or a limit on it."""


class FailedPreconditionError(RiegeliError, code=9):
    """The object is in the wrong state for the call, closed for instance."""


class ClosedRecordsError(FailedPreconditionError, errors.ClosedError):
    """The reader or writer was closed. Not in the reference."""


class AbortedError(RiegeliError, code=10):
    """The operation was aborted."""


class OutOfRangeError(RiegeliError, code=11):
    """A value is outside of its valid range."""


class UnimplementedError(RiegeliError, FaultError, code=12):
    """Possibly valid, but not supported: a later chunk type or compression, or a source that cannot seek."""


class InternalError(RiegeliError, FaultError, code=13):
    """An internal invariant was broken."""


class UnavailableError(RiegeliError, code=14):
    """A service is not available now."""


class DataLossError(RiegeliError, code=15):
    """Data were lost or corrupted."""


class UnauthenticatedError(RiegeliError, code=16):
    """The request has no valid credentials."""
