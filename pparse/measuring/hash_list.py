"""Lists of identities: read, written beside a model as ``NAME.hashes``, and compared with what a model has now.

A line is ``ALGORITHM:DIGEST  KIND  FILE``, with the name of a tensor behind a tab; KIND is ``model``, ``structure`` or
``tensor``, filled up to nine letters. In paths and names, characters that do not show are escaped.
"""

from __future__ import annotations

import re

from pparse.data import files
from pparse.display.text import escaped, unescaped
from pparse.errors import LimitError, OptionError
from pparse.findings import Finding, Severity
from pparse.lazy import Declared
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.measuring.hashing import Hashing

    Wanted = dict[tuple[str, str], str]

SUFFIX: Final = ".hashes"
"""What the name of a list ends with that lies beside its model, behind the name of that."""
_MOST_BYTES: Final = 256 << 20
_LINE: Final = (
    r"(?P<digest>(?P<algorithm>\w+):[0-9a-f]+)  (?P<kind>model    |structure|tensor   )  "
    r"(?P<file>[^\t]+)(?:\t(?P<name>[^\t]*))?"
)


def line_of(algorithm: str, digest: str, kind: str, file: str, name: str = "") -> str:
    """Return a line of a list, without its end."""
    return f"{algorithm}:{digest}  {kind:9}  {escaped(file)}" + (f"\t{escaped(name)}" if kind == "tensor" else "")


def read_list(path: str) -> dict[str, Wanted]:
    """Return by file, kind and name of a tensor the identities that a list has, with their algorithm.

    Raises `OptionError` if it is no list, `LimitError`, `SourceError`.
    """
    with files.open_file(path) as data:
        size = data.size or 0
        if size > _MOST_BYTES:
            raise LimitError("the list is too long", option="", wanted=size, got=_MOST_BYTES, path=path)
        text = data.read_exact(0, size).decode("utf-8", "replace")
    found: dict[str, Wanted] = {}
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


def algorithm_of(wanted: Wanted) -> str:
    """Return the algorithm of a list."""
    return next(iter(wanted.values())).partition(":")[0]


class Departure(Declared):
    """A line of a list that a model does not agree with, or a tensor that the list does not have."""

    kind: str
    name: str
    words: str
    is_lost: bool = False
    """Whether it cannot be compared, since it is not whole."""
    is_listed: bool = True


def departures(hashing: Hashing, wanted: Wanted, algorithm: str) -> Iterator[Departure]:
    """Yield what a model does not agree with; all of it is read as far as the list asks for."""
    left = dict(wanted)
    says_all = any(kind == "tensor" for kind, _ in wanted)

    def judged(kind: str, name: str, digest: str | None, reason: str) -> Iterator[Departure]:
        meant = left.pop((kind, name), None)
        if meant is not None and digest is None:
            yield Departure(kind, name, f"not whole: {reason}", True)
        elif meant is not None and meant != f"{algorithm}:{digest}":
            yield Departure(kind, name, "different")

    for tensor in hashing:
        if says_all and ("tensor", tensor.name) not in wanted:
            yield Departure("tensor", tensor.name, "not in the list", False, False)
        yield from judged("tensor", tensor.name, tensor.content, tensor.reason)
    yield from judged("structure", "", hashing.structure, "names are lost")
    yield from judged("model", "", hashing.model, "see 'pparse check'")
    for kind, name in left:
        yield Departure(kind, name, "not in the file")


def list_beside(path: str) -> str | None:
    """Return the path of the list that lies beside a model, if there is one."""
    beside = path.rstrip("/") + SUFFIX
    return beside if files.is_file(beside) else None


def findings_of_list(hashing: Hashing, wanted: Wanted, path: str, source: str) -> Iterator[Finding]:
    """Yield a finding for each tensor that is not what the list at ``path`` says; a note on those that are."""
    name = files.name_of(path)
    count = lost = 0
    for one in departures(hashing, wanted, algorithm_of(wanted)):
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
