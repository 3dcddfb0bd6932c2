"""`RepeatedMessageSplitter`: one repeated message field, element by element, then in slices; `LargeMessageSplitter`.

As in TensorFlow's splitter, elements are split first, by other splitters. An element that is still large becomes a
chunk at its index, and an empty one stays in its place. If the list is still too long, the first elements stay, and the
others move into slices: messages of the parent's type, merged into the parent. Indices are those of the whole list,
since slices are merged before chunks addressed by index. Unlike in TensorFlow, tags and lengths count as well.
"""

from __future__ import annotations

from itertools import pairwise

from pparse.errors import SplitError
from pparse.proto_splitter import sizes as measure
from pparse.proto_splitter.fields import get_field, has_required, is_map, is_repeated, walk
from pparse.proto_splitter.size import SizeSplitter, append_to, cut
from pparse.proto_splitter.split import ComposableSplitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pparse.proto_splitter.fields import FieldStep


class ElementSplitter(ComposableSplitter):
    """Base class of splitters for one element of a list. One is made for each large element.

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
        if any(step.type == measure.TYPE_GROUP for _, _, step in walk(proto.DESCRIPTOR, self._fields[:-1])):
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
        if field.type == measure.TYPE_GROUP:
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
        if self._field.type == measure.TYPE_GROUP:  # tags cannot lead into groups
            return
        limit = self.max_size
        largest = limit - 2 * measure.tag_size(self._field.number) - measure.varint_size(limit)  # that fits in a slice
        splitters: list[type[ComposableSplitter]] = [*self._splitters, SizeSplitter]
        floors = [getattr(splitter, "threshold", _never)(limit) for splitter in self._splitters] + [largest]
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
        for start, end in pairwise(cuts):
            chunk = type(self._above)()
            append_to(getattr(chunk, self._field.name), self._list, start, end, messages=True)
            self.add_measured(chunk, sum(frames[start:end]), self._fields[:-1])
        del self._list[cuts[0] :]
        del self.sizes[cuts[0] :]


def _never(limit: int) -> int:
    return -1
