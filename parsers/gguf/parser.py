"""GGUF files: a header, typed key-values, a table of tensors, and their aligned bytes.

Layout, as in ggml (``docs/gguf.md``, ``src/gguf.cpp``): ``GGUF``, u32 version, count of tensors, count of key-values;
key-values (text, u32 type, value); tensors (name, u32 rank, dimensions with the innermost first, u32 type, u64 offset);
padding up to a multiple of ``general.alignment`` (32); data, where each offset is such a multiple. A text is a length
and its bytes; an array u32 type, count, elements. Counts, lengths and dimensions are u64, in version 1 u32. All numbers
of a file are little-endian, or all big-endian: then the low half of the version, read as little-endian, is zero.

States::

    state           reads                                      goes to
    expect_magic    magic                                      expect_version
    expect_version  version, which tells the byte order        expect_counts; DONE if it is not known
    expect_counts   numbers of tensors and key-values          expect_tensors behind the key-values
    expect_pair     a key, a type, a value                     expect_pair; DONE after the last
    expect_element  texts of an array, or one array in it      expect_element; DONE after the last
    expect_tensors  nothing: the table becomes a child         expect_data behind the table
    expect_tensor   name, shape, type and place of a tensor    expect_tensor; DONE after the last
    expect_data     nothing: the bytes behind the padding      DONE
"""

from __future__ import annotations

from array import array
from collections import Counter
from functools import cache
from math import prod
from struct import calcsize, unpack_from

from pparse.errors import DataError, LimitError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.kernels.text_starts import sound_texts, text_starts
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size
from pparse.tree.context import DONE, SHORT_TEXT, Field, NeedMoreError, NumberArray, Record, decode_text, struct_of
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.index import repeated_hashes
from pparse.tree.parser import Listing, Parser, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from struct import Struct
    from typing import Any, Final, NoReturn

    from numpy.typing import NDArray

    from pparse.tensors.block_tensor import Decode
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.entry import Key
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.result import Result

# -- The types that GGUF files have for values and for tensors, by their numbers ---------------------------------------

# Numbers, and sizes of blocks, as in ggml (``include/ggml.h``, ``src/ggml-common.h``) and the package gguf
# (``constants.py``).

# Numbers of the types of values that are neither numbers nor truth values.
TEXT, ARRAY = 8, 9
NAMES: Final = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "text", "array"),
    *("uint64", "int64", "float64"),
)
"""What types of values are called, by their number."""
LAYOUTS: Final = {kind: code for kind, code in enumerate("BbHhIif?--Qqd") if code != "-"}
"""Their layouts, as `struct` writes them."""


class GgmlType:
    """How elements are stored: in blocks, each of so many elements in so many bytes."""

    __slots__ = ("block_bytes", "block_size", "dtype", "name", "number")

    def __init__(self, number: int, name: str, block_size: int, block_bytes: int, dtype: str | None = None) -> None:
        self.number = number
        """Its number in files."""
        self.name = name
        """What ggml calls it."""
        self.block_size = block_size
        """Elements of a block; 1 for plain types."""
        self.block_bytes = block_bytes
        """Bytes of a block."""
        self.dtype = dtype
        """Name of the element type, if the bytes are those of an array; None for quantised types."""


TYPES: Final = {
    number: GgmlType(number, name, *sizes)
    for number, name, *sizes in (
        (0, "F32", 1, 4, "float32"),
        (1, "F16", 1, 2, "float16"),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1, "int8"),
        (25, "I16", 1, 2, "int16"),
        (26, "I32", 1, 4, "int32"),
        (27, "I64", 1, 8, "int64"),
        (28, "F64", 1, 8, "float64"),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2, "bfloat16"),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    )
}
"""The types whose sizes are known."""

# What the package gguf does not decode; and the types whose blocks it swaps for other machines.
_UNDECODED: Final = frozenset(("Q8_1", "Q8_K", "Q1_0", "Q2_0"))
_IN_BIG_ENDIAN: Final = frozenset(("Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4"))

OTHERS: Final = {
    4: "Q4_2, which ggml removed",
    5: "Q4_3, which ggml removed",
    31: "Q4_0_4_4, which ggml removed",
    32: "Q4_0_4_8, which ggml removed",
    33: "Q4_0_8_8, which ggml removed",
    36: "IQ4_NL_4_4, which ggml removed",
    37: "IQ4_NL_4_8, which ggml removed",
    38: "IQ4_NL_8_8, which ggml removed",
}
"""Numbers that are, or were, taken by other types."""


@cache
def decoder(name: str, order: str) -> Decode | None:
    """Return what decodes the blocks of a type in files of this byte order; None if nothing does.

    What it needs is imported when it is first called.
    """
    if name in _UNDECODED or (order == "big" and name not in _IN_BIG_ENDIAN):
        return None

    def decode(blocks: NDArray[Any], out: NDArray[Any]) -> None:
        from pparse.kernels.ggml_blocks import DECODERS, swapped

        DECODERS[name](blocks if order == "little" else swapped(name, blocks), out)

    return decode


def type_words(number: int) -> str:
    """Return what there is to say of a type that cannot be read."""
    known = OTHERS.get(number)
    return f"its type is {number} ({known})" if known else f"its type is {number}, which is not known"


MAGIC: Final = Record(Field("magic", "4s"))


@cache
def _counts(layout: str) -> Record:
    """Return the two counts of a header, of this layout."""
    return Record(Field("tensor_count", layout), Field("metadata_kv_count", layout))


VERSIONS: Final = (1, 2, 3)
ALIGNMENT: Final = "general.alignment"
# ggml has at most 4 dimensions, numpy 64; its texts and arrays at most 2^30 bytes or elements, keys at most 2^16.
_MOST_DIMENSIONS, _MOST, _LONGEST_KEY = 64, 1 << 30, 1 << 16
_UINT32: Final = 4
# So many names are hashed while the table is read; each takes so many bytes while the repeated ones are found.
_MOST_HASHES: Final = 1 << 14
_SET: Final = 80
# Texts of an array are checked in blocks of so many bytes.
_BLOCK: Final = 64 << 10


class GgufParser(Parser, Listing):
    """GGUF, versions 1 to 3 in both byte orders."""

    name = "gguf"
    description = "GGUF model (llama.cpp)"
    extensions = (".gguf",)
    empty_is_nothing = True
    signatures = (Signature(b"GGUF"),)
    viewer = "pparse.viewers.gguf.viewer:gguf_viewer"
    references = ("ggml-org/ggml docs/gguf.md, src/gguf.cpp, include/ggml.h", "the package gguf (gguf-py)")
    limitations = (
        "types that the package gguf does not dequantise (Q8_1, Q8_K, Q1_0) are read as blocks only",
        "of big-endian files, only blocks of Q4_0, Q8_0, Q4_K, Q6_K, MXFP4 and NVFP4 are dequantised",
        "there are no checksums: changed bytes show only where they contradict others",
        "a file cut in the padding behind its last tensor looks whole: nothing is missing from it",
    )
    shapes = {"gguf": MAP, "metadata": MAP, "array": LIST, "tensors": MAP}
    child_state = {"metadata": "expect_pair", "array": "expect_element", "tensors": "expect_tensor"}

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.version = 0
        """Version of the format."""
        self.order = "<"
        """Byte order, as `struct` writes it."""
        self.alignment = 32
        """What offsets of tensors should be multiples of."""
        self.odd_alignment: object = None
        """What the file says that this is, if ggml does not take it: it must be a u32, and a power of two."""
        self.data_start: int | None = None
        """Where the data begin; None as long as that is not known."""
        self.layout = GgufLayout(32)
        """Where the tensors lie, once the table was read."""
        self.length = "Q"
        """Layout of a count or length."""
        # Of a count, of a u32, and of what follows the number of dimensions, by that number.
        self._layouts: tuple[Struct, Struct, dict[int, Struct]] = (struct_of("<Q"), struct_of("<I"), {})

    @classmethod
    def model_name(cls, name: str) -> str:
        """Return the name without the number of the part, for a part of a split model."""
        found = part_of(name)
        return name if found is None else f"{found[0]}-of-{found[2]:05}.gguf"

    def begin(self, ctx: NodeContext) -> Step:
        """Begin a container with the state of its children, the root with its magic."""
        states = {"metadata": self.expect_pair, "array": self.expect_element, "tensors": self.expect_tensor}
        return ctx.pos, states.get(ctx.node.kind, self.expect_magic), 0

    def expect_magic(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take the magic."""
        if ctx.emit_record(MAGIC).magic != b"GGUF":
            raise MalformedError("the magic is not GGUF", offset=ctx.pos - 4)
        return ctx.pos, self.expect_version, 0

    def expect_version(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take the version, and learn the byte order from it."""
        start = ctx.pos
        raw = ctx.take_bytes(4)
        self.order = "<" if raw[:2] != b"\0\0" else ">"
        (self.version,) = unpack_from(self.order + "I", raw)
        self.length = "I" if self.version == 1 else "Q"
        self._layouts = struct_of(self.order + self.length), struct_of(self.order + "I"), {}
        ctx.emit(Entry("version", "uint32", start, start + 4, self.version))
        if self.version in VERSIONS:
            return ctx.pos, self.expect_counts, 0
        finding = Finding("unsupported", f"version {self.version} is not known", offset=start)
        self.result.close_node(ctx.node, Status.UNSUPPORTED, finding)
        return ctx.pos, DONE, 0

    def expect_counts(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take the counts; the key-values become a child."""
        ctx.scratch = ctx.emit_record(_counts(self.order + self.length))
        ctx.emit(Entry("metadata", "metadata", ctx.pos, None, status=None, note=ctx.scratch.metadata_kv_count))
        return ctx.behind_child(self.expect_tensors)

    def expect_tensors(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Make the table a child."""
        ctx.emit(Entry("tensors", "tensors", ctx.pos, None, status=None, note=ctx.scratch.tensor_count))
        return ctx.behind_child(self.expect_data)

    def expect_pair(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take a key and its value."""
        if ctx.emitted == ctx.node.note:
            return ctx.pos, DONE, 0
        at = ctx.pos
        key = self._take_name(ctx, "key")
        (kind,) = ctx.take(self.order + "I")
        if key == ALIGNMENT:
            self.odd_alignment = None if kind == _UINT32 else NAMES[kind] if kind < len(NAMES) else kind
        return self._emit_value(ctx, key, kind, at, self.expect_pair)

    def expect_element(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take one text or array of an array; while texts are indexed, all that the block holds."""
        kind, count = ctx.node.note
        if ctx.emitted == count:
            return ctx.pos, DONE, 0
        if kind == TEXT and ctx.is_indexing:
            starts, end = text_starts(block, ctx.pos - base, base, self.order + self.length, count - ctx.emitted)
            if starts:
                ctx.emit_many(starts)
                return end, self.expect_element, 0
        return self._emit_value(ctx, None, kind, ctx.pos, self.expect_element)

    def _take_name(self, ctx: NodeContext, what: str) -> str:
        (length,) = ctx.take(self.order + self.length)
        if length > _LONGEST_KEY:
            raise MalformedError(f"a {what} of {length} bytes", offset=ctx.pos - calcsize(self.length))
        return ctx.take_bytes(length).decode("utf-8", "backslashreplace")  # ggml does not look at what it is

    def _emit_value(self, ctx: NodeContext, key: Key, kind: int, at: int, following: Any) -> Step:
        start = ctx.pos
        if kind in LAYOUTS:
            (value,) = ctx.take(self.order + LAYOUTS[kind])
            if key == ALIGNMENT:
                self.alignment = value if type(value) is int and value > 0 else 32
                if value != self.alignment or value & value - 1:
                    self.odd_alignment = value
            ctx.emit(Entry(key, NAMES[kind], start, ctx.pos, value, at=at))
            return ctx.pos, following, 0
        if kind not in (TEXT, ARRAY):
            raise MalformedError(f"there is no type {kind}", offset=start - 4)
        inner = ctx.take(self.order + "I")[0] if kind == ARRAY else None
        (count,) = ctx.take(self.order + self.length)
        if count > _MOST:
            what = "bytes" if inner is None else "elements"
            raise MalformedError(f"a value of {count} {what}", offset=ctx.pos - calcsize(self.length))
        if inner is None:
            ctx.emit_text(key, count, at=at)
        elif inner in LAYOUTS:
            ctx.emit_numbers(key, self.order + LAYOUTS[inner], count, at=at)
        elif inner in (TEXT, ARRAY):
            ctx.emit(Entry(key, "array", ctx.pos, None, status=None, at=at, note=(inner, count)))
            return ctx.behind_child(following)
        else:
            raise MalformedError(f"there is no type {inner}", offset=start)
        return ctx.pos, following, 0

    def expect_tensor(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take the description of a tensor; what is wrong with one does not concern the others."""
        count = ctx.node.note
        while ctx.emitted < count:
            self._take_tensor(ctx, block, base)
            if ctx.satisfied:
                return ctx.pos, self.expect_tensor, 0
        if ctx.scratch is not None:
            self.layout, hashes = ctx.scratch
            self._keep_repeated(ctx.index, ctx.emitted, hashes)
        return ctx.pos, DONE, 0

    def _take_tensor(self, ctx: NodeContext, block: bytes, base: int) -> None:
        # There may be hundreds of thousands: taken piece by piece, by `NodeContext.take`, they take twice the time.
        at, there, (number, word, heads) = ctx.pos, len(block), self._layouts
        begin = at - base
        text = begin + number.size
        (length,) = number.unpack_from(block, begin) if text <= there else self._need(at, text - begin)
        if length > _LONGEST_KEY:
            raise MalformedError(f"a name of {length} bytes", offset=at)
        behind = text + length
        head = behind + 4
        if head > there:
            self._need(at, (head if behind <= there else behind) - begin)
        name = block[text:behind].decode("utf-8", "backslashreplace")  # ggml does not look at what it is
        (rank,) = word.unpack_from(block, behind)
        if rank > _MOST_DIMENSIONS:
            raise MalformedError(f"a tensor has {rank} dimensions", offset=base + behind)
        if (rest := heads.get(rank)) is None:
            rest = heads[rank] = struct_of(f"{self.order}{rank}{self.length}IQ")
        end = head + rest.size
        if end > there:
            self._need(at, end - begin)
        *dimensions, kind, offset = rest.unpack_from(block, head)
        ctx.pos = base + end
        place = GgufPlace(kind, tuple(dimensions[::-1]), offset)
        entry = Entry(name, "tensor", at, ctx.pos, note=place)
        if place.size is None:
            entry.status = Status.DAMAGED if kind in TYPES else Status.UNSUPPORTED
            entry.finding = Finding("bad-entry", place.problem or "", path=name, offset=at)
        if ctx.is_indexing:
            layout, hashes = ctx.scratch = ctx.scratch or (GgufLayout(self.alignment), array("q"))
            layout.add(place)
            if len(hashes) < _MOST_HASHES:
                hashes.append(hash(name))
        ctx.emit(entry)

    @staticmethod
    def _need(at: int, count: int) -> NoReturn:
        """End the state, which is entered again with ``count`` bytes from ``at`` on, where it last emitted a child."""
        raise NeedMoreError(at, count)

    def _keep_repeated(self, index: ChildIndex | None, count: int, hashes: array[int]) -> None:
        """Keep with ``index`` which of ``count`` names are repeated, if all were hashed: so they are not read again."""
        if index is not None and len(hashes) == count:
            try:
                with self.result.extraction.session.budget.charge(_SET * count, "finding repeated keys"):
                    index.keep_repeated(frozenset(repeated_hashes(hashes, 0, 1)))
            except LimitError:
                pass  # they are found in as many passes as there is room for, once they are asked for

    def expect_data(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Take the data as one child."""
        start = self.result.extraction.start
        self.data_start = ctx.pos + ((start - ctx.pos) % self.alignment if self.layout.end else 0)
        ctx.skip(self.data_start - ctx.pos)
        ctx.emit_next("data", "bytes", self.layout.end)
        return ctx.pos, DONE, 0

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield what `pparse info` shows beside the key-values: version, alignment, and the sizes of each type."""
        root = self.result.root
        root.find("data")  # all before it is read then
        if not self.version:
            return
        yield "version", f"{self.version}, {'little' if self.order == '<' else 'big'}-endian"
        yield "alignment", f"{self.alignment}"
        facts, table = root.find("metadata"), root.find("tensors")
        if facts is not None:
            kinds = Counter(
                f"array of {_element(node)}" if node.kind == "array" else node.kind for node in facts.children()
            )
            words = ", ".join(f"{name} {count:,}" for name, count in kinds.most_common())
            yield "key-values", f"{len(facts):,} ({words})" if words else "0"
        found: dict[int, list[int]] = {}  # numbers of tensors, elements, and bytes, by type
        for node in table.children() if table is not None else ():
            place = node.note
            if place.size is not None:
                sums = found.setdefault(place.kind, [0, 0, 0])
                for at, more in enumerate((1, prod(place.shape), place.size)):
                    sums[at] += more
        for kind, sums in sorted(found.items(), key=lambda item: -item[1][2]):
            yield TYPES[kind].name, _words(sums)
        if len(found) > 1:
            yield "all types", _words([sum(column) for column in zip(*found.values(), strict=True)])

    def is_sound_inside(self, node: Node) -> bool | None:
        """Look at the texts of an array block by block: a vocabulary has hundreds of thousands."""
        extraction = self.result.extraction
        if node.kind != "array" or type(node.note) is NumberArray or node.note[0] != TEXT:
            return super().is_sound_inside(node)
        at, left, layout = node.start, node.note[1], self.order + self.length
        end = extraction.find_end(node)
        try:
            while left and at < end and not extraction.data.flawed:
                extraction.session.check_cancelled()
                block = extraction.data.pread(at, min(_BLOCK, end - at))
                behind, passed = sound_texts(block, 0, layout, left, SHORT_TEXT)
                if not passed:
                    break
                at, left = at + behind, left - passed
            if not left and at <= end:
                node.index_to(None)  # what it finds is told behind what is in it
        except (DataError, LimitError):
            return False
        return not left and node.known_status is Status.COMPLETE

    def load_scalar(self, node: Node) -> Any:
        """Return a value: texts decoded, of a tensor what the table says."""
        if node.kind == "tensor":
            return node.note.to_dict()
        value = super().load_scalar(node)
        return decode_text(value, node.start) if node.kind == "text" and isinstance(value, bytes) else value


# -- Where the tensors of a GGUF file lie, by its table, and what contradicts ggml's rules there -----------------------

_MOST_BYTES: Final = 1 << 63


class GgufPlace:
    """What the table says of one tensor."""

    __slots__ = ("kind", "offset", "problem", "shape", "size")

    def __init__(self, kind: int, shape: tuple[int, ...], offset: int) -> None:
        self.kind = kind
        """Number of its type."""
        self.shape = shape
        """Its dimensions, outermost first."""
        self.offset = offset
        """Where it begins in the data."""
        self.size: int | None = None
        """Its bytes; None if they cannot be known."""
        self.problem: str | None = None
        """Why they cannot be known."""
        known, row = TYPES.get(kind), shape[-1] if shape else 1
        if known is None:
            self.problem = type_words(kind)
        elif row % known.block_size:
            self.problem = f"its rows of {row} elements are no whole blocks of {known.block_size}"
        else:
            count = prod(shape)
            size = count // known.block_size * known.block_bytes
            if max(size, count) + offset < _MOST_BYTES:
                self.size = size
            else:
                self.problem = f"no file has {count} elements at {offset}"

    def to_dict(self) -> dict[str, Any]:
        """Return what its node shows."""
        known = TYPES.get(self.kind)
        kind = known.name if known is not None else self.kind
        return {"shape": list(self.shape), "type": kind, "offset": self.offset, "size": self.size}


class GgufLayout:
    """The tensors in the order of the table: ggml wants them one after the other, each at the next aligned place."""

    __slots__ = ("alignment", "end", "first_hole", "first_unaligned", "holes", "overlaps", "unaligned", "unknown")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        """What offsets should be multiples of."""
        self.end = 0
        """Where the last tensor ends in the data."""
        self.overlaps = False
        """Whether a tensor begins before another one ends: they share bytes, or are out of order."""
        self.holes = self.unaligned = 0
        """How many tensors do not begin where the one before lets expect; how many not at an aligned place."""
        self.first_hole = self.first_unaligned = 0
        """The offsets of the first of them."""
        self.unknown = False
        """Whether a tensor came of which the size is not known."""

    def add(self, place: GgufPlace) -> None:
        """Add the next tensor."""
        if not place.size:
            self.unknown = self.unknown or place.size is None
            return
        offset = place.offset
        if offset % self.alignment:
            self.first_unaligned = self.first_unaligned if self.unaligned else offset
            self.unaligned += 1
        if offset < self.end:
            self.overlaps = True
        elif offset > self.end + -self.end % self.alignment and not self.unknown:
            self.first_hole = self.first_hole if self.holes else offset
            self.holes += 1
        self.unknown = False
        self.end = max(self.end, offset + place.size)

    def findings(self, start: int, source: str) -> Iterator[Finding]:
        """Yield what ggml would refuse, though it can be read; ``start`` is where the data begin."""
        for code, count, first, what in (
            ("unaligned", self.unaligned, self.first_unaligned, f"not at multiples of {self.alignment}"),
            ("gap", self.holes, self.first_hole, "not where the one before ends"),
        ):
            if count:
                reason = f"{count_words(count, 'tensor')} begin{'s' * (count == 1)} {what}"
                yield Finding(code, reason, severity=Severity.WARNING, source=source, offset=start + first)


# -- Names of the files of a split model, as llama.cpp writes them: ``name-00001-of-00003.gguf`` etc -------------------

_NAME: Final = lazy_pattern(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return what a name begins with, which part it is, from 1 on, and of how many; None if it is not one of a part."""
    found = _NAME.fullmatch(name.rpartition("/")[2].rpartition("\\")[2])
    if found is None or not 0 < int(found[2]) <= int(found[3]):
        return None
    return found[1], int(found[2]), int(found[3])


def part_names(name: str) -> list[str]:
    """Return the names of all parts of the model that the file ``name`` is one of; none if it is not named like one."""
    found = part_of(name)
    if found is None:
        return []
    stem, _, parts = found
    return [f"{stem}-{number:05}-of-{parts:05}.gguf" for number in range(1, parts + 1)]


# -- How much of a GGUF file each type of its tensors takes, as `pparse info` shows it ---------------------------------


def _element(node: Node) -> str:
    """Return what the elements of an array are called."""
    return node.note.field.kind if isinstance(node.note, NumberArray) else NAMES[node.note[0]]


def _words(sums: list[int]) -> str:
    tensors, elements, size = sums
    bits = f", {8 * size / elements:.2f} bits each" if elements else ""
    return f"{count_words(tensors, 'tensor')}, {count_words(elements, 'parameter')}, {format_size(size)}{bits}"
