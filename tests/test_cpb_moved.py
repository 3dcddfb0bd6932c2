"""Chunks of a file that bytes were taken out of, or put into: the right names, or none."""

from __future__ import annotations

import random

import pytest

import pparse
from pparse.errors import MalformedError
from pparse.findings import Status
from pparse.parsers.cpb.metadata import ChunkInfo, chunks_moved
from pparse.proto_splitter import Merger
from pparse.proto_splitter.stream_merge import merge_to_file
from pparse.proto_splitter.stream_split import split_file
from pparse.protos import message_class
from pparse.recovery.salvage import salvage
from pparse.recovery.target import Target
from pparse.riegeli import RecordReader, RecordWriter

GRAPH = message_class("tensorflow.GraphDef")
COUNT, FLOATS = 8, 4096


def content_of(number: int) -> bytes:
    return random.Random(number).randbytes(4 * FLOATS)


@pytest.fixture(scope="module")
def chunked(tmp_path_factory) -> bytes:
    """A graph of constants of one size, each a chunk of its own; larger than a block of the file."""
    graph = GRAPH()
    for number in range(COUNT):
        tensor = graph.node.add(name=f"w{number}", op="Const").attr["value"].tensor
        tensor.dtype = 3
        tensor.tensor_shape.dim.add(size=FLOATS)
        tensor.tensor_content = content_of(number)
    folder = tmp_path_factory.mktemp("chunked")
    (folder / "g.pb").write_bytes(graph.SerializeToString(deterministic=True))
    split_file(
        str(folder / "g.pb"),
        str(folder / "c"),
        message="tensorflow.GraphDef",
        max_size="8KiB",
        writer_options="uncompressed",
    )
    return (folder / "c.cpb").read_bytes()


def found_in(source) -> dict[str, bytes]:
    """The constants that are called complete."""
    with pparse.view(source, format="cpb" if isinstance(source, bytes) else None) as viewer:
        return {
            tensor.name: tensor.numpy().tobytes() for tensor in viewer.tensors() if tensor.status is Status.COMPLETE
        }


def assert_right(found: dict[str, bytes]) -> None:
    assert all(value == content_of(int(name[1:])) for name, value in found.items())


def recover(content: bytes, folder, name: str = "g.cpb") -> dict[str, bytes]:
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pparse.open(folder / name) as document, Target(folder / "out", max_bytes=1 << 24) as target:
        salvage(document, target, name, report=lambda _file: None, keep=True)
    out = folder / "out"
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("length", [1, 7, 100])
def test_bytes_taken_out_of_a_chunk_cost_that_chunk_alone(chunked, tmp_path, length):
    at = chunked.index(content_of(2)) + 5000
    damaged = chunked[:at] + chunked[at + length :]
    wanted = {f"w{number}" for number in range(COUNT) if number != 2}
    found = found_in(damaged)
    assert set(found) == wanted
    assert_right(found)
    files = recover(damaged, tmp_path / "first")
    assert {"g.cpb", "g.pb", "g.rest.json"} == set(files)
    again = recover(files["g.cpb"], tmp_path / "second")  # what was saved is sound
    assert again == {}
    for saved in (found_in(files["g.cpb"]), found_in(tmp_path / "first" / "out" / "g.pb")):
        assert set(saved) == wanted
        assert_right(saved)


def test_bytes_put_into_a_chunk_cost_that_chunk_alone(chunked):
    at = chunked.index(content_of(4)) + 700
    found = found_in(chunked[:at] + b"\xaa" * 9 + chunked[at:])
    assert set(found) == {f"w{number}" for number in range(COUNT) if number != 4}
    assert_right(found)


def test_no_removal_gives_a_chunk_another_name(chunked):
    rng = random.Random(1)
    for _ in range(40):
        at, length = rng.randrange(64, len(chunked)), rng.choice((1, 7, 24, 40, 512, 4096, 16384, 16424, 16448, 30000))
        try:
            found = found_in(chunked[:at] + chunked[at + length :])
        except pparse.PparseError:
            continue
        assert_right({name: value for name, value in found.items() if name.startswith("w")})


def without(content: bytes, gone: bytes) -> bytes:
    """The records of a file but one, with the metadata as they were."""
    import io

    out = io.BytesIO()
    with RecordReader(content) as reader, RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        for record in reader:
            if record != gone:
                writer.write_record(record)
    return out.getvalue()


def test_metadata_of_another_file_are_refused(chunked, tmp_path):
    """A record is gone without a trace: all chunks are whole, and all behind it would have the names of others."""
    content = without(chunked, content_of(3))
    found = found_in(content)
    assert not any(name.startswith("w") for name in found)
    (tmp_path / "g.cpb").write_bytes(content)
    with pytest.raises(MalformedError, match="do not belong to this file"):
        merge_to_file(tmp_path / "g.cpb", str(tmp_path / "out.pb"))
    with pytest.raises(MalformedError, match="do not belong to this file"):
        Merger.read(str(tmp_path / "g"), GRAPH())


def test_chunks_that_make_no_message_are_saved_without_the_old_metadata(chunked, tmp_path):
    files = recover(without(chunked, content_of(3)), tmp_path / "first")
    with RecordReader(chunked) as reader:
        records = list(reader)
    assert set(files) >= {"g.cpb.partial/chunks.riegeli", "g.cpb.partial/chunk-metadata.binpb"}
    assert "g.cpb" not in files
    path = tmp_path / "first" / "out" / "g.cpb.partial" / "chunks.riegeli"
    with RecordReader(path) as reader:
        assert list(reader) == [record for record in records[:-1] if record != content_of(3)]
    assert files["g.cpb.partial/chunk-metadata.binpb"] == records[-1]


def test_a_file_called_riegeli_is_no_chunked_proto(chunked, tmp_path):
    (tmp_path / "chunks.riegeli").write_bytes(chunked)
    with pparse.open(tmp_path / "chunks.riegeli") as document:
        assert document.format == "riegeli"
    with pparse.open(tmp_path / "chunks.riegeli", format="cpb") as document:
        assert document.format == "cpb"


# -- the proof ---------------------------------------------------------------------------------------------------------


def infos(*pairs: tuple[int, int]) -> list[ChunkInfo]:
    return [ChunkInfo(1, size, position) for position, size in pairs]


WHOLE = infos((64, 50), (200, 80), (400, 80), (600, 80), (800, 80))


def test_chunks_behind_the_damage_moved_by_one_distance():
    moved = chunks_moved(WHOLE, [(64, 50), (393, 80), (593, 80), (793, 80)], [(200, 393)])
    assert moved == {64: 64, 200: None, 400: 393, 600: 593, 800: 793}


def test_chunks_that_moved_by_several_distances_are_not_believed():
    assert chunks_moved(WHOLE, [(64, 50), (393, 80), (590, 80), (793, 80)], [(200, 393)]) is None


def test_chunks_of_other_sizes_are_not_believed():
    assert chunks_moved(WHOLE, [(64, 51), (393, 80), (593, 80), (793, 80)], [(200, 393)]) is None
    assert chunks_moved(WHOLE, [(64, 50), (393, 81), (593, 80), (793, 80)], [(200, 393)]) is None


def test_a_distance_as_large_as_a_chunk_is_not_believed():
    """A whole chunk may be gone then, with no stretch that tells of it."""
    assert chunks_moved(WHOLE, [(64, 50), (200, 80), (450, 80), (650, 80)], [(300, 450)]) is None


def test_chunks_between_two_stretches_are_placed_where_one_way_fits():
    found = [(64, 50), (400, 80), (793, 80)]
    assert chunks_moved(WHOLE, found, [(200, 400), (500, 793)]) == {64: 64, 200: None, 400: 400, 600: None, 800: 793}
    found = [(64, 50), (397, 80), (793, 80)]
    assert chunks_moved(WHOLE, found, [(200, 397), (500, 793)]) == {64: 64, 200: None, 400: None, 600: None, 800: 793}


def test_chunks_whose_sizes_tell_them_apart_may_have_moved_any_distance():
    """More bytes came in than a chunk takes, at two places: each record can be one chunk only."""
    whole = infos((64, 50), (200, 81), (400, 82), (600, 83), (800, 84))
    found = [(64, 50), (4496, 82), (9000, 84)]
    moved = chunks_moved(whole, found, [(200, 4496), (4700, 9000)])
    assert moved == {64: 64, 200: None, 400: 4496, 600: None, 800: 9000}


def test_of_chunks_of_one_size_none_is_placed_that_may_be_the_other():
    whole = infos((64, 50), (200, 80), (400, 80), (600, 81), (800, 80))
    found = [(64, 50), (5000, 80), (5200, 81)]
    moved = chunks_moved(whole, found, [(200, 5000)])
    assert moved == {64: 64, 200: None, 400: None, 600: 5200, 800: None}


def test_a_record_that_is_none_of_the_chunks_makes_the_others_doubtful():
    whole = infos((64, 50), (200, 81), (400, 82), (600, 83))
    assert chunks_moved(whole, [(64, 50), (5000, 82), (5200, 99)], [(200, 5000)]) is None
    assert chunks_moved(whole, [(64, 50), (5000, 83), (5200, 82)], [(200, 5000)]) is None  # in another order


@pytest.fixture(scope="module")
def uneven() -> tuple[bytes, dict[str, bytes]]:
    """A graph of constants of different sizes, each a chunk of its own; and the constants."""
    import tempfile
    from pathlib import Path

    graph, truth = GRAPH(), {}
    for number in range(COUNT):
        tensor = graph.node.add(name=f"w{number}", op="Const").attr["value"].tensor
        tensor.dtype = 3
        tensor.tensor_shape.dim.add(size=1000 + number)
        tensor.tensor_content = truth[f"w{number}"] = random.Random(number).randbytes(4 * (1000 + number))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "g.pb").write_bytes(graph.SerializeToString(deterministic=True))
        split_file(
            f"{folder}/g.pb",
            f"{folder}/c",
            message="tensorflow.GraphDef",
            max_size="2KiB",
            writer_options="uncompressed",
        )
        return Path(folder, "c.cpb").read_bytes(), truth


@pytest.mark.parametrize("length", [-3000, 5000, 70_000])
def test_more_bytes_than_a_chunk_takes_cost_the_chunk_they_are_in_alone(uneven, length):
    content, truth = uneven
    at = content.index(truth["w3"]) + 900
    new = random.Random(1).randbytes(max(0, length))
    found = found_in(content[:at] + new + content[at + max(0, -length) :])
    assert found == {name: value for name, value in truth.items() if name != "w3"}
