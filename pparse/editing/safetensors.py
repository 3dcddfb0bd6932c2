"""The head of a safetensors file: eight bytes of length, and a JSON text that spaces may follow.

The reference (``tensor.rs``, ``Metadata::validate``) wants tensors without gaps from the beginning of the data to the
end of the file, and texts as metadata; it takes headers of up to 100,000,000 bytes.
"""

from __future__ import annotations

from pparse.conversion.forms import is_text, safetensors_head, safetensors_header, why_no_name
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
    most = 8 + REFERENCE_HEADER_LIMIT

    def __init__(self, viewer: Viewer, wishes: Wishes) -> None:
        super().__init__(viewer, wishes)
        source: Any = viewer
        self.parser = source.parser
        self.old_size = self.parser.data_start
        self._refuse_more()
        self._metadata = self.edited(dict(viewer.metadata), self._encoded)
        there = (self.data.size or 0) - self.old_size
        self._entries: list[Entry] | None = None
        if wishes.of_tensors:
            self._entries = list(self._renamed())
            kept = sorted(
                (begin, to, end - to) for begin, (*_, to, end) in zip(self._begins, self._entries, strict=True)
            )
            self.lay(kept, there)
        else:
            self.lay([(0, 0, there)], there)
        self._text = b"".join(self._header())
        self.needed = 8 + len(self._text)
        if len(self._text) > REFERENCE_HEADER_LIMIT:
            took = f"the header would take {len(self._text):,} bytes"
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

    def _renamed(self) -> Iterator[Entry]:
        """Yield the entries that stay, with their new names and places, in the order of the header."""
        found = [(str(name), info) for _, name, info, _ in self.parser.infos()]
        places = sorted((info.begin, info.end, number) for number, (_, info) in enumerate(found))
        new = self.new_names([name for name, _ in found])
        at, moved = 0, dict[int, int]()
        for begin, end, number in places:
            if new[number] is not None:
                moved[number] = at
                at += end - begin
        self._begins = [info.begin for number, (_, info) in enumerate(found) if number in moved]
        for number, (name, info) in enumerate(found):
            to = moved.get(number)
            if to is not None:
                name = str(new[number])
                why = why_no_name(name, "safetensors")
                if why is not None:
                    raise OptionError(f"{name!r}: {why}")
                yield name, info.kind[2], info.kind[1], to, to + info.end - info.begin

    def _header(self) -> Iterator[bytes]:
        entries = self._entries
        if entries is not None:
            return safetensors_header(entries, self._metadata or None)
        each = (
            (str(name), info.kind[2], info.kind[1], info.begin, info.end) for _, name, info, _ in self.parser.infos()
        )
        return safetensors_header(each, self._metadata or None)

    def written(self, size: int) -> bytes:
        """Return the new head as ``size`` bytes: spaces follow the text."""
        return b"".join(safetensors_head((self._text,), size))
