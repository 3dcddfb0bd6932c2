"""``RECOVERY.json``: the result for every file. Written along with the files, so a million of them need no memory.

::

    {"schema": 1, "files": [{"path", "status", "verified", "bytes", "sha256", "source", "offset", "mtime", "raw_name",
                             "reason", "doubtful": [[offset, length], …], "gaps": [[offset, length | null], …]}, …],
     "fill": …, "findings": [Finding.to_dict(), …], "omitted_findings": n, "summary": {…}}

One file a line, ASCII only, without times of the run or folders of the machine: the same input gives the same bytes.
"""

from __future__ import annotations

import json
import math
import re

from pparse.findings import HasStatus, Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size
from pparse.recovery.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Final, Self

    from pparse.containers.content import Verdict
    from pparse.findings import Finding, FindingList
    from pparse.recovery.target import Target, TargetFile

    Gap = Sequence[int | None]

SCHEMA: Final = 1
_BLOCK: Final = 64 << 10
_ABSOLUTE: Final = lazy_pattern(r"/|\\|[A-Za-z]:[/\\]")


def doubtful_name(name: str) -> str:
    """Return the name of the file beside ``name`` for bytes that may be wrong: ``model.doubtful.safetensors``."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.rpartition(".")
    return f"{folder}{slash}{stem}.doubtful.{suffix}" if dot and stem else f"{name}.doubtful"


class RecoveredFile(HasStatus):
    """One file of the report; the attributes are those of its JSON object.

    ``doubtful`` and ``gaps`` may be iterators: `RecoveryReport.add` reads them once.
    """

    verified: bool | None = None
    """Whether its own checksum confirmed it; None if it has none."""
    parts: tuple[int, int] = (0, 0)
    """How many parts it has, and for how many of them a checksum agrees; not in the JSON."""
    is_part: bool = False
    """Whether it is a part of a file, such as a tensor, that could not be saved; not in the JSON."""
    bytes: int = 0
    """Bytes written."""
    sha256: str | None = None
    """SHA-256 of the bytes written, in hexadecimal."""
    source: str | None = None
    """The container that it was in."""
    offset: int | None = None
    """Offset in that container."""
    mtime: float | None = None
    """Modification time, in seconds since 1970."""
    raw_name: str | None = None
    """The stored name, if it differs from `path`."""
    reason: str | None = None
    """Why the file is not complete, in words."""
    doubtful: Sequence[Sequence[int]] = ()
    """Pairs ``(offset, length)`` of bytes in the file that may be wrong."""
    gaps: Iterable[Gap] = ()
    """Pairs ``(offset, length)`` of missing bytes in the file; the length is None if it is not known."""

    def __init__(self, path: str | None, status: Status, **known: Any) -> None:
        """``known``: the other attributes, as far as they are known."""
        self.path = path
        """Path below the target, with slashes; None if nothing was written."""
        self.status = status
        """Status of the file."""
        self.__dict__.update(known)

    @classmethod
    def written(cls, file: TargetFile, status: Status, **known: Any) -> RecoveredFile:
        """Return the entry for a file that was written; ``known`` are the attributes that the file does not have."""
        return cls(
            file.path, status, bytes=file.bytes, sha256=file.sha256, mtime=file.mtime, raw_name=file.raw_name, **known
        )

    @classmethod
    def judged(cls, file: TargetFile | None, verdict: Verdict, **known: Any) -> RecoveredFile:
        """Return the entry for what was read with ``verdict``, and written to ``file`` (None: nothing was)."""
        known |= {"verified": verdict.verified, "parts": verdict.parts, "doubtful": verdict.suspect}
        if file is None:
            return cls(None, verdict.status, reason=verdict.reason, **known)
        return cls.written(file, verdict.status, reason=verdict.reason, gaps=verdict.gaps, **known)

    def to_dict(self) -> dict[str, object]:
        """Return all but the gaps as plain data, in the order of the schema."""
        return {
            "path": self.path,
            "status": self.status.value,
            "verified": self.verified,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "source": None if self.source is None else without_folder(self.source),
            "offset": self.offset,
            "mtime": _number(self.mtime),
            "raw_name": self.raw_name,
            "reason": self.reason,
            "doubtful": [list(pair) for pair in self.doubtful],
        }

    def __str__(self) -> str:
        """Return one readable line, with control characters escaped."""
        name = self.path if self.path is not None else self.raw_name or "?"
        why = f": {printable(self.reason)}" if self.reason else ""
        mark = "verified" if self.verified and self.is_complete else ""
        return f"{self.status.value:<11} {mark:<8} {format_size(self.bytes):>9}  {printable(name)}{why}"

    def __repr__(self) -> str:
        return f"<RecoveredFile {self.path!r}: {self.status}>"


class Summary:
    """Counts over all files of a recovery. As text, one line."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Status, 0)
        """Number of files, and of parts of them that could not be saved, by `Status`."""
        self.lost_parts = dict.fromkeys(Status, 0)
        """Number of such parts, by `Status`."""
        self.verified = self.bytes = self.gaps = self.gap_bytes = self.not_written = self.doubtful = 0
        """Counts: verified files, bytes written, gaps, bytes in gaps, files not written, files with doubtful bytes."""
        self.confirmed = 0
        """Number of verified files that are complete. A file with a right checksum may be invalid by its format."""
        self.parts = self.parts_confirmed = 0
        """Number of parts of complete files that are not verified as a whole, and of those with a right checksum."""
        self.set_apart: list[str] = []
        """Names of files that only hold bytes in doubt; the first 1,000."""

    @property
    def files(self) -> int:
        """Number of files, including those not written, and of parts that could not be saved."""
        return sum(self.counts.values())

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost."""
        return self.counts[Status.COMPLETE] == self.files

    def add(self, file: RecoveredFile) -> None:
        """Count a file; its gaps are counted with `add_gap`."""
        self.counts[file.status] += 1
        self.lost_parts[file.status] += file.is_part
        self.verified += bool(file.verified)
        self.confirmed += bool(file.verified) and file.is_complete
        if file.is_complete and not file.verified:
            self.parts += file.parts[0]
            self.parts_confirmed += file.parts[1]
        self.bytes += file.bytes
        self.not_written += file.path is None
        self.doubtful += bool(file.doubtful)
        base = (file.path or "").rpartition("/")[2]
        if (base.endswith(".doubtful") or ".doubtful." in base) and len(self.set_apart) < 1000:
            self.set_apart.append(str(file.path))

    def add_whole(self, file: RecoveredFile) -> None:
        """Count a file and its gaps, which are kept in the file."""
        file.gaps = tuple(file.gaps)
        self.add(file)
        for _, length in file.gaps:
            self.add_gap(length)

    def note_confirmed(self, files: int) -> None:
        """Count that many complete files as verified that were not when they were added."""
        self.verified += files
        self.confirmed += files

    def add_gap(self, length: int | None) -> None:
        """Count a gap of ``length`` bytes; None if the length is not known."""
        self.gaps += 1
        self.gap_bytes += length or 0

    def to_dict(self) -> dict[str, object]:
        """Return the counts as plain data."""
        return {
            "files": self.files,
            **{str(status): count for status, count in self.counts.items()},
            "verified": self.verified,
            "not_written": self.not_written,
            "bytes": self.bytes,
            "gaps": self.gaps,
            "gap_bytes": self.gap_bytes,
            "doubtful": self.doubtful,
        }

    def __str__(self) -> str:
        lost = sum(self.lost_parts.values())
        counts = {status: count - self.lost_parts[status] for status, count in self.counts.items()}
        parts = [f"{count:,} {status}" for status, count in counts.items() if count]
        if self.confirmed:  # the complete ones come first
            parts[0] += f" ({self.confirmed:,} verified)"
        text = f"{count_words(self.files - lost, 'file')}, {format_size(self.bytes)}"
        if parts:
            text += f": {', '.join(parts)}"
        if lost:
            text += f"; {count_words(lost, 'part')} of them not saved"
        return text + (f"; {count_words(self.gaps, 'gap')}" if self.gaps else "")

    def __repr__(self) -> str:
        return f"<Summary {self}>"


class RecoveryReport:
    """Writes the report into ``target``. It gets its name when `finish` is called.

    As a context manager it finishes the report at the end, and discards it after an exception.
    """

    def __init__(self, target: Target) -> None:
        self.summary = Summary()
        """Counts over all files so far."""
        self._buffer = bytearray(b'{"schema": %d, "files": [' % SCHEMA)
        self._separator = "\n"
        self._file = target.atomic()

    def add(self, file: RecoveredFile) -> None:
        """Write the entry of a file, and read its gaps. Raise `SourceError`."""
        text = _dump(file.to_dict())
        self._put(f'{self._separator}{text[:-1]}, "gaps": [')
        separator = ""
        for offset, length in file.gaps:
            self.summary.add_gap(length)
            self._put(f"{separator}{_dump([offset, length])}")
            separator = ", "
        self._put("]}")
        self._separator = ",\n"
        self.summary.add(file)

    def finish(self, findings: FindingList | Iterable[Finding] = ()) -> Summary:
        """Write ``findings`` and the summary, and give the report its name. If that fails, it is discarded.

        Raise `SourceError`.
        """
        if self._file.closed:
            return self.summary
        try:
            self._put('\n], "fill": "zeros", "findings": [')
            separator = "\n"
            for finding in findings:
                told = {**finding.to_dict(), "source": without_folder(finding.source)}
                self._put(separator + _dump(told))
                separator = ",\n"
            omitted = getattr(findings, "omitted", 0)
            self._put(f'\n], "omitted_findings": {omitted}, "summary": {_dump(self.summary.to_dict())}}}\n')
            self._flush()
            self._file.commit()
        except BaseException:
            self.discard()
            raise
        return self.summary

    def discard(self) -> None:
        """Remove the report, unless it is finished."""
        self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    def _put(self, text: str) -> None:
        self._buffer += text.encode("ascii")
        if len(self._buffer) >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._buffer)
        self._buffer = bytearray()


def _dump(value: object) -> str:
    return json.dumps(_writable(value), allow_nan=False)


def _writable(value: object) -> object:
    """Return ``value`` without lone surrogates, which many readers of JSON refuse."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value


def _number(value: float | None) -> float | None:
    """Return a time for JSON: integers without a fraction, None if it is not a number."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value


def without_folder(source: str) -> str:
    """Return the name of a source without its folder on this machine. ``a.zip::b.tar`` is kept whole."""
    first, separator, rest = source.partition("::")
    if _ABSOLUTE.match(first):
        first = re.split(r"[/\\]", first.rstrip("/\\"))[-1]
    return first + separator + rest
