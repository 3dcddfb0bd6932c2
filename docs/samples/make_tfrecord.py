"""Makes ``digits.tfrecord``, and the same cut and damaged: ``python docs/samples/make_tfrecord.py`` (TensorFlow)."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).resolve().parent


def example(number: int) -> bytes:
    """Return an Example with an image, the digit in it, and a box around it."""

    def feature(**kind: object) -> tf.train.Feature:
        return tf.train.Feature(**kind)

    image = bytes((row * column * number) % 256 for row in range(8) for column in range(8))
    features = {
        "image": feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": feature(int64_list=tf.train.Int64List(value=[number])),
        "box": feature(float_list=tf.train.FloatList(value=[0.25, 0.5, number / 8, 1.0])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def main() -> None:
    """Write the three files."""
    whole = HERE / "digits.tfrecord"
    with tf.io.TFRecordWriter(str(whole)) as writer:
        for number in range(10):
            writer.write(example(number))
    content = bytearray(whole.read_bytes())
    (HERE / "digits.cut.tfrecord").write_bytes(content[: len(content) * 57 // 100])
    size = len(content) // 10
    content[2 * size + 40] ^= 0x10  # in the data of record 2
    content[5 * size : 5 * size + 60] = bytes(60)  # record 5: its head, and some of its data
    content[7 * size + 9] ^= 0x10  # in the head of record 7
    (HERE / "digits.damaged.tfrecord").write_bytes(content)


if __name__ == "__main__":
    main()
