"""TensorFlow checkpoints: names of variables, and every file or folder by which a checkpoint may be given."""

from __future__ import annotations

import json
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.kernels.crc32c import crc32c, masked
from pparse.viewers.checkpoint.entry import VariableNames, full_names, slot_of
from tests.checkpoint_files import entry, header, message, table, varint, write

DATA = Path("tests/data/checkpoint")
SLOTS = json.loads((DATA / "slots.json").read_text())
DATA_1 = "ckpt-1.data-00000-of-00001"
DATA_2 = "ckpt-2.data-00000-of-00001"


def bytes_of(tensor) -> str:
    return np.asarray(tensor.numpy()).tobytes().hex()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def slots(tmp_path) -> Path:
    return Path(shutil.copytree(DATA / "slots", tmp_path / "slots"))


# -- names -------------------------------------------------------------------------------------------------------------


def test_variables_and_slots_have_their_names_and_are_found_by_name_and_key():
    with pparse.view(DATA / "slots") as model:
        assert set(model) == {*SLOTS, "_CHECKPOINTABLE_OBJECT_GRAPH"}
        for name, (key, dtype, shape, content) in SLOTS.items():
            tensor = model[name]
            assert (tensor.key, str(tensor.numpy().dtype), list(tensor.shape)) == (key, dtype, shape)
            assert bytes_of(tensor) == bytes_of(model[key]) == content
            assert bytes_of(model[key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")]) == content
        assert model.metadata["optimizer_slots"] == {"m": 6, "v": 6}


def test_get_says_that_names_are_lost_as_another_variable_may_have_had_this_one(run, slots):
    with (slots / DATA_2).open("r+b") as file:
        file.truncate(1_800)  # the object graph is behind it
    with pparse.view(slots) as model:
        name = next(name for name in model if model[name].status is Status.COMPLETE)
    ran = run("get", slots, name)
    assert ran.code == 0
    assert "note: " in ran.err
    assert "tensors are called by their keys" in ran.err
    assert "note: " not in run("get", DATA / "slots", "out/bias").err


def test_ls_shows_keys_beside_names(run):
    ran = run("ls", "-l", DATA / "slots")
    assert "KEY" in ran.out.splitlines()[0]
    assert "model/layer_with_weights-0/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE" in ran.out
    ran = run("ls", "--jsonl", DATA / "slots", "out/bias")
    assert json.loads(ran.out)["key"] == "model/layer_with_weights-2/bias/.ATTRIBUTES/VARIABLE_VALUE"


def graph(*attributes: tuple[str, str]) -> bytes:
    """Return a TrackableObjectGraph with the full names and keys of variables."""
    nodes = (message(2, message(2, name.encode()) + message(3, key.encode())) for name, key in attributes)
    return b"".join(message(1, node) for node in nodes)


def test_names_are_read_from_the_object_graph():
    assert full_names(graph(("a/b", "x/.ATTRIBUTES/VARIABLE_VALUE"), ("", "y"))) == {
        "x/.ATTRIBUTES/VARIABLE_VALUE": "a/b"
    }
    with pytest.raises(pparse.MalformedError):
        full_names(graph(("a/b", "x"))[:-1])


@pytest.mark.parametrize(
    ("full", "contents", "expected"),
    [
        ({"p": "w", "q": "w"}, {"p": 1, "q": 1}, {"p": "w", "q": "w#2", "r": "r"}),  # copies of one variable
        ({"p": "w", "q": "w"}, {"p": 1, "q": 2}, {"p": "p", "q": "q", "r": "r"}),  # two variables
        ({"p": "w", "q": "w"}, {}, {"p": "p", "q": "q", "r": "r"}),  # it is not known
        ({"p": "r"}, {}, {"p": "p", "q": "q", "r": "r"}),  # a name that another one has as its key
        ({"p": "q", "q": "r", "r": "p"}, {}, {"p": "q", "q": "r", "r": "p"}),
    ],
)
def test_no_two_variables_have_one_name(full, contents, expected):
    names = VariableNames()
    names.give(["p", "q", "r"], full, contents.get)
    assert {key: names.name_of(key) for key in "pqr"} == expected
    assert {names.key_of(name): name for name in expected.values()} == expected


def test_what_an_optimizer_keeps_is_told_by_the_key():
    assert slot_of("a/kernel/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE") == "m"
    assert slot_of("a/kernel/.ATTRIBUTES/VARIABLE_VALUE") is None


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_without_the_object_graph_tensors_are_called_by_their_keys_and_that_is_told(slots, damage):
    path = slots / DATA_2
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-1:]
    else:
        content[-100] ^= 1  # in the object graph, which is the last
    path.write_bytes(content)
    with pparse.view(slots) as model:
        kernel = model["model/layer_with_weights-0/kernel"]
        assert bytes_of(kernel) == SLOTS["dense/kernel"][3]
        assert "dense/kernel" not in model
        assert [finding.code for finding in model.findings if finding.severity.value != "note"] == ["names"]


def test_names_are_read_in_a_budget_of_a_megabyte(tmp_path):
    """1,000 variables with names of 200 letters: the names fit; with a hundred times as many, the keys are shown."""
    for count, named in ((1_000, True), (40_000, False)):
        keys = [f"v{number:06d}/.ATTRIBUTES/VARIABLE_VALUE" for number in range(count)]
        text = graph(*((f"{'n' * 200}{number:06d}", key) for number, key in enumerate(keys)))
        lengths = len(text).to_bytes(4, "little")
        crc = masked(crc32c(lengths)).to_bytes(4, "little")
        content = varint(len(text)) + crc + text
        pairs = [(b"", header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", entry(7, (), 0, len(content), None))]
        pairs += [(key.encode(), entry(1, (), len(content), 4, None)) for key in keys]
        (tmp_path / "m.index").write_bytes(table(pairs, per_block=1_000))
        (tmp_path / "m.data-00000-of-00001").write_bytes(content + bytes(4))
        with pparse.view(tmp_path / "m", budget="3MiB") as model:
            assert (next(iter(model.keys()[1:2])) == "n" * 200 + "000000") is named
            assert bool([finding for finding in model.findings if finding.code == "names"]) is not named


# -- ways in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "checkpoint", "ckpt-2", "ckpt-2.index", DATA_2])
@pytest.mark.parametrize("wrapper", ["folder", "zip", "tar.gz"])
def test_any_file_of_a_checkpoint_and_its_prefix_and_folder_open_it(slots, tmp_path, name, wrapper):
    path = f"{slots}/{name}".rstrip("/")
    if wrapper == "zip":
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for member in files_in(tmp_path):
                if member.startswith("slots"):
                    archive.write(tmp_path / member, member)
        path = f"{tmp_path}/a.zip::slots/{name}".rstrip("/")
    elif wrapper == "tar.gz":
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            archive.add(slots, "slots")
        path = f"{tmp_path}/a.tar.gz::slots/{name}".rstrip("/")
    if wrapper != "folder":
        shutil.rmtree(slots)
    with pparse.view(path) as model:
        assert model.extraction.parse().parser.name == "tf-checkpoint"
        for wanted, (_, _, _, content) in SLOTS.items():
            assert bytes_of(model[wanted]) == content


def test_the_earlier_checkpoint_is_the_one_that_is_named(slots):
    with pparse.view(slots / "ckpt-1") as first, pparse.view(slots) as latest:
        assert (first["save_counter"].numpy(), latest["save_counter"].numpy()) == (1, 2)
        codes = [(finding.code, finding.severity.value) for finding in latest.findings]
        assert codes == [("other-checkpoints", "note")]
        assert "ckpt-1" in latest.findings[0].reason


def test_a_prefix_without_its_index_is_told_to_lack_it(run, slots):
    (slots / "ckpt-2.index").unlink()
    ran = run("info", slots / "ckpt-2")
    assert ran.code == 4
    assert "ckpt-2.index is not beside it" in ran.out
    assert run("info", slots / "ckpt-3").code == 2


def test_if_the_latest_checkpoint_is_gone_the_other_one_is_shown_with_a_warning(slots):
    (slots / "ckpt-2.index").unlink()
    (slots / DATA_2).unlink()
    with pparse.view(slots) as model:
        assert model["save_counter"].numpy() == 1
        assert [(finding.code, finding.severity.value) for finding in model.findings] == [
            ("other-checkpoints", "warning")
        ]


def test_several_checkpoints_and_none_that_is_the_latest_are_listed(slots):
    (slots / "checkpoint").unlink()
    with pytest.raises(pparse.PathError, match=r"ckpt-2\.index, ckpt-1\.index$"):
        pparse.view(slots)
    (slots / "checkpoint").write_text('model_checkpoint_path: "ckpt-77"')
    with pytest.raises(pparse.PathError, match=r"ckpt-1\.index; the latest .*, ckpt-77, is not here"):
        pparse.view(slots)


def test_the_latest_checkpoint_without_its_index_is_missing_though_others_are_whole(run, slots):
    (slots / "ckpt-2.index").unlink()
    ran = run("check", slots)
    assert ran.code == 4
    assert "ckpt-2.index is not beside it" in ran.out
    assert "of others, it is there: ckpt-1" in ran.out


def test_only_data_files_name_the_index_that_is_missing(run, slots):
    for path in [*slots.glob("*.index"), slots / "checkpoint"]:
        path.unlink()
    ran = run("ls", slots)
    assert ran.code == 4
    assert "ckpt-2.index is not beside it" in ran.out + ran.err


@pytest.mark.parametrize("content", [b"nothing\n", b"", b"{}", bytes(100)])
def test_a_file_that_only_has_the_name_of_an_index_is_damage(run, slots, content):
    (slots / "ckpt-2.index").write_bytes(content)
    for name in ("", "checkpoint", DATA_2):
        ran = run("check", slots / name)
        assert (ran.code, "no index of a checkpoint" in ran.out) == (4, True), ran.out


def test_a_data_file_that_cannot_be_read_is_not_to_be_fetched_again(run, slots):
    (slots / DATA_2).unlink()
    (slots / DATA_2).mkdir()
    ran = run("ls", slots)
    assert ran.code == 4
    assert f"{DATA_2} cannot be read" in ran.out + ran.err
    assert "fetch" not in ran.out + ran.err


def test_files_to_resume_are_called_as_the_caller_called_the_folder(run, slots):
    size = (slots / "ckpt-2.index").stat().st_size
    with (slots / "ckpt-2.index").open("r+b") as file:
        file.truncate(size - 1)
    for name in ("", "ckpt-2", "ckpt-2.index", "checkpoint", DATA_2):
        ran = run("ls", slots / name)
        assert f"resume the download at byte {size - 1} of {slots}/ckpt-2.index" in ran.out + ran.err, name


@pytest.mark.parametrize("name", ["", "checkpoint", DATA_2])
def test_a_checkpoint_without_its_index_says_so(run, slots, name):
    for other in [*slots.glob("*.index"), slots / DATA_1]:
        other.unlink()
    ran = run("ls", slots / name)
    assert ran.code == 4
    assert ".index is not beside it" in ran.out + ran.err
    ran = run("check", slots / name)
    assert ran.code == 4
    with pparse.open(slots / name) as document:
        assert document.status is Status.MISSING


def test_a_state_file_of_another_machine_leads_to_no_other_folder(slots, tmp_path):
    write(tmp_path)
    (slots / "checkpoint").write_text('model_checkpoint_path: "../m"\nall_model_checkpoint_paths: "/etc/passwd"\n')
    with pparse.open(slots / "checkpoint") as document:
        assert document.format == "tf-checkpoint-state"
        assert document.get("index") == "m.index"
        assert document.status is Status.MISSING
    (slots / "checkpoint").write_text('model_checkpoint_path: "C:\\\\run\\\\ckpt-1"\n')
    with pparse.view(slots / "checkpoint") as model:
        assert model["save_counter"].numpy() == 1


def test_a_checkpoint_of_version_1_in_several_files_says_that_it_is_one_of_them(tmp_path):
    for number in range(2):
        shutil.copy(DATA / "version1.ckpt", tmp_path / f"v1.ckpt-{number:05d}-of-00002")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/x/v1.ckpt-?????-of-00002"\n')
    with pparse.view(tmp_path / "checkpoint") as model:
        assert "float32" in model
        (finding,) = model.findings
        assert (finding.code, finding.severity.value) == ("other-checkpoints", "warning")
        assert "2 files" in finding.reason


@pytest.mark.parametrize("text", [b"", b'model_checkpoint_path: "', b'model_checkpoint_path: ""\n', b"\xff" * 100])
def test_a_state_file_without_a_path_is_no_reason_to_fail(run, slots, text):
    (slots / "checkpoint").write_bytes(text)
    ran = run("ls", slots / "checkpoint")
    assert ran.code in (2, 3, 4)
    assert "Traceback" not in ran.err


def test_in_a_walk_through_an_archive_nothing_is_said_to_be_missing(run, slots, tmp_path):
    """Files are met one by one there: that one does not see the others says nothing against it."""
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(slots, "slots")
    ran = run("check", "-R", tmp_path / "a.tar.gz")
    assert (ran.code, "missing" in ran.out) == (0, False)
    ran = run("recover", tmp_path / "a.tar.gz", "-o", tmp_path / "out")
    assert ran.code == 0
    assert files_in(tmp_path / "out" / "slots") == files_in(slots)
    for name in files_in(slots):
        assert (tmp_path / "out" / "slots" / name).read_bytes() == (slots / name).read_bytes()


@pytest.mark.parametrize("name", ["", "ckpt-2", DATA_2, "checkpoint"])
def test_recover_of_a_whole_checkpoint_copies_index_and_data(run, slots, tmp_path, name):
    ran = run("recover", slots / name, "-o", tmp_path / "out")
    assert ran.code == 0
    rest = ["checkpoint", DATA_1, "ckpt-1.index"] if not name else ["checkpoint"] if name == "checkpoint" else []
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", DATA_2, "ckpt-2.index", *rest])
    with pparse.view(tmp_path / "out" / "ckpt-2") as model:
        assert bytes_of(model["out/kernel"]) == SLOTS["out/kernel"][3]


def test_convert_leaves_out_the_object_graph_and_nothing_else(run, tmp_path):
    ran = run("convert", DATA / "slots", "-o", tmp_path / "m.safetensors")
    assert ran.code == 0
    with pparse.view(tmp_path / "m.safetensors") as model:
        assert {name: bytes_of(tensor) for name, tensor in model.items()} == {
            name: row[3] for name, row in SLOTS.items()
        }


@pytest.mark.parametrize("name", ["", "ckpt-2", DATA_2, "checkpoint"])
def test_tensors_and_viewers_are_pickled_whatever_was_given(slots, name):
    with pparse.view(slots / name) as model:
        again = pickle.loads(pickle.dumps(model["out/kernel"]))
        assert (bytes_of(again), again.key) == (SLOTS["out/kernel"][3], SLOTS["out/kernel"][0])
        assert list(pickle.loads(pickle.dumps(model))) == list(model)


def test_threads_share_one_checkpoint():
    with pparse.view(DATA / "slots") as model:
        found: list[dict[str, str]] = []
        threads = [
            Thread(target=lambda: found.append({name: bytes_of(model[name]) for name in SLOTS})) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [{name: row[3] for name, row in SLOTS.items()}] * 4


def test_a_data_file_of_another_model_is_told_tensor_by_tensor(run, slots):
    (slots / DATA_2).write_bytes(bytes(range(256)) * 17)
    ran = run("check", slots / "ckpt-2")
    assert (ran.code, "27 errors" in ran.out) == (4, True)
    assert run("ls", slots / "ckpt-2").code == 0  # nothing was read but the names


def test_a_download_that_is_not_finished_is_found_in_its_folder(slots):
    for path in [*slots.glob("ckpt-1*"), slots / "checkpoint"]:
        path.unlink()
    (slots / "ckpt-2.index").rename(slots / "ckpt-2.index.part")
    with pparse.view(slots) as model:
        assert bytes_of(model["out/kernel"]) == SLOTS["out/kernel"][3]


def test_recover_writes_data_files_a_thousand_times_as_large_as_the_index(run, tmp_path):
    """The limit of output goes by the size of all files of the model."""
    content = bytes(1 << 20) * 100
    pairs = [(b"", header()), (b"big", entry(4, (len(content),), 0, len(content), content))]
    (tmp_path / "m.index").write_bytes(table(pairs))
    (tmp_path / "m.data-00000-of-00001").write_bytes(content)
    ran = run("recover", tmp_path / "m", "-o", tmp_path / "out")
    assert ran.code == 0
    assert (tmp_path / "out" / "m.data-00000-of-00001").stat().st_size == len(content)


@pytest.mark.parametrize("wrapper", ["zip", "tar", "tar.gz"])
def test_a_value_that_was_wrong_when_it_was_packed_is_found_by_its_own_checksum(run, tmp_path, wrapper):
    (tmp_path / "m").mkdir()
    write(tmp_path / "m", 4)
    for path in files_in(tmp_path):
        if ".data-" in path:
            content = bytearray((tmp_path / path).read_bytes())
            content[1] ^= 1
            (tmp_path / path).write_bytes(content)
    packed = tmp_path / f"a.{wrapper}"
    if wrapper == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for member in files_in(tmp_path):
                if member != packed.name:
                    archive.write(tmp_path / member, member)
    else:
        with tarfile.open(packed, "w:gz" if wrapper == "tar.gz" else "w") as tar:
            tar.add(tmp_path / "m", "m")
    inner = next(member for member in files_in(tmp_path) if member.endswith(".index"))
    for words in (("check", f"{packed}::{inner}"), ("check", "-R", packed)):
        ran = run(*words)
        assert ran.code == 4, words
        assert ran.out.count("its checksum is wrong") == 1
        assert "not-read" not in ran.out
    with pparse.view(f"{packed}::{inner}") as model:
        assert [finding.code for finding in model.check()] == ["hash"]
        assert [tensor.status for tensor in model.values()].count(Status.DAMAGED) == 1


# -- recover -----------------------------------------------------------------------------------------------------------


def rows_of(out: Path) -> dict[str, dict]:
    """Return what a recovery says of each file."""
    files = json.loads((out / "RECOVERY.json").read_text())["files"]
    return {file["path"] or file["raw_name"]: file for file in files}


def check_the_rest(slots: Path, out: Path, but: str) -> None:
    """Check that every file but one was written as it is, and is called complete."""
    rows = rows_of(out)
    for name in files_in(slots):
        if name != but:
            assert (out / name).read_bytes() == (slots / name).read_bytes()
            assert rows[name]["status"] == "complete"
    assert not (out / but).exists()


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["", "ckpt-2", "checkpoint", DATA_2])
def test_recover_of_a_damaged_value_keeps_the_index_and_the_data_as_found(run, slots, tmp_path, name):
    flip(slots / DATA_2, 100)
    (slots / "ckpt-2.meta").write_bytes(b"")
    out = tmp_path / "out"
    ran = run("recover", slots / name, "-o", out)
    assert ran.code == 4
    rows = rows_of(out)
    assert (rows["ckpt-2.index"]["status"], rows["ckpt-2.meta"]["status"]) == ("complete", "complete")
    assert (out / "ckpt-2.index").read_bytes() == (slots / "ckpt-2.index").read_bytes()
    assert (out / f"{DATA_2}.partial" / "as-found.bin").read_bytes() == (slots / DATA_2).read_bytes()
    assert rows[f"{DATA_2}.partial/as-found.bin"]["doubtful"]
    with pparse.view(slots / "ckpt-2") as model, pparse.view(out / "ckpt-2.safetensors") as saved:
        whole = {name for name in SLOTS if model[name].status is Status.COMPLETE}
        for _ in model.check():
            pass
        assert set(saved) == {name for name in whole if model[name].status is Status.COMPLETE}
        assert len(saved) == len(SLOTS) - 1
    assert (out / "checkpoint").exists() == (name in ("", "checkpoint"))
    if not name:
        check_the_rest(slots, out, DATA_2)


def test_recover_of_an_index_that_is_cut_keeps_the_data(run, slots, tmp_path):
    raw = (slots / "ckpt-2.index").read_bytes()
    (slots / "ckpt-2.index").write_bytes(raw[: len(raw) * 6 // 10])
    ran = run("recover", slots, "-o", tmp_path / "out")
    assert ran.code == 4
    check_the_rest(slots, tmp_path / "out", "ckpt-2.index")
    partial = tmp_path / "out" / "ckpt-2.index.partial"
    assert files_in(partial) == ["as-found.bin"]
    assert (partial / "as-found.bin").read_bytes() == (slots / "ckpt-2.index").read_bytes()
    assert f"at byte {len(raw) * 6 // 10} of {slots / 'ckpt-2.index'}" in ran.out


@pytest.mark.parametrize("gone", [DATA_2, "ckpt-2.index"])
@pytest.mark.parametrize("named", [False, True])
def test_recover_without_index_or_data_keeps_the_other_as_it_is(run, slots, tmp_path, gone, named):
    (slots / gone).unlink()
    other = "ckpt-2.index" if gone == DATA_2 else DATA_2
    ran = run("recover", slots / other if named else slots, "-o", tmp_path / "out")
    assert ran.code == 4
    rows = rows_of(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items() if row["status"] != "complete"} == {gone: "missing"}
    assert (tmp_path / "out" / other).read_bytes() == (slots / other).read_bytes()
    assert "as-found" not in ran.out
    if not named:
        check_the_rest(slots, tmp_path / "out", gone)


def test_recover_of_checkpoints_none_of_which_is_the_latest_saves_all(run, slots, tmp_path):
    (slots / "checkpoint").write_text('model_checkpoint_path: "ckpt-77"\n')
    (slots / "graph.txt").write_text("not read by anybody")
    ran = run("recover", slots, "-o", tmp_path / "out")
    assert (ran.code, "ckpt-77, is not here" in ran.out) == (0, True)
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *files_in(slots)])


@pytest.mark.parametrize("name", ["slots", "slots/ckpt-2"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_recover_of_a_folder_or_checkpoint_in_an_archive(run, slots, tmp_path, name, is_whole):
    (slots / "ckpt-2.meta").write_bytes(b"")
    (slots / "below").mkdir()
    (slots / "below" / "notes.txt").write_text("of the second run")
    if not is_whole:
        flip(slots / DATA_2, 100)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(slots, "slots")
    ran = run("recover", f"{tmp_path / 'a.tar.gz'}::{name}", "-o", tmp_path / "out")
    assert ran.code == (0 if is_whole else 4)
    wanted = files_in(slots) if name == "slots" else [DATA_2, "ckpt-2.index", "ckpt-2.meta"]
    if not is_whole:
        wanted.remove(DATA_2)
        wanted += [f"{DATA_2}.partial/as-found.bin", "ckpt-2.safetensors", "ckpt-2.safetensors.rest.json"]
        wanted += ["ckpt-2.doubtful.safetensors", "ckpt-2.safetensors.partial/_CHECKPOINTABLE_OBJECT_GRAPH.bin"]
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *wanted])


def test_the_file_that_names_the_latest_checkpoint_may_be_empty(run, slots, tmp_path):
    (slots / "checkpoint").write_bytes(b"")
    ran = run("recover", slots, "-o", tmp_path / "out")
    assert ran.code == 0
    assert "it names no checkpoint" in ran.out
    assert "nothing is known to be missing" in ran.out
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *files_in(slots)])


def test_a_damaged_part_of_a_tensor_counts_as_one_tensor(run, tmp_path):
    for path in DATA.glob("parts.*"):
        shutil.copy(path, tmp_path)
    with pparse.view(tmp_path / "parts") as model:
        (tensor, *_) = [tensor for tensor in model.tensors() if len(tensor.spans) > 1]
        at, count = tensor.spans[1].offset, len(model)
    flip(tmp_path / "parts.data-00000-of-00001", at)
    ran = run("recover", tmp_path / "parts", "-o", tmp_path / "out")
    assert f"the bytes of 1 of the {count} tensors in it are damaged" in ran.out


def test_recover_of_data_files_alone_says_that_their_index_is_missing(run, slots, tmp_path):
    for path in slots.glob("*.index"):
        path.unlink()
    ran = run("recover", slots, "-o", tmp_path / "out")
    assert ran.code == 4
    rows = rows_of(tmp_path / "out")
    assert rows["ckpt-1.index"]["status"] == rows["ckpt-2.index"]["status"] == "missing"
    assert rows[DATA_1]["status"] == rows[DATA_2]["status"] == "complete"


def test_a_file_that_is_called_as_an_index_and_is_none_is_set_apart(run, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "m.index").write_text("hello, no index\n")
    (folder / "m.data-00000-of-00001").write_text("hello, no data\n")
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    rows = rows_of(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items()} == {
        "m.index.partial/as-found.bin": "damaged",
        "m.data-00000-of-00001": "complete",
    }


def test_what_recover_says_of_strings_and_lists_is_true(run, slots, tmp_path):
    flip(slots / DATA_2, 100)
    run("recover", slots / "ckpt-2", "-o", tmp_path / "out", "-v")
    rows = rows_of(tmp_path / "out")
    graph = rows["ckpt-2.safetensors.partial/_CHECKPOINTABLE_OBJECT_GRAPH.bin"]
    assert graph["status"] == "complete"
    assert rows["ckpt-2.safetensors.rest.json"]["status"] == "damaged"  # it is no file of the input
    assert graph["reason"].endswith("bytes are there: safetensors has no type for DT_STRING")
    assert rows["ckpt-2.safetensors"]["reason"].startswith("26 of 27 tensors are whole, 25 of them in this file")


def test_tensors_that_are_lost_are_not_counted_as_files(run, tmp_path):
    write(tmp_path, 20)
    with (tmp_path / "m.data-00000-of-00001").open("r+b") as file:
        file.truncate(100)
    ran = run("recover", tmp_path / "m", "-o", tmp_path / "out")
    assert ran.code == 4
    # The index, the saved tensors, what is left of the one that is cut, the list of those lost, and the data as found.
    assert f"\n{tmp_path}/out: 5 files, " in ran.out
    assert ": 1 complete, 4 truncated; 16 parts of them not saved" in ran.out
    assert len(files_in(tmp_path / "out")) == 6


def test_nothing_was_saved_if_there_is_but_a_list(run, tmp_path):
    (tmp_path / "old.ckpt").write_bytes((DATA / "version1.ckpt").read_bytes()[:60])
    ran = run("recover", tmp_path / "old.ckpt", "-o", tmp_path / "out")
    assert (ran.code, "nothing was saved" in ran.out) == (4, True)


def test_recover_counts_the_checksums_of_a_checkpoint_of_version_1_as_check_does(run, tmp_path):
    # The blocks have the checksums: what is computed from numbers in them is as sure as what is copied.
    assert "21 tensors; a checksum agrees for each" in run("check", DATA / "version1.ckpt").out
    ran = run("recover", DATA / "version1.ckpt", "-o", tmp_path / "out")
    assert "a checksum agrees for each of 21 parts of it" in ran.out


def test_convert_without_a_damaged_tensor_does_not_suspect_others(run, slots, tmp_path):
    flip(slots / DATA_2, 100)
    ran = run("convert", slots, "-o", tmp_path / "m.safetensors", "--skip-damaged")
    assert ran.code == 4
    assert ran.err.count("its checksum is wrong") == 1
    assert "more tensors" not in ran.err
    (slots / "ckpt-2.index").write_bytes((slots / "ckpt-2.index").read_bytes()[:-1])
    ran = run("convert", slots, "-o", tmp_path / "n.safetensors", "--skip-damaged")
    assert "more tensors or values may be missing" in ran.err
