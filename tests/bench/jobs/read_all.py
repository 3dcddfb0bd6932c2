"""Read every tensor, one after the other; tell the peak above the imports, and a checksum."""

from __future__ import annotations

import sys
import time
import zlib

import numpy as np  # noqa: F401 -- both sides have imported it when the peak begins to count
from report import memory, report

how, path = sys.argv[1:3]
total = 0
if how == "pparse":
    import pparse
    import pparse.parsers.safetensors.parser
    import pparse.tensors.tensor
    import pparse.viewers.safetensors.viewer

    before = memory("VmRSS")
    start = time.perf_counter()
    with pparse.view(path) as model:
        for tensor in model.tensors():
            total += zlib.crc32(tensor.numpy())
else:
    from safetensors import safe_open

    before = memory("VmRSS")
    start = time.perf_counter()
    with safe_open(path, framework="np") as opened:
        for name in opened.keys():  # noqa: SIM118
            total += zlib.crc32(opened.get_tensor(name))
report(seconds=time.perf_counter() - start, above=memory("VmHWM") - before, check=total)
