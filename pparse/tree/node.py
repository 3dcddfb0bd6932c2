"""The tree: nodes, which know the bytes they cover, and load and unload their values.

Rules:

- `Node.value` is a peek and never does I/O; `Node.load` parses; `Node.unload` puts `UNLOADED_VALUE` back.
- A node holds its parent strongly and its children weakly: holding a leaf keeps its ancestors alive, and nothing else.
- A container has an *index* of its children (see `pparse.tree.index`), not a node per child; nodes are made on demand.
- While somebody holds a child, asking for it again returns that same object, even after the parent was unloaded.
"""

from __future__ import annotations

import _weakref as weakref

from pparse.data.range_status import status_of
from pparse.errors import EndOfDataError, LimitError, MalformedError, PathError, PparseError, UnsupportedError, told
from pparse.findings import ENDS_EARLY, UNSURE_NAME, UNSURE_NUMBER, Finding, HasStatus, Status
from pparse.limits import evictor
from pparse.paths import KeyStep, OrdinalStep, format_path
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE
from pparse.tree.index import ChildIndex, key_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from pparse.data.base import Range
    from pparse.tree.entry import Entry, Key
    from pparse.tree.host import Host, Services

    Step = KeyStep | OrdinalStep
    from collections.abc import Sequence


class Node(HasStatus):
    """One piece of a document. Parsers describe nodes, the tree makes them; see the module for the rules."""

    # ~200 bytes with its offsets. `_content` is a scalar's value or a container's index; `_extra` holds what few
    # nodes have: a finding, parts, or a parser's note.
    __slots__ = (
        "__weakref__",
        "_content",
        "_extra",
        "_kids",
        "depth",
        "end",
        "key",
        "kind",
        "known_status",
        "ordinal",
        "parent",
        "result",
        "start",
    )

    def __init__(self, result: Services, parent: Node | None, ordinal: int, entry: Entry) -> None:
        self.result = result
        """The tree it belongs to."""
        self.parent = parent
        """The node above; None at the root."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        """How many ancestors it has."""
        self.ordinal = ordinal
        """Number among its parent's children, from 0."""
        self.key = entry.key
        """Its key; None in a list."""
        self.kind = entry.kind
        """The format's own word for the kind of value."""
        self.start = entry.start
        """Offset of the first byte."""
        self.end = entry.end
        """Offset after the last byte; None while unknown (`load` finds it)."""
        self._content: Any = entry.value
        self.known_status = entry.status
        """The status so far, without any I/O; None if only loading can tell."""
        self._kids: dict[int, weakref.ref[Node]] | None = None
        self._extra: tuple[Finding | None, tuple[Range, ...] | None, Any] | None = (
            (entry.finding, entry.parts, entry.note)
            if entry.finding is not None or entry.parts is not None or entry.note is not None
            else None
        )

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def note(self) -> Any:
        """What the parser noted in the entry of this node; for parsers."""
        return self._extra[2] if self._extra is not None else None

    @property
    def extraction(self) -> Host:
        """The extraction that holds its bytes."""
        return self.result.extraction

    @property
    def shape(self) -> str:
        """``"map"``, ``"list"`` or ``"scalar"``."""
        return self.result.shapes[self.kind]

    @property
    def parts(self) -> tuple[Range, ...]:
        """The stretches of bytes this node covers; several if a value is spread over the file."""
        if self._extra is not None and self._extra[1] is not None:
            return self._extra[1]
        end = self.end
        if end is None:
            end = self.extraction.find_end()
        return (self.extraction.data.range(self.start, max(self.start, end)),)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """``(offset, length)`` of each stretch in the extraction's data (the compressed bytes, if decompressed)."""
        data = self.extraction.data
        if self._extra is None or self._extra[1] is None or all(part.data is data for part in self._extra[1]):
            return tuple((part.start, len(part)) for part in self.parts)
        found = [span for part in self.parts for span in part.data.locate(part.start, len(part))]
        if all(source is data for source, _, _ in found):
            return tuple((offset, length) for _, offset, length in found)
        return ((self.start, (self.end or self.start) - self.start),)

    @property
    def range(self) -> Range:
        """The one stretch of bytes this node covers. Raises ValueError if there are several."""
        parts = self.parts
        if len(parts) != 1:
            raise ValueError(f"{self.path or 'the root'} covers {len(parts)} stretches; use parts")
        return parts[0]

    @property
    def steps(self) -> list[Step]:
        """The steps from the root to this node."""
        chain: list[Node] = []
        node = self
        while node.parent is not None:
            chain.append(node)
            node = node.parent
        chain.reverse()
        return self.result.steps_along(chain)

    @property
    def _name(self) -> str:
        """What messages call it."""
        return self.path or "the root"

    @property
    def path(self) -> str:
        """The path from the root, as `pparse.paths` writes it; empty for the root."""
        return format_path(self.steps)

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def value(self) -> Any:
        """What is in memory: a scalar, a view of a container, or `UNLOADED_VALUE`. Never does I/O."""
        content = self._content  # read once: the budget may evict an index at any time
        if content is UNLOADED_VALUE or self.shape == SCALAR:
            return content
        index: ChildIndex = content
        return self._view() if index.complete else UNLOADED_VALUE

    @property
    def loaded(self) -> bool:
        """Whether `value` is in memory."""
        return self.value is not UNLOADED_VALUE

    @property
    def status(self) -> Status:
        """State of the node as far as is known; loads a container whose extent is unknown."""
        if self.known_status is None:
            with self.result.lock:
                try:
                    if self.known_status is None:
                        self.result.parser.resolve(self)
                except PparseError:
                    if self.known_status is None:  # it says nothing about the node: the source failed, or is closed
                        raise
        status = self.known_status or Status.COMPLETE
        if status is not Status.COMPLETE or not self.extraction.data.flawed:
            return status
        if self.end == self.start > self.extraction.start:  # of an empty value, what is before it says that it is
            return status_of((self.extraction.data.range(self.start - 1, self.start),))
        return status_of(self.parts)

    @property
    def finding(self) -> Finding | None:
        """What is wrong with this node itself, if anything."""
        return self._extra[0] if self._extra is not None else None

    @property
    def unsure_number(self) -> Finding | None:
        """Its `finding`, if that only says that its number in its list, or its name, is uncertain: it can be read."""
        found = self.finding
        return found if found is not None and found.code in (UNSURE_NUMBER, UNSURE_NAME) else None

    @property
    def findings(self) -> list[Finding]:
        """What is known to be wrong with this node or below it; only what was parsed counts."""
        path = self.path
        end = 1 << 63 if self.end is None else self.end
        found = [finding for finding in self.result.findings if finding.is_within(path, self.start, end)]
        if self.finding is not None and self.finding not in found:
            found.insert(0, self.finding)
        return found

    def load(self) -> Any:
        """Parse the node and return its value; a loaded value is returned at once.

        A cut or damaged container loads with the children that are whole; `status` tells. A scalar that is not whole
        raises `EndOfDataError` or `MalformedError`; one above a limit raises `LimitError`.
        """
        self.result.check_open()
        content = self._content
        if content is not UNLOADED_VALUE and self.shape == SCALAR:
            return content
        with self.result.lock:
            if self.shape != SCALAR:
                self.index_to(None).touch()
                self.result.retention.touch(self)
                return self._view()
            content = self._content
            if content is UNLOADED_VALUE:
                self.extraction.resolve()
                self._refuse_if_not_whole()
                self.extraction.data.check_unchanged()
                self._content = content = self.result.parser.load_scalar(self)
                if self.known_status is None:
                    self.known_status = Status.COMPLETE
                self.result.retention.touch(self)
            return content

    def _refuse_if_not_whole(self) -> None:
        status = self.known_status
        if status is None or status is Status.COMPLETE or self.unsure_number:
            return
        finding = self.finding
        reason = finding.reason if finding is not None else f"the node is {status}"
        if status in ENDS_EARLY:
            numbers: Any = {} if finding is None else {"wanted": finding.wanted, "got": finding.got}
            raise EndOfDataError(reason, offset=self.start, path=self.path, source=self.extraction.name, **numbers)
        if status is Status.UNSUPPORTED:
            if finding is not None and finding.code != "limit":
                raise UnsupportedError(reason, path=self.path, offset=self.start)
            known = finding.option if finding is not None else ""
            option = known or self.result.parser.lifting_option(self)
            raise LimitError(reason, option=option, path=self.path, offset=self.start, told=bool(known))
        fault = finding.fault if finding is not None else None
        raise MalformedError(reason, offset=self.start, path=self.path, source=self.extraction.name, fault=fault)

    def unload(self) -> None:
        """Drop value and index, and put the placeholder back. Living children are unaffected.

        The root drops the block that was read last, too.
        """
        with self.result.lock:
            self._content = UNLOADED_VALUE
            self.result.retention.forget(self)
            if self.parent is None:
                self.extraction.session.kept_block.drop()

    def evict(self) -> None:
        """Drop a complete index. The budget calls this from any thread, with its own lock held."""
        index = self.index
        if index is not None and index.complete:  # an incomplete one is in use
            self._content = UNLOADED_VALUE
            self.result.retention.note_evicted(self)

    def _view(self) -> NodeMap | NodeList:
        return NodeMap(self) if self.shape == MAP else NodeList(self)

    # -- children ----------------------------------------------------------------------------------------------------

    @property
    def index(self) -> ChildIndex | None:
        """The index of the children so far; None for scalars and unloaded containers."""
        content = self._content
        return content if type(content) is ChildIndex else None

    def index_to(self, count: int | None, fresh: list[Entry] | None = None) -> ChildIndex:
        """Index the first ``count`` children (None: all), or as many as exist, and return the index.

        ``fresh`` receives the entries of those that are indexed now.
        """
        if self.shape == SCALAR:
            raise self._childless("children")
        self.result.check_open()
        with self.result.lock:
            index: ChildIndex | None = self.index
            if index is None or not (index.complete or (count is not None and index.count >= count)):
                finding = self.finding
                if self.known_status is Status.UNSUPPORTED and finding is not None and finding.code == "limit":
                    self._refuse_if_not_whole()
                self.extraction.data.check_unchanged()
                if index is None:
                    index = self.begin_index()
                self.result.extend_index(self, index, wanted_count=count, fresh=fresh)
            return index

    def begin_index(self) -> ChildIndex:
        """Return the index of the children: a new one, or what is kept of an earlier reading.

        Raises `LimitError` if the node is too deep.
        """
        above = self.parent.index if self.parent is not None else None
        known = above.children.get(self.ordinal) if above is not None and above.learns else None
        if known is not None and known[1] is not None:
            self._content = known[0]
            return known[0]
        session = self.extraction.session
        session.limits.check("depth", self.depth + 1, "the depth of the tree", offset=self.start)
        self._content = index = ChildIndex(session.budget, evictor(self, Node.evict))
        if above is not None and above.learns and self.end is None:
            above.children[self.ordinal] = (index, None)
        return index

    def _childless(self, wanted: str) -> TypeError:
        """Return the error for a node without children; one that is not whole may lack them: then raise the reason."""
        self._refuse_if_not_whole()
        return TypeError(f"{self._name} is of kind {self.kind}, which has no {wanted}")

    def child(self, ordinal: int) -> Node:
        """Return child number ``ordinal`` (in file order from 0, or from -1 backwards).

        Raises `PathError` that is also an IndexError.
        """
        with self.result.lock:
            if ordinal < 0:
                ordinal += len(self)
            kid = self._living(ordinal)
            if kid is not None:
                self.result.check_open()
                self.result.retention.touch(kid)
                return kid
            index = self.index_to(ordinal + 1)
            if not 0 <= ordinal < index.count:
                wanted = ordinal if ordinal >= 0 else ordinal - index.count
                reason = f"{self._name} has {index.count} children, no child {wanted}"
                raise ChildIndexError(reason, path=self._name)
            return self._adopt(ordinal, self.result.entry(self, ordinal))

    def _living(self, ordinal: int) -> Node | None:
        ref = self._kids.get(ordinal) if self._kids is not None else None
        return ref() if ref is not None else None

    def _adopt(self, ordinal: int, entry: Entry) -> Node:
        if self._kids is None:
            self._kids = {}
        elif (kid := self._living(ordinal)) is not None:
            return kid
        kid = self._make(ordinal, entry)
        if len(self._kids) >= 64 and not len(self._kids) & (len(self._kids) - 1):
            # Purging at each doubling bounds the table by the living children, without a callback per child.
            self._kids = {number: ref for number, ref in self._kids.items() if ref() is not None}
        self._kids[ordinal] = weakref.ref(kid)
        if (retention := self.result.retention).limit:
            retention.touch(kid)
        return kid

    def _make(self, ordinal: int, entry: Entry) -> Node:
        """Return a new node for a child, with what was learned of it while this node was read."""
        kid = Node(self.result, self, ordinal, entry)
        index: ChildIndex | None = self._content if self._content is not UNLOADED_VALUE else None
        known = index.children.get(ordinal) if index is not None and index.children else None
        if known is not None and known[1] is not None:
            kid._content, (kid.end, kid.known_status, finding) = known[0], known[1]
            if finding is not None:
                kid._extra = (finding, entry.parts, entry.note)
            known[0].belong_to(kid)
        return kid

    def living(self) -> list[Node]:
        """Return the children that somebody holds: they must learn what is found out about them."""
        return [kid for ref in list((self._kids or {}).values()) if (kid := ref()) is not None]

    def children(self, first: int = 0) -> Iterator[Node]:
        """Yield every child from ``first`` on, duplicates included, indexing only as far as the iteration goes."""
        lock, result, is_last = self.result.lock, self.result, False
        while not is_last:
            with lock:
                group = result.entries_at(self, first)
                kids = [self._adopt(ordinal, entry) for ordinal, entry in enumerate(group, first)]
                first += len(kids)
                index = self.index
                is_last = not kids or (index is not None and index.complete and index.count == first)
            kids.reverse()
            while kids:
                yield kids.pop()  # keep no reference, so that the child can be collected

    def find(self, key: Key, occurrence: int = 1) -> Node | None:
        """Return the child with ``key`` (the n-th of those with that key), or None. Stops reading once found."""
        self.result.check_open()
        if self.shape != MAP:
            return None
        with self.result.lock:
            ordinal = self.result.find(self, key, occurrence)
            return None if ordinal is None else self.child(ordinal)

    def __getitem__(self, key: Key | slice) -> Any:
        if self.shape == LIST:
            if isinstance(key, slice):
                return [self.child(number) for number in range(*key.indices(len(self)))]
            if not isinstance(key, int):
                raise TypeError(f"a list is indexed by numbers, not {key!r}")
            return self.child(key)
        if self.shape == SCALAR:
            raise self._childless("children")
        if isinstance(key, slice):
            raise TypeError("a map cannot be sliced")
        kid = self.find(key)
        if kid is None:
            reason = f"{self._name} has no key {key!r}"
            raise ChildKeyError(reason, path=self._name, suggestions=self.result.suggest(self, key))
        return kid

    def keys(self) -> Iterator[Key]:
        """Yield the keys of a map; a duplicate key comes up once for each child."""
        if self.shape != MAP:
            raise self._childless("keys")
        for _, entry in self.result.entries_from(self, 0):
            yield entry.key

    def __contains__(self, key: object) -> bool:
        return self.shape == MAP and self.find(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.index_to(None).count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return self.keys() if self.shape == MAP else self.children()

    # -- values ------------------------------------------------------------------------------------------------------

    def open(self) -> Range:
        """Return a reader of the node's raw bytes in the file, for values too large to load."""
        self.result.check_open()
        with self.result.lock:
            return self.result.parser.open_scalar(self)

    def to_python(self, max_bytes: int | None = 64 << 20) -> Any:
        """Return the node and everything below it as plain Python.

        Raises `LimitError` if the node covers more than ``max_bytes`` (None: no limit), and the error of the first node
        that is not whole. The second of two equal keys becomes ``key#2``.
        """
        self.result.check_open()
        with self.result.lock:
            self._refuse_above(max_bytes)
            return self.result.parser.to_python(self)

    def values(self, first: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Yield each child as plain Python, as `to_python` makes it, reading only as far as the iteration goes.

        ``first`` and ``stop``, before which it ends (None: at the end), are numbers of children from 0. Raises the
        error of the first child that is not whole, behind those before it.
        """
        if self.shape == SCALAR:
            raise self._childless("children")
        self.result.check_open()
        return self.result.parser.values(self, first, stop)

    def to_json(self, max_bytes: int | None = 64 << 20) -> Any:
        """Return the node and everything below it in the JSON form of its format, for `json.dumps`.

        `UNLOADED_VALUE` if the format has no JSON form. Raises as `to_python` does.
        """
        self.result.check_open()
        with self.result.lock:
            if self.shape != SCALAR:
                self._refuse_above(max_bytes)
            return self.result.parser.json_form(self)

    def _refuse_above(self, max_bytes: int | None) -> None:
        """Raise `LimitError` if the node covers more than ``max_bytes``."""
        size = self.result.parser.python_size(self)
        if max_bytes is not None and size > max_bytes:
            option = told("--limit scalar_bytes=N", "max_bytes=None, or limits=Limits(scalar_bytes=N)")
            reason = f"the node covers {size} bytes"
            raise LimitError(reason, option=option, wanted=size, got=max_bytes, path=self.path)

    def at(self, path: str | Iterable[Step]) -> Node:
        """Return the node at ``path`` below this one. Raises `PathError` naming the step that leads nowhere."""
        from pparse.paths import parse_path

        node = self
        for step in parse_path(path) if isinstance(path, str) else path:
            node = node._follow(step)
        return node

    def _follow(self, step: Step) -> Node:
        if isinstance(step, OrdinalStep) and self.shape != SCALAR:
            return self.child(step.ordinal)
        if self.shape == LIST and isinstance(step.key, int) and not isinstance(step.key, bool):
            return self.child(step.key)
        if isinstance(step, OrdinalStep) or self.shape != MAP:
            reason = f"{self._name} is of kind {self.kind} and has nothing at {format_path([step])!r}"
            raise StepError(reason, path=self._name)
        for key, occurrence in step.readings():
            kid = self.find(key, occurrence)
            if kid is not None:
                return kid
        reason = f"{self._name} has no {format_path([step])!r}"
        raise ChildKeyError(reason, path=self._name, suggestions=self.result.suggest(self, step.key))

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Pickle a handle: the document, and the path (docs/handles.md)."""
        return node_of, (self.extraction, self.result.parser.name, self.path)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return self

    def _repr_html_(self) -> str:
        from pparse.tree.notebook import node_html

        return node_html(self)

    def __repr__(self) -> str:
        status = "" if self.known_status in (None, Status.COMPLETE) else f" {self.known_status}"
        what = self.value
        if self.shape == SCALAR:
            text = "unloaded" if what is UNLOADED_VALUE else repr(what)
        else:
            index = self.index
            text = f"{index.count} children" if index is not None and index.complete else "unloaded"
        if len(text) > 60:
            text = text[:57] + "..."
        try:
            path = self.path or "(root)"
        except PparseError:  # finding the path may need a read
            path = "?"
        return f"<Node {path} {self.kind}{status}: {text}>"

    def _ipython_key_completions_(self) -> list[Key]:
        if self.shape != MAP:
            return []
        return [key for key, _ in zip(self.keys(), range(10_000), strict=False)]


class StepError(PathError):
    """A path leads to a node, and not on from there; the reason names that node."""

    def __str__(self) -> str:
        return self.reason


class ChildKeyError(StepError, KeyError):
    """A map has no such key."""


class ChildIndexError(StepError, IndexError):
    """A container has no child with that number."""


def node_of(extraction: Any, format: str, path: str) -> Node:
    """Return the node at ``path`` of what the parser ``format`` makes of ``extraction``; for pickles."""
    node: Node = extraction.parse(format).root.at(path)
    return node


# -- `NodeMap`, `NodeList`: the values of loaded containers, which load children on access -----------------------------


class NodeMap:
    """A loaded map as a mapping of keys to values: scalars as they are, containers as views.

    Made on each access: views of one node are equal, not identical. The first of several equal keys counts;
    `Node.children` has all.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __getitem__(self, key: Key) -> Any:
        return self.node[key].load()

    def get(self, key: Key, default: object = None) -> Any:
        """Return the value at ``key``, or ``default``."""
        kid = self.node.find(key)
        return default if kid is None else kid.load()

    def keys(self) -> Iterator[Key]:
        """Yield each key once, in file order."""
        return iter(self)

    def values(self) -> Iterator[Any]:
        """Yield the value of each key."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[Key, Any]]:
        """Yield each key with its value."""
        result, node = self.node.result, self.node
        repeated = result.repeated_keys(node)
        for kid in node.children():
            if key_hash(kid.key) not in repeated or result.occurrence(node, kid.ordinal, kid.key) == 1:
                yield kid.key, kid.load()

    def __iter__(self) -> Iterator[Key]:
        result, node = self.node.result, self.node
        repeated = result.repeated_keys(node)
        for ordinal, entry in result.entries_from(node, 0):
            if key_hash(entry.key) not in repeated or result.occurrence(node, ordinal, entry.key) == 1:
                yield entry.key

    def __contains__(self, key: object) -> bool:
        return key in self.node

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeMap) and other.node is self.node:
            return True
        if isinstance(other, NodeMap | dict):
            return len(self) == len(other) and all(key in other and other[key] == value for key, value in self.items())
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<NodeMap of {self.node!r}>"


class NodeList:
    """A loaded list as a sequence of values. Made on each access: views of one node are equal, not identical."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __getitem__(self, index: int | slice) -> Any:
        found = self.node[index]
        return [kid.load() for kid in found] if isinstance(index, slice) else found.load()

    def __iter__(self) -> Iterator[Any]:
        return (kid.load() for kid in self.node.children())

    def __len__(self) -> int:
        return len(self.node)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NodeList) and other.node is self.node:
            return True
        if isinstance(other, NodeList | list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<NodeList of {self.node!r}>"


def as_dict(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return ``pairs`` as a dict; further values of a key are named ``key#2``, ``key#3`` …, skipping names in use."""
    found: dict[Any, Any] = dict(pairs)
    if len(found) == len(pairs):
        return found
    keys = found
    found = {}
    occurrences: dict[Any, int] = {}
    for key, value in pairs:
        name: Any = key
        occurrence = occurrences.get(key, 0) + 1
        while occurrence > 1 and ((name := f"{key!s}#{occurrence}") in keys or name in found):
            occurrence += 1
        occurrences[key] = occurrence
        found[name] = value
    return found
