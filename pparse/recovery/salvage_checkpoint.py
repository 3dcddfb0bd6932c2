"""What a checkpoint holds beside its tensors: storages without names, other members of the archive, bytes behind."""

from __future__ import annotations

from pparse.data.range_status import joined
from pparse.errors import MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.parsers.pickle.parser import PickleParser
from pparse.parsers.pytorch.rebuild import StoredTensor
from pparse.parsers.pytorch.storages import StorageReader
from pparse.parsers.pytorch.zip import PyTorchZipParser
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage import text_of
from pparse.recovery.salvage_tensors import Leftovers, flat
from pparse.recovery.target import FileSink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.containers.archive import ArchiveMember
    from pparse.parsers.pytorch.storages import Stored

# Members that say nothing of what was saved.
_OF_THE_WRITER: Final = frozenset(
    (
        *("version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id", ".data/version"),
        *("archive_format", "archive_version"),
    )
)
_NAMELESS: Final = "no header names these bytes"
_LOST_NAMES: Final = "what names its tensors is lost, or cut before them"


class CheckpointLeftovers(Leftovers):
    """Writes what is left of a pickle, or of a checkpoint of PyTorch."""

    def save_others(self) -> None:
        """Save the members and storages that no tensor is in, and the bytes behind the last part."""
        parser: Any = self.viewer.parser
        used: set[str] = set()  # keys of the storages that a listed tensor is in
        if isinstance(parser, StorageReader):
            named = (what for _, what, _ in self.viewer.named_tensors() if isinstance(what, StoredTensor))
            used = {what.storage.key for what in named if what.storage is not None}
        if isinstance(parser, PyTorchZipParser):
            self._save_members(parser, used)
            return
        if isinstance(parser, StorageReader):
            for key in parser.keys():  # noqa: SIM118 -- no mapping
                if key not in used and (stored := parser.stored(key)) is not None:
                    self._save_storage(key, stored)
        if isinstance(parser, PickleParser):
            self._save_behind(parser)

    def _save_storage(self, key: str, stored: Stored) -> None:
        """Write a storage that no tensor is known to be in."""
        try:
            data, start, end = stored.place
        except (MalformedError, UnsupportedError):
            return
        with self.job.target.create(f"{self.name}.partial/storage-{flat(key)}.bin") as file:
            gaps = self.job.copy_known(file, start, min(end, start + stored.size), data)
            if file.bytes == gaps.known:
                file.discard()
                return
        self.written += 1
        whole = stored.is_complete and self._names_are_known  # only now: damage is found while it is read
        reason = "" if whole else f"a storage: {self._why_nameless}"
        self.job.report(file, Status.COMPLETE if whole else Status.DAMAGED, reason, offset=start, gaps=gaps)

    @property
    def _names_are_known(self) -> bool:
        nodes = list(self.viewer.descriptions())
        return bool(nodes) and all(node.is_complete for node in nodes)

    @property
    def _why_nameless(self) -> str:
        return "no tensor is in it" if self._names_are_known else _LOST_NAMES

    def _save_behind(self, parser: PickleParser) -> None:
        """Write the bytes behind the last part of a file whose parts follow each other."""
        at = parser.program(parser.starts[-1]).end if parser.starts else self.job.start
        if isinstance(parser, StorageReader):
            for key in parser.keys():  # noqa: SIM118 -- no mapping
                stored = parser.stored(key)
                at = max(at, stored.place[2]) if stored is not None else at
        if at < self.job.end:
            name, reason = f"{self.name}.partial/behind-{at}.bin", "bytes behind the last part that can be told"
            self.written += self.job.save_piece(name, at, self.job.end, reason, if_known=True)

    def _save_members(self, parser: PyTorchZipParser, used: set[str]) -> None:
        """Write the members that are not storages of tensors, and what belongs to no member."""
        folder = parser.prefix
        spans = []
        for member in parser.files():
            self.job.session.check_cancelled()
            if parser.leaves_unclaimed:
                spans.append((member.at, max(member.at, member.end)))
            name = member.name.removeprefix(folder)
            key = parser.key_of(name)
            if member.kind == "gap":
                self._save_member(parser, member, f"at-{member.start}.bin", _NAMELESS)
            elif member.kind != "file" or name in _OF_THE_WRITER or key in used:
                continue
            elif key is not None:
                self._save_member(parser, member, f"storage-{flat(key)}.bin", f"a storage: {self._why_nameless}")
            else:
                self._save_member(parser, member, name, None)
        for start, end in parser.unclaimed(joined(spans)) if spans else ():
            self.written += self.job.save_piece(f"{self.name}.partial/at-{start}.bin", start, end, _NAMELESS)

    def _save_member(self, parser: PyTorchZipParser, member: ArchiveMember, name: str, odd: str | None) -> None:
        """Write a member; ``odd``: why it counts as damaged, even if all of it is there."""
        compressed_size = None if member.method == "stored" else member.compressed_size
        with FileSink(self.job.target, f"{self.name}.partial/{name}", member.mtime, compressed_size) as sink:
            if not sink.refuses(member):
                verdict = parser.verify(member, sink, sink.skip)
        if sink.error is not None:
            raise sink.error
        sink.conclude(verdict)
        if sink.file is not None:
            self.written += 1
            verdict.place(sink.file.bytes)
        if odd is not None and (member.kind == "gap" or not self._names_are_known):
            verdict.status = Status.DAMAGED
            verdict.reason = f"{odd}; {verdict.reason}" if verdict.reason else odd
        if sink.file is None:
            verdict.status = Status.MISSING
        entry = RecoveredFile.judged(sink.file, verdict, offset=member.start)
        entry.raw_name = text_of(member.name) if entry.path is None else entry.raw_name
        self.job.report_as(entry)
