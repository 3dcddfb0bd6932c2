"""Extract an archive into a new folder, which is removed afterwards; or recover it.

``extract``, ``recover``: the commands; ``tar``: GNU tar; ``tarfile``: the standard library. ``above`` is the peak of
the process that works (all of it for ``tar``).
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time

from report import memory, report

how, path, target = sys.argv[1:4]
if how in ("extract", "recover"):
    from pparse.cli import main
elif how == "tarfile":
    import tarfile
shutil.rmtree(target, ignore_errors=True)
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
code = 0
if how in ("extract", "recover"):
    code = main([how, path, "-o", target, "-q"])
elif how == "tar":
    os.mkdir(target)
    subprocess.run(["tar", "xzf", path, "-C", target], check=True)
else:
    with tarfile.open(path) as archive:
        archive.extractall(target, filter="data")
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = memory("VmHWM")
above = peak - before
if how == "tar":
    child = resource.getrusage(resource.RUSAGE_CHILDREN)  # gzip, which tar starts, too
    cpu, above = child.ru_utime + child.ru_stime, child.ru_maxrss << 10
count = size = 0
for folder, _, names in os.walk(target):
    for name in names:
        if name != "RECOVERY.json":
            count += 1
            size += os.path.getsize(os.path.join(folder, name))
shutil.rmtree(target)
report(peak=peak, seconds=seconds, call_cpu=cpu, above=above, code=code, count=count, size=size)
