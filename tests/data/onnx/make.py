"""Writes the ONNX models of this folder, and beside each what onnx reads in it.

``python -m tests.data.onnx.make [FOLDER]``. Made with onnx 1.23.2, torch 2.13.0 and numpy 2.4. ``NAME.json`` has for
each tensor by name: type of ONNX, type of the array, shape, and the sha256 of the array's bytes (C order,
little-endian; of elements below 8 bits one to a byte, in its low bits); for strings, in place of the last, their
hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

import onnx

from tests import onnx_files as wire
from tests.interop import onnx_zoo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = Path(__file__).parent
# Models of the zoo that are kept, and what they are called here.
KEPT = {
    "attributes": "attributes",
    "sparse_initializers": "sparse",
    "bodies": "bodies",
    "functions": "functions",
    "training": "training",
    "split_messages": "split-messages",
    "order_of_fields": "order-of-fields",
    "quantised": "quantised",
}


def types(folder: Path) -> None:
    """Write every type: as bytes, and listed in both ways; a scalar, 7 elements, none, and a matrix of 15."""
    for how, shapes in (("raw", (0, 2, 3, 4)), ("packed", (0, 2, 3, 4)), ("unpacked", (2,))):
        path = folder / f"types-{how}.onnx"
        path.write_bytes(wire.model_of(*onnx_zoo.each_type(how, shapes)))


def external(folder: Path) -> None:
    """Write every type into one file beside the model."""
    with tempfile.TemporaryDirectory() as whole:
        onnx_zoo.types_external(Path(whole))
        model = onnx.ModelProto.FromString((Path(whole) / "model.onnx").read_bytes())
        source = (Path(whole) / "weights.bin").read_bytes()
    kept, data = [], bytearray(b"head")
    for tensor in model.graph.initializer:
        pairs = {pair.key: pair for pair in tensor.external_data}
        if "offset" not in pairs or (not tensor.name.endswith((".2", ".4")) and tensor.name != "rest"):
            continue
        start = int(pairs["offset"].value)
        end = start + int(pairs["length"].value) if "length" in pairs else len(source)
        pairs["location"].value, pairs["offset"].value = "external.bin", str(len(data))
        if "checksum" in pairs:
            tensor.external_data.remove(pairs["checksum"])
        data += source[start:end]
        kept.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    (folder / "external.bin").write_bytes(data)
    (folder / "external.onnx").write_bytes(model.SerializeToString(deterministic=True))


def torch_mlp(folder: Path) -> None:
    """Export a small network with both exporters of PyTorch, without the notes on where its code was."""
    import torch
    from torch import nn

    torch.manual_seed(5)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for name, dynamo in (("torch-mlp", False), ("torch-mlp-dynamo", True)):
        path = folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            more = {"external_data": False} if dynamo else {}
            torch.onnx.export(network, (torch.ones(1, 4),), str(path), dynamo=dynamo, **more)
        model = onnx.ModelProto.FromString(path.read_bytes())
        for node in model.graph.node:
            del node.metadata_props[:]
            node.ClearField("doc_string")
        path.write_bytes(model.SerializeToString(deterministic=True))


def row(stored: str, shape: tuple[int, ...], elements: Any) -> list[Any]:
    """Return what is expected of a tensor."""
    if isinstance(elements, list):
        return [stored, None, list(shape), [text.hex() for text in elements]]
    digest = hashlib.sha256(onnx_zoo.bits(elements, stored)).hexdigest()
    return [stored, elements.dtype.name, list(shape), digest]


def main(folder: Path) -> None:
    """Write all models into the folder, and what is expected of them."""
    types(folder)
    external(folder)
    torch_mlp(folder)
    for made, name in KEPT.items():
        with tempfile.TemporaryDirectory() as place:
            onnx_zoo.ZOO[made](Path(place))
            (folder / f"{name}.onnx").write_bytes((Path(place) / "model.onnx").read_bytes())
    for path in sorted(folder.glob("*.onnx")):
        found = onnx_zoo.contents(onnx.ModelProto.FromString(path.read_bytes()), folder)
        lines = [f" {json.dumps(name)}: {json.dumps(row(*told))}" for name, told in found.items()]
        path.with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
