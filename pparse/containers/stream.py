"""Compressed streams as documents: base class of parsers of files that hold one other file (gzip, bz2, xz, zstd …).

The tree of a stream is a map: ``content``, the decompressed bytes; ``gaps``, the ranges of the file that had to be
skipped; and format-specific data. Opening a stream without naming its format returns the document inside, if that is
recognised: decompression is implicit.
"""

from __future__ import annotations

from contextlib import suppress

from pparse.codecs.table import CODECS
from pparse.containers.content import Collector, read_through
from pparse.data.trailing_bytes import trailing_severity
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, Fault, LimitError, PathError
from pparse.findings import Finding, Severity, Status
from pparse.limits import LITTLE, LITTLE_UNPACKED
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import Container, Listing, Parser, signatures
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from pparse.compressed.gzip_index import GzipIndex
    from pparse.compressed.resumed import ResumedData, StreamProblem
    from pparse.containers.content import ContentSink, Verdict
    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.result import Result


class StreamParser(Parser, Listing, Container):
    """Base of the parsers of compressed streams: one content, which is a child extraction.

    A subclass names its ``codec``; what `pparse.codecs.table` says of that is said of the format, too.
    """

    codec: ClassVar[str] = ""
    # Suffixes of such streams, and what replaces them in the name of the content.
    suffixes: ClassVar[dict[str, str]] = {}
    is_generic = True
    root_shape = MAP
    shapes: ClassVar[dict[str, str]] = {"gaps": LIST}
    member_word = "file"
    notes_findings = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = CODECS.get(cls.codec)
        if known is not None:
            cls.name, cls.description = known.name, known.description
            cls.extensions, cls.suffixes, cls.media_type = known.extensions, known.suffixes, known.media_type
            cls.references, cls.limitations = known.references, known.limitations
            cls.signatures = tuple(mark for at, magic in known.marks for mark in signatures(magic, at=at))

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.extraction = extraction_of(result)
        self._content: ResumedData | None = None
        self._inner: Extraction | None = None
        self._noted = False

    @property
    def checks(self) -> bool:
        """Whether a checksum covers the content."""
        return CODECS[self.codec].checked

    # -- the content -------------------------------------------------------------------------------------------------

    @property
    def content(self) -> ResumedData:
        """The decompressed content. Raise `UnsupportedError` if the codec's library is missing."""
        content = self._content  # no lock if it exists: `note_problems` may ask, see there
        if content is None:
            with self.lock:
                content = self._content = self._content or self._open_content()
        return content

    def _open_content(self) -> ResumedData:
        from pparse.compressed.resumed import ResumedData

        extraction = self.extraction
        session = extraction.session
        end = extraction.end
        source = extraction.reader if end is not None else extraction.data.range(extraction.start, 1 << 62)
        content = ResumedData(
            source,
            self.codec,
            budget=session.budget,
            limits=session.limits,
            scratch=session.spools,
            concatenated=True,
            name=f"{extraction.path}::{self.content_name()}",
            stats=session.stats,
            poll=session.check_cancelled,
            index=self.find_index(),
        )
        session.adopt(content)
        self.result.root  # noqa: B018 -- made now, for `note_problems`
        content.on_end = self.note_problems
        return content

    def find_index(self) -> GzipIndex | None:
        """Return the index that makes reads in the middle cheap, if there is one."""
        return None

    def is_indexed(self) -> bool:
        """Say whether there is an index without a known contradiction."""
        return False

    def content_name(self) -> str:
        """Return the name of the content: that of the file without the suffix of the compression."""
        name = self.extraction.name.replace("\\", "/").rpartition("/")[2]
        lower = name.lower()
        for suffix, left in self.suffixes.items():
            if lower.endswith(suffix) and len(name) > len(suffix):
                return name[: -len(suffix)] + left
        return f"{name}.content"

    def inner(self) -> Extraction:
        """Return the content as an extraction."""
        if self._inner is None:
            extraction = self.extraction
            inner = extraction.child(self.content_name(), self.content)
            inner.go_deeper()
            inner.implicit = True
            self._inner = inner
        return self._inner

    def unwrapped(self) -> Extraction | None:
        """Return the content. Raises `UnsupportedError` if the codec's library is missing."""
        return self.inner()

    def enter(self, name: str) -> Extraction:
        """Return the content, by its name. Raise `PathError` for another name."""
        known = self.content_name()
        if name not in (known, "content"):
            raise PathError(f"{self.extraction.path} ({self.name}) holds one file, {known!r}", path=name)
        return self.inner()

    # -- what is wrong -----------------------------------------------------------------------------------------------

    def verify_stream(self, *, unless_indexed: bool = False) -> None:
        """Decode to the end, so that all errors are among the findings; ``unless_indexed`` does not decode if there is
        an index without a known contradiction."""
        if unless_indexed and self.is_indexed():
            return
        self.content.verify()
        self.note_problems()

    def resolve_stream(self) -> None:
        """Decode to the end if little of the stream and of its content is left."""
        content = self._content
        if content is not None and not content.finished and content.left <= LITTLE:
            with suppress(LimitError):
                content.available(LITTLE_UNPACKED, 1)

    def note_problems(self) -> None:
        """Add known errors of the stream to the findings.

        The stream calls this with its lock held, in any thread that reached its end: it must not wait for the session's
        lock.
        """
        if self._noted or self._content is None or not self._content.finished:
            return
        self._noted = True
        for problem in self._content.problems:
            self.result.findings.add(self._finding(problem))
        for suspect in self._content.suspect_ranges:
            reason = f"bytes {suspect.start:,} to {suspect.end:,} of the content may be wrong: {suspect.reason}"
            self.result.findings.add(Finding("doubt", reason, source=self.extraction.name))
        self.result.close_node(self.result.root, self._status(), None)

    def _finding(self, problem: StreamProblem) -> Finding:
        content = self.content
        cut = isinstance(content.error, EndOfDataError) and problem is content.problems[-1]
        length = max(0, problem.end - problem.at)
        behind = problem.fault is Fault.TRAILING and not content.is_suspect
        return Finding(
            "trailing" if behind else "truncated" if cut else "malformed",
            problem.reason,
            severity=trailing_severity("stream") if behind else Severity.ERROR,
            source=self.extraction.name,
            offset=problem.at,
            length=None if cut else length or None,
        )

    def _status(self) -> Status:
        content = self.content
        if not content.is_suspect:
            return Status.COMPLETE
        if content.suspect_ranges or len(content.problems) > 1 or (content.problems and content.error is None):
            return Status.DAMAGED
        return Status.after(content.error)

    # -- the tree ----------------------------------------------------------------------------------------------------

    def root_children(self) -> Iterator[Entry]:
        """Yield the children of the root."""
        extraction = self.extraction
        start, end = extraction.start, extraction.end
        yield Entry("content", "content", start, end, status=None)
        yield Entry("gaps", "gaps", start, end)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the children of the root, or the gaps (which decodes everything)."""
        entries = self.root_children() if node.parent is None else self.entries_of(node)
        for entry in entries:
            index.add_entry(entry)
        return True

    def entries_of(self, node: Node) -> Iterator[Entry]:
        """Yield the children of a container below the root."""
        self.verify_stream()
        for problem in self.content.problems:
            yield Entry(
                None,
                "gap",
                problem.at,
                max(problem.at, problem.end),
                value=problem.reason,
                status=Status.DAMAGED,
                finding=self._finding(problem),
            )

    def resolve(self, node: Node) -> None:
        """Determine how the stream ends, by decoding it."""
        self.verify_stream()
        self.result.close_node(node, self._status(), None)

    def load_scalar(self, node: Node) -> Any:
        """Return the content, if it is whole; or the value of another scalar."""
        if node.kind != "content":
            return super().load_scalar(node)
        session = self.extraction.session
        keep = Collector(lambda count: session.limits.check("scalar_bytes", count, "the content", path=node.path))
        verdict = self.verify(keep)
        self.result.close_node(node, verdict.status, None)
        if not verdict.is_complete:
            raise verdict.error(node.path, self.extraction.name)
        return keep.content()

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of the content."""
        if node.kind != "content":
            return super().open_scalar(node)
        return self.content.range(0, self.inner().find_end())

    def verify(self, sink: ContentSink | None = None) -> Verdict:
        """Read all of the content and return a verdict; see `pparse.containers.content.read_through`."""
        verdict = read_through(self.extraction.session, self.content, 0, None, sink=sink)
        self.note_problems()
        return verdict

    # -- listings ----------------------------------------------------------------------------------------------------

    def members(self) -> Iterator[Member]:
        """Yield the content, after decoding it to its end."""
        self.verify_stream()
        content = self.content
        size = content.size
        if size is None:
            size = content.gaps[-1].offset if content.gaps else 0
        flaw = content.range_status(0, size) if content.flawed else None
        wrong = (item.reason for item in self.result.findings if item.is_fault)
        reason = flaw.reason if flaw is not None and flaw.reason is not None else next(wrong, None)
        yield Member(self.content_name(), "content", self.extraction.start, size, self._status(), reason=reason)

    def find_member(self, name: str) -> Node | None:
        """Return the content, by its name."""
        return self.result.root.find("content") if name == self.content_name() else None

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Decode everything, and compare checksums."""
        root = self.result.root
        self.verify_stream()
        yield Visit.of(root, 0)
        gaps = self.content.gaps
        if strict and gaps:
            reason = f"{len(gaps)} ranges of the content are lost"
            self.result.findings.add(Finding("gaps", reason, severity=Severity.NOTE, source=self.extraction.name))
