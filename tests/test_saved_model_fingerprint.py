"""Fingerprints of SavedModel folders are compared: the only checksum that there is of the message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pparse
from pparse import Severity, Status
from pparse.proto_splitter.fingerprint import Fingerprint, read_fingerprint, write_fingerprint
from pparse.protos import message_class
from tests import sweep

SAMPLE = Path("docs/samples/saved-model")
CHUNKED = Path("tests/data/tf/fingerprints/chunked")


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "model"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x01
    path.write_bytes(content)


def told_by(folder: Path) -> list[pparse.Finding]:
    with pparse.view(folder) as model:
        return [finding for finding in model.check() if finding.code == "fingerprint"]


def test_constants_of_a_message_that_agrees_are_verified(run, folder):
    with pparse.view(folder) as model:
        names = [name for name, tensor in model.items() if tensor.verified is None]
        assert {model[name].encoding for name in names} >= {"raw", "typed"}
        assert list(model.check()) == []
        assert [name for name, tensor in model.items() if tensor.size and not tensor.verified] == []
    assert "a checksum agrees for each" in run("check", folder).out


@pytest.mark.parametrize("encoding", ["raw", "typed"])
def test_a_flipped_byte_of_a_constant_is_found_and_its_value_not_returned(run, folder, tmp_path, encoding):
    with pparse.view(folder) as model:
        tensor = next(t for t in model.values() if t.key is None and t.encoding == encoding and t.size and t.dtype)
        name, at = tensor.name, tensor.spans[0].offset
    flip(folder / "saved_model.pb", at)
    ran = run("check", folder)
    assert ran.code == 4
    assert "fingerprint.pb: saved_model.pb is not what it was when it was saved" in ran.out
    with pparse.view(folder) as model:
        variables = [tensor for tensor in model.values() if tensor.key]
        model.resolve_all()
        tensor = model[name]
        assert (tensor.status, tensor.verified) == (Status.DAMAGED, False)
        with pytest.raises(pparse.DamagedTensorError):
            tensor.numpy()
        assert variables
        assert all(tensor.verified for tensor in variables)  # they have checksums of their own
    ran = run("convert", folder, "-o", tmp_path / "out.safetensors", "--skip-damaged", "--skip-unsupported")
    with pparse.view(tmp_path / "out.safetensors") as saved:
        assert name not in saved
        assert {tensor.name for tensor in variables if tensor.dtype} == set(saved)


def test_recover_sets_a_message_apart_that_the_fingerprint_contradicts(run, folder, tmp_path):
    with pparse.view(folder) as model:
        at = next(t for t in model.values() if t.key is None and t.size and t.dtype).spans[0].offset
    flip(folder / "saved_model.pb", at)
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    assert not (tmp_path / "out" / "saved_model.pb").exists()
    assert (tmp_path / "out" / "saved_model.doubtful.pb").exists()
    assert (tmp_path / "out" / "variables" / "variables.index").exists()


@pytest.mark.parametrize("at", sweep.part(range(8)))
def test_damage_where_the_message_begins_is_told_by_check_and_recover_alike(run, folder, tmp_path, at):
    """Its first bytes are all that tells what it is, but its name says so, too."""
    flip(folder / "saved_model.pb", at)
    assert run("check", folder).code == 4
    assert run("recover", folder, "-o", tmp_path / "out").code == 4
    assert not (tmp_path / "out" / "saved_model.pb").exists() or at > 2


def test_each_flipped_byte_of_a_message_is_found(folder):
    message = folder / "saved_model.pb"
    whole = message.read_bytes()
    for at in sweep.some(range(len(whole)), 622):
        flip(message, at)
        with pparse.view(folder) as model:
            assert any(finding.severity is Severity.ERROR for finding in model.check()), at
        message.write_bytes(whole)


def test_variables_of_another_save_are_told(folder):
    other = Fingerprint(*read_fingerprint(folder).hashes[:4], 1, producer=4)
    write_fingerprint(folder, other)
    (told,) = told_by(folder)
    assert (told.severity, "the variables are not those" in told.reason) == (Severity.WARNING, True)


def test_other_producers_are_not_compared(folder):
    write_fingerprint(folder, Fingerprint(1, 2, 3, 4, 0, producer=1))
    assert told_by(folder) == []


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x08", None])
def test_a_fingerprint_that_cannot_be_read_is_told_and_says_nothing_of_the_model(run, folder, content):
    file = folder / "fingerprint.pb"
    file.write_bytes(file.read_bytes()[:57] if content is None else content)
    (told,) = told_by(folder)
    assert (told.severity, "fingerprint.pb cannot be read" in told.reason) == (Severity.ERROR, True)
    assert run("check", folder).code == 4
    assert run("info", folder).code == 0
    with pparse.view(folder) as model:
        assert all(tensor.status is Status.COMPLETE for tensor in model.values())


def test_chunks_are_compared_with_the_fingerprint_of_chunks(tmp_path):
    folder = Path(shutil.copytree(CHUNKED, tmp_path / "model"))
    values = write_fingerprint(folder)
    assert told_by(folder) == []
    write_fingerprint(folder, Fingerprint(values.saved_model_checksum ^ 1, *values.hashes[1:], producer=2))
    (told,) = told_by(folder)
    assert (told.severity, "saved_model.cpb is not the one" in told.reason) == (Severity.WARNING, True)


def test_a_message_that_does_not_fit_in_the_budget_is_left_uncompared_with_a_word_about_it(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    nodes = model.meta_graphs.add().graph_def.node
    for number in range(3_000):
        node = nodes.add(name=f"c{number}", op="Const")
        node.attr["value"].tensor.dtype = 3
        node.attr["value"].tensor.tensor_content = bytes(400)
        node.attr["value"].tensor.tensor_shape.dim.add(size=100)
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    write_fingerprint(folder)
    with pparse.view(folder, budget="1MiB") as model:
        (told,) = [finding for finding in model.check() if finding.code == "fingerprint"]
        assert (told.severity, "budget=" in told.reason) == (Severity.WARNING, True)
        assert next(iter(model.values())).verified is None
    assert told_by(folder) == []
