"""The pickle parser passes the contract."""

from __future__ import annotations

import pickle
import pickletools

from pparse.findings import Status
from pparse.parsers.pickle.parser import PickleParser
from pparse.parsers.pickle.values import Call
from pparse.testing.contract import tree_of
from tests.pickle_samples import deep, samples
from tests.sparse_contract import SparseContract


def told(value: object) -> str:
    """Return a value as text; of an object the call, since state and items come behind it."""
    return f"{value.name}{value.args!r}" if isinstance(value, Call) else repr(value)


class TestPickle(SparseContract):
    parser = PickleParser
    samples = samples()
    changes = (0x00, 0x28, 0x30, 0x52, 0x62, 0x65, 0x68, 0xFF)

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

    def test_every_prefix(self) -> None:
        """What ends before the cut is there, and what stands at its path in the whole file has its value.

        It may stand at another path: whether two values become a tuple, or two items of a list, is told by opcodes that
        come later.
        """
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                scalars = [leaf for leaf in tree_of(extraction) if leaf.value is not None]
            by_path = {leaf.path: told(leaf.value) for leaf in scalars}
            for size in self.cuts(len(sample)):
                with self.open(sample[:size]) as cut:
                    leaves = [
                        leaf for leaf in tree_of(cut) if leaf.status is Status.COMPLETE and leaf.value is not None
                    ]
                    list(cut.check())
                wrong = [leaf for leaf in leaves if by_path.get(leaf.path, told(leaf.value)) != told(leaf.value)]
                assert not wrong, (name, size, wrong[:3])
                there = {(leaf.start, told(leaf.value)) for leaf in leaves}
                lost = [leaf for leaf in scalars if leaf.end < size and (leaf.start, told(leaf.value)) not in there]
                assert not lost, (name, size, lost[:3])

    def large(self) -> bytes:
        return pickle.dumps({"blobs": [bytes([nth]) * (1 << 20) for nth in range(9)], "name": "large"}, 4)

    def nested(self, depth: int) -> bytes:
        return deep(depth)
