"""A pytest plugin for ``tests/mutate.py``: which test runs which line, how long it takes, whether it passes.

Lines are noted by coverage. Used as ``pytest -p tests.line_map``, with the folder to write to and the modules to watch
in the environment.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["PPARSE_LINE_MAP"])


class LineMap:
    """What one process of a run notes."""

    def __init__(self) -> None:
        who = f"{os.getpid()}"
        modules = os.environ["PPARSE_LINE_MAP_MODULES"].split(os.pathsep)
        self.coverage = coverage.Coverage(str(FOLDER / f"lines.{who}"), include=modules, config_file=False)
        self.tests = (FOLDER / f"tests.{who}.jsonl").open("a")
        self.failed: set[str] = set()
        self.coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.coverage.switch_context(item.nodeid)
        began = time.process_time()
        yield
        seconds = time.process_time() - began
        self.coverage.switch_context("")
        row = {"test": item.nodeid, "seconds": round(seconds, 3), "passed": item.nodeid not in self.failed}
        self.tests.write(json.dumps(row) + "\n")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self):
        self.coverage.stop()
        self.coverage.save()
        self.tests.close()


def pytest_configure(config):
    # The process that hands out the tests runs none itself.
    if config.option.numprocesses in (None, 0) or hasattr(config, "workerinput"):
        config.pluginmanager.register(LineMap(), "line map")
