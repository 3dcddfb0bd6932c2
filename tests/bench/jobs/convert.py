"""Convert a file, to ``safetensors``, ``npz`` or as ``bfloat16``; or copy it, ``cp``; until it is on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from report import memory, report

how, path, target = sys.argv[1:4]
target += ".npz" if how == "npz" else ".safetensors"
if how != "cp":
    import pparse
    import pparse.conversion.converting
    import pparse.viewers.pytorch.viewer
    import pparse.viewers.safetensors.viewer

    if how == "bfloat16":
        import ml_dtypes  # noqa: F401
os.sync()  # what the job before left to be written
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
if how == "cp":
    subprocess.run(["cp", path, target], check=True)
    subprocess.run(["sync", target], check=True)
else:
    pparse.convert(path, target, dtype="bfloat16" if how == "bfloat16" else None)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
above = memory("VmHWM") - before
size = os.path.getsize(target)
os.unlink(target)
report(seconds=seconds, call_cpu=cpu, above=above, size=size)
