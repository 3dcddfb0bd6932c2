"""GGUF models stay what they are: the header, the key-values and the bytes of whole tensors as they lie in the file.

Version and byte order stay, too: of the table, only the entries of tensors that are lost and all offsets change. If
something is wrong with the key-values themselves, tensors are saved as of any other model.
"""

from __future__ import annotations

from struct import calcsize, pack, unpack_from

from pparse.findings import Status
from pparse.recovery.salvage_tensors import TensorJudge, salvage_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.recovery.salvage import Job
    from pparse.recovery.salvage_tensors import SalvagePlan
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.viewers.gguf.viewer import GgufViewer

_EXTENSION: Final = ".gguf"
# Magic and version; and an offset, which ends each entry of the table.
_HEAD: Final = 8
_OFFSET: Final = 8


class GgufJudge(TensorJudge):
    """Judges the tensors of a GGUF model that go to a GGUF file."""

    is_copied = True

    @property
    def alignment(self) -> int:  # type: ignore[override]
        """What the key-values say."""
        viewer: GgufViewer = self.viewer
        return viewer.parser.alignment

    def name_of(self, name: str, extensions: Iterable[str]) -> str:
        """Return the name of the old file, with the extension of the format."""
        return name if name.lower().endswith(_EXTENSION) else name + _EXTENSION

    def size_of(self, tensor: Tensor) -> int | None:
        """Return how many bytes a tensor takes, whether or not anything decodes them."""
        return tensor.stored_nbytes if tensor.spans else None

    def why_unfit(self, number: int, tensor: Tensor, *, suspect: bool) -> str | None:
        """Return None: what one GGUF file holds, another one can."""
        return None

    def header(self, plan: SalvagePlan) -> Iterator[bytes]:
        """Yield what is before the bytes of the tensors, without the padding."""
        viewer: GgufViewer = self.viewer
        parser, facts, table, read = viewer.parser, viewer.facts, viewer.table, self.job.data.read_exact
        assert facts is not None and table is not None and facts.end is not None  # noqa: S101, PT018 -- `_judge_of`
        number = parser.order + parser.length
        yield read(self.job.start, _HEAD) + pack(f"{parser.order}2{parser.length}", plan.count, facts.note)
        yield from self.job.pieces(facts.start, facts.end)
        entries = iter(enumerate(table.result.entries_from(table, 0)))
        for one in plan.listed():
            entry = next(entry for ordinal, (_, entry) in entries if ordinal == one.number)
            raw = read(entry.start, (entry.end or entry.start) - entry.start)
            if one.tensor.name != entry.key:  # another one has it, too
                name = one.tensor.name.encode()
                raw = pack(number, len(name)) + name + raw[calcsize(number) + unpack_from(number, raw)[0] :]
            yield raw[:-_OFFSET] + pack(f"{parser.order}Q", one.place)

    def measured(self, header: Iterator[bytes]) -> tuple[int, int | None]:
        """Return where the bytes of tensors begin behind a header; there are never too many."""
        size = sum(map(len, header))
        return size + -size % self.alignment, None

    def head(self, header: Iterator[bytes], begin: int) -> Iterator[bytes]:
        """Yield all ``begin`` bytes before the tensors."""
        left = begin
        for piece in header:
            left -= len(piece)
            yield piece
        yield bytes(left)


def salvage_gguf(job: Job) -> str:
    """Write the whole tensors as a GGUF file, suspect ones as a second one, and what is left beside it; see
    `pparse.recovery.salvage`."""
    return salvage_by(_judge_of, job)


def _judge_of(job: Job, viewer: Viewer) -> TensorJudge:
    """Return what judges the tensors: by itself, a GGUF file needs key-values that are whole, and right."""
    model: Any = viewer
    facts, data = model.facts, job.data
    is_whole = facts is not None and model.table is not None and facts.status is Status.COMPLETE
    if not is_whole or data.why_suspect(job.start, facts.end) or any(data.gaps_in(job.start, facts.end)):
        return TensorJudge(job, viewer)
    return GgufJudge(job, viewer)
