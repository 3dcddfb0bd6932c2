"""Writes tensors to files for other programs: .npy, .npz, .safetensors and .csv, a block at a time."""

from __future__ import annotations

from pparse.conversion.cast import as_type
from pparse.display.text import shorten
from pparse.errors import EngineError, OptionError, PparseError, UnsupportedError
from pparse.recovery.reader_rules import why_no_name
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.tensor import Span, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, BinaryIO, Final

    from pparse.conversion.forms import Item
    from pparse.conversion.plan import OutputFile
    from pparse.tensors.scales import Quantisation

FORMS: Final = (".npy", ".npz", ".safetensors", ".json", ".csv")
_BLOCK: Final = 4 << 20
_RENAME: Final = "'pparse convert --rename' writes it under another name"


def form_of(path: str | None) -> str | None:
    """Return the file type of the extension of ``path``; None if it is not one of these."""
    return None if path is None else next((form for form in FORMS if path.lower().endswith(form)), None)


class Chosen:
    """A tensor to write, as ``dtype``."""

    __slots__ = ("dtype", "lost", "tensor")

    def __init__(self, tensor: Tensor, dtype: DType | None = None) -> None:
        own = tensor._known_dtype()
        if dtype is not None and not own.is_number:
            raise OptionError(f"{own.numpy} is no type of numbers: --dtype cannot convert it", path=tensor.name)
        self.tensor = tensor
        self.dtype = own if dtype is None else dtype
        self.lost = 0
        """How many of its numbers, so far, the type asked for cannot hold."""

    def blocks(self) -> Iterator[Any]:
        """Yield its elements in C order, as flat arrays."""
        for part in self.tensor.blocks(_BLOCK):
            if self.dtype != self.tensor.dtype:
                part, lost = as_type(part, self.dtype)
                self.lost += lost
            yield part

    @property
    def is_foreign(self) -> bool:
        """Whether numpy does not know the type, and reads it back as plain bytes."""
        return self.dtype.numpy.isbuiltin == 2


def tensor_of(tensor: Tensor, array: Any) -> Tensor:
    """Return ``array``, a slice or what else there is of ``tensor``, as a tensor of its name."""
    import numpy as np

    from pparse.data.base import BytesData

    dtype = tensor._known_dtype()
    if array.dtype != dtype.numpy:
        raise EngineError(f"a part of a tensor of {dtype} has the type {array.dtype}")
    if dtype.packed:  # an array has a byte for each element
        array, dtype = array.view(np.uint8), DTYPES["uint8"]
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    span = Span(BytesData(content, tensor.name), 0, array.nbytes, tensor.name)
    order = "little" if array.dtype.isnative else "big"
    return Tensor(tensor.name, dtype, array.shape, (span,), byteorder=order, stored_dtype=str(dtype))


def refuse_cast(found: Quantisation, dtype: str | None) -> None:
    """Raise `OptionError` if codes are to be cast to the type of ``--dtype``, without their scales."""
    if dtype is not None and (found.codes.dtype is None or dtype_named(dtype) != found.codes.dtype):
        raise OptionError(
            f"--dtype {dtype} would cast codes without {found.parts[0].name}: --dequantize multiplies them by it",
            path=found.codes.name,
        )


def notes_of(items: Sequence[Chosen], form: str) -> Iterator[str]:
    """Yield what is to be told of types that numpy cannot read back."""
    names = sorted({str(item.dtype) for item in items if item.is_foreign})
    if names and form == ".npy":
        yield f"numpy reads {', '.join(names)} back as bytes without a type (V2, V1); --dtype float32 writes numbers"
    if names and form == ".npz":
        from pparse.conversion.forms import bits_note

        yield from (f"{bits_note(DTYPES[name])}; --dtype float32 writes numbers" for name in names)


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


def file_of(items: Sequence[Chosen], form: str, path: str, metadata: Mapping[str, str]) -> OutputFile | None:
    """Return the .npz or .safetensors file to write; None if ``form`` is another, which holds one tensor.

    Raises `UnsupportedError` for a name or a type that it cannot hold, `OptionError` for tensors that could not be told
    apart in it, several in a file for one, and a header that is too long.
    """
    from pparse.conversion.forms import NpzForm, SafetensorsForm
    from pparse.conversion.plan import OutputFile, refuse_collisions

    if form not in (".npz", ".safetensors"):
        if len(items) != 1:
            raise OptionError(f"a {form} file holds one tensor, and {len(items)} match; write .npz or .safetensors")
        return None
    holder = NpzForm() if form == ".npz" else SafetensorsForm()
    found: list[Item] = []
    for number, item in enumerate(items):
        tensor, dtype = item.tensor, item.dtype
        why = holder.refusal(tensor.name, dtype, tensor.shape, tensor.size)
        if why is not None:
            advice = "--dtype float32 writes numbers" if dtype.is_number else "write .npy or .npz"
            advice = advice if why_no_name(tensor.name, form[1:]) is None else _RENAME
            raise UnsupportedError(f"{why}: nothing was written; {advice}", path=shorten(tensor.name, 80))
        found.append(holder.item(tensor, tensor.name, dtype, number))
    refuse_collisions(found, holder.name, f"; {_RENAME}")
    return OutputFile(holder, path, found, metadata)


def write_one(item: Chosen, form: str, stream: BinaryIO) -> None:
    """Write a .npy or a .csv file. Raise the errors of `Tensor.blocks`."""
    if form == ".csv":
        _write_csv(item, stream)
        return
    from pparse.writers.npy import npy_header

    stream.write(npy_header(item.dtype.numpy, item.tensor.shape))
    for part in item.blocks():
        stream.write(part.tobytes())


def _write_csv(item: Chosen, stream: BinaryIO) -> None:
    """Write a line for each row along the last dimension; with one dimension, a line for each value."""
    shape, name = item.tensor.shape, item.tensor.name
    if not item.dtype.is_number:
        raise OptionError(f"a .csv holds numbers, and these are {item.dtype}: write .json or .npy", path=name)
    width = shape[-1] if len(shape) > 1 else 1
    row: list[str] = []
    for part in item.blocks():
        numbers = part.astype("f4") if part.dtype.isbuiltin == 2 else part
        for value in numbers.tolist():
            row.append(str(int(value)) if isinstance(value, bool) else repr(value))
            if len(row) == width:
                stream.write(",".join(row).encode() + b"\n")
                row.clear()


def dtype_named(name: str | None) -> DType | None:
    """Return the type of ``--dtype``. Raise `OptionError` if there is none."""
    if name is None:
        return None
    try:
        dtype = DType.of(name)
    except ValueError as error:
        raise OptionError(f"--dtype {name}: not an element type; use float32, float16 or int64, for example") from error
    if not dtype.is_number:
        raise OptionError(f"--dtype {name}: no type of numbers; use float32, float16 or int64, for example")
    return dtype
