"""Sweeps: what one run leaves out another one looks at, and what must be looked at always is."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests import sweep
from tests.conftest import ROOT


@pytest.fixture
def offset(monkeypatch):
    monkeypatch.setattr(sweep, "full", False)
    monkeypatch.setattr(sweep, "thin", 1)
    return lambda number: monkeypatch.setattr(sweep, "offset", number)


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_as_many_offsets_as_the_stride_look_at_every_place_once(offset, every) -> None:
    seen = []
    for number in range(1000, 1000 + sweep.stride(every)):
        offset(number)
        found = sweep.some(range(50), every)
        assert found == sorted(found)
        seen += found
    assert sorted(seen) == list(range(50))


def test_what_is_to_be_kept_and_the_ends_are_looked_at_with_any_offset(offset) -> None:
    for number in range(12):
        offset(number)
        assert {0, 1, 2, 17, 23, 97, 98, 99} <= set(sweep.some(range(100), 12, keep=(17, 23), ends=6))


@pytest.mark.parametrize("every", [1, 2, 3])
def test_each_value_comes_to_each_place_with_some_offset(offset, every) -> None:
    table, stride = "abcdef", sweep.stride(every)
    seen = set()
    for number in range(6 * stride):
        offset(number % stride + number // stride * sweep.TURN)
        for at in sweep.some(range(12), every):
            chosen = sweep.values(table, at)
            assert len(set(chosen)) == 2
            seen |= {(at, value) for value in chosen}
    assert seen == {(at, value) for at in range(12) for value in table}


def test_a_full_run_looks_at_everything(monkeypatch) -> None:
    monkeypatch.setattr(sweep, "full", True)
    assert sweep.some(range(9), 4) == list(range(9))
    assert sweep.values("abc", 5, 1) == "abc"
    assert sweep.sample("abc", 1) == "abc"


def test_a_sample_keeps_the_order_and_moves_with_the_offset(offset) -> None:
    drawn = set()
    for number in range(40):
        offset(number)
        found = sweep.sample(range(10), 4)
        assert found == sorted(set(found))
        assert len(found) == 4
        drawn |= set(found)
    assert drawn == set(range(10))


def collected(*options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "tests/test_sweep.py",
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True).stdout


def test_a_run_says_its_offset_first_and_takes_it_back() -> None:
    first = collected().splitlines()[0]
    offset = re.search(r"from offset (\d+) \(--sweep-offset \1 repeats it\)", first)
    assert offset
    assert int(offset[1]) == sweep.commit_offset()
    assert "from offset 77 " in collected("--sweep-offset", "77").splitlines()[0]
    assert collected("--full").splitlines()[0] == "sweeps look at every place (--full)"
