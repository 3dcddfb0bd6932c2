"""Hand-made chunked files: a message type with a field of every kind, trees in short, and random cases.

A tag is a tuple of steps: an int is a field number, ``At(n)`` an index, ``Key(s="a")`` a map key. A tree is
``tree(chunk, (tag, tree), …)``.
"""

from __future__ import annotations

import functools
import io
import random

from pparse.protos import message_class

KINDS = [
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "float",
    "double",
    "bool",
    "string",
    "bytes",
]
TYPE_NUMBERS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "message": 11,
    "bytes": 12,
    "uint32": 13,
    "enum": 14,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
KEYS = {"string": "s", "bool": "boolean", "uint32": "ui32", "uint64": "ui64", "int32": "i32", "int64": "i64"}
ALL = "referee.All"


def _fields() -> list[tuple[str, str, str, bool]]:
    """Return name, type, key type of a map, and whether it is repeated; the numbers are the places, from 1."""
    found = [(kind, kind, "", False) for kind in (*KINDS, "enum")]
    found += [("one", "message", "", False), ("many", "message", "", True)]
    found += [(f"by_{key}", "message", key, True) for key in KEYS]
    found += [(f"many_{kind}", kind, "", True) for kind in ("int32", "string", "bytes", "enum", "double")]
    found += [(f"named_{kind}", kind, "string", True) for kind in ("int32", "string", "bytes", "enum", "double")]
    found += [("left", "message", "", False), ("right", "string", "", False)]
    return found


NUMBER = {name: number for number, (name, *_) in enumerate(_fields(), 1)}


@functools.cache
def descriptors() -> bytes:
    """Return the FileDescriptorSet with ``referee.All``."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="referee/all.proto", package="referee", syntax="proto3")
    colors = file.enum_type.add(name="Color")
    for number, name in enumerate(("NONE", "RED", "GREEN")):
        colors.value.add(name=name, number=number)
    body = file.message_type.add(name="All")
    body.oneof_decl.add(name="choice")

    def put(message, name: str, number: int, kind: str, label: int) -> descriptor_pb2.FieldDescriptorProto:
        field = message.field.add(name=name, number=number, label=label, type=TYPE_NUMBERS[kind])
        if kind in ("message", "enum"):
            field.type_name = ".referee.All" if kind == "message" else ".referee.Color"
        return field

    for number, (name, kind, key, repeated) in enumerate(_fields(), 1):
        field = put(body, name, number, kind, 3 if repeated else 1)
        if key:
            # The compiler names the entry of a map after its field, in camel case.
            entry = body.nested_type.add(name="".join(word.capitalize() for word in name.split("_")) + "Entry")
            entry.options.map_entry = True
            put(entry, "key", 1, key, 1)
            put(entry, "value", 2, kind, 1)
            field.type = 11
            field.type_name = f".referee.All.{entry.name}"
        elif name in ("left", "right"):
            field.oneof_index = 0
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@functools.cache
def all_class():
    """Return the class of ``referee.All``, in a pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(ALL))


# -- trees and files -------------------------------------------------------------------------------------------------


class At(int):
    """An index."""


class Key:
    """A map key: ``Key(s="a")``, ``Key(boolean=True)``, ``Key(ui32=3)`` …"""

    def __init__(self, **kind: object) -> None:
        ((self.kind, self.value),) = kind.items()

    def __repr__(self) -> str:
        return f"Key({self.kind}={self.value!r})"


class Raw(bytes):
    """What is said to be a serialized message."""


def tree(chunk: int | None = None, *fields: tuple):
    """Return a ChunkedMessage: ``tree(0, ((17,), tree(1)))``."""
    made = message_class("tensorflow.proto_splitter.ChunkedMessage")()
    if chunk is not None:
        made.chunk_index = chunk
    for tag, below in fields:
        add(made, tag, below)
    return made


def add(parent, tag: tuple, below) -> None:
    """Append a chunked field to a ChunkedMessage."""
    field = parent.chunked_fields.add()
    field.message.CopyFrom(below)
    for step in tag:
        index = field.field_tag.add()
        match step:
            case At():
                index.index = step
            case int():
                index.field = step
            case Key():
                setattr(index.map_key, step.kind, step.value)
            case None:
                pass  # a step that says nothing


def write(chunks: list, message, *, options: str | None = "uncompressed", version: tuple = (1, 0), bad=()) -> bytes:
    """Return a .cpb file of these chunks (messages, bytes, or `Raw`) and this tree; what is said of them is true."""
    from pparse.riegeli import RecordWriter

    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")(message=message)
    metadata.version.splitter_version, metadata.version.join_version = version
    metadata.version.bad_consumers.extend(bad)
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        for chunk in chunks:
            content = chunk if isinstance(chunk, bytes) else chunk.SerializeToString()
            writer.write_record(content)
            kind = 2 if isinstance(chunk, bytes) and not isinstance(chunk, Raw) else 1
            metadata.chunks.add(type=kind, size=len(content), offset=writer.last_pos.numeric)
        writer.write_record(metadata.SerializeToString())
    return out.getvalue()


def copy_of(message):
    return type(message).FromString(message.SerializeToString())


def _rank(step, seen: dict[bytes, int]) -> int:
    """Return what a step is sorted by: a key by when it was first met."""
    if step.HasField("map_key"):
        return seen.setdefault(step.map_key.SerializeToString(), len(seen))
    return step.index if step.HasField("index") else step.field


# -- random cases ----------------------------------------------------------------------------------------------------


class RandomCase:
    """A random file: ``chunks`` and ``message``; ``odd`` holds what it has that we deliberately treat otherwise."""

    def __init__(self, seed: int, *, messages_only: bool = False) -> None:
        self.chooser = random.Random(seed)
        self.messages_only = messages_only
        self.chunks: list = []
        self.odd: set[str] = set()
        self.wild = self.chooser.random() < 0.25
        self.message = tree()
        if self.chooser.random() < 0.85:
            self.message.chunk_index = self.put(self.body(2))
        for _ in range(self.chooser.choice((1, 2, 3, 4, 6, 9))):
            self.field(self.message, 2)
        if self.chooser.random() < 0.3:
            self.renumber()
        if not messages_only:
            self.resolve_all()

    def data(self) -> bytes:
        version = (self.chooser.randrange(5), 0)
        bad = [self.chooser.randrange(1, 9)] if self.chooser.random() < 0.2 else []
        options = self.chooser.choice(("uncompressed", "brotli:1", "zstd:1", "snappy", "transpose,uncompressed"))
        return write(self.chunks, self.message, options=options, version=version, bad=bad)

    def put(self, chunk) -> int:
        # One chunk may serve several fields.
        if self.chunks and self.chooser.random() < 0.05 and type(self.chunks[-1]) is type(chunk) is not bytes:
            return len(self.chunks) - 1
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    def renumber(self) -> None:
        """Shuffle the chunks, so that their order is not that of the tree."""
        places = list(range(len(self.chunks)))
        self.chooser.shuffle(places)
        self.chunks = [chunk for _, chunk in sorted(zip(places, self.chunks, strict=True), key=lambda pair: pair[0])]
        todo = [self.message]
        while todo:
            node = todo.pop()
            if node.HasField("chunk_index"):
                node.chunk_index = places[node.chunk_index] if node.chunk_index < len(places) else node.chunk_index
            todo += [field.message for field in node.chunked_fields]

    def resolve_all(self) -> None:
        """List what is below one key of a map in the order of the other rules.

        TensorFlow compares no further than a key, and takes such entries as they are listed; we do compare further.
        """
        todo = [self.message]
        while todo:
            node = todo.pop()
            groups: dict[bytes, list[int]] = {}
            for number, field in enumerate(node.chunked_fields):
                for place, step in enumerate(field.field_tag, 1):
                    if step.HasField("map_key"):
                        start = b"|".join(part.SerializeToString() for part in field.field_tag[:place])
                        groups.setdefault(start, []).append(number)
                        break
            for places in groups.values():
                found = [copy_of(node.chunked_fields[place]) for place in places]
                seen: dict[bytes, int] = {}
                found.sort(
                    key=lambda field, seen=seen: (
                        [_rank(step, seen) for step in field.field_tag],
                        field.message.chunk_index,
                    )
                )
                for place, field in zip(places, found, strict=True):
                    node.chunked_fields[place].CopyFrom(field)
            todo += [field.message for field in node.chunked_fields]

    def body(self, depth: int):
        """Return a message with some content, and elements and entries for tags to lead to."""
        pick = self.chooser
        made = all_class()()
        for kind in pick.sample(KINDS, 3):
            setattr(made, kind, self.value(kind))
        if pick.random() < 0.3:
            made.enum = pick.randrange(3)
        if pick.random() < 0.3:
            made.many_string.append(pick.choice("abc"))
        if pick.random() < 0.3:
            made.many_int32.extend(pick.choices(range(-3, 9), k=2))
        if pick.random() < 0.2:
            made.named_string[pick.choice("xyz")] = pick.choice("abc")
        if pick.random() < 0.2:
            made.right = "r"
        if depth:
            for _ in range(pick.choice((0, 1, 2, 2, 3))):
                made.many.append(self.body(depth - 1))
            if pick.random() < 0.4:
                made.one.CopyFrom(self.body(depth - 1))
            if pick.random() < 0.4:
                key = pick.choice([*KEYS])
                getattr(made, f"by_{key}")[self.key(key)].CopyFrom(self.body(depth - 1))
            if pick.random() < 0.1:
                made.left.CopyFrom(self.body(depth - 1))
        return made

    def value(self, kind: str):
        pick = self.chooser
        match kind:
            case "bool":
                return pick.random() < 0.7
            case "string":
                return pick.choice(("", "text", "é", "1", "true"))
            case "bytes":
                return pick.choice((b"", b"\xff\0", b"bytes"))
            case "float":
                return pick.choice((0.5, -2.0, float("inf"), 1e38, 3.25))
            case "double":
                return pick.choice((0.1, -1e300, float("-inf"), 2.3e-308, 0.0))
        bits = 64 if "64" in kind else 32
        if kind.startswith(("u", "f")):
            return pick.choice((0, 7, (1 << bits) - 1, 1 << bits - 1))
        return pick.choice((0, -1, 12, (1 << bits - 1) - 1, -1 << bits - 1))

    def text(self, kind: str, value) -> bytes:
        match kind:
            case "bytes":
                return value
            case "string" | "right":
                return value.encode()
            case "bool":
                return b"true" if value else b"false"
        return repr(value).encode()

    def key(self, kind: str):
        pick = self.chooser
        match kind:
            case "string":
                return pick.choice(("a", "b", ""))
            case "bool":
                return pick.random() < 0.5
        return pick.choice((0, 1, 2) if kind.startswith("u") else (0, 1, -1))

    def steps(self, depth: int) -> list:
        """Return the groups of a tag that leads to a message."""
        pick = self.chooser
        found: list = []
        while not found or (len(found) < 5 and pick.random() < 0.3):
            match pick.choice(("one", "many", "many", "map", "left")):
                case "one":
                    found.append(NUMBER["one"])
                case "left":
                    found.append(NUMBER["left"])
                case "many":
                    # Beyond the end TensorFlow aborts: worth a look now and then.
                    found += [NUMBER["many"], At(pick.choice((0, 0, 0, 0, 0, 1) if not self.wild else (0, 1, 2, 3)))]
                case "map":
                    kind = pick.choice([*KEYS])
                    found += [NUMBER[f"by_{kind}"], Key(**{KEYS[kind]: self.key(kind)})]
        return found

    def field(self, parent, depth: int) -> None:
        """Add a random chunked field."""
        pick = self.chooser
        how = pick.random()
        if how < 0.15:
            add(parent, (), tree(self.put(self.body(1))))
        elif how < 0.65 or self.messages_only:
            below = tree(self.put(self.body(1)))
            for _ in range(pick.choice((0, 0, 1, 3)) if depth else 0):
                self.field(below, depth - 1)
            add(parent, tuple(self.steps(depth)), below)
        elif how < 0.95 or not self.wild:
            number, text = self.scalar()
            above = self.steps(depth) if pick.random() < 0.3 else []
            add(parent, (*above, number), tree(self.put(text)))
        else:
            self.oddity(parent)

    def scalar(self) -> tuple[int, bytes]:
        """Return the number of a scalar field, and a value as text."""
        kind = self.chooser.choice((*KINDS, "enum", "right"))
        if kind == "enum":
            return NUMBER[kind], self.chooser.choice((b"NONE", b"RED", b"GREEN"))
        value = self.value("string" if kind == "right" else kind)
        return NUMBER[kind], self.text(kind, value)

    def oddity(self, parent) -> None:
        """Add a field that is wrong, or that TensorFlow cannot do."""
        text = self.put(b"7")
        body = self.put(self.body(0))
        odd = {
            "unknown field": ((999,), body),
            "index on singular": ((NUMBER["one"], At(0)), body),
            "index first": ((At(0),), body),
            "key first": ((Key(s="a"),), body),
            "two indices": ((NUMBER["many"], At(0), At(0)), body),
            "no index": ((NUMBER["many"],), body),
            "no key": ((NUMBER["by_string"],), body),
            "no such chunk": ((NUMBER["one"],), 10_000),
            "empty step": ((None,), body),
            "element of scalars": ((NUMBER["many_string"], At(0)), text),
            "value of scalars": ((NUMBER["named_bytes"], Key(s="a")), text),
            "no index of scalars": ((NUMBER["many_int32"],), text),
            "below a scalar": ((NUMBER["string"], NUMBER["one"]), text),
            "tiny number": ((NUMBER["double"],), self.put(b"5e-324")),
        }
        name = self.chooser.choice([*odd])
        self.odd.add(name)
        tag, chunk = odd[name]
        if chunk == 10_000:
            self.chunks.append(b"unused")
        add(parent, tag, tree(chunk if chunk < 10_000 else 10_000))


class CompiledCase(RandomCase):
    """A random file of ``ManyFields``, a type that is compiled into TensorFlow.

    A type made of descriptors keeps the fields of a map as a list there, a key of several slices several times, and
    leads a tag to the first of them, though the last one counts: `RandomCase` cannot tell much about that.
    """

    full_name = "tensorflow.proto_splitter_testdata.ManyFields"

    def body(self, depth: int):
        pick = self.chooser
        made = message_class(self.full_name)()
        if pick.random() < 0.6:
            made.string_field = pick.choice(("", "text", "é"))
        if pick.random() < 0.4:
            made.repeated_string_field.extend(pick.choices("abc", k=2))
        if pick.random() < 0.4:
            made.map_field_uint32[pick.choice((0, 1, 3_000_000_000))] = pick.choice("abc")
        if pick.random() < 0.4:
            made.map_field_int64[pick.choice((0, -1, 1 << 40))] = pick.choice("abc")
        if depth:
            if pick.random() < 0.5:
                made.field_one.CopyFrom(self.body(depth - 1))
            for _ in range(pick.choice((0, 1, 2, 3))):
                made.repeated_field.add().CopyFrom(self.body(depth - 1))
            for key in (True, False):
                if pick.random() < 0.5:
                    made.nested_map_bool[key].CopyFrom(self.body(depth - 1))
        return made

    def steps(self, depth: int) -> list:
        pick = self.chooser
        found: list = []
        while not found or (len(found) < 5 and pick.random() < 0.3):
            found += pick.choice(
                ([1], [2, At(pick.choice((0, 0, 0, 0, 1)))], [7, Key(boolean=True)], [7, Key(boolean=False)])
            )
        return found

    def scalar(self) -> tuple[int, bytes]:
        return 3, self.chooser.choice((b"", b"chunk", "ü".encode()))

    def oddity(self, parent) -> None:
        """Nothing is wrong with these."""
        add(parent, (), tree(self.put(self.body(1))))
