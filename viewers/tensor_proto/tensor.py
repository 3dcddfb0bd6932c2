"""A tensor of a message: its bytes as `Tensor` has them, its texts, and what becomes known of both later."""

from __future__ import annotations

from pparse.errors import GapError, MalformedError, UnsupportedError
from pparse.findings import Finding, Status
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.reader import Range
    from pparse.viewers.tensor_proto.maker import TensorMaker

# Names of the types whose elements are strings.
_TEXTS: Final = frozenset(("DT_STRING", "DT_STRING_REF", "STRING"))


class ProtoTensor(Tensor):
    """A tensor of a message of TensorFlow or ONNX.

    ``status``, ``verified`` and ``finding`` follow what becomes known about its bytes (``parts``): a checksum that
    fails later makes the tensor DAMAGED then.
    """

    __slots__ = ("_listing", "_maker", "_parts")

    # How the strings are read, and the bytes they lie in if these are in one stretch.
    _listing: tuple[Callable[[], Iterator[bytes]], Range | None] | None
    _parts: tuple[Range, ...]
    _maker: TensorMaker | None

    def made_of(self, maker: TensorMaker, parts: tuple[Range, ...]) -> None:
        """Record which bytes the tensor was made from."""
        self._maker, self._parts = maker, parts

    @property
    def _why_suspect(self) -> str | None:
        """Return why its bytes may be wrong though they can be read."""
        maker = self._maker
        return None if maker is None else maker.make.why_suspect(self._parts)

    @property
    def status(self) -> Status:
        """Status as far as is known."""
        status = super().status
        return (
            status if status is Status.DAMAGED or status is Status.MISSING or not self._why_suspect else Status.DAMAGED
        )

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status

    @property
    def verified(self) -> bool | None:
        """False if a checksum contradicts the bytes; True also if one confirmed the message that lists the numbers."""
        told = self._finding is not None and self._finding.code == "hash"
        if told or self._why_suspect is not None:
            return False
        known = super().verified
        if known is None and self._parts and self._status is Status.COMPLETE and self.encoding != "raw":
            listed = None if self._content is None else self._content.data  # made of the message
            proved = (part.data.is_proved(part.start, part.end) for part in self._parts if part.data is not listed)
            return True if all(proved) else None
        return known

    @verified.setter
    def verified(self, verified: bool | None) -> None:
        self._verified = verified

    @property
    def finding(self) -> Finding | None:
        """What is wrong with it, if anything."""
        reason = self._why_suspect
        if reason is None or self._maker is None or self._status is Status.DAMAGED or self._status is Status.MISSING:
            return super().finding
        return self._maker.hash_finding(self.name, reason)

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self._finding = finding

    def _read_into(self, offset: int, view: memoryview) -> None:
        try:
            super()._read_into(offset, view)
        except (MalformedError, GapError) as error:
            # Found while reading: a stream in a chunk whose hash was not compared.
            if self._status is Status.COMPLETE and self._maker is not None:
                cause = next((part.data.error for part in self._parts if part.data.error is not None), None)
                reason = (cause or error).reason
                self._status = Status.DAMAGED
                self._finding = self._maker.hash_finding(self.name, reason, "malformed")
                self._maker.owner.note_damage()
            self._refuse_if_not_whole()
            raise

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
        if self.status is not Status.TRUNCATED:
            self._refuse_if_not_whole()
        self._check_unchanged()
        yield from self._listing[0]()

    def numpy(self, **options: Any) -> Any:
        """Return the tensor as `Tensor.numpy` does; strings as an array of bytes objects (dtype object)."""
        if self.dtype is not None or self._listing is None or options.get("raw"):
            return super().numpy(**options)
        import numpy as np

        self._refuse_if_not_whole()
        self._owner.extraction.session.limits.check(
            "scalar_bytes", 8 * self.size, "the array of strings", path=self.name
        )
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
