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
6. RangeStatus still (the same state, need and stack depth twice at one position, nothing emitted between) is an
   `EngineError`: no input can loop. Moving back must be declared with ``ctx.jump_back`` and is counted.
7. The engine stops once it has what was asked for: ``wanted_count`` children, or ``wanted_key``.

States must not recurse on input, read ahead by themselves, or keep blocks.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, EngineError, GapError, MalformedError, PparseError
from pparse.tree.context import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, Final, Protocol

    from pparse.budget import Charge, MemoryBudget
    from pparse.tree.context import NodeContext, State
    from pparse.tree.node import Node

    class States(Protocol):
        """What the engine requires of a parser."""

        child_state: ClassVar[str | None]
        block_factor: int

        def finish(self, ctx: NodeContext) -> None:
            """Close the node: the states are done."""

        def cut(self, ctx: NodeContext) -> tuple[int, State, int] | None:
            """Input ended: close the node, or return the step with which to continue in another part."""

        def note_damage(self, node: Node, error: MalformedError) -> None:
            """Mark the node as damaged."""

        def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, State, int] | None:
            """Return the step with which to continue behind damage; None: stop."""


FIRST_BLOCK: Final = 4 << 10
# numpy kernels make temporaries of 15 to 24 times the block: 256 KiB is the fastest size that keeps memory small.
LAST_BLOCK: Final = 256 << 10
# The most steps at one position without output.
MAX_STILL: Final = 10_000


def largest_block(budget: MemoryBudget, factor: int) -> int:
    """Return the size up to which scan blocks grow: most of the budget must remain for what is kept."""
    size = LAST_BLOCK
    while size > FIRST_BLOCK and size * factor > budget.limit // 4:
        size //= 4
    return size


def run(ctx: NodeContext, parser: States) -> None:
    """Run the states of ``parser`` until ``ctx`` is satisfied, done, cut or damaged for good."""
    session = ctx.result.extraction.session
    size = session.block_size or ctx.first_block or FIRST_BLOCK
    still: set[tuple[object, ...]] = set()  # what was tried since the last move or output
    with session.budget.charge(size * parser.block_factor, "a scan block") as charge:
        feed = _Feed(ctx, charge, parser.block_factor)
        while ctx.state is not DONE and not ctx.satisfied:
            session.check_cancelled()
            if ctx.entered:
                ctx.entered, feed.block, feed.base = False, b"", ctx.pos
            have = feed.base + len(feed.block) - ctx.pos
            if have < max(ctx.need, 1) or ctx.pos < feed.base:
                trouble = feed.refill(ctx)
                if trouble is not None:
                    if not _goes_on(ctx, parser, trouble):
                        return
                    continue
                have = len(feed.block)
            before = (ctx.pos, ctx.state, ctx.need, len(ctx.stack))
            output = _output(ctx)
            try:
                pos, state, need = ctx.state(ctx, feed.block, feed.base)
            except MalformedError as error:
                if not _damaged(ctx, parser, error):
                    return
                continue
            except PparseError:
                # The state was left half-way: the next request starts over.
                ctx.node.unload()
                raise
            if pos < ctx.pos and not ctx._jump_allowed and not ctx.entered:
                raise EngineError(f"moved back to {pos} without declaring it", offset=ctx.pos, state=_name(ctx.state))
            ctx._jump_allowed = False
            if pos != ctx.pos or ctx.entered or output != _output(ctx):
                still.clear()
            else:
                still.add(before)
                _check_still(ctx, still, (pos, state, need, len(ctx.stack)), have >= need)
            ctx.pos, ctx.state, ctx.need = pos, state, need
        if ctx.state is DONE:
            _close(ctx, parser.finish)


class _Feed:
    """The bytes that states read: ``block``, which begins at ``base``. Blocks grow as long as they follow each other,
    unless the session says how large they are."""

    __slots__ = ("_charge", "_factor", "_first", "_grow", "_largest", "_size", "base", "block")

    def __init__(self, ctx: NodeContext, charge: Charge, factor: int) -> None:
        session = ctx.result.extraction.session
        self.block = b""
        self.base = ctx.pos
        self._first = session.block_size or ctx.first_block or FIRST_BLOCK
        self._size = self._first
        self._grow = not session.block_size
        self._largest = largest_block(session.budget, factor)
        self._charge = charge
        self._factor = factor

    def refill(self, ctx: NodeContext) -> MalformedError | EndOfDataError | None:
        """Read what the state of ``ctx`` needs; return why there is not so much: a gap, or the end. None: it is there.

        Other errors of the source propagate.
        """
        if self._grow:
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
        try:
            self.block = ctx.data.pread(ctx.pos, wanted) if wanted else b""
        except GapError as error:
            if not ctx.data.is_cut_at(ctx.pos):
                return MalformedError(f"the node runs into a gap: {error.reason}", offset=error.offset)
            self.block = b""
        except BaseException:
            ctx.resumable = True  # no state has seen the block yet
            raise
        self.base = ctx.pos
        end = ctx.pos + len(self.block)
        gap = ctx.data.next_gap(end)
        # A gap at the end of the node is not its own: it belongs to what follows.
        inside = limit is None or end < limit
        gap_follows = inside and gap is not None and gap.offset <= end and not ctx.data.is_cut_at(end)
        ctx.at_end = not gap_follows and (len(self.block) < wanted or (limit is not None and end >= limit))
        if len(self.block) >= ctx.need:
            return None
        if gap_follows:
            return MalformedError("the node runs into a gap", offset=end)
        return EndOfDataError("the data end here", offset=end)

    def _resize(self, ctx: NodeContext) -> None:
        """Set how much is read next: more than last time, if reading goes on where it ended."""
        sequential = self.block and self.base <= ctx.pos <= self.base + len(self.block)
        self._size = min(self._size * 4, self._largest) if sequential else self._first
        if ctx.need > len(self.block) and ctx.pos == self.base:
            # A state that keeps asking for more must not make us read the same bytes each time.
            self._size = max(self._size, 2 * len(self.block))


def _goes_on(ctx: NodeContext, parser: States, trouble: MalformedError | EndOfDataError) -> bool:
    """Say whether the parser goes on elsewhere, as the bytes that it needs are not there."""
    return _damaged(ctx, parser, trouble) if isinstance(trouble, MalformedError) else _cut(ctx, parser)


def _check_still(ctx: NodeContext, still: set[tuple[object, ...]], step: tuple[object, ...], fed: bool) -> None:
    """Raise `EngineError` if a state that was ``fed`` what it needs asks for a ``step`` that was tried already."""
    if ((step in still and fed) or len(still) > MAX_STILL) and not ctx.satisfied:
        raise EngineError("the parser stands still", offset=ctx.pos, state=_name(ctx.state))


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


def _cut(ctx: NodeContext, parser: States) -> bool:
    """Handle the end of input; return whether the parser continues in another part."""
    index = ctx.index
    if ctx.collected is not None:
        again = None  # what was emitted here before is kept, see `ChildIndex.tail`
    elif index is None or parser.child_state is None:
        again = parser.cut(ctx)
    else:
        index.tail = []
        again = parser.cut(ctx)
        if again is not None and index.tail:
            raise EngineError("cut() made children visible and continued", offset=ctx.pos, state="cut")
        index.tail = index.tail or None
    if again is not None and ctx.entered:
        ctx.pos, ctx.state, ctx.need = again
        return True
    _close(ctx, lambda _ctx: None)
    return False


def _damaged(ctx: NodeContext, parser: States, error: MalformedError) -> bool:
    """Handle a contradiction in the format; return whether the parser knows where to continue."""
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
