"""TorchScript: scripted, traced and frozen modules, with constants, lists and dicts of tensors, and mobile files."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from unittest import mock

import torch
from torch._sources import get_source_lines_and_file

from tests.interop.pytorch_zoo.by_hand import Record, zip_bytes
from tests.interop.pytorch_zoo.sample import fill, ramp, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def told_elsewhere(*args: Any) -> Any:
    """Return a function's source as torch finds it, with a file name that is the same on each machine."""
    lines, number, file = get_source_lines_and_file(*args)
    return lines, number, f"torch/{file.rpartition('/torch/')[2]}" if file and "/torch/" in file else file


def script(name: str, note: str = "") -> Any:
    """Add a file that the decorated function writes; torch's own folder is not named in it."""

    def decorate(write: Any) -> None:
        def write_it(path: Any) -> None:
            with (
                mock.patch("torch._sources.get_source_lines_and_file", told_elsewhere),
                mock.patch("torch.jit.frontend.get_source_lines_and_file", told_elsewhere),
            ):
                write(path)

        written(f"script/{name}", note, referee="script")(write_it)

    return decorate


def model(kind: str) -> torch.nn.Module:
    return fill(getattr(sys.modules["zoo_models"], kind)())


@script("scripted.pt", "parameters, buffers, a tensor that is an attribute, lists")
def _scripted(path):
    torch.jit.save(torch.jit.script(model("Shifted")), path)


@script("net.pt", "convolution and batch normalisation")
def _net(path):
    torch.jit.save(torch.jit.script(model("Net").eval()), path)


@script("tied.pt", "one parameter under two names")
def _tied(path):
    torch.jit.save(torch.jit.script(model("TiedNet")), path)


def without_debug(path: Any) -> None:
    """Write a file again by hand, without what tells the source of each line."""
    with zipfile.ZipFile(path) as archive:
        records = [Record(name.split("/", 1)[1], archive.read(name)) for name in archive.namelist()]
    kept = [replace(record, align=64) for record in records if not record.name.endswith(".debug_pkl")]
    path.write_bytes(zip_bytes(kept, top=f"{path.stem}/"))


@script("traced.pt", "traced, with constant tensors in its code; without .debug_pkl, zip written by hand")
def _traced(path):
    traced = torch.jit.trace(model("Convolved"), ramp(1, 2, 4))
    torch.jit.save(traced, path)
    without_debug(path)


@script("frozen.pt", "frozen: all weights are constants of the code")
def _frozen(path):
    torch.jit.save(torch.jit.freeze(torch.jit.script(model("Net").eval())), path)


@script("collections.pt", "lists and dicts of tensors as attributes; half and integer types, views of one storage")
def _collections(path):
    module = torch.jit.script(model("Collected"))
    torch.jit.save(module, path)


@script("extra_files.pt", "with files of the user's")
def _extra(path):
    extra = {"note.txt": "hello", "config/settings.json": "{}"}
    torch.jit.save(torch.jit.script(model("Shifted")), path, _extra_files=extra)


@script("mobile.ptl", "with the byte code of the mobile interpreter")
def _mobile(path):
    torch.jit.script(model("Shifted"))._save_for_lite_interpreter(str(path))


@script("no_debug.pt", "without .debug_pkl; zip written by hand")
def _no_debug(path):
    torch.jit.save(torch.jit.script(model("Shifted")), path)
    without_debug(path)


@script("plain_attributes.pt", "only values that are no tensors")
def _plain(path):
    torch.jit.save(torch.jit.script(sys.modules["zoo_models"].Plain()), path)
