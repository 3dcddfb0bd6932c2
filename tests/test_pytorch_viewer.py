"""PyTorch checkpoints beyond the numbers in them: names, metadata, trees, look-ups, odd archives, laziness."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.data.base import BytesData
from pparse.data.spliced import FlippedData
from pparse.parsers.pytorch.rebuild import StoredTensor
from pparse.tensors.dtype import DTYPES
from pparse.viewers.pickle.viewer import _signs
from pparse.viewers.pickle.walk import SavedObject
from tests.pytorch_files import described
from tests.pytorch_zoo import FOLDER, REFUSED, REFUSED_AND_WHOLE, SAMPLES, check, expected
from tests.rows import rows

#: Names that a reader may add: attributes of modules that are None, and of subclasses of tensors.
MAY_BE_MORE = ("module", "legacy/module", "module_", "jagged", "library_objects", "sharded")


@rows("name", list(SAMPLES))
def test_everything_else_that_was_saved_is_in_the_metadata(name):
    told = expected(name)
    try:
        viewer = pparse.view(SAMPLES[name])
    except pparse.UnsupportedError:
        assert not told["tensors"]
        return
    with viewer:
        found = viewer.metadata
    plain = {key: value for key, value in told["metadata"].items() if not isinstance(value, dict)}
    if told.get("referee") != "script":
        wrong = {key: (value, found.get(key, "absent")) for key, value in plain.items() if not same(value, found, key)}
        assert not wrong
    if not name.startswith((*MAY_BE_MORE, "script")):
        assert set(found) <= set(told["metadata"])


def same(value, found, key):
    if isinstance(value, float) and value != value:
        return found[key] != found[key]
    return key in found and found[key] == value


def test_a_tree_has_what_the_program_had():
    with pparse.view(FOLDER / "training.pt") as model:
        tree = model.tree()
        assert list(tree)[:4] == ["model", "optimizer", "scheduler", "epoch"]
        assert tree["epoch"] == 12
        moment = tree["optimizer"]["state"][0]["exp_avg"]
        assert moment.name == "optimizer.state.0.exp_avg"
        np.testing.assert_array_equal(moment.numpy(), model[moment.name].numpy())
        assert isinstance(tree["args"], SavedObject)
    with pparse.view(FOLDER / "module.pt") as model:
        tree = model.tree()
        assert tree.attributes["_modules"]["conv"].attributes["_parameters"]["weight"].shape == (4, 3, 3, 3)
    with pparse.view(FOLDER / "cycle.pt") as model:
        tree = model.tree()
        assert tree["ring"]["self"] is tree["ring"] if "self" in tree["ring"] else tree["ring"] is not None


@pytest.mark.parametrize("name", ["training.pt", "legacy/training.pth.tar", "tar/model.pt", "numpy.pt"])
def test_a_tensor_is_found_by_its_name(name):
    with pparse.view(SAMPLES[name]) as model:
        listed = {tensor.name: tensor for tensor in model.tensors()}
        for key, tensor in listed.items():
            found = model[key]
            assert (found.shape, found.dtype, found.spans) == (tensor.shape, tensor.dtype, tensor.spans)
        assert model.find("nothing of that name") is None


def test_names_are_found_without_room_for_a_table(monkeypatch):
    from pparse.viewers.pickle import viewer

    monkeypatch.setattr(viewer, "_NOTED", 1 << 30)
    for name in ("training.pt", "many.pt", "odd_keys.pt", "module.pt", "sparse.pt"):
        with pparse.view(FOLDER / name) as model:
            for tensor in list(model.tensors()):
                assert model[tensor.name].spans == tensor.spans
            assert model._table is None


# The bits say that members are encrypted: nobody can know that they are not.
LOCKED = ("hostile/encrypted_flag.pt", "hostile/encrypted_flag_pickle.pt")


@pytest.mark.parametrize("name", [name for name in REFUSED_AND_WHOLE if name not in LOCKED])
def test_what_torch_refuses_is_read_if_it_is_there(name):
    path = next(path for path in REFUSED if path == FOLDER / name)
    with pparse.view(path) as viewer:
        check(viewer, name)


@pytest.mark.parametrize("name", [path.relative_to(FOLDER).as_posix() for path in REFUSED])
def test_no_file_of_the_zoo_breaks_anything(name):
    with contextlib.suppress(pparse.PparseError), pparse.view(FOLDER / name) as viewer:
        for tensor in viewer.tensors():
            if tensor.status is Status.COMPLETE:
                tensor.numpy()
        list(viewer.check())
        assert viewer.extent().status in Status


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("duplicate_pickle.pt", "duplicate"),
        ("duplicate_data.pt", "duplicate"),
        ("zip_in_comment.pt", "directory"),
        ("local_names.pt", "directory"),
        ("wrong_crc_data.pt", "checksum"),
        ("prefix.pt", "prefix"),
        ("zero_crc.pt", "no-checksums"),
        ("trailing.pt", "trailing"),
    ],
)
def test_tricks_on_scanners_leave_a_finding(name, code):
    with pparse.view(FOLDER / "hostile" / name) as viewer:
        list(viewer.tensors())
        list(viewer.check())
        assert code in {finding.code for finding in viewer.findings}


def test_a_checksum_of_zero_is_none_and_a_wrong_one_is_not_forgotten():
    with pparse.view(FOLDER / "hostile/zero_crc.pt") as viewer:
        assert not [finding for finding in viewer.check() if finding.severity.value == "error"]
        assert viewer["a"].verified is None
    with pparse.view(FOLDER / "hostile/wrong_crc_data.pt") as viewer:
        assert viewer["a"].status is Status.COMPLETE
        with pytest.raises(pparse.DamagedTensorError, match="its CRC-32"):  # it is small: compared before it is given
            viewer["a"].numpy()
        assert viewer["a"].status is Status.DAMAGED
        assert [finding for finding in viewer.check() if finding.code == "checksum"]
        with pytest.raises(pparse.PparseError):
            viewer["a"].numpy()


def test_a_confirmed_checksum_makes_tensors_verified():
    with pparse.view(FOLDER / "state_dict.pt") as viewer:
        assert not any(tensor.verified for tensor in viewer.tensors())
        list(viewer.check())
        assert all(tensor.verified for tensor in viewer.tensors())


def test_one_row_of_a_large_tensor_reads_that_row(tmp_path):
    from tests.bench.inputs_pytorch import checkpoint

    path = checkpoint(tmp_path / "sparse.pt", 20, 200_000_000)
    with pparse.view(path) as model:
        names = list(model)
        before = model.extraction.session.stats.bytes
        assert len(names) == 20
        model[names[7]][3:5]
        assert model.extraction.session.stats.bytes - before < 200_000
        assert before < 100_000


def test_a_far_checkpoint_takes_a_few_requests():
    from tests.test_block_cache import FarData

    out = io.BytesIO()
    with zipfile.ZipFile(FOLDER / "many.pt") as source, zipfile.ZipFile(out, "w") as archive:
        for info in source.infolist():
            content = source.read(info)
            archive.writestr(info.filename, content * 4096 if "/data/" in info.filename else content)
    far = FarData(out.getvalue())
    with pparse.view(far) as model:
        names = [tensor.name for tensor in model.tensors() if tensor.is_complete]
        assert model.extent().whole == len(names) > 20
        assert len(far.requests) <= 3
        before = len(far.requests)
        model[names[9]].numpy()
        assert len(far.requests) - before <= 2


def test_signs_are_turned_over_wherever_reading_begins():
    numbers = np.array([1.5 - 2j, -3 + 4j, 5 - 6j], np.complex64)
    data = BytesData(numbers.tobytes())
    flipped = FlippedData(data.range(0, 24), 8, (7,), "conj")
    wanted = numbers.conj().tobytes()
    for start in range(24):
        for length in range(1, 25 - start):
            assert flipped.pread(start, length) == wanted[start : start + length]
    target = bytearray(24)
    assert flipped.preadinto(0, target) == 24
    assert bytes(target) == wanted
    assert flipped.identity != data.identity


@pytest.mark.parametrize("protocol", range(6))
def test_large_arrays_are_described_without_being_read(protocol):
    matrix = np.arange(200_000.0).reshape(400, 500)
    turned = np.asfortranarray(np.arange(300_000, dtype=np.int32).reshape(3, 100_000))
    raw = pickle.dumps({"x": matrix, "y": turned, "z": [1, {"q": np.ones(70_000, np.int64)}]}, protocol)
    with pparse.view(raw) as model:
        assert list(model) == ["x", "y", "z.1.q"]
        np.testing.assert_array_equal(model["x"].numpy(), matrix)
        np.testing.assert_array_equal(model["y"].numpy(), turned)
        np.testing.assert_array_equal(model["x"][7, :3], matrix[7, :3])
        assert dict(model.metadata) == {"z.0": 1}


def test_one_bad_value_costs_only_itself():
    good = pickle.dumps({"a": np.ones(3), "b": "words", "c": np.zeros(2)}, 4)
    bad = good.replace(b"words", b"wo\xffds")
    with pparse.view(bad) as model:
        assert list(model) == ["a", "c"]
        np.testing.assert_array_equal(model["c"].numpy(), np.zeros(2))


# Opcodes of a number that no text of Python can show, and of 65 numbers; those of the first tensor of `described`.
HUGE = b"\x8b" + (10_000).to_bytes(4, "little") + b"\1" * 10_000
MANY = b"(" + b"K\x01" * 65 + b"t"
FOUR, ONE, NONE = (b"J" + number.to_bytes(4, "little") for number in (4, 1, 0))
CPU, FIRST = b"X\3\0\0\0cpu", b"X\1\0\0\0" + b"0"


@rows(
    "old, new",
    [
        (b"(" + FOUR + b"t", b"(" + HUGE + b"t"),
        (b"(" + ONE + b"t", b"(" + HUGE + b"t"),
        (b"tQ" + NONE, b"tQ" + HUGE),
        (CPU + FOUR, CPU + HUGE),
        (FIRST, HUGE),
        (b"(" + FOUR + b"t(" + ONE + b"t", 2 * MANY),
    ],
    ids=["size", "stride", "offset", "count", "key", "rank"],
)
def test_numbers_that_torch_cannot_have_cost_only_their_tensor(old, new):
    good, out = described({"w": ("float32", [4]), "x": ("float32", [4])}), io.BytesIO()
    assert old in good
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("model/data.pkl", good.replace(old, new, 1))
        archive.writestr("model/data/0", bytes(16))
        archive.writestr("model/data/1", bytes(16))
    with pparse.view(out.getvalue()) as model:
        bad, other = model.tensors()
        assert (bad.name, bad.status, other.status) == ("w", Status.UNSUPPORTED, Status.COMPLETE)
        assert len(f"{bad.finding} {bad.shape_text} {model.extent().listed_bytes}") < 300


@rows("shape", [b"J\xff\xff\xff\xff\x85", HUGE + b"\x85", b"N\x85", MANY], ids=["negative", "huge", "none", "rank"])
@rows("count", [200, 70_000])
def test_an_array_whose_shape_numpy_refuses_is_damaged_and_not_gone(shape, count):
    good = pickle.dumps({"a": np.ones((count, 3), "u1"), "b": np.zeros(2)}, 2)
    number = (b"K" if count < 256 else b"J") + count.to_bytes(1 if count < 256 else 4, "little")
    assert good.count(number + b"K\x03\x86") == 1
    with pparse.view(good.replace(number + b"K\x03\x86", shape)) as model:
        bad, other = model.tensors()
        assert (bad.name, bad.status, bad.finding.code) == ("a", Status.DAMAGED, "bad-array")
        assert (len(str(bad.finding)) < 300, other.status) == (True, Status.COMPLETE)


UTILS = b"ctorch._utils\n_rebuild_"
STRIDED = b"((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aX\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85"
LAYOUT = b"ctorch.serialization\n_get_layout\n"
BY_CHANNEL = b"(ctorch\nper_channel_affine\n]G" + bytes(8) + b"a"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR(K\1K\1\x85"
OF_WORD = b"cnumpy\ndtype\n(X\3\0\0\0%sK\0K\1tR(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
FROM_ARRAY = UTILS + b"device_tensor_from_numpy\n(" + ARRAY + OF_WORD + b"\x89C\3abctbctorch\n%s\nNtR"


@rows(
    "made, reason",
    [
        (UTILS + b"sparse_tensor\n(" + LAYOUT + b"}K\0K\1sR)tR", "a sparse tensor has an unknown layout"),
        (UTILS + b"sparse_tensor\n(" + LAYOUT + b"K\5R)tR", "a sparse tensor has an unknown layout"),
        (UTILS + b"qtensor\n" + STRIDED + BY_CHANNEL + b"K\5K\0ttR", "its scale are not a tensor"),
        (UTILS + b"qtensor\n" + STRIDED + BY_CHANNEL + b"]K\5aK\0ttR", "not one for each index along dimension 0"),
        (UTILS + b"tensor_v3\n" + STRIDED + b"\x89NK\0tR", "its type is not a torch.dtype"),
        (UTILS + b"tensor_v2\n" + STRIDED + b"\x89N}X\4\0\0\0conj\x88stR", "conjugated, and of type float32"),
        (UTILS + b"meta_tensor_no_storage\n(K\1)NtR", "a meta tensor has no type"),
        (UTILS + b"tensor_v2\nK\5R", "has no arguments"),
        (FROM_ARRAY % (b"foo", b"float32"), "not an element type: 'foo'"),
        (FROM_ARRAY % (b"|i1", b"foo"), "the type foo is not known"),
    ],
)
def test_what_no_torch_writes_costs_only_its_tensor(made, reason):
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(
            "m/data.pkl", b"\x80\3}(X\1\0\0\0a" + made + b"X\1\0\0\0b" + ARRAY + OF_WORD % b"|i1" + b"\x89C\1atbu."
        )
        archive.writestr("m/data/a", bytes(16))
    with pparse.view(zipped.getvalue()) as model:
        found = {tensor.name: tensor for tensor in model.tensors()}
        assert found["a"].finding is not None
        assert reason in found["a"].finding.reason
        assert found["b"].numpy().tolist() == [97]
        assert list(model.tree()) == ["a", "b"]


def test_a_scalar_of_no_type_is_named_by_its_word():
    """numpy takes None for float64: eight bytes of an object are no number."""
    scalar = b"cnumpy.core.multiarray\nscalar\n(" + OF_WORD % b"|O8" + b"C\x08" + bytes(8) + b"tR"
    structure = np.array([(7, 2.5)], [("a", ">i4"), ("b", "<f8")])[0]
    with pparse.view(b"\x80\3}(X\1\0\0\0a" + scalar + b"u.") as model:
        assert dict(model.metadata) == {"a": "<|O8>"}
    with pparse.view(pickle.dumps({"a": structure})) as model:
        assert dict(model.metadata) == {"a": "(7, 2.5)"}
    texts = b"cnumpy.core.multiarray\nscalar\n(" + OF_WORD % b"<U1" + b"C\x04\0\1\2\3tR"  # beyond Unicode
    with pparse.view(b"\x80\3}(X\1\0\0\0a" + texts + b"u.") as model:
        assert dict(model.metadata) == {"a": "<<U1>"}


def test_numbers_too_long_for_a_text_are_described(tmp_path, run):
    number = 1 << 20_000
    held = {number: np.ones(3), (number,): 1, "n": -number, "c": np.zeros(2)}
    (tmp_path / "long.pkl").write_bytes(pickle.dumps(held, 4))
    for command in ("ls", "info", "check", "tree", "hash"):
        told = run(command, str(tmp_path / "long.pkl"))
        assert (told.code, told.err.count("bug")) == (0, 0), command
    with pparse.view(tmp_path / "long.pkl") as model:
        assert list(model) == ["<int>", "c"]
        assert dict(model.metadata) == {"<tuple>": 1, "n": "<int of 20,001 bits>"}


def test_shared_values_do_not_multiply_without_end():
    value = [np.ones(1)]
    for _ in range(40):
        value = [value, value]
    with pparse.view(pickle.dumps(value, 4)) as model:
        count = sum(1 for _ in model.tensors())
        assert count < 20_000
        assert any(tensor.status is Status.UNSUPPORTED for tensor in model.tensors())


def test_a_checkpoint_in_an_archive_is_one_there():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.write(FOLDER / "training.pt", "run/best.pt")
    with pparse.open(out.getvalue()) as document:
        inner = document.parse().container.enter("run/best.pt")
        check(inner.view(), "training.pt")
    with pparse.open(FOLDER / "dtypes.pt") as document:  # a part of it has the names only, and says what has the rest
        name = next(name for name in document.result.parser.records if name.endswith("data.pkl"))
    with pparse.view(f"{FOLDER / 'dtypes.pt'}::{name}") as viewer:
        assert viewer.status is pparse.Status.TRUNCATED
        (told,) = viewer.findings
        assert (told.code, told.reason.split()[-2]) == ("part-of-checkpoint", str(FOLDER / "dtypes.pt"))


def test_a_storage_shorter_than_its_tensor_is_damage():
    source = zipfile.ZipFile(FOLDER / "state_dict.pt")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info in source.infolist():
            content = source.read(info)
            archive.writestr(info.filename, content[:-4] if info.filename.endswith("/data/0") else content)
    with pparse.view(out.getvalue()) as model:
        short = [tensor for tensor in model.tensors() if tensor.status is not Status.COMPLETE]
        assert len(short) == 1
        assert short[0].status is Status.DAMAGED
        assert short[0].finding.code == "short-storage"


def test_a_checksum_that_agrees_makes_no_tensor_ask_again(monkeypatch):
    """Only what is learned against the bytes can change what a tensor was told."""
    with pparse.view(FOLDER / "training.pt") as model:
        tensors = list(model.values())
        monkeypatch.setattr(type(model), "find", None)
        for tensor in tensors:
            if tensor.is_complete and tensor.dtype is not None:
                tensor.numpy()
                assert tensor.status is Status.COMPLETE
        assert model.extraction.session.stats.discoveries > 0
        assert model.extraction.session.stats.doubts == 0


@rows(
    "dtype, conj, neg, swapped, places",
    [
        ("float32", False, True, False, [3]),
        ("float32", False, True, True, [0]),
        ("complex64", False, True, False, [3, 7]),
        ("complex64", True, False, False, [7]),
        ("complex64", True, True, False, [3]),
        ("complex64", True, True, True, [0]),
    ],
)
def test_which_signs_of_a_view_are_the_other_way_round(dtype, conj, neg, swapped, places):
    stored = StoredTensor(None, dtype, dtype, 0, (1,), (1,))
    stored.conj, stored.neg = conj, neg
    assert list(_signs(DTYPES[dtype], stored, swapped=swapped)) == places
