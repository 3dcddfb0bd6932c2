"""Writes the output of a conversion, continues one that was stopped, and gives files their names when all are whole."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import cycle
from zlib import crc32

from pparse import errors
from pparse.conversion.forms import PIECE, cast_target
from pparse.conversion.plan import FORMS, Plan, form_of
from pparse.conversion.report import LeftOut, refuse_damage
from pparse.conversion.workspace import ConversionFolder, OtherRunError, Place
from pparse.document.opening import refuse_unknown
from pparse.findings import Status
from pparse.limits import MIB, count_words, parse_size
from pparse.recovery.journal import was_stopped
from pparse.writers.files import refuse_existing, refuse_full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final, NoReturn

    from pparse.conversion.forms import Item
    from pparse.conversion.report import Report
    from pparse.document.opening import Source
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# After so many bytes it is made sure that they are on the disk, and the journal says so.
CHECKPOINT: Final = 256 * MIB
# How often tensors are left out, and the rest begun again, if damage only shows while reading.
_TRIES: Final = 4


class _ContradictedError(Exception):
    """A tensor that was copied has another checksum than its source says."""


class _SpoiledError(Exception):
    """Tensors that were believed to be whole turned out not to be."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self.numbers = set(numbers)


class Rename:
    """``old=new``: a name that begins with ``old`` begins with ``new`` instead.

    With one ``*`` on both sides, ``old`` is compared with the whole name, and ``new`` gets what its star stood for.
    Raises `OptionError` for a rule with stars on one side only, or several.
    """

    __slots__ = ("_search", "new", "old")

    def __init__(self, rule: str) -> None:
        self.old, mark, self.new = rule.partition("=")
        if not mark:
            raise errors.OptionError(f"expected OLD=NEW, not {rule!r}")
        stars = self.old.count("*"), self.new.count("*")
        if stars not in ((0, 0), (1, 1)):
            raise errors.OptionError(
                f"{rule}: one star on both sides, or none (a prefix); found {stars[0]} and {stars[1]}"
            )
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
        self.dtype = None if dtype is None else cast_target(dtype, written if written in FORMS else None)
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
            raise errors.OptionError(f"a shard must have room for a byte at least, not for {max_shard_size}")

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


def convert(
    source: Source | Viewer,
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    max_shard_size: int | str | None = None,
    dtype: object = None,
    dequantize: bool = False,
    rename: Iterable[str] = (),
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    skip_damaged: bool = False,
    skip_unsupported: bool = False,
    dedupe: bool = False,
    force: bool = False,
    dry_run: bool = False,
    **how: Any,
) -> Report:
    """Write the tensors of ``source`` to a new file ``target``: .safetensors, .npz or .gguf, as its extension or ``to``
    says.

    ``max_shard_size`` (bytes, or ``"5GB"``) divides them among files ``NAME-00001-of-00003.safetensors``, with an
    index. ``dtype``, by any name that `DType.named` knows, casts floating tensors, rounding to the nearest, ties to
    even. ``dequantize`` multiplies codes by the scales that the source has for them, and leaves these out; without it,
    both are kept. ``rename`` are rules ``old=new`` for the beginnings of names, or with a ``*`` for whole names; the
    first that fits counts. ``include`` and ``exclude`` are patterns of names or keys in the source. ``skip_damaged``
    and ``skip_unsupported`` leave out tensors that are not whole, or that the target cannot hold, instead of writing
    nothing. ``dedupe`` writes tensors with the same bytes once. ``force`` replaces existing files; ``dry_run`` writes
    nothing. A `Viewer` is not closed; of any other source, ``how`` are keyword arguments of `pparse.view`.

    No file has its name before all are whole. A call that was interrupted is continued by the same call.

    Raises `NotWholeError`, `UnsupportedError`, `OptionError`, `SourceError` if the disk refuses, `LimitError`.
    """
    from pparse.tensors.viewer import Viewer, view

    options = Options(
        target=os.fspath(target),
        to=to,
        max_shard_size=None if max_shard_size is None else parse_size(max_shard_size),
        dtype=dtype,
        dequantize=dequantize,
        rename=rename,
        chosen=_choice(list(include), list(exclude)),
        skip_damaged=skip_damaged,
        skip_unsupported=skip_unsupported,
        dedupe=dedupe,
        force=force,
    )
    refuse_unknown("convert", how)
    if isinstance(source, Viewer):
        return convert_view(source, target, options, dry_run=dry_run)
    with view(source, **how) as viewer:
        return convert_view(viewer, target, options, dry_run=dry_run)


def _choice(include: list[str], exclude: list[str]) -> Callable[[Viewer, Tensor], bool] | None:
    from pparse.paths import glob

    if not include and not exclude:
        return None
    wanted, unwanted = [glob(pattern) for pattern in include], [glob(pattern) for pattern in exclude]

    def chosen(viewer: Viewer, tensor: Tensor) -> bool:
        names = (tensor.name, *viewer.other_names(tensor))
        found = not wanted or any(fits(name) for fits in wanted for name in names)
        return found and not any(fits(name) for fits in unwanted for name in names)

    return chosen


def convert_view(
    viewer: Viewer,
    target: str | os.PathLike[str],
    options: Options,
    *,
    dry_run: bool = False,
    look: Callable[[Plan], object] | None = None,
) -> Report:
    """Do what `convert` does, for a viewer. ``look`` is called with the plan before anything is written."""
    spoiled: set[int] = set()
    resolved = dry_run  # else checksums are compared while tensors are copied, where that is possible
    for _ in range(_TRIES):
        plan = Plan(viewer, os.fspath(target), options, dry_run=dry_run, spoiled=spoiled, resolved=resolved)
        try:
            if look is not None:
                look(plan)
            _refuse_own_sources(plan)
            if dry_run:
                refuse_existing(plan.paths, force=options.force)
                return plan.report
            return _Run(plan).go()
        except (_ContradictedError, OtherRunError):
            # All is read first, so that all damage is known: what is left out is left out at once. An unfinished run
            # may be one that knew it.
            resolved = True
        except _SpoiledError as error:
            spoiled |= error.numbers
        finally:
            plan.charge.release()
    raise errors.NotWholeError(f"damage was found {_TRIES} times while tensors were read, and nothing was written")


def _refuse_own_sources(plan: Plan) -> None:
    """Raise `OptionError` if the output would replace what is read."""
    session = plan.viewer.extraction.session
    sources = {id(data): data for data in (*plan.sources(), *session.sources())}
    for path in plan.paths:
        if any(data.same_source(path) for data in sources.values()):
            raise errors.OptionError(f"{path} is a file of the source, which is being read; name another output")


class _Run:
    """One run: from an empty folder, or from where an earlier run was stopped, to files with their names."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._session = plan.viewer.extraction.session
        self._items = plan.work()
        self._work = ConversionFolder(
            plan.target, self._description(), self._session.budget, keep_other=plan.is_unresolved
        )
        if self._work.started_over:
            plan.report.notes.append(
                "an unfinished conversion to this name, with other options or of another source, was given up"
            )
        self._pending: list[tuple[int, int, int, int]] = []  # lines for the journal, once the bytes are on the disk
        self._unsure = 0  # bytes written since then
        self._written = 0

    def _description(self) -> dict[str, object] | None:
        """Return everything that changes the output, as plain data; None if the source has nothing to be told by."""
        import pparse

        stamp = self._plan.source_stamp()
        if stamp is None:
            return None
        return {
            "command": "convert",
            "of": self._plan.viewer.extraction.name,
            "source": stamp,
            "output": self._plan.fingerprint(),
            "version": pparse.__version__,
        }

    def go(self) -> Report:
        """Write everything; return the report."""
        keep = False
        plan, work = self._plan, self._work
        try:
            paths = plan.paths
            taken = [path for number, path in enumerate(paths) if not work.was_published(number, path)]
            keep = work.place.begun
            refuse_existing(taken, force=plan.options.force)
            keep = False
            if not work.place.moving:
                self._write()
                self._verify_source()
            keep = True
            work.publish(paths, force=plan.options.force)
            keep = False
        except BaseException as error:
            keep = keep or (work.place.begun and (was_stopped(error) or isinstance(error, errors.SourceError)))
            raise
        finally:
            work.close(keep=keep)
        self._tell_overflow()
        return plan.report

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        plan, work = self._plan, self._work
        if not (work.place.begun and all(work.has_part(at, file.size) for at, file in enumerate(plan.files))):
            work.place = Place()
        place = work.place
        self._written = sum(item.nbytes for _, item in self._items[: place.number]) + place.done
        refuse_full(plan.target, plan.bytes - self._written)
        if not place.begun:
            self._begin()
        for number, (_, item) in enumerate(self._items[: place.number + 1]):
            item.crc, item.overflowed = place.known.get(number, (item.crc, 0))
            if number < place.number:
                self._compare(item)
        done = place.done
        plan.report.resumed_bytes = self._written
        budget = self._session.budget
        size = min(PIECE, max(4096, budget.limit // 8))
        with budget.charge(3 * size, "the buffers of the conversion"), self._session.telling():
            buffers = size, cycle((memoryview(bytearray(size)), memoryview(bytearray(size))))
            for number in range(place.number, len(self._items)):
                self._write_item(number, done, buffers)
                done = 0
        for number, file in enumerate(plan.files):
            work.write(number, file.end, file.form.tail(file.items))
        if plan.index_path is not None:
            work.write(len(plan.files), 0, plan.index(), plan.report.files[-1].bytes)
        self._checkpoint(wait=True)

    def _begin(self) -> None:
        """Make all files, with what comes before their items."""
        for number, file in enumerate(self._plan.files):
            self._work.write(number, 0, file.head(), file.size)
        self._work.note([(0, 0, 0, 0)], wait=True)
        self._work.place.begun = True

    def _write_item(self, number: int, done: int, buffers: tuple[int, Iterator[memoryview]]) -> None:
        """Write an item from byte ``done`` on."""
        file, item = self._items[number]
        sums = self._plan.form.has_checksums or item.wanted_crc is not None
        state = (number, done, item.crc, item.overflowed)  # replaced at once: an interruption comes at any moment
        try:
            for piece in item.pieces(done, *buffers):
                self._work.write_meanwhile(file, item.at + state[1], piece)
                state = (number, state[1] + len(piece), crc32(piece, state[2]) if sums else 0, item.overflowed)
                self._count(len(piece), state)
        except (errors.TensorError, errors.GapError, errors.MalformedError, errors.EndOfDataError) as error:
            self._spoil([(item, Status.DAMAGED, str(error))])
        except BaseException as error:
            if was_stopped(error):
                self._pending.append(state)
                with suppress(errors.PparseError, OSError, ValueError):  # the journal then ends earlier
                    self._checkpoint(wait=True)
            raise
        if state[1] != item.nbytes:
            self._spoil([(item, Status.DAMAGED, f"it has {state[1]:,} bytes, and not {item.nbytes:,}")])
        item.crc = state[2]
        self._compare(item)
        lead = self._plan.form.lead(item)
        if lead:
            self._work.write(file, item.at - len(lead), (lead,))
        self._pending.append(state)

    def _compare(self, item: Item) -> None:
        """Begin again if an item that was copied is not what a checksum of the source says."""
        if self._plan.contradicts(item):
            raise _ContradictedError

    def _count(self, written: int, state: tuple[int, int, int, int]) -> None:
        """Count a piece that was written; at times, make sure that all of them are on the disk."""
        self._written += written
        self._unsure += written
        if self._session.progress is not None:
            self._session.progress(self._written, self._plan.bytes, "writing")
        self._session.check_cancelled()
        if self._unsure >= CHECKPOINT:
            self._pending.append(state)
            self._checkpoint()

    def _checkpoint(self, *, wait: bool = False) -> None:
        self._work.note(self._pending, wait=wait)
        self._pending = []
        self._unsure = 0

    # -- the end -------------------------------------------------------------------------------------------------------

    def _verify_source(self) -> None:
        """Find out whether all that was read is right: streams are read to their ends, where their checksums are."""
        plan = self._plan
        for data in plan.sources():
            if not data.is_plain:
                data.verify()
            data.check_unchanged()
        plan.viewer.extraction.parsed.verify()  # the checksum of the member that it is
        flaws = plan.flaws()
        if flaws:
            self._spoil(flaws)
        plan.judge_document()
        if not plan.options.skip_damaged:
            refuse_damage(plan.report)

    def _spoil(self, flaws: list[tuple[Item, Status, str]]) -> NoReturn:
        """Begin again without these items; or refuse to write anything, if they must not be left out."""
        plan = self._plan
        if plan.options.skip_damaged:
            raise _SpoiledError(item.number for item, _, _ in flaws)
        plan.report.left_out += [LeftOut(item.tensor.name, status, reason) for item, status, reason in flaws]
        refuse_damage(plan.report)
        raise errors.EngineError("a tensor that is not whole was not refused")

    def _tell_overflow(self) -> None:
        """Report numbers that were too large for their new type."""
        report = self._plan.report
        report.overflowed = {item.name: item.overflowed for _, item in self._items if item.overflowed}
        if report.overflowed:
            count, target = sum(report.overflowed.values()), self._plan.options.dtype
            report.notes.append(
                f"{count_words(count, 'number')} in {count_words(len(report.overflowed), 'tensor')} "
                f"{'is' if count == 1 else 'are'} too large for {target}, and written as "
                f"{'infinity' if _has_infinity(target) else 'NaN'}"
            )


def _has_infinity(dtype: DType | None) -> bool:
    return dtype is None or not dtype.name.startswith("float8") or dtype.name == "float8_e5m2"
