"""All files of a folder with models, to be saved: checkpoints first, each with its data files, then the others.

A model may need files that it does not name, such as a vocabulary; and of files that belong to no model, nobody but the
owner can tell whether they matter. So everything in the folder is saved.
"""

from __future__ import annotations

from hashlib import blake2b

from pparse.document.folder import FILE, FOLDER, FolderItem
from pparse.document.opening import Resume
from pparse.document.registry import viewer_for
from pparse.errors import (
    PASSING,
    ClosedError,
    DataChangedError,
    EndOfDataError,
    FormatError,
    PathError,
    PparseError,
    SourceError,
)
from pparse.findings import Severity
from pparse.parsers.checkpoint.beside import DATA, INDEX, STATE, StandInParser, read_state, without_marks
from pparse.parsers.checkpoint.folder import INDEX_OF_VARIABLES, CheckpointFolderParser, has_variables
from pparse.parsers.tensorflow import ASSETS, MEMBERS, VARIABLES
from pparse.recovery.model_files import NO_INDEX
from pparse.recovery.plan import base_name, files_beside
from pparse.tensors.viewer import Viewer
from pparse.viewers.tensorflow.saved_model import SavedModelViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.recovery.model_files import ModelFiles
    from pparse.recovery.target import Target

    Unit = tuple[tuple[object, ...], Callable[[], bool]]

# Folders of a SavedModel: who keeps one elsewhere has a link to it.
_FOLLOWED: Final = (VARIABLES, ASSETS, "assets.extra")
# Memory of an item of the list.
_COST: Final = 400


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
            self._items.setdefault(name, FolderItem(name, FILE, file.known_end() - file.start))

    @property
    def size(self) -> int:
        """Size of all files in bytes, as far as it is known."""
        return sum(item.size or 0 for item in self._items.values())

    @property
    def stamp(self) -> str | None:
        """What is equal for the same files only, while none of them changes; None if that is not known."""
        digest = blake2b(digest_size=16)
        for item in self._items.values():
            if item.kind == FILE and not item.stamp:
                return None
            digest.update(repr((item.path, item.kind, item.stamp)).encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    def units(self, writer: ModelFiles, target: Target) -> Iterator[Unit]:
        """Yield what identifies each file or checkpoint, and what saves it."""
        files: list[str] = []
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
            yield ("checkpoint", index), self._saving(self._save_checkpoint, writer, index, names)
        done = {*data, *(name for names in data.values() for name in names)}
        for name in files:
            if name not in done:
                yield ("file", name), self._saving(self._save_file, writer, name)
        yield ("folder",), self._saving(self._save_rest, writer)

    @staticmethod
    def _saving(save: Callable[..., None], *given: object) -> Callable[[], bool]:
        def work() -> bool:
            save(*given)
            return False

        return work

    def _open(self, writer: ModelFiles, name: str) -> Extraction | None:
        """Return a file, which nothing keeps; None if it cannot be opened, which is reported."""
        try:
            file = self._known.get(name)
            if file is None:  # the message is the one that the fingerprint was compared with
                enter = self._document.sibling if name in MEMBERS else self._enter
                file = enter(name)
            file.known_end()  # a file is opened when it is asked
        except (ClosedError, DataChangedError):
            raise
        except (SourceError, EndOfDataError, PathError) as error:
            writer.lost(name, error.reason)
            return None
        return file

    def _enter(self, name: str) -> Extraction:
        entered: Extraction = self._document.folder.enter(name, self._document)
        return entered

    def _compare_fingerprint(self) -> None:
        """Find out whether the message is what the fingerprint says."""
        try:
            viewer = viewer_for(self._document)
            if isinstance(viewer, SavedModelViewer):
                viewer.compare_fingerprint()
        except PASSING:
            raise
        except PparseError:  # the message is told of
            pass

    def _save_checkpoint(self, writer: ModelFiles, name: str, data: list[str]) -> None:
        index = self._open(writer, name)
        if index is not None:
            writer.save_checkpoint(name, index, [base_name(other) for other in data])
            return
        for other in data:
            self._save_file(writer, other)

    def _save_file(self, writer: ModelFiles, name: str) -> None:
        if name in MEMBERS:
            self._compare_fingerprint()
        file = self._open(writer, name)
        if file is not None:
            writer.save_file(name, file, must_be_model=name in MEMBERS)

    def _save_rest(self, writer: ModelFiles) -> None:
        """Tell of what is not saved, or not there."""
        source = self._document.name
        for item in self._items.values():
            if item.kind not in (FILE, FOLDER):
                if item.kind.startswith("cannot"):
                    writer.lost(item.path, item.kind)
                else:
                    reason = f"{item.kind}, which is never written"
                    writer.note("not-written", reason, Severity.NOTE, path=item.path, source=source)
        try:
            viewer = viewer_for(self._document) if self._has_message() else None
            self._lacking.update(viewer.files_missing() if isinstance(viewer, Viewer) else ())
        except PASSING:
            raise
        except PparseError:  # the message is told of
            pass
        is_outermost = self._document.topmost is self._document  # else it is the archive that can be fetched
        for name, reason in self._lacking.items():
            writer.lost(name, reason)
            if is_outermost:
                writer.resume.append(Resume(self._document.folder.path_of(name), 0))
        if not self._has_message() and INDEX_OF_VARIABLES in self._items:
            reason = "no message of a SavedModel is in the folder: its variables are all that is known of the model"
            writer.note("missing", reason, path=MEMBERS[1], source=source)
        if STATE in self._items and self._items[STATE].kind == FILE:
            self._look_for_latest(writer)

    def _has_message(self) -> bool:
        return any(name in self._items for name in MEMBERS)

    def _look_for_latest(self, writer: ModelFiles) -> None:
        """Say if the checkpoint is not there that readers look for first."""
        state = self._open(writer, STATE)
        names = read_state(state.reader)[0] if state is not None else []
        if not names:
            reason = "it names no checkpoint: readers look here for the latest one"
            writer.note("other-checkpoints", reason, Severity.WARNING, source=STATE)
        elif not any(name in self._items for name in names):
            latest = names[0].removesuffix(INDEX)
            reason = f"the latest checkpoint by the file {STATE}, {latest}, is not here"
            writer.note("other-checkpoints", reason, Severity.WARNING, source=STATE)


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
