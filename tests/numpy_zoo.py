"""Arrays of every type, order and rank that numpy writes to files."""

from __future__ import annotations

from math import prod

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

NUMBERS: Final = ("?", *"bhilqBHILQefdgFDG")
SIMPLE: Final = tuple(
    order + code
    for code in (
        *("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "U3", "M8", "M8[ns]", "m8[25s]"),
        *(np.dtype(code).str[1:] for code in "gG"),
        *(f"M8[{unit}]" for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ps", "fs", "as")),
    )
    for order in "<>"
) + ("|b1", "|i1", "|u1", "|S5", "|V2", "|V1", "|V7", "|V16")
STRUCTURES: Final[dict[str, Any]] = {
    "plain": [("a", "<i4"), ("b", "<f8")],
    "mixed orders": [("a", ">i2"), ("b", "<f4"), ("c", "|b1"), ("d", ">U2"), ("e", ">M8[ms]")],
    "subarrays": [("a", "<f4", (2, 3)), ("b", ">i2", 4)],
    "nested": [("a", [("x", ">f2"), ("y", [("z", "|S3", (2,))], (2,))]), ("b", "|u1")],
    "aligned": np.dtype([("a", "|u1"), ("b", "<f8"), ("c", "|u1")], align=True),
    "offsets": np.dtype({"names": ["a", "b"], "formats": ["<i4", "<f2"], "offsets": [3, 11], "itemsize": 20}),
    "titles": [(("long name", "a"), "<i4"), (("another", "b"), "<f4", (2,))],
    "unicode": [("größe", "<f4"), ("名前", "|S2")],
    "quotes": [("it's", "<f4"), ('say "x"\\', "|S2")],
    "voids": [("a", "|V3"), ("b", "<f4")],
    "empty text": [("a", "<U0"), ("b", "<f4")],
}
SHAPES: Final = ((), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (2, 2, 1, 3, 2), (0,), (0, 3), (3, 0), (2, 0, 3), (1, 1))


def content(dtype: np.dtype[Any], shape: tuple[int, ...], order: str = "C") -> np.ndarray[Any, Any]:
    """Return an array with bytes that differ from each other, and are good ones for the type."""
    count = prod(shape)
    raw = (np.arange(count * dtype.itemsize, dtype=np.uint32) * 37 % 251).astype("u1")
    if dtype.kind == "b":
        raw &= 1
    elif dtype.kind == "U" or (dtype.names is not None and "U" in str(dtype)):
        raw[:] = 0  # not each number is a character
    return np.frombuffer(raw.tobytes(), dtype, count).reshape(shape).copy(order)  # type: ignore[call-overload]


def arrays() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield names and arrays."""
    for kind, described in (*((text, text) for text in SIMPLE), *STRUCTURES.items()):
        dtype = np.dtype(described)
        for shape in SHAPES:
            for order in "CF":
                yield f"{kind} {shape} {order}", content(dtype, shape, order)
    for text in ("<U3", ">U3"):
        yield f"texts {text}", np.array([["a", "bcd"], ["é", "日本"]], text)
