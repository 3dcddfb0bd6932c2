"""The header of a safetensors file: its entries, parsed and checked, and a text as all writers write it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from codecs import utf_8_decode
from itertools import chain, count, islice, repeat
from math import prod
from operator import attrgetter

from pparse.errors import GapError, LimitError
from pparse.findings import Severity
from pparse.lazy import lazy_pattern
from pparse.tensors.dtype import DTYPES, SHORT
from pparse.tensors.status import TensorRanges
from pparse.tree.index import EACH, MAKING, SLICE, KeyTable, SeenKeys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.tensors.dtype import DType
    from pparse.tree.result import Result

    Kind = tuple[DType | None, tuple[int, ...], str, object]
    from collections.abc import Iterator

    from pparse.tree.host import Host

METADATA: Final = "__metadata__"
# The reference reader refuses longer headers (tensor.rs, MAX_HEADER_SIZE).
REFERENCE_HEADER_LIMIT: Final = 100_000_000

# What may stand between the parts of a JSON text (RFC 8259, section 2).
BLANKS: Final = b" \t\n\r"

# Fields of an entry, in the order in which the reference reader also accepts them from a JSON array (serde does so).
FIELDS: Final = ("dtype", "shape", "data_offsets")
_U64: Final = 1 << 64

# All 22 dtype words of the format (tensor.rs, enum Dtype).
STORED_DTYPES: Final[dict[str, DType]] = {
    word: DTYPES[SHORT[word]]
    for word in (
        *("BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ"),
        *("F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"),
    )
}

_WORDS: Final = {dtype.name: word for word, dtype in STORED_DTYPES.items()}


def word_of(dtype: DType) -> str | None:
    """Return what safetensors calls a type; None if it has none, or stores it in fewer bits than these."""
    word = _WORDS.get(dtype.name)
    return word if word is not None and STORED_DTYPES[word].bits == dtype.bits else None


# A member of the header: tells its level from others if brackets are damaged.
_TEXT: Final = r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_BLANKS: Final = r"[ \t\n\r]*+"
MEMBER: Final = lazy_pattern(
    (
        rf'{_BLANKS}{_TEXT}{_BLANKS}:{_BLANKS}\{{(?:{_BLANKS}"(?:dtype|shape|data_offsets)"{_BLANKS}:{_BLANKS}'
        rf"(?:{_TEXT}|\[[0-9, \t\n\r]*+\]){_BLANKS},?){{3}}\}}"
    ).encode()
)


class HeaderEntry:
    """One entry of the header: a faultless one, as nearly all are; `CheckedEntry` is any other."""

    __slots__ = ("begin", "end", "kind")

    problem: str | None = None
    """What is wrong with the entry, in words; None: nothing."""
    unsupported = False
    """Whether the problem is a limit of ours or of numpy, rather than a fault of the file."""
    is_scalar = False
    """Whether a lone value stands where the entry should be."""
    wanted: int | None = None
    """Number that the problem is about: what was needed …"""
    got: int | None = None
    """… and what was found."""

    def __init__(self, kind: Kind, begin: int, end: int) -> None:
        self.kind = kind
        """Element type, None if it is unknown; length of each dimension; the word for the type in the header; what
        those of one type and shape have in common. If there is a problem, they may be incomplete."""
        self.begin = begin
        """Where its bytes begin, from the start of the data section."""
        self.end = end
        """Where its bytes end."""

    @property
    def is_placed(self) -> bool:
        """Whether it says where its bytes are."""
        return self.problem is None or self.begin != self.end

    @property
    def severity(self) -> Severity:
        """Severity of the problem; more dimensions than an array can have are not a fault of the file."""
        return Severity.WARNING if self.unsupported and self.kind[0] is not None else Severity.ERROR

    def with_problem(self, problem: str) -> HeaderEntry:
        """Return the same entry with a problem."""
        info = CheckedEntry.__new__(CheckedEntry)
        HeaderEntry.__init__(info, self.kind, self.begin, self.end)
        info.problem = problem
        return info


class CheckedEntry(HeaderEntry):
    """An entry that took all checks, and may have a problem."""

    def __init__(self, fields: object) -> None:
        super().__init__((None, (), "?", None), 0, 0)
        self.is_scalar = isinstance(fields, str | int | float | None)
        if isinstance(fields, list) and len(fields) == len(FIELDS):
            fields = dict(zip(FIELDS, fields, strict=True))
        if not isinstance(fields, dict):
            self.problem = "the header entry is not an object"
            return
        self.problem = self._read_offsets(fields.get("data_offsets"))
        dtype, word, odd_type = self._read_type(fields.get("dtype"))
        shape, odd_shape = self._read_shape(fields.get("shape"))
        self.kind, self.problem = (dtype, shape, word, (word, shape)), self.problem or odd_type or odd_shape
        if self.problem is None:
            self._check_size(dtype, shape, word)

    def _read_type(self, word: object) -> tuple[DType | None, str, str | None]:
        """Return the type, the word for it, and what is wrong with that."""
        if isinstance(word, dict) and list(word.values()) == [None]:
            (word,) = word  # serde also accepts ``{"U8": null}``
        if not isinstance(word, str):
            return None, "?", "the entry has no dtype" if word is None else "the dtype is not a string"
        dtype = STORED_DTYPES.get(word)
        self.unsupported = dtype is None
        return dtype, word, None if dtype is not None else f"the dtype {word[:40]!r} is not a safetensors dtype"

    def _read_shape(self, shape: object) -> tuple[tuple[int, ...], str | None]:
        """Return the lengths, and what is wrong with them."""
        if not isinstance(shape, list):
            return (), "the entry has no shape" if shape is None else "the shape is not a list"
        if not all(type(length) is int and 0 <= length < _U64 for length in shape):
            return (), "a value in the shape is not a length"
        return tuple(shape), None

    def _read_offsets(self, offsets: object) -> str | None:
        """Take the offsets; return what is wrong with them."""
        if offsets is None:
            return "the entry has no data_offsets"
        if not isinstance(offsets, list) or len(offsets) != 2:
            return "data_offsets is not a pair"
        if not all(type(offset) is int and 0 <= offset < _U64 for offset in offsets):
            return "a value in data_offsets is not an offset"
        if offsets[0] > offsets[1]:
            return "data_offsets end before they begin"
        self.begin, self.end = offsets
        return None

    def _check_size(self, dtype: DType | None, shape: tuple[int, ...], word: str) -> None:
        count = 1
        for length in shape:
            count *= length
            if count >= _U64:
                break
        # As the reference multiplies: an overflow counts even if a later factor is 0.
        bits = count * dtype.bits if dtype is not None else 0
        if bits >= _U64:
            self.problem = "the number of elements overflows 64 bits"
        elif bits % 8:
            self.problem = f"{count} elements of {word} do not fill whole bytes"
        elif bits // 8 != self.end - self.begin:
            self.problem = "dtype and shape need a different number of bytes than data_offsets span"
            self.wanted, self.got = bits // 8, self.end - self.begin
        elif not bits and prod(length for length in shape if length) >= 1 << 60:
            self.unsupported = True
            self.problem = "the shape is too large for an array, even for one without elements"
        elif len(shape) > 64:
            self.unsupported = True
            self.problem = f"an array cannot have {len(shape)} dimensions"
            self.wanted, self.got = len(shape), 64


def checked(fields: Any) -> HeaderEntry:
    """Return an entry from its decoded fields: a `HeaderEntry` if it is faultless and has elements."""
    try:
        begin, end = fields["data_offsets"]
        shape, word = fields["shape"], fields["dtype"]
        dtype = STORED_DTYPES[word]
    except (KeyError, TypeError, ValueError):
        return CheckedEntry(fields)
    if type(begin) is not int or type(end) is not int or type(shape) is not list or not 0 <= begin <= end:
        return CheckedEntry(fields)
    count = 1
    for length in shape:
        if type(length) is not int or length <= 0:
            return CheckedEntry(fields)
        count *= length
    if count * dtype.bits != (end - begin) * 8 or end >= 1 << 60 or len(shape) > 64:
        return CheckedEntry(fields)
    shape = tuple(shape)
    return HeaderEntry((dtype, shape, word, (word, shape)), begin, end)


def is_metadata(fields: object) -> bool:
    """Return whether the reference reader accepts this value of ``__metadata__``."""
    return fields is None or (isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values()))


def info_of(header: Result, ordinal: int, fields: object) -> HeaderEntry:
    """Return entry ``ordinal`` of ``header``, checked; repeated fields are a problem, as either may be meant."""
    info = checked(fields)
    if type(fields) is not dict or len(fields) <= len(FIELDS):
        return info
    for field in FIELDS:
        # The decoder renames the second one so; but a field may really have that name.
        if f"{field}#2" in fields and header.find(header.root.child(ordinal), field, 2) is not None:
            info = info.with_problem(f"the entry has more than one {field}")
    return info


# -- The text of a header, written as all writers write it, and gone through once from its first byte to its last ------

# Nearly every header is such a text: an object of entries with ``dtype``, ``shape`` and ``data_offsets`` in this order,
# between them at most single spaces, names without escapes, no name twice, perhaps ``__metadata__``. States::
#
#     READING    blocks of entries are read, one behind the other; each is compared with all before it
#     COMPLETE   the text was read to its end: it is sound JSON, and every entry is understood
#     STOPPED    what follows is something else, or cut, or a name came before: `pparse.parsers.safetensors.parser` asks
#                the JSON parser, which knows every text and mends damaged ones
#
# Of a block only its place is kept, and its rows while there is room; they are read from the text again when needed.

# Up to this length, a header is read in full before any tensor is listed.
SMALL: Final = 256 << 10
_FIRST_BLOCK: Final = 16 << 10
_BLOCK: Final = 64 << 10
# The longest entry that is read here: ``__metadata__`` may be long.
_MOST: Final = 1 << 20
# Of a header up to this length, rows are held once they were read.
HELD_TEXT: Final = 4 << 20
_ROW: Final = 320
_MOST_ROWS: Final = 12 << 20
# So many look-ups go through all hashes: that takes less time than to make a table.
_WITHOUT_TABLE: Final = 8
# Memory of a name in the table of a text whose rows are held.
_NAME: Final = 200
# What types with shapes mean, by their text: number of bytes, and kind. All models have few, and one often has those of
# another; it is cleared when there are more.
_KINDS: Final[dict[str, tuple[int, Any]]] = {}
_MOST_KINDS: Final = 1024
_NO_ENTRY: Final = (0, None)

_NUMBER: Final = r"(0|[1-9][0-9]{0,17}+)"
_NEXT: Final = r"(?:, ?+|(?=\}))"  # spaces are never given back: what keeps them to give takes a fifth of the time
# With name, type and shape, begin, end; whether the shape is a list of numbers is seen once for each kind.
_ENTRY: Final = lazy_pattern(
    rf'"(?!{METADATA}")([^"\\\x00-\x1f]*+)": ?+\{{("dtype": ?+"[A-Z0-9_]++", ?+"shape": ?+\[[0-9, ]*+\]), ?+'
    rf'"data_offsets": ?+\[{_NUMBER}, ?+{_NUMBER}\]\}}{_NEXT}'
)
_QUOTED: Final = f'"{METADATA}"'
_METADATA: Final = lazy_pattern(rf'"{METADATA}": ?+(null|\{{(?:{_TEXT}: ?+{_TEXT}(?:, ?+)?+)*+\}}){_NEXT}')


class State:
    """How far the text was read; see above."""

    READING = "reading"
    COMPLETE = "complete"
    STOPPED = "stopped"


class _Entries:
    """Names and entries, both in the same order; None for ``__metadata__``."""

    __slots__ = ("infos", "is_tiled", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.infos: list[HeaderEntry | None] = []
        self.is_tiled = True
        """Whether all are sound tensors, each of which begins where the one before ends."""


class _EntryRun:
    """A stretch of entries: ``count`` from number ``first`` on, in the bytes ``[begin, end)``."""

    __slots__ = ("begin", "count", "end", "first", "rows")

    def __init__(self, first: int, begin: int, end: int, count: int) -> None:
        self.first = first
        self.count = count
        self.begin = begin
        self.end = end
        self.rows: _Entries | None = None


_first_of: Final = attrgetter("first")


class PlainText:
    """The entries of a header with its text in ``[start, end)``, as far as it is written as all writers do."""

    def __init__(self, host: Host, start: int, end: int) -> None:
        self._host = host
        self._start, self._end = start, end
        self._pos = start
        self._is_small = end - start <= HELD_TEXT
        budget = host.session.budget
        self.state: str = State.READING
        """How far the text was read."""
        self.count = 0
        """Number of entries read, ``__metadata__`` among them."""
        self.metadata_at: list[int] = []
        """The number of the entry ``__metadata__``, if there is one."""
        self.behind = b""
        """The byte behind the text, if that is `State.COMPLETE` and there is one."""
        self.places = TensorRanges(budget)
        """Where the tensors lie."""
        self._seen = SeenKeys(budget)
        self._blocks: list[_EntryRun] = []
        self._charge = budget.charge(0, "entries of the header", self._drop)
        self._hashes: array[int] | None = None
        self._names: dict[str, tuple[int, HeaderEntry | None]] | KeyTable | None = None
        self._looked_at: tuple[_EntryRun, list[Any]] | None = None  # a block, and its entries in the text
        self._sought = 0  # how many names were looked for without a table of them
        self._names_charge = budget.charge(0, "a table of names", self._drop_names)

    def rows(self, first: int = 0) -> Iterator[tuple[int, str, HeaderEntry, None]]:
        """Yield ``(number, name, entry, None)`` of each tensor from entry ``first`` on, and read on as needed.

        Ends at the end, or where the text is `State.STOPPED`; what came before that is right.
        """
        return chain.from_iterable(self._blocks_from(first))

    def _blocks_from(self, first: int) -> Iterator[Iterator[Any]]:
        """Yield what `rows` does, by blocks."""
        at = self._block_of(first)
        while True:
            if at == len(self._blocks):
                if self.state is not State.READING:
                    return
                self.read_on()
                continue
            block = self._blocks[at]
            yield self._tensors_of(block, first)  # not held here while the next block is read
            if block.rows is not None and not self._is_small:
                block.rows = None
                self._charge.resize(max(0, self._charge.amount - _ROW * block.count))
            at += 1

    def _tensors_of(self, block: _EntryRun, first: int) -> Iterator[Any]:
        """Return what `rows` yields of a block."""
        rows = self._rows_of(block)
        found = zip(count(block.first), rows.names, rows.infos, repeat(None))
        if first <= block.first and rows.is_tiled:
            return found
        return (row for row in found if row[2] is not None and row[0] >= first)

    def row(self, number: int) -> tuple[str, HeaderEntry | None]:
        """Return name and entry ``number``, which was read before; no entry for ``__metadata__``."""
        block = self._blocks[self._block_of(number)]
        rows = self._rows_of(block)
        return rows.names[number - block.first], rows.infos[number - block.first]

    def places_in_text(self, number: int) -> tuple[tuple[int, int], ...]:
        """Return begin and end of type, shape and offsets of tensor ``number``, which was read before, in the data."""
        block = self._blocks[self._block_of(number)]
        if self._looked_at is None or self._looked_at[0] is not block:
            found: list[Any] = list(_ENTRY.finditer(self._text_of(block)))
            for metadata in self.metadata_at:
                if block.first <= metadata < block.first + block.count:
                    found.insert(metadata - block.first, None)
            self._looked_at = block, found
        entry = self._looked_at[1][number - block.first]
        text, kind, start = entry.string, entry[2], entry.start(2)
        word = kind.index('"', len('"dtype"'))
        places = (word, kind.index('"', word + 1) + 1), (kind.index("["), len(kind))
        before = block.begin + (start if text.isascii() else len(text[:start].encode()))
        offsets = before - start + text.rindex("[", 0, entry.start(3))
        return *((before + low, before + high) for low, high in places), (offsets, before - start + entry.end(4) + 1)

    def _names_and_infos(self) -> Iterator[tuple[str, HeaderEntry | None]]:
        """Yield name and entry of all that were read, ``__metadata__`` among them."""
        for block in self._blocks:
            rows = self._rows_of(block)
            yield from zip(rows.names, rows.infos, strict=True)

    def _block_of(self, number: int) -> int:
        return max(0, bisect_right(self._blocks, number, key=_first_of) - 1)

    def keep_hashes(self) -> None:
        """Keep the hashes of names, 8 bytes each, of a long text that was not read yet: a name will be looked for."""
        if not self._blocks and not self._is_small:
            self._hashes = array("q")

    def find(self, name: str) -> tuple[int, HeaderEntry | None]:
        """Return number and entry with that name in a text that is `State.COMPLETE`; no entry if there is none."""
        known, hashes = self._names, self._hashes
        if hashes is not None and self._sought < _WITHOUT_TABLE:
            self._sought += 1
            wanted = hash(name)
            if wanted not in hashes:
                return _NO_ENTRY
            number = hashes.index(wanted)
            found, info = self.row(number)
            if found == name:
                return number, info
        if known is None:
            try:
                known = self._make_names()
            except LimitError:
                every = enumerate(self._names_and_infos())
                return next(((number, info) for number, (other, info) in every if other == name), _NO_ENTRY)
        if not isinstance(known, KeyTable):
            return known.get(name, _NO_ENTRY)
        for number in known.candidates(name):
            found, info = self.row(number)
            if found == name:
                return number, info
        return _NO_ENTRY

    def _make_names(self) -> dict[str, tuple[int, HeaderEntry | None]] | KeyTable:
        """Make the table of names. Raises `LimitError` if there is no room."""
        if self._is_small:
            self._names_charge.resize(_NAME * self.count)
            known: dict[str, tuple[int, HeaderEntry | None]] = {}
            for block in self._blocks:
                rows = self._rows_of(block)
                known.update(zip(rows.names, zip(count(block.first), rows.infos), strict=False))
            self._names = known
            return known
        budget = self._host.session.budget
        with budget.charge(EACH * self.count + MAKING * min(SLICE, self.count), "building a table of names"):
            table = KeyTable(self._hashes or (hash(name) for name, _ in self._names_and_infos()))
        self._names_charge.resize(table.memory)
        self._names, self._hashes = table, None
        return table

    def _drop_names(self) -> None:
        # Called from any thread, with the lock of the budget held.
        self._names = self._hashes = None

    def has_more_than(self, count: int) -> bool:
        """Return whether there are more than ``count`` entries, as far as the first 4 MiB tell."""
        while self.state is State.READING and self.count <= count and self._pos - self._start < HELD_TEXT:
            self.read_on()
        return self.count > count

    def read_all(self) -> bool:
        """Read to the end; return whether the text is complete."""
        while self.state is State.READING:
            self.read_on(hold=self._is_small)
        return self.state is State.COMPLETE

    def read_on(self, *, hold: bool = True) -> None:
        """Read one more block, if it is there, and ``hold`` its rows, if there is room."""
        host, size = self._host, _BLOCK if self._blocks else _FIRST_BLOCK
        host.session.check_cancelled()
        host.data.check_unchanged()
        while True:
            try:
                block = self._read(self._pos, size)
                text = utf_8_decode(block, "strict", False)[0]
            except (GapError, UnicodeDecodeError):
                return self._stop()
            begin = self._begin_of(text, self._pos)
            if self._pos == self._start and text[:1] != "{":
                return self._stop()
            rows, at = self._parse(text, begin)
            if rows.names or text[at : at + 1] == "}":
                break
            if len(block) < size or size >= _MOST:
                return self._stop()
            size *= 4
        ends = text[at : at + 1] == "}" and (text[at - 1 : at] == "}" if rows.names else not self.count)
        if rows.names and not self._take(rows):
            return self._stop()
        length = at if block.isascii() else len(text[:at].encode())
        behind = self._pos + length
        if rows.names:
            self._blocks.append(_EntryRun(self.count, self._pos, behind, len(rows.names)))
            if hold:
                self._hold(self._blocks[-1], rows)
            self.count += len(rows.names)
            self._pos = behind
        if ends:
            self._finish(behind + 1, block[length + 1 :])
        elif not rows.names or text[at : at + 1] == "}":
            self._stop()
        return None

    def _begin_of(self, text: str, pos: int) -> int:
        """Return where the first entry begins in a block: behind the bracket, or the space behind a comma."""
        return int(pos == self._start or text[:1] == " ")

    def _read(self, pos: int, size: int) -> bytes:
        """Return at most ``size`` bytes of the text from ``pos`` on; with the last ones, note the byte behind them."""
        wanted = min(size, self._end - pos)
        is_last = pos + wanted == self._end
        host, count = self._host, wanted + is_last
        block = host.front.held(pos, count) or host.data.pread(pos, count)
        if not is_last:
            return block
        self.behind = block[wanted:]
        return block[:wanted]

    def _parse(self, text: str, at: int) -> tuple[_Entries, int]:
        """Return the entries in ``text`` from ``at`` on, and where the last one ends, with the comma behind it."""
        rows, begun = _Entries(), -1
        while at != begun:
            metadata = _METADATA.match(text, at) if text.startswith(_QUOTED, at) else None
            if metadata is not None and self._is_sound(metadata[1]):
                rows.names.append(METADATA)
                rows.infos.append(None)
                rows.is_tiled = False
                at = metadata.end()
            begun, at = at, self._add_entries(rows, text, at)
            if text.startswith("}", at):
                break
        return rows, at

    def _add_entries(self, rows: _Entries, text: str, at: int) -> int:
        """Add to ``rows`` the entries that follow each other from ``at`` on; return where the last one ends."""
        parts: list[str] = _ENTRY.split(text[at:])
        between = parts[:-1:5]
        count = next(number for number, other in enumerate(between) if other) if any(between) else len(between)
        firsts, lasts = parts[3 : 5 * count : 5], parts[4 : 5 * count : 5]
        ends = list(map(int, lasts))
        is_tiled = firsts[1:] == lasts[:-1]
        begins = [*map(int, firsts[:1]), *ends[:-1]] if is_tiled else list(map(int, firsts))
        rows.is_tiled &= is_tiled
        known_kind, add, added = _KINDS.get, rows.infos.append, len(rows.infos)
        for kind, begin, end in zip(parts[2 : 5 * count : 5], begins, ends, strict=True):
            known = known_kind(kind)
            if known is not None and end - begin == known[0]:
                add(HeaderEntry(known[1], begin, end))
                continue
            info = self._check(kind, begin, end)
            if info is None:
                break
            rows.is_tiled &= type(info) is HeaderEntry
            add(info)
        added = len(rows.infos) - added
        rows.names += parts[1 : 5 * added : 5]
        if added == len(between):
            return len(text) - len(parts[-1])
        for entry in islice(_ENTRY.finditer(text, at), added):  # something else stands behind them
            at = entry.end()
        return at

    def _check(self, kind: str, begin: int, end: int) -> HeaderEntry | None:
        """Return an entry whose type and shape are new, or need another number of bytes than it has; None if the text
        of these is wrong."""
        word, shape = kind.split('"')[3], kind[kind.index("[") + 1 : -1]
        try:
            lengths = [int(length) for length in shape.split(",")] if shape else []
        except ValueError:
            return None
        if ",".join(map(str, lengths)) != shape.replace(", ", ","):
            return None
        info = checked({"dtype": word, "shape": lengths, "data_offsets": [begin, end]})
        if type(info) is HeaderEntry:
            if len(_KINDS) >= _MOST_KINDS:
                _KINDS.clear()
            _KINDS[kind] = end - begin, info.kind
        return info

    def _is_sound(self, metadata: str) -> bool:
        """Return whether a value of ``__metadata__`` is a sound map of texts in which no key occurs twice."""
        from json import loads

        try:
            pairs = loads(metadata, object_pairs_hook=list) or []
            "".join(map("".join, pairs)).encode()  # half of a surrogate pair is no text
        except ValueError:
            return False
        return len(dict(pairs)) == len(pairs)

    def _take(self, rows: _Entries) -> bool:
        """Compare new entries with all before them; return False if a name came before, or if they are too many."""
        count, hashes = self.count + len(rows.names), list(map(hash, rows.names))
        if count > self._host.session.limits.entries or not self._seen.are_new(hashes):
            return False
        if self._hashes is not None:
            self._keep(self._hashes, hashes)
        try:
            self._place(rows)
        except LimitError:  # without the names, there may be room
            return False
        return True

    def _place(self, rows: _Entries) -> None:
        places, infos = self.places, rows.infos
        first, last = infos[0], infos[-1]
        if first and last and rows.is_tiled and places.is_in_order and first.begin == places.end:
            places.end = last.end
            return
        for number, info in enumerate(infos, self.count):
            if type(info) is HeaderEntry and info.begin == places.end and places.is_in_order:
                places.end = info.end
            elif info is None:
                self.metadata_at.append(number)
            elif info.is_placed:
                places.add(info.begin, info.end)
            else:
                places.known = False

    def _keep(self, kept: array[int], hashes: list[int]) -> None:
        try:
            self._names_charge.resize(9 * (len(kept) + len(hashes)))  # an array grows by an eighth
            kept.extend(hashes)
        except LimitError:
            self._hashes = None

    def _finish(self, pos: int, block: bytes) -> None:
        """Look at what follows the last bracket, ``block`` and what is behind it: only blanks may."""
        while not block.strip(BLANKS):
            pos += len(block)
            if pos >= self._end:
                self._close(State.COMPLETE)
                self.places.close()
                return
            try:
                block = self._read(pos, _BLOCK)
            except GapError:
                break
            if not block:
                break
        self._stop()

    def _stop(self) -> None:
        self._close(State.STOPPED)
        self.places = TensorRanges(self._host.session.budget)  # gives the memory back

    def _close(self, state: str) -> None:
        self.state = state
        self._seen.release()

    def _rows_of(self, block: _EntryRun) -> _Entries:
        """Return the rows of a block, which may have to be read again."""
        rows = block.rows
        if rows is None:
            text = self._text_of(block)
            rows = self._parse(text, self._begin_of(text, block.begin))[0]
            self._hold(block, rows)
        return rows

    def _text_of(self, block: _EntryRun) -> str:
        """Return the text of a block; the bracket behind it shows where the last entry ends, if no comma does."""
        return self._host.data.read_exact(block.begin, block.end - block.begin).decode() + "}"

    def _hold(self, block: _EntryRun, rows: _Entries) -> None:
        """Keep the rows of a block, if there is room."""
        if self._charge.amount > min(_MOST_ROWS, self._host.session.budget.limit // 4):
            self._drop()
            self._charge.resize(0)
        try:
            self._charge.resize(self._charge.amount + _ROW * block.count)
        except LimitError:
            return
        block.rows = rows

    def _drop(self) -> None:
        # Called from any thread, with the lock of the budget held.
        for block in self._blocks:
            block.rows = None
