"""Arrays in MessagePack: the extensions of flax, and the maps that msgpack-numpy makes of arrays."""

from __future__ import annotations

from math import prod

from pparse.containers.member import NameCounter
from pparse.data.trailing_bytes import LAST_BEFORE_BREAK, has_odd_tail
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import ENDS_EARLY, Finding, Status
from pparse.parsers.msgpack.flax import CHUNKED
from pparse.parsers.msgpack.parser import decode, head, is_text
from pparse.tensors.dtype import DTYPES
from pparse.tensors.node_viewer import join, node_called
from pparse.tensors.span import Span
from pparse.tensors.status import Remark, status_by_place
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import LIST, MAP, SCALAR
from pparse.tree.node import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.parsers.msgpack.parser import MsgpackParser
    from pparse.tensors.dtype import DType
    from pparse.tree.node import Node

# The head of an array, before its bytes: a shape of 64 numbers, and a name.
_HEAD: Final = 1 << 10
_MOST_FACTS: Final = 10_000
_LONGEST: Final = 100_000
_MOST_VALUES: Final = 1_000_000
_NUMPY_KINDS: Final = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
# What msgpack-numpy writes first into a map that stands for an array.
_MARKS: Final = (b"\xc4\x02nd\xc3", b"\xa2nd\xc3")
_LOOK: Final = 64 << 10
# A chunked array has three keys. With others, or without one of them, it is known by the first bytes of its map, so
# that not all of every map is read for a listing.
_KEYS: Final = 3
_BEGINNING: Final = 256


class DescribedArray:
    """What a file says of an array: its type, its shape, where its bytes are; and what is wrong with that."""

    __slots__ = ("reason", "shape", "spans", "status", "word")

    def __init__(self) -> None:
        self.word = ""
        """The file's word for the type; empty: it is lost."""
        self.shape: tuple[int, ...] = ()
        """Length of each dimension."""
        self.spans: list[Span] = []
        """Where the bytes are."""
        self.status = Status.COMPLETE
        """What the description itself is."""
        self.reason = ""
        """Why, if it is not complete."""

    def doubt(self, status: Status, reason: str) -> None:
        """Note that the array is not whole."""
        if self.status is Status.COMPLETE:
            self.status, self.reason = status, reason


class ArrayTreeViewer(Viewer):
    """A mapping of names to arrays in nested maps and lists; a name is the keys that lead to it, joined by dots."""

    _broken: bool | None = None

    def described(self, node: Node) -> DescribedArray | None:
        """Return what ``node`` says of an array; None if it is none."""
        raise NotImplementedError

    def is_fact(self, node: Node) -> bool:
        """Say whether a node that is no array is a value for `metadata`."""
        return node.shape == SCALAR

    def leaves(self) -> Iterator[tuple[str, Node, DescribedArray | None]]:
        """Yield names and nodes of all arrays and other values, in the order of the file."""
        root = self.root
        stack: list[tuple[Node, str, Iterator[Node]]] = [(root, "", iter([root]))]
        while stack:
            above, prefix, nodes = stack[-1]
            try:
                node = next(nodes, None)
                array = None if node is None else self.described(node)
            except LimitError as error:  # too deep, or too many
                self.extraction.parse().note_limit(above, error)
                node = None
            if node is None:
                stack.pop()
                continue
            name = join(prefix, _key(node)) if node is not root else ""
            if array is not None or self.is_fact(node):
                yield name, node, array
            else:
                stack.append((node, name, node.children()))

    def tensors(self) -> Iterator[Tensor]:
        """Yield every array in file order; the second of two equal names as ``name#2``."""
        names = NameCounter()
        for name, node, array in self.leaves():
            if array is not None:
                number = names.add(name)
                yield self._tensor(name if number == 1 else f"{name}#{number}", node, array)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor called ``name``, or None; slashes will do instead of dots."""
        node = node_called(self.root, name)
        array = self.described(node) if node is not None else None
        if node is not None and array is not None:
            return self._tensor(name, node, array)
        found = next((tensor for tensor in self.tensors() if tensor.name == name), None)
        return self.find(name.replace("/", ".")) if found is None and "/" in name else found

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the array that a node is."""
        array = self.described(node)
        return None if array is None else self._tensor(str(node.key), node, array)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The values besides arrays, by name: the first 10,000."""
        found: dict[str, Any] = {}
        for name, node, array in self.leaves():
            if array is None:
                found[name] = self._plain(node)
                if len(found) >= _MOST_FACTS:
                    break
        return found

    def fact(self, node: Node) -> Any:
        """Return a value for `metadata`."""
        size = (node.end or node.start) - node.start
        if node.kind == "bin" or node.kind.startswith("ext(") or size > _LONGEST:
            return Remark(f"<{node.kind} of {size:,} bytes>")
        return node.load()

    def _plain(self, node: Node) -> Any:
        try:
            value = self.fact(node)
        except PparseError as error:
            status = node.status
            if status is Status.COMPLETE:
                beyond = isinstance(error, UnsupportedError | LimitError)
                status = Status.UNSUPPORTED if beyond else Status.DAMAGED
            return Remark(f"{status}: {error.reason}")
        return value if value is None or isinstance(value, str | int | float) else str(value)

    def tree(self) -> Any:
        """Return the file's value as the program had it: dicts and lists, with tensors (not read) as leaves.

        Raises `LimitError` if there are more than 1,000,000 values, and the error of the first that is not whole.
        """
        found: dict[Any, Any] = {}
        parser = self.extraction.parse().parser
        todo: list[tuple[Node, str, Any, Any]] = [(self.root, "", found, None)]
        count = 0
        while todo:
            node, name, above, key = todo.pop()
            count += 1
            if count > _MOST_VALUES:
                raise LimitError("too many values for a tree in memory", option="tensors()", got=_MOST_VALUES)
            array = self.described(node)
            if array is not None:
                above[key] = self._tensor(name, node, array)
            elif self.is_fact(node):
                above[key] = node.load() if node.shape == SCALAR else self.fact(node)
            else:
                kids = list(node.children())
                keys = (
                    range(len(kids)) if node.shape == LIST else as_dict([(parser.plain_key(kid), None) for kid in kids])
                )
                above[key] = made = [None] * len(kids) if node.shape == LIST else dict.fromkeys(keys)
                if node.status is not Status.COMPLETE:
                    node.to_python()  # raises, with the reason
                todo += [(kid, join(name, _key(kid)), made, key) for kid, key in zip(kids, keys, strict=True)][::-1]
        return found[None]

    def _tensor(self, name: str, node: Node, array: DescribedArray) -> Tensor:
        dtype, spans, there = _dtype(array.word), array.spans, self.extraction.find_end()
        size = sum(span.length for span in spans)
        if dtype is None and array.word:
            array.doubt(Status.UNSUPPORTED, f"elements of type {array.word} are not read")
        elif dtype is not None and (needed := prod(array.shape) * dtype.itemsize) != size:
            array.doubt(Status.DAMAGED, f"its shape and type need {needed} bytes, not {size}")
        if size:
            end = max(span.offset + span.length for span in spans)
            array.doubt(status_by_place(spans[0].offset, end, there), "")
        if array.status is Status.COMPLETE and size:
            if self._is_last_before_break(node):
                array.doubt(Status.DAMAGED, LAST_BEFORE_BREAK)
            elif self._is_made_up(node):
                reason = "its key, or one before it in a file that breaks, is no text: the name may be wrong"
                array.doubt(Status.DAMAGED, reason)
        finding = None
        if array.reason:
            at = spans[0].offset if spans else None
            finding = Finding("bad-tensor", array.reason, path=name, source=self.extraction.name, offset=at)
        return Tensor(
            name,
            dtype,
            array.shape,
            tuple(spans),
            stored_dtype=array.word,
            byteorder="big" if array.word[:1] == ">" else "little",
            status=array.status,
            finding=finding,
            owner=self,
        )

    def _is_last_before_break(self, node: Node) -> bool:
        """Say whether what follows ``node`` is not a value of the format: it may end elsewhere."""
        try:
            while (above := node.parent) is not None:
                ordinal = node.ordinal + 1
                while above.index_to(ordinal + 1).count > ordinal:
                    following = above.child(ordinal)
                    if _is_odd(following) and (_is_letter(following.key) or self._is_broken):
                        return True
                    if self.is_fact(following) or self.described(following) is not None:
                        return following.known_status is Status.DAMAGED and following.shape == SCALAR
                    above, ordinal = following, 0
                if above.known_status is Status.DAMAGED or self._is_odd_cut(above, node):
                    return True
                node = above  # which ends here, too
        except LimitError:
            return False
        return self._has_more

    def _is_odd_cut(self, above: Node, last: Node) -> bool:
        """Say whether a map of texts, ``above``, ends early with a key behind its ``last`` child that is no text."""
        if above.known_status is not Status.TRUNCATED or above.shape != MAP or last.end is None:
            return False
        if not above.index_to(1).count:
            return False
        raw = self.extraction.data.read_known(last.end, 1)[0]
        return bool(raw) and not is_text(raw[0]) and type(above.child(0).key) is str

    def _is_made_up(self, node: Node) -> bool:
        """Say whether the name of ``node`` may be made up: an odd key is before it in a file that breaks."""
        if _is_odd(node) and _is_letter(node.key):
            return True
        parser: MsgpackParser = self.extraction.parse().parser  # type: ignore[assignment]
        odd = parser.first_odd_key
        return odd is not None and odd <= node.start and self._is_broken

    @property
    def _has_more(self) -> bool:
        """Whether bytes follow the value of the file."""
        root, there = self.root, self.extraction.find_end()
        is_closed = root.end is not None and root.known_status is not Status.TRUNCATED
        return is_closed and has_odd_tail(self.extraction.data, root.start, root.end or there, there)

    @property
    def _is_broken(self) -> bool:
        """Whether the file cannot be read to its end, or more follows. Reads it; asked if there are odd keys only."""
        if self._broken is None:
            try:
                self.root.index_to(None)
            except LimitError:
                return False
            self._broken = self.root.known_status is not Status.COMPLETE or self._has_more
        return self._broken

    @property
    def may_have_had_more(self) -> bool:  # type: ignore[override]
        """Whether the file is cut: nobody knows how much follows."""
        return self.root.status is Status.TRUNCATED

    def _span(self, start: int, length: int) -> Span:
        extraction = self.extraction
        return Span(extraction.data, start, length, extraction.path, extraction.end)


class FlaxViewer(ArrayTreeViewer):
    """The arrays of a flax checkpoint."""

    def described(self, node: Node) -> DescribedArray | None:
        """Return what an extension, or a map of chunks, says of an array; None if it is none."""
        if node.kind == "ndarray":
            array = DescribedArray()
            self._add(array, node)
            return array
        if node.kind == "map" and self._may_be_chunked(node) and node.find(CHUNKED) is not None:
            return self._chunked(node)
        return None

    def _may_be_chunked(self, node: Node) -> bool:
        if node.note[0] == _KEYS:
            return True
        return CHUNKED.encode() in self.extraction.data.read_known(node.start, _BEGINNING)[0]

    def is_fact(self, node: Node) -> bool:
        """Say whether a node is a value for `metadata`: scalars of numpy, too."""
        return node.shape == SCALAR or node.kind in ("scalar", "complex")

    def fact(self, node: Node) -> Any:
        """Return a value for `metadata`."""
        if node.kind == "complex":
            parts = node.to_python().values()
            if not all(type(part) in (int, float) for part in parts):
                raise MalformedError("its parts are no numbers", offset=node.start)
            return complex(*parts)
        if node.kind == "scalar":
            array = DescribedArray()
            self._add(array, node)
            if array.status is Status.COMPLETE and prod(array.shape) != 1:
                raise UnsupportedError("its shape is not that of a single value", offset=node.start)
            return self._tensor("", node, array).numpy().item()
        return super().fact(node)

    def _add(self, array: DescribedArray, node: Node) -> None:
        """Add the extension ``node`` to what is known of an array: its type, its shape, and its bytes."""
        there = self.extraction.find_end()
        end = there if node.end is None else min(there, node.end)  # what follows a cut member is not its own
        try:
            raw = self.extraction.data.pread(node.start, min(_HEAD, end - node.start))
            if not raw:
                raise EndOfDataError("nothing of it is there")
            if raw[0] != 0x93:
                raise MalformedError("it is no array of three")
            shape, at = decode(raw, 1)
            word, at = decode(raw, at)
            if not isinstance(shape, tuple) or not _are_lengths(shape):
                raise MalformedError("its shape is no list of lengths")
            self.extraction.session.limits.check("tensor_rank", len(shape), "the number of dimensions")
            word = word.decode("latin-1") if isinstance(word, bytes) else word
            if not isinstance(word, str) or array.word not in ("", word):
                raise MalformedError("its type is no name, or not that of the chunk before")
            array.shape, array.word = shape, word
            length, start = head(raw, at)
            if not 0xC4 <= raw[at] <= 0xC6:
                raise MalformedError("its third part is not its bytes")
        except EndOfDataError as error:
            cut = node.known_status in ENDS_EARLY
            array.doubt(Status.TRUNCATED if cut else Status.DAMAGED, f"its head ends early: {error.reason}")
        except (MalformedError, GapError) as error:
            array.doubt(Status.DAMAGED, error.reason)
        except LimitError as error:
            array.doubt(Status.UNSUPPORTED, error.reason)
        else:
            array.spans.append(self._span(node.start + start, length))
            if node.end != node.start + start + length:
                array.doubt(Status.DAMAGED, f"its extension does not end with its {length} bytes")

    def _chunked(self, node: Node) -> DescribedArray:
        """Return the array that a map of chunks describes."""
        array = DescribedArray()
        shape, chunks = node.find("shape"), node.find("chunks")
        cut = any(part is None or part.status is Status.TRUNCATED for part in (shape, chunks))
        cut = cut and node.status is Status.TRUNCATED
        self._add_chunks(array, chunks)
        array.shape = tuple(kid.value for kid in _in_order(shape))
        if not _are_lengths(array.shape) or len(array.shape) > self.extraction.session.limits.tensor_rank:
            array.shape = ()
            array.doubt(Status.DAMAGED, "its shape is no list of lengths")
        if cut:
            dtype, size = _dtype(array.word), sum(span.length for span in array.spans)
            lacking = prod(array.shape) * dtype.itemsize - size if dtype is not None else 0
            if lacking > 0:
                array.spans.append(self._span(self.extraction.find_end(), lacking))
            else:
                array.doubt(Status.TRUNCATED, "its chunks are cut off")
        elif not _is_numbered(shape) or not _is_numbered(chunks):
            array.doubt(Status.DAMAGED, "its shape or its chunks are not numbered from 0 on")
        elif not array.spans:
            array.doubt(Status.DAMAGED, "it has no chunks")
        return array

    def _add_chunks(self, array: DescribedArray, chunks: Node | None) -> None:
        """Add the ``chunks`` to what is known of an array; each is an array of its own, and flax joins them."""
        rows: tuple[int, ...] | None = None
        for kid in _in_order(chunks):
            count = len(array.spans)
            if kid.kind == "ndarray":
                self._add(array, kid)
            else:
                array.doubt(Status.DAMAGED, f"chunk {kid.key!r} is no array")
            if len(array.spans) == count:
                continue
            dtype, length = _dtype(array.word), array.spans[-1].length
            if dtype is not None and (needed := prod(array.shape) * dtype.itemsize) != length:
                reason = f"the shape and type of chunk {kid.key!r} need {needed} bytes, not {length}"
                array.doubt(Status.DAMAGED, reason)
            if not array.shape or rows not in (None, array.shape[1:]):
                array.doubt(Status.DAMAGED, f"chunk {kid.key!r} cannot be joined to the others by its shape")
            rows = array.shape[1:]


class NumpyMapViewer(ArrayTreeViewer):
    """The arrays that msgpack-numpy writes, as maps with the keys nd, type, kind, shape and data."""

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether such a map begins in the first 64 KiB."""
        extraction = parser.result.extraction
        size = _LOOK if extraction.end is None else min(_LOOK, extraction.end - extraction.start)
        raw = extraction.data.known(extraction.start, size)
        return any(mark in raw for mark in _MARKS)

    def described(self, node: Node) -> DescribedArray | None:
        """Return what a map says of an array; None if it says nothing of one."""
        if node.kind != "map" or node.note[0] not in (4, 5):
            return None
        keyed = ((kid.key, kid) for kid in node.children())
        parts = {key.decode("latin-1") if isinstance(key, bytes) else str(key): kid for key, kid in keyed}
        mark, data = parts.get("nd"), parts.get("data")
        if mark is None or mark.value is not True:
            return None
        array = DescribedArray()
        lost = Status.TRUNCATED if node.status is Status.TRUNCATED else Status.DAMAGED
        for key in ("type", "shape"):
            if key not in parts:
                array.doubt(lost, f"its {key} is lost")
                return array
        try:
            shape, word = parts["shape"].to_python(), parts["type"].to_python()
        except PparseError as error:
            array.doubt(lost, error.reason)
            return array
        if isinstance(shape, list) and _are_lengths(shape):
            array.shape = tuple(shape)
        else:
            array.doubt(Status.DAMAGED, "its shape is no list of lengths")
        array.word = word.decode("latin-1") if isinstance(word, bytes) else str(word)
        if data is None or data.kind not in ("bin", "str"):
            array.doubt(lost, "its bytes are lost")
        else:
            array.spans.append(self._span(data.start, (data.end or data.start) - data.start))
        return array


def _are_lengths(values: Sequence[Any]) -> bool:
    return all(type(length) is int and length >= 0 for length in values)


def _in_order(node: Node | None) -> list[Node]:
    """Return the children of a map with the keys 0, 1 …, in the order of the keys; those before the first one lost."""
    found: list[Node] = []
    kids = _by_key(node)
    while str(len(found)) in kids:
        found.append(kids[str(len(found))])
    return found


def _is_numbered(node: Node | None) -> bool:
    """Say whether a map is there, and its keys are 0, 1 …, and no others."""
    return node is not None and node.shape == MAP and len(_in_order(node)) == len(_by_key(node))


def _by_key(node: Node | None) -> dict[Any, Node]:
    """Return the children of a map by their keys; of equal ones, the last."""
    return {} if node is None or node.shape != MAP else {kid.key: kid for kid in node.children()}


def _key(node: Node) -> str:
    key = node.key
    if key is None:
        return str(node.ordinal) if node.parent is not None and node.parent.shape == LIST else f"#{node.ordinal}"
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _is_odd(node: Node) -> bool:
    """Say whether the key of a node is no text, in a map that begins with one."""
    above = node.parent
    is_text = type(node.key) is str or above is None or above.shape != MAP
    return not is_text and above is not None and type(above.child(0).key) is str


def _is_letter(key: Any) -> bool:
    """Say whether an odd key may be the last letter of a text whose other bytes went."""
    return type(key) is int and 0x20 <= key < 0x7F


def _dtype(word: str) -> DType | None:
    """Return the type that numpy's name, or its type string, means; None if it is not read."""
    if word[:1] in ("<", ">", "|", "="):
        kind, size = word[1:2], word[2:]
        bits = str(8 * int(size)) if size.isdecimal() and len(size) < 4 else "?"
        return DTYPES.get("bool" if word[1:] == "b1" else _NUMPY_KINDS.get(kind, "?") + bits)
    dtype = DTYPES.get(word)
    return None if dtype is None or dtype.packed else dtype
