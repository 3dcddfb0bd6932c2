from __future__ import annotations

import json

from google.protobuf.message import DecodeError

from pparse.parsers.paddle.json_program import PaddleJsonParser
from pparse.parsers.paddle.params import PaddleParamsParser
from pparse.parsers.paddle.parser import PaddleParser
from pparse.protos import message_class
from tests.paddle_files import BFLOAT, FLOAT, INT64, json_program, program, record
from tests.sparse_contract import SparseContract


class TestPaddle(SparseContract):
    parser = PaddleParser
    changes = (0x00, 0x0A, 0x80)
    samples = {"small": program(1, stored=False).SerializeToString()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            message_class("paddle.framework.proto.ProgramDesc").FromString(prefix)
        except DecodeError:
            return False
        return True

    def large(self) -> bytes:
        made = program(1, stored=False)
        made.blocks[0].ops[1].attrs.add(name="text", type=2, s="a" * (9 << 20))
        return made.SerializeToString()


RECORDS = (
    record(FLOAT, (2, 3), b"".join(bytes((number, 0, 128, 63)) for number in range(6))),
    record(INT64, (), b"\1\2\3\4\5\6\7\x08"),
    record(BFLOAT, (0, 4), b""),
    record(BFLOAT, (300,), bytes(600), levels=(16,)),
)


class TestPaddleParams(SparseContract):
    parser = PaddleParamsParser
    changes = (0x00, 0x01, 0x10, 0x80)
    samples = {"small": b"".join(RECORDS)}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A file may end behind any record."""
        return any(prefix == b"".join(RECORDS[:count]) for count in range(1, len(RECORDS)))

    def large(self) -> bytes:
        return b"".join(record(FLOAT, (512, 512), bytes(1 << 20)) for _ in range(9))


class TestPaddleJson(SparseContract):
    parser = PaddleJsonParser
    changes = (0x00, 0x22, 0x7D)
    samples = {"small": json.dumps(json_program({})).encode()}
