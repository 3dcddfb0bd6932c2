"""Every kind of damage at every place of a safetensors header, against what the library says of the file.

A sample of the places by default, all of them with ``--truth-cases`` (``-s`` shows the table).
"""

from __future__ import annotations

import json
import random
from collections import Counter

import safetensors

from pparse import Status
from tests import sweep
from tests.rows import rows
from tests.test_json_damage import FILE, HEADER_END, TENSORS, complete, spared, whole

NOISE = random.Random(5).randbytes(16)
WHOLE = {name: whole(name) for name in TENSORS}


def flipped(at: int, bit: int) -> tuple[bytes, int, int]:
    return FILE[:at] + bytes([FILE[at] ^ 1 << bit]) + FILE[at + 1 :], at, at + 1


def zeroed(at: int, count: int) -> tuple[bytes, int, int]:
    return FILE[:at] + bytes(count) + FILE[at + count :], at, at + count


def noisy(at: int, count: int) -> tuple[bytes, int, int]:
    return FILE[:at] + NOISE[:count] + FILE[at + count :], at, at + count


def removed(at: int, count: int) -> tuple[bytes, int, int]:
    return FILE[:at] + FILE[at + count :], at, at + count


def inserted(at: int, count: int) -> tuple[bytes, int, int]:
    return FILE[:at] + NOISE[:count] + FILE[at:], at, at + 1


# How it is damaged, with what number, and at how many places more may be lost than was hit: where the end of the header
# is hit, and what the last tensor's entry says of where it ends, or the very first byte, nobody knows where data begin.
WAYS = {
    "zeros, 4": (zeroed, 4, 0),
    "noise, 16": (noisy, 16, 0),
    "removed, 1": (removed, 1, 0),
    "removed, 4": (removed, 4, 5),
    "removed, 11": (removed, 11, 33),
    "inserted, 1": (inserted, 1, 0),
    "inserted, 5": (inserted, 5, 1),
    **{f"bit {bit}": (flipped, bit, 0) for bit in range(8)},
}


def by_library(content: bytes) -> dict[str, bytes] | None:
    """Return the bytes of each tensor as the library gives them; None if it refuses the file."""
    try:
        return {name: bytes(entry["data"]) for name, entry in safetensors.deserialize(content)}
    except (safetensors.SafetensorError, UnicodeDecodeError):
        return None


def parses(content: bytes) -> bool:
    try:
        json.loads(content[8:HEADER_END])
    except ValueError:
        return False
    return True


def judge(content: bytes, start: int, stop: int, tally: Counter[str], at: int) -> list[str]:
    status, found = complete(content)
    there = by_library(content)
    wrong = []
    tally["cases"] += 1
    if there is None:
        tally["refused by the library"] += 1
        if status is Status.COMPLETE:
            wrong.append(f"{at}: complete, and refused by the library")
        lies = {name for name in found if found[name] != WHOLE.get(name)}
        if lies:
            tally["wrong, and told as complete"] += 1
            # A name that was hit may have become another one: nothing in the format tells.
            if any(name in WHOLE or found[name] not in WHOLE.values() for name in lies):
                wrong.append(f"{at}: wrong: {sorted(lies)}")
    elif {name: there for name, (there, *_) in WHOLE.items()} != there:
        tally["opened by the library with other tensors"] += 1
    lost = {name for name in spared(start, stop) - set(found) if content.count(b'"%s"' % name.encode()) < 2}
    if lost and len(content) > len(FILE) and parses(content):
        # A byte more, and a header without fault: it may have come into a name, or be one behind the data.
        tally["it cannot be told where the data begin"] += 1
        return wrong
    tally["tensors lost"] += len(lost)
    tally["cases with more lost than were hit"] += bool(lost)
    if lost:
        wrong.append(f"{at}: lost {len(lost)}")
    return wrong


@rows("way", WAYS)
def test_damage_at_any_place_of_a_header_costs_no_tensor_that_it_did_not_hit(way, request):
    damage, number, tolerated = WAYS[way]
    step = 1 if request.config.option.truth_cases else 61 if sweep.full else 151
    tally, wrong = Counter(), []
    for at in range(8 + sweep.offset % step, HEADER_END - 10, step):
        content, start, stop = damage(at, number)
        if stop <= HEADER_END:
            wrong += judge(content, start, stop, tally, at)
    print(f"\n{way:12}", dict(tally), wrong)
    assert not [found for found in wrong if "lost" not in found]
    assert len(wrong) <= tolerated, wrong[:20]
