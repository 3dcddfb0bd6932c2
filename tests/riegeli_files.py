"""Files of all kinds to write Riegeli records to and read them from: in memory, on the disk, sought or not."""

from __future__ import annotations

import io
from typing import Any


class Remote:
    """A file as some libraries for remote storage have it: no readinto, write says nothing and takes bytes only."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = open(path, mode)  # noqa: SIM115 -- closed by close
        self.name = path

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def write(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"bytes only, not {type(data).__name__}")
        self._file.write(data)

    def seek(self, offset: int, whence: int = 0) -> None:
        self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class OneWay:
    """What a file is through a pipe: it says that it cannot be sought, and is not asked where it stands."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def seekable(self) -> bool:
        return False

    def seek(self, *args: object) -> None:
        raise AssertionError("seek() of a file that is not seekable")

    tell = seek

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Unasked(OneWay):
    """A file with ``assumed_pos``: nobody asks whether it is seekable."""

    def seekable(self) -> bool:
        raise AssertionError("seekable() though assumed_pos is given")


KINDS = ("memory", "unbuffered", "buffered", "remote")
WAYS = ("sought", "one way", "assumed")


class Place:
    """Where a file is: opens it again and again, as a file object of ``kind`` that is used in a ``way``."""

    def __init__(self, folder: Any, kind: str, way: str = "sought") -> None:
        self.kind = kind
        self.way = way
        self._path = str(folder / "records")
        self._memory = io.BytesIO()

    @property
    def owned(self) -> bool:
        return self.kind != "memory"

    @property
    def random_access(self) -> bool:
        return self.way == "sought"

    def _open(self, mode: str) -> Any:
        if self.kind == "memory":
            if mode == "wb":
                self._memory = io.BytesIO()
            self._memory.seek(0, io.SEEK_END if mode == "ab" else io.SEEK_SET)
            file: Any = self._memory
        elif self.kind == "remote":
            file = Remote(self._path, mode)
        else:
            file = open(self._path, mode, buffering=0 if self.kind == "unbuffered" else -1)  # noqa: SIM115
        return file if self.way == "sought" else OneWay(file) if self.way == "one way" else Unasked(file)

    @property
    def _assumed(self) -> dict[str, int]:
        return {"assumed_pos": 0} if self.way == "assumed" else {}

    def writing(self, mode: str = "wb") -> tuple[Any, dict[str, Any]]:
        """A file to write to, and the arguments that a writer needs with it."""
        return self._open(mode), {"owns_dest": self.owned, **self._assumed}

    def reading(self) -> tuple[Any, dict[str, Any]]:
        """A file to read from, and the arguments that a reader needs with it."""
        return self._open("rb"), {"owns_src": self.owned, **self._assumed}

    @property
    def content(self) -> bytes:
        if self.kind == "memory":
            return self._memory.getvalue()
        with open(self._path, "rb") as file:
            return file.read()

    @content.setter
    def content(self, value: bytes) -> None:
        self._memory = io.BytesIO(value)
        if self.kind != "memory":
            with open(self._path, "wb") as file:
                file.write(value)
