"""Arrays to fill, and what the missing elements of a truncated tensor are filled up with."""

from __future__ import annotations

from pparse.errors import LimitError
from pparse.limits import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from pparse.tensors.dtype import DType


def filler(dtype: DType, form: Any, value: Any) -> NDArray[Any]:
    """Return an array of one element, of numpy's type ``form``, that stands for ``value``; of texts, 0 is an empty one.

    Raises ValueError if the type has no such value.
    """
    import numpy as np

    found = np.zeros(1, form)
    if type(value) is int and not value:
        if found.dtype.name in ("datetime64", "timedelta64"):
            # "NaT" of times that may have no unit, and so no zero; numpy warns if it is to convert a text.
            found.view(f"{found.dtype.byteorder}i8")[0] = np.iinfo("i8").min
        return found
    try:
        found[0] = value
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"cannot fill {dtype} with {value!r}: {error}") from error
    return found


def new_floats(count: int, name: str) -> NDArray[Any]:
    """Return an array of ``count`` float32 to fill, for the tensor ``name``. Raises `LimitError` if there is no room.

    Few bytes may stand for any number of elements.
    """
    import numpy as np

    try:
        return np.empty(count, np.float32)
    except (MemoryError, ValueError) as error:
        reason = f"the array would take {format_size(4 * count)}"
        raise LimitError(reason, option="a slice", wanted=4 * count, path=name) from error
