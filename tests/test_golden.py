"""Transcripts of the command on the samples, in ``tests/golden``.

A transcript begins with the command line; then come what it wrote on standard output, what it wrote on standard error
(behind ``--- stderr``), and its exit code. To make one, write the command line into a new file; to bring all up to
date, run ``PPARSE_UPDATE_GOLDEN=1 pytest tests/test_golden.py`` and look at the difference. ``$TMP`` stands for an
empty folder. Variables of the environment may stand before the command, as in a shell: ``COLUMNS=80`` makes standard
output a terminal of that width. Several commands may stand in one file. ``$TREES/NAME`` is the folder with that name in
`tests.folder_trees`, in the current folder.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.folder_trees import TREES, fill

GOLDEN = Path(__file__).resolve().parent / "golden"
UPDATE = bool(os.environ.get("PPARSE_UPDATE_GOLDEN"))
COMMAND = re.compile(r"\$ (?:[A-Z_]+=\S+ )*pparse (\S+)")
TRANSCRIPTS = sorted(GOLDEN.glob("*.txt"))


class Screen(io.StringIO):
    """A terminal; COLUMNS and LINES say its size."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_a_command_prints_what_its_golden_file_says(path, run, samples, tmp_path, monkeypatch):
    wanted = path.read_text(encoding="utf-8")
    got = "".join(
        _transcript(line, run, tmp_path, monkeypatch) for line in wanted.split("\n") if COMMAND.match(line)
    ).replace(str(tmp_path), "$TMP")
    if UPDATE:
        path.write_text(got, encoding="utf-8")
    assert got == path.read_text(encoding="utf-8")


def _transcript(line, run, tmp_path, monkeypatch) -> str:
    """Run a command line; return it and what it gave."""
    words = [word.replace("$TMP", str(tmp_path)) for word in shlex.split(line)[1:]]
    at = words.index("pparse")
    with monkeypatch.context() as patch:
        for place, word in enumerate(words):
            if word.startswith("$TREES/"):
                words[place] = name = word.partition("/")[2]
                if not (tmp_path / name).exists():
                    fill(tmp_path / name, TREES[name])
                patch.chdir(tmp_path)
        patch.delenv("LINES", raising=False)
        for name, value in (word.split("=") for word in words[:at]):
            patch.setenv(name, value)
        screen = Screen() if any(word.startswith("COLUMNS=") for word in words[:at]) else None
        if screen is not None:
            patch.setattr("sys.stdout", screen)
        ran = run(*words[at + 1 :])
        out = ran.out if screen is None else screen.getvalue()
    parts = [line + "\n", out]
    if ran.err:
        parts += ["--- stderr\n", ran.err]
    parts.append(f"--- exit {ran.code}\n")
    return "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts)


def test_there_are_transcripts_of_every_command():
    from pparse.cli import COMMANDS

    used = {match[1] for path in TRANSCRIPTS if (match := COMMAND.match(path.read_text(encoding="utf-8")))}
    assert used >= set(COMMANDS)
    assert not UPDATE, "the transcripts were brought up to date: look at 'git diff tests/golden', and run this again"
