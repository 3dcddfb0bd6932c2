"""`Container`: what a parser is to those who look for other documents in its own."""

from __future__ import annotations

from pparse.errors import PathError
from pparse.locking import Doored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from pparse.tree.host import Host


class Container(Doored):
    """A format that holds other documents, or names them: an archive, a compressed stream, a set of shards, a folder.

    Its parser derives from this and from `Parser`; for any other, `Result.container` is None. Archives have ``files``
    and ``verify``, too: see `pparse.containers`.
    """

    is_set: ClassVar[bool] = False
    """Whether it stands for a set of files beside it, such as the shards of a model, named by its ``shard_names``."""

    saved_as_a_whole: ClassVar[bool] = False
    """Whether `recover` saves all files of the folder that it reads, not just one model of it."""

    doors = frozenset(
        (
            "directory",
            "verify_stream",
            "enter",
            "files",
            "inner",
            "open_member",
            "verify_opened",
            "shard",
            "shard_names",
            "unwrapped",
        )
        + ("look_at_names", "verify", "weight_map")
    )

    def shard_names(self) -> list[str]:
        """Return the names of the files of a set, each once."""
        return []

    def shard(self, name: str) -> Host:
        """Return one file of a set. Raises `PathError` if its name leaves the folder, and `SourceError`."""
        raise PathError("it is no set of files", path=name)

    def enter(self, name: str) -> Host | None:
        """Return the document called ``name`` in this one; None if there is none. Raises `PathError`."""
        return None

    def unwrapped(self) -> Host | None:
        """Return the document inside if this format only wraps it; else None. Raises `LimitError`."""
        return None

    def model_file(self) -> Host | None:
        """Return the file that holds the document, if this format reads a folder in which one file does; else None."""
        return None

    def holds(self) -> str | None:
        """Return what the members of an archive form together, if that is a known format that is not read yet."""
        return None

    def look_at_names(self) -> None:
        """Add the findings on names of members that should be known before files are written under them."""

    def verify_stream(self, *, unless_indexed: bool = False) -> None:
        """Read a compressed stream to its end, so that everything wrong with it is known."""

    def resolve_stream(self) -> None:
        """Compare the checksums of a stream if that costs little."""
