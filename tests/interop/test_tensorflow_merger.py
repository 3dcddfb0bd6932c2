"""What we split, TensorFlow's Merger puts together; what it puts together, ours does, with the same result."""

from __future__ import annotations

import collections
import contextlib
import gzip
import json
from pathlib import Path

import pytest

from pparse import proto_splitter
from pparse.errors import PparseError, SplitError
from pparse.proto_splitter import (
    ComposableSplitter,
    GraphDefSplitter,
    Merger,
    RepeatedMessageSplitter,
    SavedModelSplitter,
    SizeSplitter,
)
from pparse.protos import message_class
from pparse.riegeli import RecordReader
from tests.interop.tensorflow import corpora
from tests.interop.tensorflow.chunked import (
    ALL,
    NUMBER,
    At,
    CompiledCase,
    RandomCase,
    all_class,
    descriptors,
    tree,
    write,
)
from tests.interop.tensorflow.referee import Aborted, RefereeError
from tests.interop.tensorflow.special import SPECIAL, Special

DATA = Path(__file__).resolve().parent.parent / "data" / "tf"
FIXTURES = {
    path.parent.name: json.loads(path.with_name("expected.json").read_text()) for path in sorted(DATA.glob("*/*.cpb"))
}
OPTIONS = (
    "uncompressed",
    "brotli:6",
    "zstd:3",
    "snappy",
    "transpose,uncompressed",
    "transpose,brotli:2",
    "transpose,zstd,bucket_fraction:0",
    "transpose,snappy",
    "brotli:1,chunk_size:500",
    "uncompressed,padding:4k",
)


def plain(message) -> bytes:
    return message.SerializeToString(deterministic=True)


def merged(prefix, full_name: str, start: bytes = b""):
    """Return what our Merger makes of these files."""
    message = message_class(full_name).FromString(start)
    Merger.read(prefix, message)
    return message


@contextlib.contextmanager
def limit(size: int):
    """Split at this size."""
    before = proto_splitter.max_size()
    proto_splitter.set_max_size(size)
    try:
        yield
    finally:
        proto_splitter.set_max_size(before)


class Written:
    """A file that a splitter wrote: its path and prefix, its metadata and its chunks (None and empty for a .pb)."""

    def __init__(self, splitter, prefix, options: str | None = None) -> None:
        self.prefix = prefix
        self.path = Path(splitter.write(str(prefix), options) if options else splitter.write(str(prefix)))
        self.metadata = None
        self.chunks: list[bytes] = []
        if self.path.suffix == ".cpb":
            with RecordReader(self.path) as reader:
                *self.chunks, last = reader.read_records()
            self.metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last)

    def check_sizes(self, most: int) -> None:
        """What is said of the chunks is true, and no message is above the limit."""
        assert [info.size for info in self.metadata.chunks] == [len(chunk) for chunk in self.chunks]
        assert max(info.size for info in self.metadata.chunks if info.type == 1) <= most


def check(referee, written: Written, expected) -> None:
    """TensorFlow's Merger and ours put the file together, with this result."""
    full_name = expected.DESCRIPTOR.full_name
    theirs = type(expected).FromString(referee.read(written.prefix, full_name))
    assert plain(theirs) == plain(expected)
    assert plain(merged(written.prefix, full_name)) == plain(expected)


def copy(message):
    return type(message).FromString(message.SerializeToString())


def test_the_referee_survives(referee):
    """A call that ends the process is reported as that; the next is answered."""
    before = referee.started
    with pytest.raises(Aborted, match=r"SIGABRT.*Can't access index 7"):
        referee.read_string(write([b""], tree(0, ((NUMBER["many"], At(7)), tree(0)))), ALL, descriptors())
    with pytest.raises(RefereeError, match="Couldn't read ChunkMetadata"):
        referee.read_string(b"", ALL, descriptors())
    assert referee.read_string(write([b""], tree(0)), ALL, descriptors()) == b""
    assert referee.started <= before + 2


# -- files that others wrote -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_are_merged_to_what_tensorflow_makes_of_them(referee, name):
    about = FIXTURES[name]
    path = DATA / name / about["file"]
    expected = gzip.decompress((DATA / name / "expected.pb.gz").read_bytes())
    full_name = about["message_type"]
    assert referee.read(path.with_suffix(""), full_name) == expected
    assert referee.read_string(path.read_bytes(), full_name) == expected
    wanted = message_class(full_name).FromString(expected)
    assert plain(merged(path.with_suffix(""), full_name)) == plain(wanted)


@pytest.mark.parametrize("name", ["many_field", "tree_df"])
def test_fixtures_in_memory(referee, name):
    """Chunks as messages: here all are of the type of the whole."""
    about = FIXTURES[name]
    full_name = about["message_type"]
    with RecordReader(DATA / name / about["file"]) as reader:
        *chunks, last = reader.read_records()
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last)
    theirs = referee.merge([(full_name, chunk) for chunk in chunks], metadata.message.SerializeToString(), full_name)
    kind = message_class(full_name)
    ours = kind()
    Merger.merge([kind.FromString(chunk) for chunk in chunks], metadata.message, ours)
    assert plain(ours) == plain(kind.FromString(theirs))
    assert plain(ours) == plain(kind.FromString(gzip.decompress((DATA / name / "expected.pb.gz").read_bytes())))


# -- graphs and saved models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1200, 3000, 9000, 40_000])
@pytest.mark.parametrize("name", [name for name in corpora.GRAPHS if name != "typed_constants"])
def test_graphs_that_we_split_are_merged_by_tensorflow(referee, tmp_path, name, size):
    graph = corpora.GRAPHS[name]()
    expected = copy(graph)
    with limit(size):
        written = Written(GraphDefSplitter(graph), tmp_path / "graph")
    assert (written.path.suffix == ".cpb") == (expected.ByteSize() >= size)
    if written.metadata:
        written.check_sizes(size)
    check(referee, written, expected)


@pytest.mark.parametrize("size", [900, 2500])
def test_constants_with_typed_values(referee, tmp_path, size):
    """They come back as bytes of the same value: a session of TensorFlow says so."""
    graph = corpora.typed_constants()
    expected = referee.constants(plain(graph))
    assert len(expected) == len(graph.node)
    with limit(size):
        written = Written(GraphDefSplitter(graph), tmp_path / "graph")
    written.check_sizes(size)
    theirs = referee.read(written.prefix, "tensorflow.GraphDef")
    assert referee.constants(theirs) == expected
    assert plain(merged(written.prefix, "tensorflow.GraphDef")) == plain(type(graph).FromString(theirs))


def test_string_constants_are_never_corrupted(referee, tmp_path):
    """Strings have no bytes that could be split off: they stay as they are, or we refuse, but never corrupt."""
    graph = corpora.graph_def()
    corpora.const(graph.node.add(), "before", bytes(400))
    texts = [b"%d\xff" % number * 3 for number in range(120)]
    corpora.const(graph.node.add(), "texts", dtype=corpora.STRING, shape=(120,), string_val=texts)
    expected = referee.constants(plain(graph))
    assert expected["texts"][2] == [text.hex() for text in texts]
    try:
        with limit(1000):
            written = Written(GraphDefSplitter(graph), tmp_path / "graph")
    except PparseError:
        return
    assert referee.constants(referee.read(written.prefix, "tensorflow.GraphDef")) == expected


@pytest.mark.parametrize("size", [3000, 20_000])
@pytest.mark.parametrize("name", ["everything", "functions", "constants"])
def test_saved_models_that_we_split_are_merged_by_tensorflow(referee, tmp_path, name, size):
    model = corpora.saved_model(corpora.GRAPHS[name])
    expected = copy(model)
    with limit(size):
        written = Written(SavedModelSplitter(model), tmp_path / "saved_model")
    written.check_sizes(size)
    check(referee, written, expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_tensorflow_reads_files_of_all_our_writer_options(referee, tmp_path, options):
    """Whatever our Riegeli writer can do."""
    for name, splitter, message in (
        ("model", SavedModelSplitter, corpora.saved_model()),
        ("objects", SizeSplitter, corpora.object_graph()),
    ):
        expected = copy(message)
        with limit(2000):
            written = Written(splitter(message), tmp_path / name, options)
        assert len(written.chunks) > 2
        check(referee, written, expected)


# -- any message -----------------------------------------------------------------------------------------------------


def split_by_size(referee, folder: Path, message, size: int, fds: bytes = b"") -> int:
    """Split and have it merged; returns the number of chunks."""
    expected = copy(message)
    written = Written(SizeSplitter(message, max_size=size), folder / "message")
    if written.metadata:
        written.check_sizes(size)
    full_name = expected.DESCRIPTOR.full_name
    assert plain(type(expected).FromString(referee.read(written.prefix, full_name, fds))) == plain(expected)
    ours = type(expected)()
    Merger.read(written.prefix, ours)
    assert plain(ours) == plain(expected)
    return len(written.chunks)


@pytest.mark.parametrize("size", [150, 600, 5000])
@pytest.mark.parametrize("name", corpora.SIZED)
def test_what_the_size_splitter_writes_is_merged_by_tensorflow(referee, tmp_path, name, size):
    message = corpora.SIZED[name]()
    large = message.ByteSize() > size
    assert (split_by_size(referee, tmp_path, message, size) > 1) == large


@pytest.mark.parametrize("size", [44, 48, 80, 82, 120])
def test_maps_in_maps(referee, tmp_path, size):
    """An entry that is merged replaces the one that is there: parts of a value come after the value."""
    assert split_by_size(referee, tmp_path, corpora.signatures(), size) > 20


@pytest.mark.parametrize("size", [40, 60, 90, 130, 200])
def test_random_messages_by_size(referee, tmp_path, size):
    """Lists and maps below keys of maps, for which TensorFlow's Merger keeps no order but that of the listing."""
    chunks = sum(split_by_size(referee, tmp_path, CompiledCase(seed).body(3), size) for seed in range(60))
    assert chunks > 200


def test_random_messages_of_all_fields_by_size(referee, tmp_path):
    refused = []
    for seed in range(80):
        message = RandomCase(seed).body(3)
        try:
            split_by_size(referee, tmp_path, message, 60 + 5 * seed, descriptors())
        except SplitError as error:
            refused.append(str(error))
    # Keys that TensorFlow's Merger would cut, and numbers, stay where they are.
    assert all("not be split off" in reason or "cannot be split off" in reason for reason in refused)
    assert len(refused) < 20


# -- splitters put together by their users ---------------------------------------------------------------------------


class PartByPart(ComposableSplitter):
    """Every meta graph in a chunk of its own."""

    def build_chunks(self) -> None:
        for number, graph in enumerate(self._proto.meta_graphs):
            self.add_chunk(graph, ["meta_graphs", number])


class Nested(ComposableSplitter):
    """The graph of every meta graph by a splitter of its own, and what that leaves as a chunk before its others."""

    def build_chunks(self) -> None:
        for number, part in enumerate(self._proto.meta_graphs):
            fields = ["meta_graphs", number, "graph_def"]
            GraphDefSplitter(part.graph_def, parent_splitter=self, fields_in_parent=fields).build_chunks()
            self.add_chunk(copy(part.graph_def), fields, index=1)
            part.ClearField("graph_def")


class Maps(ComposableSplitter):
    """Entries of a map of messages, what is in them, and a message put before the root; all of another message."""

    source = None

    def build_chunks(self) -> None:
        for key in (True, False):
            value = self.source.nested_map_bool[key]
            self.add_chunk(value, ["nested_map_bool", key])
            self.add_chunk(value.string_field + "!", ["nested_map_bool", key, "string_field"])
        self.add_chunk(self.source.field_one, [1], index=0)


def test_blank_root_of_meta_graphs(referee, tmp_path):
    """A tree without a chunk of its own: elements are made by their index."""
    model = corpora.saved_model(corpora.constants, others=2)
    expected = copy(model)
    expected.ClearField("saved_model_schema_version")
    written = Written(PartByPart(model, proto_as_initial_chunk=False), tmp_path / "model")
    assert not written.metadata.message.HasField("chunk_index")
    assert len(written.chunks) == 3
    check(referee, written, expected)


@pytest.mark.parametrize("initial", [True, False])
def test_split_maps_are_merged_by_tensorflow(referee, tmp_path, initial):
    fields = corpora.many_fields(1)
    expected = type(fields)()
    expected.field_one.CopyFrom(fields.field_one)
    for key in (True, False):
        value = expected.nested_map_bool[key]
        value.CopyFrom(fields.nested_map_bool[key])
        value.string_field += "!"
    root = type(fields)()
    if initial:
        root.string_field = expected.string_field = "base"
        root.map_field_int64[5] = expected.map_field_int64[5] = "five"
    splitter = Maps(root, proto_as_initial_chunk=initial)
    splitter.source = fields
    written = Written(splitter, tmp_path / "fields")
    check(referee, written, expected)


@pytest.mark.parametrize("size", [1500, 6000])
def test_what_nested_splitters_write_is_merged_by_tensorflow(referee, tmp_path, size):
    model = corpora.saved_model(others=0)
    model.meta_graphs.add().graph_def.CopyFrom(corpora.constants())
    model.meta_graphs.add().graph_def.CopyFrom(corpora.functions())
    expected = copy(model)
    with limit(size):
        written = Written(Nested(model), tmp_path / "model")
    assert {field.field_tag[1].index for field in written.metadata.message.chunked_fields} == {0, 1, 2}
    check(referee, written, expected)


def test_slices_of_a_repeated_field_are_merged_by_tensorflow(referee, tmp_path):
    """A list in slices, each in a message of the parent's type."""
    message = corpora.repeated_string()
    expected = copy(message)
    with limit(100):
        written = Written(RepeatedMessageSplitter(message, "rs"), tmp_path / "message")
    assert len(written.chunks) > 5
    check(referee, written, expected)


# -- a real model ----------------------------------------------------------------------------------------------------


def test_a_model_that_runs(referee, tmp_path):
    """Saved by TensorFlow, split by us, merged by TensorFlow, loaded and run by TensorFlow."""
    folder = tmp_path / "model"
    referee.make_saved_model(folder)
    whole = folder / "saved_model.pb"
    asked = [
        ({"x": [[0.01 * number for number in range(160)]] * 2, "n": 3}, "serving_default"),
        ({"words": ["lazy", "partial", "absent"]}, "look_up"),
    ]
    answers = [referee.run_saved_model(folder, *question) for question in asked]
    assert answers[1] == {"ids": [0, 2, 3]}
    before = referee.create_fingerprint(folder)

    original = message_class("tensorflow.SavedModel").FromString(whole.read_bytes())
    expected = copy(original)
    for size in (5_000, 40_000, 150_000):
        with limit(size):
            written = Written(SavedModelSplitter(copy(original)), folder / "saved_model")
        written.check_sizes(size)
        # Three constants of 100 kB are in functions; below the limit they stay in their nodes, which are large.
        large = [info.type for info in written.metadata.chunks if info.size >= 160 * 160 * 4]
        assert large == [2 if size < 100_000 else 1] * 3
        check(referee, written, expected)
        assert not whole.exists()
        chunked = fingerprint(referee.create_fingerprint(folder))
        assert chunked.version.producer == 2
        merged_bytes = referee.read(written.prefix, "tensorflow.SavedModel")
        whole.write_bytes(merged_bytes)
        written.path.unlink()
        assert [referee.run_saved_model(folder, *question) for question in asked] == answers
        after, first = fingerprint(referee.create_fingerprint(folder)), fingerprint(before)
        for name in ("graph_def_program_hash", "signature_def_hash", "saved_object_graph_hash", "checkpoint_hash"):
            assert getattr(after, name) == getattr(first, name)


def fingerprint(data: bytes):
    return message_class("tensorflow.FingerprintDef").FromString(data)


# -- what may be in a file -------------------------------------------------------------------------------------------


def ask_both(referee, folder: Path, data: bytes, start: bytes = b"") -> tuple:
    """Return what TensorFlow's Merger and ours make of a file: each a message, or what was raised."""
    path = folder / "case.cpb"
    path.write_bytes(data)
    try:
        text = referee.read(path.with_suffix(""), ALL, descriptors(), start)
        try:
            theirs = all_class().FromString(text)
        except Exception as error:  # text that is no text: TensorFlow does not look at it
            theirs = error
    except (RefereeError, Aborted) as error:
        theirs = error
    ours = all_class().FromString(start)
    try:
        Merger.read(str(path.with_suffix("")), ours)
    except PparseError as error:
        ours = error
    return theirs, ours


def outcome(result) -> str:
    match result:
        case RefereeError():
            return "error"
        case Aborted():
            return "abort"
        case PparseError():
            return "raises"
        case Exception():
            return "no text"
    return "ok"


@pytest.mark.parametrize("special", SPECIAL, ids=[special.name for special in SPECIAL])
def test_corner_cases_end_as_they_do_in_tensorflow_or_as_is_written_down(referee, tmp_path, special: Special):
    """Rules and corner cases one by one: where the two differ, how, and to which end."""
    theirs, ours = ask_both(referee, tmp_path, special.data(), special.start)
    assert special.theirs in (outcome(theirs), "any"), theirs
    match special.ours:
        case "same":
            assert outcome(ours) == "ok", ours
            assert plain(ours) == plain(theirs)
        case "raises":
            assert outcome(ours) == "raises", ours
        case wanted:
            assert outcome(ours) == "ok", ours
            assert plain(ours) == plain(wanted)
            assert outcome(theirs) != "ok" or plain(theirs) != plain(wanted), "no difference: say so"


#: What TensorFlow aborts at and ours does: elements and entries that are scalars, numbers near 0.
EXTENSIONS = {"element of scalars", "value of scalars", "tiny number"}
#: What TensorFlow answers by what happens to be in memory: no two runs are alike.
UNDEFINED = {"no index of scalars", "no such chunk"}


@pytest.mark.parametrize("block", range(4))
def test_random_files_are_merged_as_tensorflow_does_or_refused(referee, tmp_path, block):
    """Where TensorFlow merges, ours does, to the same; where it refuses or dies, ours raises, or goes beyond it."""
    seen: collections.Counter = collections.Counter()
    for seed in range(100 * block, 100 * block + 100):
        case = RandomCase(seed)
        theirs, ours = ask_both(referee, tmp_path, case.data())
        seen[outcome(theirs), outcome(ours)] += 1
        where = f"seed {seed} {sorted(case.odd)}\n{case.message}\ntheirs {theirs}\nours {ours}"
        if case.odd & UNDEFINED:
            assert outcome(ours) == "raises", where
        elif outcome(theirs) == "ok":
            assert outcome(ours) == "ok", where
            assert plain(ours) == plain(theirs), where
        elif outcome(ours) == "ok":
            assert case.odd & EXTENSIONS, where
    assert seen["ok", "ok"] >= 60
    assert seen["abort", "raises"] >= 5
    assert seen["error", "raises"] >= 1


def test_random_files_of_a_compiled_type(referee, tmp_path):
    kind = message_class(CompiledCase.full_name)
    seen: collections.Counter = collections.Counter()
    for seed in range(150):
        case = CompiledCase(seed)
        data = case.data()
        ours = kind()
        try:
            theirs = kind.FromString(referee.read_string(data, CompiledCase.full_name))
        except Aborted:
            with pytest.raises(PparseError):
                Merger.read_chunked_from_string(data, ours)
            seen["abort"] += 1
            continue
        Merger.read_chunked_from_string(data, ours)
        assert plain(ours) == plain(theirs), f"seed {seed}\n{case.message}"
        seen["ok"] += 1
    assert seen["ok"] >= 90


def test_random_trees_in_memory(referee):
    """TensorFlow takes the entries as they are listed."""
    full_name = CompiledCase.full_name
    seen: collections.Counter = collections.Counter()
    for seed in range(200):
        case = CompiledCase(seed, messages_only=True)
        chunks = [(full_name, chunk.SerializeToString()) for chunk in case.chunks]
        ours = message_class(full_name)()
        try:
            theirs = referee.merge(chunks, case.message.SerializeToString(), full_name)
        except Aborted:
            with pytest.raises(PparseError):
                Merger.merge(case.chunks, case.message, ours, in_listed_order=True)
            seen["abort"] += 1
            continue
        Merger.merge(case.chunks, case.message, ours, in_listed_order=True)
        assert plain(ours) == plain(type(ours).FromString(theirs)), f"seed {seed}\n{case.message}"
        seen["ok"] += 1
    assert seen["ok"] >= 120


def test_in_place_of_the_metadata(referee, tmp_path):
    """Part of a file, by metadata that name part of its chunks."""
    fixture = FIXTURES["const_chunked"]
    prefix = (DATA / "const_chunked" / fixture["file"]).with_suffix("")
    with RecordReader(prefix.with_suffix(".cpb")) as reader:
        *_, last = reader.read_records()
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(last)
    del metadata.message.chunked_fields[1:]
    theirs = referee.read_partial(prefix, metadata.SerializeToString(), fixture["message_type"])
    ours = message_class(fixture["message_type"])()
    Merger.read_partial(prefix, metadata, ours)
    assert plain(ours) == plain(type(ours).FromString(theirs))
    assert ours.ByteSize() < 40_000


def test_a_whole_message_beside_its_chunks(referee, tmp_path):
    """A .cpb goes before a .pb."""
    kind = all_class()
    (tmp_path / "case.pb").write_bytes(kind(string="whole").SerializeToString())
    prefix = tmp_path / "case"
    ours = kind()
    Merger.read(prefix, ours)
    assert ours.string == "whole"
    assert plain(kind.FromString(referee.read(prefix, ALL, descriptors()))) == plain(ours)
    theirs, ours = ask_both(referee, tmp_path, write([kind(string="chunk")], tree(0)))
    assert plain(theirs) == plain(ours) == plain(kind(string="chunk"))
