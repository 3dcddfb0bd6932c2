"""What a run costs: CPU seconds, items, processes started; and how much of that a whole run may have.

Seconds differ from machine to machine, so they are only told, and recorded for the estimate of ``tests/run.py``
(``python3 tests/tasks.py durations``). What is counted is the same everywhere: a run above its budget fails.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Path(__file__).parent / "durations.json"
# Whoever adds a test for which there is no room looks first for one that costs more than it notices.
BUDGETS = {"": {"items": 12_000, "processes": 450}, "--quick": {"items": 3_400, "processes": 80}}


def extent_of(options: Any) -> str:
    """Return the option that says how much is run."""
    return "--full" if options.full else "--quick" if options.quick else ""


def is_whole(config: pytest.Config) -> bool:
    """Whether a run is one of all tests of its extent, and not of some that somebody named."""
    options = config.option
    chosen = options.keyword or options.markexpr or options.deselect or getattr(options, "lf", False)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen and not options.collectonly


def cpu_seconds(*, children: bool = True) -> float:
    """Return the CPU seconds of this process so far, and of those it started and waited for."""
    return sum(os.times()[: 4 if children else 2])


def above(costs: dict[str, Any], extent: str) -> list[str]:
    """Return what is above the budget of a whole run, in words."""
    return [
        f"{costs[name]:,} {name}, {most:,} are allowed (BUDGETS in tests/costs.py)"
        for name, most in BUDGETS.get(extent, {}).items()
        if costs[name] > most
    ]


class Costs:
    """A plug-in of pytest: each worker counts, the process that started them adds up."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.counted: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.cpu = 0.0
        self.workers = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._count_process)
        self._popen = subprocess.Popen.__init__
        subprocess.Popen.__init__ = self._started  # type: ignore[method-assign]

    def _count_process(self) -> None:
        self.counted["processes"] += 1

    @property
    def _started(self) -> Any:
        counted, popen = self.counted, self._popen

        def started(process: Any, *args: Any, **more: Any) -> None:
            counted["processes"] += 1
            popen(process, *args, **more)

        return started

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Count an item, and what it costs."""
        begun = cpu_seconds()
        found = yield
        self.counted["items"] += 1
        self.files[item.nodeid.partition("::")[0]] += cpu_seconds() - begun  # type: ignore[assignment]
        return found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Add what a worker counted."""
        told = getattr(node, "workeroutput", {}).get("costs")
        if told is not None:
            self.workers += 1
            self.counted.update(told["counted"])
            self.files.update(told["files"])
            self.cpu += told["cpu"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell what was counted to the process that started this one, or fail if it is too much in all."""
        if self.is_worker:
            told = {"counted": dict(self.counted), "files": dict(self.files), "cpu": cpu_seconds()}
            self.config.workeroutput["costs"] = told  # type: ignore[attr-defined]
            return
        self.cpu += cpu_seconds(children=not self.workers)
        if is_whole(self.config) and above(self.told, extent_of(self.config.option)) and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.config.option.write_durations and not session.exitstatus:
            table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
            table[extent_of(self.config.option)] = self.told
            TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")

    @property
    def told(self) -> dict[str, Any]:
        """What is recorded, and compared with the budget."""
        return {
            "cpu_seconds": round(self.cpu),
            "items": self.counted["items"],
            "processes": self.counted["processes"],
            "files": {name: round(seconds, 1) for name, seconds in sorted(self.files.items()) if seconds >= 0.1},
        }

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what a whole run cost."""
        if is_whole(self.config):
            told = self.told
            terminalreporter.line(
                f"{told['items']:,} items, {told['processes']:,} processes started, {told['cpu_seconds']:,} CPU seconds"
            )
            for line in above(told, extent_of(self.config.option)):
                terminalreporter.line(f"too much: {line}", red=True)
