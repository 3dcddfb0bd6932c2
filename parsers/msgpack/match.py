"""Recognising MessagePack, which has no magic: a map whose keys are texts, or an array of such maps."""

from __future__ import annotations

from pparse.errors import EndOfDataError, MalformedError
from pparse.parsers.msgpack.values import container, decode, head
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.tree.parser import Excerpt

HEAD: Final = 4 << 10
# Bytes of keys, with their heads, that do not come about by chance.
_ENOUGH: Final = 8
_MOST_VALUES: Final = 200


def confidence(excerpt: Excerpt) -> Confidence:
    """Return LIKELY if the first bytes are those of a map with text keys, or of an array of such maps."""
    raw = excerpt.head(HEAD)
    if not raw or (kind := container(raw[0])) is None:
        return Confidence.NO
    found, ends = _text_of_keys(raw)
    is_whole = ends is not None and ends == excerpt.size
    if kind == "array" and found < _ENOUGH:
        return Confidence.NO
    return Confidence.LIKELY if found >= _ENOUGH or (found and is_whole) else Confidence.NO


def _text_of_keys(raw: bytes) -> tuple[int, int | None]:
    """Return how many bytes of keys are texts, and where the first value ends, if that is in ``raw``.

    Looks at the keys of all maps that begin in ``raw``; 0 if the first is no text, or one has odd characters.
    """
    found = at = 0
    open_maps: list[list[int]] = []  # values still to come, and whether it is a map
    for _ in range(_MOST_VALUES):
        try:
            while open_maps and not open_maps[-1][0]:
                open_maps.pop()
            if at and not open_maps:
                return found, at
            if open_maps:
                level = open_maps[-1]
                level[0] -= 1
                is_key = level[1] and level[0] % 2
            else:
                is_key = 0
            code = raw[at]
            kind = container(code)
            if is_key:
                key, behind = decode(raw, at)
                if isinstance(key, str) and key.isprintable():
                    found += behind - at
                elif not found or isinstance(key, str):
                    return 0, None
                at = behind
            elif kind is not None:
                number, at = head(raw, at)
                open_maps.append([number if kind == "array" else 2 * number, kind == "map"])
            else:
                at = _behind(raw, at)
        except (EndOfDataError, IndexError):
            break
        except MalformedError:
            return 0, None
    return found, None


def _behind(raw: bytes, at: int) -> int:
    from pparse.kernels.msgpack_skip import NEVER, skip

    behind, pending = skip(raw, at, 1, len(raw))
    if pending and raw[at] == NEVER:
        raise MalformedError("there is no type 0xc1", offset=at)
    if pending:
        raise EndOfDataError("the value goes on", offset=at)
    return behind
