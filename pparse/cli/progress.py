"""The one progress line: on stderr, only on a terminal, only after half a second."""

from __future__ import annotations

import sys
import time

from pparse.limits import format_size

_AFTER = 0.5
_EVERY = 0.1


class Progress:
    """Called with ``(done, total, what)``; draws one line that is wiped at the end."""

    def __init__(self, *, units: str = "") -> None:
        self._enabled = sys.stderr.isatty()
        self._units = units
        self._begun = time.monotonic()
        self._next = self._begun + _AFTER
        self._drawn = False

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Draw, if it is time."""
        if not self._enabled:
            return
        now = time.monotonic()
        if total is not None and done >= total:
            self.clear()
            return
        if now < self._next:
            return
        self._next = now + _EVERY
        share = f"{100 * done // total:3d}% " if total else ""
        amount = f" ({format_size(done)} of {format_size(total)})" if total and total > 1 << 20 else ""
        sys.stderr.write(f"\r\x1b[K{share}{what}{amount}"[:200])
        sys.stderr.flush()
        self._drawn = True

    def clear(self) -> None:
        """Wipe the line."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
