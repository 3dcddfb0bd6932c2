"""Where a walk over JSON text stands: the text, a block at a time, and the brackets that are open."""

from __future__ import annotations

import re
from array import array

from pparse.errors import LimitError
from pparse.findings import Finding, Severity
from pparse.kernels.json_fold import Carry, next_boundary
from pparse.paths import KeyStep, format_path, join_step
from pparse.tree.visit import Trail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.parsers.json.parser import JsonParser
    from pparse.paths import Step
    from pparse.tree.node import Node

BLOCK: Final = 256 << 10
# Hashes of the keys of one object are kept as a set up to this number, as an array above.
_KEY_SET: Final = 4096
_SET_COST: Final = 64
_ARRAY_COST: Final = 8
# Memory of an open bracket, without its key.
_LEVEL_COST: Final = 320


_BLANK: Final = re.compile(rb"[ \t\n\r]*+").match


class _OpenBracket:
    """One open bracket above the depth limit; ``around`` is the outer one, ``step`` leads from there to it."""

    __slots__ = ("around", "count", "depth", "hashes", "key", "keys", "occurrence", "repeats", "step")

    def __init__(self, around: _OpenBracket | None, step: Step | None) -> None:
        self.around = around
        self.step = step
        self.depth: int = 0 if around is None else around.depth + 1
        self.occurrence = 1  # of the key, among equal ones
        self.repeats: dict[str, int] | None = None
        self.count = 0
        self.key: str | None = None
        self.keys: set[int] | None = None
        self.hashes: array[int] | None = None

    def below(self, bracket: int) -> Step | None:
        """Return the step to the child being read; None in an object before a key."""
        if bracket == 0x5B:
            return KeyStep(self.count)
        return None if self.key is None else KeyStep(self.key, self.occurrence)


def _level_around(level: _OpenBracket) -> _OpenBracket | None:
    return level.around


def _step_to_level(level: _OpenBracket) -> Step | None:
    return level.step


class TextWalk:
    """The text of a document, a block at a time, and the stack of open brackets."""

    def __init__(self, parser: JsonParser, node: Node) -> None:
        self.parser = parser
        self.source = parser.result.extraction.name
        self.data = parser.result.extraction.data
        self.end = parser.result.extraction.known_end(node)
        self.limits = parser.result.extraction.session.limits
        self.base_steps = node.steps
        self.block = b""
        self.base = node.start
        self.start = node.start
        self.pos = node.start  # an offset of the data
        self.brackets = bytearray()
        self.levels: list[_OpenBracket] = []
        self.trail: Trail  # the paths of open brackets
        self.kept = 0  # bytes, for the keys of open objects
        self.charge = parser.result.extraction.session.budget.charge(2 * BLOCK, "a walk over JSON text")
        self.refused_depth: int | None = None  # offset of the first bracket below the limit
        self.fault: Finding | None = None  # the first that is an error
        self.on_close: Callable[[], object] | None = None  # called when a bracket was closed …
        self.on_note: Callable[[Finding], object] | None = None  # … and when something was found wrong

    # -- text --------------------------------------------------------------------------------------------------------

    def have(self, count: int = 1) -> bool:
        """Load ``count`` bytes from ``pos`` on into the block; return False if the text ends earlier."""
        if self.pos + count <= self.base + len(self.block):
            return True
        if self.pos + count > self.end:
            count = max(0, self.end - self.pos)
            if self.pos + count <= self.base + len(self.block):
                return False
            short = True
        else:
            short = False
        self.block = self.data.pread(self.pos, min(max(BLOCK, count), self.end - self.pos))
        self.base = self.pos
        return len(self.block) >= count and not short

    def skip_blank(self) -> bool:
        """Move to the next byte that is not whitespace; False at the end of the text."""
        while self.have():
            match = _BLANK(self.block, self.pos - self.base)
            self.pos = self.base + match.end() if match is not None else self.pos
            if self.pos < self.base + len(self.block):
                return True
        return False

    def token(self, matcher: Any) -> bytes | None:
        """Return what ``matcher`` matches at ``pos``, reading on if the end of the block may cut the match."""
        match = matcher(self.block, self.pos - self.base)
        at_block_end = match is None or match.end() == len(self.block)
        if at_block_end and self.base + len(self.block) < self.end and self.pos > self.base:
            self.block = self.data.pread(self.pos, min(BLOCK, self.end - self.pos))
            self.base = self.pos
            match = matcher(self.block, 0)
        return None if match is None else match[0]

    # -- stack -------------------------------------------------------------------------------------------------------

    @property
    def level(self) -> _OpenBracket | None:
        """The innermost open bracket, if it is within the depth limit."""
        return self.levels[-1] if len(self.levels) == len(self.brackets) and self.levels else None

    def push(self, bracket: int) -> None:
        """Open a bracket."""
        self.brackets.append(bracket)
        depth = len(self.levels)
        if len(self.brackets) <= self.limits.depth:
            around = self.levels[-1] if depth else None
            step = around.below(self.brackets[depth - 1]) if around is not None else None
            level = _OpenBracket(around, step)
            if around is None:
                lock = self.parser.result.lock
                self.trail = Trail(level, format_path(self.base_steps), _level_around, _step_to_level, lock)
            self.levels.append(level)
            self.kept += _LEVEL_COST
        elif self.refused_depth is None:
            self.refused_depth = self.pos
            refused = LimitError(
                f"nested deeper than depth={self.limits.depth}: no nodes below", option=self.limits.option("depth")
            )
            self.note("limit", refused.reason, self.pos, severity=Severity.WARNING)
        if not len(self.brackets) & (0x3FF if len(self.levels) == len(self.brackets) else 0xFFFF):
            self._account()

    def _account(self) -> None:
        self.charge.resize(2 * BLOCK + len(self.brackets) + self.kept)

    def pop(self) -> None:
        """Close the innermost bracket."""
        if len(self.levels) == len(self.brackets):
            level = self.levels.pop()
            self.kept -= _LEVEL_COST
            if level.hashes is not None:
                self._report_repeated(level)
                self.kept -= _ARRAY_COST * len(level.hashes)
            elif level.keys is not None:
                self.kept -= _SET_COST * len(level.keys)
        self.brackets.pop()
        if self.on_close is not None:
            self.on_close()

    def add_key(self, key: str) -> None:
        """Record a key of the innermost object, and report it if it is a repeated one."""
        level = self.level
        if level is None:
            return
        level.key = key
        level.occurrence = 1
        hashed = hash(key)
        if level.hashes is not None:
            level.hashes.append(hashed)
            self.kept += _ARRAY_COST
            if not len(level.hashes) & 0xFFFF:
                self._account()
            return
        if level.keys is None:
            level.keys = set()
        if hashed in level.keys:
            if level.repeats is None:
                level.repeats = {}
            level.occurrence = level.repeats[key] = level.repeats.get(key, 1) + 1
            self.note("duplicate-key", f"the key {key!r} occurs more than once", self.pos, severity=Severity.WARNING)
            return
        level.keys.add(hashed)
        self.kept += _SET_COST
        if not len(level.keys) & 0x3FF:
            self._account()
        if len(level.keys) > _KEY_SET:
            self.kept -= (_SET_COST - _ARRAY_COST) * len(level.keys)
            level.hashes = array("q", level.keys)
            level.keys = None

    def _report_repeated(self, level: _OpenBracket) -> None:
        hashes = level.hashes
        assert hashes is not None  # noqa: S101 -- the caller looked
        if len(hashes) > 100_000:
            import numpy as np

            ranked = np.frombuffer(hashes, np.int64)
            ranked.sort()
            repeated = int((ranked[1:] == ranked[:-1]).sum())
        else:
            repeated = len(hashes) - len(set(hashes))
        if repeated:
            self.note(
                "duplicate-key",
                f"{repeated} keys of this object occur more than once",
                self.pos,
                severity=Severity.WARNING,
            )

    def path(self) -> str:
        """Return the path of what is being read."""
        if not self.levels:
            return format_path(self.base_steps)
        level = self.levels[-1]
        return join_step(self.trail.path(level), level.below(self.brackets[len(self.levels) - 1]))

    def here(self) -> Callable[[], str]:
        """Return a function that returns the path of what is being read, now or later."""
        trail, level = self.trail, self.levels[-1]
        step = level.below(self.brackets[len(self.levels) - 1])
        return lambda: join_step(trail.path(level), step)

    def note(
        self, code: str, reason: str, offset: int, severity: Severity = Severity.ERROR, option: str = ""
    ) -> Finding:
        """Add a finding at the current path."""
        findings = self.parser.result.findings
        path = "" if findings.omitted else self.path()  # paths take time: skip those not kept
        finding = Finding(code, reason, severity=severity, path=path, source=self.source, offset=offset, option=option)
        findings.add(finding)
        if severity is Severity.ERROR and self.fault is None:
            self.fault = finding
        if self.on_note is not None:
            self.on_note(finding)
        return finding

    # -- faults ------------------------------------------------------------------------------------------------------

    def malformed(
        self, reason: str, offset: int, *, code: str = "malformed", in_string: bool = False, option: str = ""
    ) -> Finding:
        """Report a fault, and move to the next comma or closing bracket of the same depth."""
        finding = self.note(code, reason, offset, option=option)
        carry = Carry()
        carry.in_string = int(in_string)
        while self.have():
            at = next_boundary(self.block, self.pos - self.base, carry)
            self.pos = self.base + at
            if at < len(self.block):
                break
        return finding

    def truncated(self) -> Finding:
        """Report that the text ends inside a value."""
        finding = Finding("truncated", "the document ends early", path=self.path(), source=self.source, offset=self.end)
        self.fault = self.fault or finding
        return finding
