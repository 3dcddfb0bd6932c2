"""Samples: TFRecord files, of bytes and of Examples."""

from __future__ import annotations

import random

from tests.tfrecord_files import example, record
from tests.truth.known import Sample, Value, mixed, sample

HEAD, FRAME = 12, 16


def tfrecords(name: str, contents: list[bytes]) -> Sample:
    file, values, starts = b"", {}, []
    for number, content in enumerate(contents):
        starts.append(len(file))
        file += record(content)
        values[f"[{number}]"] = Value(content, (starts[-1], len(file)))
    marks = (*starts, *(start + HEAD for start in starts), len(file) - 4, len(file))
    return Sample(name, "train.tfrecord", file, "records", values, "chunks", marks, hashed=True)


@sample
def make_tfrecord() -> Sample:
    rng = random.Random("tfrecord")
    return tfrecords("tfrecord", [b"%d " % number + mixed(rng, rng.randrange(1500), number) for number in range(60)])


@sample
def make_tfrecord_examples() -> Sample:
    rng = random.Random("examples")
    contents = [
        example(label=[number], image=[mixed(rng, rng.randrange(900), number)], box=[0.5, 0.25, number / 4])
        for number in range(40)
    ]
    return tfrecords("tfrecord-examples", contents)
