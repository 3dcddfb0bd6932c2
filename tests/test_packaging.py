"""What the source distribution and wheels made from it hold: with a compiler, without one, and without asking it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")
pytest.importorskip("wheel")

ROOT = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
FOLDERS = ("pparse", "parsers", "viewers", "protos")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.egg-info")
COMPILER = next((found for found in map(shutil.which, ("cc", "gcc", "clang")) if found), None)
HEADERS = Path(sysconfig.get_paths()["include"], "Python.h").exists()
WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

BUILD = "import sys; from setuptools import build_meta as b; print('\\n' + getattr(b, sys.argv[1])(sys.argv[2]))"
WHICH = (
    "from pparse.kernels import farmhash as f, highway as h; "
    "print(h.NATIVE and f.NATIVE if h.NATIVE == f.NATIVE else 'mixed', "
    "f'{h.hash64(bytes()):016x}-{f.fingerprint64(bytes()):016x}', h.__file__)"
)
EXTENSIONS = ("_highway", "_farmhash", "_crc32c")
# What a release makes before it builds (docs/make_shell_files.py).
PAGE = "share/man/man1/pparse.1"


def clean_environment(**more: str) -> dict[str, str]:
    dropped = ("PPARSE_PURE_PYTHON", "PYTHONPATH", "CC", "CFLAGS", "LDSHARED")
    return {name: value for name, value in os.environ.items() if name not in dropped} | more


def build(hook: str, source: Path, target: Path, **environment: str) -> Path:
    """Call the build backend as pip does, without an environment of its own; return what it made."""
    command = [sys.executable, "-c", BUILD, hook, str(target)]
    ran = subprocess.run(command, cwd=source, env=clean_environment(**environment), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return target / ran.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "tree"
    source.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_OUT)
    (source / PAGE).parent.mkdir(parents=True)
    (source / PAGE).write_text("a page")
    # Even where the extension is not wanted, its source goes along.
    return build("build_sdist", source, folder, PPARSE_PURE_PYTHON="1")


@pytest.fixture
def wheel(sdist, tmp_path):
    """Make a wheel of the source distribution; return it, its names, and what the installed package says."""

    def make(**environment: str) -> tuple[str, set[str], list[str]]:
        with tarfile.open(sdist) as archive:
            archive.extractall(tmp_path, filter="data")
        (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
        made = build("build_wheel", source, tmp_path, **environment)
        with zipfile.ZipFile(made) as archive:
            names = set(archive.namelist())
            archive.extractall(tmp_path / "installed")
        told = subprocess.check_output(
            [sys.executable, "-c", WHICH],
            cwd=tmp_path,
            text=True,
            env=clean_environment(PYTHONPATH=str(tmp_path / "installed")),
        ).split(maxsplit=2)
        assert told[2].startswith(str(tmp_path / "installed"))
        assert told[1] == "72c3b1e9c0139fe1-9ae16a3b2f90404f"
        return made.name, names, told

    return make


def extensions(names: set[str]) -> list[str]:
    return [name for name in names if name.endswith((".so", ".pyd"))]


def test_source_distribution_can_build_the_extension(sdist) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "pyproject.toml"} <= names
    assert {f"pparse/kernels/{name}{suffix}" for name in EXTENSIONS for suffix in (".c", ".pyi")} <= names
    assert not extensions(names)


@pytest.mark.skipif(not (COMPILER and HEADERS), reason="no C compiler, or no headers of Python")
@pytest.mark.skipif(sys.implementation.name != "cpython", reason="the extension is for CPython")
def test_wheel_has_the_extension(wheel) -> None:
    name, names, (native, *_) = wheel(CC=COMPILER)
    assert native == "True"
    assert len(extensions(names)) == len(EXTENSIONS)
    if not WITHOUT_GIL:
        assert f"-cp3{sys.version_info.minor}-abi3-" in name
        suffixes = {found.partition(".")[2] for found in extensions(names)}
        assert suffixes in ({"abi3.so"}, {"pyd"})
        assert {found.partition(".")[0] for found in extensions(names)} == {f"pparse/kernels/{e}" for e in EXTENSIONS}
    assert not [name for name in names if name.endswith((".c", ".o"))]
    assert {"pparse/py.typed", "pparse/kernels/highway.py", "pparse/kernels/farmhash.py"} <= names
    assert {f"pparse/kernels/{extension}.pyi" for extension in EXTENSIONS} <= names


def test_wheel_without_a_compiler_is_pure(wheel) -> None:
    _, names, (native, *_) = wheel(CC="no-such-compiler")
    assert native == "False"
    assert not extensions(names)


def test_wheel_that_does_without_serves_every_platform(wheel) -> None:
    name, names, (native, *_) = wheel(PPARSE_PURE_PYTHON="1")
    assert native == "False"
    assert not extensions(names)
    assert name.endswith("-py3-none-any.whl")
    # All modules, and no others: a folder with some that is no package would be left out.
    modules = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    there = {"pparse/" + name.removeprefix("pparse/") for name in modules}
    assert {name for name in names if name.endswith(".py")} == there
    assert [name.partition(".data/data/")[2] for name in names if name.endswith(".1")] == [PAGE]


def test_a_build_leaves_nothing_in_the_source_tree(sdist, tmp_path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build("build_wheel", source, tmp_path, PPARSE_PURE_PYTHON="1")
    assert not (source / "build").exists()


@pytest.mark.parametrize("installed", [True, False], ids=["another tree is installed", "none is"])
def test_python_started_in_a_source_tree_takes_all_of_it_from_there(sdist, tmp_path, installed) -> None:
    """`python -c` looks for `pparse` where it was started first: the source tree, whose parsers lie beside it.

    An editable install of another tree finds its own parsers and viewers for any `pparse`: they must not be mixed.
    """
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    script = """
import importlib.machinery, importlib.util, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
class Editable:
    # As setuptools makes it for an editable install.
    def find_spec(name, path=None, target=None):
        for known, folder in TREE.items():
            if name == known or name.startswith(known + "."):
                at = folder + name[len(known):].replace(".", "/")
                for file in (at + "/__init__.py", at + ".py"):
                    try:
                        open(file).close()
                    except OSError:
                        continue
                    return importlib.util.spec_from_file_location(name, file)
if TREE:
    sys.meta_path.append(Editable)
import pparse, pparse.protos
from pparse.viewers.safetensors.viewer import SafetensorsViewer
with pparse.open(b'{"a": 1}') as document:
    print(document.format, document.root["a"].value)
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "pparse":
        print(module.__file__)
"""
    packages = {"parsers", "viewers", "protos"}
    tree = {f"pparse.{name}": str(ROOT / name) for name in sorted(packages)} | {"pparse": str(ROOT / "pparse")}
    ran = subprocess.run(
        [sys.executable, "-c", f"TREE = {tree if installed else None}\n{script}"],
        cwd=source,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    told, *files = ran.stdout.splitlines()
    assert told == "json 1"
    assert {Path(file).relative_to(source).parts[0] for file in files} == packages | {"pparse"}
