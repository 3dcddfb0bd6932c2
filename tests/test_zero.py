"""Checkpoints of DeepSpeed's ZeRO, made without torch as its engine writes them (0.19): values, and damage."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pparse
from tests.rows import rows
from tests.zero_files import RANKS, STATE, Saved, rank_file, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("stage", "paddings"), [(1, None), (2, [[2, 0, 4], [1, 0, 0, 3]]), (3, None)])
def test_parameters_are_put_together(stage, paddings, tmp_path, run) -> None:
    wanted = write(tmp_path, stage, paddings)
    with pparse.view(tmp_path) as model:
        assert [tensor.name for tensor in model.tensors()] == list(wanted)
        for name, array in wanted.items():
            assert np.array_equal(model[name].numpy(), array), name
        assert np.array_equal(model["emb.weight"][3:5, 1], wanted["emb.weight"][3:5, 1])
        assert not [finding for finding in model.check() if finding.is_fault]
        assert model.metadata["ds_version"] == "0.19.8"
        assert not any("shapes" in name for name in model.metadata)
        assert model.status.value == "complete"
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    pparse.convert(tmp_path, out)
    with pparse.view(out) as written:
        assert all(np.array_equal(written[name].numpy(), array) for name, array in wanted.items())
    assert "deepspeed-zero" in run("info", tmp_path).out


@rows("stage, hit", [(2, 1), (3, 1), (3, 0)])
def test_a_rank_that_is_lost_or_cut(stage, hit, tmp_path_factory, run) -> None:
    folder = tmp_path_factory.mktemp("zero")
    wanted = write(folder, stage)
    whole = rank_file(folder, hit).read_bytes()
    for size in (None, 0, 100, len(whole) // 2, len(whole) - 30):
        rank_file(folder, hit).unlink(missing_ok=True)
        if size is not None:
            rank_file(folder, hit).write_bytes(whole[:size])
        with pparse.view(folder) as model:
            statuses = {}
            for tensor in model.tensors():
                statuses[tensor.name] = tensor.status.value
                if tensor.is_complete:
                    assert np.array_equal(tensor.numpy(), wanted[tensor.name]), (size, tensor.name)
                else:
                    assert tensor.finding is not None
                    with pytest.raises(pparse.TensorError):
                        tensor.numpy()
            assert statuses["buffer"] == statuses["frozen"] == "complete"
            lost = [name for name, status in statuses.items() if status != "complete"]
            assert lost or size == len(whole) - 30
            assert (model.status.value == "complete") == (not lost and size is None), size
        codes = {run(command, folder).code for command in ("ls", "info", "check")}
        assert codes == {4}, size


def test_a_changed_byte_of_the_shapes_is_in_doubt(tmp_path) -> None:
    wanted = write(tmp_path, 2)
    path = tmp_path / "mp_rank_00_model_states.pt"
    content = bytearray(path.read_bytes())
    at = content.index(b"K\x11K\x06")  # 17, 6
    content[at + 1] = 16
    path.write_bytes(content)
    with pparse.view(tmp_path) as model:
        for tensor in model.tensors():
            if tensor.is_complete:
                assert np.array_equal(tensor.numpy(), wanted[tensor.name]), tensor.name
        assert model["emb.weight"].status.value == "damaged"


def test_what_does_not_fit_is_damaged(tmp_path) -> None:
    write(tmp_path, 2)
    saved = Saved()
    state = {"zero_stage": 2, "single_partition_of_fp32_groups": [saved.tensor(np.zeros(4))]}
    for rank in range(RANKS):
        saved.write(rank_file(tmp_path, rank), {"optimizer_state_dict": state})
    with pparse.view(tmp_path) as model:
        found = {tensor.name: tensor.status.value for tensor in model.tensors() if prod(tensor.shape)}
    assert {found[name] for name in ("emb.weight", "l.0.weight", "l.0.bias")} == {"damaged"}


def _flats(folder: Path, rank: int, key: str) -> list[np.ndarray]:
    with pparse.view(rank_file(folder, rank)) as model:
        return [model[f"{STATE}.{key}.{group}"].numpy() for group in (0, 1)]


@rows("stage, key", [(2, "single_partition_of_fp32_groups"), (3, "fp32_flat_groups")])
def test_a_rank_that_has_more_than_others_or_is_cut_elsewhere(stage, key, tmp_path_factory) -> None:
    for is_longer, rank in ((True, 1), (False, 1), (True, 0), (False, 0)):
        folder = tmp_path_factory.mktemp("zero")
        wanted = write(folder, stage)
        one, two = _flats(folder, rank, key)
        saved = Saved()
        made = [np.append(np.ones(6), one), two] if is_longer else [np.append(one, two[:2]), two[2:]]
        saved.write(rank_file(folder, rank), {STATE: {"zero_stage": stage, key: [saved.tensor(flat) for flat in made]}})
        with pparse.view(folder) as model:
            found = list(model.tensors())
            assert "damaged" in {tensor.status.value for tensor in found}
            for tensor in found:
                assert not tensor.is_complete or np.array_equal(tensor.numpy(), wanted[tensor.name]), tensor.name


def test_ranks_that_nobody_counts(tmp_path) -> None:
    """Without the number of ranks, and the last one, parameters are not divided as they would have been."""
    wanted = write(tmp_path, 3, said=0)
    with pparse.view(tmp_path) as model:
        assert np.array_equal(model["emb.weight"].numpy(), wanted["emb.weight"])
    rank_file(tmp_path, RANKS - 1).unlink()
    with pparse.view(tmp_path) as model:
        found = {tensor.name: tensor.status.value for tensor in model.tensors() if prod(tensor.shape)}
        assert {found[name] for name in ("emb.weight", "head", "l.0.bias", "one")} == {"damaged"}


def test_ranks_in_a_row_whose_files_are_not_there_are_one_piece(tmp_path) -> None:
    """The time does not grow with the ranks that a file claims; the missing files are counted all the same."""
    write(tmp_path, 3, said=30_000)
    with pparse.view(tmp_path) as model:
        assert len(model["frozen"].spans) == RANKS + 1
        assert model["frozen"].status.value == "truncated"
        assert model["emb.weight"].status.value == "damaged"
        assert model.extent().missing_files == 2 * (30_000 - RANKS)


def test_shapes_that_nobody_knows_and_files_of_two_kinds(tmp_path, run) -> None:
    """What lies behind a shape that is not known may lie anywhere; of two kinds, nobody knows which to take."""
    wanted = write(tmp_path, 2)
    path = tmp_path / "mp_rank_00_model_states.pt"
    whole = path.read_bytes()
    for words in (b"torch\nSize\n", b"OrderedDict"):
        at = whole.index(words)
        path.write_bytes(whole[:at] + b"x" + whole[at + 1 :])
        with pparse.view(tmp_path) as model:
            for tensor in model.tensors():
                assert not tensor.is_complete or np.array_equal(tensor.numpy(), wanted[tensor.name]), tensor.name
            assert [finding for finding in model.check() if finding.is_fault]
    path.write_bytes(whole)
    for rank in range(RANKS):
        other = rank_file(tmp_path, (rank + 1) % RANKS)
        (tmp_path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(other.read_bytes())
    assert "not one model" in run("info", tmp_path).out


def test_other_folders(tmp_path, run) -> None:
    """With tensor parallelism, files are listed one by one; without the optimizer's, it is a checkpoint as any."""
    write(tmp_path, 2)
    (tmp_path / "mp_rank_01_model_states.pt").write_bytes((tmp_path / "mp_rank_00_model_states.pt").read_bytes())
    found = run("info", tmp_path).out
    assert "not one model" in found
    assert "DeepSpeed checkpoint of 2 ranks (mp_rank_00, mp_rank_01)" in found
    for rank in ("mp_rank_00_000", "mp_rank_01_000"):
        path = tmp_path / "iter_0000001" / rank / "model_optim_rng.pt"
        path.parent.mkdir(parents=True)
        path.write_bytes((tmp_path / "mp_rank_00_model_states.pt").read_bytes())
    assert "Megatron-LM checkpoint of 2 ranks (mp_rank_00_000, mp_rank_01_000)" in run("ls", path.parent.parent).out
    for path in tmp_path.glob("bf16*"):
        path.unlink()
    with pparse.view(tmp_path / "mp_rank_00_model_states.pt") as model:
        assert {tensor.name for tensor in model.tensors()} == {"module.buffer", "frozen_param_fragments.frozen"}
