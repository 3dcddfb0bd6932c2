"""List a PyTorch checkpoint: ``pparse``; ``genops``: zipfile and pickletools, without making sense of it."""

from __future__ import annotations

import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
count = 0
if how == "pparse":
    import pparse
    import pparse.parsers.pytorch.zip
    import pparse.viewers.pytorch.viewer

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with pparse.view(path) as model:
        for tensor in model.tensors():
            count += bool(tensor.name and tensor.shape)
else:
    import pickletools
    import zipfile

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickled = archive.read(next(name for name in names if name.endswith("/data.pkl")))
    opcodes = sum(1 for _ in pickletools.genops(pickled))
    count = sum("/data/" in name for name in names) if opcodes else 0
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(count=count, seconds=seconds, call_cpu=used, above=memory("VmHWM") - before)
