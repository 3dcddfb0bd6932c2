"""The types that GGUF files have for values and for tensors, by their numbers.

Numbers, and sizes of blocks, as in ggml (``include/ggml.h``, ``src/ggml-common.h``) and the package gguf
(``constants.py``).
"""

from __future__ import annotations

from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.tensors.block_tensor import Decode


# Numbers of the types of values that are neither numbers nor truth values.
TEXT, ARRAY = 8, 9
NAMES: Final = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "text", "array"),
    *("uint64", "int64", "float64"),
)
"""What types of values are called, by their number."""
LAYOUTS: Final = {kind: code for kind, code in enumerate("BbHhIif?--Qqd") if code != "-"}
"""Their layouts, as `struct` writes them."""


class GgmlType:
    """How elements are stored: in blocks, each of so many elements in so many bytes."""

    __slots__ = ("block_bytes", "block_size", "dtype", "name", "number")

    def __init__(self, number: int, name: str, block_size: int, block_bytes: int, dtype: str | None = None) -> None:
        self.number = number
        """Its number in files."""
        self.name = name
        """What ggml calls it."""
        self.block_size = block_size
        """Elements of a block; 1 for plain types."""
        self.block_bytes = block_bytes
        """Bytes of a block."""
        self.dtype = dtype
        """Name of the element type, if the bytes are those of an array; None for quantised types."""


TYPES: Final = {
    number: GgmlType(number, name, *sizes)
    for number, name, *sizes in (
        (0, "F32", 1, 4, "float32"),
        (1, "F16", 1, 2, "float16"),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1, "int8"),
        (25, "I16", 1, 2, "int16"),
        (26, "I32", 1, 4, "int32"),
        (27, "I64", 1, 8, "int64"),
        (28, "F64", 1, 8, "float64"),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2, "bfloat16"),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    )
}
"""The types whose sizes are known."""

# What the package gguf does not decode; and the types whose blocks it swaps for other machines.
_UNDECODED: Final = frozenset(("Q8_1", "Q8_K", "Q1_0", "Q2_0"))
_IN_BIG_ENDIAN: Final = frozenset(("Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4"))

OTHERS: Final = {
    4: "Q4_2, which ggml removed",
    5: "Q4_3, which ggml removed",
    31: "Q4_0_4_4, which ggml removed",
    32: "Q4_0_4_8, which ggml removed",
    33: "Q4_0_8_8, which ggml removed",
    36: "IQ4_NL_4_4, which ggml removed",
    37: "IQ4_NL_4_8, which ggml removed",
    38: "IQ4_NL_8_8, which ggml removed",
}
"""Numbers that are, or were, taken by other types."""


@cache
def decoder(name: str, order: str) -> Decode | None:
    """Return what decodes the blocks of a type in files of this byte order; None if nothing does.

    What it needs is imported when it is first called.
    """
    if name in _UNDECODED or (order == "big" and name not in _IN_BIG_ENDIAN):
        return None

    def decode(blocks: NDArray[Any], out: NDArray[Any]) -> None:
        from pparse.kernels.ggml_blocks import DECODERS, swapped

        DECODERS[name](blocks if order == "little" else swapped(name, blocks), out)

    return decode


def type_words(number: int) -> str:
    """Return what there is to say of a type that cannot be read."""
    known = OTHERS.get(number)
    return f"its type is {number} ({known})" if known else f"its type is {number}, which is not known"
