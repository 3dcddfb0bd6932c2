"""`open`, the entry point of the library."""

from __future__ import annotations

import os
from errno import EISDIR, ENOENT, ENOTDIR
from functools import cached_property, lru_cache
from itertools import islice
from operator import itemgetter

from pparse.data import files
from pparse.data.base import Distance
from pparse.data.files import MOST_ABSENT, absent_part, following_names, how_to_join, name_of, parts_in, split_set
from pparse.document.extraction import Extraction, FolderExtraction, Session, extraction_of, snapshot_of
from pparse.document.folder import STOPPED, UNREADABLE, Folder, LocalFolder, edit_notes, names_in
from pparse.document.registry import EXTENSIONS, check_options, default_registry
from pparse.errors import EndOfDataError, FormatError, OptionError, PathError, PparseError, SourceError, told
from pparse.findings import Finding
from pparse.lazy import ByValue, Declared, lazy_pattern
from pparse.limits import count_words
from pparse.paths import split_extraction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, BinaryIO, Final

    from pparse.data.base import Data, IoStats
    from pparse.data.files import FileIdentity, SplitSet
    from pparse.document.extraction import Progress
    from pparse.document.registry import Registry
    from pparse.limits import Limits, MemoryBudget
    from pparse.tree.parser import Parser

    Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Data | Folder | Sequence[Any]


# What files end in that are called by the rest of their name: a checkpoint of TensorFlow has a prefix, not a name.
_BEHIND_PREFIX: Final = ".index"
# And those of its data, which say what is missing if that is not there.
_DATA_BEHIND_PREFIX: Final = ".data-00000-of-"
# What no file is called.
_URL: Final = lazy_pattern(r"(?i)[a-z][a-z0-9+.-]+://")
# Names of a folder that are looked at.
_MOST_NAMES: Final = 10_000
# What is said of a part that is not there: code, and words before a size.
_ABSENT: Final = ("part-missing", "is missing; the first one has")
# Keywords that mean nothing in another process.
_LOCAL: Final = ("progress", "cancel", "stats")


def open(
    source: Source,
    *,
    format: str | None = None,
    parsers: Iterable[type[Parser]] | None = None,
    registry: Registry | None = None,
    options: Mapping[str, object] | None = None,
    budget: int | str | MemoryBudget = "64MiB",
    retain: float | str = 0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limits: Limits | None = None,
    scratch: str | None = None,
    folder: str | os.PathLike[str] | Folder | None = None,
    progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None,
    stats: IoStats | None = None,
    block_size: int = 0,
) -> Extraction:
    """Open ``source`` and return its extraction: ``root``, ``node(path)``, ``get(path)``, ``check()``, ``close()``.

    ``source`` is a path (a file, a folder, or ``outer::inner``), bytes, a binary file, a `Data`, a `Folder`, or a list
    of parts read as one. A file object that cannot seek, such as a pipe, is read to its end first, into a scratch file
    (in ``scratch``, or else in the system's folder for temporary files). The first part of a split file
    (``file.zip.001``, ``file.tar.partaa``; of a zip also the last one) stands for all of them. ``format`` names the
    parser; otherwise the best match is found. ``parsers`` adds parsers to ``registry``. ``folder``, a path or a
    `Folder`, holds the files that belong to the source (shards of an index, say) if they do not lie beside it.
    ``budget`` bounds what is kept and buffered; ``retain`` is how many bytes of nodes that nobody holds stay alive (0,
    a number, or infinity), with path patterns ``include`` and ``exclude``. Long work calls ``progress(done, total,
    what)``, and asks ``cancel()`` between blocks. ``block_size`` fixes the scan block, for tests. ``options`` are
    options of formats, as with ``-O`` on the command line.

    Raises `SourceError` if the source cannot be read, `FormatError` if ``format`` is unknown, and `OptionError` if no
    format has an option. An unrecognised format raises only when the tree is first used.
    """
    keywords = dict(locals())  # all that was given
    del keywords["source"]
    return open_expecting(source, {}, **keywords)


def refuse_unknown(function: str, how: Mapping[str, object]) -> None:
    """Raise TypeError for a keyword that ``function`` would hand on to `open`, which does not know it."""
    for name in how:
        if name not in (open.__kwdefaults__ or ()):
            advice = f'an option of a format is given as options={{"{name}": ...}}'
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {advice}")


def open_expecting(
    source: Source,
    expected: Mapping[str, tuple[FileIdentity, bool]],
    given: Mapping[str, object] | None = None,
    *,
    format: str | None = None,
    parsers: Iterable[type[Parser]] | None = None,
    registry: Registry | None = None,
    folder: str | os.PathLike[str] | Folder | None = None,
    **others: Any,
) -> Extraction:
    """Do as `open` does; files at the paths in ``expected`` must be the ones that are meant, and those ``given`` by a
    `Folder`.

    Raises `DataChangedError` if one is not.
    """
    chosen = registry or default_registry()
    if parsers is not None:
        parsers = tuple(parsers)
        chosen = _with_parsers(chosen, parsers)
    if others.get("options"):
        check_options(others["options"], chosen, format=format)
    for name in ("include", "exclude"):
        others[name] = tuple(others.get(name, ()))
    session = Session(registry=chosen, **others)
    session.pool.expected.update(expected)
    session.expected.update(given or {})
    try:
        extraction = _open_source(session, source, format)
        if folder is not None:
            _lay_in(extraction, folder)
        session.source = extraction.topmost.data
        if format is not None:
            extraction.parse(format)
        if others.pop("budget", "64MiB") != "64MiB":
            others["budget"] = session.budget.limit
        named = {"format": format, "parsers": parsers, "registry": registry, "folder": folder}
        session.opened = Opened(source, {**named, **others})
        return extraction
    except BaseException:
        session.close()
        raise


def _with_parsers(registry: Registry, parsers: Iterable[type[Parser]]) -> Registry:
    """Return a registry with ``parsers`` besides those of ``registry``."""
    from pparse.document.registry import Registry

    added = Registry(plugins=registry._plugins_wanted)
    added._extra_parsers.update(registry._extra_parsers)
    added._extra_viewers.update(registry._extra_viewers)
    for parser in parsers:
        added.add(parser)
    return added


class Opened:
    """How a document was opened, for handles (`pparse.document.handles`)."""

    def __init__(self, source: Source, keywords: dict[str, Any]) -> None:
        self.source = source
        """What `open` was given."""
        self._given = keywords
        try:
            self.folder = os.getcwd()
            """The current folder then, to which relative paths refer."""
        except OSError:  # it was deleted
            self.folder = ""

    @cached_property
    def keywords(self) -> dict[str, Any]:
        """Its keywords that are set and mean something in another process."""
        found = {name: value for name, value in self._given.items() if value and name not in _LOCAL}
        if isinstance(found.get("folder"), str | os.PathLike):
            found["folder"] = _portable(found["folder"], self.folder)
        return found

    @cached_property
    def portable(self) -> Any:
        """The source as it can be given again in another folder, and another process."""
        return _portable(self.source, self.folder)

    @cached_property
    def key(self) -> bytes:
        """Equal for sources that were opened alike. Raises `SourceError` if that cannot be told."""
        from hashlib import blake2b
        from pickle import PicklingError, dumps

        try:
            given = dumps((self.portable, sorted(self.keywords.items(), key=itemgetter(0))), 4)
        except (AttributeError, TypeError, PicklingError) as error:
            raise SourceError(f"what the document was opened with cannot be pickled: {error}") from error
        return blake2b(given, digest_size=16).digest()

    def reduce(self, extraction: Extraction) -> tuple[Any, tuple[object, ...]]:
        """Return what `pickle` keeps of an extraction."""
        from pparse.document.handles import handle_of, reopen

        return reopen, (handle_of(extraction),)


def _portable(source: Any, folder: str) -> Any:
    if isinstance(source, str | os.PathLike):
        return files.inside(folder, os.fspath(source))  # not normalised: "::" and names of members follow
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if isinstance(source, list | tuple):
        return [_portable(part, folder) for part in source]
    return source


def _open_source(session: Session, source: Source, format: str | None) -> Extraction:
    if isinstance(source, str | os.PathLike):
        return _open_path(session, os.fspath(source), format)
    if isinstance(source, Folder):
        return FolderExtraction(session, source, source.path or "<folder>", format=format)
    if isinstance(source, list | tuple):
        return _open_parts(session, source, format)
    data = session.take(source)
    return Extraction(session, data.name, data, format=format)


def _lay_in(extraction: Extraction, folder: object) -> None:
    """Let the files beside ``extraction`` be those of ``folder``."""
    if extraction.is_folder:
        raise OptionError("a folder has its own files; leave folder= out")
    if isinstance(folder, str | os.PathLike):
        path = os.fspath(folder)
        if not files.is_folder(path):
            raise SourceError("is not a folder", source=path)
        folder = LocalFolder(path, extraction.session.pool, extraction.session.stats)
    if not isinstance(folder, Folder):
        raise TypeError(f"folder= takes a path or a pparse.Folder, not a {type(folder).__name__}")
    extraction.lies_in = folder


def _folder_at(session: Session, path: str, format: str | None) -> FolderExtraction:
    return FolderExtraction(session, LocalFolder(path, session.pool, session.stats), path, format=format)


def _open_folder(session: Session, path: str, format: str | None) -> FolderExtraction:
    named = folder = _folder_at(session, path, format)
    snapshot = snapshot_of(folder)
    if snapshot is not None:
        folder = _folder_at(session, files.inside(path, snapshot), format)
        folder.named = named
    return folder


def _open_path(session: Session, path: str, format: str | None) -> Extraction:
    # An existing file with this literal name takes precedence over a path with "::".
    if "::" in path and not files.is_there(path):
        outer, *inner = split_extraction(path)
        extraction = _open_path(session, outer, None)
        while inner:
            extraction, taken = enter_next(extraction, inner)
            del inner[:taken]
        if format is not None:
            extraction._format = format
        return extraction
    if "\0" in path:
        raise SourceError("a file name cannot contain a NUL byte", source=repr(path))
    parts = split_set(path)
    is_split = parts is not None and not files.is_folder(path)
    if is_split and (joined := open_split(session, parts, format)) is not None:  # type: ignore[arg-type]
        return joined
    pipe = files.inherited_pipe(path)
    if pipe is not None:
        return Extraction(session, path, session.take(pipe, path, owned=True), format=format)
    data: Data | None = None
    try:
        data = files.open_file(path, session.pool, session.stats)
    except SourceError as error:
        if error.errno != EISDIR:
            path = _meant_by(path, error)
            data = files.open_file(path, session.pool, session.stats)
    if data is None:
        return _open_folder(session, path, format)
    extraction = Extraction(session, path, session.adopt(data), format=format)
    extraction.notes += edit_notes(path)
    return extraction


def _meant_by(path: str, error: SourceError) -> str:
    """Return what is called by the prefix of its names, if ``path`` is one. Raises ``error``, which then says what may
    be meant, for any other path that cannot be opened."""
    if error.errno in (ENOENT, ENOTDIR):
        if not files.is_there(path) and (found := _behind_prefix(path)) != path:
            return found
        if error.errno == ENOENT and (prefixes := _prefixes_near(path)):
            error.reason += f"; there are the checkpoints {', '.join(prefixes)}"
        elif error.errno == ENOENT and _URL.match(path):
            error.reason = "is a URL, which is not opened here: " + told(
                "pipe it in (curl -L URL | pparse ls -), or save it",
                "pass a file object of it (fsspec's, or a response), or a pparse.Folder that fetches files",
            )
        else:
            error.reason += files.what_is_meant(path)
    raise error


def _behind_prefix(path: str) -> str:
    """Return the file that stands for what is called by the prefix of its names; ``path`` if there is none."""
    if files.is_there(path + _BEHIND_PREFIX):
        return path + _BEHIND_PREFIX
    folder, name = files.split(path)
    begin = name + _DATA_BEHIND_PREFIX
    found = [other for other in files.names_in(folder) if name and other.startswith(begin)]
    return files.inside(folder, min(found)) if found else path


def _prefixes_near(path: str) -> list[str]:
    """Return prefixes in the folder of a file that is not there, at most three, those like its name first."""
    from pparse.tree.result import near_misses

    folder, name = files.split(path)
    name = name.removesuffix(_BEHIND_PREFIX)
    names = islice(files.names_in(folder), _MOST_NAMES)
    there = sorted(other.removesuffix(_BEHIND_PREFIX) for other in names if other.endswith(_BEHIND_PREFIX))
    near = near_misses(name, there)
    others = there if near or "." not in name else ()  # a file that was meant has an extension
    return [files.inside(folder, prefix) for prefix in dict.fromkeys((*near, *others))][:3]


def open_split(session: Session, found: SplitSet, format: str | None = None) -> Extraction | None:
    """Return the parts of a file as one; None if they are no parts, by their sizes and first bytes.

    A missing part becomes a gap as large as the first one. One that is shorter, and not the last, was cut: a gap
    follows it. If parts have more bytes than the first, nobody knows how large a missing one is: it ends what is read.
    Those of a zip end where no record would be cut, so they differ a little; and its offsets count from each of them.
    """
    from pparse.data.spliced import FilePart, MissingData, SplicedData

    session.limits.check("entries", len(found.parts), "the number of parts")
    files_there: dict[str, Data] = {}
    for part, is_there in zip(found.parts, found.there, strict=True):
        if is_there:
            files_there[part] = session.adopt(files.open_file(part, session.pool, session.stats))
    if not _are_parts(session, found, files_there):
        for data in files_there.values():
            data.close()
        return None
    if found.whole in files_there:
        _add_absent(found, files_there[found.whole])
    sizes = [data.size or 0 for part, data in files_there.items() if part != found.parts[-1]]
    each, *others = sizes or [0]
    if len(others) > 1 and len(set(others)) == 1:
        each = max(each, others[0])  # the first one is cut
    of_zip = found.parts[-1] == found.whole
    sources: list[Data] = []
    parts: list[FilePart] = []
    notes: list[Finding] = []
    place = 0
    for number, (part, following) in enumerate(zip(found.parts, [*found.parts[1:], found.next_name], strict=True)):
        source = files_there.get(part)
        there = 0 if source is None else source.size or 0
        is_last = number == len(found.parts) - 1
        lacks = max(0, each - there) if source is None or not (is_last or of_zip) else 0
        known = source is not None or (not is_last and (of_zip or max(sizes) <= each))
        if source is not None:
            sources.append(source)
        if lacks:
            code, what = _ABSENT if source is None else ("part-cut", f"has {there:,} of")
            rest = "" if known or is_last else "; what is behind it is not read: parts differ in size"
            reason = f"part {files.name_of(part.removeprefix(found.whole) or part)} {what} {each:,} bytes{rest}"
            length = lacks if known else None
            notes.append(Finding(code, reason, source=found.whole, offset=place + there, length=length))
            if known:
                sources.append(session.adopt(MissingData(lacks)))
        parts.append(FilePart(part, there, there + lacks, following))
        place += there + lacks
        if not known:
            break
    spliced = SplicedData([source.range(0, source.size or 0) for source in sources], found.whole, session.stats)
    session.adopt(spliced)
    extraction = Extraction(session, found.whole, spliced, format=format)
    extraction.file_parts = parts
    extraction.notes += tuple(notes)
    return extraction


def _add_absent(found: SplitSet, last: Data) -> None:
    """Add the parts of a zip that its last one counts (APPNOTE.TXT 4.3.16), and no part behind them shows to be absent.

    At most as many as names may leave out.
    """
    size = last.size or 0
    low = max(0, size - (22 + 0xFFFF))
    tail = last.known(low, size - low)
    at = tail.rfind(b"PK\5\6")
    count = int.from_bytes(tail[at + 4 : at + 6], "little") if at >= 0 else 0
    absent = [name for name in islice(following_names(found.parts[0]), max(0, count - 1)) if name not in found.parts]
    if count >= len(found.parts) and len(absent) <= MOST_ABSENT:
        found.parts[-1:-1] = absent
        found.there[-1:-1] = [False] * len(absent)


def _are_parts(session: Session, found: SplitSet, there: Mapping[str, Data]) -> bool:
    """Say whether files that are called so are parts of one: the second one does not begin as a file of its kind.

    A zip's last part says of how many it is one (APPNOTE.TXT 4.3.16). If the names do not say that they are parts, they
    must be those of a known format, and all but the last of one size.
    """
    full = {name: data for name, data in there.items() if data.size}
    there = full if len(full) > 1 else there  # an empty one was fetched in vain, and says nothing
    first, second = list(there.values())[:2]
    if found.sure:
        last = there.get(found.whole)
        return last is None or last.known(max(0, (last.size or 0) - 22), 6) != b"PK\5\6\0\0"
    if first.known(0, 4) == second.known(0, 4) or second.known(257, 5) == b"ustar":
        return False
    if not found.marked and _begins_a_file(session, second):
        return False
    *equal, last_size = [data.size or 0 for data in there.values()]
    alike = len(set(equal)) == 1 and last_size <= equal[0]
    return found.marked or (alike and found.whole.lower().endswith(EXTENSIONS))


def _begins_a_file(session: Session, data: Data) -> bool:
    """Say whether some format is recognised at the beginning of data, as it is in the next of several whole files.

    An archive is recognised in its middle, too: it then begins with a gap.
    """
    try:
        members = Extraction(session, "part", data).parse().listing.members()
        first = next(iter(members), None)
    except FormatError:
        return False
    except PparseError:  # it is recognised, and not whole
        return True
    return first is None or first.kind != "gap"


def enter_next(extraction: Extraction, names: list[str]) -> tuple[Extraction, int]:
    """Enter the first of ``names``, or several of them joined if a member's name contains ``::``."""
    try:
        return _enter(extraction, names[0]), 1
    except (PathError, EndOfDataError):
        for count in range(2, min(len(names), 8) + 1):
            try:
                return _enter(extraction, "::".join(names[:count])), count
            except (PathError, EndOfDataError):
                continue
        raise


def _enter(extraction: Extraction, name: str) -> Extraction:
    """Return the extraction ``name`` inside another one, or that called by its prefix."""
    result = extraction.own_result if extraction.is_folder else extraction.result
    inner = extraction_of(result)
    if inner is not extraction and not inner.implicit:  # a file beside this, which it stands for
        result = extraction.own_result
    first: PathError | EndOfDataError | None = None  # the latter of an archive that is cut: it may be behind the cut
    for called in (name, name + _BEHIND_PREFIX) if result.container is not None else ():
        try:
            found = result.container.enter(called)  # type: ignore[union-attr]
        except (PathError, EndOfDataError) as error:
            first = first or error
            continue
        if found is not None:
            return found  # type: ignore[return-value]
    raise first or PathError(f"{extraction.name} ({result.format}) contains no {name!r}", path=extraction.path)


def _open_parts(session: Session, parts: Sequence[Any], format: str | None) -> Extraction:
    from pparse.data.spliced import SplicedData

    if not parts:
        raise FormatError("no parts given")
    session.limits.check("entries", len(parts), "the number of parts")
    pieces = [_open_source(session, part, None) for part in parts]
    name = f"{pieces[0].name} and {len(pieces) - 1} more" if len(pieces) > 1 else pieces[0].name
    spliced = SplicedData([piece.reader for piece in pieces], name, session.stats)
    session.adopt(spliced)
    return Extraction(session, name, spliced, format=format)


# -- Which downloads to resume: for content of an archive or compressed stream, that of the outermost file -------------


class Resume(ByValue, Declared, by=("file", "at")):
    """A file whose download should be resumed."""

    file: str
    """Name of the file."""
    at: int
    """Byte to resume at; 0: download it again."""
    hole: bool = False
    """Whether the file has its full size, so that programs that resume at its end would do nothing."""
    size: int | None = None
    """Bytes that the file should have, if that is known of it alone."""
    note: str = ""
    """What lies beside it and is better, or as good, in words (`advise`)."""
    helps: bool = True
    """Whether resuming, or fetching, it gives the whole file; else the note says what does."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON: ``at`` is None if resuming does not help."""
        told: dict[str, object] = {"file": self.file, "at": self.at if self.helps else None}
        if self.note:
            told["note"] = self.note
        return told

    @property
    def words(self) -> str:
        """What to do with the file, in words."""
        if not self.helps:
            return self.note
        how = f"resume at byte {self.at}" + ("" if self.hole else " (curl -C - does so)") if self.at else "fetch it"
        return how + (f"; {self.note}" if self.note else "")

    def __repr__(self) -> str:
        return f"<Resume {self.file!r} at {self.at}>"


def downloads(outer: Extraction, at: int, *, cut: bool = True) -> list[Resume]:
    """Return what to resume if an outermost file ends at byte ``at``: the file, or those of its parts that lack bytes.

    ``cut``: whether bytes are missing at its end.
    """
    if outer.is_other:
        return []
    parts = outer.file_parts
    if not parts:
        return [Resume(outer.name, at)] if cut else []
    found = [Resume(part.file, part.there) for part in parts if part.there < part.size]
    last = parts[-1]
    if cut and last.there == last.size and at >= outer.find_end() - outer.start:
        whole = last.next_name and last.there >= parts[0].size
        found.append(Resume(last.next_name, 0) if whole else Resume(last.file, last.there))
    return found


def outermost_file(document: Extraction) -> Extraction:
    """Return the file that a document is, or lies in."""
    outer = document.parsed
    while outer.parent is not None and (outer.implicit or outer.origin is not None):
        outer = outer.parent
    return outer


def is_inside(document: Extraction) -> bool:
    """Return whether a document lies in an archive or a compressed stream."""
    return outermost_file(document) is not document.parsed


def is_cut_outside(document: Extraction) -> bool:
    """Return whether the outermost file was cut, rather than the document before it was compressed."""
    level = document.parsed
    while level.parent is not None and (level.implicit or level.origin is not None):
        around = level.parent
        decoded = level.data is not around.data
        short = decoded and isinstance(level.data.error, EndOfDataError)
        if not short and (level.origin is None or not level.origin[1].is_truncated):
            return False
        if not short and level.origin is not None and level.origin[1].end < around.find_end():
            return False
        level = around
    return True


def first_hole(document: Extraction) -> int | None:
    """Return the first byte of the outermost file that was never written; None if all were."""
    from pparse.data.zero_runs import first_unwritten

    outer = outermost_file(document)
    return first_unwritten(outer.data, outer.start, outer.find_end())


def outside(document: Extraction) -> list[Resume]:
    """Return what to resume for an incomplete document inside something: its outermost file, or nothing."""
    outer = outermost_file(document)
    hole = first_hole(document)
    if hole is not None:
        return [Resume(outer.name, hole, hole=True)]
    return downloads(outer, outer.find_end() - outer.start, cut=is_cut_outside(document))


def resume_lines(files: Sequence[Resume], most: int | None = None) -> list[str]:
    """Return the files in words: one line for a single file, else a line for each, or for ``most`` of them."""
    if not files:
        return []
    if len(files) == 1:
        only = files[0]
        if not only.helps:
            return [f"no download to resume: {only.note}"]
        how = " (curl -C - does so)" if only.at and not only.hole else ""
        has_name = not (only.file.startswith("<") and only.file.endswith(">"))  # as what was piped in: ``<stdin>``
        of = f" of {only.file}" if has_name else ""
        what = f"resume the download at byte {only.at}{of}{how}"
        if not only.at:
            what = f"fetch {only.file}" if has_name else "fetch it again"
        return [what + (f"; {only.note}" if only.note else "")]
    shown = files if most is None or len(files) <= most else files[:most]
    width = min(80, max(len(file.file) for file in shown))
    fetch = sum(file.helps and not file.at for file in files)
    heads = [f"{count_words(len(files) - fetch, 'file')} to resume"] if fetch < len(files) else []
    heads += [f"{count_words(fetch, 'file')} to fetch"] if fetch else []
    lines = [f"{', '.join(heads)}:", *(f"  {file.file:{width}}  {file.words}" for file in shown)]
    if len(shown) < len(files):
        lines.append(f"  … and {len(files) - len(shown):,} more; 'pparse check' names all")
    return lines


# -- What lies beside a file that is not whole: its other parts, the file that was meant, a download that goes on ------

# Only names are looked at, and sizes and first bytes of a few files: what is said is where to look, never a verdict.

# How many files are asked for their size.
_MOST_SIZES: Final = 16
# A folder names an index, and that its files.
_LEVELS: Final = 3
# How many first bytes of two files are compared.
_BEGIN: Final = 64 << 10
# Files in which a program keeps how far a download is, and the endings of what is not finished.
_CONTROL: Final = (".aria2", ".dl-meta", ".st", ".axel")
_UNFINISHED: Final = (".part", ".partial", ".crdownload", ".download", ".incomplete", ".!qB", ".tmp")
# What copies of a file are called.
_COPY: Final = lazy_pattern(r"^copy of |\(\d{1,4}\)| - copy|[ _-]copy|(?:\.part|\.partial|\.tmp|\.bak|\.old|\.orig)$")


def advise(outer: Extraction, files: Sequence[Resume], expected: int | None) -> None:
    """Note at each of ``files``, which are to be resumed or fetched, what lies beside it and is better, or as good.

    ``outer`` is the outermost file, or a folder; ``expected`` the size that the file should have, if that is known.
    """
    names = _names_beside(outer)
    for file in files[:_MOST_SIZES] if names else ():
        name = name_of(file.file)
        if outer.folder is None or outer.folder.path_of(name).removeprefix("./") != file.file.removeprefix("./"):
            continue
        control = _control(name, names)
        parts = () if control is not None else _parts(outer, name, names)
        if control is not None:
            how = " (aria2c -c)" if control.endswith(".aria2") else ""
            file.note = f"the program that wrote {control} has not finished: run it again{how}"
            file.helps = False
        elif parts:
            absent = absent_part(parts)
            file.note = f"{name} is the first of {len(parts)} parts that lie beside it: {how_to_join(parts, names)}"
            if absent is not None:
                file.note = f"{name} is one of the parts beside it, and {absent} is missing: get it, and join them"
            file.helps = False
        else:
            file.note = _other(outer, name, names, file.at, file.size or expected)


def unfinished(outer: Extraction) -> str | None:
    """Return the file in which a program keeps how far the download of an outermost file is; None if there is none."""
    return None if outer.is_folder else _control(name_of(outer.name), _names_beside(outer))


def files_of(document: Extraction) -> set[str]:
    """Return the names of the files that were opened because they belong to a document."""
    used: set[str] = set()
    level = [document]
    for _ in range(_LEVELS):
        below = [kid for one in level for kid in one.children.items()]
        used.update(name for name, _ in below)
        level = [kid for _, kid in below]
    return used


def _names_beside(outer: Extraction) -> frozenset[str]:
    """Return the names of the files in the folder of a file, or in a folder; none if that is far away."""
    folder = outer.folder
    if not isinstance(folder, LocalFolder):
        return frozenset() if folder is not None and folder.distance is Distance.FAR else names_in(folder)
    stamp = files.folder_stamp(folder.path or ".")
    return names_in(folder) if stamp is None else _names_at(folder.path, stamp)


# Of many files in a folder that are not whole, each asks for the same names.
@lru_cache(maxsize=1)
def _names_at(path: str, stamp: tuple[int, ...]) -> frozenset[str]:
    return names_in(LocalFolder(path))


def _control(name: str, names: frozenset[str]) -> str | None:
    return next((name + ending for ending in _CONTROL if name + ending in names), None)


def _parts(outer: Extraction, name: str, names: frozenset[str]) -> list[str]:
    """Return the parts of a file, in order, if ``name`` is that of the first one and others lie beside it.

    What begins as this one does is another file of its kind: of the next step of a training, say.
    """
    found = parts_in(names, name)
    begin = _looked_at(outer, found[1], 4)[1] if found else b""
    return found if found and begin != outer.data.pread(outer.start, 4) else []


def _looked_at(outer: Extraction, name: str, count: int) -> tuple[int, bytes]:
    """Return the size and the first bytes of a file beside another; nothing if it cannot be read.

    What is wrong with a file that nobody asked for is not told.
    """
    try:
        file = outer.sibling(name, any_content=True)
        return file.find_end(), file.data.pread(0, count)
    except STOPPED:
        raise
    except UNREADABLE:
        return 0, b""


def _other(outer: Extraction, name: str, names: frozenset[str], at: int, expected: int | None) -> str:
    """Return what to say of a file beside another one that may be the one that was meant; empty if there is none."""
    from heapq import nsmallest

    for ending in _UNFINISHED:
        if name + ending in names:
            return f"{name + ending} beside it may be the download of it that is not finished"
    ending = "." + name.rpartition(".")[2]
    alike = [other for other in _by_plain(names).get(_plain(name), ()) if other != name]
    not_those = {name, *alike}
    rest = (one for one in names if one.endswith(ending) and one not in not_those)
    others = [*alike, *nsmallest(_MOST_SIZES, rest)]
    count = min(at, _BEGIN)
    begin = outer.data.pread(outer.start, count) if count and expected else b""
    for other in others[:_MOST_SIZES] if expected else ():
        if _looked_at(outer, other, count) == (expected, begin):
            has = f"{other!r} beside it has the {expected:,} bytes that this should have"
            return f"{has}, and begins as it does" if at else f"or rename it, if that is it: {has}"
    return f"or rename {alike[0]!r}, if that is it" if alike and not at else ""


@lru_cache(maxsize=1)
def _by_plain(names: frozenset[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(_plain(name), []).append(name)
    return found


def _plain(name: str) -> str:
    """Return a name without what makes it that of a copy."""
    stem, dot, ending = name.lower().rpartition(".")
    return _COPY.sub("", stem).strip() + dot + ending if dot else _COPY.sub("", name.lower()).strip()
