"""Samples: an event file of TensorBoard, whose values are its records."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.tfevents_files import event, events, tensor
from tests.tfrecord_files import sound_records
from tests.truth.known import Sample, mixed, sample
from tests.truth.samples_tfrecord import tfrecords


@sample
def make_tfevents() -> Sample:
    rng = random.Random("tfevents")
    contents = [
        event(step, step / 2, loss=step / 4, w=tensor(4, [size], tensor_content=mixed(rng, size, step)))
        for step in range(40)
        for size in [rng.randrange(900)]
    ]
    made = tfrecords("tfevents", list(sound_records(events(contents))), b"\x52\x00")  # a source without a name
    return replace(made, file="events.out.tfevents.1700000000.host")
