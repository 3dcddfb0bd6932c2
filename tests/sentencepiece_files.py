"""SentencePiece models for tests, written with protobuf's own classes."""

from __future__ import annotations

from typing import Any

from pparse.protos import message_class

SPECIAL = (("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<sep>", 4), ("<0x00>", 6))


def tokenizer(words: list[str], *, trainer: bool = True) -> Any:
    """Return a model of the special pieces and ``words``, the score of which is minus their number."""
    found = message_class("sentencepiece.ModelProto")()
    for piece, type in SPECIAL:
        found.pieces.add(piece=piece, score=0, type=type)
    for number, word in enumerate(words):
        found.pieces.add(piece=word, score=-number)
    if trainer:
        found.trainer_spec.model_type, found.trainer_spec.vocab_size = 2, len(found.pieces)
        found.normalizer_spec.name = "nmt_nfkc"
        found.normalizer_spec.precompiled_charsmap = bytes(range(64))
    return found
