"""What a conversion will write: which tensors, under which names, into which files, at which places.

Everything is decided, and everything that can be refused is refused, before the first byte is written.
"""

from __future__ import annotations

import json
import re
from collections import namedtuple
from itertools import cycle
from zlib import crc32

from pparse.conversion import forms
from pparse.data.base import digest
from pparse.display.text import few, shorten
from pparse.errors import LimitError, MalformedError, NotWholeError, OptionError, UnsupportedError, spoken, told
from pparse.findings import Severity, Status, clipped
from pparse.limits import FREE_EXPANSION, MIB, are, count_words, format_size
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.dtype import DTYPES
from pparse.tensors.scales import codes_of, is_scale, quantisation_of
from pparse.tensors.status import Remark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import Any, BinaryIO, Final

    from pparse.conversion.forms import Form
    from pparse.data.base import Data
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

FORMS: Final = ("safetensors", "npz", "gguf")
# The most names in a message.
_NAMED: Final = 5
# The size of its tensors, in the index of a set: that of the output is counted anew.
_TOTAL: Final = "total_size"
# What is charged for items is charged in steps.
_STEP: Final = 64 << 10
# As many tensors are held for each, at most, that is computed of others: the codes, two scales or a scale and zero.
_ROWS_OF_SCALED: Final = 4
# Room for what is read and written at a time, beside the list: blocks of the source, and three buffers.
_BESIDE: Final = 12 * MIB
# What JSON has of a report, in this order.
_TOLD: Final = (
    "dry_run files tensors tensor_bytes bytes left_out document_reason overflowed shared_copies shared_bytes aliases "
    "unused_renames notes resumed_bytes"
)


def form_named(target: str, to: str | None) -> str:
    """Return what to write: ``to``, or else what the extension of ``target`` says. Raises `OptionError`."""
    form = to or form_of(target)
    if form is None:
        raise OptionError(
            f"{target}: the name does not say what to write; use .safetensors, .npz or .gguf, or {told('--to', 'to=')}"
        )
    if form not in FORMS:
        raise OptionError(f"cannot write {to!r}; use one of {', '.join(FORMS)}")
    return form


def form_of(target: str) -> str | None:
    """Return what the extension of ``target`` says that is to be written; None if it says nothing."""
    return next((form for form in FORMS if target.lower().endswith(f".{form}")), None)


class Rename:
    """``old=new``: a name that begins with ``old`` begins with ``new`` instead.

    With one ``*`` on both sides, ``old`` is compared with the whole name, and ``new`` gets what its star stood for.
    Raises `OptionError` for a rule with stars on one side only, or several.
    """

    __slots__ = ("_search", "new", "old")

    def __init__(self, rule: str) -> None:
        self.old, mark, self.new = rule.partition("=")
        if not mark:
            raise OptionError(f"expected OLD=NEW, not {rule!r}")
        stars = self.old.count("*"), self.new.count("*")
        if stars not in ((0, 0), (1, 1)):
            raise OptionError(f"{rule}: one star on both sides, or none (a prefix); found {stars[0]} and {stars[1]}")
        before, star, after = self.old.partition("*")
        rest = "(.*)" + re.escape(after) if star else "(.*)"
        self._search = re.compile(re.escape(before) + rest, re.DOTALL).fullmatch

    def __call__(self, name: str) -> str | None:
        """Return the new name; None if the rule is not for this name."""
        found = self._search(name)
        if found is None:
            return None
        before, star, after = self.new.partition("*")
        return before + found[1] + after if star else self.new + found[1]

    def __str__(self) -> str:
        return f"{self.old}={self.new}"


class Options:
    """What to write, of which tensors, and how; see `pparse.convert`. ``target`` is for messages.

    Raises `OptionError`.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        to: str | None = None,
        max_shard_size: int | None = None,
        dtype: object = None,
        dequantize: bool = False,
        rename: Iterable[str] = (),
        chosen: Callable[[Viewer, Tensor], bool] | None = None,
        skip_damaged: bool = False,
        skip_unsupported: bool = False,
        dedupe: bool = False,
        force: bool = False,
    ) -> None:
        written = to or (None if target is None else form_of(target))
        self.to = to
        """``safetensors``, ``npz`` or ``gguf``; None: what the extension of the target says."""
        self.max_shard_size = max_shard_size
        """The most bytes of tensors in a file of a set; None: one file."""
        self.dtype = None if dtype is None else forms.cast_target(dtype, written if written in FORMS else None)
        """What floating tensors are cast to; None: they stay as they are."""
        self.dequantize = dequantize
        """Whether to write what codes stand for, and not the codes and their scales."""
        self.renames = [Rename(rule) for rule in rename]
        """Rules for names: the first that fits a name changes it."""
        self.chosen = chosen
        """Says of a tensor of the source whether to write it; None: all are written."""
        self.skip_damaged = skip_damaged
        """Whether to leave out tensors that are not whole, instead of writing nothing."""
        self.skip_unsupported = skip_unsupported
        """Whether to leave out tensors that the target cannot hold, instead of writing nothing."""
        self.dedupe = dedupe
        """Whether to write tensors that share their bytes once, and note the other names in the metadata."""
        self.force = force
        """Whether to replace existing files."""
        if max_shard_size is not None and max_shard_size < 1:
            raise OptionError(f"a shard must have room for a byte at least, not for {max_shard_size}")

    def takes(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether a tensor of the source is to be written."""
        return self.chosen is None or self.chosen(viewer, tensor)

    def renamed(self, name: str, used: set[Rename] | None = None) -> str:
        """Return the name that a tensor gets; add the rule that gave it to ``used``."""
        for rule in self.renames:
            if (found := rule(name)) is not None:
                if used is not None:
                    used.add(rule)
                return found
        return name


class OutputFile:
    """A file to write: its path, its items in order, and where everything in it is."""

    __slots__ = ("form", "head_size", "items", "metadata", "path", "size")

    def __init__(self, form: Form, path: str, items: list[forms.Item], metadata: Mapping[str, str]) -> None:
        self.form = form
        """How it holds them."""
        self.path = path
        """Its path, once it is whole."""
        self.items = items
        """Its tensors, in the order of their bytes."""
        self.metadata = metadata
        """What it says of itself."""
        self.head_size, self.size = form.lay(items, metadata, path)
        """Bytes before the items; bytes in all."""

    def head(self) -> Iterator[bytes]:
        """Yield what comes before the items."""
        return self.form.head(self.items, self.metadata, self.head_size)

    @property
    def end(self) -> int:
        """Where the last item ends."""
        return self.items[-1].end if self.items else self.head_size


class Plan:
    """All of a conversion of ``viewer`` to ``target``.

    ``spoiled`` are numbers of tensors that an earlier attempt found not to be whole. ``resolved``: all checksums of the
    source are compared now; else those that can be while tensors are copied are left for then. Raises `NotWholeError`,
    `UnsupportedError` for tensors that the target cannot hold, `OptionError` for names that would collide, and
    `LimitError` if the tensors are too many for the memory budget.
    """

    def __init__(
        self, viewer: Viewer, target: str, options: Options, *, dry_run: bool, spoiled: Collection[int], resolved: bool
    ) -> None:
        self.viewer = viewer
        self.options = options
        self.target = target
        """The path asked for; files of a set are named after it."""
        form = form_named(target, options.to)
        if form != "safetensors" and options.max_shard_size is not None:
            raise OptionError(
                f"only safetensors files come in sets; {told('--max-shard-size', 'max_shard_size')} is not for .{form}"
            )
        if form != "safetensors" and options.dedupe:
            raise OptionError(
                f"{spoken('--dedupe')} notes names in the metadata of safetensors files; a .{form} has none"
            )
        self.form: Form = self._new_form(form)
        self.report = Report(form, dry_run=dry_run)
        """What is known of the outcome so far."""
        self.charge = viewer.extraction.session.budget.charge(0, "the list of tensors to convert")
        self.is_unresolved = viewer.resolves_late and not resolved
        """Whether tensors may turn out to be damaged that are compared only while they are copied."""
        self._spoiled = spoiled
        self._used: set[Rename] = set()
        try:
            items = self._list_late() if self.is_unresolved else self._list()
            self.judge_document()
            if not options.skip_damaged:
                refuse_damage(self.report)
            self._refuse_unsupported(items)
            refuse_collisions(items, self.form.name)
            items = self._share(items)
            holds = self.form.holds_metadata
            metadata = self._metadata() if holds else self._leave_metadata() if holds is False else {}
            self.files = self._divide(items, metadata)
            self.bytes = sum(item.nbytes for item in items)
            """Bytes of the tensors to write."""
            self._refuse_expansion()
        except BaseException:
            self.charge.release()
            raise
        self._tell(items)

    def _new_form(self, form: str) -> Form:
        wanted = self.options.dtype
        if form == "gguf":
            return forms.GgufForm(self.viewer, self.target, wanted)
        if wanted is not None and wanted.name == "Q8_0":
            raise OptionError(f"only GGUF files have blocks of Q8_0; {spoken('--dtype Q8_0')} is not for .{form}")
        return forms.SafetensorsForm() if form == "safetensors" else forms.NpzForm()

    # -- which tensors -------------------------------------------------------------------------------------------------

    def _list_late(self) -> list[forms.Item]:
        """Do what `_list` does, but leave checksums for later of which all bytes will be copied as they are."""
        items = self._list(resolve=False)
        straight = [item for item in items if item.is_straight and item.nbytes]
        wanted = self.viewer.resolve_all_but([item.tensor for item in straight])
        if wanted is None:  # something is wrong: now all of that is found, and told at once
            self.report.left_out.clear()
            return self._list()
        for item, crc in zip(straight, wanted, strict=True):
            item.wanted_crc = crc if crc >= 0 else None
        return items

    def _list(self, *, resolve: bool = True) -> list[forms.Item]:
        """Return what to write, in the order of the source; what cannot be goes into the report."""
        if resolve:
            self.viewer.resolve_all()  # what is written must be known to be whole
        items: list[forms.Item] = []
        taken = 0
        try:
            for number, tensor in self._wanted():
                taken += self._weight(tensor)
                if taken > self.charge.amount:
                    self.charge.resize(taken + _STEP)
                if self.options.dequantize and self._is_used_up(tensor):
                    continue
                found = self._judge(number, tensor)
                if isinstance(found, forms.Item):
                    items.append(found)
                else:
                    self.report.left_out.append(found)
        except LimitError as error:
            if error.option.startswith("--budget"):  # whatever did not fit: say how much the whole list needs
                self.charge.release()
                self.report.left_out.clear()
                self.charge.resize(sum(self._weight(tensor) for _, tensor in self._wanted()) + _BESIDE)
            raise
        return items

    def _wanted(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the tensors that are asked for, each with its number among those of the source."""
        for number, tensor in enumerate(self.viewer.tensors()):
            if self.options.takes(self.viewer, tensor) and not self.viewer.is_bookkeeping(tensor):
                yield number, tensor

    def _weight(self, tensor: Tensor) -> int:
        """Return about how much memory the item of ``tensor`` takes, in bytes."""
        rows = _ROWS_OF_SCALED if self.options.dequantize else 1
        return rows * self.viewer.row_bytes + forms.ITEM_BYTES + 4 * len(tensor.name) + 32 * tensor.ndim

    def _is_used_up(self, tensor: Tensor) -> bool:
        """Return whether codes that are written were multiplied by ``tensor``, which is nothing without them."""
        found = codes_of(self.viewer, tensor)
        return found is not None and self.options.takes(self.viewer, found.codes)

    def _judge(self, number: int, tensor: Tensor) -> forms.Item | LeftOut:
        given = tensor
        if self.options.dequantize and (scaled := quantisation_of(self.viewer, tensor)) is not None:
            if scaled.problem is not None:
                return LeftOut(tensor.name, Status.DAMAGED, scaled.problem)
            tensor = scaled.tensor()
        if not self.is_unresolved:  # else its own checksum is compared later
            tensor.resolve()
        flaw = flaw_of(tensor)
        if flaw is None and number in self._spoiled:
            flaw = Status.DAMAGED, "damage was found while it was read"
        if flaw is not None:
            return LeftOut(tensor.name, *flaw)
        name = self.options.renamed(tensor.name, self._used)
        dtype = tensor.dtype
        if isinstance(tensor, BlockTensor) and self.form.copies(tensor):
            dtype = DTYPES["float32"]  # what the blocks stand for, though perhaps nothing decodes them
        reason = _unwritable(tensor, name, dtype)
        if reason is None and dtype is not None:
            dtype = self._target_type(tensor, dtype)
            reason = self.form.refusal(name, dtype, tensor.shape, tensor.size)
        if reason is not None or dtype is None:
            reason = reason or f"its type {tensor.stored_dtype!r} is not known"
            return LeftOut(tensor.name, Status.UNSUPPORTED, reason)
        item = self.form.item(tensor, name, dtype, number)
        item.given = given
        return item

    def _target_type(self, tensor: Tensor, dtype: DType) -> DType:
        """Return the type to write. Raises `OptionError` for codes that would be cast without their scales."""
        wanted = self.options.dtype
        if wanted is None or wanted == dtype or dtype.kind != "float":
            return dtype
        found = quantisation_of(self.viewer, tensor)
        if found is not None:
            raise OptionError(
                f"{tensor.name} is to be multiplied by {found.factor}, and {spoken(f'--dtype {wanted}')} alone "
                f"would cast it as it is: {spoken('--dequantize')} multiplies; without {told('--dtype', 'dtype')} both "
                "are kept as they are"
            )
        return dtype if is_scale(self.viewer, tensor) else wanted

    def judge_document(self) -> None:
        """Note what is wrong with the source beside its tensors: a header that was cut may have named more."""
        extent = self.viewer.extent()
        if extent.document_status is not Status.COMPLETE:
            status = extent.document_status
            what = f"what the source holds beside its tensors (names, headers, other values) is {status}"
            errors = (one for one in self.viewer.findings if one.severity is Severity.ERROR and not one.path)
            first = next(errors, None)
            self.report.document_reason = what if first is None else f"{what}: {first.reason}"
        elif extent.missing_files and extent.at_least:
            files = count_words(extent.missing_files, "file")
            self.report.document_reason = f"{files} of the source may hold more tensors, and cannot be read"
        else:
            told = (finding for finding in self.viewer.findings if finding.severity is Severity.ERROR)
            if extent.missing_bytes and self.viewer.is_cut_in_tensors:  # which tensors, is known
                told = (finding for finding in told if finding.code != "truncated")
            # That the bytes of a tensor are not those of its checksum says nothing of any other.
            named = {clipped(entry.name) for entry in self.report.left_out if entry.status is Status.DAMAGED}
            others = (finding for finding in told if not (finding.code == "hash" and finding.path in named))
            finding = next((finding for finding in others if not self._is_unwanted(finding.path)), None)
            if finding is not None:
                self.report.document_reason = str(finding)

    def _is_unwanted(self, path: str) -> bool:
        """Return whether ``path``, of a finding, is a tensor that is not asked for."""
        tensor = self.viewer.find(path) if path and self.options.chosen is not None else None
        return tensor is not None and not self.options.takes(self.viewer, tensor)

    def _refuse_unsupported(self, items: list[forms.Item]) -> None:
        """Raise if tensors that the target cannot hold must not be left out, or if everything was.

        A source without tensors is no reason.
        """
        form, left_out = self.report.form, self.report.left_out
        lost = [entry for entry in left_out if entry.status is Status.UNSUPPORTED]
        if lost and not self.options.skip_unsupported:
            names = "; ".join(f"{shorten(entry.name, 80)}: {entry.reason}" for entry in lost[:_NAMED])
            more = f"; and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
            raise UnsupportedError(
                f"{form} cannot hold {count_words(len(lost), 'tensor')}, and nothing was written "
                f"({names}{more}); {spoken('--skip-unsupported')} leaves such tensors out"
            )
        if left_out and not items:
            if not self.report.is_whole:
                raise self.report.refusal("not one of the tensors is whole: nothing was written")
            raise UnsupportedError(f"{form} can hold none of the tensors: nothing was written")

    def _refuse_expansion(self) -> None:
        """Raise `LimitError` if a small source stands for a huge output, as one value for any number of elements."""
        session = self.viewer.extraction.session
        there = sum(data.size or 0 for data in self.sources() if data.size)
        most = there * session.limits.expansion_ratio + FREE_EXPANSION
        if self.bytes > most:
            reason = f"the tensors would take {format_size(self.bytes)}, of a source of {format_size(there)}"
            option = f"--limit expansion_ratio={-(-self.bytes // max(1, there))}"
            raise LimitError(reason, option=option, wanted=self.bytes, got=most)

    # -- tensors with the same bytes -----------------------------------------------------------------------------------

    def _share(self, items: list[forms.Item]) -> list[forms.Item]:
        """Return the items to write if tensors with the same bytes are written once, or all, counted as copies."""
        kept: dict[object, forms.Item] = {}
        others: dict[int, forms.Item] = {}
        for item in sorted(items, key=lambda item: item.name):
            place = _place_of(item)
            first = item if place is None else kept.setdefault(place, item)
            if first is not item:
                others[item.number] = first
        if not self.options.dedupe:
            self.report.shared_copies = len(others)
            self.report.shared_bytes = sum(item.nbytes for item in others.values())
            return items
        self.report.aliases = {item.name: others[item.number].name for item in items if item.number in others}
        return [item for item in items if item.number not in others]

    # -- into which files ----------------------------------------------------------------------------------------------

    def _metadata_of_source(self) -> Iterator[Mapping[str, Any]]:
        """Yield the metadata of the whole, and those of each file of a set."""
        whole = dict(self.viewer.metadata)
        if self.viewer.is_set:
            whole.pop(_TOTAL, None)
        yield whole
        yield from self.viewer.metadata_of_parts()

    def _metadata(self) -> dict[str, str]:
        """Return the metadata of each output file: those of the source, and of the files of a set."""
        found: dict[str, str] = {}
        differing: list[str] = []
        remarks: list[str] = []
        for part in self._metadata_of_source():
            for key, value in part.items():
                if isinstance(value, Remark):
                    remarks.append(f"{key} ({value})")
                    continue
                text = value if isinstance(value, str) else _as_json(value)
                if found.setdefault(str(key), text) != text and key not in differing:
                    differing.append(key)
        if remarks:
            names = few(remarks, _NAMED, len(remarks))
            note = f"values too long for metadata, or not whole, were left out: {names}"
            self.report.notes.append(f"{note}; 'pparse get FILE NAME' gives one")
        if differing:
            names = few(differing, _NAMED, len(differing))
            self.report.notes.append(f"the files of the source differ in their metadata ({names}): the first was kept")
        for name, kept in self.report.aliases.items():
            if found.setdefault(name, kept) != kept:
                raise OptionError(
                    f"{spoken('--dedupe')} would note {name!r} in the metadata, which have that key already"
                )
        unwritable = [key for key, text in found.items() if not forms.is_text(key) or not forms.is_text(text)]
        for key in unwritable:
            del found[key]
        if unwritable:
            names = few(unwritable, _NAMED, len(unwritable))
            self.report.notes.append(f"metadata that UTF-8 cannot hold were left out: {names}")
        return found

    def _leave_metadata(self) -> dict[str, str]:
        """Say what the target has no place for; return nothing."""
        names = {str(key) for part in self._metadata_of_source() for key in part}
        if names:
            shown = few(sorted(names), _NAMED, len(names))
            self.report.notes.append(
                f"an .npz holds arrays only: {count_words(len(names), 'other value')} of the source "
                f"{are(len(names))} not in it ({shown}). 'pparse info' shows them, 'pparse get FILE "
                "NAME' gives one, and a .safetensors file has them as metadata"
            )
        return {}

    def _divide(self, items: list[forms.Item], metadata: Mapping[str, str]) -> list[OutputFile]:
        most = self.options.max_shard_size
        parts = [items]
        if most is not None:
            parts = [
                [items[at] for at in shard] for shard in forms.shards_of([item.nbytes for item in items], most)
            ] or parts
        paths = [self.target]
        if len(parts) > 1:
            stem = self.target.removesuffix(".safetensors")
            paths = [f"{stem}-{at + 1:05d}-of-{len(parts):05d}.safetensors" for at in range(len(parts))]
        return [OutputFile(self.form, path, part, metadata) for path, part in zip(paths, parts, strict=True)]

    @property
    def index_path(self) -> str | None:
        """Path of the index; None if there is one file only."""
        return f"{self.target.removesuffix('.safetensors')}.safetensors.index.json" if len(self.files) > 1 else None

    def index(self) -> Iterator[bytes]:
        """Yield the index of the set."""
        names = sorted((item.name, number) for number, item in self._placed())
        paths = [file.path.replace("\\", "/").rpartition("/")[2] for file in self.files]
        return forms.index_text(((name, paths[number]) for name, number in names), self.bytes)

    @property
    def paths(self) -> list[str]:
        """The paths of all files, the index last."""
        return [file.path for file in self.files] + ([] if (index := self.index_path) is None else [index])

    # -- what is known of it -------------------------------------------------------------------------------------------

    def _placed(self) -> Iterator[tuple[int, forms.Item]]:
        """Yield the items to write with the numbers of their files."""
        return ((number, item) for number, file in enumerate(self.files) for item in file.items)

    def sources(self) -> list[Data]:
        """Return the data in which tensors are found, and the document itself."""
        own = self.viewer.extraction
        found = {id(data): data for data in (own.data, own.topmost.data, own.parsed.data)}
        for _, item in self._placed():
            for span in (span for tensor in item.tensor.sources for span in tensor.spans):
                if (source := span.found_in) is not None:
                    found[id(source)] = source
        return list(found.values())

    def work(self) -> list[tuple[int, forms.Item]]:
        """Return the items to write with the numbers of their files, in the order in which to write them.

        That of the output; if bytes come out of compressed streams, that of the source, so that these are decoded once.
        """
        from pparse.data.base import Access

        found = list(self._placed())
        sources = self.sources()
        if any(data.access is not Access.FREE for data in sources):
            known = {id(data): at for at, data in enumerate(sources)}
            found.sort(key=lambda pair: _first_byte(pair[1], known))
        return found

    def fingerprint(self) -> str:
        """Return a hash of everything that is written and of where it comes from."""

        def lines() -> Iterator[bytes]:
            for file in self.files:
                yield from (f"{file.path}\n{file.size}\n".encode("utf-8", "surrogatepass"), *file.head())
                for item in file.items:
                    first = (span for tensor in item.tensor.sources for span in tensor.spans[:2])
                    spans = [(span.path, span.offset, span.length) for span in first]
                    place = f"{item.number} {item.at} {item.nbytes} {item.dtype} {item.tensor.dtype} {spans}"
                    yield f"{item.name}\n{place}\n".encode("utf-8", "surrogatepass")

        return digest(lines()).hex()

    def source_stamp(self) -> list[str] | None:
        """Return what identifies the content of all sources; None if one of them cannot tell."""
        found = [data.identity for data in self.sources()]
        return None if None in found else sorted({repr(identity) for identity in found})

    def flaws(self) -> list[tuple[forms.Item, Status, str]]:
        """Return the items that are not whole, by what is known by now."""
        items = [item for _, item in self._placed()]
        for item in items:
            for tensor in item.tensor.sources:
                tensor.verify_content()
            item.tensor.resolve()
        return [(item, *flaw) for item in items if (flaw := flaw_of(item.tensor)) is not None]

    def _tell(self, items: list[forms.Item]) -> None:
        """Put into the report what is known already."""
        report = self.report
        report.tensors, report.tensor_bytes = len(items), self.bytes
        report.unused_renames = [str(rule) for rule in self.options.renames if rule not in self._used]
        report.files = [Written(file.path, file.size, len(file.items)) for file in self.files]
        if (index := self.index_path) is not None:
            report.files.append(Written(index, sum(map(len, self.index())), 0))
        if report.shared_copies:
            report.notes.append(
                f"{count_words(report.shared_copies, 'tensor')} with the same bytes as another got a copy "
                f"({format_size(report.shared_bytes)})"
                + (f"; {spoken('--dedupe')} writes such bytes once" if self.form.holds_metadata else "")
            )
        if self.options.dequantize:
            self._tell_scaled(items)
        if not self.form.packed:
            self._tell_foreign(items)
        report.notes += self.form.notes()
        report.notes += [finding.reason for finding in self.viewer.findings if finding.code == "unnamed-storage"]

    def _tell_scaled(self, items: list[forms.Item]) -> None:
        """Note how many tensors are computed of codes and scales; if there are none, why."""
        count = sum(len(item.tensor.sources) > 1 for item in items)
        if count:
            note = f"{count_words(count, 'tensor')} {'was' if count == 1 else 'were'} multiplied by the scales"
            self.report.notes.append(f"{note}, which are not written")
        elif not any(isinstance(item.tensor, BlockTensor) for item in items):
            self.report.notes.append("there was nothing to dequantise: no scales belong to any of the tensors")

    def _tell_foreign(self, items: list[forms.Item]) -> None:
        """Note which types numpy lacks, and how to read them."""
        foreign = {item.dtype.name: item.dtype for item in items if item.dtype.numpy.isbuiltin == 2}
        for _, dtype in sorted(foreign.items()):
            if dtype.kind != "other":
                more = f", or convert with {spoken('--dtype float32')}" if dtype.kind == "float" else ""
                self.report.notes.append(forms.bits_note(dtype) + more)


def write_file(file: OutputFile, stream: BinaryIO) -> None:
    """Write ``file`` to ``stream`` front to back, for whoever has no use for a journal.

    If the stream cannot seek, and what precedes an item has its checksum, the item is read twice. Raises the errors of
    `Tensor.blocks`, and `MalformedError` for a tensor that has other bytes than it should.
    """
    buffers = cycle((memoryview(bytearray(forms.PIECE)), memoryview(bytearray(forms.PIECE))))
    sums, seeks = file.form.has_checksums, stream.seekable()
    for piece in file.head():
        stream.write(piece)
    for item in file.items:
        if sums and not seeks:
            for part in item.pieces(0, forms.PIECE, buffers):
                item.crc = crc32(part, item.crc)
            item.overflowed = 0  # what does not fit is counted while it is written
        lead = file.form.lead(item)
        stream.write(lead)
        written = 0
        for part in item.pieces(0, forms.PIECE, buffers):
            if sums and seeks:
                item.crc = crc32(part, item.crc)
            written += len(part)
            stream.write(part)
        if written != item.nbytes:
            raise MalformedError(f"it has {written:,} bytes, and not {item.nbytes:,}", path=item.tensor.name)
        if sums and seeks:
            end = stream.tell()
            stream.seek(end - item.nbytes - len(lead))
            stream.write(file.form.lead(item))
            stream.seek(end)
    for piece in file.form.tail(file.items):
        stream.write(piece)


def refuse_collisions(items: Iterable[forms.Item], form: str, advice: str = "") -> None:
    """Raise `OptionError`, which ends with ``advice``, if readers of a file of ``form`` know two tensors by one name.

    To numpy, a member of an .npz has two names, with and without ``.npy``.
    """
    known: dict[str, forms.Item] = {}
    found: list[str] = []
    count = 0
    for item in items:
        names = (item.name, item.name + forms.NPY) if form == "npz" else (item.name,)
        taken = next((name for name in names if known.setdefault(name, item) is not item), None)
        if taken is not None:
            count += 1
            if count <= _NAMED:
                found.append(f"{known[taken].tensor.name!r} and {item.tensor.name!r} would both be {taken!r}")
    if found:
        more = f"; and {count - _NAMED:,} more" if count > _NAMED else ""
        raise OptionError(f"names would collide, and nothing was written: {'; '.join(found)}{more}{advice}")


def flaw_of(tensor: Tensor) -> tuple[Status, str] | None:
    """Return the status of a tensor and what is wrong with it; None if nothing is known against it.

    UNSUPPORTED is no flaw: see `Plan`.
    """
    status, finding = tensor.status, tensor.finding
    if status is Status.UNSUPPORTED:
        return None
    if tensor.unwritten_nbytes:
        reason = f"{tensor.unwritten_nbytes:,} of its bytes were never written (a file hole)"
        return Status.TRUNCATED, reason if finding is None else finding.reason
    if status is Status.COMPLETE:
        if finding is None or finding.severity is not Severity.ERROR:
            return None
        status = Status.DAMAGED
    there = f"{tensor.available_nbytes:,} of its {tensor.stored_nbytes:,} bytes are there"
    return status, there if finding is None else finding.reason


def _unwritable(tensor: Tensor, name: str, dtype: DType | None) -> str | None:
    """Return why no target can hold a tensor of elements that are ``dtype``; None if one may."""
    if tensor.status is Status.UNSUPPORTED:
        return tensor.finding.reason if tensor.finding is not None else "it cannot be read"
    if tensor.is_text:
        return "its elements are texts, not numbers"
    if isinstance(tensor, BlockTensor) and dtype is None:
        return f"its type {tensor.stored_dtype!r} cannot be decoded (numpy(raw=True) gives its blocks)"
    if not forms.is_text(name):
        return "UTF-8 cannot hold its name"
    return None


def _place_of(item: forms.Item) -> object | None:
    """Return what only tensors with the same elements in the same bytes have in common; None if it has no bytes."""
    tensor = item.tensor
    spans = [span for source in tensor.sources for span in source.spans]
    if not item.nbytes or not spans or tensor.encoding != "raw":
        return None
    places = tuple(span.place for span in spans)
    return places, tensor.dtype, tensor.shape, tensor.strides, tensor.byteorder, item.dtype


def _first_byte(item: forms.Item, known: Mapping[int, int]) -> tuple[int, int]:
    spans = item.tensor.spans
    return (known.get(id(spans[0].found_in), 0), spans[0].found_at) if spans else (0, 0)


def _as_json(value: Any) -> str:
    def plain(other: Any) -> Any:
        return dict(other) if hasattr(other, "keys") else list(other) if hasattr(other, "__iter__") else str(other)

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain)


# -- the report --------------------------------------------------------------------------------------------------------


class LeftOut(namedtuple("LeftOut", "name status reason")):
    """A tensor that was not written, or that stands in the way of writing anything.

    ``name``: in the source; ``status``: UNSUPPORTED if it may be whole, but the target cannot hold it; ``reason``: why
    it was left out, in words.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"name": self.name, "status": str(self.status), "reason": self.reason}


class Written(namedtuple("Written", "path bytes tensors")):
    """A file of the output: where it is, its size, and the number of tensors in it; 0 for an index."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Written {self.path!r}: {count_words(self.tensors, 'tensor')}, {format_size(self.bytes)}>"

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"path": self.path, "bytes": self.bytes, "tensors": self.tensors}


class Report:
    """What a conversion did; of a dry run, what it would do."""

    def __init__(self, form: str, *, dry_run: bool) -> None:
        self.form = form
        """``safetensors``, ``npz`` or ``gguf``."""
        self.dry_run = dry_run
        """Whether nothing was written because that was asked for."""
        self.files: list[Written] = []
        """The files, in order; of a set, the index comes last."""
        self.tensors = 0
        """Number of tensors in them."""
        self.tensor_bytes = 0
        """Bytes of these tensors."""
        self.left_out: list[LeftOut] = []
        """Tensors that are not in them."""
        self.document_reason: str | None = None
        """Why what the source holds beside its tensors is not sound, so that more may be missing; None: it is."""
        self.overflowed: dict[str, int] = {}
        """By tensor, how many finite numbers are too large for the new type, and became infinite or NaN."""
        self.shared_copies = 0
        """Number of tensors that share their bytes with another one in the source, and have a copy of their own now."""
        self.shared_bytes = 0
        """Bytes of these copies."""
        self.aliases: dict[str, str] = {}
        """Names that were not written since another tensor has the same bytes, and the name of that one."""
        self.unused_renames: list[str] = []
        """Rules for names that were for none of the tensors."""
        self.notes: list[str] = []
        """What else there is to know, in words."""
        self.resumed_bytes = 0
        """Bytes of tensors that an earlier run, which this one continued, had written."""

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def lost(self) -> list[LeftOut]:
        """The tensors that are not whole: what the target cannot hold does not count."""
        return [entry for entry in self.left_out if entry.status is not Status.UNSUPPORTED]

    @property
    def is_whole(self) -> bool:
        """Whether the source was sound, as far as tensors were chosen."""
        return not self.lost and self.document_reason is None

    def refusal(self, reason: str) -> NotWholeError:
        """Return the error that nothing was written, which has name, status and reason of each tensor lost."""
        return NotWholeError(reason, lost=tuple((one.name, str(one.status), one.reason) for one in self.lost))

    def __repr__(self) -> str:
        done = "would be written" if self.dry_run else "written"
        left = f", {len(self.left_out):,} left out" if self.left_out else ""
        return f"<Report: {count_words(self.tensors, 'tensor')} {done} as {self.form}{left}>"

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data, for JSON."""
        plain = {"files": [file.to_dict() for file in self.files], "left_out": [one.to_dict() for one in self.left_out]}
        return {"to": self.form, **{name: plain.get(name, getattr(self, name)) for name in _TOLD.split()}}


def refuse_damage(report: Report) -> None:
    """Raise `NotWholeError` if not everything that was chosen is sound."""
    if report.is_whole:
        return
    lost = report.lost
    reasons = [] if report.document_reason is None else [report.document_reason]
    if lost:
        names = few((entry.name for entry in lost), 3, len(lost))
        reasons.append(f"{count_words(len(lost), 'tensor')} {are(len(lost))} not whole ({names})")
    raise report.refusal(f"{'; '.join(reasons)}: nothing was written; {spoken('--skip-damaged')} writes what is whole")
