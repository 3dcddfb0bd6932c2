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


# -- the truth matrix: which cases are run, and what is told of them ------------------------------------------------


def pytest_addoption(parser):
    group = parser.getgroup("truth", "the truth matrix (tests/truth)")
    group.addoption("--truth-cases", type=int, default=None, metavar="N", help="run N cases, and sum them up")
    group.addoption("--truth-seed", type=int, default=0, metavar="S", help="draw the cases from this seed")
    group.addoption("--truth-case", action="append", default=[], metavar="CASE", help="run this case; repeatable")


def pytest_generate_tests(metafunc):
    if "truth_case" not in metafunc.fixturenames:
        return
    from tests.truth.cases import DEFAULT_CASES, choose

    options = metafunc.config.option
    cases = options.truth_case or choose(options.truth_cases or DEFAULT_CASES, options.truth_seed)
    metafunc.parametrize("truth_case", cases, ids=cases)


@pytest.fixture
def truth_tally(request):
    """Note what is wrong with a case, for the sum at the end."""

    def note(problems: list) -> None:
        clauses = "".join(sorted({letter for letter, _ in problems}))
        request.node.user_properties.append(("truth", clauses))

    return note


def pytest_terminal_summary(terminalreporter, config):
    if config.option.truth_cases is None:
        return
    told = [
        (dict(report.user_properties)["truth"], report.duration)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call" and "truth" in dict(report.user_properties)
    ]
    seconds = sum(duration for _, duration in told)
    terminalreporter.section("truth matrix")
    terminalreporter.line(f"{len(told)} cases, {len(told) / max(seconds, 0.001):.1f} a second of work, "
                          f"{sum(bool(clauses) for clauses, _ in told)} failed")  # fmt: skip
    for letter in sorted(set("".join(clauses for clauses, _ in told))):
        terminalreporter.line(f"  clause {letter}: {sum(letter in clauses for clauses, _ in told)} cases")
