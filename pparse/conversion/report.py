"""What a conversion wrote, or would write, and what it left out."""

from __future__ import annotations

from pparse.errors import NotWholeError
from pparse.findings import Status
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# The most names in a message.
_NAMED: Final = 3


class LeftOut:
    """A tensor that was not written, or that stands in the way of writing anything."""

    __slots__ = ("name", "reason", "status")

    def __init__(self, name: str, status: Status, reason: str) -> None:
        self.name = name
        """Its name in the source."""
        self.status = status
        """Its status; UNSUPPORTED: it may be whole, but the target cannot hold it."""
        self.reason = reason
        """Why it was left out, in words."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {"name": self.name, "status": str(self.status), "reason": self.reason}


class Written:
    """A file of the output."""

    __slots__ = ("bytes", "path", "tensors")

    def __init__(self, path: str, size: int, tensors: int) -> None:
        self.path = path
        """Where it is."""
        self.bytes = size
        """Its size."""
        self.tensors = tensors
        """Number of tensors in it; 0 for an index."""

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
    def is_whole(self) -> bool:
        """Whether the source was sound, as far as tensors were chosen; what the target cannot hold does not count."""
        damaged = any(entry.status is not Status.UNSUPPORTED for entry in self.left_out)
        return not damaged and self.document_reason is None

    def __repr__(self) -> str:
        done = "would be written" if self.dry_run else "written"
        left = f", {len(self.left_out):,} left out" if self.left_out else ""
        return f"<Report: {count_words(self.tensors, 'tensor')} {done} as {self.form}{left}>"

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data, for JSON."""
        return {
            "to": self.form,
            "dry_run": self.dry_run,
            "files": [file.to_dict() for file in self.files],
            "tensors": self.tensors,
            "tensor_bytes": self.tensor_bytes,
            "bytes": self.bytes,
            "left_out": [entry.to_dict() for entry in self.left_out],
            "document_reason": self.document_reason,
            "overflowed": self.overflowed,
            "shared_copies": self.shared_copies,
            "shared_bytes": self.shared_bytes,
            "aliases": self.aliases,
            "unused_renames": self.unused_renames,
            "notes": self.notes,
            "resumed_bytes": self.resumed_bytes,
        }


def refuse_damage(report: Report) -> None:
    """Raise `NotWholeError` if not everything that was chosen is sound."""
    if report.is_whole:
        return
    lost = [entry for entry in report.left_out if entry.status is not Status.UNSUPPORTED]
    reasons = [] if report.document_reason is None else [report.document_reason]
    if lost:
        names = ", ".join(entry.name for entry in lost[:_NAMED]) + (", …" if len(lost) > _NAMED else "")
        verb = "is" if len(lost) == 1 else "are"
        reasons.append(f"{count_words(len(lost), 'tensor')} {verb} not whole ({names})")
    raise NotWholeError(
        f"{'; '.join(reasons)}: nothing was written; --skip-damaged writes what is whole",
        lost=lost_in(report),
    )


def lost_in(report: Report) -> tuple[tuple[str, str, str], ...]:
    """Return name, status and reason of each tensor that is not whole."""
    lost = (entry for entry in report.left_out if entry.status is not Status.UNSUPPORTED)
    return tuple((entry.name, str(entry.status), entry.reason) for entry in lost)
