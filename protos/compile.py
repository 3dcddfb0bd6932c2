"""Compile the ``.proto`` sources beside this file into ``descriptors.binpb``, one FileDescriptorSet.

Run ``python protos/compile.py`` after changing a source (needs ``pip install grpcio-tools``); a test compares.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILED = HERE / "descriptors.binpb"


def compile_sources() -> bytes:
    """Return the FileDescriptorSet of all sources and of what they import, each file after those that it imports."""
    import grpc_tools
    from grpc_tools import protoc

    sources = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.proto"))
    known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors.binpb"
        options = [f"-I{HERE}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}"]
        if protoc.main(["protoc", *options, *sources]):
            raise RuntimeError("protoc failed; its messages are above")
        return without_json_names(out.read_bytes())


def without_json_names(serialized: bytes) -> bytes:
    """Return that FileDescriptorSet without the JSON names that follow from the names: a quarter of its bytes."""
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet.FromString(serialized)
    messages = [message for file in found.file for message in file.message_type]
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            first, *others = field.name.split("_")
            if field.json_name == first + "".join(part[:1].upper() + part[1:] for part in others):
                field.ClearField("json_name")
    compact: bytes = found.SerializeToString(deterministic=True)
    return compact


if __name__ == "__main__":
    COMPILED.write_bytes(compile_sources())
    sys.stderr.write(f"wrote {COMPILED}\n")
