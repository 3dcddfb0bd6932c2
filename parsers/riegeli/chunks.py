"""The chunks of a Riegeli file, one after the other, and what is behind damage.

A chunk header is believed when its hash agrees. Damage makes a ``gap``, from the chunk that failed to where
`pparse.riegeli.salvage` goes on; a chunk that proves whole all the same is no gap.
"""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.errors import PASSING, MalformedError, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.limits import are, count_words
from pparse.parsers.riegeli.hashes import HashedParser
from pparse.paths import KeyStep, format_path
from pparse.riegeli.chunks import Chunk, ChunkError, header_size, parse_header
from pparse.riegeli.errors import InvalidArgumentError
from pparse.riegeli.layout import METADATA
from pparse.riegeli.records import open_records
from pparse.riegeli.salvage import resume
from pparse.riegeli.search import first_damage
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.riegeli.salvage import Outcome


class ChunkParser(HashedParser):
    """The part of `pparse.parsers.riegeli.parser.RiegeliParser` that goes from chunk to chunk."""

    _shown: Chunk | None = None  # the chunk added last

    def expect_chunk(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the next chunk."""
        begin = ctx.pos - self._start
        raw = block[ctx.pos - base : ctx.pos - base + 64]
        if ctx.is_at_end:
            if not begin and ctx.collected is None:
                self.result.findings.add(
                    Finding(
                        "empty",
                        "the file is empty: Riegeli without records, or a download that never began",
                        severity=Severity.WARNING,
                        source=self.result.extraction.name,
                        offset=ctx.pos,
                    )
                )
            return ctx.pos, DONE, 0
        layout = self._chunks.layout_at(begin)
        try:
            need = header_size(begin, layout)
            chunk = parse_header(raw[:need], begin, layout)
        except ChunkError as error:
            return self._go_on(ctx, error)
        if chunk is None:
            back = self._look_back(ctx, begin) if ctx.at_end else None
            return back or (ctx.pos, self.expect_chunk, need)
        return self._show(ctx, chunk)

    def _show(self, ctx: NodeContext, chunk: Chunk, problem: Finding | None = None) -> tuple[int, Any, int]:
        """Add a chunk; go to its end, or stop if the file ends inside it."""
        size = self._source.size()
        self._shown = chunk
        end = self._start + chunk.end
        key: str | int = "metadata" if chunk.begin == 64 and chunk.header.chunk_type == METADATA else chunk.begin
        status = Status.COMPLETE
        if chunk.end > size:
            problem = self._cut_finding(chunk, size, format_path([KeyStep(key)]))
            status = Status.TRUNCATED if chunk.data_end > size else Status.COMPLETE
            if ctx.collected is None:
                worse = ctx.node.known_status is Status.DAMAGED
                self.result.close_node(ctx.node, cut_status(damaged=worse), problem)
        ctx.emit(Entry(key, chunk.header.type_name, self._start + chunk.begin, end, status=status, finding=problem))
        return (end, self.expect_chunk, 0) if chunk.end <= size else (self._start + size, DONE, 0)

    def _cut_finding(self, chunk: Chunk, size: int, path: str) -> Finding:
        if chunk.data_end <= size:
            lost = "only padding is missing, no record"
        else:
            lost = f"{count_words(chunk.end - size, 'byte')} of it {are(chunk.end - size)} missing"
        return Finding(
            "truncated",
            f"the file ends inside the chunk at {chunk.begin}: {lost}",
            path=path,
            source=self.result.extraction.name,
            offset=self._start + size,
            wanted=chunk.end - chunk.begin,
            got=size - chunk.begin,
        )

    def _go_on(self, ctx: NodeContext, error: ChunkError) -> tuple[int, Any, int]:
        """Skip damage, which becomes a gap; a damaged chunk that proves whole nevertheless is added."""
        begin, size = error.begin, self._source.size()
        outcome, damage = self._behind_the_last(begin)
        if outcome is not None and damage is not None and damage.begin < outcome.pos < begin:
            return self._go_back(ctx, outcome, damage)
        if outcome is None or outcome.healed is not None or outcome.pos <= begin:
            outcome = resume(self._chunks, error)
        if outcome.healed is not None and not self._decodes(outcome.healed):
            outcome = resume(self._chunks, error, heal=False)
        offset = self._start + (error.error.offset if error.error.offset is not None else begin)
        end = max(begin + 1, min(outcome.pos, size))
        reason = error.error.reason
        if outcome.healed is not None:
            reason += "; the chunk's data are sound, and no record is lost"
        problem = Finding(
            "malformed",
            reason + self._unwritten(begin, end),
            path=f"[{begin}]",
            source=self.result.extraction.name,
            offset=offset,
            length=end - begin if outcome.healed is None else None,
        )
        if ctx.collected is None:
            self.result.close_node(ctx.node, Status.DAMAGED, problem)
        if outcome.layout is not None:
            self._chunks.add_grid(begin if outcome.healed is not None else outcome.pos, outcome.layout)
        if outcome.healed is not None:
            return self._show(ctx, outcome.healed, problem)
        ctx.emit(Entry(begin, "gap", self._start + begin, self._start + end, status=Status.DAMAGED, finding=problem))
        return self._start + end, self.expect_chunk, 0

    def _behind_the_last(self, begin: int) -> tuple[Outcome | None, ChunkError | None]:
        """Return what is wrong with the chunk added last, if it ends at ``begin``, and where to continue after it.

        If no chunk begins at its end, it may be shorter, or longer, than its header says.
        """
        before = self._shown
        damage = first_damage(self._chunks, before) if before is not None and before.end == begin else None
        return (None, None) if damage is None else (resume(self._chunks, damage), damage)

    def _look_back(self, ctx: NodeContext, begin: int) -> tuple[int, Any, int] | None:
        """Go back if the file ends inside a header because bytes of the previous chunk were lost; else None."""
        outcome, damage = self._behind_the_last(begin)
        if outcome is None or damage is None or not damage.begin < outcome.pos < begin:
            return None
        return self._go_back(ctx, outcome, damage)

    def _go_back(self, ctx: NodeContext, outcome: Outcome, damage: ChunkError) -> tuple[int, Any, int]:
        """Continue inside the bytes that the last chunk claims, since some of its own were lost."""
        self._shown = None
        if outcome.layout is not None:
            self._chunks.add_grid(outcome.pos, outcome.layout)
        if ctx.collected is None:
            problem = Finding(
                "malformed",
                damage.error.reason,
                path=f"[{damage.begin}]",
                source=self.result.extraction.name,
                offset=self._start + damage.begin,
                length=outcome.pos - damage.begin,
            )
            self.result.close_node(ctx.node, Status.DAMAGED, problem)
        ctx.jump_back()
        return self._start + outcome.pos, self.expect_chunk, 0

    def _decodes(self, chunk: Chunk) -> bool:
        """Say whether a chunk decodes as its header says, which may be wrong."""
        session = self.result.extraction.session
        try:
            records = open_records(self._source, chunk, budget=session.budget, limits=session.limits)
            return records is None or (records.error is None and records.count == chunk.header.num_records)
        except PASSING:
            raise
        except (PparseError, EOFError):
            return False

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue after a gap in the data."""
        if ctx.node.parent is not None:
            return None
        begin = ctx.pos - self._start
        beyond = error.offset if error.offset is not None else ctx.pos
        resume_at = self._source.gap_end(beyond - self._start)
        if resume_at is None or begin >= self._source.size():  # a gap up to the end: nothing follows
            return None
        return self._go_on(ctx, ChunkError(InvalidArgumentError(error.reason, offset=begin), begin, resume_at))

    def cut(self, ctx: NodeContext) -> None:
        """Handle a file that ends inside a chunk's header."""
        begin, size = ctx.pos - self._start, self._source.size()
        finding = Finding(
            "truncated",
            f"the file ends inside the header of the chunk at {begin}",
            path=ctx.node.path,
            source=self.result.extraction.name,
            offset=self._start + size,
            wanted=ctx.need,
            got=size - begin,
        )
        worse = ctx.node.known_status is Status.DAMAGED
        self.result.close_node(ctx.node, cut_status(damaged=worse), finding, end=self._start + size)
