"""Cases of chunked files, one by one: what TensorFlow's Merger makes of them, and what ours has to."""

from __future__ import annotations

import struct

from pparse.protos import message_class
from tests.interop.tensorflow.chunked import NUMBER, At, Key, Raw, all_class, tree, write

All = all_class()
N = NUMBER


class Special:
    """One file. ``theirs``: ok, error (a status), abort (the process died), no text (cannot be parsed by Python),
    any (no two runs are alike). ``ours``: same, raises, or the message that ours makes of it instead."""

    def __init__(self, name: str, chunks: list, message, theirs: str, ours, start: bytes = b"", **how) -> None:
        self.name = name
        self.theirs = theirs
        self.ours = ours
        self.start = start
        self._file = (chunks, message, how)

    def data(self) -> bytes:
        chunks, message, how = self._file
        return message if isinstance(message, bytes) else write(chunks, message, **how)


def base(*names: str, **values):
    """Return a message with ``many`` elements of these names."""
    return All(many=[All(string=name) for name in names], **values)


def scalar(kind: str, text: bytes, theirs: str, ours) -> Special:
    return Special(f"{kind} {text[:24]!r}", [text], tree(None, ((N[kind],), tree(0))), theirs, ours)


def metadata_of(chunk: bytes, **info) -> bytes:
    """Return a file of one chunk whose metadata say something else of it."""
    data = {"type": 1, "size": len(chunk), "offset": 64} | info
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")(message=tree(0))
    metadata.chunks.add(**data)
    return _records(chunk, metadata.SerializeToString())


def _records(*records: bytes) -> bytes:
    import io

    from pparse.riegeli import RecordWriter

    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        writer.write_records(records)
    return out.getvalue()


X, Y = All(string="x"), All(string="y", int32=5)
ONE = tree(0, ((N["one"],), tree(1)))

ORDER = [
    Special(
        "empty tags by chunk index",
        [All(string="a"), All(string="b"), All(string="c")],
        tree(0, ((), tree(2)), ((), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "parents before children",
        [base("m"), b"child", All(string="parent")],
        tree(0, ((N["one"], N["string"]), tree(1)), ((N["one"],), tree(2))),
        "ok",
        "same",
    ),
    Special(
        "elements by index",
        [All(), X, Y],
        tree(0, ((N["many"], At(1)), tree(1)), ((N["many"], At(0)), tree(2))),
        "ok",
        "same",
    ),
    Special(
        "slices before elements",
        [All(), base("a", "b", "c"), b"changed"],
        tree(0, ((N["many"], At(2), N["string"]), tree(2)), ((), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "bytes twice: no concatenation",
        [b"first", b"second"],
        tree(None, ((N["bytes"],), tree(1)), ((N["bytes"],), tree(0))),
        "ok",
        "same",
    ),
    Special(
        "keys that are equal: by what follows",
        [b"child", All(string="parent")],
        tree(None, ((N["by_string"], Key(s="k"), N["string"]), tree(0)), ((N["by_string"], Key(s="k")), tree(1))),
        "ok",
        All(by_string={"k": All(string="child")}),
    ),
    Special(
        "nested trees",
        [base("a"), X, All(string="deep"), b"7"],
        tree(0, ((N["many"], At(0)), tree(1, ((N["one"],), tree(2, ((N["int64"],), tree(3))))))),
        "ok",
        "same",
    ),
    Special(
        "many fields, unsorted",
        [All(), *[All(string=f"{n}") for n in range(30)]],
        tree(0, *[((N["many"], At(n)), tree(n + 1)) for n in reversed(range(30))]),
        "ok",
        "same",
    ),
]

MERGING = [
    Special(
        "into what is there",
        [All(string="new", many=[X])],
        tree(0),
        "ok",
        "same",
        start=base("old", string="old", int32=3).SerializeToString(),
    ),
    Special(
        "elements are merged into",
        [base("a", "b"), All(int32=1, many=[X])],
        tree(0, ((N["many"], At(1)), tree(1)), ((N["many"], At(1)), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "entries are merged into",
        [All(by_int32={-3: X}), Y],
        tree(0, ((N["by_int32"], Key(i32=-3)), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "maps replace entries",
        [All(by_int32={-3: X}), All(by_int32={-3: All(int32=9)})],
        tree(0, ((), tree(1))),
        "ok",
        "same",
    ),
    # Of a type made of descriptors TensorFlow keeps both, leads the tag to the first, and lets the last count.
    Special(
        "a key of two slices",
        [All(by_int32={7: X}), All(by_int32={7: Y}), All(int64=9)],
        tree(0, ((), tree(1)), ((N["by_int32"], Key(i32=7)), tree(2))),
        "ok",
        All(by_int32={7: All(string="y", int32=5, int64=9)}),
    ),
    Special("one of several", [All(right="r"), X], tree(0, ((N["left"],), tree(1))), "ok", "same"),
    Special("one of several, a scalar", [All(left=X), b"r"], tree(0, ((N["right"],), tree(1))), "ok", "same"),
    Special(
        "an element behind the last",
        [base("a"), X, Y],
        tree(0, ((N["many"], At(1)), tree(1)), ((N["many"], At(2)), tree(2))),
        "ok",
        "same",
    ),
    Special(
        "a scalar of an element behind the last",
        [base("a"), b"x"],
        tree(0, ((N["many"], At(1), N["string"]), tree(1))),
        "ok",
        "same",
    ),
    Special("an element beyond that", [base("a"), X], tree(0, ((N["many"], At(2)), tree(1))), "abort", "raises"),
    Special(
        "new in new in new",
        [b"v"],
        tree(None, ((N["one"], N["by_bool"], Key(boolean=True), N["many"], At(0), N["bytes"]), tree(0))),
        "ok",
        "same",
    ),
    Special("an empty chunk makes its message", [All(), Raw()], ONE, "ok", "same"),
    Special("no chunks, no fields", [], tree(), "ok", "same"),
    Special("keeps what it does not know", [Raw(b"\xfa\x3f\x01x"), Raw(b"\xfa\x3f\x01y")], ONE, "ok", "same"),
    Special(
        "nothing but nested fields", [X, Y], tree(0, ((N["one"],), tree(None, ((N["one"],), tree(1))))), "ok", "same"
    ),
    *[
        Special(f"key of {kind}", [X], tree(None, ((N[f"by_{kind}"], Key(**{key: value})), tree(0))), "ok", "same")
        for kind, key, value in [
            ("string", "s", "é"),
            ("string", "s", ""),
            ("bool", "boolean", False),
            ("uint32", "ui32", 3_000_000_000),
            ("uint64", "ui64", 12),
            ("int32", "i32", -(1 << 31)),
            ("int64", "i64", -5),
        ]
    ],
    Special(
        "int64 key: TensorFlow cuts it to 32 bits",
        [X],
        tree(None, ((N["by_int64"], Key(i64=(1 << 40) + 3)), tree(0))),
        "ok",
        All(by_int64={(1 << 40) + 3: X}),
    ),
    Special(
        "uint64 key: TensorFlow cuts it to 32 bits",
        [X],
        tree(None, ((N["by_uint64"], Key(ui64=(1 << 63) + 3)), tree(0))),
        "ok",
        All(by_uint64={(1 << 63) + 3: X}),
    ),
]

SCALARS = [
    *[
        scalar(kind, text, "ok", "same")
        for kind, texts in {
            "int32": (b"-2147483648", b"0"),
            "int64": (b"9223372036854775807",),
            "uint32": (b"4294967295",),
            "uint64": (b"18446744073709551615",),
            "sint32": (b"-1",),
            "sint64": (b"-9223372036854775808",),
            "fixed32": (b"4294967295",),
            "fixed64": (b"9",),
            "sfixed32": (b"-7",),
            "sfixed64": (b"-7",),
            "float": (b"0.1", b"-inf", b"nan", b"1e-30", b"3.4028234663852886e+38"),
            "double": (b"0.1", b"inf", b"1.7976931348623157e+308"),
            "bool": (b"true", b"false"),
            "string": (b"", "é".encode()),
            "bytes": (b"\0\xff",),
            "enum": (b"NONE", b"GREEN"),
        }.items()
        for text in texts
    ],
    # Guesses of TensorFlow's.
    *[
        scalar(kind, text, "ok", "raises")
        for kind, text in [
            ("int32", b"12xyz"),
            ("int32", b"1.9"),
            ("int32", b"0x1f"),
            ("uint32", b"4294967296"),
            ("uint64", b"-1"),
            ("bool", b"1"),
            ("bool", b"True"),
            ("bool", b""),
            ("bool", b"\x01"),
            ("double", b"1.5 m"),
        ]
    ],
    *[
        scalar(kind, text, "abort", "raises")
        for kind, text in [
            ("int32", struct.pack("<i", 7)),
            ("int64", b"9223372036854775808"),
            ("int32", b""),
            ("float", b""),
            ("double", struct.pack("<d", 0.5)),
            ("double", b"1e999"),
            ("enum", b"1"),
            ("enum", b"BLUE"),
        ]
    ],
    scalar("double", b"5e-324", "abort", All(double=5e-324)),
    scalar("string", b"\xff", "no text", "raises"),
]

WRONG = [
    Special("unknown field", [X, X], tree(0, ((999,), tree(1))), "error", "raises"),
    Special("index first", [X, X], tree(0, ((At(0),), tree(1))), "error", "raises"),
    Special("key first", [X, X], tree(0, ((Key(s="a"),), tree(1))), "error", "raises"),
    Special("two indices", [base("a"), X], tree(0, ((N["many"], At(0), At(0)), tree(1))), "error", "raises"),
    Special("a step that says nothing", [X, X], tree(0, ((None,), tree(1))), "error", "raises"),
    Special(
        "an index for a key",
        [All(by_int32={0: X, 5: Y}), All(int64=9)],
        tree(0, ((N["by_int32"], At(5)), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "a key for an index", [base("a", "b"), All(int64=9)], tree(0, ((N["many"], Key(i32=1)), tree(1))), "ok", "same"
    ),
    Special("list without index", [base("a"), X], tree(0, ((N["many"],), tree(1))), "abort", "raises"),
    Special("map without key", [All(), X], tree(0, ((N["by_string"],), tree(1))), "abort", "raises"),
    Special(
        "scalars without index", [All(many_int32=[1]), b"5"], tree(0, ((N["many_int32"],), tree(1))), "any", "raises"
    ),  # it takes memory that it never wrote for an index
    Special("below a scalar", [All(), b"5"], tree(0, ((N["string"], N["one"]), tree(1))), "error", "raises"),
    Special(
        "an index below a scalar",
        [All(), b"5"],
        tree(0, ((N["string"], N["string"], At(0)), tree(1))),
        "abort",
        "raises",
    ),
    Special("root that does not parse", [Raw(b"\xff\xff")], tree(0), "error", "raises"),
    Special("field that does not parse", [X, Raw(b"\xff\xff")], ONE, "error", "raises"),
    Special("slice that does not parse", [X, Raw(b"\x08\x07\xff")], tree(0, ((), tree(1))), "ok", "raises"),
    Special("chunk that is not there", [X], ONE, "any", "raises"),
    Special("no metadata", [], _records(b"\xff\xff"), "error", "raises"),
    Special("no records", [], _records(), "error", "raises"),
    Special("empty file", [], b"", "error", "raises"),
    Special("garbage", [], b"garbage" * 20, "error", "raises"),
    Special("cut", [], write([base(*"abcdefgh")] * 3, tree(0))[:-20], "error", "raises"),
    Special("damaged chunk", [], write([X, Y], ONE).replace(b"x", b"z"), "error", "raises"),
    Special("empty metadata", [], _records(b""), "ok", "same"),
    Special("version of the splitter", [X], tree(0), "ok", "same", version=(999, 0), bad=[1, 2]),
    Special("join version", [X], tree(0), "ok", "raises", version=(1, 999)),
    Special("bad consumer", [X], tree(0), "ok", "raises", bad=[0, 1]),
    Special("wrong size", [], metadata_of(X.SerializeToString(), size=9), "ok", "raises"),
    Special("huge size", [], metadata_of(X.SerializeToString(), size=1 << 63), "abort", "raises"),
    Special("no type", [], metadata_of(X.SerializeToString(), type=0), "ok", "same"),
    Special("wrong offset", [], metadata_of(X.SerializeToString(), offset=65), "ok", "raises"),
    Special("offset beyond", [], metadata_of(X.SerializeToString(), offset=10_000), "error", "raises"),
]

EXTENSIONS = [
    Special(
        "elements that are scalars",
        [All(many_string=["a", "b"]), b"B", b"c"],
        tree(0, ((N["many_string"], At(1)), tree(1)), ((N["many_string"], At(2)), tree(2))),
        "abort",
        All(many_string=["a", "B", "c"]),
    ),
    *[
        Special(
            f"elements of {kind}",
            [text],
            tree(None, ((N[f"many_{kind}"], At(0)), tree(0))),
            "abort",
            All(**{f"many_{kind}": [value]}),
        )
        for kind, text, value in [
            ("int32", b"-5", -5),
            ("bytes", b"\xff", b"\xff"),
            ("enum", b"RED", 1),
            ("double", b"0.5", 0.5),
        ]
    ],
    *[
        Special(
            f"entries of {kind}",
            [All(), text],
            tree(0, ((N[f"named_{kind}"], Key(s="k")), tree(1))),
            "abort",
            All(**{f"named_{kind}": {"k": value}}),
        )
        for kind, text, value in [
            ("string", b"v", "v"),
            ("int32", b"-5", -5),
            ("bytes", b"\xff", b"\xff"),
            ("double", b"0.5", 0.5),
        ]
    ],
    Special(
        "a scalar element beyond the end",
        [All(), b"x"],
        tree(0, ((N["many_string"], At(1)), tree(1))),
        "abort",
        "raises",
    ),
]

LENIENT = [
    Special("a scalar without a chunk", [b"first", b"second"], tree(None, ((N["string"],), tree())), "ok", "same"),
    Special(
        "a scalar without a chunk comes before others",
        [b"first", b"second"],
        tree(None, ((N["string"],), tree()), ((N["string"],), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "a scalar without a chunk and what is below",
        [b"first", b"second"],
        tree(None, ((N["string"],), tree(None, ((N["string"],), tree(1))))),
        "ok",
        "same",
    ),
    Special(
        "a number without a chunk, deep",
        [b"12", All(string="x")],
        tree(1, ((N["one"], N["many"], At(0), N["int64"]), tree())),
        "ok",
        "same",
    ),
    Special(
        "a scalar of a nested tree without a chunk",
        [b"first", All(string="x")],
        tree(None, ((N["one"],), tree(1, ((N["string"],), tree())))),
        "ok",
        "same",
    ),
    Special("no tag and no chunk", [base("a"), All(int32=5)], tree(1, ((), tree())), "ok", "same"),
    Special(
        "no tag, no chunk, and what is below",
        [base("a"), All(int32=5)],
        tree(1, ((), tree(None, ((N["one"],), tree(1))))),
        "ok",
        "same",
    ),
    Special("a message without a chunk", [base("a"), All(int32=5)], tree(None, ((N["one"],), tree())), "ok", "same"),
    Special("a scalar named twice", [All(), b"v"], tree(0, ((N["string"], N["string"]), tree(1))), "ok", "same"),
    Special(
        "a scalar named four times, deep",
        [All(), b"7"],
        tree(0, ((N["one"], *[N["int32"]] * 4), tree(1))),
        "ok",
        "same",
    ),
    Special(
        "a scalar named twice without a chunk",
        [b"first", b"second"],
        tree(None, ((N["bytes"], N["bytes"]), tree())),
        "ok",
        "same",
    ),
    Special(
        "a scalar named twice and once: the longer tag comes later",
        [All(), b"first", b"second"],
        tree(0, ((N["bytes"], N["bytes"]), tree(1)), ((N["bytes"],), tree(2))),
        "ok",
        "same",
    ),
    Special(
        "a scalar named twice and what is below",
        [All(), b"first", b"second"],
        tree(0, ((N["bytes"], N["bytes"]), tree(1, ((N["bytes"],), tree(2))))),
        "ok",
        "same",
    ),
]

SPECIAL = [*ORDER, *MERGING, *SCALARS, *WRONG, *EXTENSIONS, *LENIENT]
