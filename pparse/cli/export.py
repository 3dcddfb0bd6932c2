"""Writes tensors to files for other programs: .npy, .npz, .safetensors and .csv, a block at a time."""

from __future__ import annotations

from math import prod

from pparse.display.text import shorten
from pparse.errors import OptionError, PparseError, UnsupportedError
from pparse.parsers.safetensors.entry import REFERENCE_HEADER_LIMIT
from pparse.recovery.reader_rules import NPY, clashes, measured, safetensors_header, why_no_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, BinaryIO, Final

    from pparse.tensors.scales import Quantisation
    from pparse.tensors.tensor import Tensor

FORMS: Final = (".npy", ".npz", ".safetensors", ".json", ".csv")
_BLOCK: Final = 4 << 20
_RENAME: Final = "'pparse convert --rename' writes it under another name"


def form_of(path: str | None) -> str | None:
    """Return the file type of the extension of ``path``; None if it is not one of these."""
    return None if path is None else next((form for form in FORMS if path.lower().endswith(form)), None)


def _is_numeric(dtype: Any) -> bool:
    return dtype.kind in "?biufc" or dtype.isbuiltin == 2  # those of ml_dtypes are void to numpy


def _advice(dtype: Any) -> str:
    return "--dtype float32 writes numbers" if _is_numeric(dtype) else "write .npy or .npz"


class Item:
    """A tensor to write: its ``name``, and its array as a whole (a slice, or converted) or in blocks."""

    def __init__(self, tensor: Tensor, array: Any = None, dtype: Any = None) -> None:
        self.name = tensor.name
        self.lost = 0
        """How many of its numbers, so far, the type asked for cannot hold."""
        self._tensor = tensor
        self._array = array
        self._dtype = dtype
        if array is None:
            tensor._known_dtype()
        self.shape: tuple[int, ...] = tensor.shape if array is None else array.shape
        stored = tensor.dtype.numpy if array is None and tensor.dtype is not None else array.dtype
        if dtype is not None and not _is_numeric(stored):
            raise OptionError(f"{stored} is no type of numbers: --dtype cannot convert it", path=tensor.name)
        self.dtype = stored if dtype is None else dtype

    def blocks(self) -> Iterator[Any]:
        """Yield its elements in C order, as flat arrays."""
        parts = self._tensor.blocks(_BLOCK) if self._array is None else iter((self._array.reshape(-1),))
        for part in parts:
            if self._dtype is None:
                yield part
            else:
                made, lost = as_type(part, self._dtype)
                self.lost += lost
                yield made

    @property
    def is_foreign(self) -> bool:
        """Whether numpy does not know the type, and reads it back as plain bytes."""
        return self.dtype.isbuiltin == 2


def as_type(array: Any, dtype: Any) -> tuple[Any, int]:
    """Return ``array`` as ``dtype``, and how many of its numbers that cannot hold, not even rounded.

    Raises `OptionError` for complex numbers as real ones.
    """
    import numpy as np

    if array.dtype.kind == "c" and dtype.kind != "c":
        raise OptionError(f"--dtype {dtype}: complex numbers would lose their imaginary parts; use complex64")
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
        if dtype.kind in "biu":
            lost = np.count_nonzero(made != np.trunc(array))
        else:
            lost = np.count_nonzero(np.isfinite(array)) - np.count_nonzero(np.isfinite(made))
    return made, max(0, int(lost))


def refuse_cast(found: Quantisation, dtype: str | None) -> None:
    """Raise `OptionError` if codes are to be cast to the type of ``--dtype``, without their scales."""
    if dtype is not None and (found.codes.dtype is None or dtype_named(dtype) != found.codes.dtype.numpy):
        raise OptionError(
            f"--dtype {dtype} would cast codes without {found.parts[0].name}: --dequantize multiplies them by it",
            path=found.codes.name,
        )


def note_of(items: Sequence[Item], form: str) -> str | None:
    """Return a note about types that numpy cannot read back; None if there are none."""
    names = sorted({str(item.dtype) for item in items if item.is_foreign})
    if form not in (".npy", ".npz") or not names:
        return None
    return f"numpy reads {', '.join(names)} back as bytes without a type (V2, V1); --dtype float32 writes numbers"


def kept_metadata(viewer: Any, form: str) -> dict[str, str]:
    """Return the ``__metadata__`` of a safetensors source for a file of type ``form``; of a set, the first shard's."""
    if form != ".safetensors" or viewer is None:
        return {}
    found: Mapping[str, Any] = viewer.metadata if viewer.format == "safetensors" else {}
    if viewer.is_set:
        for name in viewer.parser.shard_names():
            try:
                found = viewer.shard_viewer(name).metadata
                break
            except PparseError:  # the status of this shard is reported elsewhere
                continue
    return {key: value for key, value in found.items() if isinstance(value, str)}


def refuse_unwritable(items: Sequence[Item], form: str) -> None:
    """Raise `UnsupportedError` for a name or a type that a file of type ``form`` cannot hold, `OptionError` for tensors
    that could not be told apart in it, or several in a file for one."""
    if form not in (".npz", ".safetensors"):
        if len(items) != 1:
            raise OptionError(f"a {form} file holds one tensor, and {len(items)} match; write .npz or .safetensors")
        return
    words = _words() if form == ".safetensors" else None
    for item in items:
        why = why_no_name(item.name, form[1:])
        if why is not None:
            raise UnsupportedError(f"{why}: nothing was written; {_RENAME}", path=shorten(item.name, 80))
        if words is not None and str(item.dtype) not in words:
            raise UnsupportedError(f"safetensors has no type for {item.dtype}; {_advice(item.dtype)}", path=item.name)
    for first, item, name in clashes(items, form[1:]):
        raise OptionError(
            f"names would collide, and nothing was written: {first.name!r} and {item.name!r} would both be {name!r}; "
            f"{_RENAME}"
        )


def write_items(items: Sequence[Item], form: str, stream: BinaryIO, metadata: dict[str, str]) -> None:
    """Write ``items``, which were not refused, to a file of type ``form``, and ``metadata`` if that is .safetensors.

    Raise the errors of `Tensor.blocks`, and `OptionError` for a header that is too long.
    """
    if form == ".npz":
        _write_npz(items, stream)
    elif form == ".safetensors":
        _write_safetensors(items, stream, metadata)
    else:
        (_write_npy if form == ".npy" else _write_csv)(items[0], stream)


def _write_npy(item: Item, stream: BinaryIO) -> None:
    from pparse.writers.npy import npy_header

    stream.write(npy_header(item.dtype, item.shape))
    for part in item.blocks():
        stream.write(part.tobytes())


def _write_npz(items: Sequence[Item], stream: BinaryIO) -> None:
    from zipfile import ZIP_STORED, ZipFile, ZipInfo

    with ZipFile(stream, "w", ZIP_STORED) as archive:
        for item in items:
            with archive.open(ZipInfo(item.name + NPY), "w", force_zip64=True) as member:
                _write_npy(item, member)  # type: ignore[arg-type]


def _words() -> dict[str, str]:
    """Return what safetensors calls each of the types that have whole bytes."""
    from pparse.parsers.safetensors.entry import STORED_DTYPES

    return {dtype.name: word for word, dtype in STORED_DTYPES.items() if dtype.bits >= 8}


def _write_safetensors(items: Sequence[Item], stream: BinaryIO, metadata: dict[str, str]) -> None:
    words = _words()

    def entries() -> Iterator[tuple[str, str, Sequence[int], int, int]]:
        at = 0
        for item in items:
            end = at + prod(item.shape) * item.dtype.itemsize
            yield item.name, words[str(item.dtype)], item.shape, at, end
            at = end

    length, fitting = measured(safetensors_header(entries(), metadata or None))
    if length > REFERENCE_HEADER_LIMIT:
        raise OptionError(
            f"the header would take {length:,} bytes, more than the {REFERENCE_HEADER_LIMIT:,} that readers accept, "
            f"which is room for {fitting:,} of the {len(items):,} tensors; 'pparse convert --max-shard-size' writes "
            "several files"
        )
    stream.write(length.to_bytes(8, "little"))
    for piece in safetensors_header(entries(), metadata or None):
        stream.write(piece)
        length -= len(piece)
    stream.write(b" " * length)
    for item in items:
        for part in item.blocks():
            stream.write(part.tobytes())


def _write_csv(item: Item, stream: BinaryIO) -> None:
    """Write a line for each row along the last dimension; with one dimension, a line for each value."""
    if item.dtype.kind not in "?biufc" and not item.is_foreign:
        raise OptionError(f"a .csv holds numbers, and these are {item.dtype}: write .json or .npy", path=item.name)
    width = item.shape[-1] if len(item.shape) > 1 else 1
    row: list[str] = []
    for part in item.blocks():
        numbers = part.astype("f4") if part.dtype.isbuiltin == 2 else part
        for value in numbers.tolist():
            row.append(str(int(value)) if isinstance(value, bool) else repr(value))
            if len(row) == width:
                stream.write(",".join(row).encode() + b"\n")
                row.clear()


def dtype_named(name: str | None) -> Any:
    """Return the numpy type of ``--dtype``. Raise `OptionError` if there is none."""
    if name is None:
        return None
    from pparse.tensors.dtype import DType

    try:
        dtype = DType.of(name).numpy
    except ValueError as error:
        raise OptionError(f"--dtype {name}: not an element type; use float32, float16 or int64, for example") from error
    if not _is_numeric(dtype):
        raise OptionError(f"--dtype {name}: no type of numbers; use float32, float16 or int64, for example")
    return dtype
