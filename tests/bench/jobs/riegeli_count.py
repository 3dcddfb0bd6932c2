"""Go through all records of a file: with ``pparse``, without its extension (``pure``); or all ``lines`` of a text."""

from __future__ import annotations

import os
import sys
import time

from report import report

how, path = sys.argv[1:3]
if how == "pure":
    os.environ["PPARSE_PURE_PYTHON"] = "1"
seconds, cpu_seconds = [], []
for _ in range(4):  # the first warms: what it needs is imported
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
    seconds.append(time.perf_counter() - start)
    cpu_seconds.append(time.process_time() - cpu)
report(seconds=sorted(seconds[1:])[1], call_cpu=sorted(cpu_seconds[1:])[1], count=count)
