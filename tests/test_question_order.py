"""Whatever is asked of a safetensors file first, every question has the answer that it has alone."""

from __future__ import annotations

import json
import random
import struct
from itertools import permutations

import pytest

import pparse

MANY = 700  # entries of a header that is listed while it is read
LONG = "x" * 350


def pack(ranges: list[tuple[str, int, int]], size: int, *, lost: int = 0) -> bytes:
    text = json.dumps(
        {
            f"{name}\0{at}": {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
            for at, (name, begin, end) in enumerate(ranges)
        },
        separators=(",", ":"),
    )
    for at in range(len(ranges)):
        text = text.replace(f'\\u0000{at}":', '":', 1)  # names may occur twice
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(number % 251 for number in range(size - lost))


def row_of(*, count: int) -> list[tuple[str, int, int]]:
    return [(f"{LONG}.{number}.weight", 3 * number, 3 * number + 3) for number in range(count)]


def changed(count: int, at: int, name: str | None = None, shift: int = 0) -> list[tuple[str, int, int]]:
    rows = row_of(count=count)
    old, begin, end = rows[at]
    rows[at] = (name or old, begin + shift, end + shift)
    return rows


def sources(count: int) -> dict[str, bytes]:
    rows = row_of(count=count)
    middle, last = count // 2, count - 1
    return {
        "sound": pack(rows, 3 * count),
        "a name twice": pack(changed(count, last, rows[1][0]), 3 * count),
        "shared bytes": pack(changed(count, middle, shift=-1), 3 * count),
        "shared with the last": pack(changed(count, last, shift=-3), 3 * count),
        "out of order": pack([*rows[middle:], *rows[:middle]], 3 * count),
        "zeroed length": bytes(8) + pack(rows, 3 * count)[8:],
        "like a tensor": pack([*rows[:-1], ("__metadata__", *rows[-1][1:])], 3 * count),
        "bytes behind": pack(rows, 3 * count + 5),
        "cut": pack(rows, 3 * count, lost=3 * middle),
        "header damaged": pack(rows, 3 * count).replace(
            rows[middle][0].encode(), b"\0" * 9 + rows[middle][0][9:].encode()
        ),
    }


QUESTIONS = {
    "listed": lambda model: [(tensor.name, tensor.status, str(tensor.finding)) for tensor in model.tensors()],
    "held": lambda model: [tensor.status for tensor in list(model.values())],
    "found": lambda model: {name: model[name].status for name in NAMES if name in model},
    "extent": lambda model: (model.extent().damaged, model.extent().whole, model.extent().missing),
    "status": lambda model: model.status,
    "check": lambda model: sorted(str(finding) for finding in model.check()),
    "nodes": lambda model: [
        (kid.key, kid.status) for node in model.root.children() if node.key == "tensors" for kid in node.children()
    ],
    "names": lambda model: (len(model), list(model)),
    "first": lambda model: next(iter(model.values())).status,
}
NAMES = [f"{LONG}.{number}.weight{more}" for number in (0, 1, 30, 350, MANY - 1) for more in ("", "#2")]


@pytest.mark.parametrize("count", [40, MANY])
@pytest.mark.parametrize("what", sources(2))
def test_every_question_has_one_answer_in_every_order(what, count):
    content = sources(count)[what]
    alone = {}
    for name, ask in QUESTIONS.items():
        with pparse.view(content) as model:
            alone[name] = ask(model)
    assert (what in ("sound", "out of order")) == (alone["status"] is pparse.Status.COMPLETE)
    orders = [list(pair) for pair in permutations(QUESTIONS, 2)] if count < MANY else []
    draw = random.Random(what)
    orders += [draw.sample(list(QUESTIONS), len(QUESTIONS)) for _ in range(20 if count < MANY else 3)]
    for order in orders:
        with pparse.view(content) as model:
            for name in order:
                assert QUESTIONS[name](model) == alone[name], (order, name)
