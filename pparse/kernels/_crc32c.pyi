"""The C extension, if it was built; see `pparse.kernels.crc32c`."""

from pparse.data.base import Buffer

def crc32c(data: Buffer, crc: int = 0, /) -> int:
    """Return the CRC-32C of a buffer, continued from that of the bytes before it."""

def by_tables(data: Buffer, crc: int = 0, /) -> int:
    """Do what ``crc32c`` does on a processor without an instruction for it."""
