"""What tests of the command line share."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Ran:
    """What a run of the command gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> dict:
        assert self.err == ""
        return json.loads(self.out)

    @property
    def jsonl(self) -> list[dict]:
        assert self.err == ""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run ``pparse`` with these arguments in this process."""
    from pparse.cli import main

    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return call


def safetensors(header: dict | bytes, data: bytes = b"") -> bytes:
    """Return a safetensors file with that header and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


@pytest.fixture
def model(tmp_path):
    """Write a safetensors file: ``model({name: (dtype, shape, bytes)})``; returns its path."""

    def write(tensors: dict, name: str = "model.safetensors", metadata: dict | None = None, cut: int = 0) -> Path:
        header: dict = {"__metadata__": metadata} if metadata is not None else {}
        data = b""
        for tensor, (dtype, shape, content) in tensors.items():
            begin, end = len(data), len(data) + len(content)
            header[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
            data += content
        whole = safetensors(header, data)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole[: len(whole) - cut])
        return path

    return write


@pytest.fixture
def samples(monkeypatch) -> str:
    """Go to the root of the repository; the folder of the samples, from there."""
    monkeypatch.chdir(ROOT)
    return "docs/samples"


@pytest.fixture(scope="session")
def many(tmp_path_factory) -> Path:
    """A file of 25,000 tensors, in an order that is not that of their names."""
    header = {
        f"layers.{(number * 7919) % 25_000}.weight": {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]}
        for number in range(25_000)
    }
    path = tmp_path_factory.mktemp("many") / "many.safetensors"
    path.write_bytes(safetensors(header, bytes(25_000)))
    return path
