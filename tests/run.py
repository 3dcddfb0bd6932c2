"""Set up and test on a fresh clone, with nothing but Python: ``python3 tests/run.py``.

Makes a virtual environment (``.venv``, or where PPARSE_VENV says), installs pparse and what its tests need, and runs
pytest on all cores; arguments are passed on to it (``-n 0``: in one process).
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(extras: str = "") -> Path:
    """Return the Python of an environment in which pparse is installed (editable), made if need be."""
    if sys.version_info < (3, 11):
        sys.exit(f"pparse needs Python 3.11 or later; this is {sys.version.split()[0]}")
    folder = Path(os.environ.get("PPARSE_VENV", ROOT / ".venv"))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / f"installed{extras.replace(',', '-')}"
    wanted = (ROOT / "pyproject.toml").read_text()
    if not python.exists():
        print(f"making a virtual environment in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing pparse{extras}", file=sys.stderr)
        command = [python, "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}{extras}"]
        if subprocess.run(command).returncode:
            sys.exit("pip could not install pparse; its messages are above")
        stamp.write_text(wanted)
    return python


def main() -> int:
    python = environment("[testing]")
    return subprocess.run([python, "-m", "pytest", "-n", "auto", *sys.argv[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
