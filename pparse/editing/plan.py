"""What an edit changes: the wishes, what stands before the payload of a file and what it becomes, and the result."""

from __future__ import annotations

from collections import Counter
from math import lcm

from pparse.conversion.plan import Rename
from pparse.display.text import safe, shorten
from pparse.errors import MissingNameError, NotWholeError, OptionError
from pparse.findings import BROKEN
from pparse.limits import count_words, format_size
from pparse.paths import glob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Final, TypeVar

    from pparse.tensors.viewer import Viewer

    V = TypeVar("V", str, bytes)

_SHOWN: Final = 60
"""The most characters of a value in a line that tells a change."""


class Wishes:
    """What shall change. Keys are deleted first, then renamed, then set; tensors are dropped first, then renamed."""

    def __init__(
        self,
        set_metadata: Mapping[str, object],
        delete_metadata: Iterable[str],
        rename_metadata: Mapping[str, str],
        rename: Iterable[str],
        drop: Iterable[str],
    ) -> None:
        self.set = dict(set_metadata)
        """Values by key."""
        self.delete = list(dict.fromkeys(delete_metadata))
        """Keys that go."""
        self.rename = dict(rename_metadata)
        """New keys by old ones."""
        self.rules = [Rename(rule) for rule in rename]
        """Rules for names of tensors: the first that fits a name changes it."""
        self.drop = list(dict.fromkeys(drop))
        """Patterns of names of tensors that go."""

    def __bool__(self) -> bool:
        return bool(self.set or self.delete or self.rename or self.rules or self.drop)

    @property
    def of_tensors(self) -> bool:
        """Whether names of tensors are looked at."""
        return bool(self.rules or self.drop)


class Head:
    """All that stands before the payload of a file, and what becomes of it: `size` bytes, which `written` gives."""

    step = 1
    """The payload begins at a multiple of this."""
    most: int | None = None
    """The largest head that readers take; None: any."""

    def __init__(self, viewer: Viewer, wishes: Wishes) -> None:
        self.viewer, self.wishes = viewer, wishes
        self.data = viewer.extraction.data
        self.old_size = 0
        """Where the payload begins now."""
        self.needed = 0
        """The fewest bytes that the new head takes."""
        self.moves: list[tuple[int, int, int]] = []
        """What stays of the payload: where it is, where it will be, both from its beginning, and its length."""
        self.payload = 0
        """Bytes of the payload afterwards."""
        self.changes: list[str] = []
        """What changes, in words."""
        self.notes: list[str] = []
        """What else there is to know."""
        self._held: Mapping[str, Any] = {}
        self._shift = 0

    def fits(self, size: int) -> bool:
        """Return whether the new head can take exactly ``size`` bytes."""
        return size >= self.needed

    def written(self, size: int) -> bytes | bytearray:
        """Return the new head as ``size`` bytes, good until it is asked for again."""
        raise NotImplementedError

    def room(self, block: int) -> int:
        """Return the size that the new head gets: the old one, if that is enough, else whole blocks more.

        So the payload keeps its place in its blocks: file systems can insert those, and share the others with a copy.
        """
        if not self.payload:
            return self.needed
        size, block = self.old_size, lcm(block, self.step)
        size += max(0, -(-(self.needed - size) // block)) * block
        while not self.fits(size):
            size += block
        if self.most is not None and size > self.most:
            size = self.needed + -self.needed % self.step
        return size

    def edited(self, known: dict[str, V], encode: Callable[[str, object], tuple[str, V]]) -> dict[str, V]:
        """Return the metadata as they shall be; `encode` makes a key and what is kept of it of those that are set."""
        wishes, held = self.wishes, dict(known)
        for key in wishes.delete:
            self._require(key, held)
            del held[key]
            self.changes.append(f"delete {safe(key)}")
        for old, new in wishes.rename.items():
            self._require(old, held)
            if new != old:
                if new in held:
                    raise OptionError(f"{old} cannot become {new}: there is that key already")
                name, value = self.rekeyed(new, held[old])
                held = {name if key == old else key: value if key == old else kept for key, kept in held.items()}
                self.changes.append(f"rename {safe(old)} to {safe(new)}")
        for given, wanted in wishes.set.items():
            self._held = held
            key, value = encode(given, wanted)
            if held.get(key) != value:
                verb = "set" if key in held else "add"
                held[key] = value
                self.changes.append(f"{verb} {safe(key)} = {safe(shorten(str(wanted), _SHOWN))}")
        return held

    def rekeyed(self, key: str, value: V) -> tuple[str, V]:
        """Return what is kept of a value under another key."""
        return key, value

    def _require(self, key: str, held: Mapping[str, object]) -> None:
        if key not in held:
            raise _missing("the metadata have no key", key, held)

    def new_names(self, names: list[str]) -> list[str | None]:
        """Return the name that each tensor gets; None for those that are dropped."""
        dropped = set[str]()
        for pattern in self.wishes.drop:
            fits = glob(pattern)
            found = set(filter(fits, names))
            if not found:
                raise _missing("no tensor matches", pattern, names)
            dropped |= found
        unused = set(self.wishes.rules)
        new: list[str | None] = []
        for name in names:
            got = None
            if name not in dropped:
                rule = next((rule for rule in self.wishes.rules if rule(name) is not None), None)
                unused -= {rule}
                got = name if rule is None else str(rule(name))
            new.append(got)
            if got != name:
                self.changes.append(f"drop {safe(name)}" if got is None else f"rename {safe(name)} to {safe(got)}")
        for rule in self.wishes.rules:
            if rule in unused:
                raise _missing("no tensor fits the rule", str(rule), names)
        taken = Counter(name for name in new if name is not None)
        twice = next((name for name, count in taken.items() if count > 1), None)
        if twice is not None:
            raise OptionError(f"{taken[twice]:,} tensors would be called {twice}")
        return new

    def lay(self, places: Iterable[tuple[int, int, int]], there: int) -> None:
        """Note where what stays of the payload goes: beginning, new place and length of each stretch, in new order.

        ``there``: bytes of the payload as it is; a stretch may reach beyond, by padding that was left out.
        """
        for begin, to, length in places:
            self.payload = max(self.payload, to + length)
            length = min(length, there - begin)
            if self.moves and self.moves[-1][0] + self.moves[-1][2] == begin and begin - to == self._shift:
                self.moves[-1] = (*self.moves[-1][:2], self.moves[-1][2] + length)
            elif length > 0:
                self.moves.append((begin, to, length))
                self._shift = begin - to

    @property
    def stays(self) -> bool:
        """Whether all that stays of the payload is where it was, from its beginning."""
        return all(begin == to for begin, to, _ in self.moves)


def _missing(what: str, name: str, names: Iterable[str]) -> MissingNameError:
    from pparse.tree.result import near_misses

    near = near_misses(name.strip("*"), names)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return MissingNameError(f"{what} {name!r}{meant} (nothing was written)")


def refuse_broken(viewer: Viewer) -> str | None:
    """Raise `NotWholeError` for a file of which something is damaged or missing; return what is to be told of holes."""
    extent = viewer.extent()
    lost = extent.damaged or extent.truncated or extent.missing or extent.missing_bytes
    if lost or extent.document_status in BROKEN or viewer.findings.errors:
        reasons = [finding.reason for finding in viewer.all_findings(extent) if finding.is_fault]
        why = f": {reasons[0]}" if reasons else ""
        raise NotWholeError(f"it is not whole{why}; only sound files are edited", source=viewer.extraction.name)
    if not extent.unwritten:
        return None
    return (
        f"bytes of {count_words(extent.unwritten, 'tensor')} were never written (holes): a download is not resumed now"
    )


class EditResult:
    """What an edit did; of a dry run, what it would do."""

    def __init__(self, path: str, output: str | None, *, dry_run: bool) -> None:
        self.path = path
        """The file."""
        self.output = output
        """The copy that was edited instead; None: the file itself was."""
        self.dry_run = dry_run
        """Whether nothing was written because that was asked for."""
        self.changes: list[str] = []
        """What was changed, in words."""
        self.notes: list[str] = []
        """What else there is to know."""
        self.way: str | None = None
        """``in-place``, ``insert`` or ``copy``; None: there was nothing to write."""
        self.written = 0
        """Bytes written to the file, holes left out; the journal takes as many as the head once more."""
        self.size_before = self.size_after = 0
        """Size of the file before and after."""
        self.recovered: str | None = None
        """``finished`` or ``undone``: what became of an earlier edit that was interrupted; None: there was none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return dict(vars(self))

    def __repr__(self) -> str:
        return f"<EditResult {self.path!r}: {count_words(len(self.changes), 'change')}, {self.words}>"

    @property
    def words(self) -> str:
        """The way that was taken, and what it cost."""
        if self.way is None:
            return "nothing to write"
        how = {"in-place": "in place", "insert": "blocks inserted before the payload", "copy": "by a copy"}[self.way]
        return f"{how}, {self.written:,} bytes written ({format_size(self.written)} of {format_size(self.size_after)})"
