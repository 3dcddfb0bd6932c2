"""Write the Riegeli samples of this folder: ``python docs/samples/make_riegeli.py``.

``records.riegeli`` holds twelve readings of a weather station in three chunks of different kinds (a file is written
with one set of options, so each chunk but the first is appended): Brotli, transposed Zstandard, and uncompressed. Its
metadata name the type of the records and bring its descriptor. ``records.cut.riegeli`` ends inside the last chunk, and
in ``records.damaged.riegeli`` the header of the second chunk is overwritten. ``reading.binpb`` is the descriptor alone,
as ``protoc --descriptor_set_out=reading.binpb --include_imports`` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pparse import riegeli

HERE = Path(__file__).parent
OPTIONS = ("brotli", "transpose,zstd", "uncompressed")
EACH = 4
FIELD = descriptor_pb2.FieldDescriptorProto


def message_type() -> Any:
    """The class of ``samples.Reading``, made without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="samples/reading.proto", package="samples", syntax="proto3")
    reading = file.message_type.add(name="Reading")
    reading.field.add(name="station", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    reading.field.add(name="time", number=2, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    reading.field.add(name="celsius", number=3, type=FIELD.TYPE_FLOAT, label=FIELD.LABEL_OPTIONAL)
    reading.field.add(
        name="wind", number=4, type=FIELD.TYPE_MESSAGE, type_name=".samples.Reading.Wind", label=FIELD.LABEL_OPTIONAL
    )
    reading.field.add(name="note", number=5, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    wind = reading.nested_type.add(name="Wind")
    wind.field.add(name="speed", number=1, type=FIELD.TYPE_FLOAT, label=FIELD.LABEL_OPTIONAL)
    wind.field.add(name="degrees", number=2, type=FIELD.TYPE_UINT32, label=FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("samples.Reading"))


def reading(kind: Any, hour: int) -> Any:
    """One reading; every third has a note."""
    found = kind(station="Säntis", time=1_750_000_000 + 3600 * hour, celsius=2.5 + hour / 4)
    found.wind.speed = 8.0 + hour % 5
    found.wind.degrees = 250 + 3 * hour
    if hour % 3 == 0:
        found.note = f"hour {hour:02}: looked after by hand; visibility good"
    return found


def main() -> None:
    kind = message_type()
    metadata = riegeli.RecordsMetadata(file_comment="readings of a day")
    riegeli.set_record_type(metadata, kind)
    types = descriptor_pb2.FileDescriptorSet()
    kind.DESCRIPTOR.file.CopyToProto(types.file.add())
    (HERE / "reading.binpb").write_bytes(types.SerializeToString(deterministic=True))

    whole = HERE / "records.riegeli"
    whole.unlink(missing_ok=True)
    chunks = []
    for number, options in enumerate(OPTIONS):
        with riegeli.RecordWriter(whole, options=options, metadata=metadata, append=number > 0) as writer:
            writer.write_messages(reading(kind, hour) for hour in range(number * EACH, (number + 1) * EACH))
            chunks.append(writer.last_pos.chunk_begin)

    content = whole.read_bytes()
    (HERE / "records.cut.riegeli").write_bytes(content[:-100])
    damaged = bytearray(content)
    damaged[chunks[1] + 8 : chunks[1] + 24] = b"0123456789abcdef"  # the size of the chunk's data, and their hash
    (HERE / "records.damaged.riegeli").write_bytes(damaged)


if __name__ == "__main__":
    main()
