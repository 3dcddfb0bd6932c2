"""Members of an archive that make sense only together: the index of a checkpoint, and its data files.

A walk through an archive meets each of them by itself. `BesideJudge` opens one as if it were named alone, so that the
others are found beside it: the model is checked once, and each data file is judged by the tensors that lie in it.
"""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakKeyDictionary

from pparse.document.registry import viewer_for
from pparse.findings import Finding, Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import DocumentVerdict, judge
from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.containers.archive import ArchiveMember, ArchiveParser
    from pparse.document.extraction import Extraction

    Verdicts = dict[int, DocumentVerdict]

# Models of an archive whose verdicts are kept: its members may be in any order, such as that of a folder on the disk.
_KEPT: Final = 64


class BesideJudge:
    """The verdicts on models in several members; each model is read once if its members follow each other."""

    def __init__(self) -> None:
        # Of each archive: the verdicts on the members of a model, by the places of the model's main file and of these.
        self._verdicts: WeakKeyDictionary[Any, OrderedDict[int, Verdicts]] = WeakKeyDictionary()
        # The model judged last. Names of variables take much of the budget: only one model keeps them.
        self._latest: tuple[ArchiveParser, int, Extraction] | None = None

    def enter(self, archive: ArchiveParser, member: ArchiveMember) -> Extraction:
        """Return a member as an extraction that finds the files beside it."""
        latest = self._latest
        if latest is not None and latest[0] is archive and latest[1] == member.at:
            return latest[2]
        extraction = archive.open_member(member)
        extraction.entered = True
        return extraction

    def judge(self, model: Extraction) -> DocumentVerdict:
        """Return the verdict on a model, by its main file, which has been entered."""
        archive, at = _place(model)
        known = self._verdicts.setdefault(archive, OrderedDict())
        if self._latest is None or self._latest[2] is not model:
            self._latest = None  # give its memory back first
            verdict = judge(model)
            known.pop(at, None)
            known[at] = {at: verdict, **_verdicts_on_files(model)}
            self._latest = archive, at, model
            if len(known) > _KEPT:
                known.popitem(last=False)
        return known[at][at]

    def judge_file(self, model: Extraction, member: ArchiveMember) -> DocumentVerdict | None:
        """Return the verdict on a data file of ``model`` by the tensors in it; None if none of them is in this file."""
        archive, at = _place(model)
        if at not in self._verdicts.get(archive, ()):
            self.judge(model)
        return self._verdicts[archive][at].get(member.at)

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


def _place(model: Extraction) -> tuple[ArchiveParser, int]:
    """Return the archive that a model's main file was entered in, and where its member begins there."""
    archive, member = model.outermost.origin  # type: ignore[misc]
    return archive, member.at


def _verdicts_on_files(model: Extraction) -> Verdicts:
    """Judge the data files of a model that has been checked; return the verdicts by the places of the members."""
    viewer = viewer_for(model)
    found: Verdicts = {}
    for _, file in viewer.files_beside() if isinstance(viewer, Viewer) else ():
        if file.origin is not None:
            found[file.origin[1].at] = verdict_on(file, viewer, model)
    return found


def verdict_on(file: Extraction, viewer: Viewer, model: Extraction) -> DocumentVerdict:
    """Judge a data file of ``model`` by the checksums of the tensors in it, all of which were compared."""
    verdict = DocumentVerdict(model.session.limits.findings)
    count = agreed = 0
    tensors = wrong = 0
    reach, end = file.start, file.known_end()
    needed = end
    for tensor in viewer.tensors():
        model.session.check_cancelled()
        is_here = is_wrong = False
        for span in tensor.spans:
            if span.path != file.path or span.data is None or not span.length:
                continue
            stop = span.offset + span.length
            count += 1
            needed = max(needed, stop)
            known = file.data.range_status(span.offset, min(stop, end))
            agreed += bool(known.verified) and stop <= end
            is_here = True
            is_wrong = is_wrong or known.status is Status.DAMAGED
            if known.verified and span.offset == reach:
                reach = stop
        tensors += is_here
        wrong += is_wrong
    verdict.parts = count, agreed
    verdict.verified = (
        True if count and agreed == count and (reach == end or file.data.is_proved(file.start, end)) else None
    )
    suspect = file.data.suspect_ranges_in(file.start, end)
    verdict.suspect = [(start - file.start, stop - start) for start, stop in suspect]
    if needed > end:
        verdict.status = Status.TRUNCATED
        reason = f"it has {end - file.start:,} bytes; its index needs {needed - file.start:,}"
        verdict.findings.add(Finding("truncated", reason, source=file.name))
    if wrong:
        verdict.status = Status.DAMAGED
        reason = f"the bytes of {wrong:,} of the {count_words(tensors, 'tensor')} in it are damaged"
        verdict.findings.add(Finding("hash", reason, source=file.name))
    return verdict
