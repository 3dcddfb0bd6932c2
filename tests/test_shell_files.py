"""Completions and man pages know every command and option; shells and ``man`` take them, where they are there."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from pparse.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_shell_files", ROOT / "docs" / "make_shell_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented() -> dict[str, set[str]]:
    """Return the options of each command as docs/cli.md has them, which is made of what the commands print."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### pparse (\w+)\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(r"(?<=\s)--?[a-zA-Z][\w-]*", _options(help))) for name, help in sections}


def _options(help: str) -> str:
    """Return the lines of a help text that declare an option, up to its words."""
    return "\n".join(
        re.split(r"(?<=\S) {2,}", line)[0] for line in help.split("\n") if re.match(r"  --?[a-zA-Z]", line)
    )


def test_every_command_and_option_is_known(maker) -> None:
    parser = maker.whole_parser("a file", "a folder")
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    wanted = documented()
    assert list(commands.choices) == list(COMMANDS) == list(wanted)
    for name, command in commands.choices.items():
        assert set(command._option_string_actions) == wanted[name] | {"-h", "--help"}, name
    ls = {action.dest: action for action in commands.choices["ls"]._actions}
    assert "safetensors" in ls["format"].choices
    assert (ls["files"].complete, ls["scratch"].complete) == ("a file", "a folder")
    assert not hasattr(ls["patterns"], "complete")


def test_shells_and_man_take_what_is_made(maker, tmp_path) -> None:
    pytest.importorskip("shtab")
    pytest.importorskip("argparse_manpage")
    checks = {
        "bash": ["bash", "-n"],
        "zsh": ["zsh", "-n"],
        "fish": ["fish", "-n"],
        "man": ["groff", "-man", "-ww", "-z"],
    }
    for path, text in {**maker.completions(), **maker.man_pages()}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        check = next(words for kind, words in checks.items() if path.startswith(kind))
        if which(check[0]) is not None:
            ran = subprocess.run([*check, str(file)], capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, ""), path
        options = {"--min-size", "--digest"} if path.endswith(("pparse", ".fish")) else set()
        assert all(option.lstrip("-") in text for option in options), path
