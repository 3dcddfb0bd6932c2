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
    """Return the FileDescriptorSet of all sources, without what they import from protobuf itself."""
    import grpc_tools
    from grpc_tools import protoc

    sources = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.proto"))
    known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors.binpb"
        if protoc.main(["protoc", f"-I{HERE}", f"-I{known}", f"--descriptor_set_out={out}", *sources]):
            raise RuntimeError("protoc failed; its messages are above")
        return out.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_sources())
    sys.stderr.write(f"wrote {COMPILED}\n")
