from __future__ import annotations

import io
import tarfile

from pparse.parsers.tar.parser import TarParser
from tests.sparse_contract import SparseContract


def made(format: int, *members: tuple[str, bytes]) -> bytes:
    """Return a small archive: as tarfile writes it, with the two blocks of its end."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(content))
        end = archive.offset
    return out.getvalue()[: end + 1024]


def sparse() -> bytes:
    info = tarfile.TarInfo("sparse")
    info.type, info.size = b"S", 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    for at, number in ((386, 1024), (398, 512), (410, 4096), (422, 0), (483, 4096)):
        header[at : at + 12] = b"%011o\0" % number
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + b"stored" * 85 + b"!!" + bytes(1024)


class TestTar(SparseContract):
    parser = TarParser

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """An archive may end behind any member: the marks of its end are often left out, and so only a warning."""
        if not prefix:
            return True
        try:
            with tarfile.open(fileobj=io.BytesIO(prefix)) as archive:
                archive.getmembers()
        except tarfile.ReadError:
            return False
        return len(prefix) % tarfile.BLOCKSIZE == 0

    # A whole archive is parsed for each change of each byte.
    changes = (0x00, 0x31, 0xFF)
    samples = {
        "gnu": made(tarfile.GNU_FORMAT, ("a.txt", b"some text\n" * 9), ("b", b"")),
        "sparse": sparse(),
    }

    def large(self) -> bytes:
        return made(tarfile.GNU_FORMAT, *((f"m{number}", bytes(3 << 20)) for number in range(3)))


class TestTarWithExtendedHeaders(TestTar):
    changes = (0x41,)
    samples = {
        "pax": made(tarfile.PAX_FORMAT, ("ä" * 60, b"content")),
        "long": made(tarfile.GNU_FORMAT, ("n" * 130, b"content")),
    }
