"""What one parser made of one extraction: the root node, the findings, and the services nodes need."""

from __future__ import annotations

import weakref

from pparse.errors import ClosedError, PparseError
from pparse.findings import Finding, FindingList, Severity, Status
from pparse.index import ChildIndex, KeyTable
from pparse.locking import guard
from pparse.node import Node
from pparse.parser import NodeContext, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.errors import LimitError
    from pparse.extraction import Extraction
    from pparse.node import Entry, Key
    from pparse.parser import Parser
    from pparse.retention import Retention
    from pparse.visit import Visit

# Entries fetched at a time while iterating: as many as lie between two checkpoints.
GROUP: Final = 64


class Result:
    """The tree that ``parser`` makes of ``extraction``; several parsers may have results on the same extraction."""

    def __init__(self, extraction: Extraction, parser_class: type[Parser], findings: FindingList | None = None) -> None:
        self.extraction = extraction
        self.lock = extraction.session.lock
        # A document inside a compressed stream shares those of the stream.
        self.findings = FindingList(extraction.session.limits.findings) if findings is None else findings
        self.retention: Retention = extraction.session.new_retention()
        self.parser = parser_class(self)
        self._root: Node | None = None

    @property
    def format(self) -> str:
        """Name of the parser."""
        return self.parser.name

    @property
    def root(self) -> Node:
        """The root node; the document holds it."""
        root = self._root
        if root is None:
            with self.lock:
                if self._root is None:
                    self._root = Node(self, None, 0, self.parser.root_entry())
                root = self._root
        return root

    @property
    def status(self) -> Status:
        """Status of the root: the first level is parsed to know it."""
        return self.root.status

    def check_open(self) -> None:
        """Raise `ClosedError` if the document was closed."""
        if self.extraction.session.closed:
            raise ClosedError("the document is closed", source=self.extraction.name)

    # -- indexes -----------------------------------------------------------------------------------------------------

    def new_index(self, node: Node) -> ChildIndex:
        """Return an empty index for ``node``. Raises `LimitError` below the depth limit."""
        session = self.extraction.session
        session.limits.check("depth", node.depth + 1, "the depth of the tree", offset=node.start)
        ref = weakref.ref(node)

        def evict() -> None:
            victim = ref()
            if victim is not None:
                victim.evict()

        return ChildIndex(session.budget, evict)

    def extend_index(
        self, node: Node, index: ChildIndex, *, wanted_count: int | None = None, wanted_key: Key = None, nth: int = 0
    ) -> int | None:
        """Parse on until ``wanted_count`` children are known, or the n-th with ``wanted_key``; its ordinal, if met."""
        ctx = index.context
        if ctx is None:
            try:
                if self.parser.fill(node, index):
                    index.finish()
                    return None if wanted_key is None else self._find_by_reading(node, index, wanted_key, nth)
            except BaseException:
                node.unload()
                raise
            ctx = NodeContext(node, index)
            try:
                ctx.pos, ctx.state, ctx.need = self.parser.begin(ctx)
            except PparseError:
                node.unload()  # what was emitted until then is half of it
                raise
            index.context = ctx
        ctx.wanted_count = wanted_count
        ctx.wanted_key, ctx.wanted_occurrence = wanted_key, nth
        ctx.answer = None
        try:
            run(ctx)
        except BaseException:
            # A state may have failed half-way: whoever asks again begins anew.
            node.unload()
            raise
        return ctx.answer

    def close_node(
        self, node: Node, status: Status, finding: Finding | None, end: int | None = None, *, told: bool = False
    ) -> None:
        """Give ``node`` its status, a finding, and its end; for parsers. ``told``: another finding says so."""
        node._status = status
        if end is not None and node._end is None:
            node._end = end
        if finding is not None:
            _, parts, note = node._extra or (None, None, None)
            node._extra = (finding, parts, note)
            if not told:
                self.findings.add(finding)

    def note_limit(self, node: Node, error: LimitError) -> None:
        """Mark ``node`` as UNSUPPORTED: a limit of ours refuses it."""
        finding = Finding(
            "limit",
            error.reason,
            path=node.path,
            source=self.extraction.name,
            offset=node.start,
            wanted=error.wanted,
            got=error.got,
        )
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
        """Return up to `GROUP` entries from child ``first`` on, none behind the last; for who holds the lock."""
        before = node.index
        known = before.count if before is not None else -1
        index = node.index_to(first + 1)
        count = min(GROUP, index.count - first)
        return self._group(node, index, first, count, is_fresh=index.count != known) if count > 0 else []

    def entry(self, node: Node, ordinal: int) -> Entry:
        """Return the entry of one indexed child."""
        index = node.index_to(ordinal + 1)
        first = ordinal - ordinal % GROUP
        group = self._group(node, index, first, min(GROUP, index.count - first))
        if ordinal - first >= len(group):  # a parser may give fewer at a time
            return self._group(node, index, ordinal, 1)[0]
        return group[ordinal - first]

    def _group(self, node: Node, index: ChildIndex, first: int, count: int, *, is_fresh: bool = False) -> list[Entry]:
        """Return entries. ``is_fresh``: the source was compared with what it was at open just now."""
        cached = index.group
        if cached is not None and cached[0] <= first and first + count <= cached[0] + len(cached[1]):
            skip = first - cached[0]
            return cached[1][skip : skip + count]
        self.check_open()
        if not is_fresh:
            self.extraction.data.check_unchanged()
        index.touch()
        group = self.parser.entries(node, index, first, count)
        index.group = (first, group)
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
        nth = table.nth(key, occurrence)
        if nth is None:
            return None
        if _same_key(self.entry(node, nth).key, key):
            return nth
        # Two keys share a hash, which hardly ever happens: look at each.
        for ordinal in table.candidates(key):
            if _same_key(self.entry(node, ordinal).key, key):
                occurrence -= 1
                if not occurrence:
                    return ordinal
        return None

    def _find_by_reading(self, node: Node, index: ChildIndex, key: Key, occurrence: int) -> int | None:
        first = 0
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

    def key_table(self, node: Node) -> KeyTable:
        """Return the table of the keys of ``node``, made on the first call."""
        index = node.index_to(None)
        if index.table is None:
            with self.extraction.session.budget.charge(28 * index.count, "a table of keys in the making"):
                table = KeyTable(self.parser.key_hashes(node))
            index.set_table(table)
        assert index.table is not None  # noqa: S101 -- set just above
        return index.table

    def occurrence(self, node: Node, ordinal: int, key: Key) -> int:
        """Return which one of the children with ``key`` the child ``ordinal`` is, counted from 1."""
        index = node.index_to(ordinal + 1)
        if ordinal < GROUP:
            group = self._group(node, index, 0, min(GROUP, index.count))
            if len(group) >= ordinal:
                return 1 + sum(1 for entry in group[:ordinal] if _same_key(entry.key, key))
        # By hash alone: equal keys have it, others do not but by a chance of one in 2^64.
        return 1 + self.key_table(node).before(key, ordinal)

    def suggest(self, node: Node, key: Key) -> tuple[str, ...]:
        """Return up to three keys of ``node`` that look like ``key``."""
        if not isinstance(key, str):
            return ()
        names = [name for name, _ in zip(node.keys(), range(2_000), strict=False) if isinstance(name, str)]
        return near_misses(key, names)

    # -- everything --------------------------------------------------------------------------------------------------

    def walk(self, *, detail: bool = True) -> Iterator[Visit]:
        """Yield every node, depth first; see `Parser.walk`."""
        self.check_open()
        return self.parser.walk(self.root, detail=detail)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything within the budget and yield every finding as it is made."""
        self.check_open()
        self.findings.restart()
        shown = 0
        for visit in self.parser.check(strict=strict):
            noted = self.parser.notes_findings
            if not noted and visit.status not in (None, Status.COMPLETE) and visit.finding is not None:
                finding = visit.finding
                finding.path = finding.path or visit.path
                finding.source = finding.source or self.extraction.name
                self.findings.add(finding)
            while shown < len(self.findings) - self.findings.omitted:
                yield self.findings[shown]
                shown += 1
        while shown < len(self.findings) - self.findings.omitted:
            yield self.findings[shown]
            shown += 1
        if self.findings.omitted:
            yield Finding(
                "findings-omitted",
                f"{self.findings.omitted} more findings were made and not kept",
                severity=Severity.ERROR if self.findings.omitted_errors else Severity.WARNING,
                source=self.extraction.name,
                wanted=len(self.findings),
                got=len(self.findings) - self.findings.omitted,
            )

    def __repr__(self) -> str:
        return f"<Result of {self.parser.name} on {self.extraction.name!r}>"


# `entry`, `find` and `key_table` are services to nodes and viewers, who have taken the lock: a door would cost a tenth
# of a look-up.
guard(Result, ("occurrence", "suggest", "walk"))


def _same_key(found: object, wanted: object) -> bool:
    return found == wanted and type(found) is type(wanted)


def near_misses(name: str, names: list[str]) -> tuple[str, ...]:
    """Return up to three of ``names`` that look like ``name``."""
    import difflib

    close = difflib.get_close_matches(name, names, 3, 0.6)
    if not close:
        close = [candidate for candidate in names if name and name.lower() in candidate.lower()][:3]
    return tuple(close)
