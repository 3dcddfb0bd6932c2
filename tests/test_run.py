"""What sets up and starts the tests: `tests/run.py`, `tests/mutate.py`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import mutate, run

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Where the environment is to be made, named from the folder of the caller."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPARSE_VENV", "made")
    return tmp_path / "made"


@pytest.fixture
def steps(folder, monkeypatch) -> list[str]:
    """What was done to make an environment; the first time it is interrupted."""
    done: list[str] = []

    def create(where: Path, with_pip: bool) -> None:
        done.append(f"create {sorted(path.name for path in where.iterdir())}")
        (where / NAMES[0]).mkdir()
        where.joinpath(*NAMES).touch()
        if len(done) == 1:
            raise InterruptedError

    def install(words: list) -> subprocess.CompletedProcess:
        assert words[0] == folder.joinpath(*NAMES)
        done.append("install")
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(run.venv, "create", create)
    monkeypatch.setattr(run.subprocess, "run", install)
    return done


def test_an_environment_that_was_interrupted_is_made_again(folder, steps):
    with pytest.raises(SystemExit):
        run.environment()
    for _ in range(2):
        assert run.environment() == folder.joinpath(*NAMES)
    assert steps == ["create ['unfinished']"] * 2 + ["install"]
    assert not (folder / "unfinished").exists()


def test_a_folder_that_is_no_environment_stays_as_it_is(folder, steps):
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(SystemExit, match="neither empty nor a virtual environment; PPARSE_VENV=FOLDER names another"):
        run.environment()
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert steps == []


def test_a_checkout_in_which_nothing_can_be_written_is_told(folder, steps, monkeypatch):
    monkeypatch.setattr(run.os, "access", lambda path, mode: path != run.ROOT)
    with pytest.raises(SystemExit, match=r"pip has to write in .*; PPARSE_VENV=FOLDER names another"):
        run.environment()
    assert steps == []


def test_help_installs_nothing(folder, steps, capsys):
    assert run.run_tests(["-k", "zip", "--help"]) == 0
    assert "All else goes to pytest" in capsys.readouterr().out
    assert (steps, folder.exists()) == ([], False)


def test_paths_are_those_from_where_the_caller_is(tmp_path, monkeypatch):
    (tmp_path / "zip").mkdir()
    (tmp_path / "test_zip.py").touch()
    monkeypatch.chdir(tmp_path)
    words = ["-k", "zip", "zip", "test_zip.py::test_one", "tests/test_tar.py", "-x"]
    there = [str(tmp_path / "zip"), f"{tmp_path / 'test_zip.py'}::test_one"]
    assert run.from_here(words) == ["-k", "zip", *there, "tests/test_tar.py", "-x"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody inherits processes")
def test_what_the_tests_leave_running_is_killed():
    script = """
import subprocess, run
with run.nothing_left():
    subprocess.run("(setsid sleep 20 &)", shell=True)
    print(len(run.children()))
print(len(run.children()))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=run.ROOT / "tests")
    assert (ran.stdout, ran.stderr) == ("1\n0\n", "")


def test_mutations_without_coverage_are_told_what_to_install(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mutate.py", "--only", "parsers/streams", "--count", "1"])
    monkeypatch.setattr(mutate, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"testing,mutation"):
        mutate.main()
