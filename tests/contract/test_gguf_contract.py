from __future__ import annotations

from struct import pack

from pparse.parsers.gguf.parser import GgufParser
from tests.gguf_files import ARRAY, F32, Q8_0, TEXT, Writer
from tests.sparse_contract import SparseContract

PAIRS = [
    ("small", ("uint8", 7)),
    ("yes", ("bool", True)),
    ("name", "x"),
    ("general.alignment", ("uint32", 8)),
    ("w", ["a", "", "ü"]),
    ("numbers", ("float32", [1.0, 2.0])),
    ("none", ("int64", [])),
    ("none", []),
    ("deep", [["q"], [["z"]], [("int8", [1])]]),
]
TENSORS = [("w", (2, 1), F32, 0), ("q", (1, 32), Q8_0, 8), ("b", (), F32, 48), ("", (0, 3), F32, 48)]
DATA = pack("<2f", 1, 2) + bytes(range(34)).ljust(40, b"\0") + pack("<f", 7)


def mixed(pairs: list = PAIRS, **how: object) -> bytes:
    return Writer(**how).file(pairs, TENSORS, DATA, 8)


class TestGguf(SparseContract):
    parser = GgufParser
    changes = (0xFF,)
    samples = {
        "model": mixed(),
        "empty": Writer().file([], []),
        "words": Writer().file([("words", ["one", "two", "y" * 260])], []),
    }

    def is_whole(self, name: str, prefix: bytes) -> bool:
        return len(prefix) == len(self.samples[name])

    def large(self) -> bytes:
        tensors = [(f"t{number}", (1 << 18,), F32, number << 20) for number in range(9)]
        return Writer().file([("words", ["word"] * 1000)], tensors, bytes(9 << 20))

    def nested(self, depth: int) -> bytes:
        array = b"".join(pack("<IQ", ARRAY, 1) for _ in range(depth - 1)) + pack("<IQ", TEXT, 0)
        key = pack("<Q", 4) + b"deep" + pack("<I", ARRAY)
        return b"GGUF" + pack("<IQQ", 3, 0, 1) + key + array


class TestGgufOfOtherOrders(TestGguf):
    changes = (0x81,)
    samples = {"first": mixed(version=1, pairs=PAIRS[3:]), "big": mixed(order=">", pairs=PAIRS[3:])}
