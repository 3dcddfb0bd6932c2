"""Set up and test on a fresh clone, with nothing but Python: ``python3 tests/run.py``.

Makes a virtual environment (``.venv``, or where PPARSE_VENV says), installs pparse and what its tests need, and runs
pytest on all cores; arguments are passed on to it (``-n 0``: in one process). ``--quick`` runs a part, ``--full`` all
places of all sweeps: nightly, and before a release.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(extras: str = "", *, editable: bool = True) -> Path:
    """Return the Python of an environment in which pparse is installed, made if need be.

    ``editable``: changes of the code count at once. Type checkers and editors find what is installed without that.
    """
    if sys.version_info < (3, 11):
        sys.exit(f"pparse needs Python 3.11 or later; this is {sys.version.split()[0]}")
    folder = Path(os.environ.get("PPARSE_VENV", ROOT / ".venv"))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / f"installed{extras.replace(',', '-')}{'' if editable else '-plain'}"
    wanted = (ROOT / "pyproject.toml").read_text()
    if not editable:
        code = [path for name in ("pparse", "parsers", "viewers", "protos") for path in (ROOT / name).rglob("*.py")]
        wanted += f"\n# {max(path.stat().st_mtime_ns for path in code)}\n"
    if not python.exists():
        print(f"making a virtual environment in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing pparse{extras}", file=sys.stderr)
        how = ["--editable"] if editable else ["--force-reinstall", "--no-deps"] if stamp.exists() else []
        command = [python, "-m", "pip", "install", "--quiet", *how, f"{ROOT}{extras}"]
        if subprocess.run(command).returncode:
            sys.exit("pip could not install pparse; its messages are above")
        stamp.write_text(wanted)
    return python


# What few machines set: output that is not buffered hides faults, and without compiled modules each of the hundreds of
# tests that start a Python takes thrice as long.
UNUSUAL = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")


def estimate(arguments: list[str]) -> str:
    """Say how long a run of all tests takes here, about: as long as the one that ``tests/durations.json`` is of."""
    extent = next((name for name in ("--full", "--quick") if name in arguments), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"running the tests on {cores} core{'s' * (cores > 1)}"
    measured = json.loads((ROOT / "tests" / "durations.json").read_text())
    if extent in measured:
        minutes = measured[extent]["cpu_seconds"] / 60 / cores
        about = f"{round(minutes)} minutes" if minutes >= 1.75 else "a minute" if minutes >= 0.75 else "half a minute"
        text += f": about {about} if they are idle"
    return text + ("; --quick runs a part of it" if not extent else "")


def run_tests(arguments: list[str]) -> int:
    """Run pytest in the environment that it needs, on all cores."""
    python = environment("[testing]")
    if not any(argument for argument in arguments if argument not in ("--quick", "--full")):
        print(estimate(arguments), file=sys.stderr, flush=True)
    command = [python, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in UNUSUAL}
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:]))
