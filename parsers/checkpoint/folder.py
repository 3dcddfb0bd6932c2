"""A folder of checkpoints of TensorFlow: opened as the latest, or the only one.

States: those of `pparse.parsers.checkpoint.beside`, whose files stand for a checkpoint, too.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, SourceError
from pparse.parsers.checkpoint.beside import DATA, INDEX, STATE, StandInParser, note_others, read_state, without_marks
from pparse.tree.recognition import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.result import Result


class CheckpointFolderParser(StandInParser):
    """A folder of checkpoints: the latest, if a file ``checkpoint`` names it, or the only one."""

    name = "tf-checkpoint-folder"
    description = "folder with TensorFlow checkpoints: the latest, or the only one"
    reads = "folder"
    saved_as_a_whole = True
    named_is_enough = True
    extensions: ClassVar[tuple[str, ...]] = ()
    limitations: ClassVar[tuple[str, ...]] = (
        "a folder with several checkpoints and no file that names the latest lists them and asks for one",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self._names = self.models_in(folder)
        self._kept = [name.removesuffix(INDEX) for name in indexes_in(folder)]

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with an index and its data, or with the file ``checkpoint`` and one of these."""
        return Confidence.LIKELY if cls.models_in(folder) else Confidence.NO

    @classmethod
    def models_in(cls, folder: FolderExtraction) -> Sequence[str]:
        """Return the indexes in a folder; if the latest is known and there, only that."""
        indexes = indexes_in(folder)
        latest = [name for name in latest_in(folder) if name in folder.members]
        return latest[:1] or indexes

    def candidates(self) -> Sequence[str]:
        """Return the index that stands for the folder."""
        return self._names[:1]

    def model_file(self) -> Extraction | None:
        """Return the index."""
        return self.unwrapped()

    def facts(self) -> Sequence[str]:
        """Return the prefixes of all checkpoints in it."""
        return self._kept

    def _tell(self, index: Extraction) -> None:
        note_others(index, next(iter(latest_in(self.result.extraction)), ""), self._kept)  # type: ignore[arg-type]


def indexes_in(folder: FolderExtraction) -> list[str]:
    """Return the indexes in a folder that have a data file beside them, or would have if none has."""
    bare = {name: without_marks(name) for name in folder.members}
    prefixes = dict.fromkeys(found[1] for name in bare.values() if (found := DATA.fullmatch(name)) is not None)
    indexes = [name for name, called in bare.items() if called.endswith(INDEX)]
    with_data = [name for name in indexes if bare[name].removesuffix(INDEX) in prefixes]
    return with_data or ([prefix + INDEX for prefix in prefixes] if not indexes else [])


def latest_in(folder: FolderExtraction) -> Sequence[str]:
    """Return what the file ``checkpoint`` of a folder names as the latest, as names that its file may have."""
    if STATE not in folder.members:
        return []
    try:
        return read_state(folder.sibling(STATE).reader)[0]
    except (SourceError, EndOfDataError):
        return []
