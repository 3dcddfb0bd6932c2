"""Formats that are FlatBuffers: a schema each, and what else their files have."""

from __future__ import annotations

from functools import cached_property
from itertools import islice

from pparse.display.text import few
from pparse.document.extraction import extraction_of
from pparse.errors import spoken
from pparse.parsers.flatbuffers.flex import held
from pparse.parsers.flatbuffers.parser import FlatBuffersParser, identified, look_ahead, plausible_root
from pparse.parsers.flatbuffers.schema import Schema
from pparse.parsers.flatbuffers.table import Source, Table, Tally
from pparse.tree.parser import MAX_TAIL, Confidence, Container, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.parsers.flatbuffers.survey import Survey
    from pparse.tree.host import Host
    from pparse.tree.parser import Excerpt

_UNCHECKED: Final = "there are no checksums: changed bytes show only where they contradict others"
# Files behind a model that are named.
_MOST_FILES: Final = 1000
_LOOKED_AT: Final = 4 << 10
# The custom operator that runs a program for an NPU; its options have three values of 64 bits, and more.
_DISPATCH: Final = "DISPATCH_OP"
# The most fields of a map of options; the root of a network of MNN has some twelve.
_MOST_FIELDS: Final = 24
# Operators of a network that are looked at to tell what it is.
_NEAR: Final = 4096
_MOST_OPERATORS: Final = 16


class TfliteParser(FlatBuffersParser, Container):
    """TFLite, version 3 of its schema."""

    name = "tflite"
    schema_name = "tflite"
    description = "TFLite model (LiteRT)"
    extensions = (".tflite", ".lite")
    signatures = identified(b"TFL3")
    limitations = (
        _UNCHECKED,
        "where a model is cut before its last tables, its buffers are without names and shapes",
    )
    references = ("google-ai-edge/LiteRT tflite/converter/schema/schema.fbs", "https://flatbuffers.dev/internals")

    viewer = "pparse.viewers.flatbuffers.tflite:TfliteViewer"
    beyond = {
        "Buffer": ("offset", "size"),
        "Operator": ("large_custom_options_offset", "large_custom_options_size"),
    }
    beyond_from = 2
    padded = 64  # where buffers lie behind the FlatBuffer

    def parts_beyond(self) -> Iterator[tuple[int, int]]:
        """Yield the programs for an NPU that LiteRT puts behind a model.

        Options of a ``DISPATCH_OP`` are a FlexBuffer, a map with the values ``bytecode_offset``, ``bytecode_size`` and
        ``name`` (LiteRT litert/core/dispatch_op_schema.cc). Before, a buffer of the metadata,
        ``NPU_BYTE_CODE``, had both numbers as texts of 11 bytes behind ``<npu_byte_code>``.
        """
        model, data, start = Table.root(self), self.result.extraction.data, self.buffer_start
        codes = [code.text("custom_code") == _DISPATCH for code in model.tables("operator_codes")]
        if not any(codes):
            return
        tally = Tally(self)
        for graph in model.tables("subgraphs"):
            for reference in tally.of(graph.references("operators")):
                operator = graph.element("operators", reference)
                code = operator.number("opcode_index")
                at, count = operator.place("custom_options")
                options = held(self.reader, at, at + count, "") if code < len(codes) and codes[code] else None
                if options is not None and options.note.count <= _MOST_FIELDS:
                    told = {entry.key: entry.value for entry in options.note.entries(0, options.note.count)}
                    offset, size = told.get("bytecode_offset"), told.get("bytecode_size")
                    if type(offset) is int and type(size) is int:
                        yield start + offset, start + offset + size
        buffers = model.references("buffers")
        for entry in model.tables("metadata"):
            number = entry.number("buffer")
            if entry.text("name") == "NPU_BYTE_CODE" and number < len(buffers):
                at, count = model.element("buffers", buffers[number]).place("data")
                words = data.known(at, min(count, _LOOKED_AT)).removeprefix(b"<npu_byte_code>")
                first, second = (words[side : side + 11].strip(b"\0") for side in (0, 11))
                if first.isdigit() and second.isdigit():
                    yield start + int(first), start + int(first) + int(second)

    @property
    def files_behind(self) -> Container | None:
        """The zip of files behind the model, which its metadata names; None if there is none."""
        data, there, end = self.reader.data, self.result.extraction.find_end(), super().own_end(self.survey)
        if data.known(end, 4) != b"PK\3\4" or b"PK\5\6" not in data.known(max(end, there - MAX_TAIL), MAX_TAIL):
            return None
        inner = extraction_of(self.result)
        return inner.child("files", inner.data, inner.start, inner.end, "zip").parse().container

    def own_end(self, survey: Survey) -> int:
        """Return where the file should end; behind a model, a zip may follow."""
        return self.result.extraction.find_end() if self.files_behind is not None else super().own_end(survey)

    def files(self) -> Iterator[Any]:
        """Yield the members of the zip behind the model."""
        if (found := self.files_behind) is not None:
            yield from found.files()

    def enter(self, name: str) -> Host | None:
        """Return a file in the zip behind the model; None if there is none of this name."""
        files = self.files_behind
        return None if files is None else files.enter(name)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`, with the files behind the model."""
        yield from super().details()
        names = [member.name for member in islice(self.files(), _MOST_FILES)]
        if names:
            how = spoken("pparse extract -f zip")
            yield "files", f"{few(names)} in a zip behind the model; {how} writes them"


class OrtParser(FlatBuffersParser):
    """Models that ONNX Runtime wrote in its own format."""

    name = "ort"
    description = "ONNX Runtime model (ORT format)"
    schema_name = "ort"
    extensions = (".ort",)
    signatures = identified(b"ORTM")
    viewer = "pparse.viewers.flatbuffers.ort:OrtViewer"
    limitations = (
        _UNCHECKED,
        "tensors in files beside the model are listed, and not read",
        "of the bodies of nodes, tensors are in the tree only",
    )
    references = ("microsoft/onnxruntime onnxruntime/core/flatbuffers/schema/ort.fbs",)


class _Segmented(FlatBuffersParser):
    """A FlatBuffer behind whose identifier a header says where its segments begin.

    The header: four bytes that tell it, ``uint32`` its length, then numbers of 64 bits.
    """

    header = b""
    """What its header begins with."""
    header_base = 0
    """Where in the header the offset of the segments in the file stands."""
    beyond = {"DataSegment": ("offset", "size")}

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by the identifier, LIKELY by the header behind one that is not known."""
        is_one = excerpt.head(12)[8:] == cls.header and plausible_root(excerpt)
        return super().match(excerpt) or (Confidence.LIKELY if is_one else Confidence.NO)

    @cached_property
    def beyond_start(self) -> int:
        """Where the segments begin; the end of the file if there is no header."""
        extraction = self.result.extraction
        raw = extraction.data.known(extraction.start + 8, self.header_base + 8)
        if raw[:4] != self.header or len(raw) < self.header_base + 8:
            return extraction.find_end()
        return extraction.start + int.from_bytes(raw[self.header_base :], "little")


class ExecutorchParser(_Segmented):
    """Programs of ExecuTorch."""

    name = "executorch"
    description = "ExecuTorch program"
    schema_name = "executorch"
    extensions = (".pte",)
    signatures = (*identified(b"ET12"), Signature(b"eh00", 8))
    viewer = "pparse.viewers.flatbuffers.executorch:ExecutorchViewer"
    header, header_base = b"eh00", 16
    limitations = (
        _UNCHECKED,
        "what was delegated to a backend is bytes",
        "in its graph, an instruction is taken to make its last argument, as kernels with `out` do",
    )
    references = ("pytorch/executorch schema/program.fbs, exir/_serialize/_program.py",)


class ExecutorchDataParser(_Segmented):
    """Tensors by name that programs of ExecuTorch need."""

    name = "executorch-data"
    description = "tensors for ExecuTorch programs"
    schema_name = "executorch_data"
    extensions = (".ptd",)
    signatures = (*identified(b"FT01"), Signature(b"FH01", 8))
    viewer = "pparse.viewers.flatbuffers.executorch:ExecutorchDataViewer"
    header, header_base = b"FH01", 24
    limitations = (_UNCHECKED,)
    references = ("pytorch/executorch extension/flat_tensor/serialize",)


class MnnParser(FlatBuffersParser):
    """Models of MNN, which have no identifier."""

    name = "mnn"
    description = "MNN model (Alibaba)"
    schema_name = "mnn"
    extensions = (".mnn",)
    named_is_enough = False
    viewer = "pparse.viewers.flatbuffers.vectors:MnnViewer"
    limitations = (_UNCHECKED, "quantised weights are bytes", "weights in files beside the model are not read")
    references = ("alibaba/MNN schema/default/MNN.fbs",)

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY by the extension, and a root table as a network has it."""
        known = look_ahead(reader)
        fits = excerpt.ends_with(cls.extensions) and len(known.table(known.target(known.start))[1]) <= _MOST_FIELDS
        return Confidence.LIKELY if fits else Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """CERTAIN if the first operators are of known types, and the values that they name have names.

        Who writes a FlatBuffer finishes the root last, at its front: elsewhere nothing is read for it.
        """
        known = look_ahead(reader)
        if known.target(known.start) - known.start > _NEAR:
            return Confidence.NO
        root = Table.root(Source(known, Schema.named(cls.schema_name)))
        names = root.place("tensorName")[1]
        operators = list(islice(root.tables("oplists"), _MOST_OPERATORS))
        fits = bool(names and operators) and all(_is_operator(one, names) for one in operators)
        return Confidence.CERTAIN if fits else Confidence.NO


def _is_operator(table: Table, names: int) -> bool:
    """Say whether a table is an operator of a network of MNN that has so many names of values."""
    numbers = (*table.numbers("inputIndexes"), *table.numbers("outputIndexes"))
    known = all(table.number(key) in table.type.field(key).type.names for key in ("type", "main_type"))
    return known and table.text("name").isprintable() and bool(numbers) and all(-1 <= at < names for at in numbers)


class CatboostParser(FlatBuffersParser):
    """Models of CatBoost: ``CBM1``, the size of a FlatBuffer, the FlatBuffer, parts that it names."""

    name = "catboost"
    description = "CatBoost model"
    schema_name = "catboost"
    extensions = (".cbm",)
    signatures = (Signature(b"CBM1"),)
    viewer = "pparse.viewers.flatbuffers.vectors:CatboostViewer"
    limitations = (_UNCHECKED, "parts behind the trees (tables of categories, texts) are not read")
    references = ("catboost/catboost catboost/libs/model/model.cpp, flatbuffers/model.fbs",)

    @cached_property
    def buffer_start(self) -> int:
        """Where the FlatBuffer begins."""
        return self.result.extraction.start + 8

    @property
    def mark(self) -> tuple[int, bytes]:
        """Where the file begins, and with what."""
        return self.result.extraction.start, b"CBM1"

    def own_end(self, survey: Survey) -> int:
        """Return where the FlatBuffer ends; behind parts that it names, where the file does."""
        extraction = self.result.extraction
        raw = extraction.data.known(extraction.start + 4, 4)
        end = self.buffer_start + int.from_bytes(raw, "little")
        parts = self.result.root.find("ModelPartIds")
        return max(end, extraction.find_end()) if parts is not None and len(parts) else end

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by its first bytes, and a root that lies in the file."""
        is_one = excerpt.head(4) == b"CBM1" and plausible_root(excerpt, 8)
        return Confidence.CERTAIN if is_one else Confidence.NO
