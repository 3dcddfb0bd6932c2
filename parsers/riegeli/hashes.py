"""Riegeli files as trees: compares the hashes of chunks, and marks nodes.

A hash covers a whole chunk. Once it is found wrong, in whatever way, the chunk's node and all its records are DAMAGED:
those listed later, and existing ones.
"""

from __future__ import annotations

from pparse.data.zero_runs import unwritten
from pparse.errors import MalformedError, PparseError
from pparse.findings import Finding, Status
from pparse.paths import KeyStep, format_path
from pparse.riegeli.chunks import Chunk, ChunkError, ChunkReader
from pparse.riegeli.errors import HashMismatchError
from pparse.riegeli.layout import METADATA
from pparse.riegeli.salvage import read_header, resume
from pparse.tree.entry import SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.riegeli.records import ChunkRecords
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts
    from pparse.tree.node import Node


_READ_ANYWAY: Final = "; read it anyway with -O verify=headers"


class HashedParser(Parser):
    """The part of `pparse.parsers.riegeli.parser.RiegeliParser` that compares hashes."""

    verdicts: Verdicts
    verify: str
    _start: int
    _source: Source
    _chunks: ChunkReader
    _opened: tuple[int, ChunkRecords] | None
    _resolved: int = -1  # the last chunk whose hash was compared because the file around it is suspect

    def chunk(self, node: Node) -> Chunk:
        """Return the chunk that ``node``, a child of the root, is."""
        raise NotImplementedError

    def _judged(self, entry: Entry) -> Entry:
        """Return the entry of a chunk; DAMAGED if its hash was found wrong."""
        problem = self.verdicts.error(entry.start - self._start) if entry.kind != "gap" else None
        if problem is not None and entry.status is Status.COMPLETE:
            entry.status, entry.finding = Status.DAMAGED, self._hash_finding(entry.start, problem)
        return entry

    def _hash_finding(self, start: int, problem: PparseError) -> Finding:
        begin = start - self._start
        path = format_path([KeyStep("metadata" if begin == 64 and self._is_metadata(begin) else begin)])
        return Finding("hash", problem.reason, path=path, source=self.result.extraction.name, offset=start)

    def _is_metadata(self, begin: int) -> bool:
        found = read_header(self._chunks, begin, self._chunks.layout_at(begin))
        return found is not None and found[0].chunk_type == METADATA

    def _tell_living(self, begin: int) -> None:
        """Update the node and the records of a chunk that was found wrong, those about to be made included."""
        root = self.result._root
        if root is None:
            return
        if root.index is not None and root.index.group is not None:
            for entry in root.index.group[1]:
                self._judged(entry)
        for node in root.living():
            problem = self.verdicts.error(begin)
            if node.start - self._start != begin or node.kind == "gap" or problem is None:
                continue
            if node.known_status is Status.COMPLETE:
                self.result.close_node(node, Status.DAMAGED, self._hash_finding(node.start, problem))
            self._tell_below(node, self.record_finding(node))

    def _tell_below(self, node: Node, finding: Finding | None) -> None:
        """Make a node, and all below it that was taken for whole, DAMAGED with ``finding``."""
        stack = [node]
        while stack:
            kid = stack.pop()
            stack += kid.living()
            if kid.index is not None and kid.index.group is not None:
                for entry in kid.index.group[1]:
                    if entry.status is None or entry.status is Status.COMPLETE:
                        entry.status, entry.finding, entry.value = Status.DAMAGED, finding, UNLOADED_VALUE
            if kid.known_status is None or kid.known_status is Status.COMPLETE:
                self.result.close_node(kid, Status.DAMAGED, finding, told=True)
                if kid.shape == SCALAR:
                    kid.unload()

    def record_finding(self, chunk: Node) -> Finding | None:
        """Return the finding on a record of a damaged chunk: that of the chunk, and how to read the record anyway."""
        found = chunk.finding
        if found is None or found.code != "hash":
            return found
        return Finding("hash", found.reason + _READ_ANYWAY, source=found.source, offset=found.offset)

    def check_hash(self, chunk: Chunk, path: str) -> None:
        """Compare the hash of a chunk's data. Raise `MalformedError` if it differs.

        If the chunk has a gap, or the file ends in it, nothing is compared: its known bytes are read, unverified.
        """
        if self.verdicts.is_sound(chunk.begin):
            return
        problem = self._hash_problem(chunk)
        if isinstance(problem, HashMismatchError):
            raise MalformedError(
                problem.reason + _READ_ANYWAY,
                offset=problem.offset,
                path=path,
                source=self.result.extraction.name,
            )

    def _resolve_suspect(self, node: Node) -> None:
        """Compare the hash of a chunk if the file around it is suspect: the hash is stronger evidence."""
        data = self.result.extraction.data
        if not data.flawed or self.verify == "headers" or node.known_status is not Status.COMPLETE or node.end is None:
            return
        if node.start != self._resolved and data.why_suspect(node.start, node.end) is not None:
            self._resolved = node.start
            self._hash_problem(self.chunk(node))

    def _hash_problem(self, chunk: Chunk) -> PparseError | None:
        known = self.verdicts.error(chunk.begin)
        if known is not None:
            return known
        try:
            if self._chunks.verify(chunk, blocks=False):
                self.verdicts.note_sound(chunk.begin)
        except ChunkError as error:
            if self._moves(chunk, error):
                return None
            if isinstance(error.error, HashMismatchError):
                error.error.reason += self._unwritten(chunk.begin, chunk.end)
                self.verdicts.condemn(chunk.begin, error.error)
            return error.error
        return None

    def _moves(self, chunk: Chunk, error: ChunkError) -> bool:
        """Say whether a chunk is sound on another grid, since bytes were lost or inserted before it. Sets that grid."""
        outcome = resume(self._chunks, error)
        if outcome.healed is None or outcome.layout is None:
            return False
        self._chunks.add_grid(chunk.begin, outcome.layout)
        self._opened = None
        self.result.findings.add(
            Finding(
                "malformed",
                "the block headers from here on are misplaced: bytes were lost or inserted",
                path=f"[{chunk.begin}]",
                source=self.result.extraction.name,
                offset=self._start + chunk.begin,
            )
        )
        return True

    def _unwritten(self, begin: int, end: int) -> str:
        """Describe the bytes of ``[begin, end)`` that were never written, as in a preallocated download."""
        data, start = self._source.locate(begin)
        hole = next(unwritten(data, start, start + end - begin), None)
        if hole is None:
            return ""
        return f"; the bytes from {hole[0]} to {hole[1]} were never written (a file hole)"
