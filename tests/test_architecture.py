"""The house: layers, sizes of files, what is packaged, what is exported."""

from __future__ import annotations

import ast
import gc
import importlib.util
import subprocess
import sys
import tomllib
import types
from functools import cache
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.rows import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"pparse": "pparse", "pparse.parsers": "parsers", "pparse.viewers": "viewers", "pparse.protos": "protos"}

# What may import what: only what stands further left; imports for types count. Folders, or modules, of pparse.
ORDER = (
    "errors lazy locking display < limits findings < paths < kernels < data protobuf < codecs protos < "
    "compressed < riegeli < tree < document < writers < graphs < tensors < containers testing workers < parsers < "
    "proto_splitter < viewers < conversion measuring < editing recovery < cli"
)
RANK = {room: rank for rank, rooms in enumerate(ORDER.split("<")) for room in rooms.split()}
# The face of all, and the command that calls the last one.
FREE = {"__init__", "__main__"}
# Files that may import each other in a circle: never over the border of a folder.
CIRCLE = 3
OWN_MODULES = 8
# A file that is longer is surely several; one idea in one file is worth more than a small number of lines.
LINES = 1_000
HEAVY = {
    "numpy",
    "ml_dtypes",
    "google",
    "rich",
    "torch",
    "asyncio",
    "logging",
    "dataclasses",
    "typing",
    "brotli",
    "backports",
    "compression",
    "cramjam",
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            found.append((name, path))
    return found


MODULES = modules()


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file: to find them takes longer than to look at them."""
    return list(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Trees are millions of objects, through which the collector would go in every test that calls it.

    It would go through them again and again while they are made, too, which takes thrice as long as to make them.
    """
    gc.disable()
    yield
    gc.enable()
    tree_of.cache_clear()
    nodes_of.cache_clear()


def imports_of(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & NAMES) or {node.module or ""}
    return found & NAMES - {"pparse"}


NAMES = {name for name, _ in MODULES}


@cache
def all_imports() -> dict[str, set[str]]:
    """Return what each module imports; not at import, as every worker would pay for it."""
    return {name: imports_of(path) - {name} for name, path in MODULES}


def test_imports_go_downwards() -> None:
    upwards = [
        f"{module} imports {imported}"
        for module, imports in all_imports().items()
        for imported in imports
        if room(module) not in FREE and room(imported) != room(module) and RANK[room(imported)] >= RANK[room(module)]
    ]
    assert not upwards


def test_the_table_of_packages_is_this_order() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| package |") : text.index("\n\n`parsers/`")]
    shown = [cells.split("|")[1].replace("`", "").split() for cells in table.splitlines()[2:]]
    assert shown == [rooms.split() for rooms in ORDER.split("<")]


def circles() -> list[set[str]]:
    """Return the sets of modules that import each other, by however many steps."""
    reach: dict[str, set[str]] = {}
    imports = all_imports()
    for module in imports:
        seen, todo = set(), [module]
        while todo:
            for found in imports[todo.pop()] - seen:
                seen.add(found)
                todo.append(found)
        reach[module] = seen
    within = [
        {other for other in seen if module in reach[other]} | {module}
        for module, seen in reach.items()
        if module in seen
    ]
    return [circle for number, circle in enumerate(within) if circle not in within[:number]]


def test_circles_are_small_and_stay_in_their_folder() -> None:
    folders = {name: path.parent for name, path in MODULES}
    for circle in circles():
        assert len(circle) <= CIRCLE, sorted(circle)
        assert len({folders[name] for name in circle}) == 1, sorted(circle)


def test_the_package_has_few_modules_of_its_own() -> None:
    own = {path.stem for path in (ROOT / "pparse").glob("*.py")} - FREE
    assert len(own) <= OWN_MODULES


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {room(name) for name, _ in MODULES} - FREE
    assert rooms == set(RANK), rooms ^ set(RANK)


def test_runtime_dependencies_of_the_lower_layers_are_lazy() -> None:
    for module, path in MODULES:
        if module in ("pparse.kernels.json_numpy", "pparse.tree.host"):  # one needs it, one is for type checkers only
            continue
        for node in tree_of(path).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = {name.split(".")[0] for name in names} & HEAVY
            assert not heavy, f"{module} imports {heavy} at its top"


@rows(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_files_are_short(module: str, path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LINES, f"{module} has {lines} lines: is it two files?"


def test_the_top_level_holds_no_data() -> None:
    """What a trial leaves behind there has been committed once."""
    if not (ROOT / ".git").exists() or which("git") is None:
        pytest.skip("this is no checkout")
    listed = subprocess.run(("git", "ls-files", "--", ":(top,glob)*"), cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(listed.stderr)  # git may not trust the owner of the folder
    tracked = listed.stdout.split()
    kinds = {Path(name).suffix for name in tracked if not name.startswith(".")}
    assert kinds <= {"", ".in", ".md", ".py", ".toml", ".yml"}


def test_public_names_are_exactly_those_declared() -> None:
    import pparse

    assert sorted(pparse.__all__) == sorted(set(pparse.__all__))
    for name in pparse.__all__:
        value = getattr(pparse, name)
        if isinstance(value, type) or callable(value):
            assert value.__name__ == name, f"{name} is {value.__name__}"
            assert value.__module__.split(".")[0] == "pparse", f"{name} is of {value.__module__}"
        else:
            assert not isinstance(value, types.ModuleType), f"{name} is {value!r}"
            assert value is not None, name
    lazy = set(pparse._WHERE)
    eager = {name for name, value in vars(pparse).items() if isinstance(value, type) and name in pparse.__all__}
    assert lazy | eager == set(pparse.__all__)


def test_unknown_names_are_refused() -> None:
    import pparse

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pparse.nothing


def test_this_python_is_one_of_those_that_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least = tuple(map(int, declared.removeprefix(">=").split(".")))
    assert least == (3, 11)
    assert sys.version_info >= least


def test_library_code_neither_prints_nor_swallows() -> None:
    for module, path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "breakpoint"), f"{module}: {node.func.id}()"
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{module}: bare except"


# Modules with paths of their own: of what they write, of a cache, of this package. The paths of sources, what beside
# them is read and what stands in a folder are the business of `pparse.data` (`local`, and the members of `Data`).
OWN_PATHS = {
    "pparse": "finds its parsers and viewers in a clone",
    "pparse.cli.merge": "-o of split and merge",
    "pparse.cli.get": "-o of get",
    "pparse.cli.get_tensor": "-o of get",
    "pparse.cli.split": "-o of split",
    "pparse.cli.output": "-o of any command",
    "pparse.conversion.converting": "writes the files of a conversion",
    "pparse.editing.apply": "writes the file that is edited, and its journal",
    "pparse.proto_splitter.fingerprint": "writes fingerprint.pb",
    "pparse.proto_splitter.folders": "writes a folder",
    "pparse.proto_splitter.split": "writes the files of a split",
    "pparse.proto_splitter.stream_split": "writes the files of a split",
    "pparse.protos": "finds its own compiled files",
    "pparse.protos.compile": "writes the compiled files",
    "pparse.recovery.folder_writer": "writes into the folder of a recovery",
    "pparse.recovery.recover": "the folder of a recovery",
    "pparse.recovery.target": "the folder of a recovery",
    "pparse.riegeli.writer": "appends to its file",
    "pparse.testing.contract": "looks at the descriptors of the process",
    "pparse.writers.files": "writes files",
    "pparse.writers.indexing": "writes an index",
}


def uses_of_paths(nodes: Iterable[ast.AST]) -> set[str]:
    """Return what a module uses of `os.path`, whatever it calls that."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in ("os.path", "posixpath", "pathlib"):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            found |= {alias.name for alias in node.names} & {"path"}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & {"os.path", "posixpath", "pathlib"}
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and ast.unparse(node.value) == "os.path"
        ):
            found.add(node.attr)
    return found


def test_only_data_know_that_a_source_is_a_file() -> None:
    """A source may be memory, an archive or far away: whoever reads it asks `Data`, `Folder` or `data.files`."""
    assert uses_of_paths(ast.walk(ast.parse("import os\nos.path.join(a, b)"))) == {"join"}
    assert uses_of_paths(ast.walk(ast.parse("from os import path"))) == {"path"}
    nodes = {module: nodes_of(path) for module, path in MODULES if room(module) != "data"}
    users = {module for module, found in nodes.items() if uses_of_paths(found)}
    assert users == set(OWN_PATHS), f"ask pparse.data.files: {users - set(OWN_PATHS)}; gone: {set(OWN_PATHS) - users}"
    knowing = {
        module
        for module, found in nodes.items()
        for node in found
        if "FileData" in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", ""))
    }
    assert knowing == {"pparse"}, "they know FileData: use members of Data, and data.files.open_file"


# Where the words of other libraries are understood, which have no codes.
TRANSLATES = ("pparse.codecs.", "pparse.kernels.wire_guess", "pparse.proto_splitter.merger")


def by_words(node: ast.AST) -> bool:
    """Whether a comparison or a call looks into the words of an error, a finding or a problem."""

    def is_text(value: ast.AST) -> bool:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "str":
            return any(isinstance(name, ast.Name) and "error" in name.id for name in value.args)
        return isinstance(value, ast.Attribute) and value.attr == "reason"

    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        words = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
        return words and any(is_text(side) for side in sides)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("startswith", "endswith", "partition", "find", "split") and is_text(node.func.value)
    return False


def test_nothing_goes_by_the_words_of_a_message() -> None:
    """Words are for people, and may be put better at any time: code goes by `Fault`, codes and options."""
    found = [
        f"{module}:{node.lineno}"
        for module, path in MODULES
        if not module.startswith(TRANSLATES)
        for node in nodes_of(path)
        if by_words(node)
    ]
    assert not found, "\n".join(found)
    assert by_words(ast.parse("error.reason.startswith('bytes follow')").body[0].value)  # type: ignore[attr-defined]
    assert by_words(ast.parse("'alloc' in str(error)").body[0].value)  # type: ignore[attr-defined]


def test_benchmarks_import_what_there_is() -> None:
    """They run seldom, for half an hour each time: what was moved is not to be found out then."""
    named = {
        (node.module, name.name)
        for path in (ROOT / "tests" / "bench").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pparse"
        for name in node.names
    }
    assert len(named) > 20
    for module, name in sorted(named):
        found = importlib.import_module(module)
        assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), f"{module} has no {name}"
