"""What identifies content (`Data.identity`): of memory, of file objects, and of data made of other data.

An identity is hashable and can be pickled. Equal ones mean the same, unchanged content, as far as the source tells.
"""

from __future__ import annotations

from pparse.data.hashing import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

    from pparse.data.reader import Range

# What file objects of fsspec and of cloud libraries know of the file: any of these changes with its content.
_VALIDATORS: Final = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "updated")


def derived(what: str, sources: Iterable[Range], *how: object) -> tuple[object, ...] | None:
    """Return the identity of data made of ``sources`` by ``what``, with parameters ``how``; None if one has none.

    Of many ranges only a digest is kept.
    """
    from array import array

    known: dict[int, int] = {}
    identities: list[object] = []
    numbers = array("q")
    for source in sources:
        number = known.get(id(source.data))
        if number is None:
            identity = source.data.identity
            if identity is None:
                return None
            number = known[id(source.data)] = len(identities)
            identities.append(identity)
        numbers.extend((number, source.start, source.end))
    places: object = tuple(numbers) if len(numbers) <= 3 else digest((numbers.tobytes(),))
    return what, tuple(identities), places, *how


def of_stream(stream: Any, size: int | None) -> object | None:
    """Return the identity of a seekable file object.

    It is made of what can be had: class and size, and the identity of the file if it reads one of the system (perhaps
    unpacked); else its name, and what it knows of its content (fsspec's ``details``, as an ETag or a time). With a name
    alone two contents of one size are not told apart. None for an object without a name, such as ``io.BytesIO``.
    """
    from pparse.data.files import identity_of
    from pparse.errors import SourceError

    kind = type(stream).__qualname__
    try:
        return kind, size, identity_of(stream.fileno(), str(getattr(stream, "name", "<stream>")))
    except (AttributeError, OSError, ValueError, TypeError, SourceError):
        pass  # no file of the system
    name = next((name for key in ("full_name", "name", "path") if isinstance(name := getattr(stream, key, 0), str)), "")
    details = getattr(stream, "details", None)
    known: tuple[str, ...] = ()
    if isinstance(details, dict):
        known = tuple(f"{key}={details[key]}" for key in _VALIDATORS if details.get(key) is not None)
    return (kind, size, name, *known) if name or known else None
