"""The compiled protocol buffer schemas: what protoc makes of the sources beside them, and the classes made of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from pparse import protos
from tests.rows import rows

FOLDER = Path(protos.__file__).resolve().parent


def files(serialized: bytes):
    from google.protobuf import descriptor_pb2

    return {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(serialized).file}


def own_files(serialized: bytes):
    """Return the files of our own sources; the others are those of whatever compiler it was."""
    return {name: file for name, file in files(serialized).items() if not name.startswith("google/protobuf/")}


def test_descriptors_are_those_of_the_sources():
    """Compile again and compare; skipped without a compiler, except where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") != "1":
        pytest.importorskip("grpc_tools")
    compiler = importlib.import_module("pparse.protos.compile")
    # In a process of its own: protoc in one with TensorFlow, whose descriptors are compiled in, ends it.
    code = "import sys; from pparse.protos.compile import compile_sources as make; sys.stdout.buffer.write(make())"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert compiler.COMPILED.read_bytes() == protos.descriptor_set()
    assert own_files(again) == own_files(protos.descriptor_set())


def test_every_source_is_compiled():
    sources = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.proto")}
    assert sources == set(own_files(protos.descriptor_set()))
    assert sources


def test_what_is_imported_is_there_and_comes_before():
    seen = set()
    for name, file in files(protos.descriptor_set()).items():
        assert set(file.dependency) <= seen, name
        seen.add(name)


def test_json_names_are_kept_where_they_say_something():
    from google.protobuf import descriptor_pb2

    compiler = importlib.import_module("pparse.protos.compile")
    found = descriptor_pb2.FileDescriptorSet()
    message = found.file.add(name="a.proto").message_type.add(name="M").nested_type.add(name="N")
    message.field.add(name="some_long_name", json_name="someLongName")
    message.field.add(name="with__two_", json_name="withTwo")
    message.field.add(name="other_name", json_name="other")
    kept = descriptor_pb2.FileDescriptorSet.FromString(compiler.without_json_names(found.SerializeToString()))
    fields = kept.file[0].message_type[0].nested_type[0].field
    assert [field.json_name for field in fields] == ["", "", "other"]


def test_sources_are_packaged():
    """What the patterns of the packaging find is all that is not Python."""
    project = FOLDER.parent / "pyproject.toml"
    patterns = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["pparse.protos"]
    packaged = {path for pattern in patterns for path in FOLDER.glob(pattern)}
    ours = {path for path in FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert packaged == ours


# What the formats we read, and the splitters of theirs, rely on.
TENSORFLOW_NUMBERS = {
    "tensorflow.SavedModel": {"saved_model_schema_version": 1, "meta_graphs": 2},
    "tensorflow.MetaGraphDef": {
        "meta_info_def": 1,
        "graph_def": 2,
        "saver_def": 3,
        "collection_def": 4,
        "signature_def": 5,
        "asset_file_def": 6,
        "object_graph_def": 7,
    },
    "tensorflow.GraphDef": {"node": 1, "library": 2, "version": 3, "versions": 4, "debug_info": 5},
    "tensorflow.FunctionDefLibrary": {"function": 1, "gradient": 2, "registered_gradients": 3},
    "tensorflow.Example": {"features": 1},
    "tensorflow.SequenceExample": {"context": 1, "feature_lists": 2},
    "tensorflow.Features": {"feature": 1},
    "tensorflow.Feature": {"bytes_list": 1, "float_list": 2, "int64_list": 3},
    "tensorflow.FeatureLists": {"feature_list": 1},
    "tensorflow.FeatureList": {"feature": 1},
    "tensorflow.BytesList": {"value": 1},
    "tensorflow.FloatList": {"value": 1},
    "tensorflow.Int64List": {"value": 1},
    "tensorflow.VersionDef": {"producer": 1, "min_consumer": 2, "bad_consumers": 3},
    "tensorflow.proto_splitter.VersionDef": {"splitter_version": 1, "join_version": 2, "bad_consumers": 3},
    "tensorflow.proto_splitter.ChunkMetadata": {"version": 1, "chunks": 2, "message": 3},
    "tensorflow.proto_splitter.ChunkInfo": {"type": 1, "size": 2, "offset": 3},
    "tensorflow.proto_splitter.ChunkedMessage": {"chunk_index": 1, "chunked_fields": 2},
    "tensorflow.proto_splitter.ChunkedField": {"field_tag": 1, "message": 3},
    "tensorflow.proto_splitter.FieldIndex": {"field": 1, "map_key": 2, "index": 3},
}


@rows("name", TENSORFLOW_NUMBERS)
def test_numbers_of_tensorflow(name):
    fields = protos.message_class(name).DESCRIPTOR.fields
    assert {field.name: field.number for field in fields} == TENSORFLOW_NUMBERS[name]


def test_presence_of_a_chunk_index():
    """Chunk 0 and no chunk differ."""
    kind = protos.message_class("tensorflow.proto_splitter.ChunkedMessage")
    assert kind(chunk_index=0).SerializeToString() == b"\x08\x00"
    assert not kind().HasField("chunk_index")


def test_types_of_protobuf_itself_are_usable():
    any_info = protos.message_class("tensorflow.MetaGraphDef")().meta_info_def.any_info
    any_info.Pack(protos.message_class("tensorflow.VersionDef")(producer=3))
    assert any_info.type_url == "type.googleapis.com/tensorflow.VersionDef"
    node = protos.message_class("tensorflow.TrackableObjectGraph")().nodes.add()
    node.has_checkpoint_values.value = True
    assert node.SerializeToString() == b"\x2a\x02\x08\x01"


def test_the_schema_is_made_once():
    assert protos.schema() is protos.schema()
    assert protos.schema().message("tensorflow.SavedModel").by_name["meta_graphs"].number == 2


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
