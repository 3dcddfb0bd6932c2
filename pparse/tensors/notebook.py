"""How tensors and viewers show themselves: the lines of ``repr``, and tables for notebooks. Nothing reads content."""

from __future__ import annotations

from itertools import islice

from pparse.display.text import safe, shorten, table
from pparse.document.opening import resume_lines
from pparse.errors import PparseError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size
from pparse.tensors.status import status_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.tensors.tensor import Tensor

# The most tensors that are looked at for a table, and the most rows of one; the tensors that ``repr`` shows.
_LOOKED_AT: Final = 5_000
_ROWS: Final = 60
_SHOWN: Final = 5
# A part of a name that is a number: what differs from layer to layer.
_NUMBER: Final = lazy_pattern(r"(?:^|(?<=[./]))[0-9]+(?=[./]|$)")


def folded(tensors: Iterable[Tensor]) -> Iterator[tuple[str, ...]]:
    """Yield a row for all tensors that differ in the numbers in their names only; in the order of the first ones."""
    rows: dict[tuple[object, ...], list[Any]] = {}  # the first of the tensors, their number and their bytes
    for tensor in tensors:
        alike = _NUMBER.sub("*", tensor.name), tensor.dtype, tensor.shape, tensor.status
        row = rows.setdefault(alike, [tensor, 0, 0])
        row[1] += 1
        row[2] += tensor.listed_nbytes
    for (name, *_), (tensor, count, nbytes) in rows.items():
        shown, times = (str(name), f"{count:,}") if count > 1 else (tensor.name, "")
        status = status_words(tensor.status, tensor.verified)
        yield shown, times, tensor.type_name, tensor.shape_text, format_size(nbytes), status


def viewer_html(viewer: Any) -> str:
    """Return a table of the tensors, those of all layers in one row."""
    try:
        tensors = iter(viewer.tensors())
        rows = list(folded(islice(tensors, _LOOKED_AT)))
        notes = [f"{count_words(len(rows) - _ROWS, 'row')} more"] if len(rows) > _ROWS else []
        if next(tensors, None) is not None:
            notes.append(f"only the first {_LOOKED_AT:,} tensors were looked at")
        elif viewer.status is not Status.COMPLETE:
            notes += resume_lines(viewer.extent().resume, _SHOWN)
    except PparseError as error:
        return table(repr(viewer).splitlines()[0], (), [(str(error),)])
    heads = ("name", "tensors", "type", "shape", "size", "status")
    return table(head_line(viewer), heads, rows[:_ROWS], "; ".join(notes))


def head_line(viewer: Any) -> str:
    """Return what is known of a viewer as a whole without listing more than is needed."""
    what = f"{type(viewer).__name__} of {viewer.extraction.path!r}"
    if viewer.extraction.session.closed:
        return f"{what}, closed"
    extent = viewer.kept_extent
    if extent is None and (viewer.size_hint() or 0) > _LOOKED_AT:
        return f"{what}: about {viewer.size_hint():,} tensors"
    extent = extent or viewer.extent()
    return f"{what}: {count_words(extent.count, 'tensor')}, {extent.status}"


def viewer_text(viewer: Any) -> str:
    """Return the lines of ``repr``: what it is, and its first tensors."""
    if viewer.extraction.session.closed:
        return f"<{head_line(viewer)}>"
    found = list(islice(viewer.tensors(), _SHOWN + 1))
    names = [shorten(safe(tensor.name), 60) for tensor in found[:_SHOWN]]
    width = max(map(len, names), default=0)
    lines = [
        f"  {name:{width}}  {tensor.type_name}  {tensor.shape_text}" for name, tensor in zip(names, found, strict=False)
    ]
    more = ["  …"] if len(found) > _SHOWN else []
    return "\n".join([f"<{head_line(viewer)}", *lines, *more]) + ">"


def tensor_html(tensor: Tensor) -> str:
    """Return a table of what is known of a tensor."""
    rows: list[tuple[object, ...]] = [
        ("type", tensor.type_name),
        ("shape", tensor.shape_text),
        ("size", format_size(tensor.listed_nbytes)),
        ("status", status_words(tensor.status, tensor.verified)),
    ]
    if tensor.finding is not None:
        rows.append(("finding", tensor.finding))
    spans = tensor.spans
    rows += [("bytes", f"{span.offset:,} to {span.offset + span.length:,} of {span.path}") for span in spans[:3]]
    if len(spans) > 3:
        rows.append(("", f"and {len(spans) - 3:,} more"))
    return table(f"Tensor {tensor.name!r}", (), rows)
