"""Files in parts, opened as one: which names are those of parts, what a missing one leaves, and the sets of zip -s."""

from __future__ import annotations

import io
import struct
import tarfile
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse.findings import Status
from pparse.limits import KIB
from tests.conftest import ROOT
from tests.rows import rows
from tests.zip_samples import Archive, Made, noise

if TYPE_CHECKING:
    from pathlib import Path

MODEL = (ROOT / "docs/samples/tiny-gpt.safetensors").read_bytes()
CUTS = (8_000, 16_000)


def tar_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def pieces(content: bytes, *cuts: int) -> list[bytes]:
    return [content[low:high] for low, high in zip((0, *cuts), (*cuts, len(content)), strict=True)]


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """Write ``files``; return the first."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / next(iter(files))


def content_of(extraction: pparse.Extraction) -> bytes:
    return extraction.reader.read()


THIRDS = pieces(MODEL, *CUTS)
ONE_AND_ONE = {"x.tar.0": tar_of(a=b"1" * 600), "x.tar.1": tar_of(b=b"2" * 600)}


@rows(
    "names, contents, whole",
    [
        (["m.safetensors.part-aa", "m.safetensors.part-ab", "m.safetensors.part-ac"], THIRDS, "m.safetensors"),
        (["m.bin.partaa", "m.bin.partab", "m.bin.partac"], THIRDS, "m.bin"),
        (["my m.st.part1", "my m.st.part2", "my m.st.part3"], THIRDS, "my m.st"),
        (["m.safetensors.0", "m.safetensors.1", "m.safetensors.2"], THIRDS, "m.safetensors"),
        (["m.safetensors_aa", "m.safetensors_ab", "m.safetensors_ac"], THIRDS, "m.safetensors"),
        (["m.unknown.001", "m.unknown.002", "m.unknown.003"], THIRDS, "m.unknown"),
        (["m.part1", "m.part2", "m.part3"], pieces(MODEL, 5_000, 13_000), "m"),  # of any sizes
        # No parts: what no name of a known format tells, parts of several sizes, files of one kind, what is not first.
        (["m.unknown.0", "m.unknown.1", "m.unknown.2"], THIRDS, ""),
        (["m.safetensors.0", "m.safetensors.1", "m.safetensors.2"], pieces(MODEL, 5_000, 13_000), ""),
        (["m.safetensors", "m.safetensors.1", "m.safetensors.2"], [MODEL] * 3, ""),
        (["m.safetensors.1", "m.safetensors.2"], [MODEL] * 2, ""),
        (list(ONE_AND_ONE), list(ONE_AND_ONE.values()), ""),
        (["m.safetensors.1", "m.safetensors.0", "m.safetensors.2"], THIRDS, ""),
        (["m.z01", "m.zip"], [b"PK\7\x08?", Archive(Made("a", b"x")).whole], ""),  # which says that it is the only part
    ],
)
def test_the_first_of_the_parts_of_a_file_stands_for_all_of_them(tmp_path_factory, names, contents, whole):
    first = lay(tmp_path_factory.mktemp("set"), dict(zip(names, contents, strict=True)))
    with pparse.open(first) as document:
        assert document.name == str(first.parent / whole if whole else first)
        assert content_of(document) == (MODEL if whole else contents[0])
        assert len(document.file_parts) == (3 if whole else 0)


def test_a_part_that_begins_in_a_member_of_a_tar_is_no_file_of_its_own(tmp_path):
    whole = tar_of(a=noise(3_000, 1), b=noise(3_000, 2), c=noise(3_000, 3))
    parts = pieces(whole, *range(4_096, len(whole), 4_096))  # the second has a header, but not at its beginning
    first = lay(tmp_path, {f"x.tar.{number}": part for number, part in enumerate(parts)})
    with pparse.open(first) as document:
        assert content_of(document) == whole


def test_a_folder_is_no_part(tmp_path):
    first = lay(tmp_path, {"m.part1": MODEL})
    (tmp_path / "m.part2").mkdir()
    with pparse.open(first) as document:
        assert (document.name, content_of(document)) == (str(first), MODEL)


def test_a_missing_part_is_named_and_the_others_are_read(tmp_path):
    even = dict(zip(("m.safetensors.partaa", "m.safetensors.partac"), (THIRDS[0], THIRDS[2]), strict=True))
    with pparse.open(lay(tmp_path / "even", even)) as document:
        assert [(gap.offset, gap.length) for gap in document.data.gaps] == [(8_000, 8_000)]
        assert document.data.pread(16_000, 9_999) == THIRDS[2]
        assert "part .partab is missing; the first one has 8,000 bytes" in document.result.findings[0].reason
    vain = dict(
        zip(("m.safetensors.0", "m.safetensors.1", "m.safetensors.2"), (THIRDS[0], b"", THIRDS[2]), strict=True)
    )
    with pparse.open(lay(tmp_path / "vain", vain)) as document:  # an empty one does not end the set
        assert [(gap.offset, gap.length) for gap in document.data.gaps] == [(8_000, 8_000)]
    with (
        pparse.open(lay(tmp_path / "later", {"m.st.002": THIRDS[1]})) as document,
        pytest.raises(pparse.FormatError, match=r"the first one \(m\.st\.001\) is not beside it"),
    ):
        document.parse()
    parts = pieces(MODEL, 5_000, 13_000, 20_000)
    uneven = {f"m.safetensors.part{number}": parts[number] for number in (0, 1, 3)}
    with pparse.open(lay(tmp_path / "uneven", uneven)) as document:
        assert content_of(document) == MODEL[:13_000]  # nobody knows where the rest stands
        assert "what is behind it is not read: parts differ in size" in document.result.findings[0].reason
    with pparse.view(tmp_path / "uneven" / "m.safetensors.part0") as viewer:
        assert {Status.COMPLETE, Status.MISSING} <= {tensor.status for tensor in viewer.tensors()}


# -- zip -s ----------------------------------------------------------------------------------------------------------

MEMBERS = {f"data/{number}.bin": noise(30_000 + number, number) for number in range(6)}
EACH = 50 * KIB
STARTS = (0, EACH, 2 * EACH + 9, 3 * EACH - 20)  # of the parts, which end where a record would not fit


def zip_set() -> bytes:
    """What ``zip -s 50k`` writes, its parts joined."""
    archive = Archive(*(Made(name, content, method=8) for name, content in MEMBERS.items()), prefix=b"PK\7\x08")
    body, entries = archive.body, b""
    for member in archive.members:
        entry = bytearray(member.central())
        part = bisect_right(STARTS, member.at) - 1
        struct.pack_into("<H", entry, 34, part)
        struct.pack_into("<I", entry, 42, member.at - STARTS[part])
        entries += entry
    last = len(STARTS) - 1
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", last, last, 6, 6, len(entries), len(body) - STARTS[-1], 0)
    return body + entries + end


def set_files(joined: bytes) -> dict[str, bytes]:
    """The parts of a set by name, the last one first."""
    parts = pieces(joined, *STARTS[1:])
    return {"set.zip": parts[-1], **{f"set.z{number:02}": part for number, part in enumerate(parts[:-1], 1)}}


def check_all(document: pparse.Extraction) -> None:
    assert {name: document.get(name) for name in MEMBERS} == MEMBERS
    assert [visit.status for visit in document.parse().parser.check()] == [Status.COMPLETE] * (len(MEMBERS) + 1)
    assert not list(document.result.findings)


def test_a_split_zip_is_read_by_its_first_and_its_last_part_and_joined(tmp_path):
    joined = zip_set()
    files = set_files(joined)
    assert len(files) == 4
    lay(tmp_path, {**files, "joined.zip": joined})
    lay(tmp_path / "upper", {name.upper(): content for name, content in files.items()})
    lay(tmp_path / "mixed", {name.replace("z0", "Z0"): content for name, content in files.items()})
    for name in (
        "set.zip",
        "set.z01",
        "joined.zip",
        "upper/SET.ZIP",
        "upper/SET.Z01",
        "mixed/set.zip",
        "mixed/set.Z01",
    ):
        with pparse.open(tmp_path / name) as document:
            with ThreadPoolExecutor(4) as pool:
                assert set(pool.map(document.get, ["data/5.bin"] * 4)) == {MEMBERS["data/5.bin"]}
            check_all(document)
    with (
        pparse.open(tmp_path / "set.z02") as document,
        pytest.raises(pparse.FormatError, match=r"set\.z01, lies beside"),
    ):
        document.parse()
    with pparse.open(tar_of(inner=joined)) as document:  # in another archive
        check_all(document.parse().parser.enter("inner"))
    lay(tmp_path / "cut", {**files, "set.zip": files["set.zip"][:100]})  # without what counts the parts
    with pparse.open(tmp_path / "cut" / "set.zip") as document:
        assert document.get("data/1.bin") == MEMBERS["data/1.bin"]
    with pparse.open(joined[:3_000]) as document:  # cut in the first member, and known by its first bytes
        assert document.format == "zip"


@rows(
    "missing, whole, words",
    [
        ("set.z01", {2, 3, 4, 5}, "part set.z01 is missing; the first one has 51,209 bytes"),
        ("set.z02", {0, 4, 5}, "part set.z02 is missing"),
        ("set.z03", {0, 1, 2}, "part set.z03 is missing"),  # the last part counts it
        ("set.zip", {0, 1, 2, 3, 4}, "part set.zip is missing"),
    ],
)
def test_a_split_zip_without_one_of_its_parts_gives_the_members_in_the_others(tmp_path_factory, missing, whole, words):
    files = set_files(zip_set())
    del files[missing]
    folder = tmp_path_factory.mktemp("set")
    lay(folder, files)
    with pparse.open(folder / "set.zip") as document:
        parser = document.parse().parser
        good = {member.name for member in parser.files() if parser.verify(member).verified}
        assert good >= {f"data/{number}.bin" for number in whole}
        assert any(words in found.reason for found in document.result.findings)
        reasons = [member.note.finding.reason for member in parser.members() if member.status is not Status.COMPLETE]
        assert all("compressed data are damaged" not in reason for reason in reasons)
        told = [str(parser.verify(member).reason) for member in parser.files()]
        assert not any("local header is damaged" in reason for reason in told)


@rows("where", ["a header where a part begins", "the number of a part", "an offset"])
def test_damage_of_what_leads_to_a_part_leaves_all_other_members(tmp_path_factory, where):
    joined = bytearray(zip_set())
    archive = Archive(*(Made(name, content, method=8) for name, content in MEMBERS.items()), prefix=b"PK\7\x08")
    first = next(member.at for member in archive.members if member.at >= EACH)
    second = next(member.name for member in archive.members if member.at == first).encode()
    place = {"a header": first + 2, "the number": joined.index(b"PK\1\2") + 35, "an offset": joined.rindex(second) - 1}
    joined[next(at for name, at in place.items() if where.startswith(name))] ^= 0x40
    folder = tmp_path_factory.mktemp("set")
    lay(folder, {**set_files(bytes(joined)), "joined.zip": bytes(joined)})
    for name in ("set.zip", "joined.zip"):
        with pparse.open(folder / name) as document:
            parser = document.parse().parser
            assert sum(parser.verify(member).verified is True for member in parser.files()) >= len(MEMBERS) - 1
