"""A folder of checkpoints of TensorFlow: opened as the latest, or the only one.

States: those of `pparse.parsers.checkpoint.beside`, whose files stand for a checkpoint, too.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.findings import Finding
from pparse.lazy import lazy_pattern
from pparse.parsers.checkpoint.beside import DATA, INDEX, STATE, StandInParser, note_others, read_state, without_marks
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar, Final

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.result import Result

INDEX_OF_VARIABLES: Final = "variables/variables.index"
"""Where TensorFlow's loader looks for the variables of a SavedModel (tensorflow/python/saved_model/constants.py)."""
_SAVED_MODEL: Final = frozenset(("fingerprint.pb", "keras_metadata.pb"))
_NUMBERS = lazy_pattern(r"\d{1,18}")


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
        """Return the indexes in a folder, the newest first; only that of the latest if it is known, and a file of it is
        there. Without any index, the one that the newest data file needs."""
        prefixes = prefixes_of_data(folder)
        latest = latest_in(folder)
        there = [name for name in latest if name in folder.members or name.removesuffix(INDEX) in prefixes]
        found = there[:1] or indexes_in(folder) or [prefix + INDEX for prefix in prefixes[:1]]
        if not found and not _SAVED_MODEL.isdisjoint(folder.members) and has_variables(folder):
            return [INDEX_OF_VARIABLES]  # what is left of a SavedModel
        return found

    @classmethod
    def about_models(cls, folder: FolderExtraction) -> str:
        """Say that the latest checkpoint is not in the folder, if that is known."""
        latest = next(iter(latest_in(folder)), "").removesuffix(INDEX)
        return f"the latest checkpoint by the file {STATE}, {latest}, is not here" if latest else ""

    def candidates(self) -> Sequence[str]:
        """Return the index that stands for the folder."""
        return self._names[:1]

    def model_file(self) -> Extraction | None:
        """Return the index."""
        return self.unwrapped()

    def facts(self) -> Sequence[str]:
        """Return the prefixes of all checkpoints in it."""
        return self._kept

    def _instead(self) -> str:
        others = [prefix for prefix in self._kept if [prefix + INDEX] != list(self._names)]
        return f"; of others, it is there: {', '.join(others[:4])}" if others else ""

    def _tell(self, index: Extraction) -> None:
        if index.name == INDEX_OF_VARIABLES:
            reason = "the folder is that of a SavedModel without its saved_model.pb; these are its variables"
            index.notes += (Finding("missing", reason, source=self.result.extraction.name),)
            return
        note_others(index, next(iter(latest_in(self.result.extraction)), ""), self._kept)  # type: ignore[arg-type]


def indexes_in(folder: FolderExtraction) -> list[str]:
    """Return the indexes in a folder that have a data file beside them, the newest first."""
    prefixes = prefixes_of_data(folder)
    indexes = [name for name in folder.members if without_marks(name).endswith(INDEX)]
    return sorted((name for name in indexes if without_marks(name).removesuffix(INDEX) in prefixes), key=_age)


def has_variables(folder: FolderExtraction) -> bool:
    """Return whether the folder has variables of a SavedModel."""
    try:
        folder.sibling(INDEX_OF_VARIABLES).known_end()
    except (SourceError, EndOfDataError, PathError):
        return False
    return True


def prefixes_of_data(folder: FolderExtraction) -> list[str]:
    """Return the prefixes of the data files in a folder, the newest first."""
    found = (DATA.fullmatch(without_marks(name)) for name in folder.members)
    return sorted({match[1] for match in found if match is not None}, key=_age)


def _age(name: str) -> tuple[list[int], str]:
    """Return a key by which names with greater numbers of steps come first."""
    return [-int(number) for number in _NUMBERS.findall(name)], name


def latest_in(folder: FolderExtraction) -> Sequence[str]:
    """Return what the file ``checkpoint`` of a folder names as the latest, as names that its file may have."""
    if STATE not in folder.members:
        return []
    try:
        return read_state(folder.sibling(STATE).reader)[0]
    except (SourceError, EndOfDataError):
        return []
