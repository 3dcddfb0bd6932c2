from __future__ import annotations

from google.protobuf.message import DecodeError

from pparse.parsers.sentencepiece import SentencepieceParser
from pparse.protos import message_class
from tests.sentencepiece_files import tokenizer
from tests.sparse_contract import SparseContract


class TestSentencepiece(SparseContract):
    parser = SentencepieceParser
    changes = (0x00, 0x0A, 0x80)
    samples = {"small": tokenizer(["▁a", "▁größe", "x"]).SerializeToString()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A message may end behind any field."""
        try:
            message_class("sentencepiece.ModelProto").FromString(prefix)
        except DecodeError:
            return False
        return True

    def large(self) -> bytes:
        made = tokenizer(["a"])
        made.normalizer_spec.precompiled_charsmap = bytes(9 << 20)
        return made.SerializeToString()
