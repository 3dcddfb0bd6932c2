"""What loading a pickle would run: graded by names and arguments, told by `check`, `info` and `scan` alike."""

from __future__ import annotations

import bz2
import datetime
import functools
import gzip
import io
import json
import lzma
import pickle
import sys
import tarfile
import zipfile
from collections import OrderedDict
from typing import Any

import cramjam
import numpy as np

import pparse
from pparse.protos import message_class
from tests.rows import rows

CALL = b"(S'echo'\ntR"
GETATTR = b"cbuiltins\ngetattr\n("
GETITEM = b"coperator\ngetitem\n("
IMPORT = b"cbuiltins\n__import__\n(S'os'\ntR"


def framed(body: bytes, size: int) -> bytes:
    return b"\x80\x04\x95" + size.to_bytes(8, "little") + body


def text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


class Made:
    """Something that is pickled as a call."""

    def __init__(self, *how: Any) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return self.how


def graded(content: bytes, format: str | None = "pickle") -> dict[str, str]:
    """Return the grade of each name."""
    with pparse.open(content, format=format) as document:
        return {use.name: use.grade.value for use in document.parse().listing.globals()}


@rows(
    "content, name, grade",
    [
        # Calls, however they are written.
        (b"cos\nsystem\n" + CALL + b".", "os.system", "dangerous"),
        (b"(S'echo'\nios\nsystem\n.", "os.system", "dangerous"),
        (b"(cos\nsystem\nS'echo'\no.", "os.system", "dangerous"),
        (b"\x80\x02cos\nsystem\nS'echo'\n\x85\x81.", "os.system", "dangerous"),
        (b"\x80\x04" + text("os") + text("system") + b"\x93" + text("echo") + b"\x85R.", "os.system", "dangerous"),
        # Broken behind the call, which has been made by then; without STOP; of a value that is dropped.
        (b"cos\nsystem\n" + CALL + b"\xff", "os.system", "dangerous"),
        (b"cos\nsystem\n" + CALL, "os.system", "dangerous"),
        (b"cos\nsystem\n" + CALL + b"0N.", "os.system", "dangerous"),
        # The name is put on the stack in another order, or comes from the memo, which is written again.
        (b"\x80\x04" + text("os") + b"\x940" + text("system") + b"\x940h\x00h\x01\x93.", "os.system", "dangerous"),
        (b"S'os'\np0\n0S'json'\np1\n0g0\np1\n0\x80\x04g1\nS'system'\n\x93" + CALL + b".", "os.system", "dangerous"),
        # Names of Python 2; names that lead through another module; a name that is put together by a call.
        (b"ccommands\ngetoutput\n" + CALL + b".", "commands.getoutput", "dangerous"),
        (b"c__builtin__\nreduce\n.", "__builtin__.reduce", "dangerous"),
        (b"\x80\x04ctorch.nn.functional\nos.system\n" + CALL + b".", "torch.nn.functional.os.system", "dangerous"),
        (b"\x80\x04" + text("os") + b"coperator\nadd\n(S'sys'\nS'tem'\ntR\x93.", "os.?", "dangerous"),
        # What leads to something else is followed as far as it is constant.
        (GETATTR + IMPORT + b"S'system'\ntR(S'echo'\ntR.", "os.system", "dangerous"),
        (GETATTR + b"cshop\nColor\nS'RED'\ntR.", "builtins.getattr", "unknown"),
        (GETATTR + b"cdatetime\ntimezone\nS'utc'\ntR.", "builtins.getattr", "harmless"),
        (GETATTR + b"cshop\nColor\nS'__init__'\ntR.", "builtins.getattr", "dangerous"),
        (b"cfunctools\npartial\n(cos\nsystem\ntR(S'echo'\ntR.", "os.system", "dangerous"),
        (b"coperator\nmethodcaller\n(S'system'\nS'echo'\ntR(" + IMPORT + b"tR.", "os.system", "dangerous"),
        (b"cbuiltins\ngetattr\n.", "builtins.getattr", "unknown"),
        (b"coperator\nattrgetter\n(S'x'\nS'__globals__'\ntR.", "operator.attrgetter", "dangerous"),
        (b"coperator\nattrgetter\n(S'x'\nS'y'\ntR.", "operator.attrgetter", "unknown"),
        (GETITEM + b"(dS'a'\ntR.", "operator.getitem", "harmless"),
        (GETITEM + b"cshop\nColor\nS'RED'\ntR.", "operator.getitem", "unknown"),
        (GETITEM + b"cshop\nColor\nS'__init__'\ntR.", "operator.getitem", "dangerous"),
        (b"coperator\ngetitem\ncoperator\nadd\n)RR.", "operator.getitem", "unknown"),
        # A bytearray that is made read-only.
        (b"\x80\x05cos\nsystem\n\x96\x01" + bytes(7) + b"a\x98\x85R.", "os.system", "dangerous"),
        # A class that is changed.
        (b"cdatetime\ndate\n}S'x'\nNsb.", "datetime.date", "dangerous"),
        # A pickle in bytes, in two depths.
        (pickle.dumps(Made(pickle.loads, (pickle.dumps(Made(print, ("x",))),))), "builtins.print", "unknown"),
        (pickle.dumps([datetime.date(2024, 1, 2), OrderedDict(a=1)]), "datetime.date", "harmless"),
        (pickle.dumps([datetime.date(2024, 1, 2), OrderedDict(a=1)]), "collections.OrderedDict", "weights-only"),
        (pickle.dumps(functools.partial(int, base=2)), "functools.partial", "harmless"),
        (pickle.dumps(Made(datetime.date.fromisoformat, ("2024-01-02",)), 4), "builtins.getattr", "harmless"),
        (b"cshop\nCart\n)R.", "shop.Cart", "unknown"),
    ],
)
def test_a_name_is_graded_by_what_is_called_with_it(content: bytes, name: str, grade: str) -> None:
    assert graded(content)[name] == grade


def test_other_readers_of_frames_run_other_opcodes() -> None:
    """From a file, C's unpickler drops the rest of a frame where it needs more at once; from bytes, it goes on."""
    content = framed(b"cposix\n" + b"sys", 10) + b"tem\n" + CALL + b"."
    assert graded(content) == {"posix.tem": "dangerous", "posix.system": "dangerous"}
    with pparse.open(content, format="pickle") as document:
        assert any(finding.code == "frame" for finding in document.check())


def test_one_that_is_dangerous_does_not_hide_behind_many(run, tmp_path) -> None:
    path = tmp_path / "many.pkl"
    harmless = b"".join(b"cshop\nThing%d\n0" % number for number in range(100))
    path.write_bytes(b"\x80\x02" + harmless + b"cposix\nsystem\n" + CALL + b"0" + harmless + b"N.")
    info = run("info", path).out.splitlines()
    lines = [line for line in info if line.startswith("global")]
    assert lines[0].endswith("101 different, named 201 times: 1 dangerous, 100 unknown")
    assert "dangerous: posix.system, once" in lines[1]
    assert "posix.system('echo')" in lines[1]
    found = run("info", path, "--json").json["globals"]
    assert len(found) == 101
    at = path.read_bytes().index(b"tR0") + 1
    assert found[0]["calls"] == [{"offset": at, "call": "posix.system('echo')", "opcode": "REDUCE"}]


def test_check_info_and_scan_agree_wherever_the_pickle_lies(run, tmp_path) -> None:
    """In a file, an array of objects, a checkpoint, an archive in an archive: exit code 5, and the same call."""
    bad = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00echo\x85R."
    (tmp_path / "bad.pkl").write_bytes(bad)
    (tmp_path / "no-name").write_bytes(bad[2:])
    np.save(tmp_path / "bad.npy", np.array([Made(exec, ("1",))], object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        archive.writestr("a/data.pkl", bad)
        archive.writestr("a/version", "3\n")
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        archive.writestr("hidden.txt", bad)
    with tarfile.open(tmp_path / "outer.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "inner.zip", "inner.zip")
    wanted = dict.fromkeys(("bad.pkl", "no-name", "bad.pt", "inner.zip", "outer.tar.gz"), "posix.system('echo')")
    wanted["bad.npy"] = "builtins.exec('1')"
    found = run("scan", tmp_path, "--json")
    assert found.code == 5
    told = {row["file"].rpartition("/")[2]: row["code"][0]["calls"][0]["call"] for row in found.json["files"]}
    assert told == wanted
    assert found.json["files"][-1]["code"][0]["pickle"] == "inner.zip::hidden.txt"
    for name, call in wanted.items():
        assert run("scan", tmp_path / name, "-q").code == 5
        if name in ("bad.pkl", "bad.npy", "bad.pt"):
            checked = run("check", tmp_path / name)
            assert (checked.code, call in checked.out, "dangerous to load" in checked.out) == (5, True, True)
            assert f"dangerous: {call.partition('(')[0]}" in run("info", tmp_path / name).out
    results = json.loads(run("scan", tmp_path, "--sarif").out)["runs"][0]["results"]
    assert {result["level"] for result in results} == {"error"}
    assert len(results) == len(wanted)


def test_names_can_be_allowed(run, tmp_path) -> None:
    (tmp_path / "cart.pkl").write_bytes(b"cshop.cart\nCart\n)R.")
    (tmp_path / "names").write_text("other.Name\nshop.*\n")
    told = run("scan", tmp_path / "cart.pkl")
    assert (told.code, told.out.splitlines()[-1]) == (0, "1 file: 1 unknown")
    told = run("scan", tmp_path / "cart.pkl", "--allow", tmp_path / "names")
    assert (told.code, told.out) == (0, "1 file: 1 harmless\n")


def test_text_is_no_pickle(run, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("cat\nfood\n(nothing that anybody calls)\n")
    told = run("scan", tmp_path)
    assert (told.code, told.out) == (0, "1 file: 1 of other formats\n")
    assert run("scan", tmp_path / "notes.txt").code == 3


def test_following_is_bounded() -> None:
    """Too much on the stack or in the memo ends it with a reason, and what came before is told."""
    content = b"cos\nsystem\n" + CALL + b"0" + b"N" * (1 << 20) + b"N."
    with pparse.open(content, format="pickle") as document:
        uses = {use.name: use for use in document.parse().listing.globals()}
    assert uses["os.system"].grade.value == "dangerous"
    assert "more values are on the stack" in uses["?"].reason


def test_nothing_is_imported() -> None:
    before = set(sys.modules)
    assert graded(b"cthis\ns\n0cantigravity\nfly\n)R.")["this.s"] == "dangerous"
    assert not {"this", "antigravity"} & (set(sys.modules) - before)


def test_operators_and_keras_configurations_are_scanned(run, tmp_path) -> None:
    """What runs or reaches out when a graph is run, in functions too; what Keras imports and builds."""
    graph = message_class("tensorflow.GraphDef")()
    graph.node.add(name="x", op="Placeholder")
    function = graph.library.function.add()
    function.signature.name = "f"
    function.node_def.add(name="write", op="WriteFile")
    (tmp_path / "a.pb").write_bytes(graph.SerializeToString())
    model = message_class("onnx.ModelProto")(ir_version=8)
    model.opset_import.add(version=17)
    model.graph.node.add(op_type="Add", input=["x", "y"], output=["z"])
    model.graph.node.add(op_type="Own", domain="shop.ops", input=["z"], output=["q"])
    (tmp_path / "b.onnx").write_bytes(model.SerializeToString())
    function = {"class_name": "__lambda__", "config": {"code": "4w=="}}
    layers = [
        {"module": "keras.layers", "class_name": "Dense", "config": {}},
        {"module": "keras.layers", "class_name": "Activation", "config": {"activation": function}},
        {"module": "os", "class_name": "function", "config": "system"},
        {"module": "shop", "class_name": "Mine", "config": {}},
    ]
    config = {"module": "keras", "class_name": "Sequential", "config": {"layers": layers}}
    with zipfile.ZipFile(tmp_path / "c.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    found = run("scan", tmp_path, "--json")
    grades = {
        row["file"].rpartition("/")[2]: {use["name"]: use["grade"] for use in row["code"]}
        for row in found.json["files"]
    }
    quiet = dict.fromkeys(("keras.Sequential", "keras.layers.Dense", "keras.layers.Activation"), "harmless")
    assert grades == {
        "a.pb": {"WriteFile": "dangerous"},
        "b.onnx": {"shop.ops.Own": "unknown"},
        "c.keras": {"keras.Lambda": "dangerous", "os.system": "dangerous", "shop.Mine": "unknown", **quiet},
    }


def test_what_is_lost_is_not_called_harmless(run, tmp_path) -> None:
    """A cut or damaged archive may have had what is looked for: exit code 4, and the reason, by scan and by Python."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, raw in (("notes.txt", b"abc" * 9000), ("late.pkl", b"cos\nsystem\n" + CALL + b".")):
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    whole = content.getvalue()
    damaged = bytearray(whole)
    damaged[len(whole) // 4] ^= 0x55
    for name, raw in (("cut.tar.gz", whole[: len(whole) // 3]), ("damaged.tar.gz", bytes(damaged))):
        (tmp_path / name).write_bytes(raw)
        told = run("scan", tmp_path / name)
        assert told.code == 4
        assert "not all of it can be looked into: " in told.out
        assert [use.name for use in pparse.scan(tmp_path / name)][:1] == ["?"]
    (tmp_path / "whole.tar.gz").write_bytes(whole)
    assert run("scan", tmp_path / "whole.tar.gz", "-q").code == 5


def test_scan_looks_into_compressed_files_of_no_known_format(monkeypatch, tmp_path) -> None:
    """A pickle of protocol 0 and a template, each as a file and in an archive; text is neither."""
    code = IMPORT + b"(S'true'\ntR."
    template = b"{{ ''.__class__.__mro__[1].__subclasses__() }}"
    for name, content, wanted in (("a.bin", code, "builtins.__import__"), ("a.jinja", template, "jinja2.Template")):
        for codec, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
            path = tmp_path / f"{name}.{codec}"
            path.write_bytes(pack(content))
            with tarfile.open(tmp_path / "it.tar", "w") as archive:
                archive.add(path, path.name)
            assert [use.name for use in pparse.scan(path)][:1] == [wanted]
            assert [(use.name, use.pickle) for use in pparse.scan(tmp_path / "it.tar")][:1] == [(wanted, path.name)]
    assert pparse.scan(gzip.compress(b"nothing that anybody calls\n" * 9)) == []
    packed = bytes(cramjam.lz4.compress(code))
    monkeypatch.setitem(sys.modules, "cramjam", None)
    (use,) = pparse.scan(packed)
    assert (use.name, use.grade.name, "cramjam" in use.reason) == ("?", "UNKNOWN", True)


def test_scan_tells_of_a_member_that_cannot_be_read(run, tmp_path) -> None:
    """Encrypted, of an unknown method, or without the properties that LZMA needs: who knows what it runs."""
    whole = {method: io.BytesIO() for method in (zipfile.ZIP_STORED, zipfile.ZIP_LZMA)}
    for method, out in whole.items():
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("a.pkl", IMPORT + b".")
            archive.writestr("b.txt", "text")
    stored, lzma = (bytearray(out.getvalue()) for out in whole.values())
    encrypted, unknown = stored[:], stored[:]
    central = stored.index(b"PK\1\2")
    encrypted[6], encrypted[central + 8] = 1, 1
    unknown[8], unknown[central + 10] = 97, 97
    lzma[37] = lzma[39] = 255
    for content, why in ((encrypted, "encrypted"), (unknown, "wavpack"), (lzma, "properties")):
        (tmp_path / "it.zip").write_bytes(content)
        (use,) = pparse.scan(tmp_path / "it.zip")
        assert (use.name, use.grade.name, use.pickle) == ("?", "UNKNOWN", "a.pkl")
        assert why in use.reason
        (tmp_path / "it.tar").write_bytes(b"")
        with tarfile.open(tmp_path / "it.tar", "w") as outer:
            outer.add(tmp_path / "it.zip", "it.zip")
        told = run("scan", tmp_path / "it.tar")
        assert told.code == 4
        assert "it.zip::a.pkl" in told.out
