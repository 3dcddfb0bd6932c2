"""Every malicious file is told as dangerous, by what is in it alone: names of files are not given."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import warnings
import zipfile
from typing import Any

import numpy as np

import pparse
from pparse.data.base import BytesData
from tests.interop.benign_pickles import numpy_values, standard_values
from tests.malicious_files import encode, malicious_files
from tests.rows import rows

#: What is not dangerous as it stands, and why.
NOT_DANGEROUS = {
    "operator.attrgetter": "it gets what nobody calls",
    "_operator.attrgetter": "it gets what nobody calls",
    "operator.methodcaller": "it calls nothing yet",
    "_operator.methodcaller": "it calls nothing yet",
    "operator.itemgetter": "it gets an item, whatever that is",
    "_operator.itemgetter": "it gets an item, whatever that is",
    "a second pickle behind other bytes": "no reader gets there",
    "a call behind STOP of a frame": "no reader gets there",
    "7z-looking": "no reader takes it",
    "config": "code that is loaded if it is trusted: unknown",
    "link-out": "unknown",
    "external-data-up": "an error of the model",
    "external-data-absolute": "an error of the model",
    "custom-op": "an operator that a library must be loaded for: unknown",
    "own-domain": "an operator that a library must be loaded for: unknown",
    "decode/saved_model": "it runs nothing else",
}
ENDINGS = (".pkl", ".pt", ".skops", ".json", ".onnx", ".tar", ".pb")


def worst(content: bytes, name: str = "") -> str:
    """Return the worst grade; "" if there is none."""
    try:
        source = BytesData(content, name) if name else content
        return min((use.grade for use in pparse.scan(source)), default=None).value  # type: ignore[union-attr]
    except (pparse.FormatError, AttributeError):
        return ""


def test_malicious_pickles_are_dangerous_wherever_they_lie() -> None:
    missed = {}
    for kind, name, content in malicious_files():
        if any(name == one + ending for one in NOT_DANGEROUS for ending in ENDINGS):
            continue
        if (grade := worst(content, name)) != "dangerous":
            missed[kind, name] = grade
    assert not missed


def test_pickles_of_the_standard_library_and_numpy_are_not() -> None:
    called = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some values are old-fashioned
        values: dict[str, Any] = {**standard_values(), **numpy_values()}
        protocols = range(pickle.HIGHEST_PROTOCOL + 1)
        contents = {(name, at): pickle.dumps(value, at) for name, value in values.items() for at in protocols}
    for key, content in contents.items():
        if worst(content) == "dangerous":
            called[key] = [use.name for use in pparse.scan(content) if use.grade.value == "dangerous"]
    assert not called


def text(words: str) -> bytes:
    return encode(words, 3)


SYSTEM = b"cos\nsystem\n(S'echo pparse'\ntR"


@rows(
    "content, grade",
    [
        # What TorchScript writes for its debug information.
        (b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n](K\x01e\x85R.", "harmless"),
        (b"\x80\x02ctorch.jit._pickle\nother\n](K\x01e\x85R.", "dangerous"),
        # What it would call behind the cut is not known.
        (pickle.dumps({"a": np.arange(99), "b": [1, 2]}, 2)[:-9], "unknown"),
        (pickle.dumps([1] * 30, 2)[:-9], "unknown"),
    ],
)
def test_grades_of_whole_and_cut_pickles(content: bytes, grade: str) -> None:
    assert worst(content) == grade


@rows(
    "content, grade",
    [
        # More than the tree of a pickle takes: what it calls is known nevertheless.
        (b"\x80\x02N" + b"\x85" * 700_000 + SYSTEM + b".", "dangerous"),
        (b"(" * 600_000 + SYSTEM + b".", "dangerous"),
        # More than is followed, of a format that nobody knows: it is not known what it calls.
        (b"(" * 1_100_000 + SYSTEM + b".", "unknown"),
        (b"".join(b"cm%d\nn\n0" % number for number in range(200_001)) + SYSTEM + b".", "unknown"),
        # A name of which only the beginning is kept.
        (text("torch.nn.modules.linear") + text("Linear" + "x" * 5_000) + b"\x93)R.", "dangerous"),
        (text("torch.nn.modules.linear") + text("torch.nn.modules.linear." * 250 + "Linear") + b"\x93)R.", "dangerous"),
        # Of an argument, too.
        (text("operator") + text("attrgetter") + b"\x93" + text("x." * 2_100 + "__class__") + b"\x85R.", "dangerous"),
        (text("operator") + text("attrgetter") + b"\x93" + text("x.y") + b"\x85R.", "unknown"),
    ],
    ids=["tuples", "marks", "more marks", "names", "a long name", "a long way", "a long argument", "a short one"],
)
def test_what_meets_a_limit_is_not_taken_for_harmless(content: bytes, grade: str) -> None:
    assert worst(content) == grade


TEMPLATE = "{% for m in messages %}<|im|><__media__>{{ m['role'] }}{{ raise_exception('x') }}{% endfor %}"


@rows(
    "name, told, grade",
    [
        ("tokenizer_config.json", {"chat_template": TEMPLATE}, ""),
        ("chat_template.json", {"chat_template": "{{ x['__class__'] }}"}, "dangerous"),
        ("a/tokenizer_config.json", {"chat_template": [{"name": "a", "template": "{{ ().__class__ }}"}]}, "dangerous"),
        ("tokenizer_config.json", {"chat_template": "{{ x|attr(y) }}"}, "unknown"),
        ("chat_template.jinja", f"{TEMPLATE}\n{{{{ ().__class__ }}}}", "dangerous"),
        ("additional_chat_templates/rag.jinja", TEMPLATE, ""),
        *(
            ("chat_template.json", {"chat_template": f"{{{{ {words} }}}}"}, "dangerous")
            for words in (
                *("x|attr('__class__')", "x|map(attribute='__class__')", 'x|groupby("__class__")'),
                *(r"x['\x5F\x5Fclass']", r"x['\137_class__']", r"x['\N{Low Line}_class__']", r"x['\U0000005fa']"),
            )
        ),
        # What this reader does not take, and Python's does.
        ("chat_template.json", {"chat_template": "\ud800{{ ().__class__ }}"}, "unknown"),
        ("config.json", {"auto_map": {"AutoModel": "m.Model", "AutoTokenizer": ["t.Slow", None]}}, "unknown"),
        ("schema.json", {"__class__": "system", "__module__": "os", "content": []}, "dangerous"),
        (
            "config.json",
            {"__module__": "builtins", "__class__": "dict", "module": "os", "class_name": "system", "config": {}},
            "dangerous",
        ),
        ("other.json", {"chat_template": "{{ ().__class__ }}"}, ""),
    ],
)
def test_configurations(name: str, told: dict[str, Any] | str, grade: str) -> None:
    content = told.encode() if isinstance(told, str) else json.dumps(told).encode()
    assert worst(content, name) == grade
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    assert worst(packed.getvalue()) == grade


def test_a_template_in_no_text_is_unknown() -> None:
    """One byte that is not UTF-8 hides neither it nor those behind it."""
    keys = (
        (b"tokenizer.chat_template", b"\xff{{ ().__class__ }}"),
        (b"tokenizer.chat_template.b", b"{{ x|attr('__a__') }}"),
    )
    for several, grade in ((keys[:1], "unknown"), (keys, "dangerous")):
        made = b"GGUF" + struct.pack("<IQQ", 3, 0, len(several))
        for key, text_ in several:
            made += struct.pack(f"<Q{len(key)}sIQ{len(text_)}s", len(key), key, 8, len(text_), text_)
        assert worst(made + bytes(64)) == grade


@rows(
    "name, link, grade",
    [
        ("a/../b", "", ""),
        ("a/../../b", "", "dangerous"),
        ("C:/x", "", "dangerous"),
        ("C:x", "", "dangerous"),
        ("a/l", "../b", ""),
        ("a/l", "../../b", "unknown"),
        ("l", "/etc", "unknown"),
    ],
)
def test_names_in_archives(name: str, link: str, grade: str) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
        archive.addfile(member)
    assert worst(file.getvalue()) == grade
