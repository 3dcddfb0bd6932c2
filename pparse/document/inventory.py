"""What a folder holds: its models one by one, each with the files that belong to it, and what else lies there.

Names say which files may be models; each of those is opened, which tells what it is and which files belong to it (the
shards of an index, the data of a checkpoint). Nothing else is read, and no file is met twice.
"""

from __future__ import annotations

import re

from pparse.data.files import parts_in, whole_name
from pparse.document.appearance import ARCHIVE_EXTENSIONS, DATA_FORMATS, Named, head_of, named, named_folder
from pparse.document.extraction import FolderExtraction, snapshot_of
from pparse.document.folder import FILE, FOLDER, folders_with
from pparse.document.opening import files_of, open_split
from pparse.document.registry import (
    ANY_MODELS,
    BUILTINS,
    builtin,
    model_extensions,
    viewer_for,
)
from pparse.errors import (
    DataChangedError,
    DataError,
    EndOfDataError,
    FormatError,
    MissingTensorError,
    PathError,
    PparseError,
    SourceError,
)
from pparse.findings import Status
from pparse.lazy import Declared
from pparse.limits import count_words
from pparse.tree.parser import bare_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction

# How many other files, and folders without a model, are kept by name.
_MOST_OTHERS: Final = 64
# The endings of what is listed beside models: archives, files of records, formats that are known but not read.
_PACKED_OR_KNOWN: Final = (
    *ARCHIVE_EXTENSIONS,
    *(end for known in BUILTINS if not known.generic for end in known.extensions if end != ".json"),
    *(end for known in DATA_FORMATS for end in known.extensions),
)
# Names of ``.bin`` files, of which any program writes some, that say what they are; and, beside one, what says that it
# holds the numbers of another file (OpenVINO, ncnn).
_MODEL_BIN: Final = re.compile(r".*model.*\.bin")
_HEADS: Final = (".xml", ".param")
# What is said of archives and files of records.
_PASSED: Final = "not looked into"
# What a pipeline of diffusers names its parts in, each with library and class; the largest that is looked at, in bytes.
_PIPELINE: Final = "model_index.json"
_MAX_PIPELINE: Final = 1 << 20
# The classes that have no weights; and the part that people leave out, as the library lets them.
_NO_WEIGHTS: Final = ("Tokenizer", "TokenizerFast", "Scheduler", "Processor", "Extractor")
_OPTIONAL: Final = "safety_checker"
# What a download cache of Hugging Face calls a file that is not all there.
_UNFINISHED: Final = ".incomplete"
# What files end in that name others, of which they come first.
_INDEX: Final = ".index.json"
_FIRST: Final = (_INDEX, ".index", ".pdmodel", ".metadata", "_model_states.pt")
# What is no reason to stop: a file that cannot be read, or changes just now.
_NOT_READ: Final = (DataError, SourceError, DataChangedError)


class InventoryItem(Declared):
    """A model in a folder, or a file or folder that people keep beside models."""

    path: str
    """Its path from the folder, with ``/``; that of a folder ends in one."""
    format: str = ""
    """The name of its format; empty if that is not known."""
    viewer: Any = None
    """The viewer of the model, good until the next item is asked for; None: there is nothing to look into."""
    size: int | None = None
    """The size in bytes of a file, or of what lies in a folder, if that is known."""
    error: PparseError | None = None
    """Why it cannot be read, though its name is that of a model."""
    what: str = ""
    """What else is to be said, in words."""
    parts: int = 0
    """How many files it was split into that lie here; 0: it is one."""

    @property
    def is_model(self) -> bool:
        """Whether it is a model, or several, or its name says so."""
        return self.viewer is not None or self.error is not None or self.format == FOLDER

    @property
    def is_read(self) -> bool:
        """Whether its format is one that is read, or its name says so."""
        return self.viewer is not None or self.error is not None or self.what == _PASSED

    def files(self) -> set[str]:
        """Return the names, in its folder, of the files of a model, as far as they can be opened."""
        name = self.path.rpartition("/")[2]
        if self.viewer is None:
            return {name}
        try:
            self.viewer.extent()  # it opens all files
        except _NOT_READ:  # asking it for anything else says so
            pass
        return {name} | files_of(self.viewer.extraction)


class Inventory:
    """The models in a folder, in one pass; with ``deep`` also those in all folders below.

    Otherwise a folder below is one item: the model in it, or how many files of models lie in it. Links to folders are
    not followed.
    """

    def __init__(self, document: FolderExtraction, *, deep: bool = False) -> None:
        self.document = document.named if deep else document
        """The folder: of one that stands for another, that is the one that all is in."""
        self._deep = deep
        self._models = (*model_extensions(), *(end for known in BUILTINS if known.viewer for end in known.extensions))
        self._sure = tuple(end for end in self._models if end not in ANY_MODELS)
        self.others: list[str] = []
        """The first files that are no models, by their paths …"""
        self.other_count = 0
        """… and how many there are."""

    def __iter__(self) -> Iterator[InventoryItem]:
        plugins = self.document.session.registry.plugin_parsers().values()
        self._models += tuple(end for known in plugins for end in known.extensions if known.reads == "file")
        waiting = [("", self.document)]
        while waiting:
            prefix, here = waiting.pop()
            item, parts = self._as_one(prefix, here)
            if item is not None:
                yield item
            if parts is None:
                continue
            yield from self._files(prefix, here, parts)
            yield from self._parts_without_weights(prefix, here)
            below: list[tuple[str, FolderExtraction]] = []
            for name in here.folder.folders():
                path = f"{prefix}{name}/"
                try:
                    inner = self._enter(here, name)
                except (PathError, SourceError) as error:  # it cannot be listed, or has a name that is not taken
                    yield InventoryItem(path, FOLDER, error=error)
                    continue
                if self._deep:
                    below.append((path, inner))
                else:
                    yield from self._in_short(path, inner)
            waiting += reversed(below)

    @staticmethod
    def _enter(here: FolderExtraction, name: str) -> FolderExtraction:
        folder = here.folder.below(name)
        return FolderExtraction(here.session, folder, folder.path, here)

    def _as_one(self, prefix: str, here: FolderExtraction) -> tuple[InventoryItem | None, Collection[str] | None]:
        """Return a folder as an item if it is one, and which of its files that is; None: all, and what lies below."""
        other = named_folder(here.members) if prefix else None  # opening the folder itself says so
        if other is not None:
            return _not_read(prefix, other), None
        try:
            result = here.parse()
        except (FormatError, PathError):  # no model is in it, or several are
            return None, ()
        parts: Collection[str] | None = None
        if not is_one_thing(here):
            container = result.container
            if container is None or not container.is_set or any(name.endswith(_INDEX) for name in here.members):
                return None, ()
            parts = container.shard_names()  # no index says so
            if len(parts) < 2:
                return None, ()
        return InventoryItem(prefix or "./", here.format, viewer=viewer_for(here)), parts

    def _parts_without_weights(self, prefix: str, here: FolderExtraction) -> Iterator[InventoryItem]:
        """Yield the parts that a pipeline of diffusers is made of (`DiffusionPipeline.save_pretrained`) and that have
        no weights, each as the folder that it should be in."""
        try:
            index = here.sibling(_PIPELINE) if _PIPELINE in here.members else None
            found = index.root.to_python() if index is not None and (index.size or 0) <= _MAX_PIPELINE else None
        except (DataError, SourceError):  # who checks it is told
            return
        endings = (*self._models, *_PACKED_OR_KNOWN, _UNFINISHED)
        for name, made in found.items() if isinstance(found, dict) else ():
            is_part = isinstance(made, list) and len(made) == 2 and all(isinstance(word, str) for word in made)
            if not is_part or made[1].endswith(_NO_WEIGHTS) or name == _OPTIONAL:
                continue
            try:
                has_weights = any(bare_name(file.path).endswith(endings) for file in here.folder.below(name).tree())
            except (PathError, SourceError):  # there is no such folder
                has_weights = False
            if not has_weights:
                error = MissingTensorError(f"named by {_PIPELINE}, no weights", name=name)
                yield InventoryItem(f"{prefix}{name}/", error=error)

    def _files(
        self, prefix: str, here: FolderExtraction, skipped: Collection[str] = ()
    ) -> Generator[InventoryItem, None, None]:
        """Yield the models that are files of a folder, but for those ``skipped``, and count its other files."""
        used = set(skipped)
        endings = (*self._models, *_PACKED_OR_KNOWN)
        sets = {
            name: parts
            for name in here.members
            if (parts := parts_in(here.members, name)) and bare_name(whole_name(name)).endswith(endings)
        }
        names = [name for name in here.members if bare_name(name).endswith(endings) or name.endswith(_UNFINISHED)]
        only_parts = sets.keys() - names
        names += only_parts
        later = {part for parts in sets.values() for part in parts[1:]}
        for name in sorted(names, key=lambda name: (not name.endswith(_FIRST), name in later, name)):
            here.session.check_cancelled()
            if here.session.progress is not None:
                here.session.progress(len(used), len(names), f"files of {here.name}")
            if name in used:
                continue
            joined = self._joined(here, name) if name in sets else None
            if joined is None and name in only_parts:  # files of one kind, numbered
                continue
            if (item := self._file(prefix, here, name, joined)) is not None:
                if joined is not None:
                    item.parts = len(sets[name])
                    used.update(sets[name])
                yield item
                used |= item.files()
            here.children.pop(name, None)
        for lost in here.folder.unreadable():
            if bare_name(lost.path).endswith(self._models):
                path = prefix + lost.path
                yield InventoryItem(path, error=SourceError(f"cannot be opened: {lost.kind}", source=path))
        self._count([name for name in here.members if name not in used], prefix)

    @staticmethod
    def _joined(here: FolderExtraction, name: str) -> Extraction | None:
        """Return the file whose parts begin with ``name``; None if they are files of their own."""
        try:
            found = here.folder.split(name)
            return None if found is None else open_split(here.session, found)
        except _NOT_READ:
            return None

    def models_beside(self) -> tuple[list[str], list[InventoryItem]]:
        """Return the models in a folder that was opened as one of them, without that: its files, and of each folder
        below the path of one, unless all below belongs to the model. Then the files that are called models, and cannot
        be read."""
        here = self.document
        found = [item for item in self._files("", here, own_files(here)) if item.is_read]
        files = [item.path for item in found if item.error is None]
        files += [] if is_one_thing(here) else folders_with(here.folder, model_extensions())
        return files, [item for item in found if item.error is not None]

    def _count(self, others: list[str], prefix: str) -> None:
        self.other_count += len(others)
        self.others += [prefix + name for name in others[: _MOST_OTHERS - len(self.others)]]

    def _file(
        self, prefix: str, here: FolderExtraction, name: str, joined: Extraction | None = None
    ) -> InventoryItem | None:
        """Return a file as an item, ``joined`` if it is in parts; None if it is not what its name may promise."""
        path = prefix + name
        if joined is not None:
            name = whole_name(name)
        found = joined
        try:
            if found is None:
                found = here.sibling(name, any_content=True)
            viewer = viewer_for(found)
            if viewer is not None:
                return InventoryItem(path, found.format, viewer=viewer, size=found.size)
            status = found.root.known_status
            # So little of it is there that it shows no tensors.
            if status in (Status.TRUNCATED, Status.DAMAGED) and self._promises(bare_name(name), here):
                said = found.root.finding.reason if found.root.finding is not None else "it is not whole"
                return InventoryItem(path, found.format, size=found.size, error=status.error(said, source=path))
            own = found.own_result.parser.name
            known = builtin(own)
            packed = bare_name(name).endswith(ARCHIVE_EXTENSIONS)
            if packed or (known is not None and (known.is_data_set or not known.generic)):
                absent = next((note.reason for note in found.notes if note.code.startswith("part-")), None)
                lost = None if absent is None else EndOfDataError(absent, source=path)
                return InventoryItem(path, own, size=found.size, error=lost, what=_PASSED)
        except _NOT_READ as error:
            other = named(head_of(found, 64)) if found is not None else None
            if other is not None and other in DATA_FORMATS:
                return _not_read(path, other, found)
            if self._promises(bare_name(name), here):
                return InventoryItem(path, size=None if found is None else found.size, error=error)
        return _unfinished(path, None if found is None else found.size) if name.endswith(_UNFINISHED) else None

    def _promises(self, name: str, here: FolderExtraction) -> bool:
        """Return whether a file must be a model, by its name."""
        if name.endswith(self._sure):
            return True
        stem = name.removesuffix(".bin")
        return _MODEL_BIN.fullmatch(name) is not None and not any(stem + head in here.members for head in _HEADS)

    def _in_short(self, path: str, here: FolderExtraction) -> Iterator[InventoryItem]:
        """Yield one item for a folder: the only model in it, or how many files of models lie in and below it."""
        whole, parts = self._as_one(path, here)
        if whole is not None and parts is None:
            yield whole
            return
        files = [item for item in here.folder.tree() if item.kind == FILE]
        models = [item for item in files if bare_name(item.path).endswith(self._models)]
        begun = [item for item in files if item.path.endswith(_UNFINISHED)]
        snapshot = snapshot_of(here) if models and not begun else None
        if snapshot is not None:
            yield from self._in_short(f"{path}{snapshot}/", self._enter(here, snapshot))
            return
        kept = self.others.copy(), self.other_count
        items = self._files(path, here, parts or ())
        first = whole or next(items, None)
        if first is not None and {item.path for item in models} <= first.files():
            yield first
            yield from items  # there are none, but it counts the other files
            return
        items.close()
        self.others, self.other_count = kept
        if not models:
            yield from [_unfinished(path + item.path, item.size) for item in begun]
            self._count([item.path for item in files if item not in begun], path)
            return
        what = f"not looked into: {count_words(len(models), 'model file')} in it"
        error = _unfinished(begun[0].path, None).error if begun else None
        yield InventoryItem(path, FOLDER, size=sum(item.size or 0 for item in files), error=error, what=what)


def own_files(document: Extraction) -> set[str]:
    """Return the names of the files that belong to a document: those that were opened, and those of a set that were
    not."""
    container = document.parse().container
    return files_of(document) | set(() if container is None else container.shard_names())


def is_one_thing(folder: Extraction) -> bool:
    """Return whether all that lies in a folder, and below, belongs to the one model that it was recognised as."""
    result = folder.parse()
    container = result.container
    return result.extraction is folder and container is not None and not container.is_set


def _unfinished(path: str, size: int | None) -> InventoryItem:
    """Return a file of a download that did not end, whatever is in it."""
    return InventoryItem(path, size=size, error=EndOfDataError("its download is not finished", source=path))


def _not_read(path: str, known: Named, found: Any = None) -> InventoryItem:
    size = None if found is None else found.size
    return InventoryItem(path, known.name, size=size, what=f"not read yet (see 'pparse formats {known.name}')")
