"""Commands of a page that need no shell, run by one process: it imports pparse once, and forks for each of them.

An interpreter per command takes most of the time of a page that has dozens.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """
import importlib, json, os, sys
import numpy
from pparse.cli import COMMANDS, main

for module, _ in COMMANDS.values():
    importlib.import_module(module)
for line in sys.stdin:
    folder, output, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        sys.argv = ["pparse", *words]
        code = 1
        try:
            code = main()
            sys.stdout.flush()
        except SystemExit as error:
            sys.stdout.flush()
            code = error.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


SHOWN_CODE = '; echo "exit code $?"'


def words_of(command: str) -> list[str] | None:
    """Return the words of a command behind ``pparse``, or None if a shell has to make something of it."""
    command = command.removesuffix(SHOWN_CODE)
    outside = "".join(command.split("'")[::2])  # of single quotes
    if not command.startswith("pparse ") or set(outside) & set('|&;<>()$`*?~#[]{}\\"'):
        return None
    return shlex.split(command)[1:]


class ForkedCommands:
    """Runs commands in an environment; both streams go into one."""

    def __init__(self, env: dict[str, str], output: Path) -> None:
        self._output = output
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> ForkedCommands:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.communicate()

    def run(self, words: list[str], folder: Path) -> tuple[int, str]:
        """Run ``pparse`` with these words in a folder; return its exit code and what it wrote."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(folder), str(self._output), words]) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return code, self._output.read_text(encoding="utf-8")
