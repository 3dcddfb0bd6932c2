"""PyTorch checkpoints of contiguous tensors, as torch writes them (2.13, and before 1.6), made without torch."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from math import prod

from tests.bench.inputs_pytorch import Archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Names of storages, and bytes of an element, by numpy's names of the types.
STORAGES = {
    "float64": ("DoubleStorage", 8),
    "float32": ("FloatStorage", 4),
    "float16": ("HalfStorage", 2),
    "bfloat16": ("BFloat16Storage", 2),
    "int64": ("LongStorage", 8),
    "uint8": ("ByteStorage", 1),
    "bool": ("BoolStorage", 1),
}
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


@dataclass(frozen=True)
class Made:
    """A checkpoint; ``places`` of the bytes of each tensor, ``needs``: what leads to all, ``own``: what leads to each.

    ``head``: where the part with the names ends.
    """

    content: bytes
    places: dict[str, tuple[int, int]]
    head: int
    needs: tuple[tuple[int, int], ...]
    own: dict[str, tuple[tuple[int, int], ...]]


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")  # as pickle writes half of a pair, too
    return b"X" + struct.pack("<I", len(raw)) + raw


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _numbers(numbers: list[int]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def _rebuilt(number: int, dtype: str, shape: list[int], *, legacy: bool = False) -> bytes:
    """Return the opcodes of a tensor whose storage has that number."""
    storage = f"ctorch\n{STORAGES[dtype][0]}\n".encode() + _text(str(number)) + _text("cpu") + _number(prod(shape))
    storage = b"(" + _text("storage") + storage + (b"N" if legacy else b"") + b"tQ"
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    arguments = storage + _number(0) + _numbers(list(shape)) + _numbers(strides) + b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def described(tensors: Mapping[str, tuple[str, list[int]]], *, legacy: bool = False) -> bytes:
    """Return the pickle of a dict of tensors, of types and shapes as given, each with a storage of its own."""
    out = b"\x80\x02}("
    for number, (name, (dtype, shape)) in enumerate(tensors.items()):
        out += _text(name) + _rebuilt(number, dtype, shape, legacy=legacy)
    return out + b"u."


class _Members:
    """Writes an archive as torch does, and knows where each member is."""

    def __init__(self, top: str) -> None:
        self.out = io.BytesIO()
        self._archive = Archive(self.out, top)
        self.at: dict[str, tuple[int, int, int]] = {}
        self._entries: dict[str, tuple[int, int]] = {}

    def add(self, name: str, content: bytes) -> None:
        at, entry = self.out.tell(), len(self._archive.directory)
        self._archive.add(name, content)
        self._entries[name] = (entry, len(self._archive.directory))
        self.at[name] = (at, self.out.tell(), len(content))

    def close(self) -> bytes:
        self._directory = self.out.tell()
        self._archive.close()
        return self.out.getvalue()

    def place(self, name: str) -> tuple[int, int]:
        """Return where the content of a member lies: between its header and its descriptor."""
        _, end, size = self.at[name]
        return end - 16 - size, end - 16

    def entry(self, first: str, last: str = "") -> tuple[int, int]:
        """Return where the entry of a member lies in the directory, or those of several."""
        return self._directory + self._entries[first][0], self._directory + self._entries[last or first][1]

    def around(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return what leads to a member: its header, its descriptor and its entry."""
        at, end, _ = self.at[name]
        begin, stop = self.place(name)
        return (at, begin), (stop, end), self.entry(name)


def checkpoint(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes], top: str = "model") -> Made:
    """Return a checkpoint in a zip, with the storages in the order of the tensors."""
    archive = _Members(top)
    archive.add("data.pkl", described(tensors))
    for name, content in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
        archive.add(name, content)
    for number, name in enumerate(tensors):
        archive.add(f"data/{number}", contents[name])
    archive.add("version", b"3\n")
    content = archive.close()
    places = {name: archive.place(f"data/{number}") for number, name in enumerate(tensors)}
    own = {name: archive.around(f"data/{number}") for number, name in enumerate(tensors)}
    head = archive.at["byteorder"][1]
    return Made(content, places, head, ((0, head), archive.entry("data.pkl", "byteorder")), own)


def rezipped(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes], top: str = "model") -> Made:
    """Return a checkpoint whose archive Python's zipfile wrote: the sizes stand before the bytes, not behind them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        members = {"data.pkl": described(tensors), "byteorder": b"little"}
        members |= {f"data/{number}": contents[name] for number, name in enumerate(tensors)}
        for name, content in (*members.items(), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"{top}/{name}"), content)
        found = archive.infolist()
    listed, spans, entries = archive.start_dir, {}, {}
    for info in found:
        name, length = info.filename.removeprefix(f"{top}/"), len(info.filename)
        begin = info.header_offset + 30 + length
        spans[name] = info.header_offset, begin, begin + info.file_size
        entries[name] = listed, listed + 46 + length
        listed += 46 + length
    places = {name: spans[f"data/{number}"][1:] for number, name in enumerate(tensors)}
    own = {
        name: (spans[f"data/{number}"][:2], entries[f"data/{number}"])  # header and entry
        for number, name in enumerate(tensors)
    }
    head = spans["byteorder"][2]
    return Made(out.getvalue(), places, head, ((0, head), (entries["data.pkl"][0], entries["byteorder"][1])), own)


CODE = b"class Net(Module):\n  __parameters__ = []\n  def forward(self, x: Tensor) -> Tensor:\n    return x\n"


def script(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes], top: str = "model") -> Made:
    """Return a TorchScript archive: the storages first, then the pickle, the code, and what of them are constants.

    Those that are called ``CONSTANTS.c0`` and so on are constants of the code.
    """
    archive = _Members(top)
    saved = {name: about for name, about in tensors.items() if not name.startswith("CONSTANTS.")}
    where = {name: f"data/{number}" for number, name in enumerate(saved)}
    constants = [name for name in tensors if name not in saved]
    where |= {name: f"constants/{number}" for number, name in enumerate(constants)}
    for name in saved:
        archive.add(where[name], contents[name])
    root: dict[str, object] = {}
    for number, (name, about) in enumerate(saved.items()):
        *path, last = name.split(".")
        module = root
        for part in path:
            module = module.setdefault(part, {})  # type: ignore[assignment]
        module[last] = number, about
    archive.add("data.pkl", b"\x80\x02" + _module(root) + b".")
    archive.add("code/__torch__.py", CODE)
    for name in constants:
        archive.add(where[name], contents[name])
    parts = (_rebuilt(number, *tensors[name]) for number, name in enumerate(constants))
    archive.add("constants.pkl", b"\x80\x02(" + b"".join(parts) + b"t.")
    archive.add("version", b"3\n")
    archive.add("byteorder", b"little")
    content = archive.close()
    places = {name: archive.place(member) for name, member in where.items()}
    own = {}
    for name, member in where.items():
        record = "data.pkl" if name in saved else "constants.pkl"
        begin, end, _ = archive.at[record]
        own[name] = (*archive.around(member), (begin, end), archive.entry(record))
    return Made(content, places, 0, (), own)


def _module(value: Mapping[str, object]) -> bytes:
    """Return the opcodes of a module, and of those in it."""
    items = b""
    for name, one in value.items():
        items += _text(name) + (_module(one) if isinstance(one, dict) else _rebuilt(one[0], *one[1]))  # type: ignore[index]
    return b"c__torch__\nNet\n)\x81}(" + items + b"ub"


# ScalarType of torch/_export/serde/schema.py.
SCALARS = {"float64": 8, "float32": 7, "float16": 6, "bfloat16": 13, "int64": 5, "uint8": 1, "bool": 12}


def meta(dtype: str, shape: Sequence[int | str], strides: Sequence[int] | None = None, offset: int = 0) -> dict:
    """Return a TensorMeta; a word in ``shape`` is a symbol."""
    sizes = [
        {"as_expr": {"expr_str": f"Symbol('{size}', positive=True, integer=True)", "hint": {"as_int": 2}}}
        if isinstance(size, str)
        else {"as_int": size}
        for size in shape
    ]
    steps = [1] * len(shape) if any(isinstance(size, str) for size in shape) else strides_of(shape)  # type: ignore[arg-type]
    return {
        "dtype": SCALARS[dtype],
        "sizes": sizes,
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": step} for step in (steps if strides is None else strides)],
        "storage_offset": {"as_int": offset},
        "layout": 7,
    }


def strides_of(shape: Sequence[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def config_of(described: Mapping[str, tuple[str, dict]]) -> bytes:
    """Return the JSON of tensors: the members that their bytes are in, and what they are."""
    told = {
        name: {"path_name": path, "is_param": True, "use_pickle": False, "tensor_meta": about}
        for name, (path, about) in described.items()
    }
    return json.dumps({"config": told}).encode()


def as_tensor(name: str) -> dict:
    return {"as_tensor": {"name": name}}


def program(tensors: Mapping[str, tuple[str, list[int]]]) -> bytes:
    """Return the JSON of a program with a node for each tensor, which adds it to the sum of those before it."""
    nodes, value = [], "x"
    typed = {"x": meta("float32", ["s0", 4])}
    for number, about in enumerate(tensors.values()):
        inputs = [("self", as_tensor(value)), ("other", as_tensor(f"p_{number}")), ("alpha", {"as_int": 2})]
        value = f"add_{number}"
        listed = [{"name": key, "arg": arg, "kind": 1} for key, arg in inputs]
        node = {"target": "torch.ops.aten.add.Tensor", "inputs": listed, "outputs": [as_tensor(value)], "metadata": {}}
        nodes.append(node | {"name": value})
        typed |= {value: meta("float32", ["s0", 4]), f"p_{number}": meta(*about)}
    given = [as_tensor(name) for name in (*(f"p_{number}" for number in range(len(tensors))), "x")]
    specs = [
        {"parameter": {"arg": {"name": f"p_{number}"}, "parameter_name": name}} for number, name in enumerate(tensors)
    ]
    graph = {"inputs": given, "outputs": [as_tensor(value)], "nodes": nodes, "tensor_values": typed}
    graph |= {"sym_int_values": {}, "sym_bool_values": {}}
    signature = {
        "input_specs": [*specs, {"user_input": {"arg": as_tensor("x")}}],
        "output_specs": [{"user_output": {"arg": as_tensor(value)}}],
    }
    told = {
        "graph_module": {"graph": graph, "signature": signature, "module_call_graph": [], "metadata": {}},
        "opset_version": {"aten": 10},
        "range_constraints": {"s0": {"min_val": 0, "max_val": 64}},
        "schema_version": {"major": 8, "minor": 20},
        "torch_version": "2.13.0",
    }
    return json.dumps(told).encode()


def exported(
    tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes], top: str = "model", name: str = "model"
) -> Made:
    """Return an archive of ``torch.export.save`` with one program."""
    archive = _Members(top)
    where = {key: f"data/weights/weight_{number}" for number, key in enumerate(tensors)}
    for key, member in where.items():
        archive.add(member, contents[key])
    config = f"data/weights/{name}_weights_config.json"
    archive.add(config, config_of({key: (where[key].rpartition("/")[2], meta(*tensors[key])) for key in tensors}))
    archive.add(f"data/constants/{name}_constants_config.json", config_of({}))
    archive.add(f"models/{name}.json", program(tensors))
    archive.add("archive_format", b"pt2")
    archive.add("archive_version", b"0")
    archive.add(".data/version", b"6\n")
    archive.add("byteorder", b"little")
    content = archive.close()
    begin, end, _ = archive.at[config]
    own = {key: (*archive.around(where[key]), (begin, end), archive.entry(config)) for key in tensors}
    return Made(content, {key: archive.place(where[key]) for key in tensors}, 0, (), own)


def exported_before(members: Mapping[str, bytes], tensors: Mapping[str, tuple[str, list[int]]]) -> bytes:
    """Return an archive as torch wrote it before 2.8; ``members``: what is in the others than the program."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("serialized_exported_program.json", program(tensors))
        for member, content in members.items():
            archive.writestr(f"serialized_{member}.pt", content)
        archive.writestr("version", "8.2")
    return out.getvalue()


def tar_checkpoint(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes]) -> Made:
    """Return a checkpoint as torch wrote it before 0.1.10: a tar with four members, of which the last has the storages.

    Of the types that it knew: those of `STORAGES` but for bfloat16 and bool.
    """
    described, stores = pickle.dumps(len(tensors), 2), bytearray(pickle.dumps(len(tensors), 2))
    saved, spans, leads = b"\x80\x02}(", {}, {}
    for number, (name, (dtype, shape)) in enumerate(tensors.items()):
        kind, size = STORAGES[dtype]
        saved += _text(name) + _text(str(200 + number)) + b"Q"
        named = f"ctorch\n{kind.replace('Storage', 'Tensor')}\n".encode()
        described += b"\x80\x02" + _number(200 + number) + _number(100 + number) + named + b"\x87."
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        described += struct.pack(f"<i4x{2 * len(shape) + 1}q", len(shape), *shape, *strides, 0)
        begin = len(stores)
        stores += b"\x80\x02" + _number(100 + number) + _text("cpu") + f"ctorch\n{kind}\n".encode() + b"\x87."
        stores += struct.pack("<q", len(contents[name]) // size)
        leads[name] = (begin, len(stores))
        spans[name] = (len(stores), len(stores) + len(contents[name]))
        stores += contents[name]
    stores += pickle.dumps([], 2)
    system = pickle.dumps({**SYSTEM, "protocol_version": 1000}, 2)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in {"sys_info": system, "pickle": saved + b"u.", "tensors": described}.items():
            _add(archive, name, content)
        at = out.tell() + 512
        _add(archive, "storages", bytes(stores))
    places = {name: (at + begin, at + end) for name, (begin, end) in spans.items()}
    ranges = [(at + begin, at + end) for begin, end in leads.values()]
    # What leads to a storage is all that is before it, but for the numbers in others; the next one begins behind it.
    own = {name: tuple(ranges[: number + 2]) for number, name in enumerate(tensors)}
    head = at + min(begin for begin, _ in leads.values())
    return Made(out.getvalue(), places, head, ((0, head),), own)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def legacy_checkpoint(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes]) -> Made:
    """Return a checkpoint as torch wrote it before 1.6."""
    parts = [pickle.dumps(value, 2) for value in (MAGIC, VERSION, SYSTEM)]
    parts.append(described(tensors, legacy=True))
    parts.append(pickle.dumps([str(number) for number in range(len(tensors))], 2))
    out = bytearray(b"".join(parts))
    head, places, counts = len(out), {}, []
    for name, (dtype, _) in tensors.items():
        counts.append((len(out), len(out) + 8))
        out += struct.pack("<q", len(contents[name]) // STORAGES[dtype][1])
        places[name] = (len(out), len(out) + len(contents[name]))
        out += contents[name]
    # The numbers of elements say that nothing came in or was lost before them.
    own = {name: tuple(counts[: number + 2]) for number, name in enumerate(tensors)}
    return Made(bytes(out), places, head, ((0, head),), own)


def legacy_values(value: object) -> bytes:
    """Return a checkpoint of before torch 1.6 that holds a value without tensors."""
    return b"".join(pickle.dumps(part, 2) for part in (MAGIC, VERSION, SYSTEM, value, []))


def numbered(count: int, nbytes: int, seed: int = 0) -> tuple[dict[str, tuple[str, list[int]]], dict[str, bytes]]:
    """Return ``count`` float32 matrices of ``nbytes`` each, and their bytes."""
    import random

    rng = random.Random(seed)
    tensors = {f"layers.{number}.weight": ("float32", [nbytes // 64, 16]) for number in range(count)}
    return tensors, {name: rng.randbytes(nbytes) for name in tensors}


def _zipped(entries: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()


def _said(ending: str, content: bytes) -> Callable[[list[tuple[str, bytes]]], bytes]:
    return lambda members: _zipped([(name, content if name.endswith(ending) else old) for name, old in members])


def _called(old: str, new: str) -> Callable[[list[tuple[str, bytes]]], bytes]:
    return lambda members: _zipped([(name.replace(old, new), content) for name, content in members])


def _without(ending: str) -> Callable[[list[tuple[str, bytes]]], bytes]:
    return lambda members: _zipped([one for one in members if not one[0].endswith(ending)])


# What becomes of the members of a checkpoint when it is packed again, and what torch 2.13 says then; "": it reads it.
REPACKED: dict[str, tuple[Callable[[list[tuple[str, bytes]]], bytes], str]] = {
    "as it was": (_zipped, ""),
    "deflated": (lambda members: _zipped(members, zipfile.ZIP_DEFLATED), ""),
    "bzip2": (lambda members: _zipped(members, zipfile.ZIP_BZIP2), "it is encrypted, or packed by"),
    "another folder": (_called("model/", "my model v2/"), ""),
    "no folder": (_called("model/", ""), "the first member lies in no folder"),
    "two folders": (_called("model/", "a/b/"), "there is no member a/version"),
    "absolute": (_called("model/", "/home/model/"), "there is no member /version"),
    "with ./": (_called("model/", "./model/"), "there is no member ./version"),
    "folder entries": (lambda members: _zipped([("model/", b""), ("model/data/", b""), *members]), ""),
    "a file beside": (lambda members: _zipped([*members, ("README.txt", b"hello")]), "not in the folder model/"),
    "a file first": (lambda members: _zipped([("README.md", b"hi"), *members]), "the first member lies in no folder"),
    "bytes before": (lambda members: b"#!run me\n" + _zipped(members), "does not begin with a member"),
    "version 0": (_said("/version", b"0\n"), "it says 0; torch reads 1 to 10"),
    "version 10": (_said("/version", b"10\n"), ""),
    "version 11": (_said("/version", b"11\n"), "it says 11; torch reads 1 to 10"),
    "version 3abc": (_said("/version", b"3abc"), ""),
    "version x": (_said("/version", b"x\n"), "which is no number"),
    "no version": (_without("/version"), "there is no member model/version"),
    "upper case": (_called("version", "VERSION"), ""),
    "a line behind the order": (_said("/byteorder", b"little\n"), "not 'little' or 'big'"),
    "a storage that is longer": (_said("/data/0", bytes(20)), "it has 20 bytes, and its tensors say 16"),
    "no order": (_without("/byteorder"), ""),
}


def repacked(made: Made, how: str) -> bytes:
    """Return a checkpoint packed again in one of the ways of `REPACKED`."""
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        return REPACKED[how][0]([(one.filename, archive.read(one)) for one in archive.infolist()])
