"""Files beside a member of an archive: a sharded model in a zip or tar is one model, a SavedModel in a tar too."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.cli import main
from pparse.findings import Severity, Status

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"
SHARDED = sorted((SAMPLES / "sharded").iterdir())
INDEX = "model.safetensors.index.json"


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return out.getvalue()


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def files_in(prefix: str) -> dict[str, bytes]:
    return {prefix + path.name: path.read_bytes() for path in SHARDED}


ARCHIVES = {
    "stored.zip": zip_of,
    "deflated.zip": lambda files: zip_of(files, zipfile.ZIP_DEFLATED),
    "plain.tar": tar_of,
    "packed.tar.gz": lambda files: gzip.compress(tar_of(files), mtime=0),
    "nested.zip": lambda files: zip_of({"in.tar.gz": gzip.compress(tar_of(files), mtime=0)}),
}


@pytest.fixture(scope="module")
def whole() -> dict[str, np.ndarray]:
    with pparse.view(SAMPLES / "sharded") as model:
        return {name: tensor.numpy() for name, tensor in model.items()}


def write(folder: Path, name: str, prefix: str = "m/") -> str:
    path = folder / name
    path.write_bytes(ARCHIVES[name](files_in(prefix)))
    return f"{path}::in.tar.gz" if name == "nested.zip" else str(path)


def same(model: pparse.Viewer, whole: dict[str, np.ndarray]) -> bool:
    return sorted(model) == sorted(whole) and all(np.array_equal(model[name].numpy(), whole[name]) for name in whole)


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("prefix", ["m/", "", "./m/"])
def test_a_sharded_model_in_an_archive_is_one_model_by_its_index(name, prefix, tmp_path, whole):
    path = write(tmp_path, name, prefix)
    with pparse.view(f"{path}::{prefix.removeprefix('./')}{INDEX}") as model:
        assert same(model, whole)
        assert model.status is Status.COMPLETE
        assert not [finding for finding in model.check() if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("folder", ["m", "m/"])
def test_a_folder_in_an_archive_that_holds_one_model_is_that_model(name, folder, tmp_path, whole):
    path = write(tmp_path, name)
    with pparse.view(f"{path}::{folder}") as model:
        assert same(model, whole)
        handle = pickle.dumps(model)
    found = pickle.loads(handle)
    assert same(found, whole)
    found.close()


def test_commands_show_it_as_one_model(tmp_path, capsys):
    path = write(tmp_path, "packed.tar.gz")
    assert main(["ls", f"{path}::m"]) == 0
    assert "21 tensors" in capsys.readouterr().out
    assert main(["check", f"{path}::m/{INDEX}"]) == 0
    assert main(["get", f"{path}::m", "ln_f.weight", "-o", str(tmp_path / "out.npy")]) == 0
    with pparse.view(SAMPLES / "sharded") as model:
        assert np.array_equal(np.load(tmp_path / "out.npy"), model["ln_f.weight"].numpy())


def test_a_walk_through_the_archive_meets_every_shard_once(tmp_path, capsys):
    path = write(tmp_path, "stored.zip")
    assert main(["check", "-R", path]) == 0
    assert "4 files" in capsys.readouterr().out
    assert main(["recover", path, "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    for file in SHARDED:
        found = [saved for saved in (tmp_path / "out").rglob(file.name) if saved.is_file()]
        assert [saved.read_bytes() for saved in found] == [file.read_bytes()]


def test_a_shard_that_the_archive_lacks_is_missing(tmp_path):
    files = files_in("m/")
    del files["m/model-00002-of-00003.safetensors"]
    (tmp_path / "a.zip").write_bytes(zip_of(files))
    with pparse.view(tmp_path / f"a.zip::m/{INDEX}") as model:
        statuses = [tensor.status for tensor in model.values()]
        assert 0 < statuses.count(Status.MISSING) < 21
        assert statuses.count(Status.COMPLETE) + statuses.count(Status.MISSING) == 21
        found = [finding for finding in model.check() if finding.code == "missing-shard"]
        assert [finding.path for finding in found] == ["model-00002-of-00003.safetensors"]
        assert "is not there" in found[0].reason


@pytest.mark.parametrize("name", ["plain.tar", "stored.zip", "packed.tar.gz"])
def test_a_cut_archive_gives_every_tensor_whose_shard_is_there(name, tmp_path, whole):
    files = dict(reversed(files_in("m/").items()))  # the index first
    content = ARCHIVES[name](files)
    order = [path for path in files if path.endswith(".safetensors")]
    for part in (0.5, 0.8):
        (tmp_path / name).write_bytes(content[: int(part * len(content))])
        with pparse.view(f"{tmp_path / name}::m/{INDEX}") as model:
            complete = 0
            for tensor in model.values():
                if tensor.is_complete:
                    assert np.array_equal(tensor.numpy(), whole[tensor.name])
                    complete += 1
            assert 0 < complete < 21
            assert model.status is not Status.COMPLETE
    assert order


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "..\\x.safetensors", "."])
def test_names_that_leave_the_folder_are_refused(name, tmp_path):
    index = b'{"weight_map":{"a":"%s"}}' % name.replace("\\", "\\\\").encode()
    content = zip_of({f"m/{INDEX}": index, "x.safetensors": SHARDED[0].read_bytes()})
    (tmp_path / "a.zip").write_bytes(content)
    with pparse.view(tmp_path / f"a.zip::m/{INDEX}", format="safetensors-index") as model:
        assert [tensor.status for tensor in model.values()] == [Status.MISSING]


def test_an_index_that_names_itself_or_an_archive_ends(tmp_path):
    inner = zip_of(files_in(""))
    index = b'{"weight_map":{"a":"%s","b":"in.zip"}}' % INDEX.encode()
    (tmp_path / "a.zip").write_bytes(zip_of({INDEX: index, "in.zip": inner}))
    with pparse.view(tmp_path / f"a.zip::{INDEX}", format="safetensors-index") as model:
        assert [tensor.status for tensor in model.values()] == [Status.MISSING] * 2


def test_a_folder_in_an_archive_that_holds_no_model_is_still_named_as_a_folder(tmp_path):
    (tmp_path / "a.zip").write_bytes(zip_of({"m/": b"", "m/a.txt": b"a text and more text"}))
    with pytest.raises(pparse.PathError, match="it is a folder in the archive"):
        pparse.open(tmp_path / "a.zip::m")


def test_a_saved_model_in_a_tar_is_read_as_its_folder_is(tmp_path):
    folder = SAMPLES / "chunked-model"
    files = {f"export/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name, make in (("a.tar", tar_of), ("a.zip", zip_of)):
        (tmp_path / name).write_bytes(make(files))
        with pparse.view(folder) as wanted, pparse.view(tmp_path / f"{name}::export") as model:
            assert list(model) == list(wanted)
            assert model.format == wanted.format
            for tensor in wanted.values():
                assert np.array_equal(model[tensor.name].numpy(), tensor.numpy())


def test_threads_share_a_model_in_an_archive(tmp_path, whole):
    path = write(tmp_path, "packed.tar.gz")
    wrong: list[str] = []
    with pparse.view(f"{path}::m") as model:

        def work() -> None:
            wrong.extend(name for name in whole if not np.array_equal(model[name].numpy(), whole[name]))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
