"""Change the code in one place at a time, and see whether a test notices: ``python tests/mutate.py``.

    python tests/mutate.py                  # 80 places, seed 1
    python tests/mutate.py --seed 7 --count 40 --only parsers/zip

Some places of the core and the parsers are drawn: comparisons, boundaries, conditions, returns, sums, small numbers.
Each is changed in a copy of the tree, and the tests that run the line are run until one fails. What survives is
printed with its diff: a test is missing, or the change changes nothing. Which test runs which line is found out by one
run under ``coverage``, which is kept (``--map``) as long as code and tests stay as they are.

Needs ``pip install -e ".[testing,mutation]"``; exits with 1 if more than one change in twenty survives.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TREE = ("pparse", "parsers", "viewers", "protos", "tests", "docs", "typings", "pyproject.toml", "README.md", "setup.py")

# Where a fault would be worst, and tests in one process see all that happens.
MODULES = (
    "pparse/containers/archive.py",
    "pparse/limits.py",
    "pparse/containers/content.py",
    "pparse/containers/member.py",
    "pparse/data/base.py",
    "pparse/data/block_cache.py",
    "pparse/data/files.py",
    "pparse/tensors/dtype.py",
    "pparse/document/extraction.py",
    "pparse/document/handles.py",
    "pparse/tree/index.py",
    "pparse/compressed/kept.py",
    "pparse/compressed/inflated.py",
    "pparse/compressed/resumed.py",
    "pparse/recovery/document_verdict.py",
    "pparse/limits.py",
    "pparse/tree/node.py",
    "pparse/tree/parser.py",
    "pparse/paths.py",
    "pparse/data/base.py",
    "pparse/document/registry.py",
    "pparse/tree/result.py",
    "pparse/protobuf/schema.py",
    "pparse/tensors/selection.py",
    "pparse/data/spliced.py",
    "pparse/data/range_status.py",
    "pparse/data/file_object.py",
    "pparse/tensors/pickling.py",
    "pparse/tensors/status.py",
    "pparse/tensors/tensor.py",
    "pparse/codecs/base.py",
    "pparse/codecs/library.py",
    "pparse/kernels/wire.py",
    "pparse/riegeli/chunks.py",
    "pparse/riegeli/salvage.py",
    "parsers/cpb/parser.py",
    "parsers/cpb/metadata.py",
    "parsers/cpb/overlay.py",
    "parsers/json/parser.py",
    "parsers/json/damage.py",
    "parsers/json/mend.py",
    "parsers/json/text.py",
    "parsers/json/walk.py",
    "parsers/protobuf/parser.py",
    "parsers/protobuf/check.py",
    "parsers/protobuf/entries.py",
    "parsers/protobuf/index.py",
    "parsers/protobuf/values.py",
    "parsers/riegeli.py",
    "parsers/safetensors/parser.py",
    "parsers/safetensors/header.py",
    "parsers/streams.py",
    "parsers/tar/parser.py",
    "parsers/tar/headers.py",
    "parsers/tar/mend.py",
    "parsers/tar/source.py",
    "parsers/tar/sparse.py",
    "parsers/zip/parser.py",
    "parsers/zip/members.py",
    "parsers/zip/records.py",
    "parsers/zip/trust.py",
    "parsers/zip/scan.py",
    "parsers/zip/walk.py",
)

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SUMS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
# Which tests are tried on a change: so many of the quickest, and of the slower ones, whose samples are larger, as many
# as take so many seconds without it.
QUICKEST = 250
SLOWER_SECONDS = 90.0
KILLED_SHARE = 0.95


@dataclass(frozen=True)
class Change:
    """One change: the bytes from ``start`` to ``end`` of a module become ``new``."""

    module: str
    line: int
    # Where its statement begins.
    first: int
    start: int
    end: int
    old: str
    new: str
    kind: str

    def apply(self, source: bytes) -> bytes:
        """Return the module with the change."""
        assert source[self.start : self.end] == self.old.encode(), self
        return source[: self.start] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Return the change as a diff without context."""
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        lines = difflib.unified_diff(before, after, self.module, self.module, lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


# -- what can be changed ---------------------------------------------------------------------------------------------


class Sites(ast.NodeVisitor):
    """All changes that can be made inside of the functions of a module."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module = module
        self.source = source
        self.found: list[Change] = []
        self.inside = 0
        self.first = 0
        self.begins = [0]
        for line in source.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))

    def visit(self, node: ast.AST) -> None:
        """Visit a node, and know where the statement around it begins."""
        before = self.first
        if isinstance(node, ast.stmt):
            self.first = node.lineno
        super().visit(node)
        self.first = before

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes of the module."""
        return (
            self.begins[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.begins[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def add(self, line: int, start: int, end: int, new: str, kind: str) -> None:
        """Note a change."""
        self.found.append(Change(self.module, line, self.first, start, end, self.source[start:end].decode(), new, kind))

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> None:
        """Note the change of an operator that stands between two nodes."""
        first, last = self.place(left)[1], self.place(right)[0]
        at = self.source.find(old.encode(), first, last)
        if at >= 0 and b"#" not in self.source[first:last]:
            self.add(left.end_lineno, at, at + len(old), new, kind)  # type: ignore[attr-defined]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self.inside += 1
        for statement in node.body:
            self.visit(statement)
        self.inside -= 1

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave out messages."""

    visit_JoinedStr = visit_Raise  # type: ignore[assignment]  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if self.inside:
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                old, new = COMPARISONS[type(operator)]
                self.between(left, right, old, new, "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if self.inside:
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            self.between(node.values[0], node.values[1], old, new, "condition")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if self.inside and isinstance(node.op, ast.Not):
            start = self.place(node)[0]
            self.add(node.lineno, start, self.place(node.operand)[0], "", "condition")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if self.inside and type(node.op) in SUMS:
            old, new = SUMS[type(node.op)]
            self.between(node.left, node.right, old, new, "sum")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if self.inside and node.value is not None:
            nothing = isinstance(node.value, ast.Constant) and node.value.value is None
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
                self.add(node.lineno, *self.place(node.value), str(not node.value.value), "return")
            elif not nothing:
                self.add(node.lineno, *self.place(node.value), "None", "return")
            if not isinstance(node.value, ast.Constant):
                self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.inside and type(node.value) is int and 0 <= node.value <= 16:
            self.add(node.lineno, *self.place(node), str(node.value + 1), "number")


def changes_of(module: str) -> list[Change]:
    """Return all changes of a module."""
    source = (ROOT / module).read_bytes()
    sites = Sites(module, source)
    sites.visit(ast.parse(source))
    return sites.found


def draw(modules: list[str], count: int, seed: int) -> list[Change]:
    """Draw changes: as many of each module and of each kind as there can be, no two of a line."""
    rng = random.Random(f"mutate {seed}")
    found = {module: changes_of(module) for module in modules}
    kinds = sorted({change.kind for changes in found.values() for change in changes})
    drawn: list[Change] = []
    while len(drawn) < count and any(found.values()):
        for module in rng.sample(sorted(found), len(found)):
            kind = rng.choice(kinds)
            of_kind = [change for change in found[module] if change.kind == kind] or found[module]
            if not of_kind:
                continue
            change = rng.choice(of_kind)
            found[module] = [other for other in found[module] if other.line != change.line]
            drawn.append(change)
    return sorted(drawn[:count], key=lambda change: (change.module, change.line))


# -- the copies ------------------------------------------------------------------------------------------------------


def copy_of_tree(folder: Path) -> Path:
    """Copy what is needed to run the tests; what stands beside the package is linked into it."""
    folder.mkdir(parents=True)
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)
    for name in ("parsers", "viewers", "protos"):
        (folder / "pparse" / name).symlink_to(folder / name)
    return folder


def environment(copy: Path, **more: str) -> dict[str, str]:
    """Return the environment in which a copy is imported, and not what is installed."""
    return {**os.environ, "PYTHONPATH": str(copy), **more}


def source_key() -> str:
    """Return a hash of the code and of its tests: a map is good for these only."""
    digest = hashlib.sha256()
    for folder in ("pparse", "parsers", "viewers", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


# -- which tests run a line --------------------------------------------------------------------------------------------


@dataclass
class LineTests:
    """The tests that run each line, and how long each takes."""

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, change: Change) -> list[str]:
        """Return tests that run the line of a change and pass without it, the quickest first."""
        lines = self.lines.get(change.module, {})
        tests = lines.get(change.line) or lines.get(change.first, [])
        known = sorted((test for test in tests if test in self.seconds), key=lambda test: self.seconds[test])
        others = known[QUICKEST:]
        random.Random(change.line).shuffle(others)
        took = itertools.accumulate(self.seconds[test] for test in others)
        slower = [test for test, seconds in zip(others, took, strict=True) if seconds <= SLOWER_SECONDS]
        return known[:QUICKEST] + sorted(slower, key=lambda test: self.seconds[test])


def read_map(folder: Path, copy: Path) -> LineTests:
    """Read what ``tests/line_map.py`` wrote."""
    import coverage

    found = LineTests()
    for path in folder.glob("tests.*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["passed"]:
                found.seconds[row["test"]] = row["seconds"]
    for path in folder.glob("lines.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        for measured in data.measured_files():
            # Modules are imported by way of a link.
            module = os.path.relpath(os.path.realpath(measured), copy)
            lines = found.lines.setdefault(module, {})
            for line, tests in data.contexts_by_lineno(measured).items():
                lines.setdefault(line, []).extend(test for test in tests if test)
    return found


def make_map(folder: Path, copy: Path, jobs: str, more: list[str]) -> LineTests:
    """Run the tests once, and note which runs which line; or take what was noted before."""
    kept = folder / "map.json"
    key = f"{source_key()} {' '.join(more)}"
    if kept.exists() and (known := json.loads(kept.read_text()))["key"] == key:
        lines = {module: {int(line): tests for line, tests in of.items()} for module, of in known["lines"].items()}
        return LineTests(lines, known["seconds"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print("finding out which test runs which line: all tests are run once", flush=True)
    modules = [str(copy / module) for module in MODULES]
    modules += [str(copy / "pparse" / module) for module in MODULES if not module.startswith("pparse/")]
    watched = environment(copy, PPARSE_LINE_MAP=str(folder), PPARSE_LINE_MAP_MODULES=os.pathsep.join(modules))
    command = [sys.executable, "-m", "pytest", "-n", jobs, "--dist", "worksteal", "-p", "tests.line_map"]
    subprocess.run([*command, "--tb=no", *more], cwd=copy, env=watched, stdout=subprocess.DEVNULL)
    found = read_map(folder, copy)
    kept.write_text(json.dumps({"key": key, "lines": found.lines, "seconds": found.seconds}))
    return found


# -- one change at a time ----------------------------------------------------------------------------------------------


def forget(path: Path) -> None:
    """Remove what Python compiled of a module: it goes by the second in which the source was written."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def try_change(change: Change, tests: list[str], seconds: float, copy: Path, offset: str) -> str:
    """Run the tests on a changed copy; return what became of it: killed, hangs, survived."""
    path = copy / change.module
    original = path.read_bytes()
    listed = copy / "chosen-tests.txt"
    listed.write_text("\n".join(tests))
    try:
        path.write_bytes(change.apply(original))
        forget(path)
        command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        # What goes round in circles is noticed by its time, which is no measure of anything else.
        command += ["--sweep-offset", offset, f"@{listed}"]
        most = 60 + 5 * seconds
        ran = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True, timeout=most)
        if ran.returncode == 0:
            return "survived"
        # 1: a test failed; 2 and more: the package or a test module cannot even be imported.
        failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return f"killed by {failed[0].split(' - ')[0].partition(' ')[2]}" if failed else "killed"
    except subprocess.TimeoutExpired:
        return "killed: does not end"
    finally:
        path.write_bytes(original)
        forget(path)


def tried(changes: list[Change], known: LineTests, work: Path, jobs: int, offset: str) -> Iterator[tuple[Change, str]]:
    """Try all changes, some at a time, each in a copy of its own."""
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for number in range(jobs):
        copies.put(copy_of_tree(work / f"copy{number}"))

    def attempt(change: Change) -> tuple[Change, str]:
        tests = known.of(change)
        if not tests:
            return change, "survived: no test runs the line"
        copy = copies.get()
        try:
            return change, try_change(change, tests, sum(known.seconds[test] for test in tests), copy, offset)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(attempt, changes)


def main() -> int:
    """Draw, try, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=80, help="places to change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="modules whose path has this text")
    parser.add_argument("--map", type=Path, default=Path(tempfile.gettempdir()) / "pparse-line-map", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="only say what would be changed")
    parser.add_argument("--sweep-offset", default="0", metavar="N", help="which places the sweeps of the tests look at")
    parser.add_argument("--quick", action="store_true", help="know the tests of a quick run only")
    parser.add_argument("tests", nargs="*", help="the tests to run (default: all)")
    options = parser.parse_args()
    modules = [module for module in MODULES if not options.only or any(text in module for text in options.only)]
    changes = draw(modules, options.count, options.seed)
    if options.list:
        for change in changes:
            print(f"{change.module}:{change.line} {change.kind}: {change.old!r} -> {change.new!r}")
        return 0
    if not find_spec("coverage"):
        sys.exit('coverage is not installed: pip install -e ".[testing,mutation]"')
    with tempfile.TemporaryDirectory(prefix="pparse-mutate-") as work:
        chosen = ["--sweep-offset", options.sweep_offset, *["--quick"] * options.quick, *options.tests]
        known = make_map(options.map, copy_of_tree(Path(work) / "mapped"), str(options.jobs), chosen)
        survivors = []
        for number, (change, said) in enumerate(
            tried(changes, known, Path(work), options.jobs, options.sweep_offset), 1
        ):
            print(f"{number:3} {change.module}:{change.line} {change.kind}: {said}", flush=True)
            if said.startswith("survived"):
                survivors.append((change, said))
        for change, said in survivors:
            print(f"\n{change.module}:{change.line} {change.kind}, {said}")
            print(change.diff((ROOT / change.module).read_bytes()))
    killed = len(changes) - len(survivors)
    print(f"\n{killed} of {len(changes)} changes were noticed ({killed / len(changes):.0%})")
    return int(killed < KILLED_SHARE * len(changes))


if __name__ == "__main__":
    sys.exit(main())
