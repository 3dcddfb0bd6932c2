"""``import pparse``."""

from __future__ import annotations

import pparse  # noqa: F401
from report import report

report()
