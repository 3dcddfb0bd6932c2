"""``pparse get -p``: writes all tensors that match to one file."""

from __future__ import annotations

from pparse.cli.exit_codes import DAMAGED, OK, USAGE
from pparse.cli.export import Chosen, dtype_named, form_of, kept_metadata, refuse_cast
from pparse.cli.get_tensor import write_chosen
from pparse.cli.matching import Matcher
from pparse.conversion.plan import flaw_of
from pparse.conversion.report import LeftOut
from pparse.document.registry import viewer_for
from pparse.errors import OptionError, PathError, UnsupportedError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.tensors.scales import codes_of, is_scale, quantisation_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.tensors.tensor import Tensor

# The most left-out tensors that are named one by one.
_NAMED: Final = 10


def give_many(document: Extraction, options: Any, out: Output) -> int:
    """Write every complete tensor that matches a pattern; name the incomplete ones."""
    form = form_of(options.output)
    if options.path is not None or form is None or options.raw or options.npy or options.json:
        raise OptionError("-p writes tensors to one file: use -o x.npz or -o x.safetensors, without PATH and --raw")
    viewer = viewer_for(document)
    if viewer is None:
        raise PathError(f"{document.format} has no tensors", path=options.patterns[0])
    dtype = dtype_named(options.dtype)
    matches = Matcher(options.patterns)
    whole: list[Tensor] = []
    texts: list[Tensor] = []
    lost: list[LeftOut] = []
    kept: set[str] = set()  # scales: they keep their type
    viewer.settle()  # what is written must be known to be whole
    for tensor in viewer.tensors():
        if matches.takes(viewer, tensor):
            scaled = quantisation_of(viewer, tensor)
            of = codes_of(viewer, tensor) if scaled is None else None
            if options.dequantize:
                if of is not None and matches.takes(viewer, of.codes):
                    continue  # the codes are multiplied by it
                tensor = tensor if scaled is None else scaled.tensor()
            elif scaled is not None:
                refuse_cast(scaled, options.dtype)
            if scaled is None and is_scale(viewer, tensor):
                kept.add(tensor.name)
            entry = _left_out(tensor)
            if entry is not None:
                lost.append(entry)
            else:
                (texts if tensor.is_text else whole).append(tensor)
    code = USAGE if _complain(matches, out) else DAMAGED if lost else OK
    if whole:
        items = [Chosen(tensor, None if tensor.name in kept else dtype) for tensor in whole]
        write_chosen(items, form, options, out, kept_metadata(viewer, form))
    _tell_lost(lost, len(whole), out)
    if texts:
        _tell_texts(texts, out, only=len(whole) + len(lost) == 0)
    return code


def _left_out(tensor: Tensor) -> LeftOut | None:
    """Return why a tensor is not written; None if it is whole."""
    tensor._confirm()
    flaw = flaw_of(tensor)
    if flaw is None and tensor.status is Status.UNSUPPORTED:
        flaw = tensor.status, "it cannot be read" if tensor.finding is None else tensor.finding.reason
    return None if flaw is None else LeftOut(tensor.name, *flaw)


def _tell_texts(texts: list[Tensor], out: Output, *, only: bool) -> None:
    """Name the tensors of texts, which no such file holds. Raises `UnsupportedError` if ``only`` they match."""
    if only:
        raise UnsupportedError(
            "only tensors of texts match, which are not arrays of numbers: 'pparse get FILE NAME --json' "
            "shows one of them",
            path=texts[0].name,
        )
    names = ", ".join(tensor.name for tensor in texts[:_NAMED])
    more = f", and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    out.error(f"note: {count_words(len(texts), 'tensor')} of texts left out: {names}{more}")


def _complain(matches: Matcher, out: Output) -> bool:
    complaints = list(matches.complaints())
    for complaint in complaints:
        out.error(complaint)
    return bool(complaints)


def _tell_lost(lost: list[LeftOut], whole: int, out: Output) -> None:
    """Name the tensors that are not complete."""
    for entry in lost[:_NAMED]:
        out.error(f"{entry.name}: {entry.status}: {entry.reason}; left out")
    if len(lost) > _NAMED:
        out.error(f"not complete, and left out: {count_words(len(lost) - _NAMED, 'other tensor')}")
    if lost:
        written = f"{whole:,} of {count_words(whole + len(lost), 'tensor')} written"
        out.error(written if whole else "none of the matching tensors is complete: nothing was written")
