"""What is known between two steps through a tar archive, and what a step came to."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.containers.archive import ArchiveMember
    from pparse.findings import Finding, Status
    from pparse.parsers.tar.extended import Records


class Pending:
    """The content of extended headers for the next member; ``at`` is the offset of the first of them."""

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


class StepOutcome:
    """The result of a step."""

    __slots__ = ("blank", "finding", "member", "pos", "status")

    def __init__(
        self,
        member: ArchiveMember | None,
        pos: int | None,
        status: Status | None = None,
        finding: Finding | None = None,
    ) -> None:
        self.member = member
        """The member; None if there are no more."""
        self.pos = pos
        """Where to continue; None at the end."""
        self.status = status
        """The status that the archive gets from it; None for no change."""
        self.finding = finding
        """The finding on the archive, if any."""
        self.blank: tuple[Status | None, Finding | None] = (None, None)
        """The same for zeros before the member."""
