from __future__ import annotations

import ast
import copy
import pickle
import re
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse import errors
from pparse.errors import (
    CancelledError,
    ClosedError,
    DamagedTensorError,
    DataChangedError,
    DataError,
    EndOfDataError,
    EndOfRangeError,
    EngineError,
    FaultError,
    FormatError,
    GapError,
    LimitError,
    MalformedError,
    MissingNameError,
    MissingTensorError,
    NothingThereError,
    NotWholeError,
    OptionError,
    PathError,
    PparseError,
    SourceError,
    SplitError,
    TensorError,
    TruncatedTensorError,
    UnsupportedError,
    WorkerDiedError,
    speak_of_commands,
    spoken,
)
from tests.conftest import ROOT
from tests.rows import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = [
    PparseError("r", offset=1, wanted=2, got=3, path="p", source="s", state="st"),
    SourceError("cannot open", errno=13, source="f.bin", offset=7),
    DataError("wrong"),
    FaultError("wrong, and no limit of ours"),
    EndOfDataError("ends", offset=10, wanted=8, got=3, source="f"),
    EndOfRangeError("ends", offset=10, wanted="a lot", got=3),
    GapError(5, 9, source="g"),
    GapError(5, None),
    MalformedError("bad byte", offset=255, path="a.b", state="header"),
    FormatError("no parser"),
    NothingThereError("it is zeros only"),
    UnsupportedError("needs zstd", package="backports.zstd", path="x", offset=2),
    UnsupportedError("encrypted"),
    LimitError("too deep", option="--limit depth=9", wanted=9, got=8, path="p", offset=4),
    DataChangedError("changed", source="f", wanted=10, got=11),
    ClosedError("closed"),
    OptionError("no such kernel"),
    SplitError("cannot be split off", path="node[3]", wanted=700, got=500),
    PathError("no such key", path="a.c", suggestions=("a.b", "a.d")),
    PathError("no such key"),
    MissingNameError("no such tensor", path="w", suggestions=("wq",)),
    CancelledError("cancelled"),
    WorkerDiedError("killed", was_killed=True),
    NotWholeError("2 tensors are not whole", source="f", lost=(("w", "damaged", "r"),)),
    EngineError("stood still", state="body"),
    TensorError("odd", name="w"),
    TruncatedTensorError("cut", name="w", offset=16, wanted=100, got=40, source="m.safetensors"),
    MissingTensorError("gone", name="w", wanted=100, got=0),
    DamagedTensorError("checksum", name="w", offset=0),
]


def _id(error: PparseError) -> str:
    return type(error).__name__


def test_every_error_about_data_is_a_limit_of_ours_or_a_fault():
    about_data = [error for error in SAMPLES if isinstance(error, DataError) and type(error) is not DataError]
    assert [error for error in about_data if isinstance(error, LimitError) is isinstance(error, FaultError)] == []


@rows(
    ("kind", "builtin"),
    [
        (SourceError, OSError),
        (EndOfDataError, EOFError),
        (EndOfRangeError, EOFError),
        (MalformedError, ValueError),
        (FormatError, ValueError),
        (ClosedError, ValueError),
        (OptionError, ValueError),
        (SplitError, ValueError),
        (PathError, LookupError),
        (MissingNameError, KeyError),
    ],
)
def test_errors_are_caught_as_builtin_errors_and_as_ours(kind, builtin):
    error = next(sample for sample in SAMPLES if type(sample) is kind)
    with pytest.raises(builtin):
        raise error
    with pytest.raises(PparseError):
        raise error


def test_other_errors_have_one_root():
    builtins = (OSError, EOFError, ValueError, LookupError)
    single = [GapError, UnsupportedError, LimitError, DataChangedError, CancelledError, EngineError, TensorError]
    for kind in single:
        assert issubclass(kind, PparseError)
        assert not issubclass(kind, builtins), kind
    for kind in (TruncatedTensorError, MissingTensorError, DamagedTensorError):
        assert issubclass(kind, TensorError)
    assert not issubclass(EndOfRangeError, EndOfDataError)
    assert not issubclass(EndOfDataError, EndOfRangeError)


def test_every_error_is_sampled_and_public():
    kinds = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, PparseError)}
    assert kinds == {type(sample) for sample in SAMPLES}
    for kind in kinds:
        assert getattr(pparse, kind.__name__) is kind
        assert kind.__name__ in pparse.__all__
        assert kind.__doc__


def test_numbers_live_on_the_exception():
    error = PparseError("r", offset=1, wanted=2, got=3, path="p", source="s", state="st")
    assert (error.reason, error.offset, error.wanted, error.got) == ("r", 1, 2, 3)
    assert (error.path, error.source, error.state) == ("p", "s", "st")
    bare = PparseError("r")
    assert (bare.offset, bare.wanted, bare.got, bare.path, bare.source, bare.state) == (None,) * 6


def test_message_carries_the_numbers():
    error = EndOfDataError("the data ends here", offset=4096, wanted=8, got=3, source="f.bin", path="a[2]")
    assert str(error) == "f.bin: a[2] @0x1000: the data ends here (wanted 8, got 3)"


@rows(
    ("numbers", "text"),
    [
        ({}, "r"),
        ({"source": "f"}, "f: r"),
        ({"path": "a.b"}, "a.b: r"),
        ({"offset": 0}, "@0x0: r"),
        ({"path": "a.b", "offset": 16}, "a.b @0x10: r"),
        ({"source": "f", "path": "a.b"}, "f: a.b: r"),
        ({"source": "f", "offset": 255}, "f: @0xff: r"),
        ({"wanted": 0}, "r (wanted 0)"),
        ({"got": 0}, "r (got 0)"),
        ({"wanted": "x", "got": 1}, "r (wanted x, got 1)"),
        ({"path": 'a["x :y"]'}, 'a["x :y"]: r'),
        ({"source": "my :file", "path": "w :0", "offset": 1}, "my :file: w :0 @0x1: r"),
    ],
)
def test_a_message_has_place_reason_and_numbers_as_far_as_known(numbers, text):
    assert str(PparseError("r", **numbers)) == text


def test_source_error_is_a_proper_oserror():
    error = SourceError("cannot open", errno=2, source="f")
    assert error.errno == 2
    assert str(error) == "f: cannot open"
    assert SourceError("x").errno is None


def test_gap_error_words():
    assert "of 9 bytes" in str(GapError(5, 9))
    assert "@0x5" in str(GapError(5, 9))
    assert "unknown length" in str(GapError(5, None))
    assert GapError(5, None).length is None
    assert GapError(5, 9).length == 9


def test_unsupported_names_the_package():
    error = UnsupportedError("needs it", package="torch")
    assert error.package == "torch"
    assert "pip install torch" in str(error)
    assert "pip" not in str(UnsupportedError("encrypted"))


def test_limit_error_names_the_option():
    error = LimitError("too deep", option="--limit depth=9", wanted=9, got=8)
    assert error.option == "--limit depth=9"
    assert str(error) == "too deep; lift it with limits=Limits(depth=9) (wanted 9, got 8)"


def test_path_error_suggests():
    error = PathError("no such tensor", path="w", suggestions=("wq", "wk"))
    assert error.suggestions == ("wq", "wk")
    assert str(error) == "w: no such tensor; did you mean 'wq', 'wk'?"
    assert PathError("x").suggestions == ()


def test_tensor_error_names_the_tensor():
    error = TruncatedTensorError("cut", name="w", offset=16, wanted=100, got=40, source="m")
    assert error.name == "w"
    assert error.path == "w"
    assert str(error) == "m: w @0x10: cut (wanted 100, got 40)"


@rows("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@rows("error", SAMPLES, ids=_id)
def test_pickle_round_trip(error, protocol):
    again = pickle.loads(pickle.dumps(error, protocol))
    _assert_same(again, error)


@rows("error", SAMPLES, ids=_id)
def test_a_copy_of_an_error_has_all_of_its_attributes(error):
    _assert_same(copy.copy(error), error)
    _assert_same(copy.deepcopy(error), error)


def _assert_same(again: PparseError, error: PparseError) -> None:
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
    for name in ("errno", "length", "package", "option", "suggestions", "name"):
        assert getattr(again, name, "none") == getattr(error, name, "none"), name


def test_pickle_keeps_notes():
    error = MalformedError("x", offset=3)
    error.add_note("seen in the third pass")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["seen in the third pass"]


@rows(
    "option, python",
    [
        ("--limit depth=9", "limits=Limits(depth=9)"),
        ("--budget 64MiB", 'budget="64MiB"'),
        ("--scratch DIR", "scratch=DIR"),
        ("--max-nodes 7", "max_nodes=7"),
        ("--skip-damaged", "skip_damaged=True"),
        ("-O message=NAME", 'options={"message": "NAME"}'),
        ("-f tar", 'format="tar"'),
        ("a slice", "a slice"),
    ],
)
def test_advice_is_for_whom_reads_it(option, python):
    assert spoken(option) == python
    before = speak_of_commands(yes=True)
    try:
        assert (spoken(option), before) == (option, False)
    finally:
        speak_of_commands(yes=before)


def options_told(node: ast.AST) -> Iterator[str]:
    """Yield the texts below a node that name options ``-f`` or ``-O`` of commands, and are not `spoken` or `told`."""
    known = (
        (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("spoken", "told"))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))  # documentation
        or (isinstance(node, ast.keyword) and node.arg == "option")
        or (isinstance(node, ast.Assign | ast.AnnAssign) and "limitations" in ast.unparse(node).partition("=")[0])
    )
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"(?<![\w-])-[Of] ", node.value):
        yield node.value
    for below in () if known else ast.iter_child_nodes(node):
        yield from options_told(below)


def test_the_library_speaks_of_no_options_of_commands():
    assert list(options_told(ast.parse("raise OptionError(f'use -O {name}', option='-f x')"))) == ["use -O "]
    paths = [path for room in ("pparse", "parsers", "viewers") for path in (ROOT / room).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)): texts
        for path in paths
        if path.relative_to(ROOT).parts[:2] != ("pparse", "cli")
        and re.search("-[Of] ", text := path.read_text(encoding="utf-8"))
        and (texts := list(options_told(ast.parse(text))))
    }
    assert not found, "say it with pparse.errors.spoken"
