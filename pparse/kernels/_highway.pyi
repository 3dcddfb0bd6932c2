"""The C extension, if it was built; see `pparse.kernels.highway`."""

from pparse.data.base import Buffer

def hash64(data: Buffer, /) -> int:
    """Return the HighwayHash-64 of the bytes of a buffer."""

class Highway64:
    """HighwayHash-64 of data that comes in pieces."""

    def update(self, data: Buffer, /) -> None:
        """Add more bytes."""
    def digest(self) -> int:
        """Return the hash of all bytes so far; more may follow."""
    def copy(self) -> Highway64:
        """Return an independent copy in the same state."""
