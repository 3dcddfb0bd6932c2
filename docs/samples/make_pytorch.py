"""Makes ``tiny-gpt.pt``, a training checkpoint, and the same cut, with torch: ``python docs/samples/make_pytorch.py``.

It has the weights of ``tiny-gpt.safetensors``, the state of an optimizer for one of them, and an object of a class that
exists nowhere else, as checkpoints of training programs do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent


class Config:
    """What the training program was told."""


def main() -> None:
    """Write both files."""
    module = ModuleType("trainer")
    Config.__module__, Config.__qualname__ = "trainer", "Config"
    module.Config = Config  # type: ignore[attr-defined]
    sys.modules["trainer"] = module
    config = Config()
    config.layers, config.heads = 2, 2  # type: ignore[attr-defined]
    model = load_file(HERE / "tiny-gpt.safetensors")
    state = {0: {"step": torch.tensor(900.0), "exp_avg": torch.full((64, 16), 0.5)}}
    saved = {"model": model, "optimizer": {"state": state}, "epoch": 3, "lr": 0.0006, "config": config}
    target = HERE / "tiny-gpt.pt"
    torch.save(saved, target)
    whole = target.read_bytes()
    (HERE / "tiny-gpt.cut.pt").write_bytes(whole[: len(whole) * 6 // 10])


if __name__ == "__main__":
    main()
