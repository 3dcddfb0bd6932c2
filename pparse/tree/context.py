"""The state of a parse in progress: `NodeContext`, and what a state is and returns."""

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
        self.result: Services = node.result
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
