"""What floating tensors can be cast to in a conversion."""

from __future__ import annotations

from contextlib import suppress

from pparse.errors import OptionError
from pparse.tensors.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

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
Q8_0: Final = DType("Q8_0", 8, "float")
"""Stands for the blocks of that name where a type is asked for: eight bits for each element, and a scale for 32."""


def cast_target(name: object, form: str | None = None) -> DType:
    """Return the type that floating tensors are cast to, by any name that `DType.named` knows, or ``Q8_0``.

    Raises `OptionError` for any other than those of `CASTS`, and `Q8_0`; it names
    those that a file of ``form`` can hold.
    """
    if str(name).upper() == Q8_0.name:
        return Q8_0
    with suppress(ValueError):
        known = DType.named(name)
        if known.name in CASTS:
            return known
    of = f" of a .{form}" if form is not None else ""
    raise OptionError(f"floating tensors{of} can be cast to {_castable(form)}, not to {str(name)!r}")


def _castable(form: str | None) -> str:
    """Return the names of the types that floating tensors can have in a file of ``form``; None: of any."""
    if form is None:
        return f"{', '.join(CASTS)}, and for GGUF to {Q8_0.name}"
    if form != "gguf":
        return ", ".join(CASTS)
    from pparse.parsers.gguf.types import TYPES

    held = {known.dtype for known in TYPES.values()}
    return ", ".join([name for name in CASTS if name in held] + [Q8_0.name])
