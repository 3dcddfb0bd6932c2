"""Writes a part of a graph as a GraphDef of its own, streamed; NodeDefs are copied unchanged."""

from __future__ import annotations

from array import array

from pparse.data.base import copy_into
from pparse.errors import MalformedError
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.parsers.protobuf.check import Checker
from pparse.parsers.protobuf.write import measure, write
from pparse.protos import schema as builtin_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.data.base import Data
    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.graph import MainGraph

_NODE: Final = 1
_LIBRARY: Final = 2
_VERSIONS: Final = 4


def write_graph_def(graph: MainGraph, marks: bytes | bytearray | None, out: Callable[[bytes], object]) -> int:
    """Write the marked nodes of a graph (None: all) as a GraphDef; return the number of bytes.

    Always sets library and versions, as TensorFlow's ``extract_sub_graph`` does; inserts what chunks of a ``.cpb`` add.
    """
    check = graph.extraction.session.check_cancelled
    checker = Checker(check)
    done = 0
    start = stop = 0
    data = None
    for ordinal, found in graph.wire():
        if marks is not None and not marks[ordinal]:
            continue
        if found is not None and found.data is data and found.start == stop:
            stop = found.end  # copy neighbours together
            continue
        check()
        done += _copy(data, start, stop, out, checker)
        data = None
        if found is None:
            done += _message(_NODE, graph.node(ordinal), out)
        else:
            data, start, stop = found.data, found.start, found.end
    done += _copy(data, start, stop, out, checker)
    for number, name in ((_LIBRARY, "library"), (_VERSIONS, "versions")):
        done += _message(number, graph.root.find(name) if graph.root is not None else None, out)
    return done


def _copy(data: Data | None, start: int, stop: int, out: Callable[[bytes], object], checker: Checker) -> int:
    if data is None:
        return 0
    # Consecutive fields `node` form a GraphDef.
    if not checker.sound(data.range(start, stop), builtin_schema().message("tensorflow.GraphDef")):
        raise MalformedError(
            "a node of the graph is damaged, and the copy would be, too ('pparse check' tells more)",
            offset=checker.stopped,
            source=data.name,
        )
    copy_into(data, start, stop - start, out)
    return stop - start


def _message(number: int, node: Node | None, out: Callable[[bytes], object]) -> int:
    """Write a message of the tree with its tag, or an empty one if there is no node."""
    sizes = measure(node) if node is not None else array("Q", [0])
    head = encode_varint(number << 3 | LEN) + encode_varint(sizes[0])
    out(head)
    written = write(node, sizes, out) if node is not None else 0
    if written != sizes[0]:
        raise MalformedError("the source changed while it was copied", wanted=sizes[0], got=written)
    return len(head) + written
