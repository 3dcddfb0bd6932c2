"""All persistent ids in a pickle, wherever they stand in it: the storages that a checkpoint names."""

from __future__ import annotations

from pparse.errors import PASSING, PparseError
from pparse.kernels.pickle_scan import Scan
from pparse.parsers.pickle.reading import Reading
from pparse.parsers.pickle.values import Persistent
from pparse.parsers.pytorch.rebuild import storage_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.parsers.pickle.decoder import Decoder
    from pparse.parsers.pickle.program import Program
    from pparse.parsers.pytorch.rebuild import StorageId


def storages_named(program: Program, decoder: Decoder) -> dict[str, StorageId]:
    """Return the storages that ``program`` names, by key, as the first id of each says."""
    found: dict[str, StorageId] = {}
    limits = program.session.limits
    state = Scan()
    state.ids = []

    def note(_reading: Reading) -> None:
        for slot, end in state.ids or ():
            try:
                named = storage_id(Persistent(decoder.decode(slot >> 8, end)))
            except PASSING:
                raise
            except PparseError:
                continue
            if named is not None:
                found.setdefault(named.key, named)
        limits.check("entries", len(found), "the number of storages")
        if state.ids is not None:
            state.ids.clear()
        for part in (state.items, state.pairs, state.cuts, state.states):
            part.clear()

    Reading(program.session, program.data, program.start, state).run(program.end, program.known_end, after=note)
    return found
