from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Mapping

import numpy as np
import pytest

import pparse
from pparse import Severity, Status
from pparse.data.base import IoStats
from pparse.errors import (
    ClosedError,
    DamagedTensorError,
    MissingTensorError,
    PathError,
    PparseError,
    TruncatedTensorError,
)
from pparse.limits import Limits, MemoryBudget
from pparse.tensors.status import TensorRanges
from pparse.testing.fakes import FailingData
from tests import sweep
from tests.rows import rows

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "BF16": 16, "F16": 16, "F32": 32, "I64": 64, "F64": 64}


def frame(header, data=b"", *, length=None):
    """A safetensors file; ``header`` is text, bytes or what JSON is made of."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


def pack(tensors, metadata=None, seed=0):
    """A file with a tensor of random bytes for each ``(name, dtype, shape)``; returns it and each one's bytes."""
    rng = random.Random(seed)
    header, data, parts = {}, [], {}
    at = 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        size = BITS[dtype] // 8
        for length in shape:
            size *= length
        part = bytes(size) if dtype == "BOOL" else rng.randbytes(size)
        header[name] = entry(dtype, shape, at, at + size)
        parts[name] = part
        data.append(part)
        at += size
    return frame(header, b"".join(data)), parts


def text_of(*pairs):
    """The text of a header; a value is text or what JSON is made of, and a name may occur twice."""
    return (
        "{"
        + ",".join(
            f"{json.dumps(name)}:{value if isinstance(value, str) else json.dumps(value)}" for name, value in pairs
        )
        + "}"
    )


def byte(at):
    """The entry of one byte."""
    return entry("U8", [1], at, at + 1)


def with_extra(at, text):
    """The text of the entry of one byte, with a field more."""
    return json.dumps(byte(at))[:-1] + f',"x":{text}}}'


def data_start(source):
    return 8 + int.from_bytes(source[:8], "little")


def view(source, **options):
    return pparse.view(source, format="safetensors", **options)


def errors(findings):
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def bytes_of(tensor):
    """The bytes that a tensor's entry names, whatever their worth."""
    (span,) = tensor.spans
    return span.data.pread(span.offset, span.length)


SAMPLE, PARTS = pack(
    [
        ("a.weight", "F32", (2, 3)),
        ("b", "I16", (5,)),
        ("none", "F32", (0, 4)),
        ("scalar", "I64", ()),
        ("flag", "BOOL", (3,)),
        ('odd name [0] "x"', "U8", (2, 2)),
    ],
    metadata={"format": "pt", "note": "é" * 300},
)


# -- the tree --------------------------------------------------------------------------------------------------------


def every_node(root):
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if node.shape != "scalar" and node.status is not Status.UNSUPPORTED:
            stack.extend(node.children())


def test_a_file_that_ends_before_its_header_is_cut(tmp_path, run):
    text = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    content = len(text).to_bytes(8, "little") + text + b"12"
    for count in (7, 8, 9):
        (tmp_path / "m.safetensors").write_bytes(content[:count])
        ran = run("ls", tmp_path / "m.safetensors")
        assert (ran.code, "resume the download" in ran.out, "malformed" in ran.out + ran.err) == (4, True, False)


def test_tree_has_size_metadata_and_tensors():
    with pparse.open(SAMPLE) as document:
        root = document.root
        assert document.format == "safetensors"
        assert list(root.keys()) == ["header_size", "metadata", "tensors"]
        assert root["header_size"].load() == data_start(SAMPLE) - 8
        assert root["metadata"].to_python() == {"format": "pt", "note": "é" * 300}
        assert document.get("metadata.note") == "é" * 300
        tensors = root["tensors"]
        assert list(tensors.keys()) == list(PARTS)
        first = tensors["a.weight"]
        assert list(first.keys()) == ["dtype", "shape", "data_offsets", "data"]
        assert first["dtype"].load() == "F32"
        assert list(first["shape"].load()) == [2, 3]
        assert document.get('tensors["a.weight"].data_offsets[1]') == 24
        assert {name: tensors[name]["data"].load() for name in PARTS} == PARTS
        assert document.status is Status.COMPLETE


def test_nodes_cover_their_bytes():
    with pparse.open(SAMPLE) as document:
        base, at = data_start(SAMPLE), 0
        for name, part in PARTS.items():
            node = document.root["tensors"][name]["data"]
            assert node.spans == ((base + at, len(part)),)
            assert node.open().read(100) == part
            at += len(part)
        shape = document.root["tensors"]["b"]["shape"]
        ((offset, length),) = shape.spans
        assert SAMPLE[offset : offset + length] == b"[5]"


def test_every_path_leads_to_its_node():
    names = ["plain", "a.b.c", "x[0]", 'q"uo\\te', "new\nline", "\0", "#2", "name#2", "", "5", "é\U0001f600", " "]
    source, _ = pack([(name, "U8", (1,)) for name in names], metadata={"a.b": "c", "": "d"})
    with pparse.open(source) as document:
        nodes = list(every_node(document.root))
        assert len(nodes) == 1 + 3 + 2 + len(names) * (1 + 4 + 1 + 2)
        for node in nodes:
            assert document.node(node.path) is node
        assert len({node.path for node in nodes}) == len(nodes)


def test_unloaded_nodes_load_the_same_again():
    with pparse.open(SAMPLE) as document:

        def snapshot():
            return [
                (node.path, node.kind, node.status, node.load() if node.shape == "scalar" else len(node))
                for node in every_node(document.root)
            ]

        before = snapshot()
        kept = document.node("tensors.b")
        for path in ("tensors.b", "tensors", "metadata", ""):
            node = document.node(path)
            node.unload()
            assert node.value is pparse.UNLOADED_VALUE
        assert document.node("tensors.b") is kept
        assert snapshot() == before


def test_to_python_gives_the_header_without_the_bytes():
    with pparse.open(SAMPLE) as document:
        size = data_start(SAMPLE) - 8
        header = json.loads(SAMPLE[8 : 8 + size])
        metadata = header.pop("__metadata__")
        assert document.root.to_python() == {"header_size": size, "metadata": metadata, "tensors": header}
        assert document.node("tensors.b").to_python() == header["b"]


def test_names_that_occur_twice_are_all_in_the_tree():
    text = text_of(("a", byte(0)), ("b", byte(1)), ("a", byte(2)))
    with pparse.open(frame(text, b"xyz")) as document:
        tensors = document.root["tensors"]
        assert [kid.path for kid in tensors.children()] == ["tensors.a", "tensors.b", "tensors.a#2"]
        assert document.get("tensors.b.data") == b"y"
        assert {kid.key: kid.status for kid in tensors.children()} == {"a": Status.DAMAGED, "b": Status.COMPLETE}
        assert document.status is Status.DAMAGED
        assert list(tensors.to_python()) == ["a", "b", "a#2"]


def test_a_long_text_under_a_key_that_occurs_twice_is_its_own():
    text = text_of(("__metadata__", text_of(("k", json.dumps("x" * 500)), ("k", json.dumps("y" * 500)))))
    with pparse.open(frame(text)) as document:
        assert document.get("metadata.k") == "x" * 500
        assert document.get("metadata.k#2") == "y" * 500


def test_entries_that_are_no_objects_are_invalid_nodes():
    for text in ("1", "null", "true", '"U8"', json.dumps("x" * 1000)):
        with pparse.open(frame(text_of(("a", text), ("b", byte(0))), b"x")) as document:
            node = document.node("tensors.a")
            assert (node.kind, node.status) == ("invalid", Status.DAMAGED)
            with pytest.raises(pparse.MalformedError):
                node.load()
            assert document.get("tensors.b.data") == b"x"


def test_an_entry_written_as_a_row_has_its_fields():
    """The reference reader takes ``[dtype, shape, data_offsets]`` for an entry."""
    with pparse.open(frame('{"a":["U8",[2],[0,2]]}', b"xy")) as document:
        assert document.get("tensors.a.dtype") == "U8"
        assert list(document.get("tensors.a.shape")) == [2]
        assert document.get("tensors.a.data") == b"xy"
        node = document.node("tensors.a.data_offsets[1]")
        assert (node.load(), document.node(node.path)) == (2, node)
        assert document.view()["a"].numpy().tobytes() == b"xy"


def test_bad_entries_say_what_is_wrong_with_their_numbers():
    cases = {
        "{}": "the entry has no data_offsets",
        '{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}': "data_offsets is not a pair",
        '{"dtype":"U8","shape":[4],"data_offsets":[0,4.0]}': "a value in data_offsets is not an offset",
        '{"dtype":"U8","shape":[4],"data_offsets":[4,0]}': "data_offsets end before they begin",
        '{"shape":[4],"data_offsets":[0,4]}': "the entry has no dtype",
        '{"dtype":7,"shape":[4],"data_offsets":[0,4]}': "the dtype is not a string",
        '{"dtype":"U8","data_offsets":[0,4]}': "the entry has no shape",
        '{"dtype":"U8","shape":4,"data_offsets":[0,4]}': "the shape is not a list",
        '{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}': "a value in the shape is not a length",
        '{"dtype":"F4","shape":[3],"data_offsets":[0,4]}': "3 elements of F4 do not fill whole bytes",
        '{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}': (
            "the number of elements overflows 64 bits"
        ),
        "3": "the header entry is not an object",
    }
    for text, reason in cases.items():
        with view(frame(text_of(("a", text)), b"1234")) as model:
            tensor = model["a"]
            assert tensor.status is Status.DAMAGED
            assert tensor.finding.reason == reason
            with pytest.raises(DamagedTensorError, match=re.escape(reason)):
                tensor.numpy()
            assert reason in [finding.reason for finding in errors(model.check())]
    with view(frame({"a": entry("F32", [4], 0, 4)}, b"1234")) as model:
        assert (model["a"].finding.wanted, model["a"].finding.got) == (16, 4)
    with view(frame({"x": entry("U8", [3], 0, 3), "a": entry("F32", [4], 3, 7)}, b"1234567")) as model:
        assert (model["a"].finding.wanted, model["a"].finding.got) == (16, 4)


def test_a_check_of_a_sound_file_reads_it_once():
    header = {f"t{number}": entry("U8", [1], number, number + 1) for number in range(2000)}
    source = frame(header, b"\1" * 2000)
    with view(pparse.BytesData(source, stats=(stats := IoStats()))) as model:
        assert list(model.check()) == []
    assert stats.bytes < 1.2 * len(source)
    small = frame({"a": entry("U8", [3], 0, 3)}, b"123")
    with pparse.view(pparse.BytesData(small, stats=(stats := IoStats()))) as model:
        assert [tensor.shape for tensor in model.values()] == [(3,)]
    assert (stats.reads, stats.bytes) == (1, len(small))  # what told the format is the header, too


def test_an_unknown_dtype_is_unsupported_and_its_bytes_can_be_had():
    with view(frame({"a": entry("F7", [4], 0, 4), "b": entry("U8", [1], 4, 5)}, b"1234x")) as model:
        tensor = model["a"]
        assert (tensor.stored_dtype, tensor.shape, tensor.dtype) == ("F7", (4,), None)
        assert tensor.status is Status.UNSUPPORTED
        with pytest.raises(pparse.UnsupportedError, match="F7"):
            tensor.numpy()
        assert model["b"].numpy().tobytes() == b"x"
        assert {finding.code for finding in model.check()} == {"bad-entry"}  # no gap where it lies
        (span,) = tensor.spans
        assert span.data.pread(span.offset, span.length) == b"1234"


def test_tree_of_an_unknown_dtype_shows_the_entry():
    with pparse.open(frame({"a": entry("F7", [4], 0, 4)}, b"1234"), format="safetensors") as document:
        assert document.get("tensors.a.dtype") == "F7"
        assert [visit.path for visit in document.walk()][-1] == "tensors.a.data"


def test_more_dimensions_than_an_array_has_are_no_fault_of_the_file():
    with view(frame({"a": entry("U8", [1] * 65, 0, 1), "b": entry("U8", [1] * 64, 1, 2)}, b"xy")) as model:
        assert model["a"].status is Status.UNSUPPORTED
        assert model["a"].finding.severity is Severity.WARNING
        with pytest.raises(pparse.UnsupportedError, match="65 dimensions"):
            model["a"].numpy()
        assert model["b"].numpy().shape == (1,) * 64
        assert errors(model.check(strict=True)) == []


# -- the mapping -----------------------------------------------------------------------------------------------------


def test_viewer_is_a_mapping():
    with view(SAMPLE) as model:
        assert isinstance(model, Mapping)
        assert list(model) == list(model.keys()) == list(PARTS)
        assert len(model) == len(PARTS)
        assert bool(model)
        assert "b" in model
        assert "c" not in model
        assert 5 not in model
        assert model.get("c") is None
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == PARTS
        assert [tensor.name for tensor in model.values()] == list(PARTS)
        tensor = model["a.weight"]
        assert (tensor.name, tensor.shape) == ("a.weight", (2, 3))
        assert (tensor.stored_dtype, str(tensor.dtype)) == ("F32", "float32")
        assert (tensor.nbytes, tensor.stored_nbytes, tensor.strides, tensor.verified) == (24, 24, (12, 4), None)
        (span,) = tensor.spans
        assert (span.offset, span.length) == (data_start(SAMPLE), 24)
        assert model.format == "safetensors"
        assert model.status is Status.COMPLETE
        assert model.size_hint() == len(PARTS)
        assert list(model.findings) == []


def test_an_empty_model_is_a_true_mapping_of_nothing():
    with view(frame("{}")) as model:
        assert (list(model), len(model), bool(model), model.status) == ([], 0, True, Status.COMPLETE)
        assert dict(model.metadata) == {}
        assert list(model.check(strict=True)) == []


def test_repr_and_key_completion():
    with view(SAMPLE) as model:
        assert repr(model).startswith(f"<SafetensorsViewer of '<bytes>': {len(PARTS)} tensors, complete\n  a.weight")
        assert model._ipython_key_completions_() == list(PARTS)
        assert repr(model["a.weight"]) == "<Tensor 'a.weight' float32 2×3, 24 B>"
    with view(SAMPLE[:-30]) as model:
        assert repr(model).splitlines()[0].endswith("tensors, truncated")
        assert repr(model["a.weight"]) == "<Tensor 'a.weight' float32 2×3, 24 B, truncated>"
        assert repr(model["b"]) == "<Tensor 'b' int16 5, 10 B, missing>"


def test_names_of_nobody_raise_with_suggestions():
    source, _ = pack([(name, "U8", (1,)) for name in ("encoder.layer.0.weight", "encoder.layer.1.weight", "x")])
    with view(source) as model:
        with pytest.raises(KeyError) as caught:
            model["encoder.layer.2.weight"]
        assert isinstance(caught.value, PathError)
        assert set(caught.value.suggestions) == {"encoder.layer.0.weight", "encoder.layer.1.weight"}
        assert "did you mean" in str(caught.value)
        assert model.suggest("LAYER.1") == ("encoder.layer.1.weight",)
        assert model.suggest("zzz") == ()


def test_metadata_is_the_headers():
    with view(SAMPLE) as model:
        assert model.metadata == {"format": "pt", "note": "é" * 300}
        assert "__metadata__" not in model
        assert model.find("__metadata__") is None
    for text in ("null", "1", '"x"', "[]"):
        with view(frame(text_of(("__metadata__", text)))) as model:
            assert model.metadata == {}


def test_metadata_that_is_cut_or_damaged_gives_what_is_whole():
    source = frame('{"__metadata__":{"a":"b","c":"d","e":"ffff"}}')
    with view(source[:-6]) as model:
        assert model.metadata == {"a": "b", "c": "d"}
    with view(source.replace(b'"d"', b'"\xff"')) as model:
        assert model.metadata == {"a": "b", "e": "ffff"}


def test_second_of_a_name_is_reachable():
    text = text_of(*(("a", byte(at)) for at in range(3)), ("b#2", byte(3)))
    with view(frame(text, b"xyzw")) as model:
        assert list(model) == ["a", "a#2", "a#3", "b#2"]
        assert [bytes_of(tensor) for tensor in model.values()] == [b"x", b"y", b"z", b"w"]
        for name in ("a", "a#2", "a#3"):  # nobody can tell which is meant
            assert model[name].status is Status.DAMAGED
            with pytest.raises(DamagedTensorError, match="more than once"):
                model[name].numpy()
        assert model["b#2"].numpy().tobytes() == b"w"
        for name in ("a#4", "a#1", "a#0", "a#", "b", "b#3", "#2", "a#2#2", "a#02", "a#" + "9" * 5000):
            assert name not in model
        codes = [finding.code for finding in model.check()]
        assert "duplicate-name" in codes


@rows(
    ("keys", "shown"),
    [  # the same as in GGUF files
        (["a#2", "a", "a"], ["a#2", "a", "a#2#2"]),
        (["a", "a", "a#2"], ["a", "a#2#2", "a#2"]),
        (["a", "a", "a", "a#2", "a#2", "a#2#2"], ["a", "a#2#3", "a#3", "a#2", "a#2#2#2", "a#2#2"]),
        (["", "", "#2"], ["", "#2#2", "#2"]),
    ],
)
def test_each_name_that_is_shown_is_that_of_one_tensor(keys, shown):
    text = text_of(*((key, byte(number)) for number, key in enumerate(keys)))
    with view(frame(text, bytes(range(len(keys))))) as model:
        assert list(model) == shown
        for number, name in enumerate(shown):
            assert model[name].name == name
            assert model[name].spans[0].offset == model[shown[0]].spans[0].offset + number


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
@pytest.mark.parametrize("padding", [0, 300 << 10])
def test_an_entry_with_a_field_twice_is_damaged_as_the_library_refuses_it(field, padding):
    fields = {"dtype": '"U8"', "shape": "[4]", "data_offsets": "[0,4]"}
    twice = {"dtype": '"I8"', "shape": "[2,2]", "data_offsets": "[0,4]"}
    text = ",".join(f'"{name}":{value}' for name, value in fields.items())
    again = f'"{field[0]}\\u{ord(field[1]):04x}{field[2:]}":{twice[field]}'  # an escape hides nothing
    text = f'{{"a":{{{text},{again}}},"b":{json.dumps(entry("U8", [2], 4, 6))}'
    for listed in (True, False):
        with view(frame(text + " " * padding + "}", b"abcdef")) as model:
            names = list(model) if listed else ["a", "b"]
            assert [model[name].status for name in names] == [Status.DAMAGED, Status.COMPLETE]
            with pytest.raises(DamagedTensorError, match=f"more than one {field}"):
                model["a"].numpy()
            assert model.status is Status.DAMAGED
            assert {"bad-entry", "duplicate-key"} <= {finding.code for finding in errors(model.check())}


def test_a_field_that_is_called_like_a_second_one_is_none():
    text = text_of(("a", '{"dtype":"U8","shape":[1],"shape#2":[9],"data_offsets":[0,1]}'))
    with view(frame(text, b"x")) as model:
        assert model["a"].numpy().tobytes() == b"x"
        assert list(model.check(strict=True)) == []


def test_second_metadata_is_no_tensor():
    source = frame('{"__metadata__":{"a":"b"},"__metadata__":{"c":"d"}}')
    with view(source) as model:
        assert list(model) == []
        assert model.find("__metadata__#2") is None
        assert "metadata" in [finding.code for finding in errors(model.check())]
        assert model.status is Status.DAMAGED


def test_second_of_a_name_in_a_large_header_is_reachable():
    """Headers above 256 KiB are not held: names that occur twice are found by their hashes."""
    entries = [(f"layer.{17 if number == 5000 else number}.weight", byte(number)) for number in range(6000)]
    data = bytes(number % 251 for number in range(6000))
    with view(frame(text_of(*entries), data)) as model:
        names = list(model)
        assert len(names) == len(set(names)) == 6000
        assert names[5000] == "layer.17.weight#2"
        assert bytes_of(model["layer.17.weight"]) == bytes([17])
        assert bytes_of(model["layer.17.weight#2"]) == bytes([5000 % 251])
        assert {t.name for t in model.values() if t.status is Status.DAMAGED} == {
            "layer.17.weight",
            "layer.17.weight#2",
        }
        assert model["layer.18.weight"].numpy().tobytes() == bytes([18])
        assert "duplicate-name" in [finding.code for finding in model.check()]


def test_an_error_behind_a_thousand_warnings_is_not_lost():
    # 1,100 tensors have too many dimensions for an array, which is a warning; and the last tensor is cut.
    header = {f"k{number}": entry("U8", [1] * 65, number, number + 1) for number in range(1100)}
    with view(frame(header | {"b": entry("U8", [4], 1100, 1104)}, bytes(1103))) as model:
        found = list(model.check())
        assert len(found) == 1001
        assert [finding.code for finding in errors(found)] == ["findings-omitted"]


def test_check_strict_after_check(monkeypatch):
    """What was a warning to the first check is an error to the second, and the other way round."""
    limit = 100_000_000 if sweep.full else 1_000_000
    monkeypatch.setattr("pparse.viewers.safetensors.rules.REFERENCE_HEADER_LIMIT", limit)
    text = json.dumps({"a": entry("U8", [2], 0, 2)}).encode()
    with view(frame(text + b" " * (limit + 1 - len(text)), b"xy")) as model:
        for _ in range(2):
            assert [(f.code, f.severity) for f in model.check()] == [("header-too-large", Severity.WARNING)]
            assert [(f.code, f.severity) for f in model.check(strict=True)] == [("header-too-large", Severity.ERROR)]


def test_cancel_is_heeded_while_booleans_are_checked():
    calls = []

    def cancel():
        calls.append(1)
        return len(calls) > 3

    source, _ = pack([("a", "BOOL", (8 << 20,))])
    with view(source, cancel=cancel) as model, pytest.raises(pparse.CancelledError):
        list(model.check(strict=True))
    assert len(calls) == 4


def test_closed_document_says_so():
    model = view(SAMPLE)
    tensor = model["b"]
    model.close()
    with pytest.raises(ClosedError):
        tensor.numpy()
    with pytest.raises(ClosedError):
        list(model)
    with pytest.raises(ClosedError):
        model["b"]
    with pytest.raises(ClosedError):
        model.root.load()


def test_a_read_that_fails_is_no_damage():
    """The disk's fault is not the file's: it comes through as `SourceError`, and the answer after it is right."""
    questions = {
        "find": (lambda model: model["b"].status, Status.COMPLETE),
        "metadata": (lambda model: dict(model.metadata), {"format": "pt", "note": "é" * 300}),
        "list": (lambda model: [tensor.status for tensor in model.values()], [Status.COMPLETE] * 6),
        "check": (lambda model: [finding.code for finding in model.check(strict=True)], []),
    }
    for number in range(1, 200):
        data = FailingData(SAMPLE, number)
        try:
            model = view(data)
            for word, (ask, answer) in questions.items():
                try:
                    assert ask(model) == answer, (word, number)
                except pparse.SourceError:
                    assert ask(model) == answer, (word, number)
        except pparse.SourceError:
            continue  # while it was opened
        if data.reads < number:
            return
    pytest.fail("the fault was met every time")


# -- cut files -------------------------------------------------------------------------------------------------------


def test_extent_of_a_whole_file():
    with view(SAMPLE) as model:
        extent = model.extent().to_dict()
    assert extent == {
        "actual": len(SAMPLE),
        "expected": len(SAMPLE),
        "expected_at_least": False,
        "missing_bytes": 0,
        "first_hit": None,
        "resume_at": None,
        "resume_file": None,
        "resume": [],
        "tensors": 6,
        "whole": 6,
        "truncated": 0,
        "missing": 0,
        "unlisted": 0,
        "damaged": 0,
        "unsupported": 0,
        "unwritten": 0,
        "verified": 0,
        "tensor_bytes": 49,
        "parameters": {"float32": 6, "int16": 5, "int64": 1, "bool": 3, "uint8": 4},
    }


def test_file_cut_at_60_percent(tmp_path):
    rng = random.Random(60)
    dtypes = sorted(BITS)
    tensors = [
        (f"blocks.{number}.w", rng.choice(dtypes), (rng.randrange(1, 40), rng.randrange(1, 9)))
        for number in range(2000)
    ]
    source, parts = pack(tensors, seed=60)
    # The header's order is not that of the bytes.
    size = int.from_bytes(source[:8], "little")
    pairs = list(json.loads(source[8 : 8 + size]).items())
    offsets = {name: tuple(fields["data_offsets"]) for name, fields in pairs}
    rng.shuffle(pairs)
    source = frame(dict(pairs), source[8 + size :])
    base = data_start(source)
    hit = next(name for name in offsets if base + offsets[name][1] > len(source) * 6 // 10)
    cut = base + sum(offsets[hit]) // 2
    whole = [name for name, (_, end) in offsets.items() if base + end <= cut]
    missing = [name for name, (begin, _) in offsets.items() if base + begin >= cut]
    assert len(whole) + 1 + len(missing) == 2000
    assert len(whole) > 900

    path = tmp_path / "model.safetensors.part"
    path.write_bytes(source[:cut])
    with pparse.view(path) as model:
        assert model.format == "safetensors"
        statuses = {tensor.name: tensor.status for tensor in model.tensors()}
        assert list(statuses) == [name for name, _ in pairs]
        assert {name for name, status in statuses.items() if status is Status.COMPLETE} == set(whole)
        assert [name for name, status in statuses.items() if status is Status.TRUNCATED] == [hit]
        assert {name for name, status in statuses.items() if status is Status.MISSING} == set(missing)
        for name in whole:
            assert model[name].numpy().tobytes() == parts[name]
        begin, end = offsets[hit]
        with pytest.raises(TruncatedTensorError) as truncated:
            model[hit].numpy()
        assert (truncated.value.wanted, truncated.value.got) == (end - begin, cut - base - begin)
        assert (truncated.value.offset, truncated.value.name) == (base + begin, hit)
        with pytest.raises(MissingTensorError) as gone:
            model[missing[0]].numpy()
        assert (gone.value.offset, gone.value.got) == (base + offsets[missing[0]][0], 0)
        extent = model.extent()
        assert (extent.whole, extent.truncated, extent.missing, extent.damaged) == (len(whole), 1, len(missing), 0)
        assert (extent.actual, extent.expected, extent.missing_bytes) == (cut, len(source), len(source) - cut)
        assert (extent.first_hit, extent.resume_at, extent.at_least) == (hit, cut, False)
        assert model.status is Status.TRUNCATED
        (finding,) = errors(model.check())
        assert (finding.code, finding.offset, finding.wanted, finding.got) == ("truncated", cut, len(source), cut)
        assert hit in finding.reason


def test_nodes_of_a_cut_file_say_how_much_is_there():
    source, parts = pack([("a", "U8", (4,)), ("b", "U8", (10,)), ("c", "U8", (3,))])
    cut = data_start(source) + 10
    with pparse.open(source[:cut]) as document:
        assert document.get("tensors.a.data") == parts["a"]
        for name, got in (("b", 6), ("c", 0)):
            node = document.node(f"tensors.{name}.data")
            with pytest.raises(pparse.EndOfDataError) as caught:
                node.load()
            assert (caught.value.wanted, caught.value.got) == (len(parts[name]), got)
            assert caught.value.path == f"tensors.{name}.data"
        assert document.node("tensors.b.data").open().read(100) == parts["b"][:6]
        assert document.get("tensors.c.dtype") == "U8"
        assert [document.node(f"tensors.{name}").status for name in "abc"] == [
            Status.COMPLETE,
            Status.TRUNCATED,
            Status.MISSING,
        ]
        assert document.status is Status.TRUNCATED
        assert [finding.code for finding in document.check()] == ["truncated"]


def test_partial_reads_of_a_truncated_tensor():
    source, parts = pack([("a", "I16", (10, 4)), ("b", "U8", (3,))])
    base = data_start(source)
    wanted = np.frombuffer(parts["a"], "<i2").reshape(10, 4)
    with view(source[: base + 53]) as model:  # six rows, half of the seventh and a byte
        tensor = model["a"]
        assert tensor.available_nbytes == 53
        assert np.array_equal(tensor.numpy(partial="prefix"), wanted[:6])
        filled = tensor.numpy(partial="fill", fill_value=-1)
        assert np.array_equal(filled.data.reshape(-1)[:26], wanted.reshape(-1)[:26])
        assert filled.mask.reshape(-1).tolist() == [False] * 26 + [True] * 14
        assert filled.data.reshape(-1)[26:].tolist() == [-1] * 14
        assert np.array_equal(tensor[2:6], wanted[2:6])
        assert np.array_equal(tensor[6, :2], wanted[6, :2])
        with pytest.raises(TruncatedTensorError):
            tensor[6]
        with pytest.raises(MissingTensorError):
            model["b"].numpy(partial="prefix")
        got = []
        blocks = tensor.blocks(8)
        with pytest.raises(TruncatedTensorError):
            got.extend(iter(lambda: next(blocks).tobytes(), None))
        assert b"".join(got) == parts["a"][:52]


def test_every_prefix_gives_what_is_whole():
    base = data_start(SAMPLE)
    ends = {}
    header = json.loads(SAMPLE[8:base])
    header.pop("__metadata__")
    most = 0
    for name, fields in header.items():
        ends[name] = base + fields["data_offsets"][1]
    for size in sweep.some(range(len(SAMPLE) + 1), 6, keep=ends.values(), ends=24):
        try:
            with view(SAMPLE[:size]) as model:
                tensors = list(model.tensors())
                found = list(model.check())
                strict = list(model.check(strict=True))
                extent = model.extent()
                metadata = dict(model.metadata)
                whole = [tensor for tensor in tensors if tensor.status is Status.COMPLETE]
                for tensor in whole:
                    assert tensor.numpy().tobytes() == PARTS[tensor.name], (size, tensor)
                for tensor in tensors:
                    if tensor.status is not Status.COMPLETE:
                        with pytest.raises((TruncatedTensorError, MissingTensorError, pparse.UnsupportedError)):
                            tensor.numpy()
                for name in ends:
                    model.get(name)
        except PparseError:
            pytest.fail(f"a prefix of {size} bytes cannot be viewed")
        names = {tensor.name for tensor in whole}
        if size >= base:
            assert names >= {name for name, end in ends.items() if end <= size}, size
            assert len(tensors) == len(ends)
        assert len(whole) >= most, size
        most = len(whole)
        assert set(metadata.items()) <= {("format", "pt"), ("note", "é" * 300)}
        if size < len(SAMPLE):
            assert errors(found), size
            assert errors(strict), size
            assert extent.status is not Status.COMPLETE, size
            assert extent.actual == size
            assert extent.expected is None or size < extent.expected <= len(SAMPLE)
            assert extent.resume_at == size
    assert most == len(PARTS)


def test_truncated_header_delivers_whole_entries():
    tensors = [(f"t{number}", "F32", (number, 3)) for number in range(50)]
    source, _ = pack(tensors, metadata={"a": "b"})
    at = source.index(b'"t30"')
    with view(source[: at + 20]) as model:
        names = list(model)
        assert names[:30] == [f"t{number}" for number in range(30)]
        assert len(names) in (30, 31)
        tensor = model["t29"]
        assert (tensor.status, tensor.shape, tensor.stored_dtype) == (Status.MISSING, (29, 3), "F32")
        assert tensor.spans[0].length == 29 * 12
        assert model["t0"].status is Status.COMPLETE  # it has no bytes
        assert model.metadata == {"a": "b"}
        assert model.get("t31") is None
        extent = model.extent()
        assert extent.at_least
        assert extent.expected == data_start(source) + sum(number * 12 for number in range(30))
        assert (extent.resume_at, extent.actual) == (at + 20, at + 20)
        assert "truncated" in {finding.code for finding in errors(model.check())}
        assert [node.key for node in model.root["tensors"].children()][:30] == names[:30]


# -- changed bytes ---------------------------------------------------------------------------------------------------

ODD = b"\x00\x01\t\n !\"#%'()*+,-./0123456789:;<=>?A[\\]_aef{|}~\x7f\x80\xc3\xed\xfe\xff"
LITTLE, LITTLE_PARTS = pack([("a", "U8", (4,)), ("b", "I16", (2, 1)), ("z", "F32", (0,))], metadata={"k": "v"}, seed=9)


def claims(text):
    """What entries the text of a header holds, as far as anybody can tell: dtype, shape and offsets."""
    found = set()
    decoded = text.decode(errors="surrogateescape")
    for match in re.finditer(r"\{", decoded):
        try:
            fields, _ = json.JSONDecoder().raw_decode(decoded, match.start())
            found.add((fields["dtype"], tuple(fields["shape"]), tuple(fields["data_offsets"])))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def test_every_changed_byte_of_the_header_is_survived():
    base = data_start(LITTLE)
    assert len(set(ODD)) >= 40
    rng = random.Random(1)
    handed_out = 0
    for at in sweep.some(range(base), 1.5, ends=16):
        for value in {*sweep.values(ODD, at, 2), *rng.sample(range(256), 2 if sweep.full else 1)}:
            changed = bytearray(LITTLE)
            if changed[at] == value:
                continue
            changed[at] = value
            source = bytes(changed)
            with view(source) as model:
                tensors = list(model.tensors())
                list(model.check())
                model.extent()
                for tensor in tensors:
                    if tensor.status is not Status.COMPLETE:
                        with pytest.raises(PparseError):
                            tensor.numpy()
                        continue
                    handed_out += 1
                    start = base if at < 8 else data_start(source)  # a wrong length is found out
                    (span,) = tensor.spans
                    begin, end = span.offset - start, span.offset - start + span.length
                    claim = (tensor.stored_dtype, tensor.shape, (begin, end))
                    assert claim in claims(source[8:start]), (at, value, tensor)
                    array = tensor.numpy()
                    assert array.shape == tensor.shape
                    assert array.tobytes() == source[start + begin : start + end], (at, value, tensor)
                    assert len(array.tobytes()) == end - begin
    assert handed_out > (8000 if sweep.full else 80)


def test_changed_bytes_are_survived_by_the_tree_however_the_bytes_come():
    base = data_start(LITTLE)
    rng = random.Random(f"trees {sweep.offset}")
    for number in range(150 if sweep.full else 25):
        changed = bytearray(LITTLE)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(8, base)] = rng.choice(ODD)
        trees = []
        for block_size, leaf_bytes in ((0, 1 << 18), (1, 1 << 18), (7, 32)):
            with pparse.open(
                bytes(changed), format="safetensors", block_size=block_size, limits=Limits(leaf_bytes=leaf_bytes)
            ) as document:
                rows = []
                for node in every_node(document.root):
                    try:
                        value = repr(node.load()) if node.shape == "scalar" else None
                    except PparseError as error:
                        value = type(error).__name__
                    rows.append((node.path, node.kind, node.status, value))
                    assert document.node(node.path) is node, (number, node)
                model = document.view()
                rows.append([(t.name, t.status, t.shape) for t in model.tensors()])
                rows.extend((t.name, (found := model.find(t.name)) and found.status) for t in model.tensors())
            trees.append(rows)
        assert trees[0] == trees[1] == trees[2], (number, bytes(changed))


def test_names_found_are_those_listed_in_damaged_headers():
    rng = random.Random(f"names {sweep.offset}")
    source, _ = pack([(f"n{number}", "U8", (2,)) for number in range(90)], seed=4)
    base = data_start(source)
    for number in range(150 if sweep.full else 50):
        changed = bytearray(source)
        for _ in range(3):
            changed[rng.randrange(8, base)] = rng.choice(ODD)
        with view(bytes(changed)) as model:
            for tensor in model.tensors():
                if tensor.name.startswith("header["):
                    continue
                found = model[tensor.name]
                assert (found.status, found.shape, found.spans) == (tensor.status, tensor.shape, tensor.spans), number


# -- zeros and holes -------------------------------------------------------------------------------------------------


def test_a_header_of_zeros_is_named_with_its_length():
    for length in (8, 100, 5000, 300_000):
        source = bytes(length) + b"data" * 10
        with view(source) as model:
            assert list(model) == []
            assert dict(model.metadata) == {}
            (finding,) = model.check()
            assert (finding.code, finding.offset, finding.length) == ("zeroed-header", 0, length)
            assert finding.severity is Severity.ERROR
            assert model.status is Status.DAMAGED
            assert model.extent().resume_at == 0
            assert model.root.status is Status.DAMAGED
            assert list(model.root.keys()) == []


def test_a_file_of_zeros():
    with view(bytes(10_000)) as model:
        (finding,) = errors(model.check())
        assert (finding.code, finding.offset, finding.length) == ("zeroed-header", 0, 10_000)
    with view(bytes(5)) as model:
        assert [finding.code for finding in model.check()] == ["truncated"]
        assert (model.status, model.extent().resume_at) == (Status.TRUNCATED, 5)


def holes_of(path):
    found, at, size = [], 0, path.stat().st_size
    with path.open("rb") as file:
        while at < size:
            start = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            if start >= size:
                break
            try:
                at = os.lseek(file.fileno(), start, os.SEEK_DATA)
            except OSError:  # there are no data behind the hole
                at = size
            found.append((start, at))
    return found


@pytest.fixture
def holey(tmp_path):
    """A preallocated download: tensor ``a`` is written, ``b`` not, the first half of ``c`` is, ``d`` is."""
    if not hasattr(os, "SEEK_HOLE"):
        pytest.skip("the system knows no holes")
    mib = 1 << 20
    header = {
        "a": entry("U8", [mib], 0, mib),
        "b": entry("U8", [mib], mib, 2 * mib),
        "c": entry("U8", [2 * mib], 2 * mib, 4 * mib),
        "d": entry("U8", [10], 4 * mib, 4 * mib + 10),
    }
    text = json.dumps(header).encode()
    text += b" " * (65536 - 8 - len(text))  # so that tensors begin where holes may
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(frame(text, b"x" * mib))
        file.seek(65536 + 2 * mib)
        file.write(b"y" * mib)
        file.seek(65536 + 4 * mib)
        file.write(b"z" * 10)
    holes = [(65536 + mib, 65536 + 2 * mib), (65536 + 3 * mib, 65536 + 4 * mib)]
    if holes_of(path) != holes:
        pytest.skip("the file system makes no such holes")
    return path, holes


def test_holes_of_the_file_are_unwritten(holey):
    path, holes = holey
    mib = 1 << 20
    with pparse.view(path) as model:
        assert model.holes == holes
        assert {t.name: t.unwritten_nbytes for t in model.values()} == {"a": 0, "b": mib, "c": mib, "d": 0}
        assert model["a"].finding is None
        for name, hole in zip("bc", holes, strict=True):
            finding = model[name].finding
            assert (finding.code, finding.offset, finding.length) == ("unwritten", hole[0], mib)
            assert (finding.path, finding.severity) == (name, Severity.ERROR)
        assert model.status is Status.TRUNCATED
        found = [(f.code, f.offset, f.length) for f in errors(model.check())]
        assert found == [("unwritten", start, end - start) for start, end in holes]
        extent = model.extent()
        assert (extent.resume_at, extent.actual, extent.expected) == (holes[0][0], path.stat().st_size, extent.actual)
        assert model["c"].numpy().tobytes() == b"y" * mib + bytes(mib)


def test_a_cut_file_with_holes_resumes_at_the_first_hole(holey):
    path, holes = holey
    os.truncate(path, path.stat().st_size - 5)
    with pparse.view(path) as model:
        extent = model.extent()
        assert (extent.resume_at, extent.missing_bytes) == (holes[0][0], 5)
        assert model["d"].status is Status.TRUNCATED
        assert {finding.code for finding in errors(model.check())} == {"truncated", "unwritten"}


def test_a_file_that_is_all_hole(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(40 << 20)
    with pparse.view(path, stats=(stats := IoStats())) as model:
        found = list(model.check())
        assert found[0].code == "zeroed-header"
        assert found[0].length <= 40 << 20
        if holes_of(path):
            assert [(f.offset, f.length) for f in found if f.code == "unwritten"] == [(0, 40 << 20)]
        assert model.extent().resume_at == 0
        assert list(model) == []
    assert stats.bytes < 100 << 20  # looked at in part, a few times


# -- odd headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 40, (1 << 30) + 1])
def test_header_lengths_beyond_any(length):
    source = frame(text_of(("a", byte(0))), b"xy", length=length)  # the tensors do not fill the file
    with view(source) as model:
        assert list(model) == []
        assert "a" not in model
        assert dict(model.metadata) == {}
        (finding,) = model.check()
        assert (finding.severity, finding.wanted, finding.got) == (Severity.ERROR, length, len(source) - 8)
        assert "beyond" in finding.reason
        assert model.status is Status.DAMAGED
        assert (model.root.status, list(model.root.keys())) == (Status.DAMAGED, [])


def test_header_length_beyond_the_file_still_gives_the_entries():
    text = text_of(("a", byte(0)), ("b", byte(1)))
    for length in (len(text) + 1000, 1 << 30):
        with view(frame(text, length=length)) as model:
            assert list(model) == ["a", "b"]
            assert {tensor.status for tensor in model.values()} == {Status.MISSING}
            extent = model.extent()
            assert extent.expected == 8 + length + 2
            assert errors(model.check())


def test_header_length_that_takes_in_data_or_leaves_text_out():
    text = text_of(("a", entry("U8", [4], 0, 4)))
    with view(frame(text, b"wxyz", length=len(text) + 2)) as model:  # the data section begins two bytes late
        assert model["a"].numpy().tobytes() == b"wxyz"  # the tensor fills the file from where the text ends
        assert model.extent().status is Status.DAMAGED
        assert errors(model.check())
    with view(frame(text, b"wxyz", length=len(text) - 1)) as model:  # the last bracket is cut off
        assert model["a"].numpy().tobytes() == b"wxyz"
        assert model.extent().status is Status.DAMAGED
        assert errors(model.check())


ODD_NAMES = (
    "\0",
    "a\0b",
    "../../etc/passwd",
    "/abs",
    "..",
    "C:\\x",
    "a/b/c",
    "\x1b[31mred\x1b[0m",
    "\n",
    "\u2028",
    "\u202e",
    "name[0:3]",
    "a::b",
    "__metadata__x",
    "%s{}",
    "\ufeff",
    "\U0010ffff",
    "#2",
    "x#2",
    "header[#0]",
    "'",
    '"',
    "\\",
)


def test_names_with_anything_in_them():
    source, parts = pack([(name, "U8", (2,)) for name in ODD_NAMES])
    for options in ({}, {"limits": Limits(leaf_bytes=64)}, {"block_size": 1}):
        with view(source, **options) as model:
            assert list(model) == list(ODD_NAMES)
            for name in ODD_NAMES:
                assert model[name].numpy().tobytes() == parts[name]
                assert model.root["tensors"][name]["data"].load() == parts[name]
            assert list(model.check(strict=True)) == []
            repr(model["\x1b[31mred\x1b[0m"])


def test_a_name_of_one_megabyte():
    name = "n" * 1_000_000
    source, parts = pack([("a", "U8", (1,)), (name, "U8", (3,)), ("b", "U8", (2,))])
    with view(source) as model:
        assert list(model) == ["a", name, "b"]
        assert model[name].numpy().tobytes() == parts[name]
        assert model["b"].numpy().tobytes() == parts["b"]
        assert list(model.check(strict=True)) == []
        assert model.get(name + "n") is None


def test_a_million_brackets_do_not_hide_the_other_tensors():
    deep = "[" * 1_000_000 + "]" * 1_000_000
    text = text_of(("b", byte(0)), ("a", text_of(("x", deep))))
    with view(frame(text, b"y")) as model:
        assert model["b"].numpy().tobytes() == b"y"


def test_brackets_nested_beyond_the_limit_in_a_field_that_nobody_needs():
    deep = "[" * 5_000 + "]" * 5_000
    text = text_of(("a", with_extra(0, deep)), ("b", byte(1)))
    with view(frame(text, b"xy")) as model:
        assert model["b"].numpy().tobytes() == b"y"
        assert model["a"].numpy().tobytes() == b"x"
        assert list(model) == ["a", "b"]
        assert model.root["tensors"]["a"]["dtype"].load() == "U8"
        assert "nested-too-deep" in [finding.code for finding in errors(model.check(strict=True))]


@pytest.mark.parametrize(
    "text",
    [
        "[" * sweep.scaled(1_000_000),
        '{"a":' * 50_000,
        '{"a":' + "[" * sweep.scaled(200_000),
        '{"a":{"b":' + "[{" * 80_000 + "}",
    ],
    ids=["arrays", "objects", "an entry", "a field"],
)
def test_a_million_brackets_that_nobody_closes(text):
    with view(frame(text)) as model:
        tensors = list(model)
        assert len(tensors) <= 1
        assert errors(model.check(strict=True))
        assert model.extent().status is not Status.COMPLETE


def test_a_field_beyond_a_limit_does_not_cost_the_tensor():
    for number in ("1e999", "9" * 5000):
        text = text_of(("a", with_extra(0, number)), ("b", byte(1)))
        with view(frame(text, b"xy")) as model:
            assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == {"a": b"x", "b": b"y"}
            assert model["a"].numpy().tobytes() == b"x"
            assert list(model.check())


# -- laziness --------------------------------------------------------------------------------------------------------


def test_reading_reads_just_that(tmp_path):
    source, parts = pack([("a", "F32", (1000, 1000)), ("b", "I16", (50_000, 10)), ("c", "U8", (7,))])
    path = tmp_path / "model.safetensors"
    path.write_bytes(source)
    stats = IoStats(log=True)
    with pparse.view(path, stats=stats) as model:
        tensors = dict(model)
        assert stats.bytes < 10_000  # the header, and a look at what it is
        a, b = tensors["a"], tensors["b"]

        def served(index, tensor):
            before = stats.bytes
            array = tensor[index]
            return stats.bytes - before, array

        whole = np.frombuffer(parts["a"], "<f4").reshape(1000, 1000)
        for index, bytes_needed in [
            (slice(10, 12), 8000),
            ((5, slice(3, 9)), 24),
            ((7, 7), 4),
            (slice(0, 0), 0),
            (slice(990, 1000), 40_000),
            ((slice(100, 200), slice(500, 501)), 99 * 4000 + 4),  # runs a page apart are read together
        ]:
            count, array = served(index, a)
            assert count == bytes_needed, index
            assert array.tobytes() == whole[index].tobytes()
        before = stats.bytes
        for _ in b.blocks(100_000):
            break
        assert stats.bytes - before == 100_000
        before = stats.bytes
        b.numpy()
        assert stats.bytes - before == 1_000_000
        before = stats.bytes
        tensors["c"].readinto(bytearray(7))
        assert stats.bytes - before == 7
        before = stats.bytes
        assert a.numpy(copy=False).tobytes() == parts["a"]
        assert stats.bytes == before  # mapped, not read


def test_listing_does_not_read_the_data(tmp_path):
    header = {"a": entry("U8", [1 << 40], 0, 1 << 40)}
    path = tmp_path / "model.safetensors"
    try:
        with path.open("wb") as file:
            file.write(frame(header))
            file.truncate(len(frame(header)) + (1 << 40))
    except OSError:
        pytest.skip("the file system has no files of a terabyte")
    with pparse.view(path, stats=(stats := IoStats())) as model:
        assert model["a"].nbytes == 1 << 40
        assert model.status is Status.TRUNCATED  # it was never written
        model["a"][12345:12350]
        assert stats.bytes < 20_000


@needs_proc
def test_listing_very_many_tensors_stays_small(tmp_path):
    count, dense = (300_000, 100_000) if sweep.full else (45_000, 40_000)
    names = [
        f"model.layers.{number // 300}.mlp.experts.{number // 3 % 100}.w{number % 3}.weight" for number in range(count)
    ]
    text = ",".join(
        f'"{name}":{{"dtype":"BF16","shape":[64,64],"data_offsets":[{number * 8192},{(number + 1) * 8192}]}}'
        for number, name in enumerate(names)
    )
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(frame("{" + text + "}"))
        at = file.tell() + (count - 500) * 8192
        file.seek(at)
        file.write(b"\x80\x3f" * 4096)
        file.truncate(8 + len(text) + 2 + count * 8192)
    script = textwrap.dedent(
        """
        import sys
        import pparse
        import pparse.tree.index

        pparse.tree.index.DENSE_LIMIT = int(sys.argv[5])
        model = pparse.view(sys.argv[1])
        assert sum(1 for tensor in model.tensors() if tensor.shape == (64, 64)) == int(sys.argv[4])
        last = model[sys.argv[3]]
        assert last.spans[0].offset + last.spans[0].length == model.extraction.size
        tensor = model[sys.argv[2]]
        assert bytes(next(tensor.raw_blocks(8192))) == b"\\x80\\x3f" * 4096
        assert model.get("lm_head") is None  # it is like no name: nothing similar is looked for
        with open("/proc/self/status") as status:
            print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
        """
    )
    words = [sys.executable, "-c", script, os.fspath(path), names[count - 500], names[-1], str(count), str(dense)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 46 << 10  # KiB


@pytest.mark.parametrize("count", [1000, 6000])
def test_names_are_found_in_a_header_that_was_read_once_and_is_no_tree_of_nodes(count):
    source, parts = pack([(f"t{number}", "U8", (3,)) for number in range(count)])
    with view(source) as model:
        assert model["t700"].numpy().tobytes() == parts["t700"]
        before = model.extraction.session.stats.bytes
        for number in range(3, count, 97):
            assert model[f"t{number}"].name == f"t{number}"
            assert model.find(f"t{number}#2") is None
        assert model.find(f"t{count}") is None
        assert before <= 1.1 * data_start(source) + 4096
        assert model.extraction.session.stats.bytes == before
        assert model.parser.header.root.index is None
    with view(source) as model:
        assert model.find(f"t{count}") is None
        assert model["t999"].numpy().tobytes() == parts["t999"]


@pytest.mark.parametrize(
    ("last", "at", "length"),
    [((0, 10), 0, 10), ((3, 5), 3, 2), ((25, 32), 25, 5)],
    ids=["same", "inside", "over the end"],
)
def test_the_bytes_that_two_tensors_share_are_told_exactly(last, at, length):
    ranges = [(0, 10), (10, 20), (20, 30), last]
    text = text_of(
        *((f"t{number}", entry("U8", [end - begin], begin, end)) for number, (begin, end) in enumerate(ranges))
    )
    source = struct.pack("<Q", len(text)) + text.encode() + bytes(range(1, max(30, last[1]) + 1))
    with view(source) as model:
        found = [finding for finding in model.check() if finding.code == "overlap"]
        assert [(finding.offset - data_start(source), finding.length) for finding in found] == [(at, length)]


# -- what the reference refuses, though it can be read ---------------------------------------------------------------


@rows(
    ("text", "data", "damaged", "code"),
    [
        (text_of(("a", byte(0)), ("b", byte(2))), b"xyz", set(), "gap"),
        (text_of(("a", byte(1))), b"xy", set(), "gap"),
        (text_of(("a", byte(0)), ("b", byte(1))), b"xyz", {"a", "b"}, "trailing-bytes"),  # "x" may have come in
        (text_of(("c", byte(0)), ("a", entry("U8", [2], 1, 3)), ("b", byte(2))), b"xyz", {"a", "b"}, "overlap"),
        (text_of(("c", byte(3)), ("b", byte(1)), ("a", entry("U8", [3], 0, 3))), b"xyzw", {"a", "b"}, "overlap"),
        (text_of(("a", byte(0)), ("b", byte(1)), ("a", byte(2))), b"xyz", {"a", "a#2"}, "duplicate-name"),
        (text_of(("a", entry("U8", [4], 0, 4)), ("e", entry("U8", [0], 2, 2))), b"wxyz", set(), "gap"),
        (text_of(("__metadata__", {"k": 1}), ("a", byte(0))), b"x", set(), "metadata"),
        ("\ufeff" + text_of(("a", byte(0))), b"x", set(), "byte-order-mark"),
    ],
)
@rows("padding", [0, 300_000])
def test_a_file_whose_tensors_contradict_each_other_is_damaged_and_the_others_are_whole(
    text, data, damaged, code, padding
):
    source = frame(text.encode() + b" " * padding, data)
    with view(source) as model:
        assert model.status is Status.DAMAGED
        assert {tensor.name for tensor in model.tensors() if tensor.status is Status.DAMAGED} == damaged
        for name in model:
            assert model[name].status is (Status.DAMAGED if name in damaged else Status.COMPLETE)
        found = list(model.check())
        assert code == "gap" or code in {finding.code for finding in errors(found)}
        assert errors(found)
    with pparse.open(source, format="safetensors") as document:
        assert document.status is Status.DAMAGED


@pytest.mark.parametrize(
    ("text", "data", "kept"),
    [
        (text_of(("a", byte(0)), ("b", byte(2))), b"xyz", {"a": b"x", "b": b"z"}),
        (text_of(("c", byte(0)), ("a", entry("U8", [2], 1, 3)), ("b", byte(2))), b"xyz", {"c": b"x"}),
        (text_of(("a", byte(0)), ("b", byte(1)), ("a", byte(2))), b"xyz", {"b": b"y"}),
    ],
)
def test_recover_makes_a_file_that_opens_of_one_whose_tensors_contradict_each_other(text, data, kept, tmp_path, run):
    (tmp_path / "m.safetensors").write_bytes(frame(text, data))
    for command in ("ls", "info", "check"):
        assert run(command, tmp_path / "m.safetensors").code == 4
    assert run("recover", tmp_path / "m.safetensors", "-o", tmp_path / "saved").code == 4
    with view((tmp_path / "saved" / "m.safetensors").read_bytes()) as model:
        assert model.status is Status.COMPLETE
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == kept


@pytest.mark.parametrize("padding", [0, 300_000])
@pytest.mark.parametrize("count", [1, 9, 512, 5000])
def test_tensors_of_a_file_that_grew_are_in_doubt_since_bytes_may_have_come_in_before_them(
    count, padding, tmp_path, run
):
    names = [f"t{at}" for at in range(4)]
    parts = {name: bytes([at + 1]) * 1000 for at, name in enumerate(names)}
    header = text_of(
        *((name, entry("U8", [1000], at * 1000, at * 1000 + 1000)) for at, name in enumerate(names)),
        ("none", entry("F32", [0], 4000, 4000)),
    )
    content = frame(header.encode() + b" " * padding, b"".join(parts.values()))
    base = len(content) - 4000
    for at in (base, base + 1, base + 1500, base + 3999, base + 4000):
        source = tmp_path / "m.safetensors"
        source.write_bytes(content[:at] + b"\xaa" * count + content[at:])
        for ask in (lambda model: [model[name] for name in names], lambda model: list(model.tensors())[:4]):
            with pparse.view(source) as model:
                for tensor in ask(model):
                    assert (tensor.status, tensor.finding.code) == (Status.DAMAGED, "shifted")
                    with pytest.raises(DamagedTensorError, match="may have been inserted before"):
                        tensor.numpy()
                assert model["none"].status is Status.COMPLETE
        with pparse.open(source) as document:
            assert document.node("tensors.t0").status is Status.DAMAGED
        assert {run(command, source).code for command in ("ls", "info", "check")} == {4}
        assert run("recover", source, "-o", tmp_path / "saved", "--force").code == 4
        with pparse.view(tmp_path / "saved" / "m.safetensors") as model:
            assert list(model) == ["none"]
        with pparse.view(tmp_path / "saved" / "m.doubtful.safetensors") as model:
            assert list(model) == names
        shutil.rmtree(tmp_path / "saved")


def test_zeros_that_fill_the_last_block_of_a_file_leave_its_tensors_alone(tmp_path, run):
    content = frame(text_of(("a", byte(0)), ("b", entry("U8", [200], 1, 201))).encode(), b"x" * 201)
    source = tmp_path / "m.safetensors"
    source.write_bytes(content + bytes(-len(content) % 512))
    with pparse.view(source) as model:
        assert {tensor.status for tensor in model.tensors()} == {Status.COMPLETE}
        assert model.status is Status.DAMAGED
    source.write_bytes(content + bytes(40))
    with pparse.view(source) as model:
        assert {tensor.status for tensor in model.tensors()} == {Status.DAMAGED}


@pytest.mark.parametrize("order", ["aze", "eza", "zea", "aez"])
def test_a_tensor_without_bytes_may_stand_anywhere_in_the_header(order):
    there = {"a": entry("U8", [4], 0, 4), "z": entry("U8", [0], 0, 0), "e": entry("U8", [0], 4, 4)}
    with view(frame({name: there[name] for name in order}, b"wxyz")) as model:
        assert model.status is Status.COMPLETE
        assert not list(model.check(strict=True))


def test_tensors_that_come_in_order_take_no_memory():
    budget = MemoryBudget(1 << 20)
    layout = TensorRanges(budget)
    for at in range(0, 800_000, 8):
        layout.add(at, at + 8)
    assert budget.peak == 0
    layout.close()
    assert (layout.end, layout.breaks, layout.overlaps) == (800_000, [], False)


@pytest.mark.parametrize("keep", [True, False])
def test_a_tensor_without_bytes_at_a_break_needs_no_second_look(keep):
    layout = TensorRanges(MemoryBudget(1 << 20), keep=keep)
    for begin, end in ((0, 4), (8, 12), (4, 4)):
        layout.add(begin, end)
    layout.close()
    assert (layout.again, layout.end, layout.breaks) == (False, 12, [(4, 8)])


# -- the worst that is known -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "missing", "status"),
    [
        ({}, 0, Status.COMPLETE),
        ({"dtype": "F1"}, 0, Status.UNSUPPORTED),
        ({"shape": [5]}, 0, Status.DAMAGED),
        ({}, 1, Status.TRUNCATED),
        ({}, 2, Status.TRUNCATED),
        ({"dtype": "F1"}, 1, Status.TRUNCATED),
        ({"shape": [5]}, 1, Status.DAMAGED),
    ],
)
def test_the_worst_status_of_a_tensor_is_that_of_the_file(broken, missing, status):
    """The last tensor lacks bytes, all of them (it is missing) or one; another one's entry is wrong, or nothing is."""
    header = {"a": entry("U8", [4], 0, 4) | broken, "b": entry("U8", [4], 4, 8), "c": entry("U8", [2], 8, 10)}
    model = pparse.view(frame(header, bytes(10 - missing)))
    assert model.status is status
    assert model.extent().document_status is Status.COMPLETE
    assert model.extent().missing_bytes == missing
    assert pparse.open(frame(header, bytes(10 - missing))).status is status


def test_the_first_tensor_that_is_hit_is_the_first_in_the_file_whatever_its_place_in_the_header():
    header = {"z": entry("U8", [4], 8, 12), "m": entry("U8", [4], 0, 4), "a": entry("U8", [4], 4, 8)}
    assert pparse.view(frame(header, bytes(6))).extent().first_hit == "a"
    assert pparse.view(frame(header, bytes(9))).extent().first_hit == "z"
    assert pparse.view(frame(header, bytes(12))).extent().first_hit is None


def test_a_tensor_whose_header_entry_is_cut_is_missing():
    text = json.dumps({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 1, 2)}).encode()
    model = pparse.view(frame(text, length=len(text))[: 8 + text.index(b'"b"') + 20])
    assert {tensor.name: tensor.status for tensor in model.tensors()} == {"a": Status.MISSING, "b": Status.MISSING}
    assert model["b"].finding.code == "bad-entry"


@pytest.mark.parametrize(("there", "status"), [(4, Status.MISSING), (5, Status.TRUNCATED), (8, Status.COMPLETE)])
def test_a_tensor_that_begins_where_the_file_ends_is_missing(there, status):
    header = {"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 4, 8)}
    content = frame(header, bytes(there))
    assert pparse.view(content)["b"].status is status


@pytest.mark.parametrize("ask", ["values", "items", "tensors"])
def test_all_tensors_come_in_one_pass_over_the_header(ask):
    rows = ",".join(f'"t{n}":{{"dtype":"U8","shape":[4],"data_offsets":[{4 * n},{4 * n + 4}]}}' for n in range(1_000))
    header = f"{{{rows}}}".encode()
    with pparse.view(len(header).to_bytes(8, "little") + header + bytes(4_000)) as model:
        assert sum(1 for _ in getattr(model, ask)()) == 1_000
        stats = model.extraction.session.stats
        assert stats.reads <= 8
        assert stats.bytes <= 1.2 * len(header)


def test_what_values_and_items_give_is_what_a_search_by_name_gives():
    with pparse.view(os.path.join(os.path.dirname(__file__), "..", "docs", "samples", "sharded")) as model:
        found = list(model.values())
        assert [name for name, _ in model.items()] == list(model) == [tensor.name for tensor in found]
        assert len(model.values()) == len(model.items()) == 21
        for tensor in found:
            again = model[tensor.name]
            assert (again.shape, again.dtype, again.spans) == (tensor.shape, tensor.dtype, tensor.spans)
