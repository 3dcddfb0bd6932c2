"""Values of a FlexBuffer by path, 200 of them: ``pparse``; ``flatbuffers``: its own library."""

from __future__ import annotations

import random
import sys
import time

from report import memory, report

how, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(7)
numbers = [rng.randrange(count) for _ in range(200)]
if how == "flatbuffers":
    from flatbuffers import flexbuffers

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        root = flexbuffers.GetRoot(file.read())
    found = [root.AsMap["rows"].AsVector[number].AsMap["pos"].AsMap["x"].AsFloat for number in numbers]
else:
    import pparse
    import pparse.parsers.flatbuffers.flexbuffers

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with pparse.open(path, format="flexbuffers") as document:
        found = [document.node(f"rows[{number}].pos.x").value for number in numbers]
if found != [number / 2 for number in numbers]:
    raise SystemExit("other values")
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(count=len(found), seconds=seconds, call_cpu=used, above=memory("VmHWM") - before)
