"""What readers of a safetensors file or an .npz refuse, or cannot tell apart: names, and a header that is too long.

Whoever writes such a file asks here before the first byte: `pparse convert`, ``get -o`` and ``recover``.
"""

from __future__ import annotations

import json

from pparse.parsers.safetensors.header import METADATA, REFERENCE_HEADER_LIMIT, STORED_DTYPES, word_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.tensors.dtype import DType

    # Name, type, shape, and where the bytes begin and end.
    Entry = tuple[str, str, Sequence[int], int, int]

# What numpy appends to a name in an .npz.
NPY: Final = ".npy"
# The length of a name in a zip takes 16 bits.
_MOST_NAME: Final = 0xFFFF - len(NPY)
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def is_text(text: str) -> bool:
    """Return whether UTF-8 can hold ``text``: not half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def why_no_name(name: str, form: str) -> str | None:
    """Return why no tensor can have that name in a file of ``form`` ("safetensors", "npz"); None if one can."""
    if not is_text(name):
        return "UTF-8 cannot hold its name"
    if form == "safetensors" and name == METADATA:
        return f"no tensor can be called {METADATA} in a safetensors file"
    if form == "npz" and "\0" in name:
        return "readers of zip files end a name at its NUL character"
    if form == "npz" and len(name.encode()) > _MOST_NAME:
        return "the name is longer than a zip file can hold"
    return None


def why_unfit(name: str, dtype: DType, size: int) -> str | None:
    """Return why no safetensors file can hold a tensor of ``size`` elements under that name; None if one can."""
    why = why_no_name(name, "safetensors")
    if why is not None:
        return why
    if not dtype.is_number:
        return f"its elements, of {dtype}, are not numbers"
    if word_of(dtype) is None:
        known = any(dtype.name == stored.name for stored in STORED_DTYPES.values())
        return f"safetensors has no type for {dtype}" + (" in whole bytes" if known else "")
    if size * dtype.bits % 8:
        return f"{size} elements of {dtype} do not fill whole bytes"
    return None


def clashes(items: Iterable[Any], form: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield two items, and the ``name`` by which readers of a file of ``form`` would know both.

    To numpy, a member of an .npz has two names, with and without ``.npy``.
    """
    known: dict[str, Any] = {}
    for item in items:
        for name in (item.name, item.name + NPY) if form == "npz" else (item.name,):
            first = known.setdefault(name, item)
            if first is not item:
                yield first, item, name
                break


def safetensors_header(entries: Iterable[Entry], metadata: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Yield the header of a safetensors file: how it opens, a piece for each entry, how it closes."""
    yield b"{" if metadata is None else f'{{"{METADATA}":{_encode(dict(metadata))}'.encode()
    separator = "" if metadata is None else ","
    for name, word, shape, begin, end in entries:
        yield (
            f'{separator}{_encode(name)}:{{"dtype":"{word}","shape":[{",".join(map(str, shape))}],'
            f'"data_offsets":[{begin},{end}]}}'
        ).encode()
        separator = ","
    yield b"}"


def safetensors_head(header: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first ``size`` bytes of a safetensors file: the length of the header, the header, and spaces."""
    yield (size - 8).to_bytes(8, "little")
    at = 8
    for piece in header:
        at += len(piece)
        yield piece
    yield b" " * (size - at)


def measured(header: Iterable[bytes]) -> tuple[int, int]:
    """Return the length of what `safetensors_header` yields, filled up, and how many of its entries readers accept."""
    length, accepted = 0, -1  # how it opens is no entry
    for piece in header:
        length += len(piece)
        accepted += piece != b"}" and length < REFERENCE_HEADER_LIMIT  # one byte more closes it
    return length + -length % 8, max(0, accepted)
