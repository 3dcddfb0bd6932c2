"""``import pparse``."""

from __future__ import annotations

from report import report

import pparse  # noqa: F401

report()
