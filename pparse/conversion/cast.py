"""Numbers from one type to another; floating ones rounded to the nearest, ties to even."""

from __future__ import annotations

from pparse.errors import OptionError
from pparse.tensors.dtype import DTYPES, DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

# Types of scales and of packed weights are left out: their numbers mean nothing without their blocks.
CASTS: Final = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
_WORDS: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
Q8_0: Final = DType("Q8_0", 8, "float")
"""Stands for the blocks of that name where a type is asked for: eight bits for each element, and a scale for 32."""
_BY_NUMPY: Final = ("float64", "float32", "float16")


def cast_target(name: str, form: str | None = None) -> DType:
    """Return the type that floating tensors are cast to; ggml's words are understood, too.

    Upper and lower case are the same. Raises `OptionError` for any other than those of `CASTS`, and `Q8_0`; it names
    those that a file of ``form`` can hold.
    """
    if name.upper() == Q8_0.name:
        return Q8_0
    known = _WORDS.get(name.upper(), name.lower())
    if known not in CASTS:
        of = f" of a .{form}" if form is not None else ""
        raise OptionError(f"floating tensors{of} can be cast to {_castable(form)}, not to {name!r}")
    return DTYPES[known]


def _castable(form: str | None) -> str:
    """Return the names of the types that floating tensors can have in a file of ``form``; None: of any."""
    if form is None:
        return f"{', '.join(CASTS)}, and for GGUF to {Q8_0.name}"
    if form != "gguf":
        return ", ".join(CASTS)
    from pparse.parsers.gguf.types import TYPES

    held = {known.dtype for known in TYPES.values()}
    return ", ".join([name for name in CASTS if name in held] + [Q8_0.name])


def as_type(values: NDArray[Any], target: DType) -> tuple[NDArray[Any], int]:
    """Return ``values`` as ``target``, and how many of the numbers that cannot hold, not even rounded.

    Raises `OptionError` for complex numbers as real ones.
    """
    import numpy as np

    if target.kind == "float" and (values.dtype.kind == "f" or values.dtype.isbuiltin == 2):
        return cast(values, target)
    if values.dtype.kind == "c" and target.kind != "complex":
        raise OptionError(f"--dtype {target}: complex numbers would lose their imaginary parts; use complex64")
    with np.errstate(all="ignore"):
        made = values.astype(target.numpy)
        if made.dtype.kind in "biu":
            lost = np.count_nonzero(made != np.trunc(values))
        else:
            lost = np.count_nonzero(np.isfinite(values)) - np.count_nonzero(np.isfinite(made))
    return made, max(0, int(lost))


def cast(values: NDArray[Any], target: DType) -> tuple[NDArray[Any], int]:
    """Return floating ``values`` as ``target``, and how many finite ones are too large for it.

    Those become infinite, or NaN in a type without infinity. A NaN stays a NaN.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        if values.dtype.isbuiltin != 1:  # types of ml_dtypes: float32 holds each of their numbers
            values = values.astype(np.float32)
        if target.name in _BY_NUMPY:
            found = values.astype(target.numpy)
        else:
            found = _rounded_to_odd(values).astype(target.numpy)
        lost = np.count_nonzero(np.isfinite(values)) - np.count_nonzero(np.isfinite(found))
    return found, int(lost)


def _rounded_to_odd(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``values`` as float32, of which rounding once more gives what rounding ``values`` once would.

    A value between two float32 becomes the one with an odd last bit, so it stays off the ties of any narrower type.
    Rounded to the nearest twice, it could come to lie on a tie by the first, and go the wrong way by the second.
    """
    import numpy as np

    if values.dtype != np.float64:
        return values.astype(np.float32, copy=False)
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    even = (bits & 1 == 0) & (back != values) & ~np.isnan(values)
    # The other neighbour: nearer to zero if the nearest is too large, else farther from it (of zero: with its sign).
    inward = np.abs(back) > np.abs(values)
    step = np.where(inward, np.uint32(0xFFFFFFFF), np.uint32(1))
    bits = np.where(even, bits + step, bits)
    return bits.view(np.float32)
