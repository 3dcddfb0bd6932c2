"""Writes the content of containers to a folder: the walk that `pparse extract` and `pparse recover` share.

The trees of the parsers already go on behind damage; here their members are read through (`pparse.containers.content`),
written by the rules of `pparse.recovery.target`, and told of to a report.
"""

from __future__ import annotations

from array import array
from contextlib import contextmanager, suppress
from copy import copy
from hashlib import blake2b
from operator import attrgetter

from pparse.containers.archive import ArchiveParser, NameCounter, nested_too_deep, quoted, too_many_containers
from pparse.containers.content import Collector, Verdict, read_through
from pparse.containers.stream import StreamParser
from pparse.data.base import Access
from pparse.document.appearance import ARCHIVE_EXTENSIONS
from pparse.document.extraction import Extraction, extraction_of
from pparse.document.registry import viewer_for
from pparse.errors import DataError, FaultError, FormatError, LimitError, PparseError, SourceError
from pparse.findings import BROKEN, Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.parsers.shards import ShardSet
from pparse.recovery.document_verdict import DocumentVerdict, is_whole_below, unlike_its_name, verify_document
from pparse.recovery.model_files import BesideJudge, ModelFiles, ShardWriter, base_name, files_beside
from pparse.recovery.names import changed, safe_name
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage import AS_FOUND, has_lost_bytes, is_model_name, salvage
from pparse.recovery.target import FileSink, LimitMet
from pparse.writers.journal import was_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final, TypeGuard

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Data
    from pparse.findings import FindingList
    from pparse.recovery.model_files import FolderFiles
    from pparse.recovery.target import Target
    from pparse.tree.parser import Parser
    from pparse.tree.result import Result
    from pparse.writers.journal import Journal

    Report = Callable[[RecoveredFile], object]
    Judgement = DocumentVerdict | None

# The folder for bytes without a name, beside the members of their container.
NAMELESS: Final = "nameless"
# The longest target of a symbolic link.
MOST_LINK: Final = 4096
_ZIP_HEADER: Final = lazy_pattern(rb"PK(?:\x03\x04|\x01\x02)")  # of a member, and its entry in the directory


class _Level:
    """A container being unpacked: its remaining members, and the folder its files go to."""

    __slots__ = ("count", "data", "member", "members", "names", "parser", "prefix", "source", "spans")

    def __init__(self, parser: ArchiveParser, prefix: str, source: str) -> None:
        self.spans = array("q")  # where members begin and end, if bytes around them may be of others
        self.count = 0  # number of members that are files or folders
        self.member: tuple[_Level, ArchiveMember] | None = None  # its own member in the container around it
        self.parser = parser
        self.data = parser.result.extraction.data
        self.members: Iterator[ArchiveMember] = parser.files()
        self.prefix = prefix
        self.source = source
        self.names = NameCounter()

    def place_of(self, member: ArchiveMember) -> tuple[str, str]:
        """Return the folder of an entered member, and the source name of its files."""
        return f"{self.prefix}{_safe(member)}/", f"{self.source}::{member.name}"


class Unpacker:
    """One walk over a document.

    ``recursive``: containers inside are entered. ``salvage``: incomplete model files are written in a form that their
    library opens, and bytes that lie between members, too. ``drain``: streams are read to their ends first, so that
    their checksums are compared. ``wanted`` selects members of the outermost container by name; None for all.
    """

    def __init__(
        self,
        document: Extraction,
        target: Target,
        report: Report,
        *,
        recursive: bool,
        drain: bool,
        salvage: bool = False,
        wanted: Callable[[str], bool] | None = None,
        findings: FindingList | None = None,
    ) -> None:
        self._document = document
        self.findings = document.findings if findings is None else findings
        """What was found wrong; of a folder, with all models in it."""
        self._session = document.session
        self.target = target
        self.trusted = ProvisionalVerdicts()
        """What was reported before streams were decoded to their ends."""
        self.steps = Steps(target, self.trusted.seen_by(report))
        """The units of work."""
        self.report = self.steps.tell
        self.limits: dict[str, LimitMet] = {}
        """The limits that cost a file something, by name."""
        self.models = ModelFiles(self)
        """What writes models in several files."""
        self._recursive, self._drains, self._salvages, self._wanted = recursive, drain, salvage, wanted
        self._levels: list[_Level] = []
        self.writes_beside = True
        """Whether the files beside a document are written with it; else whoever calls writes all files."""
        self._beside = BesideJudge()
        self._entered = 0
        self._in_vain = 0  # bytes that must be decoded though a limit keeps them from being written
        self._share: tuple[int, int | None] = 0, None  # position of the walk in the outermost archive
        self._sink: FileSink | None = None  # what was written last

    def run(self, result: Result) -> None:
        """Write everything in ``result``, which belongs to the document.

        Raise `LimitError` at a limit of the target, `SourceError` if the disk refuses.
        """
        with self._telling_end():
            self.steps.do(("document", base_name(self._document.name)), self._lists(), lambda: self._begin(result))
            with self._session.telling():
                self._walk()

    def run_folder(self, files: FolderFiles) -> None:
        """Write all files of a folder. Raises as `run`."""
        with self._telling_end(), self._session.telling():
            for key, work in files.units(self.models, self.target):
                self._session.check_cancelled()
                self.steps.do(key, [self.findings], work)

    @property
    def was_misled(self) -> bool:
        """Whether files were reported as complete from a stream that contradicted its checksum at its end."""
        return not self._drains and self.trusted.were_wrong()

    def _begin(self, result: Result) -> bool:
        """Enter the document, or write it. Return True if it is a container."""
        name = base_name(self._document.name)
        if not self._enter(result, "", name):
            inner = extraction_of(result)
            inner.verify()
            if isinstance(result.parser, ShardSet) and not result.parser.is_alone:
                ShardWriter(self, result, result.parser).run(self.verdict_on(inner))
            elif not self.models.save_named(self._document, result):
                name = name if inner is self._document else base_name(inner.name)
                self.write_document(result, name, name)
        return bool(self._levels)

    def _lists(self) -> list[FindingList]:
        """Return the lists that may receive findings during a unit: of the document and of all entered containers."""
        lists = [self.findings]
        for extraction in (*(level.parser.extraction for level in self._levels), self._document):
            lists += [result.findings for around in extraction.outward() for result in around.results.values()]
        seen: set[int] = set()
        return [found for found in lists if not (id(found) in seen or seen.add(id(found)))]  # type: ignore[func-returns-value]

    def _walk(self) -> None:
        while self._levels:
            self._session.check_cancelled()
            level = self._levels[-1]
            try:
                member = next(level.members, None)
            except FaultError as error:
                self.note("malformed", error.reason, source=level.source, offset=error.offset)  # what follows is lost
                member = None
            if member is None:
                self._leave(self._levels.pop())
                continue
            self._do_member(level, member)

    def _open_sink(self, name: str, mtime: float | None = None, compressed_size: int | None = None) -> FileSink:
        self._sink = FileSink(self.target, name, mtime, compressed_size)
        return self._sink

    # -- containers --------------------------------------------------------------------------------------------------

    def _enter(self, result: Result, prefix: str, source: str) -> bool:
        """Start on the members of a container, or write the content of a stream. Return False if it is neither."""
        parser = result.parser
        self._verify_streams(extraction_of(result))
        if isinstance(parser, StreamParser):
            self._write_stream(parser, prefix, source)
            return True
        if not self._is_archive(parser):
            return False
        self._entered += 1
        self._session.limits.check("containers", self._entered, "the number of containers")
        if self._drains:
            parser.suspect()
        self.trusted.watch(result.extraction.data)
        self._levels.append(_Level(parser, prefix, source))
        return True

    def _is_archive(self, parser: Parser) -> TypeGuard[ArchiveParser]:
        """Say whether to enter what ``parser`` reads: not a model of which the tensors are saved instead."""
        return isinstance(parser, ArchiveParser) and not (self._salvages and parser.viewer is not None)

    def _leave(self, level: _Level) -> None:
        """Finish a container: its findings count for the document."""
        result = level.parser.result
        level.parser.extraction.verify_streams()
        self._gather(result)
        if level.spans or not level.count:
            key = ("left", level.source, level.prefix, level.count)
            self.steps.do(key, self._lists(), lambda: self._write_left(level))
        if self._levels and level.data is not self._levels[-1].data:
            level.data.close()

    def _write_left(self, level: _Level) -> None:
        """Write what lies between the members, and around them, that may be of others."""
        if not level.count and level.member is not None:  # nothing was found in it: write it as it is
            self._write_member(*level.member)
        elif level.spans:
            spans = sorted(zip(level.spans[::2], level.spans[1::2], strict=True))
            for start, end in level.parser.unclaimed(spans):
                self._write_stretch(level, start, end)

    def _gather(self, result: Result) -> None:
        if result.findings is not self.findings:
            self.findings.extend(result.findings)

    def _verify_streams(self, extraction: Extraction) -> None:
        """Decode the streams around ``extraction`` to their ends, outermost first, if this walk does."""
        for outer in reversed(list(extraction.outward())) if self._drains else ():
            outer.data.verify()
            for result in outer.results.values():
                if isinstance(result.parser, StreamParser):
                    result.parser.verify_stream()

    def _write_stream(self, parser: StreamParser, prefix: str, source: str) -> None:
        extraction = parser.result.extraction
        name = self._unlike_a_model(prefix + parser.content_name(), damaged=parser.content.is_suspect)
        with self._open_sink(name, None, extraction.size) as sink:
            verdict = sink.reading(lambda: parser.verify(sink))
            if verdict.is_complete and parser.checks and not parser.content.is_suspect:
                verdict.verified = True
        self._gather(parser.result)
        self._tell(sink, verdict, name, source=source, offset=extraction.start)

    def _unlike_a_model(self, name: str, *, damaged: bool) -> str:
        """Return the name for a file that is not recognised as a model; a damaged one must not keep a model's name."""
        return AS_FOUND.format(name) if damaged and self._salvages and is_model_name(name) else name

    def write_document(self, result: Result, name: str, source: str, prefix: str | None = None) -> None:
        """Write a document that is not a container: as it is, or what can be saved of it."""
        extraction = extraction_of(result)
        judgement = self.verdict_on(extraction) if self._salvages else None
        if judgement is None or not self.salvage(extraction, name, judgement):
            odd = result.parser.is_generic and has_lost_bytes(extraction)
            self.write_plain(result, self._unlike_a_model(name, damaged=odd), source, judgement, prefix)

    def write_plain(
        self, result: Result, name: str, source: str, judgement: Judgement, prefix: str | None = None
    ) -> str | None:
        """Write a document as it is; return its path, None if there was nothing to write."""
        alone = self._salvages and self.writes_beside and not self._levels
        beside = files_beside(extraction_of(result)) if alone else []
        viewer = viewer_for(extraction_of(result)) if beside else None
        if judgement is not None and viewer is not None and judgement.parts == (0, 0):
            judgement.parts = viewer.extent().count, viewer.extent().verified  # wherever the tensors lie, all is saved
        path = self.write_bytes(extraction_of(result), name, source, judgement, prefix)
        folder = name[: name.rfind("/") + 1]
        for other, file in beside:
            self.write_bytes(file, folder + other)
        return path

    def write_bytes(
        self, file: Extraction, name: str, source: str = "", judgement: Judgement = None, prefix: str | None = None
    ) -> str | None:
        """Write a file as it is; return its path, None if there was nothing to write.

        ``judgement`` is the verdict of its own format, which counts, too.
        """
        data, start, end = file.data, file.start, file.find_end()
        with self._open_sink(name) as sink:
            verdict = sink.refused(data, start, end) or sink.reading(
                lambda: read_through(self._session, data, start, end, sink=sink)
            )
        if judgement is not None:
            judgement.count_for(verdict)
        self._tell(sink, verdict, name, prefix, source=source or name, offset=start)
        return None if sink.file is None else sink.file.path

    def verdict_on(self, extraction: Extraction) -> DocumentVerdict:
        """Check all of a document that is not a container; its findings count for the whole."""
        judgement = verify_document(extraction)
        self.findings.extend(judgement.findings)
        return judgement

    def salvage(self, extraction: Extraction, name: str, judgement: DocumentVerdict, *, keep: bool = True) -> bool:
        """Write the salvaged form of a model file that is not whole, or that its library refuses for another reason.

        Return False if it has none, or should be written as it is. ``keep``: if nothing is saved, write it as found.
        """
        try:
            if judgement.is_plain and not extraction.data.gaps:
                return False
            return salvage(extraction, self.target, name, report=self.report, is_alone=keep, keep=keep)
        except LimitError as error:
            if self.target.is_full:
                raise
            known: dict[str, Any] = {"source": extraction.path, "offset": extraction.start, "reason": error.reason}
            self.report(RecoveredFile(None, Status.UNSUPPORTED, raw_name=name, **known))
            self._meet(error, name, extraction.path)
            return True
        except DataError:
            return False

    # -- members -----------------------------------------------------------------------------------------------------

    def _do_member(self, level: _Level, member: ArchiveMember) -> None:
        outermost = len(self._levels) == 1
        level.count += member.kind != "gap"
        if self._salvages and level.parser.leaves_unclaimed:
            level.spans.extend((member.at, max(member.at, member.end)))
        listed = level.parser.listed_name(member, level.names)
        if outermost and self._wanted is not None and not self._wanted(listed):
            return
        self._progress(level, member)
        if member.kind == "folder":
            self.target.make_folder(level.prefix + member.name, None)
            self._tell_damage(level, member)
            return
        key = (member.kind, level.source, level.prefix, member.name, member.at, member.start)
        self.trusted.begin()
        self.steps.do(key, self._lists(), lambda: self._work_off(level, member, listed))
        self.trusted.end(level.data, member.start, member.end)

    def _work_off(self, level: _Level, member: ArchiveMember, listed: str) -> bool:
        """Write a member, or report why not. Return True if it was entered as a container instead."""
        if member.kind == "gap":
            if self._salvages:
                self._write_unclaimed(level, member)
        elif member.kind == "hardlink" and self._write_hard_link(level, member):
            pass
        elif member.kind == "symlink" and member.link is None and not self._read_link(level, member):
            self._write_member(level, member)  # its bytes are not a link target, or incomplete: keep them as a file
        elif member.kind not in ("file", "other"):
            what = f"{member.kind} to {member.link}" if member.link else member.kind
            place = {"path": member.name, "source": level.source, "offset": member.at}
            self.note("not-written", f"a {what}, which is never written", Severity.NOTE, **place)
            self._tell_damage(level, member)
        elif not (self._recursive and self._enter_member(level, member, listed)):
            self._write_member(level, member)
        return self._levels[-1] is not level

    def _enter_member(self, level: _Level, member: ArchiveMember, listed: str) -> bool:
        """Enter a member that is a container, or salvage a model file. Return False to write it as it is."""
        try:
            extraction = level.parser.open_member(member)
            parser = extraction.parse().parser
        except LimitError as error:
            # A container that is not checked may be truncated, inside of one that is whole.
            deep = level.parser.extraction.layers + 1 >= self._session.limits.nesting
            severity = Severity.ERROR if deep else Severity.WARNING
            self.note("limit", f"not entered: {error.reason}", severity, path=listed, source=level.source)
            return False
        except FormatError as error:
            return self._salvages and self._keep_unlike(level, member, listed, error)
        except DataError:
            return False  # not a container, or one that cannot be read
        if self._salvages and parser.needs_folder:
            extraction = self._beside.enter(level.parser, member)
        result = extraction.parse()
        if self._drains:
            extraction.verify()
            self._verify_streams(extraction_of(result))
        if not self._is_archive(parser) and not isinstance(parser, StreamParser):
            return self._salvages and self._save_member(level, member, extraction, result)
        if extraction_of(result).layers >= self._session.limits.nesting:
            self.findings.add(nested_too_deep(self._session.limits, listed, level.source))
            return False
        if self._entered >= self._session.limits.containers:
            self.findings.add(too_many_containers(self._session.limits, listed, level.source))
            return False
        by_name = member.name.lower().endswith(ARCHIVE_EXTENSIONS)
        sound = not by_name and (
            level.parser.verify(member).is_complete or (isinstance(parser, ArchiveParser) and parser.confirms_itself())
        )
        if sound and is_whole_below(extraction):
            return False  # a document that happens to be a zip, and is whole
        entered = self._enter(result, *level.place_of(member))
        if entered and self._levels[-1] is not level:
            self._levels[-1].member = (level, member)
        return entered

    def _keep_unlike(self, level: _Level, member: ArchiveMember, listed: str, error: FormatError) -> bool:
        """Write what has the name of a model and is none, under another name. Return False if that is not certain."""
        finding = unlike_its_name(quoted(listed), level.parser.open_member(member), error)
        if finding is None:
            return False
        self.findings.add(finding)
        return self._write_member(level, member, DocumentVerdict.on_damage(finding), as_found=True)

    def _save_member(self, level: _Level, member: ArchiveMember, extraction: Extraction, result: Result) -> bool:
        """Write what can be saved of a member that is a document. Return False to write it as it is.

        A compressed document is written as it is if document and stream are whole. Otherwise it becomes a folder with
        what is saved of it, since that is not a stream and must not have the name of one.
        """
        if extraction.entered:
            return self._save_with_others(level, member, extraction, result)
        streams = list(_streams_around(extraction, result))
        damaged = any(not stream.root.is_complete for stream in streams)
        for stream in streams:
            self._gather(stream)
        judgement = self.verdict_on(extraction_of(result))
        if not streams:
            return self.salvage(extraction, level.prefix + member.name, judgement) or self._write_member(
                level, member, judgement
            )
        if not damaged and judgement.is_whole:
            return False
        prefix, source = level.place_of(member)
        self.write_document(result, prefix + base_name(result.extraction.name), source, prefix)
        return True

    def _save_with_others(self, level: _Level, member: ArchiveMember, extraction: Extraction, result: Result) -> bool:
        """Do what `_save_member` does for a member that belongs to others, or stands for one of them."""
        model = extraction_of(result)
        name = level.prefix + _safe(member)
        if model.outermost is not extraction:
            judgement = self._beside.judge_file(model, member)
            damaged = judgement is not None and not judgement.is_whole
            return self._write_member(level, member, judgement, as_found=damaged)
        judgement = self._beside.verdict_on(model)
        self.findings.extend(judgement.findings)
        if not self._beside.lacks_all(model):
            self.salvage(model, name, judgement, keep=False)
        if not self._beside.is_whole_alone(model):
            return self._write_member(level, member, judgement, as_found=True)
        # If there is a fault, it is in the others: nothing is wrong with this one.
        return self._write_member(level, member, judgement if judgement.is_whole else None)

    def _write_member(
        self, level: _Level, member: ArchiveMember, judgement: Judgement = None, *, as_found: bool = False
    ) -> bool:
        """Write a member, and return True.

        ``judgement`` is the verdict of its own format; ``as_found``: it must not keep the name of a model.
        """
        name = level.prefix + _safe(member)
        if as_found:
            name = AS_FOUND.format(name)
        elif not (judgement and judgement.is_whole) and self._unlike_a_model(name, damaged=True) != name:
            # Its format is not recognised, or it is one that others are made of.
            name = self._unlike_a_model(name, damaged=level.parser.verify(member).status in BROKEN)
        compressed_size = None if member.method == "stored" else member.compressed_size
        with self._open_sink(name, member.mtime, compressed_size) as sink:
            if sink.refuses(member):
                verdict = Verdict()
                if level.data.access is not Access.FREE:  # decoded to reach what follows
                    self._in_vain += member.compressed_size or 0
            else:
                verdict = level.parser.verify(member, sink, sink.skip)
        if judgement is not None:
            judgement.count_for(verdict)
        offset = min(member.at, member.start)
        self._tell(sink, verdict, member.name, level.prefix, source=level.source, offset=offset)
        return True

    def _read_link(self, level: _Level, member: ArchiveMember) -> bool:
        """Read the target of a symbolic link, which is its content. Return False if it cannot be a link target."""

        def check(count: int) -> None:
            if count > MOST_LINK:
                raise LimitError("no link leads to so long a name", option="", wanted=count, got=MOST_LINK)

        keep = Collector(check)
        with suppress(LimitError):
            if level.parser.verify(member, keep).is_complete and b"\0" not in keep.content():
                member.link = keep.content().decode("utf-8", "backslashreplace")
        return member.link is not None

    def _write_hard_link(self, level: _Level, member: ArchiveMember) -> bool:
        """Write the target of a hard link as a separate file. Return False if it is not in the archive."""
        node = level.parser.member_node(member.link or "")
        target = None if node is None else node.note
        if target is None or target.kind != "file":
            return False
        linked = copy(target)
        linked.name, linked.raw_name, linked.mtime = member.name, member.raw_name, member.mtime
        return self._write_member(level, linked)

    def _write_unclaimed(self, level: _Level, member: ArchiveMember) -> None:
        """Write bytes without a name; or enter them, if they are a nested zip: its own headers tell it."""
        may_enter = self._recursive and len(self._levels) < self._session.limits.nesting and level.parser.name != "zip"
        if self._write_stretch(level, member.start, member.end, member, unless_zip=may_enter):
            return
        name, outer = f"{level.prefix}{NAMELESS}/at-{member.start}", level.parser.extraction
        lost = Extraction(self._session, f"{name}.bin", outer.data, member.start, member.end, outer)
        with suppress(FaultError):
            result = lost.parse("zip")
            if any(found.kind == "file" for found in result.parser.files()):  # type: ignore[attr-defined]
                self._enter(result, f"{name}.zip/", f"{level.source}::{lost.name}")
                return
        self._write_stretch(level, member.start, member.end, member)

    def _write_stretch(
        self, level: _Level, start: int, end: int, member: ArchiveMember | None = None, *, unless_zip: bool = False
    ) -> bool:
        """Write bytes without a name, and return True; ``unless_zip``: False, with none written, if they look like a
        zip."""
        name = f"{level.prefix}{NAMELESS}/at-{start}.bin"
        with self._open_sink(name) as sink:
            to = _UnlessZip(sink) if unless_zip else sink
            try:
                verdict = sink.reading(lambda: read_through(self._session, level.data, start, end, sink=to))
            except _ZipFoundError:
                sink.restart()
                return False
            if member is None or not member.is_complete:
                verdict.worsen(Status.DAMAGED, "nameless", "its member is lost: no header names these bytes")
            elif member.finding is not None:  # it is after the end of the archive
                verdict.reason = verdict.reason or member.finding.reason
        if sink.file is not None:
            self._tell(sink, verdict, name, source=level.source, offset=start)
        return True

    # -- what is told ------------------------------------------------------------------------------------------------

    def note(self, code: str, reason: str, severity: Severity = Severity.ERROR, **known: Any) -> None:
        """Add a finding."""
        self.findings.add(Finding(code, reason, severity=severity, **known))

    def _tell(self, sink: FileSink, verdict: Verdict, name: str, prefix: str | None = None, **known: Any) -> None:
        """Report a file; ``known``: its source, and its offset there.

        ``prefix``: the folders before the part of its path that is its own name.
        """
        sink.conclude(verdict)
        written = sink.file
        if written is not None and verdict.code != "nameless":
            verdict.place(written.bytes)
        if sink.error is not None:  # our own limit, not a fault of the member
            verdict.status = Status.UNSUPPORTED if written is None else Status.TRUNCATED
            verdict.reason = sink.error.reason
            if written is not None:
                verdict.gaps.add(written.bytes, None)
        if written is None and verdict.status is not Status.UNSUPPORTED:
            verdict.status = Status.MISSING
        file = RecoveredFile.judged(written, verdict, **known)
        if file.path is None:
            file.raw_name = name
        elif prefix is not None:
            own = file.path.split("/")[prefix.count("/") :]
            file.raw_name = name if changed(name, own) else None
        self.report(file)
        if sink.error is not None:
            self._meet(sink.error, name, known["source"])

    def _meet(self, error: LimitError, name: str, source: str) -> None:
        """Record a limit that a file met. Raise ``error`` if nothing more can be written, or it would be in vain."""
        if self.target.is_full or self._in_vain > 4 * self.target.max_bytes:
            raise error
        self.note("limit", error.reason, path=name, source=source)
        option = error.option.rpartition("=")[0] or error.option.split(" ")[0]
        self.limits.setdefault(option, LimitMet()).add(error)

    @contextmanager
    def _telling_end(self) -> Iterator[None]:
        """Report a walk that ends early, and what was written of the current file.

        If the user stops it on purpose, nothing is reported, since it may continue later.
        """
        try:
            yield
        except BaseException as error:
            if not was_stopped(error):
                why = error.reason if isinstance(error, PparseError) else type(error).__name__
                reason = f"stopped before the end, so some files are missing: {why}"
                self.note("stopped", reason, source=base_name(self._document.name))
                sink = self._sink
                if (
                    sink is not None
                    and sink.file is not None
                    and sink.interrupted
                    and not isinstance(error, SourceError)
                ):
                    cut = RecoveredFile.written(sink.file, Status.TRUNCATED, reason="stopped while it was written")
                    self.report(cut)
            raise

    def _tell_damage(self, level: _Level, member: ArchiveMember) -> None:
        """Report what is wrong with a member that is not written, as a check does."""
        if member.size or not member.is_complete:
            finding = level.parser.verify(member).finding(member.name, level.source)
            if finding is not None:
                self.findings.add(finding)

    def _progress(self, level: _Level, member: ArchiveMember) -> None:
        progress = self._session.progress
        if progress is not None:
            if len(self._levels) == 1:  # for members of a nested archive, the progress is that of the nested archive
                self._share = member.at, level.data.size
            done, size = self._share
            progress(done if size else 0, size, member.name)


class _ZipFoundError(Exception):
    """What is read looks like a zip."""


class _UnlessZip:
    """Passes content on to ``sink``; raises `_ZipFoundError` at the first header of a member of a zip."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self.restart = sink.restart
        self._tail = b""

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> None:
        if _ZIP_HEADER.search(self._tail + chunk):
            raise _ZipFoundError
        self._tail = chunk[-3:]
        self._sink(offset, chunk, unknown)


def _streams_around(extraction: Extraction, result: Result) -> Iterator[Result]:
    """Yield the results of the compressed streams between a member and the document in it, innermost first."""
    for inner in extraction_of(result).outward():
        yield from [found for found in inner.results.values() if isinstance(found.parser, StreamParser)]
        if inner is extraction:
            return


def _safe(member: ArchiveMember) -> str:
    """Return the member's own name as a safe path."""
    return "/".join(safe_name(member.name, member.raw_name if "\ufffd" in member.name else None))


# -- units of work -----------------------------------------------------------------------------------------------------

# Of a file of the report, what the journal has.
_TOLD: Final = sorted({"path", *RecoveredFile.__annotations__} - {"gaps"})
_told_of: Final = attrgetter(*_TOLD)
# The most that lies between two neighbouring members: padding and headers.
_HEADERS: Final = 2048


class Steps:
    """Does the units of one run into ``target``, and reports each file, written now or before, to ``report``.

    A unit is a member of a container, or a document that is not a container: the files written for it, what is reported
    about them, and the findings. The walk numbers the units, and is the same each time: those finished in the journal
    are only reported again.
    """

    def __init__(self, target: Target, report: Report) -> None:
        self._target = target
        self._journal = target.journal
        self._report = report
        self._number = 0
        self.resumed = 0
        """Number of units that were done by an earlier run."""

    def tell(self, file: RecoveredFile) -> None:
        """Report a file of the current unit."""
        self._journal.put("told", file.status.value, list(file.gaps), _told_of(file))
        self._report(file)

    def do(self, key: tuple[object, ...], lists: Sequence[FindingList], work: Callable[[], bool | None]) -> None:
        """Do one unit, identified by ``key``, unless it was done before.

        ``lists`` are all lists that may receive findings. ``work`` returns True if the unit turned out to be a
        container, for which nothing was written yet.
        """
        journal, number = self._journal, self._number
        digest = blake2b(repr(key).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
        self._number += 1
        offset = journal.unit(number)
        if offset is not None:
            done = self._was_done(journal, offset, digest)
            if done == "entered":
                work()
                return
            if done == "done":
                self._tell_again(journal, offset, lists)
                self.resumed += 1
                return
            self._target.withdraw(offset)  # remove what is left of it
        journal.put("unit", number, digest)
        before = [(len(found) - found.omitted, found.omitted, found.omitted_errors) for found in lists]
        entered = work()
        for at, (found, (count, omitted, errors)) in enumerate(zip(lists, before, strict=True)):
            for place in range(count, len(found) - found.omitted):
                journal.put("found", at, found[place].to_dict())
            if found.omitted > omitted:
                journal.put("omitted", at, found.omitted - omitted, found.omitted_errors - errors)
        journal.put("entered" if entered else "done", flush=True)

    def _was_done(self, journal: Journal, offset: int, digest: str) -> str:
        """Return how the unit ended; "" if its files have changed, or if it is a different unit."""
        try:
            for at, _, entry in journal.entries(offset):
                if at == offset and entry[2] != digest:
                    return ""
                if entry[0] == "file" and entry[2] is not None and not self._target.is_intact(entry[2], entry[3]):
                    return ""
                if entry[0] == "told":
                    _told(*entry[1:])
                elif entry[0] == "found":
                    _finding(entry[2])
                elif entry[0] in ("done", "entered"):
                    return str(entry[0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            pass  # not a line of a journal
        return ""

    def _tell_again(self, journal: Journal, offset: int, lists: Sequence[FindingList]) -> None:
        for _, _, entry in journal.entries(offset):
            if entry[0] == "file":
                parts, path, _, output, skipped = entry[1:]
                self._target.adopt(tuple(parts), path, output, skipped)
            elif entry[0] == "told":
                self._report(_told(*entry[1:]))
            elif entry[0] == "found":
                lists[entry[1]].add(_finding(entry[2]))
            elif entry[0] == "omitted":
                found = lists[entry[1]]
                found.omitted += entry[2]
                found.omitted_errors += entry[3]
                found.errors += entry[3]
            elif entry[0] == "done":
                return


def _told(status: str, gaps: list[Any], known: list[Any]) -> RecoveredFile:
    named = dict(zip(_TOLD, known, strict=True))
    return RecoveredFile(named.pop("path"), Status(status), gaps=gaps, **named)


def _finding(known: dict[str, Any]) -> Finding:
    return Finding(**{**known, "severity": Severity(known["severity"])})


class ProvisionalVerdicts:
    """What a walk reported as complete before the streams around it were decoded to their ends.

    A stream may contradict its checksum only at its end. Bytes decoded before may then be wrong, or decode differently
    now. In that case the walk was misled, and has to begin again. If the checksum agrees, it does so for all that came
    before.

    Kept are the data that files come from, with the ranges of files reported so but not verified. Neighbouring ranges
    are merged: an archive of whole files is one range.
    """

    def __init__(self) -> None:
        # By identity: the data, its revision at the time, and the ranges: start, end, start …
        self._data: dict[int, tuple[Data, int, array[int]]] = {}
        self._files: dict[int, dict[str | None, int]] = {}  # of each of them: the files reported so, by container
        self._told: list[str | None] = []  # the containers of those of this member
        self._goes_on = False  # whether the file before was one of these

    def seen_by(self, report: Callable[[RecoveredFile], object]) -> Callable[[RecoveredFile], object]:
        """Return a report function that looks at each file and passes it on to ``report``."""

        def look(file: RecoveredFile) -> None:
            if file.is_complete and file.verified is not True:
                self._told.append(file.source)
            report(file)

        return look

    def watch(self, data: Data) -> None:
        """Register data that files will come from."""
        self._goes_on = False
        self._data.setdefault(id(data), (data, data.revision, array("q")))

    def begin(self) -> None:
        """Call before a member is written or reported."""
        self._told = []

    def end(self, data: Data, start: int, end: int) -> None:
        """Call after it was written; it came from ``data[start:end]``."""
        if self._told and id(data) in self._data:
            stretches = self._data[id(data)][2]
            if self._goes_on and stretches and 0 <= start - stretches[-1] <= _HEADERS:
                stretches[-1] = max(stretches[-1], end)
            else:
                stretches.extend((start, max(start, end)))
            files = self._files.setdefault(id(data), {})
            for source in self._told:
                files[source] = files.get(source, 0) + 1
        self._goes_on = bool(self._told)

    def were_wrong(self) -> bool:
        """Say whether the data decode differently now, or an error is now known in one of the ranges."""
        return any(
            data.revision != revision
            or any(data.why_suspect(low, high) is not None for low, high in zip(found[::2], found[1::2], strict=True))
            for data, revision, found in self._data.values()
        )

    def confirmed(self) -> dict[str | None, int]:
        """Return the containers of which a checksum has confirmed all these files by now, with their number."""
        found: dict[str | None, int] = {}
        lost: set[str | None] = set()
        for key, files in self._files.items():
            data, revision, stretches = self._data[key]
            if data.revision == revision and all(map(data.is_proved, stretches[::2], stretches[1::2])):
                found |= {source: found.get(source, 0) + count for source, count in files.items()}
            else:
                lost |= files.keys()
        return {source: count for source, count in found.items() if source not in lost}
