"""What ``ls``, ``info`` and ``check`` say of folders: their models one by one, or which file was taken for a folder."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import attrgetter
from shlex import quote

from pparse.cli.common import OK, exit_code_for, exit_code_of, open_file, worst
from pparse.cli.output import JsonRows, Table
from pparse.data.files import inside, is_folder
from pparse.display.text import few, safe, shorten
from pparse.document.inventory import Inventory, is_one_thing, own_files
from pparse.errors import EndOfDataError, FormatError, MissingTensorError, PathError, PparseError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.cli.selection import Selection
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.document.inventory import InventoryItem

# How many names are shown of each sort of files.
_SHOWN: Final = 4
# The most letters of a reason beside a status.
_REASON: Final = 100
# How programs for training lay out a checkpoint of several ranks (megatron/training/checkpointing.py,
# deepspeed/runtime/engine.py): what stands for a rank. No file says how tensors were divided among these.
_LAYOUTS: Final = (
    ("Megatron-LM", lazy_pattern(r"(?:^|/)(mp_rank_\d\d(?:_\d{3})*)/[a-z_]+\.pt$")),
    ("DeepSpeed", lazy_pattern(r"(?:^|/)(?:zero_pp_rank_\d+_)?(mp_rank_\d\d)_model_states\.pt$")),
)
# A shard of a distributed checkpoint: with the file that names its tensors, the folder is one model.
_SHARD: Final = "pytorch-distcp"
# What a library says of a model beside it: files, and the keys that are worth a line.
_CONFIGS: Final = {
    "config.json": ("architectures.0", "model_type", "torch_dtype", "dtype", "quantization_config.quant_method"),
    "model_index.json": ("_class_name", "_diffusers_version"),
    "adapter_config.json": ("peft_type", "base_model_name_or_path"),
}


def spread(options: Any, out: Output, beside: str | None = None) -> str:
    """With ``-R``, let the models in each folder stand for it among ``options.files``, and what ends in ``beside``.

    Return in words what lies there and is not read; empty if nothing does. ``options.known`` becomes the errors of
    folders that are named among the models.
    """
    files: list[str] = []
    passed: list[str] = []
    known: dict[str, PparseError] = {}
    count = 0
    for file in options.files if options.recursive else ():
        if not is_folder(file) and "::" not in file:
            files.append(file)
            continue
        options.file = file
        with open_file(options, out) as document:
            models: list[str] = []
            if document.is_folder:
                found = Inventory(document, deep=True)  # type: ignore[arg-type]
                for item in found:
                    if item.is_read:
                        models.append(_path(file, item.path))
                        if item.error is not None and item.path.endswith("/"):
                            known[models[-1]] = item.error
                    else:
                        count += 1
                        passed.append(f"{_path(file, item.path)} ({item.format}, not read yet)")
                        del passed[_SHOWN:]
                if models:
                    added = [name for name in found.others if beside is not None and name.endswith(beside)]
                    models += [_path(file, name) for name in added]
                    count += found.other_count - len(added)
                    others = [name for name in found.others if name not in added]
                    passed += [_path(file, name) for name in others[: _SHOWN - len(passed)]]
            files += models or [file]
    options.known = known
    if files:
        options.files = files
    return f"{count_words(count, 'file')}: {few(passed, _SHOWN, count)}" if count else ""


def _path(folder: str, name: str) -> str:
    """Return the path of an item of a folder, as `open` takes it."""
    if name == "./":
        return folder
    return f"{folder[:-1]}{name}" if folder.endswith("::.") else inside(folder, name)


def is_inventory(document: Extraction, options: Any) -> bool:
    """Return whether a folder is to be listed as what is in it: it is not one model, or ``-R`` asks for all."""
    if options.recursive or options.format is not None:
        return options.format is None
    try:
        document.parse()
    except (FormatError, PathError):
        return True
    return False


class _Rows:
    """The items of a folder, each with what its viewer says of it; counts them all.

    Raises `FormatError` that says what the folder looks like if there are none.
    """

    def __init__(self, document: FolderExtraction, options: Any, out: Output) -> None:
        self._document = document
        self.inventory = Inventory(document, deep=options.recursive)
        self.formats: Counter[str] = Counter()
        self.tensors = self.size = self.broken = self.unread = self.unknown = self.verified = self.chosen = 0
        self.codes: list[int] = []
        self.is_done = False
        self._ranks: dict[str, set[str]] = {}
        self._options = options
        self._out = out

    def __iter__(self) -> Iterator[_Row]:
        for item in self.inventory:
            row = _Row(item, self._options, self._out)
            self.codes.append(row.code)
            unread = row.status == "unreadable"
            self.unread += unread
            self.unknown += item.viewer is None and item.error is None  # nobody looked whether it is whole
            self.broken += not unread and row.code != OK
            self.verified += row.verified
            self.tensors += row.tensors or 0
            self.size += row.size or 0
            self.formats[row.format or "not readable"] += 1
            for program, rank in _LAYOUTS:
                if (found := rank.search(row.name)) is not None:
                    self._ranks.setdefault(program, set()).add(found[1])
            yield row
        self.is_done = True
        if not self.codes:
            self._document.parse()

    def those(self, matches: Selection) -> Iterator[_Row]:
        """Yield those that are asked for."""
        for row in self:
            if matches.takes_other(row.name, row.size, row.status):
                self.chosen += 1
                yield row

    def layout(self) -> Iterator[str]:
        """Yield which programs laid out a checkpoint of several ranks so, and what is lost of one."""
        for program, ranks in self._ranks.items():
            if len(ranks) > 1:
                yield f"{program} checkpoint of {len(ranks):,} ranks ({few(sorted(ranks), _SHOWN, len(ranks))})"
        if shards := self.formats[_SHARD]:
            lost = "which of their chunks make up a tensor is lost with it"
            yield f"{count_words(shards, 'shard')} of a distributed checkpoint without a .metadata that is read: {lost}"

    def words(self) -> str:
        """Return what they add up to."""
        count = self.formats.total()
        told = [f"{self.broken:,} not whole"] if self.broken else []
        told += [f"{self.unread:,} not readable"] if self.unread else []
        said = self._out.paint(", ".join(told), "red") if told else ""
        if not told and self.unknown < count:
            said = self._out.status(Status.COMPLETE, self.verified == count - self.unknown or None)
        if self.unknown:
            said += f"{', ' if said else ''}{self.unknown:,} not looked into"
        tensors = f"{count_words(self.tensors, 'tensor')}, " if self.unknown < count else ""
        return f"{count_words(count, 'item')}, {tensors}{format_size(self.size)}: {said}"


class _Row:
    """What is printed of an item."""

    __slots__ = ("code", "format", "name", "parameters", "reason", "size", "status", "tensors", "verified", "words")

    def __init__(self, item: InventoryItem, options: Any, out: Output) -> None:
        self.name, self.format, self.size = item.path, item.format, item.size
        self.tensors: int | None = None
        self.parameters: int | None = None
        self.status, self.reason, self.code = "", item.what, OK
        self.verified = False
        self.words = item.what
        error = item.error
        if item.viewer is not None:
            try:
                self._ask(item.viewer, options, out)
            except PparseError as found:
                error = found
        if error is not None:
            self.code = exit_code_of(error)
            self.status, self.reason = "unreadable", error.reason
            kinds = {EndOfDataError: "truncated", MissingTensorError: "missing"}
            words = next((kinds[kind] for kind in kinds if isinstance(error, kind)), "not readable")
            self.words = out.paint(words, "red") + f": {shorten(safe(error.reason), _REASON)}"
        if item.parts:
            self.words += f" ({count_words(item.parts, 'part')})"

    def _ask(self, viewer: Any, options: Any, out: Output) -> None:
        extent = viewer.extent()
        self.tensors, self.status = extent.count, extent.status.value
        self.parameters = sum(extent.parameters.values())
        self.size = extent.actual if extent.actual is not None else self.size
        self.code = exit_code_for(viewer.findings, damaged=not extent.is_sound, strict=options.strict)
        self.verified = extent.all_verified is True
        self.words = out.status(extent.status, extent.all_verified)
        if self.code != OK or not extent.is_sound:
            self.reason = next((str(found.reason) for found in viewer.all_findings(extent)), "")
            self.words += f": {shorten(safe(self.reason), _REASON)}" if self.reason else ""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {
            "name": self.name,
            "format": self.format or None,
            "tensors": self.tensors,
            "parameters": self.parameters,
            "size": self.size,
            "status": self.status or None,
            **({"reason": self.reason} if self.reason else {}),
        }


def list_folder(document: FolderExtraction, options: Any, out: Output) -> int:
    """Print the models of a folder, one a row, and what else lies in it. Raises `FormatError` if it holds none."""
    from pparse.cli.order import UNSORTED, Held, in_order

    rows = _Rows(document, options, out)
    held = Held(document.session.budget, lambda row: 600 + 2 * len(row.name), asked=True)
    by: dict[str, Any] = {"name": attrgetter("name"), "size": lambda row: row.size or 0, "status": attrgetter("status")}
    how = options.sort or UNSORTED
    ordered = in_order(rows.those(options.matches), how, held, out, first=options.first, reverse=options.reverse, **by)
    if options.json or options.jsonl:
        first = next(ordered, None)  # before anything is written
        written = JsonRows(out, options, {"format": "folder"}, "models")
        for row in () if first is None else chain((first,), ordered):
            written.add(row.to_dict())
        if options.json:
            written.end(_others_to_dict(rows.inventory))
        options.matches.was_ended |= not rows.is_done
        return worst(rows.codes)
    _show_rows(ordered, rows, document, options, out)
    options.matches.was_ended |= not rows.is_done
    return worst(rows.codes)


def _show_rows(ordered: Iterator[_Row], rows: _Rows, document: FolderExtraction, options: Any, out: Output) -> None:
    from pparse.cli.order import tell_rest

    size = str if options.bytes else format_size
    table = Table(out, ("NAME", "FORMAT", "TENSORS", "SIZE", "STATUS"), "<<>><", full=options.long)
    for row in ordered:
        if options.quiet:
            out.line(safe(row.name))
            continue
        tensors = "-" if row.tensors is None else f"{row.tensors:,}"
        format = row.format.removesuffix("-folder").removesuffix("-index") or "-"
        table.row(safe(row.name), format, tensors, "-" if row.size is None else size(row.size), row.words)
    if not options.quiet:
        table.close()
        if not rows.is_done:
            tell_rest(options.first, rows.chosen, out, is_done=False)
            return
        if rows.chosen != len(rows.codes):
            out.say(f"{rows.chosen:,} of {count_words(len(rows.codes), 'item')} match")
        tell_rest(options.first, rows.chosen, out, is_done=True)
        out.say(rows.words())
        for words in rows.layout():
            out.say(words)
        _tell_rest(rows.inventory, out, deep=options.recursive)


def describe_folder(document: FolderExtraction, options: Any, out: Output) -> int:
    """Print what a folder holds that is not one model. Raises `FormatError` if it holds none."""
    rows = _Rows(document, options, out)
    unread: Counter[str] = Counter()
    found: list[dict[str, object]] = []
    for row in rows:
        if options.json:
            found.append(row.to_dict())
        if row.status == "unreadable":
            unread[row.reason] += 1
    if options.json:
        head = {"file": options.file, "format": "folder", "models": found}
        out.json({**head, **_others_to_dict(rows.inventory)}, indent=2)
        return worst(rows.codes)
    if options.quiet:
        name = f"{safe(options.file)}: " if options.several else ""
        out.say(f"{name}folder of {rows.words()}")
        return worst(rows.codes)
    out.field("file", safe(document.path))
    out.field("format", "folder: not one model, but several files and folders")
    for name, words in _config_fields(document):
        out.field(name, words)
    out.field("holds", rows.words())
    for words in rows.layout():
        out.field("layout", words)
    for format, count in rows.formats.most_common():
        out.field("", f"{count:,} × {format}")
    for reason, count in unread.most_common(_SHOWN):
        out.field("unreadable", f"{count_words(count, 'file')}: {safe(reason)}")
    _tell_rest(rows.inventory, out, deep=False)
    return worst(rows.codes)


def _others_to_dict(inventory: Inventory) -> dict[str, object]:
    return {"other_files": inventory.other_count, "others": inventory.others}


def _tell_rest(inventory: Inventory, out: Output, *, deep: bool) -> None:
    """Print what other files there are, and which commands look into the models."""
    document = inventory.document
    if inventory.other_count:
        names = few(inventory.others, _SHOWN, inventory.other_count)
        out.say(f"{count_words(inventory.other_count, 'other file')}: {names}")
    path = document.path.rstrip("/")
    one, folder = quote(safe(_path(path, "NAME"))), quote(safe(path))
    more = f"'pparse ls -R {folder}' goes through all folders; " if not deep and document.folder.folders() else ""
    out.say(f"{more}'pparse ls {one}' lists one, 'pparse check -R {folder}' checks each")


# -- a folder that is one model ----------------------------------------------------------------------------------------


def taken(document: FolderExtraction, *, configs: bool) -> Iterator[tuple[str, str]]:
    """Yield what was taken for a folder, the models beside it, and other files, each under its label.

    With ``configs``, also what the configuration beside the model says of it. Nothing if all of it is the model.
    """
    if is_one_thing(document):
        return
    used = sorted(own_files(document), key=lambda name: (not name.endswith((".index.json", ".index")), name))
    first, *more = [name for name in used if name in document.members] or used or ["nothing"]
    yield "taken", safe(first) + (f" and {count_words(len(more), 'file')} of it" if more else "")
    inventory = Inventory(document)
    models, unread = inventory.models_beside()
    if models:
        path, names = safe(document.path.rstrip("/")), few(models, _SHOWN, len(models))
        yield "also here", f"{names} (not looked at; 'pparse ls -R {path}' lists all models)"
    for item in unread[:_SHOWN]:
        yield "unreadable", f"{safe(item.path)}: {shorten(safe(item.error.reason), _REASON)}"  # type: ignore[union-attr]
    if len(unread) > _SHOWN:
        yield "unreadable", f"{len(unread) - _SHOWN:,} more files"
    if inventory.other_count:
        yield "beside it", few(inventory.others, _SHOWN, inventory.other_count)
    if configs:
        yield from _config_fields(document)


def _config_fields(document: FolderExtraction) -> Iterator[tuple[str, str]]:
    """Yield what the configuration files say that libraries keep beside models, each under its name."""
    for name, keys in _CONFIGS.items():
        said = []
        for key in keys if name in document.members else ():
            try:
                value = document.sibling(name).get(key)
            except (PparseError, OSError):
                continue
            if isinstance(value, str):
                said.append(safe(value)[:_REASON])
        if said:
            yield name.removesuffix(".json"), ", ".join(said)
