"""Which parsers and viewers exist, and which one fits a piece of data.

Built-ins are dotted strings in a table that is made from their classes (`pparse.document.builtin_formats`), imported
only on use. Plug-ins are entry points in the groups
``pparse_parsers_v1`` and ``pparse_viewers_v1``; they are asked if no built-in matches, if named with ``-f``, or if the
best match is generic (a format that others are made of).

The most specific match wins (one that *refines* the other), then the surer one, then built-in before plug-in, then the
name. Content decides; the extension counts only if the content tells nothing.
"""

from __future__ import annotations

from functools import cache, lru_cache

from pparse.data.base import Access
from pparse.document.builtin_formats import ROWS
from pparse.document.folder import several_models
from pparse.errors import DataError, FormatError, NothingThereError, OptionError, PparseError, spoken
from pparse.findings import BROKEN, Finding, Severity
from pparse.lazy import Declared, module_called
from pparse.tree.parser import Confidence, Excerpt, Parser, bare_name, confidence_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.document.extraction import Extraction

PARSER_GROUP: Final = "pparse_parsers_v1"
VIEWER_GROUP: Final = "pparse_viewers_v1"


class Builtin(Declared):
    """A built-in parser, known without importing it; its class says the same (see `pparse.tree.parser.Parser`)."""

    name: str
    parser: str
    """``module:class`` …"""
    viewer: str | None
    """… and that of the viewer; None: only nodes."""
    magic: tuple[tuple[int, tuple[bytes, ...]], ...]
    """Offsets, and the bytes of which some must stand at one of them; empty: any content."""
    extensions: tuple[str, ...]
    generic: bool
    """Whether other formats are made of it."""
    folder: bool
    named_is_enough: bool
    """Whether the extension is enough; False where several formats share it."""
    further: bool
    """Whether to ask it again, with more than the first bytes, if nothing else matches."""
    is_data_set: bool
    """Whether libraries read records of its files as they come."""
    usual_names: tuple[str, ...] = ()
    member_parts: tuple[str, ...] = ()


BUILTINS: Final = tuple(Builtin(*row) for row in ROWS)
_BY_NAME: Final = {known.name: known for known in BUILTINS}
_PLACES: Final = {known.name: place for place, known in enumerate(BUILTINS)}
# Magic bytes at the beginning, by the first of them, and those further on, by their offset.
_FIRST: Final[dict[int, list[tuple[str, bytes]]]] = {}
_FURTHER: Final[dict[int, list[tuple[str, bytes]]]] = {}
for _name, _at, _magic in ((one.name, at, magic) for one in BUILTINS for at, magics in one.magic for magic in magics):
    (_FURTHER.setdefault(_at, []) if _at else _FIRST.setdefault(_magic[0], [])).append((_name, _magic))
# The bytes further on by their offsets, to be compared all at once.
_ALL_AT: Final = {_at: tuple(magic for _, magic in found) for _at, found in _FURTHER.items()}

# How many models of a folder are asked for their size.
_MOST_SIZES: Final = 8

EXTENSIONS: Final = tuple(extension for known in BUILTINS for extension in known.extensions)
_LONGEST: Final = max(map(len, EXTENSIONS))
ANY_MODELS: Final = (".bin", ".metadata")
"""Extensions of models that files of any program may have: those of a download cache, say."""


class Registry:
    """The built-in parsers and viewers, and plug-ins once they are needed."""

    def __init__(self, *, plugins: bool = True) -> None:
        self._plugins_wanted = plugins
        self._extra_parsers: dict[str, type[Parser]] = {}
        self._extra_viewers: dict[str, Any] = {}
        self._plugin_parsers: dict[str, type[Parser]] | None = None
        self._plugin_viewers: dict[str, Any] | None = None
        self.failed: dict[str, str] = {}
        """Plug-ins that could not be loaded, and why."""

    def add(self, parser: type[Parser], viewer: Any = None) -> None:
        """Add a parser (and its viewer) by hand; it counts as a plug-in.

        The viewer of a built-in parser is asked before the built-in viewer.
        """
        self._extra_parsers[parser.name] = parser
        if viewer is not None:
            self._extra_viewers[parser.name] = viewer

    def plugin_parsers(self) -> dict[str, type[Parser]]:
        """Return the parsers that are not built in, by name; the first call loads installed plug-ins."""
        if self._plugin_parsers is None:
            found = {}
            for entry, loaded in self._load(PARSER_GROUP):
                if isinstance(loaded, type) and issubclass(loaded, Parser):
                    found[loaded.name or entry] = loaded
                else:
                    self.failed[entry] = "it is not a subclass of pparse.Parser"
            self._plugin_parsers = found
        return {**self._plugin_parsers, **self._extra_parsers}

    def plugin_viewers(self) -> dict[str, Any]:
        """Return the viewers that are not built in, by format name."""
        if self._plugin_viewers is None:
            self._plugin_viewers = dict(self._load(VIEWER_GROUP))
        return {**self._plugin_viewers, **self._extra_viewers}

    def _load(self, group: str) -> Iterator[tuple[str, Any]]:
        if not self._plugins_wanted:
            return
        from importlib.metadata import entry_points

        for entry in entry_points(group=group):
            try:
                yield entry.name, entry.load()
            except Exception as error:  # noqa: BLE001 -- whatever a plug-in does, the others must work
                self.failed[entry.name] = f"{type(error).__name__}: {error}"

    def names(self) -> list[str]:
        """Return the names of all formats, built-in ones first."""
        known = [builtin.name for builtin in BUILTINS]
        return known + sorted(set(self.plugin_parsers()) - set(known))


@cache
def default_registry() -> Registry:
    """Return the registry used by default; each process has one."""
    return Registry()


@cache
def import_dotted(dotted: str) -> Any:
    """Return the object with the name ``module:name``."""
    module, _, name = dotted.partition(":")
    return getattr(module_called(module), name)


def builtin(name: str) -> Builtin | None:
    """Return the built-in with that name, if any."""
    return _BY_NAME.get(name)


def model_extensions() -> tuple[str, ...]:
    """Return the extensions of files that libraries open as models or sets of data, without those of `ANY_MODELS`."""
    models = (known for known in BUILTINS if known.is_data_set or (known.viewer and not known.generic))
    return tuple(dict.fromkeys(name for known in models for name in known.extensions if name not in ANY_MODELS))


def viewed_parsers(registry: Registry) -> list[type[Parser]]:
    """Return the parsers of files that have a viewer, built-in ones first."""
    found = [import_dotted(known.parser) for known in BUILTINS if known.viewer and not known.folder]
    viewers = registry.plugin_viewers()
    for parser in registry.plugin_parsers().values():
        if parser.reads == "file" and (parser.viewer is not None or parser.name in viewers):
            found.append(parser)
    return found


def parser_class(registry: Registry, name: str) -> type[Parser]:
    """Return the parser with that name. Raises `FormatError` that names the known ones."""
    known = builtin(name)
    if known is not None:
        return import_dotted(known.parser)  # type: ignore[no-any-return]
    parsers = registry.plugin_parsers()
    if name not in parsers:
        from pparse.document.appearance import NAMED, named_as, words
        from pparse.tree.result import near_misses

        other = named_as(name)
        if other is not None:
            raise FormatError(f"{name}: {words(other)}")
        close = near_misses(name, [*registry.names(), *(other.name for other in NAMED)])
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(registry.names())}"
        raise FormatError(f"there is no format {name!r}; {hint}")
    return parsers[name]


def check_options(names: Iterable[str], registry: Registry, *, format: str | None = None, written: str = "") -> None:
    """Raise `OptionError` if no format has one of these options. ``written`` tells how options are given.

    Asks the parser of ``format`` first, and imports others only while a name is still unknown.
    """
    unknown = dict.fromkeys(names)
    known: dict[str, None] = {}
    for parser in _parsers_with_options(registry, format) if unknown else ():
        for name in parser.options:
            known[name] = None
            unknown.pop(name, None)
        if not unknown:
            return
    for name in unknown:
        raise OptionError(f"no format has this option{written}; there are: {', '.join(known)}", path=str(name))


def _parsers_with_options(registry: Registry, format: str | None) -> Iterator[type[Parser]]:
    """Yield all parsers, those first that need no import."""
    first = builtin(format) if format is not None else None
    if first is not None:
        yield import_dotted(first.parser)
    yield from registry._extra_parsers.values()
    for known in BUILTINS:
        yield import_dotted(known.parser)
    yield from registry.plugin_parsers().values()


def _all_models(folder: Extraction, models: list[str]) -> list[str]:
    """Return the models that formats claim in a folder, and what else is called one; no shards, empty files last."""
    endings = model_extensions()
    names: tuple[str, ...] = folder.members  # type: ignore[attr-defined]
    called = [name for name in names if bare_name(name).endswith(endings) and "-of-" not in name]
    found = list(dict.fromkeys(models + called))
    empty = [name for name in found[:_MOST_SIZES] if _is_empty(folder, name)]
    return [name for name in found if name not in empty] + empty


def _is_empty(folder: Extraction, name: str) -> bool:
    try:
        return folder.sibling(name, any_content=True).size == 0
    except PparseError:  # it cannot be opened
        return True


def detect(extraction: Extraction) -> type[Parser]:
    """Return the parser that fits ``extraction`` best. Raises `FormatError` that says what the data looks like."""
    excerpt = excerpt_of(extraction)
    best = dict(_folder_candidates(extraction) if extraction.is_folder else _file_candidates(extraction, excerpt))
    if all((known := builtin(parser.name)) is not None and known.generic for parser in best):
        for parser in extraction.session.registry.plugin_parsers().values():
            try:
                confidence = _ask(parser, extraction, excerpt)
            except PparseError:
                raise
            except Exception as error:  # noqa: BLE001 -- whatever a plug-in does, the others must work
                extraction.session.registry.failed[parser.name] = f"{type(error).__name__}: {error}"
                continue
            if confidence:
                best[parser] = confidence
    if not best and not extraction.is_folder:
        best = dict(_further_candidates(extraction))
    if not best:
        from pparse.document.appearance import nothing_there, what_it_is

        if (reason := nothing_there(extraction)) is not None:
            raise NothingThereError(reason, source=extraction.name)
        raise FormatError(what_it_is(extraction, EXTENSIONS, model_extensions()), source=extraction.name)
    chosen = max(best, key=lambda parser: _rank(parser, best)) if len(best) > 1 else next(iter(best))
    if extraction.is_folder:
        models = [model for parser in best for model in parser.models_in(extraction)]
        if len(models) > 1:
            about = [words for parser in best if (words := parser.about_models(extraction))]
            raise several_models(extraction.folder, _all_models(extraction, models), about)  # type: ignore[arg-type]
    no_bytes = chosen.empty_is_nothing and not excerpt.head(1) and extraction.find_end() <= extraction.start
    if no_bytes and not extraction.data.flawed:  # else its content is lost, and it is not empty
        raise NothingThereError("the file is empty", source=extraction.name)
    _refuse_stand_in(extraction, excerpt, chosen)
    _note_name(extraction, excerpt, chosen)
    return chosen


def _note_name(extraction: Extraction, excerpt: Excerpt, chosen: type[Parser]) -> None:
    """Note that the name of a file says another format than its content.

    Nothing is noted of a compressed stream: many programs write one under the name of its content.
    """
    reason = _misnamed(excerpt, chosen)
    if reason is None:
        return
    from pparse.codecs.table import CODECS

    if chosen.name not in CODECS:
        extraction.notes += (Finding("misnamed", reason, severity=Severity.NOTE, source=extraction.name),)


def _misnamed(excerpt: Excerpt, chosen: type[Parser]) -> str | None:
    """Return what data are whose name says another format than their content, in words; None if it does not.

    Nothing is said of an extension that no format has.
    """
    if excerpt.ends_with(chosen.usual_names):
        return None
    owners = _named_like(excerpt.bare_name[-_LONGEST:])
    what = f"{chosen.name} ({chosen.description})"
    named = (known for known in owners if not known.named_is_enough)
    other = next((known for known in named if excerpt.ends_with(known.usual_names)), None)
    if other is None and any(known.name == chosen.name for known in owners):
        if not chosen.usual_names:
            return None
        usual = chosen.usual_names[0]
        return f"it is {what}, and such a file is called {'*' if usual[0] == '.' else ''}{usual}"
    for known in owners if other is None else ():
        of_one_kind = chosen.name.partition("-")[0] == known.name.partition("-")[0]
        if of_one_kind or known.name in chosen.refines:
            return None
    names = [known.name for known in owners] if other is None else [other.name]
    return f"it is named like {min(names, key=len)}, but is {what}, and read as that" if names else None


def _refuse_stand_in(extraction: Extraction, excerpt: Excerpt, chosen: type[Parser]) -> None:
    """Refuse generic text under a model's name: usually an error message of a server."""
    known = builtin(chosen.name)
    if known is None or not known.generic or excerpt.ends_with(known.extensions):
        return
    from pparse.document.appearance import is_text

    head = excerpt.head(64)
    if not is_text(head) and len(head) >= 8:
        return
    other = next(iter(_named_like(excerpt.bare_name[-_LONGEST:])), None)
    if other is not None:
        start = excerpt.head(80).decode("utf-8", "replace")
        raise FormatError(
            f"it is named like {other.name}, but is {chosen.name} text (a server's answer?): {start!r}; "
            f"to read it anyway, use {spoken(f'-f {chosen.name}')}",
            source=extraction.name,
            option=f"-f {chosen.name}",
        )


def _rank(parser: type[Parser], best: Mapping[type[Parser], Confidence]) -> tuple[bool, int, int, bool, list[int]]:
    confidence, known = best[parser], builtin(parser.name)
    refined = sum(other.name in parser.refines for other in best)
    is_builtin = known is not None and known.parser.startswith(f"{parser.__module__}:")
    # Reversed code points: of two otherwise equal ones, the name that sorts first wins.
    return confidence > Confidence.EXTENSION, refined, confidence, is_builtin, [-ord(char) for char in parser.name]


def _file_candidates(extraction: Extraction, excerpt: Excerpt) -> Iterator[tuple[type[Parser], Confidence]]:
    """Ask the parsers whose first bytes fit; unless one of them is certain, also those that only one byte or the name
    suggests."""
    head = excerpt.head(512)
    found = [one for one in _FIRST.get(head[0], ()) if head.startswith(one[1])] if head else []
    for at, magics in _ALL_AT.items():
        if head.startswith(magics, at):
            found += [one for one in _FURTHER[at] if head.startswith(one[1], at)]
    fits = dict[str, int]()
    for name, magic in found:  # the longest bytes of each format count
        fits[name] = max(len(magic), fits.get(name, 0))
    called = [known.name for known in _named_like(excerpt.bare_name[-_LONGEST:])]
    suggested = [*{*fits, *called}]
    if len(suggested) > 1:
        # Of those that one byte suggests, the one that the name suggests, too, comes first: if its structure fits, the
        # others need no import.
        suggested = sorted(
            suggested, key=lambda name: (name not in fits, fits.get(name) == 1, name not in called, _PLACES[name])
        )
    certain = likely = False
    for known in map(_BY_NAME.__getitem__, suggested):
        fit, has_name = fits.get(known.name, 0), known.name in called
        if fit < 2 and (certain or (likely and not has_name)):
            continue
        parser = import_dotted(known.parser)
        confidence = _ask(parser, extraction, excerpt) or _by_name(known, excerpt, head)
        if confidence:
            if fit and not known.generic:
                certain |= confidence is Confidence.CERTAIN
                likely |= confidence is Confidence.LIKELY and has_name
            yield parser, confidence


@lru_cache
def _named_like(end: str) -> tuple[Builtin, ...]:
    """Return the built-ins of whose extensions a name has one that ends so."""
    return tuple(known for known in BUILTINS if end.endswith(known.extensions))


def _by_name(known: Builtin, excerpt: Excerpt, head: bytes) -> Confidence:
    """Return how sure the extension alone makes of a format whose parser sees nothing of it in the content."""
    if not known.named_is_enough or not excerpt.ends_with(known.extensions):
        return Confidence.NO
    from pparse.document.appearance import is_text, mistaken

    return Confidence.NO if mistaken(head) or is_text(head) else Confidence.EXTENSION


def _further_candidates(extraction: Extraction) -> Iterator[tuple[type[Parser], Confidence]]:
    """Ask those parsers again that look at more than the first bytes; of members of archives, read next to nothing."""
    thorough = extraction.parent is None or extraction.implicit
    if extraction.data.access is not Access.FREE and not thorough:
        return
    for known in BUILTINS:
        if known.further:
            parser = import_dotted(known.parser)
            try:
                confidence = parser.match_further(_reader_of(extraction), thorough=thorough)
            except DataError:
                continue
            if confidence:
                yield parser, confidence


def other_format(extraction: Extraction, parser: Parser) -> str | None:
    """Say what data surely are that are to be read as another format, that of ``parser``; None if it may be right."""
    if extraction.is_folder or builtin(parser.name) is None:
        return None
    excerpt = excerpt_of(extraction)
    try:
        if _ask(type(parser), extraction, excerpt) > Confidence.EXTENSION:
            return None
        asked = dict(_file_candidates(extraction, excerpt))
    except PparseError:  # whatever reads more of it reports that
        return None
    best = {found: sure for found, sure in asked.items() if sure is Confidence.CERTAIN}
    if not best:
        from pparse.document.appearance import known_other

        return known_other(extraction)
    found = max(best, key=lambda parser: _rank(parser, best))
    related = found.name in parser.refines or parser.name in found.refines
    return None if related else f"{found.name} ({found.description})"


def hidden_format(extraction: Extraction) -> str | None:
    """Return the format that begins anywhere in data that no parser matches; None if none does.

    Reads everything. The beginning of a compressed stream counts even if nothing in the stream is sound.
    """
    if extraction.is_folder:
        return None
    found: list[tuple[bool, int, str]] = []
    for known in BUILTINS:
        if known.further:
            reader = extraction.data.range(extraction.start, extraction.find_end())
            at = import_dotted(known.parser).search(reader, extraction.session.check_cancelled)
            if at is not None:  # if one contains the other, the outer one begins first
                found.append((known.name != "tar" or bool(at % 512), at, known.name))
    if found:
        return min(found)[2]
    from pparse.codecs.table import CODECS
    from pparse.document.appearance import head_of

    head = head_of(extraction, 16)
    # Of what is made to be a file, not a part of one: two bytes of zlib's occur by chance.
    streams = (codec for codec in CODECS.values() if codec.joins)
    return next((codec.name for codec in streams if head.startswith(codec.marks[0][1])), None)


def _folder_candidates(extraction: Extraction) -> Iterator[tuple[type[Parser], Confidence]]:
    """Ask the parsers of folders; those that any format may be in only if no other one matches."""
    found = False
    for known in sorted((known for known in BUILTINS if known.folder), key=lambda known: known.generic):
        if found and known.generic:
            return
        parts, names = known.member_parts, extraction.members  # type: ignore[attr-defined]
        if parts and not any(part in f"/{name}/" for name in names for part in parts):
            continue
        parser = import_dotted(known.parser)
        confidence = parser.match_folder(extraction)
        if confidence:
            found = True
            yield parser, confidence


def _ask(parser: type[Parser], extraction: Extraction, excerpt: Excerpt) -> Confidence:
    if extraction.is_folder:
        return parser.match_folder(extraction)
    return confidence_of(parser, excerpt, _reader_of(extraction))


def excerpt_of(extraction: Extraction) -> Excerpt:
    """Return the first and last bytes of an extraction, which are read when they are asked for."""
    return Excerpt(extraction.front, extraction.name, extraction.size)


def _reader_of(extraction: Extraction) -> Range:
    front = extraction.front
    return front.data.range(front.start, front.end)


def viewer_for(extraction: Extraction) -> Any:
    """Return the viewer of the extraction's format; None if there is none, or it does not apply."""
    result = extraction.result
    for made in _viewers_of(result.parser, extraction.session.registry):
        # The viewer of a plug-in need not be a Viewer: a function will do.
        if getattr(made, "applies", lambda parser: True)(result.parser):
            return made(result.extraction)
    return None


def why_no_viewer(extraction: Extraction) -> str | None:
    """Return why there is no viewer, if that is because what could tell of tensors is lost."""
    result = extraction.result
    status = result.extraction.root.status
    if status in BROKEN and any(True for _ in _viewers_of(result.parser, extraction.session.registry)):
        return f"it is {status}, and what is left of the {result.parser.name} names no tensor"
    return None


def _viewers_of(parser: Parser, registry: Registry) -> Iterator[Any]:
    """Yield the viewers of a format: those added by hand, then built-in, then installed, then what the class names."""
    name = parser.name
    added = registry._extra_viewers.get(name)
    if added is not None:
        yield added
    known = builtin(name)
    if known is not None and known.viewer:
        yield import_dotted(known.viewer)
    else:
        installed = registry.plugin_viewers().get(name)
        if installed is not None and installed is not added:
            yield installed
        if parser.viewer is not None and known is None:
            yield import_dotted(parser.viewer)
