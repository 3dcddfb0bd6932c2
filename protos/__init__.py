"""Protocol buffer schemas: our own reduced ``.proto`` sources, and message classes made of them.

The classes live in a descriptor pool of their own, so that no other package with the same types in it can clash.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def descriptor_set() -> bytes:
    """Return the compiled FileDescriptorSet of all sources."""
    import importlib.resources

    return importlib.resources.files("pparse.protos").joinpath("descriptors.binpb").read_bytes()


@functools.cache
def pool() -> Any:
    """Return the descriptor pool that holds our types (and protobuf's own descriptor types)."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    found = descriptor_pool.DescriptorPool()
    found.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        found.Add(file)
    return found


@functools.cache
def message_class(full_name: str) -> Any:
    """Return the message class of that full name, e.g. ``riegeli.RecordsMetadata``; KeyError if there is none."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool().FindMessageTypeByName(full_name))
