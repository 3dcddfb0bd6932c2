"""Merging into a file: what comes out, and that nothing does where a chunk is lost or damaged."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path

import pytest

import pparse
from pparse.errors import EndOfDataError, LimitError, MalformedError, OptionError, PparseError, UnsupportedError
from pparse.limits import Limits
from pparse.proto_splitter import Merger, SavedModelSplitter
from pparse.proto_splitter.stream_merge import MergeReport, merge_document, merge_to_file, merge_to_stream
from pparse.proto_splitter.stream_split import split_file
from pparse.protos import message_class
from pparse.riegeli import RecordReader, RecordWriter
from tests import sweep
from tests.interop.tensorflow.chunked import ALL, all_class, descriptors
from tests.interop.tensorflow.special import SPECIAL
from tests.protobuf_referee import plain
from tests.splitter_samples import make_graph_def_with_constant_nodes
from tests.test_splitter_folders import saved_model

DATA = Path(__file__).resolve().parent / "data" / "tf"
FIXTURES = sorted(path.parent.name for path in DATA.glob("*/expected.pb.gz"))
GRAPH = "tensorflow.GraphDef"
GraphDef = message_class(GRAPH)


def write_split(folder, limit: int = 400, options: str = "", sizes=(100, 900, 100)):
    """Split a graph into ``it.cpb``; return its path and the graph."""
    graph = make_graph_def_with_constant_nodes(list(sizes))
    (folder / "it.bin").write_bytes(graph.SerializeToString(deterministic=True))
    report = split_file(folder / "it.bin", str(folder / "it"), message=GRAPH, max_size=limit, writer_options=options)
    (folder / "it.bin").unlink()
    return Path(report.path), graph


# -- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("verify", ["all", "touched", "headers"])
def test_files_that_tensorflow_took(name, verify, tmp_path):
    told = json.loads((DATA / name / "expected.json").read_text())
    source = DATA / name / told["file"]
    report = merge_to_file(source, str(tmp_path / "out.pb"), message=told["message_type"], verify=verify)
    kind = message_class(told["message_type"])
    wanted = kind.FromString(gzip.decompress((DATA / name / "expected.pb.gz").read_bytes()))
    assert plain(kind.FromString((tmp_path / "out.pb").read_bytes())) == plain(wanted)
    assert report.size == os.path.getsize(report.path)
    assert (report.type, report.chunks) == (told["message_type"], len(told["chunks"]))
    assert not report.too_large


@pytest.mark.parametrize("special", SPECIAL, ids=[special.name for special in SPECIAL])
def test_a_file_is_merged_as_the_merger_merges_it(special, tmp_path):
    """Into the same message, or not at all."""
    data = special.data()
    (tmp_path / "it.cpb").write_bytes(data)
    wanted = all_class()()
    try:
        Merger.read_chunked_from_string(data, wanted)
    except PparseError:
        with pytest.raises(PparseError):
            merge_to_file(tmp_path / "it.cpb", str(tmp_path / "out.pb"), message=ALL, descriptor=descriptors())
        assert not (tmp_path / "out.pb").exists()
        return
    merge_to_file(tmp_path / "it.cpb", str(tmp_path / "out.pb"), message=ALL, descriptor=descriptors())
    assert plain(all_class().FromString((tmp_path / "out.pb").read_bytes())) == plain(wanted)


def test_into_a_stream(tmp_path):
    path, graph = write_split(tmp_path)
    stream = io.BytesIO()
    told = []
    with pparse.open(path) as document:
        report = merge_to_stream(document, stream, lambda *words: told.append(words))
    assert stream.getvalue() == graph.SerializeToString(deterministic=True)
    assert (report.path, report.size, report.type) == ("", len(stream.getvalue()), GRAPH)
    assert told[-1] == (report.size, report.size, "merging")
    assert "merged" in repr(report)


def test_what_is_above_the_limit_of_protobuf():
    assert not MergeReport("x", (1 << 31) - 1, 0).too_large
    assert MergeReport("x", 1 << 31, 0).too_large


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_merged(tmp_path):
    path, graph = write_split(tmp_path)
    out = str(tmp_path / "out.pb")
    plain_one = tmp_path / "plain.pb"
    plain_one.write_bytes(graph.SerializeToString())
    with pytest.raises(OptionError, match=r"not a chunked proto .* nothing to merge"):
        merge_to_file(plain_one, out)
    with pytest.raises(
        OptionError, match=r"no\.Such: there is no message with this name.* options=.\"descriptor\": \"FILE\""
    ):
        merge_to_file(path, out, message="no.Such")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(
        message_class("tensorflow.SavedModel")(saved_model_schema_version=1).SerializeToString()
    )
    with pytest.raises(OptionError, match=r"plain saved_model\.pb: there is nothing to merge"):
        merge_to_file(folder, out)
    told = json.loads((DATA / "tree_df" / "expected.json").read_text())
    with pytest.raises(OptionError, match=r"type of .* is not known"):
        merge_to_file(DATA / "tree_df" / told["file"], out)
    assert not os.path.exists(out)


def test_the_source_is_never_replaced(tmp_path):
    path, _ = write_split(tmp_path)
    sound = path.read_bytes()
    link = tmp_path / "link.pb"
    os.link(path, link)
    for output in (path, link):
        with pytest.raises(OptionError, match="is the file being read; name another one"):
            merge_to_file(path, str(output))
    with pytest.raises(OptionError, match=r"out\.cpb has the suffix of a file in chunks; name it .*out\.pb"):
        merge_to_file(path, str(tmp_path / "out.cpb"))
    assert (path.read_bytes(), link.read_bytes()) == (sound, sound)
    folder = tmp_path / "model"
    folder.mkdir()
    saved = folder / "saved_model.cpb"
    model = saved_model()
    SavedModelSplitter(model, max_size=300).write(folder / "saved_model")
    assert saved.exists()
    os.link(saved, folder / "link.pb")
    with pytest.raises(OptionError, match="is the file being read"):
        merge_to_file(folder, str(folder / "link.pb"))
    assert sorted(os.listdir(folder)) == ["link.pb", "saved_model.cpb"]


def test_the_first_chunk_is_damaged(tmp_path):
    """Then the type is not seen: not the type is to be named, but the damage."""
    path, _ = write_split(tmp_path, 4096, "uncompressed", (100, 9000, 100))
    damaged = bytearray(path.read_bytes())
    damaged[64 + 60] ^= 1  # in the first chunk of the file
    path.write_bytes(damaged)
    with pytest.raises(MalformedError, match=r"cannot read chunk 0, which would show the type: .*hash") as caught:
        merge_to_file(path, str(tmp_path / "out.pb"))
    assert caught.value.source == str(path)
    assert os.listdir(tmp_path) == ["it.cpb"]


def test_a_chunk_that_is_named_again_and_again(tmp_path):
    """A file of some hundred bytes that would fill the disk."""
    path = tmp_path / "it.cpb"
    limits = Limits(inflated_bytes=50_000)
    for size, times, said in (
        (1 << 20, 200, UnsupportedError),
        (10, 3000, None),
        (0, 3000, None),
        (1 << 20, 50, None),
        (300, 99, None),
        (1000, 60, LimitError),
    ):
        chunk = GraphDef()
        if size:
            chunk.node.add(name="x" * (size - 4 if size < 100 else size - 9))
        write_repeated(path, chunk.SerializeToString(), times)
        low = limits if size in (300, 1000) else Limits()
        for merge in (merge_with, read_with):
            if said is None:
                merge(path, tmp_path / "out.pb", low)
            else:
                with pytest.raises(said, match=r"is merged more than 100 times|add up to is above the") as caught:
                    merge(path, tmp_path / "out.pb", low)
                assert caught.value.source == str(path)


def write_repeated(path, chunk: bytes, times: int) -> None:
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")()
    with RecordWriter(path) as writer:
        writer.write_record(chunk)
        metadata.chunks.add(type=1, size=len(chunk), offset=writer.last_pos.numeric)
        metadata.version.splitter_version = 1
        metadata.message.chunk_index = 0
        for _ in range(times - 1):
            metadata.message.chunked_fields.add().message.chunk_index = 0
        writer.write_record(metadata.SerializeToString())


@pytest.mark.parametrize("nodes", ["values", "messages"])
def test_a_chunk_that_is_not_named_again_and_again(tmp_path, nodes):
    """A value that names no chunk takes chunk 0, each time. A message that names none takes none."""
    path = tmp_path / "it.cpb"
    kind = "tensorflow.proto_splitter_testdata.ManyFields"
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")()
    metadata.message.SetInParent()
    with RecordWriter(path) as writer:
        writer.write_record(bytes(1 << 20))
        metadata.chunks.add(type=0, size=1 << 20, offset=writer.last_pos.numeric)
        for number in range(150):
            field = metadata.message.chunked_fields.add()
            field.field_tag.add().field = 4 if nodes == "values" else 2
            field.field_tag.add().index = number
            # There is something below, so that the message is not empty.
            field.message.chunked_fields.add().field_tag.add().field = 1
        writer.write_record(metadata.SerializeToString())
    if nodes == "messages":
        merge_to_file(path, str(tmp_path / "out.pb"), message=kind)
        return
    with pytest.raises(UnsupportedError, match="more than 100 times"):
        merge_to_file(path, str(tmp_path / "out.pb"), message=kind)
    with pytest.raises(UnsupportedError, match="more than 100 times"):
        Merger.read(path, message_class(kind)())


def merge_with(path, output, limits) -> None:
    with pparse.open(path, options={"message": GRAPH}, limits=limits) as document:
        merge_document(document, str(output))


def read_with(path, output, limits) -> None:
    Merger.read(path, GraphDef(), limits=limits)


def test_a_type_that_does_not_fit(tmp_path):
    path, _ = write_split(tmp_path)
    with pytest.raises(PparseError):
        merge_to_file(path, str(tmp_path / "out.pb"), message="tensorflow.proto_splitter_testdata.RepeatedString")
    assert os.listdir(tmp_path) == ["it.cpb"]


@pytest.mark.parametrize("options", ["uncompressed", "brotli"])
def test_a_flipped_byte_anywhere(tmp_path, options):
    """With all hashes checked a damaged file is merged as it was, or not at all."""
    path, graph = write_split(tmp_path, 200, options, (60, 300, 60))
    sound = path.read_bytes()
    wanted = graph.SerializeToString(deterministic=True)
    refused = 0
    places = sweep.some(range(64, len(sound)), 1.5, ends=32)
    for at in places:
        damaged = bytearray(sound)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        try:
            merge_to_file(path, str(tmp_path / "out.pb"), message=GRAPH)
        except (MalformedError, EndOfDataError, UnsupportedError):
            refused += 1
            assert os.listdir(tmp_path) == ["it.cpb"], at
        else:
            assert (tmp_path / "out.pb").read_bytes() == wanted, at
            (tmp_path / "out.pb").unlink()
    assert refused == len(places)


@pytest.mark.parametrize("options", ["uncompressed", "brotli"])
def test_every_prefix_of_a_chunked_file_is_refused_and_nothing_is_left(tmp_path, options):
    path, _ = write_split(tmp_path, 200, options, (60, 300, 60))
    sound = path.read_bytes()
    for length in range(64, len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(PparseError):
            merge_to_file(path, str(tmp_path / "out.pb"), message=GRAPH)
        assert os.listdir(tmp_path) == ["it.cpb"]


def test_a_damaged_chunk_is_named(tmp_path):
    path, graph = write_split(tmp_path, 30_000, "uncompressed", (100, 60_000, 100))
    damaged = bytearray(path.read_bytes())
    content = graph.node[1].attr["value"].tensor.tensor_content
    damaged[damaged.index(content) + 5_000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(MalformedError, match=r"it\.cpb.*tensor_content.*hash mismatch") as caught:
        merge_to_file(path, str(tmp_path / "out.pb"))
    assert caught.value.source == str(path)
    assert os.listdir(tmp_path) == ["it.cpb"]
    # Whoever does not want the data checked gets them as they are.
    merge_to_file(path, str(tmp_path / "out.pb"), verify="headers")
    got = GraphDef.FromString((tmp_path / "out.pb").read_bytes()).node[1].attr["value"].tensor.tensor_content
    assert [at for at in range(len(content)) if got[at] != content[at]] == [5_000]


def test_a_file_without_its_metadata_is_refused(tmp_path):
    """The last record is something else: of a .cpb by name, and of one by looks."""
    path, _ = write_split(tmp_path, options="uncompressed")
    records = list(RecordReader(path))
    with RecordWriter(path, options="uncompressed") as writer:
        writer.write_records(records[:-1])
    with pytest.raises(MalformedError, match=r"cannot read the chunk metadata \(the last record\): "):
        merge_to_file(path, str(tmp_path / "out.pb"), message=GRAPH)
    path.rename(tmp_path / "it.bin")
    with pytest.raises(OptionError, match=r"not a chunked proto .* but riegeli"):
        merge_to_file(tmp_path / "it.bin", str(tmp_path / "out.pb"), message=GRAPH)
    assert os.listdir(tmp_path) == ["it.bin"]


def test_files_for_newer_mergers_are_refused(tmp_path):
    path, graph = write_split(tmp_path, options="uncompressed")
    *records, last = RecordReader(path)
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last)
    metadata.version.join_version = 9
    with RecordWriter(path, options="uncompressed") as writer:
        positions = []
        for record in records:
            writer.write_record(record)
            positions.append(writer.last_pos.numeric)
        for info, position in zip(metadata.chunks, positions, strict=True):
            info.offset = position
        writer.write_record(metadata.SerializeToString())
    with pytest.raises(UnsupportedError, match="9"):
        merge_to_file(path, str(tmp_path / "out.pb"))
    with pparse.open(path, options={"versions": "any"}) as document:
        merge_document(document, str(tmp_path / "out.pb"))
    assert (tmp_path / "out.pb").read_bytes() == graph.SerializeToString(deterministic=True)


def test_a_merge_that_is_cancelled_leaves_nothing(tmp_path):
    path, _ = write_split(tmp_path)
    with pparse.open(path, cancel=lambda: True) as document, pytest.raises(pparse.CancelledError):
        merge_document(document, str(tmp_path / "out.pb"))
    assert os.listdir(tmp_path) == ["it.cpb"]


def test_a_target_that_was_there(tmp_path):
    path, graph = write_split(tmp_path)
    target = tmp_path / "out.pb"
    target.write_bytes(b"before")
    sound = path.read_bytes()
    path.write_bytes(sound[:-20])
    with pytest.raises(PparseError):
        merge_to_file(path, str(target), message=GRAPH)
    assert target.read_bytes() == b"before"
    path.write_bytes(sound)
    merge_to_file(path, str(target))
    assert target.read_bytes() == graph.SerializeToString(deterministic=True)
