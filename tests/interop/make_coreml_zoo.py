"""Writes tests/data/coreml with coremltools, and what that reads of it: ``python tests/interop/make_coreml_zoo.py``.

Needs coremltools 9; Linux is enough, as nothing is run.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb  # noqa: N813 -- as its documentation calls it
from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.converters.mil.mil import types
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder, quantization_utils
from coremltools.models.pipeline import Pipeline
from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction
from coremltools.optimize._utils import lut_to_dense

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


# -- graphs ------------------------------------------------------------------------------------------------------------


def flow(version: Any) -> Any:
    """Return a program with branches in a loop."""

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,)), mb.TensorSpec(shape=(1,))], opset_version=version)
    def made(a: Any, b: Any) -> Any:
        where = mb.squeeze(x=mb.cast(x=a, dtype="bool"))
        one = mb.cond(pred=where, _true_fn=lambda: mb.add(x=b, y=1.0), _false_fn=lambda: mb.mul(x=b, y=2.0))

        def body(i: Any, v: Any) -> Any:
            low = mb.squeeze(x=mb.less(x=v, y=3.0))
            found = mb.cond(pred=low, _true_fn=lambda: mb.add(x=v, y=b), _false_fn=lambda: mb.mul(x=v, y=b))
            return mb.add(x=i, y=1.0), found

        last, value = mb.while_loop(
            _cond=lambda i, v: mb.squeeze(x=mb.less(x=i, y=9.0)), _body=body, loop_vars=(a, one)
        )
        return mb.concat(values=[value, last, np.float32([5])], axis=0, name="out")

    return made


def pipeline() -> Any:
    """Return a classifier behind another network."""
    last = NeuralNetworkBuilder([("x", datatypes.Array(4))], [("p", datatypes.Array(3))], mode="classifier")
    last.add_inner_product("fc", some(3, 4), None, 4, 3, False, "x", "z")
    last.add_softmax("soft", "z", "p")
    last.set_class_labels(["a", "b", "c"])
    first = NeuralNetworkBuilder([("i", datatypes.Array(4))], [("x", datatypes.Array(4))])
    first.add_activation("act", "RELU", "i", "x")
    made = Pipeline([("i", datatypes.Array(4))], [("p", datatypes.Array(3))])
    made.add_model(first.spec)
    made.add_model(last.spec)
    return made.spec


@mb.program(input_specs=[mb.TensorSpec(shape=(2, 4))], opset_version=ct.target.iOS18)
def other(x: Any) -> Any:
    return mb.relu(x=mb.linear(x=x, weight=np.ones((3, 4), np.float32)), name="other_out")


@mb.program(input_specs=[mb.TensorSpec(shape=(2, 4))], opset_version=ct.target.iOS18)
def packed(x: Any) -> Any:
    codes = np.arange(12).reshape(3, 4).astype(np.int8)
    weight = mb.constexpr_blockwise_shift_scale(data=codes, scale=np.ones((3, 1), np.float32), name="codes")
    return mb.linear(x=x, weight=weight, name="packed_out")


def graphs_of(spec: Any, name: str = "") -> dict[str, Any]:
    """Return the nodes of all graphs of a model: name, operation, inputs, outputs."""
    kind = spec.WhichOneof("Type")
    model = getattr(spec, kind)
    if kind.startswith("neuralNetwork"):
        return network_graphs(model, name)
    if kind == "mlProgram":
        main = spec.description.defaultFunctionName or "main"
        found = {}
        for key, function in model.functions.items():
            prefix = "" if key == "main" else f"{key}/"
            found |= block_graphs(function.block_specializations[function.opset], "" if key == main else key, prefix)
        return found
    found = {name: []}
    for number, part in enumerate(model.models):
        sides = part.description.input, part.description.output
        node = [f"models[{number}]", part.WhichOneof("Type"), *([one.name for one in side] for side in sides)]
        found[name].append(node)
        found |= graphs_of(part, node[0])
    return found


def network_graphs(model: Any, name: str) -> dict[str, Any]:
    found = {name: []}
    for layer in model.layers:
        kind = layer.WhichOneof("layer")
        found[name].append([layer.name, kind, list(layer.input), list(layer.output)])
        for field, inner in getattr(layer, kind).ListFields() if kind in ("branch", "loop") else ():
            if field.type == field.TYPE_MESSAGE:
                found |= network_graphs(inner, f"{name}/" * bool(name) + f"{layer.name}.{field.name}")
    return found


def block_graphs(block: Any, name: str, prefix: str) -> dict[str, Any]:
    found = {name: []}
    for operation in block.operations:
        label = operation.outputs[0].name
        inputs = []
        for key, argument in operation.inputs.items():
            for number, binding in enumerate(argument.arguments):
                several = f"[{number}]" if len(argument.arguments) > 1 else ""
                inputs.append(binding.name or f"{prefix}{label}.{key}{several}")
        found[name].append([label, operation.type, sorted(inputs), [output.name for output in operation.outputs]])
        for number, inner in enumerate(operation.blocks):
            found |= block_graphs(inner, f"{name}/" * bool(name) + f"{label}.blocks[{number}]", prefix)
    return found


def make_graphs() -> None:
    options: dict[str, Any] = {"source": "milinternal", "skip_model_load": True}
    ct.convert(flow(ct.target.iOS14), convert_to="neuralnetwork", **options).save(str(FOLDER / "flow.mlmodel"))
    ct.utils.save_spec(pipeline(), str(FOLDER / "pipeline.mlmodel"))
    made = ct.convert(flow(ct.target.iOS15), convert_to="mlprogram", **options)
    with TemporaryDirectory() as folder:
        made.save(f"{folder}/flow.mlpackage")
        ct.utils.save_spec(made.get_spec(), str(FOLDER / "blocks.mlmodel"))  # its values are small: none is beside it
        options["minimum_deployment_target"] = ct.target.iOS18
        functions = MultiFunctionDescriptor()
        for name, program_of in (("main", other), ("second", packed)):
            ct.convert(program_of, convert_to="mlprogram", **options).save(f"{folder}/{name}.mlpackage")
            functions.add_function(f"{folder}/{name}.mlpackage", "main", name)
        functions.default_function_name = "second"
        save_multifunction(functions, f"{folder}/all.mlpackage")
        inner = Path(folder) / "all.mlpackage" / "Data" / "com.apple.CoreML"
        (FOLDER / "functions.mlmodel").write_bytes((inner / "model.mlmodel").read_bytes())
    found = {}
    for name in ("flow", "pipeline", "blocks", "functions"):
        spec = ct.proto.Model_pb2.Model.FromString((FOLDER / f"{name}.mlmodel").read_bytes())
        found[name] = graphs_of(spec)
    text = json.dumps(found, separators=(",", ":"))
    (FOLDER / "graphs.json").write_text(text + "\n", encoding="utf-8")


# -- constants that are computed ---------------------------------------------------------------------------------------


def some_codes(low: int, high: int, shape: Any, kind: str) -> Any:
    return RNG.integers(low, high, shape).astype(getattr(types, f"np_{kind}_dtype", kind))


def packed_bits(codes: Any, bits: int) -> Any:
    """Return codes that share bytes, the first at the lowest bits."""
    return np.packbits(((codes.reshape(-1, 1) >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1), bitorder="little")


def old_forms() -> Any:
    """Return a program with the operations of iOS 16."""
    half = some(7).astype(np.float16)
    found = [
        {"quantized_data": some_codes(-128, 127, (5, 7, 3), "int8"), "scale": half, "axis": 1, "name": "affine"},
        {"quantized_data": some_codes(0, 255, (5, 7), "uint8"), "scale": np.float32(0.3), "axis": 0, "name": "one"},
        {"quantized_data": some_codes(0, 255, (5, 7), "uint8"), "scale": some(5), "axis": -2, "name": "float_zero"},
    ]
    zeros = some_codes(-128, 127, 7, "int8"), np.uint8(131), some(5)

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=ct.target.iOS16)
    def made(x: Any) -> Any:
        out = [mb.constexpr_affine_dequantize(**one, zero_point=zero) for one, zero in zip(found, zeros, strict=True)]
        for bits, *shape in ((1, 3, 5), (2, 3, 5, 7), (4, 33), (6, 6, 7), (8, 4, 9)):
            indices = packed_bits(some_codes(0, 1 << bits, shape, "uint8"), bits)
            told = {"lut": some(1 << bits).astype(np.float16), "shape": np.array(shape, np.uint32)}
            out.append(mb.constexpr_lut_to_dense(indices=indices, **told, name=f"table{bits}"))
        mask = RNG.random((9, 11)) < 0.3
        told = {"mask": packed_bits(mask, 1), "shape": np.array(mask.shape, np.uint32), "name": "sparse"}
        out.append(mb.constexpr_sparse_to_dense(nonzero_data=some(int(mask.sum())), **told))
        out.append(mb.constexpr_cast(source_val=some(3, 4).astype(np.float16), output_dtype="fp32", name="cast"))
        return tuple(mb.identity(x=one) for one in out)

    return made


def new_forms() -> Any:
    """Return a program with the operations of iOS 18, some of which take what others make."""

    def half(*shape: int) -> Any:
        return some(*shape).astype(np.float16)

    shifted, looked_up = mb.constexpr_blockwise_shift_scale, mb.constexpr_lut_to_dense

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=ct.target.iOS18)
    def made(x: Any) -> Any:
        blocks = {"data": some_codes(-8, 8, (6, 22), "int4"), "offset": some_codes(-8, 8, (2, 11), "int4")}
        float_offset = {"data": some_codes(0, 255, (8, 12), "uint8"), "offset": some(2, 3)}
        four = {"data": some_codes(0, 16, (5, 7, 3), "uint4"), "offset": some_codes(0, 16, (1, 7, 1), "uint4")}
        out = [
            shifted(data=some_codes(-8, 8, (16, 8), "int4"), scale=half(16, 1), name="rows"),
            shifted(**blocks, scale=half(2, 11), name="blocks"),
            shifted(**four, scale=some(1, 7, 1), name="four"),
            shifted(**float_offset, scale=half(2, 3), name="float_offset"),
            shifted(data=half(8, 12), scale=half(2, 3), name="halves"),
        ]
        for bits, kind in ((1, "uint1"), (3, "uint3"), (6, "uint6")):
            indices = some_codes(0, 1 << bits, (6, 10), kind)
            out.append(looked_up(indices=indices, lut=half(1, 1, 1 << bits, 1), name=kind))
        out.append(looked_up(indices=some_codes(0, 256, (6, 10), "uint8"), lut=some(3, 5, 256, 1), name="groups"))
        for axis, groups in ((0, (2, 1, 1)), (1, (2, 2, 1)), (-1, (1, 2, 3))):
            indices = some_codes(0, 4, (6, 4, 3), "uint2")
            out.append(looked_up(indices=indices, lut=half(*groups, 4, 3), vector_axis=axis, name=f"vectors{axis % 3}"))
        table = shifted(data=some_codes(-128, 127, (2, 1, 4, 1), "int8"), scale=half(1, 1, 1, 1), name="table")
        out.append(looked_up(indices=some_codes(0, 4, (6, 10), "uint2"), lut=table, name="table_of_codes"))
        mask = (RNG.random((16, 8)) < 0.4).astype(types.np_uint1_dtype)
        count = int(mask.sum())
        kept = {"data_mask": mask, "nonzero_data": some_codes(-8, 8, count, "int4")}
        offsets = {"scale": half(16, 4), "offset": some_codes(-8, 8, (16, 4), "int4")}
        sparse = [mb.constexpr_sparse_blockwise_shift_scale(**kept, **offsets, name="kept")]
        for width, more in ((1, {}), (2, {"vector_axis": 0})):
            indices = {"indices_mask": mask, "indices_nonzero_data": some_codes(0, 4, count, "uint2")}
            told = {**indices, "lut": half(2, 1, 4, width), **more, "name": f"kept_vectors{width}"}
            sparse.append(mb.constexpr_lut_to_sparse(**told))
        sparse.append((mask, shifted(data=some_codes(-128, 127, count, "int8"), scale=half(1), name="kept_values")))
        sparse.append((mask, half(count)))
        for number, (where, values) in enumerate(sparse):
            out.append(mb.constexpr_sparse_to_dense(nonzero_data=values, mask=where, name=f"dense{number}"))
        return tuple(mb.identity(x=one) for one in out)

    return made


def make_packed() -> dict[str, Any]:
    """Write programs with constants that are computed of others; return these constants."""
    found = {}
    for name, made, target in (("packed16", old_forms(), ct.target.iOS16), ("packed18", new_forms(), ct.target.iOS18)):
        options = {"minimum_deployment_target": target, "compute_precision": ct.precision.FLOAT32}
        options |= {"source": "milinternal", "convert_to": "mlprogram", "skip_model_load": True}
        package = FOLDER / f"{name}.mlpackage"
        shutil.rmtree(package, ignore_errors=True)
        ct.convert(made, **options, pass_pipeline=ct.PassPipeline.EMPTY).save(str(package))
        inner = package / "Data" / "com.apple.CoreML"
        spec = ct.proto.Model_pb2.Model.FromString((inner / "model.mlmodel").read_bytes())
        loaded = load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(inner / "weights"))
        for operation in loaded.functions["main"].operations:
            if operation.op_type.startswith("constexpr"):
                if "lut" in operation.inputs and operation.lut.val is None:
                    value = lut_to_dense(operation.indices.val, operation.lut.op.materialized_val_inference())
                else:
                    value = operation.materialized_val_inference()
                if not isinstance(value, tuple):
                    found[f"{name}/{operation.outputs[0].name}"] = np.asarray(value)
    return found


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
    make_graphs()
    expected |= make_packed()
    np.savez_compressed(FOLDER / "values.npz", **expected)
    sys.stderr.write(f"wrote {len(expected)} values\n")


if __name__ == "__main__":
    main()
