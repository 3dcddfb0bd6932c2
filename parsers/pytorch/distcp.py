"""Shards of torch.distributed.checkpoint (``__0_0.distcp``): archives of ``torch.save``, one behind the other.

Each item that a process saved is an archive of its own, a tensor or an object; the file ``.metadata`` beside the shards
names them (torch/distributed/checkpoint/filesystem.py). The archives are found from the end: the end record of each
says how long its directory is and where it begins in the archive, and so where the archive begins, at which the one
before it ends. What lies behind the last whole archive, or between two, is an item, too, which was cut or damaged.
States::

    state          needs  reads                                       goes to
    expect_member  0      nothing: the archives are found in `items`  itself, at the next one; DONE at the end
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from functools import cached_property

from pparse.containers.archive import ArchiveMember, ArchiveParser
from pparse.document.extraction import extraction_of
from pparse.document.folder import names_in
from pparse.findings import Finding, Severity, Status
from pparse.limits import count_words
from pparse.parsers.pytorch.zip import SURE, PyTorchZipParser
from pparse.parsers.zip.records import END, END_SIZE, LOCAL, local_at, local_headers, read_end_at
from pparse.tree.context import DONE
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

METADATA: Final = ".metadata"
"""The file beside the shards that names what they hold."""
# Bytes searched at once for the end record of an archive before one that is not whole.
_BLOCK = 256 << 10


class DistcpParser(ArchiveParser):
    """A shard of a distributed checkpoint."""

    name = "pytorch-distcp"
    description = "shard of a PyTorch distributed checkpoint (.distcp)"
    extensions: ClassVar[tuple[str, ...]] = (".distcp",)
    signatures = signatures(LOCAL)
    viewer = "pparse.viewers.pytorch.viewer:DistcpViewer"
    named_is_enough = False
    refines: ClassVar[tuple[str, ...]] = ("zip", "pytorch")
    member_word = "item"
    references = ("torch/distributed/checkpoint/filesystem.py",)
    limitations = (
        "known by its extension: archives behind each other under another name may be made to be seen differently",
        "items have numbers, in the order of the file: opened by its .metadata, the checkpoint has their names",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._damaged: set[int] = set()
        folder = extraction_of(result).folder
        self._is_named = METADATA in names_in(folder)
        if folder is not None and not self._is_named:
            reason = f"{METADATA} is not beside it: names, and which chunks belong together, are lost with it"
            told: Any = {"severity": Severity.WARNING, "source": result.extraction.name}
            result.findings.add(Finding("names", reason, **told))

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it begins as a checkpoint, if its name ends in .distcp; LIKELY if that header is damaged."""
        if not excerpt.ends_with(cls.extensions):
            return Confidence.NO
        is_zip = excerpt.head(len(LOCAL)) == LOCAL
        return PyTorchZipParser.match(excerpt) or (Confidence.LIKELY if is_zip else Confidence.NO)

    @cached_property
    def items(self) -> array[int]:
        """Where each item begins, and behind them the end of the last one."""
        extraction = self.extraction
        data, start, end = extraction.data, extraction.start, extraction.find_end()
        found, at = array("q", (end,)), end
        while at > start:
            begin = _begin_of(data, start, at - END_SIZE, at)
            if begin is None:  # what is behind the last whole archive before it is not one
                begin = self._whole_before(data, start, at)
                heads = list(self._heads(data, begin, at))
                found.extend(reversed(heads))
                self._damaged.update((begin, *heads))
            found.append(begin)
            at = begin
            extraction.session.limits.check("entries", len(found), "the number of items")
        found.reverse()
        self._charge = extraction.session.budget.charge(8 * len(found), "the items of a checkpoint")
        return found

    def _whole_before(self, data: Data, start: int, at: int) -> int:
        """Return where the last whole archive before ``at`` ends; ``start`` if there is none."""
        high = at
        while high > start:
            self.extraction.session.check_cancelled()
            low = max(start, high - _BLOCK)
            block, _ = data.read_known(low, min(high + len(END) - 1, at) - low)
            place = len(block)
            while (place := block.rfind(END, 0, place + len(END) - 1)) >= 0:
                stop = low + place + END_SIZE
                if stop < at and _begin_of(data, start, low + place, stop) is not None:
                    return stop
            high = low
        return start

    def _heads(self, data: Data, begin: int, end: int) -> Iterator[int]:
        """Yield where other archives begin in a stretch that begins with one: at the pickle, which is their first
        member, or, if the beginning is lost, at a member whose name came before: in one archive each name is there
        once."""
        names: set[bytes] = set()
        for place in local_headers(data, begin, end, end):
            self.extraction.session.check_cancelled()
            header = local_at(data, place, end)
            if header is None:
                continue
            name = header.raw_name
            if place > begin and (name in names or name.endswith(SURE)):
                yield place
                names.clear()
            names.add(name)
            self.extraction.session.limits.check("entries", len(names), "the number of members")

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin with the first item."""
        return self.items[0], self.expect_member, 0

    def expect_member(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Add the item at the position."""
        items = self.items
        number = bisect_right(items, ctx.pos) - 1
        if number >= len(items) - 1:
            empty = self.finding_at("truncated", "it is empty", "", items[0])
            last = self.item(number - 1) if number else None
            finding = empty if last is None else last.finding
            if finding is not None:
                self.result.close_node(ctx.node, Status.TRUNCATED if last is None else last.status, finding)
            return ctx.pos, DONE, 0
        ctx.emit(self.entry_of(self.item(number)))
        return items[number + 1], self.expect_member, 0

    def item(self, number: int) -> ArchiveMember:
        """Return an item by its number."""
        begin, end, name = self.items[number], self.items[number + 1], str(number)
        found = ArchiveMember(name, name.encode(), "file", begin, begin, end, end - begin)
        if begin in self._damaged:
            ended = end - begin > END_SIZE and self.extraction.data.known(end - END_SIZE, len(END)) == END
            is_cut = end == self.items[-1] and not ended
            found.status = Status.TRUNCATED if is_cut else Status.DAMAGED
            lost = "its beginning, or bytes in it, are lost" if ended else "the end of its archive is lost"
            reason = "the file ends inside the archive" if is_cut else lost
            found.finding = self.finding_at(str(found.status), reason, name, end)
        return found

    def is_unsure(self, number: int) -> bool:
        """Return whether the beginning of an archive may be lost before an item, so that its number is another one."""
        data, places = self.extraction.data, dict(zip(self.items, self.items[1:], strict=False))
        return data.flawed and any(
            begin < self.items[number] and data.range_status(begin, places[begin]).status is not Status.COMPLETE
            for begin in self._damaged
        )

    def open_member(self, member: ArchiveMember, name: str | None = None) -> Extraction:
        """Return an item as the archive that it is, even if its own head is damaged."""
        opened = super().open_member(member, name)
        opened.assume(PyTorchZipParser.name)
        return opened

    def content(self, member: ArchiveMember) -> tuple[Data, int, int | None]:
        """Return data, start and end of an item."""
        return self.extraction.data, member.start, member.end

    def holds(self) -> str | None:
        """Return None: what it holds is shown."""
        return None

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        yield "items", f"{count_words(len(self.items) - 1, 'archive')} of torch.save, one behind the other"
        if self._is_named:
            yield "names", f"in {METADATA} beside it: open the folder, or that file"


def _begin_of(data: Data, start: int, at: int, stop: int) -> int | None:
    """Return where the archive begins whose end record, at ``at``, ends at ``stop``; None if it is none."""
    if at < start or data.known(at, len(END)) != END:
        return None
    found = read_end_at(data, at, start, stop)
    if found is None or found[0].comment or found[0].disks_differ:
        return None
    record, behind = found
    begin = behind - record.size - record.offset
    return begin if begin >= start and data.known(begin, len(LOCAL)) == LOCAL else None
