"""Which downloads to resume: for content of an archive or compressed stream, that of the outermost file."""

from __future__ import annotations

from pparse.data.zero_runs import first_unwritten
from pparse.errors import EndOfDataError
from pparse.findings import Status
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pparse.document.extraction import Extraction


class Resume:
    """A file whose download should be resumed."""

    __slots__ = ("at", "file", "helps", "hole", "note", "size")

    def __init__(self, file: str, at: int, *, hole: bool = False, size: int | None = None) -> None:
        self.file = file
        """Name of the file."""
        self.at = at
        """Byte to resume at; 0: download it again."""
        self.hole = hole
        """Whether the file has its full size, so that programs that resume at its end would do nothing."""
        self.size = size
        """Bytes that the file should have, if that is known of it alone."""
        self.note = ""
        """What lies beside it and is better, or as good, in words (`pparse.document.beside`)."""
        self.helps = True
        """Whether resuming, or fetching, it gives the whole file; else the note says what does."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON: ``at`` is None if resuming does not help."""
        told: dict[str, object] = {"file": self.file, "at": self.at if self.helps else None}
        if self.note:
            told["note"] = self.note
        return told

    @property
    def words(self) -> str:
        """What to do with the file, in words."""
        if not self.helps:
            return self.note
        how = f"resume at byte {self.at}" + ("" if self.hole else " (curl -C - does so)") if self.at else "fetch it"
        return how + (f"; {self.note}" if self.note else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resume) and (self.file, self.at) == (other.file, other.at)

    def __hash__(self) -> int:
        return hash((self.file, self.at))

    def __repr__(self) -> str:
        return f"<Resume {self.file!r} at {self.at}>"


def downloads(outer: Extraction, at: int, *, cut: bool = True) -> list[Resume]:
    """Return what to resume if an outermost file ends at byte ``at``: the file, or those of its parts that lack bytes.

    ``cut``: whether bytes are missing at its end.
    """
    if outer.is_other:
        return []
    parts = outer.file_parts
    if not parts:
        return [Resume(outer.name, at)] if cut else []
    found = [Resume(part.file, part.there) for part in parts if part.there < part.size]
    last = parts[-1]
    if cut and at >= outer.known_end() - outer.start:
        whole = last.there >= parts[0].size
        found.append(Resume(last.next_name, 0) if whole else Resume(last.file, last.there))
    return found


def outermost_file(document: Extraction) -> Extraction:
    """Return the file that a document is, or lies in."""
    outer = document.parsed
    while outer.parent is not None and (outer.implicit or outer.origin is not None):
        outer = outer.parent
    return outer


def is_inside(document: Extraction) -> bool:
    """Return whether a document lies in an archive or a compressed stream."""
    return outermost_file(document) is not document.parsed


def is_cut_outside(document: Extraction) -> bool:
    """Return whether the outermost file was cut, rather than the document before it was compressed."""
    level = document.parsed
    while level.parent is not None and (level.implicit or level.origin is not None):
        around = level.parent
        decoded = level.data is not around.data
        short = decoded and isinstance(level.data.error, EndOfDataError)
        if not short and (level.origin is None or level.origin[1].status is not Status.TRUNCATED):
            return False
        if not short and level.origin is not None and level.origin[1].end < around.known_end():
            return False
        level = around
    return True


def first_hole(document: Extraction) -> int | None:
    """Return the first byte of the outermost file that was never written; None if all were."""
    outer = outermost_file(document)
    return first_unwritten(outer.data, outer.start, outer.known_end())


def outside(document: Extraction) -> list[Resume]:
    """Return what to resume for an incomplete document inside something: its outermost file, or nothing."""
    outer = outermost_file(document)
    hole = first_hole(document)
    if hole is not None:
        return [Resume(outer.name, hole, hole=True)]
    return downloads(outer, outer.known_end() - outer.start, cut=is_cut_outside(document))


def resume_lines(files: Sequence[Resume], most: int | None = None) -> list[str]:
    """Return the files in words: one line for a single file, else a line for each, or for ``most`` of them."""
    if not files:
        return []
    if len(files) == 1:
        only = files[0]
        if not only.helps:
            return [f"no download to resume: {only.note}"]
        how = " (curl -C - does so)" if only.at and not only.hole else ""
        what = f"resume the download at byte {only.at} of {only.file}{how}" if only.at else f"fetch {only.file}"
        return [what + (f"; {only.note}" if only.note else "")]
    shown = files if most is None or len(files) <= most else files[:most]
    width = min(80, max(len(file.file) for file in shown))
    fetch = sum(file.helps and not file.at for file in files)
    heads = [f"{count_words(len(files) - fetch, 'file')} to resume"] if fetch < len(files) else []
    heads += [f"{count_words(fetch, 'file')} to fetch"] if fetch else []
    lines = [f"{', '.join(heads)}:", *(f"  {file.file:{width}}  {file.words}" for file in shown)]
    if len(shown) < len(files):
        lines.append(f"  … and {len(files) - len(shown):,} more; 'pparse check' names all")
    return lines
