"""Go through all opcodes of a pickle: ``pparse`` finds its end, its memo and the children of its root; ``genops``."""

from __future__ import annotations

import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
if how == "pparse":
    import pparse
    import pparse.parsers.pickle.parser

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with pparse.open(path, format="pickle") as document:
        count = int(document.root.kind != "unknown")  # its end is known once all was read
else:
    import pickletools

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        count = int(sum(1 for _ in pickletools.genops(file)) > 0)
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(count=count, seconds=seconds, call_cpu=used, above=memory("VmHWM") - before)
