"""Makes names from an archive safe for the disk: whatever was stored, the result is below the folder written to.

The stored name is untrusted. It may lead out of the folder (``../x``, ``/x``, ``C:\\x``), end early (a NUL), mean a
device (``CON.txt``), imitate another name (a mark that reverses the writing direction), or have megabytes. `safe_name`
returns path parts without any of that. The result is always the same, and the same on all systems except for characters
that only Windows forbids.
"""

from __future__ import annotations

import os
import re

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

UNNAMED: Final = "unnamed"
MAX_COMPONENT: Final = 255  # bytes of UTF-8: the limit of ext4, APFS and NTFS
MAX_PATH: Final = 4095  # bytes of UTF-8: the limit of Linux, without the NUL at the end
MAX_DEPTH: Final = 100  # parts of a path
_MAX_TEXT: Final = 1 << 16  # characters that are used, half of them from each end
_MAX_SUFFIX: Final = 32  # bytes: a longer text after the last dot of a name is not a suffix
_MAX_PLAIN: Final = 100  # bytes: a name for file systems that refuse long ones
_WINDOWS: Final = os.name == "nt"
_DEVICES: Final = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"]
    + [f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"]
)
_FORBIDDEN: Final = str.maketrans(dict.fromkeys('<>:"|?*', "_"))  # on Windows; a colon there names a hidden stream
_DRIVE: Final = lazy_pattern(r"[A-Za-z]:")
# Characters without width, that reverse the writing direction, or that break a line.
_HIDDEN: Final = lazy_pattern(
    r"[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class _Harmless(dict[int, str | int]):
    """Maps code points to their replacement in a name, computed on demand."""

    def __missing__(self, code: int) -> str | int:
        if 0xDC80 <= code <= 0xDCFF:  # a byte that could not be decoded (PEP 383)
            return f"%{code - 0xDC00:02X}"
        if 0xD800 <= code <= 0xDFFF:  # half of a surrogate pair: no file system accepts it
            return f"%u{code:04X}"
        return "_" if _HIDDEN.match(chr(code)) else code


_HARMLESS: Final = _Harmless({ord("\\"): "/"})


def safe_name(
    name: str, raw: bytes | None = None, *, depth: int = MAX_DEPTH, windows: bool = _WINDOWS
) -> tuple[str, ...]:
    """Return the parts of a path for a member stored as ``name`` (``raw``: the bytes it was decoded from, if known).

    There is at least one part. No part is empty, ``.`` or ``..``, contains a separator or an invisible character, is a
    device of Windows, ends in a dot or a space, or has more than `MAX_COMPONENT` bytes. There are at most ``depth``
    parts, and `MAX_PATH` bytes with separators. Bytes that are not UTF-8 appear as ``%E9``. With ``windows``,
    characters that are forbidden there are replaced, too. The function is idempotent.
    """
    text = _decoded(name, raw)
    if len(text) > _MAX_TEXT:  # longer than any path: what is between its ends is dropped unread
        text = text[: _MAX_TEXT // 2] + text[-_MAX_TEXT // 2 :]
    if not (text.isascii() and text.isprintable() and "\\" not in text):
        text = text.translate(_HARMLESS)
    parts = [part for part in text.split("/") if part not in ("", ".", "..")]
    if len(parts) > depth:
        parts[depth - 1 :] = parts[-1:]
    _strip_drive(parts, network=text.startswith("//"))
    parts = [_component(part, windows) for part in parts]
    size = sum(map(_size, parts)) + len(parts) - 1
    while size > MAX_PATH:  # keep the name of the file and the folders at the root
        size -= _size(parts.pop(-2)) + 1
    return tuple(parts) or (UNNAMED,)


def changed(name: str, parts: Iterable[str]) -> bool:
    """Say whether ``parts`` differ from the stored ``name`` as a path: ``./a//b/`` and ``a/b`` are the same."""
    if len(name) > _MAX_TEXT or name.startswith("/"):
        return True
    return [part for part in name.split("/") if part not in ("", ".")] != list(parts)


def names_root(name: str) -> bool:
    """Say whether ``name`` is that of the folder itself, such as ``./``, the first member of many tar archives."""
    return len(name) <= MAX_PATH and all(part in ("", ".", "..") for part in name.replace("\\", "/").split("/"))


def numbered(part: str, number: int, *, folder: bool = False) -> str:
    """Return a new name for one that is taken: ``a~2.txt`` for a file, ``a.b~2`` for a folder; never too long."""
    stem, suffix = (part, "") if folder else _split_suffix(part)
    return _cut(stem, MAX_COMPONENT - _size(suffix) - len(str(number)) - 1) + f"~{number}{suffix}"


def plain(part: str) -> str:
    """Return a short name of ASCII letters and digits, to replace a part that a file system refuses."""
    return _component(re.sub(r"[^A-Za-z0-9._~-]", "_", part), windows=True, limit=_MAX_PLAIN)


def fold(part: str) -> str:
    """Return a key that is equal for names that some file system takes for the same: ignores case and composition."""
    if part.isascii():
        return part.lower()
    from unicodedata import normalize

    return normalize("NFD", normalize("NFD", part).casefold())


def printable(text: str) -> str:
    """Return ``text`` with control characters, misleading and unencodable characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        shown if _HARMLESS[ord(shown)] == ord(shown) or shown == "\\" else ascii(shown)[1:-1] for shown in text
    )


def _decoded(name: str, raw: bytes | None) -> str:
    """Return ``name``; decoded from ``raw`` again if the first decoding lost characters."""
    if raw is None or "\ufffd" not in name or len(raw) > 4 * _MAX_TEXT:
        return name
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")
    return name  # the replacement character was stored as such


def _strip_drive(parts: list[str], *, network: bool) -> None:
    """Remove ``C:`` and the ``?`` of ``\\\\?\\`` from the front; ``C:x``, relative to a drive, becomes ``C_x``."""
    at = 0
    while at < len(parts) and (_DRIVE.fullmatch(parts[at]) or (network and parts[at] == "?")):
        at += 1
    del parts[:at]
    if parts and _DRIVE.match(parts[0]):
        parts[0] = f"{parts[0][0]}_{parts[0][2:]}"


def _component(part: str, windows: bool, limit: int = MAX_COMPONENT) -> str:
    if windows:
        part = part.translate(_FORBIDDEN)
    if re.split("[.:]", part, maxsplit=1)[0].rstrip(" ").upper() in _DEVICES:
        part = f"_{part}"
    if _size(part) > limit:
        stem, suffix = _split_suffix(part)
        part = _cut(stem, limit - _size(suffix)) + suffix
    kept = part.rstrip(". ")  # Windows drops these, which would change the name
    return kept + "_" * (len(part) - len(kept))


def _split_suffix(part: str) -> tuple[str, str]:
    stem, dot, suffix = part.rpartition(".")
    return (stem, dot + suffix) if stem.strip(".") and _size(suffix) < _MAX_SUFFIX else (part, "")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _cut(text: str, limit: int) -> str:
    """Return as much of ``text`` as has at most ``limit`` bytes, whole characters only."""
    return text.encode()[:limit].decode("utf-8", "ignore")
