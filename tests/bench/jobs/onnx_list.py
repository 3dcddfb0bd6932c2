"""List the initializers of a model: ``pparse``, ``onnx``, or ``floor``: the least reads that tell where they are."""

from __future__ import annotations

import os
import sys
import time

from report import memory, report

how, path = sys.argv[1:3]


def lengths(path: str) -> int:
    """Go from initializer to initializer, reading nothing but tags and lengths."""
    file = os.open(path, os.O_RDONLY)
    stops = [os.fstat(file).st_size]
    pos = count = 0
    while stops:
        if pos == stops[-1]:
            stops.pop()
            continue
        head = os.pread(file, 12, pos)
        tag, at = head[0], 1
        length = shift = 0
        while True:
            byte = head[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        pos += at
        if tag & 7 != 2:
            continue
        if len(stops) == 1 and tag == 0x3A:
            stops.append(pos + length)
            continue
        count += len(stops) == 2 and tag == 0x2A
        pos += length
    return count


count = 0
if how == "pparse":
    import pparse

    tiny = b"\x08\x08\x3a\x0f\x2a\x0d\x08\x01\x10\x01B\x01wJ\x04abcdB\x02\x10\x11"
    with pparse.view(tiny, format="onnx") as model:  # what is imported on demand is
        list(model.tensors())
    before = memory("VmRSS")
    start = time.perf_counter()
    with pparse.view(path) as model:
        for tensor in model.tensors():
            count += tensor.status is pparse.Status.COMPLETE and bool(tensor.name and tensor.shape)
elif how == "onnx":
    import onnx

    before = memory("VmRSS")
    start = time.perf_counter()
    count = sum(bool(tensor.name and tensor.dims) for tensor in onnx.load(path).graph.initializer)
else:
    before = memory("VmRSS")
    start = time.perf_counter()
    count = lengths(path)
seconds = time.perf_counter() - start
report(count=count, seconds=seconds, above=memory("VmHWM") - before)
