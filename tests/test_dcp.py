"""Distributed checkpoints of PyTorch: `.metadata` and the shards beside it, as one model."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import pparse
from pparse import Severity, Status
from pparse.data.base import BytesData
from pparse.parsers.pytorch.dcp import DcpParser
from tests import dcp_files, sweep
from tests.dcp_files import METADATA, Dcp, index, metadata, place, rows_of, sample, shard_name, tensor
from tests.rows import rows

MADE, ARRAYS = sample()
OBJECTS = {"epoch": 7, "lr.0": 0.5, "lr.1": 0.25}


def written(folder, files=MADE.files, **changed):
    """Write a checkpoint; ``changed``: other content of its files, None for one that is lost."""
    folder.mkdir(exist_ok=True)
    names = {"meta": METADATA, **{f"s{number}": shard_name(number) for number in range(3)}}
    for name, content in {**files, **{names[short]: content for short, content in changed.items()}}.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
    return folder


def whole_in(model):
    """Return the tensors that are whole; each must have its own values."""
    found = set()
    for name, one in model.items():
        if one.is_complete:
            try:
                got = one.numpy()
            except pparse.PparseError:
                continue
            assert np.array_equal(got, ARRAYS[name]), name
            assert got.dtype == ARRAYS[name].dtype, name
            found.add(name)
    return found


def test_all_ways_show_one_model(tmp_path, run):
    (tmp_path / "all").mkdir()
    folder = written(tmp_path / "all" / "c")
    with pparse.view(folder) as model:
        assert list(model) == list(ARRAYS)
        assert whole_in(model) == set(ARRAYS)
        assert dict(model.metadata) == OBJECTS
        assert model.format == "pytorch-dcp"
        assert list(model.check()) == []
        assert all(one.verified for one in model.values())
        assert model.extent().all_verified
        for name, spans in MADE.spans.items():
            got = [(span.offset, span.offset + span.length) for span in model[name].spans]
            assert got == [(begin, end) for _, _, begin, end, _ in spans]
    with pparse.view(folder / METADATA) as model:
        assert model["w"][5:7].tolist() == ARRAYS["w"][5:7].tolist()
    assert run("convert", folder, "-o", tmp_path / "m.safetensors").code == 0
    with pparse.view(tmp_path / "m.safetensors") as model:
        assert whole_in(model) == set(ARRAYS)
    (tmp_path / "all" / "other.safetensors").write_bytes((tmp_path / "m.safetensors").read_bytes())
    listed = run("ls", "-R", tmp_path / "all")
    assert "c/.metadata" in listed.out
    assert ".distcp" not in listed.out
    assert {use.pickle.partition("::")[0] for use in pparse.scan(folder)} == {"", *map(shard_name, range(3))}
    scanned = run("scan", "--all", folder)
    assert scanned.code == 0
    assert "::archive/data.pkl" in scanned.out
    assert "unknown" not in scanned.out


def test_a_listing_opens_no_chunk_and_a_slice_only_those_it_needs(tmp_path):
    folder = written(tmp_path / "c")
    for number in range(3):  # sizes are all that a listing knows
        (folder / shard_name(number)).write_bytes(bytes(len(MADE.files[shard_name(number)])))
    with pparse.view(folder) as model:
        assert model.extent().whole == len(ARRAYS)
    written(folder, s1=bytes(len(MADE.files[shard_name(1)])))
    with pparse.view(folder) as model:
        assert model["w"][0:2].tolist() == ARRAYS["w"][0:2].tolist()
        with pytest.raises(pparse.DamagedTensorError, match="archive"):
            model["w"].numpy()


def test_a_cut_shard_costs_what_is_behind_the_cut(tmp_path):
    folder = written(tmp_path / "c")
    for number in range(3):
        content = MADE.files[shard_name(number)]
        for cut in sweep.some(range(len(content)), 150, ends=2):
            written(folder, **{f"s{number}": content[:cut]})
            with pparse.view(folder) as model:
                extent = model.extent()
                assert [(file.at, file.file.endswith(shard_name(number))) for file in extent.resume] == [(cut, True)]
                here = {
                    name
                    for name, spans in MADE.spans.items()
                    if all(
                        shard != shard_name(number) or end <= cut or begin == end for shard, _, begin, end, _ in spans
                    )
                }
                assert whole_in(model) == here
                for name in set(ARRAYS) - here:
                    one = model[name]
                    assert one.status in (Status.TRUNCATED, Status.MISSING), name
                    assert shard_name(number) in one.finding.reason
                    if one.status is Status.TRUNCATED:
                        got = one.numpy(partial="prefix")
                        assert np.array_equal(got, ARRAYS[name][: len(got)])
        written(folder, **{f"s{number}": content})


def test_a_shard_that_is_not_there(tmp_path, run):
    folder = written(tmp_path / "c", s1=None)
    with pparse.view(folder) as model:
        extent = model.extent()
        assert (extent.missing_files, extent.status) == (1, Status.TRUNCATED)
        assert [name for name, _ in model.files_missing()] == [shard_name(1)]
        assert whole_in(model) == {"step"}
        assert model["one"].status is Status.MISSING
        assert model["w"].finding.reason == f"2 of its 3 chunks are whole: {shard_name(1)} is not there"
        assert model["w"].numpy(partial="prefix").tolist() == ARRAYS["w"][:3].tolist()
        assert {finding.path for finding in model.check()} == set(ARRAYS) - {"step"}
    ran = run("recover", folder, "-o", tmp_path / "out")
    assert ran.code == 4
    saved = tmp_path / "out" / "metadata.safetensors"
    with pparse.view(saved) as model:
        assert list(model) == ["step"]


def test_a_changed_byte_of_a_chunk_is_found(tmp_path):
    folder = written(tmp_path / "c")
    for name, spans in MADE.spans.items():
        shard, _, begin, _, _ = spans[-1 if spans[-1][2] < spans[-1][3] else 0]
        content = bytearray(MADE.files[shard])
        content[begin] ^= 1
        written(folder, **{f"s{shard[2]}": bytes(content)})
        with pparse.view(folder) as model:
            with pytest.raises(pparse.DamagedTensorError):
                model[name].numpy()
            assert [finding.path for finding in model.check() if finding.path in ARRAYS] == [name]
            assert whole_in(model) == set(ARRAYS) - {name}
        written(folder)


def test_what_is_left_of_a_tensor_is_saved_at_its_place(tmp_path, run):
    """Chunks of rows behind a lost one, of columns, of a grid; the gaps are told."""
    cut = MADE.files[shard_name(1)]
    saved = {}
    for number, content in enumerate((None, cut[:-1], cut[:3000])):
        folder, out = written(tmp_path / f"c{number}", s1=content), tmp_path / f"o{number}"
        assert run("recover", folder, "-o", out).code == 4
        for entry in json.loads((out / "RECOVERY.json").read_text())["files"]:
            if (entry["path"] or "").endswith(".bin"):
                found, wanted = (out / entry["path"]).read_bytes(), ARRAYS[entry["raw_name"]].tobytes()
                lost = {at for start, length in entry["gaps"] for at in range(start, start + length)}
                assert all(found[at] == byte for at, byte in enumerate(wanted) if at not in lost), entry
                saved[number, entry["raw_name"]] = len(wanted) - len(lost)
    whole = {name: count for (number, name), count in saved.items() if not number}
    assert whole == {"w": 80, "col": 128, "grid": 36, "bias": 8}


def test_a_damaged_head_around_a_chunk_that_is_right_is_told(tmp_path, run):
    """As it is of the shard alone; torch goes by that header."""
    content = MADE.files[shard_name(1)]
    folder = written(tmp_path / "c", s1=content[:12] + bytes(16) + content[28:])
    for path in (folder, folder / shard_name(1)):
        for words in (("check",), ("recover", "-o", tmp_path / f"o{path.name}")):
            ran = run(words[0], path, *words[1:])
            assert (ran.code, "local header is damaged" in ran.out) == (4, True), (path, words)
    with pparse.view(folder) as model:
        assert whole_in(model) == set(ARRAYS)


def test_a_conversion_reads_each_chunk_once_and_compares_all(tmp_path, run, monkeypatch):
    from pparse.viewers.pytorch import dcp

    monkeypatch.setattr(dcp, "LITTLE", 0)  # all chunks are large ones
    rng = np.random.default_rng(3)
    array = rng.standard_normal((300, 40))
    kinds = {"cols": [(number, (0, 10 * number), (300, 10)) for number in range(4)], "row": rows_of(array.shape, 4)}
    made = Dcp({name: (array, kind) for name, kind in kinds.items()}, {})
    folder, out = written(tmp_path / "c", made.files), tmp_path / "m.safetensors"
    with pparse.view(folder) as model:
        before = model.extraction.session.stats.bytes
        pparse.convert(model, out)
        assert model.extraction.session.stats.bytes - before < 2 * array.nbytes + 8 * 13_000 + 8_000
        assert all(model.parser.places.proved)
    with pparse.view(out) as model:
        assert all(np.array_equal(one.numpy(), array) for one in model.values())
    for name, (shard, begin, _, end, _) in ((name, spans[len(name) - 3]) for name, spans in made.spans.items()):
        content = bytearray(made.files[shard])
        content[end - 1 if name == "cols" else begin + (end - begin) // 2] ^= 1
        (folder / shard).write_bytes(content)
    for how in ((), ("--dtype", "float32")):
        assert run("convert", "--force", folder, "-o", out, *how).code == 4
        ran = run("convert", "--force", "--skip-damaged", folder, "-o", out, *how)
        assert (ran.code, ran.err.count("damaged: its CRC-32")) == (4, 2), ran.err
    with pparse.view(folder) as model:
        assert model["cols"][:5].tolist() == array[:5].tolist()  # nothing was compared
        with pytest.raises(pparse.DamagedTensorError):
            model["cols"].numpy()


def test_any_flipped_byte_gives_no_wrong_value(tmp_path):
    folder = written(tmp_path / "c")
    for short, name in (("meta", METADATA), ("s0", shard_name(0))):
        content = bytearray(MADE.files[name])
        for at in sweep.some(range(len(content)), 120, ends=2):
            content[at] ^= 0x11
            written(folder, **{short: bytes(content)})
            content[at] ^= 0x11
            try:
                with pparse.view(folder) as model:
                    list(model.check())
                    for one, found in model.items():
                        if found.is_complete and one in ARRAYS and found.numpy().dtype == ARRAYS[one].dtype:
                            same = np.array_equal(found.numpy(), ARRAYS[one])
                            assert same or (short == "meta" and found.numpy().shape != ()), (name, at, one)
            except (pparse.FormatError, pparse.PathError):  # a folder of shards without names
                assert short == "meta"
        written(folder)


def test_a_cut_metadata_keeps_what_is_before_the_cut(tmp_path):
    folder, last = written(tmp_path / "c"), 0
    content = MADE.files[METADATA]
    for cut in sorted({*sweep.some(range(400, len(content)), 60, ends=2)}):
        written(folder, meta=content[:cut])
        with pparse.view(folder) as model:
            assert model.extent().status is not Status.COMPLETE
            count = len(whole_in(model))
            assert count >= last, cut
            last = count
    assert last == len(ARRAYS)


def test_without_metadata_shards_are_listed_one_by_one(tmp_path, run):
    folder = written(tmp_path / "c", meta=None)
    listed = run("ls", folder).out
    assert listed.count("pytorch-distcp") == 3
    assert "3 shards of a distributed checkpoint without a .metadata" in listed
    with pparse.view(folder / shard_name(0)) as model:
        assert [finding.code for finding in model.findings] == ["names"]
    written(folder)
    with pparse.view(folder / shard_name(0)) as model:
        assert list(model.findings) == []


def one(dtype="float32", shape=(4,), chunks=(((0,), (4,)),), **where):
    """Return a .metadata of one tensor whose chunks have the place ``where``."""
    places = {
        index("t", starts): place(**{"path": shard_name(0), "offset": 0, "length": 1 << 12, **where})
        for starts, _ in chunks
    }
    return metadata({"t": tensor(dtype, shape, list(chunks))}, places)


@rows(
    "content, status, words",
    [
        (one(shape=(-4,)), Status.DAMAGED, "not a tuple of numbers"),
        (one(shape=(1 << 62, 4)), Status.DAMAGED, "too many elements"),
        (one(shape=(1 << 40,), chunks=(((0,), (1 << 40,)),)), Status.DAMAGED, "and its archive 4,096"),
        (one(chunks=(((0,), (3,)),)), Status.DAMAGED, "do not cover it"),
        (one(chunks=(((0,), (3,)), ((2,), (2,)))), Status.DAMAGED, "overlap"),
        (one(chunks=(((0,), (5,)),)), Status.DAMAGED, "from 0 to 5 of 4"),
        (one(chunks=(((0, 0), (4, 1)),)), Status.DAMAGED, "2 dimensions"),
        (one(chunks=(((0,), (2,)), ((2,), (2,)))), Status.DAMAGED, "share bytes"),
        (one(dtype="odd"), Status.UNSUPPORTED, "odd"),
        (one(transform_descriptors=["stream.zstd/1"]), Status.UNSUPPORTED, "chunks are packed"),
        (one(path="../c/x.distcp"), Status.MISSING, "leads out of its folder"),
        (one(path="/etc/passwd"), Status.MISSING, "leads out of its folder"),
        (one(path="none.distcp"), Status.MISSING, "is not there"),
        (one(offset=1 << 61), Status.MISSING, "has 7 bytes"),
        (one(offset=-1), Status.MISSING, "has the place -1"),
        (one(length=1 << 70), Status.MISSING, "has the place"),
        (metadata({"t": tensor("float32", (4,), [((0,), (4,))])}, {}), Status.MISSING, "is not in .metadata"),
        (metadata({"t": 5}, {}), Status.DAMAGED, "not described as known"),
        (one(shape=(1,) * 300, chunks=(((0,) * 300, (1,) * 300),)), Status.UNSUPPORTED, "300 dimensions"),
    ],
)
def test_what_metadata_say_is_not_believed(tmp_path, content, status, words):
    with pparse.view(written(tmp_path / "c", {METADATA: content, shard_name(0): b"garbage"})) as model:
        assert (model["t"].status, words in model["t"].finding.reason) == (status, True), model["t"].finding.reason
        with pytest.raises(pparse.PparseError):
            model["t"].numpy()
        assert model.extent().count == 1
        assert not whole_in(model)
        if "odd" in words:  # `check` says so, too, by its exit code
            assert model["t"].finding.severity is Severity.ERROR


def test_an_archive_with_another_tensor_is_refused(tmp_path):
    for other in (np.zeros(4, "int64"), np.zeros(5, "float32"), np.zeros((2, 2), "float32")):
        content, _ = dcp_files.chunk_of(str(other.dtype), other)
        files = {METADATA: one(length=len(content)), shard_name(0): content}
        with pparse.view(written(tmp_path / "c", files)) as model:
            with pytest.raises(pparse.PparseError, match="in its archive"):
                model["t"].numpy()
            assert model["t"].status is Status.DAMAGED


def test_many_chunks_take_little_memory(tmp_path):
    """The places are kept as numbers; the tree of each would not fit."""
    count = 40_000 if sweep.full else 6_000
    described = {
        f"layer.{number}": tensor("float32", (2,), [((0,), (1,)), ((1,), (1,))]) for number in range(count // 2)
    }
    places = {
        index(f"layer.{number}", (half,)): place(shard_name(half), 100 * number, 100)
        for number in range(count // 2)
        for half in range(2)
    }
    folder = written(tmp_path / "c", {METADATA: metadata(described, places)})
    with pparse.view(folder, budget="6MiB") as model:
        assert model.extent().missing == count // 2
        stats, size = model.extraction.session.stats, (folder / METADATA).stat().st_size
        assert stats.bytes < 5 * size, stats.bytes / size  # names are read where they stand, not for each chunk again
        found = model.parser.places
        assert len(found) == count
        assert (found.find("layer.700", (1,)).offset, found.find("layer.700", (2,))) == (70_000, None)


def test_pairs_have_keys_that_are_objects():
    with pparse.open(BytesData(MADE.files[METADATA], METADATA)) as document:
        parser = document.parse().parser
        assert isinstance(parser, DcpParser)
        keys = [key.state["fqn"] for key, _ in parser.pairs("storage_data")]
        assert keys == [name for name, spans in MADE.spans.items() for _ in spans] + ["epoch", "lr"]
        with pparse.view(BytesData(MADE.files[METADATA], METADATA)) as model:
            assert {found.status for found in model.values()} == {Status.UNSUPPORTED}
            assert not model.has_values


def test_rows_that_do_not_divide(tmp_path):
    array = np.arange(45, dtype="float32").reshape(9, 5)
    for count in (1, 2, 4, 8, 12):
        made = Dcp({"w": (array, rows_of(array.shape, count))}, {})
        with pparse.view(written(tmp_path / f"c{count}", made.files)) as model:
            assert np.array_equal(model["w"].numpy(), array)
            for low, high in pairwise((0, 1, 4, 5, 9)):
                assert np.array_equal(model["w"][low:high], array[low:high])
