"""A model in shards: saves every shard by itself, and writes an index of what there is.

A whole shard is written as it is, others as `pparse.recovery.salvage` does. If all shards are whole, the
index is copied, too. Otherwise a new index names the tensors in the written files, and ``INDEX.rest.json`` beside it
lists those that are lost. A set without an index gets none.
"""

from __future__ import annotations

import json

from pparse.document.extraction import extraction_of
from pparse.document.registry import viewer_for
from pparse.errors import PASSING, ClosedError, DataChangedError, LimitError, PparseError, SourceError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import judge
from pparse.recovery.report import RecoveredFile
from pparse.recovery.salvage import salvage
from pparse.recovery.salvage_job import Job, Rest, text_of
from pparse.viewers.shards.name_table import ShardTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.document.extraction import Extraction
    from pparse.parsers.shards.shard_set import ShardSet
    from pparse.recovery.document_verdict import DocumentVerdict
    from pparse.recovery.salvage_job import Report
    from pparse.recovery.target import Target, TargetFile
    from pparse.tree.result import Result
    from pparse.viewers.shards.viewer import ShardSetViewer

    # writes a document as it is, and returns its path; None if there was nothing to write
    Plain = Callable[[Result, str, str, DocumentVerdict], str | None]


class ShardWriter:
    """Saves one set of shards; see `run`."""

    def __init__(self, result: Result, parser: ShardSet, target: Target, report: Report, plain: Plain) -> None:
        self._result = result
        self._parser = parser
        self._target = target
        self._report = report
        self._plain = plain
        self._viewer: ShardSetViewer = viewer_for(extraction_of(result))
        self._names = parser.shard_names()
        self._table = ShardTable(parser.weight_map(), self._names) if parser.has_map else None
        self._index: TargetFile | None = None
        self._entries = 0
        self._bytes = 0
        self._path: str | None = None  # path of the shard being written, in the target
        self._shard = ""
        self._lost: dict[str, str] = {}  # lost shards, and why
        self._whole = True

    def run(self, index: DocumentVerdict) -> None:
        """Write the shards and the index; ``index`` is the judgement on the set as a whole."""
        extraction = self._result.extraction
        own = self._parser.index
        name = own.result.extraction.name.replace("\\", "/").rpartition("/")[2] if own is not None else ""
        try:
            if own is not None and self._table is not None:
                self._index = self._target.create(name)
                self._begin_index()
            for shard in dict.fromkeys((*self._names, *self._parser.extra_files())):
                extraction.session.check_cancelled()
                self._write_shard(shard)
            if own is None:
                return
            if self._index is None or (self._whole and index.is_whole):
                if self._index is not None:
                    self._index.discard()
                self._plain(own.result, name, extraction.name, judge(extraction_of(own.json)))
            else:
                self._end_index(self._index, extraction_of(own.result))
        finally:
            if self._index is not None:
                self._index.discard()

    def _write_shard(self, name: str) -> None:
        self._shard, self._path = name, None
        try:
            shard = self._parser.shard(name)
            result = shard.parse()
        except (ClosedError, DataChangedError, LimitError):
            raise
        except PparseError as error:  # no file, or not a known format: go on with the others
            self._lose(name, error)
            return
        entries = self._entries
        judgement = judge(shard)
        saved = not judgement.is_plain and self._salvage(shard, name)
        if saved:
            self._whole = False
        else:
            self._path = self._plain(result, name, name, judgement)
            self._whole = self._whole and judgement.is_whole
            viewer = viewer_for(shard) if self._path is not None else None
            if viewer is not None and not viewer.is_set:
                for tensor in viewer.tensors():
                    self._keep(tensor.name, tensor.stored_nbytes)
        if self._entries == entries:
            self._lost.setdefault(name, "nothing of it is whole")
        shard.results.clear()  # do not keep the headers of thousands of shards
        shard.children.clear()

    def _salvage(self, shard: Extraction, name: str) -> bool:
        try:
            return salvage(shard, self._target, name, report=self._note, kept=self._keep)
        except PASSING:
            raise
        except LimitError:
            raise
        except PparseError:
            return False

    def _note(self, file: RecoveredFile) -> None:
        """Record a reported file of the shard; the first is the shard itself."""
        self._path = self._path or file.path
        self._report(file)

    def _lose(self, name: str, error: PparseError) -> None:
        reason = error.reason if not isinstance(error, SourceError) else f"it cannot be read: {error.reason}"
        self._lost[name] = f"its shard is lost: {reason}"
        self._whole = False
        self._report(RecoveredFile(None, Status.MISSING, raw_name=name, reason=reason))

    # -- the index -----------------------------------------------------------------------------------------------------

    def _begin_index(self) -> None:
        assert self._index is not None  # noqa: S101 -- just made
        self._index.write(b'{"weight_map": {')

    def _keep(self, name: str, size: int) -> None:
        """Add a tensor of the shard being written to the index."""
        if self._table is None or self._index is None or self._path is None:
            return
        place = self._table.see(name)
        if place is not None and 0 <= place < len(self._names) and self._names[place] != self._shard:
            mapped = self._names[place]
            if mapped not in self._lost and self._viewer._in_shard(mapped, name) is not None:
                return  # the index means that one; this is another with the same name
        separator = ",\n" if self._entries else "\n"
        self._index.write(f"{separator}{json.dumps(name)}: {json.dumps(self._path)}".encode())
        self._entries += 1
        self._bytes += size

    def _end_index(self, file: TargetFile, extraction: Extraction) -> None:
        """Finish the index, and list the tensors that it lacks."""
        metadata = {
            key: value
            for key, value in self._parser.index_metadata().items()
            if isinstance(value, str | int | bool) or value is None
        }
        metadata["total_size"] = self._bytes
        file.write(f"\n}},\n{json.dumps('metadata')}: {json.dumps(metadata)}}}\n".encode())
        file.close()
        total = self._parser.map_size() or 0
        job = Job(extraction, self._target, file.path, self._report)
        reason = (
            f"a new index of the {count_words(self._entries, 'tensor')} that are whole; the old index names {total:,}"
        )
        job.report(file, Status.DAMAGED, reason)
        rest = Rest(job, file.path, {"format": "safetensors-index"})
        try:
            for name, shard in self._parser.weight_map():
                if self._table is not None and not self._table.seen(name):
                    why = self._lost.get(shard or "", "its shard does not have this tensor, or only a part")
                    rest.add(
                        {
                            "name": text_of(name),
                            "shard": None if shard is None else text_of(shard),
                            "status": Status.MISSING.value,
                            "reason": text_of(why),
                        }
                    )
            rest.finish(Status.DAMAGED)
        finally:
            rest.discard()
