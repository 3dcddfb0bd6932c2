"""A message whose tags or lengths were hit is read on behind the damage where the schema proves it, nowhere else."""

from __future__ import annotations

import json
import os
import random
import zipfile
import zlib

import pytest

import pparse
from pparse.errors import FormatError, MalformedError, TensorError
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.parsers.protobuf.resumption import find_resumption
from pparse.protos import message_class
from pparse.protos import schema as builtin_schema
from pparse.recovery.salvage import salvage
from pparse.recovery.target import Target
from pparse.testing import FakeData
from tests import sweep
from tests.rows import rows

GRAPH = message_class("tensorflow.GraphDef")
SAVED_MODEL = message_class("tensorflow.SavedModel")
FLOATS = 300


def graph(count: int = 8):
    """A graph of constants ``w0`` … and of nodes ``r0`` … that take them."""
    made = GRAPH()
    made.versions.producer = 2474
    for number in range(count):
        node = made.node.add(name=f"w{number}", op="Const")
        node.attr["dtype"].type = 1
        tensor = node.attr["value"].tensor
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=FLOATS)
        tensor.tensor_content = content_of(number)
        made.node.add(name=f"r{number}", op="Relu", input=[f"w{number}"]).attr["T"].type = 1
    return made


def content_of(number: int) -> bytes:
    return bytes((number * 7 + at * 31) % 251 for at in range(4 * FLOATS))


def content_names() -> set[str]:
    return {f"w{number}" for number in range(8)}


def serialized(message) -> bytes:
    return message.SerializeToString(deterministic=True)


def heads(message) -> list[int]:
    """Where the nodes of a graph begin."""
    found, at = [], 0
    for node in message.node:
        found.append(at)
        size = node.ByteSize()
        at += 1 + len(encode_varint(size)) + size
    return found


def flipped(content: bytes, at: int, bit: int = 0) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def whole_of(content: bytes, format: str = "graph-def") -> dict[str, bytes]:
    with pparse.view(content, format=format) as viewer:
        return {
            tensor.name: tensor.numpy().tobytes() for tensor in viewer.tensors() if tensor.status is Status.COMPLETE
        }


@pytest.fixture
def save(tmp_path):
    """``save(content, format, name)`` recovers a message; returns its files and what was reported of them."""
    count = 0

    def run(content: bytes, format: str = "graph-def", name: str = "g.pb", *, keep: bool = False):
        nonlocal count
        count += 1
        reported = []
        folder = tmp_path / f"out{count}"
        with pparse.open(content, format=format) as document, Target(folder, max_bytes=1 << 24) as target:
            salvage(document, target, name, report=reported.append, keep=keep)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return files, {file.path: file for file in reported}

    return run


# -- read on -----------------------------------------------------------------------------------------------------------


@rows("bit", range(8))
@rows("byte", range(3))
def test_a_flipped_bit_in_the_head_of_a_node_costs_that_node_alone(byte, bit):
    made = graph()
    content = serialized(made)
    at = heads(made)[6] + byte  # of w3
    found = whole_of(flipped(content, at, bit))
    for number in range(8):
        if number != 3:
            assert found[f"w{number}"] == content_of(number)
    # What the length covers may be its values and not its name.
    assert {name: value for name, value in found.items() if name not in content_names()} in ({}, {"[6]": content_of(3)})
    assert found.get("w3", content_of(3)) == content_of(3)


def test_what_lies_between_is_damaged_with_offset_and_length():
    made = graph()
    begin, end = heads(made)[6:8]
    content = flipped(serialized(made), begin)
    with pparse.view(content, format="graph-def") as viewer:
        assert viewer.status is Status.DAMAGED
        assert viewer.extent().resume_at is None
        (finding,) = [finding for finding in viewer.findings if finding.length is not None]
        assert (finding.offset, finding.length) == (begin, end - begin)
    with pparse.open(content, format="graph-def") as document:
        assert document.get("node[8].name") == "w4"  # it keeps its number
        assert document.node("node[6]").status is Status.DAMAGED
        assert len(document.node("node")) == 16
        assert document.get("versions.producer") == 2474
        assert any(finding.path == "node[6]" for finding in document.check())


def test_zeros_over_several_heads_cost_the_nodes_they_hit():
    made = graph()
    content = bytearray(serialized(made))
    first, last = heads(made)[6], heads(made)[8]
    content[first : last + 100] = bytes(last + 100 - first)  # w3, r3 and w4
    found = whole_of(bytes(content))
    assert sorted(found) == ["w0", "w1", "w2", "w5", "w6", "w7"]
    assert all(found[f"w{number}"] == content_of(number) for number in (0, 1, 2, 5, 6, 7))


def test_bytes_that_are_lost_or_came_in_cost_what_they_hit():
    made = graph()
    content = serialized(made)
    at = heads(made)[6]
    for damaged in (content[:at] + content[at + 9 :], content[:at] + b"\xaa" * 9 + content[at:]):
        found = whole_of(damaged)
        assert {f"w{number}" for number in range(8) if number != 3} <= set(found)
        assert all(found[name] == content_of(int(name[1:])) for name in found)


def test_a_length_that_swallows_the_next_node_is_not_believed():
    """The node before the damage is read as whole by its length, which what follows contradicts."""
    made = graph()
    content = bytearray(serialized(made))
    begin, behind = heads(made)[7], heads(made)[9]
    assert content[begin + 1] < 0x80
    content[begin + 1] += behind - heads(made)[8] - (behind - heads(made)[8]) // 128 * 128  # r3 reaches into w4
    found = whole_of(bytes(content))
    assert {"w5", "w6", "w7"} <= set(found)
    assert all(found[name] == content_of(int(name[1:])) for name in found)


def test_nodes_in_a_saved_model_are_read_on_to_the_end_of_their_graph():
    saved = SAVED_MODEL(saved_model_schema_version=1)
    saved.meta_graphs.add().graph_def.CopyFrom(graph())
    saved.meta_graphs[0].signature_def["serve"].method_name = "predict"
    content = serialized(saved)
    at = content.index(serialized(graph())) + heads(graph())[6]
    damaged = flipped(content, at)
    assert len(whole_of(damaged, "saved-model")) == 7
    with pparse.open(damaged, format="saved-model") as document:
        assert document.get('meta_graphs[0].signature_def["serve"].method_name') == "predict"


def test_a_message_of_messages_of_its_own_type_is_not_read_on():
    """Whose child a message is that comes behind the damage, nobody can tell."""
    kind = "tensorflow.proto_splitter_testdata.StringNode"
    tree = message_class(kind)
    root = tree(val="root")
    for number in range(6):
        child = root.child_nodes.add(val=f"child {number}")
        child.child_nodes.add(val=f"grandchild {number}")
    content = serialized(root)
    at = content.index(b"child 2") - 4
    with pparse.open(flipped(content, at), format="protobuf", options={"message": kind}) as document:
        names = [node["val"].load() for node in document.node("child_nodes").children() if node.kind == kind]
    assert set(names) <= {f"child {number}" for number in range(6)}


def test_a_file_that_is_cut_is_not_searched():
    """What lies in the field that the end cuts is not read: it may be most of a large file."""
    made = graph()
    made.node[14].attr["value"].tensor.tensor_content = bytes(4_000_000)
    made.node[14].attr["value"].tensor.tensor_shape.dim[0].size = 1_000_000
    content = serialized(made)[:-2_000_000]
    with pparse.view(content, format="graph-def") as viewer:
        assert viewer.status is Status.TRUNCATED
        assert viewer.extent().resume_at == len(content)
        assert viewer.extraction.session.stats.bytes < 1_000_000


def test_a_search_that_finds_nothing_reads_what_is_in_proportion_to_the_file():
    """Thousands of places look like a node, and none of them leads to the end."""
    for filling in sweep.part((b"\x0a\x05\x0a\x03abc", b"\x0a\x7f\x0a\x01", b"\x0a\x00", b"\x0a\xff\x01\x0a\x02aa")):
        content = b"\x0a\x03\x0a\x01a" + b"\x07" + filling * (100_000 // len(filling)) + b"\x07"
        with pparse.open(content, format="graph-def") as document:
            assert document.root.status is not None
            list(document.walk())
            assert document.session.stats.bytes < 100 * len(content)
            assert document.session.stats.reads < len(content)


def test_a_field_that_no_graph_has_among_the_nodes_is_mentioned():
    made = graph()
    content = flipped(serialized(made), heads(made)[6], 4)  # field 3, with a length: an unknown field to protobuf
    with pparse.open(content, format="graph-def") as document:
        assert "stray-field" in {finding.code for finding in document.check()}


def test_a_graph_whose_first_node_is_damaged_is_a_graph_by_its_name(tmp_path):
    content = serialized(graph())
    at = content.index(content_of(0))
    path = tmp_path / "g.pb"
    path.write_bytes(content[: at + 9] + content[at + 10 :])
    with pparse.open(path) as document:
        assert document.format == "graph-def"
    with pparse.view(path) as viewer:
        assert {"w1", "w7"} <= set(viewer)
        assert viewer["w7"].numpy().tobytes() == content_of(7)


# -- saved -------------------------------------------------------------------------------------------------------------


def test_what_is_read_on_is_saved_and_what_lies_between_is_beside_it(save):
    made = graph()
    content = serialized(made)
    begin, end = heads(made)[6:8]
    damaged = flipped(content, begin)
    files, by = save(damaged)
    found = GRAPH.FromString(files["g.pb"])
    assert list(found.node) == [node for at, node in enumerate(made.node) if at != 6]
    assert found.versions == made.versions
    assert by["g.pb"].status is Status.DAMAGED
    assert files[f"g.pb.partial/behind-{begin}.bin"] == damaged[begin:end]
    lost = json.loads(files["g.pb.rest.json"])["lost"]
    assert lost == [{"path": "node[6]", "offset": begin, "length": end - begin}]


def test_what_cannot_be_read_on_is_beside_the_message(save):
    made = graph(3)
    content = serialized(made)
    at = heads(made)[5]
    damaged = content[:at] + b"\0" * (len(content) - at)
    files, _ = save(damaged)
    assert GRAPH.FromString(files["g.pb"]).node == made.node[:5]
    assert files[f"g.pb.partial/behind-{at}.bin"] == damaged[at:]


def test_a_tensor_that_is_cut_has_no_type_and_its_bytes_are_beside_the_message(save):
    made = graph()
    content = serialized(made)
    start = content.index(content_of(5))
    for there in (0, 1, 700):
        files, _ = save(content[: start + there])
        found = GRAPH.FromString(files["g.pb"])
        assert found.node[10].name == "w5"
        assert not found.node[10].attr["value"].tensor.dtype
        assert not found.node[10].attr["value"].tensor.tensor_content
        assert [node.attr["value"].tensor.dtype for node in found.node if node.op == "Const"][:5] == [1] * 5
        pieces = {name: files[name] for name in files if ".partial/" in name}
        path = "g.pb.partial/node[10].attr[1].value.tensor.tensor_content.bin"
        assert pieces == ({path: content_of(5)[:there]} if there else {})


def test_no_prefix_of_a_graph_is_saved_with_a_tensor_of_made_up_values(save):
    made = graph(3)
    content = serialized(made)
    for cut in sweep.some(range(1, len(content)), 10, ends=8):
        files, _ = save(content[:cut])
        for name, found in whole_of(files["g.pb"]).items() if "g.pb" in files else ():
            assert found == content_of(int(name[1:]))


# -- without values ----------------------------------------------------------------------------------------------------


def without_values(dtype: int) -> bytes:
    made = graph(2)
    tensor = made.node[0].attr["value"].tensor
    tensor.ClearField("tensor_content")
    tensor.dtype = dtype
    return serialized(made)


def test_a_constant_without_values_reads_as_zeros_with_a_warning():
    with pparse.view(without_values(1), format="graph-def") as viewer:
        tensor = viewer["w0"]
        assert tensor.status is Status.COMPLETE
        assert not tensor.numpy().any()
        assert (tensor.finding.code, str(tensor.finding.severity)) == ("no-values", "warning")
        assert [finding.code for finding in viewer.check()] == ["no-values"]
    with pparse.view(without_values(7), format="graph-def") as viewer:
        assert viewer["w0"].finding.code == "no-values"


def test_a_constant_without_type_and_values_is_damaged_for_everybody(save):
    content = without_values(0)
    with pparse.view(content, format="graph-def") as viewer:
        assert viewer["w0"].status is Status.DAMAGED
        assert viewer.status is Status.DAMAGED
        with pytest.raises((TensorError, MalformedError)):
            viewer["w0"].numpy()
        assert [str(finding.severity) for finding in viewer.check()] == ["error"]
    # It is a sound message all the same, and is not to be saved as one of which nothing is whole.
    assert save(content, keep=True) == ({}, {})


# -- never written -----------------------------------------------------------------------------------------------------


def test_a_graph_that_was_never_written_to_its_end_says_so_and_where_to_go_on(tmp_path):
    """A preallocated download: the bytes behind its end are zeros, and its size is right."""
    made = graph()
    made.node[10].attr["value"].tensor.tensor_content = content_of(5) * 40
    made.node[10].attr["value"].tensor.tensor_shape.dim[0].size = FLOATS * 40
    content = serialized(made)
    start = content.index(content_of(5) * 40)
    path = tmp_path / "g.pb"
    path.write_bytes(content[: start + 9_000])
    os.truncate(path, len(content))
    with pparse.view(path) as viewer:
        if not viewer.holes:
            pytest.skip("this file system has no holes")
        tensor = viewer["w5"]
        assert tensor.unwritten_nbytes > 0
        assert tensor.finding.code == "unwritten"
        written = len(content[: start + 9_000].rstrip(b"\0"))
        assert written - 1 <= viewer.extent().resume_at <= start + 9_000
        assert "unwritten" in {finding.code for finding in viewer.check()}
    with pparse.open(path) as document, Target(tmp_path / "out", max_bytes=1 << 24) as target:
        assert salvage(document, target, "g.pb", report=lambda _file: None)
    saved = whole_of((tmp_path / "out" / "g.pb").read_bytes())
    assert set(saved) == {f"w{number}" for number in range(5)}
    assert (tmp_path / "out" / "g.doubtful.pb").read_bytes() == path.read_bytes()


# -- what it is --------------------------------------------------------------------------------------------------------


def format_of(tmp_path, content: bytes, name: str = "g.pb") -> str:
    (tmp_path / name).write_bytes(content)
    with pparse.open(tmp_path / name) as document:
        return document.format


@pytest.mark.parametrize("end", [20, 100, 700])
@pytest.mark.parametrize("start", [0, 2, 8])
def test_a_graph_whose_beginning_is_lost_is_told_by_the_nodes_behind(tmp_path, start, end):
    content = serialized(graph())
    assert format_of(tmp_path, content[:start] + bytes(end - start) + content[end:]) == "graph-def"
    assert format_of(tmp_path, content[:start] + b"\xff" * (end - start) + content[end:]) == "graph-def"
    with pytest.raises(FormatError):  # there is no magic number: a name is wanted, too
        format_of(tmp_path, content[:start] + bytes(end - start) + content[end:], "g.bin")


def test_a_sound_message_that_holds_a_graph_is_not_called_one(tmp_path):
    inner = serialized(graph())
    size = len(inner)
    around = b"\x0a\x05hello\x12" + bytes((size & 127 | 128, size >> 7)) + inner
    assert 1 << 7 <= size < 1 << 14
    assert format_of(tmp_path, around) == "protobuf"
    assert format_of(tmp_path, around[:-5]) == "protobuf"  # nor one that was cut


def test_places_that_lead_nowhere_are_tried_with_small_reads():
    """Heads of nodes whose first field is a name, none of which reaches the end of the message."""
    heads = b"\x0a\xff\x5d\x0a\x10".ljust(8, b"a") * 4000  # each 12,031 bytes long
    content = serialized(graph())[:3000] + b"\x07" + heads + serialized(graph(3))[5:]
    source = FakeData(content)
    find_resumption(source, 0, len(content), builtin_schema().message("tensorflow.GraphDef"), lambda: None)
    assert sum(length for _, length in source.asked) < 600 * 4000


def test_a_block_is_not_kept_beyond_what_is_found_out_behind_it(tmp_path):
    """The stream's end, which a long text is read to, tells of a gap in a block that was read before."""

    def field(number, content):
        return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content

    rng = random.Random(5)

    def inputs(count):
        return b"".join(field(3, rng.randbytes(5).hex().encode()) for _ in range(count))

    nodes = b"".join(field(1, field(1, b"n%d" % at) + field(2, b"NoOp") + inputs(44)) for at in range(20))
    text = rng.randbytes(2 << 20).hex().encode() + b"\xff"  # not UTF-8: the node is not sound
    body = nodes + field(1, field(1, b"n20") + inputs(60) + field(2, text))
    stored = body.index(text[:40])
    first, second = zlib.compressobj(0, 8, -15), zlib.compressobj(6, 8, -15)
    packed = first.compress(body[:stored]) + first.flush(zlib.Z_SYNC_FLUSH)
    content = bytearray(packed + second.compress(body[stored:]) + second.flush())
    at = content.find(body[len(nodes) + 27 :][:16])
    content[at : at + 516] = b"\n" * 516
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("s.pb", body)
    made = (tmp_path / "s.zip").read_bytes()
    start, end = 30 + len("s.pb"), made.index(b"PK\1\2")
    sizes = len(content).to_bytes(4, "little")
    directory = made[end:-22].replace(made[18:22], sizes, 1)
    last = made[-22:-6] + (start + len(content)).to_bytes(4, "little") + made[-2:]
    whole = made[:18] + sizes + made[22:start] + content + directory + last
    (tmp_path / "s.zip").write_bytes(whole)
    with pparse.open(f"{tmp_path / 's.zip'}::s.pb", options={"message": "tensorflow.GraphDef"}) as document:
        told = " ".join(map(str, document.check()))
    assert "node[20] @0x2a69: the node runs into a gap" in told
    assert "516 bytes of it lost in 1 gap" in told
