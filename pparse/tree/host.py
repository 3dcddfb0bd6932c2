"""What nodes ask of the objects they belong to: `HostSession`, `Host` (a document), `Services` (a result), `Format`.

`pparse.document.extraction.Session`, `pparse.document.extraction.Extraction`, `pparse.tree.result.Result` and
`pparse.tree.parser.Parser` implement them. Nodes know only these interfaces, so the tree imports none of the four.
For type checkers: nothing imports this module at run time.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from threading import RLock
    from typing import Any

    from pparse.compressed.env import DecodeEnv
    from pparse.data.base import Data, IoStats, Range
    from pparse.findings import FindingList
    from pparse.limits import Limits, MemoryBudget
    from pparse.paths import KeyStep, OrdinalStep
    from pparse.tree.entry import Entry, Key
    from pparse.tree.index import ChildIndex, IndexLedger, KeptBlock, Retention
    from pparse.tree.node import Node


class HostSession(Protocol):
    """What all extractions of one document share."""

    lock: RLock
    budget: MemoryBudget
    limits: Limits
    stats: IoStats
    indexes: IndexLedger
    block_size: int
    closed: bool
    kept_block: KeptBlock

    @property
    def options(self) -> Mapping[str, object]:
        """The options of formats that the caller gave, such as the message type of a protobuf file."""

    @property
    def env(self) -> DecodeEnv:
        """What decoding may use."""

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the caller wants to stop."""

    def new_retention(self) -> Retention:
        """Return the retention policy for one result."""


class Host(Protocol):
    """A named piece of data that can be parsed."""

    lock: RLock
    name: str
    data: Data
    start: int
    end: int | None
    is_folder: bool

    @property
    def session(self) -> HostSession:
        """The state shared with the other extractions of its document."""

    @property
    def path(self) -> str:
        """Names from the outermost extraction to this one."""

    @property
    def size(self) -> int | None:
        """Declared size in bytes; None while unknown."""

    @property
    def root(self) -> Node:
        """Root of the node tree."""

    @property
    def reader(self) -> Range:
        """A new reader of its bytes."""

    @property
    def front(self) -> Range:
        """The one reader that stays at its beginning, of which the block that was read to tell its format serves on."""

    def find_end(self, node: Node | None = None) -> int:
        """Return where its bytes (or those of ``node``) really end."""

    def resolve(self) -> None:
        """Compare checksums that cost little, before values are returned."""


class Format(Protocol):
    """What a format defines for its nodes."""

    name: ClassVar[str]

    def state_of_children(self, kind: str) -> str | None:
        """Return the name of the state that can begin at any child; None if entries are kept."""

    def shape(self, kind: str) -> str:
        """Return the shape of nodes of ``kind``."""

    def step_to(self, parent: Node, ordinal: int, key: Key) -> KeyStep | OrdinalStep:
        """Return the path step from ``parent`` to its child."""

    def resolve(self, node: Node) -> None:
        """Find out the status of a node whose status is unknown."""

    def load_scalar(self, node: Node) -> Any:
        """Return the value of a scalar node."""

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of the node's bytes."""

    def lifting_option(self, node: Node) -> str:
        """Return the option that lifts the limit which made ``node`` UNSUPPORTED."""

    def python_size(self, node: Node) -> int:
        """Return how many bytes `to_python` of ``node`` would read."""

    def json_form(self, node: Node) -> Any:
        """Return ``node`` in the format's own JSON form; `UNLOADED_VALUE` if it has none."""

    @property
    def repeated_keys(self) -> int:
        """How many keys were met again in one object so far."""

    def json_default(self, value: object) -> object:
        """Return what stands in JSON for a value that has no form there."""

    def json_text(self, node: Node, indent: int | None, *, ensure_ascii: bool) -> Iterator[str] | None:
        """Return what yields the JSON text of a large node, a piece at a time; None if that is not worth it."""

    def values(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Yield the children of ``node`` from ``first`` to before ``stop`` as plain Python."""

    def to_python(self, node: Node) -> Any:
        """Return ``node`` and all below it as plain Python."""


class Services(Protocol):
    """The tree that nodes belong to: finds their children by number and by key."""

    lock: RLock
    findings: FindingList
    retention: Retention
    shapes: dict[str, str]

    @property
    def extraction(self) -> Host:
        """The document that is parsed."""

    def steps_along(self, chain: list[Node]) -> list[KeyStep | OrdinalStep]:
        """Return the steps to nodes, each of which is a child of the one before, the first of the root."""

    @property
    def parser(self) -> Format:
        """The parser of the tree."""

    def check_open(self) -> None:
        """Raise `ClosedError` if the document was closed."""

    def extend_index(
        self, node: Node, index: ChildIndex, *, wanted_count: int | None = None, fresh: list[Entry] | None = None
    ) -> int | None:
        """Parse on until ``wanted_count`` children are known."""

    # Both take and return a `pparse.tree.context.NodeContext`, which knows these interfaces.

    def child_context(self, ctx: Any) -> Any:
        """Return the parse of the child behind which ``ctx`` goes on; None once all is known of it."""

    def learn_child(self, ctx: Any, inner: Any) -> None:
        """Note for ``ctx`` what its pending child turned out to be."""

    def entry(self, node: Node, ordinal: int) -> Entry:
        """Return the entry of one child."""

    def entries_at(self, node: Node, first: int) -> list[Entry]:
        """Return some entries from child ``first`` on; none past the last child."""

    def entries_from(self, node: Node, first: int) -> Iterator[tuple[int, Entry]]:
        """Yield ``(ordinal, entry)`` from child ``first`` on."""

    def find(self, node: Node, key: Key, occurrence: int = 1) -> int | None:
        """Return the ordinal of the n-th child with ``key``."""

    def occurrence(self, node: Node, ordinal: int, key: Key) -> int:
        """Return the position of child ``ordinal`` among the children with ``key``, counted from 1."""

    def repeated_keys(self, node: Node) -> frozenset[int]:
        """Return the hashes of the keys that occur more than once."""

    def suggest(self, node: Node, key: Key) -> tuple[str, ...]:
        """Return up to three keys similar to ``key``."""
