"""Encoding of transposed chunks: records taken apart by field, and a state machine that puts them together again.

A record is taken apart if all of it is canonical protobuf wire data: shortest varints, field numbers above 0, lengths
that fit, balanced groups. The same holds for each length-delimited value that is not empty and is itself such data, up
to a depth of `MAX_DEPTH`. Everything else is kept whole, so every record decodes to the bytes it was made of.

The content of a record is a sequence of states: one per field, per begin and end of a submessage, and per begin of the
record. Decoding runs backwards, so the sequence and the values of each field are reversed at the end. A state that is
always followed by the same state leads to it implicitly. Of the others, those left often get their own list of
followers, the most frequent first; the rest share one list. Lists longer than a move can span become trees, with no-ops
as inner nodes.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from itertools import islice, repeat

from pparse.kernels.riegeli import is_canonical_message
from pparse.kernels.varint import encode_varint, encode_varints, read_varint
from pparse.kernels.wire import END_GROUP, FIXED32, FIXED64, LEN, START_GROUP, VARINT
from pparse.lazy import lazy_pattern
from pparse.riegeli.parts import NONE
from pparse.riegeli.transposed import (
    FIRST_FIELD,
    FIXED_WIDTH,
    INLINE,
    MAX_OFFSET,
    NO_OP,
    NON_PROTO,
    START_OF_MESSAGE,
    START_OF_SUBMESSAGE,
    SUBMESSAGE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final, TypeAlias

    from pparse.data.base import Buffer
    from pparse.riegeli.parts import PartCompressor

    # Number of the field << 4, `append` of its values, fields inside of it by tag.
    Field: TypeAlias = tuple[int, Callable[[bytes], None], "Fields"]
    Fields: TypeAlias = dict[int, Field]

MAX_DEPTH: Final = 100

# A step is the number of a field << 4 | what happens. Below `_NO_VALUE`, the field's buffer holds a value (for a varint
# the low bits are its length - 1, else 0); from there on it holds none (the low bits are a varint's value + 10, or one
# of these).
_NO_VALUE: Final = 10
_OPEN: Final = 10
_CLOSE: Final = 11
_INLINED: Final = 4  # varints below this are part of their state

_MESSAGE: Final = 0 << 4 | _OPEN
_NON_PROTO: Final = 1 << 4

# First bytes that cannot begin a message: field number 0, end of a group, invalid wire type.
_NO_MESSAGE: Final = frozenset(byte for byte in range(256) if byte < FIRST_FIELD or byte & 7 in (END_GROUP, 6, 7))

_FANOUT: Final = MAX_OFFSET + 1
# A follower reached at least this often from one state gets its own copy there.
_PRIVATE: Final = 10

_CLEAR: Final = bytes(byte & 0x7F for byte in range(256))
_MOVE: Final = lazy_pattern(rb"[\0-\x3f]\0{0,3}")
_MOVES: Final = {bytes((offset, *bytes(zeros))): offset << 2 | zeros for offset in range(64) for zeros in range(4)}

# The order of the buffers in a chunk.
_KINDS: Final = (VARINT, FIXED32, FIXED64, LEN)


def encode_transposed(
    records: Sequence[Buffer], compressor: PartCompressor, *, bucket_size: int | None = None
) -> bytes:
    """Return the data of a transposed chunk that holds ``records``, from the compression byte to the transitions.

    A bucket is closed before it would exceed ``bucket_size`` bytes (None: never), so that a reader of some fields need
    not decompress the others; uncompressed chunks ignore it. Takes some 100 bytes of memory per field value.
    """
    scanner = _RecordScanner()
    for record in records:
        scanner.add(record if isinstance(record, bytes) else bytes(record))
    buckets, lengths, buffers = _make_buckets(scanner, None if compressor.kind == NONE else bucket_size)
    machine = _EncoderMachine(scanner, buffers)
    parts = [compressor.part(bucket, pledged=True) for bucket in buckets]
    counts = encode_varints((len(parts), len(lengths), *map(len, parts), *lengths))
    head = compressor.part(counts + machine.header, pledged=True)
    transitions = compressor.part(machine.transitions)
    return b"".join((bytes((compressor.kind,)), encode_varint(len(head)), head, *parts, transitions))


class _RecordScanner:
    """Takes records apart: ``steps`` in order, and ``tags`` and ``values`` of each field, by its number."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.tags = [START_OF_MESSAGE, NON_PROTO]
        self.values: list[list[bytes]] = [[], []]
        self._root: Fields = {}

    def add(self, record: bytes) -> None:
        """Take ``record`` apart if it is canonical wire data, else keep it whole."""
        if is_canonical_message(record, 0, len(record)):
            self.steps.append(_MESSAGE)
            self._take_apart(record)
        else:
            self.steps.append(_NON_PROTO)
            self.values[_NON_PROTO >> 4].append(record)

    def _take_apart(self, data: bytes) -> None:  # noqa: C901 -- hot loop: a call an element costs a tenth and more
        """Add the steps of a message that is known to be canonical.

        Each length-delimited value is first checked as a message, without its inner values; so every byte is read at
        most twice.
        """
        step = self.steps.append
        fields = self._root
        around: list[tuple[int, Fields, Field]] = []  # the open submessages
        groups: list[Fields] = []
        pos = 0
        end = len(data)
        while True:
            while pos < end:
                tag = data[pos]
                pos += 1
                if tag > 0x7F:
                    tag, pos = read_varint(data, pos - 1, end)
                field = fields.get(tag) or self._new_field(fields, tag)
                wire = tag & 7
                if wire == VARINT:
                    value = data[pos]
                    if value < _INLINED:
                        step(field[0] | INLINE + value)
                        pos += 1
                        continue
                    stop = pos + 1
                    while value > 0x7F:
                        value = data[stop]
                        stop += 1
                    step(field[0] | stop - pos - 1)
                elif wire == LEN:
                    length, begin = data[pos], pos + 1
                    if length > 0x7F:
                        length, begin = read_varint(data, pos, end)
                    stop = begin + length
                    if (
                        length
                        and data[begin] not in _NO_MESSAGE
                        and len(around) + len(groups) < MAX_DEPTH
                        and is_canonical_message(data, begin, stop)
                    ):
                        step(field[0] | _OPEN)
                        around.append((end, fields, field))
                        fields, pos, end = field[2], begin, stop
                        continue
                    step(field[0])
                elif wire == START_GROUP:
                    step(field[0] | _OPEN)
                    groups.append(fields)
                    fields = field[2]
                    continue
                elif wire == END_GROUP:
                    step(field[0] | _CLOSE)
                    fields = groups.pop()
                    continue
                else:
                    stop = pos + FIXED_WIDTH[wire]
                    step(field[0])
                field[1](data[pos:stop])
                pos = stop
            if not around:
                return
            end, fields, field = around.pop()
            step(field[0] | _CLOSE)

    def _new_field(self, fields: Fields, tag: int) -> Field:
        """Add a field that was not seen before."""
        values: list[bytes] = []
        field: Field = (len(self.tags) << 4, values.append, {})
        self.tags.append(tag)
        self.values.append(values)
        fields[tag] = field
        if tag & 7 == START_GROUP:
            # The end of a group belongs to its field, and is inside of it.
            field[2][tag - START_GROUP + END_GROUP] = field
        return field


def _make_buckets(scanner: _RecordScanner, bucket_size: int | None) -> tuple[list[bytes], list[int], dict[int, int]]:
    """Return the buckets, the length of each buffer, and the buffer of each field. Consumes the scanner's values.

    Buffers of one kind stand together, small ones first; the lengths of non-proto records come last.
    """
    kinds: dict[int, list[tuple[int, int, bytes]]] = {kind: [] for kind in _KINDS}
    records_and_lengths: list[bytes] = []
    for number, values in enumerate(scanner.values):
        if not values:
            continue
        values.reverse()
        content = b"".join(values)
        kind = scanner.tags[number] & 7
        if number == _NON_PROTO >> 4:
            records_and_lengths = [content, encode_varints(map(len, values))]
        else:
            kinds[kind].append((len(content), number, content.translate(_CLEAR) if kind == VARINT else content))
        values.clear()
    buckets: list[bytes] = []
    lengths: list[int] = []
    places: dict[int, int] = {}
    for buffers in kinds.values():
        buffers.sort()
        for length, number, _ in buffers:
            places[number] = len(lengths)
            lengths.append(length)
        buckets += _fill([content for _, _, content in buffers], bucket_size)
    if records_and_lengths:
        places[_NON_PROTO >> 4] = len(lengths)
        lengths += map(len, records_and_lengths)
        buckets += records_and_lengths
    return buckets, lengths, places


def _fill(buffers: list[bytes], bucket_size: int | None) -> list[bytes]:
    """Join buffers, given in ascending order of size, into buckets; the largest buffers are placed first."""
    buckets: list[list[bytes]] = []
    size = 0
    for buffer in reversed(buffers):
        if not buckets or (bucket_size is not None and size + len(buffer) // 2 >= bucket_size):
            buckets.append([])
            size = 0
        buckets[-1].append(buffer)
        size += len(buffer)
    return [b"".join(reversed(bucket)) for bucket in reversed(buckets)]


class _EncoderMachine:
    """The states for a sequence of steps: ``header``, its part of the chunk header, and ``transitions``.

    Moves lead to lists of up to 64 states; longer ones become trees. An entry of a list is a step, or ~list for a no-op
    that leads on to that list.
    """

    def __init__(self, scanner: _RecordScanner, buffers: dict[int, int]) -> None:
        steps = scanner.steps
        steps.reverse()
        self._tags = scanner.tags
        self._buffers = buffers
        self._lists: list[list[int]] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._followers: dict[int, dict[int, int]] = {step: {} for step in dict.fromkeys(steps)}
        for (step, following), count in Counter(zip(steps, islice(steps, 1, None))).items():  # noqa: B905
            self._followers[step][following] = count
        # The last step must ask for a move, and so find the end of the transitions.
        explicit = [step for step, after in self._followers.items() if len(after) > 1 or step == steps[-1]]
        roots, routes = self._route(explicit)
        pairs = zip(steps, islice(steps, 1, None))  # noqa: B905
        offsets = b"".join(map(routes.get, pairs, repeat(b"")))
        self.transitions = bytes(map(_MOVES.__getitem__, _MOVE.findall(offsets)))
        self.header = self._header(roots, steps)

    def _add_list(self, weights: dict[int, int]) -> int:
        """Make a tree of these entries that minimizes the sum of weight × moves; return its root.

        It is a Huffman tree with 64 branches per node; only the first, lowest list may have fewer.
        """
        heap = [(weight, order, entry) for order, (entry, weight) in enumerate(weights.items())]
        heapify(heap)
        order = len(heap)
        take = (order - 2) % (_FANOUT - 1) + 2 if order > 1 else order
        while len(heap) > take:
            # Popped in ascending order; the last are the most frequent.
            smallest = [heappop(heap) for _ in range(take)]
            order += 1
            heappush(heap, (sum(weight for weight, _, _ in smallest), order, ~self._list(smallest)))
            take = _FANOUT
        return self._list(sorted(heap))

    def _list(self, ascending: list[tuple[int, int, int]]) -> int:
        entries = [entry for _, _, entry in reversed(ascending)]
        key = tuple(entries)
        if key not in self._known:
            self._known[key] = len(self._lists)
            self._lists.append(entries)
        return self._known[key]

    def _paths(self, root: int, leaf: int | None = None) -> dict[int, bytes]:
        """Return the offsets from ``root`` to each step below it, and to the list ``leaf``, which is not entered."""
        found: dict[int, bytes] = {}
        todo = [(root, b"")]
        while todo:
            number, path = todo.pop()
            for offset, entry in enumerate(self._lists[number]):
                if entry >= 0 or entry == leaf:
                    found[entry] = path + bytes((offset,))
                else:
                    todo.append((~entry, path + bytes((offset,))))
        return found

    def _route(self, explicit: list[int]) -> tuple[dict[int, int], dict[tuple[int, int], bytes]]:
        """Make the lists; return the list that each explicit step leads to, and the offsets from step to step."""
        followers = self._followers
        public: Counter[int] = Counter()
        private: dict[int, dict[int, int]] = {}
        for step in explicit:
            private[step] = {after: count for after, count in followers[step].items() if count >= _PRIVATE}
            public.update({after: count for after, count in followers[step].items() if count < _PRIVATE})
        shared = self._add_list(public)
        shared_paths = self._paths(shared)
        roots: dict[int, int] = {}
        routes: dict[tuple[int, int], bytes] = {}
        for step in explicit:
            weights = private[step]
            others = [after for after in followers[step] if after not in weights]
            detour = b""
            if not weights:
                roots[step] = shared
            else:
                if others:
                    weights[~shared] = sum(followers[step][after] for after in others)
                roots[step] = self._add_list(weights)
                paths = self._paths(roots[step], ~shared)
                detour = paths.pop(~shared, b"")
                routes.update(((step, after), path) for after, path in paths.items())
            routes.update(((step, after), detour + shared_paths[after]) for after in others)
        return roots, routes

    def _header(self, roots: dict[int, int], steps: list[int]) -> bytes:
        starts: list[int] = []
        slots: list[int] = []
        for entries in self._lists:
            starts.append(len(slots))
            slots += entries
        places = {step: place for place, step in enumerate(slots)}
        for step in self._followers:
            # States that are only reached implicitly, and maybe the first.
            if step not in places:
                places[step] = len(slots)
                slots.append(step)
        if not slots:
            return bytes((1, NO_OP, 0, 0))
        tags, following, subtypes, buffers = [], [], bytearray(), []
        for slot in slots:
            if slot < 0:
                tags.append(NO_OP)
                following.append(starts[~slot])
                continue
            number, what = slot >> 4, slot & 15
            tag = self._tag(self._tags[number], what)
            tags.append(tag)
            if tag >= FIRST_FIELD and tag & 7 == VARINT:
                subtypes.append(what)
            if what < _NO_VALUE:
                buffers.append(self._buffers[number])
            if slot in roots:
                following.append(starts[roots[slot]])
            else:
                following.append(len(slots) + places[next(iter(self._followers[slot]))])
        numbers = [encode_varints(column) for column in ((len(slots),), tags, following)]
        return b"".join((*numbers, subtypes, encode_varints(buffers), encode_varint(places[steps[0]])))

    @staticmethod
    def _tag(tag: int, what: int) -> int:
        """Return the tag of the state for what happens to a field with that ``tag``."""
        wire = tag & 7
        if tag < FIRST_FIELD or wire == VARINT or what < _NO_VALUE:
            return tag
        if wire == LEN:
            return START_OF_SUBMESSAGE if what == _OPEN else tag + SUBMESSAGE
        return tag if what == _OPEN else tag - START_GROUP + END_GROUP
