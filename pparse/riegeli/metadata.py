"""The metadata of a file: ``RecordsMetadata``, and the type of its records."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    RecordsMetadata: Any


def __getattr__(name: str) -> Any:
    if name == "RecordsMetadata":  # made on demand: importing protobuf takes 20 ms
        from pparse.protos import message_class

        globals()[name] = message_class("riegeli.RecordsMetadata")
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def set_record_type(metadata: Any, message_type: Any) -> None:
    """Set ``record_type_name`` and ``file_descriptor`` of ``metadata`` from a message class (or its descriptor).

    Each file comes after the files that it imports, so they can be added to a pool in order.
    """
    descriptor = getattr(message_type, "DESCRIPTOR", message_type)
    metadata.record_type_name = descriptor.full_name
    del metadata.file_descriptor[:]
    done: set[str] = set()
    stack = [(descriptor.file, False)]
    while stack:
        file, expanded = stack.pop()
        if file.name in done:
            continue
        if expanded:
            done.add(file.name)
            metadata.file_descriptor.add().ParseFromString(file.serialized_pb)
        else:
            stack.append((file, True))
            stack += [(imported, False) for imported in reversed(file.dependencies)]


def get_record_type(metadata: Any) -> Any:
    """Return a message class for the records that ``metadata`` describes; None if it names no type.

    Raise `InvalidArgumentError` if the type cannot be built from the file descriptors in ``metadata``.
    """
    if not metadata.record_type_name:
        return None
    from google.protobuf import descriptor_pool, message_factory

    from pparse.riegeli.errors import InvalidArgumentError

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in metadata.file_descriptor:
            pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(metadata.record_type_name))
    except (KeyError, TypeError) as error:
        name = metadata.record_type_name
        raise InvalidArgumentError(f"cannot build the type {name} from its descriptors: {error}") from error
