"""Get one thing out of a file: a tensor, a slice of it, or a node.

PATH is tried as the exact name of a tensor, then as a name with a slice (``name[0:2, ..., 1]``), then as a node's path:
a tensor comes before a node of the same path. Only the bytes of that thing are read.
"""

from __future__ import annotations

import os
import sys

from pparse.archive import ArchiveParser
from pparse.cli.common import DAMAGED, OK, USAGE, open_file
from pparse.cli.export import Item, dtype_named, form_of, note_of, write_items
from pparse.cli.output import safe, shape_words, status_words, unescaped
from pparse.errors import EndOfDataError, OptionError, PathError, PparseError
from pparse.findings import UNSURE_NUMBER, Status
from pparse.limits import MIB, format_size
from pparse.node import SCALAR, ChildIndexError, ChildKeyError, Node
from pparse.parser import Parser
from pparse.paths import split_slice
from pparse.registry import viewer_for
from pparse.resync.resumed import ResumedData
from pparse.stream import StreamParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any, BinaryIO, Final

    from pparse.cli.output import Output
    from pparse.extraction import Extraction
    from pparse.reader import Range
    from pparse.tensor import Tensor

EXAMPLES: Final = """examples:
  pparse get model.safetensors h.0.attn.weight
  pparse get model.safetensors 'h.0.attn.weight[0:2, ..., 1]' --json
  pparse get model.safetensors h.0.attn.weight -o weight.npy --dtype float32
  pparse get model.safetensors -p '*.attn.*' -o attention.npz
  pparse get model.safetensors metadata.format
  pparse get config.json 'quantization.bits'
  pparse get records.riegeli 64/3 --raw -o record.bin
  pparse get records.riegeli '64/3[0:16]'
"""
# As text, only so much of a tensor is read; the middle of a larger one is left out.
_TEXT_LIMIT: Final = 64 * MIB
# Compressed bytes behind a member that are decoded to see whether the stream contradicts itself at its end.
_LITTLE: Final = 4 * MIB
# Texts of a tensor that are shown, and how much of each.
_STRINGS_SHOWN: Final = 100
_STRING_BYTES: Final = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="a file, a folder, or outer::inner")
    parser.add_argument("path", metavar="PATH", nargs="?", help="a tensor, a slice of one, or a node")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="write there, whole or not at all; members of archives as far as they go. A tensor is written in the form "
        "of the extension: .npy .npz .safetensors .json .csv; other names need --raw",
    )
    parser.add_argument("-p", "--pattern", metavar="GLOB", action="append", default=[], dest="patterns",
                        help="every tensor that matches, into one .npz or .safetensors (-o); repeatable")  # fmt: skip
    parser.add_argument("--dtype", metavar="TYPE", help="convert to this type, for example float32 (with -o, --npy)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="the bytes as they are stored")
    form.add_argument("--npy", action="store_true", help="a numpy .npy file")
    form.add_argument("--json", action="store_true", help="JSON")
    parser.add_argument("--partial", choices=("prefix", "fill"),
                        help="of a truncated tensor, the whole rows, or the full shape with zeros; of a truncated "
                        "record, the bytes that are there")  # fmt: skip
    parser.set_defaults(jsonl=False)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    with open_file(options, out) as document:
        _refuse_own_input(document, options.output)
        if options.patterns:
            return _give_many(document, options, out)
        if options.path is None and document.origin is not None and not (options.json or options.npy):
            return _give_member(*document.origin, document.path, options, out)
        parser = document.parse().parser
        if isinstance(parser, StreamParser) and options.path in (None, parser.content_name()) and not options.json:
            return _give_member(_Stream(parser), None, document.path, options, out)
        found = _find(document, options.path)
        if not isinstance(found, tuple):
            return _give_node(found, options, out)
        thing, index = found
        if not isinstance(thing, Node):
            return _give_tensor(thing, index, options, out)
        return _give_slice(thing, index or (), options, out)


def _give_many(document: Extraction, options: Any, out: Output) -> int:
    """Write every tensor that matches a pattern into one file."""
    from pparse.cli.matching import Matcher

    form = form_of(options.output)
    if options.path is not None or form is None or options.raw or options.npy or options.json:
        raise OptionError("-p writes tensors into one file: -o x.npz or x.safetensors, without PATH and --raw")
    viewer = viewer_for(document)
    if viewer is None:
        raise PathError(f"{document.format} has no tensors", path=options.patterns[0])
    matches = Matcher(options.patterns)
    tensors = [tensor for tensor in viewer.tensors() if matches(tensor.name)]
    if not tensors:
        raise PathError(matches.complaint(), path=options.file)
    for tensor in tensors:
        tensor._refuse_if_not_whole()
    dtype = dtype_named(options.dtype)
    _write_items([Item(tensor, dtype=dtype) for tensor in tensors], form, options, out)
    return OK


def _write_items(items: list[Item], form: str, options: Any, out: Output) -> None:
    note = note_of(items, form)
    _write(options.output, out, lambda stream: write_items(items, form, stream))
    if note is not None:
        out.error(f"note: {note}")


def _refuse_own_input(document: Extraction, output: str | None) -> None:
    from pparse.data import FileData

    own = document.data.path if isinstance(document.data, FileData) else None
    if output and own is not None and os.path.exists(output) and os.path.samefile(output, own):
        raise PathError("is the file being read; name another one", path=output)


def _find(document: Extraction, path: str | None) -> tuple[Tensor | Node, tuple[Any, ...] | None] | Node:
    viewer = viewer_for(document)
    if path is None:
        return document.root
    if viewer is None:
        member = document.result.parser.find_member(path)
        if member is not None:
            return member
        parts = split_slice(path)
        sliced = document.result.parser.find_member(parts[0]) if parts is not None else None
        return _find_node(document, path) if sliced is None or parts is None else (sliced, parts[1])
    # The name as it is, and as `ls` shows what cannot be printed.
    for name in dict.fromkeys((path, unescaped(path))):
        tensor = viewer.find(name)
        if tensor is not None:
            return tensor, None
        parts = split_slice(name)
        if parts is not None:
            tensor = viewer.find(parts[0])
            if tensor is not None:
                return tensor, parts[1]
    try:
        return document.node(path)
    except PathError as error:
        parts = split_slice(path)
        if parts is not None and (node := _scalar_at(document, parts[0])) is not None:
            return node, parts[1]
        if isinstance(error, ChildKeyError | ChildIndexError) and error.path != "the root":
            raise  # the path led somewhere, and says where it ends
        if not hasattr(viewer, "signatures") and viewer.extent().at_least:
            raise EndOfDataError("no tensor of this name in what there is of the header, which is cut", path=path,
                                 source=document.name) from error  # fmt: skip
        suggestions = viewer.suggest(parts[0] if parts is not None else path)
        raise PathError("no tensor and no node has this name", path=path,
                        suggestions=suggestions or error.suggestions) from error  # fmt: skip


def _find_node(document: Extraction, path: str) -> Node:
    """Return the node at ``path``; of an archive that has none there, say so of the name as it was typed."""
    parser = document.result.parser
    try:
        return document.node(path)
    except PathError as error:
        if not isinstance(parser, ArchiveParser) or (
            isinstance(error, ChildKeyError | ChildIndexError) and error.path != "the root"
        ):
            raise
        suggestions = document.result.suggest(document.root, path) or error.suggestions
        if document.root.status is Status.TRUNCATED:
            raise EndOfDataError("no member of this name in what there is of the archive, which is cut", path=path,
                                 source=document.outermost.name) from error  # fmt: skip
        raise PathError("no member and no node has this name", path=path, suggestions=suggestions) from error


def _scalar_at(document: Extraction, path: str) -> Node | None:
    """Return the scalar node at a path, of which bytes can be sliced; None if there is none."""
    try:
        node = document.node(path)
    except PathError:
        return None
    return node if node.shape == SCALAR else None


# -- tensors ---------------------------------------------------------------------------------------------------------


def _give_tensor(tensor: Tensor, index: tuple[Any, ...] | None, options: Any, out: Output) -> int:
    code = OK if tensor.status is Status.COMPLETE else DAMAGED
    form = ".npy" if options.npy else ".json" if options.json else None if options.raw else form_of(options.output)
    if form == ".json":
        return _tensor_json(tensor, index, options, out) or code
    special = options.output and os.path.exists(options.output) and not os.path.isfile(options.output)
    if options.output and form is None and not options.raw and not special:
        ending = os.path.splitext(options.output)[1] or "a name without an extension"
        raise OptionError(
            f"{options.output}: {ending} does not say in which form to write: .npy .npz .safetensors .json .csv do; "
            "--raw writes the bytes as they are stored"
        )
    as_npy = form == ".npy"
    if form is not None and (not as_npy or options.dtype is not None or _is_foreign(tensor)):
        if options.output is None and sys.stdout.isatty():
            out.error("binary data is not for a terminal; use -o FILE or a pipe")
            return USAGE
        whole = index is None and options.partial is None
        array = None if whole else _filled(_array(tensor, index, options.partial))
        _write_items([Item(tensor, array, dtype_named(options.dtype))], form, options, out)
        return code
    if as_npy or options.raw or options.output:
        if options.output is None and sys.stdout.isatty():
            out.error("binary data is not for a terminal; use -o FILE or a pipe")
            return USAGE
        _write(options.output, out, lambda stream: _tensor_bytes(tensor, index, as_npy, options.partial, stream))
        return code
    _tensor_text(tensor, index, options, out)
    return code


def _array(tensor: Tensor, index: tuple[Any, ...] | None, partial: str | None) -> Any:
    import numpy as np

    if index is not None:
        try:
            found = tensor[index]
            return np.array(found, object) if isinstance(found, bytes) else np.asarray(found)
        except (IndexError, ValueError) as error:  # numpy's own words for what the slice asks
            if isinstance(error, PparseError):
                raise
            raise PathError(str(error), path=tensor.name) from error
    return tensor.numpy(partial=partial) if partial else tensor.numpy()  # type: ignore[arg-type]


def _is_foreign(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.status is Status.COMPLETE and tensor.dtype.numpy.isbuiltin != 1


def _filled(array: Any) -> Any:
    import numpy as np

    return array.filled(0) if np.ma.isMaskedArray(array) else array


def _tensor_bytes(
    tensor: Tensor, index: tuple[Any, ...] | None, as_npy: bool, partial: str | None, stream: BinaryIO
) -> None:
    if index is None and partial is None:
        if as_npy:
            from pparse.writers.npy import write_npy

            write_npy(tensor, stream)
        else:
            for block in tensor.raw_blocks():
                stream.write(block)
        return
    import numpy as np

    array = _array(tensor, index, partial)
    if np.ma.isMaskedArray(array):
        array = array.filled(0)
    if as_npy:
        np.save(stream, array, allow_pickle=False)
    else:
        stream.write(np.ascontiguousarray(array).tobytes())


def _tensor_text(tensor: Tensor, index: tuple[Any, ...] | None, options: Any, out: Output) -> None:
    strings = getattr(tensor, "strings", None) if tensor.dtype is None else None
    shape = shape_words(tensor.shape) if tensor.spans or tensor.shape or strings else "?"
    out.line(
        f"{safe(tensor.name)}  {safe(str(tensor.dtype or tensor.stored_dtype or '?'))}  {shape}  "
        f"{format_size(tensor.stored_nbytes)}  {status_words(tensor.status, tensor.verified)}"
    )
    if tensor.finding is not None and tensor.status is Status.COMPLETE:
        out.line(safe(tensor.finding.reason))
    if strings is not None and tensor.status is Status.COMPLETE and index is None:
        _show_strings(strings(), out)
        return
    if index is None and not options.partial and tensor.nbytes > _TEXT_LIMIT and tensor.shape:
        rows = max(1, min(3, tensor.shape[0] // 2))
        row = tensor.nbytes // tensor.shape[0]
        if row * rows <= _TEXT_LIMIT:
            import numpy as np

            out.line(str(np.asarray(tensor[:rows])))
            out.line(f"… {tensor.shape[0] - 2 * rows:,} rows; ask for some with a slice, or use -o FILE")
            out.line(str(np.asarray(tensor[-rows:])))
            return
        out.error("too large to show; ask for a slice, or use -o FILE")
        return
    out.line(str(_array(tensor, index, options.partial)))


def _text_or_hex(text: bytes) -> str | dict[str, str]:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"hex": text.hex()}


def _show_strings(strings: Iterator[bytes], out: Output) -> None:
    """Write texts, one a line; what is no UTF-8 with escapes."""
    for number, text in enumerate(strings):
        if number == _STRINGS_SHOWN:
            out.line("…")
            return
        shown = safe(text[:_STRING_BYTES].decode("utf-8", "backslashreplace"))
        out.line(shown + ("…" if len(text) > _STRING_BYTES else ""))


def _tensor_json(tensor: Tensor, index: tuple[Any, ...] | None, options: Any, out: Output) -> int:
    from json import dumps

    strings = getattr(tensor, "strings", None) if tensor.dtype is None else None
    if strings is not None and index is None and tensor.status is Status.COMPLETE:
        data = dumps([_text_or_hex(text) for text in strings()])
        shape = list(tensor.shape)
    else:
        array = _array(tensor, index, options.partial)
        data, shape = dumps(_plain(array)), list(array.shape)
    head = {"schema": 1, "file": options.file, "name": tensor.name, "dtype": str(tensor.dtype or tensor.stored_dtype),
            "shape": shape, "status": tensor.status.value}  # fmt: skip
    text = dumps(head)[:-1] + ', "data": ' + data + "}\n"
    if options.output:
        _write(options.output, out, lambda stream: stream.write(text.encode()))
    else:
        out.write(text)
    return OK


def _plain(array: Any) -> Any:
    """Return an array as nested lists that JSON can hold: complex numbers as pairs, NaN and infinities as text."""
    import numpy as np

    if np.ma.isMaskedArray(array):  # what is not there is null, not a number
        whole = np.array(_plain(array.filled(0)), dtype=object)
        mask = np.asarray(array.mask).reshape(array.shape + (1,) * (whole.ndim - array.ndim))
        whole[np.broadcast_to(mask, whole.shape)] = None
        return whole.tolist()
    if array.dtype == object:  # texts
        return np.array([_text_or_hex(text) for text in array.reshape(-1)], object).reshape(array.shape).tolist()
    if array.dtype.name in ("complex64", "complex128"):
        array = np.stack((array.real, array.imag), -1)
    elif array.dtype.kind not in "biuf" or array.dtype.name.startswith(("bfloat", "float8")):
        array = array.astype(np.complex64 if array.dtype.name in ("complex32", "bcomplex32") else np.float64)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        flat = [
            value if np.isfinite(value) else ("NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity")
            for value in array.reshape(-1).tolist()
        ]
        return np.array(flat, dtype=object).reshape(array.shape).tolist()
    return array.tolist()


# -- nodes -----------------------------------------------------------------------------------------------------------


def _known_status(node: Node) -> Status | None:
    """Return what is known of a node now, without loading it; None if that is nothing."""
    return node.status if node.known_status is Status.COMPLETE else node.known_status


def _give_node(node: Node, options: Any, out: Output) -> int:
    form = ".npy" if options.npy else None if options.raw or options.json else form_of(options.output)
    if form in (".npy", ".npz", ".safetensors", ".csv") and not hasattr(node.note, "raw_name"):
        raise PathError(f"only a tensor can be written as {form}", path=node.path or "the root")
    if options.npy:
        raise PathError("only a tensor can be written as .npy", path=node.path or "the root")
    if hasattr(node.note, "raw_name") and not options.json:
        return _give_member(node.result.parser, node.note, options.path or node.path, options, out)
    if options.raw:
        if options.output is None and sys.stdout.isatty():
            out.error("binary data is not for a terminal; use -o FILE or a pipe")
            return USAGE
        if _known_status(node) is Status.MISSING:
            node.load()  # raises, with the numbers
        _write(options.output, out, lambda stream: _node_bytes(node, stream))
        return OK if _known_status(node) in (None, Status.COMPLETE) else DAMAGED
    if options.partial == "prefix" and node.shape == SCALAR and _known_status(node) is Status.TRUNCATED:
        return _give_slice(node, (slice(None),), options, out)
    text = _node_json(node, options.file) if options.json else _node_text(node)
    if options.output:
        _write(options.output, out, lambda stream: _write_lines(text, stream))
    elif options.json or not sys.stdout.isatty():
        for piece in _pieces(text):
            out.write(piece)
    else:
        out.write(safe_lines(text) + "\n")
    if node.finding is not None and node.finding.code == UNSURE_NUMBER:  # the value is whole: nothing else would say it
        out.error(f"{node.path or 'the root'}: {node.finding.reason}")
    return OK if _known_status(node) in (None, Status.COMPLETE) else DAMAGED


def _give_slice(node: Node, index: tuple[Any, ...], options: Any, out: Output) -> int:
    """Give some bytes of a record or another scalar; only those are read."""
    cut = index[0] if len(index) == 1 else None
    if not isinstance(cut, slice) or cut.step not in (None, 1) or node.shape != SCALAR:
        raise PathError("bytes take one slice, [a:b]", path=node.path)
    whole = node.open()
    start, stop, _ = cut.indices(len(whole))
    finding = node.finding
    if _known_status(node) is Status.TRUNCATED and finding is not None and isinstance(finding.got, int):
        if stop > finding.got and options.partial != "prefix":
            raise EndOfDataError(f"{finding.reason}; --partial prefix gives what is there", path=node.path,
                                 wanted=stop, got=finding.got, source=options.file)  # fmt: skip
        stop = min(stop, finding.got)
    elif _known_status(node) not in (None, Status.COMPLETE):
        node._refuse_if_not_whole()
    part = whole.range(start, max(start, stop))
    code = OK if _known_status(node) in (None, Status.COMPLETE) else DAMAGED
    if options.raw:
        if options.output is None and sys.stdout.isatty():
            out.error("binary data is not for a terminal; use -o FILE or a pipe")
            return USAGE
        _write(options.output, out, lambda stream: _copy(part, stream))
        return code
    node.extraction.session.limits.check("scalar_bytes", len(part), "the slice", path=node.path)
    digits = part.read_exact(len(part)).hex()
    if options.json:
        from json import dumps

        status = _known_status(node) or Status.COMPLETE
        digits = dumps({"schema": 1, "file": options.file, "path": node.path, "kind": node.kind,
                        "status": status.value, "offset": start, "value": {"hex": digits}})  # fmt: skip
    if options.output:
        _write(options.output, out, lambda stream: stream.write(f"{digits}\n".encode()))
    else:
        out.line(digits)
    return code


def _give_member(parser: Any, member: Any, path: str, options: Any, out: Output) -> int:
    """Write a member of an archive: its bytes; on a terminal, only if they are text."""
    if options.output is None and sys.stdout.isatty():
        return _show_member(parser, member, out)
    verdict = None

    def write(stream: BinaryIO) -> None:
        nonlocal verdict
        verdict = parser.verify(member, _Beginning(stream))
        if verdict.status is Status.COMPLETE and verdict.verified is not True and _look_at_end(parser):
            again = _Beginning(stream)
            again.restart()  # it may be other bytes now
            verdict = parser.verify(member, again)

    _write(options.output, out, write)
    if verdict is None or verdict.status is Status.COMPLETE:
        return OK
    written = "what precedes the first loss was written" if verdict.gaps else "it was written, and may be wrong"
    out.error(f"{path}: {verdict.status}: {verdict.reason}; {written}")
    return DAMAGED


def _look_at_end(parser: Any) -> bool:
    """Look at the ends of the streams that an archive is in, if that costs little; say whether one contradicts."""
    extraction = parser.result.extraction if isinstance(parser, Parser) else None
    data = getattr(extraction, "data", None)
    while extraction is not None and extraction.implicit and isinstance(data, ResumedData) and data.left <= _LITTLE:
        data.finish()
        extraction = extraction.parent
        if data.flawed:
            return True
        data = getattr(extraction, "data", None)
    return False


class _Beginning:
    """Writes a content as far as nothing is missing; where the stream can go back, begins again when told to."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._whole = True

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> None:
        """Write ``chunk`` up to the first byte that is unknown."""
        if self._whole:
            self._stream.write(chunk[: unknown[0][0] - offset] if unknown else chunk)
            self._whole = not unknown

    def restart(self) -> None:
        """Begin again; what a pipe got stays, and then nothing more is written to it."""
        try:
            self._stream.seek(0)
            self._stream.truncate()
            self._whole = True
        except OSError:
            self._whole = False


class _Stream:
    """A compressed stream in the place of an archive with one member."""

    def __init__(self, parser: StreamParser) -> None:
        self._parser = parser

    def verify(self, member: None, sink: Any) -> Any:
        """Read the content through."""
        return self._parser.verify(sink)

    def open_member(self, member: None) -> Extraction:
        """Return the content."""
        return self._parser.inner()


def _show_member(parser: Any, member: Any, out: Output) -> int:
    head = parser.open_member(member).reader.read(MIB)
    if not _is_text(head):
        out.error("binary data is not for a terminal; use -o FILE or a pipe")
        return USAGE
    out.write(safe_lines(head.decode("utf-8", "replace")))
    if len(head) == MIB:
        out.error("this was the first MiB; use -o FILE or a pipe for all of it")
    return OK


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return "\0" not in text


def safe_lines(text: str) -> str:
    """Return text for a terminal, line breaks kept."""
    return "\n".join(safe(line) for line in text.split("\n"))


def _node_value(node: Node) -> Any:
    return node.load() if node.shape == SCALAR else node.to_python(node.extraction.session.limits.scalar_bytes)


def _node_text(node: Node) -> str:
    from json import dumps

    value = _node_value(node)
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, str):
        return value
    return dumps(value, indent=2, ensure_ascii=False, default=_hex)


def _node_json(node: Node, file: str) -> str:
    from json import dumps

    value = _node_value(node)
    status = _known_status(node) or Status.COMPLETE
    return dumps({"schema": 1, "file": file, "path": node.path, "kind": node.kind, "status": status.value,
                  "value": value}, default=_hex)  # fmt: skip


def _pieces(text: str) -> Iterator[str]:
    """Yield a text, and the end of its line, a mebibyte at a time: encoded as a whole it would be there once more."""
    for at in range(0, len(text), MIB):
        yield text[at : at + MIB]
    yield "\n"


def _write_lines(text: str, stream: BinaryIO) -> None:
    for piece in _pieces(text):
        stream.write(piece.encode("utf-8", "backslashreplace"))


def _hex(value: object) -> object:
    return {"hex": value.hex()} if isinstance(value, bytes) else str(value)


def _node_bytes(node: Node, stream: BinaryIO) -> None:
    _copy(node.open(), stream)


def _copy(reader: Range, stream: BinaryIO) -> None:
    while chunk := reader.read(MIB):
        stream.write(chunk)


def _write(path: str | None, out: Output, write: Any) -> None:
    if path is None:
        write(out.binary())
        out.binary().flush()
        return
    if os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise PathError("is a folder; name a file in it", path=path)
        with open(path, "wb") as device:  # a pipe or a device must not be replaced
            write(device)
        return
    from pparse.writers.files import AtomicFile

    with AtomicFile(path) as file:
        write(file.stream)
