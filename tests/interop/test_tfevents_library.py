"""Event files of TensorBoard: steps, times and values are those that TensorBoard itself reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pparse

loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
make_ndarray = pytest.importorskip("tensorboard.util.tensor_util").make_ndarray
DATA = Path(__file__).resolve().parent.parent / "data" / "tfevents"
STATISTICS = ("min", "max", "num", "sum", "sum_squares")


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.suffix)
def test_values_are_those_of_tensorboard(path):
    wanted = {}
    for event in loader.LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            wanted.setdefault(value.tag, []).append((event.step, event.wall_time, value))
    with pparse.view(path) as model:
        assert set(wanted) == {name for name in model if not name.endswith(".steps")}
        for tag, rows in wanted.items():
            tensor = model[tag]
            if tensor.dtype is None:
                texts = [text for _, _, value in rows for text in make_ndarray(value.tensor).reshape(-1)]
                assert list(tensor.strings()) == texts
                assert model[f"{tag}.steps"].numpy().tolist() == [step for step, _, _ in rows]
                continue
            found = tensor.numpy()
            assert found["step"].tolist() == [step for step, _, _ in rows]
            assert found["wall_time"].tolist() == [time for _, time, _ in rows]
            for row, (_, _, value) in zip(found, rows, strict=True):
                kind = value.WhichOneof("value")
                if kind == "histo":
                    assert [row[name] for name in STATISTICS] == [getattr(value.histo, name) for name in STATISTICS]
                else:
                    other = make_ndarray(value.tensor) if kind == "tensor" else np.float32(value.simple_value)
                    assert row["value"].tobytes() == other.tobytes()
