"""Find tensors in files by name, type, shape, size, status and content; what is there twice, and what no tensor uses.

All conditions must hold. --duplicates and --unused look at whole files: tensors with the same content in one or several
files, and how many bytes that wastes; stretches of files that no tensor lies in. Only what conditions on content need
is read. Exit code 1 if nothing was found, 4 if a file is not whole: what is not whole has no content to look for.
"""

from __future__ import annotations

from pparse.cli.common import DIFFERENT, OK, OR_PATTERNS, USAGE, each_file, exit_code_of, worst
from pparse.cli.files import split_files
from pparse.cli.model import OpenedModel, code_of
from pparse.cli.order import COLUMNS, UNSORTED, Held, in_order, tell_rest, tensor_weight
from pparse.cli.selection import Selection
from pparse.display.text import safe
from pparse.errors import DataError, OptionError, PparseError
from pparse.findings import BROKEN
from pparse.limits import MemoryBudget, count_words, format_size
from pparse.measuring.content import shape_word, type_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.finding import Group
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

EXAMPLES: Final = """examples:
  pparse find models/*.safetensors --dtype float32 --min-size 100MB
  pparse find model.safetensors --nan
  pparse find model.pt --same-as other.safetensors::wte.weight
  pparse find --duplicates a.safetensors b.safetensors
  pparse find --unused model.gguf
"""

# So many stretches of a file that no tensor uses are told, and tensors of a group of duplicates.
_MOST: Final = 10


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files(OR_PATTERNS)
    parser.add("--nan", "only tensors with values that are NaN or infinite")
    parser.add("--zero", "only tensors whose values are all zero")
    parser.add("--suspect", "only tensors with stretches that do not look like the rest: noise, text, zeros")
    parser.add("--unwritten", "only tensors in holes of a file: never written")
    parser.add("--same-as FILE::NAME", "only tensors with the same content as this one", dest="same_as")
    parser.add_one_of(
        duplicates="tensors with the same content, in all files, and what they waste",
        unused="stretches of files that no tensor uses: why is this file so large",
    )
    parser.add("-l --long", "in a terminal, nothing shortened")
    parser.add("-q --quiet", "names only")
    parser.add_json(lines="what was found")
    parser.add_filters()
    parser.add_order(*COLUMNS, default="that of the file")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.files, others = split_files(options.files)
    options.matches = Selection(options.patterns, others, options)
    options.found = 0
    if (options.duplicates or options.unused) and (options.sort or options.reverse or options.first):
        raise OptionError("--sort, --reverse and --first are of single tensors, not of --duplicates or --unused")
    options.wanted = _Asked(options, out)
    if options.duplicates:
        code = _duplicates(options, out)
    elif options.unused:
        code = each_file(options, out, _unused)
    else:
        options.headings = 0
        code = each_file(options, out, _find, apart=False)
        if options.several and not (options.quiet or options.json or options.jsonl):
            told = f"{count_words(options.found, 'tensor')} found, in {count_words(len(options.files), 'file')}"
            out.say(f"\n{told}" if options.headings else told)
    if options.matches.complain(out):
        return USAGE
    return worst({code, OK if options.found else DIFFERENT})


class _Asked:
    """What the options ask of a tensor."""

    def __init__(self, options: Any, out: Output) -> None:
        self._options = options
        self.unseen = 0
        """How many tensors could not be read."""
        self._content: tuple[str, str, str] | None = None
        if options.same_as is not None:
            self._content = self._content_of(options.same_as, out)

    def _content_of(self, place: str, out: Output) -> tuple[str, str, str]:
        from pparse.measuring.hashing import content_hash

        file, mark, name = place.rpartition("::")
        if not mark:
            raise OptionError(f"--same-as is FILE::NAME, not {place!r}")
        self._options.file = file
        with OpenedModel(self._options, out, quiet=True) as viewer:
            tensor = viewer[name]
            return type_word(tensor), shape_word(tensor), content_hash(tensor)

    def why(self, viewer: Viewer, tensor: Tensor) -> str | None:
        """Return what was found about a tensor, perhaps nothing worth a word; None if it is not asked for."""
        options = self._options
        if not options.matches.takes(viewer, tensor) or (options.unwritten and not tensor.unwritten_nbytes):
            return None
        words = [f"{tensor.unwritten_nbytes:,} bytes never written"] if tensor.unwritten_nbytes else []
        words += [tensor.status.value] if not tensor.is_complete else []
        try:
            told = self._of_content(tensor)
        except DataError:
            self.unseen += 1
            return None  # what is not whole has no content to look for
        return None if told is None else ", ".join([*words, *told])

    def _of_content(self, tensor: Tensor) -> list[str] | None:
        options = self._options
        if self._content is not None:
            from pparse.measuring.hashing import content_hash

            if self._content[:2] != (type_word(tensor), shape_word(tensor)):
                return None
            return ["the same content"] if content_hash(tensor) == self._content[2] else None
        if not (options.nan or options.zero or options.suspect):
            return []
        from pparse.measuring.statistics import statistics_of
        from pparse.measuring.suspicion import in_words

        told, suspect = statistics_of(tensor)
        if (options.nan and not told.nan + told.infinite) or (options.zero and told.zeros < max(1, told.count)):
            return None
        if options.suspect:
            return [in_words(suspect)] if suspect else None
        words = [f"{told.nan:,} NaN"] if told.nan else []
        words += [f"{told.infinite:,} infinite"] if told.infinite else []
        return words or ["all zero"]


class _Hits:
    """Tensors of a file that are asked for, each with what was found about it."""

    def __init__(self, viewer: Viewer, options: Any) -> None:
        self._viewer, self._wanted = viewer, options.wanted
        self.count = self.total = 0
        self.is_done = self.is_broken = False

    def __iter__(self) -> Iterator[tuple[Tensor, str]]:
        for tensor in self._viewer.tensors():
            why = self._wanted.why(self._viewer, tensor)
            if why is not None:
                self.count, self.total = self.count + 1, self.total + tensor.stored_nbytes
                self.is_broken |= tensor.status in BROKEN
                yield tensor, why
        self.is_done = True

    def in_order(self, options: Any, out: Output) -> Iterator[tuple[Tensor, str]]:
        """Yield them as they are to be shown."""
        budget, least = self._viewer.extraction.session.budget, self._viewer.row_bytes
        held = Held(budget, lambda row: tensor_weight(row[0], least), asked=True)
        how = options.sort or UNSORTED
        return in_order(self, how, held, out, first=options.first, reverse=options.reverse, **COLUMNS)


def _head(options: Any, out: Output) -> None:
    """Write which file the lines that follow are of, if there are several."""
    if options.several:
        name = out.paint(f"{safe(options.file)}:", "bold")
        out.line(f"\n{name}" if options.headings else name)
        options.headings += 1


def _find(options: Any, out: Output) -> int:
    from pparse.cli.output import JsonRows, Table

    with OpenedModel(options, out) as viewer:
        as_json = options.json or options.jsonl
        rows = JsonRows(out, options, {}, "tensors") if as_json else None
        table = Table(out, ("NAME", "DTYPE", "SHAPE", "SIZE", "WHAT"), "<<<><", full=options.long)
        found, unseen, has_head = _Hits(viewer, options), options.wanted.unseen, False
        for tensor, why in found.in_order(options, out):
            dtype = type_word(tensor)
            if rows is not None:
                shape = list(tensor.shape) if tensor.is_shape_known else None
                told: dict[str, object] = {"name": tensor.name, "dtype": dtype, "shape": shape}
                rows.add({**told, "nbytes": tensor.stored_nbytes, "status": tensor.status.value, "what": why})
            elif options.quiet:
                out.line(safe(tensor.name))
            else:
                if not has_head:
                    _head(options, out)
                has_head = True
                table.row(safe(tensor.name), safe(dtype), tensor.shape_text, format_size(tensor.listed_nbytes), why)
        options.found += found.count
        options.matches.was_ended |= not found.is_done
        if rows is not None and options.json:
            rows.end({"count": found.count, "nbytes": found.total})
        unseen = options.wanted.unseen - unseen
        if rows is None and not options.quiet and (found.count or unseen or not options.several):
            if found.count:
                table.close()
            elif not has_head:
                _head(options, out)
            lost = f"; {count_words(unseen, 'tensor')} could not be looked at" if unseen else ""
            out.say(f"{count_words(found.count, 'tensor')} found, {format_size(found.total)}{lost}")
            tell_rest(options.first, found.count, out, is_done=found.is_done)
        return code_of(viewer, options, out, None if found.is_done else found.is_broken)


def _duplicates(options: Any, out: Output) -> int:
    from pparse.cli.output import JsonRows
    from pparse.measuring.finding import Duplicates

    if "-" in options.files:
        raise OptionError("--duplicates reads files twice: save standard input to a file first")
    budget = MemoryBudget(options.budget)
    found = Duplicates(budget)
    codes = {OK}
    options.several = False

    def opened(file: str) -> OpenedModel:
        options.file = file
        return OpenedModel(options, out, quiet=True)

    for file in options.files:
        try:
            with opened(file) as viewer:
                for tensor in viewer.tensors():
                    if options.wanted.why(viewer, tensor) is not None:
                        found.add(file, tensor)
                codes.add(code_of(viewer, options, out))
        except PparseError as error:
            out.error(str(error) if file in str(error) else f"{file}: {error}")
            codes.add(exit_code_of(error))
    options.file = options.files[0]
    as_json = options.json or options.jsonl
    rows = JsonRows(out, options, {"files": options.files}, "groups") if as_json else None
    wasted = count = 0
    for group in found.groups(opened):
        count, wasted = count + 1, wasted + group.wasted
        if rows is not None:
            told = [{"file": one.file, "name": one.name} for one in group.tensors]
            rows.add({"dtype": group.dtype, "shape": group.shape, "wasted": group.wasted, "tensors": told})
        else:
            _tell(group, out)
    options.found += count
    if rows is not None and options.json:
        rows.end({"wasted": wasted})
    elif rows is None:
        out.say(f"{count_words(count, 'group')} of tensors with the same content, {format_size(wasted)} wasted")
    return worst(codes)


def _tell(group: Group, out: Output) -> None:
    size = format_size(group.tensors[0].nbytes)
    times = f"{len(group.tensors):,} × {group.dtype} {group.shape.replace(',', '×') or 'scalar'}, {size} each"
    out.say(f"{times}: {f'{format_size(group.wasted)} wasted' if group.wasted else 'they share their bytes'}")
    for one in group.tensors[:_MOST]:
        out.say(f"  {safe(one.file)}  {safe(one.name)}")
    if len(group.tensors) > _MOST:
        out.say(f"  … and {len(group.tensors) - _MOST:,} more")


def _unused(options: Any, out: Output) -> int:
    from pparse.cli.output import JsonRows
    from pparse.measuring.finding import unused

    with OpenedModel(options, out) as viewer:
        as_json = options.json or options.jsonl
        rows = JsonRows(out, options, {}, "unused") if as_json else None
        lost = 0
        for path, whole, stretches in unused(viewer):
            total = sum(end - start for start, end in stretches)
            lost += total
            options.found += bool(total)
            largest = sorted(stretches, key=lambda stretch: stretch[0] - stretch[1])[:_MOST]
            if rows is not None:
                told = [{"offset": start, "length": end - start} for start, end in stretches]
                rows.add({"path": path, "size": whole, "unused": total, "stretches": told})
                continue
            share = f"{100 * total / whole:.3g}%" if whole else "0%"
            out.say(f"{safe(path)}: {format_size(whole)}, of which no tensor uses {format_size(total)} ({share})")
            for start, end in largest:
                out.say(f"  @{start:#x} to {end:#x}  {format_size(end - start)}")
            if len(stretches) > _MOST:
                out.say(f"  … and {len(stretches) - _MOST:,} smaller ones")
        if rows is not None and options.json:
            rows.end({"unused_bytes": lost})
        return code_of(viewer, options, out)
