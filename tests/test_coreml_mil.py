"""Compiled Core ML models: their text says what the message of the package says; what is not whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pparse
from tests.coreml_files import program_text, write_compiled
from tests.rows import rows

DATA = Path(__file__).resolve().parent / "data" / "coreml"


def compiled(name: str, folder: Path, *, old: bool = False) -> Path:
    inner = DATA / f"{name}.mlpackage" / "Data" / "com.apple.CoreML"
    weights = inner / "weights" / "weight.bin"
    text = program_text((inner / "model.mlmodel").read_bytes(), old=old)
    return write_compiled(folder, text, weights.read_bytes() if weights.exists() else None)


@rows("name", ["program", "packed16", "packed18"])
def test_a_text_says_what_the_package_says(name, tmp_path):
    made = compiled(name, tmp_path / f"{name}.mlmodelc", old=name == "packed16")
    with pparse.view(made) as found, pparse.view(DATA / f"{name}.mlpackage") as wanted:
        assert found.format == "coreml-compiled"
        there = {tensor.name: tensor for tensor in found.tensors()}
        assert set(there) == set(wanted)
        for tensor in wanted.tensors():
            other = there[tensor.name]
            assert (other.type_name, other.shape, other.status) == (tensor.type_name, tensor.shape, tensor.status)
            if not tensor.is_text:
                assert other.numpy().tobytes() == tensor.numpy().tobytes(), tensor.name
            else:
                assert list(other.strings()) == list(tensor.strings())
        rows_of = [[(row[1], row[2], sorted(row[3]), row[6]) for row in one.graph.rows()] for one in (found, wanted)]
        assert rows_of[0] == rows_of[1]
        assert [str(found.graph.value(name)) for name in found.graph.arguments] == [
            str(wanted.graph.value(name)) for name in wanted.graph.arguments
        ]
        assert not list(found.check())


TEXT = """program(1.3)
[buildInfo = dict<string, string>({{"coremlc", "1"}})]
{
    func main<ios18>(tensor<fp16, [1, ?]> x, state<tensor<fp16, [2]>> s)
    [FlexibleShapeInformation = tuple<tuple<string>>()] {
            tensor<fp16, [2]> a = const()[name = string("a \\"quoted\\";"), val = tensor<fp16, [2]>([0x1.8p+1, -inf])];
            string mode = const()[name = string("mode"), val = string("li\\"ke")];
            tensor<int4, [3]> b = const()[name = string("b"), val = tensor<int4, [3]>([-8, 7, 1])];
            tensor<uint32, [1]> c = const()[name = string("c"), val = tensor<uint32, [1]>([4294967295])];
            bool d = const()[name = string("d"), val = bool(true)];
            tensor<fp16, [1, ?]> y, fp32 z = split(values = (x, a), k = fp32(0x1p-1))[name = string("y")];
            write_state(data = y, input = s)[name = string("w")];
        } -> (y, z);
    func other<ios18>(tensor<fp32, [1]> x) {
            fp32 a = const()[name = string("a"), val = fp32(0.5)];
        } -> (a);
}
"""


def test_forms_of_values(tmp_path):
    with pparse.view(write_compiled(tmp_path / "m.mlmodelc", TEXT)) as model:
        values = {name: model[name].numpy().tolist() for name in ("a", "b", "c", "d", "y.k", "other/a")}
        assert values == {
            "a": [3.0, float("-inf")],
            "b": [-8, 7, 1],
            "c": [2**32 - 1],
            "d": True,
            "y.k": 0.5,
            "other/a": 0.5,
        }
        assert list(model["mode"].strings()) == [b'li"ke']
        assert list(model.graph.functions) == ["other"]
        assert [str(model.graph.value(name)) for name in ("x", "s", "y", "z")] == [
            "x float16[1,?]",
            "s state of float16[2]",
            "y float16[1,?]",
            "z float32[]",
        ]
        assert [row[1:4] for row in model.graph.rows()][-1] == ("write_state", "write_state", ["y", "s"])
        assert not list(model.check())


DECLARED = 'bool d = const()[name = string("d"), val = bool(true)];'


@rows(
    "old, new, lost, status",
    [
        ('const()[name = string("mode")', 'const(}[name = string("mode")', {"mode"}, "damaged"),
        ('string("b"), val', 'string(b"), val', {"b"}, "damaged"),
        ("func main<ios18>(", "func main<ios18>]", set(), "damaged"),
        ("func other<", "func main<", {"other/a"}, "damaged"),
        ("program(1.3)", "\0rogram(1.3)", set(), "damaged"),
        ("[-8, 7, 1]", "[-8, 7, x]", {"b"}, "damaged"),
        ("fp16, [2]> a = const()[name", "fp99, [2]> a = const()[name", {"a"}, "damaged"),
        (
            'bool d = const()[name = string("d"), val = bool(true)];',
            "bool d = cond(p = a) {\n bool e;\n } -> (e);",
            {"d"},
            "damaged",
        ),
        ("(tensor<fp32, [1]> x)", f"(tensor<fp32, [{'9' * 30}]> x)", set(), "damaged"),
        ("([-8, 7, 1])", "(BLOBFILE(path = uint64(5), offset = uint64(64)))", {"b"}, "damaged"),
        ("([-8, 7, 1])", '(BLOBFILE(path = string("x"), offset = string("64")))', {"b"}, "damaged"),
        ("([-8, 7, 1])", "(BLOBFILE(offset = uint64(64)))", {"b"}, "damaged"),
        ("([-8, 7, 1])", "(BLOBFILE(path = string" * 3_000 + '("x")' + "))" * 3_000, {"b"}, "damaged"),
        ("val = bool(true)];\n", None, {"d", "y.k", "other/a"}, "truncated"),
    ],
)
def test_texts_that_are_not_whole(old, new, lost, status, tmp_path_factory):
    assert TEXT.count(old) == 1
    text = TEXT[: TEXT.index(old)] if new is None else TEXT.replace(old, new)
    folder = write_compiled(tmp_path_factory.mktemp("model") / "m.mlmodelc", text)
    with pparse.view(folder) as model:
        assert {"a", "mode", "b", "c", "d", "y.k", "other/a"} - set(model) == lost
        assert str(model.extent().document_status) == status
        assert any("is not a text of a program" in str(finding) for finding in model.check())


# How the text of each value ends.
ENDS = {
    "a": "-inf])];",
    "mode": 'ke")];',
    "b": "7, 1])];",
    "c": "4294967295])];",
    "d": "bool(true)];",
    "y.k": '[name = string("y")];',
    "other/a": "fp32(0.5)];",
}


def test_every_part_of_a_text(tmp_path):
    """Of each beginning, the operations that are whole; nothing is claimed whole."""
    folder = write_compiled(tmp_path / "m.mlmodelc", TEXT)
    for end in range(len(TEXT) - 2, 0, -23):
        (folder / "model.mil").write_text(TEXT[:end], encoding="utf-8")
        with pparse.view(folder) as model:
            assert set(model) == {name for name, text in ENDS.items() if text in TEXT[:end]}
            assert str(model.extent().document_status) in ("truncated", "damaged")


def test_folders_and_files(run, tmp_path):
    folder = compiled("program", tmp_path / "m.mlmodelc")
    said = run("info", folder).out
    assert "model.mil" in said
    assert "not read    coremldata.bin" in said
    assert run("ls", folder / "model.mil").out.splitlines()[-1] == run("ls", folder).out.splitlines()[-1]
    assert run("recover", folder, "-o", tmp_path / "out").code == 0
    there = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert there == ["RECOVERY.json", "coremldata.bin", "model.mil", "weight.bin"]
    cut = (folder / "model.mil").read_bytes()[:-200]
    (folder / "model.mil").write_bytes(cut)
    said = run("check", folder).out
    assert f"resume the download at byte {len(cut)} of {folder}/model.mil" in said.replace("\\", "/")
    (folder / "model.mil").rename(folder / "model.espresso.net")
    with pytest.raises(pparse.UnsupportedError, match=r"model\.espresso\.net"):
        pparse.view(folder)
