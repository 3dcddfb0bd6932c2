"""Messages in a form of text as documents: base class of the parsers of such files.

States::

    state        needs  reads                      goes to
    expect_text  0      the text, all of it        DONE

Opening a file without naming its format returns the message inside, as that of a compressed file returns its content.
"""

from __future__ import annotations

from abc import abstractmethod

from pparse.data.base import BytesData
from pparse.data.range_status import cut_status
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError
from pparse.findings import Finding
from pparse.tree.context import DONE
from pparse.tree.entry import MAP
from pparse.tree.parser import Container, Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from pparse.document.extraction import Extraction
    from pparse.errors import MalformedError
    from pparse.limits import Charge
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.result import Result


class MessageTextParser(Parser, Container):
    """A text that says a message."""

    name = ""  # it is no format by itself
    root_shape = MAP
    media_type = "text/plain"
    limitations: ClassVar[tuple[str, ...]] = ("the whole text is read into memory, as no index of it is made",)
    memory_per_byte: ClassVar[int]
    """Memory that a text takes as a message, per byte."""
    text_endings: ClassVar[tuple[str, ...]]
    """What the name of a text ends in, one after the other."""
    message_ending: ClassVar[str]
    """What that of the message ends in instead."""
    left_out: ClassVar[str]
    """What is shown of a text that is not whole, in words."""
    charge: Charge

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._inner: Extraction | None = None

    @abstractmethod
    def message(self, raw: bytes) -> tuple[str, bytes | bytearray, MalformedError | None, bool] | None:
        """Return the format and the bytes of the message, why it is not all of it, and whether that is the end.

        None: the text says no message.
        """

    def content_name(self) -> str:
        """Return the name of the message: that of the file, with another ending."""
        name = extraction_of(self.result).name.replace("\\", "/").rpartition("/")[2]
        for ending in self.text_endings:
            name = name.removesuffix(ending)
        return name + self.message_ending

    def unwrapped(self) -> Extraction | None:
        """Return the message. Raises `LimitError` if the text is too long for the budget."""
        if self._inner is None:
            extraction = extraction_of(self.result)
            size = extraction.find_end() - extraction.start
            self.charge = extraction.session.budget.charge(self.memory_per_byte * size, "the text of the model")
            found = self.message(extraction.data.read_exact(extraction.start, size))
            if found is None:
                return None
            format, content, error, is_end = found
            self.charge.resize(len(content))
            data = BytesData(content, f"{extraction.name} (as a message)")
            extraction.session.adopt(data)
            inner = extraction.child(self.content_name(), data, 0, len(content), format=format)
            inner.go_deeper()
            inner.implicit = True
            self._inner = inner
            if error is not None:
                status = cut_status(damaged=not is_end)
                if is_end:
                    data.error = EndOfDataError(error.reason, offset=len(content))  # the text, not what was made of it
                reason = f"{error.reason}; {self.left_out}"
                finding = Finding(status.code, reason, source=extraction.name, offset=error.offset)
                for result in (self.result, inner.parse()):
                    result.close_node(result.root, status, finding)
        return self._inner

    def enter(self, name: str) -> Extraction | None:
        """Return the message, by its name."""
        return self.unwrapped() if name in (self.content_name(), "content") else None

    def begin(self, ctx: NodeContext) -> Step:
        """Begin the root."""
        return ctx.node.start, self.expect_text, 0

    def expect_text(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Look into the text; its content is another document."""
        self.unwrapped()
        return ctx.node.end or ctx.node.start, DONE, 0
