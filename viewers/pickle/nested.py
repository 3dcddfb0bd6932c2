"""Storages that are saved as the bytes of a checkpoint of their own, as tensors in plain pickles are."""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.document.extraction import Extraction
from pparse.errors import PASSING, PparseError
from pparse.parsers.pickle.values import Persistent
from pparse.parsers.pytorch.rebuild import StorageId, storage_id
from pparse.parsers.pytorch.storages import Checkpoint


def storage_in(outer: Extraction, content: bytes) -> StorageId | None:
    """Return the storage in ``content``, a checkpoint with nothing else; None if it is not one that can be read."""
    inner = Extraction(outer.session, f"{outer.name} (storage)", BytesData(content, outer.name), 0, len(content), outer)
    try:
        inner.go_deeper()
        parser = inner.parse().parser
        root = parser.pickled() if isinstance(parser, Checkpoint) else None
        if root is None:
            return None
        value = root.result.parser.to_python(root)
        found = storage_id(value) if isinstance(value, Persistent) else None
        if found is None:
            return None
        found.held = parser.stored(found.key)  # type: ignore[attr-defined]
    except PASSING:
        raise
    except PparseError:
        return None
    return found if found.held is not None else None
