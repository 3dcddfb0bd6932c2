"""Distributed checkpoints that torch writes with several processes: values as torch has and loads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pparse

torch = pytest.importorskip("torch")


def bits(tensor):
    """Return the bytes of a tensor, whose types torch does not all compare."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.filterwarnings("ignore:torch.distributed")
def test_values_are_those_that_torch_saved_and_loads(tmp_path):
    import torch.distributed.checkpoint as dcp

    folder, full = tmp_path / "c", tmp_path / "full.pt"
    made = Path(__file__).parent / "make_dcp.py"
    subprocess.run([sys.executable, made, folder, full], check=True, timeout=300)
    wanted = torch.load(full)
    loaded = {"model": {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}}
    dcp.load(loaded, checkpoint_id=str(folder), no_dist=True)
    with pparse.view(folder) as model:
        assert set(model) == {f"model.{name}" for name in wanted}
        assert dict(model.metadata) == {"step": 7, "lr.0": 0.1, "lr.1": 0.2, "name": "run"}
        for name, tensor in wanted.items():
            found = model[f"model.{name}"].torch()
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), name
            assert bits(found) == bits(tensor) == bits(loaded["model"][name]), name
        assert list(model.check()) == []
        assert all(found.verified or not found.size for found in model.values())
    for how in ("fsdp2", "async"):
        compare_with_torch(tmp_path / f"c-{how}", tmp_path / f"{how}.pt")


def compare_with_torch(folder, full):
    """Compare the tensors and objects of a checkpoint with those that torch's own converter makes of it."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(folder, full)
    wanted = dict(leaves(torch.load(full, weights_only=False)))
    assert {name.partition(".")[0] for name in wanted} == {"model", "optim", "list"}
    with pparse.view(folder) as model:
        assert set(model) == {name for name, value in wanted.items() if isinstance(value, torch.Tensor)}
        facts = dict(model.metadata)
        for name, value in wanted.items():
            if isinstance(value, torch.Tensor):
                found = model[name].torch()
                assert (found.dtype, found.shape, bits(found)) == (value.dtype, value.shape, bits(value)), name
            else:
                assert facts[name] == value, name
        assert list(model.check()) == []


def leaves(value, path=""):
    """Yield path and value of all that is in dicts and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    for key, inner in pairs if pairs is not None else ():
        yield from leaves(inner, f"{path}.{key}" if path else str(key))
    if pairs is None:
        yield path, value
