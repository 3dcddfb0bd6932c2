from __future__ import annotations

from pparse.parsers.milblob import MilBlobParser
from tests.coreml_files import program
from tests.sparse_contract import SparseContract

CONTENT = program({"a": (11, (3,), bytes(12)), "b": (31, (70,), bytes(range(70))), "c": (10, (2,), b"\0<\0@")})[1]


class TestMilBlob(SparseContract):
    parser = MilBlobParser
    changes = (0x00, 0xFF, 0x40)
    samples = {"three": CONTENT}

    def large(self) -> bytes:
        return program({f"w{number}": (31, (1 << 20,), bytes(1 << 20)) for number in range(9)})[1]
