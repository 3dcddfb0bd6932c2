"""ONNX models in JSON form: opened as models, whole, cut and damaged."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import random
from array import array

import pytest
from google.protobuf import json_format

import pparse
from pparse.errors import DamagedTensorError, FormatError, GapError, LimitError, PparseError, UnsupportedError
from pparse.findings import Severity, Status
from pparse.parsers.onnx.json_model import OnnxJsonParser
from pparse.protos import pool
from tests import sweep
from tests.contract.test_json_contract import TestJson
from tests.onnx_models import FLOAT, INT64, MODEL, branching, initializer, model, node

LARGE = 20_000  # elements: 80,000 bytes, which stay in the file


def small():
    """A model with numbers in raw_data and in lists, an attribute with text, and a graph in it."""
    found = model()
    graph = found.graph
    node(graph, "Gemm", ["x", "raw"], ["y"], "gemm").attribute.add(name="mode", type=3, s=b"A\xc3\xa9")
    initializer(graph, "raw", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, 3)
    graph.initializer.add(name="listed", data_type=INT64, dims=[3], int64_data=[1, -2, 1 << 40])
    graph.initializer.add(name="floats", data_type=FLOAT, dims=[2], float_data=[0.5, float("inf")])
    return found


def large(count: int = 3):
    found = model()
    for number in range(count):
        initializer(found.graph, f"w{number}", [float(number + at) for at in range(LARGE)])
    return found


def text_of(message, **options) -> bytes:
    options = {"preserving_proto_field_name": True, "indent": None} | options
    return json_format.MessageToJson(message, descriptor_pool=pool(), **options).encode()


def tensors_of(source, **options) -> dict[str, object]:
    with pparse.view(source, **options) as view:
        return {tensor.name: tensor.numpy().tolist() for tensor in view.tensors()}


# -- whole models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [small, large, branching])
@pytest.mark.parametrize("original", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_it_is_opened_as_the_model(make, original, indent):
    message = make()
    text = text_of(message, preserving_proto_field_name=original, indent=indent)
    assert tensors_of(text) == tensors_of(message.SerializeToString(), format="onnx")
    with pparse.open(text) as document:
        assert (document.format, document.status) == ("onnx", Status.COMPLETE)
        assert document.parse("json").root.kind == "object"
        assert not list(document.check())
        data = document.parsed.data
        assert MODEL.FromString(data.read_exact(0, data.size)) == message


def test_it_is_listed_and_read_by_the_commands(run, tmp_path):
    path = tmp_path / "m.onnx.json"
    path.write_bytes(text_of(large()))
    assert "w1" in run("ls", path).out
    assert "graph" in run("ls", path, "-f", "json").out
    assert json.loads(run("get", path, "w2[3:5]", "--json").out)["data"] == [5.0, 6.0]
    assert run("check", path).code == 0
    (tmp_path / "m.onnx").write_bytes(large().SerializeToString())
    assert run("get", tmp_path / "m.onnx", "graph", "--json", "--bare", "-o", tmp_path / "graph.json").code == 0
    graph = json_format.Parse((tmp_path / "graph.json").read_text(), type(large().graph)(), descriptor_pool=pool())
    assert graph == large().graph


def test_a_tensor_goes_to_another_process(tmp_path):
    path = tmp_path / "m.onnx.json"
    path.write_bytes(text_of(large()))
    with pparse.view(path) as view:
        sent = pickle.dumps(view["w1"])
    assert pickle.loads(sent).numpy().tolist()[:2] == [1.0, 2.0]


def test_one_in_a_compressed_stream_is_opened_too():
    assert tensors_of(gzip.compress(text_of(large()))) == tensors_of(text_of(large()))


def test_escapes_in_base64_and_a_byte_order_mark_do_not_matter():
    text = text_of(large()).replace(b"/", b"\\/").replace(b"+", b"\\u002B").replace(b"=", b"\\u003d")
    assert tensors_of(b"\xef\xbb\xbf" + text) == tensors_of(text_of(large()))


# -- recognition -----------------------------------------------------------------------------------------------------

MODELS = [
    '{"irVersion": "8", "graph": {}}',
    '\n {"ir_version": 8, "producer_name": "x"}',
    '{"opsetImport": [{"version": "9"}], "irVersion": "8"}',
    '{"irVersion":"8","docString":"' + "x" * 9000 + '","opsetImport":[',
    '{"irVersion":"8","producerName":"x","docString":"' + "x" * 90000 + '","opsetImport":[]}',
]
OTHERS = [
    '{"metadata": {"total_size": 1}, "weight_map": {"a": "b.safetensors"}}',
    '{"version": "1.0", "truncation": null, "model": {"type": "BPE"}, "graph": {}}',
    '{"architectures": ["X"], "hidden_size": 8, "domain": "x"}',
    '{"irVersion": "8"}',
    '{"irVersion": "8", "graph": {}, "name": "not a model"}',
    '{"irVersion": {}, "graph": {}}',
    '{"producerName": "x", "graph": {}}',
    '[{"irVersion": "8", "graph": {}}]',
    '"irVersion"',
    "{",
    "{}",
]


@pytest.mark.parametrize("text", MODELS)
def test_a_model_is_recognised_by_its_first_keys(text):
    with pparse.open(text.encode()) as document:
        assert document.format == "onnx"


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("name", ["x.json", "x.onnx.json"])
def test_other_json_is_not(text, name, tmp_path):
    (tmp_path / name).write_text(text)
    with pparse.open(tmp_path / name) as document:
        assert document.format != "onnx"
        assert OnnxJsonParser.name not in document.results


# -- cut and damaged -------------------------------------------------------------------------------------------------


def test_what_precedes_any_cut_comes_out():
    text, wanted = text_of(small()), tensors_of(text_of(small()))
    recognised = 0
    places = sweep.some(range(len(text)), 2, ends=60)
    for size in places:
        try:
            with pparse.view(text[:size]) as view:
                assert view.status is not Status.COMPLETE
                assert list(view.check())
                for tensor in view.tensors():
                    if tensor.status is Status.COMPLETE and not tensor.name.startswith("["):  # its name was cut off
                        assert tensor.numpy().tolist() == wanted[tensor.name], size
                recognised += 1
        except (FormatError, UnsupportedError):
            assert not recognised
    assert recognised > len(places) - 40


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_cut_in_base64_truncates_its_tensor_to_the_byte(share, tmp_path, run):
    text = text_of(large())
    values = base64.b64encode(array("f", [float(2 + at) for at in range(LARGE)]).tobytes())
    cut = text.index(values) + int(len(values) * share)
    (tmp_path / "cut.onnx.json").write_bytes(text[:cut])
    with pparse.view(tmp_path / "cut.onnx.json") as view:
        assert [str(tensor.status) for tensor in view.tensors()] == ["complete", "complete", "truncated"]
        tensor = view["w2"]
        there = int(len(values) * share) * 3 // 4
        assert (tensor.shape, tensor.finding.wanted, tensor.finding.got) == ((LARGE,), 4 * LARGE, there)
        assert tensor[: there // 4].tolist() == [float(2 + at) for at in range(there // 4)]
        assert view.status is Status.TRUNCATED
    shown = run("ls", tmp_path / "cut.onnx.json")
    assert shown.code == 4
    assert f"resume the download at byte {cut}" in shown.out


def test_a_character_that_is_not_base64_loses_its_bytes_alone(run, tmp_path):
    text = bytearray(text_of(large()))
    at = text.index(b'"w1"') + 10_000
    text[at] = 0x24
    path = tmp_path / "bad.onnx.json"
    path.write_bytes(text)
    wanted = tensors_of(text_of(large()))
    with pparse.view(path) as view:
        with pytest.raises((DamagedTensorError, GapError)):
            view["w1"].numpy()
        assert view["w1"].status is Status.DAMAGED
        for name in ("w0", "w2"):
            assert view[name].numpy().tolist() == wanted[name]
        assert [finding.offset for finding in view.check() if "base64" in finding.reason] == [at]
    checked = run("check", path)  # nobody read the tensor before
    assert checked.code == 4
    assert f"0x{at:x}: a character that is not base64" in checked.out


def test_damage_is_never_silent():
    """A changed text that the library refuses is told of; one that it takes is read the same."""
    text = text_of(small())
    for seed in sweep.sample(range(4000), 150):
        choose = random.Random(seed)
        changed = bytearray(text)
        at = choose.randrange(len(changed))
        if seed % 3 == 0:
            changed[at] ^= 1 << choose.randrange(8)
        elif seed % 3 == 1:
            del changed[at : at + choose.choice([1, 2, 30])]
        else:
            changed[at:at] = bytes(choose.choice(b'{}[]",:\\0 9a') for _ in range(choose.choice([1, 3])))
        _compare(bytes(changed))


def _compare(text: bytes) -> None:
    try:
        wanted = json_format.Parse(text, MODEL(), descriptor_pool=pool())
    except (json_format.ParseError, UnicodeDecodeError):
        wanted = None
    try:
        with pparse.open(text) as document:
            found = list(document.view().check())
            data = document.parsed.data
            raw = data.read_known(0, data.size)[0]
    except (FormatError, UnsupportedError):
        return  # not recognised as a model
    if wanted is None:
        assert found, text
    elif not any(finding.severity is Severity.ERROR for finding in found):
        assert MODEL.FromString(raw) == wanted, text


@pytest.mark.parametrize(
    "inside",
    [
        '"node": [' + '{"attribute": [{"g": {"node": [' * 400 + "]}}]}" * 400 + "]",
        '"node": [{"attribute": [{"i": ' + "9" * 10_000 + "}]}]",
        '"node": [{"attribute": [{"f": 1e400}]}]',
        '"node": [null]',
        '"docString": "\\ud800"',
        '"x": ' + "[" * 3000 + "]" * 3000,
    ],
)
def test_hostile_neighbours_leave_a_tensor_alone(inside):
    whole = '"initializer": [{"dims": ["1"], "dataType": 1, "name": "w", "floatData": [1.5]}]'
    text = f'{{"irVersion": "8", "graph": {{{whole}, {inside}}}}}'.encode()
    with pparse.view(text) as view:
        assert view["w"].numpy().tolist() == [1.5]
        assert list(view.check())


def test_a_model_above_the_budget_is_refused_with_the_option():
    message = model()
    message.graph.initializer.add(name="f", data_type=FLOAT, dims=[1 << 18], float_data=[1.0] * (1 << 18))
    with pytest.raises(LimitError, match="budget="), pparse.view(text_of(message), budget="1MiB") as view:
        view.status  # noqa: B018


def test_the_message_is_entered_by_its_name(tmp_path):
    (tmp_path / "m.onnx.json").write_bytes(text_of(small()))
    with pparse.open(tmp_path / "m.onnx.json") as document:
        container = document.parse("onnx-json").container
        assert container.content_name() == "m.onnx"
        assert container.enter("m.onnx") is container.enter("content")
        with pytest.raises(PparseError):
            container.enter("n.onnx")


class TestOnnxJson(TestJson):
    """The tree of the text keeps the contract, with the model in it."""

    parser = OnnxJsonParser
    samples = {"model": text_of(small())}

    def test_recognises_its_samples(self) -> None:
        """What is opened is the model inside."""
        with pparse.open(self.samples["model"]) as document:
            assert document.format == "onnx"
            assert OnnxJsonParser.name in document.results
