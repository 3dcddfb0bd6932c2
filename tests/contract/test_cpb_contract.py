from __future__ import annotations

from pparse.parsers.cpb.parser import CpbParser
from tests.interop.tensorflow.chunked import ALL, NUMBER, At, Key, all_class, descriptors, tree, write
from tests.sparse_contract import SparseContract


def body(**values):
    return all_class()(**values)


BASE = body(int32=5, string="base", many=[body(int64=1)], many_int32=[1, 2])
FIELDS = (
    ((NUMBER["one"],), tree(1)),
    ((NUMBER["many"], At(0), NUMBER["bytes"]), tree(2)),
    ((NUMBER["by_string"], Key(s="k")), tree(3, ((NUMBER["double"],), tree(4)))),
)
CHUNKS = [BASE, body(bool=True), b"\xff\0", body(uint32=7), b"0.5"]


class TestCpb(SparseContract):
    parser = CpbParser
    options = {"message": ALL, "descriptor": descriptors()}
    # Every byte is changed to each of these, and all is decoded each time.
    changes = (0x00, 0xFF)
    samples = {
        "plain": write(CHUNKS, tree(0, *FIELDS)),
        "zstd": write(CHUNKS, tree(0, *FIELDS), options="zstd"),
    }


class TestCpbInSeveralChunks(TestCpb):
    changes = (0x01,)
    samples = {"chunks": write(CHUNKS[:2], tree(0, FIELDS[0]), options="uncompressed,chunk_size:1")}
