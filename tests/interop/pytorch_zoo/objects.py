"""Samples of what surrounds tensors: whole modules, training state, foreign classes, odd keys, cycles, depth, numpy."""

from __future__ import annotations

import argparse
import datetime
import decimal
import io
import pathlib
import sys
from collections import OrderedDict, defaultdict, deque
from unittest import mock

import numpy as np
import torch
from torch._sources import get_source_lines_and_file

from tests.interop.pytorch_zoo.sample import fill, ramp, saved, written

LEGACY = {"_use_new_zipfile_serialization": False}


def models():
    return sys.modules["zoo_models"]


def net() -> torch.nn.Module:
    return fill(models().Net())


saved("module.pt", "a whole module")(net)


@written("legacy/module.pt", "a whole module, with the source of its own class; torch's sources are left out")
def _legacy_module(path):
    def own_source(kind):
        if not kind.__module__.startswith("zoo_models"):
            raise OSError("not told: it would name a folder, and is long")
        return get_source_lines_and_file(kind)

    with mock.patch("torch.serialization.get_source_lines_and_file", own_source):
        torch.save(net(), path, **LEGACY)


saved("module_protocol5.pt", pickle_protocol=5)(net)


@saved("state_dict.pt", "an OrderedDict with the attribute _metadata")
def _state_dict():
    return net().state_dict()


saved("legacy/state_dict.pt", **LEGACY)(_state_dict)


def small():
    return {"a": ramp(2, 3), "b": [1, "é", None]}


for number in range(6):
    saved(f"protocols/legacy{number}.pt", pickle_protocol=number, **LEGACY)(small)
    if number >= 1:
        saved(f"protocols/zip{number}.pt", pickle_protocol=number)(_state_dict)


@saved("module_tied.pt")
def _tied():
    return fill(models().TiedNet())


@saved("module_layers.pt", "layers of torch itself: recurrent, attention, embedding, containers")
def _layers():
    layers = {
        "lstm": torch.nn.LSTM(2, 3),
        "attention": torch.nn.MultiheadAttention(4, 2),
        "embedding": torch.nn.Embedding(5, 2, padding_idx=0),
        "in_order": torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Identity()]),
        "by_name": torch.nn.ParameterDict({"x": torch.nn.Parameter(ramp(2)), "y": torch.nn.Parameter(ramp(3))}),
        "several": torch.nn.ParameterList([torch.nn.Parameter(ramp(2)), torch.nn.Parameter(ramp(3))]),
    }
    return fill(torch.nn.ModuleDict(layers))


def training() -> dict[str, object]:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    for number, state in enumerate(optimizer.state.values()):
        for value in state.values():
            value.copy_(ramp(*value.shape, start=number))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    return {
        "model": fill(model).state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 12,
        "lr": 1e-3,
        "best": float("inf"),
        "name": "run-7",
        "done": False,
        "extra": None,
        "args": argparse.Namespace(batch=32, lr=0.1, layers=[1, 2], path=None, weights=ramp(2)),
        "rng": torch.arange(16, dtype=torch.uint8),
    }


saved("training.pt", "model, optimizer with integer keys, scheduler, arguments")(training)
saved("legacy/training.pth.tar", "named as tar, and is none", **LEGACY)(training)


@saved("lightning.ckpt", "classes of pytorch_lightning, omegaconf and others that are not installed")
def _lightning():
    module = sys.modules
    base, nodes = module["omegaconf.base"], module["omegaconf.nodes"]
    content = {"lr": nodes.AnyNode(0.1), "name": nodes.AnyNode("adam")}
    config = module["omegaconf.dictconfig"].DictConfig(content, base.ContainerMetadata(optional=True, key=None))
    callback = module["pytorch_lightning.callbacks.model_checkpoint"].ModelCheckpoint
    return {
        "epoch": 3,
        "global_step": 1200,
        "pytorch-lightning_version": "1.4.9",
        "state_dict": OrderedDict([("model.weight", ramp(3, 2)), ("model.bias", ramp(3))]),
        "callbacks": {callback: {"monitor": "loss", "best": ramp(1)[0]}},
        "checkpoint": callback("loss", {"last.ckpt": torch.tensor(0.25)}),
        "optimizer_states": [{"state": {0: {"step": 5, "exp_avg": ramp(3, 2)}}, "param_groups": [{"params": [0]}]}],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": module["pytorch_lightning.utilities.parsing"].AttributeDict(config=config, size=3),
        "phase": module["hydra_like"].Phase.TRAIN,
        "collate": module["hydra_like"].collate,
    }


@saved("foreign_tensors.pt", "tensors in attributes and slots of foreign objects")
def _foreign():
    slotted = models().Slotted()
    slotted.weight, slotted.count = ramp(2), 3
    return {"config": models().Config(weights={"w": ramp(3)}, depth=2), "slotted": slotted}


@saved("plain_objects.pt", "objects of the standard library, and of torch without data")
def _plain():
    return {
        "pair": models().Pair(ramp(2), 3),
        "default": defaultdict(list, {"a": [ramp(1)]}),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "layout": torch.strided,
        "scheme": torch.per_tensor_affine,
        "set": {1, 2, 3},
        "frozen": frozenset(["x"]),
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"abc"),
        "complex": 1 + 2j,
        "large": 2**200,
        "negative": -(2**70),
        "tuple": (),
        "class": OrderedDict,
        "function": torch.nn.functional.relu,
        "integers": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, 2**63],
        "floats": [0.1, -0.0, float("inf"), 5e-324],
        "text": ["", "é", "日本", "\U0001f600", "a\nb", "\udc80", "x" * 300],
    }


@saved("library_objects.pt", "objects that are rebuilt by calls: their values are not told, only that they are there")
def _library():
    return {
        "deque": deque([1, 2]),
        "date": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "decimal": decimal.Decimal("1.5"),
        "path": pathlib.PurePosixPath("a/b"),
        "range": range(3),
        "slice": slice(1, 2),
        "weight": ramp(2),
    }


def odd_keys() -> dict[object, object]:
    return {
        "a.b.c": ramp(1),
        7: ramp(1, start=1),
        "7": ramp(1, start=2),
        -1: ramp(1, start=3),
        "größe": ramp(1, start=4),
        "层.权重": ramp(1, start=5),
        "": ramp(1, start=6),
        None: ramp(1, start=7),
        (1, "x"): ramp(1, start=8),
        True: ramp(1, start=9),
        2.5: ramp(1, start=10),
        "with space": ramp(1, start=11),
        "line\nbreak": ramp(1, start=12),
        "a[0]": ramp(1, start=13),
        "a": {"": ramp(1, start=14), "b": {"c": ramp(1, start=15)}, 0: ramp(1, start=16)},
        "x" * 300: ramp(1, start=17),
        "\U0001f600": ramp(1, start=18),
        torch.float32: ramp(1, start=19),
        b"raw": ramp(1, start=20),
    }


saved("odd_keys.pt", "two keys that are written alike: the second name ends in #2")(odd_keys)
saved("legacy/odd_keys.pt", **LEGACY)(odd_keys)


@saved("cycle.pt", "a dict inside itself, and a list")
def _cycle():
    ring: dict[str, object] = {"weight": ramp(2)}
    ring["self"] = ring
    circle: list[object] = [ramp(3)]
    circle.append(circle)
    owner = models().Config(bias=ramp(1))
    owner.parent = {"child": owner}
    return {"ring": ring, "circle": circle, "owner": owner}


@saved("shared.pt", "one dict at three places, and one list twice in a list")
def _shared():
    inner = {"w": ramp(2), "n": 1}
    row = [ramp(1)]
    return {"a": inner, "b": inner, "c": {"d": inner}, "rows": [row, row]}


def deep() -> object:
    value: object = {"weight": ramp(3)}
    for number in range(50):
        value = [value] if number % 2 else {"d": value}
    return value


saved("deep.pt", "50 levels of dicts and lists")(deep)


@saved("many.pt", "150 tensors: names of storages beyond one digit, memo numbers beyond a byte")
def _many():
    return {f"layers.{number}.weight": ramp(2, start=number) for number in range(150)}


@saved("long_list.pt", "more than a batch of 1,000 items")
def _long():
    return {"numbers": list(range(1500)), "last": ramp(2)}


def arrays() -> dict[str, object]:
    return {
        "float32": np.arange(6, dtype="f4").reshape(2, 3) / 4,
        "big_endian": np.arange(4, dtype=">i4") * 70_000,
        "fortran": np.asfortranarray(np.arange(12, dtype="i2").reshape(3, 4)),
        "strided": np.arange(20, dtype="u1").reshape(4, 5)[::2, 1:4],
        "scalar_array": np.array(2.5),
        "none": np.empty((0, 3), "f8"),
        "bool": np.array([True, False]),
        "complex": np.array([1 + 2j], "c8"),
        "half": np.array([0.5], "f2"),
        "uint64": np.array([2**64 - 1], "u8"),
        "high_bytes": np.arange(256, dtype="u1"),
        "float64": np.float64(0.1),
        "int64": np.int64(-5),
        "bool_": np.bool_(True),
        "float32_scalar": np.float32(0.5),
        "tensor": ramp(2),
        "list": [np.arange(3), np.int32(7)],
    }


saved("numpy.pt", "arrays as latin-1 strings of their bytes")(arrays)
saved("numpy_protocol4.pt", pickle_protocol=4)(arrays)
saved("legacy/numpy.pt", **LEGACY)(arrays)


@saved("generator.pt", "what random generators save: bytes in a tensor, and numpy's state")
def _generator():
    state = ("MT19937", np.arange(624, dtype=np.uint32), 624, 0, 0.0)
    return {"torch": torch.arange(50, dtype=torch.uint8), "numpy": state, "python": (3, tuple(range(50)), None)}


@written("buffer.pt", "saved to a buffer: the top folder is archive")
def _buffer(path):
    buffer = io.BytesIO()
    torch.save({"w": ramp(2)}, buffer)
    path.write_bytes(buffer.getvalue())


@written("renamed.pt", "saved under another name, which stays the top folder")
def _renamed(path):
    other = path.with_name("épreuve 2.pt")
    torch.save({"w": ramp(2)}, other)
    other.rename(path)


@saved("new_names.bin")
def _bin():
    return {"bert.embeddings.weight": ramp(4, 2), "bert.encoder.layer.0.weight": ramp(2, 2)}


SHARDS = [["a.weight", "a.bias"], ["b.weight"], ["c.weight", "c.bias", "d"]]
for number, shard in enumerate(SHARDS, 1):
    saved(f"sharded/pytorch_model-{number:05}-of-00003.bin")(
        lambda shard=shard, number=number: {name: ramp(2, 3, start=10 * number + len(name)) for name in shard}
    )
