"""Writes what was found in a file to disk: safe names, a folder that is never left, limits, and a report.

::

    with Target("out", source_size=document.size) as target, RecoveryReport(target) as report:
        with target.create(member.name, member.raw_name, member.mtime) as file:
            file.write(b"...")
        report.add(RecoveredFile.written(file, Status.COMPLETE, verified=True))
"""

from __future__ import annotations
