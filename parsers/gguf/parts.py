"""Names of the files of a split model, as llama.cpp writes them: ``name-00001-of-00003.gguf`` etc."""

from __future__ import annotations

from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_NAME: Final = lazy_pattern(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return what a name begins with, which part it is, from 1 on, and of how many; None if it is not one of a part."""
    found = _NAME.fullmatch(name.rpartition("/")[2].rpartition("\\")[2])
    if found is None or not 0 < int(found[2]) <= int(found[3]):
        return None
    return found[1], int(found[2]), int(found[3])


def part_names(name: str) -> list[str]:
    """Return the names of all parts of the model that the file ``name`` is one of; none if it is not named like one."""
    found = part_of(name)
    if found is None:
        return []
    stem, _, parts = found
    return [f"{stem}-{number:05}-of-{parts:05}.gguf" for number in range(1, parts + 1)]
