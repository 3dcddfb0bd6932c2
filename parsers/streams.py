"""The parsers of compressed streams: gzip, zlib, raw deflate, bz2, xz, lzma, zstd, lz4 and brotli.

States: none. What a stream holds is decoded by `pparse.compressed.inflated` and, behind damage, by
`pparse.compressed.resync`; see `pparse.containers.stream` for the tree.
"""

from __future__ import annotations

from pparse.codecs import CODECS, decompressor
from pparse.codecs.gzip_header import FTEXT, MAX_HEADER, SYSTEMS, parse_header
from pparse.containers.stream import StreamParser
from pparse.data.base import FileData
from pparse.document.registry import bare_name
from pparse.errors import PASSING, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB, count_words, format_size
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from pparse.compressed.gzip_index import GzipIndex
    from pparse.data.reader import Reader
    from pparse.tree.node import Node
    from pparse.tree.result import Result

# Decoded to see whether a stream is one.
_TRIED = 4 * KIB
_PROOF = 32


def decodes(codec: str, head: bytes) -> bool:
    """Say whether a stream of ``codec`` can be decoded that begins with ``head``."""
    stream = decompressor(codec)
    try:
        return len(stream.decompress(head, _TRIED)) >= _PROOF or stream.eof
    except PASSING:
        raise
    except PparseError:
        return False
    finally:
        stream.close()


class _MagicParser(StreamParser):
    """A format that its first bytes tell."""

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """CERTAIN by the magic bytes, if what follows can be decoded; LIKELY by those alone."""
        head = reader.peek(_TRIED)
        if not any(head.startswith(magic) for magic in CODECS[cls.codec].magics):
            return Confidence.NO
        try:
            return Confidence.CERTAIN if decodes(cls.codec, head) else Confidence.LIKELY
        except PASSING:
            raise
        except PparseError:  # its library is missing
            return Confidence.LIKELY


class _NamedParser(StreamParser):
    """A format that nothing marks but its name, whatever other format its first bytes look like."""

    @classmethod
    def match_named(cls, reader: Reader, name: str) -> Confidence:
        """CERTAIN by the name, if the content can be decoded."""
        if not bare_name(name).endswith(cls.extensions):
            return Confidence.NO
        try:
            return Confidence.CERTAIN if decodes(cls.codec, reader.peek(_TRIED)) else Confidence.NO
        except PASSING:
            raise
        except PparseError:  # its library is missing
            return Confidence.NO


class GzipParser(StreamParser):
    """A gzip file: members, one after the other."""

    name = codec = "gzip"
    description = "gzip (members, BGZF too)"
    extensions = (".gz", ".tgz", ".bgz")
    suffixes = {".tgz": ".tar", ".gz": "", ".bgz": ""}
    media_type = "application/gzip"
    references = ("RFC 1952", "RFC 1951", "SAM/BAM specification 4.1 (BGZF)")
    limitations = ("at most 262,144 members are listed one by one; all of them are read",)
    options: ClassVar[dict[str, str]] = {
        "index": "auto (default): FILE.pindex or one in the cache, as 'pparse index' makes them; none; or its path",
    }

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """CERTAIN by a sound header, LIKELY by one with damaged magic bytes before something that can be decoded."""
        head = reader.peek(_TRIED)
        if parse_header(head) is not None or head.startswith(b"\x1f\x8b\x08"):
            return Confidence.CERTAIN
        header = parse_header(head, tolerant=True)
        if header is None:
            return Confidence.NO
        return Confidence.LIKELY if decodes("deflate", head[header.length :]) else Confidence.NO

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._index: GzipIndex | None = None

    def find_index(self) -> GzipIndex | None:
        """Return the index of the file, if it has one; what is wrong with one becomes a warning."""
        extraction = self.extraction
        session = extraction.session
        option = str(session.options.get("index", "auto"))
        data = extraction.data
        if option == "none" or extraction.parent is not None or not isinstance(data, FileData):
            return None
        from pparse.compressed.gzip_index import find_index, load_index

        if option == "auto":
            index, errors = find_index(data.path, extraction.reader, session.budget, session.pool, session.stats)
        else:
            index, errors = None, []
            try:
                index = load_index(option, extraction.reader, session.budget, session.pool, session.stats)
            except (MalformedError, UnsupportedError) as wrong:
                errors.append(wrong)
        for error in errors:
            self._warn_of_index(error.source or option, error.reason)
        self._index = index
        return index

    def is_indexed(self) -> bool:
        """Say whether there is an index, and nothing was found that it does not fit."""
        return self._index is not None and self._index.problem is None

    def _warn_of_index(self, name: str, reason: str) -> None:
        finding = Finding("index", f"the index is not used: {reason}", source=name, severity=Severity.WARNING)
        self.result.findings.add(finding)

    def note_problems(self) -> None:
        """Add what is wrong with the stream to the findings, and with its index."""
        super().note_problems()
        if self._index is not None and self._index.problem is not None:
            self._warn_of_index(self._index.name, self._index.problem)

    def shape(self, kind: str) -> str:
        """Shapes by kind."""
        if kind == "members":
            return LIST
        return MAP if kind == "member" else super().shape(kind)

    def root_children(self) -> Iterator[Entry]:
        """Yield the content, the members and the gaps."""
        extraction = self.result.extraction
        yield from super().root_children()
        yield Entry("members", "members", extraction.start, extraction.end)

    def entries_of(self, node: Node) -> Iterator[Entry]:
        """Yield the members (for which everything is decoded), or the fields of one."""
        if node.kind == "members":
            yield from self._member_entries()
        elif node.kind == "member":
            yield from self._field_entries(node)
        else:
            yield from super().entries_of(node)

    def _member_entries(self) -> Iterator[Entry]:
        self.drain()
        places = self.content.member_places()
        for number, (start, out) in enumerate(places):
            last = number + 1 == len(places)
            end = self.content.members_end() if last else places[number + 1][0]
            size = (self.content.size or 0) - out if last else places[number + 1][1] - out
            yield Entry(None, "member", start, end, status=Status.COMPLETE, note=size)

    def _field_entries(self, node: Node) -> Iterator[Entry]:
        start = node.start
        head = self.result.extraction.data.read_known(start, min(MAX_HEADER, (node.end or start) - start))[0]
        header = parse_header(head, tolerant=True)
        if header is None:
            return
        end = start + header.length
        system = SYSTEMS[header.system] if header.system < len(SYSTEMS) else header.system
        fields: dict[str, object] = {
            "name": None if header.name is None else header.name.decode("latin-1"),
            "mtime": header.mtime or None,
            "comment": None if header.comment is None else header.comment.decode("latin-1"),
            "extra": header.extra,
            "header_crc": header.header_crc,
            "text": True if header.flags & FTEXT else None,
            "level": {2: "best", 4: "fastest"}.get(header.level),
            "system": None if header.system == 255 else system,
            "bgzf_block_size": header.block_size,
            "size": node.note,
        }
        for key, value in fields.items():
            if value is not None:
                yield Entry(key, "field", start, end, value=value)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield what `pparse info` shows: what the first header says."""
        extraction = self.result.extraction
        header = parse_header(extraction.data.read_known(extraction.start, 4 * KIB)[0], tolerant=True)
        if header is not None and header.name:
            yield "name", header.name.decode("latin-1")
        if header is not None and header.comment:
            yield "comment", header.comment.decode("latin-1")
        if header is not None and header.block_size is not None:
            yield "blocks", "BGZF"
        self.content  # noqa: B018 -- looks for an index
        index = self._index
        if index is not None and index.problem is None:
            part = "" if index.complete else f", of the first {index.size:,} bytes"
            yield "index", f"{index.name}: {count_words(index.points, 'point')}{part}, {format_size(index.file_size)}"


class ZlibParser(StreamParser):
    """A zlib stream."""

    name = codec = "zlib"
    description = "zlib stream"
    extensions = (".zz", ".zlib")
    suffixes = {".zz": "", ".zlib": ""}
    media_type = "application/zlib"
    references = ("RFC 1950", "RFC 1951")

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """LIKELY by a header whose check bits are right, if what follows can be decoded."""
        head = reader.peek(_TRIED)
        if len(head) < 8 or head[0] & 15 != 8 or head[0] >> 4 > 7 or (head[0] << 8 | head[1]) % 31 or head[1] & 0x20:
            return Confidence.NO
        return Confidence.LIKELY if decodes("zlib", head) else Confidence.NO


class DeflateParser(_NamedParser):
    """A raw deflate stream: nothing marks it, it has to be named."""

    name = codec = "deflate"
    description = "raw deflate stream"
    extensions = (".deflate",)
    suffixes = {".deflate": ""}
    references = ("RFC 1951",)


class Bz2Parser(_MagicParser):
    """A bzip2 file."""

    name = codec = "bz2"
    description = "bzip2"
    extensions = (".bz2", ".tbz2", ".tbz")
    suffixes = {".tbz2": ".tar", ".tbz": ".tar", ".bz2": ""}
    media_type = "application/x-bzip2"
    references = ("bzip2 1.0.8",)


class XzParser(_MagicParser):
    """An xz file."""

    name = codec = "xz"
    description = "xz (streams, blocks)"
    extensions = (".xz", ".txz")
    suffixes = {".txz": ".tar", ".xz": ""}
    media_type = "application/x-xz"
    references = ("The .xz file format 1.2.0",)


class LzmaParser(StreamParser):
    """An lzma file of the old kind ("alone")."""

    name = codec = "lzma"
    description = "lzma, the format before xz"
    extensions = (".lzma", ".tlz")
    suffixes = {".tlz": ".tar", ".lzma": ""}
    media_type = "application/x-lzma"
    references = ("LZMA SDK: lzma-specification.txt",)
    limitations = ("nothing behind damage can be read: the format has no blocks",)

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """LIKELY by sane properties and dictionary size, if what follows can be decoded."""
        head = reader.peek(_TRIED)
        if len(head) < 14 or head[0] >= 225 or head[13] != 0:
            return Confidence.NO
        size = int.from_bytes(head[1:5], "little")
        power = size & (size - 1) == 0 or (size % 3 == 0 and (size // 3) & (size // 3 - 1) == 0)
        if size < 4096 or not power:
            return Confidence.NO
        return Confidence.LIKELY if decodes("lzma", head) else Confidence.NO


class ZstdParser(_MagicParser):
    """A Zstandard file."""

    name = codec = "zstd"
    description = "Zstandard (frames)"
    extensions = (".zst", ".tzst", ".zstd")
    suffixes = {".tzst": ".tar", ".zst": "", ".zstd": ""}
    media_type = "application/zstd"
    references = ("RFC 8878",)


class Lz4Parser(_MagicParser):
    """An LZ4 frame file."""

    name = codec = "lz4"
    description = "LZ4 frames"
    extensions = (".lz4", ".tlz4")
    suffixes = {".tlz4": ".tar", ".lz4": ""}
    media_type = "application/x-lz4"
    references = ("LZ4 Frame Format Description 1.6.4",)


class BrotliParser(_NamedParser):
    """A Brotli file: nothing marks it but its name."""

    name = codec = "brotli"
    description = "Brotli"
    extensions = (".br",)
    suffixes = {".br": ""}
    media_type = "application/x-brotli"
    references = ("RFC 7932",)
    limitations = ("nothing behind damage can be read: blocks depend on all that precedes them",)
