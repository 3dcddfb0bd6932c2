from __future__ import annotations

import io
import zipfile

from pparse.parsers.zip.parser import ZipParser
from tests.sparse_contract import SparseContract
from tests.zip_samples import Sink, add


def plain() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        add(archive, "a.txt", b"hello zip, " * 30, zipfile.ZIP_DEFLATED)
        add(archive, "b/", b"")
        add(archive, "b/raw.bin", bytes(range(40)))
        add(archive, "ü", b"umlaut", zipfile.ZIP_BZIP2)
        add(archive, "c", b"lzma" * 20, zipfile.ZIP_LZMA)
    return out.getvalue()


def streamed() -> bytes:
    out = Sink()
    with zipfile.ZipFile(out, "w") as archive:  # type: ignore[call-overload]
        add(archive, "a.txt", b"hello zip, " * 30, zipfile.ZIP_DEFLATED)
        add(archive, "empty", b"", zipfile.ZIP_DEFLATED)
        add(archive, "last", b"more " * 8, zipfile.ZIP_DEFLATED)
    return bytes(out.written)


class TestZip(SparseContract):
    parser = ZipParser
    samples = {"plain": plain(), "streamed": streamed()}
    changes = (0x00, 0x01, 0x50, 0x7F, 0xFF)

    def large(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for number in range(9):
                add(archive, f"m{number}", bytes(1 << 20))
        return out.getvalue()
