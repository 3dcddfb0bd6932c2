"""Compares a SavedModel folder with its ``fingerprint.pb``, the only checksum that TensorFlow keeps of the message.

====================  ==================================================  ==========================================
field                 is the hash of                                      if it differs
====================  ==================================================  ==========================================
saved_model_checksum  ``saved_model.pb``, canonical, by producer 4        an error: all constants are damaged
saved_model_checksum  the chunks of ``saved_model.cpb``, by producer 2    a warning: chunks have hashes of their own
checkpoint_hash       ``variables/variables.index``                       a warning: its blocks have checksums
====================  ==================================================  ==========================================

TensorFlow itself compares none of them. Other producers computed the checksum in ways that are not known here; then it
is not compared, and neither is that of a text.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.viewers.tensorflow.folder_files import FINGERPRINT, fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.viewers.tensorflow.saved_model import SavedModelViewer

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
        message = file.data.range(file.start, file.known_end())
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
    if hash_of(index.data.range(index.start, index.known_end())) != wanted:
        reason = "the variables are not those that the model was saved with: their index has another hash"
        yield _finding(viewer, reason, Severity.WARNING)
