"""The watchdog over each test, and what a run may cost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import costs
from tests.watchdog import children_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals to other threads there")


def hung(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in which something hangs, in a process with a watchdog of half a second."""
    script = f"import os, subprocess, sys, threading, time\nfrom tests.watchdog import Watchdog\n{code}"
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=costs.TABLE.parent.parent)


def test_what_hangs_is_shown_and_fails_and_leaves_no_process():
    ran = hung("""
dog = Watchdog(0.5)
try:
    with dog.over("the one"):
        child = subprocess.Popen(["sleep", "600"])
        threading.Lock().acquire() and threading.Event().wait()
except BaseException as error:
    print(type(error).__name__, child.wait(timeout=20))
with dog.over("the next"):
    pass
time.sleep(1)
print("goes on")
""")
    assert ran.stdout.splitlines() == ["HungTestError -9", "goes on"]
    assert "the one did not end after 0.5 seconds" in ran.stderr
    assert 'File "<string>"' in ran.stderr


def test_a_process_that_no_exception_reaches_is_ended():
    ran = hung("""
with Watchdog(0.2, grace=0.2).over("the one"):
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
""")
    assert (ran.returncode, ran.stdout) == (70, "")
    assert "the one does not end for an exception either" in ran.stderr


def test_children_are_found():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children_of(os.getpid())
        child.communicate(b"\n")
    assert child.pid not in children_of(os.getpid())


def test_a_run_above_its_budget_is_told():
    most = costs.BUDGETS[""]
    assert costs.above(most, "") == []
    assert costs.above({**most, "items": most["items"] + 1}, "") == [
        f"{most['items'] + 1:,} items, {most['items']:,} are allowed (BUDGETS in tests/costs.py)"
    ]
    assert costs.above({"items": 10**9, "processes": 10**9}, "--full") == []
