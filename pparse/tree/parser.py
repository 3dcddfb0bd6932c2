"""Parsers, and the engine that runs their states.

A parser reads a node by states. A state is a method named after what it expects::

    def expect_record(self, ctx, block, base): ...
        return pos, next_state, need            # or: pos, DONE, 0

``block`` holds the bytes from offset ``base`` on; the state begins at ``ctx.pos`` (never before ``base``), works
through the block, and returns where it stopped, what comes next, and the least number of bytes it needs to go on.

Rules:

1. The engine moves the cursor: to the ``pos`` that a state returned. It refills blocks, and jumps when ``pos`` lies
   beyond the block; bytes jumped over are never read.
2. A child becomes visible when a state calls ``ctx.emit`` (or adds offsets to ``ctx.index``), not before.
3. The context dies when the state machine is DONE, cut or damaged for good. Until then a partly indexed node keeps it
   and goes on where it stopped.
4. Input that ends while ``need`` is unmet is a truncation: `Parser.cut` closes the node with what is whole.
5. A format that contradicts itself raises `MalformedError` in a state: the node is DAMAGED, and `Parser.resync` may
   name a later position and state from which to go on.
6. Standing still (the same state, need and stack depth twice at one position, nothing emitted between) is an
   `EngineError`: no input can loop. Going back must be declared with ``ctx.jump_back`` and is counted.
7. The engine stops as soon as what was asked for is there: ``wanted_count`` children, or ``wanted_key``.

What a state may not do: recurse on input, read by itself what lies ahead, keep blocks.
"""

from __future__ import annotations

import enum

from pparse.errors import EngineError, GapError, LimitError, MalformedError, PparseError
from pparse.findings import Finding, Status
from pparse.locking import guard
from pparse.paths import KeyStep, OrdinalStep
from pparse.tree.node import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.views import as_dict
from pparse.tree.visit import Member, Trail, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data
    from pparse.data.reader import Range, Reader
    from pparse.tree.host import Host
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Key, Node
    from pparse.tree.result import Result

    State = Callable[["NodeContext", bytes, int], "Step"]
    Step = tuple[int, State | "Done", int]

FIRST_BLOCK: Final = 4 << 10
# numpy kernels make temporaries of 15 to 24 times the block: 256 KiB is the best of speed within a small memory.
LAST_BLOCK: Final = 256 << 10
MAX_JUMPS_BACK: Final = 1_000_000
# Steps a parse may take at one position without output.
MAX_STILL: Final = 10_000
# What is asked of a parser from outside of the tree: runs under the session's lock, see `pparse.locking`. (What the
# engine and nodes ask of it does so anyway.)
DOORS: Final = frozenset((
    "check", "details", "directory", "enter", "files", "find_member", "infos", "inner", "members", "metadata",
    "missing", "open_member", "open_scalar", "prove", "settle", "shard", "shard_names", "unwrapped", "verify", "walk",
    "weight_map",
))  # fmt: skip


class Done(enum.Enum):
    """Type of `DONE`."""

    DONE = "DONE"


DONE: Final = Done.DONE


class Confidence(enum.IntEnum):
    """How sure a parser is that data is of its format."""

    NO = 0
    EXTENSION = 1  # only the file name says so
    POSSIBLE = 2  # nothing speaks against it
    LIKELY = 3  # its structure fits
    CERTAIN = 4  # a magic number, or structure that hardly occurs by chance


class NodeContext:
    """The state of a parse in progress.

    ``stack`` and ``scratch`` belong to the parser. ``data`` is what is read: the extraction's, unless a state entered
    another part. ``end`` is where the node's bytes end, or those of the extraction while the node's end is not known
    (None: with the data).
    """

    __slots__ = (
        "_jump_allowed",
        "answer",
        "at_end",
        "collect_from",
        "collect_to",
        "collected",
        "data",
        "emitted",
        "end",
        "entered",
        "entries_limit",
        "index",
        "jumps",
        "need",
        "node",
        "pos",
        "result",
        "resumable",
        "scratch",
        "stack",
        "state",
        "wanted_count",
        "wanted_key",
        "wanted_occurrence",
    )

    def __init__(self, node: Node, index: ChildIndex | None) -> None:
        self.node = node
        self.result: Result = node.result
        self.data: Data = node.extraction.data
        self.entered = False
        self.resumable = False  # the last run ended with an error of the source, between two steps
        self.entries_limit = self.result.extraction.session.limits.entries
        self.index = index
        self.pos = node.start
        self.end = node.end if node.end is not None else node.extraction.end
        self.state: State | Done = DONE
        self.need = 1
        self.at_end = False
        self.stack: list[Any] = []
        self.scratch: Any = None
        self.emitted = 0
        self.jumps = 0
        self._jump_allowed = False
        self.wanted_count: int | None = None
        self.wanted_key: Key = None
        self.wanted_occurrence = 0
        self.answer: int | None = None
        self.collected: list[Entry] | None = None
        self.collect_from = 0
        self.collect_to = 0

    def enter(self, part: Range) -> int:
        """Go on in another stretch of bytes, perhaps of other data; return where it begins, for the step."""
        self.data, self.end = part.data, part.end
        self.entered = True
        return part.start

    @property
    def remaining(self) -> int | None:
        """Bytes from ``pos`` to the end of the node or of the data, whichever comes first; None while unknown."""
        size = self.data.size
        end = self.end if size is None else size if self.end is None else min(self.end, size)
        return None if end is None else max(0, end - self.pos)

    def emit(self, entry: Entry) -> None:
        """Make a child visible."""
        ordinal = self.emitted
        self.emitted += 1
        if self.collected is not None:
            if ordinal >= self.collect_from:
                self.collected.append(entry)
            return
        index = self.index
        if index is None:
            return
        if index.count >= self.entries_limit:
            self.result.extraction.session.limits.check(
                "entries", index.count + 1, "the number of children", path=self.node.path
            )
        if self.result.parser.child_state is None:
            index.add_entry(entry)
        elif index.tail is not None:
            index.add_last(entry)
        else:
            index.add(entry.at)
        if self.wanted_occurrence and entry.key == self.wanted_key and type(entry.key) is type(self.wanted_key):
            self.wanted_occurrence -= 1
            if not self.wanted_occurrence:
                self.answer = ordinal

    def jump_back(self) -> None:
        """Declare that the position about to be returned lies behind the present one."""
        self.jumps += 1
        if self.jumps > MAX_JUMPS_BACK:
            raise MalformedError("too many backward jumps", offset=self.pos)
        self._jump_allowed = True

    @property
    def satisfied(self) -> bool:
        """Whether what was asked for is there."""
        if self.answer is not None:
            return True
        if self.collected is not None:
            return self.emitted >= self.collect_to
        return self.wanted_count is not None and self.index is not None and self.index.count >= self.wanted_count


def largest_block(budget: MemoryBudget, factor: int) -> int:
    """Return the size up to which scan blocks grow: a block is to leave most of the budget to what is kept."""
    size = LAST_BLOCK
    while size > FIRST_BLOCK and size * factor > budget.limit // 4:
        size //= 4
    return size


def run(ctx: NodeContext) -> None:
    """Drive the states of ``ctx`` until it is satisfied, done, cut or damaged for good."""
    parser = ctx.result.parser
    session = ctx.result.extraction.session
    factor = parser.block_factor
    size = session.block_size or FIRST_BLOCK
    grow = not session.block_size
    largest = largest_block(session.budget, factor)
    block, base = b"", ctx.pos
    still: set[tuple[object, ...]] = set()  # what was tried since the last move or output
    with session.budget.charge(size * factor, "a scan block") as charge:
        while ctx.state is not DONE and not ctx.satisfied:
            session.check_cancelled()
            if ctx.entered:
                ctx.entered, block, base = False, b"", ctx.pos
            have = base + len(block) - ctx.pos
            if have < max(ctx.need, 1) or ctx.pos < base:
                sequential = base <= ctx.pos <= base + len(block) and block
                if grow:
                    size = min(size * 4, largest) if sequential else FIRST_BLOCK
                if ctx.need > len(block) and ctx.pos == base:
                    # A state that asks for ever more must not make us read the same bytes each time.
                    size = max(size, 2 * len(block)) if grow else size
                wanted = max(size, ctx.need)
                limit = ctx.end if ctx.end is not None else ctx.data.size
                if limit is not None:
                    wanted = min(wanted, max(0, limit - ctx.pos))
                if ctx.data.size is not None:  # before anything is charged or allocated: what is really there
                    wanted = min(wanted, max(0, ctx.data.size - ctx.pos))
                elif wanted > size and not ctx.data.available(ctx.pos, wanted):
                    wanted = size  # fewer than needed: a truncation
                if wanted * factor > charge.amount:
                    charge.resize(wanted * factor)
                try:
                    block = ctx.data.pread(ctx.pos, wanted) if wanted else b""
                except GapError as error:
                    if not ctx.data.is_cut_at(ctx.pos):
                        reason = f"the node runs into a gap: {error.reason}"
                        if not _damaged(ctx, MalformedError(reason, offset=error.offset)):
                            return
                        continue
                    block = b""
                except BaseException:
                    ctx.resumable = True  # nothing was done with the block yet
                    raise
                base = ctx.pos
                have = len(block)
                gap = ctx.data.next_gap(base + have)
                # One at the end of what is parsed is none of its own: it belongs to what comes behind.
                inside = limit is None or base + have < limit
                near = inside and gap is not None and gap.offset <= base + have
                gap_follows = near and not ctx.data.is_cut_at(base + have)
                ctx.at_end = not gap_follows and (have < wanted or (limit is not None and base + have >= limit))
                if have < ctx.need:
                    if not gap_follows:
                        if not _cut(ctx):
                            return
                        continue
                    if not _damaged(ctx, MalformedError("the node runs into a gap", offset=base + have)):
                        return
                    continue
            before = (ctx.pos, ctx.state, ctx.need, len(ctx.stack))
            output = _output(ctx)
            try:
                pos, state, need = ctx.state(ctx, block, base)
            except MalformedError as error:
                if not _damaged(ctx, error):
                    return
                continue
            except PparseError:
                # The state was left in the middle: whoever asks again begins afresh.
                ctx.node.unload()
                raise
            if pos < ctx.pos and not ctx._jump_allowed and not ctx.entered:
                raise EngineError(f"went back to {pos} without declaring it", offset=ctx.pos, state=_name(ctx.state))
            ctx._jump_allowed = False
            if pos != ctx.pos or ctx.entered or output != _output(ctx):
                still.clear()
            else:
                still.add(before)
                again = (pos, state, need, len(ctx.stack)) in still and have >= need
                if (again or len(still) > MAX_STILL) and not ctx.satisfied:
                    raise EngineError("stands still", offset=ctx.pos, state=_name(ctx.state))
            ctx.pos, ctx.state, ctx.need = pos, state, need
        if ctx.state is DONE:
            _close(ctx, parser.finish)


def _output(ctx: NodeContext) -> int:
    return ctx.emitted + (ctx.index.count if ctx.index is not None else 0)


def _name(state: object) -> str:
    return getattr(state, "__name__", str(state))


def _close(ctx: NodeContext, how: Callable[[NodeContext], None]) -> None:
    if ctx.collected is None:
        how(ctx)
    if ctx.index is not None and ctx.collected is None:
        ctx.index.finish()
    ctx.state = DONE


def _cut(ctx: NodeContext) -> bool:
    """Input ended: say whether the parser goes on in another part."""
    index = ctx.index
    if ctx.collected is not None:
        again = None  # what was emitted here the first time is kept, see `ChildIndex.tail`
    elif index is None or ctx.result.parser.child_state is None:
        again = ctx.result.parser.cut(ctx)
    else:
        index.tail = []
        again = ctx.result.parser.cut(ctx)
        if again is not None and index.tail:
            raise EngineError("cut() made children visible, and went on", offset=ctx.pos, state="cut")
        index.tail = index.tail or None
    if again is not None and ctx.entered:
        ctx.pos, ctx.state, ctx.need = again
        return True
    _close(ctx, lambda _ctx: None)
    return False


def _damaged(ctx: NodeContext, error: MalformedError) -> bool:
    """The format contradicts itself: note it, and say whether the parser knows where to go on."""
    parser = ctx.result.parser
    if ctx.collected is None:
        parser.note_damage(ctx.node, error)
    again = parser.resync(ctx, error)
    if again is None:
        _close(ctx, lambda _ctx: None)
        return False
    pos, state, need = again
    if pos <= ctx.pos and not ctx.entered:
        raise EngineError("resync did not move on", offset=ctx.pos, state=_name(state))
    ctx.pos, ctx.state, ctx.need = pos, state, need
    return True


class Parser:
    """Base of all parsers. One instance parses one extraction.

    A simple format needs the class attributes, `match`, `root_entry`, `begin` and its states; see
    ``docs/how-to-write-a-parser.md``.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    extensions: ClassVar[tuple[str, ...]] = ()
    media_type: ClassVar[str] = "application/octet-stream"
    refines: ClassVar[tuple[str, ...]] = ()
    root_at: ClassVar[str] = "front"
    reads: ClassVar[str] = "file"  # or "folder"
    references: ClassVar[tuple[str, ...]] = ()
    limitations: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[dict[str, str]] = {}

    # Shapes by kind; a kind that is not named here is a scalar.
    shapes: ClassVar[dict[str, str]] = {}
    # Name of the state that can begin at any child's `at`; None keeps the entries instead of offsets.
    child_state: ClassVar[str | None] = None
    # What one of `members` is called.
    member_word: ClassVar[str] = "member"
    # Whether `walk` adds every finding to the result itself.
    notes_findings: ClassVar[bool] = False
    # What one byte of block costs in memory while a state works on it.
    block_factor: int = 2

    def __init__(self, result: Result) -> None:
        self.result = result
        self.lock = result.lock

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        guard(cls, DOORS)

    # -- what every parser says --------------------------------------------------------------------------------------

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """Say how sure this is the format, from a few reads at the start (or end) of ``reader``."""
        return Confidence.NO

    @classmethod
    def match_further(cls, reader: Reader, *, thorough: bool) -> Confidence:
        """Say it of data that no parser matches, from 64 KiB at both ends; not ``thorough``: from the last bytes."""
        return Confidence.NO

    @classmethod
    def match_named(cls, reader: Reader, name: str) -> Confidence:
        """Say so of a document that is called ``name`` (a member of an archive has another one than its data)."""
        return cls.match(reader)

    def root_entry(self) -> Entry:
        """Describe the root node."""
        extraction = self.result.extraction
        return Entry(None, self.name, extraction.start, extraction.end, status=None)

    def begin(self, ctx: NodeContext) -> tuple[int, State | Done, int]:
        """Return where, in which state and with how many bytes the parse of ``ctx.node`` begins."""
        raise EngineError(f"parser {self.name} does not say how to begin", state="begin")

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""
        return self.shapes.get(kind, SCALAR)

    # -- what a parser may say ---------------------------------------------------------------------------------------

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of ``node`` without states, where they are known otherwise; False: run the engine."""
        return False

    def unwrapped(self) -> Host | None:
        """Return the document inside, where this is but a wrapping of it; else None. Raises `LimitError`."""
        return None

    def settle(self, *, unless_indexed: bool = False) -> None:
        """Read to the end what has to be read to its end to know what is wrong with it (a compressed stream)."""

    def confirm(self) -> None:
        """Compare the checksums of a stream, if that costs little."""

    def key_meant(self, node: Node, key: Key) -> Key:
        """Return the key of a child of ``node`` that somebody may mean by ``key`` (a field's number, say)."""
        return key

    def load_scalar(self, node: Node) -> Any:
        """Return the value of a scalar node: what its parent's state decoded, or else its bytes."""
        if node.parent is not None:
            born = self.result.entry(node.parent, node.ordinal).value
            if born is not UNLOADED_VALUE:
                return born
        length = sum(count for _, count in node.spans)
        self.result.extraction.session.limits.check("scalar_bytes", length, "the value", offset=node.start)
        return b"".join(part.data.read_exact(part.start, len(part)) for part in node.parts)

    def judge(self, node: Node) -> None:
        """Find out the status of a node of which it is not known; by default, by loading it."""
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
        """Input ended while ``ctx.need`` was unmet: close the node as TRUNCATED (DAMAGED, if all of it is there).

        A parser whose nodes have several parts may enter the next one (`NodeContext.enter`) and return the step there.
        """
        end = self.result.extraction.known_end(ctx.node)
        # A node that is all there, and yet ends inside a record, contradicts itself; it was not cut.
        node = ctx.node
        whole = node.parent is not None and node.end is not None and node.end <= end
        whole = whole and node.known_status is not Status.TRUNCATED
        finding = Finding(
            "malformed" if whole else "truncated",
            f"the {ctx.node.kind} ends inside a record" if whole else f"the {ctx.node.kind} ends early",
            path=ctx.node.path, source=self.result.extraction.name, offset=end,
            wanted=ctx.need, got=max(0, end - ctx.pos),
        )  # fmt: skip
        self.result.close_node(ctx.node, Status.DAMAGED if whole else Status.TRUNCATED, finding, end=end)
        return None

    def finish(self, ctx: NodeContext) -> None:
        """The state machine is DONE: close the node, as COMPLETE unless damage was noted."""
        node = ctx.node
        self.result.close_node(node, node.known_status or Status.COMPLETE, None, end=max(ctx.pos, node.start))

    def note_damage(self, node: Node, error: MalformedError) -> None:
        """Mark ``node`` DAMAGED for the reason in ``error``."""
        offset = error.offset if error.offset is not None else node.start
        finding = Finding(
            "malformed", error.reason, path=node.path, source=self.result.extraction.name, offset=offset,
            wanted=error.wanted, got=error.got,
        )  # fmt: skip
        self.result.close_node(node, Status.DAMAGED, finding)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, State, int] | None:
        """Return position, state and need from which to go on after damage; None to stop here."""
        return None

    def lifting_option(self, node: Node) -> str:
        """Return the option that lifts the limit which made ``node`` UNSUPPORTED."""
        return "--limit"

    def step_to(self, parent: Node, ordinal: int, key: Key) -> KeyStep | OrdinalStep:
        """Return the path step from ``parent`` to its child."""
        if parent.shape == LIST:
            return KeyStep(ordinal)
        if isinstance(key, str | bytes | int):
            return KeyStep(key, self.result.occurrence(parent, ordinal, key))
        return OrdinalStep(ordinal)

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return the entries ``[first, first + count)`` of an indexed node, reading them again if need be."""
        if index.entries is not None:
            return index.entries[first : first + count]
        assert self.child_state is not None  # noqa: S101 -- a parser's promise, not input
        ordinal, offset = index.checkpoint(first)
        ctx = NodeContext(node, index)
        self.begin(ctx)
        ctx.pos, ctx.state, ctx.need = offset, getattr(self, self.child_state), 1
        ctx.emitted = ordinal
        ctx.collected = []
        ctx.collect_from, ctx.collect_to = first, first + count
        run(ctx)
        return ctx.collected[:count]

    def key_hashes(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the hashes of the keys of the children from ``first`` to before ``stop`` (None: all), in order."""
        for ordinal, entry in self.result.entries_from(node, first):
            if stop is not None and ordinal >= stop:
                return
            yield hash(entry.key)

    def python_size(self, node: Node) -> int:
        """Return how many bytes `to_python` of ``node`` has to look at, for its limit."""
        return sum(length for _, length in node.spans)

    def to_python(self, node: Node) -> Any:
        """Return ``node`` and all below it as plain Python, without recursion."""
        if node.shape == SCALAR:
            return node.load()
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
                stack[-1][1].append((parent.key, value))
            elif kid.shape == SCALAR:
                pairs.append((kid.key, kid.load()))
            else:
                stack.append((kid, [], iter(kid.children())))

    def walk(self, node: Node, *, detail: bool = True) -> Iterator[Visit]:
        """Yield every node below and including ``node``, depth first, findings noted on the way.

        ``detail=False`` lets a parser pass over what it finds whole without a visit for each piece of it. Nodes are
        transient; formats that must read a container to find its end override this with a single pass.
        """
        yield Visit.of(node, 0)
        if node.shape == SCALAR:
            return
        trail = Trail.of(node)
        stack = [iter(node.children())]
        while stack:
            kid = next(stack[-1], None)
            if kid is None:
                stack.pop()
                continue
            yield Visit.of(kid, len(stack), trail)
            if kid.shape != SCALAR:
                try:
                    kid.index_to(1)
                except LimitError as error:
                    self.result.note_limit(kid, error)
                    continue
                stack.append(iter(kid.children()))

    def members(self) -> Iterator[Member]:
        """Yield what `pparse ls` lists: the children of the root, unless the format knows better."""
        root = self.result.root
        if root.shape == SCALAR:
            return
        end = self.result.extraction.known_end()
        for ordinal, entry in self.result.entries_from(root, 0):
            if entry.parts is not None:
                size = sum(len(part) for part in entry.parts)
            else:
                size = (end if entry.end is None else entry.end) - entry.start
            name = f"[{ordinal}]" if entry.key is None else str(entry.key)
            yield Member(name, entry.kind, entry.start, size, entry.status or Status.COMPLETE)

    def find_member(self, name: str) -> Node | None:
        """Return the node that `members` lists as ``name``, where that is no path; None if there is none."""
        return None

    def metadata(self) -> dict[str, object]:
        """Return what the file says about itself, as plain data for JSON."""
        return {}

    def missing(self) -> int | None:
        """Return how many bytes a cut file lacks at least, where the format tells; else None."""
        return None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield labels and values that `pparse info` shows of this format."""
        yield from ()

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Look at everything and add what is wrong to the result's findings; ``strict``: by the reference's rules."""
        return self.walk(self.result.root, detail=False)

    def checksums(self) -> tuple[int, int, str] | None:
        """Return what the last `check` compared: how many things there are, for how many of them a checksum agrees, and
        what one is called; None where the format has no checksums of its own."""
        return None


guard(Parser, DOORS)
