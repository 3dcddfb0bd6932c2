from __future__ import annotations

import io

from pparse.parsers.riegeli import RiegeliParser
from pparse.riegeli import RecordsMetadata, RecordWriter
from tests.riegeli_fixtures import chunk_table, raw
from tests.sparse_contract import SparseContract


def build(options: str, records: list[bytes], *, chunks: int = 1, metadata: RecordsMetadata | None = None) -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options, metadata=metadata) as writer:
        for number, record in enumerate(records, 1):
            writer.write_record(record)
            if number % -(-len(records) // chunks) == 0:
                writer.flush()
    return out.getvalue()


class TestRiegeli(SparseContract):
    parser = RiegeliParser
    # Every byte is changed to each of these, and all is decoded each time.
    changes = (0x00, 0x01, 0xFF)
    samples = {
        "uncompressed": build("uncompressed", [b"one", b"", b"three", b"four"], chunks=2),
        "zstd": build("zstd", [b"one", b"", b"three" * 5]),
        "brotli": build("brotli", [b"one", b"two" * 5]),
        "snappy": build("snappy", [b"one", b"two" * 5]),
        "transposed": raw("transpose_example"),
        "metadata": build("transpose", [], metadata=RecordsMetadata(file_comment="a comment", num_records=0)),
        "padded": build("uncompressed,padding:256", [b"one"]),
        "empty": raw("empty"),
    }

    def large(self) -> bytes:
        return build("uncompressed,chunk_size:3000000", [bytes(3_000_000)] * 3)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A file may end behind any chunk: a writer flushes it there, and goes on later."""
        return len(prefix) in {0, *(chunk.begin for chunk in chunk_table(self.samples[name]))}
