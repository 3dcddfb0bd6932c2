"""What is wrong with the documents inside an archive, at every depth, for `pparse check -R` and `pparse recover`."""

from __future__ import annotations

from copy import copy

from pparse.containers.archive import documents_below
from pparse.document.appearance import head_of, known_other, named_by, text_start
from pparse.document.registry import model_extensions
from pparse.errors import (
    PASSING,
    EndOfDataError,
    FormatError,
    GapError,
    LimitError,
    MalformedError,
    NothingThereError,
    PparseError,
    UnsupportedError,
)
from pparse.findings import Finding
from pparse.recovery.document_verdict import is_part_of_model, untold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.containers.archive import ArchiveMember, ArchiveParser
    from pparse.document.extraction import Extraction

# What is said of a file that tells nothing without those beside it, which a walk through an archive does not look for.
_ALONE: Final = ("data-not-read", "index-not-read")
# Endings that nothing but models has; ``.bin``, ``.cpb``, ``.index`` and ``.pb`` are those of other files, too.
_OF_MODELS: Final = (".safetensors", ".onnx", ".gguf", ".npy", ".npz", ".riegeli", ".tfrecord", ".pt", ".pth")
# So many of them are looked at again, with those.
_MOST_APART: Final = 1_000


def findings_below(document: Extraction, *, strict: bool = False) -> Iterator[Finding]:
    """Check every document inside an archive, and in nested archives; yield what was found, under their paths."""
    told = set(document.findings)
    unlike: list[Finding] = []

    def refused(name: str, extraction: Extraction, error: FormatError) -> None:
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
    endings = model_extensions() if isinstance(error, NothingThereError) else _OF_MODELS
    if not name.lower().endswith(endings) or extraction.known_end() <= extraction.start:
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
    try:
        whole = True
        for finding in extraction.check(strict=strict, around=False):
            told = copy(finding)  # the original keeps its own source
            told.source = name
            whole = whole and not finding.is_fault
            yield told
        if whole and not is_part_of_model(extraction):
            yield from untold(extraction, name)
    except (MalformedError, EndOfDataError, GapError) as error:
        yield Finding("malformed", error.reason, source=name, offset=error.offset)
    except (LimitError, UnsupportedError) as error:
        yield Finding("limit", f"not all of it was looked at: {error.reason}", source=name, offset=error.offset)


def _findings_beside(name: str, archive: ArchiveParser, member: ArchiveMember, *, strict: bool) -> Iterator[Finding]:
    """Check a member of an archive with the files beside it; one that stands for another file is not."""
    try:
        extraction = archive.open_member(member)
        extraction.entered = True  # so that it lies in a folder of its archive
        stands_for = extraction.parsed.outermost
    except PASSING:
        raise
    except PparseError as error:
        yield Finding("malformed", error.reason, source=name, offset=error.offset)
        return
    if stands_for is extraction:
        yield from _findings_inside(name, extraction, strict=strict)
