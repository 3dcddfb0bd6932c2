"""Programs that ``torch.export.save`` wrote (``.pt2``): a zip archive of tensors, and of JSON that describes them.

The tree is that of the archive. Since torch 2.8 (torch/export/pt2_archive, constants.py and _package.py), in a folder:

- ``data/weights/weight_N``, ``data/constants/tensor_N``: the bytes of a storage, which tensors may share;
- ``data/weights/MODEL_weights_config.json``, ``data/constants/MODEL_constants_config.json``: of each tensor its name,
  member, type, size, stride and offset. With ``use_pickle``, the member is what ``torch.save`` wrote;
- ``data/weights/MODEL.pt``, ``data/constants/MODEL.pt`` instead: dicts of tensors by ``torch.save``;
- ``models/MODEL.json``, the program, and ``data/sample_inputs/MODEL.pt``, arguments by ``torch.save``;
- ``archive_format``, which says ``pt2``, and ``archive_version``.

Before (torch/export/__init__.py, ``load``), without a folder, ``serialized_exported_program.json``, and by
``torch.save`` ``serialized_state_dict.pt``, ``serialized_constants.pt`` and ``serialized_example_inputs.pt``.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property

from pparse.errors import DataError, LimitError
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.parsers.pytorch.zip import SURE, PyTorchZipParser, directory_of
from pparse.tree.entry import SCALAR
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Range
    from pparse.parsers.pytorch.storages import StorageReader, Stored
    from pparse.tree.code_use import CodeUse
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt

CONFIG, SAVED, INPUTS, PROGRAM = "config", "saved", "inputs", "program"
_STORAGES: Final = ("data/weights/weight_", "data/constants/tensor_")
# Members that describe tensors, or programs, by their names in the folder; the group says which kind they are.
_PART: Final = lazy_pattern(
    r"data/(?:weights/(?P<config>.+)_weights_config|constants/(?P<config2>.+)_constants_config)\.json"
    r"|data/(?:weights|constants)/(?P<saved>.+)\.pt|data/sample_inputs/(?P<inputs>.+)\.pt|models/(?P<program>.+)\.json"
)
# Those of the older layout. What is called .json there is by torch.save, too.
_OLDER: Final = {
    "serialized_state_dict.pt": SAVED,
    "serialized_state_dict.json": SAVED,
    "serialized_constants.pt": SAVED,
    "serialized_constants.json": SAVED,
    "serialized_example_inputs.pt": INPUTS,
    "serialized_exported_program.json": PROGRAM,
}
# What ``torch.export.save`` calls its one program, and ``torch.export.load`` reads.
USUAL: Final = "model"
_COMPILED: Final = "data/aotinductor/"
_ITS_WEIGHTS: Final = "/weights_config.json"
# Larger parts of a program are gone through piece by piece.
_LARGE: Final = 1 << 16
# How the first member is called, and members in a directory.
_FIRST: Final = lazy_pattern(
    rb"[^/\0]+/(?:data/(?:weights|constants|aotinductor|sample_inputs)/|models/|archive_format$)"
    rb"|serialized_(?:exported_program\.json|state_dict\.|constants\.|example_inputs\.)"
)
_LISTED: Final = lazy_pattern(rb"(?s)PK\x01\x02.{42}(?:[^/\0]{1,255}/archive_format|serialized_exported_program\.json)")

Part = namedtuple("Part", "kind model name")
Part.__doc__ = """A member that describes something of a model: ``name``, in the folder of the archive."""


class ExportedProgramParser(PyTorchZipParser):
    """Programs of ``torch.export``, with their tensors."""

    name = "pt2"
    description = "PyTorch exported program (torch.export)"
    extensions: ClassVar[tuple[str, ...]] = (".pt2",)
    viewer = "pparse.viewers.pytorch.exported:ExportedProgramViewer"
    refines: ClassVar[tuple[str, ...]] = ("zip", "pytorch")
    references: ClassVar[tuple[str, ...]] = (
        "torch/export/pt2_archive/_package.py",
        "torch/_export/serde/schema.py",
        *PyTorchZipParser.references,
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "what AOTInductor compiled (data/aotinductor/) is listed as members, and not read",
        "custom objects are pickles: members like others",
    )
    holds_values: ClassVar[tuple[str, ...]] = ("data", "serialized")

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a zip archive, if its first name is one of a program's parts."""
        is_first = _FIRST.match(cls._first_name(excerpt)) is not None
        return super(PyTorchZipParser, cls).match(excerpt) if is_first else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """The same, if the directory names one of a program's parts."""
        if cls._first_name(excerpt).endswith(SURE):
            return Confidence.NO  # a checkpoint: its end need not be read
        # That of a stored member at the end may be what the tail shows: then only the name tells.
        named = excerpt.tail(1 << 16) if excerpt.ends_with(cls.extensions) else directory_of(excerpt)
        if _LISTED.search(named) is None:
            return Confidence.NO
        found = super(PyTorchZipParser, cls).match(excerpt)
        return found or super(PyTorchZipParser, cls).probe(excerpt, reader)

    # -- the members -------------------------------------------------------------------------------------------------

    @cached_property
    def prefix(self) -> str:
        """What the names of its members begin with: the folder of the first one that is known; none in old files."""
        for name in self.records:
            folder, _, rest = name.partition("/")
            if name in _OLDER:
                return ""
            if _FIRST.match(name.encode()) and rest:
                return f"{folder}/"
        return ""

    def parts(self) -> Iterator[Part]:
        """Yield the members that describe tensors or programs, in the order of the archive."""
        prefix = self.prefix
        for name in self.records:
            if not name.startswith(prefix):
                continue
            own = name[len(prefix) :]
            found = _PART.fullmatch(own) if prefix else None
            if found is not None and found.lastgroup is not None:
                yield Part(found.lastgroup.rstrip("2"), found[found.lastgroup], own)
            elif own in _OLDER and not prefix:
                yield Part(_OLDER[own], USUAL, own)

    def described(self, part: Part) -> Node | None:
        """Return the root of a JSON member, or the value that one of ``torch.save`` has; None if it is lost."""
        try:
            if part.kind in (CONFIG, PROGRAM):
                return self._document(self.prefix + part.name).parse("json").root
            return self.saved(part.name)[1]
        except LimitError:
            raise
        except DataError:
            return None

    def saved(self, name: str) -> tuple[StorageReader, Node | None]:
        """Return the checkpoint that a member is, and the value that was saved in it. Raises `DataError`."""
        parser = self._document(self.prefix + name, compare=False).parse("pytorch").parser
        return parser, parser.pickled()  # type: ignore[attr-defined, return-value]

    def stored(self, key: str, folder: str = "") -> Stored | None:
        """Return a storage: a member, by its name in the folder of the archive."""
        return self.record(key)

    def keys(self) -> Iterator[str]:
        """Yield the names of the members that are storages, or tensors by ``torch.save``; none if compiled code has
        such, too: nothing tells whose they are."""
        own = any(name.endswith(_ITS_WEIGHTS) for name in self.compiled())
        for name in () if own else self.records:
            key = self.key_of(name.removeprefix(self.prefix))
            if key is not None:
                yield key

    def key_of(self, name: str) -> str | None:
        """Return the key of the storage that a member is: its name; None if it is none."""
        return name if name.startswith(_STORAGES) and _PART.fullmatch(name) is None else None

    def pickled(self, name: str = "") -> Node | None:
        """Return None: several members describe what there is."""
        return None

    def compiled(self) -> Iterator[str]:
        """Yield the names of members that AOTInductor compiled."""
        return (name for name in self.records if name.startswith(self.prefix + _COMPILED))

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: of the archive, and what is not read."""
        from pparse.tree.code_use import code_lines

        yield from super().details()
        count = sum(1 for _ in self.compiled())
        if count:
            yield "compiled", f"{count_words(count, 'member')} of AOTInductor in {_COMPILED}: not read"
        yield from code_lines(self.globals())

    def globals(self) -> Iterator[CodeUse]:
        """Yield the globals that its members by ``torch.save`` name, and what is evaluated of its programs."""
        for part in self.parts():
            if part.kind == PROGRAM:
                yield from self._evaluated(part)
            if part.kind not in (SAVED, INPUTS):
                continue
            try:
                for use in self.saved(part.name)[0].globals():  # type: ignore[attr-defined]
                    use.pickle = f"{self.prefix}{part.name}::{use.pickle}"
                    yield use
            except DataError:
                continue  # what is wrong with it is told of the member

    def _evaluated(self, part: Part) -> Iterator[CodeUse]:
        """Yield what torch does with the texts of a program that are expressions, if there are any."""
        from pparse.tree.code_use import NOT_FOLLOWED, CodeUse, Grade
        from pparse.tree.expressions import CALLED, grade_of

        found: CodeUse | None = None
        root, name = self.described(part), self.prefix + part.name
        try:
            for text, at in _texts_below(root):
                if found is None:
                    found = CodeUse(CALLED, 0, at, Grade.HARMLESS, "evaluates plain expressions", name)
                grade, reason = grade_of(text)
                found.count += 1
                if grade is not Grade.HARMLESS:
                    found.worsen(grade, reason)
                    found.add_call(at, f"{CALLED}({text!r:.200})")
        except LimitError:
            raise
        except DataError as error:
            reason = f"not all of it can be read: {error.reason}"
            yield CodeUse(NOT_FOLLOWED, 1, error.offset or 0, Grade.UNKNOWN, reason, name)
        if found is not None:
            yield found


def _texts_below(root: Node | None) -> Iterator[tuple[Any, int]]:
    """Yield the expressions in the JSON of a program, and where each, or a small part with it, stands. Raises
    `DataError`."""
    from pparse.tree.expressions import KEY, is_key, texts_in

    waiting = [iter(() if root is None else (root,))]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
        elif node.shape == SCALAR:
            if is_key(node.key):
                yield node.load(), node.start
        elif sum(length for _, length in node.spans) > _LARGE:
            waiting.append(iter(node.children()))
        else:
            yield from ((text, node.start) for text in texts_in({KEY if is_key(node.key) else "": node.to_python()}))
