"""`pparse.recover`, `pparse.extract` and `pparse.index`: as the commands, and nothing is printed."""

from __future__ import annotations

import gzip
import io
import os
import random
import zipfile

import pytest

import pparse
from pparse.errors import FormatError, LimitError, OptionError, UnsupportedError
from pparse.findings import Status


@pytest.fixture
def archive() -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as out:
        for name in ("a.txt", "b/1.txt", "b/2.txt"):
            out.writestr(name, name * 100)
    return found.getvalue()


def test_extract_writes_members_and_returns_them(archive, tmp_path, capsys):
    told = []
    found = pparse.extract(archive, tmp_path / "some", ["b", "none*", "x"], tell=told.append)
    assert [(file.path, file.status, file.verified) for file in found.files] == [
        ("b/1.txt", Status.COMPLETE, True),
        ("b/2.txt", Status.COMPLETE, True),
    ]
    assert (found.unmatched, found.is_whole, told) == (["none*", "x"], True, found.files)
    assert repr(found) == f"<Outcome in {tmp_path / 'some'}: {found.summary}>"
    with pparse.open(archive) as document:
        assert len(pparse.extract(document, tmp_path / "all", max_output="1MiB").files) == 3
        assert not document.session.closed
    assert (tmp_path / "all" / "b" / "2.txt").read_text() == "b/2.txt" * 100
    with pytest.raises(UnsupportedError, match=r"safetensors is not an archive; pparse\.view reads"):
        pparse.extract("docs/samples/tiny-gpt.safetensors", tmp_path / "none")
    with pytest.raises(LimitError):
        pparse.extract(archive, tmp_path / "few", limits=pparse.Limits(extracted_entries=1))
    assert capsys.readouterr() == ("", "")


def test_a_keyword_that_is_unknown_is_refused_by_the_function_that_was_called(archive, tmp_path):
    for function in (pparse.extract, pparse.recover, pparse.convert):
        words = rf'^{function.__name__}\(\) got an unexpected keyword argument \'encoding\'.*options={{"encoding"'
        with pytest.raises(TypeError, match=words):
            function(archive, tmp_path / "out.npz", encoding="cp932")


def test_recover_saves_what_is_there_and_says_what_is_not(tmp_path, capsys):
    found = pparse.recover("docs/samples/tiny-gpt.cut.safetensors", tmp_path / "a")
    first = found.files[0]
    assert (first.path, first.status) == ("tiny-gpt.cut.safetensors", Status.TRUNCATED)
    assert not found.is_whole
    with pparse.view("docs/samples/tiny-gpt.safetensors") as model:
        assert pparse.recover(model, tmp_path / "b").is_whole
        assert model["wte.weight"].shape == (64, 16)
    with pytest.raises(FormatError):
        pparse.recover(b"nothing of a known format", tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_index_is_found_by_whoever_opens_the_file(tmp_path, capsys):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(random.Random(1).randbytes(300_000)))
    found = pparse.index(path, spacing="64KiB")
    assert (found.path, found.size, found.points > 2, found.error) == (f"{path}.pindex", 300_000, True, None)
    assert "points, 300,000 bytes of content>" in repr(found)
    (tmp_path / "other").write_bytes(b"mine")
    with pytest.raises(OptionError, match=r"not an index; name another output, or replace it with force=True"):
        pparse.index(path, tmp_path / "other")
    assert pparse.index(path, tmp_path / "other", force=True).size == 300_000
    with pytest.raises(ValueError, match="nearer"):
        pparse.index(path, spacing=1)
    with pytest.raises(FormatError):
        pparse.index(tmp_path / "other")
    assert capsys.readouterr() == ("", "")
