"""What directory and local header say of a member's bytes, and the stretch that is taken for them."""

from __future__ import annotations

from pparse.parsers.zip.records import STREAMED, CentralEntry, LocalHeader


class MemberExtent:
    """The stored bytes ``[start, end)`` of a member, and where scanning continues (``next``)."""

    __slots__ = (
        "code",
        "compressed_size",
        "crc",
        "cut",
        "end",
        "gap_end",
        "gap_start",
        "missing",
        "next",
        "reason",
        "rival",
        "size",
        "start",
    )

    def __init__(self, start: int, end: int, following: int, size: int | None, crc: int | None) -> None:
        self.start = start
        self.end = end
        self.next = following
        self.size = size
        """Size of the content; None if unknown."""
        self.crc = crc
        """CRC-32 of the content; None if unknown."""
        self.compressed_size = end - start
        """Bytes stored, as declared or measured."""
        self.code = self.reason = ""
        """What is wrong, as a code and in words; empty if nothing is."""
        self.cut = False
        """Whether the end is missing."""
        self.missing: int | None = None
        """Number of bytes that are lost somewhere in ``[gap_start, gap_end)``; None if there is no such gap."""
        self.gap_start = self.gap_end = 0
        self.rival: int | None = None
        """A differing CRC-32 from another record."""

    @property
    def content(self) -> int:
        """Size of the content if known, else the number of bytes stored."""
        return self.compressed_size if self.size is None else self.compressed_size and self.size

    def blame(self, code: str, reason: str, *, cut: bool = False) -> MemberExtent:
        """Set what is wrong, and return this extent."""
        self.code, self.reason, self.cut = code, reason, cut
        return self


class Claim:
    """Declared values of a member: ``compressed_size``, ``size``, ``crc``; ``listed``: by the directory."""

    __slots__ = ("compressed_size", "crc", "listed", "size")

    def __init__(self, compressed_size: int, size: int | None, crc: int | None, *, listed: bool) -> None:
        self.compressed_size = compressed_size
        self.size = size
        self.crc = crc
        self.listed = listed


def claims_of(header: LocalHeader, entry: CentralEntry | None) -> list[Claim]:
    """Return the values that directory and local header declare; zeros with a descriptor declare nothing."""
    claims = []
    if entry is not None:
        claims.append(Claim(entry.compressed_size, entry.size, entry.crc, listed=True))
    if header.compressed_size is not None and (header.compressed_size or not header.flags & STREAMED):
        crc = header.crc if header.crc or not header.flags & STREAMED else None
        size = header.size if header.size or not header.flags & STREAMED else None
        if not claims or (header.compressed_size, size, crc) != (
            claims[0].compressed_size,
            claims[0].size,
            claims[0].crc,
        ):
            claims.append(Claim(header.compressed_size, size, crc, listed=False))
    return claims


def followed(have: int, compressed_size: int) -> str:
    """Return the words on a member in which another one begins."""
    return f"another member begins after {have:,} of {compressed_size:,} bytes"


def note_contradiction(extent: MemberExtent, claim: Claim, claims: list[Claim]) -> MemberExtent:
    """Record that local header and directory disagree; the one that fits the file is right."""
    if len(claims) < 2:
        return extent
    other = claims[1] if claim is claims[0] else claims[0]
    if (other.compressed_size, other.size or claim.size, other.crc or claim.crc) != (
        claim.compressed_size,
        claim.size,
        claim.crc,
    ):
        who = "local header" if claim.listed else "directory"
        extent.blame("contradiction", f"the {who} has sizes or a CRC that do not fit the file")
    return extent


def note_cut(extent: MemberExtent, compressed_size: int | None) -> MemberExtent:
    """Record that the data end before the member does, if so."""
    have = extent.end - extent.start
    if compressed_size is None:
        return extent.blame("truncated", f"the archive ends inside it, after {have:,} bytes", cut=True)
    if compressed_size > have:
        extent.compressed_size = compressed_size
        return extent.blame(
            "truncated", f"the archive ends inside it, after {have:,} of {compressed_size:,} bytes", cut=True
        )
    return extent
