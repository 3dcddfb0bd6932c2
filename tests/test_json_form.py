"""The JSON form of protocol buffers, written and read, with the library's ``json_format`` as the referee."""

from __future__ import annotations

import json
import struct

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import LimitError, MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.limits import Limits
from pparse.parsers.protobuf.json_form import shortest
from pparse.parsers.protobuf.json_reader import JsonReader
from pparse.protobuf import Schema
from pparse.protos import message_class, pool, schema
from tests import sweep
from tests.protobuf_referee import FDP, Chooser, World, descriptor_pb2, fill, plain, random_schema, twisted
from tests.rows import rows
from tests.test_protobuf import SEEDS, SYNTAXES, UNSHRUNK

TYPES = ["tensorflow.GraphDef", "tensorflow.SavedModel", "onnx.ModelProto", "tensorflow.SavedObjectGraph"]


def read(text: bytes, types: Schema, name: str, **options):
    """Return the message that a text says, in wire format, its data, and what was found wrong."""
    with pparse.open(text, format="json", **options) as document:
        data, _ = JsonReader(document.parse("json").parser, types.message(name), lambda *_: 1).make()
        return data.read_known(0, data.size)[0], data, list(document.findings)


def written(raw: bytes, **options):
    with pparse.open(raw, format="protobuf", options=options) as document:
        return json.loads(json.dumps(document.root.to_json()))


# -- any schema ------------------------------------------------------------------------------------------------------


@given(SEEDS, SYNTAXES)
@settings(**UNSHRUNK)
def test_what_is_written_is_what_the_library_writes(seed, syntax):
    choose = Chooser.seeded(seed)
    world = random_schema(choose, syntax)
    message = world.cls("p.M0")()
    fill(choose, message)
    raw = twisted(choose, message.DESCRIPTOR, message.SerializeToString())
    message = type(message).FromString(raw)
    wanted = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=world.pool)
    found = written(raw, descriptor=world.descriptor, message="p.M0")
    assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


@given(SEEDS, SYNTAXES, st.booleans(), st.sampled_from([None, 2]))
@settings(**UNSHRUNK)
def test_what_is_read_is_what_the_library_reads(seed, syntax, original, indent):
    choose = Chooser.seeded(seed)
    world = random_schema(choose, syntax)
    message = world.cls("p.M0")()
    fill(choose, message)
    text = json_format.MessageToJson(
        message, preserving_proto_field_name=original, indent=indent, descriptor_pool=world.pool
    )
    raw, data, findings = read(text.encode(), Schema(world.descriptor), "p.M0")
    assert not findings
    assert data.range_status(0, data.size).status is Status.COMPLETE
    wanted = json_format.Parse(text, type(message)(), descriptor_pool=world.pool)
    assert plain(type(message).FromString(raw)) == plain(wanted)


@given(SEEDS, st.sampled_from(TYPES))
@settings(max_examples=sweep.examples(150), **UNSHRUNK)
def test_built_in_types_go_both_ways(seed, name):
    choose = Chooser.seeded(seed)
    message = message_class(name)()
    fill(choose, message, 4)
    _make_any_sound(message)
    wanted = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool())
    found = written(message.SerializeToString(), message=name)
    assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    raw, _, findings = read(json.dumps(found).encode(), schema(), name)
    assert not findings
    text = json.dumps(wanted)
    assert plain(type(message).FromString(raw)) == plain(
        json_format.Parse(text, type(message)(), descriptor_pool=pool())
    )


def _make_any_sound(message) -> None:
    """Let every Any hold a message, or a wrapper, instead of random bytes."""
    waiting = [message]
    while waiting:
        for field, value in (here := waiting.pop()).ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                if field.message_type is None or field.message_type.fields_by_name["value"].message_type is None:
                    continue
                value = [value[key] for key in value]
            waiting += value if field.is_repeated else [value]
        if here.DESCRIPTOR.full_name == "google.protobuf.Any":
            held = message_class("tensorflow.NodeDef")(name="n", input=["a"])
            held.attr["f"].f = 0.1
            here.type_url, here.value = "type.googleapis.com/tensorflow.NodeDef", held.SerializeToString()


# -- what a value may be ---------------------------------------------------------------------------------------------


def small() -> World:
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="s", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.value.add(name="A", number=0)
    enum.value.add(name="B", number=2)
    message = file.message_type.add(name="M")
    kinds = [("d", 1), ("f", 2), ("i", 3), ("u", 4), ("n", 5), ("yes", 8), ("s", 9), ("by", 12), ("w", 13), ("z", 18)]
    for number, (name, kind) in enumerate(kinds, 1):
        message.field.add(name=name, number=number, type=kind, label=FDP.LABEL_OPTIONAL)
        message.field.add(name=f"{name}_list", number=20 + number, type=kind, label=FDP.LABEL_REPEATED)
    message.field.add(name="e", number=11, type=14, type_name=".s.E", label=FDP.LABEL_OPTIONAL)
    message.field.add(name="m", number=12, type=11, type_name=".s.M", label=FDP.LABEL_OPTIONAL)
    message.oneof_decl.add(name="one")
    for number, name in ((13, "left"), (14, "right")):
        message.field.add(name=name, number=number, type=5, oneof_index=0, label=FDP.LABEL_OPTIONAL)
    return World(file)


SMALL = small()
GOOD = """
d  1 | -0.5e-3 | "NaN" | "-Infinity" | "1.5" | 123456789012345678901234567890
f  1.1 | 3.4028234663852886e38 | "Infinity" | "2e3" | 16777217
i  "-9223372036854775808" | 12 | 1e3 | 1.0 | "0"
u  "18446744073709551615" | 0
n  -2147483648 | "2147483647" | 5.0
z  "-9223372036854775808" | -1
w  4294967295
yes  true | false
s  "" | "é\\u00e9\\ud83d\\ude00" | "a/b"
by  "" | "AA==" | "AA" | "_-8=" | "/+8" | "QUJD"
e  "B" | 2 | 0 | 7 | "A"
m  {} | {"m": {"n": 1}} | null
iList  ["1", 2, -3] | [] | null
dList  [1, "NaN", 0.1, 5e-324]
byList  ["AA==", ""]
"""
BAD = """
d  "x" | [] | {}
f  3.5e38
i  "9223372036854775808" | 1.5 | "1.5" | true | "" | " 1"
u  -1
n  2147483648 | "a"
w  4294967296 | -1
yes  1 | "true" | 0
s  1 | true | ["a"]
by  1 | "Q"
e  "C"
m  1 | "x"
iList  1 | ["x"] | [null] | {} | [true] | [1, 2, "3x", 4]
dList  [1, 2, 1e400]
"""
# What it takes all the same: as another value, or as far as it goes.
STRICTER = """
d  true | "1_0" | " 1" | "inf"
f  "1e99"
by  "A!AA" | "é"
e  true | 1.5
m  []
dList  [0.5, true]
"""


def _cases(table: str) -> list[tuple[str, str]]:
    lines = [line.split("  ", 1) for line in table.strip().splitlines()]
    return [(name, value) for name, values in lines for value in values.split(" | ")]


@rows(("name", "value"), _cases(GOOD))
def test_values_that_the_library_takes_are_taken(name, value):
    text = f'{{"{name}": {value}}}'
    raw, _, findings = read(text.encode(), Schema(SMALL.descriptor), "s.M")
    assert not findings
    cls = SMALL.cls("s.M")
    assert plain(cls.FromString(raw)) == plain(json_format.Parse(text, cls()))


@rows(("name", "value"), _cases(BAD))
def test_values_that_it_refuses_are_left_out_and_condemn_their_message(name, value):
    with pytest.raises(json_format.ParseError):
        json_format.Parse(f'{{"{name}": {value}}}', SMALL.cls("s.M")())
    _refused(name, value)


@pytest.mark.parametrize(("name", "value"), _cases(STRICTER))
def test_values_of_another_kind_are_refused_though_it_takes_them(name, value):
    json_format.Parse(f'{{"{name}": {value}}}', SMALL.cls("s.M")())
    _refused(name, value)


def _refused(name: str, value: str) -> None:
    text = f'{{"m": {{"n": 7, "{name}": {value}}}, "n": 8}}'
    raw, data, findings = read(text.encode(), Schema(SMALL.descriptor), "s.M")
    found = SMALL.cls("s.M").FromString(raw)
    if name != "n":
        assert found.m.n == 7
    assert found.n == 8
    assert findings
    assert findings[0].offset is not None
    inner = raw.index(b"\x28\x07") if name != "n" else 0  # of the inner message
    assert data.why_suspect(inner, inner + 1) is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 1, "n": 2}',
        '{"left": 1, "right": 2}',
        '{"m": {}, "m": {}}',
    ],
)
def test_what_is_said_twice_is_told(text):
    with pytest.raises(json_format.ParseError):
        json_format.Parse(text, SMALL.cls("s.M")())
    _, data, findings = read(text.encode(), Schema(SMALL.descriptor), "s.M")
    assert findings
    assert data.range_status(0, data.size).status is Status.DAMAGED


def test_a_field_under_both_of_its_names_is_told():
    _, data, findings = read(b'{"iList": [1], "i_list": [2]}', Schema(SMALL.descriptor), "s.M")
    assert "set before" in findings[0].reason
    assert data.range_status(0, data.size).status is Status.DAMAGED


def test_a_null_does_not_set_a_field():
    text = b'{"n": 1, "left": null, "right": 3, "s": null, "m": null}'
    raw, _, findings = read(text, Schema(SMALL.descriptor), "s.M")
    assert not findings
    assert raw == b"\x28\x01\x70\x03"


def test_an_unknown_field_is_a_warning_and_one_that_is_almost_known_is_damage():
    _, data, findings = read(b'{"n": 1, "quite_other": [{"a": 1}]}', Schema(SMALL.descriptor), "s.M")
    assert [(found.code, found.severity.name) for found in findings] == [("unknown-field", "WARNING")]
    assert data.range_status(0, data.size).status is Status.COMPLETE
    _, data, findings = read(b'{"n": 1, "lefd": 1}', Schema(SMALL.descriptor), "s.M")
    assert "one called 'left'" in findings[0].reason
    assert data.range_status(0, data.size).status is Status.DAMAGED


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_shortest_text_of_a_float_reads_back(value):
    text = repr(shortest(value))
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    digits = len(text.partition("e")[0].replace(".", "").replace("-", "").strip("0"))
    assert digits <= 9
    if digits > 6:
        shorter = float(f"{value:.{digits - 1}g}")
        assert abs(shorter) > 3.4028235e38 or struct.pack("<f", shorter) != struct.pack("<f", value)


# -- size, depth, damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("escape", [False, True])
def test_long_values_stay_in_the_file(escape):
    graph = message_class("tensorflow.GraphDef")()
    node = graph.node.add(name="n" * 9000, op="é" * 5000)
    node.attr["value"].tensor.tensor_content = bytes(range(256)) * 500
    text = json_format.MessageToJson(graph, descriptor_pool=pool(), ensure_ascii=False).encode()
    if escape:
        text = text.replace(b"/", b"\\/").replace(b"n" * 9000, b"\\u006e" * 9000)
    raw, data, findings = read(text, schema(), "tensorflow.GraphDef")
    assert not findings
    assert type(graph).FromString(raw) == graph
    kinds = {type(part.data).__name__ for part in data._parts}
    assert "Base64Data" in kinds
    assert sum(len(part) for part in data._parts if part.data.name == data.name) < (30_000 if escape else 200)


def test_many_numbers_are_read_in_any_blocks():
    tensor = message_class("onnx.TensorProto")()
    tensor.float_data.extend(number / 8 for number in range(50_000))
    tensor.int64_data.extend((-1) ** number << number % 60 for number in range(50_000))
    tensor.double_data.extend([0.1, float("nan"), 1e300] * 20_000)
    text = json_format.MessageToJson(tensor, indent=None, descriptor_pool=pool()).encode()
    raw, _, findings = read(text, schema(), "onnx.TensorProto")
    assert not findings
    assert type(tensor).FromString(raw).SerializeToString() == tensor.SerializeToString()


def test_a_wrong_number_among_many_is_told_with_the_place():
    numbers = [str(number) for number in range(5000)]
    numbers[4000] = '"1x"'
    text = f'{{"dims": [1], "int64Data": [{", ".join(numbers)}]}}'.encode()
    raw, data, findings = read(text, schema(), "onnx.TensorProto")
    assert "'1x' is no int64" in findings[0].reason
    assert len(message_class("onnx.TensorProto").FromString(raw).int64_data) == 4999
    assert data.range_status(0, data.size).status is Status.DAMAGED


def test_a_fault_behind_many_numbers_has_its_path():
    text = f'{{"int64Data": [{"1234567, " * 90_000}tru, 2]}}'.encode()
    raw, data, findings = read(text, schema(), "onnx.TensorProto")
    assert findings[0].path == "int64Data[90000]"
    assert len(message_class("onnx.TensorProto").FromString(raw).int64_data) == 90_001
    assert data.range_status(0, data.size).status is Status.DAMAGED


def test_small_fields_are_charged_to_the_budget():
    text = b'{"floatData": [%s1]}' % (b"1," * 1_500_000)
    with pytest.raises(LimitError, match="budget="):
        read(text, schema(), "onnx.TensorProto", budget="8MiB")
    with pparse.open(text, format="json") as document:
        JsonReader(document.parse("json").parser, schema().message("onnx.TensorProto"), lambda *_: 1).make()
        assert document.session.budget.used < 1 << 20  # the charge went with its owner


@pytest.mark.parametrize("levels", [50, 5_000])
def test_deep_messages_are_bounded(levels):
    text = b'{"m":' * levels + b"{}" + b"}" * levels
    raw, data, findings = read(text, Schema(SMALL.descriptor), "s.M")
    assert bool(findings) is (levels > 1000)
    if findings:
        assert findings[0].code == "limit"
        assert data.range_status(0, data.size).status is Status.DAMAGED
    assert len(raw) > min(levels, 900)


def test_a_fault_in_what_is_left_out_harms_nothing():
    text = b'{"n": 1, "other": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    _, data, findings = read(text, Schema(SMALL.descriptor), "s.M")
    assert {found.code for found in findings} == {"unknown-field", "limit"}
    assert data.range_status(0, data.size).status is Status.COMPLETE


@pytest.mark.parametrize(
    "text", ['{"m": {"by": "QUJ', '{"m": {"by": "QUJD"}', '{"n": 1', '{"iList": [1, 2', '{"s": "ab']
)
def test_what_is_cut_claims_more_than_is_there(text):
    raw, _, _ = read(text.encode(), Schema(SMALL.descriptor), "s.M")
    with SMALL.open(raw, "s.M") as document:
        assert document.status is Status.TRUNCATED
        last = [node.status for node in document.root.children()][-1:]
    assert last == ([Status.TRUNCATED] if text[-1] not in "1}" else [] if text[-1] == "1" else [Status.COMPLETE])


# -- messages of known types -----------------------------------------------------------------------------------------


def test_an_any_is_read_if_its_type_comes_first():
    url = "type.googleapis.com/tensorflow.NodeDef"
    text = f'{{"serializedUserProto": {{"@type": "{url}", "name": "a", "attr": {{"x": {{"i": "5"}}}}}}}}'
    raw, _, findings = read(text.encode(), schema(), "tensorflow.SavedObject")
    assert not findings
    found = message_class("tensorflow.SavedObject").FromString(raw).serialized_user_proto
    assert message_class("tensorflow.NodeDef").FromString(found.value).attr["x"].i == 5
    for wrong in (f'{{"name": "a", "@type": "{url}"}}', '{"@type": "x/unheard.of", "name": "a"}', '{"name": {}}'):
        _, data, findings = read(f'{{"serializedUserProto": {wrong}}}'.encode(), schema(), "tensorflow.SavedObject")
        assert findings
        assert data.range_status(0, data.size).status is Status.DAMAGED


def test_wrappers_are_their_values_and_an_unknown_any_is_refused():
    text = b'{"hasCheckpointValues": true}'
    name = "tensorflow.TrackableObjectGraph.TrackableObject"
    raw, _, findings = read(text, schema(), name)
    assert not findings
    assert message_class(name).FromString(raw).has_checkpoint_values.value is True
    assert written(raw, message=name) == {"has_checkpoint_values": True}
    held = message_class("tensorflow.SavedObject")()
    held.serialized_user_proto.type_url = "x/unheard.of"
    with pytest.raises(UnsupportedError, match="unheard"):
        written(held.SerializeToString(), message="tensorflow.SavedObject")


# -- the command -----------------------------------------------------------------------------------------------------


def test_get_writes_the_form_and_bare_the_value_alone(run, tmp_path):
    graph = message_class("tensorflow.GraphDef")()
    node = graph.node.add(name="n", op="Const")
    node.attr["value"].tensor.int64_val.append(1 << 40)
    node.attr["value"].tensor.tensor_content = b"\xff"
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    command = ("get", tmp_path / "g.pb", "node[0]", "-f", "graph-def", "--json")
    wanted = json_format.MessageToDict(node, preserving_proto_field_name=True, descriptor_pool=pool())
    shown = json.loads(run(*command).out)
    assert shown["value"] == wanted
    assert (shown["schema"], shown["kind"]) == (1, "tensorflow.NodeDef")
    assert json.loads(run(*command, "--bare").out) == wanted
    assert run(*command, "--bare", "-o", tmp_path / "n.json").code == 0
    assert json.loads((tmp_path / "n.json").read_text()) == wanted
    value = run("get", tmp_path / "g.pb", "node[0].attr.value.tensor.tensor_content", "--json", "--bare")
    assert json.loads(value.out) == "/w=="


def test_bare_leaves_the_head_of_tensors_and_slices_out(run, tmp_path):
    path = tmp_path / "m.onnx"
    message = message_class("onnx.ModelProto")(ir_version=8, producer_name="tests")
    message.opset_import.add(version=17)
    message.graph.initializer.add(name="w", data_type=1, dims=[2], float_data=[1, 2])
    path.write_bytes(message.SerializeToString())
    for asked, wanted in (
        ("w", [1.0, 2.0]),
        ("w[1:]", [2.0]),
        ("producer_name[1:3]", "es"),
        ("producer_name", "tests"),
    ):
        assert json.loads(run("get", path, asked, "--json", "--bare", "-f", "onnx").out) == wanted


def test_bare_needs_json_and_a_message_without_a_schema_stays_as_it_was(run, tmp_path):
    (tmp_path / "m.pb").write_bytes(b"\x08\x96\x01\x12\x02\xff\xfe")
    ran = run("get", tmp_path / "m.pb", "1", "-f", "protobuf", "--bare")
    assert (ran.code, "--bare" in ran.err) == (2, True)
    shown = json.loads(run("get", tmp_path / "m.pb", "-f", "protobuf", "--json").out)
    assert shown["value"] == {"1": 150, "2": {"hex": "fffe"}}


def test_a_form_above_the_limit_is_refused_with_the_option():
    tensor = message_class("onnx.TensorProto")(raw_data=bytes(5000))
    options = {"message": "onnx.TensorProto"}
    limits = Limits(scalar_bytes=1000)
    with pparse.open(tensor.SerializeToString(), format="protobuf", options=options, limits=limits) as document:
        with pytest.raises(LimitError, match="scalar_bytes"):
            document.root.to_json(1000)
        with pytest.raises(LimitError, match="scalar_bytes"):
            document.node("raw_data").to_json()


def test_what_is_damaged_has_no_form():
    raw = message_class("onnx.TensorProto")(raw_data=bytes(50), name="x").SerializeToString()
    options = {"message": "onnx.TensorProto"}
    refused = pytest.raises((MalformedError, pparse.EndOfDataError))
    with pparse.open(raw[:-9], format="protobuf", options=options) as document, refused:
        document.root.to_json()
