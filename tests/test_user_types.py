"""A script of a user passes the type checkers: keywords, statuses, slices."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pparse

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "docs" / "samples"

SCRIPT = """
from __future__ import annotations

import pparse

with pparse.view("m.safetensors", budget="16MiB", format="safetensors", options={}) as model:
    w = model["a"]
    row = w[0]
    part = w[0:2, ..., 1]
    if w.status != "complete":
        print(w.status)
    if w.status == pparse.Status.COMPLETE and w.is_complete:
        print(w.numpy().sum(), row, part, w.numpy(partial="prefix").shape)
    if model.status != "complete":
        print(model.extent().resume_at, [(file.file, file.at) for file in model.extent().resume])
    for tensor in model.tensors():
        print(tensor.name, tensor.shape, tensor.dtype, tensor.status != "truncated")
    for finding in model.check():
        print(finding.code, finding.severity == "error")
    if model.graph is not None:
        print(model.graph.operations["Add"], [edge.target for edge in model.graph.edges], list(model.graph.inputs))
    print(model.graph_of(0).nodes["a"].op, model.signatures["serve"].inputs["x"].shape)
with pparse.open("m.safetensors") as document:
    print(document.root.status != "truncated", document.get("metadata"))
"""
WRONG = """
import pparse

pparse.view("m.safetensors", budgte="16MiB")
pparse.view("m.safetensors", scratch=3)
pparse.view("m.pb").graph_of().oper
pparse.view("m.pb").graph.operations
pparse.view("m.pb").signatures["serve"].input
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Check a script as that of a user, beside pparse as it is installed."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    folder = tmp_path_factory.mktemp("types")
    package = folder / "site" / "pparse"
    package.mkdir(parents=True)
    for path in (*(ROOT / "pparse").iterdir(), *(ROOT / name for name in ("parsers", "viewers", "protos"))):
        (package / path.name).symlink_to(path)

    def check(script: str) -> subprocess.CompletedProcess[str]:
        path = folder / "script.py"
        path.write_text(script)
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--follow-imports=silent",
                "--config-file=",
                f"--cache-dir={folder / 'cache'}",
                str(path),
            ],
            cwd=folder,
            env={**os.environ, "MYPYPATH": str(folder / "site")},
            capture_output=True,
            text=True,
        )

    return check


def test_a_users_script_passes_mypy_strict(checked):
    done = checked(SCRIPT)
    assert done.returncode == 0, done.stdout


def test_a_slip_in_what_view_takes_or_returns_is_found_by_mypy(checked):
    done = checked(WRONG)
    assert 'Unexpected keyword argument "budgte"' in done.stdout
    assert 'Argument "scratch"' in done.stdout
    assert '"Graph" has no attribute "oper"' in done.stdout
    assert '"None" of "Graph | None" has no attribute "operations"' in done.stdout  # most formats have no graph
    assert '"Signature" has no attribute "input"' in done.stdout


def test_view_has_the_keywords_of_open():
    ours, others = inspect.signature(pparse.view).parameters, inspect.signature(pparse.open).parameters
    assert list(ours.values()) == list(others.values())


def test_a_status_compares_with_its_word():
    with pparse.view(SAMPLES / "tiny-gpt.cut.safetensors") as model:
        cut, whole = model["h.1.mlp.c_proj.weight"], model["h.0.attn.c_attn.weight"]
        assert cut.status == "truncated"
        assert whole.status == "complete"
        assert whole.status != "truncated"
        assert whole.is_complete
        assert not cut.is_complete
        assert f"{cut.status}" == str(cut.status) == "truncated"
        assert [finding.severity == "error" for finding in model.check()] == [True]
    assert {pparse.Status.COMPLETE: 1} == {"complete": 1}
