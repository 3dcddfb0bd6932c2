"""Checkpoints of DeepSpeed's ZeRO: the file of the model's state, beside those of the optimizer of each rank.

``mp_rank_00_model_states.pt`` (stages 1 and 2) or ``zero_pp_rank_R_mp_rank_00_model_states.pt`` (stage 3, of each rank)
are written by ``torch.save``, and so is ``[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt`` of each rank
(deepspeed/runtime/engine.py, ``_get_ckpt_name``, ``_get_zero_ckpt_name``). The weights in full precision lie in the
latter, in flat pieces; `pparse.viewers.pytorch.zero` puts them together. The file of the model's state stands for all.
"""

from __future__ import annotations

from pparse.lazy import lazy_pattern
from pparse.parsers.model_folder import ModelFolderParser
from pparse.parsers.pytorch.zip import PyTorchZipParser
from pparse.tree.entry import MAP
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import ClassVar, Final

    from pparse.data.base import Range
    from pparse.document.extraction import FolderExtraction
    from pparse.tree.parser import Excerpt

STATES: Final = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
"""The file that stands for a checkpoint, of stages 1 and 2, and of stage 3."""
MOST_RANKS: Final = 1 << 16
"""More ranks than there are."""
_OF_RANK: Final = lazy_pattern(
    r"(?P<kind>(?:[a-z0-9]+_)?zero_pp_rank_)(?P<rank>[0-9]{1,6})_mp_rank_00_optim_states\.pt"
)


def ranks_in(names: Iterable[str]) -> tuple[str, int]:
    """Return how names of the optimizer's files begin, and how many ranks they tell of; 0: there are none.

    Of names that begin in several ways, nobody knows which are the checkpoint's: 0, too.
    """
    made = (match for match in map(_OF_RANK.fullmatch, names) if match is not None)
    found = [match for match in made if int(match["rank"]) < MOST_RANKS]
    kinds = {match["kind"] for match in found}
    return (kinds.pop(), 1 + max(int(match["rank"]) for match in found)) if len(kinds) == 1 else ("", 0)


def _is_first(excerpt: Excerpt) -> bool:
    return excerpt.bare_name.rpartition("/")[2] in STATES


class ZeroParser(PyTorchZipParser):
    """The model's state in a checkpoint of DeepSpeed's ZeRO."""

    name = "deepspeed-zero"
    description = "DeepSpeed ZeRO checkpoint (its model states, and the optimizer states of all ranks beside it)"
    extensions: ClassVar[tuple[str, ...]] = ("_model_states.pt",)
    viewer = "pparse.viewers.pytorch.zero:ZeroViewer"
    refines: ClassVar[tuple[str, ...]] = ("zip", "pytorch")
    references: ClassVar[tuple[str, ...]] = (
        "deepspeed/utils/zero_to_fp32.py",
        "deepspeed/runtime/engine.py",
        *PyTorchZipParser.references,
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "tensor parallelism (mp_rank_01 and more) is not put together: each file is listed by itself",
        "the optimizer's own states are not put together",
    )

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a checkpoint, by the name."""
        return super().match(excerpt) if _is_first(excerpt) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """The same."""
        return super().probe(excerpt, reader) if _is_first(excerpt) else Confidence.NO


class ZeroFolderParser(ModelFolderParser):
    """A folder with a checkpoint of DeepSpeed's ZeRO, for which the file of the model's state stands."""

    name = "zero-folder"
    description = "folder with a DeepSpeed ZeRO checkpoint (global_step…)"
    member_parts = STATES
    is_generic = False
    shapes: ClassVar[dict[str, str]] = {"zero-folder": MAP}
    references = ZeroParser.references
    limitations = ZeroParser.limitations

    @classmethod
    def models_in(cls, folder: FolderExtraction) -> Sequence[str]:
        """Return the file that stands for the checkpoint, if there is one, and no tensor parallelism."""
        if ranks_in(folder.members)[1] == 0 or any("mp_rank_01_" in name for name in folder.members):
            return []
        return [name for name in STATES if name in folder.members][:1]

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """CERTAIN by the names of the files."""
        return Confidence.CERTAIN if cls.models_in(folder) else Confidence.NO
