"""The pickle parser passes the contract."""

from __future__ import annotations

import pickle
import pickletools
from typing import TYPE_CHECKING

from pparse.parsers.pickle.parser import PickleParser
from pparse.testing import ParserContract
from tests.pickle_samples import deep, samples

if TYPE_CHECKING:
    from collections.abc import Iterable


class TestPickle(ParserContract):
    parser = PickleParser
    samples = samples()
    changes = (0x00, 0x28, 0x2E, 0x30, 0x32, 0x52, 0x5D, 0x62, 0x65, 0x68, 0x80, 0x94, 0xFF)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """Whether pickles end at the end of the prefix: a file may have one pickle more, or not."""
        at = 0
        while at < len(prefix):
            try:
                *_, (opcode, _, last) = pickletools.genops(prefix[at:])
            except Exception:
                return False
            if opcode.name != "STOP":
                return False
            at += last + 1
        return at > 0

    def large(self) -> bytes:
        return pickle.dumps({"blobs": [bytes([nth]) * (1 << 20) for nth in range(9)], "name": "large"}, 4)

    def nested(self, depth: int) -> bytes:
        return deep(depth)
