"""`NodeContext`: the state of a parse in progress; and the types of states and steps."""

from __future__ import annotations

import enum

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.tree.entry import Entry, Key
    from pparse.tree.host import Services
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node

    State = Callable[["NodeContext", bytes, int], "Step"]
    Step = tuple[int, State | "Done", int]

MAX_JUMPS_BACK: Final = 1_000_000


class Done(enum.Enum):
    """Type of `DONE`."""

    DONE = "DONE"


DONE: Final = Done.DONE
"""The state after the last one: the node is read."""


class NodeContext:
    """The state of a parse in progress, as the engine and the states of a parser see it.

    The states set ``stack`` and ``scratch`` as they like, read the rest, and call the methods.
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
        "first_block",
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
        """The node that is parsed."""
        self.result: Services = node.result
        """The tree that the node belongs to."""
        self.data: Data = node.extraction.data
        """What is read: the extraction's data, unless a state entered another part."""
        self.entered = False
        """Whether a state entered another part in this step."""
        self.resumable = False
        """Whether the last run ended between two steps, with an error of the source."""
        self.entries_limit = self.result.extraction.session.limits.entries
        """The limit on the number of children."""
        self.index = index
        """Receives the children; None when nothing is indexed."""
        self.pos = node.start
        """Where the state begins, as an offset of ``data``."""
        self.end = node.end if node.end is not None else node.extraction.end
        """Where the node's bytes end, or the extraction's while that is unknown; None: with the data."""
        self.state: State | Done = DONE
        """The state to run next."""
        self.need = 1
        """How many bytes it needs at least."""
        self.at_end = False
        """Whether the block ends where the input ends."""
        self.first_block = 0
        """How much to read at first in the next run, which goes on where the last one stopped; 0: little."""
        self.stack: list[Any] = []
        """Nesting, for the parser."""
        self.scratch: Any = None
        """Anything else, for the parser."""
        self.emitted = 0
        """How many children were emitted so far."""
        self.jumps = 0
        """How often a state moved backwards."""
        self._jump_allowed = False
        self.wanted_count: int | None = None
        """Stop after this many children; None: do not stop for that."""
        self.wanted_key: Key = None
        """Stop at the child with this key …"""
        self.wanted_occurrence = 0
        """… when it occurs for the n-th time; 0: do not look for a key."""
        self.answer: int | None = None
        """Number of the child found by key."""
        self.collected: list[Entry] | None = None
        """Entries that are read again; None while indexing."""
        self.collect_from = 0
        """The first child to collect."""
        self.collect_to = 0
        """One past the last child to collect."""

    def enter(self, part: Range) -> int:
        """Continue in another stretch of bytes, of this or other data; return its start, the position for the step."""
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
        """Make a child visible. Raises `LimitError` above the limit ``entries``."""
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
        """Declare that the next position returned lies before ``pos``. Raises `MalformedError` after too many."""
        self.jumps += 1
        if self.jumps > MAX_JUMPS_BACK:
            raise MalformedError("too many backward jumps", offset=self.pos)
        self._jump_allowed = True

    @property
    def satisfied(self) -> bool:
        """Whether the parse has found what was asked for."""
        if self.answer is not None:
            return True
        if self.collected is not None:
            return self.emitted >= self.collect_to
        return self.wanted_count is not None and self.index is not None and self.index.count >= self.wanted_count
