from __future__ import annotations

from pparse.parsers.tfevents import TfeventsParser
from tests.contract import test_tfrecord_contract as records  # the module: its classes are not run twice
from tests.tfevents_files import event, events, tensor


class TestTfevents(records.TestTfrecord):
    parser = TfeventsParser
    samples = {
        "values": events(
            [event(1, 2.0, a=0.5, s=tensor(7, [1], string_val=[b"x"])), event(2, 3.0, a=1.5), event(3)],
        )
    }

    def large(self) -> bytes:
        return events([event(step, a=tensor(4, [1_500_000], tensor_content=bytes(1_500_000))) for step in range(6)])
