"""Samples: a SentencePiece tokenizer, whose values are the fields of its root."""

from __future__ import annotations

import json

from tests.sentencepiece_files import tokenizer
from tests.truth.known import Sample, Value, sample


@sample
def make_sentencepiece() -> Sample:
    made = tokenizer([f"▁word{number}" for number in range(400)])
    content = made.SerializeToString()
    trainer = content.rindex(made.trainer_spec.SerializeToString()) - 2
    normalizer = content.rindex(made.normalizer_spec.SerializeToString()) - 2
    names = {1: "NORMAL", 2: "UNKNOWN", 3: "CONTROL", 4: "USER_DEFINED", 6: "BYTE"}
    pieces = [
        {"piece": one.piece, "score": one.score} | ({"type": names[one.type]} if one.HasField("type") else {})
        for one in made.pieces
    ]
    told = {"model_type": "BPE", "vocab_size": len(pieces)}
    charsmap = made.normalizer_spec.precompiled_charsmap
    rules = json.dumps({"name": "nmt_nfkc", "precompiled_charsmap": charsmap}, sort_keys=True, default=repr).encode()
    values = {
        "pieces": Value(json.dumps(pieces, sort_keys=True).encode(), (0, trainer)),
        "trainer_spec": Value(json.dumps(told, sort_keys=True).encode(), (trainer, normalizer), ((0, trainer),)),
        "normalizer_spec": Value(rules, (normalizer, len(content)), ((0, normalizer),)),
    }
    return Sample("sentencepiece", "tokenizer.model", content, "keys", values, "stream", (14, trainer, normalizer))
