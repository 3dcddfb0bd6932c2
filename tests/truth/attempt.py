"""One case on the disk, and all that a way into it came to."""

from __future__ import annotations

import contextlib
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pparse
from pparse.data.base import Data, Distance, IoStats
from pparse.data.files import FileData
from pparse.document.opening import enter_next
from pparse.errors import PparseError
from pparse.findings import FindingList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pparse.findings import Finding
    from tests.truth.cases import Case
    from tests.truth.known import Value

BUDGET = 32 << 20


class FarFile(Data):
    """A file that is read by requests. The reads are not counted: those of the cache in front of it are."""

    distance = Distance.FAR

    def __init__(self, path: str) -> None:
        self._file = FileData(path)
        super().__init__(path, self._file.size)

    def pread(self, offset: int, length: int) -> bytes:
        return self._file._pread(offset, self._clip(offset, length))

    def _pread(self, offset: int, length: int) -> bytes:
        raise AssertionError("nobody asks for this")

    def preadinto(self, offset: int, buffer: Any) -> int:
        content = self.pread(offset, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._file.holes(start, end)

    def close(self) -> None:
        self._file.close()
        super().close()


class FarFolder(pparse.Folder):
    """A folder of such files."""

    def __init__(self, path: str) -> None:
        self._where = path

    def list(self) -> Sequence[str]:
        return os.listdir(self._where)

    def open(self, name: str) -> Data:
        return FarFile(os.path.join(self._where, name))


@dataclass
class Seen:
    """What a way said of one value: ``content`` if it handed it out, else the error's name; and by what call."""

    name: str
    status: str
    verified: bool | None = None
    content: bytes | None = None
    error: str = ""
    by: str = ""


@dataclass
class Command:
    """What a run of the command gave."""

    words: list[str]
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> dict[str, Any] | None:
        """Its output, if that is JSON."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


@dataclass
class Attempt:
    """One case on the disk, and all that a way into it came to.

    ``values`` of the sample; ``files`` that came out of an archive, by path; ``forgotten``, what a second question did
    not know though the first had found it out; ``crashes``, errors that are not the package's own; ``read_all``:
    whether the way looks at everything.
    """

    case: Case
    folder: Path
    path: str
    values: list[Seen] = field(default_factory=list)
    files: dict[str, Seen] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    listed: dict[str, str] | None = None
    report: dict[str, Any] | None = None
    out: Path | None = None
    read_all: bool = False
    served: int = 0
    steps: int = 0
    questions: int = 0
    peak: int = 0

    @property
    def target(self) -> str:
        """The path of the sample: through the archives, if it is in some."""
        return "::".join((self.path, *self.case.wrapped.inner))

    @property
    def truth(self) -> dict[str, Value]:
        """The values that the target should have: in a folder, those of all shards."""
        sample = self.case.sample
        return {**sample.values, **sample.sibling_values} if self.case.wrapped.folder or sample.leads else sample.values

    @property
    def file(self) -> str:
        """The file itself: of a folder the one that is hit, where a command takes no folder."""
        sample = self.case.sample
        entered = not self.case.wrapped.folder or (sample.folder_only and bool(sample.saved))  # saved as a whole
        return self.path if entered else str(Path(self.path).with_name(self.case.wrapped.name))

    @property
    def options(self) -> dict[str, str]:
        """Options that the format needs."""
        return {"message": self.case.sample.message} if self.case.sample.message else {}

    def run(self, *words: str) -> Command:
        """Run a command in this process."""
        from pparse.cli import main

        name, *rest = words
        extra = [f"-Omessage={self.case.sample.message}"] if self.case.sample.message else []
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([name, *rest, *extra])
        self.questions += 1
        out.flush()
        command = Command(list(words), code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]
        self.commands.append(command)
        return command

    def open_far(self, path: str, **options: Any) -> Any:
        """Open the sample as `pparse.open` does, with all files far away."""
        wrapped = self.case.wrapped
        beside = wrapped.folder or (wrapped.sample.leads and not wrapped.inner)
        folder = FarFolder(os.path.dirname(path)) if beside else None
        document = pparse.open(FarFile(path), folder=folder, **options)
        names = list(self.case.wrapped.inner)
        while names:
            document, taken = enter_next(document, names)
            del names[:taken]
        return document

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Let the package's own errors go by, and keep every other one."""
        try:
            yield
        except PparseError as error:
            if type(error).__name__ == "EngineError":
                self.crashes.append(f"{what}: {error!r}")
        except (TimeoutError, KeyboardInterrupt):
            raise
        except Exception as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            self.crashes.append(f"{what}: {error!r} at {where.filename.rpartition('/')[2]}:{where.lineno}")

    def inside(self, path: str, work: Callable[[Any], None], opener: Callable[..., Any] = pparse.open) -> None:
        """Open a document within the budget, do ``work`` with it, and note what it took."""
        self.questions += 1
        with self.guarded(f"open({os.path.basename(path)!r})"):
            document = opener(path, budget=BUDGET, options=self.options)
            try:
                work(document)
            finally:
                self.peak = max(self.peak, document.session.budget.peak)
                document.close()


@contextlib.contextmanager
def counted(attempt: Attempt) -> Iterator[None]:
    """Count the bytes that all sources serve meanwhile, and as steps their reads, and findings."""
    count, add = IoStats.count, FindingList.add

    def counting(self: IoStats, source: str, offset: int, length: int) -> None:
        attempt.served += length
        attempt.steps += 1
        count(self, source, offset, length)

    def adding(self: FindingList, finding: Finding) -> None:
        attempt.steps += 1
        add(self, finding)

    IoStats.count, FindingList.add = counting, adding  # type: ignore[method-assign]
    try:
        yield
    finally:
        IoStats.count, FindingList.add = count, add  # type: ignore[method-assign]
