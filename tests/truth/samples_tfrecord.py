"""Samples: TFRecord files, of bytes and of Examples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.tfrecord_files import example, record, sound_records
from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path

HEAD, FRAME = 12, 16
# As many bytes as a damage may remove. If as many are lost of a record as other records behind it have, it claims
# exactly these, and what follows stands where it should: nobody can tell them from records that a record holds.
REMOVED = (16, 100, 512, 4096)


def is_ambiguous(sizes: list[int]) -> bool:
    """Whether the last records together have as many bytes as may be removed."""
    return any(sum(sizes[first:]) in REMOVED for first in range(len(sizes)))


def tfrecords(name: str, contents: list[bytes], more: bytes) -> Sample:
    """Return a file of records; ``more`` lengthens one that would be ambiguous."""
    file, values, starts, sizes = b"", {}, [], []
    for number, content in enumerate(contents):
        while is_ambiguous([*sizes, FRAME + len(content)]):
            content += more
        sizes.append(FRAME + len(content))
        starts.append(len(file))
        file += record(content)
        values[f"[{number}]"] = Value(content, (starts[-1], len(file)))
    marks = (*starts, *(start + HEAD for start in starts), len(file) - 4, len(file))
    return Sample(name, "train.tfrecord", file, "records", values, "chunks", marks, hashed=True, read=read_records)


def read_records(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the records of a file that must be sound, by number."""
    return {str(number): content for number, content in enumerate(sound_records(path.read_bytes()))}


@sample
def make_tfrecord() -> Sample:
    rng = random.Random("tfrecord")
    return tfrecords(
        "tfrecord", [b"%d " % number + mixed(rng, rng.randrange(1500), number) for number in range(60)], b"+"
    )


@sample
def make_tfrecord_examples() -> Sample:
    rng = random.Random("examples")
    contents = [
        example(label=[number], image=[mixed(rng, rng.randrange(900), number)], box=[0.5, 0.25, number / 4])
        for number in range(40)
    ]
    return tfrecords("tfrecord-examples", contents, b"\x0a\x00")  # features again, with nothing in them
