"""Read 1 MiB at random places of a gzip file.

``build``: make the index; ``index``: with it, each read in data opened anew (``first``) and all in one (``median``,
``worst``); ``passed``: without one, after everything was read once.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time

from report import memory, report

import pparse
from pparse.compressed.gzip_index import GzipIndex, IndexedData, build_index
from pparse.compressed.inflated import InflatedData
from pparse.data.files import FileData
from pparse.limits import MemoryBudget

MIB = 1 << 20
COUNT = 50

how, path, index_path = sys.argv[1:4]
pparse.open  # noqa: B018 -- imports what it needs
budget = MemoryBudget(64 * MIB)
told: dict[str, float] = {}
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
with FileData(path) as file:
    source = file.range(0, file.size or 0)
    if how == "build":
        with open(index_path, "wb") as out:
            made = build_index(source, out, budget=budget)
        told = {"points": made.points, "size": made.file_size, "content": made.size}
    else:
        rng = random.Random(3)

        def opened() -> InflatedData:
            if how == "index":
                return IndexedData(
                    source, "gzip", index=GzipIndex(FileData(index_path), budget), budget=budget, concatenated=True
                )
            return InflatedData(source, "gzip", budget=budget, concatenated=True)

        def read(data: InflatedData, offset: int) -> tuple[float, float]:
            began, cpu_began = time.perf_counter(), time.process_time()
            data.read_exact(offset, MIB)
            return time.perf_counter() - began, time.process_time() - cpu_began

        size = int(sys.argv[4])
        data = opened()
        if how == "passed":
            data.verify()
        passed = time.perf_counter() - start
        times = [read(data, rng.randrange(size - MIB)) for _ in range(COUNT)]
        told = {
            "median": statistics.median(wall for wall, _ in times),
            "worst": max(times)[0],
            "pass": passed,
            "median_cpu": statistics.median(spent for _, spent in times),
        }
        data.close()
        if how == "index":
            alone = []
            for _ in range(10):
                began, cpu_began = time.perf_counter(), time.process_time()
                with opened() as data:
                    data.read_exact(rng.randrange(size - MIB), MIB)
                alone.append((time.perf_counter() - began, time.process_time() - cpu_began))
            told["first"] = statistics.median(wall for wall, _ in alone)
            told["first_cpu"] = statistics.median(spent for _, spent in alone)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu, above=memory("VmHWM") - before, file=os.path.getsize(path), **told)
