"""What no safetensors file can hold of a checkpoint: parts of tensors, odd types, other members; and a list of all."""

from __future__ import annotations

import math

from pparse.data.range_status import joined
from pparse.errors import PASSING, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Status
from pparse.parsers.pickle.parser import PickleParser
from pparse.parsers.pytorch.rebuild import StoredTensor
from pparse.parsers.pytorch.storages import Checkpoint
from pparse.parsers.pytorch.zip import PyTorchZipParser
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage_job import Rest, text_of
from pparse.recovery.sink import Sink
from pparse.recovery.tensor_judge import unjudged
from pparse.writers.npy import write_npy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.containers.archive import ArchiveMember
    from pparse.parsers.pytorch.storages import Stored
    from pparse.recovery.salvage_job import Job
    from pparse.recovery.tensor_judge import TensorJudge
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.pickle.viewer import PickleViewer

_MOST_DIMENSIONS: Final = 64
_MOST_BITS: Final = 4096  # of an integer that is written as digits
# Members that say nothing of what was saved.
_OF_THE_WRITER: Final = frozenset(
    ("version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id")
)
_LOST_NAMES: Final = "the pickle that names its tensors is lost, or cut before them"


class Leftovers:
    """Writes what is left of one checkpoint; see `save`."""

    def __init__(
        self, job: Job, viewer: PickleViewer, judge: TensorJudge, status: Status, name: str, second: str | None
    ) -> None:
        """``name``: the path of the saved file; ``second``: that of the file with suspect tensors, if there is one."""
        self._job = job
        self._viewer = viewer
        self._judge = judge
        self._status = status
        self._name = name
        self._second = second
        self._written = 0

    def save(self) -> int:
        """Write it, and the list; return the number of files beside the list."""
        metadata = {text_of(str(key)): plain(value) for key, value in self._viewer.metadata.items()}
        rest = Rest(self._job, self._name, {"format": self._viewer.format, "metadata": metadata})
        try:
            rest.write()
            for number, tensor in enumerate(self._viewer.tensors()):
                self._job.session.check_cancelled()
                self._save_tensor(rest, number, tensor)
            self._save_others()
        finally:
            rest.finish(self._status)
        return self._written

    # -- tensors -----------------------------------------------------------------------------------------------------

    def _save_tensor(self, rest: Rest, number: int, tensor: Tensor) -> None:
        """Save what is there of a tensor that is not in the saved file, and list it."""
        status, why, suspect = self._judge.judge(number, tensor)
        unfit = self._judge.why_unfit(tensor)
        if status is Status.COMPLETE and unfit is None:
            if self._job.kept is not None:
                self._job.kept(tensor.name, tensor.stored_nbytes)
            return
        entry = RecoveredFile(None, status, raw_name=text_of(tensor.name))
        there = length = tensor.stored_nbytes
        if suspect and unfit is None and self._second is not None:
            entry.path = self._second
        elif status is Status.COMPLETE or suspect:
            why = f"{why}; {unfit}" if why else unfit or ""
            if not self._write_array(unjudged(tensor) if suspect else tensor, entry, why):
                there = 0
        else:
            there = self._write_known(tensor, entry, why)
        span = tensor.spans[0] if tensor.spans else None
        rest.add(
            {
                "name": text_of(tensor.name),
                "dtype": text_of(tensor.stored_dtype) or None,
                "shape": list(tensor.shape[:_MOST_DIMENSIONS]),
                "strides": None if tensor._strides is None else list(tensor._strides[:_MOST_DIMENSIONS]),
                "status": entry.status.value,
                "length": length if span is not None else None,
                "there": there,
                "path": entry.path,
                "reason": text_of(why),
            }
        )

    def _write_array(self, tensor: Tensor, entry: RecoveredFile, why: str) -> bool:
        """Write a whole tensor as an array of numpy; say whether that was possible."""
        file = self._job.target.create(f"{self._name}.partial/{_flat(tensor.name)}.npy")
        try:
            with file:
                write_npy(tensor, file)  # type: ignore[arg-type]
        except PASSING:
            raise
        except PparseError as error:
            if isinstance(error, LimitError) and self._job.target.is_full:
                raise
            entry.status, entry.reason = Status.UNSUPPORTED, text_of(f"{_what(tensor)}: {why}; {error.reason}")
            self._job.report_as(entry)
            return False
        self._take(file, entry, text_of(f"{_what(tensor)}: {why}"))
        return True

    def _write_known(self, tensor: Tensor, entry: RecoveredFile, why: str) -> int:
        """Write the known bytes of a tensor as they are stored, and return their number."""
        span = tensor.spans[0] if len(tensor.spans) == 1 else None
        length, there = tensor.stored_nbytes, 0
        if span is not None and span.data is not None and entry.status is not Status.MISSING:
            stop = span.offset + length if span.end is None else min(span.offset + length, span.end)
            if span.data.size is not None:
                stop = min(stop, span.data.size)
            with self._job.target.create(f"{self._name}.partial/{_flat(tensor.name)}.bin") as file:
                gaps = self._job.copy_known(file, span.offset, stop, span.data)
                there = file.bytes - gaps.known
                if not there:
                    file.discard()
            if there:
                if file.bytes < length:
                    gaps.add(file.bytes, length - file.bytes)
                entry.gaps = gaps
                entry.offset = span.offset
                self._take(file, entry, None)
        entry.reason = text_of(f"{_what(tensor)}: {there:,} of {length:,} bytes are there: {why}")
        if not there and entry.status in (Status.TRUNCATED, Status.DAMAGED):
            entry.status = Status.MISSING
        self._job.report_as(entry)
        return there

    def _take(self, file: Any, entry: RecoveredFile, reason: str | None) -> None:
        self._written += 1
        entry.path, entry.bytes, entry.sha256 = file.path, file.bytes, file.sha256
        if reason is not None:
            entry.reason = reason
            self._job.report_as(entry)

    # -- what is not of a tensor -------------------------------------------------------------------------------------

    def _save_others(self) -> None:
        parser: Any = self._viewer.parser
        used = self._used() if isinstance(parser, Checkpoint) else set()
        if isinstance(parser, PyTorchZipParser):
            self._save_members(parser, used)
            return
        if isinstance(parser, Checkpoint):
            for key in parser.keys():  # noqa: SIM118 -- no mapping
                if key not in used and (stored := parser.stored(key)) is not None:
                    self._save_storage(key, stored)
        if isinstance(parser, PickleParser):
            self._save_behind(parser)

    def _used(self) -> set[str]:
        """Return the keys of the storages that a listed tensor is in."""
        return {
            what.storage.key
            for _, what, _ in self._viewer.named_tensors()
            if isinstance(what, StoredTensor) and what.storage is not None
        }

    def _save_storage(self, key: str, stored: Stored) -> None:
        """Write a storage that no tensor is known to be in."""
        try:
            data, start, end = stored.place
        except (MalformedError, UnsupportedError):
            return
        with self._job.target.create(f"{self._name}.partial/storage-{_flat(key)}.bin") as file:
            gaps = self._job.copy_known(file, start, min(end, start + stored.size), data)
            if not file.bytes - gaps.known:
                file.discard()
                return
        self._written += 1
        whole = stored.status is Status.COMPLETE and self._names_are_known
        reason = None if whole else f"a storage: {self._why_nameless}"
        self._job.report(file, Status.COMPLETE if whole else Status.DAMAGED, reason or "", offset=start, gaps=gaps)

    @property
    def _names_are_known(self) -> bool:
        node = self._viewer.pickled()
        return node is not None and node.status is Status.COMPLETE

    @property
    def _why_nameless(self) -> str:
        return "no tensor is in it" if self._names_are_known else _LOST_NAMES

    def _save_behind(self, parser: PickleParser) -> None:
        """Write the bytes behind the last part of a file whose parts follow each other."""
        at = parser.program(parser.starts[-1]).end if parser.starts else self._job.start
        if isinstance(parser, Checkpoint):
            for key in parser.keys():  # noqa: SIM118 -- no mapping
                stored = parser.stored(key)
                at = max(at, stored.place[2]) if stored is not None else at
        if at >= self._job.end:
            return
        with self._job.target.create(f"{self._name}.partial/behind-{at}.bin") as file:
            gaps = self._job.copy_known(file, at, self._job.end)
            if not file.bytes - gaps.known:
                file.discard()
                return
        self._written += 1
        self._job.report(file, Status.DAMAGED, "bytes behind the last part that can be told", offset=at, gaps=gaps)

    def _save_members(self, parser: PyTorchZipParser, used: set[str]) -> None:
        """Write the members that are not storages of tensors, and what belongs to no member."""
        folder = parser.prefix
        spans = []
        for member in parser.files():
            self._job.session.check_cancelled()
            if parser.leaves_unclaimed:
                spans.append((member.at, max(member.at, member.end)))
            name = member.name.removeprefix(folder)
            key = name.removeprefix("data/") if name.startswith("data/") else None
            if member.kind == "gap":
                self._save_member(parser, member, f"at-{member.start}.bin", "no header names these bytes")
            elif member.kind != "file" or name in _OF_THE_WRITER or key in used:
                continue
            elif key is not None:
                self._save_member(parser, member, f"storage-{_flat(key)}.bin", f"a storage: {self._why_nameless}")
            else:
                self._save_member(parser, member, name, None)
        for start, end in parser.unclaimed(joined(spans)) if spans else ():
            with self._job.target.create(f"{self._name}.partial/at-{start}.bin") as file:
                gaps = self._job.copy_known(file, start, end)
            self._written += 1
            self._job.report(file, Status.DAMAGED, "no header names these bytes", offset=start, gaps=gaps)

    def _save_member(self, parser: PyTorchZipParser, member: ArchiveMember, name: str, odd: str | None) -> None:
        """Write a member; ``odd``: why it counts as damaged, even if all of it is there."""
        compressed_size = None if member.method == "stored" else member.compressed_size
        with Sink(self._job.target, f"{self._name}.partial/{name}", member.mtime, compressed_size) as sink:
            if sink.refuses(member):
                assert sink.error is not None  # noqa: S101 -- just refused
                raise sink.error
            verdict = parser.verify(member, sink, sink.skip)
        if sink.error is not None:
            raise sink.error
        sink.conclude(verdict)
        status, reason = verdict.status, verdict.reason
        if odd is not None and (member.kind == "gap" or not self._names_are_known):
            status, reason = Status.DAMAGED, f"{odd}; {reason}" if reason else odd
        if sink.file is None:
            lost = RecoveredFile(
                None, Status.MISSING, raw_name=text_of(member.name), offset=member.start, reason=reason
            )
            self._job.report_as(lost)
            return
        self._written += 1
        verdict.place(sink.file.bytes)
        known = {
            "verified": verdict.verified,
            "offset": member.start,
            "gaps": verdict.gaps,
            "doubtful": verdict.suspect,
        }
        self._job.report(sink.file, status, reason, **known)


def _flat(name: str) -> str:
    return name.replace("/", "_").replace("\\", "_") or "_"


def _what(tensor: Tensor) -> str:
    return f"{tensor.stored_dtype or '?'} {list(tensor.shape[:_MOST_DIMENSIONS])}"


def plain(value: Any) -> Any:
    """Return a value of the metadata as JSON has it: what it lacks as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"<integer of {value.bit_length():,} bits>"
    if isinstance(value, str):
        return text_of(value)
    return value if value is None or isinstance(value, int | float) else str(value)
