"""PaddlePaddle programs: what `info` and `get` say of one that paddle wrote, and how one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pparse
from tests.paddle_files import program

# Written by paddle 3.3.1: static.save_inference_model of two layers with a batch norm between them, as an old program.
MODEL = Path(__file__).resolve().parent / "data" / "paddle" / "mlp.pdmodel"


def test_info_names_what_a_user_asks_for(run):
    said = run("info", MODEL).out
    for words in (
        "version     3003001",
        "20, of which 10 persistable",
        "operators   9",
        "mul 2",
        "inputs      x",
        "softmax_0.tmp_0",
    ):
        assert words in said


def test_fields_are_those_that_paddle_wrote(run):
    found = json.loads(run("get", MODEL, "blocks[0].vars[0]").out)
    tensor = {"data_type": "FP32", "dims": [8]}
    kind = {"type": "DENSE_TENSOR", "dense_tensor": {"tensor": tensor}}
    assert found == {"name": "batch_norm_0.b_0", "type": kind, "persistable": True}
    with pparse.open(MODEL) as document:
        assert document.format == "paddle"
        assert not list(document.check())


def test_a_program_that_is_cut_counts_what_is_there(run, tmp_path):
    path = tmp_path / "inference.pdmodel"
    path.write_bytes(program().SerializeToString()[:200])
    said = run("info", path)
    assert (said.code, "feed 1" in said.out, "fetch" in said.out) == (4, True, False)


def test_a_program_is_told_by_its_first_block():
    with pparse.open(program().SerializeToString()) as document:
        assert document.format == "paddle"
    other = program()
    other.blocks[0].idx = 1
    with pparse.open(other.SerializeToString()) as document, pytest.raises(pparse.FormatError):
        document.parse()
