"""Models in several files, that lie in one folder or in one archive: what belongs together, and how it is written.

What is whole is written as it is. Of a checkpoint, index and data files are judged together, once: each data file by
the tensors that lie in it. If one of them is not whole, it is written under a name that no library takes for it, and
beside it what can be saved of the checkpoint.

A folder with models is saved as a whole: checkpoints first, each with its data files, then the others. A model may need
files that it does not name, such as a vocabulary; and of files that belong to no model, nobody but the owner can tell
whether they matter.

A walk through an archive meets each of its members by itself. `BesideJudge` opens one as if it were named alone, so
that the others are found beside it: the model is checked once.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from weakref import WeakKeyDictionary

from pparse.containers.archive import ArchiveParser
from pparse.document.extraction import extraction_of
from pparse.document.folder import FILE, FOLDER, FolderItem
from pparse.document.opening import Resume
from pparse.document.registry import viewer_for
from pparse.errors import DataError, EndOfDataError, FaultError, FormatError, PathError, SourceError
from pparse.findings import Finding, Severity, Status
from pparse.limits import count_words
from pparse.parsers.checkpoint.parser import (
    DATA,
    INDEX,
    INDEX_OF_VARIABLES,
    STATE,
    CheckpointFolderParser,
    CheckpointParser,
    StandInParser,
    has_variables,
    read_state,
    without_marks,
)
from pparse.parsers.tensorflow import ASSETS, MEMBERS, VARIABLES, SavedModelParser, TensorflowTextParser
from pparse.recovery.document_verdict import DocumentVerdict, verify_document
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage import AS_FOUND, Job, Rest, salvage, text_of
from pparse.tensors.parts import why_absent
from pparse.tensors.viewer import Viewer
from pparse.viewers.checkpoint.viewer import CheckpointViewer
from pparse.viewers.shards import ShardTable
from pparse.viewers.tensorflow.saved_model import SavedModelViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.containers.archive import ArchiveMember
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.shards import ShardSet
    from pparse.recovery.target import Target, TargetFile
    from pparse.recovery.unpack import Unpacker
    from pparse.tensors.status import Extent
    from pparse.tree.result import Result
    from pparse.viewers.shards import ShardSetViewer

    Unit = tuple[tuple[object, ...], Callable[[], None]]
    Verdicts = dict[int, DocumentVerdict]

# Why the values of a checkpoint cannot be used.
NO_INDEX: Final = "without it, names, types and shapes of tensors are not known"
# Folders of a SavedModel: who keeps one elsewhere has a link to it.
_FOLLOWED: Final = (VARIABLES, ASSETS, "assets.extra")
# Memory of an item of the list of files of a folder.
_COST: Final = 400
# Models of an archive whose verdicts are kept: its members may be in any order, such as that of a folder on the disk.
_KEPT: Final = 64


def base_name(path: str) -> str:
    """Return the last part of a path; "file" if it has none."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "file"


def files_beside(document: Extraction) -> list[tuple[str, Extraction]]:
    """Return the other files that a document consists of, by their names in its folder; none if it cannot be read."""
    try:
        viewer = viewer_for(document)
        return list(viewer.files_beside()) if isinstance(viewer, Viewer) else []
    except DataError:
        return []


class ModelFiles:
    """Writes models and files by ``walk``, and tells of what is lost."""

    def __init__(self, walk: Unpacker) -> None:
        self.walk = walk
        self.resume: list[Resume] = []
        """Files to resume, of all models."""

    def lost(self, name: str, reason: str) -> None:
        """Report a file that is not there, or cannot be read."""
        self.walk.report(RecoveredFile(None, Status.MISSING, raw_name=name, reason=reason))

    def save_file(self, name: str, file: Extraction, *, must_be_model: bool = False) -> None:
        """Write a file, whatever it is, or what can be saved of it.

        Archives and streams are not unpacked: a model opens what belongs to it by its name. ``must_be_model``: its name
        says that it is a model, so one that is empty or of no known format is damaged.
        """
        if must_be_model and file.find_end() <= file.start:
            self.lost(name, "the file is empty: a download that never began")
            return
        # By its name, as the folder reads it: damage at its beginning makes it look like something else.
        is_message = must_be_model and name.endswith(".pb")
        try:
            result = file.parse(SavedModelParser.name if is_message else None)
        except DataError as error:
            if must_be_model:
                self._write_damaged(name, file, error.reason)
            else:
                self.walk.write_bytes(file, name)
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
            self.walk.write_bytes(file, name)
        elif inner is file and not (isinstance(result.parser, ArchiveParser) and result.parser.viewer is None):
            if result.parser.needs_folder:
                self.save_checkpoint(name, file, ())
            else:
                self._save_model(name, file, result)
        elif inner.outermost is not file:  # it stands for another file, which is written by itself
            self.walk.write_bytes(file, name)
        else:
            self.walk.write_bytes(file, name, judgement=self.walk.verdict_on(file))

    def _save_model(self, name: str, file: Extraction, result: Result) -> None:
        """Write a model in one file, or what can be saved of it."""
        self.walk.write_document(result, name, name)
        viewer = viewer_for(file) if result.is_truncated else None
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
        folder = index.folder
        if folder is None:
            return False
        if isinstance(result.parser, StandInParser):
            self.save_file(name, index)
            for other in result.parser.candidates()[:1]:
                self.lost(other, NO_INDEX)
            return True
        if not isinstance(result.parser, CheckpointParser):
            return False
        prefix = without_marks(name).removesuffix(INDEX)
        names = folder.names() or ()
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
        judgement = self.walk.verdict_on(file)
        self._write_judged(name, file, judgement)
        if not judgement.is_whole:
            message = f"{name[: name.rfind('/') + 1]}{base_name(extraction_of(result).name)}"
            self.walk.write_document(result, message, name)

    def save_checkpoint(self, name: str, index: Extraction, data: Sequence[str]) -> None:
        """Write a checkpoint: its index, and the files beside it called ``data``, and any other that it names."""
        folder = name[: name.rfind("/") + 1]
        try:
            result = index.parse()
            model = extraction_of(result)
            viewer = viewer_for(model)
        except DataError as error:
            self._write_damaged(name, index, error.reason)
            self._write_all(self._open(index, data, folder), folder)
            return
        if isinstance(viewer, CheckpointViewer):  # not every folder can be listed
            data = list(dict.fromkeys((*data, *(other for other, _ in viewer.files_beside()))))
        files = self._open(index, data, folder)
        if not isinstance(viewer, CheckpointViewer):  # one of version 1, whose values are in it, or no index at all
            self.walk.write_document(result, name, name)
            self._write_all(files, folder)
            return
        judgement = self.walk.verdict_on(model)
        verdicts = {other: verdict_on(file, viewer, model) for other, file in files.items()}
        extent = viewer.extent()  # all tensors are listed now
        missing = list(viewer.files_missing())
        if files:  # else the index says all that is known
            self.walk.salvage(model, name, judgement, keep=False)
        is_whole = judgement.is_whole or (
            # The fault is in the others: nothing is wrong with this one.
            model.is_complete and (bool(missing) or not all(verdict.is_whole for verdict in verdicts.values()))
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
        found = ((other, self.opened(folder + other, partial(index.sibling, other))) for other in data)
        return {other: file for other, file in found if file is not None}

    def opened(self, name: str, give: Callable[[], Extraction]) -> Extraction | None:
        """Return the file that ``give`` returns; None if it cannot be opened, which is reported."""
        try:
            file = give()
            file.find_end()  # a file is opened when it is asked
        except (SourceError, EndOfDataError, PathError) as error:
            self.lost(name, error.reason)
            return None
        return file

    def _write_all(self, files: Mapping[str, Extraction], folder: str) -> None:
        for name, file in files.items():
            self.walk.write_bytes(file, folder + name)

    def _write_judged(self, name: str, file: Extraction, judgement: DocumentVerdict | None) -> None:
        """Write a file as it is; if it is not whole, under a name that no library takes for a model."""
        whole = judgement is None or judgement.is_whole
        self.walk.write_bytes(file, name if whole else AS_FOUND.format(name), name, judgement)

    def _write_damaged(self, name: str, file: Extraction, reason: str) -> None:
        """Write a file that is not the model that its name says."""
        finding = Finding("malformed", reason, source=name)
        self.walk.findings.add(finding)
        self._write_judged(name, file, DocumentVerdict.on_damage(finding))


# -- shards ------------------------------------------------------------------------------------------------------------


class ShardWriter:
    """Saves every shard of a model by itself, and writes an index of what there is.

    A whole shard is written as it is, others as `pparse.recovery.salvage` does. If all shards are whole, the index is
    copied, too. Otherwise a new index names the tensors in the written files, and ``INDEX.rest.json`` beside it lists
    those that are lost. A set without an index gets none.
    """

    def __init__(self, walk: Unpacker, result: Result, parser: ShardSet) -> None:
        self._walk = walk
        self._target = walk.target
        self._result = result
        self._parser = parser
        self._viewer: ShardSetViewer = viewer_for(extraction_of(result))
        self._names = parser.shard_names()
        self._table = ShardTable(parser.weight_map(), self._names) if parser.has_map else None
        self._index: TargetFile | None = None
        self._entries = 0
        self._bytes = 0
        self._path: str | None = None  # path of the shard being written, in the target
        self._shard = ""
        self._lost: dict[str, str] = {}  # lost shards, and why
        self._whole = True

    def run(self, index: DocumentVerdict) -> None:
        """Write the shards and the index; ``index`` is the judgement on the set as a whole."""
        extraction = self._result.extraction
        own = self._parser.index
        name = base_name(own.result.extraction.name) if own is not None else ""
        try:
            if own is not None and self._table is not None:
                self._index = self._target.create(name)
                self._index.write(b'{"weight_map": {')
            for shard in dict.fromkeys((*self._names, *self._parser.extra_files())):
                extraction.session.check_cancelled()
                self._write_shard(shard)
            if own is None:
                return
            if self._index is None or (self._whole and index.is_whole):
                if self._index is not None:
                    self._index.discard()
                self._walk.write_plain(own.result, name, extraction.name, verify_document(extraction_of(own.json)))
            else:
                self._end_index(self._index, extraction_of(own.result))
        finally:
            if self._index is not None:
                self._index.discard()

    def _write_shard(self, name: str) -> None:
        self._shard, self._path = name, None
        try:
            shard = self._parser.shard(name)
            result = shard.parse()
        except (FaultError, SourceError) as error:  # no file, or not a known format: go on with the others
            reason = why_absent(name, error) if isinstance(error, SourceError) else error.reason
            self._lost[name] = f"its shard is lost: {reason}"
            self._whole = False
            self._walk.models.lost(name, reason)
            return
        entries = self._entries
        judgement = verify_document(shard)
        saved = False
        if not judgement.is_plain:
            with suppress(FaultError):
                saved = salvage(shard, self._target, name, report=self._note, kept=self._keep)
        if saved:
            self._whole = False
        else:
            self._path = self._walk.write_plain(result, name, name, judgement)
            self._whole = self._whole and judgement.is_whole
            viewer = viewer_for(shard) if self._path is not None else None
            if viewer is not None and not viewer.is_set:
                for tensor in viewer.tensors():
                    self._keep(tensor.name, tensor.stored_nbytes)
        if self._entries == entries:
            self._lost.setdefault(name, "nothing of it is whole")
        shard.results.clear()  # do not keep the headers of thousands of shards
        shard.children.clear()

    def _note(self, file: RecoveredFile) -> None:
        """Record a reported file of the shard; the first is the shard itself."""
        self._path = self._path or file.path
        self._walk.report(file)

    # -- the index -----------------------------------------------------------------------------------------------------

    def _keep(self, name: str, size: int) -> None:
        """Add a tensor of the shard being written to the index."""
        if self._table is None or self._index is None or self._path is None:
            return
        place = self._table.see(name)
        if place is not None and 0 <= place < len(self._names) and self._names[place] != self._shard:
            mapped = self._names[place]
            if mapped not in self._lost and self._viewer._in_shard(mapped, name) is not None:
                return  # the index means that one; this is another with the same name
        separator = ",\n" if self._entries else "\n"
        self._index.write(f"{separator}{json.dumps(name)}: {json.dumps(self._path)}".encode())
        self._entries += 1
        self._bytes += size

    def _end_index(self, file: TargetFile, extraction: Extraction) -> None:
        """Finish the index, and list the tensors that it lacks."""
        metadata = {
            key: value
            for key, value in self._parser.index_metadata().items()
            if isinstance(value, str | int | bool) or value is None
        }
        metadata["total_size"] = self._bytes
        file.write(f"\n}},\n{json.dumps('metadata')}: {json.dumps(metadata)}}}\n".encode())
        file.close()
        total = self._parser.map_size() or 0
        job = Job(extraction, file.path, self._target, self._walk.report)
        reason = (
            f"a new index of the {count_words(self._entries, 'tensor')} that are whole; the old index names {total:,}"
        )
        job.report(file, Status.DAMAGED, reason)
        with Rest(job, file.path, {"format": "safetensors-index"}) as rest:
            for name, shard in self._parser.weight_map():
                if self._table is not None and not self._table.seen(name):
                    why = self._lost.get(shard or "", "its shard does not have this tensor, or only a part")
                    rest.add(
                        {
                            "name": text_of(name),
                            "shard": None if shard is None else text_of(shard),
                            "status": Status.MISSING.value,
                            "reason": text_of(why),
                        }
                    )
            rest.finish(Status.DAMAGED)


# -- a folder ----------------------------------------------------------------------------------------------------------


class FolderFiles:
    """What is in a folder that is saved as a whole."""

    def __init__(self, document: FolderExtraction, skipped: str) -> None:
        """``skipped``: the folder to write to, which may lie in this one."""
        session = document.session
        self._document = document
        # Files as the model opened them: it may know more of them than they themselves do.
        self._known = {_below(document) + name: file for name, file in files_beside(document)}
        self._items: dict[str, FolderItem] = {}
        self._lacking: dict[str, str] = {}  # files that are not there, and why they are needed
        self._charge = session.budget.charge(0, "the names of the files of the folder")
        for item in document.folder.tree(_FOLLOWED, skipped):
            session.limits.check("entries", len(self._items), "the files of the folder")
            if not len(self._items) % 1024:
                session.check_cancelled()
                self._charge.resize(_COST * (len(self._items) + 1024))
            self._items[item.path] = item
        for name, file in self._known.items():  # a folder that was given need not list what is below it
            self._items.setdefault(name, FolderItem(name, FILE, file.find_end() - file.start))

    @property
    def size(self) -> int:
        """Size of all files in bytes, as far as it is known."""
        return sum(item.size or 0 for item in self._items.values())

    @property
    def stamp(self) -> str | None:
        """What is equal for the same files only, while none of them changes; None if that is not known."""
        return stamp_of(self._items.values())

    def units(self, writer: ModelFiles, target: Target) -> Iterator[Unit]:
        """Yield what identifies each file or checkpoint, and what saves it."""
        files: list[str] = []
        writer.walk.writes_beside = False
        for item in self._items.values():
            if item.kind == FILE:
                files.append(item.path)
            elif item.kind == FOLDER:
                target.make_folder(item.path)
        bare = {without_marks(name): name for name in files}
        data: dict[str, list[str]] = {}
        for called, name in bare.items():
            found = DATA.fullmatch(called)
            if found is None:
                continue
            index = bare.get(f"{found[1]}{INDEX}")
            if index is not None:
                data.setdefault(index, []).append(name)
            else:
                self._lacking[f"{found[1]}{INDEX}"] = NO_INDEX
        for index, names in data.items():
            yield ("checkpoint", index), partial(self._save_checkpoint, writer, index, names)
        done = {*data, *(name for names in data.values() for name in names)}
        for name in files:
            if name not in done:
                yield ("file", name), partial(self._save_file, writer, name)
        yield ("folder",), partial(self._save_rest, writer)

    def _open(self, writer: ModelFiles, name: str) -> Extraction | None:
        """Return a file, which nothing keeps; None if it cannot be opened, which is reported."""

        def give() -> Extraction:
            if name in self._known:
                return self._known[name]
            if name in MEMBERS:  # the message is the one that the fingerprint was compared with
                return self._document.sibling(name)
            entered: Extraction = self._document.folder.enter(name, self._document)
            return entered

        return writer.opened(name, give)

    def _save_checkpoint(self, writer: ModelFiles, name: str, data: list[str]) -> None:
        index = self._open(writer, name)
        if index is not None:
            writer.save_checkpoint(name, index, [base_name(other) for other in data])
        else:
            for other in data:
                self._save_file(writer, other)

    def _save_file(self, writer: ModelFiles, name: str) -> None:
        if name in MEMBERS:  # is the message what the fingerprint says?
            with suppress(DataError):  # the message is told of
                viewer = viewer_for(self._document)
                if isinstance(viewer, SavedModelViewer):
                    viewer.compare_fingerprint()
        file = self._open(writer, name)
        if file is not None:
            writer.save_file(name, file, must_be_model=name in MEMBERS)

    def _save_rest(self, writer: ModelFiles) -> None:
        """Tell of what is not saved, or not there."""
        source, has_message = self._document.name, any(name in self._items for name in MEMBERS)
        for item in self._items.values():
            if item.kind not in (FILE, FOLDER):
                if item.kind.startswith("cannot"):
                    writer.lost(item.path, item.kind)
                else:
                    reason = f"{item.kind}, which is never written"
                    writer.walk.note("not-written", reason, Severity.NOTE, path=item.path, source=source)
        with suppress(DataError):  # the message is told of
            viewer = viewer_for(self._document) if has_message else None
            self._lacking.update(viewer.files_missing() if isinstance(viewer, Viewer) else ())
        is_outermost = self._document.topmost is self._document  # else it is the archive that can be fetched
        for name, reason in self._lacking.items():
            writer.lost(name, reason)
            if is_outermost:
                writer.resume.append(Resume(self._document.folder.path_of(name), 0))
        if not has_message and INDEX_OF_VARIABLES in self._items:
            reason = "no message of a SavedModel is in the folder: its variables are all that is known of the model"
            writer.walk.note("missing", reason, path=MEMBERS[1], source=source)
        if STATE in self._items and self._items[STATE].kind == FILE:
            self._look_for_latest(writer)

    def _look_for_latest(self, writer: ModelFiles) -> None:
        """Say if the checkpoint is not there that readers look for first."""
        state = self._open(writer, STATE)
        names = read_state(state.reader)[0] if state is not None else []
        if not names:
            reason = "it names no checkpoint: readers look here for the latest one"
            writer.walk.note("other-checkpoints", reason, Severity.WARNING, source=STATE)
        elif not any(name in self._items for name in names):
            latest = names[0].removesuffix(INDEX)
            reason = f"the latest checkpoint by the file {STATE}, {latest}, is not here"
            writer.walk.note("other-checkpoints", reason, Severity.WARNING, source=STATE)


def stamp_of(items: Iterable[FolderItem]) -> str | None:
    """Return what is equal for the same files only, while none of them changes; None if that is not known."""
    digest = blake2b(digest_size=16)
    for item in items:
        if item.kind == FILE and not item.stamp:
            return None
        digest.update(repr((item.path, item.kind, item.stamp)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def whole_folder(document: Extraction, skipped: str) -> FolderFiles | None:
    """Return the files of a folder that is saved as a whole; None if ``document`` is no such folder.

    Raises `FormatError` if it holds nothing that is known.
    """
    if not document.is_folder:
        return None
    folder: FolderExtraction = document  # type: ignore[assignment]
    try:
        container = document.own_result.container
    except (FormatError, PathError):  # nothing stands for the folder, or several files could
        if not CheckpointFolderParser.match_folder(folder) and not has_variables(folder):
            raise
        document.assume(CheckpointFolderParser.name)
        container = document.own_result.container
    return FolderFiles(folder, skipped) if container is not None and container.saved_as_a_whole else None


def _below(folder: FolderExtraction) -> str:
    """Return the folder below in which the file lies that stands for the folder, with a slash; empty: in itself."""
    parser = folder.own_result.parser
    name = next(iter(parser.candidates()), "") if isinstance(parser, StandInParser) else ""
    return name[: name.rfind("/") + 1]


# -- members of an archive ---------------------------------------------------------------------------------------------


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

    def verdict_on(self, model: Extraction) -> DocumentVerdict:
        """Return the verdict on a model, by its main file, which has been entered."""
        archive, at = _place(model)
        known = self._verdicts.setdefault(archive, OrderedDict())
        if self._latest is None or self._latest[2] is not model:
            self._latest = None  # give its memory back first
            verdict = verify_document(model)
            known.pop(at, None)
            viewer = viewer_for(model)
            beside = viewer.files_beside() if isinstance(viewer, Viewer) else ()
            files = [(file.origin[1].at, file) for _, file in beside if file.origin is not None]
            known[at] = {at: verdict, **{place: verdict_on(file, viewer, model) for place, file in files}}
            self._latest = archive, at, model
            if len(known) > _KEPT:
                known.popitem(last=False)
        return known[at][at]

    def judge_file(self, model: Extraction, member: ArchiveMember) -> DocumentVerdict | None:
        """Return the verdict on a data file of ``model`` by the tensors in it; None if none of them is in this file."""
        archive, at = _place(model)
        if at not in self._verdicts.get(archive, ()):
            self.verdict_on(model)
        return self._verdicts[archive][at].get(member.at)

    @staticmethod
    def is_whole_alone(model: Extraction) -> bool:
        """Say whether nothing is wrong with a checked file by itself, whatever is beside it."""
        return viewer_for(model) is None or model.is_complete

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


def verdict_on(file: Extraction, viewer: Viewer, model: Extraction) -> DocumentVerdict:
    """Judge a data file of ``model`` by the checksums of the tensors in it, all of which were compared."""
    verdict = DocumentVerdict(model.session.limits.findings)
    count = agreed = 0
    tensors = wrong = 0
    reach, end = file.start, file.find_end()
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
            agreed += bool(known.verified or span.is_proved) and stop <= end
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
