"""numpy files made by numpy itself, in memory."""

from __future__ import annotations

import io
import zipfile

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def npy(array: Any, *, version: tuple[int, int] | None = None) -> bytes:
    """Return ``array`` as an .npy file; of Python objects, as a pickle."""
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(array), version, allow_pickle=True)
    return out.getvalue()


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    """Return an .npz file of ``arrays``."""
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED, *, force_zip64: bool = True) -> bytes:
    """Return a zip of ``members``, as numpy writes it: with the sizes in an extra field."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as found:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with found.open(info, "w", force_zip64=force_zip64) as member:
                member.write(content)
    return out.getvalue()


def with_header(text: str | bytes, content: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """Return an .npy file with this text as its header, filled up as numpy does."""
    raw = text if isinstance(text, bytes) else text.encode()
    width = 2 if version == (1, 0) else 4
    raw += b" " * (-(8 + width + len(raw) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + len(raw).to_bytes(width, "little") + raw + content
