"""PyTorch checkpoints in zip archives, as ``torch.save`` writes them since 1.6, and TorchScript archives.

The tree is that of the archive. Its ``data.pkl`` says what the members ``data/0``, ``data/1`` … are: the storages.
torch takes the folder in the archive from its first member, whatever the file is called
(caffe2/serialize/inline_container.cc).
"""

from __future__ import annotations

from functools import partial

from pparse.errors import PparseError
from pparse.findings import Finding, Severity, Status
from pparse.parsers.pytorch.storages import Checkpoint, Stored
from pparse.parsers.zip.parser import ZipParser
from pparse.tree.recognition import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.tree.node import Node
    from pparse.tree.recognition import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Member

_PICKLE: Final = "/data.pkl"
_SURE: Final = b"/data.pkl"
# How TorchScript archives, and those that old versions wrote, begin.
_FIRST: Final = (b"/data/0", b"/version", b"/byteorder", b"/.format_version", b"/constants.pkl")


class PyTorchZipParser(ZipParser, Checkpoint):
    """A checkpoint of ``torch.save``, or a TorchScript archive."""

    name = "pytorch"
    description = "PyTorch checkpoint (zip)"
    extensions = (".pt", ".pth", ".ckpt", ".bin")
    viewer = "pparse.viewers.pytorch.viewer:PyTorchViewer"
    refines = ("zip",)
    is_generic = False
    references = ("torch/serialization.py", "caffe2/serialize/inline_container.cc", "torch/_utils.py")
    limitations = (
        "code of TorchScript is a member like others; only the tensors of data.pkl and constants.pkl are shown",
        "objects of unknown classes are shown by their attributes, and never made",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._rows: dict[str, Member] | None = None
        self._folder: str | None = None

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a zip archive, if its first or last names are those of a checkpoint."""
        found = super().match(excerpt)
        if not found:
            return found
        head = excerpt.head(4096)
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        if name.endswith(_SURE):
            return found
        return found if name.endswith(_FIRST) and _SURE in excerpt.tail(1 << 16) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """As for a zip archive, if the last bytes name a checkpoint's pickle, or the first name is one of its members."""
        head = excerpt.head(4096)
        if _SURE not in excerpt.tail(1 << 16) and _SURE not in head and not any(name in head for name in _FIRST[:1]):
            return Confidence.NO
        return super().match(excerpt) or super().probe(excerpt, reader)

    # -- the members -------------------------------------------------------------------------------------------------

    @property
    def folder_name(self) -> str:
        """The folder of the checkpoint in the archive, as torch finds it: that of the first member."""
        if self._folder is None:
            first = next(iter(self.files()), None)
            self._folder = "" if first is None else first.name.partition("/")[0]
        return self._folder

    def _member_rows(self) -> dict[str, Member]:
        """Return all members by name."""
        if self._rows is None or self.spoilt:
            rows: dict[str, Member] = {}
            for row in self.members():
                name, mark, number = row.name.rpartition("#")
                if mark and number.isdecimal() and name in rows:  # of two with one name, torch reads the last
                    self._note_twice(name, row)
                    rows[name] = row
                else:
                    rows[row.name] = row
            self.result.extraction.session.limits.check("entries", len(rows), "the number of members")
            self._rows = rows
        return self._rows

    def _note_twice(self, name: str, row: Member) -> None:
        reason = "two members have this name: torch reads the last one"
        self.result.findings.add(
            Finding("duplicate", reason, path=name, severity=Severity.WARNING, source=self.extraction.name, offset=row.start)
        )

    def row(self, name: str) -> Member | None:
        """Return the member ``name`` of the checkpoint's folder."""
        return self._member_rows().get(f"{self.folder_name}/{name}")

    def pickled(self, name: str = "data.pkl") -> Node | None:
        """Return the value of a pickle in the archive."""
        row = self.row(name)
        if row is None:
            return None
        try:
            document = self.extraction.children.get(row.name) or self.enter(row.name)
            root = document.parse("pickle").root
            return root.child(0) if root.kind == "pickles" else root  # torch reads to the first STOP
        except PparseError:
            return None

    def stored(self, key: str, folder: str = "data") -> Stored | None:
        """Return a storage: the member ``data/KEY``."""
        row = self.row(f"{folder}/{key}")
        if row is None:
            return None
        finding = row.note.finding if row.status is not Status.COMPLETE else None
        return Stored(row.size or 0, partial(self._place, row), row.status, finding)

    def _place(self, row: Member) -> tuple[Data, int, int]:
        data, start, end = self.content(row.note)
        return data, start, start + (row.size or 0) if end is None else end

    def keys(self) -> Iterator[str]:
        """Yield the keys of the storages, in the order of the archive."""
        prefix = f"{self.folder_name}/data/"
        for name in self._member_rows():
            if name.startswith(prefix):
                yield name[len(prefix) :]

    @property
    def byteorder(self) -> str:
        """What the member ``byteorder`` says; little if there is none."""
        row = self.row("byteorder")
        if row is not None:
            try:
                data, start, end = self._place(row)
                return "big" if data.pread(start, min(16, end - start)).strip() == b"big" else "little"
            except PparseError:
                pass
        return "little"
