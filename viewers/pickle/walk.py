"""Goes through what was saved, and names what it finds: ``optimizer.state.0.exp_avg``.

Names are paths joined by dots: keys of dicts as text, numbers in lists and tuples, attributes of objects; a module's
parameters, buffers and submodules are called as its ``state_dict()`` calls them.
"""

from __future__ import annotations

from itertools import chain, islice
from math import prod

from pparse.data.spliced import DerivedData
from pparse.display.text import shorten
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.parsers.pickle.arrays import (
    MASKED_CONTENT,
    MASKED_MASK,
    OF_DILL,
    SCALARS,
    Array,
    MaskedArray,
    array_of,
    masked_of,
    why_refused,
)
from pparse.parsers.pickle.joblib import file_beside
from pparse.parsers.pickle.program import payload
from pparse.parsers.pickle.values import Call, Ordered, Persistent, as_latin1
from pparse.parsers.pytorch.rebuild import (
    FROM_BYTES,
    Beside,
    Odd,
    Refused,
    StorageId,
    numpy_inside,
    tensors_of,
    with_storage,
    wrapped_state,
)
from pparse.tensors.dtype import DType
from pparse.tensors.node_viewer import join
from pparse.tree.entry import MAP, SCALAR
from pparse.tree.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.findings import Finding
    from pparse.parsers.pickle.parser import PickleParser
    from pparse.parsers.pickle.program import Program
    from pparse.parsers.pytorch.rebuild import StoredTensor
    from pparse.viewers.pickle.viewer import PickleViewer

    Parts = Sequence[tuple[str, StoredTensor | Array | Odd]]

# -- Large numpy arrays in pickles: described by their nodes, without reading their bytes ------------------------------

# Where the bytes stand in the arguments or the state of the calls that make arrays.
_CONTENTS: Final = {
    "_frombuffer": ("args", (0,)),
    "_reconstruct": ("state", (-1,)),
    "_mareconstruct": ("state", (MASKED_CONTENT, MASKED_MASK)),
}


class TextBytes(DerivedData):
    """Bytes that a pickle of protocol 0 to 2 has as a text, a character each: made of the text when they are read."""

    copies = False

    def __init__(self, node: Node, size: int) -> None:
        extraction = node.extraction
        super().__init__(extraction.name, size, extraction.data.stats)
        self._node = node
        self.sources = (extraction.data,)
        self._content: bytes | None = None

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return all of the text."""
        node = self._node
        return ((node.extraction.data, node.start, node.end or node.start),)

    def _pread(self, offset: int, length: int) -> bytes:
        content = self._content  # once: it may be evicted
        if content is None:
            try:
                content = self._made()
            except MalformedError as error:  # from now on, all who ask know
                self.condemn(0, self.size or 0, error.reason)
                raise
            budget = self._node.extraction.session.budget
            self._charge = budget.charge(len(content), "the bytes of an array", self._forget)
            self._content = content
        return content[offset : offset + length]

    def _made(self) -> bytes:
        loaded = self._node.load()
        found = as_latin1(loaded) if isinstance(loaded, str) else loaded
        if not isinstance(found, bytes | bytearray) or len(found) != self.size:
            reason = "the bytes of an array are not as many as it has, or no bytes"
            raise MalformedError(reason, offset=self._node.start)
        return bytes(found)

    def _forget(self) -> None:
        self._content = None


def _parts_of_maker(kids: Iterable[Node]) -> dict[Any, Node]:
    """Return the parts of a call by name; if it is dill's for numpy's, those of that one."""
    found = {kid.key: kid for kid in kids}
    called, args = found.get("callable"), found.get("args")
    if called is None or args is None or args.kind != "tuple" or len(args) not in (3, 4):
        return found
    if str(called.load()) in OF_DILL:
        return {name: args.child(number) for number, name in enumerate(("callable", "args", "state"))}
    return found


def large_array(node: Node) -> Array | MaskedArray | Odd | None:
    """Return the array that a large ``call`` would make, or why numpy refuses that; None if it would make none.

    Raises `DataError` if what it says cannot be read.
    """
    parts = _parts_of_maker(node.children())
    name = parts["callable"].load() if "callable" in parts else None
    part, places = _CONTENTS.get(getattr(name, "name", "").rpartition(".")[2], ("", ()))
    if part not in parts or "args" not in parts or parts[part].kind != "tuple":
        return None
    kids = list(parts[part].children())
    if part == "state" and parts["args"].kind == "tuple":
        call = Call(name, tuple(kid.load() for kid in islice(parts["args"].children(), 1)))
        call.state = tuple(_value_of(kid) if at == len(kids) - 4 else kid for at, kid in enumerate(kids))
        if (why := why_refused(call)) is not None:
            return Refused(why)
    contents = {at % len(kids): kids[at] for at in places if at < len(kids)} if kids else {}
    if any(kid.kind not in ("bytes", "bytearray", "str") for kid in contents.values()):
        return None
    known = tuple(b"" if at in contents else _value_of(kid) for at, kid in enumerate(kids))
    call = Call(name, known if part == "args" else ())
    call.state = known if part == "state" else None
    found = array_of(call) or masked_of(call)
    if found is not None:
        arrays = (found,) if isinstance(found, Array) else (found.elements, found.mask)
        for array, content in zip(arrays, contents.values(), strict=True):
            _set_place(array, content)
    return found


def _set_place(found: Array, content: Node) -> None:
    """Let an array have its bytes where the node of its content is."""
    found.content = None
    data = content.extraction.data
    place_of = payload(data, content.start, content.end or content.start)
    if place_of is None or content.kind == "str":
        size = _size_of(found)
        found.place = TextBytes(content, size), 0, size
    else:
        found.place = data, *place_of


def _value_of(node: Node) -> Any:
    return node.load() if node.shape == "scalar" else node.to_python()


def large_objects(parts: list[Node]) -> Node | None:
    """Return the list of the elements of a large array of objects; None if the call with these parts makes none."""
    found = _parts_of_maker(parts)
    name = str(found["callable"].load()) if "callable" in found and found["callable"].kind == "global" else ""
    state = found.get("state")
    if not name.endswith(".multiarray._reconstruct") or state is None or state.kind != "tuple" or len(state) < 4:
        return None
    last = state.child(len(state) - 1)
    return last if last.kind == "list" else None


def _size_of(array: Array) -> int:
    try:
        return prod(array.shape) * DType.of(array.type.dtype or "").itemsize
    except ValueError:
        return 0


# Values of at most so many bytes of pickle are made at once; larger ones are gone through node by node.
SMALL: Final = 256 << 10
# The parts of a module in which torch keeps what its state_dict names (torch/nn/modules/module.py).
_OWN: Final = ("_parameters", "_buffers")
_BELOW: Final = "_modules"
# Of tuples in large objects with more parts, their parts are not made at once.
_SHORT: Final = 64
_KINDS: Final[dict[type, str]] = {Ordered: "dict", Call: "call", Persistent: "persistent"}
# Longer texts and bytes are described by their size.
_LARGEST: Final = 1 << 20
# What is not known to be broken.
_WHOLE: Final = (None, Status.COMPLETE)
# How often each byte of a pickle may be gone through, as what is shared has several names.
_MOST_STEPS: Final = 4
# TorchScript's way to say of what type a list or dict is (torch/jit/_pickle.py): that is the first argument.
_TYPED: Final = "torch.jit._pickle."

# What the state of a quantized convolution consists of (torch/ao/nn/quantized/modules/conv.py, ``__getstate__``).
_CONVOLUTION: Final = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed", "output_padding"),
    *("groups", "padding_mode", "weight", "bias", "scale", "zero_point", "training"),
)
# Packed weights of embeddings: a version, a list of tensors, and numbers.
_EMBEDDING: Final = ".quantized.EmbeddingPackedParamsBase"
_FROM_TYPE: Final = "torch._tensor._rebuild_from_type_v2"


class Leaf:
    """A leaf: its name, and its value, which is a tensor, an array, or anything without parts."""

    __slots__ = ("dtype", "name", "tensors", "value")

    def __init__(self, name: str, value: Any, tensors: Parts = (), dtype: str | None = None) -> None:
        self.name = name
        """Its name: the path to it."""
        self.value = value
        """What the pickle says; a node, if that is large."""
        self.tensors = [("", value)] if isinstance(value, Odd) else tensors
        """The tensors and arrays that it stands for, or why it is none, with what is added to its name."""
        self.dtype = dtype
        """The type that its array is to have, if that may be another."""


class PickleWalk:
    """Goes through one pickle."""

    def __init__(
        self,
        parser: PickleParser,
        open_bytes: Callable[[bytes], StorageId | None],
        note: Callable[[str, str], None] | None = None,
    ) -> None:
        """``open_bytes`` returns the storage that is saved as bytes, a checkpoint of its own.

        ``note`` is told name and class of each object, before its parts come.
        """
        self._parser = parser
        self._open_bytes = open_bytes
        self._note = note
        self._left = 0  # how many more values may be visited: what is shared is shown each time, but not without end

    def leaves(self, root: Node, prefix: str = "") -> Iterator[Leaf]:
        """Yield every leaf below ``root``, whose name is ``prefix``, in the order of the pickle."""
        program = self._parser.program(root.start)
        self._left = 10_000 + _MOST_STEPS * program.size_of(program.start, program.end)
        # Parts that are still to come, and of whom they are: 0, of a node.
        stack: list[tuple[Iterator[tuple[str, Any]], int]] = [(iter([(prefix, root)]), 0)]
        while stack:
            found = self._next(stack[-1][0], root)
            if found is None:
                stack.pop()
                continue
            name, value = found
            self._left -= 1
            if self._left < 0:
                yield Leaf(name, Odd("shared values have more names than the pickle has bytes: the rest is left out"))
                return
            if isinstance(value, Node):
                why = _why_nameless(value)
                if why is not None:
                    self._parser.note_damage(root, MalformedError(why.reason, offset=why.offset))
                made = self._of_node(name, value)
                if isinstance(made, Leaf):
                    yield made
                else:
                    stack.append((made, 0))
                continue
            if isinstance(value, Call):
                if self._note is not None:
                    self._note(name, value.name)
                value = self._inside(with_storage(value, self._open_bytes))
            leaf = _leaf(name, value)
            if leaf is not None:
                yield leaf
            elif all(id(value) != whole for _, whole in stack):  # else it is inside of itself
                stack.append((_parts(name, value), id(value)))

    def _next(self, parts: Iterator[tuple[str, Any]], root: Node) -> tuple[str, Any] | None:
        """Return the next part of a value; None if there is none, or it cannot be read: others are to be had."""
        try:
            return next(parts, None)
        except (MalformedError, EndOfDataError, GapError) as error:
            self._parser.note_damage(root, MalformedError(error.reason, offset=error.offset))
            return None

    def _of_node(self, name: str, node: Node) -> Leaf | Iterator[tuple[str, Any]]:
        """Return a node as a leaf, or what is to be looked at instead: its value, if that is small, or its parts."""
        program, end = self._parser.program(node.start), node.end or node.start
        maker_end = program.arrays.end_of_maker(node.start, end) if node.kind == "call" else None
        if maker_end is not None:  # of an array of joblib, which may be cut itself
            return iter([(name, _or_odd(lambda: program.decoder.decode(node.start, maker_end)))])
        is_scalar, size = node.shape == SCALAR, program.size_of(node.start, end)
        if is_scalar and size > _LARGEST and node.kind != "alias":
            return Leaf(name, node)  # described by its size
        # What is only suspect is read: whoever shows it says so.
        is_whole = node.status is Status.COMPLETE or node.known_status in _WHOLE or _why_nameless(node) is not None
        if is_scalar or (size <= SMALL and is_whole):
            try:
                return iter([(name, program.decoder.decode(node.start, end))])
            except UnsupportedError as error:
                return Leaf(name, Odd(error.reason))
            except DataError:  # something in it is wrong: its other parts are not
                if is_scalar:
                    return Leaf(name, node)
        if node.kind != "call":
            return _parts(name, node)
        if self._note is not None:
            self._note(name, _class_of(node))
        return self._of_call(name, node, program, end)

    def _of_call(self, name: str, node: Node, program: Program, end: int) -> Leaf | Iterator[tuple[str, Any]]:
        """Return the same of a large object, or one in which something is wrong."""
        if self._is_torch(node):
            limit, size = self._parser.result.extraction.session.budget.limit, end - node.start
            if size <= limit:
                return iter([(name, _or_odd(lambda: program.decoder.decode(node.start, end)))])
            why = f"its storage lies in the pickle, in {size:,} bytes: more than the budget of {limit:,}"
            return Leaf(name, Odd(why))
        made = _made_before_cut(node, program) if node.known_status is Status.TRUNCATED else None
        if made is not None:
            return iter([(name, made)])
        try:
            array = large_array(node)
        except DataError:
            array = None
        if isinstance(array, MaskedArray):
            return _parts_of_masked(name, array)
        return _parts(name, node) if array is None else Leaf(name, node, [("", array)])

    def _inside(self, value: Any) -> Any:
        """Return an array of objects that joblib keeps in a pickle of its own; other values as they are."""
        place = value.array if isinstance(value, Call) else None
        return _or_odd(lambda: self._parser.value_inside(place)) if place is not None and place.is_pickle else value

    def _is_torch(self, node: Node) -> bool:
        """Tell whether a large object would be made by torch: it has its storage inside, as bytes."""
        if (node.end or 0) - node.start <= SMALL or node.status is not Status.COMPLETE:
            return False
        name = _class_of(node)
        return name.startswith("torch.") and ("_rebuild_" in name or name == FROM_BYTES)


def _why_nameless(node: Node) -> Finding | None:
    """Return why the key of a value in a map cannot be read; None if it can. Names are lost, then, and no values."""
    is_lost = node.key is None and node.known_status is Status.DAMAGED and node.parent is not None
    return node.finding if is_lost and node.parent.shape == MAP else None  # type: ignore[union-attr]


def _class_of(node: Node) -> str:
    """Return what a large object would be made by; "" if that is no global, or cannot be read."""
    try:
        called = node.find("callable")
        return str(called.load()) if called is not None and called.kind == "global" else ""
    except (MalformedError, EndOfDataError, GapError):
        return ""


def _made_before_cut(node: Node, program: Program) -> Call | None:
    """Return the tensor that a call made before the pickle ends, whatever follows; None: it made none, or not yet.

    What follows may be the state of any other object; of a tensor it would change neither name nor elements.
    """
    args = node.find("args")
    if args is None or args.end is None or args.known_status is not Status.COMPLETE:
        return None
    try:
        made = program.decoder.decode(node.start, args.end + 1)  # the opcode REDUCE
        return made if isinstance(made, Call) and tensors_of(made) is not None else None
    except (DataError, Odd):
        return None


def _is_of_cut_call(value: Any) -> bool:
    """Return whether a value is the node of the arguments of a call that the pickle ends in."""
    call = value.parent if isinstance(value, Node) and value.key == "args" else None
    return call is not None and call.known_status is Status.TRUNCATED


def _or_odd(make: Callable[[], Any]) -> Any:
    """Return what ``make`` returns, or why that cannot be had."""
    try:
        return make()
    except DataError as error:
        return Odd(error.reason)


def _leaf(name: str, value: Any) -> Leaf | None:
    """Return ``value`` as a leaf; None if it has parts."""
    if isinstance(value, Odd):
        return Leaf(name, value)
    if isinstance(value, Array):
        return Leaf(name, value, [("", value)]) if value.objects is None else None
    if isinstance(value, Call | Persistent | StorageId):
        return _leaf_of_object(name, value)
    has_parts = bool(value) if isinstance(value, dict | list | tuple) else False
    if isinstance(value, set | frozenset):
        has_parts = any(isinstance(part, Call | Persistent) for part in value)
    return None if has_parts else Leaf(name, value)


def _leaf_of_object(name: str, value: Call | Persistent | StorageId) -> Leaf | None:
    try:
        tensors = tensors_of(value)
    except Odd as odd:
        return Leaf(name, odd)
    if tensors is not None:
        return Leaf(name, value, tensors) if wrapped_state(value) is None else None
    if not isinstance(value, Call):
        return Leaf(name, value)
    inside = numpy_inside(value)
    if inside is not None and isinstance(inside[0], Call):
        array = array_of(inside[0])
        return Leaf(name, value, () if array is None else [("", array)], inside[1])
    beside = file_beside(value)
    if beside is not None:
        reason = f"joblib before 0.10 wrote it to a file beside this one, {shorten(beside, 80)!r}: that is not read"
        return Leaf(name, Beside(reason))
    array = array_of(value)
    if array is not None:
        return Leaf(name, value, [("", array)]) if array.objects is None else None
    if (why := why_refused(value)) is not None:
        return Leaf(name, Refused(why))
    return Leaf(name, value) if value.name in SCALARS or not _has_parts(value) else None


def _has_parts(call: Call) -> bool:
    held = call.items or call.pairs or call.kwargs or call.state is not None or isinstance(call.callable, Call)
    return bool(held) or _is_container(call.args)


def _is_container(value: Any) -> bool:
    return isinstance(value, tuple | list | dict) and any(
        isinstance(part, Node | Call | Persistent | dict | list | tuple)
        for part in (value.values() if isinstance(value, dict) else value)
    )


def _kind(value: Any) -> str:
    """Return the kind of a value, or of a node: the name of its type, but for the classes of pickles."""
    return value.kind if isinstance(value, Node) else _KINDS.get(type(value)) or type(value).__name__


def _kids(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return keys and values of the parts of a container, or of its node; numbers where it has no keys."""
    if not isinstance(value, Node):
        return value.items() if isinstance(value, dict) else enumerate(value)
    parser: PickleParser = value.result.parser  # type: ignore[assignment]
    found = parser.parts_of(value) if value.shape != SCALAR else ()
    return found if value.shape == MAP else ((number, part) for number, (_, part) in enumerate(found))


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the parts of a value, or of a node: one that is large, or cut."""
    kind = _kind(value)
    if kind == "call":
        yield from _parts_of_large(name, value) if isinstance(value, Node) else _parts_of_object(name, value)
    elif isinstance(value, Array):
        yield from _parts(name, value.objects)
    elif isinstance(value, Node | dict | list | tuple | set | frozenset):
        is_open = kind == "unfinished" or _is_of_cut_call(value)
        for key, part in _kids(value):
            if is_open and _kind(part) == "persistent":
                continue  # the storage of a tensor whose shape, and perhaps name, would have come
            if key == "__dict__" and isinstance(value, Node) and value.note == "ordered":
                yield from _attributes(name, part)
            else:
                yield join(name, key), part
        yield from _attributes(name, value.state) if isinstance(value, Ordered) else ()


def _parts_of_large(name: str, node: Node) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a large object, or one that is cut, as of any other: those of it that are large are nodes."""
    kids = list(node.children())
    objects = large_objects(kids)
    if kids and kids[-1].key == "array":
        yield name, kids[-1]
    elif objects is not None:
        yield from _parts(name, objects)
    else:
        # What has no name yet would have become the state, in a pickle that ends before it says what to do with it.
        states = [kid for kid in kids if kid.key == "state" or (kid.key is None and kid.kind in ("dict", "tuple"))]
        found = {kid.key: _made_of(kid) for kid in kids}
        call = Call(found.get("callable"), found.get("args", ()), found.get("kwargs"), node.start)
        call.state = tuple(states) if len(states) > 1 else _made_of(states[0]) if states else None
        call.items, call.pairs = found.get("items", []), list(_kids(found["pairs"])) if "pairs" in found else []
        yield from _parts_of_any(name, call)


def _made_of(node: Any) -> Any:
    """Return the value of a node that is a small scalar, or the parts of a short tuple; any other as it is."""
    is_small = isinstance(node, Node) and (node.end or node.start) - node.start <= SMALL
    if is_small and node.shape == SCALAR and node.kind != "alias" and node.known_status is Status.COMPLETE:
        try:
            return node.load()
        except UnsupportedError:  # opcodes that come later may change it
            return node
    if isinstance(node, Node) and node.kind == "tuple" and len(node) <= _SHORT and not _is_of_cut_call(node):
        return tuple(_made_of(part) for _, part in _kids(node))
    return node


def _parts_of_masked(name: str, masked: MaskedArray) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a masked array, under its name, its mask, and what stands for masked elements."""
    yield name, masked.elements
    yield join(name, "mask"), masked.mask
    if masked.fill is not None:
        yield join(name, "fill_value"), masked.fill


def _parts_of_object(name: str, call: Call) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object: its arguments, attributes, items and pairs."""
    state, array, masked = wrapped_state(call), array_of(call), masked_of(call)
    if masked is not None:
        yield from _parts_of_masked(name, masked)
    elif array is not None:
        yield from _parts(name, array.objects)
    elif tensors_of(call) is not None:  # one with attributes, which are its fourth argument
        yield name, Call(call.callable, call.args[:3], start=call.start)
        yield from _attributes(name, state)
    elif call.name == _FROM_TYPE and state is not None:  # a subclass, which has its parts there
        yield from _attributes(name, state)
    else:
        yield from _parts_of_any(name, call)


def _parts_of_any(name: str, call: Call) -> Iterator[tuple[str, Any]]:
    """Yield the same of an object that is none of those that the viewer knows."""
    packed = _packed(call)
    if packed is not None:
        for key, part in packed.items():
            yield (name if key == "" else join(name, key)), part
        return
    if _kind(call.callable) in ("call", "alias"):
        yield name, call.callable
    yield from _arguments(name, call)
    if _kind(call.kwargs) == "dict":
        yield from _parts(name, call.kwargs)
    yield from _attributes(name, call.state)
    for key, part in chain(_kids(call.items), call.pairs):
        yield join(name, key), part


def _is_private(key: Any) -> bool:
    """Return whether a module's attribute is left out: packed weights are not, state_dict() has them, too."""
    return isinstance(key, str) and key.startswith("_") and not key.startswith("_packed_")


def _packed(call: Call) -> Any:
    """Return what packed weights, or a convolution of them, were saved as, by the names of state_dict(); else None."""
    state, kind = call.state, call.name
    if kind == "torch.ScriptObject" and isinstance(state, tuple) and len(state) == 2:
        state, kind = state[0], str(state[1])
        if not kind.endswith(_EMBEDDING):
            return {"": state}
    if kind.endswith(_EMBEDDING) and isinstance(state, tuple) and len(state) > 1:
        weights = state[1]
        if isinstance(weights, Call) and weights.name.startswith(_TYPED) and isinstance(weights.args, tuple):
            weights = weights.args[0] if weights.args else None
        if isinstance(weights, list) and len(weights) == 1:
            return {"": weights[0], **{number: part for number, part in enumerate(state) if number != 1}}
        return {"": state}
    is_convolution = ".quantized." in kind and kind.rpartition(".")[2].startswith("Conv")
    if is_convolution and isinstance(state, tuple) and len(state) == len(_CONVOLUTION):
        return dict(zip(_CONVOLUTION, state, strict=True))
    return None


def _arguments(name: str, call: Call) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call that may be of interest; a single list or dict stands for the object."""
    args = call.args
    if isinstance(args, Node):  # not finished, or a long tuple
        yield from _parts(name, args)
    if not isinstance(args, tuple) or not args:
        return
    if call.name.startswith(_TYPED) or (len(args) == 1 and isinstance(args[0], list | tuple | dict)):
        yield name, args[0]
    elif _is_container(args):
        yield from _parts(name, args)


def _attributes(name: str, state: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's attributes: those of its dict, and of its slots."""
    for number, part in _kids(state if _kind(state) == "tuple" else (state,)):
        kind = _kind(part)
        if kind != "dict":
            if kind == "list":  # of a class with slots and no dict
                yield from _parts(name, part)
            elif kind in ("call", "persistent", "tuple", "set", "frozenset"):
                yield join(name, number), part
            continue
        look_up = part.find if isinstance(part, Node) else part.get
        own = [found for key in (*_OWN, _BELOW) if _kind(found := look_up(key)) == "dict"]
        module = len(own) == len(_OWN) + 1
        for found in own[:-1] if module else ():
            yield from _parts(name, found)
        for key, found in _kids(part):
            if not (module and _is_private(key)):
                yield join(name, key), found
        if module:
            yield from _parts(name, own[-1])


# -- What was pickled, as the program had it: dicts, lists and tuples, with tensors that are not read as leaves --------

# A pickle of more bytes is not made a tree in memory.
_MOST_IN_TREE: Final = 64 << 20


class SavedObject:
    """An object of a class that is not plain data: never made, only described."""

    __slots__ = ("args", "attributes", "items", "name", "pairs")

    def __init__(self, name: str) -> None:
        self.name = name
        """Full name of the class, or of the function that would make it."""
        self.args: Any = ()
        """The arguments of that call."""
        self.attributes: Any = None
        """Its state: usually a dict of its attributes; None: none."""
        self.items: list[Any] = []
        """What would be appended to it."""
        self.pairs: dict[Any, Any] = {}
        """Keys and values that would be set in it."""

    def __repr__(self) -> str:
        return f"<{self.name or 'object'}>"


def tree_of(viewer: PickleViewer) -> Any:
    """Return the tree of ``viewer``. Raises `LimitError` if its pickle is larger than 64 MiB."""
    root = viewer.pickled()
    if root is None:
        return None
    parser: PickleParser = root.result.parser  # type: ignore[assignment]
    size = parser.program(root.start).size_of(root.start, root.end or root.start)
    if size > _MOST_IN_TREE:
        reason = "the pickle is too large for a tree in memory: list its tensors instead"
        raise LimitError(reason, option="", wanted=size, got=_MOST_IN_TREE)
    return _Builder(viewer, parser).build(root.to_python(None) if root.shape != "scalar" else root.load())


class _Builder:
    """Turns values of a pickle into those of the tree; what is shared stays shared."""

    def __init__(self, viewer: PickleViewer, parser: PickleParser) -> None:
        self._viewer, self._parser = viewer, parser
        self._made: dict[int, tuple[Any, Any]] = {}  # by id; with the value itself, so that no id is used twice
        self._todo: list[tuple[str, Any, Any]] = []  # names, values, and what was made of them and is still empty

    def build(self, value: Any) -> Any:
        """Return the tree of ``value``, without recursion: tuples become lists first where they hold others."""
        made = self._new("", value)
        while self._todo:
            name, source, target = self._todo.pop()
            if isinstance(target, dict):
                for key, part in source.items():
                    target[key] = self._new(join(name, key), part)
            elif isinstance(target, list):
                target.extend(self._new(join(name, number), part) for number, part in enumerate(source))
            else:
                self._fill(name, source, target)
        return made

    def _fill(self, name: str, call: Call, target: SavedObject) -> None:
        target.args = self._new(name, call.args)
        target.attributes = self._new(name, call.state)
        target.items = [self._new(join(name, number), part) for number, part in enumerate(call.items)]
        for key, part in call.pairs:
            hashable = key if isinstance(key, str | bytes | int | float | bool | None) else str(key)
            target.pairs[hashable] = self._new(join(name, key), part)

    def _new(self, name: str, value: Any) -> Any:
        if _is_plain(value):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        made: Any
        if isinstance(value, Call) and value.array is not None and value.array.is_pickle:
            made = self._new(name, self._parser.value_inside(value.array))
        elif isinstance(value, Call | Persistent):
            made = self._leaf(name, value)
            if isinstance(made, SavedObject):
                self._todo.append((name, value, made))
        elif isinstance(value, tuple) and all(_is_plain(part) for part in value):
            made = value
        else:
            made = {} if isinstance(value, dict) else []
            self._todo.append((name, value, made))
        self._made[id(value)] = value, made
        return made

    def _leaf(self, name: str, value: Call | Persistent) -> Any:
        viewer = self._viewer
        whole = with_storage(value, viewer.open_bytes) if isinstance(value, Call) else value
        try:
            parts = tensors_of(whole)
        except Odd:
            parts = None
        if parts is not None:
            made = {suffix.removeprefix("."): viewer._make(name + suffix, part, None) for suffix, part in parts}
            return made.get("", made)  # codes, without the scale that belongs to them
        if isinstance(value, Persistent):
            meant = viewer.storages.named(value)
            return value if meant is None else viewer._make(name, meant, None)
        array = array_of(value)
        if array is not None and array.objects is None:
            return viewer._make(name, array, None)
        masked = masked_of(value)
        if masked is not None and masked.elements.objects is None:
            both = {"elements": (name, masked.elements), "mask": (join(name, "mask"), masked.mask)}
            return {key: viewer._make(*part, None) for key, part in both.items()}
        return SavedObject(value.name)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list | tuple | Call | Persistent)
