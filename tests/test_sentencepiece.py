"""SentencePiece: pieces and scores are those of the library; what `ls`, `info` and `get` say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pparse
from tests.rows import rows
from tests.sentencepiece_files import tokenizer

DATA = Path(__file__).resolve().parent / "data" / "sentencepiece"


@rows("name", ["bpe", "unigram"])
def test_pieces_are_those_of_the_library(name):
    """The .json has what sentencepiece 0.2.3 reads of the .model that it trained: pieces and scores, by their ids."""
    wanted = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    with pparse.open(DATA / f"{name}.model") as document:
        assert document.format == "sentencepiece"
        found = document.get("pieces")
        assert [(one["piece"], one["score"]) for one in found] == [(one[0], one[1]) for one in wanted]
        assert not list(document.check())


def test_the_listing_has_a_row_for_each_piece(run):
    rows = run("ls", DATA / "bpe.model").out.splitlines()
    assert rows[1].startswith("[0] '<unk>' UNKNOWN 0 ")
    assert "298 pieces" in rows[-1]
    assert json.loads(run("get", DATA / "bpe.model", "[4]").out) == {
        "piece": "<sep>",
        "score": 0,
        "type": "USER_DEFINED",
    }
    assert run("get", DATA / "bpe.model", "[298]").code == 2
    piece = json.loads(run("get", DATA / "bpe.model", "[4]").out)
    assert run("get", DATA / "bpe.model", "[4].piece").out == f"{piece['piece']}\n"
    assert run("get", DATA / "bpe.model", "[4]x").code == 2


def test_info_names_what_a_user_asks_for(run):
    said = run("info", DATA / "bpe.model").out
    for words in ("298 pieces", "model type  bpe", "4 <sep>", "unk 0, bos 1, eos 2, pad 3", "identity"):
        assert words in said


def test_a_model_that_is_cut_says_nothing_of_what_is_lost(run, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer(["▁a", "▁b"]).SerializeToString()[:70])
    said = run("info", path)
    assert (said.code, "model type" in said.out, "status      truncated" in said.out) == (4, False, True)
    made = tokenizer(["▁a", "▁b"])
    for lost in ("normalizer_spec", "trainer_spec"):  # cut right before one of them
        made.ClearField(lost)
        path.write_bytes(made.SerializeToString())
        said = run("check", path)
        assert (said.code, f"there is no {lost} behind" in said.out) == (4, True)


def test_a_tokenizer_is_told_by_its_first_piece():
    with pparse.open(tokenizer(["▁a"]).SerializeToString()) as document:
        assert document.format == "sentencepiece"
    with pparse.open(b"\n\x05\n\x03abc\x12\x03xyz" * 9) as document, pytest.raises(pparse.FormatError):
        document.parse()


def test_a_tokenizer_whose_second_piece_is_damaged_is_told_by_its_name(tmp_path):
    raw = tokenizer(["▁a", "▁b", "▁c"]).SerializeToString()
    at = 2 + raw[1]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(raw[:at] + b"\x08" + raw[at + 1 :])
    with pparse.open(path) as document:
        assert document.format == "sentencepiece"


def test_a_piece_is_found_by_its_text(run, tmp_path):
    """Of two, the first; a field of the model comes before."""
    path = tmp_path / "t.spm"
    path.write_bytes(tokenizer(["▁a", "[CLS]", "▁a", "pieces", "[3]"]).SerializeToString())
    with pparse.open(path) as document:
        assert [document.node(text).ordinal for text in ("▁a", "[CLS]", "[9]")] == [5, 6, 9]
        assert document.get("pieces[5].piece") == "▁a"
    assert json.loads(run("get", path, "▁a").out)["piece"] == "▁a"
    assert run("get", path, "pieces").out.startswith("[")
    assert run("get", path, "none").code == 2


@rows(
    "damage, code",
    [
        (lambda raw: raw.replace(b"\n\x0b\n\x04\xe2\x96\x81b", b"\x1a\x0b\n\x04\xe2\x96\x81b"), "stray-field"),
        (lambda raw: raw[: raw.index(b"\xe2\x96\x81c") + 9], "truncated"),
        (lambda raw: raw.replace(b"\x81b", b"\xffb"), "malformed"),
        (
            lambda raw: raw[: (at := raw.rindex(b"\x1a", 0, raw.index(b"\n\x08nmt_")))] + b"\n" + raw[at + 1 :],
            "malformed",
        ),
    ],
)
def test_pieces_are_not_lost_in_silence(run, tmp_path_factory, damage, code):
    """A tag of another field, an end between two pieces, a text that is none: all ways of asking say so."""
    raw = tokenizer(["▁a", "▁b", "▁c"]).SerializeToString()
    path = tmp_path_factory.mktemp("spm") / "t.spm"
    path.write_bytes(damage(raw))
    assert path.read_bytes() != raw
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert (ran.code, code in ran.out + ran.err) == (4, True), command


def test_pieces_behind_one_that_is_lost_have_no_sure_numbers(run, tmp_path):
    """Those before it are what they are; with and without rows."""
    raw = tokenizer(["▁a", "▁b", "▁c"]).SerializeToString()
    path = tmp_path / "t.spm"
    path.write_bytes(raw.replace(b"\n\x0b\n\x04\xe2\x96\x81b", b"\x1a\x0b\n\x04\xe2\x96\x81b"))
    told = ["complete"] * 6 + ["damaged"]
    assert [row["status"] for row in json.loads(run("ls", path, "--json").out)["members"]] == told
    with pparse.open(path) as document:
        assert [str(piece.status) for piece in document.node("pieces").children()] == told
        assert str(document.node("pieces").status) == "damaged"
    with pparse.open(path) as document:  # its bytes are a sound message: only their order says it
        assert {finding.code for finding in document.check()} == {"stray-field"}


def test_a_damaged_first_piece_does_not_hide_the_format(tmp_path):
    """A field that nobody knows, or one that the file ends in, follows it; another first field is another format."""
    raw = tokenizer([f"▁{number}" for number in range(40)]).SerializeToString()
    path = tmp_path / "tokenizer.model"
    for begin in (b"\x4d\0\0\0\0", b"\xfa\x01\xff\x7f"):
        path.write_bytes(raw[:16] + begin + raw[16:])
        with pparse.open(path) as document:
            assert document.parse().parser.name == "sentencepiece"
        path.write_bytes(begin + raw)
        with pytest.raises(pparse.FormatError), pparse.open(path) as document:
            document.parse()
