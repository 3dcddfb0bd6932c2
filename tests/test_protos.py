"""The compiled protocol buffer schemas: what protoc makes of the sources beside them, and the classes made of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pparse import protos

FOLDER = Path(protos.__file__).resolve().parent


def files(serialized: bytes):
    from google.protobuf import descriptor_pb2

    return {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(serialized).file}


def test_descriptors_are_those_of_the_sources():
    """Compile again and compare; skipped without a compiler, except where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") != "1":
        pytest.importorskip("grpc_tools")
    compiler = importlib.import_module("pparse.protos.compile")
    again = compiler.compile_sources()
    assert compiler.COMPILED.read_bytes() == protos.descriptor_set()
    assert files(again) == files(protos.descriptor_set())


def test_every_source_is_compiled():
    sources = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.proto")}
    assert sources == set(files(protos.descriptor_set()))
    assert sources


def test_the_message_of_the_metadata():
    kind = protos.message_class("riegeli.RecordsMetadata")
    [declared] = files(protos.descriptor_set())["riegeli/records_metadata.proto"].message_type
    optional, repeated = 1, 3
    assert {field.number: (field.name, field.label) for field in declared.field} == {
        1: ("file_comment", optional),
        2: ("record_type_name", optional),
        3: ("file_descriptor", repeated),
        4: ("record_writer_options", optional),
        5: ("num_records", optional),
    }
    assert kind.DESCRIPTOR.extension_ranges == [(1000, 1 << 29)]
    message = kind(file_comment="é", num_records=-1)
    message.file_descriptor.add(name="a.proto")
    assert kind.FromString(message.SerializeToString()) == message
    # As the reference writes it: field numbers and wire types.
    assert kind(file_comment="a", num_records=3).SerializeToString() == b"\x0a\x01a\x28\x03"


def test_unknown_fields_come_through():
    """Extensions of the reference's users are kept."""
    kind = protos.message_class("riegeli.RecordsMetadata")
    extended = b"\x0a\x01a\xc2\x3e\x02hi"  # field 1000, a string
    assert kind.FromString(extended).SerializeToString() == extended


def test_there_is_one_class_and_one_pool():
    assert protos.message_class("riegeli.RecordsMetadata") is protos.message_class("riegeli.RecordsMetadata")
    assert protos.message_class("riegeli.RecordsMetadata").DESCRIPTOR.file.pool is protos.pool()
    with pytest.raises(KeyError):
        protos.message_class("riegeli.Nothing")


def test_types_of_the_same_name_elsewhere_do_not_clash():
    """Another package that brings its own ``riegeli.RecordsMetadata`` in the default pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    other = descriptor_pb2.FileDescriptorProto(name="riegeli/records_metadata.proto", package="riegeli")
    other.message_type.add(name="RecordsMetadata").field.add(name="else", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(other)
    theirs = message_factory.GetMessageClass(pool.FindMessageTypeByName("riegeli.RecordsMetadata"))
    ours = protos.message_class("riegeli.RecordsMetadata")
    assert theirs.DESCRIPTOR is not ours.DESCRIPTOR
    assert [field.name for field in theirs.DESCRIPTOR.fields] == ["else"]
    script = """
        from google.protobuf import descriptor_pb2, descriptor_pool
        other = descriptor_pb2.FileDescriptorProto(name="riegeli/records_metadata.proto", package="riegeli")
        other.message_type.add(name="RecordsMetadata").field.add(name="else", number=1, type=5, label=1)
        descriptor_pool.Default().Add(other)
        from pparse.riegeli import RecordsMetadata
        print(RecordsMetadata(file_comment="ours").file_comment)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == "ours\n"


def test_protobuf_is_not_imported_before_it_is_needed():
    script = """
        import sys
        import pparse, pparse.protos, pparse.riegeli, pparse.parsers.riegeli
        from pparse.riegeli import RecordReader, RecordWriter
        import io
        out = io.BytesIO()
        with RecordWriter(out, owns_dest=False) as writer:
            writer.write_record(b"a")
        assert list(RecordReader(out.getvalue())) == [b"a"]
        assert pparse.open(out.getvalue()).get("[64][0]") == b"a"
        print([name for name in sys.modules if name.startswith("google")])
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
