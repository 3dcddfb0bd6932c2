"""Set up and test on a fresh clone, with nothing but Python: ``python3 tests/run.py [arguments]``.

Makes a virtual environment (``.venv``, or where PPARSE_VENV says), installs pparse and what its tests need, and runs
pytest on all cores.

    --quick     a part of the tests
    --full      all places of all sweeps: nightly, and before a release
    --help, -h  this

All else goes to pytest: ``-n 0`` tests in one process, ``tests/test_zip.py -k cut`` runs some tests, and
``--sweep-offset N`` looks at other places. Paths are those from where you are.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = "PPARSE_VENV=FOLDER names another; for a checkout that is read-only, one that was made while it was not"


def environment(extras: str = "", *, editable: bool = True) -> Path:
    """Return the Python of an environment in which pparse is installed, made if need be; exit if it cannot be.

    ``editable``: changes of the code count at once. Type checkers and editors find what is installed without that.
    """
    if sys.version_info < (3, 11):
        sys.exit(f"pparse needs Python 3.11 or later; this is {sys.version.split()[0]}")
    folder = Path(os.path.abspath(os.environ.get("PPARSE_VENV") or ROOT / ".venv"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            return installed(folder, extras, editable=editable)
    except OSError as error:
        sys.exit(f"no environment can be made: {error}; {ELSEWHERE}")


def installed(folder: Path, extras: str, *, editable: bool) -> Path:
    """Make the environment in this folder what it has to be; return its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / f"installed{extras.replace(',', '-')}{'' if editable else '-plain'}"
    wanted = (ROOT / "pyproject.toml").read_text()
    if not editable:
        code = [path for name in ("pparse", "parsers", "viewers", "protos") for path in (ROOT / name).rglob("*.py")]
        wanted += f"\n# {max(path.stat().st_mtime_ns for path in code)}\n"
    # It is there until all is installed: what was interrupted is made again.
    unfinished = folder / "unfinished"
    if python.exists() and not unfinished.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    if not os.access(ROOT, os.W_OK):
        raise PermissionError(f"pip has to write in {ROOT}, and cannot")
    if unfinished.exists() or not python.exists():
        if not unfinished.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is neither empty nor a virtual environment")
        print(f"making a virtual environment in {folder}", file=sys.stderr)
        unfinished.touch()
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != unfinished:
                path.unlink()
        venv.create(folder, with_pip=True)
    print(f"installing pparse{extras}", file=sys.stderr)
    how = ["--editable"] if editable else ["--force-reinstall", "--no-deps"] if stamp.exists() else []
    command = [python, "-m", "pip", "install", "--quiet", *how, f"{ROOT}{extras}"]
    if subprocess.run(command).returncode:
        sys.exit(f"pip could not install pparse; its messages are above ({folder} can be deleted, and is made again)")
    stamp.write_text(wanted)
    unfinished.unlink(missing_ok=True)
    return python


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other run sets up the environment in this folder; not on Windows."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that sets up {folder}", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


# What few machines set: output that is not buffered hides faults, without compiled modules each of the hundreds of
# tests that start a Python takes thrice as long; the others change what a Python asserts, imports, warns of or writes.
UNUSUAL = (
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONOPTIMIZE",
    "PYTHONSAFEPATH",
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONINSPECT",
    "PYTHONVERBOSE",
    "PYTHONPROFILEIMPORTTIME",
)


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


def from_here(arguments: list[str]) -> list[str]:
    """Return the arguments with whole paths, because pytest runs at the root; ``-k zip`` is no path."""
    found = []
    for before, argument in itertools.pairwise(["", *arguments]):
        path, colons, test = argument.partition("::")
        is_path = before not in ("-k", "-m", "-p") and os.path.exists(path)
        found.append(os.path.abspath(path) + colons + test if is_path else argument)
    return found


def run_tests(arguments: list[str]) -> int:
    """Run pytest in the environment that it needs, on all cores."""
    if {"-h", "--help"} & set(arguments):
        print((__doc__ or "").replace("``", ""))
        return 0
    python = environment("[testing]")
    if not any(argument for argument in arguments if argument not in ("--quick", "--full")):
        print(estimate(arguments), file=sys.stderr, flush=True)
    command = [python, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *from_here(arguments)]
    variables = {name: value for name, value in os.environ.items() if name not in UNUSUAL}
    if not os.access(ROOT, os.W_OK):
        # What cannot be kept there warns, and what warns fails.
        command += ["-p", "no:cacheprovider"]
        variables.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.path.join(tempfile.gettempdir(), "pparse-hypothesis"))
    with nothing_left():
        return subprocess.run(command, cwd=ROOT, env=variables).returncode


@contextmanager
def nothing_left() -> Iterator[None]:
    """Kill what the tests leave running, even if those that started it have ended; on Linux.

    Its processes become children of this one (PR_SET_CHILD_SUBREAPER), each when the one that started it ends.
    """
    if sys.platform != "linux":
        yield
        return
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    try:
        yield
    finally:
        while left := children():
            for child in left:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def children() -> list[int]:
    """Return the processes whose parent is this one, where Linux tells."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:]))
