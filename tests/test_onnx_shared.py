"""ONNX models in use by several threads, and their tensors sent to other processes."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

import pparse
from tests.test_onnx_salvage import external, layers, tensors


def packed(tmp_path, files: dict[str, bytes]) -> str:
    """Put files into a zip in a tar.gz; return the path of the first."""
    inner, outer = io.BytesIO(), tmp_path / "a.tar.gz"
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"sub/{name}", content)
    with tarfile.open(outer, "w:gz") as archive:
        info = tarfile.TarInfo("in.zip")
        info.size = len(inner.getvalue())
        archive.addfile(info, io.BytesIO(inner.getvalue()))
    return f"{outer}::in.zip::sub/{next(iter(files))}"


@pytest.mark.parametrize("is_external", [False, True])
def test_threads_share_a_model_in_a_zip_in_a_tar_gz(tmp_path, is_external):
    whole = layers(12)
    wanted = tensors(whole.SerializeToString())
    content, data = external(layers(12)) if is_external else (whole.SerializeToString(), b"")
    path = packed(tmp_path, {"m.onnx": content, "m.data": data})
    with pparse.view(path) as viewer, ThreadPoolExecutor(6) as pool:

        def take(number: int) -> bool:
            names = list(wanted)
            names = names[number:] + names[:number]
            found = {name: viewer[name].numpy().tobytes() for name in names}
            return found == wanted and [tensor.name for tensor in viewer.tensors()] == list(wanted)

        assert all(pool.map(take, range(12)))
        assert len(viewer.graph.nodes) == 24


@pytest.mark.parametrize("is_external", [False, True])
def test_handles_open_the_model_again(tmp_path, is_external):
    whole = layers()
    wanted = tensors(whole.SerializeToString())
    content, data = external(layers()) if is_external else (whole.SerializeToString(), b"")
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "m.data").write_bytes(data)
    for path in (str(tmp_path / "m.onnx"), packed(tmp_path, {"m.onnx": content, "m.data": data})):
        with pparse.view(path) as viewer:
            sent = pickle.dumps([viewer["w1"], viewer["s2"]])
        assert len(sent) < 8_000
        got = pickle.loads(sent)
        assert [tensor.numpy().tobytes() for tensor in got] == [wanted["w1"], wanted["s2"]]
        assert [tensor.name for tensor in got] == ["w1", "s2"]


def test_a_handle_refuses_a_file_beside_the_model_that_changed(tmp_path):
    content, data = external(layers())
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "m.data").write_bytes(data)
    with pparse.view(tmp_path / "m.onnx") as viewer:
        tensor = viewer["w1"]
        assert tensor.numpy() is not None
        sent = pickle.dumps(tensor)
    (tmp_path / "m.data").write_bytes(bytes(len(data)))
    with pytest.raises(pparse.PparseError):
        pickle.loads(sent).numpy()
