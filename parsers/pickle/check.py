"""Looking at texts that a listing leaves alone, because they are long."""

from __future__ import annotations

from pparse.data.utf8 import find_not_utf8
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.decoder import Decoder

# Kinds of values that are texts; and of the longest ones the width of the length, by opcode.
TEXTS: Final = ("str", "global")
_WIDTHS: Final = {0x58: 4, 0x8D: 8}
# Values up to this many bytes are decoded, with all that was loaded and dropped behind them.
_DECODED: Final = 1 << 20


def fault_in(decoder: Decoder, start: int, end: int) -> MalformedError | None:
    """Return what is wrong with the text or global ``[start, end)``; of longer ones, where a text stops being UTF-8."""
    if end - start <= _DECODED:
        try:
            decoder.decode(start, end)
        except MalformedError as error:
            return error
        except (LimitError, UnsupportedError, EndOfDataError, GapError):
            pass
        return None
    try:
        return _fault_in_text(decoder.program.data, start, end)
    except (EndOfDataError, GapError):
        return None  # what is lost is told of what lies around it


def _fault_in_text(data: Data, start: int, end: int) -> MalformedError | None:
    width = _WIDTHS.get(data.read_exact(start, 1)[0])
    if width is None:
        return None
    begin = start + 1 + width
    size = int.from_bytes(data.read_exact(start + 1, width), "little")
    at = find_not_utf8(data, begin, min(begin + size, end), "surrogatepass")
    return None if at is None else MalformedError("the text is not UTF-8", offset=at)
