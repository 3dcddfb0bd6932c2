"""`DecodeEnv`: what decoding may use."""

from __future__ import annotations

from pparse.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.compressed.inflated import InflatedData
    from pparse.data.base import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import MemoryBudget


class DecodeEnv:
    """The memory, the limits and the scratch space of whoever decodes; not changed once it is made.

    ``scratch``: None where nobody said. ``poll`` is called often, and may raise.
    """

    __slots__ = ("budget", "limits", "poll", "scratch")

    def __init__(
        self,
        budget: MemoryBudget,
        limits: Limits | None = None,
        scratch: Scratch | None = None,
        poll: Callable[[], object] | None = None,
    ) -> None:
        self.budget: Final = budget
        self.limits: Final = limits or Limits()
        self.scratch: Final = scratch
        self.poll: Final = poll or _go_on

    def inflate(self, source: Range, codec: str, **options: Any) -> InflatedData:
        """Return what the stream of ``codec`` in ``source`` holds; ``options`` are others of `InflatedData`."""
        from pparse.compressed.inflated import InflatedData

        given = {"name": source.data.name, **options}
        return InflatedData(source, codec, budget=self.budget, limits=self.limits, scratch=self.scratch, **given)


def _go_on() -> None:
    """Nobody wants to interrupt."""
