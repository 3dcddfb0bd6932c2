"""Hot loops: plain annotated functions over bytes, without objects of ours and without I/O.

Here is what hashes with a C twin have in common: which of the two serves, and how they take a buffer. mypyc compiles
the others (setup.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Buffer = bytes | bytearray | memoryview
    Class = TypeVar("Class")


def twin(name: str) -> Any:
    """Return the C extension ``name``; None if it was not built, or ``PPARSE_PURE_PYTHON`` asks for Python."""
    if os.environ.get("PPARSE_PURE_PYTHON", "0") not in ("", "0"):
        return None
    import importlib

    try:
        return importlib.import_module(f"pparse.kernels.{name}")
    except (ImportError, SystemError):  # the latter: it was built for another kind of interpreter
        return None


def interpreted(cls: type[Class]) -> type[Class]:
    """Mark a class that stays one of Python's in a compiled module: what it derives from is C, or not compiled."""
    return cls


def flattened(data: Buffer) -> bytes | memoryview:
    """Return the bytes of a buffer, without a copy.

    Raises TypeError for what is no buffer, BufferError for one that is not C-contiguous.
    """
    if type(data) is bytes:
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the buffer is not C-contiguous")
    return view.cast("B") if view.nbytes else b""  # cast refuses shapes with a zero
