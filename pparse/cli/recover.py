"""Save everything that can be saved of a damaged or cut file, whatever it is, into a folder.

All layers are gone through: a tar.gz that holds a zip that holds a checkpoint. What is whole comes out as it was, what
is not as far as it goes, with zeros where bytes are lost; model files in a form that their own library opens. The
folder's RECOVERY.json tells of every file what it is worth, and where bytes are missing. FILE is only read. If it is
stopped half-way, the same command goes on.
"""

from __future__ import annotations

from pparse.cli.common import DAMAGED, OK, add_strict, exit_code_of, open_file, size
from pparse.cli.output import Table, safe, status_words, to_resume
from pparse.document.registry import known_other
from pparse.document.resume import resume_lines
from pparse.errors import FormatError, LimitError, NothingThereError, SourceError
from pparse.findings import Status
from pparse.limits import count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.recovery.recover import Outcome
    from pparse.recovery.report import RecoveredFile, Summary

EXAMPLES: Final = """examples:
  pparse recover backup.tar.gz -o saved
  pparse recover half-a-download.safetensors -o saved
  pparse recover broken.zip -o saved --json
  pparse recover disk-image.bin -f tar -o saved
"""

# Files that are not whole are shown one by one; so many of them. Of those that nothing was written of, so many.
_SHOWN: Final = 40
_SHOWN_LOST: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="a file, or outer::inner")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder to write to, new or empty")
    add_target_arguments(parser)
    add_strict(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each file and tensor, however many")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("--json", action="store_true", help='print the summary as one JSON document ("schema": 1)')


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `pparse extract` has, too."""
    parser.add_argument("--force", action="store_true", help="write into a folder that holds files (none is replaced)")
    parser.add_argument(
        "--max-output",
        metavar="SIZE",
        type=size,
        default=None,
        help="bytes that may be written (16GiB, or 200 times the input + 64MiB if less)",
    )


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.recovery.recover import recover

    with open_file(options, out) as document:
        listing = FileTable(
            out, quiet=options.quiet or options.json, keep=options.json, fold=not options.verbose, every=options.verbose
        )
        try:
            outcome = recover(
                document, options.output, max_output=options.max_output, exist_ok=options.force, tell=listing.add
            )
        except FormatError as error:
            out.error(str(error))
            if document.is_folder:
                out.error("of a folder, the model in it is recovered; run it on each other file by itself")
            elif options.format is None and _may_be_named(document, error):
                out.error("name the format with -f (see 'pparse formats') if you know what the file was")
            return exit_code_of(error)
        except LimitError:
            listing.close()
            out.flush()
            out.error(f"stopped at a limit; what was written until then is in {options.output}")
            raise
        except KeyboardInterrupt:
            tell_interrupted(options, out, listing)
            raise
        except SourceError as error:
            tell_full(options, out, listing, error)
            raise
        listing.close()
        _tell(options, out, outcome, document.findings, listing)
        if not (outcome.is_whole or options.quiet or options.json):
            for line in resume_lines(to_resume(document)):
                out.line(safe(line))
    return exit_code(options, outcome)


def _may_be_named(document: Extraction, error: FormatError) -> bool:
    """Whether it would help to name the format: something is there, and it is not known to be something else."""
    return not (error.option or isinstance(error, NothingThereError)) and known_other(document) is None


def exit_code(options: Any, outcome: Outcome) -> int:
    """Return the exit code of `pparse recover`, and of `pparse extract`."""
    return OK if outcome.is_whole and not (options.strict and outcome.warnings) else DAMAGED


def tell_interrupted(options: Any, out: Output, listing: FileTable) -> None:
    """Say what can be done after an interruption."""
    listing.close()
    out.flush()
    out.error(f"interrupted; the same command goes on where it was, and finds what it needs in {options.output}")


def tell_full(options: Any, out: Output, listing: FileTable, error: SourceError) -> None:
    """Say what can be done if ``error`` is that of a full disk."""
    from pparse.recovery.target import is_disk_full

    listing.close()
    out.flush()
    if is_disk_full(error):
        out.error(f"with more room the same command goes on where it was, and finds what it needs in {options.output}")


def tell_course(out: Output, outcome: Outcome) -> None:
    """Say what an earlier run had done, which limits cost files something, and how to lift them."""
    if outcome.resumed:
        done = "1 member was" if outcome.resumed == 1 else f"{outcome.resumed:,} members were"
        out.line(f"{done} there already: this went on with a run that was stopped")
    for met in outcome.limits.values():
        out.line(f"{count_words(met.files, 'file')} met a limit, and cannot be whole here: lift it with {met.option}")


def _tell(options: Any, out: Output, outcome: Outcome, findings: Any, listing: FileTable) -> None:
    if options.json:
        from json import dumps

        out.line(dumps(outcome_to_dict(options, outcome, findings, listing.kept)))
        return
    if options.quiet:
        return
    out.line(str(outcome.summary))
    out.findings(findings, limit=10)
    tell_course(out, outcome)
    where = safe(options.output)
    if not outcome.summary.files:
        out.line("there are no files in it" if outcome.is_whole else "nothing could be recovered")
    elif not outcome.is_whole and not listing.useful:
        out.line(f"nothing was saved: not one tensor, file or record is there; see {where}/RECOVERY.json")
    elif outcome.is_whole:
        lost = "nothing is missing" if not outcome.warnings else "nothing is known to be missing"
        out.line(f"{lost}; {_checked(outcome.summary)}: use {where} ({where}/RECOVERY.json lists them)")
    elif outcome.summary.is_complete:
        out.line(f"each file is complete, and what they were in is not; {_checked(outcome.summary)}: use {where}")
    else:
        _tell_use(out, outcome.summary, where)


def _checked(summary: Summary) -> str:
    """Say how many of the files, which are all complete, a checksum confirmed."""
    count, confirmed = summary.files, summary.confirmed
    if not confirmed:
        return f"no checksum covers {'it' if count == 1 else 'them'}"
    if confirmed == count:
        return f"a checksum agrees for {'it' if count == 1 else f'all {count:,}'}"
    return f"a checksum agrees for {confirmed:,} of {count_words(count, 'file')}"


def _tell_use(out: Output, summary: Summary, where: str) -> None:
    """Say what the files are good for."""
    missing = "which bytes are missing (they are zeros)" if summary.gaps else ""
    doubtful = "which may be wrong" if summary.doubtful else ""
    said = " and ".join(filter(None, (missing, doubtful))) or "what is wrong with them"
    out.line(f"use the files in {where}; of those that are not complete, {where}/RECOVERY.json says {said}")
    for path in summary.set_apart[:_SHOWN]:
        out.line(f"set apart, since it may be wrong: {safe(path)}")


def outcome_to_dict(options: Any, outcome: Outcome, findings: Any, files: list[dict[str, object]]) -> dict[str, object]:
    """Return the outcome as plain data, for JSON."""
    return {
        "schema": 1,
        "file": options.file,
        "output": options.output,
        "files": files,
        "summary": outcome.summary.to_dict(),
        "findings": [finding.to_dict() for finding in findings],
        "limits": [{"option": met.option, "files": met.files} for met in outcome.limits.values()],
    }


class FileTable:
    """Shows the files that are not whole as they come, up to forty, and says how many more there are.

    ``every``: the whole ones, too. ``fold``: of what nothing was written of, only the first few.
    """

    def __init__(
        self, out: Output, *, quiet: bool, every: bool = False, keep: bool = False, fold: bool = False
    ) -> None:
        self.kept: list[dict[str, object]] = []  # for JSON: all of them
        self.useful = 0  # files with something in them
        self._keep = keep
        self._out = out
        self._quiet = quiet
        self._every = every
        self._table = Table(out, ("STATUS", "SIZE", "FILE", "WHY"), "<><<")
        self._most = 1 << 62 if every and not fold else _SHOWN
        self._fold = fold
        self._lost = 0  # in a row, that nothing was written of
        self._more = 0
        self._rows = 0

    def add(self, file: RecoveredFile) -> None:
        """Show a file, if it is to be shown."""
        whole = file.status is Status.COMPLETE
        copied = file.path is not None and file.path.rpartition("/")[2].startswith("as-found.")
        self.useful += file.bytes > 0 and not copied and not (file.reason or "").startswith("0 of ")
        if self._keep:
            self.kept.append(file.to_dict())
        if self._quiet or (whole and not self._every):
            return
        lost = file.path is None and file.status is Status.MISSING
        if self._fold and lost:
            self._lost += 1
            if self._lost > _SHOWN_LOST:
                return
        elif not lost:
            self._end_fold()
        self._rows += not whole
        if self._rows > self._most and not whole:
            self._more += 1
            return
        name = file.path if file.path is not None else f"{file.raw_name or '?'} (not written)"
        self._table.row(
            status_words(file.status, file.verified), format_size(file.bytes), safe(name), safe(file.reason or "")
        )

    def _end_fold(self) -> None:
        """Say how many more there are that nothing was written of."""
        if self._lost > _SHOWN_LOST and not self._quiet:
            self._table.row("missing", "", f"… and {self._lost - _SHOWN_LOST:,} more", "-v shows all")
        self._lost = 0

    def begin_again(self) -> None:
        """Forget what was told: a stream contradicted itself at its end, and everything is told once more."""
        self.kept = []
        if self._table.has_written:
            self._out.line("… the stream contradicts itself at its end; once more, with what that says:")
        self._table = Table(self._out, ("STATUS", "SIZE", "FILE", "WHY"), "<><<")
        self._more = self._rows = self._lost = 0

    def close(self) -> None:
        """Show what waits."""
        if self._quiet:
            return
        self._end_fold()
        self._table.close()
        if self._more:
            self._out.line(f"… and {count_words(self._more, 'file')} more that are not whole")
