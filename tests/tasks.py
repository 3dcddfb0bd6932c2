"""The tasks of a contributor, on a fresh clone, with nothing but Python: ``python3 tests/tasks.py lint``.

Each task sets up what it needs in the virtual environment of ``tests/run.py`` and then runs it; further arguments go to
what it runs. ``make lint`` is the same. `.ci/run` and the hosted checks run these, so that nobody has to guess what
they looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from run import environment, run_tests  # noqa: E402 -- the folder was just added

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SITE = ROOT / "build" / "site"


def call(python: Path, *words: object) -> int:
    """Run the environment's Python at the root of the clone, and say with what."""
    print("$ python", *words, file=sys.stderr, flush=True)
    return subprocess.run([python, *map(str, words)], cwd=ROOT).returncode


def test(arguments: list[str]) -> int:
    """Run all tests that need no heavy library: some minutes."""
    return run_tests(arguments)


def quick(arguments: list[str]) -> int:
    """Run a part of the tests: a minute."""
    return run_tests(["--quick", *arguments])


def coverage(arguments: list[str]) -> int:
    """Run the quick part of the tests, three times as slowly, and show which lines of which module it did not run."""
    python = environment("[testing,coverage]")
    measured = ["-p", "pytest_cov", "--cov", "--cov-report=term:skip-covered"]
    return call(python, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "--quick", *measured, *arguments)


def durations(arguments: list[str]) -> int:
    """Record what a run of all tests costs, or of a part (``--quick``, ``--full``), in ``tests/durations.json``."""
    return run_tests(["--write-durations", *arguments])


def compile(arguments: list[str]) -> int:
    """Install pparse with its hot loops compiled in ``.venv-compiled``: some minutes; test that, or run named tests."""
    os.environ.update(PPARSE_COMPILE="1", PPARSE_VENV=str(ROOT / ".venv-compiled"))
    python = environment("[testing]", editable=False)
    with tempfile.TemporaryDirectory() as folder:  # where no source is in the way of what is installed
        for name in ("tests", "docs", "protos"):
            shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "CHANGELOG.md", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        words = arguments or ["-n", "auto", "tests/contract", "tests/truth"]
        return subprocess.run([python, "-m", "pytest", *words], cwd=folder).returncode


def lint(arguments: list[str]) -> int:
    """Run all that reads the code without running it; ``--fix`` fixes what can be fixed."""
    python = environment("[testing,lint]")
    fix = "--fix" in arguments
    checks = (
        ("ruff", "check", *(["--fix"] if fix else []), "."),
        ("ruff", "format", *([] if fix else ["--check"]), "."),
        ("mypy",),
        ("vulture",),
        ("codespell_lib",),
    )
    # All of them, even if the first one finds something.
    return max([call(python, "-m", *words) for words in checks])


def docs(arguments: list[str]) -> int:
    """Build the site of the documentation in ``build/site``; ``serve`` shows it while it is being written."""
    python = environment("[docs]")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # an advertisement
    if arguments[:1] == ["serve"]:
        return call(python, "-m", "mkdocs", *arguments)
    code = call(python, "-m", "mkdocs", "build", "--strict", "--site-dir", SITE, *arguments)
    if not code and not arguments:
        print(f"open {SITE / 'index.html'}")
    return code


def bench(arguments: list[str]) -> int:
    """Measure the package against its peers, ``--quick`` or in full, all rows or those that are named."""
    return call(environment("[bench]"), HERE / "bench" / "run.py", *arguments)


TASKS: dict[str, Callable[[list[str]], int]] = {
    task.__name__: task for task in (test, quick, coverage, durations, compile, lint, docs, bench)
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS:
        print("usage: python3 tests/tasks.py TASK [arguments of what it runs]\n")
        for name, task in TASKS.items():
            print(f"{name:9} {(task.__doc__ or '').strip().replace('``', '')}")
        return 0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2
    return TASKS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
