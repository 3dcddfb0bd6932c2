from __future__ import annotations

import struct

from pparse.parsers.tfrecord import TfrecordParser
from tests.sparse_contract import SparseContract
from tests.tfrecord_files import example, sequence_example, tfrecord


class TestTfrecord(SparseContract):
    parser = TfrecordParser
    # Every byte is changed to each of these, and all is read each time.
    changes = (0x01, 0xFF)
    samples = {
        "bytes": tfrecord([b"one", b"", b"three", b""]),
        "examples": tfrecord([example(label=[3, -1], name=[b"a"], w=[0.5]), example(label=[4])]),
        "empty records": tfrecord([b""] * 3),
    }

    def large(self) -> bytes:
        return tfrecord([bytes(1_500_000)] * 6)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A file may end behind any record, or be empty."""
        at = 0
        while len(prefix) - at >= 8:
            at += 16 + struct.unpack_from("<Q", prefix, at)[0]
        return at == len(prefix)


class TestSequences(TestTfrecord):
    # The beginning of one could be an Example: until there are lists, only the numbers of fields tell.
    options = {"message": "tensorflow.SequenceExample"}
    samples = {"sequences": tfrecord([sequence_example({"id": [b"x"]}, {"tokens": [[1, 2], [3]]})])}
