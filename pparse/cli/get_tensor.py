"""``pparse get``: writes a tensor, or a slice of one."""

from __future__ import annotations

import os
import sys
from itertools import chain, product
from math import prod

from pparse.cli.common import DAMAGED, OK, USAGE
from pparse.cli.output import refuse_terminal, write, write_binary, write_text
from pparse.cli.selection import Selection
from pparse.conversion.forms import why_no_name
from pparse.display.text import few, safe, shorten
from pparse.document.registry import viewer_for
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
from pparse.limits import LITTLE, MIB, count_words, format_size
from pparse.tensors.dtype import DTYPES, DType, are_characters
from pparse.tensors.scales import codes_of, is_scale, quantisation_of
from pparse.tensors.span import Span
from pparse.tensors.status import status_words
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, BinaryIO, Final

    from pparse.cli.output import Output
    from pparse.conversion.forms import Item
    from pparse.conversion.plan import LeftOut, OutputFile
    from pparse.document.extraction import Extraction
    from pparse.tensors.scales import Quantisation
    from pparse.tensors.viewer import Viewer

    # A tensor to write, and as which type.
    Chosen = tuple[Tensor, DType]
    # A slice, or None for all; what JSON tells of the meaning of elements; a shape, and what reads flat arrays of that.
    Index = tuple[Any, ...] | None
    Told = Mapping[str, object]
    Parts = tuple[tuple[int, ...], Callable[[], Iterator[Any]]]

# As text, at most so much of a tensor is read; the middle of a larger one is left out.
_TEXT_LIMIT: Final = 64 * MIB
# How many texts of a tensor are shown, and how much of each.
_STRINGS_SHOWN: Final = 100
_STRING_BYTES: Final = 4096


def write_chosen(items: list[Chosen], form: str, options: Any, out: Output, viewer: Viewer) -> None:
    """Write tensors, and the metadata of their source, to one file of the type that its extension names."""
    from pparse.conversion.forms import Item
    from pparse.conversion.plan import write_file

    notes = list(notes_of(items, form))
    file = file_of(items, form, options.output or form, kept_metadata(viewer, form))
    if file is None:
        tensor, dtype = items[0]
        only = Item(tensor, tensor.name, dtype, 0, packed=False)
        written = [only]
        write(options.output, out, lambda stream: write_one(only, form, stream), only.nbytes * (form == ".npy"))
    else:
        written = file.items
        write(options.output, out, lambda stream: write_file(file, stream), file.size)
    for note in notes:
        out.error(f"note: {note}")
    lost = sum(item.overflowed for item in written)
    if lost:
        out.error(
            f"note: {options.dtype} cannot hold {count_words(lost, 'number')}: infinite or other ones were written"
        )


def give_tensor(tensor: Tensor, index: Index, options: Any, out: Output, viewer: Viewer, told: Told) -> int:
    """Write a tensor or a slice of it: as text, as bytes, or in the form that the extension names.

    A file may keep the metadata of the ``viewer``; ``told`` is what JSON says of what the elements mean.
    """
    try:
        code = _give_tensor(tensor, index, options, out, viewer, told)
        told_there = not (options.output or options.npy or options.raw)  # beside the values, or in JSON
        if code == DAMAGED and tensor.finding is not None and not told_there:
            out.error(f"{tensor.name}: {tensor.finding.reason}")
        return code
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


def _give_tensor(tensor: Tensor, index: Index, options: Any, out: Output, viewer: Viewer, told: Told) -> int:
    if not tensor.is_complete:
        tensor.resolve()  # a checksum of its own may tell that its bytes are right though those around it are not
    code = OK if tensor.is_complete and not tensor.unwritten_nbytes else DAMAGED
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
    whole = index is None and options.partial is None
    is_foreign = tensor.dtype is not None and tensor.is_complete and tensor.dtype.numpy.isbuiltin == 2
    if form is not None and (whole or not as_npy or options.dtype is not None or is_foreign):
        if options.output is None and sys.stdout.isatty():
            return refuse_terminal(out)
        part = tensor if whole else tensor_of(tensor, _array(tensor, index, options.partial))
        write_chosen([chosen(part, options.dtype)], form, options, out, viewer)
        return code
    if as_npy or options.raw or options.output:
        return write_binary(
            options.output,
            out,
            lambda stream: _tensor_bytes(tensor, index, as_npy, options.partial, stream),
            code,
            tensor.stored_nbytes if whole and tensor.is_complete else 0,
        )
    _tensor_text(tensor, index, options, out)
    return code


def _array(tensor: Tensor, index: Index, partial: str | None) -> Any:
    """Return what is asked for of a tensor. Raises `MalformedError` for texts that Python cannot hold."""
    return _of_characters(tensor, _elements(tensor, index, partial))


def _of_characters(tensor: Tensor, array: Any) -> Any:
    if tensor.dtype is not None and not tensor.dtype.is_number and not are_characters(array):
        reason = "a text has characters that Unicode does not; --raw and .npy take the bytes as they are"
        raise MalformedError(reason, path=tensor.name)
    return array


def _elements(tensor: Tensor, index: Index, partial: str | None) -> Any:
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
    from pparse.tensors.dtype import as_type

    if options.dtype is None:
        return array
    try:
        return as_type(array, options.dtype)[0]
    except (TypeError, ValueError) as error:
        raise OptionError(f"--dtype {options.dtype}: {error}") from error


def _tensor_bytes(tensor: Tensor, index: Index, as_npy: bool, partial: str | None, stream: BinaryIO) -> None:
    if index is None and (partial is None or tensor.is_text):
        for block in tensor.raw_blocks():
            stream.write(block)
        return
    import numpy as np

    array = np.ma.getdata(_array(tensor, index, partial))
    if array.dtype.hasobject:  # its bytes are addresses of this process
        if array.shape:
            reason = "--raw gives one of the texts, or without a slice all of them as stored; --json gives several"
            raise UnsupportedError(reason, path=tensor.name)
        stream.write(array.item())
    elif as_npy:
        np.save(stream, array, allow_pickle=False)
    else:
        stream.write(np.ascontiguousarray(array).tobytes())


def _tensor_text(tensor: Tensor, index: Index, options: Any, out: Output) -> None:
    try:
        lines = list(_content(tensor, index, options))
    finally:  # only now it is known whether its checksum is right
        out.say(
            f"{safe(tensor.name)}  {safe(tensor.type_name)}  {tensor.shape_text}  "
            f"{format_size(tensor.listed_nbytes)}  {status_words(tensor.status, tensor.verified)}"
        )
        if tensor.finding is not None:
            out.say(safe(tensor.finding.reason))
    for line in lines:
        out.line(line)
    if not lines and not tensor.is_text:
        out.error("too large to show; ask for a slice, or use -o FILE")


def _content(tensor: Tensor, index: Index, options: Any) -> Iterator[str]:
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


def _shown_strings(strings: Iterable[bytes]) -> Iterator[str]:
    """Yield texts as lines; bytes that are not UTF-8 as escapes."""
    for number, text in enumerate(strings):
        if number == _STRINGS_SHOWN:
            yield "…"
            return
        shown = safe(text[:_STRING_BYTES].decode("utf-8", "backslashreplace"))
        yield shown + ("…" if len(text) > _STRING_BYTES else "")


def _tensor_json(tensor: Tensor, index: Index, options: Any, out: Output, told: Told) -> int:
    from json import dumps

    from pparse.cli.get_json import json_of

    shape, parts = _to_read(tensor, index, options)
    form = None
    for part in parts():  # all is read before anything is written: only then its status is known
        form = part.dtype
    stored = None if tensor.dtype is None else tensor.dtype.name
    head = {
        "schema": 1,
        "file": options.file,
        "name": tensor.name,
        "dtype": stored if options.dtype is None else str(form),
        "stored_dtype": tensor.stored_dtype or None,
        "shape": list(shape),
        "status": tensor.status.value,
        "verified": tensor.verified,
        **told,
    }
    if tensor.finding is not None:
        head["finding"] = tensor.finding.to_dict()

    def pieces() -> Iterator[str]:
        if not options.bare:
            yield dumps(head)[:-1] + ', "data": '
        yield from json_of(shape, form, parts)
        yield "\n" if options.bare else "}\n"

    write_text(options.output or None, out, pieces())
    return OK


def _to_read(tensor: Tensor, index: Index, options: Any) -> Parts:
    """Return the shape of what is asked for, and what reads it as flat arrays: each time anew, unless it is little."""
    found = None if tensor.is_text else _large(tensor, index, options.partial)
    if found is None:
        array = _converted(_array(tensor, index, options.partial), options)
        return array.shape, lambda: iter((array.reshape(-1),))
    shape, blocks = found
    return shape, lambda: (_converted(_of_characters(tensor, block), options) for block in blocks())


def _large(tensor: Tensor, index: Index, partial: str | None) -> Parts | None:
    """Return the shape of what is asked for, and what reads it by parts; None if it is little, or cannot be read."""
    from pparse.tensors.selection import normalise, parts_of, shape_of

    dtype = tensor._known_dtype()
    size = max(LITTLE, 8 * dtype.itemsize)
    if index is not None:
        try:
            items = normalise(index, tensor.shape)
            shape = shape_of(items, tensor.shape)
        except (IndexError, TypeError, ValueError):
            return None
        step = size // dtype.itemsize
        if prod(shape) <= step:
            return None
        return shape, lambda: _sliced(tensor, index, parts_of(items, tensor.shape, step))
    shape, there = tensor.shape, tensor.size
    if partial is not None and tensor.status is Status.TRUNCATED:
        if not shape or not tensor._is_contiguous():
            return None
        there = tensor._whole_count(dtype)
        if partial == "prefix" and (row := prod(shape[1:])):
            shape, there = (there // row, *shape[1:]), there // row * row
    if prod(shape) * dtype.itemsize <= size:
        return None
    return shape, lambda: _filled_up(tensor.blocks(size), there, prod(shape), dtype.numpy)


def _sliced(tensor: Tensor, index: tuple[Any, ...], parts: Iterable[tuple[int | slice, ...]]) -> Iterator[Any]:
    try:
        for part in parts:
            yield _elements(tensor, part, None).reshape(-1)
    except TruncatedTensorError:
        _elements(tensor, index, None)  # tells how much it lacks, not a part of it
        raise


def _filled_up(blocks: Iterator[Any], there: int, total: int, dtype: Any) -> Iterator[Any]:
    """Yield the first ``there`` elements of ``blocks``, and ``total`` in all: what does not exist is masked."""
    import numpy as np

    at = 0
    while at < there:
        block = next(blocks)[: there - at]
        yield block
        at += len(block)
    step = max(1, LITTLE // dtype.itemsize)
    for first in range(at, total, step):
        yield np.ma.MaskedArray(np.zeros(min(step, total - first), dtype), mask=True)


# -- ``pparse get -p``: writes all tensors that match to one file ------------------------------------------------------

# The most left-out tensors that are named one by one.
_NAMED: Final = 10


def give_many(document: Extraction, options: Any, out: Output) -> int:
    """Write every complete tensor that matches a pattern; name the incomplete ones."""
    form = form_of(options.output)
    if options.path is not None or form is None or options.raw or options.npy or options.json:
        raise OptionError("-p writes tensors to one file: use -o x.npz or -o x.safetensors, without PATH and --raw")
    viewer = viewer_for(document)
    if viewer is None:
        raise PathError(f"{document.format} has no tensors", path=document.name)
    dtype = options.dtype
    matches = Selection(options.patterns, options=options)
    whole: list[Tensor] = []
    texts: list[Tensor] = []
    lost: list[LeftOut] = []
    kept: set[str] = set()  # scales: they keep their type
    viewer.resolve_all()  # what is written must be known to be whole
    for tensor in viewer.tensors():
        if matches.takes(viewer, tensor):
            scaled = quantisation_of(viewer, tensor)
            of = codes_of(viewer, tensor) if scaled is None else None
            if options.dequantize:
                if of is not None and matches.takes(viewer, of.codes):
                    continue  # the codes are multiplied by it
                tensor = tensor if scaled is None else scaled.tensor()
            elif scaled is not None:
                refuse_cast(scaled, options.dtype)
            if scaled is None and is_scale(viewer, tensor):
                kept.add(tensor.name)
            entry = _left_out(tensor)
            if entry is not None:
                lost.append(entry)
            else:
                (texts if tensor.is_text else whole).append(tensor)
    code = matches.code(DAMAGED if lost else OK, out, nothing=USAGE)
    if whole:
        items = [chosen(tensor, None if tensor.name in kept else dtype) for tensor in whole]
        write_chosen(items, form, options, out, viewer)
    _tell_lost(lost, len(whole), out)
    if texts:
        _tell_texts(texts, out, only=len(whole) + len(lost) == 0)
    return code


def _left_out(tensor: Tensor) -> LeftOut | None:
    """Return why a tensor is not written; None if it is whole."""
    from pparse.conversion.plan import LeftOut, flaw_of

    tensor.resolve()
    flaw = flaw_of(tensor)
    if flaw is None and tensor.status is Status.UNSUPPORTED:
        flaw = tensor.status, "it cannot be read" if tensor.finding is None else tensor.finding.reason
    return None if flaw is None else LeftOut(tensor.name, *flaw)


def _tell_texts(texts: list[Tensor], out: Output, *, only: bool) -> None:
    """Name the tensors of texts, which no such file holds. Raises `UnsupportedError` if ``only`` they match."""
    if only:
        raise UnsupportedError(
            "only tensors of texts match, which are not arrays of numbers: 'pparse get FILE NAME --json' "
            "shows one of them",
            path=texts[0].name,
        )
    names = few((tensor.name for tensor in texts), _NAMED, len(texts))
    out.error(f"note: {count_words(len(texts), 'tensor')} of texts left out: {names}")


def _tell_lost(lost: list[LeftOut], whole: int, out: Output) -> None:
    """Name the tensors that are not complete."""
    for entry in lost[:_NAMED]:
        out.error(f"{entry.name}: {entry.status}: {entry.reason}; left out")
    if len(lost) > _NAMED:
        out.error(f"not complete, and left out: {count_words(len(lost) - _NAMED, 'other tensor')}")
    if lost:
        written = f"{whole:,} of {count_words(whole + len(lost), 'tensor')} written"
        out.error(written if whole else "none of the matching tensors is complete: nothing was written")


# -- Writes tensors to files for other programs: .npy, .npz, .safetensors and .csv, a block at a time ------------------

FORMS: Final = (".npy", ".npz", ".safetensors", ".json", ".csv")
_BLOCK: Final = 4 << 20
_LINES: Final = 1_000
_RENAME: Final = "'pparse convert --rename' writes it under another name"


def form_of(path: str | None) -> str | None:
    """Return the file type of the extension of ``path``; None if it is not one of these."""
    return None if path is None else next((form for form in FORMS if path.lower().endswith(form)), None)


def chosen(tensor: Tensor, dtype: DType | None = None) -> Chosen:
    """Return a tensor to write, with the type to write it as. Raises `OptionError` if it has no numbers to convert."""
    own = tensor._known_dtype()
    if dtype is not None and not own.is_number:
        raise OptionError(f"{own.numpy} is no type of numbers: --dtype cannot convert it", path=tensor.name)
    return tensor, own if dtype is None else dtype


def tensor_of(tensor: Tensor, array: Any) -> Tensor:
    """Return ``array``, a slice or what else there is of ``tensor``, as a tensor of its name."""
    import numpy as np

    from pparse.data.base import BytesData

    array = np.ma.getdata(array)  # what does not exist is filled up
    dtype = tensor._known_dtype()
    if dtype.packed:  # an array has a byte for each element
        array, dtype = array.view(np.uint8), DTYPES["uint8"]
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    span = Span(BytesData(content, tensor.name), 0, array.nbytes, tensor.name)
    order = "little" if array.dtype.isnative else "big"
    return Tensor(tensor.name, dtype, array.shape, (span,), byteorder=order, stored_dtype=str(dtype))


def refuse_dtype(options: Any) -> None:
    """Raise `OptionError` for ``--dtype`` on something that is not a tensor."""
    if options.dtype is not None:
        raise OptionError("--dtype converts tensors, and this is not one")


def refuse_cast(found: Quantisation, dtype: DType | None) -> None:
    """Raise `OptionError` if codes are to be cast to the type of ``--dtype``, without their scales."""
    if dtype is not None and dtype != found.codes.dtype:
        raise OptionError(
            f"--dtype {dtype} would cast codes without {found.factor}: --dequantize multiplies them by it",
            path=found.codes.name,
        )


def notes_of(items: Sequence[Chosen], form: str) -> Iterator[str]:
    """Yield what is to be told of types that numpy cannot read back."""
    names = sorted({str(dtype) for _, dtype in items if dtype.numpy.isbuiltin == 2})
    if names and form == ".npy":
        yield f"numpy reads {', '.join(names)} back as bytes without a type (V2, V1); --dtype float32 writes numbers"
    if names and form == ".npz":
        from pparse.conversion.forms import bits_note

        yield from (f"{bits_note(DTYPES[name])}; --dtype float32 writes numbers" for name in names)


def kept_metadata(viewer: Any, form: str) -> dict[str, str]:
    """Return the ``__metadata__`` of a safetensors source for a file of type ``form``; of a set, the first shard's."""
    if form != ".safetensors":
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
    for number, (tensor, dtype) in enumerate(items):
        why = holder.refusal(tensor.name, dtype, tensor.shape, tensor.size)
        if why is not None:
            advice = "--dtype float32 writes numbers" if dtype.is_number else "write .npy or .npz"
            advice = advice if why_no_name(tensor.name, form[1:]) is None else _RENAME
            raise UnsupportedError(f"{why}: nothing was written; {advice}", path=shorten(tensor.name, 80))
        found.append(holder.item(tensor, tensor.name, dtype, number))
    refuse_collisions(found, holder.name, f"; {_RENAME}")
    return OutputFile(holder, path, found, metadata)


def write_one(item: Item, form: str, stream: BinaryIO) -> None:
    """Write a .npy or a .csv file. Raise the errors of `Tensor.blocks`."""
    if form == ".csv":
        _write_csv(item, stream)
        return
    from pparse.tensors.npy import npy_header

    stream.write(npy_header(item.dtype.numpy, item.tensor.shape))
    for part in item.blocks(_BLOCK):
        stream.write(part.tobytes())


def _write_csv(item: Item, stream: BinaryIO) -> None:
    """Write a line for each row along the last dimension; with one dimension, a line for each value.

    Of structures, a line for each, behind one with the names of their fields.
    """
    shape, name = item.tensor.shape, item.tensor.name
    columns = _columns(item.dtype.numpy)
    if not item.dtype.is_number and columns is None:
        raise OptionError(f"a .csv holds numbers, and these are {item.dtype}: write .json or .npy", path=name)
    width = len(columns) if columns else shape[-1] if len(shape) > 1 else 1
    if columns:
        stream.write(",".join(label for *_, label in columns).encode() + b"\n")
    row: list[str] = []
    for part in item.blocks(_BLOCK):
        numbers = part.astype("f4") if part.dtype.isbuiltin == 2 else part
        for value in _cells(numbers, columns) if columns else numbers.tolist():
            row.append(str(int(value)) if isinstance(value, bool) else repr(value))
            if len(row) == width:
                stream.write(",".join(row).encode() + b"\n")
                row.clear()


def _columns(dtype: Any) -> list[tuple[str, tuple[int, ...], str]] | None:
    """Return field, index in it and label of each column for structures of numbers; None if they are anything else."""
    found = []
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        if base.kind not in "biufc":
            return None
        for index in product(*map(range, shape)):
            label = name + (f"[{','.join(map(str, index))}]" if shape else "")
            quoted = '"' + label.replace('"', '""') + '"'
            found.append((name, index, quoted if set(label) & set(',"\r\n') else label))
    return found or None


def _cells(structures: Any, columns: list[tuple[str, tuple[int, ...], str]]) -> Iterator[Any]:
    """Yield the numbers of structures, one after the other."""
    for first in range(0, len(structures), _LINES):
        part = structures[first : first + _LINES]
        yield from chain.from_iterable(
            zip(*(part[name][(slice(None), *index)].tolist() for name, index, _ in columns), strict=True)
        )


def dtype_named(name: str | None) -> DType | None:
    """Return the type of ``--dtype``. Raise `OptionError` if there is none."""
    if name is None:
        return None
    try:
        dtype = DType.named(name)
    except ValueError as error:
        raise OptionError(f"--dtype {name}: not an element type; use float32, float16 or int64, for example") from error
    if not dtype.is_number:
        raise OptionError(f"--dtype {name}: no type of numbers; use float32, float16 or int64, for example")
    return dtype
