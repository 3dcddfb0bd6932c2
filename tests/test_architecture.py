"""The house: layers, sizes of files, what is packaged, what is exported."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from tests.rows import rows

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"pparse": "pparse", "pparse.parsers": "parsers", "pparse.viewers": "viewers", "pparse.protos": "protos"}

LAYERS = {
    0: "errors limits budget findings locking data codecs protobuf kernels",
    1: "riegeli compressed protos",
    2: "paths tree document containers tensors writers testing",
    3: "parsers",
    4: "viewers",
    5: "proto_splitter recovery",
    6: "cli __main__",
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}
# pparse/__init__ is the face of all; protos may be imported from layer 1 up.
FREE = {"__init__"}
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
    "zstandard",
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


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []  # for the type checker only; ast.walk has not come to it yet
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(node.module or "")
            if node.module == "pparse":
                found += [f"pparse.{alias.name}" for alias in node.names]
    return [name for name in found if name.split(".")[0] == "pparse"]


@rows(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_imports_go_downwards(module: str, path: Path) -> None:
    here = room(module)
    if here in FREE:
        return
    for imported in imports_of(path):
        there = room(imported)
        if there == "protos":
            assert LAYER_OF[here] >= 1
        elif there in LAYER_OF:
            assert LAYER_OF[there] <= LAYER_OF[here], f"{module} (layer {LAYER_OF[here]}) imports {imported}"


def test_every_room_has_a_layer() -> None:
    rooms = {room(name) for name, _ in MODULES} - FREE - {"protos"}
    assert rooms <= set(LAYER_OF), rooms - set(LAYER_OF)


def test_runtime_dependencies_of_the_lower_layers_are_lazy() -> None:
    for module, path in MODULES:
        if module.startswith("pparse.kernels.json_numpy"):
            continue
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = {name.split(".")[0] for name in names} & HEAVY
            assert not heavy, f"{module} imports {heavy} at its top"


@rows(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_files_are_short(module: str, path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= 640, f"{module} has {lines} lines: is it two files?"


def test_packages_are_all_named() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in MODULES}
    assert listed == there, (there - listed, listed - there)


def test_public_names_are_exactly_those_declared() -> None:
    import pparse

    assert sorted(pparse.__all__) == sorted(set(pparse.__all__))
    for name in pparse.__all__:
        assert getattr(pparse, name).__name__ if hasattr(getattr(pparse, name), "__name__") else True
        value = getattr(pparse, name)
        assert value is not None
    lazy = set(pparse._WHERE)
    eager = {name for name, value in vars(pparse).items() if isinstance(value, type) and name in pparse.__all__}
    assert lazy | eager == set(pparse.__all__)


def test_unknown_names_are_refused() -> None:
    import pparse

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pparse.nothing


def test_python_version_is_the_declared_one() -> None:
    assert sys.version_info >= (3, 11)


def test_library_code_neither_prints_nor_swallows() -> None:
    for module, path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "breakpoint"), f"{module}: {node.func.id}()"
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{module}: bare except"
