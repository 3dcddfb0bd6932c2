"""Writes tests/data/coreml with coremltools, and what that reads of it: ``python tests/interop/make_coreml_zoo.py``.

Needs coremltools 9; Linux is enough, as nothing is run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb  # noqa: N813 -- as its documentation calls it
from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.converters.mil.mil import types
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder, quantization_utils

FOLDER = Path(__file__).resolve().parent.parent / "data" / "coreml"
RNG = np.random.default_rng(1)


def some(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> Any:
    """Return a network with layers of many kinds."""
    made = NeuralNetworkBuilder([("x", datatypes.Array(3, 8, 8))], [("y", datatypes.Array(4))])
    made.add_convolution(
        "conv", 3, 6, 3, 3, 1, 1, "valid", 1, some(3, 3, 3, 6), some(6), True, input_name="x", output_name="c"
    )
    made.add_convolution(
        "deconv", 6, 4, 3, 3, 1, 1, "valid", 2, some(3, 3, 6, 2), some(4), True, True, input_name="c", output_name="d"
    )
    made.add_activation("prelu", "PRELU", "d", "e", params=some(4))
    made.add_scale("scale", some(4), some(1), True, "e", "f", shape_scale=[4], shape_bias=[1])
    made.add_inner_product("fc", some(5, 12), some(5), 12, 5, True, "f", "g")
    made.add_embedding("emb", some(4, 10), None, 10, 4, False, "g", "h")
    made.add_load_constant("const", "k", some(1, 2, 3), [1, 2, 3])
    vectors, inner, outer = (
        [some(3) for _ in range(3)],
        [some(3, 3) for _ in range(3)],
        [some(3, 2) for _ in range(3)],
    )
    made.add_gru("gru", inner, outer, vectors, 3, 2, ["g", "s"], ["o", "t"])
    gates = [[some(3, 3) for _ in range(4)], [some(3, 2) for _ in range(4)], [some(3) for _ in range(4)]]
    states = ["g", "s", "u", "v", "w"], ["p", "q", "r", "i", "j"]
    made.add_bidirlstm("lstm", *gates, *gates, 3, 2, *states)
    return made.spec


def values_of(spec: Any) -> dict[str, Any]:
    """Return the weights of a network by the path of their field."""
    found = {}

    def collect(path: str, message: Any) -> None:
        for field, content in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                continue
            several = field.is_repeated
            for number, one in enumerate(content if several else [content]):
                name = f"{path}.{field.name}" + (f"[{number}]" if several else "")
                if one.DESCRIPTOR.name == "WeightParams":
                    found[name] = np.array(one.floatValue, np.float32)
                    if one.float16Value:
                        found[name] = np.frombuffer(one.float16Value, np.float16)
                else:
                    collect(name, one)

    for layer in spec.neuralNetwork.layers:
        collect(layer.name, getattr(layer, layer.WhichOneof("layer")))
    return found


@mb.program(input_specs=[mb.TensorSpec(shape=(2, 64))], opset_version=ct.target.iOS18)
def program(x: Any) -> Any:
    lut = mb.constexpr_lut_to_dense(
        indices=RNG.integers(0, 8, (64, 64)).astype(types.np_uint3_dtype), lut=some(1, 1, 8, 1), name="table"
    )
    codes = mb.constexpr_blockwise_shift_scale(
        data=RNG.integers(-8, 7, (16, 64)).astype(types.np_int4_dtype), scale=some(16, 1), name="codes"
    )
    x = mb.linear(x=mb.linear(x=x, weight=lut), weight=codes, bias=some(16).astype(np.float32), name="fc")
    return mb.softmax(x=mb.add(x=x, y=np.arange(16, dtype=np.float32)), axis=-1)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    spec = network()
    model = ct.models.MLModel(spec, skip_model_load=True)
    for name, bits, mode in (
        ("net", 32, ""),
        ("half", 16, "linear"),
        ("byte", 8, "linear"),
        ("three", 3, "linear_lut"),
    ):
        made = spec if bits == 32 else quantization_utils.quantize_weights(model, bits, mode)
        made = made.get_spec() if hasattr(made, "get_spec") else made
        (FOLDER / f"{name}.mlmodel").write_bytes(made.SerializeToString())
        if bits < 16:
            quantization_utils._dequantize_nn_spec(made.neuralNetwork)
        expected |= {f"{name}/{key}": value for key, value in values_of(made).items()}
    package = FOLDER / "program.mlpackage"
    shutil.rmtree(package, ignore_errors=True)
    options: dict[str, Any] = {"minimum_deployment_target": ct.target.iOS18, "skip_model_load": True}
    options["compute_precision"] = ct.precision.FLOAT32
    ct.convert(program, source="milinternal", convert_to="mlprogram", **options).save(str(package))
    inner = package / "Data" / "com.apple.CoreML"
    spec = ct.proto.Model_pb2.Model.FromString((inner / "model.mlmodel").read_bytes())
    loaded = load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(inner / "weights"))
    values = {}
    for operation in loaded.functions["main"].operations:
        name = operation.outputs[0].name
        if operation.op_type == "const":
            values[name] = operation.outputs[0].val
        elif operation.op_type.startswith("constexpr"):
            for key, given in operation.inputs.items():
                values[f"{name}.{key}"] = values.pop(given.name)  # in the file, it has no name of its own
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind != "U":
            expected[f"program/{name}"] = array if array.dtype.kind == "f" else array.astype(np.int64)
    np.savez_compressed(FOLDER / "values.npz", **expected)
    sys.stderr.write(f"wrote {len(expected)} values\n")


if __name__ == "__main__":
    main()
