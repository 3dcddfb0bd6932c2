"""PyTorch checkpoints in combinations: in archives in archives, by threads, by handles, closed while they are read."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

import pparse
from pparse.document import handles
from pparse.errors import ClosedError, DataChangedError, TensorError
from tests.pytorch_files import checkpoint, numbered
from tests.pytorch_zoo import FOLDER

COUNT, NBYTES = 12, 8192
TENSORS, CONTENTS = numbered(COUNT, NBYTES, seed=7)
MADE = checkpoint(TENSORS, CONTENTS)
HIT = "layers.5.weight"


@pytest.fixture(autouse=True)
def _no_documents():
    handles.at_fork()


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]


def wrapped(content: bytes) -> bytes:
    """Return a tar.gz of a zip of a checkpoint, deflated there."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/model.pt", content)
        archive.writestr("m/notes.txt", "text " * 900)
    with tarfile.open(fileobj=outer, mode="w") as archive:
        member = tarfile.TarInfo("pack/in.zip")
        member.size = len(inner.getvalue())
        archive.addfile(member, io.BytesIO(inner.getvalue()))
    return gzip.compress(outer.getvalue(), 6, mtime=0)


def together(works) -> list[object]:
    """Run all at the same time, switching as often as can be; return what each gave, or its error."""
    found: list[object] = [None] * len(works)
    ready = threading.Barrier(len(works))

    def run(number: int) -> None:
        ready.wait()
        try:
            found[number] = works[number]()
        except Exception as error:
            found[number] = error

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "it does not end"
    finally:
        sys.setswitchinterval(interval)
    return found


# -- four threads on a checkpoint in a zip in a tar.gz ---------------------------------------------------------------


def answers_of_four(path):
    """Ask one document in four threads: for its list, its tensors from both ends, and a check."""

    def read(names):
        found = {}
        for name in names:
            tensor = model[name]
            try:
                found[name] = tensor.numpy().tobytes()
            except TensorError as error:
                found[name] = error
        return found

    with pparse.open(f"{path}::pack/in.zip::m/model.pt") as inner:
        model = inner.view()
        given = together(
            [
                lambda: [(tensor.name, tensor.shape) for tensor in model.tensors()],
                lambda: read(TENSORS),
                lambda: read(reversed(TENSORS)),
                lambda: list(inner.check()),
            ]
        )
        after = {tensor.name: (tensor.status.value, tensor.verified) for tensor in model.tensors()}
    return given, after


def test_four_threads_read_and_check_one_checkpoint_in_a_zip_in_a_tar_gz(tmp_path):
    (tmp_path / "it.tar.gz").write_bytes(wrapped(MADE.content))
    (listed, forth, back, checked), after = answers_of_four(tmp_path / "it.tar.gz")
    assert listed == [(name, tuple(shape)) for name, (_, shape) in TENSORS.items()]
    assert forth == back == CONTENTS
    assert checked == []
    assert after == dict.fromkeys(TENSORS, ("complete", True))


def test_four_threads_agree_on_the_tensor_whose_checksum_is_wrong(tmp_path):
    (tmp_path / "it.tar.gz").write_bytes(wrapped(flipped(MADE.content, MADE.places[HIT][0] + 100)))
    (listed, forth, back, checked), after = answers_of_four(tmp_path / "it.tar.gz")
    assert [name for name, _ in listed] == list(TENSORS)
    for found in (forth, back):
        assert {name: found[name] for name in TENSORS if name != HIT} == {
            name: content for name, content in CONTENTS.items() if name != HIT
        }
    assert [finding.path for finding in checked if finding.severity.value == "error"] == ["model/data/5"]
    assert after == {name: ("damaged", False) if name == HIT else ("complete", True) for name in TENSORS}


def test_four_threads_get_what_a_cut_stream_still_has_and_nothing_else(tmp_path):
    whole = wrapped(MADE.content)
    (tmp_path / "it.tar.gz").write_bytes(whole[: len(whole) * 2 // 3])
    (listed, forth, back, checked), after = answers_of_four(tmp_path / "it.tar.gz")
    assert [name for name, _ in listed] == list(TENSORS)
    had = [name for name in TENSORS if isinstance(forth[name], bytes)]
    assert COUNT // 2 <= len(had) < COUNT
    assert had == list(TENSORS)[: len(had)]
    for found in (forth, back):
        assert {name: content for name, content in found.items() if isinstance(content, bytes)} == {
            name: CONTENTS[name] for name in had
        }
    assert checked
    assert [name for name, (status, _) in after.items() if status == "complete"] == had


# -- a set of shards -------------------------------------------------------------------------------------------------

INDEX = FOLDER / "sharded" / "pytorch_model.bin.index.json"


def contents_of(model):
    return {name: tensor.numpy().tobytes() for name, tensor in model.items()}


def test_two_threads_read_one_sharded_index():
    with pparse.view(INDEX) as model:
        wanted = contents_of(model)
    for _ in range(5):
        with pparse.view(INDEX) as model:
            one, other = together([lambda: contents_of(model), lambda: contents_of(model)])
        assert one == other == wanted


def test_a_set_that_is_closed_while_another_thread_reads_it_raises_closed_error_only():
    for number in range(20):
        model = pparse.view(INDEX)
        tensors = list(model.tensors())

        def read(model=model, tensors=tensors):
            for _ in range(50):
                for tensor in tensors:
                    tensor.numpy()
                contents_of(model)
            return "all"

        def close(model=model, number=number):
            for _ in range(number * 20):
                pass
            model.close()

        given = together([read, close, read])
        assert given[1] is None
        for found in (given[0], given[2]):
            assert found == "all" or isinstance(found, ClosedError), found


# -- handles ---------------------------------------------------------------------------------------------------------

READER = """
import hashlib, pickle, sys
for tensor in pickle.load(sys.stdin.buffer):
    try:
        print(tensor.name, hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
    except Exception as error:
        print(tensor.name, type(error).__name__)
"""


def elsewhere(kept: bytes) -> dict[str, str]:
    """Open pickled tensors in another process; return the digest of each, or its error."""
    done = subprocess.run([sys.executable, "-c", READER], input=kept, capture_output=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.decode().splitlines())


def test_handles_of_tensors_in_a_tar_gz_are_read_in_another_process_unless_it_changed(tmp_path):
    path = tmp_path / "it.tar.gz"
    path.write_bytes(wrapped(MADE.content))
    names = list(TENSORS)[3:7]
    with pparse.view(f"{path}::pack/in.zip::m/model.pt") as model:
        kept = pickle.dumps([model[name] for name in names])
    assert len(kept) < 8000
    assert elsewhere(kept) == {name: hashlib.sha256(CONTENTS[name]).hexdigest() for name in names}
    other = checkpoint(*numbered(COUNT, NBYTES, seed=8))
    path.write_bytes(wrapped(other.content))
    assert elsewhere(kept) == dict.fromkeys(names, DataChangedError.__name__)


# -- what may be wrong with a shard ----------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path):
    """A folder with an index and three shards; the second one is to be replaced."""
    folder = tmp_path / "set"
    folder.mkdir()
    for file in INDEX.parent.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


SECOND = "pytorch_model-00002-of-00003.bin"


def seen(folder):
    """Return the status of each tensor, and the findings that are errors, by code and reason."""
    with pparse.view(folder / INDEX.name) as model:
        statuses = {tensor.name: tensor.status.value for tensor in model.tensors()}
        errors = [(one.code, one.path, one.reason) for one in model.findings if one.severity.value == "error"]
        for name, status in statuses.items():
            tensor = model[name]
            assert tensor.status.value == status
            if status != "complete":
                with pytest.raises(TensorError):
                    tensor.numpy()
        return statuses, errors, model.status.value


@pytest.fixture
def lost():
    """What is in the second shard."""
    with pparse.view(INDEX.parent / SECOND) as model:
        return set(model)


def only_those(statuses, names, status):
    assert {name for name, one in statuses.items() if one != "complete"} == names
    assert {one for one in statuses.values() if one != "complete"} == {status}


def test_a_shard_that_is_missing(shards, lost):
    (shards / SECOND).unlink()
    statuses, errors, status = seen(shards)
    only_those(statuses, lost, "missing")
    assert [(code, path) for code, path, _ in errors] == [("missing-shard", SECOND)]
    assert status == "truncated"


def test_a_shard_of_no_bytes(shards, lost):
    (shards / SECOND).write_bytes(b"")
    statuses, errors, _ = seen(shards)
    only_those(statuses, lost, "missing")
    assert [(code, path) for code, path, _ in errors] == [("missing-shard", SECOND)]


def test_a_shard_that_is_cut(shards, lost):
    content = (shards / SECOND).read_bytes()
    with pparse.view(shards / SECOND) as model:
        first = min(tensor.spans[0].offset for tensor in model.tensors())
    (shards / SECOND).write_bytes(content[: first + 8])
    statuses, _, status = seen(shards)
    assert {name for name, one in statuses.items() if one != "complete"} == lost
    assert {statuses[name] for name in lost} <= {"truncated", "missing"}
    assert status == "truncated"


def test_a_shard_that_is_a_safetensors_file(shards, lost, tmp_path):
    from safetensors.numpy import save_file

    with pparse.view(shards / SECOND) as model:
        arrays = {name: tensor.numpy() for name, tensor in model.items()}
    save_file(arrays, shards / SECOND)
    statuses, errors, status = seen(shards)
    only_those(statuses, lost, "missing")
    assert [(code, path) for code, path, _ in errors] == [("missing-shard", SECOND)]
    assert "safetensors" in errors[0][2]
    assert status != "complete"


def outside(shards, name):
    """Let the index say that the second shard is ``name``."""
    text = (shards / INDEX.name).read_text()
    assert SECOND in text
    (shards / INDEX.name).write_text(text.replace(SECOND, name))


@pytest.mark.parametrize(
    "name", ["../elsewhere.bin", "/elsewhere.bin", "..\\\\elsewhere.bin", "sub/../../elsewhere.bin"]
)
def test_a_shard_outside_of_the_folder_is_refused(shards, lost, name):
    (shards / SECOND).rename(shards.parent / "elsewhere.bin")
    outside(shards, name)
    statuses, errors, _ = seen(shards)
    only_those(statuses, lost, "missing")
    assert {code for code, _, _ in errors} == {"missing-shard"}


def test_a_shard_that_is_a_link_out_of_the_folder_is_read_as_in_download_caches(shards):
    (shards / SECOND).rename(shards.parent / "elsewhere.bin")
    os.symlink(shards.parent / "elsewhere.bin", shards / SECOND)
    with pparse.view(shards / INDEX.name) as linked, pparse.view(INDEX) as model:
        assert contents_of(linked) == contents_of(model)


def test_a_shard_that_is_a_link_to_itself_or_to_a_device_is_refused(shards, lost):
    for target in (SECOND, "/dev/zero"):
        if (shards / SECOND).is_symlink() or (shards / SECOND).exists():
            (shards / SECOND).unlink()
        os.symlink(target, shards / SECOND)
        statuses, errors, _ = seen(shards)
        only_those(statuses, lost, "missing")
        assert {code for code, _, _ in errors} == {"missing-shard"}
