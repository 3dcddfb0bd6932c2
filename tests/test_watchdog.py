"""The watchdog over all that pytest runs, and what a run may cost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import costs
from tests.watchdog import children_of, fail_for_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals to other threads there")
ROOT = costs.TABLE.parent.parent


def hung(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in which something hangs, in a process of its own."""
    script = f"import os, re, subprocess, sys, threading, time\nfrom tests.watchdog import Watchdog\n{code}"
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_what_hangs_is_shown_and_fails_and_leaves_no_process():
    ran = hung("""
dog = Watchdog(0.3)
try:
    with dog.over("the one"), dog.interruptible():
        child = subprocess.Popen(["sleep", "20"])
        threading.Lock().acquire() and threading.Event().wait()
except BaseException as error:
    print(type(error).__name__, child.wait(timeout=20))
with dog.over("the next"), dog.interruptible():
    pass
time.sleep(0.5)
print("goes on")
""")
    assert ran.stdout.splitlines() == ["HungTestError -9", "goes on"]
    assert "the one did not end after 0.3 seconds" in ran.stderr
    assert 'File "<string>"' in ran.stderr


def test_what_hangs_fails_only_where_pytest_expects_it_and_even_if_it_ends_then():
    ran = hung("""
dog = Watchdog(0.3)
try:
    with dog.over("the one"):
        time.sleep(0.7)
        with dog.interruptible():
            try:
                print("begun")
                children = [subprocess.Popen(["sleep", "20"]) for _ in range(8)]
                children[0].wait()
            except BaseException as error:
                print("caught", error)
except BaseException as error:
    print("failed", error)
""")
    error = "the one: no end after 0.3 seconds; the output has all stacks"
    assert ran.stdout.splitlines() == ["begun", f"caught {error}", f"failed {error}"]


def test_a_process_that_no_exception_reaches_is_ended():
    ran = hung("""
dog = Watchdog(0.2, grace=0.2)
with dog.over("the one"), dog.interruptible():
    while True:
        try:
            time.sleep(20)
        except BaseException:
            pass
""")
    assert (ran.returncode, ran.stdout) == (70, "")
    assert "the one did not end for an exception either" in ran.stderr


def test_a_process_in_which_no_other_thread_gets_to_run_is_ended():
    ran = hung("""
dog = Watchdog(0.2, grace=0.1)
with dog.over("the one"), dog.interruptible():
    re.match("(a+)+$", "a" * 60 + "b")
""")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ", line 6 in <module>" in ran.stderr


def test_files_that_hang_and_fixtures_that_hang_are_told_of(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests import watchdog\nwatchdog.PATIENCE = 0.3\n")
    (tmp_path / "test_file.py").write_text("import time\ntime.sleep(20)\n")
    (tmp_path / "test_fixture.py").write_text("""
import time, pytest
@pytest.fixture(scope="module")
def slow(): time.sleep(20)
def test_one(slow): pass
def test_two(slow): pass
""")
    words = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--continue-on-collection-errors", str(tmp_path)]
    more = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path, env={**os.environ, **more})
    told = [line.split(" - ") for line in ran.stdout.splitlines() if line.startswith("ERROR ")]
    assert [(name, said.partition("; ")[0]) for name, said in told] == [
        ("ERROR test_file.py", "tests.watchdog.HungTestError: test_file.py: no end after 0.3 seconds"),
        *[
            (
                f"ERROR test_fixture.py::{name}",
                "tests.watchdog.HungTestError: test_fixture.py::test_one: no end after 0.3 seconds",
            )
            for name in ("test_one", "test_two")
        ],
    ]


def test_threads_that_are_left_running_fail_the_test_that_left_them():
    end = threading.Event()
    threading.Thread(target=end.wait, name="a daemon", daemon=True).start()
    threading.Thread(target=end.wait, name="forgotten").start()
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    try:
        with pytest.raises(pytest.fail.Exception, match=r"left threads running that are no daemons: forgotten$"):
            fail_for_threads(0.01)
    finally:
        end.set()
    fail_for_threads()
    pool.shutdown()


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
