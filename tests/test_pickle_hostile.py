"""Hostile pickles: each ends soon, with errors of ours, and nothing that a pickle names is imported or called."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import struct
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pparse
from pparse.cli import main
from pparse.errors import EngineError, PparseError
from pparse.parsers.pickle.parser import PickleParser
from pparse.testing.contract import Patience
from tests import sweep
from tests.pickle_samples import each
from tests.pytorch_files import numbered, tar_checkpoint

ROOT = Path(__file__).parent.parent


LONG = 10_000


def u32(number: int) -> bytes:
    """Encode a number in four bytes."""
    return struct.pack("<I", number)


def laughs(again: bytes, levels: int = 100) -> bytes:
    """Return values that name the one before twice; ``again`` has ``$`` for that."""
    steps = (again.replace(b"$", b"h" + bytes([nth])) + b"q" + bytes([nth + 1]) for nth in range(levels))
    return b"\x80\x04K\x01\x85q\x00" + b"".join(b"0" + step for step in steps)


@cache
def hostile() -> dict[str, bytes]:
    """Return pickles that were made to be costly, or to break readers."""
    tuples = laughs(b"$$\x86")
    many = sweep.scaled(20_000)
    very_many = sweep.scaled(300_000)
    # Above what a program notes, 200,000: from there on it refuses.
    refused = 300_000 if sweep.full else 201_000
    return {
        "laughing tuples": tuples + b".",
        "laughing lists": laughs(b"]($$e") + b".",
        "laughing dicts": laughs(b"}(K\x01$K\x02$u") + b".",
        "laughing calls": laughs(b"cx\ny\n$$\x86R") + b".",
        "laughing key": tuples + b"0}h\x64Ns.",
        "laughing member": tuples + b"0\x8f(h\x64\x90.",
        "laughing sets": laughs(b"($$\x85\x91") + b"0}h\x64Ns.",
        "lists in lists": b"\x80\x02" + b"]" * refused + b"a" * (refused - 1) + b".",
        "tuples in tuples": b"\x80\x02)" + b"\x85" * refused + b".",
        "calls of calls": b"\x80\x02cx\ny\n" + b")R" * refused + b".",
        "dicts in dicts": b"\x80\x02" + b"}K\x01" * (very_many // 3) + b"}" + b"s" * (very_many // 3) + b".",
        "ids of ids": b"\x80\x02N" + b"Q" * refused + b".",
        "key of tuples": b"\x80\x02})" + b"\x85" * 50_000 + b"Ns.",
        "states": b"\x80\x02cx\ny\n)R" + b"}b" * many + b".",
        "PROTO": b"\x80\x02" * very_many + b"N.",
        "marks": b"(" * 10**6,
        "DUP": b"N" + b"2" * very_many + b".",
        "POP": b"N" + b"N0" * very_many + b".",
        "POP_MARK": b"N" + b"(1" * very_many + b".",
        "length 2^63": b"\x80\x04]\x8e" + struct.pack("<Q", 2**63 - 1) + b"abc",
        "length 2^64": b"\x80\x04]\x8e" + struct.pack("<Q", 2**64 - 1) + b"abc",
        "length 2^32": b"\x80\x04]X\xff\xff\xff\xffabc",
        "FRAME lies": b"\x80\x04\x95" + struct.pack("<Q", 2**64 - 1) + b"]K\x01a.",
        "number 2^31": b"\x80\x02]r" + u32(2**31) + b"j" + u32(2**31) + b"a.",
        "one number": b"\x80\x02](" + b"Nq\x05" * many + b"h\x05" * 1000 + b"e.",
        "odd numbers": b"\x80\x02](" + b"".join(b"Nr" + u32(7 * nth) for nth in range(many)) + b"e.",
        "GET of nothing": b"\x80\x02](h\x01K\x01q\x01h\x01e.",
        "PUT of nothing": b"\x80\x02q\x01N.",
        "no STOP": b"\x80\x02](K\x01K\x02e",
        "unknown opcode": b"\x80\x02](K\x01\xffK\x02e.",
        "LONG4 negative": b"\x80\x02]\x8b\xff\xff\xff\xffa.",
        "digits": b"(I" + b"9" * 10**6 + b"\nL" + b"9" * 10**6 + b"L\nF" + b"1" * 10**6 + b"\nl.",
        "line": b"(V" + b"a" * 20_000_000 + b"\nl.",
        "open line": b"(V" + b"a" * 20_000_000,
        "aliases": b"\x80\x02("
        + b"".join(b"]r" + u32(n) for n in range(5000))
        + b"".join(b"j" + u32(n) for n in range(5000))
        + b"t.",
        "names around": b"\x80\x02]q\x00](h\x00h\x00ea.",
        "cyclic tuple": b"\x80\x02]q\x00h\x00\x85q\x01a0h\x01.",
        "late": b"\x80\x02]q\x00(]q\x01K\x05h\x01K\x07ae.",
        "1,000 times 1 MB": b"\x80\x02B\0\0\x10\0" + bytes(1 << 20) + b"\x85" * 1000 + b".",
        "growing tuples": b"\x80\x02K\x01"
        + b"".join(b"X\0\0\1\0" + b"b" * 65_536 + b"\x86" for _ in range(200))
        + b".",
        "global of numbers": b"\x80\x04K\x01K\x02\x93.",
        "pairs in a list": b"\x80\x02](K\x01K\x02u.",
        "items in a dict": b"\x80\x02}K\x01a.",
        "key alone": b"\x80\x02}(K\x01u.",
        "list as a key": b"\x80\x02}(]K\x01u.",
        "not UTF-8": b"\x80\x02](X\1\0\0\0\xffK\x01e.",
        "many pickles": b"\x80\x02N." * many,
        "call of a call": b"\x80\x02](cx\ny\n)Rq\x01)Rq\x02}bh\x01h\x02e.",
        "empty": b"",
    }


def opened(content: bytes) -> Any:
    """Open a pickle."""
    return pparse.open(content, parsers=[PickleParser], format="pickle", budget="64MiB")


def drawn() -> list[str]:
    """Return the names of all that are short, and of a part of those that are costly to read."""
    costly = sweep.part([name for name, content in hostile().items() if len(content) >= LONG], 0.4)
    return [name for name, content in hostile().items() if len(content) < LONG or name in costly]


@pytest.mark.parametrize("name", drawn())
def test_hostile_pickles_end_with_errors_of_ours(name: str) -> None:
    content = hostile()[name]
    patience = Patience()
    ways = (_list, _walk, _check, _value, _loads)
    # What is long is costly to read, whatever is asked of it: one or two of the ways in a run.
    count = 5 if len(content) < LONG else 2 if len(content) < 200_000 else 1
    for way in sweep.values(ways, list(hostile()).index(name), count):
        patience.begin(f"{way.__name__} of {name}")
        try:
            with opened(content) as document:
                way(document)
                read = document.session.stats.bytes
                assert read <= 64 * len(content) + (32 << 20), way
        except EngineError:
            raise
        except PparseError:
            pass
        finally:
            patience.end()


def _list(document: Any) -> None:
    for _, node in zip(range(1000), document.root.children() if document.root.shape != "scalar" else (), strict=False):
        assert node.kind


def _walk(document: Any) -> None:
    for _ in zip(range(1500), document.walk(), strict=False):
        pass


def _check(document: Any) -> None:
    for _ in zip(range(100), document.check(), strict=False):
        pass


def _value(document: Any) -> None:
    document.root.to_python()


def _loads(document: Any) -> None:
    for _, node in zip(range(1000), each(document.root), strict=False):
        if node.shape == "scalar":
            node.load()


@pytest.mark.parametrize(
    "name",
    [
        "GET of nothing",
        "not UTF-8",
        "list as a key",
        "key alone",
        "items in a dict",
        "pairs in a list",
        "global of numbers",
    ],
)
def test_check_finds_what_pickle_would_not_load(name: str) -> None:
    with opened(hostile()[name]) as document:
        assert [finding for finding in document.check() if finding.severity is pparse.Severity.ERROR]
        assert document.status is pparse.Status.DAMAGED


def test_what_is_changed_late_is_not_claimed_to_be_whole() -> None:
    with opened(hostile()["late"]) as document:
        assert document.root.to_python() == [[7], 5, [7]]
        for node in (document.root.child(0), document.root.child(2)):
            assert node.status is pparse.Status.UNSUPPORTED
            with pytest.raises(PparseError):
                node.to_python()
        assert {finding.code for finding in document.check()} == {"late"}
    # The value is taken away where it is made, changed where it is named, and named once more: Python has [1].
    with opened(b"\x80\x02]q\x000h\x00K\x01a0h\x00.") as document:
        assert document.root.status is pparse.Status.UNSUPPORTED
        with pytest.raises(PparseError):
            document.root.to_python()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02(K\x01q\x00K\x02q\x02K\x03q\x02h\x02t.",  # a number again
        b"\x80\x04(K\x01q\x01K\x02\x94h\x01t.",  # MEMOIZE behind a number of its own
        b"\x80\x04(K\x01q\x03K\x02\x94K\x03\x94K\x04\x94h\x03t.",
    ],
)
def test_odd_numbers_in_the_memo_mean_what_they_mean_to_pickle(content: bytes) -> None:
    with opened(content) as document:
        if document.root.status is pparse.Status.COMPLETE:
            assert document.root.to_python() == pickle.loads(content)
        else:
            assert [finding for finding in document.findings if "memo" in finding.reason]


def test_cyclic_tuples_are_what_pickle_makes() -> None:
    with opened(hostile()["cyclic tuple"]) as document:
        value = document.root.to_python()
        assert value[0][0] is value


TRAPS = {
    "system": b"cposix\nsystem\n(S'touch %s'\ntR.",
    "open": b"\x80\x02cbuiltins\nopen\n(X\x01\0\0\0%sX\x01\0\0\0wtR.",
    "inst": b"(S'touch %s'\niposix\nsystem\n.",
    "obj": b"(cposix\nsystem\nS'touch %s'\no.",
    "global": b"\x80\x04\x8c\x04trap\x8c\x05thing\x93.",
    "build": b"\x80\x02cbuiltins\ndict\n)R}X\x01\0\0\0acposix\nsystem\nX\x07\0\0\0touch %s\x85Rsb.",
    "dict": b"\x80\x02}X\x01\0\0\0kcposix\nsystem\n(S'touch %s'\ntRs.",
}


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_is_called_or_imported(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "trap.py").write_text("open('t', 'w')\n")
    (tmp_path / "x.pkl").write_bytes(TRAPS[name].replace(b"%s", b"t"))
    for command in (["ls"], ["tree"], ["get", ""], ["get", "--json", ""], ["check"], ["info"], ["info", "--json"]):
        assert main([command[0], *command[1:-1], "x.pkl", *command[1:][-1:]]) in (0, 1, 2, 5), command
    with pparse.open(tmp_path / "x.pkl", format="pickle") as document:
        document.root.to_python()
        for node in each(document.root):
            if node.shape == "scalar":
                node.load()
    assert sorted(os.listdir(tmp_path)) in (["trap.py", "x.pkl"], ["__pycache__", "trap.py", "x.pkl"])
    assert not (tmp_path / "t").exists()
    capsys.readouterr()


def test_the_parsers_have_nothing_to_call_by_a_name() -> None:
    words = re.compile(
        r"__import__|import_module|importlib\.|import importlib|\bgetattr\(|\beval\(|\bexec\(|find_class"
        r"|\bpickle\.loads?\b"
    )
    files = [path for folder in ("pickle", "pytorch") for path in (ROOT / "parsers" / folder).glob("*.py")]
    assert len(files) > 8
    for path in files:
        assert not words.search(path.read_text("utf-8")), path


def test_what_could_run_something_is_named_first(run, tmp_path) -> None:
    """Twenty harmless names hide nothing, neither in text nor in JSON; nor does what is around the pickle."""
    hidden = b"".join(b"cmath\nf%d\n0" % number for number in range(30)) + b"cos\nsystem\n(S'true'\ntR."
    (tmp_path / "a.pkl").write_bytes(hidden)
    assert "os.system" in run("info", tmp_path / "a.pkl").out
    found = run("info", tmp_path / "a.pkl", "--json").json["globals"]
    assert len(found) == 31
    told = {"name": "os.system", "grade": "dangerous", "count": 1, "offset": 320, "pickle": None, "called": 1}
    assert told.items() <= found[0].items()
    assert found[0]["calls"] == [{"offset": 341, "call": "os.system('true')", "opcode": "REDUCE"}]
    array = npy_of_objects(hidden)
    (tmp_path / "a.npy").write_bytes(array)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("o.npy", array)
    tensors, contents = numbered(1, 64)
    made = tar_checkpoint(tensors, contents).content
    with tarfile.open(fileobj=io.BytesIO(made)) as old, tarfile.open(tmp_path / "a.pt", "w") as new:
        for member in old:
            content = hidden if member.name == "pickle" else old.extractfile(member).read()  # type: ignore[union-attr]
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    for name, within in (("a.npy", "pickle"), ("a.npz", "o.npy::pickle"), ("a.pt", "pickle")):
        (found, *_) = run("info", tmp_path / name, "--json").json["globals"]
        assert (found["name"], found["pickle"]) == ("os.system", within)


def npy_of_objects(content: bytes) -> bytes:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + content


def test_values_that_json_cannot_say(run, tmp_path) -> None:
    """Those that hold themselves, through keys of any type, too; long numbers are written, huge ones refused."""
    inner: list[Any] = [1]
    inner.append(inner)
    keyed: dict[Any, Any] = {}
    keyed[1, 2] = keyed
    for value, told in ((inner, "holds itself"), (keyed, "holds itself"), (1 << 4_000_000, "1,000,000 digits")):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(value))
        for more in ([], ["--json"]):
            ran = run("get", tmp_path / "a.pkl", *more)
            assert (ran.code, told in ran.err) == (2, True)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(10**5_000))
    assert len(run("get", tmp_path / "a.pkl").out) == 5_002


def test_doublings_are_not_written_out(run, tmp_path) -> None:
    """Sixteen doublings of a tuple are 2^16 values, which are written; thirty, and two hundred, are refused at once."""
    for doublings, code, told in ((16, 0, ""), (30, 2, "10,000,000 values"), (200, 2, "10,000,000 values")):
        (tmp_path / "a.pkl").write_bytes(b"\x80\x04]" + b"2\x86" * doublings + b".")
        for more in ([], ["--json"]):
            ran = run("get", tmp_path / "a.pkl", *more)
            assert (ran.code, told in ran.err, ran.out.count("[]")) == (code, True, 0 if code else 1 << doublings)


def test_keys_of_storages_that_are_no_keys(run, tmp_path) -> None:
    """A legacy checkpoint whose list of keys holds tuples in tuples, and numbers without end."""
    head = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {}, {"a": 1})]
    keys = b"\x80\x02]()" + b"\x85" * 3_000 + pickle.dumps(1 << 90_000, 2)[2:-1] + b"e."
    (tmp_path / "a.pt").write_bytes(b"".join([*head, keys]))
    for command in ("ls", "info", "check"):
        assert "bug" not in run(command, tmp_path / "a.pt").err


def test_a_long_text_that_is_no_utf8_is_told_by_check_as_a_short_one_is():
    long, name = b"\xfd" * 2_000_000, b"a" * 300 + b"\xff\nb\n"
    for text, offset in ((b"X" + len(long).to_bytes(4, "little") + long, 7), (b"c" + name, 2)):
        content = b"](" + text + b"K\1e."
        with pytest.raises(UnicodeDecodeError):
            pickle.loads(content)
        with pparse.open(content, format="pickle") as document:
            found = [(finding.code, finding.path, finding.offset) for finding in document.check()]
        assert found == [("malformed", "[0]", offset)]


def test_a_gap_in_a_long_text_ends_no_check(tmp_path: Path) -> None:
    text = bytes(random.Random(3).randbytes(150_000)).hex()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.pkl", pickle.dumps({"a": text, "b": 1}, 4))
    content = bytearray(packed.getvalue())
    content[70_000:70_900] = bytes(900)
    (tmp_path / "x.zip").write_bytes(content)
    with pparse.open(f"{tmp_path / 'x.zip'}::x.pkl") as document:
        assert "lost in" in " ".join(map(str, document.check()))
