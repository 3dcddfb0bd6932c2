"""Print identities that do not depend on the format: of models, of their structure, of tensors; or compare with a list.

The identity of a model is that of the names and contents of its tensors, in whatever format, order or files they lie;
that of its structure, of names, types and shapes; that of a tensor, of its type, shape and numbers. docs/compare.md
says how they are made. Exit code 4 if something is not whole, 1 if anything differs from the list of --check.
"""

from __future__ import annotations

from pparse.cli import jobs
from pparse.cli.common import DAMAGED, DIFFERENT, OK, OR_PATTERNS, each_file, worst
from pparse.cli.files import split_files
from pparse.cli.model import OpenedModel
from pparse.cli.selection import Selection
from pparse.data import files
from pparse.display.text import safe
from pparse.errors import NotWholeError, OptionError
from pparse.limits import MemoryBudget, count_words
from pparse.measuring.hash_list import SUFFIX, Departures, HashList, algorithm_of, line_of
from pparse.writers.files import AtomicFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.hashing import Hashing, TensorHash
    from pparse.tensors.viewer import Viewer

EXAMPLES: Final = """examples:
  pparse hash model.safetensors model.pt
  pparse hash -t model.safetensors 'h.0.*'
  pparse hash -t model.safetensors > model.hashes
  pparse hash --check model.hashes
  pparse hash --check model.hashes second-download.gguf
  pparse hash --save model.safetensors
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files(OR_PATTERNS, count="*")
    parser.add("-t --tensors", "the identity of each tensor, too")
    parser.add("-s --structure", "only that of the structure: no bytes of tensors are read")
    parser.add("--save", f"write the list to NAME{SUFFIX} beside each file, where 'pparse check' finds it")
    parser.add("--check LIST", "compare FILE, or the files that LIST names, with LIST, which this command printed")
    parser.add("--algorithm NAME", "blake3 or sha256 (blake3)", choices=("blake3", "sha256"), default="blake3")
    jobs.add_arguments(parser)
    parser.add("-q --quiet", "no output, only the exit code")
    parser.add_json(lines="tensors, and one of the model")
    parser.add_filters()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.listed, others = None, list[str]()
    if options.files:
        options.files, others = split_files(options.files)
    if options.check is not None:
        options.listed = HashList(options.check, MemoryBudget(options.budget))
        options.files = options.files or list(options.listed.files)
    if not options.files:
        raise OptionError("name a FILE, or a list with --check")
    matches = options.matches = Selection(options.patterns, others, options)
    if options.save and not (matches.takes_all and options.check is None and not options.structure):
        raise OptionError("--save writes a list of the whole model: without patterns, --check and --structure")
    with jobs.Jobs(options, out, "hash", *options.files, *others, *options.patterns) as options.work:
        code = each_file(options, out, _hash, apart=False)
    return matches.code(code, out)


def _hash(options: Any, out: Output) -> int:
    from pparse.measuring.hashing import Hashing

    wanted: dict[tuple[str, str], str] | None = None
    if options.listed is not None:
        wanted = options.listed.meant_by(options.file)
        options.algorithm = algorithm_of(wanted)
    chosen = None if options.matches.takes_all else options.matches.takes
    with OpenedModel(options, out) as viewer:
        workers = options.work.workers(viewer)
        if wanted is not None:
            content = any(kind != "structure" for kind, _ in wanted)
            hashing = Hashing(viewer, options.algorithm, chosen, content=content, workers=workers)
            return _compare(hashing, wanted, viewer, options, out)
        hashing = Hashing(viewer, options.algorithm, chosen, content=not options.structure, workers=workers)
        if not options.save:
            return _Printed(hashing, options, out).run()
        if "::" in options.file or options.file == "-":
            raise OptionError(f"--save writes beside a file or a folder, and {options.file} is none")
        path = options.file.rstrip("/") + SUFFIX
        with AtomicFile(path) as file:
            code = _Printed(hashing, options, out, file.stream).run()
            if code != OK:
                raise NotWholeError("not all of it is whole, and no list was written", source=options.file)
        if not options.quiet:
            out.say(f"wrote {safe(path)}: {count_words(hashing.count, 'tensor')}")
        return code


class _Printed:
    """Prints identities as they come, or writes them to ``saved``."""

    def __init__(self, hashing: Hashing, options: Any, out: Output, saved: BinaryIO | None = None) -> None:
        self._hashing, self._options, self._out, self._saved = hashing, options, out, saved
        self._file = options.file if saved is None else files.name_of(options.file.rstrip("/"))
        self._lost: list[TensorHash] = []

    def run(self) -> int:
        """Print all; return the exit code."""
        options, out, hashing = self._options, self._out, self._hashing
        from pparse.cli.output import JsonRows

        as_json = options.json or options.jsonl
        rows = JsonRows(out, options, {"algorithm": options.algorithm}, "tensors") if as_json else None
        for tensor in hashing:
            if tensor.content is None and not options.structure:
                self._lost.append(tensor)
            if rows is not None:
                rows.add(tensor.to_dict())
            elif (options.tensors or options.save) and tensor.content is not None:
                self._line(tensor.content, "tensor", tensor.name)
        if not hashing.count and not options.matches.takes_all:
            return OK  # nothing is wanted of it
        digests = {"structure": hashing.structure, "model": hashing.model}
        found: dict[str, object] = {**digests}
        if rows is not None and options.json:
            rows.end(found)
        elif rows is not None:
            rows.add(found)
        else:
            for kind, digest in digests.items():
                if digest is not None and (kind == "model" or options.structure or options.tensors or options.save):
                    self._line(digest, kind)
            self._tell_lost()
        return DAMAGED if hashing.structure is None or (hashing.model is None and not options.structure) else OK

    def _line(self, digest: str, kind: str, name: str = "") -> None:
        line = line_of(self._options.algorithm, digest, kind, self._file, name)
        if self._saved is not None:
            self._saved.write(f"{line}\n".encode("utf-8", "surrogatepass"))
        elif not self._options.quiet:
            self._out.line(line)

    def _tell_lost(self) -> None:
        hashing, file = self._hashing, self._options.file
        for tensor in self._lost[:3]:
            self._out.error(f"{file}::{tensor.name}: {tensor.status}: {tensor.reason}")
        if hashing.structure is None:
            self._out.error(f"{file}: names, types and shapes are not all known: it has no identity ('pparse check')")
        elif hashing.model is None and not self._options.structure:
            lost = f": {count_words(len(self._lost), 'tensor')} of it cannot be read" if self._lost else ""
            self._out.error(f"{file}: the model is not whole, so it has no identity{lost} ('pparse check' says more)")


def _compare(hashing: Hashing, wanted: dict[tuple[str, str], str], viewer: Viewer, options: Any, out: Output) -> int:
    """Compare a model with the lines of a list; return the exit code."""
    matches = options.matches
    asked = None if matches.takes_all else lambda name: matches(name) and viewer.find(name) is None
    comparison = Departures(hashing, wanted, asked)
    told = list(comparison)
    lines = comparison.lines
    agree = lines - sum(one.is_listed for one in told)
    codes = {DAMAGED for one in told if one.is_lost} | {DIFFERENT for one in told if not one.is_lost}
    if options.json or options.jsonl:
        rows = [{"kind": one.kind, "name": one.name or None, "verdict": one.words} for one in told]
        out.json({"file": options.file, "agree": agree, "lines": lines, "others": rows})
    elif not options.quiet:
        for one in told:
            of_tensor = one.kind == "tensor"
            what = f"{safe(options.file)}::{safe(one.name)}" if of_tensor else f"{safe(options.file)}: {one.kind}"
            out.say(f"{what}: {safe(one.words)}")
        out.say(f"{safe(options.file)}: {agree:,} of {count_words(lines, 'line')} agree")
    return worst(codes)
