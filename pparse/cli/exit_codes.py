"""The exit codes of the command line, and which error or finding leads to which."""

from __future__ import annotations

from pparse.errors import (
    CancelledError,
    ClosedError,
    EngineError,
    FormatError,
    LimitError,
    NothingThereError,
    OptionError,
    PathError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Final

    from pparse.errors import PparseError
    from pparse.findings import Finding

OK: Final = 0
BUG: Final = 1
USAGE: Final = 2
UNKNOWN_FORMAT: Final = 3
DAMAGED: Final = 4

# Of several files: the first of these that one of them has.
_WORST: Final = (BUG, USAGE, UNKNOWN_FORMAT, DAMAGED)


def exit_code_of(error: PparseError) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, NothingThereError):
        return DAMAGED
    if isinstance(error, FormatError):
        return UNKNOWN_FORMAT
    if isinstance(error, SourceError | PathError | OptionError | LimitError | UnsupportedError | CancelledError):
        return USAGE
    return BUG if isinstance(error, EngineError | ClosedError) else DAMAGED


def exit_code_for(findings: Iterable[Finding], *, damaged: bool = False, strict: bool = False) -> int:
    """Return 4 if something is wrong with the file, else 0. With ``strict``, warnings count, too."""
    counted = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return DAMAGED if damaged or any(finding.severity in counted for finding in findings) else OK


def exit_code_of_several(codes: Collection[int]) -> int:
    """Return the exit code of a command for several files from the ``codes`` of each."""
    return next((code for code in _WORST if code in codes), OK)
