"""PyTorch checkpoints in zip archives, as ``torch.save`` writes them since 1.6, and TorchScript archives.

The tree is that of the archive. Its ``data.pkl`` says what the members ``data/0``, ``data/1`` … are: the storages.
torch takes the folder in the archive from its first member, whatever the file is called
(caffe2/serialize/inline_container.cc).
"""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property
from struct import Struct

from pparse.containers.content import Collector
from pparse.data.base import Access
from pparse.data.zero_runs import zeros_at_end
from pparse.errors import DataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.parsers.pytorch.storages import StorageReader, Stored, first_value
from pparse.parsers.zip.members import ZipNote
from pparse.parsers.zip.parser import ZipParser
from pparse.parsers.zip.records import BLOCK, CENTRAL_SIZE, FULL, STORED, end_records, entries, local_at, read_end_at
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import ClassVar, Final

    from pparse.containers.member import ArchiveMember
    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.pytorch.storages import Place
    from pparse.parsers.zip.records import CentralEntry, LocalHeader
    from pparse.parsers.zip.trust import Directory
    from pparse.tree.code_use import CodeUse
    from pparse.tree.entry import Entry
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

# -- The members of a checkpoint's zip archive, by name: where each is, in few bytes and without making nodes ----------

# flags, method, packed and whole size, lengths of name, extra field and comment, offset (APPNOTE.TXT 4.3.12)
_ENTRY: Final = Struct("<8xHH8xIIHHH8xI").unpack_from
_ENCRYPTED: Final = 1


class StorageRecord(Stored):
    """A member: its size, and where it is."""

    __slots__ = ("_at", "_judged", "_member", "_parser", "_start", "raw_name", "size")

    def __init__(
        self, parser: ZipParser, size: int, start: int, at: int, member: ArchiveMember | None = None, name: bytes = b""
    ) -> None:
        self._parser, self.size = parser, size
        self._start = start  # of the local header, if the member is stored as it is; else -1
        self._at = at  # of the entry in the directory
        self._member = member
        self._judged = False  # whether its checksum was compared
        self.raw_name = name
        """As a directory that is trusted has it."""

    @property
    def start(self) -> int:
        """Offset of the local header, or of the bytes."""
        return self._start if self._member is None else self._member.start

    @property
    def member(self) -> ArchiveMember | None:
        """What the archive says of it."""
        if self._member is None:
            self._member = self._parser.listed_member(self._at)
        return self._member

    @property
    def unusual(self) -> ArchiveMember | None:
        """What the archive says of a member that is not stored as it is; None of any other."""
        return self._member if self._start < 0 else None

    def listed(self) -> ArchiveMember | None:
        """What the directory says of a member that is stored as it is, read anew; None of any other."""
        return self._parser.listed_member(self._at) if self._start >= 0 else None

    @property
    def is_renamed(self) -> bool:
        """Whether its local header has another name than the directory: one of the two is wrong."""
        header = self._header if self._start >= 0 and self.raw_name else None
        return header is not None and header.raw_name != self.raw_name

    @property
    def _header(self) -> LocalHeader | None:
        """What stands where its local header should."""
        extraction = self._parser.extraction
        return local_at(extraction.data, self._start, extraction.find_end())

    def verify(self) -> bool:
        """Compare its checksum, once; return whether nothing is wrong with it, as far as is known then."""
        member = self.member
        if member is None or member.checksum is None or not member.is_complete or self._judged:
            return self.is_complete
        verdict = self._parser.verify(member)
        self._judged = True  # not earlier: another thread must not go on before
        return verdict.reason is None

    @property
    def status(self) -> Status:  # type: ignore[override]
        """COMPLETE, as far as the archive tells."""
        return Status.COMPLETE if self._member is None else self._member.status

    @property
    def finding(self) -> Finding | None:  # type: ignore[override]
        """What is wrong with it, if anything."""
        return None if self._member is None else self._member.finding

    @property
    def data(self) -> Data | None:  # type: ignore[override]
        """The data that it lies in as it is; None if only `place` tells."""
        return self._parser.extraction.data if self._start >= 0 and self._member is None else None

    @property
    def place(self) -> Place:
        """Return the data, and begin and end of the content there. Raises `MalformedError`, `UnsupportedError`."""
        parser = self._parser
        if self._start >= 0 and self._member is None:
            header = self._header
            fits = header is not None and _fits(header.extra)
            # Of a directory that only torch believes there are no members: it says what the names are.
            if header is not None and fits and (header.raw_name == self.raw_name or self.member is None):
                begin = self._start + header.length
                return parser.extraction.data, begin, begin + self.size
        member = self.member
        if member is None:
            raise MalformedError("its entry in the directory cannot be read", offset=self._at)
        if self._start >= 0:
            self.verify()  # its header is wrong: only the checksum can tell what its bytes are
        data, begin, end = parser.content(member)
        return data, begin, begin + self.size if end is None else end

    def text(self, most: int) -> bytes:
        """Return the first bytes of the content; nothing if it cannot be read, which is told elsewhere."""
        try:
            data, start, end = self.place
            return data.pread(start, min(most, end - start))
        except DataError:
            return b""

    def written(self) -> int | None:
        """Return how many bytes of a member that reaches to the end of the data precede the zeros there."""
        data, begin, end = self.place
        if data.access is not Access.FREE:
            return end - begin
        return zeros_at_end(data, begin, end, self._parser.extraction.session.check_cancelled) - begin

    def is_of_zeros(self) -> bool:
        """Return whether its checksum is that of as many zeros as it has bytes, or it has none."""
        from pparse.kernels.crc32c import crc_of_zeros

        known = None if self.member is None else self.member.checksum
        return known is None or known == ("crc32", crc_of_zeros(self.size))


def _fits(extra: bytes) -> bool:
    """Say whether the fields of a local header fill its extra part: its length is right."""
    at = 0
    while at + 4 <= len(extra):
        at += 4 + int.from_bytes(extra[at + 2 : at + 4], "little")
    return at == len(extra)


def records_listed(parser: ZipParser, directory: Directory | LastDirectory) -> Iterator[tuple[str, StorageRecord]]:
    """Yield names and records by a trusted directory, at a microsecond each."""
    data, at, whole = parser.result.extraction.data, directory.begin, directory.places is None
    while at < directory.end:
        parser.result.extraction.session.check_cancelled()
        block = data.pread(at, min(BLOCK, directory.end - at))
        pos, last = 0, len(block) - CENTRAL_SIZE
        while pos <= last:
            flags, method, packed, size, names, extra, comment, offset = _ENTRY(block, pos)
            following = pos + CENTRAL_SIZE + names + extra + comment
            if following > len(block):
                break
            raw = block[pos + CENTRAL_SIZE : pos + CENTRAL_SIZE + names]
            name = raw.decode("utf-8", "replace")
            as_it_is = method == STORED and not flags & _ENCRYPTED and packed == size
            if as_it_is and FULL not in (size, offset) and whole:
                yield name, StorageRecord(parser, size, offset + directory.shift, at + pos, name=raw)
            else:
                member = parser.listed_member(at + pos)
                size = size if member is None else member.size or 0
                yield name, StorageRecord(parser, size, -1, at + pos, member, raw)
            pos = following
        if not pos:
            return
        at += pos


class LastDirectory(namedtuple("LastDirectory", "begin end shift")):
    """The directory that torch uses: that of the last end record, whatever lies around it."""

    __slots__ = ()
    places = None


def last_directory(parser: ZipParser) -> LastDirectory | None:
    """Return the directory of the last end record if each of its entries leads to a local header; else None.

    miniz, which torch reads archives with, takes the last one and compares nothing (mz_zip_reader_read_central_dir).
    """
    extraction = parser.result.extraction
    data, start, end = extraction.data, extraction.start, extraction.find_end()
    if data.gaps or data.flawed:
        return None
    at = next(iter(end_records(data, start, end)), None)
    found = None if at is None else read_end_at(data, at, start, end)
    if found is None or found[0].disks_differ:
        return None
    record, stop = found
    begin = start + record.offset
    if not start <= begin <= begin + record.size <= stop:
        return None
    place = LastDirectory(begin, begin + record.size, start)
    if parser.directory is not None and parser.directory.begin == begin:
        return place  # the one that accounts for the archive
    count = 0
    named: set[bytes] = set()
    strange: set[bytes] = set()
    for where, entry in entries(data, begin, place.end):
        header = local_at(data, start + entry.offset, end)
        is_cut = entry.method == STORED and entry.size != entry.compressed_size
        if is_cut or header is None or header.method != entry.method:
            return None
        if header.raw_name != entry.raw_name:
            strange.add(header.raw_name)
        named.add(entry.raw_name)
        count, begin = count + 1, where + entry.length
    if strange & named:  # an entry leads to a member that is another one's
        return None
    return place if count and count == record.entries and begin == place.end else None


def records_scanned(parser: ZipParser) -> Iterator[tuple[str, StorageRecord]]:
    """Yield names and records of an archive whose directory is missing or does not fit."""
    for member in parser.files():
        parser.resolve_member(member)
        yield member.name, StorageRecord(parser, _there(parser, member), -1, member.at, member)


def _there(parser: ZipParser, member: ArchiveMember) -> int:
    """Return how many bytes of the content of a member are there; what its header says, unless it is cut.

    A cut member that is compressed is the last one, so that only its content is decoded here.
    """
    said = (member.compressed_size if member.size is None else member.size) or 0
    if not member.is_truncated:
        return said
    if member.extra is not None and member.extra.method != STORED:
        return min(said, parser.verify(member).size)
    return min(said, max(0, member.end - member.start))


SURE: Final = b"/data.pkl"
# The checksum of a pickle up to so many bytes is compared when it is opened.
_COMPARED: Final = 64 << 20
# Memory of a record.
_RECORD: Final = 250
# How TorchScript archives, and those that old versions wrote, begin.
_FIRST: Final = (b"/data/0", b"/version", b"/byteorder", b"/.format_version", b"/constants.pkl")
# The pickle in a directory, with its folder.
_LISTED: Final = lazy_pattern(rb"(?si)PK\x01\x02.{42}([^/\0]{1,255})/data\.pkl")
_OF_TORCH: Final = (SURE, b"/data/0")
# Bytes of the record that measures a large directory, and of the one that tells where that is.
_ZIP64: Final = 56 + 20
# An offset that stands in that record instead.
_ALL_ONES: Final = (1 << 32) - 1


def directory_of(excerpt: Excerpt) -> bytes:
    """Return the directory at the end of an archive, which its last record measures; empty if it is not found.

    That of a stored member which is an archive itself says other offsets than it lies at.
    """
    tail = excerpt.tail(1 << 16)  # at once: of a far file, each read is a request, and the parser reads as much
    at = tail.rfind(b"PK\x05\x06")
    size, offset = (int.from_bytes(tail[at + skip : at + skip + 4], "little") for skip in (12, 16))
    if tail[max(0, at - _ZIP64) :].startswith(b"PK\x06\x06"):  # torch always writes that record, too
        at -= _ZIP64
        offset = int.from_bytes(tail[at + 48 : at + 56], "little") if offset == _ALL_ONES else offset
    begin = at - size
    return tail[begin:at] if begin >= 0 and offset == (excerpt.size or 0) - len(tail) + begin else b""


class PyTorchZipParser(ZipParser, StorageReader):
    """A checkpoint of ``torch.save``, or a TorchScript archive."""

    name = "pytorch"
    description = "PyTorch checkpoint (zip)"
    extensions: ClassVar[tuple[str, ...]] = (".pt", ".pth", ".ckpt", ".bin")
    viewer = "pparse.viewers.pytorch.viewer:PyTorchViewer"
    refines: ClassVar[tuple[str, ...]] = ("zip",)
    is_generic = False
    has_checksums = True
    goes_by_both_names = False  # torch looks at those in the directory only
    holds_values: ClassVar[tuple[str, ...]] = ("data", "constants")
    """How members begin that hold tensors, or describe them."""
    references: ClassVar[tuple[str, ...]] = (
        "torch/serialization.py",
        "caffe2/serialize/inline_container.cc",
        "torch/_utils.py",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "code of TorchScript is read for the graph of the model, and never run",
        "objects of unknown classes are shown by their attributes, and never made",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._records: dict[str, StorageRecord] = {}
        self._spoilt_then = -1  # how many members were known to be damaged when these were made
        self._said_zero = False

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a zip archive, if its first or last names are those of a checkpoint."""
        found, name = super().match(excerpt), cls._first_name(excerpt)
        if name.endswith(SURE) or name == SURE[1:]:
            return found
        return found if name.endswith(_FIRST) and SURE in excerpt.tail(1 << 16) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """As for a zip archive, if the directory names the pickle, or the first member is one of torch's.

        torch goes by the directory: what the header of a member calls it does not matter if that is there.
        """
        found = super().match(excerpt)
        directory = directory_of(excerpt) if found else b""
        listed = _LISTED.search(directory)
        if listed is not None and directory[46:].startswith(listed[1] + b"/"):
            return found
        name = cls._first_name(excerpt)
        if name.endswith(_OF_TORCH):
            return found or super().probe(excerpt, reader)
        tail = excerpt.tail(1 << 16)
        listed = _LISTED.search(tail)
        if listed is None:
            return Confidence.NO
        if found:  # packed again with another file before it, it is one by its name: torch refuses it
            is_first = name.lower().startswith(listed[1].lower() + b"/")
            is_named = excerpt.ends_with(cls.extensions) and listed[1] + b"/version" in tail
            return found if is_first or is_named else Confidence.NO
        # What precedes it may be of an archive in which it is a member: then only the name tells.
        return super().probe(excerpt, reader) if excerpt.ends_with(cls.extensions) else Confidence.NO

    @staticmethod
    def _first_name(excerpt: Excerpt) -> bytes:
        head = excerpt.head(512)
        return head[30 : 30 + int.from_bytes(head[26:28], "little")]

    # -- checksums: torch compares none, and writes 0 if told not to compute them -------------------------------------

    def listed(self, entry: CentralEntry, at: int, directory: Directory) -> ArchiveMember:
        """Return the member that an entry of a trusted directory describes; a CRC of 0 is none."""
        return self._with_known_crc(super().listed(entry, at, directory))

    def entry_of(self, member: ArchiveMember) -> Entry:
        """Return the entry of a member; a CRC of 0 is none."""
        return super().entry_of(self._with_known_crc(member))

    def _with_known_crc(self, member: ArchiveMember) -> ArchiveMember:
        if member.checksum == ("crc32", 0) and member.size:
            member.checksum = None
            if not self._said_zero:
                self._said_zero = True
                reason = "checksums are 0: the archive was saved without them, and nothing can be verified"
                self.note("no-checksums", reason, None, severity=Severity.NOTE)
        return member

    def find_member(self, name: str) -> Node | None:
        """Return the node of the member listed as ``name``; or else that of what was saved under this path, or of the
        member of this name in the checkpoint's folder."""
        return super().find_member(name) or self.saved_at(name) or super().find_member(self.prefix + name)

    def holds(self) -> str | None:
        """Return None: what it holds is shown."""
        return None

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Read every member, and ask for all of their names, as torch does."""
        len(self.records)
        return super().check(strict=strict)

    # -- the members -------------------------------------------------------------------------------------------------

    @cached_property
    def prefix(self) -> str:
        """What the names of its members begin with: as torch finds it, the folder of the first member; if that has no
        pickle, the folder of the first one."""
        first = next(iter(self.records), "").partition("/")[0] + "/"
        if first + "data.pkl" in self.records:
            return first
        return next((name[:-8] for name in self.records if name.endswith("/data.pkl") or name == "data.pkl"), first)

    @property
    def records(self) -> dict[str, StorageRecord]:
        """All members by name; of two with one name the last whose header agrees, and a finding: torch takes any."""
        if self._spoilt_then != len(self.spoilt):
            self._records = self._find_records()
            self._spoilt_then = len(self.spoilt)
        return self._records

    def _find_records(self) -> dict[str, StorageRecord]:
        extraction = self.result.extraction
        found: dict[str, StorageRecord] = {}
        lower: set[str] = set()
        for name, record in self._each_record():
            if name in found:
                if record.is_renamed and not found[name].is_renamed:
                    record, here = found[name], "one whose header has that name"
                else:
                    here = "the last"
                reason = f"several members have this name: torch takes any of them, here it is {here}"
                self.note("duplicate", reason, record.start, path=name)
            elif name.lower() in lower:
                reason = "another member has this name but for upper and lower case: torch may take that one"
                self.note("duplicate", reason, record.start, path=name)
            if "\ufffd" in name and record.raw_name not in (b"", name.encode()):
                reason = "the name of a member is not UTF-8: torch, which asks for all names, refuses the file"
                self.note("name", reason, record.start, path=name, severity=Severity.ERROR)
            lower.add(name.lower())
            found[name] = record
        extraction.session.limits.check("entries", len(found), "the number of members")
        self._charge = extraction.session.budget.charge(_RECORD * len(found), "the members of a checkpoint")
        return found

    def _each_record(self) -> Iterator[tuple[str, StorageRecord]]:
        """Yield the members as torch would see them, or else as they can be found."""
        directory, data = self.directory, self.result.extraction.data
        sound = directory is not None and not (directory.has_overlaps or directory.torn or self.spoilt or data.flawed)
        last = last_directory(self)
        if last is not None and (directory is None or directory.begin != last.begin):
            what = "the directory at the end is not that of the archive around it"
            self.note("directory", f"{what}; torch believes it, and so it is shown", last.begin)
            return records_listed(self, last)
        if sound and directory is not None:
            self._note_archive(directory)
            if self.result.root.known_status is None:
                self.result.close_node(self.result.root, Status.COMPLETE, None)
            return records_listed(self, directory)
        return records_scanned(self)

    def record(self, name: str) -> StorageRecord | None:
        """Return the member ``name`` of the checkpoint's folder."""
        return self.records.get(self.prefix + name)

    def pickled(self, name: str = "data.pkl") -> Node | None:
        """Return the value of a pickle in the archive."""
        name = self.prefix + name
        if name not in self.records:
            return None
        try:
            return first_value(self._document(name))
        except LimitError:
            raise
        except UnsupportedError as error:  # it is encrypted, say; what is wrong with its bytes is told of the member
            place = self.records[name].start
            self.note("unread", f"the pickle cannot be read: {error.reason}", place, path=name)
            return None
        except DataError:
            return None

    def _compare_pickle(self, member: ArchiveMember) -> None:
        """Say it if the checksum of a pickle is wrong: all that it says is in doubt then; torch would read it."""
        if member.checksum is None or not member.is_complete or (member.size or 0) > _COMPARED:
            return
        verdict = self.examine(member, None, None)
        if verdict.verified is False:
            self._remember(member, verdict)
            reason = f"names and shapes may be wrong: {verdict.reason}"
            self.note("checksum", reason, member.start, path=member.name, severity=Severity.ERROR)

    def verify_storages(self, but: Mapping[int, int] | None = None) -> dict[int, int] | None:
        """Compare the checksums of the pickle and of all storages: from then on, their statuses are final.

        But not of storages that are just one of the stretches ``but``, ends by begins: return their CRC-32, by begin.
        None if anything was wrong.
        """
        left: dict[int, int] = {}
        sound = True
        for name, record in self.records.items():
            if name.removeprefix(self.prefix).startswith(self.holds_values):
                found = self._plain_checksum(record) if but else None
                if but and found is not None and but.get(found[0]) == found[1]:
                    left[found[0]] = found[2]
                else:
                    sound &= record.verify()
        return left if sound else None

    def _plain_checksum(self, record: StorageRecord) -> tuple[int, int, int] | None:
        """Return begin, end and CRC-32 of a member that is stored as it is, if all that the archive says agrees."""
        member = record.listed()
        if member is None or not member.is_complete or member.finding is not None:
            return None
        if member.checksum is None or member.size is None or not isinstance(member.extra, ZipNote):
            return None
        header = local_at(self.result.extraction.data, member.start, self.result.extraction.find_end())
        if header is None or header.raw_name != member.raw_name or not self._agrees(member, header):
            return None
        begin = member.start + header.length
        return begin, begin + member.size, member.checksum[1]

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: of the archive, and of the pickle in it."""
        yield from super().details()
        if self.has_code:
            yield "holds", "a TorchScript model: code, and what is saved beside it"
        # The classes of its code are those of its modules, which the viewer shows; all of them are in `globals`.
        yield from self.saved_details("__torch__." if self.has_code else "")

    def globals(self) -> Iterator[CodeUse]:
        """Yield the globals that its pickle names."""
        return self.saved_globals()

    def _document(self, name: str, *, compare: bool = True) -> Extraction:
        """Return the content of a member; ``compare``: its checksum, as nothing in it would tell that it is wrong."""
        children, record = self.extraction.children, self.records[name]
        if name not in children:
            if record.member is None:
                children[name] = self.extraction.child(name, *record.place)
            else:
                if compare:
                    self._compare_pickle(record.member)
                children[name] = self.open_member(record.member, name)
                children[name].entered = True
        return children[name]

    def key_of(self, name: str) -> str | None:
        """Return the key of the storage that a member is, by its name in the folder; None if it is none."""
        return name.removeprefix("data/") if name.startswith("data/") else None

    def stored(self, key: str, folder: str = "data") -> Stored | None:
        """Return a storage: the member ``data/KEY``."""
        return self.record(f"{folder}/{key}")

    @property
    def has_code(self) -> bool:
        """Whether it is a TorchScript archive."""
        folder = f"{self.prefix}code/"
        return self.record("constants.pkl") is not None or any(name.startswith(folder) for name in self.records)

    def source(self, name: str, check: Callable[[int], object]) -> tuple[str, bytes, Finding | None] | None:
        """Return name and bytes of the member ``code/NAME.py``, and what is wrong with it; None if there is none."""
        record = self.record(f"code/{name}.py")
        if record is None or record.member is None:
            return None
        keep = Collector(check)
        verdict = self.examine(record.member, keep, None)  # not for all others: who reads the code may be the last
        path = f"{self.prefix}code/{name}.py"
        return path, keep.content(), verdict.finding(path, self.extraction.name)

    def constants(self) -> Node | None:
        """Return the constants of TorchScript's code: ``constants.pkl``."""
        return self.pickled("constants.pkl")

    def bytecode(self) -> Node | None:
        """Return the byte code for the mobile interpreter: ``bytecode.pkl``."""
        return self.pickled("bytecode.pkl")

    def constant(self, key: str) -> Stored | None:
        """Return a storage of a constant: the member ``constants/KEY``."""
        return self.stored(key, "constants")

    def keys(self) -> Iterator[str]:
        """Yield the keys of the storages, in the order of the archive."""
        prefix = f"{self.prefix}data/"
        return (name[len(prefix) :] for name in self.records if name.startswith(prefix))

    @cached_property
    def byteorder(self) -> str:
        """What the member ``byteorder`` says; little if there is none."""
        record = self.record("byteorder")
        return "big" if record is not None and record.text(16).strip() == b"big" else "little"
