"""Save everything that can be saved of a damaged or truncated file, of any format, into a folder.

All layers are unpacked: a tar.gz that holds a zip that holds a checkpoint. Complete files are written unchanged, others
as far as they can be read, with zeros in place of lost bytes; model files in a form that their own library opens.
RECOVERY.json in the folder lists the status of every file, and where bytes are missing. FILE is only read. If it is
stopped, the same command continues.
"""

from __future__ import annotations

from contextlib import contextmanager

from pparse.cli import jobs, without_waiting
from pparse.cli.common import DAMAGED, OK, exit_code_of, open_file, size
from pparse.cli.output import Table, to_resume
from pparse.display.text import safe
from pparse.document.appearance import known_other
from pparse.document.opening import resume_lines
from pparse.errors import FormatError, LimitError, NothingThereError, SourceError
from pparse.findings import Status
from pparse.limits import count_words, format_size
from pparse.tensors.status import status_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.recovery.recover import Outcome
    from pparse.recovery.report import RecoveredFile, Summary

EXAMPLES: Final = """examples:
  pparse recover backup.tar.gz -o saved
  pparse recover half-a-download.safetensors -o saved
  pparse recover broken.zip -o saved --json
  pparse recover disk-image.bin -f tar -o saved
"""

# How many incomplete files are shown one by one, and how many files without content in a row.
_SHOWN: Final = 40
_SHOWN_LOST: Final = 3


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a file, - or outer::inner")
    parser.add("-o --output DIR", "the folder to write to, new or empty", required=True)
    add_target_arguments(parser, "a line for each file and tensor, however many")


def add_target_arguments(parser: Arguments, verbose: str) -> None:
    """Declare the arguments that `pparse extract` shares; ``verbose`` is the help of that option."""
    parser.add("--force", "write into a folder that holds files (none is replaced)")
    parser.add(
        "--max-output SIZE", "the most bytes to write (16GiB, or 200 times the input + 64MiB if less)", type=size
    )
    parser.add_strict()
    parser.add("-v --verbose", verbose)
    parser.add("-q --quiet", "print only errors")
    words = "so many threads (1): with 2 or more, one makes the SHA-256 of what the others write; 0: all processors"
    parser.add("-j --jobs N", words, type=jobs.count, default=1)
    parser.add("--json", 'print the summary as one JSON document ("schema": 1)')


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.recovery.recover import recover

    with open_file(options, out) as document:
        listing = FileTable(out, options, fold=not options.verbose)
        told = tell_names(document, options, out)
        try:
            with telling_how_to_go_on(options, out, listing):
                outcome = recover(
                    document,
                    options.output,
                    max_output=options.max_output,
                    exist_ok=options.force,
                    tell=listing.add,
                    threads=jobs.number(options),
                )
        except FormatError as error:
            out.error(str(error))
            if document.is_folder:
                out.error("for a folder, only the model in it is recovered; run it on each other file separately")
            elif options.format is None and _may_be_named(document, error):
                out.error("name the format with -f (see 'pparse formats') if you know what the file was")
            return exit_code_of(error)
        listing.close()
        if tell_outcome(options, out, outcome, outcome.findings, told, listing):
            _tell_use(out, outcome, safe(options.output), listing)
            if not outcome.is_whole and listing.useful and not document.is_folder and document.parsed.format == "npz":
                command = f"'pparse convert {safe(options.file)} -o NAME.npz --skip-damaged'"
                out.say(f"{command} writes the tensors that are whole as npz, with their types")
            if not outcome.is_whole:
                out.lines(resume_lines(to_resume(document) if outcome.resume is None else outcome.resume))
    return exit_code(options, outcome)


def _may_be_named(document: Extraction, error: FormatError) -> bool:
    """Say whether naming the format could help: the file has bytes, and is not known to be of another format."""
    return not (error.option or isinstance(error, NothingThereError)) and known_other(document) is None


def exit_code(options: Any, outcome: Outcome) -> int:
    """Return the exit code of `pparse recover`, and of `pparse extract`."""
    return OK if outcome.is_whole and not (options.strict and outcome.warnings) else DAMAGED


def tell_names(document: Extraction, options: Any, out: Output) -> list[Finding]:
    """Show what is to be known of the names in an archive before files are written under them; return it."""
    try:
        container = None if document.is_folder else document.result.container
    except FormatError:  # who recovers looks further
        return []
    if container is None:
        return []
    container.look_at_names()
    told = [finding for finding in document.findings if finding.code == "encoding"]
    if not (options.quiet or options.json):
        out.findings(told)
        out.flush()
    return told


@contextmanager
def telling_how_to_go_on(options: Any, out: Output, listing: FileTable) -> Iterator[None]:
    """Show the files so far, and say how to continue, if an interrupt, a limit or a full disk ends the run."""

    def end(words: str) -> None:
        listing.close()
        if words:
            out.error(f"{words} {options.output}")

    on = "the same command continues from here, with what it keeps in"
    try:
        yield
    except LimitError:
        end("stopped at a limit; the files written so far are in")
        raise
    except KeyboardInterrupt:
        without_waiting(lambda: end(f"interrupted; {on}"))
        raise
    except SourceError as error:
        from pparse.writers.journal import is_disk_full

        end(f"with more room {on}" if is_disk_full(error) else "")
        raise


def tell_outcome(
    options: Any, out: Output, outcome: Outcome, findings: Iterable[Finding], told: list[Finding], listing: FileTable
) -> bool:
    """Report what was written, what an earlier run had done, which limits files met, and how to lift them.

    Return whether people read it, who were ``told`` some findings before. For JSON that is all.
    """
    if options.json:
        found = {
            "file": options.file,
            "output": options.output,
            "files": listing.kept,
            "summary": outcome.summary.to_dict(),
            "findings": [finding.to_dict() for finding in findings],
            "limits": [{"option": met.option, "files": met.files} for met in outcome.limits.values()],
        }
        out.json(found)
    if options.json or options.quiet:
        return False
    out.say(f"{safe(options.output)}: {outcome.summary}")
    out.findings(finding for finding in findings if finding not in told)
    if outcome.resumed:
        done = "1 member was" if outcome.resumed == 1 else f"{outcome.resumed:,} members were"
        out.say(f"{done} there already: this continued a run that was stopped")
    for met in outcome.limits.values():
        out.say(f"{count_words(met.files, 'file')} met a limit, and is cut or left out here; lift it with {met.option}")
    return True


def _tell_use(out: Output, outcome: Outcome, where: str, listing: FileTable) -> None:
    """Say what the files can be used for."""
    summary = outcome.summary
    if not summary.files:
        out.say("there are no files in it" if outcome.is_whole else "nothing could be recovered")
    elif not outcome.is_whole and not listing.useful and outcome.limits:
        out.say(f"nothing was saved, for want of room within the limit; see {where}/RECOVERY.json")
    elif not outcome.is_whole and not listing.useful:
        out.say(f"nothing was saved: not one tensor, file or record is there; see {where}/RECOVERY.json")
    elif outcome.is_whole:
        lost = "nothing is missing" if not outcome.warnings else "nothing is known to be missing"
        out.say(f"{lost}; {_checked(summary)}: use {where} ({where}/RECOVERY.json lists them)")
    elif summary.is_complete:
        out.say(f"each file is complete, but what contained them is not; {_checked(summary)}: use {where}")
    else:
        missing = "which bytes are missing (zeros stand for them, or the file ends there)" if summary.gaps else ""
        doubtful = "which may be wrong" if summary.doubtful else ""
        said = " and ".join(filter(None, (missing, doubtful))) or "what is wrong with them"
        out.say(f"use the files in {where}; of those that are not complete, {where}/RECOVERY.json says {said}")
        for path in summary.set_apart[:_SHOWN]:
            out.say(f"set apart, since it may be wrong: {safe(path)}")


def _checked(summary: Summary) -> str:
    """Say how many of the files, all complete, were confirmed by a checksum."""
    count, confirmed = summary.files, summary.confirmed
    it = "it" if count == 1 else "them"
    if confirmed == count:
        return f"a checksum agrees for {'it' if count == 1 else f'all {count:,}'}"
    inside = ""
    if summary.parts_confirmed:  # of a checkpoint, whose members have checksums, and their headers none
        agree = "each" if summary.parts_confirmed == summary.parts else f"{summary.parts_confirmed:,}"
        inside = f"for {agree} of {count_words(summary.parts, 'part')} of {it if not confirmed else 'others'}"
    if not confirmed:
        return f"a checksum agrees {inside}" if inside else f"no checksum covers {it}"
    told = f"a checksum agrees for {confirmed:,} of {count_words(count, 'file')}"
    return f"{told}, and {inside}" if inside else told


class FileTable:
    """Shows incomplete files as they come, up to forty, and says how many more there are.

    ``--verbose`` shows all, complete ones, too; ``fold`` shows only the first few of files without content.
    """

    def __init__(self, out: Output, options: Any, *, fold: bool = False) -> None:
        self.useful = 0  # files with content
        self._keep = options.json
        self._out = out
        self._quiet = options.quiet or options.json
        self._every = options.verbose
        self._fold = fold
        self._begin()

    def _begin(self) -> None:
        self.kept: list[dict[str, object]] = []  # all files, for JSON
        self._table = Table(self._out, ("STATUS", "SIZE", "FILE", "WHY"), "<><<", full=self._every)
        self._held: list[RecoveredFile] = []  # of a complete file, the end of a stream may tell that it is right
        self._lost = self._more = self._rows = 0  # files in a row of which nothing was written; not shown; not whole

    def add(self, file: RecoveredFile) -> None:
        """Show a file, if it should be shown."""
        whole = file.is_complete
        copied = file.path is not None and file.path.endswith(("/as-found.bin", ".rest.json"))
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
        if self._rows > _SHOWN and not whole and not self._every:
            self._more += 1
            return
        if self._held or (whole and not self._table.has_written):
            file.gaps = ()
            self._held.append(file)
            if len(self._held) == Table.WINDOW:
                self._let_go()
        else:
            self._row(file)

    def _row(self, file: RecoveredFile) -> None:
        name = file.path if file.path is not None else f"{file.raw_name or '?'} (not written)"
        self._table.row(
            status_words(file.status, file.verified), format_size(file.bytes), safe(name), safe(file.reason or "")
        )

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for file in held:
            self._row(file)

    def note_confirmed(self, containers: Collection[str | None]) -> None:
        """Take it that a checksum confirmed the complete files of these containers in the end."""
        from pparse.recovery.report import without_folder

        for file in self._held:
            if file.is_complete and file.source in containers:
                file.verified = True
        told = {None if name is None else without_folder(name) for name in containers}
        for row in self.kept:
            if row["status"] == Status.COMPLETE.value and row["source"] in told:
                row["verified"] = True

    def _end_fold(self) -> None:
        """Say how many more files have no content."""
        if self._lost > _SHOWN_LOST and not self._quiet:
            self._table.row("missing", "", f"… and {self._lost - _SHOWN_LOST:,} more", "-v shows all")
        self._lost = 0

    def begin_again(self) -> None:
        """Start over: a stream contradicted its checksum at its end, and every file is reported again."""
        if self._table.has_written:
            self._out.say(
                "… the checksum at the end of the stream does not match; once more from the start, knowing that:"
            )
        self._begin()

    def close(self) -> None:
        """Show the waiting rows."""
        if self._quiet:
            return
        self._end_fold()
        self._let_go()
        self._table.close()
        if self._more:
            self._out.say(f"… and {count_words(self._more, 'file')} more that are not whole")
