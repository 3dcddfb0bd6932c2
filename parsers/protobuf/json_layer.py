"""Messages in JSON form as documents: base class of the parsers of such files.

States: those of a JSON document (`pparse.parsers.json.parser`), which is what the tree shows. Opening a file without
naming its format returns the message inside (see `pparse.parsers.protobuf.json_reader`), as that of a compressed file
returns its content. Source: https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

from pparse.document.extraction import extraction_of
from pparse.errors import PathError
from pparse.findings import Status
from pparse.parsers.json.parser import JsonParser
from pparse.tree.parser import Container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.document.extraction import Extraction
    from pparse.limits import Charge
    from pparse.protobuf.schema import FieldType, MessageType
    from pparse.tree.result import Result

# Bytes decoded at a time.
_STEP: Final = 1 << 20


class MessageJsonParser(JsonParser, Container):
    """A message in the JSON form of protocol buffers.

    A subclass names the type of the message, and the format that reads it in wire format.
    """

    name = ""  # it is no format by itself
    is_generic = False
    refines: ClassVar[tuple[str, ...]] = ("json",)
    references: ClassVar[tuple[str, ...]] = ("https://protobuf.dev/programming-guides/json/",)
    options: ClassVar[dict[str, str]] = {}
    message_name: ClassVar[str] = ""
    """The full name of the type."""
    inner_format: ClassVar[str] = ""
    """The format of the message in wire format."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._inner: Extraction | None = None
        self._charge: Charge | None = None
        self._drained = False

    def inner(self) -> Extraction:
        """Return the message in wire format as an extraction; the first call reads the text. Raise `LimitError`."""
        if self._inner is None:
            # Every JSON document is asked whether it is such a message; few are.
            from pparse.parsers.protobuf.json_reader import JsonReader
            from pparse.protos import schema

            extraction = extraction_of(self.result)
            type = schema().message(self.message_name)
            data, self._charge = JsonReader(self, type, self.missing_bytes).make()
            extraction.session.adopt(data)
            inner = extraction.child(self.content_name(), data, format=self.inner_format)
            inner.go_deeper()
            inner.implicit = True
            self._inner = inner
        return self._inner

    def verify_stream(self, *, unless_indexed: bool = False) -> None:
        """Decode all base64 texts, so that characters that are none are known; not for a listing."""
        if unless_indexed or self._inner is None or self._drained:
            return
        data = self._inner.data
        pos, end = 0, data.size or 0
        while pos < end:
            extraction_of(self.result).session.check_cancelled()
            data.read_known(pos, min(_STEP, end - pos))
            pos += _STEP
        data.resolve()
        self._drained = True

    def content_name(self) -> str:
        """Return the name of the message: that of the file without ``.json``."""
        name = extraction_of(self.result).name.replace("\\", "/").rpartition("/")[2]
        stem = name[:-5] if name.lower().endswith(".json") else ""
        return stem if "." in stem else f"{stem or name}.content"

    def missing_bytes(self, type: MessageType, field: FieldType, message: bytes, there: int) -> int:
        """Return how many bytes a value that the end of the text cuts lacks at least.

        ``message`` is what came before it in the message of ``type``, and ``there`` how many bytes of it are there.
        """
        return 1

    def unwrapped(self) -> Extraction | None:
        """Return the message; None if the text is not that of an object."""
        root = self.result.root
        return self.inner() if root.kind == "object" and root.known_status is not Status.UNSUPPORTED else None

    def enter(self, name: str) -> Extraction:
        """Return the message, by its name. Raise `PathError` for another name."""
        if name not in (self.content_name(), "content"):
            raise PathError(f"it holds one message, {self.content_name()!r}", path=name)
        return self.inner()
