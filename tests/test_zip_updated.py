"""Zip archives that were changed in place: the directory says what they hold, not what was left between its members."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

import pparse
from pparse.data.base import BytesData

NEW = b'{"lr": 2}'
MEMBERS = {"config.json": b'{"lr": 1}', "w.bin": b"x" * 99, "gone.txt": b"deleted", "last.bin": b"y" * 50}


def updated(*, first: bool = True) -> bytes:
    """Return an archive whose ``config.json`` was replaced, and whose ``gone.txt`` was deleted."""
    names = list(MEMBERS) if first else ["w.bin", "config.json", "gone.txt", "last.bin"]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, MEMBERS[name])
    with zipfile.ZipFile(made, "a") as archive:
        for name in ("config.json", "gone.txt"):
            archive.filelist.remove(archive.NameToInfo.pop(name))
        archive.writestr("config.json", NEW)
    return made.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    """Return the content of each member under the name that it is listed by."""
    with pparse.open(BytesData(data)) as document:
        parser = document.parse().parser
        found = {}
        for row in parser.members():
            inside = parser.enter(row.name)
            found[row.name] = inside.data.pread(inside.start, inside.find_end() - inside.start)
        return found


@pytest.mark.parametrize("first", [True, False], ids=["stale-first", "stale-between"])
def test_the_directory_decides_and_the_archive_is_sound(first: bool) -> None:
    data = updated(first=first)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        wanted = {name: archive.read(name) for name in archive.namelist()}
    assert contents(data) == wanted
    with pparse.open(BytesData(data)) as document:
        found = [(each.code, each.offset, each.severity) for each in document.check()]
        assert found == ([("stale", 0, pparse.Severity.NOTE)] if first else [])
        assert document.parse().root.status is pparse.Status.COMPLETE


@pytest.mark.parametrize("first", [True, False], ids=["stale-first", "stale-between"])
def test_nor_is_it_what_a_damaged_header_brings_back(first: bool) -> None:
    data = bytearray(updated(first=first))
    data[data.index(b"w.bin") - 30] ^= 0xFF
    found = contents(bytes(data))
    assert found["config.json"] == NEW
    assert "config.json#2" not in found


def test_a_directory_that_does_not_agree_with_all_headers_hides_no_member() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    data = bytearray(made.getvalue())
    entry = data.index(b"PK\1\2")
    struct.pack_into("<I", data, entry + 42, data.index(b"last.bin") - 30)
    assert contents(bytes(data)) == MEMBERS


def test_of_an_archive_of_arrays_the_new_one_is_read(tmp_path) -> None:
    made = io.BytesIO()
    np.savez(made, w=np.zeros(4, "f4"), b=np.ones(2))
    with zipfile.ZipFile(made, "a") as archive:
        archive.filelist.remove(archive.NameToInfo.pop("w.npy"))
        array = io.BytesIO()
        np.save(array, np.arange(4, dtype="f4"))
        archive.writestr("w.npy", array.getvalue())
    path = tmp_path / "updated.npz"
    path.write_bytes(made.getvalue())
    with pparse.open(path) as document:
        view = document.view()
        assert view["w"].numpy().tolist() == [0, 1, 2, 3]
        assert sorted(view) == ["b", "w"]


def test_the_directory_of_a_zip_in_a_comment_is_not_that_of_the_archive() -> None:
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("shown.txt", b"shown")
    start = len(outer.getvalue())
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("hidden.txt", b"hidden")
    hidden = bytearray(inner.getvalue())  # with offsets that count from the start of the whole
    entry, end = hidden.index(b"PK\1\2"), hidden.index(b"PK\5\6")
    struct.pack_into("<I", hidden, entry + 42, start)
    struct.pack_into("<I", hidden, end + 16, start + entry)
    data = bytearray(outer.getvalue())
    struct.pack_into("<H", data, start - 2, len(hidden))
    assert list(contents(bytes(data + hidden))) == ["shown.txt"]
