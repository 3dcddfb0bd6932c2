"""Files that stand for the checkpoint they belong to: a data file of a TensorBundle, and the file ``checkpoint``.

``prefix.data-00000-of-00001`` has the values of the checkpoint whose index is ``prefix.index``, and nothing that tells
which. ``checkpoint`` is a CheckpointState in text form: ``model_checkpoint_path`` names the latest of a folder's
checkpoints by its prefix, ``all_model_checkpoint_paths`` each that was kept
(tensorflow/python/training/checkpoint_state.proto). A path of another machine leads nowhere: its last part counts.

Each is opened as the index beside it (`Container.unwrapped`); read by its own format, or without that index, it has
these states::

    state          needs  reads                                             goes to
    expect_facts   0      nothing: the file named what it names when it     DONE
                          was opened
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, FormatError, PathError, SourceError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.tree.context import DONE
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import UNFINISHED_SUFFIXES, Confidence, Container, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar, Final

    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

INDEX: Final = ".index"
STATE: Final = "checkpoint"
CHECKPOINT: Final = "tf-checkpoint"
"""The format of an index, and of a file of version 1."""
ANY: Final = "?????"
"""What stands for the numbers of the files of a checkpoint of version 1."""
DATA: Final = lazy_pattern(r"(.+)\.data-(\d{5})-of-(\d{5})")
_FIELD: Final = lazy_pattern(rb'\b(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*"((?:[^"\\\n]|\\.)*)"')
_ESCAPE: Final = lazy_pattern(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_SEVERAL: Final = lazy_pattern(r"(?s).*-of-(\d{5})")
# A text with the paths of thousands of checkpoints.
_LONGEST: Final = 1 << 20


class StandInParser(Parser, Container):
    """A file or folder that stands for a checkpoint: base of those of each kind."""

    media_type = "application/x-tensorflow"
    root_shape = MAP
    shapes: ClassVar[dict[str, str]] = {"checkpoints": LIST}
    references: ClassVar[tuple[str, ...]] = ("https://www.tensorflow.org/guide/checkpoint",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._found: Extraction | None = None
        self._looked = False

    @abstractmethod
    def candidates(self) -> Sequence[str]:
        """Return the names that the checkpoint's file may have in the folder, the most probable first."""

    def unwrapped(self) -> Extraction | None:
        """Return the file of the checkpoint: its index, or for version 1 all of it; None if it is not there."""
        if not self._looked:
            self._looked = True
            if extraction_of(self.result).folder is None:
                reason = (
                    "the checkpoint was not looked for, as this does not lie in a folder; in an archive, name it alone"
                )
                source = self.result.extraction.name
                finding = Finding("index-not-read", reason, severity=Severity.NOTE, source=source)
                self.result.close_node(self.result.root, Status.UNSUPPORTED, finding)
                return None
            names = self.candidates()
            reason = f"{names[0]} is not beside it" if names else "it names no checkpoint"
            status = Status.MISSING
            for name in names:
                try:
                    found = extraction_of(self.result).sibling(name)
                    found.find_end()  # a file is opened when it is asked
                    self._tell(found)  # before it is parsed, or it would come too late
                    wrong = _why_no_checkpoint(found)
                    if wrong is None:
                        self._found = found
                        return found
                    status, reason = Status.DAMAGED, f"{name} is beside it, but is no index of a checkpoint: {wrong}"
                except (SourceError, EndOfDataError, PathError) as error:
                    reason = f"{name} is not beside it: {error.reason}" if name == names[0] else reason
            reason += "; without the index of a checkpoint, names, types and shapes of its tensors are not known"
            reason += self._instead()
            source = self.result.extraction.name
            code = "missing" if status is Status.MISSING else "malformed"
            self.result.close_node(self.result.root, status, Finding(code, reason, source=source))
        return self._found

    def _tell(self, index: Extraction) -> None:
        """Say what else there is, when ``index`` was chosen."""

    def _instead(self) -> str:
        """Return a clause on what may be opened instead of what is not there; empty: nothing."""
        return ""

    def enter(self, name: str) -> Extraction | None:
        """Return the checkpoint, by the name of its file."""
        found = self.unwrapped()
        return found if found is not None and found.name == name else None

    def begin(self, ctx: NodeContext) -> Step:
        """Begin the root, or its list."""
        return ctx.node.start, self.expect_facts, 0

    def facts(self) -> Sequence[str]:
        """Return the prefixes of all checkpoints that it names."""
        return ()

    def expect_facts(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit what it names."""
        if ctx.node.kind == "checkpoints":
            for number, prefix in enumerate(self.facts()):
                ctx.emit(Entry(number, "string", ctx.node.start, ctx.node.start, prefix))
        else:
            for name in self.candidates()[:1]:
                there = Status.COMPLETE if self.unwrapped() is not None else self.result.root.known_status
                ctx.emit(Entry("index", "string", ctx.node.start, ctx.node.start, name, there))
            if self.facts():
                ctx.emit(Entry("checkpoints", "checkpoints", ctx.node.start, ctx.node.start))
        return ctx.node.end or ctx.node.start, DONE, 0


class CheckpointDataParser(StandInParser):
    """A data file of a checkpoint."""

    name = "tf-checkpoint-data"
    description = "TensorFlow checkpoint, by a data file beside its index"
    extensions: ClassVar[tuple[str, ...]] = (".data-00000-of-00001",)
    needs_folder = True
    limitations: ClassVar[tuple[str, ...]] = ("nothing in the file itself tells what it holds: its index is needed",)

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by the name: its bytes may look like anything."""
        return Confidence.LIKELY if DATA.fullmatch(excerpt.bare_name) else Confidence.NO

    def candidates(self) -> Sequence[str]:
        """Return the name of the index."""
        prefix = prefix_of(self.result.extraction.name)
        return [] if prefix is None else [prefix + INDEX]


class CheckpointStateParser(StandInParser):
    """The file ``checkpoint``, which names the latest checkpoint of a folder."""

    name = "tf-checkpoint-state"
    description = "TensorFlow checkpoint, by the file that names the latest one"
    usual_names: ClassVar[tuple[str, ...]] = (STATE,)
    signatures = signatures(b"model_checkpoint_path:", b"all_model_checkpoint_paths:", strength=Confidence.CERTAIN)

    @cached_property
    def state(self) -> tuple[list[str], list[str]]:
        """The names of files that the latest checkpoint may have, and the prefixes of all."""
        return read_state(self.result.extraction.reader)

    def candidates(self) -> Sequence[str]:
        """Return the name of the index of the latest checkpoint, or of the whole checkpoint of version 1."""
        return self.state[0]

    def facts(self) -> Sequence[str]:
        """Return the prefixes of all checkpoints that it names."""
        return self.state[1]

    def _tell(self, index: Extraction) -> None:
        note_others(index, self.candidates()[0], self.facts())


def _why_no_checkpoint(file: Extraction) -> str | None:
    """Return why a file beside another one is no checkpoint; None if it is."""
    try:
        own = file.own_result.parser
    except (FormatError, UnsupportedError) as error:
        return error.reason
    # What stands for a checkpoint itself might name what named it, and so on for ever.
    return None if own.name == CHECKPOINT else f"it is {own.description}"


def prefix_of(name: str) -> str | None:
    """Return the prefix of the checkpoint that a data file of this name belongs to; None if it is no such name."""
    found = DATA.fullmatch(without_marks(name.rpartition("/")[2]))
    return found[1] if found is not None else None


def without_marks(name: str) -> str:
    """Return a file name without the marks of an unfinished download."""
    for suffix in UNFINISHED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def read_state(reader: Range) -> tuple[list[str], list[str]]:
    """Return what a CheckpointState names: files that the latest checkpoint may have, and the prefixes of all.

    Of paths only the last part: no file of another folder is opened.
    """
    raw = reader.data.known(reader.start, min(len(reader), _LONGEST))
    latest, kept = "", []
    for found in _FIELD.finditer(raw):
        path = _ESCAPE.sub(_unescaped, found[2]).decode("utf-8", "surrogateescape")
        prefix = path.replace("\\", "/").rpartition("/")[2]
        if found[1] == b"model_checkpoint_path":
            latest = prefix
        else:
            kept.append(prefix)
    # Version 1 in several files is named by a pattern; the first of them is opened.
    names = [latest + INDEX, latest.replace(ANY, "00000")] if latest else []
    return names, list(dict.fromkeys(kept))


def _unescaped(found: object) -> bytes:
    code: bytes = found[1]  # type: ignore[index]
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    if code[:1] in b"01234567":
        return bytes((int(code, 8) & 0xFF,))
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(code, code)


def note_others(index: Extraction, latest: str, prefixes: Sequence[str]) -> None:
    """Note which of the checkpoints of a folder is shown; ``latest`` is the index that the file ``checkpoint`` names,
    empty if there is none."""
    shown = index.name.rpartition("/")[2]
    first = latest.removesuffix(INDEX).replace(ANY, "00000")
    others = [prefix for prefix in prefixes if prefix.replace(ANY, "00000") not in (shown, shown.removesuffix(INDEX))]
    reason, severity = "", Severity.NOTE
    if latest and first != shown.removesuffix(INDEX):
        severity = Severity.WARNING
        reason = f"the latest checkpoint by the file {STATE}, {first}, is not here; this is {shown.removesuffix(INDEX)}"
        others = [prefix for prefix in others if prefix.replace(ANY, "00000") != first]
    elif latest and ANY in latest and (several := _SEVERAL.fullmatch(first)) is not None and int(several[1]) > 1:
        severity = Severity.WARNING
        reason = f"the checkpoint is in {int(several[1])} files of version 1, and this is the first: name each of them"
    elif latest and others:
        reason = f"this is {shown.removesuffix(INDEX)}, the latest checkpoint by the file {STATE}"
    if reason and not index.notes:
        also = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        which = "which are not read here: name each" if len(others) > 1 else "which is not read here: name it"
        reason += f"; there {'are' if len(others) > 1 else 'is'} also {also}, {which}" if others else ""
        index.notes += (Finding("other-checkpoints", reason, severity=severity, source=index.name),)


# -- A folder of checkpoints of TensorFlow: opened as the latest, or the only one --------------------------------------

# States: those of `pparse.parsers.checkpoint.beside`, whose files stand for a checkpoint, too.

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
    limitations: ClassVar[tuple[str, ...]] = (
        "a folder with several checkpoints and no file that names the latest lists them and asks for one",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        self._names = self.models_in(folder)
        self._kept = [name.removesuffix(INDEX) for name in indexes_in(folder)]

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
        folder.sibling(INDEX_OF_VARIABLES).find_end()
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
