"""numpy's .npy files: one array, with its type and shape in front (numpy/lib/format.py, NEP 1).

Layout: ``93 NUMPY``, u8 major and minor version, the length of a text (u16 in version 1, u32 in 2 and 3,
little-endian), the text, the elements. The text is a dict of Python with the keys ``descr``, ``fortran_order`` and
``shape``, Latin-1 or (version 3) UTF-8, filled up with spaces so that the elements begin at a multiple of 64 (of 16
before numpy 1.14). It is read without numpy and without evaluating it. States::

    state             needs  reads                                                   goes to
    expect_header     0      the header, as a whole; makes its parts children        expect_elements behind it
    expect_elements   0      nothing: the elements are a child                       DONE
    expect_dimension  0      nothing: the lengths in ``shape`` are known             DONE

The tree is ``version``, ``descr``, ``fortran_order``, ``shape`` and ``data``. Python objects are pickled: then ``data``
is also a document of its own, called ``pickle``.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul

from pparse.data.base import Access
from pparse.data.trailing_bytes import has_odd_tail, trailing_severity
from pparse.display.text import shape_words, shorten
from pparse.document.extraction import extraction_of
from pparse.errors import MalformedError, OptionError, spoken
from pparse.findings import COMPLETE, Severity, Status
from pparse.kernels.python_literal import read_literal
from pparse.lazy import lazy_pattern
from pparse.limits import MIB, count_words
from pparse.tensors.dtype import DTYPES, in_bytes
from pparse.tensors.npy import MAGIC, OPTIONS, ObjectsError, described, retyped
from pparse.tree.context import DONE
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.parser import Container, Listing, Parser, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.limits import Limits
    from pparse.tensors.dtype import DType
    from pparse.tree.code_use import CodeUse
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.host import HostSession
    from pparse.tree.node import Node
    from pparse.tree.result import Result

# Statuses of a header that may have told type and shape.
_TOLD: Final = (Status.COMPLETE, Status.TRUNCATED)
# What is read at once: the header of most arrays.
_FIRST: Final = 256
# Longer texts numpy refuses unless it is told `max_header_size`.
NUMPY_MOST: Final = 10_000
# numpy counts bytes and elements in 64 bits.
_MOST: Final = (1 << 63) - 1
_TOO_LARGE: Final = "an array of this shape cannot exist"
_KEYS: Final = ("descr", "fortran_order", "shape")
# So many pairs of carriage return and line feed are there by chance if none was changed.
_PAIRS: Final = 4
_WIDTHS: Final = {1: 2, 2: 4, 3: 4}
# As numpy writes it, of a simple type: most headers are read by this alone.
_PLAIN: Final = lazy_pattern(
    r"\{'descr': '([^'\\]{1,40})', 'fortran_order': (True|False), "
    r"'shape': \(((?:(?:[1-9][0-9]{0,17}|0)(?:,|(?:, (?:[1-9][0-9]{0,17}|0))++))?)\), \} *+\n"
)


class ArrayHeader:
    """What the header of an array says, or what is wrong with it."""

    def __init__(self, start: int) -> None:
        self.start = start
        """Where the array begins."""
        self.end = start
        """Where its elements begin; before the length is known, where reading stopped."""
        self.version: tuple[int, int] | None = None
        """Version of the format; None: it does not begin as an array."""
        self.text_at = start
        """Where the text begins."""
        self.length = 0
        """Bytes of the text."""
        self.dtype: DType | None = None
        """Type of the elements; None: they are Python objects, or the type is not known."""
        self.byteorder = "little"
        """Their byte order; structures have it in their fields."""
        self.descr = ""
        """The type as the file writes it."""
        self.is_nameless = False
        """Whether it is a type of ml_dtypes that the file does not name, and nobody else: elements are bytes."""
        self.fortran = False
        """Whether the first dimension runs fastest."""
        self.shape: tuple[int, ...] = ()
        """Length of each dimension."""
        self.places: dict[str, tuple[int, int]] = {}
        """Where the value of each key stands."""
        self.status = Status.COMPLETE
        """COMPLETE: all of the above is known; UNSUPPORTED: all but the type."""
        self.code = ""
        """Code of the finding on what is wrong …"""
        self.reason = ""
        """… in words …"""
        self.at = start
        """… and where."""

    @property
    def is_whole(self) -> bool:
        """Whether all that it should say is known."""
        return self.status is COMPLETE

    @property
    def is_of_objects(self) -> bool:
        """Whether the elements are Python objects, and nothing else is the matter."""
        return self.code == "objects"

    @property
    def nbytes(self) -> int | None:
        """Bytes of the elements; None if the header does not tell."""
        if self.dtype is None or "shape" not in self.places or self.status not in _TOLD:
            return None
        nbytes = prod(self.shape) * self.dtype.itemsize
        return nbytes if nbytes <= _MOST else None

    def strides(self) -> tuple[int, ...] | None:
        """Return the distances between neighbours, in bytes, if the first dimension runs fastest; else None."""
        if not self.fortran or len(self.shape) < 2 or self.dtype is None:
            return None
        return tuple(accumulate(self.shape[:-1], mul, initial=self.dtype.itemsize))

    def blame(self, status: Status, code: str, reason: str, at: int) -> None:
        """Note what is wrong, if nothing was before."""
        if self.is_whole:
            self.status, self.code, self.reason, self.at = status, code, reason, at


def named_type(session: HostSession) -> DType | None:
    """Return the type that the option ``dtype`` names; None if it is not given. Raises `OptionError` for no type."""
    name = session.options.get("dtype")
    if name is not None and name not in DTYPES:
        raise OptionError(f"option dtype must be one of {', '.join(DTYPES)}, not {shorten(str(name))!r}")
    return None if name is None else in_bytes(str(name))


def read_header(data: Data, start: int, end: int | None, session: HostSession) -> ArrayHeader:
    """Return the header of the array at ``start``; ``end``: where its bytes end, None while unknown.

    The bytes that a gap takes the place of are lost: the header is DAMAGED. Nothing is read that ``end`` excludes.
    """
    header = ArrayHeader(start)
    first, lost = data.read_known(start, _FIRST if end is None else max(0, min(_FIRST, end - start)))
    known = first[: lost[0][0] - start] if lost else first
    if known[:6] != MAGIC[: len(known)]:
        header.blame(Status.DAMAGED, "magic", "it does not begin as an .npy array", start)
    elif len(known) < 8:
        _cut(header, start + len(known), lost)
    elif (known[6], known[7]) not in ((1, 0), (2, 0), (3, 0)):
        version = f"{known[6]}.{known[7]}"
        header.blame(Status.UNSUPPORTED, "version", f"version {version} of the .npy format is not known", start + 6)
    else:
        header.version = (known[6], known[7])
        width = _WIDTHS[known[6]]
        header.end = header.text_at = start + 8 + width
        if len(known) < 8 + width:
            _cut(header, start + len(known), lost)
        else:
            header.length = int.from_bytes(known[8 : 8 + width], "little")
            header.end = header.text_at + header.length
            _read_text(header, data, end, session, known[8 + width :])
            _look_for_lost_returns(header, data, end)
    return header


def _look_for_lost_returns(header: ArrayHeader, data: Data, end: int | None) -> None:
    """Blame a transfer that made carriage return and line feed one line feed: bytes are missing, but not at the end.

    That is so if about as many bytes are missing as there should be pairs of both, and there is none.
    """
    size = header.nbytes
    if not header.is_whole or size is None or end is None or data.access is not Access.FREE:
        return
    missing = header.end + size - end
    if not 0 < missing < size:
        return
    block, lost = data.read_known(header.end, min(MIB, end - header.end))
    if lost or not block or b"\r\n" in block:
        return
    expected = block.count(b"\r") * block.count(b"\n") / len(block)
    if expected >= _PAIRS and expected / 4 <= missing * len(block) / size <= 4 * expected:
        reason = (
            f"it lacks {count_words(missing, 'byte')}, and no carriage return precedes a line feed: such pairs were "
            "made line feeds: fetch it again, not in text mode"
        )
        header.blame(Status.DAMAGED, "text-mode", reason, header.end)


def _cut(header: ArrayHeader, at: int, lost: list[tuple[int, int]]) -> None:
    if lost:
        header.blame(Status.DAMAGED, "gap", "bytes of its header are missing", at)
    else:
        header.blame(Status.TRUNCATED, "truncated", "the array ends inside its header", at)


def _read_text(header: ArrayHeader, data: Data, end: int | None, session: HostSession, known: bytes) -> None:
    """Read the text, of which ``known`` is there already, and what it says."""
    limits, length, at = session.limits, header.length, header.text_at
    if length > limits.leaf_bytes:
        option = spoken(limits.option("leaf_bytes"))
        reason = (
            f"its header of {length:,} bytes exceeds the limit leaf_bytes={limits.leaf_bytes}; lift it with {option}"
        )
        header.blame(Status.UNSUPPORTED, "long-header", reason, at)
        return
    lost: list[tuple[int, int]] = []
    if len(known) < length:
        known, lost = data.read_known(at, length if end is None else min(length, end - at))
        known = known[: lost[0][0] - at] if lost else known
    text, wrong = _decoded(header, known[:length])
    plain = _PLAIN.fullmatch(text) if len(known) >= length else None
    found: dict[str, tuple[Any, int, int]] = {}
    if plain is not None:
        shape = tuple(map(int, plain[3].rstrip(",").split(", "))) if plain[3] else ()
        found["descr"] = plain[1], plain.start(1) - 1, plain.end(1) + 1
        found["fortran_order"] = plain[2] == "True", *plain.span(2)
        found["shape"] = shape, plain.start(3) - 1, plain.end(3) + 1
    else:
        wrong = wrong or _read_dict(text, found)
    _take(header, text, found)
    # What is worst comes first, and stays.
    if "shape" in header.places:
        _judge_shape(header, limits)
    if known[:length].endswith(b"\r") and data.read_known(at + length, 1)[0] == b"\n" and at + length != end:
        reason = "its line feeds were made carriage return and line feed: fetch it again, not in text mode"
        header.blame(Status.DAMAGED, "text-mode", reason, at + length - 1)
    if len(known) < length:
        _cut(header, at + len(known), lost)
    if wrong is not None:
        place = _in_bytes(header, text, wrong[1], wrong[1])[0]
        header.blame(Status.DAMAGED, "malformed", f"its header is not as numpy writes it: {wrong[0]}", place)
    if "descr" in found:
        _take_type(header, found["descr"][0], named_type(session))


def _decoded(header: ArrayHeader, raw: bytes) -> tuple[str, tuple[str, int] | None]:
    """Return the text; if a byte does not belong there, up to that, and what is wrong where."""
    if header.version != (3, 0):
        return raw.decode("latin-1"), None
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        text = raw[: error.start].decode()
        return text, ("it is not UTF-8", len(text))


def _read_dict(text: str, found: dict[str, tuple[Any, int, int]]) -> tuple[str, int] | None:
    """Add the values that the text has; of a text that is cut, those before the cut. Say what is wrong, and where."""
    try:
        value = read_literal(text, found)
    except MalformedError as error:
        return error.reason, error.offset or 0
    if not isinstance(value, dict) or set(value) != set(_KEYS):
        return "it is no dict of descr, fortran_order and shape", 0
    if not isinstance(value["fortran_order"], bool):
        return "fortran_order is neither True nor False", found["fortran_order"][1]
    if not _is_shape(value["shape"]):
        return "the shape is no tuple of whole numbers", found["shape"][1]
    return None


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(type(length) is int for length in shape)


def _take(header: ArrayHeader, text: str, found: dict[str, tuple[Any, int, int]]) -> None:
    """Take the values that are what they should be."""
    for key, (value, begin, stop) in found.items():
        if key == "fortran_order" and isinstance(value, bool):
            header.fortran = value
        elif key == "shape" and _is_shape(value):
            header.shape = value
        elif key == "descr":
            header.descr = value if isinstance(value, str) else text[begin:stop]
        else:
            continue
        header.places[key] = _in_bytes(header, text, begin, stop)


def _in_bytes(header: ArrayHeader, text: str, begin: int, end: int) -> tuple[int, int]:
    """Return where characters of the text stand in the file."""
    if header.version == (3, 0) and not text.isascii():
        begin, end = len(text[:begin].encode()), len(text[:end].encode())
    return header.text_at + begin, header.text_at + end


def _take_type(header: ArrayHeader, descr: Any, wanted: DType | None) -> None:
    at = header.places["descr"][0]
    try:
        header.dtype, header.byteorder = described(descr)
        if wanted is not None and isinstance(descr, str):
            header.dtype = retyped(descr, wanted) or header.dtype
        elif descr == "<V1":
            header.is_nameless = True
        if prod(max(1, length) for length in header.shape) * header.dtype.itemsize > _MOST:
            header.blame(Status.DAMAGED, "shape", _TOO_LARGE, header.places.get("shape", (at, at))[0])
    except ObjectsError:
        reason = "its elements are Python objects, and no array: they are a pickle, which NAME.npy::pickle shows"
        header.blame(Status.UNSUPPORTED, "objects", reason, at)
    except ValueError as error:
        header.blame(Status.UNSUPPORTED, "unknown-type", f"the type of its elements is not known: {error}", at)


def _judge_shape(header: ArrayHeader, limits: Limits) -> None:
    at = header.places["shape"][0]
    size = 1
    for length in header.shape:
        size *= max(1, length)
        if length < 0 or size > _MOST:
            header.blame(Status.DAMAGED, "shape", "a dimension is negative" if length < 0 else _TOO_LARGE, at)
            return
    if len(header.shape) > limits.tensor_rank:
        reason = f"it has {len(header.shape):,} dimensions, more than the limit tensor_rank={limits.tensor_rank}"
        header.blame(Status.UNSUPPORTED, "rank", reason, at)


PICKLE: Final = "pickle"
# Longer values are read when they are asked for.
_KEPT: Final = 256


def nameless() -> str:
    """Return what is said of elements whose type nobody names."""
    return (
        "the elements are of a type of ml_dtypes that takes a byte (float8_e4m3fn, int4 …), which numpy does not name "
        f"in files: they are shown as bytes; {spoken('-O dtype=float8_e4m3fn')} says which type"
    )


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
        "float8_e4m3fn, int4 and the like are saved as bytes (V1): the file does not name them, -O dtype= does",
        "the format has no checksums: a changed element cannot be noticed",
    )
    options = OPTIONS
    shapes = {"npy": MAP, "shape": LIST}

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        named_type(result.extraction.session)  # an option that is wrong is told first

    @cached_property
    def header(self) -> ArrayHeader:
        """The header of the array."""
        extraction = self.result.extraction
        return read_header(extraction.data, extraction.start, extraction.end, extraction.session)

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
            self.note("long-header", reason, header.text_at, severity=Severity.WARNING)
        if header.is_nameless:
            self.note("unnamed-type", nameless(), header.places["descr"][0], severity=Severity.NOTE)
        if header.is_of_objects:
            self.note(header.code, header.reason, header.at, severity=Severity.NOTE)
        elif not header.is_whole:
            finding = self.finding_at(header.code, header.reason, "", header.at)
            self.result.close_node(ctx.node, header.status, finding)
        return max(ctx.pos, min(header.end, self.result.extraction.find_end())), self.expect_elements, 0

    def expect_elements(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit the elements; what follows them belongs to nothing."""
        header, end = self.header, self.result.extraction.find_end()
        nbytes = header.nbytes if header.is_whole else None
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
        assert pickled is not None  # noqa: S101 -- they are objects
        status, said, finding = pickled.root.status, pickled.root.finding, None
        if status is not Status.COMPLETE:
            reason = said.reason if said is not None else "the pickle of its elements is not whole"
            finding = self.finding_at(str(status), reason, "", ctx.pos)
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
        self.note("trailing", reason, at, end - at, severity=trailing_severity("document" if odd else "archive"))

    # -- what commands show ------------------------------------------------------------------------------------------

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the type of the elements, with the words of the file, the shape, and the order of the elements."""
        header = self.header
        if "descr" in header.places:
            known = "Python objects" if header.is_of_objects else "?"
            if header.dtype is not None:
                known = header.dtype.name + (", big-endian" if header.byteorder == "big" else "")
            yield "dtype", f"{known} ({shorten(header.descr, _WORDS)})"
        if "shape" in header.places:
            yield "shape", shape_words(header.shape)
        if "fortran_order" in header.places:
            order = "Fortran (the first" if header.fortran else "C (the last"
            yield "order", f"{order} dimension runs fastest)"
        from pparse.tree.code_use import code_lines

        yield from code_lines(self.globals())

    def globals(self) -> Iterator[CodeUse]:
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
