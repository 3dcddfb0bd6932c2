"""Splitters for messages of any type, by size alone, into chunks that TensorFlow's Merger can merge.

What can become a chunk, by the rules of that Merger (tensorflow/tools/proto_splitter/merge.cc):

==========================================  ===========================================================================
part of a message M                         chunk
==========================================  ===========================================================================
bytes or string field                       its bytes, at the field
message field                               the message, at the field; split further if it is too large
large element of a repeated message field   the element, at field and index; an empty one stays in its place
other elements                              a message of M's type that has the next elements, at M: merging appends them
large value of a map of messages            the value, at field and key
other entries, maps of scalars              a message of M's type that has these entries, at M
repeated scalars                            a message of M's type that has the next values, at M
extensions, groups                          a message of M's type that has the extension or group, at M
required fields, single numbers             none: they stay
==========================================  ===========================================================================

Not used, since that Merger cannot read them: indices of repeated scalars, keys of maps of scalars, keys above 31 bits,
groups and everything inside them. Pieces below a map key that must be merged in order form a nested tree, which is the
only way to keep their order.

`SizeSplitter` first takes out the largest values, wherever they are, and no more than needed. A message that is still
too large gives up its largest fields.

`RepeatedMessageSplitter` splits one repeated message field, as TensorFlow's splitter does: elements first, by other
splitters (`LargeMessageSplitter`). An element that is still large becomes a chunk at its index, and an empty one stays
in its place. If the list is still too long, the first elements stay, and the others move into slices: messages of the
parent's type, merged into the parent. Indices are those of the whole list, since slices are merged before chunks
addressed by index. Unlike in TensorFlow, tags and lengths count as well.
"""

from __future__ import annotations

import heapq
from collections import namedtuple
from itertools import pairwise

from pparse.errors import SplitError
from pparse.proto_splitter import sizes as measure
from pparse.proto_splitter.fields import (
    KEY_KINDS,
    get_field,
    has_required,
    is_map,
    is_repeated,
    is_required,
    map_key,
    map_value,
    walk,
)
from pparse.proto_splitter.split import ComposableSplitter
from pparse.protobuf.schema import TYPE_BYTES, TYPE_GROUP, TYPE_STRING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any, Final

    from pparse.proto_splitter.fields import FieldStep

    Tag = tuple[FieldStep, ...]

_TEXT: Final = (TYPE_STRING, TYPE_BYTES)
# int64 and uint64: the Merger cuts such keys to 32 bits.
_WIDE_KEYS: Final = (3, 4)
_MAX_KEY: Final = (1 << 31) - 1
# The default depth limit of protobuf's parsers.
MAX_DEPTH: Final = 100


class ElementSplitter(ComposableSplitter):
    """Base class of splitters for one message, mostly an element of a list. One is made for each large element.

    ``proto_size`` is the size of ``proto`` in bytes, measured if not given. `build_chunks` returns how many bytes were
    moved into chunks.
    """

    def __init__(self, proto: Any, proto_size: int | None = None, **kwargs: Any) -> None:
        super().__init__(proto, **kwargs)
        self._given_size = proto_size

    @property
    def proto_size(self) -> int:
        """The size of the element before it was split."""
        if self._given_size is None:
            self._given_size = measure.message_size(self._proto)
        return self._given_size

    @classmethod
    def threshold(cls, limit: int) -> int:
        """Return the size up to which an element is left unchanged, so that no splitter is needed."""
        return limit // 3

    def reduce(self, room: int, **kwargs: Any) -> int:
        """Split the current element by size alone until ``room`` bytes are left; return how many bytes were moved."""
        return SizeSplitter(self._proto, room=room, parent_splitter=self, **kwargs).build_chunks()


class SizeSplitter(ElementSplitter):
    """Splits ``proto``, a message of any type, until ``room`` bytes are left (default: `max_size`).

    ``keep`` names fields of ``proto`` that stay unchanged. As a child, this replaces a splitter for one element:
    ``proto_size`` is its size in bytes, if known. Other arguments are those of `ComposableSplitter`.
    """

    def __init__(
        self,
        proto: Any,
        proto_size: int | None = None,
        *,
        room: int | None = None,
        keep: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(proto, proto_size, **kwargs)
        self._room = room
        self._keep = frozenset(keep)
        # Tags of values taken out of elements or entries below a map key, and all prefixes of these tags. The prefixes
        # have to exist first: an index counts elements, and a merged entry replaces the value of its key.
        self._indexed: set[Tag] = set()
        self._work: list[_SizedPart] = []  # messages that are still too large; it grows
        self._now: _SizedPart  # the one that is reduced
        self._excess = 0  # how many bytes it has too many

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        limit, before = self.max_size, self.proto_size
        room = limit if self._room is None else self._room
        if before <= room:
            return 0
        self._extract(before - room)
        self._work = [self._part()]
        for part in self._work:
            first = part.message is self._proto
            self._reduce(part, room if first else limit, self._keep if first else ())
        return before - measure.message_size(self._proto)

    def _part(self) -> _SizedPart:
        return _SizedPart(self._proto, (), self.is_below_key())

    def _extract(self, excess: int) -> None:
        """Make chunks of the largest bytes and string fields, at any depth, until ``excess`` bytes are moved.

        Small fields are left: many of them are better moved together.
        """
        floor = self.max_size // 3
        heap: list[tuple[int, int, _SizedPart, Any]] = [(0, 0, self._part(), None)]
        count = 1
        while heap and excess > 0:
            size, _, part, field = heapq.heappop(heap)
            if field is not None:
                self._take_text(part, field)
                excess += size  # sizes are negative, since the heap returns the least first
                if part.indexed:
                    tag = part.tag
                    while tag not in self._indexed:
                        self._indexed.add(tag)
                        tag = tag[:-1]
                continue
            if len(part.tag) > 2 * MAX_DEPTH:
                continue
            for found, child in _large_parts(part, floor, self._keep if part.message is self._proto else ()):
                heapq.heappush(heap, (-found, count, *child))
                count += 1

    def _take_text(self, part: _SizedPart, field: Any) -> None:
        """Make a chunk of a bytes or string field."""
        value = getattr(part.message, field.name)
        self.add_chunk(value.encode() if isinstance(value, str) else value, (*part.tag, field.name))
        part.message.ClearField(field.name)

    def _check_order(self, part: _SizedPart) -> None:
        """Declare that order matters if values were taken out of ``part``, which is now in chunks."""
        if part.keyed and part.tag in self._indexed:
            self.need_order(part.tag)

    # -- one message, which is or becomes its own chunk ----------------------------------------------------------------

    def _reduce(self, part: _SizedPart, room: int, keep: Collection[str]) -> None:
        """Move out the largest fields of a message until ``room`` bytes are left."""
        self._now = part
        message, limit = part.message, self.max_size
        fields = [(measure.field_size(field, value), field, value) for field, value in message.ListFields()]
        self._excess = sum(size for size, _, _ in fields) + measure.unknown_size(message) - room
        fields.sort(key=lambda item: -item[0])
        for size, field, value in fields:
            if self._excess <= 0:
                return
            if is_required(field) or field.name in keep:
                continue
            if is_map(field):
                self._take_entries(field, value)
            elif is_repeated(field):
                self._take_elements(field, value)
            elif field.is_extension or field.type == TYPE_GROUP:
                if size <= limit:
                    self._take_unnamed(field, value)
                    self._excess -= size
            elif field.message_type is not None:
                # The message stays alive without its parent: nothing is copied.
                message.ClearField(field.name)
                self._add(part.field(value, field.name), size)
                self._excess -= size
            elif field.type in _TEXT:
                self._take_text(part, field)
                self._excess -= size

    def _add(self, part: _SizedPart, size: int) -> None:
        if len(part.tag) > 2 * MAX_DEPTH:
            raise SplitError(
                f"a message nested in {MAX_DEPTH} others: protobuf's parsers do not read it",
                path=f"{self.path(part.tag[:6])}…",
                wanted=size,
                got=self.max_size,
            )
        self.add_chunk(part.message, part.tag)
        self._check_order(part)
        if size > self.max_size:
            self._work.append(part)

    def _add_slice(self, chunk: Any, size: int) -> None:
        self.add_measured(chunk, size, self._now.tag)
        self._check_order(self._now)

    def _need_order(self, field: Any) -> None:
        if self._now.keyed:
            name = () if field.is_extension else (field.name,)
            self.need_order((*self._now.tag, *name))

    def _take_unnamed(self, field: Any, value: Any) -> None:
        """Make a slice of a field that tags cannot name: a singular extension or group."""
        chunk = type(self._now.message)()
        if not field.is_extension:
            getattr(chunk, field.name).CopyFrom(value)
            self._now.message.ClearField(field.name)
        else:
            if field.message_type is not None:
                chunk.Extensions[field].CopyFrom(value)
            else:
                chunk.Extensions[field] = value
            self._now.message.ClearExtension(field)
        self._add_slice(chunk, measure.message_size(chunk))

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _take_elements(self, field: Any, values: Any) -> None:
        sizes = (
            list(measure.element_sizes(field, values)) if field.message_type else measure.element_sizes(field, values)
        )
        whole = measure.list_size(field, sizes)
        can_be_named = field.message_type is not None and field.type != TYPE_GROUP and not field.is_extension
        if can_be_named and not has_required(field.message_type):
            whole -= self._take_large_elements(field, values, sizes)  # type: ignore[arg-type]
        if self._excess <= 0:
            return
        frame = 0
        if field.message_type is None and field.is_packed:
            frame = measure.tag_size(field.number) + measure.varint_size(whole)
        self._check_fits(field, sizes, frame)
        cuts = cut(sizes, max(whole - self._excess, 0) - frame, self.max_size - frame)
        self._excess -= whole - measure.list_size(field, sizes[: cuts[0]])
        if len(cuts) > 2 or cuts[0]:
            self._need_order(field)
        for chunk, start, end in cut_off(self._now.message, field, values, cuts):
            self._add_slice(chunk, measure.list_size(field, sizes[start:end]))

    def _take_large_elements(self, field: Any, values: Any, sizes: list[int]) -> int:
        """Make chunks of large elements and leave empty ones; return how many bytes were moved."""
        empty = measure.message_frame(field, 0)
        gone, limit = 0, self.max_size
        for index, size in enumerate(sizes):
            if self._excess <= gone:
                break
            if size > max(limit // 2, empty):
                element = values[index]
                chunk = type(element)()
                chunk.CopyFrom(element)
                element.Clear()
                self._need_order(field)
                self._add(self._now.element(chunk, field.name, index), size)
                gone += size - empty
                sizes[index] = empty
        self._excess -= gone
        return gone

    def _check_fits(self, field: Any, sizes: Sequence[int], frame: int) -> None:
        largest = max(sizes, default=0)
        if largest + frame > self.max_size:
            index = sizes.index(largest)
            name = self.path((*self._now.tag, *(() if field.is_extension else (field.name, index))))
            raise SplitError("cannot be split off", path=name, wanted=largest + frame, got=self.max_size)

    # -- maps ----------------------------------------------------------------------------------------------------------

    def _take_entries(self, field: Any, mapping: Any) -> None:
        keys, limit = list(mapping), self.max_size
        sizes = measure.entry_sizes(field, mapping, keys)
        messages = map_value(field).message_type is not None
        if messages:
            keys, sizes = self._take_large_values(field, mapping, keys, sizes)
        if self._excess <= 0:
            return
        for key, size in zip(keys, sizes, strict=True):
            if size > limit:
                name = f"{self.path((*self._now.tag, field.name))}[{key!r}]"
                raise SplitError("a map entry cannot be split off", path=name, wanted=size, got=limit)
        whole = sum(sizes)
        cuts = cut(sizes, max(whole - self._excess, 0), limit)
        for start, end in pairwise(cuts):
            chunk = type(self._now.message)()
            target = getattr(chunk, field.name)
            for key in keys[start:end]:
                if messages:
                    target[key].CopyFrom(mapping[key])
                else:
                    target[key] = mapping[key]
                del mapping[key]
            self._add_slice(chunk, sum(sizes[start:end]))
        self._excess -= sum(sizes[cuts[0] :])

    def _take_large_values(
        self, field: Any, mapping: Any, keys: list[Any], sizes: list[int]
    ) -> tuple[list[Any], list[int]]:
        rest: list[tuple[Any, int]] = []
        limit = self.max_size
        for key, size in zip(keys, sizes, strict=True):
            if self._excess > 0 and size > limit // 2 and can_be_key(field, key):
                value = mapping[key]
                del mapping[key]  # the value stays alive
                self._add(self._now.entry(value, field.name, key), size)
                self._excess -= size
            else:
                rest.append((key, size))
        return [key for key, _ in rest], [size for _, size in rest]


class _SizedPart(namedtuple("_SizedPart", "message tag keyed indexed", defaults=(False, False))):
    """A message inside the one being split: its tag; whether it is below a map key, and an index or key in that."""

    __slots__ = ()

    def field(self, message: Any, name: str) -> _SizedPart:
        return _SizedPart(message, (*self.tag, name), self.keyed, self.indexed)

    def element(self, message: Any, name: str, index: int) -> _SizedPart:
        return _SizedPart(message, (*self.tag, name, index), self.keyed, self.keyed)

    def entry(self, message: Any, name: str, key: FieldStep) -> _SizedPart:
        return _SizedPart(message, (*self.tag, name, key), True, self.keyed)


def _large_parts(part: _SizedPart, floor: int, keep: Collection[str]) -> list[tuple[int, tuple[_SizedPart, Any]]]:
    """Return the parts above ``floor`` bytes in a message, with sizes: text fields, and messages (field None)."""
    found: list[tuple[int, tuple[_SizedPart, Any]]] = []
    for field, value in part.message.ListFields():
        if field.is_extension or field.name in keep or field.type == TYPE_GROUP:
            continue
        if field.message_type is not None:
            found += [(size, (inner, None)) for size, inner in _messages_in(part, field, value) if size > floor]
        elif field.type in _TEXT and not is_repeated(field) and not is_required(field) and len(value) > floor:
            found.append((measure.scalar_size(field.type, value), (part, field)))
    return found


def _messages_in(part: _SizedPart, field: Any, value: Any) -> Iterator[tuple[int, _SizedPart]]:
    """Yield the messages in a field that chunks can be made of, with their sizes."""
    name = field.name
    if not is_repeated(field):
        yield measure.message_size(value), part.field(value, name)
    elif not is_map(field):
        for index, size in enumerate(measure.message_sizes(value)):
            yield size, part.element(value[index], name, index)
    elif map_value(field).message_type is not None:
        keys = list(value)
        for key, size in zip(keys, measure.message_sizes(value[key] for key in keys), strict=True):
            if can_be_key(field, key):
                yield size, part.entry(value[key], name, key)


def can_be_key(field: Any, key: Any) -> bool:
    """Say whether a tag can name an entry of a map field such that TensorFlow's Merger finds it."""
    kind = map_key(field).type
    return kind in KEY_KINDS and (kind not in _WIDE_KEYS or 0 <= key <= _MAX_KEY)


def cut(sizes: Sequence[int], first: int, limit: int) -> list[int]:
    """Return where to cut a list so that at most ``first`` bytes stay, and each slice has at most ``limit``.

    The first cut is the number of elements that stay; the last is the length of the list. No size may exceed ``limit``.
    """
    cuts, room = [], first
    for index, size in enumerate(sizes):
        if size > room:
            cuts.append(index)
            room = limit
        room -= size
    cuts.append(len(sizes))
    return cuts


def cut_off(message: Any, field: Any, values: Any, cuts: list[int]) -> Iterator[tuple[Any, int, int]]:
    """Move slices of ``values``, a repeated field of ``message``, into new messages; yield each, with its range."""
    for start, end in pairwise(cuts):
        chunk = type(message)()
        target = chunk.Extensions[field] if field.is_extension else getattr(chunk, field.name)
        if field.message_type is None:
            target.extend(values[start:end])
        else:
            for value in values[start:end]:  # extend() encodes and parses each
                target.add().CopyFrom(value)
        yield chunk, start, end
    del values[cuts[0] :]


# -- one list ----------------------------------------------------------------------------------------------------------


class LargeMessageSplitter(ElementSplitter):
    """Makes a chunk of a message above a third of `max_size`, and leaves an empty message.

    A message above `max_size` is split by size first, and stays.
    """

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        limit, size = self.max_size, self.proto_size
        if size > limit:
            return self.reduce(limit // 3)
        if size <= self.threshold(limit) or has_required(self._proto.DESCRIPTOR):
            return 0
        chunk = type(self._proto)()
        chunk.CopyFrom(self._proto)
        self.add_measured(chunk, size, [])
        self._proto.Clear()
        return size


class RepeatedMessageSplitter(ComposableSplitter):
    """Splits the repeated message field ``fields`` (a name, or the path to it through messages) of ``proto``.

    ``splitters`` are classes, called in this order as ``cls(element, proto_size=…, parent_splitter=…,
    fields_in_parent=…)`` for each element (with a ``threshold``: for each larger one). ``room`` is the number of bytes
    that the list may keep, with tags and lengths; the default is what `max_size` leaves beside the rest of ``proto``.
    ``by_parts`` says which elements to measure without encoding them. An element that is still too large for a slice is
    split by size (`SizeSplitter`).

    Raise ValueError if ``fields`` is not a repeated message field, or leads through a group. Elements that are groups
    are moved in slices, but not split: tags cannot name them.
    """

    def __init__(
        self,
        proto: Any,
        fields: FieldStep | Sequence[FieldStep],
        splitters: Sequence[type[ComposableSplitter]] = (LargeMessageSplitter,),
        *,
        room: int | None = None,
        by_parts: Callable[[Any], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(proto, **kwargs)
        self._fields = [fields] if isinstance(fields, str | int) else list(fields)
        self._splitters = splitters
        self._room = room
        self._by_parts = by_parts
        self._list, field = get_field(proto, self._fields)
        if field is None or field.message_type is None or not is_repeated(field) or is_map(field):
            raise ValueError(f"{self._fields} is not a repeated message field of {proto.DESCRIPTOR.full_name}")
        if any(step.type == TYPE_GROUP for _, _, step in walk(proto.DESCRIPTOR, self._fields[:-1])):
            raise ValueError(f"{self._fields} leads through a group, which TensorFlow's Merger cannot find")
        self._field = field
        self._above, _ = get_field(proto, self._fields[:-1])
        self._sizes: list[int] | None = None

    @property
    def sizes(self) -> list[int]:
        """The current size of each element, in bytes."""
        if self._sizes is None:
            self._sizes = measure.message_sizes(self._list, self._by_parts)
        return self._sizes

    @property
    def size(self) -> int:
        """The bytes that the list currently adds to its message."""
        return sum(self._frames())

    def _frames(self) -> list[int]:
        field = self._field
        if field.type == TYPE_GROUP:
            return [measure.message_frame(field, size) for size in self.sizes]
        tag = measure.tag_size(field.number)
        return [tag + measure.varint_size(size) + size for size in self.sizes]

    def build_chunks(self) -> int:
        """Split; return how many bytes were moved into chunks."""
        before = self.size
        self.split_elements()
        room = self._room
        if room is None:
            room = self.max_size - (measure.message_size(self._proto) - self.size)
        self.split_list(room)
        return before - self.size

    def split_elements(self) -> None:
        """Run the splitters on each element; then split elements that are too large for a slice."""
        if self._field.type == TYPE_GROUP:  # tags cannot lead into groups
            return
        limit = self.max_size
        largest = limit - 2 * measure.tag_size(self._field.number) - measure.varint_size(limit)  # that fits in a slice
        splitters: list[type[ComposableSplitter]] = [*self._splitters, SizeSplitter]
        floors = [splitter.threshold(limit) if hasattr(splitter, "threshold") else -1 for splitter in self._splitters]
        floors.append(largest)
        least = min(floors)
        sizes = self.sizes
        for index, size in enumerate(sizes):
            if size <= least:
                continue
            for splitter, floor in zip(splitters, floors, strict=True):
                if size > floor and self._split_element(splitter, index, size):
                    size = measure.message_size(self._list[index])
            sizes[index] = size

    def _split_element(self, splitter: type[ComposableSplitter], index: int, size: int) -> int:
        kwargs: dict[str, Any] = {"proto_size": size}
        if splitter is SizeSplitter:
            kwargs["room"] = self.max_size // 3
        child = splitter(self._list[index], parent_splitter=self, fields_in_parent=[*self._fields, index], **kwargs)
        return int(child.build_chunks() or 0)

    def split_list(self, room: int) -> None:
        """Move elements into slices until the rest has at most ``room`` bytes.

        Raise `SplitError` with the element if one is too large for a slice.
        """
        frames, limit = self._frames(), self.max_size
        if sum(frames) <= room:
            return
        largest = max(frames)
        if largest > limit:
            index = frames.index(largest)
            raise SplitError(
                f"cannot be split into chunks of at most {limit} bytes",
                path=self.path([*self._fields, index]),
                wanted=largest,
                got=limit,
            )
        cuts = cut(frames, room, limit)
        for chunk, start, end in cut_off(self._above, self._field, self._list, cuts):
            self.add_measured(chunk, sum(frames[start:end]), self._fields[:-1])
        del self.sizes[cuts[0] :]
