"""`ParserContract`, the conformance suite that every parser must pass, built-in or not.

Subclass it in a pytest module::

    class TestMyParser(ParserContract):
        parser = MyParser
        samples = {"plain": b"..."}

Samples should be small (up to ~4 KB): every prefix and every single-byte change of each is parsed. The promises that
are tested:

- the sample is recognised, is COMPLETE, and its check finds no error;
- every prefix gives a tree, and no errors but ours; everything that ends before the cut has the value it has in the
  whole file (if ``root_at`` is ``"front"``), and a longer prefix never has fewer whole leaves; where the tensors that
  were cut off are not known, the number of missing bytes is said to be at least so many;
- a prefix that lost a leaf is not COMPLETE, according to the root, the result and the viewer, and its check finds an
  error; except where `ParserContract.is_whole` says that it is a good file by itself;
- every single-byte change is survived;
- unloading and loading again gives equal answers; block sizes 1, 7 and whole give equal trees;
- one descriptor; memory within the budget; every case ends;
- the error of a failed read propagates, and the tree can be read afterwards; gaps and sources of unknown size are
  survived;
- detection reads the head and the tail of a file, not what is between; threads that share a document get the answers of
  one; a document and its nodes can be pickled.

Two more are tested where the parser's tests say how such a file is made: `ParserContract.large` (listing the first
level reads little of a large file, and what it keeps is charged to the budget) and `ParserContract.nested` (a deep file
is read, or refused by a limit).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress

from pparse.data.base import BytesData
from pparse.document.opening import open as open_document
from pparse.document.registry import Registry, excerpt_of, viewer_for
from pparse.errors import ClosedError, EngineError, FormatError, LimitError, PparseError, SourceError, UnsupportedError
from pparse.findings import HasStatus, Severity, Status
from pparse.lazy import ByValue
from pparse.limits import KIB, MIB
from pparse.testing.fakes import FailingData, GappyData, UnknownSizeData
from pparse.tree.entry import SCALAR
from pparse.tree.parser import Confidence, Excerpt, confidence_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType
    from typing import Any, ClassVar, Final

    from pparse.document.extraction import Extraction
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node
    from pparse.tree.parser import Parser


class TreeLeaf(HasStatus, ByValue, by=("path", "kind", "status", "text", "start")):
    """One node of a tree, as the contract compares it."""

    __slots__ = ("end", "kind", "path", "shape", "start", "status", "text", "value")

    def __init__(self, node: Node) -> None:
        self.path = node.path
        """Path from the root."""
        self.kind = node.kind
        """The format's own word for the kind of value."""
        self.shape = node.shape
        """``"map"``, ``"list"`` or ``"scalar"``."""
        self.start = node.start
        """Offset of the first byte."""
        self.value: Any = None
        """Value of a scalar, if it can be loaded."""
        if node.shape == SCALAR:
            try:
                self.value = node.load()
            except PparseError as error:
                self.value = type(error).__name__
        self.text = repr(self.value)
        """The value as text: NaN differs from itself, but its text does not."""
        self.status = node.known_status
        """Status, without loading."""
        self.end = node.end
        """Offset after the last byte."""


def tree_of(extraction: Extraction, most: int = 100_000) -> list[TreeLeaf]:
    """Return all nodes of a document, depth first; a container that cannot be loaded counts without children."""
    found: list[TreeLeaf] = []
    stack = [extraction.root]
    while stack and len(found) < most:
        node = stack.pop()
        kids: list[Node] = []
        if node.shape != SCALAR:
            try:
                kids = list(node.children())
            except (EngineError, SourceError):
                raise
            except PparseError:
                pass
        found.append(TreeLeaf(node))
        stack.extend(reversed(kids))
    return found


def _case_of(source: Any) -> str:
    """Return a name for the case that parses ``source``."""
    if isinstance(source, bytes | bytearray):
        return f"{len(source)} bytes: {bytes(source[:400])!r}{'…' if len(source) > 400 else ''}"
    return f"{source!r}"


class EndlessCaseError(AssertionError):
    """A case took so long that it probably never ends."""


class Patience:
    """Raises `EndlessCaseError` in the main thread if one case takes longer than ``seconds``.

    The limit is far above what any sound case takes on a slow machine; it does not judge speed. Does nothing in other
    threads, and on systems without an interrupting timer.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        """The most seconds that one case may take."""
        self._case = ""
        self._before: Any = None
        self._armed = False

    def begin(self, case: str) -> None:
        """Start the time of ``case``; the one before has ended."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        self._case = case
        if not self._armed:
            self._before = signal.signal(signal.SIGALRM, self._out)
            self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def end(self) -> None:
        """Stop the time: all cases have ended."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._armed = False

    def _out(self, number: int, frame: FrameType | None) -> None:
        raise EndlessCaseError(f"{self._case}: no end after {self.seconds:g} seconds")


class ParserContract:
    """Base of a parser's conformance tests; see the module for what they check."""

    parser: ClassVar[type[Parser]]
    """The parser under test."""
    viewer: ClassVar[Any] = None
    """The viewer of its tensors, if the parser does not name one."""
    samples: ClassVar[dict[str, bytes]] = {}
    """Good files by name, as bytes."""
    changes: ClassVar[tuple[int, ...]] = (0x00, 0x01, 0x20, 0x22, 0x5B, 0x5D, 0x7D, 0x7F, 0x80, 0xFF)
    """Values to try at each byte; all 255 would take long."""
    options: ClassVar[dict[str, object]] = {}
    """Options to open samples with."""
    budget: ClassVar[str] = "8MiB"
    """Memory budget that is enough for each sample."""
    patience: ClassVar[Patience] = Patience()
    """Bounds the time of each case: an endless parser fails with the bytes that cause it."""
    match_bytes: ClassVar[int] = 256 * KIB
    """The most bytes that `match` may read of a file, however large."""
    listing_share: ClassVar[float] = 0.1
    """The most that listing the first level of a file of `large` may read of it, besides 1 MiB."""
    threads: ClassVar[int] = 4
    """How many threads share a document."""

    def large(self) -> bytes | None:
        """Return a good file of 8 MiB and more, most of it in few values; None: no such file is tested."""
        return None

    def nested(self, depth: int) -> bytes | None:
        """Return a good file with containers nested ``depth`` deep; None: no such file is tested."""
        return None

    def teardown_method(self) -> None:
        """End the time limit of the last case."""
        self.patience.end()

    def open(self, source: Any, **more: Any) -> Extraction:
        """Open ``source`` with the parser under test; begins a case."""
        self.patience.begin(_case_of(source))
        if self.viewer is not None:
            registry = Registry()
            registry.add(self.parser, self.viewer)
            more = {"registry": registry, **more}
        return open_document(
            source, parsers=[self.parser], format=self.parser.name, budget=self.budget, options=self.options, **more
        )

    def tree(self, source: Any, **more: Any) -> list[TreeLeaf]:
        """Return the nodes of ``source``; begins a case."""
        with self.open(source, **more) as extraction:
            return tree_of(extraction)

    def cuts(self, size: int) -> Iterable[int]:
        """Return the lengths to which a sample of ``size`` bytes is cut, ascending; override to try fewer."""
        return range(size)

    def gap_starts(self, size: int, step: int) -> Iterable[int]:
        """Offsets at which `test_gaps` puts a gap into a sample of ``size`` bytes; ``step`` apart unless overridden."""
        return range(0, size, step)

    def changed(self, size: int) -> Iterable[tuple[int, int]]:
        """Return the changes to a sample of ``size`` bytes, as (offset, new value)."""
        return ((at, value) for at in range(size) for value in self.changes)

    def failing(self) -> Iterable[int]:
        """Return which read of a sample fails, ascending, the first one being 1; override to try fewer."""
        return range(1, 10_000)

    def test_declares_itself(self) -> None:
        """Name and description are declared, for the page of formats; samples are COMPLETE and have no errors."""
        assert self.samples, "give at least one sample"
        assert self.parser.name
        assert self.parser.name == self.parser.name.lower()
        assert self.parser.description
        assert self.parser.root_at in ("front", "back")
        assert (self.parser.__doc__ or "").strip()
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                assert extraction.is_complete, name
                errors = [f for f in extraction.check() if f.severity is Severity.ERROR]
                assert not errors, (name, errors)
                assert all(leaf.is_complete for leaf in tree_of(extraction)), name

    def test_recognises_its_samples(self) -> None:
        """Detection chooses the parser for its samples."""
        for name, sample in self.samples.items():
            extraction = open_document(sample, parsers=[self.parser])
            assert confidence_of(self.parser, excerpt_of(extraction), extraction.reader) > Confidence.NO, name
            assert extraction.format == self.parser.name, name

    def test_every_prefix(self) -> None:
        """What ends before the cut has its value; nothing else claims to be whole, and no missing bytes to be all."""
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                whole = tree_of(extraction)
                extent = extent_of(extraction)
                needed = 0 if extent is None else min(extent.last_byte - extraction.parsed.start, len(sample))
            scalars = {leaf.path: leaf for leaf in whole if leaf.value is not None}
            most = 0
            for size in self.cuts(len(sample)):
                with self.open(sample[:size]) as cut:
                    told = [extent_of(cut)]
                    leaves = tree_of(cut)
                    list(cut.check())
                    told.append(extent_of(cut))
                for extent in (found for found in told if found is not None and not found.at_least):
                    assert not extent.missing_bytes or size + extent.missing_bytes >= needed, (name, size, extent)
                complete = [leaf for leaf in leaves if leaf.is_complete and leaf.path in scalars]
                for leaf in complete:
                    wanted = scalars[leaf.path]
                    assert leaf.text == wanted.text, (name, size, leaf, wanted)
                if self.parser.root_at == "front":
                    there = {leaf.path for leaf in complete}
                    lost = [
                        leaf
                        for leaf in scalars.values()
                        if leaf.end is not None and leaf.end < size and leaf.path not in there
                    ]
                    assert not lost, (name, size, lost[:3])
                    assert len(complete) >= most, (name, size)
                    most = len(complete)

    def test_a_prefix_that_loses_a_leaf_is_not_complete(self) -> None:
        """An incomplete document says so, before and after everything is read: root, result, viewer and check.

        So do the rows of a listing, with a reason.
        """
        for name, sample in self.samples.items():
            wanted = {leaf.path for leaf in self.tree(sample) if leaf.shape == SCALAR}
            for size in self.cuts(len(sample)):
                with self.open(sample[:size]) as cut:
                    told = {f"{who} at once": status for who, status in statuses(cut).items()}
                    lost = wanted - {leaf.path for leaf in tree_of(cut) if leaf.is_complete}
                    told |= {f"{who} when all is loaded": status for who, status in statuses(cut).items()}
                    rows = list(cut.parse().listing.members())
                    bare = [row.name for row in rows if not row.is_complete and not row.reason]
                    assert not bare, (name, size, "no reason", bare[:3])
                    finds = any(finding.severity is Severity.ERROR for finding in cut.check())
                    told |= {f"{who} when all is checked": status for who, status in statuses(cut).items()}
                claims = [who for who, status in told.items() if status is Status.COMPLETE]
                claims += [] if finds else ["check"]
                if lost and claims:
                    assert self.is_whole(name, sample[:size]), (name, size, claims, sorted(lost)[:3])

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """Return whether ``prefix`` of the sample ``name`` is a good file by itself, without a sign that more followed.

        False by default. Override it for formats whose files have no mark of their end, and decide without using the
        parser under test.
        """
        return False

    def test_every_byte_changed(self) -> None:
        """A changed byte gives another tree, a status or one of our errors."""
        for sample in self.samples.values():
            for at, value in self.changed(len(sample)):
                if sample[at] != value:
                    changed = bytearray(sample)
                    changed[at] = value
                    self._survives(bytes(changed))

    def _survives(self, source: Any) -> None:
        with _ours_may_come(), self.open(source) as extraction:
            tree_of(extraction)
            list(extraction.check())

    def test_a_held_tensor_and_a_fresh_one_agree(self) -> None:
        """A tensor that was listed, and one that is asked for by name, say the same, before and after a check.

        One that is not complete says why; of one that is, all bytes are there.
        """
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                if viewer_for(extraction) is None:
                    continue
            for size in self.cuts(len(sample)):
                self._agrees(sample[:size], (name, size))
            for at, value in self.changed(len(sample)):
                if sample[at] != value and value in self.changes[-2:]:
                    self._agrees(sample[:at] + bytes((value,)) + sample[at + 1 :], (name, at, value))

    def _agrees(self, source: bytes, case: object) -> None:
        with _ours_may_come():  # it is no model any more
            with self.open(source) as extraction:
                viewer = extraction.view()
                held = list(viewer.tensors())
                told = judged(held)
                bare = [tensor for tensor in held if not tensor.is_complete and tensor.finding is None]
                assert not bare, (case, "no reason", bare[:3])
                whole = (tensor for tensor in held if tensor.is_complete)
                beyond = [tensor for tensor in whole if any(span.there < span.length for span in tensor.spans)]
                assert not beyond, (case, "complete beyond the end", beyond[:3])
                self._agree(viewer, told, (case, "after a listing"))
                list(viewer.check())
                checked = judged(held)
                self._agree(viewer, checked, (case, "after a check"))
            with self.open(source) as extraction:
                self._agree(extraction.view(), told[::-1], (case, "by name first"))

    def _agree(self, viewer: Viewer, told: Sequence[tuple[str, Status]], case: object) -> None:
        fresh = [viewer.find(name) for name, _ in told]  # None: a name that lists give to what has none
        found = dict(judged([tensor for tensor in fresh if tensor is not None]))
        wanted = {tensor.name: status for tensor, (_, status) in zip(fresh, told, strict=True) if tensor is not None}
        assert found == wanted, case

    def test_load_unload_load(self) -> None:
        """An unloaded node gives the same answers again, and living children stay the same objects."""
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                before = tree_of(extraction)
                root = extraction.root
                kids = [] if root.shape == SCALAR else list(root.children())
                for node in [*kids, root]:
                    node.unload()
                again = [] if root.shape == SCALAR else list(root.children())
                assert all(a is b for a, b in zip(kids, again, strict=True)), name
                assert tree_of(extraction) == before, name

    def test_nothing_comes_after_close(self) -> None:
        """Nodes and tensors of a closed document raise `ClosedError` where they gave a value, even an empty one."""
        for name, sample in self.samples.items():
            extraction = self.open(sample)
            tensors = [] if viewer_for(extraction) is None else list(extraction.view().tensors())
            nodes = [extraction.root]
            for node in nodes:
                nodes += [] if node.shape == SCALAR else node.children()
            reads = [read for node in nodes for read in _reads_of(node)]
            reads += [read for tensor in tensors for read in _reads_of_tensor(tensor)]
            worked = [read for read in reads if _outcome(read) is None]
            assert worked, name
            extraction.close()
            told = [(read, _outcome(read)) for read in worked]
            assert not [each for each in told if each[1] is not ClosedError], name

    def test_block_sizes(self) -> None:
        """The tree does not depend on how the bytes are split into blocks."""
        for name, sample in self.samples.items():
            for size in range(0, len(sample) + 1, max(1, len(sample) // 7)):
                trees = [self.tree(sample[:size], block_size=block) for block in (0, 1, 7)]
                assert trees[0] == trees[1] == trees[2], (name, size)

    def test_one_descriptor(self, tmp_path: Path) -> None:
        """The file is open once, however many nodes and readers there are."""
        if not os.path.isdir("/proc/self/fd"):
            return
        for name, sample in self.samples.items():
            path = tmp_path / "sample"
            path.write_bytes(sample)
            with self.open(path) as extraction:
                tree_of(extraction)
                links = Counter(_link(number) for number in os.listdir("/proc/self/fd"))
                assert links[os.path.realpath(path)] == 1, name

    def test_within_budget(self) -> None:
        """What is kept and buffered stays within the budget, and is released at the end."""
        for name, sample in self.samples.items():
            with self.open(sample) as extraction:
                list(extraction.check())
                tree_of(extraction)
                budget = extraction.session.budget
                assert budget.peak <= budget.limit, name
                extraction.root.unload()
                assert budget.used <= 1 << 20, (name, budget.used)

    def test_failing_reads(self) -> None:
        """Any read may fail: the error propagates, and the tree can be read afterwards."""
        for name, sample in self.samples.items():
            wanted = self.tree(sample)
            for number in self.failing():
                data = FailingData(sample, number)
                try:
                    extraction = self.open(data)
                    try:
                        tree_of(extraction)
                    except SourceError:
                        assert tree_of(extraction) == wanted, (name, number)
                except (SourceError, FormatError):
                    continue  # failed while opening: there is no tree
                if data.reads < number:
                    break

    def test_gaps(self) -> None:
        """A gap damages what lies in it; the rest is whole, has a status, or raises one of our errors."""
        for sample in self.samples.values():
            step = max(1, len(sample) // 40)
            for start in self.gap_starts(len(sample), step):
                for length in (1, step, None):
                    self._survives(GappyData(sample, [(start, length)]))

    def test_unknown_size(self) -> None:
        """A source whose size is unknown until its end gives the same tree."""
        for name, sample in self.samples.items():
            assert self.tree(UnknownSizeData(sample)) == self.tree(sample), name

    def test_match_reads_little(self) -> None:
        """Detection reads the head and the tail of a file."""
        for name, sample in self.samples.items():
            for content in (sample + bytes(_FILLER), sample + b"\x9e" * _FILLER):
                data = BytesData(content)
                self.patience.begin(f"match of {name} and {_FILLER} more bytes")
                with suppress(PparseError):
                    reader = data.range(0, len(content))
                    confidence_of(self.parser, Excerpt(reader, name, len(content)), reader)
                assert data.stats.bytes <= self.match_bytes, (name, data.stats.bytes)

    def test_listing_reads_little_and_keeps_what_it_charges(self) -> None:
        """The first level of a large file is listed by a few of its bytes; what stays in memory is charged."""
        content = self.large()
        if content is None:
            return
        import gc
        import tracemalloc

        with self.open(content) as extraction:
            next(iter(extraction.root.children()))  # what is imported meanwhile is not kept for the file
        gc.collect()
        tracemalloc.start()
        try:
            with self.open(content) as extraction:
                before = tracemalloc.get_traced_memory()[0]
                kids = [kid.kind for kid in extraction.root.children()]
                assert kids
                read = extraction.session.stats.bytes
                assert read <= self.listing_share * len(content) + MIB, f"{read} of {len(content)} bytes were read"
                for kid in extraction.root.children():
                    if kid.shape == SCALAR:
                        with suppress(PparseError):
                            kid.load()
                        kid.unload()
                gc.collect()
                kept = tracemalloc.get_traced_memory()[0] - before
                charged = extraction.session.budget.used
                assert kept <= charged + MIB, f"{kept} bytes are kept, {charged} of them charged"
        finally:
            tracemalloc.stop()

    def test_nesting(self) -> None:
        """A file nested deeper than Python recurses is read, or refused by a limit."""
        for depth in (50, 1_100):
            content = self.nested(depth)
            if content is not None:
                with suppress(LimitError), self.open(content) as extraction:
                    list(extraction.walk())
                    list(extraction.check())

    def test_threads(self) -> None:
        """Threads that share a document, and threads that have one each, get the answers of a single one."""
        interval = sys.getswitchinterval()
        for name, sample in self.samples.items():
            wanted = self.tree(sample)
            with self.open(sample) as extraction:
                found: list[Any] = []
                others = [self.open(sample) for _ in range(self.threads)]
                documents = [extraction] * self.threads + others
                workers = [threading.Thread(target=_collect, args=(document, found)) for document in documents]
                try:
                    sys.setswitchinterval(1e-6)
                    for worker in workers:
                        worker.start()
                    for worker in workers:
                        worker.join()
                finally:
                    sys.setswitchinterval(interval)
                for other in others:
                    other.close()
            assert len(found) == 2 * self.threads
            assert all(tree == wanted for tree in found), name

    def test_pickles(self, tmp_path: Path) -> None:
        """A document and its nodes are the same after `pickle`."""
        for name, sample in self.samples.items():
            path = tmp_path / "sample"
            path.write_bytes(sample)
            with self.open(path) as extraction:
                wanted = tree_of(extraction)
                nodes = [extraction.root]
                nodes += [] if extraction.root.shape == SCALAR else list(extraction.root.children())[:20]
                kept = pickle.dumps((extraction, nodes))
                again, found = pickle.loads(kept)
                assert tree_of(again) == wanted, name
                # Not the status: that of a container is known once it was read.
                told = [(leaf.path, leaf.kind, leaf.start, leaf.text) for leaf in map(TreeLeaf, nodes)]
                assert told == [(leaf.path, leaf.kind, leaf.start, leaf.text) for leaf in map(TreeLeaf, found)]
                again.close()


# How much follows a sample in a large file: match must not look at it.
_FILLER: Final = 4 * MIB


@contextmanager
def _ours_may_come() -> Iterator[None]:
    """Suppress errors of ours, but for the one that says that a parser is wrong."""
    try:
        yield
    except EngineError:
        raise
    except PparseError:
        pass


def _collect(extraction: Extraction, found: list[Any]) -> None:
    try:
        found.append(tree_of(extraction))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is no tree
        found.append(error)


def _reads_of(node: Node) -> list[Callable[[], object]]:
    if node.shape == SCALAR:
        return [node.load, node.open]
    return [
        node.load,
        node.to_python,
        lambda: list(node.children()),
        lambda: len(node),
        lambda: node.find("no such key"),
    ]


def _reads_of_tensor(tensor: Tensor) -> list[Callable[[], object]]:
    return [
        tensor.numpy,
        lambda: tensor.numpy(copy=False),
        lambda: tensor[...],
        lambda: list(tensor.blocks()),
        lambda: list(tensor.raw_blocks()),
        lambda: tensor.readinto(bytearray(tensor.nbytes)),
        lambda: tensor.readinto_from(0, bytearray(1)),
    ]


def _outcome(read: Callable[[], object]) -> type[Exception] | None:
    try:
        read()
    except (PparseError, ValueError) as error:  # ValueError: a view of bytes that must be changed, a buffer too small
        return type(error)
    return None


def _link(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


# -- What documents and tensors say of themselves, asked in several ways -----------------------------------------------


def extent_of(extraction: Extraction) -> Extent | None:
    """Return how much of a document is there, by its viewer; None if it has none."""
    found: Extent | None = None
    with suppress(UnsupportedError):  # no tensors
        found = extraction.view().extent()
    return found


def statuses(extraction: Extraction) -> dict[str, Status]:
    """Return the status of a document, by who reports it."""
    told = {"the root": extraction.root.status, "the result": extraction.parse().status}
    with suppress(UnsupportedError):  # no tensors
        told["the viewer"] = extraction.view().status
    return told


def judged(tensors: list[Tensor]) -> list[tuple[str, Status]]:
    """Return the statuses of tensors, after the checksums of those that are not whole, which may clear them."""
    for tensor in tensors * 2:  # the checksum of one may contradict bytes that it shares with another
        if not tensor.is_complete:
            tensor.resolve()
    return [(tensor.name, tensor.status) for tensor in tensors]
