"""What is split as a stream, from the file, TensorFlow's Merger puts together again; so do ours."""

from __future__ import annotations

import pytest

from pparse.errors import SplitError
from pparse.proto_splitter import Merger
from pparse.proto_splitter.stream_merge import merge_to_file
from pparse.proto_splitter.stream_split import split_file
from pparse.riegeli import RecordReader
from tests.interop.tensorflow import corpora
from tests.interop.tensorflow.chunked import ALL, CompiledCase, RandomCase, descriptors

GRAPH = "tensorflow.GraphDef"
CORPORA = {
    "constants": (GRAPH, corpora.constants),
    "typed constants": (GRAPH, corpora.typed_constants),
    "large nodes": (GRAPH, corpora.large_nodes),
    "many nodes": (GRAPH, corpora.many_nodes),
    "functions": (GRAPH, corpora.functions),
    "everything": (GRAPH, corpora.everything),
    "empty library": (GRAPH, corpora.empty_library),
    "SavedModel": ("tensorflow.SavedModel", corpora.saved_model),
    "signatures": (None, corpora.signatures),
    "object graph": (None, corpora.object_graph),
    "strings": (None, corpora.string_tree),
    "many fields": (None, corpora.many_fields),
}


def check(referee, tmp_path, message, full_name: str, limit: int, options: str, descriptor: bytes | None = None) -> int:
    """Split, and have three mergers put it together; return the number of chunks (-1: it cannot be split so small)."""
    source = tmp_path / "source.pb"
    raw = message.SerializeToString()
    source.write_bytes(raw)
    prefix = tmp_path / "split"
    try:
        report = split_file(
            str(source), str(prefix), message=full_name, descriptor=descriptor, max_size=limit, writer_options=options
        )
    except SplitError:
        assert not list(tmp_path.glob("split*"))
        return -1
    assert report.chunked == (len(raw) > limit)
    wanted = message.SerializeToString(deterministic=True)
    if report.chunked:
        sizes = [len(record) for record in RecordReader(report.path)][:-1]
        assert report.chunks == len(sizes)
        merge_to_file(report.path, str(tmp_path / "merged.pb"), message=full_name, descriptor=descriptor)
        again = type(message).FromString((tmp_path / "merged.pb").read_bytes())
        assert again.SerializeToString(deterministic=True) == wanted
    theirs = type(message).FromString(referee.read(prefix, full_name, descriptor or b""))
    assert theirs.SerializeToString(deterministic=True) == wanted
    ours = type(message)()
    Merger.read(str(prefix), ours)
    assert ours.SerializeToString(deterministic=True) == wanted
    for path in tmp_path.glob("split*"):
        path.unlink()
    return report.chunks


@pytest.mark.parametrize("name", CORPORA)
def test_streams_of_the_corpora_are_merged_by_tensorflow(referee, tmp_path, name):
    full_name, make = CORPORA[name]
    message = make()
    size = message.ByteSize()
    chunks = []
    for share, options in (
        (20, "uncompressed"),
        (7, "brotli:6"),
        (3, "zstd"),
        (1.2, "transpose,uncompressed"),
        (0.5, ""),
    ):
        limit = max(60, int(size / share))
        full = full_name or message.DESCRIPTOR.full_name
        chunks.append(check(referee, tmp_path, message, full, limit, options))
    assert max(chunks) > 1
    assert chunks[-1] == 0


@pytest.mark.parametrize("kind", ["compiled", "described"])
def test_streams_of_random_messages_are_merged_by_tensorflow(referee, tmp_path, kind):
    split = 0
    for seed in range(80):
        if kind == "compiled":
            message = CompiledCase(seed).body(3)
            full_name, descriptor = message.DESCRIPTOR.full_name, None
        else:
            message = RandomCase(seed).body(3)
            full_name, descriptor = ALL, descriptors()
        split += check(referee, tmp_path, message, full_name, 60 + 5 * seed, "uncompressed", descriptor) > 1
    assert split > 10
