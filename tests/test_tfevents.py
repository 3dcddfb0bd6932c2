"""Event files of TensorBoard: what was logged under each tag, and what is left of it behind damage."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import pparse
from pparse.protos import message_class
from tests.rows import rows
from tests.tfevents_files import event, events, tensor

DATA = Path(__file__).resolve().parent / "data" / "tfevents"


def test_a_tag_is_an_array_of_steps_times_and_values():
    made = [event(step, step / 2, **{"loss/train": 1 / (step + 1)}) for step in range(0, 30, 10)]
    with pparse.view(events(made)) as model:
        found = model["loss/train"]
        assert (found.type_name, found.shape) == ("float32, step 0 to 20", (3,))
        assert found.numpy().tolist() == [(0, 0.0, 1.0), (10, 5.0, np.float32(1 / 11)), (20, 10.0, np.float32(1 / 21))]
        assert found[1:]["step"].tolist() == [10, 20]
        assert model.metadata["file_version"] == "brain.Event:2"


def test_files_of_tensorflow_are_listed_by_tag(run):
    """The values are compared in tests/interop."""
    said = run("ls", DATA / "events.out.tfevents.1795910462.tf2").out.splitlines()
    assert [line.split("  ")[0] for line in said[1:-1]] == (
        ["acc64", "img", "img.steps", "loss", "many", "many.steps", "note", "note.steps", "vec", "w"]
    )
    assert "float64 30×3, step 0 to 45" in said[-2]
    with pparse.view(DATA / "events.out.tfevents.1795910462.tf1") as model:
        assert model["h"].dtype.numpy.names == ("step", "wall_time", "min", "max", "num", "sum", "sum_squares")
        assert model["h"].finding.code == "buckets"
        assert model["l"].numpy()["value"].tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


@rows(
    "values, wanted",
    [
        ([tensor(3, [2], int_val=[1, 2]), tensor(3, [2], int_val=[5])], {"t": [[1, 2], [5, 5]]}),
        ([tensor(1, [2], float_val=[1, 2]), tensor(1, [3], float_val=[3])], {"t@0": [1, 2], "t@1": [3, 3, 3]}),
        ([tensor(7, [2], string_val=[b"a"]), tensor(7, [2], string_val=[b"b", b"c"])], {"t@0": "aa", "t@1": "bc"}),
        ([tensor(7, [1 << 40], string_val=[b"a"])], {"t@0": ""}),
        ([tensor(14, [1], half_val=[0x3F80])], {"t@0": [1]}),
        ([{"histo": {"min": 1, "bucket_limit": [1, 2], "bucket": [3, 4]}}] * 2, {"t": None}),
        ([{"histo": {"min": 1, "bucket_limit": [1], "bucket": [3, 4]}}] * 2, {"t": ()}),
    ],
)
def test_tensors_of_one_tag(values, wanted):
    """A short list repeats its last number; what no structure can hold is an array for each step."""
    with pparse.view(events([event(step, t=value) for step, value in enumerate(values)])) as model:
        assert list(model) == list(wanted)
        for name, numbers in wanted.items():
            if isinstance(numbers, str):
                texts = list(model[name].strings()) if model[name].size < 9 else []
                assert b"".join(texts).decode() == numbers
                continue
            found = model[name].numpy()
            if numbers == ():
                assert (found["min"].tolist(), "bucket" in found.dtype.names) == ([1, 1], False)
            elif numbers is None:
                assert found["bucket_limit"].tolist() == [[1, 2], [1, 2]]
                assert found["bucket"].tolist() == [[3, 4], [3, 4]]
            else:
                found = found["value"] if found.dtype.names else found
                assert found.tolist() == numbers


def test_pictures_and_texts_are_strings_with_their_steps():
    picture = {"image": {"height": 1, "width": 1, "colorspace": 3, "encoded_image_string": b"\x89PNG"}}
    with pparse.view(events([event(7, i=picture, s=tensor(7, [1], string_val=[b"a"])), event(9, i=picture)])) as model:
        assert list(model) == ["i", "i.steps", "s", "s.steps"]
        assert (list(model["i"].strings()), model["i.steps"].numpy().tolist()) == ([b"\x89PNG"] * 2, [7, 9])


def test_a_damaged_record_leaves_out_just_itself(run, tmp_path):
    raw = bytearray(events([event(step, a=float(step)) for step in range(5)]))
    raw[raw.index(np.float32(3).tobytes())] ^= 1
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(raw)
    with pparse.view(path) as model:
        assert model["a"].numpy()["step"].tolist() == [0, 1, 2, 4]
        assert str(model.extent().document_status) == "damaged"
    ran = run("check", path)
    assert (ran.code, "checksum [4]" in ran.out + ran.err) == (4, True)
    assert run("recover", path, "-o", tmp_path / "out").code == 4
    with pparse.view(tmp_path / "out" / path.name) as model:
        assert model["a"].numpy()["value"].tolist() == [0, 1, 2, 4]
    path.write_bytes(raw[:-5])
    with pparse.view(path) as model:
        assert model["a"].numpy()["step"].tolist() == [0, 1, 2]
        assert str(model.extent().document_status) in ("truncated", "damaged")


def test_what_is_no_event_is_left_out():
    """A record whose checksum agrees, and that is no message; a value of another kind than those before it."""
    other = event(1, a=tensor(1, [], float_val=[2]), b=4.0)
    with pparse.view(events([event(0, a=1.0), b"\xff\xff", other, event(2, a=3.0)])) as model:
        assert model["a"].numpy()["step"].tolist() == [0, 2]
        assert model["b"].numpy()["step"].tolist() == [1]
        assert [finding.reason for finding in model.findings] == [
            "record 2 is left out: not a field: there is no wire type 7",
            "a value of record 3 is left out: it is of another kind than those of 'a' before it",
        ]


def test_events_that_differ_in_numbers_only_are_told_apart():
    """Of most events, only the numbers are looked at: a step, and a value between bytes that were seen before."""
    rare = {"tensor": {"dtype": 1, "tensor_shape": {}, "tensor_content": bytes(4)}}
    kinds = [{"simple_value": 2.5}, tensor(1, [], float_val=[2.5]), tensor(1, [1], float_val=[2.5]), rare]
    steps = [0, 1, -1, 127, 128, 2**40, 5]
    values = dict(zip("abcd", kinds, strict=True)).items()
    made = [event(step, number, **{tag: value}) for number, step in enumerate(steps) for tag, value in values]
    made += [event(9, 9.0, a=0.5, b=tensor(1, [], float_val=[0.5])), event(10, 10.0, aa=0.5), b"", event(11)]
    late = b"\x10\x03" + event(0, 3.0, a=7.0)  # the step stands before the time
    twice = event(1, 4.0, a=8.0) + b"\x10\x06"  # the last step counts
    with pparse.view(events([*made, late, twice])) as model:
        assert list(model) == ["a", "b", "c", "d", "aa"]
        found = {name: model[name].numpy().tolist() for name in model}
    want = [(step, float(number)) for number, step in enumerate(steps)]
    assert found["a"] == [*((*one, 2.5) for one in want), (9, 9.0, 0.5), (3, 3.0, 7.0), (6, 4.0, 8.0)]
    assert found["b"] == [*((*one, 2.5) for one in want), (9, 9.0, 0.5)]
    assert [(step, time) for step, time, _ in found["c"]] == want == [(step, time) for step, time, _ in found["d"]]
    assert found["aa"] == [(10, 10.0, 0.5)]


def test_a_folder_of_runs_is_listed(run, tmp_path):
    """What stands behind ``.tfevents`` is time, host and process: files that differ in it are no parts of one."""
    for number, name in enumerate(("1.host.7.0", "1.host.7.1", "9.host.v2")):
        folder = tmp_path / "runs" / ("eval" if number == 2 else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"events.out.tfevents.{name}").write_bytes(events([event(0, **dict.fromkeys("abc"[:number], 1.0))]))
    found = run("ls", "-R", tmp_path / "runs").out.splitlines()
    assert [line.split()[:3] for line in found[1:4]] == [
        ["events.out.tfevents.1.host.7.0", "tfevents", "0"],
        ["events.out.tfevents.1.host.7.1", "tfevents", "1"],
        ["eval/events.out.tfevents.9.host.v2", "tfevents", "2"],
    ]
    (tmp_path / "runs" / "events.out.tfevents.1.host.7.0.rest.json").write_text("{}", encoding="utf-8")
    said = run("ls", "-R", tmp_path / "runs").out
    assert "3 items, 3 tensors" in said
    assert "complete, unverified" in said.split(" items, ")[1]  # one has no tensors
    (tmp_path / "runs" / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
    assert "model.safetensors" in run("info", tmp_path / "runs").out.split("taken", 1)[1].splitlines()[0]


def test_a_cut_log_tells_what_it_lacks_and_no_parameters(run, tmp_path):
    path = tmp_path / "events.out.tfevents.1.host"
    text, half = tensor(7, [1], string_val=[b"x" * 100]), tensor(14, [1], half_val=[1])
    raw = events([event(0, a=1.0), event(1, t=text, b=half)])
    path.write_bytes(raw[:-90])
    said = run("ls", path).out + run("info", path).out
    assert "at least 90 " in said
    assert not re.search(r"^parameters|, \d+ parameter", said, re.MULTILINE)
    with pparse.view(raw) as model:
        assert model.extent().parameters == {}


def test_a_table_of_steps_is_a_csv(run, tmp_path):
    path = tmp_path / "x.csv"
    made = [event(step, step + 0.5, a=1 / 4, b=tensor(3, [2], int_val=[step, 7])) for step in range(3)]
    (tmp_path / "log").write_bytes(events(made))
    for name, wanted in {
        "a": "step,wall_time,value\n0,0.5,0.25\n1,1.5,0.25\n2,2.5,0.25\n",
        "a[1:2]": "step,wall_time,value\n1,1.5,0.25\n",
        "b[1:]": "step,wall_time,value[0],value[1]\n1,1.5,1,7\n2,2.5,2,7\n",
    }.items():
        assert run("get", tmp_path / "log", name, "-o", path).code == 0
        assert path.read_text() == wanted


def test_a_log_without_its_version_is_told_by_its_name(run, tmp_path):
    """The first record may be the one that is damaged."""
    path = tmp_path / "events.out.tfevents.1.host"
    raw = bytearray(events([event(step, a=float(step)) for step in range(3)]))
    raw[24] ^= 0xFF
    path.write_bytes(raw)
    ran = run("ls", path)
    assert (ran.code, "step 0 to 2" in ran.out, "checksum" in ran.out) == (4, True, True)
    (tmp_path / "log").write_bytes(raw)
    assert run("info", tmp_path / "log").out.split("format", 1)[1].split()[0] == "tfrecord:"


def test_steps_that_come_again_have_names_of_their_own():
    """Tensors of a run that was restarted differ in shape: each is an array by its step, and some steps come twice."""
    sizes = [(0, 1), (1, 2), (1, 3), (1, 4), (2, 5)]
    made = [event(step, t=tensor(1, [size], float_val=[size])) for step, size in sizes]
    made.append(event(0, **{"t@1#2": 1.0}))
    with pparse.view(events(made)) as model:
        assert list(model) == ["t@0", "t@1", "t@1#2#2", "t@1#3", "t@2", "t@1#2"]
        assert [model[name].shape for name in model] == [(1,), (2,), (3,), (4,), (5,), (1,)]


def test_a_shape_that_nothing_holds_and_rows_larger_than_the_file():
    """Their tensors are damaged; a file is not cut because its rows need more bytes than the values in it."""
    huge = {"dtype": 1, "tensor_shape": {"dim": [{"size": 1 << 56}] * 2}}
    deep = {"dtype": 1, "tensor_shape": {"dim": [{"size": 1}] * 40}, "float_val": [1.0]}
    with pparse.view(events([event(0, h={"tensor": huge}, d={"tensor": deep})])) as model:
        assert {name: str(model[name].status) for name in model}["h@0"] == "damaged"
        assert len(list(model.check())) > 0
    once = message_class("tensorflow.Event").FromString(event(0, a=1.0))
    once.summary.value.extend(once.summary.value[:1] * 200)
    with pparse.view(events([once.SerializeToString()])) as model:
        extent = model.extent()
        assert (model["a"].shape, str(extent.document_status), extent.missing_bytes) == ((201,), "complete", 0)
        assert model["a"].spans[0].path.endswith("::a")


def test_values_that_do_not_fit_their_shape_are_found_by_check(run, tmp_path):
    path = tmp_path / "log"
    bad = tensor(1, [3], tensor_content=bytes(8))
    path.write_bytes(events([event(0, a=tensor(1, [3], tensor_content=bytes(12))), event(1, a=bad)]))
    assert (run("check", path).code, run("get", path, "a").code) == (4, 4)
    with pparse.view(path) as model:
        assert [finding.path for finding in model.check()] == ["a"]


def test_a_graph_is_named_and_written_by_get(run, tmp_path):
    found = message_class("tensorflow.Event")(graph_def=b"\n\t\n\x01x\x12\x04NoOp")
    path = tmp_path / "log"
    path.write_bytes(events([found.SerializeToString()]))
    assert "graphs = [1].graph_def" in run("info", path).out
    assert "[1].graph_def" in run("graph", path).err
    assert run("get", path, "[1].graph_def", "--raw", "-o", tmp_path / "graph.pb").code == 0
    assert "NoOp" in run("graph", tmp_path / "graph.pb").out
    path.write_bytes(events([event(0, a=1.0)]))
    assert "has no graph" in run("graph", path).err
