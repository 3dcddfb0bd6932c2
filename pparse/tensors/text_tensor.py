"""`TextTensor`: a tensor whose elements are strings of any length."""

from __future__ import annotations

from pparse.errors import UnsupportedError
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Range

# Names of the types whose elements are strings.
_TEXTS: Final = frozenset(("DT_STRING", "DT_STRING_REF", "STRING"))


class TextTensor(Tensor):
    """A tensor that may be of strings: its ``_listing`` says how they are read; None if it is not."""

    __slots__ = ("_listing",)

    # How the strings are read, and the bytes they lie in if these are in one stretch.
    _listing: tuple[Callable[[], Iterator[bytes]], Range | None] | None

    @property
    def is_text(self) -> bool:
        """Whether its elements are strings, which `strings` yields."""
        return self.stored_dtype in _TEXTS

    def strings(self) -> Iterator[bytes]:
        """Yield the elements of a tensor of strings, in C order.

        Raises `UnsupportedError` for other types, `MalformedError` or `EndOfDataError` if an element is not whole.
        """
        if self._listing is None:
            raise UnsupportedError(f"{self.name!r} is of type {self.stored_dtype}, not of strings", path=self.name)
        self._refuse_unless_cut()
        self._check_unchanged()
        yield from self._listing[0]()

    def numpy(self, **options: Any) -> Any:
        """Return the tensor as `Tensor.numpy` does; strings as an array of bytes objects (dtype object)."""
        if self.dtype is not None or self._listing is None or options.get("raw") or options.get("dtype") is not None:
            return super().numpy(**options)
        import numpy as np

        self._refuse_if_not_whole()
        size = 8 * self.size + self.stored_nbytes
        self._owner.extraction.session.limits.check("scalar_bytes", size, "the array of strings", path=self.name)
        array = np.empty(self.size, object)
        for number, text in enumerate(self.strings()):
            array[number] = text
        return array.reshape(self.shape)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects; for strings, bytes or an array of them, reading the list to the last one."""
        if self.dtype is not None or self._listing is None:
            return super().__getitem__(index)
        from pparse.tensors.selection import normalise, pick

        items = normalise(index, self.shape)
        self._refuse_if_not_whole()
        return pick(self.strings(), items, self.shape, self._owner.extraction.session.limits)
