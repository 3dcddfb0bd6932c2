"""Members of an archive that make sense only together: the index of a checkpoint, and its data files.

A walk through an archive meets each of them by itself. `BesideJudge` opens one as if it were named alone, so that the
others are found beside it: the model is checked once, and each data file is judged by the tensors that lie in it.
"""

from __future__ import annotations

from collections import OrderedDict

from pparse.document.registry import viewer_for
from pparse.findings import Finding, Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import DocumentVerdict, judge
from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.containers.archive import ArchiveMember, ArchiveParser
    from pparse.document.extraction import Extraction

# Models that are kept: an archive of a training run has the files of each checkpoint close to each other.
_KEPT: Final = 4


class BesideJudge:
    """The verdicts on models in several members, each made once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], tuple[Extraction, DocumentVerdict]] = OrderedDict()

    def enter(self, archive: ArchiveParser, member: ArchiveMember) -> Extraction:
        """Return a member as an extraction that finds the files beside it."""
        known = self._known.get((id(archive), member.at))
        extraction = known[0] if known is not None else archive.open_member(member)
        extraction.entered = True
        return extraction

    def judge(self, model: Extraction) -> DocumentVerdict:
        """Return the verdict on a model, by its main file, which has been entered."""
        archive, member = model.outermost.origin or (None, None)
        key = id(archive), -1 if member is None else member.at
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = model, judge(model)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known[1]

    def judge_file(self, model: Extraction, member: ArchiveMember) -> DocumentVerdict | None:
        """Return the verdict on a data file of ``model`` by the tensors in it; None if none of them is in this file."""
        self.judge(model)
        viewer = viewer_for(model)
        for _, file in viewer.files_beside() if isinstance(viewer, Viewer) else ():
            if file.origin is not None and file.origin[1].at == member.at:
                return _verdict_on(file, viewer, model)
        return None

    @staticmethod
    def is_whole_alone(model: Extraction) -> bool:
        """Say whether nothing is wrong with a checked file by itself, whatever is beside it."""
        return viewer_for(model) is None or model.status is Status.COMPLETE

    @staticmethod
    def lacks_all(model: Extraction) -> bool:
        """Say whether not one file with values is beside the main file of a model."""
        viewer = viewer_for(model)
        if not isinstance(viewer, Viewer):
            return True
        return viewer.extent().missing_files > 0 and not any(viewer.files_beside())


def _verdict_on(file: Extraction, viewer: Viewer, model: Extraction) -> DocumentVerdict:
    """Judge a data file by the checksums of the tensors in it, all of which were compared."""
    verdict = DocumentVerdict(model.session.limits.findings)
    count = agreed = wrong = 0
    reach, end = file.start, file.known_end()
    needed = end
    for tensor in viewer.tensors():
        model.session.check_cancelled()
        for span in tensor.spans:
            if span.path != file.path or span.data is None or not span.length:
                continue
            stop = span.offset + span.length
            count += 1
            needed = max(needed, stop)
            known = file.data.range_status(span.offset, min(stop, end))
            agreed += bool(known.verified) and stop <= end
            wrong += known.status is Status.DAMAGED
            if known.verified and span.offset == reach:
                reach = stop
    verdict.parts = count, agreed
    verdict.verified = True if count and agreed == count and reach == end else None
    suspect = file.data.suspect_ranges_in(file.start, end)
    verdict.suspect = [(start - file.start, stop - start) for start, stop in suspect]
    if needed > end:
        verdict.status = Status.TRUNCATED
        reason = f"it has {end - file.start:,} bytes; its index needs {needed - file.start:,}"
        verdict.findings.add(Finding("truncated", reason, source=file.name))
    if wrong:
        verdict.status = Status.DAMAGED
        reason = f"the bytes of {wrong:,} of the {count_words(count, 'tensor')} in it are damaged"
        verdict.findings.add(Finding("hash", reason, source=file.name))
    return verdict
