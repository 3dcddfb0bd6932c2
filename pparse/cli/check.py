"""Check everything in a file, within the memory budget, and report each finding with its byte range.

Exit code 4 if something is truncated, damaged, missing or never written, or a tensor has a type that is not known.
``--strict`` counts warnings as errors, and applies the rules of the format's own reader where they are known: the last
line names it (safetensors, torch for its zip files, onnx.checker for the names in a graph). ``--sha256`` compares the
whole file with its published digest: from the file name in a download cache, an LFS pointer, a SHA256SUMS file beside
it, or the command line. Exit code 2 if there is no digest to compare with.
"""

from __future__ import annotations

from pparse.cli.common import add_files, add_json, add_option, each_file, open_file, row_of
from pparse.cli.exit_codes import DAMAGED, OK, USAGE
from pparse.cli.output import cut_to_dict, report_cut, report_document_cut
from pparse.display.text import safe
from pparse.document.beside import not_looked_at, unfinished
from pparse.document.opening import outermost_file
from pparse.document.registry import model_extensions, viewer_for
from pparse.errors import OptionError
from pparse.findings import Finding, Severity, Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import BROKEN, all_findings, compared, document_status, findings_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction

# What the last line says.
_OK: Final = "ok"
_BROKEN: Final = "not whole"
_ODD: Final = "whole, but --strict takes warnings for errors"
_UNSEEN: Final = "not all of it could be looked at"
_UNASKED: Final = "not compared, for want of a digest"

# How many files that were not looked at are named.
_MOST_OTHERS: Final = 8

EXAMPLES: Final = """examples:
  pparse check model.safetensors
  pparse check --strict model.safetensors
  pparse check *.safetensors
  pparse check --sha256 model.safetensors.index.json
  pparse check records.riegeli
  pparse check --sha256=9f2c…(64 digits) model.safetensors
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_files(parser)
    add_option(
        parser,
        "--strict",
        "warnings count as errors, and so does what the format's own reader would refuse, if its rules are known",
    )
    add_option(
        parser,
        "--sha256 EXPECTED",
        "compare the digest: with one found beside the file, or with EXPECTED (64 hex digits, "
        "or the path of an LFS pointer or SHA256SUMS file; a path needs --sha256=PATH)",
        nargs="?",
        const="",
    )
    add_option(parser, "-R --recursive", "also check the documents inside an archive")
    add_option(parser, "-q --quiet", "no output, only the exit code")
    add_json(parser, lines="findings")


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
    from pparse.data.files import exists

    if len(options.files) > 1 and options.sha256 and len(options.sha256) == 64 and not exists(options.sha256):
        raise OptionError("one digest cannot match several files; name one file, or a list of digests")
    options.verdicts = []
    code = each_file(options, out, _check)
    if options.several and not (options.quiet or options.json or options.jsonl):
        good = options.verdicts.count(OK)
        out.line()
        out.line(f"{count_words(len(options.files), 'file')}: {good:,} ok, {len(options.files) - good:,} not")
    return code


def _check(options: Any, out: Output) -> int:
    code = _check_one(options, out)
    options.verdicts.append(code)
    return code


class _Tally:
    """What the findings of a check add up to."""

    def __init__(self) -> None:
        self.counts = {Severity.NOTE: 0, Severity.WARNING: 0, Severity.ERROR: 0}
        self.digests = 0
        """Number of files whose digest agrees."""
        self.limits = 0
        """Parts that were not checked because of a limit of pparse."""
        self.unasked = 0
        """Files without a digest to compare with."""
        self.refused = False
        """Whether the reader whose rules are applied would refuse it."""

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        self.counts[finding.severity] += 1
        self.limits += finding.code == "limit" and finding.severity is Severity.ERROR
        self.digests += finding.code == "digest" and finding.severity is Severity.NOTE
        self.unasked += finding.code == "no-digest"
        self.refused |= finding.code == "refused"

    @property
    def is_broken(self) -> bool:
        """Whether any finding says that something is wrong."""
        return self.counts[Severity.ERROR] > self.limits

    def verdict(self, rules: str, *, broken: bool, odd: bool, looked: bool) -> str:
        """Return what the last line says; ``odd``: warnings count as errors; ``looked``: all could be looked at."""
        if broken:
            return _BROKEN
        if odd:
            return f"whole, but {rules} refuses it" if self.refused else _ODD
        if not looked:
            return _UNSEEN
        return _UNASKED if self.unasked else _OK

    def words(self) -> str:
        """Return how many findings of each severity there were, in brackets; nothing if there were none."""
        found = [f"{count_words(count, str(word))}" for word, count in reversed(self.counts.items()) if count]
        return f" ({', '.join(found)})" if found else ""


def _check_one(options: Any, out: Output) -> int:
    if not options.recursive:  # everything is decoded in order anyway: jumping ahead with an index would add to that
        options.options = [("index", "none"), *options.options]
    with open_file(options, out) as document:
        tally = _Tally()
        shown: list[dict[str, object]] = []
        for finding in _findings(document, options):
            tally.add(finding)
            if options.json:
                shown.append(finding.to_dict())
            elif options.jsonl:
                from json import dumps

                out.line(dumps(row_of(options, finding.to_dict())))
            elif not options.quiet:
                out.finding(finding)
        viewer = viewer_for(document)
        extent = viewer.extent() if viewer is not None else None
        odd = options.strict and tally.counts[Severity.WARNING] > 0
        status = extent.status if extent is not None else document_status(document, damaged=tally.is_broken)
        damaged = tally.is_broken or odd or status in BROKEN
        rules = viewer.rules if options.strict and viewer is not None else ""
        if options.json:
            from json import dumps

            out.line(
                dumps(
                    {
                        "schema": 1,
                        "file": options.file,
                        "format": document.format,
                        "strict": options.strict,
                        "rules": rules or None,
                        "status": status.value,
                        "ok": not damaged and not tally.limits and not tally.unasked,
                        "extent": extent.to_dict() if extent is not None else None,
                        **(cut_to_dict(document, status) if extent is None else {}),
                        "findings": shown,
                    },
                    indent=2,
                )
            )
        elif not options.quiet and not options.jsonl:
            if extent is not None:
                report_cut(out, extent, document, most=None)
            else:
                report_document_cut(out, document, status)
            words = compared(document, extent, tally.digests) if not damaged and not tally.limits else None
            unread = status is Status.UNSUPPORTED and not document.findings.errors
            broken = status in BROKEN or (tally.is_broken and not unread)
            verdict = tally.verdict(rules, broken=broken, odd=odd, looked=words is not None)
            out.line(f"{safe(document.path)}: {_painted(out, verdict, rules, words)}{tally.words()}")
        return DAMAGED if damaged else USAGE if tally.limits or tally.unasked else OK


def _painted(out: Output, verdict: str, rules: str, words: str | None) -> str:
    """Return the verdict for display; ``words`` describe what was compared, if all was looked at."""
    color = {_OK: "green", _BROKEN: "red"}.get(verdict, "yellow")
    by = f", by the rules of {rules}" if rules and verdict == _OK else ""
    return out.paint(verdict, color) + by + (f": {words}" if words is not None else "")


def _findings(document: Extraction, options: Any) -> Iterator[Finding]:
    told = set()
    for finding in document.check(strict=options.strict):
        told.add(finding)
        yield finding
    if (viewer := viewer_for(document)) is not None:
        yield from (finding for finding in findings_of(viewer, viewer.extent()) if finding not in told)
    else:
        yield from (item for item in all_findings(document, document_status(document)) if item not in told)
    control = unfinished(outermost_file(document))
    if control is not None:
        reason = f"{control} beside it: the program that wrote that has not finished the download"
        yield Finding("unfinished", reason, severity=Severity.WARNING, source=document.name)
    others = not_looked_at(document, model_extensions()) if document.is_folder else []
    if others:
        names = ", ".join(others[:_MOST_OTHERS]) + (" …" if len(others) > _MOST_OTHERS else "")
        reason = f"{count_words(len(others), 'other model file')} in this folder, not looked at: {names}"
        yield Finding("other-files", reason, severity=Severity.NOTE, source=document.name)
    if options.recursive:
        from pparse.recovery.findings_below import findings_below

        yield from findings_below(document, strict=options.strict)
    if options.sha256 is not None:
        from pparse.cli.digest import check_digests

        yield from check_digests(document, options.sha256)
