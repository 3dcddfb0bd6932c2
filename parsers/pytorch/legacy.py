"""Legacy PyTorch checkpoints (0.1.10 to 1.5, or ``_use_new_zipfile_serialization=False``).

A legacy file is five pickles in a row and then the storages (torch/serialization.py, ``_legacy_save``):

1. a magic number, 2. the version 1001, 3. facts about the system, 4. what was saved, 5. the keys of the storages,
6. for each key, in that order: the number of elements as i64, and the elements, of the type that the first id in the
   fourth pickle gives.
"""

from __future__ import annotations

from functools import cached_property

from pparse.data.base import Access
from pparse.data.zero_runs import zeros_at_end
from pparse.errors import DataError
from pparse.findings import Status
from pparse.kernels.pickle_scan import Scan
from pparse.parsers.pickle.parser import SHAPES, PickleParser, code_of
from pparse.parsers.pickle.program import Program, forget_children
from pparse.parsers.pickle.values import Persistent
from pparse.parsers.pytorch.rebuild import storage_id
from pparse.parsers.pytorch.storages import StorageReader, StoredAt
from pparse.tensors.dtype import DTYPES
from pparse.tree.entry import MAP, Entry
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.reading import Reading
    from pparse.parsers.pytorch.rebuild import StorageId
    from pparse.parsers.pytorch.storages import Stored
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# -- All persistent ids in a pickle, wherever they stand in it: the storages that a checkpoint names -------------------


def storages_named(program: Program) -> dict[str, StorageId]:
    """Return the storages that ``program`` names, by key, as the first id of each says."""
    found: dict[str, StorageId] = {}
    limits = program.session.limits
    state = Scan()
    state.ids = []

    def note(reading: Reading) -> None:
        for slot, end in state.ids or ():
            try:
                named = storage_id(Persistent(program.decoder.decode(slot >> 8, end)))
            except DataError:
                continue
            if named is not None:
                found.setdefault(named.key, named)
        limits.check("entries", len(found), "the number of storages")
        if state.ids is not None:
            state.ids.clear()
        forget_children(reading)

    program.reading(program.start, state).run(program.end, after=note)
    return found


_NUMBER: Final = 0x1950A86A20F9469CFC6C
_LONG: Final = b"\x8a\x0a" + _NUMBER.to_bytes(10, "little")
_MAGICS: Final = (
    *(b"\x80" + bytes([protocol]) + _LONG for protocol in (2, 3)),
    *(b"\x80" + bytes([protocol]) + frame + _LONG for protocol in (4, 5) for frame in (b"", b"\x95\x0d" + bytes(7))),
    b"L%dL\n." % _NUMBER,
    b"L%d\n." % _NUMBER,
)
_NAMES: Final = ("magic", "version", "system", "object", "keys")


class _StoragePlace(StoredAt):
    """A storage that should have ``meant`` bytes; ``count`` of elements before it in the file, and how many the pickle
    says there are."""

    def __init__(self, data: Data, begin: int, meant: int, end: int, count: int, told: int) -> None:
        super().__init__(data, begin, meant, end)
        self.begin, self.meant, self.count, self.told = begin, meant, count, told

    def cut_at(self, end: int) -> None:
        """Let it have only the bytes before ``end``."""
        super().__init__(self.place[0], self.begin, self.meant, min(end, self.begin + self.size))


class PyTorchLegacyParser(PickleParser, StorageReader):
    """A checkpoint of before torch 1.6."""

    name = "pytorch-legacy"
    description = "PyTorch checkpoint of before 1.6"
    extensions = (".pt", ".pth", ".ckpt", ".bin")
    signatures = signatures(*_MAGICS, strength=Confidence.CERTAIN)
    viewer = "pparse.viewers.pytorch.viewer:PyTorchViewer"
    is_generic = False
    named_is_enough = False
    refines = ("pickle",)
    references = ("torch/serialization.py",)
    limitations = ("objects of unknown classes are shown by their attributes, and never made",)
    shapes = {**SHAPES, "pytorch-legacy": MAP, "storages": MAP}

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.blank: int | None = None
        """Where the zeros begin that stand for storages, to the end of the file; None: there are none."""

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the pickled magic number."""
        return excerpt.matches(cls.signatures)

    def goes_on(self, count: int, pos: int) -> bool:
        """Five pickles follow each other."""
        return count < len(_NAMES)

    def root_entry(self) -> Entry:
        """Read the five pickles."""
        extraction = self.result.extraction
        last = self.read_pickles()
        if not last.trouble and len(self.starts) == len(_NAMES):
            return Entry(None, self.name, extraction.start, extraction.end, status=None)
        status, name = last.status if last.trouble else Status.TRUNCATED, _NAMES[len(self.starts) - 1]
        reason = f"{last.trouble or 'the checkpoint ends'}: in the part called {name}, or behind it"
        finding = self.note(code_of(status), reason, last.end)
        return Entry(None, self.name, extraction.start, extraction.end, status=status, finding=finding)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Index the parts of the file, or the storages."""
        if node.kind == self.name:
            self._fill_root(node, index)
            return True
        if node.kind == "storages":
            index.entries = []
            for key, place in self._places.items():
                begin, stop = place.begin, place.begin + place.meant
                entry = Entry(key, "storage", begin, stop, status=place.status, finding=place.finding, at=begin - 8)
                index.add_entry(entry)
            self.result.close_node(node, node.known_status or Status.COMPLETE, None)
            return True
        return super().fill(node, index)

    def _fill_root(self, node: Node, index: ChildIndex) -> None:
        index.entries = []
        for name, start in zip(_NAMES, self.starts, strict=False):
            index.add_entry(self.value_entry(self.program(start), name))
        last_pickle = self.program(self.starts[-1])
        if len(self.starts) < len(_NAMES) or last_pickle.trouble:
            return
        places, end = self._places, self.result.extraction.find_end()
        cut = any(place.size < place.meant for place in places.values())
        last = max((place.begin + place.meant for place in places.values()), default=last_pickle.end)
        finding = next((place.finding for place in places.values() if place.finding is not None), None)
        status = Status.COMPLETE if finding is None else Status.DAMAGED
        if finding is None and (cut or len(places) < len(self._keys())):
            short = cut or self.blank is not None or last + 8 > end
            status = Status.TRUNCATED if short else Status.DAMAGED
            reason = "the storages end early" if short else "a storage is not as the pickle says"
            finding = self.finding_at(status.code, reason, "", min(end, last))
        begin = last_pickle.end
        index.add_entry(Entry("storages", "storages", begin, max(begin, min(last, end)), status=status))
        if node.known_status is None:
            self.result.close_node(node, status, finding)
            if last < end and finding is None:
                self.note_trailing(last, end)

    def find_member(self, name: str) -> Node | None:
        """Return the node of what was saved under the path ``name``; None if there is none."""
        return self.saved_at(name)

    # -- for the viewer ----------------------------------------------------------------------------------------------

    def pickled(self) -> Node | None:
        """Return what was saved."""
        return self.result.root.find("object")

    def _keys(self) -> list[str]:
        program = self.program(self.starts[-1])
        try:
            known = program.value() if len(self.starts) == len(_NAMES) and not program.trouble else None
        except DataError:
            known = None
        if not isinstance(known, list):
            return []
        return [str(key) for key in known if isinstance(key, str) or (isinstance(key, int) and key.bit_length() < 64)]

    @cached_property
    def _places(self) -> dict[str, _StoragePlace]:
        """Where the storages are, in the order of the file."""
        found = self._find_places()
        self._judge_counts(list(found.values()))
        return found

    def _find_places(self) -> dict[str, _StoragePlace]:
        found: dict[str, _StoragePlace] = {}
        if len(self.starts) < len(_NAMES):
            return found
        program = self.program(self.starts[3])
        named = storages_named(program)
        data, end = self.result.extraction.data, self.result.extraction.find_end()
        pos = self.program(self.starts[4]).end
        for key in self._keys():
            storage = named.get(key)
            dtype = DTYPES.get(storage.dtype) if storage is not None else None
            if storage is None or dtype is None or pos + 8 > end:
                break
            head = data.read_known(pos, 8)[0]
            count = int.from_bytes(head, "little", signed=True)
            meant = count if storage.view else storage.count  # ids of views do not say how much there is behind them
            if meant < 0 or len(head) < 8:
                break
            if count != meant and not count and data.access is Access.FREE:
                self.blank = zeros_at_end(data, self.program(self.starts[4]).end, end, program.session.check_cancelled)
                if self.blank <= pos:  # the file has a length, and was not written to its end
                    for place in found.values():
                        place.cut_at(self.blank)
                    break
                self.blank = None
            size = meant * dtype.itemsize
            found[key] = _StoragePlace(data, pos + 8, size, end, count, meant)
            pos += 8 + size
        return found

    def _judge_counts(self, places: list[_StoragePlace]) -> None:
        """Compare the number of elements before each storage with the pickle: if several differ, bytes have moved."""
        wrong = [place.count != place.told for place in places]
        end = self.result.extraction.find_end()
        for number, place in enumerate(places):
            if not wrong[number] or (self.blank is not None and place.begin + place.meant > self.blank):
                continue
            is_last = number + 1 == len(places)
            if wrong[number + 1] if not is_last else place.begin + place.meant != end:
                for moved in places[max(0, number - 1) :]:
                    self._mark(moved, "bytes were lost or came in here: the storages are not where they should be")
                return
            self._mark(place, f"the file gives it {place.count:,} elements, the pickle {place.told:,}")

    def _mark(self, place: _StoragePlace, reason: str) -> None:
        place.finding = self.finding_at("bad-storage", reason, "", place.begin - 8, length=8)
        place.status = Status.DAMAGED

    def stored(self, key: str) -> Stored | None:
        """Return a storage by its key."""
        return self._places.get(key)

    def keys(self) -> Iterator[str]:
        """Yield the keys of the storages in the file."""
        return iter(self._places)
