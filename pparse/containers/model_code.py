"""What models and archives do besides pickles: operators that reach out of a graph, or that a library must be loaded
for, classes in the configuration of a Keras or skops model, templates of chats, names that lead out of a folder.

A template is a program for Jinja: who renders it in no sandbox lets it reach Python's own objects by attributes such as
``__globals__``. skops (skops/io/_utils.py) names types by ``__module__`` and ``__class__``. transformers loads the
classes in ``auto_map`` from files beside a model, if it is told to trust them.

keras/src/saving/serialization_lib.py: an object is told by ``module`` and ``class_name``, a function by its ``config``;
both are imported. onnx.proto: operators outside of ONNX's own domains are those of whoever runs the model.
"""

from __future__ import annotations

from pparse.document.folder import leads_out
from pparse.errors import DataError, LimitError, PparseError
from pparse.lazy import lazy_pattern
from pparse.tree.code_names import graded
from pparse.tree.code_use import NOT_FOLLOWED, CodeUse, Grade
from pparse.tree.entry import MAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph

# Domains of ONNX itself, and of the operators that onnxruntime brings along.
_DOMAINS: Final = frozenset(
    (
        *("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft"),
        *("com.microsoft.nchwc", "com.ms.internal.nhwc", "com.microsoft.experimental"),
    )
)
# The most graphs of a model that are looked into, and bytes of a configuration.
_MOST_GRAPHS: Final = 64
_MOST_BYTES: Final = 64 << 20
_CONFIGURATIONS: Final = (
    *("config.json", "model_config.json", "schema.json", "tokenizer_config.json", "chat_template.json"),
    "processor_config.json",
)
_TEMPLATE: Final = "chat_template"
# What the name of a template beside a model ends with (transformers, ``ProcessorMixin.save_pretrained``).
_OF_TEMPLATE: Final = ".jinja"
_OF_GGUF: Final = f"tokenizer.{_TEMPLATE}"
# What reaches for Python's own objects in a template: their attributes, however written, and helpers that lead to them.
_REACHES: Final = lazy_pattern(
    r"(?:\.|(?:\[|\b(?:attr|groupby)\s*\(|\battribute\s*=)\s*['\"])\s*__[A-Za-z]+__"
    r"|\\(?:x5[fF]|u005[fF]|U0000005[fF]|137|N\{(?i:low line)\})"
    r"|\b(?:lipsum|cycler|joiner|namespace)\s*\.\s*_|_TemplateReference"
)
_BY_NAME: Final = lazy_pattern(r"\|\s*attr\b|\bgetattr\b")
_JINJA: Final = "jinja2.Template"
_SHOWN: Final = 200
_BEFORE: Final = 40


def code_of_graphs(document: Extraction) -> Iterator[CodeUse]:
    """Yield the operators of a model's graphs that are dangerous, or that nobody knows."""
    from pparse.document.registry import viewer_for

    found: dict[str, CodeUse] = {}
    try:
        viewer = viewer_for(document)
        if viewer is None or viewer.graph is None:
            return
        for number in range(_MOST_GRAPHS):
            graph = viewer.graph_of(number)
            for part in (graph, *graph.bodies.values()):
                _note_operators(part, found)
    except PparseError:  # there are no more, or the graph is not whole: `check` says why
        pass
    yield from found.values()


def _note_operators(graph: Graph, found: dict[str, CodeUse]) -> None:
    in_domains = graph.source.where == "domain"
    for ordinal, _, op, _, where, *_ in graph.rows():
        name = f"{where}.{op}" if in_domains and where not in _DOMAINS else f"graph.{op}"
        use = found.get(name)
        if use is None:
            if name.startswith("graph."):
                known = graded(name)
                if known.grade is not Grade.DANGEROUS:
                    continue
                use = CodeUse(op, 0, graph.nodes.at(ordinal).node.start, Grade.DANGEROUS, known.reason)
            else:
                reason = "an operator that is not ONNX's: a library must be loaded for it"
                use = CodeUse(name, 0, graph.nodes.at(ordinal).node.start, Grade.UNKNOWN, reason)
            found[name] = use
        use.count += 1


def code_of_names(document: Extraction) -> Iterator[CodeUse]:
    """Yield the members of an archive that would be written outside of a folder, and links that lead out of it."""
    container = document.parse().container
    for member in container.files() if container is not None else ():
        if leads_out(member.name):
            reason = "a name that leads out of the folder: not every program that extracts it stays inside"
            yield CodeUse(f"extract to {member.name:.{_SHOWN}}", 1, member.at, Grade.DANGEROUS, reason)
        elif member.link:
            folder, slash, _ = member.name.rpartition("/") if member.kind == "symlink" else ("", "", "")
            if leads_out(member.link if member.link[0] in "/\\" else f"{folder}{slash}{member.link}"):
                reason = "a link that leads out of the folder"
                yield CodeUse(f"link to {member.link:.{_SHOWN}}", 1, member.at, Grade.UNKNOWN, reason)


def code_of_templates(document: Extraction) -> Iterator[CodeUse]:
    """Yield what templates of chats in the metadata of a GGUF do."""
    if document.format != "gguf":
        return
    try:
        facts = document.root.find("metadata")
        for node in facts.children() if facts is not None and facts.shape == MAP else ():
            if str(node.key).startswith(_OF_GGUF):
                try:
                    yield from _of_template(node.load(), node.start)
                except DataError as error:  # another reader may take it nevertheless
                    yield _not_followed(error, node.start)
    except DataError as error:
        yield from _untold(error, document)


def _untold(error: DataError, document: Extraction) -> Iterator[CodeUse]:
    """Yield that what a document names is not known, unless its findings say that of every format."""
    if not any(one.is_fault or one.code == "limit" for one in document.findings):
        yield _not_followed(error, document.start)


def _not_followed(error: DataError, at: int) -> CodeUse:
    """Return that what lies there is not known, and why."""
    reason = f"what it names cannot be looked into: {error.reason}"
    return CodeUse(NOT_FOLLOWED, 1, at, Grade.UNKNOWN, reason)


def _of_template(told: Any, at: int) -> Iterator[CodeUse]:
    """Yield what a template would reach, or several with names."""
    for text in told if isinstance(told, list) else [told]:
        text = text.get("template") if isinstance(text, dict) else text
        if not isinstance(text, str):
            continue
        found, named = _REACHES.search(text), _BY_NAME.search(text)
        if found is None and named is None:
            continue
        grade = Grade.DANGEROUS if found is not None else Grade.UNKNOWN
        use = CodeUse(
            _JINJA, 1, at, grade, "a template that reaches for Python's own objects, if no sandbox keeps them"
        )
        start = min(match.start() for match in (found, named) if match is not None)
        use.add_call(at, f"{_JINJA}({text[max(0, start - _BEFORE) :][:_SHOWN]!r})")
        yield use


def is_template(name: str) -> bool:
    """Return whether a file beside a model is a template, by its name: there is no other mark."""
    return name.endswith(_OF_TEMPLATE)


def code_of_template(document: Extraction) -> Iterator[CodeUse]:
    """Yield what a template reaches that is a file of its own."""
    try:
        size = document.find_end() - document.start
        if size > _MOST_BYTES:
            raise LimitError(f"it has more than {_MOST_BYTES >> 20} MiB", option="")
        text = document.data.read_exact(document.start, size).decode("utf-8", "replace")
    except DataError as error:
        yield _not_followed(error, document.start)
    else:
        yield from _of_template(text, document.start)


def code_of_configuration(name: str, document: Extraction) -> Iterator[CodeUse]:
    """Yield the classes, functions and templates that the configuration of a model names, which lies at ``name``."""
    if is_template(name):  # whatever format it looks like
        yield from code_of_template(document)
        return
    if name.rpartition("::")[2].rpartition("/")[2] not in _CONFIGURATIONS or document.format != "json":
        return
    try:
        if document.find_end() - document.start > _MOST_BYTES:
            raise LimitError(f"it has more than {_MOST_BYTES >> 20} MiB", option="")
        config = document.root.to_python()
    except DataError as error:  # another reader may take it nevertheless
        yield from _untold(error, document)
        return
    found: dict[str, CodeUse] = {}
    if isinstance(config, dict):
        yield from _of_template(config.get(_TEMPLATE), document.start)
        yield from _of_auto_map(config.get("auto_map"), document.start)
    waiting: list[Any] = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
            _note_object(item, document, found)
        elif isinstance(item, list):
            waiting += item
    yield from found.values()


def _of_auto_map(told: Any, at: int) -> Iterator[CodeUse]:
    """Yield the classes that transformers would load from files beside a model."""
    for name in told.values() if isinstance(told, dict) else ():
        for one in name if isinstance(name, list) else [name]:
            if isinstance(one, str):
                yield CodeUse(one, 1, at, Grade.UNKNOWN, "code beside the model, which is loaded if it is trusted")


def _note_object(item: dict[str, Any], document: Extraction, found: dict[str, CodeUse]) -> None:
    if isinstance(item.get("__module__"), str) and isinstance(item.get("__class__"), str):  # skops
        words = item["content"] if item["__class__"] == "function" and isinstance(item.get("content"), str) else ""
        _note_name(words or f"{item['__module__']}.{item['__class__']}", None, document, found)
    module, kind, config = item.get("module"), item.get("class_name"), item.get("config")
    if not isinstance(kind, str) or "config" not in item:
        return
    is_function = kind == "function" and isinstance(config, str)
    words = str(config) if is_function else kind
    name = f"{module if isinstance(module, str) else 'keras'}.{words}"
    if kind == "__lambda__":
        name = "keras.Lambda"
    _note_name(name, words, document, found)


def _note_name(name: str, words: str | None, document: Extraction, found: dict[str, CodeUse]) -> None:
    use = found.get(name)
    if use is None:
        known = graded(name, words)
        use = found[name] = CodeUse(name, 0, document.start, known.grade or Grade.UNKNOWN, known.reason)
    use.count += 1
