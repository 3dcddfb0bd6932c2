"""Transcripts of the command on the samples, in ``tests/golden``.

A transcript begins with the command line; then come what it wrote on standard output, what it wrote on standard error
(behind ``--- stderr``), and its exit code. To make one, write the command line into a new file; to bring all up to
date, run ``PPARSE_UPDATE_GOLDEN=1 pytest tests/test_golden.py`` and look at the difference. ``$TMP`` stands for an
empty folder.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"
UPDATE = bool(os.environ.get("PPARSE_UPDATE_GOLDEN"))
TRANSCRIPTS = sorted(GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_a_command_prints_what_its_golden_file_says(path, run, samples, tmp_path):
    wanted = path.read_text(encoding="utf-8")
    line = wanted.split("\n", 1)[0]
    assert line.startswith("$ pparse ")
    ran = run(*(word.replace("$TMP", str(tmp_path)) for word in shlex.split(line)[2:]))
    parts = [line + "\n", ran.out]
    if ran.err:
        parts += ["--- stderr\n", ran.err]
    parts.append(f"--- exit {ran.code}\n")
    got = "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts)
    got = got.replace(str(tmp_path), "$TMP")
    if UPDATE:
        path.write_text(got, encoding="utf-8")
    assert got == path.read_text(encoding="utf-8")


def test_there_are_transcripts_of_every_command():
    from pparse.cli import COMMANDS

    used = {path.read_text(encoding="utf-8").split()[2] for path in TRANSCRIPTS}
    assert used >= set(COMMANDS)
    assert not UPDATE, "the transcripts were brought up to date: look at 'git diff tests/golden', and run this again"
