"""List the tensors of a model, or the members of any other document.

A truncated or damaged file is listed as far as it can be read: every tensor with its status, then where the file ends
and where to resume the download.
"""

from __future__ import annotations

import re
from itertools import islice
from operator import methodcaller
from sys import getsizeof

from pparse.cli.common import OR_PATTERNS, each_file, exit_code_for, open_file
from pparse.cli.files import split_files
from pparse.cli.order import COLUMNS, SORT_UP_TO, UNSORTED, Held, in_order, tell_rest, tensor_weight
from pparse.cli.output import JsonRows, Table, parameters_words, report_cut, report_document_cut, report_findings
from pparse.cli.selection import Selection
from pparse.display.text import safe, shorten
from pparse.errors import OptionError, UnsupportedError
from pparse.findings import BROKEN, COMPLETE, Status
from pparse.limits import count_words, format_size
from pparse.tensors.status import COMPLETE_WORDS, status_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.limits import Charge
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.tree.visit import Member

    Row = tuple[Tensor, Status, bool | None]

EXAMPLES: Final = """examples:
  pparse ls model.safetensors
  pparse ls model.safetensors '*.attn.*' --sort size
  pparse ls model.gguf --dtype 'Q4*' --min-size 10MB --digest
  pparse ls model-*.safetensors -p '*.attn.*'
  pparse ls model.safetensors.index.json --group
  pparse ls records.riegeli '64/*'
  pparse ls folder/ -R
  pparse ls backup.tar.gz -R
"""

# The status of rows that need not show it, if all have it.
_TRUNCATED: Final = Status.TRUNCATED
_WHOLE: Final = frozenset(COMPLETE_WORDS.values())
# The most letters of a reason beside a status.
_REASON: Final = 160
# From so many rows on that are no values of the model, it is said how to leave them out.
_MANY: Final = 100
# Letters of a digest in a terminal.
_DIGEST: Final = 12
# Memory of a group without its name; groups are charged in steps.
_GROUP: Final = 600
_STEP: Final = 64 << 10
_MOST_KINDS: Final = 4096


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files(OR_PATTERNS)
    parser.add("--regex", "PATTERN is a regular expression, matched anywhere")
    parser.add("--group", "collapse names that differ only in numbers: h.{0..5}.w, which is a pattern, too")
    parser.add("--digest", "the identity of each tensor's content, as 'pparse hash' has it: reads all of them")
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
    parser.add_filters(pattern="only names, or keys of variables, that match this glob; repeatable")
    default = f"by name, numbers by value; unsorted above {SORT_UP_TO:,} rows or a quarter of --budget"
    parser.add_order(*COLUMNS, default=default)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if options.group and options.digest:
        raise OptionError("--digest is of single tensors, and --group collapses them: leave one of them out")
    options.files, others = split_files(options.files)
    matches = options.matches = Selection(options.patterns, others, options, regex=options.regex)
    return matches.code(each_file(options, out, _list, heading=True), out)


def _list(options: Any, out: Output) -> int:
    with open_file(options, out) as document:
        from pparse.document.registry import viewer_for

        if document.is_folder:
            from pparse.cli.inventory import is_inventory, list_folder

            if is_inventory(document, options):
                _refuse_digest(document, options)
                return list_folder(document, options, out)  # type: ignore[arg-type]
        viewer = viewer_for(document)
        if viewer is None:
            _refuse_digest(document, options)
            return _list_members(document, options, out)
        code = _list_tensors(viewer, options, out)
        if document.is_folder and not (options.json or options.jsonl or options.quiet):
            from pparse.cli.inventory import taken

            for name, words in taken(document, configs=False):  # type: ignore[arg-type]
                out.say(f"{name}: {words}")
        return code


def _refuse_digest(document: Extraction, options: Any) -> None:
    if options.digest:
        raise UnsupportedError(f"--digest is of tensors, and {document.name} is {document.format}")


def _asked_order(options: Any) -> str | None:
    """Return the order that was asked for; to read no more than the first rows is to ask for that of the file."""
    return options.sort or (UNSORTED if options.first is not None else None)


class _Streamed:
    """Streams tensors, each with its status and what was verified of it: counts all, and passes on those that match."""

    def __init__(self, viewer: Any, matches: Selection) -> None:
        self.viewer = viewer
        self.extent = viewer.new_extent()
        self.streamed = not viewer.counts_itself
        self.matches = matches
        self.shown = self.others = 0
        self.hit: Tensor | None = None
        self.is_done = self.is_broken = False
        """Whether all tensors were listed, and whether any of those that match is broken."""

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
                self.is_broken |= status in BROKEN
                yield tensor, status, verified
        self.is_done = True

    def rank(self, tensor: Tensor) -> int:
        """Return by what tensors are ordered before their names; count those that are no values of the model."""
        rank: int = self.viewer.rank(tensor)
        self.others += rank > 0
        return rank

    def digest(self, tensor: Tensor) -> str | None:
        """Return the identity of a tensor's content; None if it is not whole, which reading it may have told."""
        from pparse.measuring.hashing import hash_if_whole

        found = hash_if_whole(tensor, "blake3")
        self.is_broken |= tensor.status in BROKEN
        return found

    def close(self, *, digests: bool) -> Any:
        """Return the extent of the whole document, after ``digests`` of a new listing; None if this one was ended."""
        if not self.is_done:
            self.matches.was_ended = True
            return self.viewer.kept_extent
        if self.streamed and not digests:
            self.viewer.close_extent(self.extent)
        return self.viewer.extent()


def _list_tensors(viewer: Viewer, options: Any, out: Output) -> int:
    listing = _Streamed(viewer, options.matches)
    how = _asked_order(options)
    if how is None and viewer.has_more_than(SORT_UP_TO):
        how = UNSORTED
    budget = viewer.extraction.session.budget
    held = Held(budget, lambda row: tensor_weight(row[0], viewer.row_bytes), asked=options.sort is not None)
    rows = in_order(
        listing,
        how,
        held,
        out,
        first=None if options.group else options.first,
        reverse=options.reverse,
        rank=lambda row: listing.rank(row[0]),
        **COLUMNS,
    )
    if how != UNSORTED:  # what was known of each when it was read is out of date
        rows = ((tensor, *tensor.as_listed()) for tensor, _, _ in rows)
    size: Callable[[int], str] = str if options.bytes else format_size
    usual = ""
    if options.json or options.jsonl:
        shown = JsonRows(out, options, {"format": viewer.format}, "tensors")
        for tensor, _, _ in rows:
            more = {"content": listing.digest(tensor)} if options.digest else {}
            shown.add({**tensor_to_dict(tensor), **more})
    elif options.quiet:
        for tensor, _, _ in rows:
            out.line(safe(tensor.name))
    elif options.group:
        usual = _show_groups(rows, size, budget.charge(0, "groups of names"), options, out)
    else:
        usual = _show_tensors(rows, listing, size, options, out)
    extent = listing.close(digests=options.digest)
    if options.json and extent is None:
        found = [finding.to_dict() for finding in viewer.findings]
        shown.end({"members": [], "status": None, "extent": None, "findings": found})
    elif options.json:
        found = [finding.to_dict() for finding in viewer.all_findings(extent)]
        shown.end({"members": [], "status": extent.status.value, "extent": extent.to_dict(), "findings": found})
    elif extent is None and not (options.jsonl or options.quiet):
        _tell_usual(usual, "", out)
        tell_rest(options.first, listing.shown, out, is_done=False)
        out.findings(viewer.findings)
    elif not (options.jsonl or options.quiet):
        _sum_up(listing, extent, size, usual, options, out)
    damaged = listing.is_broken if extent is None else not extent.is_sound
    return exit_code_for(viewer.findings, damaged=damaged, strict=options.strict)


def _show_tensors(
    rows: Iterable[Row], listing: _Streamed, size: Callable[[int], str], options: Any, out: Output
) -> str:
    """Print tensors; return the status of those that are shown without one."""
    keys = options.long and listing.viewer.has_keys
    digest = ("DIGEST",) if options.digest else ()
    heads = ("NAME", "DTYPE", "SHAPE", "SIZE", *digest, "STATUS", *(("KEY",) if keys else ()))
    table = Table(out, heads, "<<<><<<"[: len(heads)], full=options.long, usual=_WHOLE)
    letters = None if options.long or not out.columns else _DIGEST
    cells: dict[object, tuple[str, str, str, int]] = {}  # of types and shapes: models have few
    for tensor, known, verified in rows:
        if digest:
            digest = ((listing.digest(tensor) or "-")[:letters],)
            known, verified = tensor.as_listed()  # reading it may have told more
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
        row: tuple[str, ...] = safe(tensor.name), same[0], same[1], same[2], *digest, status
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


def _sum_up(
    listing: _Streamed, extent: Extent, size: Callable[[int], str], usual: str, options: Any, out: Output
) -> None:
    """Print what is known of all tensors, listed or not, and what is wrong with them."""
    _tell_usual(usual, status_words(extent.status, extent.all_verified), out)
    viewer = listing.viewer
    if listing.shown != extent.count:
        out.say(f"{listing.shown:,} of {count_words(extent.count, 'tensor')} match")
    if listing.others >= _MANY:
        out.say(f"{listing.others:,} of them are constants, or say how it was saved: --variables leaves them out")
    if not options.group:
        tell_rest(options.first, listing.shown, out, is_done=True)
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
    for (name, dtype, shape, status), (count, total, ranges, verified) in islice(groups.items(), options.first):
        words = _words(out, status, verified=verified)
        table.row(safe(_fill_in(name, ranges)), str(count), safe(dtype), shape, size(total), words)
    table.close()
    charge.release()
    tell_rest(options.first, len(groups), out, is_done=True)
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
    held = Held(document.session.budget, member_weight, asked=True)
    by: dict[str, Any] = {"name": lambda m: m.name, "size": lambda m: m.size, "offset": lambda m: m.start}
    by |= {"status": lambda m: m.status.value}
    how = options.sort or UNSORTED
    rows = in_order(counted.those(options.matches), how, held, out, first=options.first, reverse=options.reverse, **by)
    if options.json or options.jsonl:
        shown = JsonRows(out, options, {"format": document.format, "tensors": []}, "members")
        for member in rows:
            shown.add(_member_to_dict(member))
    else:
        _show_members(rows, counted, options, out)
    status = counted.status if counted.is_done else None
    options.matches.was_ended |= not counted.is_done
    if options.json:
        found = document.findings if status is None else all_findings(document, status)
        known = None if status is None else status.value
        shown.end({"status": known, "findings": [item.to_dict() for item in found]})
    damaged = counted.damaged or status in BROKEN
    return exit_code_for(document.findings, damaged=damaged, strict=options.strict)


def _show_members(rows: Iterable[Member], counted: _Counted, options: Any, out: Output) -> None:
    size: Callable[[int], str] = str if options.bytes else format_size
    long = ("MODE", "MODIFIED (UTC)", "METHOD", "PACKED") if options.long else ()
    heads = ("NAME", "KIND", *long, "SIZE", "STATUS")
    table = Table(out, heads, "<<<<<>><" if long else "<<><", full=options.long, usual=_WHOLE)
    whole, quiet, write = COMPLETE_WORDS[None], options.quiet, out.writer
    for member in rows:
        if quiet:
            write(f"{safe(member.name)}\n")
        else:
            more = _long_cells(member, size) if long else ()
            status = member.status
            words = whole if status is Status.COMPLETE else _words(out, status, member.reason)
            table.row(safe(member.name), member.kind, *more, size(member.size), words)
    if counted.is_done:
        counted.document.parsed.verify_streams(unless_indexed=True)
    if not options.quiet:
        table.close()
        if counted.is_done and counted.chosen != counted.rows:
            out.say(f"{counted.chosen:,} of {count_words(counted.rows, 'member')} match")
        tell_rest(options.first, counted.chosen, out, is_done=counted.is_done)
        if not counted.is_done:
            out.findings(counted.document.findings)
            return
        _tell_usual(table.usual, status_words(counted.status, None), out)
        _close_members(counted, size, out)


class _Counted:
    """Passes members of a document on and counts them: ``rows``, all members; ``chosen``, those asked for; ``count``,
    those of the main kind of the format, and ``whole``, the complete ones among them; ``unsupported``; ``damaged``,
    whether any is; ``is_done``, whether those were all."""

    def __init__(self, document: Extraction, options: Any) -> None:
        self.document = document
        self.word: str = document.result.listing.member_word
        self.rows = self.chosen = self.count = self.whole = self.unsupported = 0
        self.damaged = self.is_done = False
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
        self.is_done = True

    def those(self, matches: Selection) -> Iterator[Member]:
        """Yield those that are asked for."""
        takes_all = matches.takes_all
        for member in self:
            if takes_all or matches.takes_other(member.name, member.size, member.status.value):
                self.chosen += 1
                yield member


def _drained_members(document: Extraction, options: Any) -> Iterator[Member]:
    """Yield the members of a document; of a compressed stream, none before its end was reached.

    A stream may contradict its checksum at its end; the rows must say so, as the findings do. Walking an archive in it
    means decoding it. The rows are held meanwhile; if they are too many, the rest is decoded twice. Of the first ones,
    if there are so many and no others are wanted, nothing is said that is known only there.
    """
    inner, rows = document.parsed, _members(document, options)
    if inner.outermost is not inner:
        held = Held(document.session.budget, member_weight)
        first = options.first if options.sort is None and options.matches.takes_all else None
        held.fill(islice(rows, first))
        if first is None or len(held.items) < first:
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


# -- memory of rows that are held to be sorted -------------------------------------------------------------------------

# Memory of a member without its name and the data of its format.
_MEMBER: Final = 600


def member_weight(member: Member) -> int:
    """Return about how many bytes of memory a member takes; its format may hold the raw name, too."""
    return _MEMBER + 2 * getsizeof(member.name)
