"""The parsers of compressed streams: gzip, zlib and lzma, and those that a codec's descriptor says all of.

A codec with ``told_by="magic"`` or ``"name"`` in `pparse.codecs.table` has its parser from there (`Bz2Parser`,
`XzParser`, `ZstdParser`, `Lz4Parser`, `DeflateParser`, `BrotliParser`).

States: none. What a stream holds is decoded by `pparse.compressed.inflated` and, behind damage, by
`pparse.compressed.resync`; see `pparse.containers.stream` for the tree.
"""

from __future__ import annotations

from contextlib import suppress

from pparse.codecs.base import decompressor
from pparse.codecs.gzip_header import BGZF_END, FTEXT, MAX_HEADER, SYSTEMS, parse_header
from pparse.codecs.table import CODECS
from pparse.containers.stream import StreamParser
from pparse.errors import DataError
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB, count_words, format_size
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import ClassVar

    from pparse.compressed.gzip_index import GzipIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# Decoded to see whether a stream is one.
_TRIED = 4 * KIB
_PROOF = 32


def decodes(codec: str, head: bytes) -> bool:
    """Say whether a stream of ``codec`` can be decoded that begins with ``head``."""
    stream = decompressor(codec)
    try:
        return len(stream.decompress(head, _TRIED)) >= _PROOF or stream.eof
    except DataError:
        return False
    finally:
        stream.close()


class _DescribedParser(StreamParser):
    """A format that its first bytes tell; or nothing but its name does, whatever other format those look like."""

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by magic bytes or name, if what follows can be decoded; LIKELY by magic bytes alone."""
        head, by_magic = excerpt.head(_TRIED), CODECS[cls.codec].told_by == "magic"
        if not (head.startswith(CODECS[cls.codec].magics) if by_magic else excerpt.ends_with(cls.extensions)):
            return Confidence.NO
        with suppress(DataError):  # its library is missing
            if decodes(cls.codec, head):
                return Confidence.CERTAIN
        return Confidence.LIKELY if by_magic else Confidence.NO


class GzipParser(StreamParser):
    """A gzip file: members, one after the other."""

    codec = "gzip"
    shapes: ClassVar[dict[str, str]] = {**StreamParser.shapes, "members": LIST, "member": MAP}
    options: ClassVar[dict[str, str]] = {
        "index": "auto (default): FILE.pindex or one in the cache, as 'pparse index' makes them; none; or its path"
    }

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by a sound header, LIKELY by one with damaged magic bytes before something that can be decoded."""
        head = excerpt.head(_TRIED)
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
        if option == "none" or extraction.parent is not None or not extraction.data.is_file:
            return None
        from pparse.compressed.gzip_index import GzipIndex
        from pparse.data.index_files import find_index

        source = extraction.reader
        index, errors = find_index(GzipIndex, source, session.budget, session.pool, session.stats, option=option)
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
        noted = self._noted
        super().note_problems()
        if self._index is not None and self._index.problem is not None:
            self._warn_of_index(self._index.name, self._index.problem)
        if self._noted and not noted and self._lacks_end_block():
            reason = "the empty block that ends a BGZF file is missing: it may be truncated"
            source, offset = self.extraction.name, self.extraction.end
            self.result.findings.add(
                Finding("no-end-block", reason, source=source, offset=offset, severity=Severity.WARNING)
            )

    def _lacks_end_block(self) -> bool:
        """Say whether the first member is a block of BGZF, and the last one is not the empty one."""
        extraction = self.extraction
        data, start, end = extraction.data, extraction.start, extraction.end
        header = parse_header(data.read_known(start, 4 * KIB)[0])
        if header is None or header.block_size is None or end is None or self.content.is_suspect:
            return False
        return data.read_known(max(start, end - len(BGZF_END)), len(BGZF_END))[0] != BGZF_END

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
        self.verify_stream()
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

    codec = "zlib"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by a header whose check bits are right, if what follows can be decoded."""
        head = excerpt.head(_TRIED)
        if len(head) < 8 or head[0] & 15 != 8 or head[0] >> 4 > 7 or (head[0] << 8 | head[1]) % 31 or head[1] & 0x20:
            return Confidence.NO
        return Confidence.LIKELY if decodes("zlib", head) else Confidence.NO


class LzmaParser(StreamParser):
    """An lzma file of the old kind ("alone")."""

    codec = "lzma"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by sane properties and dictionary size, if what follows can be decoded."""
        head = excerpt.head(_TRIED)
        if len(head) < 14 or head[0] >= 225 or head[13] != 0:
            return Confidence.NO
        size = int.from_bytes(head[1:5], "little")
        power = size & (size - 1) == 0 or (size % 3 == 0 and (size // 3) & (size // 3 - 1) == 0)
        if size < 4096 or not power:
            return Confidence.NO
        return Confidence.LIKELY if decodes("lzma", head) else Confidence.NO


def __getattr__(name: str) -> type[StreamParser]:
    """Make the parser of a codec of which its descriptor says all: `Bz2Parser`, `ZstdParser` …"""
    for codec in CODECS.values():
        if codec.told_by in ("magic", "name") and codec.parser == f"{__name__}:{name}":
            more = {"codec": codec.name, "__doc__": f"A file in the format {codec.title}.", "__module__": __name__}
            made = globals()[name] = type(name, (_DescribedParser,), more)
            return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
