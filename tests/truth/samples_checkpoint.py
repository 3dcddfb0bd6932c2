"""Samples: a checkpoint of TensorFlow whose data file is hit, and one whose index is; each lies beside the other."""

from __future__ import annotations

import random
from math import prod

from pparse.kernels.crc32c import crc32c, masked
from tests.checkpoint_files import MAGIC, entry, header, table
from tests.truth.known import Sample, Value, mixed, sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# Number of the type, bytes of an element.
KINDS = {"F32": (1, 4), "F64": (2, 8), "U8": (4, 1), "I64": (9, 8), "BF16": (14, 2), "F16": (19, 2)}
SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "codes": ("U8", (100, 16)),
    "embed": ("F32", (64, 48)),
    **{
        f"h{number}/{name}": shape
        for number in range(5)
        for name, shape in {
            "bias": ("F16", (40,)),
            "ids": ("I64", (40,)),
            "scale": ("F64", ()),
            "up": ("BF16", (40, 160)),
            "weight": ("F32", (40, 40)),
        }.items()
    },
}
DATA, INDEX = "m.data-00000-of-00001", "m.index"
PER_BLOCK = 4
FOOTER = 48


def contents_of(seed: int) -> dict[str, bytes]:
    """Return bytes for all tensors; keys of a table are in order."""
    rng = random.Random(seed)
    return {
        name: mixed(rng, prod(shape) * KINDS[kind][1], number)
        for number, (name, (kind, shape)) in enumerate(sorted(SHAPES.items()))
    }


def places_in(contents: dict[str, bytes]) -> dict[str, tuple[int, int]]:
    """Return where the tensors are in the data file."""
    places, at = {}, 0
    for name, content in contents.items():
        places[name] = (at, at + len(content))
        at += len(content)
    return places


def index_of(contents: dict[str, bytes]) -> bytes:
    """Return the index of a data file."""
    pairs = [(b"", header())]
    for name, (start, end) in places_in(contents).items():
        kind, shape = SHAPES[name]
        pairs.append((name.encode(), entry(KINDS[kind][0], shape, start, end - start, contents[name])))
    return table(pairs, PER_BLOCK)


@sample
def make_tf_checkpoint() -> Sample:
    """The data file is hit: each tensor stands where the index says, which has its checksum."""
    contents = contents_of(71)
    places = places_in(contents)
    values = {name: Value(content, places[name]) for name, content in contents.items()}
    marks = (8, *dict.fromkeys(mark for place in places.values() for mark in place))
    return Sample(
        "tf-checkpoint",
        DATA,
        b"".join(contents.values()),
        "tensors",
        values,
        "offset",
        marks,
        hashed=True,
        siblings={INDEX: index_of(contents)},
        entry=INDEX,
        leads=(INDEX,),
        saved=(DATA, f"{DATA}.safetensors"),
        read=read_values,
    )


@sample
def make_tf_checkpoint_index() -> Sample:
    """The index is hit: blocks of four entries, each with its checksum; a tensor is found if its own is whole."""
    contents = contents_of(72)
    content = index_of(contents)
    blocks = blocks_of(content)
    # The first entry of the first block is the header.
    values = {
        name: Value(raw, blocks[(number + 1) // PER_BLOCK]) for number, (name, raw) in enumerate(contents.items())
    }
    marks = (8, *dict.fromkeys(mark for span in blocks for mark in span), len(content) - FOOTER, len(content) - 8)
    return Sample(
        "tf-checkpoint-index",
        INDEX,
        content,
        "tensors",
        values,
        "chunks",
        marks,
        hashed=True,
        siblings={DATA: b"".join(contents.values())},
        entry=INDEX,
        leads=(DATA,),
        saved=(INDEX, f"{INDEX}.safetensors"),
        read=read_values,
    )


def varint_at(raw: bytes, pos: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and where it ends."""
    value = shift = 0
    while raw[pos] > 0x7F:
        value |= (raw[pos] & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
    return value | raw[pos] << shift, pos + 1


def pairs_at(content: bytes, at: int, size: int) -> dict[bytes, bytes]:
    """Return keys and values of a block that must be sound."""
    raw = content[at : at + size + 1]
    assert content[at + size : at + size + 1] == b"\0", "not compressed"
    assert masked(crc32c(raw)).to_bytes(4, "little") == content[at + size + 1 : at + size + 5], "its checksum is wrong"
    end = size - 4 - 4 * int.from_bytes(raw[size - 4 : size], "little")
    found, pos, key = {}, 0, b""
    while pos < end:
        shared, pos = varint_at(raw, pos)
        own, pos = varint_at(raw, pos)
        length, pos = varint_at(raw, pos)
        key = key[:shared] + raw[pos : pos + own]
        found[key] = raw[pos + own : pos + own + length]
        pos += own + length
    assert pos == end
    return found


def blocks_of(content: bytes) -> list[tuple[int, int]]:
    """Return where the blocks of a table are, each with the five bytes behind it."""
    assert content.endswith(MAGIC)
    pos = len(content) - FOOTER
    numbers = []
    for _ in range(4):
        number, pos = varint_at(content, pos)
        numbers.append(number)
    spans = []
    for handle in pairs_at(content, *numbers[2:]).values():
        at, pos = varint_at(handle, 0)
        spans.append((at, at + varint_at(handle, pos)[0] + 5))
    return spans


def read_values(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the tensors of a data file by their places in it; or those that an index names, which must be sound."""
    content = path.read_bytes()
    if path.name == DATA:
        assert len(content) == len(sample.content), "a file of another length"
        return {name: content[slice(*value.place)] for name, value in sample.values.items()}
    found = {}
    for start, end in blocks_of(content):
        for key, raw in pairs_at(content, start, end - start - 5).items():
            if key:
                about = number_fields(raw)
                at, size = about.get(4, 0), about[5]
                found[key.decode()] = sample.siblings[DATA][at : at + size]
    return found


def number_fields(raw: bytes) -> dict[int, int]:
    """Return the numbers of a message by their fields."""
    found, pos = {}, 0
    while pos < len(raw):
        tag, pos = varint_at(raw, pos)
        if tag & 7 == 5:
            pos += 4
            continue
        value, pos = varint_at(raw, pos)
        if tag & 7 == 2:
            pos += value
        else:
            found[tag >> 3] = value
    return found
