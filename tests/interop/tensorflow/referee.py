"""TensorFlow as the referee: its C++ Merger, its loader and its fingerprints, each called in a child process.

Some inputs abort TensorFlow's Merger. A child that dies is reported as :class:`Aborted` and replaced at the next call.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from tests.interop.tensorflow.build import shim, tensorflow_python
from tests.interop.tensorflow.worker import read_frame, write_frame

WORKER = Path(__file__).with_name("worker.py")
SECONDS = 120
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}


class RefereeError(Exception):
    """TensorFlow said no: ``code`` is the absl status code, ``partial`` the message as it then was."""

    def __init__(self, code: int, text: str, partial: bytes) -> None:
        super().__init__(f"[{code}] {text}")
        self.code = code
        self.text = text
        self.partial = partial


class Aborted(Exception):
    """The call ended the process: by which signal or exit code, and the last it wrote."""


class Child:
    """A process that answers calls one by one; started at the first, and again after it has died."""

    def __init__(self, *arguments: str) -> None:
        self._command = [tensorflow_python(), "-P", str(WORKER), *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the child
        self.started = 0

    def call(self, name: str, *args: bytes) -> list[bytes]:
        """Return what the function answers; raises RefereeError or Aborted."""
        process = self._start()
        # A call without end is an abort too.
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            write_frame(process.stdin, [name.encode(), *args])
            answer = read_frame(process.stdout)
        except BrokenPipeError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            raise Aborted(f"{name}: {self._bury()}")
        code, *found = answer
        if int(code):
            raise RefereeError(int(code), found[0].decode("utf-8", "replace"), found[1])
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._log.seek(0)
            self._log.truncate()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **QUIET},
            )
            self.started += 1
        return self._process

    def _bury(self) -> str:
        process = self._process
        self._end()
        code = process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        # The fatal complaint comes before the stack, notes of the start before both.
        said = [line for line in lines if line and not line.startswith(("WARNING", "I0000", "W0000", "    @"))]
        return " ".join([how, *said])[:600]

    def close(self) -> None:
        """End the process, for good."""
        self._end()
        self._log.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
            process.wait()


class Referee:
    """TensorFlow's answers. Message types are those compiled into TensorFlow, or those of ``fds``, a serialized
    FileDescriptorSet whose files come after what they import."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError if TensorFlow or g++ is not here; the shim is kept in ``folder``."""
        self._merger = Child(str(shim(folder)))
        self._package = Child()

    @property
    def started(self) -> int:
        """How many children there have been for the Merger: one, and one more for every abort."""
        return self._merger.started

    def read(self, prefix: os.PathLike | str, full_name: str, fds: bytes = b"", start: bytes = b"") -> bytes:
        """Return what Merger::Read makes of a message with the content ``start``, serialized deterministically."""
        return self._merger.call("read", os.fsencode(prefix), full_name.encode(), fds, start)[0]

    def read_string(self, content: bytes, full_name: str, fds: bytes = b"", start: bytes = b"") -> bytes:
        """Return what Merger::ReadChunkedFromString makes of the content of a .cpb file."""
        return self._merger.call("read_string", content, full_name.encode(), fds, start)[0]

    def read_partial(self, prefix: os.PathLike | str, metadata: bytes, full_name: str, fds: bytes = b"") -> bytes:
        """Return what Merger::ReadPartial makes of a .cpb with this serialized ChunkMetadata."""
        return self._merger.call("read_partial", os.fsencode(prefix), metadata, full_name.encode(), fds)[0]

    def merge(self, chunks: list[tuple[str, bytes]], tree: bytes, full_name: str, fds: bytes = b"") -> bytes:
        """Return what Merger::Merge makes of chunks (type, content) and a serialized ChunkedMessage."""
        pieces = [piece for kind, content in chunks for piece in (kind.encode(), content)]
        return self._merger.call("merge", tree, full_name.encode(), fds, *pieces)[0]

    def fingerprint64(self, text: bytes) -> int:
        """Return FarmHash's Fingerprint64."""
        return int(self._merger.call("fingerprint64", text)[0])

    def make_saved_model(self, folder: os.PathLike | str) -> None:
        """Have TensorFlow save a model: signatures ``serving_default`` (x [?, 160], n) and ``look_up`` (words [?])."""
        self._package.call("make_saved_model", os.fsencode(folder))

    def run_saved_model(self, folder: os.PathLike | str, inputs: dict, signature: str = "serving_default") -> dict:
        """Load a SavedModel, run a signature; values are numbers or nested lists."""
        asked = json.dumps(inputs).encode()
        return json.loads(self._package.call("run_saved_model", os.fsencode(folder), signature.encode(), asked)[0])

    def constants(self, graph: bytes) -> dict[str, list]:
        """Return ``{name: [dtype, shape, sha256 of the bytes, or list of strings as hex]}``, as a session has them."""
        return json.loads(self._package.call("constants", graph)[0])

    def create_fingerprint(self, folder: os.PathLike | str) -> bytes:
        """Return the serialized FingerprintDef that TensorFlow makes for a SavedModel folder."""
        return self._package.call("create_fingerprint", os.fsencode(folder))[0]

    def close(self) -> None:
        """End the children."""
        self._merger.close()
        self._package.close()
