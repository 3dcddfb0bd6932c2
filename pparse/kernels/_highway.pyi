"""The C extension, where it was built; see `pparse.kernels.highway`."""

from pparse.data.base import Buffer

def hash64(data: Buffer, /) -> int:
    """Return the HighwayHash-64 of the bytes of a buffer."""

class Highway64:
    """HighwayHash-64 of what comes piece by piece."""

    def update(self, data: Buffer, /) -> None:
        """Take in more bytes."""
    def digest(self) -> int:
        """Return the hash of all bytes up to now; more may follow."""
    def copy(self) -> Highway64:
        """Return another that goes on from here by itself."""
