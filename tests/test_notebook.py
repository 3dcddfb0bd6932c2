"""What notebooks and ``repr`` show: escaped, bounded, without reading content."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest

import pparse
from pparse.data.base import IoStats
from pparse.display.text import cell
from pparse.document.opening import Resume, resume_lines
from pparse.findings import Finding, FindingList
from pparse.tensors.notebook import folded
from tests.rows import rows

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"
HOSTILE = '<script>alert(1)</script>" onload="x" \u202e$x^2$ \x1b[31m'


class Cells(HTMLParser):
    """Collects tags, and the texts of cells."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert all(name in ("style", "class") for name, _ in attrs)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def model_of(names: list[str]) -> bytes:
    header = {
        name: {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]} for number, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(len(names))


def test_layers_are_one_row():
    names = [f"h.{layer}.{part}" for layer in range(30) for part in ("a.weight", "ln_1.bias", "ln_2.bias")]
    with pparse.view(model_of([*names, "wte"])) as model:
        found = Cells(model._repr_html_())
        assert len(re.findall("<tr>", model._repr_html_())) == 5
        rows = [tuple(found.cells[place : place + 2]) for place in range(6, len(found.cells), 6)]
        assert sorted(rows) == [("h.*.a.weight", "30"), ("h.*.ln_1.bias", "30"), ("h.*.ln_2.bias", "30"), ("wte", "")]


@rows("kind", ["viewer", "tensor", "node", "child", "finding", "findings"])
def test_nothing_of_a_file_becomes_markup(kind):
    with pparse.view(model_of([HOSTILE, "b"])) as model:
        finding = Finding("code", HOSTILE, path=HOSTILE, source=HOSTILE)
        findings = FindingList()
        findings.add(finding)
        thing = {
            "viewer": model,
            "tensor": model[HOSTILE],
            "node": model.root,
            "child": model.root.child(1).child(0),
            "finding": finding,
            "findings": findings,
        }[kind]
        source = thing._repr_html_()
    assert set(Cells(source).tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert "\x1b" not in source
    assert "\u202e" not in source
    assert 'class="mathjax_ignore' in source
    assert "alert(1)" in source or kind == "node"


def test_a_table_of_a_big_model_is_bounded_and_says_so():
    with pparse.view(model_of([f"t{number}x" for number in range(6_000)])) as model:
        source = model._repr_html_()
        assert len(source) < 30_000
        assert source.count("<tr>") == 61
        assert "only the first 5,000 tensors were looked at" in source
        assert len(repr(model)) < 1_000


def test_a_long_name_is_shortened():
    with pparse.view(model_of(["x" * 100_000])) as model:
        assert len(model._repr_html_()) < 2_000
        assert len(repr(model)) < 500
        assert len(model.root._repr_html_()) < 5_000


def test_repr_shows_the_first_tensors():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        lines = repr(model).splitlines()
        assert lines[0].endswith("21 tensors, complete")
        assert lines[1].split() == ["h.0.ln_1.weight", "float32", "16"]
        assert lines[-1] == "  …>"
    assert repr(model).endswith("closed>")


@rows(
    ("key", "words"),
    [(0, "an int"), (None, "a NoneType"), (("a", "b"), "a tuple")],
)
def test_a_tensor_is_asked_for_by_its_name(key, words):
    with pparse.view(SAMPLES / "tiny-gpt.pt") as model:
        with pytest.raises(TypeError, match=f"by its name, not by {words}$"):
            model[key]
        assert model.get(key, 7) == 7
        assert key not in model
        name = next(iter(model))
        assert model.get(name).name == name
        assert model.get("no such tensor") is None


def test_dir_shows_what_the_documents_tell_of_and_what_a_class_of_others_adds():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        shown = {name for name in dir(model) if not name.startswith("_")}
        assert {"get", "items", "metadata", "check", "extraction"} <= shown
        assert not shown & {"lock", "keep_extent", "as_of_now", "parser"}
        assert "__getitem__" in dir(model)
        kind = type("Theirs", (type(model),), {"layers": lambda self: 1})
        assert "layers" in dir(object.__new__(kind))


def test_what_is_damaged_is_shown_as_far_as_it_goes():
    with pparse.view(SAMPLES / "tiny-gpt.cut.safetensors") as model:
        assert "truncated" in model._repr_html_()
    content = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
    with pparse.open(content[:500]) as document:
        source = document.root._repr_html_()
        assert "truncated" in source
        assert "header" in source


def test_nothing_of_the_content_is_read():
    stats = IoStats(log=True)
    with pparse.view(SAMPLES / "tiny-gpt.safetensors", stats=stats) as model:
        header = int.from_bytes((SAMPLES / "tiny-gpt.safetensors").read_bytes()[:8], "little")
        model._repr_html_()
        repr(model)
        next(iter(model.values()))._repr_html_()
        assert stats.log
        assert max(offset for _, offset, _ in stats.log) < header + 8


def test_tensors_of_other_types_and_shapes_have_rows_of_their_own():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        found = list(folded(model.values()))
        assert len({row[0] for row in found}) == len(found)
        assert sum(int(row[1] or 1) for row in found) == 21


def test_a_cell_is_short_and_visible():
    assert cell("a" * 1_000_000).count("a") == 200
    assert cell("<&\x00") == "&lt;&amp;\\x00"


@pytest.mark.parametrize("count", [0, 1, 250])
def test_findings_are_a_bounded_table(count):
    findings = FindingList()
    for number in range(count):
        findings.add(Finding("code", f"reason {number}", offset=number))
    source = findings._repr_html_()
    assert source.count("<tr>") == (min(count, 100) + 1 if count else 0)
    assert ("150 more" in source) == (count == 250)


def test_a_cut_model_says_where_to_resume_and_a_graph_is_drawn(monkeypatch):
    with pparse.view(SAMPLES / "tiny-gpt.cut.safetensors") as model:
        assert "resume the download at byte 14208 of" in model._repr_html_()
    with pparse.view((SAMPLES / "tiny-gpt.cut.safetensors").read_bytes()) as model:
        assert (
            "resume the download at byte 14208 (" in model._repr_html_()
        )  # of bytes, as of a pipe, nothing has a name
    assert resume_lines([Resume("<stdin>", 0)]) == ["fetch it again"]
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        assert "resume" not in model._repr_html_()
    with pparse.view(SAMPLES / "tiny.onnx") as model:
        assert model.graph._repr_svg_().startswith("<svg")
        monkeypatch.setattr("pparse.graphs.drawing._BEFORE", 0)
        monkeypatch.setattr("pparse.graphs.drawing._EDGES", -1)
        assert model.graph._repr_svg_() is None


def test_who_asks_for_all_names_and_then_for_each_tensor_causes_one_listing(monkeypatch):
    names = [f"t{number}" for number in range(200)]
    with pparse.view(model_of(names)) as model:
        monkeypatch.setattr(type(model), "find", lambda self, name: pytest.fail(f"searched for {name}"))
        assert list(dict(model)) == names
        assert {name: tensor.name for name, tensor in dict(model).items()} == dict(zip(names, names, strict=True))
        assert model._run is None
        monkeypatch.undo()
        assert [*model.keys()][:2] == ["t0", "t1"]
        assert [model[name].name for name in ("t0", "t2", "t1", "t0")] == ["t0", "t2", "t1", "t0"]
        assert model._run is None


@rows("sample, work", [("tiny-gpt.pt", "leaves"), ("run.npz", "_made")])
def test_names_are_had_without_what_makes_the_tensors(sample, work):
    """A pickle is gone through once for all names and tensors; headers of arrays are read for tensors alone."""
    done = []
    with pparse.view(SAMPLES / sample) as model:
        before = getattr(type(model), work)
        with mock.patch.object(type(model), work, lambda *given: (done.append(1), before(*given))[1]):
            found = dict(model)
            assert len(done) == (1 if work == "leaves" else len(found))
        assert [(name, tensor.shape) for name, tensor in found.items()] == [
            (tensor.name, tensor.shape) for tensor in model.tensors()
        ]
