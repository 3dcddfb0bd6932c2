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


def test_info_names_what_a_user_asks_for(run):
    said = run("info", DATA / "bpe.model").out
    for words in ("298 pieces", "model type  bpe", "4 <sep>", "unk 0, bos 1, eos 2, pad 3", "identity"):
        assert words in said


def test_a_model_that_is_cut_says_nothing_of_what_is_lost(run, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer(["▁a", "▁b"]).SerializeToString()[:70])
    said = run("info", path)
    assert (said.code, "model type" in said.out, "status      truncated" in said.out) == (4, False, True)


def test_a_tokenizer_is_told_by_its_first_piece():
    with pparse.open(tokenizer(["▁a"]).SerializeToString()) as document:
        assert document.format == "sentencepiece"
    with pparse.open(b"\n\x05\n\x03abc\x12\x03xyz" * 9) as document, pytest.raises(pparse.FormatError):
        document.parse()
