"""`Task`: what can be done elsewhere."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Task:
    """What is to be done: can be pickled, unless it `is_local`. A result can be."""

    nbytes = 0
    """About how many bytes it reads."""
    together = 64 << 20
    """Bytes that are read in one batch, if it has several such tasks: so many that sending it costs little."""
    needs: Sequence[str] = ()
    """Modules that a result consists of: they are imported here while workers make it."""
    is_local = False
    """Whether it can only be done here."""

    def key(self) -> str | None:
        """Return what tells it from all others, of other sources, too; None if nothing does."""
        return None

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if whoever asked for it wants no more; report how far the work has come."""

    def run(self) -> Any:
        """Do it."""
        raise NotImplementedError

    def noted(self, result: Any) -> Any:
        """Return a result as JSON has it."""
        return result

    def known(self, noted: Any) -> Any:
        """Return the result that was noted so."""
        return noted
