"""Writes a distributed checkpoint with four processes, and all tensors by themselves: ``make_dcp.py FOLDER FULL``.

And two of a model that FSDP2 divides, with the state of its optimizer, in ``FOLDER-fsdp2`` and ``FOLDER-async``.
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

WORLD = 4


def tensors() -> dict[str, tuple[torch.Tensor, tuple[str, ...]]]:
    """Return each tensor, and how it is placed: on one dimension of processes, or on two of two each."""
    made = torch.Generator().manual_seed(1)
    normal = torch.randn(9, 6, generator=made)
    return {
        "rows": (normal, ("0",)),
        "columns": (torch.randn(5, 7, generator=made), ("1",)),
        "few": (torch.arange(3), ("0",)),
        "grid": (torch.randn(6, 8, generator=made), ("0", "1")),
        "half": (torch.randn(4, 5, generator=made).bfloat16(), ("1",)),
        "eight": (torch.randn(8, 4, generator=made).to(torch.float8_e4m3fn), ("0",)),
        "complex": (torch.randn(4, 4, generator=made, dtype=torch.complex64), ("0",)),
        "flags": (normal > 0, ("0",)),
        "wide": (torch.arange(8).to(torch.uint16).reshape(2, 4), ("1",)),
        "copies": (torch.randn(3, 3, generator=made), ("-",)),
        "deep": (torch.randn(4, 3, 5, generator=made), ("2",)),
        "scalar": (torch.tensor(3.5), ()),
        "plain": (torch.randn(5, generator=made), ()),
        "turned": (torch.randn(5, 4, generator=made).t(), ()),
        "none": (torch.empty(0, 3), ()),
    }


def run(rank: int, folder: str, full: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    meshes = {1: init_device_mesh("cpu", (WORLD,)), 2: init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))}
    state = {}
    for name, (tensor, how) in tensors().items():
        places = [Replicate() if dim == "-" else Shard(int(dim)) for dim in how]
        state[name] = distribute_tensor(tensor, meshes[len(how)], places, src_data_rank=None) if how else tensor
    dcp.save({"model": state, "step": 7, "lr": [0.1, 0.2], "name": "run"}, checkpoint_id=folder)
    train(folder, meshes[1])
    if not rank:
        torch.save({name: tensor for name, (tensor, _) in tensors().items()}, full)
    dist.destroy_process_group()


def train(folder: str, mesh: DeviceMesh) -> None:
    """Train a model that FSDP2 divides, and save it with its optimizer, in two ways."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)) for _ in range(2)]
    model = torch.nn.Sequential(torch.nn.Embedding(13, 8), *layers, torch.nn.LayerNorm(8), torch.nn.Linear(8, 5))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randint(0, 13, (4, 3))).sum().backward()
        optimizer.step()
    weights, state = get_state_dict(model, optimizer)
    saved = {"model": weights, "optim": state, "list": [1, torch.arange(4), {"deep": [torch.ones(2, 2), "x"]}]}
    dcp.save(saved, checkpoint_id=f"{folder}-fsdp2", planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True))
    writer = dcp.FileSystemWriter(f"{folder}-async", thread_count=3)
    dcp.async_save(saved, storage_writer=writer).result()


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    tempfile.tempdir = os.path.dirname(sys.argv[1])
    torch.multiprocessing.spawn(run, (sys.argv[1], sys.argv[2], free_port()), nprocs=WORLD)
