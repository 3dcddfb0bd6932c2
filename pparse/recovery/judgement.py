"""What its own format says of a document: the verdict of `pparse check`, for whoever writes it to the disk.

The one place that decides whether a document is whole once everything in it was looked at, so that `pparse check` and
`pparse recover` come to the same.
"""

from __future__ import annotations

from pparse.data.standing import cut_status, joined
from pparse.errors import PASSING, EndOfDataError, LimitError, PparseError
from pparse.findings import UNSURE_NUMBER, Finding, FindingList, Severity, Status
from pparse.limits import count_words
from pparse.tree.entry import SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.containers.content import Verdict
    from pparse.document.extraction import Extraction
    from pparse.tensors.viewer import Extent

# What makes a document not whole; UNSUPPORTED is no fault of its bytes.
BROKEN: Final = (Status.TRUNCATED, Status.DAMAGED, Status.MISSING)

# Codes of findings on bytes that cannot be what they were.
_CHANGED: Final = ("malformed", UNSURE_NUMBER)


class Judgement:
    """What became of a document: ``status``, and ``findings``, everything that is odd or wrong with it.

    ``verified``: whether checksums of its own confirmed all of it (None: it has none, or not everywhere). ``suspect``:
    offset and length of what cannot be what it was, in the document.
    """

    __slots__ = ("findings", "status", "suspect", "verified")

    def __init__(self, limit: int) -> None:
        self.status = Status.COMPLETE
        self.findings = FindingList(limit)
        self.verified: bool | None = None
        self.suspect: list[tuple[int, int]] = []

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong, as far as it could be looked at."""
        return self.status not in BROKEN

    @property
    def is_plain(self) -> bool:
        """Whether it is whole, and nothing about it is even odd."""
        return self.is_whole and not any(finding.severity is not Severity.NOTE for finding in self.findings)

    def count_for(self, verdict: Verdict) -> None:
        """Let this count for the ``verdict`` on the document's bytes: all the bytes of a cut file are there."""
        if self.is_whole:
            if verdict.verified is None and verdict.status is Status.COMPLETE:
                verdict.verified = self.verified
            return
        worst = next((finding for finding in self.findings if _is_fault(finding)), None)
        reason = worst.reason if worst is not None else f"its format says that it is {self.status}"
        verdict.worsen(self.status, worst.code if worst is not None else str(self.status), reason)
        stretches = [(offset, offset + length) for offset, length in (*verdict.suspect, *self.suspect)]
        verdict.suspect = tuple((start, end - start) for start, end in joined(stretches))

    def __repr__(self) -> str:
        return f"<Judgement {self.status}: {len(self.findings)} findings>"


def judge(extraction: Extraction) -> Judgement:
    """Look at all of a document, as `Extraction.check` does, and say what became of it.

    What it stands on (the archives and streams around it) is to be drained before. A limit that keeps it from being
    looked at is a finding. Raises what says nothing of the data.
    """
    from pparse.document.registry import viewer_for

    found = Judgement(extraction.session.limits.findings)
    viewer = None
    try:
        for finding in extraction.check(around=False):
            found.findings.add(finding)
        viewer = viewer_for(extraction)
        damaged = any(_is_fault(finding) for finding in found.findings)
        found.status = viewer.extent().status if viewer is not None else document_status(extraction, damaged=damaged)
        if damaged and found.is_whole:
            found.status = Status.DAMAGED
        things, agreed, _ = extraction.parse().parser.checksums() or (0, 0, "")
        found.verified = True if found.status is Status.COMPLETE and things and agreed == things else None
    except PASSING:
        raise
    except LimitError as error:
        found.findings.add(Finding("limit", f"not looked into: {error.reason}", severity=Severity.WARNING))
    except PparseError as error:
        found.status = cut_status(True, damaged=not isinstance(error, EndOfDataError))
        found.findings.add(Finding("malformed", error.reason, offset=error.offset))
    for finding in found.findings:
        finding.source = finding.source or extraction.name
        if viewer is None and finding.offset is not None and finding.length and finding.code in _CHANGED:
            start, end = finding.offset, min(finding.offset + finding.length, extraction.known_end())
            if finding.source == extraction.name and extraction.start <= start < end:
                found.suspect.append((start - extraction.start, end - start))
    return found


def compared(document: Extraction, extent: Extent | None, digests: int = 0) -> str:
    """Say in words what a check of ``document`` went through, and which checksums were compared and agree.

    ``extent`` of its viewer, if it has one; ``digests`` of whole files that agree with what is said of these elsewhere.
    """
    things, agreed, word = document.parse().parser.checksums() or (0, 0, "")
    listed, of = count_words(things, word) if word else "", ""
    if extent is not None:
        listed = count_words(extent.count, "tensor")
        if things:  # the chunks that they are in
            of = f" of {count_words(things, word)}"
        else:
            things, agreed = extent.count, extent.verified
    said: list[str] = []
    if agreed:
        some = f"{agreed:,}{of or ' of them'}"
        said.append(f"a checksum agrees for {some if agreed < things else f'each{of}' if things > 1 else 'it'}")
    said += [f"the checksum of the {name} stream agrees" for name in _streams_checked(document)]
    if digests:
        said.append("the SHA-256 agrees" if digests == 1 else f"the SHA-256 of {digests:,} files agrees")
    if not said and (things or not listed):
        what = "it" if things < 2 else "their data" if word == "file" else "them"
        said.append(f"no checksum covers {what}")
    return "; ".join(filter(None, (listed, *said)))


def _streams_checked(document: Extraction) -> Iterator[str]:
    """Yield the formats of the compressed streams around a document whose checksums were compared, and agree."""
    from pparse.containers.stream import StreamParser

    inner: Extraction | None = document.parsed
    while inner is not None:
        for result in list(inner.results.values()):
            parser = result.parser
            if isinstance(parser, StreamParser) and parser.checks and not parser.content.is_suspect:
                yield parser.name
        inner = inner.parent


def document_status(document: Extraction, *, damaged: bool = False) -> Status:
    """Return the status of a document without tensors; ``damaged``: something in it is, if not its frame."""
    root = document.root
    status = root.status if root.shape != SCALAR else root.known_status or Status.COMPLETE
    outer = document.parsed.parent if document.parsed.implicit else None
    while outer is not None and status is Status.COMPLETE:  # the compressed streams around it
        for result in outer.results.values():
            status = result.root.known_status or status
        outer = outer.parent if outer.implicit else None
    return Status.DAMAGED if damaged and status is Status.COMPLETE else status


def _is_fault(finding: Finding) -> bool:
    """Whether a finding says that the file is not whole: an error, but for one about a limit of ours."""
    return finding.severity is Severity.ERROR and finding.code != "limit"
