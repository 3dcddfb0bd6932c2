"""What the records of a TFRecord file are: messages of a type that the first ones tell, events, or any bytes."""

from __future__ import annotations

from pparse.data.base import BytesData
from pparse.errors import GapError
from pparse.findings import Status
from pparse.kernels.tfrecord_scan import FRAME_SIZE, HEAD_SIZE
from pparse.limits import KIB, MIB
from pparse.parsers.protobuf.check import Checker, fits, fitting_tags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.parsers.tfrecord.mend import Mender
    from pparse.protobuf.schema import MessageType
    from pparse.tree.node import Node

_TYPES: Final = ("tensorflow.Example", "tensorflow.SequenceExample")
# How many records must fit, and how many are looked at: damaged ones tell nothing.
_WANTED: Final = 4
_TRIED: Final = 16
# Of a larger record, the beginning must do.
_WHOLE: Final = MIB
_HEAD: Final = 64 * KIB
# The features, the first of them, its name and its value.
_FITTING: Final = 4


def example_type(frames: Mender, start: int) -> MessageType | None:
    """Return the type of the records from ``start`` on; None if they are something else."""
    from pparse.protos import schema

    samples = list(_samples(frames, start))
    # The beginning of a record tells less than a whole one; where the file is cut, that may be next to nothing.
    samples = [(raw, whole) for raw, whole in samples if whole] or samples
    for name in _TYPES:
        type = schema().message(name)
        if all(_fits(raw, type, whole) for raw, whole in samples) and any(
            fitting_tags(raw, type) >= _FITTING for raw, _ in samples
        ):
            return type
    return None


def holds_events(frames: Mender, start: int) -> bool:
    """Say whether the file is one of TensorBoard: its first record has a time, and the version of the event format."""
    first = next(_samples(frames, start), (b"", True))[0]
    return first[:1] == b"\x09" and first[9:10] == b"\x1a" and first.startswith(b"brain.Event:", 11)


def _samples(frames: Mender, at: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the data of the first records, and whether that is all of each."""
    found, end = 0, frames.end()
    for _ in range(_TRIED):
        if found == _WANTED or end - at < HEAD_SIZE:
            return
        length = frames.length(at)
        if length is None:
            at, _ = frames.behind(at)
            continue
        begin, following = at + HEAD_SIZE, at + FRAME_SIZE + length
        if following > end or length > _WHOLE:
            try:
                yield frames.data.pread(begin, min(length, _HEAD)), False
            except GapError:
                pass
            found += 1
        elif frames.agrees(begin, following - 4):
            yield frames.data.pread(begin, length), True
            found += 1
        at = following


def _fits(raw: bytes, type: MessageType, whole: bool) -> bool:
    """Say whether a record, or its beginning, can be a message of ``type``; an empty one can be any."""
    if not whole:
        return fitting_tags(raw, type) >= _FITTING
    part = BytesData(raw).range(0, len(raw))
    return not raw or (fits(raw, type, complete=True) and Checker(lambda: None).sound(part, type))


def features_of_first(root: Node) -> Iterator[tuple[str, str]]:
    """Yield the names and kinds of the features in the first record that is whole."""
    for record, _ in zip(root.children(), range(16), strict=False):
        if record.kind == "gap" or record.status is not Status.COMPLETE:
            continue
        if not record.kind.startswith("tensorflow."):
            yield "fields", ", ".join(str(key) for key, _ in zip(record.keys(), range(40), strict=False)) or "none"
            return
        for label, outer, inner in (
            ("features", "features", "feature"),
            ("context", "context", "feature"),
            ("lists", "feature_lists", "feature_list"),
        ):
            holder = record.find(outer)
            found = holder.find(inner) if holder is not None else None
            if found is not None:
                names = [f"{kid.key!s} ({_kind_of(kid)})" for kid, _ in zip(found.children(), range(40), strict=False)]
                more = f" … {len(found) - 40:,} more" if len(found) > 40 else ""
                yield label, f"{', '.join(names)}{more} (of record {record.ordinal})"
        return


def _kind_of(feature: Node) -> str:
    """Return the kind of values a feature has: bytes, float, int64."""
    kinds = [str(key).removesuffix("_list") for key in feature]
    if kinds == ["feature"]:  # a list of features: the first one tells
        first = feature["feature"]
        return f"{_kind_of(first.child(0))}, {len(first):,} steps" if len(first) else "no steps"
    return ", ".join(kinds) or "empty"
