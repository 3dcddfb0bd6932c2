"""Check everything in a file, within the memory budget, and report each finding with its byte range.

Exit code 5 if loading the file would run code that can do harm: what a pickle would call is followed, with the
arguments, and nothing is run. Exit code 4 if something is truncated, damaged, missing or never written, or a tensor has
a type that is not known.
``--strict`` counts warnings as errors, and applies the rules of the format's own reader where they are known: the last
line names it (safetensors, torch for its zip files, onnx.checker for the names in a graph). ``--sha256`` compares the
whole file with its published digest: from the file name in a download cache, an LFS pointer, a SHA256SUMS file beside
it, or the command line. Exit code 2 if there is no digest to compare with.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from pparse.cli import jobs
from pparse.cli.common import DAMAGED, DANGEROUS, OK, USAGE, each_file, open_file, row_of
from pparse.cli.output import cut_to_dict, report_cut, report_document_cut
from pparse.data import files
from pparse.display.text import few, safe, shorten
from pparse.document.opening import outermost_file, unfinished
from pparse.document.registry import viewer_for
from pparse.errors import OptionError, PathError, PparseError
from pparse.findings import BROKEN, Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.limits import MIB, count_words
from pparse.recovery.document_verdict import all_findings, compared, document_status
from pparse.tree.code_use import Grade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.data.base import Data
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tensors.viewer import Viewer

# What the last line says.
_OK: Final = "ok"
_BROKEN: Final = "not whole"
_ODD: Final = "whole, but --strict takes warnings for errors"
_HARMFUL: Final = "dangerous to load"
_UNSEEN: Final = "not all of it could be looked at"
_UNASKED: Final = "not compared, for want of a digest"

# The most letters of a reason in the list of files that are not ok.
_REASON: Final = 100
# How many files that were not looked at are named.
_MOST_OTHERS: Final = 8

# Options that decide what is told of a file: notes of others do not hold.
_ASKED: Final = ("strict", "sha256", "recursive", "quiet", "json", "jsonl", "format", "options")

EXAMPLES: Final = """examples:
  pparse check model.safetensors
  pparse check --strict model.safetensors
  pparse check *.safetensors
  pparse check --sha256 model.safetensors.index.json
  pparse check records.riegeli
  pparse check --sha256=9f2c…(64 digits) model.safetensors
  pparse check -R -j 4 downloads/
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files()
    strict = "warnings count as errors, and so does what the format's own reader would refuse, if its rules are known"
    parser.add("--strict", strict)
    digest = (
        "compare the digest: with one found beside the file, or with EXPECTED (64 hex digits, "
        "or the path of an LFS pointer or SHA256SUMS file; a path needs --sha256=PATH)"
    )
    parser.add("--sha256 EXPECTED", digest, nargs="?", const="")
    parser.add(
        "-R --recursive",
        "also check the documents inside an archive; of a folder, each model in it and below, and .json files",
    )
    jobs.add_arguments(parser)
    parser.add("-q --quiet", "no output, only the exit code")
    parser.add_json(lines="findings")


def prepare(arguments: list[str]) -> list[str]:
    """Accept a value of ``--sha256`` only after ``=``, or if it is 64 hex digits: it must not swallow FILE."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--sha256=" and len(word) == 64 and not set(word.lower()) - set("0123456789abcdef"):
            words[-1] += word
        else:
            words.append("--sha256=" if word == "--sha256" else word)
    return words


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if len(options.files) > 1 and options.sha256 and len(options.sha256) == 64 and not files.exists(options.sha256):
        raise OptionError("one digest cannot match several files; name one file, or a list of digests")
    passed = ""
    if options.recursive:
        from pparse.cli.inventory import spread

        # Configurations and vocabularies are read within seconds, too; digests are published of models.
        passed = spread(options, out, ".json" if options.sha256 is None else None)
    options.bad = []
    options.several = len(options.files) > 1
    asked = (f"{name}={getattr(options, name)!r}" for name in _ASKED)
    with jobs.Jobs(options, out, "check", *options.files, *asked) as work:
        options.work = work
        code = each_file(options, out, work.of_files(_check, options))
    if options.quiet or options.json or options.jsonl:
        return code
    if options.several:
        out.line()
        for file, reason in options.bad:  # its findings may have scrolled by
            out.say(f"not ok: {safe(file)}: {shorten(safe(reason), _REASON)}")
    if passed:
        out.say(f"not checked: {passed}")
    if options.several:
        good = options.exit_codes.count(OK)
        out.say(f"{count_words(len(options.files), 'file')}: {good:,} ok, {len(options.files) - good:,} not")
    return code


class _CheckTally(Counter[tuple[str, Severity]]):
    """What the findings of a check add up to: how many there are of each code and severity."""

    def of(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(count for (_, found), count in self.items() if found is severity)

    @property
    def limits(self) -> int:
        """Number of parts that were not checked because of a limit of pparse."""
        return self["limit", Severity.ERROR]

    @property
    def unasked(self) -> bool:
        """Whether there are files without a digest to compare with."""
        return any(code == "no-digest" for code, _ in self)

    @property
    def is_dangerous(self) -> bool:
        """Whether any finding says that loading the file does harm."""
        return bool(self[Grade.DANGEROUS.value, Severity.WARNING])

    @property
    def is_broken(self) -> bool:
        """Whether any finding says that something is wrong."""
        return self.of(Severity.ERROR) > self.limits

    def verdict(self, rules: str, *, broken: bool, odd: bool, looked: bool) -> tuple[str, str]:
        """Return what the last line says, and its colour; ``odd``: warnings count as errors; ``looked``: all could be
        looked at."""
        if broken:
            return _BROKEN, "red"
        if odd:
            refused = any(code == "refused" for code, _ in self)
            return f"whole, but {rules} refuses it" if refused else _ODD, "yellow"
        if not looked or self.unasked:
            return _UNASKED if looked else _UNSEEN, "yellow"
        return _OK, "green"

    def words(self) -> str:
        """Return how many findings of each severity there were, in brackets; nothing if there were none."""
        order = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        found = [count_words(count, str(severity)) for severity in order if (count := self.of(severity))]
        return f" ({', '.join(found)})" if found else ""


def _check(options: Any, out: Output) -> int:
    """Check a file; keep why it is not ok among ``options.bad``."""
    try:
        code, reason = _checked(options, out)
    except PparseError as error:
        options.bad.append((options.file, error.reason))
        raise
    if code != OK:
        options.bad.append((options.file, reason))
    return code


def _checked(options: Any, out: Output) -> tuple[int, str]:
    """Return the exit code for a file, and the first reason if it is not 0."""
    why = ""
    counted = (Severity.ERROR, Severity.WARNING) if options.strict else (Severity.ERROR,)
    if not options.recursive:  # everything is decoded in order anyway: jumping ahead with an index would add to that
        options.options = [("index", "none"), *options.options]
    with open_file(options, out) as document:
        tally = _CheckTally()
        shown: list[dict[str, object]] = []
        made = cache(lambda: viewer_for(document))  # once: what it knows may have cost a pass over the file
        for finding in _findings(document, options, made):
            tally[finding.code, finding.severity] += 1
            if not why and finding.severity in counted:
                why = str(finding.reason)
            if options.json:
                shown.append(finding.to_dict())
            elif options.jsonl:
                from json import dumps

                out.line(dumps(row_of(options, finding.to_dict())))
            elif not options.quiet:
                out.finding(finding, _called(document, finding))
        viewer = made()
        extent = viewer.extent() if viewer is not None else None
        odd = options.strict and tally.of(Severity.WARNING) > 0
        status = extent.status if extent is not None else document_status(document, damaged=tally.is_broken)
        damaged = tally.is_broken or odd or status in BROKEN
        rules = viewer.rules if options.strict and viewer is not None else ""
        if options.json:
            found = {
                "file": options.file,
                "format": document.format,
                "strict": options.strict,
                "rules": rules or None,
                "status": status.value,
                "ok": not damaged and not tally.limits and not tally.unasked and not tally.is_dangerous,
                "dangerous": tally.is_dangerous,
                "extent": extent.to_dict() if extent is not None else None,
                **(cut_to_dict(document, status) if extent is None else {}),
                "findings": shown,
            }
            out.json(found, indent=2)
        elif not options.quiet and not options.jsonl:
            if extent is not None:
                report_cut(out, extent, document, most=None)
            else:
                report_document_cut(out, document, status)
            agreed = tally["digest", Severity.NOTE], tally["identity", Severity.NOTE]
            words = compared(document, extent, *agreed) if not damaged and not tally.limits else None
            unread = status is Status.UNSUPPORTED and not document.findings.errors
            broken = status in BROKEN or (tally.is_broken and not unread)
            verdict, color = tally.verdict(rules, broken=broken, odd=odd, looked=words is not None)
            if tally.is_dangerous:
                verdict, color = f"{verdict}, and {_HARMFUL}" if broken else _HARMFUL, "red"
            by = f", by the rules of {rules}" if rules and verdict == _OK else ""
            what = f": {words}" if words is not None else ""
            out.say(f"{safe(document.path)}: {out.paint(verdict, color)}{by}{what}{tally.words()}")
        code = (
            DANGEROUS if tally.is_dangerous else DAMAGED if damaged else USAGE if tally.limits or tally.unasked else OK
        )
        # A digest is read from a file beside, which may change.
        by_list = options.sha256 is not None and not _HEX.fullmatch(options.sha256)
        options.rests_on_others = by_list or code == USAGE or document.session.pool.asked > 1
        return code, why or (_HARMFUL if tally.is_dangerous else _UNASKED if tally.unasked else _BROKEN)


def _called(document: Extraction, finding: Finding) -> str:
    """Return what to call the place of a finding: of a member that holds tensors, with the name of the first."""
    viewer = viewer_for(document) if finding.path and finding.source == document.name else None
    try:
        first = viewer.first_in(finding.path) if viewer is not None else None
    except PparseError:  # the pickle that has the names cannot be read, or they take too much room
        first = None
    if first is None:
        return finding.path
    name, count = first
    return f"{name}{f' and {count - 1:,} more' if count > 1 else ''} ({finding.path})"


def _findings(document: Extraction, options: Any, made: Callable[[], Any]) -> Iterator[Finding]:
    told, zeros = set(), []
    for finding in document.check(strict=options.strict, viewer=made()):
        told.add(finding)
        if finding.code == "zeros" and options.sha256 is not None:
            zeros.append(finding)  # a digest that agrees says that they belong there
        else:
            yield finding
    viewer = made()
    if viewer is None:
        yield from (finding for finding in all_findings(document, document_status(document)) if finding not in told)
    control = unfinished(outermost_file(document))
    if control is not None:
        reason = f"{control} beside it: the program that wrote that has not finished the download"
        yield Finding("unfinished", reason, severity=Severity.WARNING, source=document.name)
    if document.is_folder:
        yield from _others(document)  # type: ignore[arg-type]
    if options.recursive:
        from pparse.recovery.document_verdict import findings_below

        yield from findings_below(document, strict=options.strict)
    elif viewer is None:
        yield from _not_entered(document)
    if viewer is not None:
        yield from _of_list(viewer, options)
    if options.sha256 is not None:
        digests = _check_digests(document, options.sha256)
        right = {finding.source for finding in digests if finding.severity is Severity.NOTE}
        yield from (finding for finding in zeros if finding.source not in right)
        yield from digests


def _of_list(viewer: Viewer, options: Any) -> Iterator[Finding]:
    """Yield what differs from the list of identities that lies beside the file, if there is one."""
    from pparse.measuring.hash_list import HashList, algorithm_of, findings_of_list, list_beside
    from pparse.measuring.hashing import Hashing

    path = None if options.file == "-" or "::" in options.file else list_beside(options.file)
    if path is None:
        return
    try:
        wanted = HashList(path, viewer.extraction.session.budget).meant_by(options.file)
    except OptionError as error:  # what is called so is of another program, or of another file
        reason = f"nothing was compared with the list beside it: {error.reason}"
        yield Finding("identities", reason, severity=Severity.WARNING, source=viewer.extraction.name)
        return
    workers = options.work.workers(viewer) if options.work is not None else None
    content = any(kind != "structure" for kind, _ in wanted)
    hashing = Hashing(viewer, algorithm_of(wanted), content=content, workers=workers)
    yield from findings_of_list(hashing, wanted, path, viewer.extraction.name)


def _not_entered(document: Extraction) -> Iterator[Finding]:
    """Yield a note on the files in an archive, of which only the bytes were compared; of another document, nothing."""
    container = document.parse().container
    count = 0 if container is None else sum(member.kind == "file" for member in container.files())
    if count:
        were = "was" if count == 1 else "were"
        reason = f"its {count_words(count, 'file')} {were} read, and not looked into: 'pparse check -R' does"
        yield Finding("not-entered", reason, severity=Severity.NOTE, source=document.name)


def _others(document: FolderExtraction) -> Iterator[Finding]:
    """Yield a note on the models in a folder that are no part of the one that it was read as; of none, nothing."""
    from pparse.document.inventory import Inventory

    others, unread = Inventory(document).models_beside()
    for item in unread:
        reason = f"a model by its name, and not readable: {item.error.reason}"  # type: ignore[union-attr]
        yield Finding("other-files", reason, severity=Severity.WARNING, source=f"{document.name}/{item.path}")
    if others:
        names = few(others, _MOST_OTHERS, len(others))
        reason = f"{count_words(len(others), 'other model file')} in this folder, not looked at: {names}"
        yield Finding("other-files", reason, severity=Severity.NOTE, source=document.name)


# -- SHA-256 of whole files, and where to find the expected digest -----------------------------------------------------

# Sources, in this order: the command line; the blob's name in a Hugging Face cache (a symbolic link to
# ``blobs/<sha256>``); the metadata that ``huggingface_hub`` keeps for a download (second line of
# ``.cache/huggingface/download/NAME.metadata``); ``NAME.sha256`` beside the file; a line of ``SHA256SUMS`` (or the
# other usual names) there; an LFS pointer ``NAME.pointer`` there.

_HEX: Final = lazy_pattern(r"[0-9a-fA-F]{64}")
_POINTER: Final = lazy_pattern(r"^oid sha256:([0-9a-f]{64})\s*$", re.MULTILINE)
_POINTER_SIZE: Final = lazy_pattern(r"^size (\d{1,18})\s*$", re.MULTILINE)
_SUM_LINE: Final = lazy_pattern(r"^\\?([0-9a-fA-F]{64})[ \t]+[ *]?(.+?)\s*$", re.MULTILINE)
_BSD_LINE: Final = lazy_pattern(r"^SHA256 \((.+)\) = ([0-9a-fA-F]{64})\s*$", re.MULTILINE)
_SUM_FILES: Final = "SHA256SUMS SHA256SUMS.txt SHA256SUM sha256sums.txt sha256sum.txt checksums.sha256 checksums.txt"
_MAX_TEXT: Final = 16 << 20


def _check_digests(document: Extraction, expected: str) -> list[Finding]:
    """Compare the file of the document, or each of its shards, with its digest; return one finding per file."""
    found = _files(document)
    if expected and _HEX.fullmatch(expected) and len(found) > 1:
        raise PathError("one digest cannot match several shards; give a SHA256SUMS file", path=expected)
    return [_compare(document, name, data, expected) for name, data in found]


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


def _compare(document: Extraction, name: str, data: Data | None, expected: str) -> Finding:
    if data is None or data.path is None:
        return Finding("no-digest", "there is no file to hash", severity=Severity.WARNING, source=name)
    wanted, origin, size = _expected(data.path, expected)
    if wanted is None and expected:
        return Finding("no-digest", f"{expected} has no digest for this file", source=name)
    if wanted is None:
        where = "no cache blob name, SHA256SUMS line, .sha256 file or LFS pointer"
        reason = f"no digest was found: {where}; --sha256=DIGEST gives one"
        return Finding("no-digest", reason, severity=Severity.WARNING, source=name)
    if size is not None and size != data.size:
        return Finding("digest", f"the size differs from that of {origin}", source=name, wanted=size, got=data.size)
    got = _digest(document, data)
    if got != wanted:
        reason = f"the SHA-256 differs from that of {origin}"
        return Finding("digest", reason, source=name, wanted=wanted, got=got, offset=0, length=data.size)
    return Finding("digest", f"the SHA-256 is that of {origin}", severity=Severity.NOTE, source=name, got=got)


def _digest(document: Extraction, data: Data) -> str:
    """Return the SHA-256 of a whole file, read as a stream."""
    import hashlib

    session = document.session
    sha = hashlib.sha256()
    total = data.size or 0
    for at in range(0, total, MIB):
        session.check_cancelled()
        sha.update(data.read_exact(at, min(MIB, total - at)))
        if session.progress is not None:
            session.progress(min(at + MIB, total), total, f"SHA-256 of {files.name_of(data.name)}")
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
    for candidate in (name + ".sha256", *_SUM_FILES.split(), name + ".pointer"):
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
