"""The small format of the guide passes the contract: what the interface does for a format, it does right."""

from __future__ import annotations

from struct import pack

from tests.small_files import ARRAY, FLOAT32, TEXT, UINT32, SmallParser, SmallViewer, array, small_file, text, texts
from tests.sparse_contract import SparseContract


def nested(depth: int) -> bytes:
    """Encode an array in an array in …"""
    return b"".join(pack("<IQ", ARRAY, 1) for _ in range(depth - 1)) + texts(["deep"])


class TestSmall(SparseContract):
    parser = SmallParser
    viewer = SmallViewer
    samples = {
        "model": small_file(
            [
                ("name", TEXT, text("x")),
                ("n", UINT32, pack("<I", 7)),
                ("long", TEXT, text("y" * 300)),
                ("words", ARRAY, texts(["a", "", "bb"])),
                ("numbers", ARRAY, array(UINT32, [pack("<I", number) for number in range(5)])),
                ("none", ARRAY, texts([])),
                ("none", UINT32, pack("<I", 0)),
            ],
            {"w": ((2, 3), 0), "b": ((3,), 32)},
            pack("<6f", *range(6)) + bytes(8) + pack("<3f", 7, 8, 9),
        ),
        "nested": small_file(
            [
                ("deep", ARRAY, array(ARRAY, [texts(["q"] * 3), array(ARRAY, [texts(["z"])]), array(UINT32, [])])),
                ("last", FLOAT32, pack("<f", 1.5)),
            ]
        ),
        "empty": small_file(),
    }

    def is_whole(self, name: str, prefix: bytes) -> bool:
        return len(prefix) == len(self.samples[name])

    def large(self) -> bytes:
        tensors = {f"t{number}": ((1 << 18,), number << 20) for number in range(9)}
        return small_file([("words", ARRAY, texts(["word"] * 1000))], tensors, bytes(9 << 20))

    def nested(self, depth: int) -> bytes:
        return small_file([("deep", ARRAY, nested(depth))])
