"""A child process: graphs that TensorFlow makes, and what it says of them.

Run as ``python -P graphs.py FOLDER``. Writes ``loops.pb`` (a GraphDef), parts of it as ``extract_sub_graph`` gives them
(``part0.pb`` …), a SavedModel in ``model``, and ``facts.json``.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

v1 = tf.compat.v1


def loops() -> v1.GraphDef:
    """Loops, branches, control edges and colocation, as TensorFlow 1 wrote them."""
    v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        flag = v1.placeholder(tf.bool, [], name="flag")
        weight = v1.get_variable("weight", [3, 3], use_resource=False)
        with v1.name_scope("body"), v1.colocate_with(weight.op):
            y = tf.matmul(x, weight)
        _, total = v1.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, tf.matmul(t, weight)), [0, y])
        chosen = v1.cond(flag, lambda: total + 1.0, lambda: total * 2.0)
        first, second = tf.split(chosen, 2, axis=0, name="split")
        with tf.control_dependencies([first, y]):
            tf.subtract(second, first, name="logits")
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(chosen), name="train")
        v1.global_variables_initializer()
        return graph.as_graph_def()


class Model(tf.Module):
    """Functions that call functions, with several outputs, a variable and control flow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones([4, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
    def predict(self, x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        for _ in tf.range(n):
            self.weight.assign_add(tf.ones([4, 2]))
            x = tf.tanh(x)
        low, high = tf.split(x @ self.weight, 2, axis=1)
        return {"low": low, "high": tf.raw_ops.TopKV2(input=high, k=1)[1]}


def describe(graph: tf.Graph) -> dict[str, list]:
    """Return ``{name: [op, [[source, output], ...], [control sources]]}``."""
    return {
        op.name: [
            op.type,
            [[text.op.name, text.value_index] for text in op.inputs],
            sorted(c.name for c in op.control_inputs),
        ]
        for op in graph.get_operations()
    }


def main() -> None:
    folder = Path(sys.argv[1])
    made = loops()
    (folder / "loops.pb").write_bytes(made.SerializeToString())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(made, name="")
    chooser = random.Random(5)
    outputs = [["logits"], ["train"], *([chooser.choice(made.node).name, "x"] for _ in range(8))]
    for number, names in enumerate(outputs):
        part = v1.graph_util.extract_sub_graph(made, names)
        (folder / f"part{number}.pb").write_bytes(part.SerializeToString(deterministic=True))
    tf.saved_model.save(Model(), str(folder / "model"))
    model = saved_model_pb2.SavedModel.FromString((folder / "model" / "saved_model.pb").read_bytes())
    definition = model.meta_graphs[0].graph_def
    with tf.Graph().as_default() as main_graph:
        tf.import_graph_def(definition, name="")
        functions = {
            function.signature.name: describe(function_def_to_graph(function))
            for function in definition.library.function
        }
    facts = {"loops": describe(graph), "outputs": outputs, "main": describe(main_graph), "functions": functions}
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
