"""What is known between two steps through a tar archive, and what a step came to."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.containers.archive import ArchiveMember
    from pparse.findings import Finding, Status
    from pparse.parsers.tar.extended import Records


class Pending:
    """What extended headers said of the member that is to come; ``at``, where the first of them begins."""

    __slots__ = ("at", "link", "name", "only_global", "problem", "records")

    def __init__(self, at: int) -> None:
        self.at = at
        self.name: bytes | None = None
        self.link: bytes | None = None
        self.records: list[Records] = []
        self.problem: str | None = None
        self.only_global = True

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self.problem = self.problem or problem


class Outcome:
    """What a step came to.

    ``member`` (None: no further one), ``pos``, where to go on (None: at the end), and what that makes of the archive:
    a ``status`` (None: nothing) and a ``finding``; ``blank``: the same of zeros that stand before the member.
    """

    __slots__ = ("blank", "finding", "member", "pos", "status")

    def __init__(
        self,
        member: ArchiveMember | None,
        pos: int | None,
        status: Status | None = None,
        finding: Finding | None = None,
    ) -> None:
        self.member = member
        self.pos = pos
        self.status = status
        self.finding = finding
        self.blank: tuple[Status | None, Finding | None] = (None, None)
