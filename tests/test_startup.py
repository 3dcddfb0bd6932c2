"""Starting is cheap: what a listing imports, and what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "docs" / "samples"
MAIN = "from pparse.cli import main; main(sys.argv[1:])"

# What a listing must not import.
FORBIDDEN = {
    "numpy",
    "ml_dtypes",
    "dataclasses",
    "logging",
    "asyncio",
    "google",
    "google.protobuf",
    "rich",
    "torch",
    "importlib.metadata",
    "inspect",
    "subprocess",
    "unittest",
    "tempfile",
    "hashlib",
    "difflib",
    "http",
    "email",
    "shutil",
    "json.tool",
}

# What `import pparse` imports of itself.
FIRST = {"pparse", "pparse.errors", "pparse.lazy"}


class Imports:
    """What a run of Python imported: ``modules`` in all, and which one asked for another (``asked``)."""

    def __init__(self, code: str, *words: object) -> None:
        code = f"import sys\n{code}\nsys.stderr.write('modules: ' + ' '.join(sys.modules))"
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
        ran = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code, *map(str, words)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=keep,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        self.out = ran.stdout
        timed, _, modules = ran.stderr.rpartition("modules: ")
        self.modules = set(modules.split())  # importlib.import_module() is not timed
        self.asked: dict[str, str] = {}
        rows = [line.rsplit("|", 1)[1][1:] for line in timed.splitlines() if line.startswith("import time:")]
        above: dict[int, str] = {}
        for row in reversed(rows):  # a module comes after those that it imports, which stand one level deeper
            depth = (len(row) - len(row.lstrip())) // 2
            above[depth] = row.strip()
            self.asked.setdefault(row.strip(), above.get(depth - 1, ""))


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What Python imports by itself, with what is installed (an editable install has a finder of its own)."""
    return Imports("").modules


@pytest.mark.parametrize(
    "words",
    [
        ("ls", SAMPLES / "tiny-gpt.safetensors"),
        ("ls", SAMPLES / "tiny-gpt.cut.safetensors", "*.attn.*", "--json"),
        ("info", SAMPLES / "tiny-gpt.safetensors"),
        ("ls", SAMPLES / "sharded" / "model.safetensors.index.json"),
        ("ls", SAMPLES / "sharded", "--group"),
    ],
    ids=lambda words: f"{words[0]} {words[1].name} {' '.join(words[2:])}".strip(),
)
def test_listing_imports_little(words, bare):
    found = Imports(MAIN, *words)
    assert ("h." in found.out) or words[0] == "info"
    new = found.modules - bare
    assert f"pparse.cli.{words[0]}" in new
    assert not FORBIDDEN & new
    if "typing" in new:
        assert not found.asked["typing"].startswith("pparse")
    ours = {name for name in new if name.startswith("pparse")}
    others = {"ls", "info", "get", "check", "tree", "formats", "digest"} - {words[0]}
    assert not {f"pparse.cli.{name}" for name in others} & ours
    assert not {
        name for name in ours if name.startswith(("pparse.writers", "pparse.testing", "pparse.tensors.selection"))
    }


def test_import_pparse_imports_little(bare):
    new = Imports("import pparse").modules - bare
    assert {name for name in new if name.startswith("pparse")} == FIRST
    assert not FORBIDDEN & new


def test_dir_and_version_import_nothing(bare):
    found = Imports("import pparse; print(len(dir(pparse)) > 30, pparse.__version__)")
    assert found.out.startswith("True")
    assert {name for name in found.modules - bare if name.startswith("pparse")} == {
        "pparse",
        "pparse.errors",
        "pparse.lazy",
    }


def test_help_and_version_import_no_command(bare):
    for word in ("--help", "--version"):
        new = Imports(MAIN, word).modules - bare
        assert {name for name in new if name.startswith("pparse")} <= {
            "pparse",
            "pparse.cli",
            "pparse.cli.common",
            "pparse.errors",
            "pparse.lazy",
        }


def test_a_small_document_may_ask_for_plugins_but_needs_no_numpy(bare, tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"a": [1, 2, 3]}))
    new = Imports(MAIN, "ls", path).modules - bare
    assert not {"numpy", "asyncio", "rich", "logging"} & new
