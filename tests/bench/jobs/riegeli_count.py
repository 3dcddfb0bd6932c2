"""Go through all records of a file: with ``pparse``, without its extension (``pure``); or all ``lines`` of a text."""

from __future__ import annotations

import os
import sys
import time

from report import report

how, path = sys.argv[1:3]
if how == "pure":
    os.environ["PPARSE_PURE_PYTHON"] = "1"
seconds = cpu_seconds = 0.0
for _ in range(2):  # the first warms: what it needs is imported
    if how == "lines":
        start, cpu = time.perf_counter(), time.process_time()
        with open(path, "rb") as file:
            count = sum(map(bool, file))
    else:
        from pparse.kernels.highway import NATIVE
        from pparse.riegeli import RecordReader

        if NATIVE is (how == "pure"):
            sys.exit("pparse was installed without its extension")
        start, cpu = time.perf_counter(), time.process_time()
        with RecordReader(path) as reader:
            count = 0
            for record in reader:
                count += bool(record)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu_seconds, count=count)
