"""The list of the zoo's files, and what all of them are filled with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any


@dataclass(frozen=True)
class Sample:
    """One file: how it is written, who reads it, and what is odd about it."""

    name: str
    write: Callable[[Path], None]
    referee: str = "torch"
    note: str = ""
    meant: Callable[[], Any] | None = None
    """What was put into it, where torch reads something else, or refuses it though all is there."""


# What torch writes, and does not read.
UNREAD = ("legacy/untyped.pt",)
SAMPLES: dict[str, Sample] = {}


def add(name: str, write: Callable[[Path], None], note: str = "", referee: str = "torch", meant: Any = None) -> None:
    """Add a file that ``write(path)`` writes, and that ``referee`` reads."""
    assert name not in SAMPLES, name
    SAMPLES[name] = Sample(name, write, referee, note, meant)


def saved(name: str, note: str = "", **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a file of torch.save: of what the decorated function returns, with these options."""

    def decorate(make: Callable[[], Any]) -> Callable[[], Any]:
        meant = None if name not in UNREAD else make
        add(name, lambda path: torch.save(make(), path, **options), note, meant=meant)
        return make

    return decorate


def written(name: str, note: str = "", referee: str = "torch", meant: Any = None) -> Callable[[Any], Any]:
    """Add a file that the decorated function writes to its path."""

    def decorate(write: Callable[[Path], None]) -> Callable[[Path], None]:
        add(name, write, note, referee, meant)
        return write

    return decorate


def ramp(*shape: int, dtype: torch.dtype = torch.float32, start: int = 0) -> torch.Tensor:
    """Return numbers that differ in their bytes, and do not depend on the processor."""
    count = math.prod(shape)
    numbers = torch.arange(start, start + count, dtype=torch.int64)
    if dtype.is_complex:
        pairs = torch.stack([numbers * 3 - 7, 11 - numbers * 5], -1).to(torch.float32) / 4
        return torch.view_as_complex(pairs).to(dtype).reshape(shape)
    if dtype is torch.bool:
        return (numbers * 5 % 3 == 1).reshape(shape)
    if dtype.is_floating_point:
        return ((numbers * 37 % 101 - 50).to(torch.float32) / 8).to(dtype).reshape(shape)
    return (numbers * 37 % 101).to(dtype).reshape(shape)


def fill(module: torch.nn.Module) -> torch.nn.Module:
    """Give a module numbers that do not come from a generator."""
    with torch.no_grad():
        for number, value in enumerate(module.parameters()):
            value.copy_(ramp(*value.shape, start=number))
    return module
