"""Formats that are one message of a known type, without a magic number: recognised by their fields."""

from __future__ import annotations

from pparse.kernels.wire import SLACK
from pparse.parsers.protobuf.fits import fits, fitting_tags, goes_on_fitting
from pparse.parsers.protobuf.parser import ProtobufParser
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.protobuf.schema import MessageType
    from pparse.tree.parser import Excerpt

HEAD: Final = 16 << 10
"""Bytes at the beginning that are looked at."""
# After so many tags of the type at the beginning, the type is certain, and anything else is damage.
_FITTING: Final = 6
# So many are needed after a damaged beginning: a node of a graph has them with its first attributes.
_FITTING_BEHIND: Final = 12


class MessageParser(ProtobufParser):
    """Base of the parsers of files that are one message of the type ``message_name``.

    All fields at the beginning must be fields of the type, down to three levels. The states are those of a message
    (`pparse.parsers.protobuf.parser`).
    """

    name = ""
    is_generic = False
    named_is_enough = False
    refines: ClassVar[tuple[str, ...]] = ("protobuf",)
    options: ClassVar[dict[str, str]] = {}
    usual_names: ClassVar[tuple[str, ...]] = ()
    """How files are named that may be damaged at their beginning; empty: by any of the extensions."""
    others: ClassVar[tuple[str, ...]] = ()
    """How files of other formats are named whose messages have messages of this type in them."""

    @classmethod
    def shows(cls, head: bytes, type: MessageType) -> bool:
        """Return whether a beginning whose fields fit shows that it is of this type, and not of a similar one."""
        return True

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if all fields at the beginning belong to the type; with the usual name, if some of them do."""
        from pparse.protos import schema

        head = excerpt.head(HEAD)
        size = excerpt.size
        whole = size is not None and size <= len(head)
        type = schema().message(cls.message_name or "")
        named = excerpt.ends_with(cls.usual_names or cls.extensions)
        if whole and len(head) <= SLACK:  # too short for more than to see that its fields are of the type
            fitting = fits(head, type, complete=True) or (named and fitting_tags(head, type) > 0)
        else:
            fitting = bool(head) and (fits(head, type, complete=False) or (whole and fits(head, type, complete=True)))
        if fitting and (named or cls.shows(head, type)):
            return Confidence.LIKELY
        if not named:
            return Confidence.NO
        if fitting_tags(head, type) >= _FITTING:
            return Confidence.LIKELY
        # A message in another must not be taken for a file that lost its beginning.
        other = excerpt.ends_with(cls.others)
        return Confidence.LIKELY if not other and goes_on_fitting(head, type, _FITTING_BEHIND) else Confidence.NO
