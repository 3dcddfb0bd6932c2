"""Find the last record of a large file: open, seek to the end, one record back, read.

``seconds`` are of all that; ``chunk_seconds`` of reading the same record where its position is known, with the file
open: that is, of reading and decoding its chunk. Both are medians, taken by turns.
"""

from __future__ import annotations

import statistics
import sys
import time

from report import report

from pparse.data.files import FileData
from pparse.riegeli import RecordReader

path = sys.argv[1]
whole, chunk_alone = [], []
for number in range(8):
    start = time.perf_counter()
    with FileData(path) as data, RecordReader(data) as reader:
        reader.seek_numeric(reader.size())
        if not reader.seek_back():
            sys.exit("no record was found")
        record = reader.read_record()
        whole.append(time.perf_counter() - start)
        last, opened = reader.last_pos, data.stats
    with FileData(path) as data, RecordReader(data) as reader:
        start = time.perf_counter()
        reader.seek(last)
        again = reader.read_record()
        chunk_alone.append(time.perf_counter() - start)
    if record is None or again != record:
        sys.exit("the records differ")
    if not number:  # the first warms: what it needs is imported
        whole, chunk_alone = [], []
with FileData(path) as data:
    size = data.size or 0
report(
    seconds=statistics.median(whole),
    chunk_seconds=statistics.median(chunk_alone),
    bytes=opened.bytes,
    reads=opened.reads,
    chunk=size - last.chunk_begin,
    size=size,
)
