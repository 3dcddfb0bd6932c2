"""Extractions: named pieces of data that can be parsed, and the `Session` that those of a document share.

An opened file is an extraction. What is embedded in it becomes child extractions, each made once, on demand; a stored
piece is a `Range` of the same descriptor. A `FolderExtraction` is a folder, and confined to it.
"""

from __future__ import annotations

import _weakref as weakref
import os
from functools import cached_property
from itertools import islice

from pparse.data.base import BytesData, Data, Distance, IoStats
from pparse.data.files import DescriptorPool, folder_of, open_file
from pparse.document.folder import LocalFolder
from pparse.document.registry import (
    detect,
    model_extensions,
    other_format,
    parser_class,
    viewer_for,
    why_no_viewer,
)
from pparse.errors import (
    CancelledError,
    FormatError,
    LimitError,
    PathError,
    PparseError,
    SourceError,
    UnsupportedError,
    spoken,
)
from pparse.findings import Finding, HasStatus, Status
from pparse.lazy import Declared, lazy_pattern
from pparse.limits import Limits, MemoryBudget
from pparse.locking import RLock, guard
from pparse.paths import join_extraction
from pparse.tree.entry import MAP
from pparse.tree.index import IndexLedger, KeptBlock, Retention
from pparse.tree.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from typing import Any, Final, Self
    from weakref import WeakSet, WeakValueDictionary

    from pparse.compressed.env import DecodeEnv
    from pparse.data.base import Range
    from pparse.data.scratch import Scratch
    from pparse.data.spliced import FilePart
    from pparse.document.folder import Folder
    from pparse.document.registry import Registry
    from pparse.findings import FindingList
    from pparse.tree.node import Node
    from pparse.tree.parser import Container, Parser
    from pparse.tree.visit import Visit

    # called with (bytes done, bytes in all or None, what is going on)
    Progress = Callable[[int, int | None, str], None]

# Where a download cache of Hugging Face says which of its snapshots is meant, and what a snapshot is called.
_REVISION: Final = "refs/main"
_COMMIT: Final = lazy_pattern(r"[0-9a-f]{40}")
_LATEST: Final = "latest"
_STATES: Final = "_model_states.pt"
_LINE: Final = 256  # bytes of the name of a folder at most
# From so many sources on, those that are gone are forgotten.
_MANY: Final = 64


class Session(Declared):
    """State that all extractions of one document share. Closing it closes every source that it opened."""

    registry: Registry
    """Which parsers and viewers there are."""
    limits: Limits
    """Limits of the document."""
    options: dict[str, object]
    """Options of formats."""
    stats: IoStats
    """Counts what sources served."""
    retain: float | str = 0
    """Bytes of nodes that stay alive although nobody holds them."""
    include: tuple[str, ...] = ()
    """Path patterns of those nodes; empty: all."""
    exclude: tuple[str, ...] = ()
    """Path patterns of other nodes."""
    scratch: str | None = None
    """Folder for scratch files; None: none are made."""
    progress: Progress | None = None
    """Called with the progress of long work."""
    cancel: Callable[[], bool] | None = None
    """Asked between blocks whether to stop."""
    block_size: int = 0
    """Size of scan blocks; 0: adaptive. Tests set 1 or 7."""
    closed: bool = False
    """Whether `close` was called."""
    source: Data | None = None
    """The open file, for reports of progress."""
    doing: str = "reading"
    """What is being done with it, in words; empty: do not report."""
    opened: Any = None
    """What `pparse.open` was given (a `pparse.document.opening.Opened`); None: it was not opened by that."""
    let_go: Callable[[], object] | None = None
    """What closing does instead, in a document that is shared by handles."""
    _spools: Scratch | None = None
    _told: int = 0

    def __init__(
        self,
        *,
        budget: int | str | MemoryBudget = "64MiB",
        limits: Limits | None = None,
        options: Mapping[str, object] | None = None,
        stats: IoStats | None = None,
        **others: Any,
    ) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits: pass pparse.Limits(depth=…), not a {type(limits).__name__}")
        super().__init__(limits=limits or Limits(), options=dict(options or {}), stats=stats or IoStats(), **others)
        self.lock = RLock()  # see `pparse.locking`
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        """Memory of the document."""
        self.pool = DescriptorPool(self.limits.open_files)
        """Open files of the document."""
        self.kept_block = KeptBlock(self.budget)
        """The block that was read last."""
        self.indexes = IndexLedger(self.budget)
        """Accounts for the indexes of all nodes."""
        self.expected: dict[str, object] = {}
        """What identifies those files, according to a handle."""
        self._sources: dict[int, weakref.ref[Data]] = {}

    @cached_property
    def _retentions(self) -> WeakSet[Retention]:
        from weakref import WeakSet  # costs half a millisecond, and hardly anybody retains nodes

        return WeakSet()

    @cached_property
    def given(self) -> WeakValueDictionary[str, Data]:
        """Files of a `pparse.Folder` that the caller gave, by name, as far as they are open."""
        from weakref import WeakValueDictionary

        return WeakValueDictionary()

    def adopt(self, data: Data) -> Data:
        """Close ``data`` when the document is closed; return it."""
        with self.lock:
            self._sources[id(data)] = weakref.ref(data)
            count = len(self._sources)
            if count >= _MANY and not count & (count - 1):  # at each doubling: bounded by those that are in use
                self._sources = {id(kept): weakref.ref(kept) for kept in self.sources()}
        return data

    def take(
        self, source: Any, name: str | None = None, *, owned: bool = False, distance: Distance = Distance.NEAR
    ) -> Data:
        """Return ``source`` (a `Data`, bytes, a binary file object or a path) as data that the document closes.

        Far data get a cache; ``distance`` is that of a file object. One that cannot seek, such as a pipe, is read to
        its end first, into a scratch file: there is no other way to read it. A `Data` or file object is closed only if
        it is ``owned``. Raises `SourceError`, `LimitError`, and TypeError for anything else.
        """
        if isinstance(source, bytes | bytearray | memoryview):
            return self.adopt(BytesData(source, name or "<bytes>", self.stats))
        if isinstance(source, str | os.PathLike):
            return self.adopt(open_file(source, self.pool, self.stats))
        if isinstance(source, Data):
            return self._near(self.adopt(source) if owned else source)
        if hasattr(source, "read"):
            from pparse.data.file_object import StreamData, can_seek

            if not can_seek(source):
                return self.adopt(self._spooled(source, name or str(getattr(source, "name", "<stream>")), owned=owned))
            stats = self.stats if distance is Distance.NEAR else None  # the cache counts
            data = self.adopt(StreamData(source, name, stats, owned=owned))
            data.distance = distance
            return self._near(data)
        raise TypeError(
            f"cannot open a {type(source).__name__}: pass a path, bytes, a binary file, a Data or a list of them"
        )

    def _spooled(self, stream: Any, name: str, *, owned: bool) -> Data:
        """Return what a stream gives, in a scratch file: in the folder for these, or else that of the system."""
        import tempfile

        from pparse.data.file_object import SpooledData, spooled
        from pparse.data.scratch import Scratch

        def tell(count: int) -> None:
            self.check_cancelled()
            if self.progress is not None:
                self.progress(count, None, self.doing)

        scratch = self.spools
        if self.scratch is None:
            scratch = Scratch(tempfile.gettempdir(), self.limits.scratch_bytes)
        try:
            return SpooledData(spooled(stream, name, scratch, tell), name, self.stats)
        finally:
            if owned:
                stream.close()

    def _near(self, data: Data) -> Data:
        """Return ``data``, with a cache in front of it if it is far away."""
        if data.distance is Distance.NEAR:
            return data
        from pparse.data.block_cache import BlockCache

        return data if isinstance(data, BlockCache) else self.adopt(BlockCache(data, self.budget, self.stats))

    def sources(self) -> list[Data]:
        """Return the data that the document opened and that are still in use."""
        with self.lock:
            return [data for ref in list(self._sources.values()) if (data := ref()) is not None]

    def new_retention(self) -> Retention:
        """Return a new retention policy, for one result."""
        retention = Retention(self.budget, self.retain, self.include, self.exclude)
        if retention.limit:  # else it never holds a node
            self._retentions.add(retention)
        return retention

    @property
    def spools(self) -> Scratch:
        """Makes scratch files, in the folder that the caller named, if any."""
        with self.lock:
            if self._spools is None:
                from pparse.data.scratch import Scratch

                self._spools = Scratch(self.scratch, self.limits.scratch_bytes)
            return self._spools

    @property
    def env(self) -> DecodeEnv:
        """What decoding may use: memory, limits and scratch files of the document; it is interrupted with it."""
        from pparse.compressed.env import DecodeEnv

        return DecodeEnv(self.budget, self.limits, self.spools, self.check_cancelled)

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the caller wants to stop; report how far in the file reading has come.

        Called often by all long work. Cheap if nothing was read since the last call.
        """
        if self.cancel is not None and self.cancel():
            raise CancelledError("cancelled by the caller")
        if self.progress is not None and self.stats.reads != self._told and self.doing:
            self._told = self.stats.reads
            if self.source is not None and self.source.place < (self.source.size or 1 << 63):
                self.progress(self.source.place, self.source.size, self.doing)

    def telling(self) -> ExitStack:
        """Leave reports of progress to the caller in the block that is entered with this."""
        from contextlib import ExitStack

        stack = ExitStack()
        stack.callback(setattr, self, "doing", self.doing)
        self.doing = ""
        return stack

    def close(self) -> None:
        """Close every source; nodes and tensors of the document raise `ClosedError` from here on.

        A document that was opened for handles is closed with the last object made of it (docs/handles.md).
        """
        if self.let_go is not None:
            self.let_go()
            return
        self.closed = True  # first: those that wait for the lock must see it
        with self.lock:
            for data in self.sources():
                data.close()
            for retention in list(self._retentions) if self.retain else ():
                retention.clear()
            self.kept_block.drop()


class Extraction(HasStatus):
    """A named piece of data: an opened file, or what is found inside of one."""

    is_folder = False
    entered = False
    """Whether it is a member that was entered by its name, not met in a walk through the archive."""
    _failed: dict[str, PparseError] | None = None  # why files of the folder could not be opened in advance
    lies_in: Folder | None = None
    """The folder that it is known to lie in, if that is not one of the system or of an archive."""

    proved = False
    """Whether the member it comes from was read in full for its checksum."""
    implicit = False
    """Whether it is a step of decompression, which paths do not name."""
    is_other = False
    """Whether it is read as a format that is named, and is surely of another one: its end tells nothing then."""
    file_parts: Sequence[FilePart] = ()
    """The files it consists of, if it is split into numbered parts."""
    notes: tuple[Finding, ...] = ()
    """What was found wrong before any parser looked at it."""
    origin: tuple[Any, Any] | None = None
    """The archive's parser and the member, if it comes from an archive."""
    _is_itself = False  # whether it is known to be no placeholder
    _best: weakref.ref[Result] | None = None  # what `parse` found: good for as long as it is among the results
    _confirmed = False  # `confirm` ran to its end
    _confirming = False

    def __init__(
        self,
        session: Session,
        name: str,
        data: Data,
        start: int = 0,
        end: int | None = None,
        parent: Extraction | None = None,
        format: str | None = None,
    ) -> None:
        self.session = session
        """State shared by all extractions of the document."""
        self.lock = session.lock
        """Lock of the session."""
        self.name = name
        """Name of the file or member."""
        self.data = data
        """The data that holds it …"""
        self.start = start
        """… from this offset on …"""
        self.end = data.size if end is None else end
        """… to this one; None while the size of the data is unknown."""
        self.parent = parent
        """The extraction it was found in; None: it was opened."""
        self.children: dict[str, Extraction] = {}
        """The extractions found in it so far, by name."""
        self.results: dict[str, Result] = {}
        """What parsers made of it, by name of the parser."""
        self._format = format
        self._named = format is not None  # a named format applies to this, not to what is inside
        self.layers: int = 0 if parent is None else parent.layers
        """Number of archives and streams around it."""

    # -- bytes -------------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> Range:
        """A new reader of the extraction's bytes."""
        return self.data.range(self.start, max(self.start, self.find_end()))

    @cached_property
    def front(self) -> Range:
        """The one reader that stays at its beginning, of which the block that was read to tell its format serves on."""
        # Do not look for an unknown end: it may be the end of a compressed stream.
        end = 1 << 62 if self.end is None else self.end
        return self.data.range(self.start, max(self.start, end))

    @property
    def size(self) -> int | None:
        """Declared size in bytes; None while unknown."""
        return None if self.end is None else self.end - self.start

    def find_end(self, node: Node | None = None) -> int:
        """Return where the bytes of the extraction (or of ``node``) really end, as an offset of the data."""
        end = self.end if node is None or node.end is None else node.end
        data = self.data
        if data.flawed:
            try:
                data.resolve()
            except LimitError:
                pass  # a read there reports it
        size = data.reach if data.gaps else data.size
        if size is None:
            size = _find_size(data, self.session.check_cancelled)
        return size if end is None or end > size else end

    @property
    def path(self) -> str:
        """Names from the outermost extraction to this one, joined by ``::``."""
        names = [level.name for level in self.outward() if not level.implicit]
        return join_extraction(reversed(names))

    def child(
        self, name: str, data: Data, start: int = 0, end: int | None = None, format: str | None = None
    ) -> Extraction:
        """Return the child extraction ``name``; the first call makes it."""
        kid = self.children.get(name)
        if kid is None:
            kid = self.children[name] = Extraction(self.session, name, data, start, end, self, format)
        return kid

    def go_deeper(self) -> None:
        """Count one more archive or stream around this. Raises `LimitError`: each read passes through all of them."""
        limit = self.session.limits.nesting
        if self.layers >= limit:
            raise LimitError(
                f"more than {limit} archives and streams are nested",
                option=self.session.limits.option("nesting") or "'pparse extract', layer by layer",
                path=self.parent.outermost.path if self.parent is not None else None,
            )
        self.layers += 1

    def path_beside(self, name: str) -> str:
        """Return the path of a file in the folder of this one, as the caller who named this one would write it."""
        folder = self.folder
        return name if folder is None else folder.path_of(name)

    def sibling(self, name: str, *, any_content: bool = False) -> Extraction:
        """Return the file ``name`` in the folder of this file; the first call opens it.

        The name must be relative and stay in the folder, which may be one in an archive. Raises `PathError` if it
        leaves the folder, `SourceError` if the file cannot be opened, there is no folder, or it is a placeholder: a
        Git LFS pointer or a web page, unless it may have ``any_content``.
        """
        kid = self.children.get(name)
        if kid is None:
            folder = self.folder
            if folder is None:
                raise SourceError("has no folder to find other files in", source=self.name)
            error = self._failed.pop(name, None) if self._failed else None
            if error is not None:
                raise error
            kid = self.children[name] = folder.enter(name, self)
        if not any_content:
            kid.refuse_placeholder()
        return kid

    def refuse_placeholder(self) -> None:
        """Raise `SourceError` if this file, which belongs to another one, only stands for the one that is meant."""
        from pparse.document.appearance import placeholder

        if not self._is_itself:
            what = placeholder(self)
            if what is not None:
                raise SourceError(what, source=self.path)
            self._is_itself = True

    def fetch_siblings(self, names: Sequence[str]) -> list[Data]:
        """Open these files of the folder, several at a time, and return the data of all of them that are far away.

        An error is raised by the next `sibling` with that name.
        """
        folder = self.folder
        if folder is None or not folder.fetches_at_once:
            return []
        from pparse.data.block_cache import in_parallel

        failed = self._failed = {}
        wanted = [name for name in names if name not in self.children]
        for name, (source, error) in zip(wanted, in_parallel(folder.fetch, wanted), strict=True):
            if source is not None:
                try:
                    self.children[name] = folder.entered(name, source, self)
                except PparseError as wrong:
                    failed[name] = wrong
            elif isinstance(error, PparseError):
                failed[name] = error
        found = (self.children[name].data for name in names if name in self.children)
        return [data for data in found if data.distance is Distance.FAR]

    def file(self, name: str, data: Data) -> Extraction:
        """Return an extraction of another file, ``data``, that belongs to this document."""
        return Extraction(self.session, name, data, parent=self.outermost)

    @property
    def folder(self) -> Folder | None:
        """The folder this file lies in: the one that was given, one of the system, or of an archive if it was entered
        by its name; else None.

        What a walk through an archive comes to has none: the files beside it are met by themselves.
        """
        if self.lies_in is not None:
            return self.lies_in
        if self.implicit:
            return self.outermost.folder
        if self.origin is not None:
            parser, member = self.origin
            found: Folder | None = parser.folder_of(member) if self.entered else None
            return found
        if self.data.path is None:
            return None
        return LocalFolder(folder_of(self.data.path), self.session.pool, self.session.stats)

    # -- what parsers make of it -------------------------------------------------------------------------------------

    def parse(self, format: str | type[Parser] | None = None) -> Result:
        """Return the result of the parser with that name (or class); None: of the best match.

        For a compressed stream with content that some parser recognises, the best match is the parser of the content.

        Raises `FormatError` if no parser recognises the data, and says what it looks like if that is known.
        """
        if format is None and (best := self._known_best()) is not None:
            return best
        result = self._parse(format)
        most = self.session.limits.nesting
        while format is None and not extraction_of(result)._named:
            container = result.container
            try:
                inner: Extraction | None = container.unwrapped() if container is not None else None  # type: ignore[assignment]
            except UnsupportedError:
                break
            if inner is None:
                break
            most -= 1
            if most < 0:  # a compressed file may name itself as what it stands for
                raise LimitError(
                    "too many files and streams stand for one another",
                    option=self.session.limits.option("nesting"),
                    path=self.outermost.path,
                )
            try:
                result = inner._parse(None)
            except (FormatError, UnsupportedError):
                return result  # not for good: a format may be assumed yet
        if format is None:
            self._best = weakref.ref(result)
        return result

    def _known_best(self) -> Result | None:
        """Return what the best parser made of this, if that is known and was not forgotten."""
        best = None if self._best is None else self._best()
        if best is not None and best.extraction.results.get(best.parser.name) is best:  # type: ignore[attr-defined]
            return best
        return None

    def _parse(self, format: str | type[Parser] | None) -> Result:
        """Do as `parse` does, but stay at the outermost stream."""
        parser: type[Parser]
        if isinstance(format, type):
            parser = format
        else:
            name = format or self._format
            parser = parser_class(self.session.registry, name) if name is not None else detect(self)
            if format is None:
                self._format = parser.name
        if (parser.reads == "folder") is not self.is_folder:
            what = "folder" if self.is_folder else "file"
            reason = f"the format {parser.name!r} reads a {parser.reads}, but this is a {what}"
            raise FormatError(reason, source=self.name)
        result = self.results.get(parser.name)
        if result is None:
            around = self.parent if self.implicit else None  # a stream shares its findings with what is inside
            stream = around.results.get(around._format or "") if around is not None else None
            findings = stream.findings if stream is not None else None
            if findings is not None:
                findings.call(self.name, f"{self.outermost.path} ({self.name})")
            result = self.results[parser.name] = Result(self, parser, findings)
            for note in self.notes:
                result.findings.add(note)
        return result

    @property
    def own_result(self) -> Result:
        """What the best parser of this itself made of it, though it may only wrap another document."""
        return self._parse(None)

    def look_for_another_format(self) -> None:
        """Add a finding if this is read as a format that was named, and is surely of another one by its beginning."""
        result = self.own_result
        other = other_format(self, result.parser)
        if other is not None:
            self.is_other = True
            name = result.parser.name
            reason = f"it is no {name}: by its content it is {other}; leave out {spoken(f'-f {name}')}"
            result.findings.add(Finding("other-format", reason, source=self.name, offset=self.start))

    def assume(self, format: str) -> None:
        """Treat this as ``format`` from now on if no parser recognises it."""
        self._format, self._best = format, None

    @property
    def parsed(self) -> Extraction:
        """What the best parser reads: this, or the content of the compressed streams around it."""
        return extraction_of(self.result)

    @property
    def result(self) -> Result:
        """What the best parser made of this."""
        return self._known_best() or self.parse()

    @property
    def format(self) -> str:
        """Name of the best parser."""
        return self.result.parser.name

    @property
    def root(self) -> Node:
        """Root node of the best parser's tree."""
        return self.result.root

    @property
    def status(self) -> Status:
        """Status of the root."""
        return self.result.status

    @property
    def findings(self) -> FindingList:
        """What was found wrong so far."""
        return self.result.findings

    def node(self, path: str = "") -> Node:
        """Return the node at ``path``, that of the member with this name, or a child of the root with this very key.

        Raises `PathError`.
        """
        root = self.root
        try:
            return root.at(path)
        except PathError:
            found = self.result.listing.find_member(path)
            if found is None and root.shape == MAP:
                found = root.find(path)  # as `tree` prints keys that a path quotes, such as "a.b"
            if found is None:
                raise
            return found

    def get(self, path: str = "") -> Any:
        """Return the value at ``path``: a scalar, or a view of a container. Raises `PathError`."""
        return self.node(path).load()

    def walk(self, *, detail: bool = True) -> Iterator[Visit]:
        """Yield every node, depth first, in one pass."""
        return self.result.walk(detail=detail)

    def check(self, *, strict: bool = False, around: bool = True, viewer: Any = None) -> Iterator[Finding]:
        """Parse everything and yield every finding; ``strict`` adds the rules of the format's reference reader.

        ``around=False`` leaves out the streams and archives around it (see `verify`), if they were checked already.
        A ``viewer`` of it that exists is asked instead of a new one. What only its tensors show, such as bytes of them
        that nobody has, is told last; not with ``around=False``, since they may lie in what is around it.
        """
        from pparse.tree.code_use import code_findings

        with self.lock:
            viewer = viewer_for(self) if viewer is None else viewer
        told: set[Finding] = set()
        for finding in viewer.check(strict=strict) if viewer is not None else self.result.check(strict=strict):
            told.add(finding)
            yield finding
        inner = self.parsed
        if around:
            inner.verify()
        else:
            inner.verify_streams()
        noted = [finding for finding in self.findings if finding not in told]
        yield from noted
        yield from code_findings(inner.parse().listing.globals(), self.name)
        told.update(noted)
        if around and viewer is not None:
            yield from (finding for finding in viewer.all_findings() if finding not in told)

    def forget(self) -> None:
        """Drop what parsers made of this and of all inside it; keep the bytes and what is known of them.

        Needed to continue once a source serves other bytes than before: see `Data.revision`.
        """
        with self.lock:
            inner = self.parsed
            for result in inner.results.values():
                result.findings.drop(inner.name)
            inner.results.clear()
            inner.children.clear()

    def outward(self, *, implicit: bool = False) -> Iterator[Extraction]:
        """Yield this, and each that the one before lies in; ``implicit``: as far as it only had to be decompressed."""
        level: Extraction | None = self
        while level is not None:
            yield level
            level = level.parent if level.implicit or not implicit else None

    @property
    def topmost(self) -> Extraction:
        """The opened extraction that contains this."""
        return list(self.outward())[-1]

    @property
    def outermost(self) -> Extraction:
        """The extraction whose content this is, with steps of decompression undone."""
        return list(self.outward(implicit=True))[-1]

    def _containers(self) -> list[Container]:
        """Return the parsers of this that hold other documents."""
        found = (result.container for result in self.results.values())
        return [container for container in found if container is not None]

    def verify_streams(self, *, unless_indexed: bool = False) -> None:
        """Decode the compressed streams around this to their ends, so that everything wrong with them is known.

        ``unless_indexed``: skip those whose gzip index fits, for a listing that read only a few places.
        """
        for level in islice(self.outward(implicit=True), 1, None):
            for container in level._containers():
                container.verify_stream(unless_indexed=unless_indexed)

    def verify(self) -> None:
        """Read the streams and archive members around this to their ends, innermost first, to compare their checksums.

        Findings about them are added on the way.
        """
        for level in self.outward():
            if level.origin is not None and not level.proved:
                finding = level.origin[0].verify_opened(level)
                level.proved = True
                if finding is not None:
                    self.findings.add(finding)
            for container in level._containers():
                container.verify_stream()

    def resolve(self) -> None:
        """Do once what `verify` does, where it costs little, before possibly damaged values are returned.

        Little means a member or rest of a stream of at most 4 MiB compressed and 32 MiB unpacked.
        """
        if self._confirmed or self.parent is None:
            return
        with self.lock:
            begun: list[Extraction] = []
            extraction: Extraction | None = self
            try:
                while extraction is not None and not (extraction._confirmed or extraction._confirming):
                    begun.append(extraction)
                    extraction._confirming = True
                    if extraction.origin is not None and not extraction.proved:
                        extraction.origin[0].resolve_opened(extraction)
                    for container in extraction._containers():
                        container.resolve_stream()
                    extraction = extraction.parent
                for extraction in begun:  # not earlier: others must not read until this succeeded
                    extraction._confirmed = True
            finally:
                for extraction in begun:
                    extraction._confirming = False

    def view(self) -> Any:
        """Return the viewer of this extraction. Raises `UnsupportedError` if its format has none."""
        viewer = viewer_for(self)
        if viewer is None:
            container = self.result.container
            held = container.holds() if container is not None else None
            known = f" (it holds {held}, whose tensors this version does not read yet)" if held is not None else ""
            reason = why_no_viewer(self) or f"there is no viewer for {self.format}{known}"
            raise UnsupportedError(f"{reason}; use open() and its nodes", source=self.name)
        return viewer

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Pickle a handle (docs/handles.md). Raises `SourceError` if the document cannot be opened again."""
        if self.session.opened is None:
            raise SourceError("only a document opened by pparse.open can be pickled", source=self.outermost.name)
        found: tuple[Any, tuple[object, ...]] = self.session.opened.reduce(self)
        return found

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def close(self) -> None:
        """Close the document this belongs to."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        size = "unknown size" if self.size is None else f"{self.size} bytes"
        return f"<{type(self).__name__} {self.path!r}, {size}>"


_DOORS: Final = "assume child fetch_siblings get node parse verify verify_streams sibling view walk"
guard(Extraction, _DOORS.split())


def extraction_of(result: Result) -> Extraction:
    """Return the extraction that ``result`` was made of, which the tree knows only as a `pparse.tree.host.Host`."""
    return result.extraction  # type: ignore[return-value]


class FolderExtraction(Extraction):
    """A folder, and nothing outside it (except targets of symbolic links in it)."""

    is_folder = True

    def __init__(
        self, session: Session, folder: Folder, name: str, parent: Extraction | None = None, format: str | None = None
    ) -> None:
        super().__init__(session, name, BytesData(b"", name, session.stats), parent=parent, format=format)
        self._folder = folder
        self.members = list(folder.names() or ())
        """Names of the files in it."""
        self.named = self
        """The folder that was named to open this one, which stands for it: see `snapshot_of`."""

    @property
    def folder(self) -> Folder:
        """The folder."""
        return self._folder


def snapshot_of(here: FolderExtraction) -> str | None:
    """Return the folder below that a folder without models of its own stands for; None if it stands for none.

    A model's folder in a download cache of Hugging Face: ``refs/main`` holds the commit of ``snapshots/<commit>``
    (huggingface_hub's guide "Understand caching"). The folder in which DeepSpeed saves its steps: ``latest`` holds the
    name of one (``save_checkpoint`` in deepspeed/runtime/engine.py).
    """
    if not here.members:  # a cache holds folders alone
        commit = _line_in(here, _REVISION)
        return f"snapshots/{commit}" if _COMMIT.fullmatch(commit) else None
    if _LATEST not in here.members or any(name.endswith(model_extensions()) for name in here.members):
        return None
    step = _line_in(here, _LATEST)
    try:
        names = here.folder.below(step).names() if step in here.folder.folders() else None
    except (PathError, SourceError):
        names = None
    return step if any(name.endswith(_STATES) for name in names or ()) else None


def _line_in(here: FolderExtraction, name: str) -> str:
    """Return the text of a small file; nothing if it cannot be opened."""
    try:
        return here.sibling(name, any_content=True).data.known(0, _LINE).decode("utf-8", "replace").strip()
    except SourceError:
        return ""


def _find_size(data: Data, check_cancelled: Callable[[], None]) -> int:
    """Return the size of ``data``, reading to its end; only used where an end must be named."""
    from pparse.errors import GapError

    low, step = 0, 1 << 16
    while True:
        check_cancelled()
        try:
            chunk = data.pread(low, step)
        except GapError as gap:
            if gap.length is None:
                return low
            low += gap.length
            continue
        if data.size is not None:
            return data.size
        if not chunk:
            return low
        low += len(chunk)
