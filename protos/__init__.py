"""Protocol buffer schemas: our own reduced ``.proto`` sources, and message classes made of them.

The classes live in a descriptor pool of their own, so that no other package with the same types in it can clash.
"""

from __future__ import annotations

import functools
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.protobuf.schema import Schema

# There is one of each, whatever number of threads asks first: types are compared by identity.
_LOCK = threading.RLock()


def descriptor_set() -> bytes:
    """Return the compiled FileDescriptorSet of all sources, and of what they import from protobuf itself."""
    # What imported this module can read what lies beside it; importlib.resources would take 14 ms to come to that.
    import os.path

    loader: Any = __spec__.loader
    found: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), "descriptors.binpb"))
    return found


def schema() -> Schema:
    """Return the schema of all our types, for which protobuf is not needed (protobuf's own descriptor types too)."""
    with _LOCK:
        return _schema()


@functools.cache
def _schema() -> Schema:
    from pparse.protobuf.schema import Schema

    return Schema(descriptor_set())


def pool() -> Any:
    """Return the descriptor pool that holds our types (and protobuf's own descriptor types)."""
    with _LOCK:
        return _pool()


@functools.cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    found = descriptor_pool.DescriptorPool()
    # The library's own description of descriptors, not the compiler's: it may know fewer features of later editions.
    found.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        if file.name != descriptor_pb2.DESCRIPTOR.name:
            found.Add(file)
    return found


def message_class(full_name: str) -> Any:
    """Return the message class of that full name, e.g. ``riegeli.RecordsMetadata``; KeyError if there is none."""
    with _LOCK:
        return _message_class(full_name)


@functools.cache
def _message_class(full_name: str) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool().FindMessageTypeByName(full_name))
