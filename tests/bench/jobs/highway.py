"""HighwayHash-64 of one input, again and again; ``seconds`` and ``call_cpu`` are of one call."""

from __future__ import annotations

import sys
import time

from report import report

how, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if how == "crc32":
    from zlib import crc32 as function
else:
    from pparse.kernels import highway

    if how == "native" and not highway.NATIVE:
        sys.exit("pparse was installed without its extension")
    function = highway.hash64 if how == "native" else highway.hash64_python

data = bytes(range(256)) * (size // 256 + 1)
data = data[:size]
check = function(data)  # warm
start, cpu = time.perf_counter(), time.process_time()
for _ in range(rounds):
    function(data)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds / rounds, call_cpu=cpu_seconds / rounds, check=check)
