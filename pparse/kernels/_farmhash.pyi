"""The C extension, if it was built; see `pparse.kernels.farmhash`."""

from pparse.data.base import Buffer

def fingerprint64(data: Buffer, /) -> int:
    """Return the Fingerprint64 of the bytes of a buffer."""

def absorb(state: bytes, data: Buffer, /) -> bytes:
    """Return the state, 56 bytes, after the blocks of ``data``, whose size is a multiple of 64."""
