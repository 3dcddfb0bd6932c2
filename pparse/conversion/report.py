"""What a conversion wrote, or would write, and what it left out."""

from __future__ import annotations

from collections import namedtuple

from pparse.errors import NotWholeError, spoken
from pparse.findings import Status
from pparse.limits import are, count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# The most names in a message.
_NAMED: Final = 3
# What JSON has of a report, in this order.
_TOLD: Final = (
    "dry_run files tensors tensor_bytes bytes left_out document_reason overflowed shared_copies shared_bytes aliases "
    "unused_renames notes resumed_bytes"
)


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
        names = ", ".join(entry.name for entry in lost[:_NAMED]) + (", …" if len(lost) > _NAMED else "")
        reasons.append(f"{count_words(len(lost), 'tensor')} {are(len(lost))} not whole ({names})")
    raise report.refusal(f"{'; '.join(reasons)}: nothing was written; {spoken('--skip-damaged')} writes what is whole")
