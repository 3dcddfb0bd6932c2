"""``pparse edit``: what becomes of metadata, names and bytes, in each way, and whatever cuts it off."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import NotWholeError, OptionError, PathError, SourceError, UnsupportedError
from pparse.editing import apply
from tests.gguf_files import F32, Writer, plain, read_tensors
from tests.rows import rows

safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import load_file, save_file  # noqa: E402

JOURNAL = ".pparse-edit"
TENSORS = {f"h.{number}.w": np.arange(3000, dtype=np.float32) + number for number in range(4)}


def model(path: Path, metadata: dict[str, str] | None = None) -> Path:
    save_file(TENSORS, path, metadata)
    return path


def told(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return metadata and bytes of tensors, as the format's own library has them."""
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata() or {}
    return metadata, {name: array.tobytes() for name, array in load_file(path).items()}


def has_insert(path: Path) -> bool:
    return apply.can_insert(str(path / "any"), 4096)


OLD = {name: array.tobytes() for name, array in TENSORS.items()}
BIG = "x" * 9000
# Wishes, metadata afterwards, the new name of each tensor that stays, and the way.
EDITS = [
    ({"set_metadata": {"a": "b"}}, {"format": "pt", "k": "v" * 99, "a": "b"}, {}, "insert"),
    ({"set_metadata": {"k": "w"}}, {"format": "pt", "k": "w"}, {}, "in-place"),
    ({"set_metadata": {"k": 'é\0\n"\\\U0001f600'}}, {"format": "pt", "k": 'é\0\n"\\\U0001f600'}, {}, "in-place"),
    ({"delete_metadata": ["k", "format"]}, {}, {}, "in-place"),
    ({"delete_metadata": ["k"], "rename_metadata": {"format": "k"}}, {"k": "pt"}, {}, "in-place"),
    ({"set_metadata": {"k": BIG}}, {"format": "pt", "k": BIG}, {}, "insert"),
    ({"set_metadata": {"k": BIG}, "way": "copy"}, {"format": "pt", "k": BIG}, {}, "copy"),
    ({"rename": ["h.*.w=*"]}, None, {name: name[2] for name in OLD}, "in-place"),
    ({"rename": ["h.1=h.2x", "h.=layers."]}, None, {"h.1.w": "h.2x.w"}, "insert"),
    ({"drop": ["h.3.w"]}, None, {"h.3.w": None}, "in-place"),
    ({"drop": ["h.0.*"]}, None, {"h.0.w": None}, "copy"),
    ({"drop": ["h.{1..2}.w"], "set_metadata": {"k": BIG}}, {"format": "pt", "k": BIG}, None, "copy"),
    ({"drop": ["h.3.w"], "rename": ["h.2=h.3"]}, None, {"h.3.w": None, "h.2.w": "h.3.w"}, "in-place"),
    ({"drop": ["*"]}, None, dict.fromkeys(OLD), "in-place"),
]


@rows("wishes, metadata, names, way", EDITS)
def test_safetensors_as_their_library_reads_them(wishes, metadata, names, way, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edit")
    path = model(folder / "m.safetensors", {"format": "pt", "k": "v" * 99})
    path.chmod(0o640)
    before = path.read_bytes()
    way = "copy" if way == "insert" and not has_insert(folder) else way
    dry = pparse.edit(path, **wishes, dry_run=True)
    assert path.read_bytes() == before
    out = pparse.edit(path, **{**wishes, "way": None}, output=folder / "out.safetensors")
    assert (path.read_bytes(), out.way) == (before, "copy")
    done = pparse.edit(path, **wishes)
    assert (done.way, done.written, done.changes, done.size_after) == (way, dry.written, dry.changes, dry.size_after)
    if names is None:
        names = dict.fromkeys(("h.1.w", "h.2.w"))
    elif "rename" in wishes and "h.=layers." in wishes["rename"]:
        names = {name: name.replace("h.", "layers.") for name in OLD} | names
    kept = {names.get(name, name): content for name, content in OLD.items() if names.get(name, name) is not None}
    expected = {"format": "pt", "k": "v" * 99} if metadata is None else metadata
    for file in (path, folder / "out.safetensors"):
        assert told(file) == (expected, kept)
        with pparse.view(file) as viewer:
            assert not [finding for finding in viewer.check(strict=True) if finding.severity != "note"]
    assert path.stat().st_size == done.size_after
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(folder)) == ["m.safetensors", "out.safetensors"]
    again = pparse.edit(path, set_metadata={key: expected[key] for key in list(expected)[:1]})
    assert (again.changes, again.way, again.written) == ([], None, 0)


def gguf_told(path: Path) -> tuple[dict, dict]:
    with pparse.view(path) as viewer:
        assert not [finding for finding in viewer.check() if finding.severity != "note"], list(viewer.check())
        metadata = {key: value for key, value in viewer.metadata.items() if key != "pparse.padding"}
        return metadata, {name: tensor.numpy().tobytes() for name, tensor in viewer.items()}


@rows("order", ["<", ">"])
@rows("version", [1, 2, 3])
def test_gguf_of_every_version_and_order(order, version, tmp_path_factory):
    path = tmp_path_factory.mktemp("edit") / "m.gguf"
    path.write_bytes(plain(3, 9, version=version, order=order))
    metadata, tensors = gguf_told(path)
    wishes = {"n:uint8": "0x7", "f:float64": "0.5", "b": True, "i": -3, "l": [1, 2], "t:text[]": '["a", "é"]', "s": "x"}
    pparse.edit(path, set_metadata=wishes)
    metadata |= {"n": 7, "f": 0.5, "b": True, "i": -3, "l": [1, 2], "t": ["a", "é"], "s": "x"}
    assert gguf_told(path) == (metadata, tensors)
    # The types that are there stay.
    pparse.edit(
        path, set_metadata={"n": 8, "l": "[3]", "b": "false"}, rename_metadata={"s": "text"}, delete_metadata=["i"]
    )
    metadata = {key: value for key, value in metadata.items() if key not in ("s", "i")}
    metadata |= {"n": 8, "l": [3], "b": False, "text": "x"}
    assert gguf_told(path) == (metadata, tensors)
    with pparse.open(path) as document:
        assert [document.node(f"metadata.{key}").kind for key in "nfb"] == ["uint8", "float64", "bool"]
    ways = [pparse.edit(path, rename=["t*=layers.*"]).way, pparse.edit(path, drop=["layers.0"]).way]
    ways.append(pparse.edit(path, drop=["layers.2"]).way)
    assert ways == ["in-place", "copy", "in-place"]
    assert gguf_told(path) == (metadata, {"layers.1": tensors["t1"]})
    pparse.edit(path, drop=["layers.1"])
    assert gguf_told(path) == (metadata, {})


@rows("alignment", [8, 32, 256, 8192])
def test_a_head_of_gguf_has_any_length(alignment, tmp_path_factory):
    """A filler takes up room, but not less than it needs itself: every length around that, growing and shrinking."""
    path = tmp_path_factory.mktemp("edit") / "m.gguf"
    writer = Writer()
    sizes = (4 * alignment, alignment + 4)
    table = [("a", (alignment,), F32, 0), ("b", (alignment // 4 + 1,), F32, 4 * alignment)]
    data = bytes(range(256)) * (sum(sizes) // 256 + 1)
    path.write_bytes(writer.file([("general.alignment", ("uint32", alignment))], table, data[: sum(sizes)], alignment))
    expected = read_tensors(path.read_bytes(), {F32: 4})
    assert expected["a"] == data[: sizes[0]]
    for length in (*range(0, 120, 7), *range(3990, 4250, 1 if alignment == 32 else 9), 60, 0, 9000, 8960, 8959):
        pparse.edit(path, set_metadata={"key": "v" * length})
        content = path.read_bytes()
        assert read_tensors(content, {F32: 4}) == expected
        with pparse.view(path) as viewer:
            assert viewer.metadata["key"] == "v" * length
            assert viewer.extent().is_sound
            assert not viewer.findings


def test_dropped_tensors_of_gguf_leave_no_gap(tmp_path):
    """ggml refuses a file in which a tensor does not begin where the one before ends."""
    path = tmp_path / "m.gguf"
    path.write_bytes(plain(5, 9))
    tensors = read_tensors(path.read_bytes(), {F32: 4})
    pparse.edit(path, drop=["t1", "t3"])
    assert read_tensors(path.read_bytes(), {F32: 4}) == {name: tensors[name] for name in ("t0", "t2", "t4")}
    with pparse.open(path) as document:
        assert [node.note.offset for node in document.node("tensors").children()] == [0, 64, 128]


# -- whatever cuts it off ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends: nothing that it would still do happens."""


class Fate:
    """Lets calls of the system pass until one, which is done in part, or not at all; none after it."""

    def __init__(self, monkeypatch, at: int, *, torn: bool) -> None:
        self.left, self.torn = at, torn
        for name in ("write", "fsync", "ftruncate", "unlink", "replace", "copy_file_range", "chmod"):
            if hasattr(os, name):
                monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))
        monkeypatch.setattr(apply, "insert_range", self.wrapped("insert", apply.insert_range))

    def wrapped(self, name, real):
        def call(*args, **more):
            self.left -= 1
            if self.left > 0:
                return real(*args, **more)
            if not self.left and self.torn:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                elif name == "copy_file_range":
                    real(args[0], args[1], args[2] // 2, *args[3:])
                else:
                    real(*args, **more)
            raise Killed

        return call


def cut_off(monkeypatch, at: int, torn: bool, path: Path, **wishes) -> bool:
    """Run an edit that is killed at call number ``at``; return whether there were so many."""
    with monkeypatch.context() as patched:
        Fate(patched, at, torn=torn)
        try:
            pparse.edit(path, **wishes)
        except Killed:
            return True
    return False


CRASHES = [
    ("m.safetensors", {"set_metadata": {"k": "w"}, "rename": ["h.=l."]}),
    ("m.safetensors", {"set_metadata": {"k": BIG}}),
    ("m.safetensors", {"set_metadata": {"k": BIG}, "way": "copy"}),
    ("m.safetensors", {"drop": ["h.3.w"], "delete_metadata": ["k"]}),
    ("m.safetensors", {"drop": ["h.1.w"]}),
    ("m.safetensors", {"drop": ["*"], "set_metadata": {"k": BIG}}),
    ("m.gguf", {"set_metadata": {"general.architecture": "other"}}),
    ("m.gguf", {"set_metadata": {"k": BIG}}),
    ("m.gguf", {"drop": ["t0"]}),
]


@rows("name, wishes", CRASHES)
@rows("torn", [False, True])
def test_killed_at_any_call_the_file_is_the_old_or_the_new_one(name, wishes, torn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edit")
    path = folder / name
    if name == "m.gguf":
        path.write_bytes(plain(3, 900))
    else:
        model(path, {"format": "pt", "k": "v" * 99})
    old = path.read_bytes()
    pparse.edit(path, **wishes)
    new = path.read_bytes()
    assert new != old
    ends = set()
    monkeypatch = pytest.MonkeyPatch()
    for at in range(1, 60):
        path.write_bytes(old)
        if not cut_off(monkeypatch, at, torn, path, **wishes):
            break
        state = {file: (folder / file).read_bytes() for file in os.listdir(folder)}
        for second in range(1, 30):  # the next run is killed, too
            for file in os.listdir(folder):
                os.unlink(folder / file)
            for file, content in state.items():
                (folder / file).write_bytes(content)
            if path.name + JOURNAL in state:
                with pparse.open(path) as document:
                    assert "edit" in [finding.code for finding in document.parse().findings]
            killed = cut_off(monkeypatch, second, torn, path)
            result = pparse.edit(path)
            assert path.read_bytes() in (old, new)
            assert os.listdir(folder) == [path.name]
            if not killed:
                break
            assert result.recovered in (None, "finished", "undone")
        else:
            raise AssertionError("it never ends")
        ends.add(path.read_bytes() == new)
    else:
        raise AssertionError("it never ends")
    assert at > 5
    assert ends == {False, True}


SCRIPT = """
import sys, pparse
for number in range(1000):
    size = (300, 9000, 20000)[number % 3]
    pparse.edit(sys.argv[1], set_metadata={"k": chr(97 + number % 26) * size}, way=None if number % 4 else sys.argv[2])
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_kill_9_at_random_times(tmp_path):
    path = model(tmp_path / "m.safetensors", {"k": "x"})
    root = Path(__file__).parent.parent
    for number in range(4):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, path, "copy"], cwd=root)
        time.sleep(0.4 + number * 0.07)
        process.send_signal(signal.SIGKILL)
        process.wait()
        pparse.edit(path)
        metadata, tensors = told(path)
        assert tensors == OLD
        assert len(set(metadata["k"])) == 1
        assert os.listdir(tmp_path) == [path.name]


def test_a_journal_of_another_file_touches_nothing(tmp_path, monkeypatch, run):
    path = model(tmp_path / "m.safetensors", {"k": "v"})
    assert cut_off(monkeypatch, 4, False, path, set_metadata={"k": "w"})
    journal = tmp_path / (path.name + JOURNAL)
    assert journal.exists()
    good = journal.read_bytes()
    link = tmp_path.parent / f"{tmp_path.name}.link"
    link.symlink_to(path)
    assert "an edit of it was cut off" in run("check", link).out
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code == 0
        assert (
            f"an edit of it was cut off, and it may be neither old nor new: 'pparse edit {path}'" in ran.out + ran.err
        )
    assert run("check", "--strict", path).code == 4
    for command in ("ls", "check"):  # of a folder, and of a set in which it is one of several files
        ran = run(command, tmp_path)
        assert "an edit of it was cut off" in ran.out + ran.err
    for refused in ({"dry_run": True}, {"output": tmp_path / "o"}):
        with pytest.raises(SourceError, match="finishes it first"):
            pparse.edit(path, set_metadata={"a": "b"}, **refused)
    other = tmp_path / "other"  # of the same size
    save_file({name: array + 1 for name, array in TENSORS.items()}, other, {"k": "v"})
    path.write_bytes(other.read_bytes())
    with pytest.raises(SourceError, match="not of this file as it is"):
        pparse.edit(path)
    assert path.read_bytes() == other.read_bytes()
    for place in range(0, len(good), 11):  # a journal that is not whole was never acted upon
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            journal.write_bytes(bad)
            assert pparse.edit(path).recovered == "undone"
            assert not journal.exists()
    for known in (b"[]", b"{}", b"[" * 5000, b'{"before": "x"}', b"\xff"):  # as somebody may write it who knows how
        body = good[:16] + len(known).to_bytes(8, "little") + known + b"head"
        journal.write_bytes(body + hashlib.sha256(body).digest())
        assert pparse.edit(path).recovered == "undone"
    assert path.read_bytes() == other.read_bytes()
    ran = run("edit", path)
    assert (ran.code, "no edit was cut off" in ran.out) == (0, True)


def test_an_edit_of_a_shard_that_was_cut_off_is_told_of_the_set(tmp_path, samples, run):
    shutil.copytree(f"{samples}/sharded", tmp_path / "set")
    name = "model-00002-of-00003.safetensors"
    assert cut_off(pytest.MonkeyPatch(), 6, True, tmp_path / "set" / name, delete_metadata=["format"])
    for command in ("ls", "info", "check"):
        ran = run(command, tmp_path / "set" / "model.safetensors.index.json")
        assert f"{name}: edit: an edit of it was cut off" in ran.out + ran.err
    assert pparse.edit(tmp_path / "set" / name).recovered == "finished"
    assert "cut off" not in run("check", tmp_path / "set").out


# -- ways that the system does not have --------------------------------------------------------------------------------


def no_way(*args):
    raise OSError(errno.EOPNOTSUPP, "not here")


@rows("number", [0, 1])
def test_without_calls_of_linux_it_is_copied(number, tmp_path_factory):
    path = model(tmp_path_factory.mktemp("edit") / "m.safetensors", {"k": "v"})
    with pytest.MonkeyPatch.context() as patched:
        if number:
            patched.setattr(apply, "can_insert", lambda *_: True)  # it is this file that the system refuses
        patched.setattr(apply, "insert_range", no_way)
        if hasattr(os, "copy_file_range"):
            patched.setattr(os, "copy_file_range", no_way)
        patched.delattr(os, "SEEK_DATA", raising=False)
        with pytest.raises((OptionError, UnsupportedError)):
            pparse.edit(path, set_metadata={"k": BIG}, way="insert")
        result = pparse.edit(path, set_metadata={"k": BIG})
    assert (result.way, result.written) == ("copy", path.stat().st_size)
    assert told(path) == ({"k": BIG}, OLD)
    assert os.listdir(path.parent) == [path.name]


def test_a_terabyte_of_holes(tmp_path):
    """Nothing of the payload is read or written, in whatever way: holes stay holes."""
    if not hasattr(os, "SEEK_DATA"):
        pytest.skip("files have no holes here")
    path, size = tmp_path / "m.safetensors", 1 << 40
    text = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    for wishes in ({"rename": ["w=v"]}, {"set_metadata": {"k": "v"}}, {"set_metadata": {"k": BIG}, "way": "copy"}):
        result = pparse.edit(path, **wishes)
        assert result.written < 20_000 + 4096
        assert path.stat().st_blocks * 512 < 100_000
        with pparse.view(path) as viewer:
            assert viewer["v"].nbytes == size
            assert viewer["v"].is_complete


def test_a_disk_that_is_full_in_the_middle_is_told_what_to_do(tmp_path, run):
    path = model(tmp_path / "m.safetensors", {"k": "v" * 99})
    left, write = 3, os.write  # those of the journal

    def full(descriptor, content):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "no room")
        return write(descriptor, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(SourceError, match="finishes it: no room") as caught:
            pparse.edit(path, set_metadata={"k": "w"})
    assert caught.value.errno == errno.ENOSPC
    assert run("edit", path).lines == [f"{path}: an edit that was cut off is finished"]
    assert told(path) == ({"k": "w"}, OLD)


# -- what is refused, and what is told ---------------------------------------------------------------------------------

REFUSED = [
    ({"set_metadata": {"k": 1}}, OptionError, "are texts, not int"),
    ({"set_metadata": {"k": "\ud800"}}, OptionError, "UTF-8 cannot hold"),
    ({"delete_metadata": ["kk"]}, PathError, "did you mean 'k'"),
    ({"rename_metadata": {"k": "format"}}, OptionError, "there is that key already"),
    ({"rename": ["h.0=h.1"]}, OptionError, "2 tensors would be called h.1.w"),
    ({"rename": ["h.9=h.1"]}, PathError, "no tensor fits the rule"),
    ({"rename": ["h.*=h"]}, OptionError, "one star on both sides"),
    ({"rename": ["h.0.w=__metadata__"]}, OptionError, "no tensor can be called"),
    ({"drop": ["g.*"]}, PathError, "no tensor matches"),
    ({"set_metadata": {"k": "v" * 100_000_000}}, OptionError, "more than the 100,000,000 that readers accept"),
    ({"set_metadata": {"k": BIG}, "way": "in-place"}, OptionError, "in-place is not possible here"),
    ({"drop": ["h.0.w"], "way": "in-place"}, OptionError, "moves"),
    ({"set_metadata": {"k": "w"}, "way": "fast"}, OptionError, "no way 'fast'"),
]
REFUSED_GGUF = [
    ({"set_metadata": {"general.alignment": 64}}, OptionError, "how the file is laid out"),
    ({"set_metadata": {"pparse.padding:text": "x"}}, OptionError, "how the file is laid out"),
    ({"delete_metadata": ["general.alignment"]}, OptionError, "how the file is laid out"),
    ({"set_metadata": {"n:uint8": 256}}, OptionError, "no uint8"),
    ({"set_metadata": {"n:uint8": "many"}}, OptionError, "no uint8"),
    ({"set_metadata": {"n:bool": "maybe"}}, OptionError, "no bool"),
    ({"set_metadata": {"n:bool[]": "[true, 2]"}}, OptionError, r"no bool\[\]"),
    ({"set_metadata": {"n:uint8[]": "7"}}, OptionError, r"no uint8\[\]"),
    ({"set_metadata": {"n:float64": "1e400"}}, OptionError, "no float64"),
    ({"set_metadata": {"n:float32[]": "[-1e400]"}}, OptionError, r"no float32\[\]"),
    ({"set_metadata": {"n:int": "4"}}, OptionError, r"'int' is no type .*uint8, .*n:int:text"),
    ({"set_metadata": {"n": [[1]]}}, OptionError, "no text"),
    ({"set_metadata": {"GGUF.x": "y"}}, OptionError, "take no key"),
    ({"rename": [f"t0={'n' * 64}"]}, OptionError, "at most 63 bytes"),
]


@rows(
    "name, wishes, kind, words",
    [("m.safetensors", *row) for row in REFUSED] + [("m.gguf", *row) for row in REFUSED_GGUF],
)
def test_wishes_that_are_refused(name, wishes, kind, words, tmp_path_factory):
    path = tmp_path_factory.mktemp("edit") / name
    if name == "m.gguf":
        path.write_bytes(plain())
    else:
        model(path, {"format": "pt", "k": "v"})
    before = path.read_bytes()
    with pytest.raises(kind, match=words):
        pparse.edit(path, **wishes)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [name]


def test_files_that_are_refused(tmp_path, samples):
    whole = model(tmp_path / "m.safetensors").read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    header["h.0.w"]["more"] = 1
    text = json.dumps(header).encode()
    gguf = plain()
    twice = Writer().file([("k", "a"), ("k", "b")], [])
    for name, content, kind in (
        ("cut.safetensors", whole[:-1], NotWholeError),
        ("long.safetensors", whole + b"x", NotWholeError),
        ("more.safetensors", len(text).to_bytes(8, "little") + text + whole[-48_000:], UnsupportedError),
        ("cut.gguf", gguf[:-40], NotWholeError),
        ("head.gguf", gguf[:70], NotWholeError),
        ("twice.gguf", twice, UnsupportedError),
        ("m.json", b'{"a": 1}', UnsupportedError),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(kind):
            pparse.edit(path, set_metadata={"a": "b"})
        assert path.read_bytes() == content
    with pytest.raises(UnsupportedError, match="extract it first"):
        pparse.edit(f"{samples}/backup.tar.gz::backup/models.zip", set_metadata={"a": "b"})
    for path, kind in ((samples, UnsupportedError), ("-", UnsupportedError), (tmp_path / "nothing", SourceError)):
        with pytest.raises(kind):
            pparse.edit(path, set_metadata={"a": "b"})
    with pytest.raises(TypeError, match="unexpected keyword"):
        pparse.edit(tmp_path / "m.safetensors", sett={})
    assert [name for name in os.listdir(tmp_path) if "pparse" in name or "partial" in name] == []


def told_of(path: Path) -> tuple[dict, dict]:
    with pparse.view(path) as viewer:
        metadata = {key: value for key, value in viewer.metadata.items() if key not in ("zz", "pparse.padding")}
        return metadata, {
            name: (tensor.type_name, tensor.shape, tensor.numpy().tobytes() if tensor.is_complete else tensor.status)
            for name, tensor in viewer.items()
        }


@rows("name", ["m.safetensors", "m.gguf"])
def test_cut_or_changed_anywhere_a_file_is_refused_or_nothing_of_it_is_lost(name, tmp_path_factory):
    path = tmp_path_factory.mktemp("edit") / name
    good = plain(2, 8)
    if name == "m.safetensors":
        save_file({"a": np.arange(8, dtype="f4"), "b": np.arange(3, dtype="u1")}, path, {"k": "v"})
        good = path.read_bytes()
    flipped = [good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in range(0, len(good), 3)]
    edited = 0
    for content in (*(good[:at] for at in range(0, len(good), 3)), *flipped):
        path.write_bytes(content)
        before = None
        try:
            before = told_of(path)
            pparse.edit(path, set_metadata={"zz": "yy"})
        except pparse.PparseError:
            assert path.read_bytes() == content
            assert os.listdir(path.parent) == [name]
            continue
        assert told_of(path) == before
        edited += 1
    assert 10 < edited < len(flipped)


def test_a_copy_tells_how_far_it_is_and_can_be_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "_SHARED", 10_000)
    monkeypatch.setattr(apply, "_PIECE", 10_000)
    path, told = model(tmp_path / "m.safetensors"), []
    before, wishes = path.read_bytes(), {"set_metadata": {"a": "b"}, "way": "copy"}
    with pytest.raises(pparse.CancelledError):
        pparse.edit(path, **wishes, cancel=lambda: len(told) > 2, progress=lambda *how: told.append(how))
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, [path.name])
    assert len(told) == 3
    pparse.edit(path, **wishes, progress=lambda *how: told.append(how))
    assert [how for how in told[3:] if how[2] == "copied"] == [
        (min(48_000, done), 48_000, "copied") for done in range(10_000, 50_001, 10_000)
    ]


def test_links_indexes_and_locks(tmp_path, run):
    path = model(tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {"h.0.w": "m.safetensors"}}))
    link = tmp_path / "link.safetensors"
    link.symlink_to(path.name)
    os.link(path, tmp_path / "hard.safetensors")
    ran = run("edit", link, "--set-metadata", "k=v", "--way", "copy")
    assert (ran.code, link.is_symlink()) == (0, True)
    assert "it is a link" in ran.out
    assert "it has 2 names" in ran.out
    assert told(path)[0] == {"k": "v"}
    assert told(tmp_path / "hard.safetensors")[0] == {}
    ran = run("edit", path, "--rename", "h.0=g.0", "--json")
    assert ran.json["notes"] == ["m.safetensors.index.json names the tensors of this file, and is not changed"]
    assert ran.json["changes"] == ["rename h.0.w to g.0.w"]
    if os.name != "nt":
        with apply.locked(str(path), write=True):
            ran = run("edit", path, "--set-metadata", "k=w")
            assert (ran.code, "another process has locked it" in ran.err) == (2, True)
            assert run("ls", path).code == 0


def test_the_command(tmp_path, run):
    path = tmp_path / "m.gguf"
    path.write_bytes(plain())
    template = tmp_path / "template.jinja"
    template.write_text("{{ héllo }}\n", "utf-8")
    words = ("--set-metadata", f"tokenizer.chat_template=@{template}", "--set-metadata", "n:uint32=7")
    words += ("--set-metadata", "a:b:text=c", "--set-metadata", "f:float32[]=[1e3, Infinity]")
    dry = run("edit", path, *words, "--set-metadata", "at=@@x=y", "-n")
    assert dry.lines[-1] == "nothing was written (--dry-run)"
    done = run("edit", path, *words, "--set-metadata", "at=@@x=y")
    assert (done.code, done.err) == (0, "")
    assert done.lines == dry.lines[:-1]
    assert done.lines[1:5] == ["add n = 7", "add a:b = c", "add f = [1e3, Infinity]", "add at = @x=y"]
    metadata, _ = gguf_told(path)
    assert metadata["tokenizer.chat_template"] == "{{ héllo }}\n"
    assert [metadata[key] for key in ("n", "at", "a:b", "f")] == [7, "@x=y", "c", [1000, float("inf")]]
    assert run("edit", path, "--set-metadata", "a:b=d").code == 0
    for wrong in (["--set-metadata", "k"], ["--set-metadata", f"k=@{tmp_path}/none"], ["--drop", "x"]):
        assert run("edit", path, *wrong).code == 2
    assert run("edit", path, "--drop", "t0", "-o", path).code == 2
    assert run("edit", path, "--drop", "t0", "-o", tmp_path / "new" / "o.gguf").code == 0
    assert run("edit", path, "--drop", "t0", "-o", tmp_path / "o.gguf").code == 0
    assert run("edit", path, "--drop", "t0", "-o", tmp_path / "o.gguf").code == 2
    assert "it is gguf, whatever" in run("edit", path, "--drop", "t0", "-o", tmp_path / "o.safetensors").lines[-1]
    assert run("edit", path, "--drop", "t0", "-o", tmp_path / "o.gguf", "--force").code == 0
    assert run("edit", tmp_path / "o.gguf", "--rename", "t=s").code == 0
    assert list(gguf_told(tmp_path / "o.gguf")[1]) == ["s1", "s2"]
