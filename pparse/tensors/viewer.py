"""`Viewer`, the base of all viewers of models: tensors by name, and findings; `view` opens one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from itertools import islice

from pparse.data.range_status import cut_status
from pparse.document.opening import Resume, advise, downloads, is_inside, open_expecting, outermost_file, outside
from pparse.errors import EndOfDataError, MissingNameError, PparseError, UnsupportedError
from pparse.findings import BROKEN, ENDS_EARLY, Finding, FindingList, Severity, Status, worst_status
from pparse.locking import Guarded, steps
from pparse.tensors.status import Extent, flawed_only_in, unwritten_in, whole_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import Any, Final, Self

    from pparse.data.base import Data, IoStats
    from pparse.document.extraction import Extraction, Progress
    from pparse.document.folder import Folder
    from pparse.document.opening import Source
    from pparse.document.registry import Registry
    from pparse.graphs.graph import Graph
    from pparse.limits import Limits, MemoryBudget
    from pparse.tensors.dtype import DType
    from pparse.tensors.span import Span
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.tree.parser import Parser

MOST_HOLES: Final = 10_000
# Of more tensors than this, those that damage hits are not told apart from what is damaged beside them.
_MOST_FLAWED: Final = 50_000
# What `dir` shows of a viewer: what the documents tell of it. The rest is for viewers, commands and conversions.
_SHOWN: Final = (
    "assets check close collections extent extraction find findings format functions graph graph_defs graph_of holes "
    "interface meta_graphs metadata outline root signatures state_dict status suggest tensors tensors_from variables"
)


class Viewer(Guarded, Mapping[str, "Tensor"]):
    """The tensors of one document: a mapping of names to `Tensor`.

    The second of two tensors with one name is called ``name#2``. Reads only what is asked for; `tensors` streams, so a
    list of a million tensors is never held. Thread-safe: public methods take the session's lock, see `pparse.locking`.
    """

    parser: Any = None  #: what reads the document, for commands that ask it for more
    names_may_be_lost = True  #: whether a name that is not found may be in the part of the document that is missing
    most_facts: int | None = None  #: how many values `metadata` has at most; None: all that there are
    resolves_late = False  #: whether `resolve_all_but` leaves anything to be compared later
    has_keys = False  #: whether its tensors may have a `Tensor.key` besides their name
    is_set = False  #: whether the tensors lie in several files, named by `parser.shard_names`
    has_values = True  #: whether the tensors' bytes were looked for: a file alone may only say where others have them
    counts_itself = False  #: whether `tensors` itself counts what it yields, part by part, for `extent`
    needs_name = False  #: whether `get` is to be told what to get: all that the document holds would be its tensors
    row_bytes = 520  #: approximate memory of one tensor while it is held, without name, shape and further parts

    may_have_had_more: bool = False  #: whether a cut document may have had more tensors than those that are known of
    is_cut_in_tensors: bool = False
    """Whether all that the document holds beside its tensors is there, before their bytes."""
    places_by_offset = False
    """Whether a header tells at which offsets tensors stand: behind lost bytes, a tensor may stand elsewhere."""

    rules: str = ""
    """The reader whose rules ``check(strict=True)`` applies, too; empty: warnings count, and nothing more is known."""

    _compares: bool = False
    """Whether `resolve` or `checker` do more than those of this class; a class that overrides one may say when."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        names = {"_compares", "resolve", "checker"}
        nearest = next(own for kind in cls.__mro__ if names & (own := vars(kind)).keys())  # it may be mixed in
        if "_compares" not in nearest:
            cls._compares = True

    def __init__(self, extraction: Extraction) -> None:
        self.extraction = extraction
        """The document."""
        self.lock = extraction.lock
        """Lock of the session."""
        self._extent: Extent | None = None

    @property
    def alone(self) -> Viewer:
        """This viewer; that of the file that was opened, for a set that any of its files opens."""
        return self

    @property
    def graph(self) -> Graph | None:
        """The graph of a model, the first of several; None if its format has none, for which `graph_of` raises."""
        return None

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return graph ``number`` of a model that may have several; an index of more than ``max_nodes`` is refused."""
        raise UnsupportedError(f"{self.extraction.name}: {self.format} has no graph")

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The ways to call the model by name, each with types and shapes; none if the format does not say."""
        return {}

    def interface(self) -> list[dict[str, Any]]:
        """Return how the model is called, as plain data; nothing if the format does not say."""
        found = {name: one.to_dict() for name, one in self.signatures.items()}
        return [{"signatures": found}] if found else []

    def interface_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the same as labels and texts: a line for each argument and result, in their order."""
        for name, signature in self.signatures.items():
            yield "signature", name
            for label, infos in (("  input", signature.inputs), ("  output", signature.outputs)):
                for key, info in infos.items():
                    sizes = ("?" if size < 0 else str(size) for size in info.shape or ())
                    shape = "" if info.shape is None else "×".join(sizes) or "scalar"
                    tensor = "" if key == info.tensor else f"  {info.tensor}"
                    yield label, f"{key}  {info.dtype or info.stored_dtype}  {shape}{tensor}".rstrip()

    def outline(self) -> dict[str, Any]:
        """Return what the model consists of besides tensors, such as its modules, as plain data; by subject."""
        return {}

    def outline_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the same as labels and texts, a line for each."""
        yield from ()

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether this viewer fits what ``parser`` reads: a format may hold other things as well."""
        return True

    # -- what a format says ------------------------------------------------------------------------------------------

    @abstractmethod
    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor in file order; repeated names as ``name#2``."""

    def tensors_from(self, number: int) -> Iterator[Tensor]:
        """Yield the tensors from number ``number`` (from 0) on. Formats that can seek do not list those before it."""
        return islice(self.tensors(), number, None)

    @abstractmethod
    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What the file says about itself."""

    def metadata_of_parts(self) -> Iterator[Mapping[str, Any]]:
        """Yield the metadata of each file of a set, apart from `metadata`, which is that of the whole; else nothing."""
        yield from ()

    @property
    def _file(self) -> Extraction:
        """The file whose size is that of the document."""
        return self.extraction.parsed

    def new_extent(self) -> Extent:
        """Return an extent to add tensors to while listing them; then call `close_extent`."""
        file = self._file
        return Extent(file.find_end() - file.start, known=self.extraction.session.stats.discoveries)

    def extent(self) -> Extent:
        """Return how large the document is and should be, and where it was cut; goes once through all tensors."""
        extent = self.kept_extent
        while extent is None and self.counts_itself:
            for _ in self.tensors():
                pass
            extent = self._extent  # also has what was learned meanwhile, part by part
        if extent is None:
            extent = self.new_extent()
            for tensor in self.tensors():
                extent.add(tensor)
            extent = self.close_extent(extent)
        return extent

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; `extent` then returns it.

        By default, the document should reach to the end of its last tensor, and further if its root is cut.
        """
        actual = extent.actual or 0
        last = max(0, extent.last_byte - self.extraction.parsed.start)
        extent.expected = max(last, actual)
        if self.root.status is Status.TRUNCATED:
            told = self.extraction.result.listing.missing() or 0
            extent.end_early(max(last - actual, told), at_least=last <= actual)
            if last > actual and self.is_cut_in_tensors:
                extent.document_status = Status.COMPLETE
        elif self.stream_is_cut():
            extent.document_status, extent.resume_at = Status.TRUNCATED, actual
        elif self.findings.errors:
            extent.document_status = Status.DAMAGED
        extent.at_least |= extent.document_status is Status.TRUNCATED and self.may_have_had_more
        if extent.expected > actual:
            extent.resume_at = actual
        return self.keep_extent(extent)

    def stream_is_cut(self) -> bool:
        """Say whether the one thing wrong is that a compressed stream ends early, perhaps behind all content."""
        inner = self.extraction.parsed
        data = inner.data
        if inner.end is not None and data.reach is not None and inner.end < data.reach:
            return False  # it is a member of an archive, which is cut behind it
        return isinstance(data.error, EndOfDataError) and all(item.code == "truncated" for item in self.findings)

    def truncation(self, extent: Extent) -> Finding:
        """Return the finding on a document that lacks bytes."""
        least = "at least " if extent.may_expect_more else ""
        hit = f"; first tensor hit: {extent.first_hit}" if extent.first_hit is not None else ""
        reason = f"the file lacks {least}{extent.missing_bytes} bytes{hit}"
        told: Any = {"offset": self.extraction.find_end(), "wanted": extent.expected, "got": extent.actual}
        return Finding("truncated", reason, source=self.extraction.name, **told)

    def size_hint(self) -> int | None:
        """Return the approximate number of tensors if that is cheap to find out; else None."""
        return None

    def rank(self, tensor: Tensor) -> int:
        """Return by what sorted lists order tensors before their names: what users look for first is 0."""
        return int(self.is_bookkeeping(tensor))

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the node of the document, or of a file beside it, that describes a tensor; None if there is none."""
        return None

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the tensor that a node of the document describes; None if it describes none, or none that is found
        without going through others."""
        return None

    def quantisation(self, tensor: Tensor) -> Any:
        """Return how the codes of a tensor are meant, a `pparse.tensors.scales.Quantisation`, if the format itself says
        so; None: other tensors may."""
        return None

    def codes_with(self, tensor: Tensor) -> Tensor | None:
        """Return the codes that a tensor belongs to, as a scale or the like, if the format itself says so."""
        return None

    def first_in(self, member: str) -> tuple[str, int] | None:
        """Return the name of the first tensor whose bytes lie in a member of the archive that the document is, and how
        many tensors do; None if the member's own name tells, or none does."""
        return None

    def why_unknown(self) -> str | None:
        """Return why a name that is right may not be found here, in words; None if nothing is known."""
        return None

    def other_names(self, tensor: Tensor) -> Sequence[str]:
        """Return by what else `find` finds a tensor, and patterns match it, the shortest last: its `Tensor.key`."""
        return ()

    def may_name(self, text: str) -> bool:
        """Return whether a sound file may have a tensor of this name; reads the fields of the root at most."""
        return True

    def has_more_than(self, count: int) -> bool:
        """Return whether there are more than ``count`` tensors, as far as that is cheap to find out."""
        return (self.size_hint() or 0) > count

    _has_news: bool = False
    """Whether something is known that tensors which were made before may not have been told: they ask `renew`."""

    def renew(self, tensor: Tensor) -> None:
        """Tell a tensor, which is neither damaged nor unsupported so far, what one that is made now is told."""
        known = self.extraction.session.stats.discoveries
        if self._judges or tensor._told == known or self.extraction.session.closed:
            return
        tensor._told = known
        self._judges = True
        try:
            fresh = self.find(tensor.name)
            if fresh is not None and not fresh.is_complete:
                # What it claims, and where its bytes are: what is known of those may change again.
                tensor.status, tensor.verified, tensor.finding = fresh._status, fresh._verified, fresh._finding
                tensor._spans, tensor._content, tensor._shared = fresh._spans, fresh._content, None
        finally:
            self._judges = False

    _judges = False

    def as_of_now(self, tensor: Tensor) -> Tensor:
        """Note that a tensor was told all that is known by now, and return it."""
        tensor._told = self.extraction.session.stats.discoveries
        return tensor

    as_of_now.__guarded__ = True  # type: ignore[attr-defined]  # it reads one number

    is_resolved = False
    """Whether the checksums of single tensors were compared, or are compared by whoever reads these."""

    def resolve(self, tensor: Tensor) -> None:
        """Compare the checksums that cover the bytes of ``tensor``, if that costs little, before they are returned."""
        self.extraction.resolve()
        if tensor.is_claimed_whole and not self.is_resolved:
            for span in tensor.spans:
                span.resolve()

    def checker(self, tensor: Tensor) -> Callable[[int, memoryview], None] | None:
        """Return what is to be given each stretch of the tensor's bytes that is read, with its offset in them.

        A viewer compares a checksum so that `resolve` left alone, once all bytes were read in order. None: nothing.
        """
        return None

    def resolve_all(self) -> None:
        """From now on, let `tensors` first find out what statuses depend on, so that none of them changes later."""

    def resolve_all_but(self, tensors: Sequence[Tensor]) -> Sequence[int] | None:
        """Do what `resolve_all` does, but for checksums of one of ``tensors`` alone: its bytes will be read anyhow.

        Return the CRC-32 that the bytes of each, as stored, must have; -1: none, or it was compared. Who reads them
        compares it, and calls `resolve_all` if it is wrong. None if statuses may have changed: then all is to be
        resolved, and listed again. Only for viewers that say `resolves_late`.
        """
        self.resolve_all()
        return None

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the other files that the document consists of, as far as they are there, by their names in its folder;
        not the shards of a set."""
        yield from ()

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield the other files that the document needs and that are not there, as far as that is known once all
        tensors were listed: their names in its folder, and why."""
        yield from ()

    def around(self, span: Span) -> tuple[int, int]:
        """Return begin and end of what the document's data hold of one tensor only, with these bytes of it: the member
        of an archive that it has for itself. By default, those are just the bytes."""
        return span.offset, span.offset + span.length

    def is_bookkeeping(self, tensor: Tensor) -> bool:
        """Return whether a tensor is no value of the model, but says how it was saved; a conversion leaves it out."""
        return False

    # -- bytes that were never written -------------------------------------------------------------------------------

    _holes: list[tuple[int, int]] | None = None

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Stretches of the file that were never written, in order, at most 10,000."""
        if self._holes is None:
            file = self._file
            self._holes = list(islice(file.data.holes(file.start, file.find_end()), MOST_HOLES))
        return self._holes

    def _holes_of(self, data: Data) -> list[tuple[int, int]]:
        """Return the holes of a file that tensors are in."""
        if data is not self.extraction.data and data is not self.extraction.parsed.data:
            return []
        return self.holes if self._holes is None else self._holes  # a property is a door: four times the time

    def unwritten(self, tensor: Tensor) -> tuple[int, int]:
        """Return ``(offset of the first, number)`` of the bytes of a tensor that lie in holes of their file."""
        first = length = 0
        for span in tensor.spans:
            if span.data is not None:
                at, count = unwritten_in(self._holes_of(span.data), span.offset, span.offset + span.length)
                first, length = first or at, length + count
        return first, length

    unwritten.__guarded__ = True  # type: ignore[attr-defined]  # what it calls are doors

    def finding_of(self, tensor: Tensor) -> Finding:
        """Return the finding on a tensor that lies in a hole of the file."""
        first, length = self.unwritten(tensor)
        reason = f"{length:,} of {tensor.stored_nbytes:,} bytes were never written (a file hole): they read as zeros"
        source = self.extraction.name
        return Finding("unwritten", reason, path=tensor.name, source=source, offset=first, length=length)

    # -- what follows ------------------------------------------------------------------------------------------------

    @property
    def kept_extent(self) -> Extent | None:
        """The last extent, unless more was learned from the document's bytes since."""
        extent = self._extent
        return extent if extent is not None and extent.known == self.extraction.session.stats.discoveries else None

    def note_damage(self) -> None:
        """Drop the last extent: reading a tensor found it damaged."""
        self._extent = None

    def keep_extent(self, extent: Extent) -> Extent:
        """Keep ``extent``, to which all tensors were added; what is known about the document's bytes is added."""
        inner = self.extraction.parsed
        data = inner.data
        if data.flawed:
            end = (inner.end if inner.end is not None else data.size if data.size is not None else data.reach) or 0
            found = data.range_status(inner.start, end).status
            known = extent.document_status
            if worst_status(known, found) is not known and not self._is_flawed_only_in_tensors(inner.start, end):
                extent.document_status = cut_status(damaged=found is Status.DAMAGED)
        member = inner.origin[1] if inner.origin is not None else None
        if extent.status is Status.COMPLETE and member is not None and member.is_truncated:
            extent.end_early((member.size or 0) - (extent.actual or 0))  # perhaps where a message may end
        if extent.resume_at is not None and not extent.resume:
            name = extent.resume_file or self.extraction.name
            extent.resume.append(Resume(name, extent.resume_at, hole=bool(extent.unwritten)))
        outer = outermost_file(self.extraction)
        if outer.is_other:
            extent.resume = []
        if is_inside(self.extraction):
            if extent.resume or outer.file_parts:
                extent.resume = outside(self.extraction)
        elif outer.file_parts:
            extent.resume = downloads(outer, outer.find_end() - outer.start, cut=bool(extent.resume))
        if extent.resume and outer.parent is None:  # of a set, it is asked for all
            whole = extent.expected if not extent.may_expect_more and outer is self.extraction.parsed else None
            advise(outer, extent.resume, whole)
        first = next((file for file in extent.resume if file.helps), None)
        extent.resume_at, extent.resume_file = (None, None) if first is None else (first.at, first.file)
        self._extent = extent
        return extent

    def _is_flawed_only_in_tensors(self, start: int, end: int) -> bool:
        """Return whether all that is lost or in doubt in ``[start, end)`` of the data is in tensors that say so."""
        if self.has_more_than(_MOST_FLAWED):
            return False
        return flawed_only_in(self.extraction.parsed.data, start, end, self._flawed())

    def _flawed(self) -> Iterator[tuple[int, int]]:
        """Yield where in the document's data the tensors are that are not whole, with what tells of these only."""
        data = self.extraction.parsed.data
        for tensor in self.tensors():
            if not tensor.is_complete:
                for span in tensor.spans:
                    if span.data is data:
                        yield span.offset, span.offset + span.length
                        yield self.around(span)

    @property
    def format(self) -> str:
        """Name of the format."""
        return self.extraction.format

    @property
    def root(self) -> Node:
        """Root of the node tree."""
        return self.extraction.root

    @property
    def default_node(self) -> Node:
        """What is meant if no name is given."""
        return self.root

    @property
    def default_name(self) -> str | None:
        """Name of the tensor that is meant if no name is given; None: `default_node` is meant."""
        return None

    def fact_node(self, name: str) -> Node | None:
        """Return the node of a value in `metadata`; None if there is none of this name, or it has no node."""
        return None

    @property
    def findings(self) -> FindingList:
        """What was found wrong so far; `check` looks everywhere."""
        return self.extraction.findings

    def all_findings(self, extent: Extent | None = None) -> list[Finding]:
        """Return what was found wrong with the model so far: never nothing if it is not whole by its ``extent``.

        Why tensors are not whole is told of the first of each status; not of those that are just cut off, if bytes or
        files are missing: the extent says how many.
        """
        extent = self.extent() if extent is None else extent
        found = list(self.findings)
        told = {(finding.code, finding.reason) for finding in found}
        named = {finding.path for finding in found}
        cut = extent.missing_bytes or extent.missing_files
        for reason in extent.reasons:
            just_cut = cut and reason.code in _JUST_CUT
            if not just_cut and reason.path not in named and (reason.code, reason.reason) not in told:
                found.append(reason)
        if extent.status in BROKEN and not any(finding.is_fault for finding in found):
            hit = f"; first tensor hit: {extent.first_hit}" if extent.first_hit is not None else ""
            words = f"it is {extent.status}; whole: {whole_words(extent)}{hit}"
            summary = Finding(str(extent.status), words, source=self.extraction.name)
            found.append(self.truncation(extent) if extent.missing_bytes else summary)
        return found

    @property
    def status(self) -> Status:
        """The worst status known now, without reading tensors; reading may find more."""
        return self.extent().status

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Look at everything and yield each finding; ``strict`` adds the rules of the reference reader."""
        broken = False
        for finding in self.extraction.parse().check(strict=strict):
            broken = broken or finding.is_fault
            yield finding
        for finding in () if broken else self.zeros_at_end():
            self.findings.add(finding)
            yield finding

    def tell_faults(self, *, verify: bool = False) -> Iterator[Finding]:
        """Yield what is wrong with each tensor, as a finding of the document; ``verify``: compare checksums first."""
        for tensor in self.tensors():
            self.extraction.session.check_cancelled()
            for span in tensor.spans if verify else ():
                span.verify()
            if not tensor.is_complete and tensor.finding is not None:
                self.findings.add(tensor.finding)
                yield tensor.finding

    def zeros_at_end(self) -> Iterator[Finding]:
        """Yield a finding for each file that ends with a page of zeros, or more, and its last tensor in these.

        A download into a file of full size leaves them, and so does a tensor of zeros: from 64 KiB on it is a warning.
        Nothing is said of content that was packed, whose checksum says more, nor of holes, which are told as such.
        """
        from pparse.data.zero_runs import LEAST, PAGE, zeros_at_end

        for file in (self.extraction.parsed, *(file for _, file in self.files_beside())):
            data, end = file.data, file.find_end()
            if not data.is_file or self._holes_of(data):
                continue
            at = zeros_at_end(data, file.start, end, file.session.check_cancelled)
            if end - at < PAGE:
                continue
            ends = (span.offset + span.length for one in self.tensors() for span in one.spans if span.data is data)
            if max(ends, default=0) <= at:
                continue
            reason = (
                f"the last {end - at:,} bytes are zero, as in a download that was preallocated and not finished; "
                "its published digest, if there is one, tells (check --sha256)"
            )
            severity = Severity.WARNING if end - at >= LEAST else Severity.NOTE
            yield Finding("zeros", reason, severity=severity, source=file.name, offset=at, length=end - at)

    _run: tuple[int, Iterator[Tensor] | None] | None = None
    """How many tensors may be asked for in the order in which `keys` gave their names, and the listing, once begun."""

    _last_given: tuple[str, Any] | None = None
    """The name that was given last to who goes through all names, and what `_given` makes its tensor of: mostly that
    is asked for next."""

    def _each_name(self) -> Generator[tuple[str, Any], None, None]:
        """Yield each name, and what `_given` makes its tensor of."""
        for tensor in self.tensors():
            yield tensor.name, tensor

    def _given(self, name: str, what: Any) -> Tensor:
        """Return the tensor of a name that was just given; called under the lock."""
        return what  # type: ignore[no-any-return]

    def _next_listed(self, name: str) -> Tensor | None:
        """Return the tensor that was named last if that is meant, or the next one of a run, as by ``dict(model)``: all
        names, then each tensor."""
        named, self._last_given = self._last_given, None
        if named is not None and named[0] == name:
            with self.lock:
                return self._given(*named)
        run, self._run = self._run, None  # another thread searches
        if run is None:
            return None
        left, tensors = run
        try:
            tensors = self.tensors() if tensors is None else tensors
            tensor = next(tensors, None)
        except PparseError:  # searching says what is wrong
            return None
        if tensor is None or tensor.name != name:
            return None
        if left > 1:
            self._run = left - 1, tensors
        return tensor

    def __getitem__(self, name: str) -> Tensor:
        if not isinstance(name, str):
            kind = type(name).__name__  # type: ignore[unreachable]  # callers need not be checked
            article = "an" if kind[0] in "aeiou" else "a"
            raise TypeError(f"a tensor is asked for by its name, not by {article} {kind}")
        tensor = self._next_listed(name)
        if tensor is not None:
            return tensor
        tensor = self.find(name)
        if tensor is None:
            why = self.why_unknown()
            reason = "there is no tensor of this name" + (f" ({why})" if why is not None else "")
            raise MissingNameError(reason, path=name, suggestions=self.suggest(name))
        return tensor

    __getitem__.__guarded__ = True  # type: ignore[attr-defined]  # what it calls are doors

    def get(self, name: str, default: Any = None) -> Any:
        """Return the tensor of that name; ``default`` if there is none, or ``name`` is no text."""
        return super().get(name, default) if isinstance(name, str) else default

    get.__guarded__ = True  # type: ignore[attr-defined]  # as above

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three names similar to ``name``."""
        from pparse.tree.result import near_misses

        return near_misses(name, islice(self, 20_000))

    def keys(self) -> KeysView[str]:
        """Return a view of the names; slices of it are lists: ``keys()[700_000:700_050]`` (see `tensors_from`)."""
        return _Names(self)

    def values(self) -> ValuesView[Tensor]:
        """Return a view of the tensors, which are listed while it is iterated over, in one pass; slices are lists."""
        return _Tensors(self)

    def items(self) -> ItemsView[str, Tensor]:
        """Return a view of names and tensors, listed while it is iterated over, in one pass; slices are lists."""
        return _NamedTensors(self)

    def state_dict(self, prefix: str = "") -> Mapping[str, Any]:
        """Return the tensors whose names begin with ``prefix``, under the rest of their names, as torch tensors.

        Each is read when it is asked for, and not kept: ``for name, tensor in model.state_dict("model.").items()``.
        ``module.load_state_dict`` takes it, too, and has all of them in memory then.
        """
        from pparse.tensors.state_dict import StateDict

        return StateDict(self, prefix)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        for named in steps(self.lock, self._each_name()):
            self._last_given = named
            yield named[0]
        self._last_given = None

    __iter__.__guarded__ = True  # type: ignore[attr-defined]  # what was given last is that of who takes it

    def __len__(self) -> int:
        return sum(1 for _ in self.tensors())

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        """Return the methods of a mapping, what the documents tell of viewers, and what a class outside pparse adds."""
        shown = set(_SHOWN.split())
        for kind in type(self).__mro__:
            if not kind.__module__.startswith("pparse."):
                shown.update(vars(kind))
        return [name for name in super().__dir__() if name.startswith("_") or name in shown]

    def __repr__(self) -> str:
        from pparse.tensors.notebook import viewer_text

        return viewer_text(self)

    def _repr_html_(self) -> str:
        from pparse.tensors.notebook import viewer_html

        return viewer_html(self)

    def _ipython_key_completions_(self) -> list[str]:
        return [name for name, _ in zip(self, range(10_000), strict=False)]

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Pickle a handle (docs/handles.md). Raises `SourceError` if the document cannot be opened again."""
        from pparse.tensors.pickling import reduce_viewer

        return reduce_viewer(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it holds no content of its own

    def close(self) -> None:
        """Close the document."""
        self.extraction.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Names(KeysView[str]):
    """The names of a viewer."""

    __slots__ = ()
    _mapping: Viewer

    def __iter__(self) -> Iterator[str]:
        count = 0
        for count, name in enumerate(self._mapping, 1):  # noqa: B007 -- their number is needed behind them
            yield name
        self._mapping._run = (count, None) if count else None

    def __getitem__(self, part: slice) -> list[str]:
        return [tensor.name for tensor in _sliced(self._mapping, part)]


class _Tensors(ValuesView["Tensor"]):
    """The values of a viewer; those of `Mapping` would search each name."""

    __slots__ = ()
    _mapping: Viewer

    def __iter__(self) -> Iterator[Tensor]:
        return self._mapping.tensors()

    def __getitem__(self, part: slice) -> list[Tensor]:
        return list(_sliced(self._mapping, part))


class _NamedTensors(ItemsView[str, "Tensor"]):
    """The items of a viewer; those of `Mapping` would search each name."""

    __slots__ = ()
    _mapping: Viewer

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return ((tensor.name, tensor) for tensor in self._mapping.tensors())

    def __getitem__(self, part: slice) -> list[tuple[str, Tensor]]:
        return [(tensor.name, tensor) for tensor in _sliced(self._mapping, part)]


def _sliced(viewer: Viewer, part: slice) -> Iterator[Tensor]:
    """Yield the tensors that ``part`` selects; only a bound that counts from the end needs their number."""
    if not isinstance(part, slice):
        raise TypeError("the views of a model take slices, such as keys()[10:20]")
    bounds = [bound for bound in (part.start, part.stop) if bound is not None]
    if (part.step or 1) < 0 or any(bound < 0 for bound in bounds):
        yield from list(viewer.tensors())[part]
        return
    first = part.start or 0
    count = None if part.stop is None else max(0, part.stop - first)
    yield from islice(viewer.tensors_from(first), 0, count, part.step) if count != 0 else ()


def view(
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
) -> Viewer:
    """Open ``source`` and return its viewer, a mapping of tensor names to `Tensor`. Keyword arguments as for `open`.

    Raises `FormatError` if the format is not recognised, `UnsupportedError` if it has no viewer.
    """
    keywords = dict(locals())  # all that was given
    del keywords["source"]
    extraction = open_expecting(source, {}, **keywords)
    try:
        return extraction.view()  # type: ignore[no-any-return]
    except BaseException:
        extraction.close()
        raise


# -- How a model is called: its signatures, with the type and shape of each argument and result ------------------------


class TensorInfo:
    """One argument or result of a signature."""

    __slots__ = ("dtype", "parts", "shape", "stored_dtype", "tensor")

    def __init__(
        self, tensor: str, dtype: DType | None, stored_dtype: str, shape: tuple[int, ...] | None, parts: dict[str, str]
    ) -> None:
        self.tensor = tensor
        """Name of the tensor (``node:output``)."""
        self.dtype = dtype
        """Element type; None if it is not a number."""
        self.stored_dtype = stored_dtype
        """The format's word for the type, such as DT_STRING."""
        self.shape = shape
        """Shape, with -1 for unknown dimensions; None if the rank is unknown."""
        self.parts = parts
        """Names of the tensors of a sparse or composite one."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        found: dict[str, object] = {
            "tensor": self.tensor,
            "dtype": self.dtype.name if self.dtype is not None else None,
            "stored_dtype": self.stored_dtype,
            "shape": list(self.shape) if self.shape is not None else None,
        }
        return {**found, "parts": self.parts} if self.parts else found

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar" if self.shape is not None else "of unknown rank"
        return f"<TensorInfo {self.tensor!r} {self.dtype or self.stored_dtype} {shape}>"


class Signature:
    """How a model is called."""

    __slots__ = ("inputs", "method_name", "name", "outputs")

    def __init__(
        self, name: str, inputs: dict[str, TensorInfo], outputs: dict[str, TensorInfo], method_name: str
    ) -> None:
        self.name = name
        """Name of the signature."""
        self.inputs = inputs
        """Arguments by name."""
        self.outputs = outputs
        """Results by name."""
        self.method_name = method_name
        """The method that it describes."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "inputs": {name: info.to_dict() for name, info in self.inputs.items()},
            "outputs": {name: info.to_dict() for name, info in self.outputs.items()},
            "method_name": self.method_name,
        }

    def __repr__(self) -> str:
        return f"<Signature {self.name!r}: {', '.join(self.inputs) or 'nothing'} -> {', '.join(self.outputs)}>"


# Codes of findings on tensors whose bytes, or some of them, are not there.
_JUST_CUT: Final = (*map(str, ENDS_EARLY), "missing-storage")
