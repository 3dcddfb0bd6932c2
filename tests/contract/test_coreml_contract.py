from __future__ import annotations

from google.protobuf.message import DecodeError

from pparse.parsers.coreml import CoremlParser
from pparse.protos import message_class
from tests.coreml_files import network, program
from tests.sparse_contract import SparseContract

WEIGHTS = {
    "a": {"shape": (2, 2), "floatValue": [1.0, 2.0, 3.0, 4.0]},
    "b": {"shape": (4, 1), "rawValue": b"\x1b", "bits": (2, [0.5, 1.5, 2.5, 3.5])},
    "c": {"shape": (1, 1), "float16Value": b"\0<"},
}
VALUES = {"n": (23, (2,), "ints", [1, -1]), "s": (2, (), "strings", ["valid"]), "h": (10, (1,), "bytes", b"\0<")}


class TestCoreml(SparseContract):
    parser = CoremlParser
    changes = (0x00, 0x0A, 0x80)
    samples = {"network": network(WEIGHTS).SerializeToString(), "program": program(VALUES)[0]}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            message_class("CoreML.Specification.Model").FromString(prefix)
        except DecodeError:
            return False
        return True

    def large(self) -> bytes:
        many = {f"l{number}": {"shape": (512, 512), "float16Value": bytes(1 << 19)} for number in range(18)}
        return network(many).SerializeToString()
