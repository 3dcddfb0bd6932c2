"""Models in several files that lie in one folder, and the files beside them: each is written by itself.

What is whole is written as it is. Of a checkpoint, index and data files are judged together, once: each data file by
the tensors that lie in it. If one of them is not whole, it is written under a name that no library takes for it, and
beside it what can be saved of the checkpoint.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveParser
from pparse.document.extraction import extraction_of
from pparse.document.opening import Resume
from pparse.document.registry import viewer_for
from pparse.errors import (
    PASSING,
    ClosedError,
    DataChangedError,
    EndOfDataError,
    PathError,
    PparseError,
    SourceError,
)
from pparse.findings import Finding, Severity, Status
from pparse.parsers.checkpoint.beside import DATA, INDEX, STATE, StandInParser, without_marks
from pparse.parsers.checkpoint.parser import CheckpointParser
from pparse.parsers.tensorflow import SavedModelParser
from pparse.parsers.tensorflow_text import TensorflowTextParser
from pparse.recovery.document_verdict import DocumentVerdict, judge
from pparse.recovery.members_beside import verdict_on
from pparse.recovery.plan import base_name
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage_job import AS_FOUND
from pparse.viewers.checkpoint.viewer import CheckpointViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.tensors.extent import Extent
    from pparse.tree.result import Result

    Report = Callable[[RecoveredFile], object]

# Why the values of a checkpoint cannot be used.
NO_INDEX: Final = "without it, names, types and shapes of tensors are not known"


class ModelFiles:
    """Writes models and files, and tells of what is lost."""

    def __init__(
        self,
        findings: FindingList,
        report: Report,
        write_bytes: Callable[..., object],
        write_document: Callable[..., object],
        salvage: Callable[..., bool],
    ) -> None:
        """The last three are those of the walk that writes the files."""
        self._findings = findings
        self._report = report
        self._write_bytes = write_bytes
        self._write_document = write_document
        self._salvage = salvage
        self.resume: list[Resume] = []
        """Files to resume, of all models."""

    def note(self, code: str, reason: str, severity: Severity = Severity.ERROR, **known: Any) -> None:
        """Add a finding."""
        self._findings.add(Finding(code, reason, severity=severity, **known))

    def lost(self, name: str, reason: str) -> None:
        """Report a file that is not there, or cannot be read."""
        self._report(RecoveredFile(None, Status.MISSING, raw_name=name, reason=reason))

    def save_file(self, name: str, file: Extraction, *, must_be_model: bool = False) -> None:
        """Write a file, whatever it is, or what can be saved of it.

        Archives and streams are not unpacked: a model opens what belongs to it by its name. ``must_be_model``: its name
        says that it is a model, so one that is empty or of no known format is damaged.
        """
        if must_be_model and file.known_end() <= file.start:
            self.lost(name, "the file is empty: a download that never began")
            return
        # By its name, as the folder reads it: damage at its beginning makes it look like something else.
        is_message = must_be_model and name.endswith(".pb")
        try:
            result = file.parse(SavedModelParser.name if is_message else None)
        except PASSING:
            raise
        except PparseError as error:
            if must_be_model:
                self._write_damaged(name, file, error.reason)
            else:
                self._write_bytes(file, name)
            return
        inner = extraction_of(result)
        if is_message and result.root.find("meta_graphs") is None:
            found = result.root.finding
            self._write_damaged(name, file, found.reason if found is not None else "it has no meta graph")
        elif is_message:
            self._save_model(name, file, result)
        elif isinstance(file.own_result.parser, TensorflowTextParser):
            self._save_text(name, file, result)
        elif isinstance(result.parser, StandInParser):
            # For a checkpoint that is not here: nothing is wrong with this one.
            self._write_bytes(file, name)
        elif inner is file and not (isinstance(result.parser, ArchiveParser) and result.parser.viewer is None):
            if result.parser.needs_folder:
                self.save_checkpoint(name, file, ())
            else:
                self._save_model(name, file, result)
        elif inner.outermost is not file:  # it stands for another file, which is written by itself
            self._write_bytes(file, name)
        else:
            self._write_bytes(file, name, judgement=self._judge(file))

    def _save_model(self, name: str, file: Extraction, result: Result) -> None:
        """Write a model in one file, or what can be saved of it."""
        self._write_document(result, name, name)
        viewer = viewer_for(file) if result.status is Status.TRUNCATED else None
        if viewer is not None:
            self._to_resume(file, viewer.extent())

    def save_named(self, document: Extraction, result: Result) -> bool:
        """Write the checkpoint that ``document``, one file of it, stands for, and its graph. Return False if it stands
        for none; ``result`` is what it was read as."""
        index = extraction_of(result).outermost
        name = base_name(index.name)
        if isinstance(index.own_result.parser, TensorflowTextParser):
            self._save_text(name, index, result)
            return True
        if index.folder is None:
            return False
        if isinstance(result.parser, StandInParser):
            self.save_file(name, index)
            for other in result.parser.candidates()[:1]:
                self.lost(other, NO_INDEX)
            return True
        if not isinstance(result.parser, CheckpointParser):
            return False
        prefix = without_marks(name).removesuffix(INDEX)
        folder = index.folder
        names = [] if folder is None else folder.names() or ()
        found = ((other, DATA.fullmatch(without_marks(other))) for other in names)
        self.save_checkpoint(name, index, [other for other, is_data in found if is_data and is_data[1] == prefix])
        if document is not index and without_marks(base_name(document.name)) == STATE:
            self.save_file(STATE, document)
        graph = self._open(index, [f"{prefix}.meta"] if f"{prefix}.meta" in names else [], "")
        for other, file in graph.items():
            self.save_file(other, file)
        return True

    def _to_resume(self, file: Extraction, extent: Extent) -> None:
        """Keep which downloads are to be resumed to complete a model."""
        for found in extent.resume:
            own = found.file == file.name and file.folder is not None
            self.resume.append(Resume(file.folder.path_of(base_name(file.name)), found.at) if own else found)  # type: ignore[union-attr]

    def _save_text(self, name: str, file: Extraction, result: Result) -> None:
        """Write a model as text as it is; if it is not whole, as found, and the message that was read of it."""
        judgement = self._judge(file)
        self._write_judged(name, file, judgement)
        if not judgement.is_whole:
            message = f"{name[: name.rfind('/') + 1]}{base_name(extraction_of(result).name)}"
            self._write_document(result, message, name)

    def save_checkpoint(self, name: str, index: Extraction, data: Sequence[str]) -> None:
        """Write a checkpoint: its index, and the files beside it called ``data``, and any other that it names."""
        folder = name[: name.rfind("/") + 1]
        try:
            result = index.parse()
            model = extraction_of(result)
            viewer = viewer_for(model)
        except PASSING:
            raise
        except PparseError as error:
            self._write_damaged(name, index, error.reason)
            self._write_all(self._open(index, data, folder), folder)
            return
        if isinstance(viewer, CheckpointViewer):  # not every folder can be listed
            data = list(dict.fromkeys((*data, *(other for other, _ in viewer.files_beside()))))
        files = self._open(index, data, folder)
        if not isinstance(viewer, CheckpointViewer):  # one of version 1, whose values are in it, or no index at all
            self._write_document(result, name, name)
            self._write_all(files, folder)
            return
        judgement = self._judge(model)
        verdicts = {other: verdict_on(file, viewer, model) for other, file in files.items()}
        extent = viewer.extent()  # all tensors are listed now
        missing = list(viewer.files_missing())
        if files:  # else the index says all that is known
            self._salvage(model, name, judgement, keep=False)
        is_whole = judgement.is_whole or (
            # The fault is in the others: nothing is wrong with this one.
            model.status is Status.COMPLETE
            and (bool(missing) or not all(verdict.is_whole for verdict in verdicts.values()))
        )
        self._write_judged(name, model, judgement if judgement.is_whole or not is_whole else None)
        for other, file in files.items():
            self._write_judged(folder + other, file, verdicts[other])
        for other, reason in missing:
            if other not in data:
                self.lost(folder + other, reason)
        self._to_resume(index, extent)

    def _open(self, index: Extraction, data: Sequence[str], folder: str) -> dict[str, Extraction]:
        """Return the files beside an index that can be opened; the others are reported."""
        files: dict[str, Extraction] = {}
        for other in data:
            try:
                file = index.sibling(other)
                file.known_end()  # a file is opened when it is asked
                files[other] = file
            except (ClosedError, DataChangedError):
                raise
            except (SourceError, EndOfDataError, PathError) as error:
                self.lost(folder + other, error.reason)
        return files

    def _write_all(self, files: Mapping[str, Extraction], folder: str) -> None:
        for name, file in files.items():
            self._write_bytes(file, folder + name)

    def _judge(self, extraction: Extraction) -> DocumentVerdict:
        """Check all of a document; its findings count for the whole."""
        judgement = judge(extraction)
        self._findings.extend(judgement.findings)
        return judgement

    def _write_judged(self, name: str, file: Extraction, judgement: DocumentVerdict | None) -> None:
        """Write a file as it is; if it is not whole, under a name that no library takes for a model."""
        whole = judgement is None or judgement.is_whole
        self._write_bytes(file, name if whole else AS_FOUND.format(name), name, judgement)

    def _write_damaged(self, name: str, file: Extraction, reason: str) -> None:
        """Write a file that is not the model that its name says."""
        finding = Finding("malformed", reason, source=name)
        self._findings.add(finding)
        self._write_judged(name, file, DocumentVerdict.on_damage(finding))
