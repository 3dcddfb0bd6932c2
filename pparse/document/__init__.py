"""Open documents: extractions, sessions, and which parser fits."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.document.opening import open
__getattr__ = lazy_names(__name__, {"open": "opening"})
__all__ = ["open"]
