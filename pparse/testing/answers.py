"""What documents and tensors say of themselves, asked in several ways: see `pparse.testing.contract`."""

from __future__ import annotations

from contextlib import suppress

from pparse.errors import UnsupportedError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.document.extraction import Extraction
    from pparse.tensors.extent import Extent
    from pparse.tensors.tensor import Tensor


def extent_of(extraction: Extraction) -> Extent | None:
    """Return how much of a document is there, by its viewer; None if it has none."""
    found: Extent | None = None
    with suppress(UnsupportedError):  # no tensors
        found = extraction.view().extent()
    return found


def statuses(extraction: Extraction) -> dict[str, Status]:
    """Return the status of a document, by who reports it."""
    told = {"the root": extraction.root.status, "the result": extraction.parse().status}
    with suppress(UnsupportedError):  # no tensors
        told["the viewer"] = extraction.view().status
    return told


def judged(tensors: list[Tensor]) -> list[tuple[str, Status]]:
    """Return the statuses of tensors, after the checksums of those that are not whole, which may clear them."""
    for tensor in tensors * 2:  # the checksum of one may contradict bytes that it shares with another
        if tensor.status is not Status.COMPLETE:
            tensor._confirm()
    return [(tensor.name, tensor.status) for tensor in tensors]
