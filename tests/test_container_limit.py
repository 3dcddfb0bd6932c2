"""The limit ``containers``: how many of them one walk enters, however they are nested."""

from __future__ import annotations

import io
import tarfile

import pytest

import pparse
from pparse.containers.archive import documents_below
from pparse.limits import Limits
from pparse.recovery.recover import extract, recover


def tar(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


LEAF = tar(text=b"words")
# Three containers below the outermost one: side by side, and one in another.
SAMPLES = {
    "side by side": tar(a_tar=LEAF, b_tar=LEAF, c_tar=LEAF),
    "one in another": tar(a_tar=tar(b_tar=tar(c_tar=LEAF))),
    "both": tar(a_tar=tar(b_tar=LEAF), c_tar=LEAF),
}


def opened(name: str, **limits: int) -> pparse.Extraction:
    return pparse.open(SAMPLES[name], limits=Limits(**limits))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_listing_looks_into_as_many_containers_as_the_limit_says(name):
    with opened(name, containers=3) as document:
        found = [path for path, _ in documents_below(document.parse())]
        assert len(found) == 3
    with opened(name, containers=2) as document:
        assert [path for path, _ in documents_below(document.parse())] == found
        (told,) = [finding for finding in document.findings if finding.code == "limit"]
        assert told.path == found[-1]
        assert "limit containers=2; lift it with limits=Limits(containers=8" in told.reason
    with opened(name, containers=1) as document:
        assert len([finding for finding in document.findings if finding.code == "limit"]) == 0
        listed = [path for path, _ in documents_below(document.parse())]
        assert listed == [path for path in found if path.count("::") < 2]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("write", [recover, lambda document, folder: extract(document, folder, recursive=True)])
def test_as_many_containers_are_written_as_the_limit_says(write, name, tmp_path):
    with opened(name, containers=4) as document:  # the outermost one counts here
        assert write(document, tmp_path / "whole").is_whole
        count = len(list((tmp_path / "whole").rglob("text")))
        assert count == SAMPLES[name].count(b"words")
    with opened(name, containers=3) as document:
        outcome = write(document, tmp_path / "less")
        assert not outcome.is_whole
        (reason,) = {finding.reason for finding in document.findings if finding.code == "limit"}
    assert "limit containers=3; lift it with limits=Limits(containers=" in reason
    # What is one container too many is written as it is.
    assert len(list((tmp_path / "less").rglob("text"))) == count - 1


@pytest.mark.parametrize("nesting", [1, 2, 3, 4, 5])
def test_containers_are_entered_as_deep_as_the_limit_says(nesting, tmp_path):
    """The outermost one counts; what is below is listed, or written as it is, and a finding tells of it."""
    deep = ["::".join(("a.tar", "b.tar", "c.tar")[:depth]) for depth in (1, 2, 3)]
    with opened("one in another", nesting=nesting) as document:
        assert [path for path, _ in documents_below(document.parse())] == deep[:nesting]
        told = [finding.path for finding in document.findings if finding.code == "limit"]
        assert told == ([deep[nesting - 1]] if nesting < 4 else [])
    with opened("one in another", nesting=nesting) as document:
        recover(document, tmp_path)
        (text,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "RECOVERY.json"]
        assert text.name == ("a.tar", "b.tar", "c.tar", "text", "text")[nesting - 1]
        assert sum(finding.code == "limit" for finding in document.findings) == (nesting < 4)
