"""List the tensors of a model, or the members of any other document.

A truncated or damaged file is listed as far as it can be read: every tensor with its status, then where the file ends
and where to resume the download.
"""

from __future__ import annotations

import re
from operator import methodcaller
from sys import getsizeof

from pparse.cli.common import BUG, USAGE, Matcher, each_file, exit_code_for, open_file, split_files
from pparse.cli.output import JsonRows, Table, parameters_words, report_cut, report_document_cut, report_findings
from pparse.display.text import safe, shorten
from pparse.errors import LimitError
from pparse.findings import BROKEN, COMPLETE, Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words, format_size
from pparse.tensors.status import COMPLETE_WORDS, status_words
from pparse.tensors.viewer import findings_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.limits import Charge, MemoryBudget
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.tree.visit import Member

    Row = tuple[Tensor, Status, bool | None]

EXAMPLES: Final = """examples:
  pparse ls model.safetensors
  pparse ls model.safetensors '*.attn.*' --sort size
  pparse ls model-*.safetensors -p '*.attn.*'
  pparse ls model.safetensors.index.json --group
  pparse ls records.riegeli '64/*'
  pparse ls folder/ -R
  pparse ls backup.tar.gz -R
"""

# Up to this number rows are held and sorted; more are streamed in file order.
SORT_UP_TO: Final = 20_000
# The status of rows that need not show it, if all have it.
_TRUNCATED: Final = Status.TRUNCATED
_WHOLE: Final = frozenset(COMPLETE_WORDS.values())
# The most letters of a reason beside a status.
_REASON: Final = 160
# Memory of a group without its name; groups are charged in steps.
_GROUP: Final = 600
_STEP: Final = 64 << 10
_MOST_KINDS: Final = 4096


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files("; after the first, an argument that is not a file is a PATTERN")
    pattern = "only names, or keys of variables, that match this glob; repeatable"
    parser.add("-p --pattern PATTERN ...", pattern, dest="patterns")
    parser.add("--regex", "PATTERN is a regular expression, matched anywhere")
    order = f"order of rows (by name, numbers by value; unsorted above {SORT_UP_TO:,} rows or a quarter of --budget)"
    parser.add("--sort", order, choices=("name", "size", "offset", "none"))
    parser.add("--group", "collapse names that differ only in numbers: h.{0..5}.w, which is a pattern, too")
    parser.add("-R --recursive", "also list archives inside an archive; of a folder, the models in all folders below")
    long = (
        "mode, time, method and compressed size of members; of a checkpoint of TensorFlow, keys of variables; "
        "in a terminal, nothing shortened or left out"
    )
    parser.add("-l --long", long)
    parser.add("-q --quiet", "names only")
    parser.add("--bytes", "sizes in bytes")
    parser.add_strict()
    parser.add_json(lines="tensors or members")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.files, others = split_files(options.files)
    options.matches = Matcher(options.patterns, others, regex=options.regex)
    code = each_file(options, out, _list, heading=True)
    return USAGE if code != BUG and options.matches.complain(out) else code


def _list(options: Any, out: Output) -> int:
    with open_file(options, out) as document:
        from pparse.document.registry import viewer_for

        if document.is_folder:
            from pparse.cli.inventory import is_inventory, list_folder

            if is_inventory(document, options):
                return list_folder(document, options, out)  # type: ignore[arg-type]
        viewer = viewer_for(document)
        if viewer is None:
            return _list_members(document, options, out)
        code = _list_tensors(viewer, options, out)
        if document.is_folder and not (options.json or options.jsonl or options.quiet):
            from pparse.cli.inventory import taken

            for name, words in taken(document, configs=False):  # type: ignore[arg-type]
                out.say(f"{name}: {words}")
        return code


class _Listing:
    """Streams tensors, each with its status and what was verified of it: counts all, and passes on those that match."""

    def __init__(self, viewer: Any, matches: Matcher) -> None:
        self.viewer = viewer
        self.extent = viewer.new_extent()
        self.streamed = not viewer.counts_itself
        self.matches = matches
        self.shown = 0
        self.hit: Tensor | None = None

    def __iter__(self) -> Iterator[Row]:
        matches, viewer = self.matches, self.viewer
        count = self.extent.add if self.streamed else methodcaller("as_listed")
        takes_all = matches.takes_all
        for tensor in viewer.tensors():
            status, verified = count(tensor)
            if status is _TRUNCATED:
                self.hit = self.hit or tensor
            if takes_all or matches.takes(viewer, tensor):
                self.shown += 1
                yield tensor, status, verified

    def close(self) -> Any:
        """Return the extent of the whole document."""
        if self.streamed:
            self.viewer.close_extent(self.extent)
        return self.viewer.extent()


def _list_tensors(viewer: Viewer, options: Any, out: Output) -> int:
    listing = _Listing(viewer, options.matches)
    how = options.sort
    if how is None and viewer.has_more_than(SORT_UP_TO):
        how = "none"
    budget = viewer.extraction.session.budget
    held = Held(budget, lambda row: _tensor_weight(row[0], viewer.row_bytes), asked=options.sort is not None)
    rows = in_order(
        listing,
        how,
        held,
        out,
        name=lambda row: row[0].name,
        size=lambda row: row[0].listed_nbytes,
        offset=lambda row: (row[0].spans[0].path, row[0].spans[0].offset) if row[0].spans else ("", 1 << 63),
        rank=lambda row: viewer.rank(row[0]),
    )
    if how != "none":  # what was known of each when it was read is out of date
        rows = ((tensor, *tensor.as_listed()) for tensor, _, _ in rows)
    size: Callable[[int], str] = str if options.bytes else format_size
    usual = ""
    if options.json or options.jsonl:
        shown = JsonRows(out, options, {"format": viewer.format}, "tensors")
        for tensor, _, _ in rows:
            shown.add(tensor_to_dict(tensor))
    elif options.quiet:
        for tensor, _, _ in rows:
            out.line(safe(tensor.name))
    elif options.group:
        usual = _show_groups(rows, size, budget.charge(0, "groups of names"), options, out)
    else:
        usual = _show_tensors(rows, size, options, out, keys=options.long and viewer.has_keys)
    extent = listing.close()
    if options.json:
        found = [finding.to_dict() for finding in findings_of(viewer, extent)]
        shown.end({"members": [], "status": extent.status.value, "extent": extent.to_dict(), "findings": found})
    elif not (options.jsonl or options.quiet):
        _sum_up(listing, extent, size, usual, out)
    return exit_code_for(viewer.findings, damaged=not extent.is_sound, strict=options.strict)


def _show_tensors(rows: Iterable[Row], size: Callable[[int], str], options: Any, out: Output, *, keys: bool) -> str:
    """Print tensors; return the status of those that are shown without one."""
    heads = ("NAME", "DTYPE", "SHAPE", "SIZE", "STATUS", *(("KEY",) if keys else ()))
    table = Table(out, heads, "<<<><<"[: len(heads)], full=options.long, usual=_WHOLE)
    cells: dict[object, tuple[str, str, str, int]] = {}  # of types and shapes: models have few
    for tensor, known, verified in rows:
        if known is COMPLETE:
            status = COMPLETE_WORDS[verified]
            if tensor.unwritten_nbytes:
                status += ", never written"
        else:
            finding = tensor.why_listed()
            status = _words(out, known, finding.reason if finding is not None else "")
        nbytes = tensor.stored_nbytes if tensor.encoding == "raw" else tensor.listed_nbytes
        alike = tensor.alike
        same = cells.get(alike)
        if same is None or same[3] != nbytes:
            if len(cells) >= _MOST_KINDS:
                cells.clear()
            same = cells[alike] = safe(tensor.type_name), tensor.shape_text, size(nbytes), nbytes
        row: tuple[str, ...] = safe(tensor.name), same[0], same[1], same[2], status
        if keys:
            row += (safe(tensor.key or tensor.name),)
        table.row(*row)
    table.close()
    return table.usual


def _words(out: Output, status: Status, reason: str = "", verified: bool | None = None) -> str:
    """Return a status as a row shows it: in colour, and with the reason, if it is not complete."""
    if status is Status.COMPLETE:
        return COMPLETE_WORDS[verified]
    return out.status(status) + (f": {shorten(safe(reason), _REASON)}" if reason else "")


def _tell_usual(usual: str, summary: str, out: Output) -> None:
    """Print the status of rows that are shown without one, if the ``summary`` does not say the same."""
    if usual and usual != summary:
        out.say(f"listed without a status: {usual}")


def _sum_up(listing: _Listing, extent: Extent, size: Callable[[int], str], usual: str, out: Output) -> None:
    """Print what is known of all tensors, listed or not, and what is wrong with them."""
    _tell_usual(usual, status_words(extent.status, extent.all_verified), out)
    viewer = listing.viewer
    if listing.shown != extent.count:
        out.say(f"{listing.shown:,} of {count_words(extent.count, 'tensor')} match")
    out.say(
        f"{count_words(extent.count, 'tensor')}, {size(extent.listed_bytes)}"
        + (f", {parameters_words(extent.parameters)}: " if extent.counts_parameters else ": ")
        + out.status(extent.status, extent.all_verified)
    )
    hit = listing.hit if listing.hit and listing.hit.name == extent.first_hit else None
    report_cut(out, extent, viewer.extraction, hit)
    report_findings(out, viewer, extent)


def _show_groups(rows: Iterable[Row], size: Callable[[int], str], charge: Charge, options: Any, out: Output) -> str:
    """Print names that differ only in numbers; return the status of those that are shown without one."""
    groups: dict[tuple[str, str, str, Status], list[Any]] = {}
    taken = 0
    for tensor, status, verified in rows:
        numbers = [int(number) for number in re.findall(r"\d+", tensor.name) if len(number) < 19]
        key = (re.sub(r"\d+", "\0", tensor.name), tensor.type_name, tensor.shape_text, status)
        group = groups.get(key)
        if group is None:
            taken += _GROUP + getsizeof(key[0])
            if taken > charge.amount:
                charge.resize(taken + _STEP)
            groups[key] = [1, tensor.listed_nbytes, [(number, number) for number in numbers], verified]
        else:
            group[0] += 1
            group[1] += tensor.listed_nbytes
            group[2] = [(min(low, n), max(high, n)) for (low, high), n in zip(group[2], numbers, strict=False)]
            group[3] = group[3] if group[3] is verified else None
    heads = ("NAMES", "COUNT", "DTYPE", "SHAPE", "SIZE", "STATUS")
    table = Table(out, heads, "<><<><", full=options.long, usual=_WHOLE)
    for (name, dtype, shape, status), (count, total, ranges, verified) in groups.items():
        words = _words(out, status, verified=verified)
        table.row(safe(_fill_in(name, ranges)), str(count), safe(dtype), shape, size(total), words)
    table.close()
    charge.release()
    return table.usual


def _fill_in(name: str, ranges: list[tuple[int, int]]) -> str:
    """Put the ranges of numbers back into a name."""
    words = iter([str(low) if low == high else f"{{{low}..{high}}}" for low, high in ranges])
    return re.sub("\0", lambda _: next(words, "N"), name)


def tensor_to_dict(tensor: Tensor) -> dict[str, object]:
    """Return a tensor as plain data, for JSON."""
    found: dict[str, object] = {
        "name": tensor.name,
        "dtype": tensor.dtype.name if tensor.dtype is not None else None,
        "stored_dtype": tensor.stored_dtype or None,
        "shape": list(tensor.shape) if tensor.is_shape_known else None,
        "nbytes": tensor.nbytes,
        "status": tensor.status.value,
        "verified": tensor.verified,
        "spans": [span.to_dict() for span in tensor.spans],
    }
    if tensor.key is not None:
        found["key"] = tensor.key
    finding = tensor.finding
    if finding is not None:
        found["finding"] = finding.to_dict()
    return found


# -- documents without tensors ---------------------------------------------------------------------------------------


def _list_members(document: Extraction, options: Any, out: Output) -> int:
    from pparse.recovery.document_verdict import all_findings  # as models need none of it

    counted = _Counted(document, options)
    chosen = (member for member in counted if options.matches(member.name))
    held = Held(document.session.budget, member_weight, asked=True)
    how = options.sort or "none"
    rows = in_order(chosen, how, held, out, name=lambda m: m.name, size=lambda m: m.size, offset=lambda m: m.start)
    if options.json or options.jsonl:
        shown = JsonRows(out, options, {"format": document.format, "tensors": []}, "members")
        for member in rows:
            shown.add(_member_to_dict(member))
    else:
        _show_members(rows, counted, options, out)
    status = counted.status
    if options.json:
        shown.end({"status": status.value, "findings": [item.to_dict() for item in all_findings(document, status)]})
    damaged = counted.damaged or status in BROKEN
    return exit_code_for(document.findings, damaged=damaged, strict=options.strict)


def _show_members(rows: Iterable[Member], counted: _Counted, options: Any, out: Output) -> None:
    size: Callable[[int], str] = str if options.bytes else format_size
    shown = 0
    long = ("MODE", "MODIFIED (UTC)", "METHOD", "PACKED") if options.long else ()
    heads = ("NAME", "KIND", *long, "SIZE", "STATUS")
    table = Table(out, heads, "<<<<<>><" if long else "<<><", full=options.long, usual=_WHOLE)
    for member in rows:
        shown += 1
        if options.quiet:
            out.line(safe(member.name))
        else:
            more = _long_cells(member, size) if options.long else ()
            words = _words(out, member.status, member.reason)
            table.row(safe(member.name), member.kind, *more, size(member.size), words)
    counted.document.parsed.verify_streams(unless_indexed=True)
    if not options.quiet:
        table.close()
        if shown != counted.rows:
            out.say(f"{shown:,} of {count_words(counted.rows, 'member')} match")
        _tell_usual(table.usual, status_words(counted.status, None), out)
        _close_members(counted, size, out)


class _Counted:
    """Passes members of a document on and counts them: ``rows``, all members; ``count``, those of the main kind of the
    format, and ``whole``, the complete ones among them; ``unsupported``; ``damaged``, whether any is."""

    def __init__(self, document: Extraction, options: Any) -> None:
        self.document = document
        self.word: str = document.result.listing.member_word
        self.rows = self.count = self.whole = self.unsupported = 0
        self.damaged = False
        self._options = options

    @property
    def status(self) -> Status:
        """Status of the document, by what is known of it and of the members so far."""
        from pparse.recovery.document_verdict import document_status

        damaged = self.damaged or any(finding.is_fault for finding in self.document.findings)
        return document_status(self.document, damaged=damaged)

    def __iter__(self) -> Iterator[Member]:
        for member in _drained_members(self.document, self._options):
            self.rows += 1
            status = member.status
            if self.word in ("member", member.kind):
                self.count += 1
                self.whole += status is Status.COMPLETE
            self.unsupported += status is Status.UNSUPPORTED
            self.damaged |= status in BROKEN
            yield member


def _drained_members(document: Extraction, options: Any) -> Iterator[Member]:
    """Yield the members of a document; of a compressed stream, none before its end was reached.

    A stream may contradict its checksum at its end; the rows must say so, as the findings do. Walking an archive in it
    means decoding it. The rows are held meanwhile; if they are too many, the rest is decoded twice.
    """
    inner, rows = document.parsed, _members(document, options)
    if inner.outermost is not inner:
        held = Held(document.session.budget, member_weight)
        held.fill(rows)
        inner.verify_streams(unless_indexed=True)
        if inner.data.flawed:
            document.forget()
            held.items.clear()
            rows = _members(document, options)
        yield from held.flush()
    yield from rows


def _members(document: Extraction, options: Any) -> Iterator[Member]:
    """Yield the members of a document and, with ``-R``, of the archives in it, under paths from the outermost."""
    result = document.result
    yield from result.listing.members()
    if not options.recursive:
        return
    from pparse.containers.archive import ArchiveParser, documents_below, quoted

    for path, extraction in documents_below(result):
        parser = extraction.result.parser
        if isinstance(parser, ArchiveParser):
            extraction.parsed.verify_streams(unless_indexed=True)
            for member in parser.members():
                member.name = f"{path}::{quoted(member.name)}"
                yield member
            document.findings.extend(extraction.findings)


def _long_cells(member: Member, size: Callable[[int], str]) -> tuple[str, str, str, str]:
    """Return mode, time, method and compressed size of an archive's member, as far as it has them."""
    import time

    note = member.note
    if note is None:
        return "-", "-", "-", "-"
    mode, mtime = note.mode, note.mtime
    try:
        when = "-" if mtime is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(mtime))
    except (OverflowError, OSError, ValueError):
        when = "?"
    return "-" if mode is None else f"{mode & 0o7777:04o}", when, note.method, size(note.compressed_size)


def _close_members(counted: _Counted, size: Callable[[int], str], out: Output) -> None:
    document, status = counted.document, counted.status
    total, kind = document.size, document.root.kind
    what = document.format if kind == document.format else f"{document.format} {kind}"
    whole = f" ({counted.whole:,} whole)" if counted.whole != counted.count else ""
    out.say(
        f"{what}, {count_words(counted.count, counted.word)}{whole}, "
        f"{size(total) if total is not None else 'unknown size'}: {out.status(status)}"
        f"{f'; {counted.unsupported:,} unsupported' if counted.unsupported else ''}"
    )
    container = document.result.container
    held = container.holds() if container is not None else None
    if held is not None:
        out.say(f"it holds {held}, whose tensors this version does not read yet")
    report_document_cut(out, document, status)
    from pparse.recovery.document_verdict import all_findings

    out.findings(all_findings(document, status))


def _member_to_dict(member: Member) -> dict[str, object]:
    """Return a member as plain data, for JSON; of an archive, with what that says of it."""
    row = {"name": member.name, "size": member.size, "status": member.status.value, "kind": member.kind}
    note = member.note
    if note is not None:
        checksum = note.checksum
        row |= {
            "packed": note.compressed_size,
            "offset": note.start,
            "method": note.method,
            "mtime": note.mtime,
            "mode": note.mode,
            "link": note.link,
            "crc32": f"{checksum[1]:08x}" if checksum and checksum[0] == "crc32" else None,
        }
    if member.reason:
        row["reason"] = member.reason
    return row


# -- sorted rows: held while they are few and small, else streamed in file order -------------------------------------

# Rows may take a quarter of the budget; three quarters if the user asked for an order.
_PARTS: Final = 4
# Memory of a member without its name and the data of its format.
_MEMBER: Final = 600

_NUMBERS: Final = lazy_pattern(r"([0-9]{1,18})")


def natural(name: str) -> list[str | int]:
    """Return a sort key that puts layer 2 before layer 10."""
    # Text and numbers alternate, so that numbers are only compared with numbers.
    parts: list[str | int] = list(_NUMBERS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def member_weight(member: Member) -> int:
    """Return about how many bytes of memory a member takes; its format may hold the raw name, too."""
    return _MEMBER + 2 * getsizeof(member.name)


def _tensor_weight(tensor: Tensor, each: int) -> int:
    """Return about how many bytes of memory a tensor takes; ``each`` is the least for its format."""
    return each + 2 * getsizeof(tensor.name) + 160 * tensor.held_spans + 32 * len(tensor.shape)


class Held:
    """Rows that are held in ``items``, charged to ``budget`` by their ``weight``, as many as its share has room for.

    At most `SORT_UP_TO` rows, unless the user ``asked`` for an order, which also allows more of the budget.
    """

    def __init__(self, budget: MemoryBudget, weight: Callable[[Any], int], *, asked: bool = False) -> None:
        self.items: list[Any] = []
        self._weight = weight
        self._asked = asked
        self._most = budget.limit // _PARTS * (_PARTS - 1 if asked else 1)
        self._taken = 0
        self._charge: Charge = budget.charge(0, "the rows that are held to be sorted")

    def fill(self, rows: Iterator[Any]) -> bool:
        """Take rows while there is room, and one more; return whether those were all."""
        for row in rows:
            self.items.append(row)
            self._taken += self._weight(row)
            if (len(self.items) > SORT_UP_TO and not self._asked) or self._taken > self._most:
                return False
            if self._taken > self._charge.amount:
                try:
                    self._charge.resize(self._taken + _STEP)
                except LimitError:
                    return False
        return True

    def flush(self) -> Iterator[Any]:
        """Yield the rows, and release their memory."""
        self.items.reverse()
        while self.items:
            yield self.items.pop()
        self._charge.release()


def in_order(
    rows: Iterable[Any], how: str | None, held: Held, out: Output, **by: Callable[[Any], Any]
) -> Iterator[Any]:
    """Return ``rows`` sorted (``how`` None: by rank and name); if they cannot be held, in file order with a note.

    ``by`` gives name, size, offset and perhaps rank of a row.
    """
    stream = iter(rows)
    if how != "none":
        name, size = by["name"], by["size"]
        rank: Callable[[Any], Any] = by.get("rank", lambda item: 0)
        key: dict[str | None, Callable[[Any], Any]] = {
            "size": lambda item: (-size(item), natural(name(item))),
            "offset": by["offset"],
            "name": lambda item: natural(name(item)),
            None: lambda item: (rank(item), natural(name(item))),
        }
        if held.fill(stream):
            held.items.sort(key=key[how])
        elif how is not None:
            out.error(
                f"note: more than {len(held.items):,} rows, too many to sort in the memory budget: they are in the "
                "order of the file; a larger --budget sorts more"
            )
        yield from held.flush()
    yield from stream
