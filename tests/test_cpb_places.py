"""Chunked protos whose metadata put a chunk where the message has no place for it: a constant that lacks its values
then is not one of zeros."""

from __future__ import annotations

import json

import pytest

import pparse
from pparse import Status
from pparse.cli import main
from pparse.errors import DamagedTensorError, PparseError
from pparse.parsers.cpb import metadata as cpb_metadata
from pparse.protos import message_class
from pparse.riegeli import RecordReader, RecordWriter
from tests import sweep
from tests.riegeli_fixtures import chunk_table
from tests.truth.salvaged import values_in
from tests.truth.samples import load
from tests.truth.samples_proto import read_chunked
from tests.work_counter import instructions

SAMPLE = load("cpb-plain")
OPTIONS = {"message": SAMPLE.message}
ARGUMENT = f"-Omessage={SAMPLE.message}"


def indices(metadata):
    for field in metadata.message.chunked_fields:
        for tag in field.field_tag:
            if tag.HasField("index"):
                yield tag


def beyond(metadata) -> None:
    next(iter(indices(metadata))).index = 1 << 62


def far_beyond(metadata) -> None:
    next(iter(indices(metadata))).index = (1 << 64) - 1


def at_the_first(metadata) -> None:
    for tag in indices(metadata):
        tag.index = 0


def in_no_field(metadata) -> None:
    """A chunk goes to the element of a field that is no list."""
    field = metadata.message.chunked_fields[1]
    field.field_tag.add().index = 3


@pytest.fixture
def model(tmp_path):
    """Return a function that writes the sample with metadata that were changed."""

    def write(change) -> str:
        metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")()
        with RecordReader(SAMPLE.content) as reader:
            metadata.ParseFromString(list(reader)[-1])
        change(metadata)
        path = tmp_path / "m.cpb"
        path.write_bytes(
            SAMPLE.content[: [chunk for chunk in chunk_table(SAMPLE.content) if chunk.num_records][-1].begin]
        )
        with RecordWriter(str(path), append=True, options="uncompressed") as writer:
            writer.write_record(metadata.SerializeToString())
        return str(path)

    return write


def recovered(path: str, tmp_path) -> dict[str, dict]:
    assert main(["check", "-q", path, ARGUMENT]) == 4
    assert main(["recover", "-q", path, "-o", str(tmp_path / "o"), ARGUMENT]) == 4
    report = json.loads((tmp_path / "o/RECOVERY.json").read_text())
    return {entry["path"]: entry for entry in report["files"]}


@pytest.mark.parametrize("change", [beyond, far_beyond, at_the_first])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_constant_whose_chunk_went_elsewhere_does_not_read_as_zeros(model, change, backwards):
    with pparse.view(model(change), options=OPTIONS) as view:
        names = sorted(view, reverse=backwards)
        for name in names:
            tensor = view[name]
            if tensor.status is Status.COMPLETE:
                assert tensor.numpy().tobytes() == SAMPLE.values[name].content
            else:
                with pytest.raises(DamagedTensorError):
                    tensor.numpy()
        assert view.status is Status.DAMAGED


@pytest.mark.parametrize("change", [beyond, far_beyond, at_the_first])
def test_chunks_that_have_no_place_are_saved_as_chunks_and_not_as_a_model(model, change, tmp_path):
    files = recovered(model(change), tmp_path)
    assert "m.cpb.partial/chunks.riegeli" in files
    assert not [path for path in files if path.endswith((".cpb", ".pb"))]
    assert {entry["status"] for entry in files.values()} == {"damaged"}
    with RecordReader(str(tmp_path / "o/m.cpb.partial/chunks.riegeli")) as reader:
        saved = list(reader)
    with RecordReader(SAMPLE.content) as reader:
        assert saved == list(reader)[:-1]


def test_a_chunk_for_an_element_of_what_is_no_list_is_found(model, tmp_path):
    path = model(in_no_field)
    with pparse.view(path, options=OPTIONS) as view:
        assert view.parser.misplaced() is not None
        for name in view:
            try:
                content = view[name].numpy().tobytes()
            except PparseError:
                continue
            assert content == SAMPLE.values[name].content


def test_sound_metadata_have_a_place_for_every_chunk():
    for name in ("cpb-plain", "cpb-zstd", "cpb-transposed"):
        sample = load(name)
        with pparse.view(sample.content, options={"message": sample.message}) as view:
            assert view.parser.misplaced() is None


def test_a_chunk_of_no_known_type_is_found_and_mended(model, tmp_path):
    def junk(metadata) -> None:
        metadata.chunks[1].type = 77

    path = model(junk)
    with pparse.view(path, options=OPTIONS) as view:
        assert [tensor.name for tensor in view.tensors() if tensor.status is not Status.COMPLETE] == ["layer0/kernel"]
    files = recovered(path, tmp_path)
    assert files["m.cpb"]["status"] == "damaged"
    truth = {name: value.content for name, value in SAMPLE.values.items()}
    assert read_chunked(tmp_path / "o/m.cpb", SAMPLE.message) == truth
    assert values_in(SAMPLE, tmp_path / "o/m.pb") == truth


def test_tags_of_thousands_of_chunked_fields_are_parsed_once(model):
    """Each level of the message, and each pass over it, asks for them again."""

    def times(count: int):
        def change(metadata) -> None:
            for _ in range(count):
                metadata.message.chunked_fields.add().CopyFrom(metadata.message.chunked_fields[1])

        return change

    def work(count: int) -> int:
        with pparse.open(model(times(count)), options=OPTIONS) as document:
            return instructions(lambda: list(document.check()), cpb_metadata)

    assert work(sweep.scaled(600, 2)) < 3 * work(sweep.scaled(300, 2))


def test_tags_give_way_to_what_needs_the_budget(model):
    with pparse.view(model(lambda metadata: None), options=OPTIONS, budget="1MiB") as view:
        first = {tensor.name: tensor.numpy().tobytes() for tensor in view.tensors()}
        with view.root.extraction.session.budget.charge((1 << 20) - (256 << 10), "all that there is"):
            pass
        assert {tensor.name: tensor.numpy().tobytes() for tensor in view.tensors()} == first
    assert first == {name: value.content for name, value in SAMPLE.values.items()}
