"""Numbers from one type to another; floating ones rounded to the nearest, ties to even."""

from __future__ import annotations

from pparse.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

    from pparse.tensors.dtype import DType

_BY_NUMPY: Final = ("float64", "float32", "float16")


def as_type(values: NDArray[Any], target: DType) -> tuple[NDArray[Any], int]:
    """Return ``values`` as ``target``, and how many of the numbers that cannot hold, not even rounded.

    Raises `OptionError` for complex numbers as real ones.
    """
    import numpy as np

    if target.kind == "float" and (values.dtype.kind == "f" or values.dtype.isbuiltin == 2):
        return cast(values, target)
    if values.dtype.kind == "c" and target.kind != "complex":
        raise OptionError(f"complex numbers would lose their imaginary parts as {target}; use complex64")
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
