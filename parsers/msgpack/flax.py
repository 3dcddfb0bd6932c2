"""Checkpoints of flax: MessagePack with arrays as extensions (google/flax, flax/serialization.py).

The payload of an extension of type 1 (array) or 3 (scalar of numpy) is MessagePack of its own: [shape, name of the
element type, bytes]; that of type 2 (complex number) is [real, imaginary]. Arrays of more than 2^30 bytes are maps with
the key ``__msgpack_chunked_array__``, of a shape and of chunks. States, besides those of `parser`::

    state          reads                            goes to
    expect_parts   the head of an array             expect_part
    expect_part    an element, which gets a name    itself; DONE after the last one
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, MalformedError
from pparse.kernels import interpreted
from pparse.kernels.msgpack_skip import SIZES, skip
from pparse.lazy import lazy_pattern
from pparse.parsers.msgpack.parser import HEAD, MsgpackParser, container, decode, head, is_extension, is_text
from pparse.tree.context import DONE
from pparse.tree.entry import MAP
from pparse.tree.parser import Confidence, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.tree.context import Done, NodeContext, State, Step
    from pparse.tree.entry import Key
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.visit import Visit

CHUNKED: Final = "__msgpack_chunked_array__"
_ARRAY: Final = ("shape", "dtype", "data")
_PARTS: Final = {"ndarray": _ARRAY, "scalar": _ARRAY, "complex": ("real", "imag")}
# How the payload of an array and of a scalar begins, behind the type.
_MARKS: Final = (b"\x01\x93", b"\x03\x93")
_BEGINNING: Final = lazy_pattern(rb"(?s:\xc7.|\xc8.{2}|\xc9.{4}|\xd4|\xd5|\xd6|\xd7|\xd8)[\x01\x03]\x93")
_KINDS: Final = {1: "ndarray", 2: "complex", 3: "scalar"}


@interpreted
class FlaxParser(MsgpackParser):
    """A checkpoint of flax."""

    name = "flax"
    description = "flax checkpoint (MessagePack)"
    extensions = (".msgpack",)
    named_is_enough = False
    signatures = (*MsgpackParser.signatures, *signatures(b"\xc7", b"\xc8", b"\xc9"))
    viewer = "pparse.viewers.flax.viewer:FlaxViewer"
    is_generic = False
    refines = ("msgpack",)
    references = ("https://github.com/google/flax/blob/main/flax/serialization.py",)
    limitations = (
        "recognised by an array in the first 64 KiB; other files are read with -f flax",
        "types below 8 bits, which flax stores in a byte each, and other than numbers are listed, not read",
    )
    shapes = {**MsgpackParser.shapes, **dict.fromkeys(_PARTS, MAP)}
    documents = "one"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN if an array lies in the first 64 KiB."""
        if container(next(iter(excerpt.head(1)), 0)) is None and not _is_array(excerpt.head(HEAD), 0):
            return Confidence.NO
        for size in (HEAD, 16 * HEAD):
            if _has_array(excerpt.head(size)):
                return Confidence.CERTAIN
        return Confidence.NO

    def begin(self, ctx: NodeContext) -> tuple[int, State | Done, int]:
        """Begin with the first child."""
        if ctx.node.kind in _PARTS:
            return ctx.pos, self.expect_parts, 0
        return super().begin(ctx)

    def emit_extension(self, ctx: NodeContext, key: Key, number: int, count: int, at: int) -> None:
        """Emit an array, or another extension."""
        if number in _KINDS:
            ctx.emit_next(key, _KINDS[number], count, at=at, status=None)
        else:
            super().emit_extension(ctx, key, number, count, at)

    def note_keys(self, ctx: NodeContext, block: bytes, base: int, places: Iterable[int]) -> None:
        """Note the first key that is no text in a map that begins with one: what was read may be no keys at all."""
        node, end = ctx.node, base + len(block)
        if self.first_odd_key is not None or node.kind != "map":
            return
        for at in places:
            if at < end and not is_text(block[at - base]):
                if is_text(self.result.extraction.data.pread(node.note[1], 1)[0]):
                    self.first_odd_key = at
                return

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Look at everything, arrays included, node by node."""
        return self.checked_nodes()

    def plain_value(self, node: Node) -> Any:
        """Return a scalar's value: arrays in containers are shown by their nodes."""
        return Parser.plain_value(self, node)

    def expect_parts(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Read the head of the array that an extension holds."""
        (code,) = ctx.take("B")
        if code != 0x90 + len(_PARTS[ctx.node.kind]):
            raise MalformedError(f"the {ctx.node.kind} does not hold an array of its parts", offset=ctx.pos - 1)
        return ctx.pos, self.expect_part, 0

    def expect_part(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit one part of an array."""
        names = _PARTS[ctx.node.kind]
        if ctx.emitted == len(names):
            if not ctx.is_at_end:
                raise MalformedError(f"the {ctx.node.kind} has more than its parts", offset=ctx.pos)
            return ctx.pos, DONE, 0
        pos, state, need = self._emit_value(ctx, block, base, names[ctx.emitted], ctx.pos)
        return pos, self.expect_part if state == self.expect_child else state, need


def _is_array(raw: bytes, at: int) -> bool:
    """Say whether an array of flax begins at ``raw[at]``: an extension of type 1 that holds a shape and a name."""
    if at >= len(raw) or not is_extension(raw[at]):
        return False
    try:
        _, start = head(raw, at)
        if raw[start : start + 2] not in _MARKS:
            return False
        shape, behind = decode(raw, start + 2)
        name, _ = decode(raw, behind)
    except (EndOfDataError, MalformedError):
        return False
    return isinstance(shape, tuple) and isinstance(name, str) and name.isalnum() | ("_" in name)


def _has_array(raw: bytes) -> bool:
    """Say whether an array of flax begins in ``raw``, or a chunked one."""
    at, chunked = 0, b"\xb9" + CHUNKED.encode()
    if _BEGINNING.search(raw) is None and chunked not in raw:  # as in most files of others
        return False
    while at < len(raw):
        if _is_array(raw, at) or raw.startswith(chunked, at):
            return True
        size = SIZES[raw[at]]
        if size:
            at += size
        elif container(raw[at]) is not None:
            try:
                _, at = head(raw, at)
            except EndOfDataError:
                return False
        else:
            at, pending = skip(raw, at, 1, len(raw))
            if pending:
                return False
    return False
