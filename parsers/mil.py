"""Compiled Core ML models (``.mlmodelc``), folders in which an ML program is a text, ``model.mil``; and such a text.

Apple's compiler writes them; there is no specification. What is read is what such files of coremlc 3500 to 3520 have,
and what coremltools compares with them (coremltools converters/mil/backend/mil/test_load.py)::

    program(1.0)
    [buildInfo = …]
    {
        func main<ios18>(tensor<fp32, [1, 4]> x) {
                tensor<fp16, [2, 4]> w = const()[name = string("w"), val = tensor<fp16, [2, 4]>(BLOBFILE(path =
                    string("@model_path/weights/weight.bin"), offset = uint64(64)))];
                tensor<fp32, [1, 2]> y = linear(weight = w, x = x)[name = string("y")];
            } -> (y);
    }

In program(1.0), one number is ``tensor<string, []>("w")``. Floats are hexadecimal: ``0x1.8p+1``. The text becomes a
message in memory, ``CoreML.Specification.Model``, as a package has it in a file: what is said of these goes for it. An
operation that is not like this, one with blocks in it above all, is left out, and the text is damaged.

The other files: ``weights/weight.bin`` as in a package; ``metadata.json``, for Xcode; ``coremldata.bin`` and
``analytics/``, of which the form is not known; instead of ``model.mil`` in models of neural networks
``model.espresso.net``, ``.shape``, ``.weights``, which are not read.
"""

from __future__ import annotations

from itertools import islice

from pparse.errors import MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.lazy import lazy_pattern
from pparse.parsers.coreml import CoremlPackageParser, CoremlParser
from pparse.parsers.protobuf.text_layer import MessageTextParser
from pparse.tensors.dtype import dtype_named
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Match
    from typing import Any, ClassVar, Final

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.entry import Entry
    from pparse.tree.parser import Excerpt

_TEXT: Final = "model.mil"
# Files of a compiled model: one of the first is there, and what holds the model.
_SIGNS: Final = ("coremldata.bin", "metadata.json")
_NETWORK: Final = "model.espresso.net"
_BEGIN: Final = b"program("
_TOKEN: Final = lazy_pattern(rb"""\s*(?:("(?:[^"\\\n]|\\.)*")|(->)|([-+.\w@$]+)|(\S))""")
# What the types are called in MIL.proto, where that is not the word in capitals.
_WORDS: Final = {"fp8e4m3fn": "FLOAT8E4M3FN", "fp8e5m2": "FLOAT8E5M2", "bf16": "BFLOAT16"}
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0"}
# Fields of a Model, a Program, a Function, a Block.
_PROGRAM, _FUNCTIONS, _BLOCKS, _OPERATIONS = 502, 2, 3, 3
# Types in types.
_MOST_TYPES: Final = 16
# Of a dimension, which has 64 bits.
_MOST_DIGITS: Final = 19


class MilParser(MessageTextParser):
    """The text of an ML program."""

    name = "coreml-mil"
    description = "Core ML program as text"
    extensions: ClassVar[tuple[str, ...]] = (".mil",)
    references: ClassVar[tuple[str, ...]] = ("apple/coremltools mlmodel/format/MIL.proto",)
    limitations = (
        "the whole text is read into memory, as no index of it is made",
        "operations with blocks in them are left out",
    )
    named_is_enough = False
    memory_per_byte = 6
    text_endings, message_ending = (".mil",), ".mlmodel"
    left_out = "each operation that is whole is shown"

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY by the name and the first word."""
        head = excerpt.head(len(_BEGIN))
        return Confidence.LIKELY if head == _BEGIN and excerpt.ends_with(cls.extensions) else Confidence.NO

    def message(self, raw: bytes) -> tuple[str, bytes | bytearray, MalformedError | None, bool] | None:
        """Return the format and the bytes of the message, why it is not all of it, and whether that is the end."""
        reader = _MilReader(raw, self.result.extraction.session.check_cancelled)
        content = reader.program()
        return CoremlParser.name, content, reader.error, reader.is_cut


class CoremlCompiledParser(CoremlPackageParser):
    """A compiled Core ML model: what its text says, and what lies beside it."""

    name = "coreml-compiled"
    description = "compiled Core ML model, a folder"
    member_parts = _SIGNS
    references = ("apple/coremltools mlmodel/format/MIL.proto",)
    limitations = (
        "of neural networks (model.espresso.net), and of models in models, no file is read",
        "inputs and outputs are those of the program: what they are called for Core ML, coremldata.bin says",
        *MilParser.limitations,
    )

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """LIKELY for a folder with the text of a program, or a network, and what the compiler writes beside it."""
        is_compiled = any(name in folder.members for name in _SIGNS)
        there = _TEXT in folder.members or _NETWORK in folder.members
        return Confidence.LIKELY if is_compiled and there else Confidence.NO

    def _find_member(self) -> Extraction:
        if _TEXT not in self._folder.members:
            reason = f"its network is in {_NETWORK} and the like, which pparse does not read"
            raise UnsupportedError(reason, path=self._folder.name)
        self.file: Extraction = self._folder.sibling(_TEXT)
        self._text = self.file.parse(MilParser)
        made: Any = self._text.parser
        return made.unwrapped()  # type: ignore[no-any-return]

    def model_file(self) -> Extraction:
        """Return the file with the text."""
        return self.file

    def root_entry(self) -> Entry:
        """Describe the root: the message that the text says."""
        entry = super().root_entry()
        root = self._text.root
        if root.known_status not in (None, Status.COMPLETE):  # the text is not whole
            entry.status, entry.finding = root.known_status, root.finding
            self.result.findings.extend(self._text.findings)
        return entry

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the model file, its details, and the files that are not read."""
        yield "model", f"{self.file.name}, {self.file.size or 0:,} bytes"
        yield from CoremlParser.details(self)
        others = [name for name in islice(self._folder.members, 100) if name != _TEXT]
        yield "not read", ", ".join(others)


# -- the text ----------------------------------------------------------------------------------------------------------


class _MilReader:
    """Reads the text of a program; makes the message that it says."""

    def __init__(self, raw: bytes, check: Any) -> None:
        self._raw, self._check = raw, check
        self._end = len(raw.rstrip())
        self._at = 0
        self._next: Match[bytes] | None = _TOKEN.match(raw)
        self.error: MalformedError | None = None
        """What is wrong first."""
        self.is_cut = False
        """Whether nothing is but the end."""

    # -- words -------------------------------------------------------------------------------------------------------

    def _peek(self) -> bytes:
        """Return what comes next, of a text its quotes; nothing at the end."""
        return b"" if self._next is None else self._next[0].lstrip()

    def _take(self, wanted: bytes = b"") -> bytes:
        """Return what comes next, and go behind it. Raises `MalformedError` if it is not what is wanted."""
        found = self._peek()
        if not found or (wanted and found != wanted) or self._next is None:
            raise MalformedError(f"there is no {wanted.decode() or 'word'!r} where it should be", offset=self._at)
        self._at = self._next.end()
        self._next = _TOKEN.match(self._raw, self._at)
        return found

    def _goes_on(self, mark: bytes) -> bool:
        """Go behind what comes next if it is ``mark``; return whether it is."""
        found = self._peek() == mark
        if found:
            self._take()
        return found

    def _word(self) -> str:
        if self._next is None or self._next[3] is None:
            raise MalformedError("there is no name where one should be", offset=self._at)
        return self._take().decode("utf-8", "replace")

    def _skip(self, opening: bytes, closing: bytes) -> None:
        """Go behind brackets, and all that is in them."""
        depth = 0
        while depth or self._peek() == opening:
            found = self._take()
            depth += (found == opening) - (found == closing)
            if not depth:
                return

    def _is_before(self, marks: tuple[bytes, ...]) -> bool:
        """Return whether one of these follows the next word."""
        behind = None if self._next is None or self._next[3] is None else _TOKEN.match(self._raw, self._next.end())
        return behind is not None and behind[0].lstrip() in marks

    def _listed(self, closing: bytes) -> Iterator[None]:
        """Go through a list up to behind the bracket that closes it: stop before each of its parts."""
        while not self._goes_on(closing):
            yield
            if not self._goes_on(b","):
                self._take(closing)
                return

    def _seek(self, mark: bytes) -> None:
        """Go to the next ``mark``, or the end."""
        while (found := self._peek()) and found != mark:
            self._take()

    # -- types and values --------------------------------------------------------------------------------------------

    def _type(self, type: Any, depth: int = 0) -> None:
        """Read a type into a ValueType."""
        word = self._word()
        if word in ("state", "list"):
            if depth == _MOST_TYPES:
                raise MalformedError(f"more than {_MOST_TYPES} types are in each other", offset=self._at)
            self._take(b"<")
            self._type(type.stateType.wrappedType if word == "state" else type.listType.type, depth + 1)
            if self._goes_on(b","):
                self._take()  # how long a list is
            self._take(b">")
            return
        if word in ("tuple", "dict"):
            (type.tupleType if word == "tuple" else type.dictionaryType).SetInParent()
            self._skip(b"<", b">")
            return
        is_tensor = word == "tensor"
        if is_tensor:
            self._take(b"<")
            word = self._word()
        name = _WORDS.get(word, word.replace("fp", "FLOAT").upper())
        number = type.tensorType.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_name.get(name)
        if number is None:
            raise MalformedError(f"{word!r} is no type", offset=self._at)
        type.tensorType.dataType = number.number
        if is_tensor:
            self._take(b",")
            self._take(b"[")
            for _ in self._listed(b"]"):
                size, dimension = self._take(), type.tensorType.dimensions.add()
                if size.isdigit():
                    if len(size) > _MOST_DIGITS:
                        raise MalformedError("a dimension has too many digits", offset=self._at)
                    dimension.constant.size = int(size)
                else:
                    dimension.unknown.SetInParent()
            type.tensorType.rank = len(type.tensorType.dimensions)
            self._take(b">")

    def _value(self, value: Any, *, in_file: bool = True) -> None:
        """Read a value: its type, and in brackets what it is, or if it may be ``in_file``, where that has it."""
        self._type(value.type)
        if not value.type.HasField("tensorType"):
            self._skip(b"(", b")")
            return
        self._take(b"(")
        if in_file and self._goes_on(b"BLOBFILE"):
            found = {}
            self._take(b"(")
            for _ in self._listed(b")"):
                key = self._word()
                self._take(b"=")
                inner = value.__class__()
                self._value(inner, in_file=False)
                found[key] = inner.immediateValue.tensor
            self._take(b")")
            blob, place = value.blobFileValue, found["offset"]
            offset = (*place.ints.values, *place.longInts.values)[0]
            blob.CopyFrom(blob.__class__(fileName=found["path"].strings.values[0], offset=offset))
            return
        words, depth = [], 0
        while depth or self._peek() != b")":
            found_word = self._take()
            depth += (found_word == b"[") - (found_word == b"]")
            if found_word not in (b"[", b"]", b","):
                words.append(found_word)
        self._take(b")")
        tensor = value.immediateValue.tensor
        type = value.type.tensorType
        types = type.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_number
        _fill(tensor, types[type.dataType].name, words)

    # -- operations --------------------------------------------------------------------------------------------------

    def _bind(self, argument: Any) -> None:
        """Read the name of a value, or a value."""
        binding = argument.arguments.add()
        if self._is_before((b"<", b"(")):
            self._value(binding.value)
        else:
            binding.name = self._word()

    def _operation(self, operation: Any) -> None:
        while not self._is_before((b"(",)):
            made = operation.outputs.add()
            self._type(made.type)
            made.name = self._word()
            if not self._goes_on(b","):
                self._take(b"=")
                break
        operation.type = self._word()
        self._take(b"(")
        for _ in self._listed(b")"):
            key = self._word()
            self._take(b"=")
            if self._goes_on(b"("):
                for _ in self._listed(b")"):
                    self._bind(operation.inputs[key])
            else:
                self._bind(operation.inputs[key])
        if self._goes_on(b"["):
            for _ in self._listed(b"]"):
                key = self._word()
                self._take(b"=")
                self._value(operation.attributes[key])
        self._take(b";")

    def _operations(self) -> bytearray:
        """Read operations up to the bracket that ends them; leave those out that are none."""
        made = bytearray()
        number = 0
        while not self._goes_on(b"}"):
            if not number & 0xFF:
                self._check()
            number += 1
            start = self._at, self._next
            operation = self._message("MILSpec.Operation")
            try:
                self._operation(operation)
                content = operation.SerializeToString(deterministic=True)
                made += _head(_OPERATIONS, len(content))
                made += content
            except (MalformedError, ValueError, LookupError, OverflowError) as error:
                self._note(error)
                self._at, self._next = start
                self._leave_out()
                if not self._peek():
                    break
        return made

    def _leave_out(self) -> None:
        """Go behind the semicolon that ends an operation, and blocks in it; not beyond the block that it is in.

        A bracket of a block is the last in its line, or the first.
        """
        depth = 0
        while (found := self._peek()) and self._next is not None:
            depth += found == b"{" and self._raw[self._next.end() : self._next.end() + 1] in (b"\n", b"\r")
            depth -= found == b"}" and b"\n" in self._next[0]
            if depth < 0:
                return
            self._take()
            if found == b";" and not depth:
                return

    def _note(self, error: Exception) -> None:
        if self.error is None:
            known = isinstance(error, MalformedError)
            at = error.offset if isinstance(error, MalformedError) and error.offset is not None else self._at
            line = self._raw.count(b"\n", 0, at) + 1
            reason = error.reason if isinstance(error, MalformedError) else "a value is not one of its type"
            self.is_cut = known and not self._peek()
            self.error = MalformedError(f"line {line:,} is not a text of a program: {reason}", offset=at)

    # -- functions ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _message(name: str) -> Any:
        from pparse.protos import message_class

        return message_class(f"CoreML.Specification.{name}")()

    def program(self) -> bytearray:
        """Return the message."""
        made = bytearray(self._message("MILSpec.Program").__class__(version=1).SerializeToString())
        try:
            self._word()
            self._skip(b"(", b")")
            self._skip(b"[", b"]")
            self._take(b"{")
        except MalformedError as error:
            self._note(error)
            self._at, self._next = 0, _TOKEN.match(self._raw)
            self._seek(b"func")
        names: set[str] = set()
        while not self._goes_on(b"}"):
            if not self._peek():
                self._note(MalformedError("it ends early", offset=self._at))
                break
            self._function(made, names)
        made[:0] = _head(_PROGRAM, len(made))
        return made

    def _function(self, made: bytearray, names: set[str]) -> None:
        """Read a function, and add it to a program; one whose name is lost gets one that is free."""
        function, block = self._message("MILSpec.Function"), self._message("MILSpec.Block")
        name, start = "", (self._at, self._next)
        operations, is_there = bytearray(), False
        try:
            try:
                self._take(b"func")
                name = self._word()
                self._take(b"<")
                function.opset = self._word()
                self._take(b">")
                self._take(b"(")
                for _ in self._listed(b")"):
                    given = function.inputs.add()
                    self._type(given.type)
                    given.name = self._word()
                self._skip(b"[", b"]")
            except MalformedError as error:
                self._note(error)
                self._at, self._next = start
                self._seek(b"{")
            self._take(b"{")
            is_there = True
            operations = self._operations()
            self._take(b"->")
            self._take(b"(")
            for _ in self._listed(b")"):
                block.outputs.append(self._word())
            self._take(b";")
        except MalformedError as error:
            self._note(error)
            self._seek(b"func")
        if not (name or is_there):
            return
        if name in names:
            self._note(MalformedError(f"there is another function {name!r}", offset=self._at))
        if not name or name in names:
            name = "main" if "main" not in names else f"function{len(names)}"
        names.add(name)
        # Lengths come first: what is in what, from the inside.
        head, length = block.SerializeToString(), len(operations)
        for number, key, before in (
            (_BLOCKS, function.opset, function.SerializeToString()),
            (_FUNCTIONS, name, b""),
        ):
            text = key.encode()
            head = _head(1, len(text)) + text + _head(2, len(head) + length) + head
            head = before + _head(number, len(head) + length) + head
        made += head
        made += operations


def _head(number: int, length: int) -> bytes:
    return encode_varint(number << 3 | LEN) + encode_varint(length)


def _fill(tensor: Any, name: str, words: list[bytes]) -> None:
    """Put the elements of an array into a TensorValue. Raises `ValueError` and the like if they are not of its type."""
    if name == "STRING":
        if not all(word[:1] == b'"' and len(word) > 1 for word in words):
            raise ValueError("not texts")
        tensor.strings.values.extend(_ESCAPE.sub(_unescaped, word[1:-1]).decode("utf-8", "replace") for word in words)
    elif name == "BOOL":
        tensor.bools.values.extend({b"true": True, b"false": False}[word] for word in words)
    elif name in ("FLOAT32", "FLOAT64"):
        (tensor.floats if name == "FLOAT32" else tensor.doubles).values.extend(map(_float, words))
    elif name.endswith("INT64"):
        tensor.longInts.values.extend((int(word) + (1 << 63)) % (1 << 64) - (1 << 63) for word in words)
    elif name.endswith(("INT8", "INT16", "INT32")):
        tensor.ints.values.extend((int(word) + (1 << 31)) % (1 << 32) - (1 << 31) for word in words)
    else:
        import numpy as np

        if "FLOAT" in name:
            array = np.array(list(map(_float, words)), np.float32).astype(dtype_named(name).numpy)  # type: ignore[union-attr]
            tensor.bytes.values = array.tobytes()
        else:  # below a byte, the first at the lowest bits
            places = np.arange(int(name[-1]))
            codes = np.array(list(map(int, words)), np.int8).reshape(-1, 1)
            tensor.bytes.values = np.packbits((codes >> places & 1).astype(np.uint8), bitorder="little").tobytes()


_ESCAPE: Final = lazy_pattern(rb"\\(.)")


def _unescaped(found: Match[bytes]) -> bytes:
    return _ESCAPES.get(found[1], found[1])


def _float(word: bytes) -> float:
    text = word.decode()
    return float.fromhex(text) if "x" in text else float(text)
