"""The command line: ``pparse check``."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

import pparse
from tests.conftest import safetensors
from tests.pytorch_files import REPACKED, checkpoint, repacked
from tests.rows import rows


def u8(count):
    return ("U8", [count], bytes(number % 251 for number in range(count)))


@pytest.fixture
def path(model):
    return model({"a": u8(1000), "b": u8(50)}, metadata={"format": "pt"})


@pytest.fixture
def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


WRONG = "0123456789abcdef" * 4


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_whole_file(run, path):
    ran = run("check", path)
    assert (ran.code, ran.out, ran.err) == (0, f"{path}: ok: 2 tensors; no checksum covers them\n", "")
    words = "ok, by the rules of safetensors: 2 tensors; no checksum covers them"
    assert run("check", path, "--strict").out == f"{path}: {words}\n"
    ran = run("check", path, "-q")
    assert (ran.code, ran.out) == (0, "")
    found = run("check", path, "--json").json
    assert (found["ok"], found["strict"], found["status"], found["findings"]) == (True, False, "complete", [])
    assert run("check", path, "--jsonl").out == ""


def _raw(tmp_path, text, data=b""):
    path = tmp_path / "it.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


A = b'"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'
B = b'"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}'


@pytest.mark.parametrize(
    ("text", "data", "code"),
    [
        (b"{" + A + b"," + B.replace(b"[2,4]", b"[3,5]") + b"}", b"12345", "gap"),
        (b"{" + A + b"," + B.replace(b"[2,4]", b"[1,3]") + b"}", b"123", "overlap"),
        (b"{" + A + b"," + A + b"}", b"12", "duplicate-name"),
        (b'{"__metadata__":{"x":1},' + A + b"}", b"12", "metadata"),
        (b"\xef\xbb\xbf{" + A + b"}", b"12", "byte-order-mark"),
    ],
)
def test_strict_is_the_reference(text, data, code, run, tmp_path):
    path = _raw(tmp_path, text, data)
    plain, strict = run("check", path, "--json"), run("check", path, "--json", "--strict")
    assert plain.code == strict.code == 4  # what the reference refuses is whole for nobody
    assert [row["severity"] for row in plain.json["findings"] if row["code"] == code] == ["error"]
    assert [row["severity"] for row in strict.json["findings"] if row["code"] == code] == ["error"]
    assert "not whole (" in run("check", path, "--strict").out


@rows("how", REPACKED)
def test_strict_says_why_torch_refuses_a_checkpoint(how, run, tmp_path):
    path = tmp_path / "it.pt"
    path.write_bytes(repacked(checkpoint({"a": ("float32", [4])}, {"a": bytes(16)}), how))
    assert run("check", path).code == 0
    ran = run("check", path, "--strict")
    reason = REPACKED[how][1]
    if reason:
        assert (ran.code, "torch refuses this, because" in ran.out, reason in ran.out) == (4, True, True), ran.out
        assert f"{path}: whole, but torch refuses it (" in ran.out
    else:
        assert ran.code == 0
        assert f"{path}: ok, by the rules of torch: 1 tensor; " in ran.out


def test_strict_claims_no_rules_where_none_are_known(run, tmp_path):
    path = tmp_path / "it.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"x")
    assert run("check", path, "--strict").out.endswith(f"{path}: ok: 1 file; a checksum agrees for it (1 note)\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{" + A.replace(b"U8", b"X9") + b"}", "bad-entry"),
        (b"{" + A.replace(b"[2]", b"[3]") + b"}", "bad-entry"),
        (b"{" + A.replace(b"[0,2]", b"[0,9]") + b"}", "bad-entry"),
        (b'{"a":3}', "bad-entry"),
        (b"[]", "malformed"),
        (b"{" + A + b",}", "malformed"),
        (b"{" + A + b"} more", "trailing-data"),
    ],
)
def test_damage_is_an_error_always(text, code, run, tmp_path):
    path = _raw(tmp_path, text, b"12")
    for more in ((), ("--strict",)):
        ran = run("check", path, *more)
        assert ran.code == 4
        assert f"{code} " in ran.out or f"{code}:" in ran.out
        assert "not whole" in ran.out
        found = run("check", path, "--json", *more).json
        assert any(row["code"] == code and row["severity"] == "error" for row in found["findings"])
        assert found["ok"] is False


def test_bytes_behind_the_last_tensor_are_an_error_as_the_library_refuses_them(run, tmp_path):
    path = _raw(tmp_path, b"{" + A + b"}", b"123")
    for more in ((), ("--strict",)):
        ran = run("check", path, "--json", *more)
        assert ran.code == 4
        assert [row["severity"] for row in ran.json["findings"] if row["code"] == "trailing-bytes"] == ["error"]


def test_findings_have_their_place(run, tmp_path):
    path = _raw(tmp_path, b"{" + A + b"," + B.replace(b"[2,4]", b"[3,5]") + b"}", b"12345")
    data = path.stat().st_size - 5
    assert (
        f"error   {path}: gap @0x{data + 2:x}+1: bytes between two tensors belong to no tensor"
        in run("check", path).out
    )
    row = run("check", path, "--json").json["findings"][0]
    assert (row["offset"], row["length"], row["source"]) == (data + 2, 1, str(path))


def test_check_of_a_document_says_whether_it_is_whole(run, tmp_path):
    path = tmp_path / "it.json"
    path.write_text('{"a": [1, 2], "a": {}}')
    assert run("check", path).code == 0
    assert "duplicate-key" in run("check", path).out
    path.write_text('{"a": [1, 2')
    ran = run("check", path)
    assert ran.code == 4
    assert "truncated: the document ends at byte 11" in ran.out
    path.write_text('{"a": 01}')
    assert run("check", path, "-q").code == 4


# -- digests -----------------------------------------------------------------------------------------------------------


def test_no_digest_to_compare_with(run, path):
    for words in (("--sha256", path), (path, "--sha256")):
        ran = run("check", *words)
        assert (ran.code, ran.err) == (2, "")  # what was asked for could not be done
        assert "warning" in ran.out
        assert "not compared, for want of a digest" in ran.out
        assert "no digest was found: no cache blob name, SHA256SUMS line, .sha256 file or LFS pointer" in ran.out


def _notes(name, digest, size):
    """Return by kind what stands beside a file and names its digest: the name of that file, and its text."""
    return {
        "sums": ("SHA256SUMS", f"{WRONG}  other.bin\n{digest}  {name}\n"),
        "binary sums": ("sha256sums.txt", f"{digest} *./{name}\n"),
        "bsd sums": ("checksums.txt", f"SHA256 (x) = {WRONG}\nSHA256 ({name}) = {digest}\n"),
        "beside": (f"{name}.sha256", f"{digest}\n"),
        "beside with name": (f"{name}.sha256", f"{digest}  {name}\n"),
        "pointer": (
            f"{name}.pointer",
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n",
        ),
        "file given": ("list", f"{digest}  {name}\n"),
        "bare file given": ("list", digest),
        "download note": (
            f".cache/huggingface/download/{name}.metadata",
            f"{'0' * 40}\n{digest}\n1700000000.0\n",
        ),
    }


def _sources(kind, path, digest):
    folder = path.parent
    beside, text = _notes(path.name, digest, path.stat().st_size).get(kind, (None, ""))
    if beside is not None:
        (folder / beside).parent.mkdir(parents=True, exist_ok=True)
        (folder / beside).write_text(text)
    if kind == "cache":
        blob = folder / "blobs" / digest
        blob.parent.mkdir()
        path.rename(blob)
        path.symlink_to(os.path.join("blobs", digest))
    return {
        "given": [path, f"--sha256={digest}"],
        "given apart": ["--sha256", digest, path],
        "given after": [path, "--sha256", digest.upper()],
        "file given": [path, f"--sha256={folder / 'list'}"],
        "bare file given": [path, f"--sha256={folder / 'list'}"],
    }.get(kind, ["--sha256", path])


SOURCES = [
    "given",
    "given apart",
    "given after",
    "cache",
    "download note",
    "sums",
    "binary sums",
    "bsd sums",
    "beside",
    "beside with name",
    "pointer",
    "file given",
    "bare file given",
]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_digest_that_agrees_is_noted_wherever_it_came_from(kind, run, path, digest):
    words = _sources(kind, path, digest)
    ran = run("check", *words)
    assert (ran.code, ran.err) == (0, "")
    assert "note    " in ran.out
    assert f"the SHA-256 is that of {'the command line' if kind.startswith('given') else ''}" in ran.out
    assert digest in ran.out


@pytest.mark.parametrize("kind", SOURCES)
def test_a_digest_that_differs_is_an_error_with_both_numbers(kind, run, path, digest):
    words = _sources(kind, path, WRONG)
    ran = run("check", *words)
    assert (ran.code, ran.err) == (4, "")
    assert "digest @0x0" in ran.out
    assert f"(wanted {WRONG}, got {digest})" in ran.out
    row = run("check", *words, "--json").json["findings"][-1]
    assert (row["code"], row["severity"], row["wanted"], row["got"]) == ("digest", "error", WRONG, digest)


def test_a_pointer_with_another_size_needs_no_digest(run, path, digest):
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 17\n"
    path.with_name(f"{path.name}.pointer").write_text(text)
    ran = run("check", path, "--sha256", "--trace-io")
    assert ran.code == 4
    assert f"the size differs from that of the LFS pointer {path.name}.pointer (wanted 17, got " in ran.out


def test_a_piece_of_a_file_has_no_digest(run, path, digest):
    ran = run("check", f"{path}::header", f"--sha256={digest}")
    assert ran.code == 2
    assert "header: no-digest: there is no file to hash" in ran.out


def test_a_digest_that_some_shards_lack_leaves_the_comparison_undone(run, shards):
    (shards.parent / "SHA256SUMS").unlink(missing_ok=True)
    assert run("check", "--sha256", shards).code == 2
    first = shards.parent / "m-1.safetensors"
    value = hashlib.sha256(first.read_bytes()).hexdigest()
    (shards.parent / "SHA256SUMS").write_text(f"{value}  {first.name}\n")
    assert run("check", "--sha256", shards).code == 2
    assert run("check", "--sha256", shards.parent).code == 2


def test_a_digest_that_says_nothing_of_the_file(run, path, tmp_path):
    other = tmp_path / "list"
    other.write_text(f"{WRONG}  other.bin\n")
    ran = run("check", path, f"--sha256={other}")
    assert (ran.code, ran.err) == (4, "")
    assert f"{other} has no digest for this file" in ran.out
    ran = run("check", path, "--sha256=nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert "nowhere: neither 64 hex digits nor a file that can be read" in ran.err


@pytest.fixture
def shards(model, tmp_path):
    names = ["m-1.safetensors", "m-2.safetensors"]
    for number, name in enumerate(names):
        model({f"t{number}": u8(100 + number)}, name=f"set/{name}")
    index = tmp_path / "set" / "m.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 201}, "weight_map": {"t0": names[0], "t1": names[1]}}))
    return index


def test_digests_of_every_shard(run, shards):
    folder = shards.parent
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("m-*.safetensors")}
    (folder / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    for source in (shards, folder):
        ran = run("check", "--sha256", source)
        assert ran.code == 0
        assert ran.out.count("the SHA-256 is that of its line in SHA256SUMS") == 2
    (folder / "SHA256SUMS").write_text(f"{sums['m-1.safetensors']}  m-1.safetensors\n{WRONG}  m-2.safetensors\n")
    ran = run("check", "--sha256", shards)
    assert ran.code == 4
    assert f"(wanted {WRONG}, got {sums['m-2.safetensors']})" in ran.out
    ran = run("check", shards, f"--sha256={WRONG}")
    assert (ran.code, ran.out) == (2, "")
    assert "one digest cannot match several shards" in ran.err
    (folder / "list").write_text(f"{sums['m-1.safetensors']}  m-1.safetensors\n")
    ran = run("check", shards, f"--sha256={folder / 'list'}")
    assert ran.code == 4
    assert f"m-2.safetensors: no-digest: {folder / 'list'} has no digest for this file" in ran.out


def test_a_limit_met_in_one_document_of_an_archive_ends_the_check_of_that_one(run, tmp_path):
    header = {"tensor": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}
    small = safetensors(header, b"abcd")
    large = safetensors({**header, "__metadata__": {"note": "x" * 2_000}}, b"abcd")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.safetensors", large)
        archive.writestr("b.safetensors", small[:-1])
    ran = run("check", "-R", tmp_path / "a.zip", "--limit", "header_bytes=1000")
    assert ran.code == 4
    assert any("a.safetensors: limit" in line and "--limit header_bytes=" in line for line in ran.lines)
    assert any("b.safetensors: truncated" in line for line in ran.lines)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.safetensors", large)
        archive.writestr("b.safetensors", small)
    ran = run("check", "-R", tmp_path / "b.zip", "--limit", "header_bytes=1000")
    assert ran.code == 2
    assert ran.lines[-1].endswith("not all of it could be looked at (1 error)")


def test_findings_of_a_document_in_an_archive_in_an_archive_are_told_once(run, tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("x.json", "{]")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("e.zip", inner.getvalue())
    lines = run("check", "-R", tmp_path / "a.zip").lines
    assert any("e.zip::x.json: malformed" in line for line in lines)
    assert len(lines) == len(set(lines))


def test_why_torch_refuses_is_told_as_often_as_it_is_asked(tmp_path):
    path = tmp_path / "it.pt"
    path.write_bytes(repacked(checkpoint({"a": ("float32", [4])}, {"a": bytes(16)}), "a file beside"))
    with pparse.view(path) as model:
        told = [[str(finding) for finding in model.check(strict=strict)] for strict in (True, True, False, True)]
    assert told[0] == told[1] == told[3] != told[2] == []


def test_damage_in_a_storage_names_the_tensor_that_it_hits(run, samples, tmp_path):
    content = bytearray(Path(samples, "tiny-gpt.pt").read_bytes())
    with pparse.view(bytes(content)) as model:
        span = model["model.h.0.ln_1.weight"].spans[0]
    content[span.offset] ^= 1
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    ran = run("check", path)
    assert ran.code == 4
    assert ran.out.startswith(f"error   {path}: checksum model.h.0.ln_1.weight (tiny-gpt/data/0) @")
    finding, note = run("check", path, "--json").json["findings"]
    assert finding["path"] == "tiny-gpt/data/0"
    assert (note["code"], note["path"]) == ("unknown-code", "tiny-gpt/data.pkl")
    path.write_bytes(content[:300] + bytes(300) + content[600:])  # the pickle that has the names is lost, too
    assert "tiny-gpt/data/0" in run("check", path).out
