"""What loading a file, or anything inside of it, would run: for scanners, who look at nothing else."""

from __future__ import annotations

from itertools import chain

from pparse.containers.archive import documents_below
from pparse.containers.model_code import (
    code_of_configuration,
    code_of_graphs,
    code_of_names,
    code_of_template,
    code_of_templates,
    is_template,
)
from pparse.document.opening import open
from pparse.document.registry import viewer_for
from pparse.errors import DataError, FormatError, LimitError, UnsupportedError
from pparse.tensors.viewer import Viewer
from pparse.tree.code_use import NOT_FOLLOWED, CodeUse, Grade, in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.document.opening import Source

# What is tried where no format is recognised: who is told to load a pickle does not look at its first bytes.
_PICKLE: Final = "pickle"


def scan(source: Source, **how: Any) -> list[CodeUse]:
    """Return what loading a file would run, anything inside of it, and the files beside it that a model consists of:
    the dangerous names first; nothing is run.

    ``source``, ``how``: see `pparse.open`. Raises what that does, and `FormatError` if it is of no known format, and no
    pickle that calls anything.
    """
    with open(source, **how) as document:
        return in_order([*code_in(document), *_code_beside(document)])


def _code_beside(document: Extraction) -> Iterator[CodeUse]:
    """Yield the same of the other files that a model consists of, as the shards of a distributed checkpoint."""
    try:
        viewer = viewer_for(document)
    except FormatError:  # it is a pickle at most
        return
    except LimitError as error:
        reason = f"whether it has files beside it is not known: {error.reason}"
        yield CodeUse(NOT_FOLLOWED, 1, document.start, Grade.UNKNOWN, reason)
        return
    for name, file in viewer.files_beside() if isinstance(viewer, Viewer) else ():
        try:
            for use in code_in(file):
                use.pickle = f"{name}::{use.pickle}" if use.pickle else name
                yield use
        except FormatError:
            continue


def code_in(document: Extraction) -> Iterator[CodeUse]:
    """Yield what loading the document would look up and call, and all documents inside of archives, at every depth.

    `CodeUse.pickle` is the path to what holds the code. What is lost, or behind a limit, is one called ``?``, with the
    reason. Where no format is recognised, what an unpickler would call is
    yielded, if it would call anything. Raises `FormatError` if the document itself is neither.
    """
    try:
        result = document.parse()
    except FormatError:
        found = list(_of_no_format(document.name, document))
        if not found and not is_template(document.name):
            raise
        yield from found
        return
    told: set[tuple[str, str]] = set()
    for uses in (code_of_graphs, code_of_templates, code_of_names):
        yield from uses(document)
    yield from code_of_configuration(document.name, document)
    for use in result.listing.globals():
        told.add((use.pickle, use.name))
        yield use
    refused: list[tuple[str, Extraction | None, DataError]] = []
    for name, inner in documents_below(result, lambda *member: refused.append(member)):
        here = (
            *(inner.parse().listing.globals(), code_of_graphs(inner), code_of_configuration(name, inner)),
            *(code_of_templates(inner), code_of_names(inner), _unread(inner), _of_content(inner)),
        )
        yield from _new(name, chain.from_iterable(here), told)
        while refused:
            yield from _new(refused[-1][0], _of_refused(*refused.pop()), told)
    for member in refused:
        yield from _new(member[0], _of_refused(*member), told)
    yield from _unread(document)
    yield from _of_content(document)  # last: that it is no pickle is no fault of the document


def _unread(document: Extraction) -> Iterator[CodeUse]:
    """Yield that not all of a document can be looked into, and why, if that is so."""
    finding = next((one for one in document.findings if one.is_fault or one.code == "limit"), None)
    if finding is not None:
        at = finding.offset if finding.offset is not None else document.start
        yield _not_looked_into(at, finding.reason)


def _not_looked_into(at: int, reason: str) -> CodeUse:
    return CodeUse(NOT_FOLLOWED, 1, at, Grade.UNKNOWN, f"not all of it can be looked into: {reason}")


def _new(name: str, uses: Iterator[CodeUse], told: set[tuple[str, str]]) -> Iterator[CodeUse]:
    for use in uses:
        use.pickle = f"{name}::{use.pickle}" if use.pickle else name
        if (use.pickle, use.name) not in told:
            told.add((use.pickle, use.name))
            yield use


def _of_refused(name: str, member: Extraction | None, error: DataError) -> Iterator[CodeUse]:
    """Yield what a member of an archive does in which no format is recognised, or that cannot be read: who knows."""
    if member is not None and isinstance(error, FormatError):
        yield from _of_no_format(name, member)
    else:
        yield _not_looked_into(error.offset or 0, error.reason)


def _of_content(document: Extraction) -> Iterator[CodeUse]:
    """Yield what the content of a compressed stream does, if no format is recognised in it: else it is the document."""
    container = document.parse().container
    try:
        content: Any = container.unwrapped() if container is not None else None
    except UnsupportedError as error:
        yield _not_looked_into(document.start, error.reason)
        return
    if content is not None:
        yield from _of_no_format(content.name, content)


def _of_no_format(name: str, document: Extraction) -> Iterator[CodeUse]:
    """Yield what data of no format that is known do: a template, by its name, or a pickle."""
    if is_template(name):
        yield from code_of_template(document)
    yield from _as_pickle(document)


def _as_pickle(document: Extraction) -> Iterator[CodeUse]:
    """Yield what an unpickler would call in data of no format that is known: nothing if it would call nothing.

    If it meets a limit, it is not known whether it would.
    """
    try:
        found = list(document.parse(_PICKLE).listing.globals())
    except UnsupportedError:
        raise
    except DataError as error:
        yield _not_looked_into(document.start, error.reason)
        return
    if any(use.calls or use.called or use.name == NOT_FOLLOWED for use in found):
        yield from found
