"""PyTorch files and pickles that are damaged: what other parts of them, and what is around them, must not hide."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from struct import pack

import pytest

import pparse
from pparse.data.base import BytesData, IoStats
from pparse.data.zero_runs import zeros_at_end
from pparse.errors import TensorError
from pparse.findings import Status
from pparse.kernels.crc32c import crc_of_zeros
from pparse.testing.fakes import GappyData
from tests.pickle_arrays import array_pickle
from tests.pytorch_files import checkpoint, legacy_checkpoint, numbered, script, tar_checkpoint
from tests.pytorch_zoo import FOLDER
from tests.rows import rows

COUNT, NBYTES = 6, 4096
TENSORS, CONTENTS = numbered(COUNT, NBYTES, seed=3)
NAMES = list(TENSORS)


def changed(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


def zipped(content: bytes, name: str = "model.pt", method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, content)
    return out.getvalue()


def tarred(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def statuses(viewer):
    return {tensor.name: tensor.status.value for tensor in viewer.tensors()}


# -- files that were not written to their ends -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [checkpoint, legacy_checkpoint, tar_checkpoint])
@pytest.mark.parametrize("how", ["zeros", "hole"])
def test_a_file_of_full_size_that_ends_with_zeros_is_resumed_where_they_begin(make, how, tmp_path, run):
    made = make(TENSORS, CONTENTS | {NAMES[-1]: bytes(NBYTES)})
    begin, _ = made.places[NAMES[3]]
    at = begin + 1500
    path = tmp_path / "model.pt"
    if how == "hole":
        with path.open("wb") as file:
            file.write(made.content[:at])
            file.truncate(len(made.content))
    else:
        path.write_bytes(made.content[:at] + bytes(len(made.content) - at))
    with pparse.view(path) as model:
        assert statuses(model) == dict(zip(NAMES, ["complete"] * 3 + ["truncated", "missing", "missing"], strict=True))
        assert model[NAMES[3]].available_nbytes == 1500
        assert model[NAMES[3]][:20].tobytes() == CONTENTS[NAMES[3]][: 20 * 64]
        with pytest.raises(TensorError):
            model[NAMES[3]].numpy()
        extent = model.extent()
        assert (extent.actual, extent.expected, extent.resume_at) == (at, len(made.content), at)
        assert extent.status.value == "truncated"
    told = run("info", path)
    assert told.code == 4
    assert f"resume the download at byte {at} of {path}\n" in told.out  # no program that resumes at the end would do


@pytest.mark.parametrize("make", [checkpoint, legacy_checkpoint, tar_checkpoint])
def test_tensors_of_zeros_at_the_end_of_a_whole_file_are_whole(make):
    made = make(TENSORS, CONTENTS | dict.fromkeys(NAMES[3:], bytes(NBYTES)))
    with pparse.view(made.content) as model:
        assert set(statuses(model).values()) == {"complete"}
        assert [one for one in model.check() if one.severity.value == "error"] == []
        assert model.extent().resume_at is None


def test_zeros_at_the_end_are_found_across_blocks():
    for content in (b"", b"a", bytes(3), b"a" + bytes(5000), bytes(5000), b"ab" * 5000 + bytes(2 << 20)):
        wanted = len(content.rstrip(b"\0"))
        assert zeros_at_end(BytesData(content), 0, len(content)) == wanted


def test_zeros_at_the_end_begin_behind_what_is_lost():
    content = b"a" * 5000 + bytes(5000)
    for lost, wanted in (((6000, 1000), 7000), ((4000, 2000), 6000), ((9000, 1000), 10_000), ((100, 10), 5000)):
        assert zeros_at_end(GappyData(content, [lost]), 0, len(content)) == wanted


def test_holes_are_asked_for_only_behind_a_page_of_zeros_and_are_not_read():
    asked = []

    class Sparse(BytesData):
        def holes(self, start, end):
            asked.append((start, end))
            return iter([(4096, end)])

    stats = IoStats()
    assert zeros_at_end(Sparse(b"a" * 9000, stats=stats), 0, 9000) == 9000
    assert not asked
    assert zeros_at_end(Sparse(b"a" * 4096 + bytes(8 << 20), stats=stats), 0, 4096 + (8 << 20)) == 4096
    assert asked == [(0, 8 << 20)]
    assert stats.bytes <= 4 * 4096


def test_a_tensor_in_a_hole_is_whole_only_if_its_checksum_is_that_of_zeros(tmp_path):
    tensors, contents = numbered(4, 1 << 17, seed=4)
    names = list(tensors)
    made = checkpoint(tensors, contents | {names[3]: bytes(1 << 17)})
    (one, _), (two, _), (three, end) = (made.places[name] for name in names[1:])
    path = tmp_path / "model.pt"
    with path.open("wb") as file:  # the second is not there, of the third a part is not, the last consists of zeros
        for begin, stop in ((0, one), (two - 200, two + 30_000), (two + 90_000, three), (end, len(made.content))):
            file.seek(begin)
            file.write(made.content[begin:stop])
    with pparse.view(path) as model:
        if not list(model.extraction.data.holes(0, len(made.content))):
            pytest.skip("this file system keeps no holes")
        assert statuses(model) == dict(zip(names, ["complete", "damaged", "damaged", "complete"], strict=True))
        for name in names[1:3]:
            with pytest.raises(TensorError):
                model[name].numpy()
        assert model[names[3]].numpy().tobytes() == bytes(1 << 17)
        assert model.status.value == "damaged"


@rows("count", [0, 1, 2, 3, 8, 4095, 4096, 100_003, (1 << 22) + 5])
def test_the_crc_of_zeros_is_known_without_them(count):
    assert crc_of_zeros(count) == zlib.crc32(bytes(count))


# -- checksums that disagree -----------------------------------------------------------------------------------------

MADE = checkpoint(TENSORS, CONTENTS)


@pytest.mark.parametrize("around", [zipped, gzip.compress, lambda content: zipped(content, method=8)])
def test_what_a_storages_checksum_contradicts_is_damaged_though_that_of_the_stream_around_it_agrees(around, tmp_path):
    """It was damaged before it was compressed; a tensor that was listed before the check knows that as well."""
    content = changed(MADE.content, MADE.places[NAMES[2]][0] + 9, b"\0\1\2\3")
    path = tmp_path / "file"
    path.write_bytes(around(content))
    with pparse.open(f"{path}::model.pt" if zipfile.is_zipfile(path) else path) as document:
        model = document.view()
        before = model[NAMES[2]]
        before.numpy()
        list(document.check())
        for tensor in (before, model[NAMES[2]]):
            assert (tensor.status.value, tensor.verified) == ("damaged", False)
            with pytest.raises(TensorError):
                tensor.numpy()
        assert (model[NAMES[1]].status.value, model[NAMES[1]].verified) == ("complete", True)


def test_a_storage_whose_checksum_agrees_is_read_though_that_of_the_archive_around_it_is_wrong(tmp_path):
    content = zipped(MADE.content)
    at = content.index(MADE.content) + MADE.places[NAMES[4]][0] + 20
    (tmp_path / "it.zip").write_bytes(changed(content, at, b"\0\1\2\3"))
    with pparse.view(tmp_path / "it.zip::model.pt") as model:
        for name in NAMES:
            tensor = model[name]
            if name == NAMES[4]:
                with pytest.raises(TensorError):
                    tensor.numpy()
            else:  # the first question gives what the second would
                assert tensor.numpy().tobytes() == CONTENTS[name]
                assert (tensor.status.value, tensor.verified) == ("complete", True)


# -- TorchScript -----------------------------------------------------------------------------------------------------

CONSTANTS = {"CONSTANTS.c0": ("float32", [8, 16]), "CONSTANTS.c1": ("float32", [64, 16])}
CODE = script(TENSORS | CONSTANTS, CONTENTS | {"CONSTANTS.c0": b"\1" * 512, "CONSTANTS.c1": b"\2" * 4096})


def test_a_constant_that_is_lost_is_not_read_from_the_storage_that_has_its_key():
    name = b"model/constants/1"
    content = CODE.content.replace(name, b"model/constant$/1")
    assert content.count(b"constant$") == 2
    with pparse.view(content) as model:
        assert model["CONSTANTS.c0"].numpy().tobytes() == b"\1" * 512
        assert model["CONSTANTS.c1"].status.value == "missing"
        with pytest.raises(TensorError):
            model["CONSTANTS.c1"].numpy()


def test_constants_are_not_doubtful_because_the_pickle_of_the_model_is(tmp_path):
    at = CODE.content.index(b"_rebuild_tensor_v2")
    (tmp_path / "code.pt").write_bytes(changed(CODE.content, at, b"_rebuild_tensor_v3"))
    with pparse.open(tmp_path / "code.pt") as document:
        list(document.check())
        found = statuses(document.view())
    assert {found[name] for name in CONSTANTS} == {"complete"}


# -- tar -------------------------------------------------------------------------------------------------------------


@rows("change", [-100, -1, 1, 100])
@rows("number", [0, 2, 5])
def test_the_last_storage_of_an_old_tar_before_a_break_is_in_doubt(number, change):
    made = tar_checkpoint(TENSORS, CONTENTS)
    at = made.places[NAMES[number]][0] + 1000
    content = made.content[:at] + (made.content[at - change :] if change < 0 else bytes(change) + made.content[at:])
    with pparse.view(content, format="pytorch-tar") as model:
        found = statuses(model)
        finding = model[NAMES[number]].finding
    assert list(found.values()) == ["complete"] * number + ["damaged"] + ["missing"] * (COUNT - 1 - number)
    assert (finding.code, finding.offset) == ("shifted", made.places[NAMES[number]][0])


@rows("other, status, code", [("float32", "damaged", "duplicate"), ("int64", "complete", None)])
def test_of_storages_of_an_old_tar_with_one_key_that_of_the_type_counts(other, status, code):
    """A key that damage made another one's; two storages of one type are both in doubt."""
    tensors = {"a": ("float32", [8]), "b": (other, [4 if other == "int64" else 8])}
    made = tar_checkpoint(tensors, {"a": b"\1" * 32, "b": b"\2" * 32})
    key, kept = (made.own[name][number][0] + 3 for number, name in enumerate("ab"))
    for at, by in ((key, kept), (kept, key)):
        with pparse.view(changed(made.content, at, made.content[by : by + 1]), format="pytorch-tar") as model:
            left, lost = ("b", "a") if at == key else ("a", "b")
            assert statuses(model) == {left: status, lost: "missing"}
            assert getattr(model[left].finding, "code", None) == code
            assert code or model[left].numpy().tobytes() == (b"\2" if left == "b" else b"\1") * 32


def test_what_nothing_needs_of_an_old_tar_is_checked_by_all(tmp_path, run):
    made = tar_checkpoint(TENSORS, CONTENTS)
    (tmp_path / "old.pt").write_bytes(made.content.replace(b"type_sizes", b"type_size\xff", 1))
    for words in (("check",), ("check", "-R"), ("recover", "-o", tmp_path / "out")):
        ran = run(words[0], tmp_path / "old.pt", *words[1:])
        assert (ran.code, "sys_info" in ran.out + ran.err) == (4, True), words


@rows("number", [0, 2, COUNT - 1])
def test_a_tensor_that_an_old_tar_names_and_does_not_describe_is_told(number, tmp_path):
    """Its key in the part tensors is another one; or its entry is no pickle, and those behind it are lost, too."""
    made = tar_checkpoint(TENSORS, CONTENTS)
    at = made.content.index(b"\x80\x02J" + pack("<i", 200 + number))
    for where, lost in ((at + 3, 1), (at, COUNT - number)):
        content = changed(made.content, where, b"\xff")
        with pparse.view(content, format="pytorch-tar") as model:
            assert list(model) == [name for place, name in enumerate(NAMES) if not number <= place < number + lost]
            assert model.status is Status.DAMAGED
            told = [finding.reason for finding in model.check() if finding.code == "missing-tensor"]
            assert len(told) == lost
            assert f"'{200 + number}'" in told[0]
        saved = pparse.recover(content, tmp_path / f"{where}", format="pytorch-tar").files
        kept = [file for file in saved if "/storage-" in str(file.path)]
        assert [file.bytes for file in kept] == [len(CONTENTS[NAMES[number + place]]) for place in range(lost)]
        assert (tmp_path / f"{where}" / kept[0].path).read_bytes() == CONTENTS[NAMES[number]]


@rows("make", [tar_checkpoint, legacy_checkpoint, None])
def test_a_key_that_is_no_text_any_more_takes_its_name_alone(make, run, tmp_path):
    content = (FOLDER / "no_crc32.pt").read_bytes() if make is None else make(TENSORS, CONTENTS).content
    name = "view" if make is None else NAMES[3]
    at = content.index(name.encode()) + 1
    (tmp_path / "it.pt").write_bytes(changed(content, at, bytes([content[at] ^ 0x80])))
    with pparse.view(content) as whole, pparse.view(tmp_path / "it.pt") as model:
        assert set(model) == set(whole) - {name} | {"None"}
        assert model["None"].numpy().tobytes() == whole[name].numpy().tobytes()
        assert model["None"].shape == whole[name].shape
        assert model.status is Status.DAMAGED
    for command in ("ls", "info", "check"):
        ran = run(command, tmp_path / "it.pt")
        assert (ran.code, "damaged" in ran.out or "not whole" in ran.out) == (4, True)


def test_why_an_old_tar_is_damaged_is_said_of_its_pickle(tmp_path, run):
    content = tar_checkpoint(TENSORS, CONTENTS).content
    at = content.index(NAMES[3].encode())
    (tmp_path / "old.pt").write_bytes(changed(content, at - 8, b"\xff" * 4))
    for words in (("check",), ("info",), ("ls",), ("recover", "-o", tmp_path / "out")):
        ran = run(words[0], tmp_path / "old.pt", *words[1:])
        assert (ran.code, "what describes its tensors" in ran.out + ran.err) == (4, True), words


def in_bytes(checkpoint: bytes) -> bytes:
    """A plain pickle of a tensor whose storage is a checkpoint of its own, as `torch.storage` reduces storages."""
    head = b"\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(ctorch.storage\n_load_from_bytes\n(B"
    tail = b"tRK\0(K\2t(K\1t\x89ccollections\nOrderedDict\n)RtRs."
    return head + pack("<I", len(checkpoint)) + checkpoint + tail


def test_the_checksum_of_a_storage_in_a_plain_pickle_is_compared_by_all(tmp_path, run):
    """It is in memory, and read anew by whoever lists the tensor again."""
    content = in_bytes((FOLDER / "root_storage.pt").read_bytes())
    at = content.index(b"PK\3\4") + 640  # of its storage, which torch aligns
    for damage, status in ((content[at], "complete"), (content[at] ^ 1, "damaged")):
        (tmp_path / "it.pkl").write_bytes(changed(content, at, bytes([damage])))
        for words in (("ls",), ("info",), ("check",), ("recover", "-o", tmp_path / status)):
            ran = run(words[0], tmp_path / "it.pkl", *words[1:])
            assert ran.code in ((0, 5) if status == "complete" else (4, 5)), words
            assert ("CRC-32" in ran.out or "doubtful" in ran.out) == (status == "damaged"), words
        with pparse.view(tmp_path / "it.pkl") as model:
            assert statuses(model) == {"w": status}
            list(model.check())
            assert statuses(model) == {"w": status}


def test_every_storage_of_an_old_tar_belongs_to_a_tensor():
    with pparse.view(tar_checkpoint(TENSORS, CONTENTS).content) as model:
        model.extent()
        assert list(model.check()) == list(model.findings) == []


def test_check_of_an_archive_tells_of_a_checkpoint_in_it_that_lacks_tensors(tmp_path, run):
    made = tar_checkpoint(TENSORS, CONTENTS)
    at = made.own[NAMES[2]][2][0]
    (tmp_path / "it.tar").write_bytes(tarred(**{"old.pt": changed(made.content, at, bytes(8)), "notes.txt": b"a"}))
    told = run("check", "-R", tmp_path / "it.tar")
    assert told.code == 4
    assert "old.pt: missing-storage layers.2.weight: its storage, '102', is not in the file" in told.out
    (tmp_path / "it.tar").write_bytes(tarred(**{"old.pt": made.content, "new.pt": MADE.content}))
    assert run("check", "-R", tmp_path / "it.tar").code == 0


def test_the_member_behind_a_tar_in_a_tar_that_lost_bytes_is_found():
    inner = tar_checkpoint(TENSORS, CONTENTS).content
    content = tarred(**{"old.pt": inner, "notes.txt": b"text" * 300, "last": b"x"})
    at = content.index(CONTENTS[NAMES[2]]) + 100
    with pparse.open(content[:at] + content[at + 7 :], format="tar") as document:
        listed = {member.name: member.status.value for member in document.result.parser.members()}
        assert listed["notes.txt"] == listed["last"] == "complete"
        assert listed["old.pt"] == "damaged"
        assert document.root["notes.txt"].load() == b"text" * 300
    with pparse.open(content, format="tar") as document:
        assert [member.status.value for member in document.result.parser.members()] == ["complete"] * 3


# -- pickles ---------------------------------------------------------------------------------------------------------

ARRAYS = {"a": ("<f4", (100, 4)), "big": ("<f4", (70_000,)), "last": ("<i8", (300,))}
BYTES = {"a": bytes(range(200)) * 8, "big": b"\1\2\3\4" * 70_000, "last": b"\5" * 2400}
PICKLE, PLACES, TAILS = array_pickle(ARRAYS, BYTES)


@rows("end", [b"\xff\xff", b"AAAA", b"b\0", b"(((("])
def test_arrays_before_opcodes_that_make_no_sense_are_read(end):
    content = changed(PICKLE, PLACES["last"][1], end)
    with pparse.view(content, format="pickle") as model:
        found = {tensor.name: tensor for tensor in model.tensors()}
        for name in ("a", "big"):
            assert found[name].numpy().tobytes() == BYTES[name]
        assert model.status.value != "complete"


@rows("behind", [3, 40, 2421])
def test_arrays_before_a_gap_are_read(behind):
    """Its program is looked into further ahead than its readable part goes."""
    start = PLACES["last"][0] - 20
    with pparse.view(GappyData(PICKLE, [(start + behind, 30)]), format="pickle") as model:
        found = {tensor.name: tensor for tensor in model.tensors()}
        for name in ("a", "big"):
            assert found[name].numpy().tobytes() == BYTES[name]
        assert model.status.value != "complete"


@rows("make", [checkpoint, legacy_checkpoint, tar_checkpoint])
def test_check_tells_of_a_gap_that_only_tensors_show(make):
    made = make(TENSORS, CONTENTS)
    with pparse.open(GappyData(made.content, [(made.places[NAMES[3]][0] + 100, 50)])) as document:
        assert [finding.severity for finding in document.check()][:1] == ["error"]
        assert document.view().status is Status.DAMAGED


# -- what is said of them --------------------------------------------------------------------------------------------


def test_recover_says_for_how_many_parts_of_a_checkpoint_a_checksum_agrees(tmp_path, run):
    (tmp_path / "model.pt").write_bytes(MADE.content)
    told = run("recover", tmp_path / "model.pt", "-o", tmp_path / "out")
    assert told.code == 0
    assert "nothing is missing; a checksum agrees for each of 11 parts of it: use" in told.out
    (tmp_path / "it.tar").write_bytes(tarred(**{"model.pt": MADE.content, "notes.txt": b"a"}))
    told = run("recover", tmp_path / "it.tar", "-o", tmp_path / "out2")
    assert "nothing is missing; a checksum agrees for each of 11 parts of them: use" in told.out
    (tmp_path / "old.pt").write_bytes(legacy_checkpoint(TENSORS, CONTENTS).content)
    told = run("recover", tmp_path / "old.pt", "-o", tmp_path / "out3")
    assert "nothing is missing; no checksum covers it: use" in told.out
    # A name that is no UTF-8 is none of torch's: it asks for all of them, and refuses the file, of which all is there.
    at = MADE.content.rindex(b"model/byteorder")
    (tmp_path / "odd.pt").write_bytes(changed(MADE.content, at, b"\xfe\xff"))
    assert "is not UTF-8" in run("check", tmp_path / "odd.pt").out
    assert run("recover", tmp_path / "odd.pt", "-o", tmp_path / "out4").code == 4
    assert (tmp_path / "out4/odd.safetensors").exists()
    assert not (tmp_path / "out4/odd.pt").exists()


def test_info_shows_epochs_first_and_lists_of_an_optimizer_last(run):
    out = run("info", FOLDER / "training.pt").out
    shown = [line.split(None, 1)[1] for line in out.splitlines() if line.startswith("metadata")]
    assert len(shown) == 21
    assert shown[:4] == ["epoch = 12", "lr = 0.001", "best = inf", "name = run-7"]
    names = [line.split(" = ")[0] for line in shown[:20]]
    in_lists = [any(part.isdecimal() for part in name.split(".")) for name in names]
    assert in_lists == sorted(in_lists)
    others = sum(int(line.rpartition("and in ")[2].split()[0]) for line in shown if "(and in" in line)
    with pparse.view(FOLDER / "training.pt") as model:
        assert shown[20] == f"… {len(model.metadata) - 20 - others} more; 'pparse info FILE --json' shows all"


@pytest.mark.parametrize("count", [0, 60])
def test_a_pickle_that_is_short_in_a_whole_archive_is_damaged_and_no_download_helps(count, tmp_path, run):
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(io.BytesIO(checkpoint(TENSORS, CONTENTS).content)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content[:count] if name.endswith("data.pkl") else content)
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code == 4
        assert "data.pkl ends before its STOP, though the archive around it is whole" in ran.out + ran.err
        assert "resume" not in ran.out + ran.err


def test_a_zip_that_is_called_a_checkpoint_and_has_no_pickle_says_so(tmp_path, run):
    path = tmp_path / "m.pt"
    path.write_bytes(zipped(b"something else", "a.txt"))
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code in (0, 4)
        assert ran.code == 0 or "no member is its data.pkl" in ran.out + ran.err
    path.write_bytes(zipped(checkpoint(TENSORS, CONTENTS).content, "m.pt"))
    assert "no member is its data.pkl" in run("ls", path).out + run("ls", path).err
