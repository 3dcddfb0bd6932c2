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
from pparse.display.text import escaped, safe, unescaped
from pparse.errors import LimitError, OptionError
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.hashing import Hashing, TensorHash

EXAMPLES: Final = """examples:
  pparse hash model.safetensors model.pt
  pparse hash -t model.safetensors 'h.0.*'
  pparse hash -t model.safetensors > model.hashes
  pparse hash --check model.hashes
  pparse hash --check model.hashes second-download.gguf
"""

_MOST_BYTES: Final = 256 << 20
_LINE: Final = (
    r"(?P<digest>(?P<algorithm>\w+):[0-9a-f]+)  (?P<kind>model    |structure|tensor   )  "
    r"(?P<file>[^\t]+)(?:\t(?P<name>[^\t]*))?"
)


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files(OR_PATTERNS, count="*")
    parser.add("-t --tensors", "the identity of each tensor, too")
    parser.add("-s --structure", "only that of the structure: no bytes of tensors are read")
    parser.add("--check LIST", "compare FILE, or the files that LIST names, with LIST, which this command printed")
    parser.add("--algorithm NAME", "blake3 or sha256 (blake3)", choices=("blake3", "sha256"), default="blake3")
    jobs.add_arguments(parser)
    parser.add("-q --quiet", "no output, only the exit code")
    parser.add_json(lines="tensors, and one of the model")
    parser.add_filters()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.wanted, others = {}, list[str]()
    if options.files:
        options.files, others = split_files(options.files)
    if options.check is not None:
        listed = _read_list(options.check)
        options.files = options.files or list(listed)
        if len(listed) > 1:
            options.wanted = listed
        else:
            options.wanted = dict.fromkeys(options.files, next(iter(listed.values()), {}))
    if not options.files:
        raise OptionError("name a FILE, or a list with --check")
    matches = options.matches = Selection(options.patterns, others, options)
    with jobs.Jobs(options, out, "hash", *options.files, *others, *options.patterns) as options.work:
        code = each_file(options, out, _hash, apart=False)
    return matches.code(code, out)


def _hash(options: Any, out: Output) -> int:
    from pparse.measuring.hashing import Hashing

    wanted: dict[tuple[str, str], str] | None = None
    if options.check is not None:
        wanted = options.wanted.get(options.file)
        if wanted is None:
            raise OptionError(f"{options.check} has no line on {options.file}")
        options.algorithm = next(iter(wanted.values())).partition(":")[0]
    chosen = None if options.matches.takes_all else options.matches.takes
    with OpenedModel(options, out) as viewer:
        workers = options.work.workers(viewer)
        if wanted is not None:
            content = any(kind != "structure" for kind, _ in wanted)
            hashing = Hashing(viewer, options.algorithm, chosen, content=content, workers=workers)
            return _compare(hashing, wanted, options, out)
        hashing = Hashing(viewer, options.algorithm, chosen, content=not options.structure, workers=workers)
        return _Printed(hashing, options, out).run()


class _Printed:
    """Prints identities as they come."""

    def __init__(self, hashing: Hashing, options: Any, out: Output) -> None:
        self._hashing, self._options, self._out = hashing, options, out
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
            elif options.tensors and tensor.content is not None:
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
                if digest is not None and (kind == "model" or options.structure or options.tensors):
                    self._line(digest, kind)
            self._tell_lost()
        return DAMAGED if hashing.structure is None or (hashing.model is None and not options.structure) else OK

    def _line(self, digest: str, kind: str, name: str = "") -> None:
        if not self._options.quiet:
            path = escaped(self._options.file) + (f"\t{escaped(name)}" if kind == "tensor" else "")
            self._out.line(f"{self._options.algorithm}:{digest}  {kind:9}  {path}")

    def _tell_lost(self) -> None:
        hashing, file = self._hashing, self._options.file
        for tensor in self._lost[:3]:
            self._out.error(f"{file}::{tensor.name}: {tensor.status}: {tensor.reason}")
        if hashing.structure is None:
            self._out.error(f"{file}: names, types and shapes are not all known: it has no identity ('pparse check')")
        elif hashing.model is None and not self._options.structure:
            lost = f": {count_words(len(self._lost), 'tensor')} of it cannot be read" if self._lost else ""
            self._out.error(f"{file}: the model is not whole, so it has no identity{lost} ('pparse check' says more)")


def _compare(hashing: Hashing, wanted: dict[tuple[str, str], str], options: Any, out: Output) -> int:
    """Compare a model with the lines of a list; return the exit code."""
    left = dict(wanted)
    codes, told = {OK}, list[tuple[str, str, str]]()
    says_all = any(kind == "tensor" for kind, _ in wanted)

    def judge(kind: str, name: str, digest: str | None, reason: str) -> None:
        meant = left.pop((kind, name), None)
        if meant is not None and digest is None:
            codes.add(DAMAGED)
            told.append((kind, name, f"not whole: {reason}"))
        elif meant is not None and meant != f"{options.algorithm}:{digest}":
            codes.add(DIFFERENT)
            told.append((kind, name, "different"))

    for tensor in hashing:
        if says_all and ("tensor", tensor.name) not in wanted:
            told.append(("tensor", tensor.name, "not in the list"))
        judge("tensor", tensor.name, tensor.content, tensor.reason)
    judge("structure", "", hashing.structure, "names are lost")
    judge("model", "", hashing.model, "see 'pparse check'")
    told += [(kind, name, "not in the file") for kind, name in left]
    agree = len(wanted) - sum(word != "not in the list" for _, _, word in told)
    code = worst({*codes, DIFFERENT} if len(told) > len(wanted) - agree or left else codes)
    if options.json or options.jsonl:
        rows = [{"kind": kind, "name": name or None, "verdict": word} for kind, name, word in told]
        out.json({"file": options.file, "agree": agree, "lines": len(wanted), "others": rows})
    elif not options.quiet:
        for kind, name, word in told:
            what = f"{safe(options.file)}::{safe(name)}" if kind == "tensor" else f"{safe(options.file)}: {kind}"
            out.say(f"{what}: {safe(word)}")
        out.say(f"{safe(options.file)}: {agree:,} of {count_words(len(wanted), 'line')} agree")
    return code


def _read_list(path: str) -> dict[str, dict[tuple[str, str], str]]:
    """Return by file, kind and name of a tensor the identities that a list has."""
    import re

    with files.open_file(path) as data:
        size = data.size or 0
        if size > _MOST_BYTES:
            raise LimitError("the list is too long", option="", wanted=size, got=_MOST_BYTES, path=path)
        text = data.read_exact(0, size).decode("utf-8", "replace")
    found: dict[str, dict[tuple[str, str], str]] = {}
    algorithm = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(_LINE, line)
        if match is None or algorithm not in ("", match["algorithm"]):
            what = "has another algorithm" if match is not None else "is none that 'pparse hash' prints"
            raise OptionError(f"{path}: line {number} {what}: {line[:80]!r}")
        digest, kind, file, name = match["digest"], match["kind"].rstrip(), match["file"], match["name"] or ""
        algorithm = match["algorithm"]
        found.setdefault(unescaped(file), {})[kind, unescaped(name)] = digest
    if not found:
        raise OptionError(f"{path}: no line of it has an identity")
    return found
