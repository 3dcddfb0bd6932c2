"""Write a long file: records of one size, cut from a file again and again, until they are so many bytes in all."""

from __future__ import annotations

import sys

from report import report

from pparse.riegeli import RecordWriter

source, target, options, size, total = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
with open(source, "rb") as file:
    records = list(iter(lambda: file.read(size), b""))
written = 0
with RecordWriter(target, options=options) as writer:
    while writer.estimated_size() < total:
        writer.write_record(records[written % len(records)])
        written += 1
report(count=written)
