"""SHA-256 of whole files, and where to find the expected digest.

Sources, in this order: the command line; the blob's name in a Hugging Face cache (a symbolic link to
``blobs/<sha256>``); the metadata that ``huggingface_hub`` keeps for a download (second line of
``.cache/huggingface/download/NAME.metadata``); ``NAME.sha256`` beside the file; a line of ``SHA256SUMS`` (or the other
usual names) there; an LFS pointer ``NAME.pointer`` there.
"""

from __future__ import annotations

import re

from pparse.data import files
from pparse.errors import PathError, PparseError
from pparse.findings import Finding, Severity
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction

_HEX: Final = lazy_pattern(r"[0-9a-fA-F]{64}")
_POINTER: Final = lazy_pattern(r"^oid sha256:([0-9a-f]{64})\s*$", re.MULTILINE)
_POINTER_SIZE: Final = lazy_pattern(r"^size (\d{1,18})\s*$", re.MULTILINE)
_SUM_LINE: Final = lazy_pattern(r"^\\?([0-9a-fA-F]{64})[ \t]+[ *]?(.+?)\s*$", re.MULTILINE)
_BSD_LINE: Final = lazy_pattern(r"^SHA256 \((.+)\) = ([0-9a-fA-F]{64})\s*$", re.MULTILINE)
_SUM_FILES: Final = (
    "SHA256SUMS",
    "SHA256SUMS.txt",
    "SHA256SUM",
    "sha256sums.txt",
    "sha256sum.txt",
    "checksums.sha256",
    "checksums.txt",
)
_MAX_TEXT: Final = 16 << 20


def check_digests(document: Extraction, expected: str) -> Iterator[Finding]:
    """Compare the file of the document, or each of its shards, with its digest; yield one finding per file."""
    files = _files(document)
    if expected and _HEX.fullmatch(expected) and len(files) > 1:
        raise PathError("one digest cannot match several shards; give a SHA256SUMS file", path=expected)
    for name, data in files:
        yield _check(document, name, data, expected)


def _files(document: Extraction) -> list[tuple[str, Data | None]]:
    container = document.parse().container
    if container is None or not container.is_set:
        data = document.data
        whole = data.is_file and (document.start, document.end) == (0, data.size)
        return [(document.name, data if whole else None)]
    found: list[tuple[str, Data | None]] = []
    for name in container.shard_names():
        try:
            shard = container.shard(name).data
        except PparseError:
            continue  # a missing shard is a finding already
        found.append((name, shard if shard.is_file else None))
    return found


def _check(document: Extraction, name: str, data: Data | None, expected: str) -> Finding:
    if data is None or data.path is None:
        return Finding("no-digest", "there is no file to hash", severity=Severity.WARNING, source=name)
    wanted, origin, size = _expected(data.path, expected)
    if wanted is None and expected:
        return Finding("no-digest", f"{expected} has no digest for this file", source=name)
    if wanted is None:
        return Finding(
            "no-digest",
            "no digest was found: no cache blob name, SHA256SUMS line, .sha256 file or LFS pointer",
            severity=Severity.WARNING,
            source=name,
        )
    if size is not None and size != data.size:
        return Finding("digest", f"the size differs from that of {origin}", source=name, wanted=size, got=data.size)
    got = digest(document, data)
    if got != wanted:
        return Finding(
            "digest",
            f"the SHA-256 differs from that of {origin}",
            source=name,
            wanted=wanted,
            got=got,
            offset=0,
            length=data.size,
        )
    return Finding("digest", f"the SHA-256 is that of {origin}", severity=Severity.NOTE, source=name, got=got)


def digest(document: Extraction, data: Data) -> str:
    """Return the SHA-256 of a whole file, read as a stream."""
    import hashlib

    session = document.session
    sha = hashlib.sha256()
    total = data.size or 0
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    done = 0
    while done < total:
        session.check_cancelled()
        got = data.preadinto(done, view)
        sha.update(view[:got])
        done += got
        if session.progress is not None:
            session.progress(done, total, f"SHA-256 of {files.name_of(data.name)}")
    data.check_unchanged()
    return sha.hexdigest()


def _expected(path: str, said: str) -> tuple[str | None, str, int | None]:
    """Return the expected digest, where it comes from, and the expected size if known."""
    if said:
        if _HEX.fullmatch(said):
            return said.lower(), "the command line", None
        text = _read_text(said)
        if text is None:
            raise PathError("neither 64 hex digits nor a file that can be read", path=said)
        return _from_text(text, files.name_of(path), said)
    blob = files.linked_name(path)
    if blob is not None and _HEX.fullmatch(blob):
        return blob.lower(), "its name in the cache", None
    folder, name = files.split(path)
    text = _read_text(files.inside(folder, ".cache", "huggingface", "download", name + ".metadata"))
    lines = text.splitlines() if text else []
    if len(lines) > 1 and _HEX.fullmatch(lines[1].strip()):
        return lines[1].strip().lower(), "the metadata of the download", None
    for candidate in (name + ".sha256", *_SUM_FILES, name + ".pointer"):
        text = _read_text(files.inside(folder, candidate))
        if text is not None:
            found = _from_text(text, name, candidate)
            if found[0] is not None:
                return found
    return None, "", None


def _read_text(path: str) -> str | None:
    try:
        with files.open_file(path) as data:
            size = data.size or 0
            if size > _MAX_TEXT:
                return None
            text = data.read_exact(0, size).decode("utf-8", "replace")
    except PparseError:  # there is none, or it changes just now
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _from_text(text: str, name: str, origin: str) -> tuple[str | None, str, int | None]:
    pointer = _POINTER.search(text)
    if text.startswith("version https://git-lfs") and pointer is not None:
        size = _POINTER_SIZE.search(text)
        return pointer[1], f"the LFS pointer {origin}", int(size[1]) if size is not None else None
    lines = [(match[2], match[1]) for match in _SUM_LINE.finditer(text)]
    lines += [(match[1], match[2]) for match in _BSD_LINE.finditer(text)]
    for listed, value in lines:
        if listed == name or listed.endswith("/" + name):
            return value.lower(), f"its line in {origin}", None
    if _HEX.fullmatch(text.strip()):
        return text.strip().lower(), origin, None
    return None, "", None
