"""The parsers of MessagePack and of flax pass the contract."""

from __future__ import annotations

from pparse.findings import Status
from pparse.parsers.msgpack.flax import FlaxParser
from pparse.parsers.msgpack.parser import MsgpackParser
from pparse.testing.contract import tree_of
from tests.msgpack_samples import EVERYTHING, FLAX, NUMPY, array, encode
from tests.sparse_contract import SparseContract


class TestMsgpack(SparseContract):
    parser = MsgpackParser
    samples = {
        "everything": EVERYTHING,
        "records": encode([{"identifier": number, "on": True} for number in range(9)]),
        "numpy": NUMPY,
    }
    changes = (0xC1, 0xC9, 0xDD)

    def large(self) -> bytes:
        return encode({"blobs": [bytes([number]) * (1 << 20) for number in range(9)], "name": "large"})

    def nested(self, depth: int) -> bytes:
        return b"\x91" * depth + b"\xc0"


class TestStream(SparseContract):
    parser = MsgpackParser
    options = {"documents": "many"}
    samples = {
        "stream": encode({"identifier": [1, 2]}) + encode("text") + encode(7) + encode([]) + encode({"last": b"x"})
    }

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """Whether a value ends where the prefix does."""
        ends = [0]
        for value in ({"identifier": [1, 2]}, "text", 7, []):
            ends.append(ends[-1] + len(encode(value)))
        return len(prefix) in ends[1:]

    def test_a_second_value_makes_it_a_stream(self) -> None:
        with self.open(self.samples["stream"]) as told:
            wanted = tree_of(told)
        self.options = {}
        with self.open(self.samples["stream"]) as found:
            assert tree_of(found) == wanted
            assert found.status is Status.COMPLETE


class TestFlax(SparseContract):
    parser = FlaxParser
    changes = (0xC1, 0xC9, 0xDD)
    samples = {"model": FLAX}

    def large(self) -> bytes:
        return encode({f"layer{number}": array("uint8", [1 << 20], bytes(1 << 20)) for number in range(9)})

    def nested(self, depth: int) -> bytes:
        return b"\x81\xa1k" * depth + array("uint8", [1], b"x")
