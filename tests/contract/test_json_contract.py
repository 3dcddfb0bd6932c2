from __future__ import annotations

from pparse.parsers.json.lines import JsonLinesParser
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


class TestJsonLines(SparseContract):
    parser = JsonLinesParser
    samples = {
        "rows": b'{"a": 1, "b": [1, {"c": "x"}]}\n[]\r\n\n{"a": "}{"}\n[[2]]\n',
        "documents": b'{\n "a": 1}\n{"a": [2,\n3]}[{}]',
    }

    listing_share = 2.1  # where a row ends is known only once it was read, and it is shown once it was decoded

    def large(self) -> bytes:
        return b'{"row": [1234567, "%s"]}\n' % (b"text" * 300) * 6_000

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A file may end behind any row."""
        return prefix.rstrip()[-1:] in (b"}", b"]") and name == "rows" and prefix.count(b"{") == prefix.count(b"}")
