"""Check everything in a file, within the memory budget, and report each finding with its byte range.

Exit code 4 if something is truncated, damaged, missing or never written, or a tensor has a type that is not known.
``--strict`` applies the rules of the format's reference reader, and names what that reader would accept. ``--sha256``
compares the whole file with its published digest: from the file name in a download cache, an LFS pointer, a SHA256SUMS
file beside it, or the command line. Exit code 2 if there is no digest to compare with.
"""

from __future__ import annotations

from pparse.cli.common import add_files, add_json, each_file, open_file, row_of
from pparse.cli.exit_codes import DAMAGED, OK, USAGE
from pparse.cli.output import cut_to_dict, findings_of, report_cut, report_document_cut
from pparse.display.text import safe
from pparse.document.registry import viewer_for
from pparse.errors import OptionError
from pparse.findings import Severity, Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import compared, document_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding

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
    parser.add_argument(
        "--strict", action="store_true", help="apply the reference reader's rules, and more; warnings count as errors"
    )
    parser.add_argument(
        "--sha256",
        nargs="?",
        const="",
        metavar="EXPECTED",
        help="compare the digest: with one found beside the file, or with EXPECTED (64 hex digits, "
        "or the path of an LFS pointer or SHA256SUMS file; a path needs --sha256=PATH)",
    )
    parser.add_argument("-R", "--recursive", action="store_true", help="also check the documents inside an archive")
    parser.add_argument("-q", "--quiet", action="store_true", help="no output, only the exit code")
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
    from pparse.data.local import exists

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


def _check_one(options: Any, out: Output) -> int:
    if not options.recursive:  # everything is decoded in order anyway: jumping ahead with an index would add to that
        options.options = [("index", "none"), *options.options]
    with open_file(options, out) as document:
        counts = {Severity.NOTE: 0, Severity.WARNING: 0, Severity.ERROR: 0}
        shown: list[dict[str, object]] = []
        digests = 0  # number of files whose digest agrees
        limits = 0  # parts that were not checked because of a limit of pparse
        unasked = 0  # files without a digest to compare with
        for finding in _findings(document, options):
            counts[finding.severity] += 1
            limits += finding.code == "limit" and finding.severity is Severity.ERROR
            digests += finding.code == "digest" and finding.severity is Severity.NOTE
            unasked += finding.code == "no-digest"
            if options.json:
                shown.append(finding.to_dict())
            elif options.jsonl:
                from json import dumps

                out.line(dumps(row_of(options, finding.to_dict())))
            elif not options.quiet:
                out.finding(finding)
        viewer = viewer_for(document)
        extent = viewer.extent() if viewer is not None else None
        worst = counts[Severity.ERROR] > limits
        odd = options.strict and counts[Severity.WARNING] > 0
        status = extent.status if extent is not None else document_status(document, damaged=worst)
        damaged = worst or odd or status in (Status.TRUNCATED, Status.DAMAGED, Status.MISSING)
        if options.json:
            from json import dumps

            out.line(
                dumps(
                    {
                        "schema": 1,
                        "file": options.file,
                        "format": document.format,
                        "strict": options.strict,
                        "status": status.value,
                        "ok": not damaged and not limits and not unasked,
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
            words = None
            if not damaged and not limits:
                words = compared(document, extent, digests)
            unread = status is Status.UNSUPPORTED and not odd and not document.findings.errors
            out.line(_summary(document, counts, damaged and not unread, unasked, words, options, out))
        return DAMAGED if damaged else USAGE if limits or unasked else OK


def _findings(document: Extraction, options: Any) -> Iterator[Finding]:
    yield from document.check(strict=options.strict)
    if (viewer := viewer_for(document)) is not None:
        extent = viewer.extent()
        yield from findings_of(viewer, extent)[len(viewer.findings) :]
    if options.recursive:
        from pparse.recovery.findings_below import findings_below

        yield from findings_below(document, strict=options.strict)
    if options.sha256 is not None:
        from pparse.cli.digest import check_digests

        yield from check_digests(document, options.sha256)


def _summary(
    document: Extraction,
    counts: dict[Severity, int],
    damaged: bool,
    unasked: int,
    words: str | None,
    options: Any,
    out: Output,
) -> str:
    """Return the last line; ``words`` describe what was compared, if nothing is wrong and no limit was met."""
    found = [f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in reversed(counts.items()) if count]
    verdict = out.paint("not whole", "red") if damaged else out.paint("ok", "green")
    if words is None and not damaged:
        verdict = out.paint("not all of it could be looked at", "yellow")
    elif unasked and not damaged:
        verdict = out.paint("not compared, for want of a digest", "yellow")
    rules = ", by the reference reader's rules" if options.strict else ""
    said = f": {words}" if words is not None else ""
    return f"{safe(document.path)}: {verdict}{rules}{said}" + (f" ({', '.join(found)})" if found else "")
