"""Write the chunked model of this folder: ``python docs/samples/make_chunked_model.py``.

``chunked-model`` is a small classifier as a SavedModel folder: a graph of constants that calls two functions, without
variables. Its one message, 38 KB, is split with a limit of 1 KiB (of TensorFlow, 1 GiB): the larger constants and the
library of functions are chunks of their own. They are not compressed, so that each is in a chunk of the Riegeli file of
its own. Merged, TensorFlow loads and runs it. ``chunked-model.cut.cpb`` is its file without the last 100 bytes, as of a
download that stopped: these are of the last record, which says where the chunks belong.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pparse.proto_splitter.fingerprint import fingerprint, write_fingerprint
from pparse.proto_splitter.stream_split import split_file
from pparse.protos import message_class

HERE = Path(__file__).parent
LIMIT = "1KiB"
OPTIONS = "uncompressed"
FLOAT = 1
OUTPUTS = {"Relu": "activations", "Softmax": "softmax"}
WORDS = ("bread", "cheese", "apple", "rye", "butter", "plum", "honey", "walnut")


def set_attrs(node: Any, **attrs: Any) -> None:
    """Set attributes of a node: numbers are dtypes, text is the name of a function, lists are lists of dtypes."""
    for name, value in attrs.items():
        if isinstance(value, bool):
            node.attr[name].b = value
        elif isinstance(value, int):
            node.attr[name].type = value
        elif isinstance(value, str):
            node.attr[name].func.name = value
        else:
            node.attr[name].list.type.extend(value)


def constant(graph: Any, name: str, values: np.ndarray[Any, Any]) -> None:
    node = graph.node.add(name=name, op="Const")
    set_attrs(node, dtype=FLOAT)
    tensor = node.attr["value"].tensor
    tensor.dtype = FLOAT
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = values.astype("<f4").tobytes()


def function(graph: Any, name: str, inputs: list[str], nodes: list[tuple[str, str, list[str], dict[str, Any]]]) -> None:
    """Add a function of floats, whose result is that of its last node."""
    found = graph.library.function.add()
    found.signature.name = name
    for argument in inputs:
        found.signature.input_arg.add(name=argument, type=FLOAT)
    found.signature.output_arg.add(name="result", type=FLOAT)
    for inner, op, words, attrs in nodes:
        set_attrs(found.node_def.add(name=inner, op=op, input=words), **attrs)
    last, op = nodes[-1][:2]
    found.ret["result"] = f"{last}:{OUTPUTS[op]}:0"


def model() -> Any:
    """The model: 64 numbers in, through 128, to the probabilities of eight classes."""
    saved = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = "2.21.0"
    graph = meta.graph_def
    graph.versions.producer = 1994
    image = graph.node.add(name="image", op="Placeholder")
    set_attrs(image, dtype=FLOAT)
    for size in (-1, 64):
        image.attr["shape"].shape.dim.add(size=size)
    grid = np.arange(64 * 128, dtype=np.float64).reshape(64, 128)
    constant(graph, "dense/kernel", np.round(np.sin(grid * 0.37) * 8) / 64)
    constant(graph, "dense/bias", np.round(np.cos(np.arange(128.0)) * 8) / 64)
    constant(graph, "classes/kernel", np.round(np.sin(grid[:16].reshape(128, 16)[:, :8] * 0.11) * 8) / 64)
    constant(graph, "classes/bias", np.zeros(8))
    dense = graph.node.add(name="dense", op="PartitionedCall", input=["image", "dense/kernel", "dense/bias"])
    set_attrs(dense, Tin=[FLOAT] * 3, Tout=[FLOAT], f="dense_relu")
    classes = graph.node.add(name="classes", op="PartitionedCall", input=["dense", "classes/kernel", "classes/bias"])
    set_attrs(classes, Tin=[FLOAT] * 3, Tout=[FLOAT], f="dense_softmax")
    for name, op in (("dense_relu", "Relu"), ("dense_softmax", "Softmax")):
        product = ("product", "MatMul", ["x", "kernel"], {"T": FLOAT, "transpose_a": False, "transpose_b": False})
        total = ("sum", "BiasAdd", ["product:product:0", "bias"], {"T": FLOAT})
        function(graph, name, ["x", "kernel", "bias"], [product, total, ("out", op, ["sum:output:0"], {"T": FLOAT})])
    signature = meta.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for infos, key, tensor, width in (
        (signature.inputs, "image", "image:0", 64),
        (signature.outputs, "probabilities", "classes:0", 8),
    ):
        infos[key].name, infos[key].dtype = tensor, FLOAT
        for size in (-1, width):
            infos[key].tensor_shape.dim.add(size=size)
    return saved


def main() -> None:
    folder = HERE / "chunked-model"
    with tempfile.TemporaryDirectory() as work:
        whole = os.path.join(work, "saved_model.pb")
        Path(whole).write_bytes(model().SerializeToString(deterministic=True))
        split_file(
            whole, str(folder / "saved_model"), message="tensorflow.SavedModel", max_size=LIMIT, writer_options=OPTIONS
        )
    content = (folder / "saved_model.cpb").read_bytes()
    (HERE / "chunked-model.cut.cpb").write_bytes(content[:-100])
    (folder / "assets.extra").mkdir(exist_ok=True)
    (folder / "assets.extra" / "classes.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    write_fingerprint(folder, fingerprint(folder, uuid="1234567890"))


if __name__ == "__main__":
    main()
