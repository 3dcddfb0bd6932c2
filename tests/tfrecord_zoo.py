"""Compares TFRecord files with what TensorFlow read from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

import pparse
from pparse.findings import Status

if TYPE_CHECKING:
    from pathlib import Path


def compare(folder: Path) -> int:
    """Assert that every file of ``folder`` has the values in its ``facts.json``; return how many files there are."""
    facts = json.loads((folder / "facts.json").read_text())
    for name, known in facts.items():
        records = [bytes.fromhex(raw) for raw in known["records"]]
        with pparse.open(folder / name) as document:
            if not records:
                assert not len(document.root) if document.format == "tfrecord" else document.format in ("gzip", "zlib")
                continue
            assert document.format == "tfrecord", name
            assert [node.open().read() for node in document.root.children()] == records, name
            assert not [finding for finding in document.check() if finding.severity == "error"], name
            assert document.result.listing.checksums() == (len(records), len(records), "record"), name
            assert document.status is Status.COMPLETE
            for node, features in zip(document.root.children(), known.get("features", ()), strict=False):
                assert node.kind == "tensorflow.Example"
                found = node.to_python()["features"]["feature"]
                assert {key: told(value) for key, value in found.items()} == features, (name, node.ordinal)
    return len(facts)


def told(feature: dict) -> list:
    """Return kind and values of a feature, as the facts have them."""
    if not feature:
        return [None, []]
    [(kind, holder)] = feature.items()
    values = holder.get("value", [])
    if kind == "float_list":  # a Python float has more digits than were stored
        assert all(value == np.float32(value) for value in values)
    return [kind, [value.hex() for value in values] if kind in ("bytes_list", "float_list") else values]
