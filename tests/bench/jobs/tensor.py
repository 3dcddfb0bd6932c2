"""One tensor to numpy; only the call is timed."""

from __future__ import annotations

import sys
import time

import numpy as np
from report import memory, report

how, path, name = sys.argv[1:4]
if how == "pparse":
    import pparse

    document = pparse.view(path)
    tensor = document[name]
    tensor.dtype.numpy  # noqa: B018 -- ml_dtypes and the like are imported now
    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    array = tensor.numpy()
elif how == "safetensors":
    from safetensors import safe_open

    with safe_open(path, framework="np") as opened:
        before = memory("VmRSS")
        start, cpu = time.perf_counter(), time.process_time()
        array = opened.get_tensor(name)
else:
    import pparse

    with pparse.view(path) as document:
        span = document[name].spans[0]
        count, offset = span.length // 4, span.offset
    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    array = np.fromfile(path, np.float32, count, offset=offset)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
# Touch every page: what is not read yet is read now, and belongs to the time.
start = time.perf_counter()
check = int(array.view(np.uint8)[::4096].sum())
touched = time.perf_counter() - start
report(seconds=seconds, call_cpu=cpu_seconds, touched=touched, check=check, above=memory("VmHWM") - before)
