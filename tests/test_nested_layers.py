"""Archives and streams within each other, far deeper than anybody needs: a limit says so, and nothing recurses."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib

import cramjam
import pytest

import pparse
from pparse.cli import main
from pparse.containers.archive import documents_below
from pparse.errors import LimitError
from pparse.limits import MAX_NESTING, Limits
from tests import sweep, zstd

# More than Python recurses; of what would take seconds to make, so many that a few calls a layer are too many for it.
DEPTH = 1_100
DEEP = {"bz2": 80, "xz": 300, "gz": 500, "deflated.zip": 350, "mixed": 350, "tgz": 200}
INNERMOST = b'{"a": 1}'


def header_of(size: int) -> bytes:
    member = tarfile.TarInfo("a.tar")
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


def zipped(content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.zip", content)
    return out.getvalue()


def tarred(content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("a.tar")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()[: 512 + -(-len(content) // 512) * 512]  # without the zeros, which would add up


STREAMS = {
    "gz": lambda content: gzip.compress(content, 1),
    "bz2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zz": lambda content: zlib.compress(content, 1),
    "zst": lambda content: zstd.compress(content, 1),
    "lz4": lambda content: bytes(cramjam.lz4.compress(content)),
}
ARCHIVES = {
    "zip": zipped,
    "deflated.zip": lambda content: zipped(content, zipfile.ZIP_DEFLATED),
    "tar": tarred,
    "mixed": None,  # see `nested`
    "tgz": lambda content: gzip.compress(tarred(content), 1),
}


def nested(kind: str, depth: int) -> bytes:
    content = INNERMOST
    if kind == "tar":  # the headers, outer to inner: a tar around a tar is one more of them
        sizes = range(512 * depth, 0, -512)
        return b"".join(header_of(size) for size in sizes) + content.ljust(512, b"\0")
    kinds = ("gz", "zip", "zz", "tar", "gz", "zz", "deflated.zip") if kind == "mixed" else (kind,)
    for number in range(depth):
        content = {**STREAMS, **ARCHIVES}[kinds[number % len(kinds)]](content)
    return content


@pytest.mark.parametrize("kind", sweep.part(STREAMS))
def test_streams_nested_deeper_than_the_limit_are_refused_by_every_command(kind, tmp_path, capsys):
    path = tmp_path / f"deep.{kind}"
    path.write_bytes(nested(kind, DEEP.get(kind, DEPTH)))
    with pytest.raises(LimitError, match="more than 32 archives and streams are nested"):
        pparse.open(path).parse()
    for command in sweep.values(("ls", "info", "tree", "check", "get"), list(STREAMS).index(kind)):
        assert main([command, str(path)]) == 2
        assert "nesting=64" in capsys.readouterr().err
    assert main(["recover", str(path), "-o", str(tmp_path / "out"), "-q"]) == 2
    assert "nesting=64" in capsys.readouterr().err


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_nested_as_deep_as_the_limit_are_read(kind):
    limits = Limits(nesting=MAX_NESTING)
    with pparse.open(nested(kind, MAX_NESTING), limits=limits) as document:
        assert document.parse().root["a"].load() == 1
    with (
        pparse.open(nested(kind, MAX_NESTING + 1), limits=limits) as document,
        pytest.raises(LimitError, match="layer by layer"),
    ):
        document.parse()


@pytest.mark.parametrize("kind", sweep.part(ARCHIVES))
def test_archives_nested_deeper_than_the_limit_are_not_looked_into(kind, tmp_path, capsys):
    path = tmp_path / f"deep.{kind}"
    path.write_bytes(nested(kind, DEEP.get(kind, DEPTH)))
    for limits in (Limits(), Limits(nesting=MAX_NESTING)):
        with pparse.open(path, limits=limits) as document:
            layers = [extraction.layers for _, extraction in documents_below(document.parse())]
            assert max(layers) <= limits.nesting
            assert max(layers) >= limits.nesting - 3
            assert len(layers) >= (limits.nesting // 4 if kind == "mixed" else limits.nesting // 2 - 1)
            assert [finding.code for finding in document.findings if finding.code == "limit"] == ["limit"]
    assert main(["check", "-R", str(path)]) == 2
    assert main(["ls", "-R", str(path)]) == 4
    assert main(["recover", str(path), "-o", str(tmp_path / "out"), "-q"]) == 4
    capsys.readouterr()


def test_the_limit_has_a_limit():
    with pytest.raises(ValueError, match="at most 64"):
        Limits(nesting=MAX_NESTING + 1)
