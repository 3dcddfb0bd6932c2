from __future__ import annotations

from google.protobuf.message import DecodeError

from pparse.parsers.paddle import PaddleParser
from pparse.protos import message_class
from tests.paddle_files import program
from tests.sparse_contract import SparseContract


class TestPaddle(SparseContract):
    parser = PaddleParser
    changes = (0x00, 0x0A, 0x80)
    samples = {"small": program(1).SerializeToString()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            message_class("paddle.framework.proto.ProgramDesc").FromString(prefix)
        except DecodeError:
            return False
        return True

    def large(self) -> bytes:
        made = program(1)
        made.blocks[0].ops[1].attrs.add(name="text", type=2, s="a" * (9 << 20))
        return made.SerializeToString()
