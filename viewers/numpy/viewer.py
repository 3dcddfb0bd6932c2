"""The array of an .npy file, as a model of one tensor."""

from __future__ import annotations

from functools import cached_property

from pparse.data.trailing_bytes import SHIFTED
from pparse.findings import Finding, Severity, Status
from pparse.parsers.numpy.npy import is_longer, read_header
from pparse.tensors.span import Span
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.numpy.npy import ArrayHeader

EXTENSION: Final = ".npy"


class NpyViewer(Viewer):
    """A mapping of one name, that of the file without its extension, to the array in it."""

    places_by_offset = True

    names_may_be_lost = False

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser

    @cached_property
    def name(self) -> str:
        """Name of the array, which the format does not give it: that of the file up to ``.npy``."""
        last = self.extraction.outermost.name.replace("\\", "/").rpartition("/")[2]
        at = last.lower().find(EXTENSION)
        stem = last if at < 0 else last[:at]
        return stem if stem and stem[0] != "<" else "array"  # bytes in memory have no name

    @property
    def default_name(self) -> str:
        """That of the array."""
        return self.name

    @cached_property
    def header(self) -> ArrayHeader:
        """The header of the array."""
        inner = self.extraction.parsed
        return read_header(inner.data, inner.start, inner.end, inner.session)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Nothing: a header describes the array."""
        return {}

    def tensors(self) -> Iterator[Tensor]:
        """Yield the array."""
        yield self.tensor()

    def find(self, name: str) -> Tensor | None:
        """Return the array if that is its name; else None."""
        return self.tensor() if name == self.name else None

    def tensor(self) -> Tensor:
        """Return the array."""
        inner = self.extraction.parsed
        tensor = tensor_of(self.header, self.name, inner, self)
        tensor.unwritten_nbytes = self.unwritten(tensor)[1]
        return tensor

    @property
    def may_have_had_more(self) -> bool:  # type: ignore[override]
        """Whether the header does not say how long the array is."""
        return self.header.nbytes is None


def tensor_of(header: ArrayHeader, name: str, inner: Extraction, owner: Any) -> Tensor:
    """Return the array in ``inner``, whose header is ``header``, as a tensor called ``name``."""
    begin, nbytes = header.end, header.nbytes
    status, finding = header.status, None
    if not header.is_whole:
        severity = Severity.NOTE if header.is_of_objects else Severity.ERROR
        finding = Finding(header.code, header.reason, severity=severity, path=name, source=inner.name, offset=header.at)
    spans: tuple[Span, ...] = ()
    if nbytes is not None:
        spans = (Span(inner.data, begin, nbytes, inner.path, inner.end),)
        short = inner.end is not None and inner.end < begin + nbytes
        stop = begin + nbytes
        if nbytes and (short or not inner.data.available(begin, nbytes)):
            status = status_by_place(begin, stop, inner.find_end())
        elif nbytes and header.is_whole and is_longer(inner.data, inner.start, stop, inner.find_end()):
            status = Status.DAMAGED
            finding = Finding("shifted", SHIFTED, path=name, source=inner.name, offset=begin)
    elif header.places:  # what follows the header is all that is known of it
        end = inner.find_end()
        spans = (Span(inner.data, begin, max(0, end - begin), inner.path, end),)
    # A shape that is damaged is not to be believed, and no strides go with it.
    is_known = status is not Status.DAMAGED and "shape" in header.places
    made = with_spans(header, name, spans, owner, is_known=is_known)
    made.status, made.finding = status, finding
    return made


def with_spans(header: ArrayHeader, name: str, spans: tuple[Span, ...], owner: Any, *, is_known: bool = True) -> Tensor:
    """Return the array that ``header`` describes, with its bytes at ``spans``; ``is_known``: it has its shape."""
    shape, strides = (header.shape, header.strides()) if is_known else (UNKNOWN_SHAPE, None)
    descr, order = header.descr, header.byteorder
    return Tensor(name, header.dtype, shape, spans, stored_dtype=descr, strides=strides, byteorder=order, owner=owner)
