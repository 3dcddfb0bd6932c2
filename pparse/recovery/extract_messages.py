"""What an extraction tells: of each file it wrote, of limits that cost files something, of what it did not write."""

from __future__ import annotations

from pparse.data.base import Access
from pparse.errors import LimitError, PparseError, SourceError
from pparse.findings import Finding, Severity, Status
from pparse.recovery.names import changed
from pparse.recovery.plan import base_name
from pparse.recovery.report import RecoveredFile
from pparse.recovery.sink import LimitMet, Sink
from pparse.recovery.target import was_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pparse.containers.archive import ArchiveMember, ArchiveParser
    from pparse.containers.content import Verdict
    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.recovery.target import Target


class ExtractMessages:
    """Reports files, and adds what else is to be said to the findings of the document.

    ``limits``: those that cost a file something, by name.
    """

    def __init__(
        self,
        document: Extraction,
        findings: FindingList,
        target: Target,
        report: Callable[[RecoveredFile], object],
    ) -> None:
        self._document = document
        self._findings = findings
        self._target = target
        self._report = report
        self.limits: dict[str, LimitMet] = {}
        self._in_vain = 0  # bytes that must be decoded though a limit keeps them from being written

    def file(
        self, sink: Sink, verdict: Verdict, source: str, offset: int, name: str, prefix: str | None = None
    ) -> None:
        """Report a file; ``prefix``: the folders before the part of its path that is its own name."""
        if sink.file is not None and verdict.code != "nameless":
            verdict.place(sink.file.bytes)
        known: dict[str, Any] = {
            "verified": verdict.verified,
            "parts": verdict.parts,
            "source": source,
            "offset": offset,
            "reason": verdict.reason,
            "doubtful": verdict.suspect,
        }
        if sink.error is not None:  # our own limit, not a fault of the member
            verdict.status = Status.UNSUPPORTED if sink.file is None else Status.TRUNCATED
            verdict.reason = sink.error.reason
            known["reason"] = verdict.reason
            if sink.file is not None:
                verdict.gaps.add(sink.file.bytes, None)
        if sink.file is None and verdict.status is not Status.UNSUPPORTED:
            verdict.status = Status.MISSING
        if sink.file is None:
            self._report(RecoveredFile(None, verdict.status, raw_name=name, gaps=(), **known))
        else:
            file = RecoveredFile.written(sink.file, verdict.status, gaps=verdict.gaps, **known)
            if prefix is not None and file.path is not None:
                own = file.path.split("/")[prefix.count("/") :]
                file.raw_name = name if changed(name, own) else None
            self._report(file)
        if sink.error is not None:
            self.met(sink.error, name, source)

    def met(self, error: LimitError, name: str, source: str) -> None:
        """Record a limit that a file met. Raise ``error`` if nothing more can be written, or it would be in vain."""
        if self._target.is_full or self._in_vain > 4 * self._target.max_bytes:
            raise error
        self._findings.add(Finding("limit", error.reason, path=name, source=source))
        option = error.option.rpartition("=")[0] or error.option.split(" ")[0]
        self.limits.setdefault(option, LimitMet()).add(error)

    def count_vain(self, parser: ArchiveParser, member: ArchiveMember) -> None:
        """Count refused bytes that the walk must decode anyway to reach what follows."""
        if parser.result.extraction.data.access is not Access.FREE:
            self._in_vain += member.compressed_size or 0

    def stopped(self, error: BaseException, sink: Sink | None) -> None:
        """Report that the walk ends early, and what was written of the current file.

        If the user stops it on purpose, nothing is reported, since it may continue later.
        """
        if was_stopped(error):
            return
        reason = error.reason if isinstance(error, PparseError) else type(error).__name__
        self._findings.add(
            Finding(
                "stopped",
                f"stopped before the end, so some files are missing: {reason}",
                source=base_name(self._document.name),
            )
        )
        if sink is not None and sink.file is not None and sink.interrupted and not isinstance(error, SourceError):
            self._report(RecoveredFile.written(sink.file, Status.TRUNCATED, reason="stopped while it was written"))

    def link(self, member: ArchiveMember, source: str) -> None:
        """Say that a link, or a device, is not written."""
        what = f"{member.kind} to {member.link}" if member.link else member.kind
        self._findings.add(
            Finding(
                "not-written",
                f"a {what}, which is never written",
                severity=Severity.NOTE,
                path=member.name,
                source=source,
                offset=member.at,
            )
        )

    def damage(self, parser: ArchiveParser, member: ArchiveMember, source: str) -> None:
        """Report what is wrong with a member that is not written, as a check does."""
        if member.size or member.status is not Status.COMPLETE:
            finding = parser.verify(member).finding(member.name, source)
            if finding is not None:
                self._findings.add(finding)

    def lost(self, error: PparseError, source: str) -> None:
        """Say that the members behind an error are lost."""
        self._findings.add(
            Finding(
                "malformed",
                error.reason,
                source=source,
                offset=error.offset,
            )
        )
