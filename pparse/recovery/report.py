"""``RECOVERY.json``: what became of every file, written as the files are, so that a million of them need no memory.

::

    {"schema": 1, "files": [{"path", "status", "verified", "bytes", "sha256", "source", "offset", "mtime", "raw_name",
                             "reason", "doubtful": [[offset, length], …], "gaps": [[offset, length | null], …]}, …],
     "fill": …, "findings": [Finding.to_dict(), …], "omitted_findings": n, "summary": {…}}

One file a line, ASCII only, no times of the run and no folders of the machine: the same input gives the same bytes.
"""

from __future__ import annotations

import json
import math
import re

from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size
from pparse.recovery.names import printable
from pparse.recovery.target import REPORT_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Final, Self

    from pparse.findings import Finding, FindingList
    from pparse.recovery.target import Target, TargetFile

    Gap = Sequence[int | None]

SCHEMA: Final = 1
_BLOCK: Final = 64 << 10
_NEXT_GAPS: Final = 1 << 10  # gaps that are turned into text at a time
_ABSOLUTE: Final = lazy_pattern(r"/|\\|[A-Za-z]:[/\\]")


def doubtful_name(name: str) -> str:
    """Return the name of the file beside ``name`` that holds what may be wrong: ``model.doubtful.safetensors``."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.rpartition(".")
    return f"{folder}{slash}{stem}.doubtful.{suffix}" if dot and stem else f"{name}.doubtful"


def is_set_apart(path: str) -> bool:
    """Say whether a file has such a name."""
    return path.endswith(".doubtful") or ".doubtful." in path.rpartition("/")[2]


class RecoveredFile:
    """One file of the report; the attributes are those of its JSON object.

    ``path`` below the target, with slashes, None if nothing was written; ``status`` a `Status`; ``verified`` whether a
    checksum of its own confirmed it (None: it has none); ``bytes`` written; ``sha256`` of them, in hexadecimal;
    ``source`` the container it was in, ``offset`` where it begins there; ``mtime`` seconds since 1970; ``raw_name`` the
    name as stored, where ``path`` differs; ``reason`` in words for what is not complete; ``doubtful`` pairs ``(offset,
    length)`` in the file of what is there and may be wrong, ``gaps`` of what is not, the length None where nobody knows
    it. These may be an iterator: `RecoveryReport.add` reads them once.
    """

    __slots__ = (
        "bytes",
        "doubtful",
        "gaps",
        "mtime",
        "offset",
        "path",
        "raw_name",
        "reason",
        "sha256",
        "source",
        "status",
        "verified",
    )

    def __init__(
        self,
        path: str | None,
        status: Status,
        *,
        verified: bool | None = None,
        bytes: int = 0,
        sha256: str | None = None,
        source: str | None = None,
        offset: int | None = None,
        mtime: float | None = None,
        raw_name: str | None = None,
        reason: str | None = None,
        doubtful: Sequence[Sequence[int]] = (),
        gaps: Iterable[Gap] = (),
    ) -> None:
        self.path = path
        self.status = status
        self.verified = verified
        self.bytes = bytes
        self.sha256 = sha256
        self.source = source
        self.offset = offset
        self.mtime = mtime
        self.raw_name = raw_name
        self.reason = reason
        self.doubtful = doubtful
        self.gaps = gaps

    @classmethod
    def written(cls, file: TargetFile, status: Status, **known: Any) -> RecoveredFile:
        """Return the entry of a file that was written; ``known`` are the attributes that the file cannot tell."""
        return cls(
            file.path, status, bytes=file.bytes, sha256=file.sha256, mtime=file.mtime, raw_name=file.raw_name, **known
        )

    def to_dict(self) -> dict[str, object]:
        """Return all but the gaps as plain data, in the order of the schema."""
        return {
            "path": self.path,
            "status": self.status.value,
            "verified": self.verified,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "source": None if self.source is None else _without_folder(self.source),
            "offset": self.offset,
            "mtime": _number(self.mtime),
            "raw_name": self.raw_name,
            "reason": self.reason,
            "doubtful": [list(pair) for pair in self.doubtful],
        }

    def __str__(self) -> str:
        """Return one line for people; nothing in it can mislead a terminal."""
        name = self.path if self.path is not None else self.raw_name or "?"
        why = f": {printable(self.reason)}" if self.reason else ""
        mark = "verified" if self.verified and self.status is Status.COMPLETE else ""
        return f"{self.status.value:<11} {mark:<8} {format_size(self.bytes):>9}  {printable(name)}{why}"

    def __repr__(self) -> str:
        return f"<RecoveredFile {self.path!r}: {self.status}>"


class Summary:
    """What a recovery came to: ``counts`` of files by `Status`, ``verified`` files, ``bytes``, ``gaps``, ``gap_bytes``.

    ``confirmed`` are the complete ones of those verified: the content of an archive may agree with its checksum, and
    not be whole by its own format.
    ``not_written`` counts files that nothing could be had of, ``doubtful`` those with bytes that may be wrong;
    ``set_apart`` names files made of nothing else, the first 1,000. As text, one line.
    """

    __slots__ = (
        "bytes",
        "confirmed",
        "counts",
        "doubtful",
        "gap_bytes",
        "gaps",
        "not_written",
        "set_apart",
        "verified",
    )

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Status, 0)
        self.verified = self.bytes = self.gaps = self.gap_bytes = self.not_written = self.doubtful = 0
        self.confirmed = 0
        self.set_apart: list[str] = []

    @property
    def files(self) -> int:
        """How many files there are, those not written included."""
        return sum(self.counts.values())

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost."""
        return self.counts[Status.COMPLETE] == self.files

    def add(self, file: RecoveredFile) -> None:
        """Count a file; its gaps are counted with `add_gap`."""
        self.counts[file.status] += 1
        self.verified += bool(file.verified)
        self.confirmed += bool(file.verified) and file.status is Status.COMPLETE
        self.bytes += file.bytes
        self.not_written += file.path is None
        self.doubtful += bool(file.doubtful)
        if file.path is not None and is_set_apart(file.path) and len(self.set_apart) < 1000:
            self.set_apart.append(file.path)

    def add_gap(self, length: int | None) -> None:
        """Count a gap."""
        self.gaps += 1
        self.gap_bytes += length or 0

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data."""
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
        parts = [f"{count:,} {status}" for status, count in self.counts.items() if count]
        if self.confirmed:  # the complete ones come first
            parts[0] += f" ({self.confirmed:,} verified)"
        text = f"{count_words(self.files, 'file')}, {format_size(self.bytes)}"
        if parts:
            text += f": {', '.join(parts)}"
        return text + (f"; {count_words(self.gaps, 'gap')}" if self.gaps else "")

    def __repr__(self) -> str:
        return f"<Summary {self}>"


class RecoveryReport:
    """Writes the report into ``target``; under its name it appears with `finish` only. ``summary`` counts.

    ``fill`` says, as plain data, what stands in the files for bytes that are lost. As a context manager it is finished
    at the end, and discarded if an error comes through.
    """

    def __init__(self, target: Target, *, fill: object = None, name: str = REPORT_NAME) -> None:
        self.summary = Summary()
        self._fill = fill
        self._buffer = bytearray(b'{"schema": %d, "files": [' % SCHEMA)
        self._separator = "\n"
        self._done = False
        self._file = target.atomic(name)

    def add(self, file: RecoveredFile) -> None:
        """Write the entry of a file; its gaps are read here. Raises `SourceError`."""
        text = _dump(file.to_dict())
        self._put(f'{self._separator}{text[:-1]}, "gaps": [')
        separator = ""
        for part in _gaps_text(file.gaps, self.summary):
            self._put(separator + part)
            separator = ", "
        self._put("]}")
        self._separator = ",\n"
        self.summary.add(file)

    def finish(self, findings: FindingList | Iterable[Finding] = ()) -> Summary:
        """Write ``findings`` and what remains, and give the report its name. Raises `SourceError`."""
        if self._done:
            return self.summary
        self._put(f'\n], "fill": {_dump(self._fill)}, "findings": [')
        separator = "\n"
        for finding in findings:
            self._put(separator + _dump(_finding(finding)))
            separator = ",\n"
        omitted = getattr(findings, "omitted", 0)
        self._put(f'\n], "omitted_findings": {omitted}, "summary": {_dump(self.summary.to_dict())}}}\n')
        self._flush()
        self._file.commit()
        self._done = True
        return self.summary

    def discard(self) -> None:
        """Remove what was written, unless it is finished."""
        if not self._done:
            self._done = True
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


def _gaps_text(gaps: Iterable[Gap], summary: Summary) -> Iterator[str]:
    """Yield the inside of a list of gaps, some at a time."""
    parts: list[str] = []
    for offset, length in gaps:
        summary.add_gap(length)
        parts.append(_dump([offset, length]))
        if len(parts) == _NEXT_GAPS:
            yield ", ".join(parts)
            parts.clear()
    if parts:
        yield ", ".join(parts)


def _finding(finding: Finding) -> dict[str, object]:
    return {**finding.to_dict(), "source": _without_folder(finding.source)}


def _dump(value: object) -> str:
    return json.dumps(_writable(value), allow_nan=False)


def _writable(value: object) -> object:
    """Return ``value`` without half characters, which many readers of JSON refuse."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value


def _number(value: float | None) -> float | None:
    """Return a time as JSON can say it: whole ones without a fraction, none for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else value


def _without_folder(source: str) -> str:
    """Return the name of a source; where it is on this machine is nobody's business. ``a.zip::b.tar`` is kept whole."""
    first, separator, rest = source.partition("::")
    if _ABSOLUTE.match(first):
        first = re.split(r"[/\\]", first.rstrip("/\\"))[-1]
    return first + separator + rest
