"""``pparse get``: writes a node, a member of an archive, or a slice of one."""

from __future__ import annotations

import os
import shlex
import sys

from pparse.cli.common import DAMAGED, OK
from pparse.cli.get_tensor import form_of
from pparse.cli.output import copy, pieces, refuse_terminal, write, write_binary, write_lines
from pparse.compressed.resumed import ResumedData
from pparse.containers.archive import ArchiveMember, ArchiveParser
from pparse.display.text import safe
from pparse.document.appearance import text_start
from pparse.document.extraction import extraction_of
from pparse.document.registry import viewer_for
from pparse.errors import PASSING, EndOfDataError, OptionError, PathError, PparseError
from pparse.findings import UNSURE_NUMBER, Status
from pparse.limits import LITTLE, MIB
from pparse.tree.entry import SCALAR, UNLOADED_VALUE
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Final

    from pparse.cli.output import Output
    from pparse.containers.stream import StreamParser
    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction
    from pparse.tree.node import Node


# Kinds of texts, which are sliced by characters; of JSON's numbers, which may be long; and of constants.
_TEXTS: Final = frozenset(("string", "text"))
_NUMBERS: Final = frozenset(("number", "true", "false", "null"))
# The most bytes of a number in a binary format.
_LONGEST_NUMBER: Final = 16


def _known_status(node: Node) -> Status | None:
    """Return the known status of a node, without loading it unless its bytes are in doubt; None if it is not known."""
    known = node.known_status
    return node.status if known is Status.COMPLETE or (known is None and node.extraction.data.flawed) else known


def _code_of(node: Node) -> int:
    return OK if _known_status(node) in (None, Status.COMPLETE) else DAMAGED


def _is_member(node: Node) -> bool:
    return isinstance(node.note, ArchiveMember)


def give_node(node: Node, options: Any, out: Output) -> int:
    """Write a node as text, JSON, or its bytes; a member of an archive as its content."""
    _choose_form(node, options)
    if _is_member(node) and not options.json:
        return give_member(node.result.parser, node.note, options.path or node.path, options, out)
    if options.raw:
        if options.output is None and sys.stdout.isatty():
            return refuse_terminal(out)
        if _known_status(node) is Status.MISSING:
            node.load()  # raises, with offset and sizes
        write(options.output, out, lambda stream: copy(node.open(), stream))
        return _code_of(node)
    if options.partial == "prefix" and node.shape == SCALAR and _known_status(node) is Status.TRUNCATED:
        return give_slice(node, (slice(None),), options, out)
    _write_or_show(_node_json(node, options) if options.json else _node_text(node, options.output), options, out)
    if node.finding is not None and node.finding.code == UNSURE_NUMBER:  # nothing else reports it
        out.error(f"{node.path or 'the root'}: {node.finding.reason}")
    return _code_of(node)


def _choose_form(node: Node, options: Any) -> None:
    """Choose JSON for a node if the extension says so. Raise `PathError` for a form that only tensors have."""
    refuse_dtype(options)
    as_bytes = options.raw or (_is_member(node) and not options.json)
    form = ".npy" if options.npy else None if as_bytes else form_of(options.output)
    if form == ".json":
        options.json = True
    elif form is not None:
        raise PathError(f"only a tensor can be written as {form}", path=node.path or "the root")


def refuse_dtype(options: Any) -> None:
    """Raise `OptionError` for ``--dtype`` on something that is not a tensor."""
    if options.dtype is not None:
        raise OptionError("--dtype converts tensors, and this is not one")


def _refuse_extension(path: str | None, what: str) -> None:
    """Raise `OptionError` for a file name whose extension does not mean text."""
    if path is None or (os.path.exists(path) and not os.path.isfile(path)):
        return
    ending = os.path.splitext(path)[1]
    if ending.lower() not in ("", ".txt"):
        raise OptionError(
            f"{path}: {ending} does not say how to write {what}: "
            "use --raw for the bytes as they are, or the extensions .json and .txt for text"
        )


def give_slice(node: Node, index: tuple[Any, ...], options: Any, out: Output) -> int:
    """Write some characters of a text, or some bytes of a record, a member or another scalar; only these are read."""
    if _is_number(node):
        raise PathError(f"it is of kind {node.kind}; only bytes and texts have slices", path=node.path)
    cut = index[0] if len(index) == 1 else None
    if not isinstance(cut, slice) or cut.step not in (None, 1) or node.shape != SCALAR:
        raise PathError("bytes and texts take one slice, [a:b]", path=node.path)
    _choose_form(node, options)
    text = node.load() if node.kind in _TEXTS and not options.raw else None
    if isinstance(text, str):
        shown = text[cut]
        start = cut.indices(len(text))[0]
        _write_or_show(_as_json(node, shown, options, start) if options.json else shown, options, out)
        return OK
    start, part = _part(node, cut, options)
    code = _code_of(node)
    is_member = _is_member(node) and not options.json
    if options.raw or (is_member and (options.output or not sys.stdout.isatty())):
        return write_binary(options.output, out, lambda stream: copy(part, stream), code)
    node.extraction.session.limits.check("scalar_bytes", len(part), "the slice", path=node.path)
    if not is_member and not options.json:
        _refuse_extension(options.output, "bytes")
    content = part.read_exact(len(part))
    if is_member and _is_text(content):
        out.write(safe_lines(content.decode("utf-8", "replace")))
        return code
    shown = _as_json(node, {"hex": content.hex()}, options, start) if options.json else content.hex()
    _write_or_show(shown, options, out)
    return code


def _is_number(node: Node) -> bool:
    """Return whether a scalar is a number, a boolean or the like, so that slices of it have no meaning."""
    if node.kind in _NUMBERS:
        return True
    if node.kind in _TEXTS or _is_member(node) or node.shape != SCALAR or len(node.open()) > _LONGEST_NUMBER:
        return False
    try:
        value = node.load()
    except PparseError:  # errors are reported when it is read
        return False
    return not isinstance(value, bytes)


def _part(node: Node, cut: slice, options: Any) -> tuple[int, Range]:
    """Return the offset of a slice in a scalar, and a reader of its bytes. Raise if some bytes are missing."""
    parser: object = node.result.parser
    if isinstance(parser, ArchiveParser) and _is_member(node):
        parser.open_member(node.note).resolve()
    whole = node.open()
    said = node.note.size if _is_member(node) else None
    start, stop, _ = cut.indices(len(whole) if said is None else max(said, len(whole)))
    stop = max(start, stop)
    status, finding = _known_status(node), node.finding
    if _is_member(node):
        part = whole.range(start, stop)
        checked = part.data.range_status(part.start, part.start + stop - start)
        if checked.status is not Status.COMPLETE and options.partial != "prefix":
            raise _cut_short(node, checked.reason, stop - start, checked.there, options)
        stop = start + min(stop - start, checked.there)
    elif status is Status.TRUNCATED and finding is not None and isinstance(finding.got, int):
        if stop > finding.got and options.partial != "prefix":
            raise _cut_short(node, finding.reason, stop, finding.got, options)
        stop = min(stop, finding.got)
    elif status not in (None, Status.COMPLETE):
        node._refuse_if_not_whole()
    return start, whole.range(start, stop)


def _cut_short(node: Node, reason: str | None, wanted: int, there: int, options: Any) -> EndOfDataError:
    reason = f"{reason}; --partial prefix gives what is there"
    return EndOfDataError(reason, path=node.path, wanted=wanted, got=there, source=options.file)


def _as_json(node: Node, value: Any, options: Any, start: int | None = None) -> str:
    """Return the value of a node, or a slice that begins at ``start``, as JSON."""
    from pparse.cli.json_text import deep_dumps

    if options.bare:
        return deep_dumps(value)
    status = _known_status(node) or Status.COMPLETE
    head = {"schema": 1, "file": options.file, "path": node.path, "kind": node.kind, "status": status.value}
    if start is not None:
        head["offset"] = start
    return deep_dumps(head | {"value": value})


def _write_or_show(text: str, options: Any, out: Output) -> None:
    """Write a text and a line break; what a terminal gets is safe for it."""
    if options.output:
        write(options.output, out, lambda stream: write_lines(text, stream))
        return
    if not options.json and sys.stdout.isatty():
        text = safe_lines(text)
    for piece in pieces(text):
        out.write(piece)


def _node_value(node: Node) -> Any:
    return node.load() if node.shape == SCALAR else node.to_python(node.extraction.session.limits.scalar_bytes)


def _node_text(node: Node, output: str | None) -> str:
    from pparse.cli.json_text import deep_dumps

    value = _node_value(node)
    if isinstance(value, bytes) or node.shape != SCALAR:
        _refuse_extension(output, "bytes" if isinstance(value, bytes) else "a node with members")
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, str):
        return value
    return deep_dumps(value, indent=2, ensure_ascii=False)


def _node_json(node: Node, options: Any) -> str:
    value = node.to_json(node.extraction.session.limits.scalar_bytes)
    return _as_json(node, _node_value(node) if value is UNLOADED_VALUE else value, options)


# -- members of archives -----------------------------------------------------------------------------------------------


def give_member(parser: Any, member: Any, path: str, options: Any, out: Output) -> int:
    """Write a member of an archive: its bytes; on a terminal, only if they are text."""
    refuse_dtype(options)
    if options.output is None and sys.stdout.isatty():
        return _show_member(parser, member, options, out)
    verdict = None

    def read_into(stream: BinaryIO) -> None:
        nonlocal verdict
        verdict = parser.verify(member, _Beginning(stream))
        if verdict.status is Status.COMPLETE and verdict.verified is not True and _look_at_end(parser):
            again = _Beginning(stream)
            again.restart()  # its bytes may be different now
            verdict = parser.verify(member, again)

    write(options.output, out, read_into)
    if verdict is None or verdict.status is Status.COMPLETE:
        return OK
    written = "the part before the first loss was written" if verdict.gaps else "it was written, and may be wrong"
    out.error(f"{path}: {verdict.status}: {verdict.reason}; {written}")
    return DAMAGED


def _look_at_end(parser: Any) -> bool:
    """Check the ends of the streams around an archive, if that is cheap; say whether one contradicts its checksum."""
    extraction = extraction_of(parser.result) if isinstance(parser, Parser) else None
    data = extraction.data if extraction is not None else None
    while extraction is not None and extraction.implicit and isinstance(data, ResumedData) and data.left <= LITTLE:
        data.verify()
        extraction = extraction.parent
        if data.flawed:
            return True
        data = extraction.data if extraction is not None else None
    return False


class _Beginning:
    """Writes content up to the first missing byte; on `restart`, begins again if the output can seek."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._whole = True

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> None:
        """Write ``chunk`` up to its first unknown byte."""
        if self._whole:
            self._stream.write(chunk[: unknown[0][0] - offset] if unknown else chunk)
            self._whole = not unknown

    def restart(self) -> None:
        """Begin again. A pipe keeps what it got, and nothing more is written to it."""
        try:
            self._stream.seek(0)
            self._stream.truncate()
            self._whole = True
        except OSError:
            self._whole = False


class StreamMember:
    """A compressed stream that acts as an archive with one member."""

    def __init__(self, parser: StreamParser) -> None:
        self._parser = parser

    def verify(self, member: None, sink: Any) -> Any:
        """Read all of the content."""
        return self._parser.verify(sink)

    def open_member(self, member: None) -> Extraction:
        """Return the content."""
        return self._parser.inner()


def _show_member(parser: Any, member: Any, options: Any, out: Output) -> int:
    content = parser.open_member(member)
    head = content.reader.read(MIB)
    if not _is_text(head):
        name = _tensor_of(content)
        if name is None:
            return refuse_terminal(out)
        file = f"{options.file}::{options.path}" if options.path else options.file
        return refuse_terminal(out, f"name a tensor of it: pparse get {shlex.quote(file)} {shlex.quote(name)}")
    out.write(safe_lines(head.decode("utf-8", "replace")))
    if len(head) == MIB:
        out.error("these were the first MiB; use -o FILE or a pipe for everything")
    return OK


def _tensor_of(content: Extraction) -> str | None:
    """Return the name of the first tensor of a member; None if it has none."""
    try:
        viewer = viewer_for(content)
        return None if viewer is None else next((tensor.name for tensor in viewer.tensors()), None)
    except PASSING:
        raise
    except PparseError:
        return None


def _is_text(head: bytes) -> bool:
    text = text_start(head)
    return text is not None and "\0" not in text


def safe_lines(text: str) -> str:
    """Return text that is safe for a terminal, with its line breaks."""
    return "\n".join(safe(line) for line in text.split("\n"))
