"""A GraphDef of many nodes: ``index`` (open, count), ``names`` (1,000 at random), ``check``; ``parse`` by protobuf.

All with reading the file.
"""

from __future__ import annotations

import random
import sys
import time

from report import memory, report
from warm import import_all

how, path = sys.argv[1:3]
import_all("google.protobuf.message_factory")

import pparse  # noqa: E402
from pparse.protos import message_class  # noqa: E402

kind = message_class("tensorflow.GraphDef")
more = {}
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
if how == "parse":
    with open(path, "rb") as file:
        graph = kind.FromString(file.read())
    count = len(graph.node)
else:
    document = pparse.open(path)
    if how == "check":
        findings = sum(1 for _ in document.check())
        if findings:
            sys.exit(f"{findings} findings in a sound file")
    count = len(document.node("node")) if how != "check" else 0
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
above = memory("VmHWM") - before
if how == "names":
    rng, times, cpus = random.Random(1), [], []
    for number in (rng.randrange(count) for _ in range(1000)):
        start, cpu = time.perf_counter(), time.process_time()
        name = document.get(f"node[{number}].name")
        cpus.append(time.process_time() - cpu)
        times.append(time.perf_counter() - start)
        if name != f"block_{number // 1000}/layer_{number % 1000}/op":
            sys.exit(f"node {number} is called {name}")
    times.sort()
    cpus.sort()
    more = {"median": times[500], "late": times[989], "median_cpu": cpus[500], "late_cpu": cpus[989]}
report(seconds=seconds, call_cpu=cpu_seconds, above=above, count=count, **more)
