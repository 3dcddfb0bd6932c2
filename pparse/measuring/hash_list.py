"""Lists of identities: read, written beside a model as ``NAME.hashes``, and compared with what a model has now.

A line is ``ALGORITHM:DIGEST  KIND  FILE``, with the name of a tensor behind a tab; KIND is ``model``, ``structure`` or
``tensor``, filled up to nine letters. In paths and names, characters that do not show are escaped.
"""

from __future__ import annotations

import re
from itertools import chain

from pparse.data import files
from pparse.data.base import blocks
from pparse.display.text import escaped, unescaped
from pparse.errors import OptionError
from pparse.findings import Finding, Severity
from pparse.lazy import Declared
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.limits import MemoryBudget
    from pparse.measuring.hashing import Hashing
    from pparse.tensors.viewer import Viewer

    Wanted = dict[tuple[str, str], str]

SUFFIX: Final = ".hashes"
"""What the name of a list ends with that lies beside its model, behind the name of that."""
_BLOCK: Final = 1 << 20
_LONGEST: Final = 16 << 20  # of a line: names have limits
_HELD: Final = 300  # memory of a line without its letters
_LINE: Final = (
    r"(?P<digest>(?P<algorithm>\w+):[0-9a-f]+)  (?P<kind>model    |structure|tensor   )  "
    r"(?P<file>[^\t]+)(?:\t(?P<name>[^\t]*))?"
)


def line_of(algorithm: str, digest: str, kind: str, file: str, name: str = "") -> str:
    """Return a line of a list, without its end."""
    return f"{algorithm}:{digest}  {kind:9}  {escaped(file)}" + (f"\t{escaped(name)}" if kind == "tensor" else "")


class HashList:
    """The identities of a list, with their algorithm, by file, and by kind and name of a tensor.

    Raises `OptionError` if it is no list, `LimitError` if it is too long for ``budget``, `SourceError`.
    """

    def __init__(self, path: str, budget: MemoryBudget) -> None:
        self.path = path
        self.files: dict[str, Wanted] = {}
        """By path, as it is in the list."""
        self._charge = budget.charge(0, f"the list {path}")
        algorithm = ""
        used = 0
        with files.open_file(path) as data:
            for number, line in enumerate(_lines(data), 1):
                if not line.strip() or line.startswith("#"):
                    continue
                match = re.fullmatch(_LINE, line)
                if match is None or algorithm not in ("", match["algorithm"]):
                    what = "has another algorithm" if match is not None else "is none that 'pparse hash' prints"
                    raise OptionError(f"{path}: line {number} {what}: {line[:80]!r}")
                digest, kind, file, name = match["digest"], match["kind"].rstrip(), match["file"], match["name"] or ""
                algorithm = match["algorithm"]
                self.files.setdefault(unescaped(file), {})[kind, unescaped(name)] = digest
                used += _HELD + len(line)
                if used > self._charge.amount:
                    self._charge.resize(used + (1 << 20))
        if not self.files:
            raise OptionError(f"{path}: no line of it has an identity")

    def meant_by(self, file: str) -> Wanted:
        """Return the lines on a file: those on its path, or on its name; if all are on one, those. Raises
        `OptionError`."""
        for path in (file, files.name_of(file.rstrip("/"))):
            if path in self.files:
                return self.files[path]
        if len(self.files) > 1:
            raise OptionError(f"{self.path} has no line on {file}")
        return next(iter(self.files.values()))


def _lines(data: Data) -> Iterator[str]:
    """Yield the lines of a file, without their ends."""
    rest = b""
    for block in chain(blocks(data.pread, 0, data.size or 0, _BLOCK), (b"\n",)):
        first, *others = (rest + block).split(b"\n")
        rest = others.pop() if others else first
        if len(rest) > _LONGEST:
            raise OptionError(f"{data.name}: a line is too long to be one that 'pparse hash' prints")
        for line in (first, *others) if others or block.endswith(b"\n") else ():
            yield line.decode("utf-8", "replace").removesuffix("\r")


def algorithm_of(wanted: Mapping[Any, str]) -> str:
    """Return the algorithm of a list."""
    digest: str = next(iter(wanted.values()))
    return digest.partition(":")[0]


class Departure(Declared):
    """A line of a list that a model does not agree with, or a tensor that the list does not have."""

    kind: str
    name: str
    words: str
    is_lost: bool = False
    """Whether it cannot be compared, since it is not whole."""
    is_listed: bool = True


class Departures:
    """A model and the lines on it: goes through what they do not agree in; all is read as far as the list asks for."""

    def __init__(self, hashing: Hashing, wanted: Wanted, asked: Callable[[str], bool] | None = None) -> None:
        """``asked``: of a part of the tensors, whether one of that name is asked for, and not in the model."""
        self._hashing, self._wanted, self._asked = hashing, wanted, asked
        self.lines = len(wanted)
        """How many lines were compared, once all was gone through."""

    def __iter__(self) -> Iterator[Departure]:
        hashing, left = self._hashing, dict(self._wanted)
        algorithm, says_all = algorithm_of(left), any(kind == "tensor" for kind, _ in left)

        def judged(kind: str, name: str, digest: str | None, reason: str) -> Iterator[Departure]:
            meant = left.pop((kind, name), None)
            if meant is not None and digest is None:
                yield Departure(kind, name, f"not whole: {reason}", True)
            elif meant is not None and meant != f"{algorithm}:{digest}":
                yield Departure(kind, name, "different")

        for tensor in hashing:
            if says_all and ("tensor", tensor.name) not in self._wanted:
                yield Departure("tensor", tensor.name, "not in the list", False, False)
            yield from judged("tensor", tensor.name, tensor.content, tensor.reason)
        asked = self._asked
        if asked is not None and not all(kind != "tensor" or asked(name) for kind, name in left):
            # The list is of more than was asked for, and so are its identities of the whole.
            before = len(left)
            left = {(kind, name): digest for (kind, name), digest in left.items() if kind == "tensor" and asked(name)}
            self.lines -= before - len(left)
        yield from judged("structure", "", hashing.structure, "names are lost")
        yield from judged("model", "", hashing.model, "see 'pparse check'")
        for kind, name in left:
            yield Departure(kind, name, "not in the file")


def list_beside(path: str) -> str | None:
    """Return the path of the list that lies beside a model, if there is one."""
    beside = path.rstrip("/") + SUFFIX
    return beside if files.is_file(beside) else None


def contents_beside(path: str, viewer: Viewer) -> dict[str, str]:
    """Return the identity of each tensor that the list beside a model has, with its algorithm.

    Raises `OptionError` if there is no list, or any file of the model was written after it.
    """
    beside = list_beside(path)
    how = f"'pparse hash --save {path}' writes it"
    if beside is None and not files.is_there(path):
        raise OptionError(f"{path} is no file or folder, and no list of identities lies beside it")
    if beside is None:
        raise OptionError(f"{path}{SUFFIX}, a list of identities, is not there; {how}")
    listed = HashList(beside, viewer.extraction.session.budget).meant_by(path)
    since = files.written_at(beside)
    for own in _files_of(path, viewer):
        if files.written_at(own) > since:
            raise OptionError(f"{own} was written after {beside}, a list of what it was before; {how} again")
    return {name: digest for (kind, name), digest in listed.items() if kind == "tensor"}


def _files_of(path: str, viewer: Viewer) -> Iterator[str]:
    """Yield the paths of the files that a model lies in, some more than once."""
    yield path
    last = None
    for tensor in viewer.tensors():
        for source in tensor.sources:
            for data in (span.found_in for span in source.spans):
                if data is not last and data is not None and data.path is not None:
                    yield data.path
                last = data


def findings_of_list(hashing: Hashing, wanted: Wanted, path: str, source: str) -> Iterator[Finding]:
    """Yield a finding for each tensor that is not what the list at ``path`` says; a note on those that are."""
    name = files.name_of(path)
    count = lost = 0
    for one in Departures(hashing, wanted):
        if one.is_lost:
            lost += 1
            continue  # why is a finding already
        count += 1
        if one.kind == "tensor" or not one.is_listed:
            reason = f"its content is not what {name} says" if one.words == "different" else f"{one.words}: {name}"
            severity = Severity.ERROR if one.is_listed else Severity.WARNING
            yield Finding("identity", reason, severity=severity, path=one.name, source=source)
        elif count == 1:
            yield Finding("identity", f"the {one.kind} is not what {name} says", source=source)
    if lost and not count:
        reason = (
            f"{len(wanted) - lost:,} of {count_words(len(wanted), 'line')} of {name} agree; the others are not whole"
        )
        yield Finding("identities", reason, severity=Severity.NOTE, source=source)
    elif not count:
        reason = f"all {count_words(len(wanted), 'line')} of {name} agree" if len(wanted) > 1 else f"{name} agrees"
        yield Finding("identity", reason, severity=Severity.NOTE, source=source)
