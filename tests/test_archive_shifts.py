"""Archives in which bytes came in, or went: what stands elsewhere is found, and belongs to the right member."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import pparse
from pparse.cli import main
from pparse.findings import Status
from tests.rows import rows
from tests.test_tar import archive, contents, files, info, opened
from tests.zip_samples import STAMP


def noise(count: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(count)


# -- tar -------------------------------------------------------------------------------------------------------------


# Whole blocks behind whole blocks are not told from a member whose header is lost.
@rows(
    ("size", "count"),
    [
        *((size, count) for size in (3_000, 3_071, 3_073) for count in (1, 7, 100, 512, 600, 4_096)),
        *((3_072, count) for count in (1, 7, 100, 600)),
    ],
)
@rows("at", [0, 1_500, 3_000])
def test_a_member_into_which_bytes_came_goes_on_to_the_end_of_its_own(at, count, size) -> None:
    inside = noise(size).replace(b"\0", b"x")
    whole = archive([("a", inside), ("b", b"next" * 300)])
    came = noise(count, 2).replace(b"\0", b"y")
    found = contents(whole[: 512 + at] + came + whole[512 + at :])
    assert [name for name, *_ in found] == ["a", "b"]
    assert found[0][2] != "complete"
    assert found[0][3] == inside[:at] + came + inside[at:]
    assert found[1][2:] == ("complete", b"next" * 300)


def test_what_is_behind_a_destroyed_header_does_not_belong_to_the_member_before_it() -> None:
    whole = archive([("a", noise(3_000)), ("b", b"next" * 300), ("c", b"last")])
    header = whole.index(b"b\0\0")
    found = contents(whole[: header + 150] + b"!" + whole[header + 150 :])  # in its checksum
    assert found[0] == ("a", "file", "complete", noise(3_000))
    assert [name for name, kind, *_ in found if kind != "gap"] == ["a", "c"]


@pytest.mark.parametrize("count", [1, 7, 512, 1_024, 4_096])
def test_an_empty_last_member_is_found_behind_a_member_that_lost_bytes(count) -> None:
    whole = archive([("a", b"x"), ("b", noise(20_000).replace(b"\0", b"x")), ("empty", b"")])
    at = 512 * 3 + 10_000
    found = files(whole[:at] + whole[at + count :])
    assert [member.name for member in found] == ["a", "b", "empty"]
    assert found[1].status is Status.DAMAGED


def test_the_last_member_of_an_archive_in_an_archive_is_not_one_of_the_outer_one() -> None:
    inner = archive([("first", b"x" * 700), ("empty", b"")])
    for content in (inner, inner[:-9_000] + bytes(9_000), archive([("empty", b"")])):
        found = files(archive([("a", b"x"), ("in.tar", content)]))
        assert [(member.name, member.status) for member in found] == [
            ("a", Status.COMPLETE),
            ("in.tar", Status.COMPLETE),
        ]


def test_a_header_is_not_read_one_byte_before_it_begins() -> None:
    whole = archive([("a", noise(3_000)), ("b", b"next" * 300), ("c", b"last")], "ustar")
    at = whole.index(b"b\0\0") + 147  # a zero before the checksum: shifted by one, all sums up again
    assert whole[at] == 0
    found = contents(whole[:at] + whole[at + 1 :])
    assert found[0] == ("a", "file", "complete", noise(3_000))
    assert [name for name, kind, *_ in found if kind != "gap"] == ["a", "c"]


def test_a_last_member_without_its_padding_is_not_complete() -> None:
    whole = archive([("a", b"x"), (info("b"), noise(3_000).replace(b"\0", b"x"))])
    cut = whole[: 512 * 3 + 1_000] + noise(600, 3) + whole[512 * 3 + 1_000 :]
    with opened(cut) as extraction:
        assert [member.status for member in extraction.result.parser.files()][1] is Status.DAMAGED


def wrong_tensors(path: str, right: dict[str, np.ndarray]) -> tuple[set[str], set[str]]:
    """Return the names of the tensors that are called whole, and of those of them that are not."""
    with pparse.view(path) as model:
        whole = {name for name, tensor in model.items() if tensor.status is Status.COMPLETE}
        return whole, {name for name in whole if model[name].numpy().tobytes() != right[name].tobytes()}


@pytest.mark.parametrize(
    ("after", "lost", "came"),
    [
        ([], 0, 512),
        ([], 0, 600),
        *(([("next", b"next" * 300)], *change) for change in ((512, 0), (1_000, 0), (7, 0), (0, 512), (0, 600))),
    ],
)
def test_no_tensor_of_a_member_whose_bytes_have_shifted_is_called_whole(tmp_path, after, lost, came) -> None:
    right = {f"t{number}": np.frombuffer(noise(800, number), "u1") for number in range(6)}
    whole = archive([("m.safetensors", save(right)), *after])
    (tmp_path / "it.tar").write_bytes(whole[:2_500] + b"x" * came + whole[2_500 + lost :])
    assert wrong_tensors(f"{tmp_path}/it.tar::m.safetensors", right) == (set(), set())


def test_a_wrong_size_in_a_damaged_header_casts_no_doubt_on_the_tensors(tmp_path) -> None:
    right = {f"t{number}": np.frombuffer(noise(800, number), "u1") for number in range(6)}
    whole = bytearray(archive([("m.safetensors", save(right)), ("next", b"next" * 300)]))
    whole[124 + 4] ^= 1
    (tmp_path / "it.tar").write_bytes(whole)
    assert wrong_tensors(f"{tmp_path}/it.tar::m.safetensors", right) == (set(right), set())


def test_commands_say_that_nodes_of_a_member_whose_bytes_have_shifted_are_in_doubt(tmp_path, capsys) -> None:
    message = b"".join(bytes([8 * number + 2, 100]) + bytes([64 + number]) * 100 for number in (1, 2, 2, 3))
    whole = archive([("m.binpb", message), ("next", b"next" * 300)])
    path = tmp_path / "it.tar"
    path.write_bytes(whole[:700] + b"x" * 100 + whole[700:])
    assert main(["ls", "--json", f"{path}::m.binpb"]) == 4
    listed = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in listed["members"]][:3] == ["damaged"] * 3
    for key in ("1", "2"):
        assert main(["get", "--raw", "-o", str(tmp_path / "out"), f"{path}::m.binpb", f"[{key}]"]) == 4


def test_get_gives_an_array_whose_checksum_agrees_though_its_archive_has_shifted(tmp_path, capsys) -> None:
    saved = io.BytesIO()
    np.savez(saved, first=np.arange(40), second=np.arange(400) * 0.5, third=np.arange(40) * 2)
    whole = archive([("m.npz", saved.getvalue()), ("next", b"next" * 300)])
    path = tmp_path / "it.tar"
    path.write_bytes(whole[:2_400] + b"x" * 100 + whole[2_400:])
    assert main(["get", f"{path}::m.npz", "first"]) == 0
    assert "complete, verified" in capsys.readouterr().out
    assert main(["get", f"{path}::m.npz", "second"]) == 4


def test_no_tensor_behind_a_break_of_the_stream_is_called_whole_at_the_wrong_place(tmp_path) -> None:
    sample = Path(__file__).parent.parent / "docs" / "samples" / "tiny-flax.msgpack"
    with pparse.view(sample) as model:
        right = {name: tensor.numpy() for name, tensor in model.items()}
    whole = gzip.compress(archive([(tarfile.TarInfo("a.msgpack"), sample.read_bytes())], "pax"), mtime=0)
    for at in range(300, len(whole) - 8):
        path = tmp_path / f"{at}.tar.gz"
        path.write_bytes(whole[:at] + bytes(4) + whole[at + 4 :])
        assert not wrong_tensors(f"{path}::a.msgpack", right)[1]


# -- zip -------------------------------------------------------------------------------------------------------------


def zipped(method: int, contents: list[bytes]) -> tuple[bytes, list[int]]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for number, content in enumerate(contents):
            entry = zipfile.ZipInfo(f"f{number}.bin", STAMP)
            entry.compress_type = method
            made.writestr(entry, content)
        places = [entry.header_offset for entry in made.infolist()]
    return file.getvalue(), places


@pytest.mark.parametrize("count", [16, 512, 4_096])
def test_a_member_is_found_behind_a_stream_that_should_end_behind_the_file(run, tmp_path, count) -> None:
    # Noise is stored within its stream: that goes on over what follows, and the file ends in it.
    content, places = zipped(zipfile.ZIP_DEFLATED, [b"text " * 90, noise(20_000), b""])
    at = places[2] - count - 700
    path = tmp_path / "it.zip"
    path.write_bytes(content[:at] + content[at + count :])
    listed = {row["name"]: row["status"] for row in run("ls", path, "--jsonl").jsonl}
    assert listed == {"f0.bin": "complete", "f1.bin": "damaged", "f2.bin": "complete"}


def test_members_are_not_swallowed_by_the_extra_field_of_a_torn_header(run, tmp_path) -> None:
    # Letters are read as the lengths of name, extra field and the first field in that, which reaches over the headers.
    content, places = zipped(zipfile.ZIP_STORED, [b"one" * 500, b"z" + b"a" * 29_999, b"three" * 500, noise(40_000)])
    at = places[1] + 18
    path = tmp_path / "it.zip"
    path.write_bytes(content[:at] + content[at + 7 :])
    listed = {row["name"]: row["status"] for row in run("ls", path, "--jsonl").jsonl}
    others = ("f0.bin", "f2.bin", "f3.bin")
    assert {name: listed.get(name) for name in others} == dict.fromkeys(others, "complete")
