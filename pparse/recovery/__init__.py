"""What was found in a file put on the disk: names made safe, a folder that is not left, limits, and a report.

::

    with Target("out", source_size=document.size) as target, RecoveryReport(target) as report:
        with target.create(member.name, member.raw_name, member.mtime) as file:
            file.write(b"...")
        report.add(RecoveredFile.written(file, Status.COMPLETE, verified=True))
"""

from __future__ import annotations
