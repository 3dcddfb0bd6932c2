"""The head of a safetensors file: eight bytes of length, and a JSON text that spaces may follow.

The reference (``tensor.rs``, ``Metadata::validate``) wants tensors without gaps from the beginning of the data to the
end of the file, and texts as metadata; it takes headers of up to 100,000,000 bytes.
"""

from __future__ import annotations

from pparse.conversion.forms import is_text, safetensors_header, why_no_name
from pparse.editing.plan import Head
from pparse.errors import OptionError, UnsupportedError
from pparse.parsers.safetensors.header import FIELDS, METADATA, REFERENCE_HEADER_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.conversion.forms import Entry
    from pparse.editing.plan import Wishes
    from pparse.tensors.viewer import Viewer


class SafetensorsHead(Head):
    """Length and header."""

    step = 8
    most: int = 8 + REFERENCE_HEADER_LIMIT

    def __init__(self, viewer: Viewer, wishes: Wishes) -> None:
        super().__init__(viewer, wishes)
        source: Any = viewer
        self.parser = source.parser
        self.old_size = self.parser.data_start
        self._refuse_more()
        self._metadata = self.edited(dict(viewer.metadata), self._encoded)
        there = (self.data.size or 0) - self.old_size
        self._names: list[str | None] | None = None
        self._moved: dict[int, int] = {}  # by their number, where tensors will begin, if any are dropped
        if wishes.of_tensors:
            self._names = self.new_names([str(name) for _, name, _, _ in self.parser.infos()])
        self.lay(self._places() if self._names is not None and None in self._names else [(0, 0, there)], there)
        self._head = bytearray(8)
        for piece in safetensors_header(self._entries(), self._metadata or None):
            self._head += piece
        self.needed = len(self._head)
        if self.needed > self.most:
            took = f"the header would take {self.needed - 8:,} bytes"
            raise OptionError(f"{took}, more than the {REFERENCE_HEADER_LIMIT:,} that readers accept")

    def _refuse_more(self) -> None:
        """Raise `UnsupportedError` for what a new header would not have: unknown fields, two values under one key."""
        if self.parser.is_plain:
            return
        root, node = self.parser.header.root, self.parser.metadata_node()
        odd = next((kid for kid in root.children() if kid.key != METADATA and len(kid) > len(FIELDS)), None)
        if odd is not None:
            raise UnsupportedError(f"the entry of {odd.key} has more than {', '.join(FIELDS)}", source=self.data.name)
        if node is not None and any(node.find(key.rpartition("#")[0], 2) for key in self.viewer.metadata if "#" in key):
            raise UnsupportedError(f"{METADATA} has a key twice", source=self.data.name)

    def _encoded(self, key: str, value: object) -> tuple[str, str]:
        if not isinstance(value, str):
            raise OptionError(f"{key}: metadata of safetensors files are texts, not {type(value).__name__}")
        if not is_text(key) or not is_text(value):
            raise OptionError(f"UTF-8 cannot hold {key!r} or its value")
        return key, value

    def rekeyed(self, key: str, value: str) -> tuple[str, str]:  # type: ignore[override]
        """Return what is kept of a value under another key."""
        return self._encoded(key, value)

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Yield where tensors that stay begin, where they will, and their lengths, in the order of the payload."""
        at, names = 0, self._names or ()
        found = ((info.begin, info.end, number) for number, (_, _, info, _) in enumerate(self.parser.infos()))
        for begin, end, number in sorted(place for place in found if names[place[2]] is not None):
            self._moved[number] = at
            yield begin, at, end - begin
            at += end - begin

    def _entries(self) -> Iterator[Entry]:
        """Yield the entries that stay, with their new names and places, in the order of the header."""
        for number, (_, name, info, _) in enumerate(self.parser.infos()):
            new = str(name) if self._names is None else self._names[number]
            if new is not None:
                why = why_no_name(new, "safetensors") if self._names is not None else None
                if why is not None:
                    raise OptionError(f"{new!r}: {why}")
                begin = self._moved.get(number, info.begin)
                yield new, info.kind[2], info.kind[1], begin, begin + info.end - info.begin

    def written(self, size: int) -> bytearray:
        """Return the new head as ``size`` bytes: spaces follow the text."""
        self._head[:8] = (size - 8).to_bytes(8, "little")
        self._head[self.needed :] = b" " * (size - self.needed)
        return self._head
