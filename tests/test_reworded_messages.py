"""Messages are for people: with other words in them, all that a command tells a program stays as it is.

Ten messages at a time, of those that some command here really shows, get other words, and the same commands are run.
What code goes by, exit codes, statuses, codes and numbers, must not notice.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import sweep
from tests.truth.cases import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

CASES = [
    "safetensors/plain/none",
    "safetensors/plain/cut:9000",
    "safetensors/plain/bit:90:3",
    "safetensors/zip-deflated/cut:9000",
    "safetensors/gz/bit:9000:2",
    "safetensors-meta/tar/noise:700:16:5",
    "json/plain/cut:3000",
    "json/plain/noise:700:16:1",
    "json/gz/cut:900",
    "json/zip-stored/bit:40:0",
    "json/tar-gz-of-zip/noise:700:16:2",
    "json/bz2/bit:500:1",
    "protobuf/xz/cut:1000",
    "graph-def/zst/bit:300:4",
    "riegeli-brotli/plain/zeros:300:100",
    "riegeli-plain/zip-in-zip/cut:12000",
    "cpb-zstd/plain/bit:2000:5",
    "cpb-plain/lz4/cut:9000",
]
TRAILING = ["safetensors/gz/none", "json/zip-deflated/none", "json/bz2/none"]
MESSAGES = 10
# Words of zlib, which has no codes: they are looked for in its errors.
NOT_OURS = ("incorrect data check", "incorrect length check", "too far back")


def write(text: str, folder: Path, number: int, behind: bytes = b"") -> list[list[str]]:
    """Write the file of a case; return the commands on it."""
    case = Case.parse(f"{text}/ls")
    place = folder / str(number)
    place.mkdir()
    path = Path(case.write(place))
    if behind:
        path.write_bytes(path.read_bytes() + behind)
    outer = str(path.relative_to(folder))
    target = "::".join((outer, *case.wrapped.inner))
    option = ["-O", f"message={case.sample.message}"] if case.sample.message else []
    name = sorted(case.sample.values)[0]
    if case.sample.kind == "keys":
        name = f"[{json.dumps(name)}]" if case.sample.name == "json" else f"[{name}]"
    return [
        ["ls", target, "--json", *option],
        ["check", target, "--json", *option],
        ["check", "-R", outer, "--json"],
        ["info", target, "--json", *option],
        ["get", target, name, "--json", *option],
        ["recover", outer, "-o", "out", "--json"],
    ]


def without_reasons(value: Any) -> Any:
    """Return a value of JSON without the texts of reasons, and without the hashes of files of these."""
    if isinstance(value, dict):
        words = {"reason", "sha256"} if str(value.get("path")).endswith(".rest.json") else {"reason"}
        return {key: "…" if key in words and each else without_reasons(each) for key, each in value.items()}
    return [without_reasons(each) for each in value] if isinstance(value, list) else value


def what_programs_see(ran: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a program may go by of a command that was run."""

    def parsed(text: str) -> Any:
        try:
            return without_reasons(json.loads(text))
        except ValueError:
            return text

    return ran["words"], ran["code"], parsed(ran["out"]), {name: parsed(text) for name, text in ran["files"].items()}


def reasons(text: str) -> Iterator[str]:
    """Yield the reasons that stand somewhere in a JSON text."""
    found = [json.loads(text)] if text.startswith("{") else []
    while found:
        value = found.pop()
        if isinstance(value, dict):
            if value.get("reason"):
                yield value["reason"]
            found += value.values()
        elif isinstance(value, list):
            found += value


def reworded(folder: Path, commands: list[list[str]], messages: dict[str, list[str]], seed: int) -> dict[str, Any]:
    """Run the commands with other words in these messages, which stand in these modules; without any, note them."""
    modules = sorted({module for places in messages.values() for module in places})
    order = {"folder": str(folder), "commands": commands, "reword": list(messages), "modules": modules, "seed": seed}
    words = [sys.executable, "-m", "tests.reworded"]
    env = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(words, cwd=ROOT, env=env, input=json.dumps(order), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[str], Callable[..., Any]]:
    """What the commands give as it stands, the messages that they show, and what runs them with others."""
    folder = tmp_path_factory.mktemp("reworded")
    commands = []
    for number, text in enumerate(sweep.sample(CASES, 12)):
        commands += write(text, folder, number)
    for number, text in enumerate(sweep.sample(TRAILING, 2)):
        commands += write(text, folder, len(CASES) + number, b"some bytes behind it")
    found = reworded(folder, commands, {}, 0)
    shown = "\n".join(reason for ran in found["ran"] for reason in (ran["err"], *reasons(ran["out"])))
    messages = [
        message
        for message, told in sorted(found["told"].items())
        if message not in NOT_OURS and any(text in shown for text in told)
    ]

    def again(chosen: list[str], seed: int) -> list[dict[str, Any]]:
        return reworded(folder, commands, {message: found["places"][message] for message in chosen}, seed)["ran"]

    return found["ran"], messages, again


def test_dozens_of_messages_are_shown(plain) -> None:
    _, messages, _ = plain
    assert len(messages) > 2 * MESSAGES


@pytest.mark.parametrize("number", range(12 if sweep.full else 2))
def test_other_words_change_nothing_but_words(plain, number: int) -> None:
    before, messages, again = plain
    rng = random.Random(f"words {sweep.offset}")
    rng.shuffle(messages_left := list(messages))
    first = number * MESSAGES % len(messages_left)
    chosen = (messages_left * 2)[first : first + MESSAGES]
    after = again(chosen, sweep.offset + number)
    for one, other in zip(before, after, strict=True):
        assert what_programs_see(one) == what_programs_see(other), chosen
    assert [one["out"] + one["err"] for one in before] != [other["out"] + other["err"] for other in after]
