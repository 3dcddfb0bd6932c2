"""Tensors as dask arrays, and handles on a cluster; tensors shared with torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pparse

if TYPE_CHECKING:
    from pparse.tensors.tensor import Tensor

dask_array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("dask.distributed")

SHARDED = Path(__file__).parent.parent.parent / "docs" / "samples" / "sharded"


def mean(tensor: Tensor) -> float:
    return float(tensor.numpy().astype(np.float64).mean())


def test_a_tensor_is_a_dask_array_in_chunks():
    with pparse.view(SHARDED) as model:
        for tensor in model.values():
            whole = tensor.numpy()
            assert np.array_equal(dask_array.from_array(tensor).compute(), whole)
            chunked = tensor.to_dask(chunks=3)
            assert chunked.npartitions == int(np.prod([-(-length // 3) for length in tensor.shape]))
            assert (chunked.dtype, chunked.shape) == (whole.dtype, whole.shape)
            assert np.array_equal(chunked.compute(), whole)
            assert np.array_equal(chunked.compute(scheduler="processes", num_workers=2), whole)
            if tensor.ndim > 1:
                break


def test_two_workers_compute_the_mean_of_every_tensor_of_a_set():
    with (
        pparse.view(SHARDED) as model,
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        tensors = list(model.values())
        assert client.gather(client.map(mean, tensors)) == [mean(tensor) for tensor in tensors]
        for tensor in tensors[:4]:
            assert float(tensor.to_dask(chunks=4).astype("f8").mean().compute()) == pytest.approx(mean(tensor))


def test_workers_of_a_cluster_measure_what_one_process_does():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        for measure in (pparse.hash, pparse.stats):
            assert measure(SHARDED, executor=executor).to_dict() == measure(SHARDED).to_dict()


def test_torch_takes_a_tensor_by_dlpack():
    torch = pytest.importorskip("torch")
    with pparse.view(SHARDED) as model:
        for tensor in model.values():
            assert torch.equal(torch.from_dlpack(tensor), tensor.torch())
