"""`recover`: everything that can be saved of a document, written to a folder with a report of each file.

Two runs on the same input give the same files. The input is only read.
"""

from __future__ import annotations

import os

from pparse.errors import OptionError
from pparse.findings import Severity
from pparse.recovery.report import RecoveryReport
from pparse.recovery.target import REPORT_NAME, Target, default_max_output
from pparse.recovery.unpack import Plan, Unpacker, recognise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.recovery.report import RecoveredFile, Summary


class Outcome:
    """What came of it.

    ``summary`` of the files; ``errors`` and ``warnings``: how many findings there are of each kind.
    """

    __slots__ = ("errors", "summary", "warnings")

    def __init__(self, summary: Summary, findings: FindingList) -> None:
        self.summary = summary
        self.errors = findings.errors
        self.warnings = sum(finding.severity is Severity.WARNING for finding in findings)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found wrong."""
        return self.summary.is_complete and not self.errors


def open_target(
    document: Extraction, folder: str | os.PathLike[str], *, max_output: int | None = None, exist_ok: bool = False
) -> Target:
    """Return the folder to write to. Raises `OptionError` if it holds something and ``exist_ok`` is not given."""
    session = document.session
    most = default_max_output(document.size) if max_output is None else max_output
    return Target(
        os.fspath(folder), source_size=document.size, max_bytes=most, max_entries=session.limits.extracted_entries,
        max_expansion=session.limits.expansion_ratio, budget=session.budget, exist_ok=exist_ok,
    )  # fmt: skip


def recover(
    document: Extraction, folder: str | os.PathLike[str], *, max_output: int | None = None, exist_ok: bool = False,
    tell: Callable[[RecoveredFile], object] | None = None,
) -> Outcome:  # fmt: skip
    """Write everything that can be saved of ``document`` into ``folder``, through all containers in it.

    Every file is in ``RECOVERY.json`` there; ``tell`` is called with each. Raises `LimitError` at a limit (what was
    written until then stays, and is in the report), `OptionError`, `SourceError`.
    """
    result = recognise(document)  # nothing is made for a file that nobody recognises
    if os.path.lexists(os.path.join(folder, REPORT_NAME)):
        raise OptionError(f"there is a {REPORT_NAME} in {os.fspath(folder)}; name another folder")
    plan = Plan(recursive=True, nameless=True, salvage=True, settle=True)
    with open_target(document, folder, max_output=max_output, exist_ok=exist_ok) as target:
        report = RecoveryReport(target, fill="zeros")

        def note(file: RecoveredFile) -> None:
            report.add(file)
            if tell is not None:
                tell(file)

        try:
            Unpacker(document, target, note, plan).run(result)
        finally:
            findings = document.findings
            summary = report.finish(findings)
    return Outcome(summary, findings)


def extract(
    document: Extraction, folder: str | os.PathLike[str], *, wanted: Callable[[str], bool] | None = None,
    recursive: bool = False, max_output: int | None = None, exist_ok: bool = False,
    tell: Callable[[RecoveredFile], object] | None = None,
) -> Outcome:  # fmt: skip
    """Write the members of an archive (``wanted``: of these names) into ``folder``, partial ones too.

    ``recursive`` enters archives in it. ``tell`` is called with each file. Raises as `recover` does.
    """
    from pparse.recovery.report import Summary

    summary = Summary()

    def note(file: RecoveredFile) -> None:
        file.gaps = tuple(file.gaps)
        summary.add(file)
        for _, length in file.gaps:
            summary.add_gap(length)
        if tell is not None:
            tell(file)

    with open_target(document, folder, max_output=max_output, exist_ok=exist_ok) as target:
        Unpacker(document, target, note, Plan(recursive=recursive, wanted=wanted)).run(recognise(document))
    return Outcome(summary, document.findings)
