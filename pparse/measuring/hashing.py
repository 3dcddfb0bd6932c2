"""Identities: of the content of a tensor, of the structure of a model, and of a model; the same in every format.

``H`` is BLAKE3, or SHA-256, which yields 32 bytes. Texts are UTF-8; names are as JSON has them, in quotes and ASCII.

- *content* of a tensor: ``H("pparse tensor 1\\nTYPE SHAPE\\n" H(piece) H(piece) …)``. TYPE and SHAPE are its words
  (`pparse.measuring.content`): ``float32 2,3``. Pieces are 16 MiB of its bytes each, the last one less; of no bytes,
  none. So many workers can hash one tensor.
- *structure*: ``H("pparse structure 1\\n" h h …)``, where the h, sorted, are ``H("NAME TYPE SHAPE\\n")`` of each
  tensor.
- *model*: ``H("pparse model 1\\n" h h …)``, where the h, sorted, are ``H("NAME CONTENT\\n")``; CONTENT in lower-case
  hexadecimal digits.

Order, layout, shards, metadata, graphs and tensors that only say how a model was saved do not count. There is none of
what is not whole.
"""

from __future__ import annotations

from json import dumps

from pparse.document.opening import refuse_unknown
from pparse.errors import DataError, OptionError, UnsupportedError
from pparse.findings import Status
from pparse.lazy import Declared
from pparse.measuring.content import BLOCK, content_blocks, content_size, lies_plain, shape_word, type_word
from pparse.tensors.status import refuse_expanded
from pparse.workers.parts import PART, Part, divided, measured, why_not
from pparse.workers.results import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.document.opening import Source
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

PIECE: Final = 16 << 20
"""Bytes of a tensor that are hashed by themselves."""
# BLAKE3 is so fast that what is done for each block that is read costs some percent of it.
_BLOCK: Final = 4 * BLOCK
ALGORITHMS: Final = ("blake3", "sha256")
# Memory of a tensor while a model is hashed.
_HELD: Final = 2 * 32


def new_hash(algorithm: str) -> Any:
    """Return a hash object with ``update`` and ``digest``. Raises `OptionError`, or `UnsupportedError`."""
    if algorithm == "sha256":
        from hashlib import sha256

        return sha256()
    if algorithm != "blake3":
        raise OptionError(f"no algorithm {algorithm!r}; algorithms: {', '.join(ALGORITHMS)}")
    try:
        from blake3 import blake3
    except ImportError as error:
        raise UnsupportedError("BLAKE3 needs the package blake3; sha256 does without", package="blake3") from error
    return blake3()


def content_hash(tensor: Tensor, algorithm: str = "blake3") -> str:
    """Return the identity of a tensor's content in hexadecimal digits. Raises the errors of `Tensor.readinto`."""
    refuse_expanded(tensor)
    return _of_pieces(tensor, algorithm, [piece_hashes(tensor, algorithm)])


def piece_hashes(tensor: Tensor, algorithm: str, start: int = 0, stop: int | None = None) -> bytes:
    """Return the hashes of its pieces, or of those from byte ``start`` to ``stop``. Raises the same."""
    piece, room, found = new_hash(algorithm), PIECE, bytearray()
    for block in content_blocks(tensor, _BLOCK, start, stop):
        while block:
            piece.update(block[:room])
            block, room = block[room:], max(0, room - len(block))
            if not room:
                found += piece.digest()
                piece, room = new_hash(algorithm), PIECE
    if room < PIECE:
        found += piece.digest()
    return bytes(found)


def _of_pieces(tensor: Tensor, algorithm: str, hashes: Iterable[bytes]) -> str:
    """Return the identity of a tensor's content from the hashes of its pieces."""
    whole = new_hash(algorithm)
    whole.update(f"pparse tensor 1\n{type_word(tensor)} {shape_word(tensor)}\n".encode("utf-8", "surrogatepass"))
    for some in hashes:
        whole.update(some)
    found: str = whole.hexdigest()
    return found


class _Pieces(Part):
    """The hashes of some pieces of a tensor."""

    most = together = 4 * PART  # hashing is so fast that sending more tasks would cost some percent of it

    def __init__(self, algorithm: str, viewer: Viewer, tensor: Tensor, start: int, stop: int | None) -> None:
        super().__init__([(viewer, tensor)], start, stop)
        self._algorithm = algorithm
        self.what = f"hash {algorithm}"

    def measure(self) -> bytes:
        """Hash them."""
        return piece_hashes(self.tensors[0], self._algorithm, self.start, self.stop)

    def noted(self, result: Any) -> Any:
        """Return hashes in hexadecimal digits."""
        return result.hex()

    def known(self, noted: Any) -> Any:
        """Return hashes of hexadecimal digits."""
        return bytes.fromhex(noted)


def hash_if_whole(tensor: Tensor, algorithm: str = "sha256") -> str | None:
    """Return the identity of a tensor's content, to be compared; None if it cannot be read: `check` says why."""
    try:
        return content_hash(tensor, algorithm)
    except DataError:
        return None


class TensorHash(Declared):
    """The identity of a tensor's content."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    nbytes: int
    content: str | None = None
    """In hexadecimal digits; None if it is not whole, or of an unknown type."""
    status: Status = Status.COMPLETE
    reason: str = ""
    """Why there is none."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        shape = None if self.shape is None else list(self.shape)
        told = {"name": self.name, "dtype": self.dtype, "shape": shape, "nbytes": self.nbytes}
        return {**told, "content": self.content, "status": self.status.value, "reason": self.reason or None}


class ModelHash(Declared):
    """The identities of a model, and of its tensors."""

    algorithm: str
    tensors: list[TensorHash]
    structure: str | None
    """None if names, types or shapes are not all known."""
    model: str | None
    """None if not all of it is whole."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        tensors = [tensor.to_dict() for tensor in self.tensors]
        return {"algorithm": self.algorithm, "structure": self.structure, "model": self.model, "tensors": tensors}


class Hashing:
    """The tensors of a model, hashed one by one as they are asked for; at the end, `structure` and `model`."""

    def __init__(
        self,
        viewer: Viewer,
        algorithm: str = "blake3",
        chosen: Callable[[Viewer, Tensor], bool] | None = None,
        *,
        content: bool = True,
        workers: Workers | None = None,
    ) -> None:
        """``chosen``: which tensors count. Without ``content``, no bytes are read, and `model` is None."""
        new_hash(algorithm)
        self.structure: str | None = None
        """The identity of the structure, once all tensors were asked for; None if it is not known."""
        self.model: str | None = None
        """The identity of the model, once all tensors were asked for; None if not all of it is whole."""
        self.count = 0
        """How many tensors there were."""
        self._viewer, self._algorithm, self._chosen, self._content = viewer, algorithm, chosen, content
        self._workers = workers or Workers()

    def __iter__(self) -> Iterator[TensorHash]:
        viewer, budget = self._viewer, self._viewer.extraction.session.budget
        lines, contents = bytearray(), bytearray()
        named = whole = True
        with budget.charge(0, "the hashes of tensors") as charge:
            for tensor, parts in self._tensors():
                self.count += 1
                found = self._hashed(tensor, parts)
                name = dumps(tensor.name)
                if not viewer.is_bookkeeping(tensor):
                    named = named and tensor.is_shape_known
                    whole = whole and found.content is not None
                    lines += self._line(f"{name} {found.dtype} {shape_word(tensor)}\n")
                    contents += self._line(f"{name} {found.content}\n")
                if len(lines) * _HELD // 32 > charge.amount:
                    charge.resize(charge.amount * 2 + (64 << 10))
                yield found
            extent = viewer.extent()
            if named and (extent.document_status is Status.COMPLETE or not viewer.names_may_be_lost):
                self.structure = self._joined("structure", lines)
            if whole and self._content and extent.status is Status.COMPLETE:
                self.model = self._joined("model", contents)

    def _tensors(self) -> Iterator[tuple[Tensor, Iterable[Callable[[], bytes]]]]:
        viewer = self._viewer
        wanted = (one for one in viewer.tensors() if self._chosen is None or self._chosen(viewer, one))
        if not self._content:
            return ((tensor, ()) for tensor in wanted)
        return measured(wanted, self._parts_of, self._workers)

    def _parts_of(self, tensor: Tensor) -> list[Part]:
        viewer, is_plain = self._viewer, tensor.is_complete and tensor.dtype is not None and lies_plain(tensor)
        places = divided(tensor, content_size(tensor) if is_plain else 0, _Pieces.most)
        return [_Pieces(self._algorithm, viewer, tensor, *place) for place in places]

    def _hashed(self, tensor: Tensor, parts: Iterable[Callable[[], bytes]]) -> TensorHash:
        shape = tensor.shape if tensor.is_shape_known else None
        found = TensorHash(tensor.name, type_word(tensor), shape, tensor.stored_nbytes)
        if self._content:
            try:
                found.content = _of_pieces(tensor, self._algorithm, (part() for part in parts))
            except DataError as error:
                found.status, found.reason = why_not(self._viewer, tensor, error)
        return found

    def _line(self, text: str) -> bytes:
        made = new_hash(self._algorithm)
        made.update(text.encode("utf-8", "surrogatepass"))
        found: bytes = made.digest()
        return found

    def _joined(self, what: str, digests: bytearray) -> str:
        made = new_hash(self._algorithm)
        made.update(f"pparse {what} 1\n".encode())
        for digest in sorted(digests[at : at + 32] for at in range(0, len(digests), 32)):
            made.update(digest)
        found: str = made.hexdigest()
        return found


def hash(
    source: Source | Viewer, *, algorithm: str = "blake3", content: bool = True, executor: Any = None, **how: Any
) -> ModelHash:
    """Return the identities of a model and of its tensors, which are the same in every format (docs/compare.md).

    ``algorithm``: ``blake3`` or ``sha256``. Without ``content`` no bytes of tensors are read. ``executor``: who is to
    read them, a `pparse.ProcessPool` or any other executor of `concurrent.futures`. A `Viewer` is not closed; of any
    other source, ``how`` are keyword arguments of `pparse.view`. Raises what that does, and `OptionError`.
    """
    from pparse.tensors.viewer import Viewer, view

    refuse_unknown("hash", how)
    if not isinstance(source, Viewer):
        with view(source, **how) as viewer:
            return hash(viewer, algorithm=algorithm, content=content, executor=executor)
    hashing = Hashing(source, algorithm, content=content, workers=Workers(executor))
    tensors = list(hashing)
    return ModelHash(algorithm, tensors, hashing.structure, hashing.model)
