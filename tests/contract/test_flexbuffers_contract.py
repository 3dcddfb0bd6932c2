"""The parser of FlexBuffers passes the contract."""

from __future__ import annotations

from pparse.parsers.flatbuffers.flexbuffers import FlexBuffersParser
from tests.flatbuffers_files import Flex, Raw
from tests.sparse_contract import SparseContract

RECORD = {"identifier": 300, "on": True, "sizes": Raw(11, "h", 1, 2, 3), "name": "first", "none": None, "raw": b"abc"}


class TestFlexBuffers(SparseContract):
    parser = FlexBuffersParser
    changes = (0x01, 0x28, 0xFF)
    samples = {
        "map": Flex({"records": [RECORD, {"x": 0.1}], "text": "t" * 300, "tags": Raw(14, "", b"a", b"b")}).content,
        "wide": Flex([RECORD, Raw(8, "d", 0.1), [[]], Raw(18, "f", 1, 2)], 3).content,
    }

    def large(self) -> bytes:
        return Flex({f"blob{number}": bytes([number]) * (1 << 20) for number in range(9)}).content

    def nested(self, depth: int) -> bytes:
        return b"\0\1\1\x28" + b"\1\3\x28" * (depth - 2) + b"\2\x28\1"
