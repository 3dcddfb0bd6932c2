from __future__ import annotations

from pparse.parsers.json.parser import JsonParser
from tests.sparse_contract import SparseContract


class TestJson(SparseContract):
    parser = JsonParser
    samples = {
        "members": b'{"a": 1, "b": [1, 2.5, {"c": "x\\u00e9\\n"}], "": null, "long": "' + b"y" * 300 + b'", "t": true}',
        "rows": b'[ [], {}, "", -0, [[[[[[[[1]]]]]]]], {"k": {"k": {"k": false}}}, "\\"\\\\", 1e3 ]\n',
        "text": '{"日本": "\\ud83d\\ude00 😀", "dots.and[brackets]": ["#2"]}'.encode(),
    }

    listing_share = 1.1  # where a value ends is known only once it was read

    def large(self) -> bytes:
        return b'{"rows": [' + b"1234567, " * 1_000_000 + b'0], "text": "' + b"x" * (1 << 20) + b'"}'

    def nested(self, depth: int) -> bytes:
        return b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)


class TestJsonWithNumpy(TestJson):
    options = {"kernel": "numpy"}
