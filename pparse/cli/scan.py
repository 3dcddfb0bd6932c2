"""Say what loading files would run, and nothing else: of pickles, in whatever they lie, each call with its arguments.

Nothing is imported or run: the opcodes of a pickle are followed one by one. Names are dangerous, unknown, harmless, or
such as torch.load(weights_only=True) takes. Folders are scanned with all that is in them, archives too. Exit code 5 if
anything is dangerous; 4 if nothing is, and a file could not be looked into.
"""

from __future__ import annotations

from collections import Counter

from pparse.cli import jobs
from pparse.cli.common import DAMAGED, DANGEROUS, OK, exit_code_of, open_file, worst
from pparse.containers.code_scan import code_in
from pparse.data import files
from pparse.display.text import few, safe, shorten
from pparse.document.folder import FILE, LocalFolder
from pparse.errors import FormatError, LimitError, PparseError
from pparse.limits import count_words
from pparse.tree.code_use import NOT_FOLLOWED, CodeCall, Grade, in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.tree.code_use import CodeUse

EXAMPLES: Final = """examples:
  pparse scan model.pt
  pparse scan downloads/
  pparse scan --all downloads/*.pkl
  pparse scan --allow names.txt model.pkl
  pparse scan --sarif downloads/ > scan.sarif
"""

_COLORS: Final = {Grade.DANGEROUS: "red", Grade.UNKNOWN: "yellow"}
_NO_CODE: Final = "no code"
# The most letters of a call, and names that a line tells of.
_LETTERS: Final = 200
_NAMES: Final = 3
_MOST_ALLOWED: Final = 16 << 20


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files()
    parser.add("-a --all", "also tell of files that are harmless or hold no code, and of each name in a file")
    parser.add("--allow LIST", "a file of names, one a line ('shop.Cart', 'shop.*'), that count as harmless")
    jobs.add_arguments(parser, resume=False)
    parser.add("-q --quiet", "no output, only the exit code")
    parser.add_one_of(
        json='one JSON document ("schema": 1), with every name and call',
        jsonl="one JSON object a line: files",
        sarif="SARIF 2.1.0, for tools that show findings in code",
    )


def run(options: Any, out: Output) -> int:
    """Run the command."""
    allowed = _Allowed(options.allow)
    report = _ScanReport(options, out)
    with jobs.Jobs(options, out) as work:
        for result in work.results(_FileScan(file, options, out, named=named) for file, named in _files(options.files)):
            file, named, uses, error = result()
            if isinstance(error, FormatError) and not named:
                report.others += 1
                continue
            for use in uses:
                allowed.judge(use)
            report.add(file, in_order(uses), error)
    return report.close()


class _FileScan(jobs.OneFile):
    """The code in a file, and why not all of it was read."""

    def __init__(self, file: str, options: Any, out: Output, *, named: bool) -> None:
        super().__init__(file, options, out)
        self._named = named

    def run(self) -> tuple[str, bool, list[CodeUse], PparseError | None]:
        """Scan it."""
        uses: list[CodeUse] = []
        error = None
        try:
            with open_file(self.options, self.out) as document:
                for use in code_in(document):
                    uses.append(use)  # what was found before an error counts
        except PparseError as found:
            error = found
        return self.options.file, self._named, uses, error


class _ScanReport:
    """What is told of the files, as they come."""

    def __init__(self, options: Any, out: Output) -> None:
        self.others = 0
        """How many files of folders are of no format that is known, and no pickles."""
        self._options, self._out = options, out
        self._codes: list[int] = []
        self._grades: Counter[str] = Counter()
        self._unread = 0
        self._results: list[dict[str, object]] = []

    def add(self, file: str, uses: list[CodeUse], error: PparseError | None) -> None:
        """Tell of a file, and why not all of it was read."""
        options, out = self._options, self._out
        grade = uses[0].grade if uses else None
        if error is None or grade is not None:
            self._grades[grade.value if grade is not None else _NO_CODE] += 1
        else:
            self._unread += 1
        if options.json or options.jsonl:
            self._write(file, uses, error)
        elif options.sarif:
            self._results += [_result(file, use) for use in uses if use.grade < Grade.HARMLESS]
        elif not options.quiet:
            _tell(out, file, uses, options)
        if error is not None and not options.json and not options.jsonl:
            out.error(str(error) if file in str(error) else f"{file}: {error}")
        code = OK if error is None else exit_code_of(error)
        if code == OK and any(use.name == NOT_FOLLOWED for use in uses):
            code = DAMAGED
        self._codes.append(DANGEROUS if grade is Grade.DANGEROUS else code)

    def _write(self, file: str, uses: list[CodeUse], error: PparseError | None) -> None:
        from json import dumps

        row = {
            "file": file,
            "grade": uses[0].grade.value if uses else None,
            "error": error.reason if error is not None else None,
            "code": [use.to_dict() for use in uses],
        }
        if self._options.json:
            self._out.write(",\n" if self._codes else '{"schema": 1, "files": [\n')
        self._out.write(dumps(row) + "\n" * bool(self._options.jsonl))

    def close(self) -> int:
        """End the report; return the exit code."""
        if self._options.json:
            self._out.line("\n]}" if self._codes else '{"schema": 1, "files": []}')
        elif self._options.sarif:
            from json import dumps

            self._out.line(dumps(_sarif(self._results), indent=1))
        elif not self._options.quiet and not self._options.jsonl:
            self._sum_up()
        return worst(self._codes)

    def _sum_up(self) -> None:
        grades = self._grades
        words = [f"{grades[grade.value]:,} {grade.value}" for grade in Grade if grades[grade.value]]
        if grades[_NO_CODE]:
            words.append(f"{grades[_NO_CODE]:,} without code")
        if self.others:
            words.append(f"{self.others:,} of other formats")
        if self._unread:
            words.append(f"{self._unread:,} not readable")
        total = grades.total() + self.others + self._unread
        self._out.say(": ".join([count_words(total, "file"), *([", ".join(words)] if words else [])]))


def _files(names: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each file, and whether it was named: not those that lie in folders."""
    for name in names:
        if not files.is_folder(name):
            yield name, True
            continue
        for item in LocalFolder(name).tree():
            if item.kind == FILE:
                yield files.inside(name, item.path), False


class _Allowed:
    """Names that the user takes for harmless."""

    def __init__(self, path: str | None) -> None:
        self._names: set[str] = set()
        self._below: tuple[str, ...] = ()
        if path is None:
            return
        with files.open_file(path) as data:
            size = data.size or 0
            if size > _MOST_ALLOWED:
                raise LimitError("the list of names is too long", option="", wanted=size, got=_MOST_ALLOWED, path=path)
            names = data.read_exact(0, size).decode("utf-8", "replace").split()
        self._names = {name for name in names if not name.endswith(".*")}
        self._below = tuple(name[:-1] for name in names if name.endswith(".*"))

    def judge(self, use: CodeUse) -> None:
        """Let a name that is allowed be harmless."""
        if use.grade < Grade.HARMLESS and (use.name in self._names or use.name.startswith(self._below or "\0")):
            use.grade, use.reason = Grade.HARMLESS, "allowed by a list"


def _tell(out: Output, file: str, uses: list[CodeUse], options: Any) -> None:
    """Write the lines on a file: those on what is dangerous, and one on all that is unknown."""
    worst_grade = uses[0].grade if uses else None
    word = worst_grade.value if worst_grade is not None else _NO_CODE
    if not options.all and worst_grade not in (Grade.DANGEROUS, Grade.UNKNOWN):
        return
    painted = out.paint(f"{word:12}", "green" if worst_grade is None else _COLORS.get(worst_grade, "green"))
    out.say(f"{painted} {safe(file)}", indent=13)
    for use in uses:
        where = f"{safe(use.pickle)} " if use.pickle else ""
        if use.name == NOT_FOLLOWED:
            out.say(f"{'':12} {where}@{use.offset:#x}: {safe(use.reason)}", indent=15)
            continue
        if use.grade is not Grade.DANGEROUS and not options.all:
            continue
        calls = use.calls or [CodeCall(use.offset, use.name, "")]
        for at, words, opcode in calls if options.all else calls[:_NAMES]:
            verb = "runs" if use.calls else "names"
            place = f"{where}{opcode} @{at:#x}" if opcode else f"{where}@{at:#x}"
            line = f"{verb} {shorten(safe(words), _LETTERS)} ({place}): {use.reason}"
            out.say(f"{'':12} {line if use.reason else line[:-2]}", indent=15)
    unknown = [use.name for use in uses if use.grade is Grade.UNKNOWN and use.name != NOT_FOLLOWED]
    if unknown and not options.all:
        out.say(f"{'':12} nothing is known of {few(unknown, _NAMES, len(unknown))}", indent=15)


def _result(file: str, use: CodeUse) -> dict[str, object]:
    """Return one result of SARIF (OASIS, version 2.1.0)."""
    at, words, _ = use.calls[0] if use.calls else (use.offset, use.name, "")
    where = f" in {use.pickle}" if use.pickle else ""
    verb = "runs" if use.calls else "names"
    return {
        "ruleId": use.grade.value,
        "level": "error" if use.grade is Grade.DANGEROUS else "note",
        "message": {"text": f"loading it {verb} {words}{where}: {use.reason}"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": {"byteOffset": at}}},
        ],
    }


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote(file.replace("\\", "/"))


def _sarif(results: list[dict[str, object]]) -> dict[str, object]:
    import pparse

    rules = [
        {"id": Grade.DANGEROUS.value, "shortDescription": {"text": "loading the file can do harm"}},
        {"id": Grade.UNKNOWN.value, "shortDescription": {"text": "loading the file runs code that is not known"}},
    ]
    driver = {"name": "pparse", "version": pparse.__version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
