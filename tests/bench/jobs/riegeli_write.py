"""Write records of one size, cut from a file; or (``bare``) hash, compress and write them with the bare libraries.

``seconds`` are of writing and closing.
"""

from __future__ import annotations

import sys
import time

from report import report

from pparse.codecs.base import ZSTD, package

how, source, target, options, size = *sys.argv[1:5], int(sys.argv[5])
with open(source, "rb") as file:
    records = list(iter(lambda: file.read(size), b""))
if how == "bare":
    from pparse.kernels.highway import hash64

    if options == "zstd":
        compress = package(ZSTD).compress
    else:
        from functools import partial

        import brotli

        compress = partial(brotli.compress, quality=6)
    start, cpu = time.perf_counter(), time.process_time()
    with open(target, "wb") as file:
        for record in records:
            data = compress(record)
            file.write(hash64(data).to_bytes(8, "little"))
            file.write(data)
else:
    from pparse.riegeli import RecordWriter

    with RecordWriter("/dev/null", options=options) as writer:  # warm: what it needs is imported
        writer.write_record(b"record")
    start, cpu = time.perf_counter(), time.process_time()
    with RecordWriter(target, options=options) as writer:
        writer.write_records(records)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu_seconds)
