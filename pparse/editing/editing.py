"""`edit`: change metadata and names in a model file."""

from __future__ import annotations

import json
import os

from pparse.conversion.plan import form_of
from pparse.data import files
from pparse.document.opening import open as open_document
from pparse.document.opening import refuse_unknown
from pparse.editing import apply
from pparse.editing.plan import EditResult, Wishes, refuse_broken
from pparse.errors import OptionError, UnsupportedError
from pparse.limits import MIB
from pparse.writers.files import refuse_existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.editing.plan import Head
    from pparse.limits import Charge
    from pparse.tensors.viewer import Viewer

WAYS: Final = ("in-place", "insert", "copy")
"""Ways to write a new head, the cheapest first."""
_BLOCK: Final = 4096
_MOST_BLOCK: Final = 1 * MIB
_NAME: Final = 600
"""Memory of the names of a tensor, old and new, and of the line that tells of it."""
_MOST_INDEX: Final = 256 * MIB


def edit(
    path: str | os.PathLike[str],
    *,
    set_metadata: Mapping[str, object] | None = None,
    delete_metadata: Iterable[str] = (),
    rename_metadata: Mapping[str, str] | None = None,
    rename: Iterable[str] = (),
    drop: Iterable[str] = (),
    output: str | os.PathLike[str] | None = None,
    way: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    **how: Any,
) -> EditResult:
    """Change metadata and names of tensors in a safetensors or GGUF file; the bytes of tensors stay where they are.

    ``set_metadata`` has values by key: texts; in GGUF files also numbers, truth values and lists, of the type that the
    key has, or of one behind it (``"general.file_type:uint32"``, ``"key:float32[]"``). ``rename_metadata`` has new keys
    by old ones. ``rename`` are rules ``old=new`` for the beginnings of names, or with a ``*`` for whole names, as
    `convert` takes them; ``drop`` are patterns of tensors that go. ``output`` writes a copy and leaves the file alone;
    ``force`` lets it replace a file. ``way``: ``"in-place"``, ``"insert"`` or ``"copy"``, and no other; by default the
    first that is possible. ``dry_run`` writes nothing. ``how`` are keyword arguments of `pparse.open`.

    If a call is cut off, the next one on the same file, with or without wishes, finishes its work first.

    Raises `NotWholeError` for a file that is not sound, `UnsupportedError`, `OptionError`, `PathError` for what is not
    there, `SourceError` if the system refuses, or another process edits the file.
    """
    refuse_unknown("edit", how)
    if way not in (None, *WAYS):
        raise OptionError(f"no way {way!r}; ways: {', '.join(WAYS)}")
    given = os.fspath(path)
    if "::" in given and not files.is_there(given):
        raise UnsupportedError("what lies in another file is not edited: extract it first", source=given)
    if given == "-" and not files.is_there(given):
        raise UnsupportedError("standard input is not edited: name a file", source=given)
    if files.is_folder(given):
        raise UnsupportedError("a folder is not edited: name a file in it", source=given)
    real = given if files.linked_name(given) is None else files.real_path(given)
    out = None if output is None else os.fspath(output)
    wishes = Wishes(set_metadata or {}, delete_metadata, rename_metadata or {}, rename, drop)
    result = EditResult(given, out, dry_run=dry_run)
    if out is not None:
        refuse_existing([out], real, force=force)
    alone = dry_run or out is not None
    with apply.locked(real, write=not alone) as descriptor:
        if alone:
            apply.refuse_unfinished(real)
        else:
            result.recovered = apply.finish(real, descriptor)
        result.size_before = result.size_after = os.fstat(descriptor).st_size
        if not wishes and out is None:
            if result.recovered is None:
                result.notes.append("no change was asked for, and no edit was cut off")
            return result
        with (
            open_document(real, **how) as document,
            document.session.budget.charge(0, "the head of the file") as charge,
        ):
            head = _head_of(document, wishes, charge)
            result.changes = head.changes
            _note(result, document, descriptor, head)
            document.data.check_unchanged()
            on_the_way = {"ask": document.session.check_cancelled, "progress": how.get("progress")}
            _write(real, descriptor, head, result, way, on_the_way)
    return result


def _makers(format: str) -> tuple[type[Viewer], type[Head]] | None:
    """Return the viewer of one file of a format, and what makes its head; None if it is not edited."""
    if format == "safetensors":
        from pparse.editing.safetensors import SafetensorsHead
        from pparse.viewers.safetensors.viewer import SafetensorsViewer

        return SafetensorsViewer, SafetensorsHead
    if format == "gguf":
        from pparse.editing.gguf import GgufHead
        from pparse.viewers.gguf.viewer import GgufViewer

        return GgufViewer, GgufHead
    return None


def _head_of(document: Extraction, wishes: Wishes, charge: Charge) -> Head:
    """Return the head of a sound file, with what is wished. Raises `UnsupportedError`, `NotWholeError`."""
    data, makers, source = document.data, _makers(document.format), document.name
    if makers is None:
        reason = f"{document.format} files are not edited, only safetensors and GGUF; of a set, name one file"
        raise UnsupportedError(reason, source=source)
    if document.parsed is not document or not data.is_file or (document.start, document.end) != (0, data.size):
        raise UnsupportedError("what is packed or divided is not edited: unpack or join it first", source=source)
    viewer = makers[0](document)
    holes = refuse_broken(viewer)
    parser: Any = document.result.parser
    charge.resize(2 * parser.data_start + (_NAME * viewer.extent().count if wishes.of_tensors else 0))
    head = makers[1](viewer, wishes)
    head.notes += [] if holes is None else [holes]
    return head


def _note(result: EditResult, document: Extraction, descriptor: int, head: Head) -> None:
    """Tell what else there is to know."""
    result.notes += head.notes
    folder, name = files.split(result.path)
    if files.linked_name(result.path) is not None:
        result.notes.append(f"it is a link: {document.name} is what is edited")
    names = os.fstat(descriptor).st_nlink
    if names > 1 and result.output is None:
        result.notes.append(f"it has {names:,} names (hard links): a copy takes this one only, other ways change all")
    if result.output is not None and form_of(result.output) not in (None, document.format):
        result.notes.append(
            f"it is {document.format}, whatever {result.output} is called: 'pparse convert' writes other formats"
        )
    if head.wishes.of_tensors and head.changes:
        for other in files.names_in(folder):
            if other.endswith(".index.json") and _names(files.inside(folder, other), name):
                result.notes.append(f"{other} names the tensors of this file, and is not changed")


def _names(index: str, name: str) -> bool:
    """Return whether an index names a file."""
    data = files.open_file(index)
    try:
        return json.dumps(name).encode() in data.pread(0, min(data.size or 0, _MOST_INDEX))
    finally:
        data.close()


def _write(real: str, descriptor: int, head: Head, result: EditResult, wanted: str | None, on_the_way: Any) -> None:
    """Write the new head in the cheapest way, or the one that is wanted. Raises `OptionError` if that cannot be."""
    block = os.fstatvfs(descriptor).f_frsize if hasattr(os, "fstatvfs") else _BLOCK
    block = block if _BLOCK <= block <= _MOST_BLOCK else _BLOCK
    size, out = head.room(block), result.output
    if not head.changes and out is None:
        return
    more = size - head.old_size
    ways = ["copy"]
    if out is None and head.stays:
        if not more or not head.payload:
            ways = ["in-place", "copy"]
        elif not more % block and head.old_size + head.payload == result.size_before and apply.can_insert(real, block):
            ways = ["insert", "copy"]
    if wanted is not None and wanted not in ways:
        room = f"the new head takes {head.needed:,} bytes, and there is room for {head.old_size:,}"
        why = room if head.stays and out is None else "what is kept of the file moves"
        raise OptionError(f"{wanted} is not possible here, only {' or '.join(ways)}: {why}")
    result.way = wanted or ways[0]
    result.size_after = size + head.payload
    if result.dry_run:
        result.written = size + (apply.filled(descriptor, head) if result.way == "copy" else 0)
        return
    if result.way != "copy":
        try:
            result.written = apply.write_head(real, descriptor, head, size)
            return
        except UnsupportedError:
            if wanted is not None:
                raise
        result.way = "copy"
    like = real if out is None else None
    result.written = apply.write_copy(descriptor, out or real, head, size, like=like, **on_the_way)
