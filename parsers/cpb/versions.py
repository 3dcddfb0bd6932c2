"""Versions of the chunked proto format (``.cpb``): the version written, and which versions can be read.

The ``VersionDef`` of a file has the version of the splitter that wrote it (``splitter_version``, for information), the
least version of a merger that can merge it (``join_version``), and versions of mergers known to fail on it
(``bad_consumers``). TensorFlow's Merger ignores them all (tensorflow/tools/proto_splitter, version.py, versions.proto;
merge.cc).
"""

from __future__ import annotations

from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

# The versions that the splitter writes.
SPLITTER_VERSION: Final = 1
# The version of the readers: they cannot merge a file with a higher join_version.
JOIN_VERSION: Final = 0


def check_versions(join_version: int, bad_consumers: Iterable[int], *, source: str | None = None) -> None:
    """Raise `UnsupportedError`, naming the version needed, if a file is not for readers of `JOIN_VERSION`.

    ``join_version`` and ``bad_consumers`` are those of the file's VersionDef (0 and none without a VersionDef);
    ``source`` is the file's name, for the error.
    """
    bad = set(bad_consumers)
    least = max(join_version, JOIN_VERSION)
    if least == JOIN_VERSION and JOIN_VERSION not in bad:
        return
    while least in bad:  # at most as many steps as versions in the set
        least += 1
    if join_version > JOIN_VERSION:
        reason = f"its chunks need a reader with join version {join_version}"
    else:
        reason = f"it excludes readers with join version {JOIN_VERSION}"
    error = UnsupportedError(f"{reason}; it needs join version {least} or later, this reader has {JOIN_VERSION}")
    error.source = source
    error.wanted = least
    error.got = JOIN_VERSION
    raise error
