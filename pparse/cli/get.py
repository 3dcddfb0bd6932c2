"""Get one thing out of a file: a tensor, a slice of it, or a node.

PATH is tried as the exact name of a tensor, then as a name with a slice (``name[0:2, ..., 1]``), then as the path of a
node: a tensor comes before a node with the same path, but a field of a TensorFlow message, such as ``versions``, before
a constant of its name (``-p NAME -o x.npz`` gives that). ``[a:b]`` also cuts a piece out of a record, a text or an
archive's member. Of a list, ``[a:b]`` and ``[*]`` are several elements, and what follows is taken of each: they are
written as lines of JSON. Only the bytes of the result are read.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from itertools import chain, islice

from pparse.cli.common import DAMAGED, OK, open_file, refuse_own
from pparse.cli.get_tensor import dtype_named, form_of, give_many, give_tensor, refuse_cast, refuse_dtype
from pparse.cli.output import copy, pieces, refuse_terminal, write, write_binary, write_text
from pparse.cli.selection import has_conditions
from pparse.compressed.resumed import ResumedData
from pparse.containers.archive import CUT_BEFORE, ArchiveMember, ArchiveParser
from pparse.containers.stream import StreamParser
from pparse.display.text import safe, unescaped
from pparse.document.appearance import text_start
from pparse.document.extraction import extraction_of
from pparse.document.registry import viewer_for
from pparse.errors import DataError, EndOfDataError, OptionError, PathError, PparseError
from pparse.findings import Status
from pparse.limits import LITTLE, MIB
from pparse.paths import split_slice
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.scales import quantisation_of, whole_of
from pparse.tree.entry import LIST, SCALAR, UNLOADED_VALUE
from pparse.tree.node import ChildIndexError, ChildKeyError, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, BinaryIO, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.tree.parser import Parser

    # What a path names, and what of it is asked for: None for all of it.
    _Found = tuple[Tensor | Node, tuple[Any, ...] | None]

# Names that an error shows.
_SHOWN: Final = 3
# What stands before the names of metadata, in every format.
_FACTS: Final = "metadata."
EXAMPLES: Final = """examples:
  pparse get model.safetensors h.0.attn.weight
  pparse get model.safetensors 'h.0.attn.weight[0:2, ..., 1]' --json
  pparse get model.safetensors h.0.attn.weight -o weight.npy --dtype float32
  pparse get model.safetensors -p '*.attn.*' -o attention.npz
  pparse get model.safetensors metadata.format
  pparse get config.json 'quantization.bits'
  pparse get model.onnx --json --bare -o model.onnx.json
  pparse get rows.jsonl '[5:10]'
  pparse get rows.jsonl '[*].text' -o texts.jsonl
  pparse get records.riegeli 64/3 --raw -o record.bin
  pparse get records.riegeli '64/3[0:16]'
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a file, a folder, - or outer::inner")
    parser.add("PATH", "a tensor, a slice of one, a node, or several elements of a list", nargs="?")
    parser.add(
        "-o --output OUT",
        "write to this file, completely or not at all; archive members as far as readable. The extension gives "
        "the form of a tensor: .npy .npz .safetensors .json .csv; a node is .json or else text; other names need --raw",
    )
    parser.add("--dtype TYPE", "convert a tensor to this type, for example float32, fp16 or torch.bfloat16")
    dequantize = (
        "what quantised tensors stand for, as float32: codes multiplied by the scales that the file has for them"
    )
    parser.add("--dequantize", dequantize)
    parser.add_one_of(raw="the bytes as stored; of one text of a tensor, its own", npy="a numpy .npy file", json="JSON")
    parser.add("--bare", "with --json: the value, without what is said about it")
    partial = (
        "of a truncated tensor, the complete rows, or the full shape with zeros; of a truncated "
        "record, the bytes that are there"
    )
    parser.add("--partial", partial, choices=("prefix", "fill"))
    pattern = "write all tensors that match, and fit the options below, to one .npz or .safetensors (-o); repeatable"
    parser.add_filters(pattern=pattern, dtype="--only-dtype")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    _refuse_contradictions(options)
    with open_file(options, out) as document:
        refuse_own(document, options.output)
        if options.patterns or has_conditions(options):
            return give_many(document, options, out)
        if options.path is None and document.origin is not None and not (options.json or options.npy):
            return give_member(*document.origin, document.path, options, out)
        parser = document.result.parser
        parser.result.extraction.resolve()
        if isinstance(parser, StreamParser) and options.path in (None, parser.content_name()) and not options.json:
            return give_member(parser, None, document.path, options, out)
        viewer = viewer_for(document)
        try:
            thing, index = _find(document, viewer, options.path)
        except PathError as error:
            code = None if options.path is None else _give_no_node(document, options, out)
            if code is None:
                _refuse_behind_cut(document, error)
                raise
            return code
        if isinstance(thing, Node):
            return give_node(thing, options, out) if index is None else give_slice(thing, index, options, out)
        _tell_of_names(viewer, thing, out)
        thing, told = _as_meant(viewer, thing, options, out)
        return give_tensor(thing, index, options, out, viewer, told)


def _refuse_behind_cut(document: Extraction, error: PathError) -> None:
    """Raise `EndOfDataError` if the element that ``error`` misses may stand in the lost part of a truncated list."""
    if not isinstance(error, ChildIndexError):
        return
    above = document.node(error.path) if error.path not in (None, "the root") else document.root
    last, there = max(0, len(above) - 1), above.extraction
    cut = any(node.is_truncated for node in (above, *above.children(last)))
    if cut or (above.parent is None and there.data.is_cut_at(there.find_end())):  # between two rows
        reason = f"{error.reason}: it is truncated there; 'pparse check' says at which byte"
        raise EndOfDataError(reason, source=document.outermost.name) from error


def _give_no_node(document: Extraction, options: Any, out: Output) -> int | None:
    """Give what the metadata of a model say under this name, which is not that of a node, or several elements of a list
    that it leads to; None if there is neither.

    ``metadata`` are all of them, and ``metadata.NAME`` is what NAME is, unless that is a name itself.
    """
    viewer = viewer_for(document)
    names = (options.path, options.path.removeprefix(_FACTS))
    for name in names if viewer is not None else ():
        if (node := _fact_node(viewer, name)) is not None:
            return give_node(node, options, out)
    facts = viewer.metadata if viewer is not None and options.output is None else {}
    if facts:
        import json

        from pparse.cli.info import nested

        found = {_FACTS[:-1]: dict(facts), **dict(nested(facts)), **facts}
        for name in names:
            if name in found:
                out.line(json.dumps(found[name], default=str))
                return OK
    from pparse.cli.get_json import give_rows

    return give_rows(document, options, out)


def _fact_node(viewer: Viewer, name: str) -> Node | None:
    """Return the node of a value in the metadata, or of an element of one."""
    node = viewer.fact_node(name)
    if node is None and (parts := split_slice(name)) is not None:
        inside, number = viewer.fact_node(parts[0]), parts[1][0]
        if inside is not None and inside.shape != SCALAR and len(parts[1]) == 1 and isinstance(number, int):
            return inside.child(number if number >= 0 else number + len(inside))
    return node


def _as_meant(viewer: Any, tensor: Tensor, options: Any, out: Output) -> tuple[Tensor, Mapping[str, object]]:
    """Return the tensor to give, with ``--dequantize`` what its codes stand for, and what JSON tells of its meaning.

    That is its scale, or the sparse or nested tensor of which it is a part. Raises `OptionError` for codes that
    ``--dtype`` would cast without their scales.
    """
    found = quantisation_of(viewer, tensor)
    if found is None:
        if options.dequantize and not isinstance(tensor, BlockTensor):
            out.error(f"note: {safe(tensor.name)} is given as it is: no scales belong to it")
        whole = whole_of(viewer, tensor)
        return tensor, {} if whole is None else {"part_of": whole}
    if options.dequantize:
        return found.tensor(), {}
    refuse_cast(found, options.dtype)
    if not (options.json or form_of(options.output) == ".json"):
        out.error(f"note: {safe(tensor.name)} holds codes ({safe(str(found))}): --dequantize gives the numbers")
    return tensor, {"quantization": found.to_dict()}


def _tell_of_names(viewer: Any, tensor: Tensor, out: Output) -> None:
    """Say that tensors are not called as usual, as their names are lost: another one may have had this name."""
    for finding in viewer.findings:
        if finding.code == "names":
            out.error(f"note: {tensor.name}: {finding.reason}")


def _refuse_contradictions(options: Any) -> None:
    """Raise `OptionError` for options that ask for two forms at once."""
    said = ".npy" if options.npy else ".json" if options.json else None
    named = form_of(options.output)
    if said is not None and named not in (None, said):
        raise OptionError(f"{options.output} asks for {named}, and --{said[1:]} for {said}: leave one of them out")
    if options.bare and not options.json and named != ".json":
        raise OptionError("--bare leaves out what --json says about a value: give both")
    if options.raw and options.dequantize:
        raise OptionError("--dequantize computes values, and --raw writes bytes as they are stored: leave one out")
    if options.raw and options.dtype is not None:
        raise OptionError("--dtype converts values, and --raw writes bytes as they are stored: leave one of them out")
    options.dtype = dtype_named(options.dtype)


def _find(document: Extraction, viewer: Any, path: str | None) -> _Found:
    if viewer is None:
        return (document.root, None) if path is None else _find_member(document, path)
    if path is not None:
        return _find_tensor(document, viewer, path)
    tensor = _only_tensor(viewer)
    if tensor is None and viewer.needs_name:
        names = ", ".join(repr(tensor.name) for tensor in islice(viewer.tensors(), _SHOWN))
        raise PathError(
            f"say what to get: the name of a tensor, such as {names}, or of a value that 'pparse info' shows"
            if names
            else "there is nothing to get: the file has no tensors",
            path=document.name,
        )
    return viewer.default_node if tensor is None else tensor, None


def _only_tensor(viewer: Viewer) -> Tensor | None:
    """Return the tensor that is meant if none is named: that of a file for one, or one without a name."""
    return viewer.find(viewer.default_name or "")


def _find_member(document: Extraction, path: str) -> _Found:
    """Return the node that is listed as ``path``, or stands there, and what of it is asked for."""
    find = document.result.listing.find_member
    member, parts = find(path), split_slice(path)
    if member is None and parts is not None:
        sliced = find(parts[0])
        sliced = _sliced_at(document, *parts) if sliced is None else sliced
        if sliced is not None:
            return sliced, parts[1]
    return _find_node(document, path) if member is None else member, None


def _find_tensor(document: Extraction, viewer: Viewer, path: str) -> _Found:
    """Return the tensor, or else the node, at ``path``, and what of it is asked for."""
    # The name as it is, and as `ls` shows unprintable characters; one that no sound file has only if no node is there.
    names = dict.fromkeys((path, unescaped(path)))
    asked = [found for name in names for found in ((name, None), split_slice(name)) if found is not None]
    for name, selection in asked:
        if viewer.may_name(name) and (tensor := viewer.find(name)) is not None:
            return tensor, selection
    sliced = split_slice(f"_{path}") if path.startswith("[") else None
    if sliced is not None and sliced[0] == "_" and (only := _only_tensor(viewer)) is not None:
        return only, sliced[1]
    try:
        return document.node(path), None
    except PathError as error:
        parts = split_slice(path)
        if parts is not None and (node := _sliced_at(document, *parts)) is not None:
            return node, parts[1]
        for name, selection in asked:
            if not viewer.may_name(name) and (tensor := viewer.find(name)) is not None:
                return tensor, selection
        if isinstance(error, ChildKeyError | ChildIndexError) and error.path != "the root":
            raise  # the path is valid up to a point, which the error names
        if viewer.names_may_be_lost and (extent := viewer.extent()).at_least:
            where = "in the header, which is truncated"
            if missing := extent.missing_files:
                are = "1 shard that may hold it is" if missing == 1 else f"{missing:,} shards that may hold it are"
                where = f"in the shards that can be read; {are} missing"
            raise EndOfDataError(f"no tensor of this name {where}", path=path, source=document.name) from error
        raise _unknown_name(viewer, path, parts[0] if parts is not None else path, error) from error


def _unknown_name(viewer: Viewer, path: str, name: str, error: PathError) -> PathError:
    odd = _odd_slice(path, viewer)
    if odd is not None:
        return PathError(odd, path=path)
    graph_node, why = _graph_node(viewer, name), viewer.why_unknown()
    why = "" if why is None else f" ({why})"
    if graph_node is not None:
        return PathError(graph_node + why, path=path)
    reason = "no tensor and no node has this name" + why
    if "*" in path or "{" in path:
        reason += "; a pattern is for -p"
    near = viewer.suggest(name) or error.suggestions
    reason += "" if near else "; 'pparse ls' lists the tensors"
    return PathError(reason, path=path, suggestions=near)


def _graph_node(viewer: Viewer, name: str) -> str | None:
    """Return what the node of the graph is that is called ``name``, and where; None if there is none."""
    try:
        graph = viewer.graph
        node = graph.nodes.get(name) if graph is not None else None
        if node is None:
            return None
        where = safe(node.node.path)
    except PparseError:  # of a graph that cannot be read
        return None
    return f"no tensor, but a node of the graph ({safe(node.op)}), which is {where} in 'pparse tree' and 'pparse get'"


def _odd_slice(path: str, viewer: Viewer) -> str | None:
    """Return what is wrong with the slice behind the name of a tensor; None if it is no such thing."""
    name, bracket, inside = path.partition("[")
    if not bracket or viewer.find(name) is None:
        return None
    if not inside.endswith("]"):
        return "the bracket behind the name is not closed"
    if "None" in inside or "newaxis" in inside:
        return "a slice takes elements away, it adds no axis: leave None out"
    if "[" in inside:
        return "a slice has numbers and ranges, no lists: take a range, or the rows one by one"
    return "not a slice: numbers and ranges with commas between them, such as [0, 10:20, ..., ::2]"


def _find_node(document: Extraction, path: str) -> Node:
    """Return the node at ``path``. For an archive without it, the error has the name as it was typed."""
    try:
        return document.node(path)
    except PathError as error:
        is_below = isinstance(error, ChildKeyError | ChildIndexError) and error.path != "the root"
        if is_below or not isinstance(document.result.parser, ArchiveParser):
            raise
        suggestions = document.result.suggest(document.root, path) or error.suggestions
        if document.root.is_truncated:
            raise EndOfDataError(CUT_BEFORE, path=path, source=document.outermost.name) from error
        raise PathError("no member and no node has this name", path=path, suggestions=suggestions) from error


def _sliced_at(document: Extraction, path: str, index: tuple[Any, ...]) -> Node | None:
    """Return the scalar node at a path, for a slice of its bytes; None if there is no node.

    Raise `PathError` if it is a container, and ``index`` cannot be a step of a path.
    """
    try:
        node = document.node(path)
    except PathError:
        return None
    if node.shape == SCALAR:
        return node
    if all(isinstance(item, int) for item in index):
        return None
    if node.shape == LIST:
        raise PathError(f"lists take one slice, [a:b] or [*]; {f'{path}[0]'!r} is an element", path=path)
    raise PathError(f"it is of kind {node.kind}; only lists, bytes and texts have slices", path=path)


# -- Writes a node, or a slice of one ----------------------------------------------------------------------------------

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
    parser = node.result.parser
    repeated = parser.repeated_keys
    _write_or_show(_node_json(node, options) if options.json else _node_text(node, options.output), options, out)
    if count := parser.repeated_keys - repeated:
        met = "1 key occurs" if count == 1 else f"{count:,} keys occur"
        out.error(f"note: {met} more than once in one object: the second of a name is written as {'name#2'!r}")
    if (unsure := node.unsure_number) is not None:  # nothing else reports it
        out.error(f"{node.path or 'the root'}: {unsure.reason}")
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
        raise PathError(f"it is of kind {node.kind}; only lists, bytes and texts have slices", path=node.path)
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
        return write_binary(options.output, out, lambda stream: copy(part, stream), code, len(part))
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
    known = node.kind in _NUMBERS | _TEXTS or _is_member(node) or node.shape != SCALAR
    if known or len(node.open()) > _LONGEST_NUMBER:
        return node.kind in _NUMBERS
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
        if not checked.is_complete and options.partial != "prefix":
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
    from pparse.cli.get_json import deep_dumps

    told = value if options.bare else _head(node, options, start) | {"value": value}
    return deep_dumps(told, node.result.parser.json_default)


def _head(node: Node, options: Any, start: int | None = None) -> dict[str, Any]:
    """Return what JSON says about the value of a node, or of a slice that begins at ``start``."""
    status = _known_status(node) or Status.COMPLETE
    head = {"schema": 1, "file": options.file, "path": node.path, "kind": node.kind, "status": status.value}
    return head if start is None else {**head, "offset": start}


def _write_or_show(text: str | Iterator[str], options: Any, out: Output) -> None:
    """Write a text, or the pieces of one, and a line break; what a terminal gets is safe for it."""
    parts = pieces(text) if isinstance(text, str) else chain(text, ("\n",))
    if not (options.output or options.json) and sys.stdout.isatty():
        parts = map(safe_lines, parts)
    write_text(options.output or None, out, parts)


def _node_value(node: Node) -> Any:
    return node.load() if node.shape == SCALAR else node.to_python(node.extraction.session.limits.scalar_bytes)


def _node_text(node: Node, output: str | None) -> str | Iterator[str]:
    from pparse.cli.get_json import deep_dumps

    large = node.result.parser.json_text(node, 2, ensure_ascii=False) if node.shape != SCALAR else None
    if large is not None:
        _refuse_extension(output, "a node with members")
        return large
    value = _node_value(node)
    if isinstance(value, bytes):
        _refuse_extension(output, "bytes")
        return value.hex()
    if node.shape != SCALAR:
        _refuse_extension(output, "a node with members")
    default = node.result.parser.json_default
    return value if isinstance(value, str) else deep_dumps(value, default, indent=2, ensure_ascii=False)


def _node_json(node: Node, options: Any) -> str | Iterator[str]:
    large = node.result.parser.json_text(node, None, ensure_ascii=True) if node.shape != SCALAR else None
    if large is not None:
        from json import dumps

        return large if options.bare else chain((dumps(_head(node, options))[:-1] + ', "value": ',), large, "}")
    value = node.to_json(node.extraction.session.limits.scalar_bytes)
    return _as_json(node, _node_value(node) if value is UNLOADED_VALUE else value, options)


# -- members of archives -----------------------------------------------------------------------------------------------


def give_member(parser: Any, member: Any, path: str, options: Any, out: Output) -> int:
    """Write a member of an archive, or the content of a compressed stream (``member`` is None then): its bytes.

    On a terminal, only if they are text.
    """
    refuse_dtype(options)
    if options.output is None and sys.stdout.isatty():
        return _show_member(parser, member, options, out)
    verify = parser.verify if member is None else partial(parser.verify, member)

    def read_into(stream: BinaryIO) -> Any:
        beginning = _Beginning(stream)
        verdict = verify(beginning)
        unsure = member is not None and verdict.is_complete and verdict.verified is not True
        if unsure and _look_at_end(parser):
            beginning.restart()  # its bytes may be different now
            verdict = verify(beginning)
        return verdict

    whole = member is not None and member.is_complete
    least = min(member.compressed_size or 0, member.size or 0) if whole else 0
    verdict = write(options.output, out, read_into, least)
    if verdict.is_complete:
        return OK
    written = "the part before the first loss was written" if verdict.gaps else "it was written, and may be wrong"
    out.error(f"{path}: {verdict.status}: {verdict.reason}; {written}")
    return DAMAGED


def _look_at_end(parser: Parser) -> bool:
    """Check the ends of the streams around an archive, if that is cheap; say whether one contradicts its checksum."""
    for level in extraction_of(parser.result).outward():
        if not (level.implicit and isinstance(level.data, ResumedData) and level.data.left <= LITTLE):
            break
        level.data.verify()
        if level.data.flawed:
            return True
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


def _show_member(parser: Any, member: Any, options: Any, out: Output) -> int:
    content = parser.inner() if member is None else parser.open_member(member)
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
    except DataError:
        return None


def _is_text(head: bytes) -> bool:
    text = text_start(head)
    return text is not None and "\0" not in text


def safe_lines(text: str) -> str:
    """Return text that is safe for a terminal, with its line breaks."""
    return "\n".join(safe(line) for line in text.split("\n"))
