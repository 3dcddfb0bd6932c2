"""Writes TFRecord files with TensorFlow, and what its readers make of them: ``make_tfrecord_zoo.py FOLDER [SEED]``.

Without a seed, the small files of tests/data/tfrecord; with one, larger ones of random records. ``facts.json`` has, by
file, the records in hexadecimal as ``tf.data.TFRecordDataset`` returns them and, of Examples, every feature.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import tensorflow as tf

FORMS = {"": None, "gzip-": "GZIP", "zlib-": "ZLIB"}


def feature(values: list) -> tf.train.Feature:
    """Return a feature of bytes, floats or integers; of nothing, if there are no values."""
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(features: dict[str, list]) -> bytes:
    """Return a serialized Example."""
    made = tf.train.Features(feature={name: feature(values) for name, values in features.items()})
    return tf.train.Example(features=made).SerializeToString()


def sequence(context: dict[str, list], lists: dict[str, list[list]]) -> bytes:
    """Return a serialized SequenceExample."""
    steps = {name: tf.train.FeatureList(feature=map(feature, values)) for name, values in lists.items()}
    made = tf.train.Features(feature={name: feature(values) for name, values in context.items()})
    lists_made = tf.train.FeatureLists(feature_list=steps)
    return tf.train.SequenceExample(context=made, feature_lists=lists_made).SerializeToString()


def small() -> dict[str, list[bytes]]:
    """Return the records of the files that are kept."""
    rng = random.Random(5)
    return {
        "records": [b"first", b"", rng.randbytes(300), b"\0" * 40, "größer".encode()],
        "examples": [
            example(
                {
                    "image/encoded": [b"\x89PNG" + rng.randbytes(40)],
                    "label": [number, -number, 2**63 - 1, -(2**63)],
                    "box": [0.1 * number, -0.0, 1e30, float("inf")],
                    "name, größer": ["ä".encode(), b""],
                    "nothing": [],
                }
            )
            for number in range(4)
        ],
        "sequences": [
            sequence({"id": [b"a"], "length": [2]}, {"tokens": [[1, 2, 3], [4]], "words": [[b"x", b"y"], []]}),
            sequence({}, {"tokens": []}),
        ],
        "empty": [],
    }


def random_ones(seed: int) -> dict[str, list[bytes]]:
    """Return larger files of random records."""
    rng = random.Random(seed)
    kinds = [lambda: rng.randbytes(rng.randrange(60)), rng.random, lambda: rng.randrange(-(2**63), 2**63)]

    def values() -> list:
        kind = rng.choice(kinds)
        return [kind() for _ in range(rng.choice((0, 1, 3, 40)))]

    return {
        "records": [rng.randbytes(rng.choice((0, 1, 15, 300, 5_000, 70_000))) for _ in range(400)],
        "examples": [example({f"f{number}": values() for number in range(rng.randint(1, 9))}) for _ in range(300)],
        "large": [rng.randbytes(5_000_000), b"", rng.randbytes(3)],
    }


def told(one: tf.train.Feature) -> list:
    """Return kind and values of a feature, as JSON has them."""
    kind = one.WhichOneof("kind")
    values = list(getattr(one, kind).value) if kind else []
    return [kind, [value.hex() for value in values] if kind in ("bytes_list", "float_list") else values]


def facts_of(path: Path, form: str | None) -> dict:
    """Return what TensorFlow reads."""
    records = [
        bytes(raw) for raw in tf.data.TFRecordDataset(str(path), compression_type=form or "").as_numpy_iterator()
    ]
    options = tf.io.TFRecordOptions(compression_type=form or "")
    assert records == list(tf.compat.v1.io.tf_record_iterator(str(path), options))
    found: dict = {"records": [raw.hex() for raw in records]}
    if "examples" in path.name:
        parsed = map(tf.train.Example.FromString, records)
        found["features"] = [{name: told(one) for name, one in ex.features.feature.items()} for ex in parsed]
    return found


def main() -> None:
    """Write the files and their facts."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = random_ones(int(sys.argv[2])) if len(sys.argv) > 2 else small()
    facts = {}
    for stem, records in made.items():
        for prefix, form in FORMS.items():
            path = folder / f"{prefix}{stem}.tfrecord"
            with tf.io.TFRecordWriter(str(path), form) as writer:
                for raw in records:
                    writer.write(raw)
            facts[path.name] = facts_of(path, form)
    (folder / "facts.json").write_text(json.dumps(facts, indent=None, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
