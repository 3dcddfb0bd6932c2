"""Measuring: identities of tensors and models, statistics, and what differs between two models."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.measuring.difference import diff
    from pparse.measuring.hashing import hash
    from pparse.measuring.statistics import stats
__getattr__ = lazy_names(__name__, {"diff": "difference", "hash": "hashing", "stats": "statistics"})
__all__ = ["diff", "hash", "stats"]
