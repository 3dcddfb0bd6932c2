"""List what an archive holds; ``seconds`` and ``above`` are of the listing, the names are printed after it.

``pparse``: the members of a document; ``tarfile``, ``zipfile``: by the standard library.
"""

from __future__ import annotations

import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
told: dict[str, float] = {}
if how == "pparse":
    import importlib.metadata  # noqa: F401 -- plug-ins are looked for

    import pparse
    import pparse.parsers.tar.parser
    import pparse.parsers.zip.parser
    from pparse.data.base import IoStats

    stats = IoStats()
    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    count = 0
    with pparse.open(path, stats=stats) as document:
        for _ in document.parse().parser.members():
            count += 1
    told = {"bytes": stats.bytes, "reads": stats.reads}
elif how == "tarfile":
    import tarfile

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    count = len(members)
else:
    import zipfile

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with zipfile.ZipFile(path) as opened:
        entries = opened.infolist()
    count = len(entries)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
above = memory("VmHWM") - before
if how == "tarfile":
    for member in members:
        print(member.name)
elif how == "zipfile":
    for entry in entries:
        print(entry.filename)
report(seconds=seconds, call_cpu=cpu, above=above, count=count, **told)
