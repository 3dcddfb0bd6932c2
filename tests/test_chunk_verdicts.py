"""A checksum that failed is never forgotten: what a Riegeli chunk's hash contradicts is damaged by every way to it.

The models are small GraphDefs in chunks whose metadata share a Riegeli chunk with their tensors, so that whoever falls
back to reading without the metadata reads condemned bytes.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
import threading
import zipfile

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.cli import main
from pparse.errors import DamagedTensorError, MalformedError, PparseError
from pparse.kernels.highway import hash64
from pparse.proto_splitter.stream_split import split_file
from pparse.protos import message_class
from pparse.riegeli import RecordReader, RecordWriter
from pparse.riegeli.chunks import SIMPLE, ChunkHeader
from pparse.riegeli.parts import ZSTD, PartCompressor
from pparse.riegeli.records import encode_simple
from pparse.riegeli.writer import ChunkWriter
from tests import sweep
from tests.riegeli_damage import apply, flip
from tests.riegeli_fixtures import chunk_table

OPTIONS = ["uncompressed", "transpose,uncompressed", "brotli", "transpose,brotli", "zstd", "transpose,zstd"]
SHARED = ["uncompressed,chunk_size:1M", "brotli", "transpose,brotli", "zstd", "transpose,zstd", "snappy"]
CASES = 25 if sweep.full else 12


def graph(large: int = 112) -> tuple[bytes, dict[str, np.ndarray]]:
    """A GraphDef and the values of its constants: stored, listed, compressible and not, one above the split limit."""
    rng = np.random.default_rng(7)
    made, truth = message_class("tensorflow.GraphDef")(), {}
    for number in range(10):
        shape = (large, 128) if number == 5 else tuple(int(side) for side in rng.integers(3, 40, 2))
        values = rng.normal(size=shape) if number % 2 else rng.integers(0, 8, shape) / 8
        if number % 4 == 3:
            values = values[:3, :3]
        truth[f"w{number}"] = array = np.ascontiguousarray(values, "<f4")
        node = made.node.add(name=f"w{number}", op="Const")
        node.attr["dtype"].type = 1
        tensor = node.attr["value"].tensor
        tensor.dtype = 1
        for side in array.shape:
            tensor.tensor_shape.dim.add(size=side)
        if number % 4 == 3:
            tensor.float_val.extend(array.ravel().tolist())
        else:
            tensor.tensor_content = array.tobytes()
        made.node.add(name=f"use{number}", op="Identity", input=[f"w{number}"])
    return made.SerializeToString(deterministic=True), truth


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function that splits the graph with options of the Riegeli writer: the file's bytes, and the truth."""
    raw, truth = graph()
    folder = tmp_path_factory.mktemp("models")
    (folder / "g.pb").write_bytes(raw)
    made: dict[str, bytes] = {}

    def model(options: str) -> tuple[bytes, dict[str, np.ndarray]]:
        if options not in made:
            to = folder / f"m{len(made)}"
            split_file(str(folder / "g.pb"), str(to), max_size="30KiB", writer_options=options)
            made[options] = (folder / f"{to.name}.cpb").read_bytes()
        return made[options], truth

    return model


def condemned(content: bytes, number: int = -1) -> bytes:
    """Return the file with another hash in a chunk of records: its bytes can be read, and its hash contradicts."""
    begin = [chunk for chunk in chunk_table(content) if chunk.num_records][number].begin
    header = ChunkHeader.unpack(content[begin : begin + 40])
    header = header._replace(data_hash=header.data_hash ^ 1)
    return content[:begin] + header.pack() + content[begin + 40 :]


def ways(tensor):
    """Every way to the bytes of a tensor."""
    buffer = bytearray(tensor.nbytes)
    yield "numpy", lambda: tensor.numpy().tobytes()
    yield "prefix", lambda: tensor.numpy(partial="prefix").tobytes()
    yield "fill", lambda: tensor.numpy(partial="fill").tobytes()
    yield "slice", lambda: tensor[...].tobytes("C")
    yield "array", lambda: np.asarray(tensor).tobytes()
    yield "blocks", lambda: b"".join(block.tobytes() for block in tensor.blocks())
    yield "raw_blocks", lambda: b"".join(tensor.raw_blocks())
    yield "readinto", lambda: bytes(buffer[: tensor.readinto(buffer)])


def assert_true(document, truth) -> None:
    """Nothing that is called complete differs from the original, and nothing damaged is handed out."""
    for tensor in document.tensors():
        for way, read in ways(tensor):
            if tensor.status is Status.COMPLETE:
                assert read() == truth[tensor.name].tobytes(), (tensor.name, way)
                assert tensor.verified is not False
            elif tensor.status is Status.DAMAGED:
                with pytest.raises(PparseError):
                    read()


def damage(content: bytes, rng: random.Random) -> bytes:
    at, kind = rng.randrange(64, len(content)), rng.randrange(4)
    if kind < 2:
        return apply(content, flip(content, at, 1 << rng.randrange(8)))
    if kind == 2:
        return content[:at] + rng.randbytes(min(16, len(content) - at)) + content[at + 16 :]
    return content[:at]


@pytest.mark.parametrize("options", OPTIONS)
def test_no_value_that_is_called_complete_differs_from_the_original(models, options):
    content, truth = models(options)
    rng = random.Random(f"truth {options}")
    for _ in range(CASES):
        try:
            view = pparse.view(damage(content, rng))
        except PparseError:  # what is left is no model
            continue
        with view:
            assert_true(view, truth)


@pytest.mark.parametrize("options", SHARED)
def test_a_chunk_whose_hash_fails_is_damaged_by_every_way_to_it(models, options):
    content, truth = models(options)
    with pparse.view(condemned(content)) as view:
        tensors = list(view.tensors())
        assert {tensor.name for tensor in tensors} >= set(truth) - {"w5"}
        for tensor in tensors:
            assert tensor.status in (Status.DAMAGED, Status.MISSING)
            if tensor.status is Status.DAMAGED:
                assert tensor.verified is False
                assert "hash mismatch" in tensor.finding.reason
                for way, read in ways(tensor):
                    with pytest.raises(DamagedTensorError):
                        print(way, read())
        assert view.status is Status.DAMAGED
        assert view["w0"].status is Status.DAMAGED


@pytest.mark.parametrize("options", SHARED)
def test_values_of_nodes_in_a_chunk_whose_hash_fails_do_not_load(models, options):
    content, _ = models(options)
    with pparse.open(condemned(content), format="cpb") as document:
        stack, seen = [document.root], 0
        while stack:
            node = stack.pop()
            if node.shape != "scalar":
                stack += list(node.children())
            else:
                seen += 1
                assert node.status is Status.DAMAGED
                with pytest.raises(MalformedError, match="hash mismatch"):
                    node.load()
    assert seen > 100


@pytest.mark.parametrize("options", ["transpose,zstd", "brotli"])
def test_commands_know_of_a_chunk_whose_hash_fails(models, options, tmp_path, capsys):
    content, _ = models(options)
    path = tmp_path / "bad.cpb"
    path.write_bytes(condemned(content))
    for command in (["ls"], ["info"], ["check"], ["tree"]):
        assert main([*command, str(path)]) == 4, command
    capsys.readouterr()
    assert main(["ls", str(path), "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert all(tensor["status"] != "complete" and tensor["verified"] is not True for tensor in told["tensors"])
    for get in (["w1"], ["w1[0]"], ["w1", "--raw"], ["w1", "--partial", "prefix"], ["[0].node[0].name"]):
        assert main(["get", str(path), *get]) == 4, get
    assert main(["get", str(path), "64/0", "-f", "riegeli", "--raw", "-o", str(tmp_path / "raw")]) == 4
    assert main(["get", str(path), "64/0[0:4]", "-f", "riegeli"]) == 4
    assert main(["merge", str(path), "-o", str(tmp_path / "merged.pb")]) == 4
    assert not (tmp_path / "merged.pb").exists()
    assert main(["graph", str(path), "--outputs", "w0", "-o", str(tmp_path / "part.pb")]) == 4
    assert not (tmp_path / "part.pb").exists()


def wrapped(content: bytes, how: str) -> tuple[str, bytes]:
    out = io.BytesIO()
    if how.startswith("zip"):
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if how == "zip" else zipfile.ZIP_STORED) as archive:
            archive.writestr("model.cpb", content)
        return "a.zip", out.getvalue()
    with tarfile.open(fileobj=out, mode="w:gz" if how == "tar.gz" else "w") as tar:
        info = tarfile.TarInfo("model.cpb")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return f"a.{how}", out.getvalue()


@pytest.mark.parametrize("how", ["zip", "zip-stored", "tar", "tar.gz"])
def test_a_chunked_proto_in_an_archive_is_one_and_its_hashes_count(models, how, tmp_path):
    content, truth = models("transpose,zstd")
    for damaged in (False, True):
        name, raw = wrapped(condemned(content) if damaged else content, how)
        (tmp_path / name).write_bytes(raw)
        with pparse.view(f"{tmp_path / name}::model.cpb") as view:
            assert view.format == "cpb"
            assert_true(view, truth)
            statuses = {tensor.status for tensor in view.tensors()}
            assert (Status.DAMAGED in statuses) == damaged == (Status.COMPLETE not in statuses)


# -- found late --------------------------------------------------------------------------------------------------------


def large_file(records: list[bytes]) -> bytes:
    """A file with one Zstd chunk above the size up to which a hash is compared when a record is looked up."""
    out = bytearray()
    writer = ChunkWriter(out.extend, 0)
    writer.begin_file()
    data = encode_simple(records, PartCompressor(ZSTD))
    assert len(data) > 4 << 20
    writer.write_chunk(ChunkHeader(SIMPLE, len(data), hash64(data), len(records), sum(map(len, records))), [data])
    return bytes(out)


@pytest.fixture(scope="module")
def large_model(tmp_path_factory) -> tuple[bytes, dict[str, np.ndarray]]:
    """A ``.cpb`` all of which is in one chunk of 5 MiB."""
    raw, truth = graph(large=10_000)
    folder = tmp_path_factory.mktemp("large")
    (folder / "g.pb").write_bytes(raw)
    split_file(str(folder / "g.pb"), str(folder / "m"), max_size="30KiB", writer_options="uncompressed")
    records = list(RecordReader(str(folder / "m.cpb")))
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(records.pop())
    for info in metadata.chunks:
        size, info.offset = info.size, 0
        info.offset = 64 + [len(record) for record in records].index(size)
    return large_file([*records, metadata.SerializeToString(deterministic=True)]), truth


def test_a_hash_that_is_compared_later_condemns_what_was_read_before(large_model):
    content, truth = large_model
    with pparse.view(condemned(content)) as view:
        held = view["w1"]
        name = view.root["node"][2]["name"]
        assert (held.status, held.verified) == (Status.COMPLETE, None)
        assert held.numpy().tobytes() == truth["w1"].tobytes()  # what is wrong is the hash, which nobody compared
        assert name.load() == "w1"
        assert view.status is Status.COMPLETE
        assert any("hash mismatch" in finding.reason for finding in view.check())
        assert (held.status, held.verified) == (Status.DAMAGED, False)
        with pytest.raises(DamagedTensorError, match="hash mismatch"):
            held.numpy()
        assert name.status is Status.DAMAGED
        with pytest.raises(MalformedError, match="hash mismatch"):
            name.load()
        assert {tensor.status for tensor in view.tensors()} == {Status.DAMAGED}
        assert view.status is view.root.status is Status.DAMAGED


def test_a_recovery_believes_no_metadata_whose_hash_fails(large_model, tmp_path):
    content, _ = large_model
    path = tmp_path / "bad.cpb"
    path.write_bytes(condemned(content))
    assert main(["recover", str(path), "-o", str(tmp_path / "saved")]) == 4
    report = json.loads((tmp_path / "saved" / "RECOVERY.json").read_text())
    assert [file["status"] for file in report["files"]] == ["damaged"]
    assert not (tmp_path / "saved" / "bad.pb").exists()


def test_records_of_a_chunk_are_damaged_as_soon_as_one_of_them_is_found_so():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="zstd") as writer:
        writer.write_records([b"one", b"two", b"three"])
    with pparse.open(condemned(out.getvalue())) as document:
        chunk = document.root[64]
        held = chunk[2]
        kids = iter(chunk.children())
        next(kids)
        with pytest.raises(MalformedError, match="hash mismatch"):
            chunk[0].load()
        assert chunk.status is held.status is next(kids).status is Status.DAMAGED
        assert document.root[64].status is Status.DAMAGED
        del chunk, held
        assert document.root[64][1].status is Status.DAMAGED  # made anew
        with pytest.raises(MalformedError, match="hash mismatch"):
            document.root[64][1].load()


def test_a_record_that_was_read_before_its_chunk_was_hashed_is_damaged_after():
    rng = random.Random(5)
    content = condemned(large_file([b"small", rng.randbytes(5 << 20), b"last"]))
    with pparse.open(content) as document:
        first = document.root[64][0]
        assert first.load() == b"small"
        assert first.status is Status.COMPLETE
        assert [finding.code for finding in document.check()] == ["hash"]
        assert first.status is Status.DAMAGED
        with pytest.raises(MalformedError, match="hash mismatch"):
            first.load()


def test_a_record_that_is_streamed_has_its_hash_compared():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        writer.write_records([b"one", b"two"])
    with pparse.open(condemned(out.getvalue())) as document:
        record = document.root[64][1]
        record.open()
        assert record.status is Status.DAMAGED


def test_metadata_of_a_riegeli_file_are_read_with_their_hash():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed", serialized_metadata=b"\x0a\x05hello") as writer:
        writer.write_record(b"one")
    damaged = bytearray(out.getvalue())
    header = ChunkHeader.unpack(bytes(damaged[64:104]))
    header = header._replace(data_hash=header.data_hash ^ 1)
    damaged[64:104] = header.pack()
    with pparse.open(bytes(damaged)) as document:
        assert list(document.root["metadata"].children()) == []
        assert document.root["metadata"].status is Status.DAMAGED


@pytest.mark.parametrize("verify", ["headers", "touched", "all"])
def test_what_each_way_of_verifying_says_of_a_condemned_chunk(models, verify):
    content, _ = models("zstd")
    with pparse.view(condemned(content), options={"verify": verify}) as view:
        statuses = {tensor.status for tensor in view.tensors()}
        if verify == "headers":  # no hash is compared, and none is said to agree
            assert statuses == {Status.COMPLETE}
            assert {tensor.verified for tensor in view.tensors()} == {None}
            assert any("hash mismatch" in finding.reason for finding in view.check())
        assert Status.COMPLETE not in {tensor.status for tensor in view.tensors()}


def test_four_threads_are_told_the_same(models):
    content, _ = models("transpose,zstd")
    with pparse.view(condemned(content)) as view:
        wrong: list[object] = []

        def ask() -> None:
            for tensor in list(view.tensors()):
                try:
                    if tensor.status is Status.COMPLETE or tensor.numpy() is not None:
                        wrong.append(tensor)
                except PparseError:
                    pass

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# -- check and recover -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["uncompressed", "transpose,brotli", "zstd"])
def test_check_and_recover_agree_and_what_is_saved_is_right(models, options, tmp_path):
    content, truth = models(options)
    rng = random.Random(f"saved {options}")
    for case in range(8):
        path, saved = tmp_path / f"{case}.cpb", tmp_path / f"saved{case}"
        path.write_bytes(damage(content, rng))
        assert main(["check", str(path)]) == main(["recover", str(path), "-o", str(saved)]) == 4
        report = json.loads((saved / "RECOVERY.json").read_text())
        assert all(file["status"] != "complete" or file["path"].endswith(".pb") for file in report["files"])
        for file in (*saved.glob("*.pb"), *saved.glob("*.cpb")):
            if file.read_bytes() == path.read_bytes():
                continue
            try:
                view = pparse.view(str(file))
            except PparseError:
                continue
            with view:
                for tensor in view.tensors():
                    if tensor.status is Status.COMPLETE:
                        assert tensor.numpy().tobytes() == truth[tensor.name].tobytes(), (case, file.name, tensor.name)


def test_a_riegeli_file_is_recovered_as_damaged_where_a_check_says_so(tmp_path):
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="zstd,chunk_size:10") as writer:
        writer.write_records([b"one" * 10, b"two" * 10, b"three" * 10])
    path = tmp_path / "bad.riegeli"
    path.write_bytes(condemned(out.getvalue(), 1))
    assert main(["check", str(path)]) == main(["recover", str(path), "-o", str(tmp_path / "saved")]) == 4
    report = json.loads((tmp_path / "saved" / "RECOVERY.json").read_text())
    assert all(file["status"] == "damaged" for file in report["files"])


def test_a_check_of_a_chunked_proto_looks_at_the_block_headers_inside_its_chunks(tmp_path):
    raw, truth = graph(large=400)
    (tmp_path / "g.pb").write_bytes(raw)
    split_file(str(tmp_path / "g.pb"), str(tmp_path / "block"), max_size="30KiB", writer_options="uncompressed")
    path = tmp_path / "block.cpb"
    content = path.read_bytes()
    assert len(content) > 3 * 65536
    path.write_bytes(apply(content, flip(content, 65536 + 2, 0xFF)))
    with pparse.view(str(path)) as view:
        assert_true(view, truth)
        assert {tensor.status for tensor in view.tensors()} == {Status.COMPLETE}
        (finding,) = view.check()
    assert "block header hash mismatch" in finding.reason
    assert "no record is lost" in finding.reason
    assert main(["check", str(path)]) == main(["recover", str(path), "-o", str(tmp_path / "saved")]) == 4
    report = json.loads((tmp_path / "saved" / "RECOVERY.json").read_text())
    assert {file["path"]: file["status"] for file in report["files"]} == {
        "block.cpb": "damaged",
        "block.pb": "complete",
    }
