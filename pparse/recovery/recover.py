"""`recover`: writes everything that can be saved of a document to a folder, with a report on each file.

Two runs on the same input give the same files. The input is only read.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from itertools import takewhile

from pparse.containers.archive import ArchiveParser
from pparse.containers.stream import StreamParser
from pparse.data.files import real_path
from pparse.document.extraction import Extraction, FolderExtraction
from pparse.document.opening import open, refuse_unknown
from pparse.errors import FaultError, FormatError, OptionError, PparseError, SourceError, UnsupportedError, told
from pparse.findings import Finding, FindingList, Severity
from pparse.limits import parse_size
from pparse.parsers.shards import ShardSet
from pparse.paths import glob
from pparse.recovery.folder_writer import JOURNAL_NAME, WORK_NAME
from pparse.recovery.model_files import base_name, files_beside, stamp_of, whole_folder
from pparse.recovery.report import SCHEMA, RecoveryReport, Summary
from pparse.recovery.target import REPORT_NAME, Target
from pparse.recovery.unpack import Unpacker
from pparse.tensors.viewer import Viewer
from pparse.writers.journal import is_disk_full, was_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Final

    from pparse.document.opening import Resume, Source
    from pparse.recovery.report import RecoveredFile
    from pparse.tree.result import Result

# The files that an outcome keeps.
_KEPT: Final = 10_000


class Outcome:
    """The result of `recover` or `extract`."""

    def __init__(self, walk: Unpacker, summary: Summary, files: list[RecoveredFile]) -> None:
        self.folder = walk.target.folder
        """The folder that was written to."""
        self.files = files
        """The first 10,000 files, without their gaps; ``tell`` is called with each, and the summary counts all."""
        self.unmatched: list[str] = []
        """Patterns of members that matched none."""
        self.summary = summary
        """Counts of the files."""
        self.findings = walk.findings
        """What was found wrong, in all models of a folder."""
        self.errors = walk.findings.errors
        """Number of findings that are errors."""
        self.warnings = sum(finding.severity is Severity.WARNING for finding in walk.findings)
        """Number of findings that are warnings."""
        self.limits = walk.limits
        """Limits that cut files or left them out, by name."""
        self.resumed = walk.steps.resumed
        """Units of work that were done by an earlier run, which this one continued."""
        self.resume: list[Resume] | None = None
        """Downloads to resume, of all models of a folder that was saved as a whole; else None."""
        self.confirmed: dict[str | None, int] = {}
        """Containers of which a checksum at the end of a stream confirmed the files told of before, with their number.

        The summary counts those as verified."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found wrong."""
        return self.summary.is_complete and not self.errors

    def __repr__(self) -> str:
        return f"<Outcome in {self.folder}: {self.summary}>"


@contextmanager
def opened(source: Source | Extraction | Viewer, how: Mapping[str, Any]) -> Iterator[Extraction]:
    """Give the document of a source: one that is open stays open; any other is opened as ``how`` says, and closed."""
    if isinstance(source, Viewer):
        source = source.extraction
    if isinstance(source, Extraction):
        yield source
    else:
        with open(source, **how) as document:
            yield document


class _Kept:
    """Counts files with ``count``, keeps the first, and tells the caller of all."""

    def __init__(self, tell: Callable[[RecoveredFile], object] | None) -> None:
        self.files: list[RecoveredFile] = []
        self.count: Callable[[RecoveredFile], object] = lambda file: None
        self._tell = tell

    def __call__(self, file: RecoveredFile) -> None:
        self.count(file)
        if self._tell is not None:
            self._tell(file)
        if len(self.files) < _KEPT:
            file.gaps = ()
            self.files.append(file)


class _AskedMembers:
    """Says whether a member was asked for, and which patterns matched none.

    ``identity`` is the choice as plain data, so that a stopped run can be continued.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.identity = list(patterns)
        self._fits = {pattern: glob(pattern.removeprefix("./")) for pattern in self.identity}
        self._met: set[str] = set()

    def __call__(self, name: str) -> bool:
        name = name.removeprefix("./")
        found = {
            pattern
            for pattern, fits in self._fits.items()
            if fits(name) or name.rstrip("/") == pattern.removeprefix("./").rstrip("/")
        }
        self._met |= found
        return bool(found)

    def missed(self) -> list[str]:
        """Return the patterns that matched nothing."""
        return [pattern for pattern in self.identity if pattern not in self._met]


def recognise(document: Extraction) -> Result:
    """Parse a document, or a container that is found somewhere in it, with the best parser.

    Raise `FormatError` if there is none.
    """
    try:
        return document.parse()
    except FormatError:
        from pparse.document.registry import hidden_format

        name = hidden_format(document)
        if name is None:
            raise
        document.assume(name)
        result = document.parse()
        result.findings.add(
            Finding(
                "searched",
                f"no parser recognises it; something of {name} was found in it",
                severity=Severity.NOTE,
                source=base_name(document.name),
            )
        )
        return result


def open_target(
    document: Extraction,
    folder: str | os.PathLike[str],
    *,
    max_output: int | None = None,
    exist_ok: bool = False,
    run: Mapping[str, object],
    beside: int = 0,
    threads: int = 1,
) -> Target:
    """Return the folder to write to. Raise `OptionError` if it is not empty and ``exist_ok`` is not set.

    ``run`` describes what is done, ``threads`` says by how many, see `Target`; ``beside`` is the size of other files of
    the document in bytes.
    """
    session = document.session
    size = None if document.size is None else document.size + beside
    return Target(
        os.fspath(folder),
        source_size=size,
        max_bytes=max_output,
        limits=session.limits,
        budget=session.budget,
        exist_ok=exist_ok,
        run=run,
        threads=threads,
    )


def recover(
    source: Source | Extraction | Viewer,
    folder: str | os.PathLike[str],
    *,
    max_output: int | str | None = None,
    exist_ok: bool = False,
    tell: Callable[[RecoveredFile], object] | None = None,
    threads: int = 1,
    **how: Any,
) -> Outcome:
    """Write everything that can be saved of ``source`` into ``folder``, through all containers in it.

    ``RECOVERY.json`` there lists every file; ``tell`` is called with each. ``max_output`` is the most bytes to write
    (16 GiB, or 200 times the input and 64 MiB if that is less); a file that meets a limit is cut there or left out.
    ``exist_ok``: the folder may hold files, of which none is replaced. With two ``threads`` or more, one makes the
    SHA-256 of what is written; the output is the same. A document that is open is not closed; of any
    other source, ``how`` are keyword arguments of `pparse.open`. An earlier call with the same arguments that was not
    finished is continued.

    Raises `LimitError` at a limit that ends everything (the files written until then stay, and are in the report),
    `FormatError` for an unknown format, `OptionError`, `SourceError`. If the disk is full there may be no room for the
    report; with more room the same call continues.
    """
    refuse_unknown("recover", how)
    kept = _Kept(tell)
    most = None if max_output is None else parse_size(max_output)
    options: dict[str, Any] = {"max_output": most, "exist_ok": exist_ok}
    with opened(source, how) as document:
        files = whole_folder(document, real_path(os.fspath(folder)))
        result = None
        if files is None:
            document, result = _model_of(document)
        findings = FindingList(document.session.limits.findings) if result is None else document.findings
        if os.path.lexists(os.path.join(folder, REPORT_NAME)) and not is_unfinished(folder):
            with suppress(OSError):  # a run that was killed when only this was left to do
                os.rmdir(os.path.join(folder, WORK_NAME))
            raise OptionError(f"there is a {REPORT_NAME} in {os.fspath(folder)}; name another folder")
        run = _run_of(document, "recover", stamp=files.stamp if files is not None else None, **options)
        size = files.size if files is not None else _size_beside(document, result)
        with open_target(document, folder, **options, run=run, beside=size, threads=threads) as target:
            report = RecoveryReport(target)
            kept.count = report.add
            unpacker = Unpacker(document, target, kept, recursive=True, drain=True, salvage=True, findings=findings)
            try:
                if result is not None:
                    unpacker.run(result)
                elif files is not None:
                    unpacker.run_folder(files)
            except BaseException as error:
                if was_stopped(error):
                    report.discard()
                elif not is_disk_full(error):
                    report.finish(findings)
                else:
                    with suppress(SourceError):
                        report.finish(findings)
                raise
            summary = report.finish(findings)
        outcome = Outcome(unpacker, summary, kept.files)
        outcome.resume = unpacker.models.resume if files is not None else None
        return outcome


def _model_of(document: Extraction) -> tuple[Extraction, Result]:
    """Return what is saved of a document, of a folder the file that stands for it, and what it was read as."""
    result = recognise(document)  # nothing is created for a file of unknown format
    while document.is_folder:
        container = document.own_result.container
        file = container.model_file() if container is not None else None
        if file is None:
            break
        document = file  # type: ignore[assignment]
        result = recognise(document)
    return document, result


def _size_beside(document: Extraction, result: Result | None) -> int:
    """Return the size of the other files of a model: those beside it, and its shards, as far as they can be read."""
    size = sum(file.find_end() - file.start for _, file in files_beside(document))
    parser = result.parser if result is not None else None
    if isinstance(parser, ShardSet) and not parser.is_alone:
        for name in parser.shard_names():
            with suppress(SourceError, FaultError):
                shard = parser.shard(name)
                size += shard.find_end() - shard.start
    return size


def is_unfinished(folder: str | os.PathLike[str]) -> bool:
    """Say whether ``folder`` holds an unfinished run."""
    return os.path.lexists(os.path.join(folder, WORK_NAME, JOURNAL_NAME))


def extract(
    source: Source | Extraction | Viewer,
    folder: str | os.PathLike[str],
    members: Iterable[str] | Callable[[str], bool] = (),
    *,
    recursive: bool = False,
    max_output: int | str | None = None,
    exist_ok: bool = False,
    tell: Callable[[RecoveredFile], object] | None = None,
    begin_again: Callable[[], object] | None = None,
    threads: int = 1,
    **how: Any,
) -> Outcome:
    """Write the members of an archive into ``folder``, incomplete ones too.

    ``members`` are names or patterns (`Outcome.unmatched` has those that match none), or say of a name whether it is
    wanted; by default all are. ``recursive`` enters archives inside. ``tell`` is called with each file. If a compressed
    stream contradicts its checksum at its end, the files reported as complete are removed, ``begin_again`` is called,
    and everything is written and reported once more. The other arguments, and what is raised, are those of `recover`;
    `UnsupportedError` for what is no archive. An earlier call is continued in the same way; ``members`` that is called
    then needs an attribute ``identity`` that describes its choice as plain data.
    """
    refuse_unknown("extract", how)
    kept = _Kept(tell)
    most = None if max_output is None else parse_size(max_output)
    options: dict[str, Any] = {"max_output": most, "exist_ok": exist_ok}
    wanted: Callable[[str], bool] | None = members if callable(members) else _AskedMembers(members)
    if isinstance(wanted, _AskedMembers) and not wanted.identity:
        wanted = None
    chosen = None if wanted is None else getattr(wanted, "identity", None) or _unlike_all()
    resumed = 0
    with opened(source, how) as document:
        _refuse_others(document)
        for drain in (False, True):
            summary = Summary()
            kept.count = summary.add_whole
            kept.files.clear()
            result = document.parse()
            run = _run_of(document, "extract", **options, recursive=recursive, wanted=chosen)
            own = options | {"exist_ok": exist_ok or drain}
            with open_target(document, folder, **own, run=run, threads=threads) as target:
                unpacker = Unpacker(document, target, kept, recursive=recursive, drain=drain, wanted=wanted)
                unpacker.run(result)
                resumed = resumed or unpacker.steps.resumed
                if not unpacker.was_misled:
                    break
                target.withdraw_all()
            document.forget()
            if begin_again is not None:
                begin_again()
        outcome = Outcome(unpacker, summary, kept.files)
        outcome.resumed = resumed
        outcome.confirmed = unpacker.trusted.confirmed()
        outcome.unmatched = wanted.missed() if isinstance(wanted, _AskedMembers) else []
        summary.note_confirmed(sum(outcome.confirmed.values()))
        for file in kept.files:
            if file.is_complete and file.source in outcome.confirmed:
                file.verified = True
        return outcome


def _refuse_others(document: Extraction) -> None:
    """Raise `UnsupportedError` for what has no members."""
    parser = document.parse().parser
    if not isinstance(parser, ArchiveParser | StreamParser):
        advice = told(
            "'pparse get' writes parts of it, 'pparse recover' saves what is whole",
            "pparse.view reads its tensors, pparse.recover saves what is whole",
        )
        raise UnsupportedError(f"{parser.name} is not an archive; {advice}")


# -- what run it is ----------------------------------------------------------------------------------------------------


def _run_of(document: Extraction, command: str, *, stamp: str | None = None, **options: object) -> dict[str, object]:
    """Return a description of everything that changes the output; a run continues another only if theirs are equal.

    The source is identified by name, size, time and inode (a folder by those of its files), not by its folder; by
    samples of its bytes if it is not a file; by ``stamp`` if that is given.
    """
    import pparse

    session = document.session
    outermost = document.topmost
    run = {
        "command": command,
        "of": outermost.name.replace("\\", "/").rstrip("/").rpartition("/")[2],
        "inside": document.path.partition("::")[2],
        "source": [stamp] if stamp is not None else _identity(outermost),
        "format": document._format,
        "options": {name: repr(value) for name, value in sorted(session.options.items())},
        "limits": {name: getattr(session.limits, name) for name in session.limits.DEFAULTS},
        "budget": session.budget.limit,
        "scratch": session.scratch is not None,
        "version": pparse.__version__,
        "schema": SCHEMA,
        **options,
    }
    loaded: dict[str, object] = json.loads(json.dumps(run))  # as it will be read back
    return loaded


def _identity(extraction: Extraction) -> list[object]:
    if isinstance(extraction, FolderExtraction):
        # What lies in folders below belongs to no set of shards, and may be what this run writes.
        stamp = stamp_of(takewhile(lambda item: "/" not in item.path, extraction.folder.tree()))
        return [_unlike_all() if stamp is None else stamp]
    data = extraction.data
    if data.stamp is not None:
        return [*data.stamp]
    if data.size is not None:
        from pparse.data.index_files import fingerprint

        with suppress(PparseError):
            return [data.size, fingerprint(data.range(0, data.size)).hex()]
    return [_unlike_all()]


def _unlike_all() -> str:
    """Return a value that no other run has, for a source that cannot be compared."""
    return os.urandom(16).hex()
