"""Samples: PyTorch checkpoints, in a zip and as they were before, in shards, with code; and pickles of arrays."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from math import prod

from tests.dcp_files import METADATA, Dcp
from tests.pickle_arrays import array_pickle, arrays_in
from tests.pytorch_files import (
    STORAGES,
    Made,
    checkpoint,
    exported,
    legacy_checkpoint,
    rezipped,
    script,
    tar_checkpoint,
)
from tests.truth.known import Sample, Value, by_place, mixed, sample
from tests.zero_files import GROUPS, SHAPES, STATES_FILE, Zero, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "U8": "uint8"}


def shapes(first: int, count: int, width: int) -> dict[str, tuple[str, list[int]]]:
    """Return types and shapes of some layers of a model."""
    found: dict[str, tuple[str, list[int]]] = {"wte": ("float32", [64, 48])}
    for number in range(first, first + count):
        found |= {
            f"h.{number}.attn.weight": ("float32", [width, width]),
            f"h.{number}.attn.bias": ("float16", [width]),
            f"h.{number}.mask": ("bool", [width, 3]),
            f"h.{number}.mlp.weight": ("bfloat16", [width, 4 * width]),
            f"h.{number}.ids": ("int64", [width]),
            f"h.{number}.scale": ("float64", []),
        }
    return found | {"wpe": ("uint8", [100, 17])}


def contents_of(tensors: dict[str, tuple[str, list[int]]], seed: int) -> dict[str, bytes]:
    """Return bytes for all tensors."""
    rng = random.Random(seed)
    contents = {}
    for number, (key, (dtype, shape)) in enumerate(tensors.items()):
        content = mixed(rng, prod(shape) * STORAGES[dtype][1], number)
        contents[key] = bytes(byte & 1 for byte in content) if dtype == "bool" else content
    return contents


def values_of(found: Made, contents: dict[str, bytes]) -> dict[str, Value]:
    """Return the values of a checkpoint."""
    return {key: Value(contents[key], found.places[key], (*found.needs, *found.own[key])) for key in contents}


def landmarks_of(found: Made) -> tuple[int, ...]:
    """Return where damage to a checkpoint is worth most."""
    spans = (*found.places.values(), *found.needs, *(span for spans in found.own.values() for span in spans))
    marks = dict.fromkeys(place for span in spans for place in span)
    return 8, found.head // 2, found.head, *marks, len(found.content) - 22


def read_zip(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the tensors of a checkpoint that is sound where it matters; raises what zipfile raises."""
    found, numbers, content = {}, {"data": 0, "constants": 0}, path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        for name in sample.values:
            room = "constants" if name.startswith("CONSTANTS.") else "data"
            info = archive.getinfo(f"model/{room}/{numbers[room]}")
            numbers[room] += 1
            # As torch reads it: the name in the local header does not matter, its lengths do.
            at = info.header_offset
            if min(one.header_offset for one in archive.infolist()) < 0:
                raise zipfile.BadZipFile("the file begins behind its first members")
            begin = at + 30 + sum(struct.unpack_from("<HH", content, at + 26))
            found[name] = content[begin : begin + info.file_size]
    return found


def made(
    name: str,
    file: str,
    seed: int,
    make: Callable[..., Made],
    *,
    hashed: bool,
    tensors: dict[str, tuple[str, list[int]]] | None = None,
    read: Callable[[Sample, Path], dict[str, bytes]] | None = None,
) -> Sample:
    """Return a sample of a checkpoint that ``make`` writes."""
    tensors = tensors or shapes(0, 4, 40)
    contents = contents_of(tensors, seed)
    found = make(tensors, contents)
    marks, values = landmarks_of(found), values_of(found, contents)
    more = {"hashed": hashed, "header": found.head, "read": read or (read_zip if hashed else by_place)}
    return Sample(name, file, found.content, "tensors", values, "offset", marks, **more)  # type: ignore[arg-type]


@sample
def make_pytorch() -> Sample:
    return made("pytorch", "model.pt", 31, checkpoint, hashed=True)


@sample
def make_pytorch_rezipped() -> Sample:
    """Written by Python's zipfile, as users pack them again."""
    return made("pytorch-rezipped", "again.pt", 35, rezipped, hashed=True)


@sample
def make_pytorch_legacy() -> Sample:
    return made("pytorch-legacy", "old.pt", 32, legacy_checkpoint, hashed=False)


@sample
def make_pytorch_tar() -> Sample:
    """Of before 0.1.10, which had neither bool nor bfloat16."""
    older = {"bool": "uint8", "bfloat16": "float16"}
    tensors = {name: (older.get(dtype, dtype), shape) for name, (dtype, shape) in shapes(0, 3, 32).items()}
    return made("pytorch-tar", "older.pt", 33, tar_checkpoint, hashed=False, tensors=tensors)


@sample
def make_pytorch_distcp() -> Sample:
    """Archives behind each other, as torch.distributed.checkpoint writes the items of a process."""
    content, values, marks = b"", {}, [8]
    for number in range(5):
        contents = contents_of(tensors := shapes(number, 1, 24), 60 + number)
        found = checkpoint(tensors, contents)
        shift = len(content)
        for name, value in values_of(found, contents).items():
            place, *needs = ((begin + shift, end + shift) for begin, end in (value.place, *value.needs))
            values[f"{number}/{name}"] = Value(value.content, place, tuple(needs))
        marks += [place + shift for place in landmarks_of(found)]
        content += found.content
    return Sample("pytorch-distcp", "__0_0.distcp", content, "tensors", values, "stream", tuple(marks), hashed=True)


@sample
def make_pytorch_dcp() -> Sample:
    """A shard of a distributed checkpoint is hit: .metadata beside it says where the archive of each tensor lies."""
    import numpy as np

    rng = np.random.default_rng(9)
    arrays = {f"layer.{number}": rng.integers(0, 1 << 30, (6 + number, 40)) for number in range(8)}
    made = Dcp({name: (array, [(0, (0, 0), array.shape)]) for name, array in arrays.items()}, {})
    values, marks = {}, [8]
    for name, array in arrays.items():
        ((_, at, begin, end, stop),) = made.spans[name]
        values[name] = Value(array.tobytes(), (begin, end), ((at, begin), (end, stop)))
        marks += [at, begin, end, stop]
    shard, beside = made.files["__0_0.distcp"], {METADATA: made.files[METADATA]}
    how = {"hashed": True, "siblings": beside, "entry": METADATA, "folder_only": True, "leads": (METADATA,)}
    how["saved"] = "__0_0.distcp", "metadata.safetensors"
    where = "offset", tuple(dict.fromkeys(marks))
    return Sample("pytorch-dcp", "__0_0.distcp", shard, "tensors", values, *where, **how)  # type: ignore[arg-type]


# Of these some lie in the file of one rank, others in two, or in all.
ZERO_SHAPES = dict(zip(SHAPES, [(70, 30), (20, 20), (40, 60), (900,), (0, 4), (), (700,)], strict=True))


@sample
def make_deepspeed_zero() -> Sample:
    """The file of a rank is hit: it has a part of each group of parameters."""
    return zero("deepspeed-zero", STATES_FILE, Zero(2, [[2, 0, 4], [1, 0, 0, 3]], shapes=ZERO_SHAPES))


@sample
def make_deepspeed_zero_3() -> Sample:
    """The file of a rank is hit: it has a part of every parameter."""
    # The first two parameters are in one flat tensor.
    return zero("deepspeed-zero-3", f"zero_pp_rank_0_{STATES_FILE}", Zero(3, shapes=ZERO_SHAPES, cut=834))


def zero(called: str, entry: str, made: Zero) -> Sample:
    """Return a sample of a checkpoint of ZeRO whose second rank is hit."""
    file, values, others = name_of(1), {}, {}
    archive, marks = made.files[file], [8]
    content = archive.out.getvalue()
    head = archive.at["byteorder"][1]
    for name, array in made.values.items():
        pieces = made.pieces(GROUPS[0][0] if name == "tied" else name, 1)
        if not pieces:
            others[name] = Value(array.tobytes(), (0, 0))
            continue
        ((member, at, place),) = pieces
        flat = archive.place(member)  # of which one checksum covers all
        needs = (0, head), archive.entry("data.pkl", "byteorder"), flat
        values[name] = Value(array.tobytes(), place, (*needs, *archive.around(member)), at=at)
        marks += [*flat, *place]
    beside = {name: one.out.getvalue() for name, one in made.files.items() if name != file}
    how = {"hashed": True, "siblings": beside, "entry": entry, "folder_only": True, "header": head}
    how["saved"] = file, entry.replace(".pt", ".safetensors")
    how["read"] = read_rank
    how["sibling_values"], how["leads"] = others, tuple(beside)
    where = "offset", tuple(dict.fromkeys(marks))
    return Sample(called, file, content, "tensors", values, *where, **how)  # type: ignore[arg-type]


def read_rank(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the parameters of which a rank has a part, with what stands there now."""
    content = path.read_bytes()
    return {
        name: value.content[: value.at] + content[slice(*value.place)] + value.content[value.at + len(value.part) :]
        for name, value in sample.values.items()
    }


@sample
def make_pytorch_script() -> Sample:
    """The storages come first, and constants of the code have their own."""
    constants = {"CONSTANTS.c0": ("float32", [30, 7]), "CONSTANTS.c1": ("int64", [5])}
    return made("pytorch-script", "code.pt", 34, script, hashed=True, tensors=shapes(0, 3, 32) | constants)


@sample
def make_pt2() -> Sample:
    """A program of torch.export: the storages come first, then what names them."""
    return made("pt2", "program.pt2", 36, exported, hashed=True, tensors=shapes(0, 3, 32), read=read_exported)


def read_exported(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the weights of a program that is sound where it matters."""
    found, content = {}, path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("model/data/weights/model_weights_config.json"))["config"]
        for name in sample.values:
            info = archive.getinfo(f"model/data/weights/{told[name]['path_name']}")
            begin = info.header_offset + 30 + sum(struct.unpack_from("<HH", content, info.header_offset + 26))
            found[name] = content[begin : begin + info.file_size]
    return found


@sample
def make_pytorch_sharded() -> Sample:
    """An index and three checkpoints; the second is the one that is hit, and stands alone in an archive."""
    files, all_values, shards = {}, {}, []
    for number in range(3):
        file = f"pytorch_model-{number + 1:05}-of-00003.bin"
        tensors = {key: about for key, about in shapes(number * 3, 3, 24).items() if key.startswith("h.")}
        contents = contents_of(tensors, 40 + number)
        shards.append((file, checkpoint(tensors, contents), contents))
    names = {}
    for number, (file, found, contents) in enumerate(shards):
        names |= dict.fromkeys(contents, file)
        if number != 1:
            files[file] = found.content
            all_values |= values_of(found, contents)
    total = sum(len(content) for _, _, contents in shards for content in contents.values())
    index = {"metadata": {"total_size": total}, "weight_map": names}
    files["pytorch_model.bin.index.json"] = json.dumps(index, indent=1).encode()
    file, found, contents = shards[1]
    return Sample(
        "pytorch-sharded",
        file,
        found.content,
        "tensors",
        values_of(found, contents),
        "offset",
        landmarks_of(found),
        hashed=True,
        header=found.head,
        read=read_zip,
        siblings=files,
        sibling_values=all_values,
        entry="pytorch_model.bin.index.json",
    )


def read_pickle(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the arrays of a pickle."""
    return arrays_in(path.read_bytes())


@sample
def make_pickle() -> Sample:
    """Arrays of numpy, some in the words of old protocols and some in those of 5; one is read apart, by its size."""
    return pickled("pickle", "arrays.pkl", 51)


@sample
def make_pickle_dill() -> Sample:
    """The same arrays in the words of dill."""
    return pickled("pickle-dill", "arrays.dill", 52, dill=True)


def pickled(called: str, file: str, seed: int, *, dill: bool = False) -> Sample:
    """Return a sample of a pickle of arrays."""
    rng = random.Random(seed)
    arrays = {
        "wte": ("<f4", (64, 48)),
        "ids": ("<i8", (200,)),
        "codes": ("|u1", (33, 70)),
        "big": ("<f4", (700, 100)),
        "half": ("<f2", (41, 5)),
        "mask": ("|b1", (300,)),
        "wide": ("<f8", (300, 120)),
        "last": ("<i4", (1000,)),
    }
    contents = {
        name: mixed(rng, prod(shape) * int(word[2]), number)
        for number, (name, (word, shape)) in enumerate(arrays.items())
    }
    contents["mask"] = bytes(byte & 1 for byte in contents["mask"])
    content, places, tails = array_pickle(arrays, contents, dill=dill)
    # A cut right behind the bytes leaves it open whether that was an array.
    values = {name: Value(contents[name], places[name], ((0, places[name][0]), tails[name])) for name in arrays}
    marks = tuple(dict.fromkeys(mark for spans in (places, tails) for span in spans.values() for mark in span))
    return Sample(called, file, content, "tensors", values, "pickle", (8, *marks), read=read_pickle)
