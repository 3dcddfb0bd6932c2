"""A large FlexBuffer that the benchmarks read; written without a library, as those of C++ share keys."""

from __future__ import annotations

from struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# Type bytes: kinds times four, and the logarithm of the width of what is led to.
_INT, _FLOAT, _TEXT, _MAP, _VECTOR = 1 << 2 | 2, 3 << 2 | 2, 5 << 2, 9 << 2 | 2, 10 << 2 | 2


def rows(path: Path, count: int) -> Path:
    """Write ``{"rows": [{"id": 0, "name": "row 0", "pos": {"x": 0.0, "y": 0}}, …]}`` of ``count`` rows."""
    out = bytearray(b"id\0name\0pos\0rows\0x\0y\0")
    keys = {name: out.index(name + b"\0") for name in (b"id", b"name", b"pos", b"rows", b"x", b"y")}

    def align() -> None:
        out.extend(bytes(-len(out) % 4))

    def key_vector(*names: bytes) -> int:
        align()
        out.extend(pack("<I", len(names)))
        at = len(out)
        for name in names:
            out.extend(pack("<I", len(out) - keys[name]))
        return at

    def mapped(vector: int, places: list[int | float], leads: set[int], types: bytes) -> int:
        align()
        out.extend(pack("<3I", len(out) - vector, 4, len(places)))
        at = len(out)
        for number, value in enumerate(places):
            out.extend(pack("<f" if isinstance(value, float) else "<I", len(out) - value if number in leads else value))
        out.extend(types)
        return at

    row_keys, place_keys, root_keys = key_vector(b"id", b"name", b"pos"), key_vector(b"x", b"y"), key_vector(b"rows")
    found = []
    for number in range(count):
        text = b"row %d" % number
        out.extend(bytes((len(text),)) + text + b"\0")
        name = len(out) - len(text) - 1
        place = mapped(place_keys, [number / 2, number], set(), bytes((_FLOAT, _INT)))
        found.append(mapped(row_keys, [number, name, place], {1, 2}, bytes((_INT, _TEXT, _MAP))))
    align()
    out.extend(pack("<I", count))
    start = len(out)
    for at in found:
        out.extend(pack("<I", len(out) - at))
    out.extend(bytes((_MAP,)) * count)
    root = mapped(root_keys, [start], {0}, bytes((_VECTOR,)))
    align()
    out.extend(pack("<I", len(out) - root) + bytes((_MAP, 4)))
    path.write_bytes(out)
    return path
