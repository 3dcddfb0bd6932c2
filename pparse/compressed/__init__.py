"""Compressed streams as Data: whole, indexed, or damaged and put together again."""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.compressed.inflated import InflatedData
__getattr__ = lazy_names(__name__, {"InflatedData": "inflated"})
__all__ = ["InflatedData"]
