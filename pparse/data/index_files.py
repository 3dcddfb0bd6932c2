"""Indexes that are kept in files: where they are (beside the file, or in a cache), and which file one is of.

What stands in one is its format's business: `pparse.compressed.gzip_index`, `pparse.tree.row_index`.
"""

from __future__ import annotations

import os
import struct

from pparse.data.files import is_file, is_folder, open_file
from pparse.errors import DataChangedError, MalformedError, PparseError, UnsupportedError
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Protocol, TypeVar

    from pparse.data.base import Data, IoStats, Range
    from pparse.data.files import DescriptorPool
    from pparse.limits import MemoryBudget

    class KeptIndex(Protocol):
        """An index that was read from a file."""

        def __init__(self, data: Data, budget: MemoryBudget) -> None:
            """Read it. Raises `MalformedError`, `UnsupportedError`, `LimitError`."""

        def matches(self, source: Range) -> bool:
            """Say whether it is an index of ``source``."""

    Kind = TypeVar("Kind", bound=KeptIndex)

SUFFIX: Final = ".pindex"

_PERSON: Final = b"pparse gz index"  # of all fingerprints, whatever the index: what the first ones were made with
# What a fingerprint looks at: so many samples of so many bytes.
_SAMPLES: Final = 16
_SAMPLE: Final = 4 * KIB


def fingerprint(source: Range) -> bytes:
    """Return 16 bytes that tell ``source`` from others: BLAKE2b of its size and of samples of its bytes.

    Those are its first and last 4 KiB and fourteen stretches of 4 KiB evenly between; all of it up to 64 KiB. What
    lies in a gap counts as zeros.
    """
    from hashlib import blake2b

    start = source.start
    size = source.end - start
    digest = blake2b(struct.pack("<Q", size), digest_size=16, person=_PERSON)
    if size <= _SAMPLES * _SAMPLE:
        digest.update(source.data.read_known(start, size)[0])
        return digest.digest()
    for number in range(_SAMPLES):
        at = (size - _SAMPLE) * number // (_SAMPLES - 1)
        digest.update(source.data.read_known(start + at, _SAMPLE)[0])
    return digest.digest()


def cache_folder() -> str:
    """Return the folder of indexes that do not lie beside their files (`XDG_CACHE_HOME`, ``~/.cache``)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pparse", "gzip-index")


def cache_path(source: Range) -> str:
    """Return the name that the index of ``source`` has in the cache: a copy of the file has the same."""
    return os.path.join(cache_folder(), fingerprint(source).hex() + SUFFIX)


def load_index(
    kind: type[Kind],
    path: str,
    source: Range,
    budget: MemoryBudget,
    pool: DescriptorPool | None = None,
    stats: IoStats | None = None,
) -> Kind:
    """Return the index in the file ``path``, if it is one of ``source``.

    Raises `MalformedError` if it is not, or no sound index at all, `UnsupportedError`, `SourceError`, `LimitError`.
    """
    data = open_file(path, pool, stats)
    try:
        index = kind(data, budget)
        if not index.matches(source):
            raise MalformedError("the index was made for another file, or for earlier content of this one", source=path)
        return index
    except BaseException:
        data.close()
        raise


def find_index(
    kind: type[Kind],
    source: Range,
    budget: MemoryBudget,
    pool: DescriptorPool | None = None,
    stats: IoStats | None = None,
    *,
    option: str = "auto",
) -> tuple[Kind | None, list[PparseError]]:
    """Return the index of the file ``source``, beside it or in the cache, and why others were not taken.

    ``option``: "none", for no index, or the path of one, whose `SourceError` and `LimitError` are raised.
    """
    errors: list[PparseError] = []
    path = source.data.path
    if option == "none" or not source.data.is_file or path is None:
        return None, errors
    if option != "auto":
        try:
            return load_index(kind, option, source, budget, pool, stats), errors
        except (MalformedError, UnsupportedError) as wrong:
            wrong.source = wrong.source or option
            return None, [wrong]
    places = [path + SUFFIX]
    if is_folder(cache_folder()):
        places.append(cache_path(source))
    for place in places:
        if is_file(place):
            try:
                return load_index(kind, place, source, budget, pool, stats), errors
            except DataChangedError:
                raise
            except PparseError as error:
                error.source = place
                errors.append(error)
    return None, errors
