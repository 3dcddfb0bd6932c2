"""Archives: base class of parsers of files that hold files (tar, zip), and reading of members.

An archive's root is a map of names to members. A member's content is a child extraction: a range of the same data if it
is stored as it is, else separate data. Unidentified bytes between members are a child of kind ``gap``, which can be
read, too.

A name is shown as stored. It must not be used as a path to write to: `pparse.recovery.names` makes a safe path of it.
"""

from __future__ import annotations

from collections import deque
from weakref import WeakValueDictionary

from pparse.containers.content import Collector, Verdict, read_through, refuse_without_content
from pparse.containers.member import ArchiveMember as ArchiveMember
from pparse.containers.member import MemberFolder, folder_in
from pparse.containers.member import NameCounter as NameCounter
from pparse.document.extraction import Extraction, FolderExtraction, extraction_of
from pparse.errors import DataError, EndOfDataError, LimitError, PathError, UnsupportedError, spoken
from pparse.findings import BROKEN, Finding, Status
from pparse.limits import LITTLE, LITTLE_UNPACKED
from pparse.paths import join_extraction
from pparse.tree.entry import MAP, Entry
from pparse.tree.parser import Container, Listing, Parser
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.containers.content import ContentSink, Skip
    from pparse.data.base import Data, Range
    from pparse.findings import FindingList
    from pparse.limits import Limits
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.node import Node
    from pparse.tree.result import Result

    Refused = Callable[[str, Extraction | None, DataError], object]

_SHORT: Final = "bytes of it are missing at an unknown place: the archive continues before its end"
CUT_BEFORE: Final = "no member of this name in the archive, which is truncated"
_LONG: Final = "bytes were inserted at an unknown place: it extends beyond its size"
# For how many members it is remembered that they are not whole.
_MOST_SPOILT: Final = 1 << 14
# The most members whose content is kept open; each takes 6 KiB.
ENTERED: Final = 500


class ArchiveParser(Parser, Listing, Container):
    """Base class of archive parsers. They implement the state `expect_member`, and `content`."""

    root_shape = MAP  # members are scalars: their content
    child_state = "expect_member"
    member_word = checked_word = "file"
    notes_findings = True

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.extraction = extraction_of(result)
        self._entered: deque[str] = deque()  # names of the members that were entered last
        self._opened: WeakValueDictionary[int, Extraction] = WeakValueDictionary()  # by the offset of the header
        # Members that were read and are not whole: (offset of header, of bytes) -> what is wrong.
        self.spoilt: dict[tuple[int, int], tuple[Status, Finding | None]] = {}

    # -- what a format says ------------------------------------------------------------------------------------------

    def expect_member(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Add the member whose header (or directory entry) is at ``ctx.pos``."""
        raise NotImplementedError

    def content(self, member: ArchiveMember) -> tuple[Data, int, int | None]:
        """Return data, start and end of the content of ``member``. Raise `UnsupportedError`, `MalformedError`."""
        raise NotImplementedError

    # -- what follows ------------------------------------------------------------------------------------------------

    def entry_of(self, member: ArchiveMember) -> Entry:
        """Return the entry of a member."""
        self.recall(member)
        key = None if member.kind == "gap" else member.name
        return Entry(
            key,
            member.kind,
            member.start,
            member.end,
            status=member.status,
            finding=member.finding,
            at=member.at,
            note=member,
        )

    def recall(self, member: ArchiveMember) -> None:
        """Set the status of ``member`` to that of an earlier reading, if that was worse than what its header says."""
        known = self.spoilt.get((member.at, member.start)) if self.spoilt else None
        if known is not None and member.is_complete:
            member.status, member.finding = known
        data = self.extraction.data
        if member.checksum is None and member.is_complete and data.flawed:
            self._take_suspect(member, data)

    def resolve_member(self, member: ArchiveMember) -> None:
        """Do what `recall` does, after comparing the checksum if only that can prove ``member`` right."""
        self.recall(member)
        if self.needs_proof(member):
            self.verify(member)
            self.recall(member)

    def _take_suspect(self, member: ArchiveMember, data: Data) -> None:
        """Mark a member without a checksum as damaged if its bytes are suspect."""
        parts = member.pieces or (data.range(member.start, member.end),)
        reasons = (part.data.why_suspect(part.start, part.end) for part in parts)
        found = next((reason for reason in reasons if reason is not None), None)
        if found is not None:
            member.status = Status.DAMAGED
            member.finding = Finding(
                "doubt",
                found,
                path=member.name,
                source=self.extraction.name,
                offset=member.start,
                length=member.compressed_size,
            )

    def needs_proof(self, member: ArchiveMember) -> bool:
        """Say whether only its own checksum can prove ``member`` right, since its bytes are in doubt."""
        data = self.extraction.data
        return (
            member.checksum is not None
            and member.is_complete
            and data.flawed
            and data.why_suspect(member.start, member.end) is not None
        )

    def _remember(self, member: ArchiveMember, verdict: Verdict) -> None:
        """Remember the verdict on ``member``: it applies to all later uses of the member or its bytes."""
        if verdict.source is not None and verdict.verified is not None and not verdict.gaps:
            data, start = verdict.source
            if verdict.verified:
                data.vouch(start, start + verdict.size)
            elif data.contradiction is None:
                data.condemn(start, start + verdict.size, verdict.reason or "its checksum is wrong")
        elif verdict.source is not None and verdict.suspect:
            data, start = verdict.source
            if data.why_suspect(start, start + verdict.size) is None:
                for offset, length in verdict.suspect:
                    data.condemn(start + offset, start + offset + length, verdict.reason or "its size is wrong")
        verdict.source = None
        if verdict.is_complete or verdict.code == "limit" or len(self.spoilt) >= _MOST_SPOILT:
            return
        finding = verdict.finding(member.name, self.extraction.name)
        self.spoilt[member.at, member.start] = verdict.status, finding
        index = self.result.root.index
        if index is not None:
            index.group = None  # drop the entries read last, which have the old status

    def files(self) -> Iterator[ArchiveMember]:
        """Yield every member, in the order of the archive."""
        for _, entry in self.result.entries_from(self.result.root, 0):
            yield entry.note

    def members(self) -> Iterator[Member]:
        """Yield the rows of `pparse ls`; the second of two equal names as ``name#2``."""
        names = NameCounter()
        for member in self.files():
            size = member.compressed_size if member.size is None else member.size
            self.resolve_member(member)
            yield Member(self.listed_name(member, names), member.kind, member.start, size or 0, member.status, member)
        root = self.result.root
        if root.known_status is None:  # all were read without the engine, which would read again for the status
            self.result.close_node(root, Status.COMPLETE, None)

    def listed_name(self, member: ArchiveMember, names: NameCounter) -> str:
        """Return the name under which a member is listed and found."""
        if member.kind == "gap":
            return f"gap {member.start}"
        number = names.add(member.name)
        return member.name if number == 1 else f"{member.name}#{number}"

    @property
    def is_cut(self) -> bool:
        """Whether members that are not there may be in the part that it lacks."""
        return self.result.is_truncated

    def find_member(self, name: str) -> Node | None:
        """Return the node that is listed as ``name``, of a member or whatever else a format lists; None if none is."""
        return self.member_node(name)

    def member_node(self, name: str) -> Node | None:
        """Return the node of the member that is listed as ``name``; None if there is none."""
        root = self.result.root
        if name.startswith("gap ") and name[4:].isdecimal() and len(name) < 24:
            for ordinal, entry in self.result.entries_from(root, 0):
                if entry.kind == "gap" and entry.start == int(name[4:]):
                    return root.child(ordinal)
        for text in dict.fromkeys((name, name.removeprefix("./"), f"./{name}", name.rstrip("/") + "/")):
            found = root.find(text)
            if found is not None:
                return found
        base, _, number = name.rpartition("#")
        if base and number.isdecimal() and len(number) < 19:
            return root.find(base, max(1, int(number)))
        return None

    @property
    def leaves_unclaimed(self) -> bool:
        """Whether bytes outside of all members may be of members that were lost, though no gap says so."""
        return False

    def unclaimed(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield begin and end of such bytes; ``spans`` are those of the members, in order."""
        return iter(())

    def enter(self, name: str) -> Extraction:
        """Return the content of the member ``name`` as an extraction.

        Raise `PathError` if there is no such member, or it is a folder or a link; `EndOfDataError` if it may be in the
        missing part of a truncated archive; `UnsupportedError` if it cannot be read.
        """
        extraction = self.extraction
        kid = extraction.children.get(name)
        if kid is None:
            node = self.member_node(name)
            if (node is None or node.note.kind == "folder") and (found := self._enter_folder(name)) is not None:
                extraction.children[name] = found
                return found
            if node is None and self.is_cut:
                raise EndOfDataError(CUT_BEFORE, path=name, source=extraction.outermost.name)
            if node is None:
                raise PathError(
                    f"{extraction.path} ({self.name}) holds no such member" if name else "no name follows the '::'",
                    path=name,
                    suggestions=self.result.suggest(self.result.root, name),
                )
            refuse_without_content(node.note, name, extraction.path)
            kid = self._opened.get(node.note.at)
            if kid is None or kid.name != name:
                kid = self.open_member(node.note, name)
            kid.entered = True
            extraction.children[name] = kid
            self._entered.append(name)
            if len(self._entered) > ENTERED:
                self._forget(self._entered.popleft())
        return kid

    def folder_of(self, member: ArchiveMember) -> MemberFolder:
        """Return the folder in the archive that ``member`` lies in."""
        folder, mark, _ = member.name.removeprefix("./").rpartition("/")
        return MemberFolder(self, folder + mark)

    def _enter_folder(self, name: str) -> Extraction | None:
        """Return the folder ``name`` of the archive if it holds models; None otherwise."""
        folder = folder_in(self, name)
        if folder is None:
            return None
        from pparse.document.inventory import Inventory

        found = FolderExtraction(self.extraction.session, folder, name.rstrip("/"), self.extraction)
        return found if any(item.is_model for item in Inventory(found)) else None

    def _forget(self, name: str) -> None:
        """Release a member that was entered long ago, unless it has findings that the archive does not have."""
        children = self.extraction.children
        kid = children.get(name)
        if kid is not None and not kid.data.flawed and not any(result.findings for result in kid.results.values()):
            del children[name]

    def open_member(self, member: ArchiveMember, name: str | None = None) -> Extraction:
        """Return the content of ``member`` as an extraction. Raise `UnsupportedError`, `MalformedError`."""
        data, start, end = self.content(member)
        extraction = self.extraction
        misfit = self._misfit(member, data, start, end)
        if misfit is not None:
            if self.verify(member).verified is not True:  # else it is the size that is wrong
                data.condemn(start, end or start, misfit)
        elif member.shifted and member.finding is not None and not self.tells_shifts(member):
            data.condemn(start, end or start, member.finding.reason)
        opened = Extraction(extraction.session, name or member.name, data, start, end, extraction)
        opened.go_deeper()
        opened.origin = (self, member)
        self._opened[member.at] = opened
        return opened

    def tells_shifts(self, member: ArchiveMember) -> bool:
        """Say whether who reads ``member`` sees where in it bytes are missing, or came in."""
        return False

    def load_scalar(self, node: Node) -> Any:
        """Return all bytes of a member. Raise an error if they are not whole; a name in doubt is only told."""
        member: ArchiveMember = node.note
        session = self.extraction.session
        session.limits.check("scalar_bytes", member.size or 0, "the member", path=node.path)
        keep = Collector(lambda count: session.limits.check("scalar_bytes", count, "the member", path=node.path))
        verdict = self.verify(member, keep)
        if not verdict.is_complete:
            unsure = verdict.finding(node.path, self.extraction.name) if verdict.holds_all else None
            if verdict.code != "limit":
                self.result.close_node(node, verdict.status, unsure)
            if unsure is None:
                raise verdict.error(node.path, self.extraction.name)
        return keep.content()

    def open_scalar(self, node: Node) -> Range:
        """Return a reader of the member's content; of the root, of the archive."""
        if node.note is None:
            return super().open_scalar(node)
        data, start, end = self.content(node.note)
        if end is None:
            end = Extraction(self.extraction.session, node.note.name, data, start).find_end()
        return data.range(start, end)

    def verify(self, member: ArchiveMember, sink: ContentSink | None = None, skip: Skip | None = None) -> Verdict:
        """Read all content of ``member`` and return a verdict; see `read_through`.

        The verdict applies to all later uses of the member. A member refused by a limit is UNSUPPORTED, and the reason
        says how to lift the limit.
        """
        verdict = self.examine(member, sink, skip)
        self._remember(member, verdict)
        return verdict

    def examine(self, member: ArchiveMember, sink: ContentSink | None, skip: Skip | None) -> Verdict:
        """Do what `verify` does, without remembering it. Override it for formats with several checksums."""
        session = self.extraction.session
        opened = self._opened.get(member.at)
        try:
            data, start, end = (opened.data, opened.start, opened.end) if opened is not None else self.content(member)
        except DataError as error:
            return _refused(error)
        try:
            verdict = read_through(
                session, data, start, end, size=member.size, checksum=member.checksum, sink=sink, skip=skip
            )
        except LimitError as error:
            verdict = _refused(error)
        verdict.source = data, start
        if verdict.is_truncated and self._misfit(member, data, start, end) is _SHORT:
            verdict.worsen(Status.DAMAGED, "doubt", _SHORT)
            verdict.suspect = ((0, verdict.size),)
        if data is not self.extraction.data and opened is None:
            data.close()
        # The checksum of a stream around it proves bytes, not where the member ends; only its own does.
        proved = verdict.verified is True and member.checksum is not None
        if not proved and not member.is_complete:
            verdict.verified = verdict.verified and None
            said = member.finding
            reason = str(member.status) if said is None else said.reason
            if said is not None and said.code in ("gap", "truncated") and verdict.reason is not None and verdict.gaps:
                reason = verdict.reason  # reading has counted the lost bytes: they need not be told twice
            verdict.worsen(member.status, "malformed" if said is None else said.code, reason)
        return verdict

    def _misfit(self, member: ArchiveMember, data: Data, start: int, end: int | None) -> str | None:
        """Say whether a stored member ends before its size though the archive continues, so that those after it have
        shifted, or extends beyond its size; only a checksum of its own can show that it is whole all the same."""
        outer = self.extraction
        if data is not outer.data or member.checksum is None or member.size is None or end is None:
            return None
        if end - start > member.size:
            return _LONG
        return _SHORT if end - member.start < member.size and end < outer.find_end() else None

    def is_suspect(self, member: ArchiveMember) -> bool:
        """Say whether the content of ``member`` is known to be incomplete or damaged."""
        spoilt = (member.at, member.start) in self.spoilt
        return spoilt or member.status in BROKEN

    def confirms_itself(self) -> bool:
        """Say whether every member has a checksum, and it agrees."""
        if self.result.findings.errors:
            return False
        count = 0
        for member in self.files():
            if member.kind == "gap" or (member.kind == "file" and self.verify(member).verified is not True):
                return False
            count += member.kind == "file"
        return count > 0 and not self.result.findings.errors

    def verify_opened(self, opened: Extraction) -> Finding | None:
        """Read the member of ``opened`` for its checksum; return what is wrong with it.

        A member without a checksum, in an archive whose bytes are not suspect, is not read.
        """
        if opened.origin is None:
            return None
        member: ArchiveMember = opened.origin[1]
        data = self.extraction.data
        if member.checksum is None and member.is_complete and opened.data is data and not data.flawed:
            return None
        return self._finding(self.verify(member), member, opened.name)

    def resolve_opened(self, opened: Extraction) -> None:
        """Read the member of ``opened`` for its checksum, if it is small and was not read before."""
        member: ArchiveMember | None = opened.origin[1] if opened.origin is not None else None
        if member is None or member.size is None:
            return
        if member.compressed_size > LITTLE or member.size > LITTLE_UNPACKED or (member.at, member.start) in self.spoilt:
            return
        if not opened.data.is_proved(opened.start, opened.start + member.size):
            finding = self.verify_opened(opened)
            opened.proved = True
            if finding is not None:
                self.result.findings.add(finding)

    def _finding(self, verdict: Verdict, member: ArchiveMember, name: str) -> Finding | None:
        """Return ``verdict`` on ``member`` as a finding with an offset; None if nothing is wrong."""
        finding = verdict.finding(name, self.extraction.name)
        if finding is not None and finding.offset is None:
            finding.offset, finding.length = member.start, member.compressed_size
            said = member.finding
            if said is not None and said.offset is not None and said.reason == finding.reason:
                finding.offset, finding.length = said.offset, said.length
        return finding

    def suspect(self) -> None:
        """Mark decoded bytes before a break in the archive as suspect, if nothing else explains the break.

        A stream can be damaged without its decoder noticing. If no header stands where a member ends, and no gap and
        nothing else is in doubt near it, bytes of that member are wrong, or too many: since its own header the archive
        was in step.
        """
        data = self.extraction.data
        if data.is_plain:
            return
        from pparse.compressed.resumed import ResumedData

        if not isinstance(data, ResumedData) or data.is_sound:
            return
        before: ArchiveMember | None = None
        for member in self.files():
            if member.kind == "gap" and member.compressed_size >= 512 and before is not None and before.kind == "file":
                start, end = before.start, member.start
                if not any(data.gaps_in(start, member.end)) and not data.why_suspect(start, member.end):
                    data.add_suspect_range(start, end, "no header follows its end: bytes of it are wrong, or too many")
            before = member

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Read every member."""
        self.suspect()
        root = self.result.root
        yield Visit.of(root, 0)
        names = NameCounter()
        compared = self._compared = [0, 0]
        for ordinal, entry in self.result.entries_from(root, 0):
            member: ArchiveMember = entry.note
            name = self.listed_name(member, names)
            verdict = self.verify(member)
            if member.kind in ("file", "other"):
                compared[0] += 1
                compared[1] += verdict.verified is True and member.checksum is not None
            finding = self._finding(verdict, member, name)
            if finding is not None:
                self.result.findings.add(finding)
            yield Visit(
                1,
                entry.key,
                ordinal,
                member.kind,
                "scalar",
                member.start,
                member.end,
                name,
                status=verdict.status,
                finding=finding,
            )


def _refused(error: DataError) -> Verdict:
    """Return the verdict on a member that was not read."""
    verdict = Verdict()
    if isinstance(error, LimitError):
        verdict.worsen(Status.UNSUPPORTED, "limit", error.reason)
    elif isinstance(error, UnsupportedError):
        verdict.worsen(Status.UNSUPPORTED, "unsupported", error.reason)
    else:
        verdict.worsen(Status.DAMAGED, "malformed", error.reason)
    return verdict


def documents_in(
    result: Result, findings: FindingList | None = None, prefix: str = "", refused: Refused | None = None
) -> Iterator[tuple[str, Extraction]]:
    """Yield the members of an archive whose format is recognised, with their names; not the members of those.

    Members refused by a limit are added to ``findings`` (None: the archive's), under ``prefix`` and their name.
    ``refused`` is called with those of which no format is recognised, or that cannot be read (None, if they cannot even
    be opened), and the error that says so.
    """
    parser = result.parser
    if not isinstance(parser, ArchiveParser):
        return
    names = NameCounter()
    for member in parser.files():
        name = parser.listed_name(member, names)
        if member.kind not in ("file", "other"):
            continue
        extraction: Extraction | None = None
        try:
            extraction = parser.open_member(member, name)
            extraction.parse()
        except LimitError as error:
            finding = Finding("limit", f"not entered: {error.reason}", path=prefix + quoted(name))
            (result.findings if findings is None else findings).add(finding)
            continue
        except DataError as error:
            error.offset = member.start if error.offset is None else error.offset
            if refused is not None:
                refused(prefix + quoted(name), extraction, error)
            continue
        yield name, extraction


def documents_below(result: Result, refused: Refused | None = None) -> Iterator[tuple[str, Extraction]]:
    """Yield every document in an archive, and in nested archives, with its path.

    Containers come before their content. Those beyond the limits ``nesting`` and ``containers`` are not entered; for
    the latter, ``result`` gets a finding. ``refused``: see `documents_in`.
    """
    limits = result.extraction.session.limits
    entered = 0
    levels = [("", documents_in(result, refused=refused))]
    while levels:
        prefix, documents = levels[-1]
        found = next(documents, None)
        if found is None:
            levels.pop()
            continue
        name, extraction = found
        yield prefix + quoted(name), extraction
        inner = extraction.parse()
        if isinstance(inner.parser, ArchiveParser):
            entered += 1
            below = f"{prefix}{quoted(name)}::"
            if extraction_of(inner).layers >= limits.nesting:
                result.findings.add(nested_too_deep(limits, prefix + quoted(name)))
                continue
            if entered > limits.containers:
                if entered == limits.containers + 1:
                    result.findings.add(too_many_containers(limits, prefix + quoted(name)))
                continue
            levels.append((below, documents_in(inner, result.findings, below, refused)))


def nested_too_deep(limits: Limits, path: str, source: str = "") -> Finding:
    """Return the finding on a container that is nested too deep to be entered."""
    option = limits.option("nesting")
    how = f"; lift it with {spoken(option)}" if option else ", which is the maximum"
    reason = f"not entered: it is nested deeper than the limit nesting={limits.nesting}{how}"
    return Finding("limit", reason, path=path, source=source)


def too_many_containers(limits: Limits, path: str, source: str = "") -> Finding:
    """Return the finding on a container that is not entered, since too many were."""
    reason = (
        f"not entered: more containers than the limit containers={limits.containers}; lift it with "
        f"{spoken(f'--limit containers={4 * limits.containers}')}"
    )
    return Finding("limit", reason, path=path, source=source)


def quoted(name: str) -> str:
    """Return a member's name, quoted for a path to an extraction."""
    return join_extraction([name])
