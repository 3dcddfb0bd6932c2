"""Small files of a SavedModel folder beside the message: ``fingerprint.pb`` and Keras's ``keras_metadata.pb``."""

from __future__ import annotations

from pparse.document.opening import open as open_document
from pparse.errors import PASSING, EndOfDataError, MalformedError, PathError, PparseError, SourceError
from pparse.findings import Status
from pparse.viewers.tensorflow.meta import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.fingerprint import Fingerprint

FINGERPRINT: Final = "fingerprint.pb"
KERAS: Final = "keras_metadata.pb"
_KERAS_MESSAGE: Final = "third_party.py.tf_keras.protobuf.SavedMetadata"
# Longer files are not what their name says; a model's configuration can be long.
_MAX_FINGERPRINT: Final = 1 << 16
_MAX_KERAS: Final = 16 << 20
# Memory of parsed JSON, per letter, at most.
_PARSED: Final = 32
_MOST_NODES: Final = 100_000


def folder_facts(folder: Extraction) -> dict[str, Any]:
    """Return what the files beside the message say: the fingerprint, and what Keras calls the model."""
    found: dict[str, Any] = {}
    try:
        fingerprint = fingerprint_of(folder)
    except MalformedError:  # `check` tells
        fingerprint = None
    if fingerprint is not None:
        prints = {"singleprint": fingerprint.singleprint} if any(fingerprint.hashes[1:]) else {}
        found["fingerprint"] = {**prints, "uuid": fingerprint.uuid} if fingerprint.uuid else prints
    raw = _content(folder, KERAS, _MAX_KERAS)
    if raw is not None:
        found["keras"] = _keras(raw, folder.session.budget)
    return {name: facts for name, facts in found.items() if facts}


def fingerprint_of(folder: Extraction) -> Fingerprint | None:
    """Return what ``fingerprint.pb`` says (TensorFlow: ``read_fingerprint``); None if it is not there.

    Fields that are not set are 0 or empty. Raises `MalformedError` if it is cut, damaged or another file.
    """
    from pparse.proto_splitter.fingerprint import HASHES, Fingerprint

    raw = _content(folder, FINGERPRINT, _MAX_FINGERPRINT)
    if raw is None:
        return None
    with open_document(raw, format="protobuf", options={"message": "tensorflow.FingerprintDef"}) as document:
        root = document.root
        if not raw or root.status is not Status.COMPLETE:
            reason = root.finding.reason if root.finding is not None else "it is empty"
            raise MalformedError(f"{FINGERPRINT} cannot be read: {reason}", source=folder.name)
        hashes: tuple[int, int, int, int, int] = tuple(value_at(root, name, default=0) for name in HASHES)
        producer = value_at(root, "version", "producer", default=0)
        return Fingerprint(*hashes, str(value_at(root, "uuid", default="")), producer)


def _content(folder: Extraction, name: str, most: int) -> bytes | None:
    """Return the content of a small file of the folder; None if there is none, or it cannot be read."""
    if name not in folder.members:  # type: ignore[attr-defined]
        return None
    try:
        file = folder.sibling(name)
        size = file.known_end() - file.start
        return file.data.read_exact(file.start, size) if size <= most else None
    except (SourceError, EndOfDataError, PathError):
        return None


def _keras(raw: bytes, budget: MemoryBudget) -> dict[str, Any]:
    """Return name, class and number of layers of the model in a SavedMetadata; what is too large is left out."""
    from json import loads

    found: dict[str, Any] = {}
    try:
        with open_document(raw, format="protobuf", options={"message": _KERAS_MESSAGE}) as document:
            nodes = document.root.find("nodes")
            layers = 0
            for node, _ in zip(nodes.children() if nodes is not None else (), range(_MOST_NODES), strict=False):
                path = value_at(node, "node_path", default="")
                layers += value_at(node, "identifier", default="") == "_tf_keras_layer"
                if path == "root":
                    text = value_at(node, "metadata", default="{}")
                    with budget.charge(_PARSED * len(text), "the metadata of Keras"):
                        facts = loads(text)
                    for key in ("name", "class_name", "keras_version"):
                        if isinstance(facts, dict) and isinstance(facts.get(key), str):
                            found[key] = facts[key]
            found["layers"] = layers
    except PASSING:
        raise
    except (PparseError, ValueError, RecursionError):  # not what its name says: the model needs none of it
        pass
    return found
