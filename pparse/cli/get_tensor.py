"""``pparse get``: writes a tensor, or a slice of one."""

from __future__ import annotations

import os
import sys

from pparse.cli.exit_codes import DAMAGED, OK
from pparse.cli.export import Item, as_type, dtype_named, form_of, note_of, refuse_unwritable, write_items
from pparse.cli.writing import refuse_terminal, write, write_binary
from pparse.display.text import safe
from pparse.errors import (
    DamagedTensorError,
    MalformedError,
    OptionError,
    PathError,
    PparseError,
    TruncatedTensorError,
    UnsupportedError,
)
from pparse.findings import Status
from pparse.limits import MIB, count_words, format_size
from pparse.tensors.status import status_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, BinaryIO, Final

    from pparse.cli.output import Output
    from pparse.tensors.tensor import Tensor

# As text, at most so much of a tensor is read; the middle of a larger one is left out.
_TEXT_LIMIT: Final = 64 * MIB
# How many texts of a tensor are shown, and how much of each.
_STRINGS_SHOWN: Final = 100
_STRING_BYTES: Final = 4096
_LAST_CHARACTER: Final = 0x10FFFF


def write_chosen(items: list[Item], form: str, options: Any, out: Output, metadata: dict[str, str]) -> None:
    """Write tensors, and the metadata of their source, to one file of the type that its extension names."""
    note = note_of(items, form)
    refuse_unwritable(items, form)
    write(options.output, out, lambda stream: write_items(items, form, stream, metadata))
    if note is not None:
        out.error(f"note: {note}")
    lost = sum(item.lost for item in items)
    if lost:
        out.error(
            f"note: {options.dtype} cannot hold {count_words(lost, 'number')}: infinite or other ones were written"
        )


def give_tensor(
    tensor: Tensor,
    index: tuple[Any, ...] | None,
    options: Any,
    out: Output,
    metadata: Callable[[str], dict[str, str]],
    told: Mapping[str, object],
) -> int:
    """Write a tensor or a slice of it: as text, as bytes, or in the form that the extension names.

    ``metadata`` returns the metadata of the source that a file of that form keeps; ``told`` is what JSON says of what
    the elements mean.
    """
    try:
        return _give_tensor(tensor, index, options, out, metadata, told)
    except TruncatedTensorError as error:
        if options.partial is None and index is None and tensor.shape and tensor._is_contiguous():
            error.reason += "; --partial prefix gives the whole rows, --partial fill all of it, filled up"
        raise
    except DamagedTensorError as error:
        error.reason += _advice(tensor)
        raise


def _advice(tensor: Tensor) -> str:
    """Return what to do about a tensor that a check refuses, as the end of a sentence; empty if its bytes are lost."""
    if tensor.claimed_status is not Status.COMPLETE or not tensor.available_nbytes:
        return ""
    if tensor.verified is not False and tensor.shape:
        return "; slices beside the damage can be read, and 'pparse recover' sets apart what is there"
    return "; 'pparse recover' sets it apart, with its bytes as they are"


def _give_tensor(
    tensor: Tensor,
    index: tuple[Any, ...] | None,
    options: Any,
    out: Output,
    metadata: Callable[[str], dict[str, str]],
    told: Mapping[str, object],
) -> int:
    if tensor.status is not Status.COMPLETE:
        tensor._confirm()  # a checksum of its own may tell that its bytes are right though those around it are not
    code = OK if tensor.status is Status.COMPLETE else DAMAGED
    named = form_of(options.output)
    if options.raw and named is not None:
        raise OptionError(
            f"{options.output} asks for {named}, and --raw for the bytes as they are stored: "
            "leave --raw out, or use another name"
        )
    if options.dtype is not None and tensor.is_text:
        raise OptionError(f"--dtype {options.dtype}: texts cannot be converted")
    form = ".npy" if options.npy else ".json" if options.json else None if options.raw else named
    if form == ".json":
        return _tensor_json(tensor, index, options, out, told) or code
    special = options.output and os.path.exists(options.output) and not os.path.isfile(options.output)
    if options.output and form is None and not options.raw and not special:
        ending = os.path.splitext(options.output)[1] or "a name without an extension"
        raise OptionError(
            f"{options.output}: {ending} does not say which form to write; use .npy .npz .safetensors .json .csv, "
            "or --raw for the bytes as they are stored"
        )
    if form is not None and tensor.is_text:
        tensor._refuse_if_not_whole()
        raise UnsupportedError(f"texts are not arrays of numbers like {form}; --json writes texts", path=tensor.name)
    as_npy = form == ".npy"
    if form is not None and (not as_npy or options.dtype is not None or _is_foreign(tensor)):
        if options.output is None and sys.stdout.isatty():
            return refuse_terminal(out)
        whole = index is None and options.partial is None
        array = None if whole else _filled(_array(tensor, index, options.partial))
        write_chosen([Item(tensor, array, dtype_named(options.dtype))], form, options, out, metadata(form))
        return code
    if as_npy or options.raw or options.output:
        return write_binary(
            options.output, out, lambda stream: _tensor_bytes(tensor, index, as_npy, options.partial, stream), code
        )
    _tensor_text(tensor, index, options, out)
    return code


def _array(tensor: Tensor, index: tuple[Any, ...] | None, partial: str | None) -> Any:
    """Return what is asked for of a tensor. Raises `MalformedError` for texts that Python cannot hold."""
    array = _elements(tensor, index, partial)
    if tensor.dtype is not None and not tensor.dtype.is_number and not _is_text(array):
        reason = "a text has characters that Unicode does not; --raw and .npy take the bytes as they are"
        raise MalformedError(reason, path=tensor.name)
    return array


def _is_text(array: Any) -> bool:
    """Return whether all texts in an array, or in the fields of a structure, are of characters that exist."""
    import numpy as np

    parts = [np.ma.getdata(array)]
    while parts:
        part = parts.pop()
        if part.dtype.names is not None:
            parts += [part[name] for name in part.dtype.names]
        elif part.dtype.kind == "U" and part.size and (np.ascontiguousarray(part).view("u4") > _LAST_CHARACTER).any():
            return False
    return True


def _elements(tensor: Tensor, index: tuple[Any, ...] | None, partial: str | None) -> Any:
    import numpy as np

    if index is not None:
        try:
            found = tensor[index]
            return np.array(found, object) if isinstance(found, bytes) else np.asarray(found)
        except (IndexError, ValueError) as error:  # numpy's own message about the slice
            if isinstance(error, PparseError):
                raise
            raise PathError(str(error), path=tensor.name) from error
    return tensor.numpy(partial=partial) if partial else tensor.numpy()  # type: ignore[arg-type]


def _converted(array: Any, options: Any) -> Any:
    """Return an array converted to the type of ``--dtype``."""
    if options.dtype is None:
        return array
    dtype = dtype_named(options.dtype)
    try:
        return as_type(array, dtype)[0]
    except OptionError:  # a ValueError, too, which says all
        raise
    except (TypeError, ValueError) as error:
        raise OptionError(f"--dtype {options.dtype}: {error}") from error


def _is_foreign(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.status is Status.COMPLETE and tensor.dtype.numpy.isbuiltin == 2


def _filled(array: Any) -> Any:
    import numpy as np

    return np.ma.getdata(array)


def _tensor_bytes(
    tensor: Tensor, index: tuple[Any, ...] | None, as_npy: bool, partial: str | None, stream: BinaryIO
) -> None:
    if index is None and (partial is None or tensor.is_text):
        if as_npy:
            from pparse.writers.npy import write_npy

            write_npy(tensor, stream)
        else:
            for block in tensor.raw_blocks():
                stream.write(block)
        return
    import numpy as np

    array = _array(tensor, index, partial)
    array = np.ma.getdata(array)
    if array.dtype.hasobject:  # its bytes are addresses of this process
        if array.shape:
            reason = "--raw gives one of the texts, or without a slice all of them as stored; --json gives several"
            raise UnsupportedError(reason, path=tensor.name)
        stream.write(array.item())
    elif as_npy:
        np.save(stream, array, allow_pickle=False)
    else:
        stream.write(np.ascontiguousarray(array).tobytes())


def _tensor_text(tensor: Tensor, index: tuple[Any, ...] | None, options: Any, out: Output) -> None:
    try:
        lines = list(_content(tensor, index, options))
    finally:  # only now it is known whether its checksum is right
        out.line(
            f"{safe(tensor.name)}  {safe(tensor.type_name)}  {tensor.shape_text}  "
            f"{format_size(tensor.listed_nbytes)}  {status_words(tensor.status, tensor.verified)}"
        )
        if tensor.finding is not None and tensor.status is Status.COMPLETE:
            out.line(safe(tensor.finding.reason))
    for line in lines:
        out.line(line)
    if not lines and not tensor.is_text:
        out.error("too large to show; ask for a slice, or use -o FILE")


def _content(tensor: Tensor, index: tuple[Any, ...] | None, options: Any) -> Iterator[str]:
    """Yield a tensor, or a slice, as lines: of a large tensor the first and last rows; nothing if they are large."""
    if tensor.is_text:
        tensor._refuse_if_not_whole()
        texts: Any = tensor
        yield from _shown_strings(texts.strings() if index is None else _array(tensor, index, None).reshape(-1))
    elif index is None and not options.partial and tensor.nbytes > _TEXT_LIMIT and tensor.shape:
        rows = max(1, min(3, tensor.shape[0] // 2))
        if tensor.nbytes // tensor.shape[0] * rows <= _TEXT_LIMIT:
            import numpy as np

            yield str(_converted(np.asarray(tensor[:rows]), options))
            yield f"… {tensor.shape[0] - 2 * rows:,} rows; ask for some with a slice, or use -o FILE"
            yield str(_converted(np.asarray(tensor[-rows:]), options))
    else:
        yield str(_converted(_array(tensor, index, options.partial), options))


def _of_no_numbers(array: Any) -> Any:
    """Return an array of texts, times or bytes for JSON: times as text, spans of time as numbers of their unit."""
    import numpy as np

    if array.dtype.kind in "Mm":
        has_unit = array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] != "generic"
        return np.datetime_as_string(array).tolist() if has_unit else array.astype("i8").tolist()
    flat = array.reshape(-1).tolist()
    if array.dtype.kind != "U":
        flat = [_text_or_hex(value) if array.dtype.kind == "S" else {"hex": value.hex()} for value in flat]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape).tolist()


def _text_or_hex(text: bytes) -> str | dict[str, str]:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"hex": text.hex()}


def _shown_strings(strings: Iterable[bytes]) -> Iterator[str]:
    """Yield texts as lines; bytes that are not UTF-8 as escapes."""
    for number, text in enumerate(strings):
        if number == _STRINGS_SHOWN:
            yield "…"
            return
        shown = safe(text[:_STRING_BYTES].decode("utf-8", "backslashreplace"))
        yield shown + ("…" if len(text) > _STRING_BYTES else "")


def _tensor_json(
    tensor: Tensor, index: tuple[Any, ...] | None, options: Any, out: Output, told: Mapping[str, object]
) -> int:
    from json import dumps

    array = _converted(_array(tensor, index, options.partial), options)
    stored = None if tensor.dtype is None else tensor.dtype.name
    head = {
        "schema": 1,
        "file": options.file,
        "name": tensor.name,
        "dtype": stored if options.dtype is None else str(array.dtype),
        "stored_dtype": tensor.stored_dtype or None,
        "shape": list(array.shape),
        "status": tensor.status.value,
        "verified": tensor.verified,
        **told,
    }
    data = dumps(_plain(array))
    text = f"{data}\n" if options.bare else dumps(head)[:-1] + f', "data": {data}}}\n'
    if options.output:
        write(options.output, out, lambda stream: stream.write(text.encode()))
    else:
        out.write(text)
    return OK


def _plain(array: Any) -> Any:
    """Return an array as nested lists for JSON: complex numbers as pairs, NaN, infinities and long doubles as text.

    A structure is a list for each field, by name.
    """
    import numpy as np

    if array.dtype.names is not None:
        return {name: _plain(array[name]) for name in array.dtype.names}
    if np.ma.isMaskedArray(array):  # missing values are null, not a number
        whole = np.array(_plain(np.ma.getdata(array)), dtype=object)
        mask = np.asarray(array.mask).reshape(array.shape + (1,) * (whole.ndim - array.ndim))
        whole[np.broadcast_to(mask, whole.shape)] = None
        return whole.tolist()
    if array.dtype == object:  # texts
        return np.array([_text_or_hex(text) for text in array.reshape(-1)], object).reshape(array.shape).tolist()
    if (
        array.dtype.names is not None
        or array.dtype.kind in "SUMm"
        or (array.dtype.isbuiltin != 2 and array.dtype.kind == "V")
    ):
        return _of_no_numbers(array)
    if array.dtype.kind == "c":
        array = np.stack((array.real, array.imag), -1)
    elif array.dtype.kind not in "biuf" or array.dtype.name.startswith(("bfloat", "float8")):
        array = array.astype(np.complex64 if array.dtype.name in ("complex32", "bcomplex32") else np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # more digits than a number of JSON has
        return array.astype(str).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        flat = [
            value if np.isfinite(value) else ("NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity")
            for value in array.reshape(-1).tolist()
        ]
        return np.array(flat, dtype=object).reshape(array.shape).tolist()
    return array.tolist()
