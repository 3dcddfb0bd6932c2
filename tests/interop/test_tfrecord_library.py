"""TFRecord files as TensorFlow reads and writes them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import pparse
from pparse.writers.tfrecord import TfrecordWriter
from tests.interop.tensorflow.build import UnavailableError, tensorflow_python
from tests.interop.tensorflow.referee import QUIET
from tests.tfrecord_zoo import compare

MAKER = Path(__file__).with_name("make_tfrecord_zoo.py")
KEPT = Path(__file__).resolve().parent.parent / "data" / "tfrecord"
READ = """
import sys, json, tensorflow as tf
print(json.dumps([bytes(raw).hex() for raw in tf.data.TFRecordDataset(sys.argv[1]).as_numpy_iterator()]))
"""


def tensorflow(*arguments: object) -> str:
    try:
        python = tensorflow_python()
    except UnavailableError as error:
        if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(str(error))
    command = [python, "-P", *map(str, arguments)]
    ran = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    return ran.stdout


def test_random_files_of_tensorflow(tmp_path):
    tensorflow(MAKER, tmp_path, 11)
    assert compare(tmp_path) == 9


def test_the_kept_files_are_those_that_tensorflow_writes(tmp_path):
    tensorflow(MAKER, tmp_path)
    known = json.loads((KEPT / "facts.json").read_text())
    assert json.loads((tmp_path / "facts.json").read_text()).keys() == known.keys()
    for name in ("records.tfrecord", "empty.tfrecord"):  # the order of a map's keys, and deflate, may be others
        assert (tmp_path / name).read_bytes() == (KEPT / name).read_bytes()


def test_tensorflow_reads_what_is_written_and_recovered(tmp_path):
    records = [os.urandom(size) for size in (0, 1, 300, 100_000, 7)] * 3
    with open(tmp_path / "made.tfrecord", "wb") as stream:
        writer = TfrecordWriter(stream)
        for data in records:
            writer.write(data)
    content = (tmp_path / "made.tfrecord").read_bytes()
    assert [bytes.fromhex(raw) for raw in json.loads(tensorflow("-c", READ, tmp_path / "made.tfrecord"))] == records
    from pparse.recovery.recover import recover

    (tmp_path / "cut.tfrecord").write_bytes(content[: len(content) * 6 // 10])
    with pparse.open(tmp_path / "cut.tfrecord") as document:
        count = sum(1 for node in document.root.children() if node.status == "complete")
        recover(document, tmp_path / "out")
    saved = json.loads(tensorflow("-c", READ, tmp_path / "out" / "cut.tfrecord"))
    assert count > 5
    assert [bytes.fromhex(raw) for raw in saved] == records[:count]
