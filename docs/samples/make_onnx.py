"""Makes ``tiny.onnx``: two layers, a branch, and the types of most values (needs ``pip install onnx numpy``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent


def weight(name: str, *shape: int) -> TensorProto:
    """Return an initializer of small numbers that are the same in each run."""
    numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 17 / 16 - 0.5
    return numpy_helper.from_array(numbers.astype(np.float32), name)


def main() -> None:
    """Write the file."""
    value = helper.make_tensor_value_info
    strong = helper.make_graph(
        [helper.make_node("Mul", ["hidden", "gain"], ["louder"], name="amplify")],
        "strong",
        [],
        [value("louder", TensorProto.FLOAT, ["batch", 64])],
        initializer=[weight("gain", 64)],
    )
    plain = helper.make_graph(
        [helper.make_node("Identity", ["hidden"], ["same"], name="keep")],
        "plain",
        [],
        [value("same", TensorProto.FLOAT, ["batch", 64])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["fc1"], name="/fc1/Gemm", transB=1),
            helper.make_node("Relu", ["fc1"], ["hidden"], name="/Relu"),
            helper.make_node("If", ["boost"], ["mixed"], name="/If", then_branch=strong, else_branch=plain),
            helper.make_node("Gemm", ["mixed", "fc2.weight", "fc2.bias"], ["logits"], name="/fc2/Gemm", transB=1),
            helper.make_node("ArgMax", ["logits"], ["label"], name="/ArgMax", axis=-1, keepdims=0),
        ],
        "classifier",
        [value("x", TensorProto.FLOAT, ["batch", 32]), value("boost", TensorProto.BOOL, [])],
        [value("logits", TensorProto.FLOAT, ["batch", 10]), value("label", TensorProto.INT64, ["batch"])],
        initializer=[
            weight("fc1.weight", 64, 32),
            weight("fc1.bias", 64),
            weight("fc2.weight", 10, 64),
            weight("fc2.bias", 10),
        ],
        value_info=[
            value("fc1", TensorProto.FLOAT, ["batch", 64]),
            value("hidden", TensorProto.FLOAT, ["batch", 64]),
            value("mixed", TensorProto.FLOAT, ["batch", 64]),
        ],
    )
    model = helper.make_model(
        graph, producer_name="make_onnx", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model, full_check=True)
    (HERE / "tiny.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
