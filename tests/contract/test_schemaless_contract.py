"""The parser of FlatBuffers of any schema passes the contract: without one, and with that of compiled schemas."""

from __future__ import annotations

from pathlib import Path

from pparse.parsers.flatbuffers.schemaless import SchemalessParser
from tests.flatbuffers_files import Builder
from tests.sparse_contract import SparseContract

DATA = Path(__file__).parent.parent / "data" / "flatbuffers"


def texts() -> tuple[bytes, set[int], set[int]]:
    """Return a file, where its parts begin, and which of them are vectors."""
    build, places = Builder(), []

    def put(place: int) -> int:
        places.append(place)
        return place

    names = [put(build.text(f"a text of some length {number}")) for number in range(4)]
    kids = [put(build.table(name=(0, "@", name), size=(1, "I", 7))) for name in names[:2]]
    listed = put(build.references(kids))
    named = put(build.references(names[2:]))
    root = build.table(on=(0, "B", 1), kids=(1, "@", listed), names=(3, "@", named), ratio=(4, "d", 0.1))
    content = build.finish(root)
    return content, {len(content) - place for place in places}, {len(content) - place for place in (listed, named)}


TEXTS, BEGINS, VECTORS = texts()


class TestSchemaless(SparseContract):
    parser = SchemalessParser
    changes = (0x04, 0xFF)
    samples = {"texts": TEXTS, "schema": (DATA / "monster.bfbs").read_bytes()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        if name == "schema":
            return len(self.samples[name]) - len(prefix) < 4  # the zero of the last text, and those that align
        # Where nothing but the length of a part, and a few of its bytes, is left of it, it is like what aligns the end.
        # The two elements of a vector may have eight bytes each.
        left = {begin: len(prefix) - begin for begin in BEGINS}
        return any(0 <= rest <= (4 + 2 * 8 + 8 if begin in VECTORS else 8) for begin, rest in left.items())

    def large(self) -> bytes:
        build = Builder()
        blobs = [build.vector(bytes([number + 1]) * (1 << 20), 1 << 20) for number in range(9)]
        return build.finish(build.table(**{f"blob{slot}": (slot, "@", place) for slot, place in enumerate(blobs)}))
