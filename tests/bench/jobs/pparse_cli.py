"""The command, as its console script runs it."""

from __future__ import annotations

import sys

from pparse.cli import main

code = main(sys.argv[1:])

from report import report  # noqa: E402 -- after the work

report(code=code)
