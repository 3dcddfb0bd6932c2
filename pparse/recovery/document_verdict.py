"""The verdict of `pparse check` on a document, for code that writes the document to disk.

This is the one place that decides whether a document is whole after everything in it was checked, so `pparse check` and
`pparse recover` agree; and what is wrong with the documents inside an archive, at every depth.
"""

from __future__ import annotations

from itertools import islice

from pparse.data.range_status import cut_status, joined
from pparse.errors import (
    DataError,
    EndOfDataError,
    FaultError,
    FormatError,
    LimitError,
    NothingThereError,
    UnsupportedError,
)
from pparse.findings import BROKEN, UNSURE_NUMBER, Finding, FindingList, HasStatus, Severity, Status
from pparse.limits import count_words
from pparse.tree.entry import SCALAR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.containers.archive import ArchiveMember, ArchiveParser
    from pparse.containers.content import Verdict
    from pparse.document.extraction import Extraction
    from pparse.tensors.status import Extent

# Codes of findings about bytes that cannot be the original ones.
_CHANGED: Final = ("malformed", UNSURE_NUMBER)

# What is said of a file that tells nothing without those beside it, which a walk through an archive does not look for.
_ALONE: Final = ("data-not-read", "index-not-read")
# Endings that nothing but models has; ``.bin``, ``.cpb``, ``.index`` and ``.pb`` are those of other files, too.
_OF_MODELS: Final = (".safetensors", ".onnx", ".gguf", ".npy", ".npz", ".riegeli", ".tfrecord", ".pt", ".pth")
# So many of them are looked at again, with those.
_MOST_APART: Final = 1_000


class DocumentVerdict(HasStatus):
    """The result of checking a document."""

    __slots__ = ("findings", "parts", "status", "suspect", "verified")

    def __init__(self, limit: int) -> None:
        self.status = Status.COMPLETE
        """Status of the document."""
        self.findings = FindingList(limit)
        """Everything that is odd or wrong with it."""
        self.verified: bool | None = None
        """True if its own checksums confirm all of it; None if it has none, or not for every part."""
        self.parts = (0, 0)
        """Number of its parts, and of those whose own checksum agrees; what lies between them has none."""
        self.suspect: list[tuple[int, int]] = []
        """Offset and length of each range of the document that cannot be original."""

    @classmethod
    def on_damage(cls, finding: Finding) -> DocumentVerdict:
        """Return the verdict on a document that is damaged, of which this is all that is known."""
        made = cls(1)
        made.status = Status.DAMAGED
        made.findings.add(finding)
        return made

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong, as far as it could be checked."""
        return self.status not in BROKEN

    @property
    def is_plain(self) -> bool:
        """Whether it is whole, and nothing about it is even odd."""
        return self.is_whole and not any(finding.severity is not Severity.NOTE for finding in self.findings)

    def count_for(self, verdict: Verdict) -> None:
        """Add this result to ``verdict``, which is only about the bytes: a truncated file may have all its bytes."""
        if self.is_whole:
            verdict.parts = self.parts
            if verdict.verified is None and verdict.is_complete:
                verdict.verified = self.verified
            return
        worst = next((finding for finding in self.findings if finding.is_fault), None)
        reason = worst.reason if worst is not None else f"its format says that it is {self.status}"
        verdict.worsen(self.status, worst.code if worst is not None else str(self.status), reason)
        stretches = [(offset, offset + length) for offset, length in (*verdict.suspect, *self.suspect)]
        verdict.suspect = tuple((start, end - start) for start, end in joined(stretches))


def verify_document(extraction: Extraction) -> DocumentVerdict:
    """Check all of a document, as `Extraction.check` does, and return the result.

    Drain the archives and streams around it first. A limit that prevents checking becomes a finding. Source errors
    propagate.
    """
    from pparse.document.registry import viewer_for

    found = DocumentVerdict(extraction.session.limits.findings)
    viewer = None
    try:
        for finding in extraction.check(around=False):
            found.findings.add(finding)
        viewer = viewer_for(extraction)
        if viewer is not None and viewer.extent().status is Status.UNSUPPORTED:  # a type that nobody knows is a fault
            for finding in untold(extraction, extraction.name):
                found.findings.add(finding)
        # Of a stream that is cut behind all that the document needs, the document does not lack anything.
        streams = {level.name for level in islice(extraction.parsed.outward(implicit=True), 1, None)}
        damaged = any(f.is_fault and not (f.code == "truncated" and f.source in streams) for f in found.findings)
        found.status = viewer.extent().status if viewer is not None else document_status(extraction, damaged=damaged)
        if damaged and found.is_whole:
            found.status = Status.DAMAGED
        result = extraction.parse()
        things, agreed, _ = result.listing.checksums() or (0, 0, "")
        found.parts = (things, agreed)
        extent = viewer.extent() if viewer is not None else None
        # Tensors that lie in other files are parts of these.
        if not things and extent is not None and extent.verified and not any(viewer.files_beside()):
            found.parts = (extent.count, extent.verified)
        covered = result.container is None  # of an archive, the checksums of its members do not cover its headers
        found.verified = True if covered and found.is_complete and things and agreed == things else None
    except LimitError as error:
        found.findings.add(Finding("limit", f"not checked: {error.reason}", severity=Severity.WARNING))
    except DataError as error:
        found.status = cut_status(damaged=not isinstance(error, EndOfDataError))
        found.findings.add(Finding("malformed", error.reason, offset=error.offset))
    for finding in found.findings:
        finding.source = finding.source or extraction.name
        if viewer is None and finding.offset is not None and finding.length and finding.code in _CHANGED:
            start, end = finding.offset, min(finding.offset + finding.length, extraction.find_end())
            if finding.source == extraction.name and extraction.start <= start < end:
                found.suspect.append((start - extraction.start, end - start))
    return found


def is_part_of_model(extraction: Extraction) -> bool:
    """Whether a document is a part of a model that is an archive, such as the pickle of a checkpoint: by itself it says
    nothing about its tensors, whose bytes are in other parts."""
    around = extraction.parent.outward(implicit=True) if extraction.parent is not None else ()
    return any(result.parser.viewer is not None for level in around for result in level.results.values())


def all_findings(document: Extraction, status: Status) -> list[Finding]:
    """Return what was found wrong with a document without tensors: never nothing if its ``status`` is broken."""
    found = list(document.findings)
    if status in BROKEN and not any(finding.is_fault for finding in found):
        root = document.root
        found.append(root.finding or Finding(str(status), f"its {root.kind} is {status}", source=document.name))
    return found


def untold(extraction: Extraction, source: str) -> Iterator[Finding]:
    """Yield what the status of a document says and none of its findings, once it was checked: that it is not whole."""
    from pparse.document.registry import viewer_for

    viewer = viewer_for(extraction)
    found = all_findings(extraction, document_status(extraction)) if viewer is None else viewer.all_findings()
    for finding in found:
        if finding.is_fault:
            from copy import copy

            told = copy(finding)  # the original keeps its own source
            told.source = source
            yield told


def compared(document: Extraction, extent: Extent | None, digests: int = 0, lists: int = 0) -> str:
    """Describe what a check of ``document`` read, and which checksums were compared and agree.

    ``extent`` is that of its viewer, if it has one; ``digests`` the number of whole files whose digest given elsewhere
    agrees, ``lists`` of lists of identities that do.
    """
    from pparse.containers.stream import StreamParser

    things, agreed, word = document.parse().listing.checksums() or (0, 0, "")
    listed, of = count_words(things, word) if word else "", ""
    if extent is not None:
        listed = count_words(extent.count, "tensor")
        if things:  # number of chunks that hold them
            of = f" of {count_words(things, word)}"
        else:
            things, agreed = extent.count, extent.verified
    said: list[str] = []
    if agreed:
        some = f"{agreed:,}{of or ' of them'}"
        said.append(f"a checksum agrees for {some if agreed < things else f'each{of}' if things > 1 else 'it'}")
    streams = [result.parser for inner in document.parsed.outward() for result in list(inner.results.values())]
    agreeing = (one for one in streams if isinstance(one, StreamParser) and one.checks and not one.content.is_suspect)
    said += [f"the checksum of the {parser.name} stream agrees" for parser in agreeing]
    if digests:
        said.append("the SHA-256 agrees" if digests == 1 else f"the SHA-256 of {digests:,} files agrees")
    if lists:
        said.append("the list of identities agrees")
    if not said and (things or not listed):
        what = "it" if things < 2 else "their data" if word == "file" else "them"
        said.append(f"no checksum covers {what}")
    return "; ".join(filter(None, (listed, *said)))


def document_status(document: Extraction, *, damaged: bool = False) -> Status:
    """Return the status of a document without tensors; ``damaged`` if something inside it is."""
    status = _status_now(document)
    if status is Status.COMPLETE:
        status = _status_now(document)  # a stream that was read to find where a document ends may be damaged
    return Status.DAMAGED if damaged and status is Status.COMPLETE else status


def _status_now(document: Extraction) -> Status:
    root = document.root
    status = root.status if root.shape != SCALAR else root.known_status or Status.COMPLETE
    for outer in islice(document.parsed.outward(implicit=True), 1, None):  # the compressed streams around it
        for result in outer.results.values() if status is Status.COMPLETE else ():
            status = result.root.known_status or status
    for around in document.outward():  # the members of archives that it is, or lies in
        if status is not Status.COMPLETE or around.data.is_proved(around.start, around.find_end()):
            break  # a checksum of its own says that it is whole, whatever lies around it
        if around.origin is not None and around.origin[1].status in BROKEN:
            status = around.origin[1].status
    return status


# -- inside an archive -------------------------------------------------------------------------------------------------


def findings_below(document: Extraction, *, strict: bool = False) -> Iterator[Finding]:
    """Check every document inside an archive, and in nested archives; yield what was found, under their paths."""
    from pparse.containers.archive import documents_below

    told = set(document.findings)
    unlike: list[Finding] = []

    def refused(name: str, extraction: Extraction | None, error: DataError) -> None:
        if extraction is not None and isinstance(error, FormatError):  # of others, the check of the archive tells
            finding = unlike_its_name(name, extraction, error)
            if finding is not None:
                unlike.append(finding)

    apart: list[tuple[str, tuple[ArchiveParser, ArchiveMember]]] = []  # files that say nothing without others
    for name, extraction in documents_below(document.parse(), refused):
        for finding in _findings_inside(name, extraction, strict=strict):
            if finding.code not in _ALONE or len(apart) >= _MOST_APART:
                yield finding
            elif extraction.origin is not None:
                apart.append((name, extraction.origin))
    for name, (archive, member) in apart:
        yield from _findings_beside(name, archive, member, strict=strict)
    yield from unlike
    yield from (finding for finding in document.findings if finding.code == "limit" and finding not in told)


def unlike_its_name(name: str, extraction: Extraction, error: FormatError) -> Finding | None:
    """Return the finding on a member in which no format is recognised, and whose name is one of models only.

    Of one of nothing but zeros, others may have the name, too. Text may stand there on purpose, and so may what another
    file names, or is of a format that is known and not read.
    """
    from pparse.document.appearance import head_of, known_other, named_by, text_start
    from pparse.document.registry import model_extensions

    endings = model_extensions() if isinstance(error, NothingThereError) else _OF_MODELS
    if not name.lower().endswith(endings) or extraction.find_end() <= extraction.start:
        return None
    head = head_of(extraction, 64)
    if not head or (head.strip(b"\0") and text_start(head) is not None):
        return None
    if known_other(extraction) is not None or named_by(extraction) is not None:
        return None
    reason = f"its name says that it is a model: {error.reason}"
    return Finding("malformed", reason, source=name, offset=extraction.start)


def is_whole_below(document: Extraction) -> bool:
    """Check an archive and every document in it; say whether nothing is wrong with any."""
    checks = document.check(around=False), findings_below(document)
    return not any(finding.is_fault for check in checks for finding in check)


def _findings_inside(name: str, extraction: Extraction, *, strict: bool) -> Iterator[Finding]:
    """Check a document inside an archive; if it cannot be opened, or a limit ends the check, that is the finding."""
    from copy import copy

    try:
        whole = True
        for finding in extraction.check(strict=strict, around=False):
            told = copy(finding)  # the original keeps its own source
            told.source = name
            whole = whole and not finding.is_fault
            yield told
        if whole and not is_part_of_model(extraction):
            yield from untold(extraction, name)
    except (LimitError, UnsupportedError) as error:
        yield Finding("limit", f"not all of it was looked at: {error.reason}", source=name, offset=error.offset)
    except FaultError as error:
        yield Finding("malformed", error.reason, source=name, offset=error.offset)


def _findings_beside(name: str, archive: ArchiveParser, member: ArchiveMember, *, strict: bool) -> Iterator[Finding]:
    """Check a member of an archive with the files beside it; one that stands for another file is not."""
    try:
        extraction = archive.open_member(member)
        extraction.entered = True  # so that it lies in a folder of its archive
        stands_for = extraction.parsed.outermost
    except DataError as error:
        yield Finding("malformed", error.reason, source=name, offset=error.offset)
        return
    if stands_for is extraction:
        yield from _findings_inside(name, extraction, strict=strict)
