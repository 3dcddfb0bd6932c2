"""Python by itself."""

from __future__ import annotations

from report import report

report()
