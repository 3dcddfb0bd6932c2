"""`Splitter` and `ComposableSplitter`: a message becomes a list of chunks, and a tree that says where each belongs.

Rules:

- The root splitter owns the chunks and the tree. A child (``parent_splitter=``, ``fields_in_parent=``) adds its chunks
  to the root's, under the tag of its parent and its own. Only the root may be asked to `split` or `write`.
- The tree is flat: the root's own chunk, and one entry per further chunk; `ComposableSplitter.need_order` describes the
  exception. Indices are those of the final list, in whatever order chunks were inserted.
- Splitting changes the message *in place*: its parts become chunks without a copy where possible, and the rest of the
  root message is itself the first chunk. TensorFlow's splitter does the same, and a message that fills half of the
  memory needs it. ``copy=True`` splits a copy. `pparse.proto_splitter.Merger.merge` merges the chunks again.
- Every chunk that is a message has at most `max_size` bytes, or `split` raises `SplitError`. Chunks of bytes (values of
  one field) have no limit, since they are not parsed. Each splitter can override the default limit with ``max_size=``.
"""

from __future__ import annotations

import abc
import os

from pparse.errors import SplitError, refused, system_error
from pparse.limits import GIB, parse_size
from pparse.parsers.cpb.metadata import BYTES, JOIN_VERSION, MESSAGE, SPLITTER_VERSION
from pparse.proto_splitter.fields import MAP_KEY, field_path, get_field_tag, is_map, is_repeated, walk
from pparse.proto_splitter.sizes import element_sizes, entry_sizes, field_size, message_size, unknown_size
from pparse.protos import message_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.proto_splitter.fields import Fields, FieldStep
    from pparse.riegeli.writer import RecordWriterOptions

    Progress = Callable[[int, int | None, str], None]
    Chunk = Any  # a protobuf message, or bytes
    Tag = tuple[bytes, ...]  # serialized FieldIndex messages

# TensorFlow's Python splitter has the same default, its C++ one 2^31 - 500 bytes.
DEFAULT_MAX_SIZE: Final = 1 * GIB
# No protobuf implementation serializes or parses a larger message.
MAX_MESSAGE_BYTES: Final = (1 << 31) - 1

PACKAGE: Final = "tensorflow.proto_splitter"
# The first byte of a FieldIndex that is a map key.
MAP_KEY_TAG: Final = 0x12

_current = DEFAULT_MAX_SIZE


def max_size() -> int:
    """Return the default for the largest size of a message chunk, in bytes."""
    return min(_current, MAX_MESSAGE_BYTES)


class set_max_size:  # noqa: N801 -- called like a function
    """Set what `max_size` returns (bytes, or text such as ``"64MiB"``). As a context manager, only for its block.

    The setting belongs to the process: threads that need different limits pass ``max_size=`` to their splitters. A size
    above 2 GiB - 1 counts as that. Raise ValueError for a size that is not positive.
    """

    def __init__(self, size: int | str) -> None:
        global _current  # noqa: PLW0603 -- the setting itself
        self._before = _current
        _current = checked_size(size)

    def __enter__(self) -> int:
        return max_size()

    def __exit__(self, *exc: object) -> None:
        global _current  # noqa: PLW0603 -- the setting itself
        _current = self._before


# The name in TensorFlow's splitter.
debug_set_max_size = set_max_size


def checked_size(size: int | str) -> int:
    """Return ``size`` in bytes. Raise ValueError if it is not positive."""
    checked = parse_size(size)
    if checked < 1:
        raise ValueError("the size limit of a chunk must be at least one byte")
    return checked


class Splitter(abc.ABC):
    """Interface of splitters: split a message into chunks, and write them."""

    @property
    @abc.abstractmethod
    def version_def(self) -> Any:
        """The ``VersionDef`` message that is written with the chunks."""

    @abc.abstractmethod
    def split(self) -> tuple[Sequence[Chunk], Any]:
        """Return the chunks (messages and bytes), and the ``ChunkedMessage`` that says where each belongs."""

    @abc.abstractmethod
    def write(self, prefix: str | os.PathLike[str], writer_options: str | RecordWriterOptions | None = None) -> str:
        """Split, write ``{prefix}.pb`` or ``{prefix}.cpb``, and return the path."""


class _Added:
    """A chunk for the value at ``fields``, with the ``tag`` of these; its ``size``, if known and not to change."""

    __slots__ = ("chunk", "fields", "size", "tag")

    def __init__(self, chunk: Chunk, tag: Tag, fields: Fields) -> None:
        self.chunk = chunk
        self.tag = tag
        self.fields = fields
        self.size: int | None = None


class ComposableSplitter(Splitter):
    """Base class of splitters that can be combined. A subclass implements `build_chunks`.

    ``proto`` is the message, of any protobuf class. It is the first chunk, unless ``proto_as_initial_chunk`` is false;
    then only added chunks count. A child has ``parent_splitter`` and ``fields_in_parent``, the path from the parent's
    message to its own (see `pparse.proto_splitter.fields`). ``max_size`` (bytes, or text such as ``"64MiB"``) limits
    the chunks of this splitter and its children; None takes the parent's limit, or the default `max_size`. ``copy``
    splits a copy of ``proto``.
    """

    def __init__(
        self,
        proto: Any,
        *,
        proto_as_initial_chunk: bool = True,
        parent_splitter: ComposableSplitter | None = None,
        fields_in_parent: Fields | None = None,
        max_size: int | str | None = None,
        copy: bool = False,
    ) -> None:
        if copy:
            if parent_splitter is not None:
                raise ValueError("copy= is for a root splitter: a child splits a part of its parent's message")
            original, proto = proto, type(proto)()
            proto.CopyFrom(original)
        self._proto = proto
        self._parent_splitter = parent_splitter
        self._fields_in_parent: list[FieldStep] = list(fields_in_parent or ())
        self._max_size = None if max_size is None else checked_size(max_size)
        self._initial = _Added(proto, (), ())
        self._added: list[_Added] = []  # in the order in which they were added
        self._placed: list[_Added] = []  # in the order of the chunks
        self._chunks: list[Chunk] = []
        self._tree: Any = None  # until it is asked for
        self._state = "new"
        self._ordered: set[Tag] = set()
        if parent_splitter is None and proto_as_initial_chunk:
            self._placed.append(self._initial)

    @property
    def proto(self) -> Any:
        """The message that this splitter splits."""
        return self._proto

    @property
    def parent_splitter(self) -> ComposableSplitter | None:
        """The splitter of the message around this one; None for the root."""
        return self._parent_splitter

    @property
    def max_size(self) -> int:
        """The largest size in bytes of a chunk that is a message."""
        if self._max_size is not None:
            return min(self._max_size, MAX_MESSAGE_BYTES)
        return self._parent_splitter.max_size if self._parent_splitter is not None else max_size()

    @property
    def version_def(self) -> Any:
        """The ``VersionDef`` of the chunks: splitter version 1, readable by join version 0 and later."""
        return version_def()

    # -- for subclasses ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def build_chunks(self) -> Any:
        """Add chunks with `add_chunk`, and clear their content in the message. Called once.

        Splitters of elements return how many bytes they moved into chunks.
        """

    def add_chunk(self, chunk: Chunk, field_tags: Fields, index: int | None = None) -> None:
        """Add a chunk for the value at ``field_tags`` of this splitter's message.

        A chunk is a message or bytes. A message has the type of the field; if ``field_tags`` is empty, it has the type
        of this message and is merged into it. Bytes (or text, which is encoded) are the value of a bytes or string
        field, or a scalar as text. ``index`` is the place in the list, as for ``list.insert``: of two chunks for one
        field, the first is merged first.

        Raise as `pparse.proto_splitter.fields.walk` for invalid tags, TypeError for other chunks.
        """
        if self._parent_splitter is not None:
            self._parent_splitter.add_chunk(chunk, [*self._fields_in_parent, *field_tags], index)
            return
        tag = _serialized(get_field_tag(self._proto, field_tags))
        self._added.append(_Added(_checked(chunk), tag, field_tags))
        self._placed.insert(len(self._placed) if index is None else index, self._added[-1])
        self._tree = None

    def path(self, fields: Fields = ()) -> str:
        """Return the path of ``fields`` from the root message, as readable text."""
        root, steps = self._in_root(fields)
        return field_path(root._proto, steps) or root._proto.DESCRIPTOR.full_name

    def need_order(self, fields: Fields) -> None:
        """Declare that the chunks below a map key, at ``fields``, must be merged in their order.

        TensorFlow's Merger keeps no order there, not even of a value and its parts. In a nested tree it does, so the
        chunks below that key become a tree of their own.
        """
        root, steps = self._in_root(fields)
        root._ordered.add(_serialized(get_field_tag(root._proto, steps)))

    def is_below_key(self) -> bool:
        """Say whether this splitter's message is below a map key of the root's."""
        root, steps = self._in_root(())
        return any(what == MAP_KEY for what, _, _ in walk(root._proto.DESCRIPTOR, steps))

    def add_measured(self, chunk: Any, size: int, field_tags: Fields, index: int | None = None) -> None:
        """Add a message as `add_chunk` does; its ``size`` in bytes is known and will not change."""
        self.add_chunk(chunk, field_tags, index)
        root, _ = self._in_root(())
        root._added[-1].size = size

    def _in_root(self, fields: Fields) -> tuple[ComposableSplitter, list[FieldStep]]:
        splitter, steps = self, list(fields)
        while splitter._parent_splitter is not None:
            steps = [*splitter._fields_in_parent, *steps]
            splitter = splitter._parent_splitter
        return splitter, steps

    # -- the chunks ----------------------------------------------------------------------------------------------------

    def split(self) -> tuple[list[Chunk], Any]:
        """Return the chunks (messages and bytes) and the ``ChunkedMessage``; the same ones each time.

        Raise `SplitError` if a message chunk is above `max_size` (the message is in pieces then), or if required fields
        are missing; ValueError on a child.
        """
        self._refuse_child("split")
        if self._state == "failed":
            raise SplitError("an earlier split failed and left the message in pieces")
        if self._state == "new":
            if not self._proto.IsInitialized():
                missing = ", ".join(self._proto.FindInitializationErrors())
                raise SplitError(f"required fields are missing: {missing}", path=self.path())
            self._state = "failed"
            self.build_chunks()
            self._check_sizes()
            self._state = "split"
        if self._tree is None:
            self._build_tree()
        return self._chunks, self._tree

    def write(self, prefix: str | os.PathLike[str], writer_options: str | RecordWriterOptions | None = None) -> str:
        """Split, write, and return the path: ``{prefix}.pb`` if all is one chunk, else ``{prefix}.cpb``.

        A ``.cpb`` is a Riegeli file (``writer_options`` as of `pparse.riegeli.RecordWriter`): the chunks in order, then
        a ``ChunkMetadata`` as the last record. The file gets its name when it is complete. Missing folders are created.
        A file of the other suffix, which a reader might prefer, is removed at the end. The same message gives the same
        bytes.

        Raise `SplitError` as `split`, `SourceError` if the file cannot be written, ValueError on a child.
        """
        self._refuse_child("write")
        prefix = os.fspath(prefix)
        chunks, tree = self.split()
        stem, other = (".cpb", ".pb") if tree.chunked_fields else (".pb", ".cpb")
        make_folder(prefix, prefix)
        from pparse.writers.files import AtomicFile

        with AtomicFile(prefix + stem) as file:
            if tree.chunked_fields:
                whole = (
                    (BYTES, chunk) if isinstance(chunk, bytes) else (MESSAGE, self._serialized(chunk))
                    for chunk in chunks
                )
                write_chunks(file.stream, whole, tree, writer_options, self.version_def)
            else:
                file.stream.write(self._serialized(self._proto))
        try:
            os.unlink(prefix + other)
        except FileNotFoundError:
            pass
        except OSError as error:
            doing = f"is older than {prefix + stem}, and cannot be removed"
            raise system_error(error, doing, prefix + other) from error
        return prefix + stem

    def _serialized(self, message: Any) -> bytes:
        from google.protobuf.message import EncodeError

        try:
            # Partial: a chunk may lack required fields that another one has. Python's parser accepts that.
            return bytes(message.SerializePartialToString(deterministic=True))
        except EncodeError as error:
            raise SplitError(f"cannot be serialized: {error}", path=message.DESCRIPTOR.full_name) from error

    def _refuse_child(self, method: str) -> None:
        if self._parent_splitter is not None:
            raise ValueError(
                f"The `{method}` method should not be called directly on a splitter that has a parent: "
                f"call it on the root splitter"
            )

    def _build_tree(self) -> None:
        self._chunks[:] = [added.chunk for added in self._placed]
        self._tree = message_class(f"{PACKAGE}.ChunkedMessage")()
        place = {added: index for index, added in enumerate(self._placed)}
        if self._initial in place:
            self._tree.chunk_index = place[self._initial]
        fill_tree(self._tree, [(added.tag, place[added]) for added in self._added], self._ordered)

    def _check_sizes(self) -> None:
        limit = self.max_size
        for added in self._placed:
            if isinstance(added.chunk, bytes):
                continue
            size = message_size(added.chunk) if added.size is None else added.size
            if size > limit:
                name, part = largest_part(added.chunk)
                raise SplitError(
                    f"a chunk of {size} bytes is above max_size {limit}; its largest part that could not be split off "
                    f"is {name}, {part} bytes",
                    path=self.path(added.fields),
                    wanted=size,
                    got=limit,
                )


def writing(
    stream: Any, total: int, doing: str, progress: Progress | None, check_cancelled: Callable[[], None]
) -> Callable[[bytes], None]:
    """Return a function that writes the next block of ``total`` bytes, and reports it to ``progress``."""
    done = 0

    def write(block: bytes) -> None:
        nonlocal done
        check_cancelled()
        stream.write(block)
        done += len(block)
        if progress is not None:
            progress(done, total, doing)

    return write


def write_chunks(
    stream: Any,
    chunks: Iterable[tuple[int, bytes | Data]],
    tree: Any,
    options: str | RecordWriterOptions | None,
    version: Any = None,
) -> None:
    """Write a ``.cpb``: ``chunks``, each its type and its bytes, in order, then the ChunkMetadata with ``tree``."""
    from pparse.riegeli import RecordWriter

    metadata = message_class(f"{PACKAGE}.ChunkMetadata")(message=tree)
    # A subclass may return a message of another descriptor pool, such as TensorFlow's own classes.
    metadata.version.MergeFromString((version or version_def()).SerializeToString())
    with RecordWriter(stream, owns_dest=False, options=options or "") as writer:
        for type, content in chunks:
            if isinstance(content, bytes):
                writer.write_record(content)
            else:
                writer.write_record_from(content)
            size = len(content) if isinstance(content, bytes) else content.size
            metadata.chunks.add(type=type, size=size, offset=writer.last_pos.numeric)
        writer.write_record(metadata.SerializeToString(deterministic=True))


def version_def() -> Any:
    """Return the ``VersionDef`` of files that are written here."""
    return message_class(f"{PACKAGE}.VersionDef")(splitter_version=SPLITTER_VERSION, join_version=JOIN_VERSION)


def make_folder(path: str, source: str) -> None:
    """Make the folder that a file is written into. Raise `SourceError`, about ``source``."""
    with refused("cannot create the folder", source):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def fill_tree(tree: Any, entries: list[tuple[Tag, int]], ordered: Collection[Tag]) -> None:
    """Add an entry to the tree for each chunk, in order; chunks below a key in ``ordered`` form a nested tree."""
    work = [(tree, entries, ordered)]
    for node, items, ordered in work:
        nested: dict[Tag, list[Tag]] = {}
        for tag in ordered:
            if prefix := path_to_key(tag):
                nested.setdefault(prefix, []).append(tag[len(prefix) :])
        groups: dict[Tag, tuple[Any, list[tuple[Tag, int]]]] = {}
        for tag, index in items:
            prefix = path_to_key(tag) if nested else ()
            if prefix not in nested:
                _add_entry(node, tag).chunk_index = index
                continue
            if prefix not in groups:
                groups[prefix] = _add_entry(node, prefix), []
            groups[prefix][1].append((tag[len(prefix) :], index))
        for prefix, (message, below) in groups.items():
            own = min((index for tag, index in below if not tag), default=None)
            if own is not None:
                message.chunk_index = own
                below = [item for item in below if item[1] != own]
            work.append((message, below, nested[prefix]))


def _add_entry(node: Any, tag: Tag) -> Any:
    entry = node.chunked_fields.add()
    for step in tag:
        entry.field_tag.add().MergeFromString(step)
    return entry.message


def path_to_key(tag: Tag) -> Tag:
    """Return the steps up to the first map key; none if there is no key."""
    for at, step in enumerate(tag):
        if step[0] == MAP_KEY_TAG:
            return tag[: at + 1]
    return ()


def _checked(chunk: Any) -> Chunk:
    from google.protobuf.message import Message

    if isinstance(chunk, bytes | Message):
        return chunk
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(f"a chunk is a protobuf message or bytes, not {type(chunk).__name__}")


def _serialized(tag: list[Any]) -> Tag:
    return tuple(step.SerializeToString() for step in tag)


def largest_part(message: Any) -> tuple[str, int]:
    """Return the name and the size of the largest part of a message: of a field, or of one element of it."""
    best = ("its unknown fields", unknown_size(message))
    for field, value in message.ListFields():
        if is_map(field):
            keys: Sequence[Any] = list(value)
            sizes: Sequence[int] = entry_sizes(field, value, keys)
        elif is_repeated(field):
            sizes = element_sizes(field, value)
            keys = range(len(sizes))
        else:
            keys, sizes = [None], [field_size(field, value)]
        if not sizes:  # an emptied extension
            continue
        at = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[at] > best[1]:
            best = (_named(field, keys[at], value), sizes[at])
    return best


def _named(field: Any, key: Any, value: Any) -> str:
    if key is None:
        return str(field.name)
    if isinstance(key, str):
        return f'{field.name}["{key}"]'
    name = getattr(value[key], "name", None)  # a node has a name, for example
    return f"{field.name}[{key}]" + (f" ({name!r})" if isinstance(name, str) and name else "")
