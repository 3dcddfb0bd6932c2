"""Get one thing out of a file: a tensor, a slice of it, or a node.

PATH is tried as the exact name of a tensor, then as a name with a slice (``name[0:2, ..., 1]``), then as the path of a
node: a tensor comes before a node with the same path. ``[a:b]`` also cuts a piece out of a record, a text or an
archive's member. Only the bytes of the result are read.
"""

from __future__ import annotations

from itertools import islice

from pparse.cli.common import OK, add_option, open_file
from pparse.cli.get_node import StreamMember, give_member, give_node, give_slice
from pparse.cli.get_tensor import form_of, give_many, give_tensor, refuse_cast
from pparse.containers.archive import CUT_BEFORE, ArchiveParser
from pparse.containers.stream import StreamParser
from pparse.display.text import safe, unescaped
from pparse.document.registry import viewer_for
from pparse.errors import EndOfDataError, OptionError, PathError
from pparse.findings import Status
from pparse.paths import split_slice
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.layouts import whole_of
from pparse.tensors.scales import quantisation_of
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import LIST, SCALAR
from pparse.tree.node import ChildIndexError, ChildKeyError, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.tensors.tensor import Tensor

    # What a path names, and what of it is asked for: None for all of it.
    _Found = tuple[Tensor | Node, tuple[Any, ...] | None]

# Names that an error shows.
_SHOWN: Final = 3
EXAMPLES: Final = """examples:
  pparse get model.safetensors h.0.attn.weight
  pparse get model.safetensors 'h.0.attn.weight[0:2, ..., 1]' --json
  pparse get model.safetensors h.0.attn.weight -o weight.npy --dtype float32
  pparse get model.safetensors -p '*.attn.*' -o attention.npz
  pparse get model.safetensors metadata.format
  pparse get config.json 'quantization.bits'
  pparse get model.onnx --json --bare -o model.onnx.json
  pparse get records.riegeli 64/3 --raw -o record.bin
  pparse get records.riegeli '64/3[0:16]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="a file, a folder, or outer::inner")
    parser.add_argument("path", metavar="PATH", nargs="?", help="a tensor, a slice of one, or a node")
    add_option(
        parser,
        "-o --output OUT",
        "write to this file, completely or not at all; archive members as far as readable. The extension gives "
        "the form of a tensor: .npy .npz .safetensors .json .csv; a node is .json or else text; other names need --raw",
    )
    add_option(
        parser,
        "-p --pattern GLOB ...",
        "write all tensors that match to one .npz or .safetensors (-o); repeatable",
        dest="patterns",
    )
    add_option(parser, "--dtype TYPE", "convert a tensor to this type, for example float32")
    add_option(
        parser,
        "--dequantize",
        "what quantised tensors stand for, as float32: codes multiplied by the scales that the file has for them",
    )
    form = parser.add_mutually_exclusive_group()
    add_option(form, "--raw", "the bytes as stored; of one text of a tensor, its own")
    add_option(form, "--npy", "a numpy .npy file")
    add_option(form, "--json", "JSON")
    add_option(parser, "--bare", "with --json: the value, without what is said about it")
    add_option(
        parser,
        "--partial",
        "of a truncated tensor, the complete rows, or the full shape with zeros; of a truncated "
        "record, the bytes that are there",
        choices=("prefix", "fill"),
    )
    parser.set_defaults(jsonl=False)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    _refuse_contradictions(options)
    with open_file(options, out) as document:
        _refuse_own_input(document, options.output)
        if options.patterns:
            return give_many(document, options, out)
        if options.path is None and document.origin is not None and not (options.json or options.npy):
            return give_member(*document.origin, document.path, options, out)
        parser = document.result.parser
        parser.result.extraction.confirm()
        if isinstance(parser, StreamParser) and options.path in (None, parser.content_name()) and not options.json:
            return give_member(StreamMember(parser), None, document.path, options, out)
        viewer = viewer_for(document)
        try:
            found = _find(document, viewer, options.path)
        except PathError:
            code = _give_fact(document, options, out) if options.path is not None else None
            if code is None:
                raise
            return code
        thing, index = found
        if isinstance(thing, Node):
            return give_node(thing, options, out) if index is None else give_slice(thing, index, options, out)
        _tell_of_names(viewer, thing, out)
        thing, told = _as_meant(viewer, thing, options, out)
        return give_tensor(thing, index, options, out, viewer, told)


def _give_fact(document: Extraction, options: Any, out: Output) -> int | None:
    """Give what the metadata of a model say under this name, which is not that of a node; None if they do not."""
    viewer = viewer_for(document)
    if isinstance(viewer, Viewer):
        node = viewer.fact_node(options.path)
        parts = split_slice(options.path) if node is None else None
        inside = viewer.fact_node(parts[0]) if parts is not None else None
        if inside is not None and parts is not None and inside.shape != SCALAR and len(parts[1]) == 1:
            number = parts[1][0]
            if isinstance(number, int):
                node = inside.child(number if number >= 0 else number + len(inside))
        if node is not None:
            return give_node(node, options, out)
    facts = viewer.metadata if viewer is not None and options.output is None else {}
    if options.path not in facts:
        return None
    import json

    out.line(json.dumps(facts[options.path], default=str))
    return OK


def _as_meant(viewer: Any, tensor: Tensor, options: Any, out: Output) -> tuple[Tensor, Mapping[str, object]]:
    """Return the tensor to give, with ``--dequantize`` what its codes stand for, and what JSON tells of its meaning.

    That is its scale, or the sparse or nested tensor of which it is a part. Raises `OptionError` for codes that
    ``--dtype`` would cast without their scales.
    """
    found = None if viewer is None else quantisation_of(viewer, tensor)
    if found is None:
        if options.dequantize and not isinstance(tensor, BlockTensor):
            out.error(f"note: {safe(tensor.name)} is given as it is: no scales belong to it")
        whole = None if viewer is None else whole_of(viewer, tensor)
        return tensor, {} if whole is None else {"part_of": whole}
    if options.dequantize:
        return found.tensor(), {}
    refuse_cast(found, options.dtype)
    if not (options.json or form_of(options.output) == ".json"):
        out.error(f"note: {safe(tensor.name)} holds codes ({safe(str(found))}): --dequantize gives the numbers")
    return tensor, {"quantization": found.to_dict()}


def _tell_of_names(viewer: Any, tensor: Tensor, out: Output) -> None:
    """Say that tensors are not called as usual, as their names are lost: another one may have had this name."""
    for finding in viewer.findings if viewer is not None else ():
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


def _refuse_own_input(document: Extraction, output: str | None) -> None:
    if output and document.data.same_source(output):
        raise PathError("is the file being read; name another one", path=output)


def _find(document: Extraction, viewer: Any, path: str | None) -> _Found:
    if path is None:
        tensor = _only_tensor(viewer) if viewer is not None else None
        if tensor is not None:
            return tensor, None
        if isinstance(viewer, Viewer) and viewer.needs_name:
            names = ", ".join(repr(tensor.name) for tensor in islice(viewer.tensors(), _SHOWN))
            raise PathError(
                f"say what to get: the name of a tensor, such as {names}, or of a value that 'pparse info' shows"
                if names
                else "there is nothing to get: the file has no tensors",
                path=document.name,
            )
        return document.root if viewer is None else viewer.default_node, None
    return _find_member(document, path) if viewer is None else _find_tensor(document, viewer, path)


def _only_tensor(viewer: Viewer) -> Tensor | None:
    """Return the tensor that is meant if none is named: that of a file for one, or one without a name."""
    return viewer.find(viewer.default_name or "")


def _find_member(document: Extraction, path: str) -> _Found:
    """Return the node that is listed as ``path``, or stands there, and what of it is asked for."""
    member = document.result.listing.find_member(path)
    if member is not None:
        return member, None
    parts = split_slice(path)
    sliced = document.result.listing.find_member(parts[0]) if parts is not None else None
    if sliced is None and parts is not None:
        sliced = _sliced_at(document, *parts)
    return (_find_node(document, path), None) if sliced is None or parts is None else (sliced, parts[1])


def _find_tensor(document: Extraction, viewer: Viewer, path: str) -> _Found:
    """Return the tensor, or else the node, at ``path``, and what of it is asked for."""
    # The name as it is, and as `ls` shows unprintable characters; one that no sound file has only if no node is there.
    asked: list[tuple[str, tuple[Any, ...] | None]] = []
    for name in dict.fromkeys((path, unescaped(path))):
        asked.append((name, None))
        if (split := split_slice(name)) is not None:
            asked.append(split)
    for name, selection in asked:
        if viewer.may_name(name) and (tensor := viewer.find(name)) is not None:
            return tensor, selection
    only = _only_tensor(viewer) if path.startswith("[") else None
    sliced = split_slice(f"_{path}") if only is not None else None
    if only is not None and sliced is not None and sliced[0] == "_":
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
            raise EndOfDataError(_where_it_may_be(extent.missing_files), path=path, source=document.name) from error
        suggestions = viewer.suggest(parts[0] if parts is not None else path)
        why = viewer.why_unknown()
        reason = "no tensor and no node has this name" + (f" ({why})" if why is not None else "")
        raise PathError(reason, path=path, suggestions=suggestions or error.suggestions) from error


def _where_it_may_be(missing: int) -> str:
    """Say where a missing tensor may be: in ``missing`` shards, or in the lost part of a truncated header."""
    if not missing:
        return "no tensor of this name in the header, which is truncated"
    are = "1 shard that may hold it is" if missing == 1 else f"{missing:,} shards that may hold it are"
    return f"no tensor of this name in the shards that can be read; {are} missing"


def _find_node(document: Extraction, path: str) -> Node:
    """Return the node at ``path``. For an archive without it, the error has the name as it was typed."""
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
        raise PathError(f"lists have no slices; {f'{path}[0]'!r} is an element", path=path)
    raise PathError(f"it is of kind {node.kind}; only bytes and texts have slices", path=path)
