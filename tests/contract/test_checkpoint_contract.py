"""The parser of TensorFlow checkpoints passes the contract: an index, and a file of version 1."""

from __future__ import annotations

from pparse.parsers.checkpoint.parser import CheckpointParser
from tests.checkpoint_files import entry, header, message, number, table
from tests.sparse_contract import SparseContract


def index(**how: object) -> bytes:
    """Return the index of five tensors, one of them in parts."""
    pairs = [(b"", header())]
    pairs += [(b"layer%d/w" % count, entry(1, (2, 3), 24 * count, 24, bytes(24))) for count in range(4)]
    pairs += [(b"\xff\xfe", entry(7, (2,), 96, 9, bytes(9)))]
    return table(sorted(pairs), **how)  # type: ignore[arg-type]


def values() -> bytes:
    """Return a file of version 1 with one tensor."""
    extent = message(4, message(1, b""))
    about = message(1, message(1, b"w") + message(2, message(2, number(1, 2))) + number(3, 1) + extent)
    content = message(1, b"w") + message(2, message(1, b"")) + message(3, message(5, bytes(8)))
    return table([(b"", message(1, about)), (b"\0w\0\1\1\1\x80\x7f", message(2, content))])


class TestCheckpoint(SparseContract):
    parser = CheckpointParser
    changes = (0x00, 0x7F, 0xFF)
    listing_share = 2  # each block is read to count its entries, and to list them: an index holds nothing else
    samples = {"plain": index(), "values": values()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        return len(prefix) == len(self.samples[name])

    def large(self) -> bytes:
        pairs = [(b"", header())]
        pairs += [(b"%06d" % count + b"x" * 240, entry(1, (1,), 4 * count, 4, bytes(4))) for count in range(5_000)]
        return table(pairs, per_block=4_000)
