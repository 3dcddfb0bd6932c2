"""`Parser`, the base of all parsers, and what one may be besides: a `Listing`, a `Container`.

`pparse.tree.engine` tells how their states are run.
"""

from __future__ import annotations

import enum
import sys
from itertools import chain, islice
from operator import methodcaller

from pparse.data.base import Access
from pparse.data.range_status import cut_status, worst_of
from pparse.errors import DataError, EndOfDataError, EngineError, GapError, LimitError, MalformedError, PathError
from pparse.findings import Finding, Status
from pparse.lazy import lazy_pattern
from pparse.locking import Doored
from pparse.paths import KeyStep, OrdinalStep
from pparse.tree.context import NodeContext, NumberArray, bounded_by
from pparse.tree.engine import run
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.index import key_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, ClassVar, Final, Protocol

    from pparse.data.base import Range
    from pparse.tree.code_use import CodeUse
    from pparse.tree.context import Done, State
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.result import Result
    from pparse.tree.visit import Member, Visit

    class Recognising(Protocol):
        """A parser's class, as far as recognising goes."""

        def match(self, excerpt: Excerpt) -> Confidence:
            """Judge by the excerpt."""

        def probe(self, excerpt: Excerpt, reader: Range) -> Confidence:
            """Judge by reading."""

    from pparse.tree.host import Host

# -- `Container`: what a parser is to those who look for other documents in its own ------------------------------------


class Container(Doored):
    """A format that holds other documents, or names them: an archive, a compressed stream, a set of shards, a folder.

    Its parser derives from this and from `Parser`; for any other, `Result.container` is None. Archives have ``verify``,
    too: see `pparse.containers`.
    """

    is_set: ClassVar[bool] = False
    """Whether it stands for a set of files beside it, such as the shards of a model, named by its ``shard_names``."""

    saved_as_a_whole: ClassVar[bool] = False
    """Whether `recover` saves all files of the folder that it reads, not just one model of it."""

    doors = frozenset(
        (
            *("directory", "enter", "files", "inner", "look_at_names", "open_member", "shard", "shard_names"),
            *("unwrapped", "verify", "verify_opened", "verify_stream", "weight_map"),
        )
    )

    def files(self) -> Iterator[Any]:
        """Yield the members of an archive, in its order."""
        yield from ()

    def shard_names(self) -> list[str]:
        """Return the names of the files of a set, each once."""
        return []

    def shard(self, name: str) -> Host:
        """Return one file of a set. Raises `PathError` if its name leaves the folder, and `SourceError`."""
        raise PathError("it is no set of files", path=name)

    def enter(self, name: str) -> Host | None:
        """Return the document called ``name`` in this one; None if there is none. Raises `PathError`."""
        return None

    def unwrapped(self) -> Host | None:
        """Return the document inside if this format only wraps it; else None. Raises `LimitError`, and
        `UnsupportedError` if a library is missing."""
        return None

    def model_file(self) -> Host | None:
        """Return the file that holds the document, if this format reads a folder in which one file does; else None."""
        return None

    def holds(self) -> str | None:
        """Return what the members of an archive form together, if that is a known format that is not read yet."""
        return None

    def look_at_names(self) -> None:
        """Add the findings on names of members that should be known before files are written under them."""

    def verify_stream(self, *, unless_indexed: bool = False) -> None:
        """Read a compressed stream to its end, so that everything wrong with it is known."""

    def resolve_stream(self) -> None:
        """Compare the checksums of a stream if that costs little."""


# -- `Listing`: what commands ask of a parser: rows, names, facts, checksums -------------------------------------------

# Why a row is not complete if nothing else is known of it.
_JUST_CUT: Final = {Status.TRUNCATED: "the data end inside it", Status.MISSING: "the data end before it"}


class Listing(Doored):
    """What a document is to those who list it: by default, the children of its root.

    A parser whose rows, names or facts are others derives from this and from `Parser`; for any other,
    `Result.listing` is one of these.
    """

    member_word: ClassVar[str] = "member"
    """The word for one of `members`."""
    checked_word: ClassVar[str] = ""
    """The word for what has a checksum of its own, such as a record; empty: the format has none."""
    _compared: Sequence[int] = (0, 0)
    """How many of these the last `check` read, and for how many the checksum agrees."""

    doors = frozenset(("details", "find_member", "globals", "header_size", "members", "metadata", "missing"))

    result: Result
    """The tree that is listed."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.lock = result.lock

    def members(self) -> Iterator[Member]:
        """Yield the rows of `pparse ls`: by default, the children of the root."""
        root = self.result.root
        if root.shape == SCALAR:
            return
        end = self.result.extraction.find_end()
        for ordinal, entry in self.result.entries_from(root, 0):
            yield self._member(root, ordinal, entry, end)

    def _member(self, root: Node, ordinal: int, entry: Entry, end: int) -> Member:
        """Return the row of a child of the root; ``end``: that of the document."""
        stop, status, finding = entry.end, entry.status, entry.finding
        if stop is None and self.result.parser.shape(entry.kind) != SCALAR:
            # Only reading it tells where it ends, and whether it is whole.
            stop, status, finding = _read_to_end(root.child(ordinal))
        if entry.parts is not None:
            size = sum(len(part) for part in entry.parts)
        else:
            size = (end if stop is None else stop) - entry.start
        reason = None if finding is None else finding.reason
        data = self.result.extraction.data
        if data.flawed and (status in (None, Status.COMPLETE) or reason is None):  # the bytes may be doubted, too
            parts = entry.parts or (data.range(entry.start, max(entry.start, end if stop is None else stop)),)
            if (known := worst_of(parts)) is not None:
                reason = reason or known.reason
                status = known.status if status in (None, Status.COMPLETE) else status
        if reason is None and status not in (None, Status.COMPLETE):
            below = (finding.reason for finding in root.child(ordinal).findings)
            reason = next(below, None) or _JUST_CUT.get(status)
        from pparse.tree.visit import Member

        name = f"[{ordinal}]" if entry.key is None else str(entry.key)
        return Member(name, entry.kind, entry.start, size, status or Status.COMPLETE, reason=reason)

    def find_member(self, name: str) -> Node | None:
        """Return the node that `members` calls ``name``, if that is not its path; None if there is none."""
        return None

    def metadata(self) -> dict[str, object]:
        """Return what the file says about itself, as plain data for JSON."""
        return {}

    def missing(self) -> int | None:
        """Return the least number of bytes that a cut file lacks, if the format tells; else None."""
        return None

    @property
    def header_size(self) -> int | None:
        """Bytes of a header that tells of all that follows it; None where the format has none. Raises `ValueError`."""
        return None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the labels and values that `pparse info` shows for this format."""
        yield from ()

    def globals(self) -> Iterator[CodeUse]:
        """Yield the classes and functions that pickles in it name, each once per pickle; `in_order` sorts them."""
        yield from ()

    def checksums(self) -> tuple[int, int, str] | None:
        """Return what the last `check` verified: number of things, how many match their checksum, and the word for one.

        None if the format has no checksums of its own.
        """
        count, agreed = self._compared
        return (count, agreed, self.checked_word) if self.checked_word else None


def _read_to_end(node: Node) -> tuple[int | None, Status, Finding | None]:
    """Return where a container ends, its status and why, by reading it; what hinders that is its status."""
    try:
        node.index_to(None)
    except (LimitError, MalformedError, EndOfDataError):
        pass
    return node.end, node.status, node.finding


# -- How a format is recognised: the `Signature` of a class, the `Excerpt` it sees, the `Confidence` it answers with

# The registry reads the first and last bytes of a document once, into an `Excerpt`, and asks each parser whose
# signature or extension fits: first ``match``, which sees the excerpt and nothing else; then ``probe``, which may read
# anywhere.

# What is read at once at the front: enough for most formats.
_FIRST: Final = 4 << 10
# The longest excerpts: at the back, a zip's end record with the longest comment.
MAX_HEAD: Final = 64 << 10
MAX_TAIL: Final = (64 << 10) + 22

# Marks of downloads that are not finished, behind the name that the file will have.
UNFINISHED_SUFFIXES: Final = (".part", ".crdownload", ".incomplete", ".download", ".tmp")


# How a name ends if the file is one of several, and what stands for all such endings.
_NUMBERED: Final = lazy_pattern(r"-\d{5}-of-\d{5}")
_FIRST_OF_ONE: Final = "-00000-of-00001"
# What event files of TensorBoard are called, before the time (tensorflow/core/util/events_writer.cc).
_LOG: Final = ".tfevents."
# How names end of what was made of an event file, among others by `pparse recover`.
_ABOUT_LOGS: Final = (".json", ".csv", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".tar", ".tgz")


def bare_name(name: str) -> str:
    """Return the file name in lower case, without the marks of an unfinished download.

    The numbers behind an extension (``.data-00003-of-00010``) are those of the first of one; time, host and process
    behind ``.tfevents`` are left out.
    """
    name = name.lower()
    for suffix in UNFINISHED_SUFFIXES:
        name = name.removesuffix(suffix)
    if (at := name.rfind(_LOG)) >= 0 and not name.endswith(_ABOUT_LOGS):
        return name[: at + len(_LOG) - 1]
    tail = name[-len(_FIRST_OF_ONE) :]
    return name[: -len(tail)] + _FIRST_OF_ONE if tail[6:10] == "-of-" and _NUMBERED.fullmatch(tail) else name


class Confidence(enum.IntEnum):
    """How sure a parser is that data is of its format."""

    NO = 0
    EXTENSION = 1  # only the file name says so
    POSSIBLE = 2  # nothing contradicts it
    LIKELY = 3  # the structure fits
    CERTAIN = 4  # a magic number, or structure too specific to be chance


class Signature:
    """Bytes at a fixed offset that make it worth asking a parser, and how sure they make it by themselves."""

    __slots__ = ("at", "magic", "strength")

    def __init__(self, magic: bytes, at: int = 0, strength: Confidence = Confidence.CERTAIN) -> None:
        self.magic = magic
        """The bytes …"""
        self.at = at
        """… at this offset of the document."""
        self.strength = strength
        """What `Parser.match` answers for them, if the parser does not look further."""


def signatures(*magics: bytes, at: int = 0, strength: Confidence = Confidence.POSSIBLE) -> tuple[Signature, ...]:
    """Return a signature for each of ``magics``; by default none that is enough by itself."""
    return tuple(Signature(magic, at, strength) for magic in magics)


class Excerpt:
    """The first and last bytes of a document, read once for all parsers, and its name and size."""

    __slots__ = ("_asked", "_head", "_reader", "_tail", "bare_name", "name", "size")

    def __init__(self, reader: Range, name: str, size: int | None) -> None:
        self._reader = reader
        self._head = b""
        self._asked = 0  # the most bytes that were read for: there may be fewer
        self._tail: bytes | None = None
        self.name = name
        """Name of the document; a member of an archive is not called as its data are."""
        self.bare_name = bare_name(name)
        """The name in lower case, without the marks of an unfinished download."""
        self.size = size
        """Size of the document in bytes; None while unknown."""

    def head(self, count: int) -> bytes:
        """Return the first ``count`` bytes (at most 64 KiB), or as many as there are; empty if they are lost."""
        count = min(count, MAX_HEAD)
        if count > self._asked:
            wanted = max(count, _FIRST)
            try:
                self._head = self._reader.peek(wanted)
            except GapError:
                pass
            self._asked = wanted
        return self._head[:count]

    def tail(self, count: int) -> bytes:
        """Return the last ``count`` bytes (at most 64 KiB and 22).

        Empty if they are lost, or all of a stream would have to be decoded for them.
        """
        size = self.size
        if size is None or self._reader.data.access is not Access.FREE:
            return b""
        count = min(count, MAX_TAIL, size)
        if self._tail is None or count > len(self._tail):
            self._tail = self._reader.data.known(self._reader.start + size - count, count)
        return self._tail[len(self._tail) - count :] if count else b""

    def ends_with(self, suffixes: Iterable[str]) -> bool:
        """Say whether the name ends with one of ``suffixes``, which are in lower case."""
        return self.bare_name.endswith(tuple(suffixes))

    def matches(self, marks: Iterable[Signature]) -> Confidence:
        """Return the strength of the strongest signature that the document begins with."""
        best = Confidence.NO
        for mark in marks:
            if mark.strength > best and self.head(mark.at + len(mark.magic))[mark.at :] == mark.magic:
                best = mark.strength
        return best


def confidence_of(parser: Recognising, excerpt: Excerpt, reader: Range) -> Confidence:
    """Ask ``parser`` to judge by the excerpt, and if that says no, by reading. Errors of the data mean no."""
    found = Confidence.NO
    for read in (False, True):
        try:
            found = parser.probe(excerpt, reader) if read else parser.match(excerpt)
        except DataError:
            continue  # other errors say nothing about the format
        if found:
            break
    return found


class Parser(Doored):
    """Base of all parsers. One instance parses one extraction.

    A simple format needs the class attributes, `root_entry`, `begin` and its states; see
    ``docs/how-to-write-a-parser.md``.
    """

    name: ClassVar[str] = ""
    """Name of the format, as for ``-f``."""
    description: ClassVar[str] = ""
    """What the format is, in one line."""
    extensions: ClassVar[tuple[str, ...]] = ()
    """Usual extensions of file names, with the dot."""
    signatures: ClassVar[tuple[Signature, ...]] = ()
    """Bytes, one of which a document must have for the parser to be asked, unless the extension fits."""
    viewer: ClassVar[str | None] = None
    """``module:class`` of the viewer of its tensors; None: only nodes."""
    is_generic: ClassVar[bool] = False
    """Whether other formats are made of it, as of JSON or zip."""
    named_is_enough: ClassVar[bool] = True
    """Whether the extension tells it if the content tells nothing; False where formats share an extension."""
    usual_names: ClassVar[tuple[str, ...]] = ()
    member_parts: ClassVar[tuple[str, ...]] = ()
    """Of a format of folders: parts of names between slashes (``.index/`` is at the end), of which a folder that can be
    one has one in some name; empty: any."""
    """How its files are called, if the extension says less, or other formats share it; empty: any name will do."""
    needs_folder: ClassVar[bool] = False
    """Whether it says little without the files beside it: `pparse recover` judges it with them, in archives, too."""
    empty_is_nothing: ClassVar[bool] = False
    """Whether an empty file with the extension is none of the format, and refused as `pparse.NothingThereError`."""
    is_data_set: ClassVar[bool] = False
    """Whether libraries read records of its files as they come: damaged bytes must not be left under such a name."""
    media_type: ClassVar[str] = "application/octet-stream"
    """Media type of its files."""
    refines: ClassVar[tuple[str, ...]] = ()
    """Names of formats that this one is a special case of: it wins if both match."""
    root_at: ClassVar[str] = "front"
    """``"front"``, or ``"back"`` if the directory is at the end of the file."""
    reads: ClassVar[str] = "file"
    """``"file"`` or ``"folder"``."""
    references: ClassVar[tuple[str, ...]] = ()
    """Specifications of the format."""
    limitations: ClassVar[tuple[str, ...]] = ()
    """What the parser does not do."""
    options: ClassVar[dict[str, str]] = {}
    """Options of the format, with a description each."""

    shapes: ClassVar[dict[str, str]] = {}
    """Shape of nodes by kind; other kinds are scalars."""
    root_shape: ClassVar[str] = SCALAR
    """Shape of the nodes of the kind that is called as the format: of the root."""
    child_state: ClassVar[str | dict[str, str] | None] = None
    """Name of the state that can begin at any child's ``at``, for all containers or by their kind; containers without
    one keep entries instead of offsets: right for few children, or those that are costly to read again."""
    keeps_row_index: ClassVar[bool] = False
    """Whether it takes up what `pparse index` keeps of where the children of the root begin."""
    notes_findings: ClassVar[bool] = False
    """Whether `walk` itself adds every finding to the result."""
    block_factor: int = 2
    """Bytes of memory per byte of block while a state works on it."""

    # What the engine and nodes call runs under the lock anyway.
    doors = frozenset(("check", "infos", "json_text", "open_scalar", "values", "walk"))

    def __init__(self, result: Result) -> None:
        self.result = result
        """The tree that it parses for."""
        self.lock = result.lock
        """Lock of the session."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in (Listing, Container):
            names = [name for name in vars(base) if name in vars(cls) and not name.startswith("_")]
            if names and not issubclass(cls, base):  # nobody would call them
                file = getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__
                raise TypeError(
                    f"{file}: {cls.__name__} has the name {', '.join(names)}, which pparse asks of a {base.__name__}: "
                    f"derive it from that, too, if this is meant, else take another name"
                )

    # -- what every parser defines ----------------------------------------------------------------------------------

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """Return how sure it is, by the first and last bytes, that this is the format; by default, by `signatures`."""
        return excerpt.matches(cls.signatures)

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """The same from a few reads anywhere in ``reader``, if `match` says no though a signature or the name fits."""
        return Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """The same for data that no parser matches, from 64 KiB at both ends; not ``thorough``: from the last bytes."""
        return Confidence.NO

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return where something of the format begins in data that no parser matches; None if nowhere, or if nothing
        tells. Of parsers that have `match_further`; ``poll`` is called now and then."""
        return None

    @classmethod
    def model_name(cls, name: str) -> str:
        """Return what the file ``name`` has in common with all files of its model, and with no other: its name, if
        models of the format do not come in several files."""
        return name

    @classmethod
    def models_in(cls, folder: Any) -> Sequence[str]:
        """Return the models in a folder that could be meant by it, each as the file to open instead; none if it has
        but one name."""
        return ()

    @classmethod
    def about_models(cls, folder: Any) -> str:
        """Return what a user should know who has to choose among `models_in`, as a clause; empty: nothing."""
        return ""

    @classmethod
    def match_folder(cls, folder: Any) -> Confidence:
        """The same for a folder (a `pparse.document.extraction.FolderExtraction`): by default, by `models_in`."""
        return Confidence.LIKELY if cls.models_in(folder) else Confidence.NO

    def root_entry(self) -> Entry:
        """Describe the root node."""
        extraction = self.result.extraction
        return Entry(None, self.name, extraction.start, extraction.end, status=None)

    def begin(self, ctx: NodeContext) -> tuple[int, State | Done, int]:
        """Return the step with which to begin: position, state, and the bytes it needs."""
        raise EngineError(f"parser {self.name} does not say how to begin", state="begin")

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        return self.shapes.get(kind) or (self.root_shape if kind == self.name else SCALAR)

    def state_of_children(self, kind: str) -> str | None:
        """Return the name of the state that can begin at any child of a ``kind``; None if its entries are kept."""
        found = self.child_state
        return found.get(kind) if isinstance(found, dict) else found

    # -- what a parser may define ------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of ``node`` without states, if they are already known; False: run the engine.

        By default, those of arrays of numbers.
        """
        if type(node.note) is not NumberArray:
            return False
        node.note.index(node, index)
        return True

    def key_meant(self, node: Node, key: Key) -> Key:
        """Return the key that ``key`` stands for among the children of ``node``, such as the number of a field."""
        return key

    def load_scalar(self, node: Node) -> Any:
        """Return the value of a scalar node: as its parent's state decoded it, or else its bytes."""
        if node.parent is not None:
            born = self.result.entry(node.parent, node.ordinal).value
            if born is not UNLOADED_VALUE:
                return born
        length = sum(count for _, count in node.spans)
        self.result.extraction.session.limits.check("scalar_bytes", length, "the value", offset=node.start)
        return b"".join(part.data.read_exact(part.start, len(part)) for part in node.parts)

    def resolve(self, node: Node) -> None:
        """Find out the status of a node whose status is unknown; by default, load it."""
        node.load()

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of the node's bytes."""
        parts = node.parts
        if len(parts) == 1:
            return parts[0]
        from pparse.data.spliced import SplicedData

        spliced = SplicedData(parts, name=f"{self.result.extraction.name}::{node.path}")
        return spliced.range(0, spliced.size or 0)

    def cut(self, ctx: NodeContext) -> tuple[int, State, int] | None:
        """Close the node as input ended while ``ctx.need`` was unmet: TRUNCATED, or DAMAGED if all its bytes exist.

        A parser whose nodes have several parts may enter the next one (`NodeContext.enter`) and return the step there.
        """
        end = self.result.extraction.find_end(ctx.node)
        # A node whose bytes all exist, yet end inside a record, contradicts itself; it was not cut.
        around = bounded_by(ctx.node)
        whole = around.parent is not None and around.end is not None and around.end <= end
        whole = whole and around.known_status is not Status.TRUNCATED
        if whole and around.end is not None:
            end = around.end
        what = "file" if ctx.node.parent is None and ctx.node.kind == self.name else ctx.node.kind
        more = ctx.need if ctx.need > 1 else None  # one byte more: that it ended says as much
        got = None if more is None else max(0, end - ctx.pos)
        status, how = cut_status(damaged=whole), "inside a record" if whole else "early"
        told = f"the {what} end{'' if what.endswith('s') else 's'} {how}"
        finding = self.finding_at(status.code, told, self.path_of(ctx.node), end, wanted=more, got=got)
        self.result.close_node(ctx.node, status, finding, end=end)
        return None

    def finish(self, ctx: NodeContext) -> None:
        """Close the node as its states are done: COMPLETE unless damage was noted."""
        node = ctx.node
        self.result.close_node(node, node.known_status or Status.COMPLETE, None, end=max(ctx.pos, node.start))

    def finding_at(self, code: str, reason: str, path: str, offset: int | None, **more: Any) -> Finding:
        """Return a finding on the document, or on what is at ``path`` in it."""
        return Finding(code, reason, path=path, source=self.result.extraction.name, offset=offset, **more)

    def note(self, code: str, reason: str, offset: int | None, length: int | None = None, **more: Any) -> Finding:
        """Add a finding on the document to its result, and return it."""
        found = self.finding_at(code, reason, more.pop("path", ""), offset, length=length, **more)
        self.result.findings.add(found)
        return found

    def note_damage(self, node: Node, error: MalformedError) -> None:
        """Mark ``node`` DAMAGED for the reason in ``error``."""
        offset = error.offset if error.offset is not None else node.start
        told = {"wanted": error.wanted, "got": error.got}
        finding = self.finding_at("malformed", error.reason, self.path_of(node), offset, **told)
        self.result.close_node(node, Status.DAMAGED, finding)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, State, int] | None:
        """Return the step (position, state, need) with which to continue after damage; None: stop here."""
        return None

    def lifting_option(self, node: Node) -> str:
        """Return the option that lifts the limit because of which ``node`` is UNSUPPORTED."""
        return "--limit"

    def step_to(self, parent: Node, ordinal: int, key: Key) -> KeyStep | OrdinalStep:
        """Return the path step from ``parent`` to its child."""
        if parent.shape == LIST:
            return KeyStep(ordinal)
        if isinstance(key, str | bytes | int):
            return KeyStep(key, self.result.occurrence(parent, ordinal, key))
        return OrdinalStep(ordinal)

    def path_of(self, node: Node) -> str:
        """Return the path of ``node`` for a finding, which may be clipped; for a parser that knows it at less cost."""
        return node.path

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries ``[first, first + count)`` of an indexed node, reading them again if necessary."""
        if index.entries is not None:
            return index.entries[first : first + count]
        if type(index.note) is NumberArray:
            return index.note.entries(node, index, first, count)
        state = self.state_of_children(node.kind)
        assert state is not None  # noqa: S101 -- a parser's promise, not input
        ordinal, offset = index.checkpoint(first)
        ctx = NodeContext(node, index)
        self.begin(ctx)
        ctx.pos, ctx.state, ctx.need = offset, getattr(self, state), 1
        ctx.emitted = ordinal
        ctx.collected = []
        ctx.collect_from, ctx.collect_to = first, first + count
        run(ctx, self)
        return ctx.collected[:count]

    def rereads(self, kind: str) -> bool:
        """Say whether `entries` reads children of a ``kind`` again with the states that indexed them, nothing else."""
        return type(self).entries is Parser.entries and self.state_of_children(kind) is not None

    def key_hashes(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the hashes of the children's keys, from child ``first`` to before ``stop`` (None: all), in order."""
        entries = self.result.entries_from(node, first)
        for _, entry in entries if stop is None else islice(entries, max(0, stop - first)):  # none is indexed behind it
            yield key_hash(entry.key)

    @property
    def unsure_from(self) -> int | None:
        """Where the child of the root begins that makes the numbers of those behind it uncertain, as far as was read;
        None: none does."""
        return None

    @property
    def repeated_keys(self) -> int:
        """How many keys were met again in one object so far, and are ``key#2`` in what `to_python` returned."""
        return 0

    def plain_key(self, node: Node) -> Any:
        """Return the key of ``node`` for `to_python`, for formats with keys of types that the tree only numbers."""
        return node.key

    def python_size(self, node: Node) -> int:
        """Return how many bytes `to_python` would read for ``node``."""
        return sum(length for _, length in node.spans)

    def plain_value(self, node: Node) -> Any:
        """Return ``node`` as plain Python if no walk is needed: a scalar's value; else `UNLOADED_VALUE`.

        Formats that can decode a small container at once return that, too.
        """
        return node.load() if node.shape == SCALAR else UNLOADED_VALUE

    def values(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Yield the children of ``node`` from ``first`` to before ``stop`` (None: all) as plain Python."""
        for kid in node.children(first):
            if stop is not None and kid.ordinal >= stop:
                return
            yield kid.to_python()

    def to_python(self, node: Node) -> Any:
        """Return ``node`` and everything below it as plain Python, without recursion."""
        found = self.plain_value(node)
        if found is not UNLOADED_VALUE:
            return found
        from pparse.tree.node import as_dict

        pairs: list[tuple[Key, Any]] = []
        stack = [(node, pairs, iter(node.children()))]
        while True:
            parent, pairs, children = stack[-1]
            kid = next(children, None)
            if kid is None:
                stack.pop()
                if parent.status in (Status.TRUNCATED, Status.DAMAGED):
                    parent._refuse_if_not_whole()
                value = as_dict(pairs) if parent.shape == MAP else [item for _, item in pairs]
                if not stack:
                    return value
                stack[-1][1].append((self.plain_key(parent), value))
                continue
            found = self.plain_value(kid)
            if found is not UNLOADED_VALUE:
                pairs.append((self.plain_key(kid), found))
            else:
                stack.append((kid, [], iter(kid.children())))

    def json_form(self, node: Node) -> Any:
        """Return ``node`` in the format's own JSON form, as plain Python; `UNLOADED_VALUE` if the format has none."""
        return UNLOADED_VALUE

    def json_default(self, value: object) -> object:
        """Return what stands in JSON for a value in `to_python` that has no form there: of bytes their digits, else the
        text."""
        return {"hex": value.hex()} if isinstance(value, bytes) else str(value)

    def json_text(self, node: Node, indent: int | None, *, ensure_ascii: bool) -> Iterator[str] | None:
        """Return what yields the text that `json.dumps` makes of `to_python`, a piece at a time, for a large node; None
        if that is not worth it, or the format has no such way. All of it is read before, and its faults are raised."""
        return None

    def is_sound_inside(self, node: Node) -> bool | None:
        """Say whether all is right in a container, as its nodes would say it, if that can be told without them.

        False: something may be wrong, so its nodes say what; None: nobody looked. By default, numbers in an array that
        is whole are: any bytes are numbers.
        """
        whole = type(node.note) is NumberArray and node.known_status is Status.COMPLETE
        return True if whole and not self.result.extraction.data.flawed else None

    def children_in_doubt(self, node: Node) -> Iterator[Node]:
        """Yield the children of a container that a walk without ``detail`` must visit: all, unless the parser can tell
        that all is right in some of them, as their nodes would say it."""
        return node.children()

    def walk(self, node: Node, *, detail: bool = True) -> Iterator[Visit]:
        """Yield ``node`` and every node below it, depth first; findings are recorded on the way.

        ``detail=False`` lets a parser skip visits inside of what it finds whole. Nodes are transient. Formats that must
        read a container to find its end override this with a single pass.
        """
        from pparse.tree.visit import Trail, Visit

        yield Visit.of(node, 0)
        if node.shape == SCALAR or (not detail and self.is_sound_inside(node)):
            return
        trail = Trail.of(node)
        children_of = methodcaller("children") if detail else self.children_in_doubt
        stack: list[Iterator[Node]] = [children_of(node)]
        tried = 0  # the depth of what was looked through in vain: what is in it is not, once more
        while stack:
            kid = next(stack[-1], None)
            if kid is None:
                stack.pop()
                continue
            yield Visit.of(kid, len(stack), trail)
            if kid.shape != SCALAR:
                if not detail and (not tried or len(stack) <= tried):
                    whole = self.is_sound_inside(kid)
                    tried = len(stack) if whole is False else 0
                    if whole:
                        continue
                children = children_of(kid)
                try:
                    first = next(children, None)
                except LimitError as error:
                    self.result.note_limit(kid, error)
                    continue
                if first is not None:
                    stack.append(chain((first,), children))
                first = None  # it must be collected once it was visited

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Look at everything and add findings to the result; ``strict``: also by the rules of the reference reader."""
        return self.walk(self.result.root, detail=False)
