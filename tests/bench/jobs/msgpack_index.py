"""Index a MessagePack file: ``pparse``; ``fallback``: msgpack in pure Python; ``flax``: list a checkpoint."""

from __future__ import annotations

import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
if how == "fallback":
    from msgpack.fallback import Unpacker

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        Unpacker(file, max_buffer_size=1 << 31).skip()
    count = 1
else:
    import pparse
    import pparse.parsers.msgpack.flax
    import pparse.viewers.flax.viewer

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    if how == "pparse":
        with pparse.open(path, format="msgpack") as document:
            count = len(document.root)
    else:
        with pparse.view(path) as model:
            count = sum(1 for tensor in model.tensors() if tensor.is_complete)
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(count=count, seconds=seconds, call_cpu=used, above=memory("VmHWM") - before)
