"""Checkpoints of TensorFlow: the index of a TensorBundle (version 2), and whole files of version 1.

Both are tables (`pparse.parsers.checkpoint.table`) from keys to messages. In an index, the key "" has a
BundleHeaderProto, the name of each tensor a BundleEntryProto, which says where in the data files beside it its bytes
are; a part of a partitioned tensor has a key in OrderedCode, which begins with a zero byte. In a file of version 1, ""
has the table of contents, each other key a SavedTensorSlices with the values of a tensor, or of a part of it
(tensorflow/core/util/tensor_bundle, tensorflow/core/util/saved_tensor_slice.proto).

The root is a map without states of its own: its children are found block by block (`fill`), and described when they are
asked for (`entries`). Those below are messages: `pparse.parsers.protobuf.parser` has their states.

Rules: the checksum of each block is compared before anything in it is returned. Without footer or index, blocks are
found by their checksums (`pparse.parsers.checkpoint.table`), so what intact blocks hold is all there.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property
from itertools import islice

from pparse.document.extraction import extraction_of
from pparse.errors import (
    EndOfDataError,
    FormatError,
    GapError,
    LimitError,
    MalformedError,
    PathError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Finding, Severity, Status
from pparse.kernels.table_block import entries as block_entries
from pparse.kernels.wire import PADDING, read_length
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.checkpoint.table import FOOTER, MAGIC, TRAILER, Block, SortedTable, find_blocks, read_handle
from pparse.parsers.protobuf.check import fits
from pparse.parsers.protobuf.index import Origin
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.protos import schema as builtin_schema
from pparse.tree.context import DONE
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import UNFINISHED_SUFFIXES, Confidence, Container, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import ClassVar, Final

    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.protobuf.schema import MessageType
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
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
INDEX_OF_VARIABLES: Final = "variables/variables.index"
"""Where TensorFlow's loader looks for the variables of a SavedModel (tensorflow/python/saved_model/constants.py)."""
_SAVED_MODEL: Final = frozenset(("fingerprint.pb", "keras_metadata.pb"))
_NUMBERS = lazy_pattern(r"\d{1,18}")
HEADER: Final = "tensorflow.BundleHeaderProto"
ENTRY: Final = "tensorflow.BundleEntryProto"
SLICES: Final = "tensorflow.SavedTensorSlices"
_PROBED: Final = 4 << 10
_SEARCHED: Final = 1 << 20
_TRIED: Final = 8
# Data files that `info` looks for.
MOST_FILES: Final = 10_000


class CheckpointParser(ProtobufParser):
    """The table of a checkpoint."""

    name = "tf-checkpoint"
    description = "TensorFlow checkpoint (its index, or a whole one of version 1)"
    viewer = "pparse.viewers.checkpoint.viewer:viewer_of_version"
    extensions: ClassVar[tuple[str, ...]] = (".index", ".ckpt")
    signatures = signatures(b"\0\0")
    is_generic = False
    named_is_enough = False
    needs_folder = True
    media_type = "application/x-tensorflow"
    root_at = "back"
    options: ClassVar[dict[str, str]] = {}
    references: ClassVar[tuple[str, ...]] = (
        "tensorflow/core/util/tensor_bundle/tensor_bundle.cc, tensorflow/core/protobuf/tensor_bundle.proto",
        "tensorflow/core/util/saved_tensor_slice.proto",
        "google/leveldb doc/table_format.md",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "a block of the table is read as a whole: in files of version 1 it holds at least a whole tensor",
        "a checkpoint of version 1 in several files is opened file by file",
        "strings in parts are not put together in version 2",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        # Where the last group of entries ended: number of the block, of the entry in it, its place, and the key before.
        self._last: tuple[tuple[int, int], int, bytes] = (-1, 0), 0, b""
        self.other_names: Callable[[], dict[str, str]] = dict
        """What gives the names of variables by key if the checkpoint's own object graph is lost."""

    # -- recognising -------------------------------------------------------------------------------------------------

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the magic number at the end, and a first entry as checkpoints have it; LIKELY by name and number.

        Tables with other entries are those of other programs.
        """
        if excerpt.tail(FOOTER)[-len(MAGIC) :] != MAGIC:
            return Confidence.NO
        if _version(excerpt.head(_PROBED)):
            return Confidence.CERTAIN
        return Confidence.LIKELY if excerpt.ends_with(cls.extensions) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY by the first entry, if the end is lost; by any intact block, if the beginning is."""
        head = excerpt.head(_PROBED)
        is_named = excerpt.ends_with(cls.extensions)
        begins = bool(_version(head))
        if begins and is_named:
            return Confidence.LIKELY
        ends = excerpt.tail(FOOTER)[-len(MAGIC) :] == MAGIC
        if not (begins or is_named or ends):
            return Confidence.NO
        end = reader.start + min(reader.size or 0, _SEARCHED)
        for offset, size in islice(find_blocks(reader.data, reader.start, end, lambda: None), _TRIED):
            if begins or is_named or _holds_values(reader.data, offset, size):
                return Confidence.LIKELY
        return Confidence.NO

    # -- the table -----------------------------------------------------------------------------------------------------

    @cached_property
    def version(self) -> int:
        """2 for the index of a TensorBundle, 1 for a file with values."""
        extraction = self.result.extraction
        return _version(extraction.data.known(extraction.start, _PROBED)) or self._version_of_values()

    def _version_of_values(self) -> int:
        """Return the version by the first entries, if the beginning is lost."""
        schema = builtin_schema()
        for _, value in islice(self.pairs(), 8):
            raw = value[:_PROBED]
            whole = len(value) <= _PROBED
            if fits(raw, schema.message(ENTRY), complete=whole):
                return 2
            if fits(raw, schema.message(SLICES), complete=whole):
                return 1
        return 2

    @cached_property
    def table(self) -> SortedTable:
        """The table: its blocks are found when it is first asked for."""
        extraction = self.result.extraction
        session = extraction.session
        start, end = extraction.start, extraction.find_end()
        table = SortedTable(extraction.data, start, end, session.budget, session.limits)
        try:
            table.read_index()
        except (MalformedError, EndOfDataError, GapError) as error:
            table = SortedTable(extraction.data, start, end, session.budget, session.limits)
            self._recover(table, error)
        for offset, reason in table.broken:
            finding = Finding("malformed", reason, source=extraction.name, offset=offset)
            self.result.close_node(self.result.root, Status.DAMAGED, finding)
        return table

    def _recover(self, table: SortedTable, error: MalformedError | EndOfDataError | GapError) -> None:
        """Find the blocks by their checksums, as index or footer are not whole."""
        extraction = self.result.extraction
        poll = extraction.session.check_cancelled
        behind = table.start
        for offset, size in find_blocks(extraction.data, table.start, table.end, poll):
            behind = offset + size + TRAILER
            if not _is_of_places(table, offset, size):
                table.add(offset, size)
        status = Status.after(error)
        found = f"{count_words(len(table.offsets), 'block')} with {count_words(table.count, 'entry')} found"
        found += f" by {'its checksum' if len(table.offsets) == 1 else 'their checksums'}"
        if isinstance(error, EndOfDataError):
            found += self._add_cut(table, behind)
        reason, at = f"{error.reason}; {found}", table.end if error.offset is None else error.offset
        self.result.close_node(
            self.result.root, status, Finding(status.code, reason, source=extraction.name, offset=at)
        )

    def _add_cut(self, table: SortedTable, offset: int) -> str:
        """Add the entries of the block in which the table is cut, and return a clause on them."""

        schema = builtin_schema()
        first = _version(table.data.pread(table.start, _PROBED)) == 1  # `version` may need the table

        def accepts(key: bytes, value: bytes, whole: bool) -> bool:
            if not key and offset > table.start:
                return False
            kind = schema.message(SLICES if first else ENTRY if key else HEADER)
            return fits(value, kind, complete=whole)

        try:
            count = table.add_cut(offset, accepts)
        except LimitError as error:
            return f"; the block in which it is cut was not looked at: {error.reason}"
        return f", and {count_words(count, 'entry')} before the cut, which no checksum confirms" if count else ""

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each key and its value, a block at a time. Raises `MalformedError`."""
        table = self.table
        for offset, size in zip(table.offsets, table.sizes, strict=True):
            block = table.block(offset, size)
            raw = block.raw
            for key, _, _, start, stop in block_entries(raw, block.end):
                yield key, raw[start:stop]

    # -- the root ------------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root: a map of keys to messages."""
        extraction = self.result.extraction
        return Entry(None, self.name, extraction.start, extraction.end, status=None, note=Origin(None))

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        return MAP if kind == self.name else super().shape(kind)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Find the blocks of the table; or index a list or map below."""
        if node.parent is not None:
            return super().fill(node, index)
        table = self.table
        index.keep(table, table.count)
        if node.known_status is None:
            self.result.close_node(node, Status.COMPLETE, None)
        return True

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries of keys, or those below."""
        if node.parent is not None:
            return super().entries(node, index, first, count)
        table = self.table
        found: list[Entry] = []
        number = bisect_right(table.firsts, first) - 1
        while len(found) < count and 0 <= number < len(table.offsets):
            found += self._entries_of(number, max(0, first - table.firsts[number]), count - len(found))
            number += 1
        return found

    def _entries_of(self, number: int, skipped: int, count: int) -> list[Entry]:
        """Return ``count`` entries of a block behind the first ``skipped``, going on where the last call ended."""
        table = self.table
        block = table.block(table.offsets[number], table.sizes[number])
        (last, done), pos, key = self._last
        if last != number or done > skipped:
            done, pos, key = 0, 0, b""
        found: list[Entry] = []
        for name, _, _, start, stop in islice(block_entries(block.raw, block.end, pos, key), skipped + count - done):
            key, pos = name, stop
            done += 1
            if done > skipped:
                found.append(self._entry(name, block.data, block.at + start, block.at + stop))
        self._last = (number, done), pos, key
        return found

    def _entry(self, key: bytes, data: Data, start: int, stop: int) -> Entry:
        type = self.type_of(key)
        return self.make.merged(key_of(key), Origin(None, type, pieces=(data.range(start, stop),)))

    def type_of(self, key: bytes) -> MessageType:
        """Return the type of the value at a key."""
        schema = builtin_schema()
        if self.version == 1:
            return schema.message(SLICES)
        return schema.message(ENTRY if key else HEADER)

    # -- what `info` says ----------------------------------------------------------------------------------------------

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        table = self.table
        yield "version", str(self.version)
        blocks = count_words(len(table.offsets), "block")
        if table.broken_count:
            blocks += f", {table.broken_count:,} more that cannot be read"
        yield "table", f"{count_words(table.count, 'entry')} in {blocks}"
        if self.version == 2 and extraction_of(self.result).folder is not None:
            yield "data", self._data_words()

    def _data_words(self) -> str:
        """Return names, number and size of the data files in words."""
        header = self.result.root.find("")
        node = header.find("num_shards") if header is not None else None
        count = node.load() if node is not None else 0
        if not isinstance(count, int) or not 0 < count <= MOST_FILES:
            return "how many files there are is not known"
        sizes, missing = 0, 0
        for shard in range(count):
            try:
                file = extraction_of(self.result).sibling(self.data_name(count, shard))
                sizes += file.find_end() - file.start
            except (SourceError, EndOfDataError, PathError):
                missing += 1
        first = self.data_name(count, 0)
        words = f"{first}, {sizes:,} bytes" if count == 1 else f"{count:,} files ({first} …), {sizes:,} bytes"
        return words + (f", {count_words(missing, 'file')} not there" if missing else "")

    def data_name(self, count: int, shard: int) -> str:
        """Return the name of a data file beside the index, of ``count`` files; 0: not known."""
        name = without_marks(self.result.extraction.name.rpartition("/")[2])
        return f"{name.removesuffix('.index')}.data-{shard:05d}-of-{count or shard + 1:05d}"

    def missing(self) -> int | None:
        """Return None: how much of a table is missing is not known."""
        return None


def key_of(raw: bytes) -> str | bytes:
    """Return a key as text, or as bytes if it is none: a part of a tensor, in OrderedCode."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return text if "\0" not in text else raw


def _version(head: bytes) -> int:
    """Return the version of a checkpoint by its first entry, of the key ""; 0 if it is none."""
    if head[:2] != b"\0\0":
        return 0
    try:
        length, pos = read_length(head + PADDING, 2)
    except MalformedError:
        return 0
    value = head[pos : pos + length]
    whole = len(value) == length
    schema = builtin_schema()
    if whole and length < 64 and fits(value, schema.message(HEADER), complete=True):
        return 2
    return 1 if value[:1] == b"\n" and fits(value, schema.message(SLICES), complete=whole) else 0


def _holds_values(data: Data, offset: int, size: int) -> bool:
    """Return whether the entries of an intact block are those of a checkpoint: the first two decide."""
    try:
        block = Block(data, offset, data.read_exact(offset, size))
        rows = list(islice(block_entries(block.raw, block.end), 2))
    except (MalformedError, EndOfDataError, GapError):
        return False
    schema = builtin_schema()
    values = [block.raw[start:stop] for key, _, _, start, stop in rows if key]
    kinds = [schema.message(name) for name in (ENTRY, SLICES)]
    return bool(values) and any(all(fits(raw, kind, complete=True) for raw in values) for kind in kinds)


def _is_of_places(table: SortedTable, offset: int, size: int) -> bool:
    """Return whether a block is the index, or that of metadata: without entries, or with handles of blocks."""
    try:
        block = table.block(offset, size)
        for key, _, _, start, stop in block_entries(block.raw, block.end):
            (at, _), pos = read_handle(block.raw[start:stop], 0)
            return bool(key) and pos == stop - start and at == 0
    except (MalformedError, EndOfDataError, GapError):
        return False
    return True


# -- Files that stand for the checkpoint they belong to ----------------------------------------------------------------
#
# ``prefix.data-00000-of-00001`` has the values of the checkpoint whose index is ``prefix.index``, and nothing that says
# which. ``checkpoint`` is a CheckpointState in text form: ``model_checkpoint_path`` names the latest of a folder's
# checkpoints by its prefix, ``all_model_checkpoint_paths`` each that was kept
# (tensorflow/python/training/checkpoint_state.proto). A path of another machine leads nowhere: its last part counts.
#
# Each, and a folder of them, is opened as the index beside it (`Container.unwrapped`); read by its own format, or
# without that index, it has these states::
#
#     state          needs  reads                                             goes to
#     expect_facts   0      nothing: the file named what it names when it     DONE
#                           was opened


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
            self.result.close_node(self.result.root, status, Finding(status.code, reason, source=source))
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


class CheckpointFolderParser(StandInParser):
    """A folder of checkpoints: the latest, if a file ``checkpoint`` names it, or the only one."""

    name = "tf-checkpoint-folder"
    description = "folder with TensorFlow checkpoints: the latest, or the only one"
    member_parts = (f"{INDEX}/", ".data-", f"/{STATE}/", *sorted(_SAVED_MODEL))
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
