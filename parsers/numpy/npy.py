"""numpy's .npy files: one array, with its type and shape in front (numpy/lib/format.py, NEP 1).

The layout of the header is in `pparse.parsers.numpy.header`. States::

    state             needs  reads                                                   goes to
    expect_header     0      the header, as a whole; makes its parts children        expect_elements behind it
    expect_elements   0      nothing: the elements are a child                       DONE
    expect_dimension  0      nothing: the lengths in ``shape`` are known             DONE

The tree is ``version``, ``descr``, ``fortran_order``, ``shape`` and ``data``. Python objects are pickled: then ``data``
is also a document of its own, called ``pickle``.
"""

from __future__ import annotations

from functools import cached_property

from pparse.data.trailing_bytes import has_odd_tail, trailing_severity
from pparse.display.text import shape_words, shorten
from pparse.document.extraction import extraction_of
from pparse.findings import Finding, Severity, Status
from pparse.parsers.numpy.header import NUMPY_MOST, read_header
from pparse.tree.container import Container
from pparse.tree.context import DONE
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.listing import Listing, global_lines
from pparse.tree.parser import Parser, Signature
from pparse.writers.npy import MAGIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.numpy.header import ArrayHeader
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.listing import GlobalUse
    from pparse.tree.node import Node

PICKLE: Final = "pickle"
# Longer values are read when they are asked for.
_KEPT: Final = 256
# Letters of the type's description in `details`.
_WORDS: Final = 120


def another_follows(data: Data, at: int, stop: int) -> bool:
    """Say whether an array begins where another one ends: several may be saved into one file."""
    return at < stop and data.read_known(at, len(MAGIC))[0] == MAGIC


def is_longer(data: Data, start: int, at: int, stop: int) -> bool:
    """Say whether bytes may have been inserted before ``at``, where the array ends, since others follow it.

    Several arrays in one file, and padding, do not count.
    """
    return not another_follows(data, at, stop) and has_odd_tail(data, start, at, stop)


class NpyParser(Parser, Container, Listing):
    """An .npy file."""

    name = "npy"
    description = "numpy array"
    extensions = (".npy",)
    empty_is_nothing = True
    signatures = (Signature(MAGIC),)
    viewer = "pparse.viewers.numpy.viewer:NpyViewer"
    references = ("https://numpy.org/neps/nep-0001-npy-format.html", "numpy/lib/format.py")
    limitations = (
        "of several arrays saved into one file, the first is shown",
        "arrays of Python objects are pickles: they are shown as trees (FILE::pickle), not as arrays",
        "bfloat16, float8 and the like are saved as bytes of their width (V2, V1): the file does not name them",
        "the format has no checksums: a changed element cannot be noticed",
    )
    shapes = {"npy": MAP, "shape": LIST}

    @cached_property
    def header(self) -> ArrayHeader:
        """The header of the array."""
        extraction = self.result.extraction
        return read_header(extraction.data, extraction.start, extraction.end, extraction.session.limits)

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin with the header, or with the lengths in it."""
        return ctx.pos, self.expect_dimension if ctx.node.kind == "shape" else self.expect_header, 0

    def expect_header(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Read the header, and emit what it says."""
        header = self.header
        if header.version is not None:
            version = f"{header.version[0]}.{header.version[1]}"
            ctx.emit(Entry("version", "text", header.start + 6, header.start + 8, version))
        for key, kind in (("descr", "text"), ("fortran_order", "bool"), ("shape", "shape")):
            if key in header.places:
                begin, end = header.places[key]
                value: Any = header.fortran if kind == "bool" else UNLOADED_VALUE
                if kind == "text" and len(header.descr) <= _KEPT:
                    value = header.descr
                ctx.emit(Entry(key, kind, begin, end, value, None if kind == "shape" else Status.COMPLETE))
        if header.length > NUMPY_MOST and header.status is not Status.TRUNCATED:
            reason = f"its header has more than {NUMPY_MOST:,} bytes: numpy.load needs max_header_size={header.length}"
            self._note("long-header", reason, header.text_at, Severity.WARNING)
        if header.is_of_objects:
            self._note(header.code, header.reason, header.at, Severity.NOTE)
        elif header.status is not Status.COMPLETE:
            finding = self._finding(header.code, header.reason, header.at, Severity.ERROR)
            self.result.close_node(ctx.node, header.status, finding)
        return max(ctx.pos, min(header.end, self.result.extraction.known_end())), self.expect_elements, 0

    def expect_elements(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit the elements; what follows them belongs to nothing."""
        header, end = self.header, self.result.extraction.known_end()
        nbytes = header.nbytes if header.status is Status.COMPLETE else None
        if nbytes is not None:
            ctx.emit_next("data", "bytes", nbytes)
            if ctx.pos < end:
                self._note_trailing(ctx.pos, end)
        elif header.is_of_objects:
            self._emit_pickle(ctx, end)
        elif header.status is Status.UNSUPPORTED and header.places:
            ctx.emit(Entry("data", "bytes", ctx.pos, end))
            ctx.pos = end
        return ctx.pos, DONE, 0

    def _emit_pickle(self, ctx: NodeContext, end: int) -> None:
        """Emit the pickle; the array is as whole as that."""
        pickled = self.pickled()
        root = pickled.root if pickled is not None else None
        status = root.status if root is not None else Status.DAMAGED
        finding = None
        if status is not Status.COMPLETE:
            reason = (
                "the pickle of its elements is not whole"
                if root is None or root.finding is None
                else root.finding.reason
            )
            finding = self._finding(str(status), reason, ctx.pos, Severity.ERROR)
        ctx.emit(Entry("data", PICKLE, ctx.pos, end, status=status, finding=finding))
        if finding is not None:
            self.result.close_node(ctx.node, status, finding)
        ctx.pos = end

    def expect_dimension(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit the length of each dimension."""
        node = ctx.node
        for length in self.header.shape:
            ctx.emit(Entry(None, "int", node.start, node.end, length))
        return node.end or ctx.pos, DONE, 0

    def _note_trailing(self, at: int, end: int) -> None:
        data = self.result.extraction.data
        again = another_follows(data, at, end)
        reason = "another array follows, which numpy.load leaves out" if again else "other bytes follow the array"
        odd = is_longer(data, self.result.extraction.start, at, end)
        finding = self._finding("trailing", reason, at, trailing_severity("document" if odd else "archive"))
        finding.length = end - at
        self.result.findings.add(finding)

    def _finding(self, code: str, reason: str, at: int, severity: Severity) -> Finding:
        return Finding(code, reason, severity=severity, source=self.result.extraction.name, offset=at)

    def _note(self, code: str, reason: str, at: int, severity: Severity) -> None:
        self.result.findings.add(self._finding(code, reason, at, severity))

    # -- what commands show ------------------------------------------------------------------------------------------

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the type of the elements, with the words of the file, the shape, and the order of the elements."""
        header = self.header
        if "descr" in header.places:
            known = "Python objects" if header.is_of_objects else header.dtype.name if header.dtype is not None else "?"
            swapped = ", big-endian" if header.dtype is not None and header.byteorder == "big" else ""
            yield "dtype", f"{known}{swapped} ({shorten(header.descr, _WORDS)})"
        if "shape" in header.places:
            yield "shape", shape_words(header.shape)
        if "fortran_order" in header.places:
            order = "Fortran (the first" if header.fortran else "C (the last"
            yield "order", f"{order} dimension runs fastest)"
        yield from global_lines(self.globals())

    def globals(self) -> Iterator[GlobalUse]:
        """Yield the globals that the pickle names which Python objects are."""
        pickled = self.pickled()
        for use in pickled.result.listing.globals() if pickled is not None else ():
            use.pickle = PICKLE
            yield use

    # -- values ------------------------------------------------------------------------------------------------------

    def load_scalar(self, node: Node) -> Any:
        """Return the description of a long type as text, other values as `Parser.load_scalar` does."""
        return self.header.descr if node.kind == "text" and node.key == "descr" else super().load_scalar(node)

    # -- Python objects ----------------------------------------------------------------------------------------------

    def enter(self, name: str) -> Extraction | None:
        """Return the pickle that the elements are, if they are Python objects; None for any other name."""
        return self.pickled() if name == PICKLE else None

    def pickled(self) -> Extraction | None:
        """Return the pickle of an array of Python objects; None if it holds none."""
        extraction = extraction_of(self.result)
        if not self.header.is_of_objects:
            return None
        return extraction.child(PICKLE, extraction.data, self.header.end, extraction.end, PICKLE)
