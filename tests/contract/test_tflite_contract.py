from __future__ import annotations

from struct import pack

from pparse.parsers.flatbuffers.formats import TfliteParser
from tests.flatbuffers_files import tflite
from tests.sparse_contract import SparseContract

TENSORS = [
    ("x", "f4", (1, 4), None),
    ("w", "i1", (2, 4), bytes(range(8))),
    ("b", "f4", (2,), pack("<2f", 1, 2)),
    ("", "i8", (), pack("<q", 7)),
    ("y", "f4", (1, 2), None),
]


def model(**how: object) -> bytes:
    return tflite(TENSORS, [(0, [0, 1, 2], [4])], codes=[9], inputs=[0], outputs=[4], **how)


class TestTflite(SparseContract):
    parser = TfliteParser
    changes = (0xFF,)
    samples = {
        "shared": model(quantised={1: ([0.5, 0.25], [0, 1], 0)}),
        "apart": model(share=False),
        "far": model(far=True),
    }

    def is_whole(self, name: str, prefix: bytes) -> bool:
        # Zeros that pad the last buffer behind the FlatBuffer, or a zero that ends nothing.
        return not any(self.samples[name][len(prefix) :]) and len(self.samples[name]) - len(prefix) < 16

    def large(self) -> bytes:
        return tflite([(f"t{number}", "f4", (1 << 18,), bytes(1 << 20)) for number in range(9)])
