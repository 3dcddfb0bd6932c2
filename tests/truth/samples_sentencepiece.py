"""Samples: a SentencePiece tokenizer, whose values are the fields of its root."""

from __future__ import annotations

import json

from tests.sentencepiece_files import tokenizer
from tests.truth.known import Sample, Value, sample

RULES = "".join(f"{number:X}\t{number + 32:X}\n" for number in range(65, 91))


@sample
def make_sentencepiece() -> Sample:
    made = tokenizer([f"▁word{number}" for number in range(400)])
    made.normalizer_spec.ClearField("precompiled_charsmap")  # bytes, of which JSON has none
    made.normalizer_spec.normalization_rule_tsv = RULES
    content = made.SerializeToString()
    trainer = content.rindex(made.trainer_spec.SerializeToString()) - 2
    normalizer = content.rindex(made.normalizer_spec.SerializeToString()) - 3
    names = {1: "NORMAL", 2: "UNKNOWN", 3: "CONTROL", 4: "USER_DEFINED", 6: "BYTE"}
    pieces = [
        {"piece": one.piece, "score": one.score} | ({"type": names[one.type]} if one.HasField("type") else {})
        for one in made.pieces
    ]
    told = {"model_type": "BPE", "vocab_size": len(pieces)}
    rules = json.dumps({"name": "nmt_nfkc", "normalization_rule_tsv": RULES}, sort_keys=True).encode()
    values = {
        "pieces": Value(json.dumps(pieces, sort_keys=True).encode(), (0, trainer)),
        "trainer_spec": Value(json.dumps(told, sort_keys=True).encode(), (trainer, normalizer), ((0, trainer),)),
        "normalizer_spec": Value(rules, (normalizer, len(content)), ((0, normalizer),)),
    }
    return Sample("sentencepiece", "tokenizer.model", content, "keys", values, "stream", (14, trainer, normalizer))
