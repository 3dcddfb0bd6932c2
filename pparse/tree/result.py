"""`Result`: what one parser made of one extraction: the root node, the findings, and what nodes need."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice

from pparse.errors import ClosedError, EngineError, LimitError, PparseError
from pparse.findings import Finding, FindingList, HasStatus, Severity, Status, clipped
from pparse.locking import guard
from pparse.tree.context import NodeContext
from pparse.tree.engine import GROUP, run
from pparse.tree.index import EACH, MAKING, SLICE, KeyTable, key_hash, repeated_hashes
from pparse.tree.parser import Container, Listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.tree.entry import Entry, Key
    from pparse.tree.host import Host
    from pparse.tree.index import ChildIndex, Retention
    from pparse.tree.node import Node, Step
    from pparse.tree.parser import Parser
    from pparse.tree.visit import Visit

# Of children that are read to find their end, the indexes of those of so many bytes are kept.
WORTH_KEEPING: Final = 4 << 10
# If a table has no room, up to this many children are read again at each lookup, rather than all of them indexed.
BY_READING: Final = 10_000
# The part of the budget left free while keys are collected, for the blocks in which they are read.
SCANNED: Final = 4
# Names are similar if this share of them matches; names longer than the maximum are not compared.
_NEAR: Final = 0.6
LONG_NAME: Final = 200


# How many kinds are kept with their shapes: a schema may name any number.
_MOST_KINDS: Final = 4096


class _Shapes(dict[str, str]):
    """What a parser says of kinds, kept: it is asked a dozen times for each node of a walk."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def __missing__(self, kind: str) -> str:
        if len(self) >= _MOST_KINDS:
            self.clear()
        found = self[kind] = self._parser.shape(kind)
        return found


class Result(HasStatus):
    """The tree that one parser makes of one extraction. An extraction may have results of several parsers."""

    def __init__(self, extraction: Host, parser_class: type[Parser], findings: FindingList | None = None) -> None:
        self.extraction = extraction
        """What was parsed."""
        self.lock = extraction.session.lock
        """Lock of the session."""
        # A document inside a compressed stream shares the findings of the stream.
        self.findings = FindingList(extraction.session.limits.findings) if findings is None else findings
        """What was found wrong so far."""
        self.retention: Retention = extraction.session.new_retention()
        """Decides which nodes stay alive."""
        self.parser = parser_class(self)
        """The parser."""
        self.shapes: dict[str, str] = _Shapes(self.parser)
        """The shapes of nodes by their kinds."""
        self._root: Node | None = None
        self._reading: set[int] = set()  # indexes being extended, which callbacks must not use
        self._last_steps: tuple[int, list[int], list[Step]] = (-1, [], [])  # revision, ordinals, steps

    @property
    def format(self) -> str:
        """Name of the parser."""
        return self.parser.name

    @property
    def listing(self) -> Listing:
        """What commands ask: the parser, if it is a `Listing`, else the children of the root."""
        parser = self.parser
        return parser if isinstance(parser, Listing) else Listing(self)

    @property
    def container(self) -> Container | None:
        """The parser, if it is a `Container`: a format that holds other documents."""
        parser = self.parser
        return parser if isinstance(parser, Container) else None

    @property
    def root(self) -> Node:
        """The root node; kept as long as the document."""
        root = self._root
        if root is None:
            with self.lock:
                if self._root is None:
                    from pparse.tree.node import Node  # a listing may do without any

                    self._root = Node(self, None, 0, self.parser.root_entry())
                root = self._root
        return root

    @property
    def status(self) -> Status:
        """Status of the root; parses the first level to find out."""
        return self.root.status

    def check_open(self) -> None:
        """Raise `ClosedError` if the document was closed."""
        if self.extraction.session.closed:
            raise ClosedError("the document is closed", source=self.extraction.name)

    # -- indexes -----------------------------------------------------------------------------------------------------

    def extend_index(
        self,
        node: Node,
        index: ChildIndex,
        *,
        wanted_count: int | None = None,
        wanted_key: Key = None,
        nth: int = 0,
        fresh: list[Entry] | None = None,
    ) -> int | None:
        """Parse until ``wanted_count`` children, or the n-th one with ``wanted_key``, are known; return its number.

        ``fresh`` receives the entries of the children on the way, the first 256 of them.
        """
        if id(index) in self._reading:
            reason = f"the {node.kind} is being read: a callback cannot ask for its children now"
            raise PparseError(reason, source=self.extraction.name)
        before = self._reading
        self._reading = before | {id(index)}
        try:
            ctx = self._context(node, index)
            if ctx is None:
                return None if wanted_key is None else self._find_by_reading(node, index, wanted_key, nth)
            ctx.wanted_count, ctx.wanted_key, ctx.wanted_occurrence = wanted_count, wanted_key, nth
            ctx.fresh, ctx.answer, ctx.resumable = fresh, None, False
            try:
                run(ctx, self.parser)
            except BaseException:
                # A state may have failed half-way: the next request starts over.
                if not ctx.resumable:
                    node.unload()
                raise
            finally:
                ctx.fresh = None
            if index.complete:
                self._keep_for_parent(node, index)
            return ctx.answer
        finally:
            self._reading = before

    def _context(self, node: Node, index: ChildIndex) -> NodeContext | None:
        """Return the parse of ``node`` in progress, or begin one; None if the parser indexed it without states."""
        ctx: NodeContext | None = index.context
        if ctx is not None:
            return ctx
        try:
            if self.parser.fill(node, index):
                index.finish()
                self.extraction.session.indexes.add(node, index)
                return None
            ctx = NodeContext(node, index)
            ctx.pos, ctx.state, ctx.need = self.parser.begin(ctx)
        except BaseException:
            node.unload()  # drop the incomplete index
            raise
        index.context = ctx
        return ctx

    # -- children whose end their parents must know --------------------------------------------------------------------

    def child_context(self, ctx: NodeContext) -> NodeContext | None:
        """Return the parse of the child behind which ``ctx`` goes on; None once all is known of it.

        The entry in ``ctx.pending`` then has the child's end and status.
        """
        ordinal, entry = ctx.pending or (0, None)
        assert entry is not None  # noqa: S101 -- the engine asks for a pending child only
        known = ctx.index.children.get(ordinal) if entry.end is None else None
        if known is not None and known[1] is not None:
            entry.end, entry.status, entry.finding = known[1]
            ctx.pending_known = True
        if ctx.pending_known:
            return None
        kid = ctx.node._living(ordinal) or ctx.node._make(ordinal, entry)  # held by somebody, or passing
        index = kid.index
        if kid.end is None and index is None:
            index = kid.begin_index()
        done = kid.end is not None or index is None or index.complete
        inner = None if done or index is None else self._context(kid, index)
        if inner is None:
            self._learn(ctx, kid, sure=True)
            return None
        inner.data, inner.end = ctx.data, ctx.end
        inner.wanted_count = inner.wanted_key = inner.answer = None  # to its end, whatever was asked of it before
        inner.wanted_occurrence = 0
        if ctx.node.parent is None and not inner.emitted and self.parser.rereads(kid.kind):
            inner.fresh = []  # of a table of the document, the first entries are asked for next
        self._reading = self._reading | {id(index)}
        return inner

    def learn_child(self, ctx: NodeContext, inner: NodeContext) -> None:
        """Note for ``ctx`` what its pending child turned out to be; keep the child's index until it is asked for."""
        kid, index = inner.node, inner.index
        self._reading = self._reading - {id(index)}
        if inner.fresh:
            index.group = kept = (0, inner.fresh)
            self.extraction.session.indexes.keep_group(index, kept)
        inner.fresh = None
        self._learn(ctx, kid, sure=True)
        self._keep_for_parent(kid, index)

    def _keep_for_parent(self, node: Node, index: ChildIndex) -> None:
        """Keep the complete index of ``node`` with that of its parent: of a large node, and of a table of the root."""
        above = node.parent.index if node.parent is not None else None
        if above is not None and above.learns:
            is_table = node.depth == 1 and node.ordinal < GROUP
            if is_table or (node.end or 0) - node.start >= WORTH_KEEPING:
                above.keep_child(node.ordinal, index, (node.end, node.known_status, node.finding))
                return
            above.children.pop(node.ordinal, None)
        if node.parent is None or node.parent._living(node.ordinal) is node:
            self.extraction.session.indexes.add(node, index)

    def _learn(self, ctx: NodeContext, kid: Node, *, sure: bool) -> None:
        if ctx.pending is not None:
            entry = ctx.pending[1]
            entry.end, entry.status, entry.finding = kid.end, kid.known_status, kid.finding
            ctx.pending_known = ctx.pending_known or sure

    def close_node(
        self, node: Node, status: Status, finding: Finding | None, end: int | None = None, *, told: bool = False
    ) -> None:
        """Set status, finding and end of ``node``; for parsers. ``told``: the finding is already reported elsewhere.

        A node that is damaged stays so if it turns out to end early, too.
        """
        if status is not Status.TRUNCATED or node.known_status is not Status.DAMAGED:
            node.known_status = status
        if end is not None and node.end is None:
            node.end = end
        if finding is not None:
            _, parts, note = node._extra or (None, None, None)
            node._extra = (finding, parts, note)
            if not told:
                self.findings.add(finding)
        above = node.parent.index if node.parent is not None else None
        waiting: NodeContext | None = above.context if above is not None else None
        if waiting is not None and waiting.pending is not None and waiting.pending[0] == node.ordinal:
            self._learn(waiting, node, sure=node.end is not None)  # the node may be gone before its parent is read on

    def note_limit(self, node: Node, error: LimitError) -> None:
        """Mark ``node`` as UNSUPPORTED because it exceeds a limit."""
        told = {"wanted": error.wanted, "got": error.got, "option": error.option}
        path = self.parser.path_of(node)
        finding = self.parser.finding_at("limit", error.reason, path, node.start, **told)
        self.close_node(node, Status.UNSUPPORTED, finding)

    def entries_from(self, node: Node, first: int) -> Iterator[tuple[int, Entry]]:
        """Yield ``(ordinal, entry)`` from child ``first`` on, indexing only as far as the iteration goes."""
        while True:
            with self.lock:
                group = self.entries_at(node, first)
            if not group:
                return
            for entry in group:
                yield first, entry
                first += 1

    def entries_at(self, node: Node, first: int) -> list[Entry]:
        """Return up to `GROUP` entries from child ``first`` on. The caller holds the lock."""
        before = node.index
        known = before.count if before is not None else 0
        # Entries of children that are being indexed need not be read again.
        fresh: list[Entry] | None = [] if first == known and self.parser.rereads(node.kind) else None
        index = node.index_to(first + 1, fresh)
        if fresh and node.index is index:
            index.group = kept = (first, fresh)
            self.extraction.session.indexes.keep_group(index, kept)
        count = min(GROUP, index.count - first)
        return self._group(node, index, first, count, is_fresh=index.count != known) if count > 0 else []

    def entry(self, node: Node, ordinal: int) -> Entry:
        """Return the entry of one indexed child."""
        index = node.index_to(ordinal + 1)
        if index.learns and index.stride == 1:  # its neighbours may be long to read
            return self.lone_entry(node, ordinal)
        first = ordinal - ordinal % GROUP
        group = self._group(node, index, first, min(GROUP, index.count - first))
        if ordinal - first >= len(group):  # the parser may return fewer at a time
            return self._group(node, index, ordinal, 1)[0]
        return group[ordinal - first]

    def lone_entry(self, node: Node, ordinal: int) -> Entry:
        """Return the entry of one indexed child without reading its neighbours, for children with long texts."""
        return self._read_group(node, node.index_to(ordinal + 1), ordinal, 1)[0]

    def _group(self, node: Node, index: ChildIndex, first: int, count: int, *, is_fresh: bool = False) -> list[Entry]:
        """Return entries. ``is_fresh``: the source was just checked for changes."""
        behind = index.count - len(index.tail or ())
        if first < behind:  # the tail is a group of its own
            count = min(count, behind - first)
        cached = index.group
        if cached is not None and cached[0] <= first and first + count <= cached[0] + len(cached[1]):
            skip = first - cached[0]
            return cached[1][skip : skip + count]
        self.check_open()
        if not is_fresh:
            self.extraction.data.check_unchanged()
        index.touch()
        group = self._read_group(node, index, first, count)
        index.group = kept = (first, group)
        self.extraction.session.indexes.keep_group(index, kept)
        return group

    def _read_group(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Return at least one entry, as the parser makes it."""
        tail = index.tail or []
        behind = index.count - len(tail)
        if first >= behind and tail:
            return tail[first - behind : first - behind + count]
        before = self._reading
        try:
            group = self.parser.entries(node, index, first, min(count, behind - first))
        finally:
            self._reading = before  # children that were being read with it are not any more
        if not group:
            name, count = self.parser.name, index.count
            reason = f"parser {name} indexed {count} children, but returns none from number {first} on"
            raise EngineError(reason, path=node.path, state="entries")
        return group

    # -- keys --------------------------------------------------------------------------------------------------------

    def find(self, node: Node, key: Key, occurrence: int = 1) -> int | None:
        """Return the ordinal of the n-th child of ``node`` with ``key``; None if there is none."""
        index = node.index_to(0)
        key = self.parser.key_meant(node, key)
        index.lookups += 1
        if index.table is None and (index.lookups == 1 or (index.complete and index.count <= GROUP)):
            return self._find_by_reading(node, index, key, occurrence)
        table = self.key_table(node)
        if table is None:
            return self._find_by_reading(node, index, key, occurrence)
        nth = table.nth(key, occurrence)
        if nth is None:
            return None
        if _same_key(self.entry(node, nth).key, key):
            return nth
        # Two keys share a hash, which is very rare: compare each.
        for ordinal in table.candidates(key):
            if _same_key(self.entry(node, ordinal).key, key):
                occurrence -= 1
                if not occurrence:
                    return ordinal
        return None

    def _find_by_reading(self, node: Node, index: ChildIndex, key: Key, occurrence: int) -> int | None:
        first = 0
        if index.complete and index.count > GROUP:
            return self._find_by_hashes(node, key, occurrence)
        while first < index.count:
            for entry in self._group(node, index, first, min(GROUP, index.count - first)):
                if _same_key(entry.key, key):
                    occurrence -= 1
                    if not occurrence:
                        return first
                first += 1
        if index.complete:
            return None
        return self.extend_index(node, index, wanted_key=key, nth=occurrence)

    def _find_by_hashes(self, node: Node, key: Key, occurrence: int) -> int | None:
        """Do it without entries, which take longer to make than the hashes of their keys."""
        wanted = key_hash(key)
        for ordinal, found in enumerate(self.parser.key_hashes(node)):
            if found == wanted and _same_key(self.entry(node, ordinal).key, key):
                occurrence -= 1
                if not occurrence:
                    return ordinal
        return None

    def key_table(self, node: Node, count: int | None = None) -> KeyTable | None:
        """Return a table of at least the first ``count`` keys of ``node``; None if there is no room."""
        index = node.index_to(count)
        count = index.count if count is None else count
        table = index.table or KeyTable()
        missing = index.count - table.covered
        if table.covered >= count:
            return table
        budget = self.extraction.session.budget
        making = EACH * missing + MAKING * min(SLICE, missing)
        # The index must not be evicted while the table is made from it.
        index.touch()
        if not budget.fits(making + index.memory + budget.limit // SCANNED):
            return None
        try:
            with budget.charge(making, "building a table of keys"):
                table.extend(self.parser.key_hashes(node, table.covered, index.count))
            index.table = table
            index.account()
        except LimitError:  # no room, and the table is optional
            index.table = None
            return None
        return table

    def steps_along(self, chain: list[Node]) -> list[Step]:
        """Return the steps to nodes, each of which is a child of the one before, the first of the root.

        Those that lead to the last path, too, are taken from there: which of its namesakes a child is may take reading,
        and where a thousand nested nodes end together, each is asked for its path.
        """
        revision = self.extraction.data.revision
        ordinals = [node.ordinal for node in chain]
        then, known, steps = self._last_steps
        shared = 0
        if then == revision:
            for one, other in zip(known, ordinals, strict=False):
                if one != other:
                    break
                shared += 1
        steps = steps[:shared]
        for node in chain[shared:]:
            steps.append(node.result.parser.step_to(node.parent, node.ordinal, node.key))  # type: ignore[arg-type]
        self._last_steps = revision, ordinals, steps
        return list(steps)

    def occurrence(self, node: Node, ordinal: int, key: Key) -> int:
        """Return the position of child ``ordinal`` among the children with ``key``, counted from 1.

        Indexes no children behind this one.
        """
        index = node.index_to(ordinal + 1)
        if index.complete and index.count <= GROUP and key_hash(key) not in self.repeated_keys(node):
            return 1
        if ordinal < GROUP:
            group = self._group(node, index, 0, min(GROUP, index.count))
            if len(group) >= ordinal:
                return 1 + sum(1 for entry in group[:ordinal] if _same_key(entry.key, key))
        # The hash is enough: two different keys share one with a chance of 1 in 2^64.
        table = self.key_table(node, ordinal + 1)
        if table is not None:
            return 1 + table.before(key, ordinal)
        if not index.complete and ordinal > BY_READING and id(index) not in self._reading:
            index = node.index_to(None)
        if index.complete and key_hash(key) not in self.repeated_keys(node):
            return 1
        wanted = key_hash(key)
        before = zip(range(ordinal), self.parser.key_hashes(node, 0, ordinal), strict=False)
        return 1 + sum(1 for _, number in before if number == wanted)

    def same_keys(self, node: Node) -> set[int]:
        """Return the ordinals of all children of ``node`` whose key may occur more than once."""
        table = self.key_table(node)
        if table is not None:
            return {ordinal for group in table.repeated() for ordinal in group}
        repeated = self.repeated_keys(node)
        hashes = enumerate(self.parser.key_hashes(node)) if repeated else ()
        return {ordinal for ordinal, number in hashes if number in repeated}

    def repeated_keys(self, node: Node) -> frozenset[int]:
        """Return the hashes of keys of ``node`` that occur more than once, in as many passes as the budget requires."""
        index = node.index_to(None)
        if index.repeated is None and index.count <= GROUP:
            numbers = Counter(key_hash(entry.key) for entry in self.entries_at(node, 0))
            index.repeated = frozenset(number for number, count in numbers.items() if count > 1)
        elif index.repeated is None:
            budget = self.extraction.session.budget
            parts = 1
            rest = index.memory + budget.limit // SCANNED
            while parts < 1024 and not budget.fits(16 * index.count // parts + rest):
                parts *= 2
            found: set[int] = set()
            with budget.charge(16 * index.count // parts, "finding repeated keys"):
                for part in range(parts):
                    found.update(repeated_hashes(self.parser.key_hashes(node), part, parts))
            index.keep_repeated(frozenset(found))
        return index.repeated or frozenset()

    def suggest(self, node: Node, key: Key) -> tuple[str, ...]:
        """Return up to three keys of ``node`` that are similar to ``key``."""
        if not isinstance(key, str):
            return ()
        return near_misses(key, (name for name in islice(node.keys(), 2_000) if isinstance(name, str)))

    # -- everything --------------------------------------------------------------------------------------------------

    def walk(self, *, detail: bool = True) -> Iterator[Visit]:
        """Yield every node, depth first; see `Parser.walk`."""
        self.check_open()
        return self.parser.walk(self.root, detail=detail)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything within the budget and yield each finding as it is made."""
        self.check_open()
        self.findings.restart()
        shown = 0
        for visit in chain(self.parser.check(strict=strict), (None,)):  # once more behind the last one
            finding = None if visit is None or self.parser.notes_findings else visit.finding
            if visit is not None and finding is not None:
                finding.path = finding.path or clipped(visit.path)
                finding.source = finding.source or self.extraction.name
                self.findings.add(finding)
            while shown < len(self.findings) - self.findings.omitted:
                yield self.findings[shown]
                shown += 1
        if self.findings.omitted:
            yield Finding(
                "findings-omitted",
                f"{self.findings.omitted} more findings were counted, but not kept",
                severity=Severity.ERROR if self.findings.omitted_errors else Severity.WARNING,
                source=self.extraction.name,
                wanted=len(self.findings),
                got=len(self.findings) - self.findings.omitted,
            )

    def __repr__(self) -> str:
        return f"<Result of {self.parser.name} on {self.extraction.name!r}>"


# Nodes and viewers call `entry`, `find` and `key_table` with the lock held: a door would cost a tenth of a look-up.
guard(Result, ("occurrence", "suggest", "walk"))


def _same_key(found: object, wanted: object) -> bool:
    return found == wanted and type(found) is type(wanted)


def near_misses(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of ``names`` that are similar to ``name`` or contain it, keeping no others in memory.

    Very long names, and those whose length rules out similarity, are not compared, to save time.
    """
    from difflib import SequenceMatcher
    from heapq import nlargest

    matcher: SequenceMatcher[str] | None = None
    holding: list[str] = []
    lower = name.lower()

    def scored() -> Iterator[tuple[float, str]]:
        nonlocal matcher
        for candidate in names:
            if len(candidate) > LONG_NAME:
                continue
            if lower and len(holding) < 3 and lower in candidate.lower():
                holding.append(candidate)
            if 2 * min(len(candidate), len(name)) < _NEAR * (len(candidate) + len(name)):
                continue
            if matcher is None:  # slow to make for very long names, which have no candidates
                matcher = SequenceMatcher(b=name)
            matcher.set_seq1(candidate)
            if matcher.quick_ratio() >= _NEAR and (score := matcher.ratio()) >= _NEAR:
                yield score, candidate

    return tuple(candidate for _, candidate in nlargest(3, scored())) or tuple(holding)
