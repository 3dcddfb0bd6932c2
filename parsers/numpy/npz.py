"""numpy's .npz files: a zip archive of .npy files, stored (``numpy.savez``) or deflated (``numpy.savez_compressed``).

The tree is that of the archive. `numpy.load` calls a member as the archive does, without ``.npy`` at the end, and takes
any member for an array that begins as one (numpy/lib/npyio.py, `NpzFile`).
"""

from __future__ import annotations

from pparse.data.range_status import Stretches
from pparse.errors import DataChangedError, DataError
from pparse.findings import Severity
from pparse.lazy import lazy_pattern
from pparse.limits import LITTLE, LITTLE_UNPACKED, count_words
from pparse.parsers.zip.members import ZipNote, first_content
from pparse.parsers.zip.parser import ZipParser
from pparse.tensors.npy import MAGIC, OPTIONS
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.containers.content import ContentSink, Skip, Verdict
    from pparse.containers.member import ArchiveMember
    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.tree.code_use import CodeUse
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

EXTENSION: Final = ".npy"
_ENDING: Final = EXTENSION.encode()
# An entry of a directory, up to its name (APPNOTE.TXT 4.3.12).
_LISTED: Final = lazy_pattern(rb"(?s)PK\x01\x02.{24}(.)(.).{16}")
# The most other members that are named.
_NAMED: Final = 3


class NpzParser(ZipParser):
    """An archive of arrays."""

    name = "npz"
    description = "numpy arrays (zip)"
    extensions = (".npz",)
    viewer = "pparse.viewers.numpy.archive:NpzViewer"
    refines = ("zip",)
    is_generic = False
    references = ("numpy/lib/npyio.py", "https://numpy.org/neps/nep-0001-npy-format.html", "PKWARE APPNOTE.TXT 6.3.10")
    limitations = (
        "arrays of Python objects are pickles: they are shown as trees (FILE::NAME.npy::pickle), not as arrays",
        "float8_e4m3fn, int4 and the like are saved as bytes (V1): the file does not name them, -O dtype= does",
    )

    options = OPTIONS

    def __init__(self, result: Result) -> None:
        from pparse.parsers.numpy.npy import named_type

        super().__init__(result)
        named_type(result.extraction.session)
        self._proofs = Stretches()  # of members whose checksum agrees, by their ``at``; 16 bytes each
        self._revision = self.extraction.data.revision  # of the archive when they were read

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a zip archive, if its name says .npz, or its members are arrays."""
        found = super().match(excerpt)
        return found if found and cls._looks_like_arrays(excerpt) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """As sure as that it is a zip archive, if its name says .npz and no member says otherwise."""
        by_name = excerpt.ends_with(cls.extensions) and cls._looks_like_arrays(excerpt)
        return super().probe(excerpt, reader) if by_name else Confidence.NO

    @classmethod
    def _looks_like_arrays(cls, excerpt: Excerpt) -> bool:
        """Say whether its name, or else the first member and all names in the directory, tell of arrays."""
        head = excerpt.head(512)
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        if excerpt.ends_with(cls.extensions):  # a checkpoint under this name is no archive of arrays
            others = head.startswith(b"PK\3\4") and first and not first.endswith(_ENDING)
            return not others or _ENDING in excerpt.tail(1 << 16)
        if not first.endswith(_ENDING):
            return False
        tail = excerpt.tail(1 << 16)
        names = [tail[at.end() : at.end() + at[1][0] + 256 * at[2][0]] for at in _LISTED.finditer(tail)]
        if not names:  # it is cut, or a stream: the first name counts, unless the file is called another archive
            return not excerpt.ends_with(ZipParser.extensions)
        return all(name.endswith(_ENDING) for name in names)

    def note(self, code: str, reason: str, offset: int | None, length: int | None = None, **more: Any) -> Finding:
        """Add a finding; bytes before the archive are an error, though other readers of zip archives pass over them."""
        if code == "prefix":
            more["severity"], reason = Severity.ERROR, f"{reason}: numpy.load refuses it"
        return super().note(code, reason, offset, length, **more)

    # -- arrays ------------------------------------------------------------------------------------------------------

    def arrays(self) -> Iterator[tuple[str, ArchiveMember]]:
        """Yield the members that are arrays, under numpy's names, repeated ones too."""
        for member in self._judged():
            if self.is_array(member):
                yield member.name.removesuffix(EXTENSION), member

    def _judged(self) -> Iterator[ArchiveMember]:
        """Yield the files of the archive, with what is known of them."""
        for member in self.files():
            if member.kind == "file":
                self.resolve_member(member)
                yield member

    def is_array(self, member: ArchiveMember) -> bool:
        """Say whether a member is an array, by its name or its first bytes."""
        if member.name.endswith(EXTENSION):
            return True
        try:
            data, start, _ = self.content(member)
            return data.read_known(start, len(MAGIC))[0] == MAGIC
        except DataError:
            return False

    def array(self, name: str, number: int = 1) -> ArchiveMember | None:
        """Return the member that is the array ``name``, of several the one with that ``number``; None: no such."""
        found: list[Node] = []
        for text in (name + EXTENSION, name):
            for occurrence in range(1, number + 1):
                node = self.result.root.find(text, occurrence)
                if node is None:
                    break
                if node.kind == "file" and self.is_array(node.note):
                    found.append(node)
        found.sort(key=lambda node: node.ordinal)
        if len(found) < number:
            return None
        member: ArchiveMember = found[number - 1].note
        self.recall(member)
        return member

    def first_bytes(self, member: ArchiveMember, count: int) -> tuple[bytes, int]:
        """Return the first bytes of an array without opening it, and where they begin in the archive if it is stored
        as it is, else -1; no bytes if it must be opened to be judged."""
        note, data = member.extra, self.extraction.data
        odd = not isinstance(note, ZipNote) or (member.at, member.start) in self.spoilt or data.flawed
        found, begin = (b"", -1) if odd else first_content(self._ahead or data, member, note, count)
        inside = begin < 0 or (self.directory is not None and begin + member.compressed_size <= self.directory.begin)
        return (found, begin) if inside else (b"", -1)

    def opened(self, member: ArchiveMember) -> Extraction:
        """Return the content of an array, the same while it is in use. Raises `UnsupportedError`, `MalformedError`."""
        known = self._opened.get(member.at)
        return known if known is not None else self.open_member(member)

    def known_opened(self, at: int) -> Extraction | None:
        """Return the content of the member at ``at`` if it is in use; else None."""
        return self._opened.get(at)

    def member_at(self, at: int) -> ArchiveMember:
        """Return the member whose directory entry is at ``at``. Raises `DataChangedError` if there is none any more."""
        member = self.listed_member(at)
        if member is None:
            reason = "an entry of the directory that was read before is not there any more"
            raise DataChangedError(reason, offset=at, source=self.extraction.name)
        self.recall(member)
        return member

    # -- checksums ---------------------------------------------------------------------------------------------------

    def verify(self, member: ArchiveMember, sink: ContentSink | None = None, skip: Skip | None = None) -> Verdict:
        """Do what `ArchiveParser.verify` does, and remember that the checksum agrees."""
        verdict = super().verify(member, sink, skip)
        self._note_proof(member, verdict)
        return verdict

    def _note_proof(self, member: ArchiveMember, verdict: Verdict) -> None:
        if not _agrees(verdict) or member.checksum is None:
            return
        revision = self.extraction.data.revision
        if revision != self._revision:
            self._proofs, self._revision = Stretches(), revision
        self._proofs.add(member.at, member.at + 1)

    def is_proved(self, at: int) -> bool:
        """Return whether the checksum of the member at ``at`` agreed when it was read; never reads."""
        return self._proofs.covers(at, at + 1) and self._revision == self.extraction.data.revision

    def resolve_array(self, member: ArchiveMember) -> Extraction | None:
        """Compare the checksum of an array that is not opened, if that costs little and was not done.

        Return its content, of which it is known then what is wrong, if the checksum does not agree; else None.
        """
        if self.is_proved(member.at) or not is_little(member):
            return None
        verdict = self.examine(member, None, None)
        self._note_proof(member, verdict)
        if _agrees(verdict):
            return None
        opened = self.opened(member)
        finding = self.verify_opened(opened)
        opened.proved = True
        if finding is not None:
            self.result.findings.add(finding)
        return opened

    def resolve_stored(self, member: ArchiveMember) -> None:
        """Compare the checksum of an array that is stored as it is, if that costs little and was not done."""
        spoilt = (member.at, member.start) in self.spoilt
        is_new = not spoilt and is_little(member) and member.at not in self._opened
        if not is_new or not _agrees(self.verify(member)):
            self.resolve_opened(self.opened(member))

    def verify_arrays(self) -> None:
        """Compare the checksums of all arrays: from then on, their statuses are final."""
        for _, member in self.arrays():
            if member.checksum is not None:
                self.verify(member)

    def holds(self) -> str | None:
        """Return None: what it holds is shown."""
        return None

    def globals(self) -> Iterator[CodeUse]:
        """Yield the globals that the pickles of its arrays name, by array."""
        from pparse.parsers.numpy.npy import read_header

        for _, member in self.arrays():
            try:
                opened = self.opened(member)
                if not read_header(opened.data, opened.start, opened.end, opened.session).is_of_objects:
                    continue
                for use in opened.parse("npy").listing.globals():
                    use.pickle = f"{member.name}::{use.pickle}"
                    yield use
            except DataError:
                continue  # what is wrong with it is told with its tensor

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: of the archive, and of members that are no arrays."""
        yield from super().details()
        others = [member.name for member in self._judged() if not self.is_array(member)]
        if others:
            more = ", …" if len(others) > _NAMED else ""
            are = "is no array" if len(others) == 1 else "are no arrays"
            yield "others", f"{count_words(len(others), 'member')} {are}: {', '.join(others[:_NAMED])}{more}"
        from pparse.tree.code_use import code_lines

        yield from code_lines(self.globals())


def _agrees(verdict: Verdict) -> bool:
    """Say whether a member is whole, and its checksum agrees."""
    return verdict.verified is True and verdict.is_complete


def is_little(member: ArchiveMember) -> bool:
    """Say whether a member is small enough to be read just to compare its checksum."""
    return member.size is not None and member.size <= LITTLE_UNPACKED and member.compressed_size <= LITTLE
