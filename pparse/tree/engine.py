"""The engine: runs the states of a parser.

A parser reads a node with states. A state is a method named after what it expects::

    def expect_record(self, ctx, block, base): ...
        return pos, next_state, need            # or: pos, DONE, 0

``block`` holds the bytes from offset ``base`` on. The state begins at ``ctx.pos`` (never before ``base``), works
through the block, and returns where it stopped, the next state, and the least number of bytes that one needs.

Rules:

1. The engine moves the cursor, to the ``pos`` that a state returned. It refills blocks, and jumps when ``pos`` lies
   beyond the block; bytes jumped over are never read.
2. A child becomes visible when a state calls ``ctx.emit`` (or adds offsets to ``ctx.index``), not before.
3. The context is dropped when the state machine is DONE, cut or damaged for good. Until then a partly indexed node
   keeps it, and continues where it stopped.
4. Input that ends while ``need`` is unmet is a truncation: `Parser.cut` closes the node with what is whole.
5. A state that finds a contradiction raises `MalformedError`: the node is DAMAGED, and `Parser.resync` may name a
   later position and state from which to continue.
6. Standing still (the same state, need and stack depth twice at one position, nothing emitted between) is an
   `EngineError`: no input can loop. Moving back must be declared with ``ctx.jump_back`` and is counted.
7. The engine stops once it has what was asked for: ``wanted_count`` children, or ``wanted_key``.
8. A state need not compare lengths: ``ctx.take`` and its like return the bytes or end the state, which is entered again
   where it began, or where it last emitted a child.
9. A child whose end is not known is emitted without one, and the state returns ``ctx.behind_child(next_state)``. Before
   that state runs, the engine reads the child with the child's own states, from the same blocks. What it learns is kept
   for the child: end, status and index. So nothing is read once to be skipped and again to be shown.

What a state may rely on when it is entered: ``begin`` ran for this context; ``ctx.emitted`` children were emitted, also
when entries are read again (then ``begin`` ran, but the states before the checkpoint did not: what they would have left
in ``ctx.scratch`` must be found anew); what `Parser.cut` emitted is there once, behind all others, and kept.

Parser must not recurse on input, read ahead by themselves, or keep blocks.
"""

from __future__ import annotations

from pparse.data.base import up_to_page
from pparse.errors import EndOfDataError, EngineError, GapError, MalformedError, PparseError
from pparse.findings import Status
from pparse.tree.context import DONE, NeedMoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.limits import Charge, MemoryBudget
    from pparse.tree.context import NodeContext
    from pparse.tree.parser import Parser


FIRST_BLOCK: Final = 4 << 10
# numpy kernels make temporaries of 15 to 24 times the block: 256 KiB is the fastest size that keeps memory small.
LAST_BLOCK: Final = 256 << 10
# What begins so few bytes behind a block is read as if it followed it: small values are jumped over by the thousands.
_NEAR: Final = 1 << 10
# Entries that are kept of a run that stops early.
GROUP: Final = 64
# The most steps at one position without output.
MAX_STILL: Final = 10_000


def largest_block(budget: MemoryBudget, factor: int) -> int:
    """Return the size up to which scan blocks grow: most of the budget must remain for what is kept."""
    size = LAST_BLOCK
    while size > FIRST_BLOCK and size * factor > budget.limit // 4:
        size //= 4
    return size


def run(ctx: NodeContext, parser: Parser) -> None:
    """Run the states of ``parser`` until ``ctx`` is satisfied, done, cut or damaged for good."""
    if ctx.state is DONE and ctx.pending is None:  # all children were found as it began: nothing is to be read
        _close(ctx, parser)
        return
    session = ctx.result.extraction.session
    size = session.block_size or FIRST_BLOCK
    still: set[tuple[object, ...]] = set()
    outermost = ctx
    above: list[NodeContext] = []  # the contexts that wait for the end of a child
    with session.budget.charge(size * parser.block_factor, "a scan block") as charge:
        feed = _Feed(ctx, charge, parser.block_factor)
        try:
            while not (ctx.satisfied and not feed.has_next(ctx)):
                if ctx.state is DONE and ctx is outermost and ctx.pending is None:
                    break
                if ctx.pending is not None:
                    inner = ctx.result.child_context(ctx)
                    if inner is not None:
                        above.append(ctx)
                        ctx = inner
                    else:
                        _go_on_behind(ctx, parser)
                    feed.is_judged = False
                elif ctx.state is DONE:
                    _close(ctx, parser)
                    ctx.result.learn_child(above[-1], ctx)
                    ctx = above.pop()
                else:
                    session.check_cancelled()
                    _step(ctx, parser, feed, still)
        except BaseException:
            if ctx is not outermost and not ctx.resumable:
                ctx.node.unload()  # it was left half-way, and begins anew
            if ctx is not outermost or ctx.pending is not None:
                outermost.resumable = True  # it stands between two steps
            ctx.resumable = ctx.resumable and ctx is outermost
            raise
        if ctx.state is DONE and ctx.pending is None:
            _close(ctx, parser)
        feed.keep(ctx.data)


def _go_on_behind(ctx: NodeContext, parser: Parser) -> None:
    """Go on behind the child for which ``ctx`` waited, and of which all is known that can be."""
    _, child = ctx.pending  # type: ignore[misc]
    ctx.pending = None
    if child.status is Status.TRUNCATED:
        ctx.pos, ctx.need = max(ctx.pos, child.end or 0), 1
        _cut(ctx, parser)
    elif child.end is None:
        _damaged(ctx, parser, MalformedError(f"where the {child.kind} ends is not known", offset=child.start))
    else:
        ctx.pos = max(ctx.pos, child.end)


def _step(ctx: NodeContext, parser: Parser, feed: _Feed, still: set[tuple[object, ...]]) -> None:
    """Run one state; ``still`` is what was tried since the last move or output."""
    if ctx.entered or ctx.data is not feed.data:
        ctx.entered = False
        feed.start(ctx)
    if not feed.is_judged:
        feed.note_end(ctx)
    have = feed.base + len(feed.block) - ctx.pos
    if have < max(ctx.need, 1) or ctx.pos < feed.base:
        trouble = feed.refill(ctx)
        if trouble is not None:
            if isinstance(trouble, MalformedError):
                _damaged(ctx, parser, trouble)
            else:
                _cut(ctx, parser)
            return
        have = len(feed.block)
    start, state, need, depth, output = ctx.pos, ctx.state, ctx.need, len(ctx.stack), _output(ctx)
    ctx._block, ctx._base, ctx._mark = feed.block, feed.base, start
    try:
        pos, following, wanted = state(ctx, feed.block, feed.base)  # type: ignore[operator]
    except NeedMoreError as more:
        pos, following, wanted = more.pos, state, more.need
    except MalformedError as error:
        ctx.pos = ctx._mark  # what was emitted stays
        _damaged(ctx, parser, error)
        return
    except PparseError:
        # The state was left half-way: the next request starts over.
        ctx.node.unload()
        raise
    if pos < start and not ctx._jump_allowed and not ctx.entered:
        raise EngineError(f"moved back to {pos} without declaring it", offset=start, state=_name(state))
    ctx._jump_allowed = False
    if pos != start or ctx.entered or output != _output(ctx):
        still.clear()
    else:
        still.add((ctx.node, start, state, need, depth))
        again = (ctx.node, pos, following, wanted, len(ctx.stack)) in still and have >= wanted
        if (again or len(still) > MAX_STILL) and not ctx.satisfied:
            raise EngineError("the parser stands still", offset=ctx.pos, state=_name(state))
    ctx.pos, ctx.state, ctx.need = pos, following, wanted


class _Feed:
    """The bytes that states read: ``block``, which begins at ``base``. Blocks grow as long as they follow each other,
    unless the session says how large they are."""

    def __init__(self, ctx: NodeContext, charge: Charge, factor: int) -> None:
        session = ctx.result.extraction.session
        self._kept = None if session.block_size else session.kept_block  # blocks grow, and the last one is kept
        self._first = self._size = session.block_size or FIRST_BLOCK
        self._largest = largest_block(session.budget, factor)
        self._charge = charge
        self._factor = factor
        self.start(ctx)

    def start(self, ctx: NodeContext) -> None:
        """Begin in the data of ``ctx``, with the block that the last run ended with, if it has what follows."""
        self.data, self.block, self.base = ctx.data, b"", ctx.pos
        found = None if self._kept is None else self._kept.take(ctx.data, ctx.pos)
        self.is_judged = found is None  # whether `at_end` of the context is that of this block
        if found is not None:
            self.base, self.block = found
            self._size = max(len(self.block), self._first)
            self._charge.resize(max(self._charge.amount, len(self.block) * self._factor))

    def has_next(self, ctx: NodeContext) -> bool:
        """Say whether to go on though ``ctx`` has what was asked for: entries are wanted, and it takes no reading."""
        if ctx.fresh is None or len(ctx.fresh) >= GROUP or ctx.state is DONE or ctx.pending is not None or ctx.entered:
            return False
        have = self.base + len(self.block) - ctx.pos if ctx.pos >= self.base and ctx.data is self.data else 0
        return have >= max(ctx.need, 1) and ctx.answer is None

    def keep(self, data: Data) -> None:
        """Keep the block for the next run."""
        if self._kept is not None and data is self.data:
            self._kept.keep(data, self.base, self.block)

    def refill(self, ctx: NodeContext) -> MalformedError | EndOfDataError | None:
        """Read what the state of ``ctx`` needs; return why there is not so much: a gap, or the end. None: it is there.

        Other errors of the source propagate.
        """
        if self._kept is not None:
            self._resize(ctx)
        wanted = max(self._size, ctx.need)
        limit = ctx.end if ctx.end is not None else ctx.data.size
        if limit is not None:
            wanted = min(wanted, max(0, limit - ctx.pos))
        if ctx.data.size is not None:  # clip to what exists before charging or allocating
            wanted = min(wanted, max(0, ctx.data.size - ctx.pos))
        elif wanted > self._size and not ctx.data.available(ctx.pos, wanted):
            wanted = self._size  # fewer than needed: a truncation
        if wanted * self._factor > self._charge.amount:
            self._charge.resize(wanted * self._factor)
        held = self._held(ctx, wanted)
        try:
            if len(held) < wanted:
                held = ctx.data.pread(ctx.pos, wanted)
            self.block = held[:wanted]
        except GapError as error:
            if not ctx.data.is_cut_at(ctx.pos):
                return MalformedError(f"the node runs into a gap: {error.reason}", offset=error.offset)
            self.block = b""
        except BaseException:
            ctx.resumable = True  # no state has seen the block yet
            raise
        self.base = ctx.pos
        gap_follows = self._note_end(ctx, short=len(self.block) < wanted)
        if len(self.block) >= ctx.need:
            return None
        end = ctx.pos + len(self.block)
        if gap_follows:
            return MalformedError("the node runs into a gap", offset=end)
        return EndOfDataError("the data end here", offset=end)

    def _held(self, ctx: NodeContext, wanted: int) -> bytes:
        """Return what is in memory of what follows: in the block, or in that which was read to tell the format."""
        held = self.block[ctx.pos - self.base :] if self.base <= ctx.pos else b""
        front = ctx.result.extraction.front
        return held if len(held) >= wanted or ctx.data is not front.data else front.held(ctx.pos, wanted) or held

    def note_end(self, ctx: NodeContext) -> None:
        """Find out whether the block, which was read for another node or run, ends where this node does."""
        limit = ctx.end if ctx.end is not None else ctx.data.size
        end = self.base + len(self.block)
        if limit is not None and end > limit:  # what lies behind the node is not its own
            self.block, end = self.block[: max(0, limit - self.base)], max(limit, self.base)
        self._note_end(ctx, short=False)

    def _note_end(self, ctx: NodeContext, *, short: bool) -> bool:
        """Set whether the input of ``ctx`` ends with the block; return whether a gap follows it."""
        self.is_judged = True
        limit = ctx.end if ctx.end is not None else ctx.data.size
        end = self.base + len(self.block)
        gap = ctx.data.next_gap(end)
        # A gap at the end of the node is not its own: it belongs to what follows.
        inside = limit is None or end < limit
        gap_follows = inside and gap is not None and gap.offset <= end and not ctx.data.is_cut_at(end)
        ctx.at_end = not gap_follows and (short or (limit is not None and end >= limit))
        return gap_follows

    def _resize(self, ctx: NodeContext) -> None:
        """Set how much is read next: more than last time, if reading goes on where it ended."""
        sequential = self.block and self.base <= ctx.pos <= self.base + len(self.block) + _NEAR
        self._size = min(self._size * 4, self._largest) if sequential else up_to_page(ctx.pos, self._first)
        if ctx.need > len(self.block) and ctx.pos == self.base:
            # A state that keeps asking for more must not make us read the same bytes each time.
            self._size = max(self._size, 2 * len(self.block))


def _output(ctx: NodeContext) -> int:
    return ctx.emitted + ctx.index.count


def _name(state: object) -> str:
    return getattr(state, "__name__", str(state))


def _close(ctx: NodeContext, parser: Parser | None = None) -> None:
    """End the states of a node, which is closed by ``parser``; None: it is closed already."""
    if not ctx.closed:
        ctx.closed = True
        if ctx.collected is None:
            if parser is not None:
                parser.finish(ctx)
            ctx.index.finish()
        ctx.state = DONE


def _cut(ctx: NodeContext, parser: Parser) -> None:
    """Handle the end of input: the parser continues in another part, or the node is closed."""
    index = ctx.index
    if ctx.collected is not None:
        again = None  # what was emitted here before is kept, see `ChildIndex.tail`
    elif ctx.keeps_entries:
        again = parser.cut(ctx)
    else:
        index.tail = []
        again = parser.cut(ctx)
        if again is not None and index.tail:
            raise EngineError("cut() made children visible and continued", offset=ctx.pos, state="cut")
        index.tail = index.tail or None
    if again is not None and ctx.entered:
        ctx.pos, ctx.state, ctx.need = again
    else:
        _close(ctx)


def _damaged(ctx: NodeContext, parser: Parser, error: MalformedError) -> None:
    """Handle a contradiction in the format: the parser knows where to continue, or the node is closed."""
    if ctx.collected is None:
        parser.note_damage(ctx.node, error)
    again = parser.resync(ctx, error)
    if again is None:
        return _close(ctx)
    pos, state, need = again
    if not ctx.entered:
        if pos <= ctx.pos:
            raise EngineError("resync did not move on", offset=ctx.pos, state=_name(state))
        gap = ctx.data.next_gap(pos) if ctx.data.gaps else None
        if gap is not None and gap.offset <= pos and gap.end is None:
            return _close(ctx)  # nothing is behind it, however far the parser goes
    ctx.pos, ctx.state, ctx.need = pos, state, need
    return None
