"""Versions of the chunked proto format (``.cpb``): what we write, what we can join, and whether a file may be read.

A file's ``VersionDef`` says which version of the splitter wrote it (``splitter_version``, for information only), the
least version of a merger that can put it together (``join_version``), and versions of mergers that are known to get it
wrong (``bad_consumers``). TensorFlow's Merger looks at none of them (tensorflow/tools/proto_splitter, version.py,
versions.proto; merge.cc).
"""

from __future__ import annotations

from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

# What our splitter writes into a file.
SPLITTER_VERSION: Final = 1
# What our readers are: a file whose join_version is above cannot be put together by them.
JOIN_VERSION: Final = 0


def check_versions(join_version: int, bad_consumers: Iterable[int], *, source: str | None = None) -> None:
    """Raise `UnsupportedError`, saying which version is needed, if a file is not for readers of `JOIN_VERSION`.

    ``join_version`` and ``bad_consumers`` as the file's VersionDef has them (0 and none where it has no VersionDef);
    ``source`` is the file's name, for the error.
    """
    bad = set(bad_consumers)
    least = max(join_version, JOIN_VERSION)
    if least == JOIN_VERSION and JOIN_VERSION not in bad:
        return
    while least in bad:  # as many steps at most as there are versions in the set
        least += 1
    if join_version > JOIN_VERSION:
        reason = f"its chunks need a reader of join version {join_version}"
    else:
        reason = f"it says that readers of join version {JOIN_VERSION} get it wrong"
    error = UnsupportedError(f"{reason}; it can be read from join version {least} on, this one is {JOIN_VERSION}")
    error.source = source
    error.wanted = least
    error.got = JOIN_VERSION
    raise error
