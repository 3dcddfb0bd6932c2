"""Write an object-based checkpoint of TensorFlow: ``checkpoint_make.py PREFIX VARIABLES BYTES``."""

from __future__ import annotations

import os
import sys

from report import report

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

prefix, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = tf.Module()
model.layers = []
rows = size // count // 4 // 256
for number in range(count):
    layer = tf.Module()
    layer.kernel = tf.Variable(tf.random.normal((rows, 256)), name=f"block_{number // 10}/dense_{number % 10}/kernel")
    model.layers.append(layer)
tf.train.Checkpoint(model=model).write(prefix)
report(count=count)
