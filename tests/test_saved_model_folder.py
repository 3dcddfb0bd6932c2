"""SavedModel folders as one model: variables, constants, what is cut, damaged or missing; and models as text."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from google.protobuf import text_format

import pparse
from pparse import Status
from pparse.parsers.tensorflow import closed, kind_of
from pparse.proto_splitter.fingerprint import write_fingerprint
from pparse.protos import message_class
from pparse.recovery.model_files import ModelFiles
from pparse.recovery.recover import recover
from tests import sweep

KERAS = Path("tests/data/keras2")
EXPECTED = json.loads(Path("tests/data/checkpoint/keras2.json").read_text())
DATA_FILE = "variables/variables.data-00000-of-00001"


def bytes_of(tensor) -> str:
    return np.asarray(tensor.numpy()).tobytes().hex()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(KERAS, tmp_path / "model"))


def check_variables(model) -> None:
    for name, (key, dtype, shape, content) in EXPECTED.items():
        tensor = model[name]
        assert (tensor.key, str(tensor.numpy().dtype), list(tensor.shape)) == (key, dtype, shape)
        assert bytes_of(tensor) == content


def test_variables_come_with_the_constants_of_the_graph(run):
    with pparse.view(KERAS) as model:
        check_variables(model)
        names = list(model)
        assert len(names) == len(set(names)) == len(model)
        assert {name for name in names if not name.startswith("@")} > set(EXPECTED)
        assert sum(tensor.status is Status.COMPLETE for tensor in model.values()) == len(names)
        assert all(model.find(name) is not None for name in names)
    rows = run("ls", "-q", KERAS).out.splitlines()
    assert set(rows[: len(EXPECTED) + 1]) == {*EXPECTED, "_CHECKPOINTABLE_OBJECT_GRAPH"}


def test_info_tells_of_all_files(run):
    ran = run("info", KERAS)
    assert ran.code == 0
    for words in ("keras.name = sequential", "fingerprint.singleprint = ", "variables   2 files, 3,732 bytes"):
        assert words in ran.out, words


@pytest.mark.parametrize("wrapper", ["zip", "tar.gz"])
def test_a_folder_in_an_archive_is_one_model(tmp_path, folder, wrapper):
    if wrapper == "zip":
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in files_in(folder):
                archive.write(folder / name, f"model/{name}")
    else:
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            archive.add(folder, "model")
    shutil.rmtree(folder)
    with pparse.view(f"{tmp_path}/a.{wrapper}::model") as model:
        check_variables(model)
        assert model.metadata["keras"]["class_name"] == "Sequential"


@pytest.mark.parametrize("inner", [".", "./"])
def test_a_folder_at_the_top_of_an_archive_is_one_model(tmp_path, folder, inner):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in files_in(folder):
            archive.write(folder / name, name)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    for path in ("a.zip", "a.tar.gz"):
        with pparse.view(f"{tmp_path}/{path}::{inner}") as model:
            check_variables(model)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.txt", "no model")
    with pytest.raises(pparse.PathError):
        pparse.view(f"{tmp_path}/b.zip::{inner}")


def test_tensors_of_a_folder_are_pickled_and_its_files_entered(folder, run):
    with pparse.view(folder) as model:
        name, (_, _, _, content) = next(iter(EXPECTED.items()))
        again = pickle.loads(pickle.dumps(model[name]))
        assert (bytes_of(again), again.key) == (content, model[name].key)
        whole = pickle.loads(pickle.dumps(model))
        assert list(whole) == list(model)
    assert run("ls", f"{folder}::variables/variables").code == 0
    assert run("ls", f"{folder}::keras_metadata.pb").code == 0
    assert run("ls", f"{folder}::variables/../../x").code == 2
    assert run("ls", f"{folder}::nothing").code == 2


def test_threads_share_one_folder():
    with pparse.view(KERAS) as model:
        found: list[dict[str, str]] = []
        work = lambda: found.append({name: bytes_of(model[name]) for name in EXPECTED})  # noqa: E731
        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [{name: row[3] for name, row in EXPECTED.items()}] * 4


class Given(pparse.Folder):
    """A folder that a caller gave."""

    path = "given"

    def list(self) -> list[str]:
        return [path.name for path in KERAS.iterdir() if path.is_file()]

    def open(self, name: str) -> bytes:
        return (KERAS / name).read_bytes()


def test_a_folder_that_the_caller_gave_has_its_variables():
    with pparse.view(Given()) as model:
        check_variables(model)


def test_a_cut_data_file_leaves_whole_variables_under_their_names(run, folder, tmp_path):
    """The object graph is the last tensor: what the message says of the variables names them then."""
    size = (folder / DATA_FILE).stat().st_size
    with pparse.view(folder) as model:
        ends = {tensor.name: tensor.spans[0].offset + tensor.spans[0].length for tensor in model.values() if tensor.key}
    for cut in sorted({*ends.values(), size - 1, 10, 0}):
        with (folder / DATA_FILE).open("r+b") as file:
            file.truncate(cut)
        with pparse.view(folder) as model:
            for name, (_, _, _, content) in EXPECTED.items():
                tensor = model[name]
                assert (tensor.status is Status.COMPLETE) == (ends[name] <= cut), (name, cut)
                assert ends[name] > cut or bytes_of(tensor) == content
            extent = model.extent()
            assert extent.status is Status.COMPLETE if cut == size else Status.TRUNCATED
        shutil.copy(KERAS / DATA_FILE, folder / DATA_FILE)


def test_recover_of_a_cut_folder_saves_every_whole_variable(run, folder, tmp_path):
    with (folder / DATA_FILE).open("r+b") as file:
        file.truncate(400)
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    written = files_in(tmp_path / "out")
    assert {"saved_model.pb", "fingerprint.pb", "keras_metadata.pb", "variables/variables.safetensors"} <= set(written)
    with pparse.view(tmp_path / "out/variables/variables.safetensors") as saved, pparse.view(folder) as model:
        whole = {name for name in EXPECTED if model[name].status is Status.COMPLETE}
        assert set(saved) == whole
        assert 0 < len(whole) < len(EXPECTED)
        assert all(bytes_of(saved[name]) == EXPECTED[name][3] for name in whole)


def test_recover_of_a_whole_folder_copies_it(run, folder, tmp_path):
    (folder / "assets").mkdir()
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 0
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *files_in(KERAS)])
    assert all((tmp_path / "out" / name).read_bytes() == (KERAS / name).read_bytes() for name in files_in(KERAS))


def with_assets(folder: Path) -> list[str]:
    """Add an asset that two tensors take the path of, other files, and a folder without any; return all names."""
    made = message_class("tensorflow.SavedModel").FromString((folder / "saved_model.pb").read_bytes())
    for name in ("init:0", "init_1:0"):
        made.meta_graphs[0].asset_file_def.add(filename="vocab.txt").tensor_info.name = name
    (folder / "saved_model.pb").write_bytes(made.SerializeToString())
    write_fingerprint(folder)
    (folder / "assets.extra" / "empty").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "assets" / "vocab.txt").write_text("the\na\n")
    (folder / "assets" / "packed.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 20))
    (folder / "assets.extra" / "note.json").write_text("{}")
    (folder / "README.md").write_text("trained on Monday\n")
    return files_in(folder)


def test_recover_of_a_whole_folder_copies_every_file_once(run, folder, tmp_path):
    names = with_assets(folder)
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 0
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *names])
    assert all((tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes() for name in names)
    assert (tmp_path / "out" / "assets.extra" / "empty").is_dir()


@pytest.mark.parametrize("content", [0.6, b"this is no model at all\n", b""])
def test_whatever_becomes_of_the_message_every_other_file_is_saved(run, folder, tmp_path, content):
    names = with_assets(folder)
    whole = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(whole[: int(len(whole) * content)] if content == 0.6 else content)
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    for name in names:
        if name != "saved_model.pb":
            assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    if content == 0.6:
        assert f"resume the download at byte {int(len(whole) * content)} of {folder / 'saved_model.pb'}" in ran.out
        return
    assert not (tmp_path / "out" / "saved_model.pb").exists()
    if content:
        assert (tmp_path / "out" / "saved_model.pb.partial" / "as-found.bin").read_bytes() == content
    else:
        assert "saved_model.pb (not written)" in ran.out


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_text_is_written_as_it_is_if_it_is_whole(run, folder, tmp_path, text, wrapped):
    (folder / "saved_model.pb").unlink()
    path = folder / "saved_model.pbtxt"
    for whole in (True, False):
        path.write_text(text if whole else text[: len(text) // 2])
        out = tmp_path / f"out{whole}"
        ran = run("recover", folder if wrapped else path, "-o", out)
        assert ran.code == (0 if whole else 4)
        kept = out / ("saved_model.pbtxt" if whole else "saved_model.pbtxt.partial/as-found.bin")
        assert kept.read_bytes() == path.read_bytes()
        assert (out / "saved_model.pbtxt").exists() == whole
        assert (out / "saved_model.pb").exists() != whole
        if not whole:
            with pparse.view(path) as model, pparse.view(out / "saved_model.pb") as saved:
                assert list(saved) == list(model)


def test_variables_without_a_message_are_saved(run, folder, tmp_path):
    names = with_assets(folder)
    (folder / "saved_model.pb").unlink()
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *names[:-3], *names[-2:]])


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("assets/vocab.txt", "the graph needs it"),
        ("variables/variables.index", "cannot be read without their index"),
        (DATA_FILE, "is not there"),
        ("variables", "cannot be read without their index"),
    ],
)
def test_a_file_of_the_model_that_is_not_there_is_missing(run, folder, tmp_path, gone, words):
    with_assets(folder)
    path = folder / gone
    if path.is_dir():
        shutil.rmtree(path)
        gone = "variables/variables.index"
    else:
        path.unlink()
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    (row,) = (line for line in ran.out.splitlines() if line.startswith("missing"))
    assert f"{gone} (not written)" in row
    assert words in row
    assert ran.out.endswith(f"fetch {folder / gone}\n")
    assert set(files_in(folder)) <= set(files_in(tmp_path / "out"))


def test_links_in_a_folder_lead_to_files_and_to_the_folders_of_the_model(run, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_text("x")
    (folder / "variables").rename(tmp_path / "kept")
    (folder / "variables").symlink_to(tmp_path / "kept")
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to("self")
    (folder / "linked.txt").symlink_to(tmp_path / "elsewhere" / "secret.txt")
    ran = run("recover", folder, "-o", folder / "out")  # which lies in it
    assert ran.code == 4  # a link to itself cannot be opened
    assert ran.out.count("a link to a folder, which is never written") == 2
    assert files_in(folder / "out") == sorted([*files_in(KERAS), "RECOVERY.json", "linked.txt"])
    assert not (folder / "out" / "linked.txt").is_symlink()


def test_recover_of_a_folder_goes_on_where_it_was_stopped(folder, tmp_path, monkeypatch):
    names = with_assets(folder)
    out = tmp_path / "out"
    with pparse.open(folder) as document, monkeypatch.context() as patched:
        patched.setattr(ModelFiles, "save_file", stop_at("assets/vocab.txt", ModelFiles.save_file))
        with pytest.raises(KeyboardInterrupt):
            recover(document, out)
    with pparse.open(folder) as document:
        outcome = recover(document, out)
    assert outcome.is_whole
    assert outcome.resumed == 6  # the variables, four files of the folder itself, and the first asset
    assert files_in(out) == sorted(["RECOVERY.json", *names])
    assert not (out / ".pparse-unfinished").exists()


def stop_at(stop: str, save):
    def saving(self, name, *given, **more):
        if name == stop:
            raise KeyboardInterrupt
        save(self, name, *given, **more)

    return saving


def test_recover_of_a_folder_that_the_caller_gave(tmp_path):
    with pparse.open(Given()) as document:
        assert recover(document, tmp_path / "out").is_whole
    assert files_in(tmp_path / "out") == sorted(["RECOVERY.json", *files_in(KERAS)])


def test_convert_of_a_folder_holds_every_variable(run, tmp_path):
    ran = run("convert", KERAS, "-o", tmp_path / "m.safetensors")
    assert ran.code == 0, ran.err
    with pparse.view(tmp_path / "m.safetensors") as model:
        assert set(EXPECTED) <= set(model)
        assert all(bytes_of(model[name]) == row[3] for name, row in EXPECTED.items())


def test_a_flipped_byte_of_a_variable_is_found_by_check_and_never_returned(run, folder):
    content = bytearray((folder / DATA_FILE).read_bytes())
    with pparse.view(folder) as model:
        at = model["dense/kernel" if "dense/kernel" in model else next(iter(EXPECTED))].spans[0].offset
        name = next(t.name for t in model.values() if t.key and t.spans[0].offset == at)
    content[at] ^= 0x40
    (folder / DATA_FILE).write_bytes(content)
    ran = run("check", folder)
    assert (ran.code, name in ran.out) == (4, True)
    with pparse.view(folder) as model, pytest.raises(pparse.PparseError):
        model[name].numpy()


def test_a_cut_message_leaves_the_variables(folder):
    size = (folder / "saved_model.pb").stat().st_size
    for cut in range(4, size, size // 13):
        with (folder / "saved_model.pb").open("r+b") as file:
            file.truncate(cut)
        with pparse.view(folder) as model:
            check_variables(model)
            assert model.extent().status is Status.TRUNCATED
        shutil.copy(KERAS / "saved_model.pb", folder / "saved_model.pb")


@pytest.mark.parametrize("lost", ["variables", "variables/variables.index"])
def test_variables_that_are_not_there_are_listed_as_missing(run, folder, lost):
    if (folder / lost).is_dir():
        shutil.rmtree(folder / lost)
    else:
        (folder / lost).unlink()
    for command in ("ls", "check", "info"):
        assert run(command, folder).code == 4, command
    with pparse.view(folder) as model:
        for name, (key, dtype, shape, _) in EXPECTED.items():
            tensor = model[name]
            assert (tensor.status, tensor.key, str(tensor.dtype), list(tensor.shape)) == (
                Status.MISSING,
                key,
                dtype,
                shape,
            )
            assert model[key].name == name
            with pytest.raises(pparse.MissingTensorError):
                tensor.numpy()
        assert model.extent().missing == len(EXPECTED)
        assert set(EXPECTED) < set(model)


def test_a_graph_without_variables_needs_no_folder_of_variables(run, tmp_path):
    model = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    model.meta_graphs.add().graph_def.node.add(name="x", op="Placeholder")
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert run("check", tmp_path).code == 0
    # A Saver's collection says that there were variables, though not which.
    model.meta_graphs[0].collection_def["variables"].bytes_list.value.append(b"x")
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert run("check", tmp_path).code == 4


@pytest.mark.parametrize("content", [b"", b"\x08\x01"])
def test_a_message_without_meta_graph_is_cut(run, folder, content):
    (folder / "saved_model.pb").write_bytes(content)
    for command in ("ls", "check"):
        ran = run(command, folder)
        assert ran.code == 4, command
        assert f"{folder}/saved_model.pb" in ran.out + ran.err
    with pparse.view(folder) as model:
        assert model.status is Status.TRUNCATED


@pytest.mark.parametrize("content", [None, b"root:x:0:0:root:/root:/bin/bash\n" * 9])
def test_without_its_message_the_variables_of_a_folder_are_shown(run, folder, content):
    if content is None:
        (folder / "saved_model.pb").unlink()
    else:
        (folder / "saved_model.pb").write_bytes(content)
    assert run("check", folder).code == 4
    assert run("ls", folder).code == 4
    with pparse.view(folder) as model:
        for name, row in EXPECTED.items():
            assert bytes_of(model[name]) == row[3]


def test_the_message_alone_says_that_it_has_no_variables(run):
    ran = run("ls", KERAS / "saved_model.pb")
    assert ran.code == 0
    with pparse.view(KERAS / "saved_model.pb") as model:
        assert not any(name in model for name in EXPECTED)


def test_the_chunked_message_is_taken_and_that_is_told(folder):
    chunked = Path("tests/data/tf/const_chunked/saved_model.cpb")
    shutil.copy(chunked, folder / "saved_model.cpb")
    with pparse.view(folder) as model:
        assert dict(model.parser.details())["model"].startswith("saved_model.cpb")
        assert "other-model" in {finding.code for finding in model.findings}
        check_variables(model)


def test_an_asset_that_is_not_there_is_told(tmp_path):
    made = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    graph = made.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    graph.asset_file_def.add(filename="words.txt").tensor_info.name = "init:0"
    graph.asset_file_def.add(filename="../secret").tensor_info.name = "evil:0"
    (tmp_path / "saved_model.pb").write_bytes(made.SerializeToString())
    with pparse.open(tmp_path) as document:
        assert {finding.path for finding in document.check()} == {"init:0", "evil:0"}
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "words.txt").write_text("a")
    (tmp_path / "secret").write_text("a")
    with pparse.open(tmp_path) as document:
        assert {finding.path for finding in document.check()} == {"evil:0"}


@pytest.mark.parametrize("name", ["fingerprint.pb", "keras_metadata.pb"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x0a\x04\x1a\x04root\x2a\x02{]", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_wrong_with_a_small_file_beside_the_model_keeps_nobody_from_it(run, folder, name, content):
    (folder / name).write_bytes(content)
    with pparse.view(folder) as model:
        check_variables(model)
        model.metadata  # noqa: B018 -- it is read here
    assert run("info", folder).code == 0


def test_a_meta_graph_tells_of_its_saver(run, tmp_path):
    made = message_class("tensorflow.MetaGraphDef")()
    made.meta_info_def.tensorflow_version = "2.21.0"
    made.saver_def.max_to_keep, made.saver_def.version = 5, 2
    made.graph_def.node.add(name="c", op="Const")
    (tmp_path / "m.ckpt-7.meta").write_bytes(made.SerializeToString())
    ran = run("info", tmp_path / "m.ckpt-7.meta")
    assert "saver.version = V2" in ran.out
    assert "saver.max_to_keep = 5" in ran.out


# -- text --------------------------------------------------------------------------------------------------------------


def as_text(content: bytes, name: str) -> str:
    return str(text_format.MessageToString(message_class(name).FromString(content)))


@pytest.fixture(scope="module")
def text() -> str:
    return as_text((KERAS / "saved_model.pb").read_bytes(), "tensorflow.SavedModel")


def constants(path) -> dict[str, object]:
    with pparse.view(path) as model:
        return {
            tensor.name: list(tensor.strings()) if tensor.is_text else bytes_of(tensor)
            for tensor in model.tensors()
            if tensor.key is None and tensor.status is Status.COMPLETE
        }


def test_a_model_as_text_is_what_the_message_is(folder, text):
    wanted = constants(KERAS)
    (folder / "saved_model.pb").unlink()
    (folder / "saved_model.pbtxt").write_text(text)
    assert constants(folder) == wanted
    with pparse.view(folder) as model:
        check_variables(model)
        assert "serving_default" in model.signatures
    with pparse.view(folder / "saved_model.pbtxt") as model:
        assert model.format == "saved-model"


def test_a_text_that_ends_anywhere_has_no_wrong_value(tmp_path, text):
    """Blocks that are open at the end are left out: a list of values that is cut would be taken for a short one."""
    (tmp_path / "m.pbtxt").write_text(text)
    wanted = constants(tmp_path / "m.pbtxt")
    counts = []
    for cut in sweep.some(range(200, len(text), len(text) // 60), 6, ends=2):
        (tmp_path / "m.pbtxt").write_text(text[:cut])
        found = constants(tmp_path / "m.pbtxt")
        assert found.items() <= wanted.items(), cut
        counts.append(len(found))
        with pparse.view(tmp_path / "m.pbtxt") as model:
            assert model.extent().status is Status.TRUNCATED
    assert counts == sorted(counts)
    assert counts[-1] > len(wanted) // 2


def test_a_folder_whose_text_is_cut_is_not_whole(run, folder, text):
    (folder / "saved_model.pb").unlink()
    (folder / "saved_model.pbtxt").write_text(text[: len(text) // 2])
    for words in (("check",), ("ls", "-l")):
        ran = run(*words, folder)
        assert ran.code == 4, words
        assert ran.out.count("truncated @") == (words[0] == "check")
    assert f"resume the download at byte {len(text) // 2} of " in ran.out
    assert "saved_model.pbtxt (curl" in ran.out
    with pparse.open(folder) as document:
        assert document.root.status is Status.TRUNCATED


@pytest.mark.parametrize("opening", ["node { ", "node < ", "strange { "])
def test_a_text_of_too_many_blocks_in_blocks_is_read_up_to_there(run, tmp_path, opening):
    node = 'node { name: "a" op: "Const" attr { key: "x" value { list { func {\n'
    deep = node + 'attr { key: "y" value { list { func { ' * 9_000
    (tmp_path / "m.pbtxt").write_text(
        'node { name: "first" op: "NoOp" }\n' + (deep if "node {" in opening else opening * 9_000)
    )
    ran = run("check", tmp_path / "m.pbtxt")
    assert ran.code == 4
    assert "blocks are nested more than 100 deep" in ran.out
    assert "resume" not in ran.out
    assert "first" in run("graph", tmp_path / "m.pbtxt").out


def test_a_text_that_is_damaged_is_read_up_to_there(tmp_path, text):
    lines = text.splitlines(keepends=True)
    for at in sweep.some(range(5, len(lines), len(lines) // 25), 2):
        (tmp_path / "m.pbtxt").write_text("".join([*lines[:at], "  ?! {\n", *lines[at:]]))
        with pparse.view(tmp_path / "m.pbtxt") as model:
            assert model.extent().status is Status.DAMAGED, at
            assert any(f"line {at + 1:,} " in str(finding) for finding in model.findings), at


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"saved_model_schema_version: 1\n", "saved-model"),
        (b"# a comment\nmeta_graphs {\n", "saved-model"),
        (b"node {\n  name: 'a'", "graph-def"),
        (b"meta_info_def {", "meta-graph"),
        (b"layer {", None),
        (b"", None),
    ],
)
def test_a_text_is_recognised_by_its_first_field(head, expected):
    assert (kind_of(head) or (None,))[0] == expected


def test_open_blocks_are_left_out_but_for_those_of_graphs():
    assert closed(b"meta_graphs {\n graph_def {\n node {\n a: 1\n }\n node { b: '}' c: {") == (
        b"meta_graphs {\n graph_def {\n node {\n a: 1\n }\n \n}}"
    )


def test_a_text_that_is_too_long_for_the_budget_says_what_to_do(run, tmp_path, text):
    (tmp_path / "m.pbtxt").write_text(text)
    ran = run("ls", tmp_path / "m.pbtxt", "--budget", "1MiB")
    assert (ran.code, "--budget" in ran.err) == (2, True)


@pytest.mark.parametrize(("name", "kept"), [(DATA_FILE, 100), ("variables/variables.index", 179)])
def test_check_tells_each_error_once(run, folder, name, kept):
    with open(folder / name, "r+b") as file:
        file.truncate(kept)
    ran = run("check", folder)
    assert ran.code == 4
    errors = [line for line in ran.out.splitlines() if line.startswith("error")]
    assert len(errors) == len(set(errors)) > 0
    assert f"({len(errors)} error" in ran.out
