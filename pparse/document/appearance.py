"""What data look like from outside: text, zeros, a web page, a format that is known but not read."""

from __future__ import annotations

from codecs import getincrementaldecoder

from pparse.data.base import Access
from pparse.document.folder import folders_with, which_part
from pparse.document.named_formats import named, named_folder, words
from pparse.errors import EndOfDataError, GapError, PparseError, told
from pparse.limits import MIB
from pparse.tree.parser import bare_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.tree.host import Host

# What is often found under a model's name instead: (what it may begin with, what to report).
_MISTAKEN: Final = (
    ((b"version https://git-lfs",), "a Git LFS pointer, not the file itself: run 'git lfs pull' to fetch it"),
    (
        (b"<!DOCTYPE html", b"<!doctype html", b"<html", b"<HTML"),
        "an HTML page, not a model: the download was answered with a web page",
    ),
    ((b"<?xml",), "an XML document (an error message of a file server?)"),
)

# No placeholder is larger: a pointer has three lines, a page of a server some hundred.
_LARGEST_PLACEHOLDER: Final = MIB

# Formats whose files name others that hold their content: extensions; how many are looked into, and how far.
_NAMING: Final = (".onnx",)
_MOST_NAMING, _LOOKED_INTO = 16, 8 * MIB
# A shorter name may be in any file.
_SHORTEST: Final = 5

_ZEROS: Final = MIB  # no program writes so many zeros at both ends of a file


def head_of(extraction: Host, count: int) -> bytes:
    """Return the first bytes of an extraction; empty if they are lost."""
    if extraction.size is not None:
        count = min(count, extraction.size)
    return extraction.data.known(extraction.start, count)


def tail_of(extraction: Host, count: int) -> bytes:
    """Return the last bytes of an extraction; empty if all of it would have to be decoded first."""
    if extraction.data.access is not Access.FREE:
        return b""
    end = extraction.find_end()
    return extraction.data.known(max(extraction.start, end - count), count) if end > extraction.start else b""


def mistaken(head: bytes, tail: bytes = b"", there: int | None = None) -> str | None:
    """Return what a file is that begins with ``head`` and is known not to be a model; None if that is not known.

    ``there``: how many bytes there are; of some formats it is told that they are cut.
    """
    known = named(head, tail)
    if known is not None:
        return words(known, head, there)
    return next((what for start, what in _MISTAKEN if head.startswith(start)), None)


def placeholder(extraction: Host) -> str | None:
    """Return what stands where the content of a file should be: a Git LFS pointer, a web page; None if nothing does.

    Asked of every file that is opened because another one belongs to it, before it is taken for data.
    """
    try:
        size = extraction.find_end() - extraction.start
        head = extraction.data.pread(extraction.start, min(size, 64)) if 0 < size <= _LARGEST_PLACEHOLDER else b""
    except (GapError, EndOfDataError):
        return None
    head = head.lstrip()
    return next((what for start, what in _MISTAKEN if head.startswith(start)), None)


def text_start(head: bytes) -> str | None:
    """Return the first bytes of a file as text, without a character that is cut at their end; None for binary data."""
    try:
        return getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None


def is_text(head: bytes) -> bool:
    """Return whether a file begins with what is clearly text."""
    text = text_start(head)
    return text is not None and len(text) >= 8 and all(char.isprintable() or char in "\t\r\n" for char in text)


def nothing_there(extraction: Host) -> str | None:
    """Return a message if a file is empty, or begins and ends with more zeros than any program writes; else None."""
    if extraction.is_folder:
        return None
    data, start, end = extraction.data, extraction.start, extraction.end
    head = head_of(extraction, 64)
    if not head:
        return "the file is empty"
    if head.strip(b"\0") or end is None:  # more of a stream is known only once all of it is decoded
        return None
    for at in (start, max(start, end - _ZEROS)):
        known, unknown = data.read_known(at, min(_ZEROS, end - at))
        if unknown or not known or known.strip(b"\0"):
            return None
    where = "contains only zeros" if end - start <= 2 * _ZEROS else "begins and ends with 1 MiB of zeros"
    return f"it {where} (a download that was never written?)"


def known_other(extraction: Host) -> str | None:
    """Return what a file is if it is known but not read; None otherwise."""
    if extraction.is_folder:
        return None
    head = head_of(extraction, 64)
    end = extraction.end
    there = None if end is None else extraction.find_end() - extraction.start
    return mistaken(head, tail_of(extraction, 8), there) or mistaken(head.lstrip())


def what_it_is(extraction: Host, extensions: tuple[str, ...]) -> str:
    """Return what to say of data that no parser recognises; ``extensions`` are those of the formats that are read."""
    if extraction.is_folder:
        other = named_folder(extraction.members)  # type: ignore[attr-defined]
        if other is not None:
            return words(other)
        names = [name for name in extraction.members if bare_name(name).endswith(extensions)]  # type: ignore[attr-defined]
        hint = f"name one of its files: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
        below = folders_with(extraction.folder, extensions)  # type: ignore[attr-defined]
        if below:
            hint = f"name a file or folder in it: {', '.join(below[:4])}{' …' if len(below) > 4 else ''}"
        elif not names:
            empty = not extraction.members  # type: ignore[attr-defined]
            hint = "it holds no files" if empty else "a folder is read as one model; name a file to look into it"
        return f"no model recognised in this folder; {hint}"
    what = known_other(extraction)
    if what is not None:
        return what
    owner = named_by(extraction)
    if owner is not None:
        return f"no parser recognises it, but {owner} beside it names it: it holds the bytes of tensors; open that"
    part = which_part(extraction.name, extraction.folder)  # type: ignore[attr-defined]
    if part is not None:
        return f"no parser recognises it; {part}"
    head = head_of(extraction, 64)
    if is_text(head):
        text = head.decode("utf-8", "replace")
        return f"no parser recognises this text: {text!r}; 'pparse formats' lists what is read"
    if not head.strip(b"\0"):
        return "no parser recognises it; it begins with zeros (a part that was never written?)"
    what = f"no parser recognises it (it begins with {head[:16].hex(' ')})"
    return f"{what}; 'pparse formats' lists them; {told('-f', 'format=')} names one"


def named_by(extraction: Host) -> str | None:
    """Return the file beside this one that names it as the place of its content; None if no such file is found.

    Looks for the name in the first and last 4 MiB of a few files with the extensions of such formats.
    """
    folder = extraction.folder  # type: ignore[attr-defined]
    if folder is None:
        return None
    wanted = extraction.name.rpartition("/")[2].encode("utf-8", "surrogateescape")
    if len(wanted) < _SHORTEST:
        return None
    try:
        own = wanted.decode("utf-8", "surrogateescape")
        names = [name for name in folder.names() or () if bare_name(name).endswith(_NAMING) and name != own]
        # Most probable first: model.onnx for model.onnx.data or model.onnx_data.
        names.sort(key=lambda name: not extraction.name.startswith(name))
        for name in names[:_MOST_NAMING]:
            file = extraction.sibling(name)  # type: ignore[attr-defined]
            most, end = _LOOKED_INTO // 2, file.find_end()
            head = file.data.pread(file.start, min(end - file.start, most))
            behind = max(file.start + len(head), end - most)
            if wanted in head or wanted in file.data.pread(behind, min(most, end - behind)):
                return str(name)
    except (PparseError, OSError):
        return None
    return None
