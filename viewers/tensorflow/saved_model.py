"""A SavedModel folder as one model: its variables, by their names in the program, and the constants of its graph.

The variables are a checkpoint in ``variables/`` (`pparse.viewers.checkpoint`); the constants are in the message
(`pparse.viewers.tensorflow.viewer`). Variables come first. A constant that is called as a variable is ``name#2``.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from itertools import islice

from pparse.data.range_status import cut_status
from pparse.document.opening import Resume
from pparse.document.opening import open as open_document
from pparse.errors import (
    PASSING,
    EndOfDataError,
    FaultError,
    LimitError,
    MalformedError,
    PathError,
    PparseError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Finding, Severity, Status
from pparse.parsers.checkpoint.parser import INDEX_OF_VARIABLES
from pparse.protos import schema as builtin_schema
from pparse.tensors.status import Extent
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.below import kids_of, node_at, value_at
from pparse.viewers.checkpoint.entry import SLOT, VALUE
from pparse.viewers.checkpoint.viewer import CheckpointViewer
from pparse.viewers.tensorflow.meta import shape_of
from pparse.viewers.tensorflow.tensors import dtype_of
from pparse.viewers.tensorflow.viewer import TensorflowViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.limits import Charge, MemoryBudget
    from pparse.proto_splitter.fingerprint import Fingerprint
    from pparse.tree.node import Node


# Collections of a graph of TensorFlow 1 with the variables that its Saver saved (GraphKeys in framework/ops.py).
_VARIABLES: Final = ("variables", "trainable_variables")
# Memory of the hash of a name in a set.
_COST: Final = 80


class SavedModelViewer(TensorflowViewer):
    """A mapping of names to the variables and constants of a SavedModel folder."""

    counts_itself = True
    has_keys = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.model = TensorflowViewer(extraction)
        """The message alone: its constants."""
        self._compared = False

    @property
    def variables(self) -> Viewer | None:
        """The variables alone; None if there are none, or they cannot be read."""
        return self._variables

    @cached_property
    def _variables(self) -> Viewer | None:
        try:
            index = self.extraction.sibling(INDEX_OF_VARIABLES)
            index.find_end()  # a file is opened when it is asked
            variables: Viewer = index.view()
            if isinstance(variables, CheckpointViewer):
                variables.parser.other_names = self._names_by_key
            return variables
        except SourceError as error:
            if self.parser.sizes("variables") or any(self._described) or self._has_saver():  # type: ignore[attr-defined]
                self._note_unread("missing", f"the variables cannot be read without their index: {error.reason}")
        except FaultError as error:
            self._note_unread("malformed", f"the variables cannot be read: {error.reason}")
        return None

    def _names_by_key(self) -> dict[str, str]:
        """Return the names of variables by key, as the message has them."""
        found: dict[str, str] = {}
        with self.extraction.session.budget.charge(0, "the paths of the variables") as charge:
            for graph in self.meta_graphs():
                found.update(names_by_key(graph, charge))
        return found

    @cached_property
    def _described(self) -> LostVariables:
        """The variables as the message describes them."""
        described: dict[str, Node] = {}
        with self.extraction.session.budget.charge(0, "the paths of the variables") as charge:
            try:
                for graph in self.meta_graphs():
                    described.update(variables_by_key(graph, charge))
            except LimitError as error:
                known: Any = {"severity": Severity.WARNING, "source": self.extraction.name}
                self.findings.add(Finding("names", f"the variables cannot be listed: {error.reason}", **known))
            return LostVariables(self.extraction, described)

    def _has_saver(self) -> bool:
        """Return whether variables were saved: by the fingerprint, or the collections of a graph of TensorFlow 1."""
        try:
            known = fingerprint_of(self.extraction)
        except MalformedError:
            known = None
        if known is not None and known.checkpoint_hash:
            return True
        collections = (graph.find("collection_def") for graph in self.meta_graphs())
        return any(found is not None and found.find(name) is not None for found in collections for name in _VARIABLES)

    def _note_unread(self, code: str, reason: str) -> None:
        self.findings.add(Finding(code, reason, source=self.extraction.name, path=INDEX_OF_VARIABLES))

    @property
    def _parts(self) -> Iterator[Viewer]:
        if self._listed_variables is not None:
            yield self._listed_variables
        yield self.model

    @property
    def _listed_variables(self) -> Viewer | None:
        """The variables; if they cannot be read, as the message describes them."""
        lost = self.variables is None and any(finding.path == INDEX_OF_VARIABLES for finding in self.findings)
        return self._described if lost else self.variables

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield the variables, then the constants."""
        extent = self.new_extent()
        for part in self._parts:
            own = part.new_extent()
            for tensor in part.tensors():
                own.add(tensor)
                if part is self.model:
                    tensor.name = self._free(tensor.name)
                yield tensor
            own = part.close_extent(own)
            extent.add_all(own)
            extent.cut_files += own.cut_files
            extent.missing_files += own.missing_files
            extent.resume += own.resume
            for finding in part.findings:
                self.findings.add(finding)
        self.close_extent(extent)

    def rank(self, tensor: Tensor) -> int:
        """Return 0 for variables, 1 for what says how they were saved, 2 for constants, unless there are only these."""
        variables = self._listed_variables
        if variables is None:
            return self.model.rank(tensor)
        return 2 if tensor._owner is self.model else variables.rank(tensor)

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part if part is not self.model else map(self._free, part)

    def find(self, name: str) -> Tensor | None:
        """Return the variable with that name or key, or the constant with that name; None if there is none."""
        variables = self._listed_variables
        found = variables.find(name) if variables is not None else None
        if found is not None:
            return found
        constant = name
        while (made := self.model.find(constant)) is None or self._free(constant) != name:
            constant, mark, number = constant.rpartition("#")
            if not mark or number != "2":
                return None
        made.name = name
        return made

    def _free(self, name: str) -> str:
        """Return what a constant is called: its name, unless variables have it."""
        while hash(name) in self._variable_names[0]:
            name += "#2"
        return name

    @cached_property
    def _variable_names(self) -> tuple[frozenset[int], Charge]:
        """The hashes of the names of all variables."""
        variables = self._listed_variables
        names = frozenset(map(hash, variables)) if variables is not None else frozenset()
        return names, self.extraction.session.budget.charge(_COST * len(names), "the names of the variables")

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three similar names: of variables, or else of constants, many of which say how to save these."""
        return next(filter(None, (part.suggest(name) for part in self._parts)), ())

    # -- how complete it is --------------------------------------------------------------------------------------------

    def new_extent(self) -> Extent:
        """Return an empty extent."""
        return Extent(0, 0, self.extraction.session.stats.discoveries)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: without their index, the variables are missing."""
        text, message = self.parser.file, self.parser.member  # type: ignore[attr-defined]
        folder = self.extraction.folder
        path = text.path if folder is None else folder.path_of(text.name)
        at = None if message is text else text.find_end() - text.start  # what was made of a text has no place to go on
        extent.resume = [
            Resume(path, found.at if at is None else at, hole=found.hole) if found.file == message.name else found
            for found in extent.resume
        ]
        lost = next((finding for finding in self.findings if finding.path == INDEX_OF_VARIABLES), None)
        if lost is not None and self._variables is None:
            extent.missing_files += 1
            extent.at_least = True
            extent.worsen(cut_status(damaged=lost.code != "missing"))
        return self.keep_extent(extent)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check the variables by their checksums, then the message."""
        told: set[Finding] = set()
        for part in self._parts:
            for finding in part.check(strict=strict):
                if finding not in told:  # the message's list of findings has those of the variables by now
                    told.add(finding)
                    self.findings.add(finding)
                    yield finding
        for asset in self.assets:
            error = self._beside(f"assets/{asset.filename}")
            if isinstance(error, PparseError):
                reason = f"the graph needs the file assets/{asset.filename}: {error.reason}"
                self.findings.add(Finding("asset", reason, source=self.extraction.name, path=asset.tensor))
        self.compare_fingerprint()
        for finding in self.findings:
            if (finding.path == INDEX_OF_VARIABLES or finding.code in ("asset", "fingerprint")) and finding not in told:
                yield finding

    def _beside(self, name: str) -> Extraction | PparseError:
        """Return a file of the folder, whatever it holds, or why it cannot be read."""
        try:
            file: Extraction = self.extraction.sibling(name, any_content=True)
            file.find_end()  # a file is opened when it is asked
            return file
        except (SourceError, EndOfDataError, PathError) as error:
            return error

    @property
    def _asset_names(self) -> Iterator[str]:
        """The names of the assets in the folder, each once: several tensors may take the path of one."""
        return iter(dict.fromkeys(f"assets/{asset.filename}" for asset in self.assets))

    def compare_fingerprint(self) -> None:
        """Compare message and index with the fingerprint of the folder, once."""
        if not self._compared:
            self._compared = True
            for finding in contradictions(self):
                self.findings.add(finding)

    def resolve_all(self) -> None:
        """Compare all checksums, so that no status changes later."""
        for part in self._parts:
            part.resolve_all()
        self.compare_fingerprint()

    # -- what belongs to it ------------------------------------------------------------------------------------------

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the index of the variables, assets, and the small files, as far as they are there."""
        if self.variables is not None:
            yield INDEX_OF_VARIABLES, self.variables.extraction
        members = self.extraction.members  # type: ignore[attr-defined]
        for name in (*(name for name in (FINGERPRINT, KERAS) if name in members), *self._asset_names):
            file = self._beside(name)
            if not isinstance(file, PparseError):  # `check` tells of those that are missing
                yield name, file

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield the index of the variables, if the model has some, and assets."""
        for finding in self.findings if self.variables is None else ():
            if finding.path == INDEX_OF_VARIABLES and finding.code == "missing":
                yield INDEX_OF_VARIABLES, finding.reason
        for name in self._asset_names:
            error = self._beside(name)
            if isinstance(error, PparseError):
                yield name, f"the graph needs it: {error.reason}"

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the entry of a variable in the index of the variables."""
        return None if self.variables is None or tensor._owner is self.model else self.variables.node_of(tensor)

    def why_unknown(self) -> str | None:
        """Return why variables are called by their keys, if they should have names."""
        return None if self.variables is None else self.variables.why_unknown()

    def other_names(self, tensor: Tensor) -> Sequence[str]:
        """Return the key of a variable, and what of it differs from those of others."""
        return () if self.variables is None else self.variables.other_names(tensor)

    def is_bookkeeping(self, tensor: Tensor) -> bool:
        """Return whether it says how the model is saved, or is a text of its graph, not a variable."""
        if self.variables is None:
            return False
        return tensor.is_text if tensor._owner is self.model else self.variables.is_bookkeeping(tensor)

    # -- what it says of itself ----------------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the message says, and the files beside it."""
        variables = {} if self.variables is None else {"variables": dict(self.variables.metadata)}
        return {**super().metadata, **folder_facts(self.extraction), **variables}


# -- The variables of a SavedModel as its message describes them: the checkpoint, or its object graph, is lost ---------

# Memory of a name, a key and a node, at most what is usual.
_VARIABLE_COST: Final = 400
_REASON: Final = "the model has this variable, and the checkpoint with its value cannot be read"


class LostVariables(Viewer):
    """A mapping of names to variables that are missing, with their types and shapes."""

    has_keys = True

    def __init__(self, extraction: Extraction, described: Mapping[str, Node]) -> None:
        """``described``: the SavedVariable of each variable, by its key."""
        super().__init__(extraction)
        self._charge = extraction.session.budget.charge(_VARIABLE_COST * len(described), "the names of the variables")
        self._known: dict[str, tuple[str, str, tuple[int, ...]]] = {}
        for key, node in described.items():
            name = value_at(node, "name", default="") or key
            shape = shape_of(node.find("shape")) or ()
            facts = key, value_at(node, "dtype", default="DT_INVALID"), shape if min(shape, default=0) >= 0 else ()
            self._known[key if name in self._known else name] = facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def tensors(self) -> Iterator[Tensor]:
        """Yield each variable, missing."""
        return (self._tensor(*row) for row in self._rows())

    def find(self, name: str) -> Tensor | None:
        """Return the variable with that name, or key; None if there is none."""
        found = self._known.get(name)
        if found is not None:
            return self._tensor(name, *found)
        keys = (name, name + VALUE)
        return next((self._tensor(*row) for row in self._rows() if row[1] in keys), None)

    def _rows(self) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
        return ((name, *found) for name, found in self._known.items())

    def _tensor(self, name: str, key: str, stored: str, shape: tuple[int, ...]) -> Tensor:
        number = builtin_schema().enum("tensorflow.DataType").numbers.get(stored, 0)
        finding = Finding("missing", _REASON, path=name, source=self.extraction.name)
        made = Tensor(
            name, dtype_of(number), shape, (), stored_dtype=stored, status=Status.MISSING, finding=finding, owner=self
        )
        made.key = key if key != name else None
        return made

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Nothing: what the checkpoint says of itself is lost."""
        return {}

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Yield nothing: that the checkpoint is lost says it for all."""
        return iter(())

    def new_extent(self) -> Extent:
        """Return an empty extent."""
        return Extent(0, 0, self.extraction.session.stats.discoveries)

    def close_extent(self, extent: Extent) -> Extent:
        """Return the extent: nothing is known of the files."""
        return extent


# -- The names of a SavedModel's variables by its own object graph, for when that of the checkpoint is lost ------------

# Keys of an object-based checkpoint are paths: the first way to an object from the root, breadth first, by the names
# of children; what an optimizer keeps for a variable is at the variable's path
# (tensorflow/python/checkpoint/trackable_view.py, tensorflow/python/trackable/trackable_utils.py).

# The most objects that are looked at: this is a way out, not the usual one.
_MOST: Final = 200_000
# Memory of a path, without its text.
_PATH_BYTES: Final = 100
# Memory of a variable with its node, without the text of its key.
_VARIABLE_BYTES: Final = 500


def names_by_key(meta_graph: Node, charge: Charge) -> dict[str, str]:
    """Return the names of the variables of a MetaGraphDef by their keys in the checkpoint. Raises `LimitError`."""
    named = ((key, value_at(node, "name")) for key, node in variables_by_key(meta_graph, charge).items())
    return {key: name for key, name in named if isinstance(name, str) and name}


def variables_by_key(meta_graph: Node, charge: Charge) -> dict[str, Node]:
    """Return the descriptions (SavedVariable) of the variables of a MetaGraphDef by their keys in the checkpoint.

    Raises `LimitError` if ``charge`` has no room for the paths: of a chain of objects, each has all those before in it.
    """
    objects = list(islice(kids_of(node_at(meta_graph, "object_graph_def", "nodes")), _MOST))
    paths = {0: ""} if objects else {}
    waiting = deque(paths)
    variables: dict[int, Node] = {}
    slots: list[tuple[int, int, str, int]] = []
    while waiting:
        number = waiting.popleft()
        known = objects[number]
        variable = known.find("variable")
        if variable is not None:
            variables[number] = variable
        for child in kids_of(known.find("children")):
            other = value_at(child, "node_id", default=0)
            if 0 <= other < len(objects) and other not in paths:
                local = escaped(value_at(child, "local_name", default=""))
                paths[other] = f"{paths[number]}/{local}" if paths[number] else local
                charge.resize(charge.amount + _PATH_BYTES + len(paths[other]))
                waiting.append(other)
        for slot in kids_of(known.find("slot_variables")):
            original, kept = (value_at(slot, f"{key}_variable_node_id", default=0) for key in ("original", "slot"))
            slots.append((number, original, value_at(slot, "slot_name", default=""), kept))
    found = {}
    for number, node in variables.items():
        charge.resize(charge.amount + _VARIABLE_BYTES + len(paths[number]))
        found[paths[number] + VALUE] = node
    for optimizer, original, slot_name, kept in slots:
        if original in paths and 0 <= kept < len(objects):
            variable = objects[kept].find("variable")
            if variable is not None:
                key = f"{paths[original]}{SLOT}{paths[optimizer]}/{escaped(slot_name)}{VALUE}"
                charge.resize(charge.amount + _VARIABLE_BYTES + len(key))
                found[key] = variable
    return found


def escaped(name: str) -> str:
    """Return the name of a child as it stands in a path."""
    return name.replace(".", "..").replace("/", ".S")


# -- Small files of the folder: ``fingerprint.pb``, to compare, and ``keras_metadata.pb`` ------------------------------

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
    if viewer.model.is_whole():  # what is cut needs no checksum to be found
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
    from pparse.proto_splitter.merger import ReadOptions

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
