"""Which words of the command line are files, and which files they stand for."""

from __future__ import annotations

from pparse.data import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def is_there(word: str) -> bool:
    """Say whether a word of the command line is a file: one that exists, standard input, or something in a file."""
    parts = word.split("::")
    return word == "-" or any(files.is_there("::".join(parts[:count])) for count in range(len(parts), 0, -1))


def split_files(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the files among ``words`` (the first always is one), and the other words."""
    others = [word for word in words[1:] if not is_there(word)]
    return [words[0], *(word for word in words[1:] if is_there(word))], others


def expanded(words: Sequence[str], *, others: bool) -> list[str]:
    """Return words of the command line with the files that a glob stands for: some shells leave that to programs.

    With ``others``, words after the first may be patterns of names: they are globs of files only if the first is one.
    """
    first = _files_of(words[0]) if words else []
    if others and not first:
        return list(words)
    return [*(first or words[:1]), *(file for word in words[1:] for file in _files_of(word) or [word])]


def _files_of(word: str) -> list[str]:
    """Return the files that a glob stands for; of ``outer::inner``, the outer one is such. Nothing if it is none."""
    outer, mark, inner = word.partition("::")
    if not set(outer) & set("*?[") or is_there(word):
        return []
    from glob import iglob

    return [name + mark + inner for name in sorted(iglob(outer, recursive=True))]
