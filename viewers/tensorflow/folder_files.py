"""Small files of a SavedModel folder beside the message: ``fingerprint.pb``, to compare, and ``keras_metadata.pb``."""

from __future__ import annotations

from pparse.document.opening import open as open_document
from pparse.errors import (
    PASSING,
    EndOfDataError,
    LimitError,
    MalformedError,
    PathError,
    PparseError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Finding, Severity, Status
from pparse.viewers.tensor_proto.viewer import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.fingerprint import Fingerprint
    from pparse.viewers.tensorflow.saved_model import SavedModelViewer

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
        size = file.find_end() - file.start
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


# -- Compares a SavedModel folder with its ``fingerprint.pb``, the only checksum that TensorFlow keeps of the message

# ====================  ==================================================  ==========================================
# field                 is the hash of                                      if it differs
# ====================  ==================================================  ==========================================
# saved_model_checksum  ``saved_model.pb``, canonical, by producer 4        an error: all constants are damaged
# saved_model_checksum  the chunks of ``saved_model.cpb``, by producer 2    a warning: chunks have hashes of their own
# checkpoint_hash       ``variables/variables.index``                       a warning: its blocks have checksums
# ====================  ==================================================  ==========================================
#
# TensorFlow itself compares none of them. Other producers computed the checksum in ways that are not known here; then
# it is not compared, and neither is that of a text.

_CONTRADICTED = "the checksum in fingerprint.pb is wrong for the message"


def contradictions(viewer: SavedModelViewer) -> Iterator[Finding]:
    """Yield what contradicts the fingerprint; nothing if there is none.

    The bytes of a message in one piece are vouched for, or condemned.
    """
    try:
        known = fingerprint_of(viewer.extraction)
    except MalformedError as error:
        yield _finding(viewer, error.reason)
        return
    if known is None:
        return
    if viewer.model.own_status() is Status.COMPLETE:  # what is cut needs no checksum to be found
        try:
            yield from _message(viewer, known.saved_model_checksum, known.producer)
        except LimitError as error:
            reason = f"the message was not compared with fingerprint.pb: {error.reason}"
            yield _finding(viewer, reason, Severity.WARNING)
    if known.checkpoint_hash:
        yield from _index(viewer, known.checkpoint_hash)


def _finding(viewer: SavedModelViewer, reason: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding("fingerprint", reason, severity=severity, source=viewer.extraction.name, path=FINGERPRINT)


def _message(viewer: SavedModelViewer, wanted: int, producer: int) -> Iterator[Finding]:
    """Compare the message with its checksum."""
    from pparse.proto_splitter.canonical import Canonicalizer
    from pparse.proto_splitter.fingerprint import PRODUCER_CHUNKED, PRODUCER_WHOLE, chunked_checksum, whole_checksum
    from pparse.proto_splitter.merge_chunks import ReadOptions

    session = viewer.extraction.session
    file = viewer.parser.file  # type: ignore[attr-defined]
    name = file.name
    if name.endswith(".pb") and producer == PRODUCER_WHOLE:
        message = file.data.range(file.start, file.find_end())
        scratch = session.spools if session.scratch is not None else None
        with Canonicalizer(session.budget, session.limits, scratch) as canonicalizer:
            try:
                agrees = whole_checksum(message, canonicalizer) == wanted
            except (MalformedError, EndOfDataError, UnsupportedError):  # no message that TensorFlow could have written
                agrees = False
        if agrees:
            file.data.vouch(message.start, message.end)
            return
        file.data.condemn(message.start, message.end, _CONTRADICTED)
        reason = f"{name} is not what it was when it was saved: it was changed, or is damaged"
        yield _finding(viewer, f"{reason} (if you changed it, remove fingerprint.pb)")
    elif name.endswith(".cpb") and producer == PRODUCER_CHUNKED:
        options = ReadOptions("touched", session.budget, session.limits, None)
        try:
            agrees = chunked_checksum(file.data, options) == wanted
        except LimitError:
            raise
        except PparseError:  # the chunks have findings of their own
            return
        if not agrees:
            yield _finding(viewer, f"{name} is not the one that fingerprint.pb was written for", Severity.WARNING)


def _index(viewer: SavedModelViewer, wanted: int) -> Iterator[Finding]:
    """Compare the index of the variables with its hash."""
    from pparse.proto_splitter.fingerprint import hash_of

    variables = viewer.variables
    if variables is None or variables.extraction.parse().root.status is not Status.COMPLETE:
        return
    index = variables.extraction
    if hash_of(index.data.range(index.start, index.find_end())) != wanted:
        reason = "the variables are not those that the model was saved with: their index has another hash"
        yield _finding(viewer, reason, Severity.WARNING)
