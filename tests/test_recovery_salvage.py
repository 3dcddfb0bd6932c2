"""Model files that are cut or damaged come out in a form that their own libraries open, and say what they lack."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from pathlib import Path

import pytest

import pparse
from pparse.data.base import Access, BytesData, Data, Gap
from pparse.errors import CancelledError, LimitError, MalformedError
from pparse.findings import Status
from pparse.parsers.safetensors.header import STORED_DTYPES
from pparse.recovery.folder_writer import JOURNAL_NAME
from pparse.recovery.salvage import salvage
from pparse.recovery.target import Target
from pparse.riegeli import RecordReader
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.conftest import safetensors
from tests.riegeli_damage import Edit, apply, flip, made, salvaged, written
from tests.riegeli_fixtures import chunk_table, manifest, raw
from tests.rows import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.recovery.report import RecoveredFile

TF = Path(__file__).resolve().parent / "data" / "tf"


class Out:
    """What a salvage came to: ``ok``, the files of the folder by name, and the report by path (or name)."""

    def __init__(self, folder: Path, ok: bool, reported: list[RecoveredFile]) -> None:
        self.folder = folder
        self.ok = ok
        self.reported = reported
        self.files = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        self.by = {file.path or file.raw_name: file for file in reported}

    def rest(self, name: str) -> dict:
        return json.loads(self.files[f"{name}.rest.json"])


@pytest.fixture
def save(tmp_path):
    """``save(source, format, name)`` salvages, and checks what must hold of any result."""
    count = 0

    def run(source: bytes | Data | Path, format: str | None, name: str, *, most: int = 64 << 20, **options) -> Out:
        nonlocal count
        count += 1
        folder = tmp_path / f"out{count}"
        reported: list[RecoveredFile] = []

        def report(file: RecoveredFile) -> None:
            file.gaps = list(file.gaps)
            reported.append(file)

        with pparse.open(source, format=format, **options) as document, Target(folder, max_bytes=most) as target:
            ok = salvage(document, target, name, report=report)
        out = Out(folder, ok, reported)
        assert sorted(out.files) == sorted(file.path for file in reported if file.path is not None)
        for file in reported:
            assert file.verified is None
            assert file.reason
            if file.path is not None:
                assert (file.bytes, file.sha256) == (len(out.files[file.path]), sha256(out.files[file.path]))
        assert ok is bool(reported)
        return out

    return run


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Inexact(BytesData):
    """Bytes of which nobody knows how many are missing in the gap."""

    def __init__(self, content: bytes, offset: int, length: int | None) -> None:
        super().__init__(content)
        self.gaps = (Gap(offset, length, exact=False),)


# -- safetensors -------------------------------------------------------------------------------------------------------


def every_dtype() -> tuple[bytes, dict[str, tuple[str, list[int], int, bytes]]]:
    """A file with a tensor of each type; with the type, shape, begin and bytes of each tensor, by name."""
    header: dict = {"__metadata__": {"format": "pt", "é": "ü"}}
    known, data = {}, b""
    for number, (word, dtype) in enumerate(STORED_DTYPES.items()):
        shape = [2, 8, number % 3 + 1]
        content = bytes((7 * number + at) % 251 for at in range(16 * shape[2] * dtype.bits // 8))
        header[f"t/{word}"] = {"dtype": word, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        known[f"t/{word}"] = (word, shape, len(data), content)
        data += content
    header["nothing"] = {"dtype": "F32", "shape": [0, 3], "data_offsets": [len(data), len(data)]}
    known["nothing"] = ("F32", [0, 3], len(data), b"")
    return safetensors(header, data), known


def opened(content: bytes, path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """What the library makes of a file."""
    library = pytest.importorskip("safetensors")
    path.write_bytes(content)
    with library.safe_open(str(path), "numpy") as file:
        keys = set(file.keys())
    found = dict(library.deserialize(content))
    assert keys == set(found)
    assert content[8:].find(b"{") == 0
    assert int.from_bytes(content[:8], "little") % 8 == 0
    return {name: (info["dtype"], info["shape"], bytes(info["data"])) for name, info in found.items()}


def test_bytes_of_tensors_whose_names_are_lost_are_saved_without_them(save, tmp_path):
    """The first half of the header is zeros: what it named is there, in the order of the file, without names."""
    whole, known = every_dtype()
    length = int.from_bytes(whole[:8], "little")
    out = save(whole[:8] + bytes(length // 2) + whole[8 + length // 2 :], "safetensors", "m.safetensors")
    named = opened(out.files["m.safetensors"], tmp_path / "check")
    assert 0 < len(named) < len(known)
    lost = [begin for name, (_, _, begin, content) in known.items() if name not in named and content]
    first = min(begin for name, (_, _, begin, content) in known.items() if name in named and content)
    assert lost
    assert max(lost) < first
    at = 8 + length
    assert out.files[f"m.safetensors.partial/unnamed-{at}.bin"] == whole[at : at + first]


def test_a_file_cut_anywhere(save, tmp_path):
    whole, known = every_dtype()
    base = 8 + int.from_bytes(whole[:8], "little")
    for cut in [*range(0, len(whole), 64), base, base + 1, len(whole) - 1]:
        out = save(whole[:cut], "safetensors", "m.safetensors")
        if cut <= 8:
            assert not out.ok
            continue
        found = opened(out.files["m.safetensors"], tmp_path / "check")
        want = {name: entry for name, entry in known.items() if cut >= base and base + entry[2] + len(entry[3]) <= cut}
        if cut >= base:
            want["nothing"] = known["nothing"]
            assert {name: entry[2] for name, entry in found.items()} == {name: want[name][3] for name in want}
            assert {name: entry[:2] for name, entry in found.items()} == {name: want[name][:2] for name in want}
        else:
            assert set(found) <= {"nothing"}
        main = out.by["m.safetensors"]
        assert main.status is Status.TRUNCATED
        if cut >= base:
            assert main.reason == f"{len(want)} of {len(known)} tensors are whole"
        else:
            assert f"{len(found)} of at least" in main.reason
        for name, (word, shape, begin, content) in known.items() if cut >= base else ():
            there = min(cut - base - begin, len(content))
            part = f"m.safetensors.partial/{name.replace('/', '_')}.bin"
            if name in want:
                assert name not in out.by
                assert part not in out.files
            elif there > 0:
                assert out.files[part] == content[:there]
                assert (out.by[part].status, out.by[part].gaps) == (
                    Status.TRUNCATED,
                    [(there, len(content) - there)],
                )
                assert f"{word} {shape}: {there} of {len(content)} bytes are there" in out.by[part].reason
                assert out.by[part].raw_name == name
                assert out.by[part].offset == base + begin
            else:
                assert (out.by[name].status, out.by[name].path) == (Status.MISSING, None)


def test_the_rest_of_a_cut_file(save):
    whole, known = every_dtype()
    base = 8 + int.from_bytes(whole[:8], "little")
    out = save(whole[:-20], "safetensors", "m")
    rest = out.rest("m")
    assert rest["metadata"] == {"format": "pt", "é": "ü"}
    word, shape, begin, content = known["t/U64"]
    assert rest["lost"] == [
        {
            "name": "t/U64",
            "dtype": word,
            "shape": shape,
            "data_offsets": [begin, begin + len(content)],
            "status": "truncated",
            "there": len(content) - 20,
            "path": "m.partial/t_U64.bin",
            "reason": "108 of its 128 bytes are there",
        }
    ]
    assert out.by["m.rest.json"].status is Status.TRUNCATED
    assert whole[base + begin :] == content


def test_the_metadata_of_a_cut_model_stay(save, tmp_path):
    library = pytest.importorskip("safetensors")
    whole, _ = every_dtype()
    save(whole[:-1], "safetensors", "m")
    with library.safe_open(str(tmp_path / "out1" / "m"), "numpy") as file:
        assert file.metadata() == {"format": "pt", "é": "ü"}


def test_a_cut_header(save, tmp_path):
    """Entries that are whole are kept where their bytes are there: none but those of tensors without bytes."""
    header = b'{"__metadata__":{"a":"b","c":"d"},"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"f":{"dtype":"F3'
    content = struct.pack("<Q", 1000) + header
    out = save(content, "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == {"e": ("F32", [0], b"")}
    assert out.rest("m")["metadata"] == {"a": "b", "c": "d"}
    assert (out.by["f"].status, out.by["f"].path) == (Status.MISSING, None)
    out = save(content[: content.index(b',"c"') + 6], "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == {}
    assert out.rest("m")["metadata"] == {"a": "b"}


@rows("order", ["abcde", "edcba"])
def test_a_tensor_that_a_gap_touches_is_left_out(save, tmp_path, order):
    """A tensor that a gap touches is not whole; those behind it are. Bytes come in the order of the old file."""
    places = {name: [100 * at, 100 * at + 100] for at, name in enumerate("abcde")}
    header = {name: {"dtype": "U8", "shape": [100], "data_offsets": places[name]} for name in order}
    content = b"".join(bytes([65 + at]) * 100 for at in range(5))
    whole = safetensors(header, content)
    base = len(whole) - 500
    out = save(GappyData(whole, [(base + 150, 170)]), "safetensors", "m")
    found = opened(out.files["m"], tmp_path / "x")
    assert {name: entry[2] for name, entry in found.items()} == {
        "a": b"A" * 100,
        "e": b"E" * 100,
    }
    assert out.files["m"].endswith(b"A" * 100 + b"E" * 100)
    assert out.by["m"].status is Status.DAMAGED
    assert out.by["m"].reason == "2 of 5 tensors are whole"
    assert out.files["m.partial/b.bin"] == b"B" * 50 + bytes(50)
    assert out.by["m.partial/b.bin"].gaps == [(50, 50)]
    assert out.files["m.partial/d.bin"] == bytes(20) + b"D" * 80
    assert out.by["m.partial/d.bin"].status is Status.DAMAGED
    assert out.by["c"].status is Status.MISSING


def test_a_gap_whose_length_nobody_knows(save, tmp_path):
    """What lies behind it has no place in the file: it is kept, but is no tensor."""
    header = {
        name: {"dtype": "U8", "shape": [100], "data_offsets": [100 * at, 100 * at + 100]}
        for at, name in enumerate("abc")
    }
    whole = safetensors(header, b"A" * 100 + b"B" * 100 + b"C" * 100)
    base = len(whole) - 300
    out = save(Inexact(whole, base + 150, 20), "safetensors", "m")
    assert set(opened(out.files["m"], tmp_path / "x")) == {"a"}
    assert out.files["m.partial/b.bin"] == b"B" * 50
    assert out.by["m.partial/b.bin"].status is Status.DAMAGED
    assert out.by["c"].status is Status.MISSING
    assert out.files[f"m.partial/behind-{base + 150}.bin"] == b"B" * 30 + b"C" * 100
    out = save(Inexact(whole, base + 150, None), "safetensors", "m")
    assert out.by["m.partial/b.bin"].status is Status.TRUNCATED
    assert not any("behind" in name for name in out.files)


def test_a_gap_in_the_header(save, tmp_path):
    """Entries before and behind the gap are whole, and their bytes are there."""
    header = {
        name: {"dtype": "U8", "shape": [10], "data_offsets": [10 * at, 10 * at + 10]} for at, name in enumerate("abc")
    }
    whole = safetensors(header, bytes(range(30)))
    out = save(GappyData(whole, [(whole.index(b'"b"') + 20, 5)]), "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == {
        "a": ("U8", [10], bytes(range(10))),
        "c": ("U8", [10], bytes(range(20, 30))),
    }
    assert out.by["m"].status is Status.DAMAGED
    assert "at least" in out.by["m"].reason


def test_tensors_in_doubt_go_into_a_second_model(save, tmp_path):
    class Doubted(BytesData):
        def why_suspect(self, start: int, end: int) -> str | None:
            return "the stream's checksum differs" if start < size - 5 < end else None

    header = {
        name: {"dtype": "U8", "shape": [10], "data_offsets": [10 * at, 10 * at + 10]} for at, name in enumerate("abc")
    }
    whole = safetensors(header, bytes(range(30)))
    size = len(whole)
    out = save(Doubted(whole), "safetensors", "m.safetensors")
    assert set(opened(out.files["m.safetensors"], tmp_path / "x")) == {"a", "b"}
    second = "m.doubtful.safetensors"
    assert opened(out.files[second], tmp_path / "y") == {"c": ("U8", [10], bytes(range(20, 30)))}
    assert out.by[second].status is Status.DAMAGED
    assert list(out.by[second].doubtful) == [(0, len(out.files[second]))]
    (lost,) = out.rest("m.safetensors")["lost"]
    assert (lost["name"], lost["path"], lost["reason"]) == ("c", second, "the stream's checksum differs")
    doubted = Doubted(whole)
    doubted.gaps = (Gap(size - 11, 1),)
    out = save(doubted, "safetensors", "m")
    assert set(opened(out.files["m"], tmp_path / "x")) == {"a"}
    assert set(opened(out.files["m.doubtful"], tmp_path / "y")) == {"c"}
    assert len(out.files["m.partial/b.bin"]) == 10


def test_a_model_of_which_all_is_in_doubt_is_only_the_second(save, tmp_path):
    class Doubted(BytesData):
        def why_suspect(self, start: int, end: int) -> str | None:
            return "the stream's checksum differs" if start < end else None

    header = {"a": {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]}}
    out = save(Doubted(safetensors(header, bytes(10))), "safetensors", "m.safetensors")
    assert set(out.files) == {"m.doubtful.safetensors", "m.doubtful.safetensors.rest.json"}


def test_gaps_that_show_only_while_reading(save, tmp_path):
    class Late(BytesData):
        """A decoder that finds its gap when it comes to it."""

        access = Access.RESTART

        def _pread(self, offset: int, length: int) -> bytes:
            if offset + length > at and not self.gaps:
                self.gaps = (Gap(at, 3),)
                if offset >= at:
                    return b""
                length = at - offset
            return super()._pread(offset, length)

    header = {
        name: {"dtype": "U8", "shape": [10], "data_offsets": [10 * at, 10 * at + 10]} for at, name in enumerate("abc")
    }
    whole = safetensors(header, bytes(range(30)))
    whole = whole.ljust(len(whole), b"\0")
    at = len(whole) - 15
    # The header is small: what is read ahead of it must not find the gap already.
    header["d"] = {"dtype": "U8", "shape": [1 << 20], "data_offsets": [30, 30 + (1 << 20)]}
    whole = safetensors(header, bytes(range(30)) + bytes(1 << 20))
    at = len(whole) - 15
    out = save(Late(whole), "safetensors", "m")
    assert set(opened(out.files["m"], tmp_path / "x")) == {"a", "b", "c"}
    assert out.by["m.partial/d.bin"].gaps == [((1 << 20) - 15, 3)]


def test_bytes_that_cannot_be_decoded(save, tmp_path):
    """A source that fails in a tensor, and has no gap to tell of it."""

    class Failing(BytesData):
        access = Access.RESTART

        def _pread(self, offset: int, length: int) -> bytes:
            if offset <= at < offset + length:
                if offset == at:
                    raise MalformedError("the stream is damaged")
                length = at - offset
            return super()._pread(offset, length)

    header = {
        name: {"dtype": "U8", "shape": [10], "data_offsets": [10 * at, 10 * at + 10]} for at, name in enumerate("abc")
    }
    whole = safetensors(header, bytes(range(30)))
    at = len(whole) - 15
    out = save(Failing(whole), "safetensors", "m")
    assert set(opened(out.files["m"], tmp_path / "x")) == {"a", "c"}
    assert out.files["m.partial/b.bin"] == bytes(range(10, 15))
    assert out.by["m.partial/b.bin"].gaps == [(5, 5)]


def test_metadata_that_the_library_refuses(save, tmp_path):
    """Values that are no text, or text that is none, stay out of the file; what can be said of them is listed."""
    text = (
        b'{"__metadata__":{"a":"b","n":3,"big":1e999,"list":["x"],"bad":"\\ud800"},'
        b'"t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"u":{"dtype":"U8","shape":[3],"data_offsets":[3,6]}}'
    )
    out = save(safetensors(text, b"abcd"), "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == {"t": ("U8", [3], b"abc")}
    assert b'"__metadata__":{"a":"b"}' in out.files["m"]
    assert out.rest("m")["metadata"]["n"] == 3


# Tensors that the library opens, and for which numpy has no array.
ODD_SHAPES = {
    "dimensions": ("U8", [1] * 65 + [4], 4),
    "more dimensions": ("U8", [1] * 10_000 + [4], 4),
    "huge and empty": ("F32", [0, 1 << 62, 1 << 62], 0),
}


@pytest.mark.parametrize("kind", ODD_SHAPES)
def test_a_tensor_that_only_pparse_cannot_show_is_no_loss(save, tmp_path, kind):
    dtype, shape, size = ODD_SHAPES[kind]
    header = {
        "a": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]},
        "b": {"dtype": "U8", "shape": [6], "data_offsets": [size, size + 6]},
    }
    content = safetensors(header, bytes(range(size + 6)))
    assert not save(content, "safetensors", "m").ok  # whole: to be written as it is
    kept = {"a": (dtype, shape, bytes(range(size)))}
    out = save(content[:-1], "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == kept
    assert [each["name"] for each in out.rest("m")["lost"]] == ["b"]


def test_a_tensor_that_pparse_cannot_show_is_lost_where_its_bytes_are(save, tmp_path):
    header = {
        "a": {"dtype": "U8", "shape": [1] * 65 + [4], "data_offsets": [0, 4]},
        "b": {"dtype": "U8", "shape": [6], "data_offsets": [4, 10]},
    }
    content = safetensors(header, bytes(range(10)))
    out = save(GappyData(content, [(len(content) - 8, 1)]), "safetensors", "m")
    assert opened(out.files["m"], tmp_path / "x") == {"b": ("U8", [6], bytes(range(4, 10)))}
    assert out.by["m.partial/a.bin"].gaps == [(2, 1)]


def test_odd_and_repeated_names_are_saved_as_they_are(save, tmp_path):
    """Names that no file could have, twice the same, and in an order that is not that of the bytes."""
    text = (
        b'{"../x":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},'
        b'"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
        b'"y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},'
        b'"\\ud800":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},'
        b'"bad":{"dtype":"U8","shape":[3],"data_offsets":[6,8]},'
        b'"word":{"dtype":"U9","shape":[2],"data_offsets":[6,8]},'
        b'"../z":{"dtype":"U8","shape":[90],"data_offsets":[8,98]}}'
    )
    out = save(safetensors(text, b"AaBbCcDdzzz"), "safetensors", "m")
    found = opened(out.files["m"], tmp_path / "x")
    assert {name: entry[2] for name, entry in found.items()} == {"../x": b"Cc"}
    assert out.files["m"].endswith(b"Cc")
    assert (out.files["m.partial/y.bin"], out.files["m.partial/y#2.bin"]) == (b"Aa", b"Bb")  # which is y, nobody knows
    assert out.files["m.partial/.._z.bin"] == b"zzz"
    assert out.by["m.partial/.._z.bin"].raw_name == "../z"
    assert out.by["m"].status is Status.DAMAGED
    assert {entry["name"]: entry["status"] for entry in out.rest("m")["lost"]} == {
        "y": "damaged",
        "y#2": "damaged",
        "header[#3]": "damaged",
        "bad": "damaged",
        "word": "unsupported",
        "../z": "truncated",
    }
    assert b"Dd" in (out.files["m.partial/bad.bin"], out.files["m.partial/word.bin"])


def test_names_that_are_taken(save):
    header = {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}
    folder_name = "deep/m.safetensors"
    out = save(safetensors(header, b"ab"), "safetensors", folder_name)
    assert set(out.files) == {
        "deep/m.safetensors",
        "deep/m.safetensors.partial/a.bin",
        "deep/m.safetensors.rest.json",
    }


def test_a_tensor_in_a_file_hole(save, tmp_path):
    """What was never written is not a tensor of zeros."""
    path = tmp_path / "holes.safetensors"
    size = 1 << 20
    header = {
        "a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "b": {"dtype": "U8", "shape": [size], "data_offsets": [size, 2 * size]},
    }
    whole = safetensors(header, b"x" * size)
    path.write_bytes(whole)
    with path.open("r+b") as file:
        file.truncate(len(whole) + size)
    with pparse.open(path) as document:
        if not list(document.data.holes(0, document.size)):
            pytest.skip("the file system has no holes")
    out = save(path, None, "m")
    assert set(opened(out.files["m"], tmp_path / "x")) == {"a"}
    assert set(opened(out.files["m.doubtful"], tmp_path / "y")) == {"b"}
    assert out.by["m.doubtful"].status is Status.DAMAGED


def test_it_is_streamed_within_the_budget(save):
    import tracemalloc

    size = 24 << 20
    header = {
        "a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "b": {"dtype": "U8", "shape": [size], "data_offsets": [size, 2 * size]},
    }

    class Large(Data):
        head = safetensors(header)

        def _pread(self, offset: int, length: int) -> bytes:
            return self.head[offset : offset + length].ljust(length, b"z")

    data = Large("large", len(Large.head) + size + size // 2)
    with pparse.open(data, format="safetensors", budget="2MiB") as document:
        import tempfile

        with tempfile.TemporaryDirectory() as folder, Target(folder, exist_ok=True, max_bytes=1 << 30) as target:
            tracemalloc.start()
            try:
                assert salvage(document, target, "m", report=lambda file: None)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert target.bytes > size + size // 2
    assert peak < 6 << 20


def test_limits_and_cancelling(save, tmp_path):
    whole, _ = every_dtype()
    with pytest.raises(LimitError):
        save(whole[:-1], "safetensors", "m", most=1000)
    with pytest.raises(CancelledError):
        save(whole[:-1], "safetensors", "m", cancel=lambda: True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != JOURNAL_NAME]


def test_a_limit_met_half_way(tmp_path):
    """Whatever file was the last one, what is there was reported, and the list is sound."""
    whole, _ = every_dtype()
    with pparse.open(whole[:-300], format="safetensors") as document:
        for most in range(100, 12_000, 333):
            folder = tmp_path / str(most)
            reported: list[RecoveredFile] = []
            with Target(folder, max_bytes=most) as target:
                try:
                    done = salvage(document, target, "m", report=reported.append)
                except LimitError:
                    done = False
            there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            assert there == sorted(file.path for file in reported if file.path is not None)
            if "m.rest.json" in there:
                json.loads((folder / "m.rest.json").read_text())
    assert done


# -- Riegeli -----------------------------------------------------------------------------------------------------------


def records_of(content: bytes) -> list[bytes]:
    """The records of a file that must be sound."""
    with RecordReader(content, verify="all") as reader:
        reader.read_serialized_metadata()
        return list(reader)


FIXTURES = [name for name in manifest() if 200 < len(raw(name)) < 300_000]


@pytest.mark.parametrize("name", sweep.part(FIXTURES))
def test_fixtures_that_are_cut(save, name):
    """As many records as the reader finds come back; of the chunk that is cut, those that are whole."""
    content = raw(name)
    for cut in sweep.values((len(content) // 3, len(content) * 2 // 3, len(content) - 1), FIXTURES.index(name), 1):
        out = save(content[:cut], "riegeli", "r")
        expected = [record for _, _, record in salvaged(content[:cut]).records]
        if not out.ok:
            assert not expected
            continue
        found = records_of(out.files["r"])
        assert found[: len(expected)] == expected
        everything = [record for _, _, record in salvaged(content).records]
        assert found == everything[: len(found)]
        assert out.by["r"].status is Status.TRUNCATED or not manifest()[name].get("sound", True)


@pytest.mark.parametrize("options", ["uncompressed", "brotli", "zstd", "snappy", "transpose,zstd"])
def test_records_around_a_hole(save, options):
    file = made(f"{options},chunk_size:2k", "hole", 300, (0, 20, 60, 300))
    hit = file.chunks[len(file.chunks) // 2]
    damaged = apply(file.data, flip(file.data, hit.begin + 45, 0x5A))
    out = save(damaged, "riegeli", "r.riegeli")
    expected = salvaged(damaged)
    assert records_of(out.files["r.riegeli"]) == [record for _, _, record in expected.records]
    assert out.by["r.riegeli"].status is Status.DAMAGED
    assert f"{len(expected.records)} records could be read; 1 stretch" in out.by["r.riegeli"].reason
    lost = out.rest("r.riegeli")["lost"]
    assert [(entry["begin"], entry["end"]) for entry in lost] == expected.spans
    # As the old one was written.
    first = next(chunk for chunk in chunk_table(out.files["r.riegeli"]) if chunk.num_records)
    old = next(chunk for chunk in file.chunks if chunk.num_records)
    assert first.type == old.type
    kind = file.data[old.begin + 40]
    assert out.files["r.riegeli"][first.begin + 40] == kind


def test_records_around_a_gap_of_the_data(save):
    file = made("uncompressed,chunk_size:2k", "gap", 300, (0, 20, 60, 300))
    hit = file.chunks[len(file.chunks) // 2]
    data = GappyData(file.data, [(hit.begin + 5, 100)])
    out = save(data, "riegeli", "r")
    expected = [record for _, _, record in salvaged(data).records]
    assert records_of(out.files["r"]) == expected
    assert expected[-1] == file.records[-1][2]
    assert out.by["r"].status is Status.DAMAGED


def test_bytes_that_are_gone(save):
    """A hole without a mark: what the reader finds behind it comes back."""
    file = made("zstd,chunk_size:2k", "gone", 400, (20, 60, 300))
    hit = file.chunks[len(file.chunks) // 2]
    damaged = apply(file.data, Edit(hit.begin + 3, 71, b""))
    out = save(damaged, "riegeli", "r")
    assert records_of(out.files["r"]) == [record for _, _, record in salvaged(damaged).records]


def test_metadata_of_the_file_stay(save):
    import io

    from pparse.riegeli import RecordWriter

    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="chunk_size:100", serialized_metadata=b"\x12\x03abc") as writer:
        writer.write_records([b"%03d" % number * 9 for number in range(40)])
    content = out.getvalue()
    found = save(content[:-30], "riegeli", "r")
    with RecordReader(found.files["r"]) as reader:
        assert reader.read_serialized_metadata() == b"\x12\x03abc"


def test_records_of_a_chunk_that_is_cut(save):
    """Uncompressed records stand one after the other: those before the cut are there, without a checksum."""
    records = [b"%04d" % number * 50 for number in range(20)]
    content = written("uncompressed,chunk_size:100k", records)
    out = save(content[: len(content) - 500], "riegeli", "r")
    assert records_of(out.files["r"]) == records[:17]
    assert "17 of them without a checksum" in out.by["r"].reason
    assert out.files["r.partial/record-81.bin"] == records[17][:100]
    assert out.by["r.partial/record-81.bin"].gaps == [(100, 100)]


def test_large_records_are_streamed_where_the_budget_has_no_room(save, tmp_path):
    """They are held where the budget has room; else streamed, through a scratch file where they are compressed."""
    records = [b"a" * (4 << 20), b"b", b"c" * (2 << 20)]
    for options, scratch, budget in (
        ("uncompressed", None, "4MiB"),
        ("zstd", None, "64MiB"),
        ("brotli", str(tmp_path), "7MiB"),
    ):
        content = written(options, [*records, b"end"])
        damaged = apply(content, flip(content, len(content) - 1, 1))
        out = save(damaged, "riegeli", "r", budget=budget, scratch=scratch)
        assert records_of(out.files["r"]) == records
        assert len(out.files["r"]) < 2 * len(content)
    with pytest.raises(LimitError, match="scratch=DIR"):
        save(damaged, "riegeli", "r", budget="7MiB")


def test_nothing_to_save(save):
    content = written("zstd,transpose", [b"x" * 100])
    assert not save(content[:100], "riegeli", "r").ok
    assert not save(b"{}", "json", "j.json").ok
    assert not save(b"", "safetensors", "e").ok


def test_what_is_whole_is_left_alone(tmp_path):
    """A gap of the data elsewhere is no reason to write a file anew."""
    whole, _ = every_dtype()
    for content, format in (
        (whole, "safetensors"),
        (made("zstd,chunk_size:2k", "whole", 50, (20, 60)).data, "riegeli"),
        ((TF / "const_chunked/saved_model.cpb").read_bytes(), "cpb"),
        (gzip.decompress((TF / "const_chunked/expected.pb.gz").read_bytes()), "saved-model"),
    ):
        data = GappyData(content + bytes(100), [(len(content) + 10, 50)])
        with pparse.open(data, format=format) as document:
            inner = document.child("inner", data, 0, len(content), format)
            reported: list[RecoveredFile] = []
            with Target(tmp_path / format) as target:
                assert not salvage(inner, target, "m", report=reported.append)
                assert target.entries == 0
            assert not reported


# -- chunked protos ----------------------------------------------------------------------------------------------------

SAVED = "tensorflow.SavedModel"


def message(name: str):
    from pparse.protos import message_class

    return message_class(name)()


def merged(content: bytes, name: str):
    from pparse.proto_splitter import Merger

    found = message(name)
    Merger.read_chunked_from_string(content, found)
    return found


def spread(name: str, change=None) -> bytes:
    """A ``.cpb`` of ``data/tf``, each of whose chunks is in a Riegeli chunk of its own."""
    import io

    from pparse.riegeli import RecordWriter

    records = [record for _, _, record in sound_records((TF / name).read_bytes())]
    metadata = message("tensorflow.proto_splitter.ChunkMetadata")
    metadata.ParseFromString(records.pop())
    places = {}
    before = sound_records((TF / name).read_bytes())
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="brotli,chunk_size:1") as writer:
        for (begin, index, _), record in zip(before, records, strict=False):
            writer.write_record(record)
            places[begin + index] = writer.last_pos.numeric
        for info in metadata.chunks:
            info.offset = places[info.offset]
        if change is not None:
            change(metadata)
        writer.write_record(metadata.SerializeToString())
    return out.getvalue()


CHUNKS = "saved_model.cpb.partial/chunks.riegeli"


@pytest.mark.parametrize("name", ["const_chunked/saved_model.cpb", "nodes_split_cc/saved_model.cpb"])
def test_chunks_that_are_lost(save, name):
    """Each chunk in turn: what is written merges, and lacks what was lost, and nothing is in a wrong place."""
    content = spread(name)
    whole = merged(content, SAVED)
    chunks = [chunk for chunk in chunk_table(content) if chunk.num_records]
    written_pb = 0
    for number, chunk in enumerate(chunks):
        out = save(apply(content, flip(content, chunk.begin + 41, 0x77)), "cpb", "saved_model.cpb")
        merges = 0 < number < len(chunks) - 1
        name = "saved_model.cpb" if merges else CHUNKS
        assert ("saved_model.cpb" in out.files) == ("saved_model.pb" in out.files) == merges
        main = out.by[name]
        assert main.status is Status.DAMAGED
        records = records_of(out.files[name])
        expected = [record for begin, _, record in sound_records(content)[:-1] if begin != chunk.begin]
        assert records[: len(expected)] == expected
        if number == len(chunks) - 1:
            assert "metadata, which say what belongs where, are lost" in main.reason
            continue
        assert f"{len(chunks) - 2:,} of {len(chunks) - 1:,} chunks are whole" in main.reason
        assert [entry["chunk"] for entry in out.rest("saved_model")["lost"] if "chunk" in entry] == [number]
        if not number:
            assert "no .cpb and no .pb: the chunk that all others belong to is lost" in main.reason
            continue
        written_pb += 1
        found = merged(out.files["saved_model.cpb"], SAVED)
        plain = message(SAVED)
        plain.ParseFromString(out.files["saved_model.pb"])
        assert plain == found
        assert found != whole
        assert_within(found, whole)
        assert out.by["saved_model.pb"].status is Status.DAMAGED
        assert all(entry["fields"] for entry in out.rest("saved_model")["lost"] if "chunk" in entry)
    assert written_pb


def sound_records(content: bytes) -> list[tuple[int, int, bytes]]:
    return salvaged(content).records


def assert_within(part, whole, *, cut: bool = False) -> None:
    """Everything that ``part`` says, ``whole`` says too, at the same place; a list is its beginning, if it is ``cut``.

    Else elements of a list may be gone, or empty.
    """
    stack = [(part, whole)]
    while stack:
        mine, other = stack.pop()
        for field, value in mine.ListFields():
            theirs = getattr(other, field.name)
            entry = field.message_type is not None and field.message_type.GetOptions().map_entry
            if entry:
                for key in value:
                    assert key in theirs
                    if hasattr(value[key], "ListFields"):
                        stack.append((value[key], theirs[key]))
            elif hasattr(value, "ListFields"):
                stack.append((value, theirs))
            elif isinstance(value, str | bytes | int | float | bool):
                assert value == theirs
            elif len(value) < len(theirs) and not cut:
                rest = iter(theirs)
                assert all(any(one == two for two in rest) for one in value if one.ByteSize())
            else:
                assert len(value) <= len(theirs)
                for one, two in zip(value, theirs, strict=False):
                    if hasattr(one, "ListFields"):
                        stack.append((one, two))
                    else:
                        assert one == two


def test_a_cut_cpb_has_no_metadata(save):
    content = (TF / "const_chunked/saved_model.cpb").read_bytes()
    out = save(content[: len(content) // 2], "cpb", "saved_model.cpb")
    assert not {"saved_model.pb", "saved_model.cpb"} & set(out.files)
    assert "metadata" in out.by[CHUNKS].reason
    records = records_of(out.files[CHUNKS])
    assert records == [record for _, _, record in sound_records(content)][: len(records)]


def test_a_cpb_that_lost_nothing_that_matters(save):
    """The last padding is cut off: all chunks are there, and the merged message is complete."""
    records = [record for _, _, record in sound_records((TF / "const_chunked/saved_model.cpb").read_bytes())]
    content = (TF / "const_chunked/saved_model.cpb").read_bytes()
    block = 65536
    assert len(content) > block
    damaged = apply(content, flip(content, block + 2, 0xFF))  # a block header inside a chunk
    out = save(damaged, "cpb", "saved_model.cpb")
    whole = message("tensorflow.SavedModel")
    whole.ParseFromString(gzip.decompress((TF / "const_chunked/expected.pb.gz").read_bytes()))
    found = message("tensorflow.SavedModel")
    found.ParseFromString(out.files["saved_model.pb"])
    assert found == whole
    assert out.by["saved_model.pb"].status is Status.COMPLETE
    assert out.by["saved_model.cpb"].status is not Status.COMPLETE
    assert len(records_of(out.files["saved_model.cpb"])) == len(records)


# -- plain messages ----------------------------------------------------------------------------------------------------


def test_every_prefix_of_a_graph(save):
    name = "tensorflow.SavedModel"
    content = gzip.decompress((TF / "nodes_split_cc/expected.pb.gz").read_bytes())
    whole = message(name)
    whole.ParseFromString(content)
    most = 0
    for cut in sweep.some(range(1, len(content), 7), 8, ends=12):
        out = save(content[:cut], "saved-model", "m.pb")
        if not out.ok:
            assert cut < 40
            continue
        found = message(name)
        found.ParseFromString(out.files["m.pb"])
        assert_within(found, whole, cut=True)
        assert out.by["m.pb"].status is Status.TRUNCATED
        assert ("m.pb.rest.json" in out.files) == (cut > 2)
        size = len(out.files["m.pb"])
        assert most <= size <= cut + 10 or size >= cut - 1500
        most = max(most, size)
        # Nothing but the field in which the file ends is lost, with what holds it.
        assert size >= cut - 2000
    assert most > len(content) - 200


def test_a_cut_node_keeps_its_fields(save):
    graph = message("tensorflow.GraphDef")
    for number in range(5):
        node = graph.node.add(name=f"node{number}", op="Const")
        node.attr["value"].tensor.tensor_content = bytes(1000)
    content = graph.SerializeToString(deterministic=True)
    out = save(content[:-500], "graph-def", "g.pb")
    found = message("tensorflow.GraphDef")
    found.ParseFromString(out.files["g.pb"])
    assert [node.name for node in found.node] == [f"node{number}" for number in range(5)]
    assert found.node[:4] == graph.node[:4]
    assert found.node[4].op == "Const"
    assert not found.node[4].attr["value"].tensor.tensor_content
    assert [entry["path"] for entry in out.rest("g.pb")["lost"]] == ["node[4].attr[0].value.tensor.tensor_content"]


def test_damage_inside_a_message(save):
    """A gap, or bytes that are no fields: the smallest field with it goes, the others stay."""
    graph = message("tensorflow.GraphDef")
    for number in range(5):
        node = graph.node.add(name=f"node{number}", op="Const")
        node.attr["value"].tensor.tensor_content = bytes(1000)
    content = graph.SerializeToString(deterministic=True)
    at = content.index(b"node2")
    for source in (GappyData(content, [(at + 200, 30)]), GappyData(content, [(at + 1, 2)])):
        out = save(source, "graph-def", "g.pb")
        found = message("tensorflow.GraphDef")
        found.ParseFromString(out.files["g.pb"])
        assert len(found.node) == 5
        assert [node for at, node in enumerate(found.node) if at != 2] == [
            node for at, node in enumerate(graph.node) if at != 2
        ]
        assert_within(found, graph)
        assert out.by["g.pb"].status is Status.DAMAGED
        assert len(out.rest("g.pb")["lost"]) == 1
    damaged = content[: at + 1] + b"\xff\xfe" + content[at + 3 :]  # text that is none
    out = save(damaged, "graph-def", "g.pb")
    found.ParseFromString(out.files["g.pb"])
    assert [node.name for node in found.node] == ["node0", "node1", "", "node3", "node4"]
    assert [entry["path"] for entry in out.rest("g.pb")["lost"]] == ["node[2].name"]


def test_a_length_that_goes_beyond_its_message(save):
    """What follows is not taken for part of the field, nor kept in a place that it may not have."""
    graph = message("tensorflow.GraphDef")
    for number in range(3):
        node = graph.node.add(name=f"node{number}", op="Add")
        node.attr["T"].type = 1
        node.experimental_debug_info.original_node_names.append("original")
    content = bytearray(graph.SerializeToString(deterministic=True))
    at = content.index(b"\x0a\x01T", content.index(b"node1"))
    assert content[at - 2] == 0x2A
    content[at - 1] = 60
    out = save(bytes(content), "graph-def", "g.pb")
    found = message("tensorflow.GraphDef")
    found.ParseFromString(out.files["g.pb"])
    assert (found.node[0], found.node[2]) == (graph.node[0], graph.node[2])
    assert (found.node[1].name, found.node[1].op) == ("node1", "Add")
    assert not found.node[1].attr
    # What follows up to the exact end of the node can be nothing but a field of it.
    assert found.node[1].experimental_debug_info == graph.node[1].experimental_debug_info
    assert out.by["g.pb"].status is Status.DAMAGED


def test_a_group_that_does_not_end_in_its_message(save):
    """It takes what follows for its own, so that the fault shows late: the fields before are looked at again."""
    graph = message("tensorflow.GraphDef")
    for number in range(3):
        node = graph.node.add(name=f"node{number}", op="Const")
        node.attr["value"].tensor.tensor_shape.dim.add(size=5)
        node.attr["value"].tensor.tensor_content = b"\x01" * 50
    content = bytearray(graph.SerializeToString(deterministic=True))
    at = content.index(b"\x12\x02\x08\x05", content.index(b"node1"))
    content[at + 2 : at + 4] = b"\x1b\x19"  # a group begins, and in it a number of eight bytes
    out = save(bytes(content), "graph-def", "g.pb")
    found = message("tensorflow.GraphDef")
    found.ParseFromString(out.files["g.pb"])
    assert (found.node[0], found.node[2]) == (graph.node[0], graph.node[2])
    assert found.node[1].attr["value"].tensor.tensor_content == b"\x01" * 50
    assert [entry["path"] for entry in out.rest("g.pb")["lost"]] == [
        "node[1].attr[0].value.tensor.tensor_shape.dim[0].3[0]"
    ]


def test_a_group_among_many_fields(save):
    """Whatever a group swallows, only the field that it is in is lost."""
    graph = message("tensorflow.GraphDef")
    for number in range(400):
        graph.node.add(name=f"node{number:03}", op="Add", input=["a", "b"])
    content = bytearray(graph.SerializeToString(deterministic=True))
    for number in range(20, 400, 20):
        at = content.index(b"\x1a\x01a", content.index(f"node{number:03}".encode()))
        content[at] = 0x1B  # the first input becomes a group that never ends
    out = save(bytes(content), "graph-def", "g.pb")
    found = message("tensorflow.GraphDef")
    found.ParseFromString(out.files["g.pb"])
    assert [node.name for node in found.node] == [node.name for node in graph.node]
    assert [node for at, node in enumerate(found.node) if not at or at % 20] == [
        node for at, node in enumerate(graph.node) if not at or at % 20
    ]


def test_damage_at_every_byte(save):
    """Whatever byte is changed, the result parses."""
    graph = message("tensorflow.GraphDef")
    for number in range(3):
        node = graph.node.add(name=f"node{number}", op="Add", input=["a", "b"])
        node.attr["T"].type = 1
    graph.versions.producer = 12
    content = graph.SerializeToString(deterministic=True)
    for at in sweep.some(range(len(content)), 3, ends=8):
        for mask in sweep.values((0xFF, 0x80, 0x07), at):
            damaged = bytearray(content)
            damaged[at] ^= mask
            out = save(bytes(damaged), "graph-def", "g.pb")
            if out.ok:
                message("tensorflow.GraphDef").ParseFromString(out.files["g.pb"])


def test_gaps_at_every_byte(save):
    graph = message("tensorflow.GraphDef")
    for number in range(3):
        node = graph.node.add(name=f"node{number}", op="Add", input=["a", "b"])
        node.attr["T"].type = 1
    graph.versions.producer = 12
    content = graph.SerializeToString(deterministic=True)
    for at in sweep.some(range(len(content)), 3, ends=8):
        for length in (1, 9):
            out = save(GappyData(content, [(at, length)]), "graph-def", "g.pb")
            if out.ok:
                found = message("tensorflow.GraphDef")
                found.ParseFromString(out.files["g.pb"])
                # A lost element of a list is not there: those behind it move up, which a comparison by place forbids.
                assert {node.name for node in found.node} <= {"node0", "node1", "node2", ""}
                assert all(set(node.input) <= {"a", "b"} and node.op in ("Add", "") for node in found.node)


def test_without_a_schema_the_cut_is_at_the_top(save):
    inner = b"\x0a\x05hello\x12\x05world"
    content = b"\x08\x01" + b"\x1a" + bytes([len(inner)]) + inner + b"\x22" + bytes([len(inner)]) + inner
    out = save(content[:-3], "protobuf", "m.binpb")
    assert out.files["m.binpb"] == content[: 4 + len(inner)]
    assert out.rest("m.binpb")["lost"] == [{"path": "4[0]", "offset": 18, "length": 13}]
    assert not save(b"\x1a\x05abc", "protobuf", "m.binpb").ok
    out = save(GappyData(content, [(8, 2)]), "protobuf", "m.binpb")
    assert out.files["m.binpb"] == content[:2] + content[4 + len(inner) :]


def test_a_message_whose_type_is_not_told_is_saved_under_no_name_of_a_model(save):
    content = b"\x08\x01\x1a\x05hello\x22\x05world"
    out = save(content[:-3], "protobuf", "m.pb")
    assert set(out.files) == {"m.pb.partial/fields.binpb", "m.pb.partial/4[0].bin", "m.pb.rest.json"}
    assert out.files["m.pb.partial/fields.binpb"] == content[:9]


# -- all ---------------------------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes(save):
    whole, _ = every_dtype()
    file = made("zstd,chunk_size:2k", "same", 200, (20, 300))
    content = spread("const_chunked/saved_model.cpb")
    hit = [chunk for chunk in chunk_table(content) if chunk.num_records][-3]
    for source, format in (
        (whole[:-100], "safetensors"),
        (file.data[:-100], "riegeli"),
        (apply(content, flip(content, hit.begin + 41, 1)), "cpb"),
        (gzip.decompress((TF / "const_chunked/expected.pb.gz").read_bytes())[:-100], "saved-model"),
    ):
        first, second = save(source, format, "m"), save(source, format, "m")
        assert first.ok
        assert first.files == second.files
        assert [file.to_dict() for file in first.reported] == [file.to_dict() for file in second.reported]
