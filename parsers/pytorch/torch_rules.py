"""Why torch would refuse a checkpoint that is whole: the rules of its reader, for ``pparse check --strict``.

torch opens an archive by its first bytes and by the directory at its end; the folder of the first member is that of all
(``PyTorchStreamReader::init`` and ``getAllRecords`` of caffe2/serialize/inline_container.cc). Names are looked up as
miniz does, whatever their case. It compares no checksums. ``torch.load`` wants every member in that folder,
``torch.jit.load``, which reads TorchScript, does not. Compared with torch 2.13, archive by archive.
"""

from __future__ import annotations

import re

from pparse.errors import PASSING, PparseError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.parsers.pytorch.records import Record
    from pparse.parsers.pytorch.zip import PyTorchZipParser

# The versions of archives that torch reads (caffe2/serialize/versions.h).
_VERSIONS: Final = range(1, 11)
# The ways of packing that torch reads: those of miniz.
_METHODS: Final = ("stored", "deflate")
# Bytes of a small member that are looked at.
_MOST: Final = 4096


def refusals(parser: PyTorchZipParser) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each thing for which torch refuses the archive; the name is empty for the whole."""
    extraction = parser.result.extraction
    if extraction.data.pread(extraction.start, 4) != b"PK\3\4":
        yield "", "the file does not begin with a member of the archive: torch takes it for a file of its old format"
        return
    if parser.directory is None:
        yield "", "the directory at its end is missing or damaged"
        return
    records = parser.records
    first = next(iter(records), "")
    folder, slash, _ = first.partition("/")
    if not slash:
        yield first, "the first member lies in no folder"
        return
    folder += slash
    lower = {name.lower(): record for name, record in records.items()}
    version = lower.get(f"{folder}.data/version".lower()) or lower.get(f"{folder}version".lower())
    if version is None:
        yield "", f"there is no member {folder}version: the folder is that of the first member"
        return
    yield from _of_values(folder, version, lower.get(f"{folder}byteorder".lower()))
    if f"{folder}data.pkl".lower() not in lower:
        yield "", f"there is no member {folder}data.pkl"
    alignment = lower.get(f"{folder}.storage_alignment".lower())
    if alignment is not None and not re.fullmatch(rb"\s*[+-]?\d+\s*", text := _text(alignment)):
        yield f"{folder}.storage_alignment", f"it says {_shown(text)}, which is no number"
    is_script = f"{folder}constants.pkl".lower() in lower
    for name, record in records.items():
        member = record.unusual
        if record.status is Status.UNSUPPORTED or (member is not None and member.method not in _METHODS):
            yield name, "it is encrypted, or packed by a method that torch does not read"
        if not is_script and not name.startswith(folder):
            yield name, f"it is not in the folder {folder}, which is that of the first member"


def _of_values(folder: str, version: Record, order: Record | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with what the members say that torch reads first."""
    text = _text(version)
    number = re.match(rb"\s*\+?(\d{1,19})", text)
    if number is None:
        yield f"{folder}version", f"it says {_shown(text)}, which is no number"
    elif int(number[1]) not in _VERSIONS:
        yield f"{folder}version", f"it says {int(number[1])}; torch reads {_VERSIONS[0]} to {_VERSIONS[-1]}"
    if order is not None and (text := _text(order)) not in (b"little", b"big"):
        yield f"{folder}byteorder", f"it says {_shown(text)}, not 'little' or 'big'"


def _shown(text: bytes) -> str:
    return repr(text[:64].decode("latin-1"))


def _text(record: Record) -> bytes:
    """Return the content of a small member; nothing if it cannot be read, which is told elsewhere."""
    try:
        data, start, end = record.place()
        return data.pread(start, min(_MOST, end - start))
    except PASSING:
        raise
    except PparseError:
        return b""
