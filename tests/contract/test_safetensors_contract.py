from __future__ import annotations

import json
import struct

from pparse.parsers.safetensors.parser import SafetensorsParser
from tests.sparse_contract import SparseContract


def build(header: dict[str, object], data: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class TestSafetensors(SparseContract):
    parser = SafetensorsParser
    samples = {
        "two": build(
            {
                "__metadata__": {"format": "pt"},
                "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
                "none": {"dtype": "U8", "shape": [0, 3], "data_offsets": [32, 32]},
            },
            bytes(range(32)),
        ),
        "empty": build({}, b""),
    }

    def large(self) -> bytes:
        rows = {
            f"w{n}": {"dtype": "U8", "shape": [1 << 20], "data_offsets": [n << 20, (n + 1) << 20]} for n in range(9)
        }
        return build(rows, bytes(9 << 20))
