"""Fingerprints of SavedModels: the values of TensorFlow, and messages in the form that C++ gives them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.data.base import BytesData
from pparse.data.scratch import Scratch
from pparse.errors import (
    EndOfDataError,
    FormatError,
    LimitError,
    MalformedError,
    PparseError,
    SourceError,
    UnsupportedError,
)
from pparse.kernels.farmhash import fingerprint64
from pparse.limits import Limits, MemoryBudget
from pparse.proto_splitter import canonical as pieces
from pparse.proto_splitter.canonical import Addressed, Canonicalizer, span
from pparse.proto_splitter.fingerprint import (
    Fingerprint,
    fingerprint,
    read_fingerprint,
    suffix_number,
    without_number,
    write_fingerprint,
)
from pparse.protos import message_class, schema
from pparse.riegeli import RecordReader, RecordWriter
from tests import sweep
from tests.rows import rows

FOLDER = Path(__file__).parent / "data" / "tf" / "fingerprints"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
HASHES = (
    "saved_model_checksum",
    "graph_def_program_hash",
    "signature_def_hash",
    "saved_object_graph_hash",
    "checkpoint_hash",
)
SMALL = [pytest.param(size, id=f"small={size}") for size in (pieces.SMALL, 300, 0)]


def shown(values: Fingerprint) -> dict[str, object]:
    return {name: str(getattr(values, name)) for name in HASHES} | {"producer": values.producer}


def canonical(name: str, *items, **more) -> bytes:
    with Canonicalizer(MemoryBudget(), **more) as canonicalizer:
        given = [span(item) if isinstance(item, bytes) else item for item in items]
        return canonicalizer.run(schema().message(f"tensorflow.{name}"), given).tobytes()


def model(name: str):
    serialized = (FOLDER / name / "saved_model.pb").read_bytes()
    return message_class("tensorflow.SavedModel").FromString(serialized)


def save(folder: Path, message) -> Path:
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder


# -- TensorFlow's values -----------------------------------------------------------------------------------------------


@rows("small", SMALL)
@rows("name", EXPECTED)
def test_values_of_tensorflow(name: str, small: int, monkeypatch) -> None:
    # The size from which messages are not read at once makes no difference.
    monkeypatch.setattr(pieces, "SMALL", small)
    assert shown(fingerprint(FOLDER / name)) == EXPECTED[name]


def test_samples_are_of_every_kind() -> None:
    names = {name for name in EXPECTED if EXPECTED[name]["producer"] == 4}
    assert len(names) >= 6
    assert len(EXPECTED) - len(names) >= 4
    nodes = [node for name in names for node in model(name).meta_graphs[0].graph_def.node]
    assert any(node.op == "StatefulPartitionedCall" and node.attr["config_proto"].s for node in nodes)
    assert any(node.op == "Const" and node.attr["dtype"].type == 7 for node in nodes)
    assert any(len(model(name).meta_graphs[0].signature_def) > 2 for name in names)
    assert any(len(model(name).meta_graphs) > 1 for name in names)


def test_other_compressions_hash_alike(tmp_path) -> None:
    metadata_class = message_class("tensorflow.proto_splitter.ChunkMetadata")
    *records, last = RecordReader(str(FOLDER / "chunked" / "saved_model.cpb"))
    for options in ("brotli", "zstd", "uncompressed,chunk_size:100"):
        metadata = metadata_class.FromString(last)
        with RecordWriter(str(tmp_path / "saved_model.cpb"), options=options) as writer:
            for record, info in zip(records, metadata.chunks, strict=True):
                writer.write_record(record)
                info.offset = writer.last_pos.numeric
            writer.write_record(metadata.SerializeToString())
        assert shown(fingerprint(tmp_path)) == EXPECTED["chunked"]


def test_chunks_win_over_a_whole_message(tmp_path) -> None:
    shutil.copy(FOLDER / "dense" / "saved_model.pb", tmp_path)
    shutil.copy(FOLDER / "chunked" / "saved_model.cpb", tmp_path)
    assert shown(fingerprint(tmp_path)) == EXPECTED["chunked"]


def test_what_does_not_count_for_the_graph(tmp_path) -> None:
    message = model("sessions")
    graph = message.meta_graphs[0].graph_def
    assert graph.library.function
    before = fingerprint(save(tmp_path, message))
    graph.library.Clear()
    graph.versions.producer += 1
    for node in graph.node:
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            node.attr["config_proto"].s = b"other"
            node.attr["f"].func.name = f"{node.attr['f'].func.name.rpartition('_')[0]}_4711"
        if node.op == "Const" and node.attr["dtype"].type == 7:
            node.attr["value"].tensor.string_val[:] = [b"else"]
    after = fingerprint(save(tmp_path, message))
    assert after.graph_def_program_hash == before.graph_def_program_hash
    assert after.saved_model_checksum != before.saved_model_checksum
    seen = {before.graph_def_program_hash}
    calls = [node for node in graph.node if node.attr["f"].func.name]
    for node, change in (
        (graph.node[0], lambda node: setattr(node, "name", "x")),
        (calls[0], lambda node: setattr(node.attr["f"].func.attr["k"], "i", 1)),
        (calls[0], lambda node: setattr(node.attr["f"].func.attr["k"], "i", 2)),
        (calls[0], lambda node: setattr(node.attr["f"].func, "name", "other_1")),
    ):
        change(node)
        seen.add(fingerprint(save(tmp_path, message)).graph_def_program_hash)
    assert len(seen) == 5


NUMBERS = {
    b"f_12": 12,
    b"__inference_f_7": 7,
    b"f_+3": 3,
    b"f_-3": -3,
    b"f_007": 7,
    b"f_ 4": 4,
    b"f_4\t": 4,
    b"12": 12,
    b"_5": 5,
    b"f_9223372036854775807": 2**63 - 1,
    b"f_9223372036854775808": None,
    b"f_-9223372036854775808": -(2**63),
    b"f_": None,
    b"": None,
    b"f": None,
    b"f_1_x": None,
    b"f_1.0": None,
    b"f_0x10": None,
    "f_\u0663".encode(): None,
}


@rows(("name", "number"), NUMBERS.items())
def test_numbers_at_the_end_of_names(name: bytes, number: int | None) -> None:
    assert suffix_number(name) == number


def test_a_number_goes_as_cpp_would_write_it() -> None:
    assert without_number(b"f_12", 12) == b"f_"
    assert without_number(b"f_007", 7) == b"f_00"
    assert without_number(b"f_4 ", 4) == b"f_4 "


# -- the form of C++ ---------------------------------------------------------------------------------------------------


def entry(key: bytes, value: bytes, number: int = 5) -> bytes:
    inner = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
    return bytes([number << 3 | 2, len(inner)]) + inner


CANONICAL = {
    "maps by the bytes of keys": (
        "NodeDef",
        entry(b"Tidx", b"") + entry(b"T", b""),
        entry(b"T", b"") + entry(b"Tidx", b""),
    ),
    "last of equal keys": ("NodeDef", entry(b"T", b"\x18\x01") + entry(b"T", b"\x20\x02"), entry(b"T", b"\x20\x02")),
    "key and value of an entry": ("NodeDef", b"\x2a\x00", entry(b"", b"")),
    "unknown in an entry": ("NodeDef", b"\x2a\x02\x18\x07", entry(b"", b"")),
    "fields by number": ("NodeDef", b"\x12\x01b\x0a\x01a", b"\x0a\x01a\x12\x01b"),
    "last scalar": ("NodeDef", b"\x0a\x01a\x0a\x01b", b"\x0a\x01b"),
    "zeros": ("VersionDef", b"\x08\x05\x08\x00\x10\x03", b"\x10\x03"),
    "zero when cut to 32 bits": ("VersionDef", b"\x08\x80\x80\x80\x80\x10", b""),
    "minus zero": ("AttrValue", b"\x25\x00\x00\x00\x80", b"\x25\x00\x00\x00\x80"),
    "long varints": ("VersionDef", b"\x88\x00\x85\x00", b"\x08\x05"),
    "negative int32": ("VersionDef", b"\x08\xff\xff\xff\xff\x0f", b"\x08" + b"\xff" * 9 + b"\x01"),
    "bool": ("AttrValue", b"\x28\x80\x02", b"\x28\x01"),
    "zero in a oneof": ("AttrValue", b"\x18\x00", b"\x18\x00"),
    "last of a oneof": ("AttrValue", b"\x12\x01a\x18\x05\x52\x02\x0a\x00\x12\x01b", b"\x12\x01b"),
    "same message of a oneof": (
        "AttrValue",
        b"\x52\x03\x0a\x01f\x52\x05\x12\x03\x0a\x01k",
        b"\x52\x0a\x0a\x01f\x12\x05\x0a\x01k\x12\x00",
    ),
    "other message between": ("AttrValue", b"\x52\x03\x0a\x01f\x18\x01\x52\x03\x0a\x01g", b"\x52\x03\x0a\x01g"),
    "to be packed": ("VersionDef", b"\x18\x01\x1a\x02\x02\x03\x18\x84\x00", b"\x1a\x04\x01\x02\x03\x04"),
    "packed and long": ("VersionDef", b"\x1a\x04\x01\x82\x00\x03", b"\x1a\x03\x01\x02\x03"),
    "uint32 cut": (
        "TensorProto",
        b"\x82\x01\x0a\x81\x80\x80\x80\x10\xff\xff\xff\xff\x7f",
        b"\x82\x01\x06\x01\xff\xff\xff\xff\x0f",
    ),
    "packed floats": (
        "TensorProto",
        b"\x2d\x00\x00\x80\x3f\x2a\x04\x00\x00\x00\x40",
        b"\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\x40",
    ),
    "packed nothing": ("VersionDef", b"\x1a\x00", b""),
    "unknown behind": ("VersionDef", b"\xf8\x06\x81\x00\x08\x05\xfa\x06\x01x", b"\x08\x05\xf8\x06\x01\xfa\x06\x01x"),
    "other wire type": ("VersionDef", b"\x0a\x01x\x08\x05", b"\x08\x05\x0a\x01x"),
    "elements": ("GraphDef", b"\x0a\x04\x12\x00\x0a\x00\x0a\x00", b"\x0a\x00\x0a\x00"),
    "empty message": ("GraphDef", b"\x12\x00", b"\x12\x00"),
    "parts of a message": (
        "GraphDef",
        b"\x22\x02\x10\x03\x0a\x00\x22\x04\x08\x07\x10\x05",
        b"\x0a\x00\x22\x04\x08\x07\x10\x05",
    ),
    "map of numbers": (
        "FunctionDef",
        b"".join(b"\x42\x04\x08" + key + b"\x10\x01" for key in (b"\x09", b"\x02")),
        b"\x42\x04\x08\x02\x10\x01\x42\x04\x08\x09\x10\x01",
    ),
}


@rows("small", SMALL)
@rows("case", CANONICAL)
def test_form_of_cpp(case: str, small: int, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "SMALL", small)
    name, given, expected = CANONICAL[case]
    item = span(given) if small else BytesData(given).range(0, len(given))
    assert canonical(name, item) == expected


def test_items_are_merged() -> None:
    assert canonical("GraphDef", b"\x22\x02\x08\x07\x0a\x00", b"\x22\x02\x10\x05\x0a\x00") == (
        b"\x0a\x00\x0a\x00\x22\x04\x08\x07\x10\x05"
    )


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["producer"] == 4])
def test_form_of_real_models_parses_as_the_same(name: str, monkeypatch) -> None:
    message = model(name)
    found = canonical("SavedModel", message.SerializeToString())
    assert type(message).FromString(found) == message
    assert fingerprint64(found) == int(EXPECTED[name]["saved_model_checksum"])
    assert canonical("SavedModel", found) == found


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 127, 128, 300, 2**31 - 1, -1, -(2**31)] * 40,
        [5] * 1000,
        list(range(-300, 300)),
    ],
    ids=["mixed", "short", "around zero"],
)
def test_lists_of_varints_in_blocks(values: list[int], monkeypatch) -> None:
    # Blocks end within varints; a long list that is in order already is named, not copied.
    for name in ("int_val", "int64_val"):
        message = message_class("tensorflow.TensorProto")(**{name: values})
        right = message.SerializeToString()
        head = len(right) - sum(len(_varint(value)) for value in values)
        wrong = b"".join(_varint(value)[:-1] + bytes([_varint(value)[-1] | 0x80, 0]) for value in values if value >= 0)
        wrong += b"".join(_varint(value) for value in values if value < 0)
        ordered = type(message)(**{name: [v for v in values if v >= 0] + [v for v in values if v < 0]})
        for small in (pieces.SMALL, 10):
            for block in (1, 3, 11, 1000):
                monkeypatch.setattr(pieces, "SMALL", small)
                monkeypatch.setattr(pieces, "_BLOCK", block)
                assert canonical("TensorProto", BytesData(right).range(0, len(right))) == right
                given = right[: head and 1] + _varint(len(wrong)) + wrong
                assert canonical("TensorProto", BytesData(given).range(0, len(given))) == ordered.SerializeToString()
        monkeypatch.undo()


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(st.binary(max_size=200), st.sampled_from(["SavedModel", "NodeDef", "AttrValue", "TensorProto", "FunctionDef"]))
@settings(max_examples=sweep.examples(300))
def test_any_bytes_give_a_form_or_our_error(data: bytes, name: str) -> None:
    try:
        found = canonical(name, data)
    except PparseError:
        return
    assert canonical(name, found) == found


@given(st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=sweep.examples(60))
def test_damaged_models_give_hashes_or_our_error(place: int, byte: int) -> None:
    import tempfile

    for name, file in (("dense", "saved_model.pb"), ("chunked", "saved_model.cpb")):
        data = bytearray((FOLDER / name / file).read_bytes())
        data[place % len(data)] = byte
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / file).write_bytes(data)
            try:
                fingerprint(folder)
            except PparseError:
                pass


def test_what_is_addressed_to_a_place_is_put_there() -> None:
    def node(*steps, content=b"\x12\x01b"):
        return Addressed(steps, span(content))

    nodes = b"\x0a\x03\x0a\x01a\x0a\x00"
    assert canonical("GraphDef", nodes, node((1, 0))) == b"\x0a\x06\x0a\x01a\x12\x01b\x0a\x00"
    assert canonical("GraphDef", node((1, 0)), nodes) == b"\x0a\x03\x12\x01b" + nodes
    assert canonical("GraphDef", nodes, node((1, 2)), node((1, 2))) == nodes + b"\x0a\x03\x12\x01b"
    assert canonical("GraphDef", nodes, node((4, None), content=b"\x10\x07")) == nodes + b"\x22\x02\x10\x07"
    assert canonical("GraphDef", b"\x12\x02\x0a\x00", node((2, None), (1, 0), (1, None), content=b"\x0a\x01f")) == (
        b"\x12\x07\x0a\x05\x0a\x03\x0a\x01f"
    )
    for wrong in (
        node((1, 3)),
        node((1, None)),
        node((4, 0)),
        node((3, None)),
        node((77, None)),
        node((1, 0), (5, None)),
    ):
        with pytest.raises(MalformedError, match="a chunk belongs"):
            canonical("GraphDef", nodes, wrong)


# -- errors ------------------------------------------------------------------------------------------------------------

MALFORMED = {
    "cut value": b"\x12\x05abc",
    "cut length": b"\x12\x80",
    "cut fixed": b"\x25\x00\x00",
    "number zero": b"\x00\x01",
    "number zero of bytes": b"\x02\x00",
    "wire type 7": b"\x0f",
    "varint of eleven bytes": b"\x18" + b"\xff" * 10 + b"\x01",
    "within a message": b"\x52\x02\x0a\x05",
    "odd list": b"\x0a\x05\x22\x03abc",
}


@rows("small", SMALL)
@rows("case", MALFORMED)
def test_malformed_messages_have_no_canonical_form(case: str, small: int, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "SMALL", small)
    with pytest.raises(MalformedError):
        canonical("AttrValue", BytesData(MALFORMED[case]).range(0, len(MALFORMED[case])))


def test_the_offset_is_that_in_the_file(monkeypatch) -> None:
    data = b"\x0a\x00" * 10 + b"\x0a\x02\x0a\x05"
    for small in (pieces.SMALL, 4, 0):
        monkeypatch.setattr(pieces, "SMALL", small)
        with pytest.raises(MalformedError) as caught:
            canonical("GraphDef", pieces.content_of(BytesData(b"..." + data).range(3, 3 + len(data))))
        assert caught.value.offset == 3 + 22


def test_groups_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="group"):
        canonical("GraphDef", b"\xf3\x06\xf4\x06")


def test_a_source_that_ends_too_soon(monkeypatch) -> None:
    monkeypatch.setattr(pieces, "SMALL", 8)
    data = BytesData(b"\x12\x40" + b"x" * 20)
    with pytest.raises(EndOfDataError):
        canonical("NodeDef", data.range(0, 66))


def test_nesting_has_a_limit() -> None:
    data = b""
    for _ in range(2000):  # AttrValue.list.func[0].attr["k"] needs more bytes; FullTypeDef.args is the shortest
        data = b"\x12" + _varint(len(data)) + data
    with pytest.raises(LimitError, match="depth"):
        canonical("FullTypeDef", data)
    assert canonical("FullTypeDef", data, limits=Limits(depth=3000)) == data


def test_a_folder_without_a_binary_saved_model_is_refused(tmp_path) -> None:
    with pytest.raises(FormatError, match="no saved_model"):
        fingerprint(tmp_path)
    (tmp_path / "saved_model.pbtxt").write_text("")
    with pytest.raises(UnsupportedError, match="text"):
        fingerprint(tmp_path)


def test_no_meta_graph(tmp_path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    with pytest.raises(MalformedError, match="MetaGraphDef"):
        fingerprint(tmp_path)


def test_names_of_functions_need_different_numbers(tmp_path) -> None:
    message = model("dense")
    functions = message.meta_graphs[0].object_graph_def.concrete_functions
    some = next(iter(functions))
    functions[f"other_{some.rpartition('_')[2]}"].SetInParent()
    with pytest.raises(UnsupportedError, match="two functions"):
        fingerprint(save(tmp_path, message))
    message = model("dense")
    message.meta_graphs[0].object_graph_def.concrete_functions["no_number"].SetInParent()
    with pytest.raises(MalformedError, match="'no_number'"):
        fingerprint(save(tmp_path, message))


def rechunk(folder: Path, change) -> Path:
    """Write the chunked model with its metadata changed."""
    *records, last = RecordReader(str(FOLDER / "chunked" / "saved_model.cpb"))
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last)
    with RecordWriter(str(folder / "saved_model.cpb"), options="uncompressed") as writer:
        for record, info in zip(records, metadata.chunks, strict=True):
            writer.write_record(record)
            info.offset = writer.last_pos.numeric
        change(metadata)
        writer.write_record(metadata.SerializeToString())
    return folder


def _tag(entry, *steps) -> None:
    del entry.field_tag[:]
    for kind, value in steps:
        setattr(entry.field_tag.add(), kind, value)


BAD_METADATA = {
    "chunk that is not there": lambda m: setattr(m.message.chunked_fields[0].message, "chunk_index", 1000),
    "wrong size": lambda m: setattr(m.chunks[3], "size", 3),
    "wrong place": lambda m: setattr(m.chunks[3], "offset", 10**6),
    "repeated without index": lambda m: _tag(m.message.chunked_fields[0], ("field", 2)),
    "beyond the end": lambda m: m.message.chunked_fields[1].message.chunked_fields.add(
        field_tag=[{"field": 2}, {"index": 0}], message={"chunk_index": 1}
    ),
    "empty step": lambda m: m.message.chunked_fields[0].field_tag.add(),
}


@rows("case", BAD_METADATA)
def test_bad_chunk_metadata_are_refused(case: str, tmp_path) -> None:
    with pytest.raises((MalformedError, UnsupportedError)):
        fingerprint(rechunk(tmp_path, BAD_METADATA[case]))


def test_a_chunk_for_a_meta_graph_is_unsupported(tmp_path) -> None:
    # TensorFlow gives an error.
    change = lambda m: _tag(m.message.chunked_fields[0], ("field", 2), ("index", 0))  # noqa: E731
    with pytest.raises(UnsupportedError, match="MetaGraphDef"):
        fingerprint(rechunk(tmp_path, change))


def test_versions_are_checked(tmp_path) -> None:
    with pytest.raises(UnsupportedError, match="join version"):
        fingerprint(rechunk(tmp_path, lambda m: setattr(m.version, "join_version", 5)))


def test_a_damaged_chunk_is_noticed(tmp_path) -> None:
    data = bytearray((FOLDER / "chunked" / "saved_model.cpb").read_bytes())
    place = data.index(bytes(range(100)))
    data[place + 50] ^= 1
    (tmp_path / "saved_model.cpb").write_bytes(data)
    with pytest.raises(PparseError, match="hash"):
        fingerprint(tmp_path)


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_file_that_tensorflow_wrote() -> None:
    stored = read_fingerprint(FOLDER / "dense")
    assert stored is not None
    assert stored.same_model(fingerprint(FOLDER / "dense"))
    assert stored.to_bytes() == (FOLDER / "dense" / "fingerprint.pb").read_bytes()
    assert read_fingerprint(FOLDER / "flow") is None


def test_a_written_fingerprint_is_read_back_and_knows_its_model(tmp_path) -> None:
    shutil.copytree(FOLDER / "flow", tmp_path / "model")
    values = write_fingerprint(tmp_path / "model")
    assert 0 < int(values.uuid) < 1 << 128
    assert read_fingerprint(tmp_path / "model") == values
    other = fingerprint(tmp_path / "model", uuid="5")
    assert other != values
    assert other.same_model(values)
    assert write_fingerprint(tmp_path / "model", other) is other
    assert read_fingerprint(tmp_path / "model") == other
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "fingerprint.pb",
        "saved_model.pb",
        "variables",
    ]
    with pytest.raises(SourceError):
        write_fingerprint(tmp_path / "missing", other)


def test_a_file_that_is_something_else(tmp_path) -> None:
    (tmp_path / "fingerprint.pb").write_bytes(b"\xff\xff")
    with pytest.raises(MalformedError, match="FingerprintDef"):
        read_fingerprint(tmp_path)
    (tmp_path / "fingerprint.pb").write_bytes(bytes(1 << 17))
    with pytest.raises(MalformedError, match="too large"):
        read_fingerprint(tmp_path)


def test_the_singleprint_is_made_of_four_hashes_and_bytes_go_round() -> None:
    values = Fingerprint(1, 2, 3, 4, 5, "6", 4)
    assert values.singleprint == "2/3/4/5"
    assert values.hashes == (1, 2, 3, 4, 5)
    assert values == Fingerprint.from_bytes(values.to_bytes())
    assert values != Fingerprint(1, 2, 3, 4, 5, "6", 2)
    assert hash(values) == hash(Fingerprint.from_bytes(values.to_bytes()))


# -- memory ------------------------------------------------------------------------------------------------------------


def large_model(folder: Path, functions: int) -> Path:
    message = model("gradient")
    library = message.meta_graphs[0].graph_def.library
    some = library.function[0]
    for _ in range(functions):
        library.function.add().CopyFrom(some)
    node = message.meta_graphs[0].graph_def.node.add(name="large", op="Const")
    node.attr["value"].tensor.tensor_content = bytes(8 << 20)
    return save(folder, message)


def test_large_values_are_not_held(tmp_path) -> None:
    budget = MemoryBudget("4MiB")
    fingerprint(large_model(tmp_path, 10), budget=budget)
    assert budget.peak < 3 << 20
    assert budget.used == 0


def test_what_does_not_fit_goes_to_scratch_files(tmp_path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "scratch").mkdir()
    folder = large_model(tmp_path / "model", 2000)
    expected = fingerprint(folder)
    with pytest.raises(LimitError, match="budget="):
        fingerprint(folder, budget="1MiB")
    scratch = Scratch(tmp_path / "scratch", 1 << 30)
    found = fingerprint(folder, budget="1MiB", scratch=scratch)
    assert found.same_model(expected)
    assert scratch.used == 0


def test_import_is_light() -> None:
    code = "import sys, pparse.proto_splitter.fingerprint\n"
    code += "heavy = {'google', 'numpy', 'typing', 'dataclasses', 'brotli', 'backports', 'compression.zstd'}\n"
    code += "print(sorted(heavy & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
