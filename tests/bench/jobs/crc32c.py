"""CRC-32C of 256 MB: ``native``, ``pure``, or beside them zlib's CRC-32; and how fast heads are searched in noise."""

from __future__ import annotations

import os
import sys
import time

from report import report

how = sys.argv[1]
size = 256_000_000
data = os.urandom(1 << 20) * (size >> 20)
if how == "scan":
    from pparse.kernels.tfrecord_scan import heads

    data = data[: 32 << 20]
    start, cpu = time.perf_counter(), time.process_time()
    for at in range(0, len(data), 1 << 20):
        heads(data[at : at + (1 << 20)], 1 << 63)  # no length is ruled out
elif how == "zlib":
    import zlib

    start, cpu = time.perf_counter(), time.process_time()
    zlib.crc32(data)
else:
    from pparse.kernels import crc32c

    if how == "native" and not crc32c.NATIVE:
        sys.exit("pparse was installed without its extension")
    checksum = crc32c.crc32c if how == "native" else crc32c.crc32c_python
    checksum(data[: 1 << 20])
    start, cpu = time.perf_counter(), time.process_time()
    checksum(data)
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=used, rate=len(data) / used)
