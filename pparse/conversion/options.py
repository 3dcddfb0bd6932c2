"""What a conversion is asked to do."""

from __future__ import annotations

import re

from pparse.conversion.cast import cast_target
from pparse.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final

    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

FORMS: Final = ("safetensors", "npz", "gguf")


def form_named(target: str, to: str | None) -> str:
    """Return what to write: ``to``, or else what the extension of ``target`` says. Raises `OptionError`."""
    if to is None:
        to = _form_of(target)
        if to is None:
            raise OptionError(
                f"{target}: the name does not say what to write; use .safetensors, .npz or .gguf, or --to"
            )
    elif to not in FORMS:
        raise OptionError(f"cannot write {to!r}; use one of {', '.join(FORMS)}")
    return to


def _form_of(target: str) -> str | None:
    """Return what the extension of ``target`` says that is to be written; None if it says nothing."""
    return next((form for form in FORMS if target.lower().endswith(f".{form}")), None)


class Rename:
    """``old=new``: a name that begins with ``old`` begins with ``new`` instead.

    With one ``*`` on both sides, ``old`` is compared with the whole name, and ``new`` gets what its star stood for.
    Raises `OptionError` for a rule with stars on one side only, or several.
    """

    __slots__ = ("_search", "new", "old")

    def __init__(self, rule: str) -> None:
        self.old, mark, self.new = rule.partition("=")
        if not mark:
            raise OptionError(f"expected OLD=NEW, not {rule!r}")
        stars = self.old.count("*"), self.new.count("*")
        if stars not in ((0, 0), (1, 1)):
            raise OptionError(f"{rule}: one star on both sides, or none (a prefix); found {stars[0]} and {stars[1]}")
        before, star, after = self.old.partition("*")
        rest = "(.*)" + re.escape(after) if star else "(.*)"
        self._search = re.compile(re.escape(before) + rest, re.DOTALL).fullmatch

    def __call__(self, name: str) -> str | None:
        """Return the new name; None if the rule is not for this name."""
        found = self._search(name)
        if found is None:
            return None
        before, star, after = self.new.partition("*")
        return before + found[1] + after if star else self.new + found[1]

    def __str__(self) -> str:
        return f"{self.old}={self.new}"


class Options:
    """What to write, of which tensors, and how; see `pparse.convert`. ``target`` is for messages.

    Raises `OptionError`.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        to: str | None = None,
        max_shard_size: int | None = None,
        dtype: str | None = None,
        dequantize: bool = False,
        rename: Iterable[str] = (),
        chosen: Callable[[Viewer, Tensor], bool] | None = None,
        skip_damaged: bool = False,
        skip_unsupported: bool = False,
        dedupe: bool = False,
        force: bool = False,
    ) -> None:
        written = to or (None if target is None else _form_of(target))
        self.to = to
        """``safetensors``, ``npz`` or ``gguf``; None: what the extension of the target says."""
        self.max_shard_size = max_shard_size
        """The most bytes of tensors in a file of a set; None: one file."""
        self.dtype = None if dtype is None else cast_target(dtype, written if written in FORMS else None)
        """What floating tensors are cast to; None: they stay as they are."""
        self.dequantize = dequantize
        """Whether to write what codes stand for, and not the codes and their scales."""
        self.renames = [Rename(rule) for rule in rename]
        """Rules for names: the first that fits a name changes it."""
        self.chosen = chosen
        """Says of a tensor of the source whether to write it; None: all are written."""
        self.skip_damaged = skip_damaged
        """Whether to leave out tensors that are not whole, instead of writing nothing."""
        self.skip_unsupported = skip_unsupported
        """Whether to leave out tensors that the target cannot hold, instead of writing nothing."""
        self.dedupe = dedupe
        """Whether to write tensors that share their bytes once, and note the other names in the metadata."""
        self.force = force
        """Whether to replace existing files."""
        if max_shard_size is not None and max_shard_size < 1:
            raise OptionError(f"a shard must have room for a byte at least, not for {max_shard_size}")

    def renamed(self, name: str, used: set[Rename] | None = None) -> str:
        """Return the name that a tensor gets; add the rule that gave it to ``used``."""
        for rule in self.renames:
            found = rule(name)
            if found is not None:
                if used is not None:
                    used.add(rule)
                return found
        return name
