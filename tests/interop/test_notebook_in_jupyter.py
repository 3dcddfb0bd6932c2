"""The example notebook runs in a real kernel, and shows tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbconvert")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parent.parent.parent
NOTEBOOK = ROOT / "docs" / "examples" / "model.ipynb"


def test_the_example_notebook_runs_and_shows_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "--template", "basic"]
    subprocess.run([*command, "--output-dir", str(tmp_path), str(NOTEBOOK)], check=True, capture_output=True)
    page = (tmp_path / "model.html").read_text(encoding="utf-8")
    assert page.count('<div class="mathjax_ignore') == 5
    assert "h.*.attn.c_attn.weight" in page
    assert "truncated" in page
    assert "backup/models.zip" in page
    assert "<script" not in page
